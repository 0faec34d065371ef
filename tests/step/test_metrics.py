"""Metrics of an estimate: hand values, missing figures, and columns."""

from dataclasses import fields, replace

import numpy as np
import pytest

import traincast as tc
from traincast.step.model_flops import CONVENTIONS, hardware_flops_per_token, model_flops_per_token
from traincast.step.run_metrics import FORMULAS, Metrics, mean_power

MODEL = tc.Model(name="small", layers=8, hidden=2048, heads=16, ffn=8192, seq=2048, vocab=32000, causal=True)
CHIP = tc.Accelerator(
    name="chip",
    matrix_flops=312e12,
    vector_flops=78e12,
    hbm_bandwidth=2e12,
    hbm_bytes=80e9,
    fp8_flops=624e12,
    power=400.0,
)
MACHINE = tc.System(
    name="by hand",
    accelerator=CHIP,
    tiers=(
        tc.Tier(name="links", bandwidth=300e9, efficiency=0.7, latency=2.5e-6, size=8),
        tc.Tier(name="network", bandwidth=25e9, efficiency=0.7, latency=5e-6),
    ),
    price=2.0,
    node_power=800.0,
    pue=1.25,
    carbon=400.0,
    failure_hours=50_000.0,
    storage_bandwidth=100e6,
)
BARE = replace(
    MACHINE,
    accelerator=replace(CHIP, power=None),
    **dict.fromkeys(("price", "node_power", "carbon", "failure_hours", "storage_bandwidth")),
)
PLAN = tc.Plan(tp=4, dp=4, mbs=2, fast_tp=4, fast_dp=2)
TOKENS = 1e12


@pytest.fixture(scope="module")
def est():
    return tc.estimate(MODEL, MACHINE, PLAN, gbs=64)


def test_throughput_and_utilisation(est):
    metrics = tc.metrics(est)
    rate = 64 * 2048 / est.step_seconds
    assert metrics.tokens_per_second == pytest.approx(rate)
    assert (
        metrics.tokens_per_second_per_gpu
        == pytest.approx(rate / 16)
        == pytest.approx(est.tokens_per_second_per_gpu)
    )
    for convention in CONVENTIONS:
        flops = model_flops_per_token(MODEL, convention) * rate / 16
        assert metrics.flops_per_second_per_gpu[convention] == pytest.approx(flops)
        assert metrics.mfu[convention] == pytest.approx(flops / 312e12)
        assert metrics.hfu[convention] == pytest.approx(metrics.mfu[convention])  # nothing is recomputed


IN_FULL = {"power.streaming": 1.0, "power.waiting": 1.0, "power.host": 1.0}


def test_money_energy_and_carbon(est):
    """1e12 tokens are 7,629,394.53 steps of 64 × 2048; 16 GPUs at 2 $/h; 800 W × 1.25 = 1 kW per GPU; 0.4 kg
    per kWh."""
    est = replace(est, assumptions=est.assumptions.with_values(IN_FULL))
    metrics = tc.metrics(est, tokens=TOKENS)
    hours = 7_629_394.53125 * est.step_seconds / 3600
    assert metrics.steps == 7_629_394.53125
    assert metrics.days == pytest.approx(hours / 24)
    assert metrics.gpu_hours == pytest.approx(16 * hours)
    assert metrics.cost == pytest.approx(32 * hours)
    assert metrics.energy_kwh == pytest.approx(16 * hours)
    assert metrics.carbon_kg == pytest.approx(6.4 * hours)
    assert tc.metrics(est, tokens=TOKENS, price=3.0).cost == pytest.approx(48 * hours)
    alone = replace(est, system=replace(MACHINE, node_power=None))
    assert tc.metrics(alone, tokens=TOKENS).energy_kwh == pytest.approx(8 * hours)  # 400 W × 1.25


