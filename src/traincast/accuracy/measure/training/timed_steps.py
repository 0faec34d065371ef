"""Timed training steps of every case of the grid on all ranks, as rows of a table of runs."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

from traincast.accuracy.logs.training_log import median_and_spread
from traincast.accuracy.measure.device_info import describe_machine
from traincast.accuracy.measure.launcher import Send
from traincast.accuracy.measure.system_yaml import accelerator_label
from traincast.accuracy.measure.training.shapes import Shape, TrainingCase, training_cases
from traincast.core.units import GIB

STACK: Final = "pytorch"  # software stack of the training loop
WARM_UP_STEPS, TIMED_STEPS, MIN_TIMED_STEPS = 1, 5, 3  # the last where the time is short
MAX_VISITS: Final = 3  # of a case: other load slows one visit, rarely all
MAX_CASE_SHARE: Final = 0.05  # of the budget for one case


def train_as_rank(request: dict[str, Any], send: Send) -> None:
    """Train as one rank of a job.

    The request has the time budget ``seconds``; ``threads`` of a rank, 0 for PyTorch's default; ``rows``
    measured before, used if they are from this machine; ``shapes``, to train in place of the default ones.
    Rank 0 sends a message for the machine, and one for the row of each case.
    """
    from traincast.accuracy.measure.rank_group import RankGroup

    start, seconds = time.perf_counter(), float(request["seconds"])
    with RankGroup(request["threads"]) as group:
        about = group.from_rank_zero(lambda: describe_machine(group))
        is_first = group.rank.rank == 0
        if is_first:
            send({"machine": about})
        shapes = [Shape(*sizes) for sizes in request["shapes"]]
        cases = training_cases(group.device.type, group.rank.size, shapes)
        visits = dict.fromkeys((case.id for case in cases), 0)
        if same_machine(request["rows"], about):
            visits |= {row["id"]: int(row["visits"]) for row in request["rows"]}
        end = start + seconds * (1 - MAX_CASE_SHARE)
        while (index := group.from_rank_zero(lambda: _next_case(cases, visits, end))) is not None:
            case = cases[index]
            result = _train_case(case, group, seconds * MAX_CASE_SHARE)
            visits[case.id] += 1
            if is_first:
                left = sum(MAX_VISITS - visits[case.id] for case in cases)
                row = run_row(case, about, *result)
                send({"row": row, "left": left, "visits": MAX_VISITS * len(cases)})


def _next_case(cases: Sequence[TrainingCase], visits: Mapping[str, int], end: float) -> int | None:
    """Return the index of the first case with the fewest visits; None when the time is over."""
    if any(visits.values()) and time.perf_counter() > end:
        return None
    index = min(range(len(cases)), key=lambda index: visits.get(cases[index].id, 0), default=None)
    return index if index is not None and visits.get(cases[index].id, 0) < MAX_VISITS else None


def _train_case(case: TrainingCase, group: Any, seconds: float) -> tuple[list[float], float | None]:
    """Train a case on a `RankGroup`; return step times [s] and peak memory [byte], None on a CPU."""
    from torch import cuda

    from traincast.accuracy.measure.training.parallel_step import MeshPosition, Trainer

    gpu = group.device.type == "cuda"
    if gpu:
        cuda.reset_peak_memory_stats()
    trainer = Trainer(case.model, case.plan, case.shape.gbs, MeshPosition.of(case.plan, group.device))

    def step_seconds() -> float:
        """Return the time of one step on this rank, after a barrier [s]."""
        if gpu:
            cuda.synchronize()
        group.all_gather(None)
        start = time.perf_counter()
        trainer.step()
        if gpu:
            cuda.synchronize()
        return time.perf_counter() - start

    times: list[float] = []
    end = time.perf_counter() + seconds
    for index in range(WARM_UP_STEPS + TIMED_STEPS):
        times_of_ranks = group.all_gather(step_seconds())
        if index >= WARM_UP_STEPS:
            times.append(_slowest_rank_seconds(times_of_ranks, case.plan.gpus))
        if group.from_rank_zero(lambda: len(times) >= MIN_TIMED_STEPS and time.perf_counter() > end):
            break
    return times, max(group.all_gather(cuda.max_memory_allocated())) if gpu else None


def _slowest_rank_seconds(times_of_ranks: list[float], gpus: int) -> float:
    """Return the time of the slowest rank, averaged over copies of the plan trained side by side [s]."""
    copies = [times_of_ranks[first : first + gpus] for first in range(0, len(times_of_ranks), gpus)]
    return sum(map(max, copies)) / len(copies)


def run_row(
    case: TrainingCase, about: Mapping[str, Any], times: list[float], memory: float | None
) -> dict[str, str]:
    """Return the row of a case in a table of runs, from step times [s] and peak memory [byte]."""
    shape, plan, (middle, spread) = case.shape, case.plan, median_and_spread(times)
    cells: dict[str, Any] = {
        "id": case.id, "source": source_text(about), "stack": STACK, "model": shape.name,
        "layers": shape.layers, "hidden": shape.hidden, "ffn": 4 * shape.hidden, "heads": shape.heads,
        "vocab": shape.vocab, "seq": shape.seq, "mlp": "gelu", "gpu": accelerator_label(about),
        "gpus": plan.gpus, "precision": plan.precision, "grad_dtype": plan.grad_dtype,
        "optimizer_kind": plan.optimizer_kind, "tp": plan.tp, "sp": plan.sp, "pp": plan.pp, "dp": plan.dp,
        "zero": plan.zero, "mbs": plan.mbs, "gbs": shape.gbs, "recompute": "none", "flash_attention": True,
        "step_seconds": f"{middle:.6g}", "step_spread": f"{spread:.3g}",
        "steps_measured": len(times), "visits": 1,
        "memory_gb_published": f"{memory / GIB:.6g}" if memory else "",
        "memory_kind": "allocated" if memory else "", "notes": "untied embeddings",
    }  # fmt: skip
    return {name: str(value) for name, value in cells.items()}


def faster_visit(first: dict[str, str], second: dict[str, str]) -> dict[str, str]:
    """Return the visit with the lower median, since other load only adds time; visits add up."""
    best = min(first, second, key=lambda cells: float(cells["step_seconds"]))
    return best | {"visits": str(int(first["visits"]) + int(second["visits"]))}


def source_text(about: Mapping[str, Any]) -> str:
    """Return the source of rows: everything that rows of one table have in common, and the date."""
    machine = f"{about['ranks']} x {accelerator_label(about)}, torch {about['torch']}"
    return f"traincast measure --step on {machine}, {date.today().isoformat()}"


def same_machine(rows: Iterable[Mapping[str, str]], about: Mapping[str, Any]) -> bool:
    """Return whether all rows are from the described machine, whatever the date."""
    expected = source_text(about).rsplit(", ", 1)[0]
    return all(row["source"].rsplit(", ", 1)[0] == expected for row in rows)
