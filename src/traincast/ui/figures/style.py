"""Shared parts of all figures: palette, labels with units, ticks, and files."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias
from zlib import crc32

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path as Outline
from matplotlib.style import context
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from traincast.catalog import Stack
from traincast.core import COLUMNS, GIB, Floats, atomic_output, check_output
from traincast.planner import component_label as component_name

P = ParamSpec("P")
Look: TypeAlias = dict[str, Any]  # arguments of functions of matplotlib, by name
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE, GREY, YELLOW, BROWN, ROSE, OLIVE, TEAL = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999", "#F0E442",
    "#7A5230", "#F4B6C2", "#7D7F1B", "#1F6F78",
)  # fmt: skip  # Okabe and Ito's palette and five more
COLOURS: Final = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, BLACK)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final = ("-", "--", ":", "-.")
CHIP_COLOURS: Final = {  # of accelerators that are often compared
    "a100": BLUE,
    "h200": ORANGE,
    "b200": GREEN,
    "b200-next": PURPLE,
    "h100": VERMILION,
    "v100": SKY,
}
DOMAIN_MARKERS: Final = {"": "o", "4": "o", "8": "s", "64": "^", "72": "D"}  # of sizes of the fast domain
COMPONENTS: Final = {  # of time and of memory → colour and hatch
    "compute": (BLUE, ""), "exposed_memory": (SKY, "///"), "recomputation": (VERMILION, "---"),
    "tp_comm": (ORANGE, ""), "ep_comm": (BROWN, "+++"), "dp_comm": (GREEN, "\\\\\\"),
    "pp_comm": (PURPLE, "..."), "bubble": (GREY, "xxx"), "optimizer_step": (BLACK, ""),
    "offload_comm": (YELLOW, "ooo"), "host": (ROSE, "///"), "stragglers": (OLIVE, "..."),
    "data_loading": (TEAL, "+++"),
    "weights": (BLUE, ""), "gradients": (SKY, "///"), "optimizer": (ORANGE, ""),
    "activations": (GREEN, "\\\\\\"), "logits": (PURPLE, "..."), "gathered": (VERMILION, "---"),
    "buffers": (BROWN, "+++"), "workspace": (YELLOW, "ooo"), "copies": (ROSE, "///"),
    "reserved": (GREY, "xxx"),
}  # fmt: skip
INFEASIBLE: Final[Look] = {
    "facecolor": "#f2f2f2",
    "edgecolor": "#bbbbbb",
    "hatch": "////",
    "linewidth": 0,
}
HATCHED: Final[Look] = {"hatch": "/////", "alpha": 0.75}
WHITE_BOX: Final = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # behind a text
# widths of a figure [inch]
COLUMN = 3.5
PAGE = 7.2
SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MAX_DECADES_TICKED: Final = 8  # ticks at every decade of a logarithmic axis up to here
MIN_TICKS: Final = 4  # of a logarithmic axis, where round numbers allow it
MIN_LOG_AXIS_RATIO: Final = 1.1  # highest over lowest value of a logarithmic axis
PANEL_HEIGHT: Final = 2.8  # of a panel [inch]
SMALL: Final = 6.5  # font size [pt]
LABEL_DIRECTIONS: Final[tuple[tuple[float, float], ...]] = (
    (0, 1), (0, -1), (2, 0.5), (-2, 0.5), (2, -0.5), (-2, -0.5), (1, -1), (-1, -1), (1, 1), (-1, 1),
    (0.5, 1), (-0.5, 1), (0.5, -1), (-0.5, -1),
)  # fmt: skip
LABEL_RADII: Final = (10, 15, 22, 30, 40, 50, 62, 76)  # of places around a point, nearest first [pt]
SMALL_BAR: Final = 0.04  # of a tornado, whose ends are written: of the largest change
LABEL_CLEARANCE: Final = 4  # between a label and points [pixel]
STYLE: Final[Look] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7, "legend.frameon": False,
    "legend.handlelength": 2.4, "axes.linewidth": 0.6, "lines.linewidth": 1.1, "lines.markersize": 3.5,
    "hatch.linewidth": 0.5, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": False, "grid.color": "#dddddd", "grid.linewidth": 0.5, "savefig.dpi": 200,
    "svg.hashsalt": "traincast", "svg.fonttype": "none", "pdf.fonttype": 42,
    "text.parse_math": False,  # a name may hold a dollar sign
}  # fmt: skip
ENDINGS: Final[dict[str, dict[str, None]]] = {  # of files, with the metadata that keeps them reproducible
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
    ".png": {},
}
VARIANTS: Final = {  # assumptions → how a title calls them
    "paper": "errata corrected",
    "paper-published": "as published",
}
SHOWN_UNITS: Final = {  # unit → unit on paper, its size in SI
    "byte": ("GiB", GIB),
    "byte/s": ("GB/s", 1e9),
    "FLOP/s": ("TFLOP/s", 1e12),
}


@contextmanager
def _style() -> Iterator[None]:
    """Apply the style of all figures, without warnings on characters that the font lacks."""
    with context(STYLE, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        yield


def apply_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in the style of all figures, whatever the caller's settings, which stay as they are."""

    @wraps(draw)
    def draw_in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with _style():
            return draw(*args, **kwargs)

    return draw_in_style


