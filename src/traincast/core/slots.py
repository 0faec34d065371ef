"""Copies of dataclasses with other values, made faster than the standard library makes them."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

Instance = TypeVar("Instance")


def replace(instance: Instance, **changes: object) -> Instance:
    """Return a copy of a dataclass with other values of some fields: `dataclasses.replace`, in less time.

    That looks at every field by itself, of 28 in a third of a search's operations. All fields must be
    arguments of the class, by place.

    Raises
    ------
    TypeError
        If the class has no such field.
    """
    kind = type(instance)
    values_of, places = fields_of(kind)
    values = [*values_of(instance)]
    for name, value in changes.items():
        if name not in places:
            raise TypeError(f"{kind.__name__} has no field {name!r}")
        values[places[name]] = value
    return kind(*values)


@cache
def fields_of(kind: Any) -> tuple[Callable[[object], tuple[Any, ...]], Mapping[str, int]]:
    """Return what reads all fields of a dataclass, in order, and the place of each."""
    names = [field.name for field in fields(kind)]
    places = {name: place for place, name in enumerate(names)}
    read = attrgetter(*names)
    if len(names) == 1:  # it reads no tuple then
        return lambda instance: (read(instance),), places
    return read, places
