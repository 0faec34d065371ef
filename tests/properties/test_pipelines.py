"""Closed forms of the pipeline schedules against their simulation: for which inputs they are equal, and
elsewhere bounds."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from traincast.core.errors import InputError
from traincast.times.pipeline.schedules import SCHEDULES, MicrobatchTimes
from traincast.times.pipeline.simulation import simulate

EXACT = {"rel": 1e-9, "abs": 1e-9}
TIMES = st.floats(0.2, 1.0)
F_B_W = st.tuples(TIMES, TIMES, TIMES)


@st.composite
def pipelines(draw, name, most=6):
    """Numbers that a schedule can run with: pp, micro-batches, v."""
    pp = draw(st.integers(1, most))
    if name == "dualpipe":
        pp = 2 * (1 + pp // 2)
        return pp, 2 * draw(st.integers(pp, 2 * pp)), 1
    if name == "dualpipe-v":
        pp += 1
        return pp, draw(st.integers(2 * pp, 4 * pp)), 2
    if name in ("zb-h2", "zb-2p", "zb-v"):
        pp += name == "zb-v"  # two chunks of one device are no pipeline
        return pp, draw(st.integers(2 * pp - 1, 4 * pp)), 2 if name == "zb-v" else 1
    if name == "interleaved":
        pp += 1
        return pp, pp * draw(st.integers(1, 4)), draw(st.integers(2, 4))
    return pp, draw(st.integers(pp if name == "zb-h1" else 1, 4 * pp)), 1


def uniform(name, pp, microbatches, v, times, transfer=0.0):
    """One step of equal stages; `times` are of a whole device."""
    return simulate(name, *([time / v] * (pp * v) for time in times), microbatches, transfer, v=v)


def closed(name, pp, microbatches, v, times, barrier):
    """nm T + lost (pp - 1) T."""
    total = sum(times)
    return (
        microbatches * total
        + SCHEDULES[name].bubble_share(MicrobatchTimes(*times), pp, v, barrier=barrier) * (pp - 1) * total
    )


def both_ways(timeline):
    """(Whether with a barrier, time of a step)."""
    return (False, timeline.period), (True, timeline.seconds)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"])
@settings(max_examples=60)
@given(st.data())
def test_equal_stages_take_what_the_closed_form_says(name, data):
    """For every ratio F : B : W: the forms are the papers' where W is short, and were extended from the
    simulation elsewhere."""
    numbers, times = data.draw(pipelines(name)), data.draw(F_B_W)
    name = name.replace("interleaved", "1f1b")
    for barrier, seconds in both_ways(uniform(name, *numbers, times)):
        assert seconds == pytest.approx(closed(name, *numbers, times, barrier), **EXACT)


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("weight", [0.0, 0.1, 1 / 3])
@pytest.mark.parametrize(("name", "v"), [("zb-h1", 1), ("zb-v", 2), ("dualpipe", 1), ("dualpipe-v", 2)])
def test_the_least_bubble_of_a_share_of_w_is_that_of_equal_f_and_b(name, v, weight, barrier):
    """And for other divisions of the rest it is no larger than theirs."""
    schedule = SCHEDULES[name]
    least = schedule.least_bubble_share(weight, 4, v, barrier=barrier)
    shares = [
        schedule.bubble_share(
            MicrobatchTimes(f * (1 - weight), (1 - f) * (1 - weight), weight), 4, v, barrier=barrier
        )
        for f in (0.5, 0.2, 0.4, 0.6, 0.8)
    ]
    assert least == pytest.approx(shares[0])
    assert all(share >= least - 1e-12 for share in shares)


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_chunk_is_on_the_device_that_runs_it(name):
    """Of DualPipe half of the micro-batches runs it there, and the others on the mirror image."""
    schedule = SCHEDULES[name]
    pp, nm, v = 4, 16, schedule.virtual_stages or 3
    for device in range(pp):
        for chunk in schedule.chunks_of(device, pp, v):
            devices = {schedule.device_of(chunk, microbatch, pp, nm) for microbatch in range(nm)}
            assert devices == ({device, pp - 1 - device} if schedule.directions == 2 else {device})
    assert {chunk for device in range(pp) for chunk in schedule.chunks_of(device, pp, v)} == set(
        range(pp * v)
    )


def test_round_trips_by_hand():
    """Of 9 micro-batches on 4 stages, 9 - 1 - 2 make one; none in interleaved 1F1B or another schedule."""
    assert SCHEDULES["1f1b"].round_trips(4, 9, 1) == 6
    assert SCHEDULES["1f1b"].round_trips(4, 12, 2) == 0
    others = (schedule for name, schedule in SCHEDULES.items() if name != "1f1b")
    assert all(schedule.round_trips(4, 16, schedule.virtual_stages) == 0 for schedule in others)


@pytest.mark.parametrize("name", ["zb-v", "dualpipe", "dualpipe-v"])
@settings(max_examples=60)
@given(st.data())
def test_schedules_of_two_chunks_take_at_most_the_closed_form(name, data):
    """The slack was measured on 5,000 random plans: half the spread of F, B and W for zb-v, a chunk's F for
    DualPipe."""
    numbers, times = data.draw(pipelines(name)), data.draw(F_B_W)
    slack = (max(times) - min(times)) / 2 if name == "zb-v" else times[0] / numbers[2]
    for barrier, seconds in both_ways(uniform(name, *numbers, times)):
        bound = closed(name, *numbers, times, barrier)
        assert bound - slack - 1e-9 <= seconds <= bound + 1e-9


@settings(max_examples=60)
@given(st.data())
def test_automatic_schedules_are_close_to_the_lower_bound(data):
    """The closed form of ZB-2p is a lower bound; the slack was measured on 3,000 random plans."""
    numbers, times = data.draw(pipelines("zb-2p")), data.draw(F_B_W)
    for barrier, seconds in both_ways(uniform("zb-2p", *numbers, times)):
        least = closed("zb-2p", *numbers, times, barrier)
        assert least - 1e-9 <= seconds <= least + 1.5 * (numbers[0] - 1) * max(times) + 1e-9


@settings(max_examples=60)
@given(F_B_W)
def test_the_papers_forms_where_they_hold(times):
    """arXiv 2401.10241, table 2 (ZB-H1, ZB-H2); arXiv 2412.19437, table 2, with its B = our B + W and F&B = F
    + B + W."""
    F, B, W = times
    pp, total = 8, sum(times)

    def lost(name):
        return SCHEDULES[name].bubble_share(MicrobatchTimes(F, B, W), pp, 1) * (pp - 1) * total

    if min(F, B) >= W:
        assert lost("zb-h1") == pytest.approx((pp - 1) * (F + B - W))
    if F >= W and F + B >= 2 * W:
        assert lost("zb-h2") == pytest.approx((pp - 1) * (F + B - 2 * W))
    if max(F, W) <= B and 2 * B >= F + W:
        assert lost("dualpipe") == pytest.approx((pp / 2 - 1) * ((F + B + W) + (B + W) - 3 * W))


def test_dualpipe_v_is_dualpipe_folded_in_the_middle():
    """DeepSeek's table: the bubble and the pp + 1 activations of DualPipe on twice the devices, and each
    weight once."""
    folded = uniform("dualpipe-v", 4, 9, 2, (1.0, 1.0, 1.0))
    unfolded = uniform("dualpipe", 8, 18, 1, (0.5, 0.5, 0.5))
    assert folded.seconds == pytest.approx(unfolded.seconds, **EXACT)
    assert (2 * folded.peak_in_flight).tolist() == unfolded.peak_in_flight[:4].tolist() == [9, 9, 9, 9]


@pytest.mark.parametrize(("name", "v"), [("zb-h2", 1), ("zb-v", 2)])
def test_no_bubble_where_all_passes_are_equal(name, v):
    """arXiv 2401.10241, sections 2.2 and 6: zero bubble for F = B = W; a barrier costs the fill, F or half of
    it for each stage."""
    timeline = uniform(name, 4, 12, v, (2.0, 2.0, 2.0))
    assert timeline.period == pytest.approx(12 * 6.0, **EXACT)
    assert timeline.seconds == pytest.approx(12 * 6.0 + 3 * 2.0 / v, **EXACT)


def test_dualpipe_where_all_passes_are_equal():
    """arXiv 2412.19437, table 2: (pp/2 - 1)(F&B + B - 3W) = (4/2 - 1)(3 + 2 - 3), pp + 1 activations."""
    timeline = uniform("dualpipe", 4, 8, 1, (1.0, 1.0, 1.0))
    assert timeline.seconds == pytest.approx(8 * 3 + 2, **EXACT)
    assert timeline.peak_in_flight.tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize(
    "name", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v"]
)
@settings(max_examples=40)
@given(st.data())
def test_every_device_holds_what_the_closed_form_says(name, data):
    """Equal stages, every stage. Interleaved with one group of micro-batches (nm = pp): the closed form's
    cap, nm."""
    pp, microbatches, v = data.draw(pipelines(name))
    name = name.replace("interleaved", "1f1b")
    timeline = uniform(name, pp, microbatches, v, data.draw(F_B_W))
    stages = np.arange(pp, dtype=float)
    assert timeline.peak_in_flight == pytest.approx(
        SCHEDULES[name].in_flight(pp, stages, microbatches, v) + 0 * stages
    )


@settings(max_examples=40)
@given(st.sampled_from(["zb-h1", "zb-h2"]), st.data())
def test_deferred_weight_gradients(name, data):
    """What waits for W alone is at its most the stage's number, or twice that (arXiv 2401.10241, table 2)."""
    pp, microbatches, _ = data.draw(pipelines(name))
    timeline = uniform(name, pp, microbatches, 1, data.draw(F_B_W))
    for stage in range(pp):
        kinds = [event.kind for event in timeline.passes if event.device == stage]
        waiting = np.cumsum([(kind == "B") - (kind == "W") for kind in kinds])
        before_w = max(waiting[[kind == "F" for kind in kinds]], default=0)  # when the next F adds to them
        assert before_w <= SCHEDULES[name].awaiting_w(pp, stage, microbatches)


