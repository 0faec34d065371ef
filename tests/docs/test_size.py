"""Pages stay short enough to be read, and lead where they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = "<!-- Written by tools/docs/generate.py"
MOST = 50_000  # words by hand, of all pages together; lower it when pages get shorter
MOST_OF_A_PAGE = 4_000
# What an example of Python prints, and a command behind a comment that says so.
PRINTED = re.compile(r"((?<=```\n\n)|(?<=-->\n))```text\n.*?```", re.DOTALL)
FENCE = re.compile(r"```.*?```", re.DOTALL)


def words(text):
    """Words written by hand: not what is printed, nor the bars and rules of tables."""
    return sum(any(letter.isalnum() for letter in word) for word in PRINTED.sub("", text).split())


def by_hand():
    """Text of each page that no program writes."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    return {page: text for page, text in texts.items() if not text.startswith(GENERATED)}


def anchors(text):
    """Anchors of a page's headings, as Python-Markdown makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


def test_words_are_counted_without_what_is_printed_and_bars():
    text = "Two words\n\n| a | b |\n| --- | ---: |\n\n```python\nx = 1\n```\n\n```text\nprinted here\n```\n"
    assert words(text) == len(["Two", "words", "a", "b", "```python", "x", "1"])
    assert words("<!-- capture: plan -->\n```text\nprinted here\n```\n") == len(["capture:", "plan"])
    assert words("Run\n\n```text\ntraincast plan\n```\n") == len(["Run", "```text", "traincast", "plan"])


def test_documentation_is_short():
    counted = {str(page.relative_to(ROOT)): words(text) for page, text in by_hand().items()}
    assert len(counted) > 30
    assert sum(counted.values()) <= MOST, sorted(counted.items(), key=lambda item: -item[1])[:5]


@pytest.mark.parametrize("page", [*by_hand()], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short(page):
    assert len(page.read_text(encoding="utf-8").split()) <= MOST_OF_A_PAGE


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_to_a_heading(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        if name.startswith(("http:", "https:", "schemas/")):  # schemas are generated with the site
            continue
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text(encoding="utf-8")), target
