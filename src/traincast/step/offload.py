"""Copies of activations and weights to and from the host's memory."""

from dataclasses import replace

from traincast.core.assumptions import Assumptions
from traincast.core.columns import minimum
from traincast.core.knobs import offloaded_activations, words
from traincast.core.plan import Plans
from traincast.core.quantities import Column
from traincast.core.system import System
from traincast.step.layer_cost import Costs, PartCosts
from traincast.step.pipeline_stages import Counts
from traincast.times import exposed_time


def offload_seconds(
    costs: Costs, device: Counts, plan: Plans, system: System, assumed: Assumptions
) -> Column:
    """Return the time of copies to and from the host that the passes of a micro-batch do not hide [s]."""
    seconds: Column = 0.0
    for part, n in device.items():
        cost = costs[part]
        copied = _copy_time(cost, plan, system, assumed)
        seconds = seconds + n * (exposed_time(copied - cost.forward) + exposed_time(copied - cost.backward))
    return seconds


def free_of_copies(costs: Costs, plan: Plans, system: System, assumed: Assumptions) -> Costs:
    """Return the costs with passes shortened by the copies that they hide; the rest hides other traffic.

    Where the accelerator's PCIe link leads to its host and to its NIC, copies and traffic take turns. Where
    they have links of their own, this is an upper bound.
    """
    if "weights" not in words(plan.offload) and not offloaded_activations(plan.offload):
        return costs
    free = {}
    for part, cost in costs.items():
        copied = _copy_time(cost, plan, system, assumed)
        free[part] = replace(
            cost,
            forward=cost.forward - minimum(copied, cost.forward),
            backward=cost.backward - minimum(copied, cost.backward),
        )
    return free


def _copy_time(cost: PartCosts, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Return the time of the copies of one pass of one micro-batch through a part, one direction [s].

    Where only every n-th layer is offloaded, a copy has n layers to hide behind (Transformer Engine 2.9,
    pytorch/cpu_offload.py, layer_window_map): a layer's share of it counts.
    """
    link = system.accelerator.host_link
    offloaded = words(plan.offload)
    weights = plan.recipe.width * assumed.memory.element_bytes * (cost.weights + cost.expert_weights)
    weights = weights + cost.frozen + cost.expert_frozen
    copied = 0 * cost.forward
    if offloaded_activations(plan.offload):
        copied = copied + cost.saved / plan.offload_every / link
    if "weights" in offloaded:
        copied = copied + weights / link
    return copied
