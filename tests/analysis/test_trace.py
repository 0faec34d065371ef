"""The simulated step of a plan, against its estimate and against the rules of its schedule."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.catalog.load import load_model, load_system
from traincast.core.assumptions import PAPER
from traincast.core.errors import InputError
from traincast.core.plan import Plan, Plans

MODELS = {
    name: load_model(name, seq=2048)
    for name in ("llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt3-175b")
}
MODELS["gpt3-1t"] = load_model("gpt3-1t")
SYSTEMS = {name: load_system(name) for name in ("dgx-h100", "polaris", "h200-nvs8")}
STACKS = (
    "paper",
    "calibrated",
    "megatron-lm-2022",
    "megatron-lm-2023",
    "megatron-deepspeed-2022",
    "torchtitan-2025",
)
SCHEDULES = ("1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-2p", "zb-v", "dualpipe", "dualpipe-v")
EXACT = {"rel": 1e-9, "abs": 1e-12}


@st.composite
def estimates(draw, schedules=SCHEDULES, models=tuple(MODELS), stacks=STACKS):
    """Draw an estimate of a valid plan."""
    schedule, model = draw(st.sampled_from(schedules)), MODELS[draw(st.sampled_from(models))]
    pp = draw(
        st.sampled_from(
            [2, 4] if schedule in ("interleaved", "zb-v", "dualpipe", "dualpipe-v") else [1, 2, 3, 4]
        )
    )
    nm = draw(st.integers(2, 6)) * 2 * pp
    vp = {"interleaved": draw(st.sampled_from([2, 3])), "zb-v": 2, "dualpipe-v": 2}.get(schedule, 1)
    recompute = draw(st.sampled_from(["none", "selective", "full"]))
    knobs = {
        "schedule": schedule.replace("interleaved", "1f1b"),
        "pp": pp,
        "vp": vp,
        "tp": draw(st.sampled_from([1, 2, 8])),
        "dp": 2,
        "zero": draw(st.sampled_from([0, 1, 2, 3])),
        "recompute": recompute,
        "recompute_every": draw(st.sampled_from([1, 2])) if recompute == "full" else 1,
        "mbs": draw(st.sampled_from([1, 2])),
    }
    if model.experts:
        knobs |= {
            "ep": draw(st.sampled_from([1, 2])),
            "offload": draw(st.sampled_from(["none", "activations"])),
        }
        knobs["ep_overlap"] = knobs["ep"] > 1 and draw(st.booleans())
    gbs = nm * knobs["dp"] * knobs["mbs"]
    plan = Plan(**knobs)
    system, stack = SYSTEMS[draw(st.sampled_from(sorted(SYSTEMS)))], draw(st.sampled_from(stacks))
    try:
        return tc.estimate(model, system, plan, gbs=gbs, assumptions=stack)
    except InputError:
        reject()


@settings(max_examples=80)
@given(estimates())
def test_totals_are_those_of_the_estimate(est):
    """All but the two components that are simulated are met on the slowest device, and every device spends
    the whole step.
    """
    trace = tc.trace(est)
    scale = {"rel": 1e-9, "abs": 1e-9 * est.step_seconds}
    assert set(trace.remainder) == {"bubble", "pp_comm"}
    for component, seconds in est.breakdown.items():
        if component not in trace.remainder:
            assert trace.totals[component] == pytest.approx(seconds, **scale), component
    assert max(map(abs, trace.remainder.values())) <= sum(
        map(sum, map(trace.passes.seconds, trace.passes.spent))
    )
    assert trace.simulated_seconds + sum(trace.remainder.values()) == pytest.approx(est.step_seconds, **scale)
    for device in range(est.plan.pp):
        assert sum(trace.totals_of(device).values()) == pytest.approx(trace.simulated_seconds, **scale)


@settings(max_examples=40)
@given(estimates(("1f1b", "interleaved", "gpipe"), ("gpt3-1t",)))
def test_equal_stages_have_no_remainder(est):
    """Where docs/schedules.md says that closed forms are exact: layers that divide, and no vocabulary;
    transfers of any length, but interleaved of at most half a chunk's pass."""
    trace = tc.trace(est)
    assume(est.plan.vp == 1 or trace.passes.overlapped_transfer < min(trace.passes.seconds("F")) / 2)
    assume(128 % (est.plan.pp * est.plan.vp) == 0)
    assert trace.remainder == pytest.approx({"bubble": 0, "pp_comm": 0}, abs=1e-9 * est.step_seconds)


