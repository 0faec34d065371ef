"""Vision towers: patches, layers and projectors of the images of a micro-batch, before the first layer.

As in Megatron-LM (examples/multimodal/model.py) a tower has the tensor parallelism of the language model,
without sequence parallelism, and each context-parallel rank reads all images. Images are cut into patches
beforehand, and pixels need no gradient. A frozen tower, or any beside adapters, runs forward alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from traincast.core import Assumptions, Plans
from traincast.model import PATCHES, PROJECTOR, TOWER_PREFIX, Model, Projector, Tower
from traincast.operations import elementwise
from traincast.operations.adapters import freeze, without_backward
from traincast.operations.linear import linear
from traincast.operations.operation import Operation
from traincast.operations.sharding import Sharding, sharding_of


def patches(sharding: Sharding, tower: Tower) -> Iterator[Operation]:
    """Yield the embedding of patches, and the addition of positions."""
    rows, width = sharding.residual_shape
    embedded = linear("patches.embedding", sharding.plain_sizes, rows, tower.patch, width)
    yield without_backward(embedded, keeps_weights=True)
    if tower.patch_bias:
        yield elementwise.bias("patches.bias", sharding.E, rows, width)
    table = tower.small_weights + 0 * rows
    yield elementwise.elementwise_operation(
        "patches.positions", sharding.E, 3 * rows * width, rows * width, weights=table
    )


def projector(sharding: Sharding, layers: Projector, name: str) -> Iterator[Operation]:
    """Yield norm and linear layers: two are column- and row-parallel, one alone is replicated."""
    E = sharding.E
    rows = sharding.tokens
    if layers.norm:
        normed = elementwise.norm(f"{name}.norm", E, rows, layers.widths[0])
        yield replace(normed, weights=layers.norm + 0 * rows)
    (i, o), *second = layers.layers
    inner = sharding.local(o) if second else o + 0 * rows
    alone = linear(f"{name}.fc1", sharding.sizes, rows, i, o)
    yield sharding.column_parallel(f"{name}.fc1", i, o) if second else alone
    if layers.biased:
        yield elementwise.bias(f"{name}.fc1_bias", E, rows, inner)
    if second:
        ((i, o),) = second
        gates = 1 + layers.gated
        yield elementwise.activation(f"{name}.activation", E, rows * inner // gates, gates)
        yield sharding.row_parallel(f"{name}.fc2", i, o)
        if layers.biased:
            yield elementwise.bias(f"{name}.fc2_bias", E, rows, o + 0 * rows)


def tower_plan(plan: Plans, tower: Tower) -> Plans:
    """Return the plans as they shard the tower: each image is a sequence of its own."""
    images = plan.mbs * tower.images
    return replace(plan, mbs=images, sp=False, cp=1.0, cp_kind="none", ulysses=1.0, tp_overlap=False)


def tower_parts(
    model: Model,
    tower: Tower,
    plan: Plans,
    assumptions: Assumptions,
    layers: dict[str, tuple[Operation, ...]],
) -> dict[str, tuple[Operation, ...]]:
    """Return the parts of the tower by name; `layers` are the operations of its kinds of layers."""
    cut = tower_plan(plan, tower)
    reads = sharding_of(tower.model, cut, assumptions)
    projects = sharding_of(replace(tower.model, seq=tower.tokens), cut, assumptions)
    parts: dict[str, tuple[Operation, ...]] = {PATCHES: tuple(patches(reads, tower))}
    parts |= {TOWER_PREFIX + kind: operations for kind, operations in layers.items()}
    if tower.frozen or model.adapters is not None:
        parts = {name: _frozen(reads, operations) for name, operations in parts.items()}
    projected = [
        op
        for number, part in enumerate(tower.projectors, 1)
        for op in projector(projects, part, f"{PROJECTOR}{number if number > 1 else ''}")
    ]
    if projected:
        placed = 2 * projects.tokens * model.hidden
        projected.append(elementwise.elementwise_operation(f"{PROJECTOR}.placed", projects.E, placed, placed))
        parts[PROJECTOR] = tuple(projected) if model.adapters is None else _frozen(reads, projected)
    return parts


def _frozen(sharding: Sharding, operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return operations that run forward alone."""
    return tuple(freeze(sharding, operations, always=True))
