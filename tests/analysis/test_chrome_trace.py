"""Chrome traces: valid, without overlap, and with the sums of their trace."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from test_trace import estimates

import traincast as tc
from traincast.analysis import chrome_trace
from traincast.core.errors import InputError
from traincast.core.plan import Plan


@pytest.fixture(scope="module")
def trace():
    """A step of four stages with two chunks each and overlapped sends."""
    return tc.trace(tc.estimate("llama-3-8b", "dgx-h100", Plan(tp=2, pp=4, vp=2, dp=4), gbs=64))


@settings(max_examples=30)
@given(estimates())
def test_events_fill_the_step_of_every_device(est):
    """Those with a component: once after the other, from the start of the step to its end, with the totals of
    the trace.
    """
    trace = tc.trace(est)
    for device in range(est.plan.pp):
        events = sorted(
            (event for event in chrome_trace.events(trace, device) if event.component),
            key=lambda event: event.start,
        )
        sums = defaultdict(float)
        for event in events:
            assert event.seconds >= 0
            sums[event.component] += event.seconds
        scale = {"rel": 1e-9, "abs": 1e-9 * est.step_seconds}
        for first, second in pairwise(events):
            assert second.start == pytest.approx(first.start + first.seconds, **scale)
        assert events[0].start == pytest.approx(trace.begin[device], **scale)
        end = max(trace.step_seconds, trace.simulated_seconds)
        assert events[-1].start + events[-1].seconds - trace.begin[device] == pytest.approx(end, **scale)
        assert {name: sums[name] for name in est.breakdown} == pytest.approx(trace.totals_of(device), **scale)


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


SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "trace_event_format.schema.json").read_text())


@settings(max_examples=15)
@given(estimates())
def test_the_file_is_in_the_format_that_perfetto_documents(est):
    """By its schema; counters return to nothing after the peak of the simulation."""
    trace = tc.trace(est)
    content = json.loads(json.dumps(chrome_trace.to_chrome(trace)))
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    counted = defaultdict(list)
    for event in content["traceEvents"]:
        if event["ph"] == "C":
            counted[event["pid"] - 1].append((event["ts"], event["args"]["micro-batches"]))
    for device, steps in counted.items():
        times, values = zip(*steps, strict=True)
        assert list(times) == sorted(times)
        assert max(values) == pytest.approx(trace.timeline.peak_in_flight[device])
        assert values[-1] == 0
    assert len(counted) == est.plan.pp


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("X", {"dur": -1.0}),
        ("X", {"ts": "0"}),
        ("X", {"name": ""}),
        ("X", {"pid": -1}),
        ("s", {"id": None}),
        ("f", {"bp": "x"}),
        ("C", {"args": {"micro-batches": "1"}}),
        ("M", {"name": "proces_name"}),
        ("M", {"ph": "Q"}),
    ],
)
def test_the_schema_refuses_what_perfetto_does_not_read(trace, kind, change):
    event = next(event for event in chrome_trace.chrome_events(trace) if event["ph"] == kind)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate({"traceEvents": [event | change]})


def test_processes_and_threads_have_names(trace):
    events = chrome_trace.to_chrome(trace)["traceEvents"]
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"] for event in events if event["ph"] == "M"
    }
    for stage in range(4):
        more = ", sets the step" if stage == trace.device else ""
        assert names["process_name", stage + 1, 1]["name"] == f"stage {stage}{more}"
    for event in events:
        if event["ph"] == "X":
            assert ("thread_name", event["pid"], event["tid"]) in names


def test_arrows_connect_each_pass_to_the_next_stage(trace):
    """8 chunks on 4 stages: 7 crossings forward and 7 backward for each of 16 micro-batches; both ends inside
    passes.
    """
    passes = defaultdict(list)
    for of_device in trace.by_device:
        for task in of_device:
            passes[task.device + 1].append(
                (round(task.start * 1e6, 3) - 1e-3, round(task.end * 1e6, 3) + 1e-3)
            )
    arrows = defaultdict(dict)
    for event in chrome_trace.to_chrome(trace)["traceEvents"]:
        if event["ph"] in "sf":
            arrow = arrows[event["id"], event["cat"], event["name"]]  # these three join its ends in Perfetto
            assert event["ph"] not in arrow
            arrow[event["ph"]] = event
            assert any(start <= event["ts"] <= end for start, end in passes[event["pid"]])
    assert len(arrows) == 2 * 7 * trace.microbatches
    assert all(set(both) == {"s", "f"} and both["s"]["ts"] < both["f"]["ts"] for both in arrows.values())


def test_a_slow_link_has_several_sends_on_its_way(trace):
    """Sends that take three passes need at least three threads."""
    slow = tc.trace(trace.estimate)
    object.__setattr__(slow.passes, "overlapped_transfer", 3 * max(slow.passes.seconds("F")))
    names = {
        event["args"].get("name")
        for event in chrome_trace.to_chrome(slow)["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert {"PP comm (sends)", "PP comm (sends) 2", "PP comm (sends) 3"} <= names


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_data_parallel_traffic_that_hides(zero):
    """Overlapped traffic is on its stream: once in a step, or with the passes of every micro-batch."""
    trace = tc.trace(tc.estimate("llama-3-8b", "dgx-h100", Plan(tp=2, pp=2, dp=8, zero=zero), gbs=64))
    for device in range(2):
        events = [
            event
            for event in chrome_trace.events(trace, device)
            if event.stream == "data" and not event.component
        ]
        assert sum(event.seconds for event in events) == pytest.approx(
            sum(trace.passes.traffic[device]), rel=1e-9
        )
        assert len(events) == {1: 2, 2: 1 + trace.microbatches, 3: 2 * trace.microbatches}[zero]
        for event in events:
            assert event.start >= 0
            assert event.start + event.seconds <= (
                trace.pipeline_seconds if event.of is None else event.of.end
            ) * (1 + 1e-9)


def test_exchanges_with_experts_that_hide():
    """Forward and backward exchanges of every micro-batch overlap its pass."""
    plan = Plan(tp=2, pp=2, dp=8, ep=4, ep_overlap=True)
    trace = tc.trace(tc.estimate("mixtral-8x7b", "dgx-h100", plan, gbs=64))
    events = [
        event for event in chrome_trace.events(trace, 0) if event.stream == "experts" and not event.component
    ]
    assert len(events) == 2 * trace.microbatches
    assert all(event.of is not None and event.start == event.of.start for event in events)
    assert {event.seconds for event in events} == {
        trace.passes.exchange["F"][0],
        trace.passes.exchange["BW"][0],
    }
    assert max(event.seconds for event in events) > 0


def test_exact_sums_go_with_a_trace(trace):
    printed = json.loads(json.dumps(chrome_trace.to_chrome(trace)))["otherData"]
    assert printed["breakdown_seconds"] == trace.estimate.breakdown
    assert printed["totals_seconds"] == trace.totals
    assert printed["plan"] == str(trace.estimate.plan)


def test_the_file_holds_the_same_events(trace, tmp_path):
    chrome_trace.write_chrome_trace(trace, tmp_path / "trace.json", stages=[1], microbatches=[0, 1])
    assert json.loads((tmp_path / "trace.json").read_text()) == chrome_trace.to_chrome(trace, [1], [0, 1])


def test_the_same_trace_gives_the_same_bytes(trace, tmp_path):
    for name in ("a.json.gz", "b.json.gz"):
        chrome_trace.write_chrome_trace(trace, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_too_many_events_are_refused_before_anything_is_written(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(chrome_trace, "MAX_EVENTS", 1000)
    with pytest.raises(InputError, match=r"choose stages .* or micro-batches"):
        chrome_trace.write_chrome_trace(trace, tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
    chrome_trace.write_chrome_trace(trace, tmp_path / "trace.json", microbatches=[0])
