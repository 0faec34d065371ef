"""Lists that are wanted of a large search besides its best plans, found in one pass over its layouts.

A list is the best layout of each value of a figure, or the Pareto front of time and memory. It has a
threshold for each layout: a time, as far as times are known, above which the layout cannot be on the list.
The pass bounds the times of layouts (`TimeBounds`), and evaluates those with a bound of at most the threshold
of some list, in few rounds: the nearest of each group of layouts first, so that the thresholds come down
before the others are looked at. No layout is evaluated twice, and a layout that only the front wants is not
evaluated if it needs more memory than a faster plan that is known.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from traincast.core.columns import distinct_values, number_values
from traincast.core.quantities import Bools, Floats, Ints
from traincast.planner.space.fits_in_memory import Census, Figure
from traincast.planner.space.least_times import LeastTimes
from traincast.planner.space.search_space import Rungs, Space
from traincast.planner.space.shortlist import MOST_LAYOUTS, AlikeBatches, Evaluated, TimeBounds

EVERY: Final = 1 << 40
# Rows of each group that each round bounds batch by batch, and layouts that it evaluates, at most
ROUNDS: Final = ((32, 2), (256, 16), (1024, 128), (EVERY, EVERY))
ROWS_AT_ONCE: Final = 1 << 13  # evaluated at once, so that their costs take little memory
ROWS_WEIGHED_AT_ONCE: Final = 1 << 15  # of which only the memory is computed
MOST_VALUES: Final = 1 << 16  # of a figure
MEMORY_STEP: Final = 1.1  # ratio of memory between groups of the layouts of a front


class Ladders(NamedTuple):
    """Ladders of layouts of a batch, or of batches that are alike."""

    space: Space  # of the first row of each
    memory: Floats  # that the leanest layout of each needs at least [byte]


class WantedList(ABC):
    """A list that is wanted of a search."""

    smallest_first = False  # whether ladders begin with the smallest micro-batch, until every row is wanted

    @abstractmethod
    def group(self, ladders: Ladders) -> Floats:
        """Return the group of each ladder: the layouts of each that are nearest are evaluated first."""

    @abstractmethod
    def find(self, times: LeastTimes) -> None:
        """Find the list among the layouts evaluated so far, of which it times those that matter."""

    @abstractmethod
    def threshold(self, ladders: Ladders) -> Floats:
        """Return the largest time of each ladder's layouts with which one may still be on the list [s]."""

    @abstractmethod
    def may_have(self, times: LeastTimes) -> Bools:
        """Return which layouts may be on the list, as far as times and bounds are known."""

    @abstractmethod
    def most_memory(self, seconds: Floats) -> Floats:
        """Return how much memory a layout of a time can need and still be on the list [byte]."""


class BestOf(WantedList):
    """The best layouts with each value of figures."""

    def __init__(self, figures: Sequence[Figure]):
        self.figures = figures
        self.best: list[dict[int, int]] = []  # row by value, of each figure
        self._seconds: list[dict[float, float]] = [{} for _ in figures]  # time by value [s]
        self._thresholds: dict[Space, Floats] = {}  # of ladders, which batches of one shape share

    def group(self, ladders: Ladders) -> Floats:
        """Return the combination of values of each ladder."""
        group: Floats = np.zeros(len(ladders.memory))
        for figure in self.figures:
            group = group * MOST_VALUES + figure(ladders.space)
        return group

    def find(self, times: LeastTimes) -> None:
        """Find the best of each value."""
        of_figures = [np.unique(times.figures(figure), return_inverse=True) for figure in self.figures]
        best = times.best_of(*(group for _, group in of_figures))
        self.best = []
        self._seconds = []
        self._thresholds.clear()
        for (values, _), rows in zip(of_figures, best, strict=True):
            self.best.append(dict(zip(map(int, values), rows.tolist(), strict=True)))
            self._seconds.append(dict(zip(values.tolist(), times.seconds[rows].tolist(), strict=True)))

    def threshold(self, ladders: Ladders) -> Floats:
        """Return the best time of any of the values of each ladder, the longest of these [s]."""
        if ladders.space not in self._thresholds:
            ladder = np.shape(ladders.memory)
            values = [np.broadcast_to(figure(ladders.space), ladder) for figure in self.figures]
            self._thresholds[ladders.space] = self._of_values(values)
        return self._thresholds[ladders.space]

    def _of_values(self, values: Sequence[Floats]) -> Floats:
        """Return the best time of any of several values, the longest of these [s]."""
        most: Floats = np.zeros(len(values[0]))
        for of_figure, seconds in zip(values, self._seconds, strict=True):
            distinct, group = number_values(of_figure)
            of_distinct = np.array([seconds.get(value, np.inf) for value in distinct.tolist()])
            most = np.maximum(most, of_distinct[group])
        return most

    def may_have(self, times: LeastTimes) -> Bools:
        """Return which layouts may be the best of a value."""
        return times.seconds <= self._of_values([times.figures(figure) for figure in self.figures])

    def most_memory(self, seconds: Floats) -> Floats:
        """Return no limit: the best layout may need all memory [byte]."""
        return np.full(len(seconds), np.inf)


