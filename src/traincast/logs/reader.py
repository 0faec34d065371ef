"""The front door: what a file is, by its content, and who reads it."""

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from traincast import measurements
from traincast.errors import InputError, close_to
from traincast.logs import deepspeed, gemm, megatron, nccl, settings, torchtitan
from traincast.logs.cells import check
from traincast.logs.runs import WARM_UP
from traincast.logs.tables import Collective, CollectiveRows, GemmRows, TrainingRows
from traincast.logs.text import content, number, whole

TRAINING: Final = (megatron, torchtitan, deepspeed)  # the first whose signs are in the text
COLLECTIVE: Final = ("op", "nodes", "gpus_per_node", "size_bytes", "time_us")
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
    text = content(path)
    if re.match(r"\s*\{", text) and re.search(r'"(?:out_of_place|in_place|nccl_version)"', text):
        return nccl.read_json(path.name, text, _allowed(given, "op", "nodes", "gpus_per_node"))
    table = _table(text)
    if table:
        return _of_table(path, table, given)
    for reader in TRAINING:
        if re.search(reader.SIGNS, text):
            check(given)
            found: TrainingRows = reader.read(path.name, text, given, settings.config_file(config) if config else {}, warm_up)
            return found
    if re.search(nccl.SIGNS, text):
        return nccl.read(path.name, text, _allowed(given, "op", "nodes", "gpus_per_node"))
    raise InputError(str(path), [f"cannot tell what this is; known are {KNOWN}"])


def _allowed(given: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """What is given, if all of it has a meaning for the file."""
    wrong = [f"{name}: not used by this kind of file; {close_to(name, names)}" for name in given if name not in names]
    if wrong:
        raise InputError("what is given", wrong)
    return given


def _table(text: str) -> list[list[str]]:
    """Cells of a text that is a table of runs, of collectives or of products; empty if it is none of them."""
    rows = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not rows:
        return []
    mark = max(",;\t", key=rows[0].count)
    header = [name.strip().strip('"') for name in rows[0].split(mark)]
    kinds = (gemm.columns(header), set(COLLECTIVE) <= set(header), {"id", "step_seconds"} <= set(header))
    if not any(kinds):
        return []
    try:
        return list(csv.reader("\n".join(rows).splitlines(keepends=True), delimiter=mark, skipinitialspace=True))
    except csv.Error:
        return []


def _of_table(path: Path, table: list[list[str]], given: Mapping[str, Any]) -> TrainingRows | CollectiveRows | GemmRows:
    """Measurements of a table."""
    header = [name.strip() for name in table[0]]
    if gemm.columns(header):
        return gemm.read(path.name, table, _allowed(given, "dtype", "gpu"))
    if set(COLLECTIVE) <= set(header):
        return _collectives(path.name, table)
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


def _collectives(file: str, table: list[list[str]]) -> CollectiveRows:
    """Collectives of a table with the columns of the bundled one."""
    at = {name.strip(): where for where, name in enumerate(table[0])}
    rows, left_out = [], []
    for line, cells in enumerate(table[1:], start=2):
        said = {name: cells[where].strip() if where < len(cells) else "" for name, where in at.items()}
        nodes, per_node = whole(said["nodes"]), whole(said["gpus_per_node"])
        size, time = number(said["size_bytes"]), number(said["time_us"])
        if not (nodes and per_node and size and time and size > 0 and time > 0 and said["op"]):
            left_out.append(f"line {line}: op, nodes, gpus_per_node, size_bytes and time_us are needed, all above 0")
            continue
        ranks, gpu = whole(said.get("ranks")) or nodes * per_node, said.get("gpu", "")
        where = {"nodes": nodes, "gpus_per_node": per_node, "ranks": ranks}
        rows.append(Collective(op=said["op"], size_bytes=size, time_us=time, gpu=gpu, **where))
    if not rows:
        raise InputError(file, ["holds no collective that can be read", *left_out[:5]])
    return CollectiveRows(file=file, rows=tuple(rows), left_out=tuple(left_out))
