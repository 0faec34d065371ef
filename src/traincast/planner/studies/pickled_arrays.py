"""Reading of ``.npy`` files with pickled content that others wrote, without running anything they say.

A pickle names classes and calls them. Here the only names that exist are those that numpy pickles arrays and
numbers with, and each stands for a class of this module that holds plain Python values: no object of numpy
is built from what a file says of it.
"""

import io
import pickle
import pickletools
from math import prod
from tokenize import TokenError
from typing import Any, Final

import numpy as np

from traincast.core import printable

MAX_AXES: Final = 2  # of an array; the files of arXiv 2410.00273's code have two
NUMBERS: Final = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
OBJECTS: Final = frozenset({"O", "O8"})
MEMO_OPCODES: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})  # their argument sizes the reader's memo


def pickled_rows(data: bytes) -> object:
    """Return the content of a ``.npy`` file as lists, tuples, mappings and numbers.

    Parameters
    ----------
    data
        The bytes of the file.

    Raises
    ------
    ValueError
        If it is no ``.npy`` file with pickled content, or holds anything but arrays of at most two axes,
        lists, tuples, mappings, texts and numbers.
    """
    file = io.BytesIO(data)
    try:
        _skip_header(file)
        _refuse_large_memos(file)
        return _PlainUnpickler(file).load()
    except (
        ArithmeticError,
        AttributeError,
        EOFError,
        ImportError,
        LookupError,
        TypeError,
        TokenError,  # numpy 2.4 splits a header that it cannot read into tokens, as Python 2 wrote it
        pickle.UnpicklingError,
    ) as error:
        raise ValueError(printable(str(error))) from None


def _skip_header(file: io.BytesIO) -> None:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        np.lib.format.read_array_header_1_0(file)
    elif version in {(2, 0), (3, 0)}:
        np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not known")


def _refuse_large_memos(file: io.BytesIO) -> None:
    """Raise ValueError where a pickle asks for a memo longer than itself; leave the file where it was."""
    start = file.tell()
    length = len(file.getvalue()) - start
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name in MEMO_OPCODES and not 0 <= int(argument or 0) <= length:
            raise ValueError(f"memo {argument} in a file of {length:,} bytes")
    file.seek(start)


class _PlainUnpickler(pickle.Unpickler):
    """Unpickles arrays and numbers of numpy as lists and numbers of Python, and refuses every other name."""

    def find_class(self, module: str, name: str) -> object:
        known: dict[tuple[str, str], Any] = {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Type}
        for core in ("numpy.core.multiarray", "numpy._core.multiarray"):  # numpy 1 and numpy 2
            known |= {(core, "_reconstruct"): _empty_array, (core, "scalar"): _number}
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is none of arrays and numbers")
        return known[module, name]


class _Type:
    """The type of an array's elements: a number by its name and byte order, or any object."""

    def __init__(self, name: str, *_: Any) -> None:
        if not isinstance(name, str) or name not in NUMBERS | OBJECTS:
            raise pickle.UnpicklingError(
                f"elements of type {str(name)[:40]!r} are neither numbers nor objects"
            )
        self.name = name
        self.byte_order = "="

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, byte_order, subarray, names, fields = state[:5]
        if not (subarray is None and names is None and fields is None):
            raise pickle.UnpicklingError("elements with fields or axes of their own are not numbers")
        if byte_order not in {"<", ">", "=", "|"}:
            raise pickle.UnpicklingError(f"byte order {str(byte_order)[:40]!r} is not known")
        self.byte_order = byte_order

    def numbers(self, data: bytes) -> list[object]:
        """Return the numbers in some bytes."""
        if self.name in OBJECTS or not isinstance(data, bytes):
            raise pickle.UnpicklingError("the numbers of an array are not bytes")
        numbers: list[object] = np.frombuffer(data, self.byte_order + self.name).tolist()
        return numbers


class _Array(list[Any]):
    """An array as a list, of lists where it has two axes."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, elements, is_fortran, content = state
        if not isinstance(elements, _Type) or is_fortran:
            raise pickle.UnpicklingError("an array is neither of numbers nor of objects, row by row")
        is_objects = elements.name in OBJECTS
        values = list(content) if is_objects else elements.numbers(content)
        if len(shape) > MAX_AXES or prod(shape) != len(values):
            raise pickle.UnpicklingError(f"{len(values)} elements are no array of shape {str(shape)[:40]}")
        if len(shape) < MAX_AXES or not values:
            self[:] = values
            return
        row = shape[1]
        self[:] = [values[start : start + row] for start in range(0, len(values), row)]


def _empty_array(*_: object) -> _Array:
    """Return an array without elements, which the pickle fills; arguments are class, shape and type."""
    return _Array()


def _number(elements: _Type, data: bytes) -> object:
    """Return the one number in some bytes."""
    if not isinstance(elements, _Type):
        raise pickle.UnpicklingError("a number has no type")
    numbers = elements.numbers(data)
    if len(numbers) != 1:
        raise pickle.UnpicklingError(f"{len(data)} bytes are not one number")
    return numbers[0]
