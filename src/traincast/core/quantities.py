"""Table of every knob and result: symbol, unit and meaning, used by the command line, the docs and axis labels."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column: TypeAlias = float | NDArray[np.float64]  # a number, or a column of them
    Floats: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]
else:
    Column = Floats = Ints = Bools = float  # names for annotations only: numpy is not imported for them


Kind: TypeAlias = Literal[
    "model", "knob", "choice", "result", "interval", "time", "memory", "point", "figure"
]
_Row: TypeAlias = tuple[str, str, str, Kind, str]


@dataclass(frozen=True, slots=True)
class Info:
    """Symbol, unit and meaning of a knob, result or figure."""

    name: str
    symbol: str  # of arXiv 2410.00273; empty if the paper has none
    unit: str
    kind: Kind
    meaning: str


def _outer_tier_rows(i: int, which: str) -> tuple[_Row, ...]:
    """Return the rows of network tier `i`, for tiers beyond the second."""
    return (
        (
            f"network.{i}.bandwidth",
            "",
            "byte/s",
            "figure",
            f"bandwidth of the {which} tier, one port (NIC), one direction",
        ),
        (f"network.{i}.efficiency", "", "", "figure", f"achieved share of the bandwidth of the {which} tier"),
        (f"network.{i}.latency", "", "s", "figure", f"one hop over the {which} tier"),
        (f"network.{i}.ports", "", "", "figure", f"ports (NICs) of an accelerator on the {which} tier"),
        (f"network.{i}.size", "", "", "figure", f"accelerators in a domain of the {which} tier"),
        *_protocol_rows(i, f"the {which} tier"),
    )


def _protocol_rows(i: int, where: str) -> tuple[_Row, ...]:
    """Return the rows of the figures of tier `i` that protocols of collectives use."""
    rows: tuple[_Row, ...] = (
        (f"network.{i}.launch", "", "s", "figure", f"start-up of a collective over {where}"),
        (f"network.{i}.simple_latency", "", "s", "figure", f"one hop of the Simple protocol over {where}"),
        (f"network.{i}.ll_bandwidth", "", "byte/s", "figure", f"bandwidth of the LL protocol over {where}"),
    )
    if i == 0:
        return (
            *rows,
            (
                "network.0.switch_reduction",
                "",
                "byte/s",
                "figure",
                "bandwidth of reduction in the switches, one direction",
            ),
        )
    return (
        *rows,
        (f"network.{i}.lost_ports", "", "", "figure", f"ports that a group cannot make use of on {where}"),
        (
            f"network.{i}.dp_alone",
            "",
            "",
            "figure",
            f"achieved share for data-parallel groups with one member in a domain, {where}",
        ),
        (
            f"network.{i}.dp_several",
            "",
            "",
            "figure",
            f"achieved share for data-parallel groups with several members, {where}",
        ),
    )


_ROWS: Final[tuple[_Row, ...]] = (
    # name, symbol, unit, kind, meaning
    ("layers", "L", "", "model", "transformer layers (the paper's depth)"),
    ("hidden", "e", "", "model", "embedding width"),
    ("ffn", "f", "", "model", "width of the MLP's inner layer"),
    ("heads", "h", "", "model", "attention heads"),
    ("seq", "l", "token", "model", "sequence length"),
    ("gpus", "n", "", "knob", "accelerators in the job, the product of all degrees"),
    ("gbs", "gbs", "sequence", "knob", "global batch of one optimizer step"),
    ("tp", "m1", "", "knob", "tensor-parallel degree (SUMMA: columns of the grid)"),
    ("tp2", "m2", "", "knob", "second tensor-parallel degree of SUMMA (rows of the grid)"),
    ("cp", "m2", "", "knob", "context-parallel degree: ranks the sequence is cut over"),
    ("pp", "pp", "", "knob", "pipeline stages"),
    ("dp", "dp", "", "knob", "data-parallel replicas"),
    (
        "ep",
        "",
        "",
        "knob",
        "expert-parallel degree; cuts the ranks of dp, cp and tp that hold the same layers",
    ),
    ("etp", "", "", "knob", "tensor-parallel degree inside an expert"),
    ("ulysses", "", "", "knob", "part of a cp group that exchanges heads by all-to-all (Ulysses)"),
    (
        "replicas",
        "",
        "",
        "knob",
        "replicas of the sharded state among dp and cp (HSDP); ZeRO shards within a replica",
    ),
    ("mbs", "b", "sequence", "knob", "micro-batch"),
    ("vp", "v", "", "knob", "virtual stages of a device (interleaved 1F1B)"),
    ("recompute_every", "", "", "knob", "every how many layers one is recomputed, with recompute full"),
    ("panels", "nb", "", "knob", "panels a SUMMA product is cut into"),
    ("fast_tp", "t1", "", "knob", "members of a tp group in one fast domain"),
    ("fast_tp2", "t2", "", "knob", "members of a tp2 group in one fast domain"),
    ("fast_cp", "t2", "", "knob", "members of a cp group in one fast domain"),
    ("fast_pp", "t_pp", "", "knob", "pipeline stages in one fast domain"),
    ("fast_dp", "t_dp", "", "knob", "members of a dp group in one fast domain"),
    ("tp_kind", "", "", "choice", "tensor parallelism: 1d (Megatron) or summa (2-D)"),
    (
        "cp_kind",
        "",
        "",
        "choice",
        "context parallelism: none, all-gather or ring of keys and values, ulysses, hybrid of the last two",
    ),
    ("sp", "", "", "choice", "sequence parallelism: tokens cut over tp between blocks"),
    (
        "tp_overlap",
        "",
        "",
        "choice",
        "tensor-parallel communication overlapped with products (asynchronous TP)",
    ),
    ("ep_overlap", "", "", "choice", "all-to-all of experts overlapped with the work of another micro-batch"),
    ("attention", "", "", "choice", "attention kernel: flash (fused), unfused, or summa (2-D products)"),
    (
        "recompute",
        "",
        "",
        "choice",
        "activations recomputed in backward: none, selective (core attention), full, or modules joined by +",
    ),
    (
        "zero",
        "",
        "",
        "choice",
        "sharded over data parallel ranks: 0 nothing, 1 optimizer, 2 and gradients, 3 and weights (FSDP)",
    ),
    (
        "schedule",
        "",
        "",
        "choice",
        "pipeline schedule: gpipe, 1f1b (interleaved where vp > 1), zb-h1, zb-h2, zb-2p, zb-v, dualpipe",
    ),
    ("precision", "", "", "choice", "precision recipe, such as bf16, fp8-block or mxfp8"),
    (
        "grad_dtype",
        "",
        "",
        "choice",
        "what gradients are accumulated in: 16-bit, fp32, or usual (as the assumptions say)",
    ),
    ("optimizer_kind", "", "", "choice", "optimizer recipe, such as adam, adam-8bit or muon"),
    (
        "offload",
        "",
        "",
        "choice",
        "kept in the host's memory: none, or optimizer, activations, weights joined by +",
    ),
    (
        "layout",
        "",
        "",
        "choice",
        "layers of every model chunk, such as 8,8,8,8 or 4*15,1; balanced where left out",
    ),
    ("order", "", "", "choice", "order of the axes in which ranks are numbered, innermost first"),
    ("step_seconds", "t", "s", "result", "time of one optimizer step"),
    ("memory_bytes", "", "byte", "result", "memory of the fullest rank"),
    ("tokens_per_second_per_gpu", "", "token/s", "result", "training throughput of one GPU"),
    ("training_days", "", "day", "result", "length of the whole training run"),
    ("step_seconds_low", "", "s", "interval", "time that measured steps are above with 95 % probability"),
    ("step_seconds_high", "", "s", "interval", "time that measured steps are below with 95 % probability"),
    ("fits_probability", "", "", "interval", "probability that the plan fits in memory"),
    ("model", "", "", "point", "model"),
    ("system", "", "", "point", "system"),
    ("strategy", "", "", "point", "how a layer is cut: 1d, summa, context, ring, ulysses or hybrid"),
    ("assumptions", "", "", "point", "what is assumed"),
    ("point", "", "", "point", "number of the point on the varied axes, the last axis running fastest"),
    ("candidates", "", "", "point", "candidate plans that meet every rule"),
    ("feasible", "", "", "point", "candidates that fit in memory"),
    ("rank", "", "", "point", "place among the best plans of the point"),
    ("accelerator.matrix_flops", "", "FLOP/s", "figure", "dense peak of the matrix units"),
    ("accelerator.vector_flops", "", "FLOP/s", "figure", "peak of the vector units"),
    ("accelerator.vector_fp32_flops", "", "FLOP/s", "figure", "peak of the vector units in single precision"),
    ("accelerator.fp32_flops", "", "FLOP/s", "figure", "dense peak of the matrix units on 32-bit numbers"),
    ("accelerator.fp8_flops", "", "FLOP/s", "figure", "dense peak of the matrix units on 8-bit numbers"),
    ("accelerator.int8_flops", "", "FLOP/s", "figure", "dense peak of the matrix units on 8-bit integers"),
    ("accelerator.fp4_flops", "", "FLOP/s", "figure", "dense peak of the matrix units on 4-bit numbers"),
    (
        "accelerator.fp32_sustained",
        "",
        "",
        "figure",
        "share of the peak at 32 bits that large products sustain",
    ),
    (
        "accelerator.matrix_sustained",
        "",
        "",
        "figure",
        "share of the peak at 16 bits that large products sustain",
    ),
    (
        "accelerator.fp8_sustained",
        "",
        "",
        "figure",
        "share of the peak at 8 bits that large products sustain",
    ),
    (
        "accelerator.fp4_sustained",
        "",
        "",
        "figure",
        "share of the peak at 4 bits that large products sustain",
    ),
    (
        "accelerator.matrix_burst",
        "",
        "",
        "figure",
        "share of the peak at 16 bits that large products reach for a moment",
    ),
    ("accelerator.hbm_sustained", "", "", "figure", "share of the memory bandwidth that kernels achieve"),
    ("accelerator.cache_bytes", "", "byte", "figure", "traffic of a kernel that caches hold"),
    ("accelerator.cache_bandwidth", "", "byte/s", "figure", "bandwidth of caches"),
    (
        "accelerator.attention_fa1",
        "",
        "",
        "figure",
        "share of the peak at 16 bits that FlashAttention reaches forward",
    ),
    (
        "accelerator.attention_fa2",
        "",
        "",
        "figure",
        "share of the peak at 16 bits that FlashAttention-2 reaches forward",
    ),
    (
        "accelerator.attention_fa3",
        "",
        "",
        "figure",
        "share of the peak at 16 bits that FlashAttention-3 reaches forward",
    ),
    (
        "accelerator.attention_cudnn",
        "",
        "",
        "figure",
        "share of the peak at 16 bits that cuDNN's fused attention reaches forward",
    ),
    (
        "accelerator.attention_backward",
        "",
        "",
        "figure",
        "rate of fused attention backward, relative to forward",
    ),
    ("accelerator.attention_tile", "", "", "figure", "queries that fused attention works on at once"),
    ("accelerator.hbm_bandwidth", "", "byte/s", "figure", "memory bandwidth"),
    ("accelerator.hbm_bytes", "", "byte", "figure", "memory capacity"),
    ("accelerator.host_bandwidth", "", "byte/s", "figure", "bandwidth to the host's memory, one direction"),
    ("accelerator.host_bytes", "", "byte", "figure", "the host's memory for one accelerator"),
    ("accelerator.power", "", "W", "figure", "power of the accelerator"),
    ("network.0.bandwidth", "", "byte/s", "figure", "bandwidth inside a fast domain, one direction"),
    ("network.0.efficiency", "", "", "figure", "achieved share of the bandwidth inside a fast domain"),
    ("network.0.latency", "", "s", "figure", "one hop inside a fast domain"),
    *_protocol_rows(0, "a fast domain"),
    ("network.0.size", "", "", "figure", "accelerators in a fast domain"),
    ("network.0.axes", "", "", "figure", "axes of a fast domain that is a torus"),
    ("network.0.side", "", "", "figure", "accelerators along an axis of it"),
    (
        "network.1.bandwidth",
        "",
        "byte/s",
        "figure",
        "bandwidth between domains, one port (NIC), one direction",
    ),
    ("network.1.efficiency", "", "", "figure", "achieved share of the bandwidth between domains"),
    ("network.1.latency", "", "s", "figure", "one hop between domains"),
    ("network.1.ports", "", "", "figure", "ports (NICs) of an accelerator between domains"),
    *_protocol_rows(1, "the second tier"),
    ("network.1.size", "", "", "figure", "accelerators in a domain of the second tier"),
    *_outer_tier_rows(2, "third"),
    *_outer_tier_rows(3, "fourth"),
    ("plan.vp", "v", "", "figure", "virtual stages of a device (interleaved 1F1B)"),
    ("model.layers", "L", "", "figure", "transformer layers"),
    ("model.hidden", "e", "", "figure", "embedding width"),
    ("model.heads", "h", "", "figure", "attention heads"),
    ("model.ffn", "f", "", "figure", "width of the MLP's inner layer"),
    ("model.seq", "l", "token", "figure", "sequence length"),
    ("compute", "", "s", "time", "arithmetic, launches included"),
    ("exposed_memory", "", "s", "time", "memory traffic not hidden behind arithmetic"),
    ("recomputation", "", "s", "time", "forward passes recomputed for backward"),
    ("tp_comm", "", "s", "time", "tensor- and context-parallel communication, exposed"),
    ("ep_comm", "", "s", "time", "tokens sent to experts and back, exposed"),
    ("dp_comm", "", "s", "time", "weight gathering and gradient reduction, exposed"),
    ("pp_comm", "", "s", "time", "activations passed between stages"),
    ("bubble", "", "s", "time", "waiting for the pipeline to fill and drain"),
    ("optimizer_step", "", "s", "time", "optimizer step and gradient clipping"),
    ("offload_comm", "", "s", "time", "copies to and from the host's memory, exposed"),
    ("host", "", "s", "time", "waiting for the host to issue work, and what it does between steps"),
    ("stragglers", "", "s", "time", "waiting for the slowest of many ranks"),
    ("weights", "W", "byte", "memory", "weights"),
    ("gradients", "", "byte", "memory", "gradients"),
    ("optimizer", "", "byte", "memory", "optimizer states and master weights"),
    ("activations", "", "byte", "memory", "activations kept for backward"),
    ("logits", "", "byte", "memory", "logits and their gradients in the loss"),
    ("gathered", "", "byte", "memory", "weights gathered for the layers at work (FSDP)"),
    (
        "buffers",
        "",
        "byte",
        "memory",
        "outside the allocator: device context, libraries, buffers of communicators",
    ),
    ("workspace", "", "byte", "memory", "activations of the layer at work, and temporary buffers"),
    ("reserved", "", "byte", "memory", "what the allocator holds and cannot use"),
)
COLUMNS: Final = {row[0]: Info(*row) for row in _ROWS}
KNOBS: Final = tuple(
    name for name, info in COLUMNS.items() if info.kind == "knob" and name not in {"gpus", "gbs"}
)
INTERVALS: Final = tuple(name for name, info in COLUMNS.items() if info.kind == "interval")
CHOICES: Final = tuple(name for name, info in COLUMNS.items() if info.kind == "choice")


def plain(value: "Column") -> "Column":
    """Return a number as a Python float, a column unchanged."""
    return value if getattr(value, "ndim", 0) else float(value)
