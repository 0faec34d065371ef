"""Count the layouts of a search that fit in memory, without a look at each of them.

What a rank holds (weights, gradients, optimizer) depends neither on the micro-batch nor on recomputation, and
what micro-batches need depends neither on ZeRO and replicas nor on the optimizer. Batches share both: a
layout's *room* is the difference of two numbers from small tables. Shapes whose layouts are all among those
of another share its tables. Where the room is no larger than rounding, `layouts_memory` decides.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from traincast.catalog.software_stacks import with_fitted_values
from traincast.core.assumptions import Assumptions
from traincast.core.columns import distinct, minimum
from traincast.core.knobs import DEFAULTS
from traincast.core.plan import Plans
from traincast.core.quantities import Bools, Column, Floats, Ints, nonzero
from traincast.core.system import System
from traincast.operations.transformer import Counted, parts
from traincast.planner.evaluation import AROUND_LAYERS, layouts_memory
from traincast.planner.framework_spaces import CandidateBatch
from traincast.planner.search_space import (
    Outline,
    Progress,
    Space,
    distinct_layers,
    of_batch,
    ragged,
)
from traincast.step.memory import (
    BesideActivations,
    Footprint,
    beside_activations,
    held,
    left_for_states,
    taken_by_states,
    working,
)
from traincast.step.pipeline_stages import Stages, most_chunks, stages
from traincast.step.placement import divisors
from traincast.times.pipeline.schedules import SCHEDULES

ROWS_PER_BLOCK: Final = 1 << 14  # whose columns stay in the processor's cache
ROUNDING: Final = 1e-9  # of the capacity: sums in another order differ by far less
EVERY: Final = ("recompute_every", "offload_every")  # knobs that a batch has one value of
# Choices that these do not depend on: what a rank holds, what micro-batches need, the part of it in
# `BesideActivations`, the footprint of a layer, and its operations
AROUND_HELD: Final = ("recompute", "recompute_every", "ep_overlap", "tp_overlap", "dp_overlap", "order")
AROUND_WORKING: Final = ("zero", "optimizer_kind", "tp_overlap", "dp_overlap", "order")
AROUND_BESIDE: Final = (*AROUND_WORKING, *EVERY, "recompute", "offload")
AROUND_FOOTPRINT: Final = tuple({*AROUND_LAYERS, *AROUND_WORKING} - {"recompute"})
AROUND_OPERATIONS: Final = (*AROUND_FOOTPRINT, "recompute", "recompute_every")
Figure = Callable[[Space], Column]  # a figure of layouts that follows from their degrees
Devices = list[tuple[Column, Column]]  # two figures of each device


@dataclass(frozen=True, eq=False)
class Searched:
    """Batches of a search on one number of GPUs of one machine."""

    outlines: Mapping[CandidateBatch, Outline]  # of the shapes of the batches
    batches: Sequence[CandidateBatch]
    system: System
    assumptions: Assumptions

    @cached_property
    def assumed(self) -> Assumptions:
        """Assumptions with the values fitted to the machine."""
        return with_fitted_values(self.system, self.assumptions)

    @property
    def capacity(self) -> float:
        """Memory of an accelerator [byte]."""
        return float(self.system.accelerator.hbm_bytes)


@dataclass(eq=False)
class Fitting:
    """Which layouts of a batch fit."""

    candidates: int  # that fit
    may_fit: Bools  # rows of the outline of which some layout does, or may but for rounding
    may_not: Bools  # those of which some does not
    room: Floats  # memory that the leanest layout of each row of degrees leaves, if any [byte]

    @classmethod
    def of(cls, space: Space) -> "Fitting":
        """Return the state before any layout of an outline's space is counted."""
        may_fit, may_not = np.zeros((2, len(space.degree)), np.bool_)
        return cls(0, may_fit, may_not, np.full(len(space.fills.count), -np.inf))

    def add(self, block: "_Block", room: Floats, rounding: float) -> Ints:
        """Count layouts whose room is known [byte]; return rows that are not counted, for rounding."""
        if not len(block.first):
            return block.first
        room = room[block.taken]
        number = block.number(room >= 0)
        self.may_fit[block.rows], self.may_not[block.rows] = number > 0, number < block.layouts
        most = np.maximum.reduceat(room, block.of_degree)
        self.room[block.degree] = np.maximum(self.room[block.degree], most)
        close = np.abs(room) < rounding
        near = np.flatnonzero(block.number(close)) if close.any() else block.first[:0]
        self.candidates += int(number @ block.counts - number[near] @ block.counts[near])
        rows = near + block.rows.start
        self.may_fit[rows] = self.may_not[rows] = True
        return np.asarray(rows)


