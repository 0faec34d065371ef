"""Tables of formats: rows that convert between facts and settings of a framework, in both directions.

A table is a TOML file in `tables` (the standard library reads them in milliseconds), with these parts:

- `title`, `ending` and `sign`: its name in sentences, the files' ending, a pattern that each of them matches.
- `source`: where the names of the settings come from, and when that was looked at.
- `rows`: by section and fact (or facts, separated by blanks). The value of `setting` is the fact, or one of
  `words` for it; `write` has the settings of each value of the fact, and `read` further combinations; `by`
  names the functions that compute a row, in `CONVERSIONS` of the framework's module: one reads it, and one
  writes it where the row has no `write`; without that one fact is the value of the first setting, and several
  are not written.
  With an empty `write` a row is only read.
  `always` holds facts that no setting changes.
- `why`: facts that cannot always be expressed, and why.
- `left`: settings of a model that no prediction depends on, so that the file leaves them at the framework's
  defaults: those of models with a `fact`, or with one `value` of it.
- `fixed`: further settings that are written because the program requires them.
- `unread`: settings that no row reads, by their effect.
- `programs`: what differs between programs that share the table: fields of a class of the module.

Where a framework has several formats, a row with `only`, and texts by format, belong to one of them.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.settings import (
    Settings,
    flatten,
    is_off,
    not_allowed,
    same_value,
    value_text,
    whole_number,
)

ANY: Final = "*"  # a required value of a setting: any that is not off
Values: TypeAlias = Mapping[str, Any]  # of settings, by name


@dataclass(frozen=True, kw_only=True)
class _Row:
    """What rows of all kinds have."""

    facts: tuple[str, ...]
    settings: tuple[str, ...]  # that it reads
    needs: str = ""  # a setting without which nothing is read
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class ValueRow(_Row):
    """Row of a setting, by its present and other names, whose value, a whole number, is the fact itself."""

    default: int | None = None  # of the framework
    always: bool = False  # written even at the default
    least: int = 1  # smallest valid number

    def write(self, facts: Facts) -> Values:
        """Return the setting of facts; none where the fact is missing or the default."""
        value = facts.get(self.facts[0])
        return (
            {} if value is None or (value == self.default and not self.always) else {self.settings[0]: value}
        )

    def read(self, settings: Settings) -> Facts:
        """Return the fact of settings."""
        for name in filter(settings.is_on, self.settings):
            value = settings[name]
            number = value_text(value) if isinstance(value, list | tuple) else value  # several are refused
            return as_facts({self.facts[0]: whole_number(name, number, self.least)})
        return {} if self.default is None else as_facts({self.facts[0]: self.default})


@dataclass(frozen=True, kw_only=True)
class ChoiceRow(_Row):
    """Row of a fact with a few values, each of which is a combination of settings.

    Values besides these and `others`, which mean the default, are refused; ignored where `others` is None.
    """

    written: tuple[tuple[Any, Values], ...]  # settings of every value that can be written
    understood: tuple[tuple[object, Values], ...]  # further combinations, which are read before those written
    others: tuple[str, ...] | None

    def write(self, facts: Facts) -> Values:
        """Return the settings of the fact's value."""
        value = facts.get(self.facts[0])
        return next((values for written, values in self.written if written == value), {})

    def read(self, settings: Settings) -> Facts:
        """Return the first value whose settings match, most settings first; refuse unknown values."""
        for name in self.settings if self.others is not None else ():
            known = (values.get(name) for _, values in (*self.written, *self.understood) if name in values)
            allowed = dict.fromkeys((*known, *(self.others or ())))
            value = settings.get(name)
            absent = is_off(value) and value != "auto"
            if not absent and not any(matches(value, wanted) for wanted in allowed):
                raise not_allowed(name, value, allowed)
        for fact, values in sorted((*self.understood, *self.written), key=lambda case: -len(case[1])):
            if all(matches(settings.get(name), wanted) for name, wanted in values.items()):
                return as_facts({self.facts[0]: fact})
        return {}


@dataclass(frozen=True, kw_only=True)
class ComputedRow(_Row):
    """Row of facts and settings that functions compute from each other; `note` is for the documentation."""

    write: Callable[[Facts], Values] = lambda _: {}
    read: Callable[[Settings], Facts] = lambda _: {}
    note: str = field(default="", compare=False)


Row: TypeAlias = ValueRow | ChoiceRow | ComputedRow


@dataclass(frozen=True, kw_only=True)
class Conversions:
    """Functions that compute rows of a framework, by the names that its table has for them under `by`."""

    read: Mapping[str, Callable[[Settings], Facts]] = field(default_factory=dict)
    write: Mapping[str, Callable[[Facts], Values]] = field(default_factory=dict)


