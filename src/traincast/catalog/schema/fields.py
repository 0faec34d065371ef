"""Figures of a file as pydantic classes: value, unit, source, and kind of source."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from math import inf, isfinite
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, field_validator, model_validator

from traincast.core import UNIT_EXAMPLES, Bound, FigureSpec, figure_specs, parse_quantity

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Basis = Literal["spec", "measured", "assumed", "fitted"]
MAX_TIERS: Final = 8  # of a network
DEFAULT_SOURCE: Final = "the file itself"  # the source of a figure if a file names none


@dataclass(frozen=True, slots=True)
class Figure:
    """Number of a file with its source."""

    path: str  # dotted, such as "network.0.bandwidth"
    value: float  # SI
    unit: str
    source: str
    basis: Basis
    low: float | None = None  # interval of 90 % probability, if the file has one
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
    """Figure as written: a bare value, or a mapping with value, source, basis and interval."""

    unit: ClassVar[str] = ""
    example: ClassVar[object] = 0.5
    bound: ClassVar[Bound] = "positive"

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
    def _within_bounds(cls, raw: object) -> float:
        """Return the value; refuse what is not finite or outside of the bounds."""
        value = cls._read(raw)
        hint = f"write for instance {cls.example!r}"
        if not (0 < value < inf or (cls.bound == "zero" and value == 0)):
            allowed = "of at least 0" if cls.bound == "zero" else "above 0"
            raise ValueError(f"not a finite number {allowed}; {hint}")
        if cls.bound == "factor" and value < 1:
            raise ValueError(f"below 1, the least it can be; {hint}")
        if cls.bound == "share" and value > 1:
            raise ValueError(f"above 1, the most a share can be; {hint}")
        return value

    @field_validator("low", "high", mode="before")
    @classmethod
    def _interval_end(cls, raw: object) -> float | None:
        """Return an end of the interval, which is written like the value."""
        return None if raw is None else cls._within_bounds(raw)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        """Refuse a value outside of its interval."""
        low = self.low
        high = self.high
        if (low is not None and low > self.value) or (high is not None and high < self.value):
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


class Number(Entry):
    """Number of at least 0, in SI units."""

    bound = "zero"


class Factor(Entry):
    """Number of at least 1."""

    bound = "factor"
    example = 1.2


class Share(Entry):
    """Number above 0 and at most 1."""

    bound = "share"
    example = 0.7


class Count(Entry):
    """Positive whole number."""

    example = 64
    bound: ClassVar[Bound] = "count"

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
    bound = "zero"


class Size(Whole):
    """Whole number, 0 where no layer has what it is the size of."""

    example = 64


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
        return parse_quantity(raw, cls.unit)


PLAIN_NUMBERS: Final[dict[Bound, type[Entry]]] = {
    "positive": Amount,
    "zero": Number,
    "factor": Factor,
    "share": Share,
    "count": Count,
}


@cache
def entry_type(spec: FigureSpec) -> type[Entry]:
    """Return the class of a declared figure in a file."""
    if not spec.unit:
        return PLAIN_NUMBERS[spec.bound]
    attributes = {"unit": spec.unit, "bound": spec.bound, "example": UNIT_EXAMPLES[spec.unit]}
    return type("Quantity", (Quantity,), attributes | {"__module__": __name__, "__doc__": spec.meaning})


def figure_fields(part: type, *without: str) -> dict[str, Any]:
    """Return the figures of a dataclass as fields for `create_model`; those with a default are optional."""
    required = {item.name for item in fields(part) if item.default is MISSING}
    entries = {name: entry_type(spec) for name, spec in figure_specs(part).items() if name not in without}
    return {
        name: (entry, ...) if name in required else (entry | None, None) for name, entry in entries.items()
    }


class File(Part):
    """Keys of every file; `source` applies to all figures without their own."""

    name: Text
    title: Text | None = None
    source: Text = DEFAULT_SOURCE


def figures(part: Part) -> tuple[Figure, ...]:
    """Return every figure of a checked file or of a mapping in it, in the order of the schema."""
    return tuple(_walk_figures(part, "", getattr(part, "source", None) or DEFAULT_SOURCE))


def _walk_figures(items: Iterable[tuple[str | int, object]], prefix: str, source: str) -> Iterator[Figure]:
    """Yield the figures below a dotted path; `source` is that of figures without their own."""
    for key, item in items:
        path = f"{prefix}{key}"
        if isinstance(item, Entry):
            yield Figure(path, item.value, item.unit, item.source or source, item.basis, item.low, item.high)
        elif isinstance(item, Part):
            yield from _walk_figures(item, f"{path}.", getattr(item, "source", None) or source)
        elif isinstance(item, tuple):
            yield from _walk_figures(enumerate(item), f"{path}.", source)
