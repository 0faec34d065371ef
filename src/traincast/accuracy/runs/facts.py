"""Facts of the software that a run was measured with, as a row of a table states them.

A cell is filled where the source states the fact in so many words, and is empty otherwise: what then holds is
the framework's default.
"""

from collections.abc import Collection
from dataclasses import replace

from traincast.accuracy.runs.cells import Cells
from traincast.catalog.facts import ALWAYS_GIVEN, FACTS, FRAMEWORKS, Fact, framework_called

__all__ = ["ALWAYS_GIVEN", "FACTS", "FRAMEWORKS", "Fact", "framework_called", "read_facts"]


def read_facts(cells: Cells, policies: Collection[str]) -> dict[str, str]:
    """Return the facts that a row states, and write them to its cells in their own spelling.

    `policies` are the names that `remat` may have. A value that is not allowed is noted with what is.
    """
    if not cells.text("framework"):
        cells.row["framework"] = framework_called(cells.text("stack")) or ""
    remat = replace(FACTS["remat"], allowed=tuple(sorted(policies)), pattern="", form="")
    stated = {}
    for name, fact in (FACTS | {"remat": remat}).items():
        text = cells.text(name)
        if not text:
            continue
        value = framework_called(text) if name == "framework" else fact.read(text)
        if value is None:
            one_of = "" if fact.form else "one of "
            cells.refuse(f"{name} = {text!r}: must be {one_of}{fact.values}")
            continue
        stated[name] = value
        cells.row[name] = value
    return stated
