"""Predicted times of single passes, and of timed collectives and matrix products."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from traincast.accuracy.logs import Collective, Gemm
from traincast.core import PRECISIONS, Accelerator, Assumptions, Column, Floats, Precision, System
from traincast.operations import CollectiveKind, PassCount
from traincast.operations import Gemm as Product
from traincast.times import Group, arithmetic_seconds, collective, exposed_memory

KINDS: Final[dict[str, CollectiveKind]] = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "all2all": "all-to-all",
}
SEND_KINDS: Final[dict[str, CollectiveKind]] = {"p2p": "send"}  # point to point
# else bf16
RECIPES: Final = {"fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "fp32": "fp32", "tf32": "fp32"}
REPEATED_KERNEL: Final[dict[str, float]] = {  # assumptions for one kernel in a loop
    "kernels.groups_experts": True,  # products of experts are timed as one kernel
    "kernels.burst_seconds": 0.3e-3,  # [s] from rest; fitted to kernels on B200: 0.2 to 0.45
    "kernels.inputs_exposed": 0,  # caches hold the operands; fitted: 0.03
}
REPEATED_COLLECTIVE: Final = {"collectives.skew_seconds": 0.0, "collectives.launch_share": 1.0}


def pass_seconds(work: PassCount, gpu: Accelerator, assumed: Assumptions, recipe: Precision) -> Column:
    """Return the time of one pass without communication: arithmetic and exposed memory traffic [s]."""
    compute = arithmetic_seconds(work, gpu, assumed, recipe)
    return compute + exposed_memory(work, compute, gpu, assumed)


def collective_seconds(system: System, assumed: Assumptions, timings: Sequence[Collective]) -> Floats:
    """Predict the times of timed collectives, run one after the other, shape (rows,) [s]."""
    repeated = assumed.with_values(REPEATED_COLLECTIVE)
    seconds = np.empty(len(timings))
    for op, rows in _rows_by_name([row.op for row in timings]).items():
        g = np.array([float(timings[i].gpus_per_node) for i in rows])
        n = np.array([float(timings[i].ranks) for i in rows])
        near = tuple(np.minimum(n, g * tier.fast_domains(system.fast)) for tier in system.tiers[:-1])
        V = np.array([timings[i].size_bytes for i in rows])
        seconds[rows] = collective((KINDS | SEND_KINDS)[op], V, Group(n, near), system, repeated)
    return seconds


def product_seconds(gpu: Accelerator, assumed: Assumptions, timings: Sequence[Gemm]) -> Floats:
    """Predict the times of timed matrix products, each repeated, shape (rows,) [s]."""
    repeated = assumed.with_values(REPEATED_KERNEL)
    seconds = np.empty(len(timings))
    for dtype, rows in _rows_by_name([row.dtype for row in timings]).items():
        m, n, k, batch = (
            np.array([float(getattr(timings[i], name)) for i in rows]) for name in ("m", "n", "k", "batch")
        )
        recipe = PRECISIONS[RECIPES.get(dtype, "bf16")]
        written = batch * 2 * recipe.width * m * n
        product = Product(m, k, n, batch, low=recipe.casts > 0)
        work = PassCount((product,), batch * 2 * recipe.operand * (m * k + k * n) + written, written=written)
        seconds[rows] = pass_seconds(work, gpu, repeated, recipe)
    return seconds


def _rows_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    return {name: [i for i, other in enumerate(names) if other == name] for name in dict.fromkeys(names)}
