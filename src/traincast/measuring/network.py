"""Latency and bandwidth of a network, out of collectives that were timed on it, by the engine's own formulas."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from traincast.columns import Floats
from traincast.hardware import System, Tier
from traincast.measuring import predicted
from traincast.measuring.figures import SECONDS, Figures
from traincast.measuring.rows import Row, where
from traincast.measuring.searched import Values, nearest

BUS: Final = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "all2all": 1.0}  # times (n - 1)/n of the size
FACTORS: Final = {
    "allgather": "all_gather_factor",
    "reducescatter": "reduce_scatter_factor",
    "all2all": "all_to_all_factor",
    "p2p": "message_factor",
}


def tiers(it: Figures) -> list[Values]:
    """Figures of the network inside a node, and of that between nodes where there are several.

    With NCCL all of what `traincast.times.protocols` knows of a tier; gloo has one protocol, so that a collective takes
    alpha + beta V, and factors of its own for operations that are no ring (`Figures.software`).
    """
    rows = it.of("collectives")
    if not rows:
        return []
    inside = [row for row in rows if where(row.task, it.about)["nodes"] == 1]
    across = [row for row in rows if row not in inside]
    found = [_tier(it, inside, [])] if inside else []
    if across:
        found.append(_tier(it, across, found or [_ideal(across, it)]))
    return found


def _ideal(rows: Sequence[Row], it: Figures) -> Values:
    """A network nobody uses: each node has one rank."""
    return {"bandwidth": _best(rows, it), "efficiency": 1.0, "latency": 0.0}


def _best(rows: Sequence[Row], it: Figures) -> float:
    """The largest bus bandwidth seen [byte/s]."""
    rates = []
    for row in rows:
        n = where(row.task, it.about)["ranks"]
        share = BUS[row.task.op] * (n - 1) / n if row.task.op in BUS else 1.0
        rates.append(share * row.task.sizes[0] / row.at(it.percent))
    return max(rates)


def _tier(it: Figures, rows: Sequence[Row], inner: Sequence[Values]) -> Values:
    """Figures of one tier, those inside it known."""
    main = [row for row in rows if row.task.op in BUS]
    peak, least = _best(main, it), min(row.at(it.percent) for row in main)
    start = {"efficiency": 0.7, "launch": least / 2, "latency": least / 4}
    bounds = {"efficiency": (1e-2, 1.0), "launch": SECONDS, "latency": SECONDS, "simple_latency": SECONDS}
    one_protocol = it.about["backend"] == "gloo"
    if not one_protocol:
        start |= {"simple_latency": least, "ll_bandwidth": peak / 2}
        bounds["ll_bandwidth"] = (1e-3 * peak, peak)
    ops = list(dict.fromkeys(row.task.op for row in rows))
    factors = {FACTORS[op]: 1.0 for op in ops if op in FACTORS} if one_protocol and not inner else {}
    chosen = rows if factors else main

    def predict(values: Values) -> Floats:
        tier = complete({"bandwidth": peak} | {name: value for name, value in values.items() if name not in factors}, one_protocol)
        software = {name: values[name] for name in factors}
        system = system_of(it, [*inner, tier])
        return predicted.collectives(chosen, system, replace(it.assumed(), **software), it.about)  # type: ignore[arg-type]

    values = nearest(predict, it.seconds(chosen), start | factors, bounds | dict.fromkeys(factors, (0.05, 20.0)))
    it.software |= {name: values.pop(name) for name in factors}
    return complete({"bandwidth": peak} | values, one_protocol)


def complete(tier: Values, one_protocol: bool) -> Values:
    """A tier whose only protocol is that of low latency, with all of the bandwidth; as it is where there are several."""
    if not one_protocol:
        return tier
    return tier | {"simple_latency": 10 * tier["latency"], "ll_bandwidth": tier["bandwidth"] * tier["efficiency"]}


def system_of(it: Figures, figures: Sequence[Values]) -> System:
    """The machine with figures of its tiers; what was not timed is taken to be as the last."""
    nodes, ranks = int(it.about["nodes"]), int(it.about["ranks"])
    inner = Tier(name="node", size=max(ranks // nodes, 1), **figures[0])  # type: ignore[arg-type]  # names of figures
    outer = Tier(name="between nodes", **figures[-1])  # type: ignore[arg-type]
    return System(name="measured", accelerator=it.gpu(), tiers=(inner, outer))
