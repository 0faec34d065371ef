"""The transformer layer as a list of operations, in the order of arXiv 2410.00273, operations of a layer."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from traincast.core.assumptions import Assumptions
from traincast.core.model import Model
from traincast.core.model_blocks import Kind
from traincast.core.plan import Plans
from traincast.operations import embedding_and_head, moe
from traincast.operations.elementwise import held, moved, norm, with_traffic
from traincast.operations.mlp import mlp
from traincast.operations.operation import Operation
from traincast.operations.recompute import apply_recompute
from traincast.operations.sharding import Sharding
from traincast.operations.tensor_parallel import sharding

Layer = tuple[Operation, ...]
OWN_TRAFFIC: Final = (
    "experts.",
    "attention.softmax",
    "attention.dropout",
)  # operations whose passes are counted where they are made


def parts(model: Model, plan: Plans, assumptions: Assumptions) -> dict[str, Layer]:
    """What a model consists of: every kind of layer, and what comes before the first and after the last.

    Parameters
    ----------
    model : Model
        The transformer.
    plan : Plans
        Plans, one or columns of them; only what cuts a layer matters (tp, tp2, cp, ep, etp, mbs, panels) and the choices.
    assumptions : Assumptions
        Sizes of elements, and what is kept.

    Returns
    -------
    dict of str to tuple of Operation
        Kinds of layers by name (``"dense"``, ``"moe"``, ``"local dense"``, ...), then ``"embedding"``, ``"head"`` and ``"mtp"``
        where the model has them; operations per rank and micro-batch.
    """
    rank = sharding(model, plan, assumptions)
    whole = {str(kind): layer(model, plan, assumptions, kind) for kind in model.kinds}
    if model.vocab is not None or model.patch is not None:
        whole["embedding"] = tuple(embedding_and_head.embedding(model, rank))
        whole["head"] = tuple(embedding_and_head.head(model, rank))
    if model.vocab is not None and (model.tied or model.mtp):
        whole["tied"] = tuple(embedding_and_head.tied(model, rank))
    if model.mtp:
        inner = layer(model, plan, assumptions, model.last_kind)
        whole["mtp"] = (*embedding_and_head.mtp(model, rank), *inner, *embedding_and_head.head(model, rank, shared=True))
    return whole


def layer(model: Model, plan: Plans, assumptions: Assumptions, kind: Kind | None = None) -> Layer:
    """Operations of one layer, per rank and micro-batch (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    model : Model
        The transformer.
    plan : Plans
        Plans, one or columns of them; only the degrees inside a layer matter (tp, tp2, cp, mbs, panels).
    assumptions : Assumptions
        Sizes of elements.
    kind : Kind, optional
        Which of the model's kinds of layers; that of the first if left out.

    Returns
    -------
    tuple of Operation
        MLP or experts, then attention, each ended by its norm.
    """
    rank = sharding(model, plan, assumptions)
    kind = model.pattern[0] if kind is None else kind
    inner = moe.experts(model, rank) if kind.moe else mlp(model, rank, model.ffn)
    # What follows a block's norm says whether the norm gathers: experts and latent attention take tokens where they are.
    shared = model.experts is not None and model.experts.shared_ffn > 0
    operations = (
        *inner,
        *_block_end(model, rank, "mlp", gather=model.latent is None or model.latent.q_rank is None),
        *attention(model, rank, kind.local),
        *_block_end(model, rank, "attention", gather=not kind.moe or shared),
    )
    return tuple(apply_recompute(_as_fused(op, assumptions), model, rank, plan.recomputed) for op in operations)


def _block_end(model: Model, rank: Sharding, block: str, gather: bool) -> Iterator[Operation]:
    """What ends a block: dropout, the addition to the residual stream, and the norms."""
    rows, width = rank.boundary
    out = "mlp.dropout" if block == "mlp" else "attention.out_dropout"
    if model.dropout:
        yield rank.dropout(out)
    if rank.assumptions.residuals:  # read twice and written once; backward adds to the norm's gradient
        yield moved(f"{block}.residual", rank.E, 3 * rows * width, rows * width)
    for extra in range(model.norms // 2 - 1):
        yield rank.norm(f"{block}.post_norm{extra or ''}", gather=False, returned=False)
    # Attention's last layer is row-parallel whatever feeds its first ones; experts without shared ones have no such layer.
    yield replace(rank.norm(f"{block}.norm", gather, returned=gather or block == "mlp"), passed_on=block == "mlp")


def attention(model: Model, rank: Sharding, local: bool = False) -> Iterator[Operation]:
    """Attention of one layer: queries, keys and values, core attention, output projection.

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.
    local : bool
        Whether the layer attends to a window or a chunk only.

    Yields
    ------
    Operation
        In execution order.
    """
    e, h = model.hidden, model.heads
    yield from latent(model, rank) if model.latent is not None else _queries_keys_values(model, rank)
    exchange = rank.exchange_heads()
    if exchange is not None:
        yield exchange
    for op in rank.attention(local):
        remade = model.latent is not None and "latent" in rank.plan.recomputed and op.name == "attention.flash"
        own = rank.E * rank.heads(local).own  # queries, keys and values come from the projections up
        yield replace(op, saved_bytes=op.saved_bytes - own, recomputed_bytes=own) if remade else op
    if model.sinks:
        yield held("attention.sinks", rank.E, rank.cut(h))
    yield rank.linear_out("attention.proj", h * model.value_width, e)
    if "proj" in model.biases:
        yield rank.bias("attention.proj")


def _queries_keys_values(model: Model, rank: Sharding) -> Iterator[Operation]:
    """Queries, keys and values from the hidden state, with their norms and positions."""
    q, T = model.head_width, rank.tokens
    kv = -(-model.groups // rank.plan.tp) * rank.plan.tp  # heads of keys and values, those on several ranks counted on each
    wide = model.heads * q + 2 * kv * q
    yield replace(rank.linear_in("attention.qkv", model.hidden, wide), recomputed_with="norms")
    if "qkv" in model.biases:
        yield rank.bias("attention.qkv", wide)
    turned = T * rank.cut((model.heads + kv) * q)  # queries and keys
    if model.qk_norm:
        weights = {"head": 2 * q, "full": rank.cut((model.heads + kv) * q), "plain": 0}[model.qk_norm]
        normed = norm("attention.qk_norm", rank.E, T * rank.cut(model.heads + kv), q, vectors=1)
        yield replace(normed, weights=weights + 0.0 * rank.plan.tp)
    if model.positions == "rotary":
        before = rank.E * turned * float(rank.assumptions.keeps_elementwise)
        yield replace(moved("attention.rotary", rank.E, 2 * turned, 2 * turned), saved_bytes=before)


def latent(model: Model, rank: Sharding) -> Iterator[Operation]:
    """Queries, keys and values of multi-head latent attention (arXiv 2405.04434, section 2.1).

    Every tensor rank projects its own tokens down with all of the weights; what is gathered is the narrow result. The projections
    up are column-parallel.

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.

    Yields
    ------
    Operation
        In execution order.
    """
    one = model.latent
    if one is None:
        raise TypeError(f"{model.name} has no latent attention")
    e, h, q = model.hidden, model.heads, model.head_width
    rows = rank.boundary[0]  # tokens of the rank between blocks
    down, up = one.kv_rank + one.rope_dim, one.nope_dim + one.value_dim
    if one.q_rank is not None:
        yield replace(rank.narrow("attention.q_down", e, one.q_rank), recomputed_with="norms")
        yield norm("attention.q_norm", rank.E, rows, one.q_rank, rank.handed_on(one.q_rank), vectors=1)
    yield replace(rank.linear_in("attention.q_up", one.q_rank or e, h * q), module="latent")
    yield replace(rank.narrow("attention.kv_down", e, down), saved_bytes=0 * rank.E)  # the queries' projection keeps the same input
    yield norm("attention.kv_norm", rank.E, rows, one.kv_rank, rank.handed_on(down), vectors=1)
    yield replace(rank.linear_in("attention.kv_up", one.kv_rank, h * up), module="latent")
    turned = rank.tokens * rank.cut(h) * one.rope_dim + rank.tokens * one.rope_dim  # of queries, and of the one key all heads share
    yield moved("attention.rotary", rank.E, 2 * turned, 2 * turned, module="latent")


def _as_fused(op: Operation, assumed: Assumptions) -> Operation:
    """The operation with the memory traffic that a framework's kernels make of elementwise work."""
    if op.name.startswith(OWN_TRAFFIC) or not _elementwise(op):
        return op
    if assumed.fuses_additions and op.name.endswith(("_bias", "dropout")):
        # Added by the kernel before or after, which reads and writes the same elements; a mask is written beside them.
        op = replace(op, forward=replace(op.forward, nbytes=op.saved_bytes))
    return with_traffic(op, assumed.elementwise_passes)


def _elementwise(op: Operation) -> bool:
    """Whether it has work, all of it on the vector unit."""
    return bool(op.forward.kernels) and all(kernel.unit == "vector" for kernel in op.forward.kernels)
