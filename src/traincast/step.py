"""THE page: costs of the parts of a model + plan + system + assumptions → time of a step (arXiv 2410.00273, one training step)."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.costs import Costs, sum_of
from traincast.hardware import System
from traincast.overheads import data_parallel, host, update
from traincast.plan import Plans
from traincast.stages import Stages
from traincast.times.overlap import excess, largest, paced_by
from traincast.times.pipelines import SCHEDULES
from traincast.times.placement import group
from traincast.times.transfers import transfer

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
        Wait for the pipeline to fill and drain [s].
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
    busy = [sum_of(costs, device, "forward") + sum_of(costs, device, "backward") for device in stages.work]
    slowest, which = largest(busy)
    late: Column = 0.0  # of a micro-batch: what the slowest device waits for its host
    if assumed.dispatch_seconds:
        paced = [paced_by(sum_of(costs, device, "dispatch"), work) for device, work in zip(stages.work, busy, strict=True)]
        seconds, which = largest(paced)
        slowest = sum(((which == i) * work for i, work in enumerate(busy)), start=0 * seconds)
        late = seconds - slowest
    forward, backward = (sum_of(costs, stages.whole, pass_) for pass_ in ("forward", "backward"))
    weight = sum_of(costs, stages.whole, "weight") if schedule.splits_backward else 0.0
    lost = schedule.lost(forward, backward - weight, weight, plan.pp, plan.vp, barrier=assumed.optimizer_barrier)
    hop = transfer(_message(costs), group(plan, "pp", system.tiers), system, assumed)
    each: Column = 0.0
    if assumed.exposed_transfers_only:
        pp_comm = hop * schedule.exposed_transfers(plan.pp, nm, plan.vp)
    else:
        each = 2 * schedule.transfers(plan.vp) * hop  # of a micro-batch, forward and backward
        pp_comm = nm * each
    others = excess(forward + backward - slowest)
    if assumed.dispatch_seconds:
        others = excess(paced_by(sum_of(costs, stages.whole, "dispatch"), forward + backward) - slowest - late)
    bubble = lost * (others + (plan.pp - 1) * each)
    dp_comm = data_parallel(costs, stages, plan, nm, system, assumed)
    optimizer, _ = largest([update(costs, held, plan, system, assumed) for held in stages.held])
    offload: Column = 0.0
    if plan.offload != "none":
        offload, _ = largest([host(costs, device, plan, nm, system, assumed) for device in stages.work])
    done = Step(which, nm * slowest, pp_comm, bubble, dp_comm, optimizer, offload, host=nm * late + assumed.step_seconds)
    if not assumed.straggling:
        return done
    doublings = np.log2(np.maximum(plan.gpus / NODE, 1))
    return replace(done, stragglers=assumed.straggling * doublings * (done.seconds - done.optimizer))


def _message(costs: Costs) -> Column:
    """What a stage passes to the next [byte]: the same after every kind of layer."""
    return next((one.message for one in costs.values() if np.any(one.message)), 0.0)
