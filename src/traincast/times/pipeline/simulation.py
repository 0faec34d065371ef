"""One pipeline step event by event: every pass of every micro-batch, when and where. Stages may differ from each other.

Each device works through its order (`traincast.times.pipeline.pass_order`) as soon as what a pass depends on has arrived. Sends
run beside the
work. The closed forms of `traincast.times.pipeline.schedules` are tested against this; it is also what a trace of a step shows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from traincast.core.errors import InputError, is_whole, unknown
from traincast.core.quantities import Floats
from traincast.times.pipeline.pass_order import ORDERS, Action, Block, Kind, Order, device_of
from traincast.times.pipeline.schedules import SCHEDULES
from traincast.times.pipeline.zb_2p import AUTOMATIC, automatic

Key: TypeAlias = tuple[bool, int, int]  # whether backward, chunk, micro-batch: what a pass passes on


class SimulatedPass(NamedTuple):
    """A pass as it ran: device, chunk of the model, micro-batch, kind, start and end [s]."""

    device: int
    chunk: int
    microbatch: int
    kind: Kind
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A pipeline step as it ran.

    Parameters
    ----------
    schedule : str
        Its name.
    pp, v : int
        Devices, and chunks of the model on a device.
    passes : tuple of SimulatedPass
        By device, each device's in its order. Passes that ran as one (DualPipe's F with a BW) have the same start and end.
    """

    schedule: str
    pp: int
    v: int
    passes: tuple[SimulatedPass, ...]

    @property
    def seconds(self) -> float:
        """From the start of the first pass to the end of the last [s]."""
        return max(one.end for one in self.passes) - min(one.start for one in self.passes)

    @cached_property
    def started(self) -> Floats:
        """Start of each device's first pass [s]."""
        return self._over_devices(np.minimum, np.inf, lambda one: one.start)

    @cached_property
    def ended(self) -> Floats:
        """End of each device's last pass [s]."""
        return self._over_devices(np.maximum, -np.inf, lambda one: one.end)

    @property
    def period(self) -> float:
        """Time from step to step if no device waits for the others between them: the longest a device is taken [s]."""
        return float(np.max(self.ended - self.started))

    @cached_property
    def busy(self) -> Floats:
        """Time each device works [s]."""
        spans = {(one.device, one.start, one.end) for one in self.passes}  # a set: passes that ran as one count once
        busy = np.zeros(self.pp)
        for device, start, end in spans:
            busy[device] += end - start
        return busy

    @property
    def idle(self) -> Floats:
        """Time each device waits within `seconds` [s]."""
        return self.seconds - self.busy

    @cached_property
    def peak_in_flight(self) -> Floats:
        """Most activations each device holds at once, from the start of F to the end of W, in micro-batches of a whole device."""
        held, peak = np.zeros(self.pp), np.zeros(self.pp)
        for one in self.passes:  # F before BW where they run as one
            if one.kind == "F":
                held[one.device] += 1
                peak[one.device] = max(peak[one.device], held[one.device])
            elif one.kind != "B":
                held[one.device] -= 1
        return peak / self.v

    def _over_devices(self, reduce: np.ufunc, initial: float, of: Callable[[SimulatedPass], float]) -> Floats:
        values = np.full(self.pp, initial)
        reduce.at(values, [one.device for one in self.passes], [of(one) for one in self.passes])
        return values


def simulate(
    schedule: str,
    forward: Sequence[float],
    backward: Sequence[float],
    weight: Sequence[float],
    microbatches: int,
    transfer: float = 0.0,
    *,
    v: int = 1,
) -> Timeline:
    """Run one step of a pipeline.

    Parameters
    ----------
    schedule : str
        Name, one of `SCHEDULES`.
    forward, backward, weight : sequence of float
        F, B and W of one micro-batch through each chunk, in the order of the model: pp · v chunks [s].
    microbatches : int
        Micro-batches of a replica, nm; for DualPipe those of both pipelines together.
    transfer : float
        From one device to another, activations or gradients of a micro-batch [s].
    v : int
        Chunks of the model on a device. DualPipe cuts the model into pp and puts each on two devices: 1.

    Returns
    -------
    Timeline
        Every pass.

    Raises
    ------
    InputError
        If the schedule is unknown or cannot run with these numbers, all reasons at once.
    """
    if schedule not in SCHEDULES:
        raise unknown("schedule", schedule, SCHEDULES)
    _check(schedule, forward, backward, weight, microbatches, transfer, v)
    pp = len(forward) // v
    whole = [b + w for b, w in zip(backward, weight, strict=True)]
    durations: dict[Kind, Sequence[float]] = {"F": forward, "B": backward, "W": weight, "BW": whole}
    if schedule == AUTOMATIC:
        return Timeline(schedule, pp, v, tuple(SimulatedPass(*one) for one in automatic(durations, pp, microbatches, transfer)))
    orders = [ORDERS[schedule](device, pp, microbatches, v) for device in range(pp)]

    def arrival(key: Key, device: int, end: float) -> float:
        """When what was passed on is where it is needed: at once on the same device."""
        return end + transfer * (device_of(schedule, key[1], key[2], pp, microbatches) != device)

    return Timeline(schedule, pp, v, run(orders, durations, arrival))


