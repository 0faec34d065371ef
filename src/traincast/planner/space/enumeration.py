"""Enumeration of the layouts of a batch of candidates and their fills (arXiv 2410.00273, search space).

`search_space` says what layouts and fills are. Rows of degrees come first, and the panels and placements of
each. Knobs that subdivide the degrees make rows of layouts of them, and each row, with all micro-batches, is
a ladder. Rules reject rows, or some micro-batches of rows; candidates count for the first rule they break.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from traincast.core import (
    ALLOWED_VALUES,
    KNOBS,
    STRATEGIES,
    Bools,
    Ints,
    Plans,
    System,
    chunks,
    distinct,
    distinct_values,
    number_values,
)
from traincast.model import Model
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.space.search_space import (
    Fills,
    Outline,
    Progress,
    Replicas,
    Space,
    by_domain,
    divisors_of_values,
    layer_axes,
    of_batch,
)
from traincast.step import Rule, divisors, factorizations, placements_in_order, rules, with_load

NO_PLACEMENT: Final = "no placement fills the fast domains"
CACHED_SHAPES: Final = 256  # kept for the next machine: those of some searches
MIN_PANEL: Final = 512  # narrowest panel of a SUMMA product that is searched (arXiv 2410.00273, search space)


@lru_cache(maxsize=16)
def enumerate_space(
    model: Model, gpus: tuple[int, ...], domain: int, gbs: int, batch: CandidateBatch
) -> Space:
    """Enumerate a batch on ascending numbers of GPUs in fast domains of some size (arXiv 2410.00273).

    A space has the layouts that meet every rule and can be placed, their fills, and how many candidates each
    rule rejects.
    """
    return of_batch(_enumerate(model, gpus, domain, gbs, batch.shape).every_layout, batch)


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
    rows = _Rows(model, gpus, domain, gbs, batch)
    every = rules(batch.uneven, batch.rules)
    first_of_batches = next((i for i, rule in enumerate(every) if "mbs" in rule.about), len(every))
    for rule in every[:first_of_batches]:
        rows.apply(rule)
    rows.drop_rejected()
    rows.list_batches([rule for rule in every[first_of_batches:] if "mbs" in rule.about])
    for rule in every[first_of_batches:]:
        rows.apply(rule)
    rows.reject_unplaced()
    return rows.outline()


class _Degrees(NamedTuple):
    """Rows of degrees, and the panels and placements that each can have."""

    values: Ints  # shape (rows, axes)
    job: Ints  # place of the product of each row among the numbers of GPUs
    panels: Ints  # SUMMA panels to try, shape (rows, choices)
    may_have_panels: Bools  # which of these are valid
    placements: Ints  # members of each axis in one fast domain, shape (placements, axes)
    may_have_placement: Bools  # which are valid for each row; the last is the whole job in one domain

    @property
    def fills(self) -> Ints:
        """Number of fills of each row."""
        return np.asarray(self.may_have_panels.sum(axis=1) * self.may_have_placement.sum(axis=1))


class _Batches(NamedTuple):
    """Micro-batches of ladders, of which those of one kind meet the same rules."""

    kind: Ints  # of each ladder
    sizes: Bools  # which of all micro-batches a kind has, shape (kinds, micro-batches)
    row: Ints  # kind of each micro-batch that some kind had before any rule
    choice: Ints  # number of the micro-batch of each
    plans: Plans  # what the rules are about, of each


class _Rows:
    """Layouts of a shape but for micro-batches, from which one rule after the other takes what breaks it.

    Rows that are not `valid` are rejected.
    """

    def __init__(self, model: Model, gpus: tuple[int, ...], domain: int, gbs: int, batch: CandidateBatch):
        self._model = model
        self._gpus = gpus
        self._gbs = gbs
        self._batch = batch
        placing = tuple(choice for choice in batch.choices if choice[0] in ("order", "tp_overlap"))
        placed_alike = replace(
            batch, choices=placing, vp=1, experts=False, hybrid=False, uneven=False, rules=()
        )
        self._degrees = _placed_degrees(model.hidden, gpus, domain, placed_alike)
        self._plan, self._degree = _without_batches(model, batch, self._degrees.values)
        self._microbatches = divisors(gbs)
        self._divides = self._divides_batch()
        self._batches: _Batches | None = None
        # a layout without fills counts as one candidate
        self._fills_of_each: Ints = np.maximum(self._degrees.fills, 1)[self._degree]
        self._replicas = Replicas.of_shape(batch, self._plan, self._degree) if batch.hybrid else None
        # not where the panels are locked to a number that a grid does not have
        has_panels: Bools = np.asarray(self._degrees.may_have_panels.any(axis=1))[self._degree]
        self._valid = has_panels & (self._number > 0)
        self._rejected: dict[str, Ints] = {}

    def _divides_batch(self) -> Bools:
        """Return which micro-batches divide the global batch of each row of degrees."""
        axis = STRATEGIES[self._batch.strategy].axes.index("dp")
        dp = self._degrees.values[:, axis, None]
        divides = self._gbs % (dp * self._microbatches) == 0
        divides[:, 0] |= ~divides.any(axis=1)  # one row stays, for the rule to reject
        divides &= self._microbatches == dict(self._batch.locks).get("mbs", self._microbatches)
        return np.asarray(divides)

    @property
    def _number(self) -> Ints:
        """Number of micro-batches of each row."""
        if self._batches is None:
            return np.asarray(self._divides.sum(axis=1))[self._degree]
        return np.asarray(self._batches.sizes.sum(axis=1))[self._batches.kind]

    @property
    def _each(self) -> Ints:
        """Number of candidates of each row with one micro-batch."""
        if self._replicas is None:
            return self._fills_of_each
        return self._fills_of_each * self._replicas.count[self._replicas.kind]

    def _reject(self, reason: str, broken: Bools, candidates: Ints) -> None:
        """Count candidates of rows that something rejects."""
        if broken.any():
            job = self._degrees.job[self._degree[broken]]
            counted = np.bincount(job, candidates[broken], len(self._gpus)).astype(np.int64)
            self._rejected[reason] = self._rejected.get(reason, 0) + counted

    def apply(self, rule: Rule) -> None:
        """Reject what breaks a rule: some micro-batches or replicas of rows, or whole rows."""
        if self._batches is not None and "mbs" in rule.about:
            self._apply_to_batches(rule, self._batches)
        elif self._batches is None and self._replicas is not None and "replicas" in rule.about:
            self._apply_to_replicas(rule, self._replicas)
        else:
            holds = rule.holds(self._model, self._plan, self._gbs)
            if not np.all(holds):
                self._reject(rule.broken, self._valid & ~np.asarray(holds), self._number * self._each)
                self._valid = self._valid & holds

    def _apply_to_replicas(self, rule: Rule, replicas: Replicas) -> None:
        """Reject numbers of replicas that break a rule."""
        left = replicas.filter_by_rule(rule, self._model, self._plan, self._gbs)
        fewer = (replicas.count - left.count)[replicas.kind]
        self._reject(rule.broken, self._valid & (fewer > 0), self._number * self._fills_of_each * fewer)
        self._replicas = left
        self._valid &= self._each > 0

    def _apply_to_batches(self, rule: Rule, batches: _Batches) -> None:
        """Reject micro-batches that break a rule."""
        holds = rule.holds(self._model, batches.plans, self._gbs)
        if np.all(holds):
            return
        sizes = batches.sizes
        broken = sizes[batches.row, batches.choice] & ~np.asarray(holds)
        fewer = np.bincount(batches.row[broken], minlength=len(sizes))[batches.kind]
        self._reject(rule.broken, self._valid & (fewer > 0), self._each * fewer)
        sizes[batches.row, batches.choice] &= holds
        self._valid &= self._number > 0

    def reject_unplaced(self) -> None:
        """Reject layouts that no placement suits."""
        placed = np.any(self._degrees.may_have_placement, axis=1)[self._degree]
        self._reject(NO_PLACEMENT, self._valid & ~placed, self._number * self._each)
        self._valid &= placed

    def drop_rejected(self) -> None:
        """Leave out the rows that are rejected, and add to the others the load of their experts."""
        kept = np.flatnonzero(self._valid)
        self._plan = with_load(self._plan.take(kept), self._model)
        self._degree = self._degree[kept]
        self._fills_of_each = self._fills_of_each[kept]
        self._valid = self._valid[kept]
        if self._replicas is not None:
            self._replicas = replace(self._replicas, kind=self._replicas.kind[kept])

    def list_batches(self, of_batches: Sequence[Rule]) -> None:
        """List the micro-batches of ladders that are alike in what some rules are about."""
        about = {"dp", *(name for rule in of_batches for name in rule.about)}
        columns = {
            knob: column for knob in KNOBS if knob in about and np.ndim(column := getattr(self._plan, knob))
        }
        sample, kind = distinct(list(columns.values()), len(self._degree))
        sizes = self._divides[self._degree[sample]]
        row, choice = np.nonzero(sizes)
        knobs: dict[str, Any] = {knob: column[sample[row]] for knob, column in columns.items()}
        plans = Plans(**knobs, mbs=self._microbatches[choice].astype(float), **self._batch.given)
        self._batches = _Batches(kind, sizes, row, choice, plans)

    def outline(self) -> Outline:
        """Return the rows that are left as ladders."""
        assert self._batches is not None
        left = np.flatnonzero(self._valid)
        kind = self._batches.kind[left]
        sizes = self._batches.sizes
        numbered, degree = number_values(self._degree[left])
        used: Ints = np.asarray(numbered, np.int64)
        smallest = sizes.argmax(axis=1)[kind]
        microbatches = self._microbatches
        plan = self._plan.take(left).replace_columns(mbs=microbatches[smallest].astype(float))
        layers, layer_kind, layer_at = _layers(plan, self._batch, microbatches, kind, sizes)
        space = Space(
            model=self._model,
            gbs=self._gbs,
            batch=self._batch,
            gpus=self._gpus,
            layouts=plan,
            starts=np.searchsorted(self._degrees.job[used][degree], np.arange(len(self._gpus) + 1)),
            layers=layers,
            layer_row=layer_at[layer_kind, smallest],
            degree=degree,
            fills=_list_fills(self._batch, self._degrees, used),
            rejected=self._rejected,
        )
        replicas = self._replicas and replace(self._replicas, kind=self._replicas.kind[left])
        return Outline(space, replicas, microbatches.astype(float), kind, sizes, layer_kind, layer_at)


# Fills: panels and placements -------------------------------------------------------------------------------


@lru_cache(maxsize=CACHED_SHAPES)
def _placed_degrees(hidden: int, gpus: tuple[int, ...], domain: int, batch: CandidateBatch) -> _Degrees:
    """Return the searched degrees with the panels and placements of each.

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
    counts, wide = _panel_options(hidden, batch, degrees)
    places, placeable = _placement_options(domain, batch, degrees)
    return _Degrees(degrees, job[searched], counts, wide, places, placeable)


