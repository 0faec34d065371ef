"""Timed collectives and matrix products of one's own as residuals of the constants of a system."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from traincast.accuracy.evidence import Samples
from traincast.accuracy.kernel_benchmarks import ALONE, timed
from traincast.accuracy.logs import Collective, Gemm
from traincast.accuracy.parameters import Parameter, Setting, touching_system
from traincast.columns import Floats
from traincast.hardware import System
from traincast.operations.base import CollectiveKind, Pass
from traincast.operations.base import Gemm as Product
from traincast.recipes import PRECISIONS
from traincast.stacks import USUAL
from traincast.times.collectives import collective
from traincast.times.placement import Group

KINDS: Final[dict[str, CollectiveKind]] = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "all2all": "all-to-all",
}
LOW: Final = {"fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}  # types of products and the recipes that use them
NOISE: Final = {"collective": 0.10, "product": 0.05}  # relative error expected of a time


def collectives(system: System, seen: Sequence[Collective], parameters: Sequence[Parameter]) -> Samples:
    """Timed collectives as residuals."""
    by = {op: [i for i, one in enumerate(seen) if one.op == op] for op in dict.fromkeys(one.op for one in seen)}

    def predicted(setting: Setting) -> Floats:
        machine, assumed = (
            setting.system(system),
            replace(setting.assumed(USUAL, system), collective_seconds=0.0, collective_launch=1.0),
        )
        seconds = np.empty(len(seen))
        for op, rows in by.items():
            g = np.array([float(seen[i].gpus_per_node) for i in rows])
            n = np.array([float(seen[i].ranks) for i in rows])
            near = tuple(np.minimum(n, g * (float(tier.size or 1) / system.fast_domain)) for tier in system.tiers[:-1])
            V = np.array([seen[i].size_bytes for i in rows])
            seconds[rows] = collective(KINDS[op], V, Group(n, near), machine, assumed)
        return seconds

    touching = tuple(i for i in touching_system(parameters, system) if parameters[i].home == "network")
    measured = np.array([one.time_us * 1e-6 for one in seen])
    return Samples(parameters, measured, predicted, touching, NOISE["collective"], [("collective", one.op) for one in seen])


def products(system: System, seen: Sequence[Gemm], parameters: Sequence[Parameter]) -> Samples:
    """Timed matrix products as residuals."""
    by = {dtype: [i for i, one in enumerate(seen) if one.dtype == dtype] for dtype in dict.fromkeys(one.dtype for one in seen)}

    def predicted(setting: Setting) -> Floats:
        gpu = setting.system(system).accelerator
        assumed = replace(setting.assumed(USUAL, system), burst_seconds=ALONE.burst_seconds, inputs_exposed=ALONE.inputs_exposed)
        seconds = np.empty(len(seen))
        for dtype, rows in by.items():
            m, n, k, batch = (np.array([float(getattr(seen[i], name)) for i in rows]) for name in ("m", "n", "k", "batch"))
            recipe = PRECISIONS[LOW.get(dtype, "bf16")]
            written = batch * 2 * m * n
            product = Product(m, k, n, batch, low=dtype in LOW)
            work = Pass((product,), batch * 2 * recipe.operand * (m * k + k * n) + written, written=written)
            seconds[rows] = timed(work, gpu, assumed, recipe)
        return seconds

    touching = tuple(i for i in touching_system(parameters, system) if parameters[i].home == "accelerator")
    measured = np.array([one.time_us * 1e-6 for one in seen])
    return Samples(parameters, measured, predicted, touching, NOISE["product"], [("product", one.dtype) for one in seen])
