"""Attention to the keys that a lightning indexer selects, on local shapes (DeepSeek-V3.2, arXiv 2512.02556).

A narrow indexer scores all earlier tokens for each query, and latent attention meets the `topk` best alone. A
selected latent vector is read once for all heads, so queries are projected to the width of the latent vector,
and results from it (Megatron-Core, `AbsorbedMLASelfAttention`): as many FLOPs as the projections of keys and
values, but products of scores are wider than those of heads with keys of their own.

Every tensor rank runs the whole indexer on gathered tokens, whose input is detached: backward has gradients
of its weights alone (`DSAIndexer`). It learns to agree with attention on the selected keys (section 2.1.1,
equation 4), so attention's scores of these are computed again.

Where blocks of keys are selected (MiniMax-M3), attention has keys and values of its own heads, and how the
indexer learns is not published: nothing is counted for it.

DeepSeek-V4's indexer selects among compressed keys, each made of some tokens; it is taken to learn as that of
DeepSeek-V3.2 does. The kernel that meets them beside a window is taken to be as good as fused attention.
"""

from collections.abc import Iterator
from typing import Final

from traincast.core import Column, replace
from traincast.model import Compressed, Indexer, Kind, Latent
from traincast.operations.elementwise import elementwise_operation, norm
from traincast.operations.linear import linear
from traincast.operations.operation import Collective, Comms, Gemm, Operation, PassCount, Vector
from traincast.operations.sharding import Sharding

SCORE_BYTES: Final = 4  # of a score or the number of a selected key, in fp32 and int32


def compressor(sharding: Sharding, kind: Kind, config: Compressed, latent: Latent) -> Iterator[Operation]:
    """Yield what makes compressed keys: projections of the rank's own tokens, and their weighted sums.

    Forward reads the projections and writes the keys, which tensor ranks gather; backward reads them again
    and writes their gradients. Saved are the projections; their input is saved by those of attention.
    """
    model = sharding.model
    E = sharding.E
    rows = sharding.residual_shape[0]
    columns = config.columns(kind, latent.kv_rank)
    made = sharding.replicated_linear("attention.compress", model.hidden, columns)
    yield replace(made, saved_bytes=0 * made.saved_bytes)
    keys = rows / config.tokens_per_key(kind) * latent.kv_rank
    pooled = elementwise_operation(
        "attention.compress_pool", E, rows * columns + 2 * keys, 2 * rows * columns + 2 * keys
    )
    gathered = sharding.gather_narrow(latent.kv_rank / config.tokens_per_key(kind))
    small = config.small_weights(kind, latent.kv_rank) + 0.0 * sharding.plan.tp
    forward = replace(pooled.forward, collectives=gathered)
    yield replace(pooled, forward=forward, weights=small, saved_bytes=E * rows * columns)


def indexer(sharding: Sharding, kind: Kind, config: Indexer) -> Iterator[Operation]:
    """Yield the indexer of a layer: its projections, its scores with the selection, and its loss."""
    e = sharding.model.hidden
    E = sharding.E
    T = sharding.tokens
    latent = sharding.model.latent
    h = config.heads
    d = config.head_dim
    if latent is None or latent.q_rank is None:  # all from the gathered input that attention saves
        wide = (h + 1) * d
        made = linear("attention.index_qk", sharding.sizes, T, e, wide, saved_tokens=0 * T)
        yield _without_input(replace(made, weight=None), weights=made.weights)
        normed = norm("attention.index_norm", E, T * (h + 1), d, vectors=1)
        yield _without_input(replace(normed, saved_bytes=0 * E, module=""), weights=2 * d + 0.0 * T)
        yield _scores(sharding, kind, config)
        return
    q_rank = latent.q_rank
    # The normed latent vector of queries is gathered and saved for attention as well; x is not.
    yield _without_input(linear("attention.index_q", sharding.sizes, T, q_rank, h * d, saved_tokens=0 * T))
    rows = T - sharding.residual_shape[0]  # the rank's own are saved by the projections of attention
    gathered = sharding.gather_narrow(e)
    compressed = sharding.model.compressed if kind.compressed else None
    columns = d if compressed is None else compressed.columns(kind, d)
    key = linear("attention.index_k", sharding.sizes, T, e, columns + h, gathered, saved_tokens=rows)
    yield _without_input(key)
    normed = norm("attention.index_norm", E, T, d)
    normed = replace(normed, backward=replace(normed.backward, collectives=()), module="")
    if compressed is not None:
        normed = replace(normed, weights=compressed.small_weights(kind, d) + 0.0 * T)
    yield normed
    turned = T * (h + 1) * d
    yield replace(
        elementwise_operation("attention.index_rotary", E, 2 * turned, 2 * turned), only_trains=True
    )
    yield _scores(sharding, kind, config)
    yield _loss(sharding, kind, config)


