"""Plans as the page reads them: ranked rows, a sample of the design space, and the full Pareto front."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from traincast.core.knobs import CHOICES, KNOBS, STRATEGIES
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import Floats, Ints
from traincast.planner.least_times import LeastTimes
from traincast.planner.plan_sentences import short_of
from traincast.planner.search import Found
from traincast.step.estimate import Estimate, Estimates, estimate_columns
from traincast.step.uncertainty import outside_measured_range
from traincast.ui.explorer.limits import MOST_POINTS
from traincast.ui.explorer.question import ExplorerCase
from traincast.ui.explorer.snippets import knobs_of

SUMMARY_FIELDS = ("step_seconds", "memory_bytes", "fits", "tokens_per_second_per_gpu", "training_days")
DEFAULT_PLAN: Final = Plan()
SHOWN_DIGITS: Final = 5  # significant digits of drawn values


def row_of(case: ExplorerCase, est: Estimate) -> dict[str, Any]:
    """Return an estimate of one plan with its metrics, its label, and the knobs that make it."""
    row = est.to_dict() | _label_and_knobs(est.plan) | {"metrics": case.metrics(est)}
    return row if est.fits else row | {"short_of": short_of(est, advice=True)}


def rows_of(case: ExplorerCase, plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return rows of placed plans that fit; plans with equal choices are estimated together."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, plan in enumerate(plans):
        groups.setdefault(tuple(plan.choices().values()), []).append(i)
    rows: dict[int, dict[str, Any]] = {}
    for group in groups.values():
        rows |= zip(group, _rows_of_group(case, [plans[i] for i in group]), strict=True)
    return [rows[i] for i in range(len(plans))]


def _rows_of_group(case: ExplorerCase, plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return rows of plans with equal choices."""
    question = case.question
    numbers = {knob: np.array([float(getattr(plan, knob)) for plan in plans]) for knob in KNOBS}
    columns = Plans(**numbers | plans[0].choices())
    est = estimate_columns(case.model, case.system, columns, question.gbs, question.assumptions)
    summary = {name: getattr(est, name) for name in SUMMARY_FIELDS} | est.uncertainty()
    summary |= {"breakdown_seconds": est.breakdown, "memory_by_component_bytes": est.memory}
    summary["metrics"] = case.metrics(est)
    return [
        {
            "strategy": plan.strategy,
            "plan": {name: getattr(plan, name) for name in (*KNOBS, *CHOICES)},
            **_row_of_columns(summary, row),
            **_outside(est, row),
            **_label_and_knobs(plan),
        }
        for row, plan in enumerate(plans)
    ]


def _outside(est: Estimates, row: int) -> dict[str, list[str]]:
    """Return the respects in which a row lies outside of measured runs, where errors are known."""
    if not est.interval:
        return {}
    sizes, shares = (_row_of_columns(columns, row) for columns in (est.case.sizes, est.case.shares))
    return {"outside_measured": outside_measured_range(replace(est.case, sizes=sizes, shares=shares))}


def _label_and_knobs(plan: Plan) -> dict[str, Any]:
    return {"label": str(plan), "knobs": knobs_of(plan)}


def _row_of_columns(value: Any, row: int) -> Any:
    """Return one row of a value that holds columns."""
    if isinstance(value, Mapping):
        return {key: _row_of_columns(item, row) for key, item in value.items()}
    return value[row].item() if getattr(value, "ndim", 0) else value


def sample(result: Found) -> dict[str, Any]:
    """Return a sample of the layouts that fit, each with its least time, denser where they are fast.

    It takes ranks in geometric steps, so that the cloud keeps its shape while a slider moves: by time, or by
    the bound on it where a layout was not timed.
    """
    order = np.argsort(result.times.seconds, kind="stable")
    if len(order):
        ranks = np.geomspace(1, len(order), MOST_POINTS).round().astype(np.int64)
        order = order[np.unique(ranks) - 1]
    seconds = result.times.exact(np.sort(order))
    return _points(result.times, np.sort(order)[np.argsort(seconds, kind="stable")])


def front(result: Found) -> dict[str, Any]:
    """Return the Pareto front of time and memory, fastest first."""
    return _points(result.times, result.times.front())


def _points(times: LeastTimes, points: Ints) -> dict[str, Any]:
    """Return time, memory and knobs of layouts, without placements: an estimate chooses them again."""
    knobs: list[dict[str, Any]] = [{}] * len(points)
    for number, outcome in enumerate(times.outcomes):
        rows = np.flatnonzero(times.outcome[points] == number)
        if not len(rows):
            continue
        space = outcome.space
        placed = "panels" in STRATEGIES[space.strategy].knobs  # their number belongs to the placement
        if placed or space.batch.overlaps_in_domain:  # and so does overlap
            row_knobs = _knobs(times.columns(points[rows]), len(rows), placed)
        else:
            plans = space.without_assumptions(space.layouts.take(times.layout[points[rows]]))
            row_knobs = _knobs(plans, len(rows), placed=False)
        for row, values in zip(rows, row_knobs, strict=True):
            knobs[row] = values
    seconds, memory = _rounded(times.seconds[points]), _rounded(times.memory[points])
    return {"step_seconds": seconds, "memory_bytes": memory, "plan": knobs}


def _knobs(plans: Plans, rows: int, placed: bool) -> list[dict[str, Any]]:
    """Return the knobs and choices of each row of plans that differ from the default."""
    columns = {
        name: np.broadcast_to(column, rows).astype(np.int64)
        for name, column in plans.numbers().items()
        if placed or not name.startswith("fast_")
    }
    for name in [name for name in columns if name.startswith("fast_")]:
        is_alone = columns[name.removeprefix("fast_")] == 1  # a group of one rank has no placement
        columns[name] = np.where(is_alone, 1, columns[name])
    values = plans.choices()
    overlapped = np.broadcast_to(values.pop("tp_overlap"), rows).tolist()
    choices = {name: value for name, value in values.items() if value != getattr(DEFAULT_PLAN, name)}
    overlap: tuple[dict[str, Any], dict[str, Any]] = ({}, {"tp_overlap": True})
    varied = {name: column.tolist() for name, column in columns.items() if (column != 1).any()}
    return [
        {name: column[i] for name, column in varied.items() if column[i] != 1}
        | choices
        | overlap[overlapped[i]]
        for i in range(rows)
    ]


def _rounded(values: Floats) -> list[float]:
    """Return numbers rounded to the digits that a drawing shows."""
    return [float(f"{value:.{SHOWN_DIGITS}g}") for value in values.tolist()]
