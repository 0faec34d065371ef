"""Tables of formats: rows that convert between facts and settings of a framework, in both directions.

A table is a TOML file in `tables` (the standard library reads them in milliseconds), with these parts:

- `source`: where the names of the settings come from, and when that was looked at.
- `rows`: by section and fact (or facts, separated by blanks). The value of `setting` is the fact, or one of `words` for it;
  `write` has the settings of each value of the fact, and `read` further combinations; `by` names the functions of the framework's
  module that compute a row (`read_NAME`, `write_NAME`). `always` holds facts that no setting changes.
- `why`: facts that cannot always be expressed, and why.
- `fixed`: further settings that are written because the program requires them.
- `unread`: settings that no row reads, by their effect.

Where a framework has two formats, rows with `only`, and texts by version, belong to one of them.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from types import ModuleType
from typing import Any, Final, TypeAlias

from traincast.core.errors import ErrorCollector
from traincast.launch.canonical import Facts
from traincast.launch.settings import Settings, dotted, is_off, not_allowed, whole_number
from traincast.launch.unread_settings import UnreadEffect, UnreadRules

ANY: Final = "*"  # a required value of a setting: any that is not off
Values: TypeAlias = Mapping[str, Any]  # of settings, by name


@dataclass(frozen=True)
class ValueRow:
    """Row of a setting whose value, a whole number, is the fact itself.

    Parameters
    ----------
    fact, setting : str
        The fact, and the name of the setting.
    older : tuple of str
        Other or former names, which are read as well.
    default : int or None
        The framework's default; None without one.
    always : bool
        Whether it is written even at the default.
    needs : str
        A setting without which it has no effect.
    least : int
        The smallest valid number.
    """

    fact: str
    setting: str
    older: tuple[str, ...] = ()
    default: int | None = None
    always: bool = False
    needs: str = ""
    least: int = 1
    source: str = ""

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts that the row converts."""
        return (self.fact,)

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings that the row reads."""
        return (self.setting, *self.older)

    def write(self, facts: Facts) -> Values:
        """Return the setting of facts; none where the fact is missing or the default."""
        value = facts.get(self.fact)
        return {} if value is None or (value == self.default and not self.always) else {self.setting: value}

    def read(self, settings: Settings) -> Facts:
        """Return the fact of settings."""
        if self.needs and not settings.is_on(self.needs):
            return {}
        for name in filter(settings.is_on, self.settings):
            return {self.fact: whole_number(name, settings[name], self.least)}
        return {} if self.default is None else {self.fact: self.default}


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
    others : tuple, optional
        Further values, which mean the default. With it any other value is an error; without it (None) others are ignored.
    """

    fact: str
    written: tuple[tuple[Any, Values], ...]
    understood: tuple[tuple[Any, Values], ...] = ()
    others: tuple[str, ...] | None = None
    source: str = ""

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts that the row converts."""
        return (self.fact,)

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings that the row reads."""
        return tuple(
            dict.fromkeys(name for _, values in (*self.written, *self.understood) for name in values)
        )

    def write(self, facts: Facts) -> Values:
        """Return the settings of the fact's value."""
        value = facts.get(self.fact)
        return next((values for written, values in self.written if written == value), {})

    def read(self, settings: Settings) -> Facts:
        """Return the first value all of whose settings match; combinations with the most settings are tried first.

        Raises
        ------
        InputError
            If a setting has an unknown value.
        """
        combinations = sorted((*self.understood, *self.written), key=lambda combination: -len(combination[1]))
        for name in self.settings if self.others is not None else ():
            value = settings.get(name)
            rows = (*self.written, *self.understood)
            wanted_values = (values[name] for _, values in rows if name in values)
            allowed = dict.fromkeys((*wanted_values, *(self.others or ())))
            absent = is_off(value) and value != "auto"
            if not absent and not any(_matches(value, wanted) for wanted in allowed):
                raise not_allowed(name, value, allowed)
        for fact, values in combinations:
            if all(_matches(settings.get(name), wanted) for name, wanted in values.items()):
                return {self.fact: fact}
        return {}


@dataclass(frozen=True)
class ComputedRow:
    """Row whose facts and settings are computed from each other by functions; `note` is one line for the documentation."""

    facts: tuple[str, ...]
    settings: tuple[str, ...]
    write: Callable[[Facts], Values]
    read: Callable[[Settings], Facts]
    note: str = field(default="", compare=False)
    source: str = ""


Row: TypeAlias = ValueRow | ChoiceRow | ComputedRow


def _matches(value: Any, wanted: Any) -> bool:
    """Return whether a value is the wanted one, however it is spelled."""
    if wanted == ANY:
        return not is_off(value)
    if isinstance(wanted, bool):
        return (not is_off(value)) == wanted
    return value is not None and str(value).lower() == str(wanted).lower()


