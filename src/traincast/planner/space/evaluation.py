"""Evaluate spaces on one machine or on many: which layouts fit, and the least time of each.

Memory is computed first, for layouts; only candidates that fit are placed and timed. Machines are columns:
those that differ only in memory share their times. Memory and the candidates to be timed do not depend on the
machine: the last ones are cached.

What wraps the layers (schedule, ZeRO, offload, ...) is computed together for all spaces that have it in
common, however they shard and recompute a layer: a call of `step` has a fixed cost.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from traincast.catalog import with_fitted_values
from traincast.core import (
    CAPACITY_PATH,
    STRATEGIES,
    Assumptions,
    Column,
    Floats,
    Ints,
    Plans,
    System,
    distinct_values,
    offloaded_activations,
)
from traincast.model import Model
from traincast.operations import Counted, Operation, parts
from traincast.planner.space.group_places import MOST_NEAR, near_members
from traincast.planner.space.search_space import Shards, Space, distinct_rows, stack_columns
from traincast.step import (
    Costs,
    Footprint,
    PartCosts,
    Stages,
    cost_part,
    fullest_bytes,
    stages,
    step,
    step_seconds_bound,
)
from traincast.times import SCHEDULES, OperationPasses, OperationTimer

OUT_OF_MEMORY: Final = "does not fit in memory"
CANDIDATES_PER_BLOCK: Final = 1 << 15  # timed at once, so that columns stay in the processor's cache
SHARDS_PER_BLOCK: Final = 1 << 13  # counted and timed at once, with hundreds of columns
LAYOUTS_PER_GROUP: Final = 1 << 18  # of spaces evaluated together, a second's work or so
CACHED_SPACES: Final = 8  # spaces whose memory and candidates are cached for the next machine
KEPT: Final = 1 << 17  # layouts up to which the columns that bounds read are cached as well
# Choices that `step` and `fullest_bytes` do not read: they see them in the costs and footprints of a layer.
OF_LAYERS: Final = ("tp_kind", "cp_kind", "attention", "tp_overlap", "recompute")
# Choices that the passes of a layer's operations do not depend on; their times do as `_sharing_layers` says.
AROUND_LAYERS: Final = (
    "zero",
    "layout",
    "dp_overlap",
    "schedule",
    "offload",
    "recompute",
    "tp_overlap",
    "ep_overlap",
)
# Layouts up to which batches that differ in recomputation share shards, the same for each
LAYOUTS_SHARING_SHARDS: Final = 1 << 19
Parts: TypeAlias = dict[str, tuple[Operation, ...]]
Passed: TypeAlias = tuple[str, bool]  # recomputation, and whether exchanges with experts are overlapped


class Gathered(NamedTuple):
    """Candidates of layouts of several spaces as columns, one space after the other."""

    pieces: list[tuple[int, slice, Ints]]  # space, which of its layouts, row of each candidate in its table
    plans: Plans
    stages: Stages
    starts: Ints  # first candidate of each layout


def gather_candidates(
    spaces: Sequence[Space],
    layouts: Sequence[Ints],
    portion: Callable[[int, Ints], tuple[Ints, Plans, Ints]],
    counts: Sequence[Ints],
    ordered: bool = False,
) -> Iterator[Gathered]:
    """Yield the candidates of rows of layouts of spaces `with_assumptions`, together where `step` allows it.

    `portion` returns the candidates of rows of one of the spaces: their rows in its table of parts, their
    plans, and the first of each layout; `counts` has their number. If `ordered`, orders of ranks stay apart.
    """
    together: dict[Any, list[int]] = {}
    for index, space in enumerate(spaces):
        if len(layouts[index]):
            together.setdefault(_choices_around_layers(space, ordered), []).append(index)
    for members in together.values():
        for pieces in _pieces([counts[i] for i in members]):
            of_spaces = [(members[i], some) for i, some in pieces]
            portions = (portion(i, layouts[i][some]) for i, some in of_spaces)
            rows, plans, first = zip(*portions, strict=True)
            columns = stack_columns(plans, list(map(len, rows)))
            before = np.cumsum([0, *map(len, rows)])
            starts = np.concatenate([some + low for some, low in zip(first, before, strict=False)])
            places = [(*piece, of_piece) for piece, of_piece in zip(of_spaces, rows, strict=True)]
            yield Gathered(places, columns, stages(spaces[0].model, columns), starts)


def least_of_layouts(
    blocks: Iterable[Gathered],
    sizes: Iterable[int],
    tables: Sequence[Mapping[str, Any]],
    figure: Callable[[Mapping[str, Any], Plans, Stages], Column],
    chosen: Sequence[Ints] | None = None,
) -> list[Floats]:
    """Return a figure of the layouts of each of several spaces, the least over the candidates of each.

    Parameters
    ----------
    blocks : iterable of Gathered
        The candidates.
    sizes : iterable of int
        Number of layouts of each space.
    tables : sequence of mapping
        Footprints or costs of the parts of the model of each space, as columns.
    figure : callable
        Returns the figure of candidates from these of their parts, the plans and their stages; it may read
        only those choices that are not `OF_LAYERS`.
    chosen : sequence of array of int, optional
        Set to the number of the first candidate of each layout that has the least.
    """
    least = [np.empty(size) for size in sizes]
    for pieces, plans, devices, starts in blocks:
        numbers = [len(rows) for *_, rows in pieces]
        taken = [{name: part.take(rows) for name, part in tables[i].items()} for i, _, rows in pieces]
        parts = {name: stack_columns([of_piece[name] for of_piece in taken], numbers) for name in taken[0]}
        values = np.broadcast_to(figure(parts, plans, devices), sum(numbers))
        lowest = np.minimum.reduceat(values, starts)
        ends = np.cumsum([some.stop - some.start for _, some, _ in pieces])[:-1]
        for (i, some, _), of_piece in zip(pieces, np.split(lowest, ends), strict=True):
            least[i][some] = of_piece
        if chosen is not None:
            candidates = _first_at(values, lowest, starts)
            for (i, some, _), of_piece in zip(pieces, np.split(candidates, ends), strict=True):
                chosen[i][some] = of_piece
    return least


def _first_at(values: Floats, lowest: Floats, starts: Ints) -> Ints:
    """Return the place in each stretch of values of the first that is the lowest; `starts` of stretches."""
    lengths = np.diff(starts, append=len(values))
    at = np.flatnonzero(values == np.repeat(lowest, lengths))
    stretch = np.repeat(np.arange(len(starts)), lengths)[at]
    return np.asarray(at[np.searchsorted(stretch, np.arange(len(starts)))] - starts)


def _choices_around_layers(space: Space, ordered: bool) -> tuple[Any, ...]:
    """Return what spaces must have in common to be evaluated together: all that wraps their layers."""
    choices = space.layouts.choices()
    if not ordered:
        del choices["order"]
    # whether transfers between stages can be scattered over tp
    second = STRATEGIES[space.strategy].second is None
    return (second, *(value for name, value in choices.items() if name not in OF_LAYERS))


def _pieces(sizes: Sequence[Ints]) -> Iterator[list[tuple[int, slice]]]:
    """Yield rows of lists in order, as pairs of list and slice, of `CANDIDATES_PER_BLOCK` candidates each."""
    first = np.cumsum([0, *map(len, sizes)])
    ends = np.cumsum(np.concatenate(sizes))
    low = 0
    while low < len(ends):
        begin = ends[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(ends, begin + CANDIDATES_PER_BLOCK, side="right")))
        begin_list, end_list = np.searchsorted(first, (low, high - 1), side="right")
        yield [
            (i, slice(int(max(low - first[i], 0)), int(min(high - first[i], len(sizes[i])))))
            for i in range(begin_list - 1, end_list)
            if len(sizes[i])
        ]
        low = high


def _sharing_layers(spaces: Sequence[Space], timed: bool = True) -> list[list[int]]:
    """Return the indices of spaces whose layers have the same operations, recomputation aside.

    If `timed`, the passes of these also take the same time.
    """
    together: dict[Any, list[int]] = {}
    for index, space in enumerate(spaces):
        plans = space.layouts
        key = [value for name, value in plans.choices().items() if name not in (*AROUND_LAYERS, "order")]
        key += [offloaded_activations(plans.offload) - {"activations"}]  # whose bytes footprints have
        if timed:
            # tp and cp come first in every order; experts take ranks of all axes
            key += [space.batch.experts and plans.order]
            key += [plans.tp_overlap, space.batch.overlaps_in_domain, plans.ep_overlap]
            key += [bool(offloaded_activations(plans.offload))]
        together.setdefault(tuple(key), []).append(index)
    return list(together.values())


def groups(spaces: Sequence[Space]) -> Iterator[list[int]]:
    """Yield the indices of spaces in groups of some `LAYOUTS_PER_GROUP`, those that share layers together."""
    group: list[int] = []
    for members in _sharing_layers(spaces):
        group += members
        if sum(len(spaces[index].layer_row) for index in group) >= LAYOUTS_PER_GROUP:
            yield group
            group = []
    if group:
        yield group


def _by_recompute(spaces: Sequence[Space], members: Sequence[int]) -> dict[str, list[int]]:
    """Return the members with each value of `recompute`."""
    groups: dict[str, list[int]] = {}
    for index in members:
        groups.setdefault(spaces[index].layouts.recompute, []).append(index)
    return groups


@lru_cache(CACHED_SPACES)
def completed_spaces(spaces: tuple[Space, ...], assumed: Assumptions) -> tuple[Space, ...]:
    """Return spaces `with_assumptions`, the same ones each time."""
    return tuple(space.with_assumptions(assumed) for space in spaces)


def layouts_memory(spaces: tuple[Space, ...], assumed: Assumptions, keep: bool = True) -> list[Floats]:
    """Return the memory of the fullest rank of every layout of spaces [byte], cached as long as they are.

    They are kept for the next machine if `keep`.
    """
    complete = completed_spaces if keep else completed_spaces.__wrapped__
    return _known_memory(complete(spaces, assumed), assumed)


def _known_memory(spaces: tuple[Space, ...], assumed: Assumptions) -> list[Floats]:
    """Return `layouts_memory` of spaces `with_assumptions`."""
    missing = [space for space in spaces if assumed not in _MEMORY.setdefault(space, {})]
    for space, memory in zip(missing, _layouts_memory(missing, assumed) if missing else (), strict=True):
        _MEMORY[space][assumed] = memory
    return [_MEMORY[space][assumed] for space in spaces]


_MEMORY: Final = WeakKeyDictionary[Space, dict[Assumptions, Floats]]()


def _layouts_memory(spaces: Sequence[Space], assumed: Assumptions) -> list[Floats]:
    """Compute `layouts_memory` of spaces `with_assumptions`."""
    footprints: dict[int, dict[str, Footprint]] = {}
    layer_rows: dict[int, Ints] = {}
    for members in _sharing_layers(spaces, timed=False):
        every_layer, places = distinct_rows([spaces[i].layers for i in members])
        layer_rows |= {i: place[spaces[i].layer_row] for i, place in zip(members, places, strict=True)}
        counted: Counted = {}
        for recompute, same in _by_recompute(spaces, members).items():
            layers = replace(every_layer, recompute=recompute)
            operations = parts(spaces[0].model, layers, assumed, counted)
            of_parts = {
                part: Footprint.from_operations(of_part, layers) for part, of_part in operations.items()
            }
            footprints |= dict.fromkeys(same, of_parts)

    def portion(index: int, rows: Ints) -> tuple[Ints, Plans, Ints]:
        return layer_rows[index][rows], spaces[index].layouts.take(rows), np.arange(len(rows))

    def fullest(of_parts: Mapping[str, Footprint], plans: Plans, devices: Stages) -> Column:
        return fullest_bytes(of_parts, plans, devices, spaces[0].gbs, assumed)

    layouts = [np.arange(len(space.layer_row)) for space in spaces]
    blocks = gather_candidates(spaces, layouts, portion, list(map(np.ones_like, layouts)))
    tables = [footprints[index] for index in range(len(spaces))]
    return least_of_layouts(blocks, map(len, layouts), tables, fullest)


class CandidateBlock(NamedTuple):
    """Candidates that are timed together."""

    rows: slice  # of the layouts that are timed
    shard: Ints  # of each candidate
    plans: Plans
    stages: Stages
    starts: Ints  # first candidate of each layout


@dataclass(frozen=True, eq=False)
class TimedCandidates:
    """Candidates to be timed on any machine: the layouts that fit, and their shards."""

    space: Space  # `with_assumptions`
    fitting: Ints  # rows of `space.layouts`, shape (fitting,)
    shards: Shards
    kept: bool = True  # whether they are kept for the next machine

    def blocks(self, size: int) -> Iterator[CandidateBlock]:
        """Yield blocks of about `size` candidates, of at least one layout each."""
        ends = np.cumsum(self.space.counts[self.fitting])
        low = 0
        while low < len(ends):
            begin = ends[low - 1] if low else 0
            high = max(low + 1, int(np.searchsorted(ends, begin + size, side="right")))
            yield self._only_block if high - low == len(ends) else self._block(slice(low, high))
            low = high

    @cached_property
    def _only_block(self) -> CandidateBlock:
        """All candidates as one block, which the next machine uses as well."""
        return self._block(slice(0, len(self.fitting)))

    def _block(self, rows: slice) -> CandidateBlock:
        """Return the candidates of some of the layouts."""
        space = self.space
        position, fill = space.candidates(self.fitting[rows])
        layout = self.fitting[rows][position]
        shard = self.shards.row[space.layer_row[layout], space.fills.layer_placement[fill]]
        starts = np.flatnonzero(np.diff(position, prepend=-1))
        plans = space.plans(layout, fill)
        return CandidateBlock(rows, shard, plans, stages(space.model, plans), starts)


@lru_cache(CACHED_SPACES)
def _timed_candidates(
    spaces: tuple[Space, ...], assumed: Assumptions, capacity: float, above: float
) -> list[TimedCandidates]:
    """Return the candidates of the layouts that need at most `capacity` and more than `above` [byte]."""
    return _candidates_that_fit(completed_spaces(spaces, assumed), assumed, capacity, above)


def _candidates_that_fit(
    completed: tuple[Space, ...], assumed: Assumptions, capacity: float, above: float, kept: bool = True
) -> list[TimedCandidates]:
    """Return `_timed_candidates` of spaces `with_assumptions`."""
    fitting = [
        np.flatnonzero((memory <= capacity) & (memory > above))
        for memory in _known_memory(completed, assumed)
    ]
    timed: dict[int, TimedCandidates] = {}
    for members in _sharing_layers(completed):
        for group in _small_groups(completed, fitting, members):
            of_shape: dict[int, list[int]] = {}  # spaces of one shape, whose shards share a table
            for i in group:
                of_shape.setdefault(id(completed[i].layer_row), []).append(i)
            tables = [
                Shards.from_rows(
                    completed[same[0]], distinct_values(np.concatenate([fitting[i] for i in same]))
                )
                for same in of_shape.values()
            ]
            for same, shards in zip(of_shape.values(), Shards.together(tables), strict=True):
                timed |= {i: TimedCandidates(completed[i], fitting[i], shards, kept) for i in same}
    return [timed[i] for i in range(len(completed))]


def _small_groups(
    spaces: Sequence[Space], fitting: Sequence[Ints], members: Sequence[int]
) -> Iterable[list[int]]:
    """Return groups of members to share shards: all, or by recomputation where that takes less memory."""
    if sum(len(fitting[i]) for i in members) < LAYOUTS_SHARING_SHARDS:
        return [list(members)]
    return _by_recompute(spaces, members).values()


@lru_cache(CACHED_SPACES)
def _operations(
    plans: Plans, model: Model, assumed: Assumptions, recomputes: tuple[str, ...]
) -> dict[str, Parts]:
    """Return the operations of shards by recomputation, kept for the next machine."""
    counted: Counted = {}
    return {name: parts(model, replace(plans, recompute=name), assumed, counted) for name in recomputes}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Memory and times of a space on machines."""

    timed: TimedCandidates
    system: System  # figures may be columns over machines
    assumptions: Assumptions
    memory: Floats  # of every layout, shape (layouts,) [byte]
    machines: System  # those that differ in more than memory
    timing: Ints  # which of them each machine is, shape (machines,)
    costs: Costs  # of each part of the model, columns of shape (timings, shards)

    @property
    def space(self) -> Space:
        """Space of the candidates, `with_assumptions`."""
        return self.timed.space

    @property
    def fitting(self) -> Ints:
        """Layouts that fit on the machine with the most memory, ascending; shape (fitting,)."""
        return self.timed.fitting

    @property
    def shards(self) -> Shards:
        """Shards of the layouts that fit."""
        return self.timed.shards

    @cached_property
    def least_seconds(self) -> Floats:
        """Least time over the fills of each layout that fits, shape (timings, fitting) [s]."""
        # machines down
        across = self.machines.take((slice(None), None))
        gbs = self.space.gbs
        number = self.machines.machines()
        least = np.empty((number, len(self.fitting)))
        for block in self.timed.blocks(max(CANDIDATES_PER_BLOCK // number, 1)):
            costs = take_costs(self.costs, (..., block.shard))
            time = step(costs, block.plans, block.stages, gbs, across, self.assumptions)
            least[:, block.rows] = np.minimum.reduceat(np.atleast_2d(time.seconds), block.starts, axis=1)
        return least

    def outcomes(self, machine: int = 0) -> list["StrategyResult"]:
        """Return the results on a machine (row of the system's columns), one for each number of GPUs."""
        return [StrategyResult(self, machine, job) for job in range(len(self.space.gpus))]

    def candidates(self, machine: Ints, layout: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the candidates of pairs of machine and layout: number of the pair, fill, and time [s].

        `machine` and `layout` have shape (pairs,): row of the system's columns, row of `space.layouts`.
        """
        space = self.space
        pair, fill = space.candidates(layout)
        seconds = np.empty(len(pair))
        for low in range(0, len(pair), CANDIDATES_PER_BLOCK):
            rows = slice(low, low + CANDIDATES_PER_BLOCK)
            layouts = layout[pair[rows]]
            machines = machine[pair[rows]]
            shard = self.shards.row[space.layer_row[layouts], space.fills.layer_placement[fill[rows]]]
            costs = take_costs(self.costs, (self.timing[machines], shard))
            plans = space.plans(layouts, fill[rows])
            devices = stages(space.model, plans)
            system = self.system.take(machines)
            time = step(costs, plans, devices, space.gbs, system, self.assumptions)
            seconds[rows] = time.seconds
        return pair, fill, seconds


def evaluate(space: Space, system: System, assumed: Assumptions, above: float = 0.0) -> Evaluation:
    """Evaluate one space, as `evaluate_all` does several."""
    return evaluate_all((space,), system, assumed, above)[0]


def evaluate_all(
    spaces: tuple[Space, ...], system: System, assumed: Assumptions, above: float = 0.0, keep: bool = True
) -> list[Evaluation]:
    """Compute the memory of every layout, and the costs of the shards of those that fit on some machine.

    `system` is one machine, or columns of machines with the same fast domain; layouts that need no more
    memory than `above` [byte] are left out. What the next machine can use is kept if `keep`: not of spaces
    that it will not ask for.
    """
    assumed = with_fitted_values(system, assumed)
    capacity = float(np.max(system.accelerator.visible_bytes))
    machines, timing = _distinct_timings(system)
    across = machines.take((slice(None), None))  # machines down, shards across
    if keep:
        memory = layouts_memory(spaces, assumed)
        candidates = _timed_candidates(spaces, assumed, capacity, above)
    else:
        completed = completed_spaces.__wrapped__(spaces, assumed)
        memory = _known_memory(completed, assumed)
        candidates = _candidates_that_fit(completed, assumed, capacity, above, kept=False)
    together: dict[int, list[TimedCandidates]] = {}
    for timed in candidates:
        together.setdefault(id(timed.shards.plans), []).append(timed)
    costs: dict[Any, Costs] = {}
    for key, same in together.items():
        passed = dict.fromkeys(passed_as(timed.space.layouts) for timed in same)
        of_shards = costs_of(same[0].shards.plans, spaces[0].model, list(passed), across, assumed, keep)
        for choices, of_parts in of_shards.items():
            whole = {
                part: replace(of_part, weight=0.0, dispatch_weight=0.0) for part, of_part in of_parts.items()
            }
            costs |= {(key, choices, True): of_parts, (key, choices, False): whole}

    def costs_for(timed: TimedCandidates) -> Costs:
        plans = timed.space.layouts
        return costs[id(timed.shards.plans), passed_as(plans), SCHEDULES[plans.schedule].splits_backward]

    return [
        Evaluation(timed, system, assumed, used, machines, timing, costs_for(timed))
        for timed, used in zip(candidates, memory, strict=True)
    ]


def passed_as(plans: Plans) -> Passed:
    """Return the choices that the passes of a layer depend on, and its collectives do not."""
    return plans.recompute, plans.ep_overlap


def costs_of(
    plans: Plans,
    model: Model,
    passed: Sequence[Passed],
    across: System,
    assumed: Assumptions,
    keep: bool = True,
) -> dict[Passed, Costs]:
    """Return the costs of shards by `passed_as`; columns of shape (machines, shards).

    `across` has the machines down. The operations are kept for the next machine if `keep`.
    """
    number = np.size(plans.mbs)
    blocks: dict[Passed, list[Costs]] = {choices: [] for choices in passed}
    shapes: list[tuple[int, ...]] = []
    for low in range(0, max(number, 1), SHARDS_PER_BLOCK):
        only = number <= SHARDS_PER_BLOCK
        block = plans if only else plans.take(slice(low, low + SHARDS_PER_BLOCK))
        shape = across.machines(), min(number - low, SHARDS_PER_BLOCK)
        shapes.append(shape)
        passes: dict[Any, list[OperationPasses]] = {}
        count = _operations if only and keep else _operations.__wrapped__  # blocks of many are not kept
        counted = count(block, model, assumed, tuple(dict.fromkeys(recompute for recompute, _ in passed)))
        of_block = OperationTimer(block, across, assumed)
        for (recompute, overlaps), of_blocks in blocks.items():
            timer = of_block.for_plans(replace(block, recompute=recompute, ep_overlap=overlaps))
            of_parts = {}
            for part, of_part in counted[recompute].items():
                if (part, overlaps) not in passes:
                    passes[part, overlaps] = timer.time_passes(of_part)
                cost = cost_part(timer.time_part(of_part, passes[part, overlaps]), timer.plan)
                of_parts[part] = cost.broadcast(shape)
            of_blocks.append(of_parts)
    if len(shapes) == 1:
        return {choices: of_blocks[0] for choices, of_blocks in blocks.items()}
    return {choices: _side_by_side(of_blocks, shapes) for choices, of_blocks in blocks.items()}


def _side_by_side(blocks: Sequence[Costs], shapes: Sequence[tuple[int, ...]]) -> Costs:
    """Return the costs of blocks of shards, of some shapes (machines, shards), as one."""

    def column(values: Sequence[Column]) -> Column:
        if not any(map(np.ndim, values)):
            return 0.0  # as in each block: see `PartCosts.broadcast`
        pairs = zip(values, shapes, strict=True)
        return np.concatenate([np.broadcast_to(value, shape) for value, shape in pairs], axis=-1)

    of_parts = {part: zip(*(block[part].columns for block in blocks), strict=True) for part in blocks[0]}
    return {part: PartCosts(*map(column, columns)) for part, columns in of_parts.items()}


def least_times(
    evaluations: Sequence[Evaluation],
    layouts: Sequence[Ints],
    machine: int = 0,
    *,
    bound: bool = False,
    fastest: Sequence[Ints] | None = None,
) -> list[Floats]:
    """Return the least time of layouts of evaluations on one machine [s].

    Parameters
    ----------
    evaluations : sequence of Evaluation
        Of spaces of one model and batch, on the same machines.
    layouts : sequence of array of int
        Layouts of each evaluation that fit, as rows of its space's.
    machine : int
        Row of the system's columns.
    bound : bool
        Whether to return `step_seconds_bound` instead, which is far cheaper.
    fastest : sequence of array of int, optional
        Set to the number of the fastest candidate of each layout, the first of ties.
    """
    first = evaluations[0]
    system = first.system.take(machine)
    assumed = first.assumptions
    near = near_members(system, first.space.gpus[0]) if bound else []
    near = near if len(near) <= MOST_NEAR else []
    timed = tuple(evaluation.timed for evaluation in evaluations)
    tables = {id(of.costs): of for of in evaluations}  # batches that recompute alike share one
    costs = {key: take_costs(of.costs, of.timing[machine]) for key, of in tables.items()}

    def seconds(costs: Costs, plans: Plans, devices: Stages) -> Column:
        if bound:
            return step_seconds_bound(costs, plans, devices, first.space.gbs, system, assumed, near)
        return step(costs, plans, devices, first.space.gbs, system, assumed).seconds

    every = bound and all(
        of.kept and len(rows) == len(of.fitting) for rows, of in zip(layouts, timed, strict=True)
    )
    blocks = (
        _candidates_to_bound(timed)
        if every and sum(map(len, layouts)) <= KEPT
        else _place_candidates(timed, layouts, bound)
    )
    of_spaces = [costs[id(of.costs)] for of in evaluations]
    return least_of_layouts(blocks, map(len, layouts), of_spaces, seconds, fastest)


@lru_cache(CACHED_SPACES)
def _candidates_to_bound(timed: tuple[TimedCandidates, ...]) -> list[Gathered]:
    """Return the candidates of all layouts that fit whose times are bounded, kept for the next machine."""
    return list(_place_candidates(timed, [of_space.fitting for of_space in timed], bound=True))


def _place_candidates(
    timed: Sequence[TimedCandidates], layouts: Sequence[Ints], bound: bool
) -> Iterator[Gathered]:
    """Return the candidates of layouts; for a bound, one for each placement of the ranks of a layer."""
    spaces = [of_space.space for of_space in timed]
    if bound:
        spaces = [replace(space, fills=space.fills.one_per_layer_placement) for space in spaces]

    def portion(index: int, rows: Ints) -> tuple[Ints, Plans, Ints]:
        space = spaces[index]
        count = spaces[index].counts[rows]
        layout = np.repeat(rows, count)
        fill = space.fills.fills_of_rows(space.degree[rows])
        shard = timed[index].shards.row[space.layer_row[layout], space.fills.layer_placement[fill]]
        return shard, space.plans(layout, fill), np.cumsum(count) - count

    counts = [space.counts[rows] for space, rows in zip(spaces, layouts, strict=True)]
    return gather_candidates(spaces, layouts, portion, counts, ordered=not bound)


def take_costs(costs: Costs, index: Any) -> Costs:
    """Return rows of the columns of every part."""
    return {part: part_costs.take(index) for part, part_costs in costs.items()}


def _distinct_timings(system: System) -> tuple[System, Ints]:
    """Return the machines that differ in more than memory, and the row of each machine among them."""
    columns = [value for path, value in system.columns().items() if path != CAPACITY_PATH]
    if not columns:
        largest = float(np.max(system.accelerator.visible_bytes))
        return system.with_visible(largest), np.zeros(system.machines(), np.int64)
    _, first, timing = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    return system.take(first), timing


@dataclass(frozen=True, eq=False)
class StrategyResult:
    """Result of one batch of candidates on one machine with one number of GPUs: a part of an evaluation."""

    evaluation: Evaluation
    machine: int  # row of the system's columns
    job: int  # index into `space.gpus`

    @property
    def space(self) -> Space:
        """Space of the candidates."""
        return self.evaluation.space

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.space.gpus[self.job]

    @property
    def system(self) -> System:
        """The machine."""
        return self.evaluation.system.take(self.machine)

    @property
    def layouts(self) -> slice:
        """Rows of the space's layouts."""
        starts = self.space.starts
        return slice(int(starts[self.job]), int(starts[self.job + 1]))

    @cached_property
    def _fitting(self) -> Ints:
        """Rows of `evaluation.fitting` that fit on this machine."""
        evaluation = self.evaluation
        rows = self.layouts
        low, high = map(int, np.searchsorted(evaluation.fitting, (rows.start, rows.stop)))
        memory = evaluation.memory[evaluation.fitting[low:high]]
        return low + np.flatnonzero(memory <= self.system.accelerator.visible_bytes)

    @property
    def candidates(self) -> int:
        """Number of candidates that meet every rule."""
        return int(self.space.counts[self.layouts].sum())

    @property
    def feasible(self) -> int:
        """Number of candidates that fit in memory."""
        return int(self.space.counts[self.fitting].sum())

    @property
    def fitting(self) -> Ints:
        """Layouts that fit, as rows of the space's layouts, ascending."""
        return self.evaluation.fitting[self._fitting]

    @property
    def memory(self) -> Floats:
        """Memory of each layout that fits [byte]."""
        return self.evaluation.memory[self.fitting]

    @property
    def least_seconds(self) -> Floats:
        """Least time of each layout that fits [s]."""
        timing = self.evaluation.timing[self.machine]
        return np.asarray(self.evaluation.least_seconds[timing, self._fitting])

    def best_layouts(self, top: int, by_memory: bool = False) -> Ints:
        """Return the layouts of the best candidates by time, memory (or the reverse), and enumeration."""
        layouts = self.fitting
        first, second = (self.memory, self.least_seconds) if by_memory else (self.least_seconds, self.memory)
        pool = np.arange(len(first))
        if top < len(first):
            pool = np.flatnonzero(first <= np.partition(first, top - 1)[top - 1])  # with all ties of the last
        return layouts[pool[np.lexsort((layouts[pool], second[pool], first[pool]))[:top]]]


class RankedCandidates(NamedTuple):
    """The best candidates of each outcome, sorted by outcome, time, memory and enumeration order."""

    outcome: Ints  # index of the outcome, shape (rows,)
    layout: Ints  # row of its space's layouts
    plans: Plans
    seconds: Floats  # of the step [s]
    memory: Floats  # of the fullest rank [byte]


def rank(outcomes: Sequence[StrategyResult], top: int, by_memory: bool = False) -> RankedCandidates:
    """Return the best candidates of each outcome of one evaluation, by time or by memory.

    The best candidates lie in the best layouts, so only the fills of these are timed one by one.
    """
    layouts = [outcome.best_layouts(top, by_memory) for outcome in outcomes]
    return rank_layouts(outcomes, layouts, top, by_memory)


def rank_layouts(
    outcomes: Sequence[StrategyResult], layouts: Sequence[Ints], top: int, by_memory: bool = False
) -> RankedCandidates:
    """Return the best candidates of some layouts of each outcome of one evaluation."""
    evaluation = outcomes[0].evaluation
    outcome_index = np.repeat(np.arange(len(outcomes)), [len(best) for best in layouts])
    layout = np.concatenate(layouts)
    machine = np.array([outcome.machine for outcome in outcomes])[outcome_index]
    pair, fill, seconds = evaluation.candidates(machine, layout)
    memory = evaluation.memory[layout[pair]]
    keys = (memory, seconds) if not by_memory else (seconds, memory)
    order = np.lexsort((fill, layout[pair], *keys, outcome_index[pair]))
    sorted_index = outcome_index[pair[order]]
    order = order[np.arange(len(order)) - np.searchsorted(sorted_index, sorted_index) < top]
    space = evaluation.space
    pairs = pair[order]
    plans = space.without_assumptions(space.plans(layout[pairs], fill[order]))
    return RankedCandidates(outcome_index[pairs], layout[pairs], plans, seconds[order], memory[order])


def fastest_plans(outcome: StrategyResult, layouts: Ints) -> Plans:
    """Return the fastest plan of each layout (row of the space's layouts) as columns, in the same order."""
    numbers = [np.empty(len(layouts), np.int64)]
    least_times([outcome.evaluation], [layouts], outcome.machine, fastest=numbers)
    return chosen_plans(outcome.space, layouts, numbers[0])


def chosen_plans(space: Space, layouts: Ints, number: Ints) -> Plans:
    """Return one candidate of each layout, by its number among those of the layout, as columns."""
    return space.without_assumptions(space.plans(layouts, space.fills.first[space.degree[layouts]] + number))
