"""What one part of the model (a layer, the embedding, the head) costs a rank for one micro-batch (arXiv 2410.00273, times)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.plan import Plans
from traincast.core.plan_choices import words
from traincast.core.quantities import Column
from traincast.core.system import System
from traincast.operations.operation import Collective, Gemm, Operation, Pass, total
from traincast.stages import Counts
from traincast.times.collectives import collective, line, several
from traincast.times.overlap import excess, panelled
from traincast.times.pipelines import SCHEDULES
from traincast.times.placement import group
from traincast.times.roofline import arithmetic, exposed_memory

TO_EXPERTS: Final = ("ep", "etp")


@dataclass(frozen=True, slots=True)
class Seconds:
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

    def times(self, n: Column) -> "Seconds":
        """So many of it."""
        return Seconds(*(n * getattr(self, one.name) for one in fields(self)))

    def __add__(self, other: "Seconds") -> "Seconds":
        """Both, one after the other."""
        return Seconds(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class TimedOperation:
    """An operation with the time of its passes.

    Parameters
    ----------
    operation : Operation
        What is timed.
    forward, backward : Seconds
        Time of each pass; backward with the gradient of the weights.
    weight : Column
        The part of backward that makes the gradient of the weights [s].
    again : Seconds or None
        The forward pass made again before backward, if it is.
    """

    operation: Operation
    forward: Seconds
    backward: Seconds
    weight: Column
    again: Seconds | None


Timed = tuple[TimedOperation, ...]


@dataclass(frozen=True, slots=True)
class PartCosts:
    """What one part of the model (a layer, the embedding, the head) and one micro-batch cost a rank.

    The columns depend on the shard only, not on what wraps it.

    Parameters
    ----------
    forward, backward : Column
        Time of the pass, t_f and t_b; recomputation counts in backward [s].
    weight : Column
        The part of t_b that makes the gradient of the weights, for schedules that put it off [s].
    weights, expert_weights : Column
        Parameters on the rank, those of experts apart.
    message : Column
        Activation passed to the next pipeline stage: what the MLP's norm saves (arXiv 2410.00273) [byte].
    saved : Column
        Activations kept for backward, where they are offloaded [byte].
    squares, expert_squares : Column
        Arithmetic of one iteration of an optimizer that multiplies matrices by their squares, if it is one [FLOP].
    dispatch : Column
        Time of the host to issue both passes, recomputation included [s].
    hidden : Column
        Exchange with experts beside another micro-batch's work, which a first forward and a last backward pass wait for [s].
    """

    forward: Column
    backward: Column
    weight: Column
    weights: Column
    expert_weights: Column
    message: Column
    saved: Column
    squares: Column = 0.0
    expert_squares: Column = 0.0
    dispatch: Column = 0.0
    hidden: Column = 0.0

    def broadcast(self, shape: tuple[int, ...]) -> "PartCosts":
        """All columns in one `shape`, without a copy; a number stays one where it is 0."""
        columns = (getattr(self, field.name) for field in fields(self))
        return PartCosts(*(np.broadcast_to(column, shape) if np.any(column) else 0.0 for column in columns))

    def take(self, index: Any) -> "PartCosts":
        """Rows of the columns, by a numpy index."""
        columns = (getattr(self, field.name) for field in fields(self))
        return PartCosts(*(column[index] if np.ndim(column) else column for column in columns))


Costs = Mapping[str, PartCosts]


def sum_of(costs: Costs, counts: Counts, what: str) -> Column:
    """A figure of all parts of a device.

    Parameters
    ----------
    costs : mapping of str to PartCosts
        What each part of the model costs.
    counts : mapping of str to Column
        How many of each the device has.
    what : str
        Field of `PartCosts`.

    Returns
    -------
    Column
        Their sum.
    """
    return total(n * getattr(costs[part], what) for part, n in counts.items())


def time_pass(work: Pass, plan: Plans, system: System, assumed: Assumptions) -> Seconds:
    """Time of one pass of an operation: max(t_c, t_m), and the communication it cannot hide (arXiv 2410.00273, times).

    Parameters
    ----------
    work : Pass
        One direction of an operation.
    plan : Plans
        Supplies the groups and their placement; in the same rows as `work`.
    system : System
        The machine.
    assumed : Assumptions
        What is assumed.

    Returns
    -------
    Seconds
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
    return Seconds(compute, memory, comm, exchange, _dispatch(work, plan, system, assumed))


