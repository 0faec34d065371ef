"""Pages of the documentation as they are read in a terminal: no line is wider than it is."""

import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from traincast.ui.text.tables import Parts, table, title_line, width

FENCE: Final = "```"
COMMENT: Final = re.compile(r"<!--.*?-->\n?", re.DOTALL)  # for the tools that write the page
ITEM: Final = re.compile(r"\s*(?:[-*]|\d+\.) ")  # begin of an item of a list
RULE: Final = re.compile(r"\s*\|[\s|:-]+\|\s*")  # between the head of a table and its rows
CELLS: Final = re.compile(r"(?<!\\)\|")


def page(text: str) -> Parts:
    """Show a page in Markdown: sentences and tables laid out anew, code as it is where it fits."""
    for kind, lines in blocks(COMMENT.sub("", text).strip().splitlines()):
        if kind == "code":
            yield from map(_break_code, lines)
        elif kind == "table":
            head, *rows = (cells(line) for line in lines if not RULE.fullmatch(line))
            every = range(len(head))
            yield table(head, [row[: len(head)] for row in rows], left=every, wrap=every)
        elif kind == "heading":
            yield title_line(lines[0])
        else:
            yield from map(_wrap, paragraphs_of(lines))


def blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of a page in order: code with its fences, tables, headings, sentences."""
    fenced = False
    kinds = list[str]()
    for line in lines:
        is_fence = line.strip().startswith(FENCE)
        if fenced or is_fence or line.startswith("    "):
            kinds.append("code")
            fenced ^= is_fence
        elif line.lstrip().startswith("|"):
            kinds.append("table")
        else:
            kinds.append("heading" if line.startswith("#") else "sentences")
    for kind, group in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        of_kind = [line for _, line in group]
        if kind == "heading":
            yield from ((kind, [line]) for line in of_kind)
        else:
            yield kind, of_kind


def cells(line: str) -> list[str]:
    """Return the cells of a row of a table."""
    return [cell.strip().replace(r"\|", "|") for cell in CELLS.split(line.strip().strip("|"))]


def paragraphs_of(lines: list[str]) -> Iterator[str]:
    """Yield paragraphs and items of lists, each as one line, and empty lines."""
    joined = ""
    for line in lines:
        if joined and line.strip() and not ITEM.match(line):
            joined = f"{joined} {line.strip()}"
            continue
        if joined:
            yield joined
        joined = line.rstrip()
        if not joined:
            yield ""
    if joined:
        yield joined


def _wrap(line: str) -> str:
    """Return a paragraph, or an item of a list, in lines of the width."""
    marker = ITEM.match(line)
    indent = " " * (marker.end() if marker else 0)
    return textwrap.fill(line, width(), subsequent_indent=indent, break_on_hyphens=False)


def _break_code(line: str) -> str:
    """Return a line of code in as many lines as the width takes."""
    if len(line) <= width():
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(
        line, width(), subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=False
    )
