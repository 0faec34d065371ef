"""Predictions against measurements, and calibrations, for people."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.accuracy.error_budget import budgets
from traincast.accuracy.scores import INDEPENDENT, family_of, reasons, source_of
from traincast.core.units import quantity
from traincast.ui.text.plans import heading, paragraphs, table_of

FAR: Final = 0.3  # mean error that says that something else is wrong
FEW: Final = 20  # rows left out that are told one by one
MORE: Final = "More runs help, of several plans, and so do nccl-tests (--nccl) and tables of matrix products (--gemm)."
STILL_FAR: Final = (
    "That is far for measurements of one machine: is it the right system, with the right network, are times in seconds, "
    "and are they those of whole steps?"
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from traincast.accuracy.fit.calibrate import Calibration
    from traincast.accuracy.fit.parameters import Parameter
    from traincast.accuracy.scores import ErrorSummary
    from traincast.accuracy.validate import Report


COLUMNS: Final = ("source", "n", "MAPE", "median", "bias", "worst", "rank", "regret", "of 3", "memory")


def print_validation(report: "Report", out: Console) -> None:
    """Errors of predictions by source and in all, and why rows were skipped."""
    done = [one for one in report.predictions if one.skipped is None]
    told = f"{len(done):,} of {len(report.predictions):,} measured runs predicted; assumptions: {report.assumptions}"
    out.print(Text(told, style="bold"))
    table = table_of(gap=1)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "source" else "right", no_wrap=True)
    for one in (*report.summaries, *report.totals):
        if one is report.totals[0]:
            table.add_section()
        total = one in report.totals
        style = "bold" if total else None
        table.add_row(f"all {one.source}" if total else one.source, *summary_cells(one), style=style)
    out.print(table)
    _explained(report, out)


def summary_cells(one: "ErrorSummary") -> list[str]:
    """A summary's cells: errors of the step time, of ranking, of memory."""
    figures = ((one.mape, ".1%"), (one.median, ".1%"), (one.bias, "+.1%"), (one.worst, ".0%"), (one.spearman, ".2f"))
    rest = ((one.regret, ".1%"), (one.best_of_three, ".1%"), (one.memory, ".1%"))
    return [str(one.n), *("" if value is None else format(value, shown) for value, shown in (*figures, *rest))]


def meaning(report: "Report") -> list[str]:
    """What stands in the table of errors."""
    lines = [
        "Errors are predicted over measured step time, less 1. Of plans that differ in nothing else: rank correlation, how much "
        "slower the one ranked first really is (regret), and the best of the three ranked first."
    ]
    fewer = [(one, INDEPENDENT[one.source]) for one in report.summaries if one.weight < one.n]
    lines += [f"The {one.n} rows of {one.source} are composed of {n} numbers and count as so many in all." for one, n in fewer]
    if report.coverage is not None:
        lines.append(
            f"{report.coverage:.0%} of the measured times lie in the 90% limits of their predictions (docs/uncertainty.md)."
        )
    if any((one.mape or 0) > FAR for one in report.totals):
        lines.append(STILL_FAR)
    return lines


def _explained(report: "Report", out: Console) -> None:
    """What stands in the table, and why rows were skipped."""
    out.print()
    paragraphs(meaning(report), out)
    skipped = [one for one in report.predictions if one.skipped is not None]
    if 0 < len(skipped) <= FEW:
        out.print(heading("Skipped"))
        paragraphs([f"{one.id}: {one.skipped}" for one in skipped], out)
    elif skipped:
        out.print(heading(f"Skipped: {len(skipped)} rows, each for all its reasons"))
        paragraphs([f"{count:>4}: {reason}" for reason, count in reasons(skipped).most_common()], out)


def accuracy_figure(report: "Report") -> "Figure":
    """Predicted against measured step times, beside what the errors go with.

    Parameters
    ----------
    report : Report
        Predictions that know their parts (``validate(..., parts=True)``).
    """
    import numpy as np

    from traincast.ui.figures import accuracy

    timed = [one for one in report.predictions if one.skipped is None and one.measured_step_seconds is not None]
    moe = np.array([one.id in report.moe for one in timed], bool)
    measured, predicted = (
        np.array([getattr(one, f"{which}_step_seconds") for one in timed]) for which in ("measured", "predicted")
    )
    families = [family_of(source_of(one.id, False)) for one in timed]
    causes = [(one.source, one.n, one.causes, one.unexplained) for one in budgets(timed, report.moe)]
    return accuracy(measured, predicted, families, moe, causes, f"{len(timed):,} measured runs, assumptions: {report.assumptions}")


def print_calibration(found: "Calibration", output: Path, out: Console) -> None:
    """Constants before and after, errors, and what the data do not determine."""
    out.print(Text(f"{found.system}, calibrated to {found.measured.counts()}: {output}", style="bold"))
    some = bool(found.fitted.solution.determined.any())
    if some:
        out.print(_constants(found))
    else:
        paragraphs([f"They determine no constant, and the file holds {found.system} as it was. {MORE}"], out)
    errors = found.errors
    if errors["before"] is not None and errors["after"] is not None:
        told = f"Mean error of the runs: {errors['before']:.1%} before, {errors['after']:.1%} after"
        held = errors["held out"]
        paragraphs([told + ("." if held is None else f"; {held:.1%} where each run is predicted without itself.")], out)
    for kind, one in found.others.items():
        paragraphs([f"Mean error of the {kind}: {one['before']:.1%} before, {one['after']:.1%} after."], out)
    if any((one["after"] or 0) > FAR for one in (errors, *found.others.values())):
        paragraphs([STILL_FAR], out)
    if some and found.undetermined:
        names = ", ".join(map(_named, found.undetermined))
        paragraphs([f"Not determined by these data, and left as they were: {names}."], out)
    if found.measured.left_out:
        out.print(heading("Left out"))
        paragraphs(found.measured.left_out, out)


def _constants(found: "Calibration") -> Table:
    """What the data determine."""
    table = table_of(gap=2)
    for name in ("constant", "before", "after", "90% interval"):
        table.add_column(name, justify="left" if name == "constant" else "right", no_wrap=True)
    for row in constants(found):
        table.add_row(*row)
    return table


def constants(found: "Calibration") -> Iterator[tuple[str, str, str, str]]:
    """Constants that the data determine: name, before, after, interval."""
    fitted = found.fitted
    rows = zip(fitted.parameters, fitted.values, fitted.intervals, fitted.solution.determined, strict=True)
    for one, value, ends, determined in rows:
        if determined:
            low, high = (_shown(end, one.unit) for end in ends)
            yield _named(one), _shown(one.prior, one.unit), _shown(value, one.unit), f"{low} to {high}"


def _named(one: "Parameter") -> str:
    """A constant for people: its path in a system file, or the field of a software stack."""
    return f"{one.field} of {one.of[0]}" if one.home == "stack" else one.path


def _shown(value: float, unit: str) -> str:
    """A constant for people."""
    return quantity(value, unit) if unit else f"{value:.3g}"
