"""Measurements as residuals of parameters: training runs, and timed collectives and matrix products."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from traincast.accuracy.fit.benchmark_times import collective_seconds, product_seconds
from traincast.accuracy.fit.least_squares import Data
from traincast.accuracy.fit.parameters import (
    Parameter,
    Setting,
    accelerator_name,
    touching_stack,
    touching_system,
)
from traincast.accuracy.logs import Collective, Gemm
from traincast.accuracy.runs.run import Run, load_bundled_runs
from traincast.accuracy.scores import INDEPENDENT, source_of
from traincast.accuracy.validation import RunBatch, batches
from traincast.catalog import Stack
from traincast.core import Floats, InputError, System

GROUP_WEIGHT_EXPONENT: Final = -0.35  # a group of n rows, whose errors are correlated, counts as n^0.65
# expected relative error of a run, or of a timed benchmark
NOISE: Final = {"dense": 0.04, "moe": 0.10, "collective": 0.10, "product": 0.05}
NUDGE: Final = 1e-3  # relative change of a value for a numerical derivative


def bundled_runs() -> list[Run]:
    """Return every readable bundled run that states its plan: constants are fitted to these."""
    return [run for _, run in load_bundled_runs() if isinstance(run, Run) and run.states_its_plan]


def group_of(run: Run) -> tuple[str, str, str]:
    """Return the group of a run for leave-one-out: source, model, accelerator."""
    shape = run.model
    size = f"{shape.layers}x{shape.hidden}" if not shape.name or shape.name == run.id else shape.name
    return source_of(run.id, run.model.experts is not None), size, accelerator_name(run.system)


@dataclass(frozen=True, eq=False)
class MeasuredRuns:
    """Measured runs as residuals of parameters; `equal` if every run has the same weight."""

    runs: Sequence[Run]
    parameters: tuple[Parameter, ...]
    equal: bool = False

    @cached_property
    def batches(self) -> list[RunBatch]:
        """Runs of one model, machine and set of choices together."""
        return batches(self.runs)[0]

    @cached_property
    def data(self) -> Data:
        """Weights and noise; a source counts at most as its independent measurements."""
        groups: list[Any] = [run.id if self.equal else group_of(run) for run in self.runs]
        group_sizes = Counter(groups)
        source_sizes = Counter(group[0] for group in groups)
        weights = [
            min(INDEPENDENT[group[0]] / source_sizes[group[0]], 1)
            if group[0] in INDEPENDENT
            else group_sizes[group] ** GROUP_WEIGHT_EXPONENT
            for group in groups
        ]
        scales = [NOISE["moe" if run.model.experts else "dense"] for run in self.runs]
        predicted = np.isin(np.arange(len(groups)), [i for batch in self.batches for i in batch.rows])
        return Data(np.where(predicted & (self.measured > 0), weights, 0.0), np.array(scales), groups)

    @cached_property
    def measured(self) -> Floats:
        """Measured step times, shape (runs,), nan where none was measured [s]."""
        return np.array([run.step_seconds or np.nan for run in self.runs])

    def predict(self, values: Iterable[float], only: Iterable[int] | None = None) -> Floats:
        """Predict step times with values of the parameters, shape (runs,); nan if not in `only` [s]."""
        setting = Setting(self.parameters, tuple(values))
        seconds = np.full(len(self.runs), np.nan)
        wanted = set(range(len(self.runs)) if only is None else only)
        for batch in self.batches:
            if not wanted.isdisjoint(batch.rows.tolist()):
                try:
                    seconds[batch.rows] = _seconds(batch, setting)
                except InputError:  # a precision that the accelerator lacks
                    continue
        return seconds

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return log(predicted over measured), shape (runs,), and derivatives, shape (runs, parameters).

        A run that cannot be estimated has zeros. Each batch is evaluated once, with the parameters that touch
        it as columns: one row of their values, and one row for each parameter with that parameter nudged.
        """
        values = [parameter.value(x) for parameter, x in zip(self.parameters, theta, strict=True)]
        y = np.zeros(len(self.runs))
        slopes = np.zeros((len(self.runs), len(theta)))
        for batch in self.batches:
            touching = [
                *touching_system(self.parameters, batch.system),
                *touching_stack(self.parameters, batch.stack),
            ]
            nudged: list[Any] = list(values)
            for row, i in enumerate(touching, start=1):
                nudged[i] = np.full((len(touching) + 1, 1), values[i])
                nudged[i][row] *= 1 + NUDGE
            try:
                seconds = _seconds(batch, Setting(self.parameters, tuple(nudged)))
            except InputError:
                continue
            base, *others = np.broadcast_to(seconds, (len(touching) + 1, len(batch.rows)))
            y[batch.rows] = np.nan_to_num(np.log(base / self.measured[batch.rows]))
            for i, other in zip(touching, others, strict=True):
                slopes[batch.rows, i] = np.log(other / base) / np.log1p(NUDGE) * self.parameters[i].sigma
        return y, slopes


def _seconds(batch: RunBatch, setting: Setting) -> Floats:
    return batch.seconds(setting.system(batch.system), setting.stack_assumptions(batch.stack, batch.system))


@dataclass(frozen=True, eq=False)
class Benchmarks:
    """Timed collectives, or timed matrix products, on a system as residuals of parameters."""

    system: System
    timings: Sequence[Collective] | Sequence[Gemm]
    parameters: tuple[Parameter, ...]

    @cached_property
    def data(self) -> Data:
        """Weights and noise: n rows of one operation or type have the weight n^0.65."""
        groups = [row.op if isinstance(row, Collective) else row.dtype for row in self.timings]
        sizes = Counter(groups)
        weights = np.array([sizes[group] ** GROUP_WEIGHT_EXPONENT for group in groups])
        noise = NOISE["collective" if isinstance(self.timings[0], Collective) else "product"]
        return Data(weights, np.full(len(weights), noise), groups)

    def predict(self, setting: Setting) -> Floats:
        """Predict the times under a setting of the parameters, shape (rows,) [s]."""
        system = setting.system(self.system)
        assumed = setting.stack_assumptions(Stack.DEFAULT, self.system)
        if collectives := [row for row in self.timings if isinstance(row, Collective)]:
            return collective_seconds(system, assumed, collectives)
        products = [row for row in self.timings if isinstance(row, Gemm)]
        return product_seconds(system.accelerator, assumed, products)

    def residuals(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return log(predicted over measured), shape (rows,), and derivatives, shape (rows, parameters)."""
        measured = np.array([row.time_us * 1e-6 for row in self.timings])
        values = [parameter.value(x) for parameter, x in zip(self.parameters, theta, strict=True)]
        base = self.predict(Setting(self.parameters, tuple(values)))
        slopes = np.zeros((len(measured), len(theta)))
        home = "network" if isinstance(self.timings[0], Collective) else "accelerator"
        for i in touching_system(self.parameters, self.system):
            if self.parameters[i].home == home:
                nudged = tuple(value * (1 + NUDGE * (i == j)) for j, value in enumerate(values))
                change = np.log(self.predict(Setting(self.parameters, nudged)) / base)
                slopes[:, i] = change / np.log1p(NUDGE) * self.parameters[i].sigma
        return np.log(base / measured), slopes
