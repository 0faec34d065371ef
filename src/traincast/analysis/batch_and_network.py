"""Gain of other micro-batch and global batch sizes, and the bandwidth between nodes that a plan needs.

Every figure is an estimate: variants of the plan, and of the network, are evaluated as columns.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Final

import numpy as np

from traincast.core import Doc, Floats, InputError, Plan, Result
from traincast.step import Estimate, broken_rules, estimate_columns

MICRO_BATCH_FACTORS: Final = (0.5, 2, 4, 8)  # micro-batches tried, relative to the plan's
GLOBAL_BATCH_FACTORS: Final = (0.5, 2, 4)  # global batches tried, relative to the plan's
NETWORK_SHARE: Final = 0.05  # of the step that may wait for bandwidth between nodes
MAX_BANDWIDTH_FACTOR: Final = 2.0**20  # the search runs from the machine's bandwidth over it to that times it
BANDWIDTHS_PER_ROUND: Final = 49  # one column; each of three rounds narrows the bracket to one step of it
UNLIMITED_BANDWIDTH_FACTOR: Final = 1e12  # only the latency is left


class BatchSizeOption(Result, kw_only=True):
    """A micro-batch and global batch size, and the step they lead to."""

    mbs: Annotated[int, Doc("micro-batch", "sequence")]
    gbs: Annotated[int, Doc("global batch", "sequence")]
    accumulation: Annotated[int, Doc("micro-batches of a replica in a step")]
    gain: Annotated[float, Doc("relative change in tokens/s")]
    bubble: Annotated[float, Doc("share of the step in the pipeline bubble")]
    update: Annotated[float, Doc("share paid once per step: optimizer and data-parallel communication")]
    memory_bytes: Annotated[float, Doc("memory of the fullest rank", "byte")]
    fits: Annotated[bool, Doc("whether that is within the accelerator's memory")]


def batches(est: Estimate) -> list[BatchSizeOption]:
    """Estimate other micro-batches at the same global batch, and more or less gradient accumulation.

    The plan's own sizes come first, then micro-batches and global batches, ascending; those that the rules
    allow.
    """
    plan = est.plan
    current = np.array([float(plan.mbs)])
    other_mbs = np.array([plan.mbs * factor for factor in MICRO_BATCH_FACTORS if plan.mbs * factor % 1 == 0])
    other_gbs = [est.gbs * factor for factor in GLOBAL_BATCH_FACTORS if est.gbs * factor % 1 == 0]
    sizes = [(est.gbs, current), (est.gbs, other_mbs), *((int(gbs), current) for gbs in other_gbs)]
    return [option for gbs, mbs in sizes for option in _valid_options(est, plan, gbs, mbs)]


def _valid_options(est: Estimate, plan: Plan, gbs: int, mbs: Floats) -> Iterator[BatchSizeOption]:
    """Yield the micro-batch sizes that break no rule, estimated as one column."""
    broken = broken_rules(est.model, replace(plan.columns(), mbs=mbs), gbs, est.system.fast_domain)
    invalid = np.zeros(mbs.shape, bool)
    for rows in broken.values():
        invalid |= rows
    mbs = mbs[~invalid]
    if not len(mbs):
        return
    columns = replace(plan.columns(), mbs=mbs)
    others = estimate_columns(est.model, est.system, columns, gbs, est.assumptions)
    time = others.step_seconds
    parts = others.breakdown
    figures = {
        "gain": gbs / time * est.step_seconds / est.gbs - 1,
        "bubble": parts["bubble"] / time,
        "update": (parts["optimizer_step"] + parts["dp_comm"]) / time,
        "memory_bytes": others.memory_bytes,
    }
    for i, size in enumerate(mbs):
        row = {name: float(np.broadcast_to(column, mbs.shape)[i]) for name, column in figures.items()}
        fits = bool(row["memory_bytes"] <= est.system.accelerator.visible_bytes)
        accumulation = int(gbs / plan.dp / size)
        yield BatchSizeOption(mbs=int(size), gbs=gbs, accumulation=accumulation, fits=fits, **row)


class Network(Result, kw_only=True):
    """The bandwidth between nodes (fast domains) that a plan needs; all outer tiers are scaled alike."""

    allowed: Annotated[float, Doc("share of the step that may wait for bandwidth between nodes")]
    share: Annotated[float, Doc("share of the step that waits with the network there is")]
    per_node: Annotated[float, Doc("peak bandwidth of a node", "byte/s")]
    per_gpu: Annotated[float, Doc("peak bandwidth of a GPU", "byte/s")]
    needed_per_node: Annotated[
        float, Doc("least bandwidth that is enough; 0 if hardly any is needed", "byte/s")
    ]
    needed_per_gpu: Annotated[float, Doc("the same of a GPU", "byte/s")]


def network(est: Estimate, share: float = NETWORK_SHARE) -> Network:
    """Find the least bandwidth between nodes with which a plan is not bound by the network.

    The time that waits is the step time less that with a network of the same latency and unlimited bandwidth.
    Bandwidths are columns over machines; two further rounds refine the bracket around the least sufficient
    one.
    """
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise InputError("network share", [f"{share!r}: must be between 0 and 1, such as {NETWORK_SHARE}"])
    node = est.system.fast_domain
    outer = est.system.tiers[1]
    per_gpu = float(outer.bandwidth * outer.ports)
    current_share = waiting_share(est, np.ones(1))[0]
    factor = 0.0 if est.plan.gpus <= node else _least_bandwidth_factor(est, share)
    return Network(
        allowed=share,
        share=float(current_share),
        per_node=per_gpu * node,
        per_gpu=per_gpu,
        needed_per_node=per_gpu * node * factor,
        needed_per_gpu=per_gpu * factor,
    )


def waiting_share(est: Estimate, factors: Floats) -> Floats:
    """Return the share of the step that waits for bandwidth between nodes scaled by each factor."""
    column = np.append(factors, UNLIMITED_BANDWIDTH_FACTOR)[:, None]
    tiers = list(enumerate(est.system.tiers))[1:]
    machines = est.system.with_figures(
        {f"network.{i}.bandwidth": tier.bandwidth * column for i, tier in tiers}
    )
    estimates = estimate_columns(est.model, machines, est.plan.columns(), est.gbs, est.assumptions)
    time = np.broadcast_to(estimates.step_seconds, column.shape)[:, 0]
    share: Floats = np.maximum(1 - time[-1] / time[:-1], 0.0)
    return share


def _least_bandwidth_factor(est: Estimate, share: float) -> float:
    """Return the least bandwidth factor with which at most a share of the step waits; 0 for hardly any."""
    low = 1 / MAX_BANDWIDTH_FACTOR
    high = MAX_BANDWIDTH_FACTOR
    for _ in range(3):
        factors = np.geomspace(low, high, BANDWIDTHS_PER_ROUND)
        enough = waiting_share(est, factors) <= share
        if enough[0] and low == 1 / MAX_BANDWIDTH_FACTOR:
            return 0.0
        first = int(np.argmax(enough)) if enough.any() else len(factors) - 1
        low = factors[max(first - 1, 0)]
        high = factors[first]
    return float(high)


def best_batch(rows: list[BatchSizeOption]) -> BatchSizeOption:
    """Return the fastest micro-batch that fits at the plan's global batch; the plan's own where none does."""
    fitting = [option for option in rows if option.gbs == rows[0].gbs and option.fits]
    return max(fitting, key=lambda option: option.gain, default=rows[0])