def _without_input(op: Operation, weights: Column | None = None) -> Operation:
    """Return a layer without the gradient of its input; it has `weights` if they are given."""
    op = replace(op, backward=PassCount((), 0 * op.forward.nbytes))
    return op if weights is None else replace(op, weights=weights)


def _scores(sharding: Sharding, kind: Kind, config: Indexer) -> Operation:
    """Return the scores Σ w relu(q k) of all heads for every earlier token, and the selection of the best.

    Scores are summed over heads on the chip (of blocks: the best of each, head by head), written, and read by
    the selection. Saved are queries, keys and weights of heads, which the loss needs, and what is selected.
    Ranks that shard the sequence gather the keys.
    """
    E = sharding.E
    T = sharding.tokens
    at = sharding.heads(kind)
    h = config.heads
    d = config.head_dim
    model = sharding.model
    rate = 1 if model.compressed is None or not kind.compressed else model.compressed.tokens_per_key(kind)
    l = at.l / rate
    keys = l * sharding.share()  # of a query
    keys_gathered: Comms = (Collective("all-gather", E * at.b * l * d, "cp"),)
    narrow = E * (T * h * d + at.b * l * d + T * h)
    rows = T if config.block == 1 else T * h  # of scores that are written
    selected = rows * config.topk / config.block
    forward = PassCount(
        (Gemm(T * h, d, keys, layout="batched"), Vector(3 * T * h * keys)),  # relu, weight, sum
        narrow + SCORE_BYTES * (2 * rows * keys / config.block + selected),
        keys_gathered,
        launches=2,
    )
    nothing = PassCount((), 0 * forward.nbytes)
    saved = narrow * (config.block == 1) + SCORE_BYTES * selected
    return Operation("attention.index_scores", forward, nothing, saved_bytes=saved)


def _loss(sharding: Sharding, kind: Kind, config: Indexer) -> Operation:
    """Return what teaches the indexer: its distance from attention over the selected keys, head by head.

    Forward computes attention's scores again and sums them over heads and tensor ranks. Backward computes the
    indexer's scores of the selected keys again, and the gradients of its queries and keys.
    """
    E = sharding.E
    T = sharding.tokens
    at = sharding.heads(kind)
    # selected keys of a query
    h = config.heads
    d = config.head_dim
    n = at.l * at.share
    if kind.compressed:
        n = sharding.model.compressed_pairs(kind) / sharding.model.seq
    target = Gemm(at.rows[0], at.q, n, layout="batched")
    again = Gemm(T * h, d, n)
    dq = Gemm(T * h, n, d)
    dk = Gemm(n, h, d, batch=T)
    summed: Comms = (Collective("all-reduce", SCORE_BYTES * T * n, "tp"),)
    read = E * (at.rows[0] * at.q + at.rows[1] * at.q)
    narrow = E * (T * h * d + at.b * at.l * d + T * h)
    return Operation(
        "attention.index_loss",
        PassCount((target, Vector(4 * at.rows[0] * n)), read + 2 * SCORE_BYTES * T * n, summed),
        PassCount(
            tuple(replace(each, layout="batched") for each in (again, dq, dk)),
            2 * narrow + 2 * SCORE_BYTES * T * n,
        ),
        saved_bytes=SCORE_BYTES * T * n,
        only_trains=True,
    )


def absorbed_projection(sharding: Sharding, config: Latent, name: str, width: int, into: bool) -> Operation:
    """Return a head's projection of queries to the latent vector, or (not `into`) of results from it.

    Both are parts of the up projection of keys and values, in 16 bits, head by head.
    """
    heads: Column = sharding.local(sharding.model.heads)
    i, o = (width, config.kv_rank) if into else (config.kv_rank, width)
    return linear(name, sharding.plain_sizes, sharding.tokens * heads, i, o, copies=heads)
