"""Timed tasks: rows with samples, a journal that survives interruption, CSV tables next to a system file."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from traincast.accuracy.logs import Collective, Gemm
from traincast.accuracy.machine.device_info import identity
from traincast.accuracy.machine.tasks import FAMILIES, Task
from traincast.core import atomic_output

PERCENTILE_COLUMNS: Final = {"time_us": 50, "lower_quartile_us": 25, "upper_quartile_us": 75}  # [%]


@dataclass(frozen=True)
class Row:
    """A timed task with the samples [s] of its visit with the lowest median."""

    task: Task
    samples: tuple[float, ...]
    visits: int = 1

    def percentile(self, percent: float) -> float:
        """Return a percentile of the samples [s]."""
        return float(np.percentile(self.samples, percent))

    @property
    def width(self) -> float:
        """Interquartile range of the samples relative to their median [1]."""
        return (self.percentile(75) - self.percentile(25)) / self.percentile(50)


class Journal:
    """Messages of a measurement in a file, one a line: the machine, then each timed task.

    Lines that are there already are read up to the first incomplete one, so that an interrupted measurement
    goes on.
    """

    def __init__(self, path: Path):
        self.path = path
        self.about: dict[str, Any] = {}
        self.visits: dict[str, list[list[float]]] = {}
        self.problems: dict[str, str] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break

    @property
    def identity(self) -> str:
        """Identity of the machine; empty if the journal is."""
        return identity(self.about) if self.about else ""

    def append(self, message: dict[str, Any]) -> None:
        """Append a message; the message of another machine discards all rows."""
        machine = message.get("machine")
        if machine is not None and self.identity == identity(machine):
            return
        with self.path.open("a" if machine is None else "w", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")
        self._apply(message)

    def _apply(self, message: dict[str, Any]) -> None:
        if "machine" in message:
            self.about = dict(message["machine"])
            self.visits = {}
            self.problems = {}
        elif message["problem"]:
            self.problems[message["task"]] = str(message["problem"])
        else:
            samples = [float(sample) for sample in message["samples"]]
            self.visits.setdefault(message["task"], []).append(samples)

    def rows(self) -> list[Row]:
        """Return a row per timed task: the visit with the lowest median, since other load only adds time."""
        return [
            Row(Task.from_key(key), tuple(min(visits, key=median)), len(visits))
            for key, visits in self.visits.items()
        ]


def matmul_row(row: Row) -> Gemm:
    """Return the matmul of a row in the format of matmul tables."""
    m, n, k = row.task.sizes
    return Gemm(m=m, n=n, k=k, dtype=row.task.dtype, time_us=row.percentile(50) * 1e6)


def collective_row(row: Row, about: Mapping[str, object]) -> Collective:
    """Return the collective of a row in the format of nccl-tests tables."""
    placement: dict[str, Any] = group_placement(row.task, about)
    size = float(row.task.sizes[0])
    time_us = row.percentile(50) * 1e6
    return Collective(op=row.task.op, **placement, size_bytes=size, time_us=time_us)


def group_placement(task: Task, about: Mapping[str, Any]) -> dict[str, int]:
    """Return nodes, ranks per node and ranks of a collective; p2p has two ranks."""
    nodes = int(about["nodes"])
    ranks = int(about["ranks"])
    if task.scope == "node":
        nodes, ranks = 1, ranks // nodes
    if task.op == "p2p":
        nodes = min(nodes, 2)
        ranks = 2
    return {"nodes": nodes, "gpus_per_node": ranks // nodes, "ranks": ranks}


def table_paths(path: Path) -> dict[str, Path]:
    """Return the paths of the tables of a system file by name."""
    return {each.table: path.with_name(f"{path.stem}.{each.table}.csv") for each in FAMILIES.values()}


def write_tables(path: Path, rows: Sequence[Row], about: Mapping[str, object], day: str) -> list[Path]:
    """Write the tables that have rows next to a system file: products, collectives, and all other kernels."""
    machine = {"gpu": about["device"]} | {name: about[name] for name in ("torch", "threads", "host")}
    written = []
    for name, table in table_paths(path).items():
        table_rows = [row for row in rows if FAMILIES[row.task.family].table == name]
        if table_rows:
            columns = dict.fromkeys(size for row in table_rows for size in FAMILIES[row.task.family].sizes)
            table_rows.sort(key=lambda row: row.task.sort_key)
            lines = [_cells(row, about, columns) | machine | {"date": day} for row in table_rows]
            write_rows(table, lines)
            written.append(table)
    return written


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows with equal columns as a table, a CSV file."""
    with atomic_output(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _cells(row: Row, about: Mapping[str, object], size_columns: Mapping[str, None]) -> dict[str, object]:
    task = row.task
    cells: dict[str, object] = {} if task.family == "products" else {"family": task.family, "op": task.op}
    if task.family == "collectives":
        cells |= group_placement(task, about)
    sizes = dict(zip(FAMILIES[task.family].sizes, task.sizes, strict=True))
    cells |= {"dtype": task.dtype} | {name: sizes.get(name, "") for name in size_columns}
    cells |= {name: f"{row.percentile(percent) * 1e6:.6g}" for name, percent in PERCENTILE_COLUMNS.items()}
    return cells | {"samples": len(row.samples), "visits": row.visits}