@settings(max_examples=40)
@given(estimates())
def test_every_micro_batch_passes_every_chunk_forward_and_backward(est):
    trace = tc.trace(est)
    passed = Counter(
        (way, event.chunk, event.microbatch)
        for passes in trace.by_device
        for event in passes
        for way in event.kind
    )
    expected = product("FBW", range(est.plan.pp * est.plan.vp), range(trace.microbatches))
    assert passed == Counter(expected)
    assert trace.microbatches == est.gbs / est.plan.dp / est.plan.mbs


@settings(max_examples=40)
@given(estimates())
def test_a_page_can_draw_what_the_dictionary_holds(est):
    """Passes and waits follow each other without gap or overlap, to the end of the pipeline, and `after` to
    that of the step.
    """
    printed = json.loads(json.dumps(tc.trace(est).to_dict()))
    tolerance = 3e-6 * printed["step_seconds"]  # rounded to a millionth
    for device in printed["devices"]:
        spans = [(start, seconds) for _, start, seconds in device["waits"]]
        for kind, chunk, _, start in device["passes"]:
            spans.append((start, sum(printed["chunks"][chunk]["passes"][printed["kinds"][kind]].values())))
        spans += [(device["begin"] + part["start"], part["seconds"]) for part in printed["after"]]
        spans.sort()
        assert spans[0][0] == pytest.approx(device["begin"], abs=tolerance)
        for (start, seconds), (following, _) in pairwise(spans):
            assert following == pytest.approx(start + seconds, abs=tolerance)
        end = max(printed["step_seconds"], printed["simulated_seconds"])
        assert sum(spans[-1]) - device["begin"] == pytest.approx(end, abs=tolerance)


def test_size_of_the_dictionary():
    """A page gets it with every change of a plan: 8 stages with 5 chunks each and 64 micro-batches in less
    than 200 kB.
    """
    plan = Plan(tp=4, pp=8, vp=5, dp=2)
    est = tc.estimate(load_model("llama-3-70b", seq=8192), "dgx-h100", plan, gbs=128)
    assert len(json.dumps(tc.trace(est).to_dict())) < 200_000


def test_by_hand():
    """Two stages, two micro-batches, 1F1B: the second stage is done with both when the first begins its last
    backward pass.
    """
    plan = Plan(tp=8, pp=2, dp=4, fast_tp=8, fast_pp=1, fast_dp=1)
    est = tc.estimate("gpt3-1t", "h200-nvs8", plan, gbs=8)
    trace = tc.trace(est)
    F, B = trace.passes.seconds("F")[0], trace.passes.seconds("BW")[0]
    first, second = trace.by_device
    assert [(event.kind, event.microbatch) for event in first] == [("F", 0), ("F", 1), ("BW", 0), ("BW", 1)]
    assert [(event.kind, event.microbatch) for event in second] == [("F", 0), ("BW", 0), ("F", 1), ("BW", 1)]
    assert [event.start for event in first] == pytest.approx([0, F, 2 * F + B, 3 * F + 2 * B], **EXACT)
    assert [event.start for event in second] == pytest.approx([F, 2 * F, 2 * F + B, 3 * F + B], **EXACT)
    waited = [(wait.component, wait.seconds) for wait in trace.waits[0]]
    assert waited == [("bubble", pytest.approx(B, **EXACT)), ("bubble", pytest.approx(F, **EXACT))]


