"""Pipeline schedules: closed forms of bubble, memory and exposed transfers; order of the passes.

A micro-batch occupies a device for T = F + B + W: forward, gradient of the input (B) and gradient of the
weights (W). GPipe and 1F1B run B and W as one backward pass; the zero-bubble schedules run W to fill bubbles;
DualPipe does both. The papers of the zero-bubble schedules use the same letter B; that of DualPipe writes B
for both gradients.

If a paper's formula holds only for some ratios F : B : W, the form here holds for all and equals the paper's
for those. `traincast.times.pipeline.simulation` runs every schedule event by event; docs/schedules.md says
where the two are equal. In all of them nm is the number of micro-batches of a replica, v that of the stages
of a device, and every argument may be a column.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from traincast.core import VIRTUAL_STAGES, Bools, Column, ScheduleName, ceil, floor, maximum, minimum

Kind = Literal["F", "B", "W", "BW"]


class Action(NamedTuple):
    """A pass of one micro-batch through one chunk: F, B (gradient of the input), W (weights), or BW."""

    kind: Kind
    chunk: int
    microbatch: int


Block: TypeAlias = tuple[Action, ...]  # actions that start and end together: one, or DualPipe's F with a BW
Order: TypeAlias = list[Block]


class MicrobatchTimes(NamedTuple):
    """Time of the passes of a micro-batch on a whole device [s]."""

    F: Column
    B: Column
    W: Column

    @property
    def total(self) -> Column:
        """Return T [s]."""
        return self.F + self.B + self.W


@dataclass(frozen=True)
class Requirement:
    """A condition that a schedule needs to run."""

    broken: str  # message to the user if it is not met
    holds: Callable[[Column, Column, Column], bool | Bools]  # whether it is met, from pp, nm and v


def _one_chunk(schedule: str) -> Requirement:
    return Requirement(f"{schedule} has one stage on a device, vp = 1", lambda pp, nm, v: v == 1)


def _two_chunks(schedule: str) -> Requirement:
    rule = f"{schedule} has two chunks on each of several devices, vp = 2"
    return Requirement(rule, lambda pp, nm, v: (v == 2) & (pp > 1))


def _twice_filled(schedule: str) -> Requirement:
    return Requirement(f"{schedule} needs at least 2 pp micro-batches", lambda pp, nm, v: nm >= 2 * pp)


def _fill_requirement(schedule: str) -> Requirement:
    return Requirement(
        f"{schedule} needs at least 2 pp - 1 micro-batches", lambda pp, nm, v: nm >= 2 * pp - 1
    )


@dataclass(frozen=True)
class Schedule(ABC):
    """An order in which the stages of a pipeline work through the micro-batches of a step."""

    name: ScheduleName  # name users give it
    requirements: ClassVar[tuple[Requirement, ...]]  #: conditions it needs to run
    splits_backward: ClassVar[bool] = False  #: whether W may run apart from B
    fixed_order: ClassVar[bool] = True  #: False where a free device runs whatever is ready
    directions: ClassVar[int] = 1  #: directions of micro-batches, each with its own copy of the weights
    #: chunks that a device with several runs ahead, where exchanges of one pass overlap with another's work
    ahead_of_exchanges: ClassVar[int] = 0

    @property
    def virtual_stages(self) -> int | None:
        """Stages of a device; None where any number will do."""
        return VIRTUAL_STAGES[self.name]

    def chunks_of(self, device: int, pp: int, v: int) -> Sequence[int]:
        """Return the model chunks of a device, by number from 0; those of every direction."""
        return range(device, pp * v, pp)

    def device_of(self, chunk: int, microbatch: int, pp: int, nm: int) -> int:
        """Return the device that runs a chunk of the model for a micro-batch."""
        return chunk % pp

    @abstractmethod
    def order(self, device: int, pp: int, nm: int, v: int) -> Order:
        """Return the passes of a device in the order in which it runs them, where that is fixed."""

    @abstractmethod
    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return the bubble in fill and drain, as a share of the other stages' time.

        A step takes nm max(T) + lost (sum of T over the stages - max(T)); for equal stages nm T + lost (pp -
        1) T. With a `barrier` the optimizer waits for all stages.
        """

    def least_bubble_share(self, weight: Column, pp: Column, v: Column, *, barrier: bool = False) -> Column:
        """Return a lower bound on `lost` for a share of W in T, however F and B divide the rest.

        It does not rise with the share; 0, of schedules that split the backward pass, if none is known.
        """
        return (
            0.0
            if self.splits_backward
            else self.bubble_share(MicrobatchTimes(1.0, 1.0, 1.0), pp, v, barrier=barrier)
        )

    @abstractmethod
    def in_flight(self, pp: Column, stage: Column, nm: Column, v: Column) -> Column:
        """Return the peak of activations in flight on a device, each from the start of F to the end of W."""

    def awaiting_w(self, pp: Column, stage: Column, nm: Column) -> Column:
        """Return how many of the micro-batches in flight at the peak wait for W only.

        They hold what the weights' gradients need, M_W, instead of all saved activations, M_B (arXiv
        2401.10241, section 2.3).
        """
        return 0.0 * pp

    @abstractmethod
    def exposed_transfers(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return the transfers on the critical path of a step of equal stages, in both directions.

        Sends do not block the sender. Without `barrier`; docs/schedules.md says up to which transfer time the
        count holds.
        """

    def round_trips(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return the pairs of exposed transfers that come from few micro-batches, not from fill and drain.

        A stage that is faster than the slowest one waits for it in any case, which hides them.
        """
        return 0.0 * pp

    def transfers(self, v: Column) -> Column:
        """Return how often a micro-batch crosses each link between neighbours, in each direction."""
        return v


class GPipe(Schedule):
    """All forward passes, then all backward passes (arXiv 1811.06965, section 2.3)."""

    requirements = (_one_chunk("gpipe"),)

    def order(self, device: int, pp: int, nm: int, v: int) -> Order:
        """Return all forward passes, then the backward passes, last first (arXiv 1811.06965, figure 2c)."""
        forward: Order = [(Action("F", device, k),) for k in range(nm)]
        return forward + [(Action("BW", device, k),) for k in reversed(range(nm))]

    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return 1: the time of all other stages."""
        return 1.0 + 0 * v

    def in_flight(self, pp: Column, stage: Column, nm: Column, v: Column) -> Column:
        """Return all micro-batches."""
        return nm + 0 * pp

    def exposed_transfers(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return the transfers of the first forward and the last backward pass, however long."""
        return 2 * (pp - 1)


class OneForwardOneBackward(Schedule):
    """1F1B; interleaved with v > 1 virtual stages on a device (arXiv 2104.04473, section 2.2)."""

    requirements = (
        Requirement(
            "interleaving needs micro-batches in multiples of pp",
            lambda pp, nm, v: (v == 1) | (np.mod(nm, pp) == 0),
        ),
        Requirement("interleaving needs a pipeline, pp > 1", lambda pp, nm, v: (v == 1) | (pp > 1)),
    )
    ahead_of_exchanges: ClassVar[int] = 1  # Megatron-Core, megatron/core/pipeline_parallel/schedules.py

    def order(self, device: int, pp: int, nm: int, v: int) -> Order:
        """Return 1F1B; v > 1: groups of pp micro-batches run chunk by chunk (arXiv 2104.04473, figure 4)."""
        passes = nm * v
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

    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return 1/v (arXiv 2104.04473, section 2.2.2)."""
        return 1 / v

    def in_flight(self, pp: Column, stage: Column, nm: Column, v: Column) -> Column:
        """Return pp - stage; interleaved (2 (pp - stage - 1) + (v - 1) pp + 1)/v, arXiv 2205.05198, 4.2.3."""
        is_interleaved = minimum(v - 1, 1)  # 1 or 0
        return minimum(pp - stage + is_interleaved * ((pp - 1 - 2 * stage) / v + stage), nm)

    def exposed_transfers(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return fill and drain, plus round trips without interleaving; for transfers up to F/(2v) with it.

        A stage k links from the end holds k + 1 micro-batches, so every k + 1 of them wait for a round trip
        of 2k transfers. Of nm - 1 micro-batches, ceil((nm - 1)/pp) such loops are the slowest: 2 (nm - 1 -
        ceil((nm - 1)/pp)).
        """
        return 2 * (pp * v - 1 + self.round_trips(pp, nm, v))

    def round_trips(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return nearly one round trip for every micro-batch; none if interleaved."""
        is_interleaved = minimum(v - 1, 1)  # 1 or 0
        return (1 - is_interleaved) * (nm - 1 - ceil((nm - 1) / pp))


def _zero_bubble_order(depth: int, device: int, pp: int, nm: int) -> Order:
    """Return the order of ZB-H1 (depth 1) or ZB-H2 (depth 2) (arXiv 2401.10241, section 2).

    A device runs depth · (pp - 1 - device) F ahead of B, and W depth · device micro-batches behind B.
    """
    ahead = min(depth * (pp - 1 - device), nm)
    behind = depth * device
    order: Order = [(Action("F", device, k),) for k in range(ahead)]
    for k in range(nm + behind):
        if ahead + k < nm:
            order.append((Action("F", device, ahead + k),))
        if k < nm:
            order.append((Action("B", device, k),))
        if k >= behind:
            order.append((Action("W", device, k - behind),))
    return order


class ZeroBubbleH1(Schedule):
    """ZB-H1: 1F1B's memory, W put off by the stage's number of micro-batches (arXiv 2401.10241, 2.1)."""

    splits_backward: ClassVar[bool] = True
    requirements = (
        _one_chunk("zb-h1"),
        Requirement("zb-h1 needs at least pp micro-batches", lambda pp, nm, v: nm >= pp),
    )

    def order(self, device: int, pp: int, nm: int, v: int) -> Order:
        """Return the order of depth 1."""
        return _zero_bubble_order(1, device, pp, nm)

    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return (F + B - W)/T for W the shortest (arXiv 2401.10241, table 2); a longer W hides no more."""
        F, B, W = passes
        hidden = minimum(W, F)
        if barrier:
            hidden = minimum(hidden, B)
        return (F + B - hidden) / passes.total

    def least_bubble_share(self, weight: Column, pp: Column, v: Column, *, barrier: bool = False) -> Column:
        """Return 1 - 2W/T, at least 0: no more than W is hidden."""
        return maximum(1 - 2 * weight, 0)

    def in_flight(self, pp: Column, stage: Column, nm: Column, v: Column) -> Column:
        """Return pp on every device: pp - stage before B and `stage` before W (arXiv 2401.10241, table 2)."""
        return minimum(pp, nm)

    def awaiting_w(self, pp: Column, stage: Column, nm: Column) -> Column:
        """Return the index of the stage."""
        return minimum(stage + 0 * pp, nm)

    def exposed_transfers(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return twice the transfers of fill and drain: up to W/2 each, W the shortest pass, nm >= 2 pp."""
        return 4 * (pp - 1)


class ZeroBubbleH2(Schedule):
    """ZB-H2: twice the forward passes before the first B, W put off twice as far (arXiv 2401.10241, 2.2)."""

    splits_backward: ClassVar[bool] = True
    requirements = (_one_chunk("zb-h2"), _fill_requirement("zb-h2"))

    def order(self, device: int, pp: int, nm: int, v: int) -> Order:
        """Return the order of depth 2."""
        return _zero_bubble_order(2, device, pp, nm)

    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return (F + B - 2W)/T, at least 0 (arXiv 2401.10241, table 2); W hides no more than F.

        With a barrier at least F: the last device starts that much late for every stage before it.
        """
        F, B, W = passes
        return maximum(F + B - 2 * minimum(W, F), F if barrier else 0.0) / passes.total

    def in_flight(self, pp: Column, stage: Column, nm: Column, v: Column) -> Column:
        """Return 2 pp - 1 on every device, of which 2 `stage` wait for W (arXiv 2401.10241, table 2)."""
        return minimum(2 * pp - 1, nm)

    def awaiting_w(self, pp: Column, stage: Column, nm: Column) -> Column:
        """Return twice the index of the stage."""
        return minimum(2 * stage + 0 * pp, nm)

    def exposed_transfers(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return the transfers of fill and drain; more micro-batches in flight hide the others."""
        return 2 * (pp - 1)


class ZeroBubble2p(ZeroBubbleH2):
    """ZB-2p: ZB-H2's memory; a device runs what is ready: B, else F, else W (arXiv 2401.10241, 3 and 5)."""

    fixed_order: ClassVar[bool] = False
    requirements = (_one_chunk("zb-2p"), _fill_requirement("zb-2p"))

    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return the first device's wait for a B longer than F; with a barrier at least F.

        No order can do better. The one simulated takes up to a pass of each device more.
        """
        return maximum(passes.B - passes.F, passes.F if barrier else 0.0) / passes.total


class VShape(Schedule):
    """A schedule with two chunks on a device: the model is laid down the devices and back up."""

    splits_backward: ClassVar[bool] = True

    def chunks_of(self, device: int, pp: int, v: int) -> Sequence[int]:
        """Return the chunk on the way down the devices, and the one on the way back up."""
        return device, 2 * pp - 1 - device

    def device_of(self, chunk: int, microbatch: int, pp: int, nm: int) -> int:
        """Return the device, counted down and back up."""
        return min(chunk, 2 * pp - 1 - chunk)


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


class ZeroBubbleV(VShape):
    """ZB-V: two chunks on a device, the model laid down the devices and back up (arXiv 2405.15362)."""

    requirements = (_two_chunks("zb-v"), _fill_requirement("zb-v"))

    def order(self, device: int, pp: int, nm: int, v: int) -> Order:
        """Return ZB-V: fill, both chunks in turn, F B W each, W in the gaps of the drain (arXiv 2405.15362).

        Built as for at least 2 pp - 1 micro-batches, the number in flight before the first backward pass of
        the first chunk.
        """
        builder = _OrderBuilder(nm)
        down = device
        up = 2 * pp - 1 - device
        fill = max(nm, 2 * pp - 1)
        ahead = 2 * pp - 1 - device
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

    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return 0 if F = B = W, as the papers say, else an upper bound fitted to the simulated order.

        The papers give no form for other ratios. The order simulated loses up to half the difference between
        the longest and the shortest of F, B and W less. A barrier costs F/2 for each stage at F = B = W.
        """
        F, B, W = passes
        left = maximum(maximum(F, B) - W, F - (B + W) / 2)
        late = maximum(maximum(F - B / 2, B / 2), W / 2) if barrier else maximum(np.abs(F - B), W - F) / 2
        return maximum(left, late) / passes.total

    def least_bubble_share(self, weight: Column, pp: Column, v: Column, *, barrier: bool = False) -> Column:
        """Return max(F, B) - W of T for equal F and B, and with a barrier at least B/2."""
        return maximum((1 - 3 * weight) / 2, (1 - weight) / 4 if barrier else 0)

    def in_flight(self, pp: Column, stage: Column, nm: Column, v: Column) -> Column:
        """Return pp on every device: 2 pp chunks (arXiv 2401.10241, section 6)."""
        return minimum(pp, nm)

    def exposed_transfers(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return the simulated count for F = B = W, transfers up to F/4; others differ by up to a third."""
        return maximum(6 * (pp - 1) - 2, 0)


class _DualPipeBuilder:
    """Builder of a DualPipe device's order; the near one of its two pipelines reaches it first."""

    def __init__(self, device: int, pp: int, nm: int) -> None:
        self.order: Order = []
        self.deferred: deque[tuple[int, int]] = deque()  # chunk and micro-batch of every deferred W
        self.done: Counter[tuple[str, bool]] = Counter()
        self.device = device
        self.pp = pp
        self.half = nm // 2

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


def _dualpipe_order(device: int, pp: int, nm: int) -> Order:
    """Return DualPipe: fill from both ends, F and BW in pairs, deferred W (arXiv 2412.19437, figure 5)."""
    builder = _DualPipeBuilder(device, pp, nm)
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
    for turn in range(nm // 2 - pp + depth + 1):
        # the two in the middle wait for each other's F before their first backward pass
        if turn == 0 and inner == 0:
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


class DualPipe(Schedule):
    """Two opposite pipelines on the same devices, F paired with the other's BW (arXiv 2412.19437)."""

    splits_backward: ClassVar[bool] = True
    directions: ClassVar[int] = 2
    requirements = (
        _one_chunk("dualpipe"),
        Requirement("dualpipe needs an even pp", lambda pp, nm, v: np.mod(pp, 2) == 0),
        Requirement("dualpipe needs an even number of micro-batches", lambda pp, nm, v: np.mod(nm, 2) == 0),
        _twice_filled("dualpipe"),
    )

    def chunks_of(self, device: int, pp: int, v: int) -> Sequence[int]:
        """Return the stages of both directions on a device, for half the micro-batches each."""
        return device, pp - 1 - device

    def device_of(self, chunk: int, microbatch: int, pp: int, nm: int) -> int:
        """Return the device: the second half of the micro-batches runs from the other end."""
        return pp - 1 - chunk if microbatch >= nm // 2 else chunk

    def order(self, device: int, pp: int, nm: int, v: int) -> Order:
        """Return the order of arXiv 2412.19437, figure 5."""
        return _dualpipe_order(device, pp, nm)

    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return (pp/2 - 1)(F&B + B - 3W) of (pp - 1) T (arXiv 2412.19437, table 2) for F, W <= B.

        F&B, the pair, is T: its overlap hides communication, which is not in F, B and W; the paper's term is
        F + 2B - W in the letters here. For other ratios it is an upper bound fitted to the simulated order,
        which takes up to one F less.
        """
        F, B, W = passes
        left = F + maximum(maximum(B + maximum(F, B) - W, F), B)
        return maximum(pp / 2 - 1, 0) / maximum(pp - 1, 1) * left / passes.total

    def least_bubble_share(self, weight: Column, pp: Column, v: Column, *, barrier: bool = False) -> Column:
        """Return the bubble of equal F and B."""
        return maximum(pp / 2 - 1, 0) / maximum(pp - 1, 1) * maximum(1.5 - 2.5 * weight, 0)

    def in_flight(self, pp: Column, stage: Column, nm: Column, v: Column) -> Column:
        """Return pp + 1 on every device (arXiv 2412.19437, table 2)."""
        return minimum(pp + 1, nm)

    def exposed_transfers(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return the simulated count for F = B = W: a pair of passes waits for the inputs of both."""
        return 3 * maximum(pp / 2 - 1, 0) + nm - floor((nm + pp - 4) / pp)


class DualPipeV(VShape):
    """DualPipe folded in the middle: each device is also its mirror image, so weights are not duplicated.

    pp devices run the order of the first half of DualPipe's on 2 pp devices, with twice the micro-batches
    (DeepSeek's DualPipe, README, "DualPipeV"; PyTorch and torchtitan have it under that name).
    """

    requirements = (_two_chunks("dualpipe-v"), _twice_filled("dualpipe-v"))

    def order(self, device: int, pp: int, nm: int, v: int) -> Order:
        """Return DualPipe's order; its far pipeline is the way back up of the same micro-batches."""
        unfolded = _dualpipe_order(device, 2 * pp, 2 * nm)
        return [tuple(run._replace(microbatch=run.microbatch % nm) for run in block) for block in unfolded]

    def bubble_share(
        self, passes: MicrobatchTimes, pp: Column, v: Column, *, barrier: bool = False
    ) -> Column:
        """Return DualPipe's bubble of 2 pp stages with half a device's time each: (pp - 1)(F + 2B - W)/2."""
        F, B, W = passes
        return (F + maximum(maximum(B + maximum(F, B) - W, F), B)) / 2 / passes.total

    def least_bubble_share(self, weight: Column, pp: Column, v: Column, *, barrier: bool = False) -> Column:
        """Return the bubble of equal F and B."""
        return maximum(1.5 - 2.5 * weight, 0) / 2

    def in_flight(self, pp: Column, stage: Column, nm: Column, v: Column) -> Column:
        """Return 2 pp + 1 chunks, half a device's activations each."""
        return minimum(pp + 0.5, nm)

    def exposed_transfers(self, pp: Column, nm: Column, v: Column) -> Column:
        """Return the simulated count for F = B = W and transfers up to F/(8 pp)."""
        return 2 * (pp - 2 + nm - floor((nm + pp - 2) / pp))


SCHEDULES: Final[dict[str, Schedule]] = {
    schedule.name: schedule
    for schedule in (
        GPipe("gpipe"),
        OneForwardOneBackward("1f1b"),
        ZeroBubbleH1("zb-h1"),
        ZeroBubbleH2("zb-h2"),
        ZeroBubble2p("zb-2p"),
        ZeroBubbleV("zb-v"),
        DualPipe("dualpipe"),
        DualPipeV("dualpipe-v"),
    )
}
