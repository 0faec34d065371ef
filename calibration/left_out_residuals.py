"""Left-out residuals of measured runs: the input of error_model.py.

``measured/left_out.csv`` has one row per measured run that can be predicted: `id`, `source`, `group`
(source x model x accelerator), `fitted` and `left_out`, the logarithm of predicted over measured time with
the catalogue's constants, and with constants fitted without the row's group; optionally the other `SPLITS`,
with constants fitted without larger groups. Further columns are ignored.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from left_out import SPLITS, TABLE, later_runs
from megatron_tests import LARGE, memory_tests
from published import FILE
from traincast.accuracy.fit.residuals import bundled_runs, group_of
from traincast.accuracy.runs.reported_memory import LEFT_OUT as NOT_REPORTED
from traincast.accuracy.runs.reported_memory import memory_as_reported
from traincast.accuracy.runs.run import Run
from traincast.accuracy.scores import independent_weights
from traincast.accuracy.validation import batches
from traincast.catalog.documents import read_document
from traincast.catalog.load import accelerator_called, load_accelerator
from traincast.catalog.software_stacks import Stack, resolve
from traincast.core.assumptions import CALIBRATED
from traincast.core.errors import InputError
from traincast.core.quantities import Bools, Floats, Ints
from traincast.planner.answers.rankings import plan_coordinates, plan_distance
from traincast.step.uncertainty import COMPONENTS, DISTANCES, SIZES, ErrorCase, Evidence, Span, cell_name

PARTS: Final = ("common", "own", "experts", "scans", "short", *COMPONENTS)
LEFT_OUT: Final = next(iter(SPLITS))  # the column of source x model x accelerator
NEAR_BEST: Final = (
    0.3  # plans slower than the best by more than this share do not affect the top of a ranking
)
MAX_UNRANKED_PLANS: Final = 2  # a ranking has more plans than this


@dataclass(frozen=True)
class Entry:
    """Row of the table of left-out residuals."""

    group: str
    left_out: float
    without: Mapping[str, float]  # column → the same without larger groups; nan where it is not left out


def table(path: str | Path | None = None) -> dict[str, Entry]:
    """Read left-out residuals by id of the run; default: the bundled ones.

    Raises
    ------
    InputError
        If the file cannot be read as such a table.
    """
    file = Path(path or TABLE)
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            return {
                row["id"]: Entry(
                    row["group"],
                    float(row["left_out"]),
                    {name: float(row.get(name) or "nan") for name in SPLITS},
                )
                for row in csv.DictReader(opened)
                if row["left_out"]
            }
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, ValueError) as error:
        raise InputError(str(path), [f"cannot be read as a table of left-out residuals ({error})"]) from None


@dataclass(frozen=True, eq=False)
class Residuals:
    """Runs with the residuals of their predictions.

    Parameters
    ----------
    runs : tuple of Run
        The runs.
    groups : array of int, shape (runs,)
        Index of the group of each run.
    left_out : array, shape (runs,)
        Logarithm of predicted over measured time, with constants fitted without the group; nan if unknown.
    without : mapping of str to array, shape (runs,)
        Column of `SPLITS` → the same with constants fitted without larger groups.
    cases : tuple of ErrorCase
        Properties of each run that its error depends on.
    memory : array, shape (runs,)
        Logarithm of predicted over measured memory; nan if not measured.
    """

    runs: tuple[Run, ...]
    groups: Ints
    left_out: Floats
    without: Mapping[str, Floats]
    cases: tuple[ErrorCase, ...]
    memory: Floats

    @cached_property
    def weights(self) -> Floats:
        """Weight of each run, shape (runs,): a group of n runs has √n."""
        timed = ~np.isnan(self.left_out)
        size = np.bincount(self.groups[timed], minlength=int(self.groups.max()) + 1)
        return np.where(timed, np.maximum(size[self.groups], 1) ** -0.5, 0.0)

    @cached_property
    def independent(self) -> Floats:
        """Independent measurements that a run counts as, shape (runs,)."""
        return independent_weights([run.id for run in self.runs])

    @cached_property
    def stacks(self) -> Any:
        """Software stack of each run."""
        return np.array([case.stack for case in self.cases])

    @cached_property
    def cells(self) -> tuple[Any, Ints]:
        """Stack of every cell, of the runs of a stack in a group, shape (cells,); cell of each run."""
        names = [(case.stack, group) for case, group in zip(self.cases, self.groups.tolist(), strict=True)]
        places = {name: k for k, name in enumerate(sorted(set(names)))}
        return np.array([stack for stack, _ in places]), np.array([places[name] for name in names], np.int64)

    def by_stack(self, values: Mapping[str, float], other: float = np.nan) -> Floats:
        """Return the value of each run's stack, shape (runs,)."""
        stacks, cells = self.cells
        return np.array([values.get(name, other) for name in stacks.tolist()])[cells]

    @cached_property
    def design(self) -> Floats:
        """Factor of each of the variances `PARTS`, shape (runs, parts)."""
        return np.array(
            [
                [
                    1.0,
                    1.0,
                    float(case.moe),
                    float(case.scans),
                    case.shortness**2,
                    *(case.shares[name] ** 2 for name in COMPONENTS),
                ]
                for case in self.cases
            ],
            np.float64,
        )

    @cached_property
    def fitted(self) -> Bools:
        """Whether constants are fitted to a run, shape (runs,)."""
        return np.asarray(self.weights > 0)

    @cached_property
    def sizes(self) -> Floats:
        """Logarithms of `SIZES` (of linear ones themselves), shape (runs, sizes); nan if unknown."""
        values = np.array([[float(case.sizes.get(name, np.nan)) for name in SIZES] for case in self.cases])
        linear = [size.linear for size in SIZES.values()]
        return np.where(linear, values, np.log(values))

    @cached_property
    def cell_names(self) -> list[str]:
        """Name of the cell of each run, for which evidence counts configurations."""
        return [
            cell_name(case.stack, case.host, bool(case.sizes["pp"] > 1), bool(case.across))
            for case in self.cases
        ]

    @cached_property
    def left(self) -> "Left":
        """Every run in every way it is left out."""
        parts = [self._left(column, split.group) for column, split in SPLITS.items()]
        return Left(*map(np.concatenate, zip(*parts, strict=True)))

    def _left(self, column: str, group: Callable[[Run], Hashable]) -> tuple[Any, ...]:
        """Return the fields of `Left` for a column of the table."""
        y = self.left_out if column == LEFT_OUT else self.without[column]
        names = [None if np.isnan(error) else group(run) for run, error in zip(self.runs, y, strict=True)]
        numbers = {name: k for k, name in enumerate(dict.fromkeys(names)) if name is not None}
        places = np.array([numbers.get(name, -1) for name in names], np.int64)
        distances = np.zeros((len(self.runs), len(DISTANCES)))
        for k in numbers.values():
            out = places == k
            distances[out] = self.distances(out, self.fitted & ~out)
        rows = np.flatnonzero(places >= 0)
        return rows, np.full(len(rows), column), y[rows], distances[rows]

    def distances(self, rows: Bools, runs: Bools) -> Floats:
        """Return `ErrorCase.distances` of rows from the evidence of some runs, shape (rows, distances)."""
        cases = [self.cases[i] for i in np.flatnonzero(rows)]
        known = evidence(self, runs)
        is_new = np.array([case.firsts(known) for case in cases])
        beyond = np.zeros((len(cases), len(SIZES)))
        moe = np.array([case.moe for case in cases])
        for kind, spans in ((False, known.dense), (True, known.moe)):
            for k, (name, span) in enumerate(spans.items()):
                values = np.exp(self.sizes[rows, k]) if not SIZES[name].linear else self.sizes[rows, k]
                distance = np.nan_to_num(span.beyond(values, SIZES[name].linear))
                beyond[moe == kind, k] = distance[moe == kind]
        return np.hstack((is_new, beyond))

    @cached_property
    def seconds(self) -> Floats:
        """Predicted times, shape (runs,), nan if not measured [s]."""
        return np.array([run.step_seconds or np.nan for run in self.runs]) * np.exp(self.left_out)

    @cached_property
    def alike(self) -> list[Ints]:
        """Indices of runs that differ only in their plan, by group, the fastest predicted first."""
        groups: dict[Any, list[int]] = defaultdict(list)
        for i, run in enumerate(self.runs):
            if not np.isnan(self.seconds[i]):
                groups[
                    replace(run.model, name=""),
                    run.system.name,
                    run.plan.gpus,
                    run.gbs,
                    run.plan.precision,
                    run.stack,
                ].append(i)
        return [
            np.array(sorted(group, key=lambda i: float(self.seconds[i])), np.int64)
            for group in groups.values()
        ]

    @cached_property
    def coordinates(self) -> Floats:
        """Coordinates of each run's plan, shape (runs, coordinates)."""
        return plan_coordinates([run.plan for run in self.runs])

    @cached_property
    def ranked(self) -> list[Ints]:
        """Those of `alike` that have enough different plans for a ranking."""
        cut = self.coordinates
        return [group for group in self.alike if len(np.unique(cut[group], axis=0)) > MAX_UNRANKED_PLANS]

    @cached_property
    def pairs(self) -> "Pairs":
        """Pairs of runs that differ only in their plan, both predicted near the best of their group."""
        indices: list[tuple[int, int]] = []
        for group in self.alike:
            near = group[self.seconds[group] <= (1 + NEAR_BEST) * self.seconds[group[0]]].tolist()
            indices += [(i, j) for n, i in enumerate(near) for j in near[:n]]
        cut = self.coordinates
        first, second = np.array(indices, np.int64).reshape(-1, 2).T
        distance = plan_distance(cut[first], cut[second])
        first, second, distance = first[distance > 0], second[distance > 0], distance[distance > 0]
        pairs_of_group = np.bincount(self.groups[first], minlength=int(self.groups.max()) + 1)
        weights = (np.bincount(self.groups, self.weights) / np.maximum(pairs_of_group, 1))[
            self.groups[first]
        ]  # pairs of a group weigh as much as its runs
        shares = np.array([[case.shares[name] for name in COMPONENTS] for case in self.cases])
        return Pairs(first, second, weights, distance, (shares[first] - shares[second]) ** 2)


