"""What is known of a space before a machine is: the memory of its layouts, and the candidates to be timed.

Both are kept with the space, so that the same search on another machine does not work them out again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.model import Model
from traincast.core.plan import Plans
from traincast.core.quantities import Floats, Ints
from traincast.operations.operation import Operation, total
from traincast.operations.transformer import parts
from traincast.planner.search_space import Shards, Space
from traincast.step.memory import Footprint, devices_memory
from traincast.step.pipeline_stages import Stages

BLOCK: Final = 1 << 15  # times computed at once: columns of a block stay in the processor's cache
Parts: TypeAlias = dict[str, tuple[Operation, ...]]


def layout_memory(space: Space, model: Model, gbs: int, assumed: Assumptions) -> Floats:
    """Memory of every layout of a space.

    Parameters
    ----------
    space, model, gbs, assumed : Space, Model, int, Assumptions
        What is asked; `gbs` is the global batch [sequences].

    Returns
    -------
    array, shape (layouts,)
        Memory of the fullest rank [byte]. It is worked out once: machines do not matter to it.
    """
    key = model, gbs, assumed
    if key not in space.known:
        space.known[key] = _layout_memory(space.ready(assumed), model, gbs, assumed)
    return np.asarray(space.known[key])


def _layout_memory(space: Space, model: Model, gbs: int, assumed: Assumptions) -> Floats:
    """Memory of every layout of a space that is ready [byte]."""
    whole = parts(model, space.units, assumed)
    held = {part: Footprint.of(operations, space.units) for part, operations in whole.items()}
    used = np.empty(space.unit.shape)
    for low in range(0, len(used), BLOCK):
        rows = slice(low, low + BLOCK)
        here = {part: one.take(space.unit[rows]) for part, one in held.items()}
        each = devices_memory(here, space.layouts.take(rows), space.stages.take(rows), gbs, assumed)
        used[rows] = np.max([np.broadcast_to(total(parts.values()), used[rows].shape) for parts in each], axis=0)
    return used


class CandidateBlock(NamedTuple):
    """Candidates that are timed at once."""

    rows: slice  # of the layouts that are timed
    shard: Ints  # of each candidate
    plans: Plans
    stages: Stages
    starts: Ints  # first candidate of each layout


@dataclass(frozen=True)
class TimedCandidates:
    """What is timed, whatever the machine: layouts, their shards, and the operations of these."""

    space: Space
    fitting: Ints
    shards: Shards
    operations: Parts
    kept: list[CandidateBlock] = field(default_factory=list)

    def blocks(self, size: int) -> Iterator[CandidateBlock]:
        """Blocks of about `size` candidates; a single one is kept, for another machine may be asked for soon."""
        if self.kept and size == BLOCK:
            yield from self.kept
            return
        every = list(_blocks(self.space.counts[self.fitting], size))
        for rows in every:
            block = self._block(rows)
            if len(every) == 1 and size == BLOCK:
                self.kept.append(block)
            yield block

    def _block(self, rows: slice) -> CandidateBlock:
        """The candidates of some of the layouts."""
        space = self.space
        which, fill = space.candidates(self.fitting[rows])
        layout = self.fitting[rows][which]
        shard = self.shards.row[space.unit[layout], space.fills.inner[fill]]
        starts = np.flatnonzero(np.diff(which, prepend=-1))
        return CandidateBlock(rows, shard, space.plans(layout, fill), space.stages.take(layout), starts)


def candidates_to_time(
    space: Space, model: Model, gbs: int, assumed: Assumptions, capacity: float, above: float
) -> TimedCandidates:
    """What is to be timed of the layouts that fit; that of the last capacity is kept.

    Parameters
    ----------
    space, model, gbs, assumed : Space, Model, int, Assumptions
        What is asked; `gbs` is the global batch [sequences].
    capacity, above : float
        Layouts that need more memory than the first, or no more than the second, are left out [byte].
    """
    key = model, gbs, assumed, capacity, above
    if "work" in space.known and space.known["work"][0] == key:
        return space.known["work"][1]  # type: ignore[no-any-return]
    held, ready = layout_memory(space, model, gbs, assumed), space.ready(assumed)
    fitting = np.flatnonzero((held <= capacity) & (held > above))
    shards = Shards.of(ready, fitting)
    work = TimedCandidates(ready, fitting, shards, parts(model, shards.plans, assumed))
    if not above:
        space.known["work"] = key, work
    return work


def _blocks(counts: Ints, size: int) -> Iterator[slice]:
    """Rows in blocks of about `size` candidates, at least one row each."""
    ends, low = np.cumsum(counts), 0
    while low < len(ends):
        begin = ends[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(ends, begin + size, side="right")))
        yield slice(low, high)
        low = high
