"""Build the wheel and the source distribution into dist/, and run each in an empty environment.

The version must have its section in CHANGELOG.md, and no fragment may be left in changelog.d/.
"""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from environments import pinned

ROOT: Final = Path(__file__).resolve().parents[1]
QUESTION: Final = ("plan", "llama-3-8b", "--system", "dgx-h100", "--gpus", "8", "--top", "1")


def version() -> str:
    """Return the version of the package, from the file in which it stands."""
    text = (ROOT / "src/traincast/core/version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "(.+)"', text)
    if found is None:
        raise SystemExit("src/traincast/core/version.py: no __version__")
    return found[1]


def problems(release: str) -> list[str]:
    """Return what is missing before this version can be released."""
    missing = []
    if f"\n## {release} (" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        missing.append(f"CHANGELOG.md: no section for {release}: towncrier build --version {release}")
    fragments = sorted(file.name for file in (ROOT / "changelog.d").iterdir() if file.name != "README.md")
    if fragments:
        missing.append(f"changelog.d: {len(fragments)} fragments left, the first is {fragments[0]}")
    return missing


def run(*command: str | Path, folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return what a command prints; raise CalledProcessError where it fails."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


def check_distribution(file: Path, release: str) -> None:
    """Install a distribution in an environment of its own and ask it a question from an empty folder."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file, folder=folder)
        traincast = folder / "env" / "bin" / "traincast"
        said = run(traincast, "--version", folder=folder).strip()
        if said != release:
            raise SystemExit(f"{file.name}: traincast --version prints {said}, not {release}")
        answer = run(traincast, *QUESTION, folder=folder)
        print(f"{file.name}: installed, answers: {answer.splitlines()[0]}", flush=True)


def main() -> None:
    """Build both, and check both."""
    release = version()
    if missing := problems(release):
        raise SystemExit("\n".join(missing))
    dist = ROOT / "dist"
    for old in dist.glob("traincast-*"):
        old.unlink()
    # The wheel is built from the source distribution: what is missing there is missing here.
    run(sys.executable, "-m", "build", "--outdir", dist, folder=ROOT, environment=pinned(os.environ))
    for file in sorted(dist.glob(f"traincast-{release}*")):
        check_distribution(file, release)


if __name__ == "__main__":
    main()
