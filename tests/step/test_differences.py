"""Ratios of two predicted times: what the two share cancels, and what they do not share adds up."""

from dataclasses import replace

import numpy as np
import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.planner.answers.differences import TAILS, Predicted, half_width, ratio, ratio_of_intervals
from traincast.step.estimates import estimate
from traincast.step.uncertainty import LEAST_HALF, errors, measured_deviation

PLAN = tc.Plan(tp=8, pp=4, dp=2, vp=4)
STACK = "megatron-core-2025"


def estimated(system="dgx-h100", model="llama-3-70b", plan=PLAN, stack=STACK):
    return estimate(model, system, plan, gbs=64, assumptions=stack)


def test_a_step_against_itself_is_certain():
    est = estimated()
    same = ratio(est, est)
    assert (same.value, same.faster) == (1, 0.5)
    assert same.low == pytest.approx(1, abs=3 * LEAST_HALF)
    assert same.high == pytest.approx(1, abs=3 * LEAST_HALF)


def test_a_ratio_turned_round_is_the_inverse():
    a, b = estimated(), estimated("mi300x-node")
    there, back = ratio(b, a), ratio(a, b)
    assert (back.value, back.low, back.high) == pytest.approx(
        (1 / there.value, 1 / there.high, 1 / there.low), rel=1e-6
    )
    assert there.faster + back.faster == pytest.approx(1)
    assert there.exceeds_error == back.exceeds_error


def test_two_accelerators_share_no_error_of_measured_runs():
    """By hand: independent errors, each with the mean of both ends of its interval."""
    a, b = estimated(), estimated("dgx-a100")
    known, found = errors(), ratio(b, a)
    scale = (known.faster + known.slower) / 2 * TAILS
    measured = sum((scale * measured_deviation(est.case, known)) ** 2 for est in (a, b))
    distances = [est.case.distances(known) for est in (a, b)]
    scale /= TAILS
    for name in distances[0]:
        own = [scale * known.drifts[name] * of_step[name] for of_step in distances]
        of_accelerator = name in ("new_accelerator", "new_generation", "new_precision")
        measured += own[0] ** 2 + own[1] ** 2 if of_accelerator else (own[0] - own[1]) ** 2
    assert np.log(found.high / found.low) / 2 == pytest.approx(measured**0.5, rel=1e-3)


def test_what_nobody_measured_is_the_same_unknown_in_both():
    """Layers that no run has add the same error to two steps of a model, and to those of two models apart."""

    def step(est, layers, model):
        return Predicted(replace(est.case, layers=frozenset(layers)), est.plan, model, est.system)

    ests = estimated(), estimated("dgx-a100")
    usual, new = ([step(est, layers, "one") for est in ests] for layers in ({"attention"}, {"retention"}))
    assert errors().drifts["new_layers"] == 0.25
    assert half_width(*new) == pytest.approx(half_width(*usual))
    others = [step(est, {"retention"}, i) for i, est in enumerate(ests)]
    assert half_width(*others) > 0.25 * 2**0.5 * 1.6


def test_software_that_both_leave_open_is_one_and_the_same():
    open_to_all = replace(Stack(STACK).assumptions, unsaid=Stack.ANY)
    a, b = (estimated(system, stack=open_to_all) for system in ("dgx-h100", "dgx-a100"))
    assert len(a.alternatives) > 3
    known = ratio(b, a)
    intervals = [(est.step_seconds, *est.interval) for est in (b, a)]
    apart = ratio_of_intervals(*intervals)
    assert known.high / known.low < 0.99 * apart.high / apart.low
    frameworks = ratio(b, estimated())  # the software of one is stated
    assert frameworks.high / frameworks.low > known.high / known.low


def test_intervals_of_which_nothing_is_known_are_independent():
    """Of 10 % both ways each: sqrt 2 times as wide on the scale of logarithms."""
    known = ratio_of_intervals((2.0, 2 / 1.1, 2 * 1.1), (1.0, 1 / 1.1, 1.1))
    assert known.value == 2
    assert known.high / 2 == pytest.approx(1.1 ** (2**0.5), rel=1e-3)
    assert known.low / 2 == pytest.approx(1.1 ** -(2**0.5), rel=1e-3)


def test_plans_alike_are_surer_than_plans_unlike():
    plans = [PLAN, replace(PLAN, mbs=2), tc.Plan(tp=4, cp=2, cp_kind="ring", pp=8, dp=1)]
    first, *others = (estimated(plan=plan) for plan in plans)
    near, far = (ratio(est, first) for est in others)
    assert near.high / near.low < far.high / far.low
    independent = ratio_of_intervals(*((est.step_seconds, *est.interval) for est in (others[1], first)))
    assert far.high / far.low < 1.3 * independent.high / independent.low


def test_equal_work_is_compared():
    a, b = estimated(), estimate("llama-3-70b", "dgx-h100", PLAN, gbs=128, assumptions=STACK)
    assert ratio(b, a, work=2).value == pytest.approx(b.step_seconds / a.step_seconds / 2)


def test_without_known_errors_there_is_none():
    a, b = (estimated(stack=stack) for stack in ("paper", STACK))
    assert ratio(a, b) is None
