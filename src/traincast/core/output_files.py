"""Files that are whole or not there: written beside their place and renamed, and never over another unless asked for."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Final

from traincast.core.errors import InputError

FILES: Final = (".svg", ".pdf", ".png", ".jpg", ".jpeg", ".html", ".json", ".csv")  # endings that no new folder is meant to have


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A file beside a path, which takes its place once it is written; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())  # whole on the disk before it has the name
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_output(path: Path, force: bool, endings: Iterable[str]) -> None:
    """Refuse a path that cannot be written to, before any work is done for it; a folder that is not there will be made."""
    if not path.name.endswith(tuple(endings)):
        raise InputError(str(path), [f"ending {path.suffix!r}: must be one of {', '.join(endings)}"])
    there = next(one for one in path.absolute().parents if one.exists())
    if not there.is_dir():
        raise InputError(str(path), [f"{there.name} is no folder"])
    if path.is_dir():
        raise InputError(str(path), ["is a folder"])
    if path.exists() and not force:
        raise InputError(str(path), ["is there already; --force overwrites it"])


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be written to, before any work is done for it; one that is not there will be made.

    Raises
    ------
    InputError
        If a file is there or above, or the name of a folder that is not there is that of a file.
    """
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    if not there.is_dir():
        raise InputError(str(path), [f"{there.name} is no folder"])
    if not path.exists() and path.suffix.lower() in FILES:
        raise InputError(
            str(path), [f"ending {path.suffix!r} is that of a file: a folder is wanted, such as {path.with_suffix('')}"]
        )
