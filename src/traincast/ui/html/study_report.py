"""HTML report on a study: the best plan at every point, and how it changes over the sweep."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from traincast.core.assumptions import Assumptions
from traincast.core.model import Model
from traincast.core.plan_choices import STRATEGIES
from traincast.core.quantities import COLUMNS
from traincast.core.system import System
from traincast.core.units import count_of, gib, quantity, seconds
from traincast.planner.study.results import Results
from traincast.ui.html.elements import MAX_TABLE_ROWS, Html, Section, joined, pairs, paragraph, table, tiles
from traincast.ui.html.page import Page
from traincast.ui.html.sources import assumptions, figures_of
from traincast.ui.html.svg import drawing
from traincast.ui.text.plans import days

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IDENTIFYING_COLUMNS: Final = (
    "model",
    "system",
    "strategy",
    "gbs",
)  # columns that identify a row, beside GPUs and varied fields

TABLE_KNOBS: Final = ("tp", "tp2", "cp", "pp", "vp", "dp", "mbs", "panels")


def page(results: Results, given: tuple[Model | System, ...] = ()) -> Page:
    """Return the report on a study.

    Parameters
    ----------
    results : Results
        Table of the study.
    given : tuple of Model and System, optional
        Models and systems of the study, to list their figures.
    """
    rows = results.frame.filter(pl.col("rank") == 1)
    fitting = rows.drop_nulls("step_seconds")
    study = results.metadata["study"]
    remarks = [
        f"{count_of(int(rows['candidates'].sum()), 'candidate')} decided; assumptions: {study['assumptions']['name']}"
    ]
    sections = (
        _question_section(study, rows),
        *_figure_sections(rows, study),
        _points_section(rows, study),
        *_foundation_sections(results, given),
    )
    if not len(fitting):
        return Page(
            "Study",
            study["name"],
            remarks,
            paragraph(f"Nothing fits at any of {count_of(len(rows), 'point')}."),
            sections,
            fits=False,
        )
    answer = joined((paragraph(_answer(rows, fitting)), tiles(_summary(rows, fitting))))
    return Page("Study", study["name"], remarks, answer, sections)


def _answer(rows: pl.DataFrame, fitting: pl.DataFrame) -> str:
    """Return a sentence on the fastest of all points."""
    best = fitting.sort("step_seconds").row(0, named=True)
    where = (
        f"{best['model']} on {count_of(best['gpus'], 'GPU')} of {best['system']}, strategy {best['strategy']}"
    )
    fit = f"Of {count_of(len(rows), 'point')} {len(fitting):,} have a plan that fits"
    return f"{fit}; the fastest step takes {seconds(best['step_seconds'])}: {where}."


def _summary(rows: pl.DataFrame, fitting: pl.DataFrame) -> Iterator[tuple[str, object, object]]:
    """Yield the key figures."""
    yield "Points", f"{len(rows):,}", f"{len(rows) - len(fitting):,} where nothing fits"
    best = fitting.sort("step_seconds").row(0, named=True)
    yield "The fastest step", seconds(best["step_seconds"]), f"{best['gpus']:,} GPUs of {best['system']}"
    if best["training_days"] is not None:
        yield "Its whole run", days(best["training_days"]), best["model"]
    thrifty = fitting.sort("tokens_per_second_per_gpu", descending=True).row(0, named=True)
    most = f"{thrifty['tokens_per_second_per_gpu']:,.0f} token/s"
    yield "Most from a GPU", most, f"{thrifty['model']} on {thrifty['gpus']:,} GPUs of {thrifty['system']}"


def _question_section(study: Mapping[str, Any], rows: pl.DataFrame) -> Section:
    """Return the section on what was swept."""
    pairs_shown: list[tuple[str, object]] = [
        ("Models", ", ".join(study["models"])),
        ("Systems", ", ".join(study["systems"])),
        ("GPUs", ", ".join(f"{n:,}" for n in study["gpus"])),
        ("Strategies", ", ".join(study["strategies"])),
        ("Global batch", ", ".join(count_of(n, "sequence") for n in study["batches"])),
        ("Assumptions", study["assumptions"]["name"]),
        ("Plans kept", f"{study['top']} at each point"),
    ]
    for path, values in chain.from_iterable(axis.items() for axis in study["vary"]):
        pairs_shown.append(
            (
                path,
                f"{len(values)} values from {_value_text(path, min(values))} to {_value_text(path, max(values))}",
            )
        )
    pairs_shown.append(
        ("Candidates", f"{int(rows['candidates'].sum()):,}, of which {int(rows['feasible'].sum()):,} fit")
    )
    return Section("question", "The question", pairs(pairs_shown))


def _figure_sections(rows: pl.DataFrame, study: Mapping[str, Any]) -> Iterator[Section]:
    """Yield a section for each figure that can be drawn of the table."""
    for key, title, figure, caption in _figure_descriptions(rows, study):
        alternative = f"{caption} The table of points holds the numbers."
        yield Section(key, title, drawing(f"{key}-figure", figure, caption, alternative))


def _figure_descriptions(
    rows: pl.DataFrame, study: Mapping[str, Any]
) -> Iterator[tuple[str, str, "Figure", str]]:
    """Yield key, title, figure and caption of each figure."""
    from traincast.ui.figures import contour, optima, strong_scaling

    fitting = rows.drop_nulls("step_seconds")
    single_sweep = rows["gbs"].n_unique() == 1 and rows["point"].n_unique() == 1
    if single_sweep and rows["gpus"].n_unique() > 1 and len(fitting):
        if len(fitting.drop_nulls("training_days")):
            caption = "Length of training against GPUs, each point with its own best plan."
            yield "scaling", "Strong scaling", strong_scaling(rows), caption
        caption = "Throughput of a GPU against GPUs, relative to the first system's run on the fewest."
        yield "throughput", "Throughput", strong_scaling(rows, "throughput"), caption
        for number, model in enumerate(dict.fromkeys(fitting["model"])):
            model_rows = _fastest_series(rows, fitting.filter(pl.col("model") == model))
            caption = f"The best plan on each number of GPUs for {model}: degrees, memory, and what its time goes to."
            yield (
                f"optima-{number}",
                f"Best plans of {model}",
                optima(model_rows, _capacity(model_rows)),
                caption,
            )
    axes = [next(iter(axis)) for axis in study["vary"]]
    if len(axes) > 1 and rows["gbs"].n_unique() == 1 and len(fitting):
        value = "training_days" if len(fitting.drop_nulls("training_days")) else "step_seconds"
        largest = int(max(rows["gpus"]))
        for number, model in enumerate(dict.fromkeys(fitting["model"])):
            model_rows = rows.filter(pl.col("model") == model)
            caption = f"{COLUMNS[value].meaning.capitalize()} at the best plan: {model} on {largest:,} GPUs over two figures."
            yield (
                f"contour-{number}",
                f"Over the sweep: {model}",
                contour(model_rows, axes[0], axes[1], largest, value),
                caption,
            )


def _fastest_series(rows: pl.DataFrame, fitting: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the model, system and strategy of the fastest point."""
    best = fitting.sort("step_seconds").row(0, named=True)
    return rows.filter(*(pl.col(name) == best[name] for name in ("model", "system", "strategy")))


