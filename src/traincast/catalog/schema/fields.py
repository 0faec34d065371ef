"""Figures of a file as pydantic classes: value, unit, source, and kind of source."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, field_validator, model_validator

from traincast.core.units import EXAMPLES, parse

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Basis = Literal["spec", "measured", "assumed", "fitted"]
DEFAULT_SOURCE: Final = "the file itself"  # the source of a figure if a file names none


@dataclass(frozen=True, slots=True)
class Figure:
    """Number of a file with its source.

    Parameters
    ----------
    path : str
        Dotted path in the file, for instance ``"network.0.bandwidth"``.
    value : float
        The number in SI [`unit`].
    unit : str
        SI unit; empty for a plain number.
    source : str
        Where the number comes from.
    basis : {"spec", "measured", "assumed", "fitted"}
        Kind of the source.
    low, high : float, optional
        Interval of 90 % probability, if the file has one [`unit`].
    """

    path: str
    value: float
    unit: str
    source: str
    basis: Basis
    low: float | None = None
    high: float | None = None


class Misplaced(ValueError):
    """Error at a place inside the value that was checked."""

    def __init__(self, place: tuple[str | int, ...], message: str):
        self.place = place
        super().__init__(message)


class Part(BaseModel):
    """Mapping that allows only the keys it declares."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    elsewhere: ClassVar[Mapping[str, str]] = {}  # keys that belong to similar parts -> why not to this one


class Entry(Part):
    """Figure as written: a bare value, or a mapping with value, source, basis and the interval of a fitted value."""

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
    def _as_mapping(cls, raw: object) -> object:
        """Wrap a bare value in a mapping."""
        return raw if isinstance(raw, dict) else {"value": raw}

    @field_validator("value", mode="before")
    @classmethod
    def _positive(cls, raw: object) -> float:
        """Return the value; refuse what is not finite and above zero (or zero, if that is allowed)."""
        value = cls._read(raw)
        if not (0 < value < inf or (cls.may_be_zero and value == 0)):
            allowed = "of at least 0" if cls.may_be_zero else "above 0"
            raise ValueError(f"not a finite number {allowed}; write for instance {cls.example!r}")
        return value

    @field_validator("low", "high", mode="before")
    @classmethod
    def _interval_end(cls, raw: object) -> float | None:
        """Return an end of the interval, which is written like the value."""
        return None if raw is None else cls._positive(raw)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Refuse a value outside of its interval."""
        if (self.low is not None and self.low > self.value) or (
            self.high is not None and self.high < self.value
        ):
            raise ValueError(f"value {self.value!r}: not between low and high")
        return self

    @classmethod
    def _read(cls, raw: object) -> float:
        """Convert the value as written to a number."""
        try:
            if isinstance(raw, int | float) and not isinstance(raw, bool):
                return float(raw)
        except OverflowError:
            return inf
        raise ValueError(f"not a number; write for instance {cls.example!r}")


class Amount(Entry):
    """Positive number."""

    example = 0.5


class Load(Entry):
    """Tokens of an expert, in any unit."""

    example = 0.5
    may_be_zero = True


class Number(Load):
    """Number of at least 0, in SI units."""

    example = 0.5


class Factor(Entry):
    """Number of at least 1."""

    example = 1.2

    @field_validator("value")
    @classmethod
    def _at_least_one(cls, value: float) -> float:
        """Return the value; refuse one below 1."""
        if value < 1:
            raise ValueError(f"below 1, the least it can be; write for instance {cls.example!r}")
        return value


class Share(Entry):
    """Number above 0 and at most 1."""

    example = 0.7

    @field_validator("value")
    @classmethod
    def _at_most_one(cls, value: float) -> float:
        """Return the value; refuse one above 1."""
        if value > 1:
            raise ValueError(f"above 1, the most a share can be; write for instance {cls.example!r}")
        return value


class Count(Entry):
    """Positive whole number."""

    example = 64

    value: int

    @classmethod
    def _read(cls, raw: object) -> float:
        """Convert the value as written to a whole number; refuse a fraction."""
        value = super()._read(raw)
        if isfinite(value) and value != round(value):
            raise ValueError(f"not a whole number; write for instance {cls.example!r}")
        return int(value) if isfinite(value) else value


class Whole(Count):
    """Whole number of at least 0."""

    example = 1
    may_be_zero = True


class Tokens(Count):
    """Number of tokens."""

    unit = "token"


class Sequences(Count):
    """Number of sequences."""

    unit = "sequence"


class Quantity(Entry):
    """Number whose unit must be written."""

    @classmethod
    def _read(cls, raw: object) -> float:
        """Parse the quantity and return it in SI."""
        return parse(raw, cls.unit)


class Bytes(Quantity):
    """Capacity [byte]."""

    unit = "byte"
    example = EXAMPLES[unit]


class ByteRate(Quantity):
    """Bandwidth [byte/s]."""

    unit = "byte/s"
    example = EXAMPLES[unit]


class FlopRate(Quantity):
    """Rate of arithmetic [FLOP/s]."""

    unit = "FLOP/s"
    example = EXAMPLES[unit]


class Seconds(Quantity):
    """Duration [s]; zero for an ideal network."""

    unit = "s"
    example = EXAMPLES[unit]
    may_be_zero = True


class Watts(Quantity):
    """Power [W]."""

    unit = "W"
    example = EXAMPLES[unit]


class Hours(Quantity):
    """Long duration [h]."""

    unit = "h"
    example = EXAMPLES[unit]


class HourlyPrice(Quantity):
    """Price per hour [$/h]."""

    unit = "$/h"
    example = EXAMPLES[unit]


class Carbon(Quantity):
    """Carbon dioxide per kilowatt-hour [g/kWh]."""

    unit = "g/kWh"
    example = EXAMPLES[unit]


class File(Part):
    """Keys of every file; `source` applies to all figures without their own."""

    name: Text
    title: Text | None = None
    source: Text = DEFAULT_SOURCE


def figures(part: Part) -> tuple[Figure, ...]:
    """Return every figure of a checked file or of a mapping in it, in the order of the schema."""
    return tuple(_walk_figures(part, "", getattr(part, "source", None) or DEFAULT_SOURCE))


def _walk_figures(items: Iterable[tuple[str | int, Any]], prefix: str, source: str) -> Iterator[Figure]:
    """Yield the figures below a dotted path; `source` is that of figures without their own."""
    for key, item in items:
        path = f"{prefix}{key}"
        if isinstance(item, Entry):
            yield Figure(path, item.value, item.unit, item.source or source, item.basis, item.low, item.high)
        elif isinstance(item, Part):
            yield from _walk_figures(item, f"{path}.", getattr(item, "source", None) or source)
        elif isinstance(item, tuple):
            yield from _walk_figures(enumerate(item), f"{path}.", source)
