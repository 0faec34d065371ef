"""Bounded robust least squares with priors, its confidence intervals, and fits with some groups of the data left out.

Parameters are told in units of their priors: theta is how many standard deviations the logarithm of a value is from its prior, so
that the prior is a residual, theta itself. A residual y of the data is the logarithm of predicted over measured; it counts
w ρ(y²/s²) with ρ(z) = 2(√(1+z) - 1) (soft l1) for a weight w and a scale s, the noise that is expected of it.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from traincast.core.errors import InputError
from traincast.core.quantities import Bools, Floats

NINETY: Final = 1.6449  # standard deviations of a normal distribution that 90 % lie within
DETERMINED: Final = 0.8  # largest standard deviation after a fit, relative to that before, of what data determine
Model: TypeAlias = Callable[[Floats], tuple[Floats, Floats]]  # theta → residuals and their derivatives


@dataclass(frozen=True)
class Data:
    """What is known of the residuals.

    Parameters
    ----------
    weights, scales : array, shape (rows,)
        How much each counts, 0 to leave it out, and the noise expected of it.
    groups : sequence of hashable
        What each row belongs to; rows of a group err together.
    """

    weights: Floats
    scales: Floats
    groups: Sequence[Hashable]

    def without(self, rows: Bools) -> "Data":
        """The same with some rows left out."""
        return replace(self, weights=np.where(rows, 0.0, self.weights))


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a fit ended.

    Parameters
    ----------
    theta : array, shape (parameters,)
        The parameters.
    residuals : array, shape (rows,)
        Logarithm of predicted over measured.
    jacobian : array, shape (rows, parameters)
        Its derivatives.
    deviation : array, shape (parameters,)
        Standard deviation of each parameter, of 1 beforehand: the larger of that from the curvature and of the one that is robust
        against rows of a group that err together.
    information : array, shape (parameters,)
        Standard deviation from the curvature alone: near 1 where the data say nothing.
    determined : array of bool, shape (parameters,)
        Which parameters the data determine: those whose uncertainty they reduce.
    free : array of bool, shape (parameters,)
        Which were fitted; others stay at their prior.
    """

    theta: Floats
    residuals: Floats
    jacobian: Floats
    deviation: Floats
    information: Floats
    determined: Bools
    free: Bools


def solve(
    model: Model, data: Data, start: Floats, bounds: tuple[Floats, Floats], steps: int = 20, free: Bools | None = None
) -> Solution:
    """The parameters that suit data and priors best.

    Parameters
    ----------
    model : callable
        Residuals, shape (rows,), and derivatives, shape (rows, parameters), at parameters.
    data : Data
        Weights, scales and groups of the residuals.
    start : array, shape (parameters,)
        Where to begin.
    bounds : pair of array, shape (parameters,)
        Least and largest values.
    steps : int
        Most evaluations of the model.
    free : array of bool, shape (parameters,), optional
        Parameters that are fitted; the others stay at their prior, 0.

    Returns
    -------
    Solution
        The fit; derivatives at its end.

    Raises
    ------
    InputError
        If scipy is not installed.
    """
    rows = np.flatnonzero(data.weights > 0)
    fitted = np.ones(len(start), bool) if free is None else free
    latest: list[Any] = [None, None, None]

    def at(theta: Floats) -> tuple[Floats, Floats]:
        if latest[0] is None or not np.array_equal(latest[0], theta):
            latest[:] = [theta.copy(), *model(theta)]
        return latest[1], latest[2]

    def residuals(theta: Floats) -> Floats:
        y, _ = at(theta)
        return np.concatenate((y[rows] / data.scales[rows], theta))

    def derivatives(theta: Floats) -> Floats:
        _, slopes = at(theta)
        return np.vstack((slopes[rows] * fitted / data.scales[rows, None], np.eye(len(theta))))

    within = np.clip(start * fitted, bounds[0] + 1e-9, bounds[1] - 1e-9)
    found = least_squares("calibrate")(
        residuals, within, jac=derivatives, bounds=bounds, loss=_loss(data.weights[rows]), max_nfev=steps, xtol=1e-4, ftol=1e-5
    )
    y, slopes = at(found.x)
    robust, curvature = deviations(y, slopes * fitted, data)
    return Solution(found.x, y, slopes, robust, curvature, curvature < DETERMINED, fitted)


