"""Scripts of others that the page uses are as published, and their licences stand beside them."""

import hashlib
from pathlib import Path

import traincast

VENDOR = Path(traincast.__file__).parent / "ui/explorer/static/vendor"


def test_vendored_files_have_the_published_hashes():
    """SHA256SUMS is of the files in the packages of the npm registry that README.md names."""
    listed = [line.split() for line in (VENDOR / "SHA256SUMS").read_text(encoding="utf-8").splitlines()]
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in VENDOR.iterdir()
        if file.name not in ("SHA256SUMS", "README.md")
    }
    assert {name: digest for digest, name in listed} == found


def test_every_vendored_script_has_its_licence():
    for script in VENDOR.glob("*.js"):
        licence = VENDOR / script.name.replace(".min.js", ".LICENSE")
        assert "Copyright" in licence.read_text(encoding="utf-8")
    bundled = (VENDOR / "plot.bundled.LICENSE").read_text(encoding="utf-8")
    for package in ("interval-tree-1d", "binary-search-bounds", "isoformat"):
        assert package in bundled


def test_vendored_files_are_described():
    readme = (VENDOR / "README.md").read_text(encoding="utf-8")
    for file in VENDOR.iterdir():
        assert file.name == "README.md" or f"`{file.name}`" in readme or file.name in readme
