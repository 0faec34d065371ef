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
from traincast.planner.misfit import label as component_name
from traincast.ui.figures.style import (
    BLACK,
    COLOURS,
    COMPONENTS,
    DASHES,
    GREY,
    INFEASIBLE,
    MARKERS,
    PAGE,
    SMALL,
    best_rows,
    in_unit,
    label,
    log_axes,
    panels,
    plain_ticks,
    styled,
    unique,
    unit_of,
)

VALUE_COLUMNS: Final = {
    "training_days": "training_days",
    "throughput": "tokens_per_second_per_gpu",
}  # what scales → its column
TIME_COLUMNS: Final = tuple(name for name, info in COLUMNS.items() if info.kind == "time")
MICROBATCHES: Final = "micro-batches"


@styled
def strong_scaling(frame: pl.DataFrame, value: str = "training_days") -> Figure:
    """Draw length of training, or throughput of one GPU, against the number of GPUs (arXiv 2410.00273, study 1).

    Parameters
    ----------
    frame : polars.DataFrame
        A study's table; one panel for each model, one line for each system and strategy. Where nothing fits a line has no point.
    value : {"training_days", "throughput"}
        Throughput is normalised to the first system's run on the fewest GPUs.

    Raises
    ------
    InputError
        If the value is another, the table has more than one batch or point on varied fields, or nothing fits.
    """
    if value not in VALUE_COLUMNS:
        raise unknown_name_error("value", value, VALUE_COLUMNS)
    column = VALUE_COLUMNS[value]
    rows = best_rows(frame, "strong scaling", "gbs", "point").drop_nulls(column)
    if not len(rows):
        raise InputError("strong scaling", [f"no plan fits, or {column} is not known of any"])
    systems = {name: split_name(name) for name in unique(rows, "system")}
    accelerators, domains = (list(dict.fromkeys(part)) for part in zip(*systems.values(), strict=True))
    colours = {name: (COLOURS[i % len(COLOURS)]) for i, name in enumerate(accelerators)}
    markers = {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(domains)}
    dashes = dict(zip(unique(rows, "strategy"), DASHES, strict=False))
    models = unique(rows, "model")
    figure, axes = panels(len(models), height=3.5)
    for ax, model in zip(axes, models, strict=True):
        model_rows = rows.filter(pl.col("model") == model)
        size, title = (
            (in_unit(column, 1.0), model) if value == "training_days" else _normalisation(model_rows)
        )
        for (system, (chip, domain)), strategy in product(systems.items(), dashes):
            line = model_rows.filter(pl.col("system") == system, pl.col("strategy") == strategy).sort("gpus")
            line_style = {"color": colours[chip], "marker": markers[domain], "linestyle": dashes[strategy]}
            ax.plot(line["gpus"], line[column] * size, label=f"{system} {strategy}", alpha=0.85, **line_style)
        _scaling_axes(ax, unique(model_rows, "gpus"))
        ax.set_title(title)
        ax.set_ylabel(label(column) if value == "training_days" else f"{label(column, '')}, normalised")
    _legend(figure, colours, markers, dashes)
    return figure


def split_name(system: str) -> tuple[str, str]:
    """Return accelerator and fast domain of a system's name: ``"a100-nvs4"`` is an A100 in domains of 4."""
    accelerator, _, domain = system.rpartition("-nvs")
    return (accelerator, domain) if accelerator else (system, "")


def _normalisation(rows: pl.DataFrame) -> tuple[float, str]:
    """Return one over the throughput of the first system on the fewest GPUs [s/token], and a title that names that run."""
    first = rows.filter(pl.col("system") == rows["system"][0])
    run = first.filter(pl.col("gpus") == first["gpus"].min()).sort("step_seconds").row(0, named=True)
    title = f"{run['model']} (1 = {run['system']}, {run['strategy']}, {run['gpus']} GPUs)"
    return 1 / run["tokens_per_second_per_gpu"], title


