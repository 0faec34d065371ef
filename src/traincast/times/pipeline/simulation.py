"""Event-driven simulation of one pipeline step: start and end of every pass. Stages may differ.

Each device runs its order of passes (`Schedule.order`), each pass as soon as its inputs
have arrived. Sends overlap with the work. The closed forms of `traincast.times.pipeline.schedules` are tested
against this, and traces show it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from traincast.core import Floats, raise_problems, require_known, whole_number_problems
from traincast.times.pipeline.schedules import SCHEDULES, Action, Block, Kind, Order
from traincast.times.pipeline.zb_2p import simulate_zb_2p

# Identifies the output of a pass: whether backward, chunk, micro-batch.
Key: TypeAlias = tuple[bool, int, int]


class SimulatedPass(NamedTuple):
    """A simulated pass: device, chunk of the model, micro-batch, kind, start and end [s]."""

    device: int
    chunk: int
    microbatch: int
    kind: Kind
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A simulated pipeline step."""

    schedule: str  # its name
    pp: int  # devices, and chunks of the model on a device
    v: int
    # by device, each device's in its order. Overlapped passes (DualPipe's F with a BW) have the same start
    # and end
    passes: tuple[SimulatedPass, ...]

    @property
    def seconds(self) -> float:
        """Time from the start of the first pass to the end of the last [s]."""
        return max(run.end for run in self.passes) - min(run.start for run in self.passes)

    @cached_property
    def started(self) -> Floats:
        """Start of each device's first pass [s]."""
        return self._over_devices(np.minimum, np.inf, lambda run: run.start)

    @cached_property
    def ended(self) -> Floats:
        """End of each device's last pass [s]."""
        return self._over_devices(np.maximum, -np.inf, lambda run: run.end)

    @property
    def period(self) -> float:
        """Time per step if devices do not wait between steps: the longest occupation [s]."""
        return float(np.max(self.ended - self.started))

    @cached_property
    def busy(self) -> Floats:
        """Time each device works [s]."""
        busy = np.zeros(self.pp)
        # A set: overlapped passes count once.
        for device, start, end in {(run.device, run.start, run.end) for run in self.passes}:
            busy[device] += end - start
        return busy

    @property
    def idle(self) -> Floats:
        """Time each device waits within `seconds` [s]."""
        return self.seconds - self.busy

    @cached_property
    def peak_in_flight(self) -> Floats:
        """Each device's peak of micro-batches in flight, from the start of F to the end of W."""
        in_flight = np.zeros(self.pp)
        peak = np.zeros(self.pp)
        for device, _, _, kind, _, _ in self.passes:  # F before BW if they overlap
            if kind == "F":
                in_flight[device] += 1
                peak[device] = max(peak[device], in_flight[device])
            elif kind != "B":
                in_flight[device] -= 1
        return peak / self.v

    def _over_devices(
        self, reduce: np.ufunc, initial: float, figure: Callable[[SimulatedPass], float]
    ) -> Floats:
        values = np.full(self.pp, initial)
        reduce.at(values, [run.device for run in self.passes], [figure(run) for run in self.passes])
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
    """Simulate one step of a pipeline.

    `forward, backward, weight`: F, B and W of one micro-batch through each chunk, in the order of the model:
    pp · v chunks [s]; `transfer`: time to send activations or gradients of a micro-batch to another device
    [s]. Raises `InputError` if the schedule is unknown or cannot run with these numbers, all reasons at once.
    """
    require_known("schedule", schedule, SCHEDULES)
    _raise_if_impossible(schedule, forward, backward, weight, microbatches, transfer, v)
    pp = len(forward) // v
    full_backward = [b + w for b, w in zip(backward, weight, strict=True)]
    durations: dict[Kind, Sequence[float]] = {"F": forward, "B": backward, "W": weight, "BW": full_backward}
    rules = SCHEDULES[schedule]
    if not rules.fixed_order:
        return Timeline(
            schedule,
            pp,
            v,
            tuple(SimulatedPass(*run) for run in simulate_zb_2p(durations, pp, microbatches, transfer)),
        )
    orders = [rules.order(device, pp, microbatches, v) for device in range(pp)]

    def arrival(key: Key, device: int, end: float) -> float:
        """Return when an output arrives at the device that needs it: at once on the same device."""
        return end + transfer * (rules.device_of(key[1], key[2], pp, microbatches) != device)

    return Timeline(schedule, pp, v, run(orders, durations, arrival))


def _raise_if_impossible(
    schedule: str,
    forward: Sequence[float],
    backward: Sequence[float],
    weight: Sequence[float],
    microbatches: int,
    transfer: float,
    v: int,
) -> None:
    """Raise if the schedule cannot run with these numbers."""
    numbers = {"microbatches": microbatches, "v": v}
    problems = [problem for name, value in numbers.items() for problem in whole_number_problems(name, value)]
    if not problems:
        if not len(forward) == len(backward) == len(weight):
            counts = f"{len(forward)}, {len(backward)} and {len(weight)} times"
            problems.append(f"{counts}: forward, backward and weight need one per chunk")
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
    raise_problems("pipeline", problems)


def run(
    orders: Sequence[Order],
    durations: dict[Kind, Sequence[float]],
    arrival: Callable[[Key, int, float], float],
) -> tuple[SimulatedPass, ...]:
    """Run the orders of all devices, each block as soon as its device is free and its inputs have arrived.

    `durations`: kind → time of a pass through each chunk [s]; `arrival`: arrival of an output at a device
    [s], from key, device and end of the pass [s]. Raises `InputError` if devices wait for each other for
    ever.
    """
    chunks = len(durations["F"])
    ends: dict[Key, float] = {}
    waiting: dict[Key, int] = {}  # device that waits for an output: each has one reader
    passes: list[list[SimulatedPass]] = [[] for _ in orders]
    position = [0] * len(orders)
    free = [0.0] * len(orders)
    ready = list(range(len(orders)))
    while ready:
        device = ready.pop()
        while position[device] < len(orders[device]):
            block = orders[device][position[device]]
            needs = [need for action in block if (need := _input(action, chunks)) is not None]
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
    stuck = [
        f"device {d} waits for ever before {orders[d][at]}"
        for d, at in enumerate(position)
        if at < len(orders[d])
    ]
    raise_problems("pipeline order", stuck)
    return tuple(run for runs in passes for run in runs)


def _input(action: Action, chunks: int) -> Key | None:
    """Return the output that a pass depends on, if any."""
    kind, chunk, microbatch = action
    if kind == "F":
        return (False, chunk - 1, microbatch) if chunk else None
    if kind == "W":
        return (True, chunk, microbatch)
    return (True, chunk + 1, microbatch) if chunk + 1 < chunks else (False, chunk, microbatch)


def _record(block: Block, device: int, start: float, end: float, passes: list[SimulatedPass]) -> list[Key]:
    """Append the passes of a block and return the keys of their outputs."""
    passes += (
        SimulatedPass(device, chunk, microbatch, kind, start, end) for kind, chunk, microbatch in block
    )
    return [(kind != "F", chunk, microbatch) for kind, chunk, microbatch in block if kind != "W"]
