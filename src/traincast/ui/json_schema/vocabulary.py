"""Building blocks of the JSON Schemas of outputs; each takes a description for the reader."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
UNIT: Final = "x-unit"  # where a schema says the unit of a number


def number(about: str, unit: str = "") -> Schema:
    """Return the schema of a number, with or without a unit."""
    return {"type": "number", "description": about} | ({UNIT: unit} if unit else {})


def whole_number(about: str, unit: str = "") -> Schema:
    """Return the schema of a whole number."""
    return number(about, unit) | {"type": "integer"}


def text(about: str, *allowed: str) -> Schema:
    """Return the schema of free text, or of one of the allowed values."""
    return {"type": "string", "description": about} | ({"enum": list(allowed)} if allowed else {})


def flag(about: str) -> Schema:
    """Return the schema of a boolean."""
    return {"type": "boolean", "description": about}


def listed(about: str, of: Schema) -> Schema:
    """Return the schema of a list with items of one kind."""
    return {"type": "array", "description": about, "items": of}


def by_name(about: str, of: Schema) -> Schema:
    """Return the schema of an object with values of one kind under arbitrary names."""
    return {"type": "object", "description": about, "additionalProperties": of}


def record(
    about: str, keys: Mapping[str, Schema], sometimes: Mapping[str, Schema] | None = None, title: str = ""
) -> Schema:
    """Return the schema of an object with known keys and no others.

    Parameters
    ----------
    about : str
        Description of the object.
    keys : mapping of str to Schema
        Keys that are always there.
    sometimes : mapping of str to Schema, optional
        Keys that may be left out.
    title : str
        Name of a record that several outputs share; it is then defined once.
    """
    return {
        "type": "object",
        "description": about,
        "properties": {**keys, **(sometimes or {})},
        "required": list(keys),
        "additionalProperties": False,
    } | ({"title": title} if title else {})


def or_null(part: Schema) -> Schema:
    """Return a schema that also allows null, where the value is not known."""
    if "title" in part or "enum" in part:
        return {"anyOf": [part, {"type": "null"}], "description": part["description"]}
    return part | {"type": [part["type"], "null"]}


REPORT: Final = {"html": text("with `--html`: the report written")}


def redescribed(part: Schema, about: str) -> Schema:
    """Return a titled record with another description for the place where it is used."""
    return part | {"description": about}


def document(part: Schema, name: str) -> Schema:
    """Return a complete JSON Schema (draft 2020-12); titled records stand once, under ``$defs``."""
    shared: dict[str, Schema] = {}
    top = _referring({key: value for key, value in part.items() if key != "title"}, shared)
    return {"$schema": DIALECT, "title": name, **top} | ({"$defs": shared} if shared else {})


def _referring(part: Any, shared: dict[str, Schema]) -> Any:
    """Return a part of a schema with references in place of titled records, which are collected in `shared`."""
    if isinstance(part, list):
        return [_referring(item, shared) for item in part]
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("title"), str):
        name = part["title"]
        shared[name] = _referring(
            {key: value for key, value in part.items() if key not in ("title", "description")}, shared
        )
        return {"$ref": f"#/$defs/{name}", "description": part["description"]}
    return {key: _referring(value, shared) for key, value in part.items()}


def rows(part: Schema, at: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every key below a part of a schema, as path and schema; titled records are not entered.

    Examples
    --------
    >>> [path for path, _ in rows(record("", {"plans": listed("", record("", {"tp": whole("")}))}))]
    ['plans', 'plans[].tp']
    """
    for key, below in part.get("properties", {}).items():
        path = f"{at}{key}"
        yield path, below
        for inner, ending in (
            (below, ""),
            (below.get("items", {}), "[]"),
            (below.get("additionalProperties") or {}, ".*"),
        ):
            if "title" not in inner:
                yield from rows(inner, f"{path}{ending}.")
