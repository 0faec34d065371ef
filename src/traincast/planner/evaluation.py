"""A space on one machine or on many: which layouts fit, and the least time of each over its panels and placements.

Memory decides first, on layouts; only candidates that fit are placed and timed. Machines are columns: those that differ in nothing
but memory share their times.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from traincast.catalog.software_stacks import on
from traincast.core.assumptions import Assumptions
from traincast.core.model import Model
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import Floats, Ints
from traincast.core.system import System
from traincast.planner.layout_memory import BLOCK, candidates_to_time, layout_memory
from traincast.planner.search_space import NO_PLACEMENT, Shards, Space
from traincast.step.layer_cost import Costs, cost_part
from traincast.step.step_time import step
from traincast.step.validity import reasons
from traincast.times.operation_time import time_part

OUT_OF_MEMORY: Final = "does not fit in memory"
CAPACITY: Final = "accelerator.hbm_bytes"


@dataclass(frozen=True)
class Evaluation:
    """A space on machines.

    Parameters
    ----------
    model, system, gbs, assumptions, space : Model, System, int, Assumptions, Space
        What was asked; figures of the system may be columns over machines. `gbs` is the global batch [sequences].
    memory : array, shape (layouts,)
        Memory of every layout of the space [byte].
    fitting : array of int, shape (fitting,)
        Layouts that fit on the machine with the most memory, ascending.
    least : array, shape (timings, fitting)
        Least time over the fills of each of them [s].
    timing : array of int, shape (machines,)
        Row of `least` for each machine.
    shards, costs : Shards, mapping of str to PartCosts
        What the times were made of: columns of shape (timings, shards), for each part of the model.
    """

    model: Model
    system: System
    gbs: int
    assumptions: Assumptions
    space: Space
    memory: Floats
    fitting: Ints
    least: Floats
    timing: Ints
    shards: Shards
    costs: Costs

    def outcomes(self, machine: int = 0) -> list["StrategyResult"]:
        """What was found on a machine (a row of the system's columns), for each number of GPUs of the space."""
        return [StrategyResult(self, machine, job) for job in range(len(self.space.gpus))]

    def candidates(self, machine: Ints, layout: Ints) -> tuple[Ints, Ints, Floats]:
        """All candidates of pairs of machine and layout.

        Parameters
        ----------
        machine, layout : array of int, shape (pairs,)
            The pairs: row of the system's columns, row of `space.layouts`.

        Returns
        -------
        pair, fill : array of int, shape (candidates,)
            For each candidate the number of its pair, and its fill.
        seconds : array, shape (candidates,)
            Time of its step [s].
        """
        pair, fill = self.space.candidates(layout)
        seconds = np.empty(len(pair))
        for low in range(0, len(pair), BLOCK):
            rows = slice(low, low + BLOCK)
            where, on = layout[pair[rows]], machine[pair[rows]]
            shard = self.shards.row[self.space.unit[where], self.space.fills.inner[fill[rows]]]
            costs = _take(self.costs, (self.timing[on], shard))
            plans, stages = self.space.plans(where, fill[rows]), self.space.stages.take(where)
            seconds[rows] = step(costs, plans, stages, self.gbs, self.system.take(on), self.assumptions).seconds
        return pair, fill, seconds


def evaluate(space: Space, model: Model, system: System, gbs: int, assumed: Assumptions, above: float = 0.0) -> Evaluation:
    """Memory of every layout, and the least time of each that fits on some machine.

    Parameters
    ----------
    space, model, gbs, assumed : Space, Model, int, Assumptions
        What is asked; `gbs` is the global batch [sequences].
    system : System
        One machine, or columns of machines with the same fast domain.
    above : float
        Layouts that need no more memory than this are left out [byte].

    Returns
    -------
    Evaluation
        Times of layouts that fit on no machine are not computed.
    """
    assumed = on(system, assumed)
    held = layout_memory(space, model, gbs, assumed)
    work = candidates_to_time(space, model, gbs, assumed, float(np.max(system.accelerator.hbm_bytes)), above)
    machines, timing = _timings(system)
    across = machines.take((slice(None), None))  # machines down, candidates across
    shape, plans = (machines.machines(), len(np.atleast_1d(work.shards.plans.tp))), work.shards.plans
    costs = {
        part: cost_part(time_part(operations, plans, across, assumed), plans).broadcast(shape)
        for part, operations in work.operations.items()
    }
    least = np.empty((shape[0], len(work.fitting)))
    for block in work.blocks(max(BLOCK // shape[0], 1)):
        time = step(_take(costs, (..., block.shard)), block.plans, block.stages, gbs, across, assumed)
        least[:, block.rows] = np.minimum.reduceat(np.atleast_2d(time.seconds), block.starts, axis=1)
    return Evaluation(model, system, gbs, assumed, work.space, held, work.fitting, least, timing, work.shards, costs)


def _take(costs: Costs, index: Any) -> Costs:
    """Rows of the columns of every part."""
    return {part: one.take(index) for part, one in costs.items()}


def _timings(system: System) -> tuple[System, Ints]:
    """The machines that differ in more than memory, and which of them each machine is."""
    columns = [value for path, value in system.columns().items() if path != CAPACITY]
    if not columns:
        return system.with_figures({CAPACITY: float(np.max(system.accelerator.hbm_bytes))}), np.zeros(system.machines(), np.int64)
    _, first, timing = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    return system.take(first), timing


@dataclass(frozen=True)
class StrategyResult:
    """What one strategy gives on one machine with one number of GPUs: a part of an evaluation.

    Parameters
    ----------
    evaluation : Evaluation
        The whole.
    machine : int
        Row of the system's columns.
    job : int
        Which of `space.gpus`.
    """

    evaluation: Evaluation
    machine: int
    job: int

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.evaluation.space.gpus[self.job]

    @property
    def system(self) -> System:
        """The machine."""
        return self.evaluation.system.take(self.machine)

    @property
    def layouts(self) -> slice:
        """Rows of the space's layouts."""
        starts = self.evaluation.space.starts
        return slice(int(starts[self.job]), int(starts[self.job + 1]))

    @cached_property
    def _fitting(self) -> Ints:
        """Which of the evaluation's fitting layouts fit here."""
        one, rows = self.evaluation, self.layouts
        low, high = map(int, np.searchsorted(one.fitting, (rows.start, rows.stop)))
        return low + np.flatnonzero(one.memory[one.fitting[low:high]] <= self.system.accelerator.hbm_bytes)

    @property
    def candidates(self) -> int:
        """Number of candidates that meet every rule."""
        return int(self.evaluation.space.counts[self.layouts].sum())

    @property
    def feasible(self) -> int:
        """Number of candidates that fit in memory."""
        return int(self.evaluation.space.counts[self.fitting].sum())

    @property
    def rejected(self) -> dict[str, int]:
        """Number of candidates rejected, by the first rule they break, and by memory."""
        broken = {reason: int(counts[self.job]) for reason, counts in self.evaluation.space.rejected.items()}
        return {reason: count for reason, count in broken.items() if count} | {OUT_OF_MEMORY: self.candidates - self.feasible}

    @property
    def fitting(self) -> Ints:
        """Layouts that fit, as rows of the space's layouts, ascending."""
        return self.evaluation.fitting[self._fitting]

    @property
    def memory(self) -> Floats:
        """Memory of each layout that fits [byte]."""
        return self.evaluation.memory[self.fitting]

    @property
    def least(self) -> Floats:
        """Least time of each layout that fits [s]."""
        one = self.evaluation
        return np.asarray(one.least[one.timing[self.machine], self._fitting])

    def first(self, top: int, by_memory: bool = False) -> Ints:
        """The layouts that hold the best `top` candidates: the first by time, memory (or the reverse) and enumeration order."""
        layouts = self.fitting
        first, second = (self.memory, self.least) if by_memory else (self.least, self.memory)
        pool = np.arange(len(first))
        if top < len(first):
            pool = np.flatnonzero(first <= np.partition(first, top - 1)[top - 1])  # with all ties of the last
        return layouts[pool[np.lexsort((layouts[pool], second[pool], first[pool]))[:top]]]


@dataclass(frozen=True)
class RankedCandidates:
    """The best candidates of outcomes of one evaluation: rows sorted by outcome, then time, memory and enumeration order.

    Parameters
    ----------
    outcome : array of int, shape (rows,)
        Which of the outcomes.
    plans : Plans
        The candidates; columns over rows.
    seconds : array, shape (rows,)
        Time of the step [s].
    memory : array, shape (rows,)
        Memory of the fullest rank [byte].
    """

    outcome: Ints
    plans: Plans
    seconds: Floats
    memory: Floats


def rank(outcomes: Sequence[StrategyResult], top: int, by_memory: bool = False) -> RankedCandidates:
    """The best candidates of each outcome.

    A candidate among the best lies in one of the best layouts, so only their fills are looked at again.

    Parameters
    ----------
    outcomes : sequence of StrategyResult
        At least one; all of one evaluation.
    top : int
        Candidates of each outcome.
    by_memory : bool
        Whether the least memory is best, instead of the least time.

    Returns
    -------
    RankedCandidates
        At most `top` rows for each outcome.
    """
    one = outcomes[0].evaluation
    picked = [outcome.first(top, by_memory) for outcome in outcomes]
    of = np.repeat(np.arange(len(outcomes)), [len(layouts) for layouts in picked])
    layout = np.concatenate(picked)
    machine = np.array([outcome.machine for outcome in outcomes])[of]
    pair, fill, seconds = one.candidates(machine, layout)
    held = one.memory[layout[pair]]
    keys = (held, seconds) if not by_memory else (seconds, held)
    order = np.lexsort((fill, layout[pair], *keys, of[pair]))
    sorted_of = of[pair[order]]
    order = order[np.arange(len(order)) - np.searchsorted(sorted_of, sorted_of) < top]
    plans = one.space.as_asked(one.space.plans(layout[pair[order]], fill[order]))
    return RankedCandidates(of[pair[order]], plans, seconds[order], held[order])


def fastest(outcome: StrategyResult, layouts: Ints) -> list[Plan]:
    """The fastest plan of each layout.

    Parameters
    ----------
    outcome : StrategyResult
        Supplies the machine.
    layouts : array of int, shape (layouts,)
        Rows of the space's layouts.

    Returns
    -------
    list of Plan
        One for each layout, in the same order.
    """
    plans = fastest_plans(outcome, layouts)
    return [plans.row(i) for i in range(len(layouts))]


def fastest_plans(outcome: StrategyResult, layouts: Ints) -> Plans:
    """The fastest plan of each layout as columns; arguments as for `fastest`."""
    pair, fill, seconds = outcome.evaluation.candidates(np.full(len(layouts), outcome.machine), layouts)
    order = np.lexsort((fill, seconds, pair))
    best = order[np.unique(pair[order], return_index=True)[1]]
    space = outcome.evaluation.space
    return space.as_asked(space.plans(layouts[pair[best]], fill[best]))


def rejections(outcomes: Sequence[StrategyResult]) -> dict[str, int]:
    """Candidates rejected by several strategies, by the first rule they break, and by memory.

    Parameters
    ----------
    outcomes : sequence of StrategyResult
        Outcomes to add up.

    Returns
    -------
    dict of str to int
        Reason → candidates, in the order rules are asked; the last is memory.
    """
    counts = Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.rejected)
    own = dict.fromkeys(rule.broken for outcome in outcomes for rule in outcome.evaluation.space.batch.rules)
    asked = [*reasons(), *own, NO_PLACEMENT, OUT_OF_MEMORY]
    return {reason: counts[reason] for reason in asked if reason in counts or reason == OUT_OF_MEMORY}
