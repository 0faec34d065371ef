"""Checking of files against their schema, with one clear line for each mistake."""

import reprlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from traincast.catalog.schema.fields import MAX_TIERS, Entry, File, Misplaced, Part
from traincast.core import InputError, first_problems

TIERS = f"a network has two to {MAX_TIERS} tiers: the fast domain first, and last what joins everything"
AnyFile = TypeVar("AnyFile", bound=File)


def check(schema: type[AnyFile], document: Mapping[str, object], subject: str) -> AnyFile:
    """Check the content of a file; raise all of its mistakes at once."""
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        details = error.errors(include_url=False)
        lines = first_problems(details, lambda detail: _error_line(schema, document, detail))
        raise InputError(subject, lines) from None


def _error_line(schema: type[File], document: Mapping[str, object], detail: ErrorDetails) -> str:
    """Return the line of one mistake: ``path = what was written: what is wrong; what is allowed``."""
    *parents, last = detail["loc"]
    match detail["type"]:
        case "missing":
            return f"{_dotted_path(detail['loc'])}: missing{_missing_hint(_part_at(schema, parents), last)}"
        case "extra_forbidden":
            return f"{_dotted_path(detail['loc'])}: {_extra_key_hint(str(last), _part_at(schema, parents))}"
        case "value_error":
            wrong = str(detail["ctx"]["error"])
            if isinstance(detail["ctx"]["error"], Misplaced):
                place = (*detail["loc"], *detail["ctx"]["error"].place)
                return f"{_dotted_path(place)} = {_excerpt(document, place)}: {wrong}"
        case "literal_error":
            wrong = f"not a known word; write {detail['ctx']['expected']}"
        case "bool_type":
            wrong = "neither true nor false"
        case "string_type":
            wrong = "not text; put it in quotes"
        case "string_too_short":
            wrong = "empty; write a few words"
        case "model_type":
            wrong = f"not a mapping; its keys are {', '.join(_part_at(schema, detail['loc']).model_fields)}"
        case "invalid_key":
            return f"{_dotted_path(detail['loc'])}: a key that is not text; put it in quotes"
        case "too_long":
            return f"{_dotted_path(detail['loc'])}: {detail['ctx']['actual_length']} tiers; {TIERS}"
        case "tuple_type":
            wrong = f"not a list; {TIERS if last == 'network' else 'write for instance [one, other]'}"
        case _:
            wrong = detail["msg"]
    written = _excerpt(document, detail["loc"])
    path = parents if last == "value" else detail["loc"]
    return f"{_dotted_path(path)} = {written}: {wrong}"


def _dotted_path(loc: Iterable[str | int]) -> str:
    """Format a place in a file as a dotted path."""
    return ".".join(map(str, loc))


def _part_at(schema: type[File], loc: Iterable[str | int]) -> type[Part]:
    """Return the schema of the mapping at a place in a file."""
    part: Any = schema
    for key in loc:
        if isinstance(key, str):
            part = part.model_fields[key].annotation
        else:
            kinds = [kind for kind in get_args(part) if kind is not Ellipsis]
            part = kinds[min(key, len(kinds) - 1)]
        if get_origin(part) in (Union, UnionType):  # a part that may be left out
            part = get_args(part)[0]
    return part if isinstance(part, type) and issubclass(part, Part) else Entry


def _missing_hint(part: type[Part], key: str | int) -> str:
    if key == 1:
        return f"; {TIERS}"
    field = part.model_fields.get(str(key))
    example = getattr(field.annotation, "example", None) if field else None
    return f"; write for instance {key}: {example}" if example else ""


def _extra_key_hint(key: str, part: type[Part]) -> str:
    """Return why a key is not allowed in a part, with close matches or the allowed keys."""
    if key in part.elsewhere:
        return f"does not belong here; {part.elsewhere[key]}"
    close = get_close_matches(key, part.model_fields, cutoff=0.7)
    return "unknown key; " + (
        f"did you mean {' or '.join(close)}?" if close else f"allowed: {', '.join(part.model_fields)}"
    )


def _excerpt(document: Any, loc: Iterable[str | int]) -> str:
    """Return what a file holds at a place, shortened."""
    for key in loc:
        if key != "value":
            document = document[key]
    if isinstance(document, dict) and "value" in document:
        document = document["value"]
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    try:
        return short.repr(document)
    except ValueError:  # an integer of thousands of digits
        return "a huge number"
