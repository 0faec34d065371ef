"""Figures of a plan's step (time, memory, roofline) and of a search (Pareto front, sensitivities)."""

from collections.abc import Iterator, Mapping
from itertools import product
from textwrap import fill, wrap
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from traincast.core import (
    CAPACITY_PATH,
    COLUMNS,
    Accelerator,
    Floats,
    InputError,
    System,
    count_of,
    distinct_values,
    seconds,
)
from traincast.planner import MIN_CHANGE_REPORTED, Found, evaluate_all
from traincast.planner import component_label as component_name
from traincast.step import Estimate, estimate, require_one_plan
from traincast.ui.figures import style

MIN_SHARE_DRAWN: Final = 5e-4  # smaller components are not drawn
RELATIVE_CHANGE: Final = 0.1  # of each hardware figure
MAX_NAME_CHARACTERS: Final = 24  # of a network tier next to an axis
MAX_LABEL_CHARACTERS: Final = 34  # of a line next to an axis
TITLE_CHARACTERS: Final = 68  # of a line of a title above axes of one column
LEGEND_CHARACTERS: Final = 60  # of a line of a legend below a figure of one column
PHASE_CHARACTERS: Final = 12  # of a line of a phase's name
LEVEL: Final = np.array([-0.4, 0.4])  # ends of a phase, around its place on the axis
LABEL_SHARE: Final = 0.08  # of the height of an axis that a label takes
MAX_OPERATIONS_LABELLED: Final = 8  # in a roofline
ROOFLINE_LEGEND_COLUMNS: Final = 4
DIRECTION_MARKERS: Final = {"forward": "o", "backward": "^"}
UNIT_COLOURS: Final = {"matrix": style.BLUE, "vector": style.ORANGE}
MATRIX: Final = "accelerator.matrix_flops"
BANDWIDTH: Final = "accelerator.hbm_bandwidth"
OF_MEMORY: Final = (CAPACITY_PATH, "accelerator.driver_bytes")  # figures on which no time depends
POINT: Final[style.Look] = {"linestyle": "", "marker": ".", "color": style.GREY, "markersize": 3}


@style.apply_style
def memory_waterfall(est: Estimate) -> Figure:
    """Draw the memory of the fullest rank of one plan as a waterfall of components, against capacity."""
    require_one_plan(est, "memory waterfall")
    memory = {name: float(style.in_unit(name, value)) for name, value in est.memory.items() if value > 0}
    total = float(style.in_unit("memory_bytes", est.memory_bytes))
    figure, (ax,) = style.panels(1, width=max(style.COLUMN, 0.64 * (len(memory) + 1)))
    for place, (name, size, under) in enumerate(_with_offsets(memory)):
        ax.bar(place, size, bottom=under, width=0.7, **style.component_style(name))
        ax.plot([place + 0.35, place + 0.65], [under + size] * 2, color=style.GREY, linewidth=0.6)
    ax.bar(len(memory), total, color=style.GREY, width=0.7)
    capacity = _draw_capacity(ax, est)
    for place, (_, size, under) in enumerate((*_with_offsets(memory), ("total", total, 0.0))):
        _label_bar(ax, place, size, under, capacity)
    figure.legend(loc="outside lower center")
    ax.set_xticks(range(len(memory) + 1), [*memory, "total"])
    ax.set_ylabel(style.label("memory_bytes"))
    ax.set_title(_title_of_plan(est), fontsize=style.SMALL)
    return figure


@style.apply_style
def stage_memory(est: Estimate) -> Figure:
    """Draw the memory of every pipeline stage of one plan by component, against capacity."""
    require_one_plan(est, "memory of stages")
    stages = [stage["memory_by_component_bytes"] for stage in est.devices()]
    sizes = {name: np.array([stage[name] for stage in stages], float) for name in stages[0]}
    memory = {name: style.in_unit(name, values) for name, values in sizes.items() if values.any()}
    figure, (ax,) = style.panels(1, width=min(style.PAGE, style.COLUMN + 0.12 * len(stages)), height=3.2)
    style.stacked_bars(ax, memory, width=0.75)
    _draw_capacity(ax, est)
    ax.set_xlabel("Pipeline stage, from the first")
    ax.set_ylabel(style.label("memory_bytes"))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [*ax.get_lines(), *style.component_legend([*memory][::-1])]
    figure.legend(handles=handles, loc="outside right center")
    return figure


