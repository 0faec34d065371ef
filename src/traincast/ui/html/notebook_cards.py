"""Cards: compact HTML of results in notebooks, in the notebook's colours, with the terminal's tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich import table as terminal
from rich.text import Text

from traincast.core import count_of, gib, percent, seconds
from traincast.ui.html.accuracy_report import largest_errors
from traincast.ui.html.plan_report import metric_tables, unknown_metrics
from traincast.ui.html.rendering import Bar, Table, environment
from traincast.ui.text import accuracy, analysis, calibration
from traincast.ui.text.plans import BAR_CHARACTERS, breakdowns, header, recommendation
from traincast.ui.text.ranking import Ranking, ranking_table
from traincast.ui.text.tables import BOLD, title_line

if TYPE_CHECKING:
    from traincast.analysis import Scaling
    from traincast.planner import Found, Results
    from traincast.step import Metrics

MAX_CARD_ROWS: Final = 10  # of a long table
Parts = Iterable[object]  # of a card: those of an answer in the terminal, and tables of HTML reports


def card(result: object) -> str | None:
    """Return a result as a card, or None for a result that has none."""
    make = next((CARDS[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in CARDS), None)
    parts = () if make is None else list(_pieces(make(result)))
    return environment().get_template("card.html.jinja").render(parts=parts) if parts else None


def _pieces(parts: Parts) -> Iterator[Table | tuple[str, bool]]:
    """Yield tables, and texts with whether they are titles; a title in front of a table is its caption."""
    caption = ""
    for part in parts:
        if isinstance(part, terminal.Table):
            yield _html_table(part, caption)
            caption = ""
            continue
        if caption:
            yield caption, True
        is_title = isinstance(part, Text) and part.style == BOLD
        caption = str(part).strip() if is_title else ""
        if isinstance(part, Table):
            yield part
        elif not is_title and str(part).strip():
            yield str(part), False


def _html_table(table: terminal.Table, caption: str) -> Table:
    """Return a table of the terminal as one of HTML, with its bars as shares."""
    names = [str(column.header) for column in table.columns]
    cells = (
        [Bar(len(cell) / BAR_CHARACTERS) if isinstance(cell, Text) else cell for cell in column.cells]
        for column in table.columns
    )
    left = {str(column.header) for column in table.columns if column.justify == "left"}
    return Table(caption, names, list(zip(*cells, strict=True)), left)


def _search(result: "Found") -> Parts:
    yield from header(result)
    yield f"{result.candidates:,} candidates of {result.framework.label}, {result.feasible:,} fit"
    if result.plans:
        yield from recommendation(result)
        yield from filter(None, [result.describe_lock_price()])
        yield title_line("The recommended plan and the best others")
        listed = Ranking(result)
        yield from ranking_table(listed)
        yield listed.equal()
    else:
        yield "Nothing fits: explain() says what would."


def _results(results: "Results") -> Parts:
    from traincast.ui.html.study_report import first_points

    study = results.metadata["study"]
    yield title_line(study["name"])
    yield f"{count_of(len(results.frame), 'row')}; assumptions: {study['assumptions']['name']}"
    yield first_points(results, MAX_CARD_ROWS)


def _metrics(measures: "Metrics") -> Parts:
    if np.ndim(measures.tokens_per_second):  # columns of plans
        return ()
    return (*metric_tables(measures), *(f"not known: {text}" for text in unknown_metrics(measures)))


def _scaling(stage: "Scaling") -> Parts:
    names = ("GPUs", "iteration", "communication", "share", "efficiency", "memory")
    rows = [
        (
            *(f"{row.gpus:,}", seconds(row.iteration_seconds), seconds(row.comm_seconds)),
            *(percent(row.comm_share), percent(row.efficiency), gib(row.memory_bytes)),
        )
        for row in stage.rows()
    ]
    return (Table(f"Data parallelism with ZeRO-{stage.zero}, by number of GPUs", names, rows),)


CARDS: Final[Mapping[str, Callable[[Any], Parts]]] = {
    "Estimate": lambda est: (*header(est), *breakdowns(est)),
    "Found": _search,
    "Results": _results,
    "Report": lambda report: (*accuracy.validation(report), largest_errors(report, MAX_CARD_ROWS // 2)),
    "Metrics": _metrics,
    "Scaling": _scaling,
    "Limits": analysis.limits,
    "Advice": analysis.advice,
    "Calibration": calibration.calibration,
}
