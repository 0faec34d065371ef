"""Time budget of a measurement: a share for each family, coarse sizes first, then finer, then repetitions."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from traincast.accuracy.measure.tasks import Family, Task

FAMILY_SHARES: Final[dict[Family, float]] = {  # of the time; rescaled to the families present
    "products": 0.30, "attention": 0.15, "memory": 0.15, "dispatch": 0.05, "copies": 0.05,
    "collectives": 0.30,
}  # fmt: skip
MAX_VISITS: Final = 4  # of a task
VISITS_PER_FAMILY: Final = 60.0  # a visit gets the family's time divided by this
MIN_VISIT_SECONDS, MAX_VISIT_SECONDS = 0.01, 2.0  # time for the samples of a visit [s]
MIN_SAMPLES, MAX_SAMPLES = 3, 60  # of a visit
MIN_CALL_SECONDS: Final = 1e-9  # what a clock may return for a call of nothing


class TimeBudget:
    """Scheduler that chooses the next task; tasks with keys in `known` are done; `clock` returns seconds."""

    def __init__(
        self,
        tasks: Sequence[Task],
        known: Collection[str],
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._clock, self._seconds, self._end = clock, seconds, clock() + seconds
        self._queues: dict[Family, list[Task]] = {}
        for task in tasks:
            if task.key not in known:
                self._queues.setdefault(task.family, []).append(task)
        total = sum(FAMILY_SHARES[family] for family in self._queues) or 1.0
        self._shares = {family: FAMILY_SHARES[family] / total for family in self._queues}
        self._spent = dict.fromkeys(self._queues, 0.0)
        self._costs: dict[Task, float] = {}
        self._visits: dict[Task, int] = {}
        self._since = clock()

    @property
    def left(self) -> float:
        """Time left [s]."""
        return self._end - self._clock()

    def samples_seconds(self, task: Task) -> float:
        """Return the time for the samples of a visit [s]."""
        seconds = self._shares[task.family] * self._seconds / VISITS_PER_FAMILY
        return min(max(seconds, MIN_VISIT_SECONDS), MAX_VISIT_SECONDS)

    def next(self) -> Task | None:
        """Return the next task; None at the end.

        It is the first task of the family furthest behind its share that fits into the time left, by the
        duration of its last visit. Each family gets one turn, however short the time.
        """
        self._since = self._clock()
        for family in sorted(self._queues, key=lambda family: self._spent[family] / self._shares[family]):
            queue = self._queues[family]
            while queue and self._spent[family] and self._expected_seconds(queue[0]) > self.left:
                queue.pop(0)
            if queue:
                return queue[0]
        return None

    def _expected_seconds(self, task: Task) -> float:
        """Return the time of a visit: that of the last one, or twice the time of its samples [s]."""
        return self._costs.get(task, 2 * self.samples_seconds(task))

    def record(self, task: Task, failed: bool = False) -> None:
        """Record a finished visit, and queue the task for its next one unless it failed."""
        seconds = self._clock() - self._since
        self._costs[task], self._visits[task] = seconds, self._visits.get(task, 0) + 1
        self._spent[task.family] += seconds
        queue = self._queues[task.family]
        queue.remove(task)
        if not failed and self._visits[task] < MAX_VISITS:
            queue.append(task)


def sample_counts(call_seconds: float, seconds: float, shortest: float) -> tuple[int, int]:
    """Return how many samples of how many calls fill a time; a sample takes at least `shortest` [s]."""
    call_seconds = max(call_seconds, MIN_CALL_SECONDS)
    calls = max(1, round(shortest / call_seconds))
    return min(max(int(seconds / (calls * call_seconds)), MIN_SAMPLES), MAX_SAMPLES), calls
