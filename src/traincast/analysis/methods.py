"""Every method of saving time or memory on one plan, and why a measured step may be slower than predicted.

The methods are those of S. Bekman's overview, "Software tune up for the best performance" (Machine Learning
Engineering): batch, accumulation, checkpointing, precision, optimizer, ZeRO, offloading and data loading.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from traincast.core.precision import OPTIMIZERS
from traincast.core.result import Doc, Result
from traincast.planner.plan_changes import NO_PLACEMENT_GIVEN, estimate_with
from traincast.step.estimate import Estimate
from traincast.step.metrics import metrics
from traincast.step.step_time import input_seconds

COMMUNICATION: Final = ("tp_comm", "ep_comm", "dp_comm", "pp_comm", "offload_comm")  # components of time
KERNELS: Final = ("compute", "exposed_memory", "recomputation", "optimizer_step")
RECOMPUTED: Final = ("none", "selective", "full")
PRECISION_TRIED: Final = ("fp32", "bf16", "fp8")
OFFLOADED: Final = ("none", "optimizer", "activations")


class Method(Result, kw_only=True):
    """A change of one plan by one method."""

    method: Annotated[str, Doc("what is changed")]
    change: Annotated[str, Doc("from what to what")]
    gain: Annotated[float, Doc("relative change in tokens/s")]
    memory_bytes: Annotated[float, Doc("change of the memory of the fullest rank", "byte")]
    fits: Annotated[bool, Doc("whether the plan fits with it")]


class Cause(Result, kw_only=True):
    """What alone would make a step as slow as measured."""

    cause: Annotated[str, Doc("part of the step")]
    predicted_seconds: Annotated[float | None, Doc("its predicted time; `null` where it has none", "s")]
    factor: Annotated[
        float | None, Doc("times as long as predicted, were it the only cause; `null` where it has no time")
    ]
    sign: Annotated[str, Doc("what would show it")]


def methods(est: Estimate) -> list[Method]:
    """Estimate a plan with every other value of one method at a time; what cannot run is left out."""
    return list(_methods(est))


def _methods(est: Estimate) -> Iterator[Method]:
    plan = est.plan
    for mbs in (plan.mbs // 2, plan.mbs * 2):
        if mbs:
            yield from _changed(est, "micro-batch", f"{plan.mbs} to {mbs}", mbs=mbs)
    for gbs in (est.gbs // 2, est.gbs * 2):
        yield from _changed(est, "accumulation", f"global batch {est.gbs:,} to {gbs:,}", gbs)
    optimizers = tuple(name for name in OPTIMIZERS if name != "muon")  # its work is of another kind
    tried: dict[str, tuple[str, tuple[Any, ...]]] = {
        "recomputation": ("recompute", RECOMPUTED),
        "precision": ("precision", PRECISION_TRIED),
        "gradients": ("grad_dtype", ("16-bit", "fp32")),
        "optimizer": ("optimizer_kind", optimizers),
        "ZeRO": ("zero", (0, 1, 2, 3)),
        "offloading": ("offload", OFFLOADED),
    }
    for method, (knob, values) in tried.items():
        current = getattr(plan, knob)
        for value in values:
            if value != current:
                yield from _changed(est, method, f"{current} to {value}", **{knob: value})
    if wait := est.breakdown["data_loading"]:
        change, gain = "reads as fast as the step", est.step_seconds / (est.step_seconds - wait) - 1
        yield Method(method="data loading", change=change, gain=gain, memory_bytes=0.0, fits=est.fits)


def _changed(
    est: Estimate, method: str, change: str, gbs: int | None = None, **knobs: Any
) -> Iterator[Method]:
    """Yield the plan with other knobs or another global batch, unless it cannot run or nothing changes."""
    other = estimate_with(est, gbs, **(NO_PLACEMENT_GIVEN | knobs if knobs else {}))
    if other is None:
        return
    tokens = other.gbs / float(other.step_seconds) * est.step_seconds / est.gbs
    gain = round(tokens - 1, 12)  # rounding errors are no change
    memory = float(other.memory_bytes) - est.memory_bytes
    if gain or memory:
        yield Method(method=method, change=change, gain=gain, memory_bytes=memory, fits=bool(other.fits))


def causes(est: Estimate, step_seconds: float) -> list[Cause]:
    """Return what alone would explain a measured step, the smallest change of a prediction first.

    Empty where the step is not slower than predicted. Each cause is credited with all of the difference:
    the smaller the factor, the less has to be wrong for it. Data are read while the step before runs, so that
    their time counts whole once it is the longer one. What has no known time comes last.
    """
    predicted = est.step_seconds
    slack = step_seconds - predicted
    if slack <= 0:
        return []
    times = est.breakdown
    kernels, network = (sum(times[name] for name in names) for names in (KERNELS, COMMUNICATION))
    plan, rate = est.plan, est.system.input_rate
    tokens = est.gbs * est.model.seq / step_seconds
    read = None if rate is None else float(input_seconds(est.gbs, rate, plan.gpus))
    stall = metrics(est).checkpoint_stall
    rows = [
        ("slow GPU", predicted, "one rank is late in every collective: compare clocks, power and ECC of all"),
        ("kernels", kernels, "a profile shows longer kernels: clocks, unfused attention, odd sizes"),
        ("network", network, "exposed collectives: lost overlap, a slow link; time an all-reduce (measure)"),
        ("pipeline", times["bubble"], "stages wait: uneven stages or micro-batches"),
        ("host", times["host"], "gaps between kernels: Python, launches, logging, garbage collection"),
        ("input pipeline", read, f"steps wait for data: no more than {tokens:,.0f} tokens/s are read"),
        ("checkpoints", stall, "only some steps are slow: writes that the step waits for"),
    ]
    found = []
    for name, seconds, sign in rows:
        if seconds == 0 or (name in ("network", "slow GPU") and plan.gpus == 1):
            continue
        known = None if seconds is None else float(seconds)
        longer = 0.0 if known is None else step_seconds if name == "input pipeline" else known + slack
        factor = None if known is None else longer / known
        found.append(Cause(cause=name, predicted_seconds=known, factor=factor, sign=sign))
    return sorted(found, key=lambda cause: cause.factor or float("inf"))
