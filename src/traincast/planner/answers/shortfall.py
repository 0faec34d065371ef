"""Sentences about memory that a plan lacks, and what would make it fit."""

from typing import Final

import numpy as np

from traincast.core import STRATEGIES, format_signed, gib, probability_text
from traincast.planner.answers.plan_changes import leaner_plans
from traincast.planner.answers.plan_sentences import component_label, time_against_best, what_decides
from traincast.step import Estimate

MAX_CHANGES_LISTED: Final = 4  # changes that make a plan fit


def short_of(est: Estimate, advice: bool = False) -> str:
    """Say by how much a plan exceeds memory, and with `advice` which single changes would make it fit.

    Where it is uncertain whether it fits, say so, and which phase of a step decides.
    """
    capacity = float(est.system.accelerator.visible_bytes)
    missing = float(est.memory_bytes) - capacity
    short = f"needs {gib(capacity + missing)} of {gib(capacity)}"
    if missing > 0:
        short += f"; {gib(missing)} more HBM ({format_signed(missing / capacity)}) would make it fit"
    if est.fits_probability is not None:
        short += f"\n    it fits with {probability_text(est.fits_probability)} probability"
    if decides := what_decides(est):
        short += f"\n    {decides}"
    largest, name = max((float(value), name) for name, value in est.memory.items())
    lever = f"; {_lever(name, est)} would cut it" if largest > missing else ""
    advised = _advice(est) if advice else ""
    return f"{short}\n    largest part: {component_label(name)}, {gib(largest)}{lever}{advised}"


def _advice(est: Estimate) -> str:
    """Return lines on the changes that would make a plan fit, the cheapest first, with their probability.

    Where none surely does, those that may; where none may, what saves most, unless the plan itself may fit.
    """
    tried = leaner_plans(est)
    surely, maybe = (
        [change for change in tried if change[1].verdict == said] for said in ("fits", "uncertain")
    )
    likelier = [change for change in maybe if (change[1].fits_probability or 0) > (est.fits_probability or 0)]
    title, listed = ("would fit with", surely) if surely else ("may fit with", likelier)
    if not listed and est.verdict == "does not fit":
        title = "no single change makes it fit; most is saved by"
        listed = sorted(tried, key=lambda change: float(change[1].memory_bytes))
    lines = [
        f"        {words}: {_memory_of(changed)}, {time_against_best(changed, est)}"
        for words, changed in listed[:MAX_CHANGES_LISTED]
    ]
    return "\n".join((f"\n    {title}", *lines)) if lines else ""


def _memory_of(est: Estimate) -> str:
    """Return the memory of a changed plan, and the probability that it fits where that is known."""
    odds = "" if est.fits_probability is None else f", fits with {probability_text(est.fits_probability)}"
    return gib(float(est.memory_bytes)) + odds


def _lever(component: str, est: Estimate) -> str:
    """Return what makes a component of memory smaller, in words."""
    split = " or ".join(STRATEGIES[est.plan.strategy].layer_axes)
    if component == "optimizer":
        return "more GPUs"
    if component == "activations":
        return f"a smaller micro-batch, or more {split}," if np.max(est.plan.mbs) > 1 else f"more {split}"
    return f"more {split.replace(' or cp', '')}{' or ep' if est.model.experts is not None else ''} or pp"
