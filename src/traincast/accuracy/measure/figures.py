"""Figures of a measured machine, the benchmark times that they predict, and the errors of those."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, TypeAlias

import numpy as np

from traincast.accuracy.fit.benchmarks import collective_seconds, pass_seconds, product_seconds
from traincast.accuracy.fit.least_squares import least_squares
from traincast.accuracy.measure.tables import Row, collective_row, matmul_row
from traincast.accuracy.measure.tasks import ARRAYS_MOVED
from traincast.catalog.software_stacks import DEFAULT_STACK, resolve
from traincast.core.assumptions import Assumptions
from traincast.core.precision import PRECISIONS
from traincast.core.quantities import Floats
from traincast.core.result import Doc, Result
from traincast.core.system import Accelerator, System, Tier
from traincast.operations.attention import Heads, flash
from traincast.operations.operation import PassCount, Vector

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

    def of(self, family: str) -> list[Row]:
        """Return the rows of a family."""
        return [row for row in self.rows if row.task.family == family]

    def seconds(self, rows: Sequence[Row]) -> Floats:
        """Return measured times, shape (rows,) [s]."""
        return np.array([row.at(self.percent) for row in rows])

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

    def assumed(self) -> Assumptions:
        """Return the assumptions about software with the fitted fields."""
        return resolve(DEFAULT_STACK).with_values(self.software)

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

    def update(self, values: Mapping[str, float]) -> None:
        """Set values of the accelerator and of the software."""
        changed = self.with_values(values)
        self.accelerator, self.software = changed.accelerator, changed.software

    def predict(self, rows: Sequence[Row]) -> Floats:
        """Predict the times of rows of one family, shape (rows,) [s]."""
        family, assumed = rows[0].task.family, self.assumed()
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
        start: Values,
        bounds: Bounds,
        trial: Callable[[Values], "Figures"] | None = None,
    ) -> tuple[Values, float]:
        """Fit constants to the times of rows of one family, with figures as they are otherwise.

        `trial` returns the figures with given values of the constants; by default `with_values`. Constants of
        `MAY_BE_ZERO` at their lower bound become 0. Returns the values, and the loss.
        """
        trial = trial or self.with_values
        values, loose, loss = fit_constants(
            lambda values: trial(values).predict(rows), self.seconds(rows), start, bounds
        )
        self.loose |= loose
        for name in loose & MAY_BE_ZERO:
            if values[name] <= bounds[name][0] * (1 + BOUND_MARGIN):
                values[name] = 0.0
        return values, loss


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
    recipe, fused = PRECISIONS[rows[0].task.dtype], assumed.with_values({"attention.kernel": "fa2"})
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

    solution = least_squares("measure")(
        lambda logs: np.log(predict(values_of(logs)) / measured) / RELATIVE_NOISE,
        initial, bounds=(low, high), loss="soft_l1", diff_step=LOG_STEP, x_scale="jac",
        max_nfev=MAX_EVALUATIONS, xtol=1e-6, ftol=1e-6,
    )  # fmt: skip
    at_low, at_high = solution.x <= low + BOUND_MARGIN, solution.x >= high - BOUND_MARGIN
    loose = at_low | at_high | (np.max(np.abs(solution.jac), axis=0) < MIN_SENSITIVITY)
    values = values_of(np.where(at_low, low, np.where(at_high, high, solution.x)))
    return values, frozenset(np.array(names)[loose].tolist()), float(solution.cost)


@dataclass(frozen=True)
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
        rows = fit.of(family)
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
            rows[0].task.family, kind, int(mask.sum()), float(np.mean(np.abs(relative[mask]))),
            float(np.mean(relative[mask])), rows[int(np.argmax(np.abs(relative) * mask))].task.key,
        )
        for kind, mask in masks.items()
    ]  # fmt: skip
