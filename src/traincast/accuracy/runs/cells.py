"""Cells of a row of measured runs, and what the names in them mean (patterns.yaml)."""

import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from traincast.catalog import read_document

MAX_VALUES: Final = {"layers": 10_000, "pp": 10_000, "vp": 100}  # a list is made of these
ROW: Final = "row"  # key of the row number in the file, where the header is 1
SOFTWARE: Final = "software"  # key of the software stack that the row is predicted with
FACT: Final = f"{SOFTWARE}."  # before a fact of that stack: its key

FILES: Final = (".yaml", ".yml", ".json")  # suffixes of files of models and systems


def is_file(name: str) -> bool:
    """Return whether a cell names a file of a model or a system, not one of the catalogue."""
    return name.lower().endswith(FILES)


class Unreadable(Exception):
    """A row that cannot be turned into a run; the message says every reason."""


@cache
def patterns() -> Any:
    """Return patterns.yaml, by section."""
    return read_document(files(__package__) / "patterns.yaml")


def first_match(table: Mapping[str, object], text: str) -> object:
    """Return the value of the first pattern of a table that a text matches; None without."""
    return next((value for words, value in table.items() if re.search(words, text, re.IGNORECASE)), None)


class Cells:
    """One row: its cells by name, the problems of reading it, and the columns whose content was assumed."""

    def __init__(self, row: Mapping[str, object]) -> None:
        self.row = dict(row)
        self.problems: list[str] = []
        self.assumed: list[str] = []

    def text(self, name: str) -> str:
        """Return a cell stripped of spaces; empty where there is no such column."""
        return str(self.row.get(name) or "").strip()

    def join(self, columns: str) -> str:
        """Return the cells of columns, whose names are separated by spaces."""
        return " | ".join(map(self.text, columns.split()))

    def states(self, phrase: str) -> re.Match[str] | None:
        """Return the match of a phrase of patterns.yaml; None where the row does not state it."""
        ((columns, pattern),) = patterns()["phrases"][phrase].items()
        return re.search(pattern, self.join(columns), re.IGNORECASE)

    def stated_number(self, phrase: str) -> int | None:
        """Return the whole number that a phrase contains; None where the row does not state it."""
        match = self.states(phrase)
        return None if match is None else int(next(filter(None, match.groups())))

    def truth(self, name: str) -> bool | None:
        """Return whether a cell says true; None where it is empty, or holds neither, which is noted."""
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            self.refuse(f"{name} = {self.text(name)!r}: must be true or false")
        return {"true": True, "false": False}.get(text)

    def choose(self, section: str) -> Any:
        """Return what the first rule that applies gives; None without."""
        return self._first(patterns()[section])

    def _first(self, rules: list[dict[str, Any]]) -> Any:
        for rule in rules:
            matches = [
                re.search(pattern, self.join(columns), re.IGNORECASE)
                for columns, pattern in rule.items()
                if columns not in ("is", "assumed")
            ]
            if all(matches):
                for name in rule.get("assumed", "").split():
                    self.assume(name)
                return rule["is"]
        return None

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

    def measurement(self, name: str) -> float | None:
        """Return a number above 0; None where the cell is empty, or holds none, which is noted."""
        value = self.number(name)
        if value is not None and value <= 0:
            self.refuse(f"{name} = {self.text(name)}: must be above 0")
            return None
        return value

    def whole(self, name: str, default: int | None = None, least: int = 0) -> int:
        """Return a whole number; the default where the cell is empty, 1 (noted) where it is invalid."""
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

    def raise_problems(self) -> None:
        """Raise `Unreadable` if problems were noted, all of them in one message."""
        if self.problems:
            raise Unreadable("; ".join(self.problems))
