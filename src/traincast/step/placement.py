"""Placements of a plan: how many members of each group share a fast domain."""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from traincast.core import STRATEGIES, Bools, Ints, Plan, Plans
from traincast.times import GROUP_ORDERS


@lru_cache(maxsize=4096)
def divisors(n: int) -> Ints:
    """Return the divisors of n, an array of shape (divisors,): ascending, not writable."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return _frozen(np.array(sorted({*small, *(n // d for d in small)}), dtype=np.int64))


@lru_cache(maxsize=4096)
def factorizations(n: int, parts: int) -> Ints:
    """Return every ordered way to write n as a product of `parts` factors: shape (ways, parts), not writable.

    Each row is a way, in lexicographic order.

    >>> factorizations(4, 2).tolist()
    [[1, 4], [2, 2], [4, 1]]
    """
    rows = np.empty((1, 0), np.int64)
    rest = np.array([n])
    for _ in range(parts - 1):
        row, choice = np.nonzero(rest[:, None] % divisors(n) == 0)
        factor = divisors(n)[choice]
        rows = np.column_stack((rows[row], factor))
        rest = rest[row] // factor
    return _frozen(np.column_stack((rows, rest)))


def _frozen(array: Ints) -> Ints:
    """Make an array read-only: callers of a cached function share it."""
    array.flags.writeable = False
    return array


def placements(plan: Plan, domain: int, ordered: bool = False) -> Plans | None:
    """Return every placement of a plan that fills the fast domains (arXiv 2410.00273, search space).

    None where there is none.
    """
    axes = STRATEGIES[plan.strategy].axes
    degrees = np.array([getattr(plan, axis) for axis in axes])
    places = factorizations(domain, len(axes)) if plan.gpus > domain else degrees[None]
    given = np.array([getattr(plan, f"fast_{axis}") or 0 for axis in axes])
    if ordered and plan.gpus > domain and not given[degrees > 1].any():
        places, _ = placements_in_order(domain, axes, plan.order, degrees[None])
    fast = places[((degrees % places == 0) & ((given == 0) | (given == places))).all(axis=1)].astype(float)
    if not len(fast):
        return None
    return replace(plan.columns(), **{f"fast_{axis}": fast[:, i] for i, axis in enumerate(axes)})


def placements_in_order(
    domain: int | Ints, axes: tuple[str, ...], order: str, degrees: Ints
) -> tuple[Ints, Bools]:
    """Return the placement of each row of degrees in the order of ranks; a domain need not be full.

    The domain is one size, or one for each row.
    """
    fast = np.ones_like(degrees)
    room = np.broadcast_to(domain, len(degrees))
    for axis in GROUP_ORDERS[order]:
        if axis in axes:
            i = axes.index(axis)
            fast[:, i] = np.gcd(degrees[:, i], room)
            room = room // fast[:, i]
    places, which = np.unique(fast, axis=0, return_inverse=True)
    return places, which.ravel()[:, None] == np.arange(len(places))
