"""The search space of arXiv 2410.00273 (search space), enumerated as columns.

It is built in the shape that sharing has. A *layout* is the degrees and the micro-batch; it alone decides memory. A *fill* is what
a layout leaves open: the SUMMA panels and the placement on the fast domains. A *candidate* is a layout with one of its fills.
Layouts are stored once, and rows of numbers say what they share:

- *degree*: the degrees without the micro-batch (tp, tp2 or cp, pp, dp). Fills depend on nothing else.
- *unit*: what a layer's memory depends on (tp, tp2 or cp, and the micro-batch). It knows nothing of pp and dp.
- *inner*: what a layer's time sees of a fill (panels, and the placement of tp, tp2 or cp). It knows nothing of fast_pp and fast_dp.

A *shard* is a unit with an inner: all that a layer's time depends on. Thousands of candidates share one.

The first layouts of ``1d`` for 4 layers on 4 GPUs in fast domains of 2, with a global batch of 2::

    layout   tp pp dp  mbs   degree  unit   fills: fast_(tp pp dp)   inner
       0      1  2  2   1       0     0     (1 1 2)  (1 2 1)         0  0
       1      1  4  1   1       1     0     (1 2 1)                  0
       2      1  4  1   2       1     1     (1 2 1)                  0
       3      2  1  2   1       2     2     (1 1 2)  (2 1 1)         0  1
       4      2  2  1   1       3     2     (1 2 1)  (2 1 1)         0  1

These 5 layouts have 8 candidates, but only 4 shards: (unit 0, inner 0), (1, 0), (2, 0) and (2, 1).
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traincast.model import Model
from traincast.plan import STRATEGIES, Plan, Plans
from traincast.rules import RULES

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
NO_PLACEMENT: Final = "no placement fills the fast domains"
MIN_PANEL: Final = 512  # narrowest panel of a SUMMA product that is searched (arXiv 2410.00273, search space)


@lru_cache(maxsize=4096)
def divisors(n: int) -> Ints:
    """Divisors of n, an array of shape (divisors,): ascending, not writable."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return _frozen(np.array(sorted({*small, *(n // d for d in small)}), dtype=np.int64))


@lru_cache(maxsize=4096)
def factorizations(n: int, parts: int) -> Ints:
    """Every ordered way to write n as a product.

    Parameters
    ----------
    n, parts : int
        The product, and the number of factors.

    Returns
    -------
    array of int, shape (ways, parts)
        One way a row, in lexicographic order; not writable.

    Examples
    --------
    >>> factorizations(4, 2).tolist()
    [[1, 4], [2, 2], [4, 1]]
    """
    rows, rest = np.empty((1, 0), np.int64), np.array([n])
    for _ in range(parts - 1):
        row, choice = np.nonzero(rest[:, None] % divisors(n) == 0)
        factor = divisors(n)[choice]
        rows, rest = np.column_stack((rows[row], factor)), rest[row] // factor
    return _frozen(np.column_stack((rows, rest)))


def _frozen(array: Ints) -> Ints:
    """The array, no longer writable: it is shared by all that ask for it again."""
    array.flags.writeable = False
    return array


