"""Rank of this process, as its launcher says, and launch of local ranks where there is no launcher."""

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

LAUNCHERS: Final = {  # launcher -> variables of rank, world size, local rank, local size; the first match counts
    "traincast": ("TRAINCAST_RANK", "TRAINCAST_RANKS", "TRAINCAST_LOCAL_RANK", "TRAINCAST_LOCAL_RANKS"),
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
    "MPI": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}
DEFAULT_PORT: Final = 29511
POLL_SECONDS: Final = 0.1  # between checks of the processes
MALLOC_SETTINGS: Final = {  # keep glibc from returning large blocks to the system, as a caching allocator does
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
        Rank, and world size.
    local, local_size : int
        Rank on its node, and ranks there; 0 if the launcher does not say how many.
    launcher : str
        Name of the launcher.
    """

    rank: int
    size: int
    local: int = 0
    local_size: int = 0
    launcher: str = "traincast"


def launched_rank(environment: Mapping[str, str] | None = None) -> Rank | None:
    """Return the rank of this process from its launcher's variables; None without a launcher, or with one process.

    Parameters
    ----------
    environment : mapping of str to str, optional
        Variables to read instead of those of the process.

    Raises
    ------
    InputError
        If the launcher's variables contradict each other.
    """
    variables = os.environ if environment is None else environment
    for launcher, (rank, size, local, local_size) in LAUNCHERS.items():
        if rank in variables and size in variables:
            names = [name for name in (rank, size, local, local_size) if name in variables]
            problems = [
                f"{name} = {variables[name]!r}: not a whole number"
                for name in names
                if not variables[name].isdigit()
            ]
            if problems:
                raise InputError(launcher, problems)
            result = Rank(
                int(variables[rank]),
                int(variables[size]),
                int(variables.get(local, 0)),
                int(variables.get(local_size, 0)),
                launcher,
            )
            if result.rank >= result.size:
                raise InputError(launcher, [f"{rank} = {result.rank}: must be below {size} = {result.size}"])
            return result if result.size > 1 else None
    return None


def rendezvous_address(rank: Rank, environment: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Return the rendezvous address of a job: host and port of rank 0.

    Raises
    ------
    InputError
        If ranks are on several nodes and the host of rank 0 is not known.
    """
    variables = os.environ if environment is None else environment
    port = variables.get("MASTER_PORT", str(DEFAULT_PORT))
    if not port.isdigit():
        raise InputError("MASTER_PORT", [f"{port!r}: not a whole number"])
    if "MASTER_ADDR" in variables:
        return variables["MASTER_ADDR"], int(port)
    if "SLURM_STEP_NODELIST" in variables:
        return first_host(variables["SLURM_STEP_NODELIST"]), int(port)
    if rank.local_size == rank.size:
        return "127.0.0.1", int(port)
    raise InputError(
        "MASTER_ADDR", [f"missing; set it to the host of rank 0, which {rank.launcher} does not tell"]
    )


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list: ``"node[03-07,12],login1"`` is ``"node03"``."""
    head, _, rest = nodes.partition("[")
    if "," in head or not rest:
        return head.split(",")[0]
    return head + rest.split("]")[0].split(",")[0].split("-")[0]


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RankFailed(TraincastError):
    """Failure of a rank; the message ends with the last lines it wrote."""


def launch(
    module: str,
    request: Mapping[str, Any],
    ranks: int,
    threads: int,
    on_message: Callable[[dict[str, Any]], Any],
) -> None:
    """Run a module as several processes on this computer.

    Parameters
    ----------
    module : str
        Module that reads a request as JSON from standard input; its rank 0 writes one JSON object per line to standard output.
    request : mapping
        Request sent to every rank.
    ranks, threads : int
        Number of processes, and threads of each.
    on_message : callable
        Called with every message of rank 0.

    Raises
    ------
    RankFailed
        If a process fails.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = (
        MALLOC_SETTINGS
        | dict(os.environ)
        | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(threads)}
    )
    common |= {"TRAINCAST_RANKS": str(ranks), "TRAINCAST_LOCAL_RANKS": str(ranks)}
    processes: list[subprocess.Popen[str]] = []
    errors: list[IO[str]] = []
    with ExitStack() as open_files:
        open_files.callback(_terminate, processes)
        for rank in range(ranks):
            errors.append(
                open_files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
            )
            variables = common | {"TRAINCAST_RANK": str(rank), "TRAINCAST_LOCAL_RANK": str(rank)}
            stdout = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            command = [sys.executable, "-m", module]
            processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=stdout, stderr=errors[-1], env=variables, text=True
                )
            )
            with processes[-1].stdin as pipe:  # type: ignore[union-attr]  # it is a pipe
                pipe.write(json.dumps(dict(request)))
        watch = Thread(target=_kill_all_on_failure, args=(processes,), daemon=True)
        watch.start()
        with processes[0].stdout as lines:  # type: ignore[union-attr]  # it is a pipe
            for line in lines:
                if line.startswith("{"):
                    on_message(json.loads(line))
        watch.join()
        failed = sorted(
            (rank for rank, process in enumerate(processes) if process.wait()),
            key=lambda rank: processes[rank].returncode < 0,
        )
        if failed:
            raise RankFailed(_failure_message(failed[0], errors[failed[0]]))


def _kill_all_on_failure(processes: list[subprocess.Popen[str]]) -> None:
    """Wait for all processes; kill all of them when one fails."""
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            for process in processes:
                process.kill()
        time.sleep(POLL_SECONDS)


def _terminate(processes: list[subprocess.Popen[str]]) -> None:
    """Kill processes that are still running, and close their pipes."""
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _failure_message(rank: int, file: IO[str]) -> str:
    """Return an error message with the last lines a rank wrote."""
    file.seek(0)
    last_lines = [line for line in file.read().splitlines() if line.strip()][-5:]
    return "\n  ".join((f"measure: rank {rank} failed", *last_lines))
