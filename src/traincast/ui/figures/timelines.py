"""Timelines of a training step: a row for each device of the pipeline."""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from traincast.analysis import Trace
from traincast.ui.figures import style

KINDS: Final = {
    "F": ("forward", style.BLUE),
    "BW": ("backward", style.ORANGE),
    "B": ("gradient of inputs", style.YELLOW),
    "W": ("gradient of weights", style.SKY),
}
WAITS: Final = {
    "bubble": ("wait for other stages", "#e8e8e8"),
    "pp_comm": ("wait for a transfer", style.PURPLE),
}
TITLES: Final = ("the whole step", "its beginning", "the end of its pipeline")
MAX_WHITE_SHARE: Final = 0.6  # how much white the last chunk of a device has
DIGIT_WIDTH: Final = 0.04  # width of a digit of a micro-batch's number [inch]
NUMBER_FONT_SIZE: Final = 4.4  # font size of these numbers [pt]
AXES_WIDTH: Final = 6.3  # width of the axes, about [inch]
ROW_HEIGHTS: Final = (0.09, 0.19)  # least and most height of a device's row [inch]
MAX_ROWS_HEIGHT: Final = 2.2  # most height of all rows, where rows are not at their least [inch]
ROW_SHARE_DRAWN: Final = 0.86  # share of a row that is drawn on
MAX_DEVICES_NAMED: Final = 16  # of an axis
Span = tuple[int, float, float]  # device, start and end [s]


class Window(NamedTuple):
    """A part of the step that a panel shows [s]."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Length of the window [s]."""
        return self.end - self.start


@style.apply_style
def timeline(trace: Trace) -> Figure:
    """Draw the simulated step: passes by kind with micro-batch numbers, waits, and what follows the pipeline.

    Where the whole step leaves no room for numbers, its beginning and the end of its pipeline are drawn
    larger below.
    """
    windows = _windows(trace)
    pp = trace.timeline.pp
    row = float(np.clip(MAX_ROWS_HEIGHT / pp, *ROW_HEIGHTS))
    figure, column = style.axes_of((style.PAGE, 0.75 + len(windows) * (row * pp + 0.42)), len(windows), 1)
    axes = column[:, 0].tolist()
    for ax, window in zip(axes, windows, strict=True):
        _draw_panel(ax, trace, window, numbered=len(windows) == 1 or window is not windows[0])
    for ax, title in zip(axes, TITLES, strict=False):
        ax.set_title(title if len(axes) > 1 else "", fontsize=style.SMALL, loc="left")
    for window in windows[1:]:
        look: dict[str, object] = {"color": style.BLACK, "linewidth": 1.5, "solid_capstyle": "butt"}
        axes[0].plot(window, [-0.75] * 2, clip_on=False, **look)
    est = trace.estimate
    subject = f"{est.model.title} on {est.system.name}, {style.variant(est.assumptions.name)}"
    figure.suptitle(f"{subject}\n{est.plan}", fontsize=7)
    axes[-1].set_xlabel("Time [s]")
    figure.supylabel("Stage", fontsize=8)
    has_chunks = any(len({step_pass.chunk for step_pass in passes}) > 1 for passes in trace.by_device)
    chunks = "the lighter a pass, the later its chunk of the stage" if has_chunks else None
    look = {"ncols": 4, "columnspacing": 1.2, "title": chunks, "title_fontsize": style.SMALL}
    figure.legend(handles=_legend(trace), loc="outside lower center", **look)
    return figure


def _windows(trace: Trace) -> list[Window]:
    """Return the whole step and, where that has no room for numbers, its beginning and its pipeline's end."""
    end = max(trace.begin) + max(trace.step_seconds, trace.simulated_seconds)
    shortest = min(filter(None, trace.passes.seconds("F")), default=end)
    room = 0.97 * AXES_WIDTH / (DIGIT_WIDTH * len(str(trace.microbatches - 1))) * shortest
    if end <= room:
        return [Window(0.0, end)]
    last = min(max(trace.begin) + trace.pipeline_seconds + 0.1 * room, end)
    return [Window(0.0, end), Window(0.0, room), Window(last - room, last)]


