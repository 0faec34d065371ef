"""Virtual environments that the tools make: of which interpreter, and what is installed in them."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CONSTRAINTS: Final = ROOT / "constraints.txt"
OWN: Final = "{}.{}".format(*sys.version_info)  # version of Python that runs this
# They run the tests of the package, and are no dependency of it.
TEST_TOOLS: Final = ("pytest", "pytest-timeout", "hypothesis", "httpx", "jsonschema", "pint", "sympy")


def interpreter(version: str) -> str | None:
    """Return the interpreter of a version: this one, one on the path, or one of pyenv; None without any."""
    if version == OWN:
        return sys.executable
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in filter(None, (shutil.which(f"python{version}"), *map(str, installed))):
        asked = subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True)
        if not asked.returncode:  # a shim without its version fails here
            return candidate
    return None


def make_environment(folder: Path, python: str = sys.executable) -> Path:
    """Return the interpreter of a new environment in a folder, which loses what it held."""
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    return folder / "bin" / "python"


def pinned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which pip takes the versions of constraints.txt, of tools that build as well.

    For these pip 25.3 and newer read the second name; older ones read the first for both.
    """
    constraints = CONSTRAINTS.as_uri()  # a path with a space would be two
    return {**environment, "PIP_CONSTRAINT": constraints, "PIP_BUILD_CONSTRAINT": constraints}


def pip(python: Path, *arguments: str | Path) -> None:
    """Run pip of an environment; raise CalledProcessError where it fails."""
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, cwd=ROOT)
