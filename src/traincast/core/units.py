"""Parsing and formatting of quantities: prefixes occur only here, all other code works in SI."""

import math
import re
from numbers import Real
from typing import Final, TypeGuard

from traincast.core.errors import InputError

DECIMAL: Final = {  # prefix -> power of ten; micro is written with two characters
    "": 0,
    "n": -9,
    "u": -6,
    "\u00b5": -6,
    "\u03bc": -6,
    "m": -3,
    "k": 3,
    "K": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
BINARY: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}
BASE: Final = {  # spelling -> (dimension, size in SI)
    "B": ("byte", 1.0), "byte": ("byte", 1.0), "bytes": ("byte", 1.0), "Byte": ("byte", 1.0),
    "Bytes": ("byte", 1.0), "b": ("byte", 0.125), "bit": ("byte", 0.125), "bits": ("byte", 0.125),
    "Bit": ("byte", 0.125), "Bits": ("byte", 0.125), "FLOP": ("FLOP", 1.0), "FLOPs": ("FLOP", 1.0),
    "FLOPS": ("FLOP/s", 1.0), "Bps": ("byte/s", 1.0), "bps": ("byte/s", 0.125),
    "s": ("s", 1.0), "sec": ("s", 1.0), "h": ("h", 1.0), "W": ("W", 1.0), "$": ("$", 1.0), "USD": ("$", 1.0),
    "g": ("g", 1.0), "gCO2": ("g", 1.0), "gCO2e": ("g", 1.0),
    "sequence": ("sequence", 1.0), "sequences": ("sequence", 1.0), "sample": ("sequence", 1.0),
    "samples": ("sequence", 1.0), "token": ("token", 1.0), "tokens": ("token", 1.0),
}  # fmt: skip
UNIT_EXAMPLES: Final = {
    "byte": "80 GiB",
    "byte/s": "400 Gb/s",
    "FLOP/s": "989 TFLOP/s",
    "s": "2.5 us",
    "W": "700 W",
    "h": "50000 h",
    "$/h": "2.5 $/h",
    "g/kWh": "480 g/kWh",
    "sequence/s": "3 sequence/s",
    "token/s": "20 ktoken/s",
}
_NUMBER = re.compile(
    r"\s*([+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d[\d_]*\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,5}))?\s*(.*?)\s*$"
)
# in SI; products of figures beyond leave the floats
LEAST = 1e-30
MOST = 1e30
MOST_IN_FULL: Final = 1e15  # numbers beyond are printed as powers of ten
GIB: Final = 2.0**30  # [byte]
MOST_COUNTED: Final = 1e16  # 250 times the tokens of the longest training runs known in 2025


def parse_quantity(text: object, unit: str) -> float:
    """Read a quantity such as ``"400 Gb/s"`` from text; raise ValueError with what is allowed.

    The unit must be written, since a bare number could be meant in any: ``b`` is a bit and ``B`` a byte,
    ``G`` is 1e9 and ``Gi`` 2**30. Hours, prices per hour and carbon per kWh are not converted to SI.
    """
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if (match is not None and not match[3]) or _is_number(text):
        raise ValueError(f"has no unit; write for instance {UNIT_EXAMPLES[unit]!r}")
    if match is None:
        raise ValueError(f"not a quantity; write for instance {UNIT_EXAMPLES[unit]!r}")
    digits, exponent, spelling = match.groups()
    dimension, power, size = _parse_unit(spelling)
    if dimension != unit:
        wrong = f"measures {dimension}, not {unit}" if dimension else f"is unknown, must be {unit}"
        raise ValueError(f"unit {spelling!r} {wrong}; write for instance {UNIT_EXAMPLES[unit]!r}")
    # The nearest float: 2.5 us is 2.5e-6.
    value = float(f"{re.sub('[_,]', '', digits)}e{int(exponent or 0) + power}") * size
    if math.isfinite(value) and not (value == 0 or LEAST <= abs(value) <= MOST):
        raise ValueError(f"must be {LEAST:g} to {MOST:g} {unit}; write for instance {UNIT_EXAMPLES[unit]!r}")
    return value


def to_si(value: object, unit: str) -> float:
    """Read a quantity given in Python: text as for `parse_quantity`, or a number in SI [`unit`]."""
    if _is_number(value):
        try:
            return float(value)
        except OverflowError:  # an integer too large for a float
            return math.inf
    if unit not in UNIT_EXAMPLES:
        raise ValueError("must be a number")
    return parse_quantity(value, unit)


def _is_number(raw: object) -> TypeGuard[Real]:
    """Return whether a value is a number; True and False are not."""
    return isinstance(raw, Real) and not isinstance(raw, bool)


