"""Worker process: receives requests, sends status and JSON bytes. It can be killed at any time."""

import ctypes
import gc
import json
import math
import signal
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from traincast.planner import Progress, report_progress_to
from traincast.ui.explorer.limits import MEMORY

READY: Final = "ready"
ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class SearchStatus(ctypes.Structure):
    """Memory that worker and server share: how far a search is, and whether it is still wanted."""

    _fields_ = (
        ("done", ctypes.c_int64),  # steps
        ("total", ctypes.c_int64),
        ("candidates", ctypes.c_int64),
        ("is_begun", ctypes.c_bool),  # the worker has read the request
        ("is_abandoned", ctypes.c_bool),
    )


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


def work(pipe: Connection, status: SearchStatus, systems: Sequence[str] = (), memory: int = MEMORY) -> None:
    """Send READY, then answer requests until the pipe is closed.

    `systems` are files that are offered; `memory` is what the process may address [bytes].
    """
    from traincast.ui.explorer import answers  # noqa: F401  # import everything that answers need
    from traincast.ui.explorer.question import offer

    offer(systems)

    def progress(done: int, total: int, candidates: int) -> None:
        status.done = done
        status.total = total
        status.candidates += candidates
        end_if_abandoned()

    def end_if_abandoned(_: float = 0.0) -> None:
        if status.is_abandoned:
            raise Abandoned

    # An interrupt at the terminal reaches the server, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bound_memory(memory)
    np.seterr(all="ignore")  # NaN and infinity become null
    pipe.send(READY)
    while True:
        try:
            kind, text = pipe.recv()
        except EOFError:
            return
        status.is_begun = True
        with report_progress_to(end_if_abandoned):
            answer = respond(kind, text, progress)
        pipe.send(answer)
        if not gc.get_freeze_count():
            gc.freeze()  # imports and data of the first answer stay: exempt from collection


def respond(kind: str, text: str, progress: Progress) -> tuple[int, bytes]:
    """Return status and body of the answer to one request in JSON, of a kind in `SEARCHES` or `LOOK_UPS`."""
    from traincast.core import TraincastError
    from traincast.ui.explorer.answers import LOOK_UPS, SEARCHES

    try:
        request = json.loads(text)
        content = SEARCHES[kind](request, progress) if kind in SEARCHES else LOOK_UPS[kind](request)
        return 200, json_bytes(content)
    except Abandoned:
        return 503, failure("the request was abandoned")
    except TraincastError as error:
        return 422, failure(str(error), getattr(error, "problems", None))
    except (MemoryError, OverflowError):
        return 422, failure("the numbers are too large to be searched here")
    except Exception as error:  # a bug in traincast: reported, and the process goes on
        return 500, mistake(error)


def mistake(error: Exception) -> bytes:
    """Print an unexpected error with its traceback, and return the body of the response to it."""
    traceback.print_exception(error)
    return failure(f"a mistake in traincast itself, please report it: {type(error).__name__}: {error}")


def failure(message: str, problems: Any = None) -> bytes:
    """Return the body of an error response."""
    return json_bytes({"error": {"message": message, "problems": list(problems or [message])}})


def json_bytes(value: object) -> bytes:
    """Return JSON in which numbers that are not finite are null."""
    try:
        return ENCODER.encode(value).encode()
    except ValueError:
        return ENCODER.encode(_finite(value)).encode()


def _finite(value: object) -> object:
    """Return the value with null in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bound_memory(memory: int) -> None:
    """Limit the address space, so that a search that is too large does not take the machine's memory."""
    try:
        import resource
    except ImportError:  # a system without limits
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
