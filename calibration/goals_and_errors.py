"""The public scoreboard: how far predictions of bundled runs and benchmarks are off, beside what was aimed at and what peers say.

Every figure is worked out when the page is written. "Fitted" is what the package predicts now; "left out" is from the table that
``calibration/refit.py`` keeps: each run predicted with constants fitted without its group.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import exp, log
from typing import Final, Literal

import numpy as np

from collective_benchmarks import BANDS, Timing, check_collectives
from error_model import coverage
from left_out_residuals import gather
from traincast.accuracy.fit.kernel_benchmarks import KernelPrediction
from traincast.accuracy.fit.kernel_benchmarks import predict as predict_kernels
from traincast.accuracy.fit.kernel_benchmarks import read as read_kernels
from traincast.accuracy.scores import ErrorSummary, Prediction, Subject, source_of, summaries, summary, totals
from traincast.accuracy.validate import Report, validate

LEFT_OUT: Final = "left_out"
What = Literal["mape", "regret", "best_of_three", "memory"]
JAX: Final = ("maxtext-2025", "pax-2023", "pax-2024")


@dataclass(frozen=True)
class Goal:
    """What was aimed at before the model was built.

    Parameters
    ----------
    rows : str
        Of what.
    sources : tuple of str
        Sources of runs.
    most : float
        Largest error [%].
    what : {"mape", "regret", "best_of_three", "memory"}
        Which figure of them.
    column : str
        Of which residuals: a column of the table of runs left out.
    """

    rows: str
    sources: tuple[str, ...]
    most: float
    what: What = "mape"
    column: str = LEFT_OUT


GOALS: Final = (
    Goal("Korthikanti (arXiv 2205.05198)", ("korth",), 3),
    Goal("vTrain, several nodes", ("vtrain-m",), 5),
    Goal("… regret of the best of three", ("vtrain-m",), 1.5, "best_of_three"),
    Goal("vTrain, one node", ("vtrain-s",), 6),
    Goal("… a whole hidden size left out", ("vtrain-s",), 10, column="without_size"),
    Goal("… mean regret", ("vtrain-s",), 4, "regret"),
    Goal("… regret of the best of three", ("vtrain-s",), 0.5, "best_of_three"),
    Goal("Zero Bubble, all schedules", ("zb",), 3),
    Goal("… memory", ("zb",), 2.5, "memory"),
    Goal("BLOOM's search", ("bloom",), 4),
    Goal("… memory", ("bloom",), 4.5, "memory"),
    Goal("llm-foundry (FSDP)", ("mpt",), 3.5),
    Goal("DGX-cloud, dense", ("dgxc",), 5),
    Goal("NeMo", ("nemo",), 4.5),
    Goal("Megatron-Bridge, dense", ("mbridge",), 4.5),
    Goal("MLPerf", ("mlperf",), 6),
    Goal("SimuMax on B200, dense and MoE", ("simumax", "simumax/moe"), 4),
    Goal("… memory", ("simumax", "simumax/moe"), 1.5, "memory"),
    Goal("torchtitan", ("titan",), 9),
    Goal("… memory", ("titan",), 5, "memory"),
    Goal("IBM, compiled and eager", ("ibm", "ibm-old"), 6),
    Goal("InternEvo", ("internevo",), 12),
    Goal("… strategies left out", ("internevo",), 5, column="without_strategy"),
)
TOTALS: Final = {"dense": 5.0, "moe": 12.0}  # largest error of all dense models, of all with experts [%]
COLLECTIVES, PRODUCTS, ATTENTION = 6.5, 6.5, 8.0  # largest errors of benchmarks [%]
COVERED: Final = (0.85, 0.95)  # share of the runs left out that lie in their 90 % intervals
STACK, JAX_STACK = 10.0, 20.0  # of a software stack left out, dense models [%]
FEW: Final = 4  # runs that a stack needs at least to be judged


@dataclass(frozen=True)
class Board:
    """Errors of the bundled runs: as predicted now, and left out.

    Parameters
    ----------
    report : Report
        Predictions of the bundled runs.
    residuals : mapping of str to mapping of str to float
        Run → column → logarithm of predicted over measured.
    """

    report: Report
    residuals: Mapping[str, Mapping[str, float]]

    def predictions(self, column: str) -> list[Prediction]:
        """Runs predicted with something left out; their memory as it is predicted now: nothing of it is fitted with the times.

        Runs whose memory alone was measured are among them.
        """
        found = []
        for one in self.report.predictions:
            y = self.residuals.get(one.id, {}).get(column)
            if one.measured_step_seconds is None:
                found += [one] if one.skipped is None else []
            elif y is not None:
                found.append(replace(one, predicted_step_seconds=one.measured_step_seconds * exp(y)))
        return found

    def of(self, sources: Sequence[str], column: str) -> ErrorSummary:
        """Errors of some sources together."""
        subjects = self.report.subjects
        some = [one for one in self.predictions(column) if source_of(one.id, subjects[one.id].moe) in sources]
        return summary(", ".join(sources), some, subjects)

    def by_source(self, column: str = LEFT_OUT) -> dict[str, ErrorSummary]:
        """Errors by source, and of all of a kind."""
        some, subjects = self.predictions(column), self.report.subjects
        return {one.source: one for one in (*summaries(some, subjects), *totals(some, subjects))}

    def by_stack(self, moe: bool) -> dict[str, ErrorSummary]:
        """Errors of dense models or of those with experts by software stack, with constants fitted without all of its runs."""
        by: dict[str, list[Prediction]] = defaultdict(list)
        subjects: Mapping[str, Subject] = self.report.subjects
        for one in self.predictions("without_stack"):
            if subjects[one.id].moe == moe and one.measured_step_seconds is not None:
                by[subjects[one.id].stack].append(one)
        return {stack: summary(stack, some, subjects) for stack, some in sorted(by.items())}

    def moved(self) -> float:
        """By how much predictions have changed since the runs were left out, mean of all [1]."""
        now = {one.id: one for one in self.report.predictions}
        pairs = ((now[name], y["fitted"]) for name, y in self.residuals.items() if name in now)
        return float(np.mean([abs(log(1 + one.error) - y) for one, y in pairs if one.error == one.error]))


def read_left_out() -> dict[str, dict[str, float]]:
    """The package's table of runs left out: run → column → logarithm of predicted over measured."""
    file = files("traincast").joinpath("catalog", "measured", "left_out.csv")
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    words = ("id", "source", "group")
    return {row["id"]: {name: float(y) for name, y in row.items() if name not in words and y} for row in rows}


