"""Memory of one rank on each device of the pipeline, and of the fullest rank.

The model of arXiv 2410.00273 (one training step: memory) counts weights, gradients, distributed optimizer and
activations in flight. Around it stand ZeRO's further stages (arXiv 1910.02054, section 5), recomputation and
offload, the loss, and what a framework takes for itself. What is assumed of each stands in `Assumptions` and
in the precision recipe.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal, NamedTuple

from traincast.core.assumptions import Assumptions
from traincast.core.columns import TakesRows, maximum, minimum, where
from traincast.core.knobs import words
from traincast.core.plan import Plans
from traincast.core.quantities import Column, nonzero
from traincast.operations.operation import Operation, total
from traincast.step.pipeline_stages import ENDS, Counts, Stages, present_parts
from traincast.times.pipeline.schedules import SCHEDULES
from traincast.times.process_groups import is_group

# parts that hold a matrix of the vocabulary
VOCABULARY: Final = ("embedding", "decoder embedding", "head", "tied")
NOTHING: Final = 1e-6  # bytes that count as none
Reported = Literal["allocated", "paged", "reserved", "device"]
LEFT_OUT: Final[Mapping[Reported, tuple[str, ...]]] = {  # what a tool reports -> components it leaves out
    "allocated": ("reserved", "buffers"),  # torch.cuda.max_memory_allocated
    "paged": ("optimizer", "reserved", "buffers"),  # the same, where bitsandbytes allocates paged moments
    "reserved": ("buffers",),  # torch.cuda.max_memory_reserved
    "device": (),  # nvidia-smi
}


@dataclass(frozen=True, slots=True)
class Footprint(TakesRows):
    """Memory of one part of the model (a layer, the embedding, the head) on a rank; columns over plans."""

    weights: Column  # parameters, those of experts apart
    expert_weights: Column
    saved: Column  # activations saved for backward by one micro-batch [byte]
    # activations that are recomputed in backward, all in memory at once while the part is at work [byte]
    live: Column
    peak: Column  # temporary memory of its largest operation [byte]
    frozen: Column = 0.0  # frozen weights, those of experts apart [byte]
    expert_frozen: Column = 0.0

    @classmethod
    def of(cls, operations: tuple[Operation, ...], plan: Plans) -> "Footprint":
        """Return the footprint of a part's operations, as the plan recomputes them."""
        saved = total(op.saved_bytes for op in operations)
        peak: Column = 0.0
        for op in operations:
            peak = maximum(peak, op.peak_bytes) if nonzero(op.peak_bytes) else peak
        live = 0 * saved + total(op.recomputed_bytes for op in operations)
        # every n-th layer saves only its input (arXiv 2205.05198, section 4.3); embedding and head save all
        if "full" in plan.recomputed:
            recomputed = total(
                op.saved_bytes for op in operations if op.recompute and not op.saves_layer_input
            )
            saved, live = saved - recomputed / plan.recompute_every, live + recomputed
        weights, expert_weights, frozen, expert_frozen = (
            total(getattr(op, figure) for op in operations if op.experts == of_experts)
            for figure in ("weights", "frozen_bytes")
            for of_experts in (False, True)
        )
        return cls(weights, expert_weights, saved, live, peak, frozen, expert_frozen)


def memory(
    footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, gbs: int, assumed: Assumptions
) -> dict[str, Column]:
    """Return the memory of the fullest rank by component [byte]."""
    devices = devices_memory(footprints, plan, stages, gbs, assumed)
    fullest = devices[0]
    for other in devices[1:]:
        fuller = total(other.values()) > total(fullest.values())
        fullest = {name: where(fuller, other[name], fullest[name]) for name in fullest}
    return fullest


def devices_memory(
    footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, gbs: int, assumed: Assumptions
) -> list[dict[str, Column]]:
    """Return the memory by component of each device in `stages` [byte]."""
    return [
        _on_device(
            held(footprints, plan, Stored.on(stages.stored_parts[i], footprints), assumed),
            working(footprints, plan, stages, i, on_device),
            plan.microbatches(gbs),
            assumed,
        )
        for i, on_device in enumerate(beside_activations(footprints, plan, stages, gbs, assumed))
    ]


