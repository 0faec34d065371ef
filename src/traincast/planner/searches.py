"""Search every candidate: the recommended plan, the best few, the Pareto front, and why others lose.

`recommend` decides which plan is recommended. Candidates of equal time are ordered by memory, then by
strategy as requested, then by enumeration order (tp, tp2 or cp, pp, mbs, panels and placement ascending).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from traincast.catalog import Stack, as_model, as_system, check_experts, read_given
from traincast.core import CALIBRATED, Assumptions, ErrorCollector, System
from traincast.model import Model
from traincast.planner.frameworks.candidate_batch import CandidateBatch
from traincast.planner.frameworks.spaces import Framework
from traincast.planner.question import FIT_PROBABILITY, LISTED, Objective, Question
from traincast.planner.search_arguments import (
    check_locks,
    check_machine,
    check_ranking,
    check_recommendation,
    check_sizes,
    check_strategies,
    choose_framework,
    space_of,
)
from traincast.planner.search_result import Found, SearchWork
from traincast.planner.space.search_space import Progress, by_domain
from traincast.step import MODEL_RESOLUTION, check_assumptions, check_gbs


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
    locks: Mapping[str, object]
    top: int
    fit_probability: float
    within: float | None
    batches: Sequence[CandidateBatch]
    exhaustive: bool = False

    def answer(self, progress: Progress | None = None, every_up_to: float = 0) -> list[Found]:
        """Search, and return the result for each number of GPUs.

        Numbers of GPUs that use as much of a fast domain share a search. At most `every_up_to` layouts
        are all evaluated, for those who show them all.
        """
        works: dict[int, SearchWork] = {}
        for domain, sizes in by_domain(self.system, self.gpus, self.batches[0]).items():
            batches = tuple(self.batches)
            work = SearchWork(self.model, self.system, sizes, domain, self.gbs, self.assumptions, batches)
            work.prepare(np.inf if self.exhaustive or self.objective == "memory" else every_up_to, progress)
            works |= dict.fromkeys(sizes, work)
        request = {name: value for name, value in vars(self).items() if name not in ("gpus", "batches")}
        return [Found(**request, gpus=n, work=works[n]) for n in self.gpus]


def search(
    model: str | Path | Model,
    system: str | Path | System,
    *,
    gpus: int,
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = LISTED,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, Any] | None = None,
    objective: Objective = "time",
    exhaustive: bool = False,
    fit_probability: float | None = None,
    within: float | None = None,
    given: Mapping[str, str] | None = None,
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
        Global batch [sequences]; the model's own if left out, or else one of about 4M tokens.
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
        What is searched: what a framework can run. If left out, the paper's space for models without a
        vocabulary, MaxText's on TPUs, transformers' for fine-tuning, else Megatron-Core's, or any where it
        lacks layers, strategies or locked choices.
    locks : mapping of str to value, optional
        Knobs and choices of a plan that have one value only, such as ``{"tp": 8, "zero": 3}``.
    objective : {"time", "throughput", "cost", "memory"}
        What is best. All of the GPUs are used, so that the least time is the most throughput and the least
        cost.
    exhaustive : bool
        Whether every candidate that fits is timed, also those that a lower bound on their time excludes.
        The answers are the same.
    fit_probability : float, optional
        Probability of fitting in memory of the recommended plan, at least, between 0 and 1; 0.9 if left out.
        Where errors are not known, what fits by its predicted memory fits.
    within : float, optional
        Share of the fastest time within which plans count as equally fast, so that the simplest of them is
        recommended; 0.02 if left out. Where errors are not known it is the fastest, if left out.
    given : mapping of str to str, optional
        Facts of the software, such as ``{"dispatcher": "deepep"}``: names and values as in the table of facts
        of docs/catalogue.md. They change the software, and leave less of it open. A framework among them
        decides what is searched where `framework` is left out.
    progress : callable, optional
        Called as steps are done (to enumerate, to count what fits, to bound or to time what does) with the
        number done, that of all, and the candidates decided by the last ones.

    Returns
    -------
    Found
        The best plans, and counts and reasons for the others; no plans where nothing fits.

    Raises
    ------
    InputError
        If an argument is invalid; all mistakes at once.
    """
    found = search_each(
        model,
        system,
        gpus=(gpus,),
        gbs=gbs,
        progress=progress,
        assumptions=assumptions,
        strategy=strategy,
        top=top,
        vp=vp,
        framework=framework,
        locks=locks,
        objective=objective,
        exhaustive=exhaustive,
        fit_probability=fit_probability,
        within=within,
        given=given,
    )
    return found[0]


