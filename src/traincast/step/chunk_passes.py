"""Time by component of one pass of a micro-batch through one chunk of the model, for the trace of a plan.

A pass takes the time of its operations, the wait for a host that issues kernels too slowly, and exposed
transfer time; the simulation of a step runs passes of this length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from traincast.core import Plan, Plans
from traincast.step.data_parallelism import data_parallel
from traincast.step.estimates import Estimate, with_defaults
from traincast.step.layer_cost import cost_part, sum_of
from traincast.step.model_parts import Counts
from traincast.step.pipeline_stages import PipelineDevice, contents, devices, every_device
from traincast.step.step_time import device_time, links
from traincast.times import SCHEDULES, Kind, PassSeconds, Placement, Timed

Shares = Mapping[str, float]  # seconds by component of the breakdown
WORK: Final = {  # field of PassSeconds → component
    "compute": "compute",
    "memory": "exposed_memory",
    "comm": "tp_comm",
    "exchange": "ep_comm",
}
COMMUNICATION: Final = frozenset({"tp_comm", "ep_comm"})  # components of `WORK` that communicate


@dataclass(frozen=True)
class ChunkPasses:
    """Passes of one micro-batch through every chunk of the model, first to last."""

    devices: tuple[PipelineDevice, ...]  # of the pipeline, and their parts of the model
    parts: tuple[Mapping[str, int], ...]  # parts of the model in each chunk
    # Kind of pass (F and BW; B and W as well where the schedule defers W) → for each chunk seconds by
    # component, in the order in which they are drawn.
    spent: Mapping[Kind, tuple[Shares, ...]]
    overlapped_transfer: float  # transfer from one device to another, overlapped with their work [s]
    # Exchange with experts of the first forward and the last backward pass, which nothing overlaps, on the
    # device where it is longest [s].
    unhidden: float
    # Kind of pass → for each chunk the part of its exchange with experts that another micro-batch's work
    # overlaps [s].
    exchange: Mapping[Kind, tuple[float, ...]]
    # Data-parallel traffic of each device in a step that its passes overlap: weights gathered, gradients
    # reduced [s].
    traffic: tuple[tuple[float, float], ...]

    def seconds(self, kind: Kind) -> list[float]:
        """Return the time of a pass through each chunk; 0 for a kind that the schedule does not have [s]."""
        chunks = self.spent.get(kind, ({},) * len(self.parts))
        return [float(sum(components.values())) for components in chunks]


def passes(est: Estimate, plan: Plan) -> ChunkPasses:
    """Return the time by component of the passes of an estimate's plan."""
    model = est.model
    assumed = est.assumptions
    columns = with_defaults(plan.columns(), model, assumed)
    costs = {part: cost_part(timed, columns) for part, timed in est.timed.items()}
    placement = Placement(columns, est.system.tiers)
    link = links(costs, placement, est.system, assumed)
    pipeline_devices = devices(model, plan.pp, plan.vp, plan.schedule, plan.layout)
    times = [
        device_time(costs, device.executed_parts, columns, est.system, assumed) for device in pipeline_devices
    ]
    parts = contents(model, plan.pp, plan.vp, plan.layout)
    spent: dict[Kind, list[Shares]] = {}
    for chunk, counts in enumerate(parts):
        of_device = times[SCHEDULES[plan.schedule].device_of(chunk, 0, plan.pp, 2)]
        busy = float(of_device.busy)
        by_kind = _seconds_by_kind(est.timed, counts, columns)
        for kind, shares in by_kind.items():
            share = sum(shares.values()) / busy if busy else 1 / (plan.vp * len(by_kind))
            waits = {
                "host": float(of_device.host_wait) * share,
                "pp_comm": 0.0 if kind == "W" else float(link.blocking),
            }
            total = {component: seconds for component, seconds in (shares | waits).items() if seconds > 0}
            spent.setdefault(kind, []).append(total)
    if "W" in spent:
        spent["BW"] = [_sum_passes(*pair) for pair in zip(spent["B"], spent["W"], strict=True)]
    exchanges = [float(sum_of(costs, device.executed_parts, "hidden")) for device in pipeline_devices]
    nm = columns.microbatches(est.gbs)
    stages = every_device(pipeline_devices)
    traffic = data_parallel(costs, stages, placement, nm, est.system, assumed)
    return ChunkPasses(
        devices=pipeline_devices,
        parts=tuple(map(dict, parts)),
        spent={kind: tuple(shares) for kind, shares in spent.items()},
        overlapped_transfer=float(link.overlapped),
        unhidden=max(exchanges) if plan.ep_overlap else 0.0,
        exchange={
            kind: tuple(_hidden_exchange(est.timed, counts, kind) for counts in parts) for kind in spent
        },
        traffic=tuple(
            (float(gather), float(reduce))
            for gather, reduce in traffic.hidden_in_step([time.stretch for time in times])
        ),
    )


def _seconds_by_kind(timed: Mapping[str, Timed], counts: Counts, plan: Plans) -> dict[Kind, dict[str, float]]:
    """Return the seconds by component of each kind of pass through a chunk."""
    operations = [(operation, n) for part, n in counts.items() for operation in timed[part]]
    forward = _by_component([operation.forward.times(n) for operation, n in operations])
    backward = _by_component([operation.backward.times(n) for operation, n in operations])
    recomputed = sum(
        float(operation.recompute.total * n) for operation, n in operations if operation.recompute is not None
    )
    recomputation = {"recomputation": recomputed / float(plan.recompute_every)}  # before the rest of backward
    if not SCHEDULES[plan.schedule].splits_backward:
        return {"F": forward, "BW": recomputation | backward}
    weight = _weight_gradient(backward, sum(float(operation.weight * n) for operation, n in operations))
    input_gradient = {name: max(seconds - weight[name], 0.0) for name, seconds in backward.items()}
    return {"F": forward, "B": recomputation | input_gradient, "W": weight}


def _sum_passes(first: Shares, second: Shares) -> Shares:
    """Return the sum of two passes by component [s]."""
    components = dict.fromkeys((*first, *second))
    return {component: first.get(component, 0.0) + second.get(component, 0.0) for component in components}


def _hidden_exchange(timed: Mapping[str, Timed], counts: Counts, kind: Kind) -> float:
    """Return the overlapped part of the exchange with experts of a pass through a chunk [s]."""
    direction = {"F": "forward", "B": "backward", "BW": "backward"}.get(kind)
    if direction is None:
        return 0.0
    return sum(
        float(n * getattr(operation, direction).hidden)
        for part, n in counts.items()
        for operation in timed[part]
    )


def _by_component(operations: Sequence[PassSeconds]) -> dict[str, float]:
    return {
        component: sum(float(getattr(operation, name)) for operation in operations)
        for name, component in WORK.items()
    }


def _weight_gradient(backward: Shares, seconds: float) -> dict[str, float]:
    """Return the time of weight gradients by component: compute and memory first, then communication [s]."""
    work = backward["compute"] + backward["exposed_memory"]
    comm = backward["tp_comm"] + backward["ep_comm"]
    work_share = min(seconds / work, 1.0) if work else 0.0
    comm_share = min(max(seconds - work, 0.0) / comm, 1.0) if comm else 0.0
    return {
        component: time * (comm_share if component in COMMUNICATION else work_share)
        for component, time in backward.items()
    }