def panels(
    count: int, width: float | None = None, height: float = PANEL_HEIGHT, **options: object
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side."""
    width = width or (COLUMN if count == 1 else PAGE * count / 2)
    figure, axes = axes_of((width, height), 1, count, **options)
    return figure, axes[0].tolist()


def panel_grid(rows: int, columns: int) -> tuple[Figure, NDArray[np.object_]]:
    """Return a figure with panels in rows, of one height of values each, and an array of its axes."""
    width = max(COLUMN, PAGE if columns > 1 else COLUMN + 0.8, 2.5 * columns)
    return axes_of((width, 0.9 + 2.4 * rows), rows, columns, sharex="row", sharey="row")


def axes_of(
    size: tuple[float, float], rows: int, columns: int, **options: Any
) -> tuple[Figure, NDArray[np.object_]]:
    """Return a figure of a size [inch], and an array of its axes."""
    figure = Figure(size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    small_ticks(*axes.ravel())
    return figure, axes


def share_limits(axes: Iterable[Axes], names: str = "xy") -> None:
    """Give panels the same limits, those of all that is drawn in any of them; set scales before."""
    panels = list(axes)
    for name in names:
        limits = [ax.get_xlim() if name == "x" else ax.get_ylim() for ax in panels if ax.has_data()]
        if limits:
            lowest = min(low for low, _ in limits)
            highest = max(high for _, high in limits)
            for ax in panels:
                ax.set(**{f"{name}lim": (lowest, highest)})


def small_ticks(*axes: Axes) -> None:
    """Set the size of ticks and their labels."""
    for ax in axes:
        ax.tick_params(which="both", labelsize=7, width=0.6)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as .svg, .pdf or .png, atomically; the same figure gives the same bytes."""
    path = Path(path)
    check_output(path, True, ENDINGS)
    with atomic_output(path) as partial, _style():
        figure.savefig(partial, format=path.suffix[1:], metadata=ENDINGS[path.suffix])


def to_svg(figure: Figure) -> str:
    """Return a figure as transparent SVG; the same figure gives the same text."""
    with StringIO() as text, _style():
        figure.savefig(text, format="svg", metadata=ENDINGS[".svg"], transparent=True)
        return text.getvalue()


def variant(assumptions: str) -> str:
    """Return how a title calls assumptions: the paper's ``"as published"`` or ``"errata corrected"``."""
    return VARIANTS.get(assumptions, f"assumptions {Stack(assumptions).words}")


def unit_of(name: str) -> tuple[str, float]:
    """Return the unit in which a quantity of the column table is shown, and the size of that unit in SI."""
    unit = COLUMNS[name].unit
    return ("µs", 1e-6) if name.endswith("latency") else SHOWN_UNITS.get(unit, (unit, 1.0))


def label(name: str, unit: str | None = None) -> str:
    """Return the axis label of a quantity of the column table, as ``"Memory capacity [GiB]"``."""
    unit = unit_of(name)[0] if unit is None else unit
    meaning = re.split(r"[,(:]", COLUMNS[name].meaning)[0].strip()
    return f"{meaning[0].upper()}{meaning[1:]}" + (f" [{unit}]" if unit else "")


def in_unit(name: str, values: Any) -> Any:
    """Return values in the unit they are shown in."""
    return values / unit_of(name)[1]


def system_looks(names: Iterable[str]) -> dict[str, Look]:
    """Return colour and marker of systems, the same in every figure as far as those of one figure differ.

    An accelerator has a colour, the size of a fast domain a marker.
    """
    ordered = list(names)
    parts = {name: domain_of(name) for name in sorted(ordered)}
    chips = sorted({chip for chip, _ in parts.values()}, key=lambda chip: (chip not in CHIP_COLOURS, chip))
    sizes = sorted({size for _, size in parts.values()}, key=lambda size: (size not in DOMAIN_MARKERS, size))
    colours = _assign_choices(chips, CHIP_COLOURS, (*COLOURS, BROWN, GREY, OLIVE, ROSE))
    markers = _assign_choices(sizes, DOMAIN_MARKERS, MARKERS)
    looks = {}
    for name in ordered:
        chip, size = parts[name]
        looks[name] = {"color": colours[chip], "marker": markers[size]}
    return looks


def domain_of(system: str) -> tuple[str, str]:
    """Return the accelerator and the size of the fast domain that the name of a system says."""
    chip, _, size = system.rpartition("-nvs")
    return (chip, size) if chip else (system, "")


def _assign_choices(names: Sequence[str], fixed: Mapping[str, str], choices: Sequence[str]) -> dict[str, str]:
    """Return the fixed choice of each name, or one by its letters; the next free one where it is taken."""
    taken: dict[str, str] = {}
    for name in names:
        first = choices.index(fixed[name]) if name in fixed else crc32(name.encode()) % len(choices)
        order = [*choices[first:], *choices[:first]]
        taken[name] = next((choice for choice in order if choice not in taken.values()), order[0])
    return taken


def bar_style(colour: str, hatch: str) -> Look:
    """Return the look of bars of a colour and hatch."""
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}


