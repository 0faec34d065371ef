"""Training steps as the judge: measured, predicted, and predicted again with the machine calibrated to half of the shapes."""

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
from traincast.core.output_files import beside, check_output

Rows = Sequence[Mapping[str, str]]
WORKER: Final = "traincast.accuracy.measure.worker"
BUDGET: Final = 180.0  # [s]
HALF_COUNT: Final = 2  # shapes that are fitted and left out in turn


@dataclass(frozen=True)
class Judgement:
    """Predictions of measured steps.

    Parameters
    ----------
    rows : tuple of mapping of str to str
        What was measured, as rows of a table of runs.
    before : Report
        All rows, predicted with the machine as its microbenchmarks say it is.
    calibration : Calibration or None
        The machine calibrated to the steps of every other shape; None where there is one shape only, or no scipy.
    fitted, left_out : Report or None
        Rows it was calibrated to and all others, predicted with it.
    """

    rows: tuple[Mapping[str, str], ...]
    before: Report
    calibration: Calibration | None = None
    fitted: Report | None = None
    left_out: Report | None = None

    @property
    def errors(self) -> dict[str, ErrorSummary | None]:
        """Errors of all rows before calibration, and of either half after it."""
        reports = {"before": self.before, "fitted": self.fitted, "left_out": self.left_out}
        return {name: next((one for one in report.totals if one.n), None) if report else None for name, report in reports.items()}

    @property
    def calibrated(self) -> dict[str, tuple[str, Prediction]]:
        """Predictions after calibration by id, and whether the row was fitted or left out."""
        halves = {"fitted": self.fitted, "left out": self.left_out}
        return {one.id: (half, one) for half, report in halves.items() if report for one in report.predictions}

    def to_dict(self) -> dict[str, Any]:
        """For machines: every row with its predictions, errors by shape and in all, and what was fitted."""
        after = self.calibrated
        constants = () if self.calibration is None else self.calibration.to_dict()["constants"]
        return {
            "source": self.rows[0]["source"] if self.rows else None,
            "rows": [
                {
                    "id": one.id,
                    "measured_step_seconds": one.measured_step_seconds,
                    "spread": float(cells["step_spread"]),
                    "predicted_step_seconds": one.predicted_step_seconds,
                    "calibrated_step_seconds": after[one.id][1].predicted_step_seconds if one.id in after else None,
                    "half": after[one.id][0] if one.id in after else None,
                    "skipped": one.skipped,
                }
                for cells, one in zip(self.rows, self.before.predictions, strict=True)
            ],
            "shapes": {one.source: figures_of(one) for one in self.before.summaries},
            "errors": {name: None if one is None else figures_of(one) for name, one in self.errors.items()},
            "constants": list(constants),
        }


def figures_of(one: ErrorSummary) -> dict[str, Any]:
    """The figures of a summary."""
    return {name: value for name, value in asdict(one).items() if name != "source"}


@dataclass(frozen=True)
class TrainingJob:
    """What is to be trained.

    Parameters
    ----------
    output : Path
        Where the table of runs will stand; beside it stands what is measured so far.
    budget : float
        Time for all of it [s].
    ranks, threads : int, optional
        Processes on this computer, and threads of each; as for `traincast.measure`.
    shapes : tuple of Shape
        What is trained in place of the usual shapes.
    """

    output: Path
    budget: float = BUDGET
    ranks: int | None = None
    threads: int | None = None
    shapes: tuple[Shape, ...] = ()

    @property
    def first(self) -> bool:
        """Whether this process tells what the ranks found."""
        own = launched_rank()
        return own is None or own.rank == 0

    def check(self, calibrated: Path | None = None, force: bool = False) -> None:
        """Refuse what cannot be used, all of it at once.

        Raises
        ------
        InputError
            If a number is not allowed, a file is there already, or PyTorch is not installed.
        """
        mistakes = ErrorCollector("measure")
        collect_job_errors(self.budget, self.ranks, self.threads, mistakes)
        if self.first:
            mistakes.of(check_output, self.output, force, (".csv",))
            if calibrated is not None:
                mistakes.of(check_output, calibrated, force, (".yaml", ".yml"))
        mistakes.tell()


