"""Figures of the limits of moving data: utilisation against cluster size and against training compute."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from traincast.analysis import Limits
from traincast.core import Floats
from traincast.ui.figures import style

# of a figure [inch]
FIGURE_WIDTH = 4.6
FIGURE_HEIGHT = 3.2
BINDING_STYLES: Final = {  # what binds → colour and marker
    "FLOP": (style.BLUE, "o"),
    "memory": (style.SKY, "^"),
    "network": (style.ORANGE, "s"),
}


@style.apply_style
def utilisation_by_cluster(limits: Limits) -> Figure:
    """Draw utilisation with a layer's best sharding against the number of accelerators, and what binds."""
    d_in, d_out = limits.layer
    clusters = limits.clusters
    gpus = np.asarray(clusters.gpus)
    utilisation = np.asarray(clusters.utilisation)
    figure, ax = _utilisation_figure(limits, gpus, utilisation, clusters.binds)
    ax.set_xlabel(style.label("gpus"))
    ax.set_title(f"{limits.device.name}: layer of {d_in:,} × {d_out:,}, {limits.tokens:,} tokens")
    return figure


@style.apply_style
def utilisation_by_compute(limits: Limits) -> Figure:
    """Draw utilisation against the training compute of runs of a fixed length, and where it halves."""
    runs = limits.training
    figure, ax = _utilisation_figure(limits, runs.flops, runs.utilisation, runs.binds)
    for at, word in ((limits.halves, "halves"), (limits.collapses, "collapses")):
        if at is not None:
            ax.axvline(at, color=style.GREY, linestyle="--", linewidth=0.7)
            place = ("data", "axes fraction")
            style.note(ax, f"{word}\n{style.power(at, 1)}", (at, 0.99), (2, 0), xycoords=place, va="top")
    ax.set_xlabel(f"Training compute in {runs.days:,.0f} days [FLOP]")
    ax.set_title(f"{limits.device.name}, {limits.device.network_bandwidth / 1e9:,g} GB/s of network")
    return figure


def _utilisation_figure(
    limits: Limits, x: Floats, utilisation: Floats, binds: Sequence[str | None]
) -> tuple[Figure, Axes]:
    """Draw utilisation, with a marker for what binds at each point, and the legend of those that bind."""
    figure, (ax,) = style.panels(1, FIGURE_WIDTH, FIGURE_HEIGHT)
    ax.plot(x, utilisation, color=style.BLACK, linewidth=0.8)
    handles = []
    for name, (colour, marker) in BINDING_STYLES.items():
        selected = np.array([resource == name for resource in binds])
        if not selected.any():
            continue
        ax.plot(x[selected], utilisation[selected], color=colour, marker=marker, linestyle="")
        handles.append(style.sample(name, "", color=colour, marker=marker))
    ax.axhline(limits.largest, color=style.GREY, linestyle=":")
    handles.append(style.sample("sustained peak", ":", color=style.GREY))
    style.log_axes(ax, "x")
    ax.set_ylim(0, 1)
    ax.set_ylabel("Utilisation of the dense peak")
    ax.grid(True)
    title = "most of the time is bound by"
    figure.legend(handles=handles, ncols=4, loc="outside lower center", title=title, title_fontsize=7)
    return figure, ax
