"""What a larger micro-batch or more accumulation would gain, and the bandwidth between nodes that a plan needs.

Every figure is the estimator's own: neighbours of the plan and faster or slower networks are estimated as columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from traincast.analysis.per_parameter import one_plan
from traincast.core.errors import InputError
from traincast.core.plan import Plan
from traincast.core.quantities import Floats
from traincast.step.estimate import Estimate, estimate_columns
from traincast.step.validity import broken_rules

MICRO: Final = (0.5, 2, 4, 8)  # micro-batches tried, relative to the plan's
GLOBAL: Final = (0.5, 2, 4)  # global batches tried, relative to the plan's
NETWORK_SHARE: Final = 0.05  # of the step that may wait for bandwidth between nodes
FACTORS: Final = 2.0**20  # bandwidths are looked for between that of the machine divided and multiplied by it
POINTS: Final = 49  # bandwidths looked at in one go; the bracket shrinks by as many, three times
UNLIMITED: Final = 1e12  # a network so many times as fast takes no time but latency


@dataclass(frozen=True, kw_only=True)
class BatchSizeOption:
    """A micro-batch and a global batch, and what a step with them is like.

    Parameters
    ----------
    mbs, gbs, accumulation : int
        Micro-batch and global batch [sequences], and micro-batches of a step.
    gain : float
        Tokens in a second relative to the plan as it is.
    bubble, update : float
        Shares of the step: pipeline bubble; what there is once in a step, optimizer and data-parallel communication.
    memory_bytes : float
        Memory of the fullest rank [byte].
    fits : bool
        Whether that is within the accelerator's memory.
    """

    mbs: int
    gbs: int
    accumulation: int
    gain: float
    bubble: float
    update: float
    memory_bytes: float
    fits: bool


def batches(est: Estimate) -> list[BatchSizeOption]:
    """Other micro-batches at the same global batch, and more or less gradient accumulation at the same micro-batch.

    Parameters
    ----------
    est : Estimate
        Of one plan.

    Returns
    -------
    list of BatchSizeOption
        The plan's own first, then micro-batches and global batches, ascending; those that the rules allow.
    """
    plan = one_plan(est)
    own = np.array([float(plan.mbs)])
    sizes = np.array([plan.mbs * factor for factor in MICRO if plan.mbs * factor % 1 == 0])
    more = [(int(est.gbs * factor), own) for factor in GLOBAL if est.gbs * factor % 1 == 0]
    return [one for gbs, mbs in ((est.gbs, own), (est.gbs, sizes), *more) for one in _batches(est, plan, gbs, mbs)]


def _batches(est: Estimate, plan: Plan, gbs: int, mbs: Floats) -> Iterator[BatchSizeOption]:
    """Estimates of the micro-batches that the rules allow, in one go."""
    broken = broken_rules(est.model, replace(plan.columns(), mbs=mbs), gbs, est.system.fast_domain).values()
    wrong = np.zeros(mbs.shape, bool)
    for rows in broken:
        wrong = wrong | rows
    mbs = mbs[~wrong]
    if not len(mbs):
        return
    other = estimate_columns(est.model, est.system, replace(plan.columns(), mbs=mbs), gbs, est.assumptions)
    time, used = (np.broadcast_to(column, mbs.shape) for column in (other.step_seconds, other.memory_bytes))
    parts = {name: np.broadcast_to(column, mbs.shape) for name, column in other.breakdown.items()}
    for i, size in enumerate(mbs):
        yield BatchSizeOption(
            mbs=int(size),
            gbs=gbs,
            accumulation=int(gbs / plan.dp / size),
            gain=float(gbs / time[i] * est.step_seconds / est.gbs) - 1,
            bubble=float(parts["bubble"][i] / time[i]),
            update=float((parts["optimizer_step"][i] + parts["dp_comm"][i]) / time[i]),
            memory_bytes=float(used[i]),
            fits=bool(used[i] <= est.system.accelerator.hbm_bytes),
        )


@dataclass(frozen=True, kw_only=True)
class Network:
    """The bandwidth between nodes that a plan needs.

    Parameters
    ----------
    allowed : float
        Share of the step that may wait for bandwidth between nodes.
    share : float
        Share that does, with the network there is.
    per_node, per_gpu : float
        Peak bandwidth there is, one direction [byte/s]; a node is a fast domain.
    needed_per_node, needed_per_gpu : float
        The least with which no more than the allowed share waits, tiers further out as much faster or slower; 0 where the plan
        needs hardly any or stays inside of a node [byte/s].
    """

    allowed: float
    share: float
    per_node: float
    per_gpu: float
    needed_per_node: float
    needed_per_gpu: float


def network(est: Estimate, share: float = NETWORK_SHARE) -> Network:
    """The least bandwidth between nodes with which a plan is not bound by the network.

    What waits is the step less that of a network of the same latency without limit to its bandwidth. Bandwidths are columns over
    machines; the least that will do is found between two of them by looking closer twice.

    Parameters
    ----------
    est : Estimate
        Of one plan.
    share : float
        Share of the step that may wait.

    Returns
    -------
    Network
        What there is, and what is needed.

    Raises
    ------
    InputError
        If the share is not between 0 and 1.
    """
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise InputError("network share", [f"{share!r}: must be between 0 and 1, such as {NETWORK_SHARE}"])
    node, outer = est.system.fast_domain, est.system.tiers[1]
    there = float(outer.bandwidth * outer.ports)
    now = waiting(est, np.ones(1))[0]
    factor = 0.0 if est.plan.gpus <= node else _least(est, share)
    return Network(
        allowed=share,
        share=float(now),
        per_node=there * node,
        per_gpu=there,
        needed_per_node=there * node * factor,
        needed_per_gpu=there * factor,
    )


def waiting(est: Estimate, factors: Floats) -> Floats:
    """Share of the step that waits for bandwidth between nodes, were the network so many times as fast.

    Parameters
    ----------
    est : Estimate
        Of one plan.
    factors : array, shape (machines,)
        Bandwidth relative to the machine's, of all tiers but the innermost.

    Returns
    -------
    array, shape (machines,)
        1 - T(∞) / T(factor).
    """
    column = np.append(factors, UNLIMITED)[:, None]
    outer = {
        path: value * column
        for path, value in est.system.figures().items()
        if path.startswith("network.") and not path.startswith("network.0.") and path.endswith("bandwidth")
    }
    other = estimate_columns(est.model, est.system.with_figures(outer), one_plan(est).columns(), est.gbs, est.assumptions)
    time = np.broadcast_to(other.step_seconds, column.shape)[:, 0]
    share: Floats = np.maximum(1 - time[-1] / time[:-1], 0.0)
    return share


def _least(est: Estimate, share: float) -> float:
    """The least factor on the bandwidth with which no more than a share of the step waits; 0 where hardly any will do."""
    low, high = 1 / FACTORS, FACTORS
    for _ in range(3):
        factors = np.geomspace(low, high, POINTS)
        enough = waiting(est, factors) <= share
        if enough[0] and low == 1 / FACTORS:
            return 0.0
        first = int(np.argmax(enough)) if enough.any() else len(factors) - 1
        low, high = factors[max(first - 1, 0)], factors[first]
    return float(high)


def best_batch(rows: list[BatchSizeOption]) -> BatchSizeOption:
    """The fastest micro-batch that fits at the plan's own global batch; the plan's own where none does."""
    return max((one for one in rows if one.gbs == rows[0].gbs and one.fits), key=lambda one: one.gain, default=rows[0])
