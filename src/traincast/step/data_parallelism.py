"""Data-parallel traffic, exposed and hidden: weights gathered and gradients reduced."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from traincast.core import Assumptions, Column, Plans, System, maximum, minimum, nonzero
from traincast.operations import Axis, CollectiveKind, total
from traincast.step.layer_cost import Costs, PartCosts, sum_of
from traincast.step.model_parts import Counts
from traincast.step.offload import copies_in_passes, copy_time
from traincast.step.pipeline_stages import Stages
from traincast.times import (
    AnyPlacement,
    Curve,
    Placement,
    collective_curve,
    exposed_time,
    is_group,
    largest,
    layer_by_layer,
    least_streaming,
    paced_by,
)

TINY: Final = 1e-30  # in place of a pass that takes no time [s]


class Traffic(NamedTuple):
    """Time of a collective, and the part of it in which data stream."""

    seconds: Column
    stream: Column

    def add_after(self, other: "Traffic") -> "Traffic":
        """Return the traffic of both, one after the other."""
        return Traffic(self.seconds + other.seconds, self.stream + other.stream)


Exchanges = dict[str, Traffic]


class Passes(NamedTuple):
    """Passes of micro-batches, one after the other, that traffic may overlap."""

    number: Column
    stretch: Column  # how much longer waits for the host make each of them


class LeastTraffic(NamedTuple):
    """Least time in which devices stream weights and gradients, however the ranks that shard them lie."""

    gathered: list[Column]  # its weights, once, of each device [s]
    reduced: list[Column]  # the gradients of its weights, once [s]

    @classmethod
    def for_devices(
        cls, costs: Costs, stages: Stages, placement: AnyPlacement, system: System, assumed: Assumptions
    ) -> "LeastTraffic":
        """Return it for the devices of pipelines, given the weights of every part."""
        devices = stages.executed_parts
        gathered, reduced = (list[Column]([0.0] * len(devices)) for _ in range(2))
        weight, gradient = _element_bytes(placement.plan, assumed)
        axes: dict[str, Axis] = {"weights": "shards", "expert_weights": "expert shards"}
        for name, axis in axes.items():
            if any(nonzero(getattr(cost, name)) for cost in costs.values()):
                ranks = placement.group(axis), placement.near, system, assumed
                gather = reduce = least_streaming("all-gather", *ranks)
                if not _alike_both_ways(assumed):
                    reduce = least_streaming("reduce-scatter", *ranks)
                for i, device in enumerate(devices):
                    weights = sum_of(costs, device, name)
                    gathered[i] = gathered[i] + weight * weights * gather
                    reduced[i] = reduced[i] + gradient * weights * reduce
        return cls(gathered, reduced)

    def contention_time(self, plan: Plans, nm: Column, assumed: Assumptions) -> Column:
        """Return what the traffic of a step costs even where all of it is hidden [s]."""
        gathers, reductions = (2 * nm, _reductions(nm, assumed)) if plan.zero == 3 else (1.0, 1.0)
        if plan.zero == 2:
            reductions = _reductions(nm, assumed) / (1 + _others_of_chunk(plan, nm))
        devices = zip(self.gathered, self.reduced, strict=True)
        traffic, _ = largest([gathers * gather + reductions * reduce for gather, reduce in devices])
        return minimum(assumed.overlap.dp_contention, 1) * traffic


@dataclass(frozen=True)
class DataParallelTraffic:
    """Gathers of weights and reductions of gradients, for every part of the model.

    ZeRO-1 reduces gradients and gathers weights once in a step, overlapped with the passes of one
    micro-batch. Where the schedule is interleaved, a chunk of layers works through pp micro-batches before
    the next one does, so pp passes overlap it. ZeRO-2 reduces after every micro-batch, or after those pp of a
    chunk, whose gradients are summed before (arXiv 2407.21783, section 3.3.2); ZeRO-3 also gathers, once for
    forward and once for backward (arXiv 1910.02054, section 7). Software that adds up whole gradients reduces
    them once in a step (`memory.accumulates_whole`). With replicas (HSDP) each rank's shard is
    all-reduced over them, once in a step. All of it hides behind what copies to and from the host leave of
    the passes, which are longer by the factor `stretch` of each device where it waits for the host. Where the
    accelerator's PCIe link leads to its host and to its NIC, copies and traffic take turns; where they have
    links of their own, this is an upper bound.
    """

    stages: Stages
    costs: Costs
    copied: Mapping[str, Column]  # copies of a pass to or from the host [s]
    gather: Exchanges
    scatter: Exchanges
    between: Exchanges  # all-reduces over replicas, where they are not part of `scatter` or left out
    buckets: dict[str, Column]  # layers whose gradients are reduced, and weights gathered, together
    plan: Plans
    nm: Column
    assumed: Assumptions
    contention: Column  # share of hidden traffic that costs time
    serial: Column  # wait for ranks that send one after the other [s]

    def exposed_in_step(self, stretch: Sequence[Column]) -> Column:
        """Return the exposed time of the device that has most of it [s]."""
        of_devices = self._in_step(self._exposed_time, stretch)
        longest, _ = largest([sum(in_step, self.serial) for in_step in of_devices])
        return longest

    def hidden_in_step(self, stretch: Sequence[Column]) -> list[tuple[Column, Column]]:
        """Return the hidden gathers of weights and reductions of gradients of every device [s]."""
        return self._in_step(self._hidden, stretch)

    def _hidden(self, exchanges: Exchanges, direction: str, device: Counts, passes: Passes) -> Column:
        """Return the hidden time of these exchanges [s]."""
        seconds = total(n * exchanges[part].seconds for part, n in device.items())
        return seconds - replace(self, contention=0.0)._exposed_time(exchanges, direction, device, passes)

    def _exposed_time(self, exchanges: Exchanges, direction: str, device: Counts, passes: Passes) -> Column:
        """Return the exposed time of exchanges that so many passes of a direction may overlap [s]."""
        window = self.assumed.overlap.dp_window if self.plan.dp_overlap else 0.0
        waits = self._waits(device, direction)
        busy = []
        for part, share in zip(device, waits, strict=True):
            seconds = passes.stretch * share * getattr(self.costs[part], direction)
            busy.append(window * passes.number * exposed_time(seconds - self.copied[part]))
        seconds, streams = zip(*(exchanges[part] for part in device), strict=True)
        together = [self.buckets[part] for part in device]
        return layer_by_layer(seconds, busy, list(device.values()), self.contention, streams, together)

    def _waits(self, device: Counts, direction: str) -> list[Column]:
        """Return how much longer waits for the host make a pass of each part than they make the device.

        They are where the host issues most for the time that the device works.
        """
        parts = [self.costs[part] for part in device]
        if not any(nonzero(part.dispatch) for part in parts):
            return [1.0] * len(parts)
        forward = [paced_by(part.dispatch_forward, part.forward) for part in parts]
        backward = [paced_by(part.dispatch - part.dispatch_forward, part.backward) for part in parts]
        counts = list(device.values())
        busy = total(n * (part.forward + part.backward) for n, part in zip(counts, parts, strict=True))
        paced = total(n * (f + b) for n, f, b in zip(counts, forward, backward, strict=True))
        even = busy / maximum(paced, TINY)
        waiting = forward if direction == "forward" else backward
        return [
            even * seconds / maximum(getattr(part, direction), TINY)
            for seconds, part in zip(waiting, parts, strict=True)
        ]

    def _in_step(
        self, time_of: Callable[..., Column], stretch: Sequence[Column]
    ) -> list[tuple[Column, Column]]:
        """Return the time of gathers and reductions of every device: `_exposed_time` or `_hidden` [s]."""
        devices = zip(self.stages.stored_parts, self.stages.executed_parts, stretch, strict=True)
        return [self._of_device(time_of, *device) if device[0] else (0.0, 0.0) for device in devices]

    def _of_device(
        self, time_of: Callable[..., Column], stored: Counts, executed: Counts, stretch: Column
    ) -> tuple[Column, Column]:
        """Return the gathers and reductions of a device in a step [s]."""
        plan = self.plan
        nm = self.nm
        reductions = _reductions(nm, self.assumed)
        one = Passes(1.0, stretch)
        replicated: Column = (
            time_of(self.between, "backward", stored, one)
            if self.between and plan.zero >= 2 and nonzero(plan.replicas != 1)
            else 0.0
        )
        if plan.zero == 3:
            both = {part: self.gather[part].add_after(self.scatter[part]) for part in self.costs}
            gathered = nm * time_of(self.gather, "forward", executed, one)
            reduced = reductions * time_of(both, "backward", executed, one)
            if self.assumed.memory.accumulates_whole:
                reduced = reduced + (nm - reductions) * time_of(self.gather, "backward", executed, one)
            return gathered, reduced + replicated
        others = _others_of_chunk(plan, nm)
        passes = Passes(1 + self.assumed.overlap.interleaved_window * others, stretch)
        if plan.zero == 2:
            scattered = reductions / (1 + others) * time_of(self.scatter, "backward", executed, passes)
        else:
            scattered = time_of(self.scatter, "backward", stored, passes)
        return time_of(self.gather, "forward", stored, passes), scattered + replicated


def _reductions(nm: Column, assumed: Assumptions) -> Column:
    """Return how often sharded gradients are reduced in a step of so many micro-batches."""
    return 1 + 0 * nm if assumed.memory.accumulates_whole else nm


def _others_of_chunk(plan: Plans, nm: Column) -> Column:
    """Return the other micro-batches that an interleaved chunk works through before the next one does."""
    return is_group(plan.vp) * (minimum(plan.pp, nm) - 1)


def data_parallel(
    costs: Costs, stages: Stages, placement: Placement, nm: Column, system: System, assumed: Assumptions
) -> DataParallelTraffic:
    """Return the data-parallel traffic of every part that some device stores."""
    plan = placement.plan
    stored = dict.fromkeys(part for device in stages.stored_parts for part in device)
    used = {part: costs[part] for part in stored}
    copied: dict[str, Column] = dict.fromkeys(used, 0.0)
    if copies_in_passes(plan):
        copied = {part: copy_time(cost, plan, system, assumed) for part, cost in used.items()}
        used = {part: _at_least(cost, copied[part]) for part, cost in used.items()}
    if plan.ep_overlap:
        used = {part: _free_of_exchanges(cost) for part, cost in used.items()}
    buckets = _buckets(used, stages, placement, assumed)
    gather, scatter, between = _exchanges(used, buckets, placement, system, assumed)
    if plan.zero < 2 and between:
        scatter = {part: scatter[part].add_after(between[part]) for part in used}
    contention = assumed.overlap.dp_contention
    serial = _broadcasts(placement, assumed)
    return DataParallelTraffic(
        stages, used, copied, gather, scatter, between, buckets, plan, nm, assumed, contention, serial
    )


def _buckets(used: Costs, stages: Stages, placement: Placement, assumed: Assumptions) -> dict[str, Column]:
    """Return how many layers of each kind share a bucket, whose gradients are reduced at once; at least 1.

    A bucket has at least so many parameters, and more on many ranks, so that a ring's latency stays short
    beside its data. FSDP gathers layer by layer.
    """
    ranks, _ = placement.group("shards")
    least = maximum(assumed.collectives.bucket_parameters, assumed.collectives.bucket_per_rank * ranks)
    if placement.plan.zero == 3 or not nonzero(least):
        return dict.fromkeys(used, 1.0)
    layers = {
        part: maximum(largest([device.get(part, 0.0) for device in stages.stored_parts])[0], 1)
        for part in used
    }
    return {
        part: minimum(maximum(least / maximum(cost.weights, 1), 1), layers[part])
        for part, cost in used.items()
    }


def _at_least(cost: PartCosts, copied: Column) -> PartCosts:
    """Return the costs with passes at least as long as their copies to or from the host."""
    return replace(cost, forward=maximum(cost.forward, copied), backward=maximum(cost.backward, copied))


def _free_of_exchanges(cost: PartCosts) -> PartCosts:
    """Return the costs with passes shortened by the exchanges with experts that they hide already."""
    free = exposed_time(1 - cost.hidden / maximum(cost.forward + cost.backward, TINY))
    return replace(cost, forward=free * cost.forward, backward=free * cost.backward)


def _broadcasts(placement: Placement, assumed: Assumptions) -> Column:
    """Return the wait for ranks that broadcast their shard of the weights one after the other [s]."""
    if not (placement.plan.zero and nonzero(assumed.host.broadcast_seconds)):
        return 0.0
    n, near = placement.group("shards")
    return assumed.host.broadcast_seconds * n * is_group(n / near[0])


class _ReplicaGroup(NamedTuple):
    """Ranks with the same weights, and the curves of their collectives."""

    sharded: bool
    reduction: Curve  # over the ranks that shard one copy, or over all where every rank has a copy
    gathering: Curve  # over the same ranks
    between: Curve | None  # over replicas of the same shard, if there are any
    shards: Column

    def gather(self, nbytes: Column, bucket: Column = 1.0) -> Traffic:
        """Return a layer's share of the time to gather the weights of a bucket; 0 if not sharded [s]."""
        if not self.sharded:
            return self._no_traffic(nbytes)
        return Traffic(
            self.gathering.seconds(nbytes * bucket) / bucket, self.gathering.streaming_time(nbytes)
        )

    def reduce(self, nbytes: Column, bucket: Column = 1.0) -> Traffic:
        """Return a layer's share of the time to reduce a bucket over the ranks that shard one copy [s]."""
        return Traffic(
            self.reduction.seconds(nbytes * bucket) / bucket, self.reduction.streaming_time(nbytes)
        )

    def synchronise(self, nbytes: Column) -> Traffic:
        """Return the time to sum each rank's shard of the gradients over the replicas [s]."""
        if self.between is None:
            return self._no_traffic(nbytes)
        shard = nbytes / self.shards
        return Traffic(self.between.seconds(shard), self.between.streaming_time(shard))

    def _no_traffic(self, nbytes: Column) -> Traffic:
        """Return a time of 0 in the rows of the plans [s]."""
        return Traffic(0 * self.reduction.seconds(nbytes), 0 * self.reduction.streaming_time(nbytes))


