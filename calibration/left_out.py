"""Residuals of the published runs, fitted and left out, and their table."""

import csv
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from measured_cells import cell_of, experts_across
from normalise import published
from traincast.accuracy.fit.fit import Fitted
from traincast.accuracy.fit.parameters import accelerator_name
from traincast.accuracy.fit.residuals import MeasuredRuns, group_of
from traincast.accuracy.runs.run import Run, readable, release_of, rows
from traincast.accuracy.scores import source_of
from traincast.accuracy.validation import validate
from traincast.catalog.facts import ALWAYS_GIVEN, FACTS
from traincast.catalog.software_stacks import Stack
from traincast.core.output_files import atomic_output
from traincast.core.quantities import Bools, Floats
from traincast.step.uncertainty import layer_work

TABLE: Final = Path(__file__).with_name("measured") / "left_out.csv"
OPEN: Final = TABLE.with_name("left_open.csv")  # the same of all software that rows read with less leave open
LATER: Final = TABLE.with_name("later_runs.csv")  # runs collected later, which are not bundled
DIGITS: Final = 5
SHORT_STEP: Final = 0.3  # [s]
MANY_GPUS: Final = 1000
# By whether models have experts: forward work of a rank in a layer and a micro-batch below which runs are
# light, some tenth of the groups of either kind [FLOP]
LIGHT_WORK: Final = {False: 2e11, True: 2e12}
WIDE_EP: Final = 32  # ranks of a group of experts that Megatron-Core and DeepSeek call wide


@cache
def runs_of(table: Path) -> tuple[Run, ...]:
    """Return the runs of a table that can be read."""
    return tuple(run for _, run in readable(rows(table)) if isinstance(run, Run))


@cache
def later_runs() -> tuple[Run, ...]:
    """Return the runs that were collected later, can be predicted and state their plan."""
    skipped = {prediction.id for prediction in validate(LATER).predictions if prediction.skipped}
    known = (run for run in runs_of(LATER) if run.id not in skipped)
    return tuple(run for run in known if run.states_its_plan)


def _model(run: Run) -> Hashable:
    """Return the widths of a model: cut to fewer layers, or under another name, it is the same."""
    experts = run.model.experts and (run.model.experts.experts, run.model.experts.ffn)
    return run.model.hidden, run.model.ffn, run.model.heads, experts


def _size(run: Run) -> Hashable:
    """Return the hidden size of single-node vTrain runs, on which alone their layer costs depend."""
    return run.model.hidden if run.id.startswith("vtrain-s") else None


def _strategy(run: Run) -> Hashable:
    """Return the tensor-parallel degree, and whether states are sharded in groups, of InternEvo runs."""
    return (run.plan.tp, run.plan.replicas > 1) if run.id.startswith("internevo") else None


def is_light(run: Run) -> bool:
    """Return whether a rank has little work in a layer and a micro-batch (`LIGHT_WORK`)."""
    work = float(layer_work(run.model, run.plan.columns()))
    return work < LIGHT_WORK[run.model.experts is not None]


@dataclass(frozen=True)
class Split:
    """Way of leaving runs out: runs of equal `group` at once, none where it is None; and its name."""

    title: str
    group: Callable[[Run], Hashable]


def _where(condition: Callable[[Run], bool]) -> Callable[[Run], Hashable]:
    """Return the group of all runs that meet a condition."""
    return lambda run: condition(run) or None


SPLITS: Final = {  # column of the table → how runs are left out, the kindest first
    "left_out": Split("source × model × accelerator", group_of),
    "without_model": Split("whole model, on every accelerator", _model),
    "without_accelerator": Split("whole accelerator", lambda run: accelerator_name(run.system)),
    "without_stack": Split("whole framework release", lambda run: run.stack),
    "without_cell": Split("whole cell: stack × host × pipelined × experts across domains", cell_of),
    "without_pipelined_experts": Split(
        "all pipelined expert runs", _where(lambda run: run.model.experts is not None and run.plan.pp > 1)
    ),
    "without_wide_ep": Split(
        f"all expert runs with ep ≥ {WIDE_EP}",
        _where(lambda run: run.model.experts is not None and run.plan.ep >= WIDE_EP),
    ),
    "without_ep_across_nodes": Split("all EP across fast domains", _where(experts_across)),
    "without_short_steps": Split(
        f"all steps under {SHORT_STEP:g} s", _where(lambda run: (run.step_seconds or 1e9) < SHORT_STEP)
    ),
    "without_many_gpus": Split(
        f"all runs above {MANY_GPUS:,} GPUs", _where(lambda run: run.plan.gpus > MANY_GPUS)
    ),
    "without_light_work": Split(
        f"all runs with less than {LIGHT_WORK[False]:.0e} (experts {LIGHT_WORK[True]:.0e}) FLOP a layer",
        lambda run: run.model.experts is not None if is_light(run) else None,
    ),
}
WITHOUT: Final[dict[str, Callable[[Run], Hashable]]] = {
    **{column: split.group for column, split in SPLITS.items()},
    "without_size": _size,
    "without_strategy": _strategy,
    "without_source": lambda run: source_of(run.id, run.model.experts is not None),
}


