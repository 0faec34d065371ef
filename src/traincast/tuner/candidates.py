"""Candidates of a tuner, as columns: all plans of a search that may fit, or plans that are listed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from traincast.accuracy import Run, batches
from traincast.catalog import resolve
from traincast.core import Column, ErrorCollector, Floats, InputError, NothingFits, Plan, Plans
from traincast.planner import Question, RankedSoftware, plan_coordinates, search_request
from traincast.step import Estimates, errors, estimate_columns, memory_that_fits
from traincast.tuner.belief import LEARNT, MOST_DRAWN, Prior

MOST_CANDIDATES: Final = 100_000
MAX_SLOWDOWN: Final = 2.0  # candidates predicted slower than the fastest by more are never best
LEAST_FIT: Final = 0.05  # probability to fit, from which on a plan is a candidate


@dataclass(frozen=True, eq=False)
class Candidates:
    """Plans that may be the best, and what is predicted of them; `row` returns one as a `Plan`."""

    prior: Prior
    row: Callable[[int], Plan]
    numbers: Mapping[Any, int]  # of choices, in the coordinates

    def __len__(self) -> int:
        return len(self.prior.seconds)

    def find(self, plan: Plan) -> int:
        """Return the number of a plan, whatever its placement; raise `InputError` where it is none."""
        wanted = plan_coordinates([plan], dict(self.numbers))
        rows = np.flatnonzero((self.prior.coordinates == wanted).all(axis=1))
        if not len(rows):
            raise InputError("plan", [f"{plan}: is none of the {len(self):,} candidates"])
        return int(rows[0])


class _Blocks:
    """Columns of candidates, block by block of plans with the same choices."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Floats]] = {name: [] for name in ("seconds", "memory", *LEARNT)}
        self.coordinates: list[Floats] = []
        self.plans: list[Plans] = []
        self.numbers: dict[object, int] = {}

    def add(self, est: Estimates, plans: Plans, rows: int) -> None:
        """Add a block of estimates."""
        figures: dict[str, Column] = {"seconds": est.step_seconds, "memory": est.memory_bytes}
        figures |= {name: est.case.shares[name] for name in LEARNT}
        for name, value in figures.items():
            self.columns[name].append(np.broadcast_to(np.asarray(value, np.float64), rows))
        coordinates = plan_coordinates([plans], self.numbers)
        self.coordinates.append(np.broadcast_to(coordinates, (rows, coordinates.shape[1])))
        self.plans.append(plans)

    def prior(
        self,
        est: Estimates,
        capacity: float,
        order: Any = slice(None),
        software: RankedSoftware | None = None,
    ) -> Prior:
        """Return all blocks as one prior; `est` is one of their estimates."""
        columns = {name: np.concatenate(blocks)[order] for name, blocks in self.columns.items()}
        stack = est.assumptions.name
        known = errors()
        room = memory_that_fits(0.9, capacity, stack) / capacity  # ln of it is -scale ln 9
        return Prior(
            seconds=columns["seconds"],
            memory=columns["memory"],
            shares={name: columns[name] for name in LEARNT},
            coordinates=np.concatenate(self.coordinates)[order],
            factor=est.case.factor(known),
            capacity=capacity,
            memory_scale=float(-np.log(room) / np.log(9)),
            software=software,
            known=known,
        )


def of_search(question: Question) -> Candidates:
    """Return the plans of a search that may fit and may be the fastest; of each layout the best placed.

    `question` is about one number of GPUs; its `top` does not matter.
    """
    collector = ErrorCollector("search")
    request = collector.require(search_request(collector, replace(question, top=1)))
    system = request.system
    capacity = float(system.accelerator.visible_bytes)
    assumed = request.assumptions
    most = capacity
    if assumed.errors_known:
        most = memory_that_fits(LEAST_FIT, capacity, assumed.name, assumed.memory.allocator_share)
    roomy = system.with_visible(most)  # no time depends on it
    (found,) = replace(request, system=roomy).answer()
    times, rows = found.layouts.answer(lambda times: times.best(MOST_CANDIDATES, slowdown=MAX_SLOWDOWN))
    if not len(rows):
        raise NothingFits(str(request.answer()[0].explain()))
    blocks = _Blocks()
    place = []
    software = dict[str, Floats]()  # times of candidates, ranked
    can_be_first = set(times.outcome[rows[:MOST_DRAWN]].tolist())
    for index in np.unique(times.outcome[rows]):
        mine = np.flatnonzero(times.outcome[rows] == index)
        columns = times.columns(rows[mine])
        space = times.outcomes[index].space
        fitted = times.outcomes[index].evaluation.assumptions
        est = estimate_columns(space.model, system, columns, space.gbs, fitted)
        blocks.add(est, columns, len(mine))
        place.append(mine)
        for name, seconds in (est.software_seconds(columns) if index in can_be_first else {}).items():
            software.setdefault(name, np.full(len(rows), np.nan))[mine] = seconds
    order = np.argsort(np.concatenate(place))  # as they are ranked
    starts = np.cumsum([0, *map(len, place)])

    def row(i: int) -> Plan:
        block = int(np.searchsorted(starts, order[i], side="right")) - 1
        return blocks.plans[block].row(int(order[i] - starts[block]))

    predicted = np.concatenate(blocks.columns["seconds"])[order]
    open_still = RankedSoftware.from_times(est.ranking_software, predicted, software)
    return Candidates(blocks.prior(est, capacity, order, open_still), row, blocks.numbers)


def of_runs(runs: Sequence[Run]) -> Candidates:
    """Return listed plans of one model and machine as candidates, in their order.

    Raises `InputError` if there is none, or one breaks a rule.
    """
    of_batches, refused = batches(runs)
    if refused or not runs:
        raise InputError("plans", list(dict.fromkeys(refused.values())) or ["give at least one"])
    blocks = _Blocks()
    place = []
    for batch in of_batches:
        est = batch.estimate(batch.system, resolve(batch.stack))
        blocks.add(est, batch.plans, len(batch.rows))
        place.append(batch.rows)
    kept = np.concatenate(place)
    order = np.argsort(kept)
    plans = [runs[i].plan for i in kept[order].tolist()]
    capacity = float(runs[0].system.accelerator.visible_bytes)
    return Candidates(blocks.prior(est, capacity, order), plans.__getitem__, blocks.numbers)
