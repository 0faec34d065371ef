"""What software runs when a question does not say: its shares among measured runs, and what it adds.

A question is alike to runs in what it states (`Asked`). Runs of a source, model and accelerator are one
configuration, however many they are. The time of a step is then a mixture over software, whose parts are its
estimates; what software adds that none of them is (`SoftwareShares.spread`) is the least with which 90 % of
the runs of a kind lie within their intervals, their own configuration left out of the shares.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, Final

import numpy as np

from left_out import FIRST, HEADLINE, LATER, blind_runs, earlier_runs, is_since, read_open, runs_of
from left_out_residuals import Residuals, evidence, generation_members, own_name, table
from normalise import SOURCE as PUBLISHED
from traincast.accuracy.runs.run import Run, readable, release_of
from traincast.accuracy.runs.run import rows as table_rows
from traincast.accuracy.validation import batches
from traincast.catalog.facts import ALWAYS_GIVEN, FACTS
from traincast.catalog.software_stacks import Stack
from traincast.core.errors import InputError
from traincast.core.quantities import Bools, Floats
from traincast.step.uncertainty import (
    ADDED,
    Alternative,
    Asked,
    ErrorCase,
    Errors,
    Evidence,
    SoftwareShares,
    mixture_interval,
)

PRIOR: Final = 3.0  # of `SoftwareShares`; 1 to 10 have the same interval score within 1 %
SPREADS: Final = np.arange(0.0, 0.31, 0.01).round(2)  # candidates
BLANK: Final = ("stack", "notes", "source", "url", *FACTS)  # and *_detail: columns that name software
KINDS: Final = {False: "", True: "_moe"}  # whether models have experts → ending of the names of `ADDED`
HELD: Final = 0.9  # share of runs that intervals are to hold


def generations() -> dict[str, str]:
    """Return the generation of each accelerator that is of one (published.yaml)."""
    members = generation_members().items()
    return {own_name(name): kind for kind, names in members for name in names}


def asked(run: Run, of: Mapping[str, str]) -> Asked:
    """Return what a run states; `of` are the generations of accelerators."""
    return Asked.from_plans(run.model, run.system.accelerator.name, run.plan.columns(), of)


@cache
def releases() -> dict[str, tuple[str, ...]]:
    """Return the stacks of the timed runs of each framework and release that tables of runs state."""
    found = defaultdict[str, set[str]](set)
    timed = table()
    for path in (PUBLISHED, LATER):
        for run in runs_of(path):
            if run.id in timed and set(ALWAYS_GIVEN) <= run.facts.keys():
                found[release_of(run.facts["framework"], run.released)].add(run.stack)
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def shares(data: Residuals, without: Bools | None = None, **added: float) -> SoftwareShares:
    """Return the shares of software among timed runs, but those `without`, shape (runs,).

    `added`: figures of `ADDED`, 0 if left out.
    """
    found = defaultdict[Asked, dict[str, set[int]]](lambda: defaultdict(set))
    states = _statements(data)
    for i in np.flatnonzero((data.weights > 0) & (True if without is None else ~without)).tolist():
        found[states[i]][Stack(data.runs[i].stack).fitted_name].add(int(data.groups[i]))
    counted = {
        key: {name: float(len(groups)) for name, groups in sorted(by_stack.items())}
        for key, by_stack in sorted(found.items())
    }
    return SoftwareShares(
        configurations=counted,
        releases=releases(),
        generations=generations(),
        prior=PRIOR,
        **dict.fromkeys(ADDED, 0.0) | added,
    )


@lru_cache(maxsize=1)
def _statements(data: Residuals) -> list[Asked]:
    """Return what each run states; shares are counted anew for every group that is left out."""
    of = generations()
    return [asked(run, of) for run in data.runs]


@dataclass(frozen=True, eq=False)
class Unsaid:
    """Runs as if nobody had said what software they ran.

    Parameters
    ----------
    rows : list of int
        Indices of the runs.
    parts : list of list of Alternative
        The software that each may have run, its own group left out of the shares.
    evidence : list of Evidence
        What the runs have that are not left out with each; all runs' if empty.
    """

    rows: list[int]
    parts: list[list[Alternative]]
    evidence: Sequence[Evidence] = ()


def blank_runs() -> dict[str, Run]:
    """Return the runs of the tables as they are read where nothing says what software they ran, by id."""
    found: dict[str, Run] = {}
    for path in (PUBLISHED, LATER):
        table_blank = (
            {name: "" if name in BLANK or name.endswith("_detail") else cell for name, cell in row.items()}
            for row in table_rows(path)
        )
        found |= {row["id"]: run for row, run in readable(table_blank) if isinstance(run, Run)}
    return found


def unsaid(data: Residuals) -> Unsaid:
    """Predict all timed runs with every software that they may have run, as if nothing said which it is."""
    blank = blank_runs()
    of = generations()
    everything = shares(data)
    timed = [int(i) for i in np.flatnonzero(data.weights > 0) if data.runs[i].id in blank]
    runs = [blank[data.runs[i].id] for i in timed]
    allowed = {i: _without(everything, data, i, run, of) for i, run in zip(timed, runs, strict=True)}
    found: dict[int, list[Alternative]] = {i: [] for i in timed}
    run_batches, _ = batches(runs)
    for batch in run_batches:
        rows = [timed[i] for i in batch.rows.tolist()]
        for name in dict.fromkeys(name for i in rows for name in allowed[i]):
            try:
                est = batch.estimate(batch.system, Stack(name).assumptions)
            except InputError:
                continue
            seconds = np.broadcast_to(np.asarray(est.step_seconds), len(rows))
            for k, i in enumerate(rows):
                if name in allowed[i]:
                    case = _of_row(est.case, k, len(rows))
                    found[i].append(Alternative(allowed[i][name], float(seconds[k]), case))
    used = [i for i in timed if found[i]]
    return Unsaid(used, [found[i] for i in used])


def left_open(data: Residuals, column: str) -> Unsaid:
    """Return runs read with less than they state, with the software that they leave open (`OPEN_COLUMNS`).

    Times are those with constants fitted without their group, or whatever the column leaves out. Neither the
    shares nor the evidence are of runs of the own group; at first contact, nor of its release and later ones.
    """
    residuals = read_open()[column]
    of = generations()
    is_first = column == FIRST
    timed = [int(i) for i in np.flatnonzero(data.weights > 0) if data.runs[i].id in residuals]
    own = [data.runs[i] for i in timed]
    read_again = earlier_runs(own) if is_first else blind_runs(own)
    runs = [run or before for run, before in zip(read_again, own, strict=True)]
    others = [_release(run) if is_first else int(data.groups[i]) for i, run in zip(timed, own, strict=True)]
    known: dict[Hashable, tuple[SoftwareShares, Evidence]] = {}
    weights: dict[int, dict[str, float]] = {}
    for i, run, place in zip(timed, runs, others, strict=True):
        if place not in known:
            out = newer(data, i) if is_first else data.groups == data.groups[i]
            known[place] = shares(data, out), evidence(data, data.fitted & ~out)
        names = residuals[data.runs[i].id]
        weights[i] = known[place][0].shares_like(asked(run, of), names) or dict.fromkeys(names, 1.0)
    found: dict[int, list[Alternative]] = {i: [] for i in timed}
    for name in sorted({name for by_stack in weights.values() for name in by_stack}):
        chosen = [k for k, i in enumerate(timed) if name in weights[i]]
        run_batches, _ = batches([replace(runs[k], stack=name) for k in chosen])
        for batch in run_batches:
            est = batch.estimate(batch.system, Stack(name).assumptions)
            for n, place in enumerate(batch.rows.tolist()):
                i = timed[chosen[place]]
                seconds = (data.runs[i].step_seconds or np.nan) * float(
                    np.exp(residuals[data.runs[i].id][name])
                )
                case = _of_row(est.case, n, len(batch.rows))
                found[i].append(Alternative(weights[i][name], seconds, case))
    return Unsaid(timed, [found[i] for i in timed], [known[place][1] for place in others])


def _release(run: Run) -> Hashable:
    """Return the framework and release of a run."""
    return release_of(run.facts["framework"], run.released)


def newer(data: Residuals, run: int) -> Bools:
    """Return which runs are of the framework of a run and of its release or a later one, shape (runs,)."""
    own = data.runs[run]
    return np.array([is_since(other, own.facts["framework"], own.released) for other in data.runs])


def _without(
    everything: SoftwareShares, data: Residuals, run: int, blank: Run, of: Mapping[str, str]
) -> dict[str, float]:
    """Return the shares of the software of a `blank` run, its own group left out of them."""
    key = asked(data.runs[run], of)
    name = Stack(data.runs[run].stack).fitted_name
    counts = {place: dict(by_stack) for place, by_stack in everything.configurations.items()}
    counts[key][name] -= 1.0
    return {
        stack: share
        for stack, share in replace(everything, configurations=counts).shares_like(asked(blank, of)).items()
        if share > 0
    }


def _of_row(case: ErrorCase, row: int, rows: int) -> ErrorCase:
    """Return the case of one of several plans."""

    def one(columns: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(np.broadcast_to(value, rows)[row]) for name, value in columns.items()}

    across = bool(np.broadcast_to(case.across, rows)[row])
    waiting = float(np.broadcast_to(case.waiting, rows)[row])
    return replace(case, sizes=one(case.sizes), shares=one(case.shares), across=across, waiting=waiting)


def intervals(found: Unsaid, known: Errors, spread: Floats | float = 0.0) -> Floats:
    """Return low end, high end and median of every run, shape (rows, 3) [s].

    `spread`: what is added to the deviation of each run, shape (rows,).
    """
    spreads = np.broadcast_to(spread, len(found.rows)).tolist()
    seen = [replace(known, evidence=of) for of in found.evidence] or [known] * len(found.rows)
    cases = zip(found.parts, seen, spreads, strict=True)
    return np.array([mixture_interval(parts, of, added) for parts, of, added in cases], np.float64)


def inside(data: Residuals, found: Unsaid, ends: Floats) -> Floats:
    """Return whether the measured time of every run lies in its interval, 0 or 1."""
    measured = np.array([data.runs[i].step_seconds for i in found.rows])
    return ((ends[:, 0] <= measured) & (measured <= ends[:, 1])).astype(np.float64)


def with_software(data: Residuals, known: Errors, found: Unsaid | None = None) -> Errors:
    """Return the errors with the shares of software, and what it adds beside its alternatives.

    Each of `ADDED` is the least with which 90 % of the runs that tell it lie within their intervals: of
    `spread` the runs of which nothing is said, of both kinds alike; of `open` those of facts blind that leave
    software open; of `release` those at first contact, beside what software adds that they leave open
    (`_releases_added`). A release of n runs counts as √n.
    """
    blank = unsaid(data) if found is None else found
    kinds = np.array([data.cases[i].moe for i in blank.rows])

    def held_unsaid(spread: float) -> float:
        held = inside(data, blank, intervals(blank, known, spread))
        return float(
            np.mean([np.average(held[kinds == moe]) for moe in (False, True) if (kinds == moe).any()])
        )

    added = {"spread": _least(held_unsaid)}
    blind = left_open(data, HEADLINE)
    first = left_open(data, FIRST)
    for moe, kind in KINDS.items():
        of_blind = of_kind(data, still_open(blind), moe)
        weights = data.independent[of_blind.rows]
        added[f"open{kind}"] = _least(partial(_held_by, data, of_blind, known, weights, 0.0))
    return replace(known, software=shares(data, None, **added, **_releases_added(data, known, first, added)))


def _releases_added(
    data: Residuals, known: Errors, first: Unsaid, added: Mapping[str, float]
) -> dict[str, float]:
    """Return what a new release adds with each kind of model, beside what is `added` by software left open.

    The variance of a kind is shrunk towards that of both with the weight of `PRIOR` releases, since few
    releases have runs of experts.
    """

    def least(found: Unsaid) -> tuple[float, int]:
        of_release = [_release(data.runs[i]) for i in found.rows]
        n = Counter(of_release)
        weights = np.array([n[name] ** -0.5 for name in of_release])
        opened = [added[f"open{KINDS[data.cases[i].moe]}"] for i in found.rows]
        beside = np.array([len(parts) > 1 for parts in found.parts]) * np.array(opened)
        return _least(partial(_held_by, data, found, known, weights, beside)), len(n)

    both, _ = least(first)
    result = {}
    for moe, kind in KINDS.items():
        own, n = least(of_kind(data, first, moe))
        result[f"release{kind}"] = float(((n * own**2 + PRIOR * both**2) / (n + PRIOR)) ** 0.5)
    return result


def of_kind(data: Residuals, found: Unsaid, moe: bool) -> Unsaid:
    """Return those of some runs whose models have experts, or have none."""
    return _chosen(found, [k for k, i in enumerate(found.rows) if data.cases[i].moe == moe])


def still_open(found: Unsaid) -> Unsaid:
    """Return those of some runs that leave more than one software open."""
    return _chosen(found, [k for k, parts in enumerate(found.parts) if len(parts) > 1])


def _chosen(found: Unsaid, places: Sequence[int]) -> Unsaid:
    """Return the runs of some places among `rows`."""
    rows = [found.rows[k] for k in places]
    parts = [found.parts[k] for k in places]
    return Unsaid(rows, parts, [found.evidence[k] for k in places])


def _held_by(
    data: Residuals, found: Unsaid, known: Errors, weights: Floats, beside: Floats | float, spread: float
) -> float:
    """Return the share of runs, with their weights, that lie within their intervals.

    `spread, beside`: deviations that are added to that of each run.
    """
    held = inside(data, found, intervals(found, known, np.hypot(spread, beside)))
    return float(np.average(held, weights=weights)) if found.rows else 1.0


def _least(held: Callable[[float], float]) -> float:
    """Return the least of `SPREADS` with which `HELD` of some runs lie within their intervals."""
    found = bisect_left(SPREADS[:-1], True, key=lambda spread: held(spread) >= HELD)  # wider holds more
    return float(SPREADS[found])


def rows(software: SoftwareShares) -> list[dict[str, Any]]:
    """Return the configurations as the catalogue's file has them."""
    return [
        {**dict(zip(Asked._fields, key, strict=True)), "stacks": {name: int(n) for name, n in of.items()}}
        for key, of in software.configurations.items()
    ]


def members(software: SoftwareShares) -> dict[str, Sequence[str]]:
    """Return the accelerators of each generation."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, kind in software.generations.items():
        found[kind].append(name)
    return dict(found)
