"""Text files into mappings; each way a file can be unreadable becomes one sentence."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from traincast.core.errors import InputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def read(file: "Path | Traversable") -> dict[str, Any]:
    """Read a YAML 1.2 or JSON file (told apart by the ending ``.json``) whose top level is a mapping.

    Parameters
    ----------
    file : Path or Traversable
        The file.

    Returns
    -------
    dict
        Its content, unchecked.

    Raises
    ------
    InputError
        If it is missing, unreadable, no UTF-8, empty, malformed (with line and column) or no mapping.
    """
    try:
        content = _parse(_text(file), _json if file.name.lower().endswith(".json") else _yaml)
    except ValueError as error:
        raise InputError(str(file), [str(error)]) from None
    if content is None:
        raise InputError(str(file), ["the file is empty"])
    if not isinstance(content, dict):
        raise InputError(str(file), ["the top level is not a mapping; write one 'key: value' per line"])
    return content


def parsed(text: str, kind: Literal["json", "yaml"]) -> dict[str, Any]:
    """Content of a text whose top level is a mapping, unchecked.

    Raises
    ------
    InputError
        If it is malformed (with line and column) or no mapping.
    """
    try:
        content = _parse(text, _json if kind == "json" else _yaml)
    except ValueError as error:
        raise InputError(kind.upper(), [str(error)]) from None
    if not isinstance(content, dict):
        raise InputError(kind.upper(), ["the top level is not a mapping"])
    return content


@cache
def catalogue(folder: Literal["models", "systems", "accelerators", "stacks"]) -> "dict[str, Traversable]":
    """Files of a folder of the catalogue by name, in alphabetical order."""
    from importlib.resources import files

    entries = files("traincast").joinpath("catalog", folder).iterdir()
    return dict(sorted((entry.name.removesuffix(".yaml"), entry) for entry in entries if entry.name.endswith(".yaml")))


def known(folder: Literal["models", "systems", "accelerators", "stacks"], name: str) -> dict[str, Any] | None:
    """Content of a file of the catalogue, the caller's own copy; None where there is none of that name."""
    return deepcopy(_known(folder, name)) if name in catalogue(folder) else None


@cache
def _known(folder: Literal["models", "systems", "accelerators", "stacks"], name: str) -> dict[str, Any]:
    """Content of a file of the catalogue, read once."""
    return read(catalogue(folder)[name])


@cache
def listed(folder: Literal["models", "systems"], key: str) -> dict[str, tuple[Any, ...]]:
    """What each file of the catalogue says on the line of a key, a name or a list, the rest unread; empty where nothing."""
    found = {}
    for name, file in catalogue(folder).items():
        line = next((line for line in _text(file).splitlines() if line.startswith(f"{key}:")), "")
        value = (_yaml(line) or {}).get(key) if line else None
        found[name] = (value,) if isinstance(value, str) else tuple(value or ())
    return found


def raw(file: "Path | Traversable") -> bytes:
    """Content of a file.

    Raises
    ------
    ValueError
        With the reason, if it cannot be read.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except IsADirectoryError:
        raise ValueError("is a directory; give a file") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _text(file: "Path | Traversable") -> str:
    """The text of a file."""
    try:
        return raw(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text (byte {error.object[error.start]:#04x} at offset {error.start})") from None


def _parse(text: str, parser: Any) -> Any:
    """Content of a text, None if it holds nothing."""
    try:
        return parser(text) if text.strip() else None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _json(text: str) -> Any:
    """Content of a JSON text."""
    import json

    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: malformed JSON: {error.msg}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of pairs, none of whose keys is repeated."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"malformed JSON: found duplicate key {repeated!r}")
    return content


def _yaml(text: str) -> Any:
    """Content of a YAML text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}malformed YAML: {error.problem or error.context}") from None
    except YAMLError as error:
        raise ValueError(f"malformed YAML: {str(error).splitlines()[0]}") from None
    except (AttributeError, LookupError, TypeError, ValueError):  # how the parser fails on a value its tag does not allow
        raise ValueError("malformed YAML: a value does not suit its tag or type") from None
