"""Results that take long and are made once: in a process, or for all processes that share a folder."""

import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

FOLDER: Final = "CALIBRATION_RESULTS"  # environment variable; the workers of a test run share such a folder
Result = TypeVar("Result")


def made_once(make: Callable[[], Result]) -> Callable[[], Result]:
    """Cache the result of a function, for every process where `FOLDER` names a folder."""

    @cache
    def made() -> Result:
        folder = os.environ.get(FOLDER)
        if folder is None:
            return make()
        import fcntl

        file = Path(folder, f"{make.__module__}.{make.__qualname__}.pickle")
        with file.open("a+b") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)  # another may be at it; released when the file is closed
            if not file.stat().st_size:
                pickle.dump(make(), opened)
                opened.flush()
            opened.seek(0)
            return pickle.load(opened)  # type: ignore[no-any-return]

    return made
