"""Schema of values of `Assumptions` in files, each by its path and with its source."""

from typing import Any, Final

from pydantic import Field, StrictBool, create_model, field_validator

from traincast.catalog.facts import Words, check_fact
from traincast.catalog.schema.fields import Entry, File, Number, Text
from traincast.core import ASSUMPTIONS


class AssumptionsFile(File):
    """Keys of a file of assumptions besides their paths."""

    def changes(self) -> dict[str, object]:
        """Return the assumptions that the file sets, by path."""
        entries = {path: getattr(self, path) for path in ASSUMPTIONS}
        return {
            path: entry.value if isinstance(entry, Entry) else entry
            for path, entry in entries.items()
            if entry is not None
        }


class StackFile(AssumptionsFile):
    """Keys of the file of a software stack besides the paths of assumptions.

    Its constants are those of its framework, release and facts (software.py); values of its own are what none
    of them explains. It stands for the frameworks of `stands_for` from a release on, each from its own; where
    no release is stated, for those of `undated`. Where `trains` or `host` are given, runs have it only if
    they train such models, or on such hosts.
    """

    framework: Text
    released: Text
    facts: dict[str, str]
    stands_for: dict[str, str] = Field(default_factory=dict)
    undated: tuple[str, ...] = ()
    trains: Text | None = None
    host: Text | None = None

    @field_validator("facts", mode="before")
    @classmethod
    def _spell_facts(cls, facts: dict[str, Words]) -> dict[str, str]:
        """Return the facts in their own spelling."""
        return {name: check_fact(name, value) for name, value in facts.items()}

    @property
    def year(self) -> int:
        """Year of the software."""
        return int(self.released[:4])


_TYPES: Final[dict[Any, Any]] = {bool: StrictBool, float: Number, int: Number}  # of others, words
_PATHS: Final[dict[str, Any]] = {
    path: (_TYPES.get(item.type, item.type) | None, None) for path, item in ASSUMPTIONS.items()
}
CALIBRATED_SCHEMA: Final = create_model("Calibrated", __base__=AssumptionsFile, **_PATHS)
STACK: Final = create_model("Stack", __base__=StackFile, **_PATHS)
