"""Terminal tables of measured training steps against their predictions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traincast.core.units import quantity
from traincast.ui.text.accuracy import COLUMNS, summary_cells
from traincast.ui.text.plans import borderless_table, paragraphs

if TYPE_CHECKING:
    from traincast.accuracy.measure.training.compare import StepComparison
    from traincast.accuracy.scores import ErrorSummary, Prediction

MEANING: Final = (
    "Errors are predicted over measured step time, less 1; the spread is the middle half of the steps over their median. Of the "
    "plans of one shape that compete: rank correlation, how much slower the one ranked first really is (regret), and the best of "
    "the three ranked first. The machine is calibrated to the steps of every other shape; those of the others are left out."
)


MACHINE_TITLES: Final = {
    "before": "as measured",
    "fitted": "calibrated: fitted",
    "left_out": "calibrated: left out",
}


def print_judgement(judgement: "StepComparison", out: Console) -> None:
    """Print every step, errors by shape, and total errors before and after calibration."""
    out.print(
        Text(f"{len(judgement.rows)} training steps measured: {judgement.rows[0]['source']}", style="bold")
    )
    out.print(_row_table(judgement))
    out.print(_error_table("shape", [(summary.source, summary) for summary in judgement.before.summaries]))
    totals = [
        (MACHINE_TITLES[name], summary) for name, summary in judgement.errors.items() if summary is not None
    ]
    out.print(_error_table("machine", totals))
    out.print()
    paragraphs([MEANING], out)


def _row_table(judgement: "StepComparison") -> Table:
    """Return a table of steps with their predictions before and after calibration."""
    after = judgement.calibrated
    table = borderless_table(gap=1)
    for name in (
        "step",
        "measured",
        "spread",
        "predicted",
        "error",
        *(["calibrated", "error", ""] if after else []),
    ):
        table.add_column(name, justify="left" if name in ("step", "") else "right", no_wrap=True)
    for row, prediction in zip(judgement.rows, judgement.before.predictions, strict=True):
        calibrated = (
            [*_prediction_cells(after[prediction.id][1]), after[prediction.id][0]]
            if prediction.id in after
            else []
        )
        spread = f"{float(row['step_spread']):.0%}"
        table.add_row(
            prediction.id,
            quantity(float(row["step_seconds"]), "s"),
            spread,
            *_prediction_cells(prediction),
            *calibrated,
        )
    return table


def _prediction_cells(prediction: "Prediction") -> tuple[str, str]:
    """Return the cells of a prediction: its step time, or why it was skipped, and its error."""
    if prediction.predicted_step_seconds is None:
        return prediction.skipped or "", ""
    return quantity(prediction.predicted_step_seconds, "s"), f"{prediction.error:+.1%}"


def _error_table(first: str, groups: "Sequence[tuple[str, ErrorSummary]]") -> Table:
    """Return a table of the errors of groups of steps."""
    table = borderless_table(gap=1)
    for name in (first, *COLUMNS[1:]):
        table.add_column(name, justify="left" if name == first else "right", no_wrap=True)
    for name, summary in groups:
        table.add_row(name, *summary_cells(summary))
    return table
