"""Messages for command lines that cannot be read: every mistake in one, in words."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
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

from traincast.catalog import ACCELERATOR_COUNT
from traincast.core import some_of
from traincast.ui.cli.aliases import COMMANDS, MODEL, TELLING, is_called, name_of
from traincast.ui.cli.app import app

ALLOWED: Final = {int: "must be a whole number", float: "must be a number", bool: "takes no value"}
ANY_VALUE: Final = "1"  # can be read as a number, a name and a path


def usage_problems(error: CycloptsError, words: Sequence[str], typed: Mapping[str, str]) -> list[str]:
    """Return a message for each mistake in the words of a command line, which raised an error.

    The parser stops at one: what is wrong is taken out, what is missing is put in, and the rest read again.
    `typed` has the options that were typed as other tools write them, which messages name as well.
    """
    return [_as_typed(problem, typed) for problem in _problems(error, words, typed)]


def _as_typed(problem: str, typed: Mapping[str, str]) -> str:
    """Return a message with the option as it was typed before its name here."""
    option, rest = re.match(r"([\w-]*)(.*)", problem, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{typed[option]} ({option}){rest}" if option in typed else problem


def _problems(error: CycloptsError, words: Sequence[str], typed: Mapping[str, str]) -> list[str]:
    """Return a message for each mistake."""
    if not error.command_chain:
        return [_message(error)]
    arguments: Iterable[Argument] = app[error.command_chain[0]].assemble_argument_collection()
    known = [name for argument in arguments for name in argument.names if name.startswith("--")]
    unknown = [word for word in words if word.startswith("--") and _option(word) not in known]
    found = [f"{_option(word)}: unknown option{_suggestion(_option(word), known)}" for word in unknown]
    perhaps_values = {after for word, after in pairwise(words) if word in unknown}
    wrong: set[str] = set()  # arguments that were given, so are not missing
    rest = [word for word in words if word not in unknown]
    while following := _error_in(rest):
        argument = following.argument
        before = list(rest)
        if isinstance(following, UnusedCliTokensError):
            unused = (word for word in following.unused_tokens or () if word not in perhaps_values)
            beside = f" beside {typed[MODEL]}" if MODEL in typed else ""
            prices = {after for word, after in pairwise(words) if word == "--cost"}
            found += [
                f"{word!r}: not expected here{f'; write --price {word}' if word in prices else beside}"
                for word in unused
            ]
            break
        if isinstance(following, MissingArgumentError) and following.keyword is None and argument:
            found += (
                [f"{argument.name}: missing{_example(argument.name, words)}"]
                if argument.name not in wrong
                else []
            )
            value = _allowed_value(argument)
            rest[1:1] = [value] if argument.is_positional_only() else [f"{argument.name}={value}"]
        else:
            found.append(_message(following))
            wrong |= {argument.name} if argument else set()
            _take_out(following, rest)
        if rest == before:
            break
    return list(dict.fromkeys(found))


def _example(name: str, words: Sequence[str]) -> str:
    """Return how an option that is missing is written; empty where that is plain."""
    if name == "--system":
        return ", such as --system h100"
    systems = (after for word, after in pairwise(words) if word == "--system")
    match = ACCELERATOR_COUNT.fullmatch(next(systems, "").lower())
    if name != "--gpus" or match is None:
        return ""
    machine = match["gpu"] or match["named"]
    return f"; write --system {machine} --gpus {match['before'] or match['after']}"


def _error_in(words: Sequence[str]) -> CycloptsError | None:
    """Return the first error that the parser finds, None if it reads the words."""
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return error
    return None


def _allowed_value(argument: Argument) -> str:
    return (argument.get_choices() or (ANY_VALUE,))[0]


def _take_out(error: CycloptsError, words: list[str]) -> None:
    """Take the option that an error is about out of the words; a positional value is replaced."""
    token = getattr(error, "token", None)
    value = token.value if token else ""
    name = getattr(error, "keyword", None) or (token and token.keyword)
    if name is None and value in words and error.argument:
        words[words.index(value)] = _allowed_value(error.argument)
    for place in reversed(range(len(words))):
        if _option(words[place]) == (name or value):
            del words[place : place + 1 + (words[place + 1 : place + 2] == [value])]
            break


def _message(error: CycloptsError) -> str:
    """Return what is wrong, in words."""
    match error:
        case UnknownCommandError(unused_tokens=[word, *_]):
            return f"{word!r}: unknown command{_meant(word)}"
        case UnknownOptionError(token=token):
            return f"{token.keyword or token.value}: unknown option"
        case MissingArgumentError(keyword=str(option)):
            return f"{option}: its value is missing"
        case RepeatArgumentError(token=token):
            return f"{token.keyword}: given more than once"
        case CoercionError(token=token, argument=argument) if token is not None:
            name = token.keyword or (argument.name if argument else "")
            return f"{name} = {token.value!r}: {_allowed_values(error)}{_instead(name, token.value)}"
    return str(error).strip()


def _instead(name: str, value: str) -> str:
    """Return what takes a value that an option does not, or nothing."""
    if name == "--gpus" and re.fullmatch(r"\d+(,\d+)+", value):
        return "; compare takes several"
    if name in ("--global-batch", "--gbs") and re.fullmatch(r"[\d.]+[kKmMgG]", value):
        return f" of sequences; of tokens, write --tokens-per-batch {value}"
    return ""


def _meant(word: str) -> str:
    """Return a suggestion for a word where a command is expected."""
    if word in COMMANDS:
        return f"; did you mean {COMMANDS[word]}?"
    if is_called("model", word):
        return f"; did you mean plan {word}?"
    return _suggestion(word, list(app))


def _option(word: str) -> str:
    return word.partition("=")[0]


def _suggestion(word: str, known: Sequence[str]) -> str:
    """Return a suggestion for a word that is misspelt or of another tool, or nothing."""
    if told := TELLING.get(name_of(word)):
        option = told.split()[0].rstrip(",")
        if option in known:
            return f"; write {told}"
        if not option.startswith("--"):
            return f"; {told}"
    close = get_close_matches(word, known, n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""


def _allowed_values(error: CoercionError) -> str:
    choices = error.argument.get_choices() if error.argument is not None else None
    if choices:
        return f"must be one of {some_of(choices)}"
    kinds = {error.target_type, *get_args(error.target_type)}
    stated = str(error.msg or "").strip()
    if stated.startswith("must be "):  # a converter of ours says what is allowed
        return stated
    allowed = [words for kind, words in ALLOWED.items() if kind in kinds]
    return allowed[0] if allowed else str(error.msg or error).strip()