@settings(max_examples=60)
@given(st.data())
def test_transfers_of_equal_stages_that_are_exposed(data):
    """1F1B and GPipe: for any transfer time; the others for transfers up to those
    `exposed_transfers` names."""
    name = data.draw(
        st.sampled_from(["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v"])
    )
    pp, microbatches, v = data.draw(pipelines(name))
    microbatches *= 2 if name == "zb-h1" else 1  # its second round trip needs 2 pp of them
    F, B, W = data.draw(F_B_W)
    share = data.draw(st.floats(0.01, 1))
    if name in ("zb-v", "dualpipe", "dualpipe-v"):
        B = W = F
    elif name.startswith("zb"):
        W = min(F, B, W)
    most = {
        "gpipe": 5,
        "1f1b": 5,
        "interleaved": min(F, B + W) / v / 2,
        "zb-h1": W / 2,
        "zb-h2": W / 2,
        "zb-v": F / 4,
        "dualpipe": F / 4,
        "dualpipe-v": F / 8 / pp,
    }
    transfer = most[name] * share
    name = name.replace("interleaved", "1f1b")
    hops = SCHEDULES[name].exposed_transfers(pp, microbatches, v)
    free, paid = (uniform(name, pp, microbatches, v, (F, B, W), time).period for time in (0.0, transfer))
    assert paid - free == pytest.approx(hops * transfer, **EXACT)


