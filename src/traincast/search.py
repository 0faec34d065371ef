"""Search every candidate: the best few, the Pareto front of time against memory, and what became of all the others.

Candidates of equal time are ordered by memory, then by strategy as asked for, then by enumeration order (tp, tp2 or cp, pp, mbs,
panels and placement ascending).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from traincast.assumptions import Assumptions, resolve
from traincast.errors import InputError, not_whole, unknown
from traincast.estimate import Answer, check_gbs, estimate
from traincast.evaluation import Outcome, evaluate, fastest, rank, rejections
from traincast.explain import Explanation, explain
from traincast.hardware import System
from traincast.model import Model
from traincast.plan import ALIASES, STRATEGIES, Plan
from traincast.space import enumerate_space


@dataclass(frozen=True, repr=False)
class Found:
    """Result of a search on one number of GPUs."""

    model: Model
    system: System
    gpus: int
    gbs: int
    assumptions: Assumptions
    top: int
    outcomes: tuple[Outcome, ...]  # one per strategy

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies searched, in the order asked for."""
        return tuple(outcome.evaluation.space.strategy for outcome in self.outcomes)

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
        rankings = [rank([outcome], top) for outcome in self.outcomes]
        rows = [
            (*row, which, i)
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
    assumptions: str | Assumptions = "paper",
    strategy: str | Sequence[str] = ("1d", "summa", "context"),
    top: int = 10,
    vp: int = 1,
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
    assumptions : str or Assumptions
        Name of a preset or one's own.
    strategy : str or sequence of str
        ``"1d"``, ``"summa"``, ``"context"`` (or ``"2d"``, ``"2d-seqp"``, as the paper's code calls the latter two), one or several;
        a comma-separated string will do.
    top : int
        How many plans to keep.
    vp : int
        Virtual stages of a device (interleaved 1F1B), the same for every candidate.

    Returns
    -------
    Found
        The best plans and all that is to be said about the others; no plans where nothing fits.

    Raises
    ------
    InputError
        If an argument cannot be used; all that is wrong at once.
    """
    return search_each(model, system, (gpus,), gbs, assumptions, strategy, top, vp)[0]


def search_each(
    model: Model,
    system: System,
    gpus: Sequence[int],
    gbs: int | None = None,
    assumptions: str | Assumptions = "paper",
    strategy: str | Sequence[str] = ("1d", "summa", "context"),
    top: int = 10,
    vp: int = 1,
) -> list[Found]:
    """`search` on several numbers of GPUs, which share what they have in common."""
    gbs, strategies = check_arguments(model, gpus, gbs, strategy, top, vp)
    gpus, assumed = [int(n) for n in gpus], resolve(assumptions)
    evaluations = [
        evaluate(enumerate_space(model, tuple(gpus), system.fast_domain, gbs, name, vp), model, system, gbs, assumed).outcomes()
        for name in strategies
    ]
    jobs = zip(gpus, zip(*evaluations, strict=True), strict=True)
    return [Found(model, system, n, gbs, assumed, top, outcomes) for n, outcomes in jobs]


def check_arguments(
    model: Model, gpus: Sequence[int], gbs: int | None, strategy: str | Sequence[str], top: int, vp: int = 1
) -> tuple[int, tuple[str, ...]]:
    """The global batch and the strategies, once all arguments are found usable."""
    names = [part.strip() for part in strategy.split(",")] if isinstance(strategy, str) else list(strategy)
    names = list(dict.fromkeys(ALIASES.get(name, name) for name in names))
    problems = [
        wrong for name, value in [*(("gpus", n) for n in gpus), ("top", top), ("vp", vp)] for wrong in not_whole(name, value)
    ]
    problems += [str(unknown("strategy", str(name), STRATEGIES)) for name in names if name not in STRATEGIES]
    if not names:
        problems.append(f"strategy: give at least one of {', '.join(STRATEGIES)}")
    if not len(gpus):
        problems.append("gpus: give at least one number")
    try:
        batch = check_gbs(gbs, model)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError("search", problems)
    return batch, tuple(names)