def component_style(name: str) -> Look:
    """Return the look of a component of time or memory."""
    return bar_style(*COMPONENTS[name])


def component_legend(names: Sequence[str]) -> list[Patch]:
    """Return the legend of components."""
    return [Patch(label=component_name(name), **component_style(name)) for name in names]


def sample(label: str, line: Any = "-", **look: Any) -> Line2D:
    """Return the sample of a line or of a marker that a legend names; black where no colour is given."""
    return Line2D([], [], label=label, linestyle=line, **{"color": BLACK} | look)


def stacked_bars(
    ax: Axes,
    parts: Mapping[str, Floats],
    width: float,
    look: Callable[[str], Look] = component_style,
) -> None:
    """Draw components on one another, a bar at each whole number."""
    under: float | Floats = 0.0
    for name, sizes in parts.items():
        ax.bar(range(len(sizes)), sizes, width, under, label=name, **look(name))
        under = under + sizes


def tornado_bars(
    ax: Axes, changes: Floats, titles: Sequence[str], colours: Mapping[str, str], cases: Sequence[str]
) -> None:
    """Draw changes [%] of shape (case, row, end): a bar for each end of a row, the second case hatched.

    Infinite changes are labelled as not fitting, and changes too small to be read off the axis with their
    values; `colours` are those of the ends by name.
    """
    largest = float(np.max(np.abs(changes), where=np.isfinite(changes), initial=0.0))
    for case, of_case, shift, hatched in zip(cases, changes, (0.2, -0.2), ({}, HATCHED), strict=True):
        places = shift + np.arange(len(titles), dtype=np.float64)
        for (end, colour), change in zip(colours.items(), of_case.T, strict=True):
            look: Look = {"color": colour, "edgecolor": "white", "linewidth": 0} | hatched
            fits = np.isfinite(change)
            ax.barh(places, np.where(fits, change, 0), 0.38, label=f"{end}, {case}", **look)
            for place in places[~fits]:
                ax.text(0, place, " does not fit", fontsize=SMALL, va="center", color=colour)
        for place, ends in zip(places, of_case, strict=True):
            if np.isfinite(ends).all() and 0 < np.abs(ends).max() < SMALL_BAR * largest:
                text = ", ".join(f"{change:+.2f}" if change else "0" for change in ends) + " %"
                text = text.replace("-", "−")
                note(ax, text, (max(0.0, ends.max()), place), (3, 0), fontsize=SMALL, va="center")
    ax.axvline(0, color=BLACK, linewidth=0.6)
    ax.set_ylim(-0.6, len(titles) - 0.4)
    ax.set_yticks(range(len(titles)), titles, fontsize=SMALL)
    ax.grid(True, axis="x")


def gpu_axis(ax: Axes, gpus: Sequence[float]) -> None:
    """Tick a logarithmic axis at numbers of GPUs, and draw the grid."""
    plain_ticks(ax.xaxis, gpus, gpus)
    ax.tick_params(axis="x", rotation=45)
    ax.grid(True)


