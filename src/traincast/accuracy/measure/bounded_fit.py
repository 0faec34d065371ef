"""Fit of constants within bounds: robust least squares of the logarithms of predicted over measured times."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from traincast.accuracy.fit.least_squares import least_squares
from traincast.core.quantities import Floats

Values: TypeAlias = dict[str, float]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]
RELATIVE_NOISE: Final = 0.05  # relative error beyond which the loss grows linearly instead of quadratically
LOG_STEP: Final = 1e-3  # change of the logarithm of a constant for finite differences
MAX_EVALUATIONS: Final = 60  # of the residuals, Jacobians not counted
BOUND_MARGIN: Final = 0.01  # distance of logarithms within which a constant counts as at its bound
MIN_SENSITIVITY: Final = (
    1e-3  # least derivative of a residual by the logarithm of a constant that the data determine
)


def scaled_log_errors(predicted: Floats, measured: Floats) -> Floats:
    """Return the logarithms of predicted over measured, in units of the noise, shape (rows,)."""
    return np.log(predicted / measured) / RELATIVE_NOISE


def mean_soft_error(predicted: Floats, measured: Floats) -> float:
    """Return the mean soft-L1 loss of predicted times [1]."""
    return float(np.mean(np.sqrt(1 + scaled_log_errors(predicted, measured) ** 2) - 1))


def fit_constants(
    predict: Callable[[Values], Floats], measured: Floats, start: Mapping[str, float], bounds: Bounds
) -> tuple[Values, frozenset[str]]:
    """Fit constants so that predicted times come nearest to measured ones, with a soft-L1 loss.

    Parameters
    ----------
    predict : callable
        Return the times predicted with values of the constants, shape (rows,) [s].
    measured : array, shape (rows,)
        Measured times [s].
    start : mapping of str to float
        Initial values, above 0.
    bounds : mapping of str to pair of float
        Lowest and highest value of each constant that is bounded.

    Returns
    -------
    dict of str to float, frozenset of str
        The fitted values, and the constants that the measurements do not determine (at a bound, or without effect).

    Raises
    ------
    InputError
        If scipy is not installed.
    """
    names = list(start)
    low, high = (np.log([bounds.get(name, (1e-300, 1e300))[side] for name in names]) for side in (0, 1))
    initial = np.clip(np.log([start[name] for name in names]), low + BOUND_MARGIN, high - BOUND_MARGIN)

    def residuals(theta: Floats) -> Floats:
        return scaled_log_errors(predict(dict(zip(names, np.exp(theta).tolist(), strict=True))), measured)

    solution = least_squares("measure")(
        residuals,
        initial,
        bounds=(low, high),
        loss="soft_l1",
        diff_step=LOG_STEP,
        x_scale="jac",
        max_nfev=MAX_EVALUATIONS,
        xtol=1e-6,
        ftol=1e-6,
    )
    ineffective = np.max(np.abs(solution.jac), axis=0) < MIN_SENSITIVITY
    undetermined = ineffective | (solution.x <= low + BOUND_MARGIN) | (solution.x >= high - BOUND_MARGIN)
    logs = np.where(
        solution.x <= low + BOUND_MARGIN, low, np.where(solution.x >= high - BOUND_MARGIN, high, solution.x)
    )
    return dict(zip(names, np.exp(logs).tolist(), strict=True)), frozenset(
        name for name, is_loose in zip(names, undetermined, strict=True) if is_loose
    )
