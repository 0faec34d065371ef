"""Time of an operation on a rank: arithmetic, memory traffic and communication of its passes."""

from collections.abc import Sequence
from copy import copy
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Final, Self

import numpy as np

from traincast.core import (
    Assumptions,
    Column,
    Floats,
    Plans,
    System,
    Tier,
    common_divisor,
    distinct,
    log2,
    maximum,
    minimum,
    nonzero,
    replace,
    where,
)
from traincast.operations import Axis, Collective, CollectiveKind, Operation, PassCount, total
from traincast.times.collectives import Curve, collective, collective_curve
from traincast.times.nccl import achieved_bandwidth
from traincast.times.overlap import exposed_time, panel_time
from traincast.times.process_groups import AnyPlacement, Group, Placement, is_group
from traincast.times.roofline import arithmetic_seconds, expert_products, exposed_memory, memory_time
from traincast.times.timed_operation import OperationPasses, PassSeconds, Timed, TimedOperation

EXPERT_AXES: Final = ("ep", "etp", "tp-ep")
CONTEXT_AXES: Final = ("cp", "ulysses")  # attention waits for their communication, whatever `tp_overlap`
# Share of the time to issue a rotation that is forward: of Megatron-Core's chain, 26 kernels of 12 us each,
# and 22 of 5 us each backward, by the autograd engine (tools/framework_kernels.py).
ROTATION_FORWARD: Final = 0.74
ROWS_AT_ONCE: Final = 1 << 14  # of placements and shards