@settings(max_examples=80)
@given(
    st.integers(1, 6).flatmap(
        lambda pp: st.tuples(st.lists(st.tuples(TIMES, TIMES), min_size=pp, max_size=pp), st.integers(1, 20))
    )
)
def test_gpipe_of_unequal_stages(drawn):
    """Exactly sum F + (nm - 1) max F + the same of B (a flow shop forward, and one back): the step's form is
    a lower bound."""
    stages, microbatches = drawn
    F, B = zip(*stages, strict=True)
    seconds = simulate("gpipe", F, B, [0.0] * len(F), microbatches).seconds
    assert seconds == pytest.approx(sum(F) + sum(B) + (microbatches - 1) * (max(F) + max(B)), **EXACT)
    assert seconds >= _step(stages, microbatches, 1) - 1e-9


@settings(max_examples=80)
@given(
    st.integers(1, 6).flatmap(
        lambda pp: st.tuples(st.lists(TIMES, min_size=pp, max_size=pp), st.integers(pp, 4 * pp))
    ),
    TIMES,
)
@example(([0.2, 1.0, 0.2, 0.2, 0.2], 5), 1.0)
def test_1f1b_of_unequal_stages(drawn, ratio):
    """With B/F alike on all stages the step's form is an upper bound (docs/schedules.md), met to the stages
    after the slowest."""
    F, microbatches = drawn
    stages = [(time, 2 * ratio * time) for time in F]
    total = [sum(stage) for stage in stages]
    seconds = simulate("1f1b", F, [b for _, b in stages], [0.0] * len(F), microbatches).seconds
    form = _step(stages, microbatches, 1)
    slowest = int(np.argmax(total))
    assert form - sum(total[slowest + 1 :]) - 1e-9 <= seconds <= form + 1e-9


