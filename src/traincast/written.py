"""Files that are whole or not there: written beside their place and renamed, and never over another unless asked for."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

from traincast.errors import InputError


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
