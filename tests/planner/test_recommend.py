"""Recommended plans: probability of fitting, preferences between plans of equal time, and families."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import traincast as tc
from traincast.accuracy.scores import recommended_order
from traincast.core.knobs import PLACEMENTS, RECOMPUTED_MODULES
from traincast.core.plan import Plan
from traincast.core.units import probability_text
from traincast.planner.answers.plan_sentences import differences, plan_in_words
from traincast.planner.answers.recommend import (
    PREFERENCES,
    RECOMPUTED_WORK,
    VARIED,
    Candidate,
    _fastest_sentence,
    choose,
    distinct,
    families,
    recommend,
    unusual_knobs,
)
from traincast.step.fit_probability import fits_probability, memory_that_fits
from traincast.step.uncertainty import MODEL_RESOLUTION

QUESTION = {"gpus": 32, "gbs": 128, "assumptions": "megatron-core-2025"}  # software is stated


@pytest.fixture(scope="module")
def found():
    """A search whose fastest plan needs nearly all memory."""
    return tc.search("llama-3-8b", "dgx-a100-40", **QUESTION)


def estimated(found):
    """Every layout that fits, as candidates, fastest first."""
    return found.near(math.inf)


def test_candidates_near_the_fastest_are_all_of_them(found):
    every = estimated(found)
    times = sorted(float(t) for outcome in found.outcomes for t in outcome.least_seconds)
    assert [candidate.seconds for candidate in every] == times
    limit = times[0] * 1.05
    assert found.near(0.05) == [candidate for candidate in every if candidate.seconds <= limit]
    most = sorted(candidate.memory for candidate in every)[len(every) // 3]
    lean = [candidate for candidate in every if candidate.memory <= most]
    limit = lean[0].seconds * 1.05
    assert found.near(0.05, most) == [candidate for candidate in lean if candidate.seconds <= limit]


def fits_as(found, nbytes):
    """The probability that a plan of a search that states its software fits."""
    share = found.assumptions.memory.allocator_share
    capacity = found.system.accelerator.visible_bytes
    return fits_probability(nbytes, capacity, found.assumptions.name, allocator_share=share)


@pytest.mark.parametrize("wanted", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("within", [0.0, 0.02, 0.2])
def test_the_recommended_plan_by_brute_force(found, wanted, within):
    """What fits as wanted; near the fastest of that; micro-batch, recomputation, unusual knobs; time."""
    result = tc.search("llama-3-8b", "dgx-a100-40", **QUESTION, fit_probability=wanted, within=within)
    likely = [one for one in estimated(found) if fits_as(found, one.memory) >= wanted]
    equal = [candidate for candidate in likely if candidate.seconds <= likely[0].seconds * (1 + within)]
    least = {}
    for one in equal:  # fastest first: of plans that differ in the micro-batch alone the fastest counts
        least.setdefault(one.plan.layout_values, one)
    left = list(least.values())
    for _, key, _, share in PREFERENCES:
        left = [one for one in left if one.seconds <= min(other.seconds for other in left) * (1 + share)]
        left = [one for one in left if key(one.plan) == min(key(other.plan) for other in left)]
    best = min(left, key=lambda one: (one.seconds, one.memory))
    plan, est = result.recommended
    assert (plan, est.step_seconds, est.memory_bytes) == best
    assert est.fits_probability >= wanted
    assert result.recommended == result.best == result.plans[0] == result.require_best()


def test_the_first_of_the_list_is_recommended_and_the_others_are_ranked(found):
    plans = [plan for plan, _ in found.plans]
    every = [candidate.plan for candidate in estimated(found)]
    assert len(plans) == len(set(plans)) == 10
    assert found.fastest[0] == every[0]
    times = [est.step_seconds for _, est in found.plans[1:]]
    assert times == sorted(times)
    first = tc.search("llama-3-8b", "dgx-a100-40", **QUESTION, top=1)
    assert first.plans == found.plans[:1]


@pytest.mark.parametrize(
    ("odds", "said"),
    [(0.93, "and fits with 93%"), (0.84, "but fits with 84%"), (0.898, "but fits with less than 90%")],
)
def test_the_fastest_is_not_held_against_its_memory_where_it_fits_as_wanted(odds, said):
    fastest, chosen = Candidate(Plan(dp=8), 5.0, 70e9), Candidate(Plan(tp=2, dp=4), 5.05, 60e9)
    sentence = _fastest_sentence(fastest, chosen, lambda nbytes: odds, wanted=0.9)
    assert (
        sentence
        == f"The fastest of all is 0.99% faster (5 s) {said}: {differences(fastest.plan, chosen.plan)}."
    )


def test_a_plan_that_takes_as_long_is_not_called_faster():
    fastest, chosen = Candidate(Plan(dp=8), 5.0, 70e9), Candidate(Plan(tp=2, dp=4), 5.0, 60e9)
    assert _fastest_sentence(fastest, chosen, None, 0.9).startswith("The fastest of all takes as long: tp 1")


def test_the_reason_says_the_probability_and_the_cost():
    found = tc.search("llama-3-70b", "dgx-h100", gpus=512, gbs=512)
    (plan, est), (fast, fastest) = found.recommended, found.fastest
    assert fastest.fits_probability < 0.9 <= est.fits_probability
    reason = found.recommendation.reason
    assert f"It fits with a probability of {est.fits_probability:.0%}." in reason
    assert "fit with at least 90% and take at most 2% longer" in reason
    assert f"the smallest micro-batch ({plan.mbs})" in reason
    gain = 1 - fastest.step_seconds / est.step_seconds
    assert f"The fastest of all is {100 * gain:.2g}% faster" in reason
    assert f"but fits with {fastest.fits_probability:.0%}: {differences(fast, plan)}." in reason


def test_where_no_plan_fits_as_wanted_the_likeliest_gives_way_to_more_expected_throughput(found):
    leanest = min(estimated(found), key=lambda candidate: candidate.memory)
    tight = found.system.with_visible(1.02 * leanest.memory)
    result = tc.search("llama-3-8b", tight, **QUESTION)
    _, chosen = result.recommended
    assert chosen.fits_probability < 0.9
    others = [result.answer(leanest.plan)[1], result.fastest[1]]
    expected = [est.fits_probability / est.step_seconds for est in (chosen, *others)]
    assert expected[0] == max(expected)
    assert result.recommendation.reason.startswith("No plan fits with a probability of 90%; this one has")


def test_where_errors_are_not_known_the_fastest_is_recommended():
    """The preset of the paper states times that no measured run contradicts: there is nothing to weigh."""
    found = tc.search("gpt3-1t", "h200-nvs8", gpus=512, gbs=4096)
    assert (found.within, found.recommendation.reason) == (None, "")
    assert found.recommended == found.fastest
    assert found.fastest[1].step_seconds == found.least_seconds
    near = tc.search("gpt3-1t", "h200-nvs8", gpus=512, gbs=4096, within=0.1)
    assert near.recommended[1].step_seconds <= 1.1 * near.least_seconds
    assert near.recommended[0].mbs <= near.fastest[0].mbs
    assert "probability" not in near.recommendation.reason


def test_the_leanest_plan_is_recommended_where_memory_ranks(found):
    lean = tc.search("llama-3-8b", "dgx-a100-40", **QUESTION, objective="memory")
    assert lean.recommended[1].memory_bytes == min(one.memory for one in estimated(found))
    assert [family.plan for family in lean.families] == [plan for plan, _ in lean.plans]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fit_probability": 1.5}, "fit_probability = 1.5: must be a number between 0 and 1, such as 0.9"),
        ({"fit_probability": 0}, "fit_probability = 0: must be"),
        ({"fit_probability": True}, "fit_probability = True: must be"),
        ({"within": -0.1}, "within = -0.1: must be a number between 0 and 1, such as 0.02"),
        ({"within": float("nan")}, "within = nan: must be"),
        ({"within": 0.1, "objective": "memory"}, "within: recommends by time"),
    ],
)
def test_wrong_options_are_refused(options, problem):
    with pytest.raises(tc.InputError, match=problem.replace(".", r"\.")):
        tc.search("llama-3-8b", "dgx-a100-40", **QUESTION, **options)


def test_memory_that_fits_is_the_inverse_of_the_probability():
    for probability in (0.1, 0.5, 0.9, 0.999):
        nbytes = memory_that_fits(probability, 80e9, "torchtitan-2025")
        assert fits_probability(nbytes, 80e9, "torchtitan-2025") == pytest.approx(probability)


# Preferences and families, without a search -----------------------------------------------------------------


def candidate(seconds=1.0, memory=1.0, **knobs):
    """A candidate of eight ranks."""
    return Candidate(Plan(**{"dp": 8, "fast_dp": 8} | knobs), seconds, memory)


def test_preferences_decide_in_their_order():
    """Each candidate loses to the next by an earlier preference, whatever the later ones say."""
    order = [
        candidate(1.0, mbs=2, dp=4, tp=2, fast_dp=4, fast_tp=2),
        candidate(1.1, recompute="full"),
        candidate(1.2, recompute="selective"),
        candidate(1.3, recompute="norms"),
        candidate(1.4, replicas=2),
        candidate(1.5, tp=2, pp=2, dp=2, fast_tp=2, fast_dp=2, fast_pp=2),
        candidate(1.6, pp=2, dp=4, vp=4, fast_dp=4, fast_pp=2),
        candidate(1.604, pp=2, dp=4, vp=2, fast_dp=4, fast_pp=2),
    ]
    for length in range(1, len(order) + 1):
        assert choose(order[:length]).candidate == order[length - 1]
    assert choose(order).because == [
        "the smallest micro-batch (1)",
        "the least recomputation (none)",
        "the fewest unusual knobs (none)",
        "the fewest parallel axes besides dp (pp)",
        "the fewest virtual stages (2)",
    ]
    chunks = [candidate(seconds, pp=2, dp=4, vp=vp) for seconds, vp in ((1.0, 8), (1.004, 4), (1.01, 2))]
    assert choose(chunks).candidate == chunks[1]  # for which 0.5 % are given up, no more
    assert choose([candidate(2.0), candidate(1.0)]) == (candidate(1.0), ["the least time"])
    few = [candidate(1.0, tp=2, dp=4), candidate(1.01, tp=4, dp=2), candidate(1.02, tp=2, dp=2, mbs=2)]
    assert choose(few) == (few[0], ["the smallest micro-batch (1)", "the least time"])  # all have one stage


def test_of_plans_that_differ_in_the_micro_batch_alone_the_fastest_counts():
    fast, slow, other = (
        candidate(1.0, mbs=4),
        candidate(1.01, mbs=2),
        candidate(1.015, mbs=2, sp=False, tp=2, dp=4),
    )
    assert choose([fast, slow]) == (fast, ["the least time"])
    assert choose([fast, slow, other]) == (other, ["the smallest micro-batch (2)"])
    layouts, mbs = [one.plan.layout_values for one in (fast, slow, other)], np.array([4, 2, 2])
    order = recommended_order(np.array([1.0, 1.01, 1.015]), mbs, layouts)
    assert order.tolist() == [2, 0, 1]


def test_every_module_has_a_place_in_the_order_of_recomputed_work():
    modules = frozenset().union(*RECOMPUTED_MODULES.values())
    assert set(RECOMPUTED_WORK) == modules | {"full"}


@pytest.mark.parametrize(
    ("knobs", "unusual"),
    [
        ({}, []),
        ({"offload": "optimizer"}, ["offload"]),
        ({"optimizer_kind": "adam-8bit"}, ["optimizer_kind"]),
        ({"dp": 4, "cp": 2, "cp_kind": "ring", "fast_dp": 4, "fast_cp": 2}, []),
        ({"dp": 4, "cp": 2, "cp_kind": "ring", "fast_dp": 4, "fast_cp": 1}, ["CP over the slow network"]),
        ({"replicas": 2}, ["replicas"]),
        ({"order": "tp-cp-pp-dp"}, ["order"]),
    ],
)
def test_unusual_knobs(knobs, unusual):
    assert unusual_knobs(candidate(**knobs).plan) == unusual


def test_families_differ_in_more_than_chunks_micro_batch_and_recomputation(found):
    listed = found.families
    assert len(listed) == 10
    assert listed[0].plan == found.recommended[0]
    kinds = set()
    for family in listed:
        plan, est = found.answer(family.plan)
        kinds.add(tuple((k, v) for k, v in plan.to_dict().items() if k not in (*VARIED, *PLACEMENTS)))
        assert plan in [one.plan for one in family.alike]
        for one in family.alike:
            changed = {k for k, v in one.plan.to_dict().items() if v != plan.to_dict()[k]}
            assert changed <= {*VARIED, *PLACEMENTS}
            assert abs(math.log(one.seconds / est.step_seconds)) <= math.log(1 + MODEL_RESOLUTION) + 1e-12
            if len(changed & set(VARIED)) == 1:
                (knob,) = changed & set(VARIED)
                assert getattr(one.plan, knob) in family.others(knob)
        for knob, values in family.varied_knobs().items():  # each is a plan that differs in it alone
            for value in values:
                other = replace(plan, **dict.fromkeys(PLACEMENTS) | {knob: value})
                other_est = tc.estimate(found.model, found.system, other, gbs=found.gbs)
                assert other_est.fits
                assert other_est.step_seconds == pytest.approx(est.step_seconds, rel=MODEL_RESOLUTION * 1.001)
    assert len(kinds) == 10
    times = [found.answer(family.plan)[1].step_seconds for family in listed[1:]]
    assert times == sorted(times)


def test_the_plans_to_measure_are_named_with_the_knobs_in_which_they_differ(found):
    said = re.search(r"measure 1 and (\d+), which differ most \((.*)\)\.$", found.confidence)
    other, knobs = found.families[int(said[1]) - 1].plan.to_dict(), said[2].split(", ")
    first = found.recommended[0].to_dict()
    assert set(knobs) == {name for name in first if first[name] != other[name]} - set(PLACEMENTS)


def test_a_family_is_represented_by_a_plan_that_fits_as_wanted():
    first = candidate(1.0, 1.0)
    other = [candidate(1.1, 5.0, zero=3), candidate(1.11, 2.0, zero=3, recompute="norms")]
    rows = families([first, *other], first, memory_limit=3.0, within=0.02)
    assert [family.plan for family in rows] == [first.plan, other[1].plan]
    assert rows[1].alike == tuple(other)
    assert families([first, *other], first, memory_limit=1.5, within=0.02)[1].plan == other[0].plan


def test_stages_of_zero_that_shard_nothing_are_one_plan():
    """Of those that fit the lowest stands for them; with a second replica they are different plans."""
    one_gpu = tc.search("llama-3.2-1b", "dgx-h100", gpus=1, gbs=8, framework="deepspeed")
    assert {plan.zero for plan, _ in one_gpu.plans} == {0, 1, 2, 3}
    assert [family.plan.zero for family in one_gpu.families] == [0]
    assert one_gpu.recommended[0].zero == one_gpu.fastest[0].zero == 0
    stages = [candidate(zero=zero, dp=1, fast_dp=1) for zero in (2, 0, 3)]
    assert distinct(stages) == [stages[1]]
    for one in ({"seconds": 1.1}, {"dp": 2}, {"mbs": 2}):
        other = candidate(**{"zero": 3, "dp": 1, "fast_dp": 1} | one)
        assert distinct([stages[0], other]) == [stages[0], other]


def test_recommend_asks_for_candidates_near_the_fastest_that_fits_as_wanted():
    fast, safe, safer = candidate(1.0, 9.0), candidate(1.2, 2.0, zero=2), candidate(1.21, 1.0, zero=3)

    def near(share, most):
        fits = [one for one in (fast, safe, safer) if one.memory <= most]
        return [one for one in fits if one.seconds <= (1 + share) * fits[0].seconds]

    def probability(one):
        return round(1 - one.memory / 10, 9)

    def recommended(limit, wanted, within):
        fitting = round(10 * (1 - wanted), 9)  # the memory with that probability
        return recommend(near, lambda _: limit, lambda: 1.0, probability, lambda _: fitting, wanted, within)

    assert recommended(2.0, 0.8, 0.02).plan == safe.plan
    assert recommended(2.0, 0.8, 0.02).fastest == fast.plan
    assert "fits with 10%: zero 1 instead of 2" in recommended(2.0, 0.8, 0.02).reason
    likeliest = recommended(0.5, 0.95, 0.02)
    assert likeliest.plan == safer.plan
    assert (
        "No plan fits with a probability of 95%; this one is the likeliest to, with 90%." in likeliest.reason
    )
    assert "It is the fastest of all that fit." in recommended(9.0, 0.1, 0.02).reason
    # the limit is too high, as of software that needs less: it is tightened
    assert recommended(9.0, 0.8, 0.02).plan == safe.plan


def test_where_no_plan_fits_as_wanted_the_most_expected_throughput_is_recommended():
    """By hand: 0.28 / 1.0 s, 0.57 / 1.1 s and 0.81 / 4.0 s are 0.28, 0.52 and 0.20 steps a second."""
    fast, middle, surest = candidate(1.0, 7.2), candidate(1.1, 4.3, zero=2), candidate(4.0, 1.9, zero=3)

    def near(share, most):
        fits = [one for one in (fast, middle, surest) if one.memory <= most]
        return [one for one in fits if one.seconds <= (1 + share) * fits[0].seconds]

    def probability(one):
        return round(1 - one.memory / 10, 9)

    def memory_with(odds):
        return round(10 * (1 - odds), 9)

    found = recommend(near, memory_with, lambda: 1.9, probability, lambda _: 1.0, 0.9, 0.02)
    assert (found.plan, found.fastest) == (middle.plan, fast.plan)
    assert found.deciding.startswith(
        "No plan fits with a probability of 90%; this one has the most expected throughput, with 57%. The "
        "surest, with 81%, takes 3.6 times as long: zero 3 instead of 2"
    )


def test_the_surest_plan_is_not_recommended_at_four_times_the_time():
    """8 H100 hold Qwen3-30B-A3B only just: plans of 62 to 67 s may fit, the leanest takes 269 s."""
    found = tc.search("qwen3-30b-a3b", "dgx-h100", gpus=8, given={"dispatcher": "deepep"})
    assert max(est.fits_probability for _, est in found.plans) < 0.9
    assert found.recommended[1].step_seconds < 1.2 * found.fastest[1].step_seconds
    assert found.recommended[1].fits_probability > found.fastest[1].fits_probability


# Plans in words ---------------------------------------------------------------------------------------------


DGX = tc.load_system("dgx-h100")


def test_a_plan_in_words():
    plan = Plan(tp=4, pp=4, dp=32, vp=20, fast_tp=4, fast_dp=2, recompute="norms")
    assert plan_in_words(plan, DGX.tiers) == (
        "4-way tensor parallel inside a node, 4 pipeline stages of 20 chunks, 32 replicas, "
        "distributed optimizer, micro-batches of 1 sequence, recomputation of norms"
    )
    plan = Plan(tp=16, cp=2, cp_kind="ring", dp=1, fast_tp=8, mbs=2, schedule="1f1b", precision="fp8-block")
    assert plan_in_words(plan, DGX.tiers) == (
        "16-way tensor parallel over 2 nodes, 2-way context parallel (ring) over 2 nodes, 1 replica, "
        "distributed optimizer, micro-batches of 2 sequences, fp8-block"
    )
    plan = Plan(tp=2, dp=32, ep=16, sp=False, fast_tp=2, fast_dp=4, tp_overlap=True, ep_overlap=True)
    assert plan_in_words(plan, DGX.tiers) == (
        "2-way tensor parallel inside a node without sequence parallelism, 16-way expert parallel over "
        "2 nodes, 32 replicas, distributed optimizer, micro-batches of 1 sequence, TP and EP communication "
        "overlapped"
    )
    plan = Plan(pp=2, dp=8, ep=8, fast_dp=8, dp_overlap=False, order="tp-cp-pp-dp", attention="unfused")
    numerics = {"precision": "mxfp8", "optimizer_kind": "muon", "grad_dtype": "fp32"}
    assert plan_in_words(replace(plan, **numerics), DGX.tiers) == (
        "2 pipeline stages, 8-way expert parallel inside a node, 8 replicas, distributed optimizer, "
        "micro-batches of 1 sequence, DP communication not overlapped, ranks in order tp-cp-pp-dp, "
        "unfused attention, mxfp8, muon, fp32 gradients"
    )
    assert "ZeRO-2) within each of 4 groups" in plan_in_words(Plan(dp=8, zero=2, replicas=4), DGX.tiers)
    assert "8 replicas, nothing sharded over them, micro" in plan_in_words(
        Plan(dp=8, zero=2, replicas=8), DGX.tiers
    )
    assert "inside a fast domain of 72" in plan_in_words(
        Plan(tp=8, fast_tp=8), tc.load_system("gb200-nvl72").tiers
    )
    assert "inside a fast domain of 8,960" in plan_in_words(
        Plan(tp=8, fast_tp=8), tc.load_system("tpu-v5p-pod").tiers
    )


def test_differences_of_plans():
    plan = Plan(tp=2, dp=4)
    assert differences(plan, Plan(tp=4, dp=2)) == "tp 2 instead of 4, dp 4 instead of 2"
    assert differences(Plan(dp=4, fast_dp=4), Plan(dp=4, fast_dp=2)) == "another placement"
    far = Plan(pp=2, dp=2, ep=2, zero=2, recompute="full", mbs=2)
    assert differences(plan, far) == str(plan)


@pytest.mark.parametrize("name", ["frontier", "lumi", "mi250-node"])
def test_a_package_is_no_node(name):
    """Two dies are a module, four modules a node of 8 accelerators (OLCF and LUMI user guides)."""
    tiers = tc.load_system(name).tiers
    said = {tp: plan_in_words(Plan(tp=tp, fast_tp=min(tp, 2)), tiers).split(",")[0] for tp in (2, 4, 8, 16)}
    assert said == {
        2: "2-way tensor parallel inside a domain of infinity-fabric",
        4: "4-way tensor parallel inside a node",
        8: "8-way tensor parallel inside a node",
        16: "16-way tensor parallel over 2 nodes",
    }


@pytest.mark.parametrize(
    ("cp", "ulysses", "where"),
    [(8, 8, "inside a node"), (8, 2, "inside a node"), (16, 16, "over 2 nodes"), (32, 4, "over 4 nodes")],
)
def test_heads_and_keys_that_are_exchanged_are_of_one_context_group(cp, ulysses, where):
    """8 GPUs are a node of a DGX H100, whichever of them exchange heads."""
    plan = Plan(cp=cp, ulysses=ulysses, cp_kind="ulysses", fast_cp=8, dp=1)
    assert plan_in_words(plan, DGX.tiers).startswith(f"{cp}-way context parallel (ulysses) {where}, ")


def test_a_bridge_is_no_node():
    """Hosts of 8 H200 NVL on PCIe, with bridges between four of them."""
    tiers = tc.load_system("h200-nvl-node").tiers
    assert "8-way tensor parallel inside a node" in plan_in_words(Plan(tp=8, fast_tp=4), tiers)
    assert "4-way tensor parallel inside a domain of nvlink" in plan_in_words(Plan(tp=4, fast_tp=4), tiers)


def test_where_software_is_not_stated_the_recommended_plan_fits_in_all_of_it_as_wanted():
    """Software that is left open may need more: the memory that plans may have is tightened."""
    open_question = {"gpus": 32, "gbs": 128}
    for wanted in (0.8, 0.95):
        result = tc.search("llama-3-8b", "dgx-a100-40", **open_question, fit_probability=wanted)
        est = result.recommended[1]
        assert len(est.memory_alternatives) > 1
        assert est.fits_probability >= wanted
        said = f"It fits with a probability of {probability_text(est.fits_probability)}."
        assert said in result.recommendation.reason
