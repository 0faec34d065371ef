"""Fit of a machine's figures to its benchmarks, by the engine's own formulas.

Peaks are the best rates seen, or those of the data sheet if the catalogue has the accelerator. Every other
figure is the value with which the engine's own formulas come nearest to the medians. Families are fitted in
turn, each with the figures of those before it, the network last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from traincast.accuracy.logs.tables import BUS_FACTOR
from traincast.accuracy.measure.figures import Figures, Values
from traincast.accuracy.measure.tables import Row, group_placement
from traincast.core.errors import InputError

RATES: Final = {  # peak -> field of its sustained share, and the types of matmuls that run at it
    "matrix_flops": ("matrix_sustained", ("bf16", "fp16")),
    "fp32_flops": ("fp32_sustained", ("fp32", "tf32")),
    "fp8_flops": ("fp8_sustained", ("fp8",)),
}
TILES: Final = (8.0, 16.0, 32.0, 64.0, 128.0)
MATRIX_TO_VECTOR_RATE: Final = 8  # rate of matrix units over that of vector units, if unknown
MIN_UNCACHED_BYTES: Final = 2.0**26  # traffic that exceeds every GPU cache [byte]
CACHE_SIZES: Final = (2.0**20, 2.0**22, 2.0**24, 2.0**26)  # initial cache sizes that the fit tries [byte]
SHARE_BOUNDS: Final = (0.01, 1.0)
SECONDS_BOUNDS: Final = (1e-8, 1e-2)  # lowest and highest launch overhead or latency [s]
REQUIRED_FAMILIES: Final = ("products", "memory", "dispatch")
FACTOR_FIELDS: Final = {  # traffic of gloo's operations relative to a ring
    "allgather": "collectives.all_gather_factor", "reducescatter": "collectives.reduce_scatter_factor",
    "all2all": "collectives.all_to_all_factor", "p2p": "collectives.message_factor",
}  # fmt: skip
SIMPLE_HOP_RATIO: Final = 1.5  # Simple hop over LL hop, so large that Simple is never chosen
NOTHING_AHEAD: Final = "a CPU issues nothing ahead of time"
EVEN_THREADS: Final = "threads share rows of queries evenly, and begin one after another"
ONE_PROTOCOL: Final = {
    "efficiency": "bandwidth is what all-reduces reach",
    "launch": "part of its hops with gloo",
    "simple_latency": "gloo has one protocol, which latency is of: longer, so that no other is chosen",
    "ll_bandwidth": "gloo has one protocol: all of the bandwidth",
}


def fit_machine(
    about: Mapping[str, Any], rows: Sequence[Row], known: Mapping[str, float], percent: float = 50
) -> Figures:
    """Fit figures of accelerator, software and network to a percentile of the samples of benchmarks [%].

    `known` holds the figures of the accelerator in the catalogue, and is empty if it is not there.
    """
    fit = Figures(about, rows, percent, known)
    missing = [family for family in REQUIRED_FAMILIES if not fit.of(family)]
    if missing:
        raise InputError("measure", [f"no times of {family}: give a longer `budget`" for family in missing])
    _fit_peaks(fit)
    _fit_launch_overhead(fit)
    _fit_memory(fit)
    _fit_products(fit)
    if fit.of("attention"):
        _fit_attention(fit)
    if copies := fit.of("copies"):  # the bandwidth between host and device is the best rate seen
        fit.accelerator["host_bandwidth"] = max(row.task.sizes[0] / row.at(percent) for row in copies)
    fit_network(fit)
    return fit


def _products_of(fit: Figures, dtypes: Sequence[str]) -> list[Row]:
    return [row for row in fit.of("products") if row.task.dtype in dtypes]


def _fit_peaks(fit: Figures) -> None:
    """Set peaks that the catalogue does not know to the best rates seen."""
    for peak, (_, dtypes) in RATES.items():
        rates = [row.task.flops / row.at(fit.percent) for row in _products_of(fit, dtypes)]
        if rates and peak not in fit.known:
            fit.accelerator[peak] = max(rates)
    if "matrix_flops" not in {**fit.known, **fit.accelerator}:
        fit.accelerator["matrix_flops"] = fit.accelerator["fp32_flops"]
        fit.taken["matrix_flops"] = "that of products at 32 bits, for none were timed at 16"


def _fit_launch_overhead(fit: Figures) -> None:
    """Set the launch overhead; on a CPU it is all the time PyTorch spends per operation."""
    per_operation = {row.task.op: row.at(fit.percent) / row.task.sizes[0] for row in fit.of("dispatch")}
    fit.kernel_seconds = per_operation.get("kernel", min(per_operation.values()))
    if fit.host:
        forward = per_operation.get("forward", fit.kernel_seconds)
        fit.software = {
            "kernels.launch_seconds": forward,
            "host.dispatch_seconds": 0.0,
            "collectives.launch_share": 1.0,
        }
        fit.taken |= dict.fromkeys(("host.dispatch_seconds", "collectives.launch_share"), NOTHING_AHEAD)
    else:
        fit.software = {"kernels.launch_seconds": fit.kernel_seconds}
        if "forward" in per_operation:
            fit.software["host.dispatch_seconds"] = per_operation["forward"]


def _fit_memory(fit: Figures) -> None:
    """Fit the memory bandwidth; on a CPU also its caches and the rate of its vector units."""
    rows = fit.of("memory")
    traffic = np.array([row.task.nbytes for row in rows])
    rates = traffic / fit.seconds(rows)
    uncached, fastest = float(np.max(rates[traffic >= np.max(traffic) / 4])), float(np.max(rates))
    peak = fit.known.get("hbm_bandwidth")
    if peak is None:
        fit.accelerator["hbm_bandwidth"] = peak = uncached
    starts, bounds = [{"hbm_sustained": min(0.9 * uncached / peak, 1.0)}], {"hbm_sustained": SHARE_BOUNDS}
    if fit.host:
        cache = {"cache_bandwidth": fastest, "vector_flops": fastest}
        starts = [starts[0] | cache | {"cache_bytes": size} for size in CACHE_SIZES]
        bounds["cache_bandwidth"] = (uncached, 4 * fastest)
        bounds["cache_bytes"] = (CACHE_SIZES[0] / 8, CACHE_SIZES[-1] * 8)
    else:
        plain = [row for row in rows if row.task.op in ("copy", "add")]
        rows = [row for row in plain if row.task.nbytes >= MIN_UNCACHED_BYTES] or rows
        if "vector_flops" not in fit.known:
            fit.accelerator["vector_flops"] = fit.accelerator["matrix_flops"] / MATRIX_TO_VECTOR_RATE
            fit.taken["vector_flops"] = (
                f"{MATRIX_TO_VECTOR_RATE} times less than the matrix units: 4 on a V100, 7.4 on an H100"
            )
    best, _ = min((fit.fit(rows, start, bounds) for start in starts), key=lambda fitted: fitted[1])
    fit.update(best)


def _fit_products(fit: Figures) -> None:
    """Fit the share of the peaks that matmuls sustain; on a CPU also the tile of its kernels."""
    if fit.host:
        fit.software["kernels.tile"] = _best_tile(fit)
    for share, dtypes in RATES.values():
        if rows := _products_of(fit, dtypes):
            fit.update(fit.fit(rows, {share: 0.9}, {share: SHARE_BOUNDS})[0])


def _best_tile(fit: Figures) -> float:
    dtype = fit.about["dtypes"][0]
    rows = _products_of(fit, (dtype,))
    share = next(share for share, dtypes in RATES.values() if dtype in dtypes)
    losses = {
        tile: fit.with_values({"kernels.tile": tile}).fit(rows, {share: 0.9}, {share: SHARE_BOUNDS})[1]
        for tile in TILES
    }
    return min(losses, key=lambda tile: losses[tile])


def _fit_attention(fit: Figures) -> None:
    """Fit the rate of fused attention; on a CPU also causal skipping, softmax and launch overhead."""
    start = {"attention_fa2": 0.5, "attention_backward": 0.8}
    bounds = dict.fromkeys((*start, "attention.causal_skipping"), SHARE_BOUNDS)
    bounds |= {"attention.softmax": (0.1, 1e3), "attention.launch_seconds": SECONDS_BOUNDS}
    if fit.host:
        start |= {
            "attention.causal_skipping": 0.5,
            "attention.softmax": 20.0,
            "attention.launch_seconds": 1e-5,
        }
        fit.software |= {"attention.start": 0.0, "attention.tail": 0.0}
        fit.taken |= dict.fromkeys(("attention.start", "attention.tail"), EVEN_THREADS)
    fit.update(fit.fit(fit.of("attention"), start, bounds)[0])


def fit_network(fit: Figures) -> None:
    """Fit the network inside a node and, if there are several nodes, the network between them.

    With NCCL every field of a tier that `traincast.times.nccl` uses is fitted. Gloo has one protocol: latency
    and bandwidth are those of its all-reduce, and the factors of the other operations go to the software.
    """
    inside: list[Row] = []
    across: list[Row] = []
    for row in fit.of("collectives"):
        (inside if group_placement(row.task, fit.about)["nodes"] == 1 else across).append(row)
    if inside:
        _fit_tier(fit, inside)
    if across:
        if not inside:  # one rank a node: a tier without cost
            peak = _peak_bus_bandwidth(across, fit)
            fit.tiers = [{"bandwidth": peak, "efficiency": 1.0, "latency": 0.0}]
        _fit_tier(fit, across)
        fit.tiers = fit.tiers if inside else fit.tiers[1:]


def _peak_bus_bandwidth(rows: Sequence[Row], fit: Figures) -> float:
    return max(_link_bytes(row, fit) / row.at(fit.percent) for row in rows)


def _link_bytes(row: Row, fit: Figures) -> float:
    """Return the bytes that each link of a ring carries; for p2p the whole message [byte]."""
    n = group_placement(row.task, fit.about)["ranks"]
    factor = BUS_FACTOR[row.task.op] * (n - 1) / n if row.task.op in BUS_FACTOR else 1.0
    return factor * row.task.sizes[0]


def _fit_tier(fit: Figures, rows: Sequence[Row]) -> None:
    """Fit one more tier, given those inside it."""
    if fit.about["backend"] == "gloo":
        _fit_gloo_tier(fit, rows)
        return
    rows = [row for row in rows if row.task.op in BUS_FACTOR]
    peak, shortest = _peak_bus_bandwidth(rows, fit), min(row.at(fit.percent) for row in rows)
    start = {
        "efficiency": 0.7, "launch": shortest / 2, "latency": shortest / 4, "simple_latency": shortest,
        "ll_bandwidth": peak / 2,
    }  # fmt: skip
    bounds = dict.fromkeys(("launch", "latency", "simple_latency"), SECONDS_BOUNDS)
    bounds |= {"efficiency": SHARE_BOUNDS, "ll_bandwidth": (peak / 1e3, peak)}

    def trial(values: Values) -> Figures:
        return replace(fit, tiers=[*fit.tiers, {"bandwidth": peak} | values])

    fit.tiers.append({"bandwidth": peak} | fit.fit(rows, start, bounds, trial)[0])


def _fit_gloo_tier(fit: Figures, rows: Sequence[Row]) -> None:
    """Fit latency, bandwidth of all-reduce, and the traffic of the other operations relative to a ring."""
    ops = {row.task.op for row in rows}
    # Of several tiers the innermost has the factors.
    factors = [] if fit.tiers else [factor for op, factor in FACTOR_FIELDS.items() if op in ops]
    rates = np.array([_link_bytes(row, fit) for row in rows]) / fit.seconds(rows)
    start = {"bandwidth": float(np.max(rates)), "latency": float(np.min(fit.seconds(rows)))}
    bounds = {"latency": SECONDS_BOUNDS} | dict.fromkeys(factors, (0.02, 50.0))

    def trial(values: Values) -> Figures:
        changed = fit.with_values({name: values[name] for name in factors})
        return replace(changed, tiers=[*fit.tiers, one_protocol(values["bandwidth"], values["latency"])])

    values, _ = fit.fit(rows, start | dict.fromkeys(factors, 1.0), bounds, trial)
    fit.taken |= ONE_PROTOCOL
    fitted = trial(values)
    fit.software, fit.tiers = fitted.software, fitted.tiers


def one_protocol(bandwidth: float, latency: float) -> Values:
    """Return a tier whose only protocol is LL with the full bandwidth; the start-up is part of its hops."""
    return {
        "bandwidth": bandwidth, "latency": latency, "efficiency": 1.0, "launch": 0.0,
        "simple_latency": SIMPLE_HOP_RATIO * latency, "ll_bandwidth": bandwidth,
    }  # fmt: skip
