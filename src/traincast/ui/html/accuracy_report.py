"""The report on predictions of measured runs: how far they are off, by source, and what was skipped."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from traincast.accuracy.scores import Prediction, reasons
from traincast.accuracy.validate import Report
from traincast.catalog.software_stacks import resolve
from traincast.core.assumptions import CALIBRATED
from traincast.core.units import gib, seconds
from traincast.ui.html.elements import Html, Section, items, joined, pairs, paragraph, table, tiles
from traincast.ui.html.page import Page
from traincast.ui.html.sources import assumptions
from traincast.ui.html.svg import drawing
from traincast.ui.text.accuracy import COLUMNS, accuracy_figure, meaning, summary_cells

KINDS: Final = {"dense": "dense models", "moe": "mixtures of experts"}
FARTHEST: Final = 20  # runs that are told one by one


def page(report: Report, source: str = "the bundled table of published runs") -> Page:
    """The report on predictions of measured runs.

    Parameters
    ----------
    report : Report
        Predictions that know their parts (``validate(..., parts=True)``).
    source : str
        What table the runs are from.
    """
    done = [one for one in report.predictions if one.skipped is None]
    met = " and ".join(f"of {KINDS[one.source]} within {one.mape:.1%}" for one in report.totals if one.mape is not None)
    said = f"Step times {met or 'of no run'} are met in the mean, over {len(done):,} measured runs."
    title = f"{len(done):,} of {len(report.predictions):,} measured runs predicted"
    answer = joined((paragraph(said), tiles(_summary(report))))
    return Page(
        "Validation", title, [f"runs: {source}", f"assumptions: {report.assumptions}"], answer, tuple(_sections(report, source))
    )


def _summary(report: Report) -> Iterator[tuple[str, object, object]]:
    """The figures that matter most."""
    for one in report.totals:
        if one.mape is not None and one.bias is not None:
            yield f"Error of {KINDS[one.source]}", f"{one.mape:.1%}", f"mean of {one.n:,} runs, bias {one.bias:+.1%}"
        if one.memory is not None:
            yield f"Memory of {KINDS[one.source]}", f"{one.memory:.1%}", "mean error, where it was measured"
    if report.coverage is not None:
        yield "Inside their intervals", f"{report.coverage:.0%}", "of measured times, 90% expected"


def _sections(report: Report, source: str) -> Iterator[Section]:
    """All that stands below the answer."""
    yield Section("question", "The question", _question(report, source))
    yield Section("accuracy", "How far predictions are off", joined((_drawn(report), _errors(report))))
    yield Section("farthest", "The runs that are met worst", farthest(report))
    yield Section("uncertainty", "How sure this is", _sureness(report))
    yield Section("skipped", "What was skipped, and why", _skipped(report))
    yield Section("assumptions", f"What is assumed: {report.assumptions}", _assumed(report))


def _question(report: Report, source: str) -> Html:
    """What was asked, and what the runs are of."""
    subjects = report.subjects.values()
    stacks = Counter(one.stack for one in subjects)
    rows: list[tuple[str, object]] = [
        ("Runs", source),
        ("Predicted with", "the software stack of each run" if report.assumptions == CALIBRATED.name else report.assumptions),
        ("Software", ", ".join(f"{name} ({n:,})" for name, n in stacks.most_common())),
        ("Kinds", f"{sum(not one.moe for one in subjects):,} dense, {sum(one.moe for one in subjects):,} with experts"),
    ]
    return pairs(rows)


def _drawn(report: Report) -> Html:
    """Predicted against measured, and what errors go with; nothing where no time was measured."""
    if all(math.isnan(one.error) for one in report.predictions):
        return Html()
    caption = (
        "Left: predicted against measured step times, each point a run, ± 10% shaded. Right: points of the mean error of each "
        "source that go with a part of the step; lines: mean error that no part explains."
    )
    alternative = "Left: points close to the diagonal of predicted against measured step time. Right: bars of causes by source"
    return drawing("accuracy-figure", accuracy_figure(report), caption, alternative)


def _errors(report: Report) -> Html:
    """Errors by source and in all."""
    return joined((error_table(report), *map(paragraph, meaning(report))))


def error_table(report: Report) -> Html:
    """Errors by source and in all, as a table."""
    rows = [(one.source, *summary_cells(one)) for one in report.summaries]
    rows += [(f"all {KINDS[one.source]}", *summary_cells(one)) for one in report.totals]
    return table("Errors of predictions by source", COLUMNS, rows)


def farthest(report: Report, most: int = FARTHEST) -> Html:
    """The runs with the largest errors of the step time."""
    timed = [one for one in report.predictions if not math.isnan(one.error)]
    some = sorted(timed, key=lambda one: -abs(one.error))[:most]
    names = ("run", "measured", "predicted", "90% interval", "error", "memory measured", "predicted")
    return table(f"The {len(some)} runs with the largest errors", names, map(_run, some))


def _run(one: Prediction) -> tuple[str, ...]:
    """A run's cells."""
    ends = "" if one.low is None or one.high is None else f"{seconds(one.low)} to {seconds(one.high)}"
    memory = ("" if value is None else gib(value) for value in (one.measured_memory_bytes, one.predicted_memory_bytes))
    return (
        one.id,
        seconds(one.measured_step_seconds or 0),
        seconds(one.predicted_step_seconds or 0),
        ends,
        f"{one.error:+.1%}",
        *memory,
    )


def _sureness(report: Report) -> Html:
    """Whether intervals hold."""
    if report.coverage is None:
        return paragraph("No interval is known for these assumptions.")
    return items(
        [
            f"{report.coverage:.0%} of the measured times lie in the 90% intervals of their predictions.",
            "Runs that constants were fitted to are met better than others: docs/scoreboard.md holds the errors of runs left out.",
            "Errors of runs of one source are alike: they have model, machine or author in common.",
        ]
    )


def _skipped(report: Report) -> Html:
    """Rows that cannot be predicted, by reason."""
    told = reasons(report.predictions)
    if not told:
        return paragraph("Nothing was skipped.")
    return table(
        "Rows skipped, each for all its reasons", ("reason", "rows"), ((reason, f"{n:,}") for reason, n in told.most_common())
    )


def _assumed(report: Report) -> Html:
    """Every assumption, of the usual software where each run has its own."""
    assumed = resolve(report.assumptions)
    own = "Each run is predicted with its own software stack; these are the values of the usual one (traincast catalog shows all)."
    return joined((*([paragraph(own)] if assumed.name == CALIBRATED.name else []), assumptions(assumed)))