def note(ax: Axes, text: str, point: Any, offset: tuple[float, float], **look: Any) -> Annotation:
    """Write a small text at an offset [pt] from a point."""
    return ax.annotate(text, point, offset, textcoords="offset points", **{"fontsize": SMALL} | look)


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers within limits, for a logarithmic axis."""
    low = low * (1 - 1e-9)
    high = high * (1 + 1e-9)
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    within = decades[(decades >= low) & (decades <= high)]
    ticks: list[float] = []
    for choice in (
        within[:: 1 + len(within) // (MAX_DECADES_TICKED + 1)],
        *(np.outer(decades, steps).ravel() for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))),
        np.asarray(MaxNLocator(6).tick_values(low, high)),
    ):
        ticks = [tick for tick in choice.tolist() if low <= tick <= high]
        if len(ticks) >= MIN_TICKS:
            break
    return ticks


def log_axes(ax: Axes, names: str = "xy") -> None:
    """Set logarithmic axes over all that is drawn, with plain numbers."""
    for name in names:
        axis = ax.xaxis if name == "x" else ax.yaxis
        ax.set(**{f"{name}scale": "log"})
        low, high = sorted(axis.get_view_interval())
        if high < MIN_LOG_AXIS_RATIO * low:
            middle = np.sqrt(low * high)
            half = np.sqrt(MIN_LOG_AXIS_RATIO)
            low = middle / half
            high = middle * half
            ax.set(**{f"{name}lim": (low, high)})
        ticks = round_ticks(low, high)
        plain_ticks(axis, ticks, ticks)


def plain_ticks(axis: Axis, places: Sequence[float], values: Sequence[float]) -> None:
    """Set ticks with plain numbers, of as many digits as distinguish them, and no minor ticks."""
    digits = next((n for n in range(6, 16) if len({power(value, n) for value in values}) == len(values)), 15)
    axis.set_ticks(places, [power(value, digits) for value in values])
    axis.set_minor_locator(NullLocator())


def power(value: float, digits: int = 6) -> str:
    """Return a number as an axis shows it: ``"16,384"``, ``"0.5"``, ``"3×10²⁴"``."""
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    if not exponent:
        return f"{value:,.{digits}g}"
    return ("" if mantissa == "1" else f"{mantissa}×") + "10" + f"{int(exponent)}".translate(SUPERSCRIPT)


def label_points(ax: Axes, points: Sequence[tuple[float, float]], texts: Sequence[str]) -> None:
    """Label points where texts overlap each other, points and lines least; the layout must be final."""
    boxes = [text.get_window_extent().padded(1) for text in ax.texts]
    existing = len(boxes)
    corners = [ax.transData.transform(line.get_xydata()) for line in ax.lines]
    lines = np.concatenate([_points_along(line) for line in corners])
    drawn_lines = [Outline(line) for line in corners]
    drawn = [ax.transData.transform(collection.get_offsets()) for collection in ax.collections]
    marks = np.concatenate([np.empty((0, 2)), *drawn])
    inside = ax.get_window_extent()
    leader = {"arrowstyle": "-", "linewidth": 0.4, "color": BLACK, "shrinkA": 0, "shrinkB": 1}
    offsets = [(right * radius, up * radius) for radius in LABEL_RADII for right, up in LABEL_DIRECTIONS]
    for point, text in zip(points, texts, strict=True):
        trial = note(ax, text, point, (0, 0), ha="center", va="center")
        choices: list[tuple[int, int, tuple[float, float], Any, Any]] = []
        for offset in offsets:
            trial.set_position(offset)
            box = trial.get_window_extent().padded(1)
            middle = [(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2]
            path = _points_along(np.array([ax.transData.transform(point), middle]))
            hidden = 4 - inside.count_contains(box.corners()) + box.count_overlaps(boxes)
            hidden += box.padded(LABEL_CLEARANCE).count_contains(marks)
            leader_path = Outline(path[[0, -1]])  # straight: each point between takes as long as it
            hidden += sum(leader_path.intersects_path(line, filled=False) for line in drawn_lines)
            crossed = sum(other.count_contains(path) for other in boxes[existing:])
            crossed += box.count_contains(lines)
            choices.append((1000 * hidden + crossed, len(choices), offset, box, path))
        _, _, offset, box, path = min(choices, key=lambda choice: choice[:2])
        boxes.append(box)
        lines = np.concatenate((lines, path))
        drawn_lines.append(Outline(path[[1, -1]]))  # leaders of points close together begin alike
        trial.remove()  # with its leader it could not be measured
        note(ax, text, point, offset, ha="center", va="center", arrowprops=leader).set_in_layout(False)


def _points_along(line: Floats) -> Floats:
    share = np.linspace(0, 1, 200)[:, None]
    return np.concatenate([a + share * (b - a) for a, b in pairwise(line)])
