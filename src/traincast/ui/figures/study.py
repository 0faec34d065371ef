"""Figures of a study's table over numbers of GPUs: strong scaling, and the optimal plan at each scale."""

from collections.abc import Mapping
from itertools import product
from typing import Any, Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from traincast.catalog.load import load_system
from traincast.core.errors import InputError, unknown_name_error
from traincast.core.knobs import STRATEGIES
from traincast.core.nomenclature import COLUMNS
from traincast.ui.figures.style import (
    BLACK,
    COLOURS,
    DASHES,
    GREY,
    INFEASIBLE,
    MARKERS,
    PAGE,
    SMALL,
    component_legend,
    in_unit,
    label,
    log_axes,
    panels,
    plain_ticks,
    small_ticks,
    stacked_bars,
    styled,
    unit_of,
)

VALUE_COLUMNS: Final = {  # what scales → its column
    "training_days": "training_days",
    "throughput": "tokens_per_second_per_gpu",
}
TIME_COLUMNS: Final = tuple(name for name, info in COLUMNS.items() if info.kind == "time")
MICROBATCHES: Final = "micro-batches"
MAX_VALUES_LISTED: Final = 8


def unique(frame: pl.DataFrame, name: str) -> list[Any]:
    """Return the values of a column in order of appearance."""
    return frame[name].unique(maintain_order=True).to_list()


def best_rows(frame: pl.DataFrame, what: str, *single: str) -> pl.DataFrame:
    """Return the best plan of every point; columns that must have a `single` value are checked."""
    rows = frame.filter(pl.col("rank") == 1)
    problems = [] if len(rows) else ["the table has no rows"]
    for name in single:
        if len(values := unique(rows, name)) > 1:
            more = ", …" if len(values) > MAX_VALUES_LISTED else ""
            listed = ", ".join(map(str, values[:MAX_VALUES_LISTED])) + more
            count = f"the table has {len(values)} ({listed})"
            problems.append(f"the figure is of one {name}, {count}: select one")
    if problems:
        raise InputError(what, problems)
    return rows


