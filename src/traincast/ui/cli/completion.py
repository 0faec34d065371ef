"""Shell completion of catalogue names, computed when the tab key is pressed."""

from collections.abc import Iterable
from glob import escape, glob
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

ENDINGS = (".yaml", ".yml", ".json")


def names_of_models(context: "CompletionContext") -> list[str]:
    """Return the models of the catalogue, and files."""
    from traincast.catalog.load import model_names

    return _or_files(model_names(), context)


def names_of_systems(context: "CompletionContext") -> list[str]:
    """Return the systems of the catalogue, and files."""
    from traincast.catalog.load import system_names

    return _or_files(system_names(), context)


def names_of_accelerators(context: "CompletionContext") -> list[str]:
    """Return the accelerators of the catalogue."""
    from traincast.catalog.load import accelerator_names

    return list(accelerator_names())


def names_of_assumptions(context: "CompletionContext") -> list[str]:
    """Return the presets, and the software stacks of the catalogue."""
    from traincast.catalog.software_stacks import stack_names

    return ["calibrated", "paper", "paper-published", *stack_names()]


def names_of_entries(context: "CompletionContext") -> list[str]:
    """Return every name that `traincast catalog` shows, and files."""
    from traincast.catalog.load import accelerator_names, model_names, system_names
    from traincast.catalog.software_stacks import stack_names

    return _or_files([*model_names(), *system_names(), *accelerator_names(), *stack_names()], context)


def names_of_frameworks(context: "CompletionContext") -> list[str]:
    """Return the frameworks."""
    from traincast.planner.framework_spaces import FRAMEWORKS

    return list(FRAMEWORKS)


def names_of_strategies(context: "CompletionContext") -> list[str]:
    """Return the strategies, appended to those already typed."""
    from traincast.core.knobs import STRATEGIES

    written = context.incomplete.rpartition(",")
    return ["".join((*written[:2], name)) for name in STRATEGIES]


def names_of_formats(context: "CompletionContext") -> list[str]:
    """Return the launch formats."""
    from traincast.launch.formats import FORMATS

    return list(FORMATS)


def names_of_choices(context: "CompletionContext") -> list[str]:
    """Return the values of a plan's choice, appended to words already joined; nothing for a number."""
    from traincast.core.knobs import ALLOWED, JOINED

    name = context.argument.field_info.name
    written = context.incomplete.rpartition("+") if name in JOINED else ("", "", "")
    return ["".join((*written[:2], str(word))) for word in ALLOWED.get(name, ())]


def names_of_outputs(context: "CompletionContext") -> list[str]:
    """Return the outputs that have a schema."""
    from traincast.ui.outputs import output_types

    return list(output_types())


def _or_files(names: Iterable[str], context: "CompletionContext") -> list[str]:
    """Return names, and the files that begin with what is typed."""
    return [*names, *(file for file in glob(f"{escape(context.incomplete)}*") if file.endswith(ENDINGS))]
