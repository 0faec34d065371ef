"""HTML report on a study: the best plan at every point, and how it changes over the sweep."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from traincast.core import (
    CAPACITY_PATH,
    COLUMNS,
    STRATEGIES,
    Assumptions,
    InputError,
    System,
    count_of,
    gib,
    quantity,
    seconds,
)
from traincast.model import Model
from traincast.planner import Results
from traincast.ui.html.rendering import MAX_TABLE_ROWS, Page, Pairs, Table, Tiles
from traincast.ui.html.sources import assumptions, model_figures, system_figures
from traincast.ui.text.headline import days

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IDENTIFYING_COLUMNS: Final = ("model", "system", "strategy", "gbs")  # besides GPUs and varied fields
TABLE_KNOBS: Final = ("tp", "tp2", "cp", "pp", "vp", "dp", "mbs", "panels")


def page(results: Results, given: tuple[Model | System, ...] = ()) -> Page:
    """Return the report on a study; the figures of the models and systems given are listed."""
    rows = results.frame.filter(pl.col("rank") == 1)
    fitting = rows.drop_nulls("step_seconds")
    study = results.metadata["study"]
    subjects = [
        model_figures(source, f"model-{i}")
        if isinstance(source, Model)
        else system_figures(source, f"machine-{i}")
        for i, source in enumerate(given)
    ]
    caption = "SHA-256 of every model and system as it was used"
    content: dict[str, object] = {
        "answer": _answer(rows, fitting),
        "summary": list(_summary(rows, fitting)) if len(fitting) else [],
        "question": list(_question(study, rows)),
        "figures": list(_figures(rows, study)),
        "points": _points(rows, study),
        "uncertainty": list(_uncertainty(rows)),
        "subjects": [*subjects, assumptions(Assumptions.from_dict(study["assumptions"]))],
        "inputs": Table(caption, ("input", "hash"), list(results.metadata["inputs"].items()), ("hash",)),
    }
    decided = count_of(int(rows["candidates"].sum()), "candidate")
    remarks = [f"{decided} decided; assumptions: {study['assumptions']['name']}"]
    return Page("Study", study["name"], remarks, "study.html.jinja", content, bool(len(fitting)))


def _answer(rows: pl.DataFrame, fitting: pl.DataFrame) -> str:
    """Return a sentence on the fastest of all points."""
    if not len(fitting):
        return f"Nothing fits at any of {count_of(len(rows), 'point')}."
    best = _fastest(fitting)
    machine = f"{count_of(best['gpus'], 'GPU')} of {best['system']}"
    job = f"{best['model']} on {machine}, strategy {best['strategy']}"
    fit = f"Of {count_of(len(rows), 'point')} {len(fitting):,} have a plan that fits"
    return f"{fit}; the fastest step takes {seconds(best['step_seconds'])}: {job}."


def _fastest(fitting: pl.DataFrame) -> dict[str, Any]:
    return fitting.sort("step_seconds").row(0, named=True)


def _summary(rows: pl.DataFrame, fitting: pl.DataFrame) -> Tiles:
    yield "Points", f"{len(rows):,}", f"{len(rows) - len(fitting):,} where nothing fits"
    best = _fastest(fitting)
    yield "The fastest step", seconds(best["step_seconds"]), f"{best['gpus']:,} GPUs of {best['system']}"
    if best["training_days"] is not None:
        yield "Its whole run", days(best["training_days"]), best["model"]
    thrifty = fitting.sort("tokens_per_second_per_gpu", descending=True).row(0, named=True)
    job = f"{thrifty['model']} on {thrifty['gpus']:,} GPUs of {thrifty['system']}"
    yield "Most from a GPU", f"{thrifty['tokens_per_second_per_gpu']:,.0f} token/s", job


def _question(study: Mapping[str, Any], rows: pl.DataFrame) -> Pairs:
    yield "Models", ", ".join(study["models"])
    yield "Systems", ", ".join(study["systems"])
    yield "GPUs", ", ".join(f"{n:,}" for n in study["gpus"])
    yield "Strategies", ", ".join(study["strategies"])
    yield "Global batch", ", ".join(count_of(n, "sequence") for n in study["batches"])
    yield "Assumptions", study["assumptions"]["name"]
    yield "Plans kept", f"{study['top']} at each point"
    for path, values in chain.from_iterable(axis.items() for axis in study["vary"]):
        low, high = (quantity(end(values), COLUMNS[path].unit) for end in (min, max))
        yield path, f"{len(values)} values from {low} to {high}"
    yield "Candidates", f"{rows['candidates'].sum():,}, of which {rows['feasible'].sum():,} fit"


def _figures(rows: pl.DataFrame, study: Mapping[str, Any]) -> Iterator[tuple[str, str, "Figure", str]]:
    """Yield key, title, figure and caption of each figure that can be drawn of the table."""
    from traincast.ui.figures import contour, optima, strong_scaling

    fitting = rows.drop_nulls("step_seconds")
    if not len(fitting) or rows["gbs"].n_unique() > 1:
        return
    has_days = len(fitting.drop_nulls("training_days")) > 0
    models = list(enumerate(dict.fromkeys(fitting["model"])))
    if rows["point"].n_unique() == 1 and rows["gpus"].n_unique() > 1:
        if has_days:
            caption = "Length of training against GPUs, each point with its own best plan."
            yield "scaling", "Strong scaling", strong_scaling(rows), caption
        caption = "Throughput of a GPU against GPUs, relative to the first system's run on the fewest."
        yield "throughput", "Throughput", strong_scaling(rows, "throughput"), caption
        for number, model in models:
            best = _fastest(fitting.filter(pl.col("model") == model))
            series = rows.filter(*(pl.col(name) == best[name] for name in ("model", "system", "strategy")))
            shown = "degrees, memory, and time by component"
            caption = f"The best plan on each number of GPUs for {model}: {shown}."
            capacity = (
                series[CAPACITY_PATH][0] if CAPACITY_PATH in series.columns else None
            )  # that the study sets
            yield f"optima-{number}", f"Best plans of {model}", optima(series, capacity), caption
    axes = [next(iter(axis)) for axis in study["vary"]]
    if len(axes) > 1:
        value = "training_days" if has_days else "step_seconds"
        gpus = int(max(rows["gpus"]))
        for number, model in models:
            try:
                figure = contour(rows.filter(pl.col("model") == model), axes[0], axes[1], gpus, value)
            except InputError:  # more values of further axes than panels
                continue
            meaning = COLUMNS[value].meaning.capitalize()
            caption = f"{meaning} at the best plan: {model} on {gpus:,} GPUs over two figures."
            yield f"contour-{number}", f"Over the sweep: {model}", figure, caption


def _points(rows: pl.DataFrame, study: Mapping[str, object]) -> Table:
    """Return the best plan at every point; of long tables the best point on each number of GPUs."""
    caption = "Each point with its best plan"
    if len(rows) > MAX_TABLE_ROWS:
        caption = f"The fastest of {len(rows):,} points on each number of GPUs; the study's table holds all"
        identifying = _identifying_columns(rows)
        fastest = rows.sort("step_seconds", nulls_last=True, maintain_order=True)
        rows = fastest.unique(["gpus", *identifying], keep="first", maintain_order=True)
        rows = rows.sort(*identifying, "gpus")
    return _point_table(rows, study, caption)


def first_points(results: Results, limit: int) -> Table:
    """Return the first points of a study."""
    rows = results.frame.filter(pl.col("rank") == 1)
    caption = "Each point with its best plan"
    if len(rows) > limit:
        caption = f"The first {limit} of {len(rows):,} points, each with its best plan"
    return _point_table(rows.head(limit), results.metadata["study"], caption)


def _point_table(rows: pl.DataFrame, study: Mapping[str, Any], caption: str) -> Table:
    varied = list(chain.from_iterable(study["vary"]))
    identifying = _identifying_columns(rows)
    knobs = [name for name in TABLE_KNOBS if name in rows.columns and (rows[name] > 1).any()]
    results = ("step", "memory", "whole run", *knobs, "fast")
    titles = (path if path.startswith("network") else path.rpartition(".")[2] for path in varied)
    header = ("GPUs", *identifying, *titles, *results, "candidates", "fit")

    def result_cells(row: Mapping[str, Any]) -> list[object]:
        if row["step_seconds"] is None:
            return ["does not fit", *[""] * (len(results) - 1)]
        run_length = "" if row["training_days"] is None else days(row["training_days"])
        fast = "·".join(str(row[f"fast_{axis}"]) for axis in STRATEGIES[row["strategy"]].axes)
        times = (seconds(row["step_seconds"]), gib(row["memory_bytes"]), run_length)
        return [*times, *(row[name] for name in knobs), fast]

    cells = []
    for row in rows.to_dicts():
        fields = [
            *(row[name] for name in identifying),
            *(quantity(row[path], COLUMNS[path].unit) for path in varied),
        ]
        counts = (f"{row['candidates']:,}", f"{row['feasible']:,}")
        cells.append([f"{row['gpus']:,}", *fields, *result_cells(row), *counts])
    return Table(caption, header, cells, [name for name in identifying if name != "gbs"])


def _identifying_columns(rows: pl.DataFrame) -> list[str]:
    return [name for name in IDENTIFYING_COLUMNS if rows[name].n_unique() > 1]


def _uncertainty(rows: pl.DataFrame) -> Iterator[str]:
    """Yield sentences on the intervals of the best plans."""
    if "step_seconds_high" not in rows.columns:
        yield "No interval is known for these assumptions."
        return
    known = rows.drop_nulls("step_seconds")
    if not len(known):
        yield "Nothing fits, so that no step time is given."
        return
    error = (known["step_seconds_high"] / known["step_seconds"] - 1).to_numpy()
    fits = known["fits_probability"].to_numpy()
    within = f"{error.min():.0%} to {error.max():.0%}"
    yield f"The 90% interval of a time is within {within} of it, by point."
    yield f"The best plans fit with probabilities of {fits.min():.0%} to {fits.max():.0%}."
