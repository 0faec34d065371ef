"""Worker processes that answer requests: a bounded number waits, each has a time limit, and equal questions are asked once."""

import asyncio
import multiprocessing
import os
from collections import OrderedDict
from multiprocessing.connection import Connection
from typing import Final

from traincast.explorer.limits import SECONDS, WAITING
from traincast.explorer.worker import READY, failure, work

Answered = tuple[int, bytes]
START_SECONDS: Final = 60.0  # in which a process has imported what it needs
KEPT: Final = 256  # answers that are kept
WORKERS: Final = max(1, min(8, os.cpu_count() or 1))


class Busy(Exception):
    """More requests wait than may."""


class Worker:
    """A process that answers one request at a time; one that takes too long is ended, and another takes its place."""

    def __init__(self) -> None:
        self.last = ""
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=work, args=(other,), daemon=True)
        self._process.start()
        self._ready = False
        other.close()

    def ask(self, kind: str, text: str, seconds: float) -> Answered:
        """The answer; called in a thread, since it waits."""
        self.last = text
        try:
            self._ready = self._ready or (self._pipe.poll(START_SECONDS) and self._pipe.recv() == READY)
            self._pipe.send((kind, text))
            if self._pipe.poll(seconds):
                answer: Answered = self._pipe.recv()
                return answer
            answer = (
                422,
                failure(f"this takes longer than {seconds:g} s: ask for fewer GPUs, another framework, or lock some knobs"),
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


class Pool:
    """Workers, what waits for them, and the last answers.

    Parameters
    ----------
    workers : int
        Processes.
    waiting : int
        Requests that may wait for one.
    seconds : float
        Time limit of each, once it is worked on [s].
    """

    def __init__(self, workers: int = WORKERS, waiting: int = WAITING, seconds: float = SECONDS):
        self.waiting, self.seconds = waiting, seconds
        self._idle = [Worker() for _ in range(workers)]
        self._all = tuple(self._idle)
        self._turn = asyncio.Semaphore(workers)
        self._under_way: dict[tuple[str, str], asyncio.Task[Answered]] = {}
        self._kept: OrderedDict[tuple[str, str], Answered] = OrderedDict()

    async def ready(self, kind: str, text: str) -> None:
        """Let every worker answer a request once, so that what is imported and read once is there."""
        await asyncio.gather(*(asyncio.to_thread(one.ask, kind, text, START_SECONDS) for one in self._all))
        await self.answer(kind, text)

    async def answer(self, kind: str, text: str) -> Answered:
        """Status and body: kept, under way already, or made now.

        Raises
        ------
        Busy
            If too many requests wait already.
        """
        key = kind, text
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._under_way:
            if len(self._under_way) >= self.waiting + len(self._all):
                raise Busy
            self._under_way[key] = asyncio.create_task(self._made(key))
        return await asyncio.shield(self._under_way[key])

    async def _made(self, key: tuple[str, str]) -> Answered:
        """An answer made by a worker, rather by one that had the same question before."""
        async with self._turn:
            worker = next((one for one in self._idle if one.last == key[1]), self._idle[0])
            self._idle.remove(worker)
            try:
                answer = await asyncio.to_thread(worker.ask, *key, self.seconds)
            finally:
                self._idle.append(worker)
                del self._under_way[key]
        if answer[0] == 200:
            self._kept[key] = answer
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return answer

    def close(self) -> None:
        """End all workers."""
        for worker in self._all:
            worker.end()
