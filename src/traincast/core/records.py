"""Records made of values by name, where the names are known only when the program runs.

Files, requests and knobs that are tried give such values. No static type says what belongs to a name; the
record's own checks do, when it is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

Record = TypeVar("Record")


def make_record(kind: Callable[..., Record], values: Mapping[str, object]) -> Record:
    """Return a record of the values of its fields."""
    return kind(**values)


def replace_fields(record: Record, values: Mapping[str, object]) -> Record:
    """Return a dataclass with the values of some of its fields."""
    copy: Callable[..., Record] = replace
    return copy(record, **values)
