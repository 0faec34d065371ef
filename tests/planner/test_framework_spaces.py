"""Batches of candidates, what frameworks can run, and locks; searches of small modern models against brute
force."""

from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest

import traincast as tc
from traincast.core.knobs import ALLOWED_VALUES, STRATEGIES
from traincast.core.precision import OPTIMIZERS, PRECISIONS
from traincast.model.adapters import parse_training
from traincast.model.blocks import Encoder, Experts
from traincast.model.linear_attention import Mamba2, Rwkv
from traincast.model.model import Model
from traincast.planner.answers.plan_changes import ACCURACY
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.frameworks.history import as_of
from traincast.planner.frameworks.spaces import FRAMEWORKS, default_framework, framework
from traincast.step.estimates import usual_assumptions

DENSE = Model(
    name="small", layers=6, hidden=1024, heads=8, kv_heads=4, ffn=4096, seq=1024, vocab=32000, causal=True,
    mlp="swiglu",
    norm="rmsnorm", biases=(), dropout=False, positions="rotary",
)  # fmt: skip
MOE = replace(DENSE, name="small-moe", experts=Experts(experts=8, topk=2, ffn=1024))
H100 = tc.load_system("dgx-h100")


def plans_of(found):
    """Every candidate of a search, as plans."""
    return [
        outcome.evaluation.space.without_assumptions(outcome.evaluation.space.plans(layout, fill))
        for outcome in found.outcomes
        for layouts in [range(outcome.layouts.start, outcome.layouts.stop)]
        for layout, fill in [_candidates(outcome, layouts)]
    ]


def _candidates(outcome, layouts):
    import numpy as np

    rows = np.array(list(layouts), dtype=np.int64)
    which, fill = outcome.evaluation.space.candidates(rows)
    return rows[which], fill


def test_default_is_the_papers_space_for_its_models_and_strategies_else_megatron_else_any():
    gpt = tc.load_model("gpt3-1t")
    assert default_framework(gpt, None).name == "paper"
    assert all(
        default_framework(model, None).assumptions == usual_assumptions(model) for model in (gpt, DENSE)
    )
    assert default_framework(gpt, None, ("1d", "summa")).name == "paper"
    assert default_framework(gpt, None, ("ring",)).name == "megatron"
    assert default_framework(DENSE, None, ("1d", "summa")).name == "any"  # no framework runs SUMMA
    assert default_framework(DENSE, None).name == "megatron"
    assert default_framework(DENSE, None, ("ring",)).name == "megatron"


def test_tpus_run_jax_by_default():
    """Nobody runs Megatron-Core on TPUs; the paper's models stay on the paper's idealised machine."""
    tpus = tc.load_system("tpu-v5p-pod")
    assert default_framework(DENSE, tpus).name == "jax"
    assert default_framework(DENSE, tpus).assumptions == usual_assumptions(DENSE, tpus) == "maxtext-2025"
    assert default_framework(DENSE, tpus, ("ulysses",)).name == "any"  # MaxText has no Ulysses
    assert FRAMEWORKS["any"].usual_assumptions(DENSE, tpus) == "maxtext-2025"
    assert default_framework(tc.load_model("gpt3-1t"), tpus).name == "paper"
    assert default_framework(DENSE, H100).name == "megatron"


def test_megatron_refuses_linear_attention_that_it_does_not_have():
    """Megatron-Core 0.19.2, megatron/core/ssm: the scans of Mamba-2, and the gated delta net."""
    other = replace(DENSE, rwkv=Rwkv(width=1024), layer_kinds=("rwkv dense",) * 6)
    assert default_framework(other, None).name == "any"
    asked = {"gpus": 8, "gbs": 16, "assumptions": "megatron-core-2025", "locks": {"mbs": 1, "pp": 1}}
    found = tc.search(other, H100, framework="megatron", **asked)
    assert found.fastest is None
    assert "Megatron-Core 0.19.2 has Mamba-2 and the gated delta net only" in str(found.explain())
    mamba = Mamba2(heads=16, head_dim=128, state=128, groups=8)
    own = replace(DENSE, mamba2=mamba, layer_kinds=("mamba2 dense",) * 6)
    assert default_framework(own, None).name == "megatron"
    assert tc.search(own, H100, framework="megatron", **asked).fastest is not None


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks_name_choices_that_exist(name):
    framework = FRAMEWORKS[name]
    assert set(framework.strategies) <= set(STRATEGIES)
    for choice, values in framework.choices.items():
        words = (
            [part for value in values for part in str(value).split("+")] if choice == "recompute" else values
        )
        assert set(words) <= set(ALLOWED_VALUES[choice])


@pytest.mark.parametrize("model", [DENSE, MOE], ids=["dense", "moe"])
@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("megatron", 4),
        pytest.param("megatron", 8, marks=pytest.mark.nightly),
        ("torchtitan", 4),
        ("deepspeed", 8),
        ("nanotron", 8),
    ],
)
def test_the_best_of_a_search_is_the_best_of_its_candidates_one_by_one(name, gpus, model):
    found = tc.search(model, H100, gpus=gpus, gbs=16, framework=name, locks={"mbs": 1})
    best = float("inf")
    counted = fitting = 0
    for columns in plans_of(found):
        for i in range(len(columns.tp)):
            est = tc.estimate(model, H100, columns.row(i), gbs=16, assumptions=found.assumptions)
            counted += 1
            if est.fits:
                fitting += 1
                best = min(best, est.step_seconds)
    assert (found.candidates, found.feasible) == (counted, fitting)
    assert found.fastest[1].step_seconds == pytest.approx(best, rel=1e-12)


ENDS = 2  # embedding and head may be chunks without a layer