def board() -> Board:
    """The scoreboard of the bundled runs as it stands."""
    return Board(validate(), read_left_out())


@cache
def covered() -> tuple[float, float]:
    """Shares of the runs left out whose measured time lies in their 90 % interval: every run alike, and a group of n as √n.

    Intervals know nothing of a run's group, neither its constants nor its errors.
    """
    data = gather()
    inside = dict(coverage(data))
    weights = data.weights[list(inside)]
    return float(np.mean(list(inside.values()))), float(np.average(list(inside.values()), weights=weights))


@cache
def kernel_errors() -> dict[str, list[KernelPrediction]]:
    """Predictions of the bundled microbenchmarks of kernels by what they measure."""
    by: dict[str, list[KernelPrediction]] = defaultdict(list)
    for one in predict_kernels(read_kernels()[0]):
        by[one.benchmark.kind].append(one)
    return by


def flops(one: KernelPrediction) -> float:
    """Work of a product [FLOP]."""
    sizes = one.benchmark.sizes
    return 2 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]


@cache
def perlmutter() -> dict[int, list[Timing]]:
    """Timed collectives of nccl-tests on Perlmutter by number of nodes."""
    by: dict[int, list[Timing]] = defaultdict(list)
    for one in check_collectives().timings:
        if one.skipped is None and one.system == "perlmutter" and one.source.startswith("transformer"):
            by[one.nodes].append(one)
    return dict(sorted(by.items()))


def mean(errors: Iterable[float]) -> float | None:
    """Mean absolute value; None of none."""
    sizes = [abs(error) for error in errors]
    return float(np.mean(sizes)) if sizes else None


def banded(some: Iterable[Timing]) -> list[float | None]:
    """Mean absolute error by size of the message."""
    every = list(some)
    return [mean(one.error for one in every if one.band == name) for _, name in BANDS]
