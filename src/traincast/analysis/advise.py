"""All advice on a plan, and rules of thumb beside what the estimator says of the same thing.

The rules are those of S. Bekman, "Software tune up for the best performance" (Machine Learning Engineering), and of Megatron-LM
(arXiv 2104.04473).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

from traincast.analysis.batch_and_network import NETWORK_SHARE, BatchSizeOption, Network, batches, best_batch, network
from traincast.analysis.model_dimensions import Dimension, Product, dimensions, wasteful
from traincast.analysis.per_parameter import (
    STATES,
    PerParameter,
    Throughput,
    flops_of_thumb,
    kept_by,
    one_plan,
    per_parameter,
    recomputes_all,
    throughput,
)
from traincast.core.errors import InputError
from traincast.core.units import GIB, gib, percent, rate, signed
from traincast.step.estimate import Estimate, estimate
from traincast.step.model_flops import hardware_flops_per_token

BEKMAN: Final = "Bekman"
MEGATRON: Final = "arXiv 2104.04473"


@dataclass(frozen=True, kw_only=True)
class RuleOfThumb:
    """A rule of thumb and the exact figure.

    Parameters
    ----------
    about : str
        What it is about.
    rule, here : str
        What the rule says, and what the estimator says of this plan.
    low, high : float, optional
        The rule in numbers, where it has any.
    exact : float, optional
        The estimator's number, in the same unit; None where it cannot be told.
    source : str
        Whose rule it is.
    """

    about: str
    rule: str
    here: str
    low: float | None = None
    high: float | None = None
    exact: float | None = None
    source: str = BEKMAN


@dataclass(frozen=True)
class Advice:
    """Memory anatomy, throughput and advice on one plan; each part is made when it is asked for.

    Parameters
    ----------
    est : Estimate
        Of the plan.
    step_seconds : float, optional
        Measured time of a step [s].
    network_share : float
        Share of the step that may wait for bandwidth between nodes.
    """

    est: Estimate
    step_seconds: float | None = None
    network_share: float = NETWORK_SHARE

    @cached_property
    def per_parameter(self) -> PerParameter:
        """Bytes per parameter before anything is sharded."""
        return kept_by(self.est)

    @cached_property
    def throughput(self) -> list[Throughput]:
        """FLOP/s and utilisation by convention, of the measured time where there is one."""
        return throughput(self.est, self.step_seconds)

    @cached_property
    def products(self) -> list[Product]:
        """Products that waste tiles or waves."""
        return wasteful(self.est)

    @cached_property
    def dimensions(self) -> list[Dimension]:
        """Sizes of the model, and better ones."""
        return dimensions(self.est)

    @cached_property
    def batches(self) -> list[BatchSizeOption]:
        """Other micro-batches and global batches."""
        return batches(self.est)

    @cached_property
    def network(self) -> Network:
        """Bandwidth between nodes that is needed."""
        return network(self.est, self.network_share)

    @cached_property
    def rules(self) -> list[RuleOfThumb]:
        """Rules of thumb beside exact figures."""
        return [*_amounts(self), *_speeds(self)]

    def to_dict(self) -> dict[str, Any]:
        """For machines: numbers in SI."""
        return {
            "measured_step_seconds": self.step_seconds,
            "bytes_per_parameter": self.per_parameter.to_dict(),
            "parameters": self.est.model.parameters,
            "throughput": [asdict(one) for one in self.throughput],
            "products": [asdict(one) for one in self.products],
            "dimensions": [asdict(one) for one in self.dimensions],
            "batches": [asdict(one) for one in self.batches],
            "best_mbs": best_batch(self.batches).mbs,
            "network": asdict(self.network),
            "rules_of_thumb": [asdict(one) for one in self.rules],
        }


def advise(est: Estimate, *, step_seconds: float | None = None, network_share: float = NETWORK_SHARE) -> Advice:
    """Anatomy and advice on one plan.

    Parameters
    ----------
    est : Estimate
        Of one plan; tiles are known to ``"calibrated"`` and to software stacks, not to ``"paper"``.
    step_seconds : float, optional
        Measured time of a step, for FLOP/s and utilisation; the predicted one without it [s].
    network_share : float
        Share of the step that may wait for bandwidth between nodes.

    Returns
    -------
    Advice
        What there is to say.

    Raises
    ------
    InputError
        If the estimate is not of one plan, the time is no finite number above 0 or would need more than the dense peak, or the
        share is not between 0 and 1.

    Examples
    --------
    >>> import traincast as tc
    >>> est = tc.estimate("gpt3-175b", "dgx-a100", tc.Plan(tp=8, pp=8, dp=4), assumptions="calibrated")
    >>> found = tc.advise(est)
    >>> found.per_parameter.training, found.network.needed_per_node < found.network.per_node
    (18.0, True)
    """
    one_plan(est)
    found = Advice(est, step_seconds, network_share)
    _ = found.throughput, found.network  # refuse what cannot be
    return found


def _amounts(found: Advice) -> Iterator[RuleOfThumb]:
    """Rules on bytes and FLOPs."""
    est, plan = found.est, one_plan(found.est)
    usual = per_parameter().training
    whole = usual * est.model.parameters
    least, most = whole / plan.gpus, whole / (plan.tp * plan.tp2 * plan.pp)
    exact = sum(float(est.memory[name]) for name in STATES)
    said = f"{usual:.0f} B a parameter: {least / GIB:.1f} to {gib(most)}"
    yield RuleOfThumb(about="model states of a rank", rule=said, here=gib(exact), low=least, high=most, exact=exact)
    context = float(est.memory.get("buffers", 0.0))
    if context:
        yield RuleOfThumb(
            about="context, libraries", rule="0.5 to 2 GB", here=f"{context / 1e9:.2f} GB", low=0.5e9, high=2e9, exact=context
        )
    again = recomputes_all(est)
    thumb = flops_of_thumb(est.model, est.gbs, again)
    counted = hardware_flops_per_token(est.model, "full" if again else "none", "megatron-full") * est.model.seq * est.gbs
    said = f"{8 if again else 6} × P × tokens: {rate(thumb, 'FLOP')}"
    yield RuleOfThumb(about="work of a step", rule=said, here=f"{rate(counted, 'FLOP')}", low=thumb, high=thumb, exact=counted)


def _speeds(found: Advice) -> Iterator[RuleOfThumb]:
    """Rules on time."""
    est, plan = found.est, one_plan(found.est)
    backward = _backward(est)
    yield RuleOfThumb(about="backward pass", rule="2 × forward", here=f"{backward:.2f} ×", low=2.0, high=2.0, exact=backward)
    cost = _recomputation(est)
    if cost is not None:
        said = f"{percent(cost[0])} slower, -{gib(cost[1])}"
        yield RuleOfThumb(about="full recomputation", rule="20 to 25% slower", here=said, low=0.20, high=0.25, exact=cost[0])
    more = next((one.gain for one in found.batches if one.gbs == 2 * est.gbs), None)
    if more is not None:
        here = f"{signed(more)} with twice as much"
        yield RuleOfThumb(about="accumulation", rule="20 to 30% faster", here=here, low=0.2, high=0.3, exact=more)
    mfu = next(one.mfu for one in found.throughput if one.convention == "megatron-full")
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
    needed = found.network.needed_per_node
    yield RuleOfThumb(
        about="bandwidth of a node", rule="at least 400 Gb/s", here=f"{needed * 8e-9:,.0f} Gb/s needed", low=5e10, exact=needed
    )


def _backward(est: Estimate) -> float:
    """Time of the layers' backward pass relative to forward, communication left out, recomputation too."""
    forward = backward = 0.0
    for part, count in est.stages.model_parts.items():
        for one in est.timed[part]:
            forward += float(count) * float(one.forward.compute + one.forward.memory)
            backward += float(count) * float(one.backward.compute + one.backward.memory)
    return backward / forward


def _recomputation(est: Estimate) -> tuple[float, float] | None:
    """Throughput that full recomputation costs relative to none, and memory it saves [byte]; None where one of them cannot run."""
    plan = one_plan(est)
    try:
        none, full = (
            estimate(est.model, est.system, replace(plan, recompute=word, recompute_every=1), est.gbs, est.assumptions)
            for word in ("none", "full")
        )
    except InputError:
        return None
    return 1 - float(none.step_seconds / full.step_seconds), float(none.memory_bytes - full.memory_bytes)
