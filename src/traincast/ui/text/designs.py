"""Terminal output of designs of machines."""

from math import isfinite
from typing import TYPE_CHECKING, Final

from traincast.core import number_text, percent
from traincast.planner import MACHINE_FIGURES
from traincast.ui.text.tables import Parts, heading, note, paragraphs, table

if TYPE_CHECKING:
    from traincast.planner import Designs, Worth

MOST_LISTED: Final = 12  # machines of the front; the table of --output has all
COLUMNS: Final = ("on the front", "days", "$M", "GWh", "regret")


def cells(found: "Designs", row: int) -> tuple[str, ...]:
    """Return the cells of a machine, as `COLUMNS`."""
    figures = (found.hours[row] / 24, found.cost[row] / 1e6, found.energy[row] / 1e6)
    return found.name(row), *(number_text(value, 3) for value in figures), f"{found.regret[row]:.0%}"


def answer(found: "Designs") -> Parts:
    """Show the answer in sentences, machines and prices in tables, and the plans on the cheapest."""
    yield from paragraphs(*found.headline())
    front = found.front_rows
    yield heading("Front of time, cost and energy, the cheapest first")
    yield table(COLUMNS, [cells(found, row) for row in front[:MOST_LISTED]], wrap=(0,))
    if len(front) > MOST_LISTED:
        yield note(f"{len(front) - MOST_LISTED:,} more are in the table of --output.")
    guesses = f"{sum(price.basis == 'guess' for price in found.prices)} of {len(found.prices)} prices"
    yield note(f"regret: worst over the ranges of prices and runs; guesses: {guesses}")
    yield heading("What more of a figure is worth for a GPU, at the same cost of the workload")
    yield table(("", "faster by", "worth", "parts cost"), [_worth_cells(worth) for worth in found.worth])
    yield from _break_even(found)
    yield from _today(found)
    yield heading("Plans on the cheapest machine to build")
    named = zip(found.question.workload, found.plans([found.cheapest])[0], strict=True)
    plans = [(work.model.name, str(plan)) for work, plan in named]
    yield table(("model", "plan"), plans, left=(0, 1), wrap=(1,))
    yield from paragraphs(*found.searched())


def _worth_cells(worth: "Worth") -> tuple[str, ...]:
    if worth.worth is None:
        return worth.title, "", "does not fit", f"${worth.price:,.0f}"
    return worth.title, percent(worth.faster), f"${max(worth.worth, 0):,.0f}", f"${worth.price:,.0f}"


def _break_even(found: "Designs") -> Parts:
    """Show below and above which price another machine is cheapest to build, and how that one differs."""
    rows = list[tuple[str, ...]]()
    kept = list[str]()
    for even in found.break_even:
        ends = (("below", even.low, even.below), ("above", even.high, even.above))
        now = even.price.title, even.price.text(even.price.value)
        rows += [
            (*now, f"{way} {even.price.text(end)}", found.difference(row))
            for way, end, row in ends
            if row is not None
        ]
        kept += [even.price.title] if even.below is even.above is None else []
    yield heading("Break-even prices: where another machine becomes the cheapest to build")
    if rows:
        yield table(("price of", "now", "", "cheapest then has"), rows, left=(0, 2, 3), wrap=(3,), gap=1)
    if kept:
        yield note(f"no break-even: {', '.join(kept)}")


def _today(found: "Designs") -> Parts:
    """Show how far systems and offers are behind machines designed, and what binds them."""
    fits = [row for row in found.today if isfinite(found.hours[row])]
    rows = []
    for row in fits:
        behind = ("-" if ratio is None else f"{ratio:.2f}" for ratio in found.behind(row))
        cost = number_text(found.cost[row] / 1e6, 3)
        name = found.parts[found.part[row]].family.name
        gpus = f"{found.gpus[row]:,.0f}"
        rows.append((name, gpus, found.days_text(row), cost, *behind, MACHINE_FIGURES[found.binds(row)[0]]))
    if rows:
        yield heading("Systems and offers")
        names = ("", "GPUs", "days (90%)", "$M", "cost", "time", "bound by")
        yield table(names, rows, left=(0, 6), wrap=(0, 6), gap=1)
        yield note(
            "cost, time: times those of the cheapest designed machine that is as fast, and of the fastest "
            "that is as cheap; -: there is none"
        )
    misfits = (row for row in found.today if row not in fits)
    yield from paragraphs(*(f"{found.name(row)}: {found.misfit(row)}." for row in misfits))
