"""Shared parts of all figures: palette, labels with units, rows of a study's table, and files."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, ParamSpec

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.style import context
from matplotlib.ticker import MaxNLocator, NullLocator

from traincast.core.errors import InputError
from traincast.core.nomenclature import COLUMNS
from traincast.core.output_files import atomic_output, check_output
from traincast.core.units import GIB

P = ParamSpec("P")
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE, GREY, YELLOW, BROWN, ROSE, OLIVE = (  # Okabe and Ito's palette and four more
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999", "#F0E442", "#7A5230",
    "#F4B6C2", "#7D7F1B",
)  # fmt: skip
COLOURS: Final = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, BLACK)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final = ("-", "--", ":", "-.")
COMPONENTS: Final = {  # of time and of memory → colour and hatch
    "compute": (BLUE, ""), "exposed_memory": (SKY, "///"), "recomputation": (VERMILION, "---"), "tp_comm": (ORANGE, ""),
    "ep_comm": (BROWN, "+++"), "dp_comm": (GREEN, "\\\\\\"), "pp_comm": (PURPLE, "..."), "bubble": (GREY, "xxx"),
    "optimizer_step": (BLACK, ""), "offload_comm": (YELLOW, "ooo"), "host": (ROSE, "///"), "stragglers": (OLIVE, "..."),
    "weights": (BLUE, ""), "gradients": (SKY, "///"), "optimizer": (ORANGE, ""), "activations": (GREEN, "\\\\\\"),
    "logits": (PURPLE, "..."), "gathered": (VERMILION, "---"), "buffers": (BROWN, "+++"), "workspace": (YELLOW, "ooo"),
    "reserved": (GREY, "xxx"),
}  # fmt: skip
INFEASIBLE: Final[dict[str, Any]] = {
    "facecolor": "#f2f2f2",
    "edgecolor": "#bbbbbb",
    "hatch": "////",
    "linewidth": 0,
}
COLUMN, PAGE = 3.5, 7.2  # widths of a figure [inch]
SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MAX_DECADES_TICKED: Final = 8  # ticks at every decade of a logarithmic axis up to here
MIN_LOG_AXIS_RATIO: Final = 1.1  # highest over lowest value of a logarithmic axis
PANEL_HEIGHT: Final = 2.8  # of a panel [inch]
SMALL: Final = 6.5  # font size [pt]
LABEL_OFFSETS: Final[list[tuple[float, float]]] = [  # places around a point, nearest first [pt]
    (right * radius, up * radius)
    for radius in (10, 15, 22, 30, 40, 50, 62, 76)
    for right, up in (
        (0, 1),
        (0, -1),
        (2, 0.5),
        (-2, 0.5),
        (2, -0.5),
        (-2, -0.5),
        (1, -1),
        (-1, -1),
        (1, 1),
        (-1, 1),
    )
]
STYLE: Final[dict[str, Any]] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7, "legend.frameon": False,
    "legend.handlelength": 2.4, "axes.linewidth": 0.6, "lines.linewidth": 1.1, "lines.markersize": 3.5, "hatch.linewidth": 0.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": False, "grid.color": "#dddddd",
    "grid.linewidth": 0.5, "savefig.dpi": 200, "svg.hashsalt": "traincast", "svg.fonttype": "none", "pdf.fonttype": 42,
    "text.parse_math": False,  # a name may hold a dollar sign
}  # fmt: skip
ENDINGS: Final[dict[str, dict[str, Any]]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
    ".png": {},
}  # and their metadata
SHOWN_UNITS: Final = {
    "byte": ("GiB", GIB),
    "byte/s": ("GB/s", 1e9),
    "FLOP/s": ("TFLOP/s", 1e12),
}  # unit → unit on paper, its size in SI


@contextmanager
def _style() -> Iterator[None]:
    """Apply the style of all figures, without warnings on characters that the font lacks (viewers substitute them)."""
    with context(STYLE, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        yield


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in the style of all figures, whatever the caller's settings, which stay as they are."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with _style():
            return draw(*args, **kwargs)

    return inside


def panels(
    count: int, width: float | None = None, height: float = PANEL_HEIGHT, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side."""
    figure = Figure(
        (width or (COLUMN if count == 1 else PAGE * max(count, 2) / 2), height), layout="constrained"
    )
    axes = figure.subplots(1, count, squeeze=False, **options)[0].tolist()
    for ax in axes:
        ax.tick_params(which="both", labelsize=7, width=0.6)
    return figure, axes


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure; the same figure gives the same bytes.

    Parameters
    ----------
    figure : Figure
        The figure.
    path : str or Path
        File; its ending (.svg, .pdf, .png) sets the format. An existing file is replaced atomically.

    Raises
    ------
    InputError
        If the ending is another or the folder is missing.
    """
    path = Path(path)
    check_output(path, True, ENDINGS)
    with atomic_output(path) as partial, _style():
        figure.savefig(partial, format=path.suffix[1:], metadata=ENDINGS[path.suffix])


def to_svg(figure: Figure) -> str:
    """Return a figure as transparent SVG; the same figure gives the same text."""
    with StringIO() as text, _style():
        figure.savefig(text, format="svg", metadata=ENDINGS[".svg"], transparent=True)
        return text.getvalue()


def unit_of(name: str) -> tuple[str, float]:
    """Return the unit in which a quantity of the column table is shown, and the size of that unit in SI."""
    unit = COLUMNS[name].unit
    return ("µs", 1e-6) if name.endswith("latency") else SHOWN_UNITS.get(unit, (unit, 1.0))


def label(name: str, unit: str | None = None) -> str:
    """Return the axis label of a quantity of the column table: ``"Memory capacity [GiB]"``; `unit` replaces the usual unit."""
    unit = unit_of(name)[0] if unit is None else unit
    meaning = re.split(r"[,(:]", COLUMNS[name].meaning)[0].strip()
    return f"{meaning[0].upper()}{meaning[1:]}" + (f" [{unit}]" if unit else "")


def in_unit(name: str, values: Any) -> Any:
    """Return values in the unit they are shown in."""
    return values / unit_of(name)[1]


def unique(frame: pl.DataFrame, name: str) -> list[Any]:
    """Return the values of a column in order of appearance."""
    return frame[name].unique(maintain_order=True).to_list()


def best_rows(frame: pl.DataFrame, what: str, *single: str) -> pl.DataFrame:
    """Return the best plan of every point.

    Raises
    ------
    InputError
        If there are no rows, or several values in a column that must have a `single` one.
    """
    rows = frame.filter(pl.col("rank") == 1)
    problems = [] if len(rows) else ["the table has no rows"]
    for name in single:
        if len(values := unique(rows, name)) > 1:
            listed_values = ", ".join(map(str, values[:8])) + (", …" if len(values) > 8 else "")
            problems.append(
                f"the figure is of one {name}, the table has {len(values)} ({listed_values}): select one"
            )
    if problems:
        raise InputError(what, problems)
    return rows


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers within limits, for a logarithmic axis."""
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    within = decades[(decades >= low * (1 - 1e-9)) & (decades <= high * (1 + 1e-9))]
    ticks: list[float] = []
    choices = [np.outer(decades, steps).ravel() for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))]
    for choice in (
        within[:: 1 + len(within) // (MAX_DECADES_TICKED + 1)],
        *choices,
        np.asarray(MaxNLocator(6).tick_values(low, high)),
    ):
        ticks = [tick for tick in choice.tolist() if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) >= 4:
            break
    return ticks


def log_axes(ax: Axes, names: str = "xy") -> None:
    """Set logarithmic axes over all that is drawn, with plain numbers."""
    for name in names:
        axis = ax.xaxis if name == "x" else ax.yaxis
        (ax.set_xscale if name == "x" else ax.set_yscale)("log")
        low, high = sorted(axis.get_view_interval())
        if high < MIN_LOG_AXIS_RATIO * low:
            middle = np.sqrt(low * high)
            low, high = middle / np.sqrt(MIN_LOG_AXIS_RATIO), middle * np.sqrt(MIN_LOG_AXIS_RATIO)
            (ax.set_xlim if name == "x" else ax.set_ylim)(low, high)
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


def hatched(ax: Axes) -> None:
    """Show what is left empty as infeasible."""
    ax.add_patch(Rectangle((0, 0), 1, 1, transform=ax.transAxes, zorder=0, **INFEASIBLE))


def label_points(ax: Axes, points: Sequence[tuple[float, float]], texts: Sequence[str]) -> None:
    """Label points where the texts are least in the way of each other, points and lines; the layout of the figure must be final."""
    boxes = [text.get_window_extent().padded(1) for text in ax.texts]
    existing = len(boxes)
    drawn = np.concatenate([points_along(ax.transData.transform(line.get_xydata())) for line in ax.lines])
    marks = np.concatenate(
        [
            np.empty((0, 2)),
            *(ax.transData.transform(collection.get_offsets()) for collection in ax.collections),
        ]
    )
    inside = ax.get_window_extent()
    leader = {"arrowstyle": "-", "linewidth": 0.4, "color": BLACK, "shrinkA": 0, "shrinkB": 1}
    text_style: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": SMALL,
        "ha": "center",
        "va": "center",
    }
    for point, words in zip(points, texts, strict=True):
        text = ax.annotate(words, point, (0, 0), **text_style)
        choices: list[tuple[int, int, tuple[float, float], Any, Any]] = []
        for offset in LABEL_OFFSETS:
            text.set_position(offset)
            box = text.get_window_extent().padded(1)
            path = points_along(
                np.array([ax.transData.transform(point), [(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2]])
            )
            hidden = (
                4
                - inside.count_contains(box.corners())
                + box.count_overlaps(boxes)
                + box.padded(8).count_contains(marks)
            )
            crossed = box.count_contains(drawn) + sum(
                other.count_contains(path) for other in boxes[existing:]
            )
            choices.append((1000 * hidden + crossed, len(choices), offset, box, path))
        _, _, offset, box, path = min(choices, key=lambda choice: choice[:2])
        boxes.append(box)
        drawn = np.concatenate((drawn, path))
        text.remove()  # with its leader it could not be measured
        ax.annotate(words, point, offset, arrowprops=leader, **text_style).set_in_layout(False)


def points_along(line: Any) -> Any:
    """Return points all along a polyline."""
    share = np.linspace(0, 1, 200)[:, None]
    return np.concatenate([a + share * (b - a) for a, b in pairwise(line)])
