"""Search against brute force: the estimate of every candidate."""

import json
import pickle
from copy import copy, deepcopy
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

import traincast as tc
from traincast.core.knobs import CHOICES, KNOBS, STRATEGIES
from traincast.core.nomenclature import COLUMNS
from traincast.planner import search_result
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.frameworks.history import FEATURES, FORMER
from traincast.planner.frameworks.spaces import FRAMEWORKS
from traincast.planner.space.enumeration import _enumerate, enumerate_space
from traincast.planner.space.evaluation import OUT_OF_MEMORY
from traincast.planner.space.search_space import report_progress_to
from traincast.planner.space.wanted_lists import OnePass
from traincast.step.pipeline_stages import distinct_devices
from traincast.step.validity import reasons

MODEL = tc.Model(name="small", layers=6, hidden=1536, heads=12, ffn=6144, seq=1024)
GBS = 24
GPUS = 8
PAPER = FRAMEWORKS["paper"].strategies


def system(hbm_bytes, domain=4, **chip):
    """A system with the given memory."""
    figures = {"matrix_flops": 100e12, "vector_flops": 10e12, "hbm_bandwidth": 1e12} | chip
    return tc.System(
        name="by hand",
        accelerator=tc.Accelerator(name="chip", hbm_bytes=hbm_bytes, **figures),
        tiers=(
            tc.Tier(name="links", bandwidth=100e9, efficiency=0.7, latency=2.5e-6, size=domain),
            tc.Tier(name="network", bandwidth=10e9, efficiency=0.7, latency=5e-6),
        ),
    )


def everything(machine, gpus=GPUS, strategies=PAPER, model=MODEL, gbs=GBS):
    """Every candidate with its estimate: (time, memory, place of the strategy, place in the enumeration,
    plan).
    """
    rows = []
    for which, strategy in enumerate(strategies):
        space = enumerate_space(model, (gpus,), machine.fast_domain, gbs, CandidateBatch(strategy))
        plans = space.plans(*space.candidates(np.arange(len(space.counts))))
        for number in range(int(space.counts.sum())):
            plan = plans.row(number)
            est = tc.estimate(model, machine, plan, gbs=gbs)
            rows.append((est.step_seconds, est.memory_bytes, which, number, plan))
    return rows


def front(rows):
    """(time, memory) of rows that no other row beats: by none faster or leaner without being worse in the
    other.
    """
    points = {row[:2] for row in rows}
    return sorted(p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points))


ROOMY = system(1e15)
EVERY = everything(ROOMY)  # time and memory do not depend on the capacity
MEDIAN = float(np.median([row[1] for row in EVERY]))
# A machine so fast that launches are all there is to time: many candidates tie
TIED = replace(
    system(1e15, matrix_flops=1e60, vector_flops=1e60, hbm_bandwidth=1e60),
    tiers=tuple(
        tc.Tier(name=name, bandwidth=1e60, efficiency=1.0, latency=0.0, size=size)
        for name, size in (("links", 4), ("network", None))
    ),
)


# Against brute force ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1e15, MEDIAN], ids=["all fit", "half fit"])
def test_plans_are_the_best_of_all_candidates_in_order(capacity):
    found = tc.search(MODEL, system(capacity), gpus=GPUS, gbs=GBS, top=50)
    fitting = sorted(row for row in EVERY if row[1] <= capacity)
    assert len(fitting) > 100
    assert [plan for plan, _ in found.plans] == [row[4] for row in fitting[:50]]
    assert [est.step_seconds for _, est in found.plans] == [row[0] for row in fitting[:50]]
    assert [est.memory_bytes for _, est in found.plans] == [row[1] for row in fitting[:50]]
    assert all(est.fits for _, est in found.plans)
    assert found.best == found.plans[0]
    assert found.least_seconds == fitting[0][0]
    assert found.candidates == len(EVERY)
    assert found.feasible == len(fitting)
    assert found.rejected[OUT_OF_MEMORY] == len(EVERY) - len(fitting)


