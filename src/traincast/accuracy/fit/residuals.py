"""Measurements as residuals of parameters: training runs, and anything else whose time a formula tells."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from traincast.accuracy.fit.least_squares import Data
from traincast.accuracy.fit.parameters import Parameter, Setting, accelerator_name, touching_stack, touching_system
from traincast.accuracy.run_batches import RunBatch, batches
from traincast.accuracy.runs.run import Run, readable, rows
from traincast.accuracy.scores import INDEPENDENT, source_of
from traincast.core.errors import InputError
from traincast.core.quantities import Floats

ALIKE: Final = -0.35  # a group of n rows, which err alike, counts as n^0.65
NOISE: Final = {"dense": 0.04, "moe": 0.10}  # relative error expected of a row
NUDGE: Final = 1e-3  # change of the logarithm of a value for a derivative
MACHINE: Final = ("accelerator", "network")  # homes of figures that formulas take as columns


def bundled_runs() -> list[Run]:
    """Every bundled run that can be read."""
    return [run for _, run in readable(rows()) if isinstance(run, Run)]


def group_of(run: Run) -> tuple[str, str, str]:
    """What runs have in common that are left out together: source, model, accelerator."""
    shape = run.model
    size = f"{shape.layers}x{shape.hidden}" if not shape.name or shape.name == run.id else shape.name
    return source_of(run.id, run.model.experts is not None), size, accelerator_name(run.system)


class Alike(np.ndarray[Any, Any]):
    """A column of nearly equal values: where a formula asks whether a number is 0, or less than another, it is one number."""

    def __bool__(self) -> bool:
        answers = np.asarray(self, bool).ravel()
        if (answers == answers[0]).all():
            return bool(answers[0])
        raise ValueError("nearly equal values on two sides of a branch")


class Evidence(Protocol):
    """Measurements that parameters are fitted to."""

    @property
    def data(self) -> Data:
        """Weights, noise and groups of the residuals."""

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Logarithm of predicted over measured, shape (rows,), and its derivatives by theta, shape (rows, parameters)."""


