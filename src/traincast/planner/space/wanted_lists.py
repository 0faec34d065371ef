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

from traincast.core import Bools, Column, Floats, Ints, distinct_values, number_values
from traincast.planner.space.fits_in_memory import Census, Figure, RoomBounds
from traincast.planner.space.least_times import LeastTimes
from traincast.planner.space.search_space import Outline, Rungs, Space, report_round
from traincast.planner.space.shortlist import MOST_LAYOUTS, AlikeBatches, Evaluated, TimeBounds

EVERY: Final = 1 << 40
# Rows of each group that each round bounds batch by batch, and layouts that it evaluates, at most
ROUNDS: Final = ((8, 4), (EVERY, 64), (EVERY, EVERY))
ROWS_AT_ONCE: Final = 1 << 13  # evaluated at once, so that their costs take little memory
ROWS_WEIGHED_AT_ONCE: Final = 1 << 15  # of which only the memory is computed
MOST_VALUES: Final = 1 << 16  # of a figure
MEMORY_STEP: Final = 1.1  # ratio of memory between groups of the layouts of a front


class Ladders(NamedTuple):
    """Ladders of layouts of a batch, or of batches that are alike."""

    outline: Outline
    room: RoomBounds

    @property
    def space(self) -> Space:
        """Space of the first row of each."""
        return self.outline.space


class Rows(NamedTuple):
    """Rows of ladders, or whole ladders by their leanest row."""

    ladder: Ints
    memory: Floats  # that the leanest layout of each needs at least [byte]


