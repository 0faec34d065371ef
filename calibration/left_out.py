"""Residuals of the published runs, fitted and left out, and their table."""

import csv
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from measured_cells import cell_of, experts_across
from normalise import published
from traincast.accuracy.fit.fit import Fitted
from traincast.accuracy.fit.parameters import accelerator_name
from traincast.accuracy.fit.residuals import MeasuredRuns, group_of
from traincast.accuracy.runs.facts import ALWAYS_GIVEN, FACTS
from traincast.accuracy.runs.run import Run, readable, rows
from traincast.accuracy.scores import source_of
from traincast.accuracy.validate import validate
from traincast.core.output_files import atomic_output
from traincast.core.quantities import Floats

TABLE: Final = Path(__file__).with_name("measured") / "left_out.csv"
LATER: Final = TABLE.with_name("later_runs.csv")  # runs collected later, which are not bundled
DIGITS: Final = 5
SHORT_STEP: Final = 0.3  # [s]
MANY_GPUS: Final = 1000
WIDE_EP: Final = 32  # ranks of a group of experts that Megatron-Core and DeepSeek call wide


@cache
def later_runs() -> tuple[Run, ...]:
    """Return the runs that were collected later and can be predicted."""
    skipped = {prediction.id for prediction in validate(LATER).predictions if prediction.skipped}
    runs = (run for _, run in readable(rows(LATER)))
    return tuple(run for run in runs if isinstance(run, Run) and run.id not in skipped)


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


def blind_runs(runs: Sequence[Run]) -> list[Run]:
    """Return the same runs as read with every fact blank but framework and release; as they are if unread."""
    hidden = dict.fromkeys((name for name in FACTS if name not in ALWAYS_GIVEN), "")
    table: list[dict[str, str]] = [{**row, **hidden} for row in (*published(), *rows(LATER))]
    blind = {run.id: run for _, run in readable(table) if isinstance(run, Run)}
    return [blind.get(run.id, run) for run in runs]


def residuals(fitted: Fitted, progress: Callable[[str], Any]) -> dict[str, Floats]:
    """Return log(predicted / measured) of the runs of a fit, shape (runs,), by column; nan where it is in.

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
    for column, group in WITHOUT.items():
        groups = [group(run) if is_used else None for run, is_used in zip(everything.runs, used, strict=True)]
        names = list(dict.fromkeys(name for name in groups if name is not None))
        fits = fitted.without(groups, progress=partial(_report_column, progress, column))
        columns[column] = _predicted_without(everything, groups, names, fits, at_fit)
        if column in of_split:
            columns[of_split[column]] = _predicted_without(blind, groups, names, fits, blind_at_fit)
    return {name: columns[name] for name in ("fitted", *WITHOUT, *BLIND)}


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
