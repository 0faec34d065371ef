"""Prices of locks against two searches: the recommended plan with the locks, and that without them."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.core.units import probability_text
from traincast.planner.answers.lock_prices import lock_sentence

SMALL = tc.Model(name="small", layers=4, hidden=2048, heads=16, ffn=8192, seq=2048, vocab=32000)
OF_THE_PAPER = tc.Model(name="small", layers=4, hidden=2048, heads=16, ffn=8192, seq=2048)
KNOBS = {
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 4),
    "dp": (1, 2, 8),
    "cp": (1, 2),
    "vp": (1, 2),
    "mbs": (1, 2, 4),
    "recompute": ("none", "full", ["none", "full"]),
}


def searched(locks, gpus=8, model=SMALL, **options):
    return tc.search(model, "dgx-h100", gpus=gpus, gbs=16, locks=locks, top=3, **options)


def without(found, names, gpus=8, model=SMALL):
    """The same search without some locks, made by hand."""
    rest = {name: value for name, value in found.locks.items() if name not in names}
    return searched(rest, gpus, model, framework=found.framework, assumptions=found.assumptions)


def drawn(most):
    """Draw at most so many locks."""
    one = st.sampled_from(sorted(KNOBS)).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(KNOBS[name]))
    )
    return st.lists(one, min_size=1, max_size=most, unique_by=lambda lock: lock[0]).map(dict)


def check_against_two_searches(locks, framework, model):
    try:
        found = searched(locks, model=model, framework=framework)
    except tc.InputError:  # what the framework does not run
        return
    for price in found.lock_prices:
        free = without(found, price.locks, model=model)
        assert price.free == free.recommended
        if found.recommended is None:
            assert price.held is None
            assert price.cost_seconds is None
        else:
            assert price.cost_seconds == found.recommended[1].step_seconds - free.recommended[1].step_seconds
    if found.lock_price is None and found.recommended is not None:
        assert without(found, locks, model=model).recommended == found.recommended


@settings(max_examples=12, deadline=None)
@given(locks=drawn(3))
def test_a_price_is_the_difference_of_two_searches(locks):
    check_against_two_searches(locks, "paper", OF_THE_PAPER)


@settings(max_examples=4, deadline=None)
@given(locks=drawn(2), framework=st.sampled_from(["megatron", "torchtitan"]))
def test_a_price_where_errors_are_known_is_that_difference(locks, framework):
    check_against_two_searches(locks, framework, SMALL)


def test_a_bad_degree_of_tp_costs_its_time():
    found = tc.search("llama-3-70b", "dgx-h100", gpus=64, locks={"tp": 16})
    free = tc.search("llama-3-70b", "dgx-h100", gpus=64)
    with_it, best = (float(of.recommended[1].step_seconds) for of in (found, free))
    assert with_it > 1.3 * best
    price = found.lock_price
    assert (price.locks, price.cost_seconds) == ({"tp": 16}, pytest.approx(with_it - best))
    assert price.recommended.plan == free.recommended[0]
    assert price.error.value == pytest.approx(with_it / best)
    assert price.error.exceeds_error
    said = lock_sentence(found)
    assert said.startswith("tp=16 costs ")
    assert f"without it: {best:.2f} s with ring tp=4 " in said
    assert "fast_" not in said
    assert "; by you: tp=16." in "".join(found.explain().held_in_short())
    assert any(line.startswith("Without tp=16: ") for line in found.explain().lines())


def test_a_lock_at_the_recommended_value_costs_nothing():
    best = searched({}).recommended[0]
    found = searched({"mbs": best.mbs})
    assert found.lock_price.cost_seconds == 0
    assert lock_sentence(found) == ""
    said = f"mbs={best.mbs}: costs nothing; the same plan is recommended without."
    assert said in found.explain().lines()


def test_times_that_count_as_equal_cost_nothing():
    found = searched({"cp": 2}, within=0.5)
    assert 0 < found.lock_price.cost_seconds < 0.5 * found.lock_price.free[1].step_seconds
    assert lock_sentence(found) == ""
    said = [line for line in found.explain().lines() if line.startswith("cp=2: costs nothing; ")]
    assert said[0].endswith(" without counts as equally fast.")


def test_a_lock_that_is_no_slower_costs_nothing():
    # where plans within half of the fastest count as equal, the simplest of them may be slower without a lock
    found = searched({"tp": 2}, within=0.5)
    assert found.lock_price.cost_seconds < 0
    assert lock_sentence(found) == ""
    said = [line for line in found.explain().lines() if line.startswith("tp=2: costs nothing; ")]
    assert said[0].endswith(" without is no faster.")


@pytest.mark.parametrize(
    ("framework", "locks"),
    [
        ("megatron", {"precision": "fp8-current"}),  # another recipe: bf16 is no other plan of the question
        ("megatron", {"zero": 1}),  # the one stage that it searches
        ("huggingface", {"pp": 1}),  # which runs no pipeline
        ("megatron", {}),
    ],
)
def test_what_the_framework_fixes_has_no_price(framework, locks):
    found = searched(locks, framework=framework)
    assert found.recommended is not None
    assert found.lock_price is None
    assert found.lock_prices == []
    assert lock_sentence(found) == ""


def test_several_locks_together_and_each_alone():
    found = searched({"tp": 8, "recompute": "full"})
    together, *alone = found.lock_prices
    assert together.locks == {"tp": 8, "recompute": "full"}
    assert [price.locks for price in alone] == [{"tp": 8}, {"recompute": "full"}]
    assert all(0 < price.cost_seconds <= together.cost_seconds for price in alone)
    assert lock_sentence(found).startswith("tp=8, recompute=full together cost ")
    lines = found.explain().lines()
    assert any(line.startswith("Without tp=8 alone: ") for line in lines)
    record = json.loads(found.to_json())
    assert [row["locks"] for row in record["lock_prices"]] == [price.locks for price in found.lock_prices]
    assert record["lock_prices"][0]["cost_seconds"] == together.cost_seconds
    assert record["locks"] == dict(found.locks)


def test_locks_with_which_nothing_fits_name_the_plan_without_them():
    found = tc.search("llama-3-70b", "dgx-h100", gpus=64, locks={"tp": 1, "recompute": "none"})
    assert found.recommended is None
    assert found.lock_price.cost_seconds is None
    assert lock_sentence(found).startswith("Nothing fits with tp=1, recompute=none; without them: ")
    with pytest.raises(tc.NothingFits, match=r"Without tp=1, recompute=none a plan fits: "):
        found.require_best()
    impossible = searched({"tp": 7})
    with pytest.raises(tc.NothingFits, match=r"Without tp=7 a plan fits: "):
        impossible.require_best()


def test_a_lock_alone_is_not_named_where_its_plan_is_that_without_any():
    with pytest.raises(tc.NothingFits) as raised:
        tc.search("llama-3-8b", "dgx-h100", gpus=8, locks={"tp": 7, "pp": 1}).require_best()
    plans = re.findall(r"a plan fits: (.*)", str(raised.value))
    assert plans
    assert len(plans) == len(set(plans))


def test_what_a_search_tries_is_not_said_to_be_held_where_nothing_fits():
    """The Trainer's ZeRO stages 0, 2 and 3 are all searched."""
    found = tc.search("llama-3-70b", "dgx-h100", gpus=8, framework="huggingface")
    assert found.recommended is None
    assert "zero" in found.framework.varied
    assert "zero" not in " ".join(found.explain().held_constant())


def test_a_lock_with_which_no_plan_fits_as_likely_as_wanted_says_so():
    question = {"model": "llama-3-70b", "system": "dgx-h100", "gpus": 64}
    locks = {"pp": 1, "tp": 8, "recompute": "none"}
    wanted = 0.97  # which plans of two stages reach, and of one stage without recomputation none does
    found = tc.search(**question, locks=locks, fit_probability=wanted)
    held, free = (answer[1].fits_probability for answer in (found.recommended, found.lock_price.free))
    assert held < wanted <= free
    said = lock_sentence(found)
    assert said.startswith("pp=1, tp=8, recompute=none")
    assert f"which fits with {probability_text(free)} instead of {probability_text(held)}." in said


def test_memory_has_no_price_in_time():
    assert searched({"tp": 2}, objective="memory").lock_prices == []
