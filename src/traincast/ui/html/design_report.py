"""HTML report on a design: which machine to build or buy, why, and how sure that is."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from traincast.catalog import Stack
from traincast.core import count_of, number_text, percent, rate_text, total_text
from traincast.planner import MACHINE_FIGURES
from traincast.ui.figures.designs import figures_of
from traincast.ui.html.rendering import Page, Pairs, Table, Tiles
from traincast.ui.html.sources import assumptions
from traincast.ui.text.designs import COLUMNS, cells

if TYPE_CHECKING:
    from traincast.planner import Designs, Price

FRONT: Final = "No other machine is as good in time, cost and energy"
EXISTING: Final = "Systems of the catalogue at the prices of their parts, and offers"
PRICES: Final = "Prices, and the range of each in which the cheapest machine stays so"


def page(found: "Designs") -> Page:
    """Return the report on a design; raises `NothingFits`, with the nearest miss, outside its limits."""
    question = found.question
    row = found.cheapest
    named = zip(question.workload, found.plans([row])[0], strict=True)
    plans = [(work.model.name, plan) for work, plan in named]
    content: dict[str, object] = {
        "answer": found.sentences(),
        "summary": list(_summary(found)),
        "question": list(_question(found)),
        "figures": list(figures_of(found)),
        "front": Table(FRONT, COLUMNS, _rows(found, found.front_rows)),
        "existing": Table(EXISTING, COLUMNS, _rows(found, found.today)),
        "plans": Table("Fastest plan of each model", ("model", "plan"), plans, ("plan",)),
        "worth": _worth(found),
        "prices": _prices(found),
        "subjects": [assumptions(question.assumptions)],
    }
    guesses = sum(price.basis == "guess" for price in found.prices)
    remarks = [f"{guesses} of {len(found.prices)} prices are guesses"]
    remarks.append(f"assumptions: {Stack(question.assumptions.name).words}")
    return Page("Design of a machine", question.name, remarks, "design.html.jinja", content)


def _rows(found: "Designs", rows: Any) -> list[tuple[str, ...]]:
    """Return the cells of machines; those that do not fit say so."""
    fits = np.isfinite(found.hours)
    return [cells(found, row) if fits[row] else (found.name(row), "does not fit") for row in rows]


def _summary(found: "Designs") -> Tiles:
    row = found.cheapest
    time, *ends = (number_text(hours / 24, 3) for hours in (found.hours[row], *found.intervals([row])[0]))
    is_known = len(set(ends)) > 1
    interval = f"{' to '.join(ends)}, 90% interval" if is_known else "no interval is known"
    yield "Time", f"{time} days", interval
    yield "Cost", f"${total_text(found.cost[row])}", f"{found.gpus[row]:,.0f} GPUs"
    yield "Energy", rate_text(found.energy[row] * 1e3, "Wh"), rate_text(found.kilowatts[row] * 1e3, "W")
    yield "Worst regret", f"{found.regret[row]:.0%}", "over the ranges of prices and runs"


def _question(found: "Designs") -> Pairs:
    question = found.question
    for work in question.workload:
        runs = f"{work.runs:g} runs" if work.low == work.high else f"{work.low:g} to {work.high:g} runs"
        yield (
            work.model.title,
            f"{rate_text(work.tokens, ' tokens')}, batch of {work.gbs:,} sequences, {runs}",
        )
    yield "GPUs", ", ".join(f"{gpus:,}" for gpus in question.gpus)
    limits = vars(question.limits).items()
    yield "Limits", ", ".join(f"{value:,g} {name}" for name, value in limits if value is not None) or "none"
    for family in question.families:
        if family.vary:
            varied = ", ".join(
                f"{MACHINE_FIGURES[path]} {len(values)}" for path, values in family.vary.items()
            )
            yield family.name, f"based on {family.base.name}, memory {family.memory}; values: {varied}"
    yield "Machines", count_of(sum(part.count for part in found.parts), "machine")


def _worth(found: "Designs") -> Table:
    rows = [
        (
            MACHINE_FIGURES[worth.figure],
            f"{worth.factor:g}",
            percent(worth.faster),
            "does not fit" if worth.worth is None else f"${max(worth.worth, 0):,.0f}",
            f"${worth.price:,.0f}",
        )
        for worth in found.worth
    ]
    caption = "What a GPU of the cheapest machine may cost more at the same cost of the workload"
    return Table(caption, ("figure", "times as much", "faster by", "worth a GPU", "parts cost"), rows)


def _format_range(price: "Price", *ends: float) -> str:
    """Return a range of prices without their unit, which stands beside it."""
    return " to ".join(price.text(end).partition("/")[0] if np.isfinite(end) else "any" for end in ends)


def _prices(found: "Designs") -> Table:
    """Return prices with their ranges and sources, and where another machine wins."""
    ends = {even.price.name: even for even in found.break_even}
    rows = []
    for price in found.prices:
        even = ends.get(price.name)
        stays = "" if even is None else _format_range(price, even.low, even.high)
        given = (price.text(price.value), _format_range(price, price.low, price.high))
        rows.append((price.title, *given, stays, price.basis, price.source))
    header = ("price", "value", "range", "cheapest stays", "basis", "source")
    return Table(PRICES, header, rows, ("basis", "source"))
