"""Linear layers and elementwise operations on shapes that are already local to the rank (arXiv 2410.00273).

E is the size of an element [byte], T tokens, i and o the local input and output widths.
"""

from traincast.columns import Column
from traincast.operations.base import Collective, Gemm, Operation, Pass, Vector

Comms = tuple[Collective, ...]


def linear(name: str, E: Column, T: Column, i: Column, o: Column, forward: Comms = (), backward: Comms = ()) -> Operation:
    """Linear layer y[T, o] = x[T, i] w[i, o] on local shapes."""
    return Operation(
        name,
        Pass((Gemm(T, i, o),), E * (T * i + T * o + i * o), forward),
        Pass((Gemm(T, o, i), Gemm(i, T, o)), E * (2 * i * o + 2 * T * i + 2 * T * o), backward),  # dx = dy w', dw = x' dy
        weight_bytes=E * i * o,
        saved_bytes=E * T * i,
    )


def summa_linear(name: str, E: Column, T: Column, inputs: Column, outputs: Column, m1: Column, m2: Column, nb: Column) -> Operation:
    """Linear layer as a 2-D SUMMA product in nb panels: x[T, inputs/m1], w[inputs/m2, outputs/m1]."""
    o = outputs // m1
    x, w, y = T * inputs, inputs * o, T * o  # elements that pass through the rank
    return Operation(
        name,
        Pass(
            (Gemm(T, inputs, o, accumulate=True),),
            E * (x + w + y * nb),
            (Collective("broadcast", E * x / nb, "tp"), Collective("broadcast", E * w / nb, "tp2")),
            panels=nb,
        ),
        Pass(
            (Gemm(T, o, inputs), Gemm(inputs, T, o)),
            2 * E * (w + y * nb + x),
            (
                Collective("broadcast", E * w / nb, "tp2"),
                Collective("reduce", E * x / nb, "tp"),
                Collective("broadcast", E * x / nb, "tp"),
                Collective("reduce", E * w / nb, "tp2"),
            ),
            panels=nb,
        ),
        weight_bytes=E * (inputs // m2) * o,
        saved_bytes=E * T * (inputs // m1),
    )


def bias(name: str, E: Column, T: Column, o: Column) -> Operation:
    """Bias of width o added to T tokens."""
    once = Pass((Vector(T * o),), E * (T * o + o))
    return Operation(name, once, once, weight_bytes=E * o)


def activation(name: str, E: Column, n: Column) -> Operation:
    """GELU on n elements, 8 FLOP each forward and 13 backward."""
    return Operation(name, Pass((Vector(8 * n),), 2 * E * n), Pass((Vector(13 * n),), 3 * E * n), saved_bytes=E * n)


def dropout(name: str, E: Column, mask: Column, n: Column, recompute: bool = False) -> Operation:
    """Dropout on n elements; the mask, one element of `mask` bytes each, is kept unless it is made again."""
    once = Pass((Vector(n),), n * (2 * E + mask))
    return Operation(name, once, once, saved_bytes=0 * mask if recompute else mask * n, recompute=recompute)


def norm(name: str, E: Column, r: Column, w: Column, forward: Comms = (), backward: Comms = ()) -> Operation:
    """Layer norm of r rows of width w."""
    return Operation(
        name,
        Pass((Vector(9 * r * w),), E * (2 * r * w + 2 * r + 2 * w), forward),
        Pass((Vector(8 * r * w + 4 * r * (w - 1)),), E * (5 * r * w + 2 * w), backward),
        weight_bytes=2 * E * w,
        saved_bytes=E * r * w,
    )
