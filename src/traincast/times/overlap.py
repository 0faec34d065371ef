"""Communication that hides behind arithmetic: what is left to wait for (arXiv 2410.00273)."""

import numpy as np

from traincast.columns import Column


def excess(x: Column) -> Column:
    """x where it is positive, else 0 (as 0 x, which keeps the unit)."""
    return np.maximum(x, 0 * x)


def panelled(x: Column, nb: Column, busy: Column) -> Column:
    """Exposed communication of a product in nb panels [s]: the first panel waits, the rest hide behind `busy`."""
    return x + excess(x * nb - busy)


def layer_by_layer(collective: Column, busy: Column, layers: Column) -> Column:
    """Exposed communication of one collective per layer [s]: the first waits, each other hides behind one layer's `busy` time."""
    return collective + excess(collective - busy) * (layers - 1)
