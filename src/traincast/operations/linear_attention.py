"""Linear attention on local shapes: Mamba-2, the gated delta net, gated short convolutions.

A causal convolution mixes each channel with its few last tokens. The scan then works chunk by chunk: inside a
chunk as attention does, with products of a chunk's tokens, and between chunks with a state for each head.

Heads are cut over tensor ranks. With context parallelism ranks exchange tokens for heads around convolution
and scan (all-to-all), as Megatron-Core does (`MambaContextParallel`, `GatedDeltaNet`): a rank then has the
whole sequence of its heads. What heads share is copied where there are more ranks than copies.

Symbols: T tokens of all heads on the rank, h local heads, g local groups, Q tokens of a chunk, N x P elements
of a head's state. Backward computes two products for each product of the forward pass, and what the kernels
recompute; its time is theory: published kernel times are of forward passes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from traincast.core.model_blocks import GatedDelta, LinearAttention, Mamba2, ShortConv
from traincast.core.quantities import Column
from traincast.operations.elementwise import norm
from traincast.operations.operation import Collective, Comms, Gemm, Operation, PassCount, Vector
from traincast.operations.sharding import Sharding

STATE_BYTES: Final = 4  # of an element of states and masks between kernels, in fp32
SCAN_KERNELS: Final = 5  # of the forward pass, in mamba_ssm and flash-linear-attention
SILU_FLOPS: Final = 8  # of an activation, as in `elementwise.activation`


def linear_attention(sharding: Sharding, name: str, config: LinearAttention) -> Iterator[Operation]:
    """Yield linear attention of a layer: projection, convolution, scan, norm of the result, projection."""
    e, wide = sharding.model.hidden, config.projected
    into = sharding.column_parallel(f"{name}.in_proj", e, wide)
    yield replace(into, recomputed_with="norms", role="input projection")
    if config.bias:
        yield sharding.column_parallel_bias(f"{name}.in_proj_bias", wide)
    if isinstance(config, ShortConv):
        yield _gated_convolution(sharding, name, config)
    else:
        yield _convolution(sharding, name, config)
        yield _mamba2_scan(sharding, config) if isinstance(config, Mamba2) else _delta_scan(sharding, config)
        yield _norm(sharding, name, config)
    out = sharding.row_parallel(f"{name}.out_proj", config.inner, e)
    yield replace(out, role="output projection")
    if config.bias:
        yield sharding.row_parallel_bias(f"{name}.out_proj_bias")


def _exchange(sharding: Sharding, width: Column) -> Comms:
    """Return the all-to-all of tokens for heads over the ranks that cut the sequence."""
    nbytes = sharding.E * sharding.tokens * sharding.local(width)
    return Collective("all-to-all", nbytes, "cp"), Collective("all-to-all", nbytes, "ulysses")


def _shared(sharding: Sharding, groups: int) -> Column:
    """Return the local number of groups, each copied for all the context-parallel ranks that need it."""
    context = sharding.plan.context
    return -(-groups // (sharding.plan.tp * context)) * context


def _gated_convolution(sharding: Sharding, name: str, config: ShortConv) -> Operation:
    """Return the causal convolution of k tokens between gates, y = c * Σ w (b x); b, c and x are saved.

    Context-parallel ranks need but the last k - 1 tokens of each other, which is negligible.
    """
    n, passes = sharding.tokens * sharding.local(config.width), sharding.assumptions.traffic.conv_passes
    return Operation(
        f"{name}.conv",
        PassCount(
            (Vector(n * (2 * config.conv + 2)),), passes * sharding.E * 4 * n
        ),  # reads b, c, x; writes y
        PassCount(
            (Vector(n * (6 * config.conv + 5)),), passes * sharding.E * 7 * n
        ),  # also dy; writes db, dc, dx
        weights=sharding.local(config.conv_weights),
        saved_bytes=sharding.E * 3 * n,
        has_framework_traffic=True,
    )


def _convolution(sharding: Sharding, name: str, config: Mamba2 | GatedDelta) -> Operation:
    """Return the causal convolution of k tokens and SiLU, y = silu(Σ w x), channel by channel; x is saved.

    Mamba-2's fused kernel (mamba_ssm, mamba_split_conv1d_scan_combined) saves no y and computes it again.
    """
    n, passes = sharding.tokens * sharding.local(config.conv_width), sharding.assumptions.traffic.conv_passes
    forward = PassCount(
        (Vector(n * (2 * config.conv + SILU_FLOPS)),),
        passes * sharding.E * 2 * n,  # reads x, writes y
        _exchange(sharding, config.projected),
    )
    recomputed = 2 * n if isinstance(config, Mamba2) else 0
    backward = PassCount(
        (Vector(n * (4 * config.conv + SILU_FLOPS)),),
        passes * sharding.E * (3 * n + recomputed),  # reads x and dy, writes dx
        forward.collectives,
    )
    weights = sharding.local(config.conv_weights)
    return Operation(
        f"{name}.conv",
        forward,
        backward,
        weights=weights,
        saved_bytes=sharding.E * n,
        has_framework_traffic=True,
    )


def _mamba2_scan(sharding: Sharding, config: Mamba2) -> Operation:
    """Return the scan of Mamba-2, state-space duality (arXiv 2405.21060, section 6), with its gate.

    Traffic is that of the kernels of mamba_ssm (mamba_chunk_scan_combined), which write scores and states of
    chunks. Saved are the gate z, dt and the result (x, B and C with the convolution); backward recomputes
    scores and states.
    """
    E, T, Q, N, P = sharding.E, sharding.tokens, config.chunk, config.state, config.head_dim
    h, g = sharding.local(config.heads), _shared(sharding, config.groups)
    chunks = T / Q
    scores = _product(Q, N, Q, chunks * g)  # G = C B'
    inside = _product(Q, Q, P, chunks * h)  # Y = (L ∘ G) X
    states = _product(N, Q, P, chunks * h)  # S = (B ∘ decay)' X
    across = _product(Q, N, P, chunks * h)  # Y += C S, of the chunks before
    elementwise = Vector(chunks * h * (3 * Q * Q + 2 * N * P))  # L ∘ G; S is passed from chunk to chunk
    x, groups = T * h * P, T * g * N  # elements of x, and of B or C
    state, score = chunks * h * N * P, T * g * Q
    recomputed = E * (x + 2 * groups) + STATE_BYTES * (state + score)  # reads x, B and C
    nbytes = recomputed + STATE_BYTES * (2 * state + score) + E * (groups + 4 * x)  # C, x, z; y twice
    backward = (*_gradients((scores, inside, states, across)), scores, states)
    return _scan(
        sharding,
        "mamba2.scan",
        ((scores, inside, states, across), elementwise, nbytes),
        (backward, 2 * nbytes + recomputed),
        weights=sharding.local(3 * config.heads),
        saved=E * (2 * x + T * h),
        exchanged=config.inner,
    )


def _delta_scan(sharding: Sharding, config: GatedDelta) -> Operation:
    """Return the scan of the gated delta net in its chunkwise form (arXiv 2412.06464, section 3.3).

    Traffic is that of the kernels of flash-linear-attention (chunk_gated_delta_rule), with queries and keys
    repeated for every value head. Saved are queries, keys, values, decay, strength and the inverse of every
    chunk; backward recomputes the rest.
    """
    E, T, Q, K, V = sharding.E, sharding.tokens, config.chunk, config.key_dim, config.value_dim
    h = sharding.local(config.value_heads)
    n = T / Q * h  # chunks of all heads
    scores = _product(Q, K, Q, n)  # A = tril(β γ K K')
    keys, values = _product(Q, Q, K, n), _product(Q, Q, V, n)  # W = (1 + A)⁻¹ β γ K, U = (1 + A)⁻¹ β V
    corrected, states = _product(Q, K, V, n), _product(K, Q, V, n)  # V' = U - W S, S = γ S + K' V'
    across, inside = _product(Q, K, V, n), _product(Q, Q, V, n)  # O = Q S + tril(γ Q K') V'
    products = (scores, keys, values, corrected, states, across, scores, inside)  # Q K' has the shape of A
    # (1 + A)⁻¹ of a triangular matrix takes Q³/3; decays of scores and of the state
    elementwise = Vector(n * (Q**3 / 3 + 4 * Q * Q + 2 * K * V))
    k, v, state, score = T * h * K, T * h * V, n * K * V, T * h * Q
    written = E * (k + 2 * v + state)  # W, U, V' and S
    recomputed = E * (score + 3 * k + 2 * v) + written  # reads A; K and V, K and W, U
    # Also K for A, written and read in fp32 and inverted; Q, K, V' and S for O.
    nbytes = recomputed + E * (k + score) + 2 * STATE_BYTES * score + E * (2 * k + 2 * v + state)
    backward = (*_gradients(products), keys, values, corrected, states)
    return _scan(
        sharding,
        "gated_delta.scan",
        (products, elementwise, nbytes),
        (backward, 2 * nbytes + recomputed),
        weights=sharding.local(2 * config.value_heads),
        saved=E * (2 * k + v + score) + (E + STATE_BYTES) * T * h,
        exchanged=config.inner,
    )


def _product(m: Column, k: Column, n: Column, batch: Column) -> Gemm:
    """Return one product for each chunk."""
    return Gemm(m, k, n, batch, layout="chunked")


def _gradients(products: Iterable[Gemm]) -> Iterator[Gemm]:
    """Yield the gradients of both operands of products."""
    for each in products:
        yield replace(each, k=each.n, n=each.k)
        yield replace(each, m=each.k, k=each.m)


def _scan(
    sharding: Sharding,
    name: str,
    forward: tuple[tuple[Gemm, ...], Vector, Column],
    backward: tuple[tuple[Gemm, ...], Column],
    weights: Column,
    saved: Column,
    exchanged: int,
) -> Operation:
    """Return a scan of products, elementwise work and traffic; `exchanged` is the width of its result."""
    (products, elementwise, nbytes), (gradients, back_bytes) = forward, backward
    collectives, passes = _exchange(sharding, exchanged), sharding.assumptions.traffic.scan_passes
    there = PassCount((*products, elementwise), passes * nbytes, collectives, launches=SCAN_KERNELS)
    back = PassCount(
        (*gradients, *[elementwise] * 3),  # recomputed, and with two gradients
        passes * back_bytes,
        collectives,
        launches=2 * SCAN_KERNELS,
    )
    return Operation(name, there, back, weights=weights, saved_bytes=saved, has_framework_traffic=True)


def _norm(sharding: Sharding, name: str, config: Mamba2 | GatedDelta) -> Operation:
    """Return the RMS norm of the result: over all heads of Mamba-2; over each head of the gated delta net.

    The latter is multiplied by silu(z) as well (Megatron-Core's GatedDeltaNet); z is read and saved, and its
    gradient written.
    """
    T, inner = sharding.tokens, sharding.local(config.inner)
    if isinstance(config, Mamba2):
        return replace(norm(f"{name}.norm", sharding.E, T, inner, vectors=1), module="")
    heads, n = sharding.local(config.value_heads), sharding.E * T * inner
    normed = norm(f"{name}.norm", sharding.E, T * heads, config.value_dim, vectors=1)
    gate = Vector(SILU_FLOPS * T * inner)
    return replace(
        normed,
        forward=normed.forward + PassCount((gate,), n),
        backward=normed.backward + PassCount((gate, gate), 2 * n),
        saved_bytes=normed.saved_bytes + n,
        module="",
    )