class Census:
    """Counts of what fits of a search."""

    def __init__(self, searched: Searched, progress: Progress | None = None):
        outlines, batches, self._assumed = searched.outlines, searched.batches, searched.assumed
        self._outlines, self._batches = outlines, batches
        self._capacity, self._rounding = searched.capacity, ROUNDING * searched.capacity
        self._footprints: dict[Any, dict[str, Footprint]] = {}
        self._counted: dict[Any, Counted] = defaultdict(dict)  # operations of layers, recomputation aside
        self._layers: dict[str, Plans] = {}  # distinct ones, `experts_apart`, by strategy
        self._layer: dict[CandidateBatch, Ints] = {}  # place among these of each layout of a shape
        of_strategy: dict[str, list[CandidateBatch]] = defaultdict(list)
        for shape in outlines:
            of_strategy[shape.strategy].append(shape)
        for name, shapes in of_strategy.items():
            spaces = [outlines[shape].space for shape in shapes]
            tables = [replace(space.layers, pp=1.0, dp=1.0) for space in spaces]
            self._layers[name], places = distinct_layers(tables)
            self._layer |= {
                shape: place[space.layer_row]
                for shape, space, place in zip(shapes, spaces, places, strict=True)
            }
        of_shape: dict[CandidateBatch, list[int]] = defaultdict(list)
        for index, batch in enumerate(batches):
            of_shape[batch.shape].append(index)
        found: dict[int, Fitting] = {}
        for hull, members in self._hulls().items():
            indices = [index for shape in members for index in of_shape[shape]]
            found |= zip(indices, self._count(hull, members, indices), strict=True)
            if progress is not None:
                counted = sum(int(outlines[batches[index].shape].counts.sum()) for index in indices)
                progress(len(found), len(batches), counted)
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
        rows, left = [np.zeros(0, np.int64)], [np.zeros(0)]
        for row, rooms in self._rooms(self._batches[index].shape, [index]):
            for room in rooms:
                over = room < self._rounding
                rows.append(row[over])
                left.append(room[over])
        row, lacking = np.concatenate(rows), np.concatenate(left)
        nearest = lacking[lacking <= -self._rounding].max(initial=-np.inf)
        return np.unique(row[lacking >= nearest - self._rounding])

    def _hulls(self) -> dict[CandidateBatch, dict[CandidateBatch, Ints]]:
        """Return the shapes whose rows those of others are among, and of each of these which.

        Equal rows of them have the same stages; shapes with replicas stay apart.
        """
        hulls: dict[CandidateBatch, dict[CandidateBatch, Ints]] = {}
        alike: dict[Any, list[CandidateBatch]] = defaultdict(list)
        numbers = {shape: self._numbers(shape) for shape in self._outlines}
        for shape in sorted(numbers, key=lambda shape: -len(numbers[shape])):
            given = DEFAULTS | shape.given
            key = shape.strategy, given["schedule"], given["layout"]
            for hull in alike[key] if self._outlines[shape].replicas is None else ():
                if (rows := _among(numbers[shape], numbers[hull])) is not None:
                    hulls[hull][shape] = rows
                    break
            else:
                hulls[shape] = {shape: np.arange(len(numbers[shape]))}
                if self._outlines[shape].replicas is None:
                    alike[key].append(shape)
        return hulls

    def _numbers(self, shape: CandidateBatch) -> Ints:
        """Return a number for each row of a shape's outline, different ones for different rows."""
        space, layer = self._outlines[shape].space, self._layer[shape]
        degrees = divisors(space.gpus[0])
        pipeline = layer * len(degrees) + np.searchsorted(degrees, space.layouts.pp)
        return np.asarray(pipeline * (most_chunks(space.model) + 1) + space.layouts.vp, np.int64)

    def _exact(self, batch: CandidateBatch, rows: Ints) -> tuple[Space, Floats]:
        """Return the layouts of rows of a batch's outline, and their memory [byte]."""
        space = of_batch(self._outlines[batch.shape].layouts(rows), batch)
        return space, layouts_memory((space,), self._assumed)[0]

    def _count(
        self, hull: CandidateBatch, members: Mapping[CandidateBatch, Ints], indices: Sequence[int]
    ) -> list[Fitting]:
        """Return what fits of batches whose shapes have the same hull."""
        shapes = [self._batches[index].shape for index in indices]
        fittings = [Fitting.of(self._outlines[shape].space) for shape in shapes]
        for row, rooms in self._rooms(hull, indices):
            blocks = {
                shape: _Block.of(self._outlines[shape].space, rows, row) for shape, rows in members.items()
            }
            for index, shape, fitting, room in zip(indices, shapes, fittings, rooms, strict=True):
                near = fitting.add(blocks[shape], room, self._rounding)
                if len(near):
                    layouts, memory = self._exact(self._batches[index], near)
                    fitting.candidates += int(layouts.counts[memory <= self._capacity].sum())
        return fittings

    def _rooms(self, hull: CandidateBatch, indices: Sequence[int]) -> Iterator[tuple[Ints, Iterator[Floats]]]:
        """Yield rows of a hull's outline once for each layout, and their room in each of batches [byte]."""
        space, holders = self._outlines[hull].space, _Holders.of(self._outlines[hull])
        usual = {name: DEFAULTS[name] for name, _ in hull.choices}
        given = [space.layouts.given(**usual | dict(self._batches[i].choices)) for i in indices]
        asked = [_Asked.of(plans.ready(self._assumed)) for plans in given]
        alike = {one.by_held: one.plans for one in asked}
        holding = {key: self._held(plans, hull, holders) for key, plans in alike.items()}
        for low in range(0, len(space.degree), ROWS_PER_BLOCK):
            block = slice(low, min(low + ROWS_PER_BLOCK, len(space.degree)))
            kind = holders.kind[block]
            row = np.repeat(np.arange(block.start, block.stop), holders.count[kind])
            held_row = ragged(holders.first, holders.count, kind)

            def rooms(block: slice = block, row: Ints = row, held_row: Ints = held_row) -> Iterator[Floats]:
                taken: dict[Any, Devices] = {}
                left: dict[Any, Devices] = {}
                found: dict[Any, Floats] = {}
                beside: dict[Any, list[BesideActivations]] = {}
                devices = stages(space.model, asked[0].plans.take(block))
                for one in asked:
                    if one.by_held not in taken:
                        taken[one.by_held] = _rows(holding[one.by_held], held_row)
                    if one.by_working not in left:
                        of_block = self._left(one, hull, block, devices, beside)
                        same = len(row) == block.stop - block.start  # each row is one layout
                        left[one.by_working] = of_block if same else _rows(of_block, row - block.start)
                    key = one.by_held, one.by_working
                    if key not in found:
                        room = _room(taken[one.by_held], left[one.by_working])
                        found[key] = np.broadcast_to(room, len(row))
                    yield found[key]

            yield row, rooms()

    def _held(self, plan: Plans, shape: CandidateBatch, holders: "_Holders") -> Devices:
        """Return all that devices hold, and gradients alone, for each kind and number of replicas [byte]."""
        plans = plan.take(holders.sample).given(replicas=holders.replicas)
        footprints = self._parts(plan, shape, holders.sample)
        devices = stages(self._outlines[shape].space.model, plans)
        of_devices = (held(footprints, plans, counts, self._assumed) for counts in devices.stored_parts)
        return [taken_by_states(one, self._assumed) for one in of_devices]

    def _left(
        self,
        asked: "_Asked",
        shape: CandidateBatch,
        rows: slice,
        devices: Stages,
        beside: dict[Any, list[BesideActivations]],
    ) -> Devices:
        """Return `left_for_states` of rows on each device [byte]; `beside` keeps what batches share."""
        gbs, assumed, plans = self._outlines[shape].space.gbs, self._assumed, asked.plans.take(rows)
        footprints, nm = self._parts(plans, shape, rows), plans.microbatches(gbs)
        if asked.by_beside not in beside:
            beside[asked.by_beside] = beside_activations(footprints, plans, devices, gbs, assumed)
        return [
            left_for_states(working(footprints, plans, devices, i, one, assumed), nm, self._capacity, assumed)
            for i, one in enumerate(beside[asked.by_beside])
        ]

    def _parts(self, plan: Plans, shape: CandidateBatch, rows: Any) -> dict[str, Any]:
        """Return the footprints of parts in rows of layouts."""
        key = shape.strategy, _key(plan, AROUND_FOOTPRINT)
        if key not in self._footprints:
            given = plan.choices() | {"recompute_every": plan.recompute_every}
            layers = replace(self._layers[shape.strategy], **given)
            counted = self._counted[shape.strategy, _key(plan, AROUND_OPERATIONS)]
            operations = parts(self._outlines[shape].space.model, layers, self._assumed, counted)
            self._footprints[key] = {name: Footprint.of(part, layers) for name, part in operations.items()}
        place = self._layer[shape][rows]
        layer = place % np.size(self._layers[shape.strategy].mbs)
        return {name: _FootprintRows(part, place, layer) for name, part in self._footprints[key].items()}


