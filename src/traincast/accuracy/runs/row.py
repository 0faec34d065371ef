"""Cells of a row of measured runs: numbers and words, their problems, and the columns that had to be assumed."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

MAX_VALUES: Final[Mapping[str, int]] = {
    "layers": 10_000,
    "pp": 10_000,
    "vp": 100,
}  # a list is made of these: larger values are refused
WORDY_COLUMNS: Final = ("moe_detail", "notes")  # columns of free text
ROW: Final = "row"  # key of the row number in the file, where the header is 1


class Unreadable(Exception):
    """A row that cannot be turned into a run; the message says every reason."""


class Cells:
    """One row: its cells by name, the problems found while reading it, and the columns whose content was assumed.

    Parameters
    ----------
    row : mapping of str to str
        Cells by name of the column; empty where nothing is known.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row = row
        self.problems: list[str] = []
        self.assumed: list[str] = []

    def text(self, name: str) -> str:
        """Return a cell stripped of spaces; empty where there is no such column."""
        return str(self.row.get(name) or "").strip()

    def says(self, pattern: str, *names: str) -> re.Match[str] | None:
        """Search cells for a pattern, ignoring case; `moe_detail` and `notes` where none is named."""
        return re.search(
            pattern, " | ".join(self.text(name) for name in names or WORDY_COLUMNS), re.IGNORECASE
        )

    def problem(self, message: str) -> None:
        """Note a reason why the row cannot be read, once."""
        if message not in self.problems:
            self.problems.append(message)

    def assume(self, name: str) -> None:
        """Note that the content of a column was assumed."""
        if name not in self.assumed:
            self.assumed.append(name)

    def refuse(self, message: str) -> None:
        """Note an impossible value, with its row in the file."""
        number = self.text(ROW)
        self.problem(f"row {number}: {message}" if number and self.text("id") != f"row {number}" else message)

    def number(self, name: str) -> float | None:
        """Return a number; None where the cell is empty, or holds none, which is noted."""
        text = self.text(name)
        try:
            value = float(text) if text else None
        except ValueError:
            self.refuse(f"{name} = {text!r} is no number")
            return None
        if value is not None and not math.isfinite(value):
            self.refuse(f"{name} = {text!r} is no finite number")
            return None
        return value

    def measured(self, name: str) -> float | None:
        """Return a number above 0; None where the cell is empty, or holds none, which is noted."""
        value = self.number(name)
        if value is not None and value <= 0:
            self.refuse(f"{name} = {self.text(name)}: must be above 0")
            return None
        return value

    def whole(self, name: str, default: int | None = None, least: int = 0) -> int:
        """Return a whole number, the default where the cell is empty, or 1 where it is invalid, which is noted."""
        value = self.number(name)
        if value is None:
            if default is None and not self.text(name):
                self.problem(f"{name} is not known")
            return 1 if default is None else default
        if value != round(value):
            self.refuse(f"{name} = {self.text(name)} is no whole number")
        elif value < least:
            self.refuse(f"{name} = {self.text(name)}: must be at least {least}")
        elif value > MAX_VALUES.get(name, 10**12):
            self.refuse(f"{name} = {self.text(name)} is too large")
        else:
            return int(value)
        return 1

    def positive(self, name: str, default: int | None = None) -> int:
        """Return a whole number of at least 1, or the default where the cell is empty."""
        return self.whole(name, default, least=1)

    def done(self) -> None:
        """Raise if problems were noted, all of them in one message.

        Raises
        ------
        Unreadable
            If a problem was noted.
        """
        if self.problems:
            raise Unreadable("; ".join(self.problems))
