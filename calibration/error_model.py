"""Estimate of the error model in `traincast.step.uncertainty` from runs left out of fits, and its coverage.

Variances maximise a composite likelihood: of the error of every run in every way that it is left out, which
tells what distance from measured runs adds, and of the difference of errors of every pair of runs that differ
only in their plan. Errors have heavy tails (Student's t with 4 degrees of freedom); a group of n runs has
weight √n.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from left_out_residuals import LEFT_OUT, PARTS, Residuals, evidence
from published import assumed_over_fitted
from traincast.accuracy.scores import recommended_order
from traincast.core.quantities import Bools, Floats, Ints
from traincast.planner.answers.rankings import (
    NEAR_BEST_SLOWDOWN,
    draw_near_best,
    layouts_compared,
    ranking_features,
    ranking_probability,
)
from traincast.step.fit_probability import student_point
from traincast.step.uncertainty import (
    ADDED,
    COMPONENTS,
    DISTANCES,
    NORMAL_90_PERCENT,
    Errors,
    SoftwareShares,
    student_below,
)
from unfitted_runs import generation_drift

DEGREES_OF_FREEDOM: Final = 4.0  # of Student's t
PRIOR_GROUPS: Final = 3.0  # weight of the prior that a stack is like all others [groups]
ALTERNATIONS: Final = (
    12,
    2,
)  # alternations of variances and factors of stacks: from scratch, and from a previous fit
STEPS: Final = 25
MEMORY_NEW_STACK: Final = 0.15  # what software without measured memory adds (docs/uncertainty.md)
SPLIT_WEIGHT: Final = 0.5  # of a run left out with more than its group, relative to one left out with it
MAX_TAIL: Final = 1.15  # of the tails of a stack relative to those of all: few runs decide them
SETTLINGS: Final = 3  # alternations of quantiles and drifts
# distance → the runs left out that tell what it adds: 90 % of them lie within their intervals
DRIFTS: Final = {
    "new_stack": "without_stack",
    "new_cell": "without_cell",
    "gpus": "without_many_gpus",
    "pp": "without_pipelined_experts",
    "ep": "without_wide_ep",
    "seconds": "without_short_steps",
    "work": "without_light_work",
}
MAX_DRIFT: Final = 0.3
# What 90 % of the rates of products that were assumed were off when they were fitted later: the interval that
# an accelerator without runs has by its rates alone
ASSUMED_RATE: Final = float(np.quantile(np.abs(assumed_over_fitted()), 0.9))
# Least that a distance adds, assumed where errors do not show it: of what is new, and for each unit
LEAST_DRIFT: Final = {
    **{name: 0.01 if name in DRIFTS else 0.03 for name in DISTANCES},
    "new_layers": 0.25,
}
REACH_CANDIDATES: Final = (
    0.5,
    1.0,
    2.0,
    4.0,
    8.0,
)  # correlation lengths between plans; the likeliest is taken
HALVINGS: Final = 5  # bisections of the scale of differences
# of which `software.with_software` makes an estimate
NO_SOFTWARE: Final = SoftwareShares(
    configurations={}, releases={}, generations={}, prior=1.0, **dict.fromkeys(ADDED, 0.0)
)
NOMINAL: Final = 0.9  # share of runs that intervals are to hold, and half of the rest beyond each end
TAIL: Final = (1 + NOMINAL) / 2
# deviations to each end, of runs faster and slower than predicted, by whether models have experts
QUANTILES: Final = {"faster": False, "slower": False, "faster_moe": True, "slower_moe": True}
REJECTED: Final = 0.05  # level of the test of it
RESAMPLES: Final = 2000
MIN_GROUPS: Final = 5  # for a bootstrap over groups
LEVELS: Final = (0.5, 0.68, 0.8, 0.9, 0.95)  # of intervals whose reliability is shown
ROUNDING: Final = 1e-6  # of levels and errors: intervals hold the run that they end at
BAND: Final = 0.9  # share of samples within the band of a bin
MAX_BINS: Final = 10
MIN_CASES: Final = 30  # of a bin
CHANCES: Final = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95)
FOLDS: Final = 10  # of groups, each left out of the error model in turn
ODDS_STEPS: Final = 50  # Newton steps of the line of log-odds
ODDS_PRIOR: Final = 1.0  # standard deviation of its slope from 1, and of its other constants from 0
MAX_ODDS: Final = 30.0  # logarithm of odds


def estimate_errors(data: Residuals, without: Bools | None = None, start: Errors | None = None) -> Errors:
    """Estimate the constants of the error model.

    Parameters
    ----------
    data : Residuals
        Runs with their errors.
    without : array of bool, shape (runs,), optional
        Runs to leave out.
    start : Errors, optional
        Initial values of the constants.
    """
    mask = (data.weights > 0) & (True if without is None else ~without)
    fits = [
        _fit(data, mask, start, reach) for reach in (REACH_CANDIDATES if start is None else (start.reach,))
    ]
    _, reach, factors, variances = max(fits, key=lambda result: result[0])
    factors = _tail_factors(data, mask, factors, variances)
    for _ in range(SETTLINGS):
        sides = _quantiles(data, _deviations_without(data, mask, variances, factors), mask)
        variances = _with_drifts(data, mask, factors, variances, sides)
    differences, size, weights = _differences(data, mask, factors, variances, reach)
    apart = weighted_quantile(np.abs(differences) / size, weights, 0.9)
    known = replace(_known(data, mask, factors, variances), apart=apart, reach=reach)
    if start is not None:
        return known
    # of deviations that know neither a run nor its group, as those of the next run will not
    size = _held_deviations(data, _folds(data, known))
    ends: dict[str, Any] = _quantiles(data, size)
    known = replace(known, **ends)
    new_generation = max(known.drifts["new_generation"], generation_drift(known))
    known = replace(known, drifts={**known.drifts, "new_generation": new_generation})
    return _calibrate_rankings(data, known)


def _quantiles(data: Residuals, size: Floats, mask: Bools | None = None) -> dict[str, float]:
    """Return `QUANTILES`: the deviations that 5 % of the errors are beyond, each way.

    Those of a kind without runs are normal. `size`: a deviation, shape (left,); `mask`: runs to use.
    """
    left = data.left
    moe = np.array([data.cases[i].moe for i in left.rows])
    of_group = (left.columns == LEFT_OUT) & (True if mask is None else mask[left.rows])
    result = dict.fromkeys(QUANTILES, NORMAL_90_PERCENT)
    for name, kind in QUANTILES.items():
        used, sign = of_group & (moe == kind), 1.0 if name.startswith("faster") else -1.0
        if not used.any():
            continue
        standard, weights = sign * left.errors[used] / size[used], data.independent[left.rows[used]]
        result[name] = max(weighted_quantile(standard, weights, TAIL), 0.0)
    return result


def _ends(data: Residuals, quantiles: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Return the deviations to the ends of the interval of each error of `Left`: faster, slower."""
    moe = np.array([data.cases[i].moe for i in data.left.rows])
    faster, slower = (
        np.where(moe, quantiles[f"{side}_moe"], quantiles[side]) for side in ("faster", "slower")
    )
    return faster, slower


