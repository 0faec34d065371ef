"""Software stacks: assumptions on what a training framework of a given year fuses and overlaps, and its overheads."""

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from traincast.catalog.documents import catalogue, catalogue_entry
from traincast.core.assumptions import CALIBRATED, PRESETS, Assumptions
from traincast.core.errors import unknown_name_error
from traincast.core.system import System

if TYPE_CHECKING:
    from traincast.catalog.schema.software_stack import StackFile

DEFAULT_STACK = "megatron-core-2025"  #: the stack that "calibrated" stands for


def stack_names() -> tuple[str, ...]:
    """List the names of the stacks of the catalogue, in alphabetical order."""
    return tuple(catalogue("stacks"))


@lru_cache
def load_stack(name: str) -> Assumptions:
    """Load the assumptions of a software stack.

    Parameters
    ----------
    name : str
        A name of the catalogue such as ``"megatron-core-2025"``, in any case.

    Returns
    -------
    Assumptions
        The calibrated assumptions, with the fields that the stack's file sets replaced.

    Raises
    ------
    InputError
        If there is no such stack, or with every mistake of its file.
    """
    file = stack_file(name)
    base = load_stack(file.based_on) if file.based_on else CALIBRATED
    return replace(base, name=file.name, **file.changes())


def stack_file(name: str) -> "StackFile":
    """Read and check the file of a stack; arguments and errors as for `load_stack`."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.software_stack import STACK

    document = catalogue_entry("stacks", name.lower())
    if document is None:
        raise unknown_name_error("stack", name, stack_names())
    return check(STACK, document, name)


def resolve(assumptions: str | Assumptions) -> Assumptions:
    """Return the assumptions of a name, or the object itself.

    Parameters
    ----------
    assumptions : str or Assumptions
        A preset, ``"calibrated"`` (the newest stack of Megatron-Core), a stack of the catalogue, or the object.

    Raises
    ------
    InputError
        If the name is not known.
    """
    if isinstance(assumptions, Assumptions):
        return assumptions
    if assumptions == CALIBRATED.name:
        return replace(load_stack(DEFAULT_STACK), name=CALIBRATED.name)
    if assumptions in PRESETS:
        return PRESETS[assumptions]
    if assumptions.lower() in catalogue("stacks"):
        return load_stack(assumptions.lower())
    raise unknown_name_error("assumptions", assumptions, (*PRESETS, *stack_names()))


def with_fitted_values(system: System, assumed: Assumptions) -> Assumptions:
    """Return the assumptions of a software stack on a system: values fitted on the system replace those of the catalogue.

    Parameters
    ----------
    system : System
        Machine, which may have values of the stack (`System.software`).
    assumed : Assumptions
        Assumptions of the stack.
    """
    stack = DEFAULT_STACK if assumed.name == CALIBRATED.name else assumed.name
    fitted: dict[str, Any] = {}
    for software in system.software:
        if software.stack == stack:
            fitted |= dict(software.figures)
    return replace(assumed, **fitted) if fitted else assumed
