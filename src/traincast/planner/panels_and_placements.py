"""Enumerate what a layout does not fix: the panels of SUMMA, and the placement of every group on the fast domains."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from traincast.core.plan_choices import STRATEGIES
from traincast.core.quantities import Bools, Floats, Ints
from traincast.planner.framework_spaces import CandidateBatch
from traincast.step.placement import factorizations, placements_in_order

MIN_PANEL: Final = 512  # narrowest panel of a SUMMA product that is searched (arXiv 2410.00273, search space)


def panels(hidden: int, tp: Ints, tp2: Ints) -> tuple[Ints, Bools]:
    """Return the panel counts to try for each SUMMA grid, and which of them are valid (arXiv 2410.00273, search space).

    s = max(tp, tp2) is doubled while panels stay wide. Where e/s < 512 already, only s is tried.

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


@dataclass(frozen=True)
class Placements:
    """Panels and placements of each row of degrees, one row after the other.

    Parameters
    ----------
    first, count : array of int, shape (degrees,)
        Row r has `count[r]` fills from `first[r]` on.
    panels : array, shape (fills,)
        SUMMA panels; 1 for other strategies.
    fast : array, shape (axes, fills)
        Members of each axis in one fast domain.
    layer_placement : array of int, shape (fills,)
        Number of the part of a fill that a layer's time depends on: panels (as the row's k-th choice) and the placement of the
        layer's axes. Numbers are comparable only within one layer row.
    """

    first: Ints
    count: Ints
    panels: Floats
    fast: Floats
    layer_placement: Ints

    def of(self, rows: Ints) -> Ints:
        """Return all fills of the given rows of degrees, one row after the other: an array of shape (fills of these rows,)."""
        count = self.count[rows]
        ends = np.cumsum(count)
        return np.repeat(self.first[rows] - (ends - count), count) + np.arange(ends[-1] if len(ends) else 0)


def placement_options(
    hidden: int, domain: int, batch: CandidateBatch, degrees: Ints
) -> tuple[Ints, Bools, Ints, Bools]:
    """Return the panel counts and placements to try, and which are valid for each row of degrees.

    A placement fills the fast domains exactly, each axis with a divisor of its degree. A job no larger than a domain lies in it
    as a whole: the last column of placements.
    """
    inside = degrees.prod(axis=1) <= domain
    if batch.ordered:
        order = batch.given.get("order", "tp-cp-dp-pp")
        places, placeable = placements_in_order(domain, STRATEGIES[batch.strategy].axes, order, degrees)
    else:
        places = factorizations(domain, degrees.shape[1])
        placeable = np.ones((len(degrees), len(places)), bool)
        for axis, column in enumerate(degrees.T):
            values, which = np.unique(column, return_inverse=True)
            placeable &= (values[:, None] % places[:, axis] == 0)[which]
    placeable = np.column_stack((placeable & ~inside[:, None], inside))
    if batch.strategy == "summa":
        counts, wide = panels(hidden, degrees[:, 0], degrees[:, 1])
        return counts, wide & (counts == dict(batch.locks).get("panels", counts)), places, placeable
    no_panels = np.ones((len(degrees), 1), np.int64)
    return no_panels, no_panels > 0, places, placeable


def enumerate_placements(
    batch: CandidateBatch, degrees: Ints, counts: Ints, wide: Bools, places: Ints, placeable: Bools
) -> Placements:
    """List the valid panels and placements of each row of degrees."""
    row, panel, place = np.nonzero(wide[:, :, None] & placeable[:, None, :])
    # The last column of `placeable` is the whole job in one domain: every member of each group is in it.
    fast = np.where(place == len(places), degrees[row].T, np.vstack((places, places[:1]))[place].T)
    layer_placement, members = panel, np.unique(fast)
    for i in range(len(layer_axes_of(batch))):
        layer_placement = layer_placement * len(members) + np.searchsorted(members, fast[i])
    if batch.experts:
        _, layer_placement = np.unique(layer_placement, return_inverse=True)
    count = np.bincount(row, minlength=len(degrees))
    return Placements(
        np.cumsum(count) - count, count, counts[row, panel].astype(float), fast.astype(float), layer_placement
    )


def layer_axes_of(batch: CandidateBatch) -> tuple[str, ...]:
    """Return the axes whose placement a layer's time depends on; the first of the strategy's axes in their order."""
    axes = STRATEGIES[batch.strategy].axes
    return axes if batch.experts else STRATEGIES[batch.strategy].layer_axes