@pytest.mark.parametrize(
    "strategies", [("1d", "summa", "context"), ("context", "1d"), ("summa", "context", "1d")], ids=",".join
)
def test_ties_go_by_memory_then_strategy_as_asked_then_enumeration(strategies):
    rows = sorted(everything(TIED, strategies=strategies))
    assert len({row[0] for row in rows}) < len(rows) / 10  # hardly anything but ties in time
    assert any(
        a[:2] == b[:2] and a[2] != b[2] for a, b in pairwise(rows)
    )  # also in memory, across strategies
    assert any(a[:3] == b[:3] for a, b in pairwise(rows))  # and within one
    for top in (1, 2, 7, len(rows)):
        found = tc.search(MODEL, TIED, gpus=GPUS, gbs=GBS, strategy=strategies, top=top)
        assert [plan for plan, _ in found.plans] == [row[4] for row in rows[:top]]


@pytest.mark.parametrize("few", [0, np.inf], ids=["few evaluated", "all evaluated"])
@pytest.mark.parametrize("capacity", [1e15, MEDIAN], ids=["all fit", "half fit"])
@pytest.mark.parametrize("strategy", ["1d", "summa", "1d,summa,context"])
def test_pareto_front_is_that_of_all_candidates(strategy, capacity, few, monkeypatch):
    monkeypatch.setattr(search_result, "FEW_CANDIDATES", few)
    asked = strategy.split(",")
    rows = [row for row in EVERY if row[1] <= capacity and PAPER[row[2]] in asked]
    found = tc.search(MODEL, system(capacity), gpus=GPUS, gbs=GBS, strategy=strategy, top=1).pareto()
    assert [(est.step_seconds, est.memory_bytes) for _, est in found] == front(rows)
    assert len(found) > 1  # fastest first, leanest last, and something between to choose from
    of_equals = {row[:2]: row[4] for row in sorted(rows, reverse=True)}  # the first in order, of equals
    assert [plan for plan, _ in found] == [of_equals[est.step_seconds, est.memory_bytes] for _, est in found]


def test_pareto_front_of_a_machine_where_all_tie():
    found = tc.search(MODEL, TIED, gpus=GPUS, gbs=GBS).pareto()
    assert [(est.step_seconds, est.memory_bytes) for _, est in found] == front(everything(TIED))


def test_capacity_is_what_may_be_filled():
    """A plan that fills the memory to the byte fits; one byte less and it does not."""
    leanest = min(row[1] for row in EVERY)
    holders = sum(row[1] == leanest for row in EVERY)
    assert tc.search(MODEL, system(leanest), gpus=GPUS, gbs=GBS).feasible == holders > 0
    assert tc.search(MODEL, system(leanest - 1), gpus=GPUS, gbs=GBS).feasible == 0


@pytest.mark.parametrize("gpus", [1, 2, 3, 6, 12])
def test_other_job_sizes_against_brute_force(gpus):
    """1, 2, 3: a job inside one domain; 6: cannot fill domains of 4; 12: fills three."""
    rows = sorted(everything(ROOMY, gpus=gpus))
    found = tc.search(MODEL, ROOMY, gpus=gpus, gbs=GBS, top=20)
    assert found.candidates == len(rows)
    assert (len(rows) == 0) == (gpus == 6)
    assert [plan for plan, _ in found.plans] == [row[4] for row in rows[:20]]
    assert all(plan.gpus == gpus for plan, _ in found.plans)


# One search against another ---------------------------------------------------------------------------------


def shown(found):
    """Everything a search reports, except the request."""
    return (
        found.table(),
        found.candidates,
        found.feasible,
        found.rejected,
        [(str(plan), est.to_dict()) for plan, est in found.pareto()],
    )


