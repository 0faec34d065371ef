"""Readers and writers of TOML, YAML and JSON: settings have dotted names."""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any, Final

from traincast.catalog.documents import parsed
from traincast.core.errors import InputError
from traincast.launch.settings import Settings, dotted, nested
from traincast.launch.table import Values

COMMENT_WIDTH: Final = 76


def comments(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as comments, long ones wrapped."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        for part in wrap(line, COMMENT_WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  "):
            yield f"# {part}"


def write_toml(settings: Values, head: Iterable[str]) -> str:
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


def write_yaml(settings: Values, head: Iterable[str]) -> str:
    """Write YAML: a mapping for each section."""
    return "\n".join((*comments(head), *_yaml_lines(nested(settings)))) + "\n"


def _yaml_lines(document: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _yaml_lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def write_json(settings: Values, head: Iterable[str]) -> str:
    """Write JSON, which has no comments."""
    return json.dumps(nested(settings), indent=2) + "\n"


def read_toml(text: str) -> Settings:
    """Read settings from TOML; raise an `InputError` if it is malformed."""
    try:
        return dotted(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError("TOML", [f"malformed TOML: {error}"]) from None


def read_yaml(text: str) -> Settings:
    """Read settings from YAML."""
    return dotted(parsed(text, "yaml"))


def read_json(text: str) -> Settings:
    """Read settings from JSON."""
    return dotted(parsed(text, "json"))
