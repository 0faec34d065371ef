"""Random questions under one software stack: `any` is a superset of every framework, and of every lock."""

import os
import random

import pytest

import traincast as tc
from traincast.core.knobs import DEFAULTS
from traincast.model.blocks import Experts
from traincast.model.model import Model
from traincast.planner.frameworks.locks import SEARCHED
from traincast.planner.frameworks.spaces import FRAMEWORKS
from traincast.times.pipeline.schedules import SCHEDULES, MicrobatchTimes

NIGHTLY = int(os.environ.get("TRAINCAST_FUZZ", "0")) >= 10_000  # every framework and lock of more questions
QUESTIONS = 40 if NIGHTLY else 8
STACKS = ("megatron-core-2025", "torchtitan-2025", "deepspeed-2025", "nanotron-2025", "maxtext-2025", "paper")
OTHERS = [name for name in FRAMEWORKS if name not in ("any", "paper")]
ROUNDING = 1e-12  # of sums in another order
pytestmark = pytest.mark.random


def question(seed):
    """A small model on a few GPUs, often short of memory, and a software stack."""
    draw = random.Random(seed)
    heads = draw.choice((4, 8))
    hidden = heads * 64
    kinds = {"experts": Experts(experts=4, topk=2, ffn=hidden)} if seed % 4 == 0 else {}
    model = Model(
        name="small", layers=draw.choice((2, 4, 6)), hidden=hidden, heads=heads, ffn=4 * hidden,
        kv_heads=draw.choice((2, 4)), seq=draw.choice((512, 2048)), vocab=draw.choice((4096, 32000)),
        causal=True, mlp="swiglu", norm="rmsnorm", biases=(), dropout=False, positions="rotary", **kinds,
    )  # fmt: skip
    system = tc.load_system(draw.choice(("dgx-h100", "dgx-a100", "h200-nvs4", "perlmutter", "gb200-nvl72")))
    memory = system.accelerator.hbm_bytes * draw.choice((0.015, 0.03, 1.0))
    system = system.with_figures({"accelerator.hbm_bytes": memory})
    gpus, gbs = draw.choice((4, 6, 8, 12, 16)), draw.choice((16, 48))
    asked = {"gpus": gpus, "gbs": gbs, "assumptions": draw.choice(STACKS), "top": 1}
    return draw, model, system, asked


def least(model, system, asked, **options):
    """Step time of the fastest plan [s]; infinite where the locks leave nothing, or nothing fits."""
    try:
        return tc.search(model, system, **asked, **options).least_seconds
    except tc.InputError:
        return float("inf")


@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_any_is_a_superset_of_a_framework(seed):
    """Mixed lists of choices keep a question small; two of the frameworks a question, each in turn."""
    draw, model, system, asked = question(seed)
    recompute, mbs = draw.sample(("none", "selective", "norms", "per-op", "full"), 2), draw.choice((1, 2))
    asked |= {"locks": {"recompute": recompute, "mbs": mbs}}
    best = least(model, system, asked, framework="any")
    for other in OTHERS if NIGHTLY else (OTHERS[seed % len(OTHERS)], draw.choice(OTHERS)):
        assert best <= least(model, system, asked, framework=other) * (1 + ROUNDING), other


@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_any_is_a_superset_of_the_space_of_the_paper(seed):
    """On powers of two, of which all cut the sequence evenly, without what only a lock adds to that space."""
    draw, model, system, asked = question(seed)
    asked |= {"gpus": draw.choice((4, 8, 16)), "locks": {"recompute": "none", "mbs": draw.choice((1, 2))}}
    best, found = (least(model, system, asked, framework=name) for name in ("any", "paper"))
    assert best <= found * (1 + ROUNDING)


@pytest.mark.parametrize("locks", [{"recompute": "full"}, {"recompute": ["none", "norms"]}, {"zero": 3}])
def test_a_lock_brings_no_choice_to_a_framework_that_does_not_search_it(locks):
    """SUMMA has no recomputation and ZeRO-1 in the paper's space, which `any` includes."""
    system = tc.load_system("b200-nvs4").with_figures({"accelerator.hbm_bytes": 20e9})
    asked = {"gpus": 64, "gbs": 128, "framework": "any", "assumptions": "mlperf-2025", "top": 1}
    free = tc.search("llama-4-scout", system, **asked).least_seconds
    assert free <= least("llama-4-scout", system, asked, locks=locks) * (1 + ROUNDING)


def test_both_values_of_a_knob_are_no_slower_than_one():
    """Of a stack whose overlapped collectives are exposed as others are."""
    asked = {"gpus": 16, "gbs": 32, "framework": "megatron", "assumptions": "huggingface-deepspeed", "top": 1}
    both, one = (
        least("llama-3.1-8b", "dgx-h100", asked, locks={"tp": 4, "pp": 1, "tp_overlap": value})
        for value in ([False, True], False)
    )
    assert both <= one * (1 + ROUNDING)


