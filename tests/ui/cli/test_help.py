"""Help of every command: a page of a manual that fits a terminal, with an example that can be copied."""

import re
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

from every_command import EXAMPLES, NAMES
from traincast.core.knobs import KNOB_SPECS, Knobs
from traincast.ui.cli.help_pages import PAGES, SECTIONS, broken_into_lines
from traincast.ui.cli.main import app

MAX_LINES = 104  # two screens of 48 lines, and a few
DOCS = Path(__file__).parents[3] / "docs"
GROUPS = {  # where an option stands in every command that has it
    "Question": {"--seq", "--tokens-per-batch", "--price"},
    "Plan": {"--tp", "--pp", "--recompute"},
    "Output": {"--output", "--force", "--html", "--json", "--figures", "--figure"},
}


def test_every_command_stands_in_one_section():
    listed = [name for names in SECTIONS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(NAMES)


def test_help_of_all_names_every_command_in_its_section(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert run("").out == out
    sections = dict(re.findall(r"^(\S.*):\n((?:  .*\n)+)", out, re.MULTILINE))
    for title, names in SECTIONS.items():
        assert re.findall(r"^  (\w+)", sections.get(title, ""), re.MULTILINE) == [
            name for name in names if name in NAMES
        ]
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_command(name, run):
    code, out, err = run(f"{name} --help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: traincast {name} ")
    assert max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) <= MAX_LINES
    assert not re.search(r"[\x1b╭│]", out)
    for title in ("Example:\n", "Exit codes: 0 ", "See also:\n"):
        assert f"\n{title}" in out
    shown = re.sub(
        r"--\[no-\]([\w-]+)", r"--\1 --no-\1", out.replace("--optimizer[-", "--optimizer --optimizer-")
    )
    for argument in app[name].assemble_argument_collection():
        names = {*argument.names} - {"*"}
        assert [name for name in names if not re.search(rf"{name}\b", shown)] == []
    sections = dict(re.findall(r"^(\S.*):\n((?:  .*\n)+)", out, re.MULTILINE))
    for title, names in GROUPS.items():
        for other, text in sections.items():
            assert other == title or not names & set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE))
    assert "  --json " in sections["Output"]
    for parameter in signature(app[name].default_command).parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            assert re.match(rf"Usage: traincast {name} .*\b{parameter.name.upper()}\b", out)


def test_words_of_a_knob_begin_with_its_default():
    """What the page of a plan says of defaults holds for every knob."""
    for knob in fields(Knobs):
        spec = KNOB_SPECS[knob.name]
        if isinstance(knob.default, str) and knob.default:
            listed = (set(re.findall(r"[\w-]+", spec.meaning)) & set(spec.allowed)) or {spec.allowed[0]}
            assert (
                min(listed, key=[*re.findall(r"[\w-]+", spec.meaning), *spec.allowed].index) == knob.default
            )
        elif not isinstance(knob.default, bool):
            assert knob.default in (1, "", None)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_can_be_copied(name, run):
    """Lines of an example join to what its docstring says."""
    (example,) = EXAMPLES[name]
    shown = re.search(r"^Example:\n((?:  .*\n)+)", run(f"{name} --help").out, re.MULTILINE)[1]
    assert re.sub(r" \\\n +", " ", shown).strip() == f"traincast {example}"


def test_a_long_command_is_broken_before_options():
    command = "traincast plan m " + " ".join(f"--option-{i} {10**i}" for i in range(12))
    lines = broken_into_lines(command)
    assert max(map(len, lines)) <= 78
    assert len(lines) > 3
    assert " ".join(line.removesuffix("\\").strip() for line in lines) == command
    assert [line.endswith(" \\") for line in lines] == [True] * (len(lines) - 1) + [False]


def test_pages_to_read_on_are_there():
    assert set(PAGES) == set(NAMES)
    assert [page for pages in PAGES.values() for page in pages if not (DOCS / f"{page}.md").exists()] == []
