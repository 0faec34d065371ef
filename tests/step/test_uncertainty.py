"""Intervals, the probability that a plan fits, and the probability of rankings."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traincast as tc
from traincast.accuracy.runs.run import readable, rows
from traincast.accuracy.validation import validate
from traincast.catalog.software_stacks import Stack, calibrated, resolve
from traincast.core.assumptions import PAPER, Assumptions
from traincast.core.plan import Plan
from traincast.planner.answers.rankings import (
    ERROR_SAMPLES,
    RankedSoftware,
    difference_deviation,
    draw_near_best,
    plan_coordinates,
    plan_distance,
)
from traincast.step.fit_probability import fits_probability
from traincast.step.uncertainty import (
    COMPONENTS,
    SIZES,
    UNLIKE,
    Alternative,
    Asked,
    ErrorCase,
    Mixture,
    SoftwareShares,
    deviation,
    errors,
    interval,
    layer_work,
    measured_deviation,
    mixture_interval,
    outside_measured_range,
    student_below,
    widths,
)
from traincast.ui.cli.main import main

CALIBRATED = calibrated()

RUNS = Path(__file__).parents[1] / "data" / "my_runs.csv"
PUBLISHED = Path(__file__).parents[2] / "calibration" / "measured" / "published_runs.csv"
KNOWN = errors()
USUAL = ErrorCase(
    "megatron-core-2024",
    "H100 SXM5 80 GB",
    False,
    {
        "gpus": 256,
        "hidden": 8192,
        "layers": 80,
        "seq": 8192,
        "pp": 4,
        "ep": 1,
        "mbs": 1,
        "seconds": 5.0,
        "year": 2025,
    },
    dict.fromkeys(COMPONENTS, 0.05),
)
PLAN = Plan(tp=4, pp=4, vp=5, dp=8)
shares = st.floats(0, 0.3)
factors = st.floats(1.01, 1e3)


def estimate(**changes):
    return tc.estimate("llama-3-70b", "dgx-h100", replace(PLAN, **changes), gbs=512)


@given(seconds=st.floats(1e-3, 1e3), **dict.fromkeys(COMPONENTS, shares))
def test_an_interval_holds_its_prediction(seconds, **spent):
    low, high = interval(seconds, replace(USUAL, shares=spent))
    assert low < seconds < high
    assert np.log(high / seconds) / np.log(seconds / low) == pytest.approx(KNOWN.slower / KNOWN.faster)


@given(size=st.sampled_from(list(SIZES)), factor=factors, moe=st.booleans())
def test_intervals_widen_outside_measured_ranges(size, factor, moe):
    inside = replace(USUAL, moe=moe)
    inside = replace(inside, sizes={name: span.most for name, span in inside.spans(KNOWN).items()})
    beyond = replace(inside, sizes=inside.sizes | {size: inside.sizes[size] * factor})
    farther = replace(inside, sizes=inside.sizes | {size: inside.sizes[size] * factor * 2})
    assert outside_measured_range(inside) == []
    respects = outside_measured_range(beyond)
    assert len(respects) - ("no measured run is like this one" in respects) == 1
    known = replace(KNOWN, drifts=dict.fromkeys(KNOWN.drifts, 0.05))
    assert deviation(inside, known) < deviation(beyond, known) < deviation(farther, known)
    assert deviation(inside, KNOWN) <= deviation(beyond, KNOWN) <= deviation(farther, KNOWN)


def test_short_steps_widen_intervals_inside_measured_ranges():
    """By hand: a step of 0.5 s / e has shortness 1, and adds the variance of `short` once."""
    usual = measured_deviation(USUAL, KNOWN)
    half, short = (replace(USUAL, sizes=USUAL.sizes | {"seconds": t}) for t in (0.5, 0.5 / math.e))
    assert measured_deviation(half, KNOWN) == usual
    added = (USUAL.factor(KNOWN) * KNOWN.short) ** 2
    assert measured_deviation(short, KNOWN) ** 2 - usual**2 == pytest.approx(added)
    assert added > 0
    assert outside_measured_range(short) == []


def test_unmeasured_hardware_and_software_widen_intervals_and_are_named():
    software, chip = replace(USUAL, stack="mine"), replace(USUAL, accelerator="H1000")
    assert outside_measured_range(USUAL) == []
    assert outside_measured_range(software) == ["software without a run that constants are fitted to (mine)"]
    assert outside_measured_range(replace(USUAL, accelerator="H100 PCIe 80 GB")) == [
        "accelerator without a measured run (H100 PCIe 80 GB)"
    ]
    assert "no accelerator of its generation has one" in outside_measured_range(chip)
    assert outside_measured_range(replace(USUAL, precision="nvfp4")) == [
        "precision without a measured run on H100 SXM5 80 GB (nvfp4)"
    ]
    hybrid = replace(USUAL, layers=frozenset({"attention", "mamba2"}))
    assert outside_measured_range(hybrid) == []
    scans = (USUAL.factor(KNOWN) * KNOWN.scans) ** 2
    assert deviation(hybrid, KNOWN) ** 2 == pytest.approx(deviation(USUAL, KNOWN) ** 2 + scans)
    layers = replace(USUAL, layers=frozenset({"attention", "indexed"}))
    assert "layers without a measured run (indexed)" in outside_measured_range(layers)
    added = KNOWN.drifts["new_layers"] ** 2
    assert deviation(layers, KNOWN) ** 2 == pytest.approx(deviation(USUAL, KNOWN) ** 2 + added)
    assert deviation(chip, KNOWN) > deviation(USUAL, KNOWN)
    assert deviation(software, KNOWN) > deviation(USUAL, KNOWN)
    many = replace(USUAL, sizes=USUAL.sizes | {"gpus": 1e5, "seconds": 0.001, "year": 2031})
    spans = KNOWN.evidence.dense
    respects = outside_measured_range(many)
    assert [respect for respect in respects if "like this one" not in respect] == [
        f"more GPUs than any dense run (100,000 against {spans['gpus'].most:,.0f})",
        f"shorter steps than any dense run (seconds 0.001 against {spans['seconds'].least:.2g})",
        f"newer software than any dense run (year 2031 against {spans['year'].most:g})",
    ]


def test_what_is_outside_of_all_evidence_is_said_first():
    """Another accelerator, other layers and a size far beyond: more than twice the measured deviation."""
    far = replace(USUAL, accelerator="H1000", layers=frozenset({"rwkv"}), sizes=USUAL.sizes | {"seq": 1e7})
    assert deviation(far, KNOWN) > UNLIKE * measured_deviation(far, KNOWN)
    assert outside_measured_range(far)[0] == "no measured run is like this one"
    for alone in (replace(USUAL, accelerator="H1000"), replace(USUAL, layers=frozenset({"rwkv"}))):
        assert outside_measured_range(alone)[0] == "no measured run is like this one"
    small = replace(USUAL, tower_share=0.1)
    assert outside_measured_range(small) == ["layers without a measured run (vision tower)"]


@given(name=st.sampled_from(list(COMPONENTS)), small=shares, more=shares)
def test_larger_shares_of_uncertain_parts_widen_the_interval(name, small, more):
    little, much = (
        deviation(replace(USUAL, shares=USUAL.shares | {name: shares}), KNOWN)
        for shares in (small, small + more)
    )
    assert little <= much
    assert deviation(
        replace(USUAL, moe=True, sizes={n: s.most for n, s in KNOWN.evidence.moe.items()}), KNOWN
    ) > deviation(USUAL, KNOWN)


def test_an_estimate_and_its_row_among_others():
    alone = [estimate(pp=pp, dp=32 // pp) for pp in (4, 8, 16)]
    plans = tc.Plans(
        tp=4.0,
        pp=np.array([4.0, 8, 16]),
        dp=np.array([8.0, 4, 2]),
        vp=5.0,
        fast_tp=4.0,
        fast_dp=np.array([est.plan.fast_dp for est in alone], float),
        fast_pp=np.array([est.plan.fast_pp for est in alone], float),
    )
    together = tc.estimate("llama-3-70b", "dgx-h100", plans, gbs=512)
    for i, est in enumerate(alone):
        assert est.interval == pytest.approx([end[i] for end in together.interval])
        assert est.interval[0] < est.step_seconds < est.interval[1]
        assert est.fits_probability == pytest.approx(together.fits_probability[i])
        assert est.uncertainty() == dict(
            zip(
                ["step_seconds_low", "step_seconds_high", "fits_probability"],
                [*est.interval, est.fits_probability],
                strict=True,
            )
        )


def test_calibrated_is_the_usual_stack():
    named, stack = (
        tc.estimate("llama-3-70b", "dgx-h100", PLAN, gbs=512, assumptions=assumed)
        for assumed in ("calibrated", resolve("calibrated"))
    )
    assert named.outside == stack.outside
    assert named.interval == stack.interval
    stated = tc.estimate("llama-3-70b", "dgx-h100", PLAN, gbs=512, assumptions="megatron-core-2025")
    assert named.step_seconds == stated.step_seconds
    assert stated.interval[1] < named.interval[1]  # which leaves open what software runs
    renamed = tc.estimate(
        "llama-3-70b",
        "dgx-h100",
        PLAN,
        gbs=512,
        assumptions=replace(Stack("megatron-core-2025").assumptions, name="mine"),
    )
    assert renamed.outside == ["software without a run that constants are fitted to (mine)"]
    assert renamed.interval[1] > stated.interval[1]


def test_paper_has_no_intervals(capsys):
    plan = Plan(tp=8, pp=16, dp=16, fast_tp=8)
    est = tc.estimate("gpt3-1t", "h200-nvs8", plan, gbs=4096)
    assert not PAPER.errors_known
    assert CALIBRATED.errors_known
    assert (est.interval, est.fits_probability, est.outside, est.uncertainty()) == (None, None, [], {})
    assert tc.search("gpt3-1t", "h200-nvs8", gpus=512, gbs=4096, top=1).within_3_percent is None
    main(["estimate", "gpt3-1t", "--system", "h200-nvs8", "--tp", "8", "--pp", "16", "--dp", "16", "--json"])
    assert not {"step_seconds_low", "fits_probability", "outside_measured"} & set(
        json.loads(capsys.readouterr().out)["estimate"]
    )


@given(nbytes=st.floats(1e9, 1e12), capacity=st.floats(1e9, 1e12), more=st.floats(1.01, 10))
def test_probability_that_a_plan_fits(nbytes, capacity, more):
    some = fits_probability(nbytes, capacity, "torchtitan-2025")
    assert 0 <= some <= fits_probability(nbytes, capacity * more, "torchtitan-2025") <= 1
    usual = math.exp(KNOWN.memory_shift)  # measured memory over predicted
    assert fits_probability(nbytes, nbytes * usual, "mine") == pytest.approx(0.5)
    swapped = fits_probability(capacity, nbytes * usual**2, "torchtitan-2025")
    assert some + swapped == pytest.approx(1, abs=0.01), "but for what is allocated in any case"


def test_memory_at_the_bounds_of_its_interval():
    """By definition 5 % of errors are beyond each end of the interval of memory."""
    for stack, ninety in KNOWN.memory_stacks.items():
        nbytes = 1e12  # of which what is allocated in any case is nothing
        room = math.exp(ninety + KNOWN.memory_shifts[stack])
        assert fits_probability(nbytes, nbytes * room, stack) == pytest.approx(0.95, abs=1e-4)
    assert 0.5 < fits_probability(1e12, 1e12 * math.exp(KNOWN.memory), "mine") < 0.95


def spent(n):
    return {name: np.full(n, 0.1) for name in COMPONENTS}


def first_is_near_best(seconds, shares, plans):
    return draw_near_best(seconds, shares, plan_coordinates(plans))[:, 0].mean()


def test_the_first_of_a_ranking():
    plans = [Plan(tp=2**i, dp=2 ** (6 - i)) for i in range(6)]
    tied = [first_is_near_best(np.ones(n), spent(n), plans[:n]) for n in (2, 4, 6)]
    assert first_is_near_best(np.array([1.0]), spent(1), plans[:1]) == 1.0
    assert first_is_near_best(np.array([1.0, 3.0]), spent(2), plans[:2]) > 0.99
    assert 1 > tied[0] > tied[1] > tied[2] > 1 / 6
    assert first_is_near_best(np.ones(6), spent(6), plans[:1] * 6) == 1.0  # one plan, six times
    assert tied[0] == first_is_near_best(np.ones(2), spent(2), plans[:2])  # the same every time
    different = spent(2) | {"communication": np.array([0.0, 0.6])}  # what they are made of differs
    assert first_is_near_best(np.ones(2), different, plans[:2]) < tied[0]
    drawn = draw_near_best(np.array([1.0, 1.2]), spent(2), plan_coordinates(plans[:2]))
    assert drawn.any(axis=1).all()  # one of all is the best


def test_distance_of_plans():
    """Twice tp and half dp, another schedule: three steps."""
    first, other = plan_coordinates([Plan(tp=2, dp=8, pp=2), Plan(tp=4, dp=4, pp=2, schedule="zb-h1")])
    assert plan_distance(first, other) == pytest.approx(3)
    assert plan_distance(first, first) == 0


def test_a_search_states_the_probability_of_its_best_plan():
    found = tc.search("llama-3-8b", "dgx-h100", gpus=32, gbs=128, top=5)
    first, any_of = found.within_3_percent
    assert 0 < first < any_of < 1
    assert found.table()[0]["step_seconds_low"] < found.table()[0]["step_seconds"]
    assert (
        tc.search("llama-3-8b", "dgx-h100", gpus=32, gbs=128, top=5, objective="memory").within_3_percent
        is None
    )
    one = tc.search(
        "llama-3-8b",
        "dgx-h100",
        gpus=8,
        gbs=128,
        top=5,
        locks={"tp": 8, "zero": 1, "recompute": "none", "mbs": 1, "cp": 1, "vp": 1},
    )
    assert len({(plan.tp, plan.mbs) for plan, _ in one.plans}) == 1
    assert one.within_3_percent[1] > 0.9


def test_validation_states_intervals():
    report, paper = validate(RUNS), validate(RUNS, assumptions="paper")
    rows = [prediction for prediction in report.predictions if prediction.skipped is None]
    assert len(rows) > 1
    assert all(prediction.low < prediction.predicted_step_seconds < prediction.high for prediction in rows)
    assert report.coverage == sum(
        prediction.low <= prediction.measured_step_seconds <= prediction.high for prediction in rows
    ) / len(rows)
    assert all(prediction.low is None for prediction in paper.predictions)
    assert paper.coverage is None


def test_a_varied_accelerator_counts_as_unmeasured():
    unchanged, capacity, varied = (
        tc.estimate("llama-3-70b", system, plans, gbs=512)
        for plans in [tc.Plans(tp=4.0, pp=4.0, dp=8.0, vp=5.0, fast_tp=4.0)]
        for base in [tc.load_system("dgx-h100")]
        for system in (
            base,
            base.with_figures({"accelerator.hbm_bytes": np.array([40e9, 80e9])}),
            base.with_figures({"accelerator.matrix_flops": np.array([989.4e12, 2e15])}),
        )
    )
    assert capacity.interval[1] == pytest.approx(float(unchanged.interval[1]))
    assert capacity.fits_probability[0] < capacity.fits_probability[1]
    assert deviation(varied.case, KNOWN)[0] == pytest.approx(
        math.hypot(
            float(deviation(unchanged.case, KNOWN)),
            KNOWN.drifts["new_accelerator"] * float(varied.case.products_share[0]),
            KNOWN.drifts["new_generation"],
        )
    )


def test_studies_state_intervals():
    pytest.importorskip("polars")
    table = tc.study(
        models=["llama-3-8b"],
        systems=["dgx-h100"],
        gpus=[16],
        strategies=["1d"],
        gbs=64,
        assumptions="calibrated",
    ).frame
    assert (table["step_seconds_low"] < table["step_seconds"]).all()
    assert (table["step_seconds_high"] > table["step_seconds"]).all()
    assert table["fits_probability"].is_between(0.5, 1).all()
    assert (
        "step_seconds_low"
        not in tc.study(
            models=["gpt3-175b"], systems=["h200-nvs8"], gpus=[64], strategies=["1d"], gbs=1024
        ).frame.columns
    )


SIX = [Plan(tp=2**i, dp=2 ** (6 - i)) for i in range(6)]


def ranked(*ratios, weights=None, factors=None):
    n = len(ratios)
    weights, factors = weights or [1 / n] * n, factors or [1.0] * n
    return RankedSoftware(np.array(weights), np.array(ratios, float), np.array(factors))


def drawn(software=None, seconds=None, plans=SIX, **options):
    seconds = np.linspace(1, 1.05, len(plans)) if seconds is None else seconds
    knobs = plan_coordinates(plans)
    return draw_near_best(seconds, spent(len(plans)), knobs, software=software, **options)


def test_draws_of_one_software_are_those_of_it_stated():
    """Byte for byte, with its factor of errors; what it changes of all plans is no ranking."""
    stated = drawn(factor=1.3)
    assert (drawn(ranked([0.0] * 6, factors=[1.3])) == stated).all()
    assert (drawn(ranked([0.2] * 6, factors=[1.3])) == stated).all()
    twice = ranked([0.0] * 6, [0.0] * 6, factors=[1.3, 1.3])
    assert (drawn(twice) == stated).all()


def test_software_that_ranks_plans_otherwise_makes_the_first_less_likely():
    """One of two software takes e^0.4 as long with the first plan: its probability is between both."""
    slower = [0.4, 0, 0, 0, 0, 0]
    one, other = (drawn(ranked(ratios))[:, 0].mean() for ratios in ([0.0] * 6, slower))
    both = drawn(ranked([0.0] * 6, slower))[:, 0].mean()
    assert other + 0.1 < both < one - 0.1
    assert both == pytest.approx((one + other) / 2, abs=0.03)
    seldom = drawn(ranked([0.0] * 6, slower, weights=[0.9, 0.1]))[:, 0].mean()
    assert both < seldom < one


def test_probabilities_of_the_best_add_up_to_one_and_draws_are_the_same_every_time():
    software = ranked([0.0, 0.1, 0, 0, 0, 0], [0, 0, 0.3, 0, -0.1, 0], weights=[0.3, 0.7], factors=[1, 1.5])
    best = drawn(software, within=0.0)
    assert best.mean(axis=0).sum() == pytest.approx(1)  # one plan of each draw
    assert best.tobytes() == drawn(software, within=0.0).tobytes()
    assert software.drawn.tolist().count(0) == round(0.3 * ERROR_SAMPLES)


def test_software_in_a_ranking_from_times():
    """By hand: plan 2 was not timed under the second, and has the mean; no plan was under the third."""
    names = {"torchtitan-2025": 0.5, "mine": 0.25, "nemo-2025": 0.25}
    times = {"torchtitan-2025": np.array([2.0, 4, 4]), "mine": np.array([1.0, math.e, np.nan])}
    found = RankedSoftware.from_times(names, np.array([1.0, 1, 2]), times)
    assert found.weights.tolist() == [0.5, 0.25, 0.25]
    log2 = math.log(2)
    assert found.ratios[0] == pytest.approx(np.array([log2, 2 * log2, log2]) - 4 * log2 / 3)
    assert found.ratios[1] == pytest.approx([-0.5, 0.5, 0])
    assert found.ratios[2].tolist() == [0, 0, 0]
    assert found.factors.tolist() == [
        KNOWN.stacks["torchtitan-2025"],
        KNOWN.other_stacks,
        KNOWN.stacks["nemo-2025"],
    ]
    assert RankedSoftware.from_times({}, np.ones(2), {}) is None
    assert found.roots.T @ found.roots == pytest.approx(
        np.cov(found.ratios, aweights=found.weights, rowvar=False, ddof=0)
    )


def test_software_that_changes_rankings_less_than_a_fifth_of_their_errors_is_slight():
    """By hand: of ratios of ±x the deviation is x."""
    own = KNOWN.own * KNOWN.apart / 1.6449
    for times, slight in ((0.19, True), (0.21, False)):
        software = ranked([times * own, -times * own], [times * own, -times * own])
        assert software.is_slight is slight
        assert ranked([0.0, 9.0, 0.0], [0.0, 9.0, 0.0]).of_plans([0, 2]).is_slight
    experts = tc.search("qwen3-30b-a3b", "dgx-h100", gpus=16, gbs=64, top=5, framework="megatron")
    dense = tc.search("llama-3-8b", "dgx-h100", gpus=16, gbs=64, top=5, framework="megatron")
    for found, slight in ((experts, False), (dense, True)):
        estimates = [est for _, est in found.plans]
        seconds = {
            name: np.array([float(est.software_seconds(est.plan.columns())[name]) for est in estimates])
            for name in estimates[0].ranking_software
        }
        predicted = np.array([est.step_seconds for est in estimates])
        software = RankedSoftware.from_times(estimates[0].ranking_software, predicted, seconds)
        assert software.is_slight is slight


def test_differences_between_plans_are_less_sure_where_software_is_open():
    knobs = plan_coordinates(SIX[:2])
    sure, open_still = (
        difference_deviation(spent(2), knobs, 1.0, software)
        for software in (ranked([0.0, 0.0]), ranked([0.0, 0.2], [0.0, -0.2]))
    )
    assert (sure == difference_deviation(spent(2), knobs)).all()
    assert open_still[0, 1] ** 2 == pytest.approx(sure[0, 1] ** 2 + 0.2**2)  # half of the time either way


def test_a_search_draws_the_software_that_is_left_open():
    """One alternative, the stack itself, is as if it were stated; several of experts rank otherwise."""
    stack = Stack("megatron-core-deepep").assumptions
    asked = {"gpus": 16, "gbs": 256, "top": 5, "framework": "megatron", "locks": {"tp": 1, "cp": 1}}
    stated, one, several = (
        tc.search("qwen3-30b-a3b", "dgx-h100", assumptions=replace(stack, unsaid=unsaid), **asked)
        for unsaid in ((), ("megatron-core-deepep",), ("megatron-core-deepep", "nemo-2025"))
    )
    assert one.within_3_percent == stated.within_3_percent
    assert one.confidence == stated.confidence
    assert several.within_3_percent != stated.within_3_percent
    assert 0 < several.within_3_percent[0] <= several.within_3_percent[1] < 1
    assert several.recommended[1].ranking_software.keys() == {"megatron-core-deepep", "nemo-2025"}


# Software that a question leaves open -----------------------------------------------------------------------


SHARES = SoftwareShares(
    configurations={
        Asked("dense", "hopper", "16", "flash"): {"nemo-2025": 3.0, "torchtitan-2025": 1.0},
        Asked("dense", "hopper", "low", "flash"): {"nemo-2025": 4.0},
        Asked("experts", "tpu", "16", "flash"): {"maxtext-2025": 2.0},
    },
    releases={},
    generations={"H100 SXM5 80 GB": "hopper"},
    prior=2.0,
    spread=0.1,
    open=0.05,
    open_moe=0.08,
    release=0.06,
    release_moe=0.03,
)


def test_shares_of_software_are_those_of_the_runs_most_alike():
    """By hand, of 10 configurations: all 7:1:2, dense 7:1 of 8, hopper the same, 16 bits 3:1 of 4,
    flash the same.

    Each with 2 configurations of the one before: dense (7 + 2 · 0.7, 1 + 2 · 0.1, 2 · 0.2) of 10, and so on.
    """
    expected = np.array([0.7, 0.1, 0.2])
    for found in ([7, 1, 0], [7, 1, 0], [3, 1, 0], [3, 1, 0]):
        expected = (np.array(found) + 2 * expected) / (sum(found) + 2)
    shares = SHARES.shares_like(Asked("dense", "hopper", "16", "flash"))
    names = ["nemo-2025", "torchtitan-2025"]  # of the third less than a twentieth of the first
    assert [shares[name] for name in names] == pytest.approx(expected[:2])
    assert expected[2] < 0.05 * expected[0]
    assert list(shares) == names
    named = SHARES.shares_like(Asked("dense", "hopper", "16", "flash"), ("torchtitan-2025", "pytorch"))
    assert named == {"torchtitan-2025": 1.0}
    assert SHARES.shares_like(Asked("dense", "hopper", "16", "flash"), ("pytorch",)) == {}


def test_facts_leave_the_software_that_can_have_them():
    """By the files of stacks: torchtitan's loss is fused, NeMo's is not stated, and both have all-to-all."""
    asked = Asked("dense", "hopper", "16", "flash")
    usual = SHARES.shares_like(asked)
    assert SHARES.shares_with_facts(asked, None, {}) == usual
    whole = SHARES.shares_with_facts(asked, None, {"loss": "whole"})
    assert list(whole) == ["nemo-2025+loss=whole"]
    fused = SHARES.shares_with_facts(asked, None, {"loss": "fused"})
    assert list(fused) == ["nemo-2025+loss=fused", "torchtitan-2025"]
    assert list(fused.values()) == pytest.approx(list(usual.values()))
    both = ("nemo-2025", "torchtitan-2025")
    none_has_it = SHARES.shares_with_facts(asked, both, {"dispatcher": "hybridep"})
    assert list(none_has_it) == [f"{name}+dispatcher=hybridep" for name in both]
    assert sum(none_has_it.values()) == pytest.approx(1)
    dated = SHARES.shares_with_facts(
        asked, ("nemo-2024", "nemo-2025", "megatron-core-2024"), {"released": "2024-12"}
    )
    assert list(dated) == ["megatron-core-2024"]  # what the other was then


def test_what_is_given_is_saved_with_assumptions():
    est = tc.estimate("llama-3-70b", "dgx-h100", PLAN, gbs=512, given={"graphs": "none", "loss": "fused"})
    assert est.assumptions.given == (("graphs", "none"), ("loss", "fused"))
    assert Assumptions.from_dict(json.loads(json.dumps(asdict(est.assumptions)))) == est.assumptions


def test_a_mixture_of_one_is_its_interval_and_of_two_holds_both():
    one = [Alternative(1.0, 5.0, USUAL)]
    low, high, median = mixture_interval(one, KNOWN)
    assert (low, high) == pytest.approx(interval(5.0, USUAL, KNOWN), rel=1e-6)
    assert median == pytest.approx(5.0)
    wide = mixture_interval(one, KNOWN, spread=0.2)
    assert wide[:2] == pytest.approx(interval(5.0, USUAL, KNOWN, 0.2), rel=1e-6)
    low, high, median = mixture_interval([*one, Alternative(1.0, 8.0, USUAL)], KNOWN)
    assert low < 5 < median < 8 < high
    assert median == pytest.approx(40**0.5, rel=0.02)  # between them, where half of each is
    rare = mixture_interval([Alternative(0.99, 5.0, USUAL), Alternative(0.01, 8.0, USUAL)], KNOWN)
    assert rare[:2] == pytest.approx(interval(5.0, USUAL, KNOWN), rel=0.02)


@pytest.mark.parametrize("rows", [(), (5,), (2, 3)], ids=["a number", "a column", "a table"])
def test_quantiles_are_found_together_and_are_those_of_each_row_alone(rows):
    """To the bit; and their shares lie below them."""
    rng = np.random.default_rng(len(rows))
    middle = rng.normal(1.0, 0.3, (4, *rows))
    weights = np.array([0.1, 0.2, 0.3, 0.4]).reshape(-1, *(1,) * len(rows))
    low = middle - rng.random(middle.shape)
    high = middle + rng.random(middle.shape)
    together = Mixture(weights, middle, low, high).quantiles(0.05, 0.5, 0.95)
    for row in np.ndindex(rows):
        alone = Mixture(weights.ravel(), *(of[:, *row] for of in (middle, low, high)))
        for share, times in zip((0.05, 0.5, 0.95), together, strict=True):
            (time,) = alone.quantiles(share)
            assert np.asarray(times)[row] == time
            assert float(alone.share_below(np.log(time))) == pytest.approx(share, abs=1e-7)


def test_90_percent_of_draws_from_a_mixture_lie_in_its_interval():
    """Seed 7: software by its weight, and Student's t of four degrees of freedom with its own ends."""
    rng, parts = np.random.default_rng(7), [Alternative(0.7, 5.0, USUAL), Alternative(0.3, 7.0, USUAL)]
    low, high, _ = mixture_interval(parts, KNOWN)
    seconds = rng.choice([5.0, 7.0], 100_000, p=[0.7, 0.3])
    ends = [np.log(end / 5.0) for end in interval(5.0, USUAL, KNOWN)]
    off = rng.standard_t(4, 100_000) / 2.1318  # 90 % of t are within, in tables
    drawn = seconds * np.exp(np.where(off < 0, -off * ends[0], off * ends[1]))
    assert np.mean((low <= drawn) & (drawn <= high)) == pytest.approx(0.9, abs=0.005)
    assert np.mean(drawn < low) == pytest.approx(0.05, abs=0.005)


