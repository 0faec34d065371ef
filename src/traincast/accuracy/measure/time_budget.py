"""How the time is spent: every family its share, coarse sizes first, finer ones and repetitions with what is left."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from traincast.accuracy.measure.tasks import Family, Task

FAMILY_SHARES: Final[dict[Family, float]] = {
    "products": 0.30,
    "attention": 0.15,
    "memory": 0.15,
    "dispatch": 0.05,
    "copies": 0.05,
    "collectives": 0.30,
}  # of the time, of families that there are
MAX_VISITS: Final = 4  # most visits of a task
VISITS_PER_FAMILY: Final = 60.0  # samples of a visit take such a part of the family's time
SHORTEST, LONGEST = 0.01, 2.0  # a visit's samples [s]


class TimeBudget:
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
        self._clock, self._begin, self._seconds = clock, clock(), seconds
        self._queues: dict[Family, list[Task]] = {}
        for task in tasks:
            if task.key not in known:
                self._queues.setdefault(task.family, []).append(task)
        whole = sum(FAMILY_SHARES[one] for one in self._queues) or 1.0
        self._shares = {one: FAMILY_SHARES[one] / whole for one in self._queues}
        self._spent = dict.fromkeys(self._queues, 0.0)
        self._costs: dict[Task, float] = {}
        self._visits: dict[Task, int] = {}
        self._since = self._begin

    @property
    def left(self) -> float:
        """Time that is left [s]."""
        return self._seconds - (self._clock() - self._begin)

    def samples_seconds(self, task: Task) -> float:
        """Time for the samples of a visit [s]."""
        return min(max(self._shares[task.family] * self._seconds / VISITS_PER_FAMILY, SHORTEST), LONGEST)

    def next(self) -> Task | None:
        """The task whose turn it is; None at the end.

        Of the family that is furthest behind its share, the first task that was not longer than what is left when it was last
        measured. Each family has a turn, however short the time.
        """
        self._since = self._clock()
        for family in sorted(self._queues, key=lambda one: self._spent[one] / self._shares[one]):
            queue = self._queues[family]
            while queue and self._spent[family] and self._costs.get(queue[0], 2 * self.samples_seconds(queue[0])) > self.left:
                queue.pop(0)
            if queue:
                return queue[0]
        return None

    def took(self, task: Task, failed: bool = False) -> None:
        """Take note that a task is done, until its next visit."""
        seconds = self._clock() - self._since
        self._costs[task], self._visits[task] = seconds, self._visits.get(task, 0) + 1
        self._spent[task.family] += seconds
        queue = self._queues[task.family]
        queue.remove(task)
        if not failed and self._visits[task] < MAX_VISITS:
            queue.append(task)
