"""Measured training steps against their predictions, for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.report import paragraphs, table_of
from traincast.report_accuracy import COLUMNS, summary_cells
from traincast.units import quantity

if TYPE_CHECKING:
    from traincast.accuracy.scores import Prediction, Summary
    from traincast.measuring.judge import Judgement

EXPLAINED: Final = (
    "Errors are predicted over measured step time, less 1; the spread is the middle half of the steps over their median. Of the "
    "plans of one shape that compete: rank correlation, how much slower the one ranked first really is (regret), and the best of "
    "the three ranked first."
)


def print_judgement(found: "Judgement", out: Console) -> None:
    """Every row, errors by shape, and errors in all before and after calibration."""
    out.print(Text(f"{len(found.rows)} training steps measured: {found.rows[0]['source']}", style="bold"))
    out.print(_rows(found))
    out.print(_errors("shape", [(one.source, one) for one in found.before.summaries]))
    totals = [("as microbenchmarks say", found.before.totals)]
    if found.fitted and found.left_out:
        totals += [("calibrated, shapes fitted", found.fitted.totals), ("calibrated, shapes left out", found.left_out.totals)]
    out.print(_errors("machine", [(name, one) for name, some in totals for one in some if one.n]))
    out.print()
    paragraphs([EXPLAINED], out)


def _rows(found: "Judgement") -> Table:
    """Every row with its prediction, and that of the calibrated machine."""
    table = table_of(gap=2)
    for name in ("step", "measured", "spread", "predicted", "error", *(["calibrated", "error", ""] if found.calibration else [])):
        table.add_column(name, justify="left" if name in ("step", "") else "right", no_wrap=True)
    after: dict[str, tuple[Prediction, str]] = {}
    for told, half in (("fitted", found.fitted), ("left out", found.left_out)):
        after |= {one.id: (one, told) for one in (half.predictions if half else ())}
    for row, one in zip(found.rows, found.before.predictions, strict=True):
        then = [*_predicted(after[one.id][0]), after[one.id][1]] if one.id in after else []
        spread = f"{float(row['step_spread']):.0%}"
        table.add_row(one.id, quantity(float(row["step_seconds"]), "s"), spread, *_predicted(one), *then)
    return table


def _predicted(one: "Prediction") -> tuple[str, str]:
    """A prediction and its error."""
    if one.predicted_step_seconds is None:
        return one.skipped or "", ""
    return quantity(one.predicted_step_seconds, "s"), f"{one.error:+.1%}"


def _errors(first: str, some: "Sequence[tuple[str, Summary]]") -> Table:
    """Errors of groups of rows."""
    table = table_of(gap=2)
    for name in (first, *COLUMNS[1:]):
        table.add_column(name, justify="left" if name == first else "right", no_wrap=True)
    for name, one in some:
        table.add_row(name, *summary_cells(one))
    return table
