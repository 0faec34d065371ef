"""Count the lines that people maintain in what is shipped, by package, against a budget: `make lint` fails
above it."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/traincast/"
TEXT = (".py", ".pyi", ".js", ".css", ".html", ".jinja", ".yaml", ".toml")
MEASURED = ("vendor/", "catalog/measured/")  # others' code; measured data
BUDGET = {  # lines, Python and other text together
    "core": 4790,
    "catalog": 10100,
    "operations": 2890,
    "times": 2_490,
    "step": 3_750,
    "planner": 9_680,
    "launch": 11_480,
    "analysis": 3410,
    "accuracy": 9640,
    "tuner": 1750,
    "ui": 13640,
    "(top)": 110,
}


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


def main() -> int:
    """Print the table; return 1 where a package is over its budget."""
    python, other = lines_by_package()
    print(f"{'package':<12}{'Python':>8}{'other':>8}{'budget':>8}")
    over = []
    for package, budget in BUDGET.items():
        print(f"{package:<12}{python[package]:>8,}{other[package]:>8,}{budget:>8,}")
        if python[package] + other[package] > budget:
            over.append(package)
    print(f"{'all':<12}{python.total():>8,}{other.total():>8,}{sum(BUDGET.values()):>8,}")
    unknown = sorted((python + other).keys() - BUDGET.keys())
    if over or unknown:
        print(
            f"Over budget: {', '.join(over) or 'none'}; without a budget: {', '.join(unknown) or 'none'}",
            file=sys.stderr,
        )
    return bool(over or unknown)


if __name__ == "__main__":
    sys.exit(main())
