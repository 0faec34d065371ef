"""The transformer layer as a list of operations, in the order of arXiv 2410.00273, operations of a layer."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from traincast.core import Assumptions, Column, Plans, nonzero, replace
from traincast.model import ENCODER, Diffusion, Encoder, Kind, Latent, Model
from traincast.operations import diffusion as diffusion_ends
from traincast.operations import embedding_and_head
from traincast.operations.adapters import add_adapters, freeze
from traincast.operations.elementwise import elementwise_operation, norm, weights_without_work, with_traffic
from traincast.operations.linear import linear
from traincast.operations.linear_attention import channel_gate, linear_attention_operations, token_shift
from traincast.operations.mlp import experts, mlp_operations
from traincast.operations.operation import Gemm, Operation, PassCount
from traincast.operations.recompute import apply_recompute
from traincast.operations.sharding import Sharding, sharding_of
from traincast.operations.sparse_attention import absorbed_projection, compressor, indexer
from traincast.operations.towers import tower_parts, tower_plan

Layer = tuple[Operation, ...]
Counted = dict[Any, Any]  # operations of plans that differ in recomputation alone
RESTORING: Final = ("attention", "latent")  # modules whose recomputation changes what other operations save


def parts(
    model: Model, plan: Plans, assumptions: Assumptions, counted: Counted | None = None
) -> dict[str, Layer]:
    """Count the parts of a model: every kind of layer, and the parts before the first and after the last.

    Only the degrees inside a layer (tp, tp2, cp, ep, etp, mbs, panels) and the choices of the plans matter.
    `counted` keeps what plans that differ in recomputation alone have in common. Keys are kinds of layers
    (``"dense"``, ``"moe"``, ``"mamba2 only"``, ...), then ``"embedding"``, ``"decoder embedding"``,
    ``"head"``, ``"mtp"`` and those of its tower where the model has one; counts are per rank and micro-batch.
    """
    counted = {} if counted is None else counted
    operations = {str(kind): layer(model, plan, assumptions, kind, counted) for kind in model.kinds}
    if "ends" not in counted:
        counted["ends"] = _ends(model, plan, assumptions)
    operations |= counted["ends"]
    if (tower := model.tower) is not None:
        cut = tower_plan(plan, tower)
        seen = tower.model
        layers = {str(kind): layer(seen, cut, assumptions, kind, counted) for kind in seen.kinds}
        operations |= tower_parts(model, tower, plan, assumptions, layers)
    if model.mtp:
        sharding = sharding_of(model, plan, assumptions)
        inside = (layer(model, plan, assumptions, kind, counted) for kind in model.mtp_pattern)
        inner = chain.from_iterable(inside)
        joined = add_adapters(sharding, embedding_and_head.mtp(sharding))
        head = add_adapters(sharding, embedding_and_head.head(sharding, shared=True))
        operations["mtp"] = (*joined, *inner, *head)
    return operations


def _ends(model: Model, plan: Plans, assumptions: Assumptions) -> dict[str, Layer]:
    """Count the parts before the first layer and after the last."""
    sharding = sharding_of(model, plan, assumptions)
    operations = dict[str, Layer]()
    if model.vocab is not None or model.patch is not None:
        first = sharding_of(model.for_kind(model.pattern[0]), plan, assumptions)
        frame = model.encoder.frame if model.encoder and model.encodes else None
        embedded = [*embedding_and_head.embedding(first, frame)]
        if model.small_end_weights:
            weights = model.small_end_weights + 0.0 * plan.tp
            embedded += [weights_without_work("embedding.small_weights", sharding.E, weights)]
        embedded += layers_outside_blocks(first, "embedding", model.beside_layers)
        operations["embedding"] = tuple(freeze(sharding, embedded))
        operations["head"] = tuple(
            add_adapters(sharding, (*joined_streams(sharding), *embedding_and_head.head(sharding)))
        )
    if (diffusion := model.diffusion) is not None:
        small = weights_without_work(
            "embedding.small_weights", sharding.E, model.small_end_weights + 0.0 * plan.tp
        )
        operations["embedding"] = (*diffusion_ends.embedding(sharding, diffusion), small)
        operations["head"] = tuple(diffusion_ends.head(sharding, diffusion))
    if model.encodes:
        operations["decoder embedding"] = tuple(embedding_and_head.decoder_embedding(sharding, first))
    if model.vocab is not None and (model.tied or model.mtp or model.encodes):
        operations["tied"] = tuple(freeze(sharding, (embedding_and_head.tied_weights(sharding),)))
    return operations


def layer(
    model: Model,
    plan: Plans,
    assumptions: Assumptions,
    kind: Kind | None = None,
    counted: Counted | None = None,
) -> Layer:
    """Count the operations of a layer per rank and micro-batch: feed-forward, attention, their norms.

    The kind is that of the model's first layer if left out. Only the degrees inside a layer matter; `counted`
    as for `parts`.
    """
    kind = model.pattern[0] if kind is None else kind
    sharding = sharding_of(model.for_kind(kind), plan, assumptions)
    counted = {} if counted is None else counted
    key = model, kind, *_recomputed_flags(sharding)
    if key not in counted:
        counted[key] = _before_recompute(model, sharding, kind, counted)
    return tuple(apply_recompute(op, sharding, kind) for op in counted[key])


def _recomputed_flags(sharding: Sharding) -> tuple[bool, ...]:
    """Return which of `RESTORING` are recomputed."""
    return tuple(module in sharding.plan.recomputed for module in RESTORING)


def _before_recompute(model: Model, sharding: Sharding, kind: Kind, counted: Counted) -> Layer:
    """Count the operations of a layer, whatever is recomputed apart from `RESTORING`."""
    beside = tuple(_beside_blocks(model, sharding, kind))
    # A block's norm gathers for the operation that follows it; experts and latent attention take the rank's
    # own tokens.
    takes_all = not kind.moe or (model.experts is not None and model.experts.shared_ffn > 0)
    mixes_all = not kind.attends or model.latent is None or model.latent.q_rank is None
    if kind.joint and model.diffusion is not None:
        return _as_run(model, sharding, (*_joint(sharding, model.diffusion, kind), *beside))
    if kind.is_pair:
        first = (
            *_feed_forward(sharding, kind),
            *_block_end(sharding, "mlp", ends_layer=True, gather=mixes_all),
        )
        mixed_end = _block_end(sharding, "attention", ends_layer=False, gather=takes_all)
        last = (
            *(() if kind.mixer == "cross" else mixed_end),
            *_attention_to_encoder(sharding, kind),
            *beside,
        )
        mixed = _mixer_of_pair(model, sharding, kind, counted)
        return (*_as_run(model, sharding, first), *mixed, *_as_run(model, sharding, last))
    if kind.mixer:
        *most, mixed_last = _mixer(sharding, kind)
        end = _block_end(sharding, "attention", ends_layer=True, gather=mixes_all)
        operations = (*most, replace(mixed_last, only_makes_output=True), *end, *beside)
        return _as_run(model, sharding, operations)
    end = _block_end(sharding, "mlp", ends_layer=True, gather=takes_all)
    return _as_run(model, sharding, (*_feed_forward(sharding, kind), *end, *beside))


def _mixer_of_pair(model: Model, sharding: Sharding, kind: Kind, counted: Counted) -> Layer:
    """Count what mixes tokens, once for the kinds of layers that differ in their feed-forward block alone.

    They then share the counts of its passes, which are timed once.
    """
    mixer = kind._replace(feed_forward="")
    key = model, mixer, "beside a feed-forward block", *_recomputed_flags(sharding)
    if key not in counted:
        counted[key] = _as_run(model, sharding, tuple(_mixer(sharding, mixer)))
    operations: Layer = counted[key]
    return operations


def _beside_blocks(model: Model, sharding: Sharding, kind: Kind) -> Iterator[Operation]:
    """Yield what a layer has beside its blocks: modulation, linear layers, and small weights."""
    if model.diffusion is not None and not kind.joint:
        yield from diffusion_ends.modulation(sharding, model.diffusion, kind, (sharding,))
    yield from layers_outside_blocks(sharding, "layer", model.beside)
    if small := sharding.model.small_weights:
        weights = small + 0.0 * sharding.plan.tp
        yield weights_without_work("layer.small_weights", sharding.E, weights)


def _as_run(model: Model, sharding: Sharding, operations: Layer) -> Layer:
    """Return operations of a layer as software runs them: frozen, with adapters, and fused or not."""
    if model.shared_layers:  # a part of the model holds its share of the one copy
        operations = tuple(replace(op, weights=op.weights / model.layers) for op in operations)
    if sharding.assumptions.traffic.sums_input_gradients:
        operations = tuple(part for op in operations for part in (op, *_input_gradients(op, sharding)))
    trained = add_adapters(sharding, operations, packs=True)
    return tuple(_as_fused(op, sharding.assumptions) for op in trained)


def _input_gradients(op: Operation, sharding: Sharding) -> Iterator[Operation]:
    """Yield the addition of the gradients of one input that several products of a layer have.

    Each addition reads two of them and writes one, of all tokens of the tensor group.
    """
    products = {"qkv": 3, "up projection": sharding.model.up_projections}.get(op.role, 1)
    if products == 1 or op.experts:
        return
    (product,) = op.forward.gemms
    moves = 3 * (products - 1) * product.m * product.k
    added = elementwise_operation(
        f"{op.name}.input_gradients", sharding.E, 0 * moves, moves, module=op.module
    )
    yield replace(added, forward=PassCount((), 0 * sharding.E * moves), has_framework_traffic=True)


def layers_outside_blocks(
    sharding: Sharding, part: str, layers: tuple[tuple[int, int], ...]
) -> Iterator[Operation]:
    """Yield linear layers beside the blocks, whose weights each tensor rank has for its own tokens."""
    for place, (i, o) in enumerate(layers, 1):
        yield linear(f"{part}.beside{place}", sharding.plain_sizes, sharding.residual_shape[0], i, o)


def _joint(sharding: Sharding, diffusion: Diffusion, kind: Kind) -> Iterator[Operation]:
    """Yield a layer in which image and text have weights of their own and attend to each other.

    (MM-DiT, arXiv 2403.03206, section 4.) Each stream is a sequence of its own but for core attention.
    """
    model = sharding.model
    lengths = {"image": model.seq - diffusion.text, "text": diffusion.text}
    own = {name: replace(sharding, model=model.cut_to(length)) for name, length in lengths.items()}
    for name, stream in own.items():
        operations = [*_block_end(stream, "attention", ends_layer=False, gather=True)]
        operations += _queries_keys_values(stream)
        if name == "image" or kind.mixer == "joint":
            operations += mlp_operations(stream, model.ffn)
            projection = stream.row_parallel("attention.proj", model.heads * model.value_width, model.hidden)
            operations += [replace(projection, role="output projection")]
            if "proj" in model.biases:
                operations.append(stream.row_parallel_bias("attention.proj_bias"))
        operations += _block_end(stream, "mlp", ends_layer=True, gather=True)
        for op in operations:
            yield op if name == "image" else replace(op, name=f"text.{op.name}")
    if exchange := sharding.exchange_heads():
        yield exchange
    yield from sharding.attention(kind)
    yield from diffusion_ends.modulation(sharding, diffusion, kind, tuple(own.values()))


def _feed_forward(sharding: Sharding, kind: Kind) -> Iterator[Operation]:
    """Yield the MLP or the experts of a layer, if it has any."""
    model = sharding.model
    if kind.moe and model.experts is not None:
        yield from experts(sharding, model.experts)
    elif kind.feed_forward:
        if model.channel_mix:
            yield token_shift(sharding, "mlp.token_shift", 2)
        yield from mlp_operations(sharding, model.ffn, ends_layer=not model.channel_mix)
        if model.channel_mix:
            yield from channel_gate(sharding)


def _mixer(sharding: Sharding, kind: Kind) -> Iterator[Operation]:
    """Yield what mixes the tokens of a layer, if anything does: attention, linear attention, or both."""
    config = sharding.model.linear_attention(kind)
    if kind.attends:
        yield from attention_operations(sharding, kind)
    if config is not None:
        yield from linear_attention_operations(sharding, kind.linear, config)


def _attention_to_encoder(sharding: Sharding, kind: Kind) -> Iterator[Operation]:
    """Yield attention to the encoder's result, between self-attention and MLP or in place of the former."""
    encoder = sharding.model.encoder
    if encoder is not None and kind.crosses:
        yield from cross_attention(sharding, encoder)
        yield from _block_end(sharding, "cross", ends_layer=False, gather=True)


