"""The layouts of a search that can matter to a question about times, found without a look at most others.

A layout has a lower bound on its time that does not depend on placement, ZeRO, replicas, offload or
recomputation: the passes of its layers, each collective placed as well as any placement allows, and the
bubble. In large searches ladders of layouts that differ in the micro-batch alone are bounded first. Layouts
up to a horizon of these bounds get one for each batch, with what it recomputes and what data-parallel traffic
costs even where it is hidden. Those still within the horizon are evaluated (memory, then times). An answer
that no time beyond the horizon can change is that of all layouts; else the horizon is moved.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np

from traincast.core import (
    CHOICES,
    DEFAULTS,
    Bools,
    Column,
    Floats,
    Ints,
    Plans,
    distinct_values,
    nonzero,
    number_values,
)
from traincast.operations import Counted, parts, total
from traincast.planner.frameworks.candidate_batch import ORDER, CandidateBatch
from traincast.planner.space.evaluation import (
    AROUND_LAYERS,
    CANDIDATES_PER_BLOCK,
    Evaluation,
    evaluate_all,
    groups,
    take_costs,
)
from traincast.planner.space.fits_in_memory import Searched
from traincast.planner.space.group_places import near_members
from traincast.planner.space.least_times import LeastTimes
from traincast.planner.space.search_space import (
    Outline,
    Progress,
    Rungs,
    Space,
    distinct_layers,
    of_batch,
    report_round,
)
from traincast.step import Costs, LeastTraffic, PartCosts, Stages, least_step_seconds, stages
from traincast.times import AnyPlacement, LeastTimer, OperationPasses, PassSeconds, exposed_share

FIRST_SHARE: Final = 1 / 8  # of the rows of outlines that is evaluated first,
FIRST_ROWS: Final = 1 << 11, 1 << 12  # but at least and at most so many rows,
ROWS_OF_BATCH: Final = 12  # or so many for each batch, of which every round has a fixed cost
COARSE: Final = 8  # times as many rows have bounds of their own, the others those of ladders;
COARSE_ROWS: Final = 1 << 17  # but no more rows than these, or than are evaluated
FEW: Final = 1 / 8  # of the rows of a first round: a round of no more is joined with the next
MORE_ROWS: Final = 16  # times as many in each round, at most
MOST_LAYOUTS: Final = 1 << 40  # of a batch
LAYER_CHOICES: Final = tuple(
    name for name in CHOICES if name not in (*AROUND_LAYERS, "order") or name == "tp_overlap"
)

_Answer = TypeVar("_Answer")
_Shape = tuple[CandidateBatch, bool]  # shape of batches, and whether they overlap exchanges with experts


@dataclass(eq=False)
class AlikeBatches:
    """Batches of one shape whose layers have the same operations, recomputation aside."""

    outline: Outline
    batches: dict[int, dict[str, list[int]]]  # by the stage of ZeRO, and by recomputation
    given: dict[str, Any]  # choices of one of them
    recomputes: list[str]  # without recomputation first
    # least ones of distinct layers, the last infinite, with all passes as the first; shape (recomputes,
    # layers + 1)
    costs: Costs
    weights: Costs  # the weights of these layers alone, shape (layers + 1,)
    place: Ints  # of each of the outline's layers among these layers, -1 where it is not wanted
    places: Ints  # the same of each kind of layers and micro-batch, as the outline's `layer_at`
    bounds: Floats | None = None  # of the outline's rows without recomputation, NaN where not known [s]

    @property
    def indices(self) -> list[int]:
        """Numbers of the batches."""
        return [index for of in self.batches.values() for batches in of.values() for index in batches]


class TimeBounds:
    """Bounds on the times of the layouts of a search.

    The bounds do not depend on how much memory the machine has. Rows of the outlines that `kept` leaves out,
    by the number of the batch, have none.
    """

    def __init__(self, searched: Searched, kept: Mapping[int, Rungs], progress: Progress | None = None):
        self.searched = searched
        self.assumed = searched.assumed
        self._kept = kept
        host = replace(self.assumed.host, microbatch_seconds=0.0)  # which larger micro-batches pay less often
        self._without_waits = replace(self.assumed, host=host)
        self._domain = searched.system.fast_domain
        space = next(iter(searched.outlines.values())).space
        self._model = space.model
        self._near = near_members(searched.system, space.gpus[0])
        self._has_ring = any(batch.strategy == "ring" for batch in searched.batches)
        self.alike = list(self._group_batches(progress))

    def _group_batches(self, progress: Progress | None) -> Iterator[AlikeBatches]:
        """Yield all batches, those alike together."""
        together: dict[Any, dict[_Shape, list[int]]] = {}
        for index in self._kept:
            batch = self.searched.batches[index]
            given = {**DEFAULTS, **batch.given, "cp_kind": self._cp_kind(batch)}
            key = batch.overlaps_in_domain, *(given[name] for name in LAYER_CHOICES)
            shape = batch.shape, given["ep_overlap"]
            together.setdefault(key, {}).setdefault(shape, []).append(index)
        done = 0
        for same in together.values():
            yield from self._bound_layers(same)
            done += sum(map(len, same.values()))
            if progress is not None:
                progress(done, len(self._kept), 0)

    def _cp_kind(self, batch: CandidateBatch) -> str:
        """Return how layers exchange keys and values: one context rank has nothing to, as well in a ring."""
        return "ring" if batch.strategy == "1d" and self._has_ring else str(batch.given["cp_kind"])

    def _bound_layers(self, same: Mapping[_Shape, Sequence[int]]) -> Iterator[AlikeBatches]:
        """Yield batches of each shape whose layers have the same operations."""
        outlines = [self.searched.ladders[shape] for shape, _ in same]
        used = [
            outline.layers_of(Rungs.enclose([self._kept[index] for index in of_shape]))
            for outline, of_shape in zip(outlines, same.values(), strict=True)
        ]
        if not any(map(len, used)):
            return
        tables = [
            self._layers(outline.space.layers.take(rows), self.searched.batches[of_shape[0]])
            for outline, rows, of_shape in zip(outlines, used, same.values(), strict=True)
        ]
        layers, places = distinct_layers(tables)
        recomputes = ["none", *(_recompute(self.searched.batches[i]) for i in chain(*same.values()))]
        recomputes = list(dict.fromkeys(recomputes))
        costs, weights = self._least_costs(
            layers, recomputes, dict.fromkeys(overlaps for _, overlaps in same)
        )
        shapes = zip(outlines, same.items(), used, places, strict=True)
        for outline, ((_, overlaps), of_shape), rows, place in shapes:
            batches: dict[int, dict[str, list[int]]] = {}
            for index in of_shape:
                batch = self.searched.batches[index]
                zero = batch.given.get("zero", DEFAULTS["zero"])
                batches.setdefault(zero, {}).setdefault(_recompute(batch), []).append(index)
            given = self.searched.batches[of_shape[0]].given
            of_layers = np.full(np.size(outline.space.layers.mbs), -1)
            of_layers[rows] = place
            of_kinds = np.where(outline.layer_at < 0, -1, of_layers[outline.layer_at])
            least = costs[overlaps]
            yield AlikeBatches(outline, batches, given, recomputes, least, weights, of_layers, of_kinds)

    def _least_costs(
        self, layers: Plans, recomputes: Sequence[str], overlapping: Iterable[bool]
    ) -> tuple[dict[bool, Costs], Costs]:
        """Return the time of both passes of layers on one machine as that of the first, and their weights.

        It is the least of any placement. Costs are by whether exchanges with experts are overlapped; their
        columns, with what bounds need, have shape (recomputes, places + 1) (`experts_apart`).
        """
        shape = np.broadcast(layers.mbs, layers.ep, layers.etp).shape
        size = max(CANDIDATES_PER_BLOCK // math.prod(shape[:-1]), 1)
        found: dict[bool, dict[str, Floats]] = {overlaps: {} for overlaps in overlapping}
        # weights, those of experts, the time of their gradients, and that of the host to issue these, by part
        own: dict[str, Floats] = {}
        for low in range(0, shape[-1], size):
            block = ..., slice(low, low + size)
            of_block = layers.take(block).replace_columns(
                ep_overlap=True
            )  # exchanges with experts count in full
            timer = LeastTimer(of_block, self.searched.system, self.assumed, self._near)
            counted = Counted()
            once = dict[str, tuple[list[OperationPasses], PassSeconds]]()
            for row, recompute in enumerate(recomputes):
                timer = timer.for_plans(of_block.replace_columns(recompute=recompute))
                for part, operations in parts(self._model, timer.plan, self.assumed, counted).items():
                    if part not in once:
                        passes = timer.time_passes(operations)
                        once[part] = passes, timer.both_passes(operations, passes)
                        dense, of_experts, weight_pass, issued = own.setdefault(part, np.zeros((4, *shape)))
                        dense[block] = total(op.weights for op in operations if not op.experts)
                        of_experts[block] = total(op.weights for op in operations if op.experts)
                        weight_pass[block] = total(of.weight for of in passes)
                        issued[block] = total(of.weight_dispatch for of in passes)
                    passes, both = once[part]
                    again = timer.recomputation(operations, passes)
                    for overlaps, of_parts in found.items():
                        if part not in of_parts:
                            of_parts[part] = np.zeros((2, len(recomputes), *shape))
                        seconds, dispatch = of_parts[part][:, row]
                        seconds[block] = self._exposed_seconds(both, again, timer.plan, overlaps)
                        dispatch[block] = both.dispatch + again.dispatch / of_block.recompute_every
        places = math.prod(shape)
        of_layers = {part: of.reshape(4, places) for part, of in own.items()}
        costs: dict[bool, Costs] = {
            overlaps: {
                part: _both_passes(of.reshape(2, -1, places), of_layers[part][2:])
                for part, of in of_parts.items()
            }
            for overlaps, of_parts in found.items()
        }
        return costs, {part: _weights(of[:2]) for part, of in of_layers.items()}

    def _exposed_seconds(self, both: PassSeconds, again: PassSeconds, plans: Plans, overlaps: bool) -> Column:
        """Return the time of passes and recomputation but for exchanges that other work hides [s]."""
        sent = both.exchange + again.exchange
        share: Column = 0.0
        if nonzero(sent) and overlaps:
            share = exposed_share(sent, both.work + again.work, self.assumed)
        elif nonzero(sent):
            share = self.assumed.overlap.ep_exposed
        recomputed = (again.work + share * again.exchange) / plans.recompute_every
        return both.work + share * both.exchange + recomputed

    def _layers(self, layers: Plans, batch: CandidateBatch) -> Plans:
        """Return layers with the choices of a batch, overlapped wherever they may be."""
        given = batch.given | {"cp_kind": self._cp_kind(batch), "order": ORDER, "pp": 1.0, "dp": 1.0}
        layers = replace(layers, **given).ready(self.assumed)
        if batch.overlaps_in_domain:
            return replace(layers, tp_overlap=(layers.tp > 1) & (layers.tp <= self._domain))
        return layers

    def of_ladders(self, alike: AlikeBatches, ladders: Ints, rungs: Rungs) -> Floats:
        """Return bounds of ladders of an outline that hold for all of their rungs and any recomputation [s].

        Passes take at least as long per sequence as with the best micro-batch up to the largest, and the
        bubble is at least as long as with the smallest.
        """
        outline = alike.outline
        space = outline.space
        (used, kind) = number_values(outline.layer_kind[ladders])
        plans = space.layouts.replace_columns(**alike.given).take(ladders)
        largest = outline.choice[outline.kind[ladders], rungs.high[ladders] - 1]
        up_to = slice(largest.max(initial=-1) + 1)
        places = alike.places[used, up_to]
        batches = outline.batches[up_to]

        def least(column: Column) -> Column:
            if not isinstance(column, np.ndarray):
                return column
            of_kinds = np.minimum.accumulate(column[0, places] / batches, axis=1)
            of_first: Column = plans.mbs * of_kinds[kind, largest]
            return of_first

        costs = dict[str, PartCosts]()
        for part, cost in alike.costs.items():
            both = least(cost.forward)
            issued = least(cost.dispatch)
            costs[part] = replace(cost, forward=both, weight=both, dispatch=issued, dispatch_weight=issued)
        devices = stages(space.model, plans)
        bounds = least_step_seconds(costs, plans, devices, space.gbs, self._without_waits)
        return np.broadcast_to(bounds, len(ladders))

    def of_rows(self, alike: AlikeBatches, rows: Ints) -> Floats:
        """Return the bounds of rows of an outline whatever is recomputed and however weights are sharded [s].

        They are computed once.
        """
        if alike.bounds is None:
            alike.bounds = np.full(alike.outline.rows, np.nan)
        unknown = rows[np.isnan(alike.bounds[rows])]
        for block in _blocks(unknown):
            (alike.bounds[block],), *_ = self._bound_recomputations(alike, block, ("none",))
        return np.asarray(alike.bounds[rows])

    def of_batches(self, alike: AlikeBatches, rows: Ints) -> Iterator[tuple[Ints, Sequence[int], Floats]]:
        """Yield some of the rows of an outline, batches, and the bounds of these rows of each of them [s]."""
        recomputes = tuple(dict.fromkeys(chain(*alike.batches.values())))
        gbs = alike.outline.space.gbs
        replicas = alike.outline.replicas
        for block in _blocks(rows):
            bounds, plans, devices, places = self._bound_recomputations(alike, block, recomputes)
            traffic = None
            for zero, batches in alike.batches.items():
                contended: Column = 0.0
                plans = plans.replace_columns(zero=zero)
                if zero and replicas is None:  # as many replicas as ranks would have no such traffic
                    traffic = traffic or self._traffic(alike, plans, devices, places)
                    contended = traffic.contention_time(plans, plans.microbatches(gbs), self.assumed)
                for recompute, indices in batches.items():
                    yield block, indices, bounds[recomputes.index(recompute)] + contended

    def _bound_recomputations(
        self, alike: AlikeBatches, rows: Ints, recomputes: Sequence[str]
    ) -> tuple[Floats, Plans, Stages, Ints]:
        """Return bounds of rows with recomputations, shape (these, rows) [s], with plans, stages, layers."""
        space = alike.outline.select_rows(rows)
        plans = space.layouts.replace_columns(**alike.given)
        places = alike.place[space.layer_row]
        of_recomputes = np.array([[alike.recomputes.index(name)] for name in recomputes])
        costs = take_costs(alike.costs, (of_recomputes, places))
        devices = stages(space.model, plans)
        bounds = least_step_seconds(costs, plans, devices, space.gbs, self.assumed)
        return np.broadcast_to(bounds, (len(recomputes), len(rows))), plans, devices, places

    def _traffic(self, alike: AlikeBatches, plans: Plans, devices: Stages, places: Ints) -> LeastTraffic:
        """Return the least traffic of plans with the weights of some layers."""
        weights = take_costs(alike.weights, places)
        placement = AnyPlacement(plans, self._near)
        return LeastTraffic.for_devices(weights, devices, placement, self.searched.system, self.assumed)


def _blocks(rows: Ints) -> Iterator[Ints]:
    """Yield rows, as many at once as fit the processor's cache."""
    for low in range(0, len(rows), CANDIDATES_PER_BLOCK):
        yield rows[low : low + CANDIDATES_PER_BLOCK]