def _with_drifts(
    data: Residuals,
    mask: Bools,
    factors: Mapping[str, float],
    variances: Floats,
    ends: Mapping[str, float],
) -> Floats:
    """Return the variances with those of `DRIFTS` such that 90 % of the runs left out lie within.

    That of a new accelerator is of its assumed rates.

    `ends`: deviations that they are to lie within, by `QUANTILES`: errors of a split lean to one side.
    """
    left, result = data.left, variances.copy()
    rate = ASSUMED_RATE / float(np.mean(list(ends.values())))
    result[len(PARTS) + DISTANCES.index("new_accelerator")] = rate**2
    limit = np.abs(left.errors) / np.where(left.errors > 0, *_ends(data, ends))
    for name, column in DRIFTS.items():
        k = DISTANCES.index(name)
        distance = left.distances[:, k]
        used = mask[left.rows] & (left.columns == column) & (distance > 0)
        if not used.any():
            continue
        others = result.copy()
        others[len(PARTS) + k] = 0.0
        rest = _deviations_without(data, mask, others, factors)
        missing = (limit**2 - rest**2)[used] / distance[used] ** 2  # variance for the run to lie within
        found = weighted_quantile(missing, data.independent[left.rows[used]], 0.9)
        result[len(PARTS) + k] = np.clip(found, LEAST_DRIFT[name] ** 2, MAX_DRIFT**2)
    return np.asarray(result)


