"""Search every candidate: the best few, the Pareto front of time and memory, and why others lose.

Candidates of equal time are ordered by memory, then by strategy as requested, then by enumeration order (tp,
tp2 or cp, pp, mbs, panels and placement ascending).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_args

import numpy as np

from traincast.catalog.load import as_model, as_system
from traincast.core.assumptions import Assumptions
from traincast.core.errors import (
    ErrorCollector,
    InputError,
    NothingFits,
    type_problems,
    unknown_name_error,
    whole_number_problems,
)
from traincast.core.knobs import ALIASES, STRATEGIES
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.quantities import Column
from traincast.core.result import INLINE, Doc, Result
from traincast.core.system import System
from traincast.planner.confidence import probability_near_best
from traincast.planner.evaluation import StrategyResult, evaluate_all, rank_layouts, rejections
from traincast.planner.explain import Explanation, explain
from traincast.planner.framework_spaces import (
    FRAMEWORKS,
    CandidateBatch,
    Framework,
    check_locked_values,
    default_framework,
)
from traincast.planner.framework_spaces import framework as framework_named
from traincast.planner.least_times import LeastTimes
from traincast.planner.search_space import enumerate_spaces
from traincast.step.arguments import check_assumptions, check_gbs, check_size
from traincast.step.estimate import Answer, Estimate, Job, estimate
from traincast.step.metrics import Metrics, metrics

if TYPE_CHECKING:
    import polars as pl

Objective = Literal["time", "throughput", "cost", "memory"]
OBJECTIVES: Final = get_args(Objective)
Progress: TypeAlias = Callable[
    [int, int, int], None
]  # batches done, batches in total, candidates of the last


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
    locks: Mapping[str, Any] = field(hash=False)
    top: int
    outcomes: tuple[StrategyResult, ...] = field(compare=False)  # one per batch of candidates
    exhaustive: bool = field(default=False, compare=False)  # whether every candidate that fits is timed

    @cached_property
    def times(self) -> LeastTimes:
        """Layouts that fit, with the least time of those that have mattered so far."""
        return LeastTimes.of(self.outcomes, self.exhaustive)

    @property
    def job(self) -> Job:
        """Model, system, GPUs, batch and assumptions."""
        return Job.of(self, self.gpus)

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies searched, in the order requested."""
        return tuple(dict.fromkeys(outcome.space.strategy for outcome in self.outcomes))

    @property
    def candidates(self) -> int:
        """Candidates that meet every rule, memory aside."""
        return sum(outcome.candidates for outcome in self.outcomes)

    @property
    def feasible(self) -> int:
        """Candidates that also fit in memory."""
        return sum(outcome.feasible for outcome in self.outcomes)

    @property
    def rejected(self) -> dict[str, int]:
        """Candidates rejected, by the first rule they break (in the order of checks), and by memory."""
        return rejections(self.outcomes)

    def __repr__(self) -> str:
        best = "nothing" if self.best is None else f"{self.best[0]} in {self.best[1].step_seconds:.4g} s"
        return f"<Found {best}; {self.feasible:,} of {self.candidates:,} candidates fit>"

    @cached_property
    def plans(self) -> list[Answer]:
        """The best `top` plans with their estimates, best first; empty where nothing fits."""
        return [self._answer(plan) for plan in self.ranked]

    @cached_property
    def ranked(self) -> list[Plan]:
        """The best `top` plans, best first."""
        return self._ranked(self.top)

    def _ranked(self, top: int) -> list[Plan]:
        """Return the best plans of all batches: they are among the candidates of the best layouts."""
        by_memory = self.objective == "memory"
        layouts, times = self.times.best(top, by_memory), self.times
        rows = []
        for index in np.unique(times.outcome[layouts]):
            of_outcome = times.layout[layouts[times.outcome[layouts] == index]]
            ranking = rank_layouts([self.outcomes[index]], [of_outcome], top, by_memory)
            for i, row in enumerate(zip(ranking.seconds, ranking.memory, strict=True)):
                rows.append((*(row[::-1] if by_memory else row), int(index), i, ranking.plans))
        rows.sort(key=lambda row: row[:4])
        return [plans.row(i) for *_, i, plans in rows[:top]]

    def _answer(self, plan: Plan) -> Answer:
        """Return a plan with its estimate."""
        est = estimate(self.model, self.system, plan, gbs=self.gbs, assumptions=self.assumptions)
        return plan, est

    @property
    def least_seconds(self) -> float:
        """Step time of the best plan [s], infinite where nothing fits."""
        best = self.times.best(1)
        return float(self.times.seconds[best[0]]) if len(best) else np.inf

    @property
    def best(self) -> Answer | None:
        """The best plan, or None where nothing fits."""
        return self.plans[0] if self.plans else None

    def require_best(self) -> Answer:
        """Return the best plan with its estimate.

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
        """Probability that the first plan, and that any of `plans`, is within 3 % of the fastest candidate.

        None where errors are not known, memory ranks, or nothing fits.
        """
        listed = [plan for plan, _ in self.plans]
        return probability_near_best(self.times, listed) if listed and self.objective != "memory" else None

    def pareto(self) -> list[Answer]:
        """Return the plans that no other beats in both time and memory, fastest first."""
        return [self._answer(plan) for plan in self.times.plans(self.times.front())]

    def explain(self) -> Explanation:
        """Explain what limits the best plan, why others are slower, and what would make misses fit."""
        return self._explanation

    @cached_property
    def _explanation(self) -> Explanation:
        plans = self.plans if len(self.plans) > 2 else [self._answer(plan) for plan in self._ranked(3)]
        return explain(self.times, plans, self.framework, self.locks)

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
        first, listed = self.within_3_percent or (None, None)
        return SearchRecord(
            job=self.job,
            framework=self.framework.name,
            objective=self.objective,
            strategies=self.strategies,
            candidates=self.candidates,
            feasible=self.feasible,
            rejected=self.rejected,
            first_within_3_percent=first,
            listed_within_3_percent=listed,
            plans=[PlanWithMetrics(est, metrics(est, **figures)) for _, est in self.plans],
            pareto=[
                ParetoPlan(est.strategy, plan, est.step_seconds, est.memory_bytes)
                for plan, est in self.pareto()
            ],
            explanation=self.explain(),
        )

    def to_json(self, **figures: Any) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(**figures), indent=2, allow_nan=False)


@dataclass(frozen=True)
class PlanWithMetrics(Result):
    """Estimate and metrics of one plan."""

    estimate: Annotated[Estimate, INLINE]
    metrics: Annotated[Metrics, Doc("throughput, utilisation and cost")]


@dataclass(frozen=True)
class ParetoPlan(Result):
    """Time and memory of one plan."""

    strategy: Annotated[str, Doc("strategy that shards a layer")]
    plan: Annotated[Plan, Doc("every knob and choice of the plan by name")]
    step_seconds: Annotated[Column, Doc("time of one optimizer step", "s")]
    memory_bytes: Annotated[Column, Doc("memory of the fullest rank", "byte")]


@dataclass(frozen=True, kw_only=True)
class SearchRecord(Result):
    """The best plans, and why the others lose."""

    job: Annotated[Job, INLINE]
    framework: Annotated[str, Doc("framework whose plans were searched")]
    objective: Annotated[Objective, Doc("what is best")]
    strategies: Annotated[tuple[str, ...], Doc("strategies that were searched")]
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
    plans: Annotated[list[PlanWithMetrics], Doc("the best plans, best first; empty where nothing fits")]
    pareto: Annotated[
        list[ParetoPlan], Doc("plans that no other beats in both time and memory, fastest first")
    ]
    explanation: Annotated[Explanation, Doc("why the best plan is the best")]


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """Checked arguments of a search, made by `search_request`."""

    model: Model
    system: System
    gpus: tuple[int, ...]
    gbs: int
    assumptions: Assumptions
    framework: Framework
    objective: Objective
    locks: Mapping[str, Any]
    top: int
    batches: Sequence[CandidateBatch]
    exhaustive: bool = False

    def answer(self, progress: Progress | None = None) -> list[Found]:
        """Search, and return the result for each number of GPUs.

        Numbers of GPUs that use as much of a fast domain share a search.
        """
        system, ordered = self.system, self.batches[0].ordered
        domains = {n: system.domain(n) if ordered else system.fast_domain for n in self.gpus}
        outcomes: dict[int, list[StrategyResult]] = {n: [] for n in domains}
        for domain in dict.fromkeys(domains.values()):
            sizes = tuple(n for n in domains if domains[n] == domain)
            spaces = enumerate_spaces(self.model, sizes, domain, self.gbs, tuple(self.batches))
            for done, evaluation in enumerate(evaluate_all(spaces, system, self.assumptions), 1):
                for outcome in evaluation.outcomes():
                    outcomes[outcome.gpus].append(outcome)
                if progress is not None:
                    progress(done, len(spaces), int(evaluation.space.counts.sum()))
        request = {name: value for name, value in vars(self).items() if name not in ("gpus", "batches")}
        return [Found(**request, gpus=n, outcomes=tuple(outcomes[n])) for n in self.gpus]


def search(
    model: str | Path | Model,
    system: str | Path | System,
    *,
    gpus: int,
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = 10,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, Any] | None = None,
    objective: Objective = "time",
    exhaustive: bool = False,
    progress: Progress | None = None,
) -> Found:
    """Search every candidate plan that uses all of `gpus`.

    Parameters
    ----------
    model : str, Path or Model
        The transformer, or its name or file as for `load_model`.
    system : str, Path or System
        The machine, or its name or file as for `load_system`.
    gpus : int
        GPUs in the job; no more than the system has.
    gbs : int, optional
        Global batch [sequences]; the model's own where it has one.
    assumptions : str or Assumptions, optional
        Assumptions, or the name of a preset or software stack; that of the framework if left out.
    strategy : str or sequence of str, optional
        ``"1d"``, ``"summa"``, ``"context"`` (or ``"2d"``, ``"2d-seqp"``, as the paper's code calls the latter
        two), ``"ring"``, ``"ulysses"``, ``"hybrid"``, one or several; a comma-separated string will do. Those
        of the framework if left out.
    top : int
        How many plans to list.
    vp : int, optional
        Virtual stages of a device (interleaved 1F1B), the same for every candidate.
    framework : str or Framework, optional
        What is searched: what a framework can run. If left out, the paper's space for its strategies and for
        models without a vocabulary, else that of Megatron-Core.
    locks : mapping of str to value, optional
        Knobs and choices of a plan that have one value only, such as ``{"tp": 8, "zero": 3}``.
    objective : {"time", "throughput", "cost", "memory"}
        What is best. All of the GPUs are used, so that the least time is the most throughput and the least
        cost.
    exhaustive : bool
        Whether every candidate that fits is timed, also those that a bound from below on their time excludes.
        The answers are the same.
    progress : callable, optional
        Called after each batch of candidates with the number of batches done, that of all, and the batch's
        candidates.

    Returns
    -------
    Found
        The best plans, and counts and reasons for the others; no plans where nothing fits.

    Raises
    ------
    InputError
        If an argument is invalid; all mistakes at once.
    """
    options: dict[str, Any] = {
        "assumptions": assumptions,
        "strategy": strategy,
        "framework": framework,
        "locks": locks,
    }
    options |= {"top": top, "vp": vp, "objective": objective, "exhaustive": exhaustive}
    return search_each(model, system, gpus=(gpus,), gbs=gbs, progress=progress, **options)[0]


def search_each(
    model: str | Path | Model,
    system: str | Path | System,
    *,
    gpus: Sequence[int],
    gbs: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Found]:
    """Search as `search` does on several numbers of GPUs, which share what they have in common."""
    errors = ErrorCollector("search")
    checked_model, checked_system = errors.catch(as_model, model), errors.catch(as_system, system)
    checked_gbs = errors.catch(check_gbs, gbs, checked_model)
    request = search_request(errors, checked_model, checked_system, gpus, checked_gbs, **options)
    return errors.require(request).answer(progress)


def search_request(
    errors: ErrorCollector,
    model: Model | None,
    system: System | None,
    gpus: Sequence[int],
    gbs: int | None,
    *,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = 10,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, Any] | None = None,
    objective: Objective = "time",
    exhaustive: bool = False,
) -> SearchRequest | None:
    """Check the arguments of a search; None where one is wrong, and `errors` then has every mistake.

    `model`, `system` and `gbs` are None where an error was collected for them before.
    """
    sizes = errors.catch(check_sizes, gpus, system)
    errors.catch(check_ranking, top, objective)
    locked = errors.catch(_check_locks, locks, vp)
    space = errors.catch(_choose, model, errors.catch(check_strategies, strategy), framework)
    assumed = errors.catch(check_assumptions, assumptions, (space or FRAMEWORKS["any"]).assumptions)
    if errors.errors or model is None or system is None or sizes is None or gbs is None:
        return None
    if locked is None or space is None or assumed is None:
        return None
    batches = errors.catch(space.batches, model, locked, assumed)
    if batches is None:
        return None
    return SearchRequest(
        model=model,
        system=system,
        gpus=sizes,
        gbs=gbs,
        assumptions=assumed,
        framework=space,
        objective=objective,
        locks=locked,
        top=top,
        batches=batches,
        exhaustive=exhaustive,
    )


def check_sizes(gpus: Any, system: System | None = None) -> tuple[int, ...]:
    """Return numbers of GPUs, checked to be whole and no larger than the system."""
    if isinstance(gpus, str) or not isinstance(gpus, Iterable):
        raise InputError("search", [f"gpus = {gpus!r}: must be a sequence of whole numbers"])
    errors, sizes = ErrorCollector("search"), list(gpus)
    problems = [problem for n in sizes for problem in whole_number_problems("gpus", n)]
    problems += [] if sizes else ["gpus: give at least one number"]
    if problems:
        raise InputError("search", problems)
    for n in sizes:
        errors.catch(check_size, system, n)
    errors.raise_any()
    return tuple(int(n) for n in sizes)


def check_ranking(top: int, objective: str = "time") -> None:
    """Refuse an invalid number of plans or an unknown objective."""
    problems = whole_number_problems("top", top)
    if objective not in OBJECTIVES:
        problems.append(str(unknown_name_error("objective", str(objective), OBJECTIVES)))
    if problems:
        raise InputError("search", problems)


def check_strategies(strategy: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return strategies by their canonical names, each once; None where none is given."""
    if strategy is None:
        return None
    if wrong := type_problems("strategy", strategy, "a name or a sequence of names", str, Sequence):
        raise InputError("search", wrong)
    names = [part.strip() for part in strategy.split(",")] if isinstance(strategy, str) else list(strategy)
    problems = [problem for name in names for problem in type_problems("strategy", name, "a name", str)]
    if not problems:
        names = list(dict.fromkeys(ALIASES.get(name, name) for name in names))
        unknown = [name for name in names if name not in STRATEGIES]
        problems = [str(unknown_name_error("strategy", name, STRATEGIES)) for name in unknown]
    if not names:
        problems.append(f"strategy: give at least one of {', '.join(STRATEGIES)}")
    if problems:
        raise InputError("search", problems)
    return tuple(names)


