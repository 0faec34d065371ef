"""Errors raised on purpose; the command line turns each into one message and an exit code."""

from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from operator import index
from pathlib import Path
from reprlib import Repr
from typing import Any, Final, ParamSpec, TypeVar

Given = ParamSpec("Given")
Value = TypeVar("Value")
Wrong = TypeVar("Wrong")
MAX_LISTED_COLUMNS: Final = 140  # of the names that a message lists: two lines of a terminal
MAX_PROBLEMS: Final = 20  # that one message lists
MAX_LINE: Final = 1000  # characters of one problem; longer ones are cut in the middle
MAX_NAME: Final = 100  # characters of a name that others are compared with: difflib takes the square of it
CATALOGUE: Final = "traincast catalog"  # lists what IN_CATALOGUE names
IN_CATALOGUE: Final = ("model", "system", "accelerator", "stack", "assumptions")
MUST_BE_WHOLE: Final = "must be a whole number of at least 1"
MOST_DIGITS: Final = 1_000  # of a whole number that is read: Python 3.11 reads no more than 4,300
MAX_COUNT: Final = 1 << 30  # of whole numbers: far above any size of a model and any degree of a plan
MAX_VALUES: Final = {  # of some of them
    # The search tries all divisors; those of larger numbers take too long.
    "gpus": 1 << 22,
    "gbs": 1 << 24,
    "tokens": 10**15,  # of a batch: far beyond any machine
}


# What a terminal would take for a command; newlines and tabs pass.
CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


def printable(text: str) -> str:
    """Return a text with control characters written as escapes, as no terminal acts upon."""
    return text.translate(CONTROLS)


class TraincastError(Exception):
    """Base of every error raised on purpose; `exit_code` is what the command line returns."""

    exit_code = 2


class InputError(TraincastError, ValueError):
    """Input that cannot be used; the message names each wrong field and what is allowed.

    Parameters
    ----------
    subject : str
        What was being read, for instance a file path or ``"plan"``.
    problems : iterable of str
        One line for each mistake; of more than `MAX_PROBLEMS` the first are kept, and their number.
    """

    def __init__(self, subject: str, problems: Iterable[str]):
        self.subject = _shorten(subject)
        self.problems = tuple(_shorten(line) for line in first_problems(list(problems)))
        if len(self.problems) == 1:
            super().__init__(f"{self.subject}: {self.problems[0]}")
            return
        is_whole = not (self.problems and self.problems[-1].startswith("and "))
        number = f"{len(self.problems)} problems" if is_whole else "these problems"
        super().__init__("\n  ".join((f"{self.subject}: {number}", *self.problems)))

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, tuple[str, ...]]]:
        return type(self), (self.subject, self.problems)  # errors of other processes arrive whole


def _shorten(line: str) -> str:
    """Return a line without its middle where it is too long to be read."""
    if len(line) <= MAX_LINE:
        return line
    half = MAX_LINE // 2
    return f"{line[:half]} … {line[-half:]}"


def first_problems(wrong: Collection[Wrong], line: Callable[[Wrong], str] = str) -> list[str]:
    """Return a line for each of the first mistakes, `MAX_PROBLEMS` at most; the last says how many more.

    Parameters
    ----------
    wrong
        What is wrong, for instance unknown keys.
    line
        Describes one of them; it is called for those alone that are shown.

    Examples
    --------
    >>> first_problems(["a", "b"], "{}: unknown".format)
    ['a: unknown', 'b: unknown']
    """
    if len(wrong) <= MAX_PROBLEMS:
        return [line(each) for each in wrong]
    shown = MAX_PROBLEMS - 1
    return [*(line(each) for each in islice(wrong, shown)), f"and {len(wrong) - shown:,} more"]


def raise_problems(subject: str, problems: Collection[str]) -> None:
    """Raise an `InputError` with the problems, if there are any."""
    if problems:
        raise InputError(subject, problems)


class NothingFits(TraincastError):
    """No candidate of a search fits; the message holds the nearest miss and what would make it fit."""

    exit_code = 1


EXTRA_OF: Final = {  # module -> the extra of traincast that brings it
    "polars": "results",
    "scipy": "calibration",
    "matplotlib": "figures",
    "jinja2": "html",
    "starlette": "explorer",
    "uvicorn": "explorer",
    "dask": "dask",
    "distributed": "dask",
    "mpi4py": "mpi",
}


class MissingExtra(TraincastError, ImportError):
    """A library is not installed that only some commands and functions need; the message names its extra."""

    @classmethod
    def from_import_error(cls, error: ImportError) -> "MissingExtra | None":
        """Return the error for a failed import; None where the module belongs to no extra."""
        module = (error.name or "").split(".")[0]
        if module not in EXTRA_OF:
            return None
        return cls(f"{module} is not installed: pip install 'traincast[{EXTRA_OF[module]}]'")


