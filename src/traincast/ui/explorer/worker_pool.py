"""Worker processes that answer requests: bounded queue, time limits, and equal requests computed once."""

import asyncio
import multiprocessing
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final

from traincast.ui.explorer.limits import MAX_WAITING, SECONDS
from traincast.ui.explorer.worker import READY, failure, work

StatusAndBody = tuple[int, bytes]
HasLeft = Callable[[], Awaitable[bool]]
SLOW: Final = ("explain", "scaling", "timeline")
START_SECONDS: Final = 60.0  # time limit for the imports of a new process
KEPT: Final = 32 << 20  # size of the cache of answers with their requests [byte]
WORKERS: Final = max(2, min(8, os.cpu_count() or 1))


async def never_leaves() -> bool:
    """Return False: a requester that never leaves."""
    return False


class Busy(Exception):
    """The queue of requests is full."""


class Worker:
    """A process that answers one request at a time; a process that exceeds its time limit is killed and replaced."""

    def __init__(self) -> None:
        self.last = ""
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, worker_end = context.Pipe()
        self._process = context.Process(target=work, args=(worker_end,), daemon=True)
        self._process.start()
        self._ready = False
        worker_end.close()

    def ask(self, kind: str, text: str, seconds: float) -> StatusAndBody:
        """Return the answer; blocks, so it is called in a thread."""
        self.last = text
        try:
            self._ready = self._ready or (self._pipe.poll(START_SECONDS) and self._pipe.recv() == READY)
            if self._ready:
                self._pipe.send((kind, text))
            if self._ready and self._pipe.poll(seconds):
                answer: StatusAndBody = self._pipe.recv()
                return answer
            answer = (
                422,
                failure(
                    f"this takes longer than {seconds:g} s: ask for fewer GPUs, another framework, or lock some knobs"
                ),
            )
        except (EOFError, OSError):
            answer = 503, failure("the search was ended by the system; it may have needed too much memory")
        self.end()
        self._start()
        return answer

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


@dataclass(eq=False)
class PoolJob:
    """A request in the queue, and its requesters."""

    kind: str
    text: str
    answered: "asyncio.Future[StatusAndBody]"
    gone: list[HasLeft] = field(default_factory=list)  # one callback per requester

    async def is_wanted(self) -> bool:
        """Return whether any requester still waits."""
        return not all([await gone() for gone in self.gone])


class Pool:
    """A pool of workers with a queue and a cache of the last answers.

    The first worker is for quick questions only: a slider that moves does not wait behind the explanation of its last position.

    Parameters
    ----------
    workers : int
        Processes.
    waiting : int
        Requests that may wait for one.
    seconds : float
        Time limit of each, once it is worked on [s].
    """

    def __init__(self, workers: int = WORKERS, waiting: int = MAX_WAITING, seconds: float = SECONDS):
        self.waiting, self.seconds = waiting, seconds
        self._all = tuple(Worker() for _ in range(workers))
        self._idle = list(self._all)
        self._jobs: dict[tuple[str, str], PoolJob] = {}
        self._queue: list[PoolJob] = []
        self._working: set[asyncio.Task[None]] = set()
        self._kept: OrderedDict[tuple[str, str], StatusAndBody] = OrderedDict()
        self._size = 0  # of the cached answers with their requests [byte]

    async def ready(self, kind: str, text: str) -> None:
        """Let every worker answer a request once, so that what is imported and read once is there."""
        await asyncio.gather(
            *(asyncio.to_thread(worker.ask, kind, text, START_SECONDS) for worker in self._all)
        )
        await self.answer(kind, text)

    async def answer(self, kind: str, text: str, gone: HasLeft = never_leaves) -> StatusAndBody:
        """Return status and body: cached, already in progress, or computed now.

        Parameters
        ----------
        kind, text : str
            The request.
        gone : callable
            Tells whether who asks has left; what nobody waits for is not begun.

        Raises
        ------
        Busy
            If too many requests wait already.
        """
        key = kind, text
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._jobs:
            if len(self._queue) >= self.waiting:
                raise Busy
            self._jobs[key] = PoolJob(kind, text, asyncio.get_running_loop().create_future())
            self._queue.append(self._jobs[key])
        job = self._jobs[key]
        job.gone.append(gone)
        self._begin()
        return await asyncio.shield(job.answered)

    def _begin(self) -> None:
        """Give waiting questions to idle workers, each rather to one that had the same question before."""
        for job in sorted(self._queue, key=lambda job: job.kind in SLOW):
            able = [
                idle_worker
                for idle_worker in self._idle
                if job.kind not in SLOW or idle_worker is not self._all[0] or len(self._all) == 1
            ]
            if able:
                worker = min(
                    able,
                    key=lambda idle_worker: (idle_worker.last != job.text, idle_worker is not self._all[0]),
                )
                self._idle.remove(worker)
                self._queue.remove(job)
                task = asyncio.create_task(self._work(worker, job))
                self._working.add(task)
                task.add_done_callback(self._working.discard)

    async def _work(self, worker: Worker, job: PoolJob) -> None:
        """Have a worker answer a request, unless nobody waits for it any more."""
        answer = 503, failure("nobody waited for the answer any more")
        try:
            if await job.is_wanted():
                answer = await asyncio.to_thread(worker.ask, job.kind, job.text, self.seconds)
        finally:
            self._idle.append(worker)
            del self._jobs[job.kind, job.text]
            job.answered.set_result(answer)
        if answer[0] == 200:
            self._keep((job.kind, job.text), answer)
        self._begin()

    def _keep(self, key: tuple[str, str], answer: StatusAndBody) -> None:
        """Cache an answer, and drop the oldest while the cache is too large."""
        self._kept[key] = answer
        self._size += len(key[1]) + len(answer[1])
        while self._size > KEPT:
            (_, text), (_, body) = self._kept.popitem(last=False)
            self._size -= len(text) + len(body)

    def close(self) -> None:
        """End all workers."""
        for worker in self._all:
            worker.end()
