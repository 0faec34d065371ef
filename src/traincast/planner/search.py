"""Search every candidate: the best few, the Pareto front of time against memory, and why all others were rejected.

Candidates of equal time are ordered by memory, then by strategy as requested, then by enumeration order (tp, tp2 or cp, pp, mbs,
panels and placement ascending).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from traincast.catalog.load import as_model, as_system, load_model
from traincast.core.assumptions import CALIBRATED, Assumptions
from traincast.core.errors import (
    ErrorCollector,
    InputError,
    type_problems,
    unknown_name_error,
    whole_number_problems,
)
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.plan_choices import ALIASES, STRATEGIES
from traincast.core.system import System
from traincast.planner.confidence import probability_near_best
from traincast.planner.evaluation import StrategyResult, evaluate, fastest, rank, rejections
from traincast.planner.explain import Explanation, explain
from traincast.planner.framework_refusals import refused
from traincast.planner.framework_spaces import FRAMEWORKS, CandidateBatch, Framework, default_framework
from traincast.planner.framework_spaces import framework as known_framework
from traincast.planner.search_space import enumerate_space
from traincast.step.arguments import check_assumptions, check_gbs, check_size
from traincast.step.estimate import Answer, estimate

Objective = Literal["time", "throughput", "cost", "memory"]
OBJECTIVES: Final = get_args(Objective)
Progress: TypeAlias = Callable[
    [int, int, int], None
]  # (batches done, batches in total, candidates in the last batch)
ANY_MODEL: Final = "gpt-125m"  # locks are checked on it where the model itself is wrong


@dataclass(frozen=True, repr=False)
class Found:
    """Result of a search on one number of GPUs."""

    model: Model
    system: System
    gpus: int
    gbs: int
    assumptions: Assumptions
    top: int
    outcomes: tuple[StrategyResult, ...]  # one per batch of candidates
    framework: Framework
    objective: Objective = "time"
    locks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies searched, in the order requested."""
        return tuple(dict.fromkeys(outcome.evaluation.space.strategy for outcome in self.outcomes))

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
        """Candidates rejected, by the first rule they break (in the order rules are checked), and by memory."""
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
        """Return the best plans of all batches; only batches that can have one of them are ranked."""
        by_memory = self.objective == "memory"
        figures = [outcome.memory if by_memory else outcome.least_seconds for outcome in self.outcomes]
        smallest = [np.partition(column, top)[:top] if top < len(column) else column for column in figures]
        best = np.sort(np.concatenate(smallest))[:top]
        leading = [index for index, column in enumerate(figures) if len(column) and column.min() <= best[-1]]
        rankings = {index: rank([self.outcomes[index]], top, by_memory) for index in leading}
        rows = [
            (*(row[::-1] if by_memory else row), index, i)
            for index, ranking in rankings.items()
            for i, row in enumerate(zip(ranking.seconds, ranking.memory, strict=True))
        ]
        return [rankings[index].plans.row(i) for _, _, index, i in sorted(rows)[:top]]

    def _answer(self, plan: Plan) -> Answer:
        """Return a plan with its estimate."""
        return plan, estimate(self.model, self.system, plan, self.gbs, self.assumptions)

    @property
    def least_seconds(self) -> float:
        """Step time of the best plan [s], infinite where nothing fits."""
        return float(
            min((outcome.least_seconds.min(initial=np.inf) for outcome in self.outcomes), default=np.inf)
        )

    @property
    def best(self) -> Answer | None:
        """The best plan, or None where nothing fits."""
        return self.plans[0] if self.plans else None

    @cached_property
    def within_3_percent(self) -> tuple[float, float] | None:
        """Probability that the first plan, and that any of `plans`, is really within 3 % of the fastest candidate's time.

        None where errors are not known, memory ranks, or nothing fits.
        """
        listed = [plan for plan, _ in self.plans]
        return probability_near_best(self.outcomes, listed) if listed and self.objective != "memory" else None

    def pareto(self) -> list[Answer]:
        """Return the plans that no other beats in both time and memory, fastest first."""
        return [
            self._answer(*fastest(self.outcomes[index], np.array([layout]))) for index, layout in self.front()
        ]

    def front(self) -> list[tuple[int, int]]:
        """Return index of the outcome and layout of each plan that no other beats in both time and memory, fastest first."""
        index = np.repeat(np.arange(len(self.outcomes)), [len(outcome.fitting) for outcome in self.outcomes])
        memory, seconds, layout = (
            np.concatenate([getattr(outcome, name) for outcome in self.outcomes] or [np.zeros(0)])
            for name in ("memory", "least_seconds", "fitting")
        )
        order = np.lexsort((seconds, memory))  # a stable order: ties stay as enumerated
        faster = seconds[order] < np.minimum.accumulate(np.r_[np.inf, seconds[order][:-1]])
        best = order[faster][::-1]
        return list(zip(index[best].tolist(), layout[best].tolist(), strict=True))

    def table(self) -> list[dict[str, Any]]:
        """Return the best plans as rows: rank, every knob, time [s], memory [byte] and seconds by component."""
        return [
            {"rank": rank, "strategy": plan.strategy, **est.summary()["plan"]}
            | {
                "step_seconds": est.step_seconds,
                "memory_bytes": est.memory_bytes,
                **est.uncertainty(),
                **est.breakdown,
            }
            for rank, (plan, est) in enumerate(self.plans, 1)
        ]

    def explain(self) -> Explanation:
        """Explain what limits the best plan, why the alternatives are slower, and what would make the nearest miss fit."""
        plans = self.plans if len(self.plans) > 2 else [self._answer(plan) for plan in self._ranked(3)]
        return explain(self.outcomes, plans, self.framework, self.locks)