BLIND: Final = {  # column of runs read with facts blind → the way in which they are left out
    "blind_fitted": "fitted", "blind": "left_out", "blind_without_stack": "without_stack"
}  # fmt: skip


HEADLINE: Final = "blind"  # column of the headline
FIRST: Final = "first_contact"  # column of runs of a release that no run before them had
OPEN_COLUMNS: Final = (HEADLINE, "blind_without_stack", FIRST)


def blind_runs(runs: Sequence[Run]) -> list[Run]:
    """Return the same runs as read with every fact blank but framework and release; as they are if unread."""
    blind = _blind_by_id()
    return [blind.get(run.id, run) for run in runs]


@cache
def _blind_by_id() -> dict[str, Run]:
    """Return the runs of all tables as read with every fact blank but framework and release, by id."""
    hidden = dict.fromkeys((name for name in FACTS if name not in ALWAYS_GIVEN), "")
    return _read_with(lambda row: hidden)


def releases_before(runs: Iterable[Run]) -> dict[str, str]:
    """Return, by framework and release of runs, the release of the framework before it that runs had."""
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        if set(ALWAYS_GIVEN) <= run.facts.keys():
            found[run.facts["framework"]].add(run.released)
    pairs = ((name, pair) for name, dates in found.items() for pair in pairwise(sorted(dates)))
    return {release_of(name, after): before for name, (before, after) in pairs}


def earlier_runs(runs: Sequence[Run]) -> list[Run | None]:
    """Return the same runs as read when their release is new: as if it were the one before; None without."""
    before = releases_before(runs)
    released = [before.get(release_of(run.facts.get("framework", ""), run.released)) for run in runs]
    by_id = dict(zip((run.id for run in runs), released, strict=True))
    again = _read_with(lambda row: {"released": by_id.get(row["id"]) or row["released"]})
    return [again.get(run.id, run) if name else None for run, name in zip(runs, released, strict=True)]


