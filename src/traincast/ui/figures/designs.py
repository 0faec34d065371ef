"""Figures of designs of machines: front, least cost over two figures, prices, and which figure binds."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from traincast.core import Floats, InputError
from traincast.planner import MACHINE_FIGURES, value_text
from traincast.ui.figures import style
from traincast.ui.figures.study import label_isolines

if TYPE_CHECKING:
    from traincast.planner import Designs

CHANGE_DRAWN: Final = 0.005  # share of the cost by which a price that is drawn changes it
DAYS: Final = "Time of the workload [d]"
COST: Final = "Cost of the workload [$M]"


def figures_of(found: "Designs") -> Iterator[tuple[str, str, Figure, str]]:
    """Yield name, title, figure and caption of each figure that can be drawn."""
    for stem, title, draw, caption in DRAWN:
        with suppress(InputError):
            yield stem, title, draw(found), caption


@style.apply_style
def cost_front(found: "Designs") -> Figure:
    """Draw time against cost of every machine within the limits, with the front and machines of today."""
    figure, (ax,) = style.panels(1, width=style.PAGE, height=4.0)
    days = found.hours / 24
    cost = found.cost / 1e6
    names = list(dict.fromkeys(part.family.name for part in found.parts if part.points))
    for name, colour in zip(names, (*style.COLOURS, style.BROWN, style.GREY), strict=False):
        number = [part.family.name for part in found.parts].index(name)
        rows = found.feasible & (found.part == number)
        look: style.Look = {"s": 9, "linewidths": 0, "alpha": 0.6, "rasterized": bool(rows.sum() > 5000)}
        ax.scatter(days[rows], cost[rows], color=colour, label=name, **look)
    front = np.array(found.front_rows)
    front = front[np.argsort(days[front], kind="stable")]
    lowest = np.minimum.accumulate(cost[front])
    stairs = front[cost[front] <= lowest]  # of time and cost; energy keeps others on the front
    if len(stairs) > 1:
        ax.plot(days[stairs], cost[stairs], "-", color=style.BLACK, drawstyle="steps-post", label="front")
    today = np.flatnonzero(~found.designed & np.isfinite(found.hours))
    shown = [found.cheapest, *today.tolist()]
    low, high = (found.intervals(shown) / 24).T
    cheap, dear = (np.array([getattr(price, end) for price in found.prices]) for end in ("low", "high"))
    for row, first, last in zip(shown, low, high, strict=True):
        built = row == found.cheapest
        ends = found.hours[row] * found.rates[:, row] / 1e6  # cost [$M] of one unit of each price
        look = {"color": style.VERMILION if built else style.BLACK}
        ax.plot([first, last], [cost[row]] * 2, "-", linewidth=0.6, **look)
        ax.plot([days[row]] * 2, [cheap @ ends, dear @ ends], "-", linewidth=0.6, **look)
        look |= {"s": 70, "marker": "*"} if built else {"s": 18, "marker": "s"}
        ax.scatter(days[row], cost[row], zorder=4, **look)
    style.log_axes(ax)
    ax.set(xlabel=DAYS, ylabel=COST)
    figure.legend(loc="outside lower center", ncols=4)
    figure.draw_without_rendering()
    labels = ["cheapest", *(found.parts[found.part[row]].family.name for row in today)]
    style.label_points(ax, [(days[row], cost[row]) for row in shown], labels)
    return figure


@style.apply_style
def price_tornado(found: "Designs") -> Figure:
    """Draw the change of the cost for each price at either end of its range."""
    hours = found.hours[found.cheapest]
    prices = found.prices
    cost = found.cost[found.cheapest]
    among = found.feasible & (found.designed == found.designed[found.cheapest])
    changes = np.zeros((2, len(prices), 2))  # machine kept or chosen anew, price, end
    for number, price in enumerate(prices):
        for end, value in enumerate((price.low, price.high)):
            step = value - price.value
            changes[0, number, end] = hours * found.rates[number, found.cheapest] * step
            costs = found.cost[among] + found.hours[among] * found.rates[number, among] * step
            changes[1, number, end] = costs.min() - cost
    changes *= 100 / cost
    largest = np.abs(changes).max(axis=(0, 2))
    order = [i for i in np.argsort(largest, kind="stable") if largest[i] >= 100 * CHANGE_DRAWN]
    if not order:
        raise InputError("tornado", ["no price has a range that changes the cost"])
    figure, (ax,) = style.panels(1, width=5.2, height=0.9 + 0.36 * len(order))
    drawn = [prices[i] for i in order]
    titles = [f"{price.title}\n{price.text(price.low)} to {price.text(price.high)}" for price in drawn]
    colours = {"low end of the range": style.BLUE, "high end of the range": style.ORANGE}
    style.tornado_bars(ax, changes[:, order], titles, colours, ("machine fixed", "machine re-optimised"))
    ax.set_xlabel("Cost of the workload, change [%]")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@style.apply_style
def iso_cost(found: "Designs") -> Figure:
    """Draw contours of the least cost over the two figures of the map, and the time of that machine."""
    x, y, xs, ys, cost, days = _least_cost(found)
    if min(len(xs), len(ys)) < 2 or np.isfinite(cost).sum() < cost.size / 2:
        raise InputError("iso-cost", ["too few machines fit over the two figures"])
    figure, (ax,) = style.panels(1, width=style.COLUMN + 1.4, height=3.4)
    across = style.in_unit(x, xs)
    up = style.in_unit(y, ys)
    known = np.ma.masked_invalid(cost)
    ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
    style.log_axes(ax)
    ax.set_facecolor("#f2f2f2")
    filled = ax.contourf(across, up, known, 8, cmap="cividis_r")
    ax.contour(across, up, known, 8, colors="black", linewidths=0.5)  # the bar beside says their cost
    dashed: style.Look = {"colors": "white", "linestyles": "dashed", "linewidths": 0.9}
    of_time = ax.contour(across, up, np.ma.masked_invalid(days), 4, **dashed)
    label_isolines(ax, of_time, "%.3g d")
    _mark_cheapest(found, ax, x, y)
    ax.set(xlabel=style.label(x), ylabel=style.label(y))
    figure.colorbar(filled, ax=ax, label=COST, pad=0.02).ax.tick_params(labelsize=7)
    return figure


def _mark_cheapest(found: "Designs", ax: Axes, x: str, y: str) -> None:
    part = found.parts[found.part[found.cheapest]]
    machine = found.within[found.cheapest] // part.sizes
    point = [float(style.in_unit(path, part.figure(path)[machine])) for path in (x, y)]
    star: style.Look = {"color": style.VERMILION, "markersize": 9, "markeredgecolor": "white"}
    ax.plot(*point, "*", clip_on=False, zorder=5, **star)


def _least_cost(found: "Designs") -> tuple[str, str, Floats, Floats, Floats, Floats]:
    """Return two figures, their values, and cost [$M] and time [d] of the cheapest machine at each pair."""
    if found.map_axes is None:
        raise InputError("iso-cost", ["fewer than two figures vary"])
    x, y = found.map_axes
    number = int(found.part[found.cheapest])
    part = found.parts[number]
    rows = np.flatnonzero(found.part == number)
    machine = found.within[rows] // part.sizes
    xs, across = np.unique(part.figure(x)[machine], return_inverse=True)
    ys, up = np.unique(part.figure(y)[machine], return_inverse=True)
    cost, days = np.full((2, len(ys), len(xs)), np.nan)
    for i in np.argsort(-found.cost[rows], kind="stable"):  # the cheapest last
        if found.feasible[rows[i]]:
            cost[up[i], across[i]] = found.cost[rows[i]] / 1e6
            days[up[i], across[i]] = found.hours[rows[i]] / 24
    return x, y, xs, ys, cost, days


@style.apply_style
def binding_map(found: "Designs") -> Figure:
    """Draw which figure binds over two figures of the cheapest machine."""
    grid = found.binding_map
    if grid is None:
        raise InputError("binding", ["fewer than two figures vary: there is no map"])
    looks = dict(zip(grid.paths, (*style.COLOURS, style.BROWN, style.GREY), strict=False))
    figure, (ax,) = style.panels(1, width=style.COLUMN + 1.4, height=3.4)
    for up, across in np.ndindex(grid.binding.shape):
        path = None if grid.binding[up, across] < 0 else grid.paths[grid.binding[up, across]]
        look: style.Look = style.INFEASIBLE if path is None else {"facecolor": looks[path], "alpha": 0.7}
        ax.add_patch(Rectangle((across - 0.5, up - 0.5), 1, 1, edgecolor="white", **look))
        if path is not None:
            ax.text(across, up, f"{grid.elasticity[up, across]:.2f}", ha="center", va="center", fontsize=7)
    ax.set(xlim=(-0.5, len(grid.xs) - 0.5), ylim=(-0.5, len(grid.ys) - 0.5))
    ax.set_xticks(range(len(grid.xs)), [value_text(grid.x, value) for value in grid.xs])
    ax.set_yticks(range(len(grid.ys)), [value_text(grid.y, value) for value in grid.ys])
    ax.set(xlabel=style.label(grid.x, ""), ylabel=style.label(grid.y, ""))
    drawn = [path for number, path in enumerate(grid.paths) if (grid.binding == number).any()]
    handles = [Patch(facecolor=looks[path], alpha=0.7, label=MACHINE_FIGURES[path]) for path in drawn]
    if (grid.binding < 0).any():
        handles.append(Patch(label="does not fit", **style.INFEASIBLE))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


DRAWN: Final = (  # name, title, function and caption
    (
        "front",
        "Time and cost",
        cost_front,
        "Every machine within the limits. Bars: the 90% interval of the time, and the cost where all prices "
        "are at either end of their range.",
    ),
    (
        "prices",
        "What prices change",
        price_tornado,
        "Cost of the workload where one price is at either end of its range: on the cheapest machine at the "
        "prices given, and on the one that is then the cheapest.",
    ),
    (
        "iso-cost",
        "Least cost over two figures",
        iso_cost,
        "Least cost of the workload over all other figures. Dashed: time of that machine in days.",
    ),
    (
        "binding",
        "Which figure binds",
        binding_map,
        "Figure of which a share more saves most time, the others as on the cheapest machine. Number: share "
        "of the time that 1% more of it saves, in percent.",
    ),
)
