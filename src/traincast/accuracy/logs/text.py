"""Text of logs: lines without colours and rank prefixes, and numbers in the notations of locales."""

import re
from pathlib import Path
from typing import Final

from traincast.catalog import read_bytes
from traincast.core import InputError

MAX_WHOLE: Final = 1e15  # above any count that a setting states
_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK: Final = re.compile(
    r"\s*(?:(?:\[(?:default|rank|Rank )?(\d{1,7})\]|\[\d+,(\d{1,7})\]<std(?:out|err)>):|(\d{1,7}):(?=\s)) ?"
)
_BLANKS: Final = re.compile("[ \u00a0\u202f\u2009'’_](?=\\d{3}(?!\\d))")  # between groups of three digits
_COMMA_GROUPS: Final = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_POINT_GROUPS: Final = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+,\d+")


def content(path: Path) -> str:
    """Read a file without colours: UTF-8, or UTF-16 with a byte order mark; invalid bytes are replaced."""
    try:
        data = read_bytes(path)
    except ValueError as error:
        raise InputError(str(path), [str(error)]) from None
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace")
    if not text.strip("\0 \t\r\n"):
        raise InputError(str(path), ["the file is empty"])
    return _COLOUR.sub("", text)


def lines(text: str) -> list[tuple[str, str]]:
    """Split a log into (rank of the prefix or "", line); progress bars end lines with a return."""
    ranked_lines = []
    for line in re.split(r"\r\n|[\r\n]", text):
        prefix = _RANK.match(line)
        rank = next(group for group in prefix.groups() if group is not None) if prefix else ""
        ranked_lines.append((rank, line[prefix.end() :] if prefix else line))
    return ranked_lines


def number(text: str) -> float | None:
    """Parse a number of a log; None where it is none, or not finite.

    A comma or point between groups of three digits is a separator of thousands where it can be one
    (``"6,667"`` is 6667, ``"1.234,5"`` is 1234.5), else a comma is a decimal one (``"12,5"``). Blanks and
    apostrophes between groups go.
    """
    digits = _BLANKS.sub("", text.strip())
    if _COMMA_GROUPS.fullmatch(digits):
        digits = digits.replace(",", "")
    elif _POINT_GROUPS.fullmatch(digits):
        digits = digits.replace(".", "").replace(",", ".")
    else:
        digits = digits.replace(",", ".")
    if not re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", digits):
        return None
    value = float(digits)
    return value if abs(value) < float("inf") else None


def whole_number(value: object) -> int | None:
    """Parse a whole number of at least 1, None where a setting is none."""
    if isinstance(value, bool) or value is None:
        return None
    parsed = number(str(value))
    return int(parsed) if parsed is not None and 1 <= parsed <= MAX_WHOLE and parsed == int(parsed) else None


def truth(value: object) -> bool:
    """Return whether a setting is on, as Python, YAML and JSON write it."""
    return str(value).strip().strip("'\"").lower() in ("true", "1", "yes", "on")
