"""Linear layers and elementwise operations on shapes that are already local to the rank.

Every formula is from arXiv 2410.00273, operations of a layer. E is the size of an element [byte], T tokens, i and o the local
input and output widths. All of them are numbers or columns over plans.
"""

from traincast.columns import Column
from traincast.operations.base import Collective, Gemm, Operation, Pass, Vector

Comms = tuple[Collective, ...]


def linear(name: str, E: Column, T: Column, i: Column, o: Column, forward: Comms = (), backward: Comms = ()) -> Operation:
    """Linear layer y[T, o] = x[T, i] w[i, o] on local shapes (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Column
        Size of an element [byte].
    T, i, o : Column
        Tokens, local input width, local output width.
    forward, backward : tuple of Collective
        Communication of each direction.

    Returns
    -------
    Operation
        Its input is saved.
    """
    return Operation(
        name,
        Pass((Gemm(T, i, o),), E * (T * i + T * o + i * o), forward),  # x, y and w each move once
        Pass((Gemm(T, o, i), Gemm(i, T, o)), E * (2 * i * o + 2 * T * i + 2 * T * o), backward),  # dx = dy w', dw = x' dy
        weight_bytes=E * i * o,
        saved_bytes=E * T * i,
    )


def summa_linear(name: str, E: Column, T: Column, inputs: Column, outputs: Column, m1: Column, m2: Column, nb: Column) -> Operation:
    """Linear layer as a 2-D SUMMA product in nb panels (arXiv 2410.00273, operations of a layer).

    A rank holds x[T, inputs/m1] and w[inputs/m2, outputs/m1]. The rest comes by broadcast, panel by panel.

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Column
        Size of an element [byte].
    T : Column
        Tokens on the rank, b (l/m2).
    inputs, outputs : Column
        Full widths.
    m1, m2 : Column
        Degrees tp and tp2.
    nb : Column
        Panels.

    Returns
    -------
    Operation
        Its collectives are those of one panel.
    """
    o = outputs // m1
    x, w, y = T * inputs, inputs * o, T * o  # elements that pass through the rank
    return Operation(
        name,
        Pass(
            (Gemm(T, inputs, o, accumulate=True),),
            E * (x + w + y * nb),  # every panel adds to the result
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
    """Bias of width o added to T tokens (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Column
        Size of an element [byte].
    T, o : Column
        Tokens and local width.

    Returns
    -------
    Operation
        Both directions are the same; nothing is saved.
    """
    once = Pass((Vector(T * o),), E * (T * o + o))  # 1 FLOP per element
    return Operation(name, once, once, weight_bytes=E * o)


def activation(name: str, E: Column, n: Column) -> Operation:
    """GELU on n elements (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Column
        Size of an element [byte].
    n : Column
        Elements.

    Returns
    -------
    Operation
        Its input is saved.
    """
    return Operation(
        name,
        Pass((Vector(8 * n),), 2 * E * n),  # 8 FLOP per element (arXiv 2410.00273); input read, result written
        Pass((Vector(13 * n),), 3 * E * n),  # 13 FLOP per element (arXiv 2410.00273); input and gradient read, gradient written
        saved_bytes=E * n,
    )


def dropout(name: str, E: Column, mask: Column, n: Column, recompute: bool = False) -> Operation:
    """Dropout on n elements (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    name : str
        Name of the operation.
    E, mask : Column
        Size of an element and of its place in the mask [byte].
    n : Column
        Elements.
    recompute : bool
        Whether backward makes the mask again.

    Returns
    -------
    Operation
        The mask is saved unless it is made again.
    """
    once = Pass((Vector(n),), n * (2 * E + mask))  # 1 FLOP per element
    return Operation(name, once, once, saved_bytes=0 * mask if recompute else mask * n, recompute=recompute)


def norm(name: str, E: Column, r: Column, w: Column, forward: Comms = (), backward: Comms = ()) -> Operation:
    """Layer norm of r rows of width w (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Column
        Size of an element [byte].
    r, w : Column
        Rows and their width on the rank.
    forward, backward : tuple of Collective
        Communication of each direction.

    Returns
    -------
    Operation
        Its input is saved; its weights are a scale and a shift of width w.
    """
    return Operation(
        name,
        Pass((Vector(9 * r * w),), E * (2 * r * w + 2 * r + 2 * w), forward),  # 9 FLOP per element (arXiv 2410.00273)
        Pass(
            (Vector(8 * r * w + 4 * r * (w - 1)),),  # 8 FLOP per element, 4 sums of w elements per row (arXiv 2410.00273)
            E * (5 * r * w + 2 * w),
            backward,
        ),
        weight_bytes=2 * E * w,  # scale and shift
        saved_bytes=E * r * w,
    )
