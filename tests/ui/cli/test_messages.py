"""Messages are wrapped, name the command that was typed, list few names, and hold no mistake that is none."""

import json
import os
import subprocess
import sys

import pytest

from traincast.core.errors import MAX_LISTED_COLUMNS, InputError, close_to, some_of
from traincast.ui.cli import output
from traincast.ui.cli.output import message_columns  # the fixture of all tests replaces it in its module

LONG = "plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 8 --tokens-per-batch 1M --zero 9 --recompute most"


@pytest.fixture
def columns(monkeypatch):
    """Let messages be wrapped as they are outside of tests, on a terminal of so many columns."""
    monkeypatch.setattr(output, "message_columns", message_columns)

    def set_columns(number):
        size = os.terminal_size((number, 24))
        monkeypatch.delenv("COLUMNS")
        monkeypatch.setattr(os, "get_terminal_size", lambda *_: size)
        monkeypatch.setattr(output.sys, "stderr", Terminal())
        return output.sys.stderr

    return set_columns


class Terminal:
    """A terminal, and what was written on it."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True

    def fileno(self):
        return 2


@pytest.mark.parametrize("number", [50, 80, 132])
def test_a_message_is_as_wide_as_the_terminal(number, columns):
    terminal = columns(number)
    words = "must be one of these words " * 12
    output.warn(words)
    lines = terminal.text.splitlines()
    assert " ".join(terminal.text.split()) == f"traincast: {words.strip()}"
    assert number - 9 < max(map(len, lines)) <= number  # no word has 9 letters


def test_a_message_in_a_pipe_is_80_columns_wide():
    ran = subprocess.run(
        [sys.executable, "-m", "traincast", *LONG.split()], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert max(map(len, ran.stderr.splitlines())) <= 80
    command = [
        sys.executable,
        "-m",
        "traincast",
        "memory",
        "llama-3-8b",
        "--system",
        "dgx-h100",
        "--gpus",
        "7",
    ]
    ran = subprocess.run([*command, "--tp", "2"], capture_output=True, text=True, check=False)
    assert max(map(len, ran.stderr.splitlines())) <= 80


@pytest.mark.parametrize(
    "command", ["memory", "estimate", "advise", "trace", "profile --trace examples/my_cluster/profile.json"]
)
def test_a_message_names_the_command(command, run, folder):
    line = f"{command} llama-3-8b --system dgx-h100 --gpus 8 --tp 0 --gbs 0"
    code, _, err = run(line)
    name = command.split()[0]
    assert (code, err.splitlines()[0]) == (2, f"traincast: {name}: 2 problems")
    assert "estimate: " not in err.removeprefix(f"traincast: {name}: ")
    assert "  tp = 0: must be a whole number of at least 1" in err.splitlines()
    code, _, err = run(f"{command} llama-3-8b --system dgx-h100 --gpus 8 --tp 0")
    assert (code, err) == (2, f"traincast: {name}: tp = 0: must be a whole number of at least 1\n")
    failure = json.loads(run(f"{line} --json").out)["error"]
    assert (failure["subject"], len(failure["problems"])) == (name, 2)


def test_a_message_of_a_search_names_the_command(run):
    for command in ("plan", "export"):
        code, _, err = run(f"{command} llama-3-8b --system dgx-h100 --gpus 8 --replicas 3 --zero 0 --vp 0")
        assert (code, err.startswith(f"traincast: {command}: ")) == (2, True), err


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        ("plan 0 --system dgx-h100 --gpus 8", "traincast catalog"),
        ("plan llama-3-8b --system nowhere-at-all --gpus 8", "traincast catalog"),
        ("estimate llama-3-8b --system dgx-h100 --assumptions 0", "traincast catalog"),
        (
            "calibrate --system dgx-h100 --log torchtitan.log --given 'model=0 gpus=8' --output a.yaml",
            "traincast catalog",
        ),
        ("plan llama-3-8b --system dgx-h100 --gpus 8 --framework 0", ""),
        ("export llama-3-8b --system dgx-h100 --to 0", ""),
        ("schema 0", ""),
    ],
)
def test_no_message_lists_a_catalogue(command, listed, run, folder):
    code, _, err = run(command)
    assert code == 2
    assert max(map(len, err.splitlines())) < MAX_LISTED_COLUMNS + 80
    assert (listed in err) if listed else ("traincast catalog" not in err)


def test_names_are_listed_in_two_lines_at_most():
    names = [f"name-{i:03}" for i in range(100)]
    text = some_of(names, "traincast catalog")
    shown, _, rest = text.partition(" … and ")
    assert shown.split(", ") == names[: len(shown.split(", "))]
    assert len(shown) <= MAX_LISTED_COLUMNS
    assert rest == f"{100 - len(shown.split(', '))} more (traincast catalog)"
    assert some_of(names[:3]) == "name-000, name-001, name-002"
    assert close_to("nam-099", names).startswith("did you mean name-099")


def test_a_model_that_is_not_known_is_the_only_problem_of_a_file_that_describes_none(run, folder):
    """DeepSpeed's configuration has no model: the one given is wrong, not missing."""
    (folder / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}'
    )
    code, _, err = run("check ds.json --system dgx-h100 --gpus 8 --seq 4096 --model llama-3-9b")
    assert code == 2
    assert "unknown model 'llama-3-9b'" in err
    assert "does not describe the model" not in err
    code, _, err = run("check ds.json --system dgx-h100 --model llama-3-9b")
    assert (code, "unknown model 'llama-3-9b'" in err, "does not give the number of GPUs" in err) == (
        2,
        True,
        True,
    )
    code, _, err = run("check ds.json --system dgx-h100 --gpus 8 --seq 4096")
    assert (code, "DeepSpeed does not describe the model; give --model" in err) == (2, True)


def test_errors_without_a_problem_are_not_collected():
    from traincast.core.errors import ErrorCollector

    def fail():
        raise InputError("file", ())

    errors = ErrorCollector("check")
    assert errors.catch(fail) is None
    assert errors.errors == []


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ("--pp 34", "chunks 1 and 34 of 34 without a layer, only embedding or head: pp × vp = 34 × 1 for 32"),
        ("--pp 33", "chunk 33 of 33 without a layer, only embedding or head: pp × vp = 33 × 1 for 32"),
        ("--pp 17 --vp 2", "chunks 1 and 34 of 34 without a layer, only embedding or head: pp × vp = 17 × 2"),
        ("--pp 16", ""),
        ("--pp 1 --tp 8", ""),
    ],
)
def test_pipelines_of_more_chunks_than_layers_say_which_have_none(degrees, said, run):
    """Embedding and head can be chunks of their own (`most_chunks`); llama-3-8b has 32 layers."""
    code, out, _ = run(f"estimate llama-3-8b --system dgx-h100 {degrees} --gbs 68")
    assert code == 0
    assert said in " ".join(out.split())
    assert ("without a layer" in out) == bool(said)