class Stored(NamedTuple):
    """Weights that a device stores, before ZeRO shards them."""

    parts: Counts  # how many of each part
    weights: Column  # parameters, those of experts apart
    expert_weights: Column
    frozen: Column  # frozen weights, those of experts apart [byte]
    expert_frozen: Column

    @classmethod
    def on(cls, parts: Counts, footprints: Mapping[str, Footprint]) -> "Stored":
        """Return the weights of a device's parts."""
        figures = ("weights", "expert_weights", "frozen", "expert_frozen")
        return cls(parts, *(_sum(footprints, parts, figure) for figure in figures))


def held(
    footprints: Mapping[str, Footprint], plan: Plans, stored: Stored, assumed: Assumptions
) -> dict[str, Column]:
    """Return the memory of weights and what belongs to them, whatever the micro-batch and recomputation."""
    parts = states(footprints, plan, stored, assumed)
    if assumed.memory.gradients_last == "layer":
        each = plan.gradient_bytes * assumed.memory.element_bytes / 2
        parts["gradients"] = each * _largest(footprints, present_parts(stored.parts), "weights")
    parts["gathered"] = _gathered(footprints, plan, stored.parts, assumed)
    if plan.zero and assumed.memory.reduces_apart:
        unit = maximum(*_units(footprints, stored.parts, assumed, "weights", "expert_weights"))
        reduced = unit * plan.gradient_bytes * assumed.memory.element_bytes / 2
        parts["reserved"] = reduced * is_group(plan.dp * plan.cp)
    return parts


class BesideActivations(NamedTuple):
    """What micro-batches need on a device beside their activations, and how many of them are in flight."""

    in_flight: Column  # micro-batches
    logits: Column  # [byte]
    buffers: Column  # context and communicators [byte]
    matrix: Column  # gradient of the vocabulary's matrix [byte]


def beside_activations(
    footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, gbs: int, assumed: Assumptions
) -> list[BesideActivations]:
    """Return what micro-batches need on each device whatever ZeRO, optimizer, recomputation and offload."""
    schedule, nm, buffers = SCHEDULES[plan.schedule], plan.microbatches(gbs), _buffers(plan, assumed)
    ahead: Column = 0.0
    if plan.ep_overlap:
        exchanges = is_group(plan.ep * plan.etp) * is_group(plan.vp)
        ahead = schedule.ahead_of_exchanges * exchanges / plan.vp
    gradient, element = assumed.memory.vocabulary_gradient_bytes / 2, assumed.memory.element_bytes
    beside = []
    for position, present in zip(stages.position, stages.present_parts, strict=True):
        in_flight = schedule.in_flight(plan.pp, position, nm, plan.vp)
        if plan.schedule == "gpipe":  # without a pipeline gradients are accumulated, as by the others
            in_flight = where(plan.pp > 1, in_flight, 1.0)
        in_flight = minimum(in_flight + ahead, nm)
        heads = {part: n for part, n in present.items() if part in ("head", "mtp")}
        ends = {part: n for part, n in present.items() if part in VOCABULARY}
        matrix = _largest(footprints, ends, "weights") * gradient * element
        beside.append(BesideActivations(in_flight, _largest(footprints, heads, "peak"), buffers, matrix))
    return beside


class Working(NamedTuple):
    """What micro-batches need on a device [byte]."""

    activations: Column
    temporary: Column  # what a layer at work needs beside them and the logits
    beside: BesideActivations


def working(
    footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, i: int, beside: BesideActivations
) -> Working:
    """Return the memory of what micro-batches need on a device, whatever ZeRO and optimizer."""
    saved = _sum(footprints, stages.executed_parts[i], "saved") * beside.in_flight
    present = stages.present_parts[i]
    # those of two layers are on the device, one at work and one on its way, beside those that stay there
    if "activations" in words(plan.offload):
        staying = saved * (1 - 1 / plan.offload_every)
        saved = minimum(saved, staying + 2 * _largest(footprints, present, "saved"))
    # in backward, when the logits are gone: the larger of the two counts
    live = _largest(footprints, present, "live")
    if any(nonzero(footprint.frozen) for footprint in footprints.values()):  # a weight dequantised
        inside = {part: n for part, n in present.items() if part not in ENDS}
        live = live + _largest(footprints, inside, "peak")
    return Working(saved, maximum(live - beside.logits, 0 * live), beside)


def _buffers(plan: Plans, assumed: Assumptions) -> Column:
    """Return the memory of the framework's context and of communicators [byte]."""
    groups = (plan.tp * plan.tp2, plan.cp, plan.dp, plan.pp, plan.ep, plan.etp)
    each = assumed.memory.buffer_bytes
    return assumed.memory.context_bytes + (each * total(is_group(n) for n in groups) if each else 0.0)


