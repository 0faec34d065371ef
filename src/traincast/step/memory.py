"""Memory of one rank on each device of the pipeline over the phases of a step, and of the fullest rank.

What is in memory together counts together: the peak is the largest phase, not the sum of all that a step ever
needs. The model of arXiv 2410.00273 (one training step: memory) counts weights, gradients, distributed
optimizer and activations in flight. Around it stand ZeRO's further stages (arXiv 1910.02054, section 5),
recomputation and offload, the loss, and what a framework takes for itself. What is assumed of each stands in
`Assumptions` and in the precision recipe.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from traincast.core import (
    Assumptions,
    Bools,
    Column,
    Ints,
    Plans,
    TakesRows,
    maximum,
    minimum,
    nonzero,
    offloaded_activations,
    replace,
    split_choice,
    take_rows,
    where,
)
from traincast.operations import Operation, offloaded_bytes, total
from traincast.step.model_parts import ENDS, VOCABULARY, Counts
from traincast.step.pipeline_stages import Stages, present_parts
from traincast.times import SCHEDULES, is_group

# parts that hold a matrix of the vocabulary
NOTHING: Final = 1e-6  # bytes that count as none
FP32: Final = 4.0  # where an element of 16 bits has two bytes [byte]
Phase: TypeAlias = Literal[
    "forward",
    "loss",
    "backward of the last layer",
    "backward of the first layer",
    "reduction of gradients",
    "optimizer step",
]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)  # in the order of a step
Components: TypeAlias = dict[str, Column]  # component -> memory [byte]
Phases: TypeAlias = dict[Phase, Components]


@dataclass(frozen=True, slots=True)
class Footprint(TakesRows):
    """Memory of one part of the model (a layer, the embedding, the head) on a rank; columns over plans."""

    weights: Column  # parameters, those of experts apart
    expert_weights: Column
    saved: Column  # activations saved for backward by one micro-batch [byte]
    # activations that are recomputed in backward, all in memory at once while the part is at work, and tokens
    # of other ranks [byte]
    live: Column
    peak: Column  # temporary memory of its largest operation [byte]
    # what backward needs while the part is at work, beside what is saved: these, and the gradients of input
    # and result of its largest product [byte]
    at_work: Column = 0.0
    frozen: Column = 0.0  # frozen weights, those of experts apart [byte]
    expert_frozen: Column = 0.0
    frozen_fp32: Column = 0.0  # what those loaded in fp32 take beside these [byte]
    expert_frozen_fp32: Column = 0.0
    offloaded: Column = 0.0  # of what is saved, what goes to the host where modules are offloaded [byte]

    @classmethod
    def from_operations(cls, operations: tuple[Operation, ...], plan: Plans) -> "Footprint":
        """Return the footprint of a part's operations, as the plan recomputes them."""
        saved = total(op.saved_bytes for op in operations)
        peak = _largest_of(op.peak_bytes for op in operations)
        gradients = _largest_of(op.gradient_bytes for op in operations)
        live = 0 * saved + total(op.recomputed_bytes for op in operations)
        live = live + _largest_of(op.gathered_bytes for op in operations)
        # every n-th layer saves only its input (arXiv 2205.05198, section 4.3); embedding and head save all
        if "full" in plan.recomputed:
            recomputed = total(op.saved_bytes_within_layer for op in operations if op.recompute)
            saved = saved - recomputed / plan.recompute_every
            live = live + recomputed
        weights, expert_weights, *frozen = (
            total(getattr(op, figure) for op in operations if op.experts == of_experts)
            for figure in ("weights", "frozen_bytes", "frozen_fp32_bytes")
            for of_experts in (False, True)
        )
        footprint = cls(weights, expert_weights, saved, live, peak, live + gradients, *frozen)
        return replace(footprint, offloaded=offloaded_bytes(operations, plan))