def test_mean_power_by_hand(est):
    """400 W while it computes, half while it streams, a quarter while it waits; half of the node's 400 W."""
    drawn = est.assumptions.with_values({"power.streaming": 0.5, "power.waiting": 0.25, "power.host": 0.5})
    spent, seconds = est.breakdown, est.step_seconds
    computing = spent["compute"] + spent["recomputation"]
    streaming = spent["exposed_memory"]
    active = computing + 0.5 * streaming + 0.25 * (seconds - computing - streaming)
    assert mean_power(replace(est, assumptions=drawn)) == pytest.approx(400 * active / seconds + 200)
    limited = replace(MACHINE, accelerator=replace(MACHINE.accelerator, power_limit=300.0))
    power = mean_power(replace(est, assumptions=drawn, system=limited))
    assert power == pytest.approx(300 * active / seconds + 200)
    small = replace(MACHINE, node_power=MACHINE.accelerator.power)  # nothing around the accelerator
    power = mean_power(replace(est, assumptions=drawn, system=small))
    assert power == pytest.approx(400 * active / seconds)
    in_full = replace(est, assumptions=est.assumptions.with_values(IN_FULL))
    assert mean_power(in_full) == pytest.approx(800)
    assert mean_power(est) < 800


def test_a_run_that_never_restarts_in_time_has_no_length():
    """exp(-R/M) is 0 in double precision above some 745 times M, here 50 h / 16."""
    frail = tc.estimate(MODEL, replace(MACHINE, failure_hours=50.0), PLAN, gbs=64)
    metrics = tc.metrics(frail, tokens=1e12, restart_seconds=1e7)
    assert (metrics.goodput, metrics.effective_days) == (0, None)
    assert metrics.missing["effective_days"] == ("time to train between failures",)
    assert metrics.days > 0


def test_goodput(est):
    """50,000 h / 16 between failures; 14 bytes per parameter at 16 × 100 MB/s."""
    metrics = tc.metrics(est, tokens=TOKENS, restart_seconds=600)
    m = 50_000 * 3600 / 16
    c = 14 * MODEL.parameters / 1.6e9
    tau = (2 * c * m) ** 0.5
    assert metrics.mtbf_seconds == m
    assert metrics.checkpoint_bytes == 14 * MODEL.parameters
    assert metrics.checkpoint_seconds == pytest.approx(c)
    assert metrics.checkpoint_interval == pytest.approx(tau)
    assert metrics.goodput == pytest.approx(tau / m / (np.exp(600 / m) * (np.exp((tau + c) / m) - 1)))
    assert metrics.effective_days == pytest.approx(metrics.days / metrics.goodput)
    assert metrics.checkpoint_stall == pytest.approx(est.step_seconds * c / tau)
    assert metrics.missing == {}
    given = tc.metrics(est, restart_seconds=600, checkpoint_seconds=5.0, checkpoint_interval=1800.0)
    assert (given.checkpoint_seconds, given.checkpoint_interval) == (5.0, 1800.0)
    assert given.goodput > 0.99


def test_the_length_of_a_run_is_the_models_where_it_has_one(est):
    known = replace(est, model=replace(MODEL, training_sequences=1e6))
    assert tc.metrics(known).days == pytest.approx(known.training_days)


def test_unknown_metrics_are_none_and_named(est):
    metrics = tc.metrics(replace(est, system=BARE))
    unknown = {field.name for field in fields(Metrics) if getattr(metrics, field.name) is None}
    assert unknown == set(metrics.missing)
    assert unknown == {name for name, _, _ in FORMULAS} - {"tokens_per_second"}
    assert metrics.missing["cost"] == (
        "tokens (or the model's training_sequences)",
        "price (or the system's)",
    )
    assert metrics.missing["carbon_kg"][1:] == (
        "the system's node_power (or accelerator.power)",
        "the system's carbon",
    )
    assert metrics.missing["goodput"] == (
        "the system's storage_bandwidth (or checkpoint_seconds)",
        "the system's failure_hours",
        "restart_seconds",
    )


