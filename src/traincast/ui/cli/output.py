"""Output that the commands share: progress, JSON, reports, files and errors."""

import json
import os
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Final, NoReturn

from traincast.core import InputError, check_output, printable, rate_text
from traincast.ui.terminal_width import columns_of

if TYPE_CHECKING:
    from traincast.core import Result
    from traincast.ui.html.rendering import Page

SHOWN_AFTER_SECONDS: Final = 0.5  # of work: what is quicker shows no progress bar
OPTION_OF: Final = {  # parameters of the library, as its messages name them
    "force=True": "--force",
    "gbs": "--global-batch",
    "budget": "--budget",
    "runs": "--runs",
    "logs": "--log",
    "nccl": "--nccl",
    "gemm": "--gemm",
    "model": "--model",
    "gpus": "--gpus",
    "recipe": "--recipe",
    "vocab": "--vocab",
}


@contextmanager
def progress(name: str) -> Iterator[Callable[..., None]]:
    """Show a progress bar on a terminal after half a second; yields a callback: done, total, candidates.

    Work that does not call it has a bar without an end. Raises KeyboardInterrupt with a sentence that says
    how far it was.
    """
    begin = time.perf_counter()
    decided = 0
    far = ""
    bar = _ProgressBar(name) if sys.stderr.isatty() else None

    def update(done: float, total: float, candidates: int = 0) -> None:
        nonlocal decided, far
        decided += candidates
        far = f" after {done / total:.0%}" if total else ""
        if bar is not None:
            speed = rate_text(decided / (time.perf_counter() - begin), " candidates/s") if decided else ""
            bar.update(done, total, speed)

    try:
        yield update
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{name} interrupted{far}") from None
    finally:
        if bar is not None:
            bar.stop()


class _ProgressBar:
    """Progress bar on the terminal's stderr, shown after `SHOWN_AFTER_SECONDS`."""

    def __init__(self, name: str):
        from rich.console import Console
        from rich.progress import Progress, ProgressColumn, TimeRemainingColumn

        columns: tuple[str | ProgressColumn, ...] = (
            *Progress.get_default_columns()[:3],
            "{task.fields[rate]}",
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.task = self.progress.add_task(name, total=None, rate="")
        self.showing = Timer(SHOWN_AFTER_SECONDS, self.progress.start)
        self.showing.daemon = True
        self.showing.start()

    def update(self, done: float, total: float, rate: str) -> None:
        """Show how much is done, and how fast."""
        self.progress.update(self.task, completed=done, total=total, rate=rate)

    def stop(self) -> None:
        """End the bar; one that is about to be shown is shown before."""
        self.showing.cancel()
        self.showing.join()
        self.progress.stop()


class _Reply:
    """Arguments typed, and whether JSON is requested and was printed: one object, also of errors."""

    typed: tuple[str, ...] = ()
    wanted = printed = debug = False


def begin_reply(arguments: Sequence[str], debug: bool = False) -> None:
    """Note the command line, and whether JSON is requested, even if the rest of it cannot be parsed."""
    _Reply.typed = tuple(arguments)
    _Reply.wanted = any(word.partition("=")[0] == "--json" for word in arguments)
    _Reply.printed = False
    _Reply.debug = debug


def command_with(option: str) -> list[str]:
    """Return the words of the command line as it was typed, with an option added, quoted for a shell."""
    return [shlex.quote(word) for word in ("traincast", *_Reply.typed, *option.split())]


def check_html(html: Path | None, force: bool) -> None:
    """Refuse a report that cannot be written, before any work is done for it."""
    check_output(html, force, (".html",))
    if html is not None:
        from traincast.ui.html.libraries import require_libraries

        require_libraries()


def check_figure(figure: Path | None, force: bool) -> None:
    """Refuse a figure that cannot be written, before any work is done for it."""
    check_output(figure, force, (".svg", ".pdf", ".png"))


def write_html(page: "Page", html: Path) -> None:
    """Write a report, with the command line that repeats it."""
    from traincast.ui.html.rendering import write_page

    write_page(page, html, shlex.join(("traincast", *_Reply.typed)))


def file_name(path: Path | None) -> str | None:
    """Return a path as text, if there is one."""
    return None if path is None else str(path)


def print_files(*paths: Path | None) -> None:
    """Print the paths of files that were written, a line each."""
    for path in filter(None, paths):
        print(path)


def print_json(value: "Result | dict[str, Any]") -> None:
    """Print one JSON object on standard output."""
    values = value if isinstance(value, dict) else value.to_dict()
    print(json.dumps(values, indent=2, allow_nan=False))
    _Reply.printed = True


def fail(message: str, code: int, error: BaseException | None = None) -> NoReturn:
    """Print an error on standard error, and as JSON where that is requested, and exit with the code."""
    print_failure(message, code, error)
    sys.exit(code)


def print_failure(message: str, code: int, error: BaseException | None = None) -> None:
    """Print an error without exiting; after `--debug`, where it was raised as well."""
    if _Reply.debug and error is not None:
        _print_message("".join(traceback.format_exception(error)).rstrip("\n"))
    if _Reply.wanted and not _Reply.printed:
        from traincast.ui.outputs.reference import ErrorOutput, Failure

        subject = None
        problems = [with_options(message)]
        if isinstance(error, InputError):
            subject = error.subject
            problems = list(map(with_options, error.problems))
        print_json(ErrorOutput(Failure(code, with_options(message), subject, problems)))
    warn(message)


def outlive_closed_pipes() -> None:
    """Let closed pipes and sockets raise an error; else they end a command quietly, as `| head` should."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def with_options(message: str) -> str:
    """Replace the library's parameters in a message by the options of the command line."""
    for parameter, option in OPTION_OF.items():
        message = message.replace(f"`{parameter}`", option)
    return message


def warn(message: str) -> None:
    """Print one message on standard error, wrapped."""
    remark(f"traincast: {with_options(message)}")


def remark(text: str) -> None:
    """Print a line on standard error beside an answer, wrapped as wide as `message_columns`."""
    from traincast.ui.text.tables import paragraphs

    _print_message("\n".join(paragraphs(printable(text), columns=message_columns())))


def _print_message(text: str) -> None:
    """Print on standard error, if that is possible: what cannot be written must not change the exit code."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # a full disk, for instance
        drop_messages()


def drop_messages() -> None:
    """Let messages go nowhere, to the end of the process."""
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def message_columns() -> int:
    """Return the columns that messages are wrapped to."""
    return columns_of(sys.stderr)
