"""Measured training runs: a table with one row for each configuration, read into a model, a machine and a plan.

A row that cannot be read gives the reason. Stated values are taken as they are; open ones are filled in by rules that hold for all
rows (docs/validation.md), and the run lists what was assumed.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from traincast.accuracy.runs.machine import FILES, MACHINES, machine
from traincast.accuracy.runs.measured_time import RATES, check_measured, reported, seconds
from traincast.accuracy.runs.model import shape
from traincast.accuracy.runs.plan import degrees, plan
from traincast.accuracy.runs.row import ROW, Cells, Unreadable
from traincast.accuracy.runs.software import STACKS, software
from traincast.accuracy.runs.unmodelled import note_unmodelled
from traincast.accuracy.runs.unstated import filled
from traincast.core.errors import InputError, TraincastError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.system import System
from traincast.core.units import GIB
from traincast.step.memory import Reported

__all__ = ["MACHINES", "NEEDED", "STACKS", "Run", "Unreadable", "read", "readable", "repeated", "rows"]

NEEDED: Final = (
    "id",
    "layers",
    "hidden",
    "heads",
    "seq",
    "mlp",
    "gpu",
    "gpus",
    "precision",
    "tp",
    "pp",
    "gbs",
    "step_seconds",
)
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A measured training configuration.

    Parameters
    ----------
    id, source : str
        Name of the row, and its publication.
    stack : str
        Software stack of the catalogue that ran it, or ``"calibrated"`` where none matches.
    model, system, plan : Model, System, Plan
        Model, machine and plan of the run.
    gbs : int
        Global batch [sequences].
    step_seconds : float or None
        Measured time of a step [s]; None where only memory is measured.
    memory_bytes : float or None
        Measured memory of a rank [byte].
    reported : {"allocated", "reserved", "device"}
        Kind of measured memory: tensors, reserved by the allocator, or all in use on the device.
    assumed : tuple of str
        Columns that the row leaves open and a rule filled in.
    """

    id: str
    source: str
    stack: str
    model: Model
    system: System
    plan: Plan
    gbs: int
    step_seconds: float | None
    memory_bytes: float | None
    reported: Reported = "device"
    assumed: tuple[str, ...] = ()


def rows(path: str | Path | None = None) -> list[dict[str, str]]:
    """Read the rows of a table of runs; the bundled ones without a path.

    Parameters
    ----------
    path : str or Path, optional
        A CSV file with the columns of the bundled table; optional ones may be missing. A system file named in the column
        `system` is relative to the folder of the table.

    Raises
    ------
    InputError
        If it cannot be read, or columns are missing or repeated.
    """
    file = (
        files("traincast").joinpath("catalog", "measured", "training_runs.csv")
        if path is None
        else Path(path)
    )
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:  # type: ignore[call-overload]
            first = opened.readline()
            opened.seek(0)
            reader = csv.DictReader(opened, restval="", delimiter=max(",;\t", key=first.count))
            header, table_rows = list(reader.fieldnames or ()), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(str(path), [f"cannot be read as a table of runs ({reason})"]) from None
    if repetitions := repeated(header):
        raise InputError(str(path), repetitions)
    missing = [name for name in NEEDED if not table_rows or name not in table_rows[0]]
    if missing:
        raise InputError(
            str(path), [f"column {name}: missing" for name in missing] if table_rows else ["holds no run"]
        )
    return (
        table_rows
        if path is None
        else [_numbered_row(row, number, Path(path).parent) for number, row in enumerate(table_rows, start=2)]
    )


def repeated(header: Iterable[str]) -> list[str]:
    """Return a problem for each name that occurs more than once among columns."""
    counts = Counter(name.strip() for name in header)
    return [
        f"column {name}: stands there {count} times; keep one"
        for name, count in counts.items()
        if name and count > 1
    ]


def _numbered_row(row: dict[str, str], number: int, folder: Path) -> dict[str, str]:
    """Return a row with its number, which is its id where it has none, and the full path of its system file."""
    placed = {ROW: str(number)} | row
    named = row.get("system") or ""
    if named.lower().endswith(FILES):
        placed["system"] = str(folder / named)
    return placed if (row.get("id") or "").strip() else placed | {"id": f"row {number}"}


def read(row: Row) -> Run:
    """Read the run of a row.

    Parameters
    ----------
    row : mapping of str to str
        A row of the table.

    Raises
    ------
    Unreadable
        If something is missing or cannot be represented; the message lists all problems.
    """
    cells = Cells(row)
    try:
        return _run(cells)
    except TraincastError as error:
        cells.problem(" ".join(str(error).split()))
    raise Unreadable("; ".join(cells.problems))


def _run(cells: Cells) -> Run:
    """Build the run of a row; problems are noted with the cells and raised together."""
    note_unmodelled(cells)
    cells.done()  # no other cell could make it readable
    stack, system, sizes = software(cells), machine(cells), shape(cells)
    arguments = plan(cells, degrees(cells, sizes["layers"]), sizes, stack)
    gbs, memory, kind = cells.positive("gbs"), cells.number("memory_gb_published"), reported(cells)
    check_measured(cells)
    if memory is None and not any(cells.number(name) for name in RATES):
        cells.problem("no step time")
    cells.done()
    assert system is not None  # else there was a problem
    model = Model(**sizes)
    measured = seconds(cells, model, system, gbs)
    cells.done()
    if measured is None and memory is None:
        cells.problem("no step time")
    cells.done()
    return Run(
        id=cells.text("id"),
        source=cells.text("source"),
        stack=stack,
        model=model,
        system=system,
        plan=filled(cells, arguments, model, system, gbs, stack),
        gbs=gbs,
        step_seconds=measured,
        memory_bytes=None if memory is None else memory * GIB,  # frameworks report GiB and write GB
        reported=kind,
        assumed=tuple(cells.assumed),
    )


def readable(table: Iterable[Mapping[str, str]]) -> Iterator[tuple[Mapping[str, str], Run | str]]:
    """Yield every row with its run, or with the reason why it has none."""
    for row in table:
        try:
            yield row, read(row)
        except Unreadable as reason:
            yield row, str(reason)