def panels(hidden: int, tp: Ints, tp2: Ints) -> tuple[Ints, Bools]:
    """Panel counts to try for each SUMMA grid, and which of them are valid (arXiv 2410.00273, search space).

    s = max(tp, tp2) is doubled again and again while panels stay wide. Where e/s < 512 already, only s is tried.

    Parameters
    ----------
    hidden : int
        Embedding width, e.
    tp, tp2 : array of int, shape (rows,)
        The grids.

    Returns
    -------
    count, valid : array of int and of bool, shape (rows, choices)
        Panel counts nb, and which of them are searched.
    """
    s = np.maximum(tp, tp2)[:, None]
    count = s << np.arange(max(1, (hidden // MIN_PANEL).bit_length()))
    wide = (hidden % count == 0) & (hidden // count >= MIN_PANEL)
    return count, np.where(hidden / s < MIN_PANEL, count == s, wide)


def placements(plan: Plan, domain: int) -> Plans | None:
    """Every placement of one plan that fills the fast domains exactly (arXiv 2410.00273, search space).

    Parameters
    ----------
    plan : Plan
        The plan; what it already says of its placement is kept.
    domain : int
        Accelerators in a fast domain.

    Returns
    -------
    Plans or None
        The plan with each placement, columns of shape (placements,); None where there is none.
    """
    axes = STRATEGIES[plan.strategy].axes
    degrees = np.array([getattr(plan, axis) for axis in axes])
    places = factorizations(domain, len(axes)) if plan.gpus > domain else degrees[None]
    given = np.array([getattr(plan, f"fast_{axis}") or 0 for axis in axes])
    fast = places[((degrees % places == 0) & ((given == 0) | (given == places))).all(axis=1)].astype(float)
    if not len(fast):
        return None
    return replace(plan.columns(), **{f"fast_{axis}": fast[:, i] for i, axis in enumerate(axes)})


@dataclass(frozen=True)
class Fills:
    """Panels and placements of each row of degrees, one row after the other.

    Parameters
    ----------
    first, count : array of int, shape (degrees,)
        Row r has `count[r]` fills from `first[r]` on.
    panels : array, shape (fills,)
        SUMMA panels; 1 for other strategies.
    fast : array, shape (axes, fills)
        Members of each axis in one fast domain.
    inner : array of int, shape (fills,)
        Number for what a layer sees of the fill: panels (as the row's k-th choice) and the placement of its own axes. The same
        number means the same thing only within one unit.
    """

    first: Ints
    count: Ints
    panels: Floats
    fast: Floats
    inner: Ints

    def of(self, rows: Ints) -> Ints:
        """All fills of the given rows of degrees, one row after the other: an array of shape (fills of these rows,)."""
        count = self.count[rows]
        ends = np.cumsum(count)
        return np.repeat(self.first[rows] - (ends - count), count) + np.arange(ends[-1] if len(ends) else 0)


def _choices(hidden: int, domain: int, strategy: str, degrees: Ints) -> tuple[Ints, Bools, Ints, Bools]:
    """Panel counts and placements to try, and which are valid for each row of degrees.

    A placement fills the fast domains exactly, each axis with a divisor of its degree. A job no larger than a domain lies in it
    as a whole: the last column of placements.
    """
    inside = degrees.prod(axis=1) <= domain
    places = factorizations(domain, degrees.shape[1])
    placeable = np.empty((len(degrees), len(places) + 1), bool)
    placeable[:, -1] = inside
    placeable[:, :-1] = ~inside[:, None]
    for axis, column in enumerate(degrees.T):
        values, which = np.unique(column, return_inverse=True)
        placeable[:, :-1] &= (values[:, None] % places[:, axis] == 0)[which]
    if strategy == "summa":
        return *panels(hidden, degrees[:, 0], degrees[:, 1]), places, placeable
    once = np.ones((len(degrees), 1), np.int64)
    return once, once > 0, places, placeable


@dataclass(frozen=True)
class Space:
    """All layouts of one strategy on one or several numbers of GPUs, and their fills.

    Parameters
    ----------
    strategy : str
        Name of the strategy.
    gpus : tuple of int
        Numbers of GPUs.
    layouts : Plans
        Layouts that meet every rule, in enumeration order: GPUs, tp, tp2 or cp, pp, mbs, all ascending.
    starts : array of int, shape (numbers of GPUs + 1,)
        First layout of each number of GPUs, and the end.
    units : Plans
        Distinct (tp, tp2 or cp, mbs): all that the bytes held by a layer depend on.
    unit, degree : array of int, shape (layouts,)
        For each layout its row in `units` and in `fills`.
    fills : Fills
        Panels and placements of each row of degrees.
    rejected : dict of str to array
        Reason → candidates rejected by it, for each number of GPUs; a candidate counts for the first rule it breaks.
    """

    strategy: str
    gpus: tuple[int, ...]
    layouts: Plans
    starts: Ints
    units: Plans
    unit: Ints
    degree: Ints
    fills: Fills
    rejected: dict[str, Ints]

    @property
    def counts(self) -> Ints:
        """Number of candidates of each layout, an array of shape (layouts,)."""
        return self.fills.count[self.degree]

    def candidates(self, layouts: Ints) -> tuple[Ints, Ints]:
        """All candidates of some layouts, in enumeration order.

        Two arrays of shape (candidates,): the position of the candidate's layout among those given, and its fill.
        """
        count = self.counts[layouts]
        return np.repeat(np.arange(len(layouts)), count), self.fills.of(self.degree[layouts])

    def plans(self, layout: Ints, fill: Ints) -> Plans:
        """Candidates as columns of shape (candidates,), from the layout and the fill of each."""
        axes = STRATEGIES[self.strategy].axes
        degrees = {knob: getattr(self.layouts, knob)[layout] for knob in (*axes, "mbs")}
        fast = {f"fast_{axis}": self.fills.fast[i][fill] for i, axis in enumerate(axes)}
        return Plans(**degrees, **fast, panels=self.fills.panels[fill], vp=self.layouts.vp, **STRATEGIES[self.strategy].choices)


@dataclass(frozen=True)
class Shards:
    """The distinct shards among the candidates of some layouts: all that a layer's cost depends on.

    Parameters
    ----------
    plans : Plans
        tp, tp2 or cp, mbs, panels and the placement of tp, tp2, cp.
    row : array of int, shape (units, inner)
        Row in `plans` of a unit with an inner fill; -1 where no candidate has it.
    """

    plans: Plans
    row: Ints

    @classmethod
    def of(cls, space: Space, layouts: Ints) -> "Shards":
        """Shards of some rows of `space.layouts`: one row for each shard that some of their candidates have."""
        fills = space.fills
        unit, degree = np.unique(np.stack((space.unit[layouts], space.degree[layouts])), axis=1)
        fill = fills.of(degree)
        example = np.full((len(space.units.mbs), fills.inner.max(initial=-1) + 1), -1)  # type: ignore[arg-type]
        example[np.repeat(unit, fills.count[degree]), fills.inner[fill]] = fill  # any fill of the shard will do
        row, inner = np.nonzero(example >= 0)
        fill = example[row, inner]
        fast = {f"fast_{axis}": fills.fast[i][fill] for i, axis in enumerate(STRATEGIES[space.strategy].layer_axes)}
        example[row, inner] = np.arange(len(row))
        return cls(replace(space.units.take(row), panels=fills.panels[fill], **fast), example)


@lru_cache(maxsize=4)
def enumerate_space(model: Model, gpus: tuple[int, ...], domain: int, gbs: int, strategy: str, vp: int = 1) -> Space:
    """Enumerate a strategy's candidates (arXiv 2410.00273, search space).

    Parameters
    ----------
    model : Model
        The transformer.
    gpus : tuple of int
        Numbers of GPUs, ascending.
    domain : int
        Accelerators in a fast domain.
    gbs : int
        Global batch [sequences].
    strategy : {"1d", "summa", "context"}
        Name of the strategy.
    vp : int
        Virtual stages of a device, the same for every candidate.

    Returns
    -------
    Space
        Layouts that meet every rule and can be placed, their fills, and how many candidates each rule rejects.
    """
    axes = STRATEGIES[strategy].axes
    blocks = [factorizations(n, len(axes)) for n in gpus]
    degrees = np.concatenate(blocks)
    job = np.repeat(np.arange(len(gpus)), [len(block) for block in blocks])
    batches = divisors(gbs)
    dp = degrees[:, -1]
    divides = gbs % (dp[:, None] * batches) == 0
    divides[:, 0] |= gbs % dp != 0  # one row stays, for the rule to reject
    degree, batch = np.nonzero(divides)
    columns = {axis: degrees[degree, i].astype(float) for i, axis in enumerate(axes)}
    plan = Plans(**columns, mbs=batches[batch].astype(float), vp=float(vp), **STRATEGIES[strategy].choices)
    counts, wide, places, placeable = _choices(model.hidden, domain, strategy, degrees)
    filled = wide.sum(axis=1) * placeable.sum(axis=1)
    weight = np.maximum(filled, 1)[degree]  # candidates of each row; a row without fills counts once
    alive = np.ones(len(degree), bool)
    rejected: dict[str, Ints] = {}

    def reject(reason: str, holds: Bools) -> None:
        broken = alive & ~holds
        if broken.any():
            rejected[reason] = np.bincount(job[degree[broken]], weight[broken], len(gpus)).astype(np.int64)
            np.logical_and(alive, holds, out=alive)

    for rule in RULES:
        reject(rule.broken, np.broadcast_to(rule.holds(model, plan, gbs), alive.shape))
    reject(NO_PLACEMENT, np.any(placeable, axis=1)[degree])
    layouts = plan.take(alive)
    used, degree = np.unique(degree[alive], return_inverse=True)
    starts = np.searchsorted(job[used][degree], np.arange(len(gpus) + 1))
    fills = _fill(strategy, degrees[used], counts[used], wide[used], places, placeable[used])
    return Space(strategy, gpus, layouts, starts, *_units(layouts, strategy), degree, fills, rejected)


def _fill(strategy: str, degrees: Ints, counts: Ints, wide: Bools, places: Ints, placeable: Bools) -> Fills:
    """Spell out the valid panels and placements of each row of degrees."""
    row, panel, place = np.nonzero(wide[:, :, None] & placeable[:, None, :])
    # The last column of `placeable` is the whole job in one domain: every member of each group is in it.
    fast = np.where(place == len(places), degrees[row].T, np.vstack((places, places[:1]))[place].T)
    inner, members = panel, np.unique(fast)
    for i in range(len(STRATEGIES[strategy].layer_axes)):
        inner = inner * len(members) + np.searchsorted(members, fast[i])
    count = np.bincount(row, minlength=len(degrees))
    return Fills(np.cumsum(count) - count, count, counts[row, panel].astype(float), fast.astype(float), inner)


def _units(layouts: Plans, strategy: str) -> tuple[Plans, Ints]:
    """Distinct rows of what a layer's bytes depend on, and which one each layout has."""
    knobs = (*STRATEGIES[strategy].layer_axes, "mbs")
    key = np.zeros(len(np.atleast_1d(layouts.tp)), np.int64)
    for knob in knobs:
        values, which = np.unique(getattr(layouts, knob), return_inverse=True)
        key = key * len(values) + which
    _, first, unit = np.unique(key, return_index=True, return_inverse=True)
    return Plans(**{knob: getattr(layouts, knob)[first] for knob in knobs}, **STRATEGIES[strategy].choices), unit
