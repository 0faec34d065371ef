"""Analyses of an estimate: trace, methods of saving, ZeRO scaling, limits of data movement."""

from traincast.analysis.batch_and_network import NETWORK_SHARE, BatchSizeOption, Network, best_batch
from traincast.analysis.chrome_trace import TRACE_ENDINGS, write_chrome_trace
from traincast.analysis.flops_by_part import FlopsByPart, flops_by_part
from traincast.analysis.measured_scaling import MeasuredScaling, measured_scaling
from traincast.analysis.model_dimensions import Dimension, Product
from traincast.analysis.operation_anatomy import Anatomy, anatomy
from traincast.analysis.per_parameter import PerParameter, bytes_per_parameter_of
from traincast.analysis.plan_analysis import PlanAnalysis
from traincast.analysis.trace import Trace, trace
from traincast.analysis.training_limits import Limits, ShardedLayer, limits
from traincast.analysis.zero_formulas import activation_bytes, speedup, state_bytes
from traincast.analysis.zero_scaling import Scaling, ScalingRecord, ScalingRequest, ScalingRow, scaling

__all__ = [
    "NETWORK_SHARE",
    "TRACE_ENDINGS",
    "Anatomy",
    "BatchSizeOption",
    "Dimension",
    "FlopsByPart",
    "Limits",
    "MeasuredScaling",
    "Network",
    "PerParameter",
    "PlanAnalysis",
    "Product",
    "Scaling",
    "ScalingRecord",
    "ScalingRequest",
    "ScalingRow",
    "ShardedLayer",
    "Trace",
    "activation_bytes",
    "anatomy",
    "best_batch",
    "bytes_per_parameter_of",
    "flops_by_part",
    "limits",
    "measured_scaling",
    "scaling",
    "speedup",
    "state_bytes",
    "trace",
    "write_chrome_trace",
]
