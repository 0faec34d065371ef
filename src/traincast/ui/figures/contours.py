"""Contours of a result over two varied fields of a machine."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from traincast.core.errors import InputError, unknown_name_error
from traincast.core.nomenclature import COLUMNS
from traincast.core.quantities import Floats
from traincast.core.system import System
from traincast.ui.figures.study import best_rows
from traincast.ui.figures.style import (
    COLUMN,
    PAGE,
    SMALL,
    WHITE_BOX,
    hatched,
    in_unit,
    label,
    log_axes,
    note,
    panels,
    plain_ticks,
    round_ticks,
    styled,
)

LEVEL_STEPS: Final = (  # of a decade of contour levels: rounded powers of the 40th root of ten
    1, 1.06, 1.12, 1.18, 1.25, 1.32, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.12, 2.24, 2.36, 2.5, 2.65, 2.8, 3,
    3.15, 3.35, 3.55, 3.75, 4, 4.25, 4.5, 4.75, 5, 5.3, 5.6, 6, 6.3, 6.7, 7.1, 7.5, 8, 8.5, 9, 9.5,
)  # fmt: skip
MIN_LEVELS: Final = 8  # contour levels
LOG_AXIS_RATIO: Final = 8  # fields with a larger range get a logarithmic axis
BORDER: Final = 0.04  # share of the axes at their borders without labels of isolines
LABEL_DISTANCE: Final = (0.09, 0.05)  # between labels of isolines, of the axes
Grid = tuple[Floats, Floats, Floats]  # x, y, and values of shape (y, x), nan where nothing fits


@styled
def contour(
    frame: pl.DataFrame,
    x: str,
    y: str,
    gpus: int | Sequence[int],
    value: str = "training_days",
    marks: Sequence[System] = (),
) -> Figure:
    """Draw contours of a result of the best plan over two varied fields (arXiv 2410.00273, studies 4 and 5).

    The table is of one model and batch; strategies, systems and other fields are optimised over. Each number
    of GPUs is a panel, `marks` are machines to mark, and a field that varied together with x or y gets the
    axis opposite.
    """
    rows = best_rows(frame, "contour", "model", "gbs")
    for name in (x, y, value):
        if name not in frame.columns:
            known = [column for column in frame.columns if COLUMNS[column].kind in {"figure", "result"}]
            raise unknown_name_error("column", name, known)
    sizes = [gpus] if isinstance(gpus, int) else list(gpus)
    _check_fields(rows, x, y, sizes)
    grids = [_fastest_grid(rows.filter(pl.col("gpus") == n), x, y, value) for n in sizes]
    levels = _contour_levels(np.concatenate([z.ravel() for _, _, z in grids]))
    width = COLUMN + 1.2 if len(sizes) == 1 else PAGE * len(sizes) / 2
    figure, axes = panels(len(sizes), width=width, height=3.4, sharey=True)
    filled = [_draw_panel(ax, grid, levels) for ax, grid in zip(axes, grids, strict=True)]
    for ax, n in zip(axes, sizes, strict=True):
        ax.set_title(f"{rows['model'][0]}, {n:,} GPUs")
        ax.set_xlabel(label(x))
        _mark_systems(ax, x, y, marks)
        _add_opposite_axis(ax, rows, x, y, "top")
    _add_opposite_axis(axes[-1], rows, y, x, "right")
    axes[0].set_ylabel(label(y))
    if drawn := [contours for contours in filled if contours is not None]:
        bar = figure.colorbar(drawn[0], ax=axes, label=label(value), format="%g", ticks=levels, pad=0.02)
        bar.ax.tick_params(labelsize=7)
    return figure


def _check_fields(rows: pl.DataFrame, x: str, y: str, sizes: Sequence[int]) -> None:
    """Refuse numbers of GPUs that the table lacks, and fields that are no grid."""
    problems = [f"the table has nothing on {n:,} GPUs" for n in sizes if n not in rows["gpus"]]
    constant = [path for path in (x, y) if rows[path].n_unique() < 2]
    problems += [f"{path} has one value: nothing to draw contours over" for path in constant]
    if x == y:
        problems.append(f"x and y are both {x}")
    elif rows.select(x, y).unique().height < rows[x].n_unique() * rows[y].n_unique():
        problems.append(f"the table has not every value of {x} with every value of {y}: they vary together")
    if problems:
        raise InputError("contour", problems)


def _fastest_grid(rows: pl.DataFrame, x: str, y: str, value: str) -> Grid:
    """Return the value of the fastest plan at each pair of fields."""
    ordered = rows.sort("step_seconds", nulls_last=True, maintain_order=True)
    fastest = ordered.unique([x, y], keep="first", maintain_order=True)
    xs, across = np.unique(fastest[x].to_numpy(), return_inverse=True)
    ys, up = np.unique(fastest[y].to_numpy(), return_inverse=True)
    z = np.full((len(ys), len(xs)), np.nan)
    z[up, across] = in_unit(value, fastest[value].cast(pl.Float64).to_numpy())
    return in_unit(x, xs), in_unit(y, ys), z


def _contour_levels(values: Floats) -> Floats:
    """Return round levels from below the least value to above the largest; none where there is no value."""
    known = values[np.isfinite(values)]
    if not len(known):
        return known
    low, high = known.min(), known.max()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for stride in (8, 4, 2, 1):
        levels = np.outer(decades, LEVEL_STEPS[::stride]).ravel()
        first, last = np.searchsorted(levels, (low, high), "right")
        if last + 2 - first >= MIN_LEVELS:
            return levels[first - 1 : last + 1]
    return np.asarray(MaxNLocator(MIN_LEVELS).tick_values(low, high * (1 + 1e-9)))


def _draw_panel(ax: Axes, grid: Grid, levels: Floats) -> ContourSet | None:
    """Draw filled contours and labelled isolines; empty areas are marked as not fitting."""
    xs, ys, z = grid
    ax.set(xlim=(xs[0], xs[-1]), ylim=(ys[0], ys[-1]))
    wide = [name for name, values in (("x", xs), ("y", ys)) if values[-1] > LOG_AXIS_RATIO * values[0]]
    log_axes(ax, "".join(wide))
    empty = np.isnan(z)
    if empty.any():
        hatched(ax)
        up, across = np.nonzero(empty)
        right, top = _share_of_axes(ax, np.column_stack((xs[across], ys[up]))).mean(axis=0).clip(0.16, 0.84)
        look: dict[str, Any] = {"transform": ax.transAxes, "ha": "center", "va": "center", "bbox": WHITE_BOX}
        ax.text(right, top, "does not fit", fontsize=SMALL, **look)
    if empty.all():
        return None
    known = np.ma.masked_invalid(z)
    filled = ax.contourf(xs, ys, known, levels, cmap="cividis_r", norm=BoundaryNorm(levels, 256))
    inside = levels[(levels > known.min()) & (levels < known.max())]
    if len(inside):
        _label_isolines(ax, ax.contour(xs, ys, known, inside, colors="black", linewidths=0.5))
    return filled


def _share_of_axes(ax: Axes, points: Any) -> Floats:
    """Return points of the data as shares of the axes."""
    return np.asarray(ax.transAxes.inverted().transform(ax.transData.transform(points)))


def _label_isolines(ax: Axes, lines: ContourSet) -> None:
    """Label isolines, away from the borders and from each other."""
    labelled = np.empty((0, 2))
    for text in ax.clabel(lines, inline=False, fmt="%g", fontsize=SMALL, colors="black"):
        text.set_path_effects([withStroke(linewidth=2, foreground="white", alpha=0.8)])
        place = _share_of_axes(ax, text.get_position())
        near = np.abs(labelled - place) < LABEL_DISTANCE
        if np.abs(place - 0.5).max() > 0.5 - BORDER or near.all(axis=1).any():
            text.remove()
        else:
            labelled = np.vstack((labelled, place))


def _mark_systems(ax: Axes, x: str, y: str, systems: Iterable[System]) -> None:
    """Mark the machines that lie in the panel, by name."""
    for system in systems:
        figures = system.figures()
        point = float(in_unit(x, figures[x])), float(in_unit(y, figures[y]))
        right, up = _share_of_axes(ax, point)
        if max(abs(right - 0.5), abs(up - 0.5)) >= 0.5 + 1e-6:
            continue
        dot: dict[str, Any] = {"color": "white", "markeredgecolor": "black", "markersize": 4.5}
        ax.plot(*point, "o", **dot, clip_on=False, zorder=5)
        box = WHITE_BOX | {"alpha": 0.7, "pad": 0.8}
        side: dict[str, Any] = {"ha": "left", "va": "bottom" if up < 0.5 else "top"}
        if right >= 0.5:
            side["ha"] = "right"
        offset = (6 if right < 0.5 else -6, 0)
        note(ax, system.accelerator.name, point, offset, bbox=box, zorder=5, **side)


def _add_opposite_axis(ax: Axes, rows: pl.DataFrame, path: str, other: str, side: str) -> None:
    """Add an axis opposite to that of a field, for a field that varies together with it."""
    pair = _field_varying_with(rows, path, other)
    if pair is None:
        return
    name, places, values = pair
    ticks = round_ticks(values[0], values[-1])
    second = ax.secondary_xaxis("top") if side == "top" else ax.secondary_yaxis("right")
    axis = second.xaxis if side == "top" else second.yaxis
    plain_ticks(axis, np.interp(ticks, values, places).tolist(), ticks)
    second.tick_params(which="both", labelsize=7, width=0.6)
    axis.set_label_text(label(name))


def _field_varying_with(rows: pl.DataFrame, path: str, other: str) -> tuple[str, Floats, Floats] | None:
    """Return a field that rises with another at every point: its name, and both values in the units shown."""
    fields = [name for name in rows.columns if COLUMNS[name].kind == "figure" and name not in (path, other)]
    for name in fields:
        pairs = rows.select(path, name).unique().sort(path)
        if len(pairs) == rows[path].n_unique() and (pairs[name].diff().drop_nulls() > 0).all():
            return name, in_unit(path, pairs[path].to_numpy()), in_unit(name, pairs[name].to_numpy())
    return None
