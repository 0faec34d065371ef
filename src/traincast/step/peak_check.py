"""Measured times that cannot be: a utilisation above all of the dense peak, and what is likely to be mistaken."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor, log
from typing import Any, Final

import numpy as np

from traincast.core.errors import InputError
from traincast.core.plan import Plan
from traincast.core.precision import PRECISIONS, Rate
from traincast.core.quantities import Column
from traincast.core.units import rate, seconds
from traincast.step.estimate import Estimate

CONVENTION: Final = "megatron"  # counts what cannot be left out: attention only as far as the mask leaves it
NEAR: Final = 2.0  # a corrected time is likely within this factor of the predicted one
LEAST: Final = 0.01  # a corrected utilisation below is no explanation
FASTER: Final[tuple[Rate, ...]] = ("16-bit", "fp8", "fp4")


@dataclass(frozen=True)
class Suspect:
    """A mistake that would explain a utilisation above 100 %.

    Parameters
    ----------
    told : str
        The mistake in words, with its numbers.
    factor : float
        By how much the utilisation is too large because of it.
    """

    told: str
    factor: float


def require_below_peak(
    est: Estimate, step_seconds: Column, mfu: Mapping[str, Column] | None, hfu: Mapping[str, Column] | None
) -> None:
    """Refuse a measured time in which the accelerators cannot have done the work.

    Parameters
    ----------
    est : Estimate
        What was run, or columns of it.
    step_seconds : Column
        Measured time of a step [s].
    mfu, hfu : mapping of str to Column, optional
        Utilisation by convention in that time, where it is known.

    Raises
    ------
    InputError
        If the model FLOPs, or those executed, exceed the dense peak; with the mistakes that would explain it.
    """
    shares = [(name, given[CONVENTION]) for name, given in (("MFU", mfu), ("HFU", hfu)) if given is not None]
    for name, share in shares:
        if np.any(np.asarray(share) > 1):
            row = int(np.argmax(share))
            again = float(_at(share, row)) / float(_at(shares[0][1], row))
            raise InputError("metrics", [_refusal(est, row, float(_at(step_seconds, row)), name, float(_at(share, row)), again)])


def _refusal(est: Estimate, row: int, time: float, name: str, share: float, again: float) -> str:
    """What is wrong with the time of one row, and what may be mistaken; `again` is what recomputation multiplies FLOPs by."""
    gpus, predicted = int(_at(est.plan.gpus, row)), float(_at(est.step_seconds, row))
    kind = PRECISIONS[est.plan.precision].rate
    peak = float(_at(est.system.accelerator.peak(kind), row))
    most = f"{share:,.1%} of the {kind} peak ({name}, {CONVENTION}) of {gpus:,} × {rate(peak, 'FLOP/s')}"
    least = f"a step of {est.gbs:,} sequences takes at least {seconds(time * share)} there"
    enough = [one for one in _suspects(est, row, time, again, peak) if LEAST <= share / one.factor <= 1]
    lines = [f"{one.told} ({name} {share / one.factor:.1%})" for one in sorted(enough, key=lambda one: _off(one, time, predicted))]
    if enough and min(_off(one, time, predicted) for one in enough) <= log(NEAR):
        lines[0] = f"most likely {lines[0]}"
    lines += [f"more GPUs than the {gpus:,} of the plan: at least {ceil(gpus * share):,}"]
    if est.gbs >= share:
        lines += [f"a smaller global batch than {est.gbs:,} sequences: at most {floor(est.gbs / share):,}"]
    return "\n    ".join((f"step_seconds = {time:g}: {most}: {least}; was it", *lines))


def _suspects(est: Estimate, row: int, time: float, again: float, peak: float) -> Iterator[Suspect]:
    """Mistakes that are often made, whether or not they explain enough."""
    plan = est.plan.columns() if isinstance(est.plan, Plan) else est.plan
    parts = float(_at(plan.microbatches(est.gbs), row))
    if parts > 1:
        yield Suspect(f"the time of one of {parts:,.0f} micro-batches? The step takes {seconds(parts * time)}", parts)
    yield Suspect(f"given in minutes? The step takes {seconds(60 * time)}", 60.0)
    yield Suspect(f"divided by 1000, though in seconds already? The step takes {seconds(1000 * time)}", 1000.0)
    seq = est.model.seq
    if est.gbs >= seq:
        yield Suspect(f"a global batch in tokens? {est.gbs:,} of them are {est.gbs / seq:,.4g} sequences of {seq:,}", seq)
    for faster in FASTER:
        try:
            other = float(_at(est.system.accelerator.peak(faster), row))
        except InputError:
            continue
        if other > peak:
            yield Suspect(f"run in {faster}? Its peak is {rate(other, 'FLOP/s')} (--precision)", other / peak)
    if again > 1:
        yield Suspect("run without the recomputation of the plan?", again)


def _off(one: Suspect, time: float, predicted: float) -> float:
    """How far the time is from the predicted one without the mistake, as a logarithm."""
    return abs(log(one.factor * time / predicted))


def _at(value: Any, row: int) -> Any:
    """A row of a column; a number is the same in all."""
    return np.ravel(value)[row if np.size(value) > 1 else 0]
