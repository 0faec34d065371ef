"""Pictures of the documentation exist in the repository."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")


def test_pictures_of_the_pages_are_known_to_git():
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        listing = ""
    if "pyproject.toml" not in listing.split("\0"):
        pytest.skip("not a checkout of the repository")
    known = {(ROOT / name).resolve() for name in listing.split("\0")}
    pictures = {
        (page.parent / (markdown or html)).resolve(): page.name
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for markdown, html in IMAGE.findall(page.read_text(encoding="utf-8"))
        if "://" not in (markdown or html)
    }
    assert len(pictures) >= 20
    assert {f"{page}: {path.name}" for path, page in pictures.items() if path not in known} == set()
