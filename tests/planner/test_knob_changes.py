"""Changes of degrees and choices of a plan given by hand."""

from dataclasses import replace

import pytest

import traincast as tc
from traincast.planner.answers.knob_changes import KnobChange, PlanTester
from traincast.step.changed_plan import LEAST_GAIN

UNPLACED = {f"fast_{axis}": None for axis in ("tp", "tp2", "cp", "pp", "dp")}


@pytest.fixture(scope="module")
def tester():
    """More tensor and pipeline parallelism than Llama 3 8B needs on 64 H100: TP is a fifth of the step."""
    return PlanTester.from_estimate(tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=4, pp=2, dp=8), gbs=512))


@pytest.fixture(scope="module")
def helpful(tester):
    return tester.helpful()


def test_degrees_are_among_what_helps(helpful):
    """A degree that is halved leaves its ranks to data parallelism."""
    singles, _ = helpful
    found = {knob.knob: (knob.old, knob.new) for change in singles for knob in change.knobs}
    assert found["tp"] == (4, 2)
    assert {"pp", "vp", "mbs"} <= set(found)
    for change in singles:
        assert change.est.plan.gpus == 64


def test_gains_are_those_of_an_estimate_of_the_changed_plan(tester, helpful):
    singles, _ = helpful
    change = next(one for one in singles if one.change.knobs == {"tp", "dp"})
    other = tc.estimate("llama-3-8b", "dgx-h100", replace(tester.plan, tp=2, dp=16, **UNPLACED), gbs=512)
    assert change.step_seconds == pytest.approx(other.step_seconds)
    assert change.gain == pytest.approx(1 - other.step_seconds / tester.est.step_seconds)


def test_what_gains_too_little_is_no_line(helpful):
    singles, together = helpful
    assert all(change.gain >= LEAST_GAIN for change in singles)
    assert [change.gain for change in singles] == sorted((one.gain for one in singles), reverse=True)
    assert together.gain >= singles[0].gain + LEAST_GAIN


def test_two_changes_that_gain_only_together():
    """Full recomputation goes only with a smaller micro-batch: without either the plan does not fit."""
    plan = tc.Plan(tp=4, dp=2, mbs=8, recompute="full", zero=1)
    est = tc.estimate("llama-3-8b", "dgx-h100", plan, gbs=64, assumptions="megatron-core-2025")
    tester = PlanTester.from_estimate(est)
    alone = tester.try_change(KnobChange(chosen={"recompute": "none"}))
    assert not tester.fits(alone.est)
    singles, together = tester.helpful()
    assert together is not None
    assert {"recompute"} < together.change.knobs
    assert together.gain > max(change.gain for change in singles)
    assert tester.fits(together.est)


def test_a_plan_of_the_paper_changes_within_its_framework():
    ideal = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=32, dp=8), gbs=4096)
    assert PlanTester.from_estimate(ideal).space.name == "paper"
    assert all(change.est.plan.vp == 1 for change in PlanTester.from_estimate(ideal).helpful()[0])
