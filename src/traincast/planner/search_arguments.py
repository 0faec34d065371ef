"""Checks of the arguments of a search: sizes, ranking, recommendation, strategies, locks and framework."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from traincast.catalog import Stack, search_spaces
from traincast.core import (
    CALIBRATED,
    PRECISIONS,
    STRATEGIES,
    STRATEGY_ALIASES,
    ErrorCollector,
    InputError,
    System,
    raise_problems,
    type_problems,
    unknown_name_error,
    whole_number_problems,
)
from traincast.model import Model
from traincast.planner.frameworks.locks import check_locked_values, lock_values
from traincast.planner.frameworks.spaces import BEYOND, FRAMEWORKS, Framework, default_framework
from traincast.planner.frameworks.spaces import framework as framework_named
from traincast.planner.question import FIT_PROBABILITY, SEARCH_OBJECTIVES, Question
from traincast.step import MODEL_RESOLUTION, check_assumptions, check_size


def check_sizes(gpus: Any, system: System | None = None) -> tuple[int, ...]:
    """Return numbers of GPUs, checked to be whole and no larger than the system."""
    if isinstance(gpus, str) or not isinstance(gpus, Iterable):
        raise InputError("search", [f"gpus = {gpus!r}: must be a sequence of whole numbers"])
    errors = ErrorCollector("search")
    sizes = list(gpus)
    problems = [problem for n in sizes for problem in whole_number_problems("gpus", n)]
    problems += [] if sizes else ["gpus: give at least one number"]
    raise_problems("search", problems)
    for n in sizes:
        errors.catch(check_size, system, n)
    errors.raise_any()
    return tuple(int(n) for n in sizes)


def check_ranking(top: int, objective: str = "time") -> None:
    """Refuse an invalid number of plans or an unknown objective."""
    problems = whole_number_problems("top", top)
    if objective not in SEARCH_OBJECTIVES:
        problems.append(str(unknown_name_error("objective", str(objective), SEARCH_OBJECTIVES)))
    raise_problems("search", problems)


def check_recommendation(fit_probability: object, within: object, objective: str) -> None:
    """Refuse values that are not shares, and shares that the objective does not use."""
    shares = {"fit_probability": fit_probability, "within": within}
    given = {name: value for name, value in shares.items() if value is not None}
    problems = [
        f"{name} = {value!r}: must be a number between 0 and 1, such as {example}"
        for (name, value), example in zip(shares.items(), (FIT_PROBABILITY, MODEL_RESOLUTION), strict=True)
        if name in given and not _is_share(value, zero=name == "within")
    ]
    if objective == "memory":
        problems += [f"{name}: recommends by time; objective memory takes the leanest plan" for name in given]
    raise_problems("search", problems)


def _is_share(value: Any, zero: bool) -> bool:
    """Return whether a value is a number between 0 and 1, not 1, and not 0 unless allowed."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and (0 <= value < 1 if zero else 0 < value < 1)


