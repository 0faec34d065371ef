"""Why the best plan is the best: what binds it, how the alternatives differ, what does not fit and what would make it fit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from traincast.core.plan import AXES, Plan, Plans
from traincast.core.plan_choices import STRATEGIES
from traincast.core.quantities import Column
from traincast.core.system import System
from traincast.core.units import gib, many, percent, signed
from traincast.planner.evaluation import CAPACITY, StrategyResult, evaluate, fastest, rejections
from traincast.planner.framework_spaces import Framework
from traincast.planner.held_knobs import HeldKnob, held_knobs
from traincast.planner.layout_memory import layout_memory
from traincast.planner.misfit import against, compare, label, short_of, slower
from traincast.planner.search_space import Space, enumerate_space
from traincast.step.estimate import Answer, Estimate, estimate
from traincast.step.placement import divisors
from traincast.step.validity import rules

Name = TypeVar("Name")
Row: TypeAlias = tuple[float, float, int, int]  # two figures, and the outcome and the layout they are of
FAR: Final = 2.0  # plans slower by more than this share are not told one by one
MORE: Final = 1.1  # a hardware figure is tried 10 % better
NEAREST: Final = 64  # numbers of GPUs tried on either side
LARGEST_JOB: Final = 1 << 17  # GPUs up to which a size that fits is looked for


@dataclass(frozen=True)
class Degree:
    """The best plan of one tensor-parallel degree (tp tp2 cp), or the least memory any of its plans needs [byte]."""

    degree: int
    best: Answer | None
    least_memory: float


@dataclass(frozen=True)
class Explanation:
    """The answer to "why this plan?".

    Parameters
    ----------
    outcomes : tuple of StrategyResult
        What was searched, one per batch of candidates.
    plans : list of (Plan, Estimate)
        The best plans, best first.
    sensitivity : dict of str to float
        Hardware figure → relative change of the best plan's step time when the figure is 10 % better.
    degrees : list of Degree
        Every tensor-parallel degree that has candidates.
    excluded : dict of str to list of int
        Reason → tp degrees that divide the GPUs but have no candidate for it.
    miss : (Plan, Estimate) or None
        The plan that comes nearest to fitting without fitting.
    faster : (Plan, Estimate) or None
        The plan faster than the best that comes nearest to fitting without fitting.
    unlimited : (Plan, Estimate) or None
        The best plan if memory were unlimited, where that is another one.
    fits_from : (int, float) or None
        Where nothing fits: the fewest GPUs, doubling, on which something does, and the least memory there [byte].
    possible : list of int
        Where no plan meets the rules: the nearest numbers of GPUs, below and above, on which one does.
    held : list of HeldKnob
        Knobs that the search holds constant, and what another value would change: of the best plan, or else of the nearest miss.
    """

    outcomes: tuple[StrategyResult, ...]
    plans: list[Answer]
    sensitivity: dict[str, float]
    degrees: list[Degree]
    excluded: dict[str, list[int]]
    miss: Answer | None
    faster: Answer | None
    unlimited: Answer | None
    fits_from: tuple[int, float] | None
    possible: list[int]
    held: list[HeldKnob]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The explanation as sentences."""
        if not self.plans:
            return self._nothing_fits()
        return [
            *(*self._binding(), *self.held_constant(), *self._runner_up()),
            *(*self._degrees(), *self._excluded(), *self._misses()),
        ]

    def held_constant(self) -> list[str]:
        """A line on the knobs that were not searched; none where all were."""
        return [f"Held constant, not searched: {', '.join(map(str, self.held))}."] if self.held else []

    def _binding(self) -> list[str]:
        _, best = self.plans[0]
        shares = sorted(((float(value / best.step_seconds), name) for name, value in best.breakdown.items()), reverse=True)
        spent = ", ".join(f"{percent(share)} {label(name)}" for share, name in shares if share > 5e-4)
        gains = sorted(self.sensitivity.items(), key=lambda item: item[1])
        moved = [f"{name} {signed(change)}" for name, change in gains if change < -5e-4]
        return [
            f"Spends its step on {spent}.",
            f"10% better hardware would change its step time by: {', '.join(moved) or 'nothing'}.",
        ]

    def _runner_up(self) -> list[str]:
        best = self.plans[0]
        other = next((one for one in self.plans[1:] if one[0].columns().numbers() != best[0].columns().numbers()), None)
        if other is None:  # 1-D, and context with a degree of 1, are the same plan
            return []
        plan, causes = compare(other, best)
        return [f"Runner-up: {plan}", f"    {causes}"]

    def _degrees(self) -> list[str]:
        best, capacity = self.plans[0], _capacity(self.outcomes)
        lines = []
        slow = [row.degree for row in self.degrees if row.best is not None and slower(row.best, best) > FAR]
        for row in self.degrees:
            if row.degree in slow:
                continue
            if row.best is None:
                lines.append(f"  {row.degree:>4}: does not fit, needs {gib(row.least_memory)} of {gib(capacity)}")
            elif row.best[0] == best[0]:
                lines.append(f"  {row.degree:>4}: the best plan")
            else:
                plan, causes = compare(row.best, best)
                lines += [f"  {row.degree:>4}: {plan}", f"        {causes}"]
        if slow:
            lines.append(f"  {', '.join(map(str, slow))}: over {1 + FAR:.0f} times as slow")
        return ["Best plan of each tensor-parallel degree (tp × tp2 × cp):", *lines]

    def _excluded(self) -> list[str]:
        return [f"Not tried: tp = {', '.join(map(str, degrees))}: {reason}." for reason, degrees in self.excluded.items()]

    def _misses(self) -> list[str]:
        told = {"Nearest to fitting that would be faster": self.faster, "Fastest if memory were unlimited": self.unlimited}
        lines, seen = [], set()
        for title, pair in told.items():
            if pair is not None and pair[0] not in seen:
                seen.add(pair[0])
                lines += [f"{title}: {against(pair[1], self.plans[0][1])}", f"    {pair[0]}", f"    {short_of(pair[1])}"]
        return lines or ["Memory excludes nothing." if self.miss is None else "Memory excludes no plan that would be faster."]

    def _nothing_fits(self) -> list[str]:
        one, gpus = self.outcomes[0].evaluation, self.outcomes[0].gpus
        head = f"{one.model.title} on {many(gpus, 'GPU')} of {one.system.name}"
        if self.miss is None:
            reasons = [f"    {count:,}: {reason}" for reason, count in rejections(self.outcomes).items() if count]
            held = self._held()
            with_them = f" with {', '.join(f'{name} = {value}' for name, value in held.items())}" if held else ""
            lines = [f"{head}: no plan uses exactly so many GPUs{with_them}.", *self._locked_out(held)]
            lines += ["Rejected:", *reasons] if reasons else []
            if self.possible:
                lines.append(f"Nearest numbers of GPUs that have candidates: {', '.join(f'{gpus:,}' for gpus in self.possible)}.")
            return lines
        plan, est = self.miss
        candidates = sum(outcome.candidates for outcome in self.outcomes)
        lines = [
            f"{head}: none of {many(candidates, 'candidate')} fits in memory.",
            "Nearest miss:",
            f"    {plan}",
            f"    {short_of(est)}",
        ]
        if self.fits_from is not None:
            enough, least = self.fits_from
            lines.append(f"    Or {enough:,} GPUs instead of {gpus:,}: the leanest plan then needs {gib(least)}.")
        return [*lines, *self.held_constant()]

    def _held(self) -> dict[str, int]:
        """Knobs that every batch of candidates holds at one value."""
        first, *others = (dict(outcome.evaluation.space.batch.locks) for outcome in self.outcomes)
        return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}

    def _locked_out(self, held: Mapping[str, int]) -> list[str]:
        """Why no plan has knobs at these values, where the numbers say it."""
        one, gpus = self.outcomes[0].evaluation, self.outcomes[0].gpus
        degrees = {axis: held[axis] for axis in AXES if axis in held}
        product, experts = math.prod(degrees.values()), one.model.experts
        lines = [f"{axis} = {value} does not divide {many(gpus, 'GPU')}" for axis, value in degrees.items() if gpus % value]
        if not lines and gpus % product:
            lines.append(f"{' × '.join(degrees)} = {product} does not divide {many(gpus, 'GPU')}")
        if one.gbs % held.get("mbs", 1):
            lines.append(f"mbs = {held['mbs']} does not divide the global batch of {many(one.gbs, 'sequence')}")
        if experts is not None and experts.experts % held.get("ep", 1):
            lines.append(f"ep = {held['ep']} does not divide the {experts.experts} experts")
        lines += [f"tp = {held['tp']}: {reason}" for reason, tried in self.excluded.items() if held.get("tp") in tried]
        return [f"    {line}" for line in lines]

    def to_dict(self) -> dict[str, Any]:
        """The same facts for machines."""

        def plain(pair: Answer | None) -> dict[str, Any] | None:
            return None if pair is None else pair[1].summary()

        return {
            "sensitivity_10_percent_better": self.sensitivity,
            "degrees": [
                {"degree": row.degree, "best": plain(row.best), "least_memory_bytes": row.least_memory} for row in self.degrees
            ],
            "excluded_tp": self.excluded,
            "nearest_miss": plain(self.miss),
            "nearest_faster_miss": plain(self.faster),
            "unlimited_memory": plain(self.unlimited),
            "possible_gpus": self.possible,
            "held": [knob.to_dict() for knob in self.held],
            "fits_from": None if self.fits_from is None else {"gpus": self.fits_from[0], "memory_bytes": self.fits_from[1]},
            "text": self.lines(),
        }


