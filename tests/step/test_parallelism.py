"""Traffic, limits and savings of every parallelism, recomputation and offload, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.plan import Plans
from traincast.operations.transformer import layer
from traincast.step.data_parallelism import LeastTraffic, data_parallel
from traincast.step.layer_cost import PartCosts
from traincast.step.pipeline_stages import Stages, with_load
from traincast.times.process_groups import Placement

CALIBRATED = calibrated()

LLAMA, MIXTRAL, DEEPSEEK = (
    tc.load_model(name) for name in ("llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite")
)
DGX = tc.load_system("dgx-h100")
SLOW = replace(  # a network so slow, and without latency, that time is traffic
    DGX, tiers=tuple(replace(tier, bandwidth=1e3, latency=0.0) for tier in DGX.tiers)
)
EXPOSED = CALIBRATED.with_values(
    {
        "collectives.protocols": False,
        "overlap.dp_contention": 0,
        "overlap.pp_exposed": 1,
        "overlap.tp_exposed": 1,
        "overlap.ep_exposed": 1,
    }
)


def run(model=LLAMA, system=DGX, gbs=64, assumed=CALIBRATED, **knobs):
    return tc.estimate(model, system, tc.Plan(**knobs), gbs=gbs, assumptions=assumed)


def traffic(operations, over, way="forward"):
    """Bytes that ranks of a group pass on for each of their n - 1 partners: an all-reduce passes twice."""
    passes = [getattr(op, way).collectives for op in operations]
    return sum(
        comm.nbytes * (2 if comm.kind == "all-reduce" else 1)
        for comms in passes
        for comm in comms
        if comm.over == over
    )


def test_degree_1_costs_nothing():
    alone = run(gbs=8)
    for component in ("tp_comm", "ep_comm", "dp_comm", "pp_comm", "bubble", "offload_comm", "recomputation"):
        assert alone.breakdown[component] == 0, component
    for choices in (
        {"cp_kind": "ring"},
        {"cp_kind": "ulysses"},
        {"cp_kind": "hybrid"},
        {"cp_kind": "all-gather"},
        {"sp": False},
    ):
        assert run(gbs=8, **choices).step_seconds == alone.step_seconds, choices
    plan = {"tp": 2, "dp": 4}
    assert run(**plan, replicas=1).step_seconds == run(**plan).step_seconds
    assert run(MIXTRAL, **plan, ep=1, etp=1).breakdown["ep_comm"] == 0


def test_sequence_parallelism_moves_the_same_bytes():
    """A reduce-scatter and an all-gather in place of an all-reduce (arXiv 2205.05198, section 4.2.2); 4
    all-reduces of a layer."""
    with_sp, without = (layer(LLAMA, Plans(tp=4.0, sp=sp), CALIBRATED) for sp in (True, False))
    activation_bytes = 2 * LLAMA.seq * LLAMA.hidden  # bytes of an activation
    assert traffic(with_sp, "tp") == traffic(without, "tp") == 2 * 2 * activation_bytes
    assert traffic(without, "tp", "backward") == 2 * 2 * activation_bytes
    # inputs of column-parallel layers are not kept gathered: two all-gathers more (arXiv 2205.05198, section
    # 4.2.2)
    assert traffic(with_sp, "tp", "backward") == (2 * 2 + 2) * activation_bytes
    gathered = layer(LLAMA, Plans(tp=4.0), CALIBRATED.with_values({"memory.saves_gathered": True}))
    assert traffic(gathered, "tp", "backward") == 2 * 2 * activation_bytes


def test_tensor_traffic_of_latent_attention():
    """DeepSeek-V3, dense layer: narrow results are gathered in place of the hidden state before attention.

    Forward 1536 + 576 wide, the projection's result, the MLP's input and result. Backward the gradients of
    these, the narrow inputs of the projections up once more and their gradients (1536 + 512), the MLP's input
    once more.
    """
    model, T = tc.load_model("deepseek-v3"), 2 * tc.load_model("deepseek-v3").seq
    dense = layer(model, Plans(tp=4.0), CALIBRATED, model.kinds[0])
    assert traffic(dense, "tp") == T * (1536 + 576 + 3 * 7168)
    assert traffic(dense, "tp", "backward") == T * (3 * 7168 + 7168 + 2 * (1536 + 512))


@pytest.mark.parametrize(("model", "expected"), [(MIXTRAL, 2), (DEEPSEEK, 4)])
def test_tensor_traffic_around_experts(model, expected):
    """Tokens go to experts from where they are: only attention, and shared experts, gather and scatter."""
    operations = layer(model, Plans(tp=2.0, dp=2.0, ep=2.0), CALIBRATED, model.kinds[-1])
    narrow = 0 if model.latent is None else 512 + 64
    assert traffic(operations, "tp") == 2 * model.seq * (expected * model.hidden + narrow)


def test_expert_traffic():
    """n K rows of the hidden width leave and come back, forward and backward: 4 all-to-alls of a layer."""
    operations = layer(MIXTRAL, Plans(tp=2.0, dp=4.0, ep=8.0), CALIBRATED)
    sent = 2 * MIXTRAL.seq / 2 * 2 * 4096
    for way in ("forward", "backward"):
        assert traffic(operations, "ep", way) == 2 * sent


def test_zero_traffic():
    """ZeRO-1 and -2 move 2 Ψ in a step, ZeRO-3 3 Ψ (arXiv 1910.02054, section 7); ZeRO-2 and -3 for each
    micro-batch."""

    def moved(zero, nm, **knobs):
        knobs = {"grad_dtype": "16-bit"} | knobs
        return run(system=SLOW, gbs=8 * nm, assumed=EXPOSED, dp=8, zero=zero, **knobs).breakdown["dp_comm"]

    assert moved(3, 1) / moved(1, 1) == pytest.approx(3 / 2, rel=1e-3)
    assert moved(2, 1) == moved(1, 1)
    assert moved(0, 1) == pytest.approx(moved(1, 1), rel=1e-3)  # an all-reduce
    assert moved(2, 4) / moved(1, 4) == pytest.approx((1 + 4) / 2, rel=1e-3)
    assert moved(3, 4) / moved(1, 4) == pytest.approx(4 * 3 / 2, rel=1e-3)
    assert moved(1, 4, grad_dtype="fp32") / moved(1, 4) == pytest.approx((1 + 2) / 2, rel=1e-3)
    # HSDP in one node, 2 copies of 4 shards: 2 (3/4) Ψ, and Ψ/4 all-reduced over 2: 2 (1/2) Ψ/4
    assert moved(1, 1, replicas=2) / moved(1, 1) == pytest.approx((2 * 3 / 4 + 1 / 4) / (2 * 7 / 8), rel=1e-3)


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [  # 16 ranks with 1 GB of other weights and 1 GB of experts each; gradients of 16 bits; one node of 16
        ({"ep": 4.0}, 2 * 15 / 16 + 2 * 3 / 4),  # an expert is on 4 ranks
        ({"ep": 16.0}, 2 * 15 / 16),  # on one
        # HSDP: 2 copies, 8 shards of each; an expert on 2 shards of each copy: Ψ/8 and Ψ/2 all-reduced over 2
        ({"ep": 4.0, "replicas": 2.0}, (2 * 7 / 8 + 1 / 8) + (2 * 1 / 2 + 1 / 2)),
        # 8 copies of 2 shards; the 4 holders of an expert shard nothing, and all-reduce
        ({"ep": 4.0, "replicas": 8.0}, (2 * 1 / 2 + 2 * 7 / 8 / 2) + 2 * 3 / 4),
    ],
)
def test_zero_traffic_of_experts(knobs, expected):
    system = replace(SLOW, tiers=(replace(SLOW.tiers[0], size=16), *SLOW.tiers[1:]))
    cost = {"moe": PartCosts(0.0, 0.0, 0.0, weights=5e8, expert_weights=5e8, message=0.0, saved=0.0)}
    plan, layout = (
        Plans(dp=16.0, fast_dp=16.0, grad_dtype="16-bit", **knobs),
        Stages((0.0,), ({"moe": 1.0},), ({"moe": 1.0},), {"moe": 1.0}),
    )
    traffic = data_parallel(cost, layout, Placement(plan, system.tiers), 1.0, system, EXPOSED)
    seconds = traffic.exposed_in_step([1.0])
    assert seconds * system.tiers[0].bandwidth * system.tiers[0].efficiency == pytest.approx(
        1e9 * expected, rel=1e-12
    )


@pytest.mark.parametrize("faster", [1.5, 5.0, 20.0])
def test_traffic_hides_behind_waits_for_the_host(faster):
    """The host launches gpt-125m's kernels no faster, so that on a faster GPU passes hide as much traffic."""
    system, plan = tc.load_system("dgx-h100"), tc.Plan(dp=64, zero=3)
    gpu = system.accelerator
    better = {"matrix_flops": faster * gpu.matrix_flops, "hbm_bandwidth": faster * gpu.hbm_bandwidth}
    slow, fast = (
        tc.estimate("gpt-125m", machine, plan, gbs=64, assumptions="huggingface-eager").step_seconds
        for machine in (system, replace(system, accelerator=replace(gpu, **better)))
    )
    assert fast < slow


