"""Copies of activations and weights to and from the host's memory."""

from traincast.core.assumptions import Assumptions
from traincast.core.knobs import words
from traincast.core.plan import Plans
from traincast.core.quantities import Column
from traincast.core.system import System
from traincast.step.layer_cost import Costs
from traincast.step.pipeline_stages import Counts
from traincast.times.overlap import exposed_time


def offload_seconds(
    costs: Costs, device: Counts, plan: Plans, nm: Column, system: System, assumed: Assumptions
) -> Column:
    """Return the exposed time of copies of activations and weights to and from the host's memory [s]."""
    link, offloaded = system.accelerator.host_link, words(plan.offload)
    seconds: Column = 0.0
    for part, n in device.items():
        cost = costs[part]
        copied = 0 * cost.forward
        if "activations" in offloaded:
            copied = copied + cost.saved / link
        if "weights" in offloaded:
            copied = (
                copied
                + plan.recipe.width
                * assumed.memory.element_bytes
                * (cost.weights + cost.expert_weights)
                / link
            )
        seconds = seconds + n * (exposed_time(copied - cost.forward) + exposed_time(copied - cost.backward))
    return nm * seconds