def evidence(data: Residuals, runs: Bools) -> Evidence:
    """Return what some runs have, shape (runs,) (`Evidence`)."""
    chosen = [data.cases[i] for i in np.flatnonzero(runs)]
    precisions = defaultdict[str, set[str]](set)
    for case in chosen:
        precisions[case.accelerator].add(case.precision)
    generations = {generation(accelerator_called(name)) for name in precisions}
    spans = {}
    for moe in (False, True):
        of_kind = data.sizes[runs & np.array([case.moe == moe for case in data.cases])]
        spans[moe] = (
            {
                name: Span(*(float(f"{x if size.linear else np.exp(x):.7g}") for x in ends))
                for (name, size), ends in zip(
                    SIZES.items(), zip(np.nanmin(of_kind, 0), np.nanmax(of_kind, 0), strict=True), strict=True
                )
            }
            if len(of_kind)
            else {}
        )
    return Evidence(
        stacks=frozenset(case.stack for case in chosen),
        experts=frozenset(name for case in chosen if case.moe for name in Stack(case.stack).same_experts),
        layers=frozenset().union(*(case.layers for case in chosen)),
        precisions={name: frozenset(precisions[name]) for name in sorted(precisions)},
        cells=cells_of(data, runs),
        kin=frozenset(
            own_name(name)
            for kind, members in generation_members().items()
            if kind in generations
            for name in members
        ),
        dense=spans[False],
        moe=spans[True],
    )


