"""Refuse impossible measured times, whose utilisation exceeds the dense peak, and name the likely mistake."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor, log
from typing import Any, Final

import numpy as np

from traincast.core import PRECISIONS, Column, InputError, Rate, rate_text, seconds
from traincast.step.estimates import Estimate, Estimates

CONVENTION: Final = "megatron"  # counts what cannot be left out: attention only as far as the mask leaves it
LIKELY_RATIO: Final = 2.0  # a corrected time is likely within this factor of the predicted one
MIN_CORRECTED_SHARE: Final = 0.01  # a corrected utilisation below is no explanation
LOWER_PRECISIONS: Final[tuple[Rate, ...]] = ("16-bit", "fp8", "fp4")


@dataclass(frozen=True)
class Suspect:
    """A mistake that would explain a utilisation above 100%."""

    question: str  # the mistake in words, with its numbers
    factor: float  # factor by which it makes the utilisation too large


def require_below_peak(
    est: Estimate | Estimates,
    step_seconds: Column,
    mfu: Mapping[str, Column] | None,
    hfu: Mapping[str, Column] | None,
) -> None:
    """Refuse a measured time in which the accelerators cannot have done the work.

    `step_seconds`: measured time of a step [s]. Raises `InputError` if model or hardware FLOPs exceed the
    dense peak; with the mistakes that would explain it.
    """
    shares = [(name, given[CONVENTION]) for name, given in (("MFU", mfu), ("HFU", hfu)) if given is not None]
    for name, share in shares:
        if np.any(np.asarray(share) > 1):
            row = int(np.argmax(share))
            time = _row_value(step_seconds, row)
            utilisation = _row_value(share, row)
            recompute_factor = utilisation / _row_value(shares[0][1], row)
            raise InputError("metrics", [_refusal(est, row, time, name, utilisation, recompute_factor)])


def _refusal(
    est: Estimate | Estimates, row: int, time: float, name: str, share: float, recompute_factor: float
) -> str:
    """Say what is wrong with the time of one row, and the mistakes that would explain it.

    `recompute_factor` is what recomputation multiplies FLOPs by.
    """
    gpus = int(_row_value(est.plan.gpus, row))
    predicted = _row_value(est.step_seconds, row)
    kind = PRECISIONS[est.plan.precision].rate
    peak = _row_value(est.system.accelerator.peak(kind), row)
    of_peak = f"of the {kind} peak ({name}, {CONVENTION}) of {gpus:,} × {rate_text(peak, 'FLOP/s')}"
    least_text = f"a step of {est.gbs:,} sequences takes at least {seconds(time * share)} there"
    every = _suspects(est, row, time, recompute_factor, peak)
    suspects = [suspect for suspect in every if MIN_CORRECTED_SHARE <= share / suspect.factor <= 1]
    suspects.sort(key=lambda suspect: _log_distance(suspect, time, predicted))
    lines = [f"{suspect.question} ({name} {share / suspect.factor:.1%})" for suspect in suspects]
    if suspects and _log_distance(suspects[0], time, predicted) <= log(LIKELY_RATIO):
        lines[0] = f"most likely {lines[0]}"
    lines += [f"more GPUs than the {gpus:,} of the plan: at least {ceil(gpus * share):,}"]
    if est.gbs >= share:
        lines += [f"a smaller global batch than {est.gbs:,} sequences: at most {floor(est.gbs / share):,}"]
    return "\n    ".join((f"step_seconds = {time:g}: {share:,.1%} {of_peak}: {least_text}; was it", *lines))


def _suspects(
    est: Estimate | Estimates, row: int, time: float, recompute_factor: float, peak: float
) -> Iterator[Suspect]:
    """Yield common mistakes, whether or not they explain enough."""
    parts = _row_value(est.columns.microbatches(est.gbs), row)
    scaled = {"given in minutes": 60.0, "divided by 1000, though in seconds already": 1000.0}
    if parts > 1:
        scaled = {f"the time of one of {parts:,.0f} micro-batches": parts, **scaled}
    for question, factor in scaled.items():
        yield Suspect(f"{question}? The step takes {seconds(factor * time)}", factor)
    seq = est.model.seq
    if est.gbs >= seq:
        sequences = f"{est.gbs:,} of them are {est.gbs / seq:,.4g} sequences of {seq:,}"
        yield Suspect(f"a global batch in tokens? {sequences}", seq)
    for faster in LOWER_PRECISIONS:
        try:
            other = _row_value(est.system.accelerator.peak(faster), row)
        except InputError:
            continue
        if other > peak:
            yield Suspect(
                f"run in {faster}? Its peak is {rate_text(other, 'FLOP/s')} (--precision)", other / peak
            )
    if recompute_factor > 1:
        yield Suspect("run without the recomputation of the plan?", recompute_factor)


def _log_distance(suspect: Suspect, time: float, predicted: float) -> float:
    """Return how far the corrected time is from the predicted one, as a logarithm."""
    return abs(log(suspect.factor * time / predicted))


def _row_value(value: Any, row: int) -> float:
    """Return a row of a column; a number is the same in every row."""
    return float(np.ravel(value)[row if np.size(value) > 1 else 0])
