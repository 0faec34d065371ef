"""Pieces of the search by hand: which chunks, replicas and overlaps are tried, and what bounds count."""

from types import SimpleNamespace

import numpy as np
import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.plan import Plans
from traincast.planner.frameworks.spaces import CandidateBatch
from traincast.planner.space.enumeration import _interleaves, enumerate_outlines, enumerate_space
from traincast.planner.space.evaluation import chosen_plans
from traincast.planner.space.search_space import Rungs, divisors_of_values
from traincast.planner.space.shortlist import TimeBounds, _both_passes
from traincast.times import PassSeconds

MODEL = tc.Model(
    name="small",
    layers=30,
    hidden=1024,
    heads=16,
    ffn=4096,
    seq=1024,
    vocab=32000,
)
SHARDED = CandidateBatch("1d", choices=(("zero", 3),), hybrid=True)


@pytest.mark.parametrize(
    ("pp", "vps"),
    [
        (3, [1, 2, 5, 10]),  # that cut 30 layers into equal chunks
        # 8, 4, 3 and 2 layers in the largest chunk; 5, 6 and 7 have 2 as well, and 32 chunks one layer each,
        # where embedding and head are chunks too
        (4, [1, 2, 3, 4, 8]),
        (1, []),  # there is nothing to interleave
    ],
)
def test_of_chunks_with_the_same_largest_one_the_fewest_are_tried(pp, vps):
    every = np.arange(1, 13)
    assert every[_interleaves(MODEL, np.array([pp]), every)].tolist() == vps


def test_divisors_of_a_column():
    assert divisors_of_values(np.array([6, 4, 6])).tolist() == [1, 2, 3, 4, 6]
    assert divisors_of_values(np.array([], np.int64)).tolist() == [1]


def test_a_range_of_rungs_has_its_first_and_not_its_end():
    rungs = Rungs(np.array([1, 0]), np.array([3, 0]))
    found = rungs.contain(np.array([0, 0, 0, 0, 1]), np.array([0, 1, 2, 3, 0]))
    assert found.tolist() == [False, True, True, False, False]


def outline_of(batch):
    (outline,) = enumerate_outlines(MODEL, (16,), 8, 96, (batch,)).values()
    return outline


@pytest.mark.parametrize("locks", [(), (("replicas", 2),)], ids=["searched", "locked"])
def test_a_row_is_the_layouts_of_all_its_replicas(locks):
    """Replicas divide dp and leave something to shard; rows have the layouts at their places among all."""
    outline = outline_of(CandidateBatch("1d", SHARDED.choices, hybrid=True, locks=locks))
    assert outline.rows == outline.size.sum()
    layouts = outline.every_layout.layouts
    dp, replicas = layouts.dp.astype(int), layouts.replicas.astype(int)
    for degree in np.unique(dp).tolist():
        expected = [n for n in range(1, degree) if degree % n == 0] or [1]
        if locks:
            expected = [2]
        assert np.unique(replicas[dp == degree]).tolist() == expected
    for rows in (np.arange(outline.rows), np.arange(1, outline.rows, 3), np.array([outline.rows - 1])):
        places = outline.places(rows)
        assert outline.rows_at(places).tolist() == rows.tolist()
        some = outline.layouts(rows).layouts
        for knob in ("tp", "pp", "dp", "mbs", "replicas"):
            assert getattr(some, knob).tolist() == getattr(layouts, knob)[places].tolist()


def test_layers_of_ranges_are_those_of_their_rows():
    """A range of each ladder, one of them empty; ladders of the same layers have any of their ranges."""
    outline = outline_of(CandidateBatch("1d"))
    low = np.zeros_like(outline.size)
    high = np.maximum(outline.size // 2, 1)
    high[0] = 0
    rows = outline.rows_between(Rungs(low, high), np.arange(len(low)))
    found = outline.layers_of(Rungs(low, high))
    assert set(outline.select_rows(rows).layer_row.tolist()) <= set(found.tolist())
    assert outline.layers_of(Rungs(low, low)).tolist() == []


def test_communication_is_overlapped_in_groups_inside_a_fast_domain_alone():
    """Where there is any, and all of the group's ranks share a domain of four."""
    space = enumerate_space(MODEL, (16,), 4, 96, CandidateBatch("1d", overlaps_in_domain=True))
    every = [
        (layout, fill)
        for layout, degree in enumerate(space.degree)
        for fill in range(space.fills.first[degree], space.fills.first[degree] + space.fills.count[degree])
    ]
    layout, fill = np.array(every).T
    plans = space.plans(layout, fill)
    chosen = chosen_plans(space, layout, fill - space.fills.first[space.degree[layout]])
    for knob in ("tp", "fast_tp", "fast_pp", "fast_dp"):
        assert getattr(chosen, knob).tolist() == getattr(plans, knob).tolist()
    pairs = zip(plans.tp.tolist(), plans.fast_tp.tolist(), strict=True)
    assert plans.tp_overlap.tolist() == [tp > 1 and fast == tp for tp, fast in pairs]
    assert {2.0, 4.0} <= set(plans.tp[plans.tp_overlap].tolist())


@pytest.mark.parametrize(
    ("overlaps", "assumed", "exposed"),
    [
        (False, {"overlap.ep_exposed": 0.5}, 0.5),
        # 6 s of exchange beside 15 s of work: the least that is exposed of it
        (True, {"overlap.ep_exposed": 1.0, "overlap.ep_overlapped": 0.25}, 0.25),
    ],
)
def test_a_bound_counts_what_is_exposed_of_exchanges_by_hand(overlaps, assumed, exposed):
    """Passes of 9 s and 4 s of exchange; recomputed, in every second layer, 6 s and 2 s."""
    both = PassSeconds(5.0, 3.0, 1.0, 4.0)
    again = PassSeconds(3.0, 2.0, 1.0, 2.0)
    bounds = SimpleNamespace(assumed=calibrated().with_values(assumed))
    seconds = TimeBounds._exposed_seconds(bounds, both, again, Plans(recompute_every=2.0), overlaps)
    assert seconds == 9 + exposed * 4 + (6 + exposed * 2) / 2


def test_costs_of_layers_have_an_infinite_one_at_the_end():
    """A column without any cost is a number; one in which some layers cost nothing is not."""
    seconds = np.array([[0.0, 2.0]])
    costs = _both_passes(np.array([seconds, 0 * seconds]), np.array([[0.0, 1.0], [0.0, 0.0]]))
    assert costs.forward.tolist() == [[0.0, 2.0, np.inf]]
    assert costs.weight.tolist() == [[0.0, 1.0, 0.0]]
    assert (costs.dispatch, costs.dispatch_weight) == (0.0, 0.0)
