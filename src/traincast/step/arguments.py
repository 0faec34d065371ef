"""Checks of the arguments of an estimate or a search: global batch, assumptions, number of GPUs."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from traincast.catalog import Stack, resolve, search_spaces, stack_names
from traincast.core import CALIBRATED, Assumptions, InputError, System, raise_problems, whole_number_problems
from traincast.model import Model


def check_gbs(gbs: int | None, model: Model | None) -> int:
    """Return the given global batch, or the model's, or the usual one [sequences]; 1 if the model is wrong.

    Raises `InputError` if it is no positive whole number.
    """
    if gbs is None and model is not None:
        gbs = model.usual_batch if model.global_batch is None else model.global_batch
    if gbs is None:
        return 1
    raise_problems("global batch", whole_number_problems("gbs", gbs))
    return int(gbs)


def check_assumptions(
    assumptions: str | Assumptions | None,
    usual: str,
    unsaid: tuple[str, ...] = Stack.ANY,
    given: Mapping[str, str] | None = None,
) -> Assumptions:
    """Return the assumptions of a name, given `Assumptions`, or those named `usual` for None.

    ``"calibrated"`` means the usual software stack, where `usual` names one. Then the software is `unsaid`
    (`Assumptions.unsaid`), else it is stated. Facts that are `given` (`read_given`) change the software.

    Raises `InputError` if it is neither, no preset has that name, or it is no software whose facts are known.
    """
    means_usual = assumptions == CALIBRATED and Stack(usual).is_known
    if assumptions is None or means_usual:
        assumed = resolve(usual)
        assumed = replace(assumed, unsaid=unsaid) if assumed.errors_known else assumed
    else:
        assumed = resolve(assumptions)
    return _with_given(assumed, given) if given else assumed


def _with_given(assumed: Assumptions, given: Mapping[str, str]) -> Assumptions:
    """Return the assumptions of the software with facts, where the given one has others."""
    stack = Stack.of_assumptions(assumed.name)
    if not stack.is_known or assumed.values() != stack.assumptions.values():
        facts = ", ".join(f"{fact} = {value}" for fact, value in given.items())
        raise InputError(
            "given", [f"{facts}: {assumed.name} is no software of the catalogue, whose facts are known"]
        )
    unsaid = assumed.unsaid
    if unsaid and "framework" in given:
        unsaid = left_of_framework(unsaid, given["framework"])
    try:
        changed = stack.with_given(given).assumptions
    except InputError as error:
        raise InputError("given", error.problems) from None
    return replace(changed, unsaid=unsaid, given=tuple(given.items()))


def left_of_framework(unsaid: tuple[str, ...], framework: str) -> tuple[str, ...]:
    """Return what a question that states a framework leaves open of the software that it otherwise does.

    Raises `InputError` where the framework named besides runs other plans.
    """
    stacks = [Stack(name) for name in stack_names()]
    if unsaid != Stack.ANY:
        named = [Stack(name) for name in unsaid]
        if search_spaces().get(framework) not in {stack.search_space for stack in named}:
            runs = ", ".join(dict.fromkeys(stack.facts["framework"] for stack in named))
            raise InputError("given", [f"framework = {framework}: the framework named besides runs {runs}"])
        stacks = [stack for stack in named if stack.facts["framework"] == framework] or stacks
    return tuple(stack.name for stack in stacks if stack.facts["framework"] == framework)


def check_size(system: System | None, gpus: int) -> None:
    """Refuse a job larger than its machine.

    Raises `InputError` if the size of the system is known, and smaller.
    """
    if system is not None and system.gpus is not None and gpus > np.max(system.gpus):
        raise InputError("gpus", [f"{gpus:,} requested, {system.name} has {np.max(system.gpus):,}"])
