"""The constants of `traincast.step.uncertainty`, estimated from runs that were left out of the fits, and how good they are.

Variances are those of a composite likelihood: every run says how large its error is, every pair of runs that differ only in their
plan how far their errors are apart. Errors have heavy tails (Student's t with 4 degrees of freedom); a group of n runs counts √n.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from left_out_residuals import PARTS, Residuals
from traincast.core.quantities import Bools, Floats, Ints
from traincast.step.uncertainty import COMPONENTS, NINETY, SIZES, WITHIN, Errors, Span, cuts, deviation, first_within

TAIL: Final = 4.0  # degrees of freedom of Student's t
BELIEVED: Final = 3.0  # groups that the belief that a stack is like all others counts as
PASSES: Final = (15, 3)  # of the variances and the factors of stacks, one after the other: from nothing, and from a fit
STEPS: Final = 25
ASSUMED: Final = {"new_stack": 0.08, "new_accelerator": 0.08, "memory_new_stack": 0.08}  # docs/uncertainty.md
MOST_ADDED: Final = 0.3
DRIFT: Final = (0.05, 0.25)  # least and most per factor of e
REACHES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the likeness of plans, of which the likeliest is taken
MANY: Final = 2  # plans that make a ranking, at least so many and one more
HALVINGS: Final = 5  # until a scale is found
LEAST: Final = 3  # groups that a drift can be seen in


def estimate_errors(data: Residuals, without: int | None = None, start: Errors | None = None) -> Errors:
    """The constants of the error model.

    Parameters
    ----------
    data : Residuals
        Runs with their errors.
    without : int, optional
        A group that is left out.
    start : Errors, optional
        Constants that are near.
    """
    mask = (data.weights > 0) & (data.groups != (-1 if without is None else without))
    tried = [_fit(data, mask, start, reach) for reach in (REACHES if start is None else (start.reach,))]
    _, reach, factors, variances = max(tried, key=lambda one: one[0])
    size = _deviations_without(data, mask, variances, factors)
    quantile = weighted_quantile(np.abs(data.left_out[mask]) / size, data.weights[mask], 0.9)
    off, size, weights = _differences(data, mask, factors, variances, reach)
    apart = weighted_quantile(np.abs(off) / size, weights, 0.9)
    found = replace(_known(data, mask, factors, variances), quantile=quantile, apart=apart, reach=reach)
    return found if start is not None else _with_sure_rankings(data, replace(found, new_stack=_new_stack(data, variances, found)))


def _new_stack(data: Residuals, variances: Floats, known: Errors) -> float:
    """What software without runs adds: so much that 90 % of runs lie within that are predicted without all runs of theirs.

    The assumed value where no run was predicted so.
    """
    told = ~np.isnan(data.without_stack) & (data.weights > 0)
    if not told.any():
        return ASSUMED["new_stack"]
    squares, common = data.without_stack[told] ** 2, known.other_stacks**2 * (data.design[told] @ variances)
    beyond = squares / known.quantile**2 - common  # variance that is missing for the run to lie within
    return float(np.clip(weighted_quantile(beyond, data.weights[told], 0.9), 0, MOST_ADDED**2) ** 0.5)


def rankings(data: Residuals, known: Errors) -> Floats:
    """How sure rankings are, and how right: rows of weight, probability that the first is within 3 % of the best, whether it is.

    One row for each group of at least three plans of one model on the same GPUs.
    """
    found = []
    cut = cuts([run.plan for run in data.runs])
    measured = np.array([run.step_seconds or np.nan for run in data.runs])
    several = [some for some in data.alike if len(np.unique(cut[some], axis=0)) > MANY]
    size = Counter(int(data.groups[some[0]]) for some in several)
    for some in several:
        shares = {name: np.array([float(data.cases[i].shares[name]) for i in some]) for name in COMPONENTS}
        sure = first_within(data.seconds[some], shares, cut[some], data.cases[some[0]].factor(known), known=known)
        right = measured[some[0]] <= (1 + WITHIN) * measured[some].min()
        found.append((size[int(data.groups[some[0]])] ** -0.5, sure, float(right)))
    return np.array(found).reshape(-1, 3)


def _with_sure_rankings(data: Residuals, known: Errors) -> Errors:
    """The same with differences of plans so large that rankings are as sure, on the mean, as they are right; at most doubled."""
    low, high = 0.5, 2.0
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        weight, sure, right = rankings(data, replace(known, apart=middle * known.apart)).T
        low, high = (middle, high) if np.average(sure, weights=weight) > np.average(right, weights=weight) else (low, middle)
    return replace(known, apart=(low * high) ** 0.5 * known.apart)


_Fit: TypeAlias = tuple[float, float, dict[str, float], Floats]  # likelihood of pairs, reach, factors of stacks, variances


def _fit(data: Residuals, mask: Bools, start: Errors | None, reach: float) -> _Fit:
    """Variances and factors of stacks for a reach, and how likely the differences of pairs are with them."""
    factors = dict.fromkeys(sorted(set(data.stacks[mask].tolist())), 1.0)
    variances = np.full(len(PARTS), 0.005)
    if start is not None:
        factors = {name: start.stacks.get(name, 1.0) for name in factors}
        variances = np.array([getattr(start, name) ** 2 for name in PARTS])
    for _ in range(PASSES[start is not None]):
        variances = _variances(data, mask, factors, variances, reach)
        factors = _factors(data, mask, variances, factors)
    off, size, weights = _differences(data, mask, factors, variances, reach)
    likely = -np.log(size) - (TAIL + 1) / 2 * np.log1p(off**2 / size**2 / TAIL)
    return float(weights @ likely), reach, factors, variances


def _differences(
    data: Residuals, mask: Bools, factors: Mapping[str, float], variances: Floats, reach: float
) -> tuple[Floats, Floats, Floats]:
    """Differences of errors in pairs, their standard deviations, and weights."""
    pairs = data.pairs
    used = mask[pairs.first] & mask[pairs.second]
    scale = np.array([factors[name] for name in data.stacks[pairs.first[used]]])
    size = scale * (pairs.design(reach)[used] @ variances) ** 0.5
    return (data.left_out[pairs.first] - data.left_out[pairs.second])[used], size, pairs.weights[used]


def _variances(data: Residuals, mask: Bools, factors: Mapping[str, float], start: Floats, reach: float) -> Floats:
    """Variances of the parts, by steps that raise the likelihood and keep them above 0."""
    pairs = data.pairs
    used = mask[pairs.first] & mask[pairs.second]
    design = np.vstack((data.design[mask], pairs.design(reach)[used]))
    squares = np.concatenate((data.left_out[mask] ** 2, (data.left_out[pairs.first] - data.left_out[pairs.second])[used] ** 2))
    weights = np.concatenate((data.weights[mask], pairs.weights[used]))
    scale = np.array([factors[name] ** 2 for name in np.concatenate((data.stacks[mask], data.stacks[pairs.first[used]]))])
    found = start
    for _ in range(STEPS):
        total = np.maximum(scale * (design @ found), 1e-8)
        heavy = (TAIL + 1) / (TAIL + squares / total)
        pull = (weights * scale * heavy * squares / total**2) @ design
        found = np.maximum(found * pull / np.maximum((weights * scale / total) @ design, 1e-30), 1e-8)
    return found


def _squares(data: Residuals, mask: Bools, variances: Floats, factors: Mapping[str, float]) -> tuple[Any, Any, Any]:
    """For every pair of a stack and a group its place, weight and mean squared standardised error, the far ones counting less."""
    squares = data.left_out[mask] ** 2 / (data.design[mask] @ variances)
    squares *= (TAIL + 1) / (TAIL + squares / np.array([factors[name] ** 2 for name in data.stacks[mask]]))
    names = list(zip(data.stacks[mask].tolist(), data.groups[mask].tolist(), strict=True))
    places = {name: k for k, name in enumerate(dict.fromkeys(names))}
    of = np.array([places[name] for name in names], np.int64)
    weight = np.bincount(of, data.weights[mask])
    return places, weight, np.bincount(of, data.weights[mask] * squares) / weight


def _factors(data: Residuals, mask: Bools, variances: Floats, near: Mapping[str, float]) -> dict[str, float]:
    """How uncertain predictions of each stack are, relative to all: its own errors, and the belief that it is like all others."""
    places, weight, squares = _squares(data, mask, variances, near)
    stacks = np.array([stack for stack, _ in places])
    return {str(name): _factor(weight[stacks == name], squares[stacks == name]) for name in dict.fromkeys(stacks.tolist())}


def _factor(weights: Floats, squares: Floats) -> float:
    """The factor of a stack from the mean squares of its groups."""
    n = len(weights)
    return float(((n * np.average(squares, weights=weights) + BELIEVED) / (n + BELIEVED)) ** 0.5)


def _deviations_without(data: Residuals, mask: Bools, variances: Floats, factors: Mapping[str, float]) -> Floats:
    """Standard deviation of the error of each run, its own group not counted in the factor of its stack, shape (masked runs,)."""
    places, weight, squares = _squares(data, mask, variances, factors)
    stacks, other = np.array([stack for stack, _ in places]), _others(factors)
    told: dict[Any, tuple[float, float]] = {}
    for k, (stack, group) in enumerate(places):
        rest = (stacks == stack) & (np.arange(len(stacks)) != k)
        told[stack, group] = (_factor(weight[rest], squares[rest]), 0.0) if rest.any() else (other, ASSUMED["new_stack"])
    found = np.array([told[name] for name in zip(data.stacks[mask].tolist(), data.groups[mask].tolist(), strict=True)])
    return np.asarray((found[:, 0] ** 2 * (data.design[mask] @ variances) + found[:, 1] ** 2) ** 0.5)


def _others(factors: Mapping[str, float]) -> float:
    """The factor of software of which nothing is known: the mean variance of all."""
    return float(np.mean([one**2 for one in factors.values()]) ** 0.5)


def _known(data: Residuals, mask: Bools, factors: Mapping[str, float], variances: Floats) -> Errors:
    """Constants of a fit, and what else is seen in the runs; the quantiles are still to be found."""
    told = dict(zip(PARTS, map(float, variances**0.5), strict=True))
    where = np.flatnonzero(mask)
    gone = set(data.groups[~mask & (data.weights > 0)].tolist())
    memory, memory_stacks = memory_errors(data, ~np.isin(data.groups, list(gone)))
    return Errors(
        **told,
        stacks=dict(factors),
        other_stacks=_others(factors),
        accelerators=frozenset(data.cases[i].accelerator for i in where),
        quantile=NINETY,
        apart=NINETY,
        reach=1.0,
        dense=_spans(data, [i for i in where.tolist() if not data.cases[i].moe]),
        moe=_spans(data, [i for i in where.tolist() if data.cases[i].moe]),
        memory=memory,
        memory_stacks=memory_stacks,
        **ASSUMED,
    )


def memory_errors(data: Residuals, mask: Bools) -> tuple[float, dict[str, float]]:
    """What 90 % of the errors of memory are within: of software whose memory nobody measured, and of each other.

    Parameters
    ----------
    data : Residuals
        Runs with their errors.
    mask : array of bool, shape (runs,)
        Which of them count.
    """
    told = replace(data, left_out=data.memory)
    heard = mask & (told.weights > 0)
    weights, squares = told.weights[heard], told.left_out[heard] ** 2
    factors = dict.fromkeys(told.stacks[heard].tolist(), 1.0)
    variances = np.array([0.01 * (name == "own") for name in PARTS])
    for _ in range(PASSES[0]):
        standard = squares / (told.design[heard] @ variances) / np.array([factors[name] ** 2 for name in told.stacks[heard]])
        variances = variances * np.average((TAIL + 1) / (TAIL + standard) * standard, weights=weights)
        factors = _factors(told, heard, variances, factors)
    size = _deviations_without(told, heard, variances, factors)
    reach = weighted_quantile(squares**0.5 / size, weights, 0.9) * float(variances.max()) ** 0.5
    return reach * _others(factors), {name: reach * factor for name, factor in factors.items()}


def _spans(data: Residuals, where: Sequence[int]) -> dict[str, Span]:
    """Sizes of runs, and the drift of their errors with each size."""
    found = {}
    for name in SIZES:
        sizes = np.array([float(data.cases[i].sizes[name]) for i in where])
        found[name] = Span(float(sizes.min()), float(sizes.max()), _drift(data, np.array(where), np.log(sizes)))
    return found


def _drift(data: Residuals, where: Ints, x: Floats) -> float:
    """Root mean square, over stacks, of the slope of the errors by a logarithm of size: how fast errors grow where no run is."""
    slopes, weights = [], []
    for name in sorted(set(data.stacks[where])):
        own = data.stacks[where] == name
        rows = where[own]
        if len(set(data.groups[rows].tolist())) >= LEAST:
            w = data.weights[rows]
            off = x[own] - np.average(x[own], weights=w)
            spread = float(np.average(off**2, weights=w))
            if spread > 0.1:  # a third of a factor of e
                slopes.append(float(np.average(off * data.left_out[rows], weights=w)) / spread)
                weights.append(float(w.sum()))
    rms = float(np.average(np.square(slopes), weights=weights) ** 0.5) if slopes else 0.0
    return float(np.clip(rms, *DRIFT))


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The least value that so large a share of the weights is at or below."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, share * below[-1])])


def coverage(data: Residuals) -> Iterator[tuple[int, bool]]:
    """For every run, whether its measured time lies in the interval of a prediction that knows nothing of its group.

    Constants of the prediction are fitted without the group, and so are those of the error model.
    """
    whole = estimate_errors(data)
    for group in sorted(set(data.groups[data.weights > 0].tolist())):
        known = estimate_errors(data, group, whole)
        for i in np.flatnonzero((data.groups == group) & (data.weights > 0)).tolist():
            yield i, bool(abs(data.left_out[i]) <= known.quantile * float(deviation(data.cases[i], known)))