def _replica_groups(
    placement: Placement, axes: tuple[Axis, Axis, Axis], shards: Column, system: System, assumed: Assumptions
) -> _ReplicaGroup:
    """Return the ranks with the same weights; `axes` name all, those of a copy, and the replicas."""
    plan = placement.plan
    (all_ranks, shard_ranks, replicas) = axes

    def curve_of(axis: Axis, kind: CollectiveKind) -> Curve:
        return collective_curve(kind, placement.group(axis), system, assumed, data_parallel=True)

    between = curve_of(replicas, "all-reduce") if nonzero(plan.replicas != 1) else None
    if plan.zero == 0:
        reduction = curve_of(all_ranks, "all-reduce")
        return _ReplicaGroup(False, reduction, reduction, between, shards)
    reduction = curve_of(shard_ranks, "reduce-scatter")
    gathering = reduction if _alike_both_ways(assumed) else curve_of(shard_ranks, "all-gather")
    return _ReplicaGroup(True, reduction, gathering, between, shards)


def _alike_both_ways(assumed: Assumptions) -> bool:
    """Return whether a reduce-scatter takes as long as an all-gather."""
    return assumed.collectives.all_gather_factor == assumed.collectives.reduce_scatter_factor


def _element_bytes(plan: Plans, assumed: Assumptions) -> tuple[float, float]:
    """Return the sizes of a weight that is gathered and of a gradient that is reduced [byte]."""
    byte = assumed.memory.element_bytes / 2  # 16 bits have two bytes
    return 2 * plan.recipe.width * byte, plan.gradient_bytes * byte


