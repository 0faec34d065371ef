"""Predictions against measured runs: row by row, and summed up by source."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.assumptions import CALIBRATED, Assumptions
from traincast.batches import Batch, batches
from traincast.columns import Floats
from traincast.errors import InputError
from traincast.measurements import Run, readable, rows
from traincast.memory import LEFT_OUT, reported
from traincast.stacks import resolve

MANY: Final = 2  # plans that make a group worth ranking, at least so many and one more


@dataclass(frozen=True)
class Prediction:
    """One row of a table of runs, predicted or skipped.

    Parameters
    ----------
    id : str
        What the row is called.
    measured_step_seconds, predicted_step_seconds : float or None
        Time of a step [s].
    low, high : float or None
        Interval of the predicted time [s]; None where assumptions give none.
    measured_memory_bytes, predicted_memory_bytes : float or None
        Memory of the fullest rank, both as the row's way of measuring sees it [byte].
    skipped : str or None
        Why the row is not predicted.
    """

    id: str
    measured_step_seconds: float | None = None
    predicted_step_seconds: float | None = None
    low: float | None = None
    high: float | None = None
    measured_memory_bytes: float | None = None
    predicted_memory_bytes: float | None = None
    skipped: str | None = None

    @property
    def memory_error(self) -> float:
        """Predicted over measured memory, less 1."""
        if not self.measured_memory_bytes or self.predicted_memory_bytes is None:
            return math.nan
        return self.predicted_memory_bytes / self.measured_memory_bytes - 1

    @property
    def error(self) -> float:
        """Predicted over measured step time, less 1."""
        if self.measured_step_seconds is None or self.predicted_step_seconds is None:
            return math.nan
        return self.predicted_step_seconds / self.measured_step_seconds - 1


@dataclass(frozen=True)
class Summary:
    """How far predictions of one source are off.

    Parameters
    ----------
    source : str
        Rows whose names begin alike; mixture-of-experts models apart.
    n, skipped : int
        Rows predicted whose step time was measured, and rows skipped.
    mape, median, bias, worst : float or None
        Mean and median of the absolute relative error of the step time, its mean, and its largest absolute value; None where no
        step time was measured.
    spearman, regret : float or None
        Rank correlation, and how much slower the plan ranked first really is, each the mean over groups that differ only in their
        plan; None without such groups.
    memory : float or None
        Mean absolute relative error of memory; None where none is measured.
    """

    source: str
    n: int
    skipped: int
    mape: float | None
    median: float | None
    bias: float | None
    worst: float | None
    spearman: float | None
    regret: float | None
    memory: float | None


@dataclass(frozen=True, repr=False)
class Report:
    """Predictions of a table of runs."""

    predictions: tuple[Prediction, ...]
    summaries: tuple[Summary, ...]
    assumptions: str

    def __repr__(self) -> str:
        done = [one for one in self.predictions if one.skipped is None]
        return f"<Report of {len(done)} runs, {len(self.predictions) - len(done)} skipped>"

    def to_dict(self) -> dict[str, Any]:
        """For machines: every row, and the summary by source."""
        return {
            "assumptions": self.assumptions,
            "rows": [asdict(one) for one in self.predictions],
            "summary": {
                one.source: {key: value for key, value in asdict(one).items() if key != "source"} for one in self.summaries
            },
        }


def validate(runs: str | Path | None = None, assumptions: str | Assumptions = "calibrated") -> Report:
    """Predict every run of a table that can be read, and compare.

    Parameters
    ----------
    runs : str or Path, optional
        A CSV file with the columns of the bundled table of published runs; that table itself if left out.
    assumptions : str or Assumptions
        What is assumed; ``"calibrated"`` takes for each run the software stack that ran it.

    Returns
    -------
    Report
        A prediction, or the reason it is skipped, for every row, in their order; errors by source.

    Raises
    ------
    InputError
        If the file cannot be read.

    Examples
    --------
    >>> import traincast as tc
    >>> report = tc.validate()
    >>> next(one for one in report.predictions if one.id == "korth-008").skipped is None
    True
    """
    table = list(readable(rows(runs)))
    told = {row["id"]: Prediction(row["id"], skipped=run) for row, run in table if isinstance(run, str)}
    usable = [run for _, run in table if isinstance(run, Run)]
    told |= {one.id: one for one in _predicted(usable, assumptions)}
    every = tuple(told[row["id"]] for row, _ in table)
    return Report(every, tuple(_summaries(every, usable)), assumptions if isinstance(assumptions, str) else assumptions.name)


def _predicted(runs: Sequence[Run], assumptions: str | Assumptions) -> Iterable[Prediction]:
    """Predictions of runs; those that differ in numbers only are estimated side by side."""
    found, refused = batches(runs)
    for i, reason in refused.items():
        yield Prediction(runs[i].id, skipped=reason)
    for batch in found:
        assumed = resolve(batch.stack if assumptions == CALIBRATED.name else assumptions)  # calibrated: each with its own software
        yield from _batch(batch, [runs[i] for i in batch.rows], assumed)


def _batch(batch: Batch, runs: Sequence[Run], assumed: Assumptions) -> Iterable[Prediction]:
    """Predictions of the runs of a batch."""
    try:
        est = batch.estimate(batch.system, assumed)
    except InputError as error:  # a precision that the accelerator lacks, say
        yield from (Prediction(run.id, skipped=" ".join(str(error).split())) for run in runs)
        return
    kinds = [reported(est.memory, kind) for kind in LEFT_OUT]
    ends = est.interval or (np.nan, np.nan)
    seconds, low, high, *memory = (np.broadcast_to(np.asarray(one), len(runs)) for one in (est.step_seconds, *ends, *kinds))
    for i, run in enumerate(runs):
        held = dict(zip(LEFT_OUT, memory, strict=True))[run.reported]
        yield Prediction(
            run.id,
            run.step_seconds,
            float(seconds[i]),
            low=float(low[i]) if est.interval else None,
            high=float(high[i]) if est.interval else None,
            measured_memory_bytes=run.memory_bytes,
            predicted_memory_bytes=float(held[i]),
        )


def source_of(run_id: str, moe: bool) -> str:
    """What rows of one source have in common: the beginning of their names, and whether the model has experts."""
    return run_id.rsplit("-", 1)[0] + ("/moe" if moe else "")


def _summaries(predictions: Sequence[Prediction], runs: Sequence[Run]) -> Iterable[Summary]:
    """Errors by source."""
    moe = {run.id: run.model.experts is not None for run in runs}
    by: dict[str, list[Prediction]] = defaultdict(list)
    for one in predictions:
        by[source_of(one.id, moe.get(one.id, False))].append(one)
    for source, some in sorted(by.items()):
        done = [one for one in some if one.skipped is None]
        if not done:
            continue
        timed = [one for one in done if one.measured_step_seconds is not None]
        errors = [one.error for one in timed]
        sizes = [abs(error) for error in errors]
        ranked = list(_ranked(timed, runs))
        yield Summary(
            source,
            len(timed),
            len(some) - len(done),
            _figure(np.mean, sizes),
            _figure(np.median, sizes),
            _figure(np.mean, errors),
            _figure(np.max, sizes),
            _figure(np.mean, [rank for rank, _ in ranked]),
            _figure(np.mean, [regret for _, regret in ranked]),
            _figure(np.mean, [abs(one.memory_error) for one in done if one.measured_memory_bytes]),
        )


def _figure(of: Callable[[Sequence[float]], Any], values: Sequence[float]) -> float | None:
    """One figure of many values; None without any."""
    return float(of(values)) if values else None


def _ranked(predictions: Sequence[Prediction], runs: Sequence[Run]) -> Iterable[tuple[float, float]]:
    """Rank correlation and regret of every group of runs that differ only in their plan."""
    of = {run.id: run for run in runs}
    groups: dict[Any, list[Prediction]] = defaultdict(list)
    for one in predictions:
        run = of[one.id]
        groups[run.model, run.system.name, run.plan.gpus, run.gbs, run.plan.precision, run.stack].append(one)
    for some in groups.values():
        if len({of[one.id].plan for one in some}) <= MANY:
            continue
        predicted, measured = (
            np.array([getattr(one, f"{which}_step_seconds") for one in some]) for which in ("predicted", "measured")
        )
        regret = float(measured[np.argmin(predicted)] / measured.min() - 1)
        yield _spearman(predicted, measured), regret


def _spearman(a: Floats, b: Floats) -> float:
    """Rank correlation, equal values sharing their mean rank."""
    ranks = [np.array([np.mean(np.flatnonzero(np.sort(one) == value)) for value in one]) for one in (a, b)]
    off = [one - one.mean() for one in ranks]
    spread = float(np.sqrt((off[0] ** 2).sum() * (off[1] ** 2).sum()))
    return float((off[0] * off[1]).sum()) / spread if spread else 0.0
