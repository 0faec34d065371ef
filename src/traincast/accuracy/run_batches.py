"""Measured runs as columns: runs that differ in numbers only are one evaluation of the engine."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from traincast.accuracy.runs.run import Run
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import Floats, Ints
from traincast.core.system import System
from traincast.step.estimate import Estimates, estimate, estimate_columns
from traincast.step.placement import placements
from traincast.step.validity import broken_rules


@dataclass(frozen=True, eq=False)
class RunBatch:
    """Runs of one model, machine, software stack and set of choices, whose plans are placed.

    `plans` and `gbs` are columns of shape (runs,); `rows` are the indices of the runs in the sequence that
    was batched.
    """

    model: Model
    system: System
    stack: str
    plans: Plans
    gbs: Any  # a column of ints, broadcast by the engine
    rows: Ints

    def estimate(self, system: System, assumed: Assumptions) -> Estimates:
        """Estimate these runs on a machine under assumptions."""
        return estimate_columns(self.model, system, self.plans, self.gbs, assumed)

    def seconds(self, system: System, assumed: Assumptions) -> Floats:
        """Return step times, shape (runs,), or (n, runs) where figures are columns of shape (n, 1) [s]."""
        value = np.asarray(self.estimate(system, assumed).step_seconds, np.float64)
        return np.broadcast_to(value, np.broadcast_shapes(value.shape, self.rows.shape))


def batches(runs: Sequence[Run]) -> tuple[list[RunBatch], dict[int, str]]:
    """Group runs into batches; also return, by index, the rule that a run breaks, so that it is in none."""
    plans = [_placed(run) for run in runs]
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, (run, plan) in enumerate(zip(runs, plans, strict=True)):
        group = replace(run.model, name=""), run.system.name, run.stack, tuple(plan.choices().items())
        groups[group].append(i)
    run_batches: list[RunBatch] = []
    refused: dict[int, str] = {}
    for group_rows in groups.values():
        first = runs[group_rows[0]]
        rows = np.array(group_rows)
        gbs: Any = np.array([float(runs[i].gbs) for i in group_rows])
        columns = _as_columns([plans[i] for i in group_rows])
        broken = np.zeros(len(rows), bool)
        for mask in broken_rules(first.model, columns, gbs, first.system.fast_domain).values():
            broken |= mask
        refused |= {i: _refusal(runs[i], plans[i]) for i in rows[broken].tolist()}
        if not broken.all():
            batch = RunBatch(
                first.model, first.system, first.stack, columns.take(~broken), gbs[~broken], rows[~broken]
            )
            run_batches.append(batch)
    return run_batches, refused


def _placed(run: Run) -> Plan:
    """Return the plan of a run with its ranks placed in the order of frameworks."""
    all_placements = placements(run.plan, run.system.domain(run.plan.gpus), ordered=True)
    return run.plan if all_placements is None else all_placements.row(0)


def _as_columns(plans: Sequence[Plan]) -> Plans:
    knobs: dict[str, Any] = {
        name: np.array([float(getattr(plan, name) or 1) for plan in plans])
        for name in plans[0].columns().numbers()
    }
    return Plans(**knobs, **plans[0].choices())


def _refusal(run: Run, plan: Plan) -> str:
    try:
        estimate(run.model, run.system, plan, gbs=run.gbs)
    except InputError as error:
        return " ".join(str(error).split())
    return "cannot be estimated beside others"
