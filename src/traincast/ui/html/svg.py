"""Figures inside a page: matplotlib's SVG without external references, in the page's colours and font."""

import re
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS_PER_POINT: Final = 1.5  # CSS pixels per typographic point
DROPPED_TAGS: Final = ("metadata", "style")
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


def drawing(name: str, figure: "Figure", caption: str, alternative: str) -> Markup:
    """Return a figure of a page; `name` is its id, `alternative` is read by screen readers."""
    from traincast.ui.figures import to_svg

    root = ElementTree.fromstring(to_svg(figure).translate(NO_CONTROLS))
    width = PIXELS_PER_POINT * float(root.get("width", "0pt").removesuffix("pt"))
    frame = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": alternative}
    ids = {node.get("id", ""): f"{name}-{i}" for i, node in enumerate(root.iter()) if node.get("id")}
    _adapt(root, ids)
    root.attrib = frame | {"style": f"width:{width:.0f}px"}
    svg = ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)
    scrolled = Markup('<div class="wide" role="region" tabindex="0" aria-label="{}">{}</div>')
    element = Markup('<figure id="{}">{}<figcaption>{}</figcaption></figure>')
    return element.format(name, scrolled.format(f"Figure: {caption}", Markup(svg)), caption)


def _adapt(node: ElementTree.Element, ids: dict[str, str]) -> None:
    """Make an element and its children part of a page: names without namespace, unique ids, nothing empty."""
    node.tag = node.tag.rpartition("}")[2]
    node.text = (node.text or "").strip()
    node.tail = None
    node.attrib = {key.rpartition("}")[2]: _value(value, ids) for key, value in node.items()}
    if "id" in node.attrib:
        if node.tag == "g":  # nothing refers to a group
            del node.attrib["id"]
        else:
            node.set("id", ids[node.get("id", "")])
    for child in list(node):
        _adapt(child, ids)
        if child.tag in DROPPED_TAGS or (child.tag in ("g", "defs") and not len(child)):
            node.remove(child)


def _value(value: str, ids: dict[str, str]) -> str:
    """Return an attribute's value with the page's ids, colours and fonts."""
    value = REFERENCE_PATTERN.sub(lambda match: f"{match[1]}{ids.get(match[2], match[2])}{match[3]}", value)
    value = LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}", value)
    value = COLOUR_PATTERN.sub(lambda match: PAGE_COLOURS.get(match[0], match[0]), value)
    return FONT_PATTERN.sub("", value).replace("\n", " ")
