"""Elementwise operations, norms and dropout on local shapes (arXiv 2410.00273)."""

from dataclasses import replace

from traincast.core.quantities import Column
from traincast.operations.operation import Comms, Operation, PassCount, Vector


def bias(name: str, E: Column, T: Column, o: Column) -> Operation:
    """Return the addition of a bias of width o to T tokens (arXiv 2410.00273, operations of a layer)."""
    addition = PassCount((Vector(T * o),), E * (T * o + o))  # 1 FLOP per element
    return Operation(name, addition, addition, weights=o, fused_with_neighbour=True)


def activation(name: str, E: Column, n: Column, inputs: Column = 1) -> Operation:
    """Return the activation of n elements (arXiv 2410.00273, operations of a layer)."""
    return Operation(
        name,
        PassCount(
            (Vector(8 * n),), (inputs + 1) * E * n
        ),  # 8 FLOP per element (arXiv 2410.00273); inputs read, result written
        PassCount(
            (Vector(13 * n),), (2 * inputs + 1) * E * n
        ),  # 13 FLOP (same); inputs and gradient read, gradients written
        saved_bytes=inputs * E * n,
        module="activation",
        recomputed_with="mlp",
        role="activation",
    )


def moved(
    name: str, E: Column, forward: Column, backward: Column, module: str = "", weights: Column = 0.0
) -> Operation:
    """Return elementwise work bound by memory traffic: residual additions, rotary positions, permutations."""
    return Operation(
        name,
        PassCount((Vector(forward),), E * forward),
        PassCount((Vector(backward),), E * backward),
        weights=weights,
        module=module,
    )


def with_traffic(op: Operation, passes: Column) -> Operation:
    """Return the operation with its memory traffic multiplied, as kernels that are not fused move it; communication stays."""
    if isinstance(passes, float | int) and passes == 1:
        return op
    forward = replace(op.forward, nbytes=passes * op.forward.nbytes)
    is_shared = op.backward is op.forward
    return replace(
        op,
        forward=forward,
        backward=forward if is_shared else replace(op.backward, nbytes=passes * op.backward.nbytes),
    )


def weights_without_work(name: str, E: Column, weights: Column) -> Operation:
    """Return an operation for weights on the rank whose work is negligible."""
    no_work = PassCount((), 0 * E * weights)
    return Operation(name, no_work, no_work, weights=weights)


def dropout(name: str, E: Column, mask: Column, n: Column, recompute: bool = False) -> Operation:
    """Return dropout on n elements (arXiv 2410.00273, operations of a layer)."""
    masking = PassCount((Vector(n),), n * (2 * E + mask))  # 1 FLOP per element
    saved = 0 * mask if recompute else mask * n
    return Operation(
        name, masking, masking, saved_bytes=saved, recompute=recompute, fused_with_neighbour=True
    )


def norm(
    name: str, E: Column, r: Column, w: Column, forward: Comms = (), backward: Comms = (), vectors: int = 2
) -> Operation:
    """Return the norm of r rows of width w (arXiv 2410.00273, operations of a layer)."""
    return Operation(
        name,
        PassCount(
            (Vector(9 * r * w),), E * (2 * r * w + 2 * r + vectors * w), forward
        ),  # 9 FLOP per element (arXiv 2410.00273)
        PassCount(
            (
                Vector(8 * r * w + 4 * r * (w - 1)),
            ),  # 8 FLOP per element, 4 sums of w elements per row (arXiv 2410.00273)
            E * (5 * r * w + vectors * w),
            backward,
        ),
        weights=vectors * w,
        saved_bytes=E * r * w,
        module="norms",
    )
