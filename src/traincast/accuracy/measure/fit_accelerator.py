"""What a machine is, out of what was timed on it: figures with a physical meaning that bring the engine's times to the measured.

Peaks are the best rates seen, or those of the data sheet where the catalogue knows the accelerator; everything else is the value at
which the engine's own formulas come nearest to the medians. Families go one after the other, each with what those before it found.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from traincast.accuracy.measure import predict as predicted
from traincast.accuracy.measure.bounded_fit import BOUND_MARGIN, Bounds, Values, fit_constants, mean_soft_error
from traincast.accuracy.measure.tables import Row
from traincast.catalog.software_stacks import USUAL, resolve
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.quantities import Floats
from traincast.core.system import Accelerator

RATES: Final = {  # peak -> its sustained share, and types of products
    "matrix_flops": ("matrix_sustained", ("bf16", "fp16")),
    "fp32_flops": ("fp32_sustained", ("fp32", "tf32")),
    "fp8_flops": ("fp8_sustained", ("fp8",)),
}
TILES: Final = (8.0, 16.0, 32.0, 64.0, 128.0)
MATRIX_TO_VECTOR_RATE: Final = 8  # rate of matrix units to that of vector units, where nobody knows
MIN_UNCACHED_BYTES: Final = 2.0**26  # traffic that no cache of a GPU holds [byte]
CACHE_SIZES: Final = (2.0**20, 2.0**22, 2.0**24, 2.0**26)  # sizes of caches that a search begins with [byte]
SHARE_BOUNDS: Final = (0.01, 1.0)
MAY_BE_ZERO: Final = frozenset(("launch", "latency", "causal_skipping", "attention_softmax", "attention_launch_seconds"))
SECONDS_BOUNDS: Final = (1e-8, 1e-2)  # of what an operation costs at least and at most [s]
REQUIRED_FAMILIES: Final = ("products", "memory", "dispatch")


@dataclass
class Figures:
    """Figures of a machine while they are found, in SI units by their names.

    Parameters
    ----------
    about : mapping
        What the machine says of itself.
    rows : sequence of Row
        What was timed on it.
    percent : float
        Share of the samples that are shorter than the time that counts; 50 for the median.
    known : mapping of str to float
        Figures of the accelerator in the catalogue.
    accelerator, software : dict
        Figures of an accelerator and of `Assumptions` that were found.
    kernel_seconds : float
        What a kernel costs whatever its size, without what PyTorch keeps for backward [s].
    loose : set of str
        Figures that the times do not determine: at the bound of what they can be, or of no effect.
    taken : dict of str to str
        Figures that were not measured, and what they are taken from.
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
        """Rows of a family, all of them or those of some operations."""
        return [row for row in self.rows if row.task.family == family and (not ops or row.task.op in ops)]

    def seconds(self, rows: Sequence[Row]) -> Floats:
        """Times of rows, shape (rows,) [s]."""
        return np.array([row.at(self.percent) for row in rows])

    def gpu(self, **more: float) -> Accelerator:
        """The accelerator as far as it is known, with some figures more."""
        blank = {"matrix_flops": 1.0, "vector_flops": 1.0, "hbm_bandwidth": 1.0}
        own = {"hbm_bytes": float(self.about["memory_bytes"]), "processors": int(self.about["processors"])}
        return Accelerator(name="measured", **{**blank, **self.known, **own, **self.accelerator, **more})  # type: ignore[arg-type]

    def assumed(self, **more: float) -> Assumptions:
        """What is assumed of the software, with what was found of it and some more."""
        return replace(resolve(USUAL), **self.software, **more)  # type: ignore[arg-type]  # fields by name

    def bare(self) -> Assumptions:
        """The same of kernels that are called again and again with nothing kept for backward."""
        return replace(self.assumed(), launch_seconds=self.kernel_seconds)

    @property
    def host(self) -> bool:
        """Whether the accelerator is the host itself, so that nothing is issued ahead of time."""
        return bool(self.about["kind"] == "cpu")

    def fitted(self, rows: Sequence[Row], predict: Callable[[Values], Floats], start: Values, bounds: Bounds) -> Values:
        """Values at which predicted times of rows are nearest to the measured; what may be nothing and is next to it becomes 0."""
        values, loose = fit_constants(predict, self.seconds(rows), start, bounds)
        self.loose |= loose
        nothing = {name for name in loose & MAY_BE_ZERO if values[name] <= bounds[name][0] * (1 + BOUND_MARGIN)}
        return values | dict.fromkeys(nothing, 0.0)


def fit_accelerator(about: Mapping[str, Any], rows: Sequence[Row], known: Mapping[str, float], percent: float = 50) -> Figures:
    """All figures of the accelerator and of software that rows tell.

    Parameters
    ----------
    about : mapping
        What the machine says of itself.
    rows : sequence of Row
        What was timed on it.
    known : mapping of str to float
        Figures of the accelerator in the catalogue; nothing where it has none of it.
    percent : float
        Share of the samples that are shorter than the time that counts.

    Raises
    ------
    InputError
        If there was no time for a family that has to be there.
    """
    it = Figures(about, rows, percent, known)
    missing = [f"no times of {family}: give a longer --budget" for family in REQUIRED_FAMILIES if not it.of(family)]
    if missing:
        raise InputError("measure", missing)
    for step in (_fit_peaks, _fit_launch_overhead, _fit_memory, _fit_products, _fit_attention, _fit_copies):
        step(it)
    return it


