"""What a step pays beside its layers: data-parallel traffic, the optimizer, copies to and from the host."""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.costs import Costs, sum_of
from traincast.hardware import System
from traincast.operations.base import Axis, CollectiveKind
from traincast.plan import Plans, words
from traincast.stages import Counts, Stages
from traincast.times.collectives import Line, line
from traincast.times.overlap import excess, largest, layer_by_layer
from traincast.times.placement import group


def data_parallel(costs: Costs, stages: Stages, plan: Plans, nm: Column, system: System, assumed: Assumptions) -> Column:
    """Weights gathered and gradients reduced over the ranks that hold the same, as far as they do not hide behind the layers.

    ZeRO-1 reduces gradients and gathers weights once in a step; ZeRO-2 reduces after every micro-batch; ZeRO-3 also gathers, for
    forward and again for backward (arXiv 1910.02054, section 7). With replicas (HSDP) each rank's share is all-reduced over them.

    Parameters
    ----------
    costs : mapping of str to PartCosts
        What each part of the model costs.
    stages : Stages
        Devices of the pipeline: parts whose weights they have, and parts that a micro-batch passes.
    plan : Plans
        Plans.
    nm : Column
        Micro-batches of a replica.
    system : System
        The machine.
    assumed : Assumptions
        What is assumed.

    Returns
    -------
    Column
        Time in a step, of the device where it is longest [s].
    """
    used = {part: costs[part] for part in dict.fromkeys(part for device in stages.held for part in device)}
    gather, scatter = _exchanges(used, plan, system, assumed)
    psi = assumed.dp_contention

    def exposed(traffic: dict[str, Column], direction: str, device: Counts) -> Column:
        busy = [getattr(used[part], direction) for part in device]
        return layer_by_layer([traffic[part] for part in device], busy, list(device.values()), psi)

    both = {part: gather[part] + scatter[part] for part in used}
    each = []
    for held, work in zip(stages.held, stages.work, strict=True):  # once in a step, and for every micro-batch
        if plan.zero == 3:
            each.append(nm * (exposed(gather, "forward", work) + exposed(both, "backward", work)))
            continue
        scattered = nm * exposed(scatter, "backward", work) if plan.zero == 2 else exposed(scatter, "backward", held)
        each.append(exposed(gather, "forward", held) + scattered)
    return largest(each)[0]


def _exchanges(used: Costs, plan: Plans, system: System, assumed: Assumptions) -> tuple[dict[str, Column], dict[str, Column]]:
    """Time to gather the weights, and to reduce the gradients, of one of every part [s]."""
    byte = assumed.element_bytes / 2
    element, gradient = 2 * plan.recipe.width * byte, plan.gradient_bytes * byte
    whole = plan.zero == 0
    kind: CollectiveKind = "all-reduce" if whole else "reduce-scatter"

    def over(axis: Axis, kind: CollectiveKind = kind) -> Line:
        return line(kind, group(plan, axis, system.tiers), system, assumed)

    dense = over("weights" if whole else "shards")
    several = bool(np.any(plan.replicas != 1))
    spread = any(np.any(one.expert_weights) for one in used.values())
    experts = over("experts" if whole else "expert shards") if spread else None
    replicas = over("replicas", "all-reduce") if several else None
    expert_replicas = over("expert replicas", "all-reduce") if several and spread else None
    expert_shards = np.maximum(plan.expert_holders / plan.replicas, 1)
    gather: dict[str, Column] = {}
    scatter: dict[str, Column] = {}
    for part, one in used.items():
        gather[part] = 0 * one.forward if whole else dense.seconds(element * one.weights)
        scatter[part] = dense.seconds(gradient * one.weights)
        if replicas is not None:
            scatter[part] = scatter[part] + replicas.seconds(gradient * one.weights * plan.replicas / plan.holders)
        if experts is not None and np.any(one.expert_weights):
            gather[part] = gather[part] + (0 if whole else 1) * experts.seconds(element * one.expert_weights)
            scatter[part] = scatter[part] + experts.seconds(gradient * one.expert_weights)
            if expert_replicas is not None:
                scatter[part] = scatter[part] + expert_replicas.seconds(gradient * one.expert_weights / expert_shards)
    return gather, scatter


def update(costs: Costs, held: Counts, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Time of the optimizer step: its memory traffic, clipping included, and the products of Muon.

    Parameters
    ----------
    costs : mapping of str to PartCosts
        What each part of the model costs.
    held : mapping of str to Column
        Parts whose weights the device has.
    plan : Plans
        Plans.
    system : System
        The machine.
    assumed : Assumptions
        How often every byte is moved; 0 leaves the step out.

    Returns
    -------
    Column
        Time in a step [s].
    """
    if not assumed.optimizer_passes:
        return 0.0
    dense, experts = sum_of(costs, held, "weights"), sum_of(costs, held, "expert_weights")
    n = plan.holders / plan.replicas if plan.zero else 1.0
    n_experts = np.maximum(plan.expert_holders / plan.replicas, 1) if plan.zero else 1.0
    own, byte = dense / n + experts / n_experts, assumed.element_bytes / 2  # parameters this rank updates; 16 bits have two bytes
    states = plan.recipe.master + plan.optimizer.state
    moved = 2 * own * byte * (states + plan.gradient_bytes + plan.recipe.width)  # states read and written; gradients read twice
    if "optimizer" in words(plan.offload):  # gradients go to the host, weights come back
        return own * byte * (plan.gradient_bytes + 2 * plan.recipe.width) / system.accelerator.host_link
    gpu = system.accelerator
    squares = sum_of(costs, held, "squares") / n + sum_of(costs, held, "expert_squares") / n_experts
    arithmetic_seconds = plan.optimizer.flops_factor * squares / (assumed.matrix_efficiency * gpu.matrix_flops)
    return assumed.optimizer_passes * moved / gpu.hbm_bandwidth + arithmetic_seconds


def host(costs: Costs, device: Counts, plan: Plans, nm: Column, system: System, assumed: Assumptions) -> Column:
    """Copies of activations and weights to and from the host's memory, as far as they do not hide behind the layers.

    Parameters
    ----------
    costs : mapping of str to PartCosts
        What each part of the model costs.
    device : mapping of str to Column
        Parts of the device.
    plan : Plans
        Plans.
    nm : Column
        Micro-batches of a replica.
    system : System
        The machine.
    assumed : Assumptions
        Size of an element of 16 bits.

    Returns
    -------
    Column
        Time in a step [s].
    """
    link, offloaded = system.accelerator.host_link, words(plan.offload)
    seconds: Column = 0.0
    for part, n in device.items():
        one = costs[part]
        copied = 0 * one.forward
        if "activations" in offloaded:
            copied = copied + one.saved / link
        if "weights" in offloaded:
            copied = copied + plan.recipe.width * assumed.element_bytes * (one.weights + one.expert_weights) / link
        seconds = seconds + n * (excess(copied - one.forward) + excess(copied - one.backward))
    return nm * seconds