def _capacity(rows: pl.DataFrame) -> float | None:
    """Return the memory of the accelerator that the study sets [byte], or None."""
    return float(rows["accelerator.hbm_bytes"][0]) if "accelerator.hbm_bytes" in rows.columns else None


def _points_section(rows: pl.DataFrame, study: Mapping[str, Any]) -> Section:
    """Return the best plan at every point; of long tables the best point on each number of GPUs."""
    caption = "Each point with its best plan"
    if len(rows) > MAX_TABLE_ROWS:
        caption = f"The fastest of {len(rows):,} points on each number of GPUs; the study's table holds all"
        named = _identifying_columns(rows)
        fastest = rows.sort("step_seconds", nulls_last=True, maintain_order=True)
        rows = fastest.unique(["gpus", *named], keep="first", maintain_order=True).sort(*named, "gpus")
    return Section("points", "The best plan at every point", point_table(rows, study, caption))


def first_points(results: Results, limit: int) -> Html:
    """Return the first points of a study."""
    rows = results.frame.filter(pl.col("rank") == 1)
    caption = (
        "Each point with its best plan"
        if len(rows) <= limit
        else f"The first {limit} of {len(rows):,} points, each with its best plan"
    )
    return point_table(rows.head(limit), results.metadata["study"], caption)


