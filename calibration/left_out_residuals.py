"""Left-out residuals of measured runs: the input of error_model.py.

``measured/left_out.csv`` has one row per measured run that can be predicted: `id`, `source`, `group`
(source x model x accelerator), `fitted` and `left_out`, the logarithm of predicted over measured time with
the catalogue's constants, and with constants fitted without the row's group; optionally `without_stack`, with
constants fitted without all runs of its software. Further columns are ignored.
"""

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from left_out import TABLE
from traincast.accuracy.fit.residuals import bundled_runs, group_of
from traincast.accuracy.runs.run import Run
from traincast.accuracy.validate import batches
from traincast.catalog.software_stacks import resolve
from traincast.core.errors import InputError
from traincast.core.quantities import Floats, Ints
from traincast.step.memory import LEFT_OUT, memory_as_reported
from traincast.step.uncertainty import COMPONENTS, ErrorCase, plan_coordinates, plan_distance

PARTS: Final = ("common", "own", "experts", *COMPONENTS)
NEAR_BEST: Final = (
    0.3  # plans slower than the best by more than this share do not affect the top of a ranking
)


@dataclass(frozen=True)
class Left:
    """Row of the table of left-out residuals."""

    group: str
    left_out: float
    without_stack: float  # nan if absent


def table(path: str | Path | None = None) -> dict[str, Left]:
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
                row["id"]: Left(
                    row["group"], float(row["left_out"]), float(row.get("without_stack") or "nan")
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
    without_stack : array, shape (runs,)
        The same with constants fitted without all runs of its software.
    cases : tuple of ErrorCase
        Properties of each run that its error depends on.
    memory : array, shape (runs,)
        Logarithm of predicted over measured memory; nan if not measured.
    """

    runs: tuple[Run, ...]
    groups: Ints
    left_out: Floats
    without_stack: Floats
    cases: tuple[ErrorCase, ...]
    memory: Floats

    @cached_property
    def weights(self) -> Floats:
        """Weight of each run, shape (runs,): a group of n runs has √n."""
        timed = ~np.isnan(self.left_out)
        size = np.bincount(self.groups[timed], minlength=int(self.groups.max()) + 1)
        return np.where(timed, np.maximum(size[self.groups], 1) ** -0.5, 0.0)

    @cached_property
    def stacks(self) -> Any:
        """Software stack of each run."""
        return np.array([case.stack for case in self.cases])

    @cached_property
    def design(self) -> Floats:
        """Factor of each of the variances `PARTS`, shape (runs, parts)."""
        shares = [[case.shares[name] ** 2 for name in COMPONENTS] for case in self.cases]
        return np.array(
            [[1.0, 1.0, float(case.moe), *squares] for case, squares in zip(self.cases, shares, strict=True)]
        )

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
    def pairs(self) -> "Pairs":
        """Pairs of runs that differ only in their plan, both predicted near the best of their group."""
        indices: list[tuple[int, int]] = []
        for group in self.alike:
            near = group[self.seconds[group] <= (1 + NEAR_BEST) * self.seconds[group[0]]].tolist()
            indices += [(i, j) for n, i in enumerate(near) for j in near[:n]]
        cut = plan_coordinates([run.plan for run in self.runs])
        first, second = np.array(indices, np.int64).reshape(-1, 2).T
        distance = plan_distance(cut[first], cut[second])
        first, second, distance = first[distance > 0], second[distance > 0], distance[distance > 0]
        pairs_of_group = np.bincount(self.groups[first], minlength=int(self.groups.max()) + 1)
        weights = (np.bincount(self.groups, self.weights) / np.maximum(pairs_of_group, 1))[
            self.groups[first]
        ]  # pairs of a group weigh as much as its runs
        shares = np.array([[case.shares[name] for name in COMPONENTS] for case in self.cases])
        return Pairs(first, second, weights, distance, (shares[first] - shares[second]) ** 2)


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
        return np.column_stack((zeros, of_run, zeros, self.shares))


def gather(runs: Sequence[Run] | None = None, path: str | Path | None = None) -> Residuals:
    """Predict runs with the catalogue's constants, and join their left-out residuals.

    Parameters
    ----------
    runs : sequence of Run, optional
        The runs; default: the bundled ones.
    path : str or Path, optional
        Table of left-out residuals.
    """
    all_runs, known = bundled_runs() if runs is None else runs, table(path)
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
            for kind in LEFT_OUT
        }
        for k, i in enumerate(batch.rows.tolist()):
            run = all_runs[i]
            parts = {
                name: float(np.broadcast_to(value, len(batch.rows))[k]) for name, value in breakdown.items()
            }
            time = float(np.broadcast_to(seconds, len(batch.rows))[k])
            cases[i] = ErrorCase.of(
                run.model, run.system.accelerator.name, run.stack, float(run.plan.gpus), parts, time
            )
            if run.memory_bytes:
                memory[i] = np.log(reported_memory[run.reported][k] / run.memory_bytes)
    used = [i for i in sorted(cases) if all_runs[i].id in known or not np.isnan(memory[i])]
    names = [
        known[all_runs[i].id].group if all_runs[i].id in known else " / ".join(group_of(all_runs[i]))
        for i in used
    ]
    places = {name: k for k, name in enumerate(sorted(set(names)))}
    missing = Left("", np.nan, np.nan)
    rows = [known.get(all_runs[i].id, missing) for i in used]
    return Residuals(
        tuple(all_runs[i] for i in used),
        np.array([places[name] for name in names]),
        np.array([row.left_out for row in rows]),
        np.array([row.without_stack for row in rows]),
        tuple(cases[i] for i in used),
        memory[used],
    )
