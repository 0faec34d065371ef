"""Simulated timeline of one training step: every pass of every micro-batch, every wait, and what follows.

The pipeline is simulated event by event. What is paid once per step (data-parallel traffic, optimizer, host,
stragglers) is taken from the estimate and follows the pipeline. Trace and estimate therefore differ only by
what the estimate's formula of the pipeline differs from its simulation: `Trace.remainder`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import floor, log10
from typing import Annotated, Final, Literal, NamedTuple

from traincast.core import KEY, Doc, InputError, Result, number_keys
from traincast.step import ChunkPasses, Estimate, passes, require_one_plan
from traincast.times import SCHEDULES, Kind, SimulatedPass, Timeline, simulate

MAX_PASSES: Final = 500_000  # some seconds of simulation
MIN_WAIT: Final = 1e-12  # of a step: shorter waits are rounding
RESOLUTION: Final = 1e-6  # of a step: what `to_dict` rounds to
REMAINDER: Final = "estimate minus trace"


class Wait(NamedTuple):
    """An interval in which a device waits for other stages."""

    component: str  # pp_comm for the part caused by transfer time, else bubble
    start: float  # [s]
    seconds: float  # [s]


class After(Result):
    """An interval after the pipeline, the same on every device."""

    name: Annotated[str, Doc("name of the interval")]
    component: Annotated[str, Doc("component of the step; empty for the remainder")]
    start: Annotated[float, Doc("from `begin` of the device", "s")]
    seconds: Annotated[float, Doc("length", "s")]


TIMES: Final = Doc(keys=number_keys("time"))
SIMULATED: Final = Doc(
    key="remainder_seconds",
    keys={name: number_keys("time")[name] for name in ("bubble", "pp_comm")},
)


class ChunkRecord(Result):
    """A chunk of the model."""

    parts: Annotated[dict[str, int], Doc("layers by kind, embedding and head")]
    passes: Annotated[
        dict[str, dict[str, Annotated[float, Doc("time spent on it", "s")]]],
        Doc("by kind of pass: seconds by component, in drawing order; they add up to its length"),
    ]


class DeviceRecord(Result, kw_only=True):
    """A device of the pipeline; starts and lengths are rounded to a millionth of the step."""

    stage: Annotated[int, Doc("place in the pipeline, from 0")]
    begin: Annotated[float, Doc("start of the step on it", "s")]
    passes: Annotated[list[tuple[int, int, int, float]], Doc("in order: kind, chunk, micro-batch, start [s]")]
    waits: Annotated[
        list[tuple[str, float, float]], Doc("in order: bubble or pp_comm, start [s], length [s]")
    ]
    totals_seconds: Annotated[dict[str, float], Doc("seconds by component", keys=number_keys("time"))]


class Trace(Result, repr=False):
    """The simulated timeline of a training step of one plan; made by `trace`."""

    estimate: Estimate
    passes: ChunkPasses  # seconds by component of a pass through each chunk
    timeline: Timeline  # the simulated pipeline, from the start of the first pass
    # Passes of each device, in order; overlapped ones (DualPipe's F with a BW) are laid out one after the
    # other.
    by_device: tuple[tuple[SimulatedPass, ...], ...]
    # Start of the step on each device [s]: 0; without a barrier before the optimizer, where devices enter the
    # next step one after the other, the start of the device's first pass.
    begin: tuple[float, ...]
    pipeline_seconds: Annotated[
        float, Doc("from `begin` of a device to the end of the pipeline", "s", place=1)
    ]
    waits: tuple[tuple[Wait, ...], ...]  # of each device, in order

    def __repr__(self) -> str:
        passes = len(self.timeline.passes)
        seconds = self.simulated_seconds
        return f"<Trace {self.estimate.plan}: {passes:,} passes, {seconds:.4g} s>"

    @property
    def step_seconds(self) -> Annotated[float, KEY]:
        """Step time of the estimate: `simulated_seconds` plus `remainder` [s]."""
        return float(self.estimate.step_seconds)

    @property
    def simulated_seconds(self) -> Annotated[float, KEY]:
        """Step time of the trace, without the remainder [s]."""
        return sum(self.totals.values())

    @property
    def breakdown_seconds(self) -> Annotated[dict[str, float], TIMES]:
        """The estimate's seconds by component."""
        return self.estimate.breakdown

    @property
    def totals(self) -> Annotated[dict[str, float], replace(TIMES, key="totals_seconds")]:
        """The trace's seconds by component, on the device that sets the step."""
        return self.totals_of(self.device)

    def totals_of(self, device: int) -> dict[str, float]:
        """Return seconds by component on a device; on each they add up to `simulated_seconds`."""
        totals = dict.fromkeys(self.estimate.breakdown, 0.0)
        numbers = Counter((pass_.kind, pass_.chunk) for pass_ in self.by_device[device])
        for (kind, chunk), n in numbers.items():
            for component, seconds in self.passes.spent[kind][chunk].items():
                totals[component] += n * seconds
        for component, _, seconds in self.waits[device]:
            totals[component] += seconds
        for _, component, seconds in self._once:
            totals[component] += seconds
        return totals

    @cached_property
    def remainder(self) -> Annotated[dict[str, float], SIMULATED]:
        """The remainder: what the estimate has and the trace has not; below 0 where the trace is longer."""
        estimated = self.estimate.breakdown
        totals = self.totals
        return {name: float(estimated[name]) - totals[name] for name in ("bubble", "pp_comm")}

    @property
    def device(self) -> Annotated[int, KEY]:
        """Device that sets the step: the slowest."""
        return int(self.estimate.stages.position[int(self.estimate.step.slowest)])

    @property
    def schedule(self) -> Annotated[str, KEY]:
        """Pipeline schedule."""
        return self.timeline.schedule

    @property
    def pp(self) -> Annotated[int, KEY]:
        """Devices of the pipeline."""
        return self.timeline.pp

    @property
    def vp(self) -> Annotated[int, KEY]:
        """Chunks of the model on each device."""
        return self.timeline.v

    @property
    def microbatches(self) -> Annotated[int, KEY]:
        """Micro-batches of a replica in a step."""
        return 1 + max(pass_.microbatch for pass_ in self.timeline.passes)

    @property
    def transfer_seconds(self) -> Annotated[float, Doc(place=2)]:
        """From the end of a pass until the next device has its output [s]."""
        return self.passes.overlapped_transfer

    @property
    def kinds(self) -> Annotated[list[Literal["F", "B", "W", "BW"]], Doc(place=2)]:
        """Kinds of passes, which `passes` refer to by position."""
        present = {pass_.kind for pass_ in self.timeline.passes}
        return [kind for kind in self.passes.spent if kind in present]

    @property
    def chunks(self) -> Annotated[list[ChunkRecord], Doc(place=2)]:
        """Chunks of the model, first to last."""
        spent = {kind: self.passes.spent[kind] for kind in self.kinds}
        return [
            ChunkRecord(dict(parts), {kind: dict(chunks[i]) for kind, chunks in spent.items()})
            for i, parts in enumerate(self.passes.parts)
        ]

    @cached_property
    def after(self) -> Annotated[tuple[After, ...], Doc(place=2)]:
        """What follows the pipeline on every device: the remainder, then what is paid once per step."""
        remainder = (REMAINDER, "", max(sum(self.remainder.values()), 0.0))
        after = []
        start = self.pipeline_seconds
        for name, component, seconds in (remainder, *self._once):
            if seconds > MIN_WAIT * self.step_seconds:
                after.append(After(name, component, start, seconds))
                start += seconds
        return tuple(after)

    @property
    def devices(self) -> Annotated[list[DeviceRecord], Doc(place=2)]:
        """Devices of the pipeline, first to last."""
        kinds = self.kinds
        digits = _digits(self.step_seconds)
        return [
            DeviceRecord(
                stage=device,
                begin=self.begin[device],
                passes=[(kinds.index(p.kind), p.chunk, p.microbatch, round(p.start, digits)) for p in passes],
                waits=[
                    (w.component, round(w.start, digits), round(w.seconds, digits))
                    for w in self.waits[device]
                ],
                totals_seconds=self.totals_of(device),
            )
            for device, passes in enumerate(self.by_device)
        ]

    @property
    def _once(self) -> list[tuple[str, str, float]]:
        """What is paid once per step: name, component, seconds."""
        step = self.estimate.step
        return [
            ("exchange with experts, first and last pass", "ep_comm", self.passes.unhidden),
            ("data-parallel traffic", "dp_comm", float(step.dp_comm)),
            ("copies to and from the host", "offload_comm", float(step.offload)),
            ("stragglers", "stragglers", float(step.stragglers)),
            ("wait for data", "data_loading", float(step.data_loading)),
            ("optimizer step", "optimizer_step", float(step.optimizer)),
            ("host between steps", "host", float(self.estimate.assumptions.host.step_seconds)),
        ]

    @cached_property
    def send_times(self) -> tuple[tuple[float, ...], ...]:
        """Time at which the output of each pass of `by_device` is ready; overlapped ones end together [s]."""
        ends: list[list[float]] = [[] for _ in range(self.timeline.pp)]
        for pass_ in self.timeline.passes:
            ends[pass_.device].append(pass_.end)
        return tuple(map(tuple, ends))

    def reader(self, pass_: SimulatedPass) -> SimulatedPass | None:
        """Return the pass on another device that reads the output of a pass; None where there is none."""
        backward = pass_.kind != "F"
        chunk = pass_.chunk + (-1 if backward else 1)
        following = self._readers.get((backward, chunk, pass_.microbatch))
        remote = following is not None and following.device != pass_.device
        return following if remote and pass_.kind != "W" else None

    @cached_property
    def _readers(self) -> dict[tuple[bool, int, int], SimulatedPass]:
        """Passes by direction (whether backward), chunk and micro-batch."""
        passes = [pass_ for passes in self.by_device for pass_ in passes if pass_.kind != "W"]
        return {(pass_.kind != "F", pass_.chunk, pass_.microbatch): pass_ for pass_ in passes}