class Rankings(NamedTuple):
    """Groups of at least three plans of one model on the same GPUs, each of shape (rankings,)."""

    weight: Floats
    drawn: Floats  # share of draws in which the first plan is near the best
    is_right: Floats  # whether it is, 0 or 1
    layouts: Floats  # that were compared
    group: Ints


def rankings(data: Residuals, known: Errors) -> Rankings:
    """Return every measured ranking, and how sure draws are of its first plan."""
    rows = []
    cut = data.coordinates
    measured = np.array([run.step_seconds or np.nan for run in data.runs])
    size = Counter(int(data.groups[group[0]]) for group in data.ranked)
    for group in data.ranked:
        plans = [data.runs[i].plan for i in group]
        mbs = np.array([plan.mbs for plan in plans])
        order = recommended_order(data.seconds[group], mbs, [plan.layout_values for plan in plans])
        group = group[order]
        shares = {name: np.array([float(data.cases[i].shares[name]) for i in group]) for name in COMPONENTS}
        factor = data.cases[group[0]].factor(known)
        drawn = draw_near_best(data.seconds[group], shares, cut[group], factor, known=known)
        probability = float(drawn[:, 0].mean())
        is_right = measured[group[0]] <= (1 + NEAR_BEST_SLOWDOWN) * measured[group].min()
        layouts = layouts_compared(data.seconds[group], cut[group])
        of_group = int(data.groups[group[0]])
        rows.append((size[of_group] ** -0.5, probability, float(is_right), layouts, of_group))
    return Rankings(*np.array(rows, np.float64).reshape(-1, 5).T)


def _calibrate_rankings(data: Residuals, known: Errors) -> Errors:
    """Scale the differences between plans until predicted probabilities of rankings match their hit rate.

    Then fit the log-odds (`ranking_probability`).
    """
    low, high = 0.5, 2.0
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        found = rankings(data, replace(known, apart=middle * known.apart))
        too_sure = np.average(found.drawn - found.is_right, weights=found.weight) > 0
        low, high = (middle, high) if too_sure else (low, middle)
    scaled = replace(known, apart=(low * high) ** 0.5 * known.apart)
    return with_odds(scaled, rankings(data, scaled))


def with_odds(known: Errors, found: Rankings) -> Errors:
    """Return the errors with the log-odds of rankings fitted to measured ones (Platt, 1999).

    With a prior of a slope of 1, no shift and no dependence on the number of layouts.
    """
    x = ranking_features(found.drawn, found.layouts)
    prior = np.array([1.0, 0.0, 0.0])
    line = prior
    for _ in range(ODDS_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(x @ line, -MAX_ODDS, MAX_ODDS)))
        pull = x.T @ (found.is_right - chance) - (line - prior) / ODDS_PRIOR**2
        curvature = (x.T * (chance * (1 - chance))) @ x + np.eye(len(line)) / ODDS_PRIOR**2
        line = line + np.linalg.solve(curvature, pull)
    slope, shift, layouts = line.tolist()
    fitted = replace(known, ranking_slope=slope, ranking_shift=shift, ranking_layouts=layouts)
    return replace(fitted, ranking_most=float(found.layouts.max(initial=1.0)))


def odds_left_out(found: Rankings, known: Errors) -> Floats:
    """Return the probabilities of rankings, those of each group by the log-odds of the others."""
    stated = np.empty(len(found.drawn))
    for group in np.unique(found.group):
        out = found.group == group
        others = with_odds(known, Rankings(*(column[~out] for column in found)))
        cases = zip(found.drawn[out].tolist(), found.layouts[out].tolist(), strict=True)
        stated[out] = [ranking_probability(drawn, int(layouts), others) for drawn, layouts in cases]
    return stated


_Fit: TypeAlias = tuple[
    float, float, dict[str, float], Floats
]  # likelihood of pairs, reach, factors of stacks, variances of parts and of distances


