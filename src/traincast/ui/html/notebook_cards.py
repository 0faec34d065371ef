"""Cards: results as notebooks show them, compact and in the notebook's own colours."""

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from traincast.core.plan import Plan
from traincast.core.units import gib, many, percent, rate, seconds, signed
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

ROWS: Final = 10  # of a long table


def card(result: object) -> str | None:
    """A result as a card; None where it has none."""
    make = next((CARDS[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in CARDS), None)
    content = None if make is None else make(result)
    if content is None:
        return None
    style = element("style", Html(files("traincast.ui.html").joinpath("card.css").read_text(encoding="utf-8")))
    return str(element("div", style, content, class_="traincast"))


def _estimate(est: "Estimate") -> Html | None:
    """Time and memory of one plan; nothing for columns of plans."""
    from traincast.ui.html.plan_report import step
    from traincast.ui.text.plans import title

    if not isinstance(est.plan, Plan):
        return None
    capacity = float(est.system.accelerator.hbm_bytes)
    fits = "fits in" if est.fits else "does not fit in"
    said = f"A step takes {step(est)}; {gib(float(est.memory_bytes))} of memory {fits} {gib(capacity)}."
    time = bars("Time of a step", "time", est.breakdown, seconds, float(est.step_seconds))
    whole, told = whole_memory(est)
    held = bars(f"Memory of the fullest rank, {told}", "memory", est.memory, gib, whole)
    head = paragraph(element("strong", title(est)), element("br"), code(est.plan), element("br"), said)
    return joined((head, element("div", time, held, class_="beside")))


def _found(found: "Found") -> Html:
    """The best plans of a search."""
    from traincast.ui.html.search_report import ranking
    from traincast.ui.text.plans import title

    told = (
        f"{found.candidates:,} candidates of {found.framework.name}, {found.feasible:,} fit; assumptions: {found.assumptions.name}"
    )
    head = paragraph(element("strong", title(found)), element("br"), told)
    return joined((head, ranking(found.plans) if found.plans else paragraph("Nothing fits: explain() says what would.")))


def _results(results: "Results") -> Html:
    """The first points of a study."""
    from traincast.ui.html.study_report import first_points

    study = results.metadata["study"]
    told = f"{many(len(results.frame), 'row')}; assumptions: {study['assumptions']['name']}"
    return joined((paragraph(element("strong", study["name"]), element("br"), told), first_points(results, ROWS)))


def _report(report: "Report") -> Html:
    """Errors of predictions by source, and the runs that are met worst."""
    from traincast.ui.html.accuracy_report import error_table, farthest

    done = sum(one.skipped is None for one in report.predictions)
    told = f"{done:,} of {len(report.predictions):,} measured runs predicted; assumptions: {report.assumptions}"
    return joined((paragraph(element("strong", told)), error_table(report), farthest(report, ROWS // 2)))


def _metrics(measures: "Metrics") -> Html | None:
    """Metrics of one plan; nothing for columns of plans."""
    from traincast.ui.html.plan_report import all_metrics

    return None if np.ndim(measures.tokens_per_second) else all_metrics(measures)


def _limits(found: "Limits") -> Html:
    """The best sharding on each number of accelerators, and where utilisation falls."""
    from traincast.ui.text.limits import SHARES, sentences

    names = ("GPUs", "tp_in", "tp_out", "dp", "time", "utilisation", *SHARES)
    one = found.clusters
    columns = (one.gpus, one.tp_in, one.tp_out, one.dp, one.seconds, one.utilisation, *one.spent)
    forms: tuple[Callable[[float], str], ...] = (*[_whole] * 4, seconds, percent, *[percent] * 3)
    rows = (
        tuple("" if np.isnan(value) else form(float(value)) for value, form in zip(row, forms, strict=True))
        for row in zip(*columns, strict=True)
    )
    told = table(f"A layer of {found.layer[0]:,} × {found.layer[1]:,}, {found.tokens:,} tokens a batch", names, rows)
    return joined((paragraph(element("strong", f"Limits of moving data: {found.device.name}")), told, items(sentences(found))))


def _scaling(one: "Scaling") -> Html:
    """A stage of ZeRO on every number of GPUs."""
    names = ("GPUs", "iteration", "communication", "share", "efficiency", "memory")
    rows = (
        (
            *(f"{row['gpus']:,.0f}", seconds(row["iteration_seconds"]), seconds(row["comm_seconds"])),
            *(percent(row["comm_share"]), percent(row["efficiency"]), gib(row["memory_bytes"])),
        )
        for row in one.rows()
    )
    return table(f"Data parallelism with ZeRO-{one.zero}", names, rows)


def _advice(found: "Advice") -> Html:
    """Utilisation, batches and rules of thumb."""
    used = (
        (one.convention, rate(one.model_flops_per_second, "FLOP/s"), *map(_share, (one.mfu, one.hfu))) for one in found.throughput
    )
    tried = (
        (
            one.mbs,
            f"{one.gbs:,}",
            f"{one.accumulation:,}",
            signed(one.gain) if i else "as it is",
            gib(one.memory_bytes),
            _yes(one.fits),
        )
        for i, one in enumerate(found.batches)
    )
    rules = ((one.about, one.rule, one.here) for one in found.rules)
    return joined(
        (
            paragraph(element("strong", "Advice"), element("br"), code(found.est.plan)),
            table("One GPU, by convention", ("convention", "FLOP/s", "MFU", "HFU"), used),
            table("Micro-batches", ("mbs", "global batch", "accumulation", "tokens/s", "memory", "fits"), tried),
            table("Rules of thumb, and this plan", ("about", "rule", "here"), rules, ("rule", "here")),
        )
    )


def _calibration(found: "Calibration") -> Html:
    """Constants that measurements determine, and what is left of the errors."""
    from traincast.ui.text.accuracy import constants

    head = element("strong", f"{found.system}, calibrated to {found.measured.counts()}")
    names = ("constant", "before", "after", "90% interval")
    errors = {"runs": found.errors, **found.others}
    told = (
        f"Mean error of the {kind}: {one['before']:.1%} before, {one['after']:.1%} after."
        for kind, one in errors.items()
        if one["before"] is not None and one["after"] is not None
    )
    return joined((paragraph(head), table("What the data determine", names, constants(found)), items(told)))


def _whole(value: float) -> str:
    """A count."""
    return f"{value:,.0f}"


def _share(value: float | None) -> str:
    """A share, where it is known."""
    return "" if value is None else percent(value)


def _yes(value: bool) -> str:
    """Yes or no."""
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
