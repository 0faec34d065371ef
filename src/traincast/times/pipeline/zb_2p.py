"""ZB-2p: no fixed order, a free device runs the pass that is ready (arXiv 2401.10241, sections 3 and 5)."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from traincast.times.pipeline.schedules import Kind

# M_W / M_B: part of the activations that W needs, assumed (arXiv 2401.10241, 2.3: at most 32/34)
ACTIVATION_SHARE_FOR_W: Final = 0.5


class _Choice(NamedTuple):
    """The pass that a device would run next, and its start."""

    start: float
    device: int
    kind: Kind


class _Devices:
    """Devices of a pipeline, with the passes that each has run."""

    def __init__(
        self, durations: Mapping[Kind, Sequence[float]], pp: int, microbatches: int, transfer: float
    ) -> None:
        self.durations = durations
        self.pp = pp
        self.microbatches = microbatches
        self.transfer = transfer
        self.ends: dict[Kind, list[list[float]]] = {kind: [[] for _ in range(pp)] for kind in ("F", "B", "W")}
        self.free = [0.0] * pp

    def arrival(self, kind: Kind, device: int) -> float:
        """Return when the input of the next pass of a kind arrives; infinite if it has not been sent."""
        k = len(self.ends[kind][device])
        if k == self.microbatches:
            return inf
        if kind == "F":
            return 0.0 if device == 0 else self._send_time("F", device - 1, k)
        if kind == "B" and device < self.pp - 1:
            return self._send_time("B", device + 1, k)
        return _end_of_pass(self.ends["F" if kind == "B" else "B"][device], k)

    def _send_time(self, kind: Kind, device: int, k: int) -> float:
        return _end_of_pass(self.ends[kind][device], k) + self.transfer

    def choice(self, device: int) -> _Choice:
        """Return the next pass: B, which others wait for, else F while memory lasts, else W."""
        forward, backward, weight = (len(self.ends[kind][device]) for kind in ("F", "B", "W"))
        in_flight = forward - backward + ACTIVATION_SHARE_FOR_W * (backward - weight)
        ahead = forward - backward < 2 * (self.pp - device) - 1 and in_flight < 2 * self.pp - 1
        kinds: tuple[Kind, ...] = ("B", "F", "W") if ahead else ("B", "W")
        starts = [_Choice(max(self.free[device], self.arrival(kind, device)), device, kind) for kind in kinds]
        return min(starts, key=lambda choice: choice.start)  # the first of those that start at once

    def run(self, choice: _Choice) -> tuple[int, int, int, Kind, float, float]:
        """Run a pass and return device, chunk, micro-batch, kind, start and end."""
        start, device, kind = choice
        ends = self.ends[kind][device]
        end = start + self.durations[kind][device]
        ends.append(end)
        self.free[device] = end
        return device, device, len(ends) - 1, kind, start, end


def _end_of_pass(ends: Sequence[float], k: int) -> float:
    return ends[k] if k < len(ends) else inf


def simulate_zb_2p(
    durations: Mapping[Kind, Sequence[float]], pp: int, microbatches: int, transfer: float
) -> Iterator[tuple[int, int, int, Kind, float, float]]:
    """Yield the passes of a step, by device, each device's in its order [s].

    `durations`: time of F, B and W on each device [s]; `transfer`: time to send to the next device [s].
    """
    devices = _Devices(durations, pp, microbatches, transfer)
    passes = [devices.run(min(map(devices.choice, range(pp)))) for _ in range(3 * pp * microbatches)]
    yield from sorted(passes, key=lambda device_pass: device_pass[0])
