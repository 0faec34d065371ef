"""The measured GPT: under every plan its losses and gradients are those on one rank."""

import math
import multiprocessing
import socket
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

PLANS = (
    {"mbs": 8, "zero": 0},
    {"mbs": 2, "zero": 0},
    {"dp": 2, "mbs": 2, "zero": 0},
    {"dp": 2, "mbs": 4, "zero": 1},
    {"tp": 2, "mbs": 4, "zero": 0},
    {"tp": 4, "mbs": 8, "zero": 0},
    {"pp": 2, "mbs": 1, "zero": 0},
    {"pp": 4, "mbs": 2, "zero": 0},
    {"tp": 2, "pp": 2, "mbs": 2, "zero": 0},
    {"tp": 2, "dp": 2, "mbs": 2, "zero": 1},
    {"dp": 2, "pp": 2, "mbs": 1, "zero": 0},
    {"tp": 2, "pp": 2, "mbs": 4, "zero": 0, "precision": "bf16-pure"},
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_losses_and_gradients_of_every_plan_are_those_of_one_rank(monkeypatch):
    """Four ranks; smaller plans are trained side by side.

    Sums are rounded to 6e-8 of their largest term, at 16 bits to 4e-3.
    """
    monkeypatch.syspath_prepend(Path(__file__).parent)
    context = multiprocessing.get_context("forkserver")  # PyTorch is loaded once, not by every rank
    context.set_forkserver_preload(["cut_gradients"])
    from cut_gradients import run_rank

    with ProcessPoolExecutor(4, mp_context=context) as ranks:
        results, *_ = ranks.map(run_rank, range(4), [free_port()] * 4, [PLANS] * 4)
    for plan, result in zip(PLANS, results, strict=True):
        exact = "precision" not in plan
        assert result["loss"] < (2e-6 if exact else 5e-3), plan
        assert result["gradients"] < (2e-5 if exact else 5e-2), plan
    first = results[0]["later"]
    assert abs(first - math.log(512)) < 0.1  # hardly trained: the loss of a uniform guess
    for plan, result in zip(PLANS, results, strict=True):
        assert result["later"] == pytest.approx(first, abs=2e-2 if "precision" in plan else 1e-5)
