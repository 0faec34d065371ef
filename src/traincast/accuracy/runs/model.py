"""The model of a row of measured runs: sizes from the columns, the rest from its family.

Open values get the usual ones: a model without a vocabulary has that of GPT-2's tokenizer, padded; GPTs (not
gated) have biases, learned positions and tied embeddings, later models have rotary positions and no biases.
"""

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args

from traincast.accuracy.runs.cells import Cells, is_file, patterns
from traincast.catalog import load_model, model_names
from traincast.model import (
    GATED_ACTIVATIONS,
    Adapters,
    Encoder,
    Experts,
    Latent,
    Local,
    Mlp,
    Model,
    Positions,
    parse_training,
)

SIZES: Final = ("layers", "hidden", "heads", "mlp")  # columns that a model of the catalogue stands for
NAMED: Final = ("model", "trained")  # columns whose names say what kind of training it is
MODEL_FILE: Final = "model file"  # key of the file that a row's `model` names
DEFAULT_VOCAB: Final = 51200  # GPT-2's 50,257, padded to a multiple of 1024 by Megatron-LM with tp = 8
# of DeepSeek-V2, V3, Kimi K2
LATENT: Final = Latent(kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128, q_rank=1536)
DEFAULT_HEAD_WIDTH: Final = 128  # where it cannot be hidden/heads, and MaxText's default
SIZE_TOLERANCE: Final = 0.15  # of the parameters in a name, as in Grok-1-314B
TIED_SHARE: Final = 0.1  # distance from the count with one matrix, relative to that with two
# arXiv 1810.04805: tokens attend to all, and belong to one of two sentences
BERT: Final = {"causal": False, "token_types": 2, "head_transform": True, "head_bias": True}
SFT_SAMPLE_TOKENS: Final = 512  # of a sample in packed instruction tuning: some hundreds of tokens


def separate_model_file(cells: Cells) -> None:
    """Move the file that a row's `model` names to a cell of its own: words of its path say nothing."""
    if is_file(name := cells.text("model")):
        cells.row |= {MODEL_FILE: name, "model": Path(name).stem}


def shape(cells: Cells) -> dict[str, Any]:
    """Return the arguments of the row's `Model`, valid only if no problem was noted.

    A row whose `model` is a file has the sizes of the file; one without sizes whose `model` begins with a
    name of the catalogue has those of the catalogue.
    """
    if name := cells.text(MODEL_FILE) or _catalogue_name(cells):
        model = replace(_of_catalogue(cells, name), adapters=adapters(cells))
        return {item.name: getattr(model, item.name) for item in fields(Model)}
    named = cells.text("model")
    if named and not any(map(cells.text, SIZES)):
        close = get_close_matches(named.lower(), model_names(), n=1, cutoff=0.9)
        instead = f" (did you mean {close[0]}?)" if close else ""
        cells.problem(f"model {named!r} is not in the catalogue{instead}")
    mlp = cells.text("mlp").lower()
    if mlp not in get_args(Mlp):
        cells.problem(f"mlp = {cells.text('mlp')!r}" if mlp else "mlp is not known")
    layers, hidden, heads, seq = (cells.positive(name) for name in ("layers", "hidden", "heads", "seq"))
    if not cells.text("vocab"):
        cells.assume("vocab")
    arguments: dict[str, Any] = {
        "name": cells.text("model") or cells.text("id") or "model",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "seq": seq,
        "vocab": cells.whole("vocab", DEFAULT_VOCAB),
        "ffn": cells.whole("ffn", 4 * hidden),  # of a row with experts it may be their width
        "kv_heads": cells.whole("kv_heads", heads),
        "head_dim": _head_dim(cells, hidden, heads),
        "causal": True,
        "mlp": mlp,
        "inner_dropout": False,
        **_family_arguments(cells, mlp),
    }
    if cells.text("mla").lower() == "true":
        mtp = cells.whole("mtp", 0)
        ranks: dict[str, Any] = {
            name: cells.positive(name) for name in ("q_rank", "kv_rank") if cells.text(name)
        }
        latent = replace(LATENT, **ranks)
        arguments |= {"latent": latent, "kv_heads": None, "head_dim": None, "mtp": mtp}
    if cells.text("experts"):
        arguments |= {"experts": _experts(cells), "local": _local(cells)}
    if cells.text("encoder_layers"):
        arguments |= _encoder_arguments(cells, layers)
    arguments["adapters"] = adapters(cells)
    if not cells.text("tied") and cells.text("params_b") and not cells.problems:
        arguments["tied"] = arguments.get("tied") or _is_tied(Model(**arguments), cells)
    if cells.truth("packed"):  # samples do not attend to each other
        cells.assume("seq")
        arguments["local"] = Local(window=SFT_SAMPLE_TOKENS, chunked=True)
    return arguments


