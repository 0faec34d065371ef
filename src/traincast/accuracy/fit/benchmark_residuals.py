"""Timed collectives and matrix products of one's own as residuals of the constants of a system."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from traincast.accuracy.fit.kernel_benchmarks import ALONE, timed
from traincast.accuracy.fit.parameters import Parameter, Setting, touching_system
from traincast.accuracy.fit.residuals import Samples
from traincast.accuracy.logs import Collective, Gemm
from traincast.catalog.software_stacks import USUAL
from traincast.core.assumptions import Assumptions
from traincast.core.precision import PRECISIONS
from traincast.core.quantities import Floats
from traincast.core.system import Accelerator, System
from traincast.operations.operation import CollectiveKind, PassCount
from traincast.operations.operation import Gemm as Product
from traincast.times.collectives import collective
from traincast.times.process_groups import Group

KINDS: Final[dict[str, CollectiveKind]] = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "all2all": "all-to-all",
}
RECIPES: Final = {"fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "fp32": "fp32", "tf32": "fp32"}  # of a type; bf16 of any other
MESSAGE: Final[dict[str, CollectiveKind]] = {"p2p": "send"}  # of one rank at a time
NOISE: Final = {"collective": 0.10, "product": 0.05}  # relative error expected of a time


def collective_seconds(system: System, assumed: Assumptions, seen: Sequence[Collective]) -> Floats:
    """Predicted times of timed collectives, started one after the other, shape (rows,) [s]."""
    alone = replace(assumed, collective_seconds=0.0, collective_launch=1.0)
    seconds = np.empty(len(seen))
    for op, rows in _alike([one.op for one in seen]).items():
        g = np.array([float(seen[i].gpus_per_node) for i in rows])
        n = np.array([float(seen[i].ranks) for i in rows])
        near = tuple(np.minimum(n, g * (float(tier.size or 1) / system.fast_domain)) for tier in system.tiers[:-1])
        V = np.array([seen[i].size_bytes for i in rows])
        seconds[rows] = collective((KINDS | MESSAGE)[op], V, Group(n, near), system, alone)
    return seconds


def product_seconds(gpu: Accelerator, assumed: Assumptions, seen: Sequence[Gemm]) -> Floats:
    """Predicted times of timed products, each again and again, shape (rows,) [s]."""
    alone = replace(assumed, burst_seconds=ALONE.burst_seconds, inputs_exposed=ALONE.inputs_exposed)
    seconds = np.empty(len(seen))
    for dtype, rows in _alike([one.dtype for one in seen]).items():
        m, n, k, batch = (np.array([float(getattr(seen[i], name)) for i in rows]) for name in ("m", "n", "k", "batch"))
        recipe = PRECISIONS[RECIPES.get(dtype, "bf16")]
        written = batch * 2 * recipe.width * m * n
        product = Product(m, k, n, batch, low=recipe.casts > 0)
        work = PassCount((product,), batch * 2 * recipe.operand * (m * k + k * n) + written, written=written)
        seconds[rows] = timed(work, gpu, alone, recipe)
    return seconds


def _alike(names: Sequence[str]) -> dict[str, list[int]]:
    """Places of each name."""
    return {name: [i for i, one in enumerate(names) if one == name] for name in dict.fromkeys(names)}


def collectives(system: System, seen: Sequence[Collective], parameters: Sequence[Parameter]) -> Samples:
    """Timed collectives as residuals."""

    def predicted(setting: Setting) -> Floats:
        return collective_seconds(setting.system(system), setting.assumed(USUAL, system), seen)

    touching = tuple(i for i in touching_system(parameters, system) if parameters[i].home == "network")
    measured = np.array([one.time_us * 1e-6 for one in seen])
    return Samples(parameters, measured, predicted, touching, NOISE["collective"], [("collective", one.op) for one in seen])


def products(system: System, seen: Sequence[Gemm], parameters: Sequence[Parameter]) -> Samples:
    """Timed matrix products as residuals."""

    def predicted(setting: Setting) -> Floats:
        return product_seconds(setting.system(system).accelerator, setting.assumed(USUAL, system), seen)

    touching = tuple(i for i in touching_system(parameters, system) if parameters[i].home == "accelerator")
    measured = np.array([one.time_us * 1e-6 for one in seen])
    return Samples(parameters, measured, predicted, touching, NOISE["product"], [("product", one.dtype) for one in seen])
