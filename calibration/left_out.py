"""Residuals of the published runs, fitted and with constants fitted without them, and the table that the package keeps of them."""

import csv
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.accuracy.fit.fit import Fitted
from traincast.accuracy.fit.residuals import group_of
from traincast.accuracy.runs.run import Run
from traincast.core.output_files import beside
from traincast.core.quantities import Floats

TABLE: Final = Path(__file__).parents[1] / "src" / "traincast" / "catalog" / "measured" / "left_out.csv"
DIGITS: Final = 5


def _size(run: Run) -> Hashable:
    """Single-node runs of vTrain are composed of the costs of a layer, which depend on the hidden size and not on the model."""
    return run.model.hidden if run.id.startswith("vtrain-s") else None


def _strategy(run: Run) -> Hashable:
    """Runs of InternEvo, one model on one accelerator: tensor-parallel degree, and whether states are sharded in groups."""
    return (run.plan.tp, run.plan.replicas > 1) if run.id.startswith("internevo") else None


WITHOUT: Final[dict[str, Callable[[Run], Hashable]]] = {  # column → what is left out together with a run; None: never
    "left_out": group_of,
    "without_stack": lambda run: run.stack,
    "without_size": _size,
    "without_strategy": _strategy,
}


def residuals(done: Fitted, told: Callable[[str], Any]) -> dict[str, Floats]:
    """Logarithm of predicted over measured by column, shape (runs,): fitted, and with something left out; nan where it never is."""
    runs = done.evidence.runs
    touched = done.evidence.data.weights > 0
    found = {"fitted": np.where(touched, done.solution.residuals, np.nan)}
    for column, group in WITHOUT.items():
        groups = [group(run) if ok else None for run, ok in zip(runs, touched, strict=True)]
        found[column] = done.left_out(groups, told=partial(_told, told, column))
    return found


def _told(told: Callable[[str], Any], column: str, line: str) -> None:
    """Pass a line of progress on, with the column it is of."""
    told(f"{column}: {line}")


def write(runs: Sequence[Run], found: dict[str, Floats], path: Path = TABLE) -> None:
    """Write the table: a row for each run that has a residual."""
    with beside(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "source", "group", *found])
        for i, run in enumerate(runs):
            values = [column[i] for column in found.values()]
            if not np.isnan(values[0]):
                source, *rest = group_of(run)
                cells = ("" if np.isnan(value) else f"{value:.{DIGITS}f}" for value in values)
                writer.writerow([run.id, source, " / ".join((source, *rest)), *cells])
