"""Figures of hand-made plans that differ in their pipeline stages, each with all its placements."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.knobs import STRATEGIES
from traincast.core.model import Model
from traincast.core.plan import Plan, Plans
from traincast.core.system import System
from traincast.step.estimate import Estimates, estimate
from traincast.step.placement import placements
from traincast.ui.figures import style

BASE_PLAN: Final = Plan(tp=8)
STAGES_TRIED: Final = tuple(1 << power for power in range(8))


@style.styled
def design_space(
    model: Model,
    system: System,
    gpus: int,
    gbs: int,
    base: Plan = BASE_PLAN,
    stages: Sequence[int] = STAGES_TRIED,
    assumptions: str | Assumptions | None = None,
) -> Figure:
    """Draw step times of plans chosen by hand, each with every placement (arXiv 2410.00273, study 3).

    Plans have the base in common and differ in their pipeline stages; data parallelism takes the GPUs that
    are left. Stages that break a rule are left out.
    """
    columns: list[Estimates] = []
    for plan in _plans(system, gpus, base, stages):
        with suppress(InputError):  # breaks a rule
            columns.append(estimate(model, system, plan, gbs=gbs, assumptions=assumptions))
    if not columns:
        problem = "no number of pipeline stages gives a plan that meets the rules"
        raise InputError("design space", [f"{base} on {gpus:,} GPUs: {problem}"])
    figure, (ax,) = style.panels(1, width=max(style.COLUMN + 0.7, 1.2 + 0.5 * len(columns)), height=3.6)
    ticks = []
    for place, est in enumerate(columns):
        _draw_placements(ax, place, est)
        memory = np.max(style.in_unit("memory_bytes", est.memory_bytes))  # the same for every placement
        ticks.append(f"{np.max(est.plan.pp):.0f}\n{np.max(est.plan.dp):,.0f}\n{memory:.0f}")
    ax.margins(x=0.06, y=0.25)
    style.log_axes(ax, "y")
    ax.grid(True, axis="y")
    ax.set_ylabel(style.label("step_seconds"))
    ax.set_xticks(range(len(columns)), ticks)
    rows = f"pp\ndp\nmemory [{style.unit_of('memory_bytes')[0]}]"
    style.note(ax, rows, (0, 0), (-4, -7), xycoords="axes fraction", fontsize=7, ha="right", va="top")
    dp, memory_label = style.label("dp").lower(), style.label("memory_bytes", "").lower()
    ax.set_xlabel(f"{style.label('pp')}, {dp},\n{memory_label}")
    figure.suptitle(f"{model.title} on {gpus:,} × {system.name}, {base}", fontsize=7.5)
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "color": style.BLUE}
    hollow = Line2D([], [], label="does not fit", markerfacecolor="white", **dot)
    handles = [Line2D([], [], label="a placement", **dot), hollow]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _draw_placements(ax: Axes, place: int, est: Estimates) -> None:
    """Draw the times of all placements of a plan above each other, the best one labelled."""
    seconds = np.atleast_1d(style.in_unit("step_seconds", np.asarray(est.step_seconds)))
    ends = [seconds.min(), seconds.max()]
    ax.plot([place] * 2, ends, color=style.BLUE, linewidth=4, alpha=0.25, solid_capstyle="butt")
    face = style.BLUE if np.all(est.fits) else "white"
    ax.plot([place] * len(seconds), seconds, "o", color=style.BLUE, markerfacecolor=face, zorder=3)
    plan = est.plan.take(int(np.argmin(seconds)))
    fast = {axis: getattr(plan, f"fast_{axis}") for axis in STRATEGIES[plan.strategy].axes}
    text = "\n".join(f"{axis} {members:.0f}" for axis, members in fast.items() if members > 1)
    style.note(ax, text, (place, seconds.min()), (0, -4), ha="center", va="top", linespacing=0.95)


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
