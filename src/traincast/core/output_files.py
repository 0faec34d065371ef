"""Atomic output files: written under a temporary name, then renamed; overwritten only on request."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import Final

from traincast.core.errors import InputError

# A new folder with one of these is a mistake.
FILE_ENDINGS: Final = (".svg", ".pdf", ".png", ".jpg", ".jpeg", ".html", ".json", ".csv")


@contextmanager
def atomic_output(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, renamed to `path` at the end; the folder is created.

    An `OSError` meanwhile, such as that of a full disk, names `path`.
    """
    path = path.resolve() if path.is_symlink() else path  # the file is replaced, not the link to it
    partial = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())  # the content must be on disk before the name is
        partial.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(partial), partial):
            error.filename = str(path)
            error.filename2 = None
        raise
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def check_output(path: Path | None, force: bool, endings: Iterable[str]) -> None:
    """Raise `InputError` if a file cannot be written, before the work is done; its folder may be missing."""
    if path is None:  # none is wanted
        return
    if not path.name.endswith(tuple(endings)):
        raise InputError(str(path), [f"ending {path.suffix!r}: must be one of {', '.join(endings)}"])
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise InputError(str(path), [f"{parent.name} is not a folder"])
    if path.is_dir():
        raise InputError(str(path), ["is a folder"])
    if path.exists() and not force:
        raise InputError(str(path), ["already exists; `force=True` overwrites it"])


def check_folder(path: Path | None) -> None:
    """Raise `InputError` if a folder cannot take files, before the work is done; it may be missing."""
    if path is None:  # none is wanted
        return
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not existing.is_dir():
        raise InputError(str(path), [f"{existing.name} is not a folder"])
    if not path.exists() and path.suffix.lower() in FILE_ENDINGS:
        raise InputError(
            str(path),
            [f"ending {path.suffix!r} belongs to a file; give a folder, such as {path.with_suffix('')}"],
        )
