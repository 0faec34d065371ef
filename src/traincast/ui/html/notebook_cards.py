"""Cards: compact HTML of results in notebooks, in the notebook's colours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from traincast.core.units import count_of, gib, percent, rate, seconds
from traincast.ui.html.rendering import Table, environment

if TYPE_CHECKING:
    from traincast.accuracy.fit.calibrate import Calibration
    from traincast.accuracy.validate import Report
    from traincast.analysis.advise import Advice
    from traincast.analysis.training_limits import Limits
    from traincast.analysis.zero_scaling import Scaling
    from traincast.planner.search import Found
    from traincast.planner.study.results import Results
    from traincast.step.estimate import Estimate
    from traincast.step.metrics import Metrics

MAX_CARD_ROWS: Final = 10  # of a long table


@dataclass(frozen=True)
class Card:
    """What the card of a result shows: a title with a plan and a remark, tables, and notes below them."""

    title: str
    tables: Sequence[Table] = ()
    plan: str = ""
    remark: str = ""
    notes: Sequence[str] = ()
    side_by_side: bool = False


def card(result: object) -> str | None:
    """Return a result as a card, or None for a result that has none."""
    make = next((CARDS[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in CARDS), None)
    content = None if make is None else make(result)
    return None if content is None else environment().get_template("card.html.jinja").render(vars(content))


def _estimate(est: "Estimate") -> Card:
    from traincast.ui.html.plan_report import memory_table, step_text, time_table
    from traincast.ui.text.plans import title

    capacity = gib(float(est.system.accelerator.hbm_bytes))
    fits = "fits in" if est.fits else "does not fit in"
    remark = f"A step takes {step_text(est)}; {gib(float(est.memory_bytes))} of memory {fits} {capacity}."
    tables = (time_table(est, "Time of a step"), memory_table(est))
    return Card(title(est), tables, str(est.plan), remark, side_by_side=True)


def _search(result: "Found") -> Card:
    from traincast.ui.html.search_report import ranking
    from traincast.ui.text.plans import title

    counts = f"{result.candidates:,} candidates of {result.framework.name}, {result.feasible:,} fit"
    remark = f"{counts}; assumptions: {result.assumptions.name}"
    if not result.plans:
        return Card(title(result), remark=remark, notes=["Nothing fits: explain() says what would."])
    return Card(title(result), [ranking(result.plans)], remark=remark)


def _results(results: "Results") -> Card:
    """Return the first points of a study."""
    from traincast.ui.html.study_report import first_points

    study = results.metadata["study"]
    remark = f"{count_of(len(results.frame), 'row')}; assumptions: {study['assumptions']['name']}"
    return Card(study["name"], [first_points(results, MAX_CARD_ROWS)], remark=remark)


def _report(report: "Report") -> Card:
    """Return errors of predictions by source, and the runs with the largest errors."""
    from traincast.ui.html.accuracy_report import error_table, largest_errors

    predicted = sum(prediction.skipped is None for prediction in report.predictions)
    counts = f"{predicted:,} of {len(report.predictions):,} measured runs predicted"
    tables = (error_table(report), largest_errors(report, MAX_CARD_ROWS // 2))
    return Card(f"{counts}; assumptions: {report.assumptions}", tables)


def _metrics(measures: "Metrics") -> Card | None:
    """Return the metrics of one plan; None for columns of plans."""
    from traincast.ui.html.plan_report import metric_tables, unknown_metrics

    if np.ndim(measures.tokens_per_second):
        return None
    notes = [f"not known: {text}" for text in unknown_metrics(measures)]
    return Card("Metrics", metric_tables(measures), notes=notes, side_by_side=True)


def _limits(limits: "Limits") -> Card:
    """Return the best sharding on each number of accelerators, and where utilisation falls."""
    from traincast.ui.text.analysis import SHARES, utilisation_sentences

    clusters = limits.clusters
    columns: dict[str, tuple[Any, Callable[[float], str]]] = {
        "GPUs": (clusters.gpus, _count_text),
        "tp_in": (clusters.tp_in, _count_text),
        "tp_out": (clusters.tp_out, _count_text),
        "dp": (clusters.dp, _count_text),
        "time": (clusters.seconds, seconds),
        "utilisation": (clusters.utilisation, percent),
        **{name: (share, percent) for name, share in zip(SHARES, clusters.spent, strict=True)},
    }
    texts = (
        ["" if np.isnan(value) else form(float(value)) for value in values]
        for values, form in columns.values()
    )
    caption = f"A layer of {limits.layer[0]:,} × {limits.layer[1]:,}, {limits.tokens:,} tokens a batch"
    table = Table(caption, tuple(columns), list(zip(*texts, strict=True)))
    title = f"Limits of moving data: {limits.device.name}"
    return Card(title, [table], notes=utilisation_sentences(limits))


def _scaling(stage: "Scaling") -> Card:
    header = ("GPUs", "iteration", "communication", "share", "efficiency", "memory")
    rows = [
        (
            *(_count_text(row.gpus), seconds(row.iteration_seconds), seconds(row.comm_seconds)),
            *(percent(row.comm_share), percent(row.efficiency), gib(row.memory_bytes)),
        )
        for row in stage.rows()
    ]
    return Card(f"Data parallelism with ZeRO-{stage.zero}", [Table("By number of GPUs", header, rows)])


def _advice(advice: "Advice") -> Card:
    from traincast.ui.text.analysis import batch_rows

    throughput_rows = [
        (
            *(throughput.convention, rate(throughput.model_flops_per_second, "FLOP/s")),
            *("" if share is None else percent(share) for share in (throughput.mfu, throughput.hfu)),
        )
        for throughput in advice.throughput
    ]
    batches = [(*row[:4], *row[6:]) for row in batch_rows(advice.batches)]
    batch_header = ("mbs", "global batch", "accumulation", "tokens/s", "memory", "fits")
    rules = [(rule.about, rule.rule, rule.here) for rule in advice.rules]
    tables = (
        Table("One GPU, by convention", ("convention", "FLOP/s", "MFU", "HFU"), throughput_rows),
        Table("Micro-batches", batch_header, batches),
        Table("Rules of thumb, and this plan", ("about", "rule", "here"), rules, ("rule", "here")),
    )
    return Card("Advice", tables, str(advice.est.plan))


def _calibration(calibration: "Calibration") -> Card:
    """Return the constants that measurements determine, and the errors before and after."""
    from traincast.ui.text.accuracy import constant_rows

    header = ("constant", "before", "after", "90% interval")
    table = Table("What the data determine", header, list(constant_rows(calibration)))
    groups = {"runs": calibration.errors, **calibration.others}
    notes = [
        f"Mean error of the {kind}: {errors['before']:.1%} before, {errors['after']:.1%} after."
        for kind, errors in groups.items()
        if errors["before"] is not None and errors["after"] is not None
    ]
    title = f"{calibration.system}, calibrated to {calibration.measured.counts()}"
    return Card(title, [table], notes=notes)


def _count_text(value: float) -> str:
    return f"{value:,.0f}"


CARDS: Final[Mapping[str, Callable[[Any], Card | None]]] = {
    "Estimate": _estimate,
    "Found": _search,
    "Results": _results,
    "Report": _report,
    "Metrics": _metrics,
    "Limits": _limits,
    "Scaling": _scaling,
    "Advice": _advice,
    "Calibration": _calibration,
}
