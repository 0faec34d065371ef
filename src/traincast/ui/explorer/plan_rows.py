"""Estimates of plans as the page reads them; many at once cost little more than one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from traincast.core.knobs import CHOICES, KNOBS
from traincast.core.plan import Plan, Plans
from traincast.planner.misfit import short_of
from traincast.step.estimate import Estimate, estimate_columns
from traincast.step.uncertainty import outside_measured_range
from traincast.ui.explorer.question import ExplorerCase
from traincast.ui.explorer.snippets import knobs_of

SUMMARY_FIELDS = ("step_seconds", "memory_bytes", "fits", "tokens_per_second_per_gpu", "training_days")


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
    outside: dict[str, Any] = {}
    if est.interval:  # sizes depend on model and GPUs only: the same for all rows
        sizes = _row_of_columns(est.case.sizes, 0)
        outside["outside_measured"] = outside_measured_range(replace(est.case, sizes=sizes))
    return [
        {
            "strategy": plan.strategy,
            "plan": {name: getattr(plan, name) for name in (*KNOBS, *CHOICES)},
            **_row_of_columns(summary, row),
            **outside,
            **_label_and_knobs(plan),
        }
        for row, plan in enumerate(plans)
    ]


def _label_and_knobs(plan: Plan) -> dict[str, Any]:
    """Return the label of a plan, and its knobs for the next request."""
    return {"label": str(plan), "knobs": knobs_of(plan)}


def _row_of_columns(value: Any, row: int) -> Any:
    """Return one row of a value that holds columns."""
    if isinstance(value, Mapping):
        return {key: _row_of_columns(item, row) for key, item in value.items()}
    return value[row].item() if getattr(value, "ndim", 0) else value