def test_the_distribution_of_errors_is_that_of_tables():
    """Student's t with four degrees of freedom: 75, 90, 95, 97.5 % below 0.741, 1.533, 2.132, 2.776."""
    ends = np.array([0.0, 0.741, 1.533, 2.132, 2.776, -2.132]) / 2.1318
    assert student_below(ends) == pytest.approx([0.5, 0.75, 0.9, 0.95, 0.975, 0.05], abs=2e-4)


def test_a_release_without_measured_runs_widens_an_interval_and_is_said():
    """A row of Megatron-Bridge, once of a release that has runs and once of the next, all else alike."""
    table = [row for row in rows(PUBLISHED) if row["framework"] == "Megatron-Bridge" and row["released"]]
    of_experts = [row for row in table if row["experts"] and row["dispatcher"]]
    row = next(row for row, run in readable(of_experts) if not isinstance(run, str))
    measured, new = (
        tc.validate([{**row, "released": date}]).predictions[0] for date in (row["released"], "2031-05")
    )
    half = [np.log(item.high / item.low) / 2 for item in (measured, new)]
    ends = (KNOWN.faster_moe + KNOWN.slower_moe) / 2
    assert new.predicted_step_seconds == pytest.approx(measured.predicted_step_seconds)
    assert half[1] ** 2 == pytest.approx(half[0] ** 2 + (ends * KNOWN.software.release_moe) ** 2, rel=0.01)
    read_row = next(run for _, run in readable([{**row, "released": "2031-05"}]))
    assert read_row.new_release
    assert not next(run for _, run in readable([row])).new_release
    assert not next(run for _, run in readable([{**row, "released": ""}])).new_release
    stack = replace(Stack(read_row.stack).assumptions, new_release=True)
    est = tc.estimate("llama-3-70b", "dgx-h100", PLAN, gbs=512, assumptions=stack)
    assert any(said.startswith("never measured: this release of the software") for said in est.uncertain_of)
    assert Assumptions.from_dict(asdict(stack)) == stack


