"""Answers to fixed questions stay as they are, or their change has a reason; `calibration/answers.py`."""

from itertools import pairwise

import pytest

import answers

ROWS = answers.read()


@pytest.mark.parametrize("row", ROWS, ids=[row["question"] for row in ROWS])
def test_answers_are_those_of_the_file(row):
    """The figures of tests/data/answers.csv, which `make answers` writes; a change there needs its reason."""
    assert answers.changes(row, answers.ask(row["command"])) == {}


def test_the_questions_are_of_many_commands_and_frameworks():
    commands = [row["command"].split() for row in ROWS]
    assert len(ROWS) >= 40
    assert len({row["question"] for row in ROWS}) == len(ROWS)
    assert len({command[0] for command in commands}) >= 12
    pairs = [pair for command in commands for pair in pairwise(command)]
    frameworks = {word for before, word in pairs if before == "--framework"}
    assert {"torchtitan", "deepspeed", "nanotron", "huggingface"} <= frameworks


def row_of(**figures):
    return dict.fromkeys(answers.COLUMNS, "") | figures


def test_changes_above_two_percent_are_named():
    before = row_of(seconds="10", memory_gib="50", fits_probability="0.5")
    assert answers.changes(before, before | {"seconds": "10.2", "fits_probability": "0.51"}) == {}
    found = answers.changes(before, before | {"seconds": "10.21", "fits_probability": "0.53"})
    assert list(found) == ["seconds", "fits_probability"]
    assert list(answers.changes(before, row_of(refused="no"))) == [
        "seconds",
        "memory_gib",
        "fits_probability",
        "refused",
    ]


def test_a_reason_names_the_question_and_its_figure_as_it_is_now(tmp_path):
    (tmp_path / "1.fixed.md").write_text("Right.\n\nanswers: a-1 10.2, b 0.33: the wait counts\n")
    (tmp_path / "README.md").write_text("answers: c 1: an example is no reason\n")
    reasons = answers.explained(tmp_path)
    assert reasons == {("a-1", 10.2): "the wait counts", ("b", 0.33): "the wait counts"}
    assert answers.has_reason("a-1", row_of(seconds="10.22"), reasons)
    assert not answers.has_reason("a-1", row_of(seconds="10.5"), reasons)
    assert answers.has_reason("b", row_of(figure="0.3301"), reasons)
    assert not answers.has_reason("c", row_of(seconds="1"), reasons)
