"""The optimizer step."""

from traincast.core import Assumptions, Column, Plans, System, nonzero, split_choice
from traincast.step.layer_cost import Costs, sum_of
from traincast.step.model_parts import VOCABULARY, Counts


def optimizer_seconds(
    costs: Costs, stored: Counts, plan: Plans, system: System, assumed: Assumptions
) -> Column:
    """Return the time of the optimizer step: memory traffic with clipping, and Muon's products [s]."""
    if not nonzero(assumed.traffic.optimizer_passes):
        return 0.0
    # 16 bits have two bytes
    gpu = system.accelerator
    element_scale = assumed.memory.element_bytes / 2
    n, n_experts = (plan.shards, plan.expert_shards) if plan.zero else (1.0, 1.0)
    # parameters this rank updates
    updated = sum_of(costs, stored, "weights") / n + sum_of(costs, stored, "expert_weights") / n_experts
    states = plan.master_bytes(assumed) + plan.optimizer.state
    # states read and written; gradients read twice
    moved = 2 * updated * element_scale * (states + plan.gradient_bytes + plan.recipe.width)
    layers = {part: count for part, count in stored.items() if part not in VOCABULARY}
    if plan.optimizer.vocabulary_state:
        ends = {part: count for part, count in stored.items() if part in VOCABULARY}
        vocabulary = sum_of(costs, ends, "weights") / n
        moved = moved + 2 * vocabulary * element_scale * plan.optimizer.vocabulary_state
    squares = sum_of(costs, layers, "squares") / n + sum_of(costs, layers, "expert_squares") / n_experts
    products = plan.optimizer.iterations * squares / (assumed.kernels.matrix_efficiency * gpu.matrix_flops)
    if "optimizer" in split_choice(plan.offload):
        # gradients go to the host, which updates, and weights come back; products stay on the accelerator
        # (deepspeedai/DeepSpeed, pull request 7939)
        copied = updated * element_scale * (plan.gradient_bytes + 2 * plan.recipe.width)
        return copied / gpu.host_link + moved / assumed.host.memory_bandwidth + products
    return assumed.traffic.optimizer_passes * moved / gpu.hbm_bandwidth + products
