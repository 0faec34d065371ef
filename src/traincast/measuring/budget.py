"""How the time is spent: every family its share, coarse sizes first, finer ones and repetitions with what is left."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from traincast.measuring.tasks import SHARES, Family, Task

VISITS: Final = 4  # most visits of a task
RESERVE: Final = 0.02  # of the time, for what follows
SLICES: Final = 60.0  # a visit takes about such a part of its family's time


class Budget:
    """Chooses what is measured next.

    Parameters
    ----------
    tasks : sequence of Task
        What can be measured, in each family what tells most first.
    known : collection of str
        Keys of tasks that are not measured again.
    seconds : float
        Time there is [s].
    clock : callable
        Tells the time [s].
    """

    def __init__(
        self, tasks: Sequence[Task], known: Collection[str], seconds: float, clock: Callable[[], float] = time.perf_counter
    ):
        self.clock, self.begin = clock, clock()
        self.seconds = seconds * (1 - RESERVE)
        self.queues: dict[Family, list[Task]] = {}
        for task in tasks:
            if task.key not in known:
                self.queues.setdefault(task.family, []).append(task)
        whole = sum(SHARES[one] for one in self.queues) or 1.0
        self.shares = {one: SHARES[one] / whole for one in self.queues}
        self.spent = dict.fromkeys(self.queues, 0.0)
        self.costs: dict[str, float] = {}
        self.visits: dict[str, int] = {}
        self.since = self.begin
        self.total = seconds

    @property
    def left(self) -> float:
        """Time that is left [s]."""
        return self.seconds - (self.clock() - self.begin)

    def slice(self, task: Task) -> float:
        """Time for the samples of a visit [s]."""
        share = self.shares.get(task.family, 1.0) * self.seconds
        return min(max(share / SLICES, 0.02), 2.0)

    def next(self) -> Task | None:
        """The task whose turn it is: of the family that is furthest behind its share, the first that still fits; None at the end."""
        self.since = self.clock()
        for family in sorted(
            (one for one, queue in self.queues.items() if queue), key=lambda one: self.spent[one] / self.shares[one]
        ):
            queue = self.queues[family]
            while queue:
                if self.costs.get(queue[0].key, self.slice(queue[0])) < self.left:
                    return queue[0]
                queue.pop(0)
        return None

    def took(self, task: Task, failed: bool = False) -> None:
        """Take note that a task is done, until its next visit."""
        now = self.clock()
        self.costs[task.key] = now - self.since
        self.spent[task.family] += now - self.since
        queue = self.queues[task.family]
        queue.pop(0)
        self.visits[task.key] = self.visits.get(task.key, 0) + 1
        if not failed and self.visits[task.key] < VISITS:
            queue.append(task)