def test_copies_slow_down_the_device_that_has_most_of_them():
    """The first stage (fewer layers, embedding) is slowest without copies, the third with them."""
    system = tc.load_system("mi250-node")
    plan = tc.Plan(
        tp=2, cp=2, dp=8, pp=4, mbs=4, vp=2, fast_tp=2, fast_cp=1, fast_pp=1, fast_dp=1, schedule="zb-v",
        offload="activations", order="tp-cp-pp-dp", cp_kind="all-gather",
    )  # fmt: skip
    slow, fast = (
        tc.estimate("pure-kda-300m", machine, plan, gbs=512, assumptions="calibrated").step_seconds
        for machine in (system, system.with_figures({"network.0.bandwidth": 5 * system.tiers[0].bandwidth}))
    )
    assert fast < slow


def test_products_of_muon_stay_on_the_gpu():
    """deepspeedai/DeepSpeed, pull request 7939: momentum is offloaded, Newton-Schulz runs on the GPU."""
    steps = {
        (kind, offload): run(dp=8, optimizer_kind=kind, offload=offload).breakdown["optimizer_step"]
        for kind in ("sgd", "muon")
        for offload in ("none", "optimizer")
    }
    embedding_and_head = (
        2 * LLAMA.vocab * LLAMA.hidden / 8 * 2 * 4
    )  # the second moment, read and written [byte]
    on_gpu, on_host = DGX.accelerator.hbm_bandwidth, CALIBRATED.host.memory_bandwidth
    products = steps["muon", "none"] - steps["sgd", "none"] - embedding_and_head / on_gpu
    assert products > 0
    further = steps["muon", "optimizer"] - steps["sgd", "optimizer"] - embedding_and_head / on_host
    assert further == pytest.approx(products)


