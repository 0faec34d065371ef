"""What many tests share."""

import csv
from pathlib import Path

import pytest

import traincast as tc

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def gpt():
    """The paper's trillion-parameter GPT."""
    return tc.load_model("gpt3-1t")


@pytest.fixture(scope="session")
def h200():
    """H200 in fast domains of 8."""
    return tc.load_system("h200-nvs8")


@pytest.fixture(scope="session")
def golden_operations():
    """Rows of the golden file of single operations."""
    with (GOLDEN / "paper_ops.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
