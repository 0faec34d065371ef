"""Figures of predictions against measurements: parity plot, parts of steps that errors go with, profiles."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from traincast.core import Bools, Floats, InputError, seconds
from traincast.ui.figures import style

if TYPE_CHECKING:
    from traincast.accuracy import CollectiveRow, ProfiledStep

PARITY_BAND: Final = 0.1  # relative half-width in the parity plot
MAX_PANELS: Final = 3  # side by side
MIN_CAUSE_DRAWN: Final = 0.002  # mean part of an error of any source
Budgets = Sequence[tuple[str, int, Mapping[str, float], float]]  # source, rows, causes, unexplained
POINT: Final[style.Look] = {
    "linestyle": "",
    "markersize": 2.2,
    "markeredgewidth": 0,
    "alpha": 0.6,
    "rasterized": True,
}


@style.apply_style
def accuracy(
    measured: Floats, predicted: Floats, families: Sequence[str], moe: Bools, budgets: Budgets, title: str
) -> Figure:
    """Draw predicted against measured step times [s], and the parts of the step that errors correlate with.

    Points are coloured by family, and have another marker where the model has experts. A budget is a source,
    its rows, points of its mean error by part of the step, and the mean error that no part explains.
    """
    if not len(measured):
        raise InputError("parity plot", ["no run is predicted whose step time was measured"])
    figure, (left, right) = style.panels(2, height=max(3.8, 1.8 + 0.12 * len(budgets)))
    _draw_parity(left, measured, predicted, np.array(families), moe)
    causes = _draw_budgets(right, budgets)
    handles = style.component_legend(causes)
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=style.SMALL, columnspacing=1)
    figure.suptitle(title, fontsize=8)
    return figure


@style.apply_style
def collectives(timings: Sequence["CollectiveRow"], theories: Mapping[str, Floats], title: str) -> Figure:
    """Draw measured times of collectives against the size of the tensor, with predictions of the same.

    A panel for each collective; a colour for each number of nodes and of GPUs in them. `theories` are
    predicted times of every row by a name [s].
    """
    if not timings:
        raise InputError("collectives", ["no collective was timed"])
    kinds = list(dict.fromkeys(row.op for row in timings))
    groups = sorted({(row.nodes, row.gpus_per_node) for row in timings}, key=lambda group: group[::-1])
    colours: Sequence[object] = style.COLOURS
    if len(groups) > len(colours):
        colours = colormaps["viridis"](np.linspace(0, 0.95, len(groups))).tolist()
    figure, axes = style.panel_grid(-(-len(kinds) // MAX_PANELS), min(len(kinds), MAX_PANELS))
    for ax, kind in zip(axes.ravel(), kinds, strict=False):
        for group, colour in zip(groups, colours, strict=False):
            chosen = [
                i for i, row in enumerate(timings) if (row.op, row.nodes, row.gpus_per_node) == (kind, *group)
            ]
            chosen.sort(key=lambda i: timings[i].size_bytes)
            sizes = np.array([timings[i].size_bytes for i in chosen]) / 1e6
            ax.plot(sizes, [timings[i].time_us / 1e3 for i in chosen], "o", color=colour, markersize=2.6)
            for predicted, dash in zip(theories.values(), style.DASHES, strict=False):
                ax.plot(sizes, 1e3 * predicted[chosen], color=colour, linestyle=dash)
        style.log_axes(ax)
        ax.grid(True)
        ax.set(title=kind, xlabel="Tensor [MB]")
        ax.tick_params(axis="x", rotation=45)
    for ax in axes.ravel()[len(kinds) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("Time [ms]")
    handles = [
        style.sample(f"{nodes} × {gpus} GPUs", color=colour)
        for (nodes, gpus), colour in zip(groups, colours, strict=False)
    ]
    handles.append(style.sample("measured", "", marker="o"))
    handles += [style.sample(*named) for named in zip(theories, style.DASHES, strict=False)]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    figure.suptitle(title, fontsize=8)
    return figure


def _draw_parity(
    ax: Axes, measured: Floats, predicted: Floats, families: NDArray[np.str_], moe: Bools
) -> None:
    times = np.concatenate((measured, predicted))
    diagonal = np.array([times.min() / 1.5, times.max() * 1.5])
    low = diagonal * (1 - PARITY_BAND)
    high = diagonal * (1 + PARITY_BAND)
    ax.fill_between(diagonal, low, high, color=style.GREY, alpha=0.25, linewidth=0)
    ax.plot(diagonal, diagonal, color=style.BLACK, linewidth=0.6)
    handles: list[object] = [Patch(color=style.GREY, alpha=0.25, label=f"± {PARITY_BAND:.0%}")]
    for family, colour in zip(dict.fromkeys(families.tolist()), cycle(style.COLOURS), strict=False):
        for selected, marker in ((~moe, "o"), (moe, "^")):
            rows = selected & (families == family)
            ax.plot(measured[rows], predicted[rows], marker=marker, color=colour, **POINT)
        handles.append(style.sample(family, "", color=colour, marker="o"))
    if moe.any():
        handles.append(style.sample("with experts", "", color=style.GREY, marker="^"))
    ax.set(xlim=diagonal, ylim=diagonal, aspect="equal")
    style.log_axes(ax)
    ax.set_xlabel(f"Measured {style.label('step_seconds').lower()}")
    ax.set_ylabel(f"Predicted {style.label('step_seconds').lower()}")
    ax.legend(handles=handles, loc="upper left", fontsize=style.SMALL, handletextpad=0.3, labelspacing=0.3)


def _draw_budgets(ax: Axes, budgets: Budgets) -> list[str]:
    """Draw the right panel, bars of causes and lines for the unexplained error; return the causes."""
    places = np.arange(len(budgets))[::-1]
    zeros = np.zeros(len(budgets))
    names = budgets[0][2] if budgets else ()
    sizes = {name: 100 * np.array([causes.get(name, 0.0) for _, _, causes, _ in budgets]) for name in names}
    drawn = [name for name in sizes if np.abs(sizes[name]).max() > 100 * MIN_CAUSE_DRAWN]
    for sign in (1, -1):
        ends = zeros
        for name in drawn:
            size = np.maximum(sign * sizes[name], 0)
            ax.barh(places, sign * size, 0.7, left=sign * ends, **style.component_style(name))
            ends = ends + size
    unexplained = np.array([100 * budget[3] for budget in budgets])
    ax.errorbar(zeros, places, xerr=unexplained, fmt="none", ecolor=style.BLACK, elinewidth=0.7, capsize=1.5)
    ax.axvline(0, color=style.BLACK, linewidth=0.6)
    ax.set_yticks(places, [f"{source} ({rows})" for source, rows, _, _ in budgets], fontsize=style.SMALL)
    ax.set_ylim(-0.7, len(budgets) - 0.3)
    unexplained_text = "lines: mean error that no part explains"
    ax.use_sticky_edges = False  # which would end the axis at a bar
    ax.autoscale_view(scaley=False)
    ax.set_xlabel(f"Points of the mean error that go with a part [%];\n{unexplained_text}")
    ax.grid(True, axis="x")
    return drawn


@style.apply_style
def profiled_step(step: "ProfiledStep") -> Figure:
    """Draw the measured parts of a step, and the predicted ones beside them."""
    parts = [part for part in step.parts if part.seconds or part.predicted_seconds]
    places = np.arange(len(parts))[::-1]
    figure = Figure((style.PAGE * 0.7, 1.2 + 0.3 * len(parts)), layout="constrained")
    ax = figure.subplots()
    ax.barh(places + 0.19, [part.seconds for part in parts], 0.36, color=style.BLUE, label="measured")
    if step.predicted_seconds is not None:
        predicted = [part.predicted_seconds or 0.0 for part in parts]
        ax.barh(places - 0.19, predicted, 0.36, color=style.ORANGE, label="predicted")
    ax.set_yticks(places, [part.name for part in parts])
    ax.set_xlabel("Time of a step [s]")
    ax.legend(loc="lower right", fontsize=style.SMALL)
    figure.suptitle(f"{step.file}: {seconds(step.step_seconds)} a step", fontsize=8)
    return figure
