"""Chrome traces: valid, without overlap, and with the sums of the trace they are of."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from test_trace import estimates

import traincast as tc
from traincast.analysis import chrome_trace
from traincast.core.errors import InputError
from traincast.core.plan import Plan


@pytest.fixture(scope="module")
def found():
    """A step of four stages with two chunks each, sends beside the work."""
    return tc.trace(tc.estimate("llama-3-8b", "dgx-h100", Plan(tp=2, pp=4, vp=2, dp=4), gbs=64))


@settings(max_examples=30)
@given(estimates())
def test_events_fill_the_step_of_every_device(est):
    """Those with a component: once after the other, from the start of the step to its end, with the totals of
    the trace.
    """
    found = tc.trace(est)
    for device in range(est.plan.pp):
        told = sorted(
            (one for one in chrome_trace.events(found, device) if one.component), key=lambda one: one.start
        )
        sums = defaultdict(float)
        for one in told:
            assert one.seconds >= 0
            sums[one.component] += one.seconds
        scale = {"rel": 1e-9, "abs": 1e-9 * est.step_seconds}
        for first, second in pairwise(told):
            assert second.start == pytest.approx(first.start + first.seconds, **scale)
        assert told[0].start == pytest.approx(found.begin[device], **scale)
        end = max(found.step_seconds, found.simulated_seconds)
        assert told[-1].start + told[-1].seconds - found.begin[device] == pytest.approx(end, **scale)
        assert {name: sums[name] for name in est.breakdown} == pytest.approx(found.totals_of(device), **scale)


@settings(max_examples=30)
@given(estimates())
def test_threads_do_not_overlap(est):
    """In whole nanoseconds, as Perfetto counts: it draws nothing else rightly."""
    threads = defaultdict(list)
    for event in json.loads(json.dumps(chrome_trace.to_chrome(tc.trace(est))))["traceEvents"]:
        if event["ph"] == "X":
            start, lasts = (round(event[key] * 1000) for key in ("ts", "dur"))
            assert start >= 0
            assert lasts >= 0
            threads[event["pid"], event["tid"]].append((start, start + lasts))
    assert threads
    assert all(
        first[1] <= second[0] for spans in threads.values() for first, second in pairwise(sorted(spans))
    )


def test_processes_and_threads_have_names(found):
    told = chrome_trace.to_chrome(found)["traceEvents"]
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"] for event in told if event["ph"] == "M"
    }
    for stage in range(4):
        more = ", sets the step" if stage == found.device else ""
        assert names["process_name", stage + 1, 1]["name"] == f"stage {stage}{more}"
    for event in told:
        if event["ph"] == "X":
            assert ("thread_name", event["pid"], event["tid"]) in names


def test_arrows_lead_from_every_pass_to_the_one_that_goes_on(found):
    """8 chunks on 4 stages: 7 crossings forward and 7 backward for each of 16 micro-batches; both ends inside
    passes.
    """
    passes = defaultdict(list)
    for own in found.by_device:
        for one in own:
            passes[one.device + 1].append((round(one.start * 1e6, 3) - 1e-3, round(one.end * 1e6, 3) + 1e-3))
    ends = defaultdict(dict)
    for event in chrome_trace.to_chrome(found)["traceEvents"]:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
            assert any(start <= event["ts"] <= end for start, end in passes[event["pid"]])
    assert len(ends) == 2 * 7 * found.microbatches
    assert all(set(both) == {"s", "f"} and both["s"]["ts"] < both["f"]["ts"] for both in ends.values())


def test_a_slow_link_has_several_sends_on_its_way(found):
    """Sends that take three passes need at least three threads."""
    slow = tc.trace(found.estimate)
    object.__setattr__(slow.passes, "overlapped_transfer", 3 * max(slow.passes.seconds("F")))
    names = {
        event["args"].get("name")
        for event in chrome_trace.to_chrome(slow)["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert {"PP comm (sends)", "PP comm (sends) 2", "PP comm (sends) 3"} <= names


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_data_parallel_traffic_that_hides(zero):
    """All of it is on its stream: once in a step within it, or beside the passes of every micro-batch."""
    found = tc.trace(tc.estimate("llama-3-8b", "dgx-h100", Plan(tp=2, pp=2, dp=8, zero=zero), gbs=64))
    for device in range(2):
        told = [
            one for one in chrome_trace.events(found, device) if one.stream == "data" and not one.component
        ]
        assert sum(one.seconds for one in told) == pytest.approx(sum(found.passes.traffic[device]), rel=1e-9)
        assert len(told) == {1: 2, 2: 1 + found.microbatches, 3: 2 * found.microbatches}[zero]
        for one in told:
            assert one.start >= 0
            assert one.start + one.seconds <= (found.pipeline_seconds if one.of is None else one.of.end) * (
                1 + 1e-9
            )


def test_exchanges_with_experts_that_hide():
    """Forward and backward of every micro-batch, beside its pass."""
    plan = Plan(tp=2, pp=2, dp=8, ep=4, ep_overlap=True)
    found = tc.trace(tc.estimate("mixtral-8x7b", "dgx-h100", plan, gbs=64))
    told = [one for one in chrome_trace.events(found, 0) if one.stream == "experts" and not one.component]
    assert len(told) == 2 * found.microbatches
    assert all(one.of is not None and one.start == one.of.start for one in told)
    assert {one.seconds for one in told} == {found.passes.exchange["F"][0], found.passes.exchange["BW"][0]}
    assert max(one.seconds for one in told) > 0


def test_exact_sums_go_with_a_trace(found):
    told = json.loads(json.dumps(chrome_trace.to_chrome(found)))["otherData"]
    assert told["breakdown_seconds"] == found.estimate.breakdown
    assert told["totals_seconds"] == found.totals
    assert told["plan"] == str(found.estimate.plan)


def test_the_file_holds_the_same_events(found, tmp_path):
    chrome_trace.write(found, tmp_path / "trace.json", stages=[1], microbatches=[0, 1])
    assert json.loads((tmp_path / "trace.json").read_text()) == chrome_trace.to_chrome(found, [1], [0, 1])


def test_the_same_trace_gives_the_same_bytes(found, tmp_path):
    for name in ("a.json.gz", "b.json.gz"):
        chrome_trace.write(found, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_too_many_events_are_refused_before_anything_is_written(found, tmp_path, monkeypatch):
    monkeypatch.setattr(chrome_trace, "MAX_EVENTS", 1000)
    with pytest.raises(InputError, match=r"choose stages .* or micro-batches"):
        chrome_trace.write(found, tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
    chrome_trace.write(found, tmp_path / "trace.json", microbatches=[0])
