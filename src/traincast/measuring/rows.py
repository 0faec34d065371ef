"""What was timed: samples of each task, and tables of them."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.accuracy.logs import Collective, Gemm
from traincast.measuring.tasks import Family, Task
from traincast.written import beside

TABLES: Final[dict[str, tuple[Family, ...]]] = {  # ending of a table's name -> families
    "products": ("products",),
    "collectives": ("collectives",),
    "kernels": ("attention", "memory", "dispatch", "copies"),
}
SIZES: Final[dict[Family, tuple[str, ...]]] = {
    "products": ("m", "n", "k"),
    "attention": ("batch", "heads", "tokens", "head_dim"),
    "memory": ("elements",),
    "dispatch": ("operations",),
    "copies": ("size_bytes",),
    "collectives": ("size_bytes",),
}
COMMON: Final = ("time_us", "lower_quartile_us", "upper_quartile_us", "samples")


@dataclass(frozen=True)
class Row:
    """A task and its samples.

    Parameters
    ----------
    task : Task
        What was timed.
    samples : tuple of float
        Its times [s].
    """

    task: Task
    samples: tuple[float, ...]

    def at(self, percent: float) -> float:
        """The time that so many percent of the samples are below [s]."""
        return float(np.percentile(self.samples, percent))

    @property
    def seconds(self) -> float:
        """The median time [s]."""
        return self.at(50)


def rows_of(samples: Mapping[str, Sequence[float]], tasks: Mapping[str, Task]) -> list[Row]:
    """Rows of samples by task, without those that have none."""
    return [Row(tasks[key], tuple(some)) for key, some in samples.items() if some]


def gemm(row: Row, percent: float = 50) -> Gemm:
    """A product, as `traincast.accuracy.logs` reads it."""
    m, n, k = row.task.sizes
    return Gemm(m=m, n=n, k=k, dtype=row.task.dtype, time_us=row.at(percent) * 1e6)


def collective(row: Row, about: Mapping[str, Any], percent: float = 50) -> Collective:
    """A collective, as `traincast.accuracy.logs` reads it."""
    nodes, ranks = where(row.task, about)
    return Collective(
        op=row.task.op, nodes=nodes, gpus_per_node=ranks // nodes, ranks=ranks,
        size_bytes=float(row.task.sizes[0]), time_us=row.at(percent) * 1e6,
    )  # fmt: skip


def where(task: Task, about: Mapping[str, Any]) -> tuple[int, int]:
    """Nodes and ranks that a collective ran on."""
    nodes, ranks = int(about["nodes"]), int(about["ranks"])
    return nodes, ranks


def write_tables(path: Path, rows: Iterable[Row], about: Mapping[str, Any], day: str) -> list[Path]:
    """Write tables beside a machine file: products, collectives, and all other kernels.

    Parameters
    ----------
    path : Path
        The machine file.
    rows : iterable of Row
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
    rows, found = list(rows), []
    for name, families in TABLES.items():
        own = [row for row in rows if row.task.family in families]
        if own:
            table = table_beside(path, name)
            _write(table, own, about, day, families)
            found.append(table)
    return found


def table_beside(path: Path, name: str) -> Path:
    """Where a table of a machine file stands."""
    return path.with_name(f"{path.stem}.{name}.csv")


def _write(path: Path, rows: Sequence[Row], about: Mapping[str, Any], day: str, families: Sequence[Family]) -> None:
    """Write one table."""
    sizes = list(dict.fromkeys(name for family in families for name in SIZES[family]))
    placed = ["nodes", "gpus_per_node", "ranks"] if "collectives" in families else []
    kinds = ["family", "op"] if len(families) > 1 else ["op"] if placed else []
    constant = {"gpu": about["device"], "torch": about["torch"], "threads": about["threads"], "host": about["host"], "date": day}
    with beside(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, [*kinds, *placed, "dtype", *sizes, *COMMON, *constant], restval="", lineterminator="\n")
        out.writeheader()
        for row in sorted(rows, key=lambda one: (one.task.family, one.task.op, one.task.dtype, one.task.sizes)):
            nodes, ranks = where(row.task, about)
            told = {"family": row.task.family, "op": row.task.op, "nodes": nodes, "gpus_per_node": ranks // nodes, "ranks": ranks}
            times = [f"{row.at(percent) * 1e6:.6g}" for percent in (50, 25, 75)]
            cells = {name: told[name] for name in (*kinds, *placed)} | {"dtype": row.task.dtype} | constant
            cells |= dict(zip(SIZES[row.task.family], row.task.sizes, strict=True))
            out.writerow(cells | dict(zip(COMMON, (*times, len(row.samples)), strict=True)))
