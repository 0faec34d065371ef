"""Command `compare`: alternatives side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from traincast.core import ErrorCollector, InputError, parse_whole
from traincast.ui.cli.app import Json, command, output_option, question_option, search_option
from traincast.ui.cli.combinations import TypedNames, search_combinations, show_comparison, split_names
from traincast.ui.cli.completion import (
    names_of_assumptions,
    names_of_frameworks,
    names_of_models,
    names_of_strategies,
    names_of_systems,
)
from traincast.ui.cli.options import (
    NO_LOCKS,
    NO_RUN_OPTIONS,
    LockOptions,
    RunArguments,
    locked_values,
    share_typed,
)

_MODELS = "Models, one or several with commas; or two answers of plan or estimate --json."
_SYSTEMS = "Systems of the catalogue, or files, with commas."
_GPUS = "GPUs in the job, one number or several with commas."
_FRAMEWORKS = "Frameworks whose plans are searched, with commas: {frameworks}."
_STACKS = "Assumptions or software stacks, with commas."
_PLANS = "Knobs of one alternative, as 'tp=8 pp=4'; the rest is searched. Give it again for another."
_SORT = "Order: given, time, memory, throughput or cost."
Order = Literal["given", "time", "memory", "throughput", "cost"]
_STRATEGY = "Sharding: {strategies}."
_FIT_PROBABILITY = "Least probability that a plan fits; else 90%."
_WITHIN = "How much slower than the fastest a recommended plan may be; else 2%."


@command("Ask about a run", "compare", "uncertainty")
def compare(
    model: Annotated[list[str], question_option(_MODELS, metavar="MODEL", completer=names_of_models)],
    /,
    *,
    system: Annotated[
        str | None, question_option(_SYSTEMS, metavar="SYSTEM", completer=names_of_systems)
    ] = None,
    gpus: Annotated[str | None, question_option(_GPUS, metavar="N")] = None,
    framework: Annotated[str | None, question_option(_FRAMEWORKS, completer=names_of_frameworks)] = None,
    assumptions: Annotated[str | None, question_option(_STACKS, completer=names_of_assumptions)] = None,
    plan: Annotated[list[str] | None, question_option(_PLANS, consume_multiple=False)] = None,
    options: RunArguments = NO_RUN_OPTIONS,
    strategy: Annotated[str | None, search_option(_STRATEGY, completer=names_of_strategies)] = None,
    fit_probability: Annotated[str | None, search_option(_FIT_PROBABILITY, metavar="SHARE")] = None,
    within: Annotated[str | None, search_option(_WITHIN, metavar="SHARE")] = None,
    locks: LockOptions = NO_LOCKS,
    sort: Annotated[Order, output_option(_SORT)] = "given",
    json: Json = False,
) -> None:
    """Compare models, systems, numbers of GPUs, frameworks, plans, or two saved answers, in one table.

    Where several of one kind are given, each is an alternative, with its recommended plan; of several kinds
    every combination is. A difference is set against its error, in which what two alternatives share cancels.

    Example: traincast compare llama-3-70b --system dgx-h100,mi300x-node --gpus 64
    """
    from traincast.planner import Question

    errors = ErrorCollector("compare")
    if saved := _saved_files(model, system, gpus, framework, assumptions, plan):
        from traincast.planner import Comparison

        show_comparison(Comparison.read(saved).ordered(sort), json)
        return
    sizes = errors.catch(_sizes, gpus)
    systems = [] if system is None else split_names(system)
    errors.add(["--system: is missing; one or several with commas"] if system is None else [])
    typed = TypedNames(
        models=[name for word in model for name in split_names(word)],
        systems=systems,
        gpus=sizes or [],
        frameworks=[None] if framework is None else [*split_names(framework)],
        assumptions=[None] if assumptions is None else [*split_names(assumptions)],
        plans=plan or [],
    )
    shared = Question(
        locks=locked_values(locks),
        strategy=strategy,
        fit_probability=errors.catch(share_typed, fit_probability),
        within=errors.catch(share_typed, within),
    )
    show_comparison(search_combinations(errors, options, typed, shared).ordered(sort), json)


def _sizes(text: str | None) -> list[int]:
    """Return numbers of GPUs, with commas."""
    if text is None:
        raise InputError("compare", ["--gpus: is missing; how many GPUs the job has, such as 64 or 64,128"])
    words = [part.strip() for part in text.split(",")]
    if not all(map(parse_whole, words)):
        wrong = f"--gpus = {text!r}: must be whole numbers of at least 1 with commas, such as 64,128"
        raise InputError("compare", [wrong])
    return list(dict.fromkeys(map(int, words)))


def _saved_files(models: Sequence[str], *others: object) -> list[Path]:
    """Return the files of saved answers that are given in place of models; empty where they are models."""
    from traincast.planner import is_saved_answer

    words = [name for word in models for name in split_names(word)]
    missing = [word for word in words if word.endswith(".json") and not Path(word).exists()]
    if missing:
        raise InputError("compare", [f"{word}: no such file" for word in missing])
    answers = [word for word in words if is_saved_answer(word)]
    if not answers:
        return []
    problems = [
        f"{word}: is no answer of plan or estimate --json, as {answers[0]} is"
        for word in words
        if word not in answers
    ]
    names = ("--system", "--gpus", "--framework", "--assumptions", "--plan")
    problems += [
        f"{name}: saved answers have their own"
        for name, value in zip(names, others, strict=True)
        if value is not None
    ]
    if problems:
        raise InputError("compare", problems)
    return [Path(word) for word in answers]
