"""Figures of one plan's step: components of time and of memory."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from traincast.core.units import seconds
from traincast.planner.misfit import label as component_name
from traincast.step.estimate import Estimate, require_one_plan
from traincast.ui.figures.style import (
    BLACK,
    COLUMN,
    COMPONENTS,
    GREY,
    PAGE,
    SMALL,
    VERMILION,
    in_unit,
    label,
    panels,
    styled,
    unit_of,
)

MIN_SHARE_DRAWN: Final = 5e-4  # smaller components are not drawn


@styled
def memory_waterfall(est: Estimate) -> Figure:
    """Draw the memory of the fullest rank as a waterfall of components, against capacity.

    Parameters
    ----------
    est : Estimate
        Of one plan.

    Raises
    ------
    InputError
        If it is not of one plan.
    """
    require_one_plan(est, "memory waterfall")
    memory = {name: float(in_unit(name, value)) for name, value in est.memory.items() if value > 0}
    figure, (ax,) = panels(1, width=max(COLUMN, 0.64 * (len(memory) + 1)))
    total = float(in_unit("memory_bytes", est.memory_bytes))
    for place, (name, size, under) in enumerate(_with_offsets(memory)):
        ax.bar(place, size, bottom=under, width=0.7, **_bar_style(name))
        ax.plot([place + 0.35, place + 0.65], [under + size] * 2, color=GREY, linewidth=0.6)
        _write_size(ax, place, under + size, size)
    ax.bar(len(memory), total, color=GREY, width=0.7)
    _write_size(ax, len(memory), total, total)
    _draw_capacity(ax, est)
    figure.legend(loc="outside lower center")
    ax.set_xticks(range(len(memory) + 1), [*memory, "total"])
    ax.set_ylabel(label("memory_bytes"))
    ax.set_title(f"{est.model.title} on {est.system.name}\n{est.plan}", fontsize=SMALL)
    return figure


@styled
def stage_memory(est: Estimate) -> Figure:
    """Draw the memory of every pipeline stage by component, against capacity.

    Parameters
    ----------
    est : Estimate
        Of one plan.

    Raises
    ------
    InputError
        If it is not of one plan.
    """
    require_one_plan(est, "memory of stages")
    stages = [stage_parts["memory_by_component_bytes"] for stage_parts in est.devices()]
    components = [name for name in stages[0] if any(stage_parts[name] for stage_parts in stages)]
    figure, (ax,) = panels(1, width=min(PAGE, COLUMN + 0.12 * len(stages)), height=3.2)
    under = np.zeros(len(stages))
    for name in components:
        sizes = np.array([float(in_unit(name, stage_parts[name])) for stage_parts in stages])
        ax.bar(range(len(stages)), sizes, bottom=under, width=0.75, **_bar_style(name))
        under += sizes
    _draw_capacity(ax, est)
    ax.set_xlabel("Pipeline stage, from the first")
    ax.set_ylabel(label("memory_bytes"))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [
        *ax.get_lines(),
        *(Patch(label=component_name(name), **_bar_style(name)) for name in reversed(components)),
    ]
    figure.legend(handles=handles, loc="outside right center")
    return figure


@styled
def time_waterfall(est: Estimate) -> Figure:
    """Draw the time of a step as a waterfall of components.

    Parameters
    ----------
    est : Estimate
        Of one plan.

    Raises
    ------
    InputError
        If it is not of one plan.
    """
    require_one_plan(est, "time waterfall")
    total = float(est.step_seconds)
    spent = {name: float(value) for name, value in est.breakdown.items() if value > MIN_SHARE_DRAWN * total}
    figure, (ax,) = panels(1, width=COLUMN + 1.2, height=0.7 + 0.24 * len(spent))
    for place, (name, size, before) in enumerate(_with_offsets(spent)):
        ax.barh(place, size, left=before, height=0.7, **_bar_style(name))
        ax.plot([before + size] * 2, [place + 0.35, place + 0.65], color=GREY, linewidth=0.6)
        ax.annotate(
            f"{seconds(size)}, {size / total:.1%}",
            (before + size, place),
            (3, 0),
            textcoords="offset points",
            **_TEXT_STYLE,
        )
    low, high = (total, total) if est.interval is None else (float(end) for end in est.interval)
    ax.barh(len(spent), total, color=GREY, height=0.7)
    ax.annotate(seconds(total), (high, len(spent)), (5, 0), textcoords="offset points", **_TEXT_STYLE)
    if est.interval is not None:
        ax.errorbar(
            total, len(spent), xerr=[[total - low], [high - total]], color=BLACK, elinewidth=0.8, capsize=2
        )
    ax.set_yticks(range(len(spent) + 1), [*map(component_name, spent), "step"])
    ax.invert_yaxis()
    ax.set_xlim(0, max(total * 1.25, high * 1.15))
    ax.set_xlabel(label("step_seconds"))
    return figure


_TEXT_STYLE: Final[dict[str, Any]] = {"va": "center", "fontsize": SMALL}


def _with_offsets(parts: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield name and size of each part, and the sum of the parts before it."""
    before = 0.0
    for name, size in parts.items():
        yield name, size, before
        before += size


def _bar_style(name: str) -> dict[str, Any]:
    """Return colour and hatch of a component."""
    colour, hatch = COMPONENTS[name]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}


def _write_size(ax: Axes, place: float, top: float, size: float) -> None:
    """Write a bar's size above it."""
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    ax.annotate(
        f"{size:.1f}",
        (place, top),
        (0, 2.5),
        textcoords="offset points",
        ha="center",
        fontsize=SMALL,
        bbox=box,
    )


def _draw_capacity(ax: Axes, est: Estimate) -> None:
    """Draw a line at the accelerator's memory capacity, and fit the axis to it."""
    capacity = float(in_unit("memory_bytes", est.system.accelerator.hbm_bytes))
    total = float(in_unit("memory_bytes", est.memory_bytes))
    unit = unit_of("memory_bytes")[0]
    capacity_text = f"capacity {capacity:.1f} {unit}" + (
        "" if est.fits else f": {total - capacity:.1f} {unit} too little"
    )
    ax.axhline(
        capacity, color=BLACK if est.fits else VERMILION, linestyle="--", linewidth=0.9, label=capacity_text
    )
    ax.set_ylim(0, max(capacity, total) * 1.12)
