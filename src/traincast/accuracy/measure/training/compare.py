"""Measured training steps against predictions, before and after calibrating the machine to half of the shapes."""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from traincast.accuracy.fit.calibrate import Calibration, fitted_to
from traincast.accuracy.fit.measured_files import Measured
from traincast.accuracy.measure.device_info import default_ranks
from traincast.accuracy.measure.launcher import available_cores, launch, launched_rank
from traincast.accuracy.measure.measure import collect_job_errors
from traincast.accuracy.measure.training.shapes import Shape
from traincast.accuracy.measure.training.timed_steps import faster_visit, same_machine, train_as_rank
from traincast.accuracy.runs.run import Run, readable, rows
from traincast.accuracy.scores import ErrorSummary, Prediction, source_of
from traincast.accuracy.validate import Report, validate
from traincast.catalog.load import load_system
from traincast.core.errors import ErrorCollector
from traincast.core.output_files import atomic_output, check_output

Rows = Sequence[Mapping[str, str]]
WORKER: Final = "traincast.accuracy.measure.worker"
DEFAULT_BUDGET_SECONDS: Final = 180.0  # [s]
HALF_COUNT: Final = 2  # shapes are fitted and left out alternately


@dataclass(frozen=True)
class StepComparison:
    """Comparison of measured steps with predictions.

    Parameters
    ----------
    rows : tuple of mapping of str to str
        Measured steps, as rows of a table of runs.
    before : Report
        All rows, predicted with the system file from microbenchmarks.
    calibration : Calibration or None
        The machine calibrated to every other shape; None with a single shape, or without scipy.
    fitted, left_out : Report or None
        Rows used for the calibration and all others, predicted with the calibrated machine.
    """

    rows: tuple[Mapping[str, str], ...]
    before: Report
    calibration: Calibration | None = None
    fitted: Report | None = None
    left_out: Report | None = None

    @property
    def errors(self) -> dict[str, ErrorSummary | None]:
        """Errors of all rows before calibration, and of each half after it."""
        reports = {"before": self.before, "fitted": self.fitted, "left_out": self.left_out}
        return {
            name: next((total for total in report.totals if total.n), None) if report else None
            for name, report in reports.items()
        }

    @property
    def calibrated(self) -> dict[str, tuple[str, Prediction]]:
        """Predictions after calibration by id, with "fitted" or "left out"."""
        halves = {"fitted": self.fitted, "left out": self.left_out}
        return {
            prediction.id: (half, prediction)
            for half, report in halves.items()
            if report
            for prediction in report.predictions
        }

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object: rows with predictions, errors by shape and in total, and fitted constants."""
        calibrated = self.calibrated
        constants = () if self.calibration is None else self.calibration.to_dict()["constants"]
        return {
            "source": self.rows[0]["source"] if self.rows else None,
            "rows": [
                {
                    "id": item.id,
                    "measured_step_seconds": item.measured_step_seconds,
                    "spread": float(row["step_spread"]),
                    "predicted_step_seconds": item.predicted_step_seconds,
                    "calibrated_step_seconds": calibrated[item.id][1].predicted_step_seconds
                    if item.id in calibrated
                    else None,
                    "half": calibrated[item.id][0] if item.id in calibrated else None,
                    "skipped": item.skipped,
                }
                for row, item in zip(self.rows, self.before.predictions, strict=True)
            ],
            "shapes": {item.source: figures_of(item) for item in self.before.summaries},
            "errors": {
                name: None if item is None else figures_of(item) for name, item in self.errors.items()
            },
            "constants": list(constants),
        }


def figures_of(errors: ErrorSummary) -> dict[str, Any]:
    """Return the figures of a summary as a JSON object."""
    return {name: value for name, value in asdict(errors).items() if name != "source"}


@dataclass(frozen=True)
class TrainingJob:
    """Job of timed training steps.

    Parameters
    ----------
    output : Path
        Path of the table of runs; unfinished rows are kept beside it.
    budget : float
        Time for everything [s].
    ranks, threads : int, optional
        Processes on this computer, and threads of each; as for `traincast.measure`.
    shapes : tuple of Shape
        Shapes to train in place of the default ones.
    """

    output: Path
    budget: float = DEFAULT_BUDGET_SECONDS
    ranks: int | None = None
    threads: int | None = None
    shapes: tuple[Shape, ...] = ()

    @property
    def first(self) -> bool:
        """Whether this process has the results: rank 0, or the parent of the ranks."""
        rank = launched_rank()
        return rank is None or rank.rank == 0

    def check(self, calibrated: Path | None = None, force: bool = False) -> None:
        """Raise InputError with everything that is wrong with the job.

        Raises
        ------
        InputError
            If a number is not allowed, a file exists already, or PyTorch is not installed.
        """
        mistakes = ErrorCollector("measure")
        collect_job_errors(self.budget, self.ranks, self.threads, mistakes)
        if self.first:
            mistakes.catch(check_output, self.output, force, (".csv",))
            if calibrated is not None:
                mistakes.catch(check_output, calibrated, force, (".yaml", ".yml"))
        mistakes.raise_any()


def measure_steps(
    job: TrainingJob, progress: Callable[[int, int], Any] = lambda done, of: None
) -> tuple[dict[str, str], ...]:
    """Run a job, and keep rows as they are measured, so that it can be continued.

    Parameters
    ----------
    job : TrainingJob
        The job.
    progress : callable
        Called with the number of visits done and their maximum.

    Returns
    -------
    tuple of dict of str to str
        Rows of a table of runs; none on ranks other than the first.
    """
    partial, rank = partial_path(job.output), launched_rank()
    kept = {row["id"]: row for row in rows(partial)} if job.first and partial.is_file() else {}

    def on_message(message: dict[str, Any]) -> None:
        if "machine" in message and not same_machine(kept.values(), message["machine"]):
            kept.clear()
        if "row" in message:
            rank = message["row"]
            kept[rank["id"]] = faster_visit(kept[rank["id"]], rank) if rank["id"] in kept else rank
            write_rows(partial, list(kept.values()))
            progress(message["visits"] - message["left"], message["visits"])

    request = {
        "job": "steps",
        "seconds": job.budget,
        "kept": list(kept.values()),
        "shapes": [list(row) for row in job.shapes],
    }
    if rank is not None:
        train_as_rank(request | {"threads": job.threads or 0}, on_message)
    else:
        ranks = job.ranks or default_ranks()
        threads = job.threads or max(available_cores() // ranks, 1)
        launch(WORKER, request | {"threads": threads}, ranks, threads, on_message)
    return tuple(kept.values())


def partial_path(output: Path) -> Path:
    """Return the path of the unfinished table."""
    return output.with_name(f"{output.stem}.partial{output.suffix}")


def write_rows(path: Path, table: Rows) -> None:
    """Write rows as a table of runs."""
    with atomic_output(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)


def with_system(table: Rows, system: Path, folder: Path | None = None) -> list[dict[str, str]]:
    """Return rows with the system file they ran on, as a path relative to the folder of their table."""
    name = str(system.resolve()) if folder is None else os.path.relpath(system, folder)
    return [dict(row) | {"system": name} for row in table]


def compare_with_predictions(table: Rows, system: Path, calibrated: Path | None = None) -> StepComparison:
    """Predict measured steps before and after calibration.

    Parameters
    ----------
    table : sequence of mapping of str to str
        Measured rows.
    system : Path
        System file of the machine.
    calibrated : Path, optional
        Path to write the calibrated system file to.

    Returns
    -------
    StepComparison
        Without calibration if scipy is missing.

    Raises
    ------
    InputError
        If the system file cannot be read.
    """
    before = validate(with_system(table, system))
    shapes = list(dict.fromkeys(source_of(row["id"], False) for row in table))
    halves = [_rows_of_shapes(table, shapes[half::HALF_COUNT]) for half in range(HALF_COUNT)]
    if not all(halves):
        return StepComparison(tuple(table), before)
    if find_spec("scipy") is None:
        return StepComparison(tuple(table), before)
    runs = [run for _, run in readable(with_system(halves[0], system)) if isinstance(run, Run)]
    calibration = fitted_to(system, Measured(load_system(system), runs=tuple(runs)))
    with TemporaryDirectory() as folder:
        path = calibrated or Path(folder) / f"{system.stem}.yaml"
        calibration.write(path, force=True)
        fitted, left_out = (validate(with_system(half, path)) for half in halves)
    return StepComparison(tuple(table), before, calibration, fitted, left_out)


def _rows_of_shapes(table: Rows, shapes: Iterable[str]) -> list[Mapping[str, str]]:
    """Return the rows of the given shapes."""
    wanted = set(shapes)
    return [row for row in table if source_of(row["id"], False) in wanted]
