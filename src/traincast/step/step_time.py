"""Time of a training step, from the costs of the parts of the model; a good first module to read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from traincast.core import Assumptions, Column, Plans, System, log2, maximum, minimum, nonzero
from traincast.operations import total
from traincast.step.data_parallelism import TINY, LeastTraffic, data_parallel
from traincast.step.layer_cost import Costs, sum_of
from traincast.step.model_parts import Counts
from traincast.step.offload import copies_in_passes, exposed_copies
from traincast.step.optimizer import optimizer_seconds
from traincast.step.pipeline_stages import Stages
from traincast.times import (
    SCHEDULES,
    AnyPlacement,
    MicrobatchTimes,
    Placement,
    Schedule,
    exposed_time,
    largest,
    paced_by,
    slowest_stage_link,
    stage_transfer,
)

GPUS_WITHOUT_STRAGGLERS: Final = 8  # a node: its GPUs rarely wait for each other
ROUNDING: Final = 1e-12  # relative; a bound adds the same terms as a step, in another order


@dataclass(frozen=True, slots=True)
class Step:
    """Time of one training step by component; columns over plans (arXiv 2410.00273, one training step)."""

    slowest: Column  # index of the slowest of the devices in the stages
    busy: Column  # its forward and backward passes of all micro-batches [s]
    pp_comm: Column  # exposed traffic between pipeline stages [s]
    bubble: Column  # wait for the pipeline to fill and drain [s]
    dp_comm: Column  # exposed gather of weights and reduction of gradients [s]
    optimizer: Column  # optimizer step and gradient clipping [s]
    offload: Column  # exposed copies to and from the host [s]
    exchange: Column = 0.0  # with experts, in the first and the last pass, which `ep_overlap` cannot hide [s]
    host: Column = 0.0  # wait for the host, which issues the work, and what it does between steps [s]
    stragglers: Column = 0.0  # wait for the slowest of many ranks [s]
    data_loading: Column = 0.0  # wait for the input pipeline [s]

    @property
    def seconds(self) -> Column:
        """The whole step [s]."""
        work = self.busy + self.pp_comm + self.bubble + self.dp_comm + self.optimizer + self.offload
        return work + self.exchange + self.host + self.stragglers + self.data_loading


def step(costs: Costs, plan: Plans, stages: Stages, gbs: int, system: System, assumed: Assumptions) -> Step:
    """Return the time of one training step of every plan (arXiv 2410.00273, one training step).

    Every micro-batch passes every stage, so the slowest device works through all of them; the others' time is
    paid once, as far as the schedule loses it while the pipeline fills and drains.
    """
    schedule = SCHEDULES[plan.schedule]
    nm = plan.microbatches(gbs)
    pace = _slowest_device(costs, stages, plan, assumed)
    copying = _with_copies(costs, stages, plan, system, assumed, pace)
    lost = _bubble_share(costs, stages, plan, system, assumed, copying.added)
    placement = Placement(plan, system.tiers)
    link = links(costs, placement, system, assumed)
    per_microbatch = 2 * schedule.transfers(plan.vp) * link.blocking  # forward and backward
    bubble = lost * (pace.others + (plan.pp - 1) * per_microbatch)
    exchange: Column = 0.0
    if plan.ep_overlap:  # nothing overlaps that of the first forward and the last backward pass
        exchange, _ = largest([sum_of(costs, device, "hidden") for device in stages.executed_parts])
    pp_comm = nm * per_microbatch
    if nonzero(assumed.overlap.pp_exposed < 1):
        # a transfer hides behind copies as well, which do not depend on what it brings
        spare = copying.slowest - pace.others / maximum(plan.pp - 1, 1)
        pp_comm = pp_comm + _exposed_transfers(schedule, link.overlapped, plan, nm, spare)
    traffic = data_parallel(costs, stages, placement, nm, system, assumed)
    dp_comm = traffic.exposed_in_step(copying.stretch)
    optimizer, _ = largest(
        [optimizer_seconds(costs, device, plan, system, assumed) for device in stages.stored_parts]
    )
    offload: Column = 0.0
    if plan.offload != "none":
        offload = nm * copying.added
    host = nm * pace.host_wait + assumed.host.step_seconds
    time = Step(pace.slowest, nm * pace.busy, pp_comm, bubble, dp_comm, optimizer, offload, exchange, host)
    if nonzero(assumed.host.straggling):
        time = replace(time, stragglers=_straggler_share(plan, assumed) * (time.seconds - optimizer))
    if system.input_rate is not None:
        read = input_seconds(gbs, system.input_rate, plan.gpus)
        time = replace(time, data_loading=maximum(read, time.seconds) - time.seconds)
    return time


def input_seconds(gbs: int, input_rate: float, gpus: Column) -> Column:
    """Return the time in which the input pipeline reads a batch, while the step before runs [s]."""
    return gbs / (input_rate * gpus)


def step_seconds_bound(
    costs: Costs,
    plan: Plans,
    stages: Stages,
    gbs: int,
    system: System,
    assumed: Assumptions,
    near: Sequence[tuple[float, ...]] = (),
) -> Column:
    """Return a lower bound on the time of a step, which needs no placement of pp and dp [s].

    It has the passes of the slowest device, the bubble, and the waits for host and stragglers; with `near`
    (that of `near_members`) also what traffic of ZeRO-2 and 3 costs at least. What it leaves out takes no
    negative time: transfers between stages, other data parallelism, optimizer, offload and data.
    """
    pace = _slowest_device(costs, stages, plan, assumed)
    nm = plan.microbatches(gbs)
    copying = _with_copies(costs, stages, plan, system, assumed, pace)
    lost = _bubble_share(costs, stages, plan, system, assumed, copying.added)
    work = nm * (pace.busy + pace.host_wait) + lost * pace.others
    if near and plan.zero >= 2:  # that of ZeRO-1, once in a step, excludes less than it takes to bound
        traffic = LeastTraffic.for_devices(costs, stages, AnyPlacement(plan, near), system, assumed)
        work = work + traffic.contention_time(plan, nm, assumed)
    return _at_least(work, plan, assumed)


def least_step_seconds(costs: Costs, plan: Plans, stages: Stages, gbs: int, assumed: Assumptions) -> Column:
    """Return a lower bound on the time of a step, from bounds on the passes of its parts [s].

    Costs have both passes as the first. The bound rises with every one of these: the bubble counts where the
    schedule loses a fixed share of the passes (up to one micro-batch), so that a longer slowest stage costs
    more than shorter others gain.
    """
    together = replace(plan, schedule="1f1b")  # at most what passes take that the host paces one by one
    pace = _slowest_device(costs, stages, together, assumed)
    nm = plan.microbatches(gbs)
    schedule = SCHEDULES[plan.schedule]
    share: Column = 1.0
    # neither communication nor copies make the gradients of weights longer
    is_known = not (assumed.kernels.joint_backward or plan.tp_kind == "summa" or copies_in_passes(plan))
    if schedule.splits_backward and is_known:
        both, weight = (sum_of(costs, stages.model_parts, pass_) for pass_ in ("forward", "weight"))
        if _paced_by_host(assumed):
            issued = sum_of(costs, stages.model_parts, "dispatch_weight")
            weight = paced_by(issued, weight)
        share = minimum(weight / both, 1.0)
    lost = schedule.least_bubble_share(share, plan.pp, plan.vp, barrier=assumed.overlap.optimizer_barrier)
    return _at_least(nm * (pace.busy + pace.host_wait) + lost * pace.others, plan, assumed)


def _at_least(passes: Column, plan: Plans, assumed: Assumptions) -> Column:
    """Return the least time of a step with passes, waits and bubble of some length [s]."""
    longer = 1 + _straggler_share(plan, assumed) if nonzero(assumed.host.straggling) else 1.0
    return (1 - ROUNDING) * longer * (passes + assumed.host.step_seconds)


def _bubble_share(
    costs: Costs, stages: Stages, plan: Plans, system: System, assumed: Assumptions, added: Column
) -> Column:
    """Return the bubble as a share of the time of a micro-batch on the stages that are not the slowest.

    Passes of a schedule that puts off gradients of weights count with their waits; of those for copies so
    much on each device as is `added` on the slowest, which the others wait for in any case.
    """
    schedule = SCHEDULES[plan.schedule]
    passes = _passes(costs, stages.model_parts, plan)
    if schedule.splits_backward:
        paced = _paced_passes(costs, stages.model_parts, plan, plan.pp, assumed)
        passes = paced
        if copies_in_passes(plan):
            copying = _copying_passes(costs, stages.model_parts, plan, plan.pp, system, assumed)
            waits = exposed_time(copying.total - paced.total) + TINY * paced.total
            share = minimum(plan.pp * added / waits, 1.0)
            passes = MicrobatchTimes(
                paced.F + share * (copying.F - paced.F), paced.B, paced.W + share * (copying.W - paced.W)
            )
    return schedule.bubble_share(passes, plan.pp, plan.vp, barrier=assumed.overlap.optimizer_barrier)


class Links(NamedTuple):
    """Time of the transfer of one micro-batch between two stages."""

    blocking: Column  # the stages at both ends wait for it [s]
    overlapped: Column  # runs while they work [s]


def links(costs: Costs, placement: Placement, system: System, assumed: Assumptions) -> Links:
    """Return the time of transfers between stages; arguments as for `step`."""
    message = _message(costs)
    paced = hop = stage_transfer(message, placement, system, assumed)
    if assumed.collectives.slowest_link_paces:
        paced = stage_transfer(message, placement, system, assumed, slowest_stage_link)
    return Links(assumed.overlap.pp_exposed * paced, (1 - assumed.overlap.pp_exposed) * hop)


class _Pace(NamedTuple):
    """Time of one micro-batch on the slowest device, and on all others together."""

    slowest: Column  # which of the devices it is
    busy: Column  # forward and backward [s]
    host_wait: Column  # of the slowest device [s]
    others: Column  # forward and backward of the other stages, waits included [s]
    passes: Sequence[Column]  # forward and backward of each device, waits included [s]
    work: Sequence[Column]  # the same without waits [s]

    @property
    def stretch(self) -> list[Column]:
        """How much longer waits make the passes of each device."""
        if self.passes is self.work:
            return [1.0] * len(self.work)
        pairs = zip(self.passes, self.work, strict=True)
        return [passes / maximum(work, TINY) for passes, work in pairs]


def _paced_by_host(assumed: Assumptions) -> bool:
    """Return whether a device may wait for the host to issue its passes."""
    host = assumed.host
    seconds = (
        host.dispatch_seconds,
        host.rotation_seconds,
        host.expert_dispatch_seconds,
        host.expert_product_seconds,
    )
    return any(map(nonzero, seconds))


def _passes(costs: Costs, counts: Counts, plan: Plans) -> MicrobatchTimes:
    """Return the passes of a micro-batch through the parts of a device, waits apart [s]."""
    forward, backward = (sum_of(costs, counts, name) for name in ("forward", "backward"))
    weight = sum_of(costs, counts, "weight") if SCHEDULES[plan.schedule].splits_backward else 0.0
    return MicrobatchTimes(forward, backward - weight, weight)


def _paced_passes(
    costs: Costs, counts: Counts, plan: Plans, devices: Column, assumed: Assumptions
) -> MicrobatchTimes:
    """Return the passes of a micro-batch, each as long as the host and so many devices make it [s].

    The host's work for each micro-batch is divided between F and B; the accelerator is idle in F.
    """
    passes = _passes(costs, counts, plan)
    if not _paced_by_host(assumed):
        return passes
    dispatch, forward, weight, idle = (
        sum_of(costs, counts, name) for name in ("dispatch", "dispatch_forward", "dispatch_weight", "idle")
    )
    each = devices * assumed.host.microbatch_seconds / 2
    return MicrobatchTimes(
        paced_by(forward + each, passes.F) + idle,
        paced_by(dispatch - forward - weight + each, passes.B),
        paced_by(weight, passes.W),
    )


def _copying_passes(
    costs: Costs, counts: Counts, plan: Plans, devices: Column, system: System, assumed: Assumptions
) -> MicrobatchTimes:
    """Return the passes of a schedule that puts off gradients of weights, with all waits [s].

    A device works on these gradients while copies for the next backward passes come from the host.
    """
    passes = _passes(costs, counts, plan)
    paced = _paced_passes(costs, counts, plan, devices, assumed)
    copies = exposed_copies(costs, counts, plan, system, assumed)
    backward = passes.B + passes.W + copies.backward
    return MicrobatchTimes(
        maximum(paced.F, passes.F + copies.forward), paced.B, maximum(paced.W, backward - paced.B)
    )


def _microbatch_seconds(
    costs: Costs, counts: Counts, plan: Plans, devices: Column, assumed: Assumptions
) -> Column:
    """Return the time of a micro-batch on so many devices that have these parts, with waits to be issued [s].

    The host issues forward and backward ahead of the device, which waits where it is the faster over both.
    A schedule that puts off the gradients of weights has three passes for them, each of which waits.
    """
    if SCHEDULES[plan.schedule].splits_backward:
        return _paced_passes(costs, counts, plan, devices, assumed).total
    busy = sum_of(costs, counts, "forward") + sum_of(costs, counts, "backward")
    if not _paced_by_host(assumed):
        return busy
    issued = sum_of(costs, counts, "dispatch") + devices * assumed.host.microbatch_seconds
    return paced_by(issued, busy) + sum_of(costs, counts, "idle")


def _copying_seconds(
    costs: Costs, counts: Counts, plan: Plans, devices: Column, system: System, assumed: Assumptions
) -> Column:
    """Return the time of a micro-batch on so many devices, with waits for copies to and from the host [s]."""
    if SCHEDULES[plan.schedule].splits_backward:
        return _copying_passes(costs, counts, plan, devices, system, assumed).total
    busy = sum_of(costs, counts, "forward") + sum_of(costs, counts, "backward")
    copies = exposed_copies(costs, counts, plan, system, assumed)
    return maximum(_microbatch_seconds(costs, counts, plan, devices, assumed), busy + copies.total)


class DeviceTime(NamedTuple):
    """Time of one micro-batch on a device."""

    busy: Column  # forward and backward [s]
    host_wait: Column  # [s]
    stretch: Column  # how much longer waits for the host make its passes and the copies that these wait for


def device_time(
    costs: Costs, counts: Counts, plan: Plans, system: System, assumed: Assumptions
) -> DeviceTime:
    """Return the time of one micro-batch on a device with these parts."""
    busy = sum_of(costs, counts, "forward") + sum_of(costs, counts, "backward")
    if not _paced_by_host(assumed):
        return DeviceTime(busy, 0.0, 1.0)
    wait = _microbatch_seconds(costs, counts, plan, 1.0, assumed) - busy
    copies = exposed_copies(costs, counts, plan, system, assumed).total
    seconds = _copying_seconds(costs, counts, plan, 1.0, system, assumed)
    return DeviceTime(busy, wait, seconds / maximum(busy + copies, TINY))


class _Copying(NamedTuple):
    """Time of one micro-batch with copies to and from the host, which may make another device the slowest."""

    slowest: Column  # on the slowest device [s]
    added: Column  # part of that which copies add to the slowest device without them [s]
    stretch: list[Column]  # how much longer waits for the host make the passes of each device


def _with_copies(
    costs: Costs, stages: Stages, plan: Plans, system: System, assumed: Assumptions, pace: _Pace
) -> _Copying:
    """Return the time of one micro-batch with copies to and from the host."""
    if not copies_in_passes(plan):
        return _Copying(pace.busy + pace.host_wait, 0.0, pace.stretch)
    devices = stages.executed_parts
    copying = [_copying_seconds(costs, parts, plan, 1.0, system, assumed) for parts in devices]
    stretch = [device_time(costs, parts, plan, system, assumed).stretch for parts in devices]
    slowest, _ = largest(copying)
    return _Copying(slowest, slowest - largest(pace.passes)[0], stretch)


def _slowest_device(costs: Costs, stages: Stages, plan: Plans, assumed: Assumptions) -> _Pace:
    """Return which device is the slowest, and the time of a micro-batch on it and elsewhere."""
    counts = (*stages.executed_parts, stages.model_parts)
    *busy, busy_model = (
        sum_of(costs, parts, "forward") + sum_of(costs, parts, "backward") for parts in counts
    )
    if not _paced_by_host(assumed):
        longest, slowest = largest(busy)
        others = exposed_time(busy_model - longest)
        return _Pace(slowest, longest, 0.0, others, busy, busy)
    paced = [_microbatch_seconds(costs, parts, plan, 1.0, assumed) for parts in stages.executed_parts]
    longest, slowest = largest(paced)
    busy_slowest = total((slowest == i) * seconds for i, seconds in enumerate(busy))
    paced_model = _microbatch_seconds(costs, stages.model_parts, plan, plan.pp, assumed)
    others = exposed_time(paced_model - longest)
    return _Pace(slowest, busy_slowest, longest - busy_slowest, others, paced, busy)


def _exposed_transfers(schedule: Schedule, hop: Column, plan: Plans, nm: Column, spare: Column) -> Column:
    """Return the exposed time of overlapped transfers [s].

    Faster stages wait for the slowest, `spare` in a micro-batch, which hides round trips.
    """
    trips = schedule.round_trips(plan.pp, nm, plan.vp)
    single = schedule.exposed_transfers(plan.pp, nm, plan.vp) - 2 * trips
    return hop * single + trips * exposed_time(2 * hop - spare)


def _straggler_share(plan: Plans, assumed: Assumptions) -> Column:
    """Return by how much the slowest of all ranks makes a step longer, relative to its work."""
    return assumed.host.straggling * log2(maximum(plan.gpus / GPUS_WITHOUT_STRAGGLERS, 1))


def _message(costs: Costs) -> Column:
    """Return the activation that a stage sends to the next, the largest after any kind of layer [byte]."""
    messages = [part.message for part in costs.values() if nonzero(part.message)]
    return largest(messages)[0] if messages else 0.0
