"""Linear layers and elementwise operations on shapes that are already local to the rank.

Every formula is from arXiv 2410.00273, operations of a layer. E is the size of an element [byte], T tokens, i and o the local
input and output widths. All of them are numbers or columns over plans.
"""

from dataclasses import dataclass

from traincast.columns import Column
from traincast.operations.base import Collective, Gemm, Operation, Pass, Vector

Comms = tuple[Collective, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of what a linear layer moves.

    Parameters
    ----------
    E : Column
        An element of an activation or a weight [byte].
    operand : Column
        An operand of a product, relative to E.
    accumulated : Column
        What is moved for an element of the weight gradient, relative to E.
    casts : Column
        How often an operand is cast to lower precision.
    low : bool
        Whether products run at the rate of the precision recipe.
    kept : Column
        An operand that is kept for backward, relative to E.
    """

    E: Column
    operand: Column = 1
    accumulated: Column = 1
    casts: Column = 0
    low: bool = False
    kept: Column = 1

    def read(self, elements: Column) -> Column:
        """Traffic of operands of a product [byte]."""
        return self.operand * self.E * elements

    def cast(self, elements: Column) -> Column:
        """Traffic of casting operands: each is read at 16 bits, and written by rows and by columns at half of that [byte]."""
        return self.casts * 2 * self.E * elements


def linear(
    name: str,
    E: Sizes,
    T: Column,
    i: Column,
    o: Column,
    forward: Comms = (),
    backward: Comms = (),
    copies: Column = 1,
    kept: Column | None = None,
) -> Operation:
    """Linear layer y[T, o] = x[T, i] w[i, o] on local shapes (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Sizes
        Sizes of elements.
    T, i, o : Column
        Tokens, local input width, local output width.
    forward, backward : tuple of Collective
        Communication of each direction.
    copies : Column
        Weight matrices that share the tokens evenly (experts).
    kept : Column, optional
        Tokens whose input is kept for backward; all of them if left out.

    Returns
    -------
    Operation
        Its input is saved.
    """
    rows = T / copies  # of each matrix
    x, y, w = T * i, T * o, copies * i * o  # elements; each moves once per product
    return Operation(
        name,
        Pass((Gemm(rows, i, o, copies, low=E.low),), E.read(x + w) + E.E * y + E.cast(x), forward),
        Pass((Gemm(rows, o, i, copies, low=E.low),), E.read(y + w) + E.E * x + E.cast(y), backward),  # dx = dy w'
        Pass((Gemm(i, rows, o, copies, low=E.low),), E.read(x + y) + E.accumulated * E.E * w),  # dw = x' dy
        weights=w,
        saved_bytes=E.kept * E.E * (T if kept is None else kept) * i,
    )


def summa_linear(
    name: str, E: Sizes, T: Column, inputs: Column, outputs: Column, m1: Column, m2: Column, nb: Column, copies: Column = 1
) -> Operation:
    """Linear layer as a 2-D SUMMA product in nb panels (arXiv 2410.00273, operations of a layer).

    A rank holds x[T, inputs/m1] and w[inputs/m2, outputs/m1]. The rest comes by broadcast, panel by panel.

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Sizes
        Sizes of elements.
    T : Column
        Tokens on the rank, b (l/m2).
    inputs, outputs : Column
        Full widths.
    m1, m2 : Column
        Degrees tp and tp2.
    nb : Column
        Panels.
    copies : Column
        Weight matrices that share the tokens evenly (experts).

    Returns
    -------
    Operation
        Its collectives are those of one panel.
    """
    o = outputs // m1
    rows = T / copies  # of each matrix
    x, w, y = T * inputs, copies * inputs * o, T * o  # elements that pass through the rank
    moved = E.read(w) + E.E * y * nb + E.read(x)  # every panel adds to the result
    return Operation(
        name,
        Pass(
            (Gemm(rows, inputs, o, copies, accumulate=True, low=E.low),),
            moved + E.cast(x),
            (Collective("broadcast", E.E * x / nb, "tp"), Collective("broadcast", E.E * w / nb, "tp2")),
            panels=nb,
        ),
        Pass(
            (Gemm(rows, o, inputs, copies, low=E.low),),
            moved + E.cast(y),
            (Collective("broadcast", E.E * w / nb, "tp2"), Collective("reduce", E.E * x / nb, "tp")),
            panels=nb,
        ),
        Pass(
            (Gemm(inputs, rows, o, copies, low=E.low),),
            E.read(x) + E.E * y * nb + E.accumulated * E.E * w,
            (Collective("broadcast", E.E * x / nb, "tp"), Collective("reduce", E.E * w / nb, "tp2")),
            panels=nb,
        ),
        weights=copies * (inputs // m2) * o,
        saved_bytes=E.kept * E.E * T * (inputs // m1),
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
    return Operation(name, once, once, weights=o)


def activation(name: str, E: Column, n: Column, inputs: Column = 1) -> Operation:
    """Activation of n elements (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Column
        Size of an element [byte].
    n : Column
        Elements of the result.
    inputs : Column
        Inputs of an element: 2 where one gates the other.

    Returns
    -------
    Operation
        Its input is saved.
    """
    return Operation(
        name,
        Pass((Vector(8 * n),), (inputs + 1) * E * n),  # 8 FLOP per element (arXiv 2410.00273); inputs read, result written
        Pass((Vector(13 * n),), (2 * inputs + 1) * E * n),  # 13 FLOP (same); inputs and gradient read, gradients written
        saved_bytes=inputs * E * n,
        module="activation",
        saved_by="mlp",
    )


def moved(name: str, E: Column, forward: Column, backward: Column, module: str = "", weights: Column = 0.0) -> Operation:
    """Elementwise work that memory traffic alone decides: residual additions, rotary positions, permutations.

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Column
        Size of an element [byte].
    forward, backward : Column
        Elements moved in each direction.
    module : str
        What it belongs to where modules are recomputed.
    weights : Column
        Parameters on the rank.

    Returns
    -------
    Operation
        Nothing is saved.
    """
    return Operation(
        name, Pass((Vector(forward),), E * forward), Pass((Vector(backward),), E * backward), weights=weights, module=module
    )


def held(name: str, E: Column, weights: Column) -> Operation:
    """Weights that are held and cost no work worth counting.

    Parameters
    ----------
    name : str
        Name of the operation.
    E : Column
        Size of an element [byte].
    weights : Column
        Parameters on the rank.

    Returns
    -------
    Operation
        One without work.
    """
    idle = Pass((), 0 * E * weights)
    return Operation(name, idle, idle, weights=weights)


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


def norm(name: str, E: Column, r: Column, w: Column, forward: Comms = (), backward: Comms = (), vectors: int = 2) -> Operation:
    """Norm of r rows of width w (arXiv 2410.00273, operations of a layer).

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
    vectors : int
        Weight vectors of width w: scale and shift of a layer norm; 1 for an RMS norm.

    Returns
    -------
    Operation
        Its input is saved.
    """
    return Operation(
        name,
        Pass((Vector(9 * r * w),), E * (2 * r * w + 2 * r + vectors * w), forward),  # 9 FLOP per element (arXiv 2410.00273)
        Pass(
            (Vector(8 * r * w + 4 * r * (w - 1)),),  # 8 FLOP per element, 4 sums of w elements per row (arXiv 2410.00273)
            E * (5 * r * w + vectors * w),
            backward,
        ),
        weights=vectors * w,
        saved_bytes=E * r * w,
        module="norms",
    )
