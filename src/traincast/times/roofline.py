"""Time of an operation's arithmetic and memory traffic (arXiv 2410.00273, compute and memory times)."""

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import Accelerator
from traincast.operations.base import Pass
from traincast.times.overlap import excess


def arithmetic(work: Pass, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Launch and arithmetic of one pass: t_c = launch + FLOPs / sustained rate (arXiv 2410.00273, compute time).

    Matrix and vector units work one after the other.

    Parameters
    ----------
    work : Pass
        One direction of an operation.
    gpu : Accelerator
        Supplies the peaks.
    assumed : Assumptions
        Cost of a launch, and the share of the peaks that kernels sustain.

    Returns
    -------
    Column
        t_c; a column over plans [s].
    """
    matrix = work.flops("matrix") / (assumed.matrix_efficiency * gpu.matrix_flops)
    vector = work.flops("vector") / (assumed.vector_efficiency * gpu.vector_flops)
    return assumed.launch_seconds + matrix + vector


def exposed_memory(work: Pass, compute: Column, gpu: Accelerator) -> Column:
    """Memory traffic not hidden behind arithmetic: max(t_m - t_c, 0) with t_m = bytes / HBM bandwidth (arXiv 2410.00273).

    Parameters
    ----------
    work : Pass
        One direction of an operation.
    compute : Column
        Its t_c [s].
    gpu : Accelerator
        Supplies the bandwidth.

    Returns
    -------
    Column
        Exposed time; a column over plans [s].
    """
    return excess(work.nbytes / gpu.hbm_bandwidth - compute)
