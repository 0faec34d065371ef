"""A training step as it runs: a row for each device of the pipeline."""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from traincast.analysis.trace import Trace
from traincast.times.pipeline.simulation import SimulatedPass
from traincast.ui.figures.style import BLACK, BLUE, COMPONENTS, GREY, ORANGE, PAGE, PURPLE, SKY, SMALL, YELLOW, styled

KINDS: Final = {
    "F": ("forward", BLUE),
    "BW": ("backward", ORANGE),
    "B": ("gradient of inputs", YELLOW),
    "W": ("gradient of weights", SKY),
}
LIGHTEST: Final = 0.6  # how much white the last chunk of a device has
WAITS: Final = {"bubble": ("wait for other stages", "#e8e8e8"), "pp_comm": ("wait for a transfer", PURPLE)}
DIGIT: Final = 0.04  # width of a digit of a micro-batch's number [inch]
TINY: Final = 4.4  # font size of these numbers [pt]
DRAWN: Final = 6.3  # width of the axes, about [inch]
ROWS: Final = (0.09, 0.19)  # least and most height of a device's row [inch]
TALL: Final = 2.2  # most height of all rows, where rows are not at their least [inch]
FULL: Final = 0.86  # share of a row that is drawn on


class Window(NamedTuple):
    """A part of the step that a panel shows [s]."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length [s]."""
        return self.end - self.start


@styled
def timeline(found: Trace) -> Figure:
    """The step as it runs: passes by kind, with the numbers of their micro-batches, waits, and what follows the pipeline.

    Where the whole step leaves no room for numbers, its beginning and the end of its pipeline are drawn larger below.

    Parameters
    ----------
    found : Trace
        The trace of a plan.
    """
    windows, pp = _windows(found), found.timeline.pp
    row = float(np.clip(TALL / pp, *ROWS))
    figure = Figure((PAGE, 0.75 + len(windows) * (row * pp + 0.42)), layout="constrained")
    axes = figure.subplots(len(windows), 1, squeeze=False)[:, 0].tolist()
    for ax, window in zip(axes, windows, strict=True):
        _panel(ax, found, window, numbered=len(windows) == 1 or window is not windows[0])
    for ax, name in zip(axes, ("the whole step", "its beginning", "the end of its pipeline"), strict=False):
        ax.set_title(name if len(axes) > 1 else "", fontsize=SMALL, loc="left")
    for window in windows[1:]:
        axes[0].plot(window, [-0.75] * 2, color=BLACK, linewidth=1.5, solid_capstyle="butt", clip_on=False)
    est = found.estimate
    figure.suptitle(f"{est.model.title} on {est.system.name}, {est.plan}", fontsize=7)
    axes[-1].set_xlabel("Time [s]")
    figure.supylabel("Stage", fontsize=8)
    several = any(one.chunk != own[0].chunk for own in found.by_device for one in own)
    told = "the lighter a pass, the later its chunk of the stage" if several else None
    look: dict[str, Any] = {"ncols": 4, "columnspacing": 1.2, "title": told, "title_fontsize": SMALL}
    figure.legend(handles=_legend(found), loc="outside lower center", **look)
    return figure


def _windows(found: Trace) -> list[Window]:
    """The whole step, and where that has no room for numbers, its beginning and the end of its pipeline."""
    end = max(found.begin) + max(found.step_seconds, found.simulated_seconds)
    shortest = min(filter(None, found.passes.seconds("F")), default=end)
    room = 0.97 * DRAWN / (DIGIT * len(str(found.microbatches - 1))) * shortest
    if end <= room:
        return [Window(0.0, end)]
    last = min(max(found.begin) + found.pipeline_seconds + 0.1 * room, end)
    return [Window(0.0, end), Window(0.0, room), Window(last - room, last)]


def _panel(ax: Axes, found: Trace, window: Window, numbered: bool) -> None:
    """One part of the step."""
    looks: dict[tuple[Any, str], list[tuple[int, float, float]]] = {}
    for device, own in enumerate(found.by_device):
        chunks = sorted({one.chunk for one in own})
        for one in own:
            colour = _lighter(KINDS[one.kind][1], chunks.index(one.chunk) / max(len(chunks) - 1, 1))
            looks.setdefault((colour, ""), []).append((device, one.start, one.end))
            if numbered:
                _number(ax, one, window, colour)
        for component, start, seconds in found.waits[device]:
            looks.setdefault((WAITS[component][1], ""), []).append((device, start, start + seconds))
        for after in found.after:
            start = found.begin[device] + after.start
            looks.setdefault(_look(after.component), []).append((device, start, start + after.seconds))
    for (colour, hatch), spans in looks.items():
        shown = [span for span in spans if span[1] < window.end and span[2] > window.start and span[2] > span[1]]
        _bars(ax, colour, hatch, shown, edged=numbered)
    ax.set(xlim=window, ylim=(found.timeline.pp - 0.5, -0.5))
    ax.set_yticks(range(0, found.timeline.pp, 1 + (found.timeline.pp - 1) // 16))
    ax.tick_params(which="both", labelsize=7, width=0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _bars(ax: Axes, colour: Any, hatch: str, spans: Collection[tuple[int, float, float]], edged: bool) -> None:
    """Bars of one look; an image where they stand too close for edges."""
    half = FULL / 2
    corners = [[(low, d - half), (high, d - half), (high, d + half), (low, d + half)] for d, low, high in spans]
    look: dict[str, Any] = {
        "facecolors": [colour],
        "edgecolors": _edge(colour),
        "linewidths": 0.3 if edged else 0.0,
        "hatch": hatch or None,
    }
    ax.add_collection(PolyCollection(corners, **look, rasterized=not edged and not hatch), autolim=False)


def _number(ax: Axes, one: SimulatedPass, window: Window, colour: Any) -> None:
    """The number of a pass's micro-batch, where it has room."""
    width = (min(one.end, window.end) - max(one.start, window.start)) / window.seconds * DRAWN
    if one.end > one.start and width >= DIGIT * len(str(one.microbatch)):
        light = np.dot(to_rgb(colour), (0.3, 0.59, 0.11)) > 0.5
        middle = (max(one.start, window.start) + min(one.end, window.end)) / 2
        look: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": TINY, "color": BLACK if light else "white"}
        ax.text(middle, one.device, str(one.microbatch), **look)


def _lighter(colour: str, share: float) -> tuple[float, ...]:
    """A colour mixed with white."""
    return tuple(1 - (1 - part) * (1 - LIGHTEST * share) for part in to_rgb(colour))


def _look(component: str) -> tuple[Any, str]:
    """Colour and hatch of what follows the pipeline."""
    return COMPONENTS[component] if component else ("white", "////")


def _edge(colour: Any) -> str:
    """Colour of edges and hatches."""
    return GREY if colour == "white" else "white"


def _legend(found: Trace) -> list[Patch]:
    """What is drawn."""
    drawn = {one.kind for one in found.timeline.passes}
    kinds = [Patch(color=colour, label=name) for kind, (name, colour) in KINDS.items() if kind in drawn]
    waited = {wait.component for waits in found.waits for wait in waits}
    waits = [Patch(color=colour, label=name) for component, (name, colour) in WAITS.items() if component in waited]
    after = []
    for one in found.after:
        colour, hatch = _look(one.component)
        after.append(Patch(facecolor=colour, hatch=hatch, edgecolor=_edge(colour), linewidth=0, label=one.name))
    return [*kinds, *waits, *after]
