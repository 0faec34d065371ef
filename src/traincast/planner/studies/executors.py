"""Run a study's chunks on any `concurrent.futures.Executor`, and save finished chunks.

Finished chunks are files next to the output until it is written, so an interrupted study resumes where it
stopped, and shards that ran separately (Slurm array jobs) are merged.
"""

import errno
import json
import logging
import os
import platform
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import disk_usage
from threading import Event, Thread, current_thread, main_thread
from types import FrameType
from typing import Any, Final, Protocol, Self

import polars as pl

from traincast.core import (
    Assumptions,
    InputError,
    MissingExtra,
    System,
    TraincastError,
    atomic_output,
    check_output,
    parse_whole,
)
from traincast.model import Model
from traincast.planner.question import Question
from traincast.planner.studies.results import (
    Results,
    arrange,
    collect,
    describe,
    fingerprint,
    to_frame,
    to_header,
    write_parquet,
)
from traincast.planner.studies.sweep import Chunk, Study, Table, define_study

# Keep freed memory: by dask's setting large arrays return to the system, which takes longer than the work.
MALLOC: Final = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), 1 << 30)
LOCK: Final = "study.lock"  # in the folder of parts, held by who writes them
# What Dask logs of a lost connection, with traces, before the study says what was lost.
DASK_LOGGERS: Final = ("distributed", "distributed.client", "tornado.application", "asyncio")
PART_NAMES: Final = re.compile(r"study\.(json|lock)|(\d{6}|block-\d{6})\.parquet|\..*\.\d+-\d+\.partial")
FULL_BYTES: Final = 1 << 16  # left on a disk that is full
ROWS_PER_BLOCK: Final = 200_000  # rows of a table that are put in order at once
MAX_CHUNKS_SUBMITTED: Final = 256  # chunks given to an executor at once
MAX_RESTARTS: Final = 3  # of local workers after one was killed
Progress = Callable[[int, int, int], None]  # chunks done, chunks in total, candidates of the last chunk