class OperationTimer:
    """Times of operations of plans on a machine; groups and curves are computed once for all of them."""

    def __init__(self, plan: Plans, system: System, assumed: Assumptions, placement: Placement | None = None):
        self.plan = plan
        self.system = system
        self.assumed = assumed
        self.placement = placement or Placement(plan, system.tiers)
        self._curves: dict[tuple[CollectiveKind, Axis], Curve] = {}
        self._timed: dict[
            tuple[int, ...], tuple[Operation, OperationPasses]
        ] = {}  # by identity: parts share passes

    def for_plans(self, plan: Plans) -> Self:
        """Return the timer of plans whose other choices are such that collectives do not depend on them."""
        timer = copy(self)
        timer.plan = plan
        timer._timed = {}
        return timer

    def time_part(
        self, part: tuple[Operation, ...], passes: Sequence[OperationPasses] | None = None
    ) -> Timed:
        """Return the times of all operations of a part of the model.

        `passes` are those of the same operations with any recomputation, if they were timed before.
        """
        passes = self.time_passes(part) if passes is None else passes
        timed = tuple(self._with_recomputation(op, of_op) for op, of_op in zip(part, passes, strict=True))
        is_overlapped = self.plan.ep_overlap and any(
            call.over in EXPERT_AXES for op in part for call in op.forward.collectives
        )
        return overlap_experts(timed, self.assumed) if is_overlapped else timed

    def time_passes(self, part: tuple[Operation, ...]) -> list[OperationPasses]:
        """Return the times of the passes of operations, which do not depend on what is recomputed."""
        keys = [(id(op.forward), id(op.backward), id(op.weight)) for op in part]
        for key, op in zip(keys, part, strict=True):
            if key not in self._timed:
                self._timed[key] = op, self._passes(op)
        return [self._timed[key][1] for key in keys]

    def _passes(self, op: Operation) -> OperationPasses:
        assumed = self.assumed
        forward = self.time_pass(op.forward)
        if op.backward is op.forward:
            return OperationPasses(forward, forward, 0.0)
        if op.weight is None:
            passes = OperationPasses(forward, self.time_pass(op.backward), 0.0)
            if nonzero(op.pieces) and nonzero(assumed.host.rotation_seconds):
                return self._issued_in_pieces(passes, op)
            return self._add_host_time(passes) if op.synchronises else passes
        if assumed.kernels.joint_backward:
            backward = self.time_pass(op.whole_backward)
            share = _matrix_flops(op.weight) / _matrix_flops(op.whole_backward)
            return OperationPasses(forward, backward, share * backward.total, share * backward.dispatch)
        weight = self.time_pass(op.weight)
        backward = self.time_pass(op.backward) + weight
        return OperationPasses(forward, backward, weight.total, weight.dispatch)

    def _add_host_time(self, passes: OperationPasses) -> OperationPasses:
        """Return the passes of a layer's dispatch of tokens with what the host does for all of the layer.

        Forward waits until the host knows the tokens of each expert. The host issues the layer's kernels, a
        third of them forward, while the accelerator works.
        """
        host = self.assumed.host
        forward = passes.forward
        backward = passes.backward
        sync: Column = host.sync_seconds
        if nonzero(host.local_sync_seconds):
            sync = where(self.plan.ep * self.plan.etp == 1, host.local_sync_seconds, sync)
        if nonzero(sync):
            forward = replace(forward, compute=forward.compute + sync)
        if nonzero(host.expert_dispatch_seconds):
            third = host.expert_dispatch_seconds / 3
            forward = replace(forward, dispatch=forward.dispatch + third)
            backward = replace(backward, dispatch=backward.dispatch + 2 * third)
        return passes._replace(forward=forward, backward=backward)

    def _issued_in_pieces(self, passes: OperationPasses, op: Operation) -> OperationPasses:
        """Return the passes of a rotation that the host issues piece by piece, most of the time forward.

        Where it reads the lengths of the pieces from the accelerator, this has nothing to do from then on
        until the host has issued them.
        """
        seconds = self.assumed.host.rotation_seconds * op.pieces
        ahead = ROTATION_FORWARD * seconds
        forward = passes.forward
        later = replace(passes.backward, dispatch=passes.backward.dispatch + (seconds - ahead))
        if op.waits_for_lengths:
            return passes._replace(forward=replace(forward, idle=ahead), backward=later)
        issued = replace(forward, dispatch=forward.dispatch + ahead)
        return passes._replace(forward=issued, backward=later)

    def _with_recomputation(self, op: Operation, passes: OperationPasses) -> TimedOperation:
        """Return the time of an operation from that of its passes."""
        recomputed = self._recompute_time(op, passes.forward)
        forward = passes.forward.times(2) if op.is_reference else passes.forward
        return TimedOperation(op, forward, passes.backward, passes.weight, recomputed, passes.weight_dispatch)

    def _recompute_time(self, op: Operation, forward: PassSeconds) -> PassSeconds | None:
        """Return the time to recompute an operation before backward, if it is."""
        if not op.recompute or op.output_unused:
            return None
        recomputed = "full" in self.plan.recomputed
        if op.module == "norms" and not recomputed and not self.assumed.memory.saves_gathered:
            forward = replace(forward, comm=0 * forward.comm)  # the layer that follows gathers in any case
        return forward if op.recompute == 1 else forward.times(float(op.recompute))

    def time_pass(self, work: PassCount) -> PassSeconds:
        """Return the time of one pass: max(t_c, t_m) and exposed communication (arXiv 2410.00273, times)."""
        plan = self.plan
        assumed = self.assumed
        gpu = self.system.accelerator
        compute: Column = 0 * assumed.kernels.launch_seconds
        if work.kernels:
            compute = arithmetic_seconds(work, gpu, assumed, plan.recipe)
        memory = exposed_memory(work, compute, gpu, assumed)
        if not work.collectives and work.panels is None and work.rounds is None:
            return PassSeconds(compute, memory, 0.0, 0.0, self._dispatch(work))
        calls = [call for call in work.collectives if call.over not in EXPERT_AXES]
        if work.panels is not None:
            comm = self._panel_time(total(map(self._collective, calls)), work.panels, compute + memory)
        elif work.rounds is not None:  # a ring: each block is fetched while attention works on the last one
            busy = (compute + memory) * work.rounds / (work.rounds + 1)
            comm = exposed_time(total(map(self._collective, calls)) * work.rounds - busy)
        else:
            waited = assumed.overlap.tp_exposed
            exposed = where(plan.tp_overlap, assumed.overlap.tp_overlapped, waited)
            comm = total(
                self._collective(call) * (waited if call.over in CONTEXT_AXES else exposed) for call in calls
            )
            if nonzero(assumed.collectives.copy_passes):
                copied = total(self._copy_traffic(call) for call in calls)
                memory = memory + where(plan.tp_overlap, 0.0, memory_time(copied, gpu, assumed))
        exchange = total(self._collective(call) for call in work.collectives if call.over in EXPERT_AXES)
        if not plan.ep_overlap and nonzero(exchange):
            exchange = assumed.overlap.ep_exposed * exchange
        return PassSeconds(compute, memory, comm, exchange, self._dispatch(work))

    def _panel_time(self, comm: Column, panels: Column, busy: Column) -> Column:
        """Return the exposed communication of a product in panels [s]."""
        return panel_time(comm, panels, busy)

    def _collective(self, call: Collective) -> Column:
        """Return the time of a collective [s]."""
        group = self.placement.group(call.over)
        if type(group.members) is float and group.members == 1.0:  # as all formulas below would have it
            return 0.0
        system = self.system
        assumed = self.assumed
        seconds: Column
        if call.kind in ("all-to-all", "send"):
            seconds = collective(call.kind, call.nbytes, group, system, assumed, call.copies, call.groups)
        else:
            key = call.kind, call.over
            if key not in self._curves:
                self._curves[key] = collective_curve(call.kind, group, system, assumed)
            seconds = self._curves[key].seconds(call.nbytes)
        if call.over == "tp" and nonzero(assumed.collectives.skew_seconds):
            seconds = seconds + assumed.collectives.skew_seconds * log2(self.plan.tp)
        return seconds

    def _copy_traffic(self, call: Collective) -> Column:
        """Return the traffic of copies of what tensor ranks gather or scatter by tokens [byte].

        Collectives take ranks one after the other, which is the order of tokens only of a single sequence.
        """
        if call.over != "tp" or call.kind not in ("all-gather", "reduce-scatter"):
            return 0.0
        several = (self.plan.mbs > 1) & (self.plan.tp > 1)
        return where(several, self.assumed.collectives.copy_passes * call.nbytes, 0.0)

    def _dispatch(self, work: PassCount) -> Column:
        """Return the time of the host to launch the kernels and collectives of a pass [s].

        Products of experts that are not grouped it launches one by one.
        """
        host = self.assumed.host
        of_experts = host.expert_product_seconds * expert_products(work, self.assumed)
        if not nonzero(host.dispatch_seconds):
            return of_experts
        collectives = total(is_group(self.placement.group(call.over).members) for call in work.collectives)
        return host.dispatch_seconds * (work.launches * bool(work.kernels) + collectives) + of_experts


