"""The transformer layer as a list of operations, in the order of arXiv 2410.00273, operations of a layer."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from traincast.core.assumptions import Assumptions
from traincast.core.model import Model
from traincast.core.model_blocks import Kind
from traincast.core.plan import Plans
from traincast.operations import embedding_and_head, moe
from traincast.operations.elementwise import moved, norm, weights_without_work, with_traffic
from traincast.operations.mlp import mlp
from traincast.operations.operation import Operation
from traincast.operations.recompute import apply_recompute
from traincast.operations.sharding import Sharding
from traincast.operations.tensor_parallel import sharding_of

Layer = tuple[Operation, ...]


def parts(model: Model, plan: Plans, assumptions: Assumptions) -> dict[str, Layer]:
    """Count the parts of a model: every kind of layer, and the parts before the first and after the last."""
    sharding = sharding_of(model, plan, assumptions)
    operations = {str(kind): layer(model, plan, assumptions, kind) for kind in model.kinds}
    if model.vocab is not None or model.patch is not None:
        operations["embedding"] = tuple(embedding_and_head.embedding(model, sharding))
        operations["head"] = tuple(embedding_and_head.head(model, sharding))
    if model.vocab is not None and (model.tied or model.mtp):
        operations["tied"] = tuple(embedding_and_head.tied(model, sharding))
    if model.mtp:
        inner = layer(model, plan, assumptions, model.last_kind)
        head = embedding_and_head.head(model, sharding, shared=True)
        operations["mtp"] = (*embedding_and_head.mtp(model, sharding), *inner, *head)
    return operations


def layer(model: Model, plan: Plans, assumptions: Assumptions, kind: Kind | None = None) -> Layer:
    """Count the operations of one layer, per rank and micro-batch (arXiv 2410.00273, operations of a layer)."""
    sharding = sharding_of(model, plan, assumptions)
    kind = model.pattern[0] if kind is None else kind
    inner = moe.experts(model, sharding) if kind.moe else mlp(model, sharding, model.ffn)
    # A block's norm gathers for the operation that follows it; experts and latent attention take the rank's own tokens.
    shared = model.experts is not None and model.experts.shared_ffn > 0
    operations = (
        *inner,
        *_block_end(model, sharding, "mlp", gather=model.latent is None or model.latent.q_rank is None),
        *attention(model, sharding, kind.local),
        *_block_end(model, sharding, "attention", gather=not kind.moe or shared),
    )
    return tuple(
        apply_recompute(_as_fused(op, assumptions), model, sharding, plan.recomputed) for op in operations
    )


def _block_end(
    model: Model, sharding: Sharding, block: Literal["mlp", "attention"], gather: bool
) -> Iterator[Operation]:
    """Yield what ends a block: dropout, the addition to the residual stream, and the norms."""
    rows, width = sharding.residual_shape
    ends_layer = block == "mlp"
    if model.dropout:
        yield sharding.dropout("mlp.dropout" if ends_layer else "attention.out_dropout")
    if (
        sharding.assumptions.traffic.residuals
    ):  # read twice and written once; backward adds to the norm's gradient
        addition = moved(f"{block}.residual", sharding.E, 3 * rows * width, rows * width)
        yield replace(addition, only_makes_output=ends_layer)
    for extra in range(model.norms // 2 - 1):
        yield sharding.norm(f"{block}.post_norm{extra or ''}", gather=False, returned=False)
    # Attention's last layer is row-parallel whatever feeds its first ones; experts without shared ones have no such layer.
    block_norm = sharding.norm(f"{block}.norm", gather, returned=gather or ends_layer)
    yield (
        replace(block_norm, saves_layer_input=True)
        if ends_layer
        else replace(block_norm, role="attention norm")
    )


def attention(model: Model, sharding: Sharding, local: bool = False) -> Iterator[Operation]:
    """Yield attention of one layer: queries, keys and values, core attention, output projection."""
    e, h = model.hidden, model.heads
    yield from latent(model, sharding) if model.latent is not None else _queries_keys_values(model, sharding)
    exchange = sharding.exchange_heads()
    if exchange is not None:
        yield exchange
    up_projections_recomputed = model.latent is not None and "latent" in sharding.plan.recomputed
    for op in sharding.attention(local):
        if up_projections_recomputed and op.role == "core attention":
            inputs = (
                sharding.E * sharding.heads(local).input_elements
            )  # they restore queries, keys and values
            yield replace(op, saved_bytes=op.saved_bytes - inputs, recomputed_bytes=inputs)
        else:
            yield op
    if model.sinks:
        yield weights_without_work("attention.sinks", sharding.E, sharding.local(h))
    yield replace(sharding.row_parallel("attention.proj", h * model.value_width, e), role="output projection")
    if "proj" in model.biases:
        yield sharding.row_parallel_bias("attention.proj_bias")


def _queries_keys_values(model: Model, sharding: Sharding) -> Iterator[Operation]:
    """Yield the projection to queries, keys and values, with their norms and rotary positions."""
    q, T = model.head_width, sharding.tokens
    kv = (
        -(-model.groups // sharding.plan.tp) * sharding.plan.tp
    )  # heads of keys and values, counted once per rank that has them
    wide = model.heads * q + 2 * kv * q
    yield replace(
        sharding.column_parallel("attention.qkv", model.hidden, wide), recomputed_with="norms", role="qkv"
    )
    if "qkv" in model.biases:
        yield sharding.column_parallel_bias("attention.qkv_bias", wide)
    rotated = T * sharding.local((model.heads + kv) * q)  # queries and keys
    if model.qk_norm:
        weights = {"head": 2 * q, "full": sharding.local((model.heads + kv) * q), "plain": 0}[model.qk_norm]
        normed = norm("attention.qk_norm", sharding.E, T * sharding.local(model.heads + kv), q, vectors=1)
        yield replace(normed, weights=weights + 0.0 * sharding.plan.tp)
    if model.positions == "rotary":
        inputs = sharding.E * rotated * float(sharding.assumptions.memory.saves_elementwise)
        yield replace(moved("attention.rotary", sharding.E, 2 * rotated, 2 * rotated), saved_bytes=inputs)


def latent(model: Model, sharding: Sharding) -> Iterator[Operation]:
    """Yield the projections to queries, keys and values of multi-head latent attention (arXiv 2405.04434, section 2.1).

    Every tensor rank has all weights of the down projections and works on its own tokens; the narrow result is gathered. The up
    projections are column-parallel.
    """
    config = model.latent
    if config is None:
        raise TypeError(f"{model.name} has no latent attention")
    e, h, q = model.hidden, model.heads, model.head_width
    rows = sharding.residual_shape[0]
    down, up = config.kv_rank + config.rope_dim, config.nope_dim + config.value_dim
    if config.q_rank is not None:
        yield replace(
            sharding.replicated_linear("attention.q_down", e, config.q_rank), recomputed_with="norms"
        )
        yield norm(
            "attention.q_norm",
            sharding.E,
            rows,
            config.q_rank,
            sharding.gather_narrow(config.q_rank),
            vectors=1,
        )
    yield replace(sharding.column_parallel("attention.q_up", config.q_rank or e, h * q), module="latent")
    # The queries' projection saves the same input.
    yield replace(sharding.replicated_linear("attention.kv_down", e, down), saved_bytes=0 * sharding.E)
    yield norm("attention.kv_norm", sharding.E, rows, config.kv_rank, sharding.gather_narrow(down), vectors=1)
    yield replace(sharding.column_parallel("attention.kv_up", config.kv_rank, h * up), module="latent")
    # Rotated are the queries, and the one key that all heads share.
    rotated = sharding.tokens * sharding.local(h) * config.rope_dim + sharding.tokens * config.rope_dim
    yield moved("attention.rotary", sharding.E, 2 * rotated, 2 * rotated, module="latent")


def _as_fused(op: Operation, assumed: Assumptions) -> Operation:
    """Return the operation with the memory traffic that a framework's kernels make of elementwise work."""
    if op.has_framework_traffic or not _is_elementwise(op):
        return op
    if assumed.traffic.fuses_additions and op.fused_with_neighbour:
        # The kernel before or after reads and writes the same elements; only a mask is written in addition.
        op = replace(op, forward=replace(op.forward, nbytes=op.saved_bytes))
    return with_traffic(op, assumed.traffic.elementwise_passes)


def _is_elementwise(op: Operation) -> bool:
    """Return whether the operation has kernels, all of them on the vector unit."""
    return bool(op.forward.kernels) and all(kernel.unit == "vector" for kernel in op.forward.kernels)
