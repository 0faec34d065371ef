"""Result of a search: the plans found, the recommended one and why, and the work that results share."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np

from traincast.core import (
    INLINE,
    Assumptions,
    Column,
    Doc,
    Ints,
    NothingFits,
    Plan,
    Result,
    System,
    distinct_values,
    seconds,
)
from traincast.model import Model
from traincast.planner.answers.confidence import equality_sentence, probability_near_best
from traincast.planner.answers.described_plan import DescribedPlan, ParetoPlan
from traincast.planner.answers.explain import FIGURES, MAX_SLOWDOWN_LISTED, Explanation
from traincast.planner.answers.lock_prices import LockPrice, lock_sentence, searched_locks
from traincast.planner.answers.recommend import Candidate, Family, Recommendation, families, recommend
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.frameworks.spaces import Framework
from traincast.planner.question import Objective
from traincast.planner.space.enumeration import NO_PLACEMENT, enumerate_outlines
from traincast.planner.space.evaluation import (
    OUT_OF_MEMORY,
    Evaluation,
    StrategyResult,
    evaluate_all,
    groups,
    rank_layouts,
)
from traincast.planner.space.fits_in_memory import Searched
from traincast.planner.space.group_places import MOST_NEAR, near_members
from traincast.planner.space.layout_questions import Layouts
from traincast.planner.space.layouts import AllLayouts, FewLayouts
from traincast.planner.space.least_times import LeastTimes
from traincast.planner.space.search_space import Outline, Progress, by_domain, progress_after, report_round
from traincast.step import (
    MODEL_RESOLUTION,
    Answer,
    Estimate,
    Job,
    Metrics,
    SharedLayers,
    estimate_placed,
    memory_that_fits,
    metrics,
    reasons,
)

if TYPE_CHECKING:
    import polars as pl

FEW_CANDIDATES: Final = 1 << 19  # up to so many are evaluated to be drawn, and for a Pareto front
SAMPLED: Final = 1 << 11  # layouts of a larger one that are drawn
PLANS_COMPARED: Final = 3  # in an explanation, at least: the recommended one and the best alternative


@dataclass(frozen=True, repr=False, kw_only=True)
class Found:
    """Result of a search on one number of GPUs; results of equal requests are equal."""

    model: Model
    system: System
    gpus: int
    gbs: int
    assumptions: Assumptions
    framework: Framework
    objective: Objective
    locks: Mapping[str, object] = field(hash=False)
    top: int
    fit_probability: float  # that the recommended plan fits with, at least
    within: float | None  # share of the fastest time that counts as equal; None: the best is recommended
    work: "SearchWork" = field(compare=False)
    exhaustive: bool = field(default=False, compare=False)  # whether every candidate that fits is timed

    @cached_property
    def outcomes(self) -> tuple[StrategyResult, ...]:
        """Results of every batch of candidates, all of them evaluated."""
        return tuple(self.work.outcomes(self.gpus))

    @cached_property
    def layouts(self) -> Layouts:
        """Layouts as questions ask for them: all are evaluated where few would not do."""
        every = self.exhaustive or self.objective == "memory" or self.work.evaluated
        few = None if every else self.work.few
        return AllLayouts(self.outcomes, self.exhaustive) if few is None else few

    def on(self, system: System) -> "Found":
        """Return the result of the same search on a machine that differs in figures alone."""
        work = replace(self.work, system=system, gpus=(self.gpus,), _evaluations=None)
        return replace(self, system=system, work=work)

    @cached_property
    def lock_price(self) -> LockPrice | None:
        """What the locks on what the framework searches cost, all together.

        None where there are none, where they leave out nothing, where no plan fits without them either, or
        where memory ranks.
        """
        return self._price_of(tuple(searched_locks(self.framework, self.model, self.locks)))

    def describe_lock_price(self) -> str:
        """Return what all locks together cost in a sentence; empty where that is nothing."""
        return lock_sentence(self)

    @cached_property
    def lock_prices(self) -> list[LockPrice]:
        """`lock_price`, and where there are several locks what each costs alone: what it is let go for."""
        if self.lock_price is None:
            return []
        names = [*self.lock_price.locks] if len(self.lock_price.locks) > 1 else []
        return [self.lock_price, *filter(None, (self._price_of((name,)) for name in names))]

    def _price_of(self, names: tuple[str, ...]) -> LockPrice | None:
        """Return what some locks cost; see `lock_price`."""
        if not names or self.objective == "memory":
            return None
        locks = {name: value for name, value in self.locks.items() if name not in names}
        batches = self.framework.batches(self.model, locks, self.assumptions, len(self.system.tiers))
        (domain,) = by_domain(self.system, (self.gpus,), batches[0])
        work = replace(self.work, gpus=(self.gpus,), domain=domain, batches=tuple(batches), _evaluations=None)
        free = replace(self, locks=locks, work=work, top=1, exhaustive=False)
        held, every = ({replace(batch, locks=()) for batch in of.work.batches} for of in (self, free))
        leaves_out = held != every or free.candidates != self.candidates
        if not leaves_out or free.recommended is None:
            return None
        held_at = {name: self.locks[name] for name in names}
        return LockPrice(locks=held_at, held=self.recommended, free=free.recommended)

    @property
    def share_timed(self) -> float:
        """Share of the candidates that fit which have been timed in full, 0 where none fits."""
        return self.layouts.times.candidates_timed / max(self.feasible, 1)

    @property
    def job(self) -> Job:
        """Model, system, GPUs, batch and assumptions."""
        return Job.from_answer(self, self.gpus)

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies searched, in the order requested."""
        return tuple(dict.fromkeys(batch.strategy for batch in self.work.batches))

    @property
    def candidates(self) -> int:
        """Candidates that meet every rule, memory aside."""
        return self.work.candidates(self.gpus)

    @property
    def feasible(self) -> int:
        """Candidates that also fit in memory."""
        return self.layouts.feasible

    @property
    def rejected(self) -> dict[str, int]:
        """Candidates rejected, by the first rule they break (in the order of checks), and by memory."""
        return self.work.broken(self.gpus) | {OUT_OF_MEMORY: self.candidates - self.feasible}

    def __repr__(self) -> str:
        best = "nothing" if self.best is None else f"{self.best[0]} in {seconds(self.best[1].step_seconds)}"
        return f"<Found {best}; {self.feasible:,} of {self.candidates:,} candidates fit>"

    @cached_property
    def plans(self) -> list[Answer]:
        """The recommended plan, then the others of the best `top`; empty where nothing fits."""
        return [self.answer(plan) for plan in self.ranked]

    @cached_property
    def ranked(self) -> list[Plan]:
        """The recommended plan, then the others of the best `top`, best first."""
        if self.recommendation is None:
            return []
        first = self.recommendation.plan
        return [first, *(plan for plan in self._ranked(self.top) if plan != first)][: self.top]

    @property
    def families(self) -> list[Family]:
        """The best `top` plans that differ in more than `recommend.VARIED`, the recommended one first."""
        return self._families[: self.top]

    @cached_property
    def _families(self) -> list[Family]:
        """`families`, and as many as an explanation compares."""
        if self.recommended is None:
            return []
        plan, est = self.recommended
        first = Candidate(plan, est.step_seconds, est.memory_bytes)
        number = max(self.top, PLANS_COMPARED)
        if self.objective == "memory":
            return [Family(plan, ()) for plan in self._ranked(number)]
        share = MODEL_RESOLUTION
        rows = list[Family]()
        near = [first]
        while share < 2 * MAX_SLOWDOWN_LISTED and (len(rows) < number or first not in near):
            near = self.near(share)
            rows = families(near, first, self._memory_limit, self.within or 0.0)
            share *= 2
        return rows[:number]

    def near(self, share: float, most_memory: float = np.inf) -> list[Candidate]:
        """Return candidates at most a share slower than the fastest, fastest first; of each layout the best.

        Candidates that need more than `most_memory` [byte] do not count.
        """
        times, rows = self.layouts.answer(lambda times: times.within_share(share, most_memory))
        figures = times.seconds[rows].tolist(), times.memory[rows].tolist()
        return [Candidate(*row) for row in zip(times.plans(rows), *figures, strict=True)]

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """The recommended plan, the fastest, and why; None where nothing fits."""
        by_memory = self.objective == "memory"
        # what the list needs is evaluated together with what is recommended
        _, listed = self.layouts.answer(lambda times: times.best(self.top, by_memory))
        if not len(listed):
            return None
        if self.within is None:
            (best,) = self._ranked(1)
            return Recommendation(best, best)
        fits = self._fits_probability if self.assumptions.errors_known else None
        return recommend(
            self.near,
            self._memory_with,
            lambda: min(self.layouts.least_memory(lambda _: 0.0).values()),
            fits,
            self._fitting_memory,
            self.fit_probability,
            self.within,
        )

    def _fits_probability(self, candidate: Candidate) -> float:
        """Return the probability that a plan fits, which is that of its estimate."""
        return float(self.answer(candidate.plan)[1].fits_probability or 0.0)

    def _fitting_memory(self, candidate: Candidate) -> float:
        """Return the memory with which a plan would fit as probably as wanted [byte]."""
        return self.answer(candidate.plan)[1].memory_that_fits(self.fit_probability)

    @property
    def _capacity(self) -> float:
        return float(self.system.accelerator.visible_bytes)

    @property
    def _memory_limit(self) -> float:
        """Most memory of a plan that fits as probably as wanted [byte]."""
        return self._memory_with(self.fit_probability)

    def _memory_with(self, probability: float) -> float:
        """Return the most memory of a plan that fits with a probability [byte]."""
        if not self.assumptions.errors_known:
            return self._capacity
        share = self.assumptions.memory.allocator_share
        return memory_that_fits(probability, self._capacity, self.assumptions.name, share)

    def _ranked(self, top: int) -> list[Plan]:
        """Return the best plans of all batches: they are among the candidates of the best layouts."""
        by_memory = self.objective == "memory"
        times, layouts = self.layouts.answer(lambda times: times.best(top, by_memory))
        rows = []
        for index in distinct_values(times.outcome[layouts]):
            of_outcome = layouts[times.outcome[layouts] == index]
            place = dict(zip(times.layout[of_outcome].tolist(), of_outcome.tolist(), strict=True))
            outcome = times.outcomes[index]
            ranking = rank_layouts([outcome], [times.layout[of_outcome]], top, by_memory)
            figures = zip(ranking.seconds, ranking.memory, ranking.layout.tolist(), strict=True)
            for i, (*row, layout) in enumerate(figures):
                rows.append((*(row[::-1] if by_memory else row), place[layout], i, ranking.plans))
        rows.sort(key=lambda row: row[:4])
        return [plans.row(i) for *_, i, plans in rows[:top]]

    def answer(self, plan: Plan) -> Answer:
        """Return a plan of the search with its estimate."""
        if plan not in self._estimates:
            question = self.model, self.system, plan, self.gbs, self.assumptions
            self._estimates[plan] = estimate_placed(*question, self._layers_estimated)
        return plan, self._estimates[plan]

    @cached_property
    def _estimates(self) -> dict[Plan, Estimate]:
        """Estimates made so far."""
        return {}

    @cached_property
    def _layers_estimated(self) -> SharedLayers:
        """Layers of these estimates."""
        return SharedLayers()

    @property
    def least_seconds(self) -> float:
        """Step time of the fastest plan [s], infinite where nothing fits."""
        times, best = self.layouts.answer(lambda times: times.best(1))
        return float(times.seconds[best[0]]) if len(best) else np.inf

    @property
    def recommended(self) -> Answer | None:
        """The recommended plan, the first of `plans`; None where nothing fits."""
        return None if self.recommendation is None else self.answer(self.recommendation.plan)

    @property
    def best(self) -> Answer | None:
        """The recommended plan by another name."""
        return self.recommended

    @property
    def fastest(self) -> Answer | None:
        """The fastest plan that fits by its predicted memory; with objective memory the leanest."""
        return None if self.recommendation is None else self.answer(self.recommendation.fastest)

    def require_best(self) -> Answer:
        """Return the recommended plan with its estimate.

        Raises
        ------
        NothingFits
            If nothing fits; the message has the nearest miss and what would make it fit.
        """
        if self.best is None:
            raise NothingFits(str(self.explain()))
        return self.best

    @cached_property
    def within_3_percent(self) -> tuple[float, float] | None:
        """Probability that the first plan, and that any of `plans`, is within 3 % of the true best.

        None where errors are not known, memory ranks, or nothing fits.
        """
        listed = [plan for plan, _ in self.plans]
        return (
            probability_near_best(self.layouts.answer, listed)
            if listed and self.objective != "memory"
            else None
        )

    @cached_property
    def confidence(self) -> str:
        """Which of `families` are equal in time within errors; empty where errors are not known."""
        listed = [self.answer(family.plan) for family in self.families]
        return "" if self.objective == "memory" else equality_sentence(listed)

    def pareto(self) -> list[Answer]:
        """Return the plans that no other beats in both time and memory, fastest first."""
        return [self.answer(plan) for plan in self.pareto_plans]

    @cached_property
    def pareto_plans(self) -> list[Plan]:
        """The plans that no other beats in both time and memory, fastest first."""
        times, rows = self.front
        return times.plans(rows)

    @cached_property
    def pareto_points(self) -> list[ParetoPlan]:
        """The plans of `pareto` with time and memory alone, as the search knows them."""
        times, rows = self.front
        figures = zip(
            self.pareto_plans, times.seconds[rows].tolist(), times.memory[rows].tolist(), strict=True
        )
        return [ParetoPlan(plan.strategy, plan, *figures_of_plan) for plan, *figures_of_plan in figures]

    @property
    def front(self) -> tuple[LeastTimes, Ints]:
        """Pareto front of time and memory as rows, fastest first, and the times whose rows they are."""
        return self._drawn.front()

    @cached_property
    def sample(self) -> LeastTimes:
        """Layouts to be drawn: all that fit of a small search, about `SAMPLED` of a large one."""
        return self._drawn.sample(SAMPLED)

    @cached_property
    def _drawn(self) -> Layouts:
        """Layouts as a front and drawings ask for them: all are evaluated of a small search."""
        if self.candidates > FEW_CANDIDATES or isinstance(self.layouts, AllLayouts):
            return self.layouts
        return AllLayouts(self.outcomes, self.exhaustive)

    def find_lists(self) -> None:
        """Find the Pareto front and the plans an explanation compares in one pass if that spares work."""
        if self._drawn is self.layouts:
            self.layouts.find_together(*FIGURES, front=True)

    def explain(self) -> Explanation:
        """Explain what limits the best plan, why others are slower, and what would make misses fit."""
        return self._explanation

    @cached_property
    def _explanation(self) -> Explanation:
        return Explanation(self, [self.answer(family.plan) for family in self._families])

    def table(self) -> list[dict[str, Any]]:
        """Return the best plans as rows: rank, knobs, time [s], memory [byte] and seconds by component."""
        return [
            {"rank": rank, "strategy": plan.strategy, **est.to_dict()["plan"]}
            | {"step_seconds": est.step_seconds, "memory_bytes": est.memory_bytes}
            | est.uncertainty()
            | est.breakdown
            for rank, (plan, est) in enumerate(self.plans, 1)
        ]

    def to_polars(self) -> "pl.DataFrame":
        """Return `table` as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.table(), infer_schema_length=None)

    def to_dict(self, **figures: Any) -> dict[str, Any]:
        """Return the search as JSON values in SI units, as ``traincast plan --json`` prints it.

        Parameters
        ----------
        **figures
            Keyword arguments of `traincast.metrics`: ``tokens``, ``price``, ``restart_seconds``.
        """
        return self.record(**figures).to_dict()

    def record(self, **figures: Any) -> "SearchRecord":
        """Return the search with meaning and unit; takes keyword arguments of `traincast.metrics`."""
        self.find_lists()
        first, listed = self.within_3_percent or (None, None)
        return SearchRecord(
            job=self.job,
            framework=self.framework.label,
            objective=self.objective,
            strategies=self.strategies,
            locks=dict(self.locks),
            lock_prices=self.lock_prices,
            candidates=self.candidates,
            feasible=self.feasible,
            rejected=self.rejected,
            first_within_3_percent=first,
            listed_within_3_percent=listed,
            recommended=None if self.recommended is None else DescribedPlan.from_answer(self.recommended),
            fastest=None if self.fastest is None else DescribedPlan.from_answer(self.fastest),
            reason=self.recommendation.reason if self.recommendation else "",
            confidence=self.confidence,
            plans=[PlanWithMetrics(est, metrics(est, **figures)) for _, est in self.plans],
            families=[self._family_record(family) for family in self.families],
            pareto=self.pareto_points,
            explanation=self.explain(),
        )

    def _family_record(self, family: Family) -> "FamilyOfPlans":
        return FamilyOfPlans(DescribedPlan.from_answer(self.answer(family.plan)), family.varied_knobs())

    def to_json(self, **figures: object) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(**figures), indent=2, allow_nan=False)


class PlanWithMetrics(Result):
    """Estimate and metrics of one plan."""

    estimate: Annotated[Estimate, INLINE]
    metrics: Annotated[Metrics, Doc("throughput, utilisation and cost")]


class FamilyOfPlans(Result):
    """Plans that differ in vp, mbs, recomputation and placement alone, and are about as fast."""

    plan: Annotated[DescribedPlan, INLINE]
    others: Annotated[
        dict[str, list[Any]],
        Doc("other values of each knob alone, whose time is within 2%", kind="object"),
    ]


class SearchRecord(Result, kw_only=True):
    """The recommended plan, the best ones, and why the others lose."""

    job: Annotated[Job, INLINE]
    framework: Annotated[str, Doc("framework whose plans were searched")]
    objective: Annotated[Objective, Doc("what is best")]
    strategies: Annotated[tuple[str, ...], Doc("strategies that were searched")]
    locks: Annotated[dict[str, Any], Doc("knobs held constant, and their values", kind="object")]
    lock_prices: Annotated[
        list[LockPrice],
        Doc("what locks on searched knobs cost: all together first, then each alone where there are several"),
    ]
    candidates: Annotated[int, Doc("candidates that meet every rule")]
    feasible: Annotated[int, Doc("candidates that fit in memory")]
    rejected: Annotated[
        dict[str, int], Doc("candidates rejected, by reason: the first rule broken, or memory")
    ]
    first_within_3_percent: Annotated[
        Column | None,
        Doc(
            "probability that the first plan is within 3 % of the best, where errors are known", optional=True
        ),
    ] = None
    listed_within_3_percent: Annotated[
        Column | None, Doc("probability that any of `plans` is, where errors are known", optional=True)
    ] = None
    recommended: Annotated[DescribedPlan | None, Doc("the recommended plan; null where nothing fits")]
    fastest: Annotated[DescribedPlan | None, Doc("the fastest plan that fits; null where nothing does")]
    reason: Annotated[str, Doc("why this plan is recommended, and what it costs against the fastest")]
    confidence: Annotated[str, Doc("which of `families` are equal in time, where errors are known")]
    families: Annotated[
        list[FamilyOfPlans], Doc("different plans, the recommended one first: those alike are one entry")
    ]
    plans: Annotated[
        list[PlanWithMetrics],
        Doc("the recommended plan, then the best others; empty where nothing fits"),
    ]
    pareto: Annotated[
        list[ParetoPlan], Doc("plans that no other beats in both time and memory, fastest first")
    ]
    explanation: Annotated[Explanation, Doc("what limits the recommended plan, and why others lose")]


@dataclass(eq=False)
class SearchWork:
    """What searches on numbers of GPUs share that use as much of a fast domain."""

    model: Model
    system: System
    gpus: tuple[int, ...]  # ascending
    domain: int  # GPUs of a fast domain that are used
    gbs: int
    assumptions: Assumptions
    batches: tuple[CandidateBatch, ...]
    _evaluations: list[Evaluation] | None = None  # of the batches, once all were evaluated

    def prepare(self, every_up_to: float, progress: Progress | None = None) -> None:
        """Enumerate, then evaluate at most `every_up_to` layouts, or count what fits and bound the times."""
        shapes = len({batch.shape for batch in self.batches})
        batches = len(self.batches)
        of_shapes = progress_after(
            progress, 0, shapes + (1 + (self._few_do and every_up_to < np.inf)) * batches
        )
        enumerate_outlines(self.model, self.gpus, self.domain, self.gbs, self.batches, of_shapes)
        if self.few is None or sum(each.rows for each in self.outlines.values()) <= every_up_to:
            self.evaluate(progress_after(progress, shapes, shapes + batches))
        else:
            self.few.prepare(progress_after(progress, shapes, shapes + 2 * batches))

    @cached_property
    def outlines(self) -> dict[CandidateBatch, Outline]:
        """Layouts of every shape of batches."""
        return enumerate_outlines(self.model, self.gpus, self.domain, self.gbs, self.batches)

    @cached_property
    def few(self) -> FewLayouts | None:
        """Layouts evaluated as far as needed; None for several numbers of GPUs or of too many placements."""
        if not self._few_do:
            return None
        return FewLayouts(Searched(self.outlines, self.batches, self.system, self.assumptions))

    @property
    def _few_do(self) -> bool:
        return len(self.gpus) == 1 and len(near_members(self.system, self.gpus[0])) <= MOST_NEAR

    @property
    def evaluated(self) -> bool:
        """Whether every layout was evaluated."""
        return self._evaluations is not None

    def candidates(self, gpus: int) -> int:
        """Return the candidates on a number of GPUs that meet every rule."""
        job = self.gpus.index(gpus)
        number = dict[CandidateBatch, int]()
        for shape, outline in self.outlines.items():
            low, high = outline.space.starts[job : job + 2]
            number[shape] = int(outline.counts[low:high] @ outline.size[low:high])
        return sum(number[batch.shape] for batch in self.batches)

    def broken(self, gpus: int) -> dict[str, int]:
        """Count candidates on a number of GPUs by the first rule they break, in the order of checks."""
        job = self.gpus.index(gpus)
        counts = Counter[str]()
        for batch in self.batches:
            rejected = self.outlines[batch.shape].space.rejected
            counts.update({reason: int(of_jobs[job]) for reason, of_jobs in rejected.items()})
        of_frameworks = dict.fromkeys(rule.broken for batch in self.batches for rule in batch.rules)
        ordered = [*reasons(), *of_frameworks, NO_PLACEMENT]
        return {reason: counts[reason] for reason in ordered if counts[reason]}

    def evaluate(self, progress: Progress | None = None) -> list[Evaluation]:
        """Evaluate every batch."""
        spaces = [self.outlines[batch.shape].of_batch(batch) for batch in self.batches]
        evaluations: dict[int, Evaluation] = {}
        for group in groups(spaces):
            of_group = evaluate_all(tuple(spaces[i] for i in group), self.system, self.assumptions)
            for index, evaluation in zip(group, of_group, strict=True):
                evaluations[index] = evaluation
                if progress is not None:
                    progress(len(evaluations), len(spaces), int(evaluation.space.counts.sum()))
            report_round(len(evaluations), len(spaces))
        self._evaluations = [evaluations[index] for index in range(len(spaces))]
        return self._evaluations

    def outcomes(self, gpus: int) -> list[StrategyResult]:
        """Return the results of all batches on a number of GPUs."""
        job = self.gpus.index(gpus)
        return [evaluation.outcomes()[job] for evaluation in self._evaluations or self.evaluate()]
