"""Time of an operation on a rank: arithmetic, memory traffic and communication of its passes."""

from dataclasses import dataclass, replace
from typing import Final

from traincast.core.assumptions import Assumptions
from traincast.core.columns import log2, maximum, where
from traincast.core.plan import Plans
from traincast.core.quantities import Column, nonzero
from traincast.core.system import System
from traincast.operations.operation import Collective, Operation, PassCount, total
from traincast.times.collectives import collective, collective_curve, is_group
from traincast.times.overlap import exposed_time, panelled
from traincast.times.process_groups import group
from traincast.times.roofline import arithmetic, exposed_memory

EXPERT_AXES: Final = ("ep", "etp")


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Time of a pass by what it is spent on; columns over plans."""

    compute: Column  # launches and arithmetic [s]
    memory: Column  # memory traffic not hidden behind arithmetic [s]
    comm: Column  # tensor- and context-parallel communication not hidden [s]
    exchange: Column = 0.0  # communication with experts not hidden [s]
    # time of the host to launch it all, overlapped with the accelerator's work; no part of the total [s]
    dispatch: Column = 0.0
    # communication with experts overlapped with another micro-batch's work; no part of the total [s]
    hidden: Column = 0.0

    @property
    def total(self) -> Column:
        """Return the time on the accelerator [s]."""
        return self.compute + self.memory + self.comm + self.exchange

    def times(self, n: Column) -> "PassSeconds":
        """Return the time of n such passes."""
        return PassSeconds(
            n * self.compute,
            n * self.memory,
            n * self.comm,
            n * self.exchange,
            n * self.dispatch,
            n * self.hidden,
        )

    def __add__(self, other: "PassSeconds") -> "PassSeconds":
        """Return the time of both passes, one after the other."""
        return PassSeconds(
            self.compute + other.compute,
            self.memory + other.memory,
            self.comm + other.comm,
            self.exchange + other.exchange,
            self.dispatch + other.dispatch,
            self.hidden + other.hidden,
        )


@dataclass(frozen=True, slots=True)
class TimedOperation:
    """An operation with the time of its passes."""

    operation: Operation  # the operation
    forward: PassSeconds  # time of each pass; backward includes the gradient of the weights
    backward: PassSeconds
    weight: Column  # the part of backward that computes the gradient of the weights [s]
    recompute: PassSeconds | None  # recomputation of the forward pass before backward, if any


Timed = tuple[TimedOperation, ...]


def time_pass(work: PassCount, plan: Plans, system: System, assumed: Assumptions) -> PassSeconds:
    """Return the time of one pass: max(t_c, t_m), and the exposed communication (arXiv 2410.00273, times)."""
    compute = (
        arithmetic(work, system.accelerator, assumed, plan.recipe)
        if work.kernels
        else 0 * assumed.kernels.launch_seconds
    )
    memory = exposed_memory(work, compute, system.accelerator, assumed)

    def seconds_of(call: Collective) -> Column:
        seconds = _collective_seconds(call, plan, system, assumed)
        if call.over == "tp" and nonzero(assumed.collectives.skew_seconds):
            return seconds + assumed.collectives.skew_seconds * log2(plan.tp)
        return seconds

    comm = total(seconds_of(call) for call in work.collectives if call.over not in EXPERT_AXES)
    if work.panels is not None:
        comm = panelled(comm, work.panels, compute + memory)
    elif work.rounds is not None:  # a ring: each block is fetched while attention works on the previous one
        comm = exposed_time(comm * work.rounds - (compute + memory) * work.rounds / (work.rounds + 1))
    else:
        comm = comm * (assumed.overlap.tp_overlapped if plan.tp_overlap else assumed.overlap.tp_exposed)
    exchange = total(seconds_of(call) for call in work.collectives if call.over in EXPERT_AXES)
    exchange = (1 if plan.ep_overlap else assumed.overlap.ep_exposed) * exchange
    return PassSeconds(compute, memory, comm, exchange, _dispatch(work, plan, system, assumed))


def _collective_seconds(call: Collective, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Return the time of a collective; its curve over the volume is computed once for the plans [s]."""
    if call.kind in ("all-to-all", "send"):
        return collective(
            call.kind, call.nbytes, group(plan, call.over, system.tiers), system, assumed, call.copies
        )
    key = call.kind, call.over
    cached_system, cached_assumptions, curve = plan.placed_on.get(key, (None, None, None))
    if cached_system is not system or cached_assumptions is not assumed:
        curve = collective_curve(call.kind, group(plan, call.over, system.tiers), system, assumed)
        plan.placed_on[key] = system, assumed, curve
    seconds: Column = curve.seconds(call.nbytes)
    return seconds


