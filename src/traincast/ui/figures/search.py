"""Figures of a plan's operations (roofline) and of a search (Pareto front, sensitivities)."""

from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from traincast.core.errors import InputError
from traincast.core.quantities import COLUMNS, Floats
from traincast.core.system import System
from traincast.planner.evaluation import StrategyResult, evaluate
from traincast.planner.explain import space_of
from traincast.planner.misfit import FELT
from traincast.planner.search import Found
from traincast.step.estimate import Estimate, estimate
from traincast.ui.figures.step import single
from traincast.ui.figures.style import (
    BLACK,
    BLUE,
    COLUMN,
    GREY,
    ORANGE,
    SMALL,
    VERMILION,
    in_unit,
    label,
    log_axes,
    panels,
    spread,
    styled,
    unit_of,
)

CHANGE: Final = 0.1  # by how much each hardware figure is changed
LONGEST: Final = 24  # characters of a name beside an axis
LABELLED: Final = 8  # operations named in a roofline
WAYS: Final = {"forward": "o", "backward": "^"}  # passes → markers
TORNADO: Final[tuple[tuple[float, str, dict[str, Any]], ...]] = (  # where a bar lies, what it says, how it looks
    (0.2, "plan fixed", {}),
    (-0.2, "plan re-optimised", {"hatch": "/////", "alpha": 0.75}),
)


@styled
def roofline(est: Estimate) -> Figure:
    """Operations of a layer under the roofs of the accelerator; the longest are named, area is time.

    Parameters
    ----------
    est : Estimate
        Of one plan. Achieved is what is reached without communication, launches included.

    Raises
    ------
    InputError
        If it is of columns of plans.
    """
    single(est, "roofline")
    rows = [(row, way) for row in est.operations() for way in WAYS if row[f"{way}_bytes"] > 0]
    matrix = np.array([row[f"{way}_matrix_flops"] for row, way in rows])
    flops = matrix + np.array([row[f"{way}_vector_flops"] for row, way in rows])
    seconds = np.array([row[f"{way}_compute_seconds"] + row[f"{way}_memory_seconds"] for row, way in rows])
    intensity = flops / np.array([row[f"{way}_bytes"] for row, way in rows])
    reached = in_unit("accelerator.matrix_flops", flops / seconds)
    figure, (ax,) = panels(1, width=COLUMN + 1.2, height=3.4)
    for way, marker in WAYS.items():
        some = np.array([one == way for _, one in rows])
        colours, area = np.where(matrix[some] > 0, BLUE, ORANGE), 8 + 120 * seconds[some] / seconds.max()
        ax.scatter(intensity[some], reached[some], area, colours, marker=marker, alpha=0.75, linewidths=0, zorder=3)
    _roofs(ax, est.system.accelerator, intensity, reached)
    ax.set_xlabel("Arithmetic intensity [FLOP/byte]")
    ax.set_ylabel(f"Achieved [{unit_of('accelerator.matrix_flops')[0]}]")
    ax.set_title(f"{est.model.title} on {est.system.name}, {est.plan}", fontsize=SMALL)
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{units}, {way}")
        for (units, colour), (way, marker) in product((("matrix", BLUE), ("vector", ORANGE)), WAYS.items())
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1, handletextpad=0)
    figure.draw_without_rendering()
    longest: dict[str, int] = {}  # operation → its longer pass
    for i in np.argsort(-seconds, kind="stable"):
        longest.setdefault(rows[i][0]["operation"], int(i))
    named = dict(list(longest.items())[:LABELLED])
    spread(ax, [(intensity[i], reached[i]) for i in named.values()], list(named))
    return figure


def _roofs(ax: Axes, chip: Any, intensity: Floats, reached: Floats) -> None:
    """Peaks of the matrix and vector units and the slope of memory, over the operations' range."""
    matrix, vector, bandwidth = chip.matrix_flops, chip.vector_flops, chip.hbm_bandwidth
    low, high = min(intensity.min() / 2, vector / bandwidth / 4), max(intensity.max() * 3, matrix / bandwidth * 4)
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL}
    for name, peak, start, dash in (("matrix", matrix, low, "-"), ("vector", vector, vector / bandwidth, "--")):
        x = np.array([start, peak / bandwidth, high])
        y = in_unit("accelerator.matrix_flops", np.minimum(x * bandwidth, peak))
        ax.plot(x, y, color=BLACK, linestyle=dash, linewidth=0.9)
        ax.annotate(
            f"{name} units\n{y[-1]:,.0f} {unit_of('accelerator.matrix_flops')[0]}", (high, y[-1]), (3, 0), va="center", **look
        )
    ax.set(xlim=(low, high), ylim=(reached.min() / 3, in_unit("accelerator.matrix_flops", matrix) * 3))
    log_axes(ax)
    told = f"HBM, {in_unit('accelerator.hbm_bandwidth', bandwidth):,.0f} {unit_of('accelerator.hbm_bandwidth')[0]}"
    at = (low * 1.4, in_unit("accelerator.matrix_flops", low * 1.4 * bandwidth))
    ax.annotate(told, at, (-3, 3), rotation=45, rotation_mode="anchor", transform_rotates_text=True, **look)


