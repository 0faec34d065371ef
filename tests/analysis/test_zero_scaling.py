"""The scaling of ZeRO: formulas by hand, the source's table and findings, and what must hold of any case.

The source is Cheng et al., SIGMETRICS 2024, doi 10.1145/3639034.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traincast as tc
from traincast.analysis import zero_formulas
from traincast.catalog.software_stacks import calibrated
from traincast.core.assumptions import PAPER
from traincast.times.collectives import collective
from traincast.times.process_groups import Group
from traincast.ui.cli.main import main

CALIBRATED = calibrated()

SHARES = st.floats(0.01, 0.99)
GPUS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 64, 100, 512])
POLARIS = tc.load_system("polaris")
P13 = 12 * 5120**2 * 40


# Formulas of the source (doi 10.1145/3639034), which the estimates of operations and collectives are to meet.
def parameters(l, d):
    """Return the weights of l layers of width d: P = 12 d² l (section 2 of the source)."""
    return 12 * d**2 * l


def iteration_flops(b, s, d, l):
    """Return the FLOPs of an iteration, forward and backward: b (72 s d² + 12 s² d) l [FLOP]."""
    return b * (72 * s * d**2 + 12 * s**2 * d) * l


def traffic(kind, P, p):
    """Return what each of p GPUs sends of P parameters: 4 (1 − 1/p) P in an all-reduce, else half [byte]."""
    return (4 if kind == "all-reduce" else 2) * (1 - 1 / p) * P


def all_reduce_seconds(P, bandwidth, eff):
    """Return t_AllReduce(p) = 4 P/(BW(g) eff(g→p)); an all-gather takes half of it [s].

    BW(g) is the bandwidth of g GPUs [byte/s], of which the source takes 8; eff(g→p) the network's efficiency
    from g to p GPUs.
    """
    return 4 * P / (bandwidth * eff)


def stages(*args, **kwargs):
    return tc.scaling(*args, **kwargs)[1]


@pytest.mark.parametrize(
    ("name", "shape", "tflop"),
    [  # layers, hidden, heads, sequence; TFLOP of a sequence: the source's table
        ("125m", (12, 768, 12, 1024), 0.6),
        ("1.3b", (24, 2064, 24, 1024), 8.2),
        ("2.7b", (32, 2560, 32, 1024), 16.5),
        ("6.7b", (32, 4096, 32, 1024), 41.2),
        ("13b", (40, 5120, 40, 1024), 79.9),
        ("18.4b", (40, 6144, 48, 1024), 114.4),
    ],
)
def test_the_sources_table_of_models(name, shape, tflop):
    model = tc.load_model(f"gpt-{name}")
    assert (model.layers, model.hidden, model.heads, model.seq) == shape
    l, d, _, s = shape
    assert round(iteration_flops(1, s, d, l) / 1e12, 1) == tflop
    asked, _ = tc.scaling(model, "polaris", [8], mbs=3)
    assert asked.flops == pytest.approx(iteration_flops(3, s, d, l), rel=1e-14)
    assert pytest.approx(parameters(l, d), rel=2e-3) == asked.P  # norms and biases are none of the formula


@pytest.mark.parametrize(
    ("name", "node", "nic_gb", "hbm_gb", "hbm_gbs", "mesh"),
    [
        ("polaris", 4, 25, 40, 1555, True),
        ("tg40", 8, 200, 40, 1555, False),
        ("tg80", 8, 200, 80, 2039, False),
    ],
)
def test_the_sources_table_of_machines(name, node, nic_gb, hbm_gb, hbm_gbs, mesh):
    system = tc.load_system(name)
    assert (system.fast_domain, system.fast.mesh) == (node, mesh)
    assert (system.accelerator.hbm_bytes, system.accelerator.hbm_bandwidth) == (hbm_gb * 1e9, hbm_gbs * 1e9)
    assert system.slow.bandwidth * system.slow.ports * node == nic_gb * 1e9
    assert system.fast.bandwidth == 12 * 25e9  # 12 NVLinks


def test_formulas_by_hand():
    assert parameters(2, 10) == 2400
    assert iteration_flops(2, 3, 10, 5) == 2 * (72 * 3 * 100 + 12 * 9 * 10) * 5
    whole = zero_formulas.activation_bytes(2, 3, 10, 5) + zero_formulas.score_bytes(2, 3, 4, 5)
    assert whole == 2 * (34 * 3 * 10 + 5 * 4 * 9) * 5
    assert [traffic(kind, 100, 4) for kind in ("all-reduce", "all-gather", "reduce-scatter", "reduce")] == [
        300,
        150,
        150,
        150,
    ]
    assert all_reduce_seconds(100, 50, 0.5) == 16
    assert zero_formulas.compute_seconds(61.005, 10) == pytest.approx(10)  # 0.83 · 0.735 = 0.61005
    assert zero_formulas.speedup(0.5, 0.5, 0.5) == pytest.approx(1 / 1.5)
    assert [zero_formulas.state_bytes(stage, 1, 4) for stage in (1, 2, 3)] == [
        4 + 12 / 4,
        2 + 14 / 4,
        16 / 4,
    ]  # arXiv 1910.02054


@pytest.mark.parametrize(("stage", "sixths"), [(1, 6), (2, 4), (3, 6)])
def test_bytes_of_a_stage(stage, sixths):
    """All-reduce 4 P and all-gather 2 P; reduce and all-gather; three times 2 P."""
    assert sum(traffic(kind, 1, 2) for kind in zero_formulas.collectives(stage)) == sixths / 2


def test_times_are_the_main_models_all_reduce():
    """ZeRO-1 is one and a half all-reduces of 26 buckets, ZeRO-3 of 40 layers; BW(8) is 4 P over the time of
    8 GPUs.
    """
    where = Group(np.array([8.0, 512.0]), (np.array([4.0, 4.0]),))
    for stage, messages in ((1, 26), (3, 40)):
        whole = messages * collective("all-reduce", 2 * P13 / messages, where, POLARIS, CALIBRATED)
        seconds = zero_formulas.network_seconds(stage, P13, 40, where.members, POLARIS, CALIBRATED)
        assert seconds == pytest.approx(1.5 * whole, rel=1e-14)
        by_formula = all_reduce_seconds(P13, 4 * P13 / whole[0], whole[0] / whole[1])
        assert by_formula == pytest.approx(whole[1], rel=1e-14)


def test_reduce_to_the_owner_by_hand():
    """Without protocols: 512 reduces pass 2 P over 17.5 GB/s, each with 384 hops of 2.5 us and 127 of 5 us;
    then the all-gather.
    """
    seconds = zero_formulas.network_seconds(2, P13, 40, 512.0, POLARIS, PAPER)
    reduces = 2 * P13 / 17.5e9 + 512 * (384 * 2.5e-6 + 127 * 5e-6)
    all_reduce = 2 * 511 / 512 * 2 * P13 / 17.5e9 + 26 * (384 * 2.5e-6 + 127 * 5e-6)
    assert seconds == pytest.approx(reduces + all_reduce / 2, rel=1e-12)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("assumed", [PAPER, CALIBRATED])
def test_one_gpu_has_no_communication(stage, assumed):
    assert zero_formulas.network_seconds(stage, P13, 40, 1.0, POLARIS, assumed) == 0


@given(st.sampled_from([1, 2, 3]), st.lists(GPUS, min_size=1, max_size=5), st.floats(1e6, 1e12))
def test_a_scalar_equals_its_row_of_a_column(stage, gpus, weights):
    column = zero_formulas.network_seconds(stage, weights, 24, np.array(gpus, float), POLARIS, CALIBRATED)
    assert column.tolist() == [
        float(zero_formulas.network_seconds(stage, weights, 24, float(n), POLARIS, CALIBRATED)) for n in gpus
    ]


@pytest.mark.parametrize(
    ("gpus", "near"),
    [(512, (8, 64)), (48, (8, 48)), (12, (6, 12)), (100, (5, 50)), (11, (1, 11)), (7, (7, 7)), (1, (1, 1))],
)
def test_domains_are_filled_evenly(gpus, near):
    """Nodes of 8 in pods of 64: the largest divisor of the job that a node holds, and its largest multiple
    that a pod holds.
    """
    first, last = POLARIS.tiers
    three = replace(POLARIS, tiers=(replace(first, size=8), replace(last, name="pod", size=64), last))
    members, within = zero_formulas._group(np.array(float(gpus)), three)
    assert (float(members), tuple(float(members) for members in within)) == (gpus, near)


@given(SHARES, SHARES, SHARES)
def test_speedup_grows_with_the_networks_efficiency_and_falls_with_its_share(share, eff, other):
    low, high = sorted((eff, other))
    assert zero_formulas.speedup(1 - share, share, low) <= zero_formulas.speedup(1 - share, share, high) <= 1
    assert zero_formulas.speedup(1 - share, share, 1.0) == pytest.approx(1)
    assert zero_formulas.speedup(1 - low, low, eff) >= zero_formulas.speedup(1 - high, high, eff)


@given(SHARES, SHARES)
def test_the_efficiency_that_is_enough_reaches_the_target(share, target):
    enough = zero_formulas.sufficient_efficiency(1 - share, share, target)
    assert zero_formulas.speedup(1 - share, share, enough) == pytest.approx(target, rel=1e-9)


@given(st.sampled_from([1, 2, 3]), GPUS, st.floats(1, 100))
def test_a_faster_network_is_never_slower(stage, n, factor):
    faster = POLARIS.with_figures({"network.1.bandwidth": POLARIS.slow.bandwidth * factor})
    before, after = (
        zero_formulas.network_seconds(stage, P13, 40, float(n), system, CALIBRATED)
        for system in (POLARIS, faster)
    )
    assert after <= before


def test_efficiency_is_the_speedup_of_its_shares():
    for stage in stages("gpt-13b", "polaris", [8, 64, 512]):
        share = stage.comm_share[0]
        assert stage.efficiency == pytest.approx(
            zero_formulas.speedup(1 - share, share, stage.network_efficiency), rel=1e-12
        )


def test_a_measured_share_and_a_measured_curve_take_the_place_of_the_network():
    (stage,) = stages("gpt-13b", "polaris", [64, 8], [3], comm_share=0.6902, efficiency={64: 0.8}, target=0.9)
    assert stage.gpus.tolist() == [8, 64]
    assert stage.comm_share[0] == pytest.approx(0.6902)
    assert stage.efficiency[1] == pytest.approx(1 / (0.3098 + 0.6902 / 0.8))
    assert stage.needed_efficiency == pytest.approx(0.6902 / (1 / 0.9 - 0.3098))
    assert stage.bandwidth is None  # a curve says nothing of bandwidths


@pytest.mark.parametrize("share", [None, 0.3])
def test_the_bandwidth_that_is_enough_meets_the_target(share):
    """The same case on a system with that bandwidth takes as long as the target allows."""
    asked, result = tc.scaling("gpt-13b", "polaris", [8, 512], [1, 3], mbs=8, target=0.8, comm_share=share)
    for stage in result:
        factor = stage.bandwidth[1] / asked.node_bandwidth
        faster = POLARIS.with_figures({"network.1.bandwidth": POLARIS.slow.bandwidth * factor})
        now, then = (
            zero_formulas.network_seconds(stage.zero, asked.P, 40, 512.0, system, CALIBRATED)
            for system in (POLARIS, faster)
        )
        seconds = stage.compute + stage.comm[1] * float(then / now)
        assert seconds == pytest.approx(stage.seconds[0] / 0.8, rel=1e-6)


def test_where_no_network_is_used_and_where_none_is_enough():
    (stage,) = stages("gpt-13b", "polaris", [1, 4, 64], [3], mbs=8, target=0.93)
    assert stage.bandwidth[:2].tolist() == [0, 0]  # inside a node
    assert np.isnan(
        stages("gpt-13b", "polaris", [8, 512], [2], target=0.9)[0].bandwidth[1]
    )  # latency of 512 reduces
    assert np.isnan(stage.network_efficiency).all()
    assert stage.needed_efficiency is None
    assert stage.rows()[2].network_efficiency is None


def test_dispatch_lengthens_compute_only():
    (slow,), (fast,) = (stages("gpt-125m", "polaris", [8], [1], k1=k1, k2=1) for k1 in (0.05, 1))
    assert slow.compute == pytest.approx(
        20 * fast.compute
    )  # about 95 % of a small model's compute time is dispatch
    assert slow.comm.tolist() == fast.comm.tolist()


def test_findings_that_are_met():
    """ZeRO-1 falls to about 89 % on 512 GPUs, ZeRO-2 collapses, ZeRO-3 is lower than ZeRO-1; the 1.3B falls
    to about 80 %.
    """
    for name in ("gpt-1.3b", "gpt-6.7b", "gpt-13b"):
        for mbs in (1, 4, 8):
            efficiencies = [stage.efficiency[1] for stage in stages(name, "polaris", [8, 512], mbs=mbs)]
            assert efficiencies[0] == pytest.approx(0.89, abs=0.04)
            assert efficiencies[1] < efficiencies[2] - 0.2
            assert 0.79 < efficiencies[2] < efficiencies[0]
    assert stages("gpt-1.3b", "polaris", [8, 512], [3])[0].efficiency[1] == pytest.approx(0.80, abs=0.01)


def test_polaris_against_tg40():
    """The source: communication 7.35 times, iteration 2.45 times, 69.02 % against 26.7 %; within 7 %, 16 %
    and 5.1 points.
    """
    (polaris,), (tg40,) = (stages("gpt-13b", name, [64], [1]) for name in ("polaris", "tg40"))
    ratio = polaris.comm[0] / tg40.comm[0]
    longer = 1 / zero_formulas.speedup(1 - 0.267, 0.267, 1 / ratio)
    assert ratio == pytest.approx(7.35, rel=0.07)
    assert longer == pytest.approx(2.45, rel=0.16)
    assert 0.267 * ratio / longer == pytest.approx(0.6902, abs=0.051)


def test_wrong_arguments():
    with pytest.raises(tc.InputError, match="a list of whole numbers"):
        tc.scaling("gpt-13b", "polaris", 8)
    with pytest.raises(tc.InputError, match="at least one"):
        tc.scaling("gpt-13b", "polaris", [])
    columns = POLARIS.with_figures({"network.1.bandwidth": np.array([1e9, 2e9])})
    with pytest.raises(tc.InputError, match="one machine"):
        tc.scaling("gpt-13b", columns, [8])
    with pytest.raises(tc.InputError, match="experts"):
        tc.scaling(replace(tc.load_model("mixtral-8x7b"), name="mine"), "polaris", [8])


def test_efficiency_inside_one_node_and_beyond():
    """TG40 is near-linear in the source; 8 of its GPUs are one node, so that only 16 are a start."""
    request, (stage,) = tc.scaling("gpt-1.3b", "tg40", gpus=[8, 16, 64], zero=[1])
    assert request.mixes_networks
    assert np.isnan(stage.outer_efficiency[0])
    assert stage.outer_efficiency[1] == 1
    assert stage.outer_efficiency[2] > 0.95 > stage.efficiency[2]
    assert not tc.scaling("gpt-1.3b", "polaris", gpus=[8, 512], zero=[1])[0].mixes_networks


def test_kernels_by_class():
    """Table 6 of the source has no total of classes; here they are all of the kernels, most of it GEMMs."""
    request, _ = tc.scaling("gpt-13b", "polaris", [8])
    shares = {row.name: row.seconds_share for row in request.kernel_classes}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["contractions"] > 0.8 > shares["element-wise"] + shares["normalisations"]


def test_dispatch_falls_as_models_grow():
    """The source: about 95 % of small models' compute time, falling as models grow."""
    shares = [
        tc.scaling(f"gpt-{size}", "polaris", gpus=[8], k1=None)[0].k1 for size in ("125m", "1.3b", "13b")
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.3
    assert shares[-1] > 0.9
    with pytest.raises(tc.InputError, match="know no launches"):
        tc.scaling("gpt-1.3b", "polaris", gpus=[8], k1=None, assumptions="paper")


def test_activations_of_the_estimator_are_the_sources():
    """Unfused, nothing recomputed: (34 s d + 5 a s²) l bytes of a sequence, on one rank."""
    est = tc.estimate("gpt-13b", "tg80", tc.Plan(attention="unfused"), gbs=1, assumptions="paper")
    model = est.model
    kept = zero_formulas.activation_bytes(1, model.seq, model.hidden, model.layers)
    scores = zero_formulas.score_bytes(1, model.seq, model.heads, model.layers)
    assert float(est.memory["activations"]) == pytest.approx(kept + scores, rel=1e-3)


def test_a_model_has_its_own_parameters_and_activations_of_fused_attention(capsys):
    """Llama 3 70B has 70.55 G parameters (arXiv 2407.21783); 34 s d l bytes are 170 GiB of one sequence."""
    main(["scaling", "--model", "llama-3-70b", "--system", "dgx-h100", "--gpus", "8,64,512"])
    out = " ".join(capsys.readouterr().out.split())
    assert "llama-3-70b (70.55 G parameters)" in out
    assert "attention fused: 170.0 GiB of the memory" in out
    assert "not fused, the source's, saves 1,600.0 GiB more" in out
    assert "on 512 GPUs 512 of 275.6 MB instead of 142 buckets" in out


def test_a_fall_of_zero_2_is_explained_only_where_its_messages_are_more_than_buckets(capsys):
    """12.58 G parameters in buckets of 5e8 are 26, more than 16 GPUs and fewer than 512."""
    asked = ["scaling", "--model", "gpt-13b", "--system", "polaris", "--zero"]
    main([*asked, "1,2", "--gpus", "8,16"])
    assert "owner" not in capsys.readouterr().out
    main([*asked, "1", "--gpus", "8,512"])
    assert "owner" not in capsys.readouterr().out
    main([*asked, "2", "--gpus", "8,512"])
    assert "512 of 49.16 MB instead of 26 buckets" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("name", "copies"), [("polaris", 24.6), ("tg40", 26.1), ("tg80", 26.2)])
def test_copies_to_the_host_are_the_sources(name, copies):
    assert tc.load_system(name).accelerator.host_bandwidth == copies * 1e9
