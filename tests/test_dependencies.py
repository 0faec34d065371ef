"""What pyproject.toml declares is what `make` installs and what the package imports."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from environments import CONSTRAINTS, TEST_TOOLS
from traincast.core.errors import EXTRA_OF

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
DECLARED = [
    Requirement(text)
    for text in (
        *PYPROJECT["build-system"]["requires"],
        *PYPROJECT["project"]["dependencies"],
        *(requirement for extra in EXTRAS.values() for requirement in extra),
    )
]
PINS = dict(
    line.split("==")
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)
PINNED = {canonicalize_name(name): version for name, version in PINS.items()}


@pytest.mark.parametrize("requirement", DECLARED, ids=str)
def test_a_direct_dependency_is_pinned_within_its_range(requirement):
    if requirement.name != "traincast":  # an extra that names others
        assert requirement.specifier.contains(PINNED[canonicalize_name(requirement.name)])


def test_what_runs_the_tests_elsewhere_is_pinned():
    assert {canonicalize_name(name) for name in TEST_TOOLS} <= PINNED.keys()


def test_the_makefile_installs_what_is_pinned():
    """`make test` of a commit has the packages of that commit, and has them anew when they change."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    install = re.search(r"^INSTALL *:= (.*)$", makefile, re.MULTILINE)
    assert f"--constraint {CONSTRAINTS.name}" in install[1]
    for stamp in (".venv/.demo", ".venv/.dev"):
        needed, recipe = re.search(rf"^{stamp}:(.*)\n((?:\t.*\n)+)", makefile, re.MULTILINE).groups()
        assert CONSTRAINTS.name in needed.split()
        assert "$(INSTALL)" in recipe
        assert "pip install" not in recipe


def imported():
    """Return the top-level modules that the package imports, anywhere."""
    names = set()
    for file in (ROOT / "src" / "traincast").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names


def test_every_dependency_is_imported():
    """An extra that nothing uses is a promise that is not kept: huggingface_hub was one."""
    brought = {
        re.split(r"\W", requirement)[0]
        for extra, requirements in {**EXTRAS, "": PYPROJECT["project"]["dependencies"]}.items()
        if extra not in ("all", "dev")
        for requirement in requirements
    }
    assert brought - imported() == set()
    assert set(EXTRA_OF) <= imported()
    assert set(EXTRA_OF.values()) <= EXTRAS.keys()
