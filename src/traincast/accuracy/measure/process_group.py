"""All ranks of a job, as one of them sees them: what they agree on, and what they time together."""

from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Final

from traincast.accuracy.measure import device_info
from traincast.accuracy.measure.launcher import Rank, address
from traincast.accuracy.measure.tasks import Task
from traincast.accuracy.measure.timing import SAMPLE, TOGETHER, counts, sampled
from traincast.accuracy.measure.torch_calls import prepared
from traincast.core.errors import InputError

MISSING: Final = (
    "needs PyTorch, which traincast does not bring: pip install torch, or the build that pytorch.org names for your machine"
)
PATIENCE: Final = timedelta(minutes=10)  # that ranks wait for each other


def load_torch(what: str = "measure") -> Any:
    """PyTorch, which is the user's own and no dependency.

    Raises
    ------
    InputError
        If it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise InputError(what, [MISSING]) from None
    return torch


def require_torch(what: str = "measure") -> None:
    """Refuse to go on without PyTorch, which is not loaded.

    Raises
    ------
    InputError
        If it is not installed.
    """
    if find_spec("torch") is None:
        raise InputError(what, [MISSING])


class Crew:
    """All ranks of a job, as one of them sees them.

    Parameters
    ----------
    torch : Any
        PyTorch.
    rank : Rank
        This process.
    threads : int
        Threads it computes with; 0 for what PyTorch takes.
    """

    def __init__(self, torch: Any, rank: Rank, threads: int = 0):
        self.torch, self.rank = torch, rank
        self.device = device_info.device(torch, rank)
        if threads:
            torch.set_num_threads(threads)
        self.hosts = [device_info.host()]
        self.groups: dict[str, tuple[Any, list[int]]] = {"all": (None, [0])}
        self._control: Any = None
        if rank.size > 1:
            self._join()

    def _join(self) -> None:
        """Meet the other ranks: NCCL between GPUs and gloo between CPUs, gloo for what they agree on."""
        dist, (host, port) = self.torch.distributed, address(self.rank)
        dist.init_process_group(
            self.backend, init_method=f"tcp://{host}:{port}", rank=self.rank.rank, world_size=self.rank.size, timeout=PATIENCE
        )
        self._control = dist.new_group(backend="gloo", timeout=PATIENCE)
        self.hosts = self.gathered(device_info.host())
        self.groups["all"] = (dist.group.WORLD, list(range(self.rank.size)))
        for node in dict.fromkeys(self.hosts):  # every rank has to take part in making every group
            members = [rank for rank, host in enumerate(self.hosts) if host == node]
            group = dist.new_group(members)
            if self.rank.rank in members:
                self.groups["node"] = (group, members)

    @property
    def backend(self) -> str:
        """The library of collectives; none with one rank."""
        return ("nccl" if self.device.type == "cuda" else "gloo") if self.rank.size > 1 else ""

    def gathered(self, own: Any) -> list[Any]:
        """What each rank has, in their order."""
        if self.rank.size == 1:
            return [own]
        every: list[Any] = [None] * self.rank.size
        self.torch.distributed.all_gather_object(every, own, group=self._control)
        return every

    def agreed(self, choice: Callable[[], Any]) -> Any:
        """What rank 0 chooses."""
        chosen = [choice() if self.rank.rank == 0 else None]
        if self.rank.size > 1:
            self.torch.distributed.broadcast_object_list(chosen, 0, group=self._control)
        return chosen[0]

    def timed(self, task: Task, seconds: float) -> tuple[list[float], str]:
        """Times of a task with all ranks at work, after a warm-up.

        Parameters
        ----------
        task : Task
            The task.
        seconds : float
            Time for the samples; that of rank 0 counts [s].

        Returns
        -------
        tuple of list of float and str
            Samples of all ranks [s], and why there are none.
        """
        try:
            call = prepared(task, self.torch, self.device, *self.groups[task.scope])
            once = min(sampled(call, 2, 1, self.torch, self.device.type))
            problem = ""
        except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError) as error:
            problem = (str(error) or type(error).__name__).splitlines()[0]
        problems = [one for one in self.gathered(problem) if one]
        if problems:
            return [], problems[0]
        together = task.family == "collectives" and self.device.type == "cpu"
        samples, calls = self.agreed(lambda: counts(once, seconds, TOGETHER if together else SAMPLE[self.device.type]))
        every = self.gathered(sampled(call, samples, calls, self.torch, self.device.type))
        ways = 2 if task.op == "p2p" else 1  # a message goes there and back
        members = self.groups[task.scope][1]
        of = (members[0], members[-1]) if task.op == "p2p" else range(self.rank.size)
        return [one / ways for rank in of for one in every[rank]], ""

    def leave(self) -> None:
        """End the job."""
        if self.rank.size > 1:
            self.torch.distributed.destroy_process_group()
