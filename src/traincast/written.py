"""Files that are whole or not there: written beside their place and renamed, and never over another unless asked for."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

from traincast.errors import InputError


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A file beside a path, which takes its place once it is written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())  # whole on the disk before it has the name
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_output(path: Path, force: bool, endings: Iterable[str], makes_folder: bool = False) -> None:
    """Refuse a path that cannot be written to, before any work is done for it; its folder has to be there, or can be made."""
    if not path.name.endswith(tuple(endings)):
        raise InputError(str(path), [f"ending {path.suffix!r}: must be one of {', '.join(endings)}"])
    if not path.parent.is_dir() and not (makes_folder and _can_be_made(path.parent)):
        raise InputError(str(path), [f"there is no folder {path.parent}"])
    if path.is_dir():
        raise InputError(str(path), ["is a folder"])
    if path.exists() and not force:
        raise InputError(str(path), ["is there already; --force overwrites it"])


def _can_be_made(folder: Path) -> bool:
    """Whether what is there of its path is a folder."""
    return next(one for one in (folder, *folder.absolute().parents) if one.exists()).is_dir()
