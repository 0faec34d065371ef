"""Explain a search: what limits the recommended plan, how others differ, and what would make misses fit."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import numpy as np

from traincast.core.knobs import STRATEGIES
from traincast.core.plan import AXES, Plan, Plans
from traincast.core.quantities import Column
from traincast.core.result import KEY, Doc, Result
from traincast.core.system import CAPACITY, System
from traincast.core.units import count_of, gib, percent, signed
from traincast.planner.evaluation import (
    StrategyResult,
    evaluate_all,
    layouts_memory,
    rejections,
)
from traincast.planner.framework_spaces import Framework
from traincast.planner.least_times import LeastTimes
from traincast.planner.plan_changes import HeldKnob, accuracy_costs, held_knobs
from traincast.planner.plan_sentences import MIN_CHANGE_REPORTED, compare, label, short_of, time_against_best
from traincast.planner.search_space import Space, enumerate_space
from traincast.step.estimate import Answer, Estimate, estimate
from traincast.step.placement import divisors
from traincast.step.validity import rules

MAX_SLOWDOWN_LISTED: Final = 2.0  # of the best time; degrees slowed down by more share one line
HARDWARE_NUDGE: Final = 1.1  # a hardware figure is tried 10 % better
JOB_SIZES_TRIED: Final = 64  # numbers of GPUs tried below and above the search's
MAX_JOB_GPUS: Final = 1 << 17  # largest job tried when searching for a size that fits


@dataclass(frozen=True)
class BestOfDegree(Result):
    """The fastest plan of one degree of tensor (tp times tp2) or context parallelism."""

    degree: Annotated[int, Doc("the degree")]
    best: Answer | None
    least_memory: Annotated[
        float, Doc("least memory of all plans with it", "byte", key="least_memory_bytes", place=1)
    ]

    @property
    def best_estimate(self) -> Annotated[Estimate | None, Doc(key="best")]:
        """The best plan with it."""
        return _estimate(self.best)


@dataclass(frozen=True)
class JobSize(Result):
    """A number of GPUs on which a plan fits."""

    gpus: Annotated[int, Doc("number of GPUs")]
    memory_bytes: Annotated[float, Doc("memory of the leanest plan there", "byte")]


@dataclass(frozen=True)
class Explanation(Result):
    """Why the best plan is the best."""

    outcomes: tuple[StrategyResult, ...] = field(compare=False)  # of the search, one per batch of candidates
    plans: list[Answer]  # the recommended plan and others, best first
    sensitivity: Annotated[
        dict[str, float],
        Doc(
            "relative change of the best plan's step time if a hardware figure is 10 % better",
            key="sensitivity_10_percent_better",
        ),
    ]
    degrees: Annotated[list[BestOfDegree], Doc("each tensor-parallel degree, tp times tp2")]
    context_degrees: Annotated[list[BestOfDegree], Doc("each context-parallel degree, where it is searched")]
    excluded: Annotated[
        dict[str, list[int]], Doc("degrees of tp that a rule excludes, by rule", key="excluded_tp")
    ]
    miss: Answer | None  # the plan that comes nearest to fitting without fitting
    faster: Answer | None  # the plan faster than the best that comes nearest to fitting without fitting
    unlimited: Answer | None  # the best plan if memory were unlimited, where that is another one
    fits_from: (
        tuple[int, float] | None
    )  # where nothing fits: fewest GPUs, doubling, that do; least memory [byte]
    possible: Annotated[
        list[int],
        Doc(
            "where no plan meets the rules: the nearest numbers of GPUs that have candidates",
            key="possible_gpus",
            place=1,
        ),
    ]
    held: Annotated[
        list[HeldKnob],
        Doc(
            "knobs held constant, and their best other value at the best plan or nearest miss",
            place=1,
        ),
    ]

    accuracy: Annotated[
        dict[str, str],
        Doc("what each recipe asked for may cost in accuracy, with the source, by choice and value", place=1),
    ]

    @property
    def nearest_miss(self) -> Annotated[Estimate | None, KEY]:
        """The plan nearest to fitting that does not fit."""
        return _estimate(self.miss)

    @property
    def nearest_faster_miss(self) -> Annotated[Estimate | None, KEY]:
        """The plan faster than the best that is nearest to fitting."""
        return _estimate(self.faster)

    @property
    def unlimited_memory(self) -> Annotated[Estimate | None, KEY]:
        """The fastest plan if memory were unlimited."""
        return _estimate(self.unlimited)

    @property
    def larger_job(self) -> Annotated[JobSize | None, Doc(key="fits_from", place=2)]:
        """Where nothing fits: the fewest GPUs on which something does."""
        return None if self.fits_from is None else JobSize(*self.fits_from)

    @property
    def text(self) -> Annotated[list[str], Doc(place=2)]:
        """The explanation, line by line."""
        return self.lines()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The explanation as sentences."""
        if self.miss is None and not self.plans:
            return self._nothing_possible()
        if not self.plans:
            return [*self._nothing_fits(), *self.held_constant()]
        return [
            *(*self._binding(), *self.held_constant(), *self._runner_up()),
            *self._degrees("tensor-parallel degree (tp × tp2)", self.degrees),
            *self._degrees("context-parallel degree (cp)", self.context_degrees),
            *(*self._excluded(), *self._misses()),
        ]

    def held_constant(self) -> list[str]:
        """Lines on the knobs that were not searched, if any, and on the accuracy of recipes asked for."""
        held = [f"Held constant, not searched: {', '.join(map(str, self.held))}."] if self.held else []
        return [*held, *(f"Accuracy with {recipe}: {cost}." for recipe, cost in self.accuracy.items())]

    @property
    def runner_up(self) -> Answer | None:
        """The next plan with other knobs and no faster: 1-D, and context of degree 1, are the same plan."""
        (first, best), *others = self.plans
        knobs = first.columns().numbers()
        for plan, est in others:
            if plan.columns().numbers() != knobs and est.step_seconds >= best.step_seconds:
                return plan, est
        return None

    def _binding(self) -> list[str]:
        _, best = self.plans[0]
        shares = [(float(value / best.step_seconds), name) for name, value in best.breakdown.items()]
        largest = sorted((row for row in shares if row[0] > MIN_CHANGE_REPORTED), reverse=True)
        spent = ", ".join(f"{percent(share)} {label(name)}" for share, name in largest)
        gains = sorted(self.sensitivity.items(), key=lambda item: item[1])
        moved = [f"{name} {signed(change)}" for name, change in gains if change < -MIN_CHANGE_REPORTED]
        return [
            f"Spends its step on {spent}.",
            f"10% better hardware would change its step time by: {', '.join(moved) or 'nothing'}.",
        ]

    def _runner_up(self) -> list[str]:
        if self.runner_up is None:
            return []
        plan, causes = compare(self.runner_up, self.plans[0])
        return [f"Runner-up: {plan}", f"    {causes}"]

    def _degrees(self, kind: str, rows: list[BestOfDegree]) -> list[str]:
        if not rows:
            return []
        best, capacity = self.plans[0], _capacity(self.outcomes)
        lines, slow = [f"Fastest plan of each {kind}:"], []
        for row in rows:
            head = f"  {row.degree:>4}: "
            if row.best is None:
                lines.append(f"{head}does not fit, needs {gib(row.least_memory)} of {gib(capacity)}")
            elif row.best[1].step_seconds / best[1].step_seconds - 1 > MAX_SLOWDOWN_LISTED:
                slow.append(str(row.degree))
            elif row.best[0] == best[0]:
                lines.append(f"{head}plan 1")
            else:
                plan, causes = compare(row.best, best)
                lines += [f"{head}{plan}", f"        {causes}"]
        if slow:
            lines.append(f"  {', '.join(slow)}: over {1 + MAX_SLOWDOWN_LISTED:.0f} times as slow")
        return lines

    def _excluded(self) -> list[str]:
        excluded = self.excluded.items()
        return [f"Not tried: tp = {', '.join(map(str, degrees))}: {reason}." for reason, degrees in excluded]

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
                head = f"{title}: {time_against_best(est, self.plans[0][1])}"
                lines += [head, f"    {plan}", f"    {short_of(est)}"]
        nothing = (
            "Memory excludes nothing."
            if self.miss is None
            else "Memory excludes no plan that would be faster."
        )
        return lines or [nothing]

    def _head(self) -> str:
        outcome = self.outcomes[0]
        model, system = outcome.space.model.title, outcome.evaluation.system.name
        return f"{model} on {count_of(outcome.gpus, 'GPU')} of {system}"

    def _nothing_possible(self) -> list[str]:
        locks = self._common_locks()
        with_locks = (
            f" with {', '.join(f'{name} = {value}' for name, value in locks.items())}" if locks else ""
        )
        lines = [f"{self._head()}: no plan uses exactly so many GPUs{with_locks}."]
        lines += [f"    {line}" for line in self._broken_locks(locks)]
        reasons = rejections(self.outcomes).items()
        rejected = [f"    {count:,}: {reason}" for reason, count in reasons if count]
        lines += ["Rejected:", *rejected] if rejected else []
        if self.possible:
            numbers = ", ".join(f"{gpus:,}" for gpus in self.possible)
            lines.append(f"Nearest numbers of GPUs that have candidates: {numbers}.")
        return lines

    def _nothing_fits(self) -> list[str]:
        assert self.miss is not None
        plan, est = self.miss
        candidates = sum(outcome.candidates for outcome in self.outcomes)
        lines = [
            f"{self._head()}: none of {count_of(candidates, 'candidate')} fits in memory.",
            "Nearest miss:",
            f"    {plan}",
            f"    {short_of(est)}",
        ]
        if self.fits_from is not None:
            enough, memory = self.fits_from
            instead = f"{enough:,} GPUs instead of {self.outcomes[0].gpus:,}"
            lines.append(f"    Or {instead}: the leanest plan then needs {gib(memory)}.")
        return lines

    def _common_locks(self) -> dict[str, int]:
        """Return the knobs that every batch of candidates locks to the same value."""
        batches = [set(outcome.space.batch.locks) for outcome in self.outcomes]
        return {
            name: value
            for name, value in self.outcomes[0].space.batch.locks
            if all((name, value) in locks for locks in batches)
        }

    def _broken_locks(self, locks: Mapping[str, int]) -> list[str]:
        """Return why no plan has knobs at these values, as far as arithmetic shows it."""
        space, gpus = self.outcomes[0].space, self.outcomes[0].gpus
        degrees = {axis: locks[axis] for axis in AXES if axis in locks}
        product, experts, job = math.prod(degrees.values()), space.model.experts, count_of(gpus, "GPU")
        lines = [f"{axis} = {value} does not divide {job}" for axis, value in degrees.items() if gpus % value]
        if not lines and gpus % product:
            lines.append(f"{' × '.join(degrees)} = {product} does not divide {job}")
        if space.gbs % locks.get("mbs", 1):
            batch = count_of(space.gbs, "sequence")
            lines.append(f"mbs = {locks['mbs']} does not divide the global batch of {batch}")
        if experts is not None and experts.experts % locks.get("ep", 1):
            lines.append(f"ep = {locks['ep']} does not divide the {experts.experts} experts")
        reasons = [reason for reason, of_reason in self.excluded.items() if locks.get("tp") in of_reason]
        return [*lines, *(f"tp = {locks['tp']}: {reason}" for reason in reasons)]


