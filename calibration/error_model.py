"""Estimate of the error model in `traincast.step.uncertainty` from runs left out of fits, and its coverage.

Variances maximise a composite likelihood: of the error of every run, and of the difference of errors of every
pair of runs that differ only in their plan. Errors have heavy tails (Student's t with 4 degrees of freedom);
a group of n runs has weight √n.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from left_out_residuals import PARTS, Residuals
from traincast.core.quantities import Bools, Floats, Ints
from traincast.step.uncertainty import (
    COMPONENTS,
    NEAR_BEST_SLOWDOWN,
    NORMAL_90_PERCENT,
    SIZES,
    Errors,
    Span,
    deviation,
    first_within,
    plan_coordinates,
)

DEGREES_OF_FREEDOM: Final = 4.0  # of Student's t
PRIOR_GROUPS: Final = 3.0  # weight of the prior that a stack is like all others [groups]
ALTERNATIONS: Final = (
    15,
    3,
)  # alternations of variances and factors of stacks: from scratch, and from a previous fit
STEPS: Final = 25
ASSUMED: Final = {  # docs/uncertainty.md
    "new_stack": 0.08,
    "new_accelerator": 0.08,
    "new_layers": 0.25,
    "memory_new_stack": 0.08,
}
MAX_NEW_STACK: Final = 0.3
DRIFT_BOUNDS: Final = (0.05, 0.25)  # lowest and highest, per factor of e in size
REACH_CANDIDATES: Final = (
    0.5,
    1.0,
    2.0,
    4.0,
    8.0,
)  # correlation lengths between plans; the likeliest is taken
MAX_UNRANKED_PLANS: Final = 2  # a ranking has more plans than this
HALVINGS: Final = 5  # bisections of the scale of differences
MIN_GROUPS_FOR_DRIFT: Final = 3  # groups needed to estimate a drift


def estimate_errors(data: Residuals, without: int | None = None, start: Errors | None = None) -> Errors:
    """Estimate the constants of the error model.

    Parameters
    ----------
    data : Residuals
        Runs with their errors.
    without : int, optional
        Group to leave out.
    start : Errors, optional
        Initial values of the constants.
    """
    mask = (data.weights > 0) & (data.groups != (-1 if without is None else without))
    fits = [
        _fit(data, mask, start, reach) for reach in (REACH_CANDIDATES if start is None else (start.reach,))
    ]
    _, reach, factors, variances = max(fits, key=lambda result: result[0])
    size = _deviations_without(data, mask, variances, factors)
    quantile = weighted_quantile(np.abs(data.left_out[mask]) / size, data.weights[mask], 0.9)
    differences, size, weights = _differences(data, mask, factors, variances, reach)
    apart = weighted_quantile(np.abs(differences) / size, weights, 0.9)
    known = replace(_known(data, mask, factors, variances), quantile=quantile, apart=apart, reach=reach)
    return (
        known
        if start is not None
        else _calibrate_rankings(data, replace(known, new_stack=_new_stack(data, variances, known)))
    )


def _new_stack(data: Residuals, variances: Floats, known: Errors) -> float:
    """Return the extra deviation of software without runs: 90 % of runs predicted without theirs lie within.

    Without such predictions it is the assumed value.
    """
    predicted = ~np.isnan(data.without_stack) & (data.weights > 0)
    if not predicted.any():
        return ASSUMED["new_stack"]
    squares, common = (
        data.without_stack[predicted] ** 2,
        known.other_stacks**2 * (data.design[predicted] @ variances),
    )
    missing = squares / known.quantile**2 - common  # variance missing for the run to lie within
    return float(
        np.clip(weighted_quantile(missing, data.weights[predicted], 0.9), 0, MAX_NEW_STACK**2) ** 0.5
    )


def rankings(data: Residuals, known: Errors) -> Floats:
    """Return weight, probability that the first plan is near the best, and whether it is, by ranking.

    A ranking is a group of at least three plans of one model on the same GPUs.
    """
    rows = []
    cut = plan_coordinates([run.plan for run in data.runs])
    measured = np.array([run.step_seconds or np.nan for run in data.runs])
    groups = [group for group in data.alike if len(np.unique(cut[group], axis=0)) > MAX_UNRANKED_PLANS]
    size = Counter(int(data.groups[group[0]]) for group in groups)
    for group in groups:
        shares = {name: np.array([float(data.cases[i].shares[name]) for i in group]) for name in COMPONENTS}
        probability = first_within(
            data.seconds[group], shares, cut[group], data.cases[group[0]].factor(known), known=known
        )
        is_right = measured[group[0]] <= (1 + NEAR_BEST_SLOWDOWN) * measured[group].min()
        rows.append((size[int(data.groups[group[0]])] ** -0.5, probability, float(is_right)))
    return np.array(rows).reshape(-1, 3)


def _calibrate_rankings(data: Residuals, known: Errors) -> Errors:
    """Scale the differences between plans until predicted probabilities of rankings match their hit rate."""
    low, high = 0.5, 2.0
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        weight, probability, is_right = rankings(data, replace(known, apart=middle * known.apart)).T
        low, high = (
            (middle, high)
            if np.average(probability, weights=weight) > np.average(is_right, weights=weight)
            else (low, middle)
        )
    return replace(known, apart=(low * high) ** 0.5 * known.apart)


_Fit: TypeAlias = tuple[
    float, float, dict[str, float], Floats
]  # likelihood of pairs, reach, factors of stacks, variances


def _fit(data: Residuals, mask: Bools, start: Errors | None, reach: float) -> _Fit:
    """Fit variances and factors of stacks for a reach; also return the log-likelihood of the pairs."""
    factors = dict.fromkeys(sorted(set(data.stacks[mask].tolist())), 1.0)
    variances = np.full(len(PARTS), 0.005)
    if start is not None:
        factors = {name: start.stacks.get(name, 1.0) for name in factors}
        variances = np.array([getattr(start, name) ** 2 for name in PARTS])
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
    scale = np.array([factors[name] for name in data.stacks[pairs.first[used]]])
    size = scale * (pairs.design(reach)[used] @ variances) ** 0.5
    return (data.left_out[pairs.first] - data.left_out[pairs.second])[used], size, pairs.weights[used]


def _variances(
    data: Residuals, mask: Bools, factors: Mapping[str, float], start: Floats, reach: float
) -> Floats:
    """Fit the variances of the parts by multiplicative steps that raise the likelihood."""
    pairs = data.pairs
    used = mask[pairs.first] & mask[pairs.second]
    design = np.vstack((data.design[mask], pairs.design(reach)[used]))
    squares = np.concatenate(
        (data.left_out[mask] ** 2, (data.left_out[pairs.first] - data.left_out[pairs.second])[used] ** 2)
    )
    weights = np.concatenate((data.weights[mask], pairs.weights[used]))
    scale = np.array(
        [factors[name] ** 2 for name in np.concatenate((data.stacks[mask], data.stacks[pairs.first[used]]))]
    )
    result = start
    for _ in range(STEPS):
        total = np.maximum(scale * (design @ result), 1e-8)
        heavy = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + squares / total)
        pull = (weights * scale * heavy * squares / total**2) @ design
        result = np.maximum(result * pull / np.maximum((weights * scale / total) @ design, 1e-30), 1e-8)
    return result


def _squares(
    data: Residuals, mask: Bools, variances: Floats, factors: Mapping[str, float]
) -> tuple[Any, Any, Any]:
    """Return place, weight and robust mean squared standardised error of every stack in every group."""
    squares = data.left_out[mask] ** 2 / (data.design[mask] @ variances)
    squares *= (DEGREES_OF_FREEDOM + 1) / (
        DEGREES_OF_FREEDOM + squares / np.array([factors[name] ** 2 for name in data.stacks[mask]])
    )
    names = list(zip(data.stacks[mask].tolist(), data.groups[mask].tolist(), strict=True))
    places = {name: k for k, name in enumerate(dict.fromkeys(names))}
    place_of_run = np.array([places[name] for name in names], np.int64)
    weight = np.bincount(place_of_run, data.weights[mask])
    return places, weight, np.bincount(place_of_run, data.weights[mask] * squares) / weight


def _factors(data: Residuals, mask: Bools, variances: Floats, near: Mapping[str, float]) -> dict[str, float]:
    """Return the deviation of each stack relative to all, shrunk towards 1."""
    places, weight, squares = _squares(data, mask, variances, near)
    stacks = np.array([stack for stack, _ in places])
    return {
        str(name): _factor(weight[stacks == name], squares[stacks == name])
        for name in dict.fromkeys(stacks.tolist())
    }


def _factor(weights: Floats, squares: Floats) -> float:
    """Return the factor of a stack from the mean squares of its groups."""
    n = len(weights)
    return float(((n * np.average(squares, weights=weights) + PRIOR_GROUPS) / (n + PRIOR_GROUPS)) ** 0.5)


def _deviations_without(
    data: Residuals, mask: Bools, variances: Floats, factors: Mapping[str, float]
) -> Floats:
    """Return the deviation of each run's error; the factor of its stack is that of other groups."""
    places, weight, squares = _squares(data, mask, variances, factors)
    stacks, unknown = np.array([stack for stack, _ in places]), _others(factors)
    parts: dict[Any, tuple[float, float]] = {}
    for k, (stack, group) in enumerate(places):
        others = (stacks == stack) & (np.arange(len(stacks)) != k)
        parts[stack, group] = (
            (_factor(weight[others], squares[others]), 0.0)
            if others.any()
            else (unknown, ASSUMED["new_stack"])
        )
    values = np.array(
        [parts[name] for name in zip(data.stacks[mask].tolist(), data.groups[mask].tolist(), strict=True)]
    )
    return np.asarray((values[:, 0] ** 2 * (data.design[mask] @ variances) + values[:, 1] ** 2) ** 0.5)