@settings(max_examples=40)
@given(pipelines("interleaved"), st.floats(0, 2), st.data())
def test_interleaved_with_unequal_stages(numbers, head, data):
    """A longer last chunk (the head): exact. Devices of different speed, their chunks alike: at most the
    step's form."""
    pp, microbatches, v = numbers
    last = [1.0] * (pp * v - 1) + [1 + head]
    devices = data.draw(st.lists(TIMES, min_size=pp, max_size=pp)) * v
    for chunks, slack in ((last, 0.0), (devices, np.inf)):
        double = [2 * time for time in chunks]
        stages = [(sum(chunks[device::pp]), sum(double[device::pp])) for device in range(pp)]
        seconds = simulate("1f1b", chunks, double, [0.0] * len(chunks), microbatches, v=v).seconds
        assert (
            _step(stages, microbatches, v) - slack - 1e-9 <= seconds <= _step(stages, microbatches, v) + 1e-9
        )


def _step(stages, microbatches, v):
    """nm max T + lost (sum T - max T), of stages (F, B and W as one)."""
    total = [sum(stage) for stage in stages]
    return microbatches * max(total) + (sum(total) - max(total)) / v


def test_1f1b_is_the_closed_form_of_the_papers_to_the_last_bit():
    """arXiv 2410.00273 (one training step); interleaved, arXiv 2104.04473 (section 2.2) and arXiv 2205.05198
    (section 4)."""
    pp, v, microbatches = (
        axis.ravel() for axis in np.meshgrid([1.0, 2, 3, 8, 64], [1.0, 2, 3, 8], [1.0, 8, 24, 512])
    )
    schedule = SCHEDULES["1f1b"]
    in_flight = np.where(v == 1, np.minimum(pp, microbatches), np.minimum(pp + (pp - 1) / v, microbatches))
    assert (schedule.in_flight(pp, 0.0, microbatches, v) == in_flight).all()
    busy = 3.0 * microbatches
    bubble = (pp - 1) * busy / microbatches / v
    assert (pp - 1) * 3.0 * schedule.bubble_share(MicrobatchTimes(1.0, 1.0, 1.0), pp, v) == pytest.approx(
        bubble, rel=1e-14
    )


