"""Install the lowest declared version of every direct dependency in .venv/lowest, and run tests there.

A floor in pyproject.toml is true where the package works with it: nothing else installs those versions.

    python tools/lowest.py [TEST ...]
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from environments import ROOT, TEST_TOOLS, make_environment, pip

ENVIRONMENT: Final = ROOT / ".venv" / "lowest"
REQUIREMENT: Final = re.compile(r"([\w.-]+)>=([\w.]+)")
APART: Final = {"mpi", "dev", "all"}  # needs a library that pip does not bring; the tools; all others
# What reads and writes through the dependencies: tables, pages, fits, documents, the command line.
TESTS: Final = (
    "tests/core",
    "tests/catalog/test_systems.py",
    "tests/planner/designs/test_design.py",
    "tests/planner/studies/test_study.py",
    "tests/ui/cli/test_outputs.py",
    "tests/ui/html/test_html.py",
)


def floors(pyproject: str) -> dict[str, str]:
    """Return the lowest version of every direct dependency that a pyproject.toml declares, by name.

    Raises ValueError for a requirement that has no lowest version.
    """
    project = tomllib.loads(pyproject)["project"]
    extras = project["optional-dependencies"]
    requirements = list(project["dependencies"])
    for extra in extras.keys() - APART:
        requirements += extras[extra]
    lowest = {}
    for requirement in requirements:
        read = REQUIREMENT.fullmatch(requirement)
        if read is None:
            raise ValueError(f"{requirement}: is not written NAME>=VERSION")
        name, version = read.groups()
        if lowest.setdefault(name, version) != version:
            raise ValueError(f"{requirement}: {name}>={lowest[name]} is declared elsewhere")
    return lowest


def install(lowest: dict[str, str]) -> Path:
    """Return the interpreter of an environment with these versions and the tools."""
    python = make_environment(ENVIRONMENT)
    pinned = [f"{name}=={version}" for name, version in lowest.items()]
    pip(python, "install", *pinned, *TEST_TOOLS)  # the tools are the newest
    pip(python, "install", "--no-deps", "--editable", ROOT)
    pip(python, "check")
    return python


def main() -> None:
    """Install and test; the exit code is that of the tests."""
    lowest = floors((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    python = install(lowest)
    print("lowest:", ", ".join(f"{name} {version}" for name, version in sorted(lowest.items())), flush=True)
    # Old releases warn of what newer ones changed; that is no fault of the package.
    warnings = ("--override-ini", "filterwarnings=default")
    tests = sys.argv[1:] or TESTS
    done = subprocess.run([python, "-m", "pytest", "-q", *warnings, *tests], cwd=ROOT)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
