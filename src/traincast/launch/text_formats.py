"""Readers and writers of TOML, YAML and JSON: settings have dotted names."""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from traincast.catalog.documents import parsed
from traincast.core.errors import InputError
from traincast.launch.mapping import Settings, dotted
from traincast.launch.write_bash import comments


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings nested in their sections."""
    document: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, last = name.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = value
    return document


def toml(settings: Settings, head: Iterable[str]) -> str:
    """Write TOML: a table for each section."""
    lines = list(comments(head))
    for section, values in nested(settings).items():
        for title, table in _tables(section, values):
            lines += ["", f"[{title}]", *(f"{name} = {_scalar(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _tables(title: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a section and those below it."""
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    if plain:
        yield title, plain
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _tables(f"{title}.{name}", value)


def _scalar(value: Any) -> str:
    """Write a value, which is the same in TOML and YAML."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def yaml(settings: Settings, head: Iterable[str]) -> str:
    """Write YAML: a mapping for each section."""
    return "\n".join((*comments(head), *_yaml_lines(nested(settings)))) + "\n"


def _yaml_lines(document: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield the lines of a mapping."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield f"{'  ' * depth}{name}:"
            yield from _yaml_lines(value, depth + 1)
        else:
            yield f"{'  ' * depth}{name}: {_scalar(value)}"


def json_text(settings: Settings) -> str:
    """Write JSON, which has no comments."""
    return json.dumps(nested(settings), indent=2) + "\n"


def toml_settings(text: str) -> Settings:
    """Read settings from TOML.

    Raises
    ------
    InputError
        If it is malformed.
    """
    try:
        return dotted(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError("TOML", [f"malformed TOML: {error}"]) from None


def yaml_settings(text: str) -> Settings:
    """Read settings from YAML."""
    return dotted(parsed(text, "yaml"))


def json_settings(text: str) -> Settings:
    """Read settings from JSON."""
    return dotted(parsed(text, "json"))
