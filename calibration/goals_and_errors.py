"""Figures of the public scoreboard: errors of bundled runs and benchmarks, goals, and what peers publish.

Every figure is computed when the page is written. "Fitted" is what the package predicts now; "left out" comes
from the table that ``calibration/refit.py`` writes: each run predicted with constants fitted without its
group.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from typing import Final, Literal

import numpy as np

from collective_benchmarks import BANDS, Timing, check_collectives
from error_model import coverage
from kernel_benchmarks import KernelPrediction
from kernel_benchmarks import predict as predict_kernels
from kernel_benchmarks import read as read_kernels
from left_out import TABLE
from left_out_residuals import gather
from traincast.accuracy.scores import ErrorSummary, Prediction, Subject, source_of, summaries, summary, totals
from traincast.accuracy.validate import Report, validate

LEFT_OUT: Final = "left_out"
What = Literal["mape", "regret", "best_of_three", "memory"]
JAX: Final = ("maxtext-2025", "pax-2023", "pax-2024")


@dataclass(frozen=True)
class Goal:
    """Goal set before the model was built.

    Parameters
    ----------
    rows : str
        Description of the rows.
    sources : tuple of str
        Sources of runs.
    most : float
        Largest error [%].
    what : {"mape", "regret", "best_of_three", "memory"}
        Figure that is judged.
    column : str
        Column of the table of left-out runs.
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
TOTALS: Final = {
    "dense": 5.0,
    "moe": 12.0,
}  # highest error of all dense and of all mixture-of-experts models [%]
COLLECTIVES, PRODUCTS, ATTENTION = 6.5, 6.5, 8.0  # highest errors of benchmarks [%]
COVERED: Final = (0.85, 0.95)  # lowest and highest share of left-out runs within their 90 % intervals
STACK, JAX_STACK = 10.0, 20.0  # highest error of a left-out software stack, dense models [%]
MIN_RUNS_OF_STACK: Final = 4  # a stack with fewer runs is not judged


@dataclass(frozen=True)
class Board:
    """Errors of the bundled runs, fitted and left out.

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
        """Return the predictions of a column of left-out residuals; fits do not touch memory.

        Runs with measured memory but no time are included.
        """
        predictions = []
        for prediction in self.report.predictions:
            residual = self.residuals.get(prediction.id, {}).get(column)
            if prediction.measured_step_seconds is None:
                predictions += [prediction] if prediction.skipped is None else []
            elif residual is not None:
                predictions.append(
                    replace(
                        prediction, predicted_step_seconds=prediction.measured_step_seconds * exp(residual)
                    )
                )
        return predictions

    def of(self, sources: Sequence[str], column: str) -> ErrorSummary:
        """Return the errors of several sources together."""
        subjects = self.report.subjects
        predictions = [
            prediction
            for prediction in self.predictions(column)
            if source_of(prediction.id, subjects[prediction.id].moe) in sources
        ]
        return summary(", ".join(sources), predictions, subjects)

    def by_source(self, column: str = LEFT_OUT) -> dict[str, ErrorSummary]:
        """Return the errors by source, and in total by kind."""
        predictions, subjects = self.predictions(column), self.report.subjects
        return {
            summary_of_source.source: summary_of_source
            for summary_of_source in (*summaries(predictions, subjects), *totals(predictions, subjects))
        }

    def by_stack(self, moe: bool) -> dict[str, ErrorSummary]:
        """Return the errors by software stack, with constants fitted without its runs."""
        groups: dict[str, list[Prediction]] = defaultdict(list)
        subjects: Mapping[str, Subject] = self.report.subjects
        for prediction in self.predictions("without_stack"):
            if subjects[prediction.id].moe == moe and prediction.measured_step_seconds is not None:
                groups[subjects[prediction.id].stack].append(prediction)
        return {stack: summary(stack, predictions, subjects) for stack, predictions in sorted(groups.items())}

    def moved(self) -> float:
        """Return the mean change of predictions since the left-out table was written [1]."""
        predictions = {prediction.id: prediction for prediction in self.report.predictions}
        pairs = (
            (predictions[name], residuals["fitted"])
            for name, residuals in self.residuals.items()
            if name in predictions
        )
        return float(
            np.mean(
                [
                    abs(log(1 + prediction.error) - residuals)
                    for prediction, residuals in pairs
                    if prediction.error == prediction.error
                ]
            )
        )


def read_left_out() -> dict[str, dict[str, float]]:
    """Read the left-out table: run → column → logarithm of predicted over measured."""
    rows = csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines())
    words = ("id", "source", "group")
    return {row["id"]: {name: float(y) for name, y in row.items() if name not in words and y} for row in rows}


@cache
def board() -> Board:
    """Return the present scoreboard of the bundled runs."""
    return Board(validate(), read_left_out())


@cache
def covered() -> tuple[float, float]:
    """Return the share of left-out runs within their 90 % interval, of all and with √n for a group of n.

    Constants and intervals are fitted without the run's group.
    """
    data = gather()
    inside = dict(coverage(data))
    weights = data.weights[list(inside)]
    return float(np.mean(list(inside.values()))), float(np.average(list(inside.values()), weights=weights))


@cache
def kernel_errors() -> dict[str, list[KernelPrediction]]:
    """Return predictions of the bundled kernel benchmarks by kind."""
    groups: dict[str, list[KernelPrediction]] = defaultdict(list)
    for prediction in predict_kernels(read_kernels()[0]):
        groups[prediction.benchmark.kind].append(prediction)
    return groups


def flops(prediction: KernelPrediction) -> float:
    """Return the work of a matmul [FLOP]."""
    sizes = prediction.benchmark.sizes
    return 2 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]


@cache
def perlmutter() -> dict[int, list[Timing]]:
    """Return nccl-tests timings on Perlmutter by number of nodes."""
    groups: dict[int, list[Timing]] = defaultdict(list)
    for timing in check_collectives().timings:
        if (
            timing.skipped is None
            and timing.system == "perlmutter"
            and timing.source.startswith("transformer")
        ):
            groups[timing.nodes].append(timing)
    return dict(sorted(groups.items()))


def mean(errors: Iterable[float]) -> float | None:
    """Return the mean absolute value; None without values."""
    sizes = [abs(error) for error in errors]
    return float(np.mean(sizes)) if sizes else None


def banded(timings: Iterable[Timing]) -> list[float | None]:
    """Return the mean absolute error by size band of the message."""
    all_timings = list(timings)
    return [mean(timing.error for timing in all_timings if timing.band == name) for _, name in BANDS]
