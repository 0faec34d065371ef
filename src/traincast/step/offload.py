"""Copies of activations and weights to and from the host's memory."""

from typing import NamedTuple

from traincast.core import Assumptions, Column, Plans, System, offloaded_activations, split_choice
from traincast.step.layer_cost import Costs, PartCosts
from traincast.step.model_parts import Counts
from traincast.times import exposed_time


class ExposedCopies(NamedTuple):
    """Copies to and from the host that the passes of a micro-batch do not hide."""

    forward: Column  # [s]
    backward: Column  # [s]

    @property
    def total(self) -> Column:
        """Those of both passes [s]."""
        return self.forward + self.backward


def copies_in_passes(plan: Plans) -> bool:
    """Return whether passes copy anything to or from the host."""
    return "weights" in split_choice(plan.offload) or bool(offloaded_activations(plan.offload))


def exposed_copies(
    costs: Costs, device: Counts, plan: Plans, system: System, assumed: Assumptions
) -> ExposedCopies:
    """Return the copies that the passes of a micro-batch through the parts of a device do not hide."""
    forward: Column = 0.0
    backward: Column = 0.0
    if not copies_in_passes(plan):
        return ExposedCopies(forward, backward)
    for part, n in device.items():
        cost = costs[part]
        copied = copy_time(cost, plan, system, assumed)
        forward = forward + n * exposed_time(copied - cost.forward)
        backward = backward + n * exposed_time(copied - cost.backward)
    return ExposedCopies(forward, backward)


def copy_time(cost: PartCosts, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Return the time of the copies of one pass of one micro-batch through a part, one direction [s].

    Where only every n-th layer is offloaded, a copy has n layers to hide behind (Transformer Engine 2.9,
    pytorch/cpu_offload.py, layer_window_map): a layer's share of it counts.
    """
    link = system.accelerator.host_link
    offloaded = split_choice(plan.offload)
    weights = plan.recipe.width * assumed.memory.element_bytes * (cost.weights + cost.expert_weights)
    weights = weights + cost.frozen + cost.expert_frozen
    copied = 0 * cost.forward
    if offloaded_activations(plan.offload):
        copied = copied + cost.saved / plan.offload_every / link
    if "weights" in offloaded:
        copied = copied + weights / link
    return copied
