"""Figures of one plan's step: components of time and of memory."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from traincast.core.units import seconds
from traincast.planner.misfit import label as component_name
from traincast.step.estimate import Estimate, require_one_plan
from traincast.ui.figures.style import (
    BLACK,
    COLUMN,
    GREY,
    PAGE,
    SMALL,
    VERMILION,
    WHITE_BOX,
    component_legend,
    component_style,
    in_unit,
    label,
    note,
    panels,
    stacked_bars,
    styled,
    unit_of,
)

MIN_SHARE_DRAWN: Final = 5e-4  # smaller components are not drawn


@styled
def memory_waterfall(est: Estimate) -> Figure:
    """Draw the memory of the fullest rank of one plan as a waterfall of components, against capacity."""
    require_one_plan(est, "memory waterfall")
    memory = {name: float(in_unit(name, value)) for name, value in est.memory.items() if value > 0}
    total = float(in_unit("memory_bytes", est.memory_bytes))
    figure, (ax,) = panels(1, width=max(COLUMN, 0.64 * (len(memory) + 1)))
    for place, (name, size, under) in enumerate(_with_offsets(memory)):
        ax.bar(place, size, bottom=under, width=0.7, **component_style(name))
        ax.plot([place + 0.35, place + 0.65], [under + size] * 2, color=GREY, linewidth=0.6)
        note(ax, f"{size:.1f}", (place, under + size), (0, 2.5), ha="center", bbox=WHITE_BOX)
    ax.bar(len(memory), total, color=GREY, width=0.7)
    note(ax, f"{total:.1f}", (len(memory), total), (0, 2.5), ha="center", bbox=WHITE_BOX)
    _draw_capacity(ax, est)
    figure.legend(loc="outside lower center")
    ax.set_xticks(range(len(memory) + 1), [*memory, "total"])
    ax.set_ylabel(label("memory_bytes"))
    ax.set_title(f"{est.model.title} on {est.system.name}\n{est.plan}", fontsize=SMALL)
    return figure


@styled
def stage_memory(est: Estimate) -> Figure:
    """Draw the memory of every pipeline stage of one plan by component, against capacity."""
    require_one_plan(est, "memory of stages")
    stages = [stage["memory_by_component_bytes"] for stage in est.devices()]
    memory = {name: np.array([float(in_unit(name, stage[name])) for stage in stages]) for name in stages[0]}
    memory = {name: sizes for name, sizes in memory.items() if sizes.any()}
    figure, (ax,) = panels(1, width=min(PAGE, COLUMN + 0.12 * len(stages)), height=3.2)
    stacked_bars(ax, memory, width=0.75)
    _draw_capacity(ax, est)
    ax.set_xlabel("Pipeline stage, from the first")
    ax.set_ylabel(label("memory_bytes"))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [*ax.get_lines(), *component_legend([*memory][::-1])]
    figure.legend(handles=handles, loc="outside right center")
    return figure


@styled
def time_waterfall(est: Estimate) -> Figure:
    """Draw the time of a step of one plan as a waterfall of components."""
    require_one_plan(est, "time waterfall")
    total = float(est.step_seconds)
    spent = {name: float(value) for name, value in est.breakdown.items() if value > MIN_SHARE_DRAWN * total}
    low, high = (total, total) if est.interval is None else (float(end) for end in est.interval)
    figure, (ax,) = panels(1, width=COLUMN + 1.2, height=0.7 + 0.24 * len(spent))
    for place, (name, size, before) in enumerate(_with_offsets(spent)):
        ax.barh(place, size, left=before, height=0.7, **component_style(name))
        ax.plot([before + size] * 2, [place + 0.35, place + 0.65], color=GREY, linewidth=0.6)
        note(ax, f"{seconds(size)}, {size / total:.1%}", (before + size, place), (3, 0), va="center")
    ax.barh(len(spent), total, color=GREY, height=0.7)
    note(ax, seconds(total), (high, len(spent)), (5, 0), va="center")
    if est.interval is not None:
        ends = [[total - low], [high - total]]
        ax.errorbar(total, len(spent), xerr=ends, color=BLACK, elinewidth=0.8, capsize=2)
    ax.set_yticks(range(len(spent) + 1), [*map(component_name, spent), "step"])
    ax.invert_yaxis()
    ax.set_xlim(0, max(total * 1.25, high * 1.15))
    ax.set_xlabel(label("step_seconds"))
    return figure


def _with_offsets(parts: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield name and size of each part, and the sum of the parts before it."""
    before = 0.0
    for name, size in parts.items():
        yield name, size, before
        before += size


def _draw_capacity(ax: Axes, est: Estimate) -> None:
    """Draw a line at the accelerator's memory capacity, and fit the axis to it."""
    capacity = float(in_unit("memory_bytes", est.system.accelerator.hbm_bytes))
    total = float(in_unit("memory_bytes", est.memory_bytes))
    unit = unit_of("memory_bytes")[0]
    shortfall = "" if est.fits else f": {total - capacity:.1f} {unit} too little"
    colour, text = BLACK if est.fits else VERMILION, f"capacity {capacity:.1f} {unit}{shortfall}"
    ax.axhline(capacity, color=colour, linestyle="--", linewidth=0.9, label=text)
    ax.set_ylim(0, max(capacity, total) * 1.12)
