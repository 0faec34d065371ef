"""Every method of saving time or memory on one plan.

The methods are those of S. Bekman's overview, "Software tune up for the best performance" (Machine Learning
Engineering): batch, accumulation, checkpointing, precision, optimizer, ZeRO, offloading and data loading.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from traincast.core import OPTIMIZERS, Doc, Result
from traincast.step import LEAST_GAIN, NO_PLACEMENT_GIVEN, Estimate, estimate_with

RECOMPUTED: Final = ("none", "selective", "full")
PRECISION_TRIED: Final = ("fp32", "bf16", "fp8")
OFFLOADED: Final = ("none", "optimizer", "activations")
LEAST_MEMORY_SHARE: Final = 0.05  # of the accelerator's memory; a method that saves less is not worth a line


class Method(Result, kw_only=True):
    """A change of one plan by one method."""

    method: Annotated[str, Doc("what is changed")]
    change: Annotated[str, Doc("from what to what")]
    gain: Annotated[float, Doc("relative change in tokens/s")]
    memory_bytes: Annotated[float, Doc("change of the memory of the fullest rank", "byte")]
    fits: Annotated[bool, Doc("whether the plan fits with it")]

    def helps(self, capacity: float) -> bool:
        """Return whether it saves time, or a share of the memory of the accelerator [byte], worth a line."""
        return self.gain >= LEAST_GAIN or -self.memory_bytes >= LEAST_MEMORY_SHARE * capacity


def methods(est: Estimate) -> list[Method]:
    """Estimate a plan with every other value of one method at a time; what cannot run is left out."""
    return list(_methods(est))


def _methods(est: Estimate) -> Iterator[Method]:
    plan = est.plan
    for mbs in (plan.mbs // 2, plan.mbs * 2):
        if mbs:
            yield from _change_plan(est, "micro-batch", f"{plan.mbs} to {mbs}", {"mbs": mbs})
    for gbs in (est.gbs // 2, est.gbs * 2):
        yield from _change_plan(est, "accumulation", f"global batch {est.gbs:,} to {gbs:,}", {}, gbs)
    optimizers = tuple(name for name in OPTIMIZERS if name != "muon")  # its work is of another kind
    tried: dict[str, tuple[str, tuple[object, ...]]] = {
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
                yield from _change_plan(est, method, f"{current} to {value}", {knob: value})
    if wait := est.breakdown["data_loading"]:
        change = "reads as fast as the step"
        gain = est.step_seconds / (est.step_seconds - wait) - 1
        yield Method(method="data loading", change=change, gain=gain, memory_bytes=0.0, fits=est.fits)


def _change_plan(
    est: Estimate, method: str, change: str, knobs: Mapping[str, object], gbs: int | None = None
) -> Iterator[Method]:
    """Yield the plan with other knobs or another global batch, unless it cannot run or nothing changes."""
    other = estimate_with(est, {**NO_PLACEMENT_GIVEN, **knobs} if knobs else {}, gbs)
    if other is None:
        return
    tokens = other.gbs / float(other.step_seconds) * est.step_seconds / est.gbs
    gain = round(tokens - 1, 12)  # rounding errors are no change
    memory = float(other.memory_bytes) - est.memory_bytes
    if gain or memory:
        yield Method(method=method, change=change, gain=gain, memory_bytes=memory, fits=bool(other.fits))
