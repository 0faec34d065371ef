"""Positive constants that bring predictions nearest to measurements, by a search along each of them."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from traincast.columns import Floats

Values: TypeAlias = dict[str, float]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]
NOISE: Final = 0.05  # relative error from which one counts by its size, not by its square
FINEST: Final = 1.004  # factor at which the search ends
MOST: Final = 400  # evaluations at most


def loss(predicted: Floats, measured: Floats) -> float:
    """Mean soft absolute logarithm of predicted over measured."""
    errors = np.log(predicted / measured) / NOISE
    return float(np.mean(np.sqrt(1 + errors * errors) - 1))


def nearest(predict: Callable[[Values], Floats], measured: Floats, start: Mapping[str, float], bounds: Bounds) -> Values:
    """Values of constants at which predictions are nearest to what was measured.

    One constant after the other is multiplied and divided by a factor, which shrinks where nothing helps; what helped in a round is
    tried once more for all of them together.

    Parameters
    ----------
    predict : callable
        Times with values of the constants, shape (rows,) [s].
    measured : array, shape (rows,)
        Measured times [s].
    start : mapping of str to float
        Where to begin, above 0.
    bounds : mapping of str to pair of float
        Least and largest values, of those that have bounds.

    Returns
    -------
    dict of str to float
        The values.
    """
    best = dict(start)
    least, factor, tried = loss(predict(best), measured), 2.0, 1
    while factor > FINEST and tried < MOST:
        before = dict(best)
        for name in best:
            for times in (factor, 1 / factor):
                one = best | {name: float(np.clip(best[name] * times, *bounds.get(name, (0.0, np.inf))))}
                found = loss(predict(one), measured)
                tried += 1
                if found < least:
                    best, least = one, found
                    break
        further = {name: float(np.clip(best[name] ** 2 / before[name], *bounds.get(name, (0.0, np.inf)))) for name in best}
        found = loss(predict(further), measured)
        if found < least:
            best, least = further, found
        if best == before:
            factor = factor**0.5
    return best