@dataclass(eq=False)
class _Wanted:
    """Ladders of an outline that batches which are alike want, and the rows of those opened so far."""

    alike: AlikeBatches
    rungs: Rungs  # that are wanted of each ladder
    ladders: Ints  # not opened, ascending
    of_ladders: Floats  # bounds of these [s]
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of opened ladders, ascending
    of_rows: Floats = field(default_factory=lambda: np.zeros(0))  # bounds of these without recomputation [s]

    def known_bounds(self) -> tuple[Floats, Ints]:
        """Return the bounds, those of ladders first, and the number of rows of each [s]."""
        number = (self.rungs.high - self.rungs.low)[self.ladders]
        return (
            np.concatenate((self.of_ladders, self.of_rows)),
            np.concatenate((number, np.ones_like(self.rows))),
        )

    def open(self, which: Bools, bounds: TimeBounds) -> None:
        """Bound rows of some of the ladders that are not opened one by one."""
        rows = self.alike.outline.rows_between(self.rungs, self.ladders[which])
        self.rows = np.sort(np.concatenate((self.rows, rows)))
        self.of_rows = bounds.of_rows(self.alike, self.rows)
        self.ladders, self.of_ladders = self.ladders[~which], self.of_ladders[~which]


class Evaluated:
    """Layouts of a search that were evaluated, each once, whichever question needs it.

    Parameters
    ----------
    bounds : Bounds
        Of the search's layouts.
    capacity, above : float
        Layouts count that need at most `capacity` and more than `above` [byte]; the machine's capacity if
        left out.
    """

    def __init__(self, bounds: TimeBounds, capacity: float | None = None, above: float = 0.0):
        self.bounds = bounds
        self._above = above
        system = bounds.searched.system
        self._system = system if capacity is None else system.with_visible(capacity)
        self._rows: dict[int, Ints] = {}  # of each batch's outline that were evaluated, ascending
        self.times = LeastTimes.from_outcomes(())

    def add(self, rows: Mapping[int, Ints]) -> None:
        """Evaluate rows, ascending, of the outlines of batches."""
        searched = self.bounds.searched
        opened = list[Space]()
        places = list[Ints]()
        shared = dict[Any, Space]()
        rows_known = dict[int, Ints]()
        for index in sorted(rows):
            batch = searched.batches[index]
            known = self._rows.get(index, np.zeros(0, np.int64))
            new = np.setdiff1d(rows[index], known, assume_unique=True)
            if not len(new):
                continue
            rows_known[index] = distinct_values(np.concatenate((known, new)))
            key = batch.shape, new.tobytes()  # batches with the same rows share a table of shards
            if key not in shared:
                shared[key] = searched.outlines[batch.shape].layouts(new)
            opened.append(of_batch(shared[key], batch))
            places.append(index * MOST_LAYOUTS + searched.outlines[batch.shape].places(new))
        if not opened:
            return
        evaluations: dict[int, Evaluation] = {}
        together = list(groups(opened))
        for number, group in enumerate(together, 1):
            chosen = tuple(opened[i] for i in group)
            of_group = evaluate_all(chosen, self._system, searched.assumptions, self._above, keep=False)
            evaluations |= zip(group, of_group, strict=True)
            report_round(number, len(together))
        outcomes = [evaluations[i].outcomes()[0] for i in range(len(opened))]
        of_fitting = [place[outcome.fitting] for place, outcome in zip(places, outcomes, strict=True)]
        self.times = self.times.join(LeastTimes.from_outcomes(outcomes, places=of_fitting))
        self._rows |= rows_known  # only now: a listener may raise before


