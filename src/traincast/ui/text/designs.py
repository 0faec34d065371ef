"""Terminal output of designs of machines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from traincast.core.units import number_text
from traincast.ui.text.tables import Parts, heading, note, paragraphs, table

if TYPE_CHECKING:
    from traincast.planner.design.designs import Designs

MOST_LISTED: Final = 12  # machines of the front; the table of --output has all
COLUMNS: Final = ("on the front", "days", "$M", "GWh", "regret")


def cells(found: "Designs", row: int) -> tuple[str, ...]:
    """Return the cells of a machine, as `COLUMNS`."""
    figures = (found.hours[row] / 24, found.cost[row] / 1e6, found.energy[row] / 1e6)
    return found.name(row), *(number_text(value, 3) for value in figures), f"{found.regret[row]:.0%}"


def answer(found: "Designs", sentences: Sequence[str]) -> Parts:
    """Show the answer in sentences, the machines on the front, and the plans on the cheapest."""
    yield from paragraphs(*sentences)
    front = found.front_rows
    yield heading("Front of time, cost and energy, the cheapest first")
    yield table(COLUMNS, [cells(found, row) for row in front[:MOST_LISTED]], wrap=(0,))
    if len(front) > MOST_LISTED:
        yield note(f"{len(front) - MOST_LISTED:,} more are in the table of --output.")
    yield heading("Plans on the cheapest machine")
    named = zip(found.question.workload, found.plans([found.cheapest])[0], strict=True)
    yield table(
        ("model", "plan"), [(work.model.name, str(plan)) for work, plan in named], left=(0, 1), wrap=(1,)
    )
    guesses = sum(price.basis == "guess" for price in found.prices)
    yield note(f"{guesses} of {len(found.prices)} prices are guesses; regret is the worst over their ranges.")
