"""HTML elements; text is escaped where it enters an element."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from traincast.core.quantities import Column
from traincast.planner.misfit import label

VOID_ELEMENTS: Final = frozenset({"meta", "br", "col", "hr"})
LINK_PATTERN: Final = re.compile(r"arXiv[: ](\d{4}\.\d{4,5})|https?://[^\s<>\"'()]*[^\s<>\"'().,;:]")


class Html(str):
    """A string of markup, which is not escaped again."""

    __slots__ = ()


def markup(content: object) -> Html:
    """Return content as markup: text is escaped, markup is left as it is."""
    return content if isinstance(content, Html) else Html(escape(str(content)))


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Join pieces of content, escaping text."""
    return Html(escape(between).join(markup(part) for part in parts))


def element(name: str, /, *content: object, **attributes: object) -> Html:
    """Return an element.

    Parameters
    ----------
    name : str
        Tag name.
    *content
        Children; text is escaped.
    **attributes
        Attributes, escaped; one that is None or False is left out. ``class_`` is ``class``, ``aria_label`` is ``aria-label``.
    """
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(
        f"<{name}{attributes_text}>"
        if name in VOID_ELEMENTS
        else f"<{name}{attributes_text}>{joined(content)}</{name}>"
    )


def linked(text: str) -> Html:
    """Return text with links in place of web addresses and arXiv numbers."""
    parts, end = [], 0
    for match in LINK_PATTERN.finditer(text):
        address = f"https://arxiv.org/abs/{match[1]}" if match[1] else match[0]
        parts += [text[end : match.start()], element("a", match[0], href=address)]
        end = match.end()
    return joined((*parts, text[end:]))


MAX_TABLE_ROWS: Final = 400  # further rows are cut


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Parameters
    ----------
    key : str
        Anchor in addresses.
    title : str
        Heading.
    content : Html
        Content below the heading.
    """

    key: str
    title: str
    content: Html


def paragraph(*content: object, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return element("p", *content, class_=class_)


def items(lines: Iterable[object]) -> Html:
    """Return a bulleted list."""
    return element("ul", *(element("li", line) for line in lines))


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], words: Collection[str] = ()
) -> Html:
    """Return a table; the first cell of a row is its heading.

    Parameters
    ----------
    caption : str
        Caption.
    header : sequence of str
        Headings of its columns.
    rows : iterable of sequences
        Cells of each row.
    words : collection of str
        Columns that hold words, not numbers; as the first always does.
    """
    classes = ["words" if not i or name in words else None for i, name in enumerate(header)]
    all_rows = list(rows)
    body = [
        element(
            "tr",
            *(
                element("td" if i else "th", cell, class_=class_name, scope=None if i else "row")
                for i, (cell, class_name) in cells
            ),
        )
        for cells in (list(enumerate(zip(row, classes, strict=True))) for row in all_rows[:MAX_TABLE_ROWS])
    ]
    names = (
        element("th", name, scope="col", class_=class_name)
        for name, class_name in zip(header, classes, strict=True)
    )
    cut = (
        f" (the first {MAX_TABLE_ROWS:,} of {len(all_rows):,} rows)" if len(all_rows) > MAX_TABLE_ROWS else ""
    )
    body_table = element(
        "table",
        element("caption", caption + cut),
        element("thead", element("tr", *names)),
        element("tbody", *body),
    )
    return element("div", body_table, class_="wide", role="region", tabindex=0, aria_label=caption)


def bars(
    caption: str, what: str, parts: Mapping[str, Column], form: Callable[[float], str], total: float
) -> Html:
    """Return a table of parts of a total, each with its share as number and bar."""
    shares = {name: float(value) / total for name, value in parts.items() if value}
    rows = [
        (label(name), form(float(parts[name])), f"{share:.1%}", _bar(share)) for name, share in shares.items()
    ]
    return table(caption, ("part", what, "share", ""), rows, words=("",))


def _bar(share: float) -> Html:
    """Return a bar as long as a share."""
    return element("span", class_="bar", style=f"width:{100 * min(share, 1):.2f}%")


def tiles(figures: Iterable[tuple[str, object, object]]) -> Html:
    """Return tiles of key figures: name, value and remark of each."""
    return element(
        "dl",
        *(
            element("div", element("dt", what), element("dd", value), element("dd", note, class_="note"))
            for what, value, note in figures
        ),
        class_="tiles",
    )


def pairs(rows: Iterable[tuple[str, object]]) -> Html:
    """Return a list of names and values."""
    return element(
        "dl", *(joined((element("dt", name), element("dd", value))) for name, value in rows), class_="pairs"
    )


def code(text: object) -> Html:
    """Return code: something to type, or a plan as it is typed."""
    return element("code", markup(text))


def listing(text: str) -> Html:
    """Return lines to copy."""
    return element("pre", code(text), tabindex=0)
