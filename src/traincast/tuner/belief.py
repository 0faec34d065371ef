"""What is believed of candidates' times and memory, given trials: a Gaussian process over all candidates.

The error of a candidate is the logarithm of its measured over its predicted time, e ~ N(0, K) before any
trial. It is a sum: an error that all candidates share (what the machine is like), errors of communication and
of the bubble by their shares of the step, and an own error. That is mostly one of kernels, which plans whose
ranks compute equal shapes have in common; of the rest they share the more, the less they differ::

    K_ij = shared² + Σ_c (σ_c a)² s_ci s_cj + (own a)² (ρ [shapes_i = shapes_j] + (1 - ρ) exp(-D_ij / reach))
           + Σ_k w_k (r_ki - r_i) (r_kj - r_j)

σ, own and a are those of `traincast.step.uncertainty`, but that a stack's uncertainty counts less in a: how
far predicted levels are off says little of differences between plans (`STACK_POWER`). ρ is `SHAPE_PART`. D is
its distance without what follows from another knob (`FOLLOWING`, `PART_OF`), and the reach that of such a
distance. The last sum is of the software that a question leaves open, of weight w_k each: r_ki is what it
changes of a candidate's time beside what it changes of all (`RankedSoftware`); its mean r_i moves what is
expected of the candidate.
A trial observes a candidate's error with the noise of a measurement. Given trials, errors have the mean and
covariance of the conditional distribution (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, equations 2.23 and 2.24); one measured trial costs one column over all candidates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from traincast.core import Floats, Ints
from traincast.planner import ERROR_SAMPLES, PLAN_DEGREES, PLAN_KINDS, RankedSoftware
from traincast.step import NORMAL_90_PERCENT, Errors, errors

# Deviation of the shared error. That of published runs is 0.03; with so little, a machine that is faster than
# its file says stops too soon.
SHARED: Final = 0.3
LEARNT: Final = ("communication", "bubble")  # components with an error of their own; the host's is none
# Power of a software's uncertainty, relative to that of most, in errors of differences between plans: the
# likeliest in 64 left-out groups of competing plans, of several stacks; -0.3 to 1 are hardly less likely.
STACK_POWER: Final = 1 / 3
# knobs that decide the shapes of a rank's kernels
SHAPES: Final = ("tp", "tp2", "cp", "ep", "etp", "mbs", "tp_kind", "cp_kind", "precision")
# Part of the variance of own errors that plans of equal shapes share: 0.85 is the likeliest in 166 groups of
# plans that compete, left out, 0.5 in those that are not of vTrain's single node.
SHAPE_PART: Final = 0.75
FOLLOWING: Final = "dp"  # a degree that the others leave over, as all plans of a job have its GPUs
# choices that belong to a degree: plans of different degrees differ in them because of it
PART_OF: Final = dict.fromkeys(("sp", "tp_kind", "tp_overlap"), "tp") | {
    "cp_kind": "cp",
    "schedule": "pp",
    "layout": "pp",
}
REACH: Final = 0.5  # of the known reach: in its distances a doubled degree counts twice, as it halves dp
NOISE: Final = 0.005  # of a trial's time, relative, before repeats say otherwise
NOISE_REPEATS: Final = 4  # repeats that this counts as
TRIAL_GAIN: Final = 0.01  # what is worth a trial: plans within it of each other are equal
STOP_PROBABILITY: Final = 0.95  # probability that the best so far is within `TRIAL_GAIN`, at which trials end
TIE: Final = 0.02  # relative difference of probabilities of a gain that a cheaper trial outweighs
FIRST_FITS: Final = 0.9  # probability to fit of the first trial
MOST_DRAWN: Final = 512  # candidates whose errors are drawn together, the likeliest to be faster
MEMORY_SHARED: Final = 0.5  # part of the variance of memory's errors that all plans of a job share
MEMORY_GRID: Final = 161  # values of the shared error of memory
JITTER: Final = 1e-9  # on the diagonal of what is decomposed, relative


@dataclass(frozen=True, eq=False)
class Prior:
    """Candidates as they are predicted, columns of shape (candidates,)."""

    seconds: Floats  # predicted time of a step [s]
    memory: Floats  # predicted memory of the fullest rank [byte]
    shares: Mapping[str, Floats]  # share of the step that is spent on each of `LEARNT`
    coordinates: Floats  # of `plan_coordinates`, shape (candidates, degrees and choices)
    factor: float = 1.0  # how uncertain predictions of this software are, relative to all
    capacity: float = np.inf  # memory of the accelerator [byte]
    memory_scale: float = 0.02  # of the logistic error of the logarithm of memory
    software: RankedSoftware | None = None  # that the question leaves open; None where it is stated
    known: Errors = field(default_factory=errors)

    @cached_property
    def expected(self) -> Floats:
        """Logarithm of every candidate's time, mean over software (without, that of the predicted time)."""
        predicted = np.log(self.seconds)
        return predicted if self.software is None else predicted + self.software.mean

    @property
    def scale(self) -> float:
        """Factor of the errors of components and of single plans, a."""
        most = self.known.other_stacks
        factor: float = most * (self.factor / most) ** STACK_POWER
        return factor * self.known.apart / NORMAL_90_PERCENT

    @cached_property
    def variance(self) -> Floats:
        """Prior variance of every candidate's error."""
        own = np.full(len(self.seconds), SHARED**2 + (self.known.own * self.scale) ** 2)
        for name in LEARNT:
            own += (getattr(self.known, name) * self.scale * self.shares[name]) ** 2
        own += (self._roots**2).sum(axis=0)
        return own

    @cached_property
    def _roots(self) -> Floats:
        """`RankedSoftware.roots`; without rows where the software is stated."""
        return np.zeros((0, len(self.seconds))) if self.software is None else self.software.roots

    def covariance(self, rows: Ints, columns: Ints) -> Floats:
        """Return K between candidates, shape (rows, columns)."""
        result = np.full((len(rows), len(columns)), SHARED**2)
        result += self._roots[:, rows].T @ self._roots[:, columns]
        for name in LEARNT:
            share = self.shares[name] * getattr(self.known, name) * self.scale
            result += share[rows, None] * share[columns]
        distance = np.zeros_like(result)
        same_shapes = np.ones(result.shape, np.bool_)
        knobs = dict(zip((*PLAN_DEGREES, *PLAN_KINDS), self.coordinates.T, strict=True))
        for name, column in knobs.items():
            if name == FOLLOWING or not np.ptp(column):
                continue
            apart = np.abs(column[rows, None] - column[columns])
            if name in PLAN_KINDS:
                apart = apart > 0
            if name in PART_OF:
                degree = knobs[PART_OF[name]]
                apart &= degree[rows, None] == degree[columns]
            if name in SHAPES:
                same_shapes &= apart == 0
            distance += apart
        alike = np.exp(-distance / (REACH * self.known.reach))
        own = SHAPE_PART * same_shapes + (1 - SHAPE_PART) * alike
        return np.asarray(result + (self.known.own * self.scale) ** 2 * own)


