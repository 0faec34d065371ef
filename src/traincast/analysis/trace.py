"""The step of one plan as it runs: every pass of every micro-batch on every device, what it waits for, and what follows.

The pipeline is simulated event by event. What is paid once in a step (data-parallel traffic, optimizer, host, stragglers) follows
as the estimate has it. So a trace differs from the estimate in what the closed form of the pipeline differs from its simulation,
and that has a name of its own: `Trace.remainder`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import floor, log10
from typing import Any, Final, NamedTuple

from traincast.analysis.trace_passes import Passes, passes
from traincast.core.errors import InputError, not_a
from traincast.core.plan import Plan
from traincast.step.estimate import Estimate
from traincast.times.pipeline.pass_order import Kind
from traincast.times.pipeline.schedules import SCHEDULES
from traincast.times.pipeline.simulation import SimulatedPass, Timeline, simulate

MOST_PASSES: Final = 500_000  # some seconds
LEAST: Final = 1e-12  # of a step: shorter waits are rounding
RESOLUTION: Final = 1e-6  # of a step: what `to_dict` rounds to
REMAINDER: Final = "closed form less simulation"


class Wait(NamedTuple):
    """A time in which a device waits for others of the pipeline."""

    component: str  # pp_comm as far as it would not wait if transfers took no time, else bubble
    start: float  # [s]
    seconds: float  # [s]


class After(NamedTuple):
    """What follows the pipeline, on every device."""

    name: str
    component: str  # of the breakdown; empty for the remainder
    start: float  # from the device's `begin` [s]
    seconds: float  # [s]


@dataclass(frozen=True, repr=False)
class Trace:
    """A training step of one plan as it runs; `trace` makes it.

    Parameters
    ----------
    estimate : Estimate
        What is traced.
    passes : Passes
        What a pass through each chunk spends its time on.
    timeline : Timeline
        The pipeline as it ran, from the start of the first pass.
    by_device : tuple of tuple of SimulatedPass
        Passes of each device, in order; those that ran as one (DualPipe's F with a BW) are put one after the other.
    begin : tuple of float
        Start of the step on each device: 0, or where the optimizer does not wait for other stages, so that devices go on into the
        next step one after the other, the start of its first pass [s].
    pipeline_seconds : float
        From there to the end of the pipeline, on every device [s].
    waits : tuple of tuple of Wait
        Of each device, in order.
    """

    estimate: Estimate
    passes: Passes
    timeline: Timeline
    by_device: tuple[tuple[SimulatedPass, ...], ...]
    begin: tuple[float, ...]
    pipeline_seconds: float
    waits: tuple[tuple[Wait, ...], ...]

    def __repr__(self) -> str:
        return f"<Trace {self.estimate.plan}: {len(self.timeline.passes):,} passes, {self.simulated_seconds:.4g} s>"

    @property
    def microbatches(self) -> int:
        """Micro-batches of a replica."""
        return 1 + max(one.microbatch for one in self.timeline.passes)

    @property
    def device(self) -> int:
        """The device that sets the step: the slowest."""
        return int(self.estimate.stages.position[int(self.estimate.step.slowest)])

    @property
    def step_seconds(self) -> float:
        """The estimate's time of a step: `simulated_seconds` and all of `remainder` [s]."""
        return float(self.estimate.step_seconds)

    @property
    def simulated_seconds(self) -> float:
        """Time of a step as simulated [s]."""
        return sum(self.totals.values())

    @property
    def totals(self) -> dict[str, float]:
        """Seconds by component on the device that sets the step; with `remainder` they are the estimate's breakdown."""
        return self.totals_of(self.device)

    def totals_of(self, device: int) -> dict[str, float]:
        """Seconds by component on a device; on each they add up to `simulated_seconds`."""
        totals = dict.fromkeys(self.estimate.breakdown, 0.0)
        for (kind, chunk), n in Counter((one.kind, one.chunk) for one in self.by_device[device]).items():
            for component, seconds in self.passes.spent[kind][chunk].items():
                totals[component] += n * seconds
        for component, _, seconds in self.waits[device]:
            totals[component] += seconds
        for _, component, seconds in self._once:
            totals[component] += seconds
        return totals

    @cached_property
    def remainder(self) -> dict[str, float]:
        """Closed form less simulation, by component: what the estimate has and the trace has not, or has too much of (< 0) [s]."""
        totals = self.totals
        return {one: float(self.estimate.breakdown[one]) - totals[one] for one in ("bubble", "pp_comm")}

    @cached_property
    def after(self) -> tuple[After, ...]:
        """What follows the pipeline, in order: the remainder where the estimate is longer, then what is paid once in a step."""
        more = (REMAINDER, "", max(sum(self.remainder.values()), 0.0))
        told = [one for one in (more, *self._once) if one[2] > LEAST * self.step_seconds]
        starts = accumulate((seconds for _, _, seconds in told), initial=self.pipeline_seconds)
        return tuple(
            After(name, component, start, seconds) for (name, component, seconds), start in zip(told, starts, strict=False)
        )

    @property
    def _once(self) -> list[tuple[str, str, float]]:
        """What is paid once in a step: name, component, seconds."""
        step = self.estimate.step
        return [
            ("exchange with experts, first and last pass", "bubble", self.passes.unhidden),
            ("data-parallel traffic", "dp_comm", float(step.dp_comm)),
            ("copies to and from the host", "offload_comm", float(step.offload)),
            ("stragglers", "stragglers", float(step.stragglers)),
            ("optimizer step", "optimizer_step", float(step.optimizer)),
            ("host between steps", "host", float(self.estimate.assumptions.step_seconds)),
        ]

    @cached_property
    def sent(self) -> tuple[tuple[float, ...], ...]:
        """When what passes pass on is ready, for each of `by_device`: at their end, of two that ran as one at that of both [s]."""
        found: list[list[float]] = [[] for _ in range(self.timeline.pp)]
        for one in self.timeline.passes:
            found[one.device].append(one.end)
        return tuple(map(tuple, found))

    def reader(self, own: SimulatedPass) -> SimulatedPass | None:
        """The pass on another device that goes on with what a pass passes on."""
        following = self._readers.get((own.kind != "F", own.chunk + (1 if own.kind == "F" else -1), own.microbatch))
        return None if own.kind == "W" or following is None or following.device == own.device else following

    @cached_property
    def _readers(self) -> dict[tuple[bool, int, int], SimulatedPass]:
        """Passes by whether they go backward, chunk and micro-batch."""
        return {(one.kind != "F", one.chunk, one.microbatch): one for own in self.by_device for one in own if one.kind != "W"}

    def sums(self) -> dict[str, Any]:
        """Sums of the estimate and of the trace for machines [s]."""
        return {
            "step_seconds": self.step_seconds,
            "simulated_seconds": self.simulated_seconds,
            "breakdown_seconds": self.estimate.breakdown,
            "totals_seconds": self.totals,
            "closed_form_less_simulation_seconds": dict(self.remainder),
        }

    def to_dict(self) -> dict[str, Any]:
        """The trace for machines, compact; docs/trace.md says what the keys hold."""
        digits = _digits(self.step_seconds)
        kinds = [kind for kind in self.passes.spent if any(one.kind == kind for one in self.timeline.passes)]
        return self.sums() | {
            "device": self.device,
            "schedule": self.timeline.schedule,
            "pp": self.timeline.pp,
            "vp": self.timeline.v,
            "microbatches": self.microbatches,
            "pipeline_seconds": self.pipeline_seconds,
            "transfer_seconds": self.passes.beside,
            "kinds": kinds,
            "chunks": [
                {"parts": dict(parts), "passes": {kind: dict(self.passes.spent[kind][chunk]) for kind in kinds}}
                for chunk, parts in enumerate(self.passes.parts)
            ],
            "after": [one._asdict() for one in self.after],
            "devices": [
                {
                    "stage": device,
                    "begin": begin,
                    "passes": [[kinds.index(p.kind), p.chunk, p.microbatch, round(p.start, digits)] for p in own],
                    "waits": [[w.component, round(w.start, digits), round(w.seconds, digits)] for w in self.waits[device]],
                    "totals_seconds": self.totals_of(device),
                }
                for device, (begin, own) in enumerate(zip(self.begin, self.by_device, strict=True))
            ],
        }


def trace(est: Estimate) -> Trace:
    """The step of a plan as it runs, from the event simulation of its pipeline.

    Parameters
    ----------
    est : Estimate
        Of one plan.

    Returns
    -------
    Trace
        Every pass of every micro-batch, and every wait.

    Raises
    ------
    InputError
        If it is of columns of plans or machines, or has more passes than anyone looks at.

    Examples
    --------
    >>> import traincast as tc
    >>> est = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=16, dp=16, fast_tp=8), gbs=4096)
    >>> found = tc.trace(est)
    >>> found
    <Trace 1d tp=8 pp=16 dp=16 fast_tp=8: 8,192 passes, 41.19 s>
    >>> abs(found.step_seconds - found.simulated_seconds) < 1e-9
    True
    """
    plan = _checked(est)
    own = passes(est, plan)
    timeline = _run(own, plan, est, own.beside)
    free = _run(own, plan, est, 0.0) if own.beside else timeline
    barrier = est.assumptions.optimizer_barrier or not SCHEDULES[plan.schedule].splits_backward
    (begin, lasts), (first, least) = _span(timeline, barrier), _span(free, barrier)
    undelayed = {(one.kind, one.chunk, one.microbatch): one.start - first[one.device] for one in free.passes}
    found = _in_turn(timeline, own)
    waits = tuple(_waits(one, start, start + lasts, undelayed, lasts - least) for one, start in zip(found, begin, strict=True))
    return Trace(est, own, timeline, found, begin, lasts, waits)


def _digits(seconds: float) -> int:
    """Decimals of times that are rounded to `RESOLUTION` of a step."""
    return 1 - floor(log10(RESOLUTION * seconds)) if seconds else 0


def _checked(est: Estimate) -> Plan:
    """The plan, if it is one and can be traced."""
    if wrong := not_a("est", est, "an Estimate", Estimate):
        raise InputError("trace", wrong)
    if not isinstance(est.plan, Plan) or est.system.columns():
        raise InputError("trace", ["the estimate is of columns of plans or machines: give one plan on one machine"])
    number = _microbatches(est, est.plan) * est.plan.pp * est.plan.vp * (3 if SCHEDULES[est.plan.schedule].splits_backward else 2)
    if number > MOST_PASSES:
        most = f"a trace has at most {MOST_PASSES:,} passes, this one {number:,}"
        raise InputError("trace", [f"{most}: take fewer micro-batches (a smaller global batch, or larger micro-batches)"])
    return est.plan


def _microbatches(est: Estimate, plan: Plan) -> int:
    """Micro-batches of a replica."""
    return round(float(plan.columns().microbatches(est.gbs)))


def _run(own: Passes, plan: Plan, est: Estimate, transfer: float) -> Timeline:
    """Simulate the pipeline with a time of transfers [s]."""
    backward, weight = own.seconds("B" if "B" in own.spent else "BW"), own.seconds("W")
    return simulate(plan.schedule, own.seconds("F"), backward, weight, _microbatches(est, plan), transfer, v=plan.vp)


def _in_turn(timeline: Timeline, own: Passes) -> tuple[tuple[SimulatedPass, ...], ...]:
    """Passes of each device, in order, one after the other."""
    lasts = {kind: own.seconds(kind) for kind in own.spent}
    found: list[list[SimulatedPass]] = [[] for _ in range(timeline.pp)]
    for one in timeline.passes:
        before = found[one.device]
        start = max(one.start, before[-1].end) if before else one.start
        end = start + lasts[one.kind][one.chunk]
        before.append(one if (start, end) == (one.start, one.end) else one._replace(start=start, end=end))
    return tuple(map(tuple, found))


Key = tuple[Kind, int, int]  # of a pass: kind, chunk, micro-batch


def _span(timeline: Timeline, barrier: bool) -> tuple[tuple[float, ...], float]:
    """Start of the step on each device, and time of the pipeline on every one of them from there [s]."""
    if barrier:
        return (0.0,) * timeline.pp, timeline.seconds
    return tuple(map(float, timeline.started)), timeline.period


def _waits(
    own: Sequence[SimulatedPass], begin: float, end: float, undelayed: Mapping[Key, float], later: float
) -> tuple[Wait, ...]:
    """What a device waits for, from the start of the step on it to the end of the pipeline.

    `undelayed` are the starts of passes if transfers took no time; the pipeline ends by `later` after what it would then. By how
    much a pass starts later is what transfers have cost so far: up to so much waits are for transfers, the rest for other stages.
    """
    delays = [one.start - begin - undelayed[one.kind, one.chunk, one.microbatch] for one in own]
    starts, ends = (*(one.start for one in own), end), (begin, *(one.end for one in own))
    found, charged = [], 0.0
    for free, start, delay in zip(ends, starts, (*delays, later), strict=True):
        gap = start - free
        transfers = min(max(delay - charged, 0.0), max(gap, 0.0))
        charged += transfers
        found += [Wait("bubble", free, gap - transfers), Wait("pp_comm", start - transfers, transfers)]
    return tuple(wait for wait in found if wait.seconds > LEAST * end)