def by_loops(model, gpus, gbs, zero_with_pipeline):
    """Megatron's 1-D candidates without experts, by plain loops: degrees, virtual stages, micro-batches."""
    divisors = [n for n in range(1, gpus + 1) if gpus % n == 0]
    for tp, pp in product(divisors, divisors):
        if gpus % (tp * pp) or model.heads % tp or (model.kv_heads % tp and tp % model.kv_heads):
            continue
        dp = gpus // (tp * pp)
        if 3 * model.hidden // tp < 128 or gbs % dp or pp > model.layers + ENDS:
            continue
        for mbs in [n for n in range(1, gbs + 1) if gbs // dp % n == 0]:
            if mbs * model.seq % tp:
                continue
            for v in range(1, (model.layers + ENDS) // pp + 1):
                if v == 1 or (pp > 1 and gbs // dp // mbs % pp == 0 and v in worthwhile(model.layers, pp)):
                    yield tp, pp, dp, mbs, v


def worthwhile(layers, pp):
    """Virtual stages of equal chunks; where pp does not divide the layers, the fewest for each size of the
    largest chunk.
    """
    if layers % pp == 0:
        return {v for v in range(1, layers // pp + 1) if layers % (pp * v) == 0}
    fewest = {}
    for v in range(1, (layers + ENDS) // pp + 1):
        fewest.setdefault(ceil(layers / (pp * v)), v)
    return set(fewest.values())


@pytest.mark.parametrize(
    ("layers", "pp", "values"),
    [
        (80, 4, {1, 2, 4, 5, 10, 20}),  # the divisors of 20
        # 8, 4, 3, 2 and 1 layers in the largest chunk; the last is Llama 3's (arXiv 2407.21783)
        (126, 16, {1, 2, 3, 4, 8}),
    ],
)
def test_virtual_stages_searched(layers, pp, values):
    model = replace(DENSE, layers=layers)
    found = tc.search(
        model,
        H100,
        gpus=pp,
        gbs=16 * pp,
        framework="megatron",
        strategy="1d",
        locks={"pp": pp, "recompute": "none"},
    )
    assert (
        {int(v) for columns in plans_of(found) for v in np.unique(columns.vp)}
        == values
        == worthwhile(layers, pp)
    )


def test_a_lock_may_ask_for_chunks_of_unequal_length():
    found = tc.search(
        DENSE,
        H100,
        gpus=2,
        gbs=16,
        framework="megatron",
        strategy="1d",
        locks={"pp": 2, "vp": 2, "recompute": "none"},
    )
    assert {float(v) for columns in plans_of(found) for v in np.unique(columns.vp)} == {2.0}


def test_megatrons_candidates_are_those_of_plain_loops():
    found = tc.search(
        DENSE, H100, gpus=16, gbs=32, framework="megatron", strategy="1d",
        locks={"recompute": "none", "replicas": 1, "order": "tp-cp-dp-pp"},
    )  # fmt: skip
    degrees = [
        zip(plans.tp, plans.pp, plans.dp, plans.mbs, plans.vp, strict=True) for plans in plans_of(found)
    ]
    rows = [tuple(map(int, row)) for batch in degrees for row in batch]
    assert sorted(rows) == sorted(by_loops(DENSE, 16, 32, False))
    assert len(set(rows)) == len(rows)


def test_locks_leave_a_single_value():
    found = tc.search(
        MOE,
        H100,
        gpus=16,
        gbs=32,
        framework="megatron",
        locks={"tp": 2, "ep": 4, "recompute": "full", "precision": "fp8"},
    )
    assert found.candidates > 0
    for columns in plans_of(found):
        assert set(map(int, columns.tp)) <= {2}
        assert set(map(int, columns.ep)) <= {4}
        assert (columns.recompute, columns.precision) == ("full", "fp8")


def test_locked_searches_are_parts_of_the_whole():
    whole = tc.search(MOE, H100, gpus=16, gbs=32, framework="megatron")
    parts = [
        tc.search(MOE, H100, gpus=16, gbs=32, framework="megatron", locks={"tp": tp})
        for tp in (1, 2, 4, 8, 16)
    ]
    assert sum(part.candidates for part in parts) == whole.candidates
    assert sum(part.feasible for part in parts) == whole.feasible
    assert min(part.least_seconds for part in parts) == whole.least_seconds


@pytest.mark.parametrize(
    ("name", "strategy", "knob"),
    [("torchtitan", "1d", "dp"), ("any", "hybrid", "cp"), ("any", "ulysses", "cp")],
)
def test_a_locked_degree_keeps_all_that_subdivides_it(name, strategy, knob):
    """Replicas of dp, ulysses of cp."""
    whole = tc.search(DENSE, H100, gpus=16, gbs=32, framework=name, strategy=strategy)
    parts = [
        tc.search(DENSE, H100, gpus=16, gbs=32, framework=name, strategy=strategy, locks={knob: n})
        for n in (1, 2, 4, 8, 16)
    ]
    assert sum(part.candidates for part in parts) == whole.candidates


def test_a_locked_kind_of_parallelism_is_in_every_plan():
    """One rank has nothing of it; a row or a column of ranks is a grid of SUMMA."""
    asked = {"gpus": 16, "gbs": 32, "framework": "any"}
    rings = tc.search(DENSE, H100, **asked, locks={"cp_kind": "ring"}).plans
    assert rings
    assert all(plan.cp > 1 for plan, _ in rings)
    grids = tc.search(DENSE, H100, **asked, locks={"tp_kind": "summa"}, top=500).plans
    assert {plan.tp2 > 1 for plan, _ in grids} == {True, False}
    assert all(plan.tp * plan.tp2 > 1 for plan, _ in grids)
    alone = tc.search(DENSE, H100, gpus=1, gbs=32, locks={"cp_kind": "ring"})
    assert "the locked cp_kind needs several context ranks" in "".join(alone.explain().text)
    assert tc.search(DENSE, H100, gpus=1, gbs=32, strategy="ring").candidates > 0


def test_all_invalid_locks_are_reported_at_once():
    with pytest.raises(tc.InputError) as error:
        tc.search(
            DENSE, H100, gpus=8, gbs=16, locks={"tp": 0, "zero": 7, "wibble": 1, "recompute": "full+none"}
        )
    text = str(error.value)
    assert all(word in text for word in ("tp = 0", "zero = 7", "'wibble'", "recompute = 'full+none'"))
    with pytest.raises(
        tc.InputError,
        match="known: any, deepspeed, fsdp, huggingface, jax, megatron, nanotron, paper, torchtitan",
    ):
        framework("colossal")


def test_deepspeed_runs_no_zero_2_in_a_pipeline():
    found = tc.search(DENSE, H100, gpus=16, gbs=32, framework="deepspeed")
    for columns in plans_of(found):
        if columns.zero > 1:
            assert set(map(int, columns.pp)) == {1}


def test_nanotron_gives_every_tensor_rank_a_head_of_keys_and_values():
    """`assert num_key_value_heads >= tp` in src/nanotron/config/config.py; the model has 4 for 8 heads."""
    degrees = {
        name: {
            int(tp)
            for columns in plans_of(tc.search(DENSE, H100, gpus=8, gbs=16, framework=name))
            for tp in columns.tp
        }
        for name in ("deepspeed", "nanotron")
    }
    assert degrees == {"deepspeed": {1, 2, 4, 8}, "nanotron": {1, 2, 4}}


def test_nanotron_searches_its_schedules_and_says_what_it_holds_constant():
    found = tc.search(DENSE, H100, gpus=16, gbs=32, framework="nanotron", locks={"mbs": 1, "pp": 2})
    assert {outcome.space.batch.given["schedule"] for outcome in found.outcomes} == {"1f1b", "gpipe"}
    held = {knob.knob: (knob.value, knob.other) for knob in found.explain().held}
    assert held["grad_dtype"] == ("usual", "16-bit")


@pytest.mark.parametrize(
    ("name", "locks", "problem"),
    [
        ("megatron", {"schedule": "dualpipe"}, "schedule = dualpipe: megatron does not run it; it runs 1f1b"),
        ("megatron", {"recompute": "mlp+per-op"}, r"recompute = mlp\+per-op: megatron does not run it"),
        ("nanotron", {"zero": [1, 3]}, "zero = 3: nanotron does not run it; it runs 0, 1"),
        (
            "deepspeed",
            {"cp_kind": "ring"},
            "cp_kind = ring: deepspeed does not run it; it runs none, ulysses",
        ),
        ("torchtitan", {"order": "tp-cp-pp-dp"}, "order = tp-cp-pp-dp: torchtitan does not run it"),
        ("fsdp", {"pp": 4}, "pp = 4: fsdp runs no pipeline"),
        ("deepspeed", {"pp": 2, "zero": 2}, "zero = 2: deepspeed runs ZeRO-1 at most in a pipeline"),
        ("torchtitan", {"zero": 3, "schedule": "zb-v"}, "zero = 3: .* unless zero and pp are both given"),
        ("fsdp", {"ep": 2}, "ep = 2: fsdp does not shard experts"),
        ("any", {"schedule": "zb-v", "vp": 3}, "vp = 3: schedule zb-v needs vp = 2"),
        ("any", {"tp2": 2, "cp": 2}, "tp2 = 2: needs a strategy of summa, not 1d, ring, ulysses"),
    ],
)
def test_what_a_named_framework_does_not_run_is_refused_with_the_reason(name, locks, problem):
    with pytest.raises(tc.InputError, match=problem) as error:
        tc.search(MOE, H100, gpus=16, gbs=64, framework=name, locks=locks)
    beyond = name != "any" and "unless" not in problem
    assert str(error.value).endswith("; framework any has it") == beyond


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name != "paper"])
def test_frameworks_cut_every_sequence_into_equal_shards(name):
    """That of an encoder as well: 2 x 500 tokens divide over 8 ranks, 500 do not."""
    model = replace(DENSE, seq=4096)
    if "ring" in FRAMEWORKS[name].runs:
        found = tc.search(model, H100, gpus=24, gbs=48, framework=name, strategy="ring", locks={"cp": 3})
        assert (found.candidates, found.plans) == (0, [])
    frames = replace(model, encoder=Encoder(seq=500, layers=3))
    locks = {"tp": 8, "mbs": 2}
    found = tc.search(frames, H100, gpus=8, gbs=2, framework=name, locks=locks | {"sp": True})
    assert found.candidates == 0
    assert tc.search(frames, H100, gpus=8, gbs=2, framework="any", locks=locks | {"sp": False}).candidates > 0


@pytest.mark.parametrize(
    "locks",
    [{"zero": 0, "replicas": 2}, {"sp": False, "tp_overlap": True}, {"tp_kind": "summa", "cp": 2}],
    ids=["replicas", "overlap", "summa"],
)
def test_a_refusal_names_any_only_where_it_has_such_plans(locks):
    with pytest.raises(tc.InputError) as error:
        tc.search(DENSE, H100, gpus=16, gbs=64, framework="megatron", locks=locks)
    assert "framework any" not in str(error.value)
    with pytest.raises(tc.InputError):
        tc.search(DENSE, H100, gpus=16, gbs=64, framework="any", locks=locks)


def test_a_degree_that_the_usual_framework_lacks_is_searched_in_any():
    tpus = tc.load_system("tpu-v5p-pod")
    assert tc.search(DENSE, tpus, gpus=16, gbs=64, locks={"pp": 2, "vp": 2}).framework.name == "any"
    assert tc.search(DENSE, tpus, gpus=16, gbs=64, locks={"pp": 2}).framework.name == "jax"
    packed = replace(DENSE, adapters=parse_training("qlora:r=16"))
    assert tc.search(packed, H100, gpus=16, gbs=64, locks={"pp": 2}).framework.name == "any"
    assert tc.search(packed, H100, gpus=16, gbs=64, locks={"tp": 1}).framework.name == "huggingface"


def test_locks_that_no_framework_has_are_refused_without_naming_one():
    for name in ("any", "megatron", None):
        for locks, problem in (
            ({"ep": 2}, "ep = 2: the model has no experts"),
            ({"cp_kind": "ring", "mbs": 1}, "cp_kind = ring, mbs = 1: .* runs no such plan of strategies 1d"),
            ({"cp": 2}, "cp = 2: needs a strategy of context, ring, ulysses, hybrid, not 1d"),
        ):
            asked = {"strategy": "1d", "framework": name, "locks": locks}
            with pytest.raises(tc.InputError, match=f"search: {problem}$"):
                tc.search(DENSE, H100, gpus=8, gbs=16, **asked)


def test_a_lock_that_the_usual_framework_does_not_run_searches_any():
    asked = {"gpus": 16, "gbs": 64, "locks": {"schedule": "dualpipe", "pp": 2, "mbs": 1}}
    assert tc.search(DENSE, H100, **asked).framework.name == "any"
    assert tc.search(DENSE, H100, **asked | {"locks": {"zero": 3}}).framework.name == "megatron"


@pytest.mark.parametrize(
    ("locks", "problem"),
    [
        ({"recompute_every": 2, "recompute": "none"}, "recompute_every > 1: needs recompute full"),
        ({"offload_every": 2}, "offload_every > 1: needs offload activations"),
        ({"schedule": "zb-h1", "pp": 1}, "pp = 1: schedule zb-h1 is of a pipeline"),
        ({"layout": "3,4"}, "layout = 3,4: its numbers add up to 7 layers, not to the 6 of the model"),
    ],
)
def test_locks_that_contradict_each_other_or_the_model_are_refused(locks, problem):
    with pytest.raises(tc.InputError, match=f"search: {problem}$"):
        tc.search(DENSE, H100, gpus=8, gbs=16, framework="any", locks=locks)


def test_a_lock_that_needs_another_choice_leaves_the_plans_that_have_it():
    found = tc.search(DENSE, H100, gpus=8, gbs=16, framework="megatron", locks={"recompute_every": 2})
    assert {columns.recompute for columns in plans_of(found)} == {"full"}
    found = tc.search(DENSE, H100, gpus=8, gbs=16, locks={"schedule": ["zb-h1", "gpipe"]})
    degrees = {"zb-h1": set(), "gpipe": set()}
    for columns in plans_of(found):
        degrees[columns.schedule] |= set(map(int, columns.pp))
    assert [min(of_schedule) for of_schedule in degrees.values()] == [2, 1]


@pytest.mark.parametrize("name", ["megatron", "deepspeed", "paper", "any"])
def test_a_layout_given_by_hand_is_searched_with_the_stages_it_has(name):
    found = tc.search(DENSE, H100, gpus=8, gbs=16, framework=name, locks={"layout": "1,2*2,1"})
    degrees = {
        (int(pp), int(vp)) for columns in plans_of(found) for pp, vp in np.broadcast(columns.pp, columns.vp)
    }
    interleaved = FRAMEWORKS[name].interleaved
    assert degrees == ({(4, 1), (2, 2)} if interleaved else {(4, 1)})
    assert found.best[0].layout == "1,2*2,1"


@pytest.mark.parametrize(
    ("system", "has_it"),
    [("dgx-b200", True), ("mi355x-node", True), ("dgx-h100", False), ("tpu-v7x-pod", False)],
)
def test_microscaling_is_refused_where_matrix_units_have_none(system, has_it):
    """Blackwell and CDNA 4 multiply blocks with a scale each, and 4-bit numbers (their data sheets)."""
    asked = {"gpus": 8, "gbs": 16, "locks": {"precision": ["bf16", "mxfp8"], "mbs": 1}}
    if has_it:
        assert tc.search(DENSE, system, **asked).best[0].precision == "mxfp8"
        return
    for ask in (
        lambda: tc.search(DENSE, system, **asked),
        lambda: tc.estimate(DENSE, system, tc.Plan(dp=8, precision="mxfp8"), gbs=16),
    ):
        with pytest.raises(tc.InputError, match=r"^precision: .* has no microscaling for mxfp8"):
            ask()


def test_frameworks_for_gpus_are_refused_on_tpus():
    with pytest.raises(tc.InputError, match=r"megatron: runs on no TPUs \(tpu-v5p-pod\); paper, jax, any do"):
        tc.search(DENSE, "tpu-v5p-pod", gpus=8, gbs=16, framework="megatron")


def test_objectives():
    by = {
        name: tc.search(DENSE, H100, gpus=16, gbs=32, objective=name, top=5)
        for name in ("time", "throughput", "cost", "memory")
    }
    assert by["time"].plans == by["throughput"].plans == by["cost"].plans
    held = [est.memory_bytes for _, est in by["memory"].plans]
    assert held == sorted(held)
    assert held[0] == min(float(outcome.memory.min(initial=float("inf"))) for outcome in by["time"].outcomes)
    with pytest.raises(tc.InputError, match="objective"):
        tc.search(DENSE, H100, gpus=8, gbs=16, objective="beauty")


def test_a_job_on_nvl72_uses_a_part_of_every_domain():
    found = tc.search(DENSE, tc.load_system("gb200-nvl72"), gpus=128, gbs=256, framework="megatron", top=1)
    plan = found.best[0]
    assert plan.fast_tp * plan.fast_cp * plan.fast_pp * plan.fast_dp == 64  # of 72: 128 = 2 x 64


def test_batches_of_one_shape_share_their_space():
    first, other = (
        CandidateBatch("1d", (("recompute", "none"),)),
        CandidateBatch("1d", (("recompute", "full"),)),
    )
    assert first.shape == other.shape
    assert CandidateBatch("1d", (("schedule", "gpipe"),)).shape != first.shape


LOCKS = dict.fromkeys(("tp", "tp2", "cp", "pp", "ep", "etp", "ulysses", "replicas", "mbs", "panels"), 2) | {
    "dp": 4,
    "vp": 3,
}


RULED_OUT = {  # no batch of the framework has such a lock
    *(
        (name, knob)
        for name in ("megatron", "torchtitan", "deepspeed", "nanotron")
        for knob in ("panels", "tp2")
    ),
    *(("paper", knob) for knob in ("ep", "etp", "ulysses")),
    *((name, "ulysses") for name in ("torchtitan", "nanotron")),
    *((name, "vp") for name in ("deepspeed", "nanotron")),
    ("nanotron", "replicas"),
    ("deepspeed", "replicas"),  # whose MiCS went with 0.19
}


@pytest.mark.parametrize("knob", LOCKS)
@pytest.mark.parametrize("name", ["megatron", "torchtitan", "deepspeed", "nanotron", "paper"])
def test_a_lock_holds_in_every_plan_or_nothing_is_left(name, knob):
    locks = {knob: LOCKS[knob]}
    if (name, knob) in RULED_OUT:
        with pytest.raises(tc.InputError, match=f"search: {knob} = "):
            tc.search(MOE, H100, gpus=16, gbs=64, framework=name, locks=locks)
        return
    found = tc.search(MOE, H100, gpus=16, gbs=64, framework=name, locks=locks)
    assert all(set(np.atleast_1d(getattr(columns, knob))) <= {LOCKS[knob]} for columns in plans_of(found))
    assert all(getattr(plan, knob) == LOCKS[knob] for plan, _ in found.plans)


@pytest.mark.parametrize("kind", ["all-gather", "ring", "ulysses", "hybrid"])
def test_a_lock_may_choose_context_parallelism_that_is_not_searched(kind):
    found = tc.search(DENSE, H100, gpus=16, gbs=32, framework="megatron", locks={"cp_kind": kind, "cp": 4})
    assert {plan.cp_kind for plan, _ in found.plans} == {kind}
    assert {plan.cp for plan, _ in found.plans} == {4}


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("model", [DENSE, MOE], ids=["dense", "moe"])
def test_every_framework_searches_data_parallelism_alone_with_every_stage_of_zero(name, model):
    found = tc.search(model, H100, gpus=8, gbs=16, framework=name, locks={"mbs": 1, "recompute": "none"})
    alone = {each.zero for each in plans_of(found) if np.any(each.dp == 8)}
    assert alone >= set(FRAMEWORKS[name].choices.get("zero", (1,)))


def test_a_list_of_schedules_without_the_usual_one_keeps_plans_without_a_pipeline():
    lock = {"schedule": ["gpipe", "zb-v"], "mbs": 1}
    found = tc.search(DENSE, H100, gpus=8, gbs=16, framework="torchtitan", locks=lock)
    assert 1 in {plan.pp for columns in plans_of(found) for plan in map(columns.row, range(len(columns.tp)))}


def test_transformers_runs_weights_packed_by_bitsandbytes_without_tensor_parallelism():
    model = replace(DENSE, adapters=parse_training("qlora"))
    assert default_framework(model, None) is FRAMEWORKS["huggingface"]
    assert usual_assumptions(model) == FRAMEWORKS["huggingface"].assumptions
    found = tc.search(model, H100, gpus=8, gbs=16, framework="huggingface", top=100)
    assert {plan.tp for plan, _ in found.plans} == {1}
    locked = tc.search(model, H100, gpus=8, gbs=16, framework="huggingface", locks={"tp": 2})
    assert "weights that bitsandbytes packs" in str(locked.explain())


def test_strategies_without_1d_keep_plans_that_do_not_cut_the_sequence():
    alone, both = (
        tc.search(DENSE, H100, gpus=16, gbs=32, strategy=names) for names in ("ring", "ring,ulysses")
    )
    assert both.candidates > alone.candidates


def test_a_model_with_a_vocabulary_is_searched_alike_whatever_the_strategies():
    found = tc.search(DENSE, H100, gpus=16, gbs=32, strategy="1d")
    assert (found.framework.name, found.assumptions.name) == ("megatron", "megatron-core-2025")


@pytest.mark.parametrize("name", ["torchtitan", "megatron", "any"])
def test_tensor_parallel_communication_is_overlapped_wherever_the_group_lies_in_a_domain(name):
    for columns in plans_of(tc.search(DENSE, H100, gpus=16, gbs=32, framework=name)):
        inside = (columns.tp > 1) & (columns.fast_tp == columns.tp)
        assert ((inside & columns.sp) == columns.tp_overlap).all()  # overlap needs sequence parallelism


@pytest.mark.parametrize("name", ["torchtitan", "megatron", "any"])
def test_overlap_partitions_the_candidates(name):
    """Searched with overlap and held without it: the same candidates, each counted once, the same reasons to
    reject.
    """
    searched = tc.search(DENSE, H100, gpus=16, gbs=32, framework=name)
    without = tc.search(DENSE, H100, gpus=16, gbs=32, framework=name, locks={"tp_overlap": False})
    assert (searched.candidates, searched.feasible) == (without.candidates, without.feasible)
    assert searched.rejected == without.rejected
    assert searched.least_seconds <= without.least_seconds


def test_overlap_takes_no_batches_of_its_own_and_a_lock_keeps_groups_inside_a_domain():
    free, held = (
        tc.search(DENSE, H100, gpus=16, gbs=32, framework="megatron", locks=locks)
        for locks in ({}, {"tp_overlap": True})
    )
    assert len(free.outcomes) == len(held.outcomes)
    overlapped = [row for columns in plans_of(free) for row in _overlapped_rows(columns)]
    assert sorted(overlapped) == sorted(
        row for columns in plans_of(held) for row in _overlapped_rows(columns)
    )
    assert overlapped


def _overlapped_rows(columns):
    """Numbers and recompute of the plans that overlap tensor-parallel communication."""
    rows = (columns.row(i) for i in range(len(columns.tp)))
    return [(plan.strategy, plan.recompute, str(plan)) for plan in rows if plan.tp_overlap]


@pytest.mark.parametrize(
    ("model", "gpus", "locks"),
    [
        (DENSE, 16, {"tp_overlap": True}),
        (MOE, 16, {"ep_overlap": True}),
        (MOE, 16, {"tp_overlap": True, "ep_overlap": True}),
    ],
)
def test_a_free_search_is_no_slower_than_one_with_overlap_held(model, gpus, locks):
    free = tc.search(model, H100, gpus=gpus, gbs=64, framework="megatron")
    held = tc.search(model, H100, gpus=gpus, gbs=64, framework="megatron", locks=locks)
    assert free.least_seconds <= held.least_seconds


def test_overlap_that_hides_nothing_is_not_searched():
    """`megatron-core-plain` overlaps nothing: its plans say so."""
    found = tc.search(DENSE, H100, gpus=16, gbs=32, framework="megatron", assumptions="megatron-core-plain")
    assert not any(columns.tp_overlap for columns in plans_of(found))


def test_overlap_of_experts_is_searched_where_the_software_has_it():
    """Megatron-Core overlaps their exchange since the second half of 2025."""

    def overlaps(stack):
        found = tc.search(MOE, H100, gpus=16, gbs=32, framework="megatron", assumptions=stack)
        return {bool(columns.ep_overlap) for columns in plans_of(found)}

    assert overlaps("nemo-2025") == {False}
    assert overlaps("megatron-core-2025") == {False, True}
    # transformer_config.py of 0.19.2: overlap_moe_expert_parallel_comm needs alltoall or flex
    assert overlaps("megatron-core-2025+dispatcher=allgather") == {False}


def test_a_choice_that_rules_overlap_out_leaves_the_candidates_without_it():
    """Megatron-Core overlaps tensor-parallel communication with sequence parallelism only."""
    found = tc.search(DENSE, H100, gpus=16, gbs=32, framework="megatron", locks={"sp": False, "tp": 2})
    assert found.feasible > 0
    assert not any(columns.tp_overlap for columns in plans_of(found))


def test_megatron_overlaps_experts_in_a_pipeline_with_virtual_stages_and_without_full_recomputation_only():
    """Megatron-LM d98e8a6, megatron/core/transformer/transformer_config.py, lines 3002 to 3046."""
    overlapped = [
        columns
        for columns in plans_of(tc.search(MOE, H100, gpus=16, gbs=64, framework="megatron"))
        if columns.ep_overlap
    ]
    assert overlapped
    for columns in overlapped:
        assert columns.recompute != "full"
        assert ((columns.pp == 1) | (columns.vp > 1)).all()
        assert (columns.ep > 1).all()
    with pytest.raises(tc.InputError, match=r"ep_overlap = True: .*does not support full recomputation"):
        tc.search(
            MOE, H100, gpus=16, gbs=64, framework="megatron", locks={"ep_overlap": True, "recompute": "full"}
        )


def test_megatron_overlaps_no_exchange_with_experts_that_are_recomputed():
    """core_v0.19.2, core/transformer/transformer_config.py, line 2698: moe in recompute_modules."""
    asked = {"gpus": 16, "gbs": 64, "framework": "megatron"}
    found = tc.search(MOE, H100, **asked, locks={"recompute": "experts"})
    assert found.candidates > 0
    assert not any(columns.ep_overlap for columns in plans_of(found))
    with pytest.raises(tc.InputError, match=r"ep_overlap = True: .*recomputation of experts"):
        tc.search(MOE, H100, **asked, locks={"ep_overlap": True, "recompute": "experts+norms"})
    beside = tc.search(MOE, H100, **asked, locks={"ep_overlap": True, "recompute": "norms+activation"})
    assert beside.candidates > 0


def test_megatron_numbers_pp_before_dp_where_experts_have_as_many_replicas():
    """core_v0.19.2, core/parallel_state.py: replicas of experts, dp tp cp / (ep etp), equal dp."""
    ordered = 0
    for model in (DENSE, MOE):
        found = tc.search(model, H100, gpus=64, gbs=64, framework="megatron", locks={"order": "tp-cp-pp-dp"})
        for columns in plans_of(found):
            tensor = columns.tp if model is DENSE else columns.ep * columns.etp
            assert ((columns.pp == 1) | (columns.tp * columns.cp == tensor)).all()
            ordered += np.sum(columns.pp > 1)
    assert ordered > 100


def test_megatron_shards_no_experts_with_biases():
    """core_v0.19.2, core/transformer/transformer_config.py, line 2279."""
    found, anywhere = (
        tc.search("gpt-oss-20b", H100, gpus=16, gbs=64, framework=name) for name in ("megatron", "any")
    )
    assert all(np.all(columns.etp == 1) for columns in plans_of(found))
    assert any(np.any(columns.etp > 1) for columns in plans_of(anywhere))


def shared(model, space, locks=()):
    """Products tp × cp of the candidates of a space with several context ranks."""
    found = tc.search(model, H100, gpus=64, gbs=64, framework=space, locks=dict(locks))
    several = (columns.tp * columns.cp for columns in plans_of(found) if np.size(columns.mbs))
    return {n for products in several for n in np.unique(products)} if found.candidates else set()


def test_megatron_shares_the_heads_of_a_delta_net_over_tensor_and_context_ranks():
    """core_v0.19.2, core/transformer/transformer_config.py, line 1372; core_v0.17.0, line 1103: no cp at all.

    Of 8 heads of keys 8 ranks have one each; the other rule is that of `any`, which repeats them.
    """
    model = replace(tc.load_model("pure-gdn-300m"), seq=32768)
    model = replace(model, gated_delta=replace(model.gated_delta, key_heads=8, value_heads=16))
    locks = {"cp_kind": "ring"}
    assert max(shared(model, "megatron", locks)) == 8
    before = as_of(FRAMEWORKS["megatron"], (2026, 3))
    assert shared(model, as_of(FRAMEWORKS["megatron"], (2026, 6)), locks) == shared(model, "megatron", locks)
    assert shared(model, before, locks) == set()


@pytest.mark.parametrize(("modules", "stages", "before"), [(0, 1, 1), (1, 1, 2), (2, None, None)])
def test_megatron_overlaps_exchanges_beside_one_module_of_multi_token_prediction(modules, stages, before):
    """core_v0.19.2, core/transformer/transformer_config.py, line 2709; core_v0.17.0, lines 2122 to 2128."""
    model = replace(tc.load_model("deepseek-v2-lite"), mtp=modules)
    for space, least in (
        (FRAMEWORKS["megatron"], stages),
        (as_of(FRAMEWORKS["megatron"], (2026, 4)), before),
    ):
        found = tc.search(model, H100, gpus=16, gbs=64, framework=space, locks={"ep_overlap": True})
        used = [np.min(columns.pp) for columns in plans_of(found) if np.size(columns.mbs)]
        assert min(used, default=None) == least


def test_megatron_offloads_activations_without_a_pipeline():
    """core_v0.19.2, core/transformer/transformer_config.py: no pipeline and no recomputation beside it."""
    found = tc.search(DENSE, H100, gpus=16, gbs=64, framework="megatron", locks={"offload": "activations"})
    assert found.candidates > 0
    for columns in plans_of(found):
        assert columns.recompute == "none"
        assert np.all(columns.pp == 1)


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "fsdp"])
def test_replicas_leave_something_to_shard(framework):
    found = tc.search(DENSE, H100, gpus=16, gbs=64, framework=framework)
    for columns in plans_of(found):
        assert np.all((columns.replicas == 1) | (columns.replicas < columns.dp * columns.cp))


def test_attention_of_summa_needs_its_grid():
    found = tc.search(DENSE, H100, gpus=16, gbs=64, framework="any", locks={"attention": "summa"})
    plan, est = found.plans[0]
    assert plan.tp_kind == "summa"
    assert plan.tp * plan.tp2 > 1
    assert tc.estimate(DENSE, H100, plan, gbs=64, assumptions=found.assumptions) == est
    with pytest.raises(tc.InputError, match="attention = summa: megatron runs no such plan"):
        tc.search(DENSE, H100, gpus=16, gbs=64, framework="megatron", locks={"attention": "summa"})


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "nanotron"])
def test_packed_weights_are_of_other_frameworks(framework):
    """docs/fine_tuning.md: bitsandbytes packs the base of QLoRA; none of these has a layer that reads it."""
    model = tc.load_model("llama-3-8b").with_adapters(parse_training("qlora:r=16"))
    found = tc.search(model, H100, gpus=8, gbs=32, framework=framework)
    assert found.best is None
    (reason,) = (reason for reason, count in found.rejected.items() if "bitsandbytes" in reason and count)
    assert reason in str(found.explain())


