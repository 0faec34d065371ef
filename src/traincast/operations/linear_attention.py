"""Linear attention on local shapes: Mamba, delta nets, lightning attention, RG-LRU, short convolutions.

A causal convolution mixes each channel with its few last tokens. The scan then works chunk by chunk: inside a
chunk as attention does, with products of a chunk's tokens, and between chunks with a state for each head.
Mamba-1 and the RG-LRU, whose channels decay apart, have scans without products, token by token.

Heads are sharded over tensor ranks. With context parallelism ranks exchange tokens for heads around
convolution and scan (all-to-all), as Megatron-Core does (`MambaContextParallel`, `GatedDeltaNet`): a rank
then has the whole sequence of its heads. What heads share is copied where there are more ranks than copies.

Symbols: T tokens of all heads on the rank, h local heads, g local groups, Q tokens of a chunk, N x P elements
of a head's state. Backward computes two products for each product of the forward pass, and what the kernels
recompute; its time is theory: published kernel times are of forward passes.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from traincast.core import Column, replace
from traincast.model import GatedDelta, GatedLinear, LinearAttention, Mamba, Mamba2, RgLru, Rwkv, ShortConv
from traincast.operations.elementwise import activation, bias, elementwise_operation, norm
from traincast.operations.linear import linear
from traincast.operations.operation import Collective, Comms, Gemm, Operation, PassCount, Vector
from traincast.operations.sharding import Sharding

STATE_BYTES: Final = 4  # of an element of states and masks between kernels, in fp32
SCAN_KERNELS: Final = 5  # of the forward pass, in mamba_ssm and flash-linear-attention
SILU_FLOPS: Final = 8  # of an activation, as in `elementwise.activation`
SCAN_TOKENS: Final = 2048  # of a chunk whose last states Mamba-1's kernel saves (mamba_ssm, selective_scan)


def linear_attention_operations(
    sharding: Sharding, name: str, config: LinearAttention
) -> Iterator[Operation]:
    """Yield linear attention of a layer: projection, convolution, scan, norm of the result, projection."""
    e = sharding.model.hidden
    wide = config.counts.projected
    if isinstance(config, Rwkv):
        yield token_shift(sharding, f"{name}.token_shift", 3)
    into = sharding.column_parallel(f"{name}.in_proj", e, wide)
    yield replace(into, recomputed_with="norms", role="input projection")
    if config.bias:
        yield sharding.column_parallel_bias(f"{name}.in_proj_bias", wide)
    match config:
        case ShortConv():
            yield _gated_convolution(sharding, name, config)
        case Mamba():
            yield _convolution(sharding, name, config)
            yield from _selection(sharding, name, config)
            yield _selective_scan(sharding, config)
        case Mamba2():
            yield _convolution(sharding, name, config)
            yield _mamba2_scan(sharding, config)
        case GatedDelta():
            if config.gate_rank is not None:
                yield from _narrow_gates(sharding, name, config, config.gate_rank)
            yield _convolution(sharding, name, config)
            yield _delta_scan(sharding, config)
        case GatedLinear():
            if config.activated:
                n = sharding.tokens * sharding.local(config.attending)
                yield replace(
                    activation(f"{name}.silu", sharding.E, n), module="", role="", recomputed_with=""
                )
            yield _linear_scan(sharding, config)
        case RgLru():
            yield _convolution(sharding, name, config)
            yield from _lru_gates(sharding, name, config)
            yield _lru_scan(sharding, config)
        case Rwkv():
            yield _wkv_scan(sharding, config)
    if isinstance(config, GatedDelta | GatedLinear) or (isinstance(config, Mamba2) and config.norm):
        yield _norm(sharding, name, config)
    out = sharding.row_parallel(f"{name}.out_proj", config.counts.inner, e)
    yield replace(out, role="output projection", recomputed_with=_norm_module(config))
    if config.bias:
        yield sharding.row_parallel_bias(f"{name}.out_proj_bias")


def _exchange(sharding: Sharding, width: Column) -> Comms:
    """Return the all-to-all of tokens for heads over the ranks that shard the sequence."""
    nbytes = sharding.E * sharding.tokens * sharding.local(width)
    return Collective("all-to-all", nbytes, "cp"), Collective("all-to-all", nbytes, "ulysses")


def _local_groups(sharding: Sharding, groups: int) -> Column:
    """Return the local number of groups, each copied for all the context-parallel ranks that need it."""
    context = sharding.plan.context
    return -(-groups // (sharding.plan.tp * context)) * context


def _gated_convolution(sharding: Sharding, name: str, config: ShortConv) -> Operation:
    """Return the causal convolution of k tokens between gates, y = c * Σ w (b x); b, c and x are saved.

    Context-parallel ranks need but the last k - 1 tokens of each other, which is negligible.
    """
    n = sharding.tokens * sharding.local(config.width)
    passes = sharding.assumptions.traffic.conv_passes
    return Operation(
        f"{name}.conv",
        # Forward reads b, c and x and writes y; backward also reads dy, and writes db, dc and dx.
        PassCount((Vector(n * (2 * config.conv + 2)),), passes * sharding.E * 4 * n),
        PassCount((Vector(n * (6 * config.conv + 5)),), passes * sharding.E * 7 * n),
        weights=sharding.local(config.counts.conv_weights),
        saved_bytes=sharding.E * 3 * n,
        has_framework_traffic=True,
    )


def _convolution(sharding: Sharding, name: str, config: Mamba | Mamba2 | GatedDelta | RgLru) -> Operation:
    """Return the causal convolution of k tokens and SiLU, y = silu(Σ w x), channel by channel; x is saved.

    Mamba's fused functions (mamba_ssm, mamba_inner_fn and mamba_split_conv1d_scan_combined) save no y and
    compute it again. The RG-LRU has no SiLU, which costs nothing beside the traffic.
    """
    counts = config.counts
    passes = sharding.assumptions.traffic.conv_passes
    n = sharding.tokens * sharding.local(counts.conv_width)
    forward = PassCount(
        (Vector(n * (2 * config.conv + SILU_FLOPS)),),
        passes * sharding.E * 2 * n,  # reads x, writes y
        _exchange(sharding, counts.projected),
    )
    recomputed = 2 * n if isinstance(config, Mamba | Mamba2) else 0
    backward = PassCount(
        (Vector(n * (4 * config.conv + SILU_FLOPS)),),
        passes * sharding.E * (3 * n + recomputed),  # reads x and dy, writes dx
        forward.collectives,
    )
    weights = sharding.local(counts.conv_weights)
    return Operation(
        f"{name}.conv",
        forward,
        backward,
        weights=weights,
        saved_bytes=sharding.E * n,
        has_framework_traffic=True,
    )


def _selection(sharding: Sharding, name: str, config: Mamba) -> Iterator[Operation]:
    """Yield the products that make dt, B and C of Mamba-1 from x, which the convolution computes again.

    Channels are sharded, so what selects is a sum over tensor ranks, all-reduced in both passes (arXiv
    2405.21060, section 8.1). dt is computed again before backward (mamba_inner_fn).
    """
    sizes = sharding.sizes
    T = sharding.tokens
    d = sharding.local(config.width)
    summed = (Collective("all-reduce", sizes.E * T * config.selected, "tp"),)
    yield linear(f"{name}.x_proj", sizes, T, d, config.selected, summed, saved_tokens=0 * T)
    if config.norm:
        yield norm(f"{name}.inner_norms", sharding.E, T, config.selected, vectors=int(config.norm_weights))
    step = linear(f"{name}.dt_proj", sizes, T, config.rank, d, backward=summed)
    # B and C are saved with dt before its projection.
    yield replace(step, saved_bytes=sharding.E * T * config.selected, recompute=1.0)


def _selective_scan(sharding: Sharding, config: Mamba) -> Operation:
    """Return the scan of Mamba-1 with its gate, one kernel that keeps states on the chip.

    Forward reads x, dt, z, B and C and writes the result before and after the gate. Backward reads these and
    dy, writes the result again and the gradients of x, dt and z, and adds to those of B and C in fp32
    (mamba_ssm, selective_scan_fwd and _bwd). Saved are z and the last states of stretches of `SCAN_TOKENS`.
    """
    E = sharding.E
    T = sharding.tokens
    N = config.state
    n = T * sharding.local(config.width)
    flops = Vector(n * (9 * N + 2 + SILU_FLOPS))
    states = STATE_BYTES * 2 * N * n / SCAN_TOKENS
    return _scan(
        sharding,
        "mamba.scan",
        ((), flops, E * (5 * n + 2 * T * N) + states),
        ((), E * (9 * n + 2 * T * N) + STATE_BYTES * 4 * T * N + states),
        weights=sharding.local(config.width * (N + 2)),
        saved=E * n + states,
        exchanged=config.counts.inner,
        kernels=1,
    )


def _mamba2_scan(sharding: Sharding, config: Mamba2) -> Operation:
    """Return the scan of Mamba-2, state-space duality (arXiv 2405.21060, section 6), with its gate.

    Traffic is that of the kernels of mamba_ssm (mamba_chunk_scan_combined), which write scores and states of
    chunks. Saved are the gate z, dt and the result (x, B and C with the convolution). Backward recomputes
    scores and states, and runs a kernel for each gradient (_mamba_chunk_scan_combined_bwd), which read x and
    dy again; that of the decays computes a product of the gradient of scores anew.
    """
    E = sharding.E
    T = sharding.tokens
    Q = config.chunk
    N = config.state
    P = config.head_dim
    h = sharding.local(config.heads)
    g = _local_groups(sharding, config.groups)
    chunks = T / Q
    scores = _product(Q, N, Q, chunks * g)  # G = C B'
    inside = _product(Q, Q, P, chunks * h)  # Y = (L ∘ G) X
    states = _product(N, Q, P, chunks * h)  # S = (B ∘ decay)' X
    across = _product(Q, N, P, chunks * h)  # Y += C S, of the chunks before
    elementwise = Vector(chunks * h * (3 * Q * Q + 2 * N * P))  # L ∘ G; S is passed from chunk to chunk
    # elements of x, and of B or C
    x = T * h * P
    groups = T * g * N
    state = chunks * h * N * P
    score = T * g * Q
    recomputed = E * (x + 2 * groups) + STATE_BYTES * (state + score)  # reads x, B and C
    nbytes = recomputed + STATE_BYTES * (2 * state + score) + E * (groups + 4 * x)  # C, x, z; y twice
    backward = (*_gradients((scores, inside, states, across)), scores, states, inside)
    back_bytes = (
        recomputed
        + E * groups
        + STATE_BYTES * 2 * state  # CB, states, and their passing
        + E * 6 * x  # dz: reads x, z, y and dy, writes dz and the gradient before the gate
        + E * (x + groups)
        + STATE_BYTES * state  # gradient of states
        + (STATE_BYTES + E) * 2 * state  # its passing, which writes it and states at 16 bits
        + E * (3 * x + groups + state)
        + STATE_BYTES * score  # dx
        + E * 2 * (x + 2 * groups + state)  # dB and dC, of states
        + E * 2 * x
        + STATE_BYTES * score  # gradient of CB
        + E * 6 * groups
        + STATE_BYTES * 2 * score  # dB and dC, of CB
        + E * 2 * x
        + STATE_BYTES * score  # gradient of the decays
    )
    return _scan(
        sharding,
        "mamba2.scan",
        ((scores, inside, states, across), elementwise, nbytes),
        (backward, back_bytes),
        weights=sharding.local(3 * config.heads),
        saved=E * (2 * x + T * h),
        exchanged=config.counts.inner,
    )


def _narrow_gates(sharding: Sharding, name: str, config: GatedDelta, rank: int) -> Iterator[Operation]:
    """Yield the two projections that make gate and decay through a narrow width.

    Every tensor rank has all of the first, and its heads of the second (Megatron-Core, `KimiDeltaAttention`).
    """
    down = sharding.replicated_linear(f"{name}.gates_down", sharding.model.hidden, config.counts.replicated)
    gathered = sharding.gather_narrow(config.counts.replicated)
    forward = replace(down.forward, collectives=(*down.forward.collectives, *gathered))
    yield replace(down, forward=forward, saved_bytes=0 * down.saved_bytes)  # in_proj saves its input
    # Two products, each of half of the narrow width.
    up = sharding.column_parallel(f"{name}.gates_up", rank, config.counts.inner + config.decays)
    yield replace(up, saved_bytes=2 * up.saved_bytes)


def _delta_scan(sharding: Sharding, config: GatedDelta) -> Operation:
    """Return the scan of a delta net in its chunkwise form (arXiv 2412.06464, section 3.3).

    With decays by channel the products are the same (arXiv 2510.26692, section 3.2), and decays are read and
    written as keys are, in fp32. Traffic is that of the kernels of flash-linear-attention
    (chunk_gated_delta_rule), with queries and keys repeated for every value head. Saved are queries, keys,
    values, decays, strength and the inverse of every chunk; backward recomputes the rest.
    """
    E = sharding.E
    T = sharding.tokens
    Q = config.chunk
    K = config.key_dim
    V = config.value_dim
    h = sharding.local(config.value_heads)
    n = T / Q * h  # chunks of all heads
    scores = _product(Q, K, Q, n)  # A = tril(β γ K K')
    # W = (1 + A)⁻¹ β γ K, U = (1 + A)⁻¹ β V
    keys = _product(Q, Q, K, n)
    values = _product(Q, Q, V, n)
    # V' = U - W S, S = γ S + K' V'
    corrected = _product(Q, K, V, n)
    states = _product(K, Q, V, n)
    # O = Q S + tril(γ Q K') V'
    across = _product(Q, K, V, n)
    inside = _product(Q, Q, V, n)
    products = (scores, keys, values, corrected, states, across, scores, inside)  # Q K' has the shape of A
    # (1 + A)⁻¹ of a triangular matrix takes Q³/3; decays of scores and of the state
    elementwise = Vector(n * (Q**3 / 3 + 4 * Q * Q + 2 * K * V))
    k = T * h * K
    v = T * h * V
    state = n * K * V
    score = T * h * Q
    written = E * (k + 2 * v + state)  # W, U, V' and S
    recomputed = E * (score + 3 * k + 2 * v) + written  # reads A; K and V, K and W, U
    # Also K for A, written and read in fp32 and inverted; Q, K, V' and S for O.
    nbytes = recomputed + E * (k + score) + 2 * STATE_BYTES * score + E * (2 * k + 2 * v + state)
    # Sums of the decays of a chunk are written, and read by each kernel.
    decays = T * sharding.local(config.decays)
    channels = decays - T * h  # beyond one for each head, which is negligible
    nbytes = nbytes + (E + 4 * STATE_BYTES) * channels
    backward = (*_gradients(products), keys, values, corrected, states)
    return _scan(
        sharding,
        "gated_delta.scan",
        (products, elementwise, nbytes),
        (backward, 2 * nbytes + recomputed),
        weights=sharding.local(config.value_heads + config.decays),
        saved=E * (2 * k + v + score) + E * T * h + STATE_BYTES * decays,
        exchanged=0,  # the norm comes before
    )


def _linear_scan(sharding: Sharding, config: GatedLinear) -> Operation:
    """Return the scan of linear attention with one decay for each head (arXiv 2312.06635, section 4).

    Traffic is that of the kernels of flash-linear-attention (chunk_simple_gla): states of chunks, then the
    result of each. Saved are queries, keys, values and decays; backward recomputes the states.
    """
    E = sharding.E
    T = sharding.tokens
    Q = config.chunk
    K = config.key_dim
    V = config.value_dim
    h = sharding.local(config.heads)
    n = T / Q * h  # chunks of all heads
    # O = (L ∘ Q K') V
    scores = _product(Q, K, Q, n)
    inside = _product(Q, Q, V, n)
    # S = γ S + K' V, O += Q S
    states = _product(K, Q, V, n)
    across = _product(Q, K, V, n)
    products = (scores, inside, states, across)
    elementwise = Vector(n * (3 * Q * Q + 2 * K * V))
    k = T * h * K
    v = T * h * V
    state = n * K * V
    recomputed = E * (k + v + state)  # reads K and V, writes S
    nbytes = recomputed + E * (2 * k + v + state) + E * v  # Q, K, V and S for O
    return _scan(
        sharding,
        "gated_linear.scan",
        (products, elementwise, nbytes),
        ((*_gradients(products), states), 2 * nbytes + recomputed),
        weights=sharding.local(config.gates * config.heads),
        saved=E * (2 * k + v) + STATE_BYTES * T * h * (1 if config.gates else 0),
        exchanged=config.counts.inner,
        kernels=2,
    )


def _lru_gates(sharding: Sharding, name: str, config: RgLru) -> Iterator[Operation]:
    """Yield the gates of the RG-LRU, products of the channels of a block (arXiv 2402.19427, equation 1).

    Tensor ranks have whole blocks (RecurrentGemma's `BlockDiagonalLinear`), so nothing is exchanged.
    """
    T = sharding.tokens
    blocks = sharding.local(config.blocks)
    width = config.width // config.blocks
    rows = 2 * blocks * T  # of both gates
    sizes = sharding.plain_sizes
    yield linear(f"{name}.gates", sizes, rows, width, width, copies=2 * blocks, saved_tokens=rows / 2)
    yield bias(f"{name}.gates_bias", sharding.E, T, sharding.local(2 * config.width))


def _lru_scan(sharding: Sharding, config: RgLru) -> Operation:
    """Return the recurrence of the RG-LRU, h = a h + √(1 - a²) (i ∘ x), and its product with GELU(y).

    One kernel reads x and both gates and writes h; another reads h and y and writes the result (arXiv
    2402.19427, section 4.2). Saved are the gates, h and y; the gates' products save x.
    """
    E = sharding.E
    n = sharding.tokens * sharding.local(config.width)
    flops = Vector(n * (3 + 3 * SILU_FLOPS + 8))  # sigmoids, GELU; 8 for a, √(1 - a²) and products
    return _scan(
        sharding,
        "rg_lru.scan",
        ((), flops, E * 7 * n),
        # Reads x, gates, h and dh, writes dx and those of gates; reads h, y, dz, writes dh, dy.
        ((), E * 13 * n),
        weights=sharding.local(config.width),
        saved=E * 4 * n,
        exchanged=config.counts.inner,
        kernels=2,
    )


def token_shift(sharding: Sharding, name: str, inputs: int) -> Operation:
    """Return the mixing of each token with the one before, for each of the layers that read it apart.

    Saved are the input, and what is mixed for all but the first of these layers, which saves it itself.
    """
    E = sharding.E
    (T, e) = sharding.residual_shape
    forward = PassCount((Vector(3 * inputs * T * e),), E * (1 + inputs) * T * e)
    backward = PassCount((Vector(5 * inputs * T * e),), E * (2 + inputs) * T * e)
    weights = inputs * e + 0.0 * T
    return Operation(name, forward, backward, weights=weights, saved_bytes=E * inputs * T * e)


def channel_gate(sharding: Sharding) -> Iterator[Operation]:
    """Yield RWKV's gate of the MLP's result, y = σ(r) v, with the projection to r, whose input is its own."""
    e = sharding.model.hidden
    yield sharding.replicated_linear("mlp.receptance", e, e)
    rows, width = sharding.residual_shape
    n = rows * width
    gate = elementwise_operation("mlp.channel_gate", sharding.E, 3 * n, 5 * n)
    yield replace(gate, saved_bytes=2 * sharding.E * n, only_makes_output=True)


def _wkv_scan(sharding: Sharding, config: Rwkv) -> Operation:
    """Return the weighted mean of RWKV-4 and its gate, y = σ(r) wkv (arXiv 2305.13048, equations 14 to 16).

    One kernel reads keys and values and writes the mean, with the largest exponent so far (appendix D): 4
    exponentials, 14 other operations. Saved are keys, values, the mean and r.
    """
    E = sharding.E
    n = sharding.tokens * sharding.local(config.width)
    flops = Vector(n * (4 * SILU_FLOPS + 14 + SILU_FLOPS))
    return _scan(
        sharding,
        "rwkv.scan",
        ((), flops, E * 6 * n),  # and reads the mean and r, writes the result
        ((), E * 11 * n),  # reads 4, writes 2; the gate: 3 and 2
        weights=sharding.local(2 * config.width),
        saved=E * 4 * n,
        exchanged=config.counts.inner,
        kernels=2,
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
    kernels: int = SCAN_KERNELS,
) -> Operation:
    """Return a scan of products, elementwise work and traffic; `exchanged` is the width that leaves it."""
    (products, elementwise, nbytes), (gradients, back_bytes) = forward, backward
    collectives = _exchange(sharding, exchanged) if exchanged else ()
    passes = sharding.assumptions.traffic.scan_passes
    there = PassCount((*products, elementwise), passes * nbytes, collectives, launches=kernels)
    back = PassCount(
        (*gradients, *[elementwise] * 3),  # recomputed, and with two gradients
        passes * back_bytes,
        collectives,
        launches=2 * kernels,
    )
    return Operation(name, there, back, weights=weights, saved_bytes=saved, has_framework_traffic=True)


def _norm_module(config: LinearAttention) -> str:
    """Return the module whose recomputation repeats the norm of the result; empty if none does.

    Megatron-Core 0.19.2, megatron/core/ssm/gated_delta_net/common.py, _gated_norm_and_a2a: with the norm and
    the exchange after it the input of the output projection is made again.
    """
    return "gated_norm" if isinstance(config, GatedDelta) else ""


def _norm(sharding: Sharding, name: str, config: Mamba2 | GatedDelta | GatedLinear) -> Operation:
    """Return the norm of the result: over all heads of Mamba-2; over each head of the others.

    The latter is multiplied by an activation of z as well (Megatron-Core's GatedDeltaNet); z is read and
    saved, and its gradient written. Weights of linear attention with decays are those of all heads. Heads of
    the delta net return to their tokens after the norm.
    """
    T = sharding.tokens
    inner = sharding.local(config.counts.inner)
    if isinstance(config, Mamba2):
        return replace(norm(f"{name}.norm", sharding.E, T, inner, vectors=1), module="")
    is_delta = isinstance(config, GatedDelta)
    heads = sharding.local(config.counts.sharded[0])
    n = sharding.E * T * inner
    normed = norm(f"{name}.norm", sharding.E, T * heads, config.value_dim, vectors=1)
    if not is_delta:
        normed = replace(normed, weights=1 * inner)
    gate = Vector(SILU_FLOPS * T * inner)
    exchanged = _exchange(sharding, config.counts.inner) if is_delta else ()
    return replace(
        normed,
        forward=normed.forward + PassCount((gate,), n, exchanged),
        backward=normed.backward + PassCount((gate, gate), 2 * n, exchanged),
        saved_bytes=normed.saved_bytes + n,
        module=_norm_module(config),
    )