def _on_device(
    held: Mapping[str, Column], working: Working, nm: Column, assumed: Assumptions
) -> dict[str, Column]:
    """Return the memory by component of a device from what it holds and works with [byte]."""
    parts = {name: held[name] for name in ("weights", "gradients", "optimizer")}
    beside, gathered = working.beside, held["gathered"]
    parts |= {"activations": working.activations, "logits": beside.logits, "gathered": gathered}
    workspace = working.temporary + beside.matrix + assumed.memory.library_bytes
    parts |= {"buffers": beside.buffers, "workspace": workspace}
    if assumed.memory.gradients_last == "backward":
        freed = minimum(parts["gradients"], parts["activations"] + parts["logits"])
        parts["gradients"] = where(nm > 1, parts["gradients"], parts["gradients"] - freed)
    parts["reserved"] = assumed.memory.allocator_share * total(
        column for name, column in parts.items() if name != "buffers"
    )
    if "reserved" in held:
        parts["reserved"] = parts["reserved"] + held["reserved"]
    return parts


def taken_by_states(held: Mapping[str, Column], assumed: Assumptions) -> tuple[Column, Column]:
    """Return the memory that `held` takes of what is left for it, and of gradients freed early [byte]."""
    freed = held["gradients"] if assumed.memory.gradients_last == "backward" else 0.0
    apart = held.get("reserved", 0.0)  # of which the allocator has no share
    inside = total(column for name, column in held.items() if name != "reserved")
    return inside + apart / (1 + assumed.memory.allocator_share), freed


@dataclass(frozen=True, slots=True)
class GrowingMemory(TakesRows):
    """What a micro-batch needs on a device in proportion to its size [byte]."""

    activations: Column
    all_activations: Column  # with every micro-batch of the step in flight
    passing: Column  # logits or what a layer at work needs beside activations, the larger


class Left(NamedTuple):
    """Memory that micro-batches leave for what a device holds, and what larger ones take of it [byte]."""

    most: Column
    shared: Column  # of what they need themselves, what gradients do not need
    growing: GrowingMemory


def left_for_states(working: Working, nm: Column, capacity: float, assumed: Assumptions) -> Left:
    """Return the memory that `working` leaves for `held` [byte].

    A device is full where `taken_by_states` is what is left, as `devices_memory` adds both up.
    """
    activations, temporary, beside = working
    usable = (capacity - beside.buffers) / (1 + assumed.memory.allocator_share)
    shared: Column = 0.0
    if assumed.memory.gradients_last == "backward":
        shared = where(nm > 1, 0.0, activations + beside.logits)
    passing = beside.logits + temporary
    most = usable - activations - passing - beside.matrix - assumed.memory.library_bytes
    return Left(most, shared, GrowingMemory(activations, activations / beside.in_flight * nm, passing))


def largest_microbatch(room: Column, growing: GrowingMemory) -> Column:
    """Return how many times larger a micro-batch fits on a device, above 1 where it does itself.

    Activations grow with the micro-batch until all of the step are in flight, which they take together from
    then on; logits and what layers at work need grow on. Both are proportional to the micro-batch, but for
    offloaded activations and dequantised weights.

    `room` is the memory that the micro-batch leaves free, negative where it does not fit [byte].
    """
    each = growing.activations + growing.passing
    most = room + each
    saturated = (most - growing.all_activations) / maximum(growing.passing, NOTHING)
    return maximum(most / maximum(each, NOTHING), saturated)


def memory_as_reported(used: Mapping[str, Column], kind: Reported) -> Column:
    """Return the memory of a rank as a tool reports it [byte].

    `used`: memory by component [byte].
    """
    return total(column for name, column in used.items() if name not in LEFT_OUT[kind])


