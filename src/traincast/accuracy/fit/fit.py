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
    """Parameters with the values that suit the measurements.

    Parameters
    ----------
    parameters : tuple of Parameter
        What was fitted.
    evidence : MeasuredRuns
        The runs.
    whole : Evidence
        All measurements, the runs first.
    solution : Solution
        Parameters in units of their priors.
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

    def left_out(self, groups: Sequence[Hashable] | None = None, seed: int = 0, told: Callable[[str], Any] | None = None) -> Floats:
        """Residuals of every run, predicted with parameters fitted without its group, shape (runs,); nan if not estimated.

        Parameters
        ----------
        groups : sequence of hashable, optional
            What is left out together, for each run, and None for runs that never are; source x model x accelerator without it.
        seed : int
            Of the perturbed starts.
        told : callable, optional
            Called with a line of text after every group.
        """
        names = self.evidence.data.groups if groups is None else groups
        found = np.full(len(self.evidence.runs), np.nan)
        others = [None] * (len(self.solution.residuals) - len(names))  # what is no run stays
        thetas = left_out(self.solution, self.whole.data, bounds(self.parameters), [*names, *others], seed, told)
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
    more: Sequence[Evidence] = (),
    equal: bool = False,
    settle: bool = True,
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
    more : sequence of Evidence
        Other measurements.
    equal : bool
        Whether every run counts alike, as runs of one's own; else a group of n rows as n^0.65.
    settle : bool
        Whether what the data do not determine is set to its prior at the end, and the rest fitted again.

    Returns
    -------
    Fitted
        Values with intervals.
    """
    evidence = MeasuredRuns(bundled_runs() if runs is None else runs, tuple(parameters), equal)
    whole = Together((evidence, *more)) if more else evidence
    data, limits, n = whole.data, bounds(parameters), len(parameters)

    def model(theta: Floats) -> tuple[Floats, Floats]:
        y, slopes = whole.residuals(theta)
        if told:
            told(f"mean error {100 * float(np.mean(np.abs(np.expm1(y[data.weights > 0])))):.2f} %")
        return y, slopes

    before, _ = whole.residuals(np.zeros(n))
    solution = solve(model, data, np.zeros(n) if start is None else start, limits, steps)
    if settle and not solution.determined.all():
        solution = replace(solve(model, data, solution.theta, limits, steps, solution.determined), determined=solution.determined)
    return Fitted(tuple(parameters), evidence, whole, solution, before)