def measured_steps(job: TrainingJob, told: Callable[[int, int], Any] = lambda done, of: None) -> tuple[dict[str, str], ...]:
    """Train what a job asks for, and keep what is measured while it goes on, so that it can be continued.

    Parameters
    ----------
    job : TrainingJob
        The job.
    told : callable
        Called with the visits that are over and all that may be.

    Returns
    -------
    tuple of dict of str to str
        Rows of a table of runs; none on ranks other than the first.
    """
    partial, own = partial_of(job.output), launched_rank()
    kept = {one["id"]: one for one in rows(partial)} if job.first and partial.is_file() else {}

    def heard(message: dict[str, Any]) -> None:
        if "machine" in message and not same_machine(kept.values(), message["machine"]):
            kept.clear()
        if "row" in message:
            own = message["row"]
            kept[own["id"]] = faster_visit(kept[own["id"]], own) if own["id"] in kept else own
            write_rows(partial, list(kept.values()))
            told(message["visits"] - message["left"], message["visits"])

    request = {"job": "steps", "seconds": job.budget, "kept": list(kept.values()), "shapes": [list(one) for one in job.shapes]}
    if own is not None:
        train_as_rank(request | {"threads": job.threads or 0}, heard)
    else:
        n = job.ranks or default_ranks()
        each = job.threads or max(available_cores() // n, 1)
        launch(WORKER, request | {"threads": each}, n, each, heard)
    return tuple(kept.values())


def partial_of(output: Path) -> Path:
    """Where the table grows before it is whole."""
    return output.with_name(f"{output.stem}.partial{output.suffix}")


def write_rows(path: Path, table: Rows) -> None:
    """Write rows as a table of runs."""
    with beside(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)


def of_system(table: Rows, system: Path, folder: Path | None = None) -> list[dict[str, str]]:
    """Rows that name the file of the machine they ran on, as seen from the folder of their table."""
    name = str(system.resolve()) if folder is None else os.path.relpath(system, folder)
    return [dict(one) | {"system": name} for one in table]


def judged(table: Rows, system: Path, calibrated: Path | None = None) -> Judgement:
    """Predict measured steps before and after calibration.

    Parameters
    ----------
    table : sequence of mapping of str to str
        Rows of the grid.
    system : Path
        File of the machine they ran on.
    calibrated : Path, optional
        Where the calibrated machine is written.

    Returns
    -------
    Judgement
        Without calibration where scipy is missing.

    Raises
    ------
    InputError
        If the machine's file cannot be read.
    """
    before = validate(of_system(table, system))
    shapes = list(dict.fromkeys(source_of(one["id"], False) for one in table))
    halves = [_rows_of_shapes(table, shapes[half::HALF_COUNT]) for half in range(HALF_COUNT)]
    if not all(halves):
        return Judgement(tuple(table), before)
    if find_spec("scipy") is None:
        return Judgement(tuple(table), before)
    runs = [run for _, run in readable(of_system(halves[0], system)) if isinstance(run, Run)]
    calibration = fitted_to(system, Measured(load_system(system), runs=tuple(runs)))
    with TemporaryDirectory() as folder:
        path = calibrated or Path(folder) / f"{system.stem}.yaml"
        calibration.write(path, force=True)
        fitted, left_out = (validate(of_system(half, path)) for half in halves)
    return Judgement(tuple(table), before, calibration, fitted, left_out)


def _rows_of_shapes(table: Rows, shapes: Iterable[str]) -> list[Mapping[str, str]]:
    """Rows of some shapes."""
    wanted = set(shapes)
    return [one for one in table if source_of(one["id"], False) in wanted]
