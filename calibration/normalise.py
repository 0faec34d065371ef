"""Read the published runs (published_runs.csv) once, and write them as the tidy table of the package.

    python calibration/normalise.py         # a part of: make scoreboard

published_runs.csv has what the sources state. The table in the package has one column for every field of a
run, of its model and of its plan, the facts of its software that its source states, and why a row is
skipped, so that nothing is interpreted when it is read. What was filled in by an estimate of memory
(micro-batch, recompute: `assumed`) depends on the code, so that a test compares the table with a fresh one.
"""

import csv
import io
import json
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final

from traincast.accuracy.runs.run import MODEL_PARTS, Run, readable
from traincast.catalog.facts import FACTS
from traincast.core.output_files import atomic_output
from traincast.core.plan import Plan
from traincast.model.model import Model

SOURCE: Final = Path(__file__).with_name("measured") / "published_runs.csv"
TABLE: Final = Path(__file__).parents[1] / "src" / "traincast" / "catalog" / "measured" / "training_runs.csv"
NOT_READ: Final = (
    "fast_tp",
    "fast_tp2",
    "fast_cp",
    "fast_pp",
    "fast_dp",
    "ulysses",
)  # follow from other knobs


@cache
def published() -> tuple[dict[str, str], ...]:
    """Return the rows of published_runs.csv."""
    with SOURCE.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def cells(row_id: str, source: str, run: Run | str) -> dict[str, Any]:
    """Return the values of a row of the tidy table, None where there is nothing to say."""
    if isinstance(run, str):
        return {"id": row_id, "source": source, "skipped": run}
    values = {
        **{name: getattr(run, name) for name in ("id", "source", "stack")},
        "system": run.system.name,
        "gpus": run.plan.gpus,
        **{name: getattr(run, name) for name in ("gbs", "step_seconds", "memory_bytes", "reported")},
        "unsaid": " ".join(run.unsaid) or None,
        "assumed": " ".join(run.assumed) or None,
        "skipped": None,
        **{f"fact.{name}": run.facts.get(name) for name in FACTS},
    }
    parts = {"model": run.model, "plan": run.plan, **{part: getattr(run.model, part) for part in MODEL_PARTS}}
    for part, value in parts.items():
        elsewhere = MODEL_PARTS if part == "model" else NOT_READ
        if value is not None:
            names = [field.name for field in fields(value) if field.compare and field.name not in elsewhere]
            values |= {f"{part}.{name}": getattr(value, name) for name in names}
    return values


def constant(rows: list[dict[str, Any]]) -> set[str]:
    """Return the columns that hold the default of their field in every row, and facts that none states."""
    kinds = {"model": Model, "plan": Plan, **MODEL_PARTS}
    defaults = {
        f"{part}.{field.name}": field.default for part, kind in kinds.items() for field in fields(kind)
    }
    same = {name for name, value in defaults.items() if all(row.get(name, value) == value for row in rows)}
    return same | {f"fact.{name}" for name in FACTS if all(row.get(f"fact.{name}") is None for row in rows)}


def text_of(value: Any) -> str:
    """Return the cell of a value: JSON, but text as it is where it does not look like JSON."""
    if value is None:
        return ""
    try:
        json.loads(value)
    except (TypeError, ValueError):
        return value if isinstance(value, str) else json.dumps(value)
    return json.dumps(value)


def table() -> str:
    """Return the tidy table."""
    rows = [cells(row["id"], row["source"], run) for row, run in readable(published())]
    left_out = constant(rows)
    header = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in left_out]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(
            [(row.get(name) or "") if name.startswith("fact.") else text_of(row.get(name)) for name in header]
        )
    return out.getvalue()


def write(path: Path = TABLE) -> None:
    """Write the tidy table."""
    with atomic_output(path) as unfinished:
        unfinished.write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    write()
