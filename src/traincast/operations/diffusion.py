"""What transformers for diffusion have besides: adaptive norms, and the ends that read and write latents.

A product of the conditions of a sample, one row for each, gives the vectors of adaptive norms (arXiv
2212.09748, section 3.2). It is column-parallel; its narrow result is not worth a collective. Scale and shift
follow a norm, the gate a block. Each saves what it multiplies.
"""

from collections.abc import Iterator

from traincast.core import Column, replace
from traincast.model import Diffusion, Kind
from traincast.operations import elementwise
from traincast.operations.linear import linear
from traincast.operations.operation import Operation
from traincast.operations.sharding import Sharding


def modulation(
    sharding: Sharding, diffusion: Diffusion, kind: Kind, streams: tuple[Sharding, ...]
) -> Iterator[Operation]:
    """Yield the product that makes the vectors of a layer, and their use in each of the streams."""
    vectors = diffusion.vectors(kind)
    E = sharding.E
    e = sharding.model.hidden
    if not diffusion.shared:
        yield from _of_sample(sharding, "modulation", vectors * e)
    blocks = vectors // 3 / len(streams)  # attention and MLP, or both as one
    for stream in streams:
        rows, width = stream.residual_shape
        n = blocks * rows * width
        for name in ("modulation.scale", "modulation.gate"):
            used = elementwise.elementwise_operation(
                name, E, 2 * n, 3 * n, module="norms" if "scale" in name else ""
            )
            yield replace(used, saved_bytes=E * n)


def _of_sample(sharding: Sharding, name: str, width: int, inputs: int | None = None) -> Iterator[Operation]:
    """Yield a linear layer with one row for each sample, and its bias."""
    E = sharding.E
    rows = sharding.plan.mbs
    local = sharding.local(width)
    yield linear(f"{name}.linear", sharding.plain_sizes, rows, inputs or sharding.model.hidden, local)
    yield elementwise.bias(f"{name}.bias", E, rows, local)


def embedding(sharding: Sharding, diffusion: Diffusion) -> Iterator[Operation]:
    """Yield the embedding of latents, of text and of the conditions of a sample."""
    model = sharding.model
    plan = sharding.plan
    text = diffusion.text or (model.encoder.seq if model.encoder is not None else 0)
    shards = plan.context * (plan.tp if plan.sp else 1)
    rows = {"image": _rows_of_image(sharding, diffusion), "text": plan.mbs * (text // shards)}
    ends = model.diffusion_ends
    for name, layers in (("image", ends["image"][:1]), ("text", ends["text"])):
        for number, (i, o) in enumerate(layers, 1):
            yield linear(f"embedding.{name}{number}", sharding.plain_sizes, rows[name], i, o)
            yield elementwise.bias(f"embedding.{name}{number}_bias", sharding.E, rows[name], o)
    sampled = ends["sample"][:-1] if diffusion.final else ends["sample"]
    for number, (i, o) in enumerate(sampled, 1):
        yield from _of_sample(sharding, f"embedding.condition{number}", o, i)


def _rows_of_image(sharding: Sharding, diffusion: Diffusion) -> Column:
    """Return the patches of images on the rank, between blocks."""
    model = sharding.model
    plan = sharding.plan
    return plan.mbs * ((model.seq - diffusion.text) // (plan.context * (plan.tp if plan.sp else 1)))


def head(sharding: Sharding, diffusion: Diffusion) -> Iterator[Operation]:
    """Yield the last norm and the prediction of latents; the squared error is not counted."""
    rows = _rows_of_image(sharding, diffusion)
    (i, o) = sharding.model.diffusion_ends["image"][1]
    yield sharding.norm("head.norm", gather=False)
    if diffusion.final:
        yield from _of_sample(sharding, "head.modulation", sharding.model.diffusion_ends["sample"][-1][1])
    yield linear("head.projection", sharding.plain_sizes, rows, i, o)
    yield elementwise.bias("head.bias", sharding.E, rows, o)