def trace(est: Estimate) -> Trace:
    """Simulate the step of a plan event by event.

    Parameters
    ----------
    est : Estimate
        Estimate of one plan.

    Returns
    -------
    Trace
        Every pass of every micro-batch, and every wait.

    Raises
    ------
    InputError
        If the estimate is not of one plan on one machine, or the step has more than 500,000 passes.

    Examples
    --------
    >>> import traincast as tc
    >>> est = tc.estimate("gpt3-1t", "h200-nvs8", tc.Plan(tp=8, pp=16, dp=16, fast_tp=8), gbs=4096)
    >>> trace = tc.trace(est)
    >>> trace
    <Trace 1d tp=8 pp=16 dp=16 fast_tp=8: 8,192 passes, 41.19 s>
    >>> abs(trace.step_seconds - trace.simulated_seconds) < 1e-9
    True
    """
    require_one_plan(est, "trace")
    plan = est.plan
    schedule = SCHEDULES[est.plan.schedule]
    number = _microbatches(est) * plan.pp * plan.vp * (3 if schedule.splits_backward else 2)
    if number > MAX_PASSES:
        limit = f"a trace has at most {MAX_PASSES:,} passes, this one {number:,}"
        advice = "take fewer micro-batches (a smaller global batch, or larger micro-batches)"
        raise InputError("trace", [f"{limit}: {advice}"])
    lengths = passes(est, plan)
    timeline = _simulate(lengths, est, lengths.overlapped_transfer)
    without_transfers = _simulate(lengths, est, 0.0) if lengths.overlapped_transfer else timeline
    barrier = est.assumptions.overlap.optimizer_barrier or not schedule.splits_backward
    begin, seconds = _start_and_seconds(timeline, barrier)
    first_start, undelayed_seconds = _start_and_seconds(without_transfers, barrier)
    undelayed = {
        (pass_.kind, pass_.chunk, pass_.microbatch): pass_.start - first_start[pass_.device]
        for pass_ in without_transfers.passes
    }
    by_device = _sequential_passes(timeline, lengths)
    later = seconds - undelayed_seconds
    waits = tuple(
        _waits(own_passes, start, start + seconds, undelayed, later)
        for own_passes, start in zip(by_device, begin, strict=True)
    )
    return Trace(est, lengths, timeline, by_device, begin, seconds, waits)


