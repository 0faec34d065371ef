"""Constants that bring predictions nearest to measurements: robust least squares of logarithms of predicted over measured."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from traincast.accuracy.fit.least_squares import least_squares
from traincast.core.quantities import Floats

Values: TypeAlias = dict[str, float]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]
RELATIVE_NOISE: Final = 0.05  # relative error from which one counts by its size, not by its square
LOG_STEP: Final = 1e-3  # change of the logarithm of a constant for a derivative
MAX_EVALUATIONS: Final = 60  # steps
BOUND_MARGIN: Final = 0.01  # a constant so near a bound, in its logarithm, is at it
MIN_SENSITIVITY: Final = 1e-3  # least change of an error with the logarithm of a constant that the data speak of


def scaled_log_errors(predicted: Floats, measured: Floats) -> Floats:
    """Logarithms of predicted over measured in units of the noise, shape (rows,)."""
    return np.log(predicted / measured) / RELATIVE_NOISE


def mean_soft_error(predicted: Floats, measured: Floats) -> float:
    """Mean soft absolute error."""
    return float(np.mean(np.sqrt(1 + scaled_log_errors(predicted, measured) ** 2) - 1))


def fit_constants(
    predict: Callable[[Values], Floats], measured: Floats, start: Mapping[str, float], bounds: Bounds
) -> tuple[Values, frozenset[str]]:
    """Values of constants at which predictions are nearest to what was measured, errors beyond the noise counted by their size.

    Parameters
    ----------
    predict : callable
        Times with values of the constants, shape (rows,) [s].
    measured : array, shape (rows,)
        Measured times [s].
    start : mapping of str to float
        Where to begin, above 0.
    bounds : mapping of str to pair of float
        Least and largest values, of those that have bounds.

    Returns
    -------
    dict of str to float, frozenset of str
        The values; and the constants that the measurements do not determine: at a bound, or of no effect.

    Raises
    ------
    InputError
        If scipy is not installed.
    """
    names = list(start)
    low, high = (np.log([bounds.get(name, (1e-300, 1e300))[end] for name in names]) for end in (0, 1))
    begin = np.clip(np.log([start[name] for name in names]), low + BOUND_MARGIN, high - BOUND_MARGIN)

    def residuals(theta: Floats) -> Floats:
        return scaled_log_errors(predict(dict(zip(names, np.exp(theta).tolist(), strict=True))), measured)

    found = least_squares("measure")(
        residuals,
        begin,
        bounds=(low, high),
        loss="soft_l1",
        diff_step=LOG_STEP,
        x_scale="jac",
        max_nfev=MAX_EVALUATIONS,
        xtol=1e-6,
        ftol=1e-6,
    )
    still = np.max(np.abs(found.jac), axis=0) < MIN_SENSITIVITY
    loose = still | (found.x <= low + BOUND_MARGIN) | (found.x >= high - BOUND_MARGIN)
    at = np.where(found.x <= low + BOUND_MARGIN, low, np.where(found.x >= high - BOUND_MARGIN, high, found.x))
    return dict(zip(names, np.exp(at).tolist(), strict=True)), frozenset(
        name for name, one in zip(names, loose, strict=True) if one
    )
