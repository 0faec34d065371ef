"""HTML from the inside out: whatever is not markup yet is escaped where it enters an element."""

import re
from collections.abc import Iterable
from html import escape
from typing import Final

VOID: Final = frozenset({"meta", "br", "col", "hr"})
LINK: Final = re.compile(r"arXiv[: ](\d{4}\.\d{4,5})|https?://[^\s<>\"'()]*[^\s<>\"'().,;:]")


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


def markup(content: object) -> Html:
    """Content as markup: text is escaped, markup is what it is."""
    return content if isinstance(content, Html) else Html(escape(str(content)))


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Pieces one after the other."""
    return Html(escape(between).join(markup(one) for one in parts))


def element(name: str, /, *content: object, **attributes: object) -> Html:
    """An element.

    Parameters
    ----------
    name : str
        Its name.
    *content
        What is inside; text is escaped.
    **attributes
        Its attributes, escaped; one that is None or False is left out. ``class_`` is ``class``, ``aria_label`` is ``aria-label``.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{told}>" if name in VOID else f"<{name}{told}>{joined(content)}</{name}>")


def linked(text: str) -> Html:
    """Text whose addresses, and numbers of arXiv, are links."""
    parts, end = [], 0
    for match in LINK.finditer(text):
        address = f"https://arxiv.org/abs/{match[1]}" if match[1] else match[0]
        parts += [text[end : match.start()], element("a", match[0], href=address)]
        end = match.end()
    return joined((*parts, text[end:]))
