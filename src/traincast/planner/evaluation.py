"""Evaluate a space on one machine or on many: which layouts fit, and the least time of each.

Memory is computed first, for layouts; only candidates that fit are placed and timed. Machines are columns:
those that differ only in memory share their times. Memory and the candidates to be timed do not depend on the
machine: the last ones are cached.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from traincast.catalog.software_stacks import with_fitted_values
from traincast.core.assumptions import Assumptions
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import Floats, Ints
from traincast.core.system import CAPACITY, System
from traincast.operations.operation import Operation, total
from traincast.operations.transformer import parts
from traincast.planner.search_space import NO_PLACEMENT, Shards, Space
from traincast.step.layer_cost import Costs, cost_part
from traincast.step.memory import Footprint, devices_memory
from traincast.step.pipeline_stages import Stages
from traincast.step.step_time import step
from traincast.step.validity import reasons
from traincast.times.operation_time import OperationTimer

OUT_OF_MEMORY: Final = "does not fit in memory"
CANDIDATES_PER_BLOCK: Final = 1 << 15  # timed at once, so that columns stay in the processor's cache
CACHED_SPACES: Final = 8  # spaces whose memory and candidates are cached for the next machine
Parts: TypeAlias = dict[str, tuple[Operation, ...]]


@lru_cache(CACHED_SPACES)
def layout_memory(space: Space, assumed: Assumptions) -> Floats:
    """Return the memory of the fullest rank of every layout, an array of shape (layouts,) [byte]."""
    space = space.with_assumptions(assumed)
    operations = parts(space.model, space.layers, assumed)
    footprints = {part: Footprint.of(of_part, space.layers) for part, of_part in operations.items()}
    used = np.empty(space.layer_row.shape)
    for low in range(0, len(used), CANDIDATES_PER_BLOCK):
        rows = slice(low, low + CANDIDATES_PER_BLOCK)
        block = {part: footprint.take(space.layer_row[rows]) for part, footprint in footprints.items()}
        layouts, devices = space.layouts.take(rows), space.stages.take(rows)
        components = devices_memory(block, layouts, devices, space.gbs, assumed)
        totals = [np.broadcast_to(total(device.values()), used[rows].shape) for device in components]
        used[rows] = np.max(totals, axis=0)
    return used


class CandidateBlock(NamedTuple):
    """Candidates that are timed together."""

    rows: slice  # of the layouts that are timed
    shard: Ints  # of each candidate
    plans: Plans
    stages: Stages
    starts: Ints  # first candidate of each layout


@dataclass(frozen=True, eq=False)
class TimedCandidates:
    """Candidates to be timed on any machine: the layouts that fit, their shards, and their operations."""

    space: Space  # `with_assumptions`
    fitting: Ints  # rows of `space.layouts`, shape (fitting,)
    shards: Shards
    operations: Parts  # of each part of the model, columns over shards

    def blocks(self, size: int) -> Iterator[CandidateBlock]:
        """Yield blocks of about `size` candidates, of at least one layout each."""
        ends, low = np.cumsum(self.space.counts[self.fitting]), 0
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
        return CandidateBlock(rows, shard, space.plans(layout, fill), space.stages.take(layout), starts)


@lru_cache(CACHED_SPACES)
def _timed_candidates(space: Space, assumed: Assumptions, capacity: float, above: float) -> TimedCandidates:
    """Return the candidates of the layouts that need at most `capacity` and more than `above` [byte]."""
    memory, completed = layout_memory(space, assumed), space.with_assumptions(assumed)
    fitting = np.flatnonzero((memory <= capacity) & (memory > above))
    shards = Shards.of(completed, fitting)
    return TimedCandidates(completed, fitting, shards, parts(space.model, shards.plans, assumed))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Memory and times of a space on machines."""

    space: Space  # `with_assumptions`
    system: System  # figures may be columns over machines
    assumptions: Assumptions
    memory: Floats  # of every layout, shape (layouts,) [byte]
    fitting: Ints  # layouts that fit on the machine with the most memory, ascending; shape (fitting,)
    least_seconds: Floats  # least time over the fills of each of them, shape (timings, fitting) [s]
    timing: Ints  # row of `least_seconds` for each machine, shape (machines,)
    shards: Shards
    costs: Costs  # of each part of the model, columns of shape (timings, shards)

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
            layouts, machines = layout[pair[rows]], machine[pair[rows]]
            shard = self.shards.row[space.layer_row[layouts], space.fills.layer_placement[fill[rows]]]
            costs = _take(self.costs, (self.timing[machines], shard))
            plans, stages = space.plans(layouts, fill[rows]), space.stages.take(layouts)
            time = step(costs, plans, stages, space.gbs, self.system.take(machines), self.assumptions)
            seconds[rows] = time.seconds
        return pair, fill, seconds