def explain(
    outcomes: tuple[StrategyResult, ...], plans: list[Answer], framework: Framework, locks: Mapping[str, Any]
) -> Explanation:
    """Gather what there is to say about a search: its outcomes, one per batch of candidates, its best plans, what was searched."""
    misses = _misses(outcomes, plans[0][1].step_seconds if plans else 0.0)
    moved = sensitivity(plans[0][1]) if plans else {}
    fits_from = _fits_from(outcomes) if misses["miss"] is not None and not plans else None
    possible = [] if any(outcome.candidates for outcome in outcomes) else _possible(outcomes)
    degrees, excluded = _by_degree(outcomes), _excluded(outcomes)
    answer = plans[0] if plans else misses["miss"]
    held = [] if answer is None else held_knobs(framework, locks, answer)
    return Explanation(outcomes, plans, moved, degrees, excluded, fits_from=fits_from, possible=possible, held=held, **misses)


def _capacity(outcomes: tuple[StrategyResult, ...]) -> float:
    """Memory of the accelerator [byte]."""
    return float(outcomes[0].system.accelerator.hbm_bytes)


def sensitivity(est: Estimate) -> dict[str, float]:
    """Relative change of the step time when each hardware figure is 10 % better, the plan as it is."""
    fast, *_, slow = est.system.tiers
    names = {
        "accelerator.matrix_flops": "matrix FLOP/s",
        "accelerator.vector_flops": "vector FLOP/s",
        "accelerator.hbm_bandwidth": "HBM bandwidth",
        "network.0.bandwidth": f"fast network ({fast.name})",
        f"network.{len(est.system.tiers) - 1}.bandwidth": f"slow network ({slow.name})",
    }
    figures = est.system.figures()
    better = {name: est.system.with_figures({path: figures[path] * MORE}) for path, name in names.items()}
    again = {name: estimate(est.model, other, est.plan, est.gbs, est.assumptions) for name, other in better.items()}
    return {name: float(other.step_seconds / est.step_seconds) - 1 for name, other in again.items()}


