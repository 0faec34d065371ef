"""Fit of an accelerator's figures to benchmarks: physical constants with which the engine's formulas predict the measured times.

Peaks are the best rates seen, or those of the data sheet if the catalogue has the accelerator. Every other figure is the value with
which the engine's own formulas come nearest to the medians. Families are fitted in turn, each with the figures of those before it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from traincast.accuracy.measure import predict as predicted
from traincast.accuracy.measure.bounded_fit import (
    BOUND_MARGIN,
    Bounds,
    Values,
    fit_constants,
    mean_soft_error,
)
from traincast.accuracy.measure.tables import Row
from traincast.catalog.software_stacks import DEFAULT_STACK, resolve
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.quantities import Floats
from traincast.core.system import Accelerator

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
MAY_BE_ZERO: Final = frozenset(
    ("launch", "latency", "attention.causal_skipping", "attention.softmax", "attention.launch_seconds")
)
SECONDS_BOUNDS: Final = (1e-8, 1e-2)  # lowest and highest launch overhead or latency [s]
REQUIRED_FAMILIES: Final = ("products", "memory", "dispatch")


@dataclass
class Figures:
    """Figures of a machine during the fit, by field name [SI].

    Parameters
    ----------
    about : mapping
        Description of the machine (`device_info.describe_machine`).
    rows : sequence of Row
        Benchmarks timed on it.
    percent : float
        Percentile of the samples that is fitted [%]; 50 is the median.
    known : mapping of str to float
        Figures of the accelerator in the catalogue.
    accelerator, software : dict
        Fitted fields of `Accelerator`, and of `Assumptions` by path.
    kernel_seconds : float
        Launch overhead of a kernel, without autograd [s].
    loose : set of str
        Figures that the times do not determine: at a bound, or without effect.
    taken : dict of str to str
        Figures that were not measured, and where their values come from.
    """

    about: Mapping[str, Any]
    rows: Sequence[Row]
    percent: float = 50
    known: Mapping[str, float] = field(default_factory=dict)
    accelerator: Values = field(default_factory=dict)
    software: Values = field(default_factory=dict)
    kernel_seconds: float = 0.0
    loose: set[str] = field(default_factory=set)
    taken: dict[str, str] = field(default_factory=dict)

    def of(self, family: str, *ops: str) -> list[Row]:
        """Return the rows of a family, all of them or only those of the given operations."""
        return [row for row in self.rows if row.task.family == family and (not ops or row.task.op in ops)]

    def seconds(self, rows: Sequence[Row]) -> Floats:
        """Return the measured times of rows, shape (rows,) [s]."""
        return np.array([row.at(self.percent) for row in rows])

    def gpu(self, **more: float) -> Accelerator:
        """Return the accelerator with the figures known so far and those of `more`."""
        blank = {"matrix_flops": 1.0, "vector_flops": 1.0, "hbm_bandwidth": 1.0}
        measured = {
            "hbm_bytes": float(self.about["memory_bytes"]),
            "processors": int(self.about["processors"]),
        }
        return Accelerator(name="measured", **{**blank, **self.known, **measured, **self.accelerator, **more})  # type: ignore[arg-type]

    def assumed(self, more: Mapping[str, float] | None = None) -> Assumptions:
        """Return the assumptions about software with the fitted values and those of `more`, by path."""
        return resolve(DEFAULT_STACK).with_values(self.software | dict(more or {}))

    def bare(self) -> Assumptions:
        """Return the assumptions for kernels launched in a loop without autograd."""
        return self.assumed().with_values({"kernels.launch_seconds": self.kernel_seconds})

    @property
    def host(self) -> bool:
        """Whether the accelerator is the CPU itself, so that kernels are not launched ahead."""
        return bool(self.about["kind"] == "cpu")

    def fitted(
        self, rows: Sequence[Row], predict: Callable[[Values], Floats], start: Values, bounds: Bounds
    ) -> Values:
        """Fit constants to the times of rows; those of `MAY_BE_ZERO` at their lower bound become 0."""
        values, loose = fit_constants(predict, self.seconds(rows), start, bounds)
        self.loose |= loose
        nothing = {
            name for name in loose & MAY_BE_ZERO if values[name] <= bounds[name][0] * (1 + BOUND_MARGIN)
        }
        return values | dict.fromkeys(nothing, 0.0)


def fit_accelerator(
    about: Mapping[str, Any], rows: Sequence[Row], known: Mapping[str, float], percent: float = 50
) -> Figures:
    """Fit the figures of the accelerator and of the software to benchmarks.

    Parameters
    ----------
    about : mapping
        Description of the machine.
    rows : sequence of Row
        Benchmarks timed on it.
    known : mapping of str to float
        Figures of the accelerator in the catalogue; empty if it is not there.
    percent : float
        Percentile of the samples that is fitted [%].

    Raises
    ------
    InputError
        If a required family was not timed.
    """
    fit = Figures(about, rows, percent, known)
    missing = [
        f"no times of {family}: give a longer --budget" for family in REQUIRED_FAMILIES if not fit.of(family)
    ]
    if missing:
        raise InputError("measure", missing)
    for fit_family in (
        _fit_peaks,
        _fit_launch_overhead,
        _fit_memory,
        _fit_products,
        _fit_attention,
        _fit_copies,
    ):
        fit_family(fit)
    return fit


def _fit_peaks(fit: Figures) -> None:
    """Set peaks that the catalogue does not know to the best rates seen."""
    for peak, (_, types) in RATES.items():
        rows = [row for row in fit.of("products") if row.task.dtype in types]
        if rows and peak not in fit.known:
            fit.accelerator[peak] = max(row.task.flops / row.at(fit.percent) for row in rows)
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
        fit.taken |= dict.fromkeys(
            ("host.dispatch_seconds", "collectives.launch_share"), "a CPU issues nothing ahead of time"
        )
    else:
        fit.software = {"kernels.launch_seconds": fit.kernel_seconds} | (
            {"host.dispatch_seconds": per_operation["forward"]} if "forward" in per_operation else {}
        )


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
        starts = [
            starts[0] | {"cache_bandwidth": fastest, "vector_flops": fastest, "cache_bytes": size}
            for size in CACHE_SIZES
        ]
        bounds |= {
            "cache_bandwidth": (uncached, 4 * fastest),
            "cache_bytes": (CACHE_SIZES[0] / 8, CACHE_SIZES[-1] * 8),
        }
    else:
        rows = [
            row for row in rows if row.task.op in ("copy", "add") and row.task.nbytes >= MIN_UNCACHED_BYTES
        ] or rows
        if "vector_flops" not in fit.known:
            fit.accelerator["vector_flops"] = fit.accelerator["matrix_flops"] / MATRIX_TO_VECTOR_RATE
            fit.taken["vector_flops"] = (
                f"{MATRIX_TO_VECTOR_RATE} times less than the matrix units: 4 on a V100, 7.4 on an H100"
            )

    def predict(values: Values) -> Floats:
        return predicted.memory(rows, fit.gpu(**values), fit.bare())

    candidates = [fit.fitted(rows, predict, start, bounds) for start in starts]
    losses = [mean_soft_error(predict(values), fit.seconds(rows)) for values in candidates]
    fit.accelerator |= candidates[int(np.argmin(losses))]


def _fit_products(fit: Figures) -> None:
    """Fit the share of the peaks that matmuls sustain; on a CPU also the tile of its kernels."""
    if fit.host:
        fit.software["kernels.tile"] = _best_tile(fit)
    for share, types in RATES.values():
        rows = [row for row in fit.of("products") if row.task.dtype in types]
        if rows:
            predict = partial(_product_seconds, fit, rows, {})
            fit.accelerator |= fit.fitted(rows, predict, {share: 0.9}, {share: SHARE_BOUNDS})


def _best_tile(fit: Figures) -> float:
    """Return the tile size that predicts matmuls of the training type best."""
    dtype = fit.about["dtypes"][0]
    rows = [row for row in fit.of("products") if row.task.dtype == dtype]
    share = next(share for share, types in RATES.values() if dtype in types)

    def loss_of(tile: float) -> float:
        predict = partial(_product_seconds, fit, rows, {"kernels.tile": tile})
        return mean_soft_error(
            predict(fit.fitted(rows, predict, {share: 0.9}, {share: SHARE_BOUNDS})), fit.seconds(rows)
        )

    return min(TILES, key=loss_of)


def _product_seconds(fit: Figures, rows: Sequence[Row], software: Values, gpu: Values) -> Floats:
    """Return predicted times of matmuls with the given figures of software and accelerator, shape (rows,) [s]."""
    return predicted.products(rows, fit.gpu(**gpu), fit.bare().with_values(software))


def _fit_attention(fit: Figures) -> None:
    """Fit the rate of fused attention; on a CPU also causal skipping, softmax and launch overhead."""
    rows = fit.of("attention")
    if not rows:
        return
    shares = {"attention_fa2": 0.5, "attention_backward": 0.8}
    host_only = (
        {"attention.causal_skipping": 0.5, "attention.softmax": 20.0, "attention.launch_seconds": 1e-5}
        if fit.host
        else {}
    )
    bounds = dict.fromkeys((*shares, "attention.causal_skipping"), SHARE_BOUNDS)
    bounds |= {"attention.softmax": (0.1, 1e3), "attention.launch_seconds": SECONDS_BOUNDS}
    if fit.host:
        fit.software |= {"attention.start": 0.0, "attention.tail": 0.0}
        fit.taken |= dict.fromkeys(
            ("attention.start", "attention.tail"),
            "threads share rows of queries evenly, and begin one after another",
        )

    def predict(values: Values) -> Floats:
        software = {name: value for name, value in values.items() if name not in shares}
        gpu = fit.gpu(**{name: values[name] for name in shares})
        return predicted.attention(rows, gpu, fit.assumed(software))

    values = fit.fitted(rows, predict, shares | host_only, bounds)
    fit.accelerator |= {name: values.pop(name) for name in shares}
    fit.software |= values


def _fit_copies(fit: Figures) -> None:
    """Set the bandwidth between host and device to the best rate seen."""
    rows = fit.of("copies")
    if rows:
        fit.accelerator["host_bandwidth"] = max(row.task.sizes[0] / row.at(fit.percent) for row in rows)
