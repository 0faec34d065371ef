"""Count the lines that people maintain in what is shipped, by package: for information, no goal."""

import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/traincast/"
TEXT = (".py", ".pyi", ".js", ".css", ".html", ".jinja", ".yaml", ".toml")
MEASURED = ("vendor/", "catalog/measured/")  # others' code; measured data


def lines_by_package() -> tuple[Counter[str], Counter[str]]:
    """Return lines of Python and of other text in each package."""
    listed = subprocess.run(
        ["git", "ls-files", PACKAGE], cwd=ROOT, check=True, capture_output=True, text=True
    )
    python, other = Counter[str](), Counter[str]()
    for name in listed.stdout.splitlines():
        if not name.endswith(TEXT) or any(part in name for part in MEASURED):
            continue
        inner = name.removeprefix(PACKAGE)
        package = inner.split("/")[0] if "/" in inner else "(top)"
        lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
        (python if name.endswith((".py", ".pyi")) else other)[package] += lines
    return python, other


def main() -> None:
    """Print the table."""
    python, other = lines_by_package()
    print(f"{'package':<12}{'Python':>8}{'other':>8}")
    for package in sorted(python + other):
        print(f"{package:<12}{python[package]:>8,}{other[package]:>8,}")
    print(f"{'all':<12}{python.total():>8,}{other.total():>8,}")


if __name__ == "__main__":
    main()
