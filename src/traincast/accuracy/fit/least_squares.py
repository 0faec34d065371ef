"""Bounded robust least squares with priors, its confidence intervals, and fits with some groups of the data left out.

Parameters are in units of their priors: theta is the distance of the logarithm of a value from its prior in
standard deviations, so that the residual of the prior is theta itself. A residual y of the data is the
logarithm of predicted over measured; it costs w ρ(y²/s²) with ρ(z) = 2(√(1+z) - 1) (soft l1) for a weight w
and a scale s, its expected noise.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from traincast.core.errors import InputError
from traincast.core.quantities import Bools, Floats

NINETY: Final = 1.6449  # standard deviations on either side that hold 90 % of a normal distribution
DETERMINED: Final = (
    0.8  # a parameter counts as determined below this standard deviation after the fit over that before
)
Model: TypeAlias = Callable[[Floats], tuple[Floats, Floats]]  # theta → residuals and their derivatives


@dataclass(frozen=True)
class Data:
    """Weights, noise and groups of residuals.

    Parameters
    ----------
    weights, scales : array, shape (rows,)
        Weight of each row, 0 to leave it out, and its expected noise.
    groups : sequence of hashable
        Group of each row; errors within a group are correlated.
    """

    weights: Floats
    scales: Floats
    groups: Sequence[Hashable]

    def without(self, rows: Bools) -> "Data":
        """Return the data with rows left out."""
        return replace(self, weights=np.where(rows, 0.0, self.weights))


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of a fit.

    Parameters
    ----------
    theta : array, shape (parameters,)
        The parameters.
    residuals : array, shape (rows,)
        Logarithm of predicted over measured.
    jacobian : array, shape (rows, parameters)
        Its derivatives.
    deviation : array, shape (parameters,)
        Standard deviation of each parameter, 1 before the fit: the larger of that from the curvature and of
        the one that is robust against correlated rows of a group.
    information : array, shape (parameters,)
        Standard deviation from the curvature alone: near 1 where the data say nothing.
    determined : array of bool, shape (parameters,)
        Parameters that the data determine: those whose uncertainty they reduce.
    free : array of bool, shape (parameters,)
        Parameters that were fitted; others stay at their prior.
    """

    theta: Floats
    residuals: Floats
    jacobian: Floats
    deviation: Floats
    information: Floats
    determined: Bools
    free: Bools


def solve(
    model: Model,
    data: Data,
    start: Floats,
    bounds: tuple[Floats, Floats],
    steps: int = 20,
    free: Bools | None = None,
) -> Solution:
    """Fit parameters to data and priors.

    Parameters
    ----------
    model : callable
        Residuals, shape (rows,), and derivatives, shape (rows, parameters), at parameters.
    data : Data
        Weights, scales and groups of the residuals.
    start : array, shape (parameters,)
        Start of the fit.
    bounds : pair of array, shape (parameters,)
        Least and largest values.
    steps : int
        Maximum number of evaluations of the model.
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

    def evaluated(theta: Floats) -> tuple[Floats, Floats]:
        if latest[0] is None or not np.array_equal(latest[0], theta):
            latest[:] = [theta.copy(), *model(theta)]
        return latest[1], latest[2]

    def residuals(theta: Floats) -> Floats:
        y, _ = evaluated(theta)
        return np.concatenate((y[rows] / data.scales[rows], theta))

    def derivatives(theta: Floats) -> Floats:
        _, slopes = evaluated(theta)
        return np.vstack((slopes[rows] * fitted / data.scales[rows, None], np.eye(len(theta))))

    clipped = np.clip(start * fitted, bounds[0] + 1e-9, bounds[1] - 1e-9)
    fit = least_squares("calibrate")(
        residuals,
        clipped,
        jac=derivatives,
        bounds=bounds,
        loss=_loss(data.weights[rows]),
        max_nfev=steps,
        xtol=1e-4,
        ftol=1e-5,
    )
    y, slopes = evaluated(fit.x)
    robust, curvature = deviations(y, slopes * fitted, data)
    return Solution(fit.x, y, slopes, robust, curvature, curvature < DETERMINED, fitted)


def least_squares(what: str) -> Any:
    """Return the solver; `what` names the command that needs it.

    Raises
    ------
    InputError
        If scipy is not installed.
    """
    try:
        from scipy.optimize import least_squares as solver
    except ImportError:
        raise InputError(
            what, ["needs scipy; install traincast with its extra: pip install 'traincast[calibration]'"]
        ) from None
    return solver


def _loss(weights: Floats) -> Callable[[Floats], Floats]:
    """Return the loss, weighted soft l1 for the data and squares for the priors: ρ and its derivatives, shape (3, residuals)."""

    def loss(z: Floats) -> Floats:
        rho = np.vstack((z, np.ones_like(z), np.zeros_like(z)))
        t = 1 + z[: len(weights)]
        rho[:, : len(weights)] = weights * np.vstack((2 * (t**0.5 - 1), t**-0.5, -0.5 * t**-1.5))
        return rho

    return loss


def deviations(residuals: Floats, slopes: Floats, data: Data) -> tuple[Floats, Floats]:
    """Return the standard deviations of fitted parameters.

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
    group_count = max(len(names), 2)
    meat = scores.T @ scores * group_count / (group_count - 1) + identity
    curvature = np.sqrt(np.diag(inverse))
    robust = np.sqrt(np.diag(inverse @ meat @ inverse))
    return np.maximum(robust, curvature), curvature


def linearised(solution: Solution) -> Model:
    """Return the residuals linearised at a solution."""

    def model(theta: Floats) -> tuple[Floats, Floats]:
        return solution.residuals + solution.jacobian @ (theta - solution.theta), solution.jacobian

    return model


def left_out(
    solution: Solution,
    data: Data,
    bounds: tuple[Floats, Floats],
    groups: Sequence[Hashable],
    seed: int = 0,
    progress: Callable[[str], Any] | None = None,
) -> dict[Hashable, Floats]:
    """Fit the parameters without each group of the data in turn, from perturbed starts, with residuals linearised at the full fit.

    Parameters
    ----------
    solution : Solution
        The fit to all data.
    data : Data
        Weights, scales and groups of the residuals.
    bounds : pair of array, shape (parameters,)
        Least and largest values.
    groups : sequence of hashable, of length rows
        Group of each row, left out together; None for rows never left out.
    seed : int
        Seed of the perturbations.
    progress : callable, optional
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
    thetas: dict[Hashable, Floats] = {}
    distinct = list(dict.fromkeys(group for group in groups if group is not None))
    for name in distinct:
        excluded = np.array([group == name for group in names])
        start = solution.theta + rng.normal(0, 0.3, len(solution.theta))
        thetas[name] = solve(
            plane, data.without(excluded), start, bounds, steps=100, free=solution.free
        ).theta
        if progress:
            progress(f"{len(thetas)} of {len(distinct)} groups left out")
    return thetas