def memory(
    footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, gbs: int, assumed: Assumptions
) -> Components:
    """Return the memory of the fullest rank at its peak by component [byte]."""
    return _fullest(devices_memory(footprints, plan, stages, gbs, assumed))


def memory_phases(
    footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, gbs: int, assumed: Assumptions
) -> Phases:
    """Return the memory of the fullest rank in every phase of a step, in the order of `PHASES` [byte]."""
    fullest, *others = devices_phases(footprints, plan, stages, gbs, assumed)
    for other in others:
        fuller = peak_bytes(other) > peak_bytes(fullest)
        fullest = {phase: _choose(fuller, other[phase], fullest[phase]) for phase in PHASES}
    return fullest


def peak_bytes(phases: Phases) -> Column:
    """Return the memory of the largest phase [byte]."""
    return reduce(maximum, [total(components.values()) for components in phases.values()])


def fullest_bytes(
    footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, gbs: int, assumed: Assumptions
) -> Column:
    """Return the memory of the fullest device at its peak [byte]."""
    devices = devices_phases(footprints, plan, stages, gbs, assumed, all_phases=False)
    return reduce(maximum, map(peak_bytes, devices))


def devices_memory(
    footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, gbs: int, assumed: Assumptions
) -> list[Components]:
    """Return the memory by component of each device in `stages` at its peak [byte]."""
    devices = devices_phases(footprints, plan, stages, gbs, assumed, all_phases=False)
    return [_fullest(list(phases.values())) for phases in devices]


def devices_phases(
    footprints: Mapping[str, Footprint],
    plan: Plans,
    stages: Stages,
    gbs: int,
    assumed: Assumptions,
    all_phases: bool = True,
) -> list[Phases]:
    """Return the memory by component of each device in `stages` in every phase of a step [byte].

    Without `all_phases` only those that can be the peak.
    """
    nm = plan.microbatches(gbs)
    return [
        _phases(
            StoredWeights.for_device(stages.stored_parts[i], footprints).memory(footprints, plan, assumed),
            on_device.working_memory(footprints, plan, stages, i, assumed, all_phases),
            nm,
            assumed,
            all_phases,
        )
        for i, on_device in enumerate(BesideActivations.of_devices(footprints, plan, stages, gbs, assumed))
    ]


def _fullest(candidates: Sequence[Components]) -> Components:
    """Return the components that add up to the most."""
    fullest = candidates[0]
    for other in candidates[1:]:
        fullest = _choose(total(other.values()) > total(fullest.values()), other, fullest)
    return fullest


def _choose(condition: bool | Bools, one: Components, other: Components) -> Components:
    """Return the components of one where a condition holds, else of the other."""
    return {name: where(condition, one[name], other[name]) for name in one}


