"""Mixture of experts: router, dispatch of tokens to their experts, the experts' MLPs, and combination of the results.

A rank has n = T/m1 tokens between blocks. Each is routed to K experts, so the ranks of an expert-parallel group exchange n K rows,
and a rank computes n K rows with its E/ep experts, times the load of the fullest rank. With expert tensor parallelism etp ranks
share an expert's width and gather each other's rows.
"""

from collections.abc import Iterator
from dataclasses import replace

from traincast.core.model import Model
from traincast.core.model_blocks import Experts
from traincast.core.quantities import Column
from traincast.operations import elementwise, linear
from traincast.operations.mlp import mlp
from traincast.operations.operation import Collective, Operation
from traincast.operations.sharding import Sharding


def experts(model: Model, sharding: Sharding) -> Iterator[Operation]:
    """Yield the mixture of experts of one layer."""
    config = model.experts
    if config is None:
        raise TypeError(f"{model.name} has no experts")
    n, width = sharding.residual_shape
    router = _router(model, config, sharding, n)
    # Shared experts save the same input.
    yield replace(router, saved_bytes=0 * router.saved_bytes) if config.shared_ffn else router
    dispatch = _permutation(
        "experts.permute", sharding, n * config.topk, width, config.topk, 2, 3, to_experts=True
    )
    # Inputs of experts with a capacity are padded to it, so the host need not know how many tokens come.
    yield replace(dispatch, synchronises=config.capacity is None)
    yield from _expert_mlps(model, config, sharding, n * config.topk * sharding.plan.etp * sharding.plan.load)
    combine = _permutation(
        "experts.unpermute", sharding, n * config.topk, width, config.topk, 3, 3, to_experts=False
    )
    yield replace(combine, module="")  # it ends the block, as fc2 does in a dense layer
    if config.shared_ffn:
        gate = model.hidden if config.shared_gate else 0
        for op in mlp(model, sharding, config.shared_ffn, "shared", ends_layer=False):
            yield replace(op, weights=op.weights + gate) if op.role == "down projection" else op


def _router(model: Model, config: Experts, sharding: Sharding, n: Column) -> Operation:
    """Return the scores of all experts for every token, at 16 bits or above; every rank has all of the router's weights."""
    scores = linear.linear("experts.router", sharding.plain_sizes, n, model.hidden, config.experts)
    weights = scores.weights + (config.experts if config.router_bias else 0)
    return replace(scores, weights=weights, module="experts", recomputed_with="norms")


def _permutation(
    name: str,
    sharding: Sharding,
    rows: Column,
    width: Column,
    topk: int,
    forward: int,
    backward: int,
    to_experts: bool,
) -> Operation:
    """Return the dispatch of rows, sorted by expert, to their experts, or the return of the results.

    Each pass moves `forward` or `backward` elements for every element of a row. The fullest rank receives more than its share, and
    all wait for it.
    """
    nbytes = sharding.E * rows * width * sharding.plan.load
    exchange = Collective("all-to-all", nbytes, "ep", copies=topk)
    gather = Collective("all-gather", nbytes * sharding.plan.etp, "etp")
    scatter = Collective("reduce-scatter", nbytes * sharding.plan.etp, "etp")
    elements = sharding.assumptions.traffic.expert_passes * rows * width
    moved = elementwise.moved(name, sharding.E, forward * elements, backward * elements, module="experts")
    return replace(
        moved,
        has_framework_traffic=True,
        forward=replace(moved.forward, collectives=(exchange, gather if to_experts else scatter)),
        backward=replace(moved.backward, collectives=(exchange, scatter if to_experts else gather)),
    )


def _expert_mlps(model: Model, config: Experts, sharding: Sharding, rows: Column) -> Iterator[Operation]:
    """Yield the MLPs of the rank's experts on the rows they receive, all experts in one grouped product."""
    e, f, local_experts = model.hidden, config.ffn, config.experts / sharding.plan.ep
    wide = model.up_projections * f
    up = sharding.column_parallel("experts.fc1", e, wide, rows, local_experts)
    down = sharding.row_parallel("experts.fc2", f, e, rows, local_experts)
    inner = down.saved_bytes / (sharding.sizes.kept * sharding.E)  # elements of the activation on the rank
    yield replace(up, experts=True, module="experts", recomputed_with="experts", role="up projection")
    if "mlp" in model.biases:
        yield _expert_bias("experts.fc1_bias", sharding, rows, wide / sharding.plan.etp, local_experts)
    passes = sharding.assumptions.traffic.expert_passes
    activated = elementwise.activation(
        f"experts.{model.mlp}", sharding.E * passes, inner, model.up_projections
    )
    saved = sharding.plan.recipe.gates * activated.saved_bytes / passes + sharding.gate_bytes(inner)
    yield replace(activated, saved_bytes=saved, recomputed_with="experts", has_framework_traffic=True)
    yield replace(down, experts=True, recomputed_with="activation", role="down projection")
    if "mlp" in model.biases:
        yield _expert_bias("experts.fc2_bias", sharding, rows, e, local_experts)


def _expert_bias(
    name: str, sharding: Sharding, rows: Column, width: Column, local_experts: Column
) -> Operation:
    """Return the biases of the rank's experts, of local width `width`, added to all rows."""
    bias = elementwise.bias(name, sharding.E * sharding.assumptions.traffic.expert_bias_passes, rows, width)
    return replace(bias, weights=local_experts * width, experts=True, has_framework_traffic=True)
