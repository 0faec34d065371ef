"""Readers and writers of TOML, YAML and JSON: settings have dotted names."""

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Final, NamedTuple

from traincast.catalog import parse_document
from traincast.core import InputError
from traincast.launch.settings.settings import Settings, flatten, nested
from traincast.launch.settings.table import Values

COMMENT_WIDTH: Final = 76


class TextFormat(NamedTuple):
    """Functions between text and settings; the writer is given comment lines for the top as well."""

    read: Callable[[str], Settings]
    write: Callable[[Values, Iterable[str]], str]


def comments(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as comments, long ones wrapped."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        for part in wrap(line, COMMENT_WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  "):
            yield f"# {part}"


def _scalar(value: object) -> str:
    """Write a value, which is the same in TOML and YAML."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _toml_lines(table: Mapping[str, object], title: str = "") -> Iterator[str]:
    """Yield the lines of a table, its own values first, and of those below it."""
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    if plain:
        yield from ("", f"[{title}]", *(f"{name} = {_scalar(value)}" for name, value in plain.items()))
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _toml_lines(value, f"{title}.{name}" if title else name)


def _yaml_lines(document: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _yaml_lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _read_toml(text: str) -> Settings:
    """Read settings from TOML; raise an `InputError` if it is malformed."""
    try:
        return flatten(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError("TOML", [f"malformed TOML: {error}"]) from None


TEXT_FORMATS: Final = {  # by ending
    ".toml": TextFormat(
        _read_toml,
        lambda settings, head: "\n".join((*comments(head), *_toml_lines(nested(settings)))) + "\n",
    ),
    ".yaml": TextFormat(
        lambda text: flatten(parse_document(text, "yaml", repeated=True)),
        lambda settings, head: "\n".join((*comments(head), *_yaml_lines(nested(settings)))) + "\n",
    ),
    ".json": TextFormat(  # has no comments
        lambda text: flatten(parse_document(text, "json")),
        lambda settings, head: json.dumps(nested(settings), indent=2) + "\n",
    ),
}