def _others(factors: Mapping[str, float]) -> float:
    """Return the factor of unknown software: the root mean square of all factors."""
    return float(np.mean([factor**2 for factor in factors.values()]) ** 0.5)


def _known(data: Residuals, mask: Bools, factors: Mapping[str, float], variances: Floats) -> Errors:
    """Return the fitted constants with memory errors, sizes and drifts; the quantiles are placeholders."""
    deviations = dict(zip(PARTS, map(float, variances**0.5), strict=True))
    used = np.flatnonzero(mask)
    left_out = set(data.groups[~mask & (data.weights > 0)].tolist())
    memory, memory_stacks = memory_errors(data, ~np.isin(data.groups, list(left_out)))
    return Errors(
        **deviations,
        stacks=dict(factors),
        other_stacks=_others(factors),
        accelerators=frozenset(data.cases[i].accelerator for i in used),
        quantile=NORMAL_90_PERCENT,
        apart=NORMAL_90_PERCENT,
        reach=1.0,
        dense=_spans(data, [i for i in used.tolist() if not data.cases[i].moe]),
        moe=_spans(data, [i for i in used.tolist() if data.cases[i].moe]),
        memory=memory,
        memory_stacks=memory_stacks,
        **ASSUMED,
    )


def memory_errors(data: Residuals, mask: Bools) -> tuple[float, dict[str, float]]:
    """Return the 90 % bound of memory errors: of software without measured memory, and of each other stack.

    Parameters
    ----------
    data : Residuals
        Runs with their errors.
    mask : array of bool, shape (runs,)
        Runs to use.
    """
    memory = replace(data, left_out=data.memory)
    used = mask & (memory.weights > 0)
    weights, squares = memory.weights[used], memory.left_out[used] ** 2
    factors = dict.fromkeys(memory.stacks[used].tolist(), 1.0)
    variances = np.array([0.01 * (name == "own") for name in PARTS])
    for _ in range(ALTERNATIONS[0]):
        standard = (
            squares
            / (memory.design[used] @ variances)
            / np.array([factors[name] ** 2 for name in memory.stacks[used]])
        )
        variances = variances * np.average(
            (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + standard) * standard, weights=weights
        )
        factors = _factors(memory, used, variances, factors)
    size = _deviations_without(memory, used, variances, factors)
    reach = weighted_quantile(squares**0.5 / size, weights, 0.9) * float(variances.max()) ** 0.5
    return reach * _others(factors), {name: reach * factor for name, factor in factors.items()}


