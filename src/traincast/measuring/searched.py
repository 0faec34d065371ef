"""Positive constants that bring predictions nearest to measurements: robust least squares of logarithms, without scipy."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from traincast.columns import Floats

Values: TypeAlias = dict[str, float]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]
NOISE: Final = 0.05  # relative error from which one counts by its size, not by its square
NUDGE: Final = 1e-3  # change of the logarithm of a constant for a derivative
STEPS: Final = 40  # most steps
DAMPED: Final = (1e-3, 1e6)  # damping at the beginning, and where nothing helps any more
SMALL: Final = 1e-5  # gain, relative to what is left, at which it ends


def loss(predicted: Floats, measured: Floats) -> float:
    """Mean soft absolute logarithm of predicted over measured."""
    errors = np.log(predicted / measured) / NOISE
    return float(np.mean(np.sqrt(1 + errors * errors) - 1))


def nearest(predict: Callable[[Values], Floats], measured: Floats, start: Mapping[str, float], bounds: Bounds) -> Values:
    """Values of constants at which predictions are nearest to what was measured.

    Levenberg's damped steps on the logarithms of the constants, rows weighted anew before each as the soft absolute error has it; a
    constant at a bound that would go beyond stays there.

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
    dict of str to float
        The values.
    """
    names = list(start)
    low, high = (np.log([bounds.get(name, (1e-300, 1e300))[end] for name in names]) for end in (0, 1))

    def told(theta: Floats) -> Floats:
        return predict(dict(zip(names, np.exp(theta).tolist(), strict=True)))

    theta = np.clip(np.log([start[name] for name in names]), low, high)
    predicted = told(theta)
    least, damping = loss(predicted, measured), DAMPED[0]
    for _ in range(STEPS):
        pull, slopes = _gradients(told, theta, predicted, measured, high)
        free = ~(((theta <= low) & (pull > 0)) | ((theta >= high) & (pull < 0)))
        before = least
        while damping < DAMPED[1] and least == before and free.any():
            own = slopes[np.ix_(free, free)]
            step = np.zeros(len(names))
            step[free] = np.linalg.solve(own + damping * (np.diag(np.diag(own)) + 1e-9 * np.eye(len(own))), -pull[free])
            tried = np.clip(theta + np.clip(step, -1, 1), low, high)
            found = told(tried)
            if loss(found, measured) < least:
                theta, predicted, least, damping = tried, found, loss(found, measured), damping / 10
            else:
                damping *= 10
        if before - least <= SMALL * before:
            break
    return dict(zip(names, np.exp(theta).tolist(), strict=True))


def _gradients(
    told: Callable[[Floats], Floats], theta: Floats, predicted: Floats, measured: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Gradient of the loss, shape (constants,), and its curvature after Gauss and Newton, shape (constants, constants)."""
    errors = np.log(predicted / measured) / NOISE
    weights = 1 / np.sqrt(1 + errors * errors)
    columns = []
    for i in range(len(theta)):
        side = NUDGE if theta[i] + NUDGE <= high[i] else -NUDGE
        columns.append(np.log(told(theta + side * (np.arange(len(theta)) == i)) / predicted) / (NOISE * side))
    J = np.stack(columns, axis=1)
    return J.T @ (weights * errors), J.T @ (weights[:, None] * J)