@dataclass(frozen=True)
class SearchRequest:
    """Checked arguments of a search, made by `search_request`."""

    model: Model
    system: System
    gpus: list[int]
    gbs: int
    assumptions: Assumptions
    framework: Framework
    batches: list[CandidateBatch]
    top: int
    objective: Objective
    locks: Mapping[str, Any]

    def answer(self, told: Progress | None = None) -> list[Found]:
        """Search, and return the result for each number of GPUs."""
        return [
            Found(
                *(self.model, self.system, n, self.gbs, self.assumptions, self.top, outcomes, self.framework),
                objective=self.objective,
                locks=self.locks,
            )
            for n, outcomes in zip(self.gpus, _outcomes(self, told), strict=True)
        ]


def search(
    model: str | Path | Model,
    system: str | Path | System,
    gpus: int,
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = 10,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, Any] | None = None,
    objective: Objective = "time",
    told: Progress | None = None,
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
        Name of a preset or one's own; that of the framework if left out.
    strategy : str or sequence of str, optional
        ``"1d"``, ``"summa"``, ``"context"`` (or ``"2d"``, ``"2d-seqp"``, as the paper's code calls the latter two), ``"ring"``,
        ``"ulysses"``, ``"hybrid"``, one or several; a comma-separated string will do. Those of the framework if left out.
    top : int
        How many plans to keep.
    vp : int, optional
        Virtual stages of a device (interleaved 1F1B), the same for every candidate.
    framework : str or Framework, optional
        What is searched: what a framework can run. If left out, the paper's space for its strategies and for models without a
        vocabulary, else that of Megatron-Core.
    locks : mapping of str to value, optional
        Knobs and choices of a plan that have one value only, such as ``{"tp": 8, "zero": 3}``.
    objective : {"time", "throughput", "cost", "memory"}
        What is best. All of the GPUs are used, so that the least time is the most throughput and the least cost.
    told : callable, optional
        Called after each batch of candidates with the number of batches done, that of all, and the batch's candidates.

    Returns
    -------
    Found
        The best plans, and counts and reasons for the others; no plans where nothing fits.

    Raises
    ------
    InputError
        If an argument is invalid; all mistakes at once.
    """
    return search_each(
        model, system, (gpus,), gbs, assumptions, strategy, top, vp, framework, locks, objective, told
    )[0]


def search_each(
    model: str | Path | Model,
    system: str | Path | System,
    gpus: Sequence[int],
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = 10,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, Any] | None = None,
    objective: Objective = "time",
    told: Progress | None = None,
) -> list[Found]:
    """`search` on several numbers of GPUs, which share what they have in common."""
    mistakes = ErrorCollector("search")
    transformer, machine = mistakes.catch(as_model, model), mistakes.catch(as_system, system)
    batch = mistakes.catch(check_gbs, gbs, transformer)
    request = search_request(
        mistakes,
        transformer,
        machine,
        gpus,
        batch,
        assumptions,
        strategy,
        top,
        vp,
        framework,
        locks,
        objective,
    )
    return mistakes.require(request).answer(told)


def search_request(
    mistakes: ErrorCollector,
    model: Model | None,
    system: System | None,
    gpus: Sequence[int],
    gbs: int | None,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = 10,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, Any] | None = None,
    objective: Objective = "time",
) -> SearchRequest | None:
    """Check the arguments of a search; None where one is wrong, and `mistakes` then has every error.

    Parameters
    ----------
    mistakes : ErrorCollector
        Collects the errors.
    model, system, gbs : optional
        As for `search`; None where an error was collected for them before. The other arguments are those of `search`.
    """
    numbers = mistakes.catch(_check_sizes, gpus, system)
    mistakes.catch(_check_ranking, top, objective)
    checked_locks = mistakes.catch(_check_locks, locks, vp)
    chosen = mistakes.catch(_choose, model or load_model(ANY_MODEL), strategy, framework)
    assumed = mistakes.catch(
        check_assumptions, assumptions, CALIBRATED.name if chosen is None else chosen.assumptions
    )
    batches = mistakes.catch(
        (chosen or FRAMEWORKS["any"]).batches, model or load_model(ANY_MODEL), checked_locks, assumed
    )
    if not mistakes.errors and chosen is not None and not batches:
        stack = {} if assumed is None else {"stack": assumed.name}
        problems = [
            f"{refusal.choice} = {(checked_locks or {})[refusal.choice]}: {refusal.why}; framework any has it"
            for refusal in refused(chosen.name, (checked_locks or {}) | stack)
        ]
        problems = problems or [
            f"the locks leave nothing of what {chosen.name} can run; framework any has more"
        ]
        mistakes.errors.append(InputError("search", problems))
    if mistakes.errors:
        return None
    require = mistakes.require
    return SearchRequest(
        model=require(model),
        system=require(system),
        gpus=require(numbers),
        gbs=require(gbs),
        assumptions=require(assumed),
        framework=require(chosen),
        batches=require(batches),
        top=top,
        objective=objective,
        locks=require(checked_locks),
    )


def _outcomes(request: SearchRequest, progress: Progress | None) -> Iterator[tuple[StrategyResult, ...]]:
    """Return the outcomes of every batch for each number of GPUs; numbers that use as much of a fast domain share a search."""
    model, system, gbs, batches = request.model, request.system, request.gbs, request.batches
    domains = [system.fast_domain if not batches[0].ordered else system.domain(n) for n in request.gpus]
    results: dict[int, tuple[StrategyResult, ...]] = {}
    searches = list(product(dict.fromkeys(domains), batches))
    for done, (domain, batch) in enumerate(searches, 1):
        sizes = tuple(n for n, used in zip(request.gpus, domains, strict=True) if used == domain)
        space = enumerate_space(model, sizes, domain, gbs, batch)
        outcomes = evaluate(space, model, system, gbs, request.assumptions).outcomes()
        results |= {n: (*results.get(n, ()), outcome) for n, outcome in zip(sizes, outcomes, strict=True)}
        if progress is not None:
            progress(done, len(searches), sum(outcome.candidates for outcome in outcomes))
    return (results[n] for n in request.gpus)


def check_arguments(
    model: Model, gpus: Sequence[int], gbs: int | None, strategy: str | Sequence[str] | None, top: int
) -> tuple[int, tuple[str, ...] | None]:
    """Return the global batch and the strategies, or raise all mistakes of the arguments at once."""
    mistakes = ErrorCollector("search")
    mistakes.catch(_check_sizes, gpus, None)
    mistakes.catch(_check_ranking, top, "time")
    names, batch = mistakes.catch(_check_strategies, strategy), mistakes.catch(check_gbs, gbs, model)
    return mistakes.require(batch), names


def _check_sizes(gpus: Any, system: System | None) -> list[int]:
    """Return the numbers of GPUs, checked to be whole and no larger than the system."""
    if isinstance(gpus, str) or not isinstance(gpus, Iterable):
        raise InputError("search", [f"gpus = {gpus!r}: must be a sequence of whole numbers"])
    mistakes, numbers = ErrorCollector("search"), list(gpus)
    problems = [wrong for n in numbers for wrong in whole_number_problems("gpus", n)]
    problems += [] if numbers else ["gpus: give at least one number"]
    if problems:
        raise InputError("search", problems)
    for n in numbers:
        mistakes.catch(check_size, system, n)
    mistakes.raise_any()
    return [int(n) for n in numbers]


def _check_ranking(top: int, objective: str) -> None:
    """Refuse an invalid number of plans or an unknown objective."""
    problems = whole_number_problems("top", top)
    if objective not in OBJECTIVES:
        problems.append(str(unknown_name_error("objective", str(objective), OBJECTIVES)))
    if problems:
        raise InputError("search", problems)


def _check_strategies(strategy: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the strategies by their canonical names, each once; None where none is given."""
    if strategy is None:
        return None
    if wrong := type_problems("strategy", strategy, "a name or a sequence of names", str, Sequence):
        raise InputError("search", wrong)
    names = [part.strip() for part in strategy.split(",")] if isinstance(strategy, str) else list(strategy)
    problems = [wrong for name in names for wrong in type_problems("strategy", name, "a name", str)]
    if not problems:
        names = list(dict.fromkeys(ALIASES.get(name, name) for name in names))
        problems = [
            str(unknown_name_error("strategy", name, STRATEGIES)) for name in names if name not in STRATEGIES
        ]
    if not names:
        problems.append(f"strategy: give at least one of {', '.join(STRATEGIES)}")
    if problems:
        raise InputError("search", problems)
    return tuple(names)


def _check_locks(locks: Mapping[str, Any] | None, vp: int | None) -> dict[str, Any]:
    """Return the locks as a mapping of names, `vp` among them."""
    if wrong := type_problems(
        "locks", locks, "a mapping of names of knobs and choices to values", Mapping, type(None)
    ):
        raise InputError("search", wrong)
    checked = dict(locks or {})
    problems = [
        wrong
        for name in checked
        for wrong in type_problems("locks", name, "a mapping whose keys are names", str)
    ]
    problems += [] if vp is None else whole_number_problems("vp", vp)
    if vp is not None and checked.get("vp", vp) != vp:
        problems.append(f"vp = {vp!r} contradicts locks, where vp = {checked['vp']!r}: give one of them")
    if problems:
        raise InputError("search", problems)
    return checked if vp is None else checked | {"vp": vp}


def _choose(
    model: Model, strategy: str | Sequence[str] | None, framework: str | Framework | None
) -> Framework:
    """Return the framework that is searched, restricted to the given strategies."""
    mistakes = ErrorCollector("search")
    names = mistakes.catch(_check_strategies, strategy)
    chosen = (
        default_framework(model, names) if framework is None else mistakes.catch(_check_framework, framework)
    )
    chosen = mistakes.require(chosen)
    if names is None:
        return chosen
    runs = f"it runs {', '.join(chosen.runs)}, and any runs all"
    if problems := [
        f"strategy = {name!r}: {chosen.name} does not run it; {runs}"
        for name in names
        if name not in chosen.runs
    ]:
        raise InputError("search", problems)
    return replace(chosen, strategies=names)


def _check_framework(framework: str | Framework) -> Framework:
    """Return the given framework, or that of a name."""
    if wrong := type_problems("framework", framework, "a name or a Framework", str, Framework):
        raise InputError("search", wrong)
    return known_framework(framework)
