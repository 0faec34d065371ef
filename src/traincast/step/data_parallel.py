"""Data-parallel traffic: weights gathered and gradients reduced, as far as they do not hide behind the layers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.plan import Plans
from traincast.core.quantities import Column
from traincast.core.system import System
from traincast.operations.operation import Axis, CollectiveKind, total
from traincast.step.layer_cost import Costs
from traincast.step.pipeline_stages import Counts, Stages
from traincast.times.collectives import Curve, collective_curve, is_group
from traincast.times.overlap import largest, layer_by_layer
from traincast.times.process_groups import group


class Traffic(NamedTuple):
    """Time of a collective, and the part of it in which data stream."""

    seconds: Column
    stream: Column

    def also(self, other: "Traffic") -> "Traffic":
        """Both, one after the other."""
        return Traffic(self.seconds + other.seconds, self.stream + other.stream)


Exchanges = dict[str, Traffic]


def data_parallel(costs: Costs, stages: Stages, plan: Plans, nm: Column, system: System, assumed: Assumptions) -> Column:
    """Weights gathered and gradients reduced over the ranks that hold the same, as far as they do not hide behind the layers.

    ZeRO-1 reduces gradients and gathers weights once in a step, behind the passes of one micro-batch. Where the schedule is
    interleaved, a chunk of layers works through pp micro-batches before the next one does, so each has pp passes to hide behind.
    ZeRO-2 reduces after every micro-batch; ZeRO-3 also gathers, for forward and again for backward (arXiv 1910.02054, section 7).
    With replicas (HSDP) each rank's share is all-reduced over them, once in a step.

    Parameters
    ----------
    costs : mapping of str to PartCosts
        What each part of the model costs.
    stages : Stages
        Devices of the pipeline: parts whose weights they have, and parts that a micro-batch passes.
    plan : Plans
        Plans.
    nm : Column
        Micro-batches of a replica.
    system : System
        The machine.
    assumed : Assumptions
        What is assumed.

    Returns
    -------
    Column
        Time in a step, of the device where it is longest [s].
    """
    traffic = _traffic(costs, stages, plan, nm, system, assumed)
    serial = _broadcasts(plan, system, assumed)
    each = [sum(traffic.in_step(traffic.exposed, *device), serial) for device in zip(stages.held, stages.work, strict=True)]
    return largest(each)[0]


def hidden_traffic(
    costs: Costs, stages: Stages, plan: Plans, nm: Column, system: System, assumed: Assumptions
) -> list[tuple[Column, Column]]:
    """The rest of `data_parallel`, which hides behind the layers, of every device: weights gathered, and gradients reduced [s]."""
    traffic = _traffic(costs, stages, plan, nm, system, assumed)
    devices = zip(stages.held, stages.work, strict=True)
    return [traffic.in_step(traffic.hidden, held, work) if held else (0.0, 0.0) for held, work in devices]


@dataclass(frozen=True)
class _DataParallelTraffic:
    """What ranks that hold the same weights say to each other for every part of the model."""

    costs: Costs
    gather: Exchanges
    scatter: Exchanges
    between: Exchanges  # sums over replicas, where they do not come with `scatter`
    plan: Plans
    nm: Column
    assumed: Assumptions

    def exposed(self, exchanges: Exchanges, direction: str, device: Counts, passes: Column = 1.0) -> Column:
        """What is waited for of exchanges that may hide behind so many passes of a direction [s]."""
        return self._waited(exchanges, direction, device, passes, self.assumed.dp_contention)

    def hidden(self, exchanges: Exchanges, direction: str, device: Counts, passes: Column = 1.0) -> Column:
        """What hides of them [s]."""
        whole = total(n * exchanges[part].seconds for part, n in device.items())
        return whole - self._waited(exchanges, direction, device, passes, 0.0)

    def _waited(self, exchanges: Exchanges, direction: str, device: Counts, passes: Column, contention: float) -> Column:
        busy = [self.assumed.dp_window * passes * getattr(self.costs[part], direction) for part in device]
        seconds, streams = zip(*(exchanges[part] for part in device), strict=True)
        return layer_by_layer(seconds, busy, list(device.values()), contention, streams)

    def in_step(self, of: Callable[..., Column], held: Counts, work: Counts) -> tuple[Column, Column]:
        """What is exposed, or hidden, of a device in a step: weights gathered, and gradients reduced [s]."""
        plan, nm = self.plan, self.nm
        once: Column = of(self.between, "backward", held) if plan.zero >= 2 and np.any(plan.replicas != 1) else 0.0
        if plan.zero == 3:
            again = {part: self.gather[part].also(self.scatter[part]) for part in self.costs}
            return nm * of(self.gather, "forward", work), nm * of(again, "backward", work) + once
        group_size = 1 + self.assumed.interleaved_window * is_group(plan.vp) * (np.minimum(plan.pp, nm) - 1)
        scattered = nm * of(self.scatter, "backward", work) if plan.zero == 2 else of(self.scatter, "backward", held, group_size)
        return of(self.gather, "forward", held, group_size), scattered + once


def _traffic(costs: Costs, stages: Stages, plan: Plans, nm: Column, system: System, assumed: Assumptions) -> _DataParallelTraffic:
    """Exchanges of every part that a device holds."""
    used = {part: costs[part] for part in dict.fromkeys(part for device in stages.held for part in device)}
    gather, scatter, between = _exchanges(used, plan, system, assumed)
    if plan.zero < 2:
        scatter = {part: scatter[part].also(between[part]) for part in used}
    return _DataParallelTraffic(used, gather, scatter, between, plan, nm, assumed)


def _broadcasts(plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Wait for ranks that broadcast their share of the weights one after the other, over the network [s]."""
    if not (assumed.broadcast_seconds and plan.zero):
        return 0.0
    n, near = group(plan, "shards", system.tiers)
    return assumed.broadcast_seconds * n * is_group(n / near[0])


