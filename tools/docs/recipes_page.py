"""Page of recipes: written by hand, but what its commands print is filled in by running them."""

import contextlib
import io
import os
import re
import shlex
import tempfile
from pathlib import Path

from traincast.ui.cli.main import main

ROOT = Path(__file__).parents[2]
# A command, the lines of its output that are shown (`_shown`), and these lines.
RECIPE = re.compile(
    r"(?P<command>^    traincast (?:[^\n]*\\\n +)*[^\n]*\n)\n"
    r"<!-- shown: (?P<shown>[^\n]*) -->\n```text\n(?P<output>(?:(?!```)[^\n]*\n)*)```",
    re.MULTILINE,
)


def commands(text: str) -> list[str]:
    """Return the command lines of a page whose output it shows."""
    return [_joined(found["command"]) for found in RECIPE.finditer(text)]


def _joined(command: str) -> str:
    """Return a command in one line."""
    return re.sub(r" *\\\n +", " ", command).strip()


def renewed(text: str) -> str:
    """Return the page with the lines that its commands print today, run in an empty folder with the examples."""
    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT / "examples", Path(folder, "examples"))
        os.environ["COLUMNS"] = "80"
        os.chdir(folder)
        try:
            return RECIPE.sub(_with_output, text)
        finally:
            os.chdir(before)
            os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)


def _with_output(found: re.Match[str]) -> str:
    """Return a command with the lines of its output, or of its error, that match its pattern."""
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            main(shlex.split(_joined(found["command"]))[1:])
        except SystemExit as stop:
            if stop.code != 1:  # nothing fits is an answer
                raise RuntimeError(f"{_joined(found['command'])}: {errors.getvalue()}") from stop
    lines = (printed.getvalue() or errors.getvalue()).splitlines()
    shown = _shown([line.rstrip() for line in lines], found["shown"])
    if not shown:
        raise RuntimeError(f"{_joined(found['command'])}: no line has {found['shown']}")
    output = "".join(f"{line}\n" for line in shown)
    return f"{found['command']}\n<!-- shown: {found['shown']} -->\n```text\n{output}```"


def _shown(lines: list[str], wanted: str) -> list[str]:
    """Return the ``first N lines``, or those that match a pattern, with what goes on in deeper indented ones."""
    if first := re.fullmatch(r"first (\d+) lines", wanted):
        return lines[: int(first[1])]
    shown: list[str] = []
    depth = -1  # of the sentence that is being shown
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if re.search(wanted, line):
            depth = indent
            shown.append(line)
        elif 0 <= depth < indent:
            shown.append(line)
        else:
            depth = -1
    return shown
