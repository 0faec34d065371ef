"""A space on a machine: which layouts fit, and how long each of their candidates takes.

Memory decides first, on layouts; only candidates that fit are placed and timed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from traincast.assumptions import Assumptions
from traincast.estimate import Estimate, estimate
from traincast.hardware import System
from traincast.memory import Footprint, memory
from traincast.model import Model
from traincast.operations.base import total
from traincast.operations.layers import layer
from traincast.plan import Plan
from traincast.rules import RULES
from traincast.space import NO_FILL, Candidates, Floats, Ints, Space
from traincast.step import cost_layer, step, time_layer

Answer: TypeAlias = tuple[Plan, Estimate]
BLOCK: Final = 1 << 15  # candidates timed at once: columns of a block stay in the processor's cache
OUT_OF_MEMORY: Final = "does not fit in memory"


@dataclass(frozen=True)
class Evaluation:
    """A space on a machine: memory of every layout [byte], and time of every candidate that fits [s]."""

    model: Model
    system: System
    gbs: int
    assumptions: Assumptions
    space: Space
    memory: Floats
    candidates: Candidates
    seconds: Floats

    def outcomes(self) -> list["Outcome"]:
        """What was found for each number of GPUs of the space."""
        starts = self.space.starts
        return [Outcome(self, job, slice(int(starts[job]), int(starts[job + 1]))) for job in range(len(self.space.gpus))]


def layout_memory(space: Space, model: Model, gbs: int, assumed: Assumptions) -> Floats:
    """Memory of every layout of a space [byte]."""
    one = Footprint.of(layer(model, space.units, assumed))
    held = Footprint(*(np.broadcast_to(column, space.units.tp.shape)[space.unit] for column in (one.weights, one.saved)))  # type: ignore[union-attr]
    return np.asarray(total(memory(held, space.layouts, model.layers, gbs, assumed).values()))


def evaluate(
    space: Space, model: Model, system: System, gbs: int, assumed: Assumptions, capacity: float | None = None
) -> Evaluation:
    """Memory of every layout, and time of every candidate that fits in `capacity` (the accelerator's, if not given) [byte]."""
    held = layout_memory(space, model, gbs, assumed)
    limit = system.accelerator.hbm_bytes if capacity is None else capacity
    candidates = Candidates.of(space, np.flatnonzero(held <= limit))
    seconds = np.empty(len(candidates))
    if len(candidates):
        shards = candidates.shards
        costs = cost_layer(time_layer(layer(model, shards, assumed), shards, system, assumed))
        for numbers, shard, plans in candidates.blocks(BLOCK):
            seconds[numbers] = step(costs.take(shard), plans, model.layers, gbs, system, assumed).seconds
    return Evaluation(model, system, gbs, assumed, space, held, candidates, seconds)


@dataclass(frozen=True)
class Outcome:
    """What one strategy gives on one number of GPUs: a part of an evaluation."""

    evaluation: Evaluation
    job: int
    layouts: slice

    @cached_property
    def _fitting(self) -> slice:
        """Rows of the evaluation's fitting layouts."""
        low, high = np.searchsorted(self.evaluation.candidates.layouts, (self.layouts.start, self.layouts.stop))
        return slice(int(low), int(high))

    @cached_property
    def _numbers(self) -> slice:
        """Numbers of the candidates that fit."""
        ends = np.concatenate(([0], self.evaluation.candidates.ends))
        return slice(int(ends[self._fitting.start]), int(ends[self._fitting.stop]))

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.evaluation.space.gpus[self.job]

    @property
    def candidates(self) -> int:
        """Candidates that meet every rule."""
        return int(self.evaluation.space.counts[self.layouts].sum())

    @property
    def feasible(self) -> int:
        """Candidates that fit in memory."""
        return int(self._numbers.stop) - int(self._numbers.start)

    @property
    def seconds(self) -> Floats:
        """Time of every candidate that fits [s]."""
        return self.evaluation.seconds[self._numbers]

    @property
    def rejected(self) -> dict[str, int]:
        """Candidates rejected, by the first rule they break, and by memory."""
        broken = {reason: int(counts[self.job]) for reason, counts in self.evaluation.space.rejected.items()}
        return {reason: count for reason, count in broken.items() if count} | {OUT_OF_MEMORY: self.candidates - self.feasible}

    def best(self, top: int) -> list[tuple[float, float, int]]:
        """The best `top` candidates in order: time [s], memory [byte], number."""
        seconds = self.seconds
        if not len(seconds) or top < 1:
            return []
        pool = np.arange(len(seconds))
        if top < len(seconds):
            pool = np.flatnonzero(seconds <= np.partition(seconds, top - 1)[top - 1])  # with all ties of the last
        layout, _ = self.evaluation.candidates.locate(pool + self._numbers.start)
        held = self.evaluation.memory[layout]
        order = np.lexsort((pool, held, seconds[pool]))[:top]
        return [(float(seconds[pool[i]]), float(held[i]), int(pool[i]) + self._numbers.start) for i in order]

    def best_of_layouts(self) -> tuple[Ints, Floats, Floats, Ints]:
        """Of each layout that fits: its row, its memory [byte], the time of its best candidate [s] and that one's number."""
        candidates, rows = self.evaluation.candidates, self._fitting
        layouts = candidates.layouts[rows]
        if not len(layouts):
            return layouts, np.empty(0), np.empty(0), layouts
        counts = self.evaluation.space.counts[layouts]
        first = np.cumsum(counts) - counts
        least = np.minimum.reduceat(self.seconds, first)
        hit = np.flatnonzero(self.seconds == np.repeat(least, counts))
        number = hit[np.searchsorted(hit, first)]
        return layouts, self.evaluation.memory[layouts], least, number + self._numbers.start

    def answer(self, number: int) -> Answer:
        """The plan of a numbered candidate and its estimate."""
        one = self.evaluation
        plan = one.space.plans(*one.candidates.locate(np.array([number]))).row(0)
        return plan, estimate(one.model, one.system, plan, one.gbs, one.assumptions)


def rejections(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Candidates rejected by several strategies, by the first rule they break (in the order rules are asked), and by memory."""
    counts = Counter[str]()
    for outcome in outcomes:
        counts.update(outcome.rejected)
    asked = [*(rule.broken for rule in RULES), NO_FILL, OUT_OF_MEMORY]
    return {reason: counts[reason] for reason in asked if reason in counts}