def _by_degree(outcomes: tuple[StrategyResult, ...]) -> list[Degree]:
    """The best plan of each tensor-parallel degree."""
    rows: dict[int, list[Row]] = {}  # degree → time, memory, outcome, layout of the best there
    least: dict[int, float] = {}
    for which, outcome in enumerate(outcomes):
        layouts = outcome.evaluation.space.layouts
        degree = np.asarray(layouts.tp * layouts.context)
        held = outcome.evaluation.memory[outcome.layouts]
        for value in map(int, np.unique(degree[outcome.layouts])):
            least[value] = held[degree[outcome.layouts] == value].min(initial=least.get(value, np.inf))
        order = np.lexsort((outcome.fitting, outcome.memory, outcome.least))
        _, first = np.unique(degree[outcome.fitting[order]], return_index=True)
        for i in order[first]:
            layout = int(outcome.fitting[i])
            rows.setdefault(int(degree[layout]), []).append((float(outcome.least[i]), float(outcome.memory[i]), which, layout))
    best = _answers(outcomes, {value: min(found) for value, found in rows.items()}, outcomes[0].system)
    return [Degree(value, best.get(value), float(least[value])) for value in sorted(least)]


def _answers(outcomes: Sequence[StrategyResult], rows: Mapping[Name, Row], system: System) -> dict[Name, Answer]:
    """The fastest plans of rows, by the rows' names, with their estimates on a machine."""
    plans: dict[Name, Plan] = {}
    for which, outcome in enumerate(outcomes):
        mine = {name: row[3] for name, row in rows.items() if row[2] == which}
        plans |= zip(mine, fastest(outcome, np.array(list(mine.values()), np.int64)), strict=True)
    one = outcomes[0].evaluation
    return {name: (plan, estimate(one.model, system, plan, one.gbs, one.assumptions)) for name, plan in plans.items()}


def _excluded(outcomes: tuple[StrategyResult, ...]) -> dict[str, list[int]]:
    """Degrees of tp that divide the GPUs but break a rule under every strategy, by the first rule broken."""
    one = outcomes[0].evaluation
    reasons: dict[str, list[int]] = {}
    for tp in map(int, divisors(outcomes[0].gpus)):
        broken = []
        for outcome in outcomes:
            batch = outcome.evaluation.space.batch
            plan = Plans(tp=float(tp), mbs=float(one.gbs), **STRATEGIES[batch.strategy].choices)
            broken.append(next((rule.broken for rule in rules(batch.uneven) if not rule.holds(one.model, plan, one.gbs)), None))
        if all(broken) and broken[0] is not None:
            reasons.setdefault(broken[0], []).append(tp)
    return reasons


