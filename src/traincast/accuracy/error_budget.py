"""An error budget: which parts of a step the errors of predictions go with."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from traincast.accuracy.scores import Prediction, source_of

NOISE: Final = 0.05  # relative error of a row that no part explains
BELIEVED: Final = 0.2  # relative deviation that is believed of a part beforehand


@dataclass(frozen=True)
class ErrorBudget:
    """What the errors of one source go with.

    Parameters
    ----------
    source : str
        The source.
    n : int
        Its rows.
    causes : mapping of str to float
        Part of the step → points of the mean error that go with it: above 0 where it is predicted too long [1].
    bias, unexplained : float
        Mean error, and the mean absolute error that no part explains [1].
    """

    source: str
    n: int
    causes: Mapping[str, float]
    bias: float
    unexplained: float


def budgets(predictions: Sequence[Prediction], moe: frozenset[str] = frozenset()) -> tuple[ErrorBudget, ...]:
    """Error budgets by source, of rows whose parts are known.

    If part j of row i, a share s_ij of its predicted time, were right times 1 + e_j, then measured over predicted would be
    1 + Σ_j s_ij e_j. The e_j of a source are those that suit its rows best, with e_j of 0 ± `BELIEVED` believed beforehand and a
    noise of `NOISE` in each row, n rows counting as √n (ridge regression). A part's cause is minus its mean share times e_j. This
    is correlation: parts that go together from row to row share what either of them may be wrong by, and what all parts miss alike
    falls to the largest.

    Parameters
    ----------
    predictions : sequence of Prediction
        Rows with `parts`.
    moe : frozenset of str
        Ids of rows whose model has experts.
    """
    by: dict[str, list[Prediction]] = defaultdict(list)
    for one in predictions:
        if one.parts and one.measured_step_seconds is not None:
            by[source_of(one.id, one.id in moe)].append(one)
    return tuple(_budget(source, some) for source, some in sorted(by.items()))


def _budget(source: str, some: Sequence[Prediction]) -> ErrorBudget:
    """The budget of one source."""
    names = list(some[0].parts)
    seconds = np.array([[one.parts[name] for name in names] for one in some])
    errors = np.array([one.error for one in some])
    shares = seconds / seconds.sum(axis=1, keepdims=True)
    missing = 1 / (1 + errors) - 1  # measured over predicted, less 1
    wrong = np.linalg.solve(shares.T @ shares / NOISE**2 + np.eye(len(names)) / BELIEVED**2, shares.T @ missing / NOISE**2)
    causes = dict(zip(names, (-shares.mean(axis=0) * wrong).tolist(), strict=True))
    return ErrorBudget(source, len(some), causes, float(errors.mean()), float(np.abs(missing - shares @ wrong).mean()))
