"""Exposed time of communication that overlaps with arithmetic; arguments may be columns."""

from collections.abc import Sequence

import numpy as np

from traincast.core import Column, maximum, minimum, nonzero, sqrt, where
from traincast.operations import total


def exposed_time(x: Column) -> Column:
    """Return x where it is positive, else 0 (as 0 x, which keeps the unit)."""
    return maximum(x, 0 * x)


def panel_time(x: Column, nb: Column, busy: Column) -> Column:
    """Return the exposed communication of a product in nb panels (arXiv 2410.00273, SUMMA) [s].

    `x`: communication of one panel [s]; `busy`: arithmetic and exposed memory traffic of the whole product
    [s].
    """
    return x + exposed_time(x * nb - busy)


def layer_by_layer(
    collective: Sequence[Column],
    busy: Sequence[Column],
    layers: Sequence[Column],
    contention: Column = 0,
    streams: Sequence[Column] | None = None,
    together: Sequence[Column] | None = None,
) -> Column:
    """Return the exposed time of one collective per layer (arXiv 2410.00273, data parallel) [s].

    The first layer's is exposed; each other overlaps with one layer. A rank may have layers of several kinds.
    Where several layers share a collective, all of the first bucket is exposed.

    `collective`: time of the collective of one layer of each kind [s]; `busy`: time of one layer of each kind
    that it overlaps with [s]; `streams`: the part of `collective` in which data stream and slow the layers
    down; the rest is latency. All of it if left out [s]; `together`: layers that share a collective, one if
    left out.
    """
    exposed = total(exposed_time(x - t) * n for x, t, n in zip(collective, busy, layers, strict=True))
    first = 0 * collective[0]
    shared = [1.0] * len(layers) if together is None else together
    for x, t, n, bucket in zip(collective, busy, layers, shared, strict=True):
        first = maximum(first, (x - exposed_time(x - t)) * minimum(n, bucket))
    if not nonzero(contention):
        return exposed + first
    streaming = total(x * n for x, n in zip(collective if streams is None else streams, layers, strict=True))
    return exposed + first + contention * exposed_time(streaming - exposed - first)


def paced_by(host: Column, device: Column) -> Column:
    """Return the time of work that the host launches while the device runs it: about the longer [s].

    Neither is steady, so if they are close each sometimes waits for the other: a norm of order 4. Fits to
    small models on A100, bound by launch overhead, gave 3.4 to 8.

    `host, device`: time of each alone [s].
    """
    both = np.square(host) ** 2 + np.square(device) ** 2
    longer: Column = sqrt(sqrt(both))
    return longer


def largest(values: Sequence[Column]) -> tuple[Column, Column]:
    """Return the row-by-row largest of several columns, and the index of the column it is from."""
    longest: Column = values[0]
    index: Column = 0.0
    for i, value in enumerate(values[1:], 1):
        index = where(value > longest, float(i), index)
        longest = maximum(longest, value)
    return longest, index
