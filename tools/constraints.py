"""Renew constraints.txt: the newest versions of all packages that `make test` needs.

    python tools/constraints.py

`make` installs what stands there, so that the tests of a commit run with the packages of that commit.
"""

import subprocess
from typing import Final

from environments import CONSTRAINTS, OWN, ROOT, make_environment, pip

ENVIRONMENT: Final = ROOT / ".venv" / "update"
BACKEND: Final = ("hatchling", "editables")  # build the package, as pyproject.toml says
HEADER: Final = f"""\
# What `make` installs: every package that `make test` needs, in the version that the tests ran with.
# `make update` writes it, with the newest versions that Python {OWN} and pyproject.toml allow.
"""


def main() -> None:
    """Install the newest versions in an environment of their own, and write which they are."""
    python = make_environment(ENVIRONMENT)
    pip(python, "install", *BACKEND)
    pip(python, "install", "--no-build-isolation", "--editable", ".[all,dev,mpi]")
    pip(python, "check")
    freeze = [python, "-m", "pip", "--disable-pip-version-check", "freeze", "--exclude-editable"]
    versions = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout
    CONSTRAINTS.write_text(HEADER + versions, encoding="utf-8")
    print(f"{CONSTRAINTS.name}: {len(versions.splitlines())} packages; run the tests before you commit it")


if __name__ == "__main__":
    main()
