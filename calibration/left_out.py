"""Residuals of the published runs, fitted and left out, and their table in the package."""

import csv
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.accuracy.fit.fit import Fitted
from traincast.accuracy.fit.residuals import group_of
from traincast.accuracy.runs.run import Run
from traincast.core.output_files import atomic_output
from traincast.core.quantities import Floats

TABLE: Final = Path(__file__).with_name("measured") / "left_out.csv"
DIGITS: Final = 5


def _size(run: Run) -> Hashable:
    """Return the hidden size of single-node vTrain runs, on which alone their layer costs depend."""
    return run.model.hidden if run.id.startswith("vtrain-s") else None


def _strategy(run: Run) -> Hashable:
    """Return the tensor-parallel degree, and whether states are sharded in groups, of InternEvo runs."""
    return (run.plan.tp, run.plan.replicas > 1) if run.id.startswith("internevo") else None


WITHOUT: Final[
    dict[str, Callable[[Run], Hashable]]
] = {  # column → group left out together with a run; None: not left out
    "left_out": group_of,
    "without_stack": lambda run: run.stack,
    "without_size": _size,
    "without_strategy": _strategy,
}


def residuals(fitted: Fitted, progress: Callable[[str], Any]) -> dict[str, Floats]:
    """Return log(predicted / measured), shape (runs,), by column; nan where a run is not left out."""
    runs = fitted.measured.runs
    used = fitted.measured.data.weights > 0
    columns = {"fitted": np.where(used, fitted.solution.residuals, np.nan)}
    for column, group in WITHOUT.items():
        groups = [group(run) if is_used else None for run, is_used in zip(runs, used, strict=True)]
        columns[column] = fitted.left_out(groups, progress=partial(_report_column, progress, column))
    return columns


def _report_column(report: Callable[[str], Any], column: str, line: str) -> None:
    """Report a line of progress with its column."""
    report(f"{column}: {line}")


def write(runs: Sequence[Run], columns: dict[str, Floats], path: Path = TABLE) -> None:
    """Write the table: one row per run with a residual."""
    with atomic_output(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "source", "group", *columns])
        for i, run in enumerate(runs):
            values = [values_of_column[i] for values_of_column in columns.values()]
            if not np.isnan(values[0]):
                source, *rest = group_of(run)
                cells = ("" if np.isnan(value) else f"{value:.{DIGITS}f}" for value in values)
                writer.writerow([run.id, source, " / ".join((source, *rest)), *cells])
