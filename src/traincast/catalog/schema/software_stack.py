"""What the file of a software stack may hold: any field of `Assumptions`, with its source."""

from dataclasses import fields
from typing import Any, Final, get_type_hints

from pydantic import StrictBool, create_model

from traincast.catalog.schema.fields import Entry, File, Number, Text
from traincast.core.assumptions import Assumptions


class StackFile(File):
    """What every stack's file holds.

    `framework` is the search space that suits it, `year` when it was current, `based_on` a stack whose values hold where this one
    says nothing.
    """

    framework: Text
    year: int
    based_on: Text | None = None

    def changes(self) -> dict[str, Any]:
        """Fields of `Assumptions` that the file sets."""
        given = ((one.name, getattr(self, one.name)) for one in fields(Assumptions) if one.name != "name")
        return {name: value.value if isinstance(value, Entry) else value for name, value in given if value is not None}


def _kind(annotation: Any) -> Any:
    """How a field is written: a number with its source, yes or no, or one of some words."""
    if annotation is bool:
        return StrictBool
    return Number if annotation is float or annotation is int else annotation


_HINTS: Final = {name: kind for name, kind in get_type_hints(Assumptions).items() if name != "name"}
_FIELDS: Final[dict[str, Any]] = {name: (_kind(kind) | None, None) for name, kind in _HINTS.items()}
STACK: Final = create_model("Stack", __base__=StackFile, **_FIELDS)
