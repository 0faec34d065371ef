"""Loop of one rank: all ranks time the tasks that rank 0 chooses, and rank 0 sends the results."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from traincast.accuracy.measure import device_info
from traincast.accuracy.measure.launcher import Rank, launched_rank
from traincast.accuracy.measure.process_group import RankGroup, load_torch
from traincast.accuracy.measure.tasks import Task, tasks
from traincast.accuracy.measure.time_budget import TimeBudget

Send = Callable[[dict[str, Any]], Any]


def measure_as_rank(request: Mapping[str, Any], send: Send) -> None:
    """Measure as one rank of a job.

    Parameters
    ----------
    request : mapping
        ``until``, the end in wall-clock time [s]; ``threads`` of a rank, 0 for PyTorch's default; ``done``, keys of tasks that are
        timed already, and ``identity`` of the machine they were timed on.
    send : callable
        Called by rank 0 with a message for the machine, and one for each task: its samples or the problem, and the time left.
    """
    group = RankGroup(load_torch(), launched_rank() or Rank(0, 1, 0, 1), int(request["threads"]))
    try:
        about = group.from_rank_zero(
            lambda: device_info.describe_machine(
                group.torch, group.rank, group.device, group.hosts, group.backend
            )
        )
        budget = None
        if group.rank.rank == 0:
            send({"machine": about})
            done = request["done"] if request["identity"] == device_info.identity(about) else ()
            all_tasks = tasks(
                group.device.type, about["dtypes"], group.rank.size, about["nodes"], about["memory_bytes"]
            )
            budget = TimeBudget(all_tasks, done, float(request["until"]) - time.time())
        while choice := group.from_rank_zero(lambda: _next_task(budget)):
            task = Task.of(choice[0])
            samples, problem = group.timed(task, choice[1])
            if budget is not None:
                budget.record(task, failed=bool(problem))
                send({"task": task.key, "samples": samples, "problem": problem, "left": budget.left})
    finally:
        group.close()


def _next_task(budget: TimeBudget | None) -> tuple[str, float] | None:
    """Return the key of the next task and the time for its samples [s]; None at the end."""
    task = budget.next() if budget is not None else None
    return (task.key, budget.samples_seconds(task)) if budget is not None and task is not None else None
