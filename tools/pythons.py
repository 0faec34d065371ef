"""Install the package on each newer version of Python that is at hand, in .venv/python*, and run tests there.

    python tools/pythons.py TEST ...

A version without an interpreter is said; with CI=strict it fails.
"""

import os
import subprocess
import sys
from typing import Final

from environments import CONSTRAINTS, ROOT, TEST_TOOLS, interpreter, make_environment, pip

VERSIONS: Final = ("3.12", "3.13", "3.14")  # those of pyproject.toml but the lowest, which all else runs on


def passes(version: str, tests: list[str]) -> bool | None:
    """Return whether the tests pass on a version of Python; None where there is no interpreter."""
    found = interpreter(version)
    if found is None:
        return None
    python = make_environment(ROOT / ".venv" / f"python{version}", found)
    pip(python, "install", "--constraint", CONSTRAINTS, "--editable", ".[all]", *TEST_TOOLS)
    print(f"Python {version}:", flush=True)
    return not subprocess.run([python, "-m", "pytest", "-q", *tests], cwd=ROOT).returncode


def main() -> None:
    """Try every version; the exit code says whether one failed."""
    failed = []
    missing = []
    for version in VERSIONS:
        passed = passes(version, sys.argv[1:])
        if passed is None:
            missing.append(version)
        elif not passed:
            failed.append(version)
    for version in missing:
        print(f"Python {version}: not installed, tests are skipped", file=sys.stderr)
    for version in failed:
        print(f"Python {version}: tests failed", file=sys.stderr)
    strict = os.environ.get("CI") == "strict"
    sys.exit(bool(failed or (strict and missing)))


if __name__ == "__main__":
    main()
