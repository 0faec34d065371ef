"""All ranks of a job, seen from one of them: device, process groups, control messages."""

import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Self

import torch
import torch.distributed as dist

from traincast.accuracy.machine.launcher import Rank, launched_rank, rendezvous_address

TIMEOUT: Final = timedelta(minutes=10)  # of a rank waiting for the others


class RankGroup:
    """All ranks of a job, seen from one of them; `threads` of this process, 0 for PyTorch's default.

    NCCL joins GPUs; gloo joins CPUs, and carries control messages. `groups` holds process group and ranks of
    all ranks ("all") and of those on this node ("node").
    """

    def __init__(self, threads: int = 0):
        self.rank = launched_rank() or Rank()
        self.device = torch.device("cpu")
        if torch.cuda.is_available():
            torch.cuda.set_device(self.rank.local % torch.cuda.device_count())
            self.device = torch.device("cuda", torch.cuda.current_device())
        if threads:
            torch.set_num_threads(threads)
        self.hosts = [socket.gethostname()]
        self.groups: dict[str, tuple[Any, list[int]]] = {"all": (None, [0])}
        self.backend = ""
        if self.rank.size > 1:
            self._join()

    def _join(self) -> None:
        self.backend = "nccl" if self.device.type == "cuda" else "gloo"
        host, port = rendezvous_address(self.rank)
        method = f"tcp://{host}:{port}"
        rank = self.rank.rank
        size = self.rank.size
        dist.init_process_group(self.backend, init_method=method, rank=rank, world_size=size, timeout=TIMEOUT)
        self._control = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self.hosts = self.all_gather(socket.gethostname())
        self.groups["all"] = (dist.group.WORLD, list(range(size)))
        for node in dict.fromkeys(self.hosts):  # every rank must take part in creating every group
            members = [member for member, host in enumerate(self.hosts) if host == node]
            group = dist.new_group(members)
            if rank in members:
                self.groups["node"] = (group, members)

    def all_gather(self, value: object) -> list[Any]:
        """Gather a value from every rank, in rank order."""
        if self.rank.size == 1:
            return [value]
        values: list[object] = [None] * self.rank.size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def from_rank_zero(self, compute: Callable[[], Any]) -> Any:
        """Broadcast a value that rank 0 computes."""
        values = [compute() if self.rank.rank == 0 else None]
        if self.rank.size > 1:
            dist.broadcast_object_list(values, 0, group=self._control)
        return values[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.rank.size > 1:
            dist.destroy_process_group()


def gather_and_scatter() -> tuple[Any, Any]:
    """Return all-gather and reduce-scatter of one tensor, by their names since PyTorch 2.13 or before."""
    if hasattr(dist, "all_gather_single"):
        return dist.all_gather_single, dist.reduce_scatter_single
    return dist.all_gather_into_tensor, dist.reduce_scatter_tensor
