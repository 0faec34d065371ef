"""Measured training steps against predictions, before and after calibrating to half of the shapes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from traincast.accuracy.fit.calibration import Calibration, fitted_to
from traincast.accuracy.fit.measured import Measured
from traincast.accuracy.fit.parameters import FittedConstant
from traincast.accuracy.machine.launcher import launched_rank, run_on_all_ranks
from traincast.accuracy.machine.measure import CSV, YAML, check_job
from traincast.accuracy.machine.tables import write_rows
from traincast.accuracy.machine.training.timed_steps import TimedShape, faster_visit, same_machine
from traincast.accuracy.runs.run import Run, readable, rows
from traincast.accuracy.scores import ErrorSummary, source_of
from traincast.accuracy.validation import Report, validate
from traincast.catalog import load_system
from traincast.core import KEY, Doc, Result

Rows = Sequence[Mapping[str, str]]
HALF_COUNT: Final = 2  # shapes are fitted and left out alternately


class StepRecord(Result):
    """A training step, measured and predicted."""

    id: Annotated[str, Doc("its shape and plan")]
    measured_step_seconds: Annotated[float | None, Doc("median of the measured steps", "s")]
    spread: Annotated[float, Doc("interquartile range of the steps over their median")]
    predicted_step_seconds: Annotated[float | None, Doc("predicted with the machine's file", "s")]
    calibrated_step_seconds: Annotated[
        float | None, Doc("predicted with the machine calibrated to half of the shapes", "s")
    ]
    half: Annotated[str | None, Doc("whether the calibration used it: fitted, or left out")]
    skipped: Annotated[str | None, Doc("why it is not predicted")]


class StepErrors(Result):
    """Errors of all steps."""

    before: Annotated[ErrorSummary | None, Doc("with the machine's file")]
    fitted: Annotated[ErrorSummary | None, Doc("after calibration, of the rows it used")]
    left_out: Annotated[ErrorSummary | None, Doc("after calibration, of all other rows")]


class StepComparison(Result):
    """Training steps and their predictions."""

    table: tuple[Mapping[str, str], ...]  # measured steps, as rows of a table of runs
    before: Report  # all rows, predicted with the system file from microbenchmarks
    calibration: Calibration | None = None  # to every other shape; None with a single one, or without scipy
    fitted: Report | None = None  # rows used for the calibration, predicted with the calibrated machine
    left_out: Report | None = None  # all others, likewise

    @property
    def source(self) -> Annotated[str | None, KEY]:
        """Where and when they were measured."""
        return self.table[0]["source"] if self.table else None

    @property
    def rows(self) -> Annotated[list[StepRecord], KEY]:
        """Every step."""
        halves = (("fitted", self.fitted), ("left out", self.left_out))
        after = {step.id: (half, step) for half, report in halves if report for step in report.predictions}
        records = []
        for row, step in zip(self.table, self.before.predictions, strict=True):
            half, calibrated = after.get(step.id, (None, None))
            times = (step.measured_step_seconds, float(row["step_spread"]), step.predicted_step_seconds)
            seconds = calibrated.predicted_step_seconds if calibrated else None
            records.append(StepRecord(step.id, *times, seconds, half, step.skipped))
        return records

    @property
    def shapes(self) -> Annotated[dict[str, ErrorSummary], KEY]:
        """Errors by shape, before calibration."""
        return self.before.by_source

    @property
    def errors(self) -> Annotated[StepErrors, KEY]:
        """Errors in total."""
        reports = (self.before, self.fitted, self.left_out)
        return StepErrors(
            *(next((t for t in report.totals if t.n), None) if report else None for report in reports)
        )

    @property
    def constants(self) -> Annotated[tuple[FittedConstant, ...], KEY]:
        """Constants that the calibration fitted."""
        return self.calibration.constants if self.calibration else ()


@dataclass(frozen=True)
class TrainingJob:
    """Job of timed training steps within a budget [s]; unfinished rows are saved next to the table `output`.

    `ranks` and `threads` are as for `traincast.measure`; `shapes` are trained in place of the default ones.
    """

    output: Path
    budget: float = 180.0
    ranks: int | None = None
    threads: int | None = None
    shapes: tuple[TimedShape, ...] = ()

    @property
    def first(self) -> bool:
        """Whether this process has the results: rank 0, or the parent of the ranks."""
        rank = launched_rank()
        return rank is None or rank.rank == 0

    def check(self, calibrated: Path | None = None, force: bool = False) -> None:
        """Raise InputError with everything that is wrong with the job and its output files."""
        files = dict[Path, Sequence[str]]()
        if self.first:
            files[self.output] = CSV
        if self.first and calibrated:
            files[calibrated] = YAML
        check_job(self.budget, self.ranks, self.threads, files, force)


def measure_steps(
    job: TrainingJob, progress: Callable[[int, int], Any] = lambda done, of: None
) -> tuple[dict[str, str], ...]:
    """Run a job, and save each measured row, so that an interrupted job can be continued.

    Returns the rows of a table of runs, none on ranks other than the first. `progress` is called with the
    number of visits done and their maximum.
    """
    partial = partial_path(job.output)
    measured = {row["id"]: row for row in rows(partial)} if job.first and partial.is_file() else {}

    def on_message(message: dict[str, Any]) -> None:
        if "machine" in message and not same_machine(measured.values(), message["machine"]):
            measured.clear()
        if row := message.get("row"):
            for name, cells in measured.items():  # those of another release have other columns
                measured[name] = {column: cells.get(column, "") for column in row}
            earlier = measured.get(row["id"])
            measured[row["id"]] = faster_visit(earlier, row) if earlier else row
            write_rows(partial, list(measured.values()))
            progress(message["visits"] - message["left"], message["visits"])

    request = {"seconds": job.budget, "rows": list(measured.values()), "shapes": job.shapes}
    train = "traincast.accuracy.machine.training.timed_steps:train_as_rank"
    run_on_all_ranks(train, request, job.ranks, job.threads, on_message)
    return tuple(measured.values())


def partial_path(output: Path) -> Path:
    """Return the path of the unfinished table."""
    return output.with_name(f"{output.stem}.partial{output.suffix}")


def with_system(table: Rows, system: Path, folder: Path | None = None) -> list[dict[str, str]]:
    """Return rows with the system file they ran on, as a path relative to the folder of their table."""
    name = str(system.resolve()) if folder is None else os.path.relpath(system, folder)
    return [dict(row) | {"system": name} for row in table]


def compare_with_predictions(table: Rows, system: Path, calibrated: Path | None = None) -> StepComparison:
    """Predict measured steps with a system file, before and after calibrating it; without scipy only before.

    The calibrated system file is written to `calibrated`.
    """
    before = validate(with_system(table, system))
    shapes = [source_of(row["id"], False) for row in table]
    order = list(dict.fromkeys(shapes))
    halves = [
        [row for row, shape in zip(table, shapes, strict=True) if order.index(shape) % HALF_COUNT == half]
        for half in range(HALF_COUNT)
    ]
    if not all(halves) or find_spec("scipy") is None:
        return StepComparison(tuple(table), before)
    runs = [run for _, run in readable(with_system(halves[0], system)) if isinstance(run, Run)]
    calibration = fitted_to(system, Measured(load_system(system), runs=tuple(runs)))
    with TemporaryDirectory() as folder:
        path = calibrated or Path(folder) / f"{system.stem}.yaml"
        calibration.write(path, force=True)
        fitted, left_out = (validate(with_system(half, path)) for half in halves)
    return StepComparison(tuple(table), before, calibration, fitted, left_out)
