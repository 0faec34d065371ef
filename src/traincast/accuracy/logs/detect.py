"""The front door: what a file is, by its content, and who reads it."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from traincast.accuracy.logs import deepspeed, matmul_table, megatron, nccl_tests, settings, torchtitan
from traincast.accuracy.logs.row_columns import check
from traincast.accuracy.logs.rows import TRAINING as TRAINING_COLUMNS
from traincast.accuracy.logs.rows import CollectiveRow, CollectiveRows, GemmRows, TrainingRows
from traincast.accuracy.logs.text import content, number, whole
from traincast.accuracy.logs.training_log import WARM_UP
from traincast.accuracy.runs import run as measurements
from traincast.core.errors import InputError, close_to

TRAINING: Final = (megatron, torchtitan, deepspeed)  # the first whose signs are in the text
COLLECTIVE: Final = ("op", "nodes", "gpus_per_node", "size_bytes")  # and one of
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
    """Measurements of a file.

    Parameters
    ----------
    path : str or Path
        A log of training, output of nccl-tests, or a CSV table of runs, of collectives or of matrix products.
    config : str or Path, optional
        Configuration of a run whose log does not hold it: TOML, YAML or JSON (``ds_config.json``).
    warm_up : int
        Lines on progress to skip at the beginning of a run, at most half of them.
    **given
        What the file does not say: columns of a run (``gpu="h100-sxm-80"``, ``recompute="full"``; ``model="llama-3-8b"`` stands
        for the shape of a model of the catalogue), ``op``, ``nodes`` and ``gpus_per_node`` of collectives, ``dtype`` of products.

    Returns
    -------
    TrainingRows, CollectiveRows or GemmRows
        What was measured, and what was left out.

    Raises
    ------
    InputError
        If the file cannot be read, or something is missing: all of it at once.
    """
    path = Path(path)
    text, given = content(path), {name: value for name, value in given.items() if value is not None}
    if table := _table(text):
        return _of_table(path, table, given)
    if reader := _training(text):
        check(given)
        found: TrainingRows = reader.read(path.name, text, given, settings.config_file(config) if config else {}, warm_up)
        return found
    if _is_nccl_json(text) or re.search(nccl_tests.SIGNS, text):
        form = nccl_tests.read_json if _is_nccl_json(text) else nccl_tests.read
        return form(path.name, text, _allowed(given, "collectives"))
    raise _unknown(path, text)


def holds(path: str | Path) -> Kind:
    """What kind of measurements is in a file.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    InputError
        If it cannot be read, or is none of what is known.
    """
    text = content(Path(path))
    if table := _table(text):
        header = [name.strip() for name in table[0]]
        return "products" if matmul_table.columns(header) else "collectives" if _are_collectives(header) else "runs"
    if _training(text):
        return "runs"
    if _is_nccl_json(text) or re.search(nccl_tests.SIGNS, text):
        return "collectives"
    raise _unknown(Path(path), text)


def _is_nccl_json(text: str) -> bool:
    """Whether a text is the JSON output of nccl-tests."""
    return bool(re.match(r"\s*\{", text) and re.search(r'"(?:out_of_place|in_place|nccl_version)"', text))


def _training(text: str) -> Any:
    """The reader of a log of training; None if it is none."""
    return None if _is_nccl_json(text) else next((reader for reader in TRAINING if re.search(reader.SIGNS, text)), None)


def _unknown(path: Path, text: str) -> InputError:
    """What to say of a file that is none of what is known: which columns it lacks, where it is nearly a table."""
    header = [name.lower() for name in _header(text)]
    kinds = {"runs": measurements.NEEDED, "collectives": COLLECTIVE, "matrix products": ("m", "n", "k")}
    near = {kind: sum(name in header for name in needed) / len(needed) for kind, needed in kinds.items()}
    kind = max(near, key=lambda one: near[one])
    if len(header) < 3 or near[kind] < 0.3:
        return InputError(str(path), [f"cannot tell what this is; known are {KNOWN}"])
    missing = [name for name in kinds[kind] if name not in header]
    if kind == "collectives" and set(TIMES).isdisjoint(header):
        missing.append(f"one of {', '.join(TIMES)}")
    return InputError(str(path), [f"as a table of {kind} it lacks the columns {', '.join(missing)}"])


def _allowed(given: Mapping[str, Any], kind: Kind) -> Mapping[str, Any]:
    """What is given, if all of it has a meaning for files of a kind."""
    wrong = not_used(given, (kind,))
    if wrong:
        raise InputError("what is given", wrong)
    return given


def not_used(given: Iterable[str], kinds: Sequence[Kind]) -> list[str]:
    """What is wrong with names that are given: those that files of no such kind use."""
    names = [name for kind in kinds for name in GIVEN[kind]]
    some = "this kind of file" if len(kinds) == 1 else "these kinds of files"
    return [f"{name}: not used by {some}; {close_to(name, names)}" for name in given if name not in names]


def _table(text: str) -> list[list[str]]:
    """Cells of a text that is a table of runs, of collectives or of products; empty if it is none of them."""
    rows, header = _lines(text), _header(text)
    kinds = (matmul_table.columns(header), _are_collectives(header), {"id", "step_seconds"} <= set(header))
    if not any(kinds):
        return []
    try:
        return list(csv.reader("\n".join(rows).splitlines(keepends=True), delimiter=_mark(rows[0]), skipinitialspace=True))
    except csv.Error:
        return []


def _lines(text: str) -> list[str]:
    """Lines of a table, without blank ones and comments."""
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _header(text: str) -> list[str]:
    """Names of the columns of a text, if it is a table."""
    first = next(iter(_lines(text)), "")
    return [name.strip().strip('"') for name in first.split(_mark(first))]


def _mark(line: str) -> str:
    """What parts the cells of a line."""
    return max(",;\t", key=line.count)


def _of_table(path: Path, table: list[list[str]], given: Mapping[str, Any]) -> TrainingRows | CollectiveRows | GemmRows:
    """Measurements of a table."""
    header = [name.strip() for name in table[0]]
    if twice := measurements.repeated(header):
        raise InputError(path.name, twice)
    if matmul_table.columns(header):
        return matmul_table.read(path.name, table, _allowed(given, "products"))
    if _are_collectives(header):
        return _collectives(path.name, table, _allowed(given, "collectives"))
    check(given)
    left_out, rows = [], []
    for row, run in measurements.readable([_filled(row, given) for row in measurements.rows(path)]):
        if isinstance(run, str):
            left_out.append(f"{row['id']}: {run}")
        else:
            rows.append(row)
    if not rows:
        raise InputError(path.name, ["holds no run that can be predicted", *left_out[:5]])
    return TrainingRows(file=path.name, rows=tuple(rows), left_out=tuple(left_out))


def _filled(row: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, str]:
    """A row of a table with what is given where it has nothing."""
    return {name: cell for name, cell in row.items() if name} | {
        name: str(value) for name, value in given.items() if not row.get(name)
    }


def _are_collectives(header: Sequence[str]) -> bool:
    """Whether columns are those of a table of collectives."""
    return set(COLLECTIVE) <= set(header) and not set(TIMES).isdisjoint(header)


def _collectives(file: str, table: list[list[str]], given: Mapping[str, Any]) -> CollectiveRows:
    """Collectives of a table with the columns of the bundled one, and of what is given where it has nothing."""
    nccl_tests.check(given)
    at = {name.strip(): where for where, name in enumerate(table[0])}
    rows, left_out = [], []
    for line, cells in enumerate(table[1:], start=2):
        said = {name: cells[where].strip() if where < len(cells) else "" for name, where in at.items()}
        said |= {name: str(value) for name, value in given.items() if not said[name]}
        nodes, per_node = whole(said["nodes"]), whole(said["gpus_per_node"])
        size, ranks = number(said["size_bytes"]), whole(said.get("ranks")) or (nodes or 0) * (per_node or 0)
        time = _time_us(said, size, ranks) if size and size > 0 and ranks else None
        if not (nodes and per_node and size and time and said["op"]):
            left_out.append(
                f"line {line}: op, nodes, gpus_per_node, size_bytes and one of {', '.join(TIMES)} are needed, all above 0"
            )
            continue
        gpu = said.get("gpu", "")
        rows.append(
            CollectiveRow(op=said["op"], nodes=nodes, gpus_per_node=per_node, ranks=ranks, size_bytes=size, time_us=time, gpu=gpu)
        )
    if not rows:
        raise InputError(file, ["holds no collective that can be read", *left_out[:5]])
    return CollectiveRows(file=file, rows=tuple(rows), left_out=tuple(left_out))


def _time_us(said: Mapping[str, str], size: float, ranks: int) -> float | None:
    """Time of a collective, as measured or out of a bandwidth as nccl-tests defines it [µs]."""
    time, algorithm, bus = (number(said.get(name, "")) for name in TIMES)
    if time is None and bus and said["op"] in BUS and ranks > 1:
        algorithm = algorithm or bus / BUS[said["op"]] * ranks / (ranks - 1)
    if time is None and algorithm and algorithm > 0:
        time = size / (algorithm * 1e9) * 1e6
    return time if time and time > 0 else None