def cells_of(data: Residuals, runs: Bools) -> dict[str, float]:
    """Return the configurations (source x model x accelerator) of some runs in each cell."""
    groups = {(data.cell_names[i], int(data.groups[i])) for i in np.flatnonzero(runs).tolist()}
    found = Counter(name for name, _ in groups)
    return {name: float(found[name]) for name in sorted(found)}


@cache
def own_name(accelerator: str) -> str:
    """Return the name that an accelerator of the catalogue has in its own file."""
    return load_accelerator(accelerator).name


@cache
def generation_members() -> dict[str, tuple[str, ...]]:
    """Return the accelerators of each generation (published.yaml)."""
    return {kind: tuple(names) for kind, names in read_document(FILE)["generations"].items()}


def generation(accelerator: str | None) -> str | None:
    """Return the generation of an accelerator of the catalogue; its own name if it is of none."""
    return next((kind for kind, names in generation_members().items() if accelerator in names), accelerator)


@dataclass(frozen=True, eq=False)
class Left:
    """Runs in every way they are left out.

    Parameters
    ----------
    rows : array of int, shape (left,)
        Indices of the runs.
    columns : array of str, shape (left,)
        Ways of leaving out, of `SPLITS`.
    errors : array, shape (left,)
        Logarithms of predicted over measured time.
    distances : array, shape (left, distances)
        How far outside of the other runs of the fit they lie, in each of `DISTANCES`.
    """

    rows: Ints
    columns: Any
    errors: Floats
    distances: Floats


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of runs that differ only in their plan.

    Parameters
    ----------
    first, second : array of int, shape (pairs,)
        Indices of the runs.
    weights, distance : array, shape (pairs,)
        Weight of each pair, and distance of its plans.
    shares : array, shape (pairs, components)
        Squared differences of the shares of `COMPONENTS` in the steps.
    """

    first: Ints
    second: Ints
    weights: Floats
    distance: Floats
    shares: Floats

    def design(self, reach: float) -> Floats:
        """Return the factors of the variances `PARTS` in that of a difference, shape (pairs, parts)."""
        of_run, zeros = 2 * (1 - np.exp(-self.distance / reach)), np.zeros(len(self.distance))
        return np.column_stack((zeros, of_run, zeros, zeros, zeros, self.shares))


def gather(runs: Sequence[Run] | None = None, path: str | Path | None = None) -> Residuals:
    """Predict runs with the catalogue's constants, and join their left-out residuals.

    Parameters
    ----------
    runs : sequence of Run, optional
        The runs; default: the bundled ones.
    path : str or Path, optional
        Table of left-out residuals.
    """
    tests = [test for test in memory_tests() if test.measured >= LARGE and test.modelled]
    of_tests = {test.run.id: float(np.log(test.predicted / test.measured)) for test in tests}
    all_runs = [*bundled_runs(), *later_runs(), *(test.run for test in tests)] if runs is None else runs
    known, later = table(path), {run.id for run in later_runs()}
    cases: dict[int, ErrorCase] = {}
    memory = np.full(len(all_runs), np.nan)
    run_batches, _ = batches(all_runs)
    for batch in run_batches:
        try:
            est = batch.estimate(batch.system, resolve(batch.stack))
            seconds, breakdown = np.asarray(est.step_seconds), est.breakdown
        except InputError:  # a precision that the accelerator lacks
            continue
        reported_memory = {
            kind: np.broadcast_to(np.asarray(memory_as_reported(est.memory, kind)), len(batch.rows))
            for kind in NOT_REPORTED
        }
        for k, i in enumerate(batch.rows.tolist()):
            run = all_runs[i]
            parts = {
                name: float(np.broadcast_to(value, len(batch.rows))[k]) for name, value in breakdown.items()
            }
            time = float(np.broadcast_to(seconds, len(batch.rows))[k])
            cases[i] = ErrorCase.from_step(
                run.model,
                run.system.accelerator.name,
                run.stack,
                run.plan.columns(),
                parts,
                time,
                run.system.fast_domain,
            )
            if run.id in of_tests:
                memory[i] = of_tests[run.id]
            elif run.memory_bytes and run.id not in later:
                memory[i] = np.log(reported_memory[run.reported][k] / run.memory_bytes)
    # runs of unknown software say nothing of the usual stack, which stands for it in their predictions
    software_known = {i for i in cases if all_runs[i].stack != CALIBRATED}
    used = [i for i in sorted(software_known) if all_runs[i].id in known or not np.isnan(memory[i])]
    names = [
        known[run.id].group
        if run.id in known
        else run.model.name  # a test, on all machines and in all containers
        if run.id in of_tests
        else " / ".join(group_of(run))
        for run in (all_runs[i] for i in used)
    ]
    places = {name: k for k, name in enumerate(sorted(set(names)))}
    missing = Entry("", np.nan, dict.fromkeys(SPLITS, np.nan))
    rows = [known.get(all_runs[i].id, missing) for i in used]
    return Residuals(
        tuple(all_runs[i] for i in used),
        np.array([places[name] for name in names]),
        np.array([row.left_out for row in rows]),
        {name: np.array([row.without[name] for row in rows]) for name in SPLITS},
        tuple(cases[i] for i in used),
        memory[used],
    )
