"""Measurement of this machine: benchmarks within a budget, then system file, tables, prediction errors."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from traincast.accuracy.fit.fitted_yaml import write_system
from traincast.accuracy.machine.device_info import MachineDescription
from traincast.accuracy.machine.fit_machine import KindError, errors_by_family, fit_machine
from traincast.accuracy.machine.launcher import launched_rank, run_on_all_ranks
from traincast.accuracy.machine.system_yaml import document
from traincast.accuracy.machine.tables import Journal, Row, table_paths, write_tables
from traincast.catalog import accelerator_called, load_accelerator
from traincast.core import KEY, Doc, ErrorCollector, MissingExtra, Result, check_output, whole_number_problems

MIN_BUDGET_SECONDS: Final = 5.0  # enough for one task of each family
FIT_SECONDS: Final = 2.0  # reserved for the fit
RESERVE_SHARES: Final = (0.03, 0.25)  # of the budget: reserved in addition, and at most in all
PERCENTILES: Final = (50, 5, 95)  # of samples [%]: the median, and the ends of a figure's interval
DEFAULT_BUDGET_SECONDS: Final = 120.0
YAML: Final[Sequence[str]] = (".yaml", ".yml")  # endings of machine files
CSV: Final[Sequence[str]] = (".csv",)  # of tables
TORCH_MISSING: Final = (
    "needs PyTorch, which traincast does not bring: "
    "pip install torch, or the build that pytorch.org names for your machine"
)
Progress = Callable[[float, float], Any]


class MeasuredMachine(Result, eq=False, repr=False):
    """Result of measuring a machine."""

    about: Mapping[str, Any]  # description of the machine
    rows: tuple[Row, ...]  # benchmarks that were timed
    problems: Annotated[Mapping[str, str], Doc("what did not work, and why", place=2)]
    document: Mapping[str, Any]  # content of the system file
    errors: Annotated[
        tuple[KindError, ...], Doc("prediction errors of the machine file on its own tables", place=1)
    ]
    files: tuple[Path, ...]  # that were written, the system file first

    def __repr__(self) -> str:
        return f"<{self.document['title']}: {len(self.rows)} rows>"

    @property
    def machine(self) -> Annotated[MachineDescription, KEY]:
        """What the machine says of itself."""
        return MachineDescription(**self.about)

    @property
    def row_counts(self) -> Annotated[Mapping[str, int], Doc(key="rows")]:
        """Number of things timed, by family."""
        return Counter(row.task.family for row in self.rows)

    @property
    def spread(self) -> Annotated[dict[str, float], KEY]:
        """Interquartile range of the samples relative to their median, by family: median over rows."""
        widths: dict[str, list[float]] = {}
        for row in self.rows:
            widths.setdefault(row.task.family, []).append(row.width)
        return {family: float(np.median(values)) for family, values in widths.items()}

    @property
    def file_names(self) -> Annotated[list[str], Doc(key="files", place=3)]:
        """Files written, the machine file first."""
        return [str(path) for path in self.files]


def measure(
    output: str | Path,
    *,
    budget: float = DEFAULT_BUDGET_SECONDS,
    ranks: int | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> MeasuredMachine | None:
    """Measure this machine with the installed PyTorch, and write a system file.

    Parameters
    ----------
    output : str or Path
        The system file, .yaml; tables of the timings are written next to it.
    budget : float
        Time for everything [s].
    ranks : int, optional
        Processes on this computer; default: one per GPU, or 2 on a CPU with several cores. Not allowed under
        a launcher (torchrun, srun, mpirun), which has started the ranks already.
    threads : int, optional
        Threads of a rank on a CPU; default: the cores divided by the ranks.
    force : bool
        Whether existing files are overwritten.
    progress : callable, optional
        Called with the seconds elapsed and the seconds of the budget.

    Returns
    -------
    MeasuredMachine or None
        The result; None on ranks other than 0.

    Raises
    ------
    InputError
        If an argument is not allowed, PyTorch is not installed, or the budget was too short.
    """
    start = time.time()
    path = Path(output)
    check_arguments(path, budget, ranks, threads, force)
    journal = Journal(path.with_name(f"{path.stem}.partial.jsonl"))
    seconds = budget - min(FIT_SECONDS + RESERVE_SHARES[0] * budget, RESERVE_SHARES[1] * budget)
    request = {"until": start + seconds, "identity": journal.identity, "done": list(journal.visits)}

    def on_message(message: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        journal.append(message)
        if progress is not None and "left" in message:
            progress(seconds - message["left"], seconds)

    job = "traincast.accuracy.machine.benchmarks:measure_as_rank"
    run_on_all_ranks(job, request, ranks, threads, on_message)
    if (rank := launched_rank()) is not None and rank.rank > 0:
        return None
    result = fit_and_write(journal.about, journal.rows(), journal.problems, path)
    journal.path.unlink(missing_ok=True)
    return result


def check_arguments(path: Path, budget: float, ranks: int | None, threads: int | None, force: bool) -> None:
    """Raise InputError with everything that is wrong with the arguments."""
    tables = dict.fromkeys(table_paths(path).values(), CSV)
    check_job(budget, ranks, threads, {path: YAML} | tables, force)


def check_job(
    budget: float, ranks: int | None, threads: int | None, files: Mapping[Path, Sequence[str]], force: bool
) -> None:
    """Raise InputError with everything that is wrong with a job, its files, PyTorch and scipy included."""
    errors = ErrorCollector("measure")
    for path, endings in files.items():
        errors.catch(check_output, path, force, endings)
    problems = []
    if not MIN_BUDGET_SECONDS <= budget < float("inf"):
        problems.append(f"budget = {budget:g}: must be at least {MIN_BUDGET_SECONDS:g} seconds")
    for name, value in (("ranks", ranks), ("threads", threads)):
        problems += [] if value is None else whole_number_problems(name, value)
    rank = launched_rank()
    if rank is not None and ranks is not None:
        problems.append(f"ranks = {ranks}: {rank.launcher} has started {rank.size} already; leave it out")
    if find_spec("torch") is None:
        problems.append(TORCH_MISSING)
    if find_spec("scipy") is None:
        problems.append(str(MissingExtra.from_import_error(ImportError(name="scipy"))))
    errors.add(problems)
    errors.raise_any()


def fit_and_write(
    about: Mapping[str, object], rows: Sequence[Row], problems: Mapping[str, str], path: Path
) -> MeasuredMachine:
    """Fit the machine to rows, and write its system file and tables."""
    day = date.today().isoformat()
    name = accelerator_called(str(about["device"]))
    known = {
        field: float(value)
        for field, value in (vars(load_accelerator(name)) if name else {}).items()
        if isinstance(value, int | float)
    }
    fits = [fit_machine(about, rows, known, percent) for percent in PERCENTILES]
    content = document(path.stem, fits, day)
    write_system(path, content)
    tables = write_tables(path, rows, about, day)
    return MeasuredMachine(about, tuple(rows), problems, content, errors_by_family(fits[0]), (path, *tables))