def _fit(data: Residuals, mask: Bools, start: Errors | None, reach: float) -> _Fit:
    """Fit variances and factors of stacks for a reach; also return the log-likelihood of the pairs."""
    factors = dict.fromkeys(sorted(set(data.stacks[mask].tolist())), 1.0)
    variances = np.full(len(PARTS) + len(DISTANCES), 0.005)
    if start is not None:
        factors = {name: start.stacks.get(name, 1.0) for name in factors}
        deviations = [getattr(start, name) for name in PARTS] + [start.drifts[name] for name in DISTANCES]
        variances = np.square(deviations)
    for _ in range(ALTERNATIONS[start is not None]):
        variances = _variances(data, mask, factors, variances, reach)
        factors = _factors(data, mask, variances, factors)
    differences, size, weights = _differences(data, mask, factors, variances, reach)
    log_likelihood = -np.log(size) - (DEGREES_OF_FREEDOM + 1) / 2 * np.log1p(
        differences**2 / size**2 / DEGREES_OF_FREEDOM
    )
    return float(weights @ log_likelihood), reach, factors, variances


def _differences(
    data: Residuals, mask: Bools, factors: Mapping[str, float], variances: Floats, reach: float
) -> tuple[Floats, Floats, Floats]:
    """Return differences of errors in pairs, their standard deviations, and weights, of shape (pairs,)."""
    pairs = data.pairs
    used = mask[pairs.first] & mask[pairs.second]
    scale = data.by_stack(factors)[pairs.first[used]]
    size = scale * (pairs.design(reach)[used] @ variances[: len(PARTS)]) ** 0.5
    return (data.left_out[pairs.first] - data.left_out[pairs.second])[used], size, pairs.weights[used]


def _variances(
    data: Residuals, mask: Bools, factors: Mapping[str, float], start: Floats, reach: float
) -> Floats:
    """Fit the variances of parts and distances by multiplicative steps that raise the likelihood."""
    pairs, left = data.pairs, data.left
    used, out = mask[pairs.first] & mask[pairs.second], mask[left.rows]
    rows = left.rows[out]
    no_distance = np.zeros((used.sum(), len(DISTANCES)))
    of_parts = np.vstack((data.design[rows], pairs.design(reach)[used]))
    scale = data.by_stack(factors)[np.concatenate((rows, pairs.first[used]))] ** 2
    design = np.hstack((of_parts * scale[:, None], np.vstack((left.distances[out] ** 2, no_distance))))
    differences = (data.left_out[pairs.first] - data.left_out[pairs.second])[used]
    squares = np.concatenate((left.errors[out] ** 2, differences**2))
    by_column = np.where(left.columns[out] == LEFT_OUT, 1.0, SPLIT_WEIGHT)
    weights = np.concatenate((data.weights[rows] * by_column, pairs.weights[used]))
    least = np.array([1e-8] * len(PARTS) + [max(LEAST_DRIFT[name] ** 2, 1e-8) for name in DISTANCES])
    most = np.array([np.inf] * len(PARTS) + [MAX_DRIFT**2] * len(DISTANCES))
    result = np.maximum(start, least)
    for _ in range(STEPS):
        total = np.maximum(design @ result, 1e-8)
        heavy = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + squares / total)
        pull = (weights * heavy * squares / total**2) @ design
        result = np.clip(result * pull / np.maximum((weights / total) @ design, 1e-30), least, most)
    return np.asarray(result)


def _squares(
    data: Residuals, mask: Bools, variances: Floats, factors: Mapping[str, float]
) -> tuple[Any, Any]:
    """Return weight and robust mean squared standardised error of every stack in every group.

    Both have shape (cells,), see `Residuals.cells`; a weight is 0 where no run is used. Of the squared error
    that part is taken which the distance from measured runs does not explain.
    """
    left = data.left
    used = mask[left.rows] & (left.columns == LEFT_OUT)
    rows = left.rows[used]
    inside = data.design[rows] @ variances[: len(PARTS)]
    outside = left.distances[used] ** 2 @ variances[len(PARTS) :]
    scaled = data.by_stack(factors)[rows] ** 2 * inside
    squares = left.errors[used] ** 2
    heavy = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + squares / (scaled + outside))
    squares = heavy * squares / inside * scaled / (scaled + outside)
    stacks, cells = data.cells
    weight, total = (
        np.bincount(cells[rows], each, len(stacks))
        for each in (data.weights[rows], data.weights[rows] * squares)
    )
    return weight, total / np.where(weight > 0, weight, 1.0)


