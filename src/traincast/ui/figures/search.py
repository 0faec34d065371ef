"""Figures of a plan's operations (roofline) and of a search (Pareto front, sensitivities)."""

from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from traincast.core.errors import InputError
from traincast.core.nomenclature import COLUMNS
from traincast.core.quantities import Floats
from traincast.core.system import System
from traincast.planner.evaluation import StrategyResult, evaluate
from traincast.planner.explain import space_of
from traincast.planner.misfit import MIN_CHANGE_REPORTED
from traincast.planner.search import Found
from traincast.step.estimate import Estimate, estimate, require_one_plan
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
    label_points,
    log_axes,
    panels,
    styled,
    unit_of,
)

RELATIVE_CHANGE: Final = 0.1  # of each hardware figure
MAX_NAME_CHARACTERS: Final = 24  # characters of a name beside an axis
MAX_OPERATIONS_LABELLED: Final = 8  # operations named in a roofline
DIRECTION_MARKERS: Final = {"forward": "o", "backward": "^"}  # passes → markers
TORNADO_BARS: Final[
    tuple[tuple[float, str, dict[str, Any]], ...]
] = (  # where a bar lies, what it says, how it looks
    (0.2, "plan fixed", {}),
    (-0.2, "plan re-optimised", {"hatch": "/////", "alpha": 0.75}),
)


@styled
def roofline(est: Estimate) -> Figure:
    """Draw the operations of a layer under the roofline; the longest are named, area is time.

    Parameters
    ----------
    est : Estimate
        Of one plan. Achieved is what is reached without communication, launches included.

    Raises
    ------
    InputError
        If it is not of one plan.
    """
    require_one_plan(est, "roofline")
    rows = [
        (row, direction)
        for row in est.operations()
        for direction in DIRECTION_MARKERS
        if row[f"{direction}_bytes"] > 0
    ]
    matrix = np.array([row[f"{direction}_matrix_flops"] for row, direction in rows])
    flops = matrix + np.array([row[f"{direction}_vector_flops"] for row, direction in rows])
    seconds = np.array(
        [row[f"{direction}_compute_seconds"] + row[f"{direction}_memory_seconds"] for row, direction in rows]
    )
    intensity = flops / np.array([row[f"{direction}_bytes"] for row, direction in rows])
    achieved = in_unit("accelerator.matrix_flops", flops / seconds)
    figure, (ax,) = panels(1, width=COLUMN + 1.2, height=3.4)
    for direction, marker in DIRECTION_MARKERS.items():
        selected = np.array([pass_direction == direction for _, pass_direction in rows])
        colours, area = (
            np.where(matrix[selected] > 0, BLUE, ORANGE),
            8 + 120 * seconds[selected] / seconds.max(),
        )
        ax.scatter(
            intensity[selected],
            achieved[selected],
            area,
            colours,
            marker=marker,
            alpha=0.75,
            linewidths=0,
            zorder=3,
        )
    _draw_roofs(ax, est.system.accelerator, intensity, achieved)
    ax.set_xlabel("Arithmetic intensity [FLOP/byte]")
    ax.set_ylabel(f"Achieved [{unit_of('accelerator.matrix_flops')[0]}]")
    ax.set_title(f"{est.model.title} on {est.system.name}, {est.plan}", fontsize=SMALL)
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{units}, {direction}")
        for (units, colour), (direction, marker) in product(
            (("matrix", BLUE), ("vector", ORANGE)), DIRECTION_MARKERS.items()
        )
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1, handletextpad=0)
    figure.draw_without_rendering()
    longest: dict[str, int] = {}  # operation → its longer pass
    for i in np.argsort(-seconds, kind="stable"):
        longest.setdefault(rows[i][0]["operation"], int(i))
    named = dict(list(longest.items())[:MAX_OPERATIONS_LABELLED])
    label_points(ax, [(intensity[i], achieved[i]) for i in named.values()], list(named))
    return figure


