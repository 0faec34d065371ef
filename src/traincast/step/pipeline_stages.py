"""Which layers a pipeline stage holds: embedding first, head last, and the layers as evenly between them as they divide.

A device of the pipeline is described by how many of every part of the model it holds: kinds of layers, embedding, head. Of the pp
devices only those can be the slowest or the fullest that no earlier one matches part by part. They are all that formulas over
millions of plans look at: `Stages` lists them, padded to the same number for all plans.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np

from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plans
from traincast.core.plan_choices import chunks
from traincast.core.quantities import Column

MOST_CHUNKS: Final = 1 << 20  # of one device; tells pairs of numbers apart by one
ENDS: Final = ("embedding", "head", "tied", "mtp")
Counts = Mapping[str, Column]


@dataclass(frozen=True)
class PipelineDevice:
    """What one device of a pipeline holds.

    Parameters
    ----------
    position : int
        Its place in the pipeline, from 0.
    work : mapping of str to float
        Parts that a micro-batch passes on it.
    held : mapping of str to float
        Parts whose weights it has: the same, but twice as many where a schedule runs both ways.
    """

    position: int
    work: Mapping[str, float]
    held: Mapping[str, float]


@dataclass(frozen=True)
class Stages:
    """Devices that can be the slowest or the fullest, for columns of plans.

    Parameters
    ----------
    position : tuple of Column
        Place of each device in its pipeline.
    work, held : tuple of mapping of str to Column
        Parts of each device, as in `PipelineDevice`.
    whole : mapping of str to float
        Parts of the whole model.
    """

    position: tuple[Column, ...]
    work: tuple[Counts, ...]
    held: tuple[Counts, ...]
    whole: Mapping[str, float]

    def take(self, rows: Any) -> "Stages":
        """Rows of the columns, by a numpy index."""

        def taken(counts: Counts) -> Counts:
            return {part: column if isinstance(column, float) else column[rows] for part, column in counts.items()}

        position = taken({str(i): column for i, column in enumerate(self.position)})
        return Stages(tuple(position.values()), tuple(map(taken, self.work)), tuple(map(taken, self.held)), self.whole)


def end_layers(model: Model) -> int:
    """Layers that the head (and multi-token prediction) weigh, by the parameters a token meets; 0 where they are not counted."""
    if model.vocab is None:
        return 0
    layer = model.layer_parameters(active=True) / model.layers
    head = model.vocab * model.hidden
    return round((head + model.mtp * (layer + head)) / layer)


def split(layers: int, number: int, end: int = 0) -> tuple[int, ...]:
    """Layers of every chunk so that chunks are as even as they divide, the head counted as so many layers of the last.

    Frameworks count so where they account for embedding and loss in the split. What does not divide makes later chunks longer,
    since they have fewer micro-batches in flight.

    Parameters
    ----------
    layers, number : int
        Layers of the model, chunks they are cut into.
    end : int
        Layers that the head weighs.

    Returns
    -------
    tuple of int
        Layers of each chunk, in order.

    Examples
    --------
    >>> split(126, 16, end=1)
    (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    >>> split(61, 16, end=4)
    (4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1)
    """
    if number == 1:
        return (layers,)
    last = max(-(-(layers + end) // number) - end, 0)
    each, more = divmod(layers - last, number - 1)
    return (*[each] * (number - 1 - more), *[each + 1] * more, last)


def devices(model: Model, pp: int, chunks_per_device: int, schedule: str = "1f1b", layout: str = "") -> tuple[PipelineDevice, ...]:
    """Every device of a pipeline.

    Parameters
    ----------
    model : Model
        The transformer.
    pp, chunks_per_device : int
        Devices, and model chunks of each.
    schedule : str
        The schedule; it decides which chunks a device has.
    layout : str
        Layers of every chunk; balanced where empty.

    Returns
    -------
    tuple of PipelineDevice
        First to last.

    Raises
    ------
    InputError
        If a layout does not have a number for each chunk, or not all of the layers.
    """
    held = contents(model, pp, chunks_per_device, layout)
    own = [sum((held[chunk] for chunk in _chunks(i, pp, chunks_per_device, schedule)), Counter[str]()) for i in range(pp)]
    if schedule == "dualpipe":  # stage i of one direction, pp - 1 - i of the other, for half the micro-batches (arXiv 2412.19437)
        own = [own[i] + own[pp - 1 - i] for i in range(pp)]
    for one in own:
        if one["embedding"]:  # the device has the matrix already
            del one["tied"]
    if schedule == "dualpipe":
        return tuple(PipelineDevice(i, {part: n / 2 for part, n in one.items()}, dict(one)) for i, one in enumerate(own))
    return tuple(PipelineDevice(i, dict(one), dict(one)) for i, one in enumerate(own))


def contents(model: Model, pp: int, chunks_per_device: int, layout: str = "") -> list[Counter[str]]:
    """Parts in every chunk of the model, first to last; arguments and errors as for `devices`."""
    number = pp * chunks_per_device
    cut = chunks(layout) if layout else split(model.layers, number, end_layers(model))
    if len(cut) != number or sum(cut) != model.layers:
        wanted = f"{number} numbers of layers that add up to {model.layers} are wanted"
        raise InputError("plan", [f"layout = {layout}: {wanted} (pp = {pp}, {chunks_per_device} chunks each)"])
    ends = np.cumsum((0, *cut))
    held = [Counter(map(str, model.pattern[low:high])) for low, high in pairwise(ends)]
    held[0].update(_first(model))
    held[-1].update(_last(model, several=number > 1))
    return held


def _chunks(device: int, pp: int, per_device: int, schedule: str) -> Sequence[int]:
    """The model chunks of a device."""
    if schedule == "zb-v":  # there and back again
        return (device, 2 * pp - 1 - device)
    return range(device, pp * per_device, pp)


def _first(model: Model) -> dict[str, int]:
    """Parts before the first layer."""
    return {} if model.vocab is None and model.patch is None else {"embedding": 1}


def _last(model: Model, several: bool) -> dict[str, int]:
    """Parts after the last layer."""
    ends = {} if model.vocab is None and model.patch is None else {"head": 1}
    if (model.tied or model.mtp) and model.vocab is not None and several:  # a copy of the embedding's weights
        ends["tied"] = 1
    return ends | ({"mtp": model.mtp} if model.mtp else {})


def every_device(all_of_them: Sequence[PipelineDevice]) -> Stages:
    """All devices of one pipeline, none left out; `whole` is empty.

    Parameters
    ----------
    all_of_them : sequence of PipelineDevice
        First to last.

    Returns
    -------
    Stages
        Numbers, not columns.
    """
    return Stages(
        tuple(float(one.position) for one in all_of_them),
        tuple(one.work for one in all_of_them),
        tuple(one.held for one in all_of_them),
        {},
    )


def with_load(plan: Plans, model: Model) -> Plans:
    """The plans with the load of the fullest expert-parallel rank.

    Parameters
    ----------
    plan : Plans
        Plans.
    model : Model
        Says how unevenly its experts are loaded.

    Returns
    -------
    Plans
        The same plans.
    """
    if model.experts is None:
        return plan
    degrees, row = np.unique(np.asarray(plan.ep), return_inverse=True)
    load = np.array([model.experts.fullest(int(ep)) for ep in degrees])[row].reshape(np.shape(plan.ep))
    return replace(plan, load=load if load.ndim else float(load))


@lru_cache(maxsize=65536)
def distinct_devices(model: Model, pp: int, chunks_per_device: int, schedule: str, layout: str) -> tuple[PipelineDevice, ...]:
    """Devices that hold something and that no earlier one matches part by part; arguments as for `devices`."""
    kept: list[PipelineDevice] = []
    for one in devices(model, pp, chunks_per_device, schedule, layout):
        if one.held and not any(all(other.held.get(part, 0) >= n for part, n in one.held.items()) for other in kept):
            kept.append(one)
    return tuple(kept)


def stages(model: Model, plan: Plans) -> Stages:
    """Devices that decide time and memory, for columns of plans.

    Parameters
    ----------
    model : Model
        The transformer.
    plan : Plans
        Plans; only pp, vp, the schedule and the layout matter.

    Returns
    -------
    Stages
        Columns in the rows of pp and vp.
    """
    pp, v = np.broadcast_arrays(np.asarray(plan.pp, float), np.asarray(plan.vp, float))
    key, row = np.unique(pp.ravel() * MOST_CHUNKS + v.ravel(), return_inverse=True)
    pairs = [(int(one // MOST_CHUNKS), int(one % MOST_CHUNKS)) for one in key]
    telling = [distinct_devices(model, a, b, plan.schedule, plan.layout) for a, b in pairs] or [
        (PipelineDevice(0, {}, {}),)
    ]  # no rows
    most = max(map(len, telling))
    padded = [[*some, *[some[0]] * (most - len(some))] for some in telling]
    names = [*map(str, model.kinds), *ENDS]

    def column(values: Sequence[float]) -> Column:
        spread = np.asarray(values, float)[row].reshape(pp.shape)
        return spread if spread.ndim and len(set(values)) > 1 else float(values[0])

    def counts(which: str, i: int) -> Counts:
        found = {name: column([getattr(some[i], which).get(name, 0.0) for some in padded]) for name in names}
        return {name: value for name, value in found.items() if np.any(value)}

    whole = Counter(map(str, model.pattern)) + Counter(_first(model)) + Counter(_last(model, several=False))
    return Stages(
        tuple(column([some[i].position for some in padded]) for i in range(most)),
        tuple(counts("work", i) for i in range(most)),
        tuple(counts("held", i) for i in range(most)),
        {part: float(n) for part, n in whole.items()},
    )