def _encoder_arguments(cells: Cells, decoder_layers: int) -> dict[str, object]:
    """Return the arguments of an encoder-decoder: `layers` and `seq` are of its decoder.

    The head has a bias, as in Megatron-Core (models/T5/t5_model.py, T5LMHead).
    """
    encoder = Encoder(layers=cells.positive("encoder_layers"), seq=cells.positive("encoder_seq"))
    return {"encoder": encoder, "layers": encoder.layers + decoder_layers, "head_bias": True}


def _is_tied(model: Model, cells: Cells) -> bool:
    """Return whether the stated number of parameters has no place for a second matrix of the vocabulary."""
    stated = 1e9 * (cells.measurement("params_b") or 0)
    one = replace(model, tied=True).parameters
    return abs(stated - one) < TIED_SHARE * abs(stated - model.parameters)


def _of_catalogue(cells: Cells, name: str) -> Model:
    """Return a model of the catalogue, or of a file, with the sequences of a row.

    A row that states none has the model's own, and for diffusion images of the `image_size` that it states.
    """
    if cells.text("seq"):
        return load_model(name, seq=cells.positive("seq"))
    cells.assume("seq")
    model = load_model(name)
    if model.diffusion is None or not cells.text("image_size"):
        return model
    return model.with_images(size=cells.positive("image_size"))


def _catalogue_name(cells: Cells) -> str:
    """Return the model of the catalogue that a row without sizes names; empty if there is none."""
    if any(map(cells.text, SIZES[:3])):
        return ""
    stated = cells.text("model").lower().replace("~", "").rpartition("/")[2]
    return max((name for name in model_names() if _is_called(name, stated)), key=len, default="")


def _is_called(name: str, stated: str) -> bool:
    """Return whether a row's words begin with a model's name, and state no other number of parameters."""
    free = re.sub(r"(?<=\d)-(?=\d)", "[-_ ]", name.replace(".", "[._]"))
    free = re.sub(r"(?<=[a-z])-?v?(?=\d)", "[-_ ]?v?", free)  # gemma-4 is gemma4, nemotron-3 Nemotron V3
    free = re.sub(r"(?<=\w)-(?=\w)", "[-_ ]?", free)
    match = re.match(free + r"(?:[-_ ](\d+\.?\d*)b)?(?![a-z0-9.])", stated)
    if match is None or not match[1]:
        return match is not None
    parameters = load_model(name).parameters
    return abs(parameters - 1e9 * float(match[1])) < SIZE_TOLERANCE * parameters


def _head_dim(cells: Cells, hidden: int, heads: int) -> int | None:
    """Return the width of a head where it is stated, known of the family or not hidden/heads, else None."""
    if cells.text("head_dim"):
        return cells.positive("head_dim")
    if width := cells.choose("head_dim"):
        return int(width)
    return None if heads > 0 and hidden % heads == 0 else DEFAULT_HEAD_WIDTH


def _family_arguments(cells: Cells, mlp: str) -> dict[str, object]:
    """Return the arguments that a family of models has in common, besides sizes."""
    biased = ("qkv", "proj", "mlp")
    if cells.states("gpt_oss"):
        return {"norm": "rmsnorm", "biases": biased, "sinks": True, "dropout": False, "positions": "rotary"}
    gpt = mlp in ("gelu", "relu") or bool(cells.states("glm"))
    mpt = bool(cells.states("mpt"))
    tied = cells.truth("tied")
    positions = cells.text("positions").lower()
    if positions and positions not in get_args(Positions):
        cells.refuse(f"positions = {positions!r}: must be one of {', '.join(get_args(Positions))}")
        positions = ""
    return {
        "norm": "rmsnorm" if mlp in GATED_ACTIVATIONS and not gpt else "layernorm",
        "biases": biased if gpt and not mpt else (),
        "qk_norm": "head" if cells.states("qwen3") else None,
        # dropped from benchmarks when fused attention came
        "dropout": gpt and cells.text("flash_attention") != "True" and not mpt,
        "positions": positions or ("learned" if gpt else "rotary"),
        "tied": gpt or bool(cells.states("palm")) if tied is None else tied,
        **(BERT if cells.states("bert") else {}),
    }