class Outlook(NamedTuple):
    """What is to be gained by further trials."""

    within: float  # probability that no other candidate is faster by more than `TRIAL_GAIN`
    gain: float  # expected remaining gain, relative to the time of the best so far


class Belief:
    """Belief on candidates after trials; `draws` are samples for probabilities, with a fixed random state."""

    def __init__(self, prior: Prior, draws: int = ERROR_SAMPLES):
        self.prior = prior
        self.draws = draws
        self.times: dict[int, list[float]] = {}  # candidate → measured times [s]
        self._errors: dict[int, list[float]] = {}  # the relative standard errors of these times
        self.pending: list[int] = []  # candidates whose trials are under way
        self.excluded = np.zeros(len(prior.seconds), np.bool_)  # ran out of memory, or failed
        self._columns: dict[int, Floats] = {}
        self._memory: list[tuple[float, float | None]] = []  # predicted [byte], measured or None: too much

    def time(self, candidate: int, seconds: float, error: float = 0.0) -> None:
        """Learn the time of a candidate [s], with its relative standard error within a trial: it fits."""
        self.times.setdefault(candidate, []).append(seconds)
        self._errors.setdefault(candidate, []).append(error)
        self._forget_posterior()

    def memory(self, candidate: int, measured: float | None) -> None:
        """Learn the memory of a candidate [byte]: infinite if only known to fit, None if it does not."""
        self._memory.append((float(self.prior.memory[candidate]), measured))
        self.excluded[candidate] |= measured is None
        self._forget_posterior()

    def exclude(self, candidate: int) -> None:
        """Learn that a candidate cannot be run."""
        self.excluded[candidate] = True
        self._forget_posterior()

    def wait(self, candidates: Sequence[int]) -> None:
        """Take note of the trials under way: until they have results, they go as predicted."""
        self.pending = list(candidates)
        self._forget_posterior()

    def _forget_posterior(self) -> None:
        for name in ("noise", "posterior", "fits", "outlook", "shared"):
            self.__dict__.pop(name, None)

    @cached_property
    def noise(self) -> float:
        """Relative noise of a trial beyond the errors given with it, from repeats and a prior of `NOISE`."""
        squares = NOISE_REPEATS * NOISE**2
        repeats = NOISE_REPEATS
        for row, times in self.times.items():
            given = float(np.mean(np.square(self._errors[row])))
            squares += max(float(np.var(np.log(times))) * len(times) - given * (len(times) - 1), 0.0)
            repeats += len(times) - 1
        return float((squares / repeats) ** 0.5)

    @property
    def trial_noise(self) -> float:
        """Relative noise of a trial of the usual spread, with the errors given with it."""
        given = [error for errors in self._errors.values() for error in errors]
        return float((self.noise**2 + np.mean(np.square(given))) ** 0.5)

    def _variances(self) -> list[float]:
        """Return the variance of the mean logarithm of every measured candidate's times."""
        return [
            sum(self.noise**2 + error**2 for error in errors) / len(errors) ** 2
            for errors in self._errors.values()
        ]

    @cached_property
    def posterior(self) -> "Posterior":
        """Logarithms of all candidates' times: means, deviations, and what draws are made from."""
        prior = self.prior
        measured = np.array([*self.times, *self._new_pending], np.int64)
        predicted = prior.expected
        if not len(measured):
            return Posterior(predicted, np.sqrt(prior.variance), np.zeros((0, len(predicted))))
        every = np.arange(len(predicted))
        for row in measured.tolist():
            if row not in self._columns:
                self._columns[row] = prior.covariance(every, np.array([row]))[:, 0]
        across = np.stack([self._columns[row] for row in measured.tolist()])
        times = list(self.times.values())
        variances = [*self._variances(), *[self.noise**2] * len(self._new_pending)]
        factor = np.linalg.cholesky(across[:, measured] + np.diag(variances))
        whitened = np.linalg.solve(factor, across)
        n = len(times)
        seen = np.array([np.mean(np.log(of_row)) for of_row in times]) - predicted[measured[:n]]
        # The factor of the first rows is that of the trials with results; the others go as believed.
        mean = whitened[:n].T @ np.linalg.solve(factor[:n, :n], seen)
        variance = np.maximum(prior.variance - (whitened**2).sum(axis=0), JITTER)
        return Posterior(predicted + mean, np.sqrt(variance), whitened)

    @cached_property
    def shared(self) -> tuple[float, float]:
        """Mean and standard deviation of the error that all candidates share, given trials."""
        rows = np.array(list(self.times), np.int64)
        seen = np.array([np.mean(np.log(times)) for times in self.times.values()])
        covariance = self.prior.covariance(rows, rows) + np.diag(self._variances())
        weights = np.linalg.solve(covariance, np.full(len(rows), SHARED**2))
        mean = weights @ (seen - self.prior.expected[rows])
        return float(mean), float(max(SHARED**2 - weights.sum() * SHARED**2, 0.0) ** 0.5)

    @property
    def _new_pending(self) -> list[int]:
        return [row for row in dict.fromkeys(self.pending) if row not in self.times]

    @property
    def best(self) -> int | None:
        """Candidate with the least time of those measured, noise considered; None before any was."""
        usable = [row for row in self.times if not self.excluded[row]]
        return min(usable, key=lambda row: self.posterior.mean[row], default=None)

    @cached_property
    def fits(self) -> Floats:
        """Probability that each candidate fits, given what trials said of memory.

        The logarithm of measured over predicted memory is a shared error, known on a grid, and an own one.
        The grid holds every result, however far from what is predicted.
        """
        prior = self.prior
        shared, own = (prior.memory_scale * part**0.5 for part in (MEMORY_SHARED, 1 - MEMORY_SHARED))
        seen = [
            (prior.capacity if most is None else most) / at for at, most in self._memory if most != np.inf
        ]
        reach = max(12 * shared, *np.abs(np.log([1.0, *seen])))
        grid = np.linspace(-reach, reach, MEMORY_GRID)
        log_weight = _log_logistic(grid / shared) + _log_logistic(-grid / shared)  # logistic density
        for predicted, measured in self._memory:
            room = (np.log(prior.capacity / predicted) - grid) / own
            if measured is None:
                log_weight += _log_logistic(-room)
            elif np.isinf(measured):
                log_weight += _log_logistic(room)
            else:
                apart = (np.log(measured / predicted) - grid) / own
                log_weight += _log_logistic(apart) + _log_logistic(-apart)
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        furthest = 12 + reach / own  # in scales of a plan's own error, as rooms are
        rooms = np.linspace(-furthest, furthest, 8 * MEMORY_GRID)
        fitting = np.exp(_log_logistic(rooms[:, None] - grid / own)) @ weight
        result = np.interp(np.log(prior.capacity / prior.memory) / own, rooms, fitting)
        result[list(self.times)] = 1.0
        return np.where(self.excluded, 0.0, result)

    def log_gain_probability(self) -> Floats:
        """Return the logarithm of each candidate's probability to fit and to be faster by `TRIAL_GAIN`."""
        from scipy.special import log_ndtr

        best = self.best
        if best is None:
            raise ValueError("nothing is measured")
        mean, deviation, _ = self.posterior
        with np.errstate(divide="ignore"):
            log_fits = np.log(self.fits)
        result = log_ndtr((mean[best] - np.log1p(TRIAL_GAIN) - mean) / deviation) + log_fits
        result[best] = -np.inf
        return np.asarray(result)

    def choose(self) -> int | None:
        """Return the candidate to try next; None where there is none.

        It is that with the highest probability to fit and to be faster by `TRIAL_GAIN`; of those within
        `TIE` of it the one whose steps take the least time. Before any time is known, it is the fastest
        that fits with a probability of `FIRST_FITS`, or else the likeliest to fit. Where it was measured
        before and the best is less sure, the best is measured again: the two alternate until noise does not
        decide.
        """
        seconds = self.prior.seconds
        best = self.best
        if best is None:
            is_open = ~self.excluded
            is_open[self.pending] = False
            if not is_open.any():
                return None
            likely = is_open & (self.fits >= min(FIRST_FITS, self.fits[is_open].max()))
            return int(np.flatnonzero(likely)[np.argmin(seconds[likely])])
        chance = self.log_gain_probability()
        chance[self.pending] = -np.inf
        if not np.isfinite(chance.max()):
            return None
        near = np.flatnonzero(chance >= chance.max() + np.log1p(-TIE))
        row = int(near[np.argmin(seconds[near])])
        deviation = self.posterior.deviation
        is_rival = row in self.times and best not in self.pending
        return best if is_rival and deviation[best] > deviation[row] else row

    @cached_property
    def outlook(self) -> Outlook:
        """Probability that the best so far is within `TRIAL_GAIN`, and the expected remaining gain, by draws.

        Errors of the likeliest candidates are drawn together, those of others as if independent.
        """
        best = self.best
        if best is None:
            return Outlook(0.0, np.nan)
        chance = self.log_gain_probability()
        likely = np.argsort(-chance, kind="stable")[:MOST_DRAWN]
        likely = likely[np.isfinite(chance[likely])]
        others = float(np.log1p(-np.minimum(np.exp(chance), 1 - JITTER)).sum())
        others -= float(np.log1p(-np.minimum(np.exp(chance[likely]), 1 - JITTER)).sum())
        pool = np.append(best, likely)
        mean, _, whitened = self.posterior
        covariance = self.prior.covariance(pool, pool) - whitened[:, pool].T @ whitened[:, pool]
        rng = np.random.default_rng(0)
        deviations = rng.standard_normal((self.draws, len(pool))) @ _root(covariance).T
        fits = rng.random((self.draws, len(pool))) < self.fits[pool]
        drawn = np.where(fits, mean[pool] + deviations, np.inf)
        drawn[:, 0] = mean[best] + deviations[:, 0]
        gain = np.maximum(drawn[:, 0] - drawn.min(axis=1), 0.0)
        within = float(np.mean(gain <= np.log1p(TRIAL_GAIN))) * float(np.exp(others))
        return Outlook(within, float(np.mean(-np.expm1(-gain))))


class Posterior(NamedTuple):
    """Logarithm of the time of every candidate after trials, columns of shape (candidates,)."""

    mean: Floats
    deviation: Floats
    whitened: Floats  # K less the product of its columns is the covariance; shape (trials, candidates)


def _root(covariance: Floats) -> Floats:
    """Return R with R R' a covariance, whatever rounding makes of its least eigenvalues."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _log_logistic(x: Floats) -> Floats:
    return np.asarray(-np.logaddexp(0.0, -x))
