"""Some points of a study as alternatives side by side, and which figure of its table to draw next."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

from traincast.core import COLUMNS, KNOBS, STRATEGIES, Plan, count_of, quantity
from traincast.planner.comparison import Compared, Comparison, parse_plan
from traincast.planner.studies.sweep import Study, vary_system, with_fields
from traincast.step import Estimate, estimate

MOST_SHOWN: Final = 6  # points: what fits below each other on a screen
MOST_ROWS: Final = 200_000  # of a table that is read for it
CASE: Final = ("model", "system", "gpus", "gbs")  # of which each point is one, at its fastest


def side_by_side(study: Study, frame: pl.DataFrame) -> tuple[Comparison | None, int]:
    """Return the fastest points of a study's table side by side, and how many there are.

    A point of each model, system, number of GPUs and batch; where there is one such case, all of its points.
    Of more than `MOST_SHOWN` they are those on the most GPUs, then the fastest. None where fewer than two
    have a plan that fits.
    """
    fitting = frame.with_row_index("place").filter(pl.col("rank") == 1).drop_nulls("step_seconds")
    several = fitting.select(*CASE).n_unique() > 1
    fastest = fitting.sort("step_seconds", maintain_order=True)
    cases = fastest.unique(CASE if several else "point", keep="first", maintain_order=True)
    if len(cases) < 2:
        return None, len(cases)
    largest = cases.sort("gpus", descending=True, maintain_order=True).head(MOST_SHOWN)
    rows = largest.sort(*CASE[:2], "gbs", "gpus", "place").to_dicts()
    alternatives = [
        Compared.from_estimate(letter, name, *_again(study, row), {})
        for letter, name, row in zip(Comparison.LABELS, _names(study, rows), rows, strict=False)
    ]
    return Comparison(alternatives), len(cases)


def _names(study: Study, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return for each point what sets it apart."""
    rows = list(rows)
    texts = {
        "model": lambda row: str(row["model"]),
        "system": lambda row: str(row["system"]),
        "gpus": lambda row: count_of(row["gpus"], "GPU"),
        "gbs": lambda row: f"batch {row['gbs']:,}",
        **{path: _field_text(path) for path in study.fields()},
    }
    differ = [name for name in texts if len({row[name] for row in rows}) > 1]
    return [", ".join(texts[name](row) for name in differ) for row in rows]


def _field_text(path: str) -> Any:
    """Return the text of a varied field of a row."""
    name = path if path.startswith("network") else path.rpartition(".")[2]
    return lambda row: f"{name} {quantity(row[path], COLUMNS[path].unit)}"


def _again(study: Study, row: Mapping[str, Any]) -> tuple[Estimate, str]:
    """Return the estimate of a point's plan, and the framework that was searched."""
    model = next(model for model in study.models if model.name == row["model"])
    system = next(system for system in study.systems if system.name == row["system"])
    space = study.space(model, system)
    fields = {path: float(row[path]) for path in study.fields()}
    machine = vary_system(
        system, {path: value for path, value in fields.items() if not path.startswith(("model.", "plan."))}
    )
    plan = _plan(row)
    est = estimate(with_fields(model, fields), machine, plan, gbs=row["gbs"], assumptions=study.assumptions)
    return est, space.label


def _plan(row: Mapping[str, Any]) -> Plan:
    """Return the plan of a row."""
    if row.get("plan"):
        return Plan(**parse_plan(row["plan"]))
    knobs = {name: row[name] for name in KNOBS if row.get(name) is not None}
    return Plan(**STRATEGIES[row["strategy"]].choices, **knobs)
