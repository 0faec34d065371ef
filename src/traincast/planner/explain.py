"""Explain why the best plan is the best: what limits it, how alternatives differ, what does not fit and what would make it fit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import numpy as np

from traincast.core.plan import AXES, Plan, Plans
from traincast.core.plan_choices import STRATEGIES
from traincast.core.quantities import Column
from traincast.core.result import Doc, Result
from traincast.core.system import System
from traincast.core.units import count_of, gib, percent, signed
from traincast.planner.evaluation import CAPACITY, StrategyResult, evaluate, fastest, rejections
from traincast.planner.framework_spaces import Framework
from traincast.planner.held_knobs import HeldKnob, held_knobs
from traincast.planner.layout_memory import layout_memory
from traincast.planner.misfit import compare, label, short_of, slower, time_against_best
from traincast.planner.search_space import Space, enumerate_space
from traincast.step.estimate import Answer, Estimate, estimate
from traincast.step.placement import divisors
from traincast.step.validity import rules

Name = TypeVar("Name")
Row: TypeAlias = tuple[
    float, float, int, int
]  # two figures, and the index of their outcome and of their layout
MAX_SLOWDOWN_LISTED: Final = 2.0  # slower plans, as a share of the best time, share one line
HARDWARE_NUDGE: Final = 1.1  # a hardware figure is tried 10 % better
JOB_SIZES_TRIED: Final = 64  # numbers of GPUs tried below and above the search's
MAX_JOB_GPUS: Final = 1 << 17  # largest job tried when searching for a size that fits


@dataclass(frozen=True)
class BestOfDegree:
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
        Results of the search, one per batch of candidates.
    plans : list of (Plan, Estimate)
        The best plans, best first.
    sensitivity : dict of str to float
        Hardware figure → relative change of the best plan's step time when the figure is 10 % better.
    degrees : list of BestOfDegree
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

    outcomes: tuple[StrategyResult, ...] = field(compare=False)
    plans: list[Answer]
    sensitivity: dict[str, float]
    degrees: list[BestOfDegree]
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
        shares = sorted(
            ((float(value / best.step_seconds), name) for name, value in best.breakdown.items()), reverse=True
        )
        spent = ", ".join(f"{percent(share)} {label(name)}" for share, name in shares if share > 5e-4)
        gains = sorted(self.sensitivity.items(), key=lambda item: item[1])
        moved = [f"{name} {signed(change)}" for name, change in gains if change < -5e-4]
        return [
            f"Spends its step on {spent}.",
            f"10% better hardware would change its step time by: {', '.join(moved) or 'nothing'}.",
        ]

    def _runner_up(self) -> list[str]:
        best = self.plans[0]
        knobs = best[0].columns().numbers()  # 1-D, and context with a degree of 1, are the same plan
        runner_up = next(
            (answer for answer in self.plans[1:] if answer[0].columns().numbers() != knobs), None
        )
        if runner_up is None:
            return []
        plan, causes = compare(runner_up, best)
        return [f"Runner-up: {plan}", f"    {causes}"]

    def _degrees(self) -> list[str]:
        best, capacity = self.plans[0], _capacity(self.outcomes)
        lines = []
        slow = [
            row.degree
            for row in self.degrees
            if row.best is not None and slower(row.best, best) > MAX_SLOWDOWN_LISTED
        ]
        for row in self.degrees:
            if row.degree in slow:
                continue
            if row.best is None:
                lines.append(
                    f"  {row.degree:>4}: does not fit, needs {gib(row.least_memory)} of {gib(capacity)}"
                )
            elif row.best[0] == best[0]:
                lines.append(f"  {row.degree:>4}: the best plan")
            else:
                plan, causes = compare(row.best, best)
                lines += [f"  {row.degree:>4}: {plan}", f"        {causes}"]
        if slow:
            lines.append(f"  {', '.join(map(str, slow))}: over {1 + MAX_SLOWDOWN_LISTED:.0f} times as slow")
        return ["Best plan of each tensor-parallel degree (tp × tp2 × cp):", *lines]

    def _excluded(self) -> list[str]:
        return [
            f"Not tried: tp = {', '.join(map(str, degrees))}: {reason}."
            for reason, degrees in self.excluded.items()
        ]

    def _misses(self) -> list[str]:
        misses = {
            "Nearest to fitting that would be faster": self.faster,
            "Fastest if memory were unlimited": self.unlimited,
        }
        lines: list[str] = []
        listed = set()
        for title, answer in misses.items():
            if answer is not None and answer[0] not in listed:
                plan, est = answer
                listed.add(plan)
                lines += [
                    f"{title}: {time_against_best(est, self.plans[0][1])}",
                    f"    {plan}",
                    f"    {short_of(est)}",
                ]
        return lines or [
            "Memory excludes nothing."
            if self.miss is None
            else "Memory excludes no plan that would be faster."
        ]

    def _nothing_fits(self) -> list[str]:
        evaluation, gpus = self.outcomes[0].evaluation, self.outcomes[0].gpus
        head = f"{evaluation.model.title} on {count_of(gpus, 'GPU')} of {evaluation.system.name}"
        if self.miss is None:
            reasons = [
                f"    {count:,}: {reason}" for reason, count in rejections(self.outcomes).items() if count
            ]
            locks = self._common_locks()
            with_locks = (
                f" with {', '.join(f'{name} = {value}' for name, value in locks.items())}" if locks else ""
            )
            lines = [f"{head}: no plan uses exactly so many GPUs{with_locks}.", *self._broken_locks(locks)]
            lines += ["Rejected:", *reasons] if reasons else []
            if self.possible:
                lines.append(
                    f"Nearest numbers of GPUs that have candidates: {', '.join(f'{gpus:,}' for gpus in self.possible)}."
                )
            return lines
        plan, est = self.miss
        candidates = sum(outcome.candidates for outcome in self.outcomes)
        lines = [
            f"{head}: none of {count_of(candidates, 'candidate')} fits in memory.",
            "Nearest miss:",
            f"    {plan}",
            f"    {short_of(est)}",
        ]
        if self.fits_from is not None:
            enough_gpus, memory = self.fits_from
            lines.append(
                f"    Or {enough_gpus:,} GPUs instead of {gpus:,}: the leanest plan then needs {gib(memory)}."
            )
        return [*lines, *self.held_constant()]

    def _common_locks(self) -> dict[str, int]:
        """Return the knobs that every batch of candidates locks to the same value."""
        first, *others = (dict(outcome.evaluation.space.batch.locks) for outcome in self.outcomes)
        return {
            name: value for name, value in first.items() if all(other.get(name) == value for other in others)
        }

    def _broken_locks(self, locks: Mapping[str, int]) -> list[str]:
        """Return why no plan has knobs at these values, as far as arithmetic shows it."""
        gbs, gpus = self.outcomes[0].evaluation.gbs, self.outcomes[0].gpus
        degrees = {axis: locks[axis] for axis in AXES if axis in locks}
        product, experts = math.prod(degrees.values()), self.outcomes[0].evaluation.model.experts
        lines = [
            f"{axis} = {value} does not divide {count_of(gpus, 'GPU')}"
            for axis, value in degrees.items()
            if gpus % value
        ]
        if not lines and gpus % product:
            lines.append(f"{' × '.join(degrees)} = {product} does not divide {count_of(gpus, 'GPU')}")
        if gbs % locks.get("mbs", 1):
            lines.append(
                f"mbs = {locks['mbs']} does not divide the global batch of {count_of(gbs, 'sequence')}"
            )
        if experts is not None and experts.experts % locks.get("ep", 1):
            lines.append(f"ep = {locks['ep']} does not divide the {experts.experts} experts")
        lines += [
            f"tp = {locks['tp']}: {reason}"
            for reason, degrees_of in self.excluded.items()
            if locks.get("tp") in degrees_of
        ]
        return [f"    {line}" for line in lines]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return self.record().to_dict()

    def record(self) -> "ExplanationRecord":
        """Return the explanation with meaning and unit."""
        return ExplanationRecord(
            sensitivity_10_percent_better=self.sensitivity,
            degrees=[DegreeRecord(row.degree, _estimate(row.best), row.least_memory) for row in self.degrees],
            excluded_tp=self.excluded,
            nearest_miss=_estimate(self.miss),
            nearest_faster_miss=_estimate(self.faster),
            unlimited_memory=_estimate(self.unlimited),
            possible_gpus=self.possible,
            held=self.held,
            fits_from=None if self.fits_from is None else JobSize(*self.fits_from),
            text=self.lines(),
        )


def _estimate(answer: Answer | None) -> Estimate | None:
    """Return the estimate of an answer, if there is one."""
    return None if answer is None else answer[1]


@dataclass(frozen=True)
class DegreeRecord(Result):
    """The best plan of one tensor-parallel degree."""

    degree: Annotated[int, Doc("tensor-parallel degree")]
    best: Annotated[Estimate | None, Doc("the best plan with it")]
    least_memory_bytes: Annotated[float | None, Doc("least memory of all plans with it", "byte")]


@dataclass(frozen=True)
class JobSize(Result):
    """A number of GPUs on which a plan fits."""

    gpus: Annotated[int, Doc("number of GPUs")]
    memory_bytes: Annotated[float, Doc("memory of the leanest plan there", "byte")]


@dataclass(frozen=True, kw_only=True)
class ExplanationRecord(Result):
    """Why the best plan is the best, with meaning and unit."""

    sensitivity_10_percent_better: Annotated[
        dict[str, float],
        Doc("relative change of the best plan's step time if a hardware figure is 10 % better"),
    ]
    degrees: Annotated[list[DegreeRecord], Doc("each tensor-parallel degree")]
    excluded_tp: Annotated[dict[str, list[int]], Doc("degrees of tp that a rule excludes, by rule")]
    nearest_miss: Annotated[Estimate | None, Doc("the plan nearest to fitting that does not fit")]
    nearest_faster_miss: Annotated[
        Estimate | None, Doc("the plan faster than the best that is nearest to fitting")
    ]
    unlimited_memory: Annotated[Estimate | None, Doc("the fastest plan if memory were unlimited")]
    possible_gpus: Annotated[
        list[int], Doc("where no plan meets the rules: the nearest numbers of GPUs that have candidates")
    ]
    held: Annotated[
        list[HeldKnob],
        Doc(
            "knobs that the search holds constant, and their best other value at the best plan or nearest miss"
        ),
    ]
    fits_from: Annotated[JobSize | None, Doc("where nothing fits: the fewest GPUs on which something does")]
    text: Annotated[list[str], Doc("the explanation, line by line")]


def explain(
    outcomes: tuple[StrategyResult, ...], plans: list[Answer], framework: Framework, locks: Mapping[str, Any]
) -> Explanation:
    """Explain a search from its outcomes (one per batch of candidates), its best plans, and what was searched."""
    misses = _misses(outcomes, plans[0][1].step_seconds if plans else 0.0)
    moved = sensitivity(plans[0][1]) if plans else {}
    fits_from = _fits_from(outcomes) if misses["miss"] is not None and not plans else None
    possible = [] if any(outcome.candidates for outcome in outcomes) else _possible(outcomes)
    degrees, excluded = _by_degree(outcomes), _excluded(outcomes)
    answer = plans[0] if plans else misses["miss"]
    knobs = [] if answer is None else held_knobs(framework, locks, answer)
    return Explanation(
        outcomes,
        plans,
        moved,
        degrees,
        excluded,
        fits_from=fits_from,
        possible=possible,
        held=knobs,
        **misses,
    )


def _capacity(outcomes: tuple[StrategyResult, ...]) -> float:
    """Return the memory of the accelerator [byte]."""
    return float(outcomes[0].system.accelerator.hbm_bytes)


def sensitivity(est: Estimate) -> dict[str, float]:
    """Return the relative change of the step time when each hardware figure is 10 % better and the plan is kept."""
    fast, *_, slow = est.system.tiers
    names = {
        "accelerator.matrix_flops": "matrix FLOP/s",
        "accelerator.vector_flops": "vector FLOP/s",
        "accelerator.hbm_bandwidth": "HBM bandwidth",
        "network.0.bandwidth": f"fast network ({fast.name})",
        f"network.{len(est.system.tiers) - 1}.bandwidth": f"slow network ({slow.name})",
    }
    figures = est.system.figures()
    better = {
        name: est.system.with_figures({path: figures[path] * HARDWARE_NUDGE}) for path, name in names.items()
    }
    changed = {
        name: estimate(est.model, other, est.plan, est.gbs, est.assumptions) for name, other in better.items()
    }
    return {name: float(other.step_seconds / est.step_seconds) - 1 for name, other in changed.items()}


def _by_degree(outcomes: tuple[StrategyResult, ...]) -> list[BestOfDegree]:
    """Return the best plan of each tensor-parallel degree."""
    rows: dict[int, list[Row]] = {}  # degree → time, memory, outcome, layout of the best plan
    least_memory: dict[int, float] = {}
    for index, outcome in enumerate(outcomes):
        layouts = outcome.evaluation.space.layouts
        degree = np.asarray(layouts.tp * layouts.context)
        memory = outcome.evaluation.memory[outcome.layouts]
        for value in map(int, np.unique(degree[outcome.layouts])):
            least_memory[value] = memory[degree[outcome.layouts] == value].min(
                initial=least_memory.get(value, np.inf)
            )
        order = np.lexsort((outcome.fitting, outcome.memory, outcome.least_seconds))
        _, first = np.unique(degree[outcome.fitting[order]], return_index=True)
        for i in order[first]:
            layout = int(outcome.fitting[i])
            row = float(outcome.least_seconds[i]), float(outcome.memory[i]), index, layout
            rows.setdefault(int(degree[layout]), []).append(row)
    best = _answers(
        outcomes, {value: min(candidates) for value, candidates in rows.items()}, outcomes[0].system
    )
    return [
        BestOfDegree(value, best.get(value), float(least_memory[value])) for value in sorted(least_memory)
    ]


def _answers(
    outcomes: Sequence[StrategyResult], rows: Mapping[Name, Row], system: System
) -> dict[Name, Answer]:
    """Return the fastest plans of rows, by the rows' names, with their estimates on a machine."""
    plans: dict[Name, Plan] = {}
    for index, outcome in enumerate(outcomes):
        layouts = {name: row[3] for name, row in rows.items() if row[2] == index}
        plans |= zip(layouts, fastest(outcome, np.array(list(layouts.values()), np.int64)), strict=True)
    evaluation = outcomes[0].evaluation
    model, gbs, assumed = evaluation.model, evaluation.gbs, evaluation.assumptions
    return {name: (plan, estimate(model, system, plan, gbs, assumed)) for name, plan in plans.items()}