class StoredWeights(NamedTuple):
    """Weights that a device stores, before ZeRO shards them."""

    parts: Counts  # how many of each part
    weights: Column  # parameters, those of experts apart
    expert_weights: Column
    frozen: Column  # frozen weights, those of experts apart [byte]
    expert_frozen: Column
    frozen_fp32: Column  # what those loaded in fp32 take beside these [byte]
    expert_frozen_fp32: Column

    @classmethod
    def for_device(cls, parts: Counts, footprints: Mapping[str, Footprint]) -> "StoredWeights":
        """Return the weights of a device's parts."""
        return cls(parts, *(_sum(footprints, parts, figure) for figure in cls._fields[1:]))

    def memory(
        self, footprints: Mapping[str, Footprint], plan: Plans, assumed: Assumptions
    ) -> dict[str, Column]:
        """Return the memory of them and what belongs to them, whatever micro-batch and recomputation."""
        parts = states(footprints, plan, self, assumed)
        parts["copies"] = _step_copies(plan, self, assumed)
        if assumed.memory.gradients_last == "layer":
            each = plan.gradient_bytes * assumed.memory.element_bytes / 2
            parts["gradients"] = each * _largest(footprints, present_parts(self.parts), "weights")
        parts["gathered"] = _gathered_weights(footprints, plan, self.parts, assumed)
        if not plan.zero and assumed.memory.buckets_copy_gradients:
            parts["workspace"] = parts["gradients"] * is_group(plan.dp * plan.cp)
        if plan.zero >= 2 and (assumed.memory.reduce_bucket or assumed.memory.stepped_parameters):
            bucket = minimum(assumed.memory.reduce_bucket, self.weights + self.expert_weights)
            # a gradient larger than the bucket is reduced from where it is (DeepSpeed 0.19.8, stage3.py,
            # __add_grad_to_ipg_bucket)
            ends = {part: n for part, n in self.parts.items() if part in VOCABULARY}
            bucket = maximum(bucket, _largest(footprints, present_parts(ends), "weights"))
            reduced = bucket * plan.gradient_bytes * assumed.memory.element_bytes / 2
            parts["workspace"] = reduced * is_group(plan.dp * plan.cp)
        if (
            plan.zero >= 2
            and assumed.memory.accumulates_whole
            and assumed.memory.gradients_last == "backward"
        ):
            each = 2 * plan.recipe.width * assumed.memory.element_bytes / 2
            whole = each * (self.weights + self.expert_weights)
            parts["unreduced"] = maximum(parts["gradients"], whole)
        if plan.zero and assumed.memory.reduces_apart:
            unit = maximum(*_units(footprints, self.parts, assumed, "weights", "expert_weights"))
            reduced = unit * plan.gradient_bytes * assumed.memory.element_bytes / 2
            parts["reserved"] = reduced * is_group(plan.dp * plan.cp)
        return parts


class BesideActivations(NamedTuple):
    """What micro-batches need on a device beside their activations, and how many of them are in flight."""

    in_flight: Column  # micro-batches
    others: Column  # share of these that stay when backward of one is at the first layer, at the least
    logits: Column  # [byte]
    buffers: Column  # context and communicators [byte]
    head_matrix: Column  # gradient of the head's matrix, or of one tied to it [byte]
    matrix: Column  # gradient of the embedding's matrix [byte]

    @classmethod
    def of_devices(
        cls, footprints: Mapping[str, Footprint], plan: Plans, stages: Stages, gbs: int, assumed: Assumptions
    ) -> list["BesideActivations"]:
        """Return what is needed on each device whatever ZeRO, optimizer, recomputation and offload."""
        schedule = SCHEDULES[plan.schedule]
        nm = plan.microbatches(gbs)
        buffers = _buffers(plan, assumed)
        ahead: Column = 0.0
        if plan.ep_overlap:
            exchanges = is_group(plan.ep * plan.etp) * is_group(plan.vp)
            ahead = schedule.ahead_of_exchanges * exchanges / plan.vp
        gradient = assumed.memory.vocabulary_gradient_bytes / 2
        element = assumed.memory.element_bytes
        beside: list[BesideActivations] = []
        for position, present in zip(stages.position, stages.present_parts, strict=True):
            most = schedule.in_flight(plan.pp, position, nm, plan.vp)
            if plan.schedule == "gpipe":  # without a pipeline gradients are accumulated, as by the others
                most = where(plan.pp > 1, most, 1.0)
            most = most + ahead
            heads = {part: n for part, n in present.items() if part in ("head", "mtp")}
            ends = {part: n for part, n in present.items() if part in VOCABULARY}
            embeddings = {part: n for part, n in ends.items() if part.endswith("embedding")}
            # a tied head has that of the embedding
            head_matrix = (
                _largest(footprints, ends, "weights") * gradient * element * present.get("head", 0.0)
            )
            matrix = _largest(footprints, embeddings, "weights") * gradient * element
            if beside and nonzero(matrix):  # shorter pipelines are padded with their first device
                matrix = where(position > 0, matrix, 0 * matrix)
            logits = _largest(footprints, heads, "peak")
            in_flight = minimum(most, nm)
            beside.append(cls(in_flight, 1 - 1 / most, logits, buffers, head_matrix, matrix))
        return beside

    def working_memory(
        self,
        footprints: Mapping[str, Footprint],
        plan: Plans,
        stages: Stages,
        i: int,
        assumed: Assumptions,
        all_phases: bool = False,
    ) -> "WorkingMemory":
        """Return the memory of all that micro-batches need on a device, whatever ZeRO and optimizer.

        Without `all_phases`, `first` is an upper bound where the phase of the first layer is never the peak.
        """
        saved = _sum(footprints, stages.executed_parts[i], "saved") * self.in_flight
        present = stages.present_parts[i]
        # those of two layers are on the device, one at work and one on its way, beside those that stay there
        if offloaded_activations(plan.offload):
            figure = "saved" if "activations" in split_choice(plan.offload) else "offloaded"
            moved = _sum(footprints, stages.executed_parts[i], figure) * self.in_flight
            staying = saved - moved / plan.offload_every
            saved = minimum(saved, staying + 2 * _largest(footprints, present, figure))
        at_work = "at_work" if assumed.memory.counts_gradients_at_work else "live"
        temporary = _largest(footprints, present, at_work)
        if any(nonzero(footprint.frozen) for footprint in footprints.values()):  # a weight dequantised
            inside = {part: n for part, n in present.items() if part not in ENDS}
            temporary = temporary + _largest(footprints, inside, "peak")
        if keeps_frozen_layers(footprints, plan, assumed):  # their inputs, and the gradients of these
            layers = _layers_of(stages.executed_parts[i])
            first = saved * self.others + 2 * _sum(footprints, layers, "saved")
        elif not (all_phases or assumed.memory.gradients_last == "backward" or nonzero(self.matrix)):
            first = saved
        else:
            first = saved * self.others + _largest(footprints, present, "saved")
        return WorkingMemory(saved, first, temporary, self)


