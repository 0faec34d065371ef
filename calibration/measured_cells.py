"""What was measured only once or by one source alone: cells of the runs, and facts of their software.

A cell is a software stack, a kind of host, pipelined or not, and experts across fast domains or not. Runs
that nobody here had seen were 6 % off in cells with three configurations or more, and 13 % in all others.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from traincast.accuracy.fit.residuals import group_of
from traincast.accuracy.runs.run import Run
from traincast.accuracy.scores import source_of
from traincast.step.uncertainty import FEW, host_of


@dataclass(frozen=True, order=True)
class Cell:
    """Kind of run: stack, kind of host, and whether it has a pipeline and experts across fast domains."""

    stack: str
    host: str
    pipelined: bool
    experts_across: bool


def cell_of(run: Run) -> Cell:
    """Return the cell of a run."""
    return Cell(run.stack, host_of(run.system.accelerator.name), run.plan.pp > 1, experts_across(run))


def experts_across(run: Run) -> bool:
    """Return whether a group of experts spans fast domains (nodes, or NVLink racks)."""
    return run.model.experts is not None and run.plan.ep * run.plan.etp > run.system.fast_domain


def thin_cells(runs: Sequence[Run]) -> dict[Cell, int]:
    """Return the cells with fewer than `FEW` configurations: sources, models and accelerators."""
    found: dict[Cell, set[Hashable]] = defaultdict(set)
    for run in runs:
        found[cell_of(run)].add(group_of(run))
    return {cell: len(each) for cell, each in sorted(found.items()) if len(each) < FEW}


def facts_of_one_source(runs: Sequence[Run]) -> dict[tuple[str, str], str]:
    """Return the fact and value that rows of one source alone state → that source; releases left out."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for fact, value in run.facts.items():
            found[fact, value].add(source_of(run.id, moe=False))
    return {
        pair: next(iter(sources))
        for pair, sources in sorted(found.items())
        if len(sources) == 1 and pair[0] != "released"
    }
