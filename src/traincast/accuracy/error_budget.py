"""Error budget: the parts of a step that prediction errors correlate with."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from traincast.accuracy.scores import Prediction, source_of

NOISE: Final = 0.05  # relative error of a row that no part explains
BELIEVED: Final = 0.2  # prior of the relative deviation of a part


@dataclass(frozen=True)
class ErrorBudget:
    """Error budget of one source.

    Parameters
    ----------
    source : str
        The source.
    n : int
        Number of rows.
    causes : mapping of str to float
        Part of the step → its contribution to the mean error: above 0 where it is predicted too long [1].
    bias, unexplained : float
        Mean error, and the mean absolute error that no part explains [1].
    """

    source: str
    n: int
    causes: Mapping[str, float]
    bias: float
    unexplained: float


def budgets(predictions: Sequence[Prediction], moe: frozenset[str] = frozenset()) -> tuple[ErrorBudget, ...]:
    """Compute error budgets by source, from rows whose parts are known.

    If part j of row i, a share s_ij of its predicted time, were right times 1 + e_j, then measured over
    predicted would be 1 + Σ_j s_ij e_j. The e_j of a source are fitted to its rows, with a prior of 0 ±
    `BELIEVED` and a noise of `NOISE` in each row, n rows counting as √n (ridge regression). A part's cause is
    minus its mean share times e_j. This is correlation: parts that vary together share each other's error,
    and an error common to all parts is attributed to the largest.

    Parameters
    ----------
    predictions : sequence of Prediction
        Rows with `parts`.
    moe : frozenset of str
        Ids of rows whose model has experts.
    """
    by_source: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        if prediction.parts and prediction.measured_step_seconds is not None:
            by_source[source_of(prediction.id, prediction.id in moe)].append(prediction)
    return tuple(_budget(source, rows) for source, rows in sorted(by_source.items()))


def _budget(source: str, rows: Sequence[Prediction]) -> ErrorBudget:
    """Return the error budget of one source."""
    names = list(rows[0].parts)
    seconds = np.array([[row.parts[name] for name in names] for row in rows])
    errors = np.array([row.error for row in rows])
    shares = seconds / seconds.sum(axis=1, keepdims=True)
    missing = 1 / (1 + errors) - 1  # measured over predicted, less 1
    deviations = np.linalg.solve(
        shares.T @ shares / NOISE**2 + np.eye(len(names)) / BELIEVED**2, shares.T @ missing / NOISE**2
    )
    causes = dict(zip(names, (-shares.mean(axis=0) * deviations).tolist(), strict=True))
    return ErrorBudget(
        source, len(rows), causes, float(errors.mean()), float(np.abs(missing - shares @ deviations).mean())
    )
