"""What files say was measured on a system: runs of training, collectives, matrix products."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from traincast.accuracy.fit.benchmark_residuals import KINDS
from traincast.accuracy.fit.parameters import accelerator_name
from traincast.accuracy.logs import GIVEN, Collective, CollectiveRows, Gemm, GemmRows, Kind, TrainingRows, holds, not_used
from traincast.accuracy.logs import read as read_file
from traincast.accuracy.logs.accelerator_names import accelerator as device
from traincast.accuracy.runs.run import MACHINES, Run, Unreadable
from traincast.accuracy.runs.run import read as read_run
from traincast.catalog.load import load_system
from traincast.core.errors import ErrorCollector, InputError
from traincast.core.system import System
from traincast.core.units import many

GIVEN_AS: Final[dict[Kind, str]] = {"runs": "--runs or --log", "collectives": "--nccl", "products": "--gemm"}
Files: TypeAlias = Sequence[str | Path]


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured on a system.

    Parameters
    ----------
    system : System
        The system of the catalogue, or of a file, that is most like it.
    runs : tuple of Run
        Training runs on it.
    collectives, products : tuple of Collective and of Gemm
        Timed collectives and matrix products.
    left_out : tuple of str
        What was not used, and why.
    """

    system: System
    runs: tuple[Run, ...] = ()
    collectives: tuple[Collective, ...] = ()
    products: tuple[Gemm, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, int]:
        """How many of each."""
        return {"runs": len(self.runs), "collectives": len(self.collectives), "products": len(self.products)}

    def counts(self) -> str:
        """How many of each, in words."""
        return ", ".join(many(count, what.removesuffix("s")) for what, count in self.numbers.items() if count)


def read(
    system: str | Path,
    runs: Files = (),
    logs: Files = (),
    nccl: Files = (),
    gemm: Files = (),
    config: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
) -> Measured:
    """What files say of a system; arguments and errors as for `calibrate`."""
    mistakes = ErrorCollector("calibrate")
    machine = mistakes.catch(load_system, system)
    extra = {"gpu": name} if machine and (name := _table_name(machine)) else {}
    asked: list[tuple[Kind, Files]] = [("runs", (*runs, *logs)), ("collectives", nccl), ("products", gemm)]
    mistakes.catch(_all_used, given or {}, [kind for kind, files in asked if files])
    found = []
    for kind, files in asked:
        more = {name: value for name, value in (given or {}).items() if name in GIVEN[kind]}
        more = {"config": config, **extra, **more} if kind == "runs" else more
        found += [mistakes.catch(_of_kind, file, kind, more) for file in files]
    machine = mistakes.require(machine)
    measured = _measured(machine, [one for one in found if one is not None])
    if not (measured.runs or measured.collectives or measured.products):
        why = f" ({'; '.join(measured.left_out[:5])})" if measured.left_out else ": give runs, logs, nccl or gemm"
        raise InputError("calibrate", [f"nothing was measured on {machine.name}{why}"])
    return measured


def _all_used(given: Mapping[str, Any], kinds: Sequence[Kind]) -> None:
    """Refuse what is given and files of no kind use, if there are files."""
    if kinds and (wrong := not_used(given, kinds)):
        raise InputError("what is given", wrong)


def _of_kind(file: str | Path, kind: Kind, more: Mapping[str, Any]) -> TrainingRows | CollectiveRows | GemmRows:
    """Measurements of a file that is to hold those of a kind."""
    if (other := holds(file)) != kind:
        raise InputError(str(file), [f"holds {other}, not {kind}: give it as {GIVEN_AS[other]}"])
    return read_file(file, **more)


def _table_name(system: System) -> str | None:
    """What a table of runs calls the accelerator of a system."""
    own = accelerator_name(system)
    return next((gpu for gpu, _, name in MACHINES if accelerator_name(load_system(name)) == own), None)


def _measured(system: System, files: Sequence[TrainingRows | CollectiveRows | GemmRows]) -> Measured:
    """What files say of a system."""
    runs: list[Run] = []
    moved: list[Collective] = []
    multiplied: list[Gemm] = []
    left_out: list[str] = []
    for rows in files:
        left_out += [f"{rows.file}: {one}" for one in rows.left_out]
        match rows:
            case TrainingRows():
                found = [_run(row, system) for row in rows.rows]
                runs += [one for one in found if isinstance(one, Run)]
                left_out += [f"{rows.file}: {one}" for one in found if isinstance(one, str) and one not in rows.left_out]
            case CollectiveRows():
                moved += [one for one in rows.rows if one.op in KINDS and one.ranks > 1 and not _elsewhere(one, system)]
                left_out += [f"{rows.file}: {one}" for one in _others(rows.rows, system)]
            case GemmRows():
                multiplied += [one for one in rows.rows if not _elsewhere(one, system)]
                left_out += [f"{rows.file}: {one}" for one in _others(rows.rows, system)]
    return Measured(system, tuple(runs), tuple(moved), tuple(multiplied), tuple(left_out))


def _run(row: Mapping[str, str], system: System) -> Run | str:
    """A run on the system, or why it is none."""
    try:
        run = read_run(row)
    except Unreadable as reason:
        return f"{row['id']}: {reason}"
    if run.step_seconds is None:
        return f"{row['id']}: no step time"
    ran, own = accelerator_name(run.system), accelerator_name(system)
    return replace(run, system=system) if ran == own else f"{row['id']}: ran on {ran}, and {system.name} has {own}"


def _elsewhere(one: Collective | Gemm, system: System) -> bool:
    """Whether something ran on accelerators of another kind, as far as is known."""
    ran, own = device(one.gpu), _table_name(system)
    return ran is not None and own is not None and ran.split("-")[0] != own.split("-")[0]


def _others(rows: Sequence[Collective | Gemm], system: System) -> list[str]:
    """What ran on accelerators of another kind, in words."""
    names = dict.fromkeys(one.gpu for one in rows if _elsewhere(one, system))
    return [f"ran on {name}, and {system.name} has {accelerator_name(system)}" for name in names]