def _factors(data: Residuals, mask: Bools, variances: Floats, near: Mapping[str, float]) -> dict[str, float]:
    """Return the deviation of each stack relative to all, shrunk towards 1."""
    weight, squares = _squares(data, mask, variances, near)
    stacks = np.where(weight > 0, data.cells[0], "")
    return {name: _factor(weight[stacks == name], squares[stacks == name]) for name in near}


def _tail_factors(
    data: Residuals, mask: Bools, factors: Mapping[str, float], variances: Floats
) -> dict[str, float]:
    """Return the factors of stacks such that 90 % of the runs of each lie within, shrunk towards `factors`.

    Mean squares are of the middle of errors, intervals end in their tails.
    """
    left = data.left
    used = mask[left.rows] & (left.columns == LEFT_OUT)
    rows = left.rows[used]
    inside = data.by_stack(factors)[rows] ** 2 * (data.design[rows] @ variances[: len(PARTS)])
    outside = left.distances[used] ** 2 @ variances[len(PARTS) :]
    standard = np.abs(left.errors[used]) / (inside + outside) ** 0.5
    usual = weighted_quantile(standard, data.independent[rows], NOMINAL)
    result = dict(factors)
    for name in factors:
        of_stack = data.stacks[rows] == name
        n = len(set(data.groups[rows][of_stack].tolist()))
        if n >= MIN_GROUPS:
            tail = weighted_quantile(standard[of_stack], data.independent[rows[of_stack]], NOMINAL) / usual
            tail = float(np.clip(tail, 1 / MAX_TAIL, MAX_TAIL))
            result[name] = factors[name] * ((n * tail**2 + PRIOR_GROUPS) / (n + PRIOR_GROUPS)) ** 0.5
    return result


def _factor(weights: Floats, squares: Floats) -> float:
    """Return the factor of a stack from the mean squares of its groups."""
    n = len(weights)
    return float(((n * np.average(squares, weights=weights) + PRIOR_GROUPS) / (n + PRIOR_GROUPS)) ** 0.5)


def _deviations_without(
    data: Residuals, mask: Bools, variances: Floats, factors: Mapping[str, float]
) -> Floats:
    """Return the deviation of each error of `Left`; the factor of its stack is that of other groups."""
    weight, squares = _squares(data, mask, variances, factors)
    (stacks, cells), unknown, left = data.cells, _others(factors), data.left
    others = np.full(len(stacks), unknown)
    for name in factors:
        used = (stacks == name) & (weight > 0)
        n, weights, sums = used.sum() - 1, weight[used], (weight * squares)[used]
        if n:
            mean = (sums.sum() - sums) / (weights.sum() - weights)
            others[used] = ((n * mean + PRIOR_GROUPS) / (n + PRIOR_GROUPS)) ** 0.5
    factor = others[cells[left.rows]]
    return deviations(data, np.where(left.columns == "without_stack", unknown, factor), variances)


def deviations(data: Residuals, factor: Floats, variances: Floats) -> Floats:
    """Return the deviation of each error of `Left` for factors of its stacks."""
    left = data.left
    inside = data.design[left.rows] @ variances[: len(PARTS)]
    return np.asarray((factor**2 * inside + left.distances**2 @ variances[len(PARTS) :]) ** 0.5)


def _others(factors: Mapping[str, float]) -> float:
    """Return the factor of unknown software: the median of all factors."""
    return float(np.median(list(factors.values())))