def _fit_peaks(it: Figures) -> None:
    """The best rates seen of types whose peak the catalogue does not know."""
    for peak, (_, types) in RATES.items():
        rows = [row for row in it.of("products") if row.task.dtype in types]
        if rows and peak not in it.known:
            it.accelerator[peak] = max(row.task.flops / row.at(it.percent) for row in rows)
    if "matrix_flops" not in {**it.known, **it.accelerator}:
        it.accelerator["matrix_flops"] = it.accelerator["fp32_flops"]
        it.taken["matrix_flops"] = "that of products at 32 bits, for none were timed at 16"


def _fit_launch_overhead(it: Figures) -> None:
    """What an operation costs whatever its size: on a CPU all that PyTorch does for it."""
    each = {row.task.op: row.at(it.percent) / row.task.sizes[0] for row in it.of("dispatch")}
    it.kernel_seconds = each.get("kernel", min(each.values()))
    if it.host:
        forward = each.get("forward", it.kernel_seconds)
        it.software = {"launch_seconds": forward, "dispatch_seconds": 0.0, "collective_launch": 1.0}
        it.taken |= dict.fromkeys(("dispatch_seconds", "collective_launch"), "a CPU issues nothing ahead of time")
    else:
        it.software = {"launch_seconds": it.kernel_seconds} | ({"dispatch_seconds": each["forward"]} if "forward" in each else {})


def _fit_memory(it: Figures) -> None:
    """Bandwidth of the memory; on a CPU that of its caches and the rate of its vector units as well."""
    rows = it.of("memory")
    traffic = np.array([row.task.nbytes for row in rows])
    rates = traffic / it.seconds(rows)
    far, near = float(np.max(rates[traffic >= np.max(traffic) / 4])), float(np.max(rates))
    peak = it.known.get("hbm_bandwidth")
    if peak is None:
        it.accelerator["hbm_bandwidth"] = peak = far
    starts, bounds = [{"hbm_sustained": min(0.9 * far / peak, 1.0)}], {"hbm_sustained": SHARE_BOUNDS}
    if it.host:
        starts = [starts[0] | {"cache_bandwidth": near, "vector_flops": near, "cache_bytes": size} for size in CACHE_SIZES]
        bounds |= {"cache_bandwidth": (far, 4 * near), "cache_bytes": (CACHE_SIZES[0] / 8, CACHE_SIZES[-1] * 8)}
    else:
        rows = [row for row in rows if row.task.op in ("copy", "add") and row.task.nbytes >= MIN_UNCACHED_BYTES] or rows
        if "vector_flops" not in it.known:
            it.accelerator["vector_flops"] = it.accelerator["matrix_flops"] / MATRIX_TO_VECTOR_RATE
            it.taken["vector_flops"] = f"{MATRIX_TO_VECTOR_RATE} times less than the matrix units: 4 on a V100, 7.4 on an H100"

    def predict(values: Values) -> Floats:
        return predicted.memory(rows, it.gpu(**values), it.bare())

    found = [it.fitted(rows, predict, start, bounds) for start in starts]
    left = [mean_soft_error(predict(values), it.seconds(rows)) for values in found]
    it.accelerator |= found[int(np.argmin(left))]


def _fit_products(it: Figures) -> None:
    """What products sustain of the peaks; on a CPU the tile of its kernels, too."""
    if it.host:
        it.software["tile"] = _best_tile(it)
    for share, types in RATES.values():
        rows = [row for row in it.of("products") if row.task.dtype in types]
        if rows:
            predict = partial(_product_seconds, it, rows, {})
            it.accelerator |= it.fitted(rows, predict, {share: 0.9}, {share: SHARE_BOUNDS})


def _best_tile(it: Figures) -> float:
    """The tile with which products of the type of training are told best."""
    dtype = it.about["dtypes"][0]
    rows = [row for row in it.of("products") if row.task.dtype == dtype]
    share = next(share for share, types in RATES.values() if dtype in types)

    def left(tile: float) -> float:
        predict = partial(_product_seconds, it, rows, {"tile": tile})
        return mean_soft_error(predict(it.fitted(rows, predict, {share: 0.9}, {share: SHARE_BOUNDS})), it.seconds(rows))

    return min(TILES, key=left)


def _product_seconds(it: Figures, rows: Sequence[Row], software: Values, gpu: Values) -> Floats:
    """Times of products with figures of software and of the accelerator [s]."""
    return predicted.products(rows, it.gpu(**gpu), replace(it.bare(), **software))  # type: ignore[arg-type]  # fields by name


def _fit_attention(it: Figures) -> None:
    """Rate of fused attention; on a CPU also what it skips of a mask, and what it costs beside its products."""
    rows = it.of("attention")
    if not rows:
        return
    own = {"attention_fa2": 0.5, "attention_backward": 0.8}
    free = {"causal_skipping": 0.5, "attention_softmax": 20.0, "attention_launch_seconds": 1e-5} if it.host else {}
    bounds = dict.fromkeys((*own, "causal_skipping"), SHARE_BOUNDS)
    bounds |= {"attention_softmax": (0.1, 1e3), "attention_launch_seconds": SECONDS_BOUNDS}
    if it.host:
        it.software |= {"attention_start": 0.0, "attention_tail": 0.0}
        it.taken |= dict.fromkeys(
            ("attention_start", "attention_tail"), "threads share rows of queries evenly, and begin one after another"
        )

    def predict(values: Values) -> Floats:
        software = {name: value for name, value in values.items() if name not in own}
        gpu = it.gpu(**{name: values[name] for name in own})
        return predicted.attention(rows, gpu, it.assumed(**software))

    values = it.fitted(rows, predict, own | free, bounds)
    it.accelerator |= {name: values.pop(name) for name in own}
    it.software |= values


def _fit_copies(it: Figures) -> None:
    """Bandwidth between host and device."""
    rows = it.of("copies")
    if rows:
        it.accelerator["host_bandwidth"] = max(row.task.sizes[0] / row.at(it.percent) for row in rows)
