"""Messages for command lines that cannot be read: every mistake in one, in words."""

from collections.abc import Iterable, Sequence
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

from traincast.ui.cli.app import app

ALLOWED: Final = {int: "must be a whole number", float: "must be a number", bool: "takes no value"}
WRITTEN: Final = {  # options of training frameworks, and what says the same here
    "--lora": "--train lora", "--qlora": "--train qlora", "--dpo": "--train dpo",
    "--lora-rank": "--train lora:r=N", "--fsdp": "--zero 3", "--ddp": "--zero 0",
    "--nodes": "--gpus N, those of all nodes", "--nnodes": "--gpus N, those of all nodes",
    "--batch-size": "--global-batch N or --mbs N", "--data-parallel-size": "--dp N",
    "--tensor-model-parallel-size": "--tp N", "--pipeline-model-parallel-size": "--pp N",
    "--context-parallel-size": "--cp N", "--expert-model-parallel-size": "--ep N",
    "--tensor-parallel-size": "--tp N", "--pipeline-parallel-size": "--pp N", "--zero-stage": "--zero N",
    "--seq-length": "--seq N", "--sequence-length": "--seq N", "--recompute-granularity": "--recompute full",
    "--expert-tensor-parallel-size": "--etp N", "--fp8": "--precision fp8", "--bf16": "--precision bf16",
}  # fmt: skip
ANY_VALUE: Final = "1"  # can be read as a number, a name and a path


def usage_problems(error: CycloptsError, words: Sequence[str]) -> list[str]:
    """Return a message for each mistake in the words of a command line, which raised an error.

    The parser stops at one: what is wrong is taken out, what is missing is put in, and the rest read again.
    """
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
        argument, before = following.argument, list(rest)
        if isinstance(following, UnusedCliTokensError):
            unused = (word for word in following.unused_tokens or () if word not in perhaps_values)
            found += [f"{word!r}: not expected here" for word in unused]
            break
        if isinstance(following, MissingArgumentError) and following.keyword is None and argument:
            found += [f"{argument.name}: missing"] if argument.name not in wrong else []
            value = _allowed_value(argument)
            rest[1:1] = [value] if argument.is_positional_only() else [f"{argument.name}={value}"]
        else:
            found.append(_message(following))
            wrong |= {argument.name} if argument else set()
            _take_out(following, rest)
        if rest == before:
            break
    return list(dict.fromkeys(found))


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
            return f"{word!r}: unknown command{_suggestion(word, list(app))}"
        case UnknownOptionError(token=token):
            return f"{token.keyword or token.value}: unknown option"
        case MissingArgumentError(keyword=str(option)):
            return f"{option}: its value is missing"
        case RepeatArgumentError(token=token):
            return f"{token.keyword}: given more than once"
        case CoercionError(token=token, argument=argument) if token is not None:
            name = token.keyword or (argument.name if argument else "")
            return f"{name} = {token.value!r}: {_allowed_values(error)}"
    return str(error).strip()


def _option(word: str) -> str:
    return word.partition("=")[0]


def _suggestion(word: str, known: Sequence[str]) -> str:
    """Return a suggestion for a word that is misspelt or of another tool, or nothing."""
    if (written := WRITTEN.get(word)) and written.split()[0] in known:
        return f"; write {written}"
    close = get_close_matches(word, known, n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""


def _allowed_values(error: CoercionError) -> str:
    choices = error.argument.get_choices() if error.argument is not None else None
    if choices:
        return f"must be one of {', '.join(choices)}"
    kinds = {error.target_type, *get_args(error.target_type)}
    allowed = [words for kind, words in ALLOWED.items() if kind in kinds]
    return allowed[0] if allowed else str(error.msg or error).strip()