def _known(data: Residuals, mask: Bools, factors: Mapping[str, float], variances: Floats) -> Errors:
    """Return the fitted constants with memory errors and evidence; quantiles are placeholders."""
    numbers = dict(zip((*PARTS, *DISTANCES), map(float, variances**0.5), strict=True))
    left_out = set(data.groups[~mask & (data.weights > 0)].tolist())
    memory = memory_errors(data, ~np.isin(data.groups, list(left_out)))
    return Errors(
        **{name: numbers[name] for name in PARTS},
        drifts={name: numbers[name] for name in DISTANCES},
        stacks=dict(factors),
        other_stacks=_others(factors),
        **dict.fromkeys(QUANTILES, NORMAL_90_PERCENT),
        apart=NORMAL_90_PERCENT,
        reach=1.0,
        ranking_slope=1.0,
        ranking_shift=0.0,
        ranking_layouts=0.0,
        ranking_most=1.0,
        evidence=evidence(data, data.fitted & mask),
        software=NO_SOFTWARE,
        memory=memory.ninety,
        memory_stacks=memory.stacks,
        memory_shift=memory.shift,
        memory_shifts=memory.shifts,
        memory_new_stack=MEMORY_NEW_STACK,
    )


class MemoryErrors(NamedTuple):
    """Errors of predicted memory: of all software together, and by stack.

    Parameters
    ----------
    shift, ninety : float
        Median of the logarithm of measured over predicted memory, and what 90 % of the errors around it are
        within: of software without measured memory.
    shifts, stacks : mapping of str to float
        The same of each stack.
    """

    shift: float
    ninety: float
    shifts: dict[str, float]
    stacks: dict[str, float]


def memory_errors(data: Residuals, mask: Bools) -> MemoryErrors:
    """Return the errors of memory.

    Those of a stack are the median and the quantile of its own errors, shrunk towards the median of all
    stacks with the weight of `PRIOR_GROUPS`.

    Parameters
    ----------
    data : Residuals
        Runs with their errors.
    mask : array of bool, shape (runs,)
        Runs to use.
    """
    used = mask & ~np.isnan(data.memory)
    size = np.bincount(data.groups[used], minlength=int(data.groups.max()) + 1)
    weights = np.asarray(size[data.groups[used]] ** -0.5, np.float64)
    above, stacks, groups = -data.memory[used], data.stacks[used], data.groups[used]
    names = [str(name) for name in dict.fromkeys(stacks.tolist())]
    n = {name: len(set(groups[stacks == name].tolist())) for name in names}
    medians = {name: weighted_quantile(above[stacks == name], weights[stacks == name], 0.5) for name in names}
    shift = float(np.median(list(medians.values())))
    shifts = {
        name: float((n[name] * medians[name] + PRIOR_GROUPS * shift) / (n[name] + PRIOR_GROUPS))
        for name in names
    }
    own = {
        name: weighted_quantile(
            np.abs(above[stacks == name] - shifts[name]), weights[stacks == name], NOMINAL
        )
        for name in names
    }
    usual = float(np.median(list(own.values())))
    shrunk = {
        name: float(((n[name] * own[name] ** 2 + PRIOR_GROUPS * usual**2) / (n[name] + PRIOR_GROUPS)) ** 0.5)
        for name in names
    }
    return MemoryErrors(shift, usual, shifts, shrunk)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """Return the weighted quantile: the lowest value with at least `share` of the weights at or below it."""
    return float(np.quantile(values, share, weights=weights, method="inverted_cdf"))


@dataclass(frozen=True, eq=False)
class Held:
    """Intervals of runs in every way they are left out, estimated without the runs of their group.

    Parameters
    ----------
    rows, columns : array, shape (left,)
        As in `Left`.
    errors, faster, slower : array, shape (left,)
        Logarithm of predicted over measured time, over the lower end of the interval, and of the upper end
        over it.
    levels : array, shape (left,)
        Level of the interval that ends at the measured time: of 90 % intervals 0.9.
    folds : tuple of Fold
        The error models that the intervals are of.
    """

    rows: Ints
    columns: Any
    errors: Floats
    faster: Floats
    slower: Floats
    levels: Floats
    folds: tuple["Fold", ...] = ()

    @property
    def beyond(self) -> Floats:
        """How far the measured time lies outside of the interval, shape (left,)."""
        return np.maximum(np.maximum(self.errors - self.faster, -self.slower - self.errors), 0.0)

    @property
    def inside(self) -> Bools:
        """Whether the measured time lies in the interval, shape (left,)."""
        return np.asarray(self.beyond <= ROUNDING)