def evaluate(space: Space, system: System, assumed: Assumptions, above: float = 0.0) -> Evaluation:
    """Compute the memory of every layout, and the least time of each that fits on some machine.

    `system` is one machine, or columns of machines with the same fast domain; layouts that need no more
    memory than `above` [byte] are left out.
    """
    assumed = with_fitted_values(system, assumed)
    capacity = float(np.max(system.accelerator.hbm_bytes))
    timed = _timed_candidates(space, assumed, capacity, above)
    machines, timing = _distinct_timings(system)
    across = machines.take((slice(None), None))  # machines down, candidates across
    plans = timed.shards.plans
    shape = machines.machines(), len(np.atleast_1d(plans.tp))
    timer = OperationTimer(plans, across, assumed)
    costs = {
        part: cost_part(timer.time_part(operations), plans).broadcast(shape)
        for part, operations in timed.operations.items()
    }
    least = np.empty((shape[0], len(timed.fitting)))
    for block in timed.blocks(max(CANDIDATES_PER_BLOCK // shape[0], 1)):
        block_costs = _take(costs, (..., block.shard))
        time = step(block_costs, block.plans, block.stages, space.gbs, across, assumed)
        least[:, block.rows] = np.minimum.reduceat(np.atleast_2d(time.seconds), block.starts, axis=1)
    return Evaluation(
        space=timed.space,
        system=system,
        assumptions=assumed,
        memory=layout_memory(space, assumed),
        fitting=timed.fitting,
        least_seconds=least,
        timing=timing,
        shards=timed.shards,
        costs=costs,
    )


def _take(costs: Costs, index: Any) -> Costs:
    """Return rows of the columns of every part."""
    return {part: part_costs.take(index) for part, part_costs in costs.items()}


def _distinct_timings(system: System) -> tuple[System, Ints]:
    """Return the machines that differ in more than memory, and the row of each machine among them."""
    columns = [value for path, value in system.columns().items() if path != CAPACITY]
    if not columns:
        largest = float(np.max(system.accelerator.hbm_bytes))
        return system.with_figures({CAPACITY: largest}), np.zeros(system.machines(), np.int64)
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
        evaluation, rows = self.evaluation, self.layouts
        low, high = map(int, np.searchsorted(evaluation.fitting, (rows.start, rows.stop)))
        memory = evaluation.memory[evaluation.fitting[low:high]]
        return low + np.flatnonzero(memory <= self.system.accelerator.hbm_bytes)

    @property
    def candidates(self) -> int:
        """Number of candidates that meet every rule."""
        return int(self.space.counts[self.layouts].sum())

    @property
    def feasible(self) -> int:
        """Number of candidates that fit in memory."""
        return int(self.space.counts[self.fitting].sum())

    @property
    def rejected(self) -> dict[str, int]:
        """Number of candidates rejected, by the first rule they break, and by memory."""
        broken = {reason: int(counts[self.job]) for reason, counts in self.space.rejected.items()}
        by_memory = {OUT_OF_MEMORY: self.candidates - self.feasible}
        return {reason: count for reason, count in broken.items() if count} | by_memory

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
    plans: Plans
    seconds: Floats  # of the step [s]
    memory: Floats  # of the fullest rank [byte]


def rank(outcomes: Sequence[StrategyResult], top: int, by_memory: bool = False) -> RankedCandidates:
    """Return the best candidates of each outcome of one evaluation, by time or by memory.

    The best candidates lie in the best layouts, so only the fills of these are timed one by one.
    """
    evaluation = outcomes[0].evaluation
    layouts = [outcome.best_layouts(top, by_memory) for outcome in outcomes]
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
    plans = space.without_assumptions(space.plans(layout[pair[order]], fill[order]))
    return RankedCandidates(outcome_index[pair[order]], plans, seconds[order], memory[order])


def fastest(outcome: StrategyResult, layouts: Ints) -> list[Plan]:
    """Return the fastest plan of each layout (row of the space's layouts), in the same order."""
    plans = fastest_plans(outcome, layouts)
    return [plans.row(i) for i in range(len(layouts))]


def fastest_plans(outcome: StrategyResult, layouts: Ints) -> Plans:
    """Return the fastest plan of each layout as columns."""
    pair, fill, seconds = outcome.evaluation.candidates(np.full(len(layouts), outcome.machine), layouts)
    order = np.lexsort((fill, seconds, pair))
    best = order[np.unique(pair[order], return_index=True)[1]]
    space = outcome.space
    return space.without_assumptions(space.plans(layouts[pair[best]], fill[best]))


def rejections(outcomes: Sequence[StrategyResult]) -> dict[str, int]:
    """Count the rejected candidates by the first rule they break, in the order of checks, memory last."""
    counts = Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.rejected)
    framework_rules = [rule for outcome in outcomes for rule in outcome.space.batch.rules]
    of_frameworks = dict.fromkeys(rule.broken for rule in framework_rules)
    ordered = [*reasons(), *of_frameworks, NO_PLACEMENT, OUT_OF_MEMORY]
    return {reason: counts[reason] for reason in ordered if reason in counts or reason == OUT_OF_MEMORY}
