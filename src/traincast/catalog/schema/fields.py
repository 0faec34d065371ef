"""Figures of a file as pydantic classes: a value with its unit, its source, and what kind of source that is."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, field_validator, model_validator

from traincast.core.units import EXAMPLES, parse

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Basis = Literal["spec", "measured", "assumed", "fitted"]
HERE: Final = "the file itself"  # the source of a figure where a file names none


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a file.

    Parameters
    ----------
    path : str
        Dotted path in the file, for instance ``"network.0.bandwidth"``.
    value : float
        The number in SI [`unit`].
    unit : str
        SI unit; empty for a plain number.
    source : str
        Where it comes from.
    basis : {"spec", "measured", "assumed", "fitted"}
        What kind of source that is.
    low, high : float, optional
        Where the number is with 90 % probability, if the file says so [`unit`].
    """

    path: str
    value: float
    unit: str
    source: str
    basis: Basis
    low: float | None = None
    high: float | None = None


class Misplaced(ValueError):
    """What is wrong at a place inside the value that was checked."""

    def __init__(self, place: tuple[str | int, ...], wrong: str):
        self.place = place
        super().__init__(wrong)


class Part(BaseModel):
    """A mapping that takes only the keys it declares."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    elsewhere: ClassVar[Mapping[str, str]] = {}  # keys that parts like this one may have: why this one may not


class Entry(Part):
    """A figure as written: a bare value, or a mapping of value, source and basis, and of the interval of a fitted value."""

    unit: ClassVar[str] = ""
    example: ClassVar[object]
    may_be_zero: ClassVar[bool] = False

    value: float
    low: float | None = None
    high: float | None = None
    source: Text | None = None
    basis: Basis = "spec"

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, raw: object) -> object:
        """A bare value stands for a mapping that holds only it."""
        return raw if isinstance(raw, dict) else {"value": raw}

    @field_validator("value", mode="before")
    @classmethod
    def _positive(cls, raw: object) -> float:
        """The value, finite and above zero (or zero, where that means something)."""
        value = cls._read(raw)
        if not (0 < value < inf or (cls.may_be_zero and value == 0)):
            allowed = "of at least 0" if cls.may_be_zero else "above 0"
            raise ValueError(f"not a finite number {allowed}; write for instance {cls.example!r}")
        return value

    @field_validator("low", "high", mode="before")
    @classmethod
    def _end(cls, raw: object) -> float | None:
        """An end of the interval, written as the value is."""
        return None if raw is None else cls._positive(raw)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Ends of the interval on both sides of the value."""
        if (self.low is not None and self.low > self.value) or (self.high is not None and self.high < self.value):
            raise ValueError(f"value {self.value!r}: not between low and high")
        return self

    @classmethod
    def _read(cls, raw: object) -> float:
        """The value as written, of the right kind."""
        try:
            if isinstance(raw, int | float) and not isinstance(raw, bool):
                return float(raw)
        except OverflowError:
            return inf
        raise ValueError(f"not a number; write for instance {cls.example!r}")


class Amount(Entry):
    """A positive number."""

    example = 0.5


class Load(Entry):
    """Tokens an expert gets, in any unit."""

    example = 0.5
    may_be_zero = True


class Number(Load):
    """A number of at least 0, in SI units."""

    example = 0.5


class Factor(Entry):
    """A number of at least 1."""

    example = 1.2

    @field_validator("value")
    @classmethod
    def _at_least_one(cls, value: float) -> float:
        """The value, refused below 1."""
        if value < 1:
            raise ValueError(f"below 1, the least it can be; write for instance {cls.example!r}")
        return value


class Share(Entry):
    """A number above 0 and at most 1."""

    example = 0.7

    @field_validator("value")
    @classmethod
    def _at_most_one(cls, value: float) -> float:
        """The value, refused above 1."""
        if value > 1:
            raise ValueError(f"above 1, the most a share can be; write for instance {cls.example!r}")
        return value


class Count(Entry):
    """A positive whole number."""

    example = 64

    value: int

    @classmethod
    def _read(cls, raw: object) -> float:
        """The value as written, refused with a fraction."""
        value = super()._read(raw)
        if isfinite(value) and value != round(value):
            raise ValueError(f"not a whole number; write for instance {cls.example!r}")
        return int(value) if isfinite(value) else value


class Whole(Count):
    """A whole number, zero allowed."""

    example = 1
    may_be_zero = True


class Tokens(Count):
    """A number of tokens."""

    unit = "token"


class Sequences(Count):
    """A number of sequences."""

    unit = "sequence"


class Quantity(Entry):
    """A number with a unit, which has to be written."""

    @classmethod
    def _read(cls, raw: object) -> float:
        """The quantity in SI."""
        return parse(raw, cls.unit)


class Bytes(Quantity):
    """A capacity."""

    unit = "byte"
    example = EXAMPLES[unit]


class ByteRate(Quantity):
    """A bandwidth."""

    unit = "byte/s"
    example = EXAMPLES[unit]


class FlopRate(Quantity):
    """A rate of arithmetic."""

    unit = "FLOP/s"
    example = EXAMPLES[unit]


class Seconds(Quantity):
    """A duration; zero is that of an ideal network."""

    unit = "s"
    example = EXAMPLES[unit]
    may_be_zero = True


class Watts(Quantity):
    """A power."""

    unit = "W"
    example = EXAMPLES[unit]


class Hours(Quantity):
    """A long duration."""

    unit = "h"
    example = EXAMPLES[unit]


class HourlyPrice(Quantity):
    """A price for an hour."""

    unit = "$/h"
    example = EXAMPLES[unit]


class Carbon(Quantity):
    """Carbon dioxide of a kilowatt-hour."""

    unit = "g/kWh"
    example = EXAMPLES[unit]


class File(Part):
    """What every file holds; `source` stands for all figures without one of their own."""

    name: Text
    title: Text | None = None
    source: Text = HERE


def figures(part: Part) -> tuple[Figure, ...]:
    """Every figure of a checked file or of a mapping in it, in the order of its description."""
    return tuple(_figures(part, "", getattr(part, "source", None) or HERE))


def _figures(items: Iterable[tuple[str | int, Any]], prefix: str, source: str) -> Iterator[Figure]:
    """Figures below a dotted path, which inherit a source."""
    for key, item in items:
        path = f"{prefix}{key}"
        if isinstance(item, Entry):
            yield Figure(path, item.value, item.unit, item.source or source, item.basis, item.low, item.high)
        elif isinstance(item, Part):
            yield from _figures(item, f"{path}.", getattr(item, "source", None) or source)
        elif isinstance(item, tuple):
            yield from _figures(enumerate(item), f"{path}.", source)
