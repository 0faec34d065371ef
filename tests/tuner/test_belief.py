"""What is believed after trials: against the formulas written out, by drawing, and at the limits."""

from dataclasses import replace

import numpy as np
import pytest

from traincast.planner.answers.rankings import PLAN_DEGREES, PLAN_KINDS, RankedSoftware
from traincast.step.uncertainty import errors
from traincast.tuner.belief import MOST_DRAWN, SHARED, STOP_PROBABILITY, TRIAL_GAIN, Belief, Prior

KNOWN, NAMES = errors(), (*PLAN_DEGREES, *PLAN_KINDS)


def prior(plans=6, seconds=None, memory=None, **more):
    """Plans that differ in tp, pp and a choice, with different shares of communication and bubble."""
    rng = np.random.default_rng(3)
    coordinates = np.zeros((plans, len(NAMES)))
    coordinates[:, NAMES.index("tp")] = np.arange(plans) % 3
    coordinates[:, NAMES.index("pp")] = np.arange(plans) // 3
    coordinates[:, NAMES.index("zero")] = np.arange(plans) % 2
    return Prior(
        seconds=np.linspace(1.0, 1.2, plans) if seconds is None else np.asarray(seconds, np.float64),
        memory=np.full(plans, 1.0) if memory is None else np.asarray(memory, np.float64),
        shares={"communication": rng.uniform(0, 0.4, plans), "bubble": rng.uniform(0, 0.2, plans)},
        coordinates=coordinates,
        **more,
    )


def written_out(prior):
    """K by loops over pairs of plans, term by term as the module's docstring has it."""
    usual = KNOWN.other_stacks
    n, a = len(prior.seconds), usual * (prior.factor / usual) ** (1 / 3) * KNOWN.apart / 1.6449
    K = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            x, y = prior.coordinates[i], prior.coordinates[j]
            degrees, kinds = slice(0, len(PLAN_DEGREES)), slice(len(PLAN_DEGREES), None)
            distance = np.abs(x[degrees] - y[degrees]).sum() + (x[kinds] != y[kinds]).sum()
            own = 0.75 * (
                x[NAMES.index("tp")] == y[NAMES.index("tp")]
            )  # which alone of its knobs makes shapes
            own += 0.25 * np.exp(-distance / (KNOWN.reach / 2))
            K[i, j] = SHARED**2 + (KNOWN.own * a) ** 2 * own
            for name, share in prior.shares.items():
                K[i, j] += (getattr(KNOWN, name) * a) ** 2 * share[i] * share[j]
    return K


def test_the_posterior_is_the_conditional_distribution():
    given = prior(factor=1.3)
    K, e = written_out(given), {0: 0.2, 4: 0.1}
    belief = Belief(given)
    for row, error in e.items():
        belief.time(row, float(given.seconds[row] * np.exp(error)))
    rows = list(e)
    inverse = np.linalg.inv(K[np.ix_(rows, rows)] + belief.noise**2 * np.eye(len(rows)))
    mean = K[:, rows] @ inverse @ np.array(list(e.values()))
    variance = np.diag(K - K[:, rows] @ inverse @ K[rows])
    assert belief.posterior.mean == pytest.approx(np.log(given.seconds) + mean, rel=1e-9)
    assert belief.posterior.deviation == pytest.approx(variance**0.5, rel=1e-6)


def test_software_that_is_left_open_adds_its_covariance_and_moves_what_is_expected():
    """Written out: weights 0.75 and 0.25 of two software that change three plans by e^±0.2."""
    ratios = np.array([[0.0, 0.0, 0.0], [-0.2, 0.0, 0.2]])
    weights = np.array([0.75, 0.25])
    stated = prior(3)
    given = prior(3, software=RankedSoftware(weights, ratios, np.ones(2)))
    rows = np.arange(3)
    mean = [-0.05, 0.0, 0.05]
    between = 0.75 * np.outer(mean, mean)  # of the first, whose ratios are 0
    between += 0.25 * np.outer(ratios[1] - mean, ratios[1] - mean)
    assert given.covariance(rows, rows) == pytest.approx(stated.covariance(rows, rows) + between)
    assert given.variance == pytest.approx(np.diag(given.covariance(rows, rows)))
    assert given.expected == pytest.approx(np.log(given.seconds) + mean)
    assert (stated.expected == np.log(stated.seconds)).all()
    belief = Belief(given)
    assert belief.posterior.mean == pytest.approx(given.expected)
    belief.time(0, float(np.exp(given.expected[0])))
    assert belief.posterior.mean == pytest.approx(given.expected)  # a trial as expected moves nothing
    assert belief.shared[0] == pytest.approx(0.0)