@style.apply_style
def memory_timeline(est: Estimate) -> Figure:
    """Draw the memory of the fullest rank of one plan over a step by component, against capacity.

    Each phase is a level; how memory moves between two is not predicted, and drawn straight.
    """
    require_one_plan(est, "memory over a step")
    phases = est.memory_timeline()
    sizes = {
        name: np.array([float(phase.memory_by_component_bytes[name]) for phase in phases])
        for name in phases[0].memory_by_component_bytes
    }
    memory = {name: style.in_unit(name, values) for name, values in sizes.items() if values.any()}
    figure, (ax,) = style.panels(1, width=style.PAGE, height=3.2)
    places = np.arange(len(phases))[:, None] + LEVEL  # both ends of each level
    under = np.zeros(2 * len(phases))
    for name, values in memory.items():
        top = under + np.repeat(values, 2)
        ax.fill_between(places.ravel(), under, top, **style.component_style(name))
        under = top
    ax.plot(places.ravel(), under, color=style.BLACK, linewidth=0.8)
    capacity = _draw_capacity(ax, est)
    peak = int(np.argmax([float(phase.memory_bytes) for phase in phases]))
    most = float(style.in_unit("memory_bytes", phases[peak].memory_bytes))
    text = f"peak {most:,.1f} {style.unit_of('memory_bytes')[0]}"
    ax.plot(peak, most, color=style.BLACK, marker="o", markersize=3, clip_on=False)
    is_crossed = most <= capacity < most + 1.5 * LABEL_SHARE * ax.get_ylim()[1]
    offset, align = ((0, -6), "top") if is_crossed else ((0, 4), "bottom")
    style.note(
        ax, text, (peak, most), offset, ha="center", va=align, bbox=style.WHITE_BOX if is_crossed else None
    )
    titles = [fill(phase.phase, PHASE_CHARACTERS) for phase in phases]
    ax.set_xticks(range(len(phases)), titles, fontsize=style.SMALL)
    ax.get_xticklabels()[peak].set_fontweight("bold")
    ax.set_xlim(LEVEL[0], len(phases) - 1 + LEVEL[1])
    ax.set_ylabel(style.label("memory_bytes"))
    ax.set_title(_title_of_plan(est), fontsize=style.SMALL)
    handles = [*ax.get_lines()[1:2], *style.component_legend([*memory][::-1])]
    figure.legend(handles=handles, loc="outside right center")
    return figure


@style.apply_style
def time_waterfall(est: Estimate) -> Figure:
    """Draw the time of a step of one plan as a waterfall of components."""
    require_one_plan(est, "time waterfall")
    total = est.step_seconds
    spent = {name: float(value) for name, value in est.breakdown.items() if value > MIN_SHARE_DRAWN * total}
    low, high = (total, total) if est.interval is None else (float(end) for end in est.interval)
    figure, (ax,) = style.panels(1, width=style.COLUMN + 1.2, height=0.7 + 0.24 * len(spent))
    for place, (name, size, before) in enumerate(_with_offsets(spent)):
        ax.barh(place, size, left=before, height=0.7, **style.component_style(name))
        ax.plot([before + size] * 2, [place + 0.35, place + 0.65], color=style.GREY, linewidth=0.6)
        style.note(ax, f"{seconds(size)}, {size / total:.1%}", (before + size, place), (3, 0), va="center")
    ax.barh(len(spent), total, color=style.GREY, height=0.7)
    style.note(ax, seconds(total), (high, len(spent)), (5, 0), va="center")
    if est.interval is not None:
        ends = [[total - low], [high - total]]
        ax.errorbar(total, len(spent), xerr=ends, color=style.BLACK, elinewidth=0.8, capsize=2)
    ax.set_yticks(range(len(spent) + 1), [*map(component_name, spent), "step"])
    ax.invert_yaxis()
    ax.set_xlim(0, max(total * 1.25, high * 1.15))
    ax.set_xlabel(style.label("step_seconds"))
    return figure


def _title_of_plan(est: Estimate) -> str:
    """Return model, machine, assumptions and plan, in lines that fit above the axes."""
    subject = f"{est.model.title} on {est.system.name}, {style.variant(est.assumptions.name)}"
    return "\n".join(
        fill(text, TITLE_CHARACTERS, break_on_hyphens=False) for text in (subject, str(est.plan))
    )


