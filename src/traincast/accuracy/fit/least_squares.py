"""Bounded robust least squares with priors, confidence intervals, and fits with groups of data left out.

Parameters are in units of their priors: theta is the distance of the logarithm of a value from its prior
in standard deviations. Priors cost theta·`prior`·theta, where `prior` is the inverse of their
correlations (by default the identity). A residual y of the data is the logarithm of predicted over
measured; for a weight w and a scale s, its expected noise, it costs w ρ(y²/s²) with ρ(z) = 2(√(1+z) - 1)
(soft l1).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias

import numpy as np

from traincast.core import Bools, Floats, MissingExtra

DETERMINED: Final = 0.8  # a determined parameter's standard deviation after the fit over that before, at most
REWEIGHTINGS: Final = 60  # most reweightings of a fit without a group
SETTLED: Final = 1e-5  # a parameter changes by less between two of them [sigma]
Model: TypeAlias = Callable[[Floats], tuple[Floats, Floats]]  # theta → residuals and their derivatives
Bounds: TypeAlias = tuple[Floats, Floats]  # least and largest theta, each of shape (parameters,)


@dataclass(frozen=True, eq=False)
class Data:
    """Weights (0 to leave a row out), noise and groups of residuals; errors within a group are correlated."""

    weights: Floats
    scales: Floats
    groups: Sequence[Hashable]

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Join the data of several kinds of measurements."""
        weights, scales = (np.concatenate([getattr(p, n) for p in parts]) for n in ("weights", "scales"))
        return cls(weights, scales, [(i, name) for i, part in enumerate(parts) for name in part.groups])


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of a fit: parameters, and the logarithm of predicted over measured of each row."""

    theta: Floats
    residuals: Floats
    jacobian: Floats  # derivatives of the residuals, shape (rows, parameters)
    deviation: Floats  # standard deviation of each parameter, 1 before the fit (see `deviations`)
    determined: Bools  # parameters whose uncertainty the data reduce
    free: Bools  # parameters that were fitted; others stay at their prior
    prior: Floats  # inverse of the correlations before the fit, shape (parameters, parameters)


def solve(
    model: Model,
    data: Data,
    start: Floats,
    bounds: Bounds,
    steps: int = 20,
    free: Bools | None = None,
    prior: Floats | None = None,
) -> Solution:
    """Fit parameters to data and priors in at most `steps`; those not `free` stay at their prior, 0."""
    rows = np.flatnonzero(data.weights > 0)
    fitted = np.ones(len(start), bool) if free is None else free
    identity = np.eye(len(start))
    together = identity if prior is None else np.where(np.outer(fitted, fitted), prior, identity)
    root = np.linalg.cholesky(together).T
    latest: list[Any] = [None, None, None]

    def evaluate(theta: Floats) -> tuple[Floats, Floats]:
        if latest[0] is None or not np.array_equal(latest[0], theta):
            latest[:] = [theta.copy(), *model(theta)]
        return latest[1], latest[2]

    def residuals(theta: Floats) -> Floats:
        y, _ = evaluate(theta)
        return np.concatenate((y[rows] / data.scales[rows], root @ theta))

    def derivatives(theta: Floats) -> Floats:
        _, slopes = evaluate(theta)
        return np.vstack((slopes[rows] * fitted / data.scales[rows, None], root))

    fit = least_squares()(
        residuals,
        np.clip(start * fitted, bounds[0] + 1e-9, bounds[1] - 1e-9),
        jac=derivatives,
        bounds=bounds,
        loss=_loss(data.weights[rows]),
        max_nfev=steps,
        xtol=1e-4,
        ftol=1e-5,
    )
    return solution_at(fit.x, *evaluate(fit.x), data, fitted, together)


def solution_at(theta: Floats, y: Floats, slopes: Floats, data: Data, free: Bools, prior: Floats) -> Solution:
    """Return the solution with residuals `y` and derivatives `slopes` at theta."""
    robust, curvature = deviations(y, slopes * free, data, prior)
    return Solution(theta, y, slopes, robust, curvature < DETERMINED, free, prior)


def least_squares() -> Any:
    """Return the solver of scipy; raise `MissingExtra` where it is not installed."""
    try:
        from scipy.optimize import least_squares as solver
    except ImportError as error:
        raise MissingExtra.from_import_error(error) or error from None
    return solver


def _loss(weights: Floats) -> Callable[[Floats], Floats]:
    """Return the loss and its derivatives: weighted soft l1 for the data, squares for the priors."""

    def loss(z: Floats) -> Floats:
        rho = np.vstack((z, np.ones_like(z), np.zeros_like(z)))
        t = 1 + z[: len(weights)]
        rho[:, : len(weights)] = weights * np.vstack((2 * (t**0.5 - 1), t**-0.5, -0.5 * t**-1.5))
        return rho

    return loss


def deviations(residuals: Floats, slopes: Floats, data: Data, prior: Floats) -> tuple[Floats, Floats]:
    """Return two standard deviations of fitted parameters, each of shape (parameters,).

    The second is from the curvature, near 1 where the data say nothing; the first is that or, if larger, the
    one with scores summed by group (a sandwich).
    """
    z = (residuals / data.scales) ** 2
    pull = data.weights / np.sqrt(1 + z) / data.scales**2  # weight of a row in Gauss-Newton
    inverse = np.linalg.inv(slopes.T @ (pull[:, None] * slopes) + prior)
    names = {name: i for i, name in enumerate(dict.fromkeys(data.groups))}
    of = np.array([names[name] for name in data.groups], np.int64)
    scores = np.zeros((len(names), slopes.shape[1]))
    np.add.at(scores, of, (pull * residuals)[:, None] * slopes)
    group_count = max(len(names), 2)
    meat = scores.T @ scores * group_count / (group_count - 1) + prior
    curvature = np.sqrt(np.diag(inverse))
    robust = np.sqrt(np.diag(inverse @ meat @ inverse))
    return np.maximum(robust, curvature), curvature


def left_out(
    solution: Solution,
    data: Data,
    bounds: Bounds,
    groups: Sequence[Hashable],
    progress: Callable[[str], object] | None = None,
) -> dict[Hashable, Floats]:
    """Return the parameters fitted without each group of the data in turn, shape (parameters,), by group.

    Residuals are linearised at the full fit, which leaves a convex problem. A row whose group is None is
    never left out; a group without weight leaves the full fit as it is.
    """
    names = list(dict.fromkeys(group for group in groups if group is not None))
    thetas: dict[Hashable, Floats] = {}
    for name in names:
        is_out = np.array([group == name for group in groups])
        has_weight = bool((data.weights[is_out] > 0).any())
        others = replace(data, weights=np.where(is_out, 0.0, data.weights))
        thetas[name] = fit_linearised(solution, others, bounds) if has_weight else solution.theta
        if progress:
            progress(f"{len(thetas)} of {len(names)} groups left out")
    return thetas


def fit_linearised(solution: Solution, data: Data, bounds: Bounds) -> Floats:
    """Fit the parameters of a solution to other weights, residuals linearised at it, shape (parameters,).

    The loss is convex and so is reached by iteratively reweighted least squares (Holland and Welsch, 1977).
    """
    rows = np.flatnonzero(data.weights > 0)
    slopes = (solution.jacobian * solution.free)[rows]
    scales = data.scales[rows]
    weights = data.weights[rows]
    constant = solution.residuals[rows] - slopes @ solution.theta
    theta = solution.theta
    for _ in range(REWEIGHTINGS):
        y = constant + slopes @ theta
        pull = weights / np.sqrt(1 + (y / scales) ** 2) / scales**2
        weighted = slopes.T * pull
        previous = theta
        theta = _minimise_in_box(weighted @ slopes + solution.prior, weighted @ constant, bounds, theta)
        if np.abs(theta - previous).max() < SETTLED:
            break
    return theta


def _minimise_in_box(curvature: Floats, slope: Floats, bounds: Bounds, start: Floats) -> Floats:
    """Minimise x·curvature·x/2 + slope·x between bounds, by the set of parameters at a bound."""
    low, high = bounds
    x = np.clip(start, low, high)
    for _ in range(len(x)):
        gradient = curvature @ x + slope
        held = ((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0))
        free = ~held
        step = np.linalg.solve(curvature[np.ix_(free, free)], -gradient[free])
        changed = x.copy()
        changed[free] = np.clip(x[free] + step, low[free], high[free])
        if np.allclose(changed, x, rtol=0, atol=SETTLED / 10):
            return changed
        x = changed
    return x
