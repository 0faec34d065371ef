"""First contact: the error of the version before a batch of measured runs came, kept for ever.

    python calibration/first_contact.py      # some minutes; needs the history (git)

Every later figure is of a model whose structure was chosen with the rows in sight; this one is not. The
table, measured/first_contact.csv, is written from the history: the version before the first change that
answers to a batch reads and predicts its rows as they were when they were first committed. A new batch of
rows gets an entry of `BATCHES`, in the commit that adds the rows and before anything is changed for them; old
lines stay as they are.
"""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from traincast.accuracy.scores import source_of
from traincast.core.output_files import atomic_output

ROOT: Final = Path(__file__).parents[1]
TABLE: Final = Path(__file__).with_name("measured") / "first_contact.csv"
COLUMNS: Final = (
    "batch",
    "version",
    "date",
    "source",
    "rows",
    "predicted",
    "mape",
    "bias",
    "inside",
    "memory",
)
DIGITS: Final = 4


@dataclass(frozen=True)
class Batch:
    """Rows that came together, as a commit holds them, and the version before anything answered to them.

    Parameters
    ----------
    name : str
        What came.
    rows : str
        Commit and path of the rows, as git names them.
    version : str
        Commit of the version before; empty where there was none that could read a table.
    """

    name: str
    rows: str
    version: str


BATCHES: Final = (
    # the first version that reads measured runs is the one that has them
    Batch("published runs", "7eb04b4d:src/traincast/catalog/measured/training_runs.csv", ""),
    # 66dde264 is the first commit that answers to rows of this table
    Batch("later runs", "a0dded8b:calibration/measured/later_runs.csv", "946522c1"),
    Batch("memory of Megatron's tests", "37bc1b74:calibration/measured/megatron_memory.csv", "7641df13"),
)


def lines(batch: Batch) -> Iterator[dict[str, str]]:
    """Yield the lines of the table of a batch: one for each source, and one in all."""
    text = _git("show", batch.rows)
    if not batch.version:
        n = len(list(csv.DictReader(text.splitlines())))
        yield _line(batch, "all", "", [{}] * n)
        return
    with TemporaryDirectory() as folder:
        tree, table = Path(folder, "tree"), Path(folder, "rows.csv")
        table.write_text(text, encoding="utf-8")
        _git("worktree", "add", "--detach", str(tree), batch.version)
        try:
            command = [sys.executable, "-m", "traincast", "validate", "--runs", str(table), "--json"]
            environment = os.environ | {"PYTHONPATH": str(tree / "src")}
            answer = subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True)
        finally:
            _git("worktree", "remove", "--force", str(tree))
    moe = {row["id"] for row in csv.DictReader(text.splitlines()) if row["experts"]}
    by_source: dict[str, list[dict[str, Any]]] = {}
    rows = json.loads(answer.stdout)["rows"]
    for row in rows:
        by_source.setdefault(source_of(row["id"], row["id"] in moe), []).append(row)
    date = _git("show", "-s", "--format=%cs", batch.version).strip()
    for source, found in {**dict(sorted(by_source.items())), "all": rows}.items():
        yield _line(batch, source, date, found)


def _line(batch: Batch, source: str, date: str, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the line of some rows; figures that cannot be known are empty."""
    timed = [row for row in rows if row.get("predicted_step_seconds") and row.get("measured_step_seconds")]
    errors = [row["predicted_step_seconds"] / row["measured_step_seconds"] - 1 for row in timed]
    inside = [row["low"] <= row["measured_step_seconds"] <= row["high"] for row in timed if row.get("low")]
    memory = [
        abs(row["predicted_memory_bytes"] / row["measured_memory_bytes"] - 1)
        for row in rows
        if row.get("predicted_memory_bytes") and row.get("measured_memory_bytes")
    ]
    figures: dict[str, list[float]] = {
        "mape": [abs(error) for error in errors],
        "bias": errors,
        "inside": [*map(float, inside)],
        "memory": memory,
    }
    means = {
        name: f"{float(np.mean(values)):.{DIGITS}f}" if values else "" for name, values in figures.items()
    }
    predicted = sum(
        bool(row.get("predicted_step_seconds") or row.get("predicted_memory_bytes")) for row in rows
    )
    counts = {"rows": str(len(rows)), "predicted": str(predicted)}
    return {"batch": batch.name, "version": batch.version, "date": date, "source": source, **counts, **means}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def read(path: Path = TABLE) -> list[Mapping[str, str]]:
    """Return the lines of the table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Write the lines of batches that the table does not have yet."""
    kept = read() if TABLE.exists() else []
    known = {line["batch"] for line in kept}
    new = [line for batch in BATCHES if batch.name not in known for line in lines(batch)]
    with atomic_output(TABLE) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *new])


if __name__ == "__main__":
    main()
