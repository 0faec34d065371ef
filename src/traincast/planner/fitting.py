"""Count the layouts of a search that fit in memory, without a look at each of them.

What a rank holds (weights, gradients, optimizer) depends neither on the micro-batch nor on recomputation, and
what micro-batches need depends neither on ZeRO and replicas nor on the optimizer. Batches of one shape share
both: a layout's *room* is the difference of two numbers from small tables. Where the room is no larger than
rounding, `layouts_memory` decides.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.columns import minimum
from traincast.core.plan import Plans
from traincast.core.quantities import Bools, Column, Floats, Ints, nonzero
from traincast.operations.transformer import Counted, parts
from traincast.planner.evaluation import AROUND_LAYERS, layouts_memory
from traincast.planner.framework_spaces import CandidateBatch
from traincast.planner.search_space import Outline, Progress, Space, distinct, distinct_rows, of_batch, ragged
from traincast.step.memory import Footprint, held, left_for_states, taken_by_states, working
from traincast.step.pipeline_stages import Stages, stages

ROWS_PER_BLOCK: Final = 1 << 14  # whose columns stay in the processor's cache
ROUNDING: Final = 1e-9  # of the capacity: sums in another order differ by far less
EVERY: Final = ("recompute_every", "offload_every")  # knobs that a batch has one value of
# Choices that what a rank holds does not depend on, those that what micro-batches need does not, and those
# that the footprint of a layer does not
AROUND_HELD: Final = ("recompute", "recompute_every", "ep_overlap", "tp_overlap", "dp_overlap", "order")
AROUND_WORKING: Final = ("zero", "optimizer_kind", "tp_overlap", "dp_overlap", "order")
AROUND_FOOTPRINT: Final = tuple({*AROUND_LAYERS, *AROUND_WORKING} - {"recompute"})
AROUND_OPERATIONS: Final = (*AROUND_FOOTPRINT, "recompute", "recompute_every")
Figure = Callable[[Space], Column]  # a figure of layouts that follows from their degrees
Devices = list[tuple[Column, Column]]  # two figures of each device


@dataclass(frozen=True, eq=False)
class Fitting:
    """Which layouts of a batch fit."""

    candidates: int  # that fit
    may_fit: Bools  # rows of the outline of which some layout does, or may but for rounding
    may_not: Bools  # those of which some does not
    room: Floats  # memory that the leanest layout of each row of degrees leaves, if any [byte]


class Census:
    """Counts of a search on one number of GPUs of one machine."""

    def __init__(
        self,
        outlines: Mapping[CandidateBatch, Outline],
        batches: Sequence[CandidateBatch],
        capacity: float,
        assumed: Assumptions,
        progress: Progress | None = None,
    ):
        self._outlines, self._batches, self._assumed = outlines, batches, assumed
        self._capacity, self._rounding = capacity, ROUNDING * capacity
        self._footprints: dict[Any, dict[str, Footprint]] = {}
        self._counted: dict[Any, Counted] = defaultdict(dict)  # operations of layers, recomputation aside
        self._layers: dict[str, Plans] = {}  # distinct ones, by strategy
        self._layer: dict[CandidateBatch, Ints] = {}  # rows of these of each layout of a shape
        of_strategy: dict[str, list[CandidateBatch]] = defaultdict(list)
        for shape in outlines:
            of_strategy[shape.strategy].append(shape)
        for name, shapes in of_strategy.items():
            spaces = [outlines[shape].space for shape in shapes]
            tables = [replace(space.layers, pp=1.0, dp=1.0) for space in spaces]
            self._layers[name], places = distinct_rows(tables)
            self._layer |= {
                shape: place[space.layer_row]
                for shape, space, place in zip(shapes, spaces, places, strict=True)
            }
        of_shape: dict[CandidateBatch, list[int]] = defaultdict(list)
        for index, batch in enumerate(batches):
            of_shape[batch.shape].append(index)
        found: dict[int, Fitting] = {}
        for shape, indices in of_shape.items():
            found |= zip(indices, self._count(shape, [batches[index] for index in indices]), strict=True)
            if progress is not None:
                progress(len(found), len(batches), len(indices) * int(outlines[shape].counts.sum()))
        self.fittings = [found[index] for index in range(len(batches))]

    @property
    def candidates(self) -> int:
        """Number of candidates that fit."""
        return sum(fitting.candidates for fitting in self.fittings)

    def least_memory(self, figure: Figure) -> dict[float, float]:
        """Return the least memory of all layouts with each value of a figure [byte]."""
        most: dict[float, float] = {}
        values: list[Floats] = []
        for fitting, batch in zip(self.fittings, self._batches, strict=True):
            space = self._outlines[batch.shape].space
            first = np.searchsorted(space.degree, np.arange(len(fitting.room)))
            values.append(np.broadcast_to(figure(space), np.shape(space.degree))[first])
            for value, room in zip(values[-1].tolist(), fitting.room.tolist(), strict=True):
                most[value] = max(room, most.get(value, room))
        least = dict.fromkeys(sorted(most), np.inf)
        for index, (fitting, of_degree) in enumerate(zip(self.fittings, values, strict=True)):
            largest = np.array([most[value] for value in of_degree.tolist()])
            degrees = np.flatnonzero(fitting.room >= largest - self._rounding)
            if len(degrees):
                space = self._outlines[self._batches[index].shape].space
                rows = np.flatnonzero(np.isin(space.degree, degrees))
                layouts, memory = self._exact(self._batches[index], rows)
                value_of = np.broadcast_to(figure(layouts), np.shape(memory))
                for value in np.unique(of_degree[degrees]).tolist():
                    least[value] = min(least[value], float(memory[value_of == value].min()))
        return least

    def least_memory_of(self, index: int) -> float:
        """Return the least memory of a batch, up to rounding; infinite where it has no layouts [byte]."""
        return self._capacity - float(self.fittings[index].room.max(initial=-np.inf))

    def nearest(self, index: int) -> Ints:
        """Return the rows of a batch's outline that may have the layouts nearest to fitting without it."""
        batch, rows, left = self._batches[index], [np.zeros(0, np.int64)], [np.zeros(0)]
        for row, rooms in self._rooms(batch.shape, [batch]):
            for room in rooms:
                over = room < self._rounding
                rows.append(row[over])
                left.append(room[over])
        row, lacking = np.concatenate(rows), np.concatenate(left)
        nearest = lacking[lacking <= -self._rounding].max(initial=-np.inf)
        return np.unique(row[lacking >= nearest - self._rounding])

    def _exact(self, batch: CandidateBatch, rows: Ints) -> tuple[Space, Floats]:
        """Return the layouts of rows of a batch's outline, and their memory [byte]."""
        space = of_batch(self._outlines[batch.shape].layouts(rows), batch)
        return space, layouts_memory((space,), self._assumed)[0]

    def _count(self, shape: CandidateBatch, batches: Sequence[CandidateBatch]) -> list[Fitting]:
        """Return what fits of batches of one shape."""
        space = self._outlines[shape].space
        candidates = np.zeros(len(batches), np.int64)
        fit, over = np.zeros((2, len(batches), len(space.degree)), np.bool_)
        most = np.full((len(batches), len(space.fills.count)), -np.inf)
        for row, rooms in self._rooms(shape, batches):
            degree, counts = space.degree[row], space.counts[row]
            starts = np.flatnonzero(np.diff(degree, prepend=-1))
            of_degree = degree[starts]
            for k, room in enumerate(rooms):
                fits = room >= 0
                candidates[k] += counts[fits].sum()
                fit[k, row[fits]] = over[k, row[~fits]] = True
                most[k, of_degree] = np.maximum(most[k, of_degree], np.maximum.reduceat(room, starts))
                near = np.abs(room) < self._rounding
                if near.any():
                    rows = np.unique(row[near])
                    layouts, memory = self._exact(batches[k], rows)
                    candidates[k] += layouts.counts[memory <= self._capacity].sum()
                    candidates[k] -= counts[fits & np.isin(row, rows)].sum()
                    fit[k, rows] = over[k, rows] = True
        return [Fitting(int(candidates[k]), fit[k], over[k], most[k]) for k in range(len(batches))]

    def _rooms(
        self, shape: CandidateBatch, batches: Sequence[CandidateBatch]
    ) -> Iterator[tuple[Ints, Iterator[Floats]]]:
        """Yield rows of a shape's outline once for each layout, and their room in each batch [byte]."""
        space, holders = self._outlines[shape].space, _Holders.of(self._outlines[shape])
        given = [space.layouts.given(**dict(batch.choices)).ready(self._assumed) for batch in batches]
        plans = [(plan, _key(plan, AROUND_HELD), _key(plan, AROUND_WORKING)) for plan in given]
        alike = {key: plan for plan, key, _ in plans}
        holding = {key: self._held(plan, shape, holders) for key, plan in alike.items()}
        for low in range(0, len(space.degree), ROWS_PER_BLOCK):
            block = np.arange(low, min(low + ROWS_PER_BLOCK, len(space.degree)))
            kind = holders.kind[block]
            row, held_row = np.repeat(block, holders.count[kind]), ragged(holders.first, holders.count, kind)

            def rooms(block: Ints = block, row: Ints = row, held_row: Ints = held_row) -> Iterator[Floats]:
                taken: dict[Any, Devices] = {}
                left: dict[Any, Devices] = {}
                devices = stages(space.model, given[0].take(block))
                for plan, by_held, by_working in plans:
                    if by_held not in taken:
                        taken[by_held] = _rows(holding[by_held], held_row)
                    if by_working not in left:
                        left[by_working] = _rows(self._left(plan, shape, block, devices), row - block[0])
                    least: Any = np.inf
                    for (states, gradients), (most, shared) in zip(
                        taken[by_held], left[by_working], strict=False
                    ):
                        room = most - states
                        room = room + minimum(gradients, shared) if nonzero(shared) else room
                        least = np.minimum(least, room)
                    yield np.broadcast_to(least, len(row))

            yield row, rooms()

    def _held(self, plan: Plans, shape: CandidateBatch, holders: "_Holders") -> Devices:
        """Return all that devices hold, and gradients alone, for each kind and number of replicas [byte]."""
        plans = plan.take(holders.sample).given(replicas=holders.replicas)
        footprints = self._parts(plan, shape, holders.sample)
        devices = stages(self._outlines[shape].space.model, plans)
        of_devices = (held(footprints, plans, counts, self._assumed) for counts in devices.stored_parts)
        return [taken_by_states(one, self._assumed) for one in of_devices]

    def _left(self, plan: Plans, shape: CandidateBatch, rows: Ints, devices: Stages) -> Devices:
        """Return `left_for_states` of rows on each device [byte]."""
        gbs, assumed, plans = self._outlines[shape].space.gbs, self._assumed, plan.take(rows)
        footprints, nm = self._parts(plan, shape, rows), plans.microbatches(gbs)
        of_devices = (
            working(footprints, plans, devices, i, gbs, assumed) for i in range(len(devices.position))
        )
        return [left_for_states(one, nm, self._capacity, assumed) for one in of_devices]

    def _parts(self, plan: Plans, shape: CandidateBatch, rows: Ints) -> dict[str, Footprint]:
        """Return the footprints of parts in rows of layouts."""
        key = shape.strategy, _key(plan, AROUND_FOOTPRINT)
        if key not in self._footprints:
            given = plan.choices() | {"recompute_every": plan.recompute_every}
            layers = replace(self._layers[shape.strategy], **given)
            counted = self._counted[shape.strategy, _key(plan, AROUND_OPERATIONS)]
            operations = parts(self._outlines[shape].space.model, layers, self._assumed, counted)
            self._footprints[key] = {name: Footprint.of(part, layers) for name, part in operations.items()}
        layer = self._layer[shape][rows]
        return {name: part.take(layer) for name, part in self._footprints[key].items()}


