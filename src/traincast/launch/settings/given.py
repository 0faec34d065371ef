"""What is given beside a launch file: values of its variables, one of its runs, and facts of the plan."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from traincast.core import InputError

RECIPE: Final = "recipe"  # what an error is about that names several runs


@dataclass(frozen=True)
class Given:
    """What a user gives beside a launch file."""

    variables: Mapping[str, str] = field(default_factory=dict)  # of a script; positional parameters by number
    recipe: str | None = None  # the run that is meant, where a file describes several
    facts: Collection[str] = ()  # facts that need not be read from the file
    folder: Path | None = None  # of the file, where it may name others
    actor: bool = False  # whether of reinforcement learning the actor's training step is meant
    without: str = ""  # what a script does not tell: branches that hang on it are left out


NOTHING: Final = Given()


def choose_run(recipes: Collection[str], recipe: str | None, what: str = "runs") -> str:
    """Return the one of several runs that is meant, by name or its end.

    Raises
    ------
    InputError
        If none is named and there are several, or none has this name.
    """
    names = list(recipes)
    if recipe is None and len(names) == 1:
        return names[0]
    matching = [name for name in names if recipe is not None and name == recipe] or [
        name for name in names if recipe is not None and recipe in name
    ]
    if len(matching) == 1:
        return matching[0]
    shown = ", ".join((matching or names)[:12]) + (", …" if len(matching or names) > 12 else "")
    problem = f"describes {len(names)} {what}" if recipe is None else f"recipe = {recipe!r}: not one of them"
    raise InputError(RECIPE, [f"{problem}; give `recipe`: {shown}"])
