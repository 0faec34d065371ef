"""Linear layers on local shapes (arXiv 2410.00273, operations of a layer).

T tokens, i and o the local input and output widths. All of them are numbers or columns over plans.
"""

from dataclasses import dataclass
from typing import NamedTuple

from traincast.core import Column
from traincast.operations.operation import Collective, Comms, Gemm, Layout, Operation, PassCount


class Routed(NamedTuple):
    """Rows that the rank's experts receive, and the number of these experts, which divide the rows evenly."""

    rows: Column
    experts: Column


@dataclass(frozen=True, slots=True)
class MatmulSizes:
    """Element sizes of a linear layer."""

    E: Column  # an element of an activation or a weight [byte]
    operand: Column = 1  # an operand of a product, relative to E
    accumulated: Column = 1  # traffic of accumulating an element of the weight gradient, relative to E
    casts: Column = 0  # casts to lower precision of an activation or a gradient for a product
    weight_casts: Column = 0  # of a weight
    low: bool = False  # whether products run at the rate of the precision recipe
    saved_operand: Column = 1  # an operand that is saved for backward, relative to E

    def read_traffic(self, elements: Column) -> Column:
        """Return the traffic of reading operands of a product [byte]."""
        return self.operand * self.E * elements

    def cast(self, elements: Column) -> Column:
        """Return the traffic of casting operands: read at 16 bits, written twice at half of that [byte]."""
        return self.casts * 2 * self.E * elements

    def cast_weights(self, elements: Column) -> Column:
        """Return the traffic of casting weights, in every micro-batch [byte]."""
        return self.weight_casts * 2 * self.E * elements


def linear(
    name: str,
    E: MatmulSizes,
    T: Column,
    i: Column,
    o: Column,
    forward: Comms = (),
    backward: Comms = (),
    copies: Column | None = None,
    saved_tokens: Column | None = None,
    cast: tuple[Column, Column] = (1, 1),
) -> Operation:
    """Return the linear layer y[T, o] = x[T, i] w[i, o] on local shapes; its input is saved.

    `copies` are weight matrices that divide the tokens evenly (experts), `saved_tokens` those whose input is
    saved for backward, all if None. `cast` are the shares of the tokens of x and of dy that the rank casts to
    lower precision; the others arrive cast.
    """
    layout: Layout = "one" if copies is None else "grouped"
    b: Column = 1 if copies is None else copies
    rows = T / b  # of each matrix
    # elements; each moves once per product
    x = T * i
    y = T * o
    w = b * i * o
    # results
    y_bytes = E.E * y
    dx_bytes = E.E * x
    dw_bytes = E.accumulated * E.E * w
    casts = E.cast(cast[0] * x) + E.cast_weights(w)
    casts_back = E.cast(cast[1] * y)

    def product(m: Column, k: Column, n: Column) -> tuple[Gemm, ...]:
        return (Gemm(m, k, n, b, low=E.low, layout=layout),)

    y_traffic = E.read_traffic(x + w) + y_bytes + casts
    dx_traffic = E.read_traffic(y + w) + dx_bytes + casts_back
    return Operation(
        name,
        PassCount(product(rows, i, o), y_traffic, forward, written=y_bytes, cast=casts),
        PassCount(product(rows, o, i), dx_traffic, backward, written=dx_bytes, cast=casts_back),  # dx = dy w'
        PassCount(product(i, rows, o), E.read_traffic(x + y) + dw_bytes, written=dw_bytes),  # dw = x' dy
        weights=w,
        saved_bytes=E.saved_operand * E.E * (T if saved_tokens is None else saved_tokens) * i,
        gradient_bytes=E.E * (x + y),
    )


def summa_linear(
    name: str,
    E: MatmulSizes,
    T: Column,
    inputs: Column,
    outputs: Column,
    grid: tuple[Column, Column, Column],
    copies: Column | None = None,
) -> Operation:
    """Return a linear layer as a SUMMA product on m1 x m2 ranks in nb panels, with one panel's collectives.

    A rank holds x[T, inputs/m1] and w[inputs/m2, outputs/m1] of the full widths. The rest is broadcast, panel
    by panel.
    """
    m1, m2, nb = grid
    o = outputs // m1
    layout: Layout = "one" if copies is None else "grouped"
    c: Column = 1 if copies is None else copies
    rows = T / c  # of each matrix
    # elements that pass through the rank
    x = T * inputs
    w = c * inputs * o
    y = T * o
    # every panel adds to the result
    y_bytes = E.E * y * nb
    dw_bytes = E.accumulated * E.E * w
    nbytes = E.read_traffic(w) + y_bytes + E.read_traffic(x)
    cast = E.cast(x) + E.cast_weights(w)
    cast_back = E.cast(y)
    x_down = Collective("broadcast", E.E * x / nb, "tp")
    w_down = Collective("broadcast", E.E * w / nb, "tp2")
    x_up = Collective("reduce", E.E * x / nb, "tp")
    w_up = Collective("reduce", E.E * w / nb, "tp2")

    def product(m: Column, k: Column, n: Column, accumulate: bool = False) -> tuple[Gemm, ...]:
        return (Gemm(m, k, n, c, accumulate, E.low, layout),)

    forward = product(rows, inputs, o, accumulate=True)
    dx = product(rows, o, inputs)
    dw = product(inputs, rows, o)
    return Operation(
        name,
        PassCount(forward, nbytes + cast, (x_down, w_down), nb, written=y_bytes, cast=cast),
        PassCount(dx, nbytes + cast_back, (w_down, x_up), nb, written=y_bytes, cast=cast_back),
        PassCount(dw, E.read_traffic(x) + y_bytes + dw_bytes, (x_down, w_up), nb, written=dw_bytes),
        weights=c * (inputs // m2) * o,
        saved_bytes=E.saved_operand * E.E * T * (inputs // m1),
    )
