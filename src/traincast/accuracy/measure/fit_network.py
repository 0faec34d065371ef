"""Latency and bandwidth of a network, out of collectives that were timed on it, by the engine's own formulas."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from traincast.accuracy.measure import predict as predicted
from traincast.accuracy.measure.bounded_fit import Values
from traincast.accuracy.measure.fit_accelerator import SECONDS_BOUNDS, SHARE_BOUNDS, Figures
from traincast.accuracy.measure.tables import Row, group_placement
from traincast.core.quantities import Floats
from traincast.core.system import System, Tier

BUS_FACTOR: Final = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "all2all": 1.0}  # times (n - 1)/n of the size
ONE_PROTOCOL: Final = {
    "efficiency": "bandwidth is what all-reduces reach",
    "launch": "part of its hops with gloo",
    "simple_latency": "gloo has one protocol, which latency is of: longer, so that no other is chosen",
    "ll_bandwidth": "gloo has one protocol: all of the bandwidth",
}
SIMPLE_HOP_RATIO: Final = 1.5  # hop of the protocol for large messages to that of the other: never the faster one
FACTOR_FIELDS: Final = {
    "allgather": "all_gather_factor",
    "reducescatter": "reduce_scatter_factor",
    "all2all": "all_to_all_factor",
    "p2p": "message_factor",
}


def fit_tiers(it: Figures) -> list[Values]:
    """Figures of the network inside a node, and of that between nodes where there are several.

    With NCCL all of what `traincast.times.nccl` knows of a tier. Gloo has one protocol: alpha and beta of its all-reduce, and
    what other operations take relative to that (`Figures.software`).
    """
    rows = it.of("collectives")
    if not rows:
        return []
    inside = [row for row in rows if group_placement(row.task, it.about)["nodes"] == 1]
    across = [row for row in rows if row not in inside]
    found = [_fit_tier(it, inside, [])] if inside else []
    if across:
        found.append(_fit_tier(it, across, found or [_free_inner_tier(across, it)]))
    return found


def _free_inner_tier(rows: Sequence[Row], it: Figures) -> Values:
    """A network nobody uses: each node has one rank."""
    return {"bandwidth": _peak_bus_bandwidth(rows, it), "efficiency": 1.0, "latency": 0.0}


def _peak_bus_bandwidth(rows: Sequence[Row], it: Figures) -> float:
    """The largest bus bandwidth seen [byte/s]."""
    return max(_link_bytes(row, it) / row.at(it.percent) for row in rows)


def _link_bytes(row: Row, it: Figures) -> float:
    """What a link of a ring carries for an operation; of a message all of it [byte]."""
    n = group_placement(row.task, it.about)["ranks"]
    return (BUS_FACTOR[row.task.op] * (n - 1) / n if row.task.op in BUS_FACTOR else 1.0) * row.task.sizes[0]


def _fit_tier(it: Figures, rows: Sequence[Row], inner: Sequence[Values]) -> Values:
    """Figures of one tier, those inside it known."""
    main = [row for row in rows if row.task.op in BUS_FACTOR]
    if it.about["backend"] == "gloo":
        return _fit_gloo_tier(it, rows, inner)
    peak, least = _peak_bus_bandwidth(main, it), min(row.at(it.percent) for row in main)
    start = {"efficiency": 0.7, "launch": least / 2, "latency": least / 4, "simple_latency": least, "ll_bandwidth": peak / 2}
    bounds = dict.fromkeys(("launch", "latency", "simple_latency"), SECONDS_BOUNDS) | {
        "efficiency": SHARE_BOUNDS,
        "ll_bandwidth": (peak / 1e3, peak),
    }

    def predict(values: Values) -> Floats:
        system = system_of(it, [*inner, {"bandwidth": peak} | values])
        return predicted.collectives(main, system, it.assumed(), it.about)

    return {"bandwidth": peak} | it.fitted(main, predict, start, bounds)


def _fit_gloo_tier(it: Figures, rows: Sequence[Row], inner: Sequence[Values]) -> Values:
    """Alpha of all operations, beta of all-reduces, and the data that other operations move relative to a ring with those."""
    carried, times = np.array([_link_bytes(row, it) for row in rows]), it.seconds(rows)
    factors = [FACTOR_FIELDS[op] for op in FACTOR_FIELDS if not inner and any(row.task.op == op for row in rows)]

    def predict(values: Values) -> Floats:
        software = {name: values[name] for name in factors}
        system = system_of(it, [*inner, one_protocol({name: value for name, value in values.items() if name not in factors})])
        return predicted.collectives(rows, system, replace(it.assumed(), **software), it.about)  # type: ignore[arg-type]

    start = {"bandwidth": float(np.max(carried / times)), "latency": float(np.min(times))} | dict.fromkeys(factors, 1.0)
    tier = it.fitted(rows, predict, start, {"latency": SECONDS_BOUNDS} | dict.fromkeys(factors, (0.02, 50.0)))
    it.software |= {name: tier.pop(name) for name in factors}
    it.taken |= ONE_PROTOCOL
    return one_protocol(tier)


def one_protocol(tier: Values) -> Values:
    """A tier whose only protocol is that of low latency, with all of the bandwidth; what it costs to start is part of its hops."""
    hop, reached = tier["latency"], tier["bandwidth"]
    return tier | {"efficiency": 1.0, "launch": 0.0, "simple_latency": SIMPLE_HOP_RATIO * hop, "ll_bandwidth": reached}


def system_of(it: Figures, figures: Sequence[Values]) -> System:
    """The machine with figures of its tiers; what was not timed is taken to be as the last."""
    nodes, ranks = int(it.about["nodes"]), int(it.about["ranks"])
    inner = Tier(name="node", size=max(ranks // nodes, 1), **figures[0])  # type: ignore[arg-type]  # names of figures
    outer = Tier(name="between nodes", **figures[-1])  # type: ignore[arg-type]
    return System(name="measured", accelerator=it.gpu(), tiers=(inner, outer))
