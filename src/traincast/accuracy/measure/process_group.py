"""All ranks of a job, seen from one of them: control messages, and benchmarks timed together."""

from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Final

from traincast.accuracy.measure import device_info
from traincast.accuracy.measure.launcher import Rank, rendezvous_address
from traincast.accuracy.measure.tasks import Task
from traincast.accuracy.measure.timing import (
    MIN_COLLECTIVE_SAMPLE_SECONDS,
    MIN_SAMPLE_SECONDS,
    sample_counts,
    time_call,
)
from traincast.accuracy.measure.torch_calls import prepare_call
from traincast.core.errors import InputError

TORCH_MISSING: Final = "needs PyTorch, which traincast does not bring: pip install torch, or the build that pytorch.org names for your machine"
TIMEOUT: Final = timedelta(minutes=10)  # of a rank waiting for the others


def load_torch(what: str = "measure") -> Any:
    """Import PyTorch, which is not a dependency of traincast.

    Raises
    ------
    InputError
        If it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise InputError(what, [TORCH_MISSING]) from None
    return torch


def require_torch(what: str = "measure") -> None:
    """Check that PyTorch is installed, without loading it.

    Raises
    ------
    InputError
        If it is not installed.
    """
    if find_spec("torch") is None:
        raise InputError(what, [TORCH_MISSING])


class RankGroup:
    """All ranks of a job, seen from one of them.

    Parameters
    ----------
    torch : Any
        PyTorch.
    rank : Rank
        This process.
    threads : int
        Threads of this process; 0 for PyTorch's default.
    """

    def __init__(self, torch: Any, rank: Rank, threads: int = 0):
        self.torch, self.rank = torch, rank
        self.device = device_info.select_device(torch, rank)
        if threads:
            torch.set_num_threads(threads)
        self.hosts = [device_info.host_name()]
        self.groups: dict[str, tuple[Any, list[int]]] = {"all": (None, [0])}
        self._control: Any = None
        if rank.size > 1:
            self._join()

    def _join(self) -> None:
        """Initialise the process groups: NCCL between GPUs, gloo between CPUs and for control messages."""
        dist, (host, port) = self.torch.distributed, rendezvous_address(self.rank)
        dist.init_process_group(
            self.backend,
            init_method=f"tcp://{host}:{port}",
            rank=self.rank.rank,
            world_size=self.rank.size,
            timeout=TIMEOUT,
        )
        self._control = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self.hosts = self.all_gather(device_info.host_name())
        self.groups["all"] = (dist.group.WORLD, list(range(self.rank.size)))
        for node in dict.fromkeys(self.hosts):  # every rank must take part in creating every group
            members = [rank for rank, host in enumerate(self.hosts) if host == node]
            group = dist.new_group(members)
            if self.rank.rank in members:
                self.groups["node"] = (group, members)

    @property
    def backend(self) -> str:
        """Backend of the collectives; empty with one rank."""
        return ("nccl" if self.device.type == "cuda" else "gloo") if self.rank.size > 1 else ""

    def all_gather(self, value: Any) -> list[Any]:
        """Gather a value from every rank, in rank order."""
        if self.rank.size == 1:
            return [value]
        values: list[Any] = [None] * self.rank.size
        self.torch.distributed.all_gather_object(values, value, group=self._control)
        return values

    def from_rank_zero(self, compute: Callable[[], Any]) -> Any:
        """Broadcast a value that rank 0 computes."""
        values = [compute() if self.rank.rank == 0 else None]
        if self.rank.size > 1:
            self.torch.distributed.broadcast_object_list(values, 0, group=self._control)
        return values[0]

    def timed(self, task: Task, seconds: float) -> tuple[list[float], str]:
        """Time a task on all ranks, after a warm-up.

        Parameters
        ----------
        task : Task
            The task.
        seconds : float
            Time for the samples on rank 0 [s].

        Returns
        -------
        tuple of list of float and str
            Samples of all ranks [s], and the reason if there are none.
        """
        try:
            call = prepare_call(task, self.torch, self.device, *self.groups[task.scope])
            call_seconds = min(time_call(call, 2, 1, self.torch, self.device.type))
            problem = ""
        except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError) as error:
            problem = (str(error) or type(error).__name__).splitlines()[0]
        problems = [text for text in self.all_gather(problem) if text]
        if problems:
            return [], problems[0]
        together = task.family == "collectives" and self.device.type == "cpu"
        samples, calls = self.from_rank_zero(
            lambda: sample_counts(
                call_seconds,
                seconds,
                MIN_COLLECTIVE_SAMPLE_SECONDS if together else MIN_SAMPLE_SECONDS[self.device.type],
            )
        )
        samples_of = self.all_gather(time_call(call, samples, calls, self.torch, self.device.type))
        trips = 2 if task.op == "p2p" else 1  # a message goes there and back
        members = self.groups[task.scope][1]
        counted = (members[0], members[-1]) if task.op == "p2p" else range(self.rank.size)
        return [sample / trips for rank in counted for sample in samples_of[rank]], ""

    def close(self) -> None:
        """Destroy the process groups."""
        if self.rank.size > 1:
            self.torch.distributed.destroy_process_group()