def _block_end(sharding: Sharding, block: str, *, ends_layer: bool, gather: bool) -> Iterator[Operation]:
    """Yield what ends a block: dropout, the addition to the residual stream, and the norms.

    The last norm gathers tokens for the next block (if `gather`). Parallel blocks end together: their sum is
    reduced and added to the residual stream once (GPT-NeoX, `gpt_j_residual`).
    """
    model = sharding.model
    (rows, width) = sharding.residual_shape
    shares_end = model.parallel and not ends_layer
    if model.dropout:
        yield sharding.dropout("mlp.dropout" if ends_layer else "attention.out_dropout")
    # Each term is read, the sum written; backward adds to the norm's gradient.
    if model.streams > 1:
        yield from _streams(sharding, block, ends_layer)
    elif sharding.assumptions.traffic.residuals and not shares_end:
        terms = 3 if model.parallel else 2
        addition = elementwise_operation(
            f"{block}.residual", sharding.E, (terms + 1) * rows * width, rows * width
        )
        yield replace(addition, only_makes_output=ends_layer)
    for extra in range(model.norms // 2 - 1):
        yield sharding.norm(f"{block}.post_norm{extra or ''}", gather=False, returned=False)
    if shares_end and model.norms == 1:
        return
    # Attention's last layer is row-parallel whatever feeds its first ones; experts without shared ones have
    # no such layer.
    returned = (gather or ends_layer) and not shares_end
    block_norm = sharding.norm(f"{block}.norm", gather, returned)
    if sharding.assumptions.memory.norms_in_fp32 and ends_layer:
        copied = block_norm.saved_bytes - sharding.E * rows * width
        block_norm = replace(block_norm, copied_bytes=copied)
    if shares_end and not sharding.copies_norm_inputs:  # both norms of parallel blocks save one input
        block_norm = replace(block_norm, saved_bytes=block_norm.saved_bytes - sharding.E * rows * width)
    saves_input = ends_layer and model.streams == 1
    yield replace(
        block_norm, saves_layer_input=saves_input, role=block_norm.role if ends_layer else "attention norm"
    )


def joined_streams(sharding: Sharding) -> Iterator[Operation]:
    """Yield the weighted sum of the copies of the residual stream, which the last norm reads."""
    n = sharding.model.streams
    (rows, width) = sharding.residual_shape
    if n > 1:
        yield linear("head.stream_weights", sharding.plain_sizes, rows, n * width, n)
        moves = (n + 1) * rows * width
        small = n + 1 + 0.0 * sharding.plan.tp
        yield elementwise_operation(
            "head.streams", sharding.E, moves, (2 * n + 1) * rows * width, weights=small
        )


def _streams(sharding: Sharding, block: str, ends_layer: bool) -> Iterator[Operation]:
    """Yield what mixes the copies of the residual stream around a block (arXiv 2512.24880, section 4).

    A product of all n copies makes n weights of what the next block reads, n of what each copy gets of the
    block's result, and n x n that mix the copies. Forward writes all copies and what is read of them;
    backward reads and writes their gradients as well. Saved are the copies, which a stage sends to the next,
    and the block's result.
    """
    n = sharding.model.streams
    E = sharding.E
    (rows, width) = sharding.residual_shape
    wide = rows * n * width
    mixes = linear(f"{block}.stream_weights", sharding.plain_sizes, rows, n * width, n * (n + 2))
    yield replace(mixes, saves_layer_input=ends_layer, module="")
    product = Gemm(rows, n * n, width, layout="batched")
    gradients = Gemm(rows, 2 * n * n, width)
    forward = PassCount((product,), E * (3 * wide + 2 * rows * width))
    backward = PassCount((replace(gradients, layout="batched"),), E * (5 * wide + 3 * rows * width))
    small = sharding.model.stream_small_weights + 0.0 * sharding.plan.tp
    saved = E * rows * width
    yield Operation(f"{block}.streams", forward, backward, saved_bytes=saved, weights=small)


def attention_operations(sharding: Sharding, kind: Kind) -> Iterator[Operation]:
    """Yield attention of a kind of layer, from projection to projection."""
    model = sharding.model
    latent = model.latent
    yield from _queries_keys_values(sharding) if latent is None else _latent(sharding, latent, kind)
    if kind.compressed and model.compressed is not None and latent is not None:
        yield from compressor(sharding, kind, model.compressed, latent)
    if kind.mixer in ("indexed", "compressed-indexed") and model.indexer is not None:
        yield from indexer(sharding, kind, model.indexer)
    if exchange := sharding.exchange_heads():
        yield exchange
    # Recomputed up projections restore queries, keys and values.
    restores_inputs = model.latent is not None and "latent" in sharding.plan.recomputed
    for op in sharding.attention(kind):
        if restores_inputs and op.role == "core attention":
            inputs = sharding.E * sharding.heads(kind).input_elements
            op = replace(op, saved_bytes=op.saved_bytes - inputs, recomputed_bytes=inputs)
        yield op
    if kind.indexed and latent is not None:
        yield absorbed_projection(sharding, latent, "attention.v_up", latent.value_dim, into=False)
    if model.sinks:
        yield weights_without_work("attention.sinks", sharding.E, sharding.local(model.heads))
    if model.attention_gate:
        yield _attention_gate(sharding)
    if model.inner_norms:
        yield sharding.inner_norm("attention.inner_norm", model.heads * model.value_width)
    # Partial sums are reduced with those of what stands beside attention.
    is_one_of_two = model.parallel or kind.linear
    row_parallel = sharding.partial_row_parallel if is_one_of_two else sharding.row_parallel
    width = model.heads * model.value_width
    if latent is not None and latent.proj_rank is not None:  # group by group
        groups = sharding.local(latent.proj_groups)
        rank = latent.proj_rank
        T = sharding.tokens * groups
        i = width // latent.proj_groups
        yield linear("attention.group_proj", sharding.plain_sizes, T, i, rank, copies=groups)
        width = latent.proj_groups * rank
    projection = row_parallel("attention.proj", width, model.hidden)
    yield replace(projection, role="output projection")
    if "proj" in model.biases:
        yield sharding.row_parallel_bias("attention.proj_bias")


def cross_attention(sharding: Sharding, encoder: Encoder) -> Iterator[Operation]:
    """Yield attention to the encoder's result, projections included (arXiv 1706.03762, section 3.2.3).

    As in Megatron-LM (`CrossAttention`), queries, and keys with values, are column-parallel: each tensor rank
    has its heads for all tokens of the encoder, which it gathers in every layer with sequence parallelism.
    All layers of a stage save one copy of the encoder's result; stages pass it on.
    """
    model = sharding.model
    kv = sharding.kv_heads
    width = encoder.width or model.hidden
    result = replace(sharding, model=model.for_kind(ENCODER))
    keys_values = kv * (model.head_width + model.value_width)
    q = sharding.column_parallel("cross.q", model.hidden, model.heads * model.head_width)
    yield replace(q, recomputed_with="norms")
    to_kv = result.column_parallel("cross.kv", width, keys_values)
    gathered = replace(to_kv.forward, collectives=result.gather_narrow(width))
    rows = result.residual_shape[0]
    passed = sharding.E * rows * width
    layers = sum(kind.crosses for kind in model.pattern)
    yield replace(to_kv, forward=gathered, saved_bytes=passed / layers, passed_bytes=passed)
    if model.qkv_bias_width:
        queries = model.heads * model.head_width
        yield sharding.column_parallel_bias("cross.q_bias", queries)
        yield result.column_parallel_bias("cross.kv_bias", sharding.qkv_bias_width - queries)
    if encoder.qk_norm:  # of queries, and of keys
        for name, at, heads in (("q", sharding, model.heads), ("k", result, kv)):
            normed = at.tokens * at.local(heads)
            saved = at.norm_bytes(normed, model.head_width, 1)
            yield norm(f"cross.{name}_norm", at.E, normed, model.head_width, vectors=1, saved=saved)
    for op in sharding.attention(keys=encoder.seq):
        yield replace(op, name=op.name.replace("attention.", "cross.", 1))
    yield sharding.row_parallel("cross.proj", model.heads * model.value_width, model.hidden)
    if "proj" in model.biases:
        yield sharding.row_parallel_bias("cross.proj_bias")


def _queries_keys_values(sharding: Sharding) -> Iterator[Operation]:
    """Yield the projection to queries, keys and values, with their norms and rotary positions."""
    model = sharding.model
    q = sharding.model.head_width
    T = sharding.tokens
    kv = 0 if model.reuses_keys else sharding.kv_heads
    qkv = sharding.column_parallel("attention.qkv", model.hidden, sharding.qkv_width)
    yield replace(qkv, recomputed_with="norms", role="qkv")
    if model.qkv_bias_width:
        yield sharding.column_parallel_bias("attention.qkv_bias", sharding.qkv_bias_width)
    rotated = T * sharding.local((model.heads + kv) * q)  # queries and keys
    if model.qk_norm:
        weights = {
            "head": (2 - model.reuses_keys) * q,
            "full": sharding.local((model.heads + kv) * q),
            "plain": 0,
        }[model.qk_norm]
        rows = T * sharding.local(model.heads + kv)
        saved = sharding.norm_bytes(rows, q, model.qk_norm != "plain")
        normed = norm("attention.qk_norm", sharding.E, rows, q, vectors=1, saved=saved)
        yield replace(normed, weights=weights + 0.0 * sharding.plan.tp)
    if model.positions == "rotary":
        inputs = sharding.E * rotated * float(sharding.assumptions.memory.saves_rotated)
        yield replace(_rotation(sharding, rotated), saved_bytes=inputs)


def _rotation(sharding: Sharding, rotated: Column, module: str = "") -> Operation:
    """Return the rotation of so many elements of queries and keys by their positions.

    Without a fused kernel, frameworks rotate packed documents one by one, as each begins at position 0.
    """
    documents = sharding.model.documents
    passes = sharding.assumptions.traffic.rotation_passes
    op = elementwise_operation("attention.rotary", sharding.E, 2 * rotated, 2 * rotated, module=module)
    if sharding.model.qk_norm and sharding.assumptions.traffic.fuses_rotation:
        op = with_traffic(op, 0.0)
    elif nonzero(passes):
        op = replace(with_traffic(op, passes), has_framework_traffic=True)
    if documents is None or not documents.packed:
        return replace(op, pieces=1.0)
    in_sequence = sharding.model.seq / documents.mean(sharding.model.seq)
    return replace(op, pieces=sharding.plan.mbs * in_sequence, waits_for_lengths=True)


def _attention_gate(sharding: Sharding) -> Operation:
    """Return the gate of attention's result, y = o σ(g), element by element or one for each head.

    g are columns of the queries' projection (arXiv 2505.06708), with latent attention of one of their own.
    Forward reads o and g and writes y; backward reads them and dy, and writes do and dg. Saved are g, and o
    where fused attention does not save it itself.
    """
    model = sharding.model
    plan = sharding.plan
    elements = sharding.tokens * sharding.local(model.heads * model.value_width)
    attention_saves = plan.attention == "flash" and "attention" not in plan.recomputed
    gates = sharding.tokens * sharding.local(model.heads) if model.gate_per_head else elements
    results = (1 - (sharding.saved_results if attention_saves else 0)) * elements
    moves = 2 * elements + gates, 3 * elements + 2 * gates
    gate = elementwise_operation("attention.gate", sharding.E, *moves)
    return replace(gate, saved_bytes=sharding.E * (gates + results))


def _latent(sharding: Sharding, config: Latent, kind: Kind) -> Iterator[Operation]:
    """Yield the projections of multi-head latent attention (arXiv 2405.04434, section 2.1).

    Every tensor rank has all weights of the down projections and works on its own tokens; the narrow result
    is gathered. The up projections are column-parallel; where keys are selected, that of keys is applied to
    the queries.
    """
    model = sharding.model
    e = sharding.model.hidden
    h = sharding.model.heads
    T = sharding.tokens
    down = config.down
    up = config.nope_dim + config.value_dim

    def narrow_norm(name: str, width: int, gathered: int) -> Operation:
        comms = sharding.gather_narrow(gathered)
        rows = sharding.residual_shape[0]
        return norm(
            name, sharding.E, rows, width, comms, vectors=1, saved=sharding.norm_bytes(rows, width, 1)
        )

    if config.q_rank is not None:
        q_down = sharding.replicated_linear("attention.q_down", e, config.q_rank)
        yield replace(q_down, recomputed_with="norms", role="q_down")
        yield narrow_norm("attention.q_norm", config.q_rank, config.q_rank)
    q_up = sharding.column_parallel("attention.q_up", config.q_rank or e, h * model.head_width)
    yield replace(q_up, module="latent", role="q_up")
    if config.shared:  # without weights
        rows = T * sharding.local(h)
        saved = sharding.norm_bytes(rows, model.head_width, 0)
        normed = norm("attention.q_head_norm", sharding.E, rows, model.head_width, vectors=0, saved=saved)
        yield replace(normed, module="latent")
    # The queries' projection saves the same input.
    kv_down = sharding.replicated_linear("attention.kv_down", e, down)
    yield replace(kv_down, saved_bytes=0 * sharding.E, role="kv_down")
    yield narrow_norm("attention.kv_norm", config.kv_rank, down)
    if config.shared:
        pass
    elif kind.indexed:
        yield replace(
            absorbed_projection(sharding, config, "attention.k_up", config.nope_dim, into=True),
            module="latent",
        )
    else:
        kv_up = sharding.column_parallel("attention.kv_up", config.kv_rank, h * up)
        yield replace(kv_up, module="latent", role="kv_up")
    if model.attention_gate:  # one number for each head, on every tensor rank
        gates = sharding.replicated_linear("attention.gate_proj", e, h)
        made = replace(gates.forward, collectives=(*gates.forward.collectives, *sharding.gather_narrow(h)))
        yield replace(gates, forward=made, saved_bytes=0 * gates.saved_bytes)
    # Rotated are the queries, and the one key that all heads share.
    rotated = T * sharding.local(h) * config.rope_dim + T * config.rope_dim
    yield _rotation(sharding, rotated, module="latent")


def _as_fused(op: Operation, assumed: Assumptions) -> Operation:
    """Return the operation with the memory traffic that a framework's kernels make of elementwise work."""
    is_elementwise = op.forward.kernels and all(kernel.unit == "vector" for kernel in op.forward.kernels)
    if op.has_framework_traffic or not is_elementwise:
        return op
    if assumed.traffic.fuses_additions and op.fused_with_neighbour:
        # The kernel before or after reads and writes the same elements; only a mask is written in addition.
        op = replace(op, forward=replace(op.forward, nbytes=op.saved_bytes))
    return with_traffic(op, assumed.traffic.elementwise_passes)
