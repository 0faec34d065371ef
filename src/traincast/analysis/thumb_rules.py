"""Rules of thumb next to the estimator's own figures.

The rules are those of S. Bekman, "Software tune up for the best performance" (Machine Learning Engineering),
and of Megatron-LM (arXiv 2104.04473).
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from traincast.analysis.batch_and_network import BatchSizeOption, Network
from traincast.analysis.per_parameter import STATES, Throughput, flops_of_thumb, per_parameter, recomputes_all
from traincast.core import GIB, Doc, Result, format_signed, gib, percent, rate_text
from traincast.step import Estimate, estimate_with, hardware_flops_per_token

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


def rules_of_thumb(
    est: Estimate, batches: Sequence[BatchSizeOption], rates: Sequence[Throughput], network: Network
) -> Iterator[RuleOfThumb]:
    """Yield rules on bytes, FLOPs, time and bandwidth, each with the estimator's figure.

    `batches`, `rates` and `network`: what `batches`, `throughput` and `network` say of the estimate.
    """
    plan = est.plan
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
    rule = f"{2 * products} × P × tokens: {rate_text(thumb, 'FLOP')}"
    yield RuleOfThumb("work of a step", rule, rate_text(counted, "FLOP"), thumb, thumb, counted)
    backward = _backward_over_forward(est)
    yield RuleOfThumb("backward pass", "2 × forward", f"{backward:.2f} ×", 2.0, 2.0, backward)
    none, full = (
        estimate_with(est, {"recompute": modules, "recompute_every": 1}) for modules in ("none", "full")
    )
    if none is not None and full is not None:
        slower = 1 - float(none.step_seconds / full.step_seconds)
        here = f"{percent(slower)} slower, -{gib(float(none.memory_bytes - full.memory_bytes))}"
        yield RuleOfThumb("full recomputation", "20 to 25% slower", here, 0.20, 0.25, slower)
    gain = next((option.gain for option in batches if option.gbs == 2 * est.gbs), None)
    if gain is not None:
        here = f"{format_signed(gain)} with twice as much"
        yield RuleOfThumb("accumulation", "20 to 30% faster", here, 0.2, 0.3, gain)
    mfu = next(row.mfu for row in rates if row.convention == "megatron-full")
    if mfu is not None:
        yield RuleOfThumb("MFU", "50% is good", percent(mfu), 0.5, 0.5, mfu)
    tp = plan.tp * plan.tp2
    domain = est.system.fast_domain
    rule = f"at most a node's {domain} GPUs"
    yield RuleOfThumb("tensor parallelism", rule, str(tp), None, float(domain), float(tp), MEGATRON)
    needed = network.needed_per_node
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
