"""Explanation of a search: claims are checked against estimates of all candidates or another search."""

import json
import math
import re
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

import traincast as tc
from traincast.planner.answers.explain import sensitivity
from traincast.planner.answers.plan_sentences import compare_with_best, component_label
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.frameworks.spaces import FRAMEWORKS
from traincast.planner.space.enumeration import enumerate_space

MODEL = tc.Model(name="small", layers=6, hidden=1536, heads=12, ffn=6144, seq=1024)
GBS = 24
GPUS = 8


def system(hbm_bytes, domain=4, inner="links", outer="network"):
    """A system with the given memory."""
    return tc.System(
        name="by hand",
        accelerator=tc.Accelerator(
            name="chip", matrix_flops=100e12, vector_flops=10e12, hbm_bandwidth=1e12, hbm_bytes=hbm_bytes
        ),
        tiers=(
            tc.Tier(name=inner, bandwidth=100e9, efficiency=0.7, latency=2.5e-6, size=domain),
            tc.Tier(name=outer, bandwidth=10e9, efficiency=0.7, latency=5e-6),
        ),
    )


@cache
def everything(gpus=GPUS, strategies=FRAMEWORKS["paper"].strategies):
    """Every candidate with its estimate: (time, memory, place of the strategy, place in the enumeration,
    plan).
    """
    rows = []
    for which, strategy in enumerate(strategies):
        space = enumerate_space(MODEL, (gpus,), 4, GBS, CandidateBatch(strategy))
        plans = space.plans(*space.candidates(np.arange(len(space.counts))))
        for number in range(int(space.counts.sum())):
            plan = plans.row(number)
            est = tc.estimate(
                MODEL, system(1e15), plan, gbs=GBS
            )  # neither time nor memory depends on the capacity
            rows.append((est.step_seconds, est.memory_bytes, which, number, plan))
    return rows


def capacity_of(share):
    """Memory in which that share of the candidates fits."""
    held = sorted(row[1] for row in everything())
    return held[int(share * len(held))]


def by_memory(row):
    seconds, held, *place = row
    return held, seconds, *place


TIGHT = capacity_of(0.02)
HALF = capacity_of(0.5)
CAPACITIES = pytest.mark.parametrize(
    "capacity", [TIGHT, capacity_of(0.15), HALF, 1e15], ids=["2 %", "15 %", "half", "all"]
)


def plan_of(pair):
    return None if pair is None else pair[0]


# What memory excludes ---------------------------------------------------------------------------------------


@CAPACITIES
def test_misses_are_those_of_all_candidates(capacity):
    fits = [row for row in everything() if row[1] <= capacity]
    over = [row for row in everything() if row[1] > capacity]
    limit = min(fits)[0]
    faster = [row for row in over if row[0] < limit]
    said = tc.search(MODEL, system(capacity), gpus=GPUS, gbs=GBS, top=1).explain()
    assert plan_of(said.miss) == (min(over, key=by_memory)[4] if over else None)
    assert plan_of(said.faster) == (min(faster, key=by_memory)[4] if faster else None)
    assert plan_of(said.unlimited) == (min(faster)[4] if faster else None)
    assert said.fits_from is None  # something fits here
    for pair in (said.miss, said.faster, said.unlimited):
        assert pair is None or not pair[1].fits


def test_capacities_distinguish_the_nearest_misses():
    """The capacities above are such that each of the three is there, and a plan of its own."""
    said = tc.search(MODEL, system(capacity_of(0.02)), gpus=GPUS, gbs=GBS).explain()
    assert len({said.miss[0], said.faster[0], said.unlimited[0]}) == 3
    assert said.unlimited[0] == min(everything())[4]
    assert (
        said.miss[1].step_seconds
        > said.plans[0][1].step_seconds
        > said.faster[1].step_seconds
        > said.unlimited[1].step_seconds
    )


def test_where_all_fit_memory_excludes_nothing():
    said = tc.search(MODEL, system(1e15), gpus=GPUS, gbs=GBS).explain()
    assert (said.miss, said.faster, said.unlimited) == (None, None, None)
    assert "Memory excludes nothing." in said.lines()


# Tensor-parallel degrees ------------------------------------------------------------------------------------


