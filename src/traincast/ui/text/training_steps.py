"""Measured training steps against their predictions, for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.core.units import quantity
from traincast.ui.text.accuracy import COLUMNS, summary_cells
from traincast.ui.text.plans import paragraphs, table_of

if TYPE_CHECKING:
    from traincast.accuracy.measure.training.compare import Judgement
    from traincast.accuracy.scores import ErrorSummary, Prediction

EXPLAINED: Final = (
    "Errors are predicted over measured step time, less 1; the spread is the middle half of the steps over their median. Of the "
    "plans of one shape that compete: rank correlation, how much slower the one ranked first really is (regret), and the best of "
    "the three ranked first. The machine is calibrated to the steps of every other shape; those of the others are left out."
)


TOLD: Final = {"before": "as measured", "fitted": "calibrated: fitted", "left_out": "calibrated: left out"}


def print_judgement(found: "Judgement", out: Console) -> None:
    """Every row, errors by shape, and errors in all before and after calibration."""
    out.print(Text(f"{len(found.rows)} training steps measured: {found.rows[0]['source']}", style="bold"))
    out.print(_rows(found))
    out.print(_errors("shape", [(one.source, one) for one in found.before.summaries]))
    totals = [(TOLD[name], one) for name, one in found.errors.items() if one is not None]
    out.print(_errors("machine", totals))
    out.print()
    paragraphs([EXPLAINED], out)


def _rows(found: "Judgement") -> Table:
    """Every row with its prediction, and that of the calibrated machine."""
    after = found.calibrated
    table = table_of(gap=1)
    for name in ("step", "measured", "spread", "predicted", "error", *(["calibrated", "error", ""] if after else [])):
        table.add_column(name, justify="left" if name in ("step", "") else "right", no_wrap=True)
    for row, one in zip(found.rows, found.before.predictions, strict=True):
        then = [*_predicted(after[one.id][1]), after[one.id][0]] if one.id in after else []
        spread = f"{float(row['step_spread']):.0%}"
        table.add_row(one.id, quantity(float(row["step_seconds"]), "s"), spread, *_predicted(one), *then)
    return table


def _predicted(one: "Prediction") -> tuple[str, str]:
    """A prediction and its error."""
    if one.predicted_step_seconds is None:
        return one.skipped or "", ""
    return quantity(one.predicted_step_seconds, "s"), f"{one.error:+.1%}"


def _errors(first: str, some: "Sequence[tuple[str, ErrorSummary]]") -> Table:
    """Errors of groups of rows."""
    table = table_of(gap=1)
    for name in (first, *COLUMNS[1:]):
        table.add_column(name, justify="left" if name == first else "right", no_wrap=True)
    for name, one in some:
        table.add_row(name, *summary_cells(one))
    return table
