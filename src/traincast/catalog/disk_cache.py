"""Cache on disk of results that follow from the package's own files alone, shared by processes."""

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Final, ParamSpec, TypeVar
from zlib import adler32, crc32  # a digest of hashlib costs more to import than all of this

VARIABLE: Final = "TRAINCAST_CACHE"  # folder to keep them in, or "off"
READ: Final = (".py", ".yaml")  # files of the package that results depend on

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def cached_on_disk(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Cache the results of a function of the package's own files and of plain arguments.

    They are as good as compiled modules: whatever changes in a file that they depend on makes them anew, and
    where they cannot be written or read, the function is called. Checking a file of the catalogue costs
    parsers and schemas a quarter of a second, most of the time of a short command.
    """

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        folder = _folder()
        if folder is None:
            return function(*args, **kwargs)
        call_key = repr((function.__module__, function.__qualname__, args, sorted(kwargs.items())))
        file = folder / f"{_digest([call_key])}.pickle"
        try:
            stored_key, result = pickle.loads(file.read_bytes())
            if stored_key == call_key:
                return result  # type: ignore[no-any-return]
        except Exception:
            pass
        result = function(*args, **kwargs)
        _write(file, pickle.dumps((call_key, result)))
        return result

    return call


@cache
def _folder() -> Path | None:
    """Return the folder for the results of this installation as it is; None if they are not to be kept."""
    where = os.environ.get(VARIABLE) or os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    if where == "off":
        return None
    try:
        root = Path(where).expanduser() if where else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return root / "traincast" / _digest([str(Path(__file__).parent)]) / _fingerprint()


def _digest(lines: Sequence[str]) -> str:
    text = "\n".join(lines).encode()
    return f"{crc32(text):08x}{adler32(text):08x}"


def _fingerprint() -> str:
    """Return a digest of Python's version and of the names, sizes and times of the files that are read."""
    seen, folders = [sys.version], [str(Path(__file__).parent.parent)]
    while folders:
        for entry in sorted(os.scandir(folders.pop()), key=lambda entry: entry.name):
            if entry.is_dir():
                folders.append(entry.path)
            elif entry.name.endswith(READ):
                about = entry.stat()
                seen.append(f"{entry.path} {about.st_size} {about.st_mtime_ns}")
    return _digest(seen)


def _write(file: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it; what cannot be written is left."""
    from tempfile import mkstemp

    try:
        if not file.parent.exists():
            _remove_others(file.parent)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = mkstemp(dir=file.parent)
        with os.fdopen(handle, "wb") as partial:
            partial.write(content)
        Path(name).replace(file)
    except OSError:
        pass


def _remove_others(folder: Path) -> None:
    """Remove the results of this installation as it was."""
    from shutil import rmtree

    for other in folder.parent.glob("*"):
        rmtree(other, ignore_errors=True)
