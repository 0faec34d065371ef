"""Probability that a plan is the best of several: errors of the differences between plans.

Two plans of one model on one machine share most of their error. The error of their difference is that of the
components in which they differ, and the error of the single plans, which is correlated for similar plans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from traincast.catalog import Stack
from traincast.core import Bools, Column, Floats, Ints, Plan, Plans
from traincast.step import COMPONENTS, NORMAL_90_PERCENT, Errors, errors

NEAR_BEST_SLOWDOWN: Final = 0.03  # how much slower than the best a plan may be that counts as good
MAX_LOG_SLOWDOWN: Final = 0.5  # a layout predicted further above the first, in the logarithm, is never best
SLIGHT: Final = 0.2  # of errors of single plans, below which what software changes adds 4 % to their variance
ERROR_SAMPLES: Final = 4096  # samples of the errors, for probabilities to about 1 %
PLAN_DEGREES: Final = ("tp", "tp2", "cp", "pp", "dp", "ep", "etp", "vp", "mbs", "replicas", "recompute_every")
PLAN_KINDS: Final = (
    *("tp_kind", "cp_kind", "sp", "tp_overlap", "zero", "schedule", "recompute", "offload", "layout"),
    *("order", "precision", "optimizer_kind", "grad_dtype", "master_copy"),
)


def plan_coordinates(plans: Sequence[Plan | Plans], numbers: dict[Any, int] | None = None) -> Floats:
    """Return plans as numbers that `plan_distance` compares: log2 of degrees, and indices of choices.

    `plans`: single plans, or columns of plans; `numbers`: indices of the choices so far, which grow.
    """
    indices = {} if numbers is None else numbers
    blocks = []
    for plan in plans:
        columns = plan.columns() if isinstance(plan, Plan) else plan
        block: list[Any] = [np.log2(getattr(columns, name)) for name in PLAN_DEGREES]
        for name in PLAN_KINDS:
            value = getattr(columns, name)
            is_flag = isinstance(value, bool | np.ndarray)  # of columns: whether a tensor group is overlapped
            block.append(value if is_flag else indices.setdefault((name, value), len(indices)))
        blocks.append(np.column_stack(np.broadcast_arrays(*block)))
    return np.concatenate(blocks).astype(np.float64)


def plan_distance(first: Floats, second: Floats) -> Floats:
    """Return the distance of plans: 1 for each doubling of a degree and for each differing choice.

    `first, second`: plans as `plan_coordinates` gives them, shape (..., degrees and choices).
    """
    difference = np.abs(first - second)
    is_choice = np.arange(difference.shape[-1]) >= len(PLAN_DEGREES)
    return np.asarray(np.where(is_choice, difference > 0, difference).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class RankedSoftware:
    """Software that a question leaves open, with what it changes in the times of plans that are compared.

    Parameters
    ----------
    weights : array, shape (software,)
        Probability of each; they add up to 1.
    ratios : array, shape (software, plans)
        Logarithm of the time that a plan takes under it, over the predicted time, less the mean over the
        plans, which they share and which changes no ranking.
    factors : array, shape (software,)
        How uncertain predictions of it are, relative to all.
    """

    weights: Floats
    ratios: Floats
    factors: Floats

    @classmethod
    def from_times(
        cls, shares: Mapping[str, float], predicted: Floats, seconds: Mapping[str, Floats]
    ) -> "RankedSoftware | None":
        """Return it from times; None where the software is stated.

        `shares`: probability of each software; `predicted`: times of the plans, shape (plans,) [s];
        `seconds`: those under each software, nan where a plan was not timed. Such plans have the mean ratio
        of the others.
        """
        if not shares:
            return None
        known = errors()
        rows = list[Floats]()
        for name in shares:
            row = np.log(seconds.get(name, np.full(len(predicted), np.nan)) / predicted)
            timed = ~np.isnan(row)
            rows.append(np.where(timed, row - row[timed].mean(), 0.0) if timed.any() else np.zeros(len(row)))
        factors = [known.stacks.get(Stack(name).fitted_name, known.other_stacks) for name in shares]
        return cls(np.array(list(shares.values())), np.array(rows), np.array(factors))

    def of_plans(self, plans: Any) -> "RankedSoftware":
        """Return it of some of the plans."""
        return replace(self, ratios=self.ratios[:, plans])

    @property
    def is_slight(self) -> bool:
        """Whether it changes rankings by much less than errors of single plans do."""
        known = errors()
        own = known.own * float(self.weights @ self.factors) * known.apart / NORMAL_90_PERCENT
        return bool(float(self.weights @ np.var(self.ratios, axis=1)) ** 0.5 < SLIGHT * own)

    @property
    def mean(self) -> Floats:
        """Mean of the ratios over software, shape (plans,)."""
        return np.asarray(self.weights @ self.ratios)

    @property
    def roots(self) -> Floats:
        """Factor R of the covariance RᵀR that software adds to the plans' errors, shape (software, plans)."""
        return np.asarray(self.weights[:, None] ** 0.5 * (self.ratios - self.mean))

    @property
    def drawn(self) -> Ints:
        """Index of the software of each draw: of each as many as its weight, shape (draws,)."""
        places = (np.arange(ERROR_SAMPLES) + 0.5) / ERROR_SAMPLES
        return np.searchsorted(np.cumsum(self.weights)[:-1], places, side="right")