def _draw_panel(ax: Axes, trace: Trace, window: Window, numbered: bool) -> None:
    bars: dict[tuple[Any, str], list[Span]] = {}  # of each colour and hatch
    for device, passes in enumerate(trace.by_device):
        chunks = sorted({step_pass.chunk for step_pass in passes})
        for step_pass in passes:
            share = chunks.index(step_pass.chunk) / max(len(chunks) - 1, 1)
            full = to_rgb(KINDS[step_pass.kind][1])  # mixed with white, the more the later the chunk
            colour = tuple(1 - (1 - part) * (1 - MAX_WHITE_SHARE * share) for part in full)
            span = (device, step_pass.start, step_pass.end)
            bars.setdefault((colour, ""), []).append(span)
            if numbered:
                _draw_number(ax, span, step_pass.microbatch, window, colour)
        for component, start, seconds in trace.waits[device]:
            bars.setdefault((WAITS[component][1], ""), []).append((device, start, start + seconds))
        for after in trace.after:
            start = trace.begin[device] + after.start
            span = (device, start, start + after.seconds)
            bars.setdefault(_colour_and_hatch(after.component), []).append(span)
    for (colour, hatch), spans in bars.items():
        visible = [
            (device, start, end)
            for device, start, end in spans
            if start < window.end and end > window.start and end > start
        ]
        _draw_bars(ax, colour, hatch, visible, edged=numbered)
    ax.set(xlim=window, ylim=(trace.timeline.pp - 0.5, -0.5))
    ax.set_yticks(range(0, trace.timeline.pp, 1 + (trace.timeline.pp - 1) // MAX_DEVICES_NAMED))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _draw_bars(ax: Axes, colour: object, hatch: str, spans: Collection[Span], edged: bool) -> None:
    """Draw bars of one style; as an image where they are too close for edges."""
    half = ROW_SHARE_DRAWN / 2
    rows = [(low, high, d - half, d + half) for d, low, high in spans]
    corners = [[(low, top), (high, top), (high, bottom), (low, bottom)] for low, high, top, bottom in rows]
    edges: style.Look = {"edgecolors": _edge_colour(colour), "linewidths": 0.3 if edged else 0.0}
    look = edges | {"hatch": hatch or None, "rasterized": not edged and not hatch}
    ax.add_collection(PolyCollection(corners, facecolors=[colour], **look), autolim=False)


def _draw_number(ax: Axes, span: Span, microbatch: int, window: Window, colour: Any) -> None:
    """Write the number of a pass's micro-batch where it has room."""
    device, begin, finish = span
    start = max(begin, window.start)
    end = min(finish, window.end)
    width = (end - start) / window.seconds * AXES_WIDTH
    if finish > begin and width >= DIGIT_WIDTH * len(str(microbatch)):
        is_light = np.dot(to_rgb(colour), (0.3, 0.59, 0.11)) > 0.5
        look: style.Look = {"fontsize": NUMBER_FONT_SIZE, "color": style.BLACK if is_light else "white"}
        place = ((start + end) / 2, device)
        ax.text(*place, str(microbatch), ha="center", va="center_baseline", **look)


def _colour_and_hatch(component: str) -> tuple[Any, str]:
    return style.COMPONENTS[component] if component else ("white", "////")


def _edge_colour(colour: object) -> str:
    return style.GREY if colour == "white" else "white"


def _legend(trace: Trace) -> list[Patch]:
    drawn: set[str] = {step_pass.kind for step_pass in trace.timeline.passes}
    drawn |= {wait.component for waits in trace.waits for wait in waits}
    looks = KINDS | WAITS
    handles = [Patch(color=colour, label=name) for key, (name, colour) in looks.items() if key in drawn]
    for after in trace.after:
        colour, hatch = _colour_and_hatch(after.component)
        look = style.bar_style(colour, hatch) | {"edgecolor": _edge_colour(colour)}
        handles.append(Patch(**look, label=after.name))
    return handles
