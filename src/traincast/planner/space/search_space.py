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
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from traincast.core import (
    STRATEGIES,
    TAKEN_COLUMNS,
    Assumptions,
    Bools,
    Floats,
    Ints,
    Plans,
    System,
    distinct,
    distinct_values,
    number_values,
)
from traincast.model import Model
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.step import Footprint, PartCosts, Rule, divisors

Progress = Callable[[int, int, int], None]  # steps done, steps in total, candidates of the last ones
_LISTENER: Final = ContextVar[Callable[[int, int], None] | None]("listener", default=None)
Table = TypeVar("Table", Footprint, PartCosts, Plans)  # a dataclass of columns
OF_EXPERTS: Final = ("ep", "etp", "load")


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
        values = divisors_of_values(dp)
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
        fast = {f"fast_{axis}": fills.fast[i][fill] for i, axis in enumerate(layer_axes(space.batch))}
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


def ragged_ranges(first: Ints, count: Ints, rows: Ints) -> Ints:
    """Return the items of lists, one list after the other; list r has `count[r]` from `first[r]` on."""
    number = count[rows]
    ends = np.cumsum(number)
    return np.repeat(first[rows] - (ends - number), number) + np.arange(ends[-1] if len(ends) else 0)


def layer_axes(batch: CandidateBatch) -> tuple[str, ...]:
    """Return the axes whose placement a layer's time depends on: the first of the strategy's axes."""
    strategy = STRATEGIES[batch.strategy]
    return strategy.axes if batch.experts else strategy.layer_axes


def divisors_of_values(column: Ints) -> Ints:
    """Return the numbers that divide some value of a column, ascending."""
    if not len(column):
        return np.ones(1, np.int64)
    return distinct_values(np.concatenate([divisors(int(n)) for n in distinct_values(column)]))


def distinct_rows(tables: Sequence[Plans]) -> tuple[Plans, list[Ints]]:
    """Return the distinct rows of tables of plans with equal choices, and the place of every table's rows."""
    sizes = [np.size(table.mbs) for table in tables]
    together = stack_columns(tables, sizes)
    columns = [column for name in TAKEN_COLUMNS if np.ndim(column := getattr(together, name))]
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
    columns = {name: column for name in TAKEN_COLUMNS if np.ndim(column := getattr(layers, name))}
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
