"""NumPy's elementwise functions for numbers and columns: numbers stay Python floats.

NumPy makes a `numpy.float64` of a float, and arithmetic with those is three times slower; one plan is
estimated with floats only. The results are the same to the bit.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np

from traincast.core.quantities import Bools, Column, Floats, Ints
from traincast.core.records import fields_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Value = TypeVar("Value", bound=np.generic)
NUMBERS: Final = (float, int)
TABLE: Final = 8  # entries, for each number, of the largest table that is looked up in place of a sort


def maximum(a: Column, b: Column) -> Column:
    """Return the larger of two numbers or columns."""
    if isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
        return a if a >= b else b
    return np.maximum(a, b)


def minimum(a: Column, b: Column) -> Column:
    """Return the smaller of two numbers or columns."""
    if isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
        return a if a <= b else b
    return np.minimum(a, b)


def where(condition: bool | Bools, a: Column, b: Column) -> Column:
    """Return a where the condition holds, else b."""
    if isinstance(condition, bool) and isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
        return a if condition else b
    return np.where(condition, a, b)


def floor(a: Column) -> Column:
    """Return the largest whole number that is not above a."""
    return a // 1.0 if isinstance(a, NUMBERS) else np.floor(a)


def ceil(a: Column) -> Column:
    """Return the smallest whole number that is not below a."""
    return -(-a // 1.0) if isinstance(a, NUMBERS) else np.ceil(a)


def sqrt(a: Column) -> Column:
    """Return the square root."""
    return math.sqrt(a) if isinstance(a, NUMBERS) else np.sqrt(a)


def sign(a: Column) -> Column:
    """Return -1, 0 or 1."""
    if isinstance(a, NUMBERS):
        return float(a > 0) - float(a < 0)
    return np.sign(a)


def log2(a: Column) -> Column:
    """Return the logarithm to base 2."""
    return float(np.log2(a)) if isinstance(a, NUMBERS) else np.log2(a)


def common_divisor(a: Column, b: Column) -> Column:
    """Return the greatest common divisor of whole numbers."""
    if isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
        return float(math.gcd(int(a), int(b)))
    return np.gcd(np.asarray(a, np.int64), np.asarray(b, np.int64)) * 1.0


def take_rows(column: Column, rows: Ints | Bools | slice) -> Column:
    """Return rows of a column, by a numpy index; a number stays as it is."""
    return column[rows] if isinstance(column, np.ndarray) else column


class TakesRows:
    """Base of dataclasses with slots, whose fields are numbers or columns."""

    __slots__: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every field, in order."""
        read, _ = fields_of(type(self))
        return read(self)

    def take(self, rows: Ints | Bools | slice) -> Self:
        """Return rows of the columns, by a numpy index; numbers stay as they are."""
        taken = [column[rows] if isinstance(column, np.ndarray) else column for column in self.columns]
        return type(self)(*taken)


def distinct_values(values: "NDArray[Value]") -> "NDArray[Value]":
    """Return the distinct values of an array, ascending, as `np.unique` does, which imports `numpy.ma`."""
    ordered = np.sort(values, axis=None)
    return np.asarray(ordered[np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)]])


def number_values(column: object) -> tuple[Floats | Ints, Ints]:
    """Return the distinct values of an array, ascending, and the place of each of its values among them."""
    column = np.asarray(column)
    whole = column.astype(np.int64, copy=False)
    most = TABLE * len(whole)
    if not most or whole.min() < 0 or whole.max() > most or (whole is not column and np.any(whole != column)):
        values = distinct_values(column)
        return values, np.searchsorted(values, column)
    there = np.zeros(whole.max() + 1, np.bool_)
    there[whole] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[whole]


def distinct(columns: Sequence[object], rows: int) -> tuple[Ints, Ints]:
    """Return the first of each kind of equal rows of columns, and the number of the kind of every row."""
    kind = np.zeros(rows, np.int64)
    kinds = 1
    for i, column in enumerate(columns):
        values, which = number_values(column)
        if kinds * len(values) > TABLE * rows:  # more than a table has place for
            used, kind = number_values(kind)
            kinds = len(used)
        kind = kind * len(values) + which if i else which
        kinds = kinds * len(values)
    if len(columns) != 1:
        used, kind = number_values(kind)
        kinds = len(used)
    first = np.empty(kinds, np.int64)
    first[kind[::-1]] = np.arange(rows)[::-1]
    return first, kind
