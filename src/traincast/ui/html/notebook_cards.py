"""Cards: compact HTML of results in notebooks, in the notebook's colours."""

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from traincast.core.plan import Plan
from traincast.core.units import count_of, gib, percent, rate, seconds, signed
from traincast.planner.misfit import whole_memory
from traincast.ui.html.elements import Html, bars, code, element, items, joined, paragraph, table

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


def card(result: object) -> str | None:
    """Return a result as a card, or None for a result that has none."""
    make = next((CARDS[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in CARDS), None)
    content = None if make is None else make(result)
    if content is None:
        return None
    style = element(
        "style", Html(files("traincast.ui.html").joinpath("card.css").read_text(encoding="utf-8"))
    )
    return str(element("div", style, content, class_="traincast"))


def _estimate(est: "Estimate") -> Html | None:
    """Return time and memory of one plan; None for columns of plans."""
    from traincast.ui.html.plan_report import step
    from traincast.ui.text.plans import title

    if not isinstance(est.plan, Plan):
        return None
    capacity = float(est.system.accelerator.hbm_bytes)
    fits = "fits in" if est.fits else "does not fit in"
    sentence = f"A step takes {step(est)}; {gib(float(est.memory_bytes))} of memory {fits} {gib(capacity)}."
    time = bars("Time of a step", "time", est.breakdown, seconds, float(est.step_seconds))
    scale, caption = whole_memory(est)
    memory_bars = bars(f"Memory of the fullest rank, {caption}", "memory", est.memory, gib, scale)
    head = paragraph(element("strong", title(est)), element("br"), code(est.plan), element("br"), sentence)
    return joined((head, element("div", time, memory_bars, class_="beside")))


def _found(result: "Found") -> Html:
    """Return the best plans of a search."""
    from traincast.ui.html.search_report import ranking
    from traincast.ui.text.plans import title

    counts = f"{result.candidates:,} candidates of {result.framework.name}, {result.feasible:,} fit"
    sentence = f"{counts}; assumptions: {result.assumptions.name}"
    head = paragraph(element("strong", title(result)), element("br"), sentence)
    return joined(
        (
            head,
            ranking(result.plans) if result.plans else paragraph("Nothing fits: explain() says what would."),
        )
    )


def _results(results: "Results") -> Html:
    """Return the first points of a study."""
    from traincast.ui.html.study_report import first_points

    study = results.metadata["study"]
    sentence = f"{count_of(len(results.frame), 'row')}; assumptions: {study['assumptions']['name']}"
    return joined(
        (
            paragraph(element("strong", study["name"]), element("br"), sentence),
            first_points(results, MAX_CARD_ROWS),
        )
    )


def _report(report: "Report") -> Html:
    """Return errors of predictions by source, and the runs with the largest errors."""
    from traincast.ui.html.accuracy_report import error_table, largest_errors

    predicted = sum(prediction.skipped is None for prediction in report.predictions)
    sentence = f"{predicted:,} of {len(report.predictions):,} measured runs predicted; assumptions: {report.assumptions}"
    return joined(
        (
            paragraph(element("strong", sentence)),
            error_table(report),
            largest_errors(report, MAX_CARD_ROWS // 2),
        )
    )


def _metrics(measures: "Metrics") -> Html | None:
    """Return the metrics of one plan; None for columns of plans."""
    from traincast.ui.html.plan_report import all_metrics

    return None if np.ndim(measures.tokens_per_second) else all_metrics(measures)


def _limits(limits: "Limits") -> Html:
    """Return the best sharding on each number of accelerators, and where utilisation falls."""
    from traincast.ui.text.limits import SHARES, utilisation_sentences

    names = ("GPUs", "tp_in", "tp_out", "dp", "time", "utilisation", *SHARES)
    clusters = limits.clusters
    columns = (
        clusters.gpus,
        clusters.tp_in,
        clusters.tp_out,
        clusters.dp,
        clusters.seconds,
        clusters.utilisation,
        *clusters.spent,
    )
    forms: tuple[Callable[[float], str], ...] = (*[_count_text] * 4, seconds, percent, *[percent] * 3)
    rows = (
        tuple("" if np.isnan(value) else form(float(value)) for value, form in zip(row, forms, strict=True))
        for row in zip(*columns, strict=True)
    )
    clusters_table = table(
        f"A layer of {limits.layer[0]:,} × {limits.layer[1]:,}, {limits.tokens:,} tokens a batch", names, rows
    )
    return joined(
        (
            paragraph(element("strong", f"Limits of moving data: {limits.device.name}")),
            clusters_table,
            items(utilisation_sentences(limits)),
        )
    )


def _scaling(stage: "Scaling") -> Html:
    """Return a table of a ZeRO stage on every number of GPUs."""
    names = ("GPUs", "iteration", "communication", "share", "efficiency", "memory")
    rows = (
        (
            *(f"{row['gpus']:,.0f}", seconds(row["iteration_seconds"]), seconds(row["comm_seconds"])),
            *(percent(row["comm_share"]), percent(row["efficiency"]), gib(row["memory_bytes"])),
        )
        for row in stage.rows()
    )
    return table(f"Data parallelism with ZeRO-{stage.zero}", names, rows)


def _advice(advice: "Advice") -> Html:
    """Return utilisation, batches and rules of thumb."""
    utilisation_rows = (
        (
            utilisation.convention,
            rate(utilisation.model_flops_per_second, "FLOP/s"),
            *map(_share_text, (utilisation.mfu, utilisation.hfu)),
        )
        for utilisation in advice.throughput
    )
    option_rows = (
        (
            option.mbs,
            f"{option.gbs:,}",
            f"{option.accumulation:,}",
            signed(option.gain) if i else "as it is",
            gib(option.memory_bytes),
            _yes_or_no(option.fits),
        )
        for i, option in enumerate(advice.batches)
    )
    rules = ((rule.about, rule.rule, rule.here) for rule in advice.rules)
    return joined(
        (
            paragraph(element("strong", "Advice"), element("br"), code(advice.est.plan)),
            table("One GPU, by convention", ("convention", "FLOP/s", "MFU", "HFU"), utilisation_rows),
            table(
                "Micro-batches",
                ("mbs", "global batch", "accumulation", "tokens/s", "memory", "fits"),
                option_rows,
            ),
            table("Rules of thumb, and this plan", ("about", "rule", "here"), rules, ("rule", "here")),
        )
    )


def _calibration(calibration: "Calibration") -> Html:
    """Return the constants that measurements determine, and the errors before and after."""
    from traincast.ui.text.accuracy import constant_rows

    head = element("strong", f"{calibration.system}, calibrated to {calibration.measured.counts()}")
    names = ("constant", "before", "after", "90% interval")
    errors = {"runs": calibration.errors, **calibration.others}
    lines = (
        f"Mean error of the {kind}: {group_errors['before']:.1%} before, {group_errors['after']:.1%} after."
        for kind, group_errors in errors.items()
        if group_errors["before"] is not None and group_errors["after"] is not None
    )
    return joined(
        (paragraph(head), table("What the data determine", names, constant_rows(calibration)), items(lines))
    )


def _count_text(value: float) -> str:
    """Return a count as text."""
    return f"{value:,.0f}"


def _share_text(value: float | None) -> str:
    """Return a share as text, empty where it is not known."""
    return "" if value is None else percent(value)


def _yes_or_no(value: bool) -> str:
    """Return yes or no."""
    return "yes" if value else "no"


CARDS: Final[Mapping[str, Callable[[Any], Html | None]]] = {
    "Estimate": _estimate,
    "Found": _found,
    "Results": _results,
    "Report": _report,
    "Metrics": _metrics,
    "Limits": _limits,
    "Scaling": _scaling,
    "Advice": _advice,
    "Calibration": _calibration,
}
