"""What kernels reach of a peak: tiles and waves of matrix products, fused attention, bursts before the power limit.

Formulas and constants are checked against published microbenchmarks (`traincast.accuracy.fit.kernel_benchmarks`; docs/kernels.md).
Every term is neutral with the assumptions of arXiv 2410.00273, which knows one share of the peak for all products.
"""

from typing import Final

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.quantities import Column
from traincast.core.system import Accelerator
from traincast.operations.operation import Fused, Gemm, PassCount, Unit, total

HEAD: Final = 128  # width of heads that the rates of fused attention are given for
LONGEST: Final = 2  # keys of the longest row relative to the mean one, of a causal mask; of a window hardly more than 1
HALF_TILE: Final = 2  # results narrower than a tile have tiles of half its edge


def work_done(work: PassCount, unit: Unit, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Arithmetic of the products on a unit, with what tiles waste.

    Parameters
    ----------
    work : PassCount
        One direction of an operation.
    unit : {"matrix", "low"}
        The unit.
    gpu : Accelerator
        Supplies the number of multiprocessors.
    assumed : Assumptions
        Size of a tile, and what misaligned heads cost.

    Returns
    -------
    Column
        FLOPs times q, a column over plans [FLOP].
    """
    if not assumed.tile and not assumed.aligned_elements:
        return work.flops(unit)
    products = [kernel for kernel in work.kernels if isinstance(kernel, Gemm) and kernel.unit == unit]
    return total(kernel.flops * tiled(kernel, gpu, assumed) * aligned(kernel, assumed) for kernel in products)


def tiled(product: Gemm, gpu: Accelerator, assumed: Assumptions) -> Column:
    """What tiles and waves waste of a product: q = (padded result / result) (1 + φ (⌈w⌉ / w - 1)), at least 1.

    Its result is made in tiles, n of them, by S multiprocessors in w = n / S waves. Stream-K, tiles of other sizes and the clock
    that rises while some wait leave a share φ of the last wave's gap.

    Parameters
    ----------
    product : Gemm
        The product.
    gpu : Accelerator
        Supplies S; without it waves are left out.
    assumed : Assumptions
        Edge of a tile, and φ.

    Returns
    -------
    Column
        q, a column over plans.
    """
    if not assumed.tile:
        return 1.0
    m, n = product.m, product.n
    rows, columns = (_edge(size, assumed.tile) for size in (m, n))
    tiles = product.batch * np.ceil(m / rows) * np.ceil(n / columns)
    padded = tiles * rows * columns / (product.batch * m * n)
    if gpu.processors is None or not assumed.wave_loss:
        return padded
    waves = tiles * (rows * columns / assumed.tile**2) / gpu.processors
    return padded * (1 + assumed.wave_loss * (np.ceil(waves) / waves - 1))


def _edge(size: Column, tile: float) -> Column:
    """Edge of a tile along a side of the result: a whole tile, or half of one where the side is no longer than that."""
    half = tile / HALF_TILE
    return np.minimum(tile, half * np.ceil(size / half))


def aligned(product: Gemm, assumed: Assumptions) -> Column:
    """How much slower a product of heads is whose widths are no multiple of 16 bytes: it does without the matrix units.

    Seen at 2022 software in heads of 108 (BLOOM's search), where other products are padded or aligned by their shapes.

    Parameters
    ----------
    product : Gemm
        The product.
    assumed : Assumptions
        The multiple, and the factor.

    Returns
    -------
    Column
        1 or the factor, a column over plans.
    """
    if product.layout != "batched" or not assumed.aligned_elements:
        return 1.0
    whole = (product.k % assumed.aligned_elements == 0) & (product.n % assumed.aligned_elements == 0)
    return np.where(whole, 1.0, assumed.misaligned_slowdown)


def burst(seconds: Column, gpu: Accelerator, assumed: Assumptions) -> Column:
    """Time of products on an accelerator that was at rest: at its burst rate at first, then as the power limit allows.

    Parameters
    ----------
    seconds : Column
        Time at the sustained rate [s].
    gpu : Accelerator
        Supplies both shares; without a burst rate nothing changes.
    assumed : Assumptions
        How long the burst lasts.

    Returns
    -------
    Column
        The time [s].
    """
    if gpu.matrix_burst is None or gpu.matrix_sustained is None:
        return seconds
    more = gpu.matrix_burst / gpu.matrix_sustained - 1
    return seconds / (1 + more * np.exp(-seconds / assumed.burst_seconds))


def attention(flops: Column, one: Fused, gpu: Accelerator, peak: Column, assumed: Assumptions) -> Column:
    """Time of fused attention after its launch: max(X + ρL, L), with X = F/A (1 + (s₀ + T/2)/s) (1 + d₀/d) / (1 + d₀/128).

    A row of s keys worked on costs s₀ more to start and end, and half a tile T where a mask cuts it. The exponentials of the scores
    take the same time whatever the width d of the heads. The S multiprocessors share the tiles of queries; the last to end has the
    longest of them, of time S L.

    Parameters
    ----------
    flops : Column
        Arithmetic of the products that are not skipped, F [FLOP].
    one : Fused
        Shapes.
    gpu : Accelerator
        Supplies the rates, the tile of queries, and the number of multiprocessors S; without it L is left out.
    peak : Column
        Peak of the matrix units [FLOP/s].
    assumed : Assumptions
        Which kernel runs, s₀, ρ, T and d₀.

    Returns
    -------
    Column
        Time, a column over plans [s].
    """
    rate = gpu.fused_attention(assumed.attention_kernel, assumed.attention_efficiency) * peak  # A
    tile: Column = assumed.attention_tile
    if one.backward:
        rate = rate * (assumed.attention_backward if gpu.attention_backward is None else gpu.attention_backward)
        rate = rate / np.where(one.width > HEAD, assumed.attention_wide_backward, 1)
    elif gpu.attention_tile is not None:
        tile = gpu.attention_tile
    ideal = flops / rate * (1 + assumed.attention_softmax / one.width) / (1 + assumed.attention_softmax / HEAD)
    edge = tile / 2 * np.sign(1 - one.share)
    seconds = ideal * (1 + (one.starts * assumed.attention_start + edge) / (one.share * one.keys))
    if gpu.processors is None:
        return seconds
    longest = ideal * np.minimum(1 / one.share, LONGEST) * gpu.processors * tile / one.queries
    return np.maximum(seconds + assumed.attention_tail * longest, longest)
