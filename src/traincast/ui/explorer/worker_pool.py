"""Worker processes that answer requests: bounded queue, time limits, and equal requests computed once."""

import asyncio
import math
import multiprocessing
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, Final

from traincast.ui.explorer.limits import LEAST_MEMORY, MAX_WAITING, MEMORY, MOST_WAIT, SECONDS
from traincast.ui.explorer.worker import READY, SearchStatus, failure, work

StatusAndBody = tuple[int, bytes]
SLOW: Final = ("space", "explain", "scaling", "timeline")
START_SECONDS: Final = 60.0  # time limit for the imports of a new process
GRACE_SECONDS: Final = 2.0  # in which a worker ends a request after its time limit, before it is killed
CACHE_BYTES: Final = 32 << 20  # size of the cached answers with their requests
WORKERS: Final = max(2, min(8, os.cpu_count() or 1))
SHARE_OF_LAST: Final = 1 / 8  # of the last request in the mean time of those of its kind
RETRY_SHARE: Final = 1 / 6  # of the time that requests wait, after which to try again where too many do
KILLED: Final = (503, failure("the system ended the search twice; it may have needed too much memory"))


def worker_memory(workers: int, memory: int | None = None) -> int:
    """Return the memory that one of several workers may address [bytes].

    Parameters
    ----------
    workers
        Number of workers.
    memory
        For all workers together [bytes]; a quarter of the machine's if None, where the system tells it.
    """
    if memory is None and hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    if memory is None:
        return MEMORY
    return max(LEAST_MEMORY, min(MEMORY, memory // max(workers, 1)))


class Busy(Exception):
    """Too many requests wait, or for too long; `seconds` says after which time to try again."""

    def __init__(self, wait: float) -> None:
        self.seconds = max(1, math.ceil(RETRY_SHARE * wait))  # [s]
        when = "a second" if self.seconds == 1 else f"{self.seconds} seconds"
        super().__init__(f"the server is busy: too many searches wait; try again in {when}")


class Worker:
    """A process that answers one request at a time; it is replaced if it does not end at its time limit."""

    def __init__(self, systems: Sequence[str] = (), memory: int = MEMORY) -> None:
        self.systems = systems
        self.memory = memory  # that the process may address [bytes]
        self.last_text = ""
        self._is_closed = False
        self._lock = Lock()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, worker_end = context.Pipe()
        self.status: Any = context.RawValue(SearchStatus)
        given = worker_end, self.status, self.systems, self.memory
        self._process = context.Process(target=work, args=given, daemon=True)
        self._process.start()
        self._is_ready = False
        worker_end.close()

    def prepare(self) -> None:
        """Replace a process that has ended, and forget the progress of the last request."""
        if not self._process.is_alive():
            self.end()
            self._start()
        self.status.done = self.status.total = self.status.candidates = 0
        self.status.is_begun = self.status.is_abandoned = False

    def ask(self, kind: str, text: str, seconds: float) -> StatusAndBody:
        """Return the answer; blocks, so it is called in a thread.

        A process that the system ends is replaced, and the new one asked, once.
        """
        answer = self._ask_once(kind, text, seconds)
        if answer is KILLED and not self._is_closed:
            answer = self._ask_once(kind, text, seconds)
        return answer

    def _ask_once(self, kind: str, text: str, seconds: float) -> StatusAndBody:
        self.last_text = text
        hint = "ask for fewer GPUs, another framework, or lock some knobs"
        answer = 422, failure(f"this takes longer than {seconds:g} s: {hint}")
        try:
            self._is_ready = self._is_ready or (self._pipe.poll(START_SECONDS) and self._pipe.recv() == READY)
            if self._is_ready:
                self._pipe.send((kind, text))
                if self._pipe.poll(seconds):
                    received: StatusAndBody = self._pipe.recv()
                    return received
                self.status.is_abandoned = True
                if self._pipe.poll(GRACE_SECONDS):
                    self._pipe.recv()
                    return answer
        except (EOFError, OSError):
            answer = KILLED
        with self._lock:
            self.end()
            if not self._is_closed:
                self._start()
        return answer

    def close(self) -> None:
        """End the process for good, also while a thread waits for its answer."""
        with self._lock:
            self._is_closed = True
            self.end()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


@dataclass(eq=False)
class PoolJob:
    """A request in the queue or with a worker, and how many wait for its answer."""

    kind: str
    text: str
    answered: "asyncio.Future[StatusAndBody]"
    requesters: int = 0
    worker: Worker | None = None


class Pool:
    """A pool of workers with a queue of at most `waiting` requests, a time limit [s] and a cache of answers.

    Who would wait longer than `MOST_WAIT` is told to come again: no client waits until it gives up.
    The first worker is for quick questions only: a slider that moves does not wait behind the explanation of
    its last position.
    """

    def __init__(
        self,
        workers: int = WORKERS,
        waiting: int = MAX_WAITING,
        seconds: float = SECONDS,
        systems: Sequence[str] = (),
        memory: int | None = None,
    ):
        """Start the workers; `memory` [bytes] bounds them together, a quarter of the machine's if None."""
        self.waiting = waiting
        self.seconds = seconds
        each = worker_memory(workers, memory)
        self._all = tuple(Worker(systems, each) for _ in range(workers))
        self._idle = list(self._all)
        self._jobs: dict[tuple[str, str], PoolJob] = {}
        self._queue: list[PoolJob] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._cache: OrderedDict[tuple[str, str], StatusAndBody] = OrderedDict()
        self._cached_bytes = 0
        self._seconds_each: dict[str, float] = {}  # that requests of a kind took of late, in the mean

    async def warm_up(self, kind: str, text: str) -> None:
        """Let every worker answer a request once, so that what is imported and read once is there."""
        answers = (asyncio.to_thread(worker.ask, kind, text, START_SECONDS) for worker in self._all)
        await asyncio.gather(*answers)
        await self.answer(kind, text)

    async def answer(self, kind: str, text: str) -> StatusAndBody:
        """Return status and body: cached, in progress, or computed now.

        Once everyone who waits for a request is cancelled, it is not begun, or its worker ends it after the
        present batch of candidates. Raises `Busy` if too many requests wait already, or for too long.
        """
        key = kind, text
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        if key not in self._jobs:
            wait = self._expected_wait(kind)
            if len(self._queue) >= self.waiting or wait > MOST_WAIT:
                raise Busy(wait)
            self._jobs[key] = PoolJob(kind, text, asyncio.get_running_loop().create_future())
            self._queue.append(self._jobs[key])
            self._begin()
        job = self._jobs[key]
        job.requesters += 1
        try:
            return await asyncio.shield(job.answered)
        finally:
            job.requesters -= 1
            if not job.requesters and not job.answered.done():
                self._abandon(job)

    def progress(self, text: str) -> tuple[int, int, int]:
        """Return steps done, steps in all, and candidates, of requests in progress about a question."""
        jobs = [job for job in self._jobs.values() if job.text == text]
        running = [job.worker.status for job in jobs if job.worker is not None]
        names = ("done", "total", "candidates")
        done, total, candidates = (sum(getattr(status, name) for status in running) for name in names)
        return done, total, candidates

    def _expected_wait(self, kind: str) -> float:
        """Return about how long a new request of a kind would wait for a worker [s]; quick ones go first."""
        ahead = [job.kind for job in self._queue if kind in SLOW or job.kind not in SLOW]
        return sum(self._seconds_each.get(one, 0.0) for one in ahead) / max(len(self._all), 1)

    def _begin(self) -> None:
        """Give waiting requests to idle workers, preferably to one that had the same request before."""
        first = self._all[0]
        for job in sorted(self._queue, key=lambda job: job.kind in SLOW):
            is_for_all = job.kind not in SLOW or len(self._all) == 1
            able = [worker for worker in self._idle if is_for_all or worker is not first]
            if not able:
                continue
            worker = min(able, key=lambda worker: (worker.last_text != job.text, worker is not first))
            self._idle.remove(worker)
            self._queue.remove(job)
            job.worker = worker
            worker.prepare()
            task = asyncio.create_task(self._work(worker, job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, worker: Worker, job: PoolJob) -> None:
        """Have a worker answer a request."""
        answer = KILLED
        begun = time.monotonic()
        try:
            answer = await asyncio.to_thread(worker.ask, job.kind, job.text, self.seconds)
        finally:
            seconds = time.monotonic() - begun
            mean = self._seconds_each.get(job.kind, seconds)
            self._seconds_each[job.kind] = mean + SHARE_OF_LAST * (seconds - mean)
            self._idle.append(worker)
            if self._jobs.get((job.kind, job.text)) is job:
                del self._jobs[job.kind, job.text]
            job.answered.set_result(answer)
        if answer[0] == 200:
            self._remember((job.kind, job.text), answer)
        self._begin()

    def _abandon(self, job: PoolJob) -> None:
        """Take a request that nobody waits for out of the queue, or have its worker end it."""
        del self._jobs[job.kind, job.text]  # whoever asks the same from now on begins anew
        if job.worker is None:
            self._queue.remove(job)
        else:
            job.worker.status.is_abandoned = True

    def _remember(self, key: tuple[str, str], answer: StatusAndBody) -> None:
        """Cache an answer, and drop the oldest while the cache is too large."""
        self._cache[key] = answer
        self._cached_bytes += len(key[1]) + len(answer[1])
        while self._cached_bytes > CACHE_BYTES:
            (_, text), (_, body) = self._cache.popitem(last=False)
            self._cached_bytes -= len(text) + len(body)

    def close(self) -> None:
        """End all workers."""
        for worker in self._all:
            worker.close()