def correlation(first, second):
    """Correlation of the own errors of two plans, whose knobs are 0 unless given."""
    coordinates = np.array([[knobs.get(name, 0.0) for name in NAMES] for knobs in (first, second)])
    nothing = {"communication": np.zeros(2), "bubble": np.zeros(2)}
    given = replace(prior(2), coordinates=coordinates, shares=nothing)
    return (given.covariance(np.arange(1), np.arange(1, 2))[0, 0] - SHARED**2) / (
        KNOWN.own * given.scale
    ) ** 2


def test_plans_of_equal_shapes_share_most_of_their_own_errors():
    once = np.exp(-2 / KNOWN.reach)
    assert correlation({"mbs": 1}, {"mbs": 1}) == pytest.approx(1.0)
    assert correlation({"zero": 1}, {"zero": 2}) == pytest.approx(0.75 + 0.25 * once)
    assert correlation({"pp": 1, "dp": 2}, {"pp": 2, "dp": 1}) == pytest.approx(0.75 + 0.25 * once)
    assert correlation({"mbs": 1}, {}) == pytest.approx(0.25 * once)


def test_plans_are_no_further_apart_for_what_follows_from_another_knob():
    doubled = 0.25 * np.exp(-2 / KNOWN.reach)  # tp, which halves dp on the same GPUs and makes room for sp
    assert correlation({"dp": 3}, {"tp": 1, "dp": 2}) == pytest.approx(doubled)
    assert correlation({"dp": 3, "sp": 1}, {"tp": 1, "dp": 2}) == pytest.approx(doubled)
    assert correlation({"pp": 1, "layout": 7}, {"pp": 2, "layout": 8}) == pytest.approx(0.75 + doubled)
    # but of equal degrees they are choices
    assert correlation({"tp": 1, "sp": 1}, {"tp": 1}) == pytest.approx(0.75 + doubled)
    assert correlation({"pp": 1, "layout": 7}, {"pp": 1, "layout": 8}) == pytest.approx(0.75 + doubled)


def test_before_trials_the_fastest_that_fits_is_tried_first():
    belief = Belief(prior(4, [1.0, 1.1, 1.2, 1.3], memory=[99.0, 1.0, 1.0, 1.0], capacity=10.0))
    assert belief.choose() == 1  # the first does not fit
    belief.wait([1])
    assert belief.choose() == 2
    assert belief.outlook.within == 0.0


def test_outlook_is_that_of_two_plans_by_hand():
    # Of two plans the probability has a closed form: Φ of the difference in its standard deviations.
    given = prior(2, [1.0, 1.02])
    belief = Belief(given, draws=200_000)
    belief.time(0, 1.0)
    K = written_out(given)
    inverse = 1 / (K[0, 0] + belief.noise**2)
    V = K - K[:, :1] * K[:1] * inverse
    apart = (V[0, 0] + V[1, 1] - 2 * V[0, 1]) ** 0.5
    from scipy.stats import norm

    expected = norm.cdf((np.log(1.02) + np.log1p(TRIAL_GAIN)) / apart)
    assert belief.outlook.within == pytest.approx(expected, abs=0.01)


def test_candidates_beyond_those_drawn_together_count_as_well():
    given = prior(MOST_DRAWN + 200, np.full(MOST_DRAWN + 200, 1.0))
    given = replace(
        given, coordinates=np.arange(given.coordinates.size).reshape(given.coordinates.shape) * 1.0
    )
    few, many = Belief(given), Belief(given)
    few.excluded[MOST_DRAWN + 1 :] = True
    for belief in (few, many):
        belief.time(0, 0.85)
    assert many.outlook.within < few.outlook.within


def test_all_times_scaled_change_little_but_the_shared_error():
    given = prior()
    usual, scaled = Belief(given), Belief(given)
    for row in (0, 1, 3):
        usual.time(row, float(given.seconds[row]))
        scaled.time(row, float(1.35 * given.seconds[row]))
    mean, deviation = scaled.shared
    assert abs(mean - np.log(1.35)) < 2 * deviation + 0.05
    assert abs(usual.shared[0]) < 0.02
    assert scaled.outlook.within == pytest.approx(usual.outlook.within, abs=0.1)