class WorkingMemory(NamedTuple):
    """What micro-batches need on a device [byte]."""

    activations: Column
    first: Column  # of these when backward is at the first layer
    temporary: Column  # what a layer at work needs beside them in backward
    beside: BesideActivations

    def left_for_states(self, nm: Column, capacity: float, assumed: Assumptions) -> "list[MemoryLeft]":
        """Return what it leaves for `StoredWeights.memory` [byte], in each phase that may be the peak.

        A device is full where `TakenMemory` of its states is what is left, as `devices_phases` adds both up.
        """
        activations, first, temporary, beside = self
        usable = (capacity - beside.buffers) / (1 + assumed.memory.allocator_share)
        usable = usable - assumed.memory.library_bytes - assumed.memory.workspace_bytes
        in_step = activations / beside.in_flight * nm
        passing = maximum(beside.logits, temporary)
        passes = PhaseLeft(
            usable - activations - passing - beside.head_matrix, GrowingMemory(activations, in_step, passing)
        )
        gradients_come_anew = assumed.memory.gradients_last == "backward"
        optimizer_step = MemoryLeft(None, (PhaseLeft(usable, GrowingMemory(0.0, 0.0, 0.0)),))
        if not (gradients_come_anew or nonzero(beside.matrix)):
            return [MemoryLeft(1.0, (passes,)), optimizer_step]
        staying = beside.others * activations
        each = activations / beside.in_flight
        layer = first - staying
        staying_in_step = beside.others * in_step
        firsts = []
        if nonzero(beside.matrix):
            # the phases before take more with the smallest micro-batches and the largest, and then between
            freed = activations - staying + passing - layer
            freed_at_most = in_step - staying_in_step + nm * (passing - layer)
            may_decide = minimum(freed, freed_at_most) + beside.head_matrix < beside.matrix
            growing = GrowingMemory(staying, staying_in_step, layer, each, in_step)
            firsts = [PhaseLeft(usable - first - beside.matrix, growing, may_decide)]
            # of activations that are offloaded, more may be there at the first layer than before
            if nonzero(maximum(first - activations, 0.0)):
                working_beside = replace(growing, passing=layer + temporary)
                firsts.append(PhaseLeft(usable - first - temporary, working_beside))
        if not gradients_come_anew:
            return [MemoryLeft(1.0, (passes, *firsts)), optimizer_step]
        growing = GrowingMemory(staying, staying_in_step, layer + temporary, each, in_step)
        at_layer = PhaseLeft(usable - first - temporary, growing)
        early = where(nm > 1, 1.0, 0.0)
        every = [phase._replace(may_decide=None) for phase in firsts]  # beside more gradients
        return [MemoryLeft(early, (passes,)), MemoryLeft(1.0, (at_layer, *every)), optimizer_step]


