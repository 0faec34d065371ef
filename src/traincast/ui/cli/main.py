"""The command line, `traincast COMMAND`; each command takes `--json`.

Exit code 0 for an answer, 1 where no plan fits (with what would make one fit), 2 for input that cannot be
used, output that cannot be written or a mistake in traincast itself, 130 when interrupted. Where the reader
of a pipe goes away, as `| head -1` does, the signal SIGPIPE ends the command, which a shell calls 141.
"""

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

from cyclopts import CycloptsError

from traincast.core import InputError, MissingExtra, TraincastError
from traincast.ui.cli import accuracy, analysis, compare, plan, reference, study, tune
from traincast.ui.cli.aliases import Spelled, spelled_out
from traincast.ui.cli.app import app
from traincast.ui.cli.help_pages import arrange
from traincast.ui.cli.output import begin_reply, drop_messages, fail, warn
from traincast.ui.cli.usage_errors import usage_problems

__all__ = ["accuracy", "analysis", "app", "compare", "main", "plan", "reference", "study", "tune"]

DEBUG: Final = "--debug"  # taken by every command
INTERRUPTED: Final = "interrupted"
RAISED_AGAIN_AFTER: Final = 0.01  # seconds after a finalizer dropped Ctrl-C: it has returned by then
OWN_MISTAKE: Final = "a mistake in traincast itself, please report it (CONTRIBUTING.md says where)"
SUBJECTS_OF_LIBRARY: Final = ("search", "estimate", "plan")  # in whose place a message names the command
arrange(app, (plan, compare, analysis, study, accuracy, tune, reference))


def main(arguments: Sequence[str] | None = None, interrupts: Sequence[int] = ()) -> None:
    """Run the command line, of this process without `arguments`; `interrupts` are those before it began."""
    is_program = arguments is None
    if is_program:
        _tolerate_closed_or_narrow_output()
    given = sys.argv[1:] if arguments is None else arguments
    words = _with_values(word for word in given if word != DEBUG)
    begin_reply(words, debug=DEBUG in given)
    read = Spelled(words)
    try:
        if is_program:
            _handle_interrupts()
            _require_output()
        if interrupts:
            raise KeyboardInterrupt
        read = spelled_out(words)
        for note in read.notes:
            warn(note)
        app(read.words, exit_on_error=False, print_error=False, result_action="return_value")
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt as interruption:
        fail(str(interruption) or INTERRUPTED, 130, interruption)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            sys.stdout = None  # else the interpreter tries to flush it again at exit
        fail(*_describe_error(error, read))


def _with_values(words: Iterable[str]) -> list[str]:
    """Join a value such as ``-3h`` or ``-1 GB/s`` to its option, which judges it; alone it is an option."""
    joined: list[str] = []
    for word in words:
        if re.match(r"-\.?\d", word) and joined and re.fullmatch(r"--[a-z][a-z\d-]*", joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _describe_error(error: Exception, read: Spelled) -> tuple[str, int, Exception]:
    """Return message and exit code of an error in running words, and the error that `--json` prints."""
    if isinstance(error, CycloptsError):
        command = " ".join(error.command_chain or ())
        usage_error = InputError(command or "command line", usage_problems(error, read.words, read.typed))
        page = " ".join(filter(None, ("traincast", command)))
        return f"{usage_error}\n  see {page} --help", 2, usage_error
    if isinstance(error, InputError) and error.subject in (*SUBJECTS_OF_LIBRARY, read.words[0]):
        error = _of_command(error, read.words[0])
    missing = MissingExtra.from_import_error(error) if isinstance(error, ImportError) else None
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


def _of_command(error: InputError, command: str) -> InputError:
    """Return an error of the library with the command in place of what was searched or estimated."""
    starts = tuple(f"{subject}: " for subject in SUBJECTS_OF_LIBRARY)
    problems = [
        problem.partition(": ")[2] if problem.startswith(starts) else problem for problem in error.problems
    ]
    return InputError(command, problems)


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


def _require_output() -> None:
    """Raise an error where there is nowhere to print an answer, as after ``>&-``: none is lost in silence."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed; /dev/null takes what is not wanted")


def _tolerate_closed_or_narrow_output() -> None:
    """Print ? for characters that cannot be encoded; end quietly when the reader closes the pipe."""
    if sys.stderr is None:  # else messages, which are printed there, would be part of the answer
        drop_messages()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
