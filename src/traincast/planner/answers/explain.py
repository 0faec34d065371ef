"""Explain a search: what limits the recommended plan, how others differ, and what would make misses fit."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias

import numpy as np

from traincast.catalog import with_fitted_values
from traincast.core import (
    AXES,
    KEY,
    PEAK_FIELDS,
    STRATEGIES,
    Column,
    Doc,
    Plan,
    Plans,
    Result,
    System,
    count_of,
    format_signed,
    gib,
    percent,
    probability_text,
)
from traincast.planner.answers.lock_prices import lock_lines, lock_names
from traincast.planner.answers.plan_changes import HeldKnob, accuracy_costs, held_choices, held_knobs
from traincast.planner.answers.plan_sentences import (
    MIN_CHANGE_REPORTED,
    compare_with_best,
    component_label,
    time_against_best,
)
from traincast.planner.answers.recommend import explain_preference
from traincast.planner.answers.shortfall import short_of
from traincast.planner.frameworks.locks import lock_values
from traincast.planner.frameworks.rules import EQUAL_PIECES, EQUAL_SHARDS
from traincast.planner.space.enumeration import space_of
from traincast.planner.space.evaluation import layouts_memory
from traincast.planner.space.fits_in_memory import ROUNDING, Figure
from traincast.planner.space.layout_questions import Layouts
from traincast.planner.space.least_times import LeastTimes
from traincast.planner.space.search_space import Space
from traincast.step import Answer, Estimate, divisors, estimate_columns, rules

Search: TypeAlias = Any  # a `Found`, whose module imports this one
MAX_SLOWDOWN_LISTED: Final = 2.0  # of the best time; degrees slowed down by more share one line
HARDWARE_NUDGE: Final = 1.1  # a hardware figure is tried 10 % better
NEAR_BATCH: Final = 0.2  # of the global batch: how far one lies that is proposed instead
JOB_SIZES_TRIED: Final = 64  # numbers of GPUs tried below and above the search's
MAX_JOB_GPUS: Final = 1 << 17  # largest job tried when searching for a size that fits


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


class JobSize(Result):
    """A number of GPUs on which a plan fits."""

    gpus: Annotated[int, Doc("number of GPUs")]
    memory_bytes: Annotated[float, Doc("memory of the leanest plan there", "byte")]


class Explanation(Result):
    """Why the best plan is the best; each part is computed when it is read."""

    search: Search = field(compare=False)
    plans: list[Answer]  # the recommended plan and others, best first

    @cached_property
    def sensitivity(self) -> Annotated[dict[str, float], Doc(key="sensitivity_10_percent_better")]:
        """Relative change of the best plan's step time if a hardware figure is 10 % better."""
        return sensitivity(self.plans[0][1]) if self.plans else {}

    @cached_property
    def degrees(self) -> Annotated[list[BestOfDegree], KEY]:
        """Each tensor-parallel degree, tp times tp2."""
        return self._best_of_degrees[0]

    @cached_property
    def context_degrees(self) -> Annotated[list[BestOfDegree], KEY]:
        """Each context-parallel degree, where it is searched."""
        context = self._best_of_degrees[1]
        return context if any(row.degree > 1 for row in context) else []

    @cached_property
    def excluded(self) -> Annotated[dict[str, list[int]], Doc(key="excluded_tp")]:
        """Degrees of tp that a rule excludes, by rule."""
        return _excluded_degrees(self.search)

    @cached_property
    def possible(self) -> Annotated[list[int], Doc(key="possible_gpus", place=1)]:
        """Where no plan meets the rules: the nearest numbers of GPUs that have candidates."""
        return [] if self.search.candidates else _possible(self.search)

    @cached_property
    def held(self) -> Annotated[list[HeldKnob], Doc(place=1)]:
        """Knobs held constant, and their best other value at the best plan or nearest miss."""
        answer = self.plans[0] if self.plans else self.miss
        return [] if answer is None else held_knobs(self.search.framework, self.search.locks, answer)

    @property
    def accuracy(self) -> Annotated[dict[str, str], Doc(place=1)]:
        """What each requested recipe may cost in accuracy, with the source, by choice and value."""
        return accuracy_costs(self.search.locks)

    @property
    def miss(self) -> Answer | None:
        """The plan that comes nearest to fitting without fitting."""
        return self._misses_by_name["miss"]

    @property
    def faster(self) -> Answer | None:
        """The plan faster than the best that comes nearest to fitting without fitting."""
        return self._misses_by_name["faster"]

    @property
    def unlimited(self) -> Answer | None:
        """The best plan if memory were unlimited, where that is another one."""
        return self._misses_by_name["unlimited"]

    @cached_property
    def fits_from(self) -> tuple[int, float] | None:
        """Where nothing fits: the fewest GPUs, doubling, on which something does; least memory [byte]."""
        return None if self.plans or self.miss is None else _fits_from(self.search, self._leading)

    @cached_property
    def _best(self) -> tuple[LeastTimes, list[dict[int, int]]]:
        """Rows of the best layout of each strategy, degree of tp and degree of cp, and their times."""
        layouts: Layouts = self.search.layouts
        return layouts.best_of(*FIGURES)

    @cached_property
    def _best_of_degrees(self) -> list[list[BestOfDegree]]:
        """Fastest plans of each degree of tp, and of cp."""
        times, (_, *best) = self._best
        figures = _tensor_degree, _context_degree
        return [_degrees(self.search, figure, times, of) for figure, of in zip(figures, best, strict=True)]

    @cached_property
    def _leading(self) -> list[int]:
        """Number of the batch of each strategy whose misses are looked for."""
        times, (of_strategy, *_) = self._best
        return _leading_batches(self.search, times, of_strategy)

    @cached_property
    def _misses_by_name(self) -> dict[str, Answer | None]:
        """What memory excludes: see `Layouts.excluded_by_memory`."""
        search = self.search
        limit = min((float(est.step_seconds) for _, est in self.plans), default=0.0)
        excluded = search.layouts.excluded_by_memory(self._leading, limit)
        return {name: next(map(search.answer, of.plans(rows)), None) for name, (of, rows) in excluded.items()}

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
        if not self.plans:
            nothing = self.miss is None
            return self._nothing_possible() if nothing else self._nothing_fits()
        return [
            *(*self.binding(), *self.held_constant(), *self.lock_lines(), *self.next_best()),
            *self._degrees("tensor-parallel degree (tp × tp2)", self.degrees),
            *self._degrees("context-parallel degree (cp)", self.context_degrees),
            *(*self._excluded_lines(), *self._misses()),
        ]

    def lock_lines(self) -> list[str]:
        """Lines on what locks cost, all together and each alone."""
        return list(lock_lines(self.search))

    def held_constant(self) -> list[str]:
        """Lines on the knobs that were not searched, if any, and on the accuracy of requested recipes."""
        held = [str(knob) for knob in self.held]
        if not self.plans:  # those that would make it fit have lines of their own
            held = [knob.knob for knob in self.held if knob.knob not in self.search.framework.varied]
        return [*self._held_lines(held), *self._accuracy_lines(self.accuracy)]

    def held_in_short(self) -> list[str]:
        """Return the line that names the choices which were not searched, if there are any."""
        names = held_choices(self.search.framework, self.search.locks, self.plans[0]) if self.plans else []
        return self._held_lines(names)

    def _held_lines(self, names: Sequence[str]) -> list[str]:
        """Return a line on what is held constant, by the search, a launch format and the user, if any."""
        fixed = self.search.framework.fixed
        of_format = {name: value for name, value in self.search.locks.items() if fixed.get(name) == value}
        of_user = {name: value for name, value in self.search.locks.items() if name not in of_format}
        parts = [
            ", ".join(names),
            f"by the format: {lock_names(of_format)}" if of_format else "",
            f"by you: {lock_names(of_user)}" if of_user else "",
        ]
        held = "; ".join(filter(None, parts))
        return [f"Held constant, not searched: {held}."] if held else []

    def chosen_accuracy(self) -> list[str]:
        """Lines on the accuracy of what the recommended plan has of several recipes searched."""
        locks = self.search.locks.items() if self.plans else ()
        several = (name for name, value in locks if len(lock_values(name, value)) > 1)
        return self._accuracy_lines(f"{name}={getattr(self.plans[0][0], name)}" for name in several)

    def _accuracy_lines(self, recipes: Iterable[str]) -> list[str]:
        costs = self.accuracy
        return [f"Accuracy with {recipe}: {costs[recipe]}." for recipe in recipes if recipe in costs]

    @property
    def alternative(self) -> Answer | None:
        """The next plan with other knobs."""
        first, *others = self.plans
        return next((pair for pair in others if _knobs(pair[0]) != _knobs(first[0])), None)

    def binding(self) -> list[str]:
        """Lines on what the step is spent on, what better hardware would change, and a limit on replicas."""
        plan, best = self.plans[0]
        shares = [(float(value / best.step_seconds), name) for name, value in best.breakdown.items()]
        largest = sorted((row for row in shares if row[0] > MIN_CHANGE_REPORTED), reverse=True)
        spent = ", ".join(f"{percent(share)} {component_label(name, plan)}" for share, name in largest)
        gains = sorted(self.sensitivity.items(), key=lambda item: item[1])
        moved = [f"{name} {format_signed(change)}" for name, change in gains if change < -MIN_CHANGE_REPORTED]
        return [
            f"Spends its step on {spent}.",
            f"10% better hardware would change its step time by: {', '.join(moved) or 'nothing'}.",
            *self._replica_limit(plan),
        ]

    def _replica_limit(self, plan: Plan) -> Iterator[str]:
        """Yield a line where a near batch, or fewer GPUs, would allow more replicas."""
        gpus = self.search.gpus
        gbs = self.search.gbs
        replicas = math.gcd(gpus, gbs)
        ranks = gpus // replicas
        if plan.dp != replicas:
            return
        multiples = (max(round(gbs / n), 1) * n for n in divisors(gpus)[::-1].tolist())
        batch = next(n for n in multiples if abs(n - gbs) <= NEAR_BATCH * gbs)
        instead = []
        if (more := math.gcd(gpus, batch)) > replicas:
            instead.append(f"{more:,} with a global batch of {batch:,}")
        if ranks & (ranks - 1):  # powers of two are usual degrees
            fewer = next(n for n in range(gpus - 1, 0, -1) if n // math.gcd(n, gbs) in (1, 2, 4, 8))
            if (more := math.gcd(fewer, gbs)) > replicas:
                instead.append(f"{more:,} on {count_of(fewer, 'GPU')}")
        if instead:
            yield (
                f"dp is at most {replicas:,}, which divides {gpus:,} GPUs and the global batch of {gbs:,}: a "
                f"replica takes {ranks:,} ranks or more. dp can be {', or '.join(instead)}."
            )

    def next_best(self) -> list[str]:
        """Lines on the best alternative, if any: how it differs, and why it is not recommended if faster."""
        if self.alternative is None:
            return []
        (plan, est), (first, best) = self.alternative, self.plans[0]
        line, causes = compare_with_best(self.alternative, self.plans[0])
        change = float(est.memory_bytes - best.memory_bytes)
        odds = est.fits_probability
        direction = "more" if change > 0 else "less"
        memory = f"{gib(abs(change))} {direction}" if change else "as much memory"
        fits = "" if odds is None else f", fits with {probability_text(odds)}"
        lines = [f"Best alternative: {line}", f"    {causes}; {memory}{fits}"]
        if self.search.within is not None and est.step_seconds < best.step_seconds:
            unlikely = odds is not None and odds < self.search.fit_probability
            why = (
                "is less likely to fit"
                if unlikely
                else f"the recommended plan has {explain_preference(first, plan)}"
            )
            lines.append(f"    It is faster{' and leaner' if change < 0 else ''}, but {why}.")
        return lines

    def _degrees(self, kind: str, rows: list[BestOfDegree]) -> list[str]:
        if not rows:
            return []
        best = self.plans[0]
        capacity = float(self.search.system.accelerator.visible_bytes)
        lines = [f"Fastest plan of each {kind}:"]
        slow = []
        for row in rows:
            head = f"  {row.degree:>4}: "
            if row.best is None:
                lines.append(f"{head}does not fit, needs {gib(row.least_memory)} of {gib(capacity)}")
            elif row.best[1].step_seconds / best[1].step_seconds - 1 > MAX_SLOWDOWN_LISTED:
                slow.append(str(row.degree))
            elif row.best[0] == best[0]:
                lines.append(f"{head}the recommended plan")
            else:
                plan, causes = compare_with_best(row.best, best)
                lines += [f"{head}{plan}", f"        {causes}"]
        if slow:
            lines.append(f"  {', '.join(slow)}: over {1 + MAX_SLOWDOWN_LISTED:.0f} times as slow")
        return lines

    def _excluded_lines(self) -> list[str]:
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
        search = self.search
        return f"{search.model.title} on {count_of(search.gpus, 'GPU')} of {search.system.name}"

    def _nothing_possible(self) -> list[str]:
        locks = lock_names(self.search.locks, " = ")
        lines = [f"{self._head()}: no plan uses exactly so many GPUs{f' with {locks}' if locks else ''}."]
        lines += [f"    {line}" for line in self.broken_locks()]
        reasons = self.search.rejected.items()
        rejected = [f"    {count:,}: {reason}" for reason, count in reasons if count]
        lines += ["Rejected:", *rejected] if rejected else []
        if self.possible:
            numbers = ", ".join(f"{gpus:,}" for gpus in self.possible)
            lines.append(f"Nearest numbers of GPUs that have candidates: {numbers}.")
        return [*lines, *self.lock_lines()]

    def _nothing_fits(self) -> list[str]:
        assert self.miss is not None
        plan, est = self.miss
        fits = "surely fits" if est.verdict == "uncertain" else "fits"
        lines = [
            f"{self._head()}: none of {count_of(self.search.candidates, 'candidate')} {fits} in memory.",
            "Nearest miss:",
            f"    {plan}",
            f"    {short_of(est)}",
        ]
        fitting = [knob for knob in self.held if knob.fits]
        lines += ["    would fit with"] if fitting else []
        for knob in fitting:
            needed = gib(float(est.memory_bytes) + knob.memory_bytes_change)
            lines.append(f"        {knob.knob}={knob.other}: {needed}, {knob.speed}")
        if self.fits_from is not None:
            enough, memory = self.fits_from
            instead = f"{enough:,} GPUs instead of {self.search.gpus:,}"
            lines.append(f"    Or {instead}: the plan of least memory then needs {gib(memory)}.")
        return [*lines, *self.held_constant(), *self.lock_lines()]

    def _common_locks(self) -> dict[str, int]:
        """Return the knobs that every batch of candidates locks to the same value."""
        first, *others = (batch.locks for batch in self.search.work.batches)
        return {name: value for name, value in first if all((name, value) in locks for locks in others)}

    def _could_be_without_sp(self) -> bool:
        """Return whether plans without sequence parallelism exist that were not searched."""
        search = self.search
        return (
            all(batch.given.get("sp", True) for batch in search.work.batches)
            and False in search.framework.held.get("sp", ())
            and search.model.experts is None
        )

    def broken_locks(self) -> list[str]:
        """Return why no plan has the locked knobs, as far as arithmetic shows it."""
        locks = self._common_locks()
        gpus = self.search.gpus
        gbs = self.search.gbs
        degrees = {axis: locks[axis] for axis in AXES if axis in locks}
        product = math.prod(degrees.values())
        experts = self.search.model.experts
        job = count_of(gpus, "GPU")
        lines = [f"{axis} = {value} does not divide {job}" for axis, value in degrees.items() if gpus % value]
        if not lines and gpus % product:
            lines.append(f"{' × '.join(degrees)} = {product} does not divide {job}")
        tp = locks.get("tp", 1)
        seq = self.search.model.seq
        unequal = any(self.search.rejected.get(rule.broken) for rule in (EQUAL_SHARDS, EQUAL_PIECES))
        if seq % tp and unequal and self._could_be_without_sp():
            lines.append(f"tp = {tp} does not divide {seq:,} tokens of a sequence: that needs sp = False")
        if gpus % locks.get("replicas", 1):
            lines.append(f"replicas = {locks['replicas']} does not divide {job}")
        etp = locks.get("etp", 1)
        ulysses = locks.get("ulysses", 1)
        if etp not in (1, locks.get("tp", etp)):
            lines.append(f"etp = {etp} is neither 1 nor tp = {tp}")
        if locks.get("cp", ulysses) % ulysses:
            lines.append(f"ulysses = {ulysses} does not divide cp = {locks['cp']}")
        if gbs % locks.get("mbs", 1):
            batch = count_of(gbs, "sequence")
            lines.append(f"mbs = {locks['mbs']} does not divide the global batch of {batch}")
        if experts is not None and experts.experts % locks.get("ep", 1):
            lines.append(f"ep = {locks['ep']} does not divide the {experts.experts} experts")
        reasons = [reason for reason, of_reason in self.excluded.items() if locks.get("tp") in of_reason]
        return [*lines, *(f"tp = {locks['tp']}: {reason}" for reason in reasons)]


def _estimate(answer: Answer | None) -> Estimate | None:
    """Return the estimate of an answer, if there is one."""
    return None if answer is None else answer[1]


def _knobs(plan: Plan) -> dict[str, object]:
    """Return what tells plans apart: 1-D, and context of degree 1, are the same plan."""
    knobs = plan.columns().numbers() | plan.choices()
    return knobs | {"cp_kind": "none"} if plan.cp == 1 else knobs


def _tensor_degree(space: Space) -> Column:
    """Return the tensor-parallel degree of layouts."""
    return space.layouts.tp * space.layouts.tp2


def _context_degree(space: Space) -> Column:
    """Return the context-parallel degree of layouts."""
    return space.layouts.cp


def _strategy(space: Space) -> Column:
    """Return the number of the strategy of layouts."""
    return float(list(STRATEGIES).index(space.strategy))


FIGURES: Final = (_strategy, _tensor_degree, _context_degree)  # of which an explanation has the best each


def sensitivity(est: Estimate) -> dict[str, float]:
    """Return the relative change of a plan's step time when each hardware figure is 10 % better."""
    system = est.system
    rate = est.columns.recipe.rate
    figures = system.figures()
    paths = {"matrix FLOP/s": "accelerator.matrix_flops"}  # at 16 bits, as attention and head multiply
    if rate != "16-bit":
        paths[f"{rate} FLOP/s"] = f"accelerator.{PEAK_FIELDS[rate][0]}"
    paths |= {"vector FLOP/s": "accelerator.vector_flops", "HBM bandwidth": "accelerator.hbm_bandwidth"}
    if est.plan.offload != "none":
        paths["host link"] = "accelerator.host_bandwidth"
    speeds = ["fast network", *["network"] * (len(system.tiers) - 2), "slow network"]
    for i, (speed, tier) in enumerate(zip(speeds, system.tiers, strict=True)):
        paths[f"{speed} ({tier.name})"] = f"network.{i}.bandwidth"
    better = {
        path: figures[path] * np.where([other == path for other in paths.values()], HARDWARE_NUDGE, 1.0)
        for path in paths.values()
    }
    machines = system.with_figures(better)  # one for each figure
    changed = estimate_columns(est.model, machines, est.plan.columns(), est.gbs, est.assumptions)
    return dict(zip(paths, (changed.step_seconds / est.step_seconds - 1).tolist(), strict=True))


def _degrees(
    search: Search, degree: Figure, times: LeastTimes, best: Mapping[int, int]
) -> list[BestOfDegree]:
    """Return the fastest plan of each degree, given its row."""
    plans = times.plans(np.array(list(best.values()), np.int64))
    answers = dict(zip(best, map(search.answer, plans), strict=True))
    least = search.layouts.least_memory(degree)
    return [BestOfDegree(value, answers.get(value), least[value]) for value in sorted(least)]


def _excluded_degrees(search: Search) -> dict[str, list[int]]:
    """Return the degrees of tp that break a rule under every strategy, by the first rule broken."""
    model = search.model
    gbs = search.gbs
    kinds = dict.fromkeys((batch.strategy, batch.uneven) for batch in search.work.batches)
    reasons: dict[str, list[int]] = {}
    for tp in map(int, divisors(search.gpus)):
        broken = []
        for strategy, uneven in kinds:
            plan = Plans(tp=float(tp), mbs=float(gbs), **STRATEGIES[strategy].choices)
            failed = (rule.broken for rule in rules(uneven) if not rule.holds(model, plan, gbs))
            broken.append(next(failed, None))
        if all(broken) and broken[0] is not None:
            reasons.setdefault(broken[0], []).append(tp)
    return reasons


def _leading_batches(search: Search, times: LeastTimes, best: Mapping[int, int]) -> list[int]:
    """Return each strategy's batch with its fastest plan, or with the least memory where nothing fits.

    `best` has the row of the fastest plan by the number of the strategy.
    """
    number = {batch: index for index, batch in enumerate(search.work.batches)}
    least = search.layouts.leanest()
    leading = []
    for name in search.strategies:
        members = [index for batch, index in number.items() if batch.strategy == name]
        row = best.get(list(STRATEGIES).index(name))
        if row is not None:
            equal = times.outcome[times.timed & (times.seconds == times.seconds[row])]
            fastest = {number[times.outcomes[i].space.batch] for i in np.unique(equal)}
            members = [index for index in members if index in fastest]
        lean = least[members] <= least[members].min() * (1 + ROUNDING)
        leading.append(members[int(np.argmax(lean))])
    return sorted(leading)


def _fits_from(search: Search, leading: Sequence[int]) -> tuple[int, float] | None:
    """Return the fewest GPUs, doubling, on which some plan fits, and the least memory there [byte]."""
    batches = [search.work.batches[index] for index in leading]
    gpus = search.gpus * 2
    while gpus <= _largest_job(search.system):
        spaces = tuple(space_of(search.model, search.gbs, search.system, batch, gpus) for batch in batches)
        used = layouts_memory(spaces, with_fitted_values(search.system, search.assumptions))
        least = min(memory.min(initial=np.inf) for memory in used)
        if least <= float(search.system.accelerator.visible_bytes):
            return gpus, float(least)
        gpus *= 2
    return None


def _largest_job(system: System) -> int:
    """Return the GPUs of the largest job that is tried."""
    return MAX_JOB_GPUS if system.gpus is None else min(MAX_JOB_GPUS, int(np.max(system.gpus)))


def _possible(search: Search) -> list[int]:
    """Return the nearest numbers of GPUs, below and above the search's, that have candidates."""
    domain = search.system.fast_domain
    gpus = search.gpus
    stride = domain if gpus > domain else 1
    nearest = gpus - gpus % stride
    last = min(nearest + JOB_SIZES_TRIED * stride, _largest_job(search.system))
    below = range(nearest, 0, -stride)[:JOB_SIZES_TRIED]
    above = range(nearest + stride, last + 1, stride)

    def possible(number: int) -> bool:
        spaces = (
            space_of(search.model, search.gbs, search.system, batch, number) for batch in search.work.batches
        )
        return any(len(space.counts) for space in spaces)

    closest = (next(filter(possible, numbers), None) for numbers in (below, above))
    return [n for n in closest if n is not None]