def keeps_frozen_layers(footprints: Mapping[str, Footprint], plan: Plans, assumed: Assumptions) -> bool:
    """Return whether inputs of recomputed layers are in memory until the end of backward."""
    frozen = any(nonzero(footprint.frozen) for footprint in footprints.values())
    return frozen and assumed.memory.keeps_frozen_layers and plan.zero >= 2 and "full" in plan.recomputed


def _buffers(plan: Plans, assumed: Assumptions) -> Column:
    """Return the memory of the framework's context and of communicators [byte]."""
    alone = assumed.memory.context_bytes
    each = assumed.memory.buffer_bytes
    together = assumed.memory.communication_bytes
    if not each and not together:
        return alone
    groups = (plan.tp * plan.tp2, plan.cp, plan.dp, plan.pp, plan.ep, plan.etp)
    ranks = plan.tp * plan.tp2 * plan.cp * plan.dp * plan.pp
    return alone + together * is_group(ranks) + each * total(is_group(n) for n in groups)


def _phases(
    held: Mapping[str, Column], working: WorkingMemory, nm: Column, assumed: Assumptions, all_phases: bool
) -> Phases:
    """Return the memory by component of a device in each phase, from what it holds and works with [byte].

    Gradients that are made anew in each step come as activations go: none are there at the loss of the first
    micro-batch, all when its backward pass is at the first layer. Those of several micro-batches are there
    before they are reduced, at the latest beside the loss of the last one.
    """
    beside = working.beside
    gradients = held["gradients"]
    none = 0 * working.activations
    early = held.get("unreduced", gradients)
    if assumed.memory.gradients_last == "backward":
        early = where(nm > 1, early, 0 * early)
    library = assumed.memory.library_bytes + assumed.memory.workspace_bytes

    def together(
        gradients: Column,
        activations: Column,
        workspace: Column,
        logits: Column = 0.0,
        gathered: Column = held["gathered"],
        copies: Column = 0.0,
    ) -> Components:
        if "workspace" in held:
            workspace = workspace + held["workspace"]
        parts = {"weights": held["weights"], "gradients": gradients, "optimizer": held["optimizer"]}
        parts |= {"activations": activations, "logits": logits, "gathered": gathered}
        parts |= {"buffers": beside.buffers, "workspace": workspace, "copies": copies}
        parts["reserved"] = assumed.memory.allocator_share * total(
            column for name, column in parts.items() if name != "buffers"
        )
        if "reserved" in held:
            parts["reserved"] = parts["reserved"] + held["reserved"]
        return parts

    phases: Phases = {}
    if all_phases:
        phases["forward"] = together(early, working.activations, library)
    if all_phases or nonzero(beside.logits):
        workspace = beside.head_matrix + library
        phases["loss"] = together(early, working.activations, workspace, beside.logits)
    workspace = working.temporary + beside.head_matrix + library  # which is added up meanwhile
    phases["backward of the last layer"] = together(early, working.activations, workspace)
    if all_phases or early is not gradients or nonzero(beside.matrix):
        workspace = maximum(working.temporary, beside.matrix) + library
        phases["backward of the first layer"] = together(gradients, working.first, workspace)
    if all_phases:
        phases["reduction of gradients"] = together(gradients, none, library)
    if all_phases or nonzero(held["copies"]):
        step = together(gradients, none, library, gathered=0.0, copies=held["copies"])
        phases["optimizer step"] = step
    return phases