def _estimate(answer: Answer | None) -> Estimate | None:
    """Return the estimate of an answer, if there is one."""
    return None if answer is None else answer[1]


def explain(
    times: LeastTimes,
    plans: list[Answer],
    framework: Framework,
    locks: Mapping[str, Any],
    answered: Callable[[Plan], Answer],
) -> Explanation:
    """Explain a search from the times of its layouts, its best plans, and what was searched.

    `answered` returns a plan with its estimate.
    """
    outcomes = tuple(times.outcomes)
    misses = _misses(times, min((est.step_seconds for _, est in plans), default=0.0), answered)
    answer = plans[0] if plans else misses["miss"]
    searches_context = any(np.max(outcome.space.layouts.cp, initial=1) > 1 for outcome in outcomes)
    return Explanation(
        outcomes,
        plans,
        sensitivity=sensitivity(plans[0][1]) if plans else {},
        degrees=_by_degree(times, lambda layouts: layouts.tp * layouts.tp2, answered),
        context_degrees=_by_degree(times, lambda layouts: layouts.cp, answered) if searches_context else [],
        excluded=_excluded(outcomes),
        fits_from=_fits_from(times) if misses["miss"] is not None and not plans else None,
        possible=[] if any(outcome.candidates for outcome in outcomes) else _possible(outcomes),
        held=[] if answer is None else held_knobs(framework, locks, answer),
        accuracy=accuracy_costs(locks),
        **misses,
    )