class _ReplicaGroup(NamedTuple):
    """Ranks that hold the same weights, and what they say to each other."""

    sharded: bool
    ring: Curve  # of those that share one copy, or of all where every rank has one: to reduce
    back: Curve  # the same to gather
    between: Curve | None  # replicas of the same share, if there are any
    shards: Column

    def gather(self, nbytes: Column) -> Traffic:
        """Time to gather weights; nothing where they are not sharded [s]."""
        return Traffic(self.back.seconds(nbytes), self.back.streaming(nbytes)) if self.sharded else self._nothing(nbytes)

    def reduce(self, nbytes: Column) -> Traffic:
        """Time to reduce gradients over those that share one copy [s]."""
        return Traffic(self.ring.seconds(nbytes), self.ring.streaming(nbytes))

    def synchronise(self, nbytes: Column) -> Traffic:
        """Time to sum each rank's share of the gradients over the replicas [s]."""
        if self.between is None:
            return self._nothing(nbytes)
        return Traffic(self.between.seconds(nbytes / self.shards), self.between.streaming(nbytes / self.shards))

    def _nothing(self, nbytes: Column) -> Traffic:
        """No time at all, in the rows of the plans [s]."""
        return Traffic(0 * self.ring.seconds(nbytes), 0 * self.ring.streaming(nbytes))


def _replica_groups(
    plan: Plans, axes: tuple[Axis, Axis, Axis], shards: Column, system: System, assumed: Assumptions
) -> _ReplicaGroup:
    """Holders of the same weights; `axes` name the groups of all of them, of those that share a copy, and of replicas."""
    everyone, sharers, replicas = axes

    def over(axis: Axis, kind: CollectiveKind) -> Curve:
        return collective_curve(kind, group(plan, axis, system.tiers), system, assumed, data_parallel=True)

    between = over(replicas, "all-reduce") if np.any(plan.replicas != 1) else None
    if plan.zero == 0:
        ring = over(everyone, "all-reduce")
        return _ReplicaGroup(False, ring, ring, between, shards)
    ring = over(sharers, "reduce-scatter")
    alike = assumed.all_gather_factor == assumed.reduce_scatter_factor
    return _ReplicaGroup(True, ring, ring if alike else over(sharers, "all-gather"), between, shards)


def _exchanges(used: Costs, plan: Plans, system: System, assumed: Assumptions) -> tuple[Exchanges, ...]:
    """Time to gather the weights of one of every part, to reduce its gradients, and to sum those over replicas [s]."""
    byte = assumed.element_bytes / 2  # 16 bits have two bytes
    weight, gradient = 2 * plan.recipe.width * byte, plan.gradient_bytes * byte
    dense = _replica_groups(plan, ("weights", "shards", "replicas"), plan.shards, system, assumed)
    gather = {part: dense.gather(weight * one.weights) for part, one in used.items()}
    reduced = {part: dense.reduce(gradient * one.weights) for part, one in used.items()}
    between = {part: dense.synchronise(gradient * one.weights) for part, one in used.items()}
    spread = {part: one.expert_weights for part, one in used.items() if np.any(one.expert_weights)}
    if spread:
        experts = _replica_groups(plan, ("experts", "expert shards", "expert replicas"), plan.expert_shards, system, assumed)
        for part, weights in spread.items():
            gather[part] = gather[part].also(experts.gather(weight * weights))
            reduced[part] = reduced[part].also(experts.reduce(gradient * weights))
            between[part] = between[part].also(experts.synchronise(gradient * weights))
    return gather, reduced, between
