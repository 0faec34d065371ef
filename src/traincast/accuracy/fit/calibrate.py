"""Calibrate a system to measurements of runs, collectives and matrix products; catalogue values are priors, so few runs help."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import hypot, log
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from traincast.accuracy.fit.benchmark_residuals import collectives, products
from traincast.accuracy.fit.fit import Fitted, fit
from traincast.accuracy.fit.fitted_yaml import FittedValue, system_with, write_system
from traincast.accuracy.fit.least_squares import NINETY
from traincast.accuracy.fit.measured_files import Files, Measured, read
from traincast.accuracy.fit.parameters import MAX_FITTED_CONSTANTS, Parameter, accelerator_name
from traincast.accuracy.fit.residuals import Evidence
from traincast.catalog.load import figures
from traincast.catalog.software_stacks import (
    DEFAULT_STACK,
    resolve,
    stack_file,
    stack_names,
    with_fitted_values,
)
from traincast.core.output_files import check_output
from traincast.core.quantities import Floats, figure_specs
from traincast.core.result import Doc, Result, described
from traincast.core.system import Accelerator, System, Tier

MIN_RUNS_FOR_LEAVE_ONE_OUT: Final = 4  # below it no held-out errors
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
    """Return the constants that may differ between a system of the catalogue and the user's, with the catalogue's values as priors.

    Parameters
    ----------
    system : System
        The system.
    named : str or Path
        Name or file of the system, for the intervals of its figures.
    stacks : iterable of str
        Software stacks that ran on it.

    Returns
    -------
    tuple of Parameter
        Constants of the accelerator, the network and each stack that are known and not 0.
    """
    catalogue_figures = {figure.path: figure for figure in figures(named)}
    parameters: list[Parameter] = []
    for kind in SITE_SPREAD:
        home, name = kind.split(".", 1)
        owner = accelerator_name(system) if home == "accelerator" else system.name
        paths = [
            path
            for path in system.figures()
            if path.startswith(home) and path.endswith(f".{name}") and path in catalogue_figures
        ]
        for path in paths if home != "stack" else ():
            figure = catalogue_figures[path]
            fitted = sum(parameter.home == home for parameter in parameters)
            if figure.value and fitted < MAX_FITTED_CONSTANTS[home]:  # type: ignore[index]
                parameters.append(
                    _with_prior(
                        path, kind, owner, figure.value, _log_deviation(figure.low, figure.high), figure.unit
                    )
                )
    for stack in dict.fromkeys(DEFAULT_STACK if name not in stack_names() else name for name in stacks):
        parameters += _stack_parameters(system, stack)
    return tuple(parameters)


def _stack_parameters(system: System, stack: str) -> list[Parameter]:
    """Return the constants of a software stack on a system."""
    figures, assumed = stack_file(stack), with_fitted_values(system, resolve(stack))
    parameters = []
    for kind in (path for path in SITE_SPREAD if path.startswith("stack.")):
        name = kind.removeprefix("stack.")
        figure = getattr(figures, name, None)
        if value := assumed.value(name):
            parameters.append(
                _with_prior(
                    kind,
                    kind,
                    stack,
                    value,
                    _log_deviation(figure.low, figure.high) if figure is not None else 0.0,
                    "",
                )
            )
    return parameters


def _with_prior(path: str, kind: str, of: str, value: float, width: float, unit: str) -> Parameter:
    """Return a constant with its prior: uncertainty of the catalogue and spread between sites."""
    sigma, high = SITE_SPREAD[kind]
    sigma = hypot(sigma, width)
    bound = high if np.isfinite(high) else 0.0
    return Parameter(
        path=path, of=(of,), prior=value, sigma=sigma, high=max(bound, value) if bound else 0.0, unit=unit
    )


def _log_deviation(low: float | None, high: float | None) -> float:
    """Return the standard deviation of the logarithm of a value with a 90 % interval; 0 without interval."""
    return log(high / low) / 2 / NINETY if low and high else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """A system fitted to its measurements.

    Parameters
    ----------
    system : str
        Name or file of the original system.
    measured : Measured
        Measurements it was fitted to.
    fitted : Fitted
        Constants with intervals.
    held_out : array, shape (runs,), or None
        Logarithm of predicted over measured with each run left out in turn; None with less than four.
    """

    system: str | Path
    measured: Measured
    fitted: Fitted
    held_out: Floats | None

    def __repr__(self) -> str:
        return f"<Calibration of {self.system}: {sum(self.fitted.solution.determined)} constants>"

    @property
    def errors(self) -> dict[str, float | None]:
        """Mean absolute relative error of the runs before, after, and with each left out in turn."""
        before, after = self._residuals["runs"]
        return {"before": _mean(before), "after": _mean(after), "held out": _mean(self.held_out)}

    @property
    def others(self) -> dict[str, dict[str, float | None]]:
        """Mean absolute relative error of collectives and matrix products, where there are any, before and after."""
        kinds = {
            kind: residuals
            for kind, residuals in self._residuals.items()
            if kind != "runs" and len(residuals[0])
        }
        return {
            kind: {"before": _mean(before), "after": _mean(after)} for kind, (before, after) in kinds.items()
        }

    @property
    def _residuals(self) -> dict[str, tuple[Floats, Floats]]:
        """Logarithms of predicted over measured before and after, by kind; the runs stand first."""
        ends = np.cumsum(list(self.measured.numbers.values()))[:-1]
        halves = (np.split(y, ends) for y in (self.fitted.before, self.fitted.solution.residuals))
        return dict(zip(self.measured.numbers, zip(*halves, strict=True), strict=True))

    @property
    def undetermined(self) -> tuple[Parameter, ...]:
        """Constants that the data do not determine; they keep their values."""
        rows = zip(self.fitted.parameters, self.fitted.solution.determined, strict=True)
        return tuple(parameter for parameter, determined in rows if not determined)

    def found(self) -> list[FittedValue]:
        """Return the fitted values of the constants that the data determine."""
        source = f"fitted to {self.measured.counts()} of one's own, {date.today().isoformat()}"
        rows = zip(
            self.fitted.parameters,
            self.fitted.values,
            self.fitted.intervals,
            self.fitted.solution.determined,
            strict=True,
        )
        return [
            FittedValue(parameter, value, *interval, source)
            for parameter, value, interval, determined in rows
            if determined
        ]

    def write(self, path: str | Path, force: bool = False) -> None:
        """Write the calibrated system as a file that `load_system` and ``--system`` take.

        Raises
        ------
        InputError
            If the path cannot be written to, or exists and `force` is not set.
        """
        path = Path(path)
        check_output(path, force, (".yaml", ".yml"))
        title = f"{self.system}, calibrated to measurements of one's own"
        write_system(path, system_with(self.system, self.found(), path.stem, title))

    def to_dict(self) -> dict[str, Any]:
        """Return constants, errors, and what was left out as JSON values."""
        return self.record().to_dict()

    def record(self) -> "CalibrationRecord":
        """Return everything with meaning and unit, as `traincast calibrate --json` prints it."""
        fitted = self.fitted
        rows = zip(
            fitted.parameters, fitted.values, fitted.intervals, fitted.solution.determined, strict=True
        )
        return CalibrationRecord(
            system=str(self.system),
            **self.measured.numbers,
            errors=self.errors,
            errors_of_others={kind: MeanErrors(**errors) for kind, errors in self.others.items()},
            constants=[
                FittedConstant(
                    parameter.path, parameter.of, parameter.prior, value, *interval, bool(determined)
                )
                for parameter, value, interval, determined in rows
            ],
            left_out=list(self.measured.left_out),
        )


_ERROR: Final = "mean absolute relative error"


@dataclass(frozen=True)
class MeanErrors(Result):
    """Mean errors before and after a calibration."""

    before: Annotated[float | None, Doc(_ERROR)]
    after: Annotated[float | None, Doc(_ERROR)]


@dataclass(frozen=True)
class FittedConstant(Result):
    """A constant before and after a calibration; in SI units."""

    path: Annotated[str, Doc("name of the constant")]
    of: Annotated[Sequence[str], Doc("accelerator, network or software stacks")]
    before: Annotated[float, Doc("value in the catalogue; in SI units")]
    value: Annotated[float, Doc("fitted value")]
    low: Annotated[float, Doc("lower end of its 90 % interval")]
    high: Annotated[float, Doc("upper end of its 90 % interval")]
    determined: Annotated[bool, Doc("whether the measurements determine it; else it keeps its value")]


@dataclass(frozen=True, kw_only=True)
class CalibrationRecord(Result):
    """A calibration with meaning and unit."""

    system: Annotated[str, Doc("name of the system that is calibrated")]
    runs: Annotated[int, Doc("training runs used")]
    collectives: Annotated[int, Doc("measured collectives used")]
    products: Annotated[int, Doc("measured matrix products used")]
    errors: Annotated[
        Mapping[str, float | None],
        Doc(
            "mean absolute relative error of the runs; `held out`: each predicted without itself",
            keys={
                when: {"type": ["number", "null"]} | described(_ERROR)
                for when in ("before", "after", "held out")
            },
        ),
    ]
    errors_of_others: Annotated[
        dict[str, MeanErrors], Doc("of collectives and products, where there are any")
    ]
    constants: Annotated[list[FittedConstant], Doc("fitted constants")]
    left_out: Annotated[list[str], Doc("measurements that cannot be used, and why")]


def _mean(residuals: Floats | None) -> float | None:
    """Return the mean absolute relative error; None without residuals."""
    return None if residuals is None or not len(residuals) else float(np.mean(np.abs(np.expm1(residuals))))


def calibrate(
    system: str | Path,
    *,
    runs: Files = (),
    logs: Files = (),
    nccl: Files = (),
    gemm: Files = (),
    config: str | Path | None = None,
    **given: Any,
) -> Calibration:
    """Fit the constants of a system to measurements on it.

    Parameters
    ----------
    system : str or Path
        The most similar system of the catalogue, or a file.
    runs, logs, nccl, gemm : sequence of str or Path
        Tables of runs, logs of training, output of nccl-tests, and tables of matrix products
        (docs/calibration.md).
    config : str or Path, optional
        Configuration of runs whose logs do not contain it.
    **given
        Values missing in logs and tables of runs, such as ``model="llama-3-8b"`` or ``recompute="full"``.

    Returns
    -------
    Calibration
        Constants with intervals, errors before and after; constants that the data do not determine keep the
        catalogue's values.

    Raises
    ------
    InputError
        If a file cannot be read, or none has measurements of this system: all problems at once.
    """
    return fitted_to(system, read(system, runs, logs, nccl, gemm, config, given))


def fitted_to(system: str | Path, measured: Measured) -> Calibration:
    """Return a system (by name or file) fitted to measurements on it."""
    machine = measured.system
    parameters = parameters_of(machine, system, (run.stack for run in measured.runs))
    benchmarks: list[Evidence] = []
    if measured.collectives:
        benchmarks.append(collectives(machine, measured.collectives, parameters))
    if measured.products:
        benchmarks.append(products(machine, measured.products, parameters))
    fitted = fit(parameters, measured.runs, more=benchmarks, equal=True)
    held_out = fitted.left_out() if len(measured.runs) >= MIN_RUNS_FOR_LEAVE_ONE_OUT else None
    return Calibration(system, measured, fitted, held_out)
