"""The layouts of a search that can matter to a question about times, found without a look at most others.

A layout has a bound from below on its time that does not depend on placement, ZeRO, replicas, offload or
recomputation: the passes of its layers, each collective placed as well as any placement allows, and the
bubble. Layouts are evaluated (memory, then times) in the order of these bounds, up to a horizon. An answer
that no time beyond the horizon can change is that of all layouts; else the horizon is moved.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from traincast.catalog.software_stacks import with_fitted_values
from traincast.core.assumptions import Assumptions
from traincast.core.columns import minimum, where
from traincast.core.knobs import CHOICES, DEFAULTS
from traincast.core.plan import Plans
from traincast.core.quantities import Floats, Ints
from traincast.core.system import System
from traincast.planner.evaluation import (
    AROUND_LAYERS,
    CANDIDATES_PER_BLOCK,
    Evaluation,
    costs_of,
    evaluate_all,
    groups,
    take_costs,
)
from traincast.planner.framework_spaces import ORDER, CandidateBatch
from traincast.planner.least_times import LeastTimes
from traincast.planner.search_space import Outline, Space, distinct_rows, of_batch
from traincast.step.layer_cost import Costs, PartCosts
from traincast.step.pipeline_stages import stages
from traincast.step.placement import divisors
from traincast.step.step_time import least_step_seconds

FIRST_ROWS: Final = 1 << 11  # rows of outlines that are evaluated first
FIRST_SHARE: Final = 32  # part of all rows that are, if it is more
MORE_ROWS: Final = 4  # times as many in each round, at most
FORESIGHT: Final = 0.025  # share of the time asked for that is added for questions that follow
# Assumptions of groups of experts inside a fast domain, and of others (`Plans.of_dispatcher`)
BY_DISPATCHER: Final = (
    ("host", "sync_seconds", "wide_sync_seconds"),
    ("overlap", "ep_exposed", "wide_ep_exposed"),
    ("traffic", "expert_passes", "wide_expert_passes"),
)
MOST_NEAR: Final = 64  # ways to place a group up to which layouts are bounded
LAYER_CHOICES: Final = tuple(
    name for name in CHOICES if name not in (*AROUND_LAYERS, "order") or name in ("tp_overlap", "ep_overlap")
)


def near_members(system: System, gpus: int) -> list[tuple[float, ...]]:
    """Return the members that a group of a job can have in a domain of each tier but the outermost."""
    found: list[tuple[int, ...]] = [(1,)]
    for tier in system.tiers[:-1]:
        sizes = [int(n) for n in divisors(gpus) if n <= float(np.max(tier.size or 1))]
        found = [(*inner, n) for inner in found for n in sizes if n % inner[-1] == 0]
    return [tuple(map(float, members[1:])) for members in found]


def least_of_dispatchers(assumed: Assumptions) -> Assumptions:
    """Return assumptions in which groups of experts inside a fast domain are no slower than others."""
    for group, inside, across in BY_DISPATCHER:
        values = getattr(assumed, group)
        if getattr(values, across):
            least = minimum(getattr(values, inside), getattr(values, across))
            assumed = replace(assumed, **{group: replace(values, **{inside: least})})
    return assumed


@dataclass(eq=False)
class _Family:
    """Batches of one shape whose layers have the same operations, recomputation aside."""

    outline: Outline
    batches: dict[str, list[int]]  # by recomputation
    given: dict[str, Any]  # choices of one of them
    costs: dict[str, Costs]  # least ones of distinct layers, by recomputation
    place: Ints  # of each of the outline's layer rows among these layers
    bounds: Floats  # of the outline's rows, without recomputation [s]


class Shortlist:
    """Layouts of a search on one number of GPUs of one machine, lowest bounds first."""

    def __init__(
        self,
        outlines: Mapping[CandidateBatch, Outline],
        batches: Sequence[CandidateBatch],
        system: System,
        assumptions: Assumptions,
    ):
        self.horizon = 0.0  # layouts that may be faster are evaluated [s]
        self.times = LeastTimes.of(())
        self._batches, self._system, self._assumptions = batches, system, assumptions
        self._assumed = with_fitted_values(system, assumptions)
        self._least = least_of_dispatchers(self._assumed)
        space = next(iter(outlines.values())).space
        self._model, self._near = space.model, near_members(system, space.gpus[0])
        self._families = list(self._bounded(outlines))
        self._rows = max(FIRST_ROWS, sum(len(family.bounds) for family in self._families) // FIRST_SHARE)

    def answer(self, question: Callable[[LeastTimes], Ints]) -> tuple[LeastTimes, Ints]:
        """Return the layouts that answer a question, and the times whose rows they are.

        `question` asks some `LeastTimes` once.
        """
        while True:
            rows = question(self.times)
            if self.times.reached <= self.horizon or self.horizon == np.inf:
                return self.times, rows
            self._evaluate((1 + FORESIGHT) * self.times.reached)

    def _bounded(self, outlines: Mapping[CandidateBatch, Outline]) -> Iterator[_Family]:
        """Yield the families of all batches with the bounds of their rows."""
        together: dict[Any, dict[CandidateBatch, list[int]]] = {}
        for index, batch in enumerate(self._batches):
            given = {**DEFAULTS, **batch.given}
            key = batch.overlaps_in_domain, *(given[name] for name in LAYER_CHOICES)
            together.setdefault(key, {}).setdefault(batch.shape, []).append(index)
        for same in together.values():
            tables = [
                self._layers(outlines[shape], self._batches[of_shape[0]]) for shape, of_shape in same.items()
            ]
            layers, places = distinct_rows(tables)
            names = dict.fromkeys(
                _recompute(self._batches[i]) for of_shape in same.values() for i in of_shape
            )
            costs = costs_of(
                layers, self._model, list(names | {"none": None}), self._system, self._least, self._near
            )
            costs = {name: {part: _passes(cost) for part, cost in of.items()} for name, of in costs.items()}
            for (shape, of_shape), place in zip(same.items(), places, strict=True):
                by_recompute: dict[str, list[int]] = {}
                for index in of_shape:
                    by_recompute.setdefault(_recompute(self._batches[index]), []).append(index)
                given = self._batches[of_shape[0]].given
                family = _Family(outlines[shape], by_recompute, given, costs, place, np.empty(0))
                every_row = np.arange(len(family.outline.space.layer_row))
                family.bounds = self._bounds(family, every_row, "none")
                yield family

    def _layers(self, outline: Outline, batch: CandidateBatch) -> Plans:
        """Return the layers of a shape with the choices of a batch, overlapped wherever they may be."""
        given = batch.given | {"order": ORDER, "pp": 1.0, "dp": 1.0}
        layers = replace(outline.space.layers, **given).ready(self._assumed)
        experts = layers.ep * layers.etp  # inside a fast domain where they can be
        layers = replace(layers, fast_tp=where(experts <= self._system.fast_domain, experts, 1.0))
        return replace(layers, tp_overlap=layers.tp > 1) if batch.overlaps_in_domain else layers

    def _bounds(self, family: _Family, rows: Ints, recompute: str) -> Floats:
        """Return the bounds of rows of a family's outline [s]."""
        space, bounds = family.outline.space, np.empty(len(rows))
        plans = replace(space.layouts, **family.given)
        for low in range(0, len(rows), CANDIDATES_PER_BLOCK):
            block = rows[low : low + CANDIDATES_PER_BLOCK]
            of_rows = plans.take(block)
            costs = take_costs(family.costs[recompute], family.place[space.layer_row[block]])
            devices = stages(space.model, of_rows)
            bounds[low : low + len(block)] = least_step_seconds(
                costs, of_rows, devices, space.gbs, self._assumed
            )
        return bounds

    def _evaluate(self, most: float) -> None:
        """Evaluate all layouts that may take at most so long, or the nearest of them [s]."""
        bounds = np.concatenate([family.bounds for family in self._families])
        nearest = np.inf
        if self._rows < len(bounds):
            nearest = float(np.partition(bounds, self._rows)[self._rows])
        self._rows *= MORE_ROWS
        self.horizon = min(most, nearest)
        spaces = dict[int, Space]()
        for family in self._families:
            spaces |= self._opened(family)
        opened = [spaces[index] for index in sorted(spaces)]
        evaluations: dict[int, Evaluation] = {}
        for group in groups(opened):
            of_group = evaluate_all(tuple(opened[i] for i in group), self._system, self._assumptions)
            evaluations |= zip(group, of_group, strict=True)
        self.times = LeastTimes.of([evaluations[i].outcomes()[0] for i in range(len(opened))])

    def _opened(self, family: _Family) -> dict[int, Space]:
        """Return the layouts of a family up to the horizon, by the number of the batch."""
        spaces: dict[int, Space] = {}
        within = np.flatnonzero(family.bounds <= self.horizon)
        for recompute, batches in family.batches.items() if len(within) else ():
            rows = within[self._bounds(family, within, recompute) <= self.horizon]
            if len(rows):
                space = family.outline.layouts(rows)
                spaces |= {index: of_batch(space, self._batches[index]) for index in batches}
        return spaces


def _recompute(batch: CandidateBatch) -> str:
    """Return what a batch recomputes."""
    return str(batch.given.get("recompute", DEFAULTS["recompute"]))


def _passes(cost: PartCosts) -> PartCosts:
    """Return the time of both passes on one machine as that of the first, without what bounds do not need."""
    both, dispatch = (
        column[0] if isinstance(column, np.ndarray) else column
        for column in (cost.forward + cost.backward, cost.dispatch)
    )
    return PartCosts(both, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, dispatch=dispatch)
