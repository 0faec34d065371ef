"""What was measured in a row: the time of a step (as published, from tokens per second, or from FLOP/s), and which memory."""

from typing import Final

from traincast.accuracy.runs.row import Cells
from traincast.core.model import Model
from traincast.core.system import System
from traincast.step.memory import LEFT_OUT, Reported

RATES: Final = ("step_seconds", "tokens_per_s_per_gpu", "tflops_published", "mfu_published")
REPORTED: Final[tuple[tuple[str, str, Reported], ...]] = (  # framework, notes, how memory is measured; the first that fits
    (r"", r"max_allocated", "allocated"),
    (r"Megatron-DeepSpeed", r"", "device"),  # nvidia-smi
    (r"", r"", "reserved"),  # what PyTorch holds, as torchtitan and nanotron log it
)
STEP: Final = (1e-6, 1e6)  # seconds: faster than a kernel starts, or a step of days, is another unit or a slip
MOST_MEMORY: Final = 1e5  # GB of a rank
AGAIN: Final = 4 / 3  # products of a layer with full recomputation, over those without
ATTENTION: Final = {"full": 12.0, "half": 6.0}  # FLOP of a token in a layer, both passes, for each key and width of queries


def check_measured(cells: Cells) -> None:
    """Note what a row says was measured and cannot have been."""
    for name in RATES:
        cells.measured(name)
    if (memory := cells.measured("memory_gb_published")) and memory > MOST_MEMORY:
        cells.refuse(f"memory_gb_published = {cells.text('memory_gb_published')}: no rank has so much")


def seconds(cells: Cells, model: Model, system: System, gbs: int) -> float | None:
    """Time of a step [s], None where the row has none.

    Parameters
    ----------
    cells : Cells
        A row; time from a rate of FLOP/s is noted as assumed.
    model, system : Model, System
        What ran, and where.
    gbs : int
        Global batch [sequences].
    """
    found = _seconds(cells, model, system, gbs)
    if found is not None and not STEP[0] <= found <= STEP[1]:
        cells.refuse(f"a step of {found:.4g} s: must be {STEP[0]:g} to {STEP[1]:g} s")
        return None
    return found


def _seconds(cells: Cells, model: Model, system: System, gbs: int) -> float | None:
    """Time of a step [s] as published, or out of a rate."""
    told, tokens = cells.measured("step_seconds"), cells.measured("tokens_per_s_per_gpu")
    if told is not None:
        return told
    done = gbs * model.seq / cells.positive("gpus")  # tokens of a GPU
    if tokens:
        return done / tokens
    rate, each = _rate(cells, system), _flops_of_token(cells, model)
    if not rate or each is None:
        return None
    cells.assume("step_seconds")
    return done * each / rate


def reported(cells: Cells) -> Reported:
    """How the memory of a row was measured, as the column `memory_kind` or its notes say."""
    told = cells.text("memory_kind")
    if told and told not in LEFT_OUT:
        cells.problem(f"memory_kind = {told!r} is none of {', '.join(LEFT_OUT)}")
    if told:
        return next((kind for kind in LEFT_OUT if kind == told), "device")
    return next(kind for name, hint, kind in REPORTED if cells.says(name, "stack") and cells.says(hint, "notes"))


def _rate(cells: Cells, system: System) -> float | None:
    """Published FLOP/s of a GPU."""
    if teraflops := cells.number("tflops_published"):
        return teraflops * 1e12
    share = cells.number("mfu_published")
    peak = float(system.accelerator.matrix_flops)
    return share * peak if share and cells.text("precision") in ("bf16", "fp16", "16-bit") else None


def _flops_of_token(cells: Cells, model: Model) -> float | None:
    """FLOP a token is credited with, None where the convention is not told well enough.

    The usual counts are one: 6 for every weight of a product a token meets, and 12 (6 where only the causal half is counted) for
    every key and width of queries, which for a GPT is 72BLlh² (1 + l/6h + V/12Lh); with full recomputation layers count 4/3.
    """
    told = "flops_convention"
    if model.experts is not None or cells.says(r"not (stated|verified)", told):
        return None
    attention = next((factor for word, factor in ATTENTION.items() if cells.says(rf"\b{word}\b", told)), None)
    if attention is None and cells.says(r"Bs?lh\^2", told):
        attention = ATTENTION["full"]
    if attention is None:
        return None
    layers = 6.0 * model.layers * (model.attention_matrices + model.mlp_matrices(model.ffn))
    layers += model.layers * attention * model.seq * model.heads * model.head_width
    again = cells.says(r"hardware FLOPs|96\*?B", told)
    return layers * (AGAIN if again else 1.0) + 6.0 * model.hidden * (model.vocab or 0)
