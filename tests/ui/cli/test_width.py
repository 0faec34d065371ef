"""Nothing is wider than the terminal, whose columns `COLUMNS` says also where no terminal is."""

import re

import pytest
from rich.cells import cell_len

from traincast.ui.cli import output
from traincast.ui.cli.main import app
from traincast.ui.cli.output import message_columns  # the fixture of all tests replaces it in its module
from traincast.ui.terminal_width import columns_of

QUESTIONS = [
    "plan qwen3-30b-a3b --system dgx-h100 --gpus 32",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --why",
    "compare llama-3-70b --system dgx-h100,mi300x-node --gpus 64",
    "estimate llama-3-8b --system dgx-h100 --dp 8 --gbs 64",
    "memory llama-3-70b --system dgx-a100 --gpus 8 --train lora:r=16",
    "advise gpt-1.3b --system dgx-a100 --tp 2 --dp 32 --gbs 512 --step-seconds 0.9 --why",
    "check examples/my_cluster/pretrain.sh --system dgx-h100 --mfu 0.2",
    "scaling --model gpt-13b --system polaris --gpus 8,16 --zero 1,2,3",
    "limits --accelerator h100-sxm-80",
    "flops mixtral-8x7b --seq 8192",
    "docs recipes",
    "docs uncertainty",
    "docs",
    "example",
    "catalog",
    "catalog dgx-h100",
    "plan --help",
    "plan nosuch --system dgx-h100 --gpus 8",
    "plan llama-3-70b --system dgx-h100 --gpus 8",
]


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_line_is_wider_than_the_terminal(question, columns, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(output, "message_columns", message_columns)
    for command in (app, app[question.split()[0]]):  # cyclopts keeps the console of a process's first page
        monkeypatch.setattr(command, "_fallback_console", None)
    _, out, err = run(question)
    assert out + err
    wide = [line for line in (out + err).splitlines() if cell_len(line) > columns]
    assert wide == []


def test_no_figure_is_cut_at_sixty_columns(run, monkeypatch):
    """Bars are shorter, tables denser and lines broken, but every figure is there."""
    question = "estimate llama-3-70b --system dgx-h100 --gpus 64 --tp 8 --pp 4"
    figures = []
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        figures.append(re.findall(r"[\d.,]+ (?:m?s|[GM]iB)\b", " ".join(run(question).out.split())))
    assert figures[0] == figures[1]


def test_the_utilisation_of_fp8_stands_in_the_first_lines(run):
    lead = run("plan llama-3-70b --system dgx-h100 --gpus 64 --precision fp8").out.splitlines()[3]
    assert re.search(r"MFU [\d.]+%", lead)
    assert len(lead) <= 80


def test_columns_are_stated_or_those_of_the_terminal(monkeypatch):
    for stated, columns in (("72", 72), ("8", 40), ("0", 80), ("wide", 80), ("", 80)):
        monkeypatch.setenv("COLUMNS", stated)
        assert columns_of(None) == columns