def test_fused_passes_are_listed_in_sequence():
    """DualPipe's F with a BW: both have the length of their own."""
    plan = Plan(tp=4, pp=4, dp=2, schedule="dualpipe")
    trace = tc.trace(tc.estimate(MODELS["llama-3-8b"], "dgx-h100", plan, gbs=32))
    assert sum(map(len, trace.by_device)) == len(trace.timeline.passes)
    assert len({(event.device, event.start) for event in trace.timeline.passes}) < len(
        trace.timeline.passes
    ), "some run as one"
    for passes in trace.by_device:
        for first, second in pairwise(passes):
            assert first.end <= second.start
        for event in passes:
            assert event.end - event.start == pytest.approx(
                trace.passes.seconds(event.kind)[event.chunk], **EXACT
            )


def test_overlapped_transfers():
    """1F1B of two stages and three micro-batches waits for 2(p - 1) + 2(nm - 1 - ceil((nm - 1)/p)) = 4 hops
    (docs/schedules.md).
    """
    stack = replace(PAPER, name="custom").with_values({"overlap.pp_exposed": 0})
    plan = Plan(tp=8, pp=2, dp=4, fast_tp=8, fast_pp=1, fast_dp=1)
    trace = tc.trace(tc.estimate("gpt3-1t", "h200-nvs8", plan, gbs=12, assumptions=stack))
    assert trace.totals["pp_comm"] == pytest.approx(4 * trace.passes.overlapped_transfer, **EXACT)
    assert trace.passes.overlapped_transfer > 0


@pytest.mark.parametrize(
    "knobs", [{"zero": 0}, {"zero": 1, "vp": 2}, {"zero": 2, "replicas": 2}, {"zero": 3}]
)
def test_data_parallel_traffic_is_waited_for_or_hides(knobs):
    """Together it is all of it, which is what is waited for where nothing can hide; stages alike, no
    contention.
    """
    plan = Plan(tp=8, pp=2, dp=4, fast_tp=8, fast_pp=1, fast_dp=1, **knobs)
    trace = tc.trace(tc.estimate("gpt3-1t", "h200-nvs8", plan, gbs=64))
    bare = tc.estimate(
        "gpt3-1t",
        "h200-nvs8",
        plan,
        gbs=64,
        assumptions=replace(PAPER, name="custom").with_values({"overlap.dp_window": 0}),
    )
    assert 0 < trace.totals["dp_comm"] < bare.breakdown["dp_comm"]
    for hidden in trace.passes.traffic:
        assert sum(hidden) + trace.totals["dp_comm"] == pytest.approx(bare.breakdown["dp_comm"], rel=1e-9)


def test_a_stage_without_layers():
    """It passes micro-batches on, and waits; the form is an upper bound for 1F1B (docs/schedules.md)."""
    plan = Plan(tp=8, pp=3, dp=2, layout="0,128,0")
    trace = tc.trace(tc.estimate("gpt3-1t", "h200-nvs8", plan, gbs=16))
    assert trace.device == 1
    assert [trace.totals_of(stage)["compute"] > 0 for stage in range(3)] == [False, True, False]
    assert 0 < trace.step_seconds - trace.simulated_seconds < 1e-4 * trace.step_seconds


def test_without_a_barrier_every_device_has_its_own_step():
    """ZB-H2 at F = B = W would start every stage F later than the one before, and end it so."""
    plan = Plan(tp=8, pp=4, dp=4, schedule="zb-h2", fast_tp=8, fast_pp=1, fast_dp=1)
    trace = tc.trace(tc.estimate("gpt3-1t", "h200-nvs8", plan, gbs=64))
    assert np.diff(trace.begin) == pytest.approx([trace.passes.seconds("F")[0]] * 3, **EXACT)
    assert [passes[0].start for passes in trace.by_device] == list(trace.begin)


@pytest.mark.parametrize(
    ("est", "reason"),
    [
        ("a name", "must be an Estimate"),
        (
            tc.estimate("gpt3-1t", "h200-nvs8", Plans(tp=np.array([1.0, 2.0])), gbs=64),
            "est = <Estimates of.*must be an Estimate of one plan",
        ),
        (
            tc.estimate("gpt3-1t", "h200-nvs8", Plan(pp=64), gbs=1 << 20),
            "at most 500,000 passes, this one 134,217,728",
        ),
    ],
)
def test_untraceable_estimates_are_refused(est, reason):
    with pytest.raises(InputError, match=reason):
        tc.trace(est)
