"""What software runs when a question does not say: its shares among measured runs, and what it adds.

A question is alike to runs in what it states (`Asked`). Runs of a source, model and accelerator are one
configuration, however many they are. The time of a step is then a mixture over software, whose parts are its
estimates; what software adds that none of them is (`SoftwareShares.spread`) is the least with which 90 % of
the runs of a kind lie within their intervals, their own configuration left out of the shares.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np

from left_out import LATER
from left_out_residuals import Residuals, generation_members, table
from normalise import SOURCE as PUBLISHED
from traincast.accuracy.runs.facts import ALWAYS_GIVEN, FACTS
from traincast.accuracy.runs.run import Run, readable, release_of
from traincast.accuracy.runs.run import rows as table_rows
from traincast.accuracy.validate import batches
from traincast.catalog.load import load_accelerator
from traincast.catalog.software_stacks import fitted_stack, load_stack
from traincast.core.errors import InputError
from traincast.core.quantities import Floats
from traincast.step.uncertainty import Alternative, Asked, ErrorCase, Errors, SoftwareShares, mixture_interval

PRIOR: Final = 3.0  # of `SoftwareShares`; 1 to 10 have the same interval score within 1 %
SPREADS: Final = np.arange(0.0, 0.31, 0.01).round(2)  # candidates
BLANK: Final = ("stack", "notes", "source", "url", *FACTS)  # and *_detail: columns that name software
HELD: Final = 0.9  # share of runs that intervals are to hold


def generations() -> dict[str, str]:
    """Return the generation of each accelerator that is of one (published.yaml)."""
    members = generation_members().items()
    return {load_accelerator(name).name: kind for kind, names in members for name in names}


def asked(run: Run, of: Mapping[str, str]) -> Asked:
    """Return what a run states; `of` are the generations of accelerators."""
    return Asked.of(run.model, run.system.accelerator.name, run.plan.columns(), of)


@cache
def releases() -> dict[str, tuple[str, ...]]:
    """Return the stacks of the timed runs of each framework and release that tables of runs state."""
    found = defaultdict[str, set[str]](set)
    timed = table()
    for path in (PUBLISHED, LATER):
        for _, run in readable(table_rows(path)):
            if isinstance(run, Run) and run.id in timed and set(ALWAYS_GIVEN) <= run.facts.keys():
                found[release_of(run.facts["framework"], run.released)].add(run.stack)
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def shares(data: Residuals, without: int | None = None, spread: float = 0.0) -> SoftwareShares:
    """Return the shares of software among timed runs, but those of the group `without`."""
    of, found = generations(), defaultdict[Asked, dict[str, set[int]]](lambda: defaultdict(set))
    for i in np.flatnonzero(data.weights > 0).tolist():
        if data.groups[i] != without:
            run = data.runs[i]
            found[asked(run, of)][fitted_stack(run.stack)].add(int(data.groups[i]))
    counted = {
        key: {name: float(len(groups)) for name, groups in sorted(by_stack.items())}
        for key, by_stack in sorted(found.items())
    }
    return SoftwareShares(
        configurations=counted, releases=releases(), generations=of, prior=PRIOR, spread=spread
    )


@dataclass(frozen=True, eq=False)
class Unsaid:
    """Runs as if nobody had said what software they ran.

    Parameters
    ----------
    rows : list of int
        Indices of the runs.
    parts : list of list of Alternative
        The software that each may have run, its own group left out of the shares.
    """

    rows: list[int]
    parts: list[list[Alternative]]


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
                est = batch.estimate(batch.system, load_stack(name))
            except InputError:
                continue
            seconds = np.broadcast_to(np.asarray(est.step_seconds), len(rows))
            for k, i in enumerate(rows):
                if name in allowed[i]:
                    case = _of_row(est.case, k, len(rows))
                    found[i].append(Alternative(allowed[i][name], float(seconds[k]), case))
    used = [i for i in timed if found[i]]
    return Unsaid(used, [found[i] for i in used])


def _without(
    everything: SoftwareShares, data: Residuals, run: int, blank: Run, of: Mapping[str, str]
) -> dict[str, float]:
    """Return the shares of the software of a `blank` run, its own group left out of them."""
    key = asked(data.runs[run], of)
    name = fitted_stack(data.runs[run].stack)
    counts = {place: dict(by_stack) for place, by_stack in everything.configurations.items()}
    counts[key][name] -= 1.0
    return {
        stack: share
        for stack, share in replace(everything, configurations=counts).of(asked(blank, of)).items()
        if share > 0
    }


def _of_row(case: ErrorCase, row: int, rows: int) -> ErrorCase:
    """Return the case of one of several plans."""

    def one(columns: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(np.broadcast_to(value, rows)[row]) for name, value in columns.items()}

    across = bool(np.broadcast_to(case.across, rows)[row])
    return replace(case, sizes=one(case.sizes), shares=one(case.shares), across=across)


def intervals(found: Unsaid, known: Errors) -> Floats:
    """Return low end, high end and median of every run, shape (rows, 3) [s]."""
    return np.array(
        [mixture_interval(parts, known, known.software.spread) for parts in found.parts], np.float64
    )


def inside(data: Residuals, found: Unsaid, ends: Floats) -> Floats:
    """Return whether the measured time of every run lies in its interval, 0 or 1."""
    measured = np.array([data.runs[i].step_seconds for i in found.rows])
    return ((ends[:, 0] <= measured) & (measured <= ends[:, 1])).astype(np.float64)


def with_software(data: Residuals, known: Errors, found: Unsaid | None = None) -> Errors:
    """Return the errors with the shares of software, and what it adds that none of them is."""
    found = unsaid(data) if found is None else found
    kinds = np.array([data.cases[i].moe for i in found.rows])

    def with_spread(k: int) -> Errors:
        return replace(known, software=shares(data, spread=float(SPREADS[k])))

    def is_enough(k: int) -> bool:
        held = inside(data, found, intervals(found, with_spread(k)))
        by_kind = [np.average(held[kinds == moe]) for moe in (False, True) if (kinds == moe).any()]
        return bool(np.mean(by_kind) >= HELD)

    least = bisect_left(range(len(SPREADS) - 1), True, key=is_enough)  # a wider interval holds more
    return with_spread(least)


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
