"""Probability that the top-ranked plan is within some share of the true best."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from traincast.core.plan import Plan
from traincast.core.quantities import Floats
from traincast.planner.evaluation import fastest_plans
from traincast.planner.least_times import LeastTimes
from traincast.step.estimate import estimate_columns
from traincast.step.uncertainty import (
    COMPONENTS,
    NEAR_BEST_SLOWDOWN,
    draw_near_best,
    errors,
    plan_coordinates,
    plan_distance,
)

MAX_LAYOUTS: Final = 256  # layouts compared
# A layout whose predicted time is further above the first's, in the logarithm, is never the best.
MAX_LOG_SLOWDOWN: Final = 0.5


def probability_near_best(
    times: LeastTimes, listed: Sequence[Plan], within: float = NEAR_BEST_SLOWDOWN
) -> tuple[float, float] | None:
    """Return the probability that the first of some plans, and that any, is near the true best time.

    None where errors are not known or nothing fits. `listed` has the best plans, best first.
    """
    outcomes = times.outcomes
    if not outcomes[0].evaluation.assumptions.errors_known:
        return None
    near = times.best(MAX_LAYOUTS, slowdown=np.exp(MAX_LOG_SLOWDOWN))
    if not len(near):
        return None
    seconds: list[Floats] = []
    shares: dict[str, list[Floats]] = {name: [] for name in COMPONENTS}
    plans: list[Plan] = []
    for index in np.unique(times.outcome[near]):
        outcome = outcomes[index]
        columns = fastest_plans(outcome, times.layout[near[times.outcome[near] == index]])
        assumed, space = outcome.evaluation.assumptions, outcome.space
        est = estimate_columns(space.model, outcome.system, columns, space.gbs, assumed)
        rows = np.shape(est.step_seconds) or (1,)
        seconds.append(np.broadcast_to(est.step_seconds, rows))
        for name, blocks in shares.items():
            blocks.append(np.broadcast_to(est.case.shares[name], rows))
        plans += [columns.row(i) for i in range(rows[0])]
    # Together, since the numbers of choices are those of one list.
    knobs = plan_coordinates([*listed, *plans])
    listed_knobs, knobs = knobs[: len(listed)], knobs[len(listed) :]
    all_shares = {name: np.concatenate(blocks) for name, blocks in shares.items()}
    good = draw_near_best(np.concatenate(seconds), all_shares, knobs, est.case.factor(errors()), within)
    same = plan_distance(listed_knobs[:, None], knobs[None]) == 0  # whatever their placement
    first, any_of = (float(np.mean(good[:, same[:n].any(axis=0)].any(axis=1))) for n in (1, len(listed)))
    return first, any_of
