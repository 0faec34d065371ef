"""Records, which are dataclasses: copied with other values, read whole, and made of values by name.

Values by name come from files, requests and knobs that are tried, where the names are known only when the
program runs. No static type says what belongs to a name; the record's own checks do, when it is made.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

Record = TypeVar("Record")
Fields: TypeAlias = tuple[Callable[[object], tuple[Any, ...]], Mapping[str, int]]


def replace(record: Record, **changes: object) -> Record:
    """Return a copy of a dataclass with other values of some fields: `dataclasses.replace`, in less time.

    That looks at every field by itself, of 28 in a third of a search's operations. All fields must be
    arguments of the class, by place.

    Raises
    ------
    TypeError
        If the class has no such field.
    """
    kind = type(record)
    values_of, places = fields_of(kind)
    values = [*values_of(record)]
    for name, value in changes.items():
        if name not in places:
            raise TypeError(f"{kind.__name__} has no field {name!r}")
        values[places[name]] = value
    return kind(*values)


def _fields_of(kind: Any) -> Fields:
    """Return what reads all fields of a dataclass, in order, and the place of each."""
    names = [field.name for field in dataclasses.fields(kind)]
    places = {name: place for place, name in enumerate(names)}
    read = attrgetter(*names)
    if len(names) == 1:  # it reads no tuple then
        return lambda record: (read(record),), places
    return read, places


fields_of: Callable[[type], Fields] = cache(_fields_of)


def make_record(kind: Callable[..., Record], values: Mapping[str, object]) -> Record:
    """Return a record of the values of its fields."""
    return kind(**values)


def replace_fields(record: Record, values: Mapping[str, object]) -> Record:
    """Return a dataclass with the values of some of its fields, whichever arguments its class takes."""
    copy: Callable[..., Record] = dataclasses.replace
    return copy(record, **values)
