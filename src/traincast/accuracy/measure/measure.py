"""Measure this machine: times by budget, kept as they come in; then its file, its tables, and how well the one tells the other."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.accuracy.fit.fitted_yaml import write_system
from traincast.accuracy.fit.least_squares import least_squares
from traincast.accuracy.measure.device_info import default_ranks
from traincast.accuracy.measure.fit_accelerator import fit_accelerator
from traincast.accuracy.measure.fit_network import fit_tiers
from traincast.accuracy.measure.journal import Journal
from traincast.accuracy.measure.launcher import available_cores, launch, launched_rank
from traincast.accuracy.measure.prediction_errors import KindError, errors_by_family
from traincast.accuracy.measure.process_group import require_torch
from traincast.accuracy.measure.rank_loop import measure_as_rank
from traincast.accuracy.measure.system_yaml import catalogue_name, document
from traincast.accuracy.measure.tables import Row, table_paths, write_tables
from traincast.catalog.load import load_accelerator
from traincast.core.errors import ErrorCollector, InputError, not_whole
from traincast.core.output_files import check_output

MIN_BUDGET_SECONDS: Final = 5.0  # of a budget, in which each family can have a turn [s]
FIT_SECONDS: Final = 2.0  # of a budget, for what follows the measuring [s]
RESERVE_SHARES: Final = (0.03, 0.25)  # share of the budget beside that, and of all it may take
PERCENTILES: Final = (50, 5, 95)  # of samples: the median, and the ends of a figure's interval
BUDGET: Final = 120.0  # [s]
Progress = Callable[[float, float], Any]


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredMachine:
    """A machine as it was measured.

    Parameters
    ----------
    about : mapping
        What it says of itself.
    rows : tuple of Row
        What was timed.
    problems : mapping of str to str
        What did not work, and why.
    document : mapping
        Content of the machine file.
    errors : tuple of KindError
        How well the engine's formulas tell the rows with that file.
    files : tuple of Path
        What was written, the machine file first.
    """

    about: Mapping[str, Any]
    rows: tuple[Row, ...]
    problems: Mapping[str, str]
    document: Mapping[str, Any]
    errors: tuple[KindError, ...]
    files: tuple[Path, ...]

    def __repr__(self) -> str:
        return f"<{self.document['title']}: {len(self.rows)} rows>"

    @property
    def spread(self) -> dict[str, float]:
        """By family the median width of the middle half of the samples, relative to their median."""
        families = dict.fromkeys(row.task.family for row in self.rows)
        widths = {one: [row.width for row in self.rows if row.task.family == one] for one in families}
        return {str(family): float(np.median(some)) for family, some in widths.items()}

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "machine": dict(self.about),
            "rows": dict(Counter(row.task.family for row in self.rows)),
            "spread": self.spread,
            "errors": [one.to_dict() for one in self.errors],
            "problems": dict(self.problems),
            "files": [str(one) for one in self.files],
        }


def measure(
    output: str | Path,
    *,
    budget: float = BUDGET,
    ranks: int | None = None,
    threads: int | None = None,
    force: bool = False,
    told: Progress | None = None,
) -> MeasuredMachine | None:
    """Measure this machine with the PyTorch that is installed, and write what it is.

    Parameters
    ----------
    output : str or Path
        The machine file, .yaml; tables of what was timed are written beside it.
    budget : float
        Time for all of it [s].
    ranks : int, optional
        Processes on this computer: as many as it has GPUs without it, or 2 on a CPU of several cores. Not where a launcher
        (torchrun, srun, mpirun) has started the ranks already.
    threads : int, optional
        Threads of a rank on a CPU; the cores shared out without it.
    force : bool
        Whether files that are there are replaced.
    told : callable, optional
        Called with the seconds that are over and those of the budget.

    Returns
    -------
    MeasuredMachine or None
        What was found; None on ranks other than the first.

    Raises
    ------
    InputError
        If an argument cannot be used, PyTorch is not installed, or the budget was too short.
    """
    begin, path = time.time(), Path(output)
    check_arguments(path, budget, ranks, threads, force)
    own = launched_rank()
    if own is not None and own.rank > 0:
        measure_as_rank({"until": 0, "threads": threads or 0, "done": [], "identity": ""}, lambda _: None)
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = Journal(path.with_name(f"{path.stem}.partial.jsonl"))
    seconds = budget - min(FIT_SECONDS + RESERVE_SHARES[0] * budget, RESERVE_SHARES[1] * budget)
    request = {"until": begin + seconds, "identity": kept.identity, "done": list(kept.visits)}

    def take(message: dict[str, Any]) -> None:
        kept.take(message)
        if told is not None and "left" in message:
            told(seconds - message["left"], seconds)

    if own is not None:
        measure_as_rank(request | {"threads": threads or 0}, take)
    else:
        n = ranks or default_ranks()
        each = threads or max(available_cores() // n, 1)
        launch("traincast.accuracy.measure.worker", request | {"threads": each}, n, each, take)
    result = fit_and_write(kept.about, kept.rows(), kept.problems, path)
    kept.discard()
    return result


def check_arguments(path: Path, budget: float, ranks: int | None, threads: int | None, force: bool) -> None:
    """Refuse arguments that cannot be used, all at once."""
    mistakes = ErrorCollector("measure")
    mistakes.of(check_output, path, force, (".yaml", ".yml"))
    for table in table_paths(path).values():
        mistakes.of(check_output, table, force, (".csv",))
    collect_job_errors(budget, ranks, threads, mistakes)
    mistakes.tell()


def collect_job_errors(budget: float, ranks: int | None, threads: int | None, mistakes: ErrorCollector) -> None:
    """Note what is wrong with a job of ranks."""
    wrong = (
        []
        if MIN_BUDGET_SECONDS <= budget < float("inf")
        else [f"budget = {budget:g}: must be at least {MIN_BUDGET_SECONDS:g} seconds"]
    )
    for name, value in (("ranks", ranks), ("threads", threads)):
        wrong += [] if value is None else not_whole(name, value)
    own = launched_rank()
    if own is not None and ranks is not None:
        wrong.append(f"ranks = {ranks}: {own.launcher} has started {own.size} already; leave it out")
    if wrong:
        mistakes.errors.append(InputError("measure", wrong))
    mistakes.of(require_torch)
    mistakes.of(least_squares, "measure")


def fit_and_write(about: Mapping[str, Any], rows: Sequence[Row], problems: Mapping[str, str], path: Path) -> MeasuredMachine:
    """The machine that rows tell, its file and its tables written."""
    day = date.today().isoformat()
    name = catalogue_name(str(about["device"]))
    known = _data_sheet_figures(name) if name else {}
    spread = [fit_accelerator(about, rows, known, percent) for percent in PERCENTILES]
    network = [fit_tiers(one) for one in spread]
    file = document(path.stem, spread, list(zip(*network, strict=True)), day)
    write_system(path, file)
    tables = write_tables(path, rows, about, day)
    return MeasuredMachine(about, tuple(rows), problems, file, errors_by_family(spread[0], network[0]), (path, *tables))


def _data_sheet_figures(name: str) -> dict[str, float]:
    """Figures of an accelerator of the catalogue."""
    chip = load_accelerator(name)
    return {one: float(value) for one, value in vars(chip).items() if isinstance(value, int | float)}
