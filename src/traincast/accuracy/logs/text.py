"""Text of logs: lines without colours and rank prefixes, and numbers as people and locales write them."""

import re
from pathlib import Path
from typing import Final

from traincast.catalog.documents import raw
from traincast.core.errors import InputError

_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK: Final = re.compile(r"\s*(?:(?:\[(?:default|rank|Rank )?(\d{1,7})\]|\[\d+,(\d{1,7})\]<std(?:out|err)>):|(\d{1,7}):(?=\s)) ?")
_BLANKS: Final = re.compile("[ \u00a0\u202f\u2009'’_](?=\\d{3}(?!\\d))")  # between groups of three digits
_GROUPS: Final = {",": re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?"), ".": re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+,\d+")}


def content(path: Path) -> str:
    """Text of a file without colours: UTF-8, or UTF-16 with a byte order mark; bytes that are no text are replaced.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InputError
        If it cannot be read or holds nothing.
    """
    try:
        found = raw(path)
    except ValueError as error:
        raise InputError(str(path), [str(error)]) from None
    wide = found.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = found.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    if not text.strip("\0 \t\r\n"):
        raise InputError(str(path), ["the file is empty"])
    return _COLOUR.sub("", text)


def lines(text: str) -> list[tuple[str, str]]:
    """Lines of a log, each with the rank that wrote it, ``""`` where no prefix says so; progress bars end theirs with a return."""
    found = []
    for line in re.split(r"\r\n|[\r\n]", text):
        prefix = _RANK.match(line)
        rank = next(group for group in prefix.groups() if group is not None) if prefix else ""
        found.append((rank, line[prefix.end() :] if prefix else line))
    return found


def number(text: str) -> float | None:
    """A number as logs write it; None where it is none, or not finite.

    A comma or point that parts groups of three digits is a separator of thousands where it can be one (``"6,667"`` is 6667,
    ``"1.234,5"`` is 1234.5), else a comma is a decimal one (``"12,5"``). Blanks and apostrophes between groups go as well.

    Parameters
    ----------
    text : str
        What stands in the log.
    """
    digits = _BLANKS.sub("", text.strip())
    if _GROUPS[","].fullmatch(digits):
        digits = digits.replace(",", "")
    elif _GROUPS["."].fullmatch(digits):
        digits = digits.replace(".", "").replace(",", ".")
    else:
        digits = digits.replace(",", ".")
    if not re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", digits):
        return None
    value = float(digits)
    return value if abs(value) < float("inf") else None


def whole(value: object) -> int | None:
    """A whole number from 1 to 10^15 out of a setting, None where it is none."""
    if isinstance(value, bool) or value is None:
        return None
    found = number(str(value))
    return int(found) if found is not None and 1 <= found <= 1e15 and found == int(found) else None


def truth(value: object) -> bool:
    """Whether a setting is on, as Python, YAML and JSON write it."""
    return str(value).strip().strip("'\"").lower() in ("true", "1", "yes", "on")
