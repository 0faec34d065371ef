"""THE page: operations of a model + system + plan + assumptions → time of a step (arXiv 2410.00273, one training step)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System
from traincast.operations.base import Axis, Collective, CollectiveKind, Gemm, Operation, Pass, total
from traincast.plan import Plans, words
from traincast.stages import Counts, Stages
from traincast.times.collectives import Line, collective, line
from traincast.times.overlap import excess, layer_by_layer, panelled
from traincast.times.pipelines import SCHEDULES
from traincast.times.placement import group
from traincast.times.roofline import arithmetic, exposed_memory
from traincast.times.transfers import transfer

TO_EXPERTS = ("ep", "etp")


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
    """

    compute: Column
    memory: Column
    comm: Column
    exchange: Column = 0.0

    @property
    def total(self) -> Column:
        """All of it [s]."""
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

    def broadcast(self, shape: tuple[int, ...]) -> "PartCosts":
        """All columns in one `shape`, without a copy; a number stays one where it is 0."""
        columns = (getattr(self, field.name) for field in fields(self))
        return PartCosts(*(np.broadcast_to(column, shape) if np.any(column) else 0.0 for column in columns))

    def take(self, index: Any) -> "PartCosts":
        """Rows of the columns, by a numpy index."""
        columns = (getattr(self, field.name) for field in fields(self))
        return PartCosts(*(column[index] if np.ndim(column) else column for column in columns))


Costs = Mapping[str, PartCosts]


@dataclass(frozen=True, slots=True)
class Step:
    """Time of one training step by component; columns over plans (arXiv 2410.00273, one training step).

    Parameters
    ----------
    slowest : Column
        Which of the devices in the stages is the slowest.
    busy : Column
        Its parts of the model [s].
    pp_comm : Column
        Traffic between pipeline stages [s].
    bubble : Column
        Wait for the pipeline to fill and drain [s].
    dp_comm : Column
        Weights gathered and gradients scattered, as far as not hidden [s].
    optimizer : Column
        Optimizer step and gradient clipping [s].
    offload : Column
        Copies to and from the host, as far as not hidden [s].
    """

    slowest: Column
    busy: Column
    pp_comm: Column
    bubble: Column
    dp_comm: Column
    optimizer: Column
    offload: Column

    @property
    def seconds(self) -> Column:
        """The whole step [s]."""
        return self.busy + self.pp_comm + self.bubble + self.dp_comm + self.optimizer + self.offload


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
        return collective(one.kind, one.nbytes, group(plan, one.over, system.tiers), system, assumed, one.copies)

    comm = total(told(one) for one in work.collectives if one.over not in TO_EXPERTS)
    if work.panels is not None:
        comm = panelled(comm, work.panels, compute + memory)
    elif work.rounds is not None:  # a ring: each block is fetched while the one before is worked on
        comm = excess(comm * work.rounds - (compute + memory) * work.rounds / (work.rounds + 1))
    else:
        comm = comm * (assumed.tp_overlapped if plan.tp_overlap else assumed.tp_exposed)
    exchange = assumed.ep_exposed * total(told(one) for one in work.collectives if one.over in TO_EXPERTS)
    return Seconds(compute, memory, comm, exchange)


def time_operation(op: Operation, plan: Plans, system: System, assumed: Assumptions) -> TimedOperation:
    """Time of an operation; arguments and units as for `time_pass`."""
    forward = time_pass(op.forward, plan, system, assumed)
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
        again = Seconds(forward.compute, forward.memory, 0 * forward.comm)  # the layer that follows gathers in any case
    return TimedOperation(op, forward, backward, weight, again if op.recompute else None)


def _products(work: Pass) -> Column:
    """Arithmetic of products in any precision [FLOP]."""
    return work.flops("matrix") + work.flops("low")


def time_part(part: tuple[Operation, ...], plan: Plans, system: System, assumed: Assumptions) -> Timed:
    """Time of every operation of a part of the model; arguments and units as for `time_pass`."""
    return tuple(time_operation(op, plan, system, assumed) for op in part)


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
        saved=total(t.operation.saved_bytes for t in timed) if "activations" in words(plan.offload) else 0.0,
        squares=_squares([t.operation for t in timed if not t.operation.experts], plan),
        expert_squares=_squares([t.operation for t in timed if t.operation.experts], plan),
    )


