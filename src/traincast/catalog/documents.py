"""Reading of YAML and JSON files, with one clear sentence for each way a file can be unreadable."""

from collections import Counter
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from traincast.core import InputError, printable

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MAX_YAML_BYTES: Final = 1 << 20  # many times the largest of the catalogue; six seconds to parse
MAX_JSON_BYTES: Final = 1 << 25  # configurations list the names of thousands of classes
MAX_TABLE_BYTES: Final = 1 << 25  # a hundred thousand rows
MAX_BYTES: Final = 1 << 29  # of a log or a profile
# Of lists and mappings within others in YAML, many times that of the catalogue: the work of the scanner of
# ruamel.yaml 0.19.1 grows with the square of it.
MAX_DEPTH: Final = 32
Folder: TypeAlias = Literal["models", "systems", "accelerators", "stacks"]


def read_document(file: "Path | Traversable") -> dict[str, Any]:
    """Read a YAML 1.2 file, or a JSON file (ending ``.json``), whose top level is a mapping; unchecked.

    Raise `InputError` if it is missing, not UTF-8, empty, malformed (with line and column) or no mapping.
    """
    is_json = file.name.lower().endswith(".json")
    try:
        content = _parse(
            read_text(file, MAX_JSON_BYTES if is_json else MAX_YAML_BYTES), _json if is_json else _yaml
        )
        _refuse_unusable(content)
    except ValueError as error:
        raise InputError(str(file), [str(error)]) from None
    if content is None:
        raise InputError(str(file), ["the file is empty"])
    if not isinstance(content, dict):
        raise InputError(str(file), ["the top level is not a mapping; write one 'key: value' per line"])
    return content


def parse_document(text: str, kind: Literal["json", "yaml"], repeated: bool = False) -> dict[str, Any]:
    """Parse a YAML or JSON text whose top level is a mapping.

    The last of keys that are `repeated` in YAML counts, as in PyYAML; else they are refused.
    """
    try:
        content = _parse(text, _json if kind == "json" else partial(_yaml, repeated=repeated))
    except ValueError as error:
        raise InputError(kind.upper(), [str(error)]) from None
    if not isinstance(content, dict):
        raise InputError(kind.upper(), ["the top level is not a mapping"])
    return content


@cache
def catalogue(folder: Folder) -> dict[str, Path]:
    """List the files of a folder of the catalogue by name, in alphabetical order."""
    entries = {entry.name: entry for entry in Path(__file__).with_name(folder).iterdir()}
    names = sorted(name.removesuffix(".yaml") for name in entries if name.endswith(".yaml"))
    return {name: entries[f"{name}.yaml"] for name in names}


def catalogue_entry(folder: Folder, name: str) -> dict[str, Any] | None:
    """Return a copy of the content of a file of the catalogue; None if there is no file of that name."""
    return deepcopy(_read_entry(folder, name)) if name in catalogue(folder) else None


@cache
def _read_entry(folder: Folder, name: str) -> dict[str, object]:
    """Read a file of the catalogue, only once."""
    return read_document(catalogue(folder)[name])


@cache
def values_of_key(folder: Folder, key: str) -> dict[str, tuple[Any, ...]]:
    """Read the value of one top-level key, a name or a list on one line, of each file; no more is parsed.

    Empty for files without the key.
    """
    values = {}
    for name, file in catalogue(folder).items():
        line = next((line for line in read_text(file).splitlines() if line.startswith(f"{key}:")), "")
        value = (_yaml(line) or {}).get(key) if line else None
        values[name] = (value,) if isinstance(value, str) else tuple(value or ())
    return values


def read_bytes(file: "Path | Traversable", limit: int = MAX_BYTES) -> bytes:
    """Read the bytes of a file; raise ValueError with the reason if that cannot be done, or above a limit."""
    try:
        with file.open("rb") as opened:  # devices have no size: read up to the limit
            data: bytes = opened.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"is larger than {limit:,} bytes, which no file of its kind is")
        return data
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except IsADirectoryError:
        raise ValueError("is a directory; give a file") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror or error})") from None


def read_text(file: "Path | Traversable", limit: int = MAX_YAML_BYTES) -> str:
    """Read the text of a file as `read_bytes` reads its bytes; ValueError also where it is not UTF-8."""
    try:
        return read_bytes(file, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"is not UTF-8 text (byte {error.object[error.start]:#04x} at offset {error.start})"
        ) from None


def _parse(text: str, parser: Any) -> Any:
    """Parse a text; None if it is blank."""
    try:
        return parser(text) if text.strip() else None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _refuse_unusable(
    content: object, place: str = "", above: tuple[int, ...] = (), seen: set[int] | None = None
) -> None:
    """Raise ValueError for control characters, which a terminal would act upon, and for YAML in itself.

    What aliases repeat is looked at once.
    """
    if isinstance(content, str) and printable(content) != content:
        raise ValueError(f"{place or 'a key'} = {printable(content)[:80]!r}: has control characters")
    seen = set() if seen is None else seen
    if not isinstance(content, dict | list) or id(content) in seen:
        return
    if id(content) in above:
        raise ValueError(f"{place}: contains itself")
    above = (*above, id(content))
    if isinstance(content, dict):
        for key, value in content.items():
            _refuse_unusable(key)
            _refuse_unusable(value, f"{place}.{key}" if place else str(key), above, seen)
    else:
        for value in content:
            _refuse_unusable(value, place, above, seen)
    seen.add(id(content))


def _json(text: str) -> object:
    """Parse a JSON text; refuse repeated keys."""
    import json

    def mapping(pairs: list[tuple[str, object]]) -> dict[str, object]:
        content = dict(pairs)
        if len(content) < len(pairs):
            repeated = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
            raise ValueError(f"malformed JSON: found duplicate key {repeated!r}")
        return content

    try:
        return json.loads(text, object_pairs_hook=mapping)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: malformed JSON: {error.msg}") from None


def _yaml(text: str, repeated: bool = False) -> Any:
    """Parse a YAML text; refuse repeated keys, unless the last of them counts."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    parser = YAML(typ="safe", pure=True)
    parser.composer.warn_double_anchors = False  # YAML 1.2 allows a name to be given again
    parser.Scanner = _shallow_scanner()
    if repeated:
        parser.constructor.check_mapping_key = lambda *_: True  # the later value replaces the earlier one
    try:
        return parser.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}malformed YAML: {error.problem or error.context}") from None
    except YAMLError as error:
        raise ValueError(f"malformed YAML: {str(error).splitlines()[0]}") from None
    except (AttributeError, LookupError, TypeError, ValueError):  # a tag that does not suit its value
        raise ValueError("malformed YAML: a value does not suit its tag or type") from None


@cache
def _shallow_scanner() -> type:
    """Return the scanner of ruamel.yaml, but that it raises RecursionError beyond `MAX_DEPTH`."""
    from ruamel.yaml.scanner import Scanner

    class ShallowScanner(Scanner):
        def fetch_flow_collection_start(self, TokenClass: type, to_push: str) -> None:
            if self.flow_level == MAX_DEPTH:
                raise RecursionError
            super().fetch_flow_collection_start(TokenClass, to_push)

    return ShallowScanner
