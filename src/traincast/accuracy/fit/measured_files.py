"""Files of measurements on a system: training runs, collectives, matrix products."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from traincast.accuracy.fit.benchmark_times import KINDS
from traincast.accuracy.fit.launched_run import LaunchedRun, read_launched_run
from traincast.accuracy.fit.measured import Measured
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
    without_effect,
)
from traincast.accuracy.logs import read as read_file
from traincast.accuracy.logs.training_log import NOT_SAID
from traincast.accuracy.runs.cells import is_file
from traincast.accuracy.runs.run import Run, readable
from traincast.catalog import accelerator_called, load_system
from traincast.core import ErrorCollector, InputError, System, count_of, require_path, require_type

GIVEN_AS: Final[dict[Kind, str]] = {"runs": "`runs` or `logs`", "collectives": "`nccl`", "products": "`gemm`"}
FEW_MISSING: Final = 3  # columns; of more the launch is asked for as well
LAUNCH_SAYS: Final = "or give what says most of these, the launch of the run: --launch run.sh (launches=)"
Files: TypeAlias = Sequence[str | Path]
Rows: TypeAlias = TrainingRows | CollectiveRows | GemmRows


def read_measurements(
    system: str | Path,
    runs: Files = (),
    logs: Files = (),
    nccl: Files = (),
    gemm: Files = (),
    config: str | Path | None = None,
    given: Mapping[str, object] | None = None,
    launches: Files = (),
    variables: Mapping[str, str] | None = None,
) -> Measured:
    """Read the measurements of a system from files; arguments and errors as for `calibrate`."""
    errors = ErrorCollector("calibrate")
    given = given or {}
    machine = errors.catch(load_system, system)
    launched: list[LaunchedRun] = []
    if launches:
        if config is not None:
            errors.add(["config and launch: give one of them, which says what was run"])
        errors.catch(_check_launches, logs, launches)
        errors.raise_any()
        each = launches if len(launches) == len(logs) else [launches[0]] * len(logs)
        for log, launch in zip(logs, each, strict=True):
            run = machine and errors.catch(
                read_launched_run, Path(log), Path(launch), machine, given, variables or {}
            )
            launched += [run] if run else []
        logs = ()
        config = None
    _check_paths({"runs": runs, "logs": logs, "nccl": nccl, "gemm": gemm})
    files: dict[Kind, Files] = {"runs": (*runs, *logs), "collectives": nccl, "products": gemm}
    kinds = [kind for kind, paths in files.items() if paths]
    if kinds and not launches:
        errors.add([*not_used(given, kinds), *without_effect(given, files)], "what is given")
    extra: dict[str, object] = {"config": config}
    if machine and (name := accelerator_called(machine.accelerator.name)):
        extra["gpu"] = name
    elif machine and is_file(str(system)):
        extra["system"] = str(system)
    contents: dict[Kind, list[Rows | None]] = {}
    for kind, paths in files.items():
        options = {name: value for name, value in given.items() if name in GIVEN[kind]}
        options = extra | options if kind == "runs" else options
        contents[kind] = [errors.catch(_read_kind, path, kind, options) for path in paths]
    # A file that could not be read (None) may be a training log.
    has_log = any(
        rows is None or (isinstance(rows, TrainingRows) and "steps_measured" in rows.rows[0])
        for rows in contents["runs"]
    )
    if config is not None and not has_log:
        problem = f"config = {str(config)!r}: configures runs with a training log; none is given"
        errors.add([problem])
    machine = errors.require(machine)
    measured = _read_files(machine, [rows for kind in contents.values() for rows in kind if rows is not None])
    if launched:
        assumed = tuple(dict.fromkeys(line for one in launched for line in one.assumed))
        runs_of_all = (*measured.runs, *(one.run for one in launched))
        measured = replace(measured, runs=runs_of_all, assumed=assumed)
    if not (measured.runs or measured.collectives or measured.products):
        reasons = f" ({'; '.join(measured.left_out[:5])})"
        reason = reasons if measured.left_out else ": give runs, logs, nccl or gemm"
        raise InputError("calibrate", [f"nothing was measured on {machine.name}{reason}"])
    return measured


def _check_paths(files: Mapping[str, Files]) -> None:
    """Refuse what is no list of paths, by the option that it is given as."""
    for option, paths in files.items():
        require_type(option, paths, "a list of paths", list, tuple)
        for path in paths:
            require_path(option, path)


def _check_launches(logs: Files, launches: Files) -> None:
    """Refuse launches without as many logs; one launch may be that of all logs."""
    _check_paths({"log": logs, "launch": launches})
    if not logs:
        raise InputError("launch", ["gives no times: give the log of the run with it, as log"])
    if len(launches) not in (1, len(logs)):
        count = f"{len(launches)} launches of {count_of(len(logs), 'log')}"
        raise InputError("launch", [f"{count}: give one of all logs, or one of each in their order"])


def _read_kind(file: str | Path, kind: Kind, options: Mapping[str, Any]) -> Rows:
    if (other := holds(file)) != kind:
        raise InputError(str(file), [f"holds {other}, not {kind}: give it as {GIVEN_AS[other]}"])
    try:
        return read_file(file, **options)
    except InputError as error:
        if sum(NOT_SAID in problem for problem in error.problems) < FEW_MISSING:
            raise
        raise InputError(error.subject, [*error.problems, LAUNCH_SAYS]) from None


def _read_files(system: System, files: Sequence[Rows]) -> Measured:
    used: dict[type, list[Any]] = {Run: [], Collective: [], Gemm: []}
    left_out: list[str] = []
    for rows in files:
        reasons = list(rows.left_out)
        if isinstance(rows, TrainingRows):
            table_runs = list(_runs(rows, system))
            used[Run] += [run for run in table_runs if isinstance(run, Run)]
            reasons += [reason for reason in table_runs if isinstance(reason, str) and reason not in reasons]
        else:
            others = dict.fromkeys(row.gpu for row in rows.rows if _is_other_accelerator(row.gpu, system))
            reasons += [f"ran on {gpu}, and {system.name} has {accelerator_name(system)}" for gpu in others]
            for row in rows.rows:
                if row.gpu not in others and (isinstance(row, Gemm) or (row.op in KINDS and row.ranks > 1)):
                    used[type(row)].append(row)
        left_out += [f"{rows.file}: {reason}" for reason in reasons]
    runs, collectives, products = map(tuple, used.values())
    return Measured(system, runs, collectives, products, tuple(left_out))


def _runs(rows: TrainingRows, system: System) -> Iterator[Run | str]:
    """Yield the runs of a table on the system, or the reasons why rows are none."""
    wanted = accelerator_name(system)
    for row, run in readable(rows.rows):
        if isinstance(run, str):
            yield f"{row['id']}: {run}"
        elif run.outcome == "out-of-memory":
            yield f"{row['id']}: ran out of memory"
        elif run.step_seconds is None:
            yield f"{row['id']}: no step time"
        elif (accelerator := accelerator_name(run.system)) != wanted:
            yield f"{row['id']}: ran on {accelerator}, and {system.name} has {wanted}"
        else:
            yield replace(run, system=system)


def _is_other_accelerator(gpu: str, system: System) -> bool:
    """Return whether a name is known to be that of another kind of accelerator."""
    names = accelerator_called(gpu), accelerator_called(system.accelerator.name)
    return len({name.split("-")[0] for name in names if name}) > 1