def _squares(operations: list[Operation], plan: Plans) -> Column:
    """Arithmetic of one iteration of Newton-Schulz on the matrices of linear layers: X becomes aX + b(XX')X + c(XX')²X.

    An m x n matrix with m <= n takes 2 m²n for the square, 2 m³ for its square, 2 m²n for the product (Jordan et al. 2024) [FLOP].
    """
    if not plan.optimizer.flops_factor:
        return 0.0
    matrices = [kernel for op in operations if op.weight is not None for kernel in op.weight.kernels if isinstance(kernel, Gemm)]
    small = [(np.minimum(one.m, one.n), np.maximum(one.m, one.n), one.batch) for one in matrices]
    return total(batch * (4 * m**2 * n + 2 * m**3) for m, n, batch in small)


def step(costs: Costs, plan: Plans, stages: Stages, gbs: int, system: System, assumed: Assumptions) -> Step:
    """One training step of every plan (arXiv 2410.00273, one training step).

    Every micro-batch passes every stage, so the slowest device works through all of them; the others' time is paid once, as far as
    the schedule loses it while the pipeline fills and drains.

    Parameters
    ----------
    costs : mapping of str to PartCosts
        What each part of the model costs, in the same rows as `plan`.
    plan : Plans
        Plans.
    stages : Stages
        Devices of the pipeline that can be the slowest, in the same rows.
    gbs : int
        Global batch [sequences].
    system : System
        The machine.
    assumed : Assumptions
        What is assumed.

    Returns
    -------
    Step
        Columns over plans.
    """
    schedule, nm = SCHEDULES[plan.schedule], plan.microbatches(gbs)
    slowest, which = _largest([sum_of(costs, device, "forward") + sum_of(costs, device, "backward") for device in stages.work])
    forward, backward = (sum_of(costs, stages.whole, pass_) for pass_ in ("forward", "backward"))
    weight = sum_of(costs, stages.whole, "weight") if schedule.splits_backward else 0.0
    lost = schedule.lost(forward, backward - weight, weight, plan.pp, plan.vp, barrier=assumed.optimizer_barrier)
    messages = [one.message for one in costs.values() if np.any(one.message)]
    message = messages[0] if messages else 0.0  # the same after every kind of layer
    hop = transfer(message, group(plan, "pp", system.tiers), system, assumed)
    each: Column = 0.0
    if assumed.exposed_transfers_only:
        pp_comm = hop * schedule.exposed_transfers(plan.pp, nm, plan.vp)
    else:
        each = 2 * schedule.transfers(plan.vp) * hop  # of a micro-batch, forward and backward
        pp_comm = nm * each
    bubble = lost * (excess(forward + backward - slowest) + (plan.pp - 1) * each)
    dp_comm = data_parallel(costs, stages, plan, nm, system, assumed)
    optimizer, _ = _largest([update(costs, held, plan, system, assumed) for held in stages.held])
    offload: Column = 0.0
    if plan.offload != "none":
        offload, _ = _largest([host(costs, device, plan, nm, system, assumed) for device in stages.work])
    return Step(which, nm * slowest, pp_comm, bubble, dp_comm, optimizer, offload)


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


def _largest(values: list[Column]) -> tuple[Column, Column]:
    """The largest of several columns, row by row, and which it is."""
    most: Column = values[0]
    which: Column = 0.0
    for i, value in enumerate(values[1:], 1):
        which = np.where(value > most, float(i), which)
        most = np.maximum(most, value)
    return most, which


