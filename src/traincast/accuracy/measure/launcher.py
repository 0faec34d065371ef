"""Which rank of a job this process is, as its launcher says; and ranks on this computer where nobody launched any."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Thread
from typing import IO, Any, Final

from traincast.core.errors import InputError, TraincastError

LAUNCHERS: Final = {  # launcher -> variables of rank, number of ranks, rank on its node, ranks of its node; the first that speaks
    "traincast": ("TRAINCAST_RANK", "TRAINCAST_RANKS", "TRAINCAST_LOCAL_RANK", "TRAINCAST_LOCAL_RANKS"),
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
    "MPI": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}
DEFAULT_PORT: Final = 29511
POLL_SECONDS: Final = 0.1  # between looks at whether all processes are well [s]
MALLOC_SETTINGS: Final = {  # glibc gives large blocks back to the system at once, which a caching allocator does not
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 26),
}


@dataclass(frozen=True)
class Rank:
    """A process of a job.

    Parameters
    ----------
    rank, size : int
        Its number, and that of all ranks.
    local, local_size : int
        Its number on its node, and that of the ranks there; 0 where the launcher does not say how many.
    launcher : str
        Who started it.
    """

    rank: int
    size: int
    local: int = 0
    local_size: int = 0
    launcher: str = "traincast"


def launched_rank(environment: Mapping[str, str] | None = None) -> Rank | None:
    """The rank that a launcher made of this process; None where there is none, or one process only.

    Parameters
    ----------
    environment : mapping of str to str, optional
        Variables in place of the process's own.

    Raises
    ------
    InputError
        If the launcher's variables contradict each other.
    """
    told = os.environ if environment is None else environment
    for launcher, (rank, size, local, local_size) in LAUNCHERS.items():
        if rank in told and size in told:
            names = [name for name in (rank, size, local, local_size) if name in told]
            wrong = [f"{name} = {told[name]!r}: not a whole number" for name in names if not told[name].isdigit()]
            if wrong:
                raise InputError(launcher, wrong)
            found = Rank(int(told[rank]), int(told[size]), int(told.get(local, 0)), int(told.get(local_size, 0)), launcher)
            if found.rank >= found.size:
                raise InputError(launcher, [f"{rank} = {found.rank}: must be below {size} = {found.size}"])
            return found if found.size > 1 else None
    return None


def rendezvous_address(rank: Rank, environment: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Host and port where the ranks of a job find each other.

    Raises
    ------
    InputError
        If ranks are on several nodes and nobody says where the first is.
    """
    told = os.environ if environment is None else environment
    port = told.get("MASTER_PORT", str(DEFAULT_PORT))
    if not port.isdigit():
        raise InputError("MASTER_PORT", [f"{port!r}: not a whole number"])
    if "MASTER_ADDR" in told:
        return told["MASTER_ADDR"], int(port)
    if "SLURM_STEP_NODELIST" in told:
        return first_host(told["SLURM_STEP_NODELIST"]), int(port)
    if rank.local_size == rank.size:
        return "127.0.0.1", int(port)
    raise InputError("MASTER_ADDR", [f"missing; set it to the host of rank 0, which {rank.launcher} does not tell"])


def first_host(nodes: str) -> str:
    """First host of a list as Slurm writes it: ``"node[03-07,12],login1"`` is ``"node03"``."""
    head, _, rest = nodes.partition("[")
    if "," in head or not rest:
        return head.split(",")[0]
    return head + rest.split("]")[0].split(",")[0].split("-")[0]


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RankFailed(TraincastError):
    """A rank ended before its work was done; the message ends with what it wrote last."""


def launch(module: str, request: Mapping[str, Any], ranks: int, threads: int, told: Callable[[dict[str, Any]], Any]) -> None:
    """Run a module as so many processes on this computer.

    Parameters
    ----------
    module : str
        Read a request as JSON from standard input; rank 0 writes messages, a JSON object a line, to standard output.
    request : mapping
        What every rank is told.
    ranks, threads : int
        Processes, and threads of each.
    told : callable
        Called with every message.

    Raises
    ------
    RankFailed
        If a process fails.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = (
        MALLOC_SETTINGS | dict(os.environ) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(threads)}
    )
    shared |= {"TRAINCAST_RANKS": str(ranks), "TRAINCAST_LOCAL_RANKS": str(ranks)}
    running: list[subprocess.Popen[str]] = []
    errors: list[IO[str]] = []
    with ExitStack() as open_files:
        open_files.callback(_terminate, running)
        for rank in range(ranks):
            errors.append(open_files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")))
            own = shared | {"TRAINCAST_RANK": str(rank), "TRAINCAST_LOCAL_RANK": str(rank)}
            out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            command = [sys.executable, "-m", module]
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors[-1], env=own, text=True))
            with running[-1].stdin as pipe:  # type: ignore[union-attr]  # it is a pipe
                pipe.write(json.dumps(dict(request)))
        watch = Thread(target=_kill_all_on_failure, args=(running,), daemon=True)
        watch.start()
        with running[0].stdout as lines:  # type: ignore[union-attr]  # it is a pipe
            for line in lines:
                if line.startswith("{"):
                    told(json.loads(line))
        watch.join()
        failed = sorted((rank for rank, one in enumerate(running) if one.wait()), key=lambda rank: running[rank].returncode < 0)
        if failed:
            raise RankFailed(_failure_message(failed[0], errors[failed[0]]))


def _kill_all_on_failure(running: list[subprocess.Popen[str]]) -> None:
    """Wait until all processes are done; where one fails, end those that wait for it."""
    while any(one.poll() is None for one in running):
        if any(one.poll() for one in running):
            for one in running:
                one.kill()
        time.sleep(POLL_SECONDS)


def _terminate(running: list[subprocess.Popen[str]]) -> None:
    """End processes that are still there."""
    for one in running:
        one.kill()
        one.wait()
        if one.stdout is not None:
            one.stdout.close()


def _failure_message(rank: int, file: IO[str]) -> str:
    """What a rank wrote before it failed."""
    file.seek(0)
    words = [line for line in file.read().splitlines() if line.strip()][-5:]
    return "\n  ".join((f"measure: rank {rank} failed", *words))
