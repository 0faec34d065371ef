"""Settings of a run, from dumps in logs and from configuration files."""

import json
import re
import tomllib
from ast import literal_eval
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from traincast.accuracy.logs.text import content
from traincast.catalog import read_document
from traincast.core import InputError

SECTIONS_FIRST: Final = (  # sections whose settings go before those of the same name elsewhere
    "model",
    "train",
    "trainer",
    "ddp",
    "mixed_precision",
    "optim",
    "optimizer",
    "data",
    "dataset",
)
_DOTTED: Final = re.compile(r"(?:^|print\])\s*([A-Za-z_]\w*)(?: \.{2,} |  )(\S.*?)\s*$")
_PAIR: Final = re.compile(r"^[\s>│|]*\"?([A-Za-z_]\w*)\"?\s*[:=]\s*(\S.*?)[\s,│]*$")
_OPENS: Final = re.compile(r"^\s*([A-Za-z_]\w*):\s*$")  # in YAML: a key whose value is on the lines below
_ITEM: Final = re.compile(r"^\s*- (\w+)\s*$")
_OPEN_VALUES: Final = ("none", "null", "", "auto", "~")


def settings_in_lines(lines: Iterable[str]) -> dict[str, str]:
    """Return settings that a log lists line by line; the first that is set counts.

    Forms are ``name ..... value``, ``name: value`` and ``name = value``; in YAML also a name with items, or
    with the target of a function, on the lines below.
    """
    settings: dict[str, str] = {}
    opened = ""
    items = list[str]()
    for line in lines:
        if items and not _ITEM.match(line):
            settings.setdefault(opened, str(items))
        if item := _ITEM.match(line):
            items = [*items, item[1]] if opened else items
            continue
        if opening := _OPENS.match(line):
            opened = opening[1]
            items = []
            continue
        match = _DOTTED.search(line) or _PAIR.match(line)
        if match and not is_open(match[2]):
            name = opened if match[1] == "_target_" and opened else match[1]
            settings.setdefault(name, match[2].strip("\"'"))
        opened = opened if match and match[1].startswith("_") else ""
        items = []
    return settings


def is_open(value: object) -> bool:
    """Return whether a setting is left open."""
    return value is None or (isinstance(value, str) and value.strip("\"' ").lower() in _OPEN_VALUES)


def section(settings: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return a section of nested settings, empty without."""
    value = settings.get(name)
    return value if isinstance(value, Mapping) else {}


def block(lines: list[str], opens: str) -> dict[str, object]:
    """Return the mapping, JSON or Python, that a log prints after the pattern `opens`; empty if cut off."""
    for index, line in enumerate(lines):
        match = re.search(opens + r"\s*(?=\{)", line)
        if match is None:
            continue
        text = []
        depth = 0
        for piece in [line[match.end() :], *lines[index + 1 :]]:
            text.append(piece)
            depth += piece.count("{") - piece.count("}")
            if depth <= 0:
                return parse_mapping("\n".join(text).rpartition("}")[0] + "}")
        return {}
    return {}


def parse_mapping(text: str) -> dict[str, object]:
    """Return a mapping from JSON or a Python literal, empty if the text is neither."""
    for parser in (json.loads, literal_eval):
        try:
            value = parser(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def config_file(path: str | Path) -> dict[str, object]:
    """Read a configuration file: TOML, JSON or YAML, by its suffix."""
    path = Path(path)
    if path.suffix.lower() != ".toml":
        return read_document(path)
    try:
        return tomllib.loads(content(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), [f"malformed TOML: {error}"]) from None


def flat(nested: Mapping[str, object]) -> dict[str, object]:
    """Return settings by their last name, `SECTIONS_FIRST` before others; open ones are left out."""
    settings: dict[str, object] = {}
    for name in sorted(nested, key=lambda name: (*SECTIONS_FIRST, name).index(name)):
        value = nested[name]
        for setting, entry in (flat(value) if isinstance(value, Mapping) else {str(name): value}).items():
            if not is_open(entry):
                settings.setdefault(setting, entry)
    return settings
