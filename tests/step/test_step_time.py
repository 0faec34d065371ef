"""Parts of a step that no layer has."""

from dataclasses import replace

import pytest

import traincast as tc
from traincast.catalog.training import read_input_rate

PLAN = tc.Plan(tp=2, dp=4, zero=1)


def of_rate(rate):
    machine = replace(tc.load_system("dgx-h100"), input_rate=rate)
    return tc.estimate("llama-3-8b", machine, PLAN, gbs=64)


def test_a_step_waits_for_data_that_are_read_more_slowly():
    """64 sequences on 8 GPUs at 1 sequence/s each take 8 s, as the step does then; its rest is the same."""
    free, slow = of_rate(None), of_rate(1.0)
    assert free.step_seconds < 8
    assert slow.step_seconds == pytest.approx(8)
    assert slow.breakdown["data_loading"] == pytest.approx(8 - free.step_seconds)
    assert slow.breakdown | {"data_loading": 0.0} == free.breakdown
    assert slow.memory == free.memory


def test_reading_ahead_is_free():
    free, enough = of_rate(None), of_rate(100.0)
    assert enough.breakdown == free.breakdown
    assert tc.trace(of_rate(1.0)).totals["data_loading"] == pytest.approx(8 - free.step_seconds)


def test_rates_of_input_in_sequences_tokens_and_bytes():
    """Llama 3: 8,192 tokens, ids of 4 bytes as its vocabulary is above 65,500; GPT-2's 50,257 take 2."""
    llama = tc.load_model("llama-3-8b")
    assert read_input_rate("3 sequence/s", llama) == 3
    assert read_input_rate("16.384 ktoken/s", llama) == pytest.approx(2)
    assert read_input_rate("32.768 kB/s", llama) == pytest.approx(1)
    assert read_input_rate("2.048 kB/s", replace(llama, vocab=50_257, seq=1024)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "model"), [("3", "llama-3-8b"), ("3 s", "llama-3-8b"), ("1 MB/s", "gpt3-1t")]
)
def test_other_rates_of_input_are_refused(text, model):
    with pytest.raises(tc.InputError, match="sequence/s"):
        read_input_rate(text, tc.load_model(model))