def _dispatch(work: PassCount, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Return the time of the host to launch the kernels and collectives of a pass [s]."""
    if not nonzero(assumed.host.dispatch_seconds):
        return 0.0
    collectives = total(is_group(group(plan, call.over, system.tiers).members) for call in work.collectives)
    return assumed.host.dispatch_seconds * (work.launches * bool(work.kernels) + collectives)


def time_operation(op: Operation, plan: Plans, system: System, assumed: Assumptions) -> TimedOperation:
    """Return the time of an operation; arguments and units as for `time_pass`."""
    forward = time_pass(op.forward, plan, system, assumed)
    if op.synchronises and nonzero(assumed.host.sync_seconds):
        forward = replace(forward, compute=forward.compute + assumed.host.sync_seconds)
    weight: Column = 0.0
    if op.backward is op.forward:
        backward = forward
    elif op.weight is None:
        backward = time_pass(op.backward, plan, system, assumed)
    elif assumed.kernels.joint_backward:
        backward = time_pass(op.whole_backward, plan, system, assumed)
        weight = backward.total * _matrix_flops(op.weight) / _matrix_flops(op.whole_backward)
    else:
        weight_pass = time_pass(op.weight, plan, system, assumed)
        backward, weight = time_pass(op.backward, plan, system, assumed) + weight_pass, weight_pass.total
    recompute = forward
    if op.module == "norms" and "full" not in plan.recomputed and not assumed.memory.saves_gathered:
        recompute = replace(forward, comm=0 * forward.comm)  # the layer that follows gathers in any case
    is_recomputed = op.recompute and not op.output_unused
    return TimedOperation(
        op, forward, backward, weight, recompute.times(float(op.recompute)) if is_recomputed else None
    )


def _matrix_flops(work: PassCount) -> Column:
    """Count the arithmetic of products in any precision [FLOP]."""
    return work.flops("matrix") + work.flops("low")


def time_part(part: tuple[Operation, ...], plan: Plans, system: System, assumed: Assumptions) -> Timed:
    """Return the times of all operations of a part of the model; arguments and units as for `time_pass`."""
    timed = tuple(time_operation(op, plan, system, assumed) for op in part)
    is_overlapped = plan.ep_overlap and any(
        call.over in EXPERT_AXES for op in part for call in op.forward.collectives
    )
    return overlapped(timed, assumed) if is_overlapped else timed


def overlapped(timed: Timed, assumed: Assumptions) -> Timed:
    """Return a part whose exchange with experts is overlapped with another micro-batch's work.

    Forward of one micro-batch and backward of another are interleaved operation by operation: DualPipe (arXiv
    2412.19437, section 3.2.1), overlap-moe-expert-parallel-comm of Megatron-Core. Of exchange x and other
    work w of both passes together max(x - w, ep_overlapped x) is exposed.
    """
    passes = [
        seconds for op in timed for seconds in (op.forward, op.backward, op.recompute) if seconds is not None
    ]
    sent = total(seconds.exchange for seconds in passes)
    work = total(seconds.compute + seconds.memory + seconds.comm for seconds in passes)
    exposed = maximum(sent - work, assumed.overlap.ep_overlapped * sent)
    share = where(sent > 0, exposed / where(sent > 0, sent, 1.0), 1.0)

    def divided(seconds: PassSeconds) -> PassSeconds:
        return replace(seconds, exchange=share * seconds.exchange, hidden=(1 - share) * seconds.exchange)

    return tuple(
        replace(
            op,
            forward=divided(op.forward),
            backward=divided(op.backward),
            recompute=None if op.recompute is None else divided(op.recompute),
        )
        for op in timed
    )
