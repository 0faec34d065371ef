"""Parsed HTML pages, checked for what every report promises."""

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "col", "hr"}


class Page(HTMLParser):
    """A page: its elements, in order, and the text inside each kind."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.said, self.problems, self.comments = [], [], {}, [], []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag, _ in self.open]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        self.problems += [f"<{tag}> has {name} twice" for name in names if names.count(name) > 1]
        self.elements.append((tag, dict(attrs), tuple(name for name, _ in self.open)))
        if tag not in VOID:
            self.open.append((tag, []))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.problems.append(f"</{tag}> ends {self.open[-1:]}")
            return
        self.said.setdefault(tag, []).append("".join(self.open.pop()[1]))

    def handle_data(self, data):
        for _, said in self.open:
            said.append(data)

    def handle_comment(self, data):
        self.comments.append(data)

    def of(self, tag):
        """Attributes of all elements of a kind."""
        return [attributes for name, attributes, _ in self.elements if name == tag]

    def tiles(self):
        """Figures of the summary: what → how much."""
        names, values = (self.said.get(tag, []) for tag in ("dt", "dd"))
        tiled = [inside for tag, _, inside in self.elements if tag == "dt" and "div" in inside]
        return dict(zip(names[: len(tiled)], values[0 : 2 * len(tiled) : 2], strict=True))


def read(text):
    """A page, once it keeps what a report promises: well-formed, self-contained, its figures described."""
    assert text.startswith("<!DOCTYPE html>\n")
    page = Page(text)
    assert page.problems == []
    assert {tag for tag, _, _ in page.elements}.isdisjoint(
        {"script", "link", "iframe", "object", "embed", "base", "form", "img"}
    )
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes, _ in page.elements:
        assert not [name for name in attributes if name.startswith(("on", "src", "xlink", "xmlns"))]
        address = attributes.get("href", "#")
        assert address.startswith(
            ("#", "data:image/png;base64,") if tag in ("use", "image") else ("#", "https://", "http://")
        )
        assert not address.startswith("#") or address[1:] in {"", *ids}
        for value in filter(None, attributes.values()):
            assert set(re.findall(r"url\(#?([^)]*)\)", value)) <= set(ids)
            assert tag == "a" or tag == "image" or "://" not in value or "aria-label" in attributes
    (style,) = page.said["style"]
    assert not re.search(r"@import|url\(|https?:", style)
    assert "color-scheme: light dark" in style
    assert "light-dark(" in style
    assert "@media print" in style
    assert len(page.said["h1"]) == 1
    assert len(page.said["caption"]) == len(page.of("table"))
    assert all("scope" in attributes for attributes in page.of("th"))
    assert len(page.of("figure")) == len(page.said.get("figcaption", [])) == len(page.of("svg"))
    assert all(drawn["role"] == "img" and drawn["aria-label"] for drawn in page.of("svg"))
    return page