def test_overlapped_exchanges_are_exposed_no_more_than_others():
    """Layers that have experts alone leave little work beside the exchange."""
    plan = tc.Plan(dp=32, ep=32, mbs=2, recompute="full")
    plain, overlapped = (
        tc.estimate(
            "nemotron-3-nano", "hgx-h100-roce-8x100", replace(plan, ep_overlap=overlap), gbs=8192,
            assumptions="megatron-core-deepep",
        )
        for overlap in (False, True)
    )  # fmt: skip
    # of 128 micro-batches' passes the first and the last are not overlapped
    assert overlapped.breakdown["ep_comm"] < plain.breakdown["ep_comm"] * (1 + 1 / 128)


def test_experts_of_one_rank_have_no_fused_dispatcher():
    """DeepEP needs several ranks: "DeepEP dispatcher requires TPxEP > 1" (Megatron-Core 0.19.2,
    transformer/moe/token_dispatcher.py). With all experts on every rank permutation and wait are those of the
    dispatcher without it, in columns as alone."""
    model = tc.load_model("qwen3-30b-a3b")
    plans = Plans(
        dp=np.array([64.0, 64.0, 32.0]),
        tp=np.array([1.0, 1.0, 2.0]),
        ep=np.array([1.0, 2.0, 1.0]),
        etp=np.array([1.0, 1.0, 2.0]),
    )
    stacks = ["megatron-core-deepep", "megatron-core-deepep+dispatcher=alltoall"]
    fused, plain = (tc.estimate(model, DGX, plans, gbs=256, assumptions=stack) for stack in stacks)
    assert fused.step_seconds[0] == plain.step_seconds[0]
    assert np.all(fused.step_seconds[1:] < plain.step_seconds[1:])
    one_plan = [run(model, gbs=256, assumed=stack, dp=64).step_seconds for stack in stacks]
    assert one_plan[0] == one_plan[1]


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_context_traffic(cp):
    """Llama 3 8B, 8 heads of keys and values of 128: all-gather and ring move the same keys and values;
    Ulysses exchanges heads."""
    T, kv, q = 2 * LLAMA.seq, 2 * 1024, 4096
    gather = layer(LLAMA, Plans(cp=float(cp), cp_kind="all-gather"), CALIBRATED)
    assert traffic(gather, "cp") == T * kv
    assert traffic(gather, "cp", "backward") == 2 * T * kv
    ring = layer(LLAMA, Plans(cp=float(cp), cp_kind="ring"), CALIBRATED)
    (flash,) = (op for op in ring if op.name == "attention.flash")
    assert traffic(ring, "cp") * cp == T * kv  # of one round; cp - 1 of them
    assert flash.forward.rounds == cp - 1
    ulysses = layer(LLAMA, Plans(cp=float(cp), ulysses=float(cp), cp_kind="ulysses"), CALIBRATED)
    assert traffic(ulysses, "ulysses") == T / cp * (
        2 * q + kv
    )  # queries, keys and values there, the result back


