"""Pipeline transfers, host time and skew: by hand, and limits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.assumptions import PAPER
from traincast.core.plan import Plans
from traincast.times.pipeline.p2p import slowest_stage_link, stage_transfer, transfer
from traincast.times.process_groups import Group, Placement

CALIBRATED = calibrated()

GPT = replace(tc.load_model("gpt3-175b"), layers=32)
DGX = tc.load_system("dgx-a100")  # nodes of 8
PLAIN = CALIBRATED.with_values({"collectives.protocols": False})
MESSAGE = 1e8  # [byte]


def inner_and_outer(assumed=PLAIN):
    """Time of one link in a node and of one between nodes."""
    near, far = (
        transfer(MESSAGE, Group(2.0, (n, 2.0)[: len(DGX.tiers) - 1]), DGX, assumed) for n in (2.0, 1.0)
    )
    return near, far


def test_the_slowest_link_is_between_nodes():
    """16 stages on 2 nodes: 14 links in nodes and one between them; a stage next to it has one of each."""
    near, far = inner_and_outer()
    stages = Group(16.0, (8.0, 16.0)[: len(DGX.tiers) - 1])
    assert transfer(MESSAGE, stages, DGX, PLAIN) == pytest.approx((14 * near + far) / 15)
    assert slowest_stage_link(MESSAGE, stages, DGX, PLAIN) == pytest.approx((near + far) / 2)
    half = PLAIN.with_values({"collectives.slow_pipeline_links": 0.5})
    assert transfer(MESSAGE, stages, DGX, half) == pytest.approx((14 * near + far / 2) / 15)
    alone = Group(2.0, (1.0, 2.0)[: len(DGX.tiers) - 1])  # one stage in a node
    assert slowest_stage_link(MESSAGE, alone, DGX, PLAIN) == pytest.approx(far)
    assert slowest_stage_link(MESSAGE, Group(1.0, (1.0, 1.0)[: len(DGX.tiers) - 1]), DGX, PLAIN) == 0


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8, 16]), st.floats(1e3, 1e9))
def test_a_stage_is_as_slow_as_the_slowest(tp, pp, message):
    near = max(8 // tp, 1)
    stages = Group(float(pp), (float(min(near, pp)), float(pp))[: len(DGX.tiers) - 1])
    slowest, average = (of(message, stages, DGX, CALIBRATED) for of in (slowest_stage_link, transfer))
    assert (slowest > 0) == (pp > 1)
    assert slowest >= average / 2  # it has two links, the average one among them or a slower one


def test_scattered_transfers_move_a_part_of_each_rank():
    """Megatron-LM (arXiv 2104.04473, section 4.1): 1/tp over the network, then a gather in the node; nothing
    with one rank."""
    plan = Plans(tp=8.0, pp=2.0, fast_tp=8.0, sp=False)
    direct = stage_transfer(
        MESSAGE, Placement(plan, DGX.tiers), DGX, PLAIN.with_values({"collectives.transfers_scattered": 0})
    )
    scattered = stage_transfer(
        MESSAGE, Placement(plan, DGX.tiers), DGX, PLAIN.with_values({"collectives.transfers_scattered": 1})
    )
    half = stage_transfer(
        MESSAGE, Placement(plan, DGX.tiers), DGX, PLAIN.with_values({"collectives.transfers_scattered": 0.5})
    )
    assert direct / 8 < scattered < direct
    assert half == pytest.approx((direct + scattered) / 2)
    single_rank = Plans(pp=2.0, sp=False)
    assert stage_transfer(MESSAGE, Placement(single_rank, DGX.tiers), DGX, PLAIN) == stage_transfer(
        MESSAGE,
        Placement(single_rank, DGX.tiers),
        DGX,
        PLAIN.with_values({"collectives.transfers_scattered": 0}),
    )
    cut = Plans(tp=8.0, pp=2.0, fast_tp=8.0)  # with sequence parallelism the message is a part already
    assert stage_transfer(MESSAGE, Placement(cut, DGX.tiers), DGX, PLAIN) == stage_transfer(
        MESSAGE, Placement(cut, DGX.tiers), DGX, PLAIN.with_values({"collectives.transfers_scattered": 0})
    )


def run(assumed, model=GPT, **knobs):
    return tc.estimate(
        model, DGX, tc.Plan(**{"pp": 16, "mbs": 1, "recompute": "full"} | knobs), gbs=64, assumptions=assumed
    )


def test_transfers_are_exposed_or_overlapped():
    """Exposed, a step pays for two transfers of every micro-batch; overlapped, only for exposed ones."""
    held, overlapped, half = (
        run(PLAIN.with_values({"overlap.pp_exposed": share})) for share in (1.0, 0.0, 0.5)
    )
    hop = slowest_stage_link(
        GPT.seq * GPT.hidden * 2.0, Group(16.0, (8.0, 16.0)[: len(DGX.tiers) - 1]), DGX, PLAIN
    )
    assert held.breakdown["pp_comm"] == pytest.approx(2 * 64 * hop)
    assert overlapped.breakdown["pp_comm"] < half.breakdown["pp_comm"] < held.breakdown["pp_comm"]
    assert overlapped.step_seconds < half.step_seconds < held.step_seconds


def test_slack_of_stages_hides_round_trips():
    """A head that makes the last stage the slowest leaves the others time; without one, all stages are waited
    for."""
    assumed = PLAIN.with_values({"overlap.pp_exposed": 0, "host.straggling": 0, "host.step_seconds": 0})
    heavy = run(assumed, replace(GPT, vocab=500_000))
    light = run(assumed, replace(GPT, vocab=128))
    assert heavy.breakdown["pp_comm"] < 0.5 * light.breakdown["pp_comm"]


def test_host_time_per_micro_batch():
    """Far slower than the accelerator, it sets the pace: a step takes so much longer for every
    micro-batch."""
    model = replace(tc.load_model("gpt3-175b"), layers=2, hidden=256, ffn=1024, heads=4)
    slow, slower = (
        tc.estimate(
            model,
            DGX,
            tc.Plan(dp=8),
            gbs=64,
            assumptions=PLAIN.with_values(
                {"host.dispatch_seconds": 1e-5, "host.microbatch_seconds": seconds}
            ),
        )
        for seconds in (5.0, 6.0)
    )
    assert slower.step_seconds - slow.step_seconds == pytest.approx(8.0, rel=1e-2)


def test_softmax_kernel_by_kernel_keeps_the_host_busy():
    """Scores of a number of sequences and heads that is no multiple of 4: Megatron-LM's fused softmax does
    not take them."""
    model = replace(tc.load_model("gpt3-175b"), layers=2, hidden=256, ffn=1024, heads=4, kv_heads=4, seq=128)
    slow = PLAIN.with_values({"host.dispatch_seconds": 1e-2, "traffic.unfused_softmax_passes": 1.21})

    def seconds(mbs, launches):
        plan = tc.Plan(tp=4, mbs=mbs, attention="unfused", sp=False)
        return tc.estimate(
            model, DGX, plan, gbs=4, assumptions=slow.with_values({"host.unfused_softmax_launches": launches})
        ).step_seconds

    assert seconds(4, 9) == seconds(4, 0)
    # 9 operations more, forward and backward, in 2 layers, for 4 micro-batches
    assert seconds(1, 9) - seconds(1, 0) == pytest.approx(9 * 2 * 2 * 4 * 1e-2, rel=1e-3)


def test_skew_grows_with_the_ranks():
    """For each doubling of the group: eight ranks wait three times as long as two."""

    def skew(tp):
        with_it, without = (
            run(PLAIN.with_values({"collectives.skew_seconds": s}), pp=1, tp=tp).breakdown["tp_comm"]
            for s in (1e-3, 0.0)
        )
        return with_it - without

    assert skew(1) == 0
    assert skew(8) == pytest.approx(3 * skew(2))


def test_products_of_older_libraries_are_slower():
    """All of a model's products at 0.8 of the rate: between nothing, where memory binds, and a
    quarter more."""
    usual, older = (
        run(PLAIN.with_values({"kernels.product_efficiency": share})).breakdown["compute"]
        for share in (1.0, 0.8)
    )
    assert 1.05 * usual < older < 1.25 * usual * (1 + 1e-9)


def test_paper_assumptions_have_no_host_time_or_overlap():
    assert (
        PAPER.overlap.pp_exposed,
        PAPER.collectives.transfers_scattered,
        PAPER.collectives.slowest_link_paces,
    ) == (1, 0, False)
    assert (
        PAPER.host.microbatch_seconds,
        PAPER.collectives.skew_seconds,
        PAPER.host.unfused_softmax_launches,
    ) == (0, 0, 0)
    assert np.all(stage_transfer(MESSAGE, Placement(Plans(pp=2.0, sp=False), DGX.tiers), DGX, PAPER) > 0)