@dataclass(frozen=True, eq=False)
class _Holders:
    """Kinds of layouts by what their ranks hold, each with every number of replicas."""

    kind: Ints  # of each row of the outline
    first: Ints  # of each kind among what is held
    count: Ints
    sample: Ints  # a row of the outline for all that is held
    replicas: Floats

    @classmethod
    def of(cls, outline: Outline) -> "_Holders":
        """Return the kinds of an outline."""
        space, replicas = outline.space, outline.replicas
        knobs = [getattr(space.layouts, knob) for knob in ("vp", "ep", "etp")]
        columns = [space.degree, *(column for column in knobs if np.ndim(column))]
        sample, kind = distinct(columns, len(space.degree))
        if replicas is None:
            one = np.ones(len(sample))
            return cls(kind, np.arange(len(sample)), one.astype(np.int64), sample, one)
        count = replicas.count[replicas.kind[sample]]
        return cls(kind, np.cumsum(count) - count, count, *replicas.of(sample))


def _key(plan: Plans, around: Sequence[str]) -> Any:
    """Return the choices of plans, and how often layers recompute and offload, but for some of them."""
    given = plan.choices() | {name: getattr(plan, name) for name in EVERY}
    return tuple(value for name, value in given.items() if name not in around)


def _rows(devices: Devices, rows: Ints) -> Devices:
    """Return rows of two columns of each device; numbers stay numbers."""
    return [
        (a[rows] if isinstance(a, np.ndarray) else a, b[rows] if isinstance(b, np.ndarray) else b)
        for a, b in devices
    ]