@dataclass(frozen=True)
class Table:
    """Settings of a format; the module's description says what its parts are."""

    source: str
    rows: Mapping[str, tuple[Row, ...]]
    why: Mapping[str, str]
    fixed: Values
    unread: UnreadRules

    @cached_property
    def known(self) -> frozenset[str]:
        """Names of all settings that a row reads."""
        return frozenset(name for rows in self.rows.values() for row in rows for name in row.settings)

    def names_of(self, fact: str) -> tuple[str, ...]:
        """Return the settings of the row that converts one fact alone."""
        rows = (row for rows in self.rows.values() for row in rows if row.facts == (fact,))
        return next((row.settings for row in rows), ())

    def write(self, facts: Facts) -> dict[str, dict[str, Any]]:
        """Return the settings of facts, by section."""
        return {
            section: {name: value for row in rows for name, value in row.write(facts).items()}
            for section, rows in self.rows.items()
        }

    def read(self, settings: Settings, errors: ErrorCollector) -> Facts:
        """Return the facts of settings; invalid values are collected in `errors`."""
        facts: Facts = {}
        for rows in self.rows.values():
            for row in rows:
                facts |= errors.catch(row.read, settings) or {}
        return facts


def load_table(name: str, conversions: ModuleType, version: str = "") -> Table:
    """Read a table of the package; `conversions` has the functions of its computed rows."""
    document = load_document(name)
    rows = {section: tuple(_rows(rows, conversions, version)) for section, rows in document["rows"].items()}
    unread = document["unread"]
    harmless = unread["harmless"]
    return Table(
        source=_of_version(document["source"], version),
        rows={section: section_rows for section, section_rows in rows.items() if section_rows},
        why={
            fact: text
            for fact, why in document["why"].items()
            if (text := _of_version(why, version)) is not None
        },
        fixed=dotted(document.get("fixed", {})),
        unread=UnreadRules(
            tuple(
                UnreadEffect(**{key: _words(key, text) for key, text in row.items()})
                for row in unread["matter"]
            ),
            tuple(unread["small"].split()),
            tuple(" ".join(harmless.values()).split() if isinstance(harmless, Mapping) else harmless.split()),
            tuple(unread.get("suspect", "").split()),
        ),
    )


@cache
def load_document(name: str) -> dict[str, Any]:
    """Return the content of a file of the tables."""
    file = files("traincast").joinpath("launch", "tables", f"{name}.toml")
    document: dict[str, Any] = _tidied(tomllib.loads(file.read_text(encoding="utf-8")))
    return document


def _tidied(value: Any) -> Any:
    """Return content whose texts have single blanks: long ones have several lines in the file."""
    if isinstance(value, Mapping):
        return {key: _tidied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidied(item) for item in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def _of_version(text: str | Mapping[str, str], version: str) -> Any:
    """Return a text, or that of a version of the framework; None where the version has none."""
    return text.get(version) if isinstance(text, Mapping) else text


def _words(key: str, text: str) -> Any:
    """Return the names or values of an effect; the reason and single names as they are."""
    return tuple(text.split()) if key in ("settings", "neutral", "at") else text


def _rows(section: Mapping[str, Any], conversions: ModuleType, version: str) -> Iterator[Row]:
    """Yield the rows of a section that belong to a version."""
    for facts, specs in section.items():
        for spec in specs if isinstance(specs, list) else [specs]:
            row = dict(spec)
            if row.pop("only", version) == version:
                yield _row(facts, row, conversions, version)


def _row(facts: str, spec: Mapping[str, Any], conversions: ModuleType, version: str) -> Row:
    """Return a row of its specification."""
    if facts == "always":
        return ComputedRow(tuple(spec), (), _nothing, lambda _: dict(spec), "always")
    source = spec.get("source", "")
    if "settings" in spec:
        by = _of_version(spec.get("by", ""), version)
        write, read = (getattr(conversions, f"{verb}_{by}", _nothing) for verb in ("write", "read"))
        return ComputedRow(
            tuple(facts.split()), tuple(spec["settings"].split()), write, read, spec.get("note", ""), source
        )
    if "words" in spec or "write" in spec:
        return _choice_row(facts, spec, source)
    older = tuple(spec.get("older", "").split())
    return ValueRow(facts, **{**spec, "older": older, "source": source})


def _choice_row(fact: str, spec: Mapping[str, Any], source: str) -> ChoiceRow:
    """Return a row of a fact with a few values."""
    written = spec.get("write", {})
    if "words" in spec:
        written = {value: {spec["setting"]: word} for value, word in spec["words"].items()}
    pairs = written.items() if isinstance(written, Mapping) else written
    default: list[tuple[Any, Values]] = [(spec["default"], {})] if "default" in spec else []
    others = tuple(spec.get("others", "").split())
    return ChoiceRow(
        fact,
        tuple((_fact_value(value), dotted(values)) for value, values in pairs),
        (*((value, dotted(values)) for value, values in spec.get("read", ())), *default),
        others if others or spec.get("strict") else None,
        source,
    )


def _fact_value(text: str) -> Any:
    """Return the value of a fact that is a key of a table: true or false, a number, words ending with commas, or a word."""
    if text in ("true", "false"):
        return text == "true"
    if "," in text:
        return tuple(filter(None, text.split(",")))
    return int(text) if text.isdecimal() else text


def _nothing(_: Any) -> dict[str, Any]:
    """Return no facts, or no settings."""
    return {}
