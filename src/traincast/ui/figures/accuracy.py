"""Figures of predictions against measurements: parity plot, and parts of the step that errors go with."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from traincast.core.errors import InputError
from traincast.core.quantities import Bools, Floats
from traincast.planner.misfit import label as component_name
from traincast.ui.figures.style import BLACK, COLOURS, COMPONENTS, GREY, PAGE, SMALL, label, log_axes, styled

PARITY_BAND: Final = 0.1  # relative half-width in the parity plot
MIN_CAUSE_DRAWN: Final = 0.002  # mean part of an error of any source
Budgets = Sequence[tuple[str, int, Mapping[str, float], float]]  # source, rows, causes, unexplained


@styled
def accuracy(
    measured: Floats, predicted: Floats, families: Sequence[str], moe: Bools, budgets: Budgets, title: str
) -> Figure:
    """Draw predicted against measured step times, beside the parts of the step that each source's errors go with.

    Parameters
    ----------
    measured, predicted : array, shape (rows,)
        Step times [s].
    families : sequence of str, of length rows
        What the points are coloured by.
    moe : array of bool, shape (rows,)
        Whether the model has experts: other markers.
    budgets : sequence of tuple
        For each source its name, its rows, points of its mean error by part of the step, and the mean error that no part explains.
    title : str
        Title of the figure.

    Raises
    ------
    InputError
        If there are no rows.
    """
    if not len(measured):
        raise InputError("parity plot", ["no run is predicted whose step time was measured"])
    figure = Figure((PAGE, max(3.8, 1.8 + 0.12 * len(budgets))), layout="constrained")
    left, right = figure.subplots(1, 2)
    for ax in (left, right):
        ax.tick_params(which="both", labelsize=7, width=0.6)
    _draw_parity(left, measured, predicted, families, moe)
    handles = _draw_budgets(right, budgets)
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=SMALL, columnspacing=1)
    figure.suptitle(title, fontsize=8)
    return figure


def _draw_parity(ax: Axes, measured: Floats, predicted: Floats, families: Sequence[str], moe: Bools) -> None:
    """Draw the left panel: predicted against measured."""
    axis_limits = np.array(
        [min(measured.min(), predicted.min()) / 1.5, max(measured.max(), predicted.max()) * 1.5]
    )
    ax.fill_between(
        axis_limits,
        axis_limits * (1 - PARITY_BAND),
        axis_limits * (1 + PARITY_BAND),
        color=GREY,
        alpha=0.25,
        linewidth=0,
    )
    ax.plot(axis_limits, axis_limits, color=BLACK, linewidth=0.6)
    names = np.array(families)
    handles: list[Any] = [Patch(color=GREY, alpha=0.25, label=f"± {PARITY_BAND:.0%}")]
    style: dict[str, Any] = {
        "linestyle": "",
        "markersize": 2.2,
        "markeredgewidth": 0,
        "alpha": 0.6,
        "rasterized": True,
    }
    for family, colour in zip(dict.fromkeys(families), cycle(COLOURS), strict=False):
        for selected, marker in ((~moe, "o"), (moe, "^")):
            rows = selected & (names == family)
            ax.plot(measured[rows], predicted[rows], marker=marker, color=colour, **style)
        handles.append(Line2D([], [], color=colour, marker="o", linestyle="", label=family))
    if moe.any():
        handles.append(Line2D([], [], color=GREY, marker="^", linestyle="", label="with experts"))
    ax.set(xlim=axis_limits, ylim=axis_limits, aspect="equal")
    log_axes(ax)
    ax.set_xlabel(f"Measured {label('step_seconds').lower()}")
    ax.set_ylabel(f"Predicted {label('step_seconds').lower()}")
    ax.legend(handles=handles, loc="upper left", fontsize=SMALL, handletextpad=0.3, labelspacing=0.3)


def _draw_budgets(ax: Axes, budgets: Budgets) -> list[Patch]:
    """Draw the right panel: bars of causes to both sides, a line for the unexplained error. Returns the legend of the causes."""
    places = np.arange(len(budgets))[::-1]
    largest = {
        name: max(abs(budget[2].get(name, 0.0)) for budget in budgets)
        for name in (budgets[0][2] if budgets else ())
    }
    shown = [name for name, largest_size in largest.items() if largest_size > MIN_CAUSE_DRAWN]
    for sign in (1, -1):
        ends = np.zeros(len(budgets))
        for name in shown:
            size = np.array([max(sign * budget[2].get(name, 0.0), 0.0) for budget in budgets]) * 100
            colour, hatch = COMPONENTS[name]
            ax.barh(
                places,
                sign * size,
                0.7,
                left=sign * ends,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
            )
            ends += size
    unexplained = np.array([100 * budget[3] for budget in budgets])
    ax.errorbar(
        np.zeros(len(budgets)),
        places,
        xerr=unexplained,
        fmt="none",
        ecolor=BLACK,
        elinewidth=0.7,
        capsize=1.5,
    )
    ax.axvline(0, color=BLACK, linewidth=0.6)
    ax.set_yticks(places, [f"{budget[0]} ({budget[1]})" for budget in budgets], fontsize=SMALL)
    ax.set_ylim(-0.7, len(budgets) - 0.3)
    ax.set_xlabel(
        "Points of the mean error that go with a part [%];\nlines: mean error that no part explains"
    )
    ax.grid(True, axis="x")
    return [
        Patch(
            facecolor=COMPONENTS[name][0],
            hatch=COMPONENTS[name][1],
            edgecolor="white",
            linewidth=0,
            label=component_name(name),
        )
        for name in shown
    ]