@CAPACITIES
@pytest.mark.parametrize(
    "strategies", [("1d",), ("context", "summa"), ("1d", "summa", "context")], ids=",".join
)
@pytest.mark.parametrize("context", [False, True])
def test_each_degree_has_its_best_plan_or_its_least_memory(capacity, strategies, context):
    rows = everything(strategies=strategies)
    by_degree = {}
    for row in rows:
        degree = row[4].cp if context else row[4].tp * row[4].tp2
        by_degree.setdefault(degree, []).append(row)
    said = tc.search(MODEL, system(capacity), gpus=GPUS, gbs=GBS, strategy=strategies, top=1).explain()
    if context and len(by_degree) == 1:
        assert not said.context_degrees
        return
    degrees = said.context_degrees if context else said.degrees
    assert [row.degree for row in degrees] == sorted(by_degree)
    for row in degrees:
        of_degree = by_degree[row.degree]
        fits = [pair for pair in of_degree if pair[1] <= capacity]
        assert plan_of(row.best) == (min(fits)[4] if fits else None), row.degree
        assert row.least_memory == min(pair[1] for pair in of_degree)
        if row.best is not None:
            assert row.best[1].step_seconds == min(fits)[0]


def test_degrees_that_do_not_fit_and_those_that_do():
    said = tc.search(MODEL, system(TIGHT), gpus=GPUS, gbs=GBS).explain()
    fitting = [row.degree for row in said.degrees if row.best is not None]
    assert 0 < len(fitting) < len(said.degrees)
    best = said.plans[0][0]
    assert best in [plan_of(row.best) for row in said.degrees if row.degree == best.tp * best.tp2]


@pytest.mark.parametrize(
    "strategies", [("1d",), ("summa", "context"), ("1d", "summa", "context")], ids=",".join
)
def test_excluded_tp_have_no_candidate_and_break_the_rule_named(strategies):
    """24 GPUs, 12 heads: tp 8 and 24 do not divide them. With 24 heads of 25, all divide, but some cut the
    width too fine.
    """
    assert tc.search(MODEL, system(1e15), gpus=24, gbs=GBS, strategy=strategies).explain().excluded == {
        "tp does not divide the attention heads": [8, 24]
    }
    narrow = replace(MODEL, hidden=600, heads=24)  # 600/8 = 75 < 128 ≤ 3·600/8 = 225, 3·600/24 = 75
    cut = (
        [24] if "1d" in strategies else [6, 8, 12, 24]
    )  # one strategy that allows it will do; 1-D asks 128 of 3e only
    found = tc.search(narrow, system(1e15), gpus=24, gbs=GBS, strategy=strategies)
    assert found.explain().excluded == {"tp cuts a width below 128": cut}
    tried = {plan.tp for plan, _ in replace(found, top=10**6).plans}
    assert tried <= {1, 2, 3, 4, 6, 8, 12, 24} - set(cut)


def test_excluded_for_the_tokens_of_the_largest_micro_batch():
    """gbs·l = 1 · 1155 is odd: no micro-batch divides over tp 2 or 4; SUMMA cuts tokens by tp2 only, so
    allows both.
    """
    odd = replace(MODEL, seq=1155)
    said = tc.search(odd, system(1e15), gpus=4, gbs=1, strategy="1d,context").explain()
    assert said.excluded == {"the tokens of a micro-batch do not divide over the tensor ranks": [2, 4]}
    assert tc.search(odd, system(1e15), gpus=4, gbs=1).explain().excluded == {}


def test_a_sequence_that_tensor_ranks_do_not_divide_names_plans_without_sequence_parallelism():
    """Unless the model's experts need it, or the sequence is odd, so that they were searched."""

    def said(name, seq, **locks):
        model = replace(tc.load_model(name), seq=seq)
        found = tc.search(model, "dgx-h100", gpus=8, gbs=8, framework="megatron", locks=locks)
        return "\n".join(found.explain().text)

    hint = "tp = 8 does not divide 4,100 tokens of a sequence: that needs sp = False"
    assert hint in said("llama-3-8b", 4100, tp=8)
    assert "sp = False" not in said("mixtral-8x7b", 4100, tp=8)
    assert "sp = False" not in said("llama-3-8b", 4101, tp=8, pp=3)


@pytest.mark.parametrize(("gpus", "gbs"), [(24, 24), (24, 8), (7, 4096), (48, 6), (14, 7)])
def test_no_tp_is_both_tried_and_excluded(gpus, gbs):
    found = tc.search(MODEL, system(1e15), gpus=gpus, gbs=gbs, top=10**6)
    tried = {plan.tp for plan, _ in found.plans}
    excluded = [tp for degrees in found.explain().excluded.values() for tp in degrees]
    assert len(excluded) == len(set(excluded))
    assert tried.isdisjoint(excluded)
    assert set(excluded) <= {tp for tp in range(1, gpus + 1) if gpus % tp == 0}