@pytest.mark.parametrize("name", SCHEDULES)
def test_columns_equal_numbers(name):
    """Every closed form takes columns and gives what it gives for each row."""
    schedule = SCHEDULES[name]
    pp, nm, v = np.array([2.0, 4, 8]), np.array([8.0, 16, 64]), np.array([1.0, 2, 2])
    F, B, W = np.array([1.0, 2, 3]), np.array([2.0, 2, 1]), np.array([1.0, 3, 2])
    columns = (
        schedule.bubble_share(MicrobatchTimes(F, B, W), pp, v),
        schedule.bubble_share(MicrobatchTimes(F, B, W), pp, v, barrier=True),
        schedule.in_flight(pp, 1.0, nm, v),
        schedule.awaiting_w(pp, 1.0, nm),
        schedule.exposed_transfers(pp, nm, v),
        *(rule.holds(pp, nm, v) for rule in schedule.requirements),
    )
    for row in range(3):
        scalars = float(pp[row]), float(nm[row]), float(v[row])
        times = float(F[row]), float(B[row]), float(W[row])
        numbers = (
            schedule.bubble_share(MicrobatchTimes(*times), scalars[0], scalars[2]),
            schedule.bubble_share(MicrobatchTimes(*times), scalars[0], scalars[2], barrier=True),
            schedule.in_flight(scalars[0], 1.0, scalars[1], scalars[2]),
            schedule.awaiting_w(scalars[0], 1.0, scalars[1]),
            schedule.exposed_transfers(*scalars),
            *(rule.holds(*scalars) for rule in schedule.requirements),
        )
        assert [np.broadcast_to(column, 3)[row] for column in columns] == list(numbers)


@settings(max_examples=40)
@given(st.sampled_from([*SCHEDULES, "interleaved"]), st.data())
def test_a_timeline_is_complete_and_possible(name, data):
    """Every pass once, one block at a time on a device, nothing before what it depends on."""
    pp, microbatches, v = data.draw(pipelines(name, most=4))
    name = name.replace("interleaved", "1f1b")
    times = [[data.draw(TIMES) for _ in range(pp * v)] for _ in range(3)]
    timeline = simulate(name, *times, microbatches, 0.1, v=v)
    begun = {(kind, p.chunk, p.microbatch): p for p in timeline.passes for kind in p.kind}  # BW: both
    assert len(begun) == 3 * pp * v * microbatches == sum(len(p.kind) for p in timeline.passes)
    for (kind, chunk, microbatch), p in begun.items():
        before = {"F": ("F", chunk - 1), "B": ("B", chunk + 1), "W": ("B", chunk)}[kind]
        before = ("F", chunk) if before == ("B", pp * v) else before
        if p.kind != "BW" or kind == "B":
            earlier = begun.get((*before, microbatch))
            assert earlier is None or p.start >= earlier.end + 0.1 * (earlier.device != p.device) - 1e-12
    for device in range(pp):
        spans = sorted({(p.start, p.end) for p in timeline.passes if p.device == device})
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
    assert timeline.busy + timeline.idle == pytest.approx(timeline.seconds)


@pytest.mark.parametrize(
    ("name", "v", "pp", "microbatches", "reason"),
    [
        ("1f1b", 2, 4, 6, "multiples of pp"),
        ("gpipe", 2, 4, 8, "one stage on a device"),
        ("zb-v", 1, 4, 8, "two chunks"),
        ("zb-h2", 1, 4, 6, "at least 2 pp - 1"),
        ("dualpipe", 1, 3, 8, "even pp"),
        ("dualpipe", 1, 4, 9, "even number"),
        ("dualpipe", 1, 4, 6, "at least 2 pp"),
        ("1f1b", 1, 4, 0, "whole number"),
    ],
)
def test_impossible_schedules_are_refused(name, v, pp, microbatches, reason):
    with pytest.raises(InputError, match=reason):
        uniform(name, pp, microbatches, v, (1.0, 1.0, 1.0))


def test_an_unknown_schedule_is_refused():
    with pytest.raises(InputError, match="did you mean 1f1b"):
        simulate("1f1", [1.0], [1.0], [1.0], 1)
