"""Methods of saving time and memory, and causes of slow steps."""

from dataclasses import replace

import pytest

import traincast as tc
from traincast.analysis.saving_methods import methods
from traincast.step.measurement import causes


@pytest.fixture(scope="module")
def est():
    return tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, dp=4, mbs=2, zero=1), gbs=64)


def test_every_method_is_the_estimate_with_it(est):
    rows = {(row.method, row.change): row for row in methods(est)}
    assert {method for method, _ in rows} == {
        "micro-batch", "accumulation", "recomputation", "precision", "gradients", "optimizer", "ZeRO",
        "offloading",
    }  # fmt: skip
    full = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, dp=4, mbs=2, zero=1, recompute="full"), gbs=64)
    row = rows["recomputation", "none to full"]
    assert row.gain == pytest.approx(float(est.step_seconds / full.step_seconds) - 1)
    assert row.memory_bytes == pytest.approx(float(full.memory_bytes - est.memory_bytes))
    twice = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, dp=4, mbs=2, zero=1), gbs=128)
    row = rows["accumulation", "global batch 64 to 128"]
    assert row.gain == pytest.approx(float(2 * est.step_seconds / twice.step_seconds) - 1)


def test_methods_that_cannot_run_are_left_out(est):
    """A100s have no 8-bit products; a micro-batch of 1 has no half."""
    small = tc.estimate("llama-3-8b", "dgx-a100", tc.Plan(tp=2, dp=4), gbs=64)
    found = [(row.method, row.change) for row in methods(small)]
    assert not any("fp8" in change for _, change in found)
    assert [change for method, change in found if method == "micro-batch"] == ["1 to 2"]


def test_each_cause_explains_all_of_the_difference(est):
    predicted = float(est.step_seconds)
    found = [cause for cause in causes(est, 1.25 * predicted) if cause.predicted_seconds]
    assert {"host", "checkpoints"} < {cause.cause for cause in found}
    for cause in found:
        assert cause.predicted_seconds * (cause.factor - 1) == pytest.approx(0.25 * predicted)
    assert [cause.factor for cause in found] == sorted(cause.factor for cause in found)
    assert found[0].cause == "slow GPU"
    assert found[0].factor == pytest.approx(1.25)


def test_a_fast_step_has_no_cause(est):
    assert causes(est, 0.9 * float(est.step_seconds)) == []


def test_one_gpu_has_no_network():
    alone = tc.estimate("gpt-1.3b", "dgx-h100", tc.Plan(), gbs=8, assumptions="calibrated")
    names = [cause.cause for cause in causes(alone, 2 * float(alone.step_seconds))]
    assert "network" not in names
    assert names[-1] == "input pipeline"  # of which nothing is known


def test_data_that_are_read_too_slowly_are_a_method_and_a_cause():
    """64 sequences on 8 GPUs at 1 sequence/s each: 8 s, so that 10 s need them 1.25 times as slow."""
    machine = replace(tc.load_system("dgx-h100"), input_rate=1.0)
    slow = tc.estimate("llama-3-8b", machine, tc.Plan(tp=2, dp=4, mbs=2, zero=1), gbs=64)
    (row,) = (row for row in methods(slow) if row.method == "data loading")
    free = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, dp=4, mbs=2, zero=1), gbs=64)
    assert row.gain == pytest.approx(8 / free.step_seconds - 1)
    (cause,) = (cause for cause in causes(slow, 10.0) if cause.cause == "input pipeline")
    assert cause.predicted_seconds == pytest.approx(8)
    assert cause.factor == pytest.approx(1.25)
