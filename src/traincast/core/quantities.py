"""Columns (a number, or an array of them), and the declaration of a figure: unit, meaning and bounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from traincast.core.errors import MUST_BE_WHOLE, is_whole, shortened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column: TypeAlias = float | NDArray[np.float64]  # a number, or a column of them
    Floats: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]
else:
    Column = Floats = Ints = Bools = float  # names for annotations only: numpy is not imported for them

Class = TypeVar("Class", bound=type)
Bound: TypeAlias = Literal["positive", "zero", "share", "factor", "count"]
NO_NUMBERS: Final = (bool, str, bytes, list, tuple, dict)
BOUNDS: Final[Mapping[Bound, str]] = {  # the numbers that a figure may have
    "positive": "must be above 0",
    "zero": "must be at least 0",
    "share": "must be above 0",
    "factor": "must be at least 1",
    "count": MUST_BE_WHOLE,
}


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """Declaration of a figure, the `Annotated` metadata of a dataclass field.

    Schema of files, table of quantities, sweeps, documentation and priors of a calibration come from it.
    """

    unit: str  # SI; empty for a plain number
    meaning: str  # of a tier with {tier} ("the second tier") or {inside} ("inside a fast domain")
    bound: Bound = "positive"
    varies: bool = True  # whether it can be a column over machines
    spread: float | None = None  # standard deviation of the logarithm between sites, if calibration fits it
    inner_only: str = ""  # of a tier: why only the innermost has it
    outer_only: str = ""  # why the innermost has none

    @property
    def highest(self) -> float:
        """Largest value in a file, and of a fit."""
        return 1.0 if self.bound == "share" else float("inf")

    @property
    def lowest(self) -> float:
        """Bound that no value is below."""
        return 1.0 if self.bound in ("factor", "count") else 0.0

    def problems(self, name: str, value: object) -> list[str]:
        """Return what is wrong with a value, one line or none. Symbols and numbers with units pass."""
        if type(value) is float and self.bound in ("positive", "zero", "share") and value > 0:
            return []  # the usual case
        if value is None or (isinstance(value, NO_NUMBERS) and self.bound != "count"):
            unit = f" in {self.unit}" if self.unit else ""
            return [f"{name} = {shortened(value)}: must be a number{unit}"]
        if isinstance(value, (int, float, *NO_NUMBERS)) or hasattr(value, "dtype"):
            allowed = self._allows(value)
            if not (allowed.all() if hasattr(allowed, "all") else allowed):
                return [f"{name} = {shortened(value)}: {BOUNDS[self.bound]}"]
        return []

    def _allows(self, value: Any) -> Any:
        """Return whether numbers are within the bounds; in a what-if a share may be above 1."""
        if self.bound == "count" and not hasattr(value, "dtype"):
            return is_whole(value) or (isinstance(value, float) and value >= 1 and value.is_integer())
        return {"factor": value >= 1, "zero": value >= 0}.get(self.bound, value > 0)


def _specs_of(part: type) -> Mapping[str, FigureSpec]:
    """Return the declaration of every figure of a dataclass, by field name."""
    metadata = {field.name: getattr(field.type, "__metadata__", (None,))[0] for field in fields(part)}
    return {name: spec for name, spec in metadata.items() if isinstance(spec, FigureSpec)}


def _optional_fields(part: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(part) if field.default is None)


figure_specs: Callable[[type], Mapping[str, FigureSpec]] = cache(_specs_of)
_may_be_missing: Callable[[type], frozenset[str]] = cache(_optional_fields)


def figure_problems(part: object) -> list[str]:
    """Return a line for each figure of a dataclass whose value is not allowed."""
    missing = _may_be_missing(type(part))
    values = {name: (spec, getattr(part, name)) for name, spec in figure_specs(type(part)).items()}
    checked = {name: item for name, item in values.items() if item[1] is not None or name not in missing}
    return [problem for name, (spec, value) in checked.items() for problem in spec.problems(name, value)]


class ColumnsEqual:
    """Base of values whose fields may be columns: equal where all are; the hash leaves columns out."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = _compared(type(self))
        return self is other or all(_equal(getattr(self, name), getattr(other, name)) for name in names)

    def __hash__(self) -> int:
        values = (getattr(self, name) for name in _compared(type(self)))
        return hash(tuple(value for value in values if not hasattr(value, "dtype")))


def _compared_fields(part: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass that equality compares."""
    return tuple(field.name for field in fields(part) if field.compare)


_compared: Callable[[type], tuple[str, ...]] = cache(_compared_fields)


def _equal(left: object, right: object) -> bool:
    """Return whether two numbers, columns or other values are equal."""
    if getattr(left, "shape", ()) != getattr(right, "shape", ()):
        return False
    same = left == right
    return bool(same.all() if hasattr(same, "all") else same)


def document_figures(part: Class) -> Class:
    """Append the figures of a dataclass to its docstring (decorator)."""
    lines = [
        f"{name} : {spec.meaning}{f' [{spec.unit}]' if spec.unit else ''}"
        for name, spec in figure_specs(part).items()
    ]
    part.__doc__ = "\n    ".join((str(part.__doc__).rstrip(), "", "Figures", "-------", *lines, ""))
    return part


def nonzero(value: "Column") -> bool:
    """Return whether a number, or any number of a column, is not 0."""
    any_of_column = getattr(value, "any", None)
    return bool(any_of_column() if any_of_column else value)


def plain(value: "Column") -> "Column":
    """Return a number as a Python float, a column unchanged."""
    return value if getattr(value, "ndim", 0) else float(value)
