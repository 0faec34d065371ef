"""The MLP of a layer, gated or not."""

from collections.abc import Iterator
from dataclasses import replace

from traincast.core.model import Model
from traincast.operations.elementwise import activation
from traincast.operations.operation import Operation
from traincast.operations.sharding import Sharding


def mlp(
    model: Model, sharding: Sharding, f: int, name: str = "mlp", ends_layer: bool = True
) -> Iterator[Operation]:
    """Yield the MLP of one layer: up projection from e to f, activation, down projection to e."""
    e, wide = model.hidden, model.up_projections * f
    inner = sharding.tokens * sharding.local(f)
    up = sharding.column_parallel(f"{name}.fc1", e, wide)
    yield replace(up, module="mlp", recomputed_with="norms", role="up projection")
    if "mlp" in model.biases:
        yield sharding.column_parallel_bias(f"{name}.fc1_bias", wide)
    activated = activation(f"{name}.{model.mlp}", sharding.E, inner, model.up_projections)
    yield replace(activated, saved_bytes=activated.saved_bytes + sharding.gate_bytes(inner))
    if model.dropout and model.inner_dropout:
        yield replace(sharding.dropout(f"{name}.inner_dropout", inner), module="activation")
    down = sharding.row_parallel(f"{name}.fc2", f, e)
    yield replace(down, recomputed_with="activation", role="down projection", only_makes_output=ends_layer)
    if "mlp" in model.biases:
        yield replace(
            sharding.row_parallel_bias(f"{name}.fc2_bias", ends_layer), only_makes_output=ends_layer
        )
