"""Whether one predicted time is shorter than another: the ratio of two steps and its error.

What two predictions share cancels in their ratio. What that is, was looked up in pairs of published runs,
each predicted with constants fitted without its group (calibration/pairs.py): errors of one model,
accelerator and software are correlated, as `difference_deviation` has it; those of two accelerators, two
stacks or two models differ as much as independent errors do. What nobody measured of a model, an accelerator
or software is the same unknown in both steps that have it, and software that both leave open is one and the
same.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import numpy as np

from traincast.catalog import Stack
from traincast.core import Doc, InputError, Plan, Result
from traincast.planner.answers.rankings import difference_deviation, plan_coordinates
from traincast.step import (
    COMPONENTS,
    NORMAL_90_PERCENT,
    Alternative,
    ErrorCase,
    Errors,
    Estimate,
    Mixture,
    errors,
    estimate_columns,
    measured_deviation,
)

OF_MODEL: Final = ("new_layers", "hidden", "layers", "seq")  # distances that one model has everywhere
OF_ACCELERATOR: Final = ("new_accelerator", "new_generation", "new_precision")  # all others are of software

VARIED: Final = ", varied"  # after the name of an accelerator some of whose figures are changed
# Differences have heavier tails than errors: so much wider, 88 to 96 % of the pairs of published runs that
# differ in one respect lie inside (calibration/pairs.py, 2026-11-27)
TAILS: Final = 1.15


class Ratio(Result, kw_only=True):
    """Ratio of two step times, as far as the model can tell it; of work of the same size."""

    value: Annotated[float, Doc("predicted time over that of the other", key="ratio")]
    low: Annotated[float, Doc("lower end of its 90 % interval", key="ratio_low")]
    high: Annotated[float, Doc("upper end of its 90 % interval", key="ratio_high")]
    faster: Annotated[float, Doc("probability that it is the faster of the two", key="faster_probability")]

    @property
    def error(self) -> Annotated[float, Doc()]:
        """How far the ratio may be from the value towards 1, in 90 % of cases both ways."""
        return self.value - self.low if self.value > 1 else self.high - self.value

    @property
    def exceeds_error(self) -> Annotated[bool, Doc()]:
        """Whether the two differ by more than the error."""
        return not self.low <= 1 <= self.high


class Predicted(NamedTuple):
    """A step of one software, and what the error of its ratio to another depends on."""

    case: ErrorCase
    plan: Plan
    model: Hashable
    system: Hashable
    spread: float = 0.0  # deviation of software that is none of those known


class _Case(NamedTuple):
    """Software that two steps may be of, and what the logarithm of their ratio then is."""

    weight: float
    middle: float
    half: float  # of the 90 % width of its error


def ratio(second: Estimate, first: Estimate, work: float = 1.0) -> Ratio | None:
    """Return the ratio of the time of a second step to that of a first; None where errors are not known.

    It is a mixture over the software of both, in each case with an error of what the two do not share.
    Software that both leave open in the same way is one and the same.

    Parameters
    ----------
    second, first : Estimate
        The steps.
    work : float, optional
        Work of the second step over that of the first, such as tokens: times are of equal work.
    """
    if not (first.assumptions.errors_known and second.assumptions.errors_known):
        return None
    known = errors()
    cases = []
    for weight, *software in _software(second, first):
        steps = [_predict(est, part, known) for est, part in zip((second, first), software, strict=True)]
        logs = [np.log(float(part.seconds)) for part in software]
        cases.append(
            _Case(weight, float(logs[0] - logs[1] - np.log(work)), half_width(steps[0], steps[1], known))
        )
    return _mixture(second.step_seconds / first.step_seconds / work, cases)


def ratio_of_intervals(
    second: tuple[float, float, float], first: tuple[float, float, float], work: float = 1.0
) -> Ratio:
    """Return the ratio of two times with 90 % intervals of which nothing more is known, as `ratio` does.

    `second, first`: time and the ends of its interval [s]. The errors count as independent.
    """
    halves = [float(np.log(high / low)) / 2 for _, low, high in (second, first)]
    middles = [float(np.log(high * low)) / 2 for _, low, high in (second, first)]
    case = _Case(1.0, middles[0] - middles[1] - float(np.log(work)), float(np.hypot(halves[0], halves[1])))
    return _mixture(second[0] / first[0] / work, [case])


def _mixture(value: float, cases: Sequence[_Case]) -> Ratio:
    """Return a ratio of a predicted value from its cases."""
    weights, middles, halves = (np.array(column) for column in zip(*cases, strict=True))
    mixture = Mixture(weights, middles, middles - halves, middles + halves)
    low, high = mixture.quantiles(0.05, 0.95)
    return Ratio(
        value=float(value),
        low=float(low),
        high=float(high),
        faster=float(mixture.share_below(np.zeros(()))),
    )


def _software(second: Estimate, first: Estimate) -> Iterator[tuple[float, Alternative, Alternative]]:
    """Yield the software of two steps with its probability; probabilities sum to 1."""
    of_second = _parts(second)
    of_first = _parts(first)
    if second.alternatives and first.alternatives and second.assumptions.unsaid == first.assumptions.unsaid:
        names = [*of_second, *(name for name in of_first if name not in of_second)]
        b = _alternatives(second, names, of_second)
        a = _alternatives(first, names, of_first)
        both = {name: b[name].weight + a[name].weight for name in names if name in b and name in a}
        if both:
            for name, weight in both.items():
                yield weight / sum(both.values()), b[name], a[name]
            return
    for part in of_second.values():
        for other in of_first.values():
            yield part.weight * other.weight, part, other


def _parts(est: Estimate) -> dict[str, Alternative]:
    """Return the software that a step may be of; weights sum to 1."""
    alternatives = est.alternatives or (Alternative(1.0, est.step_seconds, est.case),)
    whole = sum(part.weight for part in alternatives)
    return {part.case.stack: part._replace(weight=part.weight / whole) for part in alternatives}


def _alternatives(
    est: Estimate, names: Iterable[str], known: Mapping[str, Alternative]
) -> dict[str, Alternative]:
    """Return the step under each software of some names that runs its plan."""
    found = dict(known)
    for name in names:
        if name not in found:
            assumed = Stack(name).assumptions
            try:
                other = estimate_columns(est.model, est.system, est.plan.columns(), est.gbs, assumed)
            except InputError:  # a choice of the plan that this software lacks
                continue
            found[name] = Alternative(0.0, other.step.seconds, other.case)
    return found


def _predict(est: Estimate, software: Alternative, known: Errors) -> Predicted:
    is_any = bool(est.alternatives) and est.assumptions.unsaid == Stack.ANY
    spread = known.software.spread if is_any else 0.0
    return Predicted(software.case, est.plan, est.model, est.system, spread)


def half_width(second: Predicted, first: Predicted, known: Errors | None = None) -> float:
    """Return half of the 90 % width of the error of the logarithm of the ratio of two steps."""
    known = known or errors()
    steps = second, first
    is_same_model = second.model == first.model
    is_same_accelerator = len({step.case.accelerator.removesuffix(VARIED) for step in steps}) == 1
    is_same_software = second.case.stack == first.case.stack
    scales = [_scale(step.case, known) for step in steps]
    halves = [
        scale * float(measured_deviation(step.case, known)) for scale, step in zip(scales, steps, strict=True)
    ]
    apart = float(np.hypot(halves[0], halves[1]))
    if is_same_model and is_same_accelerator and is_same_software:
        apart = min(apart, _apart_in_plan(second, first, known))  # sharing makes no ratio less sure
    variance = (TAILS * apart) ** 2
    distances = [step.case.distances(known) for step in steps]
    for name, drift in known.drifts.items():
        if name in OF_MODEL:
            is_shared = is_same_model
        else:
            is_shared = is_same_accelerator if name in OF_ACCELERATOR else is_same_software
        a, b = (
            float(scale * drift * of_step.get(name, 0.0))
            for scale, of_step in zip(scales, distances, strict=True)
        )
        variance += (a - b) ** 2 if is_shared else a**2 + b**2
    if not is_same_software:  # else the software that none of them is, is the same in both
        variance += sum((scale * step.spread) ** 2 for scale, step in zip(scales, steps, strict=True))
    return float(variance**0.5)


def _scale(case: ErrorCase, known: Errors) -> float:
    """Return the deviations to an end of an interval, the mean of both ends."""
    ends = (known.faster_moe, known.slower_moe) if case.moe else (known.faster, known.slower)
    return sum(ends) / 2


def _apart_in_plan(second: Predicted, first: Predicted, known: Errors) -> float:
    """Return the half width for two plans of one model, accelerator and software."""
    steps = second, first
    shares = {name: np.array([float(step.case.shares[name]) for step in steps]) for name in COMPONENTS}
    factor = first.case.factor(known)
    coordinates = plan_coordinates([step.plan for step in steps])
    variance = float(difference_deviation(shares, coordinates, factor)[0, 1]) ** 2
    if second.system != first.system:  # whose networks differ: their errors do not cancel
        scale = factor * known.apart / NORMAL_90_PERCENT
        variance += 2 * float(np.prod(shares["communication"])) * (known.communication * scale) ** 2
    return NORMAL_90_PERCENT * float(variance**0.5)