def panels(hidden: int, tp: Ints, tp2: Ints) -> tuple[Ints, Bools]:
    """Return the panel counts to try for each SUMMA grid, and which are valid: shape (rows, choices).

    s = max(tp, tp2) is doubled while panels stay wide. Where e/s < 512 already, only s is tried (arXiv
    2410.00273, search space).
    """
    s = np.maximum(tp, tp2)[:, None]
    count = s << np.arange(max(1, (hidden // MIN_PANEL).bit_length()))
    wide = (hidden % count == 0) & (hidden // count >= MIN_PANEL)
    return count, np.where(hidden / s < MIN_PANEL, count == s, wide)


def _panel_options(hidden: int, batch: CandidateBatch, degrees: Ints) -> tuple[Ints, Bools]:
    """Return the panel counts to try, and which are valid for each row of degrees."""
    if "panels" not in STRATEGIES[batch.strategy].knobs:
        no_panels = np.ones((len(degrees), 1), np.int64)
        return no_panels, no_panels > 0
    counts, wide = panels(hidden, degrees[:, 0], degrees[:, 1])
    return counts, wide & (counts == dict(batch.locks).get("panels", counts))


def _placement_options(domain: int, batch: CandidateBatch, degrees: Ints) -> tuple[Ints, Bools]:
    """Return the placements to try, and which are valid for each row of degrees.

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
    return places, placeable


def _with_partial(
    domain: int, batch: CandidateBatch, degrees: Ints, places: Ints, placeable: Bools
) -> tuple[Ints, Bools]:
    """Add the placements in the order of ranks that use a part of every domain, in either order."""
    gpus, job = np.unique(degrees.prod(axis=1), return_inverse=True)
    used = np.array([max(n for n in divisors(size) if n <= domain) for size in gpus.tolist()], np.int64)[job]
    for order in ALLOWED_VALUES["order"]:
        more, suits = placements_in_order(used, STRATEGIES[batch.strategy].axes, order, degrees)
        placement, known = np.nonzero((more[:, None] == places).all(axis=2))
        placeable[:, known] |= suits[:, placement]
        new = np.setdiff1d(np.arange(len(more)), placement)
        places = np.vstack((places, more[new]))
        placeable = np.column_stack((placeable, suits[:, new]))
    return places, placeable


def _list_fills(batch: CandidateBatch, degrees: _Degrees, rows: Ints) -> Fills:
    """List the valid panels and placements of some rows of degrees."""
    wide = degrees.may_have_panels[rows]
    placeable = degrees.may_have_placement[rows]
    places = degrees.placements
    row, panel, place = np.nonzero(wide[:, :, None] & placeable[:, None, :])
    # The last column of `placeable` is the whole job in one domain: every member of each group is in it.
    fast = np.where(
        place == len(places), degrees.values[rows[row]].T, np.vstack((places, places[:1]))[place].T
    )
    layer_placement = panel
    members = distinct_values(fast)
    for i in range(len(layer_axes(batch))):
        layer_placement = layer_placement * len(members) + np.searchsorted(members, fast[i])
    if batch.experts:
        _, layer_placement = np.unique(layer_placement, return_inverse=True)
    count = np.bincount(row, minlength=len(rows))
    panel_counts = degrees.panels[rows[row], panel].astype(float)
    return Fills(np.cumsum(count) - count, count, panel_counts, fast.astype(float), layer_placement)


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
        values = divisors_of_values(columns["cp"])
        cp = columns["cp"][:, None]
        hybrid = (cp % values == 0) & (values > 1) & (values < cp)
        branch("ulysses", values, values == cp if batch.given["cp_kind"] == "ulysses" else hybrid)
    if batch.vp is None:
        layout = len(chunks(batch.given.get("layout", "")))
        v = np.arange(1, (layout or model.most_chunks) + 1)
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
    return suits & (pp > 1) & (pp * vp <= model.most_chunks)


def _layer_knobs(layouts: Plans, batch: CandidateBatch) -> list[str]:
    """Return the knobs but for the micro-batch that a layer's memory depends on, where they are columns."""
    # Experts are placed over all ranks of a stage; only where stages are numbered before replicas does that
    # depend on their degrees.
    by_degrees = batch.experts and layouts.stages_before_replicas
    axes = layer_axes(batch) if by_degrees else STRATEGIES[batch.strategy].layer_axes
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


def space_of(model: Model, gbs: int, system: System, batch: CandidateBatch, gpus: int) -> Space:
    """Enumerate a batch on a number of GPUs, with a global batch [sequences]."""
    (domain,) = by_domain(system, (gpus,), batch)
    return enumerate_space(model, (gpus,), domain, gbs, batch)
