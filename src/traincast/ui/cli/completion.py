"""Names that help pages list and shells complete, computed when they are needed."""

import re
from collections.abc import Callable, Iterable
from glob import escape, glob
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

ENDINGS = (".yaml", ".yml", ".json")
LISTED: Final = re.compile(r"\{(frameworks|strategies)\}")  # in a help text, which names them all


def _names(kind: str) -> Iterable[str]:
    from traincast.catalog import accelerator_names, model_names, spoken_systems, stack_names, system_names

    match kind:
        case "models":
            return model_names()
        case "systems":
            return (*system_names(), *spoken_systems())
        case "accelerators":
            return accelerator_names()
        case "stacks":
            return stack_names()
        case "facts":
            from traincast.catalog import OF_SOFTWARE

            known = ((name, fact.allowed or ("",)) for name, fact in OF_SOFTWARE.items())
            return [f"{name}={value}" for name, values in known for value in values]
        case "frameworks":
            from traincast.planner import FRAMEWORKS

            return FRAMEWORKS
        case "strategies":
            from traincast.core import STRATEGIES

            return STRATEGIES
        case "formats":
            from traincast.launch import FORMATS

            return FORMATS
        case "pages":
            from traincast.ui.cli import packaged

            return packaged.pages()
    from traincast.ui.cli import packaged

    return packaged.examples()


def with_names(text: str) -> str:
    """Return a help text with the names of frameworks or strategies in place of the word in braces."""
    return LISTED.sub(lambda kind: ", ".join(_names(kind[1])), text)


def _completer(
    *kinds: str, also: Iterable[str] = (), files: bool = False
) -> "Callable[[CompletionContext], list[str]]":
    """Return a completer of names, and of `files` that begin with what is typed."""

    def complete(context: "CompletionContext") -> list[str]:
        paths = glob(f"{escape(context.incomplete)}*") if files else []
        known = [name for kind in kinds for name in _names(kind)]
        return [*also, *known, *(path for path in paths if path.endswith(ENDINGS))]

    return complete


names_of_models = _completer("models", files=True)
names_of_systems = _completer("systems", files=True)
names_of_accelerators = _completer("accelerators")
names_of_frameworks = _completer("frameworks")
names_of_formats = _completer("formats")
names_of_assumptions = _completer("stacks", also=("calibrated", "paper", "paper-published"))
names_of_facts = _completer("facts")
names_of_pages = _completer("pages")
names_of_examples = _completer("examples")
names_of_entries = _completer("models", "systems", "accelerators", "stacks", files=True)


def names_of_strategies(context: "CompletionContext") -> list[str]:
    """Return the strategies, appended to those already typed."""
    written = context.incomplete.rpartition(",")
    return ["".join((*written[:2], name)) for name in _names("strategies")]


def names_of_choices(context: "CompletionContext") -> list[str]:
    """Return the values of a plan's choice, appended to words already joined; nothing for a number."""
    from traincast.core import ALLOWED_VALUES, JOINED_CHOICES

    name = context.argument.field_info.name
    written = context.incomplete.rpartition("+") if name in JOINED_CHOICES else ("", "", "")
    return ["".join((*written[:2], str(word))) for word in ALLOWED_VALUES.get(name, ())]
