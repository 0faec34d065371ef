"""Worker process: receives requests, sends status and JSON bytes. It can be killed at any time."""

import gc
import json
import math
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from traincast.ui.explorer.limits import MEMORY

READY: Final = "ready"
ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def work(pipe: Connection) -> None:
    """Send READY, then answer requests until the pipe is closed."""
    from traincast.ui.explorer import answers  # noqa: F401  # import everything that answers need

    # An interrupt at the terminal reaches the server, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bound_memory()
    np.seterr(all="ignore")  # NaN and infinity become null
    pipe.send(READY)
    while True:
        try:
            kind, text = pipe.recv()
        except EOFError:
            return
        pipe.send(respond(kind, text))
        if not gc.get_freeze_count():
            gc.freeze()  # imports and data of the first answer stay: exempt from collection


def respond(kind: str, text: str) -> tuple[int, bytes]:
    """Return status and body of the answer to one request in JSON, of a kind in `ANSWERS`."""
    from traincast.core.errors import TraincastError
    from traincast.ui.explorer.answers import ANSWERS

    try:
        return 200, json_bytes(ANSWERS[kind](json.loads(text)))
    except TraincastError as error:
        return 422, failure(str(error), getattr(error, "problems", None))
    except (MemoryError, OverflowError):
        return 422, failure("the numbers are too large to be searched here")
    except Exception as error:  # a bug in traincast: reported, and the process goes on
        traceback.print_exc()
        message = f"a mistake in traincast itself, please report it: {type(error).__name__}: {error}"
        return 500, failure(message)


def failure(message: str, problems: Any = None) -> bytes:
    """Return the body of an error response."""
    return json_bytes({"error": {"message": message, "problems": list(problems or [message])}})


def json_bytes(value: Any) -> bytes:
    """Return JSON in which numbers that are not finite are null."""
    try:
        return ENCODER.encode(value).encode()
    except ValueError:
        return ENCODER.encode(_finite(value)).encode()


def _finite(value: Any) -> Any:
    """Return the value with null in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bound_memory() -> None:
    """Limit the address space, so that a search that is too large does not take the machine's memory."""
    try:
        import resource
    except ImportError:  # a system without limits
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