def _excluded(outcomes: tuple[StrategyResult, ...]) -> dict[str, list[int]]:
    """Return the degrees of tp that divide the GPUs but break a rule under every strategy, by the first rule broken."""
    model, gbs = outcomes[0].evaluation.model, outcomes[0].evaluation.gbs
    reasons: dict[str, list[int]] = {}
    for tp in map(int, divisors(outcomes[0].gpus)):
        broken = []
        for outcome in outcomes:
            batch = outcome.evaluation.space.batch
            plan = Plans(tp=float(tp), mbs=float(gbs), **STRATEGIES[batch.strategy].choices)
            broken.append(
                next((rule.broken for rule in rules(batch.uneven) if not rule.holds(model, plan, gbs)), None)
            )
        if all(broken) and broken[0] is not None:
            reasons.setdefault(broken[0], []).append(tp)
    return reasons


def _misses(outcomes: tuple[StrategyResult, ...], limit: Column) -> dict[str, Answer | None]:
    """Return what memory excludes: the nearest miss, the nearest that would take less than `limit` [s], and the fastest of all."""
    rows: list[Row] = []  # memory, time, outcome, layout
    excluded = [_excluded_by_memory(outcome) for outcome in _leading(outcomes)]
    for index, outcome in enumerate(excluded):
        columns = (
            outcome.memory,
            outcome.least_seconds,
            np.full(len(outcome.fitting), index),
            outcome.fitting,
        )
        rows += zip(*(column.tolist() for column in columns), strict=True)
    faster = [row for row in rows if row[1] < limit]
    picked = {
        "miss": min(rows, default=None),
        "faster": min(faster, default=None),
        "unlimited": min(faster, key=lambda row: (row[1], row[0], *row[2:]), default=None),
    }
    answers = _answers(
        excluded, {name: row for name, row in picked.items() if row is not None}, outcomes[0].system
    )
    return {name: answers.get(name) for name in picked}


