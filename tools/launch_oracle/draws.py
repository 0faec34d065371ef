"""Random settings of a launch format: names are those that rows of its table read."""

import random
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TABLES = Path(__file__).parents[2] / "src/traincast/launch/tables"
SHARES = (0.1, 0.6)  # of the settings that a file states, at least and at most
Values = Mapping[str, Sequence[Any]]


class Case(NamedTuple):
    """A file that was drawn, and what is given beside it: `gpus`, `model`."""

    text: str
    given: Mapping[str, Any]


def names_read(table: str, form: str, facts: Container[str] = ()) -> list[str]:
    """Return the names of the settings that rows of a table read for a format; those of some facts."""
    document = tomllib.loads((TABLES / f"{table}.toml").read_text(encoding="utf-8"))
    rows = (
        row
        for section in document["rows"].values()
        for fact, row in _rows(section)
        if not facts or fact in facts
    )
    found = (name for row in rows if row.get("only", form) == form for name in _names(row))
    return list(dict.fromkeys(found))


def _rows(section: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the facts and rows of a section, without those of facts that no setting changes."""
    for fact, specs in section.items():
        if fact != "always":
            yield from ((fact, spec) for spec in (specs if isinstance(specs, list) else [specs]))


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the settings of a row."""
    for key in ("setting", "settings", "older"):
        yield from str(row.get(key, "")).split()
    written = row.get("write", ())
    pairs = [*(written.items() if isinstance(written, Mapping) else written), *row.get("read", ())]
    for _, settings in pairs:
        yield from _dotted(settings)


def _dotted(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of settings in sections, dotted."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def choose(values: Values, chance: random.Random) -> dict[str, Any]:
    """Return random values of some settings, by name."""
    share = chance.uniform(*SHARES)
    return {name: chance.choice(of) for name, of in values.items() if of and chance.random() < share}


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by section, of dotted names."""
    document: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, last = name.split(".")
        inner = document
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return document


def values_of(action: Any, numbers: Sequence[int] = (1, 2, 4, 8)) -> Sequence[Any]:
    """Return the values that are drawn for an argument of a parser: its choices, a switch, or numbers."""
    if action.choices is not None:
        return [getattr(choice, "value", choice) for choice in action.choices if choice is not None]
    if action.nargs == 0 or getattr(action.type, "__name__", "") in ("string_to_bool", "bool", "str_to_bool"):
        return (True, False)
    return numbers if action.type is int else ()


def values_by_name(
    names: Iterable[str],
    actions: Mapping[str, Any],
    words: Values,
    own: Mapping[str, str],
    left_out: Container[str],
) -> dict[str, Sequence[Any]]:
    """Return the values of the settings that are arguments of a parser, by its own names.

    `words` are values in place of those of the parser; `left_out` are not drawn.
    """
    found = {}
    for common in names:
        name = own.get(common, common)
        if name in actions and name not in left_out:
            found[name] = words[name] if name in words else values_of(actions[name])
    return found
