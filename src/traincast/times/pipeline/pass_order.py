"""Order of the passes on each device of a pipeline, by schedule: kind, chunk and micro-batch of each."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias, cast

Kind = Literal["F", "B", "W", "BW"]


class Action(NamedTuple):
    """A pass of one micro-batch through one chunk: F, B (gradient of the input), W (weights), or BW."""

    kind: Kind
    chunk: int
    microbatch: int


Block: TypeAlias = tuple[Action, ...]  # actions that start and end together: one, or DualPipe's F with a BW
Order: TypeAlias = list[Block]


def device_of(schedule: str, chunk: int, microbatch: int, pp: int, microbatches: int) -> int:
    """Return the device that holds a chunk of the model, for a micro-batch.

    In turn (1F1B, interleaved); down the devices and back up (zb-v); from the other end for the second half
    of the micro-batches (dualpipe).
    """
    if schedule == "zb-v":
        return chunk if chunk < pp else 2 * pp - 1 - chunk
    if schedule == "dualpipe" and microbatch >= microbatches // 2:
        return pp - 1 - chunk
    return chunk % pp


def gpipe(device: int, pp: int, microbatches: int, v: int) -> Order:
    """Return all forward passes, then the backward passes, last first (arXiv 1811.06965, figure 2c)."""
    forward: Order = [(Action("F", device, k),) for k in range(microbatches)]
    return forward + [(Action("BW", device, k),) for k in reversed(range(microbatches))]


def one_forward_one_backward(device: int, pp: int, microbatches: int, v: int) -> Order:
    """Return 1F1B; v > 1: groups of pp micro-batches run chunk after chunk (arXiv 2104.04473, figure 4)."""
    passes = microbatches * v
    ahead = min(pp - device - 1 if v == 1 else 2 * (pp - device - 1) + (v - 1) * pp, passes)

    def action(kind: Kind, count: int) -> Block:
        group, within = divmod(count, pp * v)
        turn, member = divmod(within, pp)
        turn = turn if kind == "F" else v - 1 - turn  # backward takes the chunks last first
        return (Action(kind, turn * pp + device, group * pp + member),)

    order = [action("F", count) for count in range(ahead)]
    for count in range(passes):
        if ahead + count < passes:
            order.append(action("F", ahead + count))
        order.append(action("BW", count))
    return order


def _zero_bubble_h(depth: int) -> Callable[[int, int, int, int], Order]:
    """Return ZB-H1 (depth 1) or ZB-H2 (depth 2) (arXiv 2401.10241, section 2).

    A device runs depth · (pp - 1 - device) F ahead of B, and W depth · device micro-batches behind B.
    """

    def order(device: int, pp: int, microbatches: int, v: int) -> Order:
        ahead, behind = min(depth * (pp - 1 - device), microbatches), depth * device
        order: Order = [(Action("F", device, k),) for k in range(ahead)]
        for k in range(microbatches + behind):
            if ahead + k < microbatches:
                order.append((Action("F", device, ahead + k),))
            if k < microbatches:
                order.append((Action("B", device, k),))
            if k >= behind:
                order.append((Action("W", device, k - behind),))
        return order

    return order


class _OrderBuilder:
    """Builder of an order: each pass added is the next micro-batch's of its kind and chunk."""

    def __init__(self, microbatches: int) -> None:
        self.order: Order = []
        self.done: Counter[tuple[str, int]] = Counter()
        self.microbatches = microbatches

    def add(self, kinds: str, chunk: int) -> "_OrderBuilder":
        """Append a pass of each kind through a chunk, one after the other."""
        for kind in kinds:
            microbatch = self.done[kind, chunk]
            self.done[kind, chunk] += 1
            if microbatch < self.microbatches:
                self.order.append((Action(cast(Kind, kind), chunk, microbatch),))
        return self