def test_nanotron_shards_experts_over_replicas():
    """huggingface/nanotron 00708b8, src/nanotron/parallel/context.py: ranks are ep x pp x dp x cp x tp."""
    found = tc.search(MOE, H100, gpus=32, gbs=128, framework="nanotron")
    assert found.candidates > 0
    assert all(np.all(columns.dp % columns.ep == 0) for columns in plans_of(found))


def test_delayed_scaling_is_searched_without_recomputed_norms():
    """Megatron-LM d98e8a6, transformer_config.py, line 2002."""
    found = tc.search(MOE, H100, gpus=16, gbs=64, framework="megatron", locks={"precision": "fp8"})
    assert not any({"norms", "activation"} & set(columns.recompute.split("+")) for columns in plans_of(found))


@pytest.mark.parametrize(
    ("name", "strategy"), [("megatron", "summa"), ("torchtitan", "ulysses"), ("deepspeed", "1d,summa")]
)
def test_a_strategy_that_a_framework_does_not_run_is_refused(name, strategy):
    with pytest.raises(tc.InputError, match=f"{name} does not run it; it runs 1d"):
        tc.search(DENSE, H100, gpus=16, gbs=32, framework=name, strategy=strategy)


def test_knobs_that_are_not_searched_are_named_with_what_they_would_change():
    found = tc.search(DENSE, H100, gpus=16, gbs=32, framework="megatron", top=1)
    (plan, est), held = found.plans[0], {knob.knob: knob for knob in found.explain().held}
    assert {"precision", "offload", "optimizer_kind"} <= set(held)
    for name, knob in held.items():
        changed = tc.estimate(
            DENSE, H100, replace(plan, **{name: knob.other}), gbs=32, assumptions=found.assumptions
        )
        assert knob.value == getattr(plan, name) != knob.other
        assert knob.step_seconds_change == pytest.approx(changed.step_seconds / est.step_seconds - 1)
        assert knob.memory_bytes_change == pytest.approx(changed.memory_bytes - est.memory_bytes)
        assert knob.fits == changed.fits
    assert any(
        line.startswith("Held constant, not searched: ") and "precision=bf16 (fp8-" in line
        for line in found.explain().lines()
    )


