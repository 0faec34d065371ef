"""Fit of a network's latency and bandwidth to timed collectives, by the engine's own formulas."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from traincast.accuracy.measure import predict as predicted
from traincast.accuracy.measure.bounded_fit import Values
from traincast.accuracy.measure.fit_accelerator import SECONDS_BOUNDS, SHARE_BOUNDS, Figures
from traincast.accuracy.measure.tables import Row, group_placement
from traincast.core.quantities import Floats
from traincast.core.system import System, Tier

BUS_FACTOR: Final = {
    "allreduce": 2.0,
    "allgather": 1.0,
    "reducescatter": 1.0,
    "all2all": 1.0,
}  # bus bytes over (n - 1)/n of the size, as nccl-tests count
ONE_PROTOCOL: Final = {
    "efficiency": "bandwidth is what all-reduces reach",
    "launch": "part of its hops with gloo",
    "simple_latency": "gloo has one protocol, which latency is of: longer, so that no other is chosen",
    "ll_bandwidth": "gloo has one protocol: all of the bandwidth",
}
SIMPLE_HOP_RATIO: Final = 1.5  # Simple hop over LL hop, so large that Simple is never chosen
FACTOR_FIELDS: Final = {
    "allgather": "collectives.all_gather_factor",
    "reducescatter": "collectives.reduce_scatter_factor",
    "all2all": "collectives.all_to_all_factor",
    "p2p": "collectives.message_factor",
}


def fit_tiers(fit: Figures) -> list[Values]:
    """Fit the network inside a node and, if there are several nodes, the network between them [SI].

    With NCCL every field of a tier that `traincast.times.nccl` uses is fitted. Gloo has one protocol: latency and bandwidth are
    those of its all-reduce, and the factors of the other operations go to `Figures.software`.
    """
    rows = fit.of("collectives")
    if not rows:
        return []
    inside = [row for row in rows if group_placement(row.task, fit.about)["nodes"] == 1]
    across = [row for row in rows if row not in inside]
    tiers = [_fit_tier(fit, inside, [])] if inside else []
    if across:
        tiers.append(_fit_tier(fit, across, tiers or [_free_inner_tier(across, fit)]))
    return tiers


def _free_inner_tier(rows: Sequence[Row], fit: Figures) -> Values:
    """Return a tier without cost, for nodes with one rank each."""
    return {"bandwidth": _peak_bus_bandwidth(rows, fit), "efficiency": 1.0, "latency": 0.0}


def _peak_bus_bandwidth(rows: Sequence[Row], fit: Figures) -> float:
    """Return the largest bus bandwidth seen [byte/s]."""
    return max(_link_bytes(row, fit) / row.at(fit.percent) for row in rows)


def _link_bytes(row: Row, fit: Figures) -> float:
    """Return the bytes that each link of a ring carries; for p2p the whole message [byte]."""
    n = group_placement(row.task, fit.about)["ranks"]
    return (BUS_FACTOR[row.task.op] * (n - 1) / n if row.task.op in BUS_FACTOR else 1.0) * row.task.sizes[0]


def _fit_tier(fit: Figures, rows: Sequence[Row], inner: Sequence[Values]) -> Values:
    """Fit one tier, given the tiers inside it."""
    collective_rows = [row for row in rows if row.task.op in BUS_FACTOR]
    if fit.about["backend"] == "gloo":
        return _fit_gloo_tier(fit, rows, inner)
    peak, shortest = (
        _peak_bus_bandwidth(collective_rows, fit),
        min(row.at(fit.percent) for row in collective_rows),
    )
    start = {
        "efficiency": 0.7,
        "launch": shortest / 2,
        "latency": shortest / 4,
        "simple_latency": shortest,
        "ll_bandwidth": peak / 2,
    }
    bounds = dict.fromkeys(("launch", "latency", "simple_latency"), SECONDS_BOUNDS) | {
        "efficiency": SHARE_BOUNDS,
        "ll_bandwidth": (peak / 1e3, peak),
    }

    def predict(values: Values) -> Floats:
        system = system_of(fit, [*inner, {"bandwidth": peak} | values])
        return predicted.collectives(collective_rows, system, fit.assumed(), fit.about)

    return {"bandwidth": peak} | fit.fitted(collective_rows, predict, start, bounds)


def _fit_gloo_tier(fit: Figures, rows: Sequence[Row], inner: Sequence[Values]) -> Values:
    """Fit latency, bandwidth of all-reduce, and the traffic of the other operations relative to a ring."""
    carried, times = np.array([_link_bytes(row, fit) for row in rows]), fit.seconds(rows)
    factors = [
        FACTOR_FIELDS[op] for op in FACTOR_FIELDS if not inner and any(row.task.op == op for row in rows)
    ]

    def predict(values: Values) -> Floats:
        software = {name: values[name] for name in factors}
        system = system_of(
            fit,
            [*inner, one_protocol({name: value for name, value in values.items() if name not in factors})],
        )
        return predicted.collectives(rows, system, fit.assumed(software), fit.about)

    start = {"bandwidth": float(np.max(carried / times)), "latency": float(np.min(times))} | dict.fromkeys(
        factors, 1.0
    )
    tier = fit.fitted(
        rows, predict, start, {"latency": SECONDS_BOUNDS} | dict.fromkeys(factors, (0.02, 50.0))
    )
    fit.software |= {name: tier.pop(name) for name in factors}
    fit.taken |= ONE_PROTOCOL
    return one_protocol(tier)


def one_protocol(tier: Values) -> Values:
    """Return a tier whose only protocol is LL with the full bandwidth; the start-up is part of its hops."""
    hop_seconds, bandwidth = tier["latency"], tier["bandwidth"]
    return tier | {
        "efficiency": 1.0,
        "launch": 0.0,
        "simple_latency": SIMPLE_HOP_RATIO * hop_seconds,
        "ll_bandwidth": bandwidth,
    }


def system_of(fit: Figures, figures: Sequence[Values]) -> System:
    """Return the machine with its tiers; a tier that was not timed repeats the last one."""
    nodes, ranks = int(fit.about["nodes"]), int(fit.about["ranks"])
    inner = Tier(name="node", size=max(ranks // nodes, 1), **figures[0])  # type: ignore[arg-type]  # names of figures
    outer = Tier(name="between nodes", **figures[-1])  # type: ignore[arg-type]
    return System(name="measured", accelerator=fit.gpu(), tiers=(inner, outer))
