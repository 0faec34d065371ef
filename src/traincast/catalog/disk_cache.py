"""Cache on disk of results that follow from the package's own files alone, shared by processes."""

import os
import pickle
import stat
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
            stored_key, result = pickle.loads(_own_bytes(file))
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


def _own_bytes(file: Path) -> bytes:
    """Return the content of a file that nobody but its user can have written.

    A pickle runs code when it is read, so one that another user may have put into a shared folder is not.

    Raises
    ------
    OSError
        If there is no such file, or another user owns or may write it or its folder.
    """
    with file.open("rb") as opened:
        for about in (os.stat(file.parent), os.fstat(opened.fileno())):
            if not _is_private(about):
                raise PermissionError(f"{file}: others can write it")
        return opened.read()


def _is_private(about: os.stat_result) -> bool:
    """Return whether only the user of this process can write a file or folder."""
    if not hasattr(os, "geteuid"):  # Windows: the folder lies in the user's own profile
        return True
    others_write = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return about.st_uid == os.geteuid() and not others_write


def _digest(lines: Sequence[str]) -> str:
    text = "\n".join(lines).encode()
    return f"{crc32(text):08x}{adler32(text):08x}"


def _fingerprint() -> str:
    """Return a digest of Python's version and of the names, sizes and times of the files that are read."""
    seen = [sys.version]
    folders = [str(Path(__file__).parent.parent)]
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
            for folder in (file.parents[2], file.parents[1], file.parent):  # parents=True ignores the mode
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(file.parent.stat()):
            return
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
