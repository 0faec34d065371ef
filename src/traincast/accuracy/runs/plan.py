"""The plan of a row of measured runs: degrees, sharding, precision, overlap. `unstated` fills in what it leaves open."""

import re
from dataclasses import dataclass
from typing import Any, Final

from traincast.accuracy.runs.layer_layout import layout
from traincast.accuracy.runs.recompute import recomputed
from traincast.accuracy.runs.row import Cells

PRECISION: Final = {  # precision of a row → pattern of its detail, recipe; the first match counts
    "16-bit": ((r"", "fp16"),),
    "fp8": (
        (r"row.?wise", "fp8-rowwise"),
        (r"current|tensorwise|torchao", "fp8-current"),
        (r"block", "fp8-block"),
        (r"", "fp8"),
    ),
    **{
        name: ((r"", name),)
        for name in (
            "fp32",
            "fp16",
            "bf16",
            "bf16-pure",
            "fp8-current",
            "fp8-rowwise",
            "fp8-block",
            "mxfp8",
            "nvfp4",
            "int8",
        )
    },
}
SCHEDULES: Final = {
    "1F1B": "1f1b",
    "1F1B-I": "1f1b",
    "ZB-1p": "zb-h1",
    "ZB-2p": "zb-2p",
}  # names of Zero Bubble's tables
ZERO: Final = {"0": 0, "1": 1, "2": 2, "3": 3, "hsdp": 3}
GATHERED_ONCE: Final = (
    "torchtitan",
    "automodel",
)  # FSDP2 keeps weights gathered while a pipeline runs, and reduces at its end
OVERLAPPING: Final = (  # stacks whose dense runs overlap tensor-parallel communication by default
    "megatron-core-2024", "megatron-core-2025", "megatron-bridge-2025", "megatron-bridge-26.02", "megatron-bridge-2026",
    "nemo-2024", "mlperf-2023", "megascale-2024",
)  # fmt: skip
PLAN_COLUMNS: Final = (
    "cp_kind",
    "schedule",
    "tp_overlap",
    "ep_overlap",
    "offload",
    "grad_dtype",
    "optimizer_kind",
)  # columns named as fields of a plan
REDUCES_IN_16_BITS: Final = r"\bNeMo\b(?! AutoModel)|Megatron-Bridge"  # their benchmarks reduce gradients so (grad_reduce_in_fp32 is False)
EP_OVERLAP: Final = (
    r"a2a overlap|1f1b overlap|DualPipe|QWEN3_235B_A22B\w*_H100_"  # stated, or set by the stated recipe
)
INTERLEAVED: Final = (  # Megatron overlaps pipeline traffic where it interleaves, only; NVIDIA recommends it
    r"interleav(ed|ing)|PP/DP comm overlap|recommended H100 configs"
)
DEGREES: Final = ("pp", "cp", "ep")
WITH_SP: Final = (
    "megatron",
    "nemo",
    "mlperf",
    "megascale",
)  # stacks with sequence parallelism since Megatron-LM of 2022
SHARDS_RESIDUAL: Final = (
    "maxtext",
)  # XLA shards activations between blocks by width: the same traffic (activation_embed)
BEFORE_SP: Final = ("megatron-lm-2021", "megatron-deepspeed-2022")


@dataclass(frozen=True, kw_only=True)
class Degrees:
    """Parallel degrees of a row: tensor, context, expert, pipeline, virtual stages and data."""

    tp: int
    cp: int
    ep: int
    pp: int
    vp: int
    dp: int


