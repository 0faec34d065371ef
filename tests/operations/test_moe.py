"""Costs of mixtures of experts besides their products: exchanges, biases, token counts, 8-bit attention."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.plan import Plans
from traincast.operations.operation import Operation, PassCount
from traincast.operations.transformer import layer
from traincast.times.nccl import distinct
from traincast.times.operation_time import overlap_experts
from traincast.times.timed_operation import PassSeconds, TimedOperation

CALIBRATED = calibrated()

IDLE = Operation("idle", PassCount((), 0.0), PassCount((), 0.0))


def test_padded_experts_need_no_count_of_their_tokens():
    """With a capacity factor shapes are known (moe-pad-expert-input-to-capacity of Megatron-Core)."""
    model, plan = tc.load_model("mixtral-8x7b"), tc.Plan(ep=8, dp=8)
    padded = replace(model, experts=replace(model.experts, capacity=1.0))
    calm, late = (
        tc.estimate(
            padded, "dgx-h100", plan, gbs=8, assumptions=CALIBRATED.with_values({"host.sync_seconds": wait})
        ).step_seconds
        for wait in (0.0, 1e-3)
    )
    assert late == calm


def test_rows_of_experts_that_several_ranks_share_by_hand():
    """Mixtral: 2 of 8 experts for each of 4096 tokens, of which one of two tensor ranks has half.

    Rows of 4096 numbers of 2 bytes go to their experts, and both ranks of an expert gather them; on the way
    back partial results are added up over both first. SwiGLU saves its two inputs, 14336 / 2 wide each, of
    the rows of both.
    """
    model, plan = tc.load_model("mixtral-8x7b", seq=4096), Plans(tp=2.0, ep=4.0, etp=2.0, dp=4.0)
    operations = {op.name: op for op in layer(model, plan, CALIBRATED)}
    rows = 4096 / 2 * 2
    exchange = ("all-to-all", "ep", 2 * rows * 4096)
    gather = ("all-gather", "etp", 2 * 2 * rows * 4096)
    scatter = ("reduce-scatter", "etp", 2 * 2 * rows * 4096)
    for name, there, back in (("permute", gather, scatter), ("unpermute", scatter, gather)):
        op = operations[f"experts.{name}"]
        assert [(c.kind, c.over, c.nbytes) for c in op.forward.collectives] == [exchange, there]
        assert [(c.kind, c.over, c.nbytes) for c in op.backward.collectives] == [exchange, back]
    assert operations["experts.swiglu"].saved_bytes == 2 * 2 * (2 * rows) * 14336 / 2
    # In eager PyTorch the activated gate is saved as well.
    eager = CALIBRATED.with_values({"memory.saves_elementwise": True})
    saved = {op.name: op for op in layer(model, plan, eager)}["experts.swiglu"].saved_bytes
    assert saved == 3 * 2 * (2 * rows) * 14336 / 2


def exchanged(ep_overlap, assumed=None):
    """Mixtral on two nodes with all-to-alls between them, which take about a third of a step."""
    plan = tc.Plan(ep=8, tp=2, dp=8, ep_overlap=ep_overlap)
    est = tc.estimate(
        "mixtral-8x7b", "dgx-h100", plan, gbs=64, assumptions=CALIBRATED.with_values(assumed or {})
    )
    return est.step_seconds, est.breakdown


def test_an_overlapped_exchange_pays_a_share():
    """8 micro-batches: the first forward and the last backward pass of a rank have none to overlap."""
    exposed, now = exchanged(False)[1]["ep_comm"], exchanged(True, assumed={"overlap.ep_overlapped": 0.3})[1]
    # the rest is shorter than the work
    assert now["ep_comm"] == pytest.approx((0.3 + 0.7 / 8) * exposed, rel=1e-12)
    assert now["bubble"] == 0, "there are no stages"
    assert exchanged(True, assumed={"overlap.ep_overlapped": 1.0}) == exchanged(False)
    assert exchanged(False, assumed={"overlap.ep_overlapped": 0.0}) == exchanged(False), (
        "nothing is overlapped"
    )
    assert exchanged(False, assumed={"overlap.ep_exposed": 0.5})[1]["ep_comm"] == pytest.approx(
        0.5 * exposed, rel=1e-12
    )


GATHERED = CALIBRATED.with_values({"collectives.gathers_tokens": True})
RECEIVED = {"all-gather": lambda n: (n - 1) / n, "reduce-scatter": lambda n: (n - 1) / n}


def received(operations, direction, ranks):
    """Bytes that a rank gets in the collectives with experts of a layer."""
    return sum(
        RECEIVED[call.kind](ranks) * call.nbytes
        for op in operations
        for call in op.passes[direction].collectives
        if call.over == "tp-ep"
    )


@pytest.mark.parametrize(("tp", "ep", "etp"), [(1, 8, 1), (2, 4, 2), (4, 2, 1)])
@pytest.mark.parametrize("of_router", [0, 4])
def test_bytes_of_the_allgather_dispatcher(tp, ep, etp, of_router):
    """Counted in MoEAllGatherTokenDispatcher (Megatron-Core 0.19.2, token_dispatcher.py).

    `token_dispatch` gathers the routing map (bool), probabilities and tokens of tp_ep_group; its backward
    pass reduces and scatters the gradients of the last two. `token_combine` reduces and scatters results in
    the precision of probabilities; its backward pass gathers the gradients.
    """
    model = tc.load_model("mixtral-8x7b")
    plan = Plans(tp=float(tp), ep=float(ep), etp=float(etp), dp=8.0)
    assumed = GATHERED.with_values({"collectives.probability_bytes": of_router})
    operations = layer(model, plan, assumed, model.kinds[0])
    n, ranks, experts, each = model.seq // tp, ep * etp, 8, of_router or 2
    others = (ranks - 1) * n
    tokens, results, probabilities = others * 4096 * 2, others * 4096 * each, others * experts * each
    routing = others * experts
    assert received(operations, "forward", ranks) == tokens + probabilities + routing + results
    assert received(operations, "backward", ranks) == tokens + probabilities + results
    assert not any(call.kind == "all-to-all" for op in operations for call in op.forward.collectives)


def test_bytes_of_the_allgather_dispatcher_in_a_small_run():
    """The steps of MoEAllGatherTokenDispatcher on arrays of 4 ranks: bytes that each gets, and its rows."""
    draw = np.random.default_rng(0)
    model, ranks = tc.load_model("mixtral-8x7b"), 4
    model = replace(model, seq=64)
    n, own = model.seq, model.experts.experts // ranks
    tokens = [np.zeros((n, model.hidden), np.float16) for _ in range(ranks)]
    chosen = [np.argsort(draw.random((n, 8)), axis=1)[:, :2] for _ in range(ranks)]
    maps = [(np.arange(8) == each[:, :, None]).any(axis=1) for each in chosen]
    probabilities = [np.zeros((n, 8), np.float16) for _ in range(ranks)]
    got, rows = [], []
    for rank in range(ranks):
        gathered = [np.concatenate(parts) for parts in (maps, probabilities, tokens)]
        mine = sum(part[rank].nbytes for part in (maps, probabilities, tokens))
        local_map = gathered[0][:, own * rank : own * (rank + 1)]
        rows.append(local_map.sum())
        returned = np.zeros_like(gathered[2])  # unpermuted results of the local experts, reduced over ranks
        got.append(sum(part.nbytes for part in gathered) - mine + returned.nbytes * (ranks - 1) // ranks)
    plan = Plans(ep=float(ranks), dp=float(ranks))
    operations = layer(model, plan, GATHERED, model.kinds[0])
    assert got == [received(operations, "forward", ranks)] * ranks
    up = next(op for op in operations if op.name == "experts.fc1")
    assert sum(rows) == ranks * up.forward.gemms[0].m * up.forward.gemms[0].batch


def test_traffic_of_the_allgather_dispatcher():
    """Permutation moves rows as beside an all-to-all; tokens of all other ranks start as zeros besides."""
    model, plan = tc.load_model("mixtral-8x7b"), Plans(ep=8.0, dp=8.0)
    zeros = 2 * 7 * model.seq * model.hidden
    whole, rows = (layer(model, plan, assumed, model.kinds[0]) for assumed in (GATHERED, CALIBRATED))
    more = {
        one.name: (one.forward.nbytes - other.forward.nbytes, one.backward.nbytes - other.backward.nbytes)
        for one, other in zip(whole, rows, strict=True)
        if one.name in ("experts.permute", "experts.unpermute")
    }
    assert more == {"experts.permute": (0, zeros), "experts.unpermute": (zeros, 0)}


def test_the_allgather_dispatcher_in_time_and_memory():
    """NCCL moves whole tokens to all 8 ranks in place of the rows of two experts: 7 against 2 x 7/8 of them.

    One buffer has the gathered tokens of all layers (use_global_buffer), and their gradients are beside it.
    """
    stacks = ("megatron-core-2025+dispatcher=allgather", "megatron-core-2025")
    model = tc.load_model("mixtral-8x7b")
    for ep in (1, 8):
        plan = tc.Plan(dp=8, ep=ep)
        whole, rows = (tc.estimate(model, "dgx-h100", plan, gbs=64, assumptions=stack) for stack in stacks)
        gathered = ep * model.seq * (2 * 2 * model.hidden + (2 + 1) * 8) * (ep > 1)
        assert whole.memory["workspace"] - rows.memory["workspace"] == gathered
        ratio = whole.breakdown["ep_comm"] / rows.breakdown["ep_comm"] if ep > 1 else 1
        assert ratio == pytest.approx(4 if ep > 1 else 1, rel=0.15)
        assert (whole.step_seconds == rows.step_seconds) == (ep == 1)
        assert ("the all-gather dispatcher of tokens" in whole.outside) == (ep > 1)
        assert "the all-gather dispatcher of tokens" not in rows.outside


seconds_of = st.floats(0.0, 1.0).map(lambda value: round(value, 6))


@given(st.lists(st.tuples(seconds_of, seconds_of), min_size=2, max_size=6), st.floats(0.0, 1.0))
def test_exposed_time_of_an_expert_exchange(passes, share):
    """max(x - w, share x) of exchange x and other work w, forward and backward together."""
    timed = tuple(
        TimedOperation(IDLE, PassSeconds(w / 2, w / 4, w / 4, x), PassSeconds(w, 0.0, 0.0, 2 * x), 0.0, None)
        for x, w in passes
    )
    sent, busy = 3 * sum(x for x, _ in passes), 2 * sum(w for _, w in passes)
    after = overlap_experts(timed, CALIBRATED.with_values({"overlap.ep_overlapped": share}))
    waited = sum(op.forward.exchange + op.backward.exchange for op in after)
    assert waited == pytest.approx(max(sent - busy, share * sent), abs=1e-9)
    assert [op.forward.compute for op in after] == [op.forward.compute for op in timed]


@pytest.mark.parametrize("domains", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize(("experts", "topk", "limit"), [(256, 8, (8, 4)), (160, 6, (8, 3)), (256, 8, (1, 1))])
def test_tokens_go_to_the_domains_of_few_groups(experts, topk, limit, domains):
    """Against draws: groups for each token, then experts among theirs, as DeepSeek routes."""
    draws, (groups, chosen) = random.Random(0), limit
    size, reached = experts // groups, 0
    for _ in range(2000):
        own = [group * size + i for group in draws.sample(range(groups), chosen) for i in range(size)]
        reached += len({expert * domains // experts for expert in draws.sample(own, topk)})
    assert distinct(float(topk), float(domains), limit) == pytest.approx(reached / 2000, rel=0.04)


def test_limited_routing_shortens_exchanges_between_nodes():
    """DeepSeek-V3 on 8 nodes, fused dispatcher: 3.6 of them instead of 5.25, its own included."""
    model, plan = tc.load_model("deepseek-v3"), tc.Plan(pp=16, dp=64, ep=64)
    free = replace(model, experts=replace(model.experts, groups=1, group_topk=1))

    def waited(of, stack):
        return tc.estimate(of, "dgx-h100", plan, gbs=1024, assumptions=stack).breakdown["ep_comm"]

    ratio = waited(model, "megatron-core-deepep") / waited(free, "megatron-core-deepep")
    assert ratio == pytest.approx(3.6 / 5.25, rel=0.05)
    assert waited(model, "megatron-core-2025") == waited(free, "megatron-core-2025"), "every copy is sent"


def test_biases_of_experts_move_their_traffic():
    """An element of result and bias, at 16 bits in each direction, so many times (arXiv 2410.00273)."""
    model = tc.load_model("gpt-oss-20b")
    operations = layer(
        model, Plans(), CALIBRATED.with_values({"traffic.expert_bias_passes": 5}), model.kinds[0]
    )
    rows, widths = (
        model.seq * model.experts.topk,
        {"experts.fc1_bias": 2 * model.experts.ffn, "experts.fc2_bias": model.hidden},
    )
    for op in operations:
        if op.name in widths:
            moved = 2 * 5 * (rows + 1) * widths[op.name]
            assert (op.forward.nbytes, op.backward.nbytes) == (moved, moved)
            assert op.weights == model.experts.experts * widths.pop(op.name)
    assert not widths


def test_attention_at_8_bits():
    def waited(precision, faster):
        plan = tc.Plan(tp=8, precision=precision)
        return tc.estimate(
            "llama-3-8b",
            "dgx-h100",
            plan,
            gbs=8,
            assumptions=CALIBRATED.with_values({"attention.low_precision": faster}),
        ).step_seconds

    assert waited("fp8", 1.5) < waited("fp8", 1.0)
    assert waited("bf16", 1.5) == waited("bf16", 1.0)


@pytest.mark.parametrize(("precision", "low"), [("nvfp4", 67), ("mxfp8", 88), ("bf16", 0)])
def test_plain_layers_stay_at_16_bits_among_4_bit_ones(precision, low):
    """Of the 88 layers of Nemotron 3 Super 8 are attention, one of these among the last 14.

    Both stay at 16 bits in NVFP4 (Megatron Bridge, te_quant.cfg, nemotron_3_super_bf16_with_nvfp4_mixed).
    """
    model, plan = tc.load_model("nemotron-3-super"), Plans(precision=precision)
    units = [
        {kernel.unit for op in layer(model, plan, CALIBRATED, kind) for kernel in op.forward.kernels}
        for kind in model.pattern
    ]
    assert sum("low" in of_layer for of_layer in units) == low