class Shortlist:
    """Layouts of a search, lowest bounds first.

    Parameters
    ----------
    evaluated : Evaluated
        Layouts of the search evaluated so far, to which more are added.
    kept : mapping of int to Rungs
        By the number of a batch, the rows of its outline that are wanted.
    foresight : float
        Share of the fastest time known that is added to it, for questions that follow: as far a horizon moves
        at least.
    """

    def __init__(
        self,
        evaluated: Evaluated,
        kept: Mapping[int, Rungs],
        foresight: float = 0.0,
    ):
        self._evaluated = evaluated
        self._kept = kept
        self._foresight = foresight
        bounds = evaluated.bounds
        rungs = [Rungs.enclose([kept[index] for index in alike.indices]) for alike in bounds.alike]
        ladders = [np.flatnonzero(of.low < of.high) for of in rungs]
        every = sum(int((of.high - of.low).sum()) for of in rungs)
        fewest, most = FIRST_ROWS
        self._first = int(np.clip(FIRST_SHARE * every, fewest, max(most, ROWS_OF_BATCH * len(kept))))
        self._wanted, coarse = list[_Wanted](), every > COARSE * self._first
        for alike, of, wanted in zip(bounds.alike, rungs, ladders, strict=True):
            least = bounds.of_ladders(alike, wanted, of) if coarse else np.zeros(len(wanted))
            self._wanted.append(_Wanted(alike, of, wanted, least))
            if not coarse:
                self._wanted[-1].open(np.ones(len(wanted), np.bool_), bounds)
        self.horizon = 0.0 if self._wanted else np.inf  # layouts that may be faster are evaluated [s]

    def answer(self, question: Callable[[LeastTimes], _Answer]) -> tuple[LeastTimes, _Answer]:
        """Return the answer to a question, and the times whose rows it names."""
        while True:
            times = self._evaluated.times
            rows = question(times)
            if times.reached <= self.horizon:
                return times, rows
            self._evaluate(times.reached)

    def _evaluate(self, needed: float) -> None:
        """Evaluate all layouts that may take at most so long, or the nearest [s]."""
        times = self._evaluated.times
        opened = dict[int, Ints]()
        if self._foresight and times.timed.any():
            needed = max(needed, (1 + self._foresight) * float(times.seconds[times.timed].min()))
        horizon = self.horizon
        few = FEW * min(self._first, FIRST_ROWS[0])
        # counted without recomputation, of which few rows may fit
        while horizon < needed and sum(map(len, opened.values())) <= few:
            horizon = max(self.horizon, self._nearest(self._first, needed))
            for wanted in self._wanted:
                opened |= self._rows_within(wanted, horizon)
            self._first *= MORE_ROWS
        self._evaluated.add(opened)
        self.horizon = horizon

    def _nearest(self, number: int, needed: float) -> float:
        """Return what is needed, or the lowest bound but so many where that is less [s]."""
        needed = self._lowest(max(number, min(COARSE * number, COARSE_ROWS)), needed)
        for wanted in self._wanted:
            near = wanted.of_ladders <= needed
            if near.any():
                wanted.open(near, self._evaluated.bounds)
        return self._lowest(number, needed)

    def _lowest(self, number: int, needed: float) -> float:
        """Return `_nearest` by bounds as far as they are known."""
        known = zip(*(wanted.known_bounds() for wanted in self._wanted), strict=True)
        bounds, rows = map(np.concatenate, known)
        near = np.flatnonzero(bounds <= needed)
        if len(near) > number:  # as many rows at least as these ladders and rows
            near = near[bounds[near] <= np.partition(bounds[near], number)[number]]
        order = near[np.argsort(bounds[near], kind="stable")]
        before = np.cumsum(np.append(0, rows[order]))
        last = int(np.searchsorted(before, number, side="right")) - 1
        return float(bounds[order[last]]) if last < len(order) else needed

    def _rows_within(self, wanted: _Wanted, horizon: float) -> dict[int, Ints]:
        """Return the rows of an outline up to the horizon, by the number of the batch."""
        alike = wanted.alike
        opened = dict[int, list[Ints]]()
        within = wanted.of_rows <= horizon
        for rows, indices, bounds in self._evaluated.bounds.of_batches(alike, wanted.rows[within]):
            ladder, rung = alike.outline.ladders(rows)
            near = bounds <= horizon
            for index in indices if near.any() else ():
                if np.any(mine := near & self._kept[index].contain(ladder, rung)):
                    opened.setdefault(index, []).append(rows[mine])
        return {index: np.concatenate(rows) for index, rows in opened.items()}


def _recompute(batch: CandidateBatch) -> str:
    """Return what a batch recomputes."""
    return str(batch.given.get("recompute", DEFAULTS["recompute"]))


def _both_passes(columns: Floats, gradients: Floats) -> PartCosts:
    """Return the time of all passes as the first, that of the gradients of weights in it, and the host's."""
    infinite = np.full((columns.shape[1], 1), np.inf)
    seconds, dispatch = (np.hstack((column, infinite)) if column.any() else 0.0 for column in columns)
    weight, issued = (
        np.broadcast_to(np.append(column, 0.0), (columns.shape[1], len(column) + 1)) if column.any() else 0.0
        for column in gradients
    )
    return PartCosts(seconds, 0.0, weight, 0.0, 0.0, 0.0, 0.0, dispatch=dispatch, dispatch_weight=issued)


def _weights(columns: Floats) -> PartCosts:
    """Return the weights of layers and of their experts as costs, those of no layer at the end."""
    weights, of_experts = (np.append(column, 0.0) if column.any() else 0.0 for column in columns)
    return PartCosts(0.0, 0.0, 0.0, weights, of_experts, 0.0, 0.0)
