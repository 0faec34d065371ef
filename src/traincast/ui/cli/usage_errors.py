"""Messages on every mistake in a command line."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final, get_args

from cyclopts import (
    Argument,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
)
from cyclopts.exceptions import UnusedCliTokensError

from traincast.ui.cli.app import app

KIND_NAMES: Final = {int: "a whole number", float: "a number"}


def mistakes_of(error: CycloptsError) -> list[str]:
    """Return a message for each mistake in a command line."""
    match error:
        case UnknownCommandError(unused_tokens=[word, *_]):
            return [f"{word!r}: unknown command{_suggestion(word, app)}"]
        case UnknownOptionError(token=token):
            option = token.keyword or token.value
            return [f"{option}: unknown option{_suggestion(option, _option_names(error))}"]
        case MissingArgumentError(keyword=str(option)):
            return [f"{option}: its value is missing"]
        case MissingArgumentError():
            return [*_unknown_options(error), *_missing_arguments(error)]
        case UnusedCliTokensError():
            return [f"{word!r}: not expected here" for word in error.unused_tokens or ()]
        case RepeatArgumentError(token=token):
            return [f"{token.keyword}: given more than once"]
        case CoercionError(token=token, argument=argument) if token is not None:
            name = token.keyword or (argument.name if argument else "")
            return [f"{name} = {token.value!r}: {_allowed_values(error)}"]
    return [str(error).strip()]


def _arguments(error: CycloptsError) -> Iterable[Argument]:
    """Return the arguments of the command that was typed."""
    return app[error.command_chain[0]].assemble_argument_collection() if error.command_chain else ()


def _option_names(error: CycloptsError) -> list[str]:
    return [name for argument in _arguments(error) for name in argument.names if name.startswith("--")]


def _suggestion(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelt word, or nothing."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""


def _unknown_options(error: CycloptsError) -> Iterator[str]:
    known = _option_names(error)
    for word in error.unused_tokens or ():
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known:
            yield f"{option}: unknown option{_suggestion(option, known)}"


def _missing_arguments(error: MissingArgumentError) -> Iterator[str]:
    if error.argument is not None and error.argument.is_positional_only():
        yield f"{error.argument.name}: missing"
    given = {word.partition("=")[0] for word in error.root_input_tokens or ()}
    for argument in _arguments(error):
        if argument.required and argument.name.startswith("--") and given.isdisjoint(argument.names):
            yield f"{argument.name}: missing"


def _allowed_values(error: CoercionError) -> str:
    choices = error.argument.get_choices() if error.argument is not None else None
    if choices:
        return f"must be one of {', '.join(choices)}"
    kinds = {error.target_type, *get_args(error.target_type)}
    wanted = [name for kind, name in KIND_NAMES.items() if kind in kinds]
    return f"must be {wanted[0]}" if wanted else str(error.msg or error).strip()
