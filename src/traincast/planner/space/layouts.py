"""Layouts of a search as its answers ask for them: all evaluated, or as few as an answer needs.

`AllLayouts` evaluates every one. `FewLayouts` evaluates those that can matter to a question, and counts what
fits on tables. The answers are the same.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from traincast.core import CAPACITY_PATH, Floats, Ints, distinct_values
from traincast.planner.space.enumeration import space_of
from traincast.planner.space.evaluation import StrategyResult, evaluate_all
from traincast.planner.space.fits_in_memory import Census, Figure, Searched
from traincast.planner.space.layout_questions import Answer, LayoutQuestion, Layouts
from traincast.planner.space.least_times import LeastTimes
from traincast.planner.space.search_space import Progress, Space, progress_after, ragged_ranges
from traincast.planner.space.shortlist import MOST_LAYOUTS, Evaluated, Shortlist, TimeBounds
from traincast.planner.space.wanted_lists import BestOf, Front, OnePass

FORESIGHT: Final = 0.025  # for the question which plans are about as fast as the best
FASTEST_SAMPLED: Final = 100  # layouts that a sample has besides


class AllLayouts(Layouts):
    """Layouts that are all evaluated, and timed if `exhaustive`."""

    def __init__(self, outcomes: Sequence[StrategyResult], exhaustive: bool):
        self._outcomes = outcomes
        self._times = LeastTimes.from_outcomes(outcomes, exhaustive)

    @property
    def feasible(self) -> int:
        """Number of candidates that fit."""
        return sum(outcome.feasible for outcome in self._outcomes)

    @property
    def times(self) -> LeastTimes:
        """Times known so far, of the layouts evaluated so far."""
        return self._times

    def answer(self, question: LayoutQuestion) -> Answer:
        """Return the layouts that answer a question, and the times whose rows they are."""
        return self.times, question(self.times)

    def best_of(self, *figures: Figure) -> tuple[LeastTimes, list[dict[int, int]]]:
        """Return the row of the best layout with each value of figures."""
        return self.times, _best_of(self.times, figures)

    def front(self) -> Answer:
        """Return the layouts that no other beats in both time and memory, fastest first."""
        return self.times, self.times.front()

    def sample(self, most: int) -> LeastTimes:
        """Return the times of all layouts that fit."""
        return self.times

    def least_memory(self, figure: Figure) -> dict[int, float]:
        """Return the least memory of the layouts with each value of a figure [byte]."""
        least: dict[int, float] = {}
        for outcome in self._outcomes:
            space = outcome.space
            rows = outcome.layouts
            values = np.broadcast_to(figure(space), len(space.layer_row))[rows]
            memory = outcome.evaluation.memory[rows]
            for value in np.unique(values).tolist():
                of_value = float(memory[values == value].min())
                least[int(value)] = min(of_value, least.get(int(value), np.inf))
        return least

    def leanest(self) -> Floats:
        """Return the least memory of each batch [byte]."""
        rows = (outcome.evaluation.memory[outcome.layouts] for outcome in self._outcomes)
        return np.array([memory.min(initial=np.inf) for memory in rows])

    def excluded_by_memory(self, batches: Sequence[int], limit: float) -> dict[str, Answer]:
        """Return what memory excludes of batches."""
        outcomes = [self._outcomes[index] for index in batches]
        capacity = float(outcomes[0].system.accelerator.visible_bytes)
        unlimited = outcomes[0].system.with_figures({CAPACITY_PATH: np.inf})
        spaces = tuple(_of_one_job(outcome) for outcome in outcomes)
        evaluations = evaluate_all(spaces, unlimited, outcomes[0].evaluation.assumptions, capacity)
        times = LeastTimes.from_outcomes([one.outcomes()[0] for one in evaluations], self.times.exhaustive)
        return {name: (times, question(times)) for name, question in _questions(limit).items()}


class FewLayouts(Layouts):
    """Layouts of all batches on one machine, of which as few are evaluated as answers need."""

    def __init__(self, searched: Searched):
        self._searched = searched
        self._census: Census | None = None
        self._known: Evaluated | None = None
        self._best: dict[tuple[Figure, ...], tuple[LeastTimes, list[dict[int, int]]]] = {}
        self._front: Answer | None = None

    def census(self, progress: Progress | None = None) -> Census:
        """Return what fits, counted once."""
        if self._census is None:
            self._census = Census(self._searched, progress)
        return self._census

    def evaluate(self, progress: Progress | None = None) -> Evaluated:
        """Return the layouts that may fit, evaluated as far as needed."""
        if self._known is None:
            self._known = Evaluated(TimeBounds(self._searched, self.census().may_fit, progress))
        return self._known

    def prepare(self, progress: Progress | None = None) -> None:
        """Count what fits, and bound the times of what may; as many steps as batches for each."""
        batches = len(self._searched.batches)
        self.census(progress_after(progress, 0, 2 * batches))
        self.evaluate(progress_after(progress, batches, 2 * batches))

    @property
    def feasible(self) -> int:
        """Number of candidates that fit."""
        return self.census().candidates

    @property
    def times(self) -> LeastTimes:
        """Times known so far, of the layouts evaluated so far."""
        return self.evaluate().times

    def answer(self, question: LayoutQuestion) -> Answer:
        """Return the layouts that answer a question, and the times whose rows they are."""
        return self._shortlist.answer(question)

    def find_together(self, *figures: Figure, front: bool = False) -> None:
        """Find the lists of `best_of` and `front` in one pass, those that are not known yet."""
        best = [BestOf(figures)] if figures and figures not in self._best else []
        of_front = [Front()] if front and self._front is None else []
        if not best and not of_front:
            return
        times = OnePass(self.evaluate(), self.census()).find([*best, *of_front])
        for one in best:
            self._best[figures] = times, one.best
        for list_ in of_front:
            self._front = times, list_.rows

    @cached_property
    def _shortlist(self) -> Shortlist:
        """Layouts that may fit."""
        return Shortlist(self.evaluate(), self.census().may_fit, foresight=FORESIGHT)

    def best_of(self, *figures: Figure) -> tuple[LeastTimes, list[dict[int, int]]]:
        """Return the row of the best layout with each value of figures."""
        self.find_together(*figures)
        times, best = self._best[figures]
        return times, best

    def front(self) -> Answer:
        """Return the layouts that no other beats in both time and memory, fastest first."""
        if self._front is None:
            self.find_together(front=True)
        assert self._front is not None
        return self._front

    def sample(self, most: int) -> LeastTimes:
        """Return the times of a sample of about `most` layouts that may fit, and of the fastest.

        It has rows at even distances in the order of enumeration, whatever was evaluated before.
        """
        kept = self.census().may_fit
        outlines = self._searched.ladders
        number = {index: rungs.high - rungs.low for index, rungs in kept.items()}
        every = sum(int(of_batch.sum()) for of_batch in number.values())
        step = max(every // most, 1)
        before = 0
        rows = dict[int, Ints]()
        for index, rungs in kept.items():
            outline = outlines[self._searched.batches[index].shape]
            first = outline.first[:-1] + rungs.low
            ladders = np.arange(len(outline.size))
            rows[index] = ragged_ranges(first, number[index], ladders)[-before % step :: step]
            before += int(number[index].sum())
        times, fastest = self.answer(lambda times: times.best(FASTEST_SAMPLED))
        batch, place = np.divmod(times.place[fastest], MOST_LAYOUTS)
        for index in distinct_values(batch).tolist():
            outline = outlines[self._searched.batches[index].shape]
            rows[index] = np.union1d(rows[index], outline.rows_at(place[batch == index]))
        sampled = Evaluated(self.evaluate().bounds)
        sampled.add(rows)
        return sampled.times

    def least_memory(self, figure: Figure) -> dict[int, float]:
        """Return the least memory of the layouts with each value of a figure [byte]."""
        return {int(value): least for value, least in self.census().least_memory(figure).items()}

    def leanest(self) -> Floats:
        """Return the least memory of each batch [byte]."""
        return np.array([self.census().least_memory_of(i) for i in range(len(self._searched.batches))])

    def excluded_by_memory(self, batches: Sequence[int], limit: float) -> dict[str, Answer]:
        """Return what memory excludes of batches."""
        census = self.census()
        over = {index: census.fittings[index].may_not for index in batches}
        nearest = {index: census.nearest(index) for index in batches}
        bounds = TimeBounds(self._searched, over)
        beyond = Evaluated(bounds, capacity=np.inf, above=self._searched.capacity)
        lists = dict.fromkeys(("faster", "unlimited"), Shortlist(beyond, over))
        lists["miss"] = Shortlist(beyond, nearest)
        return {name: lists[name].answer(question) for name, question in _questions(limit).items()}


def _best_of(times: LeastTimes, figures: Sequence[Figure]) -> list[dict[int, int]]:
    """Return the row of the best layout with each value of figures."""
    of_figures = [np.unique(times.figures(figure), return_inverse=True) for figure in figures]
    best = times.best_of(*(group for _, group in of_figures))
    return [
        dict(zip(map(int, values), rows.tolist(), strict=True))
        for (values, _), rows in zip(of_figures, best, strict=True)
    ]


def _questions(limit: float) -> dict[str, LayoutQuestion]:
    """Return the questions about layouts that memory excludes, given the time that matters [s]."""

    def fastest(times: LeastTimes) -> Ints:
        rows = times.best(1)
        times.reached = min(times.reached, limit)
        return rows[times.seconds[rows] < limit]

    return {
        "miss": lambda times: times.best(1, by_memory=True),
        "faster": lambda times: times.leanest_below(limit),
        "unlimited": fastest,
    }


def _of_one_job(outcome: StrategyResult) -> Space:
    """Return the space of an outcome, without other numbers of GPUs."""
    space = outcome.space
    return (
        space
        if len(space.gpus) == 1
        else space_of(space.model, space.gbs, outcome.system, space.batch, outcome.gpus)
    )
