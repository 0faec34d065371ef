"""The plan a row of measured runs ran: degrees, sharding, precision, what overlaps. `guesses` fills in what it leaves open."""

import re
from dataclasses import dataclass
from typing import Any, Final

from traincast.accuracy.runs.layer_layout import layout
from traincast.accuracy.runs.recompute import recomputed
from traincast.accuracy.runs.row import Cells

PRECISION: Final = {  # what a row calls its precision, with a detail that tells more
    "16-bit": ((r"", "fp16"),),
    "fp8": ((r"row.?wise", "fp8-rowwise"), (r"current|tensorwise|torchao", "fp8-current"), (r"block", "fp8-block"), (r"", "fp8")),
    **{
        name: ((r"", name),)
        for name in ("fp32", "fp16", "bf16", "bf16-pure", "fp8-current", "fp8-rowwise", "fp8-block", "mxfp8", "nvfp4", "int8")
    },
}
SCHEDULES: Final = {"1F1B": "1f1b", "1F1B-I": "1f1b", "ZB-1p": "zb-h1", "ZB-2p": "zb-2p"}  # as Zero Bubble's tables call them
ZERO: Final = {"0": 0, "1": 1, "2": 2, "3": 3, "hsdp": 3}
GATHERED_ONCE: Final = ("torchtitan", "automodel")  # FSDP2 keeps weights gathered while a pipeline runs, and reduces at its end
OVERLAPPING: Final = (  # stacks whose dense runs overlap tensor-parallel communication where nothing else is told
    "megatron-core-2024", "megatron-core-2025", "megatron-bridge-2025", "megatron-bridge-26.02", "megatron-bridge-2026",
    "nemo-2024", "mlperf-2023", "megascale-2024",
)  # fmt: skip
OWN: Final = (
    "cp_kind",
    "schedule",
    "tp_overlap",
    "ep_overlap",
    "offload",
    "grad_dtype",
    "optimizer_kind",
)  # a table may have a plan's own columns
SIXTEEN_BITS: Final = (
    r"\bNeMo\b(?! AutoModel)|Megatron-Bridge"  # their benchmarks reduce gradients so (grad_reduce_in_fp32 is False)
)
EP_OVERLAP: Final = r"a2a overlap|1f1b overlap|DualPipe|QWEN3_235B_A22B\w*_H100_"  # told, or set by the recipe that is told
INTERLEAVED: Final = (  # Megatron overlaps pipeline traffic where it interleaves, only; NVIDIA recommends it
    r"interleav(ed|ing)|PP/DP comm overlap|recommended H100 configs"
)
DEGREES: Final = ("pp", "cp", "ep")
WITH_SP: Final = ("megatron", "nemo", "mlperf", "megascale")  # stacks with sequence parallelism since Megatron-LM of 2022
CUT_BETWEEN: Final = ("maxtext",)  # XLA cuts activations between blocks over tp by their width: the same traffic (activation_embed)
BEFORE_SP: Final = ("megatron-lm-2021", "megatron-deepspeed-2022")


@dataclass(frozen=True, kw_only=True)
class Degrees:
    """How a row cuts its model: tensor, context, expert, pipeline, virtual stages and data parallelism."""

    tp: int
    cp: int
    ep: int
    pp: int
    vp: int
    dp: int