class Front(WantedList):
    """The layouts that no other beats in both time and memory."""

    smallest_first = True  # as its memory is known

    def __init__(self) -> None:
        self.rows: Ints = np.zeros(0, np.int64)  # fastest first
        self._seconds: Floats = np.zeros(0)
        self._memory: Floats = np.zeros(0)

    def group(self, ladders: Ladders) -> Floats:
        """Return the interval of memory of each ladder."""
        return np.asarray(np.floor(np.log(np.maximum(ladders.memory, 1.0)) / np.log(MEMORY_STEP)))

    def find(self, times: LeastTimes) -> None:
        """Find the front."""
        self.rows = times.front()
        self._seconds = times.seconds[self.rows]
        self._memory = times.memory[self.rows]

    def threshold(self, ladders: Ladders) -> Floats:
        """Return the best time of a layout that needs no more memory than each ladder [s]."""
        return self._fastest(ladders.memory)

    def _fastest(self, memory: Floats) -> Floats:
        """Return the best time of a layout that needs no more memory than each [s]."""
        place = np.searchsorted(self._memory[::-1], memory, side="right")
        return np.append(np.inf, self._seconds[::-1])[place]

    def may_have(self, times: LeastTimes) -> Bools:
        """Return which layouts may be on the front."""
        return times.seconds <= self._fastest(times.memory)

    def most_memory(self, seconds: Floats) -> Floats:
        """Return the memory of the leanest layout known that is no slower [byte]."""
        place = np.searchsorted(self._seconds, seconds, side="right")
        return np.append(np.inf, self._memory)[place]


@dataclass(eq=False)
class _Rows:
    """Rows of outlines of batches whose times are bounded, and which were not evaluated."""

    batch: Ints  # number of the batch
    row: Ints  # of its outline
    ladder: Ints
    bound: Floats  # [s]

    @classmethod
    def joined(cls, several: Sequence["_Rows"]) -> "_Rows":
        """Return all of several."""
        none = cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        columns = zip(*(vars(rows).values() for rows in (none, *several)), strict=True)
        return cls(*map(np.concatenate, columns))

    def take(self, which: Bools) -> "_Rows":
        """Return some of the rows."""
        return _Rows(*(column[which] for column in vars(self).values()))