class TakenMemory(NamedTuple):
    """What a device holds of the memory that is left for it [byte]."""

    states: Column  # while layers are at work, gradients apart
    gradients: Column  # of micro-batches before
    at_work: Column  # states, and gradients when backward ends
    step: Column | None  # in the optimizer's step; None where that can be no peak

    @classmethod
    def from_weights(cls, held: Mapping[str, Column], assumed: Assumptions) -> "TakenMemory":
        """Return what `StoredWeights.memory` takes of what is left for it [byte]."""
        apart = held.get("reserved", 0.0)  # of which the allocator has no share
        stored = held["weights"] + held["optimizer"] + apart / (1 + assumed.memory.allocator_share)
        if "workspace" in held:
            stored = stored + held["workspace"]
        copies = held["copies"]
        step = stored + held["gradients"] + copies if nonzero(copies) else None
        states = stored + held["gathered"]
        before = held.get("unreduced", held["gradients"])
        return cls(states, before, states + held["gradients"], step)


@dataclass(frozen=True, slots=True)
class GrowingMemory(TakesRows):
    """What a micro-batch needs on a device in proportion to its size [byte]."""

    activations: Column
    all_activations: Column  # with every micro-batch of the step in flight
    passing: Column  # logits or what a layer at work needs beside activations, the larger
    # Activations that one micro-batch has given up in this phase, and those of every one in the step
    given_up: Column = 0.0
    in_step: Column = 0.0

    @property
    def may_shrink(self) -> bool:
        """Whether larger micro-batches may need less, as one of fewer has given up more."""
        return nonzero(self.given_up)

    @property
    def shrinks_somewhere(self) -> bool:
        """Whether a larger micro-batch of some plan does need less once all of the step are in flight."""
        return self.may_shrink and nonzero(maximum(self.given_up - self.passing, 0.0))

    def largest_microbatch(self, room: Column) -> Column:
        """Return how many times larger a micro-batch fits on a device, above 1 where it does itself.

        Activations grow with the micro-batch until all of the step are in flight, which they take together
        from then on; logits and what layers at work need grow on. Both are proportional to the micro-batch,
        but for offloaded activations and dequantised weights. Where memory `may_shrink`, this is what surely
        fits: `no_larger_microbatch` is the other bound.

        `room` is the memory that the micro-batch leaves free, negative where it does not fit [byte].
        """
        each = self.activations + self.passing
        most = room + each
        saturated = (most - self.all_activations) / maximum(self.passing, NOTHING)
        return maximum(most / maximum(each, NOTHING), saturated)

    def no_larger_microbatch(self, room: Column) -> Column:
        """Return how many times larger a micro-batch may fit at the most where memory `may_shrink`.

        With all micro-batches of the step in flight, k times larger ones have their activations but for those
        of one, which are k times as many: memory changes by `passing - given_up` with k. Where that is
        negative, it is least with a single micro-batch, and larger ones may fit though smaller ones don't.
        `room` as in `largest_microbatch`.
        """
        most = room + self.activations + self.passing
        change = self.passing - self.given_up
        single = self.in_step * self.passing / maximum(self.given_up, NOTHING)
        rising = (most - self.in_step) / maximum(change, NOTHING)
        falling = where(single <= most, float("inf"), 0.0)
        return maximum(self.largest_microbatch(room), where(change > 0, rising, falling))

    def most_room(self, room: Column) -> Column:
        """Return the most memory that a micro-batch leaves free, of this size or a larger one [byte].

        Where memory `may_shrink`, it falls at a constant rate once all micro-batches of the step are in
        flight: the leanest is this one, or a single one for the step. `room` as in `largest_microbatch`.
        """
        if not self.may_shrink:
            return room
        single = self.in_step * self.passing / maximum(self.given_up, NOTHING)
        left_by_single = room + self.activations + self.passing - single
        return where(self.passing < self.given_up, maximum(room, left_by_single), room)


