"""Fit constants of the catalogue to measurements, and predict runs with constants fitted without them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from traincast.accuracy.fit.least_squares import Data, Solution, left_out, solve
from traincast.accuracy.fit.parameters import FittedConstant, Parameter, fitted_constant, prior_precision
from traincast.accuracy.fit.residuals import Benchmarks, MeasuredRuns, bundled_runs
from traincast.accuracy.runs.run import Run
from traincast.core import Floats
from traincast.step import NORMAL_90_PERCENT


@dataclass(frozen=True, eq=False)
class Fitted:
    """Parameters fitted to runs (`measured`) and benchmarks, the runs first; residuals `before`."""

    parameters: tuple[Parameter, ...]
    measured: MeasuredRuns
    data: Data  # of all residuals
    solution: Solution
    before: Floats

    @cached_property
    def constants(self) -> tuple[FittedConstant, ...]:
        """Values with 90 % intervals; the prior where the data do not determine a constant."""
        theta = self.solution.theta
        reach = NORMAL_90_PERCENT * self.solution.deviation
        numbers = (_values(self.parameters, at) for at in (theta, theta - reach, theta + reach))
        runs = np.count_nonzero(self.solution.jacobian, axis=0).tolist()
        determined = self.solution.determined.tolist()
        rows = (self.parameters, zip(*numbers, strict=True), determined, runs)
        return tuple(map(fitted_constant, *rows))

    def left_out(
        self, groups: Sequence[Hashable] | None = None, progress: Callable[[str], object] | None = None
    ) -> Floats:
        """Return the residual of every run with parameters fitted without its group, shape (runs,), or nan.

        Groups are source × model × accelerator by default; a run whose group is None is never left out.
        """
        names = self.measured.data.groups if groups is None else groups
        residuals = np.full(len(self.measured.runs), np.nan)
        for name, values in self.fit_without(names, progress).items():
            rows = [i for i, group in enumerate(names) if group == name]
            predicted = self.measured.predict(values, rows)
            residuals[rows] = np.log(predicted[rows] / self.measured.measured[rows])
        return residuals

    def fit_without(
        self, groups: Sequence[Hashable], progress: Callable[[str], object] | None = None
    ) -> dict[Hashable, tuple[float, ...]]:
        """Return the values of the parameters fitted without each group of runs, by group."""
        benchmarks = [None] * (len(self.solution.residuals) - len(groups))  # are never left out
        fits = left_out(self.solution, self.data, bounds(self.parameters), [*groups, *benchmarks], progress)
        return {name: _values(self.parameters, theta) for name, theta in fits.items()}


def _values(parameters: Sequence[Parameter], theta: Floats) -> tuple[float, ...]:
    return tuple(parameter.value(x) for parameter, x in zip(parameters, theta, strict=True))


def bounds(parameters: Sequence[Parameter]) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of theta."""
    low, high = ([item.theta(getattr(item, end)) for item in parameters] for end in ("low", "high"))
    return np.array(low), np.array(high)


def fit(
    parameters: Sequence[Parameter],
    runs: Sequence[Run] | None = None,
    *,
    benchmarks: Sequence[Benchmarks] = (),
    equal: bool = False,
    settle: bool = True,
    pooled: float = 0.0,
    steps: int = 20,
    progress: Callable[[str], object] | None = None,
) -> Fitted:
    """Fit parameters to runs (the bundled ones by default) and benchmarks.

    With `equal` every run has the same weight, for runs of a user; else a group of n rows counts as n^0.65.
    With `settle` parameters that the data do not determine return to their priors, and the others are fitted
    once more. Software constants of one field have the correlation `pooled` before the fit. `progress` is
    called with a line of text after every step.
    """
    measured = MeasuredRuns(bundled_runs() if runs is None else runs, tuple(parameters), equal)
    parts: list[MeasuredRuns | Benchmarks] = [measured, *benchmarks]
    data = Data.join([part.data for part in parts])
    limits = bounds(parameters)

    def model(theta: Floats) -> tuple[Floats, Floats]:
        y, slopes = map(np.concatenate, zip(*(part.residuals(theta) for part in parts), strict=True))
        if progress:
            progress(f"mean error {100 * float(np.mean(np.abs(np.expm1(y[data.weights > 0])))):.2f}%")
        return y, slopes

    start = np.zeros(len(parameters))
    before = np.concatenate([part.residuals(start)[0] for part in parts])
    prior = prior_precision(parameters, pooled)
    solution = solve(model, data, start, limits, steps, prior=prior)
    if settle and not solution.determined.all():
        refined = solve(model, data, solution.theta, limits, steps, solution.determined, prior)
        solution = replace(refined, determined=solution.determined)
    return Fitted(tuple(parameters), measured, data, solution, before)
