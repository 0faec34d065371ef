"""Elementwise operations, norms and dropout on shapes that are already local to the rank (arXiv 2410.00273)."""

from dataclasses import replace

from traincast.core.quantities import Column
from traincast.operations.operation import Comms, Operation, PassCount, Vector


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
    once = PassCount((Vector(T * o),), E * (T * o + o))  # 1 FLOP per element
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
        PassCount((Vector(8 * n),), (inputs + 1) * E * n),  # 8 FLOP per element (arXiv 2410.00273); inputs read, result written
        PassCount((Vector(13 * n),), (2 * inputs + 1) * E * n),  # 13 FLOP (same); inputs and gradient read, gradients written
        saved_bytes=inputs * E * n,
        module="activation",
        recomputed_with="mlp",
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
        name,
        PassCount((Vector(forward),), E * forward),
        PassCount((Vector(backward),), E * backward),
        weights=weights,
        module=module,
    )


def with_traffic(op: Operation, passes: Column) -> Operation:
    """The operation with its memory traffic so many times over, as kernels move it that are not fused; communication stays."""
    if isinstance(passes, float | int) and passes == 1:
        return op
    forward = replace(op.forward, nbytes=passes * op.forward.nbytes)
    same = op.backward is op.forward
    return replace(op, forward=forward, backward=forward if same else replace(op.backward, nbytes=passes * op.backward.nbytes))


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
    idle = PassCount((), 0 * E * weights)
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
    once = PassCount((Vector(n),), n * (2 * E + mask))  # 1 FLOP per element
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
        PassCount((Vector(9 * r * w),), E * (2 * r * w + 2 * r + vectors * w), forward),  # 9 FLOP per element (arXiv 2410.00273)
        PassCount(
            (Vector(8 * r * w + 4 * r * (w - 1)),),  # 8 FLOP per element, 4 sums of w elements per row (arXiv 2410.00273)
            E * (5 * r * w + vectors * w),
            backward,
        ),
        weights=vectors * w,
        saved_bytes=E * r * w,
        module="norms",
    )
