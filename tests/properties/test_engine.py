"""What holds for every plan: columns agree with numbers, degree 1 is free, better hardware never hurts, work
is conserved."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.core.assumptions import PAPER, PRESETS
from traincast.core.knobs import STRATEGIES
from traincast.core.plan import Plans
from traincast.operations.transformer import layer
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.space.enumeration import enumerate_space
from traincast.planner.space.evaluation import evaluate, rank
from traincast.step.memory import Footprint
from traincast.times.collectives import collective
from traincast.times.operation_time import time_part
from traincast.times.process_groups import Group

GPT = tc.load_model("gpt3-1t")
GPUS, BATCH = 512, 1024
SYSTEMS = {name: tc.load_system(name) for name in ("a100-nvs4", "h200-nvs8", "b200-nvs64")}
KINDS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce")


def candidates_of(strategy, domain):
    """Columns of every candidate of a space."""
    space = enumerate_space(GPT, (GPUS,), domain, BATCH, CandidateBatch(strategy))
    return space.plans(*space.candidates(np.arange(len(space.counts))))


@st.composite
def cases(draw):
    """A machine, assumptions, and a valid plan."""
    system = SYSTEMS[draw(st.sampled_from(sorted(SYSTEMS)))]
    candidates = candidates_of(draw(st.sampled_from(sorted(STRATEGIES))), system.fast_domain)
    plan = candidates.row(draw(st.integers(0, len(candidates.mbs) - 1)))
    return system, PRESETS[draw(st.sampled_from(sorted(PRESETS)))], plan


@settings(max_examples=60)
@given(cases(), st.lists(st.integers(0, 10**9), min_size=1, max_size=5))
def test_a_plan_alone_equals_its_row_in_a_batch(case, others):
    system, assumed, plan = case
    candidates = candidates_of(plan.strategy, system.fast_domain)
    batch = candidates.take(np.array([other % len(candidates.mbs) for other in others]))
    columns = {
        knob: np.append(np.broadcast_to(column, len(others)), float(getattr(plan, knob) or 1))
        for knob, column in batch.numbers().items()
    }
    est = tc.estimate(GPT, system, plan, gbs=BATCH, assumptions=assumed)
    many = tc.estimate(
        GPT, system, Plans(**columns, **STRATEGIES[plan.strategy].choices), gbs=BATCH, assumptions=assumed
    )
    assert many.step_seconds[-1] == est.step_seconds  # to the last bit
    assert many.memory_bytes[-1] == est.memory_bytes
    assert {
        name: np.broadcast_to(value, len(others) + 1)[-1] for name, value in many.breakdown.items()
    } == est.breakdown


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_search_gives_what_the_estimate_gives(strategy):
    found = tc.search(
        GPT, SYSTEMS["h200-nvs8"], gpus=GPUS, gbs=BATCH, strategy=strategy, top=50, framework="paper"
    )
    assert len(found.plans) == 50
    ranked = rank(found.outcomes, 50)
    assert [est.step_seconds for _, est in found.plans] == ranked.seconds.tolist()
    assert [est.memory_bytes for _, est in found.plans] == ranked.memory.tolist()


@settings(max_examples=60)
@given(cases(), st.sampled_from(["matrix", "vector", "hbm", "fast", "slow", "latency"]), st.floats(1.0, 10.0))
def test_better_hardware_never_makes_a_plan_slower(case, figure, factor):
    system, assumed, plan = case
    gpu, (fast, slow) = system.accelerator, system.tiers
    better = {
        "matrix": lambda: replace(system, accelerator=replace(gpu, matrix_flops=gpu.matrix_flops * factor)),
        "vector": lambda: replace(system, accelerator=replace(gpu, vector_flops=gpu.vector_flops * factor)),
        "hbm": lambda: replace(system, accelerator=replace(gpu, hbm_bandwidth=gpu.hbm_bandwidth * factor)),
        "fast": lambda: replace(system, tiers=(replace(fast, bandwidth=fast.bandwidth * factor), slow)),
        "slow": lambda: replace(system, tiers=(fast, replace(slow, bandwidth=slow.bandwidth * factor))),
        "latency": lambda: replace(system, tiers=(fast, replace(slow, latency=slow.latency / factor))),
    }[figure]()
    before = tc.estimate(GPT, system, plan, gbs=BATCH, assumptions=assumed).step_seconds
    after = tc.estimate(GPT, better, plan, gbs=BATCH, assumptions=assumed).step_seconds
    hidden = (
        1e-9 * before
    )  # faster arithmetic hides less communication; their sum may move in the last digits
    assert after <= before + hidden


@settings(max_examples=40)
@given(cases())
def test_memory_grows_with_the_micro_batch(case):
    system, assumed, plan = case
    plans = [replace(plan, mbs=mbs) for mbs in (1, 2, 4, 8, 16) if BATCH % (plan.dp * mbs) == 0]
    saved = [
        Footprint.from_operations(layer(GPT, plan.columns(), assumed), plan.columns()).saved for plan in plans
    ]
    assert saved == sorted(saved)
    assert len(set(saved)) == len(saved)
    # With at least as many micro-batches as stages, all stages are in flight, and memory grows as well.
    held = [
        tc.estimate(GPT, system, plan, gbs=BATCH, assumptions=assumed).memory_bytes
        for plan in _valid(plans)
        if BATCH // plan.dp // plan.mbs >= plan.pp
    ]
    assert held == sorted(held)


def _valid(plans):
    ranks = (plan.tp2 if plan.tp_kind == "summa" else plan.tp * plan.cp for plan in plans)
    return [plan for plan, cut in zip(plans, ranks, strict=True) if plan.mbs * GPT.seq % cut == 0]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_single_gpu_communicates_nothing(strategy):
    choices = STRATEGIES[strategy].choices
    plan = Plans(mbs=1.0, panels=4.0 if strategy == "summa" else 1.0, **choices)
    timed = time_part(layer(GPT, plan, PAPER), plan, SYSTEMS["h200-nvs8"], PAPER)
    assert all(time.forward.comm == 0 and time.backward.comm == 0 for time in timed)
    est = tc.estimate(GPT, SYSTEMS["h200-nvs8"], tc.Plan(**choices), gbs=1)
    assert (est.breakdown["dp_comm"], est.breakdown["pp_comm"], est.breakdown["bubble"]) == (0, 0, 0)


@pytest.mark.parametrize(("axis", "component"), [("dp", "dp_comm"), ("pp", "pp_comm"), ("pp", "bubble")])
def test_degree_1_removes_exactly_its_terms(axis, component):
    with_it = tc.estimate(GPT, SYSTEMS["h200-nvs8"], tc.Plan(tp=8, pp=4, dp=4, fast_tp=8), gbs=64)
    without = tc.estimate(
        GPT, SYSTEMS["h200-nvs8"], replace(tc.Plan(tp=8, pp=4, dp=4, fast_tp=8), **{axis: 1}), gbs=64
    )
    assert with_it.breakdown[component] > 0
    assert without.breakdown[component] == 0


@settings(max_examples=100)
@given(
    st.sampled_from(KINDS),
    st.floats(0, 1e12),
    st.integers(0, 8),
    st.integers(0, 6),
    st.sampled_from(sorted(SYSTEMS)),
)
def test_collectives(kind, nbytes, log_members, log_fast, name):
    n, g = 2.0**log_members, 2.0 ** min(log_members, log_fast)
    system = SYSTEMS[name]

    def time(volume, members=n, fast=g):
        return float(collective(kind, volume, Group(members, (fast,)), system, PAPER))

    assert time(nbytes) >= 0
    assert time(nbytes, 1.0, 1.0) == 0  # nobody to talk to
    assert time(0.0) == 0  # nothing to say
    assert time(2 * nbytes) >= time(nbytes)
    if kind == "all-reduce":  # reduce-scatter and all-gather, their hops paid once
        gather = float(collective("all-gather", nbytes, Group(n, (g,)), system, PAPER))
        hops = gather - float(
            collective("all-gather", nbytes, Group(n, (g,)), _without_latency(system), PAPER)
        )
        assert time(nbytes) == pytest.approx(2 * gather - hops, rel=1e-9, abs=1e-15)


def _without_latency(system):
    return replace(system, tiers=tuple(replace(tier, latency=0.0) for tier in system.tiers))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("ranks", [(2, 1), (4, 2), (8, 4)])
def test_matrix_work_and_weights_are_conserved(strategy, ranks):
    """Cut over any number of ranks, the ranks together do the same multiplications and hold the same
    matrices."""
    m1, m2 = ranks
    second = STRATEGIES[strategy].second
    knobs = (
        {"tp": float(m1)}
        | ({second: float(m2)} if second else {})
        | ({"ulysses": float(m2)} if strategy == "ulysses" else {})
    )
    count = m1 * (m2 if second else 1)
    whole = {op.name: op for op in layer(GPT, Plans(**STRATEGIES[strategy].choices), PAPER)}
    part = {op.name: op for op in layer(GPT, Plans(**knobs, **STRATEGIES[strategy].choices), PAPER)}
    for name in ("mlp.fc1", "mlp.fc2", "attention.qkv", "attention.proj"):
        copies = (
            m2 if second == "cp" else 1
        )  # context parallelism keeps the weights on every one of its ranks
        assert part[name].weights * count == pytest.approx(whole[name].weights * copies, rel=1e-12)
        for way in ("forward", "backward", "weight"):
            got = getattr(part[name], way).flops("matrix") * count
            # each result saves one addition per sum: cutting the sum over ranks changes the count by that
            # little
            assert got == pytest.approx(getattr(whole[name], way).flops("matrix"), rel=1e-3)


def test_parameters_are_the_weights_that_ranks_hold(gpt):
    held = Footprint.from_operations(layer(gpt, Plans(), PAPER), Plans()).weights * gpt.layers
    assert gpt.parameters == held
    assert gpt.parameters == pytest.approx(1e12, rel=0.01)  # its name: a trillion


def searched(machine, gpus, strategy):
    """A search of the paper's kind for each number of GPUs, also for strategies that the paper
    does not have."""
    return tc.search_each(GPT, machine, gpus=gpus, gbs=BATCH, strategy=strategy, top=5, framework="paper")


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_machines_as_columns_equal_single_machines(strategy):
    """Capacity, bandwidths and rates as columns give what a search on each machine gives, to the last bit."""
    base, draw = SYSTEMS["h200-nvs8"], np.random.default_rng(0)
    paths = (
        "accelerator.hbm_bytes",
        "accelerator.hbm_bandwidth",
        "accelerator.matrix_flops",
        "network.1.bandwidth",
        "network.0.latency",
    )
    choices = {path: base.figures()[path] * np.array([0.5, 1.0, 3.0]) for path in paths}
    machines = base.with_figures({path: draw.choice(values, 12) for path, values in choices.items()})
    gpus = (64, 256)
    evaluation = evaluate(enumerate_space(GPT, gpus, 8, BATCH, CandidateBatch(strategy)), machines, PAPER)
    fitted = 0
    for machine in range(12):
        outcomes = evaluation.outcomes(machine)
        ranking = rank(outcomes, 5)
        for job, found in enumerate(searched(machines.take(machine), gpus, strategy)):
            mine = ranking.outcome == job
            assert ranking.seconds[mine].tolist() == [est.step_seconds for _, est in found.plans]
            assert ranking.memory[mine].tolist() == [est.memory_bytes for _, est in found.plans]
            assert (outcomes[job].candidates, outcomes[job].feasible) == (found.candidates, found.feasible)
            fitted += found.feasible
    assert fitted > 0


def test_interleaving_by_hand():
    """8 stages, 16 micro-batches, 4 virtual: a quarter of the bubble, four times the transfers, 8 + 7/4
    micro-batches in flight.

    Closed form of arXiv 2104.04473 (section 2.2) and arXiv 2205.05198 (section 4).
    """
    plain = tc.estimate(GPT, SYSTEMS["h200-nvs8"], tc.Plan(tp=8, pp=8, dp=2, fast_tp=8), gbs=32)
    interleaved = tc.estimate(GPT, SYSTEMS["h200-nvs8"], replace(plain.plan, vp=4), gbs=32)
    busy = plain.step.busy
    assert interleaved.breakdown["pp_comm"] == pytest.approx(4 * plain.breakdown["pp_comm"], rel=1e-12)
    assert interleaved.breakdown["bubble"] == pytest.approx(
        7 / 16 / 4 * (busy + 4 * plain.breakdown["pp_comm"]), rel=1e-12
    )
    assert interleaved.memory["activations"] == pytest.approx(
        plain.memory["activations"] * (8 + 7 / 4) / 8, rel=1e-12
    )
    assert interleaved.breakdown["compute"] == plain.breakdown["compute"]
