"""Cost of one part of the model (a layer, the embedding, the head) on a rank for one micro-batch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from traincast.core import Column, Plans, TakesRows, maximum, minimum, nonzero
from traincast.operations import Operation, offloaded_bytes, total
from traincast.step.model_parts import Counts
from traincast.times import Timed


@dataclass(slots=True)
class PartCosts(TakesRows):
    """Cost of one part of the model (a layer, the embedding, the head) on a rank for one micro-batch.

    The columns depend on the shard only, not on what wraps it.
    """

    forward: Column  # time of the pass, t_f and t_b; recomputation counts in backward [s]
    backward: Column
    weight: Column  # the part of t_b that makes gradients of weights, for schedules that put it off [s]
    weights: Column  # parameters on the rank, those of experts apart
    expert_weights: Column
    # activation passed to the next pipeline stage: what the MLP's norm saves (arXiv 2410.00273) [byte]
    message: Column
    saved: Column  # activations saved for backward, where they are offloaded [byte]
    # arithmetic of one iteration of an optimizer that multiplies matrices by their squares, if it is one
    # [FLOP]
    squares: Column = 0.0
    expert_squares: Column = 0.0
    dispatch: Column = 0.0  # time of the host to issue both passes, recomputation included [s]
    dispatch_forward: Column = 0.0  # the part of it that issues the forward pass [s]
    frozen: Column = 0.0  # frozen weights on the rank, those of experts apart [byte]
    expert_frozen: Column = 0.0
    # exchange with experts overlapped by another micro-batch; exposed in a first forward and a last backward
    # pass [s]
    hidden: Column = 0.0
    idle: Column = 0.0  # time in which the accelerator waits until the host has issued more [s]
    dispatch_weight: Column = 0.0  # the part of `dispatch` that issues the gradients of weights [s]

    def broadcast(self, shape: tuple[int, ...]) -> "PartCosts":
        """Return all columns in one `shape`, without a copy; zeros stay plain numbers."""
        return PartCosts(
            *(np.broadcast_to(column, shape) if nonzero(column) else 0.0 for column in self.columns)
        )


Costs = Mapping[str, PartCosts]


def sum_of(costs: Costs, counts: Counts, figure: str) -> Column:
    """Return the sum of a figure over all parts of a device."""
    return total(n * getattr(costs[part], figure) for part, n in counts.items())


def cost_part(timed: Timed, plan: Plans) -> PartCosts:
    """Return the sums over the operations of a part of the model, as the plan recomputes them."""
    recomputed = total(t.recompute.total for t in timed if t.recompute is not None) / plan.recompute_every
    return PartCosts(
        forward=total(t.forward.total for t in timed),
        backward=total(t.backward.total for t in timed) + recomputed,
        weight=total(t.weight for t in timed),
        weights=total(t.operation.weights for t in timed if not t.operation.experts),
        expert_weights=total(t.operation.weights for t in timed if t.operation.experts),
        message=total(t.operation.layer_input_bytes for t in timed if t.operation.saves_layer_input)
        + total(t.operation.passed_bytes for t in timed),
        saved=offloaded_bytes([t.operation for t in timed], plan),
        frozen=total(t.operation.frozen_bytes for t in timed if not t.operation.experts),
        expert_frozen=total(t.operation.frozen_bytes for t in timed if t.operation.experts),
        squares=_squares([t.operation for t in timed if not t.operation.experts], plan),
        expert_squares=_squares([t.operation for t in timed if t.operation.experts], plan),
        dispatch=total(t.forward.dispatch + t.backward.dispatch for t in timed)
        + total(t.recompute.dispatch for t in timed if t.recompute is not None) / plan.recompute_every,
        dispatch_forward=total(t.forward.dispatch for t in timed),
        hidden=total(t.forward.hidden + t.backward.hidden for t in timed) if plan.ep_overlap else 0.0,
        idle=total(t.forward.idle for t in timed)
        + total(t.recompute.idle for t in timed if t.recompute is not None) / plan.recompute_every,
        dispatch_weight=total(t.weight_dispatch for t in timed),
    )


def _squares(operations: list[Operation], plan: Plans) -> Column:
    """Return the FLOPs of one iteration of Newton-Schulz, aX + b(XX')X + c(XX')²X, on linear layers.

    An m x n matrix with m <= n takes 2 m²n for the square, 2 m³ for its square, 2 m²n for the product (Jordan
    et al. 2024) [FLOP].
    """
    if not plan.optimizer.iterations:
        return 0.0
    matrices = [matrix for op in operations if op.weight is not None for matrix in op.weight.gemms]
    shapes = [(minimum(matrix.m, matrix.n), maximum(matrix.m, matrix.n), matrix.batch) for matrix in matrices]
    return total(batch * (4 * m**2 * n + 2 * m**3) for m, n, batch in shapes)