class WantedList(ABC):
    """A list that is wanted of a search."""

    @abstractmethod
    def group(self, ladders: Ladders, rows: Rows) -> Floats:
        """Return the group of each row: the rows of each that are nearest are evaluated first."""

    @abstractmethod
    def find(self, times: LeastTimes) -> None:
        """Find the list among the layouts evaluated so far, of which it times those that matter."""

    @abstractmethod
    def threshold(self, ladders: Ladders, rows: Rows) -> Floats:
        """Return the largest time with which a layout of each row may still be on the list [s]."""

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

    def group(self, ladders: Ladders, rows: Rows) -> Floats:
        """Return the combination of values of each row."""
        group: Column = 0.0
        for figure in self.figures:
            group = group * MOST_VALUES + figure(ladders.space)
        return np.broadcast_to(group, len(ladders.room.most))[rows.ladder]

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

    def threshold(self, ladders: Ladders, rows: Rows) -> Floats:
        """Return the best time of any of the values of each row, the longest of these [s]."""
        if ladders.space not in self._thresholds:
            ladder = np.shape(ladders.room.most)
            values = [np.broadcast_to(figure(ladders.space), ladder) for figure in self.figures]
            self._thresholds[ladders.space] = self._of_values(values)
        return self._thresholds[ladders.space][rows.ladder]

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

    def __init__(self) -> None:
        self.rows: Ints = np.zeros(0, np.int64)  # fastest first
        self._seconds: Floats = np.zeros(0)
        self._memory: Floats = np.zeros(0)

    def group(self, ladders: Ladders, rows: Rows) -> Floats:
        """Return the interval of memory of each row."""
        return np.asarray(np.floor(np.log(np.maximum(rows.memory, 1.0)) / np.log(MEMORY_STEP)))

    def find(self, times: LeastTimes) -> None:
        """Find the front."""
        self.rows = times.front()
        self._seconds = times.seconds[self.rows]
        self._memory = times.memory[self.rows]

    def threshold(self, ladders: Ladders, rows: Rows) -> Floats:
        """Return the best time of a layout that needs no more memory than each row [s]."""
        return self._fastest(rows.memory)

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
class _Bounded:
    """Rows of outlines of batches whose times are bounded, and which were not evaluated."""

    batch: Ints  # number of the batch
    row: Ints  # of its outline
    ladder: Ints
    memory: Floats  # that the leanest layout of each needs at least [byte]
    bound: Floats  # [s]

    @classmethod
    def join(cls, several: Sequence["_Bounded"]) -> "_Bounded":
        """Return all of several."""
        no_numbers = np.zeros(0, np.int64)
        none = cls(no_numbers, no_numbers, no_numbers, np.zeros(0), np.zeros(0))
        columns = zip(*(vars(rows).values() for rows in (none, *several)), strict=True)
        return cls(*map(np.concatenate, columns))

    def take(self, which: Bools) -> "_Bounded":
        """Return some of the rows."""
        return _Bounded(*(column[which] for column in vars(self).values()))


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
        self._rows = _Bounded.join([])
        self._ladders_known: dict[tuple[int, ...], Ladders] = {}

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
        found = [self._rows]
        for number in range(len(self._opened)):
            found += self._open_alike(number, lists, of_group)
            report_round(number + 1, len(self._opened))
        self._rows = _Bounded.join(found)

    def _open_alike(self, number: int, lists: Sequence[WantedList], of_group: int) -> list[_Bounded]:
        """Bound rows of batches that are alike, which have a number among all of these."""
        alike = self._bounds.alike[number]
        opened = self._opened[number]
        wanted, of_ladders = self._of_ladders[number]
        outline = alike.outline
        ladders = self._ladders(alike.indices)
        near = np.flatnonzero(wanted.low < wanted.high)
        leanest = Rows(near, self._census.least_memory_with(ladders.room.most[near]))
        near = near[_wanted_first(lists, ladders, leanest, of_ladders[near], of_group)]
        rows = outline.rows_between(wanted, near)
        rows = rows[~opened[rows]]
        bounds = self._bounds.of_rows(alike, rows)
        of_rows = self._with_memory(ladders, rows)
        rows = rows[_wanted_first(lists, ladders, of_rows, bounds, of_group)]
        opened[rows] = True
        largest = _threshold(lists, ladders, self._with_memory(ladders, rows))  # of any of the batches
        found = []
        for block, indices, of_batches in self._bounds.of_batches(alike, rows):
            may_matter = of_batches <= largest[np.searchsorted(rows, block)]
            near_rows = block[may_matter]
            bounds = of_batches[may_matter]
            ladder, rung = outline.ladders(near_rows)
            for index in indices if len(near_rows) else ():
                mine = self._kept[index].contain(ladder, rung)
                found.append(self._wanted_of_batch(index, near_rows[mine], bounds[mine], lists))
        return found

    def _wanted_of_batch(
        self, index: int, rows: Ints, bounds: Floats, lists: Sequence[WantedList]
    ) -> _Bounded:
        """Return the rows of a batch that a list may want, given the bounds of rows [s]."""
        ladders = self._ladders([index])
        with_memory = self._with_memory(ladders, rows)
        may_be = bounds <= _threshold(lists, ladders, with_memory)
        return _Bounded(
            batch=np.full(np.count_nonzero(may_be), index),
            row=rows[may_be],
            ladder=with_memory.ladder[may_be],
            memory=with_memory.memory[may_be],
            bound=bounds[may_be],
        )

    def _ladders(self, indices: Sequence[int]) -> Ladders:
        """Return the ladders of batches that are alike."""
        key = tuple(indices)
        if key not in self._ladders_known:
            outline = self._census.fittings[key[0]].outline
            self._ladders_known[key] = Ladders(outline, self._census.room_bounds(key))
        return self._ladders_known[key]

    def _with_memory(self, ladders: Ladders, rows: Ints) -> Rows:
        """Return rows of an outline with the memory that they need at least."""
        ladder, times = ladders.outline.times_smallest(rows)
        return Rows(ladder, self._census.least_memory_with(ladders.room.left_by(ladder, times)))

    def _nearest(self, lists: Sequence[WantedList], of_group: int) -> dict[int, Ints]:
        """Return rows that lists want, at most so many of each group, by the number of the batch.

        Those that no list wants are forgotten, and those that are returned.
        """
        rows = self._rows
        wanted = np.zeros((len(lists), len(rows.row)), np.bool_)
        groups = np.zeros((len(lists), len(rows.row)))
        order = np.argsort(rows.batch, kind="stable")
        starts = np.flatnonzero(np.diff(rows.batch[order], prepend=-1))
        for mine in np.split(order, starts)[1:]:
            ladders = self._ladders([int(rows.batch[mine[0]])])
            with_memory = Rows(rows.ladder[mine], rows.memory[mine])
            for number, one in enumerate(lists):
                wanted[number, mine] = rows.bound[mine] <= one.threshold(ladders, with_memory)
                groups[number, mine] = one.group(ladders, with_memory)
        chosen = np.zeros(len(rows.row), np.bool_)
        most_memory = np.full(len(rows.row), -np.inf)
        for one, of_list, group in zip(lists, wanted, groups, strict=True):
            some = np.flatnonzero(of_list)
            chosen[some[_lowest(group[some], rows.bound[some], of_group)]] = True
            most_memory[some] = np.maximum(most_memory[some], one.most_memory(rows.bound[some]))
        self._rows = rows.take(wanted.any(axis=0) & ~chosen)
        return self._lean(rows.take(chosen), most_memory[chosen])

    def _lean(self, rows: _Bounded, most_memory: Floats) -> dict[int, Ints]:
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


def _threshold(lists: Sequence[WantedList], ladders: Ladders, rows: Rows) -> Floats:
    """Return the largest time with which a layout of each row may be on one of several lists [s]."""
    largest: Floats = np.max([one.threshold(ladders, rows) for one in lists], axis=0)
    return largest


def _wanted_first(
    lists: Sequence[WantedList], ladders: Ladders, rows: Rows, bounds: Floats, of_group: int
) -> Bools:
    """Return which rows lists want, at most so many of each group of each list."""
    wanted = bounds <= _threshold(lists, ladders, rows)
    if of_group < EVERY:
        groups = [one.group(ladders, rows)[wanted] for one in lists]
        wanted[wanted] = np.logical_or.reduce([_lowest(group, bounds[wanted], of_group) for group in groups])
    return wanted


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