@dataclass(frozen=True)
class Shard:
    """The k-th of n parts of a study (from 1): every n-th chunk."""

    k: int = 1
    n: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read a part written as k/n."""
        k, _, n = text.partition("/")
        number = parse_whole(k)
        parts = parse_whole(n)
        if not number or not parts or number > parts:
            wrong = f"{text!r}: must be k/n with whole numbers 1 ≤ k ≤ n, for instance 3/16"
            raise InputError("shard", [wrong])
        return cls(number, parts)

    def has(self, number: int) -> bool:
        """Return whether a chunk is in this part."""
        return number % self.n == self.k - 1


class Runnable(Protocol):
    """A piece of work for a worker, which can be pickled."""

    def run(self) -> Table:
        """Return its results as columns."""


@dataclass(frozen=True)
class Parts:
    """Files of finished chunks, in a folder next to the output."""

    folder: Path

    @classmethod
    def for_output(cls, mark_of: str, output: Path, force: bool = False, create: bool = True) -> Self:
        """Return the parts that belong to an output, their folder created.

        `mark_of` is the fingerprint of what is run. Files that are no parts are refused, and parts of another
        study (or another version) unless `force` is set.
        """
        parts = cls(output.with_name(f"{output.name}.parts"))
        mark = parts.folder / "study.json"
        content = json.dumps({"fingerprint": mark_of})
        if not mark.exists() and parts.foreign_files():
            raise InputError(str(parts.folder), ["is in the way and holds other files: move it"])
        if mark.exists() and mark.read_text(encoding="utf-8") != content:
            if not force:
                others = (
                    "holds finished parts of another study, or of another version of traincast or its data; "
                    "`force=True` drops them"
                )
                raise InputError(str(parts.folder), [others])
            with parts.lock(shared=False):
                parts.drop()
        if not create:
            return parts
        parts.folder.mkdir(parents=True, exist_ok=True)
        with atomic_output(mark) as partial:  # shards may start at once: the mark is whole, or not there
            partial.write_text(content, encoding="utf-8")
        return parts

    @contextmanager
    def lock(self, shared: bool) -> Iterator[None]:
        """Hold the folder: shards share it, a whole study and a merge have it alone.

        The lock ends with the process. Raises `InputError` with who holds it; without locks of files, on
        Windows, nothing is held.
        """
        if sys.platform == "win32":
            yield
            return
        import fcntl

        with (self.folder / LOCK).open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                wrong = f"is being written by {holder}: wait until that ends, or give another output"
                raise InputError(str(self.folder), [wrong]) from None
            except OSError:  # a file system without locks
                pass
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}")
            file.flush()
            yield
        with suppress(OSError):  # on NFS an open file stays in a folder that was dropped
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def drop(self) -> None:
        """Remove the parts, and the folder if nothing else is in it."""
        foreign_files = self.foreign_files()
        for path in set(self.folder.iterdir()) - set(foreign_files):
            path.unlink(missing_ok=True)
        if not foreign_files:
            with suppress(OSError):
                self.folder.rmdir()

    def foreign_files(self) -> list[Path]:
        """Return the files in the folder that are not of a study."""
        return [path for path in self.folder.glob("*") if not PART_NAMES.fullmatch(path.name)]

    def has(self, number: int) -> bool:
        """Return whether a chunk is finished; a damaged file is not."""
        try:
            pl.read_parquet_schema(self.path(number))
        except (OSError, pl.exceptions.PolarsError):
            return False
        return True

    def path(self, number: int) -> Path:
        """Return the file of a chunk."""
        return self.folder / f"{number:06d}.parquet"

    def save(self, number: int, frame: pl.DataFrame) -> None:
        """Save a finished chunk, completely or not at all."""
        with atomic_output(self.path(number)) as partial:
            write_parquet(frame, partial)

    def write(self, study: Study, output: Path, force: bool) -> None:
        """Write a study's table once all chunks are finished, and remove the parts.

        Parquet is assembled in blocks, so that memory does not limit its size.
        """
        chunks = study.chunks()
        missing = [number for number in range(len(chunks)) if not self.has(number)]
        if missing:
            wrong = f"{len(missing)} of {len(chunks)} chunks are missing: run the remaining shards first"
            raise InputError(str(self.folder), [wrong])
        if output.suffix == ".parquet":
            blocks = []
            for number, frame in enumerate(self._blocks(study, chunks)):
                blocks.append(self.folder / f"block-{number:06d}.parquet")
                write_parquet(frame, blocks[-1])
            table = pl.scan_parquet(blocks)
            header = to_header(describe(study, table.collect_schema().names()))
            with atomic_output(output) as partial:
                try:
                    table.sink_parquet(partial, metadata=header, maintain_order=True)
                except pl.exceptions.PolarsError as error:  # has no number of the system's error
                    is_full = disk_usage(partial.parent).free < FULL_BYTES
                    raise OSError(errno.ENOSPC if is_full else errno.EIO, str(error), str(output)) from error
        else:
            frames = (pl.read_parquet(self.path(number)) for number in range(len(chunks)))
            collect(study, frames).write(output, force)
        self.drop()

    def _blocks(self, study: Study, chunks: list[Chunk]) -> Iterator[pl.DataFrame]:
        """Yield the table in blocks, each of some points of a series."""
        files: dict[int, list[Path]] = {}
        for number, chunk in enumerate(chunks):
            files.setdefault(chunk.series, []).append(self.path(number))
        size = max(ROWS_PER_BLOCK // (len(study.gpus) * study.top), 1)
        for series in files.values():
            for low in range(0, study.points, size):
                rows = pl.scan_parquet(series).filter(pl.col("point").is_between(low, low + size - 1))
                yield arrange(study, rows.collect())


def run_chunk(chunk: Runnable) -> pl.DataFrame:
    """Run a chunk in a worker, and return only its results."""
    return to_frame(chunk.run())


def run_study(study: Study, executor: Executor | None = None, workers: int = 1) -> Results:
    """Run a study in memory, on an executor, or else in this process or in `workers` local ones."""
    frames = dict(complete_chunks(dict(enumerate(study.chunks())), executor, workers))
    return collect(study, (frames[number] for number in sorted(frames)))


def study(
    *,
    models: Sequence[Model | str],
    systems: Sequence[System | str],
    gpus: Sequence[int],
    strategies: Sequence[str] | None = None,
    gbs: int | Sequence[int] | None = None,
    assumptions: str | Assumptions | None = None,
    top: int = 1,
    vary: Sequence[Mapping[str, Sequence[float | str]]] = (),
    framework: str | None = None,
    executor: Executor | None = None,
    workers: int = 1,
) -> Results:
    """Optimise at every point of a sweep.

    Parameters
    ----------
    models, systems : sequence
        Models and systems, or their names.
    gpus : sequence of int
        Numbers of GPUs.
    strategies : sequence of str, optional
        Each is optimised on its own; those of the framework if left out.
    gbs : int or sequence of int, optional
        Global batches [sequences]; the model's own if left out, or else one of about 4M tokens.
    assumptions : str or Assumptions, optional
        Assumptions, or the name of a preset or software stack; those of the framework if left out.
    top : int
        Plans listed at each point.
    vary : sequence of mapping
        Axes, each a mapping of fields that vary together to their values, numbers in SI or text with a unit,
        such as ``{"accelerator.hbm_bytes": [80e9, "192 GB"]}``.
    framework : str, optional
        What is searched; if left out, for each model what `search` does.
    executor : concurrent.futures.Executor, optional
        Where to run; else in this process, or in `workers` local ones.
    workers : int
        Local processes.

    Returns
    -------
    Results
        One row for each point and rank.

    Raises
    ------
    InputError
        With all that is wrong.

    Examples
    --------
    >>> import traincast as tc
    >>> systems = ["h200-nvs4", "h200-nvs8"]
    >>> results = tc.study(models=["gpt3-1t"], systems=systems, gpus=[1024, 2048], strategies=["1d"])
    >>> results.frame.select("system", "gpus", "tp", "step_seconds").rows()[0]
    ('h200-nvs4', 1024, 4, 74.91406374092023)
    """
    question = Question(gpus=gpus, strategy=strategies, assumptions=assumptions, top=top, framework=framework)
    return run_study(define_study(models, systems, question, batches=gbs, vary=vary), executor, workers)


def run_study_to(
    study: Study,
    output: Path,
    force: bool = False,
    shard: Shard = Shard(),
    executor: Executor | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> bool:
    """Run a study into a file, resuming where an earlier run stopped.

    Returns whether the table was written: not if there are other shards, to be merged later.
    """
    check_output(output, force, Results.FORMATS)
    parts = Parts.for_output(fingerprint(study), output, force)
    with parts.lock(shared=shard.n > 1):
        return _run_parts(study, parts, output, force, shard, executor, workers, progress)


def _run_parts(
    study: Study,
    parts: Parts,
    output: Path,
    force: bool,
    shard: Shard,
    executor: Executor | None,
    workers: int,
    progress: Progress | None,
) -> bool:
    """Run the chunks of a shard that are not finished, and write the table if that is all of them."""
    in_shard = {number: chunk for number, chunk in enumerate(study.chunks()) if shard.has(number)}
    open_chunks = {number: chunk for number, chunk in in_shard.items() if not parts.has(number)}
    done = len(in_shard) - len(open_chunks)
    for _, frame in complete_chunks(open_chunks, executor, workers, parts):
        done += 1
        if progress is not None:
            progress(done, len(in_shard), int(frame.filter(pl.col("rank") == 1)["candidates"].sum()))
    if shard.n > 1:
        return False
    parts.write(study, output, force)
    return True


def merge_shards(study: Study, output: Path, force: bool = False) -> None:
    """Write the table of a study whose shards are all finished, and remove their parts."""
    parts = Parts.for_output(fingerprint(study), output, create=False)
    with parts.lock(shared=False) if parts.folder.is_dir() else nullcontext():
        parts.write(study, output, force)


class WorkersLost(TraincastError):
    """Workers, or the scheduler of a cluster, ended before a study did."""


def complete_chunks(
    chunks: Mapping[int, Runnable],
    executor: Executor | None = None,
    workers: int = 1,
    parts: Parts | None = None,
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield numbers and frames of chunks as they finish, each saved in the parts, if there are any.

    Raises `WorkersLost` where nobody works any more.
    """
    if parts is None:
        yield from _run_chunks(chunks, executor, workers)
        return
    with _interrupts_remembered() as interrupted:
        for number, frame in _run_chunks(chunks, executor, workers):
            parts.save(number, frame)
            yield number, frame
            if interrupted.is_set():
                raise KeyboardInterrupt


