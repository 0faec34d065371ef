"""What was timed: samples of each task, and tables of them beside a machine file."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.accuracy.logs import Collective, Gemm
from traincast.accuracy.measure.tasks import Family, Task
from traincast.core.output_files import beside

FAMILIES_OF_TABLE: Final[dict[str, tuple[Family, ...]]] = {  # ending of a table's name -> families
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
    """A task and its samples.

    Parameters
    ----------
    task : Task
        What was timed.
    samples : tuple of float
        Its times in the visit that counts [s].
    visits : int
        How often it was visited.
    """

    task: Task
    samples: tuple[float, ...]
    visits: int = 1

    def at(self, percent: float) -> float:
        """The time that so many percent of the samples are below [s]."""
        return float(np.percentile(self.samples, percent))

    @property
    def width(self) -> float:
        """Width of the middle half of the samples, relative to their median."""
        return (self.at(75) - self.at(25)) / self.at(50)


def matmul_row(row: Row) -> Gemm:
    """The product of a row, as tables of products have it."""
    m, n, k = row.task.sizes
    return Gemm(m=m, n=n, k=k, dtype=row.task.dtype, time_us=row.at(50) * 1e6)


def collective_row(row: Row, about: Mapping[str, Any]) -> Collective:
    """The collective of a row, as tables of collectives have it."""
    placed, time_us = group_placement(row.task, about), row.at(50) * 1e6
    return Collective(
        op=row.task.op, nodes=placed["nodes"], gpus_per_node=placed["gpus_per_node"], ranks=placed["ranks"],
        size_bytes=float(row.task.sizes[0]), time_us=time_us,
    )  # fmt: skip


def group_placement(task: Task, about: Mapping[str, Any]) -> dict[str, int]:
    """Nodes, ranks of each, and ranks of a collective; a message has two."""
    nodes, ranks = int(about["nodes"]), int(about["ranks"])
    if task.scope == "node":
        nodes, ranks = 1, ranks // nodes
    if task.op == "p2p":
        nodes, ranks = min(nodes, 2), 2
    return {"nodes": nodes, "gpus_per_node": ranks // nodes, "ranks": ranks}


def write_tables(path: Path, rows: Sequence[Row], about: Mapping[str, Any], day: str) -> list[Path]:
    """Write tables beside a machine file: products, collectives, and all other kernels.

    Parameters
    ----------
    path : Path
        The machine file.
    rows : sequence of Row
        What was timed.
    about : mapping
        The machine.
    day : str
        When.

    Returns
    -------
    list of Path
        The tables that hold something.
    """
    found = []
    for name, table in table_paths(path).items():
        own = [row for row in rows if row.task.family in FAMILIES_OF_TABLE[name]]
        if own:
            _write_table(table, own, about, day)
            found.append(table)
    return found


def table_paths(path: Path) -> dict[str, Path]:
    """Where the tables of a machine file stand."""
    return {name: path.with_name(f"{path.stem}.{name}.csv") for name in FAMILIES_OF_TABLE}


def _write_table(path: Path, rows: Sequence[Row], about: Mapping[str, Any], day: str) -> None:
    """Write a table."""
    constant = {"gpu": about["device"], "torch": about["torch"], "threads": about["threads"], "host": about["host"], "date": day}
    blank = dict.fromkeys((size for row in rows for size in SIZE_COLUMNS[row.task.family]), "")
    lines = []
    for row in sorted(rows, key=lambda one: (one.task.family, one.task.op, one.task.dtype, one.task.scope, one.task.sizes)):
        task = row.task
        named = {} if task.family == "products" else {"family": task.family, "op": task.op}
        placed = group_placement(task, about) if task.family == "collectives" else {}
        sizes = blank | dict(zip(SIZE_COLUMNS[task.family], map(str, task.sizes), strict=True))
        times = {name: f"{row.at(percent) * 1e6:.6g}" for name, percent in PERCENTILE_COLUMNS.items()}
        lines.append(
            named | placed | {"dtype": task.dtype} | sizes | times | {"samples": len(row.samples), "visits": row.visits} | constant
        )
    with beside(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(lines)
