"""Recognise a file by its content, and choose its reader."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from traincast.accuracy.logs import deepspeed, matmul_table, megatron, nccl_tests, settings, torchtitan
from traincast.accuracy.logs.row_columns import check
from traincast.accuracy.logs.rows import TRAINING as TRAINING_COLUMNS
from traincast.accuracy.logs.rows import CollectiveRow, CollectiveRows, GemmRows, TrainingRows
from traincast.accuracy.logs.text import content, number, whole_number
from traincast.accuracy.logs.training_log import WARM_UP
from traincast.accuracy.runs import run as measurements
from traincast.core.errors import InputError, close_to

TRAINING: Final = (megatron, torchtitan, deepspeed)  # the first whose signs are in the text is the reader
COLLECTIVE: Final = ("op", "nodes", "gpus_per_node", "size_bytes")  # and one of `TIMES`
TIMES: Final = ("time_us", "algbw_gb_s", "busbw_gb_s")
BUS: Final = {
    "allreduce": 2.0,
    "allgather": 1.0,
    "reducescatter": 1.0,
    "all2all": 1.0,
}  # times (n - 1)/n: bus over algorithm bandwidth
Kind: TypeAlias = Literal["runs", "collectives", "products"]
GIVEN: Final[Mapping[Kind, tuple[str, ...]]] = {
    "runs": TRAINING_COLUMNS,
    "collectives": nccl_tests.GIVEN,
    "products": matmul_table.GIVEN,
}
KNOWN: Final = (
    "logs of Megatron-LM, Megatron-Bridge, NeMo, torchtitan or DeepSpeed, output of nccl-tests (text or JSON), "
    "and CSV tables of runs, of collectives or of matrix products"
)


def read(
    path: str | Path, *, config: str | Path | None = None, warm_up: int = WARM_UP, **given: Any
) -> TrainingRows | CollectiveRows | GemmRows:
    """Read the measurements of a file.

    Parameters
    ----------
    path : str or Path
        A training log, output of nccl-tests, or a CSV table of runs, of collectives or of matrix products.
    config : str or Path, optional
        Configuration of a run whose log does not contain it: TOML, YAML or JSON (``ds_config.json``).
    warm_up : int
        Progress lines to skip at the beginning of a run, at most half of them.
    **given
        Values missing in the file: columns of a run (``gpu="h100-sxm-80"``, ``recompute="full"``; ``model="llama-3-8b"`` stands
        for the shape of a model of the catalogue), ``op``, ``nodes`` and ``gpus_per_node`` of collectives, ``dtype`` of products.

    Returns
    -------
    TrainingRows, CollectiveRows or GemmRows
        Measurements, and what was left out.

    Raises
    ------
    InputError
        If the file cannot be read, or values are missing: all problems at once.
    """
    path = Path(path)
    text, given = content(path), {name: value for name, value in given.items() if value is not None}
    if table := _table(text):
        return _read_table(path, table, given)
    if reader := _training_reader(text):
        check(given)
        rows: TrainingRows = reader.read(
            path.name, text, given, settings.config_file(config) if config else {}, warm_up
        )
        return rows
    if _is_nccl_json(text) or re.search(nccl_tests.SIGNS, text):
        read_output = nccl_tests.read_json if _is_nccl_json(text) else nccl_tests.read
        return read_output(path.name, text, _checked_given(given, "collectives"))
    raise _unknown_file(path, text)


def holds(path: str | Path) -> Kind:
    """Return the kind of measurements in a file.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    InputError
        If it cannot be read, or its format is unknown.
    """
    text = content(Path(path))
    if table := _table(text):
        header = [name.strip() for name in table[0]]
        return (
            "products"
            if matmul_table.columns(header)
            else "collectives"
            if _are_collectives(header)
            else "runs"
        )
    if _training_reader(text):
        return "runs"
    if _is_nccl_json(text) or re.search(nccl_tests.SIGNS, text):
        return "collectives"
    raise _unknown_file(Path(path), text)


def _is_nccl_json(text: str) -> bool:
    """Return whether a text is the JSON output of nccl-tests."""
    return bool(re.match(r"\s*\{", text) and re.search(r'"(?:out_of_place|in_place|nccl_version)"', text))


def _training_reader(text: str) -> Any:
    """Return the reader of a training log; None if the text is none."""
    return (
        None
        if _is_nccl_json(text)
        else next((reader for reader in TRAINING if re.search(reader.SIGNS, text)), None)
    )


def _unknown_file(path: Path, text: str) -> InputError:
    """Return the error for an unknown file; one that resembles a table gets the columns it lacks."""
    header = [name.lower() for name in _header(text)]
    kinds = {"runs": measurements.NEEDED, "collectives": COLLECTIVE, "matrix products": ("m", "n", "k")}
    share_present = {
        kind: sum(name in header for name in needed) / len(needed) for kind, needed in kinds.items()
    }
    kind = max(share_present, key=lambda name: share_present[name])
    if len(header) < 3 or share_present[kind] < 0.3:
        return InputError(str(path), [f"cannot tell what this is; known are {KNOWN}"])
    missing = [name for name in kinds[kind] if name not in header]
    if kind == "collectives" and set(TIMES).isdisjoint(header):
        missing.append(f"one of {', '.join(TIMES)}")
    return InputError(str(path), [f"as a table of {kind} it lacks the columns {', '.join(missing)}"])


def _checked_given(given: Mapping[str, Any], kind: Kind) -> Mapping[str, Any]:
    """Return given values; raise if files of a kind do not use all of them."""
    wrong = not_used(given, (kind,))
    if wrong:
        raise InputError("what is given", wrong)
    return given


def not_used(given: Iterable[str], kinds: Sequence[Kind]) -> list[str]:
    """Return a problem for each given name that no file of these kinds uses."""
    names = [name for kind in kinds for name in GIVEN[kind]]
    subject = "this kind of file" if len(kinds) == 1 else "these kinds of files"
    return [f"{name}: not used by {subject}; {close_to(name, names)}" for name in given if name not in names]


def _table(text: str) -> list[list[str]]:
    """Return the cells of a table of runs, collectives or products; empty if the text is none."""
    rows, header = _lines(text), _header(text)
    kinds = (matmul_table.columns(header), _are_collectives(header), {"id", "step_seconds"} <= set(header))
    if not any(kinds):
        return []
    try:
        return list(
            csv.reader(
                "\n".join(rows).splitlines(keepends=True),
                delimiter=_delimiter(rows[0]),
                skipinitialspace=True,
            )
        )
    except csv.Error:
        return []


def _lines(text: str) -> list[str]:
    """Return the lines of a table, without blank lines and comments."""
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _header(text: str) -> list[str]:
    """Return the names of the columns of a text, if it is a table."""
    first = next(iter(_lines(text)), "")
    return [name.strip().strip('"') for name in first.split(_delimiter(first))]


def _delimiter(line: str) -> str:
    """Return the delimiter of a line."""
    return max(",;\t", key=line.count)


def _read_table(
    path: Path, table: list[list[str]], given: Mapping[str, Any]
) -> TrainingRows | CollectiveRows | GemmRows:
    """Read the measurements of a table."""
    header = [name.strip() for name in table[0]]
    if repetitions := measurements.repeated(header):
        raise InputError(path.name, repetitions)
    if matmul_table.columns(header):
        return matmul_table.read(path.name, table, _checked_given(given, "products"))
    if _are_collectives(header):
        return _read_collectives(path.name, table, _checked_given(given, "collectives"))
    check(given)
    left_out, rows = [], []
    for row, run in measurements.readable([_with_given(row, given) for row in measurements.rows(path)]):
        if isinstance(run, str):
            left_out.append(f"{row['id']}: {run}")
        else:
            rows.append(row)
    if not rows:
        raise InputError(path.name, ["holds no run that can be predicted", *left_out[:5]])
    return TrainingRows(file=path.name, rows=tuple(rows), left_out=tuple(left_out))


def _with_given(row: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, str]:
    """Return a row with given values in its empty cells."""
    return {name: cell for name, cell in row.items() if name} | {
        name: str(value) for name, value in given.items() if not row.get(name)
    }


def _are_collectives(header: Sequence[str]) -> bool:
    """Return whether columns are those of a table of collectives."""
    return set(COLLECTIVE) <= set(header) and not set(TIMES).isdisjoint(header)


def _read_collectives(file: str, table: list[list[str]], given: Mapping[str, Any]) -> CollectiveRows:
    """Read collectives from a table with the columns of the bundled one; given values fill empty cells."""
    nccl_tests.check(given)
    indices = {name.strip(): index for index, name in enumerate(table[0])}
    rows, left_out = [], []
    for line, cells in enumerate(table[1:], start=2):
        row = {name: cells[index].strip() if index < len(cells) else "" for name, index in indices.items()}
        row |= {name: str(value) for name, value in given.items() if not row[name]}
        nodes, per_node = whole_number(row["nodes"]), whole_number(row["gpus_per_node"])
        size, ranks = (
            number(row["size_bytes"]),
            whole_number(row.get("ranks")) or (nodes or 0) * (per_node or 0),
        )
        time = _time_us(row, size, ranks) if size and size > 0 and ranks else None
        if not (nodes and per_node and size and time and row["op"]):
            left_out.append(
                f"line {line}: op, nodes, gpus_per_node, size_bytes and one of {', '.join(TIMES)} are needed, all above 0"
            )
            continue
        gpu = row.get("gpu", "")
        rows.append(
            CollectiveRow(
                op=row["op"],
                nodes=nodes,
                gpus_per_node=per_node,
                ranks=ranks,
                size_bytes=size,
                time_us=time,
                gpu=gpu,
            )
        )
    if not rows:
        raise InputError(file, ["holds no collective that can be read", *left_out[:5]])
    return CollectiveRows(file=file, rows=tuple(rows), left_out=tuple(left_out))


def _time_us(row: Mapping[str, str], size: float, ranks: int) -> float | None:
    """Return the time of a collective, as measured or from a bandwidth as nccl-tests defines it [µs]."""
    time, algorithm, bus = (number(row.get(name, "")) for name in TIMES)
    if time is None and bus and row["op"] in BUS and ranks > 1:
        algorithm = algorithm or bus / BUS[row["op"]] * ranks / (ranks - 1)
    if time is None and algorithm and algorithm > 0:
        time = size / (algorithm * 1e9) * 1e6
    return time if time and time > 0 else None