def _digits(seconds: float) -> int:
    """Return the decimals of times that are rounded to `RESOLUTION` of a step."""
    return 1 - floor(log10(RESOLUTION * seconds)) if seconds else 0


def _microbatches(est: Estimate) -> int:
    """Return the micro-batches of a replica."""
    return round(float(est.plan.columns().microbatches(est.gbs)))


def _simulate(passes: ChunkPasses, est: Estimate, transfer: float) -> Timeline:
    """Simulate the pipeline with a transfer time [s]."""
    forward, backward, weight = map(passes.seconds, ("F", "B" if "B" in passes.spent else "BW", "W"))
    work = forward, backward, weight, _microbatches(est)
    return simulate(est.plan.schedule, *work, transfer, v=est.plan.vp)


def _sequential_passes(timeline: Timeline, passes: ChunkPasses) -> tuple[tuple[SimulatedPass, ...], ...]:
    """Return the passes of each device, laid out one after the other."""
    seconds = {kind: passes.seconds(kind) for kind in passes.spent}
    by_device: list[list[SimulatedPass]] = [[] for _ in range(timeline.pp)]
    for pass_ in timeline.passes:
        earlier = by_device[pass_.device]
        start = max(pass_.start, earlier[-1].end) if earlier else pass_.start
        end = start + seconds[pass_.kind][pass_.chunk]
        same = (start, end) == (pass_.start, pass_.end)
        earlier.append(pass_ if same else pass_._replace(start=start, end=end))
    return tuple(map(tuple, by_device))