def test_a_ring_overlaps_what_an_all_gather_exposes():
    """In one node: what is passed round hides behind attention; both move the same bytes."""
    for cp in (2, 4, 8):
        ring, gather = (
            run(cp=cp, cp_kind=kind, gbs=8).breakdown["tp_comm"] for kind in ("ring", "all-gather")
        )
        assert 0 <= ring <= gather
        shown = [
            run(system=SLOW, cp=cp, cp_kind=kind, gbs=8, assumed=EXPOSED).breakdown["tp_comm"]
            for kind in ("ring", "all-gather")
        ]
        assert shown[0] == pytest.approx(shown[1], rel=1e-3)


def test_context_parallelism_refuses_what_it_cannot_cut():
    with pytest.raises(tc.InputError, match="tp and ulysses together do not divide the attention heads"):
        run(tp=8, cp=8, cp_kind="ulysses")
    with pytest.raises(tc.InputError, match="ulysses does not divide cp"):
        run(cp=4, ulysses=8, cp_kind="hybrid", gbs=8)
    with pytest.raises(tc.InputError, match="cp > 1: needs cp_kind"):
        tc.Plan(cp=2)
    with pytest.raises(tc.InputError, match="ulysses > 1: needs cp_kind"):
        tc.Plan(cp=2, ulysses=2, cp_kind="ring")
    assert tc.Plan(cp=4, cp_kind="ulysses").ulysses == 4


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"ep": 3, "dp": 3}, "ep does not divide the experts"),
        ({"ep": 8, "dp": 4}, "ep and etp do not divide the ranks of a stage"),
        ({"etp": 4, "tp": 2, "dp": 8}, "etp is above tp"),
        ({"tp": 2, "sp": False}, "experts with tp > 1 need sequence parallelism"),
    ],
)
def test_experts_refuse_what_they_cannot_cut(knobs, reason):
    with pytest.raises(tc.InputError, match=reason):
        run(MIXTRAL, gbs=48, **knobs)
    with pytest.raises(tc.InputError, match=r"it is 1 without experts"):
        run(ep=2, dp=2)


@pytest.mark.parametrize("factor", [1.0, 1.5, 3.0])
def test_imbalance_multiplies_work_and_memory_of_experts(factor):
    uneven = MIXTRAL.with_load(factor)
    for ep, load in ((1.0, 1.0), (4.0, factor)):
        plans = (Plans(dp=8.0, ep=ep), with_load(Plans(dp=8.0, ep=ep), uneven))
        even, loaded = (
            {op.name: op for op in layer(model, plan, CALIBRATED)}
            for model, plan in zip((MIXTRAL, uneven), plans, strict=True)
        )
        for name, op in loaded.items():
            grown = load if name in ("experts.fc1", "experts.swiglu", "experts.fc2") else 1
            assert op.saved_bytes == pytest.approx(grown * even[name].saved_bytes, rel=1e-12), name
            assert op.forward.flops("matrix") == pytest.approx(
                grown * even[name].forward.flops("matrix"), rel=1e-12
            ), name
            assert op.weights == even[name].weights