def test_a_short_answer_names_what_is_held_with_what_another_precision_would_change():
    found = tc.search(DENSE, H100, gpus=16, gbs=32, framework="megatron", top=1)
    explanation = found.explain()
    precision = next(knob for knob in explanation.held if knob.knob == "precision")
    (line,) = explanation.held_in_short()
    assert line.startswith("Held constant, not searched: ")
    assert str(precision) in line
    assert ", offload=none, optimizer_kind=adam, " in line
    assert "zero=1" in line
    torchtitan = tc.search(DENSE, H100, gpus=16, gbs=32, framework="torchtitan", top=1)
    (line,) = torchtitan.explain().held_in_short()
    assert "zero=" not in line  # of which it searches two stages


def test_locked_knobs_are_not_named_as_held():
    found = tc.search(
        DENSE,
        H100,
        gpus=16,
        gbs=32,
        framework="megatron",
        top=1,
        locks={"precision": "fp8-current", "offload": "none"},
    )
    assert not {"precision", "offload"} & {knob.knob for knob in found.explain().held}


@pytest.mark.parametrize(
    ("system", "offered"),
    [("dgx-a100", set()), ("dgx-h100", {"fp8-current", "fp8-block"}), ("dgx-b200", {"nvfp4"})],
)
def test_precisions_are_named_as_the_machine_multiplies_them(system, offered):
    found = tc.search(DENSE, system, gpus=16, gbs=32, framework="megatron", top=1)
    assert {knob.other for knob in found.explain().held if knob.knob == "precision"} <= offered
    assert bool(offered) == any(knob.knob == "precision" for knob in found.explain().held)


