"""Errors of predictions estimated from runs that were left out of the fits, for `traincast.uncertainty`.

``catalog/measured/left_out.csv`` has a row for each measured run that can be predicted: `id`, `source`, `group` (source x model x
accelerator), `fitted` and `left_out`, the logarithm of predicted over measured time with the catalogue's constants, and with
constants fitted without the row's group. Further columns are of no importance here.

Variances are those of a composite likelihood: every run says how large its error is, every pair of runs that differ only in their
plan how far their errors are apart. Errors have heavy tails (Student's t with 4 degrees of freedom); a group of n runs counts √n.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from traincast.batches import batches
from traincast.columns import Bools, Floats, Ints
from traincast.errors import InputError
from traincast.evidence import bundled_runs, group_of
from traincast.measurements import Run
from traincast.memory import LEFT_OUT, reported
from traincast.recorded import write_system
from traincast.stacks import resolve
from traincast.uncertainty import COMPONENTS, NINETY, SIZES, Case, Errors, Span, cuts, deviation, unlike

TAIL: Final = 4.0  # degrees of freedom of Student's t
BELIEVED: Final = 3.0  # groups that the belief that a stack is like all others counts as
PASSES: Final = (15, 3)  # of the variances and the factors of stacks, one after the other: from nothing, and from a fit
STEPS: Final = 25
PARTS: Final = ("common", "own", "experts", *COMPONENTS)
ASSUMED: Final = {"new_stack": 0.08, "new_accelerator": 0.08, "memory_new_stack": 0.08}  # docs/uncertainty.md
DRIFT: Final = (0.05, 0.25)  # least and most per factor of e
REACHES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the likeness of plans, of which the likeliest is taken
NEAR: Final = 0.3  # plans slower than the best by more than this share say nothing about the top of a ranking
LEAST: Final = 3  # groups that a drift can be seen in


@dataclass(frozen=True)
class Left:
    """A row of the table of left-out residuals."""

    group: str
    fitted: float
    left_out: float


def table(path: str | Path | None = None) -> dict[str, Left]:
    """Left-out residuals of runs by their names; the bundled ones without a path.

    Raises
    ------
    InputError
        If the file cannot be read as such a table.
    """
    file = files("traincast").joinpath("catalog", "measured", "left_out.csv") if path is None else Path(path)
    try:
        with file.open(encoding="utf-8", newline="") as opened:  # type: ignore[call-overload]
            return {
                row["id"]: Left(row["group"], float(row["fitted"]), float(row["left_out"]))
                for row in csv.DictReader(opened)
                if row["left_out"] and row["fitted"]
            }
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, ValueError) as error:
        raise InputError(str(path), [f"cannot be read as a table of left-out residuals ({error})"]) from None


@dataclass(frozen=True, eq=False)
class Residuals:
    """Runs with the errors of their predictions.

    Parameters
    ----------
    runs : tuple of Run
        The runs.
    groups : array of int, shape (runs,)
        Which group each belongs to.
    left_out : array, shape (runs,)
        Logarithm of predicted over measured time, with constants fitted without the group; nan where none is known.
    cases : tuple of Case
        What the error depends on.
    memory : array, shape (runs,)
        Logarithm of predicted over measured memory; nan where none was measured.
    """

    runs: tuple[Run, ...]
    groups: Ints
    left_out: Floats
    cases: tuple[Case, ...]
    memory: Floats

    @cached_property
    def weights(self) -> Floats:
        """How much each counts: a group of n as √n."""
        timed = ~np.isnan(self.left_out)
        size = np.bincount(self.groups[timed], minlength=int(self.groups.max()) + 1)
        return np.where(timed, np.maximum(size[self.groups], 1) ** -0.5, 0.0)

    @cached_property
    def stacks(self) -> Any:
        """Software of each."""
        return np.array([case.stack for case in self.cases])

    @cached_property
    def design(self) -> Floats:
        """What multiplies each of the variances `PARTS`, shape (runs, parts)."""
        shares = [[case.shares[name] ** 2 for name in COMPONENTS] for case in self.cases]
        return np.array([[1.0, 1.0, float(case.moe), *told] for case, told in zip(self.cases, shares, strict=True)])

    @cached_property
    def pairs(self) -> "Pairs":
        """Runs that differ only in their plan, two by two, where both are predicted to be near the best of their kind."""
        alike: dict[Any, list[int]] = defaultdict(list)
        for i, run in enumerate(self.runs):
            if run.step_seconds and not np.isnan(self.left_out[i]):
                alike[replace(run.model, name=""), run.system.name, run.plan.gpus, run.gbs, run.plan.precision, run.stack].append(i)
        found: list[tuple[int, int]] = []
        for some in alike.values():
            seconds = {i: (self.runs[i].step_seconds or 0.0) * np.exp(self.left_out[i]) for i in some}
            near = [i for i in some if seconds[i] <= (1 + NEAR) * min(seconds.values())]
            found += [(i, j) for n, i in enumerate(near) for j in near[:n]]
        cut = cuts([run.plan for run in self.runs])
        first, second = np.array(found, np.int64).reshape(-1, 2).T
        distance = unlike(cut[first], cut[second])
        first, second, distance = first[distance > 0], second[distance > 0], distance[distance > 0]
        each = np.bincount(self.groups[first], minlength=int(self.groups.max()) + 1)
        weights = (np.bincount(self.groups, self.weights) / np.maximum(each, 1))[self.groups[first]]  # a group as its runs
        shares = np.array([[case.shares[name] for name in COMPONENTS] for case in self.cases])
        return Pairs(first, second, weights, distance, (shares[first] - shares[second]) ** 2)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of runs that differ only in their plan.

    Parameters
    ----------
    first, second : array of int, shape (pairs,)
        Places of the runs.
    weights, distance : array, shape (pairs,)
        How much each counts, and how unlike its plans are.
    shares : array, shape (pairs, components)
        Squared differences of the shares that `COMPONENTS` have of the steps.
    """

    first: Ints
    second: Ints
    weights: Floats
    distance: Floats
    shares: Floats

    def design(self, reach: float) -> Floats:
        """What multiplies each of the variances `PARTS` in that of the difference of errors, shape (pairs, parts)."""
        own, none = 2 * (1 - np.exp(-self.distance / reach)), np.zeros(len(self.distance))
        return np.column_stack((none, own, none, self.shares))