# Sensitivity ------------------------------------------------------------------------------------------------


@CAPACITIES
def test_sensitivity_matches_an_estimate_of_the_changed_system(capacity):
    machine = system(capacity)
    said = tc.search(MODEL, machine, gpus=GPUS, gbs=GBS).explain()
    plan, est = said.plans[0]
    chip, (fast, slow) = machine.accelerator, machine.tiers
    better = {
        "matrix FLOP/s": replace(machine, accelerator=replace(chip, matrix_flops=1.1 * 100e12)),
        "vector FLOP/s": replace(machine, accelerator=replace(chip, vector_flops=1.1 * 10e12)),
        "HBM bandwidth": replace(machine, accelerator=replace(chip, hbm_bandwidth=1.1 * 1e12)),
        "fast network (links)": replace(machine, tiers=(replace(fast, bandwidth=1.1 * 100e9), slow)),
        "slow network (network)": replace(machine, tiers=(fast, replace(slow, bandwidth=1.1 * 10e9))),
    }
    assert set(said.sensitivity) == set(better)
    for figure, other in better.items():
        changed_seconds = tc.estimate(MODEL, other, plan, gbs=GBS).step_seconds
        assert said.sensitivity[figure] == pytest.approx(changed_seconds / est.step_seconds - 1, abs=1e-12), (
            figure
        )
        assert (
            -1 / 11 - 1e-12 <= said.sensitivity[figure] <= 0
        )  # 10 % better saves at most 1 − 1/1.1 of the time
    assert said.sensitivity["matrix FLOP/s"] < -0.001


def test_offloading_needs_a_link_to_the_host():
    with pytest.raises(tc.InputError, match="offload: H200 has no host_bandwidth; give it"):
        tc.search("llama-3-8b", "h200-nvs8", gpus=8, gbs=64, locks={"offload": ("none", "optimizer")})


@pytest.mark.parametrize(("precision", "field"), [("fp8", "fp8_flops"), ("nvfp4", "fp4_flops")])
def test_sensitivity_names_the_rate_of_the_precision(precision, field):
    machine = tc.load_system("dgx-b200")
    plan = tc.Plan(tp=2, dp=4, mbs=2, recompute="selective", precision=precision)
    est, better = (
        tc.estimate(tc.load_model("llama-3-8b"), of, plan, gbs=32)
        for of in (
            machine,
            machine.with_figures({f"accelerator.{field}": getattr(machine.accelerator, field) * 1.1}),
        )
    )
    said = sensitivity(est)
    assert said[f"{field[:3]} FLOP/s"] == pytest.approx(better.step_seconds / est.step_seconds - 1, abs=1e-12)
    assert said[f"{field[:3]} FLOP/s"] < -0.001


def test_sensitivity_tries_every_tier():
    est = tc.estimate(
        tc.load_model("llama-3-8b"), tc.load_system("dgx-h100"), tc.Plan(tp=2, dp=128), gbs=1024
    )
    assert [name for name in sensitivity(est) if "network" in name] == [
        "fast network (nvlink)", "network (leaf)", "slow network (spine)",
    ]  # fmt: skip


def test_sensitivity_distinguishes_tiers_of_the_same_name():
    """Both tiers may be called the same, as where one file calls both "links": there are five figures
    nonetheless.
    """
    machine = system(1e15, inner="links", outer="links")
    said = tc.search(MODEL, machine, gpus=GPUS, gbs=GBS).explain()
    assert len(said.sensitivity) == 5


# Nothing fits -----------------------------------------------------------------------------------------------


def nothing_fits(strategy, share):
    """A search on 8 GPUs with a share of the least memory that one of its plans needs."""
    least = min(row[1] for row in everything(strategies=tuple(strategy.split(","))))
    return tc.search(MODEL, system(share * least), gpus=GPUS, gbs=GBS, strategy=strategy)


NOTHING = pytest.mark.parametrize(
    ("strategy", "share"),
    [
        ("1d", 0.9),
        ("summa", 0.5),
        ("context", 0.4),
        ("context,summa", 0.75),
        ("1d,summa,context", 0.8),
        ("1d,summa,context", 0.1),
    ],
)