def _read_with(changes: Callable[[Mapping[str, str]], Mapping[str, str]]) -> dict[str, Run]:
    """Return the runs of all tables that can be read with cells of their rows changed, by id."""
    table = [{**row, **changes(row)} for row in (*published(), *rows(LATER))]
    return {run.id: run for _, run in readable(table) if isinstance(run, Run)}


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Logarithms of predicted over measured time of the runs of a fit.

    Parameters
    ----------
    columns : mapping of str to array
        Way of leaving out, or of `BLIND` → residuals, shape (runs,); nan where a run is in.
    open : mapping of str to mapping
        Column of `OPEN_COLUMNS` → index of a run and software that it leaves open → the residual with it.
    """

    columns: dict[str, Floats]
    open: Mapping[str, Mapping[tuple[int, str], float]]


def residuals(fitted: Fitted, progress: Callable[[str], Any]) -> LeftOut:
    """Return log(predicted / measured) of the runs of a fit, in every way they are left out.

    Columns of `BLIND` have the constants of the others, and the runs read without facts of their software.
    """
    everything = fitted.measured
    values = [item.value for item in fitted.constants]
    at_fit = np.log(everything.predict(values) / everything.measured)
    used = np.isfinite(at_fit) & (everything.data.weights > 0)
    columns = {"fitted": np.where(used, at_fit, np.nan)}
    blind = MeasuredRuns(blind_runs(everything.runs), everything.parameters)
    blind_at_fit = np.log(blind.predict(values) / everything.measured)
    columns["blind_fitted"] = np.where(used, blind_at_fit, np.nan)
    of_split = {split: name for name, split in BLIND.items()}
    left_open = Opened.of(everything, blind.runs)
    found: dict[str, Mapping[tuple[int, str], float]] = {}
    for column, group in WITHOUT.items():
        groups = [group(run) if is_used else None for run, is_used in zip(everything.runs, used, strict=True)]
        names = list(dict.fromkeys(name for name in groups if name is not None))
        fits = fitted.fit_without(groups, progress=partial(_report_column, progress, column))
        columns[column] = _predicted_without(everything, groups, names, fits, at_fit)
        if column in of_split:
            columns[of_split[column]] = _predicted_without(blind, groups, names, fits, blind_at_fit)
            constants = {name: fits.get(name, values) for name in names}
            found[of_split[column]] = left_open.residuals(groups, constants)
    found[FIRST] = _first_contact(fitted, used, progress)
    return LeftOut({name: columns[name] for name in ("fitted", *WITHOUT, *BLIND)}, found)


@dataclass(frozen=True, eq=False)
class Opened:
    """Runs once with each software that they leave open, or that is not theirs.

    Parameters
    ----------
    rows : list of int
        Index of the run that each of `measured` is.
    measured : MeasuredRuns
        The runs with each software.
    """

    rows: list[int]
    measured: MeasuredRuns

    @classmethod
    def of(cls, everything: MeasuredRuns, runs: Sequence[Run | None]) -> "Opened":
        """Return runs as read with less, where that leaves other software open than their own."""
        pairs: list[tuple[int, Run]] = []
        for i, (run, own) in enumerate(zip(runs, everything.runs, strict=True)):
            if run is None or run.unsaid == Stack.ANY:
                continue
            names = run.unsaid or (
                () if run.stack == own.stack and run.released == own.released else (run.stack,)
            )
            pairs += [(i, replace(run, stack=name)) for name in names]
        with_software = MeasuredRuns([run for _, run in pairs], everything.parameters)
        return cls([i for i, _ in pairs], with_software)

    def residuals(
        self, groups: Sequence[Hashable], fits: Mapping[Hashable, Sequence[float]]
    ) -> dict[tuple[int, str], float]:
        """Return the residuals with constants fitted without the group of the run, by run and software.

        `groups` are those of the runs of the fit; None of those that are not left out.
        """
        found: dict[tuple[int, str], float] = {}
        names = [groups[i] for i in self.rows]
        for name in dict.fromkeys(name for name in names if name is not None):
            where = [k for k, other in enumerate(names) if other == name]
            y = np.log(self.measured.predict(fits[name], where)[where] / self.measured.measured[where])
            pairs = [(self.rows[k], self.measured.runs[k].stack) for k in where]
            found |= {
                pair: error for pair, error in zip(pairs, y.tolist(), strict=True) if np.isfinite(error)
            }
        return found


def is_since(run: Run, framework: str, released: str) -> bool:
    """Return whether a run is of a release of a framework or of a later one."""
    return run.facts.get("framework") == framework and run.released >= released


def _first_contact(
    fitted: Fitted, used: Bools, progress: Callable[[str], Any]
) -> dict[tuple[int, str], float]:
    """Return the residuals of runs whose release no run before them had.

    They are read as if it were the release of their framework before, with constants fitted without all runs
    of the framework of their release and of later ones.
    """
    runs = fitted.measured.runs
    left_open = Opened.of(fitted.measured, earlier_runs(runs))
    found = dict[tuple[int, str], float]()
    releases = [(run.facts.get("framework", ""), run.released) for run in runs]
    for framework, released in sorted({releases[i] for i in left_open.rows}):
        out = [
            (is_since(run, framework, released) and is_used) or None
            for run, is_used in zip(runs, used.tolist(), strict=True)
        ]
        if not any(out):
            continue
        fits = fitted.fit_without(out, progress=partial(_report_column, progress, FIRST))
        of_release = [
            is_out if place == (framework, released) else None
            for place, is_out in zip(releases, out, strict=True)
        ]
        found |= left_open.residuals(of_release, fits)
    return found


def _predicted_without(
    runs: MeasuredRuns,
    groups: Sequence[Hashable],
    names: Iterable[Hashable],
    fits: Mapping[Hashable, Sequence[float]],
    at_fit: Floats,
) -> Floats:
    """Return log(predicted / measured) of runs with the constants of the fit without their group."""
    y = np.full(len(groups), np.nan)
    for name in names:
        where = [i for i, other in enumerate(groups) if other == name]
        y[where] = (
            np.log(runs.predict(fits[name], where)[where] / runs.measured[where])
            if name in fits
            else at_fit[where]
        )
    return y


def _report_column(report: Callable[[str], Any], column: str, line: str) -> None:
    """Report a line of progress with its column."""
    report(f"{column}: {line}")


def write(runs: Iterable[Run], columns: dict[str, Floats], path: Path = TABLE) -> None:
    """Write the table: one row per run with a residual."""
    with atomic_output(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "source", "group", *columns])
        for i, run in enumerate(runs):
            values = [values_of_column[i] for values_of_column in columns.values()]
            if not np.isnan(values[0]):
                source, *rest = group_of(run)
                cells = ("" if np.isnan(value) else f"{value:.{DIGITS}f}" for value in values)
                writer.writerow([run.id, source, " / ".join((source, *rest)), *cells])


def write_open(runs: Sequence[Run], found: LeftOut, path: Path = OPEN) -> None:
    """Write the table of software left open: one row per run, way of leaving it out, and software."""
    with atomic_output(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "column", "stack", "residual"])
        for column in OPEN_COLUMNS:
            for (i, stack), error in found.open.get(column, {}).items():
                writer.writerow([runs[i].id, column, stack, f"{error:.{DIGITS}f}"])


@cache
def read_open(path: Path = OPEN) -> dict[str, dict[str, dict[str, float]]]:
    """Read the table of software left open: column → run → software → residual."""
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["column"]][row["id"]][row["stack"]] = float(row["residual"])
    return found