@pytest.mark.parametrize("exhaustive", [False, True])
def test_progress_moves_while_plans_are_enumerated_and_can_end_the_search(exhaustive):
    question = {"gpus": 16, "gbs": GBS, "framework": "any", "exhaustive": exhaustive}
    steps = []
    found = tc.search("mixtral-8x7b", "dgx-h100", **question, progress=lambda *step: steps.append(step))
    done, totals, candidates = zip(*steps, strict=True)
    shapes = len(found.work.outlines)
    assert done[:shapes] == tuple(range(1, shapes + 1))  # each shape of batches as it is enumerated
    assert list(done) == sorted(set(done))
    assert {done[-1]} == set(totals)
    assert sum(candidates) == found.candidates

    class Cancelled(Exception):
        pass

    def ending(stop):
        def progress(done, total, candidates):
            if done >= stop:
                raise Cancelled

        return progress

    for stop in (1, shapes + 1, totals[0]):  # also in the midst of counts, and of bounds
        with pytest.raises(Cancelled):
            tc.search("mixtral-8x7b", "dgx-h100", **question, progress=ending(stop))


def test_answers_report_what_they_evaluate_and_go_on_where_they_were_ended():
    question = {"gpus": 16, "gbs": GBS, "framework": "megatron"}
    found, ended = (tc.search("mixtral-8x7b", "dgx-h100", **question) for _ in range(2))
    shares = []
    with report_progress_to(shares.append):
        lines = found.explain().lines()
    assert len(shares) > 2  # rounds
    assert shares == sorted(set(shares))
    assert shares[0] > 0
    assert shares[-1] < 1

    class Cancelled(Exception):
        pass

    def end(share):
        raise Cancelled

    with pytest.raises(Cancelled), report_progress_to(end):
        ended.explain()
    assert ended.explain().lines() == lines


def test_lists_are_ended_before_anything_is_evaluated_for_them(monkeypatch):
    """Bounds of rows take as long as evaluation does: whoever waits no longer is heard between them too."""
    monkeypatch.setattr(search_result, "FEW_CANDIDATES", 0)
    monkeypatch.setattr(OnePass, "_evaluate", None)
    found = tc.search("mixtral-8x7b", "dgx-h100", gpus=16, gbs=GBS, framework="megatron")
    _ = found.plans

    class Cancelled(Exception):
        pass

    def end(share):
        raise Cancelled

    with pytest.raises(Cancelled), report_progress_to(end):
        found.find_lists()


def test_twice_the_same():
    once = shown(tc.search(MODEL, system(MEDIAN), gpus=GPUS, gbs=GBS))
    _enumerate.cache_clear()
    distinct_devices.cache_clear()
    assert shown(tc.search(MODEL, system(MEDIAN), gpus=GPUS, gbs=GBS)) == once


@pytest.mark.parametrize(
    "strategies", [*permutations(PAPER), *combinations(STRATEGIES, 2), tuple(STRATEGIES)], ids=",".join
)
def test_several_strategies_are_single_searches_merged(strategies):
    machine = system(MEDIAN)
    together = tc.search(MODEL, machine, gpus=GPUS, gbs=GBS, strategy=strategies, top=30, framework="paper")
    alone = [
        tc.search(MODEL, machine, gpus=GPUS, gbs=GBS, strategy=name, top=30, framework="paper")
        for name in strategies
    ]
    ranked = [
        (which, rank, *pair) for which, result in enumerate(alone) for rank, pair in enumerate(result.plans)
    ]
    merged = sorted(
        (est.step_seconds, est.memory_bytes, which, rank, plan) for which, rank, plan, est in ranked
    )
    assert [plan for plan, _ in together.plans] == [row[-1] for row in merged[:30]]
    assert together.strategies == strategies
    assert together.candidates == sum(result.candidates for result in alone)
    assert together.feasible == sum(result.feasible for result in alone)
    reasons = {reason for result in alone for reason in result.rejected}
    assert together.rejected == {
        reason: sum(result.rejected.get(reason, 0) for result in alone) for reason in reasons
    }


def test_search_each_is_separate_searches():
    machine, sizes = system(MEDIAN), (16, 1, 8, 6, 12, 8)  # in no order, one twice, one without candidates
    each = tc.search_each(MODEL, machine, gpus=sizes, gbs=GBS, top=15)
    assert [found.gpus for found in each] == list(sizes)
    for gpus, found in zip(sizes, each, strict=True):
        assert shown(found) == shown(tc.search(MODEL, machine, gpus=gpus, gbs=GBS, top=15)), gpus
        assert (
            found.explain().lines() == tc.search(MODEL, machine, gpus=gpus, gbs=GBS, top=15).explain().lines()
        ), gpus
    assert {found.feasible > 0 for found in each} == {True, False}


