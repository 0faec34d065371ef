"""Times of counted operations: roofline, collectives, overlap and pipeline schedules."""

from traincast.times.collectives import Curve, collective, collective_curve, least_streaming
from traincast.times.kernel_efficiency import tile_cost
from traincast.times.operation_time import LeastTimer, OperationTimer, exposed_share
from traincast.times.overlap import exposed_time, largest, layer_by_layer, paced_by
from traincast.times.pipeline.p2p import slowest_stage_link, stage_transfer
from traincast.times.pipeline.schedules import SCHEDULES, Kind, MicrobatchTimes, Requirement, Schedule
from traincast.times.pipeline.simulation import SimulatedPass, Timeline, simulate
from traincast.times.process_groups import ORDERS, AnyPlacement, Group, Placement, domains, is_group
from traincast.times.roofline import arithmetic, exposed_memory
from traincast.times.timed_operation import OperationPasses, PassSeconds, Timed, TimedOperation

__all__ = [
    "ORDERS",
    "SCHEDULES",
    "AnyPlacement",
    "Curve",
    "Group",
    "Kind",
    "LeastTimer",
    "MicrobatchTimes",
    "OperationPasses",
    "OperationTimer",
    "PassSeconds",
    "Placement",
    "Requirement",
    "Schedule",
    "SimulatedPass",
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
    "tile_cost",
]
