"""Advice on one plan: what the analyses say of it, and which changes help."""

from functools import cached_property
from typing import Annotated

from traincast.analysis import (
    NETWORK_SHARE,
    BatchSizeOption,
    Dimension,
    Method,
    Network,
    PerParameter,
    Product,
    RuleOfThumb,
    Throughput,
    batches,
    best_batch,
    bytes_per_parameter_of,
    dimensions,
    methods,
    network,
    rules_of_thumb,
    throughput,
    wasteful,
)
from traincast.core import KEY, Doc, Result
from traincast.planner.answers.knob_changes import ChangedPlan, PlanTester
from traincast.planner.frameworks.spaces import Framework
from traincast.planner.frameworks.spaces import framework as framework_of
from traincast.step import Cause, Estimate, MeasuredStep, measured_step, require_one_plan


class Advice(Result):
    """Bytes per parameter, throughput and advice on one plan; each part is computed on first access."""

    est: Estimate
    measured: Annotated[MeasuredStep | None, Doc("what was measured; null where nothing was given")] = None
    network_share: float = NETWORK_SHARE
    framework: Framework | None = None

    @property
    def step_seconds(self) -> Annotated[float | None, Doc(key="measured_step_seconds")]:
        """Measured time of a step; null where nothing was given [s]."""
        return None if self.measured is None else self.measured.step_seconds

    @cached_property
    def per_parameter(self) -> Annotated[PerParameter, Doc(key="bytes_per_parameter")]:
        """Bytes per parameter before sharding."""
        return bytes_per_parameter_of(self.est)

    @property
    def parameters(self) -> Annotated[int, KEY]:
        """Parameters of the model."""
        return self.est.model.parameters

    @cached_property
    def throughput(self) -> Annotated[list[Throughput], KEY]:
        """FLOP/s and utilisation by convention; of the measured step time where it is given."""
        return throughput(self.est, self.step_seconds)

    @cached_property
    def products(self) -> Annotated[list[Product], KEY]:
        """Matrix products that lose more than 2 % to tile or wave quantisation, the most expensive first."""
        return wasteful(self.est)

    @cached_property
    def dimensions(self) -> Annotated[list[Dimension], KEY]:
        """Dimensions of the model, and better values near them."""
        return dimensions(self.est)

    @cached_property
    def batches(self) -> Annotated[list[BatchSizeOption], KEY]:
        """Micro-batch and global batch sizes, the plan's own first."""
        return batches(self.est)

    @property
    def best_mbs(self) -> Annotated[int, KEY]:
        """The fastest micro-batch of these that fits at the plan's global batch [sequence]."""
        return best_batch(self.batches).mbs

    @cached_property
    def network(self) -> Annotated[Network, KEY]:
        """Bandwidth between nodes that the plan needs, in one direction."""
        return network(self.est, self.network_share)

    @cached_property
    def methods(self) -> Annotated[list[Method], KEY]:
        """Methods that save time or memory, one change at a time."""
        capacity = float(self.est.system.accelerator.visible_bytes)
        return [method for method in methods(self.est) if method.helps(capacity)]

    @cached_property
    def _helpful(self) -> tuple[list[ChangedPlan], ChangedPlan | None]:
        """Changes of one knob that help, and the combination that gains more."""
        return PlanTester.from_estimate(self.est, self.framework).helpful()

    @property
    def changes(self) -> Annotated[list[ChangedPlan], KEY]:
        """Changes of one degree or choice that fit and are faster, the fastest first."""
        return self._helpful[0]

    @property
    def together(self) -> Annotated[ChangedPlan | None, KEY]:
        """Best two or three changes together; null where they gain no more than one."""
        return self._helpful[1]

    @property
    def causes(self) -> Annotated[list[Cause], KEY]:
        """What alone would make the step as slow as measured, the smallest change first; else empty."""
        return [] if self.measured is None else self.measured.causes

    @cached_property
    def rules(self) -> Annotated[list[RuleOfThumb], Doc(key="rules_of_thumb")]:
        """Rules of thumb with the estimator's figures."""
        return list(rules_of_thumb(self.est, self.batches, self.throughput, self.network))


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