def _capacity(outcomes: Sequence[StrategyResult]) -> float:
    """Return the memory of the accelerator [byte]."""
    return float(outcomes[0].system.accelerator.hbm_bytes)


def sensitivity(est: Estimate) -> dict[str, float]:
    """Return the relative change of a plan's step time when each hardware figure is 10 % better."""
    system = est.system
    paths = {
        "matrix FLOP/s": "accelerator.matrix_flops",
        "vector FLOP/s": "accelerator.vector_flops",
        "HBM bandwidth": "accelerator.hbm_bandwidth",
        f"fast network ({system.tiers[0].name})": "network.0.bandwidth",
        f"slow network ({system.tiers[-1].name})": f"network.{len(system.tiers) - 1}.bandwidth",
    }
    figures, changes = system.figures(), {}
    for name, path in paths.items():
        better = system.with_figures({path: figures[path] * HARDWARE_NUDGE})
        changed = estimate(est.model, better, est.plan, gbs=est.gbs, assumptions=est.assumptions)
        changes[name] = float(changed.step_seconds / est.step_seconds) - 1
    return changes


def _by_degree(
    times: LeastTimes, degree_of: Callable[[Plans], Column], answered: Callable[[Plan], Answer]
) -> list[BestOfDegree]:
    """Return the fastest plan of each degree."""
    least_memory: dict[int, float] = {}
    degrees = [np.zeros(0)]
    for outcome in times.outcomes:
        layouts = outcome.space.layouts
        degree = np.broadcast_to(degree_of(layouts), np.shape(outcome.space.layer_row))
        memory, of_job = outcome.evaluation.memory[outcome.layouts], degree[outcome.layouts]
        for value in map(int, np.unique(of_job)):
            least = memory[of_job == value].min(initial=least_memory.get(value, np.inf))
            least_memory[value] = float(least)
        degrees.append(degree[outcome.fitting])
    values, group = np.unique(np.concatenate(degrees), return_inverse=True)
    answers = map(answered, times.plans(times.best_of(group)))
    best = dict(zip(map(int, values), answers, strict=True))
    return [BestOfDegree(value, best.get(value), least_memory[value]) for value in sorted(least_memory)]


