"""Facts of the software that a run was measured with, as a row of a table states them.

A cell is filled where the source states the fact in so many words, and is empty otherwise: what then holds is
the framework's default.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from traincast.accuracy.runs.cells import Cells
from traincast.catalog import FACTS

QUALITIES: Final = {  # behind a framework in the column `stack`, after a comma -> the facts that they state
    "eager": {"compiled": "false", "loss": "whole"},  # PyTorch's own operations, neither compiled nor fused
    "compiled": {"compiled": "true"},
    "fused cross-entropy": {"loss": "fused"},
    "fused cross-entropy and norms": {"loss": "fused"},
}


def read_facts(cells: Cells, policies: Collection[str]) -> dict[str, str]:
    """Return the facts that a row states, and write them to its cells in their own spelling.

    `policies` are the names that `remat` may have. A value that is not allowed is noted with what is.
    """
    if not cells.text("framework"):
        _read_stack(cells)
    remat = replace(FACTS["remat"], allowed=tuple(sorted(policies)), pattern="", form="")
    stated = {}
    for name, fact in (FACTS | {"remat": remat}).items():
        text = cells.text(name)
        if not text:
            continue
        try:
            stated[name] = fact.check(name, text)
        except ValueError as error:
            cells.refuse(str(error))
            continue
        cells.row[name] = stated[name]
    return stated


def _read_stack(cells: Cells) -> None:
    """Write the framework that the column `stack` names to its own cell, and facts behind it to theirs."""
    name, *qualities = [part.strip() for part in cells.text("stack").split(",")]
    cells.row["framework"] = FACTS["framework"].spell(name) or ""
    if not cells.row["framework"]:
        return
    for quality in qualities:
        for fact, value in QUALITIES.get(quality.lower(), {}).items():
            cells.row[fact] = cells.text(fact) or value
