"""Rank of this process, as its launcher says, and local ranks by torchrun where there is no launcher."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from traincast.accuracy.machine.device_info import available_cores, default_ranks
from traincast.core import InputError, TraincastError, raise_problems

Send = Callable[[dict[str, object]], object]
LAUNCHERS: Final = {  # variables of rank, size, local rank, ranks on the node; the first match counts
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
MALLOC_SETTINGS: Final = {  # keep glibc from returning large blocks, as a caching allocator does
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
ERROR_LINES: Final = 5  # of a failed rank that its error shows


class Rank(NamedTuple):
    """A process of a job; `local_size` is 0 if the launcher does not say how many ranks the node has."""

    rank: int = 0
    size: int = 1
    local: int = 0
    local_size: int = 1
    launcher: str = "traincast"


def launched_rank(variables: Mapping[str, str] = os.environ) -> Rank | None:
    """Return the rank of this process by its launcher's variables; None without one, or with one process."""
    for launcher, names in LAUNCHERS.items():
        if names[0] not in variables or names[1] not in variables:
            continue
        problems = [
            f"{name} = {variables[name]!r}: not a whole number"
            for name in names
            if name in variables and not variables[name].isdigit()
        ]
        raise_problems(launcher, problems)
        rank, size, local, local_size = (int(variables.get(name, 0)) for name in names)
        if rank >= size:
            raise InputError(launcher, [f"{names[0]} = {rank}: must be below {names[1]} = {size}"])
        return Rank(rank, size, local, local_size, launcher) if size > 1 else None
    return None


def rendezvous_address(rank: Rank, variables: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Return host and port of rank 0; raise `InputError` if it is on another node that is not known."""
    port = variables.get("MASTER_PORT", str(DEFAULT_PORT))
    if not port.isdigit():
        raise InputError("MASTER_PORT", [f"{port!r}: not a whole number"])
    if "MASTER_ADDR" in variables:
        return variables["MASTER_ADDR"], int(port)
    if "SLURM_STEP_NODELIST" in variables:
        return first_host(variables["SLURM_STEP_NODELIST"]), int(port)
    if rank.local_size == rank.size:
        return "127.0.0.1", int(port)
    problem = f"missing; set it to the host of rank 0, which {rank.launcher} does not tell"
    raise InputError("MASTER_ADDR", [problem])


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list: ``"node[03-07,12],login1"`` is ``"node03"``."""
    head, _, rest = nodes.partition("[")
    if "," in head or not rest:
        return head.split(",")[0]
    return head + rest.split("]")[0].split(",")[0].split("-")[0]


class RankFailed(TraincastError):
    """Failure of a rank; the message ends with the last lines it wrote."""


def run_on_all_ranks(
    job: str, request: dict[str, object], ranks: int | None, threads: int | None, on_message: Send
) -> None:
    """Run a job on all ranks: as one of them under a launcher, else on local ranks.

    The job ``"module:function"`` is called with the request (a JSON object), to which the threads are added,
    and `on_message`, to which rank 0 sends. By default there is one local rank per GPU, or two on a CPU, and
    the cores are shared out.
    """
    if launched_rank() is not None:
        resolve_name(job)(request | {"threads": threads or 0}, on_message)
    else:
        ranks = ranks or default_ranks()
        threads = threads or max(available_cores() // ranks, 1)
        launch(job, request | {"threads": threads}, ranks, on_message)


def launch(job: str, request: dict[str, object], ranks: int, on_message: Send) -> None:
    """Run a job on local ranks, which torchrun starts and stops; raise `RankFailed` if one of them fails."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "request.json"
        file.write_text(json.dumps({"job": job, "request": request}), encoding="utf-8")
        torchrun = ("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        logs = ("--redirects=2", f"--log-dir={folder}")  # standard error of each rank goes to a file
        worker = ("-m", "traincast.accuracy.machine.launcher", str(file))
        variables = MALLOC_SETTINGS | dict(os.environ) | {"OMP_NUM_THREADS": str(request["threads"])}
        with (
            (folder / "torchrun.log").open("w") as report,
            Popen(
                [sys.executable, "-m", *torchrun, *logs, *worker],
                stdout=PIPE,
                stderr=report,
                env=variables,
                text=True,
            ) as process,
        ):
            try:
                for line in process.stdout or ():
                    if line.startswith("{"):
                        on_message(json.loads(line))
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise RankFailed(_failure_message(folder))


def _failure_message(folder: Path) -> str:
    """Return an error message with the last lines of the rank that torchrun says failed first."""
    report = (folder / "torchrun.log").read_text(encoding="utf-8", errors="replace")
    cause = re.search(
        r"Root Cause.*?rank\s*: (\d+).*?exitcode\s*: (.*?)\s*$", report, re.DOTALL | re.MULTILINE
    )
    if cause is None:
        subject = "torchrun"
        text = report
    else:
        log = next(folder.glob(f"*/attempt_0/{cause[1]}/stderr.log"))
        subject = f"rank {cause[1]}"
        text = log.read_text(encoding="utf-8", errors="replace").strip() or f"exit code {cause[2]}"
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n  ".join((f"measure: {subject} failed", *lines[-ERROR_LINES:]))


def main() -> None:
    """Run one local rank: the job of the file that the first argument names, with messages line by line."""
    # so that libraries cannot print between the messages
    messages = sys.stdout
    sys.stdout = sys.stderr
    content = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        resolve_name(content["job"])(
            content["request"], lambda message: print(json.dumps(message), file=messages, flush=True)
        )
    except TraincastError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