@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_a_free_search_is_a_superset_of_one_with_a_lock(seed):
    draw, model, system, asked = question(seed)
    name = draw.choice(["megatron", "torchtitan", "deepspeed", "nanotron", "fsdp", "jax"])
    free = tc.search(model, system, framework=name, **asked)
    found = vars(free.plans[0][0]) if free.plans else {}
    degrees = ("tp", "cp", "pp", "dp", "mbs", "vp", "ep", "etp")
    locks = {knob: found.get(knob, 1) for knob in draw.sample(degrees, 1)}
    locks |= {draw.choice(degrees): draw.choice((1, 2, 4))}
    choice = draw.choice(sorted(FRAMEWORKS[name].choices))
    locks |= {choice: draw.choice(FRAMEWORKS[name].choices[choice])}
    assert free.least_seconds <= least(model, system, asked, framework=name, locks=locks) * (1 + ROUNDING), (
        locks
    )


@pytest.mark.parametrize("seed", range(QUESTIONS if NIGHTLY else 6))
def test_no_lock_of_a_knob_makes_a_search_faster(seed):
    """Each searched knob at a degree, each searched choice at each value, each held one at its default.

    Replicas are held where the framework does not search them: a lock may be faster.
    """
    draw, model, system, asked = question(seed)
    name = ("megatron", "torchtitan", "deepspeed", "nanotron", "fsdp", "jax")[seed % 6]
    searched, held = FRAMEWORKS[name].choices, FRAMEWORKS[name].held
    best = least(model, system, asked, framework=name)
    degrees = [(knob, value) for knob in SEARCHED for value in (1, 2, 4)]
    if not FRAMEWORKS[name].searches_replicas(model):
        degrees = [degree for degree in degrees if degree not in (("replicas", 2), ("replicas", 4))]
    choices = [(choice, value) for choice, values in searched.items() for value in values]
    defaults = [(knob, DEFAULTS[knob]) for knob in held if knob not in searched]
    locks = [*degrees, *choices, *defaults]
    for knob, value in locks if NIGHTLY else draw.sample(locks, 5):
        locked = least(model, system, asked, framework=name, locks={knob: value})
        assert best <= locked * (1 + ROUNDING), (knob, value)
        if (knob, value) in defaults and knob in ("precision", "offload", "optimizer_kind"):
            assert locked == pytest.approx(best, rel=ROUNDING), knob


def test_replicas_are_locked_only_where_the_framework_can_shard_within_them():
    """DeepSpeed's MiCS shards under ZeRO-3 (0.18.9, runtime/zero/mics.py), nanotron has nothing like it."""
    asked = {"gpus": 16, "gbs": 16, "locks": {"replicas": 2}}
    found = tc.search("gpt-125m", "dgx-h100", framework="deepspeed@0.18", **asked)
    assert {plan.zero for plan, _ in found.plans} == {3}
    with pytest.raises(
        tc.InputError,
        match="replicas = 2: nanotron keeps no replicas of what is sharded; framework any has it",
    ):
        tc.search("gpt-125m", "dgx-h100", framework="nanotron", **asked)


@pytest.mark.parametrize("barrier", [False, True])
def test_zb_h2_is_not_searched_since_zb_2p_is_never_slower_in_the_same_memory(barrier):
    draw = random.Random(0)
    for _ in range(1000):
        passes, pp = (
            MicrobatchTimes(*(draw.uniform(0.1, 3) for _ in range(3))),
            float(draw.choice((2, 4, 8, 16))),
        )
        nm, stage = float(draw.randrange(2, 60)), float(draw.randrange(int(pp)))
        slow, fast = SCHEDULES["zb-h2"], SCHEDULES["zb-2p"]
        lost = slow.bubble_share(passes, pp, 1.0, barrier=barrier)
        assert fast.bubble_share(passes, pp, 1.0, barrier=barrier) <= lost + ROUNDING
        for figure in ("in_flight", "awaiting_w"):
            arguments = (pp, stage, nm, 1.0)[: 4 if figure == "in_flight" else 3]
            assert getattr(fast, figure)(*arguments) == getattr(slow, figure)(*arguments)
        assert fast.exposed_transfers(pp, nm, 1.0) == slow.exposed_transfers(pp, nm, 1.0)


@pytest.mark.parametrize(
    ("model", "system", "gpus", "gbs", "framework", "plan"),
    [
        # arXiv 2407.21783, table 4; 126 layers on 16 stages
        ("llama-3.1-405b", "dgx-h100", 16384, 2048, "megatron", {"tp": 8, "cp": 1, "pp": 16, "vp": 4}),
        # arXiv 2412.19437, section 3.2
        (
            "deepseek-v3", "hgx-h800", 2048, 15360, "any",
            {"tp": 1, "pp": 16, "ep": 64, "zero": 1, "schedule": "dualpipe", "ep_overlap": True},
        ),
        # arXiv 2406.11704, section 2.1
        ("nemotron-4-340b", "dgx-h100", 6144, 2304, "megatron", {"tp": 8, "pp": 12, "vp": 8, "dp": 64}),
    ],
)  # fmt: skip
def test_published_plans_are_searched(model, system, gpus, gbs, framework, plan):
    choices = {name: value for name, value in plan.items() if name in FRAMEWORKS[framework].choices}
    assert all(value in FRAMEWORKS[framework].choices[name] for name, value in choices.items())
    locks = plan | {"mbs": 1, "recompute": ("none", "full"), "cp": 1}
    found = tc.search(model, system, gpus=gpus, gbs=gbs, framework=framework, locks=locks, top=1)
    assert found.candidates