class PhaseLeft(NamedTuple):
    """Memory that micro-batches leave for what a device holds in one phase [byte]."""

    most: Column
    growing: GrowingMemory  # what larger micro-batches take of it
    may_decide: bool | Bools | None = (
        None  # whether it can be the peak, of any size of micro-batch; None for always
    )


class MemoryLeft(NamedTuple):
    """Memory that micro-batches leave for what a device holds, in phases with as many gradients [byte]."""

    gradients: Column | None  # share of them that is there; None in the optimizer's step, for `Taken.step`
    phases: tuple[PhaseLeft, ...]

    def taken(self, taken: TakenMemory, rows: Ints | Bools | slice) -> Column | None:
        """Return what `taken` has of it, with `rows` of its columns; None where there is no such phase."""
        if self.gradients is None:
            return taken.step
        if isinstance(self.gradients, float):
            return taken.at_work
        return taken.states + take_rows(self.gradients, rows) * taken.gradients


def states(
    footprints: Mapping[str, Footprint], plan: Plans, stored: StoredWeights, assumed: Assumptions
) -> dict[str, Column]:
    """Return weights, gradients and optimizer states as ZeRO shards them (arXiv 1910.02054) [byte]."""
    recipe = plan.recipe
    offloaded = split_choice(plan.offload)
    element_scale = assumed.memory.element_bytes / 2
    n = plan.shards
    n_experts = plan.expert_shards

    def on_rank(dense: Column, experts: Column, sharded: bool) -> Column:
        return dense / n + experts / n_experts if sharded else dense + experts

    whole, shard = (on_rank(stored.weights, stored.expert_weights, sharded) for sharded in (False, True))

    def size(each: float, sharded: bool) -> Column:
        return each * element_scale * (shard if sharded else whole)

    # without a master copy the shard is all there is of the weights
    stored_in_width = plan.zero < 3 or assumed.memory.stores_sharded_copy or not plan.master_bytes(assumed)
    weights = size(2 * recipe.width if stored_in_width else 0.0, plan.zero >= 3)
    if nonzero(stored.frozen) or nonzero(stored.expert_frozen):
        weights = weights + on_rank(stored.frozen, stored.expert_frozen, plan.zero >= 3)
        weights = weights + on_rank(stored.frozen_fp32, stored.expert_frozen_fp32, plan.zero >= 2)
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
    if plan.optimizer.vocabulary_state:
        ends = {part: count for part, count in stored.parts.items() if part in VOCABULARY}
        vocabulary = on_rank(_sum(footprints, ends, "weights"), 0.0, plan.zero >= 1)
        optimizer = optimizer + plan.optimizer.vocabulary_state * element_scale * vocabulary
    return {
        "weights": 0 * weights if "weights" in offloaded else weights,
        "gradients": gradients,
        "optimizer": 0 * optimizer if "optimizer" in offloaded else optimizer,
    }