class _FootprintRows:
    """Rows of a footprint of layers `experts_apart`, each figure's taken when it is asked for."""

    def __init__(self, footprint: Footprint, place: Ints, layer: Ints):
        self._footprint, self._place, self._layer = footprint, place, layer

    def __getattr__(self, figure: str) -> Column:
        rows: Column = getattr(self._footprint, figure)
        if isinstance(rows, np.ndarray) and not rows.any():
            rows = 0.0  # which sums and maxima leave out
        elif isinstance(rows, np.ndarray):
            rows = rows[self._layer] if rows.ndim == 1 else rows.ravel()[self._place]
        setattr(self, figure, rows)
        return rows


class _Asked(NamedTuple):
    """Layouts of a hull with the choices of a batch, and the choices that parts of their memory depend on."""

    plans: Plans
    by_held: Any
    by_working: Any
    by_beside: Any

    @classmethod
    def of(cls, plans: Plans) -> "_Asked":
        """Return layouts with their keys."""
        return cls(plans, *(_key(plans, omitted) for omitted in (AROUND_HELD, AROUND_WORKING, AROUND_BESIDE)))


class _Block(NamedTuple):
    """Rows of a shape's outline among those of a block of its hull's."""

    taken: Ints | slice  # index of their layouts among those of the block
    rows: slice  # of the shape's outline
    counts: Ints  # candidates of a layout of each row
    first: Ints  # first layout of each row
    layouts: Ints  # of each row
    degree: Ints  # rows of degrees, ascending
    of_degree: Ints  # first layout of each of these

    @classmethod
    def of(cls, space: Space, places: Ints, row: Ints) -> "_Block":
        """Return the rows of an outline at ascending places in its hull, given that of each layout."""
        begin, end = row[0], row[-1] + 1
        rows = slice(*map(int, np.searchsorted(places, (begin, end))))
        every = rows.stop - rows.start == end - begin
        of_layouts = row if every else places[rows]
        first = np.flatnonzero(np.diff(of_layouts, prepend=-1))
        degree = space.degree[rows]
        starts = np.flatnonzero(np.diff(degree, prepend=-1))
        return cls(
            slice(None) if every else of_layouts - begin,
            rows,
            space.counts[rows],
            first,
            np.diff(first, append=len(of_layouts)),
            degree[starts],
            first[starts],
        )

    def number(self, layouts: Bools) -> Ints:
        """Count the layouts of each row that are marked."""
        if len(layouts) == len(self.first):
            return layouts.astype(np.int64)
        return np.asarray(np.add.reduceat(layouts, self.first, dtype=np.int64))


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
    """Return the choices of plans, and how often layers recompute and offload, but for some of them.

    Overlapped exchanges with experts take memory only where a schedule runs micro-batches ahead for them.
    """
    given = plan.choices() | {name: getattr(plan, name) for name in EVERY}
    given["ep_overlap"] = plan.ep_overlap and SCHEDULES[plan.schedule].ahead_of_exchanges > 0
    return tuple(value for name, value in given.items() if name not in around)


def _rows(devices: Devices, rows: Ints) -> Devices:
    """Return rows of two columns of each device; numbers stay numbers."""
    return [
        (a[rows] if isinstance(a, np.ndarray) else a, b[rows] if isinstance(b, np.ndarray) else b)
        for a, b in devices
    ]


def _room(taken: Devices, left: Devices) -> Column:
    """Return what is left of memory on the fullest device, given `taken_by_states` and `left_for_states`."""
    least: Column = np.inf
    for (states, gradients), (most, shared) in zip(taken, left, strict=False):
        room = most - states
        room = room + minimum(gradients, shared) if nonzero(shared) else room
        least = minimum(least, room)
    return least


def _among(numbers: Ints, all_numbers: Ints) -> Ints | None:
    """Return the places of numbers among others in the same order; None where some are not there."""
    there = np.zeros(1 + max(numbers.max(initial=0), all_numbers.max(initial=0)), np.bool_)
    there[numbers] = True
    places = np.flatnonzero(there[all_numbers])
    return places if np.array_equal(all_numbers[places], numbers) else None
