"""Measured runs side by side: those that differ in numbers only are one evaluation of the engine."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traincast.accuracy.runs.run import Run
from traincast.catalog.software_stacks import on
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import Floats, Ints
from traincast.core.system import System
from traincast.step.estimate import Estimate, count_operations, estimate, estimate_columns
from traincast.step.placement import placements
from traincast.step.validity import broken_rules


@dataclass(frozen=True)
class RunBatch:
    """Runs of one model, machine, software stack and set of choices.

    Parameters
    ----------
    model, system : Model, System
        What ran.
    stack : str
        The software that ran it, as in `Run`.
    plans : Plans
        Their plans, columns of shape (runs,), placed.
    gbs : array, shape (runs,)
        Their global batches [sequences].
    rows : array of int, shape (runs,)
        Their places in the sequence that was batched.
    """

    model: Model
    system: System
    stack: str
    plans: Plans
    gbs: Any  # for the engine a column like any other
    rows: Ints
    counted: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # operations by what they depend on

    def estimate(self, system: System, assumed: Assumptions) -> Estimate:
        """The engine on these runs, with figures of the machine and assumptions as given; operations are counted once."""
        assumed = on(system, assumed)
        for read, whole in self.counted.items():
            if all(getattr(assumed, name) == value for name, value in read):
                return estimate_columns(self.model, system, self.plans, self.gbs, assumed, whole)
        watched = _Watched(assumed)
        whole = count_operations(self.model, self.plans, watched)  # type: ignore[arg-type]
        self.counted[tuple((name, getattr(assumed, name)) for name in sorted(watched.read))] = whole
        return estimate_columns(self.model, system, self.plans, self.gbs, assumed, whole)

    def seconds(self, system: System, assumed: Assumptions, counted: bool = True) -> Floats:
        """Step times: shape (runs,), or (machines, runs) where figures of the system are columns of shape (machines, 1) [s].

        Assumptions may be such columns as well; operations are then `counted` for this time only.
        """
        if counted:
            value = self.estimate(system, assumed).step_seconds
        else:
            whole = count_operations(self.model, self.plans, assumed)
            value = estimate_columns(self.model, system, self.plans, self.gbs, assumed, whole).step_seconds
        return np.broadcast_to(np.asarray(value, np.float64), np.broadcast_shapes(np.shape(value), (len(self.rows),)))


class _Watched:
    """Assumptions that remember which of them were read: operations depend on nothing else."""

    def __init__(self, assumed: Assumptions):
        self.assumed = assumed
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.assumed, name)


def batches(runs: Sequence[Run]) -> tuple[list[RunBatch], dict[int, str]]:
    """Runs in batches, and why others cannot be estimated.

    Parameters
    ----------
    runs : sequence of Run
        The runs.

    Returns
    -------
    batches : list of RunBatch
        Every run that breaks no rule is in one of them.
    refused : dict of int to str
        Place of a run in the sequence → what rule it breaks.
    """
    alike: dict[Any, list[int]] = defaultdict(list)
    plans = [placed(run) for run in runs]
    for i, (run, plan) in enumerate(zip(runs, plans, strict=True)):
        alike[replace(run.model, name=""), run.system.name, run.stack, tuple(plan.choices().items())].append(i)
    found: list[RunBatch] = []
    refused: dict[int, str] = {}
    for group in alike.values():
        broken = _broken([runs[i] for i in group], [plans[i] for i in group])
        refused |= {i: _reason(runs[i], plans[i]) for i, wrong in zip(group, broken, strict=True) if wrong}
        if rows := [i for i in group if i not in refused]:
            found.append(_batch(rows, runs, plans))
    return found, refused


def placed(run: Run) -> Plan:
    """The plan of a run with its ranks where frameworks put them."""
    every = placements(run.plan, run.system.domain(run.plan.gpus), ordered=True)
    return run.plan if every is None else every.row(0)


def _side_by_side(plans: Sequence[Plan]) -> Plans:
    """Plans with the same choices as columns."""
    knobs: dict[str, Any] = {
        name: np.array([float(getattr(plan, name) or 1) for plan in plans]) for name in plans[0].columns().numbers()
    }
    return Plans(**knobs, **plans[0].choices())


def _batch(rows: Sequence[int], runs: Sequence[Run], plans: Sequence[Plan]) -> RunBatch:
    """The runs at some places."""
    first = runs[rows[0]]
    gbs = np.array([float(runs[i].gbs) for i in rows])
    return RunBatch(first.model, first.system, first.stack, _side_by_side([plans[i] for i in rows]), gbs, np.array(rows))


def _broken(runs: Sequence[Run], plans: Sequence[Plan]) -> Iterable[bool]:
    """Which runs break a rule."""
    gbs: Any = np.array([run.gbs for run in runs])
    masks = broken_rules(runs[0].model, _side_by_side(plans), gbs, runs[0].system.fast_domain).values()
    wrong = np.zeros(len(runs), bool)
    for mask in masks:
        wrong |= mask
    return wrong.tolist()


def _reason(run: Run, plan: Plan) -> str:
    """What a run is refused for."""
    try:
        estimate(run.model, run.system, plan, run.gbs)
    except InputError as error:
        return " ".join(str(error).split())
    return "cannot be estimated beside others"