def test_a_question_that_states_nothing_of_software_has_the_widest_interval():
    """Of a stack of which pipelined runs were measured: stated, one of its framework, or any."""
    stack, framework = Stack("megatron-core-2024").assumptions, Stack("megatron-core-2024").releases
    stated, named, open_to_any = (
        tc.estimate("llama-3-70b", "dgx-h100", PLAN, gbs=512, assumptions=replace(stack, unsaid=unsaid))
        for unsaid in ((), framework, Stack.ANY)
    )
    assert stated.step_seconds == named.step_seconds == open_to_any.step_seconds
    widths = [np.log(est.interval[1] / est.interval[0]) for est in (stated, named, open_to_any)]
    assert max(widths[:2]) < widths[2]  # the framework's other stacks may be surer than the one stated
    assert stated.alternatives == ()
    assert {part.case.stack for part in named.alternatives} < set(framework)
    assert {part.case.stack for part in open_to_any.alternatives} - set(framework)


@pytest.mark.parametrize(
    ("model", "ep", "has_experts"), [("llama-3-8b", 1, False), ("mixtral-8x7b", 8, True)]
)
def test_facts_of_experts_narrow_nothing_of_a_model_without_them(model, ep, has_experts):
    est = tc.estimate(model, "dgx-h100", tc.Plan(tp=2, dp=32, ep=ep), gbs=64)
    asked = {option.split("=")[0] for option, _ in est._narrowing_options()}
    of_all = {"--framework megatron", "--given overlap"}
    assert asked == of_all | ({"--given dispatcher", "--given grouped"} if has_experts else set())


