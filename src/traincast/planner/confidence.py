"""How sure the first of a ranking is: the probability that it is really among the best."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from traincast.core.plan import Plan
from traincast.core.quantities import Floats
from traincast.planner.evaluation import StrategyResult, fastest_plans
from traincast.step.estimate import estimate_columns
from traincast.step.uncertainty import COMPONENTS, WITHIN, chances, cuts, errors, plan_distance

MOST: Final = 256  # layouts looked at
REACH: Final = 0.5  # a layout slower than the first by more than this, in the logarithm, is not the best


def near_the_best(outcomes: Sequence[StrategyResult], listed: Sequence[Plan], within: float = WITHIN) -> tuple[float, float] | None:
    """Probability that the first of some plans, and that any of them, is really within some share of the best candidate's time.

    Parameters
    ----------
    outcomes : sequence of StrategyResult
        What was searched, one for each batch of candidates.
    listed : sequence of Plan
        The best plans, best first.
    within : float
        The share.

    Returns
    -------
    pair of float, or None
        None where errors are not known or nothing fits.
    """
    near = _near(outcomes)
    if not near or not outcomes[0].evaluation.assumptions.errors_known:
        return None
    seconds: list[Floats] = []
    shares: dict[str, list[Floats]] = {name: [] for name in COMPONENTS}
    plans: list[Plan] = []
    for which in sorted({one for *_, one, _ in near}):
        outcome = outcomes[which]
        some = fastest_plans(outcome, np.array([layout for *_, one, layout in near if one == which]))
        one = outcome.evaluation
        est = estimate_columns(one.model, outcome.system, some, one.gbs, one.assumptions)
        rows = np.shape(est.step_seconds) or (1,)
        seconds.append(np.broadcast_to(est.step_seconds, rows))
        for name, told in shares.items():
            told.append(np.broadcast_to(est.case.shares[name], rows))
        plans += [some.row(i) for i in range(rows[0])]
    cut = cuts([*listed, *plans])  # together: numbers of choices are those of one list
    own, cut = cut[: len(listed)], cut[len(listed) :]
    mixed = {name: np.concatenate(told) for name, told in shares.items()}
    good = chances(np.concatenate(seconds), mixed, cut, est.case.factor(errors()), within)
    same = plan_distance(own[:, None], cut[None]) == 0  # placed alike or not
    return tuple(float(np.mean(good[:, same[:n].any(axis=0)].any(axis=1))) for n in (1, len(listed)))  # type: ignore[return-value]


def _near(outcomes: Sequence[StrategyResult]) -> list[tuple[float, float, int, int]]:
    """Layouts near the top: time, memory, outcome and layout, fastest first."""
    rows: list[tuple[float, float, int, int]] = []
    for which, outcome in enumerate(outcomes):
        layouts = outcome.first(MOST)
        at = np.searchsorted(outcome.fitting, layouts)
        whose = [which] * len(layouts)
        rows += zip(outcome.least[at].tolist(), outcome.memory[at].tolist(), whose, layouts.tolist(), strict=True)
    rows = sorted(rows)[:MOST]
    return [row for row in rows if row[0] <= rows[0][0] * np.exp(REACH)]