class ErrorCollector:
    """Collection of input errors of several arguments, raised together as one error."""

    def __init__(self, subject: str):
        self.subject = subject
        self.errors: list[InputError] = []

    def catch(
        self, function: Callable[Given, Value], *args: Given.args, **kwargs: Given.kwargs
    ) -> Value | None:
        """Return the result of a function; None if it raises `InputError`, which is collected."""
        try:
            return function(*args, **kwargs)
        except InputError as error:
            if error.problems:  # else what is wrong was collected before
                self.errors.append(error)
            return None

    def add(self, problems: Collection[str], subject: str = "") -> None:
        """Collect problems, if there are any, of the collector's subject or another one."""
        if problems:
            self.errors.append(InputError(subject or self.subject, problems))

    def raise_any(self) -> None:
        """Raise the collected errors, if any: a single one unchanged, several as one with a line for each."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            problems = [(error.subject, problem) for error in self.errors for problem in error.problems]
            lines = [
                problem if subject == self.subject else f"{subject}: {problem}"
                for subject, problem in problems
            ]
            raise InputError(self.subject, dict.fromkeys(lines))

    def require(self, value: Value | None) -> Value:
        """Return a value that `catch` returned if nothing was collected; else raise what was."""
        self.raise_any()
        assert value is not None
        return value


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number of at least 1; 4.0 and True are not."""
    if type(value) is int:  # far faster than the general case
        return value >= 1
    try:
        return not isinstance(value, bool) and index(value) >= 1
    except TypeError:  # no number, or several in an array
        return False


def parse_whole(text: str) -> int | None:
    """Read a whole number in decimal digits; None for other text, and for more than `MOST_DIGITS`.

    >>> parse_whole("16"), parse_whole("1.6")
    (16, None)
    """
    if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS:
        return int(text)
    return None


class _ShortRepr(Repr):
    """`reprlib.Repr` with a text for numbers of more digits than Python writes.

    Python 3.13 raises ValueError for them, and 3.14 writes their address.
    """

    def repr_int(self, number: int, level: int) -> str:
        if abs(number) >= 10**MOST_DIGITS:
            return "int too long to be written"
        return super().repr_int(number, level)


def shortened(value: object) -> str:
    """Return what `repr` says of a value, of a long one the beginning and the end."""
    return _ShortRepr().repr(value)


def whole_number_problems(name: str, value: Any, most: int | None = None) -> list[str]:
    """Return what is wrong with a number that must be whole, at least 1 and not beyond any use.

    Parameters
    ----------
    name
        What the number is.
    value
        The number, or anything else that was given for it.
    most
        The largest that is allowed; None for that of the name in `MAX_VALUES`, or else `MAX_COUNT`.
    """
    if most is None:
        most = MAX_VALUES.get(name, MAX_COUNT)
    if type(value) is int and 1 <= value <= most:  # the usual case
        return []
    if not is_whole(value):
        return [f"{name} = {shortened(value)}: {MUST_BE_WHOLE}"]
    if value > most:
        return [f"{name} = {shortened(value)}: must be at most {most:,}"]
    return []


def type_problems(name: str, value: object, allowed: str, *kinds: type) -> list[str]:
    """Return what is wrong with an argument if its type is not among `kinds`; else an empty list."""
    return [] if isinstance(value, kinds) else [f"{name} = {shortened(value)}: must be {allowed}"]


def require_type(name: str, value: object, allowed: str, *kinds: type) -> None:
    """Raise an `InputError` if the type of an argument is not among `kinds`."""
    raise_problems(name, type_problems(name, value, allowed, *kinds))


def require_path(name: str, value: object) -> Path:
    """Return the path of a file, or raise an `InputError` if the argument is none."""
    if not isinstance(value, str | Path):
        raise InputError(name, type_problems(name, value, "the path of a file", str, Path))
    return Path(value)


def require_known(kind: str, name: object, known: Collection[str]) -> None:
    """Raise an `InputError` unless a name is in `known`."""
    if not isinstance(name, str) or name not in known:
        raise unknown_name_error(kind, name, known)


def unknown_name_error(kind: str, name: object, known: Iterable[str], hint: str = "") -> InputError:
    """Return an `InputError` for a name that is not in `known`, with close matches or else all names."""
    close = close_to(name, known, CATALOGUE if kind.split(",")[0] in IN_CATALOGUE else "")
    return InputError(f"unknown {kind} {name!r}", [close + (f" ({hint})" if hint else "")])


def close_to(name: object, known: Iterable[str], where: str = "") -> str:
    """Return a hint with the names of `known` that are close to a misspelt one, or else `some_of` them."""
    names = sorted(known)
    if len(str(name)) > MAX_NAME:
        return f"known: {some_of(names, where)}"
    close = get_close_matches(str(name).lower(), names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {some_of(names, where)}"


def some_of(names: Sequence[str], where: str = "") -> str:
    """Return names with commas, in two lines at most; then how many more there are, and `where`.

    >>> some_of(["1d", "ring"])
    '1d, ring'
    """
    shown = len(names)
    columns = 0
    for place, name in enumerate(names):
        columns += len(name) + len(", ")
        if columns > MAX_LISTED_COLUMNS and place < len(names) - 1:
            shown = place
            break
    if shown == len(names):
        return ", ".join(names)
    return f"{', '.join(names[:shown])} … and {len(names) - shown:,} more{f' ({where})' if where else ''}"
