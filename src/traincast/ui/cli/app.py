"""The app, and the kinds of options that its commands share."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args

from cyclopts import App, Group, Parameter, Token, convert

from traincast.core import __version__
from traincast.ui.cli.completion import names_of_choices


def _convert_whole(kind: object, tokens: Sequence[Token]) -> object:
    """Convert arguments as cyclopts does, but read whole numbers from decimal digits alone.

    Else 4.5 GPUs are 4, and 0x10, 1_000 or digits of another script are numbers here and words elsewhere.
    """
    is_whole = int in (kind, *get_args(kind)) and str not in get_args(kind)
    if is_whole and not all(
        re.fullmatch(r"[+-]?\d+([eE]\+?\d\d?)?", token.value, re.ASCII) for token in tokens
    ):
        raise ValueError("must be a whole number")
    return convert(kind, tokens)


QUESTION: Final = Group("Question", sort_key=1)  # groups of options on the help pages
SEARCH: Final = Group("Search", sort_key=2)
KNOB_GROUP: Final = Group("Plan", sort_key=3, default_parameter=Parameter(completer=names_of_choices))
OPTIONS: Final = Group("Options", sort_key=4, default_parameter=Parameter(negative=""))
OUTPUT: Final = Group("Output", sort_key=5, default_parameter=Parameter(negative=""))
app = App(
    default_parameter=Parameter(converter=_convert_whole),
    name="traincast",
    version=__version__,
    help="Forecast the training step of a large transformer, and find the parallel plan that is fastest.",
    help_format="plaintext",
    group_commands=Group("Options", sort_key=99),
    group_arguments=QUESTION,
    group_parameters=OPTIONS,
    suppress_keyboard_interrupt=False,
)


class Place(NamedTuple):
    """Place of a command on the help pages."""

    module: str  # that defines it
    name: str
    pages: tuple[str, ...]  # of docs/, to read on


# Places of the commands by section of traincast --help, in the order of the sections.
PLACED: Final[dict[str, list[Place]]] = {
    title: []
    for title in (
        "Ask about a run",
        "Take a plan to a framework",
        "Sweep",
        "Measure and validate",
        "Explore in a browser",
        "Companion models",
        "Reference",
    )
}


def command(section: str, *pages: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a command to the app, in a section of `PLACED`, with pages to read on."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        PLACED[section].append(Place(function.__module__, function.__name__, pages))
        return app.command(function)

    return add


def option(text: str, **more: Any) -> Parameter:
    """Return an option with its help text, and no ``--no-`` or ``--empty-`` form."""
    return Parameter(help=text, **{"negative": ""} | more)


def given_words(given: Iterable[str]) -> list[str]:
    """Return values NAME=VALUE that are given one by one, also of several in quotation marks."""
    words: list[str] = []
    for text_given in given:
        parts = text_given.split()
        words += parts if all("=" in part for part in parts) else [text_given]
    return words


question_option = partial(option, group=QUESTION)
search_option = partial(option, group=SEARCH)
output_option = partial(option, group=OUTPUT)
several = partial(option, consume_multiple=1)
_HTML: Final = "Write an .html report with figures and sources."
HtmlFile = Annotated[Path | None, output_option(_HTML, name="--html")]
Force = Annotated[bool, output_option("Overwrite the files that are written.")]
Json = Annotated[bool, output_option("Print JSON for machines instead of text.", name="--json")]