@dataclass(frozen=True, eq=False)
class MeasuredRuns:
    """Measured runs as residuals of parameters.

    Parameters
    ----------
    runs : sequence of Run
        The runs.
    parameters : sequence of Parameter
        What is fitted.
    equal : bool
        Whether every run counts as much as any other; else runs of a group as the root of their number.
    """

    runs: Sequence[Run]
    parameters: Sequence[Parameter]
    equal: bool = False
    batches: list[RunBatch] = field(init=False, repr=False)
    refused: dict[int, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found, refused = batches(self.runs)
        object.__setattr__(self, "batches", found)
        object.__setattr__(self, "refused", refused)

    @cached_property
    def data(self) -> Data:
        """Weights and noise: a group of n runs counts as n^0.65, and no source as more than it measured."""
        groups: list[Any] = [run.id if self.equal else group_of(run) for run in self.runs]
        size, source = Counter(groups), Counter(one[0] for one in groups)
        weights = [min(INDEPENDENT[one[0]] / source[one[0]], 1) if one[0] in INDEPENDENT else size[one] ** ALIKE for one in groups]
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
                    seconds[batch.rows] = batch.seconds(setting.system(batch.system), setting.assumed(batch.stack, batch.system))
                except InputError:  # a precision that the accelerator lacks
                    continue
        return seconds

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Logarithm of predicted over measured, shape (runs,), and its derivatives by theta, shape (runs, parameters).

        A run that cannot be estimated has zeros. Each batch is evaluated once, for all parameters that touch it as columns: a row
        as they are, and a row for each with that one changed a little.
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

    def _derived(self, batch: RunBatch, values: list[float]) -> tuple[Floats, dict[int, Floats]]:
        """Step times of a batch, and derivatives of their logarithms by those of the values that touch them."""
        setting = Setting(self.parameters, values)
        system, assumed = setting.system(batch.system), setting.assumed(batch.stack, batch.system)
        places = (*touching_system(self.parameters, batch.system), *touching_stack(self.parameters, batch.stack))
        nudged = {}
        for row, i in enumerate(places):
            column = np.full((len(places) + 1, 1), float(values[i]))
            column[row + 1] *= 1 + NUDGE
            nudged[i] = column
        figures = {self.parameters[i].path: column for i, column in nudged.items() if self.parameters[i].home in MACHINE}
        fields: dict[str, Any] = {
            self.parameters[i].field: column.view(Alike) for i, column in nudged.items() if self.parameters[i].home not in MACHINE
        }
        try:
            several = batch.seconds(system.with_figures(figures) if figures else system, replace(assumed, **fields), counted=False)
        except ValueError:  # on two sides of a branch
            several = self._one_by_one(batch, values, places)
        several = np.broadcast_to(several, (len(places) + 1, len(batch.rows)))
        return several[0], {i: np.log(several[row + 1] / several[0]) / np.log1p(NUDGE) for row, i in enumerate(places)}

    def _one_by_one(self, batch: RunBatch, values: list[float], places: Sequence[int]) -> Floats:
        """Step times of a batch with values as they are, and with each of some changed a little."""
        every = [values, *([value * (1 + NUDGE * (i == j)) for j, value in enumerate(values)] for i in places)]
        settings = [Setting(self.parameters, one) for one in every]
        return np.stack([batch.seconds(one.system(batch.system), one.assumed(batch.stack, batch.system)) for one in settings])


@dataclass(frozen=True, eq=False)
class Samples:
    """Measurements that a formula predicts from one system: collectives, products.

    Parameters
    ----------
    parameters : sequence of Parameter
        What is fitted.
    measured : array, shape (rows,)
        Times [s].
    predicted : callable
        Times under a setting of the parameters, shape (rows,) [s].
    touching : tuple of int
        Places of the parameters the times depend on.
    noise : float
        Relative error expected of a time.
    groups : sequence of hashable
        What each row belongs to.
    """

    parameters: Sequence[Parameter]
    measured: Floats
    predicted: Callable[[Setting], Floats]
    touching: tuple[int, ...]
    noise: float
    groups: Sequence[Hashable]

    @property
    def data(self) -> Data:
        """Weights and noise: a group of n rows counts as √n."""
        size = Counter(self.groups)
        weights = np.array([size[one] ** ALIKE for one in self.groups])
        return Data(weights, np.full(len(weights), self.noise), self.groups)

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Logarithm of predicted over measured, shape (rows,), and its derivatives by theta, shape (rows, parameters)."""
        values = [one.value(x) for one, x in zip(self.parameters, theta, strict=True)]
        base = self.predicted(Setting(self.parameters, values))
        slopes = np.zeros((len(self.measured), len(theta)))
        for i in self.touching:
            moved = [value * (1 + NUDGE * (i == j)) for j, value in enumerate(values)]
            change = np.log(self.predicted(Setting(self.parameters, moved)) / base)
            slopes[:, i] = change / np.log1p(NUDGE) * self.parameters[i].sigma
        return np.log(base / self.measured), slopes


@dataclass(frozen=True, eq=False)
class Together:
    """Several kinds of measurements, one after the other."""

    parts: Sequence[Evidence]

    @cached_property
    def data(self) -> Data:
        """Weights, noise and groups of all of them."""
        every = [part.data for part in self.parts]
        weights, scales = (np.concatenate([getattr(one, name) for one in every]) for name in ("weights", "scales"))
        return Data(weights, scales, [(i, name) for i, one in enumerate(every) for name in one.groups])

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Residuals of all of them and their derivatives, as for each."""
        y, slopes = zip(*(part.residuals(theta) for part in self.parts), strict=True)
        return np.concatenate(y), np.vstack(slopes)
