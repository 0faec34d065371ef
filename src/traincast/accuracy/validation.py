"""Predictions against measured runs: row by row, and summarised by source."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from traincast.accuracy.runs.reported_memory import LEFT_OUT, memory_as_reported
from traincast.accuracy.runs.run import UNKNOWN_MACHINE, Run, load_bundled_runs, readable, rows
from traincast.accuracy.scores import (
    INDEPENDENT,
    ErrorBudget,
    ErrorSummary,
    Prediction,
    Subject,
    budgets,
    reasons,
    source_of,
    summaries,
    totals,
)
from traincast.accuracy.verdicts import Judged, VerdictReport, verdict_report
from traincast.catalog import FACTS, resolve
from traincast.core import (
    CALIBRATED,
    KEY,
    Assumptions,
    Column,
    Doc,
    Floats,
    InputError,
    Ints,
    Plan,
    Plans,
    Result,
    System,
    first_problems,
    make_record,
    require_type,
)
from traincast.core import seconds as rounded
from traincast.model import Model
from traincast.step import (
    Estimates,
    broken_rules,
    estimate,
    estimate_columns,
    model_flops_per_token,
    placements,
    utilisation,
)

__all__ = ["ErrorSummary", "Prediction", "Report", "source_of", "validate"]

UNJUDGED: Final = {  # columns without which a row has no verdict -> why
    frozenset({"mbs", "recompute"}): "micro-batch or recomputation not stated, and filled in so that it fits",
    UNKNOWN_MACHINE: "GPUs or accelerator not stated",
}
COMPOSED: Final = "composed of measurements of other runs"
NO_PROBABILITY: Final = "no errors are known under these assumptions"
MAX_SHARE: Final = 0.9  # of the dense peak, which the FLOPs of a run can have; products alone sustain no more


@dataclass(frozen=True, eq=False)
class RunBatch:
    """Runs of one model, machine, software stack and set of choices, whose plans are placed.

    `plans` and `gbs` are columns of shape (runs,); `rows` are the indices of the runs in the sequence that
    was batched.
    """

    model: Model
    system: System
    stack: str
    unsaid: tuple[str, ...]  # stacks that they leave open
    released: bool  # whether they state a release, whose usual stack is likelier right than the median
    new_release: bool  # and whether no measured run had it
    plans: Plans
    gbs: Any  # a column of ints, broadcast by the engine
    rows: Ints

    def estimate(self, system: System, assumed: Assumptions) -> Estimates:
        """Estimate these runs on a machine under assumptions."""
        return estimate_columns(self.model, system, self.plans, self.gbs, assumed)

    def only(self, index: int) -> "RunBatch":
        """Return the batch of one of these runs."""
        row = np.array([index])
        return replace(self, plans=self.plans.take(row), gbs=self.gbs[row], rows=self.rows[row])

    def seconds(self, system: System, assumed: Assumptions) -> Floats:
        """Return step times, shape (runs,), or (n, runs) where figures are columns of shape (n, 1) [s]."""
        value = np.asarray(self.estimate(system, assumed).step_seconds, np.float64)
        return np.broadcast_to(value, np.broadcast_shapes(value.shape, self.rows.shape))


def batches(runs: Sequence[Run]) -> tuple[list[RunBatch], dict[int, str]]:
    """Group runs into batches; also return, by index, the rule that a run breaks, so that it is in none."""
    plans = [_place_ranks(run) for run in runs]
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, (run, plan) in enumerate(zip(runs, plans, strict=True)):
        software = run.stack, run.unsaid, bool(run.released), run.new_release
        group = replace(run.model, name=""), run.system.name, software, tuple(plan.choices().items())
        groups[group].append(i)
    run_batches: list[RunBatch] = []
    refused: dict[int, str] = {}
    for group_rows in groups.values():
        first = runs[group_rows[0]]
        rows = np.array(group_rows)
        gbs: Any = np.array([float(runs[i].gbs) for i in group_rows])
        columns = _as_columns([plans[i] for i in group_rows])
        broken = np.zeros(len(rows), bool)
        for mask in broken_rules(first.model, columns, gbs, first.system.fast_domain).values():
            broken |= mask
        refused |= {i: _refusal(runs[i], plans[i]) for i in rows[broken].tolist()}
        if not broken.all():
            batch = RunBatch(
                first.model,
                first.system,
                first.stack,
                first.unsaid,
                bool(first.released),
                first.new_release,
                columns.take(~broken),
                gbs[~broken],
                rows[~broken],
            )
            run_batches.append(batch)
    return run_batches, refused


def _place_ranks(run: Run) -> Plan:
    """Return the plan of a run with its ranks placed in the order of frameworks."""
    all_placements = placements(run.plan, run.system.domain(run.plan.gpus), ordered=True)
    return run.plan if all_placements is None else all_placements.row(0)


def _as_columns(plans: Sequence[Plan]) -> Plans:
    knobs = {
        name: np.array([float(getattr(plan, name) or 1) for plan in plans])
        for name in plans[0].columns().numbers()
    }
    return make_record(Plans, {**knobs, **plans[0].choices()})


def _refusal(run: Run, plan: Plan) -> str:
    try:
        estimate(run.model, run.system, plan, gbs=run.gbs)
    except InputError as error:
        return " ".join(str(error).split())
    return "cannot be estimated together with other runs"


class UnsaidRows(Result):
    """Rows that leave open what software ran, whose intervals are those of a mixture."""

    n: Annotated[int, Doc("rows predicted that have a measured step time")]
    mape: Annotated[float, Doc("mean absolute relative error")]
    coverage: Annotated[float, Doc("share of their measured times that lie in their intervals")]


def _coverage(rows: Sequence[Prediction]) -> float | None:
    """Return the share of measured times that lie in their 90 % intervals; None where none has one."""
    covered = [
        row.low <= row.measured_step_seconds <= row.high
        for row in rows
        if row.low is not None and row.high is not None and row.measured_step_seconds is not None
    ]
    return float(np.mean(covered)) if covered else None


class Report(Result, repr=False):
    """Predictions of a table of runs: every row, in order, and errors by source and in total."""

    assumptions: Annotated[str, Doc("name of the assumptions")]
    predictions: Annotated[tuple[Prediction, ...], Doc("every row of the table", key="rows")]
    summaries: tuple[ErrorSummary, ...]
    totals: tuple[ErrorSummary, ...]
    stated: Annotated[
        dict[str, float], Doc("share of the rows read that state each fact of their software", key="facts")
    ]
    subjects: Mapping[str, Subject] = field(default_factory=dict)  # rows that can be read, by id

    def __repr__(self) -> str:
        predicted = [prediction for prediction in self.predictions if prediction.skipped is None]
        return f"<Report of {len(predicted)} runs, {len(self.predictions) - len(predicted)} skipped>"

    @property
    def moe(self) -> frozenset[str]:
        """Rows whose model has experts."""
        return frozenset(run for run, subject in self.subjects.items() if subject.moe)

    @property
    def timed(self) -> list[Prediction]:
        """Rows that are predicted and whose step time was measured."""
        predicted_runs = (run for run in self.predictions if run.skipped is None)
        return [run for run in predicted_runs if run.measured_step_seconds is not None]

    def budgets(self) -> tuple[ErrorBudget, ...]:
        """Return the error budgets of sources; the predictions have to know their parts."""
        return budgets(self.timed, self.moe)

    @property
    def by_source(self) -> Annotated[dict[str, ErrorSummary], Doc(key="summary")]:
        """Errors by source."""
        return {summary.source: summary for summary in self.summaries}

    @property
    def by_kind(self) -> Annotated[dict[str, ErrorSummary], Doc(key="totals")]:
        """Errors of all dense models, and of all with experts."""
        return {summary.source: summary for summary in self.totals}

    @property
    def coverage(self) -> Annotated[float | None, KEY]:
        """Share of the measured step times that lie in the 90 % intervals of their predictions."""
        return _coverage(self.predictions)

    @property
    def unsaid(
        self,
    ) -> Annotated[UnsaidRows | None, Doc("rows that leave open what software ran", key="unsaid")]:
        """Rows that leave open what software ran; None where no such row has an interval."""
        left = [row for row in self.predictions if row.id in self.subjects and self.subjects[row.id].unsaid]
        timed = [row for row in left if row.low is not None and row.measured_step_seconds is not None]
        if not timed:
            return None
        mape = float(np.mean([abs(row.error) for row in timed]))
        return UnsaidRows(len(timed), mape, float(_coverage(timed) or 0.0))

    @cached_property
    def fits(self) -> Annotated[VerdictReport, KEY]:
        """Verdicts of fit against what happened: ran, or ran out of memory."""
        return verdicts_of([self])

    @property
    def assumed_out(self) -> int:
        """Rows that are taken to have run out of memory, having neither a speed nor memory."""
        return sum(subject.assumed_out for subject in self.subjects.values())

    @property
    def skipped(self) -> Annotated[dict[str, int], KEY]:
        """Rows that are not predicted, by reason."""
        return dict(reasons(self.predictions).most_common())


def verdicts_of(reports: Sequence[Report]) -> VerdictReport:
    """Return how right the verdicts of the predicted rows of several tables are."""
    judged = []
    left_out = Counter[str]()
    for report in reports:
        for row in report.predictions:
            if row.skipped is not None:
                continue
            subject = report.subjects[row.id]
            if subject.unjudged:
                left_out[subject.unjudged] += 1
            elif row.fits_probability is None or row.capacity_share is None:
                left_out[NO_PROBABILITY] += 1
            else:
                ran = row.outcome == "ran"
                known = (row.fits_probability, row.capacity_share)
                judged.append(Judged(subject.framework, subject.accelerator, ran, *known))
    return verdict_report(judged, left_out)


def validate(
    runs: str | Path | Sequence[Mapping[str, str]] | None = None,
    assumptions: str | Assumptions = "calibrated",
    *,
    parts: bool = False,
) -> Report:
    """Predict every readable run of a table, and compare with the measurement.

    Parameters
    ----------
    runs : str, Path or sequence of mapping of str to str, optional
        A CSV file with the columns of the bundled table of published runs, or its rows; that table itself if
        left out.
    assumptions : str or Assumptions
        Assumptions; ``"calibrated"`` uses for each run the software stack that ran it.
    parts : bool
        Whether predictions include the step time by component.

    Returns
    -------
    Report
        A prediction, or the reason it is skipped, for every row, in their order; errors by source.

    Raises
    ------
    InputError
        If the file cannot be read, two runs have one id, or no run can be predicted.

    Examples
    --------
    >>> import traincast as tc
    >>> report = tc.validate()
    >>> next(row for row in report.predictions if row.id == "korth-008").skipped is None
    True
    """
    if runs is None:
        table = load_bundled_runs()
    else:
        given = rows(runs) if isinstance(runs, str | Path) else runs
        require_type("runs", given, "the path of a file, or its rows", Sequence)
        for row in given:
            require_type("runs", row, "rows: mappings of columns to values", Mapping)
        table = [(row["id"], run) for row, run in readable(given)]
    if repeated := [name for name, count in Counter(name for name, _ in table).items() if count > 1]:
        problems = [f"id = {name!r}: names several runs; each needs its own" for name in repeated]
        raise InputError("runs", problems)
    predictions = {name: Prediction(name, skipped=run) for name, run in table if isinstance(run, str)}
    usable = [run for _, run in table if isinstance(run, Run)]
    predictions |= {prediction.id: prediction for prediction in _predictions(usable, assumptions, parts)}
    ordered = tuple(predictions[name] for name, _ in table)
    if all(row.skipped is not None for row in ordered):  # else a check of an unreadable table passes
        subject = str(runs) if isinstance(runs, str | Path) else "runs"
        unusable = first_problems(ordered, lambda row: f"{row.id}: {row.skipped}")
        raise InputError(subject, unusable or ["holds no run"])
    subjects = {run.id: _subject(run, assumptions == CALIBRATED) for run in usable}
    name = assumptions if isinstance(assumptions, str) else assumptions.name
    stated = {fact: sum(fact in run.facts for run in usable) / max(len(usable), 1) for fact in FACTS}
    return Report(name, ordered, summaries(ordered, subjects), totals(ordered, subjects), stated, subjects)


def _subject(run: Run, own_software: bool) -> Subject:
    """Return the properties of a run, predicted with its own software or another.

    Runs of one setting differ in their plan only.
    """
    setting = (run.model, run.system.name, run.plan.gpus, run.gbs, run.plan.precision, run.stack)
    moe = run.model.experts is not None
    return Subject(
        moe=moe,
        stack=run.stack,
        setting=setting,
        plan=run.plan,
        mbs=run.plan.mbs,
        layout=run.plan.layout_values,
        unsaid=own_software and bool(run.unsaid),
        framework=run.facts.get("framework", "not stated"),
        accelerator=run.system.accelerator.name,
        unjudged=_reason_unjudged(run),
        assumed_out="outcome" in run.assumed,
    )


def _reason_unjudged(run: Run) -> str:
    """Return why a run has no verdict of fit; empty where it has one."""
    if source_of(run.id, moe=False) in INDEPENDENT:
        return COMPOSED
    return next((why for columns, why in UNJUDGED.items() if not columns.isdisjoint(run.assumed)), "")


def _predictions(runs: Sequence[Run], assumptions: str | Assumptions, parts: bool) -> Iterable[Prediction]:
    """Yield predictions of runs; those that differ in numbers only are estimated as columns."""
    run_batches, refused = batches(runs)
    for i, reason in refused.items():
        yield Prediction(runs[i].id, skipped=reason)
    for batch in run_batches:
        assumed = resolve(batch.stack if assumptions == CALIBRATED else assumptions)
        if assumptions == CALIBRATED:
            assumed = replace(assumed, unsaid=batch.unsaid, new_release=batch.new_release)
        yield from _batch_predictions(batch, [runs[i] for i in batch.rows], assumed, parts)


def _batch_predictions(
    batch: RunBatch, runs: Sequence[Run], assumed: Assumptions, parts: bool
) -> Iterable[Prediction]:
    try:
        est = batch.estimate(batch.system, assumed)
    except InputError as error:  # a precision that the accelerator lacks, or one run's layout
        if len(runs) == 1:
            yield Prediction(runs[0].id, skipped=" ".join(str(error).split()))
            return
        for i, run in enumerate(runs):  # of others in its batch that may hold
            yield from _batch_predictions(batch.only(i), [run], assumed, parts)
        return

    def rows(column: Column) -> Floats:
        return np.broadcast_to(np.asarray(column), len(runs))

    centre = est.step_seconds if batch.released else est.median_seconds
    seconds = rows(centre)
    interval = est.interval and [rows(end) for end in est.interval]
    memory = {kind: rows(memory_as_reported(est.memory, kind)) for kind in LEFT_OUT}
    spent = {part: rows(value) for part, value in est.breakdown.items()} if parts else {}
    chance = est.fits_probability
    probability = None if chance is None else rows(chance)
    of_capacity = rows(est.memory_bytes / batch.system.accelerator.visible_bytes)
    share = rows(_share_of_peak(est, batch, np.array([run.step_seconds or np.inf for run in runs])))
    for i, run in enumerate(runs):
        if run.step_seconds is not None and share[i] > MAX_SHARE:
            problem = (
                f"the model's FLOPs take {rounded(share[i] * run.step_seconds)} at the dense peak, "
                f"of which no accelerator sustains more than {100 * MAX_SHARE:g}%"
            )
            yield Prediction(run.id, skipped=f"step_seconds = {run.step_seconds:g}: {problem}")
            continue
        low, high = [float(end[i]) for end in interval] if interval else (None, None)
        yield Prediction(
            run.id,
            run.step_seconds,
            float(seconds[i]),
            low,
            high,
            run.memory_bytes,
            _last_rank(run, assumed) if run.last_rank else float(memory[run.reported][i]),
            outcome=run.outcome,
            fits_probability=None if probability is None else float(probability[i]),
            capacity_share=float(of_capacity[i]),
            parts={part: float(value[i]) for part, value in spent.items()},
        )


def _last_rank(run: Run, assumed: Assumptions) -> float:
    """Return the memory of the last stage as the run's tool reports it [byte]."""
    est = estimate(run.model, run.system, run.plan, gbs=run.gbs, assumptions=assumed)
    last = est.device_rows()[-1].memory_by_component_bytes
    return float(memory_as_reported(last, run.reported))


def _share_of_peak(est: Estimates, batch: RunBatch, step_seconds: Floats) -> Column:
    """Return the MFU of measured step times [s] by the convention of only necessary FLOPs (megatron)."""
    peak = est.system.accelerator.peak(batch.plans.recipe.rate)
    per_gpu = batch.gbs * batch.model.seq / (step_seconds * batch.plans.gpus)
    return utilisation(model_flops_per_token(batch.model, "megatron"), per_gpu, peak)
