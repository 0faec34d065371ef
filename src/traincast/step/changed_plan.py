"""The estimate of a plan with one thing changed, and from which gain on a change is worth a line."""

from collections.abc import Mapping
from typing import Final

from traincast.core import AXES, InputError, replace_fields
from traincast.step.estimates import Estimate, estimate

LEAST_GAIN: Final = 0.005  # share of the step time; a change that saves less is not worth a line
NO_PLACEMENT_GIVEN: Final[Mapping[str, object]] = {
    f"fast_{axis}": None for axis in AXES
}  # the fastest is chosen


def estimate_with(est: Estimate, knobs: Mapping[str, object], gbs: int | None = None) -> Estimate | None:
    """Return the estimate of a plan with other knobs or batch; None where it cannot run like that."""
    try:
        plan = replace_fields(est.plan, knobs)
        batch = est.gbs if gbs is None else gbs
        return estimate(est.model, est.system, plan, gbs=batch, assumptions=est.assumptions)
    except InputError:
        return None