class Fold(NamedTuple):
    """Error model estimated without a tenth of the groups, and whether a run is in it, shape (runs,)."""

    out: Bools
    known: Errors


def held(data: Residuals, known: Errors | None = None) -> Held:
    """Return the intervals of all runs left out, a tenth of the groups left out of the error model in turn.

    Neither the constants of the prediction nor the deviation of its error know the group of a run; the
    deviations to the ends of intervals, those of each kind of model, are of all such runs together.
    """
    left = data.left
    folds = _folds(data, known or estimate_errors(data))
    size = _held_deviations(data, folds)
    quantiles = _quantiles(data, size)
    faster, slower = _ends(data, quantiles)
    numbers: dict[str, Any] = dict(quantiles)
    with_ends = tuple(Fold(out, replace(fitted, **numbers)) for out, fitted in folds)
    faster = faster * size
    slower = slower * size
    ends = np.where(left.errors > 0, left.errors / faster, -left.errors / slower)
    levels = 2 * student_below(ends) - 1
    return Held(left.rows, left.columns, left.errors, faster, slower, levels, with_ends)


def _folds(data: Residuals, start: Errors) -> list[Fold]:
    """Return the error models without each tenth of the groups."""
    groups = sorted(set(data.groups[data.weights > 0].tolist()))
    tenths = [np.isin(data.groups, groups[fold::FOLDS]) for fold in range(FOLDS)]
    return [Fold(out, estimate_errors(data, out, start)) for out in tenths]


def _held_deviations(data: Residuals, folds: Sequence[Fold]) -> Floats:
    """Return the deviation of each error of `Left` without its tenth of the groups."""
    left = data.left
    size = np.zeros(len(data.left.rows))
    for out, fitted in folds:
        values = [getattr(fitted, name) for name in PARTS] + [fitted.drifts[name] for name in DISTANCES]
        factor = data.by_stack(fitted.stacks, fitted.other_stacks)[left.rows]
        factor = np.where(left.columns == "without_stack", fitted.other_stacks, factor)
        mine = out[left.rows]
        size[mine] = deviations(data, factor, np.square(values))[mine]
    return size


@dataclass(frozen=True)
class Coverage:
    """How well intervals of some runs hold.

    Parameters
    ----------
    n, groups : int
        Runs, and their groups (source x model x accelerator).
    share : float
        Share of the measured times that lie inside; composed rows count as what they are composed of.
    rejected : bool or None
        Whether 90 % are rejected at 5 % by a bootstrap over groups; None with fewer than `MIN_GROUPS`.
    width : float
        Half the median of the logarithm of the upper end over the lower.
    score : float
        Mean interval score (Winkler, 1972) of logarithms: lower is better.
    """

    n: int
    groups: int
    share: float
    rejected: bool | None
    width: float
    score: float


def coverage(data: Residuals, of: Held, used: Bools) -> Coverage:
    """Return how well the intervals of some of the runs left out hold, shape (left,)."""
    rows, inside, width = of.rows[used], of.inside[used], (of.faster + of.slower)[used]
    weights = data.independent[rows]
    names, place = np.unique(data.groups[rows], return_inverse=True)
    total, held_by = (np.bincount(place, each).astype(np.float64) for each in (weights, weights * inside))
    return Coverage(
        n=len(rows),
        groups=len(names),
        share=float(held_by.sum() / total.sum()),
        rejected=_is_rejected(held_by, total) if len(names) >= MIN_GROUPS else None,
        width=float(np.median(width)) / 2,
        score=float(np.average(width + 2 / (1 - NOMINAL) * of.beyond[used], weights=weights)),
    )


def _is_rejected(inside: Floats, total: Floats) -> bool:
    """Return whether a bootstrap over groups rejects 90 %; where all lie inside, whether luck is unlikely.

    `inside, total`: weight of the runs of each group that lie inside, and of all, shape (groups,).
    """
    if np.isclose(inside.sum(), total.sum()):
        return bool(NOMINAL ** len(total) < REJECTED / 2)
    low, high = _sampled(inside, total, 1 - REJECTED)
    return not low <= NOMINAL <= high


