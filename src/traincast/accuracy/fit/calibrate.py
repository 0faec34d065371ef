"""Calibrate a system to what was measured on it: runs, collectives, products; three runs help, since all else stays believed."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from math import hypot, log
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.accuracy.fit.benchmark_residuals import collectives, products
from traincast.accuracy.fit.fit import Fitted, fit
from traincast.accuracy.fit.fitted_yaml import FittedValue, system_with, write_system
from traincast.accuracy.fit.least_squares import NINETY
from traincast.accuracy.fit.measured_files import Files, Measured, read
from traincast.accuracy.fit.parameters import MOST, Parameter, accelerator_name
from traincast.accuracy.fit.residuals import Evidence
from traincast.catalog.load import figures
from traincast.catalog.software_stacks import USUAL, on, resolve, stack_file, stack_names
from traincast.core.output_files import check_output
from traincast.core.quantities import Floats
from traincast.core.system import System

LEAST: Final = 4  # runs that one of them can be left out of
SPREAD: Final[dict[str, tuple[float, float]]] = {  # by how much sites differ (deviation of the logarithm), largest value; by weight
    "accelerator.matrix_sustained": (0.10, 1.0),
    "accelerator.fp32_sustained": (0.10, 1.0),
    "accelerator.fp8_sustained": (0.10, 1.0),
    "accelerator.fp4_sustained": (0.10, 1.0),
    "accelerator.hbm_sustained": (0.08, 1.0),
    "accelerator.attention_cudnn": (0.10, 1.0),
    "accelerator.attention_fa3": (0.10, 1.0),
    "accelerator.attention_fa2": (0.10, 1.0),
    "network.efficiency": (0.20, 1.0),
    "network.launch": (0.50, np.inf),
    "network.latency": (0.50, np.inf),
    "stack.elementwise_passes": (0.20, np.inf),
    "stack.dispatch_seconds": (0.30, np.inf),
    "stack.tp_exposed": (0.20, 1.0),
    "stack.tp_overlapped": (0.30, 1.0),
    "stack.dp_contention": (0.40, 1.0),
    "stack.ep_exposed": (0.25, 1.0),
}


def parameters_of(system: System, named: str | Path, stacks: Iterable[str]) -> tuple[Parameter, ...]:
    """What can differ between a system of the catalogue and one's own: believed as the catalogue says, as far as sites are alike.

    Parameters
    ----------
    system : System
        The system.
    named : str or Path
        Its name or file, for the intervals of its figures.
    stacks : iterable of str
        Software that ran on it.

    Returns
    -------
    tuple of Parameter
        Constants of the accelerator, the network and each stack that are known and not 0.
    """
    told = {one.path: one for one in figures(named)}
    found: list[Parameter] = []
    for kind in SPREAD:
        home, name = kind.split(".")
        own = accelerator_name(system) if home == "accelerator" else system.name
        paths = [path for path in system.figures() if path.startswith(home) and path.endswith(f".{name}") and path in told]
        for path in paths if home != "stack" else ():
            figure = told[path]
            if figure.value and sum(one.home == home for one in found) < MOST[home]:  # type: ignore[index]
                found.append(_believed(path, kind, own, figure.value, _width(figure.low, figure.high), figure.unit))
    for stack in dict.fromkeys(USUAL if one not in stack_names() else one for one in stacks):
        found += _of_stack(system, stack)
    return tuple(found)


def _of_stack(system: System, stack: str) -> list[Parameter]:
    """Constants of a software stack on a system."""
    entries, assumed = stack_file(stack), on(system, resolve(stack))
    found = []
    for kind in (one for one in SPREAD if one.startswith("stack.")):
        name = kind.split(".")[1]
        entry = getattr(entries, name, None)
        if value := getattr(assumed, name):
            found.append(_believed(kind, kind, stack, value, _width(entry.low, entry.high) if entry is not None else 0.0, ""))
    return found


def _believed(path: str, kind: str, of: str, value: float, width: float, unit: str) -> Parameter:
    """A constant as believed beforehand: the catalogue's uncertainty, and how sites differ."""
    sigma, high = SPREAD[kind]
    sigma = hypot(sigma, width)
    most = high if np.isfinite(high) else 0.0
    return Parameter(path=path, of=(of,), prior=value, sigma=sigma, high=max(most, value) if most else 0.0, unit=unit)