def _step_copies(plan: Plans, stored: StoredWeights, assumed: Assumptions) -> Column:
    """Return what the optimizer's step takes beside its states and gradients [byte].

    AdamW over lists of tensors (`foreach`) has the roots of all second moments at once (PyTorch 2.13,
    torch/optim/adam.py, _multi_tensor_adam); fused kernels have them in registers. DeepSpeed flattens
    gradients and casts them to fp32 (0.19.8, runtime/zero/stage3.py, _prepare_fp32_grad_for_sub_group;
    stage_1_and_2.py, step). With the roots, the flat ones are gone, and with ZeRO-1 and 2 those that were
    flattened: 24 bytes for a parameter with ZeRO-3, whose allocated tensors were counted.
    """
    if "optimizer" in split_choice(plan.offload) or assumed.memory.gradients_last == "layer":
        return 0.0
    n, n_experts = (plan.shards, plan.expert_shards) if plan.zero else (1.0, 1.0)
    stepped = stored.weights / n + stored.expert_weights / n_experts
    element_scale = assumed.memory.element_bytes / 2
    roots = plan.optimizer.roots if assumed.memory.foreach_step else 0.0
    if not (assumed.memory.stepped_parameters and plan.zero):
        return roots * element_scale * stepped if roots else 0.0
    gradient = plan.gradient_bytes
    cast = FP32 if gradient < FP32 else 0.0
    flattened = gradient + cast
    with_roots = FP32 + roots
    if plan.zero == 3:
        at_once = minimum(stepped, assumed.memory.stepped_parameters)
    else:
        at_once = stepped
        with_roots = with_roots - gradient
    return max(flattened, with_roots) * element_scale * at_once


def sharding_changes_one_rank(plan: Plans, assumed: Assumptions) -> bool:
    """Return whether ZeRO-1 changes the memory of a rank that shares its state with no other.

    It does where the sharded optimizer stores the master copy in another way, or copies what it steps.
    """
    one_weight = StoredWeights({}, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    whole = plan.replace_columns(zero=0)
    sharded = plan.replace_columns(zero=1)
    if whole.master_bytes(assumed) != sharded.master_bytes(assumed):
        return True
    copies = _step_copies(sharded, one_weight, assumed)
    return bool(copies != _step_copies(whole, one_weight, assumed))


def _gathered_weights(
    footprints: Mapping[str, Footprint], plan: Plans, counts: Counts, assumed: Assumptions
) -> Column:
    """Return the memory of weights gathered (or fetched from the host) for the layers at work [byte]."""
    if plan.zero < 3 and "weights" not in split_choice(plan.offload):
        return 0.0
    layer, ends = _units(footprints, counts, assumed, "weights", "expert_weights")
    frozen, frozen_ends = _units(footprints, counts, assumed, "frozen", "expert_frozen")
    layers = _layers_of(counts)
    width = plan.recipe.width * assumed.memory.element_bytes
    if assumed.memory.gathers_by_trace:
        others = maximum(total(layers.values()) - 1, 0.0)
        return _live(width * layer + frozen, width * ends + frozen_ends, others, width, assumed)
    layers_at_once = minimum(assumed.memory.gathered_layers, maximum(total(layers.values()), 1))
    return width * (layers_at_once * layer + ends) + layers_at_once * frozen + frozen_ends


def _live(at_work: Column, end: Column, others: Column, width: float, assumed: Assumptions) -> Column:
    """Return the memory of weights that DeepSpeed's trace has gathered around the turn to backward [byte].

    A weight stays gathered if it is used again within a distance of parameters used (0.19.8,
    runtime/zero/partitioned_param_coordinator.py, __params_to_release): the head, which backward begins with,
    and of the last layers those between whose two uses, the head's and those of the layers after, no more
    lie. What comes next is gathered ahead, up to a limit of all that is.

    Parameters
    ----------
    at_work, end : float or array
        Weights of the layer at work, and of embedding or head [byte].
    others : float or array
        Layers beside it on the device.
    width : float
        Size of a weight [byte].
    """
    distance = assumed.memory.reuse_distance * width
    kept = minimum(maximum(distance - 2 * end, 0.0) / 2, others * at_work)
    live = at_work + end + kept
    room = maximum(assumed.memory.live_parameters * width - live, 0.0)
    ahead = minimum(assumed.memory.prefetched_parameters * width, room)
    return live + minimum(ahead, others * at_work - kept)


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


def _largest_of(figures: Iterable[Column]) -> Column:
    """Return the largest of figures of operations, of which most have none."""
    largest: Column = 0.0
    for figure in figures:
        if not (isinstance(figure, float) and figure == 0):
            largest = maximum(largest, figure)
    return largest


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
