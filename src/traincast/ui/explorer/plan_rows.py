"""Estimates of plans as the page reads them, for one plan or for many at once (which costs little more than one)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from traincast.core.plan import Plan, Plans
from traincast.core.quantities import CHOICES, KNOBS
from traincast.planner.misfit import short_of
from traincast.step.estimate import Estimate, estimate_columns
from traincast.step.uncertainty import outside_measured_range
from traincast.ui.explorer.question import ExplorerCase
from traincast.ui.explorer.snippets import knobs_of

SUMMARY_FIELDS = ("step_seconds", "memory_bytes", "fits", "tokens_per_second_per_gpu", "training_days")


def row_of(case: ExplorerCase, est: Estimate) -> dict[str, Any]:
    """Return an estimate of one plan with its metrics, its label, and the knobs that make it."""
    plan = est.plan if isinstance(est.plan, Plan) else est.plan.row(0)
    row = est.summary() | _label_and_knobs(plan) | {"metrics": vars(case.metrics(est))}
    return row if est.fits else row | {"short_of": short_of(est, advice=True)}


def rows_of(case: ExplorerCase, plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return rows of placed plans that fit, in their order; plans with equal choices are estimated together."""
    rows: dict[int, dict[str, Any]] = {}
    for group in _groups_by_choices(plans):
        plans_in_group = _plan_columns([plans[i] for i in group])
        est = estimate_columns(
            case.model, case.system, plans_in_group, case.question.gbs, case.question.assumptions
        )
        columns_by_name = {name: getattr(est, name) for name in SUMMARY_FIELDS} | est.uncertainty()
        columns_by_name |= {
            "breakdown_seconds": est.breakdown,
            "memory_by_component_bytes": est.memory,
            "metrics": vars(case.metrics(est)),
        }
        sizes = _row_of_columns(
            est.case.sizes, 0
        )  # they depend on model and GPUs only: the same for all rows
        outside_measured = (
            {"outside_measured": outside_measured_range(replace(est.case, sizes=sizes))}
            if est.interval
            else {}
        )
        for row, i in enumerate(group):
            rows[i] = {
                "strategy": plans[i].strategy,
                "plan": _every_knob(plans[i]),
                **_row_of_columns(columns_by_name, row),
                **outside_measured,
                **_label_and_knobs(plans[i]),
            }
    return [rows[i] for i in range(len(plans))]


def _label_and_knobs(plan: Plan) -> dict[str, Any]:
    """Return the label of a plan, and its knobs for the next request."""
    return {"label": str(plan), "knobs": knobs_of(plan)}


def _every_knob(plan: Plan) -> dict[str, Any]:
    """Return every knob and choice of a placed plan."""
    return {name: getattr(plan, name) for name in (*KNOBS, *CHOICES)}


def _groups_by_choices(plans: Sequence[Plan]) -> Iterable[list[int]]:
    """Return the indices of plans, grouped by equal choices."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, plan in enumerate(plans):
        groups.setdefault(tuple(plan.choices().values()), []).append(i)
    return groups.values()


def _plan_columns(plans: Sequence[Plan]) -> Plans:
    """Return plans with equal choices as columns."""
    return Plans(
        **{knob: np.array([float(getattr(plan, knob)) for plan in plans]) for knob in KNOBS}
        | plans[0].choices()
    )


def _row_of_columns(value: Any, row: int) -> Any:
    """Return one row of a value that holds columns."""
    if isinstance(value, Mapping):
        return {key: _row_of_columns(item, row) for key, item in value.items()}
    return value[row].item() if getattr(value, "ndim", 0) else value