@pytest.mark.parametrize(("ep", "least", "most"), [(1, 1.0, 1.0), (8, 1.1, 1.2), (64, 1.52, 1.72)])
def test_natural_routing_fills_the_fullest_rank_more_the_more_ranks_there_are(ep, least, most):
    """arXiv 2408.15664, table 2: with a loss for balance the fullest of 64 single experts has 1.52 to 1.72 of
    the mean over a validation set. Ranks of eight experts deviate by 1/√8 of that, and of eight normal
    deviates the largest is 1.42 of them, of 64 2.34. A capacity caps it, and balance by force has none."""
    model = tc.load_model("deepseek-v2-lite")  # 64 experts
    natural = model.with_load("natural")
    load = natural.experts.fullest(ep)
    assert least <= load <= most
    capped = replace(natural, experts=replace(natural.experts, capacity=1.05))
    assert capped.experts.fullest(ep) == min(load, 1.05)
    assert natural.with_load("forced") == model
    assert model.experts.fullest(ep) == 1
    with pytest.raises(tc.InputError, match=r"'even'.*forced, natural"):
        model.with_load("even")


def test_natural_routing_takes_time_and_memory():
    plan = tc.Plan(dp=64, ep=8)
    even, natural = (
        tc.estimate(tc.load_model("qwen3-30b-a3b").with_load(load), DGX, plan, gbs=256)
        for load in ("forced", "natural")
    )
    assert 1 < natural.step_seconds / even.step_seconds < 1.13  # experts and their exchange are a part
    assert natural.memory_bytes > even.memory_bytes


def test_measured_loads_and_capacity():
    """Tokens 8 1 1 1 1 1 1 2 over 4 ranks: the first has 9 of 16, 2.25 times the mean; a capacity of 1.25
    drops the rest."""
    measured = MIXTRAL.with_load((8, 1, 1, 1, 1, 1, 1, 2))
    calm = CALIBRATED.with_values({"host.sync_seconds": 0, "host.expert_dispatch_seconds": 0})

    def took(model):
        return run(model, assumed=calm, dp=8, ep=4).step_seconds

    assert took(measured) == took(MIXTRAL.with_load(2.25))
    capped = replace(measured, experts=replace(measured.experts, capacity=1.25))
    assert took(capped) == took(MIXTRAL.with_load(1.25))
    assert took(capped) < took(measured)


def test_masks_save_time():
    gemma = tc.load_model("gemma-2-9b")
    assert run(gemma, dp=8).step_seconds < run(replace(gemma, local=None), dp=8).step_seconds
    assert run(dp=8).step_seconds < run(replace(LLAMA, causal=False), dp=8).step_seconds
    unskipped = CALIBRATED.with_values({"attention.causal_skipping": 0})
    assert run(dp=8, assumed=unskipped).step_seconds == run(replace(LLAMA, causal=False), dp=8).step_seconds


