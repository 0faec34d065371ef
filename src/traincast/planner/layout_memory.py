"""Memory of the layouts of a space, and the candidates to be timed: neither depends on the machine.

Both are kept in the cache of the space, so that the same search on another machine does not compute them again.
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
        The request; `gbs` is the global batch [sequences].

    Returns
    -------
    array, shape (layouts,)
        Memory of the fullest rank [byte]; computed once for all machines.
    """
    key = model, gbs, assumed
    if key not in space.cache.memory:
        space.cache.memory[key] = _compute_memory(space.with_assumptions(assumed), model, gbs, assumed)
    return space.cache.memory[key]


def _compute_memory(space: Space, model: Model, gbs: int, assumed: Assumptions) -> Floats:
    """Compute the memory of every layout of a space `with_assumptions` [byte]."""
    operations = parts(model, space.layers, assumed)
    footprints = {part: Footprint.of(of_part, space.layers) for part, of_part in operations.items()}
    used = np.empty(space.layer_row.shape)
    for low in range(0, len(used), BLOCK):
        rows = slice(low, low + BLOCK)
        block = {part: footprint.take(space.layer_row[rows]) for part, footprint in footprints.items()}
        components = devices_memory(block, space.layouts.take(rows), space.stages.take(rows), gbs, assumed)
        devices = [np.broadcast_to(total(device.values()), used[rows].shape) for device in components]
        used[rows] = np.max(devices, axis=0)
    return used


class CandidateBlock(NamedTuple):
    """Candidates that are timed together."""

    rows: slice  # of the layouts that are timed
    shard: Ints  # of each candidate
    plans: Plans
    stages: Stages
    starts: Ints  # first candidate of each layout


@dataclass(frozen=True)
class TimedCandidates:
    """Candidates to be timed on any machine: layouts, their shards, and the operations of these.

    Parameters
    ----------
    space : Space
        The space `with_assumptions`.
    fitting : array of int, shape (fitting,)
        Rows of `space.layouts`.
    shards : Shards
        Shards of their candidates.
    operations : mapping of str to tuple of Operation
        Operations of each part of the model, columns over shards.
    single_block : list of CandidateBlock
        Cache: the block of `blocks`, where there is only one.
    """

    space: Space
    fitting: Ints
    shards: Shards
    operations: Parts
    single_block: list[CandidateBlock] = field(default_factory=list)

    def blocks(self, size: int) -> Iterator[CandidateBlock]:
        """Yield blocks of about `size` candidates; a single block is cached for the next machine."""
        if self.single_block and size == BLOCK:
            yield from self.single_block
            return
        slices = list(_slices(self.space.counts[self.fitting], size))
        for rows in slices:
            block = self._block(rows)
            if len(slices) == 1 and size == BLOCK:
                self.single_block.append(block)
            yield block

    def _block(self, rows: slice) -> CandidateBlock:
        """Return the candidates of some of the layouts."""
        space = self.space
        position, fill = space.candidates(self.fitting[rows])
        layout = self.fitting[rows][position]
        shard = self.shards.row[space.layer_row[layout], space.fills.layer_placement[fill]]
        starts = np.flatnonzero(np.diff(position, prepend=-1))
        return CandidateBlock(rows, shard, space.plans(layout, fill), space.stages.take(layout), starts)


def candidates_to_time(
    space: Space, model: Model, gbs: int, assumed: Assumptions, capacity: float, above: float
) -> TimedCandidates:
    """Return the candidates to be timed: those of the layouts that fit. Those of the last capacity are cached.

    Parameters
    ----------
    space, model, gbs, assumed : Space, Model, int, Assumptions
        The request; `gbs` is the global batch [sequences].
    capacity, above : float
        Layouts that need more memory than the first, or no more than the second, are left out [byte].
    """
    key = model, gbs, assumed, capacity, above
    if space.cache.timed is not None and space.cache.timed[0] == key:
        return space.cache.timed[1]  # type: ignore[no-any-return]
    memory, completed = layout_memory(space, model, gbs, assumed), space.with_assumptions(assumed)
    fitting = np.flatnonzero((memory <= capacity) & (memory > above))
    shards = Shards.of(completed, fitting)
    candidates = TimedCandidates(completed, fitting, shards, parts(model, shards.plans, assumed))
    if not above:
        space.cache.timed = key, candidates
    return candidates


def _slices(counts: Ints, size: int) -> Iterator[slice]:
    """Yield rows in slices of about `size` candidates, at least one row each."""
    ends, low = np.cumsum(counts), 0
    while low < len(ends):
        begin = ends[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(ends, begin + size, side="right")))
        yield slice(low, high)
        low = high
