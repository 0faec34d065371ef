"""Search every candidate: the best few, the Pareto front of time against memory, and what became of all the others.

Candidates of equal time are ordered by memory, then by strategy as asked for, then by enumeration order (tp, tp2 or cp, pp, mbs,
panels and placement ascending).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, get_args

import numpy as np

from traincast.assumptions import Assumptions, resolve
from traincast.choices import ALIASES, STRATEGIES
from traincast.errors import InputError, not_whole, unknown
from traincast.estimate import Answer, check_gbs, estimate
from traincast.evaluation import Outcome, evaluate, fastest, rank, rejections
from traincast.explain import Explanation, explain
from traincast.frameworks import Batch, Framework, default_framework
from traincast.frameworks import framework as known_framework
from traincast.hardware import System
from traincast.model import Model
from traincast.plan import Plan
from traincast.space import enumerate_space

Objective = Literal["time", "throughput", "cost", "memory"]
OBJECTIVES: Final = get_args(Objective)


@dataclass(frozen=True, repr=False)
class Found:
    """Result of a search on one number of GPUs."""

    model: Model
    system: System
    gpus: int
    gbs: int
    assumptions: Assumptions
    top: int
    outcomes: tuple[Outcome, ...]  # one per batch of candidates
    framework: Framework
    objective: Objective = "time"

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies searched, in the order asked for."""
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
        """Candidates rejected, by the first rule they break (in the order rules are asked), and by memory."""
        return rejections(self.outcomes)

    def __repr__(self) -> str:
        best = "nothing" if self.best is None else f"{self.best[0]} in {self.best[1].step_seconds:.4g} s"
        return f"<Found {best}; {self.feasible:,} of {self.candidates:,} candidates fit>"

    @cached_property
    def plans(self) -> list[Answer]:
        """The best `top` plans with their estimates, best first; empty where nothing fits."""
        return self._ranked(self.top)

    def _ranked(self, top: int) -> list[Answer]:
        """The best `top` plans over all strategies."""
        by_memory = self.objective == "memory"
        rankings = [rank([outcome], top, by_memory) for outcome in self.outcomes]
        rows = [
            (*(row[::-1] if by_memory else row), which, i)
            for which, one in enumerate(rankings)
            for i, row in enumerate(zip(one.seconds, one.memory, strict=True))
        ]
        return [self._answer(rankings[which].plans.row(i)) for _, _, which, i in sorted(rows)[:top]]

    def _answer(self, plan: Plan) -> Answer:
        """A plan with its estimate."""
        return plan, estimate(self.model, self.system, plan, self.gbs, self.assumptions)

    @property
    def least_seconds(self) -> float:
        """Step time of the best plan [s], infinite where nothing fits."""
        return float(min((outcome.least.min(initial=np.inf) for outcome in self.outcomes), default=np.inf))

    @property
    def best(self) -> Answer | None:
        """The best plan, or None where nothing fits."""
        return self.plans[0] if self.plans else None

    def pareto(self) -> list[Answer]:
        """Plans that no other beats in both time and memory, fastest first."""
        rows: list[tuple[float, float, int, int]] = []  # memory, time, outcome, layout
        for which, outcome in enumerate(self.outcomes):
            whose = [which] * len(outcome.fitting)
            rows += zip(outcome.memory.tolist(), outcome.least.tolist(), whose, outcome.fitting.tolist(), strict=True)
        front: list[tuple[float, float, int, int]] = []
        for row in sorted(rows):
            if not front or row[1] < front[-1][1]:
                front.append(row)
        return [self._answer(*fastest(self.outcomes[which], np.array([layout]))) for _, _, which, layout in reversed(front)]

    def table(self) -> list[dict[str, Any]]:
        """The best plans as rows: rank, every knob, time [s], memory [byte] and seconds by component."""
        return [
            {"rank": rank, "strategy": plan.strategy, **est.summary()["plan"]}
            | {"step_seconds": est.step_seconds, "memory_bytes": est.memory_bytes, **est.breakdown}
            for rank, (plan, est) in enumerate(self.plans, 1)
        ]

    def explain(self) -> Explanation:
        """What binds the best plan, why the alternatives lose, and what would make the nearest miss fit."""
        return explain(self.outcomes, self.plans if len(self.plans) > 2 else self._ranked(3))


