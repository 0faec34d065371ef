"""Fit of a machine's figures to its benchmarks, by the engine's own formulas.

Peaks are the best rates seen, or those of the data sheet if the catalogue has the accelerator. Every other
figure is the value with which the engine's own formulas come nearest to the medians. Families are fitted in
turn, each with the figures of those before it, the network last.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, TypeAlias

import numpy as np

from traincast.accuracy.fit.benchmark_times import collective_seconds, pass_seconds, product_seconds
from traincast.accuracy.fit.least_squares import least_squares
from traincast.accuracy.logs.tables import BUS_FACTOR
from traincast.accuracy.machine.tables import Row, collective_row, group_placement, matmul_row
from traincast.accuracy.machine.tasks import ARRAYS_MOVED
from traincast.catalog import Stack, resolve
from traincast.core import PRECISIONS, Accelerator, Assumptions, Doc, Floats, InputError, Result, System, Tier
from traincast.operations import Heads, PassCount, Vector, flash

Values: TypeAlias = dict[str, float]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]
ACCELERATOR_FIELDS: Final = frozenset(field.name for field in fields(Accelerator))
MAY_BE_ZERO: Final = frozenset(
    ("launch", "latency", "attention.causal_skipping", "attention.softmax", "attention.launch_seconds")
)
FLOPS_PER_ELEMENT: Final = {"copy": 0.0, "add": 1.0, "norm": 9.0, "gelu": 8.0}  # (arXiv 2410.00273)
RELATIVE_NOISE: Final = 0.05  # error beyond which the loss grows linearly instead of quadratically
LOG_STEP: Final = 1e-3  # change of the logarithm of a constant for finite differences
MAX_EVALUATIONS: Final = 60  # of the residuals, Jacobians not counted
BOUND_MARGIN: Final = 0.01  # distance of logarithms within which a constant counts as at its bound
MIN_SENSITIVITY: Final = 1e-3  # least derivative of a residual by the logarithm of a determined constant
MIN_MEMORY_BOUND_BYTES: Final = 2.0**20  # traffic of a kernel bound by memory, not by launch overhead [byte]
LARGE_MESSAGE_BYTES: Final = 2**18  # size of a collective bound by bandwidth [byte]
ALL_KINDS: Final = "all"
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
    "allgather": "collectives.all_gather_factor",
    "reducescatter": "collectives.reduce_scatter_factor",
    "all2all": "collectives.all_to_all_factor",
    "p2p": "collectives.message_factor",
}
SIMPLE_HOP_RATIO: Final = 1.5  # Simple hop over LL hop, so large that Simple is never chosen
NOTHING_AHEAD: Final = "a CPU issues nothing ahead of time"
EVEN_THREADS: Final = "threads share rows of queries evenly, and begin one after another"
ONE_PROTOCOL: Final = {
    "efficiency": "bandwidth is what all-reduces reach",
    "launch": "part of its hops with gloo",
    "simple_latency": "gloo has one protocol, which latency is of: longer, so that no other is chosen",
    "ll_bandwidth": "gloo has one protocol: all of the bandwidth",
}


@dataclass
class Figures:
    """Figures of a machine during the fit, by field name [SI]."""

    about: Mapping[str, Any]  # description of the machine (`device_info.describe_machine`)
    rows: Sequence[Row]  # benchmarks timed on it
    percent: float = 50  # percentile of the samples that is fitted [%]
    known: Mapping[str, float] = field(default_factory=dict)  # of the accelerator, from the catalogue
    accelerator: Values = field(default_factory=dict)  # fitted fields of `Accelerator`
    software: Values = field(default_factory=dict)  # fitted assumptions by path
    tiers: list[Values] = field(default_factory=list)  # fitted fields of each measured tier of the network
    kernel_seconds: float = 0.0  # launch overhead of a kernel, without autograd [s]
    loose: set[str] = field(default_factory=set)  # not determined by the times: at a bound, or without effect
    taken: dict[str, str] = field(default_factory=dict)  # not measured, and where the value comes from

    def rows_of_family(self, family: str) -> list[Row]:
        """Return the rows of a family."""
        return [row for row in self.rows if row.task.family == family]

    def seconds(self, rows: Sequence[Row]) -> Floats:
        """Return measured times, shape (rows,) [s]."""
        return np.array([row.percentile(self.percent) for row in rows])

    @property
    def host(self) -> bool:
        """Whether the accelerator is the CPU itself, so that kernels are not launched ahead."""
        return bool(self.about["kind"] == "cpu")

    def gpu(self) -> Accelerator:
        """Return the accelerator with the figures known so far."""
        blank = {"matrix_flops": 1.0, "vector_flops": 1.0, "hbm_bandwidth": 1.0}
        sizes = {"hbm_bytes": float(self.about["memory_bytes"]), "processors": int(self.about["processors"])}
        figures = {**blank, **self.known, **sizes, **self.accelerator}
        return Accelerator(name="measured", **figures)  # type: ignore[arg-type]  # fields by name

    def to_assumptions(self) -> Assumptions:
        """Return the assumptions about software with the fitted fields."""
        return resolve(Stack.DEFAULT).with_values(self.software)

    def system(self) -> System:
        """Return the machine with its tiers; a tier that was not timed repeats the last one."""
        size = max(int(self.about["ranks"]) // int(self.about["nodes"]), 1)
        inner = Tier(name="node", size=size, **self.tiers[0])  # type: ignore[arg-type]  # fields by name
        outer = Tier(name="between nodes", **self.tiers[-1])  # type: ignore[arg-type]  # fields by name
        return System(name="measured", accelerator=self.gpu(), tiers=(inner, outer))

    def with_values(self, values: Mapping[str, float]) -> "Figures":
        """Return the figures with other values of the accelerator and of the software."""
        gpu = {name: value for name, value in values.items() if name in ACCELERATOR_FIELDS}
        software = {path: value for path, value in values.items() if path not in gpu}
        return replace(self, accelerator=self.accelerator | gpu, software=self.software | software)

    def predict(self, rows: Sequence[Row]) -> Floats:
        """Predict the times of rows of one family, shape (rows,) [s]."""
        family = rows[0].task.family
        assumed = self.to_assumptions()
        if family == "collectives":
            timings = [collective_row(row, self.about) for row in rows]
            return collective_seconds(self.system(), assumed, timings)
        if family == "attention":
            return _attention_seconds(rows, self.gpu(), assumed)
        # These are launched in a loop without autograd.
        assumed = assumed.with_values({"kernels.launch_seconds": self.kernel_seconds})
        if family == "memory":
            return _memory_seconds(rows, self.gpu(), assumed)
        return product_seconds(self.gpu(), assumed, [matmul_row(row) for row in rows])

    def fit(
        self,
        rows: Sequence[Row],
        bounds: Bounds,
        *starts: Values,
        trial: Callable[[Values], "Figures"] | None = None,
    ) -> float:
        """Fit constants to the times of rows of one family, from the best of several starts; return the loss.

        `trial` returns the figures with given values of the constants; by default `with_values`. Constants of
        `MAY_BE_ZERO` at their lower bound become 0.
        """
        trial = trial or self.with_values
        measured = self.seconds(rows)
        fits = [
            fit_constants(lambda values: trial(values).predict(rows), measured, s, bounds) for s in starts
        ]
        self.loose |= {name for _, loose, _ in fits for name in loose}
        values, loose, loss = min(fits, key=lambda fitted: fitted[2])
        for name in loose & MAY_BE_ZERO:
            if values[name] <= bounds[name][0] * (1 + BOUND_MARGIN):
                values[name] = 0.0
        best = trial(values)
        self.accelerator = best.accelerator
        self.software = best.software
        self.tiers = best.tiers
        return loss


def _memory_seconds(rows: Sequence[Row], gpu: Accelerator, assumed: Assumptions) -> Floats:
    """Predict the times of memory-bound kernels of one type, shape (rows,) [s]."""
    recipe = PRECISIONS[rows[0].task.dtype]
    elements = np.array([float(row.task.sizes[0]) for row in rows])
    flops = np.array([FLOPS_PER_ELEMENT[row.task.op] for row in rows]) * elements
    arrays = np.array([ARRAYS_MOVED[row.task.op] for row in rows])
    nbytes = arrays * assumed.memory.element_bytes * recipe.width * elements
    return np.asarray(pass_seconds(PassCount((Vector(flops),), nbytes), gpu, assumed, recipe), float)


def _attention_seconds(rows: Sequence[Row], gpu: Accelerator, assumed: Assumptions) -> Floats:
    """Predict the times of fused attention of one type, causal or full, shape (rows,) [s]."""
    recipe = PRECISIONS[rows[0].task.dtype]
    fused = assumed.with_values({"attention.kernel": "fa2"})
    b, h, s, d = np.array([row.task.sizes for row in rows], float).T
    causal = np.array([row.task.op != "full" for row in rows])
    share = 1 - causal * assumed.attention.causal_skipping * (1 - (1 + 1 / s) / 2)
    heads = Heads(b, h, h, s, s, d, d, share)
    kernel = flash(assumed.memory.element_bytes * recipe.width, heads, ((), ()), dropped=False)
    forward = np.asarray(pass_seconds(kernel.forward, gpu, fused, recipe), float)
    backward = np.asarray(pass_seconds(kernel.backward, gpu, fused, recipe), float)
    return np.where([row.task.op == "backward" for row in rows], backward, forward)


def fit_constants(
    predict: Callable[[Values], Floats], measured: Floats, start: Mapping[str, float], bounds: Bounds
) -> tuple[Values, frozenset[str], float]:
    """Fit constants above 0 so that predicted times come nearest to measured ones, with a soft-L1 loss.

    Returns the values, the constants that the times do not determine (at a bound, or without effect), and the
    loss.
    """
    names = list(start)
    low, high = np.log([bounds.get(name, (1e-300, 1e300)) for name in names]).T
    initial = np.clip(np.log([start[name] for name in names]), low + BOUND_MARGIN, high - BOUND_MARGIN)

    def values_of(logs: Floats) -> Values:
        return dict(zip(names, np.exp(logs).tolist(), strict=True))

    solution = least_squares()(
        lambda logs: np.log(predict(values_of(logs)) / measured) / RELATIVE_NOISE,
        initial,
        bounds=(low, high),
        loss="soft_l1",
        diff_step=LOG_STEP,
        x_scale="jac",
        max_nfev=MAX_EVALUATIONS,
        xtol=1e-6,
        ftol=1e-6,
    )
    at_low = solution.x <= low + BOUND_MARGIN
    at_high = solution.x >= high - BOUND_MARGIN
    loose = at_low | at_high | (np.max(np.abs(solution.jac), axis=0) < MIN_SENSITIVITY)
    values = values_of(np.where(at_low, low, np.where(at_high, high, solution.x)))
    return values, frozenset(np.array(names)[loose].tolist()), float(solution.cost)


class KindError(Result):
    """Relative errors of predicted times of one kind (type, operation or size) of a family."""

    family: Annotated[str, Doc("what was timed")]
    kind: Annotated[
        str,
        Doc("type of products, operation of anything else; small and large collectives (256 KiB); or all"),
    ]
    rows: Annotated[int, Doc("number of tasks")]
    mape: Annotated[float, Doc("mean absolute error")]
    bias: Annotated[float, Doc("mean error")]
    worst: Annotated[str, Doc("task with the largest error")]


def errors_by_family(fit: Figures) -> tuple[KindError, ...]:
    """Return the errors of each family, of each of its kinds and of all of it."""
    errors: list[KindError] = []
    for family in ("products", "attention", "memory", *(("collectives",) if fit.tiers else ())):
        rows = fit.rows_of_family(family)
        if family == "memory":
            rows = [row for row in rows if row.task.nbytes >= MIN_MEMORY_BOUND_BYTES]
        if rows:
            errors += _errors_by_kind(rows, fit.predict(rows) / fit.seconds(rows) - 1)
    return tuple(errors)


def _errors_by_kind(rows: Sequence[Row], relative: Floats) -> list[KindError]:
    """Return the errors of each kind of a family: operations or types, then sizes, then all."""
    kinds = [row.task.dtype if row.task.family == "products" else row.task.op for row in rows]
    masks = {kind: np.array([kind == other for other in kinds]) for kind in sorted(set(kinds))}
    if rows[0].task.family == "collectives":
        small = np.array([row.task.sizes[0] < LARGE_MESSAGE_BYTES for row in rows])
        masks |= {kind: mask for kind, mask in (("large", ~small), ("small", small)) if mask.any()}
    masks[ALL_KINDS] = np.ones(len(rows), bool)
    return [
        KindError(
            rows[0].task.family,
            kind,
            int(mask.sum()),
            float(np.mean(np.abs(relative[mask]))),
            float(np.mean(relative[mask])),
            rows[int(np.argmax(np.abs(relative) * mask))].task.key,
        )
        for kind, mask in masks.items()
    ]


def fit_machine(
    about: Mapping[str, object], rows: Sequence[Row], known: Mapping[str, float], percent: float = 50
) -> Figures:
    """Fit figures of accelerator, software and network to a percentile of the samples of benchmarks [%].

    `known` holds the figures of the accelerator in the catalogue, and is empty if it is not there.
    """
    fit = Figures(about, rows, percent, known)
    missing = [family for family in REQUIRED_FAMILIES if not fit.rows_of_family(family)]
    if missing:
        raise InputError("measure", [f"no times of {family}: give a longer `budget`" for family in missing])
    _fit_peaks(fit)
    _fit_launch_overhead(fit)
    _fit_memory(fit)
    _fit_products(fit)
    if fit.rows_of_family("attention"):
        _fit_attention(fit)
    if copies := fit.rows_of_family("copies"):  # the bandwidth between host and device is the best rate seen
        fit.accelerator["host_bandwidth"] = max(row.task.sizes[0] / row.percentile(percent) for row in copies)
    fit_network(fit)
    return fit


def _products_of(fit: Figures, dtypes: Sequence[str]) -> list[Row]:
    return [row for row in fit.rows_of_family("products") if row.task.dtype in dtypes]


def _fit_peaks(fit: Figures) -> None:
    """Set peaks that the catalogue does not know to the best rates seen."""
    for peak, (_, dtypes) in RATES.items():
        rates = [row.task.flops / row.percentile(fit.percent) for row in _products_of(fit, dtypes)]
        if rates and peak not in fit.known:
            fit.accelerator[peak] = max(rates)
    if "matrix_flops" not in {**fit.known, **fit.accelerator}:
        fit.accelerator["matrix_flops"] = fit.accelerator["fp32_flops"]
        fit.taken["matrix_flops"] = "that of products at 32 bits, for none were timed at 16"


def _fit_launch_overhead(fit: Figures) -> None:
    """Set the launch overhead; on a CPU it is all the time PyTorch spends per operation."""
    per_operation = {
        row.task.op: row.percentile(fit.percent) / row.task.sizes[0] for row in fit.rows_of_family("dispatch")
    }
    fit.kernel_seconds = per_operation.get("kernel", min(per_operation.values()))
    if fit.host:
        forward = per_operation.get("forward", fit.kernel_seconds)
        fit.software = {"kernels.launch_seconds": forward}
        fit.software |= {"host.dispatch_seconds": 0.0, "collectives.launch_share": 1.0}
        fit.taken |= dict.fromkeys(("host.dispatch_seconds", "collectives.launch_share"), NOTHING_AHEAD)
    else:
        fit.software = {"kernels.launch_seconds": fit.kernel_seconds}
        if "forward" in per_operation:
            fit.software["host.dispatch_seconds"] = per_operation["forward"]


def _fit_memory(fit: Figures) -> None:
    """Fit the memory bandwidth; on a CPU also its caches and the rate of its vector units."""
    rows = fit.rows_of_family("memory")
    traffic = np.array([row.task.nbytes for row in rows])
    rates = traffic / fit.seconds(rows)
    uncached = float(np.max(rates[traffic >= np.max(traffic) / 4]))
    fastest = float(np.max(rates))
    peak = fit.known.get("hbm_bandwidth")
    if peak is None:
        fit.accelerator["hbm_bandwidth"] = peak = uncached
    starts = [{"hbm_sustained": min(0.9 * uncached / peak, 1.0)}]
    bounds = {"hbm_sustained": SHARE_BOUNDS}
    if fit.host:
        cache = {"cache_bandwidth": fastest, "vector_flops": fastest}
        starts = [starts[0] | cache | {"cache_bytes": size} for size in CACHE_SIZES]
        bounds["cache_bandwidth"] = (uncached, 4 * fastest)
        bounds["cache_bytes"] = (CACHE_SIZES[0] / 8, CACHE_SIZES[-1] * 8)
        # Products run on the vector units, too. Where no row is bound by these, any larger rate fits as well.
        products = {**fit.known, **fit.accelerator}["matrix_flops"]
        bounds["vector_flops"] = (fastest / 1_000, max(products, fastest))
    else:
        plain = [row for row in rows if row.task.op in ("copy", "add")]
        rows = [row for row in plain if row.task.nbytes >= MIN_UNCACHED_BYTES] or rows
        if "vector_flops" not in fit.known:
            fit.accelerator["vector_flops"] = fit.accelerator["matrix_flops"] / MATRIX_TO_VECTOR_RATE
            ratio = f"{MATRIX_TO_VECTOR_RATE} times less than the matrix units"
            fit.taken["vector_flops"] = f"{ratio}: 4 on a V100, 7.4 on an H100"
    fit.fit(rows, bounds, *starts)


def _fit_products(fit: Figures) -> None:
    """Fit the share of the peaks that matmuls sustain; on a CPU also the tile of its kernels."""
    if fit.host:
        fit.software["kernels.tile"] = _best_tile(fit)
    for share, dtypes in RATES.values():
        if rows := _products_of(fit, dtypes):
            fit.fit(rows, {share: SHARE_BOUNDS}, {share: 0.9})


def _best_tile(fit: Figures) -> float:
    dtype = fit.about["dtypes"][0]
    rows = _products_of(fit, (dtype,))
    share = next(share for share, dtypes in RATES.values() if dtype in dtypes)
    losses = {
        tile: fit.with_values({"kernels.tile": tile}).fit(rows, {share: SHARE_BOUNDS}, {share: 0.9})
        for tile in TILES
    }
    return min(losses, key=lambda tile: losses[tile])


def _fit_attention(fit: Figures) -> None:
    """Fit the rate of fused attention; on a CPU also causal skipping, softmax and launch overhead."""
    start = {"attention_fa2": 0.5, "attention_backward": 0.8}
    bounds = dict.fromkeys((*start, "attention.causal_skipping"), SHARE_BOUNDS)
    bounds |= {"attention.softmax": (0.1, 1e3), "attention.launch_seconds": SECONDS_BOUNDS}
    if fit.host:
        start |= {"attention.causal_skipping": 0.5, "attention.softmax": 20.0}
        start["attention.launch_seconds"] = 1e-5
        fit.software |= {"attention.start": 0.0, "attention.tail": 0.0}
        fit.taken |= dict.fromkeys(("attention.start", "attention.tail"), EVEN_THREADS)
    fit.fit(fit.rows_of_family("attention"), bounds, start)


def fit_network(fit: Figures) -> None:
    """Fit the network inside a node and, if there are several nodes, the network between them.

    With NCCL every field of a tier that `traincast.times.nccl` uses is fitted. Gloo has one protocol: latency
    and bandwidth are those of its all-reduce, and the factors of the other operations go to the software.
    """
    inside: list[Row] = []
    across: list[Row] = []
    for row in fit.rows_of_family("collectives"):
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
    return max(_link_bytes(row, fit) / row.percentile(fit.percent) for row in rows)


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
    peak = _peak_bus_bandwidth(rows, fit)
    shortest = min(row.percentile(fit.percent) for row in rows)
    start = {
        "efficiency": 0.7,
        "launch": shortest / 2,
        "latency": shortest / 4,
        "simple_latency": shortest,
        "ll_bandwidth": peak / 2,
    }
    bounds = dict.fromkeys(("launch", "latency", "simple_latency"), SECONDS_BOUNDS)
    bounds |= {"efficiency": SHARE_BOUNDS, "ll_bandwidth": (peak / 1e3, peak)}

    # There are several minima, since the faster protocol counts: starts with other shares of start-up and LL.
    starts = [
        start | {"launch": launch * shortest, "latency": shortest / 10, "ll_bandwidth": peak / slower}
        for launch in (0.5, 0.8)
        for slower in (3, 15)
    ]

    inner = fit.tiers
    fit.fit(
        rows, bounds, start, *starts, trial=lambda v: replace(fit, tiers=[*inner, {"bandwidth": peak} | v])
    )


def _fit_gloo_tier(fit: Figures, rows: Sequence[Row]) -> None:
    """Fit latency, bandwidth of all-reduce, and the traffic of the other operations relative to a ring."""
    ops = {row.task.op for row in rows}
    # Of several tiers the innermost has the factors.
    factors = [] if fit.tiers else [factor for op, factor in FACTOR_FIELDS.items() if op in ops]
    rates = np.array([_link_bytes(row, fit) for row in rows]) / fit.seconds(rows)
    start = {"bandwidth": float(np.max(rates)), "latency": float(np.min(fit.seconds(rows)))}
    peak = start["bandwidth"]
    bounds = {"latency": SECONDS_BOUNDS, "bandwidth": (peak / 1e3, peak * 1e3)}
    bounds |= dict.fromkeys(factors, (0.02, 50.0))

    inner = fit.tiers

    def trial(values: Values) -> Figures:
        changed = fit.with_values({name: values[name] for name in factors})
        return replace(changed, tiers=[*inner, one_protocol(values["bandwidth"], values["latency"])])

    fit.fit(rows, bounds, start | dict.fromkeys(factors, 1.0), trial=trial)
    fit.taken |= ONE_PROTOCOL


def one_protocol(bandwidth: float, latency: float) -> Values:
    """Return a tier whose only protocol is LL with the full bandwidth; the start-up is part of its hops."""
    return {
        "bandwidth": bandwidth,
        "latency": latency,
        "efficiency": 1.0,
        "launch": 0.0,
        "simple_latency": SIMPLE_HOP_RATIO * latency,
        "ll_bandwidth": bandwidth,
    }
