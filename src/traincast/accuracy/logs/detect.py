"""Recognise a file by its content, and choose its reader."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from traincast.accuracy.logs import (
    all_reduce_bench,
    deepspeed,
    megatron,
    named_times,
    nccl_tests,
    settings,
    tables,
    timing_exports,
    torchtitan,
)
from traincast.accuracy.logs.rows import TRAINING, CollectiveRows, GemmRows, TrainingRows, check_columns
from traincast.accuracy.logs.text import content, number, whole_number
from traincast.accuracy.logs.training_log import (
    WARM_UP,
    Log,
    LogFormat,
    in_seconds,
    iteration_times,
    last_run,
    read_log,
)
from traincast.accuracy.profiles import events as profiles
from traincast.accuracy.runs import run as measurements
from traincast.accuracy.runs.model import SIZES
from traincast.core import InputError, close_to, raise_problems

# The first whose signs are there.
FORMATS: Final = (megatron.FORMAT, torchtitan.FORMAT, deepspeed.FORMAT, *named_times.FORMATS)
Kind: TypeAlias = Literal["runs", "collectives", "products"]
Rows: TypeAlias = TrainingRows | CollectiveRows | GemmRows
GIVEN: Final[Mapping[Kind, tuple[str, ...]]] = {
    "runs": TRAINING,
    "collectives": tuple(nccl_tests.GIVEN),
    "products": tables.PRODUCT_GIVEN,
}
KNOWN: Final = (
    "logs of Megatron-LM, Megatron-Bridge, NeMo, torchtitan, DeepSpeed, MaxText, nanotron, Composer or "
    "MLPerf, a Trainer's state, step times exported from Weights & Biases or TensorBoard (CSV, JSON), "
    "profiles of torch.profiler or Nsight Systems, output of nccl-tests (text or JSON) or all_reduce_bench, "
    "and CSV tables of runs, of collectives or of matrix products"
)
MIN_TABLE_COLUMNS: Final = 3  # of a text that resembles a table
MIN_COLUMN_SHARE: Final = 0.3  # of the columns of a kind of table that such a text has


def read(path: str | Path, *, config: str | Path | None = None, warm_up: int = WARM_UP, **given: Any) -> Rows:
    """Read the measurements of a file, or raise an `InputError` with all that is wrong or missing.

    The file is a training log, output of nccl-tests, or a CSV table of runs, of collectives or of matrix
    products; `config` is the configuration (TOML, YAML or JSON) of a run whose log does not contain it;
    `warm_up` progress lines at the beginning of a run are skipped, at most half of them. Values missing in
    the file may be `given`: columns of a run (``gpu="h100-sxm-80"``; ``model="llama-3-8b"`` stands for its
    shape), ``op``, ``nodes`` and ``gpus_per_node`` of collectives, ``dtype`` of products.
    """
    path = Path(path)
    given = {name: value for name, value in given.items() if value is not None}
    if profiles.is_profile(path):
        check_columns(given)
        return timing_exports.read_profile(path, given)
    text = content(path)
    kind, reader = _kind(path, text)
    if kind == "runs":
        check_columns(given)
        given = timing_exports.stated_run(path, text) | given
    elif wrong := not_used(given, (kind,)):
        raise InputError("what is given", wrong)
    if isinstance(reader, LogFormat):
        loaded = settings.config_file(config) if config else {}
        return read_log(reader, path.name, text, loaded, given, warm_up)
    if reader is timing_exports.read_step_times:
        return timing_exports.read_step_times(path.name, text, given, warm_up)
    if reader:
        return reader(path.name, text, given)
    table = tables.parse(text)
    raise_problems(path.name, measurements.repeated_names(name.strip() for name in table[0]))
    if kind == "runs":
        return _read_runs(path, given)
    read_table = tables.read_products if kind == "products" else tables.read_collectives
    return read_table(path.name, table, given)


class StepTimes(NamedTuple):
    """Median of the times of steps [s], width of their middle half over it, their number, memory [GiB]."""

    seconds: float
    spread: float
    steps: int
    memory: float | None = None


def read_times(path: str | Path, given: Mapping[str, object], warm_up: int = WARM_UP) -> StepTimes:
    """Read the time of a step from the log of a run that is known otherwise; arguments as for `read`.

    `given` has the run's ``gbs``, ``seq`` and ``gpus``, for logs that hold rates. A table has one run.
    """
    path = Path(path)
    text = content(path)
    kind, reader = _kind(path, text)
    if isinstance(reader, LogFormat):
        run, rate = last_run(reader, text)
    elif reader is timing_exports.read_step_times:
        run = timing_exports.series(path.name, text, given)[0]
        rate = None
    elif kind == "runs":
        row, *others = measurements.rows(path)
        seconds = number(row.get("step_seconds", ""))
        if others or not seconds:
            raise InputError(path.name, ["must hold one run with step_seconds"])
        steps = whole_number(row.get("steps_measured"))
        spread = number(row.get("step_spread", ""))
        return StepTimes(seconds, spread or 0.0, steps or 1, number(row.get("memory_gb_published", "")))
    else:
        raise InputError(path.name, [f"holds {kind}, not a training run"])
    timing = iteration_times(run, warm_up)
    if timing is None:
        raise InputError(path.name, ["no finished iteration"])
    return StepTimes(*in_seconds(timing, rate, given), run.memory)


def log_columns(path: str | Path) -> dict[str, Any]:
    """Return what a training log tells of its last run, as columns of a table of runs; empty of other files.

    What it does not tell is left out, and so is all of a kind of run that no column describes.
    """
    path = Path(path)
    text = content(path)
    log_format = _log_format(text)
    if log_format is None:
        return {}
    run, _ = last_run(log_format, text)
    try:
        columns = log_format.columns(Log(path.name, text, run, run.header_by_rank, {}, {}))
    except InputError:
        return {}
    return {name: value for name, value in columns.items() if value not in (None, "")}


def holds(path: str | Path) -> Kind:
    """Return the kind of measurements in a file; raise `InputError` if it is unknown or cannot be read."""
    path = Path(path)
    return "runs" if profiles.is_profile(path) else _kind(path, content(path))[0]


def not_used(given: Iterable[str], kinds: Sequence[Kind]) -> list[str]:
    """Return a problem for each given name that no file of these kinds uses."""
    names = [name for kind in kinds for name in GIVEN[kind]]
    subject = "this kind of file" if len(kinds) == 1 else "these kinds of files"
    return [f"{name}: not used by {subject}; {close_to(name, names)}" for name in given if name not in names]


def without_effect(given: Mapping[str, object], files: Mapping[Kind, Sequence[str | Path]]) -> list[str]:
    """Return a problem for each given value that is not used, since every row of a table states another.

    Given values fill empty cells of tables. Logs have no cells: what is given replaces what they say.
    """
    if not given:  # no file need be read for it
        return []
    stated = {str(path): _stated_values(Path(path)) for paths in files.values() for path in paths}
    problems = []
    for name, value in given.items():
        using = [str(path) for kind, paths in files.items() if name in GIVEN[kind] for path in paths]
        values = [stated[path].get(name, set()) for path in using]
        if all(values) and set().union(*values) - {str(value)}:
            where = f"stands in every row of {', '.join(using)}"
            problems.append(f"{name} = {str(value)!r}: {where}, where it is not always that")
    return problems


def _stated_values(path: Path) -> dict[str, set[str]]:
    """Return the values in each column of a table that has one in every row; none of other files."""
    if profiles.is_profile(path):
        return {}
    try:
        text = content(path)
        kind, reader = _kind(path, text)
        if reader is not None:
            return {}
        if kind == "runs":
            rows = measurements.rows(path)
        else:
            header, *lines = tables.parse(text)
            names = [name.strip() for name in header]
            rows = [dict(zip(names, line, strict=False)) for line in lines if any(line)]
    except InputError:  # reading it says why
        return {}
    columns = rows[0].keys() if rows else ()
    values = {name: [(row.get(name) or "").strip() for row in rows] for name in columns}
    return {name: set(cells) for name, cells in values.items() if all(cells)}


def _kind(path: Path, text: str) -> tuple[Kind, LogFormat | Callable[..., Rows] | None]:
    """Return the kind of measurements in a text; of a log its format, of output of nccl-tests its reader."""
    names = tables.header(text)
    of_runs = set(measurements.column_names(names))
    kinds: dict[Kind, bool] = {
        "products": bool(tables.product_columns(names)),
        "collectives": set(tables.COLLECTIVE_COLUMNS) <= set(names)
        and not set(tables.COLLECTIVE_TIMES).isdisjoint(names),
        "runs": not of_runs.isdisjoint(measurements.RATES)
        and ("id" in of_runs or {"gpus", "gbs"} <= of_runs),
    }
    kind = next((kind for kind, resembles in kinds.items() if resembles), None)
    if kind and tables.parse(text):
        return kind, None
    if re.match(r"\s*\{", text) and re.search(nccl_tests.JSON_SIGNS, text):
        return "collectives", nccl_tests.read_json
    if log_format := _log_format(text):
        return "runs", log_format
    if timing_exports.holds(text, names):
        return "runs", timing_exports.read_step_times
    if re.search(nccl_tests.SIGNS, text):
        return "collectives", nccl_tests.read_nccl_tests
    if re.search(all_reduce_bench.SIGNS, text):
        return "collectives", all_reduce_bench.read_all_reduce_bench
    raise _unknown_file(path, text)


def _log_format(text: str) -> LogFormat | None:
    """Return the format of a training log; None of other texts."""
    return next((each for each in FORMATS if re.search(each.signs, text)), None)


def _unknown_file(path: Path, text: str) -> InputError:
    """Return the error for an unknown file; one that resembles a table gets the columns it lacks."""
    if "tfevents" in path.name:
        return InputError(str(path), ["is TensorBoard's own; export the step time from it as CSV or JSON"])
    names = measurements.column_names(map(str.lower, tables.header(text)))
    columns_of_kinds = {
        "runs": ("id", "model", *SIZES, *measurements.NEEDED, "tp", "pp"),
        "collectives": tables.COLLECTIVE_COLUMNS,
        "matrix products": ("m", "n", "k"),
    }
    shares = {
        kind: sum(name in names for name in needed) / len(needed) for kind, needed in columns_of_kinds.items()
    }
    kind = max(shares, key=lambda kind: shares[kind])
    if len(names) < MIN_TABLE_COLUMNS or shares[kind] < MIN_COLUMN_SHARE:
        return InputError(str(path), [f"cannot tell what this is; known are {KNOWN}"])
    missing = [name for name in columns_of_kinds[kind] if name not in names]
    if kind == "runs":  # rows that name no GPU have the system's
        missing = measurements.missing_columns({*names, "gpu"})
    if kind == "collectives" and set(tables.COLLECTIVE_TIMES).isdisjoint(names):
        missing.append(f"one of {', '.join(tables.COLLECTIVE_TIMES)}")
    return InputError(str(path), [f"as a table of {kind} it lacks the columns {', '.join(missing)}"])


def _read_runs(path: Path, given: Mapping[str, object]) -> TrainingRows:
    """Read a table of runs; given values fill empty cells."""
    filled = [
        {name: cell for name, cell in row.items() if name}
        | {name: str(value) for name, value in given.items() if not row.get(name)}
        for row in measurements.rows(path, given)
    ]
    left_out = []
    rows = []
    for row, run in measurements.readable(filled):
        if isinstance(run, str):
            left_out.append(f"{row['id']}: {run}")
        else:
            rows.append(row)
    return TrainingRows.from_rows(path.name, rows, left_out, "run that can be predicted")