def states(
    footprints: Mapping[str, Footprint], plan: Plans, stored: Stored, assumed: Assumptions
) -> dict[str, Column]:
    """Return weights, gradients and optimizer states as ZeRO shards them (arXiv 1910.02054) [byte]."""
    recipe, offloaded, element_scale = plan.recipe, words(plan.offload), assumed.memory.element_bytes / 2
    n, n_experts = plan.shards, plan.expert_shards

    def on_rank(dense: Column, experts: Column, sharded: bool) -> Column:
        return dense / n + experts / n_experts if sharded else dense + experts

    whole, shard = (on_rank(stored.weights, stored.expert_weights, sharded) for sharded in (False, True))

    def size(each: float, sharded: bool) -> Column:
        return each * element_scale * (shard if sharded else whole)

    weights = size(
        2 * recipe.width if plan.zero < 3 or assumed.memory.stores_sharded_copy else 0.0, plan.zero >= 3
    )
    if nonzero(stored.frozen) or nonzero(stored.expert_frozen):
        weights = weights + on_rank(stored.frozen, stored.expert_frozen, plan.zero >= 3)
    # of what is multiplied in low precision, which the vocabulary's matrices are not
    if recipe.copies and assumed.memory.saves_casts:
        layers = _layers_of(stored.parts)
        # by rows and by columns, in the place of 16 bits
        both_layouts = recipe.rate == "fp8" and not assumed.memory.stores_16bit_weights
        copies = 2 * (recipe.copies - recipe.width) if both_layouts else recipe.copies
        dense, experts = (_sum(footprints, layers, name) for name in ("weights", "expert_weights"))
        weights = weights + copies * element_scale * on_rank(dense, experts, plan.zero >= 3)
    wide = plan.zero < 2 and plan.gradient_bytes > 2 * recipe.width
    gradients = size(plan.gradient_bytes + assumed.memory.gradient_copy_bytes * wide, plan.zero >= 2)
    if assumed.memory.offloads_gradients and plan.zero >= 2 and "optimizer" in offloaded:
        gradients = 0 * gradients
    if plan.zero == 2:  # of the chunk at work, summed over the micro-batches it works through in a row
        sharded = stored.weights * is_group(n) + stored.expert_weights * is_group(n_experts)
        chunk = sharded * is_group(plan.vp) / plan.vp
        gradients = gradients + plan.gradient_bytes * element_scale * chunk
    optimizer = size(plan.master_bytes(assumed) + plan.optimizer.state, plan.zero >= 1)
    return {
        "weights": 0 * weights if "weights" in offloaded else weights,
        "gradients": gradients,
        "optimizer": 0 * optimizer if "optimizer" in offloaded else optimizer,
    }


def _gathered(
    footprints: Mapping[str, Footprint], plan: Plans, counts: Counts, assumed: Assumptions
) -> Column:
    """Return the memory of weights gathered (or fetched from the host) for the layers at work [byte]."""
    if plan.zero < 3 and "weights" not in words(plan.offload):
        return 0.0
    layer, ends = _units(footprints, counts, assumed, "weights", "expert_weights")
    frozen, frozen_ends = _units(footprints, counts, assumed, "frozen", "expert_frozen")
    layers, width = _layers_of(counts), plan.recipe.width * assumed.memory.element_bytes
    layers_at_once = minimum(assumed.memory.gathered_layers, maximum(total(layers.values()), 1))
    return width * (layers_at_once * layer + ends) + layers_at_once * frozen + frozen_ends


def _units(
    footprints: Mapping[str, Footprint], counts: Counts, assumed: Assumptions, dense: str, experts: str
) -> tuple[Column, Column]:
    """Return what ZeRO-3 gathers or reduces at once of two figures: of a layer, and of the vocabulary."""
    layers = present_parts(_layers_of(counts))
    ends = {part: n for part, n in counts.items() if part in VOCABULARY}
    layer = _largest(footprints, layers, dense) + _largest(footprints, layers, experts)
    if assumed.memory.joins_ends:
        return layer, _sum(footprints, ends, dense)
    return layer, _largest(footprints, present_parts(ends), dense)


def _layers_of(counts: Counts) -> Counts:
    """Return the parts of a device that are layers, and how many of each."""
    return {part: n for part, n in counts.items() if part not in VOCABULARY}


def _sum(footprints: Mapping[str, Footprint], counts: Counts, figure: str) -> Column:
    """Return the sum of a figure over all parts of a device."""
    return total(n * value for n, value in _of_parts(footprints, counts, figure))


def _largest(footprints: Mapping[str, Footprint], present: Counts, figure: str) -> Column:
    """Return the largest value of a figure among the parts of a device, given `Stages.present_parts`."""
    values = [n * value for n, value in _of_parts(footprints, present, figure)]
    return reduce(maximum, values) if values else 0.0


def _of_parts(
    footprints: Mapping[str, Footprint], counts: Counts, figure: str
) -> Iterator[tuple[Column, Column]]:
    """Yield how many of each part there are, and a figure of the part, but for parts without it."""
    for part, n in counts.items():
        value = getattr(footprints[part], figure)
        if not (isinstance(value, float) and value == 0):
            yield n, value
