"""Results that describe themselves: what carries a `Doc` is a key of the JSON and of its JSON Schema.

A field annotated ``Annotated[float, Doc("time of a step", "s")]`` is a key of `Result.to_dict`, and so is a
property annotated ``Annotated[float, KEY]``, whose docstring says meaning and unit. pydantic reads the same
annotations into a JSON Schema; it calls the hooks below and is not imported here.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, lru_cache
from inspect import get_annotations
from typing import Annotated, Any, Final, dataclass_transform, get_args

from traincast.core.json_schema import closed_object, describe_key

BRACKETS: Final = re.compile(r" \[([^\]]+)\]")  # of a unit in the first line of a docstring


@dataclass(frozen=True)
class Doc:
    """Meaning and unit of a key of a result."""

    meaning: str = ""  # a property's is the first line of its docstring, with the unit in brackets
    unit: str = ""
    _: KW_ONLY
    key: str = ""  # the key's name where it is not that of the attribute
    place: int = 0  # in the order of keys: fields before properties before those of a higher place
    optional: bool = False  # absent where the value is None
    kind: str = ""  # type of JSON where the annotation does not say it
    text: bool = False  # the value as text, whatever its type
    inline: bool = False  # the keys of the value in place of one key
    keys: Mapping[str, Any] | None = None  # of an object whose keys stand in a table: their schemas

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema = handler(core_schema) if self.keys is None else closed_object(self.keys)
        if kind := "string" if self.text else self.kind:
            schema = {"type": kind}
        if self.optional and "anyOf" in schema:  # absent, not null
            schema = next(part for part in schema["anyOf"] if part != {"type": "null"})
        return {**schema, **describe_key(self.meaning, self.unit)}


KEY: Final = Doc()
INLINE: Final = Doc(inline=True)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Result:
    """Base of results, which makes them frozen dataclasses; what has a `Doc` is a key of their JSON."""

    def __init_subclass__(cls, *, kw_only: bool = False, eq: bool = True, repr: bool = True) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=kw_only, eq=eq, repr=repr)(cls)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, in SI units; what is not known is None."""
        values: dict[str, object] = {}
        kind: object = type(self)
        for name, _, doc in document_keys(kind):
            value = getattr(self, name)
            if doc.inline:
                values |= json_value(value) or {}
            elif not (doc.optional and value is None):
                values[doc.key or name] = str(value) if doc.text else json_value(value)
        return values

    def to_json(self, indent: int | None = None) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, Any]:
        """Return the result as an object with known keys and no others, for pydantic."""
        return {
            "type": "typed-dict",
            "fields": _core_fields(cls, handler),
            "extra_behavior": "forbid",
            "ref": f"{cls.__module__}.{cls.__qualname__}:{id(cls)}",
        }


def json_value(value: object) -> Any:
    """Return a value as JSON: results as objects, tuples and arrays as lists, NaN as None, paths as text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # a number or an array of numpy
        return json_value(value.tolist())
    return [json_value(item) for item in value] if isinstance(value, Iterable) else str(value)


@lru_cache
def document_keys(result: type) -> tuple[tuple[str, Any, Doc], ...]:
    """Return name, annotation and `Doc` of every key: base classes first, fields before properties."""
    annotations: dict[str, object] = {}
    for part in reversed(result.__mro__):
        annotations |= get_annotations(part)
        for name, member in vars(part).items():
            getter = member.func if isinstance(member, cached_property) else getattr(member, "fget", None)
            if getter is not None:
                annotations[name] = _with_docstring(get_annotations(getter).get("return"), getter.__doc__)
    rows = (
        (name, annotation, doc)
        for name, annotation in annotations.items()
        for doc in getattr(annotation, "__metadata__", ())
        if isinstance(doc, Doc)
    )
    return tuple(sorted(rows, key=lambda row: row[2].place))


def _with_docstring(annotation: Any, docstring: str | None) -> Any:
    """Return the annotation of a property with the meaning and unit that its docstring says."""
    (doc, *_) = getattr(annotation, "__metadata__", (None,))
    if not isinstance(doc, Doc) or doc.meaning or not docstring:
        return annotation
    summary = docstring.splitlines()[0].rstrip(".").replace("None", "`null`")
    unit = BRACKETS.search(summary)
    meaning = BRACKETS.sub("", summary)
    if meaning[1:2].islower():
        meaning = meaning[0].lower() + meaning[1:]
    return Annotated[annotation.__origin__, replace(doc, meaning=meaning, unit=unit[1] if unit else doc.unit)]


def _core_fields(result: type, handler: Any) -> dict[str, Any]:
    """Return the fields of a result's schema, those of inlined results among them."""
    fields: dict[str, object] = {}
    for name, annotation, doc in document_keys(result):
        if doc.inline:
            inlined, *none = get_args(annotation.__origin__) or (annotation.__origin__,)
            inner = _core_fields(inlined, handler)
            fields |= {key: field | {"required": False} for key, field in inner.items()} if none else inner
        else:
            part = handler.generate_schema(annotation)
            required = not doc.optional
            fields[doc.key or name] = {"type": "typed-dict-field", "schema": part, "required": required}
    return fields
