"""HTML report on predictions of measured runs: errors by source, and what was skipped."""

import math
from collections import Counter
from typing import Final

from traincast.accuracy import Prediction, Report
from traincast.catalog import resolve
from traincast.core import CALIBRATED, gib, seconds
from traincast.ui.html.rendering import Page, Pairs, Table, Tiles
from traincast.ui.html.sources import assumptions
from traincast.ui.text.accuracy import (
    COLUMNS,
    accuracy_figure,
    error_explanations,
    fit_verdicts,
    summary_cells,
)

KIND_TITLES: Final = {"dense": "dense models", "moe": "mixtures of experts"}
OWN_STACKS: Final = (
    "Each run is predicted with its own software stack; these are the values of the usual one "
    "(traincast catalog shows all)."
)
MAX_RUNS_LISTED: Final = 20  # runs in the table of the largest errors


def page(report: Report, source: str = "the bundled table of published runs") -> Page:
    """Return the report on predictions that know their parts (``validate(..., parts=True)``).

    Its `source` is the table that the runs are from.
    """
    predicted = sum(prediction.skipped is None for prediction in report.predictions)
    known = ((total.mape, KIND_TITLES[total.source]) for total in report.totals if total.mape is not None)
    mean_errors = [f"{error:.1%} for {kind}" for error, kind in known]
    any_timed = not all(math.isnan(prediction.error) for prediction in report.predictions)
    errors = [(summary.source, *summary_cells(summary)) for summary in report.summaries]
    errors += [(f"all {KIND_TITLES[total.source]}", *summary_cells(total)) for total in report.totals]
    skipped = [(reason, f"{rows:,}") for reason, rows in report.skipped.items()]
    own_stacks = report.assumptions == CALIBRATED
    content: dict[str, object] = {
        "answer": f"The mean error of the step time is {' and '.join(mean_errors) or 'not known'}, "
        f"over {predicted:,} measured runs.",
        "summary": list(_summary(report)),
        "question": list(_question(report, source)),
        "parity": accuracy_figure(report) if any_timed else None,
        "errors": Table("Errors of predictions by source", COLUMNS, errors),
        "explanations": [*error_explanations(report), *fit_verdicts(report)],
        "largest_errors": largest_errors(report),
        "coverage": None if report.coverage is None else f"{report.coverage:.0%}",
        "skipped": Table("Rows skipped, each for all its reasons", ("reason", "rows"), skipped),
        "subjects": [assumptions(resolve(report.assumptions), remark=OWN_STACKS if own_stacks else "")],
    }
    title = f"{predicted:,} of {len(report.predictions):,} measured runs predicted"
    remarks = [f"runs: {source}", f"assumptions: {report.assumptions}"]
    return Page("Validation", title, remarks, "accuracy.html.jinja", content)


def _summary(report: Report) -> Tiles:
    for total in report.totals:
        if total.mape is not None and total.bias is not None:
            remark = f"mean of {total.n:,} runs, bias {total.bias:+.1%}"
            yield f"Error of {KIND_TITLES[total.source]}", f"{total.mape:.1%}", remark
        if total.memory is not None:
            name = f"Memory of {KIND_TITLES[total.source]}"
            yield name, f"{total.memory:.1%}", "mean error, where it was measured"
    if report.coverage is not None:
        yield "Inside their intervals", f"{report.coverage:.0%}", "of measured times, 90% expected"


def _question(report: Report, source: str) -> Pairs:
    """Yield the origin of the runs, and how they are predicted."""
    subjects = report.subjects.values()
    stacks = Counter(subject.stack for subject in subjects)
    moe = sum(subject.moe for subject in subjects)
    own_stack = report.assumptions == CALIBRATED
    yield "Runs", source
    yield "Predicted with", "the software stack of each run" if own_stack else report.assumptions
    yield "Software", ", ".join(f"{name} ({runs:,})" for name, runs in stacks.most_common())
    yield "Kinds", f"{len(subjects) - moe:,} dense, {moe:,} with experts"


def largest_errors(report: Report, limit: int = MAX_RUNS_LISTED) -> Table:
    """Return a table of the runs with the largest errors of the step time."""
    timed = [prediction for prediction in report.predictions if not math.isnan(prediction.error)]
    rows = [_run_cells(run) for run in sorted(timed, key=lambda run: -abs(run.error))[:limit]]
    header = ("run", "measured", "predicted", "90% interval", "error", "memory measured", "predicted")
    return Table(f"The {len(rows)} runs with the largest errors", header, rows)


def _run_cells(run: Prediction) -> tuple[str, ...]:
    known = run.low is not None and run.high is not None
    memory = (run.measured_memory_bytes, run.predicted_memory_bytes)
    return (
        run.id,
        seconds(run.measured_step_seconds or 0),
        seconds(run.predicted_step_seconds or 0),
        f"{seconds(run.low or 0)} to {seconds(run.high or 0)}" if known else "",
        f"{run.error:+.1%}",
        *("" if value is None else gib(value) for value in memory),
    )
