"""Advice on one plan, and rules of thumb next to the estimator's own figures.

The rules are those of S. Bekman, "Software tune up for the best performance" (Machine Learning Engineering),
and of Megatron-LM (arXiv 2104.04473).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Final

from traincast.analysis.batch_and_network import (
    NETWORK_SHARE,
    BatchSizeOption,
    Network,
    batches,
    best_batch,
    network,
)
from traincast.analysis.methods import Method, methods
from traincast.analysis.model_dimensions import Dimension, Product, dimensions, wasteful
from traincast.analysis.per_parameter import (
    STATES,
    PerParameter,
    Throughput,
    bytes_per_parameter_of,
    flops_of_thumb,
    per_parameter,
    recomputes_all,
    throughput,
)
from traincast.core.result import KEY, Doc, Result
from traincast.core.units import GIB, format_signed, gib, percent, rate
from traincast.planner.answers.knob_changes import ChangedPlan, PlanTester
from traincast.planner.answers.plan_changes import estimate_with
from traincast.planner.frameworks.spaces import Framework
from traincast.planner.frameworks.spaces import framework as framework_of
from traincast.step.estimate import Estimate, require_one_plan
from traincast.step.measured_step import Cause, MeasuredStep, measured_step
from traincast.step.model_flops import hardware_flops_per_token

BEKMAN: Final = "Bekman"
MEGATRON: Final = "arXiv 2104.04473"
CONTEXT_RULE: Final = "0.5 to 2 GB (A100 80 GB: 1.78 in PyTorch 1.10, 0.90 in 1.13)"


class RuleOfThumb(Result):
    """A rule of thumb and the figure that the estimator predicts for the same quantity."""

    about: Annotated[str, Doc("quantity that the rule is about")]
    rule: Annotated[str, Doc("what the rule says")]
    here: Annotated[str, Doc("what the estimator says of this plan")]
    low: Annotated[float | None, Doc("the rule in numbers, from; in SI units")] = None
    high: Annotated[float | None, Doc("the rule in numbers, to")] = None
    exact: Annotated[float | None, Doc("the estimator's number, in the same unit")] = None
    source: Annotated[str, Doc("whose rule it is")] = BEKMAN


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
        return list(_rules_of_thumb(self))


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


def _rules_of_thumb(advice: Advice) -> Iterator[RuleOfThumb]:
    """Yield rules on bytes, FLOPs, time and bandwidth, each with the estimator's figure."""
    est = advice.est
    plan = advice.est.plan
    per_byte = per_parameter().training
    states = per_byte * est.model.trained_parameters
    low = states / plan.gpus
    high = states / (plan.tp * plan.tp2 * plan.pp)
    exact = sum(float(est.memory[name]) for name in STATES)
    rule = f"{per_byte:.0f} B a parameter: {low / GIB:,.1f} to {gib(high)}"
    yield RuleOfThumb("model states of a rank", rule, gib(exact), low, high, exact)
    if context := float(est.memory.get("buffers", 0.0)):
        here = f"{context / 1e9:.2f} GB"
        yield RuleOfThumb("context, libraries", CONTEXT_RULE, here, 0.5e9, 2e9, context)
    recomputed = recomputes_all(est)
    thumb = flops_of_thumb(est.model, est.gbs, recomputed)
    of_token = hardware_flops_per_token(est.model, "full" if recomputed else "none", "megatron-full")
    counted = of_token * est.model.seq * est.gbs
    products = (4 if recomputed else 3) - (est.model.adapters is not None)
    rule = f"{2 * products} × P × tokens: {rate(thumb, 'FLOP')}"
    yield RuleOfThumb("work of a step", rule, rate(counted, "FLOP"), thumb, thumb, counted)
    backward = _backward_over_forward(est)
    yield RuleOfThumb("backward pass", "2 × forward", f"{backward:.2f} ×", 2.0, 2.0, backward)
    none, full = (estimate_with(est, recompute=modules, recompute_every=1) for modules in ("none", "full"))
    if none is not None and full is not None:
        slower = 1 - float(none.step_seconds / full.step_seconds)
        here = f"{percent(slower)} slower, -{gib(float(none.memory_bytes - full.memory_bytes))}"
        yield RuleOfThumb("full recomputation", "20 to 25% slower", here, 0.20, 0.25, slower)
    gain = next((option.gain for option in advice.batches if option.gbs == 2 * est.gbs), None)
    if gain is not None:
        here = f"{format_signed(gain)} with twice as much"
        yield RuleOfThumb("accumulation", "20 to 30% faster", here, 0.2, 0.3, gain)
    mfu = next(row.mfu for row in advice.throughput if row.convention == "megatron-full")
    if mfu is not None:
        yield RuleOfThumb("MFU", "50% is good", percent(mfu), 0.5, 0.5, mfu)
    tp = plan.tp * plan.tp2
    domain = est.system.fast_domain
    rule = f"at most a node's {domain} GPUs"
    yield RuleOfThumb("tensor parallelism", rule, str(tp), None, float(domain), float(tp), MEGATRON)
    needed = advice.network.needed_per_node
    here = f"{needed * 8e-9:,.0f} Gb/s needed"
    yield RuleOfThumb("bandwidth of a node", "at least 400 Gb/s", here, 5e10, None, needed)


def _backward_over_forward(est: Estimate) -> float:
    """Return the layers' backward time relative to forward, without communication and recomputation."""
    seconds = dict.fromkeys(("forward", "backward"), 0.0)
    for count, timed in est.whole_model():
        for direction in seconds:
            work = getattr(timed, direction)
            seconds[direction] += count * float(work.compute + work.memory)
    return seconds["backward"] / seconds["forward"]
