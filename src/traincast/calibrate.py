"""Fit constants of the catalogue to measured runs, and predict runs with constants fitted without them."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.batches import Batch, batches
from traincast.columns import Floats
from traincast.errors import InputError
from traincast.fitting import NINETY, Data, Solution, left_out, solve
from traincast.measurements import Run, readable, rows
from traincast.parameters import Parameter, Setting, accelerator_name, touching_stack, touching_system
from traincast.validate import source_of

NOISE: Final = {"dense": 0.05, "moe": 0.10}  # relative error expected of a row
MEASUREMENTS: Final = {"vtrain-s": 32}  # what all rows of a source amount to: these are composed of 32 layer costs
NUDGE: Final = 1e-3  # change of the logarithm of a value for a derivative


def bundled_runs() -> list[Run]:
    """Every bundled run that can be read."""
    return [run for _, run in readable(rows()) if isinstance(run, Run)]


def group_of(run: Run) -> tuple[str, str, str]:
    """What runs have in common that are left out together: source, model, accelerator."""
    shape = run.model
    size = f"{shape.layers}x{shape.hidden}" if not shape.name or shape.name == run.id else shape.name
    return source_of(run.id, run.model.experts is not None), size, accelerator_name(run.system)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Measured runs as residuals of parameters.

    Parameters
    ----------
    runs : sequence of Run
        The runs.
    parameters : sequence of Parameter
        What is fitted.
    """

    runs: Sequence[Run]
    parameters: Sequence[Parameter]
    batches: list[Batch] = field(init=False, repr=False)
    refused: dict[int, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found, refused = batches(self.runs)
        object.__setattr__(self, "batches", found)
        object.__setattr__(self, "refused", refused)

    @cached_property
    def data(self) -> Data:
        """Weights and noise: a group of n runs counts as √n, and no source as more than it measured."""
        groups = [group_of(run) for run in self.runs]
        size, source = Counter(groups), Counter(source for source, _, _ in groups)
        weights = [
            MEASUREMENTS[one[0]] / max(source[one[0]], MEASUREMENTS[one[0]]) if one[0] in MEASUREMENTS else size[one] ** -0.5
            for one in groups
        ]
        scales = [NOISE["moe" if run.model.experts else "dense"] for run in self.runs]
        usable = np.isin(np.arange(len(groups)), [i for batch in self.batches for i in batch.rows]) & (self.measured > 0)
        return Data(np.where(usable, weights, 0.0), np.array(scales), groups)

    @cached_property
    def measured(self) -> Floats:
        """Measured step times, shape (runs,), nan where there is none [s]."""
        return np.array([run.step_seconds or np.nan for run in self.runs])

    def predict(self, values: Sequence[float] | Floats | None = None, only: Iterable[int] | None = None) -> Floats:
        """Step times with values of the parameters, shape (runs,) [s]; nan where there is no estimate, or none is asked for."""
        setting = Setting(self.parameters, values)
        seconds = np.full(len(self.runs), np.nan)
        wanted = None if only is None else set(only)
        for batch in self.batches:
            if wanted is None or not wanted.isdisjoint(batch.rows.tolist()):
                try:
                    seconds[batch.rows] = batch.seconds(setting.system(batch.system), setting.assumed(batch.stack))
                except InputError:  # a precision that the accelerator lacks
                    continue
        return seconds

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Logarithm of predicted over measured, shape (runs,), and its derivatives by theta, shape (runs, parameters).

        A run that cannot be estimated has zeros. Each batch is evaluated for the parameters that touch it only: once more for each
        assumption, and once for all figures of the machine, as columns.
        """
        values = [one.value(x) for one, x in zip(self.parameters, theta, strict=True)]
        y, slopes = np.zeros(len(self.runs)), np.zeros((len(self.runs), len(theta)))
        for batch in self.batches:
            try:
                base, columns = self._derived(batch, values)
            except InputError:
                continue
            y[batch.rows] = np.nan_to_num(np.log(base / self.measured[batch.rows]))
            for i, column in columns.items():
                slopes[batch.rows, i] = column * self.parameters[i].sigma
        return y, slopes

    def _derived(self, batch: Batch, values: list[float]) -> tuple[Floats, dict[int, Floats]]:
        """Step times of a batch, and derivatives of their logarithms by those of the values that touch them."""
        setting = Setting(self.parameters, values)
        system, assumed = setting.system(batch.system), setting.assumed(batch.stack)
        figures = touching_system(self.parameters, batch.system)
        nudged = {}
        for row, i in enumerate(figures):
            column = np.full((len(figures) + 1, 1), values[i])
            column[row + 1] *= 1 + NUDGE
            nudged[self.parameters[i].path] = column
        several = batch.seconds(system.with_figures(nudged), assumed) if nudged else batch.seconds(system, assumed)[None]
        several = np.broadcast_to(several, (len(figures) + 1, len(batch.rows)))
        columns = {i: np.log(several[row + 1] / several[0]) / np.log1p(NUDGE) for row, i in enumerate(figures)}
        for i in touching_stack(self.parameters, batch.stack):
            moved = Setting(self.parameters, [value * (1 + NUDGE * (i == j)) for j, value in enumerate(values)])
            columns[i] = np.log(batch.seconds(system, moved.assumed(batch.stack)) / several[0]) / np.log1p(NUDGE)
        return several[0], columns


@dataclass(frozen=True, eq=False)
class Fitted:
    """Parameters with the values that suit the runs.

    Parameters
    ----------
    evidence : Evidence
        The runs.
    solution : Solution
        Parameters in units of their priors.
    before : array, shape (runs,)
        Residuals at the priors.
    """

    evidence: Evidence
    solution: Solution
    before: Floats

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was fitted."""
        return tuple(self.evidence.parameters)

    @property
    def values(self) -> tuple[float, ...]:
        """Fitted values; the prior where the data do not determine it."""
        return tuple(one.value(x) for one, x in zip(self.parameters, self.solution.theta, strict=True))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """90 % intervals of the values."""
        low, high = (self.solution.theta + sign * NINETY * self.solution.deviation for sign in (-1, 1))
        return tuple((one.value(a), one.value(b)) for one, a, b in zip(self.parameters, low, high, strict=True))

    def counts(self) -> tuple[int, ...]:
        """How many runs each parameter touches."""
        return tuple(int(n) for n in np.count_nonzero(self.solution.jacobian, axis=0))

    def table(self) -> str:
        """Every parameter, one a line."""
        lines = [f"{'parameter':58s} {'prior':>10s} {'value':>10s} {'90 %':>21s}  runs"]
        whole = zip(self.parameters, self.values, self.intervals, self.counts(), self.solution.determined, strict=True)
        for one, value, (low, high), n, determined in whole:
            told = "" if determined else "  not determined" if n else "  touches no run"
            lines.append(f"{one.name:58s} {one.prior:10.4g} {value:10.4g} {low:10.4g} {high:10.4g}  {n:4d}{told}")
        return "\n".join(lines)

    def left_out(self, groups: Sequence[Hashable] | None = None, seed: int = 0) -> Floats:
        """Residuals of every run, predicted with parameters fitted without its group, shape (runs,); nan if not estimated.

        Parameters
        ----------
        groups : sequence of hashable, optional
            What is left out together, for each run; source x model x accelerator without it.
        seed : int
            Of the perturbed starts.
        """
        names = self.evidence.data.groups if groups is None else groups
        found = np.full(len(self.evidence.runs), np.nan)
        thetas = left_out(self.solution, self.evidence.data, bounds(self.parameters), names, seed)
        for name, theta in thetas.items():
            own = [i for i, one in enumerate(names) if one == name]
            values = [one.value(x) for one, x in zip(self.parameters, theta, strict=True)]
            found[own] = np.log(self.evidence.predict(values, own)[own] / self.evidence.measured[own])
        return found


def bounds(parameters: Sequence[Parameter]) -> tuple[Floats, Floats]:
    """Bounds of theta."""
    low, high = ([one.theta(getattr(one, end)) for one in parameters] for end in ("low", "high"))
    return np.array(low), np.array(high)


def fit(
    parameters: Sequence[Parameter],
    runs: Sequence[Run] | None = None,
    start: Floats | None = None,
    told: Callable[[str], Any] | None = None,
    steps: int = 20,
) -> Fitted:
    """Fit parameters to runs.

    Parameters
    ----------
    parameters : sequence of Parameter
        What is fitted; all else stays as the catalogue says.
    runs : sequence of Run, optional
        The runs; the bundled ones without them.
    start : array, shape (parameters,), optional
        Where to begin, in standard deviations from the priors.
    told : callable, optional
        Called with a line of text after every step.
    steps : int
        Most steps.

    Returns
    -------
    Fitted
        Values with intervals. What the data do not determine keeps its prior.
    """
    evidence = Evidence(bundled_runs() if runs is None else runs, tuple(parameters))
    limits, n = bounds(parameters), len(parameters)
    before, _ = evidence.residuals(np.zeros(n))

    def model(theta: Floats) -> tuple[Floats, Floats]:
        y, slopes = evidence.residuals(theta)
        if told:
            told(f"mean error {100 * float(np.mean(np.abs(np.expm1(y[evidence.data.weights > 0])))):.2f} %")
        return y, slopes

    solution = solve(model, evidence.data, np.zeros(n) if start is None else start, limits, steps)
    if not solution.determined.all():
        solution = solve(model, evidence.data, solution.theta, limits, steps, solution.determined)
    return Fitted(evidence, solution, before)


def runs_of(path: str | Path | None = None) -> list[Run]:
    """Runs of a table, as for `validate`; those that cannot be read are left out."""
    return [run for _, run in readable(rows(path)) if isinstance(run, Run)]