def _with_offsets(parts: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield name and size of each part, and the sum of the parts before it."""
    before = 0.0
    for name, size in parts.items():
        yield name, size, before
        before += size


def _label_bar(ax: Axes, place: int, size: float, under: float, line: float) -> None:
    """Write a size in its bar, or beside a bar that is too low, where the line does not cross it."""
    text = f"{size:,.1f}"
    top = under + size
    room = LABEL_SHARE * ax.get_ylim()[1]
    look: dict[str, object] = {"ha": "center", "bbox": style.WHITE_BOX}
    if size > room:
        middle = under + size / 2
        middle = line - room if abs(middle - line) < room / 2 else middle  # the line does not cross it
        style.note(ax, text, (place, middle), (0, 0), va="center", **look)
    elif top <= line < top + room:
        style.note(ax, text, (place, under), (0, -2.5), va="top", **look)
    else:
        style.note(ax, text, (place, top), (0, 2.5), va="bottom", **look)


def _draw_capacity(ax: Axes, est: Estimate) -> float:
    """Draw a line at the accelerator's memory capacity, fit the axis to it, and return where it is."""
    capacity = float(style.in_unit("memory_bytes", est.system.accelerator.visible_bytes))
    total = float(style.in_unit("memory_bytes", est.memory_bytes))
    unit = style.unit_of("memory_bytes")[0]
    shortfall = "" if est.fits else f": {total - capacity:,.1f} {unit} too little"
    colour = style.BLACK if est.fits else style.VERMILION
    text = f"capacity {capacity:,.1f} {unit}{shortfall}"
    ax.axhline(capacity, color=colour, linestyle="--", linewidth=0.9, label=text)
    ax.set_ylim(0, max(capacity, total) * 1.12)
    return capacity


@style.apply_style
def roofline(est: Estimate) -> Figure:
    """Draw the operations of one plan's layer under the roofline; the longest are numbered, area is time.

    Achieved is what is reached without communication, launches included.
    """
    require_one_plan(est, "roofline")
    operations = est.operations()
    passes = [(row, way) for row in operations for way in DIRECTION_MARKERS if row[f"{way}_bytes"] > 0]

    def column(name: str) -> Floats:
        return np.array([row[f"{direction}_{name}"] for row, direction in passes])

    matrix = column("matrix_flops")
    seconds = column("compute_seconds") + column("memory_seconds")
    flops = matrix + column("vector_flops")
    intensity = flops / column("bytes")
    achieved = style.in_unit(MATRIX, flops / seconds)
    figure, (ax,) = style.panels(1, width=style.COLUMN + 1.5, height=3.7)
    area = 8 + 120 * seconds / seconds.max()
    colours = np.where(matrix > 0, *UNIT_COLOURS.values())
    directions = np.array([direction for _, direction in passes])
    for direction, marker in DIRECTION_MARKERS.items():
        rows = directions == direction
        look: style.Look = {"marker": marker, "alpha": 0.75, "linewidths": 0, "zorder": 3}
        ax.scatter(intensity[rows], achieved[rows], area[rows], colours[rows], **look)
    _draw_roofs(ax, est.system.accelerator, intensity, achieved)
    ax.set_xlabel("Arithmetic intensity [FLOP/byte]")
    ax.set_ylabel(f"Achieved [{style.unit_of(MATRIX)[0]}]")
    ax.set_title(_title_of_plan(est), fontsize=style.SMALL)
    handles = [
        style.sample(f"{unit}, {way}", "", color=colour, marker=marker)
        for (unit, colour), (way, marker) in product(UNIT_COLOURS.items(), DIRECTION_MARKERS.items())
    ]
    longest: dict[str, int] = {}  # operation → its longer pass
    for i in np.argsort(-seconds, kind="stable").tolist():
        longest.setdefault(passes[i][0]["operation"], i)
    named = dict(list(longest.items())[:MAX_OPERATIONS_LABELLED])
    numbers = [str(number) for number, _ in enumerate(named, 1)]
    handles += [style.sample(f"{number} {name}", "") for number, name in zip(numbers, named, strict=True)]
    columns = [handles[i::ROOFLINE_LEGEND_COLUMNS] for i in range(ROOFLINE_LEGEND_COLUMNS)]  # read by line
    ordered = [handle for column in columns for handle in column]
    look = {"ncols": ROOFLINE_LEGEND_COLUMNS, "columnspacing": 0.8, "handletextpad": 0, "handlelength": 1.4}
    figure.legend(handles=ordered, loc="outside lower center", fontsize=style.SMALL, **look)
    figure.draw_without_rendering()
    style.label_points(ax, [(intensity[i], achieved[i]) for i in named.values()], numbers)
    return figure


def _draw_roofs(ax: Axes, chip: Accelerator, intensity: Floats, achieved: Floats) -> None:
    """Draw the peaks of the matrix and vector units and the slope of memory bandwidth."""
    matrix, vector, bandwidth = (float(x) for x in (chip.matrix_flops, chip.vector_flops, chip.hbm_bandwidth))
    low = min(intensity.min() / 2, vector / bandwidth / 4)
    high = max(intensity.max() * 3, matrix / bandwidth * 4)
    roofs = (("matrix", matrix, low, "-"), ("vector", vector, vector / bandwidth, "--"))
    for name, peak, start, dash in roofs:
        x = np.array([start, peak / bandwidth, high])
        y = style.in_unit(MATRIX, np.minimum(x * bandwidth, peak))
        ax.plot(x, y, color=style.BLACK, linestyle=dash, linewidth=0.9)
        text = f"{name} units\n{y[-1]:,.0f} {style.unit_of(MATRIX)[0]}"
        style.note(ax, text, (high, y[-1]), (3, 0), va="center")
    ax.set(xlim=(low, high), ylim=(achieved.min() / 3, style.in_unit(MATRIX, matrix) * 3))
    style.log_axes(ax)
    text = f"HBM, {style.in_unit(BANDWIDTH, bandwidth):,.0f} {style.unit_of(BANDWIDTH)[0]}"
    at = (low * 1.4, style.in_unit(MATRIX, low * 1.4 * bandwidth))
    style.note(ax, text, at, (-3, 3), rotation=45, rotation_mode="anchor", transform_rotates_text=True)


@style.apply_style
def pareto(result: Found) -> Figure:
    """Draw time against memory of layouts that fit, with the Pareto front and the recommended plan.

    A point is a layout with its best placement; of large searches a sample is drawn, and the fastest.
    """
    figure, (ax,) = style.panels(1, width=style.COLUMN + 1.0, height=3.2)
    capacity = float(style.in_unit("memory_bytes", result.system.accelerator.visible_bytes))
    times = result.sample
    memory = style.in_unit("memory_bytes", times.memory)
    ax.plot(memory, times.all(), **POINT, alpha=0.5, markeredgewidth=0, rasterized=True)
    ax.axvline(capacity, color=style.BLACK, linestyle="--", linewidth=0.9, label="capacity")
    if result.best is None:
        text = f"none of {result.candidates:,} candidates fits"
        ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", fontsize=7)
        ax.set_xlim(0, capacity * 1.05)
        ax.set_yticks([])
    else:
        front = [
            (float(style.in_unit("memory_bytes", point.memory_bytes)), point.step_seconds)
            for point in result.pareto_points
        ]
        front_label = f"Pareto front, {len(front)} plans"
        ax.plot(*zip(*front, strict=True), "o-", color=style.BLUE, drawstyle="steps-pre", label=front_label)
        plan, est = result.best
        star: style.Look = {"color": style.VERMILION, "markersize": 9, "markeredgecolor": "white"}
        star["label"] = f"recommended: {fill(str(plan), LEGEND_CHARACTERS)}"
        ax.plot(style.in_unit("memory_bytes", est.memory_bytes), est.step_seconds, "*", **star)
        style.log_axes(ax, "y")
    ax.plot([], [], **POINT, label=f"{result.feasible:,} of {result.candidates:,} candidates fit")
    ax.set_xlabel(style.label("memory_bytes"))
    ax.set_ylabel(style.label("step_seconds"))
    ax.set_title(fill(_title(result), TITLE_CHARACTERS, break_on_hyphens=False))
    figure.legend(loc="outside lower center", ncols=1)
    return figure


def _title(result: Found) -> str:
    job = f"{result.model.title} on {count_of(result.gpus, 'GPU')} of {result.system.name}"
    return f"{job}, {style.variant(result.assumptions.name)}"


@style.apply_style
def tornado(result: Found, least: float = MIN_CHANGE_REPORTED) -> Figure:
    """Draw the change of step time for each hardware figure 10 % less and more, plan fixed and re-optimised.

    Figures that change it by less than the `least` share are left out, except for the largest change.
    """
    if result.best is None:
        job = f"{count_of(result.gpus, 'GPU')} of {result.system.name}"
        raise InputError("tornado", [f"none of {result.candidates:,} candidates fits on {job}"])
    paths = [path for path in result.system.figures() if path in COLUMNS]
    unchanged = np.array([float(result.best[1].step_seconds), result.least_seconds])  # fixed, re-optimised
    changes = 100 * (_changed_seconds(result, paths) / unchanged[:, None, None] - 1)  # [%]
    largest_change = np.abs(changes).max(axis=(0, 2))
    left_out = min(np.sum(largest_change < 100 * least), len(largest_change) - 1)
    order = np.argsort(largest_change, kind="stable")[left_out:]
    figure, (ax,) = style.panels(1, width=style.PAGE, height=1.4 + 0.36 * len(order))
    titles = [_figure_title(result.system, paths[i]) for i in order]
    percent = f"{100 * RELATIVE_CHANGE:.0f}%"
    colours = {f"−{percent}": style.ORANGE, f"+{percent}": style.BLUE}
    style.tornado_bars(ax, changes[:, order], titles, colours, ("plan fixed", "plan re-optimised"))
    left_out_text = f"\n{left_out} more: below {least:.2%}" if left_out else ""
    ax.set_xlabel(f"{style.label('step_seconds', '')},\nchange [%]{left_out_text}")
    figure.suptitle(f"{_title(result)}\n{result.best[0]}", fontsize=7)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _changed_seconds(result: Found, paths: list[str]) -> Floats:
    """Return step times with each figure changed [s], infinite where nothing fits.

    The shape is (plan fixed or re-optimised, figure, less or more).
    """
    figures = result.system.figures()
    specs = result.system.specs()
    columns = {path: np.full(2 * len(paths), float(figures[path])) for path in paths}
    for i, path in enumerate(paths):
        columns[path][2 * i : 2 * i + 2] *= (1 - RELATIVE_CHANGE, 1 + RELATIVE_CHANGE)
        columns[path] = np.maximum(columns[path], specs[path].lowest)
    machines = result.system.with_figures(columns)
    plan = result.ranked[0].columns()
    fixed = estimate(result.model, machines, plan, gbs=result.gbs, assumptions=result.assumptions)
    fixed_seconds = np.where(fixed.fits, fixed.step_seconds, np.inf)
    reoptimised = np.empty(2 * len(paths))
    of_memory = np.repeat([path in OF_MEMORY for path in paths], 2)
    capacities = np.broadcast_to(machines.accelerator.visible_bytes, 2 * len(paths))
    reoptimised[of_memory] = _best_with_memory(result, capacities[of_memory])
    changed = {path: values[~of_memory] for path, values in columns.items()}
    if not np.all(of_memory):
        reoptimised[~of_memory] = _best_seconds(result, result.system.with_figures(changed))
    return np.stack((fixed_seconds, reoptimised)).reshape(2, len(paths), 2)


def _best_with_memory(result: Found, capacities: Floats) -> list[float]:
    """Return the least step time with each of several capacities [byte] [s], infinite where nothing fits."""
    # one search on the largest has the plans of all
    largest = float(np.max(capacities, initial=0.0))
    has_more = largest > float(result.system.accelerator.visible_bytes)
    searched = result.on(result.system.with_visible(largest)) if has_more else result
    return [_least_seconds(searched, capacity) for capacity in capacities.tolist()]


def _least_seconds(result: Found, most_memory: float) -> float:
    """Return the least step time of a plan that needs at most so much memory [byte] [s]."""
    times, rows = result.layouts.answer(lambda times: times.within_share(0.0, most_memory))
    return float(times.seconds[rows[0]]) if len(rows) else np.inf


def _best_seconds(result: Found, machines: System) -> Floats:
    """Return the least step time on each of machines of the same capacity [s], infinite where nothing fits.

    No time changes by a larger ratio than a figure does: layouts that are slower by more are not the fastest.
    """
    share = 1 / (1 - RELATIVE_CHANGE) - 1
    times, rows = result.layouts.answer(lambda times: times.within_share(share))
    least = np.full(machines.machines(), np.inf)
    spaces = tuple(
        times.outcomes[index].space.take(np.sort(times.layout[rows[times.outcome[rows] == index]]))
        for index in distinct_values(times.outcome[rows])
    )
    for after in evaluate_all(spaces, machines, result.assumptions, keep=False) if spaces else ():
        least = np.minimum(least, after.least_seconds.min(axis=1)[after.timing])
    return least


def _figure_title(system: System, path: str) -> str:
    """Return the name of a hardware figure, with its network tier if it has one."""
    part, _, number = path.rpartition(".")[0].partition(".")
    name = style.label(path, "")
    if part == "network":
        tier = system.tiers[int(number)].name
        if len(tier) > MAX_NAME_CHARACTERS:
            tier = f"{tier[: MAX_NAME_CHARACTERS - 1]}…"
        name = f"{tier}: {name[0].lower()}{name[1:]}"
    return "\n".join(wrap(name, MAX_LABEL_CHARACTERS))
