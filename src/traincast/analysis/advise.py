"""Advice on one plan, and rules of thumb next to the estimator's own figures.

The rules are those of S. Bekman, "Software tune up for the best performance" (Machine Learning Engineering), and of Megatron-LM
(arXiv 2104.04473).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from traincast.analysis.model_dimensions import Dimension, Product, dimensions, wasteful
from traincast.analysis.per_parameter import (
    STATES,
    PerParameter,
    Throughput,
    bytes_per_parameter_of,
    flops_of_thumb,
    one_plan,
    per_parameter,
    recomputes_all,
    throughput,
)
from traincast.core.errors import InputError
from traincast.core.result import KEY, Doc, Result
from traincast.core.units import GIB, gib, percent, rate, signed
from traincast.step.estimate import Estimate, estimate
from traincast.step.model_flops import hardware_flops_per_token

BEKMAN: Final = "Bekman"
MEGATRON: Final = "arXiv 2104.04473"


@dataclass(frozen=True, kw_only=True)
class RuleOfThumb(Result):
    """A rule of thumb and the figure that the estimator predicts for the same quantity."""

    about: Annotated[str, Doc("quantity that the rule is about")]
    rule: Annotated[str, Doc("what the rule says")]
    here: Annotated[str, Doc("what the estimator says of this plan")]
    low: Annotated[float | None, Doc("the rule in numbers, from; in SI units")] = None
    high: Annotated[float | None, Doc("the rule in numbers, to")] = None
    exact: Annotated[float | None, Doc("the estimator's number, in the same unit")] = None
    source: Annotated[str, Doc("whose rule it is")] = BEKMAN


@dataclass(frozen=True)
class Advice(Result):
    """Bytes per parameter, throughput and advice on one plan; each part is computed on first access."""

    est: Estimate
    step_seconds: Annotated[float | None, Doc("the time given", "s", key="measured_step_seconds")] = None
    network_share: float = NETWORK_SHARE

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
    def rules(self) -> Annotated[list[RuleOfThumb], Doc(key="rules_of_thumb")]:
        """Rules of thumb with the estimator's figures."""
        return [*_memory_and_flop_rules(self), *_time_rules(self)]


def advise(
    est: Estimate, *, step_seconds: float | None = None, network_share: float = NETWORK_SHARE
) -> Advice:
    """Analyse one plan: bytes per parameter, utilisation, rules of thumb, and sizes that would run faster.

    Parameters
    ----------
    est : Estimate
        Estimate of one plan; tiles are modelled by ``"calibrated"`` and by software stacks, not by ``"paper"``.
    step_seconds : float, optional
        Measured time of a step, for FLOP/s and utilisation; the predicted one without it [s].
    network_share : float
        Share of the step that may wait for bandwidth between nodes.

    Returns
    -------
    Advice
        The analyses, computed on first access.

    Raises
    ------
    InputError
        If the estimate is not of one plan, the time is no finite number above 0 or would need more than the dense peak, or the
        share is not between 0 and 1.

    Examples
    --------
    >>> import traincast as tc
    >>> est = tc.estimate("gpt3-175b", "dgx-a100", tc.Plan(tp=8, pp=8, dp=4), assumptions="calibrated")
    >>> advice = tc.advise(est)
    >>> advice.per_parameter.training, advice.network.needed_per_node < advice.network.per_node
    (18.0, True)
    """
    one_plan(est)
    advice = Advice(est, step_seconds, network_share)
    _ = advice.throughput, advice.network  # compute now, to raise for a time or share that cannot be
    return advice