class OnePass:
    """The pass that finds several lists.

    Parameters
    ----------
    evaluated : Evaluated
        Layouts of the search evaluated so far, to which more are added.
    census : Census
        What fits.
    """

    def __init__(self, evaluated: Evaluated, census: Census):
        self._evaluated = evaluated
        self._census = census
        self._bounds: TimeBounds = evaluated.bounds
        self._kept = census.may_fit
        self._opened = [np.zeros(alike.outline.rows, np.bool_) for alike in self._bounds.alike]
        self._of_ladders = [self._bound_ladders(alike) for alike in self._bounds.alike]
        self._rows = _Rows.joined([])
        self._thresholds: dict[int, Floats] = {}

    def find(self, lists: Sequence[WantedList]) -> LeastTimes:
        """Find lists, and return the times whose rows they name."""
        for rows_bounded, layouts_evaluated in ROUNDS:
            for one in lists:
                one.find(self._evaluated.times)
            self._open(lists, rows_bounded)
            self._evaluate(self._nearest(lists, layouts_evaluated), lists)
        for one in lists:
            one.find(self._evaluated.times)
        return self._evaluated.times

    def _evaluate(self, rows: dict[int, Ints], lists: Sequence[WantedList]) -> None:
        """Evaluate rows of batches; of many, those that may be on a list at the best placement are kept."""
        if sum(map(len, rows.values())) <= ROWS_AT_ONCE:
            self._evaluated.add(rows)
            return
        kept: dict[int, Ints] = {}
        for portion in _portions(rows, ROWS_AT_ONCE):
            apart = Evaluated(self._bounds)
            apart.add(portion)
            may_be = np.logical_or.reduce([one.may_have(apart.times) for one in lists])
            batch, place = np.divmod(apart.times.place[may_be], MOST_LAYOUTS)
            for index in distinct_values(batch).tolist():
                outline = self._census.fittings[index].outline
                kept[index] = np.append(kept.get(index, batch[:0]), outline.rows_at(place[batch == index]))
        self._evaluated.add(kept)

    def _bound_ladders(self, alike: AlikeBatches) -> tuple[Rungs, Floats]:
        """Return which rows of each ladder batches that are alike want, and the bound of each ladder [s]."""
        wanted = Rungs.enclose([self._kept[index] for index in alike.indices])
        some = np.flatnonzero(wanted.low < wanted.high)
        bounds = np.full(len(wanted.low), np.inf)
        bounds[some] = self._bounds.of_ladders(alike, some, wanted)
        return wanted, bounds

    def _open(self, lists: Sequence[WantedList], of_group: int) -> None:
        """Bound the rows of each batch that a list wants, at most so many of each group."""
        self._thresholds.clear()
        found = [self._rows]
        for number in range(len(self._opened)):
            found += self._open_alike(number, lists, of_group)
        self._rows = _Rows.joined(found)

    def _open_alike(self, number: int, lists: Sequence[WantedList], of_group: int) -> list[_Rows]:
        """Bound rows of batches that are alike, which have a number among all of these."""
        alike = self._bounds.alike[number]
        opened = self._opened[number]
        wanted, of_ladders = self._of_ladders[number]
        outline = alike.outline
        memory = np.min([self._census.leanest_of_ladders(index) for index in alike.indices], axis=0)
        ladders = Ladders(outline.space, memory - self._census.rounding)
        thresholds = [one.threshold(ladders) for one in lists]
        largest = np.max(thresholds, axis=0)
        near = np.flatnonzero((of_ladders <= largest) & (wanted.low < wanted.high))
        if of_group < EVERY:
            groups = [one.group(ladders)[near] for one in lists]
            nearest = [_lowest(group, of_ladders[near], of_group) for group in groups]
            near = near[np.logical_or.reduce(nearest)]
        rows = outline.rows_between(wanted, near)
        rows = rows[~opened[rows]]
        bounds = self._bounds.of_rows(alike, rows)
        ladder, rung = outline.ladders(rows)
        within = bounds <= largest[ladder]
        if of_group < EVERY:
            chosen = np.zeros(len(rows), np.bool_)
            for one in lists:
                suits = within & (rung == 0) if one.smallest_first else within
                some = np.flatnonzero(suits)
                chosen[some[_lowest(one.group(ladders)[ladder[some]], bounds[some], of_group)]] = True
            within = chosen
        rows = rows[within]
        opened[rows] = True
        found = []
        for block, indices, of_batches in self._bounds.of_batches(alike, rows):
            ladder, rung = outline.ladders(block)
            may_matter = of_batches <= largest[ladder]
            for index in indices if may_matter.any() else ():
                mine = may_matter & self._kept[index].contain(ladder, rung)
                mine[mine] = of_batches[mine] <= self._largest(index, lists)[ladder[mine]]
                batch = np.full(np.count_nonzero(mine), index)
                found.append(_Rows(batch, block[mine], ladder[mine], of_batches[mine]))
        return found

    def _ladders(self, index: int) -> Ladders:
        """Return the ladders of a batch."""
        memory = self._census.leanest_of_ladders(index) - self._census.rounding
        return Ladders(self._census.fittings[index].outline.space, memory)

    def _largest(self, index: int, lists: Sequence[WantedList]) -> Floats:
        """Return the largest threshold of each ladder of a batch [s], computed once in a round."""
        if index not in self._thresholds:
            ladders = self._ladders(index)
            self._thresholds[index] = np.max([one.threshold(ladders) for one in lists], axis=0)
        return self._thresholds[index]

    def _nearest(self, lists: Sequence[WantedList], of_group: int) -> dict[int, Ints]:
        """Return rows that lists want, at most so many of each group, by the number of the batch.

        Those that no list wants are forgotten, and those that are returned.
        """
        rows = self._rows
        wanted = np.zeros((len(lists), len(rows.row)), np.bool_)
        groups = np.zeros((len(lists), len(rows.row)))
        first = np.ones((len(lists), len(rows.row)), np.bool_)
        order = np.argsort(rows.batch, kind="stable")
        starts = np.flatnonzero(np.diff(rows.batch[order], prepend=-1))
        for mine in np.split(order, starts)[1:]:
            index = int(rows.batch[mine[0]])
            outline = self._census.fittings[index].outline
            ladders = self._ladders(index)
            ladder = rows.ladder[mine]
            for number, one in enumerate(lists):
                wanted[number, mine] = rows.bound[mine] <= one.threshold(ladders)[ladder]
                groups[number, mine] = one.group(ladders)[ladder]
                first[number, mine] = outline.first[ladder] == rows.row[mine] if one.smallest_first else True
        chosen = np.zeros(len(rows.row), np.bool_)
        most_memory = np.full(len(rows.row), -np.inf)
        for one, of_list, group, begins in zip(lists, wanted, groups, first, strict=True):
            near = np.flatnonzero(of_list if of_group == EVERY else of_list & begins)
            chosen[near[_lowest(group[near], rows.bound[near], of_group)]] = True
            some = np.flatnonzero(of_list)
            most_memory[some] = np.maximum(most_memory[some], one.most_memory(rows.bound[some]))
        self._rows = rows.take(wanted.any(axis=0) & ~chosen)
        return self._lean(rows.take(chosen), most_memory[chosen])

    def _lean(self, rows: _Rows, most_memory: Floats) -> dict[int, Ints]:
        """Return the rows that need no more memory, ascending, by the number of the batch."""
        order = np.lexsort((rows.row, rows.batch))
        starts = np.flatnonzero(np.diff(rows.batch[order], prepend=-1))
        of_batches = {int(rows.batch[mine[0]]): mine for mine in np.split(order, starts)[1:]}
        found: dict[int, Ints] = {}
        limited: dict[int, Ints] = {}
        limits: dict[int, Floats] = {}
        for index, mine in of_batches.items():
            if np.isinf(most_memory[mine]).all():
                found[index] = rows.row[mine]
            else:
                limited[index] = rows.row[mine]
                limits[index] = most_memory[mine]
        for portion in _portions(limited, ROWS_WEIGHED_AT_ONCE):
            most = {
                index: limits[index][np.searchsorted(limited[index], portion[index])] for index in portion
            }
            for index, lean in self._census.leaner(portion, most).items():
                found[index] = np.append(found.get(index, lean[:0]), lean)
        return {index: found[index] for index in sorted(found) if len(found[index])}


def _portions(rows: dict[int, Ints], number: int) -> Iterator[dict[int, Ints]]:
    """Yield rows of batches, about so many at once."""
    portion: dict[int, Ints] = {}
    for index, of_batch in rows.items():
        for low in range(0, len(of_batch), number):
            portion[index] = of_batch[low : low + number]
            if sum(map(len, portion.values())) >= number:
                yield portion
                portion = {}
    if portion:
        yield portion


def _lowest(group: Floats, bounds: Floats, number: int) -> Bools:
    """Return which are the lowest bounds of each group, at most so many of each."""
    if number >= len(bounds):
        return np.ones(len(bounds), np.bool_)
    order = np.lexsort((bounds, group))
    of_group = group[order]
    rank = np.arange(len(order)) - np.searchsorted(of_group, of_group)
    chosen = np.zeros(len(order), np.bool_)
    chosen[order[rank < number]] = True
    return chosen
