"""Rendering of reports and cards with the Jinja2 templates of this package, which escape every value."""

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from traincast.core import (
    Column,
    InputError,
    Plan,
    __version__,
    atomic_output,
    check_output,
    count_of,
    gib,
    percent,
)
from traincast.planner import component_label
from traincast.ui.html.svg import drawing

LINK_PATTERN: Final = re.compile(r"arXiv[: ](\d{4}\.\d{4,5})|https?://[^\s<>\"'()]*[^\s<>\"'().,;:]")
MAX_TABLE_ROWS: Final = 400  # further rows are cut
Tiles = Iterable[tuple[str, str, str]]  # name, value and remark of each key figure
Pairs = Iterable[tuple[str, object]]


@cache
def environment() -> Environment:
    """Return the templates; the macros of `elements.html.jinja` are known in all of them."""
    templates = Environment(
        loader=PackageLoader("traincast", "ui/html/templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    templates.globals["drawing"] = drawing
    templates.filters |= {"linked": link_addresses, "gib": gib, "count_of": count_of, "percent": percent}
    templates.tests["bar"] = lambda cell: isinstance(cell, Bar)
    macros: object = templates.get_template("elements.html.jinja").module
    templates.globals |= {
        name: getattr(macros, name) for name in ("table", "tiles", "pairs", "bullets", "folded")
    }
    return templates


class Bar(float):
    """A share of a whole, drawn as a bar in a table."""


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    Cells of the first column and of `text_columns` are aligned to the left. On a narrow screen, rows of a
    table that `flows` break into lines of named cells; others scroll sideways.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    text_columns: Collection[str] = ()
    flows: bool = False

    @property
    def cut(self) -> str:
        """Remark on rows that are not shown."""
        total = len(self.rows)
        return f" (the first {MAX_TABLE_ROWS:,} of {total:,} rows)" if total > MAX_TABLE_ROWS else ""

    @property
    def shown_rows(self) -> Sequence[Sequence[object]]:
        """Rows that are shown."""
        return self.rows[:MAX_TABLE_ROWS]


def share_table(
    caption: str,
    what: str,
    parts: Mapping[str, Column],
    form: Callable[[float], str],
    total: float,
    plan: Plan,
) -> Table:
    """Return a table of the parts of a total, each with its share as number and bar."""
    values = [(name, float(value), float(value) / total) for name, value in parts.items() if value]
    rows = [
        (component_label(name, plan), form(value), percent(share), Bar(share))
        for name, value, share in values
    ]
    return Table(caption, ("part", what, "share", ""), rows, ("",))


def link_addresses(text: str) -> Markup:
    """Return text with links in place of web addresses and arXiv numbers."""
    parts = []
    end = 0
    for match in LINK_PATTERN.finditer(text):
        address = f"https://arxiv.org/abs/{match[1]}" if match[1] else match[0]
        link = Markup('<a href="{}">{}</a>').format(address, match[0])
        parts += [text[end : match.start()], link]
        end = match.end()
    return Markup("").join((*parts, text[end:]))


@dataclass(frozen=True)
class Page:
    """A report: one HTML file without scripts and external resources."""

    kind: str  # of report, above the title
    title: str  # model, machine and number of GPUs, or what else the report is on
    remarks: Sequence[str]  # below the title: batch, assumptions, calibration
    template: str  # of the answer and of the sections below it
    content: Mapping[str, Any] = field(default_factory=dict)  # variables of the template
    fits: bool = True  # whether the plan fits; otherwise the answer is marked

    def document(self, command: str | None = None) -> str:
        """Return the page as HTML; `command` is the command line that repeats it."""
        sections: list[tuple[str, str, str]] = []

        def section(key: str, title: str, content: str = "", caller: Callable[[], str] = str) -> str:
            sections.append((key, title, content or caller()))
            return ""

        template = environment().get_template(self.template)
        frame = {"page": self, "sections": sections, "section": section, "command": command}
        return template.render(self.content, **frame, today=_today(), version=__version__) + "\n"


def write_page(page: Page, path: Path, command: str | None = None) -> None:
    """Write a report atomically, with the command line that repeats it; an existing file is replaced."""
    check_output(path, True, (".html",))
    with atomic_output(path) as partial:
        partial.write_bytes(page.document(command).encode("utf-8", errors="replace"))


def _today() -> str:
    """Return today's date (UTC), or that of SOURCE_DATE_EPOCH, which makes reports reproducible."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", str(int(time.time())))
    try:
        return datetime.fromtimestamp(int(epoch), UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        problem = f"{epoch!r}: must be a time in seconds since 1970, such as 1767225600"
        raise InputError("SOURCE_DATE_EPOCH", [problem]) from None
