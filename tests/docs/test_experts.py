"""What experts ran: their plans are in the space, are said to fit, and no search misses them."""

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Cheap searches: of each kind of job one.
SAMPLE = (
    "llama3-8192",
    "llama3-16384",
    "papers-007",
    "dgxc-227",
    "mbridge-221",
    "mlperf-004",
    "nvmoe-007",
    "titan-006",
)


def generator(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXPERTS = generator("experts_page")
RUNS = {run.id: run for run in EXPERTS.runs()}


def test_experts_are_at_least_30():
    assert len(RUNS) >= 30


@pytest.mark.parametrize("name", SAMPLE)
def test_experts_plans_are_possible_and_never_missed(name):
    row = EXPERTS.compare(RUNS[name])
    assert row.inside
    assert row.expert.fits_probability > EXPERTS.LIKELY
    assert row.slower >= -1e-9  # than the fastest plan that was found
    assert (row.rank == 1) == (row.slower <= 1e-9)
    assert row.fastest.step_seconds <= row.recommended.step_seconds * (1 + 1e-9)


@pytest.mark.parametrize("gpus", [8192, 16384])
def test_experts_of_meta_are_met(gpus):
    row = RUNS[f"llama3-{gpus}"]
    est = EXPERTS.estimate_of(row)
    low, high = est.interval
    assert low <= row.step_seconds <= high


@pytest.mark.skipif("NIGHTLY" not in os.environ, reason="half a minute of searches; set NIGHTLY")
def test_experts_page_is_up_to_date():
    text = generator("generate").slow_pages()["experts.md"]
    page = ROOT / "docs" / "experts.md"
    assert page.read_text(encoding="utf-8") == text, "run: python tools/docs/generate.py"