def _experts(cells: Cells) -> Experts:
    ffn = cells.whole("moe_ffn", cells.whole("ffn", 0))
    limited = {None: (1, 1), 2: (8, 3), 3: (8, 4)}[cells.stated_number("deepseek")]
    shared_count = cells.whole("shared_experts", 0)
    # a number above that of all experts is their width, as Megatron's flag has it
    shared_ffn = shared_count if shared_count > cells.whole("experts") else shared_count * ffn
    return Experts(
        experts=cells.whole("experts"),
        topk=cells.whole("topk"),
        ffn=ffn,
        shared_ffn=cells.whole("shared_ffn", shared_ffn),
        first_dense=cells.whole("dense_layers", 0),
        every=cells.positive("moe_every", 1),
        router_bias=bool(cells.states("gpt_oss")),
        groups=limited[0],
        group_topk=limited[1],
        capacity=cells.measurement("capacity"),
        routing="natural" if cells.text("routing") == "natural" else "forced",
    )


def _local(cells: Cells) -> Local | None:
    if cells.text("chunk"):
        every = cells.positive("global_every", 4)
        return Local(window=cells.positive("chunk"), chunked=True, global_every=every)
    window = cells.positive("window") if cells.text("window") else cells.choose("sliding_window")
    return Local(window=window, global_every=cells.positive("global_every", 2)) if window else None


def adapters(cells: Cells) -> Adapters | None:
    """Return the adapters of a row that trains LoRA or QLoRA; None where it trains all weights.

    The column `trained` states them as `--train` does; what it leaves open has the usual value there.
    """
    if _fine_tuning(cells) is None:
        return None
    stated = cells.text("trained")
    if ":" in stated:
        if "targets=" not in stated:
            cells.assume("trained")
        return parse_training(stated)
    cells.assume("trained")
    return parse_training("qlora" if "qlora" in f"{stated} {cells.text('model')}".lower() else "lora")


def _trains_all(cells: Cells) -> bool:
    """Return whether a row says that all weights are trained."""
    known = patterns()["not_modelled"]
    trained = cells.text("trained")
    if trained:
        return re.match(known["trains_all"], trained, re.IGNORECASE) is not None
    return _states(cells, known["full"], NAMED) or _states(cells, "full", ("model",))


def _fine_tuning(cells: Cells) -> str | None:
    """Return why training of a part is not modelled: empty for LoRA; None where all weights are trained."""
    for kind in patterns()["not_modelled"]["fine_tuning"]:
        words = kind["phrases"].replace("{parts}", kind.get("parts", ""))
        if _states(cells, words, NAMED, kind.get("not_after")):
            reason: str = kind["reason"]
            return reason
    return None


def note_unmodelled(cells: Cells) -> None:
    """Note with the cells every reason why the training of a row is not modelled, a stated one among them."""
    if stated := cells.text("skipped"):
        cells.problem(stated)
    known = patterns()["not_modelled"]
    trained = cells.text("trained")
    full = _trains_all(cells)
    fine_tuning = _fine_tuning(cells)
    reasons = []
    if fine_tuning:
        reasons.append(fine_tuning)
    elif fine_tuning == "" and full and trained:
        reasons.append(f"trained = {trained!r}, but the model's name says LoRA; write lora or all in both")
    for kind in known["subjects"]:
        if kind.get("unless_in_catalogue") and (cells.text(MODEL_FILE) or _catalogue_name(cells)):
            continue
        if "unless_stated" in kind and cells.text(kind["unless_stated"]):
            continue
        named = "names" in kind and _states(cells, kind["names"], ("model",))
        if named or ("phrases" in kind and _states(cells, kind["phrases"], NAMED)):
            reasons.append(kind["reason"])
    if trained and not full and fine_tuning is None and not reasons:
        reasons.append(f"trained = {trained!r}: write all, or lora or qlora as --train takes them")
    for reason in reasons:
        cells.problem(reason)


def _states(cells: Cells, pattern: str, columns: Iterable[str], not_after: str | None = None) -> bool:
    """Return whether a cell has words of a pattern, with neither a denial nor `not_after` next to them."""
    denials = patterns()["not_modelled"]
    before = denials["denied_before"] + (f"|(?:{not_after})$" if not_after else "")
    words = re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", re.IGNORECASE)
    for text in map(cells.text, columns):
        for match in words.finditer(text):
            denied = re.search(before, text[: match.start()], re.IGNORECASE)
            if not denied and not re.match(denials["denied_after"], text[match.end() :], re.IGNORECASE):
                return True
    return False
