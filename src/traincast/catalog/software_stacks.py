"""Software stacks: what a training framework of a year fuses and overlaps, and its overheads."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from traincast.catalog.disk_cache import cached_on_disk
from traincast.catalog.documents import catalogue, catalogue_entry, read
from traincast.core.assumptions import CALIBRATED, OF_EXPERTS, PAPER, PRESETS, Assumptions
from traincast.core.errors import require_type, unknown_name_error
from traincast.core.system import System

if TYPE_CHECKING:
    from traincast.catalog.schema.software_stack import AssumptionsFile, StackFile
    from traincast.core.model import Model

CALIBRATED_FILE: Final = Path(__file__).with_name("calibrated.yaml")
DEFAULT_STACK = "megatron-core-2025"  #: the stack that "calibrated" stands for
PACKED_STACK: Final = "huggingface-eager"  #: where a frozen model's weights are packed (QLoRA)
TPU_STACK: Final = "maxtext-2025"  # on TPUs, which run JAX
# and for models with experts: the fused dispatcher of tokens is predicted faster wherever experts are
FUSED_DISPATCHER: Final = "megatron-core-deepep"


def stack_names() -> tuple[str, ...]:
    """List the names of the stacks of the catalogue, in alphabetical order."""
    return tuple(catalogue("stacks"))


@cache
@cached_on_disk
def calibrated() -> Assumptions:
    """Return the values for all or most software (calibrated.yaml), which the files of stacks change."""
    return replace(PAPER, name=CALIBRATED).with_values(calibrated_file().changes())


@cache
@cached_on_disk
def load_stack(name: str) -> Assumptions:
    """Load the assumptions of a software stack."""
    file = stack_file(name)
    base = load_stack(file.based_on) if file.based_on else calibrated()
    if not file.inherits_experts:
        base = base.with_values({path: calibrated().value(path) for path in OF_EXPERTS})
    return replace(base, name=file.name).with_values(file.changes())


def same_experts(name: str) -> tuple[str, ...]:
    """Return a stack and those it is based on that run the same code of a layer of experts."""
    file = stack_file(name)
    base = file.based_on if file.inherits_experts else None
    return (file.name, *(same_experts(base) if base else ()))


def stack_file(name: str) -> "StackFile":
    """Read and check the file of a stack; arguments and errors as for `load_stack`."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.software_stack import STACK

    document = catalogue_entry("stacks", name.lower())
    if document is None:
        raise unknown_name_error("stack", name, stack_names())
    return check(STACK, document, name)


@cache
@cached_on_disk
def stack_year(name: str) -> int | None:
    """Return the year of a stack's software; None where the catalogue does not have it."""
    document = catalogue_entry("stacks", name.lower())
    return None if document is None else int(document["year"])


def calibrated_file() -> "AssumptionsFile":
    """Read and check the file of the values for all or most software."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.software_stack import CALIBRATED_SCHEMA

    return check(CALIBRATED_SCHEMA, read(CALIBRATED_FILE), CALIBRATED)


def usual_stack(model: "Model") -> str:
    """Return the stack that "calibrated" stands for with a model."""
    return DEFAULT_STACK if model.experts is None else FUSED_DISPATCHER


def fitted_stack(name: str) -> str:
    """Return the stack whose runs the constants and errors of named assumptions are fitted to."""
    return DEFAULT_STACK if name == CALIBRATED else name


ANY_SOFTWARE: Final = ("any",)  # `Assumptions.unsaid` where no framework is stated either
# first words of stacks' names → those of stacks that run the same code: NeMo's models are Megatron-Core's
SAME_SOFTWARE: Final = {"megatron": ("megatron", "nemo")}
# A framework named without a release is of its usual stack's year, the year before, or later.
YEARS_BACK: Final = 1


@cache
@cached_on_disk
def stack_framework(name: str) -> str | None:
    """Return the framework in whose space a stack's plans are searched; None where the catalogue has none."""
    document = catalogue_entry("stacks", name.lower())
    return None if document is None else str(document["framework"])


@cache
@cached_on_disk
def releases(usual: str) -> tuple[str, ...]:
    """Return the stacks that a framework named without a release leaves open (`Assumptions.unsaid`).

    `usual`: its usual stack.
    """
    year = stack_year(usual)
    if year is None:
        return ()
    word = usual.partition("-")[0]
    named = [name for name in stack_names() if name.partition("-")[0] in SAME_SOFTWARE.get(word, (word,))]
    return tuple(name for name in named if (stack_year(name) or 0) >= year - YEARS_BACK)


def is_fitted(system: System) -> bool:
    """Return whether times on a system are fitted to its own software, whatever that is."""
    return bool(system.software or system.calibrated_to or system.is_cpu)


def resolve(assumptions: str | Assumptions) -> Assumptions:
    """Return assumptions, or those of a name: a preset, a stack, or "calibrated" (the default stack)."""
    if isinstance(assumptions, Assumptions):
        return assumptions
    require_type("assumptions", assumptions, "a name or Assumptions", str)
    if assumptions == CALIBRATED:
        return replace(load_stack(DEFAULT_STACK), name=CALIBRATED, unsaid=ANY_SOFTWARE)
    if assumptions in PRESETS:
        return PRESETS[assumptions]
    if assumptions.lower() in catalogue("stacks"):
        return load_stack(assumptions.lower())
    raise unknown_name_error("assumptions", assumptions, (CALIBRATED, *PRESETS, *stack_names()))


PLAIN_LOOP: Final = "pytorch"  # the stack that `traincast measure` fits


def with_fitted_values(system: System, assumed: Assumptions) -> Assumptions:
    """Return the assumptions of a stack with the values of its accelerator, and those fitted on a system.

    Of the accelerator they are its context and workspaces; `System.software` has those that were fitted. On
    CPUs, of which no published stack is, what was fitted of a plain loop in PyTorch holds for the others.
    """
    fitted: dict[str, Any] = {}
    chip, memory = system.accelerator, assumed.memory
    if chip.context_bytes is not None and memory.context_bytes:
        fitted["memory.context_bytes"] = chip.context_bytes
    if chip.workspace_bytes is not None and memory.counts_workspaces:
        fitted["memory.workspace_bytes"] = chip.workspace_bytes
    for stack in (*([PLAIN_LOOP] if system.is_cpu else []), fitted_stack(assumed.name)):
        for software in system.software:
            if software.stack == stack:
                fitted |= dict(software.figures)
    return assumed.with_values(fitted) if fitted else assumed
