"""Predictions against measurements, and calibrations, for people."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.report import heading, paragraphs, table_of
from traincast.units import quantity

FAR: Final = 0.3  # mean error that says that something else is wrong
MORE: Final = "More runs help, of several plans, and so do nccl-tests (--nccl) and tables of matrix products (--gemm)."
STILL_FAR: Final = (
    "That is far for measurements of one machine: is it the right system, with the right network, are times in seconds, "
    "and those of runs of whole steps?"
)

if TYPE_CHECKING:
    from traincast.calibrate import Calibration
    from traincast.parameters import Parameter
    from traincast.validate import Report


def print_validation(report: "Report", out: Console) -> None:
    """Errors of predictions by source, and why rows were skipped."""
    done = [one for one in report.predictions if one.skipped is None]
    out.print(
        Text(
            f"{len(done):,} of {len(report.predictions):,} measured runs predicted; assumptions: {report.assumptions}", style="bold"
        )
    )
    table = table_of(gap=1)
    for name in ("source", "n", "skipped", "MAPE", "median", "bias", "worst", "Spearman", "regret", "memory"):
        table.add_column(name, justify="left" if name == "source" else "right", no_wrap=True)
    for one in report.summaries:
        formats = ((one.mape, ".1%"), (one.median, ".1%"), (one.bias, "+.1%"), (one.worst, ".0%"))
        shares = ("" if value is None else format(value, shown) for value, shown in formats)
        rank = "" if one.spearman is None else f"{one.spearman:.2f}"
        rest = ("" if value is None else f"{value:.1%}" for value in (one.regret, one.memory))
        table.add_row(one.source, str(one.n), str(one.skipped), *shares, rank, *rest)
    out.print(table)
    reasons = Counter(one.skipped for one in report.predictions if one.skipped is not None)
    if reasons:
        out.print(heading("Skipped"))
        paragraphs([f"{count:>4}: {reason}" for reason, count in reasons.most_common()], out)


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
    for name in ("constant", "before", "after", "90 % interval"):
        table.add_column(name, justify="left" if name == "constant" else "right", no_wrap=True)
    fitted = found.fitted
    rows = zip(fitted.parameters, fitted.values, fitted.intervals, fitted.solution.determined, strict=True)
    for one, value, ends, determined in rows:
        if determined:
            low, high = (_shown(end, one.unit) for end in ends)
            table.add_row(_named(one), _shown(one.prior, one.unit), _shown(value, one.unit), f"{low} to {high}")
    return table


def _named(one: "Parameter") -> str:
    """A constant for people: its path in a system file, or the field of a software stack."""
    return f"{one.field} of {one.of[0]}" if one.home == "stack" else one.path


def _shown(value: float, unit: str) -> str:
    """A constant for people."""
    return quantity(value, unit) if unit else f"{value:.3g}"
