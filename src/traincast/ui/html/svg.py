"""Figures inside a page: matplotlib's SVG without external references, in the page's colours and font."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from traincast.core.errors import InputError
from traincast.ui.html.elements import Html, element

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS_PER_POINT: Final = 1.5  # CSS pixels per typographic point
DROPPED_TAGS: Final = ("metadata", "style")
GROUP_TAGS: Final = ("g", "defs")  # dropped when empty
PAGE_COLOURS: Final = {
    "#000000": "currentColor",
    "#ffffff": "var(--surface)",
    "#dddddd": "var(--line)",
    "#f2f2f2": "var(--faint)",
}
NO_CONTROLS: Final = dict.fromkeys((*range(9), 11, 12, *range(14, 32)))  # characters that no XML may hold
FONT_PATTERN: Final = re.compile(r"font-family: [^;]*; ?")
LONG_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+\.\d{3,}")  # more digits than are visible
COLOUR_PATTERN: Final = re.compile(r"#[0-9a-f]{6}\b")
REFERENCE_PATTERN: Final = re.compile(r"(^#|url\(#)([^)]*)(\)|$)")


def require_figures() -> None:
    """Refuse where what draws is not installed.

    Raises
    ------
    InputError
        If matplotlib or polars is missing.
    """
    from importlib.util import find_spec

    if missing := [name for name in ("matplotlib", "polars") if find_spec(name) is None]:
        raise InputError(
            "--html", [f"needs {' and '.join(missing)} for its figures: pip install 'traincast[figures]'"]
        )


def drawing(name: str, figure: "Figure", caption: str, alternative: str) -> Html:
    """Return a figure of a page.

    Parameters
    ----------
    name : str
        Id, unique in the page.
    figure : Figure
        The figure.
    caption : str
        Text below the figure.
    alternative : str
        Alternative text for screen readers.
    """
    from traincast.ui.figures import to_svg

    root = ElementTree.fromstring(to_svg(figure).translate(NO_CONTROLS))
    names = {node.get("id", ""): f"{name}-{i}" for i, node in enumerate(root.iter()) if node.get("id")}
    inside = [_element(child, names) for child in root]
    drawn = element(
        "svg", *inside, viewBox=root.get("viewBox"), role="img", aria_label=alternative, style=_width(root)
    )
    return element("figure", drawn, element("figcaption", caption), id=name)


def _width(root: ElementTree.Element) -> str:
    """Return the style of a figure's natural width; narrower pages shrink it."""
    return f"width:{PIXELS_PER_POINT * float(root.get('width', '0pt').removesuffix('pt')):.0f}px"


def _element(node: ElementTree.Element, names: Mapping[str, str]) -> Html:
    """Return an SVG element and its children, with ids that are unique in the page."""
    tag = node.tag.rpartition("}")[2]
    inside = [part for part in (_element(child, names) for child in node) if part]
    if tag in DROPPED_TAGS or (tag in GROUP_TAGS and not inside):
        return Html()
    attributes: dict[str, str | None] = {
        key.rpartition("}")[2]: _value(value, names) for key, value in node.items()
    }
    if "id" in attributes:  # nothing refers to a group
        attributes["id"] = None if tag == "g" else names[node.get("id", "")]
    return element(tag, (node.text or "").strip(), *inside, **attributes)


def _value(value: str, names: Mapping[str, str]) -> str:
    """Return an attribute's value with the page's ids, colours and fonts."""
    value = REFERENCE_PATTERN.sub(lambda match: f"{match[1]}{names.get(match[2], match[2])}{match[3]}", value)
    value = LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}", value)
    value = COLOUR_PATTERN.sub(lambda match: PAGE_COLOURS.get(match[0], match[0]), value)
    return FONT_PATTERN.sub("", value).replace("\n", " ")
