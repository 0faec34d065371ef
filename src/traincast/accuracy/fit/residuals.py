"""Measurements as residuals of parameters: training runs, and samples whose time a formula predicts."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from traincast.accuracy.fit.least_squares import Data
from traincast.accuracy.fit.parameters import (
    Parameter,
    Setting,
    accelerator_name,
    touching_stack,
    touching_system,
)
from traincast.accuracy.run_batches import RunBatch, batches
from traincast.accuracy.runs.run import Run, bundled
from traincast.accuracy.scores import INDEPENDENT, source_of
from traincast.core.errors import InputError
from traincast.core.quantities import Floats

GROUP_WEIGHT_EXPONENT: Final = -0.35  # a group of n rows, whose errors are correlated, counts as n^0.65
NOISE: Final = {"dense": 0.04, "moe": 0.10}  # expected relative error of a row
NUDGE: Final = 1e-3  # relative change of a value for a numerical derivative
MACHINE_HOMES: Final = ("accelerator", "network")  # homes of parameters that formulas take as columns


def bundled_runs() -> list[Run]:
    """Return every readable bundled run."""
    return [run for _, run in bundled() if isinstance(run, Run)]


def group_of(run: Run) -> tuple[str, str, str]:
    """Return the group of a run for leave-one-out: source, model, accelerator."""
    shape = run.model
    size = f"{shape.layers}x{shape.hidden}" if not shape.name or shape.name == run.id else shape.name
    return source_of(run.id, run.model.experts is not None), size, accelerator_name(run.system)


class Alike(np.ndarray[Any, Any]):
    """A column of nearly equal values that has one truth value, for branches of formulas on a number."""

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
        """Return log(predicted over measured), shape (rows,), and its derivatives by theta, shape (rows, parameters)."""


@dataclass(frozen=True, eq=False)
class MeasuredRuns:
    """Measured runs as residuals of parameters.

    Parameters
    ----------
    runs : sequence of Run
        The runs.
    parameters : sequence of Parameter
        Fitted parameters.
    equal : bool
        Whether every run has the same weight; else a group of n runs counts as n^0.65.
    """

    runs: Sequence[Run]
    parameters: Sequence[Parameter]
    equal: bool = False
    batches: list[RunBatch] = field(init=False, repr=False)
    refused: dict[int, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        run_batches, refused = batches(self.runs)
        object.__setattr__(self, "batches", run_batches)
        object.__setattr__(self, "refused", refused)

    @cached_property
    def data(self) -> Data:
        """Weights and noise: a group of n runs counts as n^0.65, a source at most as its independent measurements."""
        groups: list[Any] = [run.id if self.equal else group_of(run) for run in self.runs]
        group_sizes, source_sizes = Counter(groups), Counter(group[0] for group in groups)
        weights = []
        for group in groups:
            source = group[0]
            if source in INDEPENDENT:
                weights.append(min(INDEPENDENT[source] / source_sizes[source], 1))
            else:
                weights.append(group_sizes[group] ** GROUP_WEIGHT_EXPONENT)
        scales = [NOISE["moe" if run.model.experts else "dense"] for run in self.runs]
        usable = np.isin(np.arange(len(groups)), [i for batch in self.batches for i in batch.rows]) & (
            self.measured > 0
        )
        return Data(np.where(usable, weights, 0.0), np.array(scales), groups)

    @cached_property
    def measured(self) -> Floats:
        """Measured step times, shape (runs,), nan where none was measured [s]."""
        return np.array([run.step_seconds or np.nan for run in self.runs])

    def predict(
        self, values: Sequence[float] | Floats | None = None, only: Iterable[int] | None = None
    ) -> Floats:
        """Predict step times with values of the parameters, shape (runs,) [s]; nan without estimate or outside of `only`."""
        setting = Setting(self.parameters, values)
        seconds = np.full(len(self.runs), np.nan)
        indices = None if only is None else set(only)
        for batch in self.batches:
            if indices is None or not indices.isdisjoint(batch.rows.tolist()):
                try:
                    seconds[batch.rows] = batch.seconds(
                        setting.system(batch.system), setting.assumed(batch.stack, batch.system)
                    )
                except InputError:  # a precision that the accelerator lacks
                    continue
        return seconds

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return log(predicted over measured), shape (runs,), and its derivatives by theta, shape (runs, parameters).

        A run that cannot be estimated has zeros. Each batch is evaluated once, with the parameters that touch
        it as columns: one row of their values, and one row for each parameter with that parameter nudged.
        """
        values = [parameter.value(x) for parameter, x in zip(self.parameters, theta, strict=True)]
        y, slopes = np.zeros(len(self.runs)), np.zeros((len(self.runs), len(theta)))
        for batch in self.batches:
            try:
                base, columns = self._seconds_and_derivatives(batch, values)
            except InputError:
                continue
            y[batch.rows] = np.nan_to_num(np.log(base / self.measured[batch.rows]))
            for i, column in columns.items():
                slopes[batch.rows, i] = column * self.parameters[i].sigma
        return y, slopes

    def _seconds_and_derivatives(
        self, batch: RunBatch, values: list[float]
    ) -> tuple[Floats, dict[int, Floats]]:
        """Return step times of a batch, and logarithmic derivatives by the values that touch them."""
        setting = Setting(self.parameters, values)
        system, assumed = setting.system(batch.system), setting.assumed(batch.stack, batch.system)
        touching = (
            *touching_system(self.parameters, batch.system),
            *touching_stack(self.parameters, batch.stack),
        )
        nudged = {}
        for row, i in enumerate(touching):
            column = np.full((len(touching) + 1, 1), float(values[i]))
            column[row + 1] *= 1 + NUDGE
            nudged[i] = column
        figures = {
            self.parameters[i].path: column
            for i, column in nudged.items()
            if self.parameters[i].home in MACHINE_HOMES
        }
        fields: dict[str, Any] = {
            self.parameters[i].field: column.view(Alike)
            for i, column in nudged.items()
            if self.parameters[i].home not in MACHINE_HOMES
        }
        try:
            seconds = batch.seconds(
                system.with_figures(figures) if figures else system,
                assumed.with_values(fields),
                counted=False,
            )
        except ValueError:  # nearly equal values on two sides of a branch
            seconds = self._one_by_one(batch, values, touching)
        seconds = np.broadcast_to(seconds, (len(touching) + 1, len(batch.rows)))
        return seconds[0], {
            i: np.log(seconds[row + 1] / seconds[0]) / np.log1p(NUDGE) for row, i in enumerate(touching)
        }

    def _one_by_one(self, batch: RunBatch, values: list[float], touching: Sequence[int]) -> Floats:
        """Return step times of a batch with the values, and with each touching value nudged."""
        value_rows = [
            values,
            *([value * (1 + NUDGE * (i == j)) for j, value in enumerate(values)] for i in touching),
        ]
        settings = [Setting(self.parameters, row) for row in value_rows]
        return np.stack(
            [
                batch.seconds(setting.system(batch.system), setting.assumed(batch.stack, batch.system))
                for setting in settings
            ]
        )


