"""Figures of hand-made plans that differ in their pipeline stages, each with all its placements."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from traincast.core import STRATEGIES, Assumptions, InputError, Plan, Plans, System
from traincast.model import Model
from traincast.step import Estimates, estimate, placements
from traincast.ui.figures import style

BASE_PLAN: Final = Plan(tp=8)
MAX_OVER_SLOWEST_BEST: Final = 1.6  # longest time drawn, over the slowest of the plans' best placements
ROOM_FOR_COUNTS: Final = 1.15  # top of the axis over the longest time drawn
MIN_SHARE_DRAWN: Final = 1e-3  # of a component of the step time
STAGES_TRIED: Final = tuple(1 << power for power in range(8))


@style.apply_style
def design_space(
    model: Model,
    system: System,
    gpus: int,
    gbs: int,
    base: Plan = BASE_PLAN,
    stages: Sequence[int] = STAGES_TRIED,
    assumptions: str | Assumptions | None = None,
) -> Figure:
    """Draw time and memory of plans chosen by hand, each with every placement (arXiv 2410.00273, study 3).

    Plans have the base in common and differ in their pipeline stages; data parallelism takes the GPUs that
    are left. Stages that break a rule are left out. Placements that take much longer than the best of any
    plan are counted above the bars of their plan.
    """
    columns: list[Estimates] = []
    for plan in _plans(system, gpus, base, stages):
        with suppress(InputError):  # breaks a rule
            columns.append(estimate(model, system, plan, gbs=gbs, assumptions=assumptions))
    if not columns:
        problem = "no number of pipeline stages gives a plan that meets the rules"
        raise InputError("design space", [f"{base} on {gpus:,} GPUs: {problem}"])
    figure, axes = style.axes_of((style.PAGE, 4.8), 2, 1, sharex=True, height_ratios=(2.4, 1))
    ax, bottom = axes[:, 0]
    best = [float(np.min(style.in_unit("step_seconds", np.asarray(est.step_seconds)))) for est in columns]
    limit = MAX_OVER_SLOWEST_BEST * max(best)
    components = dict[str, None]()
    for place, est in enumerate(columns):
        components |= dict.fromkeys(_draw_placements(ax, place, est, limit))
    memory = [float(np.max(style.in_unit("memory_bytes", est.memory_bytes))) for est in columns]
    fits = [bool(np.all(est.fits)) for est in columns]  # the same for every placement
    _draw_memory(bottom, memory, fits, float(style.in_unit("memory_bytes", system.accelerator.visible_bytes)))
    slower = sum(bool((np.asarray(est.step_seconds) > limit).any()) for est in columns)
    ax.set_ylim(0, limit * (ROOM_FOR_COUNTS if slower else 1))
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_ylabel(style.label("step_seconds"))
    degrees = STRATEGIES[base.strategy].axes
    ticks = []
    for est in columns:
        plan = est.plan.take(int(np.argmin(np.atleast_1d(est.step_seconds))))
        fast = "·".join(f"{getattr(plan, f'fast_{axis}'):.0f}" for axis in degrees)
        ticks.append(f"{np.max(est.plan.pp):.0f}\n{np.max(est.plan.dp):,.0f}\n{fast}")
    bottom.set_xticks(range(len(columns)), ticks)
    rows = f"pp\ndp\nfast {'·'.join(degrees)}"
    style.note(bottom, rows, (0, 0), (-4, -7), xycoords="axes fraction", fontsize=7, ha="right", va="top")
    named = f"{style.label('pp')}, {style.label('dp').lower()}"
    bottom.set_xlabel(f"{named}, and ranks of each group in one fast domain of the fastest placement")
    about = f"{base}, every placement, {style.variant(columns[0].assumptions.name)}"
    figure.suptitle(f"{model.title} on {gpus:,} GPUs of {system.name}, {about}", fontsize=7.5)
    handles = style.component_legend([*components])
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _draw_placements(ax: Axes, place: int, est: Estimates, limit: float) -> list[str]:
    """Draw the components of the time of a plan's placements, the fastest first; return those drawn.

    Placements slower than the limit [s] are counted.
    """
    seconds = np.atleast_1d(np.asarray(est.step_seconds, float))
    order = np.argsort(seconds, kind="stable")
    slower = int((seconds > limit).sum())
    order = order[: len(order) - slower]
    width = 0.84 / len(order)
    x = place - 0.42 + width * (np.arange(len(order)) + 0.5)
    under = np.zeros(len(order))
    drawn = list[str]()
    for name, part in est.breakdown.items():
        sizes = style.in_unit("step_seconds", np.broadcast_to(part, seconds.shape)[order])
        if (sizes > MIN_SHARE_DRAWN * seconds[order]).any():
            ax.bar(x, sizes, width * 0.92, under, **style.component_style(name))
            under = under + sizes
            drawn.append(name)
    if slower:
        text = f"{slower} slower,\nto {seconds.max():,.0f} s"
        style.note(ax, text, (place, limit), (0, 1), fontsize=6, ha="center", va="bottom")
    return drawn


def _draw_memory(ax: Axes, memory: Sequence[float], fits: Sequence[bool], capacity: float) -> None:
    """Draw the memory of every plan, against capacity; plans that do not fit are hollow."""
    ax.plot(range(len(memory)), memory, "-", color=style.GREY, linewidth=0.8)
    for place, (size, enough) in enumerate(zip(memory, fits, strict=True)):
        face = style.BLACK if enough else "white"
        ax.plot(place, size, "o", color=style.BLACK, markerfacecolor=face)
        box = style.WHITE_BOX | {"pad": 0.6}  # the capacity line may cross it
        style.note(ax, f"{size:,.0f}", (place, size), (0, 4.5), ha="center", bbox=box)
    ax.axhline(capacity, color=style.BLACK, linestyle="--", linewidth=0.8)
    text = "capacity" if all(fits) else "capacity; above it, a plan does not fit"
    style.note(ax, text, (1, capacity), (-2, 2), xycoords=ax.get_yaxis_transform(), ha="right")
    ax.set_ylim(0, 1.25 * max(capacity, *memory))
    ax.set_ylabel(f"Memory [{style.unit_of('memory_bytes')[0]}]")


def _plans(system: System, gpus: int, base: Plan, stages: Sequence[int]) -> Iterator[Plans]:
    """Yield each plan as columns over its placements."""
    for pp in stages:
        dp, rest = divmod(gpus, base.tp * base.tp2 * base.cp * pp)
        if rest or not dp:
            continue
        fast_pp, fast_dp = (1 if degree == 1 else None for degree in (pp, dp))
        plan = replace(base, pp=pp, dp=dp, fast_pp=fast_pp, fast_dp=fast_dp)
        columns = placements(plan, system.fast_domain)
        if columns is not None:
            yield columns
