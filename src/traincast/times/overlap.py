"""Communication that hides behind arithmetic: what is left to wait for (arXiv 2410.00273). All arguments may be columns."""

from collections.abc import Sequence

import numpy as np

from traincast.core.quantities import Column
from traincast.operations.operation import total


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


def layer_by_layer(
    collective: Sequence[Column],
    busy: Sequence[Column],
    layers: Sequence[Column],
    contention: Column = 0,
    streams: Sequence[Column] | None = None,
) -> Column:
    """Exposed communication of one collective per layer (arXiv 2410.00273, one training step: data parallel).

    The first layer's is waited for; each other hides behind one layer. Layers of several kinds stand side by side.

    Parameters
    ----------
    collective : sequence of Column
        Time of the collective of one layer of each kind [s].
    busy : sequence of Column
        Time of one layer of each kind that it hides behind [s].
    layers : sequence of Column
        Layers of each kind on the rank; of one kind their number is nl.
    contention : Column
        Share of what hides that is paid all the same.
    streams : sequence of Column, optional
        The part of `collective` in which data stream, the rest being latency, which takes nothing from the layers; all of it if
        left out [s].

    Returns
    -------
    Column
        Of one kind x + max(x - busy, 0)(nl - 1); of several, the sum of what is exposed and the longest that could have hidden [s].
    """
    exposed = total(excess(x - t) * n for x, t, n in zip(collective, busy, layers, strict=True))
    first = 0 * collective[0]
    for x, t, n in zip(collective, busy, layers, strict=True):
        first = np.maximum(first, (x - excess(x - t)) * np.minimum(n, 1))
    if not contention:
        return exposed + first
    everything = total(x * n for x, n in zip(collective if streams is None else streams, layers, strict=True))
    return exposed + first + contention * excess(everything - exposed - first)


def paced_by(host: Column, device: Column) -> Column:
    """Time of work that one side issues while the other does it: nearly the longer of the two.

    Neither is steady, so where they are close each waits for the other now and then: a norm of order 4. Fits to small models on
    A100, bound by launches, gave 3.4 to 8.

    Parameters
    ----------
    host, device : Column
        Time that each needs alone [s].

    Returns
    -------
    Column
        (host⁴ + device⁴)^¼ [s].
    """
    both = np.square(host) ** 2 + np.square(device) ** 2
    longer: Column = np.sqrt(np.sqrt(both))
    return longer


def largest(values: Sequence[Column]) -> tuple[Column, Column]:
    """The largest of several columns, row by row, and which of them it is, from 0."""
    most: Column = values[0]
    which: Column = 0.0
    for i, value in enumerate(values[1:], 1):
        which = np.where(value > most, float(i), which)
        most = np.maximum(most, value)
    return most, which