@pytest.mark.parametrize(
    "strategy", ["1d,summa", " 1d , summa ", ("1d", "summa"), ["1d", "summa"], "1d,summa,1d"], ids=repr
)
def test_ways_to_name_strategies(strategy):
    found = tc.search(MODEL, ROOMY, gpus=GPUS, gbs=GBS, strategy=strategy)
    assert found.strategies == ("1d", "summa")
    assert found.plans == tc.search(MODEL, ROOMY, gpus=GPUS, gbs=GBS, strategy=("1d", "summa")).plans


def test_the_models_own_batch():
    model = replace(MODEL, global_batch=GBS)
    found = tc.search(model, ROOMY, gpus=GPUS)
    assert found.gbs == GBS
    assert [plan for plan, _ in found.plans] == [
        row[4] for row in sorted(EVERY)[:10]
    ]  # 10 is the documented default
    assert tc.search(model, ROOMY, gpus=GPUS, gbs=12).gbs == 12


def test_assumptions_by_name_and_by_value():
    """Assumptions reach the search: it finds the best of what `estimate` says under them."""
    by_name = tc.search(MODEL, ROOMY, gpus=GPUS, gbs=GBS, assumptions="paper-published")
    assert by_name.assumptions.name == "paper-published"
    assumed = tc.Assumptions(name="slow launches").with_values({"kernels.launch_seconds": 2e-3})
    for found in (by_name, tc.search(MODEL, ROOMY, gpus=GPUS, gbs=GBS, assumptions=assumed)):
        least = min(
            tc.estimate(MODEL, ROOMY, row[4], gbs=GBS, assumptions=found.assumptions).step_seconds
            for row in EVERY
        )
        assert found.least_seconds == found.best[1].step_seconds == least != min(EVERY)[0]


# Edges ------------------------------------------------------------------------------------------------------


def test_top_larger_than_what_fits_gives_all_that_fits():
    found = tc.search(MODEL, system(MEDIAN), gpus=GPUS, gbs=GBS, top=10**9)
    assert [plan for plan, _ in found.plans] == [row[4] for row in sorted(EVERY) if row[1] <= MEDIAN]


@pytest.mark.parametrize(("machine", "gpus"), [(system(1e6), GPUS), (ROOMY, 6)], ids=["memory", "rules"])
def test_an_empty_search_has_no_plans_and_raises_nothing(machine, gpus):
    found = tc.search(MODEL, machine, gpus=gpus, gbs=GBS)
    assert found.plans == []
    assert found.best is None
    assert found.pareto() == []
    assert found.table() == []
    assert found.feasible == 0
    assert np.isinf(found.least_seconds)
    assert found.rejected[OUT_OF_MEMORY] == found.candidates == (len(EVERY) if gpus == GPUS else 0)


def test_table_has_rank_strategy_every_knob_and_every_second():
    found = tc.search(MODEL, ROOMY, gpus=GPUS, gbs=GBS, top=25)
    table = found.table()
    seconds = [name for name, info in COLUMNS.items() if info.kind == "time"]
    assert all(
        list(row) == ["rank", "strategy", *KNOBS, *CHOICES, "step_seconds", "memory_bytes", *seconds]
        for row in table
    )
    assert [row["rank"] for row in table] == list(range(1, 26))
    for row, (plan, est) in zip(table, found.plans, strict=True):
        assert row["strategy"] == plan.strategy
        assert {knob: row[knob] for knob in KNOBS} == {knob: getattr(plan, knob) or 1 for knob in KNOBS}
        assert row["step_seconds"] == est.step_seconds
        assert row["memory_bytes"] == est.memory_bytes
        assert sum(row[name] for name in seconds) == pytest.approx(est.step_seconds, rel=1e-12)
    assert json.loads(json.dumps(table)) == table


# Rejected ---------------------------------------------------------------------------------------------------