def _draw_roofs(ax: Axes, chip: Any, intensity: Floats, achieved: Floats) -> None:
    """Draw the peaks of the matrix and vector units and the slope of memory bandwidth."""
    matrix, vector, bandwidth = chip.matrix_flops, chip.vector_flops, chip.hbm_bandwidth
    low, high = (
        min(intensity.min() / 2, vector / bandwidth / 4),
        max(intensity.max() * 3, matrix / bandwidth * 4),
    )
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL}
    for name, peak, start, dash in (
        ("matrix", matrix, low, "-"),
        ("vector", vector, vector / bandwidth, "--"),
    ):
        x = np.array([start, peak / bandwidth, high])
        y = in_unit("accelerator.matrix_flops", np.minimum(x * bandwidth, peak))
        ax.plot(x, y, color=BLACK, linestyle=dash, linewidth=0.9)
        ax.annotate(
            f"{name} units\n{y[-1]:,.0f} {unit_of('accelerator.matrix_flops')[0]}",
            (high, y[-1]),
            (3, 0),
            va="center",
            **look,
        )
    ax.set(xlim=(low, high), ylim=(achieved.min() / 3, in_unit("accelerator.matrix_flops", matrix) * 3))
    log_axes(ax)
    hbm_text = f"HBM, {in_unit('accelerator.hbm_bandwidth', bandwidth):,.0f} {unit_of('accelerator.hbm_bandwidth')[0]}"
    at = (low * 1.4, in_unit("accelerator.matrix_flops", low * 1.4 * bandwidth))
    ax.annotate(
        hbm_text, at, (-3, 3), rotation=45, rotation_mode="anchor", transform_rotates_text=True, **look
    )


@styled
def pareto(result: Found) -> Figure:
    """Draw time against memory of all layouts that fit, with the Pareto front and the fastest plan.

    Parameters
    ----------
    result : Found
        A search. A point is a layout with its best placement.
    """
    figure, (ax,) = panels(1, width=COLUMN + 1.0, height=3.2)
    capacity = float(in_unit("memory_bytes", result.system.accelerator.hbm_bytes))
    for outcome in result.outcomes:
        memory = in_unit("memory_bytes", outcome.memory)
        ax.plot(
            memory,
            outcome.least_seconds,
            ".",
            color=GREY,
            alpha=0.5,
            markersize=3,
            markeredgewidth=0,
            rasterized=True,
        )
    ax.axvline(capacity, color=BLACK, linestyle="--", linewidth=0.9, label="capacity")
    if result.best is None:
        ax.text(
            0.5,
            0.5,
            f"none of {result.candidates:,} candidates fits",
            transform=ax.transAxes,
            ha="center",
            fontsize=7,
        )
        ax.set_xlim(0, capacity * 1.05)
        ax.set_yticks([])
    else:
        front = result.pareto()
        points = [
            (float(in_unit("memory_bytes", est.memory_bytes)), float(est.step_seconds)) for _, est in front
        ]
        ax.plot(
            *zip(*points, strict=True),
            "o-",
            color=BLUE,
            drawstyle="steps-pre",
            label=f"Pareto front, {len(front)} plans",
        )
        ax.plot(
            *points[0], "*", color=VERMILION, markersize=9, markeredgecolor="white", label=str(result.best[0])
        )
        log_axes(ax, "y")
    ax.plot(
        [],
        [],
        ".",
        color=GREY,
        markersize=3,
        label=f"{result.feasible:,} of {result.candidates:,} candidates fit",
    )
    ax.set_xlabel(label("memory_bytes"))
    ax.set_ylabel(label("step_seconds"))
    ax.set_title(f"{result.model.title} on {result.gpus:,} × {result.system.name}")
    figure.legend(loc="outside lower center", ncols=1)
    return figure