@styled
def pareto(found: Found) -> Figure:
    """Time against memory of everything that fits, with the front and the winner.

    Parameters
    ----------
    found : Found
        A search. A point is a layout with its best placement.
    """
    figure, (ax,) = panels(1, width=COLUMN + 1.0, height=3.2)
    capacity = float(in_unit("memory_bytes", found.system.accelerator.hbm_bytes))
    for outcome in found.outcomes:
        held = in_unit("memory_bytes", outcome.memory)
        ax.plot(held, outcome.least_seconds, ".", color=GREY, alpha=0.5, markersize=3, markeredgewidth=0, rasterized=True)
    ax.axvline(capacity, color=BLACK, linestyle="--", linewidth=0.9, label="capacity")
    if found.best is None:
        ax.text(0.5, 0.5, f"none of {found.candidates:,} candidates fits", transform=ax.transAxes, ha="center", fontsize=7)
        ax.set_xlim(0, capacity * 1.05)
        ax.set_yticks([])
    else:
        front = found.pareto()
        points = [(float(in_unit("memory_bytes", est.memory_bytes)), float(est.step_seconds)) for _, est in front]
        ax.plot(*zip(*points, strict=True), "o-", color=BLUE, drawstyle="steps-pre", label=f"Pareto front, {len(front)} plans")
        ax.plot(*points[0], "*", color=VERMILION, markersize=9, markeredgecolor="white", label=str(found.best[0]))
        log_axes(ax, "y")
    ax.plot([], [], ".", color=GREY, markersize=3, label=f"{found.feasible:,} of {found.candidates:,} candidates fit")
    ax.set_xlabel(label("memory_bytes"))
    ax.set_ylabel(label("step_seconds"))
    ax.set_title(f"{found.model.title} on {found.gpus:,} × {found.system.name}")
    figure.legend(loc="outside lower center", ncols=1)
    return figure


@styled
def tornado(found: Found, least: float = FELT) -> Figure:
    """Change of step time when each hardware figure is 10 % less or more, the plan as it is and the plan re-optimised.

    Parameters
    ----------
    found : Found
        A search.
    least : float
        Share of the step time by which a figure must change it to be drawn; the largest change always is.

    Raises
    ------
    InputError
        If nothing fits.
    """
    if found.best is None:
        raise InputError("tornado", [f"none of {found.candidates:,} candidates fits on {found.gpus:,} × {found.system.name}"])
    paths = [path for path in found.system.figures() if path in COLUMNS]
    changes = 100 * (_changed(found, paths) / found.least_seconds - 1)  # plan fixed or not, figure, less or more
    most = np.abs(changes).max(axis=(0, 2))
    order = np.argsort(most, kind="stable")[min(np.sum(most < 100 * least), len(most) - 1) :]
    figure, (ax,) = panels(1, width=5.2, height=0.9 + 0.27 * len(order))
    for (shift, way, look), row in zip(TORNADO, changes[:, order], strict=True):
        for change, colour, sign in zip(row.T, (ORANGE, BLUE), "−+", strict=True):
            _bars(
                ax,
                np.arange(len(order), dtype=np.float64) + shift,
                change,
                color=colour,
                label=f"{sign}{100 * CHANGE:.0f} %, {way}",
                **look,
            )
    ax.axvline(0, color=BLACK, linewidth=0.6)
    ax.set_yticks(range(len(order)), [_named(found.system, paths[i]) for i in order])
    idle = len(most) - len(order)
    rest = f"\n{idle} more: below {least:.2%}" if idle else ""
    ax.set_xlabel(f"{label('step_seconds', '')},\nchange [%]{rest}")
    ax.grid(True, axis="x")
    figure.suptitle(f"{found.model.title} on {found.gpus:,} × {found.system.name}\n{found.best[0]}", fontsize=7)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _bars(ax: Axes, places: Floats, change: Floats, **look: Any) -> None:
    """Bars of a tornado; infinite ones are said to be what they are."""
    ax.barh(places, np.where(np.isinf(change), 0, change), 0.38, edgecolor="white", linewidth=0, **look)
    for place in places[np.isinf(change)]:
        ax.text(0, place, " does not fit", fontsize=SMALL, va="center", color=look["color"])


def _changed(found: Found, paths: list[str]) -> Floats:
    """Step time with each figure changed, shape (plan fixed or re-optimised, figure, less or more) [s]; infinite: does not fit."""
    figures = found.system.figures()
    columns = {path: np.full(2 * len(paths), float(figures[path])) for path in paths}
    for i, path in enumerate(paths):
        columns[path][2 * i : 2 * i + 2] *= (1 - CHANGE, 1 + CHANGE)
    machines = found.system.with_figures(columns)
    fixed = estimate(found.model, machines, found.plans[0][0], found.gbs, found.assumptions)
    again = [_least(found, machines, outcome) for outcome in found.outcomes]
    kept = np.where(fixed.fits, fixed.step_seconds, np.inf)
    return np.stack((kept, np.min(again, axis=0))).reshape(2, len(paths), 2)


def _least(found: Found, machines: System, outcome: StrategyResult) -> Floats:
    """Step time of the best plan of a batch on each machine [s], infinite where nothing fits."""
    one = evaluate(space_of(outcome, found.gpus), found.model, machines, found.gbs, found.assumptions)
    return np.array([one.outcomes(machine)[0].least_seconds.min(initial=np.inf) for machine in range(machines.machines())])


def _named(system: System, path: str) -> str:
    """A hardware figure in words, with the tier of network it is of."""
    part, _, number = path.rpartition(".")[0].partition(".")
    name = label(path, "")
    if part != "network":
        return name
    tier = system.tiers[int(number)].name
    return f"{tier if len(tier) <= LONGEST else tier[: LONGEST - 1] + '…'}: {name[0].lower()}{name[1:]}"