def space_of(outcome: StrategyResult, gpus: int) -> Space:
    """Enumerate the space of an outcome on another number of GPUs.

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
    evaluation = outcome.evaluation
    batch, system = evaluation.space.batch, evaluation.system
    domain = system.domain(gpus) if batch.ordered else system.fast_domain
    return enumerate_space(evaluation.model, (gpus,), domain, evaluation.gbs, batch)


def _leading(outcomes: tuple[StrategyResult, ...]) -> tuple[StrategyResult, ...]:
    """Return for each strategy the outcome with the fastest plan, or that with the least memory where nothing fits."""

    def order(outcome: StrategyResult) -> tuple[float, float]:
        memory = outcome.evaluation.memory[outcome.layouts]
        return float(outcome.least_seconds.min(initial=np.inf)), float(memory.min(initial=np.inf))

    best: dict[str, StrategyResult] = {}
    for outcome in outcomes:
        strategy = outcome.evaluation.space.strategy
        if order(outcome) < order(best.setdefault(strategy, outcome)):
            best[strategy] = outcome
    return tuple(best.values())


def _excluded_by_memory(outcome: StrategyResult) -> StrategyResult:
    """Repeat the search with unlimited memory, among the layouts that do not fit."""
    before = outcome.evaluation
    space, capacity = space_of(outcome, outcome.gpus), float(outcome.system.accelerator.hbm_bytes)
    system = outcome.system.with_figures({CAPACITY: np.inf})
    return evaluate(space, before.model, system, before.gbs, before.assumptions, capacity).outcomes()[0]


def _fits_from(outcomes: tuple[StrategyResult, ...]) -> tuple[int, float] | None:
    """Return the fewest GPUs, doubling from the search's, on which some plan fits, and the least memory there [byte]."""
    outcomes = _leading(outcomes)
    evaluation, gpus = outcomes[0].evaluation, outcomes[0].gpus * 2
    while gpus <= _largest_job(evaluation.system):
        least = np.inf
        for outcome in outcomes:
            memory = layout_memory(
                space_of(outcome, gpus), evaluation.model, evaluation.gbs, evaluation.assumptions
            )
            least = memory.min(initial=least)
        if least <= _capacity(outcomes):
            return gpus, float(least)
        gpus *= 2
    return None


def _largest_job(system: System) -> int:
    """Return the GPUs of the largest job that is tried."""
    return MAX_JOB_GPUS if system.gpus is None else min(MAX_JOB_GPUS, int(np.max(system.gpus)))


def _possible(outcomes: tuple[StrategyResult, ...]) -> list[int]:
    """Return the nearest numbers of GPUs, below and above the search's, that have candidates."""
    system, gpus = outcomes[0].evaluation.system, outcomes[0].gpus
    stride = system.fast_domain if gpus > system.fast_domain else 1

    def possible(number: int) -> bool:
        return any(len(space_of(outcome, number).counts) for outcome in outcomes)

    nearest = gpus - gpus % stride
    larger = range(
        nearest + stride, min(nearest + JOB_SIZES_TRIED * stride, _largest_job(system) + 1), stride
    )
    below = next((n for n in range(nearest, 0, -stride)[:JOB_SIZES_TRIED] if possible(n)), None)
    above = next((n for n in larger if possible(n)), None)
    return [n for n in (below, above) if n is not None]