def search_each(
    model: str | Path | Model,
    system: str | Path | System,
    *,
    gpus: Sequence[int],
    gbs: int | None = None,
    progress: Progress | None = None,
    assumptions: str | Assumptions | None = None,
    strategy: str | Sequence[str] | None = None,
    top: int = LISTED,
    vp: int | None = None,
    framework: str | Framework | None = None,
    locks: Mapping[str, object] | None = None,
    objective: Objective = "time",
    exhaustive: bool = False,
    fit_probability: float | None = None,
    within: float | None = None,
    given: Mapping[str, str] | None = None,
) -> list[Found]:
    """Search as `search` does on several numbers of GPUs, which share what they have in common."""
    errors = ErrorCollector("search")
    checked_model = errors.catch(as_model, model)
    question = Question(
        model=checked_model,
        system=errors.catch(as_system, system),
        gpus=gpus,
        gbs=errors.catch(check_gbs, gbs, checked_model),
        assumptions=assumptions,
        strategy=strategy,
        top=top,
        vp=vp,
        framework=framework,
        locks=locks,
        objective=objective,
        exhaustive=exhaustive,
        fit_probability=fit_probability,
        within=within,
        given=given,
    )
    return errors.require(search_request(errors, question)).answer(progress)


def search_request(errors: ErrorCollector, question: Question) -> SearchRequest | None:
    """Return a question checked; None where a part of it is wrong, and `errors` then has every mistake.

    Its model, system and global batch are None where an error was collected for them before.
    """
    model = question.model
    system = question.system
    framework = question.framework
    objective = question.objective
    sizes = errors.catch(check_sizes, question.gpus, system)
    errors.catch(check_ranking, question.top, objective)
    errors.catch(check_recommendation, question.fit_probability, question.within, objective)
    locked = errors.catch(check_locks, question.locks, question.vp)
    if system is not None and locked is not None:
        errors.catch(check_machine, system, locked)
    strategies = errors.catch(check_strategies, question.strategy)
    facts = errors.catch(read_given, question.given) or {}
    if model is not None:
        errors.catch(check_experts, facts, model.experts is not None)
    named = space_of(facts.get("framework")) if framework is None else framework
    of_space = replace(question, strategy=strategies, framework=named, locks=locked)
    space = errors.catch(choose_framework, of_space)
    usual = CALIBRATED if model is None or space is None else space.usual_assumptions(model, system)
    software = Stack(usual)
    unsaid = software.open_software if framework is None else software.releases
    assumed = errors.catch(check_assumptions, question.assumptions, usual, unsaid, facts)
    if errors.errors or model is None or system is None or sizes is None or question.gbs is None:
        return None
    if locked is None or space is None or assumed is None:
        return None
    batches = errors.catch(space.batches, model, locked, assumed, len(system.tiers))
    if batches is None:
        return None
    usual_within = MODEL_RESOLUTION if assumed.errors_known and objective != "memory" else None
    fit_probability = FIT_PROBABILITY if question.fit_probability is None else question.fit_probability
    return SearchRequest(
        model=model,
        system=system,
        gpus=sizes,
        gbs=question.gbs,
        assumptions=assumed,
        framework=space,
        objective=objective,
        locks=locked,
        top=question.top,
        fit_probability=float(fit_probability),
        within=usual_within if question.within is None else float(question.within),
        batches=batches,
        exhaustive=question.exhaustive,
    )
