"""Measurements of a row: step time, as published or from a published rate, and the kind of memory."""

from typing import Final, get_args

from traincast.accuracy.runs.cells import Cells
from traincast.core.model import Model
from traincast.core.system import System
from traincast.step.memory import Reported

RATES: Final = ("step_seconds", "tokens_per_s_per_gpu", "tflops_published", "mfu_published")
MIN_STEP_SECONDS: Final = 1e-6  # below a kernel launch it is another unit or a mistake [s]
MAX_STEP_SECONDS: Final = 1e6  # above days as well [s]
MAX_MEMORY_GB: Final = 1e5  # of a rank [GB]
FULL_RECOMPUTE_FACTOR: Final = 4 / 3  # FLOPs of a layer with full recompute over those without


def check_measured(cells: Cells) -> None:
    """Note impossible measurements of a row."""
    for name in RATES:
        cells.measured(name)
    if (memory := cells.measured("memory_gb_published")) and memory > MAX_MEMORY_GB:
        cells.refuse(f"memory_gb_published = {cells.text('memory_gb_published')}: no rank has so much")


def memory_kind(cells: Cells) -> Reported:
    """Return how memory was measured, by the column `memory_kind` or the notes."""
    stated, kinds = cells.text("memory_kind"), get_args(Reported)
    if stated and stated not in kinds:
        cells.problem(f"memory_kind = {stated!r} is none of {', '.join(kinds)}")
    kind: Reported = stated or cells.choose("memory_kind")  # type: ignore[assignment]  # checked above
    return kind


def step_seconds(cells: Cells, model: Model, system: System, gbs: int) -> float | None:
    """Return the measured step time, noted as assumed if derived from FLOP/s; None without [s]."""
    seconds = _step_seconds(cells, model, system, gbs)
    if seconds is not None and not MIN_STEP_SECONDS <= seconds <= MAX_STEP_SECONDS:
        cells.refuse(f"a step of {seconds:.4g} s: must be {MIN_STEP_SECONDS:g} to {MAX_STEP_SECONDS:g} s")
        return None
    return seconds


def _step_seconds(cells: Cells, model: Model, system: System, gbs: int) -> float | None:
    """Return the step time as published, or derived from a rate [s]."""
    stated, token_rate = cells.measured("step_seconds"), cells.measured("tokens_per_s_per_gpu")
    if stated is not None:
        return stated
    tokens_per_gpu = gbs * model.seq / cells.positive("gpus")
    if token_rate:
        return tokens_per_gpu / token_rate
    rate, flops_per_token = _flops_rate(cells, system), _flops_per_token(cells, model)
    if not rate or flops_per_token is None:
        return None
    cells.assume("step_seconds")
    return tokens_per_gpu * flops_per_token / rate


def _flops_rate(cells: Cells, system: System) -> float | None:
    """Return the published rate of a GPU; None without [FLOP/s]."""
    if teraflops := cells.number("tflops_published"):
        return teraflops * 1e12
    share = cells.number("mfu_published")
    peak = float(system.accelerator.matrix_flops)
    return share * peak if share and cells.text("precision") in ("bf16", "fp16", "16-bit") else None


def _flops_per_token(cells: Cells, model: Model) -> float | None:
    """Return the work of a token by the published convention; None where that is not clear [FLOP].

    The usual conventions agree: 6 for every weight of a matrix product, and 12 (6 where only the causal half
    is counted) for every key and unit of query width, which for a GPT is 72BLlh² (1 + l/6h + V/12Lh); with
    full recompute layers count 4/3.
    """
    attention = None if model.experts is not None else cells.choose("attention_flops")
    if attention is None:
        return None
    layers: float = 6.0 * model.layers * (model.attention_matrices + model.mlp_matrices(model.ffn))
    layers += model.layers * attention * model.seq * model.heads * model.head_width
    factor = FULL_RECOMPUTE_FACTOR if cells.states("full_recompute_counted") else 1.0
    return layers * factor + 6.0 * model.hidden * (model.vocab or 0)