def test_where_nothing_fits_the_nearest_miss_says_what_was_held():
    found = tc.search("llama-3-70b", H100, gpus=8, gbs=512, framework="megatron")
    held = {knob.knob: knob for knob in found.explain().held}
    assert held["offload"].other == "optimizer"
    assert held["offload"].memory_bytes_change < -(2**30) * 50


def test_where_nothing_fits_each_held_knob_that_would_fit_has_a_line():
    said = tc.search("llama-3-70b", H100, gpus=12, gbs=516, framework="megatron").explain()
    plan, miss = said.miss
    lines = str(said).splitlines()
    first = lines.index("    would fit with") + 1
    fitting = [knob for knob in said.held if knob.fits]
    assert fitting
    for line, knob in zip(lines[first:], fitting, strict=False):
        changed = tc.estimate(
            miss.model, H100, replace(plan, **{knob.knob: knob.other}), gbs=516, assumptions=miss.assumptions
        )
        assert changed.fits
        assert f"{knob.knob}={knob.other}: {changed.memory_bytes / 2**30:.1f} GiB, " in line


@pytest.mark.parametrize(
    ("name", "knob"),
    [
        ("deepspeed", "ep_overlap"),
        ("torchtitan", "ep_overlap"),
        ("nanotron", "ep_overlap"),
    ],
)
def test_overlap_that_a_framework_has_no_setting_for_is_refused(name, knob):
    with pytest.raises(
        tc.InputError, match=f"{knob} = True: .*has no setting that overlaps .*; framework any has it"
    ):
        tc.search(MOE, H100, gpus=16, gbs=64, framework=name, locks={knob: True})