def test_an_answer_says_what_its_width_is_made_of_the_largest_first():
    """A framework without runs of experts, an accelerator of a generation without runs, software unsaid."""
    est = tc.estimate("llama-3-70b", "mi325x-node", PLAN, gbs=512)
    halves = [width.half for width in est.widths]
    assert halves == sorted(halves, reverse=True)
    said = [width.due_to for width in est.widths]
    assert "software not stated" in said
    assert "never measured: no accelerator of its generation has one" in said
    assert est.uncertain_of == [str(width) for width in est.widths]
    assert est.uncertain_of[0].endswith("%")
    assert est.narrower[0] == est.narrowed_by == "--framework megatron"
    assert est.narrower.half < est.narrower.of == pytest.approx(np.log(est.interval[1] / est.interval[0]) / 2)
    stated = tc.estimate("llama-3-70b", "mi325x-node", PLAN, gbs=512, assumptions="megatron-core-2025")
    assert stated.narrowed_by is None
    assert not any("not stated" in width.due_to for width in stated.widths)


def test_less_work_a_micro_batch_than_in_any_run_is_said_and_widens():
    """By hand: 12 h² weights of a layer, 2 FLOP each, and half of the scores, of 2,048 tokens of a rank."""
    h, seq = 4096, 4096
    model = tc.Model(name="gpt", layers=4, hidden=h, heads=32, ffn=4 * h, seq=seq, vocab=32000, causal=True)
    plans = tc.Plan(tp=2, cp=2, cp_kind="ring", dp=2, mbs=2).columns()
    weights, scores = 2 * 12 * h**2, 4 * h * (seq + 1) / 2
    assert layer_work(model, plans) == pytest.approx((weights + scores) * 2 * seq / 4, rel=1e-3)
    least = KNOWN.evidence.moe["work"].least
    case = replace(USUAL, moe=True, sizes={n: s.most for n, s in KNOWN.evidence.moe.items()})
    little = replace(case, sizes=case.sizes | {"work": least / math.e})
    added = deviation(little, KNOWN) ** 2 - deviation(case, KNOWN) ** 2
    assert added == pytest.approx(KNOWN.drifts["work"] ** 2)
    tiny = tc.estimate("qwen3-30b-a3b", "dgx-h100", Plan(tp=4, dp=8, ep=8), gbs=1024)
    assert tiny.case.sizes["work"] < least
    assert any("less work a micro-batch than any mixture-of-experts run" in line for line in tiny.outside)
    assert any("less work a micro-batch" in part for part in tiny.uncertain_of)