def _scaling_axes(ax: Axes, sizes: list[int]) -> None:
    """Set logarithmic axes of a scaling panel, with ticks at the numbers of GPUs."""
    log_axes(ax)
    shown = sorted(sizes)[:: -(len(sizes) // -8)]
    plain_ticks(ax.xaxis, shown, shown)
    ax.grid(True)
    ax.set_xlabel(label("gpus"))


def _legend(
    figure: Figure, chip_colours: dict[str, str], domain_markers: dict[str, str], dashes: Mapping[str, Any]
) -> None:
    """Draw the legend of colours, markers and line styles in three groups below the panels."""
    colours = [Line2D([], [], color=colour, label=name) for name, colour in chip_colours.items()]
    markers = [
        Line2D([], [], color=BLACK, marker=mark, linestyle="", label=f"domain of {size}")
        for size, mark in domain_markers.items()
        if size
    ]
    lines = [Line2D([], [], color=BLACK, linestyle=dash, label=name) for name, dash in dashes.items()]
    rows = max(map(len, (colours, markers, lines)))
    blank = Line2D([], [], linestyle="", label=" ")
    groups = [group + [blank] * (rows - len(group)) for group in (colours, markers, lines) if group]
    figure.legend(
        handles=[handle for group in groups for handle in group],
        ncols=len(groups),
        loc="outside lower center",
    )


@styled
def optima(frame: pl.DataFrame, capacity: float | None = None) -> Figure:
    """Draw the optimal plan on each number of GPUs, its memory, and its time by component (arXiv 2410.00273, study 2).

    Parameters
    ----------
    frame : polars.DataFrame
        Rows of one model, system and strategy of a study's table.
    capacity : float, optional
        Memory of the accelerator [byte]; the catalogue's for the system where it is not given.

    Raises
    ------
    InputError
        If the table has several models, systems, strategies, batches or points, or nothing fits.
    """
    rows = best_rows(frame, "optima", "model", "system", "strategy", "gbs", "point").sort("gpus")
    if rows["step_seconds"].null_count() == len(rows):
        raise InputError("optima", ["no plan fits"])
    knobs = [axis for axis in STRATEGIES[rows["strategy"][0]].axes if axis in rows.columns]
    figure = Figure((PAGE, 5.6), layout="constrained")
    grid, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(0.28 * (len(knobs) + 4), 1.4, 2))
    for ax in (grid, middle, bottom):
        ax.tick_params(labelsize=7, width=0.6)
    _draw_configurations(grid, rows, knobs)
    _draw_memory(middle, rows, capacity)
    spent = [name for name in TIME_COLUMNS if (rows[name].fill_null(0) > 0).any()]
    _draw_time_split(bottom, rows, spent)
    for place in np.flatnonzero(rows["step_seconds"].is_null()):
        for ax in (grid, middle, bottom):
            ax.axvspan(place - 0.5, place + 0.5, zorder=0, **INFEASIBLE)
    bottom.set_xticks(range(len(rows)), [f"{gpus:,}" for gpus in rows["gpus"]])
    bottom.set_xlim(-0.5, len(rows) - 0.5)
    bottom.set_xlabel(label("gpus"))
    grid.set_title(
        f"{rows['model'][0]} on {rows['system'][0]}, {rows['strategy'][0]}, batch of {rows['gbs'][0]} sequences"
    )
    handles = [
        Patch(facecolor=COMPONENTS[n][0], hatch=COMPONENTS[n][1], edgecolor="white", label=component_name(n))
        for n in spent
    ]
    if rows["step_seconds"].null_count():
        handles.append(Patch(label="does not fit", **INFEASIBLE))
    figure.legend(handles=handles, ncols=4, loc="outside lower center")
    return figure


def _draw_configurations(ax: Axes, rows: pl.DataFrame, knobs: list[str]) -> None:
    """Draw degrees, micro-batches and placement as a table, degrees shaded by their size."""
    counts = rows.with_columns((pl.col("gbs") / pl.col("dp") / pl.col("mbs")).alias(MICROBATCHES))
    names = [*knobs, "mbs", MICROBATCHES, *(["panels"] if rows["strategy"][0] == "summa" else [])]
    sizes = np.log2(counts.select(names).to_numpy().T.astype(float))
    ax.imshow(
        sizes,
        cmap="Blues",
        vmin=0,
        vmax=24,
        aspect="auto",
        extent=(-0.5, len(rows) - 0.5, len(names) - 0.5, -0.5),
        zorder=1,
    )
    for (line, name), (place, row) in product(enumerate(names), enumerate(counts.iter_rows(named=True))):
        if row[name] is not None:
            ax.text(place, line, f"{row[name]:.0f}", ha="center", va="center", fontsize=SMALL)
    for place, row in enumerate(counts.iter_rows(named=True)):
        if row["step_seconds"] is not None:
            ax.text(
                place,
                len(names),
                "·".join(f"{row[f'fast_{axis}']}" for axis in knobs),
                ha="center",
                va="center",
                fontsize=SMALL,
            )
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
    ax.text(1, limit, "capacity", transform=ax.get_yaxis_transform(), fontsize=SMALL, va="bottom", ha="right")
    ax.set_ylim(0, limit * 1.18)


def _draw_time_split(ax: Axes, rows: pl.DataFrame, names: list[str]) -> None:
    """Draw the shares of the step time as stacked bars."""
    under = np.zeros(len(rows))
    for name in names:
        share = 100 * (rows[name] / rows["step_seconds"]).fill_null(0).to_numpy()
        colour, hatch = COMPONENTS[name]
        ax.bar(
            range(len(rows)),
            share,
            bottom=under,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0,
            width=0.7,
            label=name,
        )
        under += share
    ax.set_ylim(0, 100)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("Share of step time [%]")
