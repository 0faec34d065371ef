"""Time of an operation's arithmetic and memory traffic (arXiv 2410.00273, compute and memory times)."""

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.precision import Precision, Rate
from traincast.core.quantities import Column
from traincast.core.system import Accelerator
from traincast.operations.operation import Gemm, PassCount
from traincast.times.kernel_efficiency import attention, burst, work_done
from traincast.times.overlap import excess


def arithmetic(work: PassCount, gpu: Accelerator, assumed: Assumptions, recipe: Precision) -> Column:
    """Launch and arithmetic of one pass: t_c = launch + FLOPs / sustained rate (arXiv 2410.00273, compute time).

    Matrix and vector units work one after the other. Fused attention is one kernel with a rate of its own where one is assumed.

    Parameters
    ----------
    work : PassCount
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
    if work.fused is not None and assumed.attention_kernel != "paper":
        faster = assumed.attention_low if recipe.rate in ("fp8", "fp4") else 1.0
        return _launch(work, assumed) + attention(work.flops("matrix"), work.fused, gpu, faster * gpu.peak(high), assumed)
    matrix = work_done(work, "matrix", gpu, assumed) / (_share(high, gpu, assumed) * gpu.peak(high))
    if assumed.burst_seconds:
        matrix = burst(matrix, gpu, assumed)
    vector = work.flops("vector") / (assumed.vector_efficiency * gpu.vector_flops)
    seconds = assumed.launch_seconds + matrix + vector
    if any(kernel.unit == "low" for kernel in work.kernels):
        low = _share(recipe.rate, gpu, assumed) * recipe.reduced_rate * gpu.peak(recipe.rate)
        seconds = seconds + work_done(work, "low", gpu, assumed) / low
    return seconds


def _launch(work: PassCount, assumed: Assumptions) -> Column:
    """Fixed cost of the kernels of a pass, their start and end included [s]."""
    one_kernel = work.fused is not None and assumed.attention_kernel != "paper"
    return assumed.attention_launch_seconds if one_kernel else assumed.launch_seconds


def _share(rate: Rate, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Share of a peak that products sustain: the accelerator's own if it is asked for and known."""
    usual = assumed.matrix_efficiency
    return assumed.product_efficiency * (gpu.sustained(rate, usual) if assumed.sustained_rates else usual)


def memory_rate(gpu: Accelerator, assumed: Assumptions) -> Column:
    """Memory bandwidth that kernels achieve: the accelerator's own share of its peak if it is asked for and known [byte/s]."""
    known = gpu.hbm_sustained if assumed.sustained_bandwidth else None
    return gpu.hbm_bandwidth * (assumed.memory_efficiency if known is None else known)


def streamed(nbytes: Column, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Time of a kernel's memory traffic: what caches hold at their bandwidth, the rest at that of the memory.

    Parameters
    ----------
    nbytes : Column
        The traffic; a column over plans [byte].
    gpu : Accelerator
        Supplies the bandwidths; without those of caches everything comes from the memory.
    assumed : Assumptions
        Whether the accelerator's own figures are asked for.

    Returns
    -------
    Column
        Time; a column over plans [s].
    """
    rate = memory_rate(gpu, assumed)
    if gpu.cache_bytes is None or gpu.cache_bandwidth is None or not assumed.sustained_bandwidth:
        return nbytes / rate
    near = np.minimum(nbytes, gpu.cache_bytes)
    return near / gpu.cache_bandwidth + (nbytes - near) / rate


def exposed_memory(work: PassCount, compute: Column, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Memory traffic not hidden behind arithmetic: max(t_m - t_c, 0) with t_m = bytes / HBM bandwidth (arXiv 2410.00273).

    Of a product's traffic a share may be exposed whatever the arithmetic: κ of what it writes, after its main loop, and shares of
    what it reads and of what is cast for it. A launch hides traffic or not.

    Parameters
    ----------
    work : PassCount
        One direction of an operation.
    compute : Column
        Its t_c [s].
    gpu : Accelerator
        Supplies the bandwidth.
    assumed : Assumptions
        The shares, and what launches hide.

    Returns
    -------
    Column
        Exposed time; a column over plans [s].
    """
    if work.kernels and not assumed.launch_hides_traffic:
        compute = compute - _launch(work, assumed)
    late = _always_exposed(work, assumed)
    traffic = streamed(work.nbytes, gpu, assumed)
    return excess(traffic - compute) if late is None else np.maximum(traffic - compute, streamed(late, gpu, assumed))


def _always_exposed(work: PassCount, assumed: Assumptions) -> Column | None:
    """Traffic of products that arithmetic never hides [byte]; None where there is none."""
    fused = work.fused is not None and assumed.attention_kernel != "paper"
    if fused or all(kernel.unit == "vector" for kernel in work.kernels):
        return None
    inputs, outputs = assumed.inputs_exposed, assumed.outputs_exposed
    if any(isinstance(kernel, Gemm) and kernel.layout == "grouped" for kernel in work.kernels):
        inputs, outputs = max(inputs, assumed.grouped_exposed), max(outputs, assumed.grouped_exposed)
    if not (inputs or outputs or assumed.casts_exposed):
        return None
    read = work.nbytes - work.written - work.cast
    return inputs * read + outputs * work.written + assumed.casts_exposed * work.cast
