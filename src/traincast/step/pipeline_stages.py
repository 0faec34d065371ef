"""Split of a model into pipeline stages: embedding first, head last, layers as evenly as they divide.

A device of the pipeline is described by how many of every part of the model it has: kinds of layers,
embedding, head. Only a device that no earlier one matches part by part can be the slowest or the fullest.
Formulas over millions of plans look at these devices alone: `Stages` lists them, padded to the same number
for all plans.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from traincast.core import Bools, Column, InputError, Ints, Plans, chunks, count_of, minimum, number_values
from traincast.model import Model
from traincast.step.model_parts import ENDS, Counts
from traincast.times import SCHEDULES


@dataclass(frozen=True)
class PipelineDevice:
    """Parts of the model on one device of a pipeline."""

    position: int  # its place in the pipeline, from 0
    executed_parts: Mapping[str, float]  # parts that a micro-batch passes on it
    # parts whose weights it stores: those executed, but twice as many where a schedule runs in both
    # directions
    stored_parts: Mapping[str, float]


@dataclass(frozen=True)
class Stages:
    """Devices that can be the slowest or the fullest, for columns of plans."""

    position: tuple[Column, ...]  # place of each device in its pipeline
    executed_parts: tuple[Counts, ...]  # parts of each device, as in `PipelineDevice`
    stored_parts: tuple[Counts, ...]
    model_parts: Mapping[str, float]  # parts of the whole model

    @cached_property
    def present_parts(self) -> tuple[Counts, ...]:
        """For each device and part 1 where the device stores any of the part, else 0."""
        return tuple(map(present_parts, self.stored_parts))

    def take(self, rows: Ints | Bools | slice) -> "Stages":
        """Return rows of the columns, by a numpy index."""

        def take_counts(counts: Counts) -> Counts:
            return {
                part: column if isinstance(column, float) else column[rows] for part, column in counts.items()
            }

        position = take_counts({str(i): column for i, column in enumerate(self.position)})
        stored = tuple(map(take_counts, self.stored_parts))
        same = self.executed_parts is self.stored_parts
        executed = stored if same else tuple(map(take_counts, self.executed_parts))
        return Stages(tuple(position.values()), executed, stored, self.model_parts)


def present_parts(counts: Counts) -> Counts:
    """Return 1 for each part that a device has any of, else 0."""
    return {part: minimum(n, 1) for part, n in counts.items()}


def end_layers(model: Model) -> int:
    """Return how many layers the head and multi-token prediction count for, by active parameters."""
    if model.vocab is None:
        return 0
    layer = model.layer_parameters(active=True) / model.layers
    head = model.vocab * model.hidden * model.head
    return round((head + model.mtp * (layer * len(model.mtp_pattern) + head)) / layer)


def begin_layers(model: Model) -> int:
    """Return how many layers a vision tower counts for, by products of both passes, if it is trained."""
    tower = model.tower
    if tower is None:
        return 0
    rows = tower.model.seq * tower.tower_parameters / (3 if tower.frozen or model.adapters else 1)
    rows += tower.tokens * tower.projector_parameters
    return round(tower.images * rows / (model.seq * model.layer_parameters(active=True) / model.layers))


def split_layers(layers: int, number: int, end: int = 0, begin: int = 0) -> tuple[int, ...]:
    """Split layers into chunks as evenly as they divide; ends count as layers of the first and last chunk.

    Frameworks count so where they account for embedding and loss in the split. A remainder makes later chunks
    longer, since they have fewer micro-batches in flight.

    `end` are the layers that the head counts for, `begin` those that a vision tower does.

    >>> split_layers(126, 16, end=1)
    (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    >>> split_layers(61, 16, end=4)
    (4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1)
    """
    if number == 1:
        return (layers,)
    share = -(-(layers + end + begin) // number)
    last = max(share - end, 0)
    if begin and number > 2:
        first = min(max(share - begin, 0), layers - last)
        return first, *split_layers(layers - first, number - 1, end)
    if begin:
        last = min(max(last, layers - max(share - begin, 0)), layers)
    each, more = divmod(layers - last, number - 1)
    return (*[each] * (number - 1 - more), *[each + 1] * more, last)


def devices(
    model: Model, pp: int, chunks_per_device: int, schedule: str = "1f1b", layout: str = ""
) -> tuple[PipelineDevice, ...]:
    """Return every device of a pipeline.

    Raises `InputError` if a layout does not have a number for each chunk, or not all of the layers.
    """
    order = SCHEDULES[schedule]
    chunk_parts = contents(model, pp, chunks_per_device, layout)
    result = []
    for position in range(pp):
        parts = Counter[str]()
        for chunk in order.chunks_of(position, pp, chunks_per_device):
            parts += chunk_parts[chunk]
        # The device has the matrix of a head tied to an embedding that it holds.
        if parts["decoder embedding" if model.reads_audio else "embedding"]:
            del parts["tied"]
        elif parts["tied"]:
            parts["tied"] = 1
        # In a step, a device works for each direction on its share of the micro-batches.
        executed = {part: n / order.directions if order.directions > 1 else n for part, n in parts.items()}
        result.append(PipelineDevice(position, executed, dict(parts)))
    return tuple(result)


def layers_of_chunks(model: Model, number: int, layout: str = "") -> tuple[int, ...]:
    """Return the layers of every chunk, first to last: those of a layout, else split evenly over `number`."""
    if layout:
        return chunks(layout)
    return split_layers(model.layers, number, end_layers(model), begin_layers(model))


def contents(model: Model, pp: int, chunks_per_device: int, layout: str = "") -> list[Counter[str]]:
    """Return the parts in every chunk of the model, first to last; arguments and errors as for `devices`."""
    number = pp * chunks_per_device
    cut = layers_of_chunks(model, number, layout)
    if len(cut) != number or sum(cut) != model.layers:
        wanted = f"must be {count_of(number, 'number')} of layers that add up to {model.layers}"
        each = f"(pp = {pp}, {count_of(chunks_per_device, 'chunk')} each)"
        raise InputError("plan", [f"layout = {layout}: {wanted} {each}"])
    ends = np.cumsum((0, *cut))
    parts = [Counter(map(str, model.pattern[low:high])) for low, high in pairwise(ends)]
    parts[0].update(_parts_before_layers(model))
    parts[-1].update(_parts_after_layers(model, pipelined=number > 1))
    if model.encoder is not None and model.encodes:
        first = int(np.searchsorted(ends, model.encoder.layers, "right")) - 1  # chunk of the decoder's first
        parts[first]["decoder embedding"] += 1
        parts[first]["tied"] += number > 1 and not model.reads_audio
    return parts


def _parts_before_layers(model: Model) -> dict[str, int]:
    tower = {} if model.tower is None else model.tower.parts
    return {"embedding": 1} | tower if model.has_ends else tower


def _parts_after_layers(model: Model, pipelined: bool) -> dict[str, int]:
    ends = {"head": 1} if model.has_ends else {}
    # a copy of the embedding's weights
    if ((model.tied and model.head) or model.mtp) and model.vocab is not None and pipelined:
        ends["tied"] = 1
    return ends | ({"mtp": model.mtp} if model.mtp else {})


def every_device(pipeline: Sequence[PipelineDevice]) -> Stages:
    """Return all devices of one pipeline as `Stages`; `model_parts` is empty."""
    return Stages(
        tuple(float(device.position) for device in pipeline),
        tuple(device.executed_parts for device in pipeline),
        tuple(device.stored_parts for device in pipeline),
        {},
    )


def with_load(plan: Plans, model: Model) -> Plans:
    """Return the plans with the load of the most loaded expert-parallel rank."""
    if model.experts is None:
        return plan
    degrees, row = np.unique(np.asarray(plan.ep), return_inverse=True)
    load = np.array([model.experts.fullest(int(ep)) for ep in degrees])[row].reshape(np.shape(plan.ep))
    return replace(plan, load=load if load.ndim else float(load))


@lru_cache(maxsize=65536)
def distinct_devices(
    model: Model, pp: int, chunks_per_device: int, schedule: str, layout: str
) -> tuple[PipelineDevice, ...]:
    """Return the devices that no earlier one covers part by part, empty ones left out."""
    distinct: list[PipelineDevice] = []

    def covers(other: PipelineDevice, device: PipelineDevice) -> bool:
        return all(other.stored_parts.get(part, 0) >= n for part, n in device.stored_parts.items())

    for device in devices(model, pp, chunks_per_device, schedule, layout):
        if device.stored_parts and not any(covers(other, device) for other in distinct):
            distinct.append(device)
    return tuple(distinct)


def stages(model: Model, plan: Plans) -> Stages:
    """Return the devices that decide time and memory, for columns of plans."""
    if isinstance(plan.pp, float) and isinstance(plan.vp, float):
        return _stages_of_one(model, plan.pp, plan.vp, plan.schedule, plan.layout)
    return _stages_of_many(model, plan.pp, plan.vp, plan.schedule, plan.layout)


def _stages_of_many(model: Model, pps: Column, vps: Column, schedule: str, layout: str) -> Stages:
    """Return the devices of columns of plans, padded to the same number for all."""
    pp, v = np.broadcast_arrays(np.asarray(pps, float), np.asarray(vps, float))
    most = int(v.max(initial=0)) + 1  # packs a pair into one number
    keys, row = number_values(pp.ravel() * most + v.ravel())
    pairs = ((int(key // most), int(key % most)) for key in keys)
    return _stages_of_pairs(model, tuple(pairs), schedule, layout).take(row.reshape(pp.shape))


@lru_cache(maxsize=1024)
def _stages_of_pairs(model: Model, pairs: tuple[tuple[int, int], ...], schedule: str, layout: str) -> Stages:
    """Return the devices of pairs of pp and chunks of a device, padded to the same number for all."""
    pipelines = [distinct_devices(model, a, b, schedule, layout) for a, b in pairs]
    pipelines = pipelines or [(PipelineDevice(0, {}, {}),)]  # no rows
    length = max(map(len, pipelines))
    padded = [[*pipeline, *[pipeline[0]] * (length - len(pipeline))] for pipeline in pipelines]
    names = [*map(str, model.kinds), *ENDS, *(model.tower.parts if model.tower else ())]

    def column(values: Sequence[float]) -> Column:
        return np.asarray(values, float) if len(set(values)) > 1 else float(values[0])

    def counts(which: str, i: int) -> Counts:
        columns = {
            name: column([getattr(pipeline[i], which).get(name, 0.0) for pipeline in padded])
            for name in names
        }
        return {name: value for name, value in columns.items() if np.any(value)}

    parts = Counter(map(str, model.pattern)) + Counter(_parts_before_layers(model))
    parts += Counter({"decoder embedding": int(model.encodes)})
    parts += Counter(_parts_after_layers(model, pipelined=False))
    stored = tuple(counts("stored_parts", i) for i in range(length))
    same = SCHEDULES[schedule].directions == 1
    return Stages(
        tuple(column([pipeline[i].position for pipeline in padded]) for i in range(length)),
        stored if same else tuple(counts("executed_parts", i) for i in range(length)),
        stored,
        {part: float(n) for part, n in parts.items()},
    )


_stages_of_one: Final = lru_cache(maxsize=4096)(_stages_of_many)  # of numbers, which can be hashed
