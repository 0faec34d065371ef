"""The search space of one batch of candidates, enumerated as columns (arXiv 2410.00273, search space).

What candidates share is stored once. A *layout* is the degrees, the knobs that subdivide them, and the
micro-batch; it alone decides memory. A *fill* is what a layout does not fix: the SUMMA panels and the
placement on the fast domains. A *candidate* is a layout and one of its fills. Rows of numbers say what
layouts and fills share:

- *degree*: the degrees without the micro-batch (tp, tp2 or cp, pp, dp). Fills depend on nothing else.
- *layer row*: what a layer's memory depends on (tp, tp2 or cp, ep, etp, ulysses, and the micro-batch),
  without pp and dp.
- *layer placement*: what a layer's time depends on in a fill (panels, and the placement of tp, tp2 or cp),
  without fast_pp and fast_dp, unless experts are placed over all ranks of a stage.

A *shard* is a layer row with a layer placement: all that a layer's time depends on. Thousands of candidates
share one.

The first layouts of ``1d`` for 4 layers on 4 GPUs in fast domains of 2, with a global batch of 2::

    layout   tp pp dp  mbs   degree  layer row   fills: fast_(tp pp dp)   layer placement
       0      1  2  2   1       0        0       (1 1 2)  (1 2 1)         0  0
       1      1  4  1   1       1        0       (1 2 1)                  0
       2      1  4  1   2       1        1       (1 2 1)                  0
       3      2  1  2   1       2        2       (1 1 2)  (2 1 1)         0  1
       4      2  2  1   1       3        2       (1 2 1)  (2 1 1)         0  1

These 5 layouts have 8 candidates, but only 4 shards: (layer row 0, layer placement 0), (1, 0), (2, 0) and (2,
1).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.columns import distinct, distinct_values, number_values
from traincast.core.knobs import ALLOWED, KNOBS, STRATEGIES, chunks
from traincast.core.plan import TAKEN, Plans
from traincast.core.quantities import Bools, Floats, Ints
from traincast.core.system import System
from traincast.model.model import Model
from traincast.planner.frameworks.spaces import CandidateBatch
from traincast.step.layer_cost import PartCosts
from traincast.step.memory import Footprint
from traincast.step.pipeline_stages import most_chunks, with_load
from traincast.step.placement import divisors, factorizations, placements_in_order
from traincast.step.validity import Rule, rules

NO_PLACEMENT: Final = "no placement fills the fast domains"
CACHED_SHAPES: Final = 256  # kept for the next machine: those of some searches
Progress = Callable[[int, int, int], None]  # steps done, steps in total, candidates of the last ones
_LISTENER: Final = ContextVar[Callable[[int, int], None] | None]("listener", default=None)
Table = TypeVar("Table", Footprint, PartCosts, Plans)  # a dataclass of columns
OF_EXPERTS: Final = ("ep", "etp", "load")
MIN_PANEL: Final = 512  # narrowest panel of a SUMMA product that is searched (arXiv 2410.00273, search space)


@dataclass(frozen=True, eq=False)
class Fills:
    """Panels and placements of each row of degrees, one row after the other."""

    first: Ints  # row r of the degrees has `count[r]` fills from `first[r]` on; shape (degrees,)
    count: Ints
    panels: Floats  # SUMMA panels, shape (fills,); 1 for other strategies
    fast: Floats  # members of each axis in one fast domain, shape (axes, fills)
    # Number of the part of a fill that a layer's time depends on: panels (as the row's k-th choice) and the
    # placement of the layer's axes; shape (fills,). Numbers are comparable only within one layer row.
    layer_placement: Ints

    def fills_of_rows(self, rows: Ints) -> Ints:
        """Return all fills of rows of degrees, one row after the other: shape (fills of these rows,)."""
        return ragged_ranges(self.first, self.count, rows)

    @cached_property
    def one_per_layer_placement(self) -> "Fills":
        """The first of the fills of a row that a layer's time does not tell apart, for every row."""
        row = np.repeat(np.arange(len(self.count)), self.count)
        key = row * (self.layer_placement.max(initial=0) + 1) + self.layer_placement
        _, kept = np.unique(key, return_index=True)
        count = np.bincount(row[kept], minlength=len(self.count))
        first = np.cumsum(count) - count
        placement = self.layer_placement[kept]
        return Fills(first, count, self.panels[kept], self.fast[:, kept], placement)