def _excluded(outcomes: tuple[StrategyResult, ...]) -> dict[str, list[int]]:
    """Return the degrees of tp that break a rule under every strategy, by the first rule broken."""
    model, gbs = outcomes[0].space.model, outcomes[0].space.gbs
    kinds = dict.fromkeys((outcome.space.strategy, outcome.space.batch.uneven) for outcome in outcomes)
    reasons: dict[str, list[int]] = {}
    for tp in map(int, divisors(outcomes[0].gpus)):
        broken = []
        for strategy, uneven in kinds:
            plan = Plans(tp=float(tp), mbs=float(gbs), **STRATEGIES[strategy].choices)
            failed = (rule.broken for rule in rules(uneven) if not rule.holds(model, plan, gbs))
            broken.append(next(failed, None))
        if all(broken) and broken[0] is not None:
            reasons.setdefault(broken[0], []).append(tp)
    return reasons


def _misses(times: LeastTimes, limit: Column, answered: Callable[[Plan], Answer]) -> dict[str, Answer | None]:
    """Return what memory excludes: the nearest miss, the nearest faster than `limit` [s], the fastest."""
    excluded = LeastTimes.of(_excluded_by_memory(_leading(times)), times.exhaustive)
    picked = {
        "miss": excluded.best(1, by_memory=True),
        "faster": excluded.leanest_below(float(limit)),
        "unlimited": excluded.best(1),
    }
    picked["unlimited"] = picked["unlimited"][excluded.seconds[picked["unlimited"]] < limit]
    plans = {name: excluded.plans(rows) for name, rows in picked.items()}
    return {name: answered(of_name[0]) if of_name else None for name, of_name in plans.items()}