def draw_near_best(
    seconds: Floats,
    shares: Mapping[str, Floats],
    coordinates: Floats,
    factor: float = 1.0,
    within: float = NEAR_BEST_SLOWDOWN,
    known: Errors | None = None,
    software: RankedSoftware | None = None,
) -> Bools:
    """Draw which plans are within a share of the true best, with a fixed seed, shape (draws, plans).

    Only what differs between the plans counts: what software changes that the question leaves open, errors of
    components of which their steps have different shares, and errors of single plans.

    `seconds`: predicted times [s], shape (plans,); `shares`: share of each step spent on each of
    `COMPONENTS`, shape (plans,); `coordinates`: the plans as `plan_coordinates` gives them, shape (plans,
    degrees and choices); `software`: what is left open, each with a `factor` of its own.
    """
    known = known or errors()
    scale: Column = factor * known.apart / NORMAL_90_PERCENT
    if software is not None:
        scale = software.factors[software.drawn][:, None] * known.apart / NORMAL_90_PERCENT
    rng = np.random.default_rng(0)
    log_error = np.zeros((ERROR_SAMPLES, len(seconds)))
    for name in COMPONENTS:
        log_error += getattr(known, name) * scale * rng.standard_normal((ERROR_SAMPLES, 1)) * shares[name]
    distance = plan_distance(coordinates[:, None], coordinates[None])
    correlation = np.exp(-distance / known.reach) + 1e-9 * np.eye(len(coordinates))
    log_error += known.own * scale * rng.standard_normal(log_error.shape) @ np.linalg.cholesky(correlation).T
    log_true = np.log(seconds) - log_error
    if software is not None:
        log_true += software.ratios[software.drawn]
    return np.asarray(log_true <= log_true.min(axis=1, keepdims=True) + np.log1p(within))


def difference_deviation(
    shares: Mapping[str, Floats],
    coordinates: Floats,
    factor: float = 1.0,
    software: RankedSoftware | None = None,
) -> Floats:
    """Return the standard deviation of the error of the logarithm of two plans' ratio, shape (plans, plans).

    It is that of the errors that `draw_near_best` draws, whose arguments these are, about the predicted
    ratio.
    """
    known = errors()
    if software is not None:
        factor = float(software.weights @ software.factors**2) ** 0.5
    scale = factor * known.apart / NORMAL_90_PERCENT
    distance = plan_distance(coordinates[:, None], coordinates[None])
    variance = 2 * (known.own * scale) ** 2 * (1 - np.exp(-distance / known.reach))
    for name in COMPONENTS:
        apart = shares[name][:, None] - shares[name][None]
        variance = variance + (getattr(known, name) * scale * apart) ** 2
    if software is not None:
        for weight, ratios in zip(software.weights, software.ratios, strict=True):
            variance = variance + weight * (ratios[:, None] - ratios[None]) ** 2
    return np.asarray(variance**0.5)


def layouts_compared(seconds: Floats, coordinates: Floats) -> int:
    """Count the layouts that may be the best: plans not much slower than the fastest, micro-batch aside.

    `seconds, coordinates`: as for `draw_near_best`.
    """
    near = seconds <= seconds.min() * np.exp(MAX_LOG_SLOWDOWN)
    return len(np.unique(np.delete(coordinates[near], PLAN_DEGREES.index("mbs"), axis=1), axis=0))


def ranking_features(drawn: Column, layouts: Column) -> Floats:
    """Return what the log-odds of a ranking are linear in, shape (rankings, 3)."""
    smooth = (np.atleast_1d(drawn) * ERROR_SAMPLES + 0.5) / (ERROR_SAMPLES + 1)
    ones = np.ones(len(smooth))
    return np.column_stack((np.log(smooth / (1 - smooth)), ones, np.log(layouts) * ones))


def ranking_probability(drawn: float, layouts: int, known: Errors | None = None) -> float:
    """Return the probability of a ranking from the share of draws in which it holds.

    Errors that plans share in ways that no draw has make large shares too sure, and the more so the more
    layouts could be the best; the log-odds of rankings that were measured are linear in those drawn (Platt,
    1999) and in the logarithm of the number of layouts, which counts up to the most that were measured.
    """
    known = known or errors()
    line = np.array([known.ranking_slope, known.ranking_shift, known.ranking_layouts])
    return float(1 / (1 + np.exp(-ranking_features(drawn, min(layouts, known.ranking_most)) @ line))[0])