def degrees(cells: Cells, layers: int) -> Degrees:
    """The degrees of a row; what is not told and follows from the others is filled in.

    Parameters
    ----------
    cells : Cells
        A row.
    layers : int
        Layers of the model.
    """
    before = len(cells.problems)
    gpus = cells.positive("gpus")
    counted = len(cells.problems) == before
    pp, cp, ep = (cells.positive(name, 1) for name in DEGREES)
    told, tp = cells.text("dp"), cells.positive("tp", 0)
    if not tp:  # it follows from the other degrees
        known = cells.whole("dp", 1) * pp * cp if told else 0
        if gpus == 1 or (known and gpus % known == 0):
            tp = max(gpus // max(known, 1), 1)
        else:
            cells.problem("tp is not known")
            tp = 1
    split = tp * pp * cp
    if gpus % split or not gpus:
        if counted:
            cells.problem(f"tp × pp × cp = {split} does not divide {gpus} GPUs")
        return Degrees(tp=tp, cp=cp, ep=ep, pp=pp, vp=1, dp=1)
    dp = cells.whole("dp", gpus // split)
    if dp * split != gpus:
        cells.problem(f"dp × tp × pp × cp = {dp * split}, not the {gpus} GPUs")
    return Degrees(tp=tp, cp=cp, ep=ep, pp=pp, vp=_virtual(cells, layers, pp), dp=dp)


def _virtual(cells: Cells, layers: int, pp: int) -> int:
    """Virtual stages; where a row only says that it interleaves, the fewest that divide the layers of a stage."""
    told = cells.positive("vp", 1)
    if pp == 1 or cells.text("vp"):
        return told if pp > 1 else 1
    if cells.says(INTERLEAVED, "notes", "source"):
        cells.assume("vp")
        heard = cells.says(r"\bVP (\d+) per", "notes")  # of others
        if heard and layers % (pp * int(heard[1])) == 0:
            return int(heard[1])
        if cells.says("torchtitan", "stack"):
            return 2
        return next((v for v in range(2, layers // pp + 1) if layers % (pp * v) == 0), 1)
    return 1


def plan(cells: Cells, cut: Degrees, model: dict[str, Any], stack: str) -> dict[str, Any]:
    """Arguments of the row's `Plan`; `recompute` and `mbs` are missing where the row does not say.

    Parameters
    ----------
    cells : Cells
        A row.
    cut : Degrees
        Its degrees.
    model : dict of str to Any
        Arguments of its model.
    stack : str
        Software that ran it.

    Returns
    -------
    dict of str to Any
        Arguments, to be used only if no problem was noted.
    """
    moe = model.get("experts") is not None
    found: dict[str, Any] = {
        **vars(cut),
        "etp": cut.tp if moe and _wide(model) and cut.tp * cut.ep <= cut.tp * cut.cp * cut.dp else 1,
        "cp_kind": "none" if cut.cp == 1 else _cp_kind(cells),
        "sp": cut.tp == 1 or moe or _sequence_parallel(cells, stack),
        "attention": _attention(cells),
        "precision": _precision(cells),
        "layout": layout(cells, model["layers"], cut.pp * cut.vp, stack),
        **_sharding(cells, cut, stack),
    }
    schedule = cells.says(r"schedule=([\w-]+)", "notes")
    found["schedule"] = "dualpipe" if cells.says("DualPipe") else SCHEDULES.get(schedule[1], "1f1b") if schedule else "1f1b"
    found["ep_overlap"] = cut.ep > 1 and (stack == "megatron-bridge-2026" or bool(cells.says(EP_OVERLAP, "notes")))
    found["tp_overlap"] = cut.tp > 1 and _overlaps(cells, stack, found["sp"], moe)
    if cells.says(r"fp32 (grad|reduce)", "precision_detail"):
        found["grad_dtype"] = "fp32"
    elif cells.says("pure", "precision_detail") or cells.says(SIXTEEN_BITS, "stack"):  # the master copy of weights is kept
        found["grad_dtype"] = "16-bit"
    if cells.says("muon", "notes"):
        found["optimizer_kind"] = "muon"
    if _offloads(cells, model["layers"]):
        found["offload"] = "activations"
    found |= recomputed(cells, model["layers"] / cut.pp) or {}
    if cells.text("mbs"):
        found["mbs"] = cells.positive("mbs")
    own = {name: cells.text(name).lower() for name in OWN if cells.text(name)}
    return found | own | {name: own[name] == "true" for name in ("tp_overlap", "ep_overlap") if name in own}


def _offloads(cells: Cells, layers: int) -> bool:
    """Whether activations are offloaded: of most layers; what a plan cannot say is that a few layers' are."""
    if some := cells.says(r"CPU activation offload\w* of (\d+) layers", "notes"):
        cells.assume("offload")
        return 2 * int(some[1]) >= layers
    return bool(cells.says(r"CPU activation offload|offloaded", "notes", "recompute_detail"))


def _wide(model: dict[str, Any]) -> bool:
    """Whether experts are wide enough to be cut over tp, which is Megatron-Core's default and narrow ones turn off."""
    return bool(model["experts"].ffn > model["hidden"])


def _attention(cells: Cells) -> str:
    """Kernel of attention; where it is not told, GPTs have the unfused one of their years."""
    told = cells.text("flash_attention").lower()
    if told not in ("true", "false"):
        told = "false" if cells.text("mlp").lower() in ("gelu", "relu") else "true"
    return "flash" if told == "true" else "unfused"


def _cp_kind(cells: Cells) -> str:
    """How the sequence is cut: in a ring unless something else is told."""
    if cells.says("ulysses", "notes", "source"):
        return "ulysses"
    return "all-gather" if cells.says(r"all-?gather|Llama 3 herd", "notes", "source") else "ring"


def _sequence_parallel(cells: Cells, stack: str) -> bool:
    """Whether tokens are cut over tp between blocks; where it is not told, as the stack does."""
    if stack.startswith(CUT_BETWEEN):
        return True
    told = cells.text("sp").lower()
    if told in ("true", "false"):
        return told == "true"
    cells.assume("sp")
    return stack.startswith(WITH_SP) and stack not in BEFORE_SP


def _overlaps(cells: Cells, stack: str, sp: bool, moe: bool) -> bool:
    """Whether tensor-parallel communication overlaps with products."""
    if cells.says(r"vanilla TP|overlap (off|false|disabled)|comm_overlap (off|false)", "notes", "source"):
        return False
    if cells.says(r"async ?TP|TP comm overlap on|TP/PP/DP comm overlap enabled", "notes", "source"):
        return True
    if cells.text("precision").lower() == "nvfp4":  # no user buffers of Transformer Engine at 4 bits
        return False
    return stack in OVERLAPPING and sp and not moe


def _precision(cells: Cells) -> str:
    """The precision recipe; on TPUs fp8, which their matrix units do not have, runs at 16 bits unless it is int8."""
    told, detail = cells.text("precision").lower(), cells.text("precision_detail")
    if told not in PRECISION:
        cells.problem(f"precision {told or 'not known'}")
        return "bf16"
    if told == "fp8" and cells.text("gpu").lower().startswith("tpu"):
        cells.assume("precision")
        return "int8" if "int8" in detail else "bf16"
    if told == "fp8" and cells.says("DeepSeek-V3", "source"):  # arXiv 2412.19437, section 3.3
        return "fp8-block"
    return next(name for pattern, name in PRECISION[told] if re.search(pattern, detail, re.IGNORECASE))


def _sharding(cells: Cells, cut: Degrees, stack: str) -> dict[str, Any]:
    """ZeRO stage, and replicas of what is sharded."""
    told, detail = cells.text("zero").lower(), cells.text("zero_detail")
    if told and told not in ZERO:
        cells.problem(f"zero = {told!r}")
    if not told:
        cells.assume("zero")
    zero = ZERO.get(told, 3 if re.search("FSDP|ZeRO-3", detail) else 1)
    whole = cut.pp > 1 and (
        zero == 2 or stack.startswith(GATHERED_ONCE)
    )  # gradients are kept whole until a step's last micro-batch
    if zero > 1 and (whole or re.search("no reshard", detail)):
        zero = 1
    holders = cut.dp * cut.cp
    replicas = _replicas(cells, holders, cut) if zero else 1
    return {"zero": zero, "replicas": replicas if replicas and holders % replicas == 0 else 1}


def _replicas(cells: Cells, holders: int, cut: Degrees) -> int:
    """Replicas of what is sharded, of so many ranks that hold the same weights."""
    detail = cells.text("zero_detail")
    if found := re.search(r"x DP (\d+)|(\d+)-way (?:pod )?DP", detail):
        return int(found[1] or found[2])
    if found := re.search(r"groups? (?:of )?(\d+)|FSDP (\d+)|\((\d+)-way\)", detail):
        return holders // max(int(found[1] or found[2] or found[3]), 1)
    if slices := cells.says(r"\bDCN\D*(\d+)", "interconnect"):  # TPUs shard within a slice
        return int(slices[1])
    if "within slice" in detail or re.search(r"within \d+-chip slice", detail):  # of which there is one
        return 1
    if cells.text("zero").lower() == "hsdp" or "within node" in detail:
        return holders * cut.tp // cells.positive("gpus_per_node", 8)
    return 1