def point_table(rows: pl.DataFrame, study: Mapping[str, Any], caption: str) -> Html:
    """Return a table of points, each with its best plan."""
    varied, named = list(chain.from_iterable(study["vary"])), _identifying_columns(rows)
    knobs = [name for name in TABLE_KNOBS if name in rows.columns and (rows[name] > 1).any()]
    header = (
        "GPUs",
        *named,
        *map(_column_title, varied),
        "step",
        "memory",
        "whole run",
        *knobs,
        "fast",
        "candidates",
        "fit",
    )

    def cells(row: Mapping[str, Any]) -> tuple[object, ...]:
        fields = (*(row[name] for name in named), *(_value_text(path, row[path]) for path in varied))
        counts = (f"{row['candidates']:,}", f"{row['feasible']:,}")
        if row["step_seconds"] is None:
            return (f"{row['gpus']:,}", *fields, "does not fit", "", "", *("" for _ in knobs), "", *counts)
        run_length = "" if row["training_days"] is None else days(row["training_days"])
        fast = "·".join(str(row[f"fast_{axis}"]) for axis in STRATEGIES[row["strategy"]].axes)
        results_text = (seconds(row["step_seconds"]), gib(row["memory_bytes"]), run_length)
        return (f"{row['gpus']:,}", *fields, *results_text, *(row[name] for name in knobs), fast, *counts)

    return table(caption, header, map(cells, rows.to_dicts()), [name for name in named if name != "gbs"])


def _identifying_columns(rows: pl.DataFrame) -> list[str]:
    """Return the identifying columns with more than one value."""
    return [name for name in IDENTIFYING_COLUMNS if rows[name].n_unique() > 1]


def _column_title(path: str) -> str:
    """Return a short title of a varied field."""
    return path.rpartition(".")[2] if path.startswith(("accelerator.", "model.", "plan.")) else path


def _value_text(path: str, value: float) -> str:
    """Return a value of a varied field with its unit."""
    return quantity(value, COLUMNS[path].unit)


def _foundation_sections(results: Results, given: tuple[Model | System, ...]) -> Iterator[Section]:
    """Yield the sections on uncertainty, figures, assumptions and inputs."""
    yield Section("uncertainty", "How sure this is", _interval_section(results))
    for number, source in enumerate(given):
        kind = "model" if isinstance(source, Model) else "machine"
        yield Section(f"{kind}-{number}", f"The {kind}: {source.name}", figures_of(source))
    assumed = Assumptions(**results.metadata["study"]["assumptions"])
    yield Section("assumptions", f"What is assumed: {assumed.name}", assumptions(assumed))
    rows = ((name, value) for name, value in results.metadata["inputs"].items())
    yield Section(
        "inputs",
        "Fingerprints of the inputs",
        table("SHA-256 of every model and system as it was used", ("input", "hash"), rows, ("hash",)),
    )


def _interval_section(results: Results) -> Html:
    """Return sentences on the intervals of the best plans."""
    frame = results.frame.filter(pl.col("rank") == 1)
    if "step_seconds_high" not in frame.columns:
        return paragraph("No interval is known for these assumptions.")
    known = frame.drop_nulls("step_seconds")
    relative_error = known["step_seconds_high"] / known["step_seconds"] - 1
    if not len(relative_error):
        return paragraph("Nothing fits, so that there is no time to be sure of.")
    low, high = _percent(relative_error.min()), _percent(relative_error.max())
    sentence = f"90% of measured times lie within {low} to {high} of such predictions, by point."
    fits = known["fits_probability"]
    fit_sentence = (
        f"The best plans fit with probabilities of {_percent(fits.min())} to {_percent(fits.max())}."
    )
    return joined((paragraph(sentence), paragraph(fit_sentence)))


def _percent(share: Any) -> str:
    """Return a share as whole percent."""
    return f"{float(share):.0%}"
