"""Parts of a model on each device of the pipeline."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.core.plan import Plans
from traincast.step.pipeline_stages import (
    devices,
    distinct_devices,
    end_layers,
    split_layers,
    stages,
    with_load,
)
from traincast.times.pipeline.schedules import SCHEDULES

LLAMA = tc.load_model("llama-3-8b")


@pytest.mark.parametrize(
    ("layers", "number", "end", "expected"),
    [
        (
            126,
            16,
            1,
            (7, *(8,) * 14, 7),
        ),  # Llama 3 405B: one less on the first and on the last (arXiv 2407.21783, section 3.3.2)
        (61, 16, 4, (*(4,) * 15, 1)),  # 65 over 16: the last has 4 fewer layers of its 5
        (32, 4, 0, (8, 8, 8, 8)),
        (80, 20, 1, (4,) * 20),  # what divides stays even as long as one layer more is somewhere anyway
        (32, 4, 2, (8, 8, 9, 7)),  # 34 over 4
        (30, 4, 0, (7, 7, 8, 8)),
        (3, 3, 0, (1, 1, 1)),
        (7, 1, 3, (7,)),
        (2, 4, 0, (0, 0, 1, 1)),
        (8, 4, 20, (2, 3, 3, 0)),  # a head heavier than its share
    ],
)
def test_split(layers, number, end, expected):
    assert split_layers(layers, number, end) == expected


@pytest.mark.parametrize(
    ("layers", "number", "end", "begin", "expected"),
    [
        (36, 4, 0, 8, (3, 11, 11, 11)),  # 44 over 4, of which the tower is 8 of the first stage's
        (36, 4, 1, 3, (7, 10, 10, 9)),  # 40 over 4, the head one of the last stage's
        (12, 2, 0, 4, (4, 8)),
        (12, 3, 0, 20, (0, 6, 6)),  # a tower heavier than its share
    ],
)
def test_split_beside_a_tower(layers, number, end, begin, expected):
    assert split_layers(layers, number, end, begin) == expected


@given(st.integers(1, 200), st.integers(2, 64), st.integers(0, 8))
def test_split_is_even_and_complete(layers, number, end):
    cut = split_layers(layers, number, end)
    assert (len(cut), sum(cut)) == (number, layers)
    assert max(cut[:-1]) - min(cut[:-1]) <= 1
    assert list(cut[:-1]) == sorted(cut[:-1])  # later chunks are the longer ones
    # Nothing is heavier than an even share, the head counted, but a head that is heavier alone.
    assert max(*cut[:-1], cut[-1] + end) <= max(-(-(layers + end) // number), end)


@pytest.mark.parametrize(
    ("name", "layers"),  # head over layer, in parameters a token meets, from the published shapes
    [
        ("llama-3-8b", 2),  # 525 M over 218 M
        ("llama-3-70b", 1),  # 1.05 G over 0.86 G
        ("llama-3.1-405b", 1),  # 2.10 G over 3.19 G
        ("deepseek-v3", 4),  # 0.93 G over 0.58 G, twice, and a layer
        ("gpt3-1t", 0),  # arXiv 2410.00273 counts no head
    ],
)
def test_layers_a_head_weighs(name, layers):
    assert end_layers(tc.load_model(name)) == layers


def test_embedding_and_head_are_on_the_outer_stages():
    first, middle, last = devices(replace(LLAMA, layers=13), 3, 1)  # 15 with the head
    assert first.stored_parts == {"dense": 5, "embedding": 1}
    assert middle.stored_parts == {"dense": 5}
    assert last.stored_parts == {"dense": 3, "head": 1}
    assert devices(LLAMA, 1, 1)[0].stored_parts == {"dense": 32, "embedding": 1, "head": 1}
    assert devices(tc.load_model("gpt3-1t"), 1, 1)[0].stored_parts == {
        "dense": 128
    }  # arXiv 2410.00273 counts no ends


def test_tied_weights_are_held_twice_only_on_separate_stages():
    tied = replace(LLAMA, tied=True)
    assert devices(tied, 1, 1)[0].stored_parts == {"dense": 32, "embedding": 1, "head": 1}
    assert [device.stored_parts.get("tied", 0) for device in devices(tied, 4, 1)] == [0, 0, 0, 1]
    assert [device.stored_parts.get("tied", 0) for device in devices(tied, 4, 2)] == [0, 0, 0, 1]
    # zb-v lays both ends on the first device (arXiv 2401.10241, section 6), dualpipe on the first and the
    # last
    assert [device.stored_parts.get("tied", 0) for device in devices(tied, 4, 2, "zb-v")] == [0, 0, 0, 0]
    assert [device.stored_parts.get("tied", 0) for device in devices(tied, 4, 1, "dualpipe")] == [0, 0, 0, 0]
    assert all("tied" not in device.stored_parts for device in devices(LLAMA, 4, 1))


def test_multi_token_prediction_needs_the_embedding():
    """The module looks up its next token: on another device than the first it takes a copy of the embedding.

    DeepSeek-V3 lays both ends on one rank and has none (arXiv 2412.19437, section 3.2.3).
    """
    model = tc.load_model("deepseek-v3")
    last = devices(model, 16, 1)[-1]
    assert last.stored_parts == {"moe": 1, "head": 1, "mtp": 1, "tied": 1}
    outermost = devices(model, 16, 1, "dualpipe")[0]
    assert outermost.stored_parts == {"dense": 3, "moe": 2, "embedding": 1, "head": 1, "mtp": 1}


def test_interleaved_and_folded_chunks():
    """8 chunks of 4 devices: 1F1B deals them round, zb-v lays them there and back; ends where they fall."""
    model, cut = replace(LLAMA, layers=15), (2, 2, 2, 2, 2, 2, 2, 1)
    assert split_layers(15, 8, end_layers(model)) == cut
    dealt = [device.stored_parts["dense"] for device in devices(model, 4, 2)]
    assert dealt == [cut[i] + cut[i + 4] for i in range(4)]
    folded = devices(model, 4, 2, "zb-v")
    assert [device.stored_parts["dense"] for device in folded] == [cut[i] + cut[7 - i] for i in range(4)]
    assert folded[0].stored_parts == {"dense": 3, "embedding": 1, "head": 1}


def test_devices_of_bidirectional_schedules():
    """DualPipe: twice the weights, and of each way's work the half of the micro-batches (arXiv 2412.19437,
    table 2)."""
    model = replace(LLAMA, layers=10)  # 3, 3, 3, 1: 12 with the head
    first, second, third, last = devices(model, 4, 1, "dualpipe")
    assert first.stored_parts == last.stored_parts == {"dense": 4, "embedding": 1, "head": 1}
    assert second.stored_parts == third.stored_parts == {"dense": 6}
    assert first.executed_parts == {"dense": 2, "embedding": 0.5, "head": 0.5}


def test_kinds_of_layers_where_they_stand():
    """DeepSeek-V3: the first 3 of 61 layers are dense; Gemma 2: every other layer is local."""
    first, second, *_ = devices(tc.load_model("deepseek-v3"), 16, 1)
    assert first.stored_parts == {"dense": 3, "moe": 1, "embedding": 1}
    assert second.stored_parts == {"moe": 4}
    gemma = devices(tc.load_model("gemma-2-9b"), 2, 1)  # 42 layers, the first local, tied
    # 47 with the head: 23 and 19
    assert gemma[0].stored_parts == {"local dense": 12, "dense": 11, "embedding": 1}
    assert gemma[1].stored_parts == {"local dense": 9, "dense": 10, "head": 1, "tied": 1}


def test_a_custom_layout():
    model = replace(LLAMA, layers=10)
    assert [device.stored_parts.get("dense", 0) for device in devices(model, 4, 1, layout="1,4,5,0")] == [
        1,
        4,
        5,
        0,
    ]
    assert [device.stored_parts["dense"] for device in devices(model, 2, 2, layout="1,2,3,4")] == [4, 6]
    for wrong in ("5,5", "1,4,5,1", "1,4,5,0,0", "5*3"):
        with pytest.raises(tc.InputError, match="4 numbers of layers that add up to 10"):
            devices(model, 4, 1, layout=wrong)
    system, plan = tc.load_system("dgx-h100"), tc.Plan(pp=4, tp=8, layout=(1, 4, 5, 0))
    assert plan.layout == "1,4,5,0"
    even = tc.estimate(
        replace(model, layers=12), system, replace(plan, layout=""), gbs=16, assumptions="calibrated"
    )
    uneven = tc.estimate(
        replace(model, layers=12), system, replace(plan, layout="1,2,9,0"), gbs=16, assumptions="calibrated"
    )
    assert uneven.step_seconds > even.step_seconds
    assert uneven.memory["weights"] > even.memory["weights"]


MODELS = ("llama-3-8b", "deepseek-v3", "gemma-2-9b", "llama-4-maverick", "mixtral-8x7b")


@settings(max_examples=80)
@given(
    st.data(),
    st.sampled_from(MODELS),
    st.sampled_from(sorted(SCHEDULES)),
    st.sampled_from([1, 2, 4, 6, 8, 16]),
)
def test_distinct_devices_represent_all(data, name, schedule, pp):
    """Whatever parts cost, the slowest of the telling devices is the slowest of all, and so is the fullest in
    every schedule."""
    model = tc.load_model(name)
    if schedule.startswith("dualpipe") and pp == 1:
        pp = 2
    v = SCHEDULES[schedule].virtual_stages or data.draw(st.sampled_from([1, 2] if pp > 1 else [1]))
    every, telling = devices(model, pp, v, schedule), distinct_devices(model, pp, v, schedule, ())
    assert all(device in every for device in telling)
    parts = sorted(set().union(*(device.stored_parts for device in every)))
    cost = dict(
        zip(
            parts,
            data.draw(st.lists(st.floats(0, 1e3), min_size=len(parts), max_size=len(parts))),
            strict=True,
        )
    )
    flight = SCHEDULES[schedule].in_flight

    def work(device):
        return sum(n * cost[part] for part, n in device.executed_parts.items())

    def full(device, nm=64):
        return sum(n * cost[part] for part, n in device.stored_parts.items()) + work(device) * flight(
            pp, device.position, nm, v
        )

    assert max(map(work, telling)) == pytest.approx(max(map(work, every)), rel=1e-12)
    assert max(map(full, telling)) == pytest.approx(max(map(full, every)), rel=1e-12)


@given(st.sampled_from(MODELS), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]))
def test_devices_together_hold_the_model(name, pp, v):
    model = tc.load_model(name)
    v = 1 if pp == 1 else v
    held = sum((Counter(dict(device.stored_parts)) for device in devices(model, pp, v)), Counter())
    assert {part: n for part, n in held.items() if part in set(map(str, model.kinds))} == Counter(
        map(str, model.pattern)
    )
    assert (held["embedding"], held["head"]) == (1, 1)


def test_columns_of_plans_equal_single_plans():
    model, pps = tc.load_model("deepseek-v3"), (1.0, 2.0, 4.0, 8.0, 16.0)
    many = stages(model, Plans(pp=np.array(pps)))
    for row, pp in enumerate(pps):
        single = stages(model, Plans(pp=pp))

        def counted(dealt, row):
            return [
                sorted(
                    (part, float(np.broadcast_to(n, len(pps))[row]))
                    for part, n in device.items()
                    if np.any(n)
                )
                for device in dealt.stored_parts
            ]

        mine = [[(part, n) for part, n in device if n] for device in counted(many, row)]
        alone = [[(part, n) for part, n in device if n] for device in counted(single, 0)]
        assert all(device in mine for device in alone)
        assert all(device in alone for device in mine)


def test_load_of_the_fullest_rank():
    """8 experts, tokens 8 1 1 1 1 1 1 2: of 2 ranks the fuller has 11 of 16, of 4 ranks 9; of one rank there
    is no fuller."""
    model = tc.load_model("mixtral-8x7b").with_load((8, 1, 1, 1, 1, 1, 1, 2))
    expected = {1: 1.0, 2: 11 * 2 / 16, 4: 9 * 4 / 16, 8: 8 * 8 / 16}
    assert {ep: with_load(Plans(ep=float(ep)), model).load for ep in expected} == expected
    columns = with_load(Plans(ep=np.array([1.0, 2.0, 4.0, 8.0, 2.0])), model)
    assert columns.load.tolist() == [1.0, 1.375, 2.25, 4.0, 1.375]
    capped = replace(model, experts=replace(model.experts, capacity=1.5))
    assert [with_load(Plans(ep=float(ep)), capped).load for ep in expected] == [1.0, 1.375, 1.5, 1.5]
    assert with_load(Plans(ep=4.0), tc.load_model("mixtral-8x7b").with_load(1.3)).load == 1.3
