"""The search space against an enumerator in plain loops, from the paper's rules (arXiv 2410.00273).

Ring, Ulysses and their hybrid are spaces of 2-D context, but for the part of cp that exchanges heads.
"""

import math
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traincast.catalog.load import load_model
from traincast.core.assumptions import PAPER as ASSUMED
from traincast.core.knobs import STRATEGIES
from traincast.core.plan import Plan, Plans
from traincast.model.model import Model
from traincast.operations.transformer import parts
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.frameworks.spaces import FRAMEWORKS
from traincast.planner.space.enumeration import NO_PLACEMENT, enumerate_space, panels
from traincast.planner.space.search_space import Shards, experts_apart
from traincast.step.placement import divisors, factorizations, placements
from traincast.step.validity import RULES, reasons
from traincast.times.pipeline.schedules import SCHEDULES

GPUS = (1, 2, 4, 6, 8, 12, 16, 24, 48)
PAPER = FRAMEWORKS["paper"].strategies
EVERY_RULE = (*RULES, *(rule for framework in FRAMEWORKS.values() for rule in framework.rules))


def shape(layers=6, hidden=1536, heads=12, seq=1000, ffn=None):
    return Model(name="shape", layers=layers, hidden=hidden, heads=heads, ffn=ffn or 4 * hidden, seq=seq)


MODELS = {
    "heads 12, seq 1000": shape(),
    "layers prime, heads 6, seq odd": shape(layers=7, hidden=768, heads=6, seq=1155),
    "wide enough for several panels": shape(layers=4, hidden=6144, heads=24, seq=384),
    "hidden no multiple of a power of two": shape(layers=12, hidden=1200, heads=24, seq=780),
}


# The rules of the paper, in plain loops ---------------------------------------------------------------------


@cache
def fillings(domain, parts):
    """Ordered factorisations of the fast domain."""
    return [
        t
        for t in product([d for d in range(1, domain + 1) if domain % d == 0], repeat=parts)
        if math.prod(t) == domain
    ]


