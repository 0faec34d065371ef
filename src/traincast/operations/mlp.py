"""The MLP of a layer, gated or not."""

from collections.abc import Iterator
from dataclasses import replace

from traincast.core.model import Model
from traincast.operations.elementwise import activation
from traincast.operations.operation import Operation
from traincast.operations.sharding import Sharding


def mlp(model: Model, rank: Sharding, f: int, name: str = "mlp") -> Iterator[Operation]:
    """MLP of one layer: widen from e to f, activation, back to e.

    Parameters
    ----------
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.
    f : int
        Inner width.
    name : str
        First part of the operations' names.

    Yields
    ------
    Operation
        In execution order.
    """
    e, wide = model.hidden, model.up_projections * f
    inner = rank.tokens * rank.cut(f)
    yield replace(rank.linear_in(f"{name}.fc1", e, wide), module="mlp", recomputed_with="norms")
    if "mlp" in model.biases:
        yield rank.bias(f"{name}.fc1", wide)
    acted = activation(f"{name}.{model.mlp}", rank.E, inner, model.up_projections)
    yield replace(acted, saved_bytes=acted.saved_bytes + rank.gate_bytes(inner))
    if model.dropout and model.inner_dropout:
        yield replace(rank.dropout(f"{name}.inner_dropout", inner), module="activation")
    yield replace(rank.linear_out(f"{name}.fc2", f, e), recomputed_with="activation")
    if "mlp" in model.biases:
        yield rank.bias(f"{name}.fc2")
