"""The model a row of measured runs trained, exactly as it ran: sizes from the columns, the rest from what its family has.

What a row leaves open and the field settles alike is filled in: a model without a vocabulary has that of GPT-2's tokenizer, padded;
GPTs (not gated) have biases, learned positions and share embedding and head, the later ones have rotary positions and no biases.
"""

import re
from typing import Any, Final

from traincast.accuracy.runs.row import Cells
from traincast.core.model_blocks import GATED, Experts, Latent, Local

VOCAB: Final = 51200  # GPT-2's 50257 tokens, padded to a multiple of 1024 by Megatron-LM with tp = 8
MLPS: Final = ("gelu", "relu", "relu2", "swiglu", "geglu")
LATENT: Final = Latent(kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128, q_rank=1536)  # DeepSeek-V2, V3 and Kimi K2
HEAD: Final = 128  # width of a head where it cannot be hidden/heads, and MaxText's default
SAMPLE: Final = 512  # tokens of a sample in instruction tuning, of which several are packed into a sequence; assumed: some hundreds
GPT_OSS: Final = r"gpt.?oss"
NEEDED: Final = ("layers", "hidden", "heads", "seq")


def shape(cells: Cells) -> dict[str, Any]:
    """Arguments of the row's `Model`; what is wrong is noted with the cells.

    Parameters
    ----------
    cells : Cells
        A row.

    Returns
    -------
    dict of str to Any
        Arguments, to be used only if no problem was noted.
    """
    mlp = cells.text("mlp").lower()
    if mlp not in MLPS:
        cells.problem(f"mlp = {cells.text('mlp')!r}" if mlp else "mlp is not known")
    layers, hidden, heads, seq = (cells.positive(name) for name in NEEDED)
    found: dict[str, Any] = {
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
        **_family(cells, mlp),
    }
    if cells.text("mla").lower() == "true":
        mtp = cells.says(r"MTP ?=? ?(\d+)", "moe_detail")
        found |= {"latent": LATENT, "kv_heads": None, "head_dim": None}
        found["mtp"] = int(mtp[1]) if mtp and not cells.says(r"w/o MTP", "model", "notes") else 0
    if cells.text("experts"):
        found |= {"experts": _experts(cells), "local": _local(cells)}
    if cells.says(r"SFT, packed|packed SFT", "notes"):  # samples do not attend to each other
        cells.assume("seq")
        found["local"] = Local(window=SAMPLE, chunked=True)
    return found


def _vocab(cells: Cells) -> int:
    """Size of the vocabulary; assumed where it is not told."""
    if not cells.text("vocab"):
        cells.assume("vocab")
    return cells.whole("vocab", VOCAB)


def _ffn(cells: Cells, hidden: int) -> int:
    """Width of a dense MLP; a row of experts may give it apart from the column, which then is that of the experts."""
    dense = cells.says(r"dense ffn (\d+)")
    return int(dense[1]) if dense else cells.whole("ffn", 4 * hidden)


def _head_dim(cells: Cells, hidden: int, heads: int) -> int | None:
    """Width of a head where it is told, or is not hidden/heads."""
    if told := cells.says(r"head[_ ]dim[ =]+(\d+)"):
        return int(told[1])
    even = heads > 0 and hidden % heads == 0
    return HEAD if cells.says("global_parameter_scale") or not even else None  # MaxText scales sizes but this one


def _family(cells: Cells, mlp: str) -> dict[str, Any]:
    """What models of a family have in common beside their sizes."""
    if cells.says(GPT_OSS, "model"):
        return {"norm": "rmsnorm", "biases": ("qkv", "proj", "mlp"), "sinks": True, "dropout": False, "positions": "rotary"}
    gated = mlp in GATED
    gpt = mlp in ("gelu", "relu") or bool(cells.says(r"GLM-130B", "model"))
    mpt = bool(cells.says(r"^MPT", "model"))  # llm-foundry: GPTs without biases; positions are learned in its benchmark
    unfused = cells.text("flash_attention") != "True"
    tied = gpt or bool(cells.says(r"PaLM", "model"))
    if told := cells.says(r"\b(un)?tied emb", "notes"):
        tied = told[1] is None
    return {
        "norm": "rmsnorm" if gated and not gpt else "layernorm",
        "biases": ("qkv", "proj", "mlp") if gpt and not mpt else (),
        "qk_norm": "head" if cells.says(r"qwen.?3", "model") else None,
        "dropout": gpt and unfused and not mpt,  # dropped from benchmarks when fused attention came
        "positions": "none" if cells.says("ALiBi") else "learned" if gpt else "rotary",
        "tied": tied,
    }


def _experts(cells: Cells) -> Experts:
    """The experts of a row."""
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
    """Attention to a stretch, as the details of a row say."""
    if sliding := cells.says(r"alternating sliding window (\d+)", "moe_detail"):
        return Local(window=int(sliding[1]), global_every=2)
    if chunked := cells.says(r"chunked attention (\d+) on 3 of 4", "moe_detail"):
        return Local(window=int(chunked[1]), chunked=True, global_every=4)
    return None


def width_of_name(text: str) -> float | None:
    """Parameters in billions that a model's name tells, None where it does not.

    Examples
    --------
    >>> width_of_name("GPT3-126M"), width_of_name("GPT3-175B"), width_of_name("toy")
    (0.126, 175.0, None)
    """
    found = re.search(r"(\d+(?:\.\d+)?)([BMbm])\b", text)
    return None if found is None else float(found[1]) * (1.0 if found[2] in "Bb" else 1e-3)
