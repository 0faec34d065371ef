"""Settings of a run: as logs dump them, and as configuration files hold them."""

import json
import re
import tomllib
from ast import literal_eval
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from traincast.accuracy.logs.text import content
from traincast.catalog import documents
from traincast.core.errors import InputError

# Sections of a configuration whose settings go before those of the same name elsewhere.
FIRST: Final = ("model", "train", "trainer", "ddp", "mixed_precision", "optim", "optimizer", "data", "dataset")
_DOTTED: Final = re.compile(r"(?:^|print\])\s*([A-Za-z_]\w*)(?: \.{2,} |  )(\S.*?)\s*$")
_PAIR: Final = re.compile(r"^[\s>│|]*\"?([A-Za-z_]\w*)\"?\s*[:=]\s*(\S.*?)[\s,│]*$")
_OPENS: Final = re.compile(r"^\s*([A-Za-z_]\w*):\s*$")  # in YAML, of what stands on the lines below
_ITEM: Final = re.compile(r"^\s*- (\w+)\s*$")


def listed(lines: Iterable[str]) -> dict[str, str]:
    """Settings that a log lists line by line, the first that says something.

    They are written ``name ..... value``, ``name: value`` or ``name = value``; or, in YAML, as a name with items, or what stands
    for a function, on the lines below.

    Parameters
    ----------
    lines : iterable of str
        Lines of the log.
    """
    found: dict[str, str] = {}
    opened, items = "", list[str]()
    for line in lines:
        if items and not _ITEM.match(line):
            found.setdefault(opened, str(items))
        if item := _ITEM.match(line):
            items = [*items, item[1]] if opened else items
            continue
        if begins := _OPENS.match(line):
            opened, items = begins[1], []
            continue
        match = _DOTTED.search(line) or _PAIR.match(line)
        if match and not nothing(match[2]):
            found.setdefault(opened if match[1] == "_target_" and opened else match[1], match[2].strip("\"'"))
        opened, items = opened if match and match[1].startswith("_") else "", []
    return found


def nothing(value: Any) -> bool:
    """Whether a setting is left open."""
    return value is None or (isinstance(value, str) and value.strip("\"' ").lower() in ("none", "null", "", "auto", "~"))


def block(lines: list[str], opens: str) -> dict[str, Any]:
    """The mapping that a log prints, as JSON or as Python writes it, on the lines from the first that ends what `opens` matches.

    Parameters
    ----------
    lines : list of str
        Lines of the log.
    opens : str
        Pattern of what stands before the opening brace.

    Returns
    -------
    dict
        The mapping, empty if there is none or it is cut off.
    """
    for at, line in enumerate(lines):
        match = re.search(opens + r"\s*(?=\{)", line)
        if match is None:
            continue
        text, depth = [], 0
        for piece in [line[match.end() :], *lines[at + 1 :]]:
            text.append(piece)
            depth += piece.count("{") - piece.count("}")
            if depth <= 0:
                return _mapping("\n".join(text).rpartition("}")[0] + "}")
        return {}
    return {}


def _mapping(text: str) -> dict[str, Any]:
    """A mapping as JSON or as Python writes it, empty if it is neither."""
    for parser in (json.loads, literal_eval):
        try:
            found = parser(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def config_file(path: str | Path) -> dict[str, Any]:
    """Content of a configuration file: TOML, JSON or YAML, told apart by the ending.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    path = Path(path)
    if path.suffix.lower() != ".toml":
        return documents.read(path)
    try:
        return tomllib.loads(content(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), [f"malformed TOML: {error}"]) from None


def flat(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their last name, those of the sections in `FIRST` before others; what is left open is not there.

    Parameters
    ----------
    nested : mapping of str to Any
        Sections and settings.
    """
    found: dict[str, Any] = {}
    for name in sorted(nested, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        value = nested[name]
        for inner, one in (flat(value) if isinstance(value, Mapping) else {str(name): value}).items():
            if not nothing(one):
                found.setdefault(inner, one)
    return found
