"""Time of an operation's arithmetic and memory traffic (arXiv 2410.00273, compute and memory times)."""

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import Accelerator
from traincast.operations.base import Pass
from traincast.recipes import Precision, Rate
from traincast.times.overlap import excess


def arithmetic(work: Pass, gpu: Accelerator, assumed: Assumptions, recipe: Precision) -> Column:
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
    recipe : Precision
        Rate of the products that run in low precision.

    Returns
    -------
    Column
        t_c; a column over plans [s].
    """
    high: Rate = "16-bit" if recipe.rate != "fp32" else "fp32"
    matrix = work.flops("matrix") / (_share(high, gpu, assumed) * gpu.peak(high))
    vector = work.flops("vector") / (assumed.vector_efficiency * gpu.vector_flops)
    seconds = assumed.launch_seconds + matrix + vector
    if any(kernel.unit == "low" for kernel in work.kernels):
        low = _share(recipe.rate, gpu, assumed) * recipe.reduced_rate * gpu.peak(recipe.rate)
        seconds = seconds + work.flops("low") / low
    return seconds


def _share(rate: Rate, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Share of a peak that products sustain: the accelerator's own if it is asked for and known."""
    usual = assumed.matrix_efficiency
    return gpu.sustained(rate, usual) if assumed.sustained_rates else usual


def exposed_memory(work: Pass, compute: Column, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Memory traffic not hidden behind arithmetic: max(t_m - t_c, 0) with t_m = bytes / HBM bandwidth (arXiv 2410.00273).

    Of a product's traffic a share may be exposed whatever the arithmetic.

    Parameters
    ----------
    work : Pass
        One direction of an operation.
    compute : Column
        Its t_c [s].
    gpu : Accelerator
        Supplies the bandwidth.
    assumed : Assumptions
        The share of a product's traffic that is always exposed.

    Returns
    -------
    Column
        Exposed time; a column over plans [s].
    """
    traffic = work.nbytes / gpu.hbm_bandwidth
    if assumed.traffic_exposed and any(kernel.unit != "vector" for kernel in work.kernels):
        return np.maximum(traffic - compute, assumed.traffic_exposed * traffic)
    return excess(traffic - compute)
