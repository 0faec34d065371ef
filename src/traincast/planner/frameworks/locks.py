"""Locks of a search: knobs and choices that have one value, or a few."""

from collections.abc import Mapping
from typing import Final

from traincast.core import (
    ALLOWED_VALUES,
    AXES,
    CHOICES,
    KNOBS,
    InputError,
    choice_problems,
    unknown_name_error,
    whole_number_problems,
)

UNSEARCHED: Final = {f"fast_{axis}" for axis in AXES} | {"recompute_every", "offload_every"}
SEARCHED: Final = tuple(name for name in KNOBS if name not in UNSEARCHED)  # can be locked
LOCKABLE: Final = (*SEARCHED, "recompute_every", "offload_every", *CHOICES)


def lock_values(choice: str, lock: object) -> tuple[object, ...]:
    """Return the values that a lock leaves of a choice: several where a sequence of them is given."""
    return tuple(lock) if choice in ALLOWED_VALUES and isinstance(lock, list | tuple) else (lock,)


def check_locked_values(locks: Mapping[str, object]) -> None:
    """Refuse locks of unknown knobs and of values that are not allowed."""
    problems = []
    for name, value in locks.items():
        if name in CHOICES:
            values = lock_values(name, value)
            problems += [] if values else [f"{name}: give at least one value"]
            problems += [wrong for one in values for wrong in choice_problems(name, one)]
        elif name in LOCKABLE:
            problems += whole_number_problems(name, value)
        else:
            problems.append(str(unknown_name_error("knob", name, LOCKABLE)))
    if problems:
        raise InputError("search", problems)
