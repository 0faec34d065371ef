"""Advice on one plan: what the analyses say of it, and which changes help."""

from functools import cached_property
from typing import Annotated

from traincast.analysis import NETWORK_SHARE, PlanAnalysis
from traincast.core import Doc
from traincast.planner.answers.knob_changes import ChangedPlan, PlanTester
from traincast.planner.frameworks.spaces import Framework
from traincast.planner.frameworks.spaces import framework as framework_of
from traincast.step import Estimate, measured_step, require_one_plan


class Advice(PlanAnalysis):
    """Bytes per parameter, throughput and advice on one plan; each part is computed on first access."""

    framework: Framework | None = None

    @cached_property
    def _helpful(self) -> tuple[list[ChangedPlan], ChangedPlan | None]:
        """Changes of one knob that help, and the combination that gains more."""
        return PlanTester.from_estimate(self.est, self.framework).helpful()

    @property
    def changes(self) -> Annotated[list[ChangedPlan], Doc(place=1)]:
        """Changes of one degree or choice that fit and are faster, the fastest first."""
        return self._helpful[0]

    @property
    def together(self) -> Annotated[ChangedPlan | None, Doc(place=1)]:
        """Best two or three changes together; null where they gain no more than one."""
        return self._helpful[1]


def advise(
    est: Estimate,
    *,
    step_seconds: float | None = None,
    network_share: float = NETWORK_SHARE,
    tokens_per_second: float | None = None,
    mfu: float | None = None,
    framework: str | Framework | None = None,
) -> Advice:
    """Analyse one plan: bytes per parameter, utilisation, rules of thumb, and sizes that would run faster.

    Parameters
    ----------
    est : Estimate
        Estimate of one plan; tiles are modelled by ``"calibrated"`` and by software stacks, not by
        ``"paper"``.
    step_seconds : float, optional
        Measured time of a step, for FLOP/s and utilisation; the predicted one without it [s].
    network_share : float
        Share of the step that may wait for bandwidth between nodes.
    tokens_per_second, mfu : float, optional
        Measured throughput of the job [token/s] or MFU as Megatron-LM counts it, in place of the time.
    framework : str, optional
        Whose plans changes lead to; what runs the software stack of the estimate if left out.

    Returns
    -------
    Advice
        The analyses, computed on first access.

    Raises
    ------
    InputError
        If the estimate is not of one plan, the time is no finite number above 0 or would need more than the
        dense peak, or the share is not between 0 and 1.

    Examples
    --------
    >>> import traincast as tc
    >>> est = tc.estimate("gpt3-175b", "dgx-a100", tc.Plan(tp=8, pp=8, dp=4), assumptions="calibrated")
    >>> advice = tc.advise(est)
    >>> advice.per_parameter.training, advice.network.needed_per_node < advice.network.per_node
    (18.0, True)
    """
    require_one_plan(est, "advice")
    measured = measured_step(est, step_seconds=step_seconds, tokens_per_second=tokens_per_second, mfu=mfu)
    space = None if framework is None else framework_of(framework)
    advice = Advice(est, measured, network_share, space)
    _ = advice.throughput, advice.network  # compute now, to raise for a time or share that cannot be
    return advice
