"""Tables of formats: rows that convert between facts and settings of a framework, in both directions.

A table is a TOML file in `tables` (the standard library reads them in milliseconds), with these parts:

- `title`, `ending` and `sign`: its name in sentences, the files' ending, a pattern that each of them matches.
- `source`: where the names of the settings come from, and when that was looked at.
- `rows`: by section and fact (or facts, separated by blanks). The value of `setting` is the fact, or one of
  `words` for it; `write` has the settings of each value of the fact, and `read` further combinations; `by`
  names the functions of the framework's module that compute a row (`read_NAME`, and `write_NAME` where the
  fact is not the value of the first setting). `always` holds facts that no setting changes.
- `why`: facts that cannot always be expressed, and why.
- `fixed`: further settings that are written because the program requires them.
- `unread`: settings that no row reads, by their effect.

Where a framework has several formats, a row with `only`, and texts by format, belong to one of them.
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
from traincast.launch.settings import (
    Settings,
    dotted,
    is_off,
    not_allowed,
    same_value,
    value_text,
    whole_number,
)
from traincast.launch.unread_settings import UnreadEffect, UnreadRules

ANY: Final = "*"  # a required value of a setting: any that is not off
Values: TypeAlias = Mapping[str, Any]  # of settings, by name


@dataclass(frozen=True)
class ValueRow:
    """Row of a setting whose value, a whole number, is the fact itself."""

    fact: str
    setting: str
    older: tuple[str, ...] = ()  # other or former names, which are read as well
    default: int | None = None  # of the framework
    always: bool = False  # written even at the default
    needs: str = ""  # a setting without which it has no effect
    least: int = 1  # smallest valid number
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
            value = settings[name]
            number = value_text(value) if isinstance(value, list | tuple) else value  # several are refused
            return {self.fact: whole_number(name, number, self.least)}
        return {} if self.default is None else {self.fact: self.default}


@dataclass(frozen=True)
class ChoiceRow:
    """Row of a fact with a few values, each of which is a combination of settings.

    Values besides these and `others`, which mean the default, are refused; ignored where `others` is None.
    """

    fact: str
    written: tuple[tuple[Any, Values], ...]  # settings of every value that can be written
    understood: tuple[
        tuple[Any, Values], ...
    ] = ()  # further combinations, which are read before those written
    others: tuple[str, ...] | None = None
    needs: str = ""  # a setting without which nothing is read
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
        """Return the first value whose settings match, most settings first; refuse unknown values."""
        if self.needs and not settings.is_on(self.needs):
            return {}
        rows = (*self.understood, *self.written)
        for name in self.settings if self.others is not None else ():
            value = settings.get(name)
            wanted_values = (
                values[name] for _, values in (*self.written, *self.understood) if name in values
            )
            allowed = dict.fromkeys((*wanted_values, *(self.others or ())))
            absent = is_off(value) and value != "auto"
            if not absent and not any(_matches(value, wanted) for wanted in allowed):
                raise not_allowed(name, value, allowed)
        for fact, values in sorted(rows, key=lambda row: -len(row[1])):
            if all(_matches(settings.get(name), wanted) for name, wanted in values.items()):
                return {self.fact: fact}
        return {}


@dataclass(frozen=True)
class ComputedRow:
    """Row of facts and settings that functions compute from each other; `note` is for the documentation."""

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
    return value is not None and same_value(value, wanted)


@dataclass(frozen=True)
class Table:
    """Settings of a format; the module's description says what its parts are."""

    title: str
    ending: str
    sign: str
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
        for row in (row for rows in self.rows.values() for row in rows):
            facts |= errors.catch(row.read, settings) or {}
        return facts


def load_table(name: str, conversions: ModuleType, form: str) -> Table:
    """Read a table of the package for a format; `conversions` has the functions of its computed rows."""

    def of_format(text: str | Mapping[str, str]) -> Any:
        return text.get(form) if isinstance(text, Mapping) else text

    def rows_of(section: Mapping[str, Any]) -> Iterator[Row]:
        for facts, specs in section.items():
            for spec in specs if isinstance(specs, list) else [specs]:
                values = {key: value for key, value in spec.items() if key not in ("only", "by")}
                if spec.get("only", form) == form:
                    yield _row(facts, values, of_format(spec.get("by")), conversions)

    document = load_document(name)
    sections = {section: tuple(rows_of(rows)) for section, rows in document["rows"].items()}
    unread, harmless = document["unread"], document["unread"]["harmless"]
    return Table(
        **{key: of_format(document[key]) for key in ("title", "ending", "sign", "source")},
        rows={section: rows for section, rows in sections.items() if rows},
        why={fact: of_format(why) for fact, why in document["why"].items() if of_format(why)},
        fixed=dotted(document.get("fixed", {})),
        unread=UnreadRules(
            tuple(map(_effect, unread["matter"])),
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


def _effect(spec: Mapping[str, str]) -> UnreadEffect:
    """Return an effect of settings that no row reads, of its specification."""
    lists = {key: tuple(spec[key].split()) for key in ("settings", "neutral", "at") if key in spec}
    return UnreadEffect(**{**spec, **lists})  # type: ignore[arg-type]


def _row(facts: str, spec: Mapping[str, Any], by: str | None, conversions: ModuleType) -> Row:
    """Return a row of its specification, `by` functions with this name where it is computed."""
    source = spec.get("source", "")
    if facts == "always":
        return ComputedRow(tuple(spec), (), _nothing, lambda _: dict(spec), "always")
    if spec.keys() & {"words", "write", "read"}:
        return _choice_row(facts, spec, source)
    if "settings" not in spec:
        return ValueRow(facts, **{**spec, "older": tuple(spec.get("older", "").split()), "source": source})
    names, settings = tuple(facts.split()), tuple(spec["settings"].split())

    def write_first(facts: Facts) -> Values:
        return {settings[0]: facts[names[0]]} if by and names[0] in facts else {}

    write, read = (getattr(conversions, f"{verb}_{by}", None) for verb in ("write", "read"))
    if by and not write and not read:
        raise AttributeError(f"{conversions.__name__} has no read_{by} or write_{by}")
    return ComputedRow(names, settings, write or write_first, read or _nothing, spec.get("note", ""), source)


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
        spec.get("needs", ""),
        source,
    )


def _fact_value(text: str) -> Any:
    """Return the value of a fact that is a key: true or false, a number, words with commas, or a word."""
    if text in ("true", "false"):
        return text == "true"
    if "," in text:
        return tuple(filter(None, text.split(",")))
    return int(text) if text.isdecimal() else text


def _nothing(_: Any) -> dict[str, Any]:
    """Return no facts, or no settings."""
    return {}
