"""Count the layouts of a search that fit in memory, without a look at each of them.

Layouts that differ in the micro-batch alone are a *ladder*. What its micro-batches need is proportional to
their size, so that the largest that fits follows from the *room* that the smallest leaves.

What a rank holds (weights, gradients, optimizer) depends neither on the micro-batch nor on recomputation, and
what micro-batches need depends neither on ZeRO and replicas nor on the optimizer. Batches share both. Shapes
whose ladders are all among those of another share its tables. Where rounding may decide, `layouts_memory`
does, and where larger micro-batches may need less than smaller ones: beside fewer of them in a pipeline.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from traincast.catalog import with_fitted_values
from traincast.core import (
    DEFAULTS,
    Assumptions,
    Column,
    Floats,
    Ints,
    Plans,
    System,
    distinct_values,
    number_values,
    offloaded_activations,
    take_rows,
)
from traincast.operations import Counted, parts
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.space.evaluation import AROUND_LAYERS, layouts_memory
from traincast.planner.space.search_space import (
    Outline,
    Progress,
    Rungs,
    Space,
    distinct_layers,
    of_batch,
    ragged_ranges,
)
from traincast.step import (
    BesideActivations,
    Footprint,
    MemoryLeft,
    PhaseLeft,
    Stages,
    StoredWeights,
    TakenMemory,
    divisors,
    stages,
)
from traincast.times import SCHEDULES

if TYPE_CHECKING:
    from numpy.typing import NDArray

Value = TypeVar("Value", bound=np.generic)
LADDERS_PER_BLOCK: Final = 1 << 14  # whose columns stay in the processor's cache
SMALL: Final = 1e-9  # times the smallest micro-batch: less than any two sizes differ by
ROUNDING: Final = 1e-9  # of the capacity: sums in another order differ by far less
EVERY: Final = ("recompute_every", "offload_every")  # knobs that a batch has one value of
# Choices that these do not depend on: what a rank holds, what micro-batches need, the part of it in
# `BesideActivations`, the footprint of a layer, and its operations
AROUND_HELD: Final = ("recompute", "recompute_every", "ep_overlap", "tp_overlap", "dp_overlap", "order")
AROUND_WORKING: Final = ("zero", "optimizer_kind", "master_copy", "tp_overlap", "dp_overlap", "order")
AROUND_BESIDE: Final = (*AROUND_WORKING, *EVERY, "recompute", "offload")
AROUND_FOOTPRINT: Final = tuple({*AROUND_LAYERS, *AROUND_WORKING} - {"recompute"})
AROUND_OPERATIONS: Final = (*AROUND_FOOTPRINT, "recompute", "recompute_every")
Figure = Callable[[Space], Column]  # a figure of layouts that follows from their degrees
Held = list[TakenMemory]  # of each device


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

    @cached_property
    def ladders(self) -> dict[CandidateBatch, Outline]:
        """Outlines whose micro-batches need memory in proportion to their size, in each ladder."""
        return {shape: self._split(outline) for shape, outline in self.outlines.items()}

    def _split(self, outline: Outline) -> Outline:
        space = outline.space
        rows = np.arange(outline.rows)
        offloads = any(offloaded_activations(batch.given.get("offload", "none")) for batch in self.batches)
        if offloads or space.model.adapters is not None:
            return outline.split(rows)
        if self.assumed.memory.gradients_last != "backward":
            return outline
        # a single micro-batch has a ladder of its own: gradients are freed early
        single = rows[outline.select_rows(rows).layouts.microbatches(space.gbs) == 1]
        return outline.split(distinct_values(np.append(outline.first[:-1], single)))

    @property
    def capacity(self) -> float:
        """Memory of an accelerator [byte]."""
        return float(self.system.accelerator.visible_bytes)


class RoomBounds(NamedTuple):
    """Bounds on the memory that micro-batches of ladders leave to what is allocated.

    What a phase takes grows with the micro-batch no faster than in proportion, and from then on less: between
    two sizes it takes no less than on the straight line between what these take. The line ends where the
    phase that is full first is full.
    """

    most: Floats  # that any micro-batch leaves at the most [byte]
    free: Floats  # that the smallest leaves in the phase that is full first, 0 where it does not fit [byte]
    full_at: Floats  # how many times the smallest micro-batch fills this phase

    @classmethod
    def of_leanest(cls, several: Sequence["RoomBounds"]) -> "RoomBounds":
        """Return bounds that hold for the leanest of several."""
        if len(several) == 1:
            return several[0]
        return cls(*(np.max(of, axis=0) for of in zip(*several, strict=True)))

    def left_by(self, ladder: Ints, times: Floats) -> Floats:
        """Return how much micro-batches so many `times` as large as the smallest leave at the most [byte]."""
        taken = (times - 1) / np.maximum(self.full_at[ladder] - 1, SMALL)
        return np.minimum(self.most[ladder], self.free[ladder] * np.maximum(1 - taken, 0.0))


class Largest(NamedTuple):
    """How many of all micro-batches fit of ladders of layouts, with each number of replicas."""

    surely: Ints  # however sums are rounded
    maybe: Ints  # beyond which none does
    room: Floats  # that the smallest micro-batch leaves, negative where it does not fit [byte]
    bounds: RoomBounds


@dataclass(eq=False)
class Fitting:
    """Which layouts of a batch fit: of each ladder, those in its first rows."""

    outline: Outline
    candidates: int  # that fit
    most: Ints  # rows of each ladder beyond which no layout fits, however sums are rounded
    least: Ints  # rows of which all do, however sums are rounded
    # that the leanest layout with the smallest micro-batch of each ladder leaves to what is allocated,
    # negative where none fits [byte]
    room: Floats
    bounds: RoomBounds  # of the leanest layout with each micro-batch

    @classmethod
    def before_counting(cls, outline: Outline) -> "Fitting":
        """Return the state before any layout of an outline is counted."""
        most, least = np.zeros((2, len(outline.size)), np.int64)
        (room, most_room) = np.full((2, len(outline.size)), -np.inf)
        bounds = RoomBounds(most_room, np.zeros_like(room), np.ones_like(room))
        return cls(outline, 0, most, least, room, bounds)

    @property
    def may_fit(self) -> Rungs:
        """Rows of the outline of which some layout fits, or may but for rounding."""
        return Rungs(np.zeros_like(self.most), self.most)

    @property
    def may_not(self) -> Rungs:
        """Rows of the outline of which some layout does not fit, or may not but for rounding."""
        return Rungs(self.least, self.outline.size)

    def add(self, block: "_Block", largest: Largest) -> Ints:
        """Count layouts of ladders that fit; return ladders whose are not counted, for rounding."""
        if not len(block.counts):
            return block.counts
        surely, maybe = (of[block.taken] for of in largest[:2])
        number = at_most = block.number(surely)
        if len(close := np.flatnonzero(surely != maybe)):
            at_most = np.array(number)
            at_most[close] = block.number(maybe[close], close)
        self.most[block.ladders] = block.of_ladders(np.maximum, at_most)
        self.least[block.ladders] = block.of_ladders(np.minimum, number)
        rooms = zip((self.room, *self.bounds), (largest.room, *largest.bounds), strict=True)
        for known, of_layouts in rooms:
            known[block.ladders] = block.of_ladders(np.maximum, of_layouts[block.taken])
        near = np.zeros(len(block.counts), np.bool_)
        near[block.ladder[at_most > number]] = True
        self.candidates += int(np.where(near, 0, np.add.reduceat(number, block.layouts)) @ block.counts)
        return np.asarray(np.flatnonzero(near) + block.ladders.start)


class Census:
    """Counts of what fits of a search."""

    def __init__(self, searched: Searched, progress: Progress | None = None):
        outlines = searched.ladders
        batches = searched.batches
        self._assumed = searched.assumed
        self._outlines = outlines
        self._batches = batches
        self.capacity = searched.capacity
        gbs = next(iter(outlines.values())).space.gbs
        # number of micro-batches up to each number of sequences
        self._up_to = np.searchsorted(divisors(gbs), np.arange(gbs + 1), side="right")
        self._footprints: dict[Any, dict[str, Footprint]] = {}
        self._counted: dict[Any, Counted] = defaultdict(dict)  # operations of layers, recomputation aside
        self._layers: dict[str, Plans] = {}  # distinct ones, `experts_apart`, by strategy
        self._layer: dict[CandidateBatch, Ints] = {}  # place among these layers of each ladder of a shape
        of_strategy: dict[str, list[CandidateBatch]] = defaultdict(list)
        for shape in outlines:
            of_strategy[shape.strategy].append(shape)
        for name, shapes in of_strategy.items():
            used = [number_values(outlines[shape].space.layer_row) for shape in shapes]
            tables = [
                replace(outlines[shape].space.layers.take(layers), pp=1.0, dp=1.0)
                for shape, (layers, _) in zip(shapes, used, strict=True)
            ]
            self._layers[name], places = distinct_layers(tables)
            self._layer |= {
                shape: place[row] for shape, (_, row), place in zip(shapes, used, places, strict=True)
            }
        self._count_all(progress)

    def _count_all(self, progress: Progress | None = None) -> None:
        """Count what fits of every batch."""
        of_shape: dict[CandidateBatch, list[int]] = defaultdict(list)
        for index, batch in enumerate(self._batches):
            of_shape[batch.shape].append(index)
        found: dict[int, Fitting] = {}
        for hull, members in self._hulls().items():
            indices = [index for shape in members for index in of_shape[shape]]
            found |= zip(indices, self._count(hull, members, indices), strict=True)
            if progress is not None:
                of_batches = (self._outlines[self._batches[index].shape] for index in indices)
                counted = sum(int(outline.counts @ outline.size) for outline in of_batches)
                progress(len(found), len(self._batches), counted)
        self.fittings = [found[index] for index in range(len(self._batches))]

    @property
    def may_fit(self) -> dict[int, Rungs]:
        """Rows of the outline of each batch that may have layouts that fit."""
        return {index: fitting.may_fit for index, fitting in enumerate(self.fittings)}

    @property
    def rounding(self) -> float:
        """How far sums in another order may differ at the most [byte]."""
        return ROUNDING * self.capacity if np.isfinite(self.capacity) else 0.0

    @property
    def candidates(self) -> int:
        """Number of candidates that fit."""
        return sum(fitting.candidates for fitting in self.fittings)

    def least_memory(self, figure: Figure) -> dict[float, float]:
        """Return the least memory of all layouts with each value of a figure [byte]."""
        most: dict[float, float] = {}
        values: list[Floats] = []
        for fitting in self.fittings:
            space = fitting.outline.space
            first = np.searchsorted(space.degree, np.arange(len(space.fills.count)))
            values.append(np.broadcast_to(figure(space), np.shape(space.degree))[first])
            room_of_degrees = np.maximum.reduceat(fitting.room, first)
            for value, room in zip(values[-1].tolist(), room_of_degrees.tolist(), strict=True):
                most[value] = max(room, most.get(value, room))
        least = dict.fromkeys(sorted(most), np.inf)
        for index, (fitting, of_degree) in enumerate(zip(self.fittings, values, strict=True)):
            most_of_degree = np.array([most[value] for value in of_degree.tolist()])
            degree = fitting.outline.space.degree
            ladders = np.flatnonzero(fitting.bounds.most >= most_of_degree[degree] - self.rounding)
            if len(ladders):
                layouts, memory = self._exact(self._batches[index], fitting.outline.rows_of(ladders))
                value_of = np.broadcast_to(figure(layouts), np.shape(memory))
                for value in np.unique(of_degree[degree[ladders]]).tolist():
                    least[value] = min(least[value], float(memory[value_of == value].min()))
        return least

    def room_bounds(self, indices: Sequence[int]) -> RoomBounds:
        """Return what the layouts of each ladder leave, of the leanest of batches whose ladders are equal."""
        return RoomBounds.of_leanest([self.fittings[index].bounds for index in indices])

    def least_memory_with(self, room: Floats) -> Floats:
        """Return the least memory that leaves at most so much to what is allocated, up to rounding [byte]."""
        return self.capacity - (1 + self._assumed.memory.allocator_share) * room - self.rounding

    def leaner(self, rows: Mapping[int, Ints], most: Mapping[int, Floats]) -> dict[int, Ints]:
        """Return the rows of batches' outlines of which some layout needs at most so much memory [byte]."""
        spaces = tuple(
            of_batch(self.fittings[index].outline.layouts(mine), self._batches[index])
            for index, mine in rows.items()
        )
        lean = dict[int, Ints]()
        memory_of_spaces = layouts_memory(spaces, self._assumed, keep=False)
        for (index, mine), memory in zip(rows.items(), memory_of_spaces, strict=True):
            outline = self.fittings[index].outline
            if outline.replicas is not None:
                ladder, _ = outline.ladders(mine)
                number = outline.replicas.count[outline.replicas.kind[ladder]]
                memory = np.minimum.reduceat(memory, np.cumsum(number) - number)
            lean[index] = mine[memory <= most[index]]
        return lean

    def least_memory_of(self, index: int) -> float:
        """Return the least memory of a batch, up to rounding; infinite where it has no layouts [byte].

        Its layout has the smallest micro-batch of a ladder, but in rare ladders.
        """
        fitting = self.fittings[index]
        room = fitting.room.max(initial=-np.inf)
        least = float(self.least_memory_with(room) + self.rounding)
        ladders = np.flatnonzero(fitting.bounds.most > room + self.rounding)
        if len(ladders):
            _, memory = self._exact(self._batches[index], fitting.outline.rows_of(ladders))
            least = min(least, float(memory.min()))
        return least

    def nearest(self, index: int) -> Rungs:
        """Return the rows of a batch's outline that may have the layouts nearest to fitting without it."""
        fitting = self.fittings[index]
        outline = fitting.outline
        size = fitting.outline.size
        # the leanest of a ladder that does not fit, and those that may not but for rounding
        ends = np.minimum(fitting.most + 1, size)
        rows = ragged_ranges(outline.first[:-1] + fitting.least, ends - fitting.least, np.arange(len(size)))
        _, memory = self._exact(self._batches[index], rows)
        nearest = memory[memory > self.capacity].min(initial=np.inf)
        of_layouts = outline.ladders_of_layouts(rows)
        near = of_layouts[(memory > self.capacity) & (memory <= nearest + self.rounding)]
        high = np.zeros_like(size)
        high[near] = size[near]
        return Rungs(fitting.least, high)

    def _hulls(self) -> dict[CandidateBatch, dict[CandidateBatch, Ints]]:
        """Return the shapes whose ladders those of others are among, and of each of these which.

        Equal ladders of them have the same stages; shapes with replicas stay apart.
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
        """Return a number for each ladder of a shape, different ones for different ladders."""
        space = self._outlines[shape].space
        layer = self._layer[shape]
        degrees = divisors(space.gpus[0])
        layouts = space.layouts
        pipeline = layer * len(degrees) + np.searchsorted(degrees, layouts.pp)
        return np.asarray(pipeline * (space.model.most_chunks + 1) + layouts.vp, np.int64)

    def _exact(self, batch: CandidateBatch, rows: Ints) -> tuple[Space, Floats]:
        """Return the layouts of rows of a batch's outline, and their memory [byte]."""
        space = of_batch(self._outlines[batch.shape].layouts(rows), batch)
        return space, layouts_memory((space,), self._assumed, keep=False)[0]

    def _count(
        self, hull: CandidateBatch, members: Mapping[CandidateBatch, Ints], indices: Sequence[int]
    ) -> list[Fitting]:
        """Return what fits of batches whose shapes have the same hull."""
        shapes = [self._batches[index].shape for index in indices]
        fittings = [Fitting.before_counting(self._outlines[shape]) for shape in shapes]
        for ladders, ladder, every in self._blocks(hull, indices):
            blocks = {
                shape: _Block.from_ladders(self._outlines[shape], places, ladders, ladder)
                for shape, places in members.items()
            }
            for index, shape, fitting, largest in zip(indices, shapes, fittings, every, strict=True):
                near = fitting.add(blocks[shape], largest)
                if len(near):
                    rows = fitting.outline.rows_of(near)
                    layouts, memory = self._exact(self._batches[index], rows)
                    fitting.candidates += int(layouts.counts[memory <= self.capacity].sum())
        return fittings

    def _blocks(
        self, hull: CandidateBatch, indices: Sequence[int]
    ) -> Iterator[tuple[slice, Ints, Iterator[Largest]]]:
        """Yield blocks of a hull's ladders, that of each number of replicas, and what fits of batches."""
        outline = self._outlines[hull]
        usual = {name: DEFAULTS[name] for name, _ in hull.choices}
        given = [
            outline.space.layouts.replace_columns(**usual | dict(self._batches[i].choices)).ready(
                self._assumed
            )
            for i in indices
        ]
        around_working: Sequence[str] = AROUND_WORKING
        if self._assumed.memory.keeps_frozen_layers and outline.space.model.adapters is not None:
            around_working = tuple(set(AROUND_WORKING) - {"zero"})
        of_batches = [_BatchLayouts.from_plans(plans, around_working) for plans in given]
        number = len(outline.size)
        for low in range(0, number, LADDERS_PER_BLOCK):
            ladders = slice(low, min(low + LADDERS_PER_BLOCK, number))
            every = np.arange(ladders.start, ladders.stop)
            if outline.replicas is None:
                yield ladders, every - low, self._largest(hull, of_batches, ladders)
            else:
                ladder, replicas = outline.replicas.expand(every)
                yield ladders, ladder, self._largest(hull, of_batches, ladders, ladder, replicas)

    def _largest(
        self,
        hull: CandidateBatch,
        of_batches: Sequence["_BatchLayouts"],
        ladders: slice,
        ladder: Ints | None = None,
        replicas: Column = 1.0,
    ) -> Iterator[Largest]:
        """Yield the largest micro-batches of ladders that fit in each of batches.

        With replicas, `ladder` is that of each number of them.
        """
        space = self._outlines[hull].space
        every = np.arange(ladders.start, ladders.stop)
        devices = held_by = stages(space.model, space.layouts.take(ladders))
        if ladder is not None:
            held_by = devices.take(ladder)
            every = every[ladder]
        mbs = space.layouts.take(every).mbs
        taken: dict[Any, Held] = {}
        stored: dict[Any, list[StoredWeights]] = {}
        left: dict[Any, list[list[MemoryLeft]]] = {}
        found: dict[Any, Largest] = {}
        beside: dict[Any, list[BesideActivations]] = {}
        for one in of_batches:
            key = one.by_held, one.by_working
            if one.by_held not in taken:
                plans = one.plans.take(every).replace_columns(replicas=replicas)
                taken[one.by_held] = self._held_bytes(plans, hull, every, held_by, stored)
            if one.by_working not in left:
                left[one.by_working] = self._left_on_devices(one, hull, ladders, devices, beside)
            if key not in found:
                found[key] = self._largest_fitting(
                    taken[one.by_held], left[one.by_working], mbs, space.gbs, ladder
                )
            yield found[key]

    def _largest_fitting(
        self, taken: Held, left: Sequence[Sequence[MemoryLeft]], mbs: Column, gbs: int, ladder: Ints | None
    ) -> Largest:
        """Return the largest micro-batches that fit, given what devices hold, and what smaller ones leave."""
        every = slice(None) if ladder is None else ladder
        room = np.full(np.shape(mbs), np.inf)
        room_before = np.full(np.shape(mbs), np.inf)  # in phases in which larger micro-batches need more
        room_at_most = np.full(np.shape(mbs), np.inf)  # in the others, with any micro-batch
        of_phases = list[tuple[Column, PhaseLeft]]()
        for of_states, of_device in zip(taken, left, strict=True):
            for alike in of_device:
                states = alike.taken(of_states, every)
                if states is None:
                    continue
                for phase in alike.phases:
                    free: Column = take_rows(phase.most, every) - states
                    of_phases.append((free, phase))
                    room = np.minimum(room, free)
                    if phase.growing.shrinks_somewhere:
                        largest_room = phase.growing.take(every).most_room(free)
                        room_at_most = np.minimum(room_at_most, largest_room)
                    elif phase.growing.may_shrink:
                        room_at_most = np.minimum(room_at_most, free)
                    else:
                        room_before = np.minimum(room_before, free)
        # the smallest micro-batch of most ladders does not fit, nor does a larger one
        rows = np.flatnonzero(room_before >= -self.rounding)
        ratios = np.full((2, len(rows)), np.inf)  # however sums are rounded, and in some order of them
        full_at = np.full(len(rows), np.inf)
        free_in_fullest = np.full(len(rows), np.inf)
        of_ladders = rows if ladder is None else ladder[rows]
        for free, phase in of_phases:
            some: Any = slice(None)
            if isinstance(phase.may_decide, np.ndarray):
                some = np.flatnonzero(phase.may_decide[of_ladders])
            growing = phase.growing.take(of_ladders[some])
            of_rows = take_rows(free, rows[some])
            surely = growing.largest_microbatch(of_rows - self.rounding)
            bound = growing.no_larger_microbatch if growing.may_shrink else growing.largest_microbatch
            at_most = bound(of_rows + self.rounding)
            ratios[0, some] = np.minimum(ratios[0, some], surely)
            ratios[1, some] = np.minimum(ratios[1, some], at_most)
            if phase.may_decide is None and not growing.may_shrink:
                np.copyto(free_in_fullest, of_rows, where=at_most < full_at)
                np.minimum(full_at, at_most, out=full_at)
        fitting = np.zeros((2, len(room)), np.int64)
        fitting[:, rows] = self._up_to[np.clip(ratios * take_rows(mbs, rows), 0, gbs).astype(np.int64)]
        bounds = RoomBounds(np.minimum(room_before, room_at_most), np.zeros_like(room), np.ones_like(room))
        bounds.free[rows] = free_in_fullest + self.rounding
        bounds.full_at[rows] = full_at
        return Largest(fitting[0], fitting[1], room, bounds)

    def _held_bytes(
        self,
        plans: Plans,
        shape: CandidateBatch,
        ladders: Ints,
        devices: Stages,
        stored: dict[Any, list[StoredWeights]],
    ) -> Held:
        """Return all that devices hold, and gradients alone, of layouts of some ladders [byte].

        `stored` keeps what batches share.
        """
        footprints = self._parts(plans, shape, ladders)
        key = _key(plans, AROUND_FOOTPRINT)
        if key not in stored:
            stored[key] = [StoredWeights.for_device(parts, footprints) for parts in devices.stored_parts]
        of_devices = (one.memory(footprints, plans, self._assumed) for one in stored[key])
        return [TakenMemory.from_weights(one, self._assumed) for one in of_devices]

    def _left_on_devices(
        self,
        batch: "_BatchLayouts",
        shape: CandidateBatch,
        ladders: slice,
        devices: Stages,
        beside: dict[Any, list[BesideActivations]],
    ) -> list[list[MemoryLeft]]:
        """Return what is left for states in ladders on each device; `beside` keeps what batches share."""
        gbs = self._outlines[shape].space.gbs
        assumed = self._assumed
        plans = batch.plans.take(ladders)
        footprints = self._parts(plans, shape, ladders)
        nm = plans.microbatches(gbs)
        if batch.by_beside not in beside:
            beside[batch.by_beside] = BesideActivations.of_devices(footprints, plans, devices, gbs, assumed)
        return [
            one.working_memory(footprints, plans, devices, i, assumed).left_for_states(
                nm, self.capacity, assumed
            )
            for i, one in enumerate(beside[batch.by_beside])
        ]

    def _parts(self, plan: Plans, shape: CandidateBatch, ladders: Any) -> dict[str, Any]:
        """Return the footprints of parts in ladders."""
        key = shape.strategy, _key(plan, AROUND_FOOTPRINT)
        if key not in self._footprints:
            given = plan.choices() | {"recompute_every": plan.recompute_every}
            layers = replace(self._layers[shape.strategy], **given)
            counted = self._counted[shape.strategy, _key(plan, AROUND_OPERATIONS)]
            operations = parts(self._outlines[shape].space.model, layers, self._assumed, counted)
            self._footprints[key] = {
                name: Footprint.from_operations(part, layers) for name, part in operations.items()
            }
        place = self._layer[shape][ladders]
        layer = place % np.size(self._layers[shape.strategy].mbs)
        return {name: _FootprintRows(part, place, layer) for name, part in self._footprints[key].items()}


