"""Linear layers on local shapes.

Every formula is from arXiv 2410.00273, operations of a layer. E is the size of an element [byte], T tokens, i and o the local
input and output widths. All of them are numbers or columns over plans.
"""

from dataclasses import dataclass

from traincast.core.quantities import Column
from traincast.operations.operation import Collective, Comms, Gemm, Layout, Operation, PassCount


@dataclass(frozen=True, slots=True)
class Sizes:
    """Element sizes of a linear layer."""

    E: Column  # an element of an activation or a weight [byte]
    operand: Column = 1  # an operand of a product, relative to E
    accumulated: Column = 1  # traffic of accumulating an element of the weight gradient, relative to E
    # Casts to lower precision of an activation or a gradient, and of a weight, for a product.
    casts: Column = 0
    weight_casts: Column = 0
    low: bool = False  # whether products run at the rate of the precision recipe
    kept: Column = 1  # an operand that is saved for backward, relative to E

    def read(self, elements: Column) -> Column:
        """Return the traffic of reading operands of a product [byte]."""
        return self.operand * self.E * elements

    def cast(self, elements: Column) -> Column:
        """Return the traffic of casting operands, read at 16 bits and written by rows and by columns at half of that [byte]."""
        return self.casts * 2 * self.E * elements

    def cast_weights(self, elements: Column) -> Column:
        """Return the traffic of casting weights, in every micro-batch [byte]."""
        return self.weight_casts * 2 * self.E * elements


def linear(
    name: str,
    E: Sizes,
    T: Column,
    i: Column,
    o: Column,
    forward: Comms = (),
    backward: Comms = (),
    copies: Column | None = None,
    kept: Column | None = None,
    cast: tuple[Column, Column] = (1, 1),
) -> Operation:
    """Return the linear layer y[T, o] = x[T, i] w[i, o] on local shapes (arXiv 2410.00273, operations of a layer)."""
    layout: Layout = "one" if copies is None else "grouped"
    b: Column = 1 if copies is None else copies
    rows = T / b  # of each matrix
    x, y, w = T * i, T * o, b * i * o  # elements; each moves once per product
    y_bytes, dx_bytes, dw_bytes = E.E * y, E.E * x, E.accumulated * E.E * w  # results
    casts, casts_back = E.cast(cast[0] * x) + E.cast_weights(w), E.cast(cast[1] * y)

    def product(m: Column, k: Column, n: Column) -> tuple[Gemm, ...]:
        return (Gemm(m, k, n, b, low=E.low, layout=layout),)

    return Operation(
        name,
        PassCount(product(rows, i, o), E.read(x + w) + y_bytes + casts, forward, written=y_bytes, cast=casts),
        PassCount(
            product(rows, o, i),
            E.read(y + w) + dx_bytes + casts_back,
            backward,
            written=dx_bytes,
            cast=casts_back,
        ),  # dx = dy w'
        PassCount(product(i, rows, o), E.read(x + y) + dw_bytes, written=dw_bytes),  # dw = x' dy
        weights=w,
        saved_bytes=E.kept * E.E * (T if kept is None else kept) * i,
    )


def summa_linear(
    name: str,
    E: Sizes,
    T: Column,
    inputs: Column,
    outputs: Column,
    m1: Column,
    m2: Column,
    nb: Column,
    copies: Column | None = None,
) -> Operation:
    """Return a linear layer as a 2-D SUMMA product in nb panels (arXiv 2410.00273, operations of a layer).

    A rank holds x[T, inputs/m1] and w[inputs/m2, outputs/m1]. The rest is broadcast, panel by panel.
    """
    o = outputs // m1
    layout: Layout = "one" if copies is None else "grouped"
    c: Column = 1 if copies is None else copies
    rows = T / c  # of each matrix
    x, w, y = T * inputs, c * inputs * o, T * o  # elements that pass through the rank
    y_bytes, dw_bytes = E.E * y * nb, E.accumulated * E.E * w  # every panel adds to the result
    nbytes, cast, cast_back = E.read(w) + y_bytes + E.read(x), E.cast(x) + E.cast_weights(w), E.cast(y)
    x_down, w_down = Collective("broadcast", E.E * x / nb, "tp"), Collective("broadcast", E.E * w / nb, "tp2")
    x_up, w_up = Collective("reduce", E.E * x / nb, "tp"), Collective("reduce", E.E * w / nb, "tp2")

    def product(m: Column, k: Column, n: Column, accumulate: bool = False) -> tuple[Gemm, ...]:
        return (Gemm(m, k, n, c, accumulate, E.low, layout),)

    return Operation(
        name,
        PassCount(
            product(rows, inputs, o, True), nbytes + cast, (x_down, w_down), nb, written=y_bytes, cast=cast
        ),
        PassCount(
            product(rows, o, inputs), nbytes + cast_back, (w_down, x_up), nb, written=y_bytes, cast=cast_back
        ),
        PassCount(
            product(inputs, rows, o), E.read(x) + y_bytes + dw_bytes, (x_down, w_up), nb, written=dw_bytes
        ),
        weights=c * (inputs // m2) * o,
        saved_bytes=E.kept * E.E * T * (inputs // m1),
    )