def test_utilisation_is_of_the_peak_at_the_runs_precision(est):
    half = tc.metrics(est).mfu["megatron"]
    assert tc.metrics(replace(est, plan=replace(PLAN, precision="fp8"))).mfu["megatron"] == pytest.approx(
        half / 2
    )
    metrics = tc.metrics(replace(est, plan=replace(PLAN, precision="nvfp4")))
    assert metrics.mfu is None
    assert metrics.missing["mfu"] == metrics.missing["hfu"] == ("the accelerator's fp4 peak",)
    with pytest.raises(tc.InputError, match="unknown precision 'bf17'"):
        tc.metrics(replace(est, plan=replace(PLAN.columns(), precision="bf17")))


def test_hardware_utilisation_counts_recomputation(est):
    for recompute in ("selective", "full"):
        metrics = tc.metrics(replace(est, plan=replace(PLAN, recompute=recompute)))
        ratio = hardware_flops_per_token(MODEL, recompute) / model_flops_per_token(MODEL)
        assert metrics.hfu["megatron"] / metrics.mfu["megatron"] == pytest.approx(ratio)
    for nothing in ("norms", "norms+activation"):  # no product among them
        assert tc.metrics(replace(est, plan=replace(PLAN, recompute=nothing))).hfu == tc.metrics(est).mfu
    for choices in ({"recompute": "mlp"}, {"recompute": "full", "recompute_every": 2}):
        metrics = tc.metrics(replace(est, plan=replace(PLAN, **choices)))
        assert metrics.hfu is None
        assert metrics.missing["hfu"] == (f"FLOPs of recompute {choices['recompute']}",)


def test_checkpoint_size_follows_precision_and_optimizer(est):
    """Bytes per parameter: weights, master copy and states, without gradients."""
    checkpoint_bytes = {
        ("bf16", "adam"): 2 + 4 + 8,
        ("bf16-pure", "adam-bf16"): 2 + 4,
        ("bf16", "sgd"): 2 + 4 + 4,
        ("fp32", "adam"): 4 + 8,
    }
    for (precision, optimizer), each in checkpoint_bytes.items():
        plan = replace(PLAN, precision=precision, optimizer_kind=optimizer)
        assert tc.metrics(replace(est, plan=plan)).checkpoint_bytes == each * MODEL.parameters, plan
        assert tc.metrics(replace(est, plan=plan.columns())).checkpoint_bytes == each * MODEL.parameters, plan


def test_columns_equal_single_plans():
    plans = tc.Plans(
        tp=np.array([2.0, 4.0]), dp=np.array([8.0, 4.0]), mbs=2.0, fast_tp=np.array([2.0, 4.0]), fast_dp=2.0
    )
    metrics = tc.metrics(tc.estimate(MODEL, MACHINE, plans, gbs=64), tokens=TOKENS, restart_seconds=600)
    for i in range(2):
        alone = tc.metrics(
            tc.estimate(MODEL, MACHINE, plans.row(i), gbs=64), tokens=TOKENS, restart_seconds=600
        )
        for name in ("tokens_per_second", "days", "cost", "energy_kwh", "goodput", "effective_days"):
            assert np.broadcast_to(getattr(metrics, name), 2)[i] == pytest.approx(getattr(alone, name)), name
        assert metrics.mfu["palm"][i] == pytest.approx(alone.mfu["palm"])


def test_figures_that_cannot_be_are_refused(est):
    with pytest.raises(tc.InputError) as caught:
        tc.metrics(est, tokens=-1.0, price=float("nan"), restart_seconds=0.0, checkpoint_seconds=0.0)
    assert caught.value.problems == (
        "tokens = -1.0: must be a finite number above 0",
        "price = nan: must be a finite number of at least 0",
        "checkpoint_seconds = 0.0: must be a finite number above 0",
    )
