"""The search space of arXiv 2410.00273, enumerated as columns.

It is built in the shape that sharing has: *layouts* (degrees and micro-batch), which alone decide memory; *fills* of a layout
(SUMMA panels and placement on the fast domains); and *shards*, the distinct things a layer's cost depends on. A candidate is a
layout with one of its fills; thousands of candidates share a shard.
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
MIN_PANEL: Final = 512  # narrowest panel of a SUMMA product that is searched


@lru_cache(maxsize=4096)
def divisors(n: int) -> Ints:
    """Divisors of n, ascending."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return _frozen(np.array(sorted({*small, *(n // d for d in small)}), dtype=np.int64))


@lru_cache(maxsize=4096)
def factorizations(n: int, parts: int) -> Ints:
    """Every ordered way to write n as a product of `parts` factors, one a row, in lexicographic order."""
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
    """Panel counts to try for each SUMMA grid, and which of them are valid.

    s = max(tp, tp2) doubled again and again while panels stay wide: only s where e/s < 512.
    """
    s = np.maximum(tp, tp2)[:, None]
    count = s << np.arange(max(1, (hidden // MIN_PANEL).bit_length()))
    wide = (hidden % count == 0) & (hidden // count >= MIN_PANEL)
    return count, np.where(hidden / s < MIN_PANEL, count == s, wide)


def placements(plan: Plan, domain: int) -> Plans | None:
    """Every placement of one plan that fills fast domains of `domain` accelerators exactly; None where there is none.

    What the plan already says of its placement is kept.
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
    """Panels and placements of each row of degrees, one row after the other: row r has `count[r]` fills from `first[r]` on."""

    first: Ints
    count: Ints
    panels: Floats
    fast: Floats  # members in a fast domain, a row per axis
    inner: Ints  # number of what a layer sees of the fill: panels (as the row's k-th choice) and the placement of its own axes

    def of(self, rows: Ints) -> Ints:
        """All fills of the given rows, one row after the other."""
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
    starts : array of int
        First layout of each number of GPUs, and the end.
    units : Plans
        Distinct (tp, tp2 or cp, mbs): all that the bytes held by a layer depend on.
    unit, degree : array of int
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
        """Candidates of each layout."""
        return self.fills.count[self.degree]

    def candidates(self, layouts: Ints) -> tuple[Ints, Ints]:
        """All candidates of some layouts, in enumeration order: the number of the layout among them, and the fill."""
        count = self.counts[layouts]
        return np.repeat(np.arange(len(layouts)), count), self.fills.of(self.degree[layouts])

    def plans(self, layout: Ints, fill: Ints) -> Plans:
        """Candidates as columns: layouts with their fills."""
        axes = STRATEGIES[self.strategy].axes
        degrees = {knob: getattr(self.layouts, knob)[layout] for knob in (*axes, "mbs")}
        fast = {f"fast_{axis}": self.fills.fast[i][fill] for i, axis in enumerate(axes)}
        return Plans(**degrees, **fast, panels=self.fills.panels[fill], **STRATEGIES[self.strategy].choices)


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
        """Shards of the given rows of `space.layouts`."""
        fills = space.fills
        unit, degree = np.unique(np.stack((space.unit[layouts], space.degree[layouts])), axis=1)
        fill = fills.of(degree)
        example = np.full((len(space.units.mbs), fills.inner.max(initial=-1) + 1), -1)  # type: ignore[arg-type]
        example[np.repeat(unit, fills.count[degree]), fills.inner[fill]] = fill
        row, inner = np.nonzero(example >= 0)
        fill = example[row, inner]
        fast = {f"fast_{axis}": fills.fast[i][fill] for i, axis in enumerate(STRATEGIES[space.strategy].layer_axes)}
        example[row, inner] = np.arange(len(row))
        return cls(replace(space.units.take(row), panels=fills.panels[fill], **fast), example)


@lru_cache(maxsize=4)
def enumerate_space(model: Model, gpus: tuple[int, ...], domain: int, gbs: int, strategy: str) -> Space:
    """Enumerate a strategy's candidates.

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
    plan = Plans(**columns, mbs=batches[batch].astype(float), **STRATEGIES[strategy].choices)
    counts, wide, places, placeable = _choices(model.hidden, domain, strategy, degrees)
    filled = wide.sum(axis=1) * placeable.sum(axis=1)
    weight = np.maximum(filled, 1)[degree]
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