def _width(low: float | None, high: float | None) -> float:
    """Standard deviation of the logarithm of a value in a 90 % interval; 0 without one."""
    return log(high / low) / 2 / NINETY if low and high else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """A system as its measurements say it is.

    Parameters
    ----------
    system : str
        Name or file of the system it began from.
    measured : Measured
        What it was fitted to.
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
        """The same of collectives and products, where there are any, before and after."""
        told = {kind: ends for kind, ends in self._residuals.items() if kind != "runs" and len(ends[0])}
        return {kind: {"before": _mean(before), "after": _mean(after)} for kind, (before, after) in told.items()}

    @property
    def _residuals(self) -> dict[str, tuple[Floats, Floats]]:
        """Logarithms of predicted over measured before and after, by kind; the runs stand first."""
        ends = np.cumsum(list(self.measured.numbers.values()))[:-1]
        halves = (np.split(y, ends) for y in (self.fitted.before, self.fitted.solution.residuals))
        return dict(zip(self.measured.numbers, zip(*halves, strict=True), strict=True))

    @property
    def undetermined(self) -> tuple[Parameter, ...]:
        """Constants that the data do not determine; they stay as they were."""
        known = zip(self.fitted.parameters, self.fitted.solution.determined, strict=True)
        return tuple(one for one, determined in known if not determined)

    def found(self) -> list[FittedValue]:
        """The constants that the data determine."""
        source = f"fitted to {self.measured.counts()} of one's own, {date.today().isoformat()}"
        rows = zip(self.fitted.parameters, self.fitted.values, self.fitted.intervals, self.fitted.solution.determined, strict=True)
        return [FittedValue(one, value, *ends, source) for one, value, ends, determined in rows if determined]

    def write(self, path: str | Path, force: bool = False) -> None:
        """Write the calibrated system as a file that `load_system` and ``--system`` take.

        Raises
        ------
        InputError
            If the path cannot be written to, or holds something and it is not forced.
        """
        path = Path(path)
        check_output(path, force, (".yaml", ".yml"))
        title = f"{self.system}, calibrated to measurements of one's own"
        write_system(path, system_with(self.system, self.found(), path.stem, title))

    def to_dict(self) -> dict[str, Any]:
        """For machines: every constant, the errors, and what was left out."""
        rows = zip(self.fitted.parameters, self.fitted.values, self.fitted.intervals, self.fitted.solution.determined, strict=True)
        return {
            "system": str(self.system),
            **self.measured.numbers,
            "errors": self.errors,
            "errors_of_others": self.others,
            "constants": [
                {
                    "path": one.path,
                    "of": list(one.of),
                    "before": one.prior,
                    "value": value,
                    "low": low,
                    "high": high,
                    "determined": bool(determined),
                }
                for one, value, (low, high), determined in rows
            ],
            "left_out": list(self.measured.left_out),
        }


def _mean(residuals: Floats | None) -> float | None:
    """Mean absolute relative error; None of nothing."""
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
    """Fit the constants of a system to what was measured on it.

    Parameters
    ----------
    system : str or Path
        The system of the catalogue (or the file) that is most like it.
    runs, logs, nccl, gemm : sequence of str or Path
        Tables of runs, logs of training, output of nccl-tests, and tables of matrix products (docs/calibration.md).
    config : str or Path, optional
        Configuration of the runs whose logs do not hold it.
    **given
        What logs and tables of runs do not say, such as ``model="llama-3-8b"`` or ``recompute="full"``.

    Returns
    -------
    Calibration
        Constants with intervals, errors before and after; what the data do not determine stays as the catalogue has it.

    Raises
    ------
    InputError
        If a file cannot be read, or none of them holds something that ran on this system: all that is wrong at once.
    """
    return fitted_to(system, read(system, runs, logs, nccl, gemm, config, given))


def fitted_to(system: str | Path, measured: Measured) -> Calibration:
    """The constants of a system (by name or file) fitted to what was measured on it."""
    machine = measured.system
    parameters = parameters_of(machine, system, (run.stack for run in measured.runs))
    more: list[Evidence] = []
    if measured.collectives:
        more.append(collectives(machine, measured.collectives, parameters))
    if measured.products:
        more.append(products(machine, measured.products, parameters))
    fitted = fit(parameters, measured.runs, more=more, equal=True)
    held_out = fitted.left_out() if len(measured.runs) >= LEAST else None
    return Calibration(system, measured, fitted, held_out)