@pytest.mark.parametrize("recompute", ["selective", "activation", "norms", "mlp", "norms+activation", "full"])
@pytest.mark.parametrize("tp", [1, 8])
def test_recomputation_trades_time_for_memory(recompute, tp):
    plain, recomputed = (run(tp=tp, dp=8 // tp, recompute=choice) for choice in ("none", recompute))
    assert recomputed.memory_bytes < plain.memory_bytes
    assert recomputed.step_seconds > plain.step_seconds
    assert recomputed.step_seconds - plain.step_seconds == pytest.approx(
        recomputed.breakdown["recomputation"], rel=1e-2
    )


def test_recomputed_experts_save_memory_and_cost_time():
    plain, recomputed = (run(MIXTRAL, dp=8, ep=8, recompute=choice) for choice in ("none", "experts"))
    assert recomputed.memory_bytes < plain.memory_bytes
    assert recomputed.step_seconds > plain.step_seconds


def test_recomputed_norms_are_not_gathered_again():
    """The layer behind gathers its input in backward in any case; what is recomputed is local."""
    recomputed = run(tp=8, recompute="norms")
    (norm,) = (row for row in recomputed.operations() if row["operation"] == "mlp.norm")
    assert norm["again_seconds"] == pytest.approx(
        norm["forward_seconds"] - norm["forward_comm_seconds"], rel=1e-9
    )
    assert norm["forward_comm_seconds"] > 0


def test_full_recomputation_leaves_out_embedding_and_head():
    """Layers once more, but not embedding and head (arXiv 2104.04473, equation 3)."""
    full, layers = run(dp=8, recompute="full"), {"dense"}
    assert {row["part"] for row in full.operations() if row["again_seconds"]} == layers
    once = sum(row["forward_seconds"] for row in full.operations() if row["part"] in layers)
    assert full.breakdown["recomputation"] == pytest.approx(32 * 8 * once, rel=1e-9)


def test_recomputing_some_layers_lies_between():
    """Every n-th layer: 1/n of the time, 1/n of what is saved of memory."""
    plain, full, *some = (
        run(dp=8, **knobs)
        for knobs in ({}, *({"recompute": "full", "recompute_every": n} for n in (1, 2, 4)))
    )
    for n, est in zip((2, 4), some, strict=True):
        assert est.breakdown["recomputation"] == pytest.approx(full.breakdown["recomputation"] / n, rel=1e-12)
        less = plain.memory["activations"] - full.memory["activations"]
        assert est.memory["activations"] == pytest.approx(plain.memory["activations"] - less / n, rel=1e-12)


@pytest.mark.parametrize(
    ("choice", "value"),
    [
        ("recompute", "everything"),
        ("recompute", "full+norms"),
        ("recompute", "none+attention"),
        ("offload", "none+optimizer"),
        ("offload", "gradients"),
        ("zero", 4),
        ("precision", "int4"),
        ("grad_dtype", "fp8"),
        ("optimizer_kind", "sophia"),
        ("schedule", "zb"),
        ("order", "pp-tp"),
    ],
)
def test_unknown_words_are_refused(choice, value):
    with pytest.raises(tc.InputError, match=f"{choice} = "):
        tc.Plan(**{choice: value})
    with pytest.raises(tc.InputError, match="recompute_every > 1: needs recompute full"):
        tc.Plan(recompute_every=2)


def test_every_fourth_layer_is_offloaded():
    """cpu_offloading_num_layers = layers / 4: three of four layers stay, two more are on the device.

    The host's link is so slow that a copy outlasts the four layers it hides behind.
    """
    narrow = replace(DGX, accelerator=replace(DGX.accelerator, host_bandwidth=1e9))
    plain, moved, some = (
        run(system=narrow, dp=8, **knobs)
        for knobs in ({}, *({"offload": "activations", "offload_every": n} for n in (1, 4)))
    )
    on_two_layers = moved.memory["activations"]
    staying = plain.memory["activations"] * 3 / 4
    assert some.memory["activations"] == pytest.approx(staying + on_two_layers, rel=1e-12)
    passes = sum(moved.breakdown[name] for name in ("compute", "exposed_memory"))
    copies = moved.breakdown["offload_comm"] + passes  # every copy outlasts the pass of its layer
    assert some.breakdown["offload_comm"] == pytest.approx(copies / 4 - passes, rel=0.05)


@pytest.mark.parametrize("what", ["optimizer", "activations", "weights", "optimizer+activations+weights"])
def test_offload_trades_time_for_memory(what):
    narrow = replace(DGX, accelerator=replace(DGX.accelerator, host_bandwidth=1e9))
    plain, moved = (run(system=narrow, dp=2, offload=choice) for choice in ("none", what))
    assert moved.memory_bytes < plain.memory_bytes
    assert moved.step_seconds > plain.step_seconds
    wide = run(dp=2, offload=what)
    assert wide.step_seconds < moved.step_seconds
    without = replace(DGX, accelerator=replace(DGX.accelerator, host_bandwidth=None))
    with pytest.raises(tc.InputError, match="host_bandwidth"):
        run(system=without, dp=2, offload=what)


def test_the_optimizer_by_hand():
    """States of 12 bytes and the master copy read and written, fp32 gradients read for clipping and for the
    step, weights written.

    8.03 B parameters over 8 ranks: 2 x 12 + 2 x 4 + 2 bytes each.
    """
    model = replace(LLAMA, vocab=128 * 1024)
    seconds = run(model, dp=8, grad_dtype="fp32").breakdown["optimizer_step"]
    assert seconds == pytest.approx(model.parameters / 8 * 34 / DGX.accelerator.hbm_bandwidth, rel=1e-12)
    assert run(model, dp=8, grad_dtype="fp32", zero=0).breakdown["optimizer_step"] == pytest.approx(
        8 * seconds, rel=1e-12
    )


def test_the_offloaded_optimizer_by_hand():
    """Gradients of 4 bytes go to the host, weights of 2 come back; the host moves the states of 34 bytes.

    The first two lie on the link to the host, so a link of twice the rate halves them and nothing else.
    """
    model = replace(LLAMA, vocab=128 * 1024)
    link = DGX.accelerator.host_link
    seconds = [
        run(
            model,
            replace(DGX, accelerator=replace(DGX.accelerator, host_bandwidth=rate)),
            dp=8,
            grad_dtype="fp32",
            offload="optimizer",
        ).breakdown["optimizer_step"]
        for rate in (link, 2 * link)
    ]
    updated = model.parameters / 8
    assert seconds[0] - seconds[1] == pytest.approx(updated * (4 + 2) / link / 2, rel=1e-9)
    on_host = updated * 34 / CALIBRATED.host.memory_bandwidth
    assert seconds[0] == pytest.approx(updated * (4 + 2) / link + on_host, rel=1e-9)


def test_the_least_traffic_of_zero_3_by_hand():
    """Weights are gathered for both passes, gradients reduced once (arXiv 1910.02054, section 7).

    A bound with more gathers than that would drop the best plan from a search.
    """
    assumed = CALIBRATED.with_values({"overlap.dp_contention": 0.5, "memory.accumulates_whole": False})
    least = LeastTraffic(gathered=[3.0, 1.0], reduced=[2.0, 1.0])
    assert least.contention_time(Plans(zero=3), 4.0, assumed) == 0.5 * (2 * 4 * 3 + 4 * 2)
    assert least.contention_time(Plans(zero=1), 4.0, assumed) == 0.5 * (3 + 2)


def test_muon_by_hand():
    """5 iterations of 4 m²n + 2 m³ FLOP for each m x n matrix, m <= n (Jordan et al. 2024): attention, MLP.

    Adam steps embedding and head, with two moments (there too; Megatron-Core 0.19.2, emerging_optimizers.py).
    """
    e, f, kv, vocab = 4096, 14336, 1024, 128 * 1024
    model = replace(LLAMA, vocab=vocab)
    matrices = [(e, e + 2 * kv), (e, e), (e, 2 * f), (e, f)] * 32
    work = sum(5 * (4 * m**2 * n + 2 * m**3) for m, n in matrices) / 8
    gpu = DGX.accelerator
    moved = model.parameters / 8 * (2 * (4 + 4) + 2 * 4 + 2)  # master copy and one momentum, as for Adam
    moved += (2 * e * vocab + e) / 8 * 2 * 4  # the second moment of embedding, head and its norm
    seconds = run(model, dp=8, grad_dtype="fp32", optimizer_kind="muon").breakdown["optimizer_step"]
    assert seconds == pytest.approx(
        work / (CALIBRATED.kernels.matrix_efficiency * gpu.matrix_flops) + moved / gpu.hbm_bandwidth,
        rel=1e-12,
    )


def test_kinds_of_layers_send_one_message():
    """DeepSeek-V2-Lite's dense and expert layers hand on the same activation: b s e of 16 bits."""
    est = run(DEEPSEEK, pp=2, gbs=8, assumed=EXPOSED, fast_pp=2)
    fast = DGX.tiers[0]
    hop = fast.latency + 2 * DEEPSEEK.seq * DEEPSEEK.hidden / (fast.bandwidth * fast.efficiency)
    assert est.breakdown["pp_comm"] == pytest.approx(8 * 2 * hop, rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_data_parallel_communication_without_overlap_is_exposed_in_full(zero):
    """As much as with software that overlaps none of it, and more than with the overlap."""
    model, system, software = tc.load_model("llama-3-8b"), tc.load_system("dgx-h100"), tc.Assumptions()
    plan = tc.Plan(tp=2, dp=32, zero=zero)

    def exposed(plan, assumptions=software):
        return tc.estimate(model, system, plan, gbs=256, assumptions=assumptions).breakdown["dp_comm"]

    without = replace(software, overlap=replace(software.overlap, dp_window=0.0))
    assert exposed(plan) < exposed(replace(plan, dp_overlap=False)) == exposed(plan, without)
