"""The transformer layer as a list of operations, in the order of arXiv 2410.00273, operations of a layer."""

from collections.abc import Iterator
from dataclasses import replace

from traincast.assumptions import Assumptions
from traincast.model import Model
from traincast.operations.base import Operation
from traincast.operations.dense import activation
from traincast.operations.sharding import Sharding, sharding
from traincast.plan import Plans


def layer(model: Model, plan: Plans, assumptions: Assumptions) -> tuple[Operation, ...]:
    """Operations of one layer, per rank and micro-batch (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    model : Model
        The transformer.
    plan : Plans
        Plans, one or columns of them; only the degrees inside a layer matter (tp, tp2, cp, mbs, panels).
    assumptions : Assumptions
        Sizes of elements.

    Returns
    -------
    tuple of Operation
        MLP, then attention, each ended by its norm.
    """
    rank = sharding(model, plan, assumptions)
    return (*mlp(model, rank), *attention(model, rank))


def mlp(model: Model, rank: Sharding) -> Iterator[Operation]:
    """MLP of one layer: widen from e to f, GELU, back to e.

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.

    Yields
    ------
    Operation
        In execution order; the last is the norm, whose saved input pipeline stages pass on.
    """
    e, f = model.hidden, model.ffn
    yield rank.linear_in("mlp.fc1", e, f)
    yield rank.bias("mlp.fc1")
    yield activation("mlp.gelu", rank.E, rank.inner)
    yield rank.dropout("mlp.inner_dropout", rank.inner)
    yield rank.linear_out("mlp.fc2", f, e)
    yield rank.bias("mlp.fc2")
    yield rank.dropout("mlp.dropout")
    yield replace(rank.norm("mlp.norm"), passed_on=True)


def attention(model: Model, rank: Sharding) -> Iterator[Operation]:
    """Attention of one layer: queries, keys and values, core attention, output projection.

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.

    Yields
    ------
    Operation
        In execution order; the last is the norm.
    """
    e = model.hidden
    yield rank.linear_in("attention.qkv", e, 3 * e)
    yield from rank.attention()
    yield rank.linear_out("attention.proj", e, e)
    yield rank.bias("attention.proj")
    yield rank.dropout("attention.out_dropout")
    yield rank.norm("attention.norm")
