"""Training that is not modelled: adapters, other models than text decoders, reinforcement learning."""

import re
from collections.abc import Iterable
from typing import Final

from traincast.accuracy.runs.cells import Cells, patterns

PHRASE_COLUMNS: Final = ("model", "trained", "moe_detail", "notes")
CODE_COLUMNS: Final = (
    "id",
    "url",
    "system",
    "gpu",
    "interconnect",
)  # networks have adapters too, and paths hold any word


def note_unmodelled(cells: Cells) -> None:
    """Note with the cells every reason why the training of a row is not modelled."""
    known, trained = patterns()["not_modelled"], cells.text("trained")
    if trained:
        full = re.match(known["trains_all"], trained, re.IGNORECASE) is not None
    else:
        full = _states(cells, known["full"], PHRASE_COLUMNS) or _states(cells, "full", ("model",))
    columns = (
        ("model", "trained") if full else [name for name in cells.row if name and name not in CODE_COLUMNS]
    )
    adapted = (
        kind["reason"]
        for kind in known["fine_tuning"]
        if _states(
            cells, kind["phrases"].replace("{parts}", kind.get("parts", "")), columns, kind.get("not_after")
        )
    )
    reasons = [reason for reason in (next(adapted, None),) if reason]
    for kind in known["subjects"]:
        named = "names" in kind and _states(cells, kind["names"], ("model",))
        if named or _states(cells, kind["phrases"], PHRASE_COLUMNS):
            reasons.append(kind["reason"])
    if trained and not full and not reasons:
        reasons.append(f"trained = {trained!r}: only training of all weights is modelled; write all")
    for reason in reasons:
        cells.problem(reason)


def _states(cells: Cells, pattern: str, columns: Iterable[str], not_after: str | None = None) -> bool:
    """Return whether a cell has words of a pattern, with neither a denial nor `not_after` next to them."""
    denials = patterns()["not_modelled"]
    before = denials["denied_before"] + (f"|(?:{not_after})$" if not_after else "")
    words = re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", re.IGNORECASE)
    for text in map(cells.text, columns):
        for match in words.finditer(text):
            denied = re.search(before, text[: match.start()], re.IGNORECASE)
            if not denied and not re.match(denials["denied_after"], text[match.end() :], re.IGNORECASE):
                return True
    return False
