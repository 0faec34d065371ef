"""Schema of values of `Assumptions` in files, each by its path and with its source."""

from typing import Any, Final

from pydantic import StrictBool, create_model

from traincast.catalog.schema.fields import Entry, File, Number, Text
from traincast.core.assumptions import ASSUMPTIONS


class AssumptionsFile(File):
    """Keys of a file of assumptions besides their paths."""

    def changes(self) -> dict[str, Any]:
        """Return the assumptions that the file sets, by path."""
        entries = {path: getattr(self, path) for path in ASSUMPTIONS}
        return {
            path: entry.value if isinstance(entry, Entry) else entry
            for path, entry in entries.items()
            if entry is not None
        }


class StackFile(AssumptionsFile):
    """Keys of the file of a software stack besides the paths of assumptions.

    `framework` is the matching search space, `year` the year of the software, `based_on` the stack whose
    values apply where the file has none. Values of the code of a layer of experts do only if
    `inherits_experts` says that it is the same code.
    """

    framework: Text
    year: int
    based_on: Text | None = None
    inherits_experts: StrictBool = False


_TYPES: Final[dict[Any, Any]] = {bool: StrictBool, float: Number, int: Number}  # of others, words
_PATHS: Final[dict[str, Any]] = {
    path: (_TYPES.get(item.type, item.type) | None, None) for path, item in ASSUMPTIONS.items()
}
CALIBRATED_SCHEMA: Final = create_model("Calibrated", __base__=AssumptionsFile, **_PATHS)
STACK: Final = create_model("Stack", __base__=StackFile, **_PATHS)
