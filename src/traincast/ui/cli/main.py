"""The command line, `traincast COMMAND`; each command takes `--json`.

Exit code 0 for an answer, 1 where no plan fits (with what would make one fit), 2 for input that cannot be
used, output that cannot be written or a mistake in traincast itself, 130 when interrupted.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from types import FrameType
from typing import Final, NoReturn, get_args

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

from traincast.core.errors import InputError, MissingExtra, TraincastError
from traincast.ui.cli import accuracy, analysis, plan, reference, study, tune
from traincast.ui.cli.app import app
from traincast.ui.cli.help_pages import arrange
from traincast.ui.cli.output import begin_reply, fail

__all__ = ["accuracy", "analysis", "app", "main", "plan", "reference", "study", "tune"]

DEBUG: Final = "--debug"  # taken by every command
INTERRUPTED: Final = "interrupted"
RAISED_AGAIN_AFTER: Final = 0.01  # seconds after a finalizer dropped Ctrl-C: it has returned by then
OWN_MISTAKE: Final = "a mistake in traincast itself, please report it (CONTRIBUTING.md says where)"
KIND_NAMES: Final = {int: "a whole number", float: "a number"}
arrange(app, (plan, analysis, study, accuracy, tune, reference))


def main(arguments: Sequence[str] | None = None, interrupts: Sequence[int] = ()) -> None:
    """Run the command line, of this process without `arguments`; `interrupts` are those before it began."""
    is_program = arguments is None
    if is_program:
        _tolerate_closed_or_narrow_output()
    given = sys.argv[1:] if arguments is None else arguments
    words = _with_values(word for word in given if word != DEBUG)
    begin_reply(words, debug=DEBUG in given)
    try:
        if is_program:
            _handle_interrupts()
        if interrupts:
            raise KeyboardInterrupt
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt as interruption:
        fail(str(interruption) or INTERRUPTED, 130, interruption)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            sys.stdout = None  # else the interpreter tries to flush it again at exit
        fail(*_described(error))


def _with_values(words: Iterable[str]) -> list[str]:
    """Join a value such as ``-3h`` to its option, which judges it: as a word it is read as options."""
    joined: list[str] = []
    for word in words:
        if re.match(r"-[\d.]+[a-zA-Z]", word) and joined and re.fullmatch(r"--[a-z][a-z\d-]*", joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _described(error: Exception) -> tuple[str, int, Exception]:
    """Return message and exit code of an error, and the error that `--json` prints."""
    if isinstance(error, CycloptsError):
        command = " ".join(error.command_chain or ())
        usage_error = InputError(command or "command line", _mistakes_of(error))
        page = " ".join(filter(None, ("traincast", command)))
        return f"{usage_error}\n  see {page} --help", 2, usage_error
    missing = MissingExtra.of(error) if isinstance(error, ImportError) else None
    if isinstance(missing or error, TraincastError):
        error = missing or error
        return str(error), getattr(error, "exit_code", 2), error
    if isinstance(error, OSError) and error.errno is not None:
        where = "" if error.filename is None else f"{error.filename}: "
        return f"cannot write: {where}{error.strerror}", 2, error
    if isinstance(error, MemoryError):
        return f"needs more memory than there is{f': {error}' if str(error) else ''}", 2, error
    about = f"{type(error).__name__}: {error}".strip(": ")
    return f"{OWN_MISTAKE}: {about}\n  {DEBUG} shows where", 2, error


def _handle_interrupts() -> None:
    """Let the first Ctrl-C end what runs, and a second end at once."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    signal.signal(signal.SIGINT, _interrupt)
    usual = sys.unraisablehook

    def raise_again_or_report(dropped: "sys.UnraisableHookArgs") -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            usual(dropped)
        elif hasattr(signal, "pthread_kill"):  # Python drops it in a __del__, or a callback of an import
            signal.signal(signal.SIGINT, _interrupt)
            thread = threading.main_thread().ident
            threading.Timer(RAISED_AGAIN_AFTER, signal.pthread_kill, (thread, signal.SIGINT)).start()
        else:
            _end_at_once(signal.SIGINT, None)

    sys.unraisablehook = raise_again_or_report


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, _end_at_once)
    raise KeyboardInterrupt


def _end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    with suppress(OSError):
        os.write(2, f"traincast: {INTERRUPTED}\n".encode())
    os._exit(130)


def _tolerate_closed_or_narrow_output() -> None:
    """Print ? for characters that cannot be encoded; end quietly when the reader closes the pipe."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _mistakes_of(error: CycloptsError) -> list[str]:
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
