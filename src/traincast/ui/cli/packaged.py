"""Pages of the documentation and examples: in the package as a wheel installs it, else in the repository."""

import shutil
from pathlib import Path
from typing import Final

from traincast.core import ErrorCollector, InputError, atomic_output, check_folder, check_output, close_to

PACKAGE: Final = Path(__file__).parents[2]
REPOSITORY: Final = PACKAGE.parents[1]
HIDDEN: Final = ("__pycache__", ".ipynb_checkpoints")  # folders that are no example


def folder(kind: str) -> Path:
    """Return the folder of ``"docs"`` or of ``"examples"``.

    Raises `InputError` where neither the package nor the repository around it has one.
    """
    for place in (PACKAGE / kind, REPOSITORY / kind):
        if place.is_dir():
            return place
    raise InputError(kind, [f"are not installed: neither {PACKAGE / kind} nor {REPOSITORY / kind} is there"])


def pages() -> dict[str, Path]:
    """Return the pages of the documentation by name, such as ``"export"`` and ``"questions/memory"``."""
    root = folder("docs")
    found = sorted(root.rglob("*.md"))
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in found}


def page(name: str) -> Path:
    """Return the file of a page, which may be written as ``docs/export.md`` as well."""
    known = pages()
    short = name.removeprefix("docs/").removesuffix(".md")
    if short in known:
        return known[short]
    ends = [found for found in known if found.rpartition("/")[2] == short]
    if len(ends) == 1:
        return known[ends[0]]
    raise InputError("docs", [f"{name!r}: no page; {close_to(short, tuple(known))}"])


def title(path: Path) -> str:
    """Return the first heading of a page, or the comment that a YAML file begins with; empty without one."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = lines if path.suffix == ".md" else lines[: path.suffix == ".yaml"]
    return next((line.removeprefix("# ") for line in first if line.startswith("# ")), "")


def examples() -> dict[str, Path]:
    """Return the files of the examples by their path in the folder, and the folders among them."""
    root = folder("examples")
    return {path.relative_to(root).as_posix(): path for path in _content(root)}


def _content(root: Path) -> list[Path]:
    """Return all files and folders in a folder of examples, but those in `HIDDEN` ones."""
    found = sorted(root.rglob("*"))
    return [path for path in found if not set(HIDDEN) & set(path.relative_to(root).parts)]


def example(name: str) -> Path:
    """Return a file or folder of the examples, whose ending may be left out."""
    known = examples()
    short = name.removeprefix("examples/").rstrip("/")
    if short in known:
        return known[short]
    ends = [found for found in known if short in (found.partition(".")[0], found.rpartition("/")[2])]
    if len(ends) == 1:
        return known[ends[0]]
    raise InputError("example", [f"{name!r}: no example; {close_to(short, tuple(known))}"])


def copy_example(source: Path, output: Path, force: bool) -> list[Path]:
    """Copy a file, or all files of a folder, and return what was written.

    Raises `InputError` if a file is there already, unless `force`; then nothing is written.
    """
    if source.is_file():
        target = output / source.name if output.is_dir() else output
        copies = {source: target}
    else:
        check_folder(output)
        copies = {path: output / path.relative_to(source) for path in _content(source) if path.is_file()}
    errors = ErrorCollector("example")
    for target in copies.values():
        errors.catch(check_output, target, force, ("",))  # of any ending
    errors.raise_any()
    for path, target in copies.items():
        with atomic_output(target) as partial:
            shutil.copyfile(path, partial)
    return list(copies.values())