def _run_chunks(
    chunks: Mapping[int, Runnable], executor: Executor | None, workers: int
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield numbers and frames of chunks as they finish."""
    try:
        if executor is not None:
            yield from _submit_chunks(chunks, executor)
        elif workers == 1:
            yield from ((number, run_chunk(chunk)) for number, chunk in chunks.items())
        else:
            yield from _local(dict(chunks), workers)
    except (CancelledError, BrokenExecutor) as error:
        lost = "the workers, or their scheduler, were lost; finished chunks of a file are kept: the same"
        raise WorkersLost(f"study: {lost} command goes on from there") from error


def _submit_chunks(chunks: Mapping[int, Runnable], executor: Executor) -> Iterator[tuple[int, pl.DataFrame]]:
    """Run all chunks on an executor, a limited number at a time, so that results do not pile up."""
    waiting = iter(chunks.items())
    running = dict[Future[pl.DataFrame], int]()
    while True:
        running |= {
            executor.submit(run_chunk, chunk): number
            for number, chunk in islice(waiting, MAX_CHUNKS_SUBMITTED - len(running))
        }
        if not running:
            return
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            yield running.pop(future), future.result()


def _local(chunks: dict[int, Runnable], workers: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Run all chunks on local processes, which are restarted if one is killed."""
    for attempt in range(MAX_RESTARTS + 1):
        try:
            # Spawned: a forked process may inherit polars' locks.
            with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
                try:
                    for number, frame in _submit_chunks(dict(chunks), pool):
                        del chunks[number]
                        yield number, frame
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
            return
        except BrokenProcessPool:
            if attempt == MAX_RESTARTS:
                raise


def end_with_parent() -> None:
    """End this worker when the process that started it ends, killed or not."""

    def wait_and_end(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait_and_end, args=(parent_process(),), daemon=True).start()


@contextmanager
def dask_executor(address: str, workers: int) -> Iterator[Executor]:
    """Open an executor on a Dask scheduler at an address, or on local processes for ``"local"``."""
    try:
        from dask import config
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingExtra.from_import_error(error) or error from None
    for name in DASK_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    cluster: Any = None
    open_cluster: Any = LocalCluster  # dask's functions have no types
    open_client: Any = Client
    try:
        if address == "local":
            # Processes started here ignore Ctrl-C: the one that starts them handles it, and ends them.
            ignored = _handling_interrupts(signal.SIG_IGN)
            with config.set({"distributed.nanny.pre-spawn-environ": MALLOC}), ignored:
                cluster = open_cluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
        client = open_client(cluster or address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError("dask", [f"no scheduler answers at {address} ({error})"]) from None
    interrupted = False
    try:
        yield client.get_executor()
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        if not interrupted:  # else closing could wait for ever; the cluster's processes end with this one
            client.close(timeout=5)
            if cluster is not None:
                cluster.close(timeout=5)


@contextmanager
def _handling_interrupts(
    handler: "signal.Handlers | Callable[[int, FrameType | None], object]",
) -> Iterator[None]:
    """Handle Ctrl-C otherwise meanwhile; only the main thread can."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupts_remembered() -> Iterator[Event]:
    """Note Ctrl-C in an event: Python drops the exception where it falls into a ``__del__``, as Dask's."""
    interrupted = Event()
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield interrupted
        return

    def remember(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        before(number, frame)

    with _handling_interrupts(remember):
        yield interrupted


@contextmanager
def mpi_executor() -> Iterator[Executor]:
    """Open an executor on the ranks of an MPI job (``mpiexec … python -m mpi4py.futures -m traincast``)."""
    try:
        from mpi4py.futures import MPIPoolExecutor
    except (ImportError, RuntimeError):
        raise InputError(
            "mpi", ["mpi4py and an MPI library are needed: pip install 'traincast[mpi]'"]
        ) from None
    with MPIPoolExecutor() as pool:
        yield pool
