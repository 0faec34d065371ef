"""What people read of a software is words; its name, which options and JSON take, stays."""

import json

import pytest

from traincast.catalog.facts import FACT_WORDS, OF_SOFTWARE
from traincast.catalog.software_stacks import Stack
from traincast.ui.cli.main import main

ROTATING = "torchtitan-2024+compiled=false+kernels=unfused-rotation"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (ROTATING, "torchtitan-2024, eager layers, unfused rotation"),
        (
            f"{ROTATING}+unfused-wgrad",
            "torchtitan-2024, eager layers, unfused weight gradients, unfused rotation",
        ),
        ("megatron-core-2025+dispatcher=flex", "megatron-core-2025, a fused dispatcher"),
        ("megatron-core-2025+dispatcher=allgather", "megatron-core-2025, all-gather dispatcher"),
        ("torchtitan-2025", "torchtitan-2025"),
        ("calibrated", "calibrated"),
    ],
)
def test_software_in_words(name, words):
    assert Stack(name).words == words


def test_every_value_of_a_fact_has_words():
    for fact, words in FACT_WORDS.items():
        assert set(words) == set(OF_SOFTWARE[fact].allowed)
    assert set(FACT_WORDS) == {fact for fact, known in OF_SOFTWARE.items() if known.allowed} - {"framework"}


def test_the_answer_says_words_and_its_json_the_name(capsys):
    question = ["estimate", "gpt-125m", "--system", "dgx-h100", "--gpus", "8", "--assumptions", ROTATING]
    main(question)
    printed = capsys.readouterr().out
    assert "+compiled=" not in printed
    assert "assumptions: torchtitan-2024, eager layers, unfused rotation" in " ".join(printed.split())
    main([*question, "--json"])
    assert json.loads(capsys.readouterr().out)["assumptions"] == Stack(ROTATING).assumptions.name


def test_the_release_is_said_where_the_name_has_none():
    assert Stack("torchtitan-eager+loss=chunked").dated_words == (
        "torchtitan-eager, a chunked loss (released 2024-12)"
    )