def _spans(data: Residuals, where: Sequence[int]) -> dict[str, Span]:
    """Return the range of sizes of runs, and the drift of errors beyond it, by size."""
    spans = {}
    for name in SIZES:
        sizes = np.array([float(data.cases[i].sizes[name]) for i in where])
        spans[name] = Span(
            float(sizes.min()), float(sizes.max()), _drift(data, np.array(where), np.log(sizes))
        )
    return spans


def _drift(data: Residuals, where: Ints, x: Floats) -> float:
    """Return the root mean square over stacks of the slope of errors by the logarithm of size."""
    slopes, weights = [], []
    for name in sorted(set(data.stacks[where])):
        of_stack = data.stacks[where] == name
        rows = where[of_stack]
        if len(set(data.groups[rows].tolist())) >= MIN_GROUPS_FOR_DRIFT:
            weight = data.weights[rows]
            centred = x[of_stack] - np.average(x[of_stack], weights=weight)
            spread = float(np.average(centred**2, weights=weight))
            if spread > 0.1:  # a third of a factor of e
                slopes.append(float(np.average(centred * data.left_out[rows], weights=weight)) / spread)
                weights.append(float(weight.sum()))
    rms = float(np.average(np.square(slopes), weights=weights) ** 0.5) if slopes else 0.0
    return float(np.clip(rms, *DRIFT_BOUNDS))


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """Return the weighted quantile: the lowest value with at least `share` of the weights at or below it."""
    return float(np.quantile(values, share, weights=weights, method="inverted_cdf"))


def coverage(data: Residuals) -> Iterator[tuple[int, bool]]:
    """Yield for every run whether its measured time lies in the predicted interval.

    The constants of prediction and error model are fitted without the run's group.
    """
    start = estimate_errors(data)
    for group in sorted(set(data.groups[data.weights > 0].tolist())):
        known = estimate_errors(data, group, start)
        for i in np.flatnonzero((data.groups == group) & (data.weights > 0)).tolist():
            yield i, bool(abs(data.left_out[i]) <= known.quantile * float(deviation(data.cases[i], known)))