def gather(runs: Sequence[Run] | None = None, path: str | Path | None = None) -> Residuals:
    """Predict runs with the catalogue's constants and put their left-out residuals beside them.

    Parameters
    ----------
    runs : sequence of Run, optional
        The runs; the bundled ones if left out.
    path : str or Path, optional
        Table of left-out residuals.
    """
    every, known = bundled_runs() if runs is None else runs, table(path)
    cases: dict[int, Case] = {}
    memory = np.full(len(every), np.nan)
    found, _ = batches(every)
    for batch in found:
        try:
            est = batch.estimate(batch.system, resolve(batch.stack))
            seconds, breakdown = np.asarray(est.step_seconds), est.breakdown
        except InputError:  # a precision that the accelerator lacks
            continue
        held = {kind: np.broadcast_to(np.asarray(reported(est.memory, kind)), len(batch.rows)) for kind in LEFT_OUT}
        for k, i in enumerate(batch.rows.tolist()):
            run = every[i]
            own = {name: float(np.broadcast_to(value, len(batch.rows))[k]) for name, value in breakdown.items()}
            time = float(np.broadcast_to(seconds, len(batch.rows))[k])
            cases[i] = Case.of(run.model, run.system.accelerator.name, run.stack, float(run.plan.gpus), own, time)
            if run.memory_bytes:
                memory[i] = np.log(held[run.reported][k] / run.memory_bytes)
    used = [i for i in sorted(cases) if every[i].id in known or not np.isnan(memory[i])]
    names = [known[every[i].id].group if every[i].id in known else " / ".join(group_of(every[i])) for i in used]
    places = {name: k for k, name in enumerate(sorted(set(names)))}
    left = [known[every[i].id].left_out if every[i].id in known else np.nan for i in used]
    return Residuals(
        tuple(every[i] for i in used),
        np.array([places[name] for name in names]),
        np.array(left),
        tuple(cases[i] for i in used),
        memory[used],
    )


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
    return replace(_known(data, mask, factors, variances), quantile=quantile, apart=apart, reach=reach)


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
    heard = ~np.isnan(data.memory) & (mask | (data.weights == 0))
    size = np.bincount(data.groups[heard], minlength=int(data.groups.max()) + 1)
    weights = np.maximum(size[data.groups[heard]], 1) ** -0.5
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
        memory=weighted_quantile(np.abs(data.memory[heard]), weights, 0.9),
        memory_stacks=frozenset(data.stacks[heard].tolist()),
        **ASSUMED,
    )


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


def document(data: Residuals, known: Errors, day: str) -> dict[str, Any]:
    """Content of ``catalog/errors.yaml``.

    Parameters
    ----------
    data, known : Residuals, Errors
        Runs, and what was estimated from them.
    day : str
        When.
    """
    timed = data.weights > 0

    def entry(value: float, basis: str = "fitted", source: str | None = None) -> dict[str, Any]:
        return {
            "value": int(value) if value == int(value) else float(f"{value:.4g}"),
            **({"source": source} if source else {}),
            "basis": basis,
        }

    def groups(mask: Bools) -> int:
        return len(set(data.groups[mask].tolist()))

    def spans(some: Mapping[str, Span]) -> dict[str, Any]:
        return {
            name: {"least": entry(one.least, "measured"), "most": entry(one.most, "measured"), "drift": entry(one.drift)}
            for name, one in some.items()
        }

    where = np.array([case.accelerator for case in data.cases])
    heard = ~np.isnan(data.memory)
    fitted = (*PARTS, "other_stacks", "quantile", "apart", "reach")
    assumed = {name: entry(value, "assumed", "docs/uncertainty.md") for name, value in ASSUMED.items()}
    told = f"{groups(timed)} groups of {int(timed.sum()):,} published runs, each predicted with constants fitted without its group"
    return {
        "name": "errors",
        "title": "Errors of predictions against measured runs, logarithm of predicted over measured (docs/uncertainty.md)",
        "source": f"{told} (source x model x accelerator), {day}",
        "time": {name: entry(getattr(known, name)) for name in fitted}
        | {name: assumed[name] for name in ("new_stack", "new_accelerator")},
        "memory": {
            "ninety": entry(known.memory, source=f"{int(heard.sum())} published runs with memory, {day}"),
            "new_stack": assumed["memory_new_stack"],
            "stacks": {name: groups(heard & (data.stacks == name)) for name in sorted(known.memory_stacks)},
        },
        "stacks": {
            name: entry(known.stacks[name], source=f"{groups(timed & (data.stacks == name))} groups, {day}")
            for name in sorted(known.stacks)
        },
        "accelerators": {name: groups(timed & (where == name)) for name in sorted(known.accelerators)},
        "dense": spans(known.dense),
        "moe": spans(known.moe),
    }


def write_errors(path: str | Path | None = None) -> Errors:
    """Estimate the error model from the table of left-out residuals and write it to a file; into the catalogue without a path."""
    data = gather()
    known = estimate_errors(data)
    file = Path(str(files("traincast").joinpath("catalog", "errors.yaml"))) if path is None else Path(path)
    write_system(file, document(data, known, date.today().isoformat()))
    return known


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
