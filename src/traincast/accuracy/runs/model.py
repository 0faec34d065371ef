"""The model of a row of measured runs, exactly as it ran: sizes from the columns, the rest from its model family.

Open values get the usual ones: a model without a vocabulary has that of GPT-2's tokenizer, padded; GPTs (not gated) have biases,
learned positions and tied embeddings, later models have rotary positions and no biases.
"""

import re
from typing import Any, Final

from traincast.accuracy.runs.row import Cells
from traincast.core.model_blocks import GATED, Experts, Latent, Local

DEFAULT_VOCAB: Final = 51200  # GPT-2's 50257 tokens, padded to a multiple of 1024 by Megatron-LM with tp = 8
MLPS: Final = ("gelu", "relu", "relu2", "swiglu", "geglu")
LATENT: Final = Latent(
    kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128, q_rank=1536
)  # DeepSeek-V2, V3 and Kimi K2
DEFAULT_HEAD_WIDTH: Final = 128  # width of a head where it cannot be hidden/heads, and MaxText's default
SFT_SAMPLE_TOKENS: Final = (
    512  # of a sample in packed instruction tuning; assumed, samples are some hundreds of tokens
)
GPT_OSS: Final = r"gpt.?oss"
NEEDED: Final = ("layers", "hidden", "heads", "seq")


def shape(cells: Cells) -> dict[str, Any]:
    """Return the arguments of the row's `Model`; problems are noted with the cells.

    Parameters
    ----------
    cells : Cells
        A row.

    Returns
    -------
    dict of str to Any
        Arguments, valid only if no problem was noted.
    """
    mlp = cells.text("mlp").lower()
    if mlp not in MLPS:
        cells.problem(f"mlp = {cells.text('mlp')!r}" if mlp else "mlp is not known")
    layers, hidden, heads, seq = (cells.positive(name) for name in NEEDED)
    arguments: dict[str, Any] = {
        "name": cells.text("model") or cells.text("id") or "model",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "seq": seq,
        "vocab": _vocab(cells),
        "ffn": _ffn(cells, hidden),
        "kv_heads": cells.whole("kv_heads", heads),
        "head_dim": _head_dim(cells, hidden, heads),
        "causal": True,
        "mlp": mlp,
        "inner_dropout": False,
        **_family_arguments(cells, mlp),
    }
    if cells.text("mla").lower() == "true":
        mtp = cells.says(r"MTP ?=? ?(\d+)", "moe_detail")
        arguments |= {"latent": LATENT, "kv_heads": None, "head_dim": None}
        arguments["mtp"] = int(mtp[1]) if mtp and not cells.says(r"w/o MTP", "model", "notes") else 0
    if cells.text("experts"):
        arguments |= {"experts": _experts(cells), "local": _local(cells)}
    if cells.says(r"SFT, packed|packed SFT", "notes"):  # samples do not attend to each other
        cells.assume("seq")
        arguments["local"] = Local(window=SFT_SAMPLE_TOKENS, chunked=True)
    return arguments


def _vocab(cells: Cells) -> int:
    """Return the size of the vocabulary; assumed where it is not stated."""
    if not cells.text("vocab"):
        cells.assume("vocab")
    return cells.whole("vocab", DEFAULT_VOCAB)


def _ffn(cells: Cells, hidden: int) -> int:
    """Return the width of a dense MLP; a row with experts may state it in words, the column then is that of the experts."""
    dense = cells.says(r"dense ffn (\d+)")
    return int(dense[1]) if dense else cells.whole("ffn", 4 * hidden)


def _head_dim(cells: Cells, hidden: int, heads: int) -> int | None:
    """Return the width of a head where it is stated or is not hidden/heads, else None."""
    if stated := cells.says(r"head[_ ]dim[ =]+(\d+)"):
        return int(stated[1])
    even = heads > 0 and hidden % heads == 0
    return (
        DEFAULT_HEAD_WIDTH if cells.says("global_parameter_scale") or not even else None
    )  # MaxText scales all sizes but this


def _family_arguments(cells: Cells, mlp: str) -> dict[str, Any]:
    """Return the arguments that a family of models has in common, besides sizes."""
    if cells.says(GPT_OSS, "model"):
        return {
            "norm": "rmsnorm",
            "biases": ("qkv", "proj", "mlp"),
            "sinks": True,
            "dropout": False,
            "positions": "rotary",
        }
    gated = mlp in GATED
    gpt = mlp in ("gelu", "relu") or bool(cells.says(r"GLM-130B", "model"))
    mpt = bool(
        cells.says(r"^MPT", "model")
    )  # llm-foundry: GPTs without biases; positions are learned in its benchmark
    unfused = cells.text("flash_attention") != "True"
    tied = gpt or bool(cells.says(r"PaLM", "model"))
    if stated := cells.says(r"\b(un)?tied emb", "notes"):
        tied = stated[1] is None
    return {
        "norm": "rmsnorm" if gated and not gpt else "layernorm",
        "biases": ("qkv", "proj", "mlp") if gpt and not mpt else (),
        "qk_norm": "head" if cells.says(r"qwen.?3", "model") else None,
        "dropout": gpt and unfused and not mpt,  # dropped from benchmarks when fused attention came
        "positions": "none" if cells.says("ALiBi") else "learned" if gpt else "rotary",
        "tied": tied,
    }


def _experts(cells: Cells) -> Experts:
    """Return the experts of a row."""
    ffn = cells.whole("moe_ffn", cells.whole("ffn", 0))
    shared = cells.says(r"shared_ffn=(\d+)", "moe_detail")
    dropping = cells.says(r"capacity|dropping|token.?drop", "moe_detail", "model", "notes")
    factor = cells.says(r"capacity factor (\d+\.?\d*)")
    return Experts(
        experts=cells.whole("experts"),
        topk=cells.whole("topk"),
        ffn=ffn,
        shared_ffn=int(shared[1]) if shared else cells.whole("shared_experts", 0) * ffn,
        first_dense=cells.whole("dense_layers", 0),
        every=2 if cells.says("alternate layers", "moe_detail") else 1,
        router_bias=bool(cells.says(GPT_OSS, "model")),
        capacity=max(float(factor[1]), 1.0) if factor else 1.0 if dropping else None,
    )


def _local(cells: Cells) -> Local | None:
    """Return the local attention that the details of a row state; None without."""
    if sliding := cells.says(r"alternating sliding window (\d+)", "moe_detail"):
        return Local(window=int(sliding[1]), global_every=2)
    if chunked := cells.says(r"chunked attention (\d+) on 3 of 4", "moe_detail"):
        return Local(window=int(chunked[1]), chunked=True, global_every=4)
    return None


def width_of_name(text: str) -> float | None:
    """Return the parameters in a model's name [billion]; None where there are none.

    Examples
    --------
    >>> width_of_name("GPT3-126M"), width_of_name("GPT3-175B"), width_of_name("toy")
    (0.126, 175.0, None)
    """
    match = re.search(r"(\d+(?:\.\d+)?)([BMbm])\b", text)
    return None if match is None else float(match[1]) * (1.0 if match[2] in "Bb" else 1e-3)
