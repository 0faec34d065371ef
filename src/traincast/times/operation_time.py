"""What one operation costs a rank: arithmetic, memory traffic and communication of its passes (arXiv 2410.00273, times)."""

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.plan import Plans
from traincast.core.quantities import Column
from traincast.core.system import System
from traincast.operations.operation import Collective, Operation, PassCount, total
from traincast.times.collectives import collective, collective_curve, is_group
from traincast.times.overlap import excess, panelled
from traincast.times.process_groups import group
from traincast.times.roofline import arithmetic, exposed_memory

TO_EXPERTS: Final = ("ep", "etp")


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Time by what it is spent on; columns over plans.

    Parameters
    ----------
    compute : Column
        Launches and arithmetic [s].
    memory : Column
        Memory traffic not hidden behind arithmetic [s].
    comm : Column
        Tensor- and context-parallel communication not hidden [s].
    exchange : Column
        Communication with experts not hidden [s].
    dispatch : Column
        Time of the host to issue it all, while the accelerator works; no part of the total [s].
    hidden : Column
        Communication with experts beside another micro-batch's work; no part of the total [s].
    """

    compute: Column
    memory: Column
    comm: Column
    exchange: Column = 0.0
    dispatch: Column = 0.0
    hidden: Column = 0.0

    @property
    def total(self) -> Column:
        """All of it on the accelerator [s]."""
        return self.compute + self.memory + self.comm + self.exchange

    def times(self, n: Column) -> "PassSeconds":
        """So many of it."""
        return PassSeconds(*(n * getattr(self, one.name) for one in fields(self)))

    def __add__(self, other: "PassSeconds") -> "PassSeconds":
        """Both, one after the other."""
        return PassSeconds(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class TimedOperation:
    """An operation with the time of its passes.

    Parameters
    ----------
    operation : Operation
        What is timed.
    forward, backward : PassSeconds
        Time of each pass; backward with the gradient of the weights.
    weight : Column
        The part of backward that makes the gradient of the weights [s].
    again : PassSeconds or None
        The forward pass made again before backward, if it is.
    """

    operation: Operation
    forward: PassSeconds
    backward: PassSeconds
    weight: Column
    again: PassSeconds | None


Timed = tuple[TimedOperation, ...]


def time_pass(work: PassCount, plan: Plans, system: System, assumed: Assumptions) -> PassSeconds:
    """Time of one pass of an operation: max(t_c, t_m), and the communication it cannot hide (arXiv 2410.00273, times).

    Parameters
    ----------
    work : PassCount
        One direction of an operation.
    plan : Plans
        Supplies the groups and their placement; in the same rows as `work`.
    system : System
        The machine.
    assumed : Assumptions
        What is assumed.

    Returns
    -------
    PassSeconds
        Columns over plans.
    """
    compute = arithmetic(work, system.accelerator, assumed, plan.recipe) if work.kernels else 0 * assumed.launch_seconds
    memory = exposed_memory(work, compute, system.accelerator, assumed)

    def told(one: Collective) -> Column:
        seconds = _collective(one, plan, system, assumed)
        return (
            seconds + assumed.collective_seconds * np.log2(plan.tp) if one.over == "tp" and assumed.collective_seconds else seconds
        )

    comm = total(told(one) for one in work.collectives if one.over not in TO_EXPERTS)
    if work.panels is not None:
        comm = panelled(comm, work.panels, compute + memory)
    elif work.rounds is not None:  # a ring: each block is fetched while the one before is worked on
        comm = excess(comm * work.rounds - (compute + memory) * work.rounds / (work.rounds + 1))
    else:
        comm = comm * (assumed.tp_overlapped if plan.tp_overlap else assumed.tp_exposed)
    exchange = (1 if plan.ep_overlap else assumed.ep_exposed) * total(
        told(one) for one in work.collectives if one.over in TO_EXPERTS
    )
    return PassSeconds(compute, memory, comm, exchange, _dispatch(work, plan, system, assumed))


def _collective(one: Collective, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Time of one collective; what does not depend on its volume is worked out once for all operations [s]."""
    if one.kind in ("all-to-all", "send"):
        return collective(one.kind, one.nbytes, group(plan, one.over, system.tiers), system, assumed, one.copies)
    key = one.kind, one.over
    *of, curve = plan.placed_on.get(key, (None, None, None))
    if of[0] is not system or of[1] is not assumed:
        curve = collective_curve(one.kind, group(plan, one.over, system.tiers), system, assumed)
        plan.placed_on[key] = system, assumed, curve
    seconds: Column = curve.seconds(one.nbytes)
    return seconds


