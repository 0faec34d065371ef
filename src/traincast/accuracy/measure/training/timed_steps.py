"""A few steps of every case of the grid on all ranks, and the table of what they took."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from statistics import median, quantiles
from typing import Any, Final

from traincast.accuracy.measure import device_info
from traincast.accuracy.measure.launcher import Rank, launched_rank
from traincast.accuracy.measure.process_group import RankGroup, load_torch
from traincast.accuracy.measure.system_yaml import accelerator_label
from traincast.accuracy.measure.training.shapes import Shape, TrainingCase, training_cases
from traincast.core.units import GIB

Send = Callable[[dict[str, Any]], Any]
STACK: Final = "pytorch"  # the software stack that the loop is
WARM_UP, STEPS, LEAST = 1, 5, 3  # steps before the clock counts, those that are timed, and where there is no time for more
MAX_VISITS: Final = 3  # of a case: what else the machine does slows one of them, and rarely all
MAX_CASE_SHARE: Final = 0.05  # of the budget that one case may take


def train_as_rank(request: Mapping[str, Any], told: Send) -> None:
    """Train as one rank of a job.

    Parameters
    ----------
    request : mapping
        ``seconds``, how long; ``threads`` of a rank, 0 for what PyTorch takes; ``kept``, rows that are measured already, if on
        this machine; ``shapes``, what is trained in place of the usual shapes.
    told : callable
        Called by rank 0 with a message for the machine, and one for the row of each case.
    """
    begin = time.perf_counter()
    crew = RankGroup(load_torch("measure --step"), launched_rank() or Rank(0, 1, 0, 1), int(request["threads"]))
    try:
        about = crew.from_rank_zero(
            lambda: device_info.describe_machine(crew.torch, crew.rank, crew.device, crew.hosts, crew.backend)
        )
        first, device = crew.rank.rank == 0, crew.device.type
        if first:
            told({"machine": about})
        seconds = float(request["seconds"])
        wanted = training_cases(device, crew.rank.size, (Shape(*one) for one in request.get("shapes") or ()))
        visits = {one["id"]: int(one["visits"]) for one in request["kept"]} if same_machine(request["kept"], about) else {}
        end = begin + seconds * (1 - MAX_CASE_SHARE)
        while (chosen := crew.from_rank_zero(lambda: _next_case(wanted, visits, end))) is not None:
            case = wanted[chosen]
            found = _train_case(case, crew, seconds * MAX_CASE_SHARE)
            visits[case.id] = visits.get(case.id, 0) + 1
            if first:
                left = sum(MAX_VISITS - visits.get(one.id, 0) for one in wanted)
                told({"row": run_row(case, about, **found), "left": left, "visits": MAX_VISITS * len(wanted)})
    finally:
        crew.close()


def _next_case(wanted: Sequence[TrainingCase], visits: Mapping[str, int], end: float) -> int | None:
    """Which case is visited next: the first of those that were visited least; None when the time is over, but for the first."""
    if visits and time.perf_counter() > end:
        return None
    fewest = min(range(len(wanted)), key=lambda index: visits.get(wanted[index].id, 0), default=None)
    return fewest if fewest is not None and visits.get(wanted[fewest].id, 0) < MAX_VISITS else None


def _train_case(case: TrainingCase, crew: RankGroup, seconds: float) -> dict[str, Any]:
    """Times of the steps of a case, and the memory of the fullest rank."""
    from traincast.accuracy.measure.training.parallel_step import MeshPosition, Trainer

    gpu = crew.device.type == "cuda"
    if gpu:
        crew.torch.cuda.reset_peak_memory_stats()
    trainer = Trainer(case.model, case.plan, case.shape.gbs, MeshPosition.of(case.plan, crew.device))
    taken: list[float] = []
    begun = time.perf_counter()
    for index in range(WARM_UP + STEPS):
        own = _step_seconds(trainer, crew)
        if index >= WARM_UP:
            taken.append(_slowest_rank_seconds(crew.all_gather(own), case.plan.gpus))
        if crew.from_rank_zero(lambda: len(taken) >= LEAST and time.perf_counter() - begun > seconds):
            break
    memory = max(crew.all_gather(crew.torch.cuda.max_memory_allocated())) if gpu else None
    return {"taken": taken, "memory": memory}


def _step_seconds(trainer: Any, crew: RankGroup) -> float:
    """Time of one step on this rank, which all ranks begin together [s]."""
    wait = crew.torch.cuda.synchronize if crew.device.type == "cuda" else lambda: None
    wait()
    crew.all_gather(None)
    begin = time.perf_counter()
    trainer.step()
    wait()
    return time.perf_counter() - begin


def _slowest_rank_seconds(every: list[float], gpus: int) -> float:
    """Time of the slowest rank of a plan; the mean over copies of the plan that trained side by side [s]."""
    copies = [every[at : at + gpus] for at in range(0, len(every), gpus)]
    return sum(map(max, copies)) / len(copies)


def run_row(case: TrainingCase, about: Mapping[str, Any], taken: list[float], memory: float | None) -> dict[str, str]:
    """A row of a table of runs.

    Parameters
    ----------
    case : TrainingCase
        What was trained.
    about : mapping
        The machine it was trained on.
    taken : list of float
        Times of its steps [s].
    memory : float or None
        What the fullest rank had allocated at its peak [byte]; None where that was not measured.
    """
    shape, plan, middle = case.shape, case.plan, median(taken)
    quarters = quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else [middle] * 3
    cells: dict[str, Any] = {
        "id": case.id, "source": source_text(about), "stack": STACK, "model": shape.name, "layers": shape.layers, "hidden": shape.hidden,
        "ffn": 4 * shape.hidden, "heads": shape.heads, "vocab": shape.vocab, "seq": shape.seq, "mlp": "gelu",
        "gpu": accelerator_label(about), "gpus": plan.gpus, "precision": plan.precision, "grad_dtype": plan.grad_dtype,
        "optimizer_kind": plan.optimizer_kind, "tp": plan.tp, "sp": plan.sp, "pp": plan.pp, "dp": plan.dp, "zero": plan.zero,
        "mbs": plan.mbs, "gbs": shape.gbs, "recompute": "none", "flash_attention": True, "step_seconds": f"{middle:.6g}",
        "step_spread": f"{(quarters[2] - quarters[0]) / middle:.3g}", "steps_measured": len(taken), "visits": 1,
        "memory_gb_published": f"{memory / GIB:.6g}" if memory else "", "memory_kind": "allocated" if memory else "",
        "notes": "untied embeddings",
    }  # fmt: skip
    return {name: str(value) for name, value in cells.items()}


def faster_visit(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Of two visits the one whose median is lower: what else a machine does only ever slows it."""
    best = min(one, other, key=lambda cells: float(cells["step_seconds"]))
    return best | {"visits": str(int(one["visits"]) + int(other["visits"]))}


def source_text(about: Mapping[str, Any]) -> str:
    """Where rows are from: what has to be the same for them to stand in one table, and the day."""
    where = f"{about['ranks']} x {accelerator_label(about)}, torch {about['torch']}"
    return f"traincast measure --step on {where}, {date.today().isoformat()}"


def same_machine(rows: Iterable[Mapping[str, str]], about: Mapping[str, Any]) -> bool:
    """Whether rows that were kept are from the same machine, whatever the day."""
    own = source_text(about).rsplit(", ", 1)[0]
    return all(one["source"].rsplit(", ", 1)[0] == own for one in rows)
