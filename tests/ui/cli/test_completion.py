"""Completion in a real shell, which reads the script and then asks the program."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from traincast.catalog.load import model_names, system_names
from traincast.core.knobs import STRATEGIES
from traincast.planner.frameworks.spaces import FRAMEWORKS

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_traincast; printf '%s\\n' "${COMPREPLY[@]}"
complete -p traincast
"""


@pytest.fixture
def complete(run, tmp_path):
    """What bash offers for a command line, whose last word is being written."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    program, script = tmp_path / "bin" / "traincast", tmp_path / "traincast.bash"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m traincast "$@"\n')
    program.chmod(0o755)
    script.write_text(run("completion bash").out)

    def complete(*words):
        path = f"{program.parent}:/usr/bin:/bin"
        command = [bash, "--norc", "-c", ASK, "bash", str(script), "traincast", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | {"PATH": path}
        )
        assert done.stderr == ""
        *offered, registered = done.stdout.splitlines()
        assert registered == "complete -o bashdefault -o default -F _traincast traincast"
        return [word for word in offered if word]

    return complete


def test_bash_completes_commands_and_options(complete):
    assert complete("es") == ["estimate"]
    assert {"plan", "study", "validate", "catalog"} <= set(complete(""))
    assert complete("plan", "--glo") == ["--global-batch"]
    assert complete("plan", "--tokens-") == ["--tokens-per-batch"]
    assert "--json" in complete("catalog", "--")


def test_bash_completes_choices(complete):
    assert complete("plan", "--schedule", "zb-") == ["zb-h1", "zb-h2", "zb-2p", "zb-v"]
    assert complete("plan", "--objective", "") == ["time", "throughput", "cost", "memory"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]


def test_bash_completes_names_of_the_catalogue(complete, tmp_path):
    assert complete("plan", "llama-3") == [name for name in model_names() if name.startswith("llama-3")]
    assert complete("plan", "llama-3-8b", "--system", "dgx-h") == [
        name for name in system_names() if name.startswith("dgx-h")
    ]
    assert {"h100", "h100-pcie"} <= set(complete("plan", "llama-3-8b", "--system", "h10"))  # aliases
    assert complete("plan", "llama-3-8b", "--system", "p5.") == ["p5.48xlarge"]
    assert complete("plan", "llama-3-8b", "--precision", "mx") == ["mxfp8"]
    assert complete("memory", "llama-3-8b", "--recompute", "norms+exp") == ["norms+experts"]
    assert complete("plan", "llama-3-8b", "--strategy", "1d,sum") == [r"1d\,summa"]  # bash quotes commas
    (tmp_path / "zoo.yaml").write_text("")
    assert complete("plan", "zoo") == ["zoo.yaml"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("limits --accelerator h", "h200-sxm-141"),
        ("plan --assumptions t", "torchtitan-2025"),
        ("plan --framework m", "megatron"),
        ("catalog d", "dgx-h100"),
        ("schema e", "error"),
    ],
)
def test_the_program_answers_what_shells_ask(words, offered, run):
    assert offered in run(f"__complete {words}").out.splitlines()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_for_other_shells(shell, run, tmp_path):
    """Read by the shell where it is installed; elsewhere it is only seen that every command and the way to
    ask are in."""
    script = run(f"completion {shell}").out
    assert "traincast" in script
    assert "__complete" in script
    for command in ("plan", "estimate", "study", "completion"):
        assert command in script
    if shutil.which(shell):
        path = Path(tmp_path / "script")
        path.write_text(script)
        subprocess.run([shell, "-n", str(path)], check=True)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_help_texts_list_every_framework_and_strategy(run, shell):
    frameworks, strategies = ", ".join(FRAMEWORKS), ", ".join(STRATEGIES)
    help_page = " ".join(run("plan --help").out.split())
    script = run(f"completion {shell}").out
    assert all(names in help_page and names in script for names in (frameworks, strategies))