def _exchanges(
    used: Costs, buckets: dict[str, Column], placement: Placement, system: System, assumed: Assumptions
) -> tuple[Exchanges, ...]:
    """Return the times to gather weights, reduce gradients and sum them over replicas, by part [s]."""
    plan = placement.plan
    (weight, gradient) = _element_bytes(placement.plan, assumed)
    dense = _replica_groups(placement, ("weights", "shards", "replicas"), plan.shards, system, assumed)
    frozen = float(plan.zero == 3)  # else every rank keeps what is not updated
    gather = {
        part: dense.gather(weight * cost.weights + frozen * cost.frozen, buckets[part])
        for part, cost in used.items()
    }
    reduced = {part: dense.reduce(gradient * cost.weights, buckets[part]) for part, cost in used.items()}
    between = {part: dense.synchronise(gradient * cost.weights) for part, cost in used.items()}
    with_experts = {
        part: cost for part, cost in used.items() if nonzero(cost.expert_weights + cost.expert_frozen)
    }
    if with_experts:
        experts = _replica_groups(
            placement, ("experts", "expert shards", "expert replicas"), plan.expert_shards, system, assumed
        )
        for part, cost in with_experts.items():
            weights = cost.expert_weights
            kept = frozen * cost.expert_frozen
            gather[part] = gather[part].add_after(experts.gather(weight * weights + kept))
            reduced[part] = reduced[part].add_after(experts.reduce(gradient * weights))
            between[part] = between[part].add_after(experts.synchronise(gradient * weights))
    return gather, reduced, between