def _check_locks(locks: Mapping[str, Any] | None, vp: int | None) -> dict[str, Any]:
    """Return the locks as a mapping of names, `vp` among them."""
    names = "a mapping of names of knobs and choices to values"
    if wrong := type_problems("locks", locks, names, Mapping, type(None)):
        raise InputError("search", wrong)
    locked = dict(locks or {})
    keys = "a mapping whose keys are names"
    problems = [problem for name in locked for problem in type_problems("locks", name, keys, str)]
    problems += [] if vp is None else whole_number_problems("vp", vp)
    if vp is not None and locked.get("vp", vp) != vp:
        problems.append(f"vp = {vp!r} contradicts locks, where vp = {locked['vp']!r}: give one of them")
    if problems:
        raise InputError("search", problems)
    check_locked_values(locked)
    return locked if vp is None else locked | {"vp": vp}


def _choose(
    model: Model | None, strategies: tuple[str, ...] | None, framework: str | Framework | None
) -> Framework:
    """Return the framework that is searched, restricted to the given strategies."""
    if framework is None:
        chosen = FRAMEWORKS["any"] if model is None else default_framework(model, strategies)
    else:
        if wrong := type_problems("framework", framework, "a name or a Framework", str, Framework):
            raise InputError("search", wrong)
        chosen = framework_named(framework)
    if strategies is None:
        return chosen
    runs = f"it runs {', '.join(chosen.runs)}, and any runs all"
    refused = [name for name in strategies if name not in chosen.runs]
    if refused:
        problems = [f"strategy = {name!r}: {chosen.name} does not run it; {runs}" for name in refused]
        raise InputError("search", problems)
    return replace(chosen, strategies=strategies)
