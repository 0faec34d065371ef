"""The MLP of a layer, gated or not, and the mixture of experts in its place.

Experts: a rank has n = T/m1 tokens between blocks. Each is routed to K experts, so the ranks of an
expert-parallel group exchange n K rows, and a rank computes n K rows with its E/ep experts, times the load of
the fullest rank. With expert tensor parallelism etp ranks share an expert's width and gather each other's
rows. Megatron-Core's all-gather dispatcher moves whole tokens instead: each of the N = ep etp ranks gathers
n N of them with their probabilities, and the results are reduced and scattered.
"""

from collections.abc import Iterator

from traincast.core import Column, replace
from traincast.model import Experts
from traincast.operations import elementwise
from traincast.operations.linear import Routed, linear
from traincast.operations.operation import Collective, Comms, Operation
from traincast.operations.sharding import Sharding


def mlp_operations(
    sharding: Sharding, f: int, name: str = "mlp", ends_layer: bool = True
) -> Iterator[Operation]:
    """Yield an MLP of inner width f: up projection, activation, down projection.

    Its result ends the layer, but that of shared experts is added to the other experts' first.
    """
    model = sharding.model
    e = sharding.model.hidden
    wide = model.up_projections * f
    inner = sharding.tokens * sharding.local(f)
    up = sharding.column_parallel(f"{name}.fc1", e, wide)
    yield replace(up, module="mlp", recomputed_with="norms", role="up projection")
    if "mlp" in model.biases:
        yield sharding.column_parallel_bias(f"{name}.fc1_bias", wide)
    activated = elementwise.activation(f"{name}.{model.mlp}", sharding.E, inner, model.up_projections)
    saved = activated.saved_bytes * sharding.saved_gate_share + sharding.gate_bytes(inner)
    yield replace(activated, saved_bytes=saved)
    if model.dropout and model.inner_dropout:
        yield replace(sharding.dropout(f"{name}.inner_dropout", inner), module="activation")
    if model.inner_norms and ends_layer:
        yield sharding.inner_norm(f"{name}.inner_norm", f)
    down = sharding.row_parallel(f"{name}.fc2", f, e)
    yield replace(down, recomputed_with="activation", role="down projection", only_makes_output=ends_layer)
    if "mlp" in model.biases:
        bias = sharding.row_parallel_bias(f"{name}.fc2_bias", ends_layer)
        yield replace(bias, only_makes_output=ends_layer)


def experts(sharding: Sharding, config: Experts) -> Iterator[Operation]:
    """Yield a mixture of experts: router, dispatch, the experts' MLPs, combination; then shared experts."""
    model = sharding.model
    plan = sharding.plan
    n = sharding.residual_shape[0]
    # Every rank has all of the router's weights, at 16 bits or above.
    router = linear("experts.router", sharding.plain_sizes, n, model.hidden, config.experts + config.zero)
    weights = router.weights + (config.experts + config.zero if config.router_bias else 0)
    saved = (0 if config.shared_ffn else 1) * router.saved_bytes  # shared experts save the same input
    router = replace(router, weights=weights, saved_bytes=saved, role="router")
    yield replace(router, module="experts", recomputed_with="norms")
    if config.width:
        into = linear("experts.into_latent", sharding.plain_sizes, n, model.hidden, config.width)
        yield replace(into, saved_bytes=0 * into.saved_bytes, module="experts", recomputed_with="norms")
    permutation = _gather_tokens if sharding.assumptions.collectives.gathers_tokens else _permutation
    dispatch = permutation("experts.permute", sharding, config, (2, 3), to_experts=True)
    # Inputs of experts with a capacity are padded to it, so the host need not know how many tokens come.
    yield replace(dispatch, synchronises=config.capacity is None)
    yield from _expert_mlps(sharding, config, n * config.routed * plan.etp * plan.load)
    combine = permutation("experts.unpermute", sharding, config, (3, 3), to_experts=False)
    yield replace(combine, module="")  # it ends the block, as fc2 does in a dense layer
    if config.width:
        yield linear("experts.out_of_latent", sharding.plain_sizes, n, config.width, model.hidden)
    if config.result_norm:
        yield sharding.norm("experts.result_norm", gather=False, returned=False)
    if config.shared_ffn:
        yield from mlp_operations(sharding, config.shared_ffn, "shared", ends_layer=False)
        if config.shared_gate:  # one number of a token, by which the result is multiplied
            gate = linear("shared.gate", sharding.plain_sizes, n, model.hidden, 1)
            gate = replace(gate, saved_bytes=0 * gate.saved_bytes, role="shared_gate")
            yield replace(gate, module="experts", recomputed_with="norms")


def _permutation(
    name: str, sharding: Sharding, config: Experts, moves: tuple[int, int], to_experts: bool
) -> Operation:
    """Return the dispatch of rows, sorted by expert, to their experts, or the return of the results.

    `moves` are the elements that forward and backward move for every element of a row. The fullest rank
    receives more than its share, and all wait for it.
    """
    plan = sharding.plan
    (n, width) = sharding.residual_shape
    if config.width:
        width = config.width
    rows = n * config.routed
    nbytes = sharding.E * rows * width * plan.load
    limit = config.groups, config.group_topk
    exchange = Collective("all-to-all", nbytes, "ep", copies=config.routed, groups=limit)
    gather = Collective("all-gather", nbytes * plan.etp, "etp")
    scatter = Collective("reduce-scatter", nbytes * plan.etp, "etp")
    elements = _passes(sharding) * rows * width
    there, back = (gather, scatter) if to_experts else (scatter, gather)
    moved = elementwise.elementwise_operation(
        name, sharding.E, moves[0] * elements, moves[1] * elements, module="experts"
    )
    return replace(
        moved,
        has_framework_traffic=True,
        forward=replace(moved.forward, collectives=(exchange, there)),
        backward=replace(moved.backward, collectives=(exchange, back)),
    )