def matches(value: object, wanted: object) -> bool:
    """Return whether a value is the wanted one, however it is spelled."""
    if wanted == ANY:
        return not is_off(value)
    if isinstance(wanted, bool):
        return (not is_off(value)) == wanted
    return value is not None and same_value(value, wanted)


@cache
def load_document(name: str) -> dict[str, Any]:
    """Return the content of a file of the tables."""
    file = files("traincast").joinpath("launch", "tables", f"{name}.toml")
    document: dict[str, object] = _tidy(tomllib.loads(file.read_text(encoding="utf-8")))
    return document


def _tidy(value: object) -> Any:
    """Return content whose texts have single blanks: long ones have several lines in the file."""
    if isinstance(value, Mapping):
        return {key: _tidy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def of_format(value: object, form: str) -> Any:
    """Return a value of a table, that of a format where it is given by format."""
    return value.get(form) if isinstance(value, Mapping) else value


def rows_of(section: Mapping[str, Any], form: str, conversions: Conversions) -> Iterator[Row]:
    """Yield the rows of a section for a format; `conversions` has the functions of its computed rows."""
    for fact, specs in section.items():
        for spec in specs if isinstance(specs, list) else [specs]:
            if spec.get("only", form) == form:
                values = {key: value for key, value in spec.items() if key != "only"}
                yield _row(fact, values, conversions)


def setting_names(table: str, fact: str) -> tuple[str, ...]:
    """Return the names that a table has for the settings of one fact, the present one first."""
    for section in load_document(table)["rows"].values():
        specs = section.get(fact, [])
        for spec in specs if isinstance(specs, list) else [specs]:
            return _setting_names(spec)
    return ()


def _setting_names(spec: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of settings in the specification of a row."""
    return tuple(spec.get("settings", "").split()) or (spec["setting"], *spec.get("older", "").split())


def _row(fact: str, spec: Mapping[str, Any], conversions: Conversions) -> Row:
    """Return a row of its specification."""
    if fact == "always":
        return ComputedRow(facts=tuple(spec), settings=(), read=lambda _: as_facts(dict(spec)), note="always")
    facts = tuple(fact.split())
    names = tuple(spec.get("settings", "").split())
    further = {key: spec[key] for key in ("needs", "source") if key in spec}
    by = spec.get("by")
    if by is not None and by not in {*conversions.read, *conversions.write}:
        raise KeyError(f"a row of {fact} is computed by {by!r}, which CONVERSIONS lacks")
    if spec.keys() & {"words", "write", "read"}:
        choice = _choice_row(facts, spec, further)
        if by is None:
            return choice
        return ComputedRow(
            facts=facts,
            settings=names or choice.settings,
            read=conversions.read.get(by, choice.read),
            write=conversions.write.get(by, choice.write),
            note=spec.get("note", ""),
            **further,
        )
    if not names:
        names = _setting_names(spec)
        values = {key: spec[key] for key in ("default", "always", "least") if key in spec}
        return ValueRow(facts=facts, settings=names, **values, **further)

    def read_nothing(_: Settings) -> Facts:
        return {}

    def write_first(known: Facts) -> Values:
        is_written = by is not None and len(facts) == 1 and facts[0] in known
        return {names[0]: known.get(facts[0])} if is_written else {}

    return ComputedRow(
        facts=facts,
        settings=names,
        read=conversions.read.get(by or "", read_nothing),
        write=conversions.write.get(by or "", write_first),
        note=spec.get("note", ""),
        **further,
    )


def _choice_row(facts: tuple[str, ...], spec: Mapping[str, Any], further: Mapping[str, str]) -> ChoiceRow:
    """Return a row of a fact with a few values."""
    words = {value: {spec["setting"]: word} for value, word in spec.get("words", {}).items()}
    pairs = words or spec.get("write", {})
    pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
    written = tuple((_fact_value(value), flatten(values)) for value, values in pairs)
    read = [*spec.get("read", ()), *([(spec["default"], {})] if "default" in spec else ())]
    understood = tuple((value, flatten(values)) for value, values in read)
    settings = tuple(dict.fromkeys(name for _, values in (*written, *understood) for name in values))
    others = tuple(spec.get("others", "").split()) or (() if spec.get("strict") else None)
    return ChoiceRow(
        facts=facts, settings=settings, written=written, understood=understood, others=others, **further
    )


def _fact_value(text: str) -> object:
    """Return the value of a fact that is a key: true or false, a number, words with commas, or a word."""
    if text in ("true", "false"):
        return text == "true"
    if "," in text:
        return tuple(filter(None, text.split(",")))
    return int(text) if text.isdecimal() else text