def _check(
    schedule: str,
    forward: Sequence[float],
    backward: Sequence[float],
    weight: Sequence[float],
    microbatches: int,
    transfer: float,
    v: int,
) -> None:
    """Refuse what cannot run."""
    numbers = {"microbatches": microbatches, "v": v}
    problems = [
        f"{name} = {value!r}: must be a whole number of at least 1" for name, value in numbers.items() if not is_whole(value)
    ]
    if not problems:
        if not len(forward) == len(backward) == len(weight):
            problems.append(
                f"{len(forward)}, {len(backward)} and {len(weight)} times: forward, backward and weight need one per chunk"
            )
        if not forward or len(forward) % v:
            problems.append(f"{len(forward)} chunks do not make devices of v = {v} each")
        if not all(0 <= seconds < np.inf for seconds in (*forward, *backward, *weight, transfer)):
            problems.append("times must be at least 0 and finite")
    if not problems:
        pp = len(forward) // v
        rules = SCHEDULES[schedule].requirements
        problems = [
            f"{rule.broken} (pp = {pp}, v = {v}, {microbatches} micro-batches)"
            for rule in rules
            if not rule.holds(pp, microbatches, v)
        ]
    if problems:
        raise InputError("pipeline", problems)


def run(
    orders: Sequence[Order], durations: dict[Kind, Sequence[float]], arrival: Callable[[Key, int, float], float]
) -> tuple[SimulatedPass, ...]:
    """Run orders, each block as soon as its device is free and what it depends on has arrived.

    Parameters
    ----------
    orders : sequence of Order
        One per device.
    durations : dict of str to sequence of float
        Kind → time of a pass through each chunk [s].
    arrival : callable
        When what was passed on (key, end [s]) arrives at a device [s].

    Returns
    -------
    tuple of SimulatedPass
        By device.

    Raises
    ------
    InputError
        If devices wait for each other.
    """
    chunks = len(durations["F"])
    ends: dict[Key, float] = {}
    waiting: dict[Key, int] = {}  # device that waits for it: what a pass passes on has one reader
    passes: list[list[SimulatedPass]] = [[] for _ in orders]
    position, free = [0] * len(orders), [0.0] * len(orders)
    ready = list(range(len(orders)))
    while ready:
        device = ready.pop()
        while position[device] < len(orders[device]):
            block = orders[device][position[device]]
            needs = [need for action in block if (need := _need(action, chunks)) is not None]
            missing = next((need for need in needs if need not in ends), None)
            if missing is not None:
                waiting[missing] = device
                break
            start = max([free[device], *(arrival(need, device, ends[need]) for need in needs)])
            end = free[device] = start + sum(durations[kind][chunk] for kind, chunk, _ in block)
            position[device] += 1
            for key in _record(block, device, start, end, passes[device]):
                ends[key] = end
                if key in waiting:
                    ready.append(waiting.pop(key))
    stuck = [f"device {d} waits for ever before {orders[d][at]}" for d, at in enumerate(position) if at < len(orders[d])]
    if stuck:
        raise InputError("pipeline order", stuck)
    return tuple(one for device in passes for one in device)


def _need(action: Action, chunks: int) -> Key | None:
    """What a pass depends on, if anything."""
    kind, chunk, microbatch = action
    if kind == "F":
        return (False, chunk - 1, microbatch) if chunk else None
    if kind == "W":
        return (True, chunk, microbatch)
    return (True, chunk + 1, microbatch) if chunk + 1 < chunks else (False, chunk, microbatch)


def _record(block: Block, device: int, start: float, end: float, passes: list[SimulatedPass]) -> list[Key]:
    """Write a block down; what it passes on."""
    passes += (SimulatedPass(device, chunk, microbatch, kind, start, end) for kind, chunk, microbatch in block)
    return [(kind != "F", chunk, microbatch) for kind, chunk, microbatch in block if kind != "W"]