def test_rejected_adds_up_over_strategies_and_ends_with_memory():
    found = tc.search(MODEL, system(MEDIAN), gpus=16, gbs=GBS)
    spaces = [enumerate_space(MODEL, (16,), 4, GBS, CandidateBatch(name)) for name in PAPER]
    for broken in reasons():
        counted = sum(int(space.rejected[broken][0]) for space in spaces if broken in space.rejected)
        assert found.rejected.get(broken, 0) == counted
    assert list(found.rejected)[-1] == OUT_OF_MEMORY
    assert sum(count > 0 for count in found.rejected.values()) >= 4


@pytest.mark.parametrize("strategies", [("1d", "summa", "context"), ("context", "summa", "1d")], ids=",".join)
def test_rejected_is_in_the_order_rules_are_asked(strategies):
    """As documented; also where a strategy meets a rule that those before it never break (1-D never cuts the
    sequence).
    """
    rejected = list(
        tc.search(replace(MODEL, seq=1000), ROOMY, gpus=16, gbs=GBS, strategy=strategies).rejected
    )
    asked = [broken for broken in reasons() if broken in rejected]
    assert "the sequence on a rank is below 128 tokens" in asked
    assert [reason for reason in rejected if reason in asked] == asked


# Bad arguments ----------------------------------------------------------------------------------------------

WHOLE = "must be a whole number of at least 1"


@pytest.mark.parametrize("value", [-8, 0, 8.0, 2.5, True, "8", None, float("nan")], ids=repr)
@pytest.mark.parametrize("name", ["gpus", "top"])
def test_numbers_that_are_no_positive_whole_numbers(name, value):
    with pytest.raises(tc.InputError) as caught:
        tc.search(MODEL, ROOMY, **({"gpus": GPUS, "gbs": GBS, "top": 3} | {name: value}))
    assert caught.value.problems == (f"{name} = {value!r}: {WHOLE}",)


@pytest.mark.parametrize("value", [0, -4, 2.5, True, "24", "many", float("nan"), float("inf")], ids=repr)
def test_batches_that_are_no_positive_whole_numbers(value):
    with pytest.raises(tc.InputError, match=WHOLE) as caught:
        tc.search(MODEL, ROOMY, gpus=GPUS, gbs=value)
    assert f"gbs = {value!r}" in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_batch_that_nobody_gives_is_one_of_four_million_tokens():
    """As on the command line: 4,096 sequences of 1,024 tokens."""
    assert tc.search(MODEL, ROOMY, gpus=GPUS).gbs == 4096


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("sumna", "unknown strategy 'sumna': did you mean summa"),
        ("Context", "unknown strategy 'Context': did you mean context"),
        ("1d,contxt", "unknown strategy 'contxt': did you mean context"),
        ("fsdp", "unknown strategy 'fsdp': known: 1d, context, hybrid, ring, summa, ulysses"),
        ("1d,", "unknown strategy '': known: 1d, context, hybrid, ring, summa, ulysses"),
        ("", "unknown strategy '': known: 1d, context, hybrid, ring, summa, ulysses"),
        ((), "strategy: give at least one of 1d, summa, context"),
    ],
)
def test_strategies_that_are_none(strategy, said):
    with pytest.raises(tc.InputError) as caught:
        tc.search(MODEL, ROOMY, gpus=GPUS, gbs=GBS, strategy=strategy)
    assert said in str(caught.value)


def test_unknown_assumptions_have_close_matches():
    with pytest.raises(tc.InputError, match="unknown assumptions 'papr': did you mean paper"):
        tc.search(MODEL, ROOMY, gpus=GPUS, gbs=GBS, assumptions="papr")


def test_all_that_is_wrong_is_said_at_once():
    """As documented of `search`."""
    with pytest.raises(tc.InputError) as caught:
        tc.search(MODEL, ROOMY, gpus=-1, gbs=0, strategy="sumna", top=0)
    for wrong in ("gpus = -1", "gbs = 0: must be a whole number of at least 1", "sumna", "top = 0"):
        assert wrong in str(caught.value)


def test_search_each_needs_some_gpus():
    with pytest.raises(tc.InputError, match="gpus"):
        tc.search_each(MODEL, ROOMY, gpus=[], gbs=GBS)