def test_repeats_estimate_the_noise_of_a_trial():
    belief = Belief(prior())
    before = belief.noise
    for seconds in (1.0, 1.06, 0.95, 1.03, 0.97):
        belief.time(0, seconds)
    # prior of 4 repeats with 0.5 %, and 4 degrees of freedom: by hand
    squares = 5 * np.var(np.log([1.0, 1.06, 0.95, 1.03, 0.97]))
    assert before == pytest.approx(0.005)
    assert belief.noise == pytest.approx(((4 * 0.005**2 + squares) / 8) ** 0.5)


def test_a_time_with_a_wide_spread_says_less():
    sure, unsure = Belief(prior()), Belief(prior())
    sure.time(0, 1.2)
    unsure.time(0, 1.2, 0.2)
    assert unsure.posterior.deviation[0] > 10 * sure.posterior.deviation[0]
    # noise of a single time by hand: the deviation of a measured plan tends to it where K is large
    K = written_out(unsure.prior)[0, 0]
    noise = 0.005**2 + 0.2**2
    assert unsure.posterior.deviation[0] == pytest.approx((K * noise / (K + noise)) ** 0.5)


def test_noise_that_was_told_is_not_counted_twice():
    belief = Belief(prior())
    for seconds in (1.0, 1.06, 0.95, 1.03, 0.97):
        belief.time(0, seconds, 0.05)  # by hand: their variance is less than 0.05 squared
    assert belief.noise == pytest.approx((4 * 0.005**2 / 8) ** 0.5)
    assert belief.trial_noise == pytest.approx((4 * 0.005**2 / 8 + 0.05**2) ** 0.5)


def test_the_best_and_a_rival_alternate_where_noise_decides():
    belief, order = Belief(prior(2, [1.0, 1.0])), [0, 1]
    belief.time(0, 1.0, 0.04)
    belief.time(1, 1.02, 0.04)
    for _ in range(4):
        order.append(belief.choose())
        belief.time(order[-1], 1.0 + 0.02 * order[-1], 0.04)
    assert sorted(order) == [0, 0, 0, 1, 1, 1]
    assert belief.outlook.within < STOP_PROBABILITY


def test_a_noisy_rival_is_measured_again():
    belief = Belief(prior(2, [1.0, 1.0]))
    for seconds in (1.0, 1.1, 0.92, 1.08, 0.93, 1.05):
        belief.time(0, seconds)
    belief.time(1, 1.03)
    assert belief.choose() == 1
    assert belief.outlook.within < STOP_PROBABILITY


def test_out_of_memory_makes_larger_plans_unlikely_and_spares_smaller_ones():
    belief = Belief(prior(4, memory=[9.9, 9.8, 9.9, 5.0], capacity=10.0, memory_scale=0.05))
    before = belief.fits.copy()
    belief.memory(0, None)
    assert belief.fits[0] == 0
    assert belief.fits[2] < before[2] - 0.1
    assert belief.fits[3] > 0.99
    belief.memory(1, np.inf)  # and one that fits makes them likelier again
    assert belief.fits[2] > 0


def test_out_of_memory_against_all_prediction_is_believed():
    # It needs a hundred times what is predicted. By hand: its own error and that of all plans have logistic
    # tails of equal scales, and given the sum of both each is uniform between 0 and all of it.
    belief = Belief(prior(4, memory=[1.0, 1.0, 10.0, 0.1], capacity=100.0))
    belief.memory(0, None)
    assert belief.fits[2] == pytest.approx(0.5, abs=0.03)
    belief.memory(1, None)  # and once more, which leaves the error of all plans
    assert belief.fits[2] < 0.02
    assert belief.choose() == 3


def test_measured_memory_moves_the_others():
    more, less = (Belief(prior(2, memory=[8.0, 9.9], capacity=10.0, memory_scale=0.05)) for _ in range(2))
    more.memory(0, 9.0)
    less.memory(0, 7.0)
    assert more.fits[1] < 0.5 < less.fits[1]


def test_of_equal_gains_the_cheaper_trial_is_chosen():
    given = prior(3, [1.0, 1.05, 1.05])
    coordinates = given.coordinates.copy()
    coordinates[2] = coordinates[1]
    shares = {name: np.array([share[0], share[1], share[1]]) for name, share in given.shares.items()}
    given = replace(given, coordinates=coordinates, shares=shares, seconds=np.array([1.0, 1.05, 1.0499]))
    belief = Belief(given)
    belief.time(0, 1.0)
    assert belief.choose() == 2


def test_a_trial_under_way_is_not_asked_for_again():
    belief = Belief(prior())
    belief.time(0, 1.0)
    first = belief.choose()
    belief.wait([first])
    assert belief.choose() not in (first, None)
    assert belief.posterior.mean[first] == pytest.approx(np.log(belief.prior.seconds[first]), abs=0.02)
