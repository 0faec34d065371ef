"""Time of an operation's arithmetic and memory traffic (arXiv 2410.00273, compute and memory times)."""

from traincast.core import Accelerator, Assumptions, Column, Precision, Rate, maximum, minimum, nonzero
from traincast.operations import PassCount
from traincast.times.kernel_efficiency import attention, burst, work_done
from traincast.times.overlap import exposed_time


def arithmetic_seconds(work: PassCount, gpu: Accelerator, assumed: Assumptions, recipe: Precision) -> Column:
    """Return the compute time of one pass: t_c = launch + FLOPs / sustained rate (arXiv 2410.00273) [s].

    Matrix and vector units work one after the other. Fused attention is one kernel, with its own rate if one
    is assumed.
    """
    high: Rate = "16-bit" if recipe.rate != "fp32" else "fp32"
    if work.fused is not None and assumed.attention.kernel != "paper":
        faster = assumed.attention.low_precision if recipe.rate in ("fp8", "fp4") else 1.0
        return _launch_overhead(work, assumed) + attention(
            work.flops("matrix"),
            work.fused,
            gpu,
            faster * power_limited_share(gpu, assumed) * gpu.peak(high),
            assumed,
        )
    matrix = work_done(work, "matrix", gpu, assumed) / (_sustained_share(high, gpu, assumed) * gpu.peak(high))
    if assumed.kernels.burst_seconds:
        matrix = burst(matrix, gpu, assumed)
    vector = work.flops("vector") / (assumed.kernels.vector_efficiency * gpu.vector_flops)
    seconds = _launch_overhead(work, assumed) + matrix + vector
    if any(kernel.unit == "low" for kernel in work.kernels):
        efficiency = assumed.kernels.low_precision_efficiency * recipe.reduced_rate
        low = efficiency * _sustained_share(recipe.rate, gpu, assumed) * gpu.peak(recipe.rate)
        seconds = seconds + work_done(work, "low", gpu, assumed) / low
    return seconds


def _launch_overhead(work: PassCount, assumed: Assumptions) -> Column:
    """Return the launch overhead of the kernels of a pass, their start and end included [s].

    Products of experts that are not grouped start and end one after the other.
    """
    if _is_fused_attention(work, assumed):
        return assumed.attention.launch_seconds
    return assumed.kernels.launch_seconds * expert_products(work, assumed, otherwise=1.0)


def expert_products(work: PassCount, assumed: Assumptions, otherwise: float = 0.0) -> Column:
    """Return how many products of experts a pass runs one after the other; `otherwise` if it runs none so."""
    if assumed.kernels.groups_experts:
        return otherwise
    return next((product.batch for product in work.gemms if product.layout == "grouped"), otherwise)


def _is_fused_attention(work: PassCount, assumed: Assumptions) -> bool:
    """Return whether a pass is fused attention with a rate of its own."""
    return work.fused is not None and assumed.attention.kernel != "paper"


def _sustained_share(rate: Rate, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Return the share of a peak that products sustain: the accelerator's if assumed and known."""
    default = assumed.kernels.matrix_efficiency
    share = gpu.sustained_share(rate, default) if assumed.kernels.sustained_rates else default
    return assumed.kernels.product_efficiency * power_limited_share(gpu, assumed) * share


def power_limited_share(gpu: Accelerator, assumed: Assumptions) -> Column:
    """Return the share of sustained rates that limits of power and clock leave."""
    return gpu.power_limited_share(assumed.kernels.power_exponent, assumed.kernels.matrix_efficiency)


def memory_rate(gpu: Accelerator, assumed: Assumptions) -> Column:
    """Return the memory bandwidth that kernels achieve, by the accelerator's share if assumed [byte/s]."""
    measured = gpu.hbm_sustained if assumed.kernels.sustained_bandwidth else None
    return gpu.hbm_bandwidth * (assumed.kernels.memory_efficiency if measured is None else measured)


def memory_time(nbytes: Column, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Return the time of memory traffic: what fits the cache at its bandwidth, the rest at the memory's [s].

    `nbytes`: the traffic [byte].
    """
    rate = memory_rate(gpu, assumed)
    if gpu.cache_bytes is None or gpu.cache_bandwidth is None or not assumed.kernels.sustained_bandwidth:
        return nbytes / rate
    cached = minimum(nbytes, gpu.cache_bytes)
    return cached / gpu.cache_bandwidth + (nbytes - cached) / rate


def exposed_memory(work: PassCount, compute: Column, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Return the exposed memory time: max(t_m - t_c, 0), t_m = bytes / bandwidth (arXiv 2410.00273) [s].

    Shares of a product's traffic may be exposed whatever the arithmetic: of its writes, which follow the main
    loop (κ), of its reads and of its casts. Launch overhead hides traffic or not.

    `compute`: its t_c [s].
    """
    if work.kernels and not assumed.kernels.launch_hides_traffic:
        compute = compute - _launch_overhead(work, assumed)
    always_exposed = _always_exposed_bytes(work, assumed)
    traffic = memory_time(work.nbytes, gpu, assumed)
    if always_exposed is None:
        return exposed_time(traffic - compute)
    return maximum(traffic - compute, memory_time(always_exposed, gpu, assumed))


def _always_exposed_bytes(work: PassCount, assumed: Assumptions) -> Column | None:
    """Return the traffic of products that arithmetic never hides [byte]; None without such traffic."""
    layouts = {gemm.layout for gemm in work.gemms} - {"chunked"}  # scans hide theirs, as elementwise work
    if _is_fused_attention(work, assumed) or not layouts:
        return None
    inputs: Column = assumed.kernels.inputs_exposed
    outputs: Column = assumed.kernels.outputs_exposed
    if "grouped" in layouts:
        grouped = assumed.kernels.grouped_exposed
        inputs = maximum(inputs, grouped)
        outputs = maximum(outputs, grouped)
    casts = assumed.kernels.casts_exposed
    if not (nonzero(inputs) or nonzero(outputs) or nonzero(casts)):
        return None
    read = work.nbytes - work.written - work.cast
    return inputs * read + outputs * work.written + casts * work.cast
