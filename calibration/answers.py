"""Ask the fixed questions again and renew their answers in tests/data/answers.csv.

    python calibration/answers.py            # or: make answers

Each row of the file is a question, a command line, and what it answers: time of a step with its interval,
memory, probability that it fits, and plan; commands without a plan have another figure. A test asks them
again. An answer that changes by more than `MAX_CHANGE` needs its reason in a fragment of changelog.d/, on a
line of its own that names the question and the first of its figures as it is now:

    answers: plan-8b-megatron 6.41, plan-70b-megatron 7.62: the optimizer waits for the last gradient

An answer without a reason keeps its old figures, and the exit code is 1. The line to write is printed.
"""

import contextlib
import csv
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from traincast.core.output_files import atomic_output
from traincast.core.plan import Plan
from traincast.core.units import GIB
from traincast.ui.cli.main import main as traincast

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "tests" / "data" / "answers.csv"
READ: Final = ("examples", "tests")  # folders of files that questions name
MAX_CHANGE: Final = 0.02  # of a figure, relative; of a probability, absolute
DIGITS: Final = 5  # of a figure in the file
LINE: Final = re.compile(r"^answers: (.+?): (\S.*)$", re.MULTILINE)
NAMED: Final = re.compile(r"([\w.-]+) ([\d.e+-]+)(?:, |$)")
FIGURES: Final = ("seconds", "low", "high", "memory_gib", "fits_probability", "figure")
COLUMNS: Final = ("question", "command", *FIGURES, "plan", "refused")
# Of commands without a plan: what their figure is, by the path to it in their JSON.
FIGURE_OF: Final[Mapping[str, tuple[str | int, ...]]] = {
    "calibrate": ("errors_of_others", "collectives", "after"),
    "flops": ("active_parameters",),
    "limits": ("halves_flops",),
    "reproduce": ("candidates",),
    "scaling": ("rows", -1, "efficiency"),
    "validate": ("totals", "dense", "mape"),
}
DEFAULTS: Final = {field.name: field.default for field in fields(Plan)}

Row = dict[str, str]  # of the file, by column


def ask(command: str) -> Row:
    """Return the answer to a command line; `refused` holds the message where it has none."""
    out = io.StringIO()
    err = io.StringIO()
    with TemporaryDirectory() as folder:  # for files that the command writes
        for name in READ:
            Path(folder, name).symlink_to(ROOT / name)
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.suppress(SystemExit),
        ):
            traincast([*shlex.split(command), "--json"])
    answer = json.loads(out.getvalue())
    row = dict.fromkeys(COLUMNS[2:], "")
    if "error" in answer:
        return row | {"refused": answer["error"]["message"].splitlines()[0]}
    if path := FIGURE_OF.get(command.split()[0]):
        return row | {"figure": _text(_value(answer, path))}
    estimate = _recommended(answer) if "plans" in answer else answer["estimate"]
    return row | {
        "seconds": _text(estimate["step_seconds"]),
        "low": _text(estimate.get("step_seconds_low")),
        "high": _text(estimate.get("step_seconds_high")),
        "memory_gib": _text(estimate["memory_bytes"] / GIB),
        "fits_probability": _text(estimate.get("fits_probability")),
        "plan": _plan_text(estimate["strategy"], estimate["plan"]),
    }


def _recommended(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the recommended plan of a search with its interval, which stands among the plans listed."""
    recommended: Mapping[str, Any] = answer["recommended"]
    listed = (each for each in answer["plans"] if each["plan"] == recommended["plan"])
    return next(listed, recommended)


def _value(answer: Any, path: Iterable[str | int]) -> Any:
    """Return the value at a path in an answer."""
    for part in path:
        answer = answer[part]
    return answer


def _text(value: float | None) -> str:
    """Return a figure with the digits of the file."""
    return "" if value is None else f"{value:.{DIGITS}g}"


def _plan_text(strategy: str, plan: Mapping[str, Any]) -> str:
    """Return the knobs of a plan that are not at their defaults, but for its placement."""
    chosen = (
        f"{name}={value}"
        for name, value in plan.items()
        if value != DEFAULTS[name] and not name.startswith("fast_")
    )
    return " ".join((strategy, *chosen))


def read(file: Path = FILE) -> list[Row]:
    """Return the rows of the file."""
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def changes(before: Row, now: Row) -> dict[str, str]:
    """Return what differs by more than `MAX_CHANGE` between two answers to a question, in words by column."""
    found = {}
    for name in FIGURES:
        old = before[name]
        new = now[name]
        if not old or not new:
            same = old == new
        elif name == "fits_probability":
            same = abs(float(new) - float(old)) <= MAX_CHANGE
        else:
            same = abs(float(new) - float(old)) <= MAX_CHANGE * abs(float(old))
        if not same:
            found[name] = f"{name} {old or 'none'} → {new or 'none'}"
    if bool(before["refused"]) != bool(now["refused"]):
        found["refused"] = f"refused: {now['refused'] or 'no longer'}"
    return found


def leading(row: Row) -> str:
    """Return the figure that names an answer in a fragment; 0 where the question is refused."""
    return next((row[name] for name in FIGURES if row[name]), "0")


def explained(folder: Path = ROOT / "changelog.d") -> dict[tuple[str, float], str]:
    """Return the reasons in changelog fragments, by question and figure."""
    reasons = {}
    for file in sorted(folder.glob("*.md")):
        text = "" if file.name == "README.md" else file.read_text(encoding="utf-8")
        for named, reason in LINE.findall(text):
            for question, figure in NAMED.findall(named):
                reasons[question, float(figure)] = reason
    return reasons


def has_reason(question: str, row: Row, reasons: Mapping[tuple[str, float], str]) -> bool:
    """Return whether a fragment explains an answer: its figure there may have three digits."""
    figure = float(leading(row))
    return any(name == question and abs(stated - figure) <= 0.005 * figure for name, stated in reasons)


def main() -> int:
    """Ask every question, and write the answers that are as before or have a reason."""
    before = read()
    reasons = explained()
    rows = []
    unexplained = []
    for number, row in enumerate(before, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {len(before)}: {row['question']:<30}", end="", file=sys.stderr, flush=True)
        now = row | ask(row["command"])
        changed = changes(row, now) if leading(row) != "0" or row["refused"] else {}
        if changed and not has_reason(row["question"], now, reasons):
            print(f"{row['question']}: {', '.join(changed.values())}")
            unexplained.append(f"{row['question']} {float(leading(now)):.3g}")
            now = row
        rows.append(now)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    with atomic_output(FILE) as partial, partial.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if unexplained:
        print(f"\nIn a fragment of changelog.d/, with the reason:\n\nanswers: {', '.join(unexplained)}: …")
    return 1 if unexplained else 0


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
