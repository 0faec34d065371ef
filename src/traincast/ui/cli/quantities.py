"""Quantities, durations and shares as options of the command line give them."""

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from traincast.core import InputError, parse_quantity, raise_problems

DURATIONS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}  # spelling -> [s]


def parse_option(text: str, unit: str, name: str) -> float:
    """Read a quantity of an option as `parse_quantity` does; raise `InputError` with the option's name."""
    try:
        return parse_quantity(text, unit)
    except ValueError as error:
        raise InputError(name, [f"{text!r}: {error}"]) from None


def parse_duration(text: str, name: str, *, zero: bool = False) -> float:
    """Read a duration such as ``"2h"``, ``"90m"``, ``"5min"`` or ``"600"`` [s]; 0 is allowed on request."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    value = float(match[1]) * DURATIONS[match[2]] if match and match[2] in DURATIONS else -1.0
    if value < 0 or not (value or zero):
        least = "of at least" if zero else "above"
        raise InputError(name, [f"{text!r}: must be a duration {least} 0, such as 600s, 90min or 2h"])
    return value


def parse_share(text: str, name: str = "share") -> float:
    """Read a share such as ``"2%"`` or ``"0.02"``."""
    digits = text.strip().removesuffix("%")
    try:
        return float(digits) / (100 if digits != text.strip() else 1)
    except ValueError:
        raise InputError(name, [f"{text!r}: must be a share, such as 2% or 0.02"]) from None


def pairs_of(option: str, texts: Collection[str], example: str, values: bool = True) -> dict[str, str]:
    """Return pairs given as NAME=VALUE; a value may be empty unless `values`.

    Raises
    ------
    InputError
        With all texts that are no pairs, and all names given twice.
    """
    pairs = [text.partition("=") for text in texts]
    wrong = [
        f"{name + sign + value!r}: write name=value, such as {example}"
        for name, sign, value in pairs
        if not (name and sign and (value or not values))
    ]
    names = Counter(name for name, _, _ in pairs)
    wrong += [f"{name}: given {count} times; give one" for name, count in names.items() if count > 1]
    raise_problems(option, wrong)
    return {name: value for name, _, value in pairs}