@dataclass(frozen=True, eq=False)
class Samples:
    """Measurements on one system that a formula predicts: collectives, matrix products.

    Parameters
    ----------
    parameters : sequence of Parameter
        Fitted parameters.
    measured : array, shape (rows,)
        Times [s].
    predicted : callable
        Times under a setting of the parameters, shape (rows,) [s].
    touching : tuple of int
        Indices of the parameters that the times depend on.
    noise : float
        Expected relative error of a time.
    groups : sequence of hashable
        Group of each row.
    """

    parameters: Sequence[Parameter]
    measured: Floats
    predicted: Callable[[Setting], Floats]
    touching: tuple[int, ...]
    noise: float
    groups: Sequence[Hashable]

    @property
    def data(self) -> Data:
        """Weights and noise: a group of n rows has the weight n^0.65."""
        sizes = Counter(self.groups)
        weights = np.array([sizes[group] ** GROUP_WEIGHT_EXPONENT for group in self.groups])
        return Data(weights, np.full(len(weights), self.noise), self.groups)

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return log(predicted over measured), shape (rows,), and its derivatives by theta, shape (rows, parameters)."""
        values = [parameter.value(x) for parameter, x in zip(self.parameters, theta, strict=True)]
        base = self.predicted(Setting(self.parameters, values))
        slopes = np.zeros((len(self.measured), len(theta)))
        for i in self.touching:
            nudged = [value * (1 + NUDGE * (i == j)) for j, value in enumerate(values)]
            change = np.log(self.predicted(Setting(self.parameters, nudged)) / base)
            slopes[:, i] = change / np.log1p(NUDGE) * self.parameters[i].sigma
        return np.log(base / self.measured), slopes


@dataclass(frozen=True, eq=False)
class Together:
    """Concatenation of several kinds of measurements."""

    parts: Sequence[Evidence]

    @cached_property
    def data(self) -> Data:
        """Weights, noise and groups of all parts."""
        all_data = [part.data for part in self.parts]
        weights, scales = (
            np.concatenate([getattr(data, name) for data in all_data]) for name in ("weights", "scales")
        )
        return Data(weights, scales, [(i, name) for i, data in enumerate(all_data) for name in data.groups])

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return the residuals of all parts and their derivatives."""
        y, slopes = zip(*(part.residuals(theta) for part in self.parts), strict=True)
        return np.concatenate(y), np.vstack(slopes)
