"""Formulas of ZeRO data parallelism (Cheng et al., SIGMETRICS 2024, doi 10.1145/3639034).

Letters are the source's: l layers, b sequences, a heads, width d, sequence s, P parameters, p GPUs. Bytes are
those of 16-bit numbers. Arguments are numbers or columns.
"""

from typing import Final

import numpy as np

from traincast.core import Assumptions, Column, Floats, System
from traincast.operations import CollectiveKind
from traincast.times import Group, collective_curve

ZERO: Final = (1, 2, 3)
# k1, k2: shares of compute time in which kernels run, and of kernel time in which the transformer's run; the
# source's example.
KERNEL_SHARE: Final = 0.83
TRANSFORMER_SHARE: Final = 1 - 0.265
# In one message of ZeRO-1 and 2: DeepSpeed's reduce_bucket_size and allgather_bucket_size.
BUCKET_PARAMETERS: Final = 5e8


def activation_bytes(b: Column, s: Column, d: Column, l: Column) -> Column:
    """Return the activations that a GPU saves for backward, not recomputed: 34 b s d l [byte].

    Attention is fused. Of the source's formula, b (34 s d + 5 a s²) l, the other term is `score_bytes`.
    """
    return 34 * b * s * d * l


def score_bytes(b: Column, s: Column, a: Column, l: Column) -> Column:
    """Return what attention that is not fused, the source's, saves of its scores: 5 b a s² l [byte]."""
    return 5 * b * a * s**2 * l


def state_bytes(zero: int, P: Column, p: Column) -> Column:
    """Return weights 2 P, gradients 2 P and optimizer 12 P, sharded by stage (arXiv 1910.02054) [byte]."""
    replicated, sharded = {1: (4, 12), 2: (2, 14), 3: (0, 16)}[zero]
    return P * (replicated + sharded / p)


def collectives(zero: int) -> tuple[CollectiveKind, ...]:
    """Return the collectives that a ZeRO stage runs over all parameters in an iteration.

    ZeRO-1 all-reduces gradients and gathers parameters; ZeRO-2 reduces each gradient to its owner, point to
    point, and gathers parameters; ZeRO-3 gathers them in forward and again in backward, and reduce-scatters
    gradients.
    """
    stages: dict[int, tuple[CollectiveKind, ...]] = {
        1: ("all-reduce", "all-gather"),
        2: ("reduce", "all-gather"),
        3: ("all-gather", "all-gather", "reduce-scatter"),
    }
    return stages[zero]


def compute_seconds(
    flops: Column, rate: Column, k1: Column = KERNEL_SHARE, k2: Column = TRANSFORMER_SHARE
) -> Column:
    """Return t_compute = FLOPs/FLOPS/(k1 k2): transformer kernels, other kernels, and launch overhead [s].

    `rate` is that of the transformer's kernels [FLOP/s]; k1 and k2 are shares as `KERNEL_SHARE` and
    `TRANSFORMER_SHARE`.
    """
    return flops / rate / (k1 * k2)


def speedup(r_compute: Column, r_comm: Column, eff: Column) -> Column:
    """Return the relative speed on n GPUs, (r_compute + r_comm)/(r_compute + r_comm/eff(g→n)); 1 is linear.

    r are the shares of the iteration on g GPUs, measured or predicted; eff(g→n) is the network's efficiency
    from g to n GPUs.
    """
    return (r_compute + r_comm) / (r_compute + r_comm / eff)


def sufficient_efficiency(r_compute: Column, r_comm: Column, target: Column) -> Column:
    """Return eff(g→n) at which `speedup` is the target: r_comm/((r_compute + r_comm)/target − r_compute)."""
    return r_comm / ((r_compute + r_comm) / target - r_compute)


def network_seconds(
    zero: int, P: float, layers: int, gpus: Column, system: System, assumed: Assumptions
) -> Column:
    """Return the communication time of a ZeRO stage in an iteration on a system; 0 on one GPU [s].

    ZeRO-1 and 2 send messages of at most `BUCKET_PARAMETERS`, ZeRO-3 one for each layer. All-gather and
    reduce-scatter take half of an all-reduce, as in the source. A reduce has one owner, so ZeRO-2 needs at
    least one for each GPU. `gpus` and figures of the system may be columns that broadcast.
    """
    n = np.asarray(gpus, float)

    def seconds(kind: CollectiveKind) -> Column:
        messages = message_count(kind, zero, P, layers, n)
        curved: CollectiveKind = "reduce" if kind == "reduce" else "all-reduce"
        curve = collective_curve(curved, _group(n, system), system, assumed, data_parallel=True)
        half = 1.0 if kind in ("all-reduce", "reduce") else 0.5
        return half * messages * curve.seconds(2 * P / messages)

    return sum((seconds(kind) for kind in collectives(zero)), 0.0 * n)


def message_count(kind: CollectiveKind, zero: int, P: float, layers: int, gpus: Column) -> Column:
    """Return how many messages a collective over all parameters is sent in; of a reduce one to each owner."""
    buckets = np.ceil(P / BUCKET_PARAMETERS) if zero < 3 else float(layers)
    return np.maximum(gpus, buckets) if kind == "reduce" else buckets


def _group(n: Floats, system: System) -> Group:
    """Return all GPUs of a job as one group; each domain holds the largest divisor of the job that fits."""

    def domain_size(job: float, inner: float, size: int) -> float:
        return max(k for k in np.arange(inner, min(size, job) + 1, inner) if job % k == 0)

    near: list[Floats] = [np.ones_like(n)]
    for tier in system.tiers[:-1]:
        near.append(np.vectorize(domain_size, otypes=[float])(n, near[-1], int(tier.size or 1)))
    return Group(n, tuple(near[1:]))
