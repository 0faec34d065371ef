"""HTML report on predictions of measured runs: errors by source, and what was skipped."""

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
from traincast.ui.text.accuracy import COLUMNS, accuracy_figure, error_explanations, summary_cells

KIND_TITLES: Final = {"dense": "dense models", "moe": "mixtures of experts"}
MAX_RUNS_LISTED: Final = 20  # runs in the table of the largest errors


def page(report: Report, source: str = "the bundled table of published runs") -> Page:
    """Return the report on predictions of measured runs.

    Parameters
    ----------
    report : Report
        Predictions that know their parts (``validate(..., parts=True)``).
    source : str
        What table the runs are from.
    """
    predicted = [prediction for prediction in report.predictions if prediction.skipped is None]
    errors_text = " and ".join(
        f"of {KIND_TITLES[total.source]} within {total.mape:.1%}"
        for total in report.totals
        if total.mape is not None
    )
    answer_text = (
        f"Step times {errors_text or 'of no run'} are met in the mean, over {len(predicted):,} measured runs."
    )
    title = f"{len(predicted):,} of {len(report.predictions):,} measured runs predicted"
    answer = joined((paragraph(answer_text), tiles(_summary(report))))
    return Page(
        "Validation",
        title,
        [f"runs: {source}", f"assumptions: {report.assumptions}"],
        answer,
        tuple(_sections(report, source)),
    )


def _summary(report: Report) -> Iterator[tuple[str, object, object]]:
    """Yield the key figures."""
    for total in report.totals:
        if total.mape is not None and total.bias is not None:
            yield (
                f"Error of {KIND_TITLES[total.source]}",
                f"{total.mape:.1%}",
                f"mean of {total.n:,} runs, bias {total.bias:+.1%}",
            )
        if total.memory is not None:
            yield (
                f"Memory of {KIND_TITLES[total.source]}",
                f"{total.memory:.1%}",
                "mean error, where it was measured",
            )
    if report.coverage is not None:
        yield "Inside their intervals", f"{report.coverage:.0%}", "of measured times, 90% expected"


def _sections(report: Report, source: str) -> Iterator[Section]:
    """Yield the sections below the answer."""
    yield Section("question", "The question", _question_section(report, source))
    yield Section(
        "accuracy", "How far predictions are off", joined((_parity_figure(report), _error_section(report)))
    )
    yield Section("farthest", "The runs that are met worst", largest_errors(report))
    yield Section("uncertainty", "How sure this is", _coverage_section(report))
    yield Section("skipped", "What was skipped, and why", _skipped_section(report))
    yield Section("assumptions", f"What is assumed: {report.assumptions}", _assumptions_section(report))


def _question_section(report: Report, source: str) -> Html:
    """Return the origin of the runs, and how they are predicted."""
    subjects = report.subjects.values()
    stacks = Counter(subject.stack for subject in subjects)
    rows: list[tuple[str, object]] = [
        ("Runs", source),
        (
            "Predicted with",
            "the software stack of each run" if report.assumptions == CALIBRATED.name else report.assumptions,
        ),
        ("Software", ", ".join(f"{name} ({n:,})" for name, n in stacks.most_common())),
        (
            "Kinds",
            f"{sum(not subject.moe for subject in subjects):,} dense, {sum(subject.moe for subject in subjects):,} with experts",
        ),
    ]
    return pairs(rows)


def _parity_figure(report: Report) -> Html:
    """Return the parity plot and the causes of errors; empty where no time was measured."""
    if all(math.isnan(prediction.error) for prediction in report.predictions):
        return Html()
    caption = (
        "Left: predicted against measured step times, each point a run, ± 10% shaded. Right: points of the mean error of each "
        "source that go with a part of the step; lines: mean error that no part explains."
    )
    alternative = "Left: points close to the diagonal of predicted against measured step time. Right: bars of causes by source"
    return drawing("accuracy-figure", accuracy_figure(report), caption, alternative)


def _error_section(report: Report) -> Html:
    """Return errors by source and in total, with their explanation."""
    return joined((error_table(report), *map(paragraph, error_explanations(report))))


def error_table(report: Report) -> Html:
    """Return a table of errors by source and in total."""
    rows = [(summary.source, *summary_cells(summary)) for summary in report.summaries]
    rows += [(f"all {KIND_TITLES[summary.source]}", *summary_cells(summary)) for summary in report.totals]
    return table("Errors of predictions by source", COLUMNS, rows)


def largest_errors(report: Report, limit: int = MAX_RUNS_LISTED) -> Html:
    """Return a table of the runs with the largest errors of the step time."""
    timed = [prediction for prediction in report.predictions if not math.isnan(prediction.error)]
    farthest_runs = sorted(timed, key=lambda prediction: -abs(prediction.error))[:limit]
    names = ("run", "measured", "predicted", "90% interval", "error", "memory measured", "predicted")
    return table(
        f"The {len(farthest_runs)} runs with the largest errors", names, map(_run_cells, farthest_runs)
    )


def _run_cells(prediction: Prediction) -> tuple[str, ...]:
    """Return the cells of a run."""
    interval = (
        ""
        if prediction.low is None or prediction.high is None
        else f"{seconds(prediction.low)} to {seconds(prediction.high)}"
    )
    memory = (
        "" if value is None else gib(value)
        for value in (prediction.measured_memory_bytes, prediction.predicted_memory_bytes)
    )
    return (
        prediction.id,
        seconds(prediction.measured_step_seconds or 0),
        seconds(prediction.predicted_step_seconds or 0),
        interval,
        f"{prediction.error:+.1%}",
        *memory,
    )


def _coverage_section(report: Report) -> Html:
    """Return how many measured times lie in their intervals."""
    if report.coverage is None:
        return paragraph("No interval is known for these assumptions.")
    return items(
        [
            f"{report.coverage:.0%} of the measured times lie in the 90% intervals of their predictions.",
            "Runs that constants were fitted to are met better than others: docs/scoreboard.md holds the errors of runs left out.",
            "Errors of runs of one source are alike: they have model, machine or author in common.",
        ]
    )


def _skipped_section(report: Report) -> Html:
    """Return a table of skipped rows by reason."""
    counts = reasons(report.predictions)
    if not counts:
        return paragraph("Nothing was skipped.")
    return table(
        "Rows skipped, each for all its reasons",
        ("reason", "rows"),
        ((reason, f"{n:,}") for reason, n in counts.most_common()),
    )


def _assumptions_section(report: Report) -> Html:
    """Return every assumption; those of the usual software stack where each run has its own."""
    assumed = resolve(report.assumptions)
    note = "Each run is predicted with its own software stack; these are the values of the usual one (traincast catalog shows all)."
    return joined((*([paragraph(note)] if assumed.name == CALIBRATED.name else []), assumptions(assumed)))