def _memory_and_flop_rules(advice: Advice) -> Iterator[RuleOfThumb]:
    """Yield rules on bytes and FLOPs."""
    est, plan = advice.est, one_plan(advice.est)
    bytes_per_parameter = per_parameter().training
    states = bytes_per_parameter * est.model.parameters
    low, high = states / plan.gpus, states / (plan.tp * plan.tp2 * plan.pp)
    exact = sum(float(est.memory[name]) for name in STATES)
    rule = f"{bytes_per_parameter:.0f} B a parameter: {low / GIB:.1f} to {gib(high)}"
    yield RuleOfThumb(
        about="model states of a rank", rule=rule, here=gib(exact), low=low, high=high, exact=exact
    )
    context = float(est.memory.get("buffers", 0.0))
    if context:
        yield RuleOfThumb(
            about="context, libraries",
            rule="0.5 to 2 GB",
            here=f"{context / 1e9:.2f} GB",
            low=0.5e9,
            high=2e9,
            exact=context,
        )
    full_recompute = recomputes_all(est)
    thumb = flops_of_thumb(est.model, est.gbs, full_recompute)
    counted = (
        hardware_flops_per_token(est.model, "full" if full_recompute else "none", "megatron-full")
        * est.model.seq
        * est.gbs
    )
    rule = f"{8 if full_recompute else 6} × P × tokens: {rate(thumb, 'FLOP')}"
    yield RuleOfThumb(
        about="work of a step",
        rule=rule,
        here=f"{rate(counted, 'FLOP')}",
        low=thumb,
        high=thumb,
        exact=counted,
    )


def _time_rules(advice: Advice) -> Iterator[RuleOfThumb]:
    """Yield rules on time."""
    est, plan = advice.est, one_plan(advice.est)
    backward = _backward_over_forward(est)
    yield RuleOfThumb(
        about="backward pass", rule="2 × forward", here=f"{backward:.2f} ×", low=2.0, high=2.0, exact=backward
    )
    cost = _full_recompute_cost(est)
    if cost is not None:
        here = f"{percent(cost[0])} slower, -{gib(cost[1])}"
        yield RuleOfThumb(
            about="full recomputation", rule="20 to 25% slower", here=here, low=0.20, high=0.25, exact=cost[0]
        )
    gain = next((option.gain for option in advice.batches if option.gbs == 2 * est.gbs), None)
    if gain is not None:
        here = f"{signed(gain)} with twice as much"
        yield RuleOfThumb(
            about="accumulation", rule="20 to 30% faster", here=here, low=0.2, high=0.3, exact=gain
        )
    mfu = next(row.mfu for row in advice.throughput if row.convention == "megatron-full")
    if mfu is not None:
        yield RuleOfThumb(about="MFU", rule="50% is good", here=percent(mfu), low=0.5, high=0.5, exact=mfu)
    domain = est.system.fast_domain
    yield RuleOfThumb(
        about="tensor parallelism",
        rule=f"at most a node's {domain} GPUs",
        here=f"{plan.tp * plan.tp2}",
        high=float(domain),
        exact=float(plan.tp * plan.tp2),
        source=MEGATRON,
    )
    needed = advice.network.needed_per_node
    yield RuleOfThumb(
        about="bandwidth of a node",
        rule="at least 400 Gb/s",
        here=f"{needed * 8e-9:,.0f} Gb/s needed",
        low=5e10,
        exact=needed,
    )


def _backward_over_forward(est: Estimate) -> float:
    """Return the layers' backward time relative to forward, without communication and recomputation."""
    forward = backward = 0.0
    for part, count in est.stages.model_parts.items():
        for one in est.timed[part]:
            forward += float(count) * float(one.forward.compute + one.forward.memory)
            backward += float(count) * float(one.backward.compute + one.backward.memory)
    return backward / forward


def _full_recompute_cost(est: Estimate) -> tuple[float, float] | None:
    """Return the share of throughput that full recompute costs, and the memory it saves [byte]; None where a plan cannot run."""
    plan = one_plan(est)
    try:
        none, full = (
            estimate(
                est.model,
                est.system,
                replace(plan, recompute=recompute, recompute_every=1),
                gbs=est.gbs,
                assumptions=est.assumptions,
            )
            for recompute in ("none", "full")
        )
    except InputError:
        return None
    return 1 - float(none.step_seconds / full.step_seconds), float(none.memory_bytes - full.memory_bytes)
