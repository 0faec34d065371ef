"""The search space of one batch of candidates, enumerated as columns (arXiv 2410.00273, search space).

What candidates share is stored once. A *layout* is the degrees, the knobs that subdivide them, and the micro-batch; it alone
decides memory. A *fill* is what a layout does not fix: the SUMMA panels and the placement on the fast domains. A *candidate* is a
layout and one of its fills. Rows of numbers say what layouts and fills share:

- *degree*: the degrees without the micro-batch (tp, tp2 or cp, pp, dp). Fills depend on nothing else.
- *layer row*: what a layer's memory depends on (tp, tp2 or cp, ep, etp, ulysses, and the micro-batch), without pp and dp.
- *layer placement*: what a layer's time depends on in a fill (panels, and the placement of tp, tp2 or cp), without fast_pp and
  fast_dp, unless experts are placed over all ranks of a stage.

A *shard* is a layer row with a layer placement: all that a layer's time depends on. Thousands of candidates share one.

The first layouts of ``1d`` for 4 layers on 4 GPUs in fast domains of 2, with a global batch of 2::

    layout   tp pp dp  mbs   degree  layer row   fills: fast_(tp pp dp)   layer placement
       0      1  2  2   1       0        0       (1 1 2)  (1 2 1)         0  0
       1      1  4  1   1       1        0       (1 2 1)                  0
       2      1  4  1   2       1        1       (1 2 1)                  0
       3      2  1  2   1       2        2       (1 1 2)  (2 1 1)         0  1
       4      2  2  1   1       3        2       (1 2 1)  (2 1 1)         0  1

These 5 layouts have 8 candidates, but only 4 shards: (layer row 0, layer placement 0), (1, 0), (2, 0) and (2, 1).
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.model import Model
from traincast.core.plan import Plans
from traincast.core.plan_choices import STRATEGIES
from traincast.core.quantities import Bools, Floats, Ints
from traincast.planner.framework_spaces import CandidateBatch
from traincast.planner.panels_and_placements import (
    Placements,
    enumerate_placements,
    layer_axes_of,
    placement_options,
)
from traincast.step.pipeline_stages import Stages, stages, with_load
from traincast.step.placement import divisors, factorizations
from traincast.step.validity import rules

NO_PLACEMENT: Final = "no placement fills the fast domains"


class SpaceCache:
    """Results that depend on a space but not on the machine, kept for the next machine that is asked about.

    It belongs to one `Space` and is filled by `planner.layout_memory`. It changes no result: what is missing is computed.

    Attributes
    ----------
    memory : dict
        Memory of every layout [byte], by model, global batch and assumptions.
    timed : tuple or None
        The candidates last prepared for timing, after what they were prepared for.
    """

    __slots__ = ("memory", "timed")

    def __init__(self) -> None:
        self.memory: dict[Hashable, Floats] = {}
        self.timed: tuple[Hashable, Any] | None = None


@dataclass(frozen=True)
class Space:
    """All layouts of one batch on one or several numbers of GPUs, and their fills.

    Parameters
    ----------
    batch : CandidateBatch
        What the candidates have in common.
    gpus : tuple of int
        Numbers of GPUs.
    layouts : Plans
        Layouts that meet every rule, in enumeration order: GPUs, tp, tp2 or cp, pp, mbs, all ascending.
    starts : array of int, shape (numbers of GPUs + 1,)
        First layout of each number of GPUs, and the end.
    layers : Plans
        Distinct (tp, tp2 or cp, ep, etp, ulysses, mbs): all that the memory of a layer depends on.
    layer_row, degree : array of int, shape (layouts,)
        For each layout its row in `layers` and in `fills`.
    stages : Stages
        Devices of the layouts' pipelines; columns of shape (layouts,).
    fills : Placements
        Panels and placements of each row of degrees.
    rejected : dict of str to array
        Reason → candidates rejected by it, for each number of GPUs; a candidate counts for the first rule it breaks.
    cache : SpaceCache
        Results for this space that are computed once; no part of its value.
    """

    batch: CandidateBatch
    gpus: tuple[int, ...]
    layouts: Plans
    starts: Ints
    layers: Plans
    layer_row: Ints
    degree: Ints
    stages: Stages
    fills: Placements
    rejected: dict[str, Ints]
    cache: SpaceCache = field(default_factory=SpaceCache, init=False, compare=False, repr=False)

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return self.batch.strategy

    @cached_property
    def counts(self) -> Ints:
        """Number of candidates of each layout, an array of shape (layouts,)."""
        return self.fills.count[self.degree]

    def candidates(self, layouts: Ints) -> tuple[Ints, Ints]:
        """Return all candidates of some layouts, in enumeration order.

        Two arrays of shape (candidates,): the position of the candidate's layout among those given, and its fill.
        """
        count = self.counts[layouts]
        return np.repeat(np.arange(len(layouts)), count), self.fills.of(self.degree[layouts])

    def with_assumptions(self, assumed: Assumptions) -> "Space":
        """Return the space with the choices that its plans leave to the assumptions filled in."""
        return replace(self, layouts=self.layouts.ready(assumed), layers=self.layers.ready(assumed))

    def without_assumptions(self, plans: Plans) -> Plans:
        """Return candidates of a space `with_assumptions` as they were requested."""
        return replace(plans, grad_dtype=self.batch.given.get("grad_dtype", "usual"))

    def plans(self, layout: Ints, fill: Ints) -> Plans:
        """Return candidates as columns of shape (candidates,), from the layout and the fill of each."""
        axes = STRATEGIES[self.strategy].axes
        fast = {f"fast_{axis}": self.fills.fast[i][fill] for i, axis in enumerate(axes)}
        return replace(self.layouts.take(layout), **fast, panels=self.fills.panels[fill])


@dataclass(frozen=True)
class Shards:
    """The distinct shards among the candidates of some layouts: all that a layer's cost depends on.

    Parameters
    ----------
    plans : Plans
        tp, tp2 or cp, mbs, panels and the placement of tp, tp2, cp.
    row : array of int, shape (layer rows, layer placements)
        Row in `plans` of a layer row with a layer placement; -1 where no candidate has both.
    """

    plans: Plans
    row: Ints

    @classmethod
    def of(cls, space: Space, layouts: Ints) -> "Shards":
        """Return the shards of some rows of `space.layouts`: one row for each shard that one of their candidates has."""
        fills = space.fills
        used = np.zeros(int(np.size(space.layers.mbs)) * len(fills.count), np.bool_)
        used[space.layer_row[layouts] * len(fills.count) + space.degree[layouts]] = True
        layer_row, degree = np.divmod(np.flatnonzero(used), len(fills.count))
        fill = fills.of(degree)
        table = np.full((len(space.layers.mbs), fills.layer_placement.max(initial=-1) + 1), -1)  # type: ignore[arg-type]
        table[np.repeat(layer_row, fills.count[degree]), fills.layer_placement[fill]] = (
            fill  # any fill of the shard will do
        )
        row, placement = np.nonzero(table >= 0)
        fill = table[row, placement]
        fast = {f"fast_{axis}": fills.fast[i][fill] for i, axis in enumerate(layer_axes_of(space.batch))}
        table[row, placement] = np.arange(len(row))
        return cls(replace(space.layers.take(row), panels=fills.panels[fill], **fast), table)


@lru_cache(maxsize=16)
def enumerate_space(
    model: Model, gpus: tuple[int, ...], domain: int, gbs: int, batch: CandidateBatch
) -> Space:
    """Enumerate a batch of candidates (arXiv 2410.00273, search space).

    Parameters
    ----------
    model : Model
        The transformer.
    gpus : tuple of int
        Numbers of GPUs, ascending.
    domain : int
        Accelerators in a fast domain.
    gbs : int
        Global batch [sequences].
    batch : CandidateBatch
        What the candidates have in common, and what is searched.

    Returns
    -------
    Space
        Layouts that meet every rule and can be placed, their fills, and how many candidates each rule rejects.
    """
    space = _enumerate(model, gpus, domain, gbs, batch.shape)
    given = dict(batch.choices)
    return replace(
        space, batch=batch, layouts=replace(space.layouts, **given), layers=replace(space.layers, **given)
    )


@lru_cache(maxsize=16)
def _enumerate(model: Model, gpus: tuple[int, ...], domain: int, gbs: int, batch: CandidateBatch) -> Space:
    """Enumerate the space of all batches of a shape."""
    axes = STRATEGIES[batch.strategy].axes
    blocks = [factorizations(n, len(axes)) for n in gpus]
    degrees = np.concatenate(blocks)
    job = np.repeat(np.arange(len(gpus)), [len(block) for block in blocks])
    searched = np.ones(len(degrees), bool)
    for axis, lower in batch.above:
        searched &= degrees[:, axes.index(axis)] > lower
    for axis, value in batch.locks:
        searched &= degrees[:, axes.index(axis)] == value if axis in axes else True
    degrees, job = degrees[searched], job[searched]
    plan, degree = _layouts(model, gbs, batch, degrees)
    counts, wide, places, placeable = placement_options(model.hidden, domain, batch, degrees)
    in_batch, placeable = _in_domain(batch, degrees, places, placeable)
    fill_count = wide.sum(axis=1) * placeable.sum(axis=1)
    candidates = np.maximum(fill_count, 1)[degree]  # of each row; a row without fills counts once
    valid = np.asarray(wide.any(axis=1) & in_batch)[
        degree
    ]  # not where the panels are locked to a number that a grid does not have
    rejected: dict[str, Ints] = {}

    def reject(reason: str, holds: Bools) -> None:
        broken = valid & ~holds
        if broken.any():
            rejected[reason] = np.bincount(job[degree[broken]], candidates[broken], len(gpus)).astype(
                np.int64
            )
            np.logical_and(valid, holds, out=valid)

    for rule in rules(batch.uneven, batch.rules):
        reject(rule.broken, np.broadcast_to(rule.holds(model, plan, gbs), valid.shape))
    reject(NO_PLACEMENT, np.any(placeable, axis=1)[degree])
    layouts = plan.take(valid)
    used, degree = np.unique(degree[valid], return_inverse=True)
    starts = np.searchsorted(job[used][degree], np.arange(len(gpus) + 1))
    fills = enumerate_placements(batch, degrees[used], counts[used], wide[used], places, placeable[used])
    return Space(
        batch,
        gpus,
        layouts,
        starts,
        *_layer_rows(layouts, batch),
        degree,
        stages(model, layouts),
        fills,
        rejected,
    )


def _in_domain(batch: CandidateBatch, degrees: Ints, places: Ints, placeable: Bools) -> tuple[Bools, Bools]:
    """Return which rows of degrees belong to a batch by where their tensor-parallel groups lie, and which placements do.

    A row that cannot be placed at all belongs to the batch that does not ask for groups inside a domain, which rejects it.
    """
    all_rows = np.ones(len(degrees), bool)
    if batch.tp_in_domain is None:
        return all_rows, placeable
    tp = degrees[:, 0]
    inside = np.column_stack((places[None, :, 0] == tp[:, None], all_rows)) & (tp > 1)[:, None]
    in_batch = placeable & (inside == batch.tp_in_domain)
    unplaceable = ~placeable.any(axis=1)
    return np.asarray(in_batch.any(axis=1) | (unplaceable & (not batch.tp_in_domain))), in_batch


def _layouts(model: Model, gbs: int, batch: CandidateBatch, degrees: Ints) -> tuple[Plans, Ints]:
    """Return every layout of rows of degrees, valid or not, and the row of degrees of each."""
    axes, locks = STRATEGIES[batch.strategy].axes, dict(batch.locks)
    row = np.arange(len(degrees))
    columns: dict[str, Ints] = {axis: degrees[:, i] for i, axis in enumerate(axes)}

    def branch(name: str, values: Ints, suits: Bools) -> None:
        """Replace each row by one row per value of a knob that suits it; a lock leaves one value."""
        nonlocal row
        which, value = np.nonzero(suits & (values == locks.get(name, values)))
        row = row[which]
        for other, column in columns.items():
            columns[other] = column[which]
        columns[name] = values[value]

    _branch_inside(model, batch, columns, branch)
    batches = divisors(gbs)
    divides = gbs % (columns["dp"][:, None] * batches) == 0
    divides[:, 0] |= gbs % columns["dp"] != 0  # one row stays, for the rule to reject
    branch("mbs", batches, divides)
    knobs: dict[str, Any] = {name: column.astype(float) for name, column in columns.items()}
    return with_load(Plans(**knobs, **batch.given), model), row


def _branch_inside(
    model: Model, batch: CandidateBatch, columns: dict[str, Ints], branch: Callable[[str, Ints, Bools], None]
) -> None:
    """Add the knobs that subdivide the degrees: experts, Ulysses, replicas, virtual stages."""
    if batch.experts and model.experts is not None:
        ranks = columns["tp"] * columns.get("cp", 1) * columns["dp"]
        ep = divisors(model.experts.experts)
        branch("ep", ep, ranks[:, None] % ep == 0)
        ranks = columns["tp"] * columns.get("cp", 1) * columns["dp"] // columns["ep"]
        etp = np.union1d(1, columns["tp"])
        branch("etp", etp, ((etp == 1) | (etp == columns["tp"][:, None])) & (ranks[:, None] % etp == 0))
    if batch.strategy in ("ulysses", "hybrid"):
        values = _divisors_of(columns["cp"])
        cp = columns["cp"][:, None]
        suits = (
            (values == cp)
            if batch.strategy == "ulysses"
            else (cp % values == 0) & (values > 1) & (values < cp)
        )
        branch("ulysses", values, suits)
    if batch.hybrid:
        holders = columns["dp"] * columns.get("cp", 1)
        values = _divisors_of(columns["dp"])
        branch("replicas", values, holders[:, None] % values == 0)
    if batch.vp is None:
        v = np.arange(1, model.layers + 1)
        branch(
            "vp",
            v,
            (v == 1)
            | _interleaves(model.layers, columns["pp"][:, None], v)
            | (v == dict(batch.locks).get("vp")),
        )
    else:
        columns["vp"] = np.full(len(columns["tp"]), batch.vp)


def _interleaves(layers: int, pp: Ints, vp: Ints) -> Bools:
    """Return whether vp chunks per device are worth trying: equal chunks where pp divides the layers.

    Where it does not, the largest chunk sets the pace, so of all vp with the same largest chunk only the smallest is tried.
    """
    largest = -(-layers // (pp * vp))
    suits: Bools = np.where(layers % pp == 0, layers % (pp * vp) == 0, vp == -(-layers // (pp * largest)))
    return suits & (pp > 1) & (pp * vp <= layers)


def _divisors_of(column: Ints) -> Ints:
    """Return the numbers that divide some value of a column, ascending."""
    return (
        np.unique(np.concatenate([divisors(int(n)) for n in np.unique(column)]))
        if len(column)
        else np.ones(1, np.int64)
    )


def _layer_rows(layouts: Plans, batch: CandidateBatch) -> tuple[Plans, Ints]:
    """Return the distinct rows of knobs that a layer's memory depends on, and the row of each layout."""
    # Experts are placed over all ranks of a stage; only where pp is numbered before dp does that depend on their degrees.
    axes = (
        layer_axes_of(batch)
        if batch.experts and layouts.order != "tp-cp-dp-pp"
        else STRATEGIES[batch.strategy].layer_axes
    )
    knobs = [knob for knob in (*axes, "ep", "etp", "ulysses", "mbs") if np.ndim(getattr(layouts, knob))]
    key = np.zeros(np.size(layouts.mbs), np.int64)
    for knob in knobs:
        values, which = np.unique(getattr(layouts, knob), return_inverse=True)
        key = key * len(values) + which
    _, first, layer_row = np.unique(key, return_index=True, return_inverse=True)
    columns = {knob: getattr(layouts, knob)[first] for knob in knobs}
    load = layouts.load[first] if np.ndim(layouts.load) else layouts.load  # type: ignore[index]
    return Plans(**columns, load=load, **batch.given), layer_row