Key = tuple[Kind, int, int]  # of a pass: kind, chunk, micro-batch


def _start_and_seconds(timeline: Timeline, barrier: bool) -> tuple[tuple[float, ...], float]:
    """Return the start of the step on each device, and the pipeline time from there [s]."""
    if barrier:
        return (0.0,) * timeline.pp, timeline.seconds
    return tuple(map(float, timeline.started)), timeline.period


def _waits(
    passes: Sequence[SimulatedPass], begin: float, end: float, undelayed: Mapping[Key, float], later: float
) -> tuple[Wait, ...]:
    """Return the waits of a device, from its start of the step to the end of the pipeline.

    `undelayed` are the starts of passes without transfer time, `later` is how much earlier the pipeline would
    end. The delay of a pass is what transfers have cost so far: waits up to that sum are due to transfers,
    the rest to other stages.
    """
    delays = [pass_.start - begin - undelayed[pass_.kind, pass_.chunk, pass_.microbatch] for pass_ in passes]
    starts = (*(pass_.start for pass_ in passes), end)
    ends = (begin, *(pass_.end for pass_ in passes))
    waits = []
    charged = 0.0
    for free, start, delay in zip(ends, starts, (*delays, later), strict=True):
        gap = start - free
        transfers = min(max(delay - charged, 0.0), max(gap, 0.0))
        charged += transfers
        waits += [Wait("bubble", free, gap - transfers), Wait("pp_comm", start - transfers, transfers)]
    return tuple(wait for wait in waits if wait.seconds > MIN_WAIT * end)