def _dispatch(work: PassCount, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Time of the host to issue a pass: its kernels' launches, one for each collective of a group of several [s]."""
    if not assumed.dispatch_seconds:
        return 0.0
    told = total(is_group(group(plan, one.over, system.tiers).members) for one in work.collectives)
    return assumed.dispatch_seconds * (work.launches * bool(work.kernels) + told)


def time_operation(op: Operation, plan: Plans, system: System, assumed: Assumptions) -> TimedOperation:
    """Time of an operation; arguments and units as for `time_pass`."""
    forward = time_pass(op.forward, plan, system, assumed)
    if op.synchronises and assumed.sync_seconds:
        forward = replace(forward, compute=forward.compute + assumed.sync_seconds)
    weight: Column = 0.0
    if op.backward is op.forward:
        backward = forward
    elif op.weight is None:
        backward = time_pass(op.backward, plan, system, assumed)
    elif assumed.joint_backward:
        backward = time_pass(op.whole_backward, plan, system, assumed)
        both = op.whole_backward
        weight = backward.total * _products(op.weight) / _products(both)
    else:
        apart = time_pass(op.weight, plan, system, assumed)
        backward, weight = time_pass(op.backward, plan, system, assumed) + apart, apart.total
    again = forward
    if op.module == "norms" and "full" not in plan.recomputed and not assumed.keeps_gathered:
        again = replace(forward, comm=0 * forward.comm)  # the layer that follows gathers in any case
    return TimedOperation(
        op, forward, backward, weight, again.times(float(op.recompute)) if op.recompute and not op.output_unused else None
    )


def _products(work: PassCount) -> Column:
    """Arithmetic of products in any precision [FLOP]."""
    return work.flops("matrix") + work.flops("low")


def time_part(part: tuple[Operation, ...], plan: Plans, system: System, assumed: Assumptions) -> Timed:
    """Time of every operation of a part of the model; arguments and units as for `time_pass`."""
    timed = tuple(time_operation(op, plan, system, assumed) for op in part)
    exchanges = plan.ep_overlap and any(one.over in TO_EXPERTS for op in part for one in op.forward.collectives)
    return overlapped(timed, assumed) if exchanges else timed


def overlapped(timed: Timed, assumed: Assumptions) -> Timed:
    """A part whose exchange with experts runs beside the work of another micro-batch: a share is paid, and what is longer than it.

    Forward of one micro-batch and backward of another are interleaved operation by operation: DualPipe (arXiv 2412.19437, section
    3.2.1), overlap-moe-expert-parallel-comm of Megatron-Core. Of exchange x and other work w of both directions together
    max(x - w, ep_overlapped x) is waited for.

    Parameters
    ----------
    timed : tuple of TimedOperation
        The part with its times, the exchange in full.
    assumed : Assumptions
        The share that is paid.

    Returns
    -------
    tuple of TimedOperation
        The same with the exchange that is waited for and the rest apart, spread evenly.
    """
    passes = [seconds for one in timed for seconds in (one.forward, one.backward, one.again) if seconds is not None]
    sent = total(one.exchange for one in passes)
    waited = np.maximum(sent - total(one.compute + one.memory + one.comm for one in passes), assumed.ep_overlapped * sent)
    share = np.where(sent > 0, waited / np.where(sent > 0, sent, 1.0), 1.0)

    def late(one: PassSeconds) -> PassSeconds:
        return replace(one, exchange=share * one.exchange, hidden=(1 - share) * one.exchange)

    return tuple(
        replace(one, forward=late(one.forward), backward=late(one.backward), again=None if one.again is None else late(one.again))
        for one in timed
    )