def _gather_tokens(
    name: str, sharding: Sharding, config: Experts, moves: tuple[int, int], to_experts: bool
) -> Operation:
    """Return the all-gather of tokens and the sorting of local ones by expert, or the return of the results.

    `moves` as for `_permutation`. All tokens are gathered, however many of them a rank's experts get. What is
    added to tokens from experts starts as zeros for the tokens of all ranks: the results forward, and the
    gradients of gathered tokens backward. Source: MoEAllGatherTokenDispatcher (Megatron-Core 0.19.2,
    megatron/core/transformer/moe/token_dispatcher.py).
    """
    plan = sharding.plan
    (n, width) = sharding.residual_shape
    if config.width:
        width = config.width
    ranks = plan.ep * plan.etp
    assumed = sharding.assumptions
    probability = assumed.collectives.probability_bytes or sharding.E
    tokens = sharding.E * n * width * ranks
    results = probability * n * width * ranks
    probabilities = probability * n * config.experts * ranks
    routing = assumed.memory.mask_bytes * n * config.experts * ranks  # which experts a token has, a mask
    rows = _passes(sharding) * n * config.routed * plan.etp * plan.load * width
    zeros = n * (ranks - 1) * width  # beside those of the rank's own tokens, which `moves` have
    forward = moves[0] * rows + (0 * zeros if to_experts else zeros)
    backward = moves[1] * rows + (zeros if to_experts else 0 * zeros)
    moved = elementwise.elementwise_operation(name, sharding.E, forward, backward, module="experts")
    sent = tokens if to_experts else results
    gathers = Collective("all-gather", sent, "tp-ep")
    scatters = Collective("reduce-scatter", sent, "tp-ep")
    there: Comms = (scatters,)
    back: Comms = (gathers,)
    if to_experts:
        # The mask has no gradient.
        of_routing = Collective("all-gather", routing, "tp-ep")
        there = (gathers, Collective("all-gather", probabilities, "tp-ep"), of_routing)
        back = (scatters, Collective("reduce-scatter", probabilities, "tp-ep"))
    # One buffer for all layers, and the results or a gradient of as many tokens; none on one rank.
    in_memory = (tokens + results + probabilities + routing) * (1 - 1 // ranks)
    return replace(
        moved,
        has_framework_traffic=True,
        gathered_bytes=in_memory,
        forward=replace(moved.forward, collectives=there),
        backward=replace(moved.backward, collectives=back),
    )


def _passes(sharding: Sharding) -> Column:
    """Return the passes over rows of experts; with all experts on every rank no fused dispatcher runs."""
    traffic = sharding.assumptions.traffic
    plan = sharding.plan
    if not traffic.local_expert_passes:
        return traffic.expert_passes
    is_local = 1 // (plan.ep * plan.etp)  # 1 where one rank has all experts whole, else 0
    return traffic.expert_passes + is_local * (traffic.local_expert_passes - traffic.expert_passes)


def _expert_mlps(sharding: Sharding, config: Experts, rows: Column) -> Iterator[Operation]:
    """Yield the MLPs of the rank's experts on the rows they receive, all experts in one grouped product."""
    model = sharding.model
    e = config.width or model.hidden
    f = config.ffn
    wide = model.up_projections * config.ffn
    routed = Routed(rows, config.experts / sharding.plan.ep)
    up = sharding.column_parallel("experts.fc1", e, wide, routed)
    down = sharding.row_parallel("experts.fc2", f, e, routed)
    # Elements of the activation on the rank.
    inner = down.saved_bytes / (sharding.sizes.saved_operand * sharding.E)
    yield replace(up, experts=True, module="experts", recomputed_with="experts", role="up projection")
    if "mlp" in model.biases:
        yield _expert_bias("experts.fc1_bias", sharding, routed, wide / sharding.plan.etp)
    moved = sharding.E * _passes(sharding)
    activated = elementwise.activation(f"experts.{model.mlp}", moved, inner, model.up_projections)
    inputs = model.up_projections * sharding.E * inner
    saved = sharding.plan.recipe.gates * inputs + sharding.gate_bytes(inner)
    if sharding.assumptions.memory.saves_weighted and not model.gated:
        saved = saved + sharding.E * inner
    yield replace(activated, saved_bytes=saved, recomputed_with="experts", has_framework_traffic=True)
    yield replace(down, experts=True, recomputed_with="activation", role="down projection")
    if "mlp" in model.biases:
        yield _expert_bias("experts.fc2_bias", sharding, routed, e)


def _expert_bias(name: str, sharding: Sharding, routed: Routed, width: Column) -> Operation:
    """Return the biases of the rank's experts, of local width `width`, added to all rows."""
    element = sharding.E * sharding.assumptions.traffic.expert_bias_passes
    bias = elementwise.bias(name, element, routed.rows, width)
    return replace(bias, weights=routed.experts * width, experts=True, has_framework_traffic=True)
