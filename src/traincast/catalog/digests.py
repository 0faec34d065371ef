"""Versions of what an answer follows from: the data of the catalogue, and the model that reads them.

Both are digests of the contents of files, so that they change with every figure and every formula, between
releases too, and are the same on every machine that has the same package.
"""

from collections.abc import Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Final

from traincast.catalog.disk_cache import cached_on_disk
from traincast.core import Doc, Result, __version__

DIGITS: Final = 12  # of a digest, in base 16
DATA: Final = ("catalog",)  # packages whose YAML files are the data
MODEL: Final = ("core", "catalog", "operations", "times", "step", "planner")  # whose modules are the model


class Versions(Result):
    """Versions of package, data and model: two answers with the same ones can be compared."""

    package: Annotated[str, Doc("release of traincast")]
    data: Annotated[str, Doc("digest of the catalogue's files: machines, models, software, fitted constants")]
    model: Annotated[str, Doc("digest of the modules that count, time and search")]

    @classmethod
    def of_installation(cls) -> "Versions":
        """Return the versions of this installation."""
        return cls(__version__, digest_of(DATA, ".yaml"), digest_of(MODEL, ".py"))


@cached_on_disk
def digest_of(packages: tuple[str, ...], ending: str) -> str:
    """Return the digest of the names and contents of the files of some packages with an ending."""
    from hashlib import sha256

    digest = sha256()
    for package in packages:
        for name, file in sorted(_files(files("traincast").joinpath(package), package)):
            if name.endswith(ending):
                content = file.read_text(encoding="utf-8")  # with line ends as they are on any machine
                digest.update(f"{name}\n{content}\n".encode())
    return digest.hexdigest()[:DIGITS]


def _files(folder: Traversable, path: str) -> Iterable[tuple[str, Traversable]]:
    """Yield the files below a folder, with their paths."""
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _files(entry, name)
        else:
            yield name, entry
