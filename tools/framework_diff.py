"""Print what a release of a framework changes for the launches that traincast reads.

    python tools/framework_diff.py FORMAT OLD NEW [--python PYTHON]

FORMAT is a name of `PACKAGES`, OLD and NEW are releases of its package, or folders of unpacked ones. Releases
are installed in temporary folders without what they depend on, and read, not imported. Settings are arguments
of parsers and fields of classes; conditions are those of assertions and of `if` statements that raise. Only
those are printed that name a setting which a row of the launch table reads; a name that is only added is
printed apart, as no row can have it yet. PYTHON installs: a package that builds itself may need others beside
it. The exit code is 0, also where something changed.
"""

import argparse
import ast
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from traincast.launch.formats import READERS


class Package(NamedTuple):
    """A package: its name in the index, and the files of its settings, as patterns within its folder."""

    name: str
    files: tuple[str, ...]


# Where each framework declares what a launch sets, and checks it, in the releases of autumn 2026.
PACKAGES = {
    "megatron": Package(
        "megatron-core",
        (
            "megatron/training/**/*.py",
            "megatron/core/*config*.py",
            "megatron/core/*/*config*.py",
        ),
    ),
    "trl": Package("trl", ("trl/trainer/*.py", "trl/scripts/utils.py")),
    "trainer-program": Package("transformers", ("transformers/training_args.py", "transformers/trainer.py")),
    "accelerate": Package(
        "accelerate",
        (
            "accelerate/commands/**/*.py",
            "accelerate/utils/dataclasses.py",
            "accelerate/parallelism_config.py",
        ),
    ),
    "deepspeed": Package("deepspeed", ("deepspeed/**/*config*.py",)),
    "torchtitan": Package(
        "torchtitan",
        (
            "torchtitan/*.py",
            "torchtitan/config/**/*.py",
            "torchtitan/distributed/**/*.py",
            "torchtitan/components/**/*.py",
        ),
    ),
    "llama-factory": Package("llamafactory", ("llamafactory/hparams/**/*.py",)),
    "axolotl": Package("axolotl", ("axolotl/utils/schemas/**/*.py",)),
}


class Release(NamedTuple):
    """What the files of a release declare and check."""

    settings: dict[str, frozenset[str]]  # by name: each declaration, as text
    conditions: frozenset[str]


def read_release(folder: Path, patterns: Sequence[str]) -> Release:
    """Return what the files of an unpacked release declare and check."""
    settings: dict[str, set[str]] = defaultdict(set)
    conditions: set[str] = set()
    files = {file for pattern in patterns for file in folder.glob(pattern)}
    for file in sorted(files):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for name, declared in _declared(node):
                settings[name].add(declared)
            conditions.update(_conditions(node))
    found = {name: frozenset(declarations) for name, declarations in settings.items()}
    return Release(found, frozenset(conditions))


def _declared(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the settings that a node declares, and how: fields of a class, or arguments of a parser.

    A class is left out, as releases rename and split them.
    """
    if isinstance(node, ast.ClassDef):
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                default = f" = {_without_help(field.value)}" if field.value else ""
                yield field.target.id, f"{field.target.id}: {ast.unparse(field.annotation)}{default}"
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
        words = [word.value for word in node.args if isinstance(word, ast.Constant)]
        flags = [word for word in words if isinstance(word, str) and word.startswith("--")]
        kept = [word for word in node.keywords if word.arg not in (None, "help")]
        given = " ".join(f"{word.arg}={ast.unparse(word.value)}" for word in kept)
        for flag in flags:
            yield _underscored(flag), f"{flag} {given}".rstrip()


def _without_help(default: ast.expr) -> str:
    """Return the text of a default; of a call such as `field(...)` without its words on the meaning."""
    if isinstance(default, ast.Call):
        kept = [
            word
            for word in default.keywords
            if word.arg not in ("metadata", "help", "description", "json_schema_extra")
        ]
        default = ast.Call(default.func, default.args, kept)
    return ast.unparse(default)


def _conditions(node: ast.AST) -> Iterator[str]:
    """Yield the condition that a node checks: of an assertion, or of a statement that raises."""
    if isinstance(node, ast.Assert):
        yield f"assert {ast.unparse(node.test)}"
    elif isinstance(node, ast.If) and any(isinstance(inner, ast.Raise) for inner in node.body):
        yield f"refused if {ast.unparse(node.test)}"


def _underscored(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def differences(old: Release, new: Release, read: Collection[str]) -> Iterator[str]:
    """Yield lines on what changed between releases of what concerns the settings `read`.

    Parameters
    ----------
    old, new
        The releases.
    read
        Names of the settings that the launch table reads, without sections and with underscores.
    """
    for name in sorted(read):
        before = old.settings.get(name, frozenset())
        after = new.settings.get(name, frozenset())
        yield from (f"- {declared}" for declared in sorted(before - after))
        yield from (f"+ {declared}" for declared in sorted(after - before))
    names = set(read)
    for sign, conditions in (
        ("-", old.conditions - new.conditions),
        ("+", new.conditions - old.conditions),
    ):
        for condition in sorted(conditions):
            if names & set(re.findall(r"\w+", condition)):
                yield f"{sign} {condition}"
    added = sorted(new.settings.keys() - old.settings.keys())
    if added:
        yield f"added names, which no row reads: {' '.join(name for name in added if name not in names)}"


def settings_read(form: str) -> frozenset[str]:
    """Return the names of settings that the rows of a format read, without sections, with underscores."""
    return frozenset(_underscored(name.rpartition(".")[2]) for name in READERS[form].known)


def unpacked(package: str, release: str, folder: Path, python: str) -> Path:
    """Return the folder of a release: that which is given, or one where it is installed."""
    if Path(release).is_dir():
        return Path(release)
    target = folder / release
    command = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    alone = ("--no-deps", "--ignore-requires-python", "--no-build-isolation")
    subprocess.run((*command, *alone, "--target", str(target), f"{package}=={release}"), check=True)
    return target


def main(arguments: Sequence[str]) -> int:
    """Print the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("form", metavar="FORMAT", choices=sorted(PACKAGES))
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args(arguments)
    package = PACKAGES[given.form]
    with tempfile.TemporaryDirectory() as folder:
        releases = []
        for name in (given.old, given.new):
            where = unpacked(package.name, name, Path(folder), given.python)
            release = read_release(where, package.files)
            if not release.settings:
                parser.error(f"{package.name} {name}: no settings in {', '.join(package.files)}")
            releases.append(release)
    for line in differences(releases[0], releases[1], settings_read(given.form)):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
