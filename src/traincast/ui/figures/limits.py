"""Figures of the limits of moving data: utilisation against cluster size and against training compute."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from traincast.analysis.training_limits import Limits
from traincast.core.quantities import Floats
from traincast.ui.figures.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    SKY,
    SMALL,
    label,
    log_axes,
    panels,
    power,
    styled,
)

FIGURE_WIDTH: Final = 4.6  # of a figure [inch]
BINDING_STYLES: Final = {
    "FLOP": (BLUE, "o"),
    "memory": (SKY, "^"),
    "network": (ORANGE, "s"),
}  # what binds → colour and marker


@styled
def utilisation_by_cluster(limits: Limits) -> Figure:
    """Draw utilisation with the best sharding of a layer against the number of accelerators, and what binds.

    Parameters
    ----------
    limits : Limits
        What moving data allows.
    """
    figure, (ax,) = panels(1, FIGURE_WIDTH, height=3.2)
    d_in, d_out = limits.layer
    clusters = limits.clusters
    _draw_utilisation(ax, limits, np.asarray(clusters.gpus), np.asarray(clusters.utilisation), clusters.binds)
    ax.set_xlabel(label("gpus"))
    ax.set_title(f"{limits.device.name}: layer of {d_in:,} × {d_out:,}, {limits.tokens:,} tokens")
    _legend(figure)
    return figure


@styled
def utilisation_by_compute(limits: Limits) -> Figure:
    """Draw utilisation against the training compute of runs of a fixed length, what binds, and where it halves and collapses.

    Parameters
    ----------
    limits : Limits
        What moving data allows.
    """
    figure, (ax,) = panels(1, FIGURE_WIDTH, height=3.2)
    runs = limits.training
    _draw_utilisation(ax, limits, runs.flops, runs.utilisation, runs.binds)
    for at, word in ((limits.halves, "halves"), (limits.collapses, "collapses")):
        if at is not None:
            ax.axvline(at, color=GREY, linestyle="--", linewidth=0.7)
            look: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL, "va": "top"}
            ax.annotate(
                f"{word}\n{power(at, 1)}", (at, 0.99), (2, 0), xycoords=("data", "axes fraction"), **look
            )
    ax.set_xlabel(f"Training compute in {runs.days:.0f} days [FLOP]")
    ax.set_title(f"{limits.device.name}, {limits.device.network_bandwidth / 1e9:g} GB/s of network")
    _legend(figure)
    return figure


def _draw_utilisation(
    ax: Axes, limits: Limits, x: Floats, utilisation: Floats, binds: Sequence[str | None]
) -> None:
    """Draw utilisation, with a marker for what binds at each point."""
    ax.plot(x, utilisation, color=BLACK, linewidth=0.8)
    for name, (colour, marker) in BINDING_STYLES.items():
        selected = np.array([resource == name for resource in binds])
        ax.plot(x[selected], utilisation[selected], color=colour, marker=marker, linestyle="")
    ax.axhline(limits.largest, color=GREY, linestyle=":")
    log_axes(ax, "x")
    ax.set_ylim(0, 1)
    ax.set_ylabel("Utilisation of the dense peak")
    ax.grid(True)


def _legend(figure: Figure) -> None:
    """Draw the legend of markers and dotted line."""
    marks = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=name)
        for name, (colour, marker) in BINDING_STYLES.items()
    ]
    sustained = Line2D([], [], color=GREY, linestyle=":", label="sustained peak")
    figure.legend(
        handles=[*marks, sustained],
        ncols=4,
        loc="outside lower center",
        title="most of the time is bound by",
        title_fontsize=7,
    )