def test_what_deepspeed_overlaps_of_tensor_ranks_is_named():
    """DeepSpeed 0.19.8, module_inject/layers.py: AsyncColumnParallel starts all_reduce in backward alone."""
    why = r"gradients alone \(tensor_parallel.tp_overlap_comm\), which is not predicted; framework any has it"
    with pytest.raises(tc.InputError, match=why):
        tc.search(MOE, H100, gpus=16, gbs=64, framework="deepspeed", locks={"tp_overlap": True})


HAVING = {  # framework -> optimizers, read in the files that `LACKING_OPTIMIZERS` names
    "megatron": "adam adam-bf16 adam-8bit sgd muon lion",
    "megatron@0.16": "adam adam-bf16 adam-8bit sgd muon",
    "torchtitan": "adam adam-bf16 muon",
    "torchtitan@0.2": "adam adam-bf16",
    "deepspeed": "adam adam-bf16 sgd lion muon adafactor",
    "nanotron": "adam adam-bf16 sgd",
    "jax": "adam adam-bf16 sgd muon",
    "fsdp": "adam adam-bf16 adam-8bit adam-4bit sgd lion adafactor muon",
    "huggingface": "adam adam-bf16 adam-8bit adam-4bit sgd lion adafactor muon",
    "any": "adam adam-bf16 adam-8bit adam-4bit sgd lion adafactor muon",
}