def _parse_unit(spelling: str) -> tuple[str, int, float]:
    """Return dimension, power of ten and factor of a unit; the dimension of an unknown unit is empty."""
    numerator, _, per = spelling.replace(" ", "").partition("/")
    for length in range(min(2, len(numerator)) + 1):
        prefix = numerator[:length]
        base = numerator[length:]
        if (prefix in DECIMAL or prefix in BINARY) and base in BASE:
            dimension, size = BASE[base]
            if (DECIMAL.get(prefix, 0) > 0 or prefix in BINARY) == (dimension == "s") and prefix:
                return "", 0, 1.0  # no Ms, no mB/s
            per_second = f"/{per}" if per else ""
            if per == "sec":
                per_second = "/s"
            return dimension + per_second, DECIMAL.get(prefix, 0), BINARY.get(prefix, 1.0) * size
    return "", 0, 1.0


def parse_count(text: str, name: str, step: int) -> int:
    """Read a count such as ``"16M"``, ``"15T"`` or ``"15e12"``."""
    match = re.fullmatch(
        r"\s*(\d+(?:[,_]\d+)*(?:\.\d+)?(?:[eE]\+?\d\d?(?=\s*$))?)\s*([kKmMgGbBtT]?)\s*", text
    )
    power = {"": 0, "k": 1, "m": 2, "g": 3, "b": 3, "t": 4}
    number = float(re.sub("[_,]", "", match[1])) * step ** power[match[2].lower()] if match else 0.0
    if not 1 <= number <= MOST_COUNTED or number != round(number):
        most = f"{MOST_COUNTED:g}".replace("+", "")
        allowed = f"must be a whole number from 1 to {most}, such as 4194304, 4M or 15T"
        raise InputError(name, [f"{text!r}: {allowed}"])
    return int(number)


def number_text(value: float, digits: int = 4) -> str:
    """Format a number for people: significant digits and all before the point, ``"0.125"``, ``"12,345"``."""
    whole = 10 ** (digits - 1) <= abs(value) < MOST_IN_FULL
    return f"{value:,.0f}" if whole else f"{value:,.{digits}g}"


def total_text(value: float) -> str:
    """Format a total, from a million on with a decimal prefix: ``"98,304"``, ``"2.469 M"``."""
    return rate_text(value, "").strip() if abs(value) >= 1e6 else number_text(value)


def seconds(value: float) -> str:
    """Format a duration [s]: ``"39.98 s"``, ``"1.25 ms"``, ``"20 us"``."""
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= size:
            return f"{number_text(value / size)} {name}"
    return "0 s" if value == 0 else f"{value / 1e-9:.3g} ns"


def long_duration(value: float) -> str:
    """Format a duration [s] in days, hours or minutes where it is long."""
    for size, unit in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if value >= 2 * size:
            return f"{number_text(value / size, 3)} {unit}"
    return seconds(value)


def seconds_with_interval(value: float, low: float, high: float) -> str:
    """Format a duration and its interval [s] without the closing bracket: ``"14.1 s (12.9 to 15.4"``."""
    size = next((unit for unit in (1.0, 1e-3, 1e-6) if value >= unit), 1e-9)
    return f"{seconds(value)} ({number_text(low / size, 3)} to {number_text(high / size, 3)}"


def gib(value: float) -> str:
    """Format memory [byte] in GiB, or in MiB below 0.1 GiB."""
    if value == 0:
        return "0"
    return f"{value / GIB:,.1f} GiB" if value >= 0.1 * GIB else f"{value / GIB * 1024:.1f} MiB"


def count_of(number: int, thing: str) -> str:
    """Format a count with its noun: ``"1 GPU"``, ``"2,048 GPUs"``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def rate_text(value: float, unit: str) -> str:
    """Format a rate with a decimal prefix: ``rate(4.8e12, "B/s") == "4.8 TB/s"``."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{number_text(value / size)} {prefix}{unit}"
    return f"{number_text(value)} {unit}"


def quantity(value: float, unit: str) -> str:
    """Format a figure of the catalogue: memory in GiB, rates with a decimal prefix."""
    if unit == "byte":
        return gib(value)
    if unit == "s":
        return seconds(value)
    if unit.endswith("/s"):
        return rate_text(value, unit.replace("byte", "B"))
    return f"{value:,.12g} {unit}".strip()


def percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * share:,.1f}%"


def probability_text(share: float) -> str:
    """Format a probability as a percentage, never 0% or 100%."""
    if share < 0.005:
        return "<1%"
    if share > 0.995:
        return ">99%"
    return f"{float(share):.0%}"


def format_signed(share: float) -> str:
    """Format a relative change as a percentage with its sign."""
    return f"{100 * share:+.2g}%" if abs(share) < 0.0995 else f"{100 * share:+,.0f}%"
