"""Memory of one rank: weights, gradients, distributed optimizer, activations in flight (arXiv 2410.00273, one training step)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.operations.base import Operation, total
from traincast.plan import Plans
from traincast.times.schedules import in_flight


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one layer holds on a rank.

    Parameters
    ----------
    weights : Column
        Weights; a column over plans [byte].
    saved : Column
        Activations that one micro-batch keeps for backward; a column over plans [byte].
    """

    weights: Column
    saved: Column

    def take(self, rows: Any) -> "Footprint":
        """Rows of the columns, by a numpy index."""
        return Footprint(np.asarray(self.weights)[rows], np.asarray(self.saved)[rows])

    @classmethod
    def of(cls, operations: tuple[Operation, ...]) -> "Footprint":
        """Sum over a layer's operations."""
        return cls(total(op.weight_bytes for op in operations), total(op.saved_bytes for op in operations))


def memory(held: Footprint, plan: Plans, layers: int, gbs: int, assumed: Assumptions) -> dict[str, Column]:
    """Memory of the fullest rank by component (arXiv 2410.00273, one training step: memory).

    Its stage is the first: it holds the most micro-batches in flight.

    Parameters
    ----------
    held : Footprint
        What one layer holds.
    plan : Plans
        Plans in the same rows as `held`.
    layers : int
        Layers of the model, L.
    gbs : int
        Global batch [sequences].
    assumed : Assumptions
        Bytes of gradients and optimizer states per byte of weights.

    Returns
    -------
    dict of str to Column
        Weights, gradients, optimizer, activations; columns over plans [byte].
    """
    per_stage = plan.layers_per_stage(layers)
    weights = held.weights * per_stage
    return {
        "weights": weights,
        "gradients": assumed.gradients_per_weight * weights,
        "optimizer": assumed.optimizer_per_weight * weights / (plan.dp * plan.cp),  # sharded over all that hold the same weights
        "activations": held.saved * per_stage * in_flight(plan.pp, plan.microbatches(gbs), plan.vp),
    }