@pytest.mark.parametrize("name", HAVING)
def test_a_framework_refuses_optimizers_that_it_lacks(name):
    asked = framework(name)
    having = [
        kind
        for kind in ALLOWED_VALUES["optimizer_kind"]
        if not asked.find_refusals({"optimizer_kind": kind, "zero": 1, "stack": asked.assumptions})
    ]
    assert sorted(having) == sorted(HAVING[name].split())


def test_an_optimizer_that_a_framework_lacks_is_refused_by_what_it_has():
    why = "optimizer_kind = adam-4bit: Megatron-Core has Adam, with moments of .*; framework any has it"
    with pytest.raises(tc.InputError, match=why):
        tc.search(MOE, H100, gpus=16, gbs=64, framework="megatron", locks={"optimizer_kind": "adam-4bit"})


def test_recipes_are_searched_on_request_and_what_accuracy_they_may_cost_is_said():
    asked = {"precision": ["bf16", "fp8-current"], "optimizer_kind": ("adam", "adam-8bit")}
    found = tc.search(DENSE, H100, gpus=8, gbs=16, framework="megatron", locks=asked)
    searched = {
        (outcome.space.batch.given["precision"], outcome.space.batch.given["optimizer_kind"])
        for outcome in found.outcomes
    }
    assert searched == set(product(*asked.values()))
    alone = [
        tc.search(
            DENSE, H100, gpus=8, gbs=16, framework="megatron",
            locks={"precision": precision, "optimizer_kind": optimizer},
        ).least_seconds
        for precision, optimizer in product(*asked.values())
    ]  # fmt: skip
    assert found.least_seconds == min(alone)
    explanation = found.explain()
    assert set(explanation.accuracy) == {"precision=fp8-current", "optimizer_kind=adam-8bit"}
    assert all(
        any(line.startswith(f"Accuracy with {recipe}: ") and "arXiv" in line for line in explanation.lines())
        for recipe in explanation.accuracy
    )
    assert not {"precision", "optimizer_kind"} & {knob.knob for knob in explanation.held}


