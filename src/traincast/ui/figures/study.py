"""Figures of a study's table: strong scaling, optimal plans, contours over two varied fields."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Any, Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from traincast.catalog import load_system
from traincast.core import (
    CAPACITY_PATH,
    COLUMNS,
    STRATEGIES,
    Floats,
    InputError,
    System,
    raise_problems,
    require_known,
    unknown_name_error,
)
from traincast.ui.figures import style

VALUE_COLUMNS: Final = {"training_days": "training_days", "throughput": "tokens_per_second_per_gpu"}
TIME_COLUMNS: Final = tuple(name for name, info in COLUMNS.items() if info.kind == "time")
MICROBATCHES: Final = "micro-batches"
MAX_VALUES_LISTED: Final = 8
MAX_LINES: Final = 8  # of a panel
LONG_STEP: Final = 100.0  # written without digits after the point [s]
MAX_PANELS: Final = 6  # of a contour, for each number of GPUs: values of fields varied besides its two
MAX_PANELS_BESIDE: Final = 3
MAX_TICKS: Final = 7  # of numbers of GPUs in a panel
MIN_SHARE_WRITTEN: Final = 6.0  # of a component in figures [%]
MIN_SHARE_LISTED: Final = 0.05  # of a component that the legend names [%]
LEVEL_STEPS: Final = (  # of a decade of contour levels: rounded powers of the 40th root of ten
    1, 1.06, 1.12, 1.18, 1.25, 1.32, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.12, 2.24, 2.36, 2.5, 2.65, 2.8, 3,
    3.15, 3.35, 3.55, 3.75, 4, 4.25, 4.5, 4.75, 5, 5.3, 5.6, 6, 6.3, 6.7, 7.1, 7.5, 8, 8.5, 9, 9.5,
)  # fmt: skip
MIN_LEVELS: Final = 8  # contour levels
LOG_AXIS_RATIO: Final = 8  # fields with a larger range get a logarithmic axis
BORDER: Final = 0.04  # share of the axes at their borders without labels of isolines
LABEL_DISTANCE: Final = (0.09, 0.05)  # between labels of isolines, of the axes
Grid = tuple[Floats, Floats, Floats]  # x, y, and values of shape (y, x), nan where nothing fits


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
            problems.append(f"the figure shows one {name}, {count}: select one with --{name}")
    raise_problems(what, problems)
    return rows


@style.apply_style
def strong_scaling(
    frame: pl.DataFrame, value: str = "training_days", ideal: Sequence[float] = (1.0,)
) -> Figure:
    """Draw length of training, or throughput of a GPU, against the number of GPUs (study 1 of the paper).

    A panel for each model and strategy, a line for each system, without a point where nothing fits. Panels of
    a model have the same axes and the same order of strategies. Grey lines are ideal scaling from the first
    point of each strategy, that of the first system on the fewest GPUs, and so many times as fast. Throughput
    is normalised to the first point of all strategies.
    """
    require_known("value", value, VALUE_COLUMNS)
    column = VALUE_COLUMNS[value]
    rows = best_rows(frame, "strong scaling", "gbs", "point").drop_nulls(column)
    if not len(rows):
        raise InputError("strong scaling", [f"no plan fits, or {column} is not known of any"])
    looks = style.system_looks(unique(rows, "system"))
    models = unique(rows, "model")
    strategies = unique(rows, "strategy")
    groups = groups_of_lines(unique(rows, "system"))
    figure, axes = style.panel_grid(len(models) * len(groups), len(strategies))
    starts = set[str]()  # systems of the first points
    for (model, group), panels in zip(product(models, groups), axes, strict=True):
        model_rows = rows.filter(pl.col("model") == model)
        (size, base), y_label = (1.0, _first_run(model_rows)), style.label(column)
        if value == "throughput":
            one = f"1 = {base['system']}, {base['strategy']}, {base['gpus']:,} GPUs"
            size = 1 / base[column]
            y_label = f"{style.label(column, '')},\n{one}"
        for ax, strategy in zip(panels, strategies, strict=True):
            of_strategy = model_rows.filter(pl.col("strategy") == strategy)
            of_panel = of_strategy.filter(pl.col("system").is_in(group))
            for system, line in _lines(of_panel, group):
                y = style.in_unit(column, line[column]) * size
                ax.plot(line["gpus"], y, label=f"{system} {strategy}", alpha=0.85, **looks[system])
            if not len(of_panel):
                ax.text(0.5, 0.5, "nothing fits", transform=ax.transAxes, ha="center", fontsize=7)
            else:
                first = _first_run(of_strategy)
                starts.add(first["system"])
                gpus = np.array(sorted(unique(model_rows, "gpus")), float)
                _draw_ideal(ax, gpus[gpus >= first["gpus"]], first, column, size, ideal)
            ax.set_title(f"{model}, {strategy}{_generations(group, groups)}")
        panels[0].set_ylabel(y_label)
    for model, rows_of_panels in zip(models, np.split(axes, len(models)), strict=True):
        ticks = sorted(unique(rows.filter(pl.col("model") == model), "gpus"))
        _finish_panels(rows_of_panels, ticks, "xy")
    factors = ", ".join(f"{factor:g}" for factor in ideal)
    base_system = starts.pop() if len(starts) == 1 else "the first system"
    times = "" if factors == "1" else f", {factors} times the speed of {base_system}"
    _legend(figure, looks, f"ideal scaling{times}")
    figure.suptitle(f"Strong scaling, {_variants(rows)}", fontsize=8)
    return figure


def _finish_panels(panels: NDArray[np.object_], gpus: Sequence[float], log: str) -> None:
    """Give all panels of a model the same axes, with ticks at numbers of GPUs, and the last row its label."""
    for ax in panels.ravel():
        ax.set(**{f"{name}scale": "log" for name in log})
    style.share_limits(panels.ravel())
    for ax in panels.ravel():
        style.log_axes(ax, log)
        style.gpu_axis(ax, gpus[:: -(len(gpus) // -MAX_TICKS)])
    for ax in panels[-1]:
        ax.set_xlabel(style.label("gpus"))


def _variants(rows: pl.DataFrame) -> str:
    """Say under which assumptions a table was computed."""
    return " and ".join(map(style.variant, unique(rows, "assumptions")))


def groups_of_lines(systems: Iterable[str]) -> list[list[str]]:
    """Return systems in groups of lines that can be told apart; those of an accelerator stay together."""
    groups: list[list[str]] = [[]]
    for _, alike in groupby(systems, lambda name: style.domain_of(name)[0]):
        names = list(alike)
        if len(groups[-1]) + len(names) > MAX_LINES and groups[-1]:
            groups.append([])
        for name in names:
            if len(groups[-1]) == MAX_LINES:
                groups.append([])
            groups[-1].append(name)
    return groups


def _generations(group: Sequence[str], groups: Sequence[Sequence[str]]) -> str:
    """Return whose lines a panel has, where a model has a row of panels for each of several groups."""
    if len(groups) == 1:
        return ""
    return f", {' and '.join(dict.fromkeys(style.domain_of(name)[0] for name in group))}"


def _lines(panel: pl.DataFrame, group: Iterable[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each system of a panel and its rows by number of GPUs."""
    for system in group:
        yield system, panel.filter(pl.col("system") == system).sort("gpus")


