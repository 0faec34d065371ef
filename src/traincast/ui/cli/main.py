"""The command line, `traincast COMMAND`; each command takes `--json`.

Exit code 0 for an answer, 1 where no plan fits (with what would make one fit), 2 for input that cannot be
used or output that cannot be written, 130 when interrupted.
"""

import signal
import sys
from collections.abc import Sequence

from cyclopts import CycloptsError

from traincast.core.errors import InputError, MissingExtra, TraincastError
from traincast.ui.cli import accuracy, analysis, launch, plan, reference, study
from traincast.ui.cli.app import app, begin_reply, fail
from traincast.ui.cli.help_pages import arrange
from traincast.ui.cli.usage_errors import mistakes_of

__all__ = ["accuracy", "analysis", "app", "launch", "main", "plan", "reference", "study"]

arrange(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    if arguments is None:
        _tolerate_closed_or_narrow_output()
    begin_reply(sys.argv[1:] if arguments is None else arguments)
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        if sys.stdout is not None:
            sys.stdout.flush()
    except CycloptsError as error:
        command = " ".join(error.command_chain or ())
        usage_error = InputError(command or "command line", mistakes_of(error))
        fail(f"{usage_error}\n  see {' '.join(filter(None, ('traincast', command)))} --help", 2, usage_error)
    except TraincastError as error:
        fail(str(error), error.exit_code, error)
    except ImportError as error:
        missing = MissingExtra.of(error)
        if missing is None:
            raise
        fail(str(missing), missing.exit_code, missing)
    except OSError as error:
        if error.filename is None:
            sys.stdout = None  # else the interpreter tries to flush it again at exit
        where = "" if error.filename is None else f"{error.filename}: "
        fail(f"cannot write: {where}{error.strerror}", 2, error)
    except KeyboardInterrupt:
        fail("interrupted", 130)


def _tolerate_closed_or_narrow_output() -> None:
    """Print ? for characters that cannot be encoded; end quietly when the reader closes the pipe."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
