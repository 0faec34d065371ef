"""Rows of a format's table: each converts between facts and settings of a framework, in both directions."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from traincast.core.errors import WHOLE, ErrorCollector, InputError
from traincast.launch.canonical import Facts

Settings: TypeAlias = dict[str, Any]  # by name; a dotted path where a configuration has sections
ANY: Final = ...  # a required value of a setting: any that is not off


@dataclass(frozen=True)
class ValueRow:
    """Row of one setting whose value, a whole number, is the fact itself.

    Parameters
    ----------
    fact, name : str
        The fact, and the name of the setting.
    older : tuple of str
        Other or former names, which are read as well.
    usual : value or None
        The framework's default; None without one.
    always : bool
        Whether it is written even at the default.
    given : str
        A setting without which it has no effect.
    least : int
        The smallest valid number.
    """

    fact: str
    name: str
    older: tuple[str, ...] = ()
    usual: Any = None
    always: bool = False
    given: str = ""
    least: int = 1
    source: str = ""

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts that the row converts."""
        return (self.fact,)

    @property
    def names(self) -> tuple[str, ...]:
        """Settings that the row reads."""
        return (self.name, *self.older)

    def write(self, facts: Facts) -> Settings:
        """Return the setting of facts; none where the fact is missing or the default."""
        value = facts.get(self.fact)
        return {} if value is None or (value == self.usual and not self.always) else {self.name: value}

    def read(self, settings: Settings) -> Facts:
        """Return the fact of settings."""
        if self.given and is_off(settings.get(self.given)):
            return {}
        for name in self.names:
            if not is_off(settings.get(name)):
                return {self.fact: whole_number(name, settings[name], self.least)}
        return {} if self.usual is None else {self.fact: self.usual}


@dataclass(frozen=True)
class ChoiceRow:
    """Row of a fact with a few values, each of which is a combination of settings.

    Parameters
    ----------
    fact : str
        The fact.
    written : tuple of (value, settings)
        Settings of every value that can be written.
    understood : tuple of (value, settings)
        Further combinations, which are read before those written. `ANY` stands for any value that is not off.
    needs : str
        A fact without which nothing is written.
    others : tuple, optional
        Further values, which mean the default. With it any other value is an error; without it (None) other values are ignored.
    """

    fact: str
    written: tuple[tuple[Any, Mapping[str, Any]], ...]
    understood: tuple[tuple[Any, Mapping[str, Any]], ...] = ()
    needs: str = ""
    others: tuple[Any, ...] | None = None
    source: str = ""

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts that the row converts."""
        return (self.fact,)

    @property
    def names(self) -> tuple[str, ...]:
        """Settings that the row reads."""
        return tuple(
            dict.fromkeys(name for _, settings in (*self.written, *self.understood) for name in settings)
        )

    def write(self, facts: Facts) -> Settings:
        """Return the settings of the fact's value."""
        if self.fact not in facts or (self.needs and self.needs not in facts):
            return {}
        return next((dict(settings) for value, settings in self.written if value == facts[self.fact]), {})

    def read(self, settings: Settings) -> Facts:
        """Return the first value all of whose settings match; combinations with the most settings are tried first.

        Raises
        ------
        InputError
            If a setting has an unknown value.
        """
        if self.others is not None:
            for name in self.names:
                self._check(name, settings.get(name))
        combinations = sorted((*self.understood, *self.written), key=lambda combination: -len(combination[1]))
        return next(
            ({self.fact: value} for value, wanted in combinations if _all_match(settings, wanted)), {}
        )

    def _check(self, name: str, value: Any) -> None:
        """Raise if the value of a setting is in no combination."""
        written_values = (wanted[name] for _, wanted in (*self.written, *self.understood) if name in wanted)
        allowed = tuple(dict.fromkeys((*written_values, *(self.others or ()))))
        if not (is_off(value) and value != "auto") and not any(
            _matches(value, allowed_value) for allowed_value in allowed
        ):
            raise InputError(
                name, [f"{name} = {str(value)[:60]!r}: must be one of {', '.join(map(str, allowed))}"]
            )


@dataclass(frozen=True)
class ComputedRow:
    """Row whose facts and settings are computed from each other by functions.

    Parameters
    ----------
    facts, names : tuple of str
        Facts that the row converts, and the settings that it reads.
    write : callable
        Settings of facts.
    read : callable
        Facts of settings.
    how : str
        One line for the documentation.
    """

    facts: tuple[str, ...]
    names: tuple[str, ...]
    write: Callable[[Facts], Settings]
    read: Callable[[Settings], Facts]
    how: str = field(default="", compare=False)
    source: str = ""


Row: TypeAlias = ValueRow | ChoiceRow | ComputedRow


def dotted(document: Mapping[str, Any], prefix: str = "") -> Settings:
    """Return nested sections as settings with dotted names."""
    settings: Settings = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            settings |= dotted(value, f"{prefix}{name}.")
        else:
            settings[f"{prefix}{name}"] = value
    return settings


def is_off(value: Any) -> bool:
    """Return whether a value is absent, off, or automatic."""
    return (
        value is None
        or value is False
        or (isinstance(value, str) and value.lower() in ("", "none", "null", "false", "auto"))
    )


def _all_match(settings: Settings, wanted: Mapping[str, Any]) -> bool:
    """Return whether all settings have the wanted values."""
    return all(_matches(settings.get(name), value) for name, value in wanted.items())


def _matches(value: Any, wanted: Any) -> bool:
    """Return whether a value is the wanted one, however it is spelled."""
    if wanted is ANY:
        return not is_off(value)
    if isinstance(wanted, bool):
        return (not is_off(value)) == wanted
    return value is not None and str(value).lower() == str(wanted).lower()


def whole_number(name: str, value: Any, least: int = 0) -> Any:
    """Return a value as a whole number of at least `least`; a list as a tuple of them.

    Raises
    ------
    InputError
        If it is not one.
    """
    if isinstance(value, list | tuple):
        return tuple(whole_number(name, item, least) for item in value)
    text = str(value).strip().replace("_", "")
    number = (
        int(text.partition(".")[0])
        if re.fullmatch(r"\d{1,15}(?:\.0*)?", text) and not isinstance(value, bool)
        else -1
    )
    if number < least:
        raise InputError(name, [f"{name} = {str(value)[:60]!r}: {WHOLE}"])
    return number


def names_of(rows: Mapping[str, tuple[Row, ...]], fact: str) -> tuple[str, ...]:
    """Return the settings of the row that converts one fact alone."""
    return next((row.names for section in rows.values() for row in section if row.facts == (fact,)), ())


def write_rows(rows: Mapping[str, tuple[Row, ...]], facts: Facts) -> dict[str, Settings]:
    """Return the settings of facts, by section."""
    sections: dict[str, Settings] = {}
    for section, section_rows in rows.items():
        sections[section] = {name: value for row in section_rows for name, value in row.write(facts).items()}
    return sections


def read_rows(rows: Mapping[str, tuple[Row, ...]], settings: Settings, mistakes: ErrorCollector) -> Facts:
    """Return the facts of settings; invalid values are collected in `mistakes`."""
    facts: Facts = {}
    for row in (row for section_rows in rows.values() for row in section_rows):
        facts |= mistakes.catch(row.read, settings) or {}
    return facts


def constant_facts(**values: Any) -> ComputedRow:
    """Return a row of facts that hold in a framework whatever is set."""
    facts = {name.replace("__", "."): value for name, value in values.items()}
    return ComputedRow(tuple(facts), (), lambda _: {}, lambda _: dict(facts), "always")