def test_a_cell_with_few_configurations_is_said_and_widens():
    """Cells of the file: three configurations count as measured, two do not; by column of plans as alone."""
    cells = {"a, x86, pipelined": 3.0, "a, x86, one stage": 2.0, "a, Grace, pipelined": 9.0}
    known = replace(KNOWN, evidence=replace(KNOWN.evidence, cells=cells, stacks=frozenset({"a"})))
    case = replace(USUAL, stack="a", sizes=USUAL.sizes | {"pp": np.array([1, 2, 4])})
    assert case.in_few(known.evidence).tolist() == [1, 0, 0]
    across = replace(case, across=np.array([False, True, False]))
    assert across.in_few(known.evidence).tolist() == [1, 1, 0]
    one = replace(case, sizes=USUAL.sizes | {"pp": 1})
    many = replace(case, sizes=USUAL.sizes | {"pp": 2})
    added = deviation(one, known) ** 2 - deviation(many, known) ** 2
    assert added == pytest.approx(KNOWN.drifts["new_cell"] ** 2)
    stated = tc.estimate("llama-3-70b", "dgx-h100", PLAN, gbs=512, assumptions="megatron-core-2025")
    assert any(
        "fewer than 3 measured configurations of megatron-core-2025 on x86" in line for line in stated.outside
    )


def test_an_interval_is_said_to_be_made_of_what_alone_is_1_percent_wide():
    known = errors()
    scale = (known.faster + known.slower) / 2
    case = tc.estimate("llama-3-70b", "dgx-h100", PLAN, gbs=512, assumptions="megatron-core-2025").case
    for half, is_said in ((0.0099, False), (0.0101, True)):
        said = [width.due_to for width in widths(case, release=half / scale)]
        assert ("never measured: this release of the software" in said) == is_said


@pytest.mark.parametrize("system", ["dgx-a100", "mi300x-node", "frontier"])
@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3"])
def test_an_option_that_narrows_by_less_than_1_percent_is_not_named(model, system):
    """`--given overlap=all` takes 0.004 % of the width of DeepSeek-V3 on A100; the whole stack a third."""
    plan = Plan(ep=8, dp=8, pp=4) if model == "deepseek-v3" else Plan(tp=4, dp=2)
    narrower = tc.estimate(model, system, plan, gbs=64).narrower
    assert narrower is None or narrower.half <= 0.99 * narrower.of