def _misses(outcomes: tuple[StrategyResult, ...], limit: Column) -> dict[str, Answer | None]:
    """What memory excludes: the nearest miss, the nearest that would take less than `limit` [s], and the fastest of all."""
    rows: list[Row] = []  # memory, time, outcome, layout
    everything = [_excluded_by_memory(outcome) for outcome in _leading(outcomes)]
    for which, outcome in enumerate(everything):
        columns = (outcome.memory, outcome.least, np.full(len(outcome.fitting), which), outcome.fitting)
        rows += zip(*(column.tolist() for column in columns), strict=True)
    faster = [row for row in rows if row[1] < limit]
    picked = {
        "miss": min(rows, default=None),
        "faster": min(faster, default=None),
        "unlimited": min(faster, key=lambda row: (row[1], row[0], *row[2:]), default=None),
    }
    answers = _answers(everything, {name: row for name, row in picked.items() if row is not None}, outcomes[0].system)
    return {name: answers.get(name) for name in picked}


def space_of(outcome: StrategyResult, gpus: int) -> Space:
    """What an outcome was searched in, on another number of GPUs.

    Parameters
    ----------
    outcome : StrategyResult
        The outcome.
    gpus : int
        GPUs in the job.

    Returns
    -------
    Space
        The candidates of the same batch.
    """
    one = outcome.evaluation
    domain = one.system.domain(gpus) if one.space.batch.ordered else one.system.fast_domain
    return enumerate_space(one.model, (gpus,), domain, one.gbs, one.space.batch)


def _leading(outcomes: tuple[StrategyResult, ...]) -> tuple[StrategyResult, ...]:
    """Of each strategy the batch of candidates with the best plan; where nothing fits, that with the leanest."""

    def lead(outcome: StrategyResult) -> tuple[float, float]:
        held = outcome.evaluation.memory[outcome.layouts]
        return float(outcome.least.min(initial=np.inf)), float(held.min(initial=np.inf))

    first: dict[str, StrategyResult] = {}
    for outcome in outcomes:
        known = first.setdefault(outcome.evaluation.space.strategy, outcome)
        if lead(outcome) < lead(known):
            first[outcome.evaluation.space.strategy] = outcome
    return tuple(first.values())


def _excluded_by_memory(outcome: StrategyResult) -> StrategyResult:
    """The same search with unlimited memory, among the layouts that do not fit."""
    one = outcome.evaluation
    space = space_of(outcome, outcome.gpus)
    system = outcome.system.with_figures({CAPACITY: np.inf})
    return evaluate(space, one.model, system, one.gbs, one.assumptions, float(outcome.system.accelerator.hbm_bytes)).outcomes()[0]


def _fits_from(outcomes: tuple[StrategyResult, ...]) -> tuple[int, float] | None:
    """The fewest GPUs, doubling from the search's, on which some plan fits, and the least memory there [byte]."""
    outcomes = _leading(outcomes)
    one, gpus = outcomes[0].evaluation, outcomes[0].gpus * 2
    while gpus <= _most(one.system):
        held = np.inf
        for outcome in outcomes:
            held = layout_memory(space_of(outcome, gpus), one.model, one.gbs, one.assumptions).min(initial=held)
        if held <= _capacity(outcomes):
            return gpus, float(held)
        gpus *= 2
    return None


def _most(system: System) -> int:
    """GPUs of the largest job that is looked at."""
    return LARGEST_JOB if system.gpus is None else min(LARGEST_JOB, int(np.max(system.gpus)))


def _possible(outcomes: tuple[StrategyResult, ...]) -> list[int]:
    """The nearest numbers of GPUs, below and above the search's, that have candidates; looked for among the nearest few."""
    one, gpus = outcomes[0].evaluation, outcomes[0].gpus
    stride = one.system.fast_domain if gpus > one.system.fast_domain else 1

    def possible(number: int) -> bool:
        return any(len(space_of(outcome, number).counts) for outcome in outcomes)

    nearest = gpus - gpus % stride
    further = range(nearest + stride, min(nearest + NEAREST * stride, _most(one.system) + 1), stride)
    below = next((n for n in range(nearest, 0, -stride)[:NEAREST] if possible(n)), None)
    above = next((n for n in further if possible(n)), None)
    return [n for n in (below, above) if n is not None]