def _sampled(happened: Floats, total: Floats, share: float) -> tuple[float, float]:
    """Return what a share of bootstraps over groups lies within.

    `happened, total`: weight of the cases of each group that happened, and of all, shape (groups,).
    """
    n = len(total)
    drawn = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
    ends = ((1 - share) / 2, (1 + share) / 2)
    low, high = np.quantile(happened[drawn].sum(axis=1) / total[drawn].sum(axis=1), ends)
    return float(low), float(high)


@dataclass(frozen=True)
class Reliability:
    """What was stated of some cases, and how many of them happened.

    Parameters
    ----------
    stated, happened : float
        Mean stated probability, and share that happened.
    low, high : float
        Band of the share: 90 % of bootstraps over groups.
    n, groups : int
        Cases, and their groups (source x model x accelerator).
    """

    stated: float
    happened: float
    low: float
    high: float
    n: int
    groups: int

    @property
    def holds(self) -> bool:
        """Whether what was stated lies in the band."""
        return self.low <= self.stated <= self.high


def reliability(chances: "Chances", most: int = MAX_BINS) -> list[Reliability]:
    """Return how stated probabilities hold, in bins of equal numbers.

    There are at most so many bins, each of at least `MIN_CASES`.
    """
    bins = min(max(len(chances.stated) // MIN_CASES, 1), most)
    order = np.argsort(chances.stated, kind="stable")
    ones = np.ones(len(order))
    return [_reliability(chances, part, ones) for part in np.array_split(order, bins) if len(part)]


def _reliability(chances: "Chances", part: Ints, weights: Floats) -> Reliability:
    """Return how the stated probabilities of some cases hold."""
    weights = weights[part]
    happened = chances.happened[part]
    names, place = np.unique(chances.groups[part], return_inverse=True)
    total, true = (np.bincount(place, each).astype(np.float64) for each in (weights, weights * happened))
    low, high = _sampled(true, total, BAND)
    stated = float(np.average(chances.stated[part], weights=weights))
    return Reliability(stated, float(true.sum() / total.sum()), low, high, len(part), len(names))


def levels_reliability(data: Residuals, of: Held, used: Bools) -> list[Reliability]:
    """Return how intervals of each of `LEVELS` of some of the runs left out hold, shape (left,)."""
    rows = of.rows[used]
    groups = data.groups[rows]
    everything = np.arange(len(rows))
    found = []
    for level in LEVELS:
        stated = np.full(len(rows), level)
        inside = (of.levels[used] <= level + ROUNDING).astype(np.float64)
        chances = Chances(stated, inside, groups)
        found.append(_reliability(chances, everything, data.independent[rows]))
    return found


class Chances(NamedTuple):
    """Stated probabilities, whether what they are of happened, and groups, each of shape (cases,)."""

    stated: Floats
    happened: Floats
    groups: Ints


def memory_chances(data: Residuals, tests: bool = False) -> Chances:
    """Return stated probabilities that measured runs fit in capacities around them, and whether they do.

    The capacities are those at which the stated probability is each of `CHANCES`; each run's group is left
    out of the errors of memory. `tests`: of Megatron-LM's own tests alone, of which each is a group.
    """
    judged = np.array([run.last_rank or not tests for run in data.runs])
    known = np.flatnonzero(~np.isnan(data.memory) & judged)
    stated = []
    fits = []
    groups = []
    for group in sorted(set(data.groups[known].tolist())):
        known_errors = memory_errors(data, data.groups != group)
        for i in known[data.groups[known] == group].tolist():
            new = float(np.hypot(known_errors.ninety, MEMORY_NEW_STACK))
            ninety = known_errors.stacks.get(data.cases[i].stack, new)
            shift = known_errors.shifts.get(data.cases[i].stack, known_errors.shift)
            for chance in CHANCES:
                room = shift + ninety * student_point(chance) / student_point(0.95)  # as `fits_probability`
                stated.append(chance)
                fits.append(float(-data.memory[i] <= room))
                groups.append(group)
    return Chances(np.array(stated), np.array(fits), np.array(groups))
