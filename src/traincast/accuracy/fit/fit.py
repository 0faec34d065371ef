"""Fit constants of the catalogue to measurements, and predict runs with constants fitted without them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from traincast.accuracy.fit.least_squares import NINETY, Solution, left_out, solve
from traincast.accuracy.fit.parameters import Parameter
from traincast.accuracy.fit.residuals import Evidence, MeasuredRuns, Together, bundled_runs
from traincast.accuracy.runs.run import Run
from traincast.core.quantities import Floats


@dataclass(frozen=True, eq=False)
class Fitted:
    """Parameters fitted to measurements.

    Parameters
    ----------
    parameters : tuple of Parameter
        Fitted parameters.
    evidence : MeasuredRuns
        The runs.
    whole : Evidence
        All measurements, the runs first.
    solution : Solution
        The fit, in standard deviations of the priors.
    before : array, shape (rows,)
        Residuals at the priors.
    """

    parameters: tuple[Parameter, ...]
    evidence: MeasuredRuns
    whole: Evidence
    solution: Solution
    before: Floats

    @property
    def values(self) -> tuple[float, ...]:
        """Fitted values; the prior where the data do not determine it."""
        return tuple(
            parameter.value(x) for parameter, x in zip(self.parameters, self.solution.theta, strict=True)
        )

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """90 % intervals of the values."""
        low, high = (self.solution.theta + sign * NINETY * self.solution.deviation for sign in (-1, 1))
        return tuple(
            (parameter.value(a), parameter.value(b))
            for parameter, a, b in zip(self.parameters, low, high, strict=True)
        )

    def counts(self) -> tuple[int, ...]:
        """Count the runs that each parameter touches."""
        return tuple(int(n) for n in np.count_nonzero(self.solution.jacobian, axis=0))

    def table(self) -> str:
        """Return a table with one line for each parameter."""
        lines = [f"{'parameter':58s} {'prior':>10s} {'value':>10s} {'90 %':>21s}  runs"]
        rows = zip(
            self.parameters, self.values, self.intervals, self.counts(), self.solution.determined, strict=True
        )
        for parameter, value, (low, high), n, determined in rows:
            note = "" if determined else "  not determined" if n else "  touches no run"
            lines.append(
                f"{parameter.name:58s} {parameter.prior:10.4g} {value:10.4g} {low:10.4g} {high:10.4g}  {n:4d}{note}"
            )
        return "\n".join(lines)

    def left_out(
        self,
        groups: Sequence[Hashable] | None = None,
        seed: int = 0,
        progress: Callable[[str], Any] | None = None,
    ) -> Floats:
        """Return the residual of every run under parameters fitted without its group, shape (runs,); nan if not estimated.

        Parameters
        ----------
        groups : sequence of hashable, optional
            Group of each run, left out together; None for runs never left out; source × model × accelerator
            by default.
        seed : int
            Seed of the perturbed starts.
        progress : callable, optional
            Called with a line of text after every group.
        """
        names = self.evidence.data.groups if groups is None else groups
        residuals = np.full(len(self.evidence.runs), np.nan)
        others = [None] * (len(self.solution.residuals) - len(names))  # benchmarks are never left out
        thetas = left_out(
            self.solution, self.whole.data, bounds(self.parameters), [*names, *others], seed, progress
        )
        for name, theta in thetas.items():
            rows = [i for i, group in enumerate(names) if group == name]
            values = [parameter.value(x) for parameter, x in zip(self.parameters, theta, strict=True)]
            residuals[rows] = np.log(self.evidence.predict(values, rows)[rows] / self.evidence.measured[rows])
        return residuals


def bounds(parameters: Sequence[Parameter]) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of theta."""
    low, high = (
        [parameter.theta(getattr(parameter, end)) for parameter in parameters] for end in ("low", "high")
    )
    return np.array(low), np.array(high)


def fit(
    parameters: Sequence[Parameter],
    runs: Sequence[Run] | None = None,
    start: Floats | None = None,
    progress: Callable[[str], Any] | None = None,
    steps: int = 20,
    more: Sequence[Evidence] = (),
    equal: bool = False,
    settle: bool = True,
) -> Fitted:
    """Fit parameters to runs.

    Parameters
    ----------
    parameters : sequence of Parameter
        Parameters to fit; other constants keep the values of the catalogue.
    runs : sequence of Run, optional
        Runs; the bundled ones by default.
    start : array, shape (parameters,), optional
        Start, in standard deviations from the priors.
    progress : callable, optional
        Called with a line of text after every step.
    steps : int
        Maximum number of steps.
    more : sequence of Evidence
        Other measurements.
    equal : bool
        Whether every run has the same weight, for runs of a user; else a group of n rows counts as n^0.65.
    settle : bool
        Whether parameters that the data do not determine are reset to their priors, and the others fitted
        once more.

    Returns
    -------
    Fitted
        Values with intervals.
    """
    evidence = MeasuredRuns(bundled_runs() if runs is None else runs, tuple(parameters), equal)
    measurements = Together((evidence, *more)) if more else evidence
    data, limits, n = measurements.data, bounds(parameters), len(parameters)

    def model(theta: Floats) -> tuple[Floats, Floats]:
        y, slopes = measurements.residuals(theta)
        if progress:
            progress(f"mean error {100 * float(np.mean(np.abs(np.expm1(y[data.weights > 0])))):.2f} %")
        return y, slopes

    before, _ = measurements.residuals(np.zeros(n))
    solution = solve(model, data, np.zeros(n) if start is None else start, limits, steps)
    if settle and not solution.determined.all():
        solution = replace(
            solve(model, data, solution.theta, limits, steps, solution.determined),
            determined=solution.determined,
        )
    return Fitted(tuple(parameters), evidence, measurements, solution, before)