def test_every_recipe_that_can_be_asked_for_says_what_accuracy_it_may_cost():
    assert set(PRECISIONS) - set(ACCURACY["precision"]) == {"bf16", "fp32"}
    assert set(OPTIMIZERS) - set(ACCURACY["optimizer_kind"]) == {"adam"}
    assert all("(" in cost for costs in ACCURACY.values() for cost in costs.values())  # the source


@pytest.mark.parametrize(
    ("lock", "problem"),
    [((), "precision: give at least one value"), (("bf16", "fp7"), "precision = 'fp7'")],
)
def test_a_list_of_recipes_is_checked(lock, problem):
    with pytest.raises(tc.InputError, match=problem):
        tc.search(DENSE, H100, gpus=8, gbs=16, locks={"precision": lock})


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "any"])
def test_ranks_of_tp_and_cp_cut_the_sequence_evenly(framework):
    """36 GPUs allow cp = 3, which Megatron-LM (training/arguments.py) refuses for 8,192 tokens."""
    found = tc.search("llama-3-8b", "gb200-nvl72", gpus=36, gbs=36, framework=framework, top=500)
    assert {plan.cp for plan in found.ranked} > {1, 2}
    for plan in found.ranked:
        assert 8192 % (plan.tp * plan.cp) == 0


def test_an_odd_sequence_has_tensor_ranks_without_sequence_parallelism():
    found = tc.search("vit-l-16", "dgx-h100", gpus=16, gbs=1024, framework="megatron", locks={"tp": 2})
    assert found.model.seq % 2
    assert {plan.sp for plan in found.ranked} == {False}


def test_a_space_of_every_strategy_remains_one_where_some_are_named():
    # examples/interleaving.yaml: plans of the paper's three strategies with virtual stages, which are locked
    named = FRAMEWORKS["paper"].strategies
    free = tc.search("gpt3-1t", "b200-nvs8", gpus=512, gbs=4096, locks={"vp": 2})
    of_named = tc.search("gpt3-1t", "b200-nvs8", gpus=512, gbs=4096, locks={"vp": 2}, strategy=named)
    assert of_named.framework.name == "paper"
    assert of_named.candidates == free.candidates
    assert of_named.recommended[0] == free.recommended[0]
    # docs/questions/interleaving.md: 56.24 s without virtual stages, 0.3 % less with two
    assert of_named.recommended[1].step_seconds == pytest.approx(56.24 * (1 - 0.003), rel=1e-3)
