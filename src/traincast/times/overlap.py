"""Communication that hides behind arithmetic: what is left to wait for (arXiv 2410.00273). All arguments may be columns."""

import numpy as np

from traincast.columns import Column


def excess(x: Column) -> Column:
    """x where it is positive, else 0 (as 0 x, which keeps the unit)."""
    return np.maximum(x, 0 * x)


def panelled(x: Column, nb: Column, busy: Column) -> Column:
    """Exposed communication of a product in nb panels (arXiv 2410.00273, SUMMA).

    Parameters
    ----------
    x : Column
        Communication of one panel [s].
    nb : Column
        Panels.
    busy : Column
        Arithmetic and exposed memory traffic of the whole product [s].

    Returns
    -------
    Column
        x + max(x nb - busy, 0): the first panel waits, the rest hide behind `busy` [s].
    """
    return x + excess(x * nb - busy)


def layer_by_layer(collective: Column, busy: Column, layers: Column) -> Column:
    """Exposed communication of one collective per layer (arXiv 2410.00273, one training step: data parallel).

    Parameters
    ----------
    collective : Column
        Time of the collective of one layer [s].
    busy : Column
        Time of one layer that it hides behind [s].
    layers : Column
        Layers on the rank, nl.

    Returns
    -------
    Column
        The first waits, each other hides behind one layer [s].
    """
    return collective + excess(collective - busy) * (layers - 1)