@dataclass(frozen=True, eq=False)
class Space:
    """All layouts of one batch on one or several numbers of GPUs, and their fills."""

    model: Model
    gbs: int  # [sequences]
    batch: CandidateBatch
    gpus: tuple[int, ...]
    layouts: Plans  # that meet every rule, in enumeration order: GPUs, tp, tp2 or cp, pp, mbs, all ascending
    starts: Ints  # first layout of each number of GPUs, and the end; shape (numbers of GPUs + 1,)
    layers: (
        Plans  # distinct (tp, tp2 or cp, ep, etp, ulysses, mbs): all that the memory of a layer depends on
    )
    layer_row: Ints  # row in `layers` of each layout, shape (layouts,)
    degree: Ints  # row in `fills` of each layout, shape (layouts,)
    fills: Fills
    rejected: dict[str, Ints]  # reason → candidates that break it first, for each number of GPUs

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

        Two arrays of shape (candidates,): the position of the candidate's layout among those given, and its
        fill.
        """
        count = self.counts[layouts]
        return np.repeat(np.arange(len(layouts)), count), self.fills.fills_of_rows(self.degree[layouts])

    def take(self, rows: Ints) -> "Space":
        """Return some of the layouts, ascending, as a space."""
        used, layer_row = number_values(self.layer_row[rows])
        return replace(
            self,
            layouts=self.layouts.take(rows),
            starts=np.searchsorted(rows, self.starts),
            layers=self.layers.take(used),
            layer_row=layer_row,
            degree=self.degree[rows],
        )

    def with_assumptions(self, assumed: Assumptions) -> "Space":
        """Return the space with the choices that its plans leave to the assumptions filled in."""
        layouts = self.layouts.ready(assumed)
        return (
            self
            if layouts is self.layouts
            else replace(self, layouts=layouts, layers=self.layers.ready(assumed))
        )

    def without_assumptions(self, plans: Plans) -> Plans:
        """Return candidates of a space `with_assumptions` as they were requested."""
        return plans.replace_columns(grad_dtype=self.batch.given.get("grad_dtype", "usual"))

    def plans(self, layout: Ints, fill: Ints) -> Plans:
        """Return candidates as columns of shape (candidates,), from the layout and the fill of each."""
        axes = STRATEGIES[self.strategy].axes
        fast = {f"fast_{axis}": self.fills.fast[i][fill] for i, axis in enumerate(axes)}
        plans = self.layouts.take(layout).replace_columns(**fast, panels=self.fills.panels[fill])
        return _overlap_tensor_parallel(plans, self.batch)


@dataclass(frozen=True, eq=False)
class Replicas:
    """Numbers of replicas of the sharded state (HSDP) that layouts can have."""

    kind: Ints  # row in `count` of each layout, shape (layouts,)
    sample: Ints  # a layout of each kind, shape (kinds,)
    count: Ints  # how many numbers each kind has
    values: Floats  # one kind after the other, ascending

    @classmethod
    def of_shape(cls, batch: CandidateBatch, plan: Plans, degree: Ints) -> "Replicas":
        """Return the divisors of dp, for layouts of some rows of degrees; a lock leaves one number."""
        knobs = (degree, *(column for column in (plan.ep, plan.etp) if np.ndim(column)))
        sample, kind = distinct(knobs, len(degree))
        dp = np.asarray(plan.dp)[sample].astype(np.int64)
        values = _divisors_of(dp)
        searched = values == dict(batch.locks).get("replicas", values)
        row, value = np.nonzero((dp[:, None] % values == 0) & searched)
        return cls(kind, sample, np.bincount(row, minlength=len(sample)), values[value].astype(float))

    def filter_by_rule(self, rule: Rule, model: Model, layouts: Plans, gbs: int) -> "Replicas":
        """Return the numbers with which layouts meet a rule."""
        row = np.repeat(np.arange(len(self.sample)), self.count)
        plans = replace(layouts.take(self.sample[row]), replicas=self.values)
        met = np.broadcast_to(rule.holds(model, plans, gbs), row.shape)
        return replace(self, count=np.bincount(row[met], minlength=len(self.sample)), values=self.values[met])

    def expand(self, layouts: Ints) -> tuple[Ints, Floats]:
        """Return the place among some layouts of each with every number it can have, and these numbers."""
        kind = self.kind[layouts]
        first = np.cumsum(self.count) - self.count
        return np.repeat(np.arange(len(kind)), self.count[kind]), self.values[
            ragged_ranges(first, self.count, kind)
        ]


class Rungs(NamedTuple):
    """A range of rows of each ladder, from `low` up to before `high`; empty where that is not above."""

    low: Ints  # shape (ladders,)
    high: Ints

    @classmethod
    def enclose(cls, several: Sequence["Rungs"]) -> "Rungs":
        """Return the smallest range of each ladder that has the rows of several."""
        high = np.array([np.where(some.low < some.high, some.high, 0) for some in several]).max(axis=0)
        low = np.array([np.where(some.low < some.high, some.low, high) for some in several]).min(axis=0)
        return cls(low, high)

    def contain(self, ladder: Ints, rung: Ints) -> Bools:
        """Return which rows lie in these ranges, given their ladders and their places there."""
        return (self.low[ladder] <= rung) & (rung < self.high[ladder])


@dataclass(frozen=True, eq=False)
class Outline:
    """All layouts of one batch, enumerated as ladders: rows that differ in the micro-batch alone, ascending.

    Layouts that differ in replicas of the sharded state alone are one row.
    """

    space: Space  # of the first row of each ladder, with one replica; layers and `rejected` are of all rows
    replicas: Replicas | None  # of the ladders; None where one replica is all there is
    batches: Floats  # micro-batches [sequences]
    kind: Ints  # row in `sizes` of each ladder, shape (ladders,)
    sizes: Bools  # which micro-batches ladders have, shape (kinds, micro-batches)
    layer_kind: Ints  # row in `layer_at` of each ladder, shape (ladders,)
    layer_at: Ints  # row in the space's layers of each micro-batch, shape (kinds of layers, micro-batches)

    @cached_property
    def size(self) -> Ints:
        """Number of rows of each ladder."""
        return np.asarray(self.sizes.sum(axis=1)[self.kind])

    @cached_property
    def first(self) -> Ints:
        """First row of each ladder, and the end."""
        return np.cumsum(np.append(0, self.size))

    @cached_property
    def choice(self) -> Ints:
        """Number of the micro-batch of each row of a ladder, shape (kinds, micro-batches)."""
        return np.argsort(~self.sizes, axis=1, kind="stable")

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.first[-1])

    @property
    def counts(self) -> Ints:
        """Number of candidates of a row of each ladder, an array of shape (ladders,)."""
        replicas = self.replicas
        return self.space.counts if replicas is None else self.space.counts * replicas.count[replicas.kind]

    @cached_property
    def every_layout(self) -> Space:
        """All layouts as a space."""
        return self.layouts(np.arange(self.rows))

    def of_batch(self, batch: CandidateBatch) -> Space:
        """Return all layouts with a batch's choices, the same space each time: the next machine finds it."""
        if batch not in self._of_batches:
            self._of_batches[batch] = of_batch(self.every_layout, batch)
        return self._of_batches[batch]

    @cached_property
    def _of_batches(self) -> dict[CandidateBatch, Space]:
        return {}

    def ladders(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the ladder of rows, and the place of each in it."""
        ladder = np.searchsorted(self.first, rows, side="right") - 1
        return ladder, rows - self.first[ladder]

    def times_smallest(self, rows: Ints) -> tuple[Ints, Floats]:
        """Return the ladder of rows, and the micro-batch of each over the smallest of its ladder."""
        ladder, rung = self.ladders(rows)
        kind = self.kind[ladder]
        return ladder, self.batches[self.choice[kind, rung]] / self.batches[self.choice[kind, 0]]

    def ladders_of_layouts(self, rows: Ints) -> Ints:
        """Return the ladder of each layout of some rows."""
        ladder, _ = self.ladders(rows)
        return ladder if self.replicas is None else ladder[self.replicas.expand(ladder)[0]]

    def rows_of(self, ladders: Ints) -> Ints:
        """Return the rows of ladders, one ladder after the other."""
        return ragged_ranges(self.first, self.size, ladders)

    def rows_between(self, rungs: Rungs, ladders: Ints) -> Ints:
        """Return the rows of ladders that lie in some ranges, one ladder after the other."""
        return ragged_ranges(self.first[:-1] + rungs.low, rungs.high - rungs.low, ladders)

    @cached_property
    def up_to(self) -> Ints:
        """How many of the first micro-batches ladders have, shape (kinds, micro-batches + 1)."""
        return np.cumsum(np.insert(self.sizes, 0, False, axis=1), axis=1)

    def places(self, rows: Ints) -> Ints:
        """Return the places of the layouts of some rows among all of them."""
        if self.replicas is None:
            return rows
        ladder, rung = self.ladders(rows)
        count = self.replicas.count[self.replicas.kind]
        before = np.cumsum(count * self.size) - count * self.size
        return ragged_ranges(before[ladder] + rung * count[ladder], count[ladder], np.arange(len(rows)))

    def rows_at(self, places: Ints) -> Ints:
        """Return the rows of the layouts at some places among all of them, ascending, each once."""
        if self.replicas is None:
            return distinct_values(places)
        count = self.replicas.count[self.replicas.kind]
        before = np.cumsum(count * self.size) - count * self.size
        ladder = np.searchsorted(before, places, side="right") - 1
        return distinct_values(self.first[ladder] + (places - before[ladder]) // count[ladder])

    def select_rows(self, rows: Ints) -> Space:
        """Return some rows, ascending, as a space that has the layers of all."""
        ladder, rung = self.ladders(rows)
        choice = self.choice[self.kind[ladder], rung]
        space = self.space
        return replace(
            space,
            layouts=space.layouts.take(ladder).replace_columns(mbs=self.batches[choice]),
            starts=np.searchsorted(ladder, space.starts),
            layer_row=self.layer_at[self.layer_kind[ladder], choice],
            degree=space.degree[ladder],
        )

    def layouts(self, rows: Ints) -> Space:
        """Return the layouts of some rows, ascending, as a space."""
        space = self.select_rows(rows)
        used, layer_row = number_values(space.layer_row)
        space = replace(space, layers=space.layers.take(used), layer_row=layer_row)
        if self.replicas is None:
            return space
        row, replicas = self.replicas.expand(self.ladders(rows)[0])
        return replace(
            space,
            layouts=space.layouts.take(row).replace_columns(replicas=replicas),
            starts=np.searchsorted(row, space.starts),
            layer_row=space.layer_row[row],
            degree=space.degree[row],
        )

    def layers_of(self, rungs: Rungs) -> Ints:
        """Return the rows of the space's layers that rows in some ranges may have, ascending."""
        some = np.flatnonzero(rungs.low < rungs.high)
        kind = self.kind[some]
        of_ladder = self.layer_kind[some]
        lowest = np.full(len(self.layer_at), len(self.batches))
        highest = np.full(len(self.layer_at), -1)
        np.minimum.at(lowest, of_ladder, self.choice[kind, rungs.low[some]])
        np.maximum.at(highest, of_ladder, self.choice[kind, rungs.high[some] - 1])
        choice = np.arange(len(self.batches))
        between = (lowest[:, None] <= choice) & (choice <= highest[:, None])
        return self.layer_at[between & (self.layer_at >= 0)]

    def split(self, first: Ints) -> "Outline":
        """Return the same rows as more ladders, cut at some rows, ascending; first rows are among these."""
        (ladder, rung), number = self.ladders(first), np.diff(first, append=self.rows)
        sample, kind = distinct((self.kind[ladder], rung, number), len(first))
        sizes = self.sizes[self.kind[ladder[sample]]]
        place = np.cumsum(sizes, axis=1) - 1 - rung[sample, None]
        replicas = self.replicas and replace(self.replicas, kind=self.replicas.kind[ladder])
        return replace(
            self,
            space=self.select_rows(first),
            replicas=replicas,
            kind=kind,
            sizes=sizes & (place >= 0) & (place < number[sample, None]),
            layer_kind=self.layer_kind[ladder],
        )


@dataclass(frozen=True, eq=False)
class Shards:
    """The distinct shards among the candidates of some layouts: all that a layer's cost depends on."""

    plans: Plans  # tp, tp2 or cp, mbs, panels and the placement of tp, tp2, cp
    row: Ints  # row in `plans`, shape (layer rows, layer placements); -1 where no candidate has both

    @classmethod
    def from_rows(cls, space: Space, layouts: Ints) -> "Shards":
        """Return the shards that candidates of some rows of `space.layouts` have."""
        fills = space.fills
        used = np.zeros(int(np.size(space.layers.mbs)) * len(fills.count), np.bool_)
        used[space.layer_row[layouts] * len(fills.count) + space.degree[layouts]] = True
        layer_row, degree = np.divmod(np.flatnonzero(used), len(fills.count))
        fill = fills.fills_of_rows(degree)
        table = np.full((np.size(space.layers.mbs), fills.layer_placement.max(initial=-1) + 1), -1)
        any_fill = np.repeat(layer_row, fills.count[degree]), fills.layer_placement[fill]
        table[any_fill] = fill  # any fill of the shard will do
        row, placement = np.nonzero(table >= 0)
        fill = table[row, placement]
        fast = {f"fast_{axis}": fills.fast[i][fill] for i, axis in enumerate(_layer_axes(space.batch))}
        table[row, placement] = np.arange(len(row))
        plans = space.layers.take(row).replace_columns(panels=fills.panels[fill], **fast)
        return cls(_overlap_tensor_parallel(plans, space.batch), table)

    @classmethod
    def together(cls, tables: Sequence["Shards"]) -> list["Shards"]:
        """Return the shards of several spaces with equal choices as rows of one table of distinct ones."""
        plans, places = distinct_rows([table.plans for table in tables])
        rows = (
            np.where(one.row < 0, -1, place[one.row]) if len(place) else one.row
            for one, place in zip(tables, places, strict=True)
        )
        return [cls(plans, row) for row in rows]


def _overlap_tensor_parallel(plans: Plans, batch: CandidateBatch) -> Plans:
    """Overlap tensor-parallel communication of groups inside a fast domain, where the batch does."""
    if not batch.overlaps_in_domain:
        return plans
    return plans.replace_columns(tp_overlap=(plans.tp > 1) & (plans.fast_tp == plans.tp))


@lru_cache(maxsize=16)
def enumerate_space(
    model: Model, gpus: tuple[int, ...], domain: int, gbs: int, batch: CandidateBatch
) -> Space:
    """Enumerate a batch on ascending numbers of GPUs in fast domains of some size (arXiv 2410.00273).

    A space has the layouts that meet every rule and can be placed, their fills, and how many candidates each
    rule rejects.
    """
    return of_batch(_enumerate(model, gpus, domain, gbs, batch.shape).every_layout, batch)


def progress_after(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Return the progress of a part of some work, which begins after so many steps of all."""
    if progress is None:
        return None
    return lambda done, _, candidates: progress(before + done, total, candidates)


@contextmanager
def report_progress_to(progress: Callable[[float], None]) -> Iterator[None]:
    """Report the share of evaluation that is done, above 0 and below 1, while a block computes answers.

    How many rounds follow is not known: each fills half of what is left.
    """
    left = 1.0

    def report(done: int, total: int) -> None:
        nonlocal left
        progress(1 - left * (1 - done / total / 2))
        left /= 2 if done == total else 1

    token = _LISTENER.set(report)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def report_round(done: int, total: int) -> None:
    """Tell who listens how many groups of a round of evaluation are done, and of how many."""
    if (report := _LISTENER.get()) is not None:
        report(done, total)


def of_batch(space: Space, batch: CandidateBatch) -> Space:
    """Return a space of the batch's shape with all of the batch's choices."""
    given = dict(batch.choices)
    layouts = space.layouts.replace_columns(**given)
    layers = space.layers.replace_columns(**given)
    return replace(space, batch=batch, layouts=layouts, layers=layers)


def enumerate_outlines(
    model: Model,
    gpus: tuple[int, ...],
    domain: int,
    gbs: int,
    batches: tuple[CandidateBatch, ...],
    progress: Progress | None = None,
) -> dict[CandidateBatch, Outline]:
    """Enumerate several batches, and return the outline of each shape."""
    outlines = {}
    shapes = dict.fromkeys(batch.shape for batch in batches)
    for shape in shapes:
        outlines[shape] = _enumerate(model, gpus, domain, gbs, shape)
        if progress is not None:
            progress(len(outlines), len(shapes), 0)
    return outlines


@lru_cache(maxsize=CACHED_SHAPES)
def _enumerate(model: Model, gpus: tuple[int, ...], domain: int, gbs: int, batch: CandidateBatch) -> Outline:
    """Enumerate all batches of a shape."""
    placing = tuple(choice for choice in batch.choices if choice[0] in ("order", "tp_overlap"))
    placed_alike = replace(batch, choices=placing, vp=1, experts=False, hybrid=False, uneven=False, rules=())
    degrees, job, options = _placed_degrees(model.hidden, gpus, domain, placed_alike)
    counts, wide, places, placeable = options
    plan, degree = _without_batches(model, batch, degrees)
    batches = divisors(gbs)
    dp = degrees[:, STRATEGIES[batch.strategy].axes.index("dp"), None]
    divides = gbs % (dp * batches) == 0
    divides[:, 0] |= ~divides.any(axis=1)  # one row stays, for the rule to reject
    divides &= batches == dict(batch.locks).get("mbs", batches)
    number: Ints = np.asarray(divides.sum(axis=1))[degree]  # of micro-batches of each ladder
    fill_count = wide.sum(axis=1) * placeable.sum(axis=1)
    each = np.maximum(fill_count, 1)[degree]  # candidates of a layout; one without fills counts once
    replicas = Replicas.of_shape(batch, plan, degree) if batch.hybrid else None
    candidates = number * (each if replicas is None else each * replicas.count[replicas.kind])
    # Not where the panels are locked to a number that a grid does not have.
    valid: Bools = np.asarray(wide.any(axis=1))[degree] & (number > 0)
    rejected: dict[str, Ints] = {}

    def reject(reason: str, broken: Bools, counts: Ints) -> None:
        if broken.any():
            counted = np.bincount(job[degree[broken]], counts[broken], len(gpus)).astype(np.int64)
            rejected[reason] = rejected.get(reason, 0) + counted

    def check(rule: Rule) -> None:
        nonlocal valid
        holds = rule.holds(model, plan, gbs)
        if not np.all(holds):
            reject(rule.broken, valid & ~np.asarray(holds), candidates)
            valid = valid & holds

    every = rules(batch.uneven, batch.rules)
    of_batches = next((i for i, rule in enumerate(every) if "mbs" in rule.about), len(every))
    for rule in every[:of_batches]:
        if replicas is None or "replicas" not in rule.about:
            check(rule)
            continue
        left = replicas.filter_by_rule(rule, model, plan, gbs)
        broken = (replicas.count - left.count)[replicas.kind]
        reject(rule.broken, valid & (broken > 0), number * each * broken)
        replicas = left
        candidates = number * each * left.count[left.kind]
        valid &= candidates > 0
    kept = np.flatnonzero(valid)
    plan = with_load(plan.take(kept), model)
    degree = degree[kept]
    valid = valid[kept]
    each = candidates[kept] // number[kept]
    candidates = candidates[kept]
    # ladders whose micro-batches meet the same rules
    about = {"dp", *(name for rule in every[of_batches:] if "mbs" in rule.about for name in rule.about)}
    columns = {knob: getattr(plan, knob) for knob in KNOBS if knob in about and np.ndim(getattr(plan, knob))}
    sample, kind = distinct(list(columns.values()), len(kept))
    sizes = divides[degree[sample]]
    row, choice = np.nonzero(sizes)
    knobs: dict[str, Any] = {knob: column[sample[row]] for knob, column in columns.items()}
    of_sizes = Plans(**knobs, mbs=batches[choice].astype(float), **batch.given)
    for rule in every[of_batches:]:
        if "mbs" not in rule.about:
            check(rule)
            continue
        holds = rule.holds(model, of_sizes, gbs)
        if not np.all(holds):
            broken = sizes[row, choice] & ~holds
            fewer = np.bincount(row[broken], minlength=len(sample))[kind]
            reject(rule.broken, valid & (fewer > 0), each * fewer)
            sizes[row, choice] &= holds
            candidates = each * sizes.sum(axis=1)[kind]
            valid &= candidates > 0
    placed = np.any(placeable, axis=1)[degree]
    reject(NO_PLACEMENT, valid & ~placed, candidates)
    last = np.flatnonzero(valid & placed)
    kind = kind[last]
    (used, degree) = number_values(degree[last])
    smallest = sizes.argmax(axis=1)[kind]
    plan = plan.take(last).replace_columns(mbs=batches[smallest].astype(float))
    layers, layer_kind, layer_at = _layers(plan, batch, batches, kind, sizes)
    space = Space(
        model=model,
        gbs=gbs,
        batch=batch,
        gpus=gpus,
        layouts=plan,
        starts=np.searchsorted(job[used][degree], np.arange(len(gpus) + 1)),
        layers=layers,
        layer_row=layer_at[layer_kind, smallest],
        degree=degree,
        fills=_fills(batch, degrees[used], counts[used], wide[used], places, placeable[used]),
        rejected=rejected,
    )
    of_ladders = None if replicas is None else replace(replicas, kind=replicas.kind[kept[last]])
    return Outline(space, of_ladders, batches.astype(float), kind, sizes, layer_kind, layer_at)


# Fills: panels and placements -------------------------------------------------------------------------------


@lru_cache(maxsize=CACHED_SHAPES)
def _placed_degrees(
    hidden: int, gpus: tuple[int, ...], domain: int, batch: CandidateBatch
) -> tuple[Ints, Ints, tuple[Ints, Bools, Ints, Bools]]:
    """Return the searched degrees, the place in `gpus` of the product of each, and their `_fill_options`.

    They are cached for shapes that differ in nothing that these depend on.
    """
    axes = STRATEGIES[batch.strategy].axes
    blocks = [factorizations(n, len(axes)) for n in gpus]
    degrees = np.concatenate(blocks)
    job = np.repeat(np.arange(len(gpus)), [len(block) for block in blocks])
    searched = np.ones(len(degrees), bool)
    for axis, lower in batch.above:
        searched &= degrees[:, axes.index(axis)] > lower
    for axis, value in batch.locks:
        searched &= degrees[:, axes.index(axis)] == value if axis in axes else True
    degrees = degrees[searched]
    job = job[searched]
    return degrees, job, _fill_options(hidden, domain, batch, degrees)


def panels(hidden: int, tp: Ints, tp2: Ints) -> tuple[Ints, Bools]:
    """Return the panel counts to try for each SUMMA grid, and which are valid: shape (rows, choices).

    s = max(tp, tp2) is doubled while panels stay wide. Where e/s < 512 already, only s is tried (arXiv
    2410.00273, search space).
    """
    s = np.maximum(tp, tp2)[:, None]
    count = s << np.arange(max(1, (hidden // MIN_PANEL).bit_length()))
    wide = (hidden % count == 0) & (hidden // count >= MIN_PANEL)
    return count, np.where(hidden / s < MIN_PANEL, count == s, wide)


def _fill_options(
    hidden: int, domain: int, batch: CandidateBatch, degrees: Ints
) -> tuple[Ints, Bools, Ints, Bools]:
    """Return the panel counts and placements to try, and which are valid for each row of degrees.

    A placement fills the fast domains exactly, each axis with a divisor of its degree. A job no larger than a
    domain lies in it as a whole: the last column of placements.
    """
    inside = degrees.prod(axis=1) <= domain
    if batch.ordered:
        order = batch.given.get("order", "tp-cp-dp-pp")
        places, placeable = placements_in_order(domain, STRATEGIES[batch.strategy].axes, order, degrees)
    else:
        places = factorizations(domain, degrees.shape[1])
        placeable = np.ones((len(degrees), len(places)), bool)
        for axis, column in enumerate(degrees.T):
            values, which = np.unique(column, return_inverse=True)
            placeable &= (values[:, None] % places[:, axis] == 0)[which]
        if batch.partial:
            places, placeable = _with_partial(domain, batch, degrees, places, placeable)
    placeable = np.column_stack((placeable & ~inside[:, None], inside))
    if batch.given.get("tp_overlap"):  # locked: overlap needs the group inside a fast domain
        placeable[:, :-1] &= places[None, :, 0] == degrees[:, :1]
    if "panels" in STRATEGIES[batch.strategy].knobs:
        counts, wide = panels(hidden, degrees[:, 0], degrees[:, 1])
        return counts, wide & (counts == dict(batch.locks).get("panels", counts)), places, placeable
    no_panels = np.ones((len(degrees), 1), np.int64)
    return no_panels, no_panels > 0, places, placeable


def _with_partial(
    domain: int, batch: CandidateBatch, degrees: Ints, places: Ints, placeable: Bools
) -> tuple[Ints, Bools]:
    """Add the placements in the order of ranks that use a part of every domain, in either order."""
    gpus, job = np.unique(degrees.prod(axis=1), return_inverse=True)
    used = np.array([max(n for n in divisors(size) if n <= domain) for size in gpus.tolist()], np.int64)[job]
    for order in ALLOWED["order"]:
        more, suits = placements_in_order(used, STRATEGIES[batch.strategy].axes, order, degrees)
        placement, known = np.nonzero((more[:, None] == places).all(axis=2))
        placeable[:, known] |= suits[:, placement]
        new = np.setdiff1d(np.arange(len(more)), placement)
        places = np.vstack((places, more[new]))
        placeable = np.column_stack((placeable, suits[:, new]))
    return places, placeable


def _fills(
    batch: CandidateBatch, degrees: Ints, counts: Ints, wide: Bools, places: Ints, placeable: Bools
) -> Fills:
    """List the valid panels and placements of each row of degrees."""
    row, panel, place = np.nonzero(wide[:, :, None] & placeable[:, None, :])
    # The last column of `placeable` is the whole job in one domain: every member of each group is in it.
    fast = np.where(place == len(places), degrees[row].T, np.vstack((places, places[:1]))[place].T)
    layer_placement = panel
    members = distinct_values(fast)
    for i in range(len(_layer_axes(batch))):
        layer_placement = layer_placement * len(members) + np.searchsorted(members, fast[i])
    if batch.experts:
        _, layer_placement = np.unique(layer_placement, return_inverse=True)
    count = np.bincount(row, minlength=len(degrees))
    panel_counts = counts[row, panel].astype(float)
    return Fills(np.cumsum(count) - count, count, panel_counts, fast.astype(float), layer_placement)


def ragged_ranges(first: Ints, count: Ints, rows: Ints) -> Ints:
    """Return the items of lists, one list after the other; list r has `count[r]` from `first[r]` on."""
    number = count[rows]
    ends = np.cumsum(number)
    return np.repeat(first[rows] - (ends - number), number) + np.arange(ends[-1] if len(ends) else 0)


def _layer_axes(batch: CandidateBatch) -> tuple[str, ...]:
    """Return the axes whose placement a layer's time depends on: the first of the strategy's axes."""
    strategy = STRATEGIES[batch.strategy]
    return strategy.axes if batch.experts else strategy.layer_axes


# Layouts: degrees and the knobs that subdivide them ---------------------------------------------------------


def _without_batches(model: Model, batch: CandidateBatch, degrees: Ints) -> tuple[Plans, Ints]:
    """Return every layout of rows of degrees but for micro-batches, valid or not, and the row of each."""
    axes = STRATEGIES[batch.strategy].axes
    locks = dict(batch.locks)
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
    knobs: dict[str, Any] = {name: column.astype(float) for name, column in columns.items()}
    return Plans(**knobs, **batch.given), row


def _branch_inside(
    model: Model, batch: CandidateBatch, columns: dict[str, Ints], branch: Callable[[str, Ints, Bools], None]
) -> None:
    """Add the knobs that subdivide the degrees: experts, Ulysses, virtual stages."""
    if batch.experts and model.experts is not None:
        ranks = columns["tp"] * columns.get("cp", 1) * columns["dp"]
        ep = divisors(model.experts.experts)
        branch("ep", ep, ranks[:, None] % ep == 0)
        ranks = columns["tp"] * columns.get("cp", 1) * columns["dp"] // columns["ep"]
        etp = np.union1d(1, columns["tp"])
        branch("etp", etp, ((etp == 1) | (etp == columns["tp"][:, None])) & (ranks[:, None] % etp == 0))
    if "ulysses" in STRATEGIES[batch.strategy].knobs:
        values = _divisors_of(columns["cp"])
        cp = columns["cp"][:, None]
        hybrid = (cp % values == 0) & (values > 1) & (values < cp)
        branch("ulysses", values, values == cp if batch.given["cp_kind"] == "ulysses" else hybrid)
    if batch.vp is None:
        layout = len(chunks(batch.given.get("layout", "")))
        v = np.arange(1, (layout or most_chunks(model)) + 1)
        pp = distinct_values(columns["pp"])
        divides = pp[:, None] * v == layout if layout else _interleaves(model, pp[:, None], v)
        tried = divides[np.searchsorted(pp, columns["pp"])]
        branch("vp", v, tried | (v == 1) | (v == dict(batch.locks).get("vp")))
    else:
        columns["vp"] = np.full(len(columns["tp"]), batch.vp)


def _interleaves(model: Model, pp: Ints, vp: Ints) -> Bools:
    """Return whether vp chunks per device are worth trying: equal chunks where pp divides the layers.

    Where it does not, the largest chunk sets the pace, so of all vp with the same largest chunk only the
    smallest is tried.
    """
    layers = model.layers
    largest = -(-layers // (pp * vp))
    suits: Bools = np.where(layers % pp == 0, layers % (pp * vp) == 0, vp == -(-layers // (pp * largest)))
    return suits & (pp > 1) & (pp * vp <= most_chunks(model))


def _divisors_of(column: Ints) -> Ints:
    """Return the numbers that divide some value of a column, ascending."""
    if not len(column):
        return np.ones(1, np.int64)
    return distinct_values(np.concatenate([divisors(int(n)) for n in distinct_values(column)]))


def distinct_rows(tables: Sequence[Plans]) -> tuple[Plans, list[Ints]]:
    """Return the distinct rows of tables of plans with equal choices, and the place of every table's rows."""
    sizes = [np.size(table.mbs) for table in tables]
    together = stack_columns(tables, sizes)
    columns = [column for name in TAKEN if np.ndim(column := getattr(together, name))]
    first, kind = distinct(columns, sum(sizes))
    return together.take(first), np.split(kind, np.cumsum(sizes)[:-1])


def by_domain(system: System, gpus: Sequence[int], batch: CandidateBatch) -> dict[int, tuple[int, ...]]:
    """Group numbers of GPUs by how many GPUs of a fast domain they use."""
    used = {n: system.domain(n) if batch.ordered else system.fast_domain for n in gpus}
    return {domain: tuple(n for n in used if used[n] == domain) for domain in used.values()}


def distinct_layers(tables: Sequence[Plans]) -> tuple[Plans, list[Ints]]:
    """Return the distinct layers of tables, `experts_apart`, and the place of each row of each table."""
    layers, rows = distinct_rows(tables)
    layers, places = experts_apart(layers)
    return layers, [places[of_table] for of_table in rows]


def experts_apart(layers: Plans) -> tuple[Plans, Ints]:
    """Return layers as columns over all but the degrees of experts, and the place of each layer.

    What depends on these degrees has shape (rows, layers), with a row for each that a layer can have, so that
    the operations outside of experts are computed once for all of them. Places count row by row.
    """
    columns = {name: column for name in TAKEN if np.ndim(column := getattr(layers, name))}
    of_experts = {name: columns.pop(name) for name in OF_EXPERTS if name in columns}
    number = np.size(layers.mbs)
    if not of_experts or not number:
        return layers, np.arange(number)
    first, kind = distinct(list(columns.values()), number)
    by_kind = np.argsort(kind, kind="stable")
    row = np.empty(number, np.int64)
    row[by_kind] = np.arange(number) - np.searchsorted(kind[by_kind], kind[by_kind])
    layer = np.tile(first, (int(row.max()) + 1, 1))  # of each place; where there is none, some layer
    layer[row, kind] = np.arange(number)
    every = {name: column[layer] for name, column in of_experts.items()}
    return layers.take(first).replace_columns(**every), row * len(first) + kind


def stack_columns(tables: Sequence[Table], sizes: Sequence[int]) -> Table:
    """Return the columns of dataclasses one after the other; what is no number is that of the first."""
    if len(tables) == 1:
        return tables[0]
    columns: dict[str, Any] = {}
    for name in (field.name for field in fields(tables[0])):
        values = [getattr(table, name) for table in tables]
        kinds = set(map(type, values))
        if kinds == {np.ndarray}:
            columns[name] = np.concatenate(values)
        elif np.ndarray in kinds or (kinds == {float} and len(set(values)) > 1):
            pairs = zip(values, sizes, strict=True)
            columns[name] = np.concatenate([np.full(n, v) if np.ndim(v) == 0 else v for v, n in pairs])
    return replace(tables[0], **columns)


def _layer_knobs(layouts: Plans, batch: CandidateBatch) -> list[str]:
    """Return the knobs but for the micro-batch that a layer's memory depends on, where they are columns."""
    # Experts are placed over all ranks of a stage; only where pp is numbered before dp does that depend on
    # their degrees.
    by_degrees = batch.experts and layouts.order != "tp-cp-dp-pp"
    axes = _layer_axes(batch) if by_degrees else STRATEGIES[batch.strategy].layer_axes
    return [knob for knob in (*axes, "ep", "etp", "ulysses") if np.ndim(getattr(layouts, knob))]


def _layers(
    layouts: Plans, batch: CandidateBatch, batches: Ints, kind: Ints, sizes: Bools
) -> tuple[Plans, Ints, Ints]:
    """Return the distinct layers of ladders, the kind of each ladder's, and the rows of a kind's.

    `sizes` has the micro-batches, among `batches`, of each kind of ladders.
    """
    knobs = _layer_knobs(layouts, batch)
    sample, layer_kind = distinct([getattr(layouts, knob) for knob in knobs], len(kind))
    of_layer, of_ladder = np.divmod(distinct_values(layer_kind * len(sizes) + kind), max(len(sizes), 1))
    there = np.logical_or.reduceat(sizes[of_ladder], np.searchsorted(of_layer, np.arange(len(sample))))
    row, choice = np.nonzero(there)
    columns = {knob: getattr(layouts, knob)[sample[row]] for knob in knobs}
    load = layouts.load[sample[row]] if np.ndim(layouts.load) else layouts.load  # type: ignore[index]
    layers = Plans(**columns, mbs=batches[choice].astype(float), load=load, **layouts.choices())
    return layers, layer_kind, np.where(there, np.cumsum(there).reshape(there.shape) - 1, -1)