def _collective(one: Collective, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Time of one collective; what does not depend on its volume is worked out once for all operations [s]."""
    if one.kind in ("all-to-all", "send"):
        return collective(one.kind, one.nbytes, group(plan, one.over, system.tiers), system, assumed, one.copies)
    key = one.kind, one.over
    *of, curve = plan.placed_on.get(key, (None, None, None))
    if of[0] is not system or of[1] is not assumed:
        curve = line(one.kind, group(plan, one.over, system.tiers), system, assumed)
        plan.placed_on[key] = system, assumed, curve
    seconds: Column = curve.seconds(one.nbytes)
    return seconds


def _dispatch(work: Pass, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Time of the host to issue a pass: its kernels' launches, one for each collective of a group of several [s]."""
    if not assumed.dispatch_seconds:
        return 0.0
    told = total(several(group(plan, one.over, system.tiers).members) for one in work.collectives)
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
        op, forward, backward, weight, again.times(float(op.recompute)) if op.recompute and not op.unread else None
    )


def _products(work: Pass) -> Column:
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

    def late(one: Seconds) -> Seconds:
        return replace(one, exchange=share * one.exchange, hidden=(1 - share) * one.exchange)

    return tuple(
        replace(one, forward=late(one.forward), backward=late(one.backward), again=None if one.again is None else late(one.again))
        for one in timed
    )


def cost_part(timed: Timed, plan: Plans) -> PartCosts:
    """Sums over the operations of a part of the model, as the plan recomputes them.

    Parameters
    ----------
    timed : tuple of TimedOperation
        The part with its times.
    plan : Plans
        The plans it was counted for.

    Returns
    -------
    PartCosts
        Columns over plans.
    """
    again = total(t.again.total for t in timed if t.again is not None) / plan.recompute_every
    return PartCosts(
        forward=total(t.forward.total for t in timed),
        backward=total(t.backward.total for t in timed) + again,
        weight=total(t.weight for t in timed) if SCHEDULES[plan.schedule].splits_backward else 0.0,
        weights=total(t.operation.weights for t in timed if not t.operation.experts),
        expert_weights=total(t.operation.weights for t in timed if t.operation.experts),
        message=total(t.operation.saved_bytes for t in timed if t.operation.passed_on),
        saved=_offloaded([t.operation for t in timed], plan) if "activations" in words(plan.offload) else 0.0,
        squares=_squares([t.operation for t in timed if not t.operation.experts], plan),
        expert_squares=_squares([t.operation for t in timed if t.operation.experts], plan),
        dispatch=total(t.forward.dispatch + t.backward.dispatch for t in timed)
        + total(t.again.dispatch for t in timed if t.again is not None) / plan.recompute_every,
        hidden=total(t.forward.hidden + t.backward.hidden for t in timed) if plan.ep_overlap else 0.0,
    )


def _offloaded(operations: list[Operation], plan: Plans) -> Column:
    """Activations that go to the host: all that is kept, which is the input of a layer that is made again in full [byte]."""
    saved = total(op.saved_bytes for op in operations)
    if "full" not in plan.recomputed:
        return saved
    return saved - total(op.saved_bytes for op in operations if op.recompute and not op.passed_on) / plan.recompute_every


def _squares(operations: list[Operation], plan: Plans) -> Column:
    """Arithmetic of one iteration of Newton-Schulz on the matrices of linear layers: X becomes aX + b(XX')X + c(XX')²X.

    An m x n matrix with m <= n takes 2 m²n for the square, 2 m³ for its square, 2 m²n for the product (Jordan et al. 2024) [FLOP].
    """
    if not plan.optimizer.iterations:
        return 0.0
    matrices = [kernel for op in operations if op.weight is not None for kernel in op.weight.kernels if isinstance(kernel, Gemm)]
    small = [(np.minimum(one.m, one.n), np.maximum(one.m, one.n), one.batch) for one in matrices]
    return total(batch * (4 * m**2 * n + 2 * m**3) for m, n, batch in small)
