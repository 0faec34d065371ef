"""What stands before the first layer and after the last: embedding, head with its loss, multi-token prediction."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from traincast.core.model import Model
from traincast.core.quantities import Column
from traincast.operations import elementwise, linear
from traincast.operations.operation import Collective, Operation, PassCount, Vector
from traincast.operations.sharding import Sharding

LOSS_SHARE_FORWARD: Final = 1 / 3  # of the traffic of the loss (assumed)


def vocabulary(model: Model, rank: Sharding) -> Column:
    """Rows of the vocabulary's matrix on a rank: the vocabulary is padded so that every rank has the same whole multiple.

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.

    Returns
    -------
    Column
        Rows; a column over plans.
    """
    multiple = rank.assumptions.vocab_multiple
    return -(-(model.vocab or 0) // (multiple * rank.plan.tp)) * multiple


def embedding(model: Model, rank: Sharding) -> Iterator[Operation]:
    """Embedding of tokens (or of image patches) and learned positions.

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
    e, (rows, width) = model.hidden, rank.boundary
    if model.patch is not None:
        yield linear.linear("embedding.patches", rank.plain_sizes, rows, model.patch, width)
        yield elementwise.bias("embedding.patches_bias", rank.E, rows, width)
    else:
        tokens, local = rank.tokens, vocabulary(model, rank)
        looked = elementwise.moved("embedding.tokens", rank.E, 2 * tokens * e, 3 * tokens * e, weights=local * e)
        forward, backward = rank.summed(e)
        yield replace(
            looked,
            forward=PassCount(looked.forward.kernels, looked.forward.nbytes, forward),
            backward=PassCount(looked.backward.kernels, looked.backward.nbytes, backward),
        )
    if model.positions == "learned":
        table = (model.max_positions or model.seq) * e
        yield elementwise.moved("embedding.positions", rank.E, 3 * rows * width, rows * width, weights=table + 0 * rows)
    if model.dropout:
        yield rank.dropout("embedding.dropout")


def head(model: Model, rank: Sharding, shared: bool = False) -> Iterator[Operation]:
    """Final norm, output projection onto the vocabulary, and the loss.

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.
    shared : bool
        Whether the projection's weights are another part's.

    Yields
    ------
    Operation
        In execution order.
    """
    yield rank.norm("head.norm")
    if model.vocab is None:
        yield elementwise.held("head.classes", rank.E, (model.classes or 0) * (model.hidden + 1) + 0.0 * rank.tokens)
        return
    local = vocabulary(model, rank)
    projection = rank.projection("head.projection", local)
    yield replace(projection, weights=0 * projection.weights) if shared or model.tied else projection
    yield loss(rank, rank.tokens * local)


def loss(rank: Sharding, logits: Column) -> Operation:
    """Cross-entropy on logits cut over tensor ranks: the largest, the sum and the target's logit of a token are all-reduced.

    Parameters
    ----------
    rank : Sharding
        What one rank holds.
    logits : Column
        Logits on the rank.

    Returns
    -------
    Operation
        Its time is that of its memory traffic.
    """
    byte = rank.assumptions.element_bytes / 2  # an element of 16 bits has two
    nbytes, peak = (
        rank.assumptions.loss_bytes * byte * logits,
        rank.assumptions.logit_bytes * rank.plan.recipe.width * byte * logits,
    )
    three = (Collective("all-reduce", 3 * 4 * byte * rank.tokens, "tp"),)  # three fp32 numbers of a token
    forward, backward = LOSS_SHARE_FORWARD * nbytes, (1 - LOSS_SHARE_FORWARD) * nbytes
    # 4 FLOP a logit forward: largest, difference, exponential, sum; 2 backward: softmax less the target
    return Operation(
        "head.loss", PassCount((Vector(4 * logits),), forward, three), PassCount((Vector(2 * logits),), backward), peak_bytes=peak
    )


def tied(model: Model, rank: Sharding) -> Iterator[Operation]:
    """The last stage's copy of the embedding's weights, where head or multi-token prediction share them with another stage.

    A device that has both ends of the model has one copy (DeepSeek-V3: arXiv 2412.19437, section 3.2.3).

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.

    Yields
    ------
    Operation
        One without work.
    """
    yield elementwise.held("head.tied", rank.E, vocabulary(model, rank) * model.hidden)


def mtp(model: Model, rank: Sharding) -> Iterator[Operation]:
    """What a multi-token-prediction module has beside its layer and head: the state and the next token's embedding, joined.

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.

    Yields
    ------
    Operation
        In execution order (arXiv 2412.19437, section 2.2).
    """
    yield rank.norm("mtp.state_norm")
    yield rank.norm("mtp.embedding_norm")
    yield rank.linear_in("mtp.join", 2 * model.hidden, model.hidden)
