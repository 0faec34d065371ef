"""Elementwise operations, norms and dropout on local shapes (arXiv 2410.00273, operations of a layer).

E is the size of an element [byte]. Both passes of an operation are the same where only one is given.
"""

from traincast.core import Column, replace
from traincast.operations.operation import Comms, Operation, PassCount, Vector


def bias(name: str, E: Column, T: Column, o: Column) -> Operation:
    """Return the addition of a bias of local width o to T tokens: 1 FLOP per element; nothing is saved."""
    addition = PassCount((Vector(T * o),), E * (T * o + o))
    return Operation(name, addition, addition, weights=o, only_trains=True, fused_with_neighbour=True)


def activation(name: str, E: Column, n: Column, inputs: Column = 1) -> Operation:
    """Return the activation of n elements, 8 FLOP each forward, 13 backward; 2 inputs if one is a gate.

    Forward reads the inputs and writes the result; backward reads inputs and gradient and writes gradients.
    The inputs are saved.
    """
    return Operation(
        name,
        PassCount((Vector(8 * n),), (inputs + 1) * E * n),
        PassCount((Vector(13 * n),), (2 * inputs + 1) * E * n),
        saved_bytes=inputs * E * n,
        module="activation",
        recomputed_with="mlp",
        role="activation",
    )


def elementwise_operation(
    name: str, E: Column, forward: Column, backward: Column, module: str = "", weights: Column = 0.0
) -> Operation:
    """Return work bound by memory traffic, such as a residual addition; nothing is saved."""
    there = PassCount((Vector(forward),), E * forward)
    back = PassCount((Vector(backward),), E * backward)
    return Operation(name, there, back, weights=weights, module=module)


def with_traffic(op: Operation, passes: Column) -> Operation:
    """Return the operation with its memory traffic multiplied, as unfused kernels move it."""
    if isinstance(passes, float | int) and passes == 1:
        return op
    forward = replace(op.forward, nbytes=passes * op.forward.nbytes)
    is_shared = op.backward is op.forward
    backward = forward if is_shared else replace(op.backward, nbytes=passes * op.backward.nbytes)
    return replace(op, forward=forward, backward=backward)


def weights_without_work(name: str, E: Column, weights: Column) -> Operation:
    """Return an operation for weights on the rank whose work is negligible."""
    no_work = PassCount((), 0 * E * weights)
    return Operation(name, no_work, no_work, weights=weights)


def dropout(name: str, E: Column, mask: Column, n: Column, recompute: bool = False) -> Operation:
    """Return dropout on n elements, 1 FLOP each; its mask of `mask` bytes each is saved or recomputed."""
    masking = PassCount((Vector(n),), n * (2 * E + mask))
    saved = 0 * mask if recompute else mask * n
    return Operation(
        name,
        masking,
        masking,
        saved_bytes=saved,
        recompute=recompute,
        fused_with_neighbour=True,
        is_mask=True,
    )


def norm(
    name: str,
    E: Column,
    r: Column,
    w: Column,
    forward: Comms = (),
    backward: Comms = (),
    vectors: int = 2,
    saved: Column | None = None,
) -> Operation:
    """Return the norm of r local rows of width w, with `vectors` weights per column.

    9 FLOP per element forward; 8 and 4 sums of w elements per row backward. Its input is saved, or as many
    bytes as `saved` says.
    """
    return Operation(
        name,
        PassCount((Vector(9 * r * w),), E * (2 * r * w + 2 * r + vectors * w), forward),
        PassCount((Vector(8 * r * w + 4 * r * (w - 1)),), E * (5 * r * w + vectors * w), backward),
        weights=vectors * w,
        saved_bytes=E * r * w if saved is None else saved,
        module="norms",
    )