def panel_counts(e, m1, m2):
    """SUMMA panels nb = s·2^i, i = 0 … while i < log2(e // s), s = max(m1, m2)."""
    s = max(m1, m2)
    if e / s < 512:
        return [s]
    counts, i = [], 0
    while i < math.log2(e // s):
        nb = s * 2**i
        if e % nb == 0 and e // nb >= 512:
            counts.append(nb)
        i += 1
    return counts


def fast_shares(degrees, domain):
    """Members of each group in a fast domain: all of a small job, else every exact filling of domains."""
    if math.prod(degrees) <= domain:
        return [tuple(degrees)]
    return [
        t
        for t in fillings(domain, len(degrees))
        if all(n % share == 0 for n, share in zip(degrees, t, strict=True))
    ]


def exchanging(strategy, m2):
    """Parts of cp that exchange heads: all of it (Ulysses), one that leaves a ring of such parts (hybrid),
    none.
    """
    if strategy == "hybrid":
        return [u for u in range(2, m2) if m2 % u == 0]
    return [m2 if strategy == "ulysses" else 1]


def by_loops(model, n, domain, gbs, strategy, uneven=False):
    """Candidates as (tp, [tp2 or cp,] pp, dp, ulysses, mbs, panels, fast shares as the degrees)."""
    e, h, l, L = model.hidden, model.heads, model.seq, model.layers
    shares = []
    for m1 in range(1, n + 1):
        if n % m1 or h % m1 or e % m1:
            continue
        if strategy == "1d":
            seconds = [1] if 3 * e // m1 >= 128 else []
        else:
            seconds = [
                m2 for m2 in range(1, n // m1 + 1) if n // m1 % m2 == 0 and e // m1 >= 128 and l // m2 >= 128
            ]
            if strategy == "summa":
                seconds = [m2 for m2 in seconds if e % m2 == 0]
        for m2 in seconds:
            tp = m1 * m2
            most = min(n // tp, L)
            for pp in range(1, most + 1):
                if n // tp % pp or (L % pp and not uneven):
                    continue
                dp = n // (tp * pp)
                if dp > gbs or gbs % dp:
                    continue
                degrees = (m1, pp, dp) if strategy == "1d" else (m1, m2, pp, dp)
                inner = [u for u in exchanging(strategy, m2) if h % (m1 * u) == 0]
                for u, b in product(inner, range(1, gbs // dp + 1)):
                    if gbs // dp % b or b * l % (m2 if strategy == "summa" else tp):
                        continue
                    for nb in panel_counts(e, m1, m2) if strategy == "summa" else [1]:
                        shares += [(*degrees, u, b, nb, *t) for t in fast_shares(degrees, domain)]
    return shares


# What the library enumerates --------------------------------------------------------------------------------


def knobs_of(strategy):
    return (
        *STRATEGIES[strategy].axes,
        "ulysses",
        "mbs",
        "panels",
        *(f"fast_{axis}" for axis in STRATEGIES[strategy].axes),
    )


def rows(plans, strategy):
    """Plans as tuples of numbers in the order of `by_loops`."""
    columns = np.broadcast_arrays(*(np.atleast_1d(getattr(plans, knob)) for knob in knobs_of(strategy)))
    return list(zip(*(column.tolist() for column in columns), strict=True))


def enumerated(space):
    return rows(space.plans(*space.candidates(np.arange(len(space.counts)))), space.strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_candidates_are_those_of_plain_loops_in_the_documented_order(name, strategy):
    """Order: tp, tp2 or cp, pp, (dp, which follows,) mbs, panels and placement, ascending."""
    model, seen = MODELS[name], 0
    for n, domain, gbs in product(GPUS, (4, 6, 8), (8, 12, 96)):
        expected = by_loops(model, n, domain, gbs, strategy)
        space = enumerate_space(model, (n,), domain, gbs, CandidateBatch(strategy))
        assert enumerated(space) == sorted(expected), (n, domain, gbs)
        assert int(space.counts.sum()) == len(expected) == len(set(expected)), (n, domain, gbs)
        seen += len(expected)
    narrow = (
        strategy == "hybrid" and model.seq < 4 * 128
    )  # a ring of parts that exchange heads has at least 2 × 2 ranks
    assert seen > 500 if not narrow else seen == 0  # the comparison is not of nothing with nothing


def test_cases_reach_every_kind_of_candidate():
    """The loops above meet several panels, cut sequences, no placement, and no candidate at all."""
    wide = by_loops(MODELS["wide enough for several panels"], 8, 4, 8, "summa")
    assert len({row[6] for row in wide if row[:2] == (2, 1)}) > 1
    assert any(row[1] > 1 for row in by_loops(shape(), 16, 8, 96, "context"))
    assert {row[4] for row in by_loops(shape(seq=1536), 24, 8, 96, "hybrid")} == {2, 3, 4, 6}
    assert by_loops(shape(), 12, 8, 96, "1d") == []  # 12 GPUs do not fill domains of 8
    assert by_loops(shape(), 6, 8, 96, "1d") != []  # 6 lie in one


@st.composite
def cases(draw):
    heads = draw(st.sampled_from([1, 3, 4, 6, 10, 12]))
    model = shape(
        layers=draw(st.integers(1, 13)),
        heads=heads,
        hidden=heads * draw(st.sampled_from([32, 64, 100, 128, 256, 640])),
        seq=draw(st.integers(128, 3000)),
    )
    strategy = draw(st.sampled_from(sorted(STRATEGIES)))
    n = draw(st.sampled_from([*range(1, 19), 20, 24, 27, 30, 32, 36, 40, 48, 64, 72, 96]))
    gbs = draw(st.integers(1, 100) | st.sampled_from([24, 36, 48, 64, 72, 96, 120]))
    return model, n, draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12])), gbs, strategy


@given(cases())
@settings(max_examples=300)
def test_any_case_is_as_plain_loops_have_it(case):
    model, n, domain, gbs, strategy = case
    assert enumerated(enumerate_space(model, (n,), domain, gbs, CandidateBatch(strategy))) == sorted(
        by_loops(*case)
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sequence_below_128_tokens_has_candidates_for_1d_only(strategy):
    """l/m2 ≥ 128 is asked of SUMMA and 2-D context whatever m2 is, so also of m2 = 1."""
    model = shape(seq=96)
    assert enumerated(enumerate_space(model, (4,), 4, 8, CandidateBatch(strategy))) == sorted(
        by_loops(model, 4, 4, 8, strategy)
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_several_gpu_counts_equal_separate_searches(strategy):
    model = MODELS["heads 12, seq 1000"]
    space = enumerate_space(model, GPUS, 4, 96, CandidateBatch(strategy))
    bounds = np.concatenate(([0], np.cumsum(space.counts)))
    together = enumerated(space)
    for job, n in enumerate(GPUS):
        alone = enumerate_space(model, (n,), 4, 96, CandidateBatch(strategy))
        begin, end = bounds[space.starts[job]], bounds[space.starts[job + 1]]
        assert together[begin:end] == enumerated(alone), n
        assert {reason: int(counts[job]) for reason, counts in space.rejected.items() if counts[job]} == {
            reason: int(counts[0]) for reason, counts in alone.rejected.items()
        }, n
    assert len(together) == int(space.counts.sum())


# Numbering and shards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_candidates_of_some_layouts_and_their_shards(strategy):
    """Candidates come layout by layout, and the shard of each has its own tensor knobs."""
    space = enumerate_space(
        replace(MODELS["wide enough for several panels"], seq=768), (8, 16), 4, 12, CandidateBatch(strategy)
    )
    every_other = np.arange(0, len(space.counts), 2)
    which, fill = space.candidates(every_other)
    assert np.bincount(which).tolist() == space.counts[every_other].tolist()
    assert (np.diff(which) >= 0).all()
    layout = every_other[which]
    plans = space.plans(layout, fill)
    one_by_one = [row for index in every_other for row in rows(space.plans(*_one(space, index)), strategy)]
    assert rows(plans, strategy) == one_by_one

    shards = Shards.from_rows(space, every_other)
    shard_knobs = [knob for knob in knobs_of(strategy) if knob.removeprefix("fast_") not in {"pp", "dp"}]
    distinct = list(
        zip(*np.broadcast_arrays(*(getattr(shards.plans, knob) for knob in shard_knobs)), strict=True)
    )
    assert len(set(distinct)) == len(distinct)  # what repeats is computed once
    columns = [getattr(plans, knob) * np.ones(len(fill)) for knob in shard_knobs]
    shard_rows = shards.row[space.layer_row[layout], space.fills.layer_placement[fill]]
    assert [distinct[i] for i in shard_rows] == list(zip(*columns, strict=True))
    assert set(shard_rows.tolist()) == set(range(len(distinct)))  # and nothing else is computed
    assert len(fill) > 50


def _one(space, layout):
    which, fill = space.candidates(np.array([layout]))
    return np.full(len(which), layout), fill


def test_no_layout_has_no_candidates():
    space = enumerate_space(shape(), (8,), 8, 96, CandidateBatch("1d"))
    which, fill = space.candidates(np.arange(0))
    assert len(which) == len(fill) == 0
    assert len(Shards.from_rows(space, np.arange(0)).plans.mbs) == 0


# Rejected candidates ----------------------------------------------------------------------------------------


def rejected_by_loops(model, n, domain, gbs, strategy):
    """The grid (degrees, micro-batch and any fills), and the first rule each point breaks, in order.

    A dp that does not divide the batch leaves no micro-batch to choose from: one point stands for it.
    """
    e, h, l, L = model.hidden, model.heads, model.seq, model.layers
    grid, broken = 0, {}
    numbers = range(1, n + 1)
    for m1, m2, pp, dp in product(numbers, repeat=4):
        if m1 * m2 * pp * dp != n or (strategy == "1d" and m2 > 1):
            continue
        degrees = (m1, pp, dp) if strategy == "1d" else (m1, m2, pp, dp)
        fills = len(fast_shares(degrees, domain)) * (
            len(panel_counts(e, m1, m2)) if strategy == "summa" else 1
        )
        batches = [b for b in range(1, gbs + 1) if gbs % (dp * b) == 0] or [1]
        for u, b in product(exchanging(strategy, m2), batches):
            tokens_over = m2 if strategy == "summa" else m1 * m2
            conditions = {
                "tp does not divide the attention heads": h % m1 == 0,
                "tp and ulysses together do not divide the attention heads": h % (m1 * u) == 0,
                "tp does not divide the hidden width": e % m1 == 0,
                "tp does not divide the MLP's width": model.ffn % m1 == 0,
                "tp2 does not divide the hidden width": strategy != "summa" or e % m2 == 0,
                "tp2 does not divide the MLP's width": strategy != "summa" or model.ffn % m2 == 0,
                "tp cuts a width below 128": (3 * e if strategy == "1d" else e) // m1 >= 128,
                "the sequence on a rank is below 128 tokens": strategy == "1d" or l // m2 >= 128,
                "pp does not divide the layers": L % pp == 0,
                "dp does not divide the global batch": gbs % dp == 0,
                "the tokens of a micro-batch do not divide over the tensor ranks": b * l % tokens_over == 0,
                NO_PLACEMENT: fills > 0,
            }
            grid += max(fills, 1)
            first = next((reason for reason, met in conditions.items() if not met), None)
            if first:
                broken[first] = broken.get(first, 0) + max(fills, 1)
    return grid, broken


# 9 layers and 10 heads of 30: nothing divides well, so that every rule has its victims among these cases
AWKWARD = shape(layers=9, hidden=300, heads=10, seq=1000)
REJECTIONS = [
    (24, 8, 12),
    (12, 8, 12),
    (16, 6, 12),
    (20, 4, 40),
    (6, 8, 9),
]  # GPUs, fast domain, global batch


@pytest.mark.parametrize(("n", "domain", "gbs"), REJECTIONS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_point_of_the_grid_is_a_candidate_or_rejected_once(strategy, n, domain, gbs):
    grid, broken = rejected_by_loops(AWKWARD, n, domain, gbs, strategy)
    space = enumerate_space(AWKWARD, (n,), domain, gbs, CandidateBatch(strategy))
    assert {reason: int(count[0]) for reason, count in space.rejected.items()} == broken
    assert sum(broken.values()) + int(space.counts.sum()) == grid


def test_cases_of_rejection_reach_every_rule():
    """Rules that speak only of what a plan given by hand can break aside: in the space, mbs always divides a
    replica's batch.
    """
    reached = {
        reason
        for strategy in STRATEGIES
        for case in REJECTIONS
        for reason in rejected_by_loops(AWKWARD, *case, strategy)[1]
    }
    all_rules = {*reasons(), NO_PLACEMENT}
    assert all_rules - reached == {
        "mbs does not divide the batch of a replica",
        "etp is above 1 without experts",
        "panels do not divide the hidden width",
        "the layers do not divide into virtual stages",  # the test below asks for these
        "interleaving needs micro-batches in multiples of pp",
        "tp does not divide the hidden width",  # heads divide it, and tp divides the heads
        "tp does not divide the head's width and the sequence, as SUMMA attention needs",
        "tp does not divide the MLP's width",
        "tp2 does not divide the MLP's width",
        "tp neither divides the heads of keys and values nor is a multiple of them",  # as many as heads
        "the sequence has fewer tokens than context ranks",  # they are few in these cases
        "ulysses does not divide cp",  # it is chosen among the divisors
        "there are more model chunks than layers",  # of uneven stages, which a test below asks for
        "the layout has another number of chunks than pp × vp",  # tests/planner/test_framework_spaces.py
        *NOT_ASKED,
    }


NOT_ASKED = {
    "replicas do not divide the ranks that hold the same experts",
    "as many replicas as ranks leave nothing to shard: zero = 0 is that plan",  # test_framework_spaces.py
    # of fine-tuning, and of models without attention in some layers
    "a packed base is multiplied at 16 bits: precision must be bf16, fp16 or fp32",
    "a base held as operands of products below 16 bits needs a precision such as fp8 or nvfp4",
    "adapters with SUMMA are not modelled",
    "linear attention is not modelled with 2-D tensor parallelism",
    # of models with an encoder, a vision tower, an indexer, or layers other than attention
    "a vision tower with SUMMA is not modelled",
    "tp does not divide the heads or the MLP's width of the vision tower",
    "layers with shared weights are not modelled in a pipeline",
    "attention to an encoder is not modelled with context parallelism or 2-D tensor parallelism",
    "attention to an encoder is not modelled with recompute per-op, torchtitan's",
    "tp does not divide the heads of linear attention, groups of them, or channels",
    "tp and cp together do not divide the heads of linear attention, or channels",
    "Mamba-1 and the RG-LRU are not modelled with context parallelism",
    "attention to selected keys is modelled as a fused kernel: attention must be flash",
    "attention to selected keys gathers them: cp_kind must be all-gather",
    "tp does not divide the groups of heads of the output projection",
    "copies of the residual stream are not modelled with 2-D tensor parallelism",
    # of models without experts, of plans without replicas, and of 1F1B that is not interleaved
    "tp_overlap has nothing to overlap",
    "ep_overlap has nothing to overlap",
    "ep does not divide the experts (it is 1 without experts)",
    "etp does not divide the width of an expert, or tp that of the shared experts",
    "ep and etp do not divide the ranks of a stage, tp × cp × dp",
    "etp is above tp",
    "experts with tp > 1 need sequence parallelism",
    "replicas do not divide the ranks that hold the same weights",
    "interleaving needs a pipeline, pp > 1",
    "gpipe has one stage on a device, vp = 1",
    "dualpipe-v has two chunks on each of several devices, vp = 2",
    "dualpipe-v needs at least 2 pp micro-batches",
    "zb-h1 has one stage on a device, vp = 1",
    "zb-h1 needs at least pp micro-batches",
    "zb-h2 has one stage on a device, vp = 1",
    "zb-2p has one stage on a device, vp = 1",
    "zb-2p needs at least 2 pp - 1 micro-batches",
    "zb-h2 needs at least 2 pp - 1 micro-batches",
    "zb-v has two chunks on each of several devices, vp = 2",
    "zb-v needs at least 2 pp - 1 micro-batches",
    "dualpipe has one stage on a device, vp = 1",
    "dualpipe needs an even pp",
    "dualpipe needs an even number of micro-batches",
    "dualpipe needs at least 2 pp micro-batches",
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_uneven_stages_ask_for_no_more_than_a_layer_each(strategy):
    model = shape(layers=7, seq=1536)
    for n, domain, gbs in product((8, 16, 24), (4, 8), (12, 48)):
        space = enumerate_space(model, (n,), domain, gbs, CandidateBatch(strategy, uneven=True))
        expected = by_loops(model, n, domain, gbs, strategy, uneven=True)
        assert enumerated(space) == sorted(expected), (n, domain, gbs)
        pp = knobs_of(strategy).index("pp")
        assert any(7 % row[pp] for row in expected)
    rejected = enumerate_space(model, (24,), 4, 48, CandidateBatch(strategy, uneven=True)).rejected
    assert ("there are more model chunks than layers" in rejected) == (
        strategy != "hybrid"
    )  # 4 of whose 24 ranks are cp's
    assert "pp does not divide the layers" not in rejected


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_interleaved_layouts_are_those_plain_ones_that_it_can_cut(strategy):
    """pp > 1, pp v divides the layers, pp the micro-batches of a replica (arXiv 2104.04473, section 2.2)."""
    model, gbs = shape(layers=12), 24
    plain = enumerated(enumerate_space(model, (16,), 4, gbs, CandidateBatch(strategy)))
    interleaved = enumerate_space(model, (16,), 4, gbs, CandidateBatch(strategy, vp=3))
    names = knobs_of(strategy)
    pp, dp, mbs = (names.index(name) for name in ("pp", "dp", "mbs"))
    fitting = [
        row
        for row in plain
        if row[pp] > 1 and 12 % (3 * row[pp]) == 0 and gbs / row[dp] / row[mbs] % row[pp] == 0
    ]
    assert enumerated(interleaved) == fitting != []
    assert set(interleaved.rejected) >= {
        "the layers do not divide into virtual stages",
        "interleaving needs micro-batches in multiples of pp",
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_degrees_that_do_not_divide_the_mlp_are_rejected_for_it(strategy):
    """The paper's models have f = 4e, where dividing e divides f; 1004 is divided by 4 but not by 8."""
    model = shape(hidden=2048, heads=16, ffn=1004)
    space = enumerate_space(model, (32,), 4, 8, CandidateBatch(strategy))
    _, broken = rejected_by_loops(model, 32, 4, 8, strategy)
    assert broken["tp does not divide the MLP's width"] > 0
    assert ("tp2 does not divide the MLP's width" in broken) == (strategy == "summa")
    assert {reason: int(count[0]) for reason, count in space.rejected.items()} == broken


# Divisors, factorisations, panels, placements ---------------------------------------------------------------


@given(st.integers(1, 5000))
def test_divisors_are_all_of_them_ascending(n):
    assert divisors(n).tolist() == [d for d in range(1, n + 1) if n % d == 0]


@pytest.mark.parametrize("n", [1, 2**20, 3 * 2**18, 999_983, 999_983**2])
def test_divisors_of_large_numbers_multiply_to_pairs(n):
    """The d-th smallest times the d-th largest is n; a prime (999,983) has two, its square three."""
    result = divisors(n)
    assert (result * result[::-1] == n).all()
    assert len(result) == {1: 1, 2**20: 21, 3 * 2**18: 38, 999_983: 2, 999_983**2: 3}[n]


@given(st.integers(1, 120), st.integers(1, 4))
def test_factorizations_are_all_of_them_in_lexicographic_order(n, parts):
    factors = [d for d in range(1, n + 1) if n % d == 0]
    expected = [row for row in product(factors, repeat=parts) if math.prod(row) == n]
    assert [
        tuple(row) for row in factorizations(n, parts).tolist()
    ] == expected  # product() is lexicographic already


def test_number_of_factorizations_of_a_power_of_two():
    """2^14 over 4 factors: as many as ways to put 14 balls into 4 boxes, C(17, 3)."""
    assert len(factorizations(2**14, 4)) == math.comb(17, 3) == 680


@given(st.sampled_from([128, 768, 1536, 3000, 5120, 12288, 25600]), st.integers(1, 64), st.integers(1, 64))
def test_panels_are_those_of_the_paper(hidden, m1, m2):
    count, valid = panels(hidden, np.array([m1, 1]), np.array([m2, 1]))
    assert count[0][valid[0]].tolist() == panel_counts(hidden, m1, m2)
    assert count[1][valid[1]].tolist() == panel_counts(hidden, 1, 1)


def test_panels_by_hand():
    """12288 = 3·2^12: on a 4 × 2 grid s = 4 and 4, 8, 16 leave panels of 3072, 1536, 768; 32 would leave 384
    < 512.
    """
    count, valid = panels(12288, np.array([4]), np.array([2]))
    assert count[valid].tolist() == [4, 8, 16]
    count, valid = panels(12288, np.array([2]), np.array([32]))  # 12288/32 = 384 < 512: only s
    assert count[valid].tolist() == [32]


PLACED = [
    Plan(tp=4, pp=6, dp=2),
    Plan(tp=2, tp2=2, pp=3, dp=4, tp_kind="summa", panels=2),
    Plan(tp=2, cp=4, pp=1, dp=6, cp_kind="all-gather"),
    Plan(tp=2, cp=4, pp=3, dp=2, cp_kind="ulysses"),
    Plan(tp=2, cp=4, pp=3, dp=2, cp_kind="hybrid", ulysses=2),
]


@pytest.mark.parametrize("plan", PLACED, ids=str)
@pytest.mark.parametrize("domain", [1, 2, 4, 6, 8, 48, 64])
def test_placements_fill_the_fast_domains_in_every_way(plan, domain):
    axes = STRATEGIES[plan.strategy].axes
    degrees = [getattr(plan, axis) for axis in axes]
    placed = placements(plan, domain)
    assert [row[-len(axes) :] for row in rows(placed, plan.strategy)] == sorted(fast_shares(degrees, domain))
    columns = [getattr(plan, knob) for knob in (*axes, "ulysses", "mbs", "panels")]
    assert all(list(row[: len(columns)]) == columns for row in rows(placed, plan.strategy))
    assert placed.choices() == plan.choices()


@pytest.mark.parametrize(("plan", "domain"), [(Plan(tp=3, dp=4), 8), (Plan(tp=3, dp=3), 6), (Plan(dp=9), 8)])
def test_no_placement_where_no_divisors_of_the_degrees_multiply_to_the_domain(plan, domain):
    assert fast_shares([plan.tp, plan.pp, plan.dp], domain) == []
    assert placements(plan, domain) is None


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.broken)
@pytest.mark.parametrize("name", ["gpt3-1t", "deepseek-v3"])
def test_a_rule_reads_no_knob_that_it_does_not_name(rule, name):
    """The enumeration asks rules of ladders that differ in what they name; of micro-batches only some."""
    degrees = zip(*product((1, 3, 8), repeat=5), strict=True)
    knobs = {
        knob: np.array(of, float) for knob, of in zip(("tp", "pp", "vp", "ep", "dp"), degrees, strict=True)
    }
    for schedule in SCHEDULES:
        plans, model = Plans(**knobs, mbs=2.0, schedule=schedule), load_model(name)
        for knob in {"mbs", *(knobs if "mbs" in rule.about else ())} - {*rule.about}:
            met = [rule.holds(model, replace(plans, **{knob: value}), 96) for value in (1.0, 2.0, 96.0)]
            assert all(np.array_equal(met[0], other) for other in met[1:]), knob


def test_layers_apart_from_experts_have_every_layer_in_its_place():
    """Read back by place, the table has the layers it was made of; operations without experts are 1-D."""
    model, batch = load_model("deepseek-v3"), CandidateBatch("context", vp=None, experts=True)
    space = enumerate_space(model, (256,), 8, 512, batch)
    table, place = experts_apart(space.layers)
    layers = np.size(table.mbs)
    assert layers < len(place)
    assert np.shape(table.ep)[1:] == (layers,)
    for knob in ("tp", "cp", "mbs", "ep", "etp", "load"):
        column = np.broadcast_to(getattr(table, knob), np.shape(table.ep)).ravel()
        assert np.array_equal(column[place], getattr(space.layers, knob)), knob
    counted = parts(model, table.ready(ASSUMED), ASSUMED)
    assert {np.ndim(op.forward.nbytes) for op in counted["dense"]} == {1}
    assert {np.ndim(op.forward.nbytes) for op in counted["moe"]} == {1, 2}


def test_layers_without_experts_stay_as_they_are():
    space = enumerate_space(load_model("gpt3-1t"), (64,), 8, 512, CandidateBatch("1d"))
    table, place = experts_apart(space.layers)
    assert table is space.layers
    assert np.array_equal(place, np.arange(np.size(table.mbs)))
