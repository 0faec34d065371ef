"""A measured step against the predicted one."""

import math

import pytest

import traincast as tc
from traincast.core.errors import InputError
from traincast.step.measurement import measured_step


@pytest.fixture(scope="module")
def est():
    """Software stated, so that the interval is that of one prediction."""
    plan = tc.Plan(tp=4, pp=2, dp=8)
    return tc.estimate("llama-3-8b", "dgx-h100", plan, gbs=512, assumptions="megatron-core-2025")


@pytest.fixture(scope="module")
def left_open():
    """Software left open, so that the interval is that of a mixture."""
    return tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=4, pp=2, dp=8), gbs=512)


@pytest.mark.parametrize("name", ["est", "left_open"])
def test_chance_at_the_ends_of_the_90_percent_interval_is_5_percent(name, request):
    """Of a 90 % interval each side leaves out 5 %, and the median lies in the middle."""
    of = request.getfixturevalue(name)
    for end in of.interval:
        measured = measured_step(of, step_seconds=end)
        assert measured.chance == pytest.approx(0.05, abs=0.001)
    middle = measured_step(of, step_seconds=of.median_seconds)
    assert middle.chance == pytest.approx(0.5, abs=0.001)
    assert middle.within_interval
    assert not measured_step(of, step_seconds=1.01 * of.interval[1]).within_interval


def test_the_further_off_the_less_likely(est):
    chances = [measured_step(est, step_seconds=times * est.step_seconds).chance for times in (1.1, 1.3, 1.6)]
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] < 0.01


def test_time_rate_and_mfu_are_one_measurement(est):
    """Tokens of a step over its time are the rate; MFU is the predicted one times predicted over measured."""
    step = 1.25 * est.step_seconds
    mfu = tc.metrics(est).mfu["megatron"] / 1.25
    given = [{"step_seconds": step}, {"tokens_per_second": 512 * 8192 / step}, {"mfu": mfu}]
    for one in given:
        measured = measured_step(est, **one)
        assert measured.step_seconds == pytest.approx(step)
        assert measured.mfu == pytest.approx(mfu)
        assert measured.longer_than_predicted == pytest.approx(0.25)
    assert measured_step(est) is None


def test_errors_of_the_paper_s_machine_are_not_known():
    ideal = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=16, dp=16, fast_tp=8), gbs=4096)
    measured = measured_step(ideal, step_seconds=2 * ideal.step_seconds)
    assert measured.chance is None
    assert measured.within_interval is None
    assert measured.causes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mfu": 28.0}, ("mfu = 28", "at most 1", "was 28% meant?")),
        ({"mfu": 1.2}, ("120.0% of the 16-bit peak (MFU, megatron)", "run in fp8?", "more GPUs than the 64")),
        ({"mfu": -0.2}, ("mfu = -0.2", "above 0")),
        ({"mfu": 0.28, "step_seconds": 9.1}, ("step_seconds and mfu: give one of them",)),
        ({"tokens_per_second": math.inf}, ("tokens_per_second = inf", "finite")),
        ({"step_seconds": 0.2}, ("of the 16-bit peak", "one of 64 micro-batches?")),
    ],
)
def test_what_cannot_be_is_refused_with_the_likely_mistake(est, given, words):
    with pytest.raises(InputError) as error:
        measured_step(est, **given)
    assert all(word in str(error.value) for word in words), str(error.value)
