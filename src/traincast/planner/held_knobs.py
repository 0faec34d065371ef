"""Knobs that a search holds constant although its framework runs other values, and the effect of those values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from traincast.core.errors import InputError
from traincast.core.plan import AXES, Plan
from traincast.core.precision import PRECISIONS
from traincast.core.result import Doc, Result
from traincast.core.system import System
from traincast.core.units import GIB
from traincast.planner.framework_refusals import refused
from traincast.planner.framework_spaces import Framework
from traincast.step.estimate import Answer, estimate
from traincast.step.placement import divisors


@dataclass(frozen=True)
class HeldKnob(Result):
    """A knob held constant, and the other value of it that makes the plan fastest (of those that fit, if any does)."""

    name: Annotated[str, Doc("name of the knob", key="knob")]
    value: Annotated[Any, Doc("its value in the plan", text=True)]
    other: Annotated[Any, Doc("the other value", text=True)]
    slower: Annotated[
        float, Doc("relative change of the step time with the other value", key="step_seconds_change")
    ]
    memory: Annotated[
        float, Doc("change of the memory of the fullest rank", "byte", key="memory_bytes_change")
    ]
    fits: Annotated[bool, Doc("whether the plan fits with the other value")]

    def __str__(self) -> str:
        gains = (
            f"{abs(self.slower):.1%} {'slower' if self.slower > 0 else 'faster'}"
            if abs(self.slower) >= 5e-4
            else "as fast"
        )
        space = (
            f", {abs(self.memory) / GIB:.1f} GiB {'more' if self.memory > 0 else 'less'}"
            if abs(self.memory) >= 0.05 * GIB
            else ""
        )
        return (
            f"{self.name}={self.value} ({self.other}: {gains}{space}{'' if self.fits else ', does not fit'})"
        )


def held_knobs(framework: Framework, locks: Mapping[str, Any], answer: Answer) -> list[HeldKnob]:
    """Try other values of every knob that the framework runs and the search holds constant, one knob at a time.

    Parameters
    ----------
    framework : Framework
        Has the values that it runs but that are not searched.
    locks : mapping of str to value
        Knobs locked by the user; they are left out.
    answer : (Plan, Estimate)
        The plan that is changed: the best, or the nearest miss.

    Returns
    -------
    list of HeldKnob
        The largest gain of time first. Knobs without another value that the plan and the machine can have are left out.
    """
    unlocked = {name: values for name, values in framework.unsearched.items() if name not in locks}
    knobs = [_best_other(framework, name, values, answer) for name, values in unlocked.items()]
    return sorted((knob for knob in knobs if knob is not None), key=lambda knob: knob.slower)


def _best_other(framework: Framework, name: str, values: tuple[Any, ...], answer: Answer) -> HeldKnob | None:
    """Return the best other value of a knob; None where there is none."""
    plan, est = answer
    others = []
    for changed in _changed(plan, name, values, est.system):
        if refused(framework.name, changed.choices() | {"stack": est.assumptions.name}):
            continue
        try:
            other = estimate(est.model, est.system, changed, est.gbs, est.assumptions)
        except InputError:  # not on this machine, or not with this plan
            continue
        others.append(
            (not other.fits, float(other.step_seconds), getattr(changed, name), float(other.memory_bytes))
        )
    if not others:
        return None
    misses, seconds, value, nbytes = min(others, key=lambda row: row[:2])
    slower, memory = seconds / float(est.step_seconds) - 1, nbytes - float(est.memory_bytes)
    if slower == 0 and memory == 0:  # it has no effect on this plan
        return None
    return HeldKnob(name, getattr(plan, name), value, slower, memory, not misses)


def _changed(plan: Plan, name: str, values: tuple[Any, ...], system: System) -> Iterator[Plan]:
    """Yield the plan with each other value of a knob; values that contradict the plan are skipped."""
    if name == "replicas":
        values = tuple(map(int, divisors(plan.dp)))
    placement: dict[str, Any] = {f"fast_{axis}": None for axis in AXES} if name == "order" else {}
    for value in values:
        if value == getattr(plan, name) or (name == "precision" and not _multiplies(value, system)):
            continue
        try:
            yield replace(plan, **{name: value}, **placement)
        except InputError:  # contradicts the rest of the plan
            continue


def _multiplies(precision: str, system: System) -> bool:
    """Return whether the matrix units of a machine support the scales of a precision: microscaling came with 4-bit products."""
    return not PRECISIONS[precision].microscaling or system.accelerator.fp4_flops is not None