def test_search_each_names_the_wrong_size_among_good_ones():
    with pytest.raises(tc.InputError, match=f"gpus = -2: {WHOLE}"):
        tc.search_each(MODEL, ROOMY, gpus=[4, -2, 8], gbs=GBS)


def test_numpy_whole_numbers_are_whole_numbers():
    """Sizes often come out of an array; what is said of them must still go into JSON."""
    found = tc.search(MODEL, ROOMY, gpus=np.int64(GPUS), gbs=np.int64(GBS), top=np.int64(3))
    assert found.plans == tc.search(MODEL, ROOMY, gpus=GPUS, gbs=GBS, top=3).plans
    nothing = tc.search(MODEL, system(MEDIAN / 20), gpus=np.int64(GPUS), gbs=GBS)
    assert json.loads(json.dumps(nothing.explain().to_dict()["fits_from"]))["gpus"] > GPUS


# As a value -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy, deepcopy, lambda found: pickle.loads(pickle.dumps(found))])
def test_results_are_values(copied):
    found = tc.search(MODEL, system(MEDIAN), gpus=GPUS, gbs=GBS, top=3, locks={"mbs": 1})
    found.explain()
    other = copied(found)
    assert other == found
    assert hash(other) == hash(found)
    assert other.plans == found.plans
    assert other.explain() == found.explain()
    assert found != tc.search(MODEL, system(MEDIAN), gpus=GPUS, gbs=GBS, top=4, locks={"mbs": 1})


@pytest.mark.parametrize(
    ("framework", "locks"),
    [*((name, {}) for name in FRAMEWORKS), ("megatron@0.17", {}), ("torchtitan@0.2", {"cp_kind": "ring"})],
)
def test_results_of_every_framework_are_pickled(framework, locks):
    # a result holds the rules of its framework, which another process must know as well
    found = tc.search("llama-3-8b", "dgx-h100", gpus=16, top=2, framework=framework, locks=locks)
    found.explain()
    other = pickle.loads(pickle.dumps(found))
    assert other == found
    assert other.plans == found.plans
    assert other.rejected == found.rejected


def test_rules_of_what_releases_had_are_pickled():
    rules = [feature.until for feature in FEATURES if feature.until is not None]
    rules += [rule for former in FORMER for rule in former.rules]
    assert rules
    assert pickle.loads(pickle.dumps(rules)) == rules


def test_results_as_json_and_as_a_table():
    found = tc.search("llama-3-8b", "dgx-h100", gpus=8, gbs=8, top=3)
    content = json.loads(found.to_json(price=2.0))
    assert content == json.loads(json.dumps(found.to_dict(price=2.0)))
    assert content["plans"][0]["metrics"]["cost"] is not None or "cost" in content["plans"][0]["metrics"]
    assert content["explanation"]["text"] == found.explain().lines()
    frame = found.to_polars()
    assert frame.to_dicts() == found.table()
    assert frame["step_seconds"].to_list() == [est.step_seconds for _, est in found.plans]


def test_the_best_plan_or_the_nearest_miss():
    found = tc.search(MODEL, system(MEDIAN), gpus=GPUS, gbs=GBS)
    assert found.require_best() == found.plans[0]
    nothing = tc.search(MODEL, system(MEDIAN / 20), gpus=GPUS, gbs=GBS)
    assert nothing.plans == []
    with pytest.raises(tc.NothingFits, match="would make it fit") as caught:
        nothing.require_best()
    assert str(nothing.explain().miss[0]) in str(caught.value)


def test_arguments_after_the_system_are_keywords():
    with pytest.raises(TypeError, match="positional"):
        tc.search(MODEL, ROOMY, GPUS, GBS)
    with pytest.raises(TypeError, match="positional"):
        tc.search_each(MODEL, ROOMY, [GPUS])


def test_numbers_of_gpus_may_be_an_array():
    sizes = np.array([4, 8])
    each = tc.search_each(MODEL, ROOMY, gpus=sizes, gbs=GBS)
    assert [found.gpus for found in each] == [4, 8]
    with pytest.raises(tc.InputError, match="gpus = array"):
        tc.search(MODEL, ROOMY, gpus=sizes, gbs=GBS)