@styled
def strong_scaling(frame: pl.DataFrame, value: str = "training_days") -> Figure:
    """Draw length of training, or throughput of a GPU, against the number of GPUs (study 1 of the paper).

    A panel for each model, a line for each system and strategy, without a point where nothing fits.
    Throughput is normalised to the first system's run on the fewest GPUs.
    """
    if value not in VALUE_COLUMNS:
        raise unknown_name_error("value", value, VALUE_COLUMNS)
    column = VALUE_COLUMNS[value]
    rows = best_rows(frame, "strong scaling", "gbs", "point").drop_nulls(column)
    if not len(rows):
        raise InputError("strong scaling", [f"no plan fits, or {column} is not known of any"])
    systems = {name: _split_name(name) for name in unique(rows, "system")}
    accelerators, domains = (list(dict.fromkeys(part)) for part in zip(*systems.values(), strict=True))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(accelerators)}
    markers = {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(domains)}
    dashes = dict(zip(unique(rows, "strategy"), DASHES, strict=False))
    models = unique(rows, "model")
    figure, axes = panels(len(models), height=3.5)
    for ax, model in zip(axes, models, strict=True):
        model_rows = rows.filter(pl.col("model") == model)
        size, title, y_label = in_unit(column, 1.0), model, label(column)
        if value == "throughput":
            (size, title), y_label = _normalisation(model_rows), f"{label(column, '')}, normalised"
        for (system, (chip, domain)), strategy in product(systems.items(), dashes):
            line = model_rows.filter(pl.col("system") == system, pl.col("strategy") == strategy).sort("gpus")
            look = {"color": colours[chip], "marker": markers[domain], "linestyle": dashes[strategy]}
            ax.plot(line["gpus"], line[column] * size, label=f"{system} {strategy}", alpha=0.85, **look)
        log_axes(ax)
        gpus = sorted(unique(model_rows, "gpus"))
        ticks = gpus[:: -(len(gpus) // -8)]
        plain_ticks(ax.xaxis, ticks, ticks)
        ax.grid(True)
        ax.set(title=title, xlabel=label("gpus"), ylabel=y_label)
    _legend(figure, colours, markers, dashes)
    return figure


def _split_name(system: str) -> tuple[str, str]:
    """Return accelerator and fast domain of a system's name: ``"a100-nvs4"`` is an A100 in domains of 4."""
    accelerator, _, domain = system.rpartition("-nvs")
    return (accelerator, domain) if accelerator else (system, "")


def _normalisation(rows: pl.DataFrame) -> tuple[float, str]:
    """Return 1 / throughput of the first system on the fewest GPUs [s/token], and a title with that run."""
    first = rows.filter(pl.col("system") == rows["system"][0])
    run = first.filter(pl.col("gpus") == first["gpus"].min()).sort("step_seconds").row(0, named=True)
    title = f"{run['model']} (1 = {run['system']}, {run['strategy']}, {run['gpus']} GPUs)"
    return 1 / run["tokens_per_second_per_gpu"], title


def _legend(
    figure: Figure, chip_colours: dict[str, str], domain_markers: dict[str, str], dashes: Mapping[str, Any]
) -> None:
    """Draw the legend of colours, markers and line styles in three groups below the panels."""
    colours = [Line2D([], [], color=colour, label=name) for name, colour in chip_colours.items()]
    marker_style: dict[str, Any] = {"color": BLACK, "linestyle": ""}
    markers = [
        Line2D([], [], marker=marker, label=f"domain of {size}", **marker_style)
        for size, marker in domain_markers.items()
        if size
    ]
    lines = [Line2D([], [], color=BLACK, linestyle=dash, label=name) for name, dash in dashes.items()]
    groups = [group for group in (colours, markers, lines) if group]
    rows = max(map(len, groups))
    blank = Line2D([], [], linestyle="", label=" ")
    handles = [handle for group in groups for handle in group + [blank] * (rows - len(group))]
    figure.legend(handles=handles, ncols=len(groups), loc="outside lower center")


@styled
def optima(frame: pl.DataFrame, capacity: float | None = None) -> Figure:
    """Draw the optimal plan, its memory and its time on each number of GPUs (arXiv 2410.00273, study 2).

    The rows are of one model, system and strategy; the capacity [byte] is the catalogue's where it is not
    given.
    """
    rows = best_rows(frame, "optima", "model", "system", "strategy", "gbs", "point").sort("gpus")
    infeasible = rows["step_seconds"].is_null()
    if infeasible.all():
        raise InputError("optima", ["no plan fits"])
    knobs = [axis for axis in STRATEGIES[rows["strategy"][0]].axes if axis in rows.columns]
    figure = Figure((PAGE, 5.6), layout="constrained")
    heights = (0.28 * (len(knobs) + 4), 1.4, 2)
    grid, middle, bottom = axes = figure.subplots(3, 1, sharex=True, height_ratios=heights)
    small_ticks(*axes)
    _draw_configurations(grid, rows, knobs)
    _draw_memory(middle, rows, capacity)
    components = _draw_time_split(bottom, rows)
    for place, ax in product(np.flatnonzero(infeasible), axes):
        ax.axvspan(place - 0.5, place + 0.5, zorder=0, **INFEASIBLE)
    bottom.set_xticks(range(len(rows)), [f"{gpus:,}" for gpus in rows["gpus"]])
    bottom.set_xlim(-0.5, len(rows) - 0.5)
    bottom.set_xlabel(label("gpus"))
    job = f"{rows['model'][0]} on {rows['system'][0]}, {rows['strategy'][0]}"
    grid.set_title(f"{job}, batch of {rows['gbs'][0]} sequences")
    handles = component_legend(components)
    if infeasible.any():
        handles.append(Patch(label="does not fit", **INFEASIBLE))
    figure.legend(handles=handles, ncols=4, loc="outside lower center")
    return figure


def _draw_configurations(ax: Axes, rows: pl.DataFrame, knobs: list[str]) -> None:
    """Draw degrees, micro-batches and placement as a table, degrees shaded by their size."""
    counts = rows.with_columns((pl.col("gbs") / pl.col("dp") / pl.col("mbs")).alias(MICROBATCHES))
    names = [*knobs, "mbs", MICROBATCHES, *(["panels"] if rows["strategy"][0] == "summa" else [])]
    sizes = np.log2(counts.select(names).to_numpy().T.astype(float))
    extent = (-0.5, len(rows) - 0.5, len(names) - 0.5, -0.5)
    ax.imshow(sizes, cmap="Blues", vmin=0, vmax=24, aspect="auto", extent=extent, zorder=1)
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL}
    for place, row in enumerate(counts.iter_rows(named=True)):
        if row["step_seconds"] is None:
            continue
        for line, name in enumerate(names):
            ax.text(place, line, f"{row[name]:.0f}", **look)
        ax.text(place, len(names), "·".join(f"{row[f'fast_{axis}']}" for axis in knobs), **look)
    ax.set_yticks(range(len(names) + 1), [*names, f"fast {'·'.join(knobs)}"])
    ax.set_ylim(len(names) + 0.5, -0.5)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _draw_memory(ax: Axes, rows: pl.DataFrame, capacity: float | None) -> None:
    """Draw the memory of the fullest rank against capacity."""
    memory = in_unit("memory_bytes", rows["memory_bytes"].to_numpy())
    ax.bar(range(len(rows)), memory, color=GREY, width=0.7)
    ax.set_ylabel(f"Memory [{unit_of('memory_bytes')[0]}]")
    if capacity is None:
        try:
            capacity = float(load_system(rows["system"][0]).accelerator.hbm_bytes)
        except InputError:  # a machine by hand
            return
    limit: Any = in_unit("memory_bytes", capacity)
    ax.axhline(limit, color=BLACK, linestyle="--", linewidth=0.8)
    look: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "fontsize": SMALL}
    ax.text(1, limit, "capacity", va="bottom", ha="right", **look)
    ax.set_ylim(0, limit * 1.18)


def _draw_time_split(ax: Axes, rows: pl.DataFrame) -> list[str]:
    """Draw the shares of the step time as stacked bars. Returns the components that there are."""
    names = [name for name in TIME_COLUMNS if (rows[name].fill_null(0) > 0).any()]
    shares = {name: 100 * (rows[name] / rows["step_seconds"]).fill_null(0).to_numpy() for name in names}
    stacked_bars(ax, shares, width=0.7)
    ax.set_ylim(0, 100)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("Share of step time [%]")
    return names
