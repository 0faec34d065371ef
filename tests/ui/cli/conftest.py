"""Fixtures that run commands in this process, in a folder for their examples."""

import contextlib
import io
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from every_command import DESIGN, STUDY
from traincast.ui.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "examples"


class Answer(NamedTuple):
    """Result of a command."""

    code: int
    out: str
    err: str


def answer(command):
    """Run a command line in this process, given as text or as words."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(shlex.split(command) if isinstance(command, str) else command)
        except SystemExit as stop:
            return Answer(stop.code or 0, out.getvalue(), err.getvalue())
    return Answer(0, out.getvalue(), err.getvalue())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with what the examples of commands expect to find."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    for file in (EXAMPLES / "my_cluster").iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "design.yaml").write_text(DESIGN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run():
    """Run a command line: exit code, standard output, standard error."""
    return answer
