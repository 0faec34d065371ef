"""Evaluate a space on one machine or on many: which layouts fit, and the least time of each over its panels and placements.

Memory is computed first, for layouts; only candidates that fit are placed and timed. Machines are columns: those that differ only
in memory share their times.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from traincast.catalog.software_stacks import with_fitted_values
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
    """Memory and times of a space on machines.

    Parameters
    ----------
    model, system, gbs, assumptions, space : Model, System, int, Assumptions, Space
        The request; figures of the system may be columns over machines. `gbs` is the global batch [sequences].
    memory : array, shape (layouts,)
        Memory of every layout of the space [byte].
    fitting : array of int, shape (fitting,)
        Layouts that fit on the machine with the most memory, ascending.
    least_seconds : array, shape (timings, fitting)
        Least time over the fills of each of them [s].
    timing : array of int, shape (machines,)
        Row of `least_seconds` for each machine.
    shards, costs : Shards, mapping of str to PartCosts
        Costs that the times were computed from: columns of shape (timings, shards), for each part of the model.
    """

    model: Model
    system: System
    gbs: int
    assumptions: Assumptions
    space: Space
    memory: Floats
    fitting: Ints
    least_seconds: Floats
    timing: Ints
    shards: Shards
    costs: Costs

    def outcomes(self, machine: int = 0) -> list["StrategyResult"]:
        """Return the results on a machine (a row of the system's columns), one for each number of GPUs of the space."""
        return [StrategyResult(self, machine, job) for job in range(len(self.space.gpus))]

    def candidates(self, machine: Ints, layout: Ints) -> tuple[Ints, Ints, Floats]:
        """Return all candidates of pairs of machine and layout.

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
            block_layout, block_machine = layout[pair[rows]], machine[pair[rows]]
            shard = self.shards.row[
                self.space.layer_row[block_layout], self.space.fills.layer_placement[fill[rows]]
            ]
            costs = _take(self.costs, (self.timing[block_machine], shard))
            plans, stages = self.space.plans(block_layout, fill[rows]), self.space.stages.take(block_layout)
            system = self.system.take(block_machine)
            seconds[rows] = step(costs, plans, stages, self.gbs, system, self.assumptions).seconds
        return pair, fill, seconds


def evaluate(
    space: Space, model: Model, system: System, gbs: int, assumed: Assumptions, above: float = 0.0
) -> Evaluation:
    """Compute the memory of every layout, and the least time of each that fits on some machine.

    Parameters
    ----------
    space, model, gbs, assumed : Space, Model, int, Assumptions
        The request; `gbs` is the global batch [sequences].
    system : System
        One machine, or columns of machines with the same fast domain.
    above : float
        Layouts that need no more memory than this are left out [byte].

    Returns
    -------
    Evaluation
        Times of layouts that fit on no machine are not computed.
    """
    assumed = with_fitted_values(system, assumed)
    memory = layout_memory(space, model, gbs, assumed)
    timed = candidates_to_time(space, model, gbs, assumed, float(np.max(system.accelerator.hbm_bytes)), above)
    machines, timing = _distinct_timings(system)
    across = machines.take((slice(None), None))  # machines down, candidates across
    shape, plans = (machines.machines(), len(np.atleast_1d(timed.shards.plans.tp))), timed.shards.plans
    costs = {
        part: cost_part(time_part(operations, plans, across, assumed), plans).broadcast(shape)
        for part, operations in timed.operations.items()
    }
    least = np.empty((shape[0], len(timed.fitting)))
    for block in timed.blocks(max(BLOCK // shape[0], 1)):
        time = step(_take(costs, (..., block.shard)), block.plans, block.stages, gbs, across, assumed)
        least[:, block.rows] = np.minimum.reduceat(np.atleast_2d(time.seconds), block.starts, axis=1)
    return Evaluation(
        model, system, gbs, assumed, timed.space, memory, timed.fitting, least, timing, timed.shards, costs
    )


def _take(costs: Costs, index: Any) -> Costs:
    """Return rows of the columns of every part."""
    return {part: part_costs.take(index) for part, part_costs in costs.items()}


def _distinct_timings(system: System) -> tuple[System, Ints]:
    """Return the machines that differ in more than memory, and the row of each machine among them."""
    columns = [value for path, value in system.columns().items() if path != CAPACITY]
    if not columns:
        return system.with_figures({CAPACITY: float(np.max(system.accelerator.hbm_bytes))}), np.zeros(
            system.machines(), np.int64
        )
    _, first, timing = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    return system.take(first), timing


@dataclass(frozen=True)
class StrategyResult:
    """Result of one strategy on one machine with one number of GPUs: a part of an evaluation.

    Parameters
    ----------
    evaluation : Evaluation
        The evaluation it is a part of.
    machine : int
        Row of the system's columns.
    job : int
        Index into `space.gpus`.
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
        """Rows of `evaluation.fitting` that fit on this machine."""
        evaluation, rows = self.evaluation, self.layouts
        low, high = map(int, np.searchsorted(evaluation.fitting, (rows.start, rows.stop)))
        memory = evaluation.memory[evaluation.fitting[low:high]]
        return low + np.flatnonzero(memory <= self.system.accelerator.hbm_bytes)

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
        return {reason: count for reason, count in broken.items() if count} | {
            OUT_OF_MEMORY: self.candidates - self.feasible
        }

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
        """Return the layouts of the best `top` candidates: the first by time, memory (or the reverse) and enumeration order."""
        layouts = self.fitting
        first, second = (self.memory, self.least_seconds) if by_memory else (self.least_seconds, self.memory)
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
        Index of the outcome.
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
    """Return the best candidates of each outcome.

    A candidate among the best lies in one of the best layouts, so only their fills are timed again.

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
    """Return the fastest plan of each layout.

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
    """Return the fastest plan of each layout as columns; arguments as for `fastest`."""
    pair, fill, seconds = outcome.evaluation.candidates(np.full(len(layouts), outcome.machine), layouts)
    order = np.lexsort((fill, seconds, pair))
    best = order[np.unique(pair[order], return_index=True)[1]]
    space = outcome.evaluation.space
    return space.without_assumptions(space.plans(layouts[pair[best]], fill[best]))


def rejections(outcomes: Sequence[StrategyResult]) -> dict[str, int]:
    """Count the candidates that several strategies reject, by the first rule they break, and by memory.

    Parameters
    ----------
    outcomes : sequence of StrategyResult
        Outcomes to add up.

    Returns
    -------
    dict of str to int
        Reason → candidates, in the order rules are checked; the last is memory.
    """
    counts = Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.rejected)
    framework_reasons = dict.fromkeys(
        rule.broken for outcome in outcomes for rule in outcome.evaluation.space.batch.rules
    )
    ordered = [*reasons(), *framework_reasons, NO_PLACEMENT, OUT_OF_MEMORY]
    return {reason: counts[reason] for reason in ordered if reason in counts or reason == OUT_OF_MEMORY}
