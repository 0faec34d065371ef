"""Time of an operation's arithmetic and memory traffic (arXiv 2410.00273)."""

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import Accelerator
from traincast.operations.base import Pass
from traincast.times.overlap import excess


def arithmetic(work: Pass, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Launch and arithmetic of one pass [s]: t_c = launch + FLOPs / sustained rate, matrix and vector units one after the other."""
    matrix = work.flops("matrix") / (assumed.matrix_efficiency * gpu.matrix_flops)
    vector = work.flops("vector") / (assumed.vector_efficiency * gpu.vector_flops)
    return assumed.launch_seconds + matrix + vector


def exposed_memory(work: Pass, compute: Column, gpu: Accelerator) -> Column:
    """Memory traffic not hidden behind arithmetic [s]: max(t_m - t_c, 0) with t_m = bytes / HBM bandwidth."""
    return excess(work.nbytes / gpu.hbm_bandwidth - compute)
