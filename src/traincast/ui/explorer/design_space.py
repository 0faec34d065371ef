"""The design space as points: a sample of the layouts that fit, and the full Pareto front."""

from typing import Any, Final

import numpy as np

from traincast.core.plan import Plan
from traincast.core.quantities import CHOICES, Ints
from traincast.planner.evaluation import fastest_plans
from traincast.planner.search import Found
from traincast.ui.explorer.limits import MOST_POINTS

DEFAULT_PLAN: Final = Plan()
SHOWN_DIGITS: Final = 5  # significant digits of drawn values


def sample(result: Found) -> dict[str, Any]:
    """Return a sample of the layouts that fit, each with its least time: at most a thousand, denser where they are fast.

    It takes ranks 1, 2, … r, … by time in geometric steps, so that the cloud keeps its shape while a slider moves.
    """
    which = np.repeat(np.arange(len(result.outcomes)), [len(outcome.fitting) for outcome in result.outcomes])
    layout, seconds = (
        np.concatenate([getattr(outcome, name) for outcome in result.outcomes])
        for name in ("fitting", "least_seconds")
    )
    order = np.argsort(seconds, kind="stable")
    ranks = (
        np.unique(np.geomspace(1, len(order), MOST_POINTS).round().astype(np.int64)) - 1
        if len(order)
        else order
    )
    picked = order[ranks]
    return _points(result, which[picked], layout[picked])


def front(result: Found) -> dict[str, Any]:
    """Return the Pareto front of time and memory, fastest first."""
    rows = np.array(result.front(), np.int64).reshape(-1, 2)
    return _points(result, rows[:, 0], rows[:, 1])


def _points(result: Found, which: Ints, layout: Ints) -> dict[str, Any]:
    """Return time, memory and knobs of layouts. Placements are left out: an estimate chooses the same ones again."""
    seconds, memory = np.zeros(len(which)), np.zeros(len(which))
    knobs: list[dict[str, Any]] = [{}] * len(which)
    for number, outcome in enumerate(result.outcomes):
        rows = np.flatnonzero(which == number)
        if not len(rows):
            continue
        chosen, space = layout[rows], outcome.evaluation.space
        at = np.searchsorted(outcome.fitting, chosen)
        seconds[rows], memory[rows] = outcome.least_seconds[at], outcome.memory[at]
        filled = space.strategy == "summa"  # the number of panels belongs to the placement
        plans = (
            fastest_plans(outcome, chosen)
            if filled
            else space.without_assumptions(space.layouts.take(chosen))
        )
        for row, knobs_of_row in zip(rows, _knobs(plans, len(chosen), filled), strict=True):
            knobs[row] = knobs_of_row
    return {"step_seconds": _rounded(seconds), "memory_bytes": _rounded(memory), "plan": knobs}


def _knobs(plans: Any, rows: int, filled: bool) -> list[dict[str, Any]]:
    """Return the knobs and choices of each row of plans that differ from the default."""
    numbers = {
        name: np.broadcast_to(column, rows).astype(np.int64).tolist()
        for name, column in plans.numbers().items()
        if filled or not name.startswith("fast_")
    }
    choices = {
        name: getattr(plans, name) for name in CHOICES if getattr(plans, name) != getattr(DEFAULT_PLAN, name)
    }
    for name in [
        name for name in numbers if name.startswith("fast_")
    ]:  # a group of one rank has no placement
        numbers[name] = [
            1 if alone == 1 else n
            for n, alone in zip(numbers[name], numbers[name.removeprefix("fast_")], strict=True)
        ]
    varied = {name: column for name, column in numbers.items() if any(value != 1 for value in column)}
    return [
        {name: column[i] for name, column in varied.items() if column[i] != 1} | choices for i in range(rows)
    ]


def _rounded(values: Any) -> list[float]:
    """Return numbers rounded to the digits that a drawing shows."""
    return [float(f"{value:.{SHOWN_DIGITS}g}") for value in values.tolist()]