def _first_run(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the best run of the first system on the fewest GPUs."""
    first = rows.filter(pl.col("system") == rows["system"][0])
    return first.filter(pl.col("gpus") == first["gpus"].min()).sort("step_seconds").row(0, named=True)


def _draw_ideal(
    ax: Axes, gpus: Floats, base: dict[str, Any], column: str, size: float, ideal: Sequence[float]
) -> None:
    """Draw lines of ideal scaling: so many times as fast as a run, at every number of GPUs."""
    for factor in ideal:
        days = column == "training_days"
        y = base[column] * base["gpus"] / gpus / factor if days else np.full_like(gpus, base[column] * factor)
        y = style.in_unit(column, y) * size
        ax.plot(gpus, y, color=style.GREY, linestyle="--", linewidth=0.8, zorder=1, label="ideal scaling")


def _legend(figure: Figure, looks: Mapping[str, style.Look], dashed: str) -> None:
    """Draw the legend of colours and markers, and of dashed lines, in groups below the panels."""
    chips = dict[str, str]()
    domains = dict[str, str]()
    for name, look in looks.items():
        chip, domain = style.domain_of(name)
        chips.setdefault(chip, look["color"])
        domains.setdefault(domain, look["marker"])
    sizes = sorted(filter(None, domains), key=int)
    groups = [
        [style.sample(name, color=colour) for name, colour in chips.items()],
        [style.sample(f"domain of {size}", "", marker=domains[size]) for size in sizes],
        [style.sample(dashed, "--", color=style.GREY)],
    ]
    groups = [group for group in groups if group]
    rows = max(map(len, groups))
    blank = style.sample(" ", "")
    handles = [handle for group in groups for handle in group + [blank] * (rows - len(group))]
    figure.legend(handles=handles, ncols=len(groups), loc="outside lower center")


@style.apply_style
def speedup(frame: pl.DataFrame, base: str = "1d") -> Figure:
    """Draw how much faster other strategies are than one, against the number of GPUs, by system.

    A panel for each model and other strategy; models that the base strategy does not fit anywhere are left
    out.
    """
    rows = best_rows(frame, "speed-up", "gbs", "point").drop_nulls("step_seconds")
    keys = ["model", "system", "gpus"]
    times = rows.filter(pl.col("strategy") == base).select(*keys, pl.col("step_seconds").alias("base"))
    rows = rows.filter(pl.col("strategy") != base).join(times, on=keys)
    if not len(rows):
        raise InputError(
            "speed-up", [f"nothing to compare: no GPUs on which {base} and another strategy fit"]
        )
    looks = style.system_looks(unique(rows, "system"))
    models = unique(rows, "model")
    strategies = unique(rows, "strategy")
    groups = groups_of_lines(unique(rows, "system"))
    figure, axes = style.panel_grid(len(models) * len(groups), len(strategies))
    for (model, group, strategy), ax in zip(product(models, groups, strategies), axes.ravel(), strict=True):
        panel = rows.filter(pl.col("model") == model, pl.col("strategy") == strategy)
        for system, line in _lines(panel, group):
            speed = line["base"] / line["step_seconds"]
            label = f"{system} {strategy}"
            ax.plot(line["gpus"], speed, label=label, **looks[system])
        ax.axhline(1, color=style.GREY, linestyle="--", linewidth=0.8)
        ax.set_title(f"{model}, {strategy}{_generations(group, groups)}")
    for model, rows_of_panels in zip(models, np.split(axes, len(models)), strict=True):
        _finish_panels(rows_of_panels, sorted(unique(rows.filter(pl.col("model") == model), "gpus")), "x")
    for ax in axes[:, 0]:
        ax.set_ylabel(f"Speed over {base}")
    _legend(figure, looks, "equally fast")
    figure.suptitle(f"Speed over {base}, {_variants(rows)}", fontsize=8)
    return figure


@style.apply_style
def optima(frame: pl.DataFrame | Mapping[str, pl.DataFrame], capacity: float | None = None) -> Figure:
    """Draw the optimal plan, its memory and its time on each number of GPUs (arXiv 2410.00273, study 2).

    The rows are of one model, system and strategy; the capacity [byte] is the catalogue's where it is not
    given. Several tables, by a name for each, are drawn below each other, and degrees in which they differ
    are red.
    """
    tables = {"": frame} if isinstance(frame, pl.DataFrame) else frame
    single = ("model", "system", "strategy", "gbs", "point")
    best = {name: best_rows(table, "optima", *single).sort("gpus") for name, table in tables.items()}
    if all(rows["step_seconds"].is_null().all() for rows in best.values()):
        raise InputError("optima", ["no plan fits"])
    fewest = _fewest_drawn(best.values())
    best = {name: rows.filter(pl.col("gpus") >= fewest) for name, rows in best.items()}
    first = next(iter(best.values()))
    knobs = [axis for axis in STRATEGIES[first["strategy"][0]].axes if axis in first.columns]
    width = max(style.PAGE, 0.62 * len(first) + 0.6)
    heights = (0.28 * (len(knobs) + 5), 1.4, 2)
    figure, axes = style.axes_of(
        (width, 0.4 + 5.4 * len(best)), 3 * len(best), 1, sharex=True, height_ratios=heights * len(best)
    )
    components = dict[str, None]()
    for column, (name, rows) in zip(np.split(axes[:, 0], len(best)), best.items(), strict=True):
        infeasible = rows["step_seconds"].is_null()
        grid, middle, bottom = column
        _draw_configurations(grid, rows, knobs, [other for other in best.values() if other is not rows])
        _draw_memory(middle, rows, capacity)
        components |= dict.fromkeys(_draw_time_split(bottom, rows))
        for place, ax in product(np.flatnonzero(infeasible), column):
            ax.axvspan(place - 0.5, place + 0.5, zorder=0, **style.INFEASIBLE)
        bottom.set_xticks(range(len(rows)), [f"{gpus:,}" for gpus in rows["gpus"]])
        bottom.tick_params(labelbottom=True)
        bottom.set_xlim(-0.5, len(rows) - 0.5)
        bottom.set_xlabel(style.label("gpus"))
        job = f"{rows['model'][0]} on {rows['system'][0]}, {rows['strategy'][0]}"
        words = [name, _variants(rows)] if name and name != _variants(rows) else [_variants(rows)]
        grid.set_title(f"{', '.join(words)}: {job}, batch of {rows['gbs'][0]:,} sequences")
    handles = style.component_legend([*components])
    if any(rows["step_seconds"].is_null().any() for rows in best.values()):
        handles.append(Patch(label="does not fit", **style.INFEASIBLE))
    figure.legend(handles=handles, ncols=4, loc="outside lower center")
    return figure


def _fewest_drawn(tables: Iterable[pl.DataFrame]) -> int:
    """Return the largest number of GPUs below the fewest on which a table has a plan; else the fewest."""
    fitting = pl.concat([rows.drop_nulls("step_seconds").select("gpus") for rows in tables])["gpus"].min()
    every = next(iter(tables))["gpus"]
    return int(every.filter(every < fitting).max() or every.min())  # type: ignore[arg-type]


def _draw_configurations(
    ax: Axes, rows: pl.DataFrame, knobs: list[str], others: Sequence[pl.DataFrame] = ()
) -> None:
    """Draw degrees, micro-batches, placement and step time as a table, degrees shaded by their size."""
    counts, *compared = (
        table.with_columns((pl.col("gbs") / pl.col("dp") / pl.col("mbs")).alias(MICROBATCHES))
        for table in (rows, *others)
    )
    names = [*knobs, "mbs", MICROBATCHES, *(["panels"] if rows["strategy"][0] == "summa" else [])]
    sizes = np.log2(counts.select(names).to_numpy().T.astype(float))
    extent = (-0.5, len(rows) - 0.5, len(names) - 0.5, -0.5)
    ax.imshow(sizes, cmap="Blues", vmin=0, vmax=24, aspect="auto", extent=extent, zorder=1)
    look: style.Look = {"ha": "center", "va": "center", "fontsize": style.SMALL}
    for place, row in enumerate(counts.iter_rows(named=True)):
        if row["step_seconds"] is None:
            continue
        twins = [table.row(place, named=True) for table in compared if place < len(table)]

        def colour(*columns: str, row: Any = row, twins: Any = twins) -> str:
            differs = any(row[name] != twin[name] for twin in twins for name in columns)
            return style.VERMILION if differs else style.BLACK

        for line, name in enumerate(names):
            ax.text(place, line, f"{row[name]:,.0f}", color=colour(name), **look)
        fast = [f"fast_{axis}" for axis in knobs]
        ax.text(place, len(names), "·".join(f"{row[name]}" for name in fast), color=colour(*fast), **look)
        step = row["step_seconds"]
        ax.text(place, len(names) + 1, f"{step:,.0f}" if step >= LONG_STEP else f"{step:.3g}", **look)
    ax.set_yticks(range(len(names) + 2), [*names, f"fast {'·'.join(knobs)}", "step [s]"])
    ax.set_ylim(len(names) + 1.5, -0.5)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _draw_memory(ax: Axes, rows: pl.DataFrame, capacity: float | None) -> None:
    memory = style.in_unit("memory_bytes", rows["memory_bytes"].to_numpy())
    ax.bar(range(len(rows)), memory, color=style.GREY, width=0.7)
    ax.set_ylabel(f"Memory [{style.unit_of('memory_bytes')[0]}]")
    try:
        system = load_system(rows["system"][0])
        set_by_study = {} if capacity is None else {CAPACITY_PATH: capacity}
        capacity = float(system.with_figures(set_by_study).accelerator.visible_bytes)
    except InputError:  # a machine outside the catalogue
        if capacity is None:
            return
    limit: Any = style.in_unit("memory_bytes", capacity)
    ax.axhline(limit, color=style.BLACK, linestyle="--", linewidth=0.8)
    style.note(ax, "capacity", (0, limit), (2, 2), xycoords=ax.get_yaxis_transform(), va="bottom")
    ax.set_ylim(0, limit * 1.3)


def _draw_time_split(ax: Axes, rows: pl.DataFrame) -> list[str]:
    """Draw the shares of the step time as stacked bars, large ones in figures; return those there are."""
    names = [name for name in TIME_COLUMNS if rows[name].max()]
    shares = {name: 100 * (rows[name] / rows["step_seconds"]).fill_null(0).to_numpy() for name in names}
    style.stacked_bars(ax, shares, width=0.7)
    under = np.zeros(len(rows))
    for share in shares.values():
        for place in np.flatnonzero(share >= MIN_SHARE_WRITTEN).tolist():
            look: style.Look = {"ha": "center", "va": "center", "bbox": style.WHITE_BOX | {"pad": 0.6}}
            ax.text(place, under[place] + share[place] / 2, f"{share[place]:.0f}", fontsize=5.5, **look)
        under = under + share
    ax.set_ylim(0, 100)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("Share of step time [%]")
    drawn = [name for name, share in shares.items() if share.max() >= MIN_SHARE_LISTED]
    return drawn or names


@style.apply_style
def contour(
    frame: pl.DataFrame,
    x: str,
    y: str,
    gpus: int | Sequence[int],
    value: str = "training_days",
    marks: Sequence[System] = (),
) -> Figure:
    """Draw contours of a result of the best plan over two varied fields (arXiv 2410.00273, studies 4 and 5).

    The table is of one model and batch; strategies and systems are optimised over. Each number of GPUs is a
    panel, and each value of a further field that varies; `marks` are machines to mark, and a field that
    varied together with x or y gets the axis opposite.

    Raises
    ------
    InputError
        If the table lacks what is asked for, or varies more fields than panels can show.
    """
    rows = best_rows(frame, "contour", "model", "gbs")
    for name in (x, y, value):
        if name not in frame.columns:
            known = [column for column in frame.columns if COLUMNS[column].kind in {"figure", "result"}]
            raise unknown_name_error("column", name, known)
    sizes = [gpus] if isinstance(gpus, int) else list(gpus)
    _check_fields(rows, x, y, sizes)
    parts = [(n, *part) for n in sizes for part in _by_further_fields(rows.filter(pl.col("gpus") == n), x, y)]
    grids = [_fastest_grid(part, x, y, value) for _, _, part in parts]
    levels = _contour_levels(np.concatenate([z.ravel() for _, _, z in grids]))
    columns = min(len(parts), MAX_PANELS_BESIDE)
    width = style.COLUMN + 1.2 if columns == 1 else style.PAGE * columns / 2
    lines = -(len(parts) // -columns)
    figure, axes = style.axes_of((width, 3.4 * lines), lines, columns, sharex=True, sharey=True)
    drawn = axes.ravel()[: len(parts)]
    for ax in axes.ravel()[len(parts) :]:
        ax.set_axis_off()
    filled = [_draw_panel(ax, grid, levels) for ax, grid in zip(drawn, grids, strict=True)]
    for ax, (n, further, _) in zip(drawn, parts, strict=True):
        ax.set_title("\n".join((f"{rows['model'][0]}, {n:,} GPUs", *further)))
        ax.set_xlabel(style.label(x))
        _mark_systems(ax, x, y, marks)
        _add_opposite_axis(ax, rows, x, y, "top")
    for line in axes:
        line[0].set_ylabel(style.label(y))
    _add_opposite_axis(drawn[-1], rows, y, x, "right")
    systems = unique(rows, "system")
    strategies = unique(rows, "strategy")
    about = ", ".join(
        (f"{_best_of(systems)} but for the figures varied", _best_of(strategies), _variants(rows))
    )
    figure.suptitle(about, fontsize=7)
    if known_levels := [contours for contours in filled if contours is not None]:
        look: style.Look = {"label": style.label(value), "format": "%g", "ticks": levels, "pad": 0.02}
        figure.colorbar(known_levels[0], ax=axes.ravel().tolist(), **look).ax.tick_params(labelsize=7)
    return figure


@style.apply_style
def sweep(frame: pl.DataFrame, x: str, gpus: int | None = None) -> Figure:
    """Draw the time of a step of the best plan against a varied field.

    A line for each model, system, number of GPUs (`gpus` alone, if given) and value of further fields, with
    the 90 % interval where errors are known and without a point where nothing fits. Strategies are optimised
    over.

    Raises
    ------
    InputError
        If the table does not vary that field, nothing fits, or there are more lines than colours.
    """
    rows = best_rows(frame, "sweep", "gbs").drop_nulls("step_seconds")
    if x not in rows.columns or COLUMNS[x].kind != "figure":
        known = [column for column in rows.columns if COLUMNS[column].kind == "figure"]
        raise unknown_name_error("column", x, known)
    if gpus is not None:
        rows = rows.filter(pl.col("gpus") == gpus)
    if rows[x].n_unique() < 2:
        raise InputError("sweep", [f"{x} has fewer than two values with a plan that fits"])
    keys = ["model", "system", "gpus", *_further_fields(rows, x)]
    fastest = rows.sort("step_seconds", maintain_order=True).unique([*keys, x], keep="first")
    several = [name for name in keys if rows[name].n_unique() > 1]
    lines = fastest.sort(*keys, x).partition_by(keys, maintain_order=True)
    if len(lines) > len(style.COLOURS):
        told = f"more than the {len(style.COLOURS)} that colours tell apart"
        raise InputError("sweep", [f"{len(lines)} lines (of each {' and '.join(several)}) are {told}"])
    figure, axes = style.axes_of((style.COLUMN + 1.2, 3.4), 1, 1)
    ax = axes.ravel()[0]
    for line, colour, marker in zip(lines, style.COLOURS, style.MARKERS, strict=False):
        name = ", ".join(_value_words(key, line[key][0]) for key in several)
        places = style.in_unit(x, line[x])
        ax.plot(places, line["step_seconds"], color=colour, marker=marker, label=name)
        if "step_seconds_low" in line.columns:
            ends = line["step_seconds_low"], line["step_seconds_high"]
            ax.fill_between(places, *ends, color=colour, alpha=0.15, linewidth=0)
    values = fastest[x].to_numpy()
    if values.max() > LOG_AXIS_RATIO * values.min():
        ax.set_xscale("log")
        style.log_axes(ax, "x")
    ax.set(xlabel=style.label(x), ylabel=style.label("step_seconds"))
    ax.set_ylim(bottom=0)
    one = [_value_words(key, rows[key][0]) for key in keys if key not in several]
    ax.set_title("\n".join(filter(None, (", ".join(one), f"{_variants(rows)}, band: 90% interval"))))
    if several:
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _value_words(column: str, value: object) -> str:
    """Return a value of a column as a legend has it."""
    if column == "gpus":
        return f"{value:,} GPUs"
    if COLUMNS[column].kind != "figure":
        return str(value)
    title, _, unit = style.label(column).rstrip("]").partition(" [")
    return f"{title}: {style.in_unit(column, value):.4g} {unit}".strip()


def _further_fields(rows: pl.DataFrame, *axes: str) -> list[str]:
    """Return the fields varied besides some axes, but those that an axis determines: varied with it."""
    return [
        name
        for name in rows.columns
        if COLUMNS[name].kind == "figure"
        and name not in axes
        and rows[name].n_unique() > 1
        and all(rows.select(axis, name).unique().height > rows[axis].n_unique() for axis in axes)
    ]


def _best_of(names: Sequence[str]) -> str:
    """Say which systems or strategies a figure shows: of several the fastest at each point."""
    return names[0] if len(names) == 1 else f"the fastest of {', '.join(names)}"


def _by_further_fields(rows: pl.DataFrame, x: str, y: str) -> list[tuple[list[str], pl.DataFrame]]:
    """Return the rows of each value of the fields varied besides x and y, after words that say the values.

    Fields that x or y determine, having varied together with it, are none of them.
    """
    fields = _further_fields(rows, x, y)
    if not fields:
        return [([], rows)]
    values = rows.select(fields).unique(maintain_order=True).sort(fields)
    if len(values) > MAX_PANELS:
        names = " and ".join(f"{name} ({rows[name].n_unique()} values)" for name in fields)
        problem = f"the table varies {names} besides {x} and {y}, more than {MAX_PANELS} panels can show"
        raise InputError("contour", [f"{problem}: study fewer values, or give --x and --y of other fields"])
    parts = []
    for of_part in values.iter_rows(named=True):
        said = [_value_words(name, number) for name, number in of_part.items()]
        parts.append((said, rows.filter(*(pl.col(name) == number for name, number in of_part.items()))))
    return parts


def _check_fields(rows: pl.DataFrame, x: str, y: str, sizes: Sequence[int]) -> None:
    """Refuse numbers of GPUs that the table lacks, and fields that are no grid."""
    problems = [f"the table has nothing on {n:,} GPUs" for n in sizes if n not in rows["gpus"]]
    constant = [path for path in (x, y) if rows[path].n_unique() < 2]
    problems += [f"{path} has one value: nothing to draw contours over" for path in constant]
    if x == y:
        problems.append(f"x and y are both {x}")
    elif rows.select(x, y).unique().height < rows[x].n_unique() * rows[y].n_unique():
        problems.append(f"the table has not every value of {x} with every value of {y}: they vary together")
    raise_problems("contour", problems)


def _fastest_grid(rows: pl.DataFrame, x: str, y: str, value: str) -> Grid:
    """Return the value of the fastest plan at each pair of fields."""
    ordered = rows.sort("step_seconds", nulls_last=True, maintain_order=True)
    fastest = ordered.unique([x, y], keep="first", maintain_order=True)
    xs, across = np.unique(fastest[x].to_numpy(), return_inverse=True)
    ys, up = np.unique(fastest[y].to_numpy(), return_inverse=True)
    z = np.full((len(ys), len(xs)), np.nan)
    z[up, across] = style.in_unit(value, fastest[value].cast(pl.Float64).to_numpy())
    return style.in_unit(x, xs), style.in_unit(y, ys), z


def _contour_levels(values: Floats) -> Floats:
    """Return round levels from below the least value to above the largest; none where there is no value."""
    known = values[np.isfinite(values)]
    if not len(known):
        return known
    low = known.min()
    high = known.max()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for stride in (8, 4, 2, 1):
        levels = np.outer(decades, LEVEL_STEPS[::stride]).ravel()
        first, last = np.searchsorted(levels, (low, high), "right")
        if last + 2 - first >= MIN_LEVELS:
            return levels[first - 1 : last + 1]
    return np.asarray(MaxNLocator(MIN_LEVELS).tick_values(low, high * (1 + 1e-9)))


def _draw_panel(ax: Axes, grid: Grid, levels: Floats) -> ContourSet | None:
    """Draw filled contours and labelled isolines; empty areas are marked as not fitting."""
    xs, ys, z = grid
    ax.set(xlim=(xs[0], xs[-1]), ylim=(ys[0], ys[-1]))
    wide = [name for name, values in (("x", xs), ("y", ys)) if values[-1] > LOG_AXIS_RATIO * values[0]]
    style.log_axes(ax, "".join(wide))
    empty = np.isnan(z)
    if empty.any():
        ax.add_patch(Rectangle((0, 0), 1, 1, transform=ax.transAxes, zorder=0, **style.INFEASIBLE))
        up, across = np.nonzero(empty)
        right, top = _share_of_axes(ax, np.column_stack((xs[across], ys[up]))).mean(axis=0).clip(0.16, 0.84)
        look: style.Look = {"ha": "center", "va": "center", "bbox": style.WHITE_BOX}
        ax.text(right, top, "does not fit", fontsize=style.SMALL, transform=ax.transAxes, **look)
    if empty.all():
        return None
    known = np.ma.masked_invalid(z)
    filled = ax.contourf(xs, ys, known, levels, cmap="cividis_r", norm=BoundaryNorm(levels, 256))
    inside = levels[(levels > known.min()) & (levels < known.max())]
    if len(inside):
        label_isolines(ax, ax.contour(xs, ys, known, inside, colors="black", linewidths=0.5))
    return filled


def _share_of_axes(ax: Axes, points: Any) -> Floats:
    return np.asarray(ax.transAxes.inverted().transform(ax.transData.transform(points)))


def label_isolines(ax: Axes, lines: ContourSet, fmt: str = "%g") -> None:
    """Label isolines, away from the borders and from each other."""
    labelled = np.empty((0, 2))
    for text in ax.clabel(lines, inline=False, fmt=fmt, fontsize=style.SMALL, colors="black"):
        text.set_path_effects([withStroke(linewidth=2, foreground="white", alpha=0.8)])
        place = _share_of_axes(ax, text.get_position())
        near = np.abs(labelled - place) < LABEL_DISTANCE
        if np.abs(place - 0.5).max() > 0.5 - BORDER or near.all(axis=1).any():
            text.remove()
        else:
            labelled = np.vstack((labelled, place))


def _mark_systems(ax: Axes, x: str, y: str, systems: Iterable[System]) -> None:
    """Mark the machines that lie in the panel, by name; those without one of its figures have no place."""
    for system in systems:
        figures = system.figures()
        if x not in figures or y not in figures:
            continue
        point = float(style.in_unit(x, figures[x])), float(style.in_unit(y, figures[y]))
        right, up = _share_of_axes(ax, point)
        if max(abs(right - 0.5), abs(up - 0.5)) >= 0.5 + 1e-6:
            continue
        dot: style.Look = {"color": "white", "markeredgecolor": "black", "markersize": 4.5}
        ax.plot(*point, "o", **dot, clip_on=False, zorder=5)
        box = style.WHITE_BOX | {"alpha": 0.7, "pad": 0.8}
        ha, x_offset = ("left", 6) if right < 0.5 else ("right", -6)
        look: dict[str, object] = {"ha": ha, "va": "bottom" if up < 0.5 else "top", "bbox": box, "zorder": 5}
        style.note(ax, system.accelerator.name, point, (x_offset, 0), **look)


def _add_opposite_axis(ax: Axes, rows: pl.DataFrame, path: str, other: str, side: str) -> None:
    """Add an axis opposite to that of a field, for a field that varies together with it."""
    pair = _field_varying_with(rows, path, other)
    if pair is None:
        return
    name, places, values = pair
    ticks = style.round_ticks(values[0], values[-1])
    second = ax.secondary_xaxis("top") if side == "top" else ax.secondary_yaxis("right")
    axis = second.xaxis if side == "top" else second.yaxis
    style.plain_ticks(axis, np.interp(ticks, values, places).tolist(), ticks)
    second.tick_params(which="both", labelsize=7, width=0.6)
    axis.set_label_text(style.label(name))


def _field_varying_with(rows: pl.DataFrame, path: str, other: str) -> tuple[str, Floats, Floats] | None:
    """Return a field that rises with another at every point: its name, and both values in the units shown."""
    fields = [name for name in rows.columns if COLUMNS[name].kind == "figure" and name not in (path, other)]
    for name in fields:
        pairs = rows.select(path, name).unique().sort(path)
        if len(pairs) == rows[path].n_unique() and (pairs[name].diff().drop_nulls() > 0).all():
            places, values = (style.in_unit(field, pairs[field].to_numpy()) for field in (path, name))
            return name, places, values
    return None