def space_of(outcome: StrategyResult, gpus: int) -> Space:
    """Enumerate the candidates of the batch of an outcome on another number of GPUs."""
    space, system = outcome.space, outcome.evaluation.system
    domain = system.domain(gpus) if space.batch.ordered else system.fast_domain
    return enumerate_space(space.model, (gpus,), domain, space.gbs, space.batch)


def _leading(times: LeastTimes) -> tuple[StrategyResult, ...]:
    """Return each strategy's outcome with the fastest plan, or with the least memory where nothing fits."""
    names = [outcome.space.strategy for outcome in times.outcomes]
    group = np.unique(names, return_inverse=True)[1][times.outcome]
    fastest = {names[times.outcome[row]]: times.seconds[row] for row in times.best_of(group)}
    known = times.up_to(lambda known: -np.inf)
    best: dict[str, tuple[float, int]] = {}
    for index, outcome in enumerate(times.outcomes):
        name = names[index]
        if name in fastest and not np.any(known[times.outcome == index] == fastest[name]):
            continue
        least = float(outcome.evaluation.memory[outcome.layouts].min(initial=np.inf))
        best[name] = min(best.get(name, (least, index)), (least, index))
    return tuple(times.outcomes[index] for _, index in best.values())


def _excluded_by_memory(outcomes: Sequence[StrategyResult]) -> list[StrategyResult]:
    """Repeat a search of one number of GPUs with unlimited memory, among the layouts that do not fit."""
    unlimited = outcomes[0].system.with_figures({CAPACITY: np.inf})
    spaces = tuple(
        outcome.space if len(outcome.space.gpus) == 1 else space_of(outcome, outcome.gpus)
        for outcome in outcomes
    )
    assumed = outcomes[0].evaluation.assumptions
    evaluations = evaluate_all(spaces, unlimited, assumed, _capacity(outcomes))
    return [evaluation.outcomes()[0] for evaluation in evaluations]


def _fits_from(times: LeastTimes) -> tuple[int, float] | None:
    """Return the fewest GPUs, doubling, on which some plan fits, and the least memory there [byte]."""
    outcomes = _leading(times)
    evaluation, gpus = outcomes[0].evaluation, outcomes[0].gpus * 2
    while gpus <= _largest_job(evaluation.system):
        spaces = tuple(space_of(outcome, gpus) for outcome in outcomes)
        used = layouts_memory(spaces, evaluation.assumptions)
        least = min(memory.min(initial=np.inf) for memory in used)
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
    nearest = gpus - gpus % stride
    last = min(nearest + JOB_SIZES_TRIED * stride, _largest_job(system))
    below, above = range(nearest, 0, -stride)[:JOB_SIZES_TRIED], range(nearest + stride, last + 1, stride)

    def possible(number: int) -> bool:
        return any(len(space_of(outcome, number).counts) for outcome in outcomes)

    closest = (next(filter(possible, numbers), None) for numbers in (below, above))
    return [n for n in closest if n is not None]
