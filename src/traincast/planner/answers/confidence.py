"""How surely plans differ: which are equal within errors, and how likely one is among the true best."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from traincast.core import Floats, Ints, Plan, Plans
from traincast.planner.answers.plan_sentences import changed_knobs
from traincast.planner.answers.rankings import (
    MAX_LOG_SLOWDOWN,
    NEAR_BEST_SLOWDOWN,
    RankedSoftware,
    difference_deviation,
    draw_near_best,
    layouts_compared,
    plan_coordinates,
    plan_distance,
    ranking_probability,
)
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.space.least_times import LeastTimes
from traincast.step import (
    COMPONENTS,
    NORMAL_90_PERCENT,
    Answer,
    Estimate,
    Estimates,
    errors,
    estimate_columns,
)

MOST_EQUAL: Final = 0.05  # share between times, up to which plans that cannot be told apart are called equal
MAX_LAYOUTS: Final = 256  # layouts compared
# The fastest of them, timed with software that a question leaves open, and what has the same choices
MAX_SOFTWARE_LAYOUTS: Final = 32


def equality_sentence(listed: Sequence[Answer], first: int = 0) -> str:
    """Say which plans are as fast as one within what errors can tell, and which two to measure.

    `first`: index of the plan that others are compared with, the recommended one.

    Of two plans the faster is known where their predicted times differ by more than 90 % of the errors of
    such differences. Empty where errors are not known, or only one plan is listed.
    """
    if len(listed) < 2 or not listed[0][1].assumptions.errors_known:
        return ""
    estimates = [est for _, est in listed]
    shares = {name: np.array([float(est.case.shares[name]) for est in estimates]) for name in COMPONENTS}
    coordinates = plan_coordinates([plan for plan, _ in listed])
    own = estimates[first]
    factor = own.case.factor(errors())
    software = _software_of(estimates)
    deviation = difference_deviation(shares, coordinates, factor, software)[first]
    apart = np.abs(np.log([float(est.step_seconds / own.step_seconds) for est in estimates]))
    equal = np.flatnonzero(apart <= NORMAL_90_PERCENT * deviation)  # that plan among them
    number = first + 1
    if len(equal) == 1:
        return f"Errors of the model are smaller than what sets plan {number} apart from the others listed."
    others = equal[equal != first]
    other = int(others[np.argmax(deviation[others])]) + 1
    times = [float(estimates[i].step_seconds) for i in equal]
    span = max(times) / min(times) - 1
    tell = "are equal within what the model can tell"
    if span > MOST_EQUAL:
        tell = f"are up to {span:.0%} apart, less than the model can tell"
    if len(equal) == 2:
        return f"Plans {min(number, other)} and {max(number, other)} {tell}; measure both."
    knobs = ", ".join(changed_knobs(listed[first][0], listed[other - 1][0])) or "placement"
    two = f"{min(number, other)} and {max(number, other)}, which differ most ({knobs})"
    return f"Plans {_ranges(equal + 1)} {tell}; measure {two}."


def _software_of(estimates: Sequence[Estimate]) -> RankedSoftware | None:
    """Return the software that a question leaves open, timed with plans of equal choices together."""
    shares = estimates[0].ranking_software
    if not shares:
        return None
    # The times of all are needed only where the software ranks the first and last anew.
    if len(estimates) > 2:
        probe = _software_of([estimates[0], estimates[-1]])
        if probe is not None and probe.is_slight:
            return None
    groups = defaultdict[object, list[int]](list)
    for i, est in enumerate(estimates):
        groups[tuple(est.columns.choices().items())].append(i)
    predicted = np.array([est.step_seconds for est in estimates])
    software = dict[str, Floats]()
    for rows in groups.values():
        plans = [estimates[i].plan.columns() for i in rows]
        together = plans[0]
        if len(plans) > 1:
            columns = {name: np.array([getattr(one, name) for one in plans]) for name in together.numbers()}
            together = together.replace_columns(**columns)
        for name, seconds in estimates[0].software_seconds(together).items():
            software.setdefault(name, np.full(len(estimates), np.nan))[rows] = seconds
    return RankedSoftware.from_times(shares, predicted, software)


def _software_of_layouts(
    estimates: Mapping[int, tuple[Estimates, Plans, tuple[int, ...]]], timed: Sequence[int], order: Ints
) -> RankedSoftware | None:
    """Return the software that a question leaves open, of layouts of several outcomes.

    `estimates`: estimate, plans and shape of each outcome, whose layouts follow each other; `timed`: outcomes
    to time under it, of which the first alone is where it changes little; `order`: of the layouts returned.
    """
    shares = next(iter(estimates.values()))[0].ranking_software
    if not shares:
        return None
    columns = [np.broadcast_to(est.step_seconds, rows) for est, _, rows in estimates.values()]
    predicted = np.concatenate(columns)
    outcome = np.repeat(list(estimates), list(map(len, columns)))
    seconds = {name: np.full(len(predicted), np.nan) for name in shares}
    for index in timed:
        est, plans, _ = estimates[index]
        mine = outcome == index
        for name, under in est.software_seconds(plans).items():
            seconds[name][mine] = under
        found = RankedSoftware.from_times(shares, predicted, seconds)
        if index == timed[0] and mine.sum() > 1 and found is not None and found.of_plans(mine).is_slight:
            break
    return RankedSoftware.from_times(
        shares, predicted[order], {name: of[order] for name, of in seconds.items()}
    )


def _ranges(numbers: Ints) -> str:
    """Return ascending numbers as text, runs of three and more shortened: ``"1 to 4 and 6"``."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    parts = [
        part
        for run in runs
        for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run])
    ]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def probability_near_best(
    answer: Callable[[Callable[[LeastTimes], Ints]], tuple[LeastTimes, Ints]],
    listed: Sequence[Plan],
    within: float = NEAR_BEST_SLOWDOWN,
) -> tuple[float, float] | None:
    """Return the probability that the first of some plans, and that any, is near the true best time.

    None where errors are not known or nothing fits. `listed` has the best plans, best first; `answer` returns
    the layouts that answer a question, and the times whose rows they are.
    """
    times, near = answer(lambda times: times.best(MAX_LAYOUTS, slowdown=np.exp(MAX_LOG_SLOWDOWN)))
    outcomes = times.outcomes
    if not len(near) or not outcomes[0].evaluation.assumptions.errors_known:
        return None
    seconds: list[Floats] = []
    estimates = dict[int, tuple[Estimates, Plans, tuple[int, ...]]]()
    # by batch, of which rows may have been evaluated in several rounds
    numbers_of_batches: dict[CandidateBatch, int] = {}
    batches = [numbers_of_batches.setdefault(of.space.batch, len(numbers_of_batches)) for of in outcomes]
    batch = np.array(batches)[times.outcome]
    can_be_first = list(dict.fromkeys(batch[near[:MAX_SOFTWARE_LAYOUTS]].tolist()))
    shares: dict[str, list[Floats]] = {name: [] for name in COMPONENTS}
    numbers: dict[object, int] = {}  # of choices, in all coordinates
    listed_knobs = plan_coordinates(listed, numbers)
    coordinates = list[Floats]()
    near = near[np.argsort(batch[near], kind="stable")]
    for index in np.unique(batch[near]):
        of_batch = near[batch[near] == index]
        outcome = outcomes[times.outcome[of_batch[0]]]
        columns = times.columns(of_batch)
        assumed = outcome.evaluation.assumptions
        space = outcome.space
        est = estimate_columns(space.model, outcome.system, columns, space.gbs, assumed)
        rows = np.shape(est.step_seconds) or (1,)
        estimates[int(index)] = est, columns, rows
        seconds.append(np.broadcast_to(est.step_seconds, rows))
        for name, blocks in shares.items():
            blocks.append(np.broadcast_to(est.case.shares[name], rows))
        block = plan_coordinates([columns], numbers)
        coordinates.append(np.broadcast_to(block, (rows[0], block.shape[1])))
    order = np.argsort(near)  # as enumerated, whichever layouts were evaluated together
    knobs = np.concatenate(coordinates)[order]
    all_shares = {name: np.concatenate(blocks)[order] for name, blocks in shares.items()}
    times_of_all = np.concatenate(seconds)[order]
    software = _software_of_layouts(estimates, can_be_first, order)
    good = draw_near_best(
        times_of_all,
        all_shares,
        knobs,
        est.case.factor(errors()),
        within,
        software=software,
    )
    same = plan_distance(listed_knobs[:, None], knobs[None]) == 0  # whatever their placement
    if len(near) == 1:
        return 1.0, 1.0
    shares_of_draws = (float(np.mean(good[:, same[:n].any(axis=0)].any(axis=1))) for n in (1, len(listed)))
    layouts = layouts_compared(times_of_all, knobs)
    first, any_of = (ranking_probability(share, layouts) for share in shares_of_draws)
    return first, any_of
