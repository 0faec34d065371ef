"""Least times of the layouts of a search, computed for those that can matter to a question.

Every layout that fits has a lower bound on its time, and the time itself once a question has needed it. A
question says which time a layout must not exceed to matter, as far as times are known. Layouts whose bound
does not are timed, lowest bounds first, until none is left: the answer is that of timing all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from traincast.core import Bools, Column, Floats, Ints, Plan, Plans, distinct_values
from traincast.planner.space.evaluation import StrategyResult, chosen_plans, fastest_plans, least_times
from traincast.planner.space.search_space import Space, stack_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traincast.planner.space.evaluation import Evaluation

Value = TypeVar("Value", bound=np.generic)
# Candidates timed before the values to beat are looked at again: each round has twice as many, up to the last
FIRST_ROUND: Final = 1 << 12
LAST_ROUND: Final = 1 << 15


@dataclass(eq=False)
class LeastTimes:
    """Layouts that fit, of all outcomes of a search on one machine, and what is known of their least times.

    Rows are in the order of enumeration.
    """

    outcomes: Sequence[StrategyResult]
    outcome: Ints  # index of the outcome of each layout, shape (layouts,)
    layout: Ints  # row of the outcome's space
    memory: Floats  # [byte]
    seconds: Floats  # least time where `timed`, else a lower bound [s]
    timed: Bools
    place: Ints  # of each layout in the order of enumeration: numbers that ascend
    exhaustive: bool = False  # whether all were timed from the start
    reached: float = 0.0  # largest time that mattered to the last question [s]

    @classmethod
    def from_outcomes(
        cls,
        outcomes: Sequence[StrategyResult],
        exhaustive: bool = False,
        places: Sequence[Ints] | None = None,
    ) -> "LeastTimes":
        """Return the bounds of the layouts of outcomes; times if `exhaustive` or several jobs share them.

        `places` has the place of the layouts that fit of each outcome, if they are not enumerated in turn.
        """
        layouts = [outcome.fitting for outcome in outcomes]
        index = np.repeat(np.arange(len(outcomes)), [len(rows) for rows in layouts])
        layout = np.concatenate([np.zeros(0, np.int64), *layouts])
        memory = np.concatenate([np.zeros(0), *(outcome.memory for outcome in outcomes)])
        if exhaustive or any(len(outcome.space.gpus) > 1 for outcome in outcomes):
            least = [outcome.least_seconds for outcome in outcomes]
            timed = True
        else:
            least = least_times(_evaluations(outcomes), layouts, bound=True) if len(layout) else []
            timed = False
        seconds = np.concatenate([np.zeros(0), *least])
        known = np.full(len(layout), timed)
        place = np.arange(len(layout)) if places is None else np.concatenate([layout[:0], *places])
        return cls(outcomes, index, layout, memory, seconds, known, place, exhaustive)

    def join(self, more: "LeastTimes") -> "LeastTimes":
        """Return these layouts and others of the same search, with all that is known of either."""
        order = np.argsort(np.concatenate([self.place, more.place]))

        def both(mine: "NDArray[Value]", others: "NDArray[Value]") -> "NDArray[Value]":
            return np.concatenate([mine, others])[order]

        found = LeastTimes(
            [*self.outcomes, *more.outcomes],
            both(self.outcome, len(self.outcomes) + more.outcome),
            both(self.layout, more.layout),
            both(self.memory, more.memory),
            both(self.seconds, more.seconds),
            both(self.timed, more.timed),
            both(self.place, more.place),
        )
        found._fastest[:] = both(self._fastest, more._fastest)
        return found

    def up_to(self, limit: Callable[[Floats], Column]) -> Floats:
        """Time every layout whose time may be at most `limit`, and return the times known, else infinity [s].

        `limit` returns the largest time that matters, of all layouts or of each, from the times known so far
        (infinity where unknown). It must not rise when more are known.
        """
        size = FIRST_ROUND
        while True:
            known = np.where(self.timed, self.seconds, np.inf)
            most = limit(known)
            open_rows = np.flatnonzero(~self.timed & (self.seconds <= most))
            if not len(open_rows):
                self.reached = float(np.max(most, initial=0.0))
                return known
            nearest = open_rows[np.argsort(self.seconds[open_rows], kind="stable")]
            candidates = np.cumsum(self._candidates[nearest])
            self._time(np.sort(nearest[: 1 + np.searchsorted(candidates, size)]))
            size = min(2 * size, LAST_ROUND)

    def best(self, top: int, by_memory: bool = False, slowdown: float = np.inf) -> Ints:
        """Return the best layouts in order of time, memory (or the reverse) and enumeration.

        `top` are returned, fewer where others are slower than the best by more than the factor `slowdown`.
        """
        if by_memory:
            least = _smallest(self.memory, top)
            known = self.up_to(lambda known: np.where(self.memory <= least, np.inf, -np.inf))
            self.reached = np.inf
            pool = np.flatnonzero(self.memory <= least)
            first = self.memory[pool]
            second = known[pool]
        else:

            def limit(known: Floats) -> float:
                return min(_smallest(known, top), slowdown * _smallest(known, 1))

            known = self.up_to(limit)
            pool = np.flatnonzero((known <= limit(known)) & self.timed)
            first = known[pool]
            second = self.memory[pool]
        return np.asarray(pool[np.lexsort((second, first))[:top]])

    def within_share(self, share: float, most_memory: float = np.inf) -> Ints:
        """Return the layouts at most a share slower than the best, in order of time, memory and enumeration.

        Layouts that need more than `most_memory` [byte] do not count.
        """
        lean = self.memory <= most_memory

        def limit(known: Floats) -> Floats:
            return np.where(lean, (1 + share) * known[lean].min(initial=np.inf), -np.inf)

        known = self.up_to(limit)
        self.reached = (1 + share) * float(known[lean].min(initial=np.inf))
        pool = np.flatnonzero((known <= limit(known)) & self.timed)
        return np.asarray(pool[np.lexsort((self.memory[pool], known[pool]))])

    def figures(self, figure: Callable[[Space], Column]) -> Floats:
        """Return a figure of every layout, given that of all layouts of a space."""
        values = [
            np.broadcast_to(figure(outcome.space), len(outcome.space.layer_row))[outcome.fitting]
            for outcome in self.outcomes
        ]
        return self._of_rows(np.concatenate([np.zeros(0), *values]))

    def best_of(self, *groupings: Ints) -> list[Ints]:
        """Return the best layout of each group that has one, in order of the groups' numbers, from 0 on.

        Each grouping has the group of every layout.
        """
        sizes = [int(group.max(initial=-1)) + 1 for group in groupings]

        def least(known: Floats) -> Floats:
            most = np.full(len(known), -np.inf)
            for group, groups in zip(groupings, sizes, strict=True):
                of_group = np.full(groups, np.inf)
                np.minimum.at(of_group, group, known)
                most = np.maximum(most, of_group[group])
            return most

        for group in groupings:
            by_group = np.lexsort((self.seconds, group))
            lowest = by_group[np.unique(group[by_group], return_index=True)[1]]
            # no group waits until those before it are timed
            self._time(np.sort(lowest[~self.timed[lowest]]))
        known = self.up_to(least)
        best = []
        for group in groupings:
            order = np.lexsort((self.memory, known, group))
            _, first = np.unique(group[order], return_index=True)
            best.append(np.asarray(order[first]))
        return best

    def leanest_below(self, limit: float) -> Ints:
        """Return the one layout of the least memory, the faster of ties, whose time is below a limit [s]."""

        def matters(known: Floats) -> Floats:
            least = self.memory[known < limit].min(initial=np.inf)
            return np.where(self.memory <= least, limit, -np.inf)

        faster = np.flatnonzero(self.up_to(matters) < limit)
        self.reached = limit
        return np.asarray(faster[np.lexsort((self.seconds[faster], self.memory[faster]))[:1]])

    def front(self, share: float = np.inf, most_memory: float = np.inf) -> Ints:
        """Return the layouts that no other beats in both time and memory, fastest first.

        Those that need at most `most_memory` [byte] count, and of these the ones at most a share slower than
        the best.
        """
        lean = self.memory <= most_memory

        def slowest(known: Floats) -> float:
            return (1 + share) * float(known[lean].min(initial=np.inf))

        may_be = self.seconds <= slowest(np.where(self.timed, self.seconds, np.inf))
        pool = np.flatnonzero(lean & may_be)
        by_memory = pool[np.argsort(self.memory[pool], kind="stable")]
        # the last layout that needs no more memory, in this order
        last = np.searchsorted(self.memory[by_memory], self.memory[pool], side="right") - 1

        def limit(known: Floats) -> Floats:
            most = np.full(len(known), -np.inf)
            most[pool] = np.minimum(np.minimum.accumulate(known[by_memory])[last], slowest(known))
            return most

        known = self.up_to(limit)
        self.reached = slowest(known)
        order = pool[np.lexsort((known[pool], self.memory[pool]))]  # stable: ties stay as enumerated
        faster = known[order] < np.minimum.accumulate(np.r_[np.inf, known[order][:-1]])
        front = order[faster & (known[order] <= limit(known)[order])]
        return np.asarray(front[::-1])

    def exact(self, rows: Ints) -> Floats:
        """Return the least times of some rows, ascending [s]."""
        self._time(rows[~self.timed[rows]])
        return np.asarray(self.seconds[rows])

    def all(self) -> Floats:
        """Return the least time of every layout [s]."""
        return self.exact(np.arange(len(self.seconds)))

    def plans(self, rows: Ints) -> list[Plan]:
        """Return the fastest plan of each of some rows."""
        missing = np.array([row for row in rows.tolist() if row not in self._plans], np.int64)
        for index in distinct_values(self.outcome[missing]):
            of_outcome = missing[self.outcome[missing] == index]
            self._plans |= zip(of_outcome.tolist(), self.columns(of_outcome).rows(), strict=True)
        return [self._plans[row] for row in rows.tolist()]

    def columns(self, rows: Ints) -> Plans:
        """Return the fastest plan of each of some rows of one batch as columns."""
        pieces = [np.flatnonzero(self.outcome[rows] == i) for i in distinct_values(self.outcome[rows])]
        together = stack_columns([self._columns_of(rows[piece]) for piece in pieces], list(map(len, pieces)))
        return together if len(pieces) == 1 else together.take(np.argsort(np.concatenate(pieces)))

    def _columns_of(self, rows: Ints) -> Plans:
        """Return the fastest plan of each of some rows of one outcome as columns."""
        outcome = self.outcomes[self.outcome[rows[0]]]
        if np.all(self._fastest[rows] >= 0):
            return chosen_plans(outcome.space, self.layout[rows], self._fastest[rows])
        return fastest_plans(outcome, self.layout[rows])

    @cached_property
    def _fastest(self) -> Ints:
        """Number of the fastest candidate of each layout that has been timed in a round, else -1."""
        return np.full(len(self.layout), -1)

    @cached_property
    def _plans(self) -> dict[int, Plan]:
        """Fastest plans found so far, by row."""
        return {}

    @property
    def candidates_timed(self) -> int:
        """Number of candidates that have been timed in full."""
        return int(self._candidates[self.timed].sum())

    @cached_property
    def _candidates(self) -> Ints:
        """Candidates of each layout."""
        counts = [outcome.space.counts[outcome.fitting] for outcome in self.outcomes]
        return self._of_rows(np.concatenate([np.zeros(0, np.int64), *counts]))

    def _of_rows(self, of_outcomes: "NDArray[Value]") -> "NDArray[Value]":
        """Return values of the layouts of one outcome after the other in the order of rows."""
        values = np.empty_like(of_outcomes)
        values[np.argsort(self.outcome, kind="stable")] = of_outcomes
        return values

    def _time(self, rows: Ints) -> None:
        """Replace the bounds of rows, ascending, by times."""
        if not len(rows):
            return
        rows = rows[np.argsort(self.outcome[rows], kind="stable")]
        indices, starts = np.unique(self.outcome[rows], return_index=True)
        outcomes = [self.outcomes[index] for index in indices]
        layouts = np.split(self.layout[rows], starts[1:])
        numbers = [np.empty(len(of_outcome), np.int64) for of_outcome in layouts]
        seconds = least_times(_evaluations(outcomes), layouts, fastest=numbers)
        self.seconds[rows], self._fastest[rows] = np.concatenate(seconds), np.concatenate(numbers)
        self.timed[rows] = True


def _evaluations(outcomes: Sequence[StrategyResult]) -> "list[Evaluation]":
    return [outcome.evaluation for outcome in outcomes]


def _smallest(values: Floats, n: int) -> float:
    """Return the n-th smallest value, infinity where there are fewer."""
    return float(np.partition(values, n - 1)[n - 1]) if n <= len(values) else np.inf
