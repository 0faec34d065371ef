"""Changes that make a plan fit, and sentences that compare plans."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import AXES, Plan
from traincast.core.plan_choices import STRATEGIES
from traincast.core.units import gib, seconds, signed
from traincast.planner.framework_spaces import lean
from traincast.step.estimate import Answer, Estimate, estimate

MIN_CHANGE_REPORTED: Final = 5e-4  # smallest change that is reported, as a share of the step time
MAX_CHANGES_LISTED: Final = 4


@dataclass(frozen=True)
class PlanChange:
    """A change of a plan, and its estimate.

    Parameters
    ----------
    said : str
        The change in words.
    answer : (Plan, Estimate)
        The changed plan.
    """

    said: str
    answer: Answer


def changes(est: Estimate) -> list[PlanChange]:
    """Return single changes of a plan that save memory on the same GPUs: those that fit first, then by step time."""
    result: list[PlanChange] = []
    if not isinstance(est.plan, Plan):
        return result
    for said, changed in _variations(est.plan, est.model):
        fast = {f"fast_{axis}": None for axis in AXES}
        try:
            plan = replace(est.plan, **{**fast, **changed})
            other = estimate(est.model, est.system, plan, est.gbs, est.assumptions)
        except InputError:
            continue
        if other.memory_bytes < est.memory_bytes:
            result.append(PlanChange(said, (plan, other)))
    return sorted(
        result, key=lambda change: (not change.answer[1].fits, float(change.answer[1].step_seconds))
    )


def _variations(plan: Plan, model: Model) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes that may save memory, in words and as knobs."""
    for word in ("selective", lean(model), "full"):
        if plan.recompute not in (word, "full"):
            yield f"recompute {word}", {"recompute": word}
    for zero in range(plan.zero + 1, 4):
        yield f"zero {zero}", {"zero": zero}
    if plan.dp % 2 == 0:
        kind = "ring" if plan.cp_kind == "none" else plan.cp_kind
        ways: tuple[tuple[str, dict[str, Any]], ...] = (
            ("tp", {}),
            ("pp", {}),
            ("cp", {"cp_kind": kind}),
            ("tp2", {}),
        )
        for axis, more in ways:
            if axis in STRATEGIES[plan.strategy].axes or (axis == "cp" and plan.strategy == "1d"):
                yield (
                    f"{axis} {getattr(plan, axis) * 2}",
                    {axis: getattr(plan, axis) * 2, "dp": plan.dp // 2, **more},
                )
    if model.experts is not None:
        yield f"ep {plan.ep * 2}", {"ep": plan.ep * 2}
        if plan.etp < plan.tp:
            yield f"etp {plan.tp}", {"etp": plan.tp}
    if plan.mbs % 2 == 0:
        yield f"mbs {plan.mbs // 2}", {"mbs": plan.mbs // 2}
    for word in ("optimizer", "activations"):
        if plan.offload == "none":
            yield f"offload {word}", {"offload": word}


def _advice(est: Estimate) -> str:
    """Return lines on the changes that would make a plan fit, or that save most where none does."""
    tried = changes(est)
    listed = [change for change in tried if change.answer[1].fits]
    listed = listed or sorted(tried, key=lambda change: float(change.answer[1].memory_bytes))
    if not listed:
        return ""
    lines = []
    for change in listed[:MAX_CHANGES_LISTED]:
        _, changed = change.answer
        lines.append(
            f"        {change.said}: {gib(float(changed.memory_bytes))}, {time_against_best(changed, est)}"
        )
    title = (
        "would fit with" if listed[0].answer[1].fits else "no single change makes it fit; most is saved by"
    )
    return "\n".join((f"\n    {title}", *lines))


def short_of(est: Estimate, advice: bool = False) -> str:
    """Say by how much a plan exceeds memory, and what would make it fit.

    Parameters
    ----------
    est : Estimate
        A plan that does not fit.
    advice : bool
        Whether single changes are tried.

    Returns
    -------
    str
        A few lines.
    """
    capacity = float(est.system.accelerator.hbm_bytes)
    missing = float(est.memory_bytes) - capacity
    more = f"{gib(missing)} more HBM ({signed(missing / capacity)}) would make it fit"
    short = f"needs {gib(capacity + missing)} of {gib(capacity)}; {more}"
    largest, name = max((float(value), name) for name, value in est.memory.items())
    lever = f"; {_lever(name, est)} would cut it" if largest > missing else ""
    return f"{short}\n    largest part: {label(name)}, {gib(largest)}{lever}{_advice(est) if advice else ''}"


def whole_memory(est: Estimate) -> tuple[float, str]:
    """Say what the memory components of one plan are shares of.

    Parameters
    ----------
    est : Estimate
        Of one plan.

    Returns
    -------
    whole : float
        What the accelerator has, or what the plan needs where that is more [byte].
    told : str
        The same in words.
    """
    capacity, needed = float(est.system.accelerator.hbm_bytes), float(est.memory_bytes)
    if est.fits:
        return capacity, f"shares of the {gib(capacity)} there are"
    return needed, f"shares of the {gib(needed)} it needs; {gib(capacity)} are there"


def _lever(component: str, est: Estimate) -> str:
    """Return what makes a component of memory smaller, in words."""
    plan = est.plan
    split = " or ".join(STRATEGIES[plan.strategy].layer_axes)
    if component == "optimizer":
        return "more GPUs"
    if component == "activations":
        return f"a smaller micro-batch, or more {split}," if np.max(plan.mbs) > 1 else f"more {split}"
    return f"more {split.replace(' or cp', '')}{' or ep' if est.model.experts is not None else ''} or pp"


def slower(pair: Answer, best: Answer) -> float:
    """Return by how much a plan is slower than another, as a share."""
    return float(pair[1].step_seconds / best[1].step_seconds) - 1


def compare(pair: Answer, best: Answer) -> tuple[str, str]:
    """Compare a plan with the best: its time and knobs, and the components that differ most."""
    (plan, est), (_, winner) = pair, best
    change = float(est.step_seconds - winner.step_seconds)
    parts = {name: float(est.breakdown[name]) - float(winner.breakdown[name]) for name in est.breakdown}
    causes = sorted(
        (item for item in parts.items() if abs(item[1]) > 0.05 * abs(change) + 1e-12),
        key=lambda item: -abs(item[1]),
    )
    differences = ", ".join(f"{label(name)} {value:+.3g} s" for name, value in causes[:3])
    return f"{time_against_best(est, winner)}  {plan}", differences or "the same components"


def time_against_best(est: Estimate, winner: Estimate) -> str:
    """Return the step time in words, and by how much it differs from the best plan's."""
    return f"{seconds(float(est.step_seconds))} ({signed(float(est.step_seconds / winner.step_seconds) - 1)})"


def label(component: str) -> str:
    """Return the name of a component in a sentence."""
    names = {
        "exposed_memory": "exposed memory traffic",
        "tp_comm": "TP communication",
        "ep_comm": "EP communication",
        "optimizer_step": "optimizer step",
        "offload_comm": "copies to the host",
        "host": "wait for the host",
        "stragglers": "wait for stragglers",
        "dp_comm": "DP communication",
        "pp_comm": "pipeline transfers",
        "bubble": "pipeline bubble",
    }
    return names.get(component, component)