def data_parallel(costs: Costs, stages: Stages, plan: Plans, nm: Column, system: System, assumed: Assumptions) -> Column:
    """Weights gathered and gradients reduced over the ranks that hold the same, as far as they do not hide behind the layers.

    ZeRO-1 reduces gradients and gathers weights once in a step; ZeRO-2 reduces after every micro-batch; ZeRO-3 also gathers, for
    forward and again for backward (arXiv 1910.02054, section 7). With replicas (HSDP) each rank's share is all-reduced over them.

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
    used = {part: costs[part] for part in dict.fromkeys(part for device in stages.held for part in device)}
    gather, scatter = _exchanges(used, plan, system, assumed)
    psi = assumed.dp_contention

    def exposed(traffic: dict[str, Column], direction: str, device: Counts) -> Column:
        busy = [getattr(used[part], direction) for part in device]
        return layer_by_layer([traffic[part] for part in device], busy, list(device.values()), psi)

    both = {part: gather[part] + scatter[part] for part in used}
    each = []
    for held, work in zip(stages.held, stages.work, strict=True):  # once in a step, and for every micro-batch
        if plan.zero == 3:
            each.append(nm * (exposed(gather, "forward", work) + exposed(both, "backward", work)))
            continue
        scattered = nm * exposed(scatter, "backward", work) if plan.zero == 2 else exposed(scatter, "backward", held)
        each.append(exposed(gather, "forward", held) + scattered)
    return _largest(each)[0]


def _exchanges(used: Costs, plan: Plans, system: System, assumed: Assumptions) -> tuple[dict[str, Column], dict[str, Column]]:
    """Time to gather the weights, and to reduce the gradients, of one of every part [s]."""
    byte = assumed.element_bytes / 2
    element, gradient = 2 * plan.recipe.width * byte, plan.gradient_bytes * byte
    whole = plan.zero == 0
    kind: CollectiveKind = "all-reduce" if whole else "reduce-scatter"

    def over(axis: Axis, kind: CollectiveKind = kind) -> Line:
        return line(kind, group(plan, axis, system.tiers), system, assumed)

    dense = over("weights" if whole else "shards")
    several = bool(np.any(plan.replicas != 1))
    spread = any(np.any(one.expert_weights) for one in used.values())
    experts = over("experts" if whole else "expert shards") if spread else None
    replicas = over("replicas", "all-reduce") if several else None
    expert_replicas = over("expert replicas", "all-reduce") if several and spread else None
    expert_shards = np.maximum(plan.expert_holders / plan.replicas, 1)
    gather: dict[str, Column] = {}
    scatter: dict[str, Column] = {}
    for part, one in used.items():
        gather[part] = 0 * one.forward if whole else dense.seconds(element * one.weights)
        scatter[part] = dense.seconds(gradient * one.weights)
        if replicas is not None:
            scatter[part] = scatter[part] + replicas.seconds(gradient * one.weights * plan.replicas / plan.holders)
        if experts is not None and np.any(one.expert_weights):
            gather[part] = gather[part] + (0 if whole else 1) * experts.seconds(element * one.expert_weights)
            scatter[part] = scatter[part] + experts.seconds(gradient * one.expert_weights)
            if expert_replicas is not None:
                scatter[part] = scatter[part] + expert_replicas.seconds(gradient * one.expert_weights / expert_shards)
    return gather, scatter


def update(costs: Costs, held: Counts, plan: Plans, system: System, assumed: Assumptions) -> Column:
    """Time of the optimizer step: its memory traffic, clipping included, and the products of Muon.

    Parameters
    ----------
    costs : mapping of str to PartCosts
        What each part of the model costs.
    held : mapping of str to Column
        Parts whose weights the device has.
    plan : Plans
        Plans.
    system : System
        The machine.
    assumed : Assumptions
        How often every byte is moved; 0 leaves the step out.

    Returns
    -------
    Column
        Time in a step [s].
    """
    if not assumed.optimizer_passes:
        return 0.0
    dense, experts = sum_of(costs, held, "weights"), sum_of(costs, held, "expert_weights")
    n = plan.holders / plan.replicas if plan.zero else 1.0
    n_experts = np.maximum(plan.expert_holders / plan.replicas, 1) if plan.zero else 1.0
    own, byte = dense / n + experts / n_experts, assumed.element_bytes / 2  # parameters this rank updates; 16 bits have two bytes
    states = plan.recipe.master + plan.optimizer.state
    moved = 2 * own * byte * (states + plan.gradient_bytes + plan.recipe.width)  # states read and written; gradients read twice
    if "optimizer" in words(plan.offload):  # gradients go to the host, weights come back
        return own * byte * (plan.gradient_bytes + 2 * plan.recipe.width) / system.accelerator.host_link
    gpu = system.accelerator
    squares = sum_of(costs, held, "squares") / n + sum_of(costs, held, "expert_squares") / n_experts
    arithmetic_seconds = plan.optimizer.flops_factor * squares / (assumed.matrix_efficiency * gpu.matrix_flops)
    return assumed.optimizer_passes * moved / gpu.hbm_bandwidth + arithmetic_seconds


def host(costs: Costs, device: Counts, plan: Plans, nm: Column, system: System, assumed: Assumptions) -> Column:
    """Copies of activations and weights to and from the host's memory, as far as they do not hide behind the layers.

    Parameters
    ----------
    costs : mapping of str to PartCosts
        What each part of the model costs.
    device : mapping of str to Column
        Parts of the device.
    plan : Plans
        Plans.
    nm : Column
        Micro-batches of a replica.
    system : System
        The machine.
    assumed : Assumptions
        Size of an element of 16 bits.

    Returns
    -------
    Column
        Time in a step [s].
    """
    link, offloaded = system.accelerator.host_link, words(plan.offload)
    seconds: Column = 0.0
    for part, n in device.items():
        one = costs[part]
        copied = 0 * one.forward
        if "activations" in offloaded:
            copied = copied + one.saved / link
        if "weights" in offloaded:
            copied = copied + plan.recipe.width * assumed.element_bytes * (one.weights + one.expert_weights) / link
        seconds = seconds + n * (excess(copied - one.forward) + excess(copied - one.backward))
    return nm * seconds
