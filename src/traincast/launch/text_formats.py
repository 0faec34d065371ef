"""Settings by dotted names as TOML, YAML and JSON, and such texts as settings."""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from traincast.catalog.documents import parsed
from traincast.core.errors import InputError
from traincast.launch.mapping import Settings, dotted
from traincast.launch.write_bash import comments


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in their sections."""
    document: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, last = name.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = value
    return document


def toml(settings: Settings, head: Iterable[str]) -> str:
    """TOML: a table for each section."""
    lines = list(comments(head))
    for section, values in nested(settings).items():
        for title, table in _tables(section, values):
            lines += ["", f"[{title}]", *(f"{name} = {_scalar(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _tables(title: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A section and those below it."""
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    if plain:
        yield title, plain
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _tables(f"{title}.{name}", value)


def _scalar(value: Any) -> str:
    """A value in TOML or YAML, which write these alike."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def yaml(settings: Settings, head: Iterable[str]) -> str:
    """YAML: a mapping for each section."""
    return "\n".join((*comments(head), *_yaml_lines(nested(settings)))) + "\n"


def _yaml_lines(document: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Lines of a mapping."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield f"{'  ' * depth}{name}:"
            yield from _yaml_lines(value, depth + 1)
        else:
            yield f"{'  ' * depth}{name}: {_scalar(value)}"


def json_text(settings: Settings) -> str:
    """JSON, which has no comments."""
    return json.dumps(nested(settings), indent=2) + "\n"


def toml_settings(text: str) -> Settings:
    """Settings of TOML.

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
    """Settings of YAML."""
    return dotted(parsed(text, "yaml"))


def json_settings(text: str) -> Settings:
    """Settings of JSON."""
    return dotted(parsed(text, "json"))
