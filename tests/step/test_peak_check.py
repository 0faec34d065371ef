"""Measured times below the peak's are refused, and the likely mistake is named."""

import re

import numpy as np
import pytest

import traincast as tc
from traincast.step.model_flops import model_flops_per_token

GPUS = 64


@pytest.fixture(scope="module")
def est():
    """Llama 3 8B on 64 H100, one sequence of 8192 tokens a micro-batch, 8 of them."""
    return tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(dp=GPUS), gbs=512)


def least(est, peak=989.4e12):
    """Time of a step at the dense peak of the H100 data sheet [s]."""
    return model_flops_per_token(est.model) * est.gbs * est.model.seq / GPUS / peak


def refusal(est, time, **given):
    """Return the message on a measured time."""
    with pytest.raises(tc.InputError) as caught:
        tc.metrics(est, step_seconds=time, **given)
    return str(caught.value)


def test_the_peak_is_the_limit(est):
    assert tc.metrics(est, step_seconds=least(est) * 1.001).mfu["megatron"] == pytest.approx(
        1 / 1.001, rel=1e-3
    )
    assert "100.1% of the 16-bit peak (MFU, megatron) of 64" in refusal(est, least(est) / 1.001)


def test_a_predicted_time_is_never_refused():
    """A convention that counts masked attention in full may go above all of the peak."""
    model = tc.load_model("llama-3-8b", seq=131072)
    est = tc.estimate(
        model, "dgx-h100", tc.Plan(dp=GPUS // 8, cp=8, cp_kind="ring"), gbs=64, assumptions="calibrated"
    )
    share = tc.metrics(est, step_seconds=least(est) * 1.2).mfu
    assert share["megatron-full"] > 1 > share["megatron"]


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda time: time / 8, "the time of one of 8 micro-batches"),
        (lambda time: time / 60, "given in minutes"),
        (lambda time: time / 1000, "divided by 1000"),
    ],
)
def test_the_mistake_that_was_made_is_the_likely_one(est, mistake, said):
    """The number in the message is the measured time."""
    message = refusal(est, mistake(est.step_seconds))
    match = re.search(r"most likely (.*)\?.*takes ([\d.]+) s \(MFU ([\d.]+)%\)", message)
    assert match[1].startswith(said)
    assert float(match[2]) == pytest.approx(est.step_seconds, rel=1e-3)
    assert float(match[3]) / 100 == pytest.approx(least(est) / est.step_seconds, rel=2e-2)


def test_a_batch_in_tokens_is_seen(est):
    wrong = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(dp=GPUS), gbs=512 * 8192)
    message = refusal(wrong, est.step_seconds)
    assert "most likely a global batch in tokens? 4,194,304 of them are 512 sequences of 8,192" in message


def test_a_time_above_the_peak_names_another_precision(est):
    assert "run in fp8? Its peak is 1.979 PFLOP/s" in refusal(est, least(est) / 1.5)
    assert "run in fp8" not in refusal(est, least(est) / 3)  # which is too fast for that, too


def test_gpus_and_batch_are_bounded(est):
    message = refusal(est, least(est) / 2.5)
    assert "more GPUs than the 64 of the plan: at least 160" in message
    assert "a smaller global batch than 512 sequences: at most 204" in message  # 512 / 2.5


def test_recomputation_that_cannot_have_run():
    """With the layers recomputed, 4/3 of the FLOPs less the head: too much, where the model's alone are
    not."""
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(dp=GPUS, recompute="full"), gbs=512)
    message = refusal(est, least(est) * 1.1)
    assert "(HFU, megatron)" in message
    assert "run without the recomputation of the plan? (HFU 90.9%)" in message


def test_a_column_is_refused_by_its_worst_row(est):
    plans = est.plan.columns()
    rows = tc.estimate(est.model, est.system, plans, gbs=est.gbs, assumptions=est.assumptions)
    assert f"step_seconds = {least(est) / 4:g}: 400.0%" in refusal(rows, np.array([2.0, 0.25]) * least(est))
