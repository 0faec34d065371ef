"""Terminal output: headings, wrapped sentences and borderless tables, readable at 80 columns."""

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from traincast.core import printable
from traincast.ui.terminal_width import columns_of

WRAPPED: Final = 16  # columns that a column which is broken over lines takes at least, if it has so many
BOLD: Final = "bold"  # style of titles and headings
# Blanks where no line ends: after a number, unless a knob such as tp=8 follows, after a colon, and around ×.
KEPT: Final = re.compile(r"(?<=\d) (?!\S*=)|(?<=[:×]) | (?=×)")
NO_BREAK: Final = "\u00a0"
Parts: TypeAlias = Iterator[RenderableType]  # what is printed, one below the other


def width() -> int:
    """Return the width to print in: `COLUMNS`, else that of the terminal, else 80."""
    return columns_of(sys.stdout)


def show(*parts: Iterable[RenderableType]) -> None:
    """Print parts of an answer on standard output."""
    out = Console(width=width(), highlight=False, markup=False, emoji=False)
    for part in parts:
        for item in part:
            # text has its lines already
            out.print(_lines(_printable(item)), soft_wrap=isinstance(item, str | Text))


def _printable(item: RenderableType) -> RenderableType:
    """Return text of names in files as no terminal acts upon; other parts unchanged."""
    return printable(item) if isinstance(item, str) else item


def _lines(item: RenderableType) -> RenderableType:
    """Return text in lines that are no wider than the terminal; other parts unchanged."""
    if not isinstance(item, str) or max(map(len, item.splitlines()), default=0) <= width():
        return item
    return "\n".join(
        line if len(line) <= width() else "".join(paragraphs(line)) for line in item.splitlines()
    )


def title_line(text: str) -> Text:
    """Return a line in bold."""
    return Text("\n".join(paragraphs(printable(text))), style=BOLD)


def heading(text: str) -> Text:
    """Return the title of a section, in bold, after an empty line."""
    return title_line(f"\n{text}")


def note(text: str) -> Text:
    """Return a remark in dim letters, wrapped as `paragraphs` are."""
    return Text("\n".join(paragraphs(text)), style="dim")


def paragraphs(*lines: str, columns: int | None = None, title: str = "") -> Iterator[str]:
    """Yield sentences wrapped to the width, further lines indented slightly deeper than the first.

    The width is `columns`, by default that of standard output. No number is torn from what it counts, and no
    name from its value. Each line begins with `title`, where there is one: it is never torn, and may stand
    alone before what is too long to stand beside it.
    """
    start = f"{title.replace(' ', NO_BREAK)}: " if title else ""
    for line in printable("\n".join(lines)).splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        shape: dict[str, Any] = {"initial_indent": indent, "subsequent_indent": f"{indent}  "}
        shape |= {"break_on_hyphens": False, "break_long_words": True}  # only what is longer than a line
        whole = start + KEPT.sub(NO_BREAK, line.strip())
        yield textwrap.fill(whole, columns or width(), **shape).replace(NO_BREAK, " ")


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    *,
    left: Sequence[int] = (0,),
    wrap: Sequence[int] = (),
    style: Callable[[int], str | None] = lambda row: None,
    gap: int = 2,
) -> Table:
    """Return a table without borders.

    Columns align right but for those in `left`; only those in `wrap` are broken over lines. Where the table
    is wider than the terminal, columns stand closer, and those in `left` are broken as well. Without any name
    there is no header. `style` is that of a row by its index.
    """
    rows = [list(row) for row in rows]
    columns = max(map(len, [names, *rows]))
    if _columns_of(names, rows, wrap) + gap * (columns - 1) > width():
        gap = 1
    is_narrow = _columns_of(names, rows, wrap) + gap * (columns - 1) > width()
    if is_narrow:
        wrap = (*wrap, *left)
    look: dict[str, Any] = {"header_style": "dim", "pad_edge": False, "padding": (0, gap, 0, 0)}
    result = Table(box=None, show_header=any(names), **look)
    for i, name in enumerate(names):
        wraps: dict[str, Any] = {
            "no_wrap": i not in wrap,
            "overflow": "fold" if i in wrap or is_narrow else "ellipsis",
        }
        result.add_column(name, justify="left" if i in left else "right", **wraps)
    for i, row in enumerate(rows):
        result.add_row(*map(_printable, row), style=style(i))
    return result


def _columns_of(names: Sequence[str], rows: Iterable[Sequence[RenderableType]], wrap: Sequence[int]) -> int:
    """Return the least widths of a table's columns together; only those in `wrap` are broken over lines."""
    cells = [list(map(str, row)) for row in (names, *rows)]
    widths = [
        max(max(map(len, cell.splitlines()), default=0) for cell in column)
        for column in zip_longest(*cells, fillvalue="")
    ]
    return sum(min(columns, WRAPPED) if i in wrap else columns for i, columns in enumerate(widths))
