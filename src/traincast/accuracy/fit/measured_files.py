"""Files of measurements on a system: training runs, collectives, matrix products."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from traincast.accuracy.fit.benchmark_residuals import KINDS
from traincast.accuracy.fit.parameters import accelerator_name
from traincast.accuracy.logs import (
    GIVEN,
    Collective,
    CollectiveRows,
    Gemm,
    GemmRows,
    Kind,
    TrainingRows,
    holds,
    not_used,
)
from traincast.accuracy.logs import read as read_file
from traincast.accuracy.runs.cells import Unreadable
from traincast.accuracy.runs.run import Run
from traincast.accuracy.runs.run import read as read_run
from traincast.catalog.load import accelerator_called, load_system
from traincast.core.errors import ErrorCollector, InputError
from traincast.core.system import System
from traincast.core.units import count_of

GIVEN_AS: Final[dict[Kind, str]] = {"runs": "--runs or --log", "collectives": "--nccl", "products": "--gemm"}
Files: TypeAlias = Sequence[str | Path]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements on a system.

    Parameters
    ----------
    system : System
        The most similar system of the catalogue, or of a file.
    runs : tuple of Run
        Training runs on it.
    collectives, products : tuple of Collective and of Gemm
        Timed collectives and matrix products.
    left_out : tuple of str
        Measurements not used, and why.
    """

    system: System
    runs: tuple[Run, ...] = ()
    collectives: tuple[Collective, ...] = ()
    products: tuple[Gemm, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, int]:
        """Number of measurements by kind."""
        return {"runs": len(self.runs), "collectives": len(self.collectives), "products": len(self.products)}

    def counts(self) -> str:
        """Return the number of measurements by kind, in words."""
        return ", ".join(
            count_of(count, kind.removesuffix("s")) for kind, count in self.numbers.items() if count
        )


def read(
    system: str | Path,
    runs: Files = (),
    logs: Files = (),
    nccl: Files = (),
    gemm: Files = (),
    config: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
) -> Measured:
    """Read the measurements of a system from files; arguments and errors as for `calibrate`."""
    mistakes = ErrorCollector("calibrate")
    machine = mistakes.catch(load_system, system)
    extra = {"gpu": name} if machine and (name := accelerator_called(machine.accelerator.name)) else {}
    files_by_kind: list[tuple[Kind, Files]] = [
        ("runs", (*runs, *logs)),
        ("collectives", nccl),
        ("products", gemm),
    ]
    mistakes.catch(_check_given, given or {}, [kind for kind, files in files_by_kind if files])
    contents = []
    for kind, files in files_by_kind:
        options = {name: value for name, value in (given or {}).items() if name in GIVEN[kind]}
        options = {"config": config, **extra, **options} if kind == "runs" else options
        contents += [mistakes.catch(_read_kind, file, kind, options) for file in files]
    machine = mistakes.require(machine)
    measured = _measured(machine, [rows for rows in contents if rows is not None])
    if not (measured.runs or measured.collectives or measured.products):
        reason = (
            f" ({'; '.join(measured.left_out[:5])})"
            if measured.left_out
            else ": give runs, logs, nccl or gemm"
        )
        raise InputError("calibrate", [f"nothing was measured on {machine.name}{reason}"])
    return measured


def _check_given(given: Mapping[str, Any], kinds: Sequence[Kind]) -> None:
    """Raise for given values that no kind of file uses, if there are files."""
    if kinds and (wrong := not_used(given, kinds)):
        raise InputError("what is given", wrong)


def _read_kind(
    file: str | Path, kind: Kind, options: Mapping[str, Any]
) -> TrainingRows | CollectiveRows | GemmRows:
    """Read the measurements of a file; raise if they are of another kind."""
    if (other := holds(file)) != kind:
        raise InputError(str(file), [f"holds {other}, not {kind}: give it as {GIVEN_AS[other]}"])
    return read_file(file, **options)


def _measured(system: System, files: Sequence[TrainingRows | CollectiveRows | GemmRows]) -> Measured:
    """Collect the measurements of a system from the contents of files."""
    runs: list[Run] = []
    collectives: list[Collective] = []
    products: list[Gemm] = []
    left_out: list[str] = []
    for rows in files:
        left_out += [f"{rows.file}: {reason}" for reason in rows.left_out]
        match rows:
            case TrainingRows():
                table_runs = [_run(row, system) for row in rows.rows]
                runs += [run for run in table_runs if isinstance(run, Run)]
                left_out += [
                    f"{rows.file}: {reason}"
                    for reason in table_runs
                    if isinstance(reason, str) and reason not in rows.left_out
                ]
            case CollectiveRows():
                collectives += [
                    row
                    for row in rows.rows
                    if row.op in KINDS and row.ranks > 1 and not _on_other_accelerator(row, system)
                ]
                left_out += [f"{rows.file}: {reason}" for reason in _other_accelerators(rows.rows, system)]
            case GemmRows():
                products += [row for row in rows.rows if not _on_other_accelerator(row, system)]
                left_out += [f"{rows.file}: {reason}" for reason in _other_accelerators(rows.rows, system)]
    return Measured(system, tuple(runs), tuple(collectives), tuple(products), tuple(left_out))


def _run(row: Mapping[str, str], system: System) -> Run | str:
    """Return a run on the system, or the reason why a row is none."""
    try:
        run = read_run(row)
    except Unreadable as reason:
        return f"{row['id']}: {reason}"
    if run.step_seconds is None:
        return f"{row['id']}: no step time"
    run_accelerator, system_accelerator = accelerator_name(run.system), accelerator_name(system)
    return (
        replace(run, system=system)
        if run_accelerator == system_accelerator
        else f"{row['id']}: ran on {run_accelerator}, and {system.name} has {system_accelerator}"
    )


def _on_other_accelerator(row: Collective | Gemm, system: System) -> bool:
    """Return whether a measurement is known to be of another kind of accelerator."""
    row_accelerator, system_accelerator = (
        accelerator_called(row.gpu),
        accelerator_called(system.accelerator.name),
    )
    return (
        row_accelerator is not None
        and system_accelerator is not None
        and row_accelerator.split("-")[0] != system_accelerator.split("-")[0]
    )


def _other_accelerators(rows: Sequence[Collective | Gemm], system: System) -> list[str]:
    """Return a sentence for each other kind of accelerator that was measured."""
    names = dict.fromkeys(row.gpu for row in rows if _on_other_accelerator(row, system))
    return [f"ran on {name}, and {system.name} has {accelerator_name(system)}" for name in names]
