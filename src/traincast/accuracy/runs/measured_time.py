"""Measurements of a row: step time (as published, from tokens per second, or from FLOP/s), and the kind of memory."""

from typing import Final

from traincast.accuracy.runs.row import Cells
from traincast.core.model import Model
from traincast.core.system import System
from traincast.step.memory import LEFT_OUT, Reported

RATES: Final = ("step_seconds", "tokens_per_s_per_gpu", "tflops_published", "mfu_published")
REPORTED: Final[
    tuple[tuple[str, str, Reported], ...]
] = (  # framework, notes, kind of memory; the first match counts
    (r"", r"max_allocated", "allocated"),
    (r"Megatron-DeepSpeed", r"", "device"),  # nvidia-smi
    (r"", r"", "reserved"),  # by the allocator of PyTorch, as torchtitan and nanotron log it
)
STEP_SECONDS_RANGE: Final = (
    1e-6,
    1e6,
)  # [s]; below a kernel launch or above days it is another unit or a mistake
MAX_MEMORY_GB: Final = 1e5  # of a rank [GB]
FULL_RECOMPUTE_FACTOR: Final = 4 / 3  # FLOPs of a layer with full recompute over those without
ATTENTION_FLOPS: Final = {
    "full": 12.0,
    "half": 6.0,
}  # of a token in a layer, both passes, per key and unit of query width [FLOP]


def check_measured(cells: Cells) -> None:
    """Note impossible measurements of a row."""
    for name in RATES:
        cells.measured(name)
    if (memory := cells.measured("memory_gb_published")) and memory > MAX_MEMORY_GB:
        cells.refuse(f"memory_gb_published = {cells.text('memory_gb_published')}: no rank has so much")


def seconds(cells: Cells, model: Model, system: System, gbs: int) -> float | None:
    """Return the step time [s]; None where the row has none.

    Parameters
    ----------
    cells : Cells
        A row; a time derived from FLOP/s is noted as assumed.
    model, system : Model, System
        Model and machine.
    gbs : int
        Global batch [sequences].
    """
    step_seconds = _seconds(cells, model, system, gbs)
    if step_seconds is not None and not STEP_SECONDS_RANGE[0] <= step_seconds <= STEP_SECONDS_RANGE[1]:
        cells.refuse(
            f"a step of {step_seconds:.4g} s: must be {STEP_SECONDS_RANGE[0]:g} to {STEP_SECONDS_RANGE[1]:g} s"
        )
        return None
    return step_seconds


def _seconds(cells: Cells, model: Model, system: System, gbs: int) -> float | None:
    """Return the step time as published, or derived from a rate [s]."""
    stated, token_rate = cells.measured("step_seconds"), cells.measured("tokens_per_s_per_gpu")
    if stated is not None:
        return stated
    tokens_per_gpu = gbs * model.seq / cells.positive("gpus")  # tokens of a GPU
    if token_rate:
        return tokens_per_gpu / token_rate
    rate, flops_per_token = _rate(cells, system), _flops_of_token(cells, model)
    if not rate or flops_per_token is None:
        return None
    cells.assume("step_seconds")
    return tokens_per_gpu * flops_per_token / rate


def reported(cells: Cells) -> Reported:
    """Return how memory was measured, by the column `memory_kind` or the notes."""
    stated = cells.text("memory_kind")
    if stated and stated not in LEFT_OUT:
        cells.problem(f"memory_kind = {stated!r} is none of {', '.join(LEFT_OUT)}")
    if stated:
        return next((kind for kind in LEFT_OUT if kind == stated), "device")
    return next(
        kind for name, hint, kind in REPORTED if cells.says(name, "stack") and cells.says(hint, "notes")
    )


def _rate(cells: Cells, system: System) -> float | None:
    """Return the published FLOP/s of a GPU; None without."""
    if teraflops := cells.number("tflops_published"):
        return teraflops * 1e12
    share = cells.number("mfu_published")
    peak = float(system.accelerator.matrix_flops)
    return share * peak if share and cells.text("precision") in ("bf16", "fp16", "16-bit") else None


def _flops_of_token(cells: Cells, model: Model) -> float | None:
    """Return the FLOP per token of the published convention; None where the row does not state it clearly.

    The usual conventions agree: 6 for every weight of a matrix product, and 12 (6 where only the causal half is counted) for every
    key and unit of query width, which for a GPT is 72BLlh² (1 + l/6h + V/12Lh); with full recompute layers count 4/3.
    """
    column = "flops_convention"
    if model.experts is not None or cells.says(r"not (stated|verified)", column):
        return None
    attention = next(
        (factor for word, factor in ATTENTION_FLOPS.items() if cells.says(rf"\b{word}\b", column)), None
    )
    if attention is None and cells.says(r"Bs?lh\^2", column):
        attention = ATTENTION_FLOPS["full"]
    if attention is None:
        return None
    layers = 6.0 * model.layers * (model.attention_matrices + model.mlp_matrices(model.ffn))
    layers += model.layers * attention * model.seq * model.heads * model.head_width
    recomputed = cells.says(r"hardware FLOPs|96\*?B", column)
    return layers * (FULL_RECOMPUTE_FACTOR if recomputed else 1.0) + 6.0 * model.hidden * (model.vocab or 0)