def degrees(cells: Cells, layers: int) -> Degrees:
    """Return the degrees of a row; a missing degree that follows from the others is filled in.

    Parameters
    ----------
    cells : Cells
        A row.
    layers : int
        Layers of the model.
    """
    problems_before = len(cells.problems)
    gpus = cells.positive("gpus")
    gpus_are_known = len(cells.problems) == problems_before
    pp, cp, ep = (cells.positive(name, 1) for name in DEGREES)
    stated_dp, tp = cells.text("dp"), cells.positive("tp", 0)
    if not tp:  # it follows from the other degrees
        split_without_tp = cells.whole("dp", 1) * pp * cp if stated_dp else 0
        if gpus == 1 or (split_without_tp and gpus % split_without_tp == 0):
            tp = max(gpus // max(split_without_tp, 1), 1)
        else:
            cells.problem("tp is not known")
            tp = 1
    split = tp * pp * cp
    if gpus % split or not gpus:
        if gpus_are_known:
            cells.problem(f"tp × pp × cp = {split} does not divide {gpus} GPUs")
        return Degrees(tp=tp, cp=cp, ep=ep, pp=pp, vp=1, dp=1)
    dp = cells.whole("dp", gpus // split)
    if dp * split != gpus:
        cells.problem(f"dp × tp × pp × cp = {dp * split}, not the {gpus} GPUs")
    return Degrees(tp=tp, cp=cp, ep=ep, pp=pp, vp=_virtual_stages(cells, layers, pp), dp=dp)


def _virtual_stages(cells: Cells, layers: int, pp: int) -> int:
    """Return the virtual stages; of an interleaved run without their number, the fewest that divide the layers of a stage."""
    stated = cells.positive("vp", 1)
    if pp == 1 or cells.text("vp"):
        return stated if pp > 1 else 1
    if cells.says(INTERLEAVED, "notes", "source"):
        cells.assume("vp")
        noted = cells.says(r"\bVP (\d+) per", "notes")  # stated for other rows of the source
        if noted and layers % (pp * int(noted[1])) == 0:
            return int(noted[1])
        if cells.says("torchtitan", "stack"):
            return 2
        return next((v for v in range(2, layers // pp + 1) if layers % (pp * v) == 0), 1)
    return 1


def plan(cells: Cells, cut: Degrees, model: dict[str, Any], stack: str) -> dict[str, Any]:
    """Return the arguments of the row's `Plan`; `recompute` and `mbs` are missing where the row does not state them.

    Parameters
    ----------
    cells : Cells
        A row.
    cut : Degrees
        Degrees of the row.
    model : dict of str to Any
        Arguments of the row's model.
    stack : str
        Software stack that ran it.

    Returns
    -------
    dict of str to Any
        Arguments, valid only if no problem was noted.
    """
    moe = model.get("experts") is not None
    arguments: dict[str, Any] = {
        **vars(cut),
        "etp": cut.tp
        if moe and _experts_are_sharded(model) and cut.tp * cut.ep <= cut.tp * cut.cp * cut.dp
        else 1,
        "cp_kind": "none" if cut.cp == 1 else _cp_kind(cells),
        "sp": cut.tp == 1 or moe or _sequence_parallel(cells, stack),
        "attention": _attention(cells),
        "precision": _precision(cells),
        "layout": layout(cells, model["layers"], cut.pp * cut.vp, stack),
        **_sharding(cells, cut, stack),
    }
    schedule = cells.says(r"schedule=([\w-]+)", "notes")
    arguments["schedule"] = (
        "dualpipe" if cells.says("DualPipe") else SCHEDULES.get(schedule[1], "1f1b") if schedule else "1f1b"
    )
    arguments["ep_overlap"] = cut.ep > 1 and (
        stack == "megatron-bridge-2026" or bool(cells.says(EP_OVERLAP, "notes"))
    )
    arguments["tp_overlap"] = cut.tp > 1 and _overlaps(cells, stack, arguments["sp"], moe)
    if cells.says(r"fp32 (grad|reduce)", "precision_detail"):
        arguments["grad_dtype"] = "fp32"
    elif cells.says("pure", "precision_detail") or cells.says(
        REDUCES_IN_16_BITS, "stack"
    ):  # the master copy of weights is kept
        arguments["grad_dtype"] = "16-bit"
    if cells.says("muon", "notes"):
        arguments["optimizer_kind"] = "muon"
    if _offloads(cells, model["layers"]):
        arguments["offload"] = "activations"
    arguments |= recomputed(cells, model["layers"] / cut.pp) or {}
    if cells.text("mbs"):
        arguments["mbs"] = cells.positive("mbs")
    columns = {name: cells.text(name).lower() for name in PLAN_COLUMNS if cells.text(name)}
    return (
        arguments
        | columns
        | {name: columns[name] == "true" for name in ("tp_overlap", "ep_overlap") if name in columns}
    )


def _offloads(cells: Cells, layers: int) -> bool:
    """Return whether activations of most layers are offloaded; a plan cannot offload only a few layers."""
    if partial := cells.says(r"CPU activation offload\w* of (\d+) layers", "notes"):
        cells.assume("offload")
        return 2 * int(partial[1]) >= layers
    return bool(cells.says(r"CPU activation offload|offloaded", "notes", "recompute_detail"))


def _experts_are_sharded(model: dict[str, Any]) -> bool:
    """Return whether experts are sharded over tp, Megatron-Core's default, which runs with narrow experts turn off."""
    return bool(model["experts"].ffn > model["hidden"])


def _attention(cells: Cells) -> str:
    """Return the attention kernel; where it is not stated, GPTs have the unfused one of their time."""
    stated = cells.text("flash_attention").lower()
    if stated not in ("true", "false"):
        stated = "false" if cells.text("mlp").lower() in ("gelu", "relu") else "true"
    return "flash" if stated == "true" else "unfused"


def _cp_kind(cells: Cells) -> str:
    """Return the kind of context parallelism: a ring unless stated otherwise."""
    if cells.says("ulysses", "notes", "source"):
        return "ulysses"
    return "all-gather" if cells.says(r"all-?gather|Llama 3 herd", "notes", "source") else "ring"


def _sequence_parallel(cells: Cells, stack: str) -> bool:
    """Return whether sequence parallelism is on; where it is not stated, the default of the stack."""
    if stack.startswith(SHARDS_RESIDUAL):
        return True
    stated = cells.text("sp").lower()
    if stated in ("true", "false"):
        return stated == "true"
    cells.assume("sp")
    return stack.startswith(WITH_SP) and stack not in BEFORE_SP


def _overlaps(cells: Cells, stack: str, sp: bool, moe: bool) -> bool:
    """Return whether tensor-parallel communication overlaps with matrix products."""
    if cells.says(r"vanilla TP|overlap (off|false|disabled)|comm_overlap (off|false)", "notes", "source"):
        return False
    if cells.says(r"async ?TP|TP comm overlap on|TP/PP/DP comm overlap enabled", "notes", "source"):
        return True
    if cells.text("precision").lower() == "nvfp4":  # no user buffers of Transformer Engine at 4 bits
        return False
    return stack in OVERLAPPING and sp and not moe


def _precision(cells: Cells) -> str:
    """Return the precision recipe; fp8 on TPUs, whose matrix units lack it, runs at 16 bits unless it is int8."""
    stated, detail = cells.text("precision").lower(), cells.text("precision_detail")
    if stated not in PRECISION:
        cells.problem(f"precision {stated or 'not known'}")
        return "bf16"
    if stated == "fp8" and cells.text("gpu").lower().startswith("tpu"):
        cells.assume("precision")
        return "int8" if "int8" in detail else "bf16"
    if stated == "fp8" and cells.says("DeepSeek-V3", "source"):  # arXiv 2412.19437, section 3.3
        return "fp8-block"
    return next(name for pattern, name in PRECISION[stated] if re.search(pattern, detail, re.IGNORECASE))


def _sharding(cells: Cells, cut: Degrees, stack: str) -> dict[str, Any]:
    """Return the ZeRO stage, and the replicas of the shards."""
    stated, detail = cells.text("zero").lower(), cells.text("zero_detail")
    if stated and stated not in ZERO:
        cells.problem(f"zero = {stated!r}")
    if not stated:
        cells.assume("zero")
    zero = ZERO.get(stated, 3 if re.search("FSDP|ZeRO-3", detail) else 1)
    unsharded_gradients = cut.pp > 1 and (
        zero == 2 or stack.startswith(GATHERED_ONCE)
    )  # gradients are kept whole until a step's last micro-batch
    if zero > 1 and (unsharded_gradients or re.search("no reshard", detail)):
        zero = 1
    ranks = cut.dp * cut.cp
    replicas = _replicas(cells, ranks, cut) if zero else 1
    return {"zero": zero, "replicas": replicas if replicas and ranks % replicas == 0 else 1}


def _replicas(cells: Cells, ranks: int, cut: Degrees) -> int:
    """Return the replicas of the shards among the ranks that share weights."""
    detail = cells.text("zero_detail")
    if match := re.search(r"x DP (\d+)|(\d+)-way (?:pod )?DP", detail):
        return int(match[1] or match[2])
    if match := re.search(r"groups? (?:of )?(\d+)|FSDP (\d+)|\((\d+)-way\)", detail):
        return ranks // max(int(match[1] or match[2] or match[3]), 1)
    if slice_count := cells.says(r"\bDCN\D*(\d+)", "interconnect"):  # TPUs shard within a slice
        return int(slice_count[1])
    if "within slice" in detail or re.search(r"within \d+-chip slice", detail):  # of which there is one
        return 1
    if cells.text("zero").lower() == "hsdp" or "within node" in detail:
        return ranks * cut.tp // cells.positive("gpus_per_node", 8)
    return 1
