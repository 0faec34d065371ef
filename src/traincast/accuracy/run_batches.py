"""Measured runs as columns: runs that differ in numbers only are one evaluation of the engine."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import numpy as np

from traincast.accuracy.runs.run import Run
from traincast.catalog.software_stacks import with_fitted_values
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import Floats, Ints
from traincast.core.system import System
from traincast.step.estimate import Estimates, count_operations, estimate, estimate_columns
from traincast.step.placement import placements
from traincast.step.validity import broken_rules


@dataclass(frozen=True)
class RunBatch:
    """Runs of one model, machine, software stack and set of choices.

    Parameters
    ----------
    model, system : Model, System
        Model and machine.
    stack : str
        The software that ran it, as in `Run`.
    plans : Plans
        Their plans, columns of shape (runs,), placed.
    gbs : array, shape (runs,)
        Their global batches [sequences].
    rows : array of int, shape (runs,)
        Indices into the sequence that was batched.
    """

    model: Model
    system: System
    stack: str
    plans: Plans
    gbs: Any  # a column of ints, broadcast by the engine
    rows: Ints
    counted: dict[Any, Any] = field(
        default_factory=dict, compare=False, repr=False
    )  # operations by the assumptions they depend on

    def estimate(self, system: System, assumed: Assumptions) -> Estimates:
        """Estimate these runs on a machine under assumptions; operations are counted once."""
        assumed = with_fitted_values(system, assumed)
        for assumptions, operations in self.counted.items():
            if all(assumed.value(path) == value for path, value in assumptions):
                return estimate_columns(self.model, system, self.plans, self.gbs, assumed, operations)
        recorded = _Recorded(assumed)
        operations = count_operations(self.model, self.plans, recorded)  # type: ignore[arg-type]
        self.counted[tuple(sorted(recorded.read.items()))] = operations
        return estimate_columns(self.model, system, self.plans, self.gbs, assumed, operations)

    def seconds(self, system: System, assumed: Assumptions, counted: bool = True) -> Floats:
        """Return step times, shape (runs,), or (machines, runs) where figures of the system are columns of shape (machines, 1) [s].

        Assumptions may be such columns as well; pass ``counted=False`` then, so that operations are not
        cached.
        """
        if counted:
            seconds = self.estimate(system, assumed).step_seconds
        else:
            seconds = estimate_columns(self.model, system, self.plans, self.gbs, assumed).step_seconds
        return np.broadcast_to(
            np.asarray(seconds, np.float64), np.broadcast_shapes(seconds.shape, (len(self.rows),))
        )


class _Recorded:
    """Assumptions that record which of them are read: operations depend on nothing else."""

    def __init__(self, record: Any, prefix: str = "", read: dict[str, Any] | None = None):
        self.record, self.prefix = record, prefix
        self.read: dict[str, Any] = {} if read is None else read

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.record, name)
        if is_dataclass(value):
            return _Recorded(value, f"{self.prefix}{name}.", self.read)
        self.read[self.prefix + name] = value
        return value


def batches(runs: Sequence[Run]) -> tuple[list[RunBatch], dict[int, str]]:
    """Group runs into batches; give the reason for runs that cannot be estimated.

    Parameters
    ----------
    runs : sequence of Run
        The runs.

    Returns
    -------
    batches : list of RunBatch
        Batches of the runs that break no rule.
    refused : dict of int to str
        Index of a run → the rule it breaks.
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    plans = [placed(run) for run in runs]
    for i, (run, plan) in enumerate(zip(runs, plans, strict=True)):
        groups[replace(run.model, name=""), run.system.name, run.stack, tuple(plan.choices().items())].append(
            i
        )
    run_batches: list[RunBatch] = []
    refused: dict[int, str] = {}
    for group in groups.values():
        broken = _breaks_rules([runs[i] for i in group], [plans[i] for i in group])
        refused |= {
            i: _refusal(runs[i], plans[i]) for i, is_broken in zip(group, broken, strict=True) if is_broken
        }
        if rows := [i for i in group if i not in refused]:
            run_batches.append(_batch(rows, runs, plans))
    return run_batches, refused


def placed(run: Run) -> Plan:
    """Return the plan of a run with its ranks placed in the order of frameworks."""
    all_placements = placements(run.plan, run.system.domain(run.plan.gpus), ordered=True)
    return run.plan if all_placements is None else all_placements.row(0)


def _as_columns(plans: Sequence[Plan]) -> Plans:
    """Return plans with the same choices as columns."""
    knobs: dict[str, Any] = {
        name: np.array([float(getattr(plan, name) or 1) for plan in plans])
        for name in plans[0].columns().numbers()
    }
    return Plans(**knobs, **plans[0].choices())


def _batch(rows: Sequence[int], runs: Sequence[Run], plans: Sequence[Plan]) -> RunBatch:
    """Return the runs at some indices as a batch."""
    first = runs[rows[0]]
    gbs = np.array([float(runs[i].gbs) for i in rows])
    return RunBatch(
        first.model, first.system, first.stack, _as_columns([plans[i] for i in rows]), gbs, np.array(rows)
    )


def _breaks_rules(runs: Sequence[Run], plans: Sequence[Plan]) -> Iterable[bool]:
    """Return for each run whether it breaks a rule."""
    gbs: Any = np.array([run.gbs for run in runs])
    masks = broken_rules(runs[0].model, _as_columns(plans), gbs, runs[0].system.fast_domain).values()
    broken = np.zeros(len(runs), bool)
    for mask in masks:
        broken |= mask
    return broken.tolist()


def _refusal(run: Run, plan: Plan) -> str:
    """Return why a run is refused."""
    try:
        estimate(run.model, run.system, plan, gbs=run.gbs)
    except InputError as error:
        return " ".join(str(error).split())
    return "cannot be estimated beside others"