class LeastTimer(OperationTimer):
    """Times of operations that no placement makes shorter.

    Each collective takes the least of its times with some numbers of members in a domain of each tier: `near`
    has all that a placement can have. Most kinds are fastest with as many as there are in the larger domains,
    where these are faster.
    """

    def __init__(self, plan: Plans, system: System, assumed: Assumptions, near: Sequence[tuple[float, ...]]):
        super().__init__(plan, system, assumed, AnyPlacement(plan, near))
        self._near = near
        widest = dict.fromkeys((inner, *(len(outer) * [float("inf")])) for inner, *outer in near)
        self._widest = list(widest) if _slower_outwards(system.tiers[1:]) else near
        self._least: dict[object, tuple[Collective, Column]] = {}

    def _panel_time(self, comm: Column, panels: Column, busy: Column) -> Column:
        """Return what is exposed at least where all of the product is one panel, but overlaps [s]."""
        return exposed_time(comm - busy)

    def time_passes(self, part: tuple[Operation, ...]) -> list[OperationPasses]:
        """Return the times of the passes of operations; collectives of a kind are timed together."""
        together: dict[object, dict[object, Collective]] = {}
        passes = (work for op in part for work in (op.forward, op.backward, op.weight) if work is not None)
        for call in (call for work in passes for call in work.collectives):
            if (key := self._key(call)) not in self._least:
                together.setdefault((call.kind, call.over, call.groups), {})[key] = call
        for calls in together.values():
            times = self._least_seconds(list(calls.values()))
            self._least |= {key: (calls[key], least) for key, least in zip(calls, times, strict=True)}
        return super().time_passes(part)

    def both_passes(self, part: tuple[Operation, ...], passes: Sequence[OperationPasses]) -> PassSeconds:
        """Return the time of both passes of a part, from those of its operations."""
        referred = (of.forward for op, of in zip(part, passes, strict=True) if op.is_reference)
        return _sum_of((*referred, *(seconds for of in passes for seconds in of[:2])))

    def recomputation(self, part: tuple[Operation, ...], passes: Sequence[OperationPasses]) -> PassSeconds:
        """Return the time to recompute a part before backward, from the passes of its operations."""
        again = (self._recompute_time(op, of.forward) for op, of in zip(part, passes, strict=True))
        return _sum_of([seconds for seconds in again if seconds is not None])

    def _key(self, call: Collective) -> tuple[object, ...]:
        """Return what tells collectives apart, as long as their columns are kept."""
        return call.kind, call.over, id(call.nbytes), id(call.copies), call.groups

    def _collective(self, call: Collective) -> Column:
        """Return the least time of a collective [s]."""
        seconds = self._least[self._key(call)][1]
        if call.over == "tp" and nonzero(self.assumed.collectives.skew_seconds):
            seconds = seconds + self.assumed.collectives.skew_seconds * log2(self.plan.tp)
        return seconds

    def _least_seconds(self, calls: Sequence[Collective]) -> list[Column]:
        """Return the least times over placements of collectives of one kind, each distinct one once [s]."""
        call = calls[0]
        members = self.placement.group(calls[0].over).members
        wholes = [np.broadcast_arrays(members, one.nbytes, one.copies) for one in calls]
        columns = [np.concatenate([column.ravel() for column in same]) for same in zip(*wholes, strict=True)]
        first, row = distinct(columns, len(columns[0]))
        n, volume, copies = (column[first] for column in columns)
        near = self._near if call.kind in ("all-to-all", "all-reduce") else self._widest
        # numbers of members near each other down, in pieces that stay in the processor's cache
        pieces = np.array_split(np.array(near), min(len(near), 1 + len(near) * n.size // ROWS_AT_ONCE))
        of = self.system, self.assumed, copies, call.groups
        times = (
            np.min(collective(call.kind, volume, _groups_in_domain(n, piece), *of), axis=0)
            for piece in pieces
        )
        least = np.asarray(reduce(minimum, times))[row]
        ends = np.cumsum([whole[0].size for whole in wholes])[:-1]
        parts = zip(np.split(least, ends), wholes, strict=True)
        return [seconds.reshape(whole[0].shape) for seconds, whole in parts]


def time_part(part: tuple[Operation, ...], plan: Plans, system: System, assumed: Assumptions) -> Timed:
    """Return the times of all operations of one part of the model."""
    return OperationTimer(plan, system, assumed).time_part(part)


def _groups_in_domain(members: Column, within: Floats) -> Group:
    """Return groups with members near each other down, which in fast domains are divisors of all."""
    inner, *outer = within.T[..., None]
    return Group(members, (common_divisor(members, inner), *(minimum(members, n) for n in outer)))


def _sum_of(passes: Sequence[PassSeconds]) -> PassSeconds:
    """Return the time of several passes; what is the same for all degrees of experts is added up first."""
    by_size = sorted(passes, key=lambda seconds: np.size(seconds.compute))
    return reduce(add, by_size, PassSeconds(0.0, 0.0, 0.0))


def _slower_outwards(tiers: Sequence[Tier]) -> bool:
    """Return whether no tier is surely faster than the one inside it.

    It is not sure where congestion, or ports lost with few members in a domain, slow the inner one.
    """
    slower = (
        achieved_bandwidth(outer) * outer.ports <= achieved_bandwidth(inner) * inner.ports
        and outer.latency >= inner.latency
        for inner, outer in pairwise(tiers)
    )
    slowed = [tier.congestion for tier in tiers] + [tier.lost_ports for tier in tiers[:-1]]
    return all(slower) and not any(nonzero(share or 0.0) for share in slowed)


def _matrix_flops(work: PassCount) -> Column:
    """Count the arithmetic of products in any precision [FLOP]."""
    return work.flops("matrix") + work.flops("low")


def exposed_share(sent: Column, work: Column, assumed: Assumptions) -> Column:
    """Return the share of exchange x with experts exposed beside work w: max(x - w, ep_overlapped x) / x.

    It is at most what is exposed without overlap.
    """
    exposed = maximum(sent - work, assumed.overlap.ep_overlapped * sent)
    exposed = minimum(exposed, assumed.overlap.ep_exposed * sent)
    return where(sent > 0, exposed / where(sent > 0, sent, 1.0), 1.0)


def overlap_experts(timed: Timed, assumed: Assumptions) -> Timed:
    """Return a part whose exchange with experts is overlapped with another micro-batch's work.

    Forward of one micro-batch and backward of another are interleaved operation by operation: DualPipe (arXiv
    2412.19437, section 3.2.1), overlap-moe-expert-parallel-comm of Megatron-Core.
    """
    passes = [
        seconds for op in timed for seconds in (op.forward, op.backward, op.recompute) if seconds is not None
    ]
    sent = total(seconds.exchange for seconds in passes)
    share = exposed_share(sent, total(seconds.work for seconds in passes), assumed)

    def divide_exchange(seconds: PassSeconds) -> PassSeconds:
        if not nonzero(seconds.exchange):
            return seconds
        return replace(seconds, exchange=share * seconds.exchange, hidden=(1 - share) * seconds.exchange)

    return tuple(
        replace(
            op,
            forward=divide_exchange(op.forward),
            backward=divide_exchange(op.backward),
            recompute=None if op.recompute is None else divide_exchange(op.recompute),
        )
        for op in timed
    )
