"""One rank at work: it measures what rank 0 chooses, and rank 0 tells what all of them found."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from traincast.errors import InputError
from traincast.measuring import machine
from traincast.measuring.budget import Budget
from traincast.measuring.calls import prepared
from traincast.measuring.ranks import Rank, address, detected
from traincast.measuring.tasks import Task, of_key, tasks
from traincast.measuring.timing import counts, sampled

Told = Callable[[dict[str, Any]], Any]
TOGETHER: Final = ("collectives",)  # families whose ranks wait for each other


def load_torch() -> Any:
    """PyTorch.

    Raises
    ------
    InputError
        If it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise InputError(
            "measure",
            [
                "needs PyTorch, which is not installed beside traincast: pip install torch (pytorch.org says which build suits a machine)"
            ],
        ) from None
    return torch


def measure_here(request: Mapping[str, Any], told: Told) -> None:
    """Measure as one rank of a job.

    Parameters
    ----------
    request : mapping
        ``seconds``, the budget; ``threads`` of a rank, 0 for what PyTorch takes; ``done``, keys of tasks that are measured already
        with the machine they were measured on.
    told : callable
        Called by rank 0 with a message for the machine and for each task.
    """
    begin = time.perf_counter()
    torch = load_torch()
    rank = detected() or Rank(0, 1, 0, 1)
    device = machine.device(torch, rank)
    if request.get("threads"):
        torch.set_num_threads(int(request["threads"]))
    crew = Crew(torch, rank, device)
    try:
        about = crew.agreed(lambda: machine.described(torch, rank, device, crew.hosts))
        if rank.rank == 0:
            told({"machine": about})
        known = set(request["done"]) if request.get("identity") in (None, machine.identity(about)) else set()
        every = [one for one in tasks(device.type, about["dtypes"], rank.size, about["memory_bytes"])]
        budget = Budget(every, known, float(request["seconds"]) - (time.perf_counter() - begin))
        with torch.no_grad():
            _work(crew, budget, told)
    finally:
        crew.leave()


def _work(crew: "Crew", budget: Budget, told: Told) -> None:
    """Measure task after task until the time is over."""
    while True:
        chosen = crew.agreed(lambda: one.key if (one := budget.next()) else None)
        if chosen is None:
            return
        task = of_key(chosen)
        found = crew.measured(task, lambda once: counts(once, budget.slice(task), crew.device.type))
        budget.took(task, failed=not found["seconds"])
        if crew.rank.rank == 0:
            told({"task": chosen, **found, "left": budget.left, "total": budget.total})


class Crew:
    """All ranks of a job, as one of them sees them."""

    def __init__(self, torch: Any, rank: Rank, device: Any):
        self.torch, self.rank, self.device = torch, rank, device
        self.control: Any = None
        self.hosts = [machine.host()]
        if rank.size > 1:
            host, port = address(rank)
            where = f"tcp://{host}:{port}"
            backend = "nccl" if device.type == "cuda" else "gloo"
            torch.distributed.init_process_group(backend, init_method=where, rank=rank.rank, world_size=rank.size)
            self.control = torch.distributed.new_group(backend="gloo")
            self.hosts = self.gathered(machine.host())

    def gathered(self, own: Any) -> list[Any]:
        """What each rank has, in their order."""
        if self.rank.size == 1:
            return [own]
        every: list[Any] = [None] * self.rank.size
        self.torch.distributed.all_gather_object(every, own, group=self.control)
        return every

    def agreed(self, choice: Callable[[], Any]) -> Any:
        """What rank 0 chooses."""
        chosen = [choice() if self.rank.rank == 0 else None]
        if self.rank.size > 1:
            self.torch.distributed.broadcast_object_list(chosen, 0, group=self.control)
        return chosen[0]

    def measured(self, task: Task, wanted: Callable[[float], tuple[int, int]]) -> dict[str, Any]:
        """Samples of a task, all ranks at work at once: of collectives the slowest rank's, of anything else those of all."""
        problem, call = "", None
        try:
            with self.torch.enable_grad():
                call = prepared(task, self.torch, self.device)
                call()
        except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
            problem = str(error).splitlines()[0]
        problems = [one for one in self.gathered(problem) if one]
        if problems or call is None:
            return {"seconds": [], "problem": problems[0]}
        once = min(sampled(call, 2, 1, self.torch, self.device.type))
        samples, calls = self.agreed(lambda: wanted(once))
        with self.torch.enable_grad():
            every = self.gathered(sampled(call, samples, calls, self.torch, self.device.type))
        if task.family in TOGETHER:
            return {"seconds": _slowest(every, task)}
        return {"seconds": [one for samples in every for one in samples]}

    def leave(self) -> None:
        """End the job."""
        if self.rank.size > 1 and self.torch.distributed.is_initialized():
            self.torch.distributed.destroy_process_group()


def _slowest(every: Iterable[list[float]], task: Task) -> list[float]:
    """Samples of the slowest rank; of a message there and back one way."""
    ways = 2 if task.op == "p2p" else 1
    return [max(some) / ways for some in zip(*every, strict=True)]