@NOTHING
def test_fits_from_is_where_a_search_first_fits(strategy, share):
    found = nothing_fits(strategy, share)
    assert found.candidates > 0 == found.feasible
    gpus, least = found.explain().fits_from
    doublings = math.log2(gpus / GPUS)
    assert doublings == int(doublings) >= 1
    assert tc.search(MODEL, found.system, gpus=gpus, gbs=GBS, strategy=strategy).feasible > 0
    assert tc.search(MODEL, found.system, gpus=gpus // 2, gbs=GBS, strategy=strategy).feasible == 0
    assert least <= found.system.accelerator.hbm_bytes


@NOTHING
def test_fits_from_says_the_least_memory_any_plan_needs_there(strategy, share):
    """Of all strategies searched, as the text says: the leanest plan."""
    found = nothing_fits(strategy, share)
    gpus, least = found.explain().fits_from
    there = tc.search(MODEL, found.system, gpus=gpus, gbs=GBS, strategy=strategy, top=1)
    assert least == there.pareto()[-1][1].memory_bytes  # the Pareto front ends with the leanest


@NOTHING
def test_nearest_miss_is_the_leanest_of_all(strategy, share):
    found = nothing_fits(strategy, share)
    said = found.explain()
    assert said.miss[0] == min(everything(strategies=tuple(strategy.split(","))), key=by_memory)[4]
    assert (said.faster, said.unlimited) == (None, None)  # than what?
    assert said.sensitivity == {}
    assert all(row.best is None for row in said.degrees)


def test_too_little_memory_for_any_number_of_gpus():
    """A kilobyte: no number of GPUs helps, and the text does not promise one."""
    said = tc.search(MODEL, system(1e3), gpus=GPUS, gbs=GBS, strategy="1d").explain()
    assert said.fits_from is None
    assert said.miss is not None
    assert "GPUs instead" not in str(said)


@pytest.mark.parametrize("strategy", ["1d", "summa", "context", "1d,summa,context"])
def test_no_plan_meets_the_rules(strategy):
    """4096 = 2^12 has no factor 7, nor have 6 layers, 12 heads, or 1024 tokens: every way to use 7 GPUs
    breaks a rule.
    """
    found = tc.search(MODEL, system(1e15), gpus=7, gbs=4096, strategy=strategy)
    said = found.explain()
    assert (found.candidates, said.miss, said.fits_from, said.degrees) == (0, None, None, [])
    text = str(said)
    assert "small on 7 GPUs of by hand: no plan uses exactly so many GPUs" in text
    assert said.possible == [4, 8]  # domains of 4: the multiples on either side
    assert all(
        tc.search(MODEL, system(1e15), gpus=gpus, gbs=4096, strategy=strategy).candidates
        for gpus in said.possible
    )
    assert "Nearest numbers of GPUs that have candidates: 4, 8." in text
    named = [
        "tp does not divide the attention heads",
        "pp does not divide the layers",
        "dp does not divide the global batch",
    ]
    if strategy == "context":
        named.append("the tokens of a micro-batch do not divide over the tensor ranks")
    if strategy == "summa":
        named.append("tp2 does not divide the hidden width")
    for reason in named:
        assert f"{found.rejected[reason]}: {reason}" in text
    assert "does not fit in memory" not in text  # nothing came that far
    assert said.excluded == {"tp does not divide the attention heads": [7]}


# Text and data ----------------------------------------------------------------------------------------------


def test_text_names_the_best_plan():
    said = tc.search(MODEL, system(TIGHT), gpus=GPUS, gbs=GBS).explain()
    lines, text = said.lines(), str(said)
    assert str(said.miss[0]) not in "\n".join(lines[-6:])  # it does not fit, and is slower
    assert text == "\n".join(lines)
    for title, pair in {
        "Best alternative": said.plans[1],
        "Nearest to fitting that would be faster": said.faster,
        "Fastest if memory were unlimited": said.unlimited,
    }.items():
        at = next(i for i, line in enumerate(lines) if line.startswith(title))
        assert str(pair[0]) in "\n".join(lines[at : at + 2])
        change = pair[1].step_seconds / said.plans[0][1].step_seconds - 1
        assert ("(+" if change > 0 else "(-") in lines[at]
    assert "compute" in lines[0]
    assert "matrix FLOP/s -" in lines[1]
    slow = [
        row.degree
        for row in said.degrees
        if row.best and row.best[1].step_seconds > 3 * said.plans[0][1].step_seconds
    ]
    assert f"  {', '.join(map(str, slow))}: over 3 times as slow" in lines
    for row in said.degrees:
        if row.degree in slow:
            continue
        line = next(line for line in lines if line.startswith(f"  {row.degree:>4}: "))
        if row.best is None:
            assert f"needs {row.least_memory / 2**30:.1f} GiB of {TIGHT / 2**30:.1f} GiB" in line
        else:
            assert line.endswith(": the recommended plan") == (row.best[0] == said.plans[0][0])


@pytest.mark.parametrize(
    ("gpus", "gbs", "locks", "expected"),
    [
        (8, 8, {"tp": 5}, "tp = 5 does not divide 8 GPUs"),
        (16, 16, {"tp": 8, "pp": 4}, "tp × pp = 32 does not divide 16 GPUs"),
        (64, 64, {"tp": 64}, "tp = 64: tp does not divide the attention heads"),
        (64, 64, {"mbs": 128}, "mbs = 128 does not divide the global batch of 64 sequences"),
    ],
)
def test_text_where_locks_leave_no_plan_says_why(gpus, gbs, locks, expected):
    said = tc.search("llama-3-8b", "dgx-h100", gpus=gpus, gbs=gbs, locks=locks).explain()
    assert f"    {expected}" in said.lines()


def test_no_larger_job_than_the_machine_is_proposed():
    small = replace(tc.load_system("dgx-h100"), gpus=8)
    assert tc.search("llama-3-70b", "dgx-h100", gpus=8, gbs=8).explain().fits_from is not None
    assert tc.search("llama-3-70b", small, gpus=8, gbs=8).explain().fits_from is None


def test_memory_that_excludes_only_slower_plans():
    said = tc.search(MODEL, system(HALF), gpus=GPUS, gbs=GBS).explain()
    assert said.miss is not None
    vars(said)["_misses_by_name"] = dict.fromkeys(("faster", "unlimited")) | {"miss": said.miss}
    assert said.lines()[-1] == "Memory excludes no plan that would be faster."


def test_text_of_excluded_degrees():
    text = str(tc.search(MODEL, system(1e15), gpus=24, gbs=GBS).explain())
    assert "Not tried: tp = 8, 24: tp does not divide the attention heads." in text


def test_text_where_nothing_fits():
    found = nothing_fits("1d,summa,context", 0.8)
    said = found.explain()
    text = str(said)
    assert f"small on 8 GPUs of by hand: none of {found.candidates:,} candidates fits in memory." in text
    assert str(said.miss[0]) in text
    assert "(+25%) would make it fit" in text  # 1/0.8 − 1
    assert (
        f"Or {said.fits_from[0]} GPUs instead of 8: the plan of least memory then needs"
        f" {said.fits_from[1] / 2**30:.1f} GiB." in text
    )


@pytest.mark.parametrize("strategy", ["1d", "context"])
def test_components_named_as_cause_are_those_that_differ_most(strategy):
    """The line below the best alternative says by how much each component differs, largest first."""
    found = tc.search(MODEL, system(HALF), gpus=GPUS, gbs=GBS, strategy=strategy)
    (_, best), (_, second) = (found.answer(family.plan) for family in found.families[:2])
    largest = max((second.breakdown[name] - best.breakdown[name] for name in best.breakdown), key=abs)
    lines = found.explain().lines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Best alternative"))
    assert abs(largest) > 0
    assert re.split("[,;]", lines[at + 1])[0].endswith(f" {largest:+.3g} s")


def test_the_best_alternative_is_the_second_of_the_list():
    """A faster one loses by a preference, or as it is less likely to fit; both are said."""
    found = tc.search("llama-2-7b", "dgx-h100", gpus=8, gbs=64)
    (first, best), (second, other) = (found.answer(family.plan) for family in found.families[:2])
    assert found.explain().alternative == (second, other)
    assert other.step_seconds < best.step_seconds
    assert other.memory_bytes < best.memory_bytes
    line, _, why = found.explain().next_best()
    assert line.startswith(f"Best alternative: {other.step_seconds:.4g} s (-")
    assert [(plan.pp, plan.mbs) for plan in (first, second)] == [(1, 1), (2, 2)]
    assert (
        why
        == "    It is faster and leaner, but the recommended plan has the smallest micro-batch (1 against 2)."
    )
    search = partial(tc.search, "llama-3-8b", "dgx-h100", gpus=8, gbs=64)
    unlikely = search(locks={"recompute": "none", "mbs": 1})
    assert unlikely.explain().alternative[1].fits_probability < 0.9
    assert unlikely.explain().next_best()[-1].endswith("faster, but is less likely to fit.")
    assert len(search(objective="memory").explain().next_best()) == 2  # time does not rank


def test_accuracy_of_the_recommended_recipes_is_said_where_several_were_searched():
    search = partial(tc.search, "llama-3-8b", "dgx-h100", gpus=16, gbs=64)
    found = search(locks={"precision": ["bf16", "fp8-current"], "optimizer_kind": ["adam", "adam-8bit"]})
    plan, _ = found.recommended
    assert (plan.precision, plan.optimizer_kind) == ("fp8-current", "adam")
    (line,) = found.explain().chosen_accuracy()
    assert line.startswith("Accuracy with precision=fp8-current: ")
    assert "arXiv" in line
    assert line in found.explain().lines()
    assert search(locks={"precision": "fp8-current"}).explain().chosen_accuracy() == []


def test_plans_that_cost_the_same():
    """Without tensor parallelism SUMMA's panels cost nothing: one panel and two tie, and are one plan."""
    found = tc.search(MODEL, system(HALF), gpus=GPUS, gbs=GBS, strategy="summa")
    (first, best), (second, other) = found.plans[:2]
    assert replace(first, panels=2) == second
    assert best.step_seconds == other.step_seconds
    assert compare_with_best(found.plans[1], found.plans[0])[1] == "the same components"
    assert found.explain().alternative[0].to_dict() | {"panels": 1} != first.to_dict() | {"panels": 1}


def finite(value):
    """Whether all numbers in a nested structure are finite."""
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize(
    ("capacity", "gpus"),
    [(1e15, 8), (HALF, 8), (TIGHT, 8), (TIGHT / 10, 8), (1e3, 8), (1e15, 7), (HALF, 1), (HALF, 24)],
)
def test_data_is_json_without_nan_and_says_what_the_objects_say(capacity, gpus):
    said = tc.search(MODEL, system(capacity), gpus=gpus, gbs=GBS if gpus != 7 else 4096).explain()
    data = said.to_dict()
    assert finite(data)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert [row["degree"] for row in data["degrees"]] == [row.degree for row in said.degrees]
    assert data["text"] == said.lines()
    assert data["excluded_tp"] == said.excluded
    for name, pair in {
        "nearest_miss": said.miss,
        "nearest_faster_miss": said.faster,
        "unlimited_memory": said.unlimited,
    }.items():
        assert data[name] == (None if pair is None else pair[1].to_dict())
    assert data["fits_from"] == (
        said.fits_from and {"gpus": said.fits_from[0], "memory_bytes": said.fits_from[1]}
    )


def test_a_batch_that_shares_few_divisors_with_the_gpus_is_named():
    # 12 = 4 x 3 and 64: at most 4 replicas of 3 ranks; 60 = 12 x 5 is the next batch that 12 replicas divide
    said = "\n".join(tc.search("llama-3-8b", "dgx-h100", gpus=12, gbs=64).explain().binding())
    assert "dp is at most 4, which divides 12 GPUs and the global batch of 64: a replica" in said
    assert "dp can be 12 with a global batch of 60, or 8 on 8 GPUs." in said
    for gbs, near in ((127, "128"), (1_000_003, "1,000,000")):  # a prime: one replica
        lines = tc.search("llama-3-8b", "dgx-h100", gpus=64, gbs=gbs).explain().binding()
        assert lines[-1].endswith(f"64 ranks or more. dp can be 64 with a global batch of {near}.")
    for gbs in (60, 8):  # every dp is possible, or replicas of two ranks
        more = tc.search("llama-3-8b", "dgx-h100", gpus=16 if gbs == 8 else 12, gbs=gbs).explain().binding()
        assert "dp is at most" not in "\n".join(more)


def test_communication_is_named_by_the_axes_of_the_plans():
    tp, cp, both = tc.Plan(tp=2), tc.Plan(cp=2, cp_kind="ring"), tc.Plan(tp=2, cp=2, cp_kind="ring")
    names = [component_label("tp_comm", *plans) for plans in ((tp,), (cp,), (both,), (tp, cp), ())]
    assert names == [f"{axes} communication" for axes in ("TP", "CP", *["TP and CP"] * 3)]