def zb_v(device: int, pp: int, microbatches: int, v: int) -> Order:
    """Return ZB-V: fill, both chunks in turn, F B W each, W in the gaps of the drain (arXiv 2405.15362).

    Built as for at least 2 pp - 1 micro-batches, the number in flight before the first backward pass of the
    first chunk.
    """
    builder = _OrderBuilder(microbatches)
    down, up = device, 2 * pp - 1 - device
    fill, ahead = max(microbatches, 2 * pp - 1), 2 * pp - 1 - device
    builder.add("F" * (2 * (pp - device) - 1), down)
    for _ in range(device):
        builder.add("F", up).add("F", down)
    builder.add("FBW" * (pp - device), up)
    for count in range(fill - builder.done["F", up]):
        more = "F" if count < fill - ahead else ""
        builder.add(more + "BW", down).add("FBW", up)
    for _ in range(device):
        builder.add("B", down).add("B", up)
    builder.add("BW" * (pp - device), down)
    builder.add("W" * (fill - builder.done["W", up]), up)
    builder.add("W" * (fill - builder.done["W", down]), down)
    return builder.order


class _DualPipeBuilder:
    """Builder of a DualPipe device's order; the near one of its two pipelines reaches it first."""

    def __init__(self, device: int, pp: int, microbatches: int) -> None:
        self.order: Order = []
        self.deferred: deque[tuple[int, int]] = deque()  # chunk and micro-batch of every deferred W
        self.done: Counter[tuple[str, bool]] = Counter()
        self.device, self.pp, self.half = device, pp, microbatches // 2

    def add(self, *kinds: Kind, far: bool = False) -> None:
        """Append a block: F, BW, B (deferring its W), F with the other pipeline's BW, or the oldest W."""
        if kinds == ("W",):
            self.order.append((Action("W", *self.deferred.popleft()),))
        else:
            self.order.append(tuple(self._next(kind, far ^ bool(place)) for place, kind in enumerate(kinds)))

    def _next(self, kind: Kind, far: bool) -> Action:
        """Return the pass of a pipeline's next micro-batch."""
        second = far ^ (self.device >= self.pp // 2)  # the pipeline that starts at the last device
        chunk = self.pp - 1 - self.device if second else self.device
        way = "F" if kind == "F" else "B"
        microbatch = self.done[way, far] + second * self.half
        self.done[way, far] += 1
        if kind == "B":
            self.deferred.append((chunk, microbatch))
        return Action(kind, chunk, microbatch)


def dualpipe(device: int, pp: int, microbatches: int, v: int) -> Order:
    """Return DualPipe: fill from both ends, F and BW in pairs, deferred W (arXiv 2412.19437, figure 5)."""
    builder = _DualPipeBuilder(device, pp, microbatches)
    depth = min(device, pp - 1 - device)  # devices between it and the nearer end
    inner = pp // 2 - 1 - depth  # and between it and the middle
    for _ in range(2 * inner):
        builder.add("F")
    for _ in range(depth + 1):
        builder.add("F")
        builder.add("F", far=True)
    for _ in range(inner):
        builder.add("B", far=True)
        builder.add("W")
        builder.add("F", far=True)
    for turn in range(microbatches // 2 - pp + depth + 1):
        if (
            turn == 0 and inner == 0
        ):  # the two in the middle wait for each other's F before their first backward pass
            builder.add("F")
            builder.add("BW", far=True)
        else:
            builder.add("F", "BW")
        builder.add("F", "BW", far=True)
    for _ in range(inner):
        builder.add("BW", far=True)
        builder.add("F", "BW", far=True)
    _drain(builder, depth, inner)
    return builder.order


def _drain(builder: _DualPipeBuilder, depth: int, inner: int) -> None:
    """Append the last backward passes of a DualPipe device: of 2 (depth + 1), the later half defers W."""
    for count in range(2 * (depth + 1)):
        builder.add("B" if count > depth else "BW", far=count % 2 == 0)
    for _ in range(inner):
        builder.add("W")
        builder.add("B")
    while builder.deferred:
        builder.add("W")


ORDERS: Final[dict[str, Callable[[int, int, int, int], Order]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "zb-h1": _zero_bubble_h(1),
    "zb-h2": _zero_bubble_h(2),
    "zb-v": zb_v,
    "dualpipe": dualpipe,
}
