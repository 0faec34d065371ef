"""Terminal tables of predictions against measurements, and of calibrations."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.accuracy.error_budget import budgets
from traincast.accuracy.scores import INDEPENDENT, family_of, reasons, source_of
from traincast.core.units import quantity
from traincast.ui.text.plans import borderless_table, heading, paragraphs

LARGE_MEAN_ERROR: Final = 0.3  # a larger mean error points to a mistake in the input
MAX_SKIPPED_LISTED: Final = 20  # more rows are summarised by reason
MORE_DATA_HELPS: Final = (
    "More runs help, of several plans, and so do nccl-tests (--nccl) and tables of matrix products (--gemm)."
)
ERRORS_STILL_LARGE: Final = (
    "That is far for measurements of one machine: is it the right system, with the right network, are times in seconds, "
    "and are they those of whole steps?"
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from traincast.accuracy.fit.calibrate import Calibration
    from traincast.accuracy.fit.fit import FittedConstant
    from traincast.accuracy.scores import ErrorSummary
    from traincast.accuracy.validate import Report


COLUMNS: Final = ("source", "n", "MAPE", "median", "bias", "worst", "rank", "regret", "of 3", "memory")


def print_validation(report: "Report", out: Console) -> None:
    """Print the errors of predictions by source and in total, and why rows were skipped."""
    predicted = [prediction for prediction in report.predictions if prediction.skipped is None]
    title = f"{len(predicted):,} of {len(report.predictions):,} measured runs predicted; assumptions: {report.assumptions}"
    out.print(Text(title, style="bold"))
    table = borderless_table(gap=1)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "source" else "right", no_wrap=True)
    for summary in (*report.summaries, *report.totals):
        if summary is report.totals[0]:
            table.add_section()
        total = summary in report.totals
        style = "bold" if total else None
        table.add_row(
            f"all {summary.source}" if total else summary.source, *summary_cells(summary), style=style
        )
    out.print(table)
    _print_meaning(report, out)


def summary_cells(summary: "ErrorSummary") -> list[str]:
    """Return the cells of a summary: errors of step time, of ranking and of memory."""
    figures = (
        (summary.mape, ".1%"),
        (summary.median, ".1%"),
        (summary.bias, "+.1%"),
        (summary.worst, ".0%"),
        (summary.spearman, ".2f"),
    )
    rest = ((summary.regret, ".1%"), (summary.best_of_three, ".1%"), (summary.memory, ".1%"))
    return [
        str(summary.n),
        *("" if value is None else format(value, spec) for value, spec in (*figures, *rest)),
    ]


def error_explanations(report: "Report") -> list[str]:
    """Return sentences that explain the table of errors."""
    lines = [
        "Errors are predicted over measured step time, less 1. Of plans that differ in nothing else: rank correlation, how much "
        "slower the one ranked first really is (regret), and the best of the three ranked first."
    ]
    dependent = [
        (summary, INDEPENDENT[summary.source]) for summary in report.summaries if summary.weight < summary.n
    ]
    lines += [
        f"The {summary.n} rows of {summary.source} are composed of {n} numbers and count as so many in all."
        for summary, n in dependent
    ]
    if report.coverage is not None:
        lines.append(
            f"{report.coverage:.0%} of the measured times lie in the 90% limits of their predictions (docs/uncertainty.md)."
        )
    if any((total.mape or 0) > LARGE_MEAN_ERROR for total in report.totals):
        lines.append(ERRORS_STILL_LARGE)
    return lines


def _print_meaning(report: "Report", out: Console) -> None:
    """Print what the table of errors means, and why rows were skipped."""
    out.print()
    paragraphs(error_explanations(report), out)
    skipped = [prediction for prediction in report.predictions if prediction.skipped is not None]
    if 0 < len(skipped) <= MAX_SKIPPED_LISTED:
        out.print(heading("Skipped"))
        paragraphs([f"{prediction.id}: {prediction.skipped}" for prediction in skipped], out)
    elif skipped:
        out.print(heading(f"Skipped: {len(skipped)} rows, each for all its reasons"))
        paragraphs([f"{count:>4}: {reason}" for reason, count in reasons(skipped).most_common()], out)


def accuracy_figure(report: "Report") -> "Figure":
    """Draw predicted against measured step times, beside the parts of the step that errors go with.

    Parameters
    ----------
    report : Report
        Predictions that know their parts (``validate(..., parts=True)``).
    """
    import numpy as np

    from traincast.ui.figures import accuracy

    timed = [
        prediction
        for prediction in report.predictions
        if prediction.skipped is None and prediction.measured_step_seconds is not None
    ]
    moe = np.array([prediction.id in report.moe for prediction in timed], bool)
    measured, predicted = (
        np.array([getattr(prediction, f"{which}_step_seconds") for prediction in timed])
        for which in ("measured", "predicted")
    )
    families = [family_of(source_of(prediction.id, False)) for prediction in timed]
    causes = [
        (budget.source, budget.n, budget.causes, budget.unexplained) for budget in budgets(timed, report.moe)
    ]
    return accuracy(
        measured,
        predicted,
        families,
        moe,
        causes,
        f"{len(timed):,} measured runs, assumptions: {report.assumptions}",
    )


def print_calibration(calibration: "Calibration", output: Path, out: Console) -> None:
    """Print constants before and after, errors, and what the data do not determine."""
    out.print(
        Text(f"{calibration.system}, calibrated to {calibration.measured.counts()}: {output}", style="bold")
    )
    any_determined = bool(calibration.determined)
    if any_determined:
        out.print(_constants(calibration))
    else:
        paragraphs(
            [
                f"They determine no constant, and the file holds {calibration.system} as it was. {MORE_DATA_HELPS}"
            ],
            out,
        )
    errors = calibration.errors
    if errors["before"] is not None and errors["after"] is not None:
        sentence = f"Mean error of the runs: {errors['before']:.1%} before, {errors['after']:.1%} after"
        held_out = errors["held out"]
        paragraphs(
            [
                sentence
                + (
                    "."
                    if held_out is None
                    else f"; {held_out:.1%} where each run is predicted without itself."
                )
            ],
            out,
        )
    for kind, group_errors in calibration.others.items():
        paragraphs(
            [
                f"Mean error of the {kind}: {group_errors['before']:.1%} before, {group_errors['after']:.1%} after."
            ],
            out,
        )
    if any(
        (group_errors["after"] or 0) > LARGE_MEAN_ERROR
        for group_errors in (errors, *calibration.others.values())
    ):
        paragraphs([ERRORS_STILL_LARGE], out)
    if any_determined and calibration.undetermined:
        names = ", ".join(map(_constant_name, calibration.undetermined))
        paragraphs([f"Not determined by these data, and left as they were: {names}."], out)
    if calibration.measured.left_out:
        out.print(heading("Left out"))
        paragraphs(calibration.measured.left_out, out)


def _constants(calibration: "Calibration") -> Table:
    """Return a table of the constants that the data determine."""
    table = borderless_table(gap=2)
    for name in ("constant", "before", "after", "90% interval"):
        table.add_column(name, justify="left" if name == "constant" else "right", no_wrap=True)
    for row in constant_rows(calibration):
        table.add_row(*row)
    return table


def constant_rows(calibration: "Calibration") -> Iterator[tuple[str, str, str, str]]:
    """Yield name, value before, value after and interval of each constant that the data determine."""
    for constant in calibration.determined:
        numbers = (constant.before, constant.value, constant.low, constant.high)
        before, value, low, high = (_constant_text(number, constant.parameter.unit) for number in numbers)
        yield _constant_name(constant), before, value, f"{low} to {high}"


def _constant_name(constant: "FittedConstant") -> str:
    """Return the path of a constant in a system file, or its field of a software stack."""
    return (
        f"{constant.parameter.field} of {constant.of[0]}" if constant.parameter.of_software else constant.path
    )


def _constant_text(value: float, unit: str) -> str:
    """Return the value of a constant with its unit, if it has one."""
    return quantity(value, unit) if unit else f"{value:.3g}"
