"""Efficiency of kernels: tiles and waves of matrix products, fused attention, bursts before the power limit.

Formulas and constants are checked against published microbenchmarks
(calibration/kernel_benchmarks.py; docs/kernels.md). Every term is neutral with the assumptions of
arXiv 2410.00273, which has one share of the peak for all products.
"""

from typing import Final

import numpy as np

from traincast.core import Accelerator, Assumptions, Column, ceil, maximum, minimum, sign, where
from traincast.operations import Fused, Gemm, PassCount, Unit, total

REFERENCE_HEAD_WIDTH: Final = 128  # width of heads that the rates of fused attention are given for
# keys of the longest row relative to the mean one, of a causal mask; of a window hardly more than 1
MAX_ROW_IMBALANCE: Final = 2
TILE_FRACTION: Final = 2  # results narrower than a tile have tiles of 1/2 its edge


def work_done(work: PassCount, unit: Unit, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Return the arithmetic of the products on a unit, including what tiles waste [FLOP]."""
    if not assumed.kernels.tile and not assumed.kernels.aligned_elements:
        return work.flops(unit)
    products = [kernel for kernel in work.kernels if isinstance(kernel, Gemm) and kernel.unit == unit]
    return total(
        kernel.flops * tile_cost(kernel, gpu, assumed) * misalignment_cost(kernel, assumed)
        for kernel in products
    )


def tile_cost(product: Gemm, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Return the cost of tiles and waves: q = (padded result / result) (1 + φ (⌈w⌉ / w - 1)), at least 1.

    Its result has n tiles, which S multiprocessors compute in w = n / S waves. Stream-K, tiles of other sizes
    and a clock that rises while some are idle leave a share φ of the last wave's gap.
    The products of a scan run at a rate of their own.
    """
    if product.layout == "chunked":
        return 1 / assumed.kernels.scan_efficiency
    if not assumed.kernels.tile:
        return 1.0
    m = product.m
    n = product.n
    aspect = assumed.kernels.tile_aspect
    longer = where(m >= n, aspect, 1.0)  # along the longer side of the result
    rows, columns = (
        _tile_edge(size, assumed.kernels.tile * edge) for size, edge in ((m, longer), (n, aspect / longer))
    )
    tiles = product.batch * ceil(m / rows) * ceil(n / columns)
    padded = tiles * rows * columns / (product.batch * m * n)
    if gpu.processors is None or not assumed.kernels.wave_loss:
        return padded
    together = tiles
    if product.layout == "grouped" and not assumed.kernels.groups_experts:
        together = tiles / product.batch  # each expert's product fills the multiprocessors by itself
    waves = together * (rows * columns / (aspect * assumed.kernels.tile**2)) / gpu.processors
    return padded * (1 + assumed.kernels.wave_loss * (ceil(waves) / waves - 1))


def _tile_edge(size: Column, tile: Column) -> Column:
    """Return the edge of a tile along a side: a full tile, or half of one if the side is no longer."""
    half = tile / TILE_FRACTION
    return minimum(tile, half * ceil(size / half))


def misalignment_cost(product: Gemm, assumed: Assumptions) -> Column:
    """Return the slowdown of heads whose widths are no multiple of 16 bytes: no matrix units.

    Seen in software of 2022 with heads of 108 (BLOOM's search), where other products are padded or aligned by
    their shapes.
    """
    if product.layout != "batched" or not assumed.kernels.aligned_elements:
        return 1.0
    is_aligned = (product.k % assumed.kernels.aligned_elements == 0) & (
        product.n % assumed.kernels.aligned_elements == 0
    )
    return where(is_aligned, 1.0, assumed.kernels.misaligned_slowdown)


def burst(seconds: Column, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Return the time of products on an idle accelerator: first at its burst rate, then power-limited [s].

    `seconds`: time at the sustained rate [s].
    """
    if gpu.matrix_burst is None or gpu.matrix_sustained is None:
        return seconds
    speedup = gpu.matrix_burst / gpu.matrix_sustained - 1
    return seconds / (1 + speedup * np.exp(-seconds / assumed.kernels.burst_seconds))


def attention(flops: Column, shapes: Fused, gpu: Accelerator, peak: Column, assumed: Assumptions) -> Column:
    """Return the time max(X + ρL, L) of fused attention [s].

    X = F/A (1 + (s₀ + T/2)/s) (1 + d₀/d) / (1 + d₀/128).

    A row of s unmasked keys costs s₀ more to start and end, and half a tile T if a mask cuts it. The
    exponentials of the scores take the same time for any width d of the heads. The S multiprocessors share
    the tiles of queries; the last to end has the longest of them, of time S L.

    `flops`: arithmetic of the products that are not skipped, F [FLOP]; `peak`: peak of the matrix units
    [FLOP/s].
    """
    share = gpu.fused_attention(assumed.attention.kernel, assumed.attention.efficiency)
    rate = assumed.attention.framework_rate * share * peak  # A
    of_kernel = gpu.attention_tile_backward if shapes.backward else gpu.attention_tile
    tile: Column = assumed.attention.tile if of_kernel is None else of_kernel
    if shapes.backward:
        rate = rate * (
            assumed.attention.backward if gpu.attention_backward is None else gpu.attention_backward
        )
        rate = rate / where(shapes.width > REFERENCE_HEAD_WIDTH, assumed.attention.wide_backward, 1)
    d0 = assumed.attention.softmax
    ideal = flops / rate * (1 + d0 / shapes.width) / (1 + d0 / REFERENCE_HEAD_WIDTH)
    edge = tile / 2 * sign(1 - shapes.share)
    seconds = ideal * (1 + (shapes.starts * assumed.attention.start + edge) / (shapes.share * shapes.keys))
    if gpu.processors is None:
        return seconds
    longest = ideal * minimum(1 / shapes.share, MAX_ROW_IMBALANCE) * gpu.processors * tile / shapes.queries
    return maximum(seconds + assumed.attention.tail * longest, longest)
