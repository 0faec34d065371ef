"""Embedding, head with its loss, and multi-token prediction: what is before and after the layers."""

from collections.abc import Iterator
from typing import Final

from traincast.core import Column, replace
from traincast.operations import elementwise, linear
from traincast.operations.operation import Collective, Operation, PassCount, Vector
from traincast.operations.sharding import Sharding

LOSS_SHARE_FORWARD: Final = 1 / 3  # forward's share of the loss's memory traffic (assumed)


def vocabulary(sharding: Sharding) -> Column:
    """Return the rows of the embedding on a rank; the vocabulary is padded to a multiple."""
    multiple = sharding.assumptions.memory.vocab_multiple
    return -(-(sharding.model.vocab or 0) // (multiple * sharding.plan.tp)) * multiple


def embedding(sharding: Sharding, frame: int | None = None, shared: bool = False) -> Iterator[Operation]:
    """Yield the embedding of tokens (or of image patches, or of frames of sound) and of learned positions.

    An embedding in a width of its own is projected to that of the layers on the rank's own tokens. The matrix
    of tokens can be `shared` with a part before.
    """
    model = sharding.model
    (rows, width) = sharding.residual_shape
    own = model.own_width
    e = model.hidden if own is None else own.width
    narrow = width if own is None else e  # of the rank's rows before the projection
    positions = e if own is None or not own.wide_positions else model.hidden
    if model.patch is not None:
        projection = linear.linear("embedding.patches", sharding.plain_sizes, rows, model.patch, width)
        yield replace(projection, backward=PassCount((), 0 * projection.forward.nbytes))  # pixels need none
        yield elementwise.bias("embedding.patches_bias", sharding.E, rows, width)
    elif frame is not None:
        yield from _convolutions(sharding, frame)
    else:
        tokens = sharding.tokens
        local = vocabulary(sharding)
        lookup = elementwise.elementwise_operation(
            "embedding.tokens", sharding.E, 2 * tokens * e, 3 * tokens * e, weights=local * e * (not shared)
        )
        forward, backward = sharding.partial_sum_comms(e)
        yield replace(
            lookup,
            forward=replace(lookup.forward, collectives=forward),
            backward=replace(lookup.backward, collectives=backward),
        )
    if model.positions == "learned":
        table = (model.max_positions or model.seq) * positions
        yield elementwise.elementwise_operation(
            "embedding.positions", sharding.E, 3 * rows * narrow, rows * narrow, weights=table + 0 * rows
        )
    if model.token_types:
        table = model.token_types * e
        yield elementwise.elementwise_operation(
            "embedding.token_types", sharding.E, 3 * rows * narrow, rows * narrow, weights=table + 0 * rows
        )
    if model.embedding_norm:
        yield _norm(sharding, "embedding.norm", own.width if own else None)
    if own is not None:
        yield from _own_projection(sharding, "embedding", own.width, model.hidden, own.bias)
    if model.dropout:
        yield sharding.dropout("embedding.dropout")


def _convolutions(sharding: Sharding, frame: int) -> Iterator[Operation]:
    """Yield the two convolutions of three frames, the second with a step of two, each with bias and GELU."""
    (rows, width), sizes = sharding.residual_shape, sharding.plain_sizes
    for name, n, inputs in (("conv1", 2 * rows, frame), ("conv2", rows, sharding.model.hidden)):
        yield linear.linear(f"embedding.{name}", sizes, n, 3 * inputs, width)
        yield elementwise.bias(f"embedding.{name}_bias", sharding.E, n, width)
        yield elementwise.activation(f"embedding.{name}_gelu", sharding.E, n * width)


def _norm(sharding: Sharding, name: str, width: int | None) -> Operation:
    """Return a norm of the rank's own tokens, in a width of its own if it has one."""
    if width is None:
        return sharding.norm(name, gather=False, returned=False)
    rows = sharding.residual_shape[0]
    vectors = sharding.model.norm_vectors
    return elementwise.norm(name, sharding.E, rows, width, vectors=vectors)


def _own_projection(
    sharding: Sharding, block: str, inputs: int, outputs: int, biased: bool
) -> Iterator[Operation]:
    """Yield the projection between the width of embedding or head and that of the layers."""
    yield sharding.replicated_linear(f"{block}.own_width", inputs, outputs)
    if biased:
        yield elementwise.bias(f"{block}.own_width_bias", sharding.E, sharding.residual_shape[0], outputs)


def decoder_embedding(sharding: Sharding, encoder: Sharding) -> Iterator[Operation]:
    """Yield what stands between encoder and decoder: the encoder's final norm, the decoder's embedding."""
    if sharding.model.final_norm:
        end = encoder.norm("encoder.norm", gather=False, returned=False)
        yield end
    for op in embedding(sharding, shared=not sharding.model.reads_audio):
        yield replace(op, name=f"decoder_{op.name}")


def head(sharding: Sharding, shared: bool = False) -> Iterator[Operation]:
    """Yield the final norm, the projection onto the vocabulary, and the loss.

    A dense layer before the projection works on the rank's own tokens, whose results are gathered.
    """
    model, (rows, width), own = sharding.model, sharding.residual_shape, sharding.model.own_width
    inputs = model.hidden if own is None else own.head_width or own.width
    changed = not model.head or model.head_transform or own is not None
    if model.final_norm:
        yield sharding.norm("head.norm", gather=not changed)
    if not model.head:
        return
    if model.head_transform:
        width = width if own is None else inputs
        yield sharding.replicated_linear("head.transform", model.hidden, inputs)
        if model.transform_bias:
            yield elementwise.bias("head.transform_bias", sharding.E, rows, width)
        yield elementwise.activation(f"head.{model.mlp}", sharding.E, rows * width)
        yield (
            sharding.norm("head.transform_norm")
            if own is None
            else _norm(sharding, "head.transform_norm", inputs)
        )
    elif own is not None:
        yield from _own_projection(sharding, "head", model.hidden, inputs, own.bias)
    if model.vocab is None:
        yield elementwise.weights_without_work(
            "head.classes", sharding.E, (model.classes or 0) * (model.hidden + 1) + 0.0 * sharding.tokens
        )
        return
    local = vocabulary(sharding)
    projection = replace(sharding.projection("head.projection", local, inputs), role="head")
    projection = replace(projection, gradient_bytes=0 * projection.gradient_bytes)  # of logits: in the loss
    yield replace(projection, weights=0 * projection.weights) if shared or model.tied else projection
    if model.head_bias:
        bias = elementwise.bias("head.bias", sharding.E, sharding.tokens, local)
        yield replace(bias, weights=0 * bias.weights) if shared else bias
    yield loss(sharding, sharding.tokens * local)


def loss(sharding: Sharding, logits: Column) -> Operation:
    """Return the cross-entropy on vocabulary-parallel logits; three numbers of a token are all-reduced."""
    # 16 bits are two
    assumed = sharding.assumptions
    byte = sharding.assumptions.memory.element_bytes / 2
    nbytes = assumed.traffic.loss_bytes * byte * logits
    peak = assumed.memory.logit_bytes * sharding.plan.recipe.width * byte * logits
    three_numbers = (Collective("all-reduce", 3 * 4 * byte * sharding.tokens, "tp"),)  # fp32, of a token
    # 4 FLOP per logit forward: largest, difference, exponential, sum; 2 backward: softmax less the target
    forward = PassCount((Vector(4 * logits),), LOSS_SHARE_FORWARD * nbytes, three_numbers)
    backward = PassCount((Vector(2 * logits),), (1 - LOSS_SHARE_FORWARD) * nbytes)
    return Operation("head.loss", forward, backward, peak_bytes=peak)


def tied_weights(sharding: Sharding) -> Operation:
    """Return the last stage's copy of the embedding's weights, if head or mtp share them across stages.

    A device that has both ends of the model has one copy (DeepSeek-V3: arXiv 2412.19437, section 3.2.3).
    """
    own = sharding.model.own_width
    weights = vocabulary(sharding) * (sharding.model.hidden if own is None else own.width)
    return elementwise.weights_without_work("head.tied", sharding.E, weights)


def mtp(sharding: Sharding) -> Iterator[Operation]:
    """Yield what joins state and next token's embedding in an mtp module, before its layer and head.

    The order is that of arXiv 2412.19437, section 2.2.
    """
    yield sharding.norm("mtp.state_norm")
    yield sharding.norm("mtp.embedding_norm")
    yield sharding.column_parallel("mtp.join", 2 * sharding.model.hidden, sharding.model.hidden)