@styled
def tornado(result: Found, least: float = MIN_CHANGE_REPORTED) -> Figure:
    """Draw the change of step time when each hardware figure is 10 % less or more, plan fixed and plan re-optimised.

    Parameters
    ----------
    result : Found
        A search.
    least : float
        Share of the step time by which a figure must change it to be drawn; the largest change always is.

    Raises
    ------
    InputError
        If nothing fits.
    """
    if result.best is None:
        raise InputError(
            "tornado",
            [f"none of {result.candidates:,} candidates fits on {result.gpus:,} × {result.system.name}"],
        )
    paths = [path for path in result.system.figures() if path in COLUMNS]
    changes = 100 * (
        _changed_seconds(result, paths) / result.least_seconds - 1
    )  # plan fixed or not, figure, less or more
    largest_change = np.abs(changes).max(axis=(0, 2))
    order = np.argsort(largest_change, kind="stable")[
        min(np.sum(largest_change < 100 * least), len(largest_change) - 1) :
    ]
    figure, (ax,) = panels(1, width=5.2, height=0.9 + 0.27 * len(order))
    for (shift, way, look), row in zip(TORNADO_BARS, changes[:, order], strict=True):
        for change, colour, sign in zip(row.T, (ORANGE, BLUE), "−+", strict=True):
            _draw_bars(
                ax,
                np.arange(len(order), dtype=np.float64) + shift,
                change,
                color=colour,
                label=f"{sign}{100 * RELATIVE_CHANGE:.0f} %, {way}",
                **look,
            )
    ax.axvline(0, color=BLACK, linewidth=0.6)
    ax.set_yticks(range(len(order)), [_figure_title(result.system, paths[i]) for i in order])
    left_out = len(largest_change) - len(order)
    left_out_text = f"\n{left_out} more: below {least:.2%}" if left_out else ""
    ax.set_xlabel(f"{label('step_seconds', '')},\nchange [%]{left_out_text}")
    ax.grid(True, axis="x")
    figure.suptitle(
        f"{result.model.title} on {result.gpus:,} × {result.system.name}\n{result.best[0]}", fontsize=7
    )
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _draw_bars(ax: Axes, places: Floats, change: Floats, **look: Any) -> None:
    """Draw bars of a tornado; infinite ones are labelled as not fitting."""
    ax.barh(places, np.where(np.isinf(change), 0, change), 0.38, edgecolor="white", linewidth=0, **look)
    for place in places[np.isinf(change)]:
        ax.text(0, place, " does not fit", fontsize=SMALL, va="center", color=look["color"])


def _changed_seconds(result: Found, paths: list[str]) -> Floats:
    """Return step times with each figure changed, shape (plan fixed or re-optimised, figure, less or more) [s]; inf: no fit."""
    figures = result.system.figures()
    columns = {path: np.full(2 * len(paths), float(figures[path])) for path in paths}
    for i, path in enumerate(paths):
        columns[path][2 * i : 2 * i + 2] *= (1 - RELATIVE_CHANGE, 1 + RELATIVE_CHANGE)
    machines = result.system.with_figures(columns)
    fixed = estimate(
        result.model, machines, result.plans[0][0].columns(), gbs=result.gbs, assumptions=result.assumptions
    )
    reoptimised = [_best_seconds(result, machines, outcome) for outcome in result.outcomes]
    fixed_seconds = np.where(fixed.fits, fixed.step_seconds, np.inf)
    return np.stack((fixed_seconds, np.min(reoptimised, axis=0))).reshape(2, len(paths), 2)


def _best_seconds(result: Found, machines: System, outcome: StrategyResult) -> Floats:
    """Return the least step time of a strategy's plans on each machine [s], infinite where nothing fits."""
    evaluation = evaluate(space_of(outcome, result.gpus), machines, result.assumptions)
    return np.array(
        [
            evaluation.outcomes(machine)[0].least_seconds.min(initial=np.inf)
            for machine in range(machines.machines())
        ]
    )


def _figure_title(system: System, path: str) -> str:
    """Return the name of a hardware figure, with its network tier if it has one."""
    part, _, number = path.rpartition(".")[0].partition(".")
    name = label(path, "")
    if part != "network":
        return name
    tier = system.tiers[int(number)].name
    return f"{tier if len(tier) <= MAX_NAME_CHARACTERS else tier[: MAX_NAME_CHARACTERS - 1] + '…'}: {name[0].lower()}{name[1:]}"
