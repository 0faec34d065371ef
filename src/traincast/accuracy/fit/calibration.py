"""A system fitted to measurements on it; the catalogue's values are priors."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from math import hypot, isfinite, log
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from traincast.accuracy.fit.fit import Fitted, fit
from traincast.accuracy.fit.fitted_yaml import system_with, write_system
from traincast.accuracy.fit.measured import Measured
from traincast.accuracy.fit.parameters import FittedConstant, Parameter, accelerator_name
from traincast.accuracy.fit.residuals import Benchmarks
from traincast.catalog import Stack, figures, resolve, with_fitted_values
from traincast.core import (
    INLINE,
    KEY,
    Accelerator,
    Doc,
    Floats,
    Result,
    System,
    Tier,
    check_output,
    describe_key,
    figure_specs,
)
from traincast.step import NORMAL_90_PERCENT

MIN_RUNS_FOR_LEAVE_ONE_OUT: Final = 4  # below it no held-out errors
MAX_FITTED: Final = {"accelerator": 12, "network": 6}  # constants of a home
SITE_SPREAD: Final = {  # by path: standard deviation of the logarithm between sites, largest value
    f"{place}.{name}": (spec.spread, spec.highest)
    for place, part in (("accelerator", Accelerator), ("network", Tier))
    for name, spec in figure_specs(part).items()
    if spec.spread
} | {
    "stack.traffic.elementwise_passes": (0.20, np.inf),
    "stack.host.dispatch_seconds": (0.30, np.inf),
    "stack.overlap.tp_exposed": (0.20, 1.0),
    "stack.overlap.tp_overlapped": (0.30, 1.0),
    "stack.overlap.dp_contention": (0.40, 1.0),
    "stack.overlap.ep_exposed": (0.25, 1.0),
}


def parameters_of(system: System, named: str | Path, stacks: Iterable[str]) -> tuple[Parameter, ...]:
    """Return the constants of a system, and of software stacks on it, that may differ at a user's site.

    Priors are the catalogue's values; `named` is the name or file of the system, for the intervals of its
    figures.
    """
    catalogue_figures = {figure.path: figure for figure in figures(named)}
    parameters: list[Parameter] = []
    for home, most in MAX_FITTED.items():
        owner = accelerator_name(system) if home == "accelerator" else system.name
        priors = []
        for kind in (kind for kind in SITE_SPREAD if kind.startswith(home)):
            name = kind.removeprefix(home)
            paths = [path for path in system.figures() if path.startswith(home) and path.endswith(name)]
            known = [catalogue_figures[path] for path in paths if path in catalogue_figures]
            priors += [_with_prior(kind, owner, item.value, item, item.path) for item in known if item.value]
        parameters += priors[:most]
    for stack in dict.fromkeys(name if Stack(name).is_known else Stack.DEFAULT for name in stacks):
        file = Stack(stack).file
        assumed = with_fitted_values(system, resolve(stack))
        for kind in SITE_SPREAD:
            home, path = kind.split(".", 1)
            if home == "stack" and (value := assumed.value(path)):
                parameters.append(_with_prior(kind, stack, value, getattr(file, path, None), kind))
    return tuple(parameters)


def _with_prior(kind: str, of: str, value: float, figure: Any, path: str) -> Parameter:
    """Return a constant; its prior has the uncertainty of its figure and the spread between sites."""
    sigma, high = SITE_SPREAD[kind]
    if figure is not None and figure.low and figure.high:
        sigma = hypot(sigma, log(figure.high / figure.low) / 2 / NORMAL_90_PERCENT)
    bound = max(high, value) if isfinite(high) else 0.0
    return Parameter(path=path, of=(of,), prior=value, sigma=sigma, high=bound)


_ERROR: Final = "mean absolute relative error"
_RUN_ERRORS: Final = Doc(
    f"{_ERROR} of the runs; `held out`: each predicted without itself",
    keys={
        when: {"type": ["number", "null"]} | describe_key(_ERROR) for when in ("before", "after", "held out")
    },
)


class MeanErrors(Result):
    """Mean errors before and after a calibration."""

    before: Annotated[float | None, Doc(_ERROR)]
    after: Annotated[float | None, Doc(_ERROR)]


class Calibration(Result, eq=False, repr=False):
    """A system fitted to its measurements."""

    system: Annotated[str | Path, Doc("name of the system that is calibrated", text=True)]
    measured: Annotated[Measured, INLINE]
    fitted: Fitted  # constants with intervals
    # Logarithm of predicted over measured with each run left out in turn; None with less than four.
    held_out: Floats | None

    def __repr__(self) -> str:
        return f"<Calibration of {self.system}: {len(self.determined)} constants>"

    @property
    def errors(self) -> Annotated[dict[str, float | None], _RUN_ERRORS]:
        """Mean absolute relative error of the runs before, after, and with each left out in turn."""
        before, after = self._residuals["runs"]
        return {"before": _mean(before), "after": _mean(after), "held out": _mean(self.held_out)}

    @property
    def others(self) -> dict[str, dict[str, float | None]]:
        """Mean absolute relative errors of collectives and matrix products, where there are any."""
        return {
            kind: {"before": _mean(before), "after": _mean(after)}
            for kind, (before, after) in self._residuals.items()
            if kind != "runs" and len(before)
        }

    @property
    def errors_of_others(self) -> Annotated[dict[str, MeanErrors], KEY]:
        """Of collectives and products, where there are any."""
        return {kind: MeanErrors(**errors) for kind, errors in self.others.items()}

    @property
    def constants(self) -> Annotated[tuple[FittedConstant, ...], KEY]:
        """Fitted constants."""
        return self.fitted.constants

    @property
    def left_out(self) -> Annotated[tuple[str, ...], KEY]:
        """Measurements that cannot be used, and why."""
        return self.measured.left_out

    @property
    def determined(self) -> tuple[FittedConstant, ...]:
        """Constants that the data determine."""
        return tuple(constant for constant in self.constants if constant.determined)

    @property
    def undetermined(self) -> tuple[FittedConstant, ...]:
        """Constants that the data do not determine; they keep their values."""
        return tuple(constant for constant in self.constants if not constant.determined)

    @property
    def _residuals(self) -> dict[str, tuple[Floats, Floats]]:
        """Logarithms of predicted over measured before and after, by kind; the runs stand first."""
        numbers = self.measured.numbers
        ends = np.cumsum(list(numbers.values()))[:-1]
        halves = (np.split(y, ends) for y in (self.fitted.before, self.fitted.solution.residuals))
        return dict(zip(numbers, zip(*halves, strict=True), strict=True))

    def write(self, path: str | Path, force: bool = False) -> None:
        """Write the calibrated system as a file that `load_system` and ``--system`` take.

        Raises
        ------
        InputError
            If the path cannot be written to, or exists and `force` is not set.
        """
        path = Path(path)
        check_output(path, force, (".yaml", ".yml"))
        today = date.today().isoformat()
        measurements = f"{self.measured.counts()} of this site, {today}"
        constants = [replace(constant, source=f"fitted to {measurements}") for constant in self.determined]
        title = f"{self.system}, calibrated to measurements of this site"
        document = system_with(self.system, constants, path.stem, title)
        if constants:  # else it is the system as it was
            document |= {"calibrated_to": f"{self.measured.counts()}{self._software}, {today}"}
            document |= {"calibrated_with": self.measured.software} if self.measured.software else {}
        write_system(path, document)

    @property
    def _software(self) -> str:
        """Return the software of the runs, in words; empty without runs."""
        names = dict.fromkeys(self.measured.software.values())
        return f" with {' and '.join(names)}" if names else ""


def _mean(residuals: Floats | None) -> float | None:
    return None if residuals is None or not len(residuals) else float(np.mean(np.abs(np.expm1(residuals))))


def fitted_to(system: str | Path, measured: Measured) -> Calibration:
    """Return a system (by name or file) fitted to measurements on it."""
    machine = measured.system
    parameters = parameters_of(machine, system, (run.stack for run in measured.runs))
    kinds = (measured.collectives, measured.products)
    benchmarks = [Benchmarks(machine, timings, parameters) for timings in kinds if timings]
    fitted = fit(parameters, measured.runs, benchmarks=benchmarks, equal=True)
    held_out = fitted.left_out() if len(measured.runs) >= MIN_RUNS_FOR_LEAVE_ONE_OUT else None
    return Calibration(system, measured, fitted, held_out)
