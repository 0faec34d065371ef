"""Plans as the page reads them: ranked rows, a sample of the design space, and the full Pareto front."""

from collections.abc import Collection
from typing import Any, Final

import numpy as np

from traincast.core import DEFAULTS, STRATEGIES, Floats, Ints, Plans
from traincast.planner import Found, LeastTimes, short_of
from traincast.step import Estimate
from traincast.ui.explorer.limits import MOST_POINTS
from traincast.ui.explorer.question import ExplorerCase

SHOWN_DIGITS: Final = 5  # significant digits of drawn values


def row_of(case: ExplorerCase, est: Estimate, without: Collection[str] = ()) -> dict[str, object]:
    """Return an estimate of one plan with its metrics, its label, and the knobs that make it.

    `without`: keys of the estimate that are not wanted, and not worked out.
    """
    label = {"label": str(est.plan), "knobs": est.plan.knobs(placement=True)}
    return est.to_dict(without=without) | label | {"metrics": case.metrics(est)}


def row_with_advice(case: ExplorerCase, est: Estimate) -> dict[str, object]:
    """Return `row_of` a plan, and what would make it fit where it may not: a dozen plans are tried for it."""
    row = row_of(case, est)
    return row if est.verdict == "fits" else row | {"short_of": short_of(est, advice=True)}


def phases_of(est: Estimate) -> list[dict[str, object]]:
    """Return the memory of the fullest rank in every phase of a step."""
    return [row.to_dict() for row in est.memory_timeline()]


def sample(result: Found) -> dict[str, Any]:
    """Return a sample of the layouts that fit, each with its least time, denser where they are fast.

    It takes ranks in geometric steps, so that the cloud keeps its shape while a slider moves: by time, or by
    the bound on it where a layout was not timed.
    """
    times = result.sample
    order = np.argsort(times.seconds, kind="stable")
    if len(order):
        ranks = np.geomspace(1, len(order), MOST_POINTS).round().astype(np.int64)
        order = order[np.unique(ranks) - 1]
    seconds = times.exact(np.sort(order))
    return _points(times, np.sort(order)[np.argsort(seconds, kind="stable")])


def front(result: Found) -> dict[str, Any]:
    """Return the Pareto front of time and memory, fastest first."""
    return _points(*result.front)


def _points(times: LeastTimes, points: Ints) -> dict[str, object]:
    """Return time, memory and knobs of layouts, without placements: an estimate chooses them again."""
    knobs: list[dict[str, object]] = [{}] * len(points)
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
    seconds = _round_values(times.seconds[points])
    memory = _round_values(times.memory[points])
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
    choices = {name: value for name, value in values.items() if value != DEFAULTS[name]}
    overlap: tuple[dict[str, object], dict[str, object]] = ({}, {"tp_overlap": True})
    varied = {name: column.tolist() for name, column in columns.items() if (column != 1).any()}
    return [
        {name: column[i] for name, column in varied.items() if column[i] != 1}
        | choices
        | overlap[overlapped[i]]
        for i in range(rows)
    ]


def _round_values(values: Floats) -> list[float]:
    """Return numbers rounded to the digits that a drawing shows."""
    return [float(f"{value:.{SHOWN_DIGITS}g}") for value in values.tolist()]
