"""THE page: costs of the parts of a model + plan + system + assumptions → time of a step (arXiv 2410.00273, one training step)."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.plan import Plans
from traincast.core.quantities import Column
from traincast.core.system import System
from traincast.operations.operation import total
from traincast.step.data_parallel import data_parallel
from traincast.step.layer_cost import Costs, sum_of
from traincast.step.offload import offload_seconds
from traincast.step.optimizer import optimizer_seconds
from traincast.step.pipeline_stages import Stages
from traincast.times.overlap import excess, largest, paced_by
from traincast.times.pipeline.p2p import slowest_stage_link, stage_transfer
from traincast.times.pipeline.schedules import SCHEDULES, Schedule

NODE: Final = 8  # GPUs that rarely wait for each other


@dataclass(frozen=True, slots=True)
class Step:
    """Time of one training step by component; columns over plans (arXiv 2410.00273, one training step).

    Parameters
    ----------
    slowest : Column
        Which of the devices in the stages is the slowest.
    busy : Column
        Its forward and backward passes of all micro-batches [s].
    pp_comm : Column
        Traffic between pipeline stages [s].
    bubble : Column
        Wait for the pipeline to fill and drain, and for exchanges with experts that nothing overlaps then [s].
    dp_comm : Column
        Weights gathered and gradients scattered, as far as not hidden [s].
    optimizer : Column
        Optimizer step and gradient clipping [s].
    offload : Column
        Copies to and from the host, as far as not hidden [s].
    host : Column
        Wait for the host, which issues the work, and what it does between steps [s].
    stragglers : Column
        Wait for the slowest of many ranks [s].
    """

    slowest: Column
    busy: Column
    pp_comm: Column
    bubble: Column
    dp_comm: Column
    optimizer: Column
    offload: Column
    host: Column = 0.0
    stragglers: Column = 0.0

    @property
    def seconds(self) -> Column:
        """The whole step [s]."""
        work = self.busy + self.pp_comm + self.bubble + self.dp_comm + self.optimizer + self.offload
        return work + self.host + self.stragglers


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
    pace = _slowest_device(costs, stages, plan.pp, assumed)
    forward, backward = (sum_of(costs, stages.whole, pass_) for pass_ in ("forward", "backward"))
    weight = sum_of(costs, stages.whole, "weight") if schedule.splits_backward else 0.0
    lost = schedule.lost(forward, backward - weight, weight, plan.pp, plan.vp, barrier=assumed.optimizer_barrier)
    link = links(costs, plan, system, assumed)
    each = 2 * schedule.transfers(plan.vp) * link.held  # of a micro-batch, forward and backward
    bubble = lost * (pace.others + (plan.pp - 1) * each)
    if plan.ep_overlap:  # nothing is beside the exchange of the first forward and the last backward pass
        bubble = bubble + largest([sum_of(costs, device, "hidden") for device in stages.work])[0]
    pp_comm = nm * each
    if assumed.pp_exposed < 1:
        pp_comm = pp_comm + _exposed_transfers(schedule, link.beside, plan, nm, pace)
    dp_comm = data_parallel(costs, stages, plan, nm, system, assumed)
    optimizer, _ = largest([optimizer_seconds(costs, held, plan, system, assumed) for held in stages.held])
    offload: Column = 0.0
    if plan.offload != "none":
        offload, _ = largest([offload_seconds(costs, device, plan, nm, system, assumed) for device in stages.work])
    waits = nm * pace.late + assumed.step_seconds
    done = Step(pace.slowest, nm * pace.busy, pp_comm, bubble, dp_comm, optimizer, offload, waits)
    return replace(done, stragglers=_straggling(plan, assumed) * (done.seconds - optimizer)) if assumed.straggling else done


class Links(NamedTuple):
    """What a micro-batch that a stage passes on takes."""

    held: Column  # holds up the stages at both ends [s]
    beside: Column  # runs beside their work [s]


def links(costs: Costs, plan: Plans, system: System, assumed: Assumptions) -> Links:
    """Transfers between stages; arguments as for `step`."""
    message = _message(costs)
    hop = stage_transfer(message, plan, system, assumed)
    paced = stage_transfer(message, plan, system, assumed, slowest_stage_link) if assumed.slowest_link_paces else hop
    return Links(assumed.pp_exposed * paced, (1 - assumed.pp_exposed) * hop)


class _Pace(NamedTuple):
    """One micro-batch on the slowest device, and on all others together."""

    slowest: Column  # which of the devices it is
    busy: Column  # forward and backward [s]
    late: Column  # what it waits for its host [s]
    others: Column  # forward and backward of the other stages, waits included [s]


def _slowest_device(costs: Costs, stages: Stages, pp: Column, assumed: Assumptions) -> _Pace:
    """Which device is the slowest, and what a micro-batch takes on it and elsewhere."""
    *busy, whole = (sum_of(costs, one, "forward") + sum_of(costs, one, "backward") for one in (*stages.work, stages.whole))
    if not assumed.dispatch_seconds:
        most, slowest = largest(busy)
        return _Pace(slowest, most, 0.0, excess(whole - most))
    *issued, all_issued = (sum_of(costs, one, "dispatch") for one in (*stages.work, stages.whole))
    issued = [one + assumed.microbatch_seconds for one in issued]
    all_issued = all_issued + pp * assumed.microbatch_seconds
    most, slowest = largest([paced_by(*both) for both in zip(issued, busy, strict=True)])
    own = total((slowest == i) * seconds for i, seconds in enumerate(busy))
    return _Pace(slowest, own, most - own, excess(paced_by(all_issued, whole) - most))


def _exposed_transfers(schedule: Schedule, hop: Column, plan: Plans, nm: Column, pace: _Pace) -> Column:
    """Transfers that run beside the work, as far as the step waits for them: what faster stages have to spare hides round trips."""
    spare = pace.busy + pace.late - pace.others / np.maximum(plan.pp - 1, 1)
    trips = schedule.round_trips(plan.pp, nm, plan.vp)
    return hop * (schedule.exposed_transfers(plan.pp, nm, plan.vp) - 2 * trips) + trips * excess(2 * hop - spare)


def _straggling(plan: Plans, assumed: Assumptions) -> Column:
    """By how much the slowest of all ranks makes a step longer, relative to its work."""
    return assumed.straggling * np.log2(np.maximum(plan.gpus / NODE, 1))


def _message(costs: Costs) -> Column:
    """What a stage passes to the next [byte]: the same after every kind of layer."""
    return next((one.message for one in costs.values() if np.any(one.message)), 0.0)
