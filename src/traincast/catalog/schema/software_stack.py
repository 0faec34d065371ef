"""Schema of the file of a software stack: any field of `Assumptions`, with its source."""

from dataclasses import fields
from typing import Any, Final, get_type_hints

from pydantic import StrictBool, create_model

from traincast.catalog.schema.fields import Entry, File, Number, Text
from traincast.core.assumptions import Assumptions


class StackFile(File):
    """Keys of the file of a software stack beside the fields of `Assumptions`.

    `framework` is the matching search space, `year` the year of the software, `based_on` the stack whose values apply to fields
    that are left out.
    """

    framework: Text
    year: int
    based_on: Text | None = None

    def changes(self) -> dict[str, Any]:
        """Return the fields of `Assumptions` that the file sets."""
        entries = {
            field.name: getattr(self, field.name) for field in fields(Assumptions) if field.name != "name"
        }
        return {
            name: entry.value if isinstance(entry, Entry) else entry
            for name, entry in entries.items()
            if entry is not None
        }


def _schema_type(annotation: Any) -> Any:
    """Return the type of a field in a file: a number with its source, a boolean, or one of several words."""
    if annotation is bool:
        return StrictBool
    return Number if annotation is float or annotation is int else annotation


_HINTS: Final = {name: kind for name, kind in get_type_hints(Assumptions).items() if name != "name"}
_FIELDS: Final[dict[str, Any]] = {name: (_schema_type(kind) | None, None) for name, kind in _HINTS.items()}
STACK: Final = create_model("Stack", __base__=StackFile, **_FIELDS)