def least_squares(what: str) -> Any:
    """The solver, for a command that needs it.

    Raises
    ------
    InputError
        If scipy is not installed.
    """
    try:
        from scipy.optimize import least_squares as solver
    except ImportError:
        raise InputError(what, ["needs scipy; install traincast with its extra: pip install 'traincast[calibration]'"]) from None
    return solver


def _loss(weights: Floats) -> Callable[[Floats], Floats]:
    """Soft l1 with weights for the data, squares for the priors: ρ and its derivatives, shape (3, residuals)."""

    def loss(z: Floats) -> Floats:
        rho = np.vstack((z, np.ones_like(z), np.zeros_like(z)))
        t = 1 + z[: len(weights)]
        rho[:, : len(weights)] = weights * np.vstack((2 * (t**0.5 - 1), t**-0.5, -0.5 * t**-1.5))
        return rho

    return loss


def deviations(residuals: Floats, slopes: Floats, data: Data) -> tuple[Floats, Floats]:
    """Standard deviations of fitted parameters.

    Parameters
    ----------
    residuals : array, shape (rows,)
        Residuals at the optimum.
    slopes : array, shape (rows, parameters)
        Their derivatives.
    data : Data
        Weights, scales and groups.

    Returns
    -------
    robust, curvature : array, shape (parameters,)
        The larger of the two, with scores summed by group in the first (a sandwich), and the second alone.
    """
    z = (residuals / data.scales) ** 2
    pull = data.weights / np.sqrt(1 + z) / data.scales**2  # weight of a row in Gauss-Newton
    identity = np.eye(slopes.shape[1])
    inverse = np.linalg.inv(slopes.T @ (pull[:, None] * slopes) + identity)
    names = {name: i for i, name in enumerate(dict.fromkeys(data.groups))}
    of = np.array([names[name] for name in data.groups], np.int64)
    scores = np.zeros((len(names), slopes.shape[1]))
    np.add.at(scores, of, (pull * residuals)[:, None] * slopes)
    several = max(len(names), 2)
    meat = scores.T @ scores * several / (several - 1) + identity
    curvature = np.sqrt(np.diag(inverse))
    robust = np.sqrt(np.diag(inverse @ meat @ inverse))
    return np.maximum(robust, curvature), curvature


def linearised(solution: Solution) -> Model:
    """The residuals as a plane that touches them at a solution."""

    def model(theta: Floats) -> tuple[Floats, Floats]:
        return solution.residuals + solution.jacobian @ (theta - solution.theta), solution.jacobian

    return model


def left_out(
    solution: Solution,
    data: Data,
    bounds: tuple[Floats, Floats],
    groups: Sequence[Hashable],
    seed: int = 0,
    told: Callable[[str], Any] | None = None,
) -> dict[Hashable, Floats]:
    """Parameters fitted without each group of the data, one after the other, from perturbed starts on the plane of the full fit.

    Parameters
    ----------
    solution : Solution
        The fit to all data.
    data : Data
        Weights, scales and groups of the residuals.
    bounds : pair of array, shape (parameters,)
        Least and largest values.
    groups : sequence of hashable, of length rows
        What is left out together; None for what never is.
    seed : int
        Of the perturbations.
    told : callable, optional
        Called with a line of text after every group.

    Returns
    -------
    dict of hashable to array, shape (parameters,)
        Group → parameters that were fitted without it.
    """
    rng = np.random.default_rng(seed)
    plane = linearised(solution)
    names = np.empty(len(groups), object)
    names[:] = list(groups)
    found: dict[Hashable, Floats] = {}
    different = list(dict.fromkeys(one for one in groups if one is not None))
    for name in different:
        gone = np.array([one == name for one in names])
        start = solution.theta + rng.normal(0, 0.3, len(solution.theta))
        found[name] = solve(plane, data.without(gone), start, bounds, steps=100, free=solution.free).theta
        if told:
            told(f"{len(found)} of {len(different)} groups left out")
    return found