class _FootprintRows:
    """Rows of a footprint of layers `experts_apart`, each figure's taken when it is read."""

    def __init__(self, footprint: Footprint, place: Ints, layer: Ints):
        self._footprint = footprint
        self._place = place
        self._layer = layer

    def __getattr__(self, figure: str) -> Column:
        rows: Column = getattr(self._footprint, figure)
        if isinstance(rows, np.ndarray) and not rows.any():
            rows = 0.0  # which sums and maxima leave out
        elif isinstance(rows, np.ndarray):
            rows = rows[self._layer] if rows.ndim == 1 else rows.ravel()[self._place]
        setattr(self, figure, rows)
        return rows


class _BatchLayouts(NamedTuple):
    """Layouts of a hull with the choices of a batch, and the choices that parts of their memory depend on."""

    plans: Plans
    by_held: Any
    by_working: Any
    by_beside: Any

    @classmethod
    def from_plans(cls, plans: Plans, around_working: Sequence[str]) -> "_BatchLayouts":
        """Return layouts with their keys."""
        return cls(plans, *(_key(plans, omitted) for omitted in (AROUND_HELD, around_working, AROUND_BESIDE)))


class _Block(NamedTuple):
    """Ladders of a shape among those of a block of its hull's; a layout of one has a number of replicas."""

    taken: Ints | slice  # index of their layouts among those of the block
    ladders: slice  # of the shape
    counts: Ints  # candidates of a layout in a row of each ladder
    layouts: Ints  # first layout of each ladder
    ladder: Ints  # of each layout, among these
    kind: Ints  # of each layout's ladder, a row of `up_to`
    up_to: Ints  # of the outline

    @classmethod
    def from_ladders(cls, outline: Outline, places: Ints, ladders: slice, ladder: Ints) -> "_Block":
        """Return the ladders of an outline at ascending places in its hull, given that of each layout."""
        mine = slice(*map(int, np.searchsorted(places, (ladders.start, ladders.stop))))
        every = mine.stop - mine.start == ladders.stop - ladders.start
        local = places[mine] - ladders.start
        taken = slice(None) if every else np.flatnonzero(np.isin(ladder, local))
        of_layouts = np.searchsorted(local, ladder[taken])
        layouts = np.searchsorted(of_layouts, np.arange(len(local)))
        counts = outline.space.counts[mine]
        kind = outline.kind[mine][of_layouts]
        return cls(taken, mine, counts, layouts, of_layouts, kind, outline.up_to)

    def of_ladders(self, extreme: np.ufunc, values: "NDArray[Value]") -> "NDArray[Value]":
        """Return the largest or the smallest value of the layouts of each ladder."""
        if len(self.layouts) == len(values):
            return values
        return np.asarray(extreme.reduceat(values, self.layouts))

    def number(self, microbatches: Ints, layouts: Any = slice(None)) -> Ints:
        """Count the rows with one of the first micro-batches, of the ladder of each of some layouts."""
        return np.asarray(self.up_to[self.kind[layouts], microbatches])


def _key(plan: Plans, around: Sequence[str]) -> Any:
    """Return the choices of plans, and how often layers recompute and offload, but for some of them.

    Overlapped exchanges with experts take memory only where a schedule runs micro-batches ahead for them.
    """
    given = plan.choices() | {name: getattr(plan, name) for name in EVERY}
    given["ep_overlap"] = plan.ep_overlap and SCHEDULES[plan.schedule].ahead_of_exchanges > 0
    modules = offloaded_activations(plan.offload) - {"activations"}  # whose bytes footprints have
    return *(value for name, value in given.items() if name not in around), modules


def _among(numbers: Ints, all_numbers: Ints) -> Ints | None:
    """Return the places of numbers among others in the same order; None where some are not there."""
    there = np.zeros(1 + max(numbers.max(initial=0), all_numbers.max(initial=0)), np.bool_)
    there[numbers] = True
    places = np.flatnonzero(there[all_numbers])
    return places if np.array_equal(all_numbers[places], numbers) else None
