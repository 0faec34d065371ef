"""README and docs do what they say: examples run, captures are what is printed, generated pages are what the
code prints."""

import contextlib
import doctest
import importlib.util
import io
import re
from importlib import import_module
from pathlib import Path

import pytest

from traincast.ui.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/index.md",
    "docs/tutorial.md",
    "docs/models.md",
    "docs/machines.md",
    "docs/collectives.md",
    "docs/studies.md",
    "docs/metrics.md",
    "docs/advise.md",
    "docs/trace.md",
    "docs/export.md",
    "docs/validation.md",
    "docs/calibration.md",
    "docs/kernels.md",
    "docs/uncertainty.md",
    "docs/limits.md",
    "docs/scaling.md",
    "docs/insights.md",
]
PYTHON = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
CAPTURE = re.compile(r"<!-- capture: (.*?) -->\n```text\n(.*?)```", re.DOTALL)
DOCTESTS = [
    "traincast",
    "traincast.core.plan",
    "traincast.core.knobs",
    "traincast.planner.framework_refusals",
    "traincast.step.model_flops",
    "traincast.step.estimate",
    "traincast.step.metrics",
    "traincast.analysis.per_parameter",
    "traincast.analysis.advise",
    "traincast.analysis.trace",
    "traincast.launch.canonical",
    "traincast.launch.layer_patterns",
    "traincast.step.placement",
    "traincast.planner.study.executors",
]


def test_commands_of_the_page_on_launches_run(tmp_path, monkeypatch, capsys):
    """One after the other, as a reader of the page runs them, with the examples at hand."""
    commands = re.findall(
        r"^    traincast (.*)$", (ROOT / "docs/export.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(commands) >= 4
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        main(command.split())  # exits where it fails
        assert "not expressed" not in capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES)
def test_examples_run_and_print_what_the_page_shows(page):
    names: dict = {}
    examples = PYTHON.findall((ROOT / page).read_text(encoding="utf-8"))
    assert examples
    for code, shown in examples:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue() == shown


def test_captures_are_what_the_command_prints(capsys):
    captures = CAPTURE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert captures
    for command, shown in captures:
        main(command.split())
        assert without_time(capsys.readouterr().out).startswith(without_time(shown))


def without_time(text):
    """Text without trailing blanks and without how long a search took."""
    return re.sub(
        r"searched in [\d.]+ m?s", "searched in …", re.sub(r" +$", "", text, flags=re.MULTILINE)
    ).rstrip()


@pytest.mark.parametrize("module", DOCTESTS)
def test_docstring_examples(module):
    result = doctest.testmod(import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_generated_pages_are_up_to_date():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "tools" / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, text in generate.pages().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, (
            f"run: python tools/docs/generate.py ({name} is out of date)"
        )
