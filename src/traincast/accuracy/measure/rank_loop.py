"""One rank at work: all of them measure what rank 0 chooses, and rank 0 tells what they found."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from traincast.accuracy.measure import device_info
from traincast.accuracy.measure.launcher import Rank, launched_rank
from traincast.accuracy.measure.process_group import RankGroup, load_torch
from traincast.accuracy.measure.tasks import Task, tasks
from traincast.accuracy.measure.time_budget import TimeBudget

Send = Callable[[dict[str, Any]], Any]


def measure_as_rank(request: Mapping[str, Any], told: Send) -> None:
    """Measure as one rank of a job.

    Parameters
    ----------
    request : mapping
        ``until``, the end by the clock on the wall [s]; ``threads`` of a rank, 0 for what PyTorch takes; ``done``, tasks whose rows
        are there, and ``identity``, the machine they are of.
    told : callable
        Called by rank 0 with a message for the machine, and one for each task: its samples, or the problem, and the time left.
    """
    crew = RankGroup(load_torch(), launched_rank() or Rank(0, 1, 0, 1), int(request["threads"]))
    try:
        about = crew.from_rank_zero(
            lambda: device_info.describe_machine(crew.torch, crew.rank, crew.device, crew.hosts, crew.backend)
        )
        budget = None
        if crew.rank.rank == 0:
            told({"machine": about})
            known = request["done"] if request["identity"] == device_info.identity(about) else ()
            every = tasks(crew.device.type, about["dtypes"], crew.rank.size, about["nodes"], about["memory_bytes"])
            budget = TimeBudget(every, known, float(request["until"]) - time.time())
        while chosen := crew.from_rank_zero(lambda: _next_task(budget)):
            task = Task.of(chosen[0])
            samples, problem = crew.timed(task, chosen[1])
            if budget is not None:
                budget.took(task, failed=bool(problem))
                told({"task": task.key, "samples": samples, "problem": problem, "left": budget.left})
    finally:
        crew.close()


def _next_task(budget: TimeBudget | None) -> tuple[str, float] | None:
    """What is measured next, and the time for its samples [s]; None at the end."""
    task = budget.next() if budget is not None else None
    return (task.key, budget.samples_seconds(task)) if budget is not None and task is not None else None
