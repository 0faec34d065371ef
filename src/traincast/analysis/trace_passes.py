"""What one pass of a micro-batch through one chunk of the model spends its time on, for the trace of a plan.

A pass takes the time of its operations, the wait for a host that issues them too slowly, and what transfers hold it up; the
simulation of a step runs passes of this length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from traincast.core.assumptions import Assumptions
from traincast.core.plan import Plan, Plans
from traincast.step.data_parallel import hidden_traffic
from traincast.step.estimate import Estimate, with_defaults
from traincast.step.layer_cost import Costs, cost_part, sum_of
from traincast.step.pipeline_stages import Counts, PipelineDevice, contents, devices, every_device
from traincast.step.step_time import links
from traincast.times.operation_time import PassSeconds, Timed
from traincast.times.overlap import paced_by
from traincast.times.pipeline.pass_order import Kind, device_of
from traincast.times.pipeline.schedules import SCHEDULES

Shares = Mapping[str, float]  # seconds by component of the breakdown
WORK: Final = {"compute": "compute", "memory": "exposed_memory", "comm": "tp_comm", "exchange": "ep_comm"}  # of Seconds → component


@dataclass(frozen=True)
class Passes:
    """Passes of one micro-batch through every chunk of the model, first to last.

    Parameters
    ----------
    devices : tuple of PipelineDevice
        Devices of the pipeline and what they hold.
    parts : tuple of mapping of str to int
        Parts of the model in each chunk.
    spent : mapping of str to tuple of mapping
        Kind of pass (F and BW; B and W as well where the schedule puts W off) → for each chunk seconds by component, in the order
        in which they are drawn.
    beside : float
        Transfer from one device to another that runs beside their work [s].
    unhidden : float
        Exchange with experts that the first forward and the last backward pass have nothing beside, on the device where it is
        longest [s].
    exchange : mapping of str to tuple of float
        Kind of pass → for each chunk what hides of its exchange with experts behind another micro-batch's work [s].
    traffic : tuple of tuple of float
        Data-parallel traffic of each device in a step that hides behind its passes: weights gathered, gradients reduced [s].
    """

    devices: tuple[PipelineDevice, ...]
    parts: tuple[Mapping[str, int], ...]
    spent: Mapping[Kind, tuple[Shares, ...]]
    beside: float
    unhidden: float
    exchange: Mapping[Kind, tuple[float, ...]]
    traffic: tuple[tuple[float, float], ...]

    def seconds(self, kind: Kind) -> list[float]:
        """Time of a pass through each chunk; 0 of a kind that the schedule does not have [s]."""
        return [sum(one.values()) for one in self.spent[kind]] if kind in self.spent else [0.0] * len(self.parts)


def passes(est: Estimate, plan: Plan) -> Passes:
    """What passes of the plan of an estimate are made of.

    Parameters
    ----------
    est : Estimate
        The estimate.
    plan : Plan
        Its plan.

    Returns
    -------
    Passes
        Seconds, numbers.
    """
    model, assumed, columns = est.model, est.assumptions, with_defaults(plan, est.model, est.assumptions)
    costs = {part: cost_part(timed, columns) for part, timed in est.timed.items()}
    link = links(costs, columns, est.system, assumed)
    all_of_them = devices(model, plan.pp, plan.vp, plan.schedule, plan.layout)
    slowed = [_slowed(costs, device, assumed) for device in all_of_them]
    parts = contents(model, plan.pp, plan.vp, plan.layout)
    spent: dict[Kind, list[Shares]] = {}
    for chunk, counts in enumerate(parts):
        late, busy = slowed[device_of(plan.schedule, chunk, 0, plan.pp, 2)]
        own = _chunk(est.timed, counts, columns)
        for kind, shares in own.items():
            share = sum(shares.values()) / busy if busy else 1 / (plan.vp * len(own))
            waits = {"host": late * share, "pp_comm": 0.0 if kind == "W" else float(link.blocking)}
            spent.setdefault(kind, []).append({what: seconds for what, seconds in (shares | waits).items() if seconds > 0})
    if "W" in spent:
        spent["BW"] = [_both(*two) for two in zip(spent["B"], spent["W"], strict=True)]
    unhidden = max(float(sum_of(costs, device.executed_parts, "hidden")) for device in all_of_them) if plan.ep_overlap else 0.0
    hidden = hidden_traffic(costs, every_device(all_of_them), columns, columns.microbatches(est.gbs), est.system, assumed)
    return Passes(
        devices=all_of_them,
        parts=tuple(map(dict, parts)),
        spent={kind: tuple(shares) for kind, shares in spent.items()},
        beside=float(link.overlapped),
        unhidden=unhidden,
        exchange={kind: tuple(_hidden(est.timed, counts, kind) for counts in parts) for kind in spent},
        traffic=tuple((float(gather), float(reduce)) for gather, reduce in hidden),
    )


def _slowed(costs: Costs, device: PipelineDevice, assumed: Assumptions) -> tuple[float, float]:
    """What a micro-batch waits on a device for its host, and what it takes there without [s]."""
    busy = float(sum_of(costs, device.executed_parts, "forward") + sum_of(costs, device.executed_parts, "backward"))
    if not assumed.dispatch_seconds:
        return 0.0, busy
    issued = float(sum_of(costs, device.executed_parts, "dispatch")) + assumed.microbatch_seconds
    return float(paced_by(issued, busy)) - busy, busy


def _chunk(timed: Mapping[str, Timed], counts: Counts, plan: Plans) -> dict[Kind, dict[str, float]]:
    """Passes through a chunk by what they are spent on [s]."""
    of = [(one, n) for part, n in counts.items() for one in timed[part]]
    forward = _sum([one.forward.times(n) for one, n in of])
    backward = _sum([one.backward.times(n) for one, n in of])
    again = sum(float(one.again.total * n) for one, n in of if one.again is not None) / float(plan.recompute_every)
    first = {"recomputation": again}  # before the rest of backward
    if not SCHEDULES[plan.schedule].splits_backward:
        return {"F": forward, "BW": first | backward}
    weight = _weight(backward, sum(float(one.weight * n) for one, n in of))
    rest = {what: max(seconds - weight[what], 0.0) for what, seconds in backward.items()}
    return {"F": forward, "B": first | rest, "W": weight}


def _both(first: Shares, second: Shares) -> Shares:
    """Two passes as one [s]."""
    return {
        what: first.get(what, 0.0) + second.get(what, 0.0) for what in (*first, *(what for what in second if what not in first))
    }


def _hidden(timed: Mapping[str, Timed], counts: Counts, kind: Kind) -> float:
    """What hides of the exchange with experts of a pass through a chunk [s]."""
    way = {"F": "forward", "B": "backward", "BW": "backward"}.get(kind)
    return sum(float(n * getattr(one, way).hidden) for part, n in counts.items() for one in timed[part]) if way else 0.0


def _sum(several: Sequence[PassSeconds]) -> dict[str, float]:
    """PassSeconds of several operations by component."""
    return {what: sum(float(getattr(one, name)) for one in several) for name, what in WORK.items()}


def _weight(backward: Shares, seconds: float) -> dict[str, float]:
    """What the gradient of the weights takes of a backward pass: work as far as there is so much, then communication as well."""
    work = backward["compute"] + backward["exposed_memory"]
    sent = backward["tp_comm"] + backward["ep_comm"]
    of_work = min(seconds / work, 1.0) if work else 0.0
    of_sent = min(max(seconds - work, 0.0) / sent, 1.0) if sent else 0.0
    return {what: time * (of_sent if what.endswith("_comm") else of_work) for what, time in backward.items()}