def search(
    model: Model,
    system: System,
    gpus: int,
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = 10,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, Any] | None = None,
    objective: Objective = "time",
) -> Found:
    """Search every candidate plan that uses all of `gpus`.

    Parameters
    ----------
    model : Model
        The transformer.
    system : System
        The machine.
    gpus : int
        GPUs in the job.
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

    Returns
    -------
    Found
        The best plans and all that is to be said about the others; no plans where nothing fits.

    Raises
    ------
    InputError
        If an argument cannot be used; all that is wrong at once.
    """
    return search_each(model, system, (gpus,), gbs, assumptions, strategy, top, vp, framework, locks, objective)[0]


def search_each(
    model: Model,
    system: System,
    gpus: Sequence[int],
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = 10,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, Any] | None = None,
    objective: Objective = "time",
) -> list[Found]:
    """`search` on several numbers of GPUs, which share what they have in common."""
    gbs, names = check_arguments(model, gpus, gbs, strategy, top, vp, objective)
    wanted = default_framework(model, names) if framework is None else known_framework(framework)
    if names is not None:
        wanted = replace(wanted, strategies=names)
    assumed = resolve(wanted.assumptions if assumptions is None else assumptions)
    batches = wanted.batches(model, {**(locks or {}), **({} if vp is None else {"vp": vp})})
    if not batches:
        raise InputError("search", [f"the locks leave nothing of what {wanted.name} can run; framework any has more"])
    numbers = [int(n) for n in gpus]
    return [
        Found(model, system, n, gbs, assumed, top, outcomes, wanted, objective)
        for n, outcomes in zip(numbers, _outcomes(model, system, numbers, gbs, assumed, batches), strict=True)
    ]


def _outcomes(
    model: Model, system: System, gpus: list[int], gbs: int, assumed: Assumptions, batches: list[Batch]
) -> Iterator[tuple[Outcome, ...]]:
    """Outcomes of every batch for each number of GPUs; those that use the same part of a fast domain are searched together."""
    domains = [system.fast_domain if not batches[0].ordered else system.domain(n) for n in gpus]
    found: dict[int, tuple[Outcome, ...]] = {}
    for domain in dict.fromkeys(domains):
        some = tuple(n for n, used in zip(gpus, domains, strict=True) if used == domain)
        evaluations = [
            evaluate(enumerate_space(model, some, domain, gbs, batch), model, system, gbs, assumed).outcomes() for batch in batches
        ]
        found |= zip(some, zip(*evaluations, strict=True), strict=True)
    return (found[n] for n in gpus)


def check_arguments(
    model: Model,
    gpus: Sequence[int],
    gbs: int | None,
    strategy: str | Sequence[str] | None,
    top: int,
    vp: int | None = None,
    objective: str = "time",
) -> tuple[int, tuple[str, ...] | None]:
    """The global batch and the strategies, once all arguments are found usable."""
    names = None
    if strategy is not None:
        names = [part.strip() for part in strategy.split(",")] if isinstance(strategy, str) else list(strategy)
        names = list(dict.fromkeys(ALIASES.get(name, name) for name in names))
    given = [*(("gpus", n) for n in gpus), ("top", top), *([] if vp is None else [("vp", vp)])]
    problems = [wrong for name, value in given for wrong in not_whole(name, value)]
    problems += [str(unknown("strategy", str(name), STRATEGIES)) for name in names or () if name not in STRATEGIES]
    if objective not in OBJECTIVES:
        problems.append(str(unknown("objective", str(objective), OBJECTIVES)))
    if names is not None and not names:
        problems.append(f"strategy: give at least one of {', '.join(STRATEGIES)}")
    if not len(gpus):
        problems.append("gpus: give at least one number")
    try:
        batch = check_gbs(gbs, model)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError("search", problems)
    return batch, None if names is None else tuple(names)
