"""Timed tasks with their samples, and the CSV tables beside a system file."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.accuracy.logs import Collective, Gemm
from traincast.accuracy.measure.tasks import Family, Task
from traincast.core.output_files import atomic_output

FAMILIES_OF_TABLE: Final[dict[str, tuple[Family, ...]]] = {  # suffix of a table's name -> families
    "products": ("products",),
    "collectives": ("collectives",),
    "kernels": ("attention", "memory", "dispatch", "copies"),
}
SIZE_COLUMNS: Final[dict[Family, tuple[str, ...]]] = {
    "products": ("m", "n", "k"),
    "attention": ("batch", "heads", "tokens", "head_dim"),
    "memory": ("elements",),
    "dispatch": ("operations",),
    "copies": ("size_bytes",),
    "collectives": ("size_bytes",),
}
PERCENTILE_COLUMNS: Final = {
    "time_us": 50,
    "lower_quartile_us": 25,
    "upper_quartile_us": 75,
}  # column -> percent of the samples below it


@dataclass(frozen=True)
class Row:
    """A timed task with its samples.

    Parameters
    ----------
    task : Task
        The task.
    samples : tuple of float
        Times of the visit with the lowest median [s].
    visits : int
        Number of visits.
    """

    task: Task
    samples: tuple[float, ...]
    visits: int = 1

    def at(self, percent: float) -> float:
        """Return a percentile of the samples [s]."""
        return float(np.percentile(self.samples, percent))

    @property
    def width(self) -> float:
        """Interquartile range of the samples relative to their median [1]."""
        return (self.at(75) - self.at(25)) / self.at(50)


def matmul_row(row: Row) -> Gemm:
    """Return the matmul of a row in the format of matmul tables."""
    m, n, k = row.task.sizes
    return Gemm(m=m, n=n, k=k, dtype=row.task.dtype, time_us=row.at(50) * 1e6)


def collective_row(row: Row, about: Mapping[str, Any]) -> Collective:
    """Return the collective of a row in the format of nccl-tests tables."""
    placed, time_us = group_placement(row.task, about), row.at(50) * 1e6
    return Collective(
        op=row.task.op, nodes=placed["nodes"], gpus_per_node=placed["gpus_per_node"], ranks=placed["ranks"],
        size_bytes=float(row.task.sizes[0]), time_us=time_us,
    )  # fmt: skip


def group_placement(task: Task, about: Mapping[str, Any]) -> dict[str, int]:
    """Return nodes, ranks per node and ranks of a collective; p2p has two ranks."""
    nodes, ranks = int(about["nodes"]), int(about["ranks"])
    if task.scope == "node":
        nodes, ranks = 1, ranks // nodes
    if task.op == "p2p":
        nodes, ranks = min(nodes, 2), 2
    return {"nodes": nodes, "gpus_per_node": ranks // nodes, "ranks": ranks}


def write_tables(path: Path, rows: Sequence[Row], about: Mapping[str, Any], day: str) -> list[Path]:
    """Write the tables beside a system file: matmuls, collectives, and all other kernels.

    Parameters
    ----------
    path : Path
        The system file.
    rows : sequence of Row
        Timed tasks.
    about : mapping
        Description of the machine.
    day : str
        Date of the measurement.

    Returns
    -------
    list of Path
        The tables that have rows.
    """
    written = []
    for name, table in table_paths(path).items():
        table_rows = [row for row in rows if row.task.family in FAMILIES_OF_TABLE[name]]
        if table_rows:
            _write_table(table, table_rows, about, day)
            written.append(table)
    return written


def table_paths(path: Path) -> dict[str, Path]:
    """Return the paths of the tables of a system file by name."""
    return {name: path.with_name(f"{path.stem}.{name}.csv") for name in FAMILIES_OF_TABLE}


def _write_table(path: Path, rows: Sequence[Row], about: Mapping[str, Any], day: str) -> None:
    """Write one table."""
    constants = {
        "gpu": about["device"],
        "torch": about["torch"],
        "threads": about["threads"],
        "host": about["host"],
        "date": day,
    }
    blanks = dict.fromkeys((size for row in rows for size in SIZE_COLUMNS[row.task.family]), "")
    lines = []
    for row in sorted(
        rows, key=lambda row: (row.task.family, row.task.op, row.task.dtype, row.task.scope, row.task.sizes)
    ):
        task = row.task
        names = {} if task.family == "products" else {"family": task.family, "op": task.op}
        placed = group_placement(task, about) if task.family == "collectives" else {}
        sizes = blanks | dict(zip(SIZE_COLUMNS[task.family], map(str, task.sizes), strict=True))
        times = {name: f"{row.at(percent) * 1e6:.6g}" for name, percent in PERCENTILE_COLUMNS.items()}
        lines.append(
            names
            | placed
            | {"dtype": task.dtype}
            | sizes
            | times
            | {"samples": len(row.samples), "visits": row.visits}
            | constants
        )
    with atomic_output(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
