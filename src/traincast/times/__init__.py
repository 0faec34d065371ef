"""Times of counted operations: roofline, collectives, overlap and pipeline schedules."""

from traincast.times.collectives import Curve, collective, collective_curve, least_streaming
from traincast.times.kernel_efficiency import tiled
from traincast.times.operation_time import (
    LeastTimer,
    OperationTimer,
    Passes,
    PassSeconds,
    Timed,
    TimedOperation,
    exposed_share,
)
from traincast.times.overlap import exposed_time, largest, layer_by_layer, paced_by
from traincast.times.pipeline.p2p import slowest_stage_link, stage_transfer
from traincast.times.pipeline.schedules import SCHEDULES, Kind, Requirement, Schedule
from traincast.times.pipeline.schedules import Passes as StagePasses
from traincast.times.pipeline.simulation import SimulatedPass, Timeline, simulate
from traincast.times.process_groups import ORDERS, AnyPlacement, Group, Placement, domains, is_group
from traincast.times.roofline import arithmetic, exposed_memory

__all__ = [
    "ORDERS",
    "SCHEDULES",
    "AnyPlacement",
    "Curve",
    "Group",
    "Kind",
    "LeastTimer",
    "OperationTimer",
    "PassSeconds",
    "Passes",
    "Placement",
    "Requirement",
    "Schedule",
    "SimulatedPass",
    "StagePasses",
    "Timed",
    "TimedOperation",
    "Timeline",
    "arithmetic",
    "collective",
    "collective_curve",
    "domains",
    "exposed_memory",
    "exposed_share",
    "exposed_time",
    "is_group",
    "largest",
    "layer_by_layer",
    "least_streaming",
    "paced_by",
    "simulate",
    "slowest_stage_link",
    "stage_transfer",
    "tiled",
]