def check_strategies(strategy: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return strategies by their canonical names, each once; None where none is given."""
    if strategy is None:
        return None
    if wrong := type_problems("strategy", strategy, "a name or a sequence of names", str, Sequence):
        raise InputError("search", wrong)
    names = [part.strip() for part in strategy.split(",")] if isinstance(strategy, str) else list(strategy)
    problems = [problem for name in names for problem in type_problems("strategy", name, "a name", str)]
    if not problems:
        names = list(dict.fromkeys(STRATEGY_ALIASES.get(name, name) for name in names))
        unknown = [name for name in names if name not in STRATEGIES]
        problems = [str(unknown_name_error("strategy", name, STRATEGIES)) for name in unknown]
    if not names:
        problems.append(f"strategy: give at least one of {', '.join(STRATEGIES)}")
    raise_problems("search", problems)
    return tuple(names)


def check_locks(locks: Mapping[str, object] | None, vp: int | None) -> dict[str, object]:
    """Return the locks as a mapping of names, `vp` among them."""
    names = "a mapping of names of knobs and choices to values"
    raise_problems("search", type_problems("locks", locks, names, Mapping, type(None)))
    locked = dict(locks or {})
    keys = "a mapping whose keys are names"
    problems = [problem for name in locked for problem in type_problems("locks", name, keys, str)]
    problems += [] if vp is None else whole_number_problems("vp", vp)
    if vp is not None and locked.get("vp", vp) != vp:
        problems.append(f"vp = {vp!r} contradicts locks, where vp = {locked['vp']!r}: give one of them")
    raise_problems("search", problems)
    check_locked_values(locked)
    return locked if vp is None else locked | {"vp": vp}


def check_machine(system: System, locks: Mapping[str, object]) -> None:
    """Refuse locked precisions that matrix units lack, and copies to a host whose link is not known."""
    errors = ErrorCollector("search")
    accelerator = system.accelerator
    for precision in map(str, lock_values("precision", locks.get("precision", ()))):
        errors.catch(accelerator.require, PRECISIONS[precision])
    if set(lock_values("offload", locks.get("offload", ()))) - {"none"}:
        errors.catch(lambda: accelerator.host_link)
    errors.raise_any()


def _has_batches(framework: Framework, model: Model, locks: Mapping[str, object]) -> bool:
    """Return whether a framework runs plans with locks; what some software stacks refuse counts later."""
    return framework.has_batches(model, locks, check_assumptions(CALIBRATED, CALIBRATED))


def _lacks_pipeline(framework: Framework, model: Model, locks: Mapping[str, Any]) -> bool:
    """Return whether stages are locked that a framework has none of, and others that hold the model have."""
    return framework.pipeline_zero is None and locks.get("pp", 1) > 1 and not model.is_packed


def _runs(framework: Framework, model: Model, locks: Mapping[str, object]) -> bool:
    """Return whether a framework runs plans of a model with what is locked."""
    if not locks:
        return True
    lacks = framework.not_run(locks) or _lacks_pipeline(framework, model, locks)
    return not lacks and _has_batches(framework, model, locks)


def framework_without(model: Model, system: System, locks: Mapping[str, object]) -> Framework | None:
    """Return the usual framework of a model where it does not run what is locked, else None."""
    usual = default_framework(model, system)
    return None if _runs(usual, model, locks) else usual


def space_of(framework: str | None) -> str | None:
    """Return the name of the space of a framework of the table of facts; None where no space is its own."""
    if framework is None:
        return None
    stacks = {name: Stack(space.assumptions) for name, space in FRAMEWORKS.items()}
    own = (name for name, stack in stacks.items() if stack.is_known and stack.facts["framework"] == framework)
    space = next(own, None) or search_spaces().get(framework)
    return space if space in FRAMEWORKS else None


def _usual_space(
    model: Model, system: System | None, strategies: Sequence[str], locks: Mapping[str, object]
) -> Framework:
    """Return the usual framework of a model; where it does not run what is locked, one that does.

    Of a model that is fine-tuned it is Megatron-Core, where that does.
    """
    usual = default_framework(model, system, strategies)
    megatron = FRAMEWORKS["megatron"]
    every = FRAMEWORKS["any"]
    spaces = [usual]
    if usual.name == "huggingface" and not model.is_packed and set(strategies) <= set(megatron.runs):
        spaces.append(megatron)
    for space in (*spaces, every):
        if _runs(space, model, locks):
            return space
    return every if usual.not_run(locks) else usual


def choose_framework(question: Question) -> Framework:
    """Return the framework that a question is about, restricted to the strategies that it names.

    One that is named must run what the locks ask for; if none is named, any is searched where the usual one
    does not.

    Parameters
    ----------
    question : Question
        Its model, system, strategies, framework and locks count. Where there is no model, neither is what
        depends on it.

    Raises
    ------
    InputError
        If a strategy or the framework is unknown, or the framework does not run what is asked.
    """
    model = question.model
    system = question.system
    framework = question.framework
    locks = question.locks or {}
    strategies = check_strategies(question.strategy)
    problems: list[str] = []
    if framework is None:
        chosen = FRAMEWORKS["any"]
        if model is not None:
            chosen = _usual_space(model, system, strategies or (), locks)
    else:
        if wrong := type_problems("framework", framework, "a name or a Framework", str, Framework):
            raise InputError("search", wrong)
        chosen = framework_named(framework)
    if isinstance(framework, str):
        problems += chosen.not_run(locks)
        if problems and model is not None and not _has_batches(FRAMEWORKS["any"], model, locks):
            problems = [problem.removesuffix(BEYOND) for problem in problems]
        if system is not None and system.is_tpu and not chosen.runs_on_tpus:
            others = ", ".join(name for name, other in FRAMEWORKS.items() if other.runs_on_tpus)
            problems.append(f"framework = {framework}: runs on no TPUs ({system.name}); {others} do")
    runs = f"it runs {', '.join(chosen.runs)}, and any runs all"
    problems += [
        f"strategy = {name!r}: {chosen.name} does not run it; {runs}"
        for name in strategies or ()
        if name not in chosen.runs
    ]
    raise_problems("search", problems)
    chosen = chosen if model is None else chosen.training(model)
    return chosen if strategies is None else replace(chosen, strategies=strategies, on_request=())
