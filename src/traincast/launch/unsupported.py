"""Launches that are recognised but not supported: of other programs, or of models other than decoders.

They stand in `tables/unsupported.toml`. A file of another program is recognised by keys that only this
program has, since it may share many with a supported format.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.launch.settings import is_off
from traincast.launch.table import load_document

KEY: Final = re.compile(
    r"(?m)(?:^[ \t]*(?:export |- )?|[{,\s])(?:--([A-Za-z_][\w.-]*)|[\"']?([A-Za-z_][\w.-]*)[\"']?[ \t]*[:=])"
)  # keys of YAML, JSON and Python, variables, and arguments
COMMENT: Final = re.compile(r"(?m)(?:^|\s)(?:#(?!SBATCH)|//).*$")


@dataclass(frozen=True)
class UnsupportedProgram:
    """Program whose files are not supported: `least` of the `keys` that only its files have identify it."""

    title: str
    keys: tuple[str, ...]
    least: int = 2

    def fits(self, keys: Iterable[str]) -> bool:
        """Return whether a file's keys are those of this program."""
        names = set(keys)
        return sum(any(fnmatchcase(name, key) for name in names) for key in self.keys) >= self.least


@dataclass(frozen=True)
class UnsupportedTraining:
    """Training other than pre-training of decoder-only models."""

    title: str  # in messages
    settings: tuple[str, ...]  # names that only it has; * stands for anything
    programs: str  # pattern of the programs that do it
    values: Mapping[str, str] = field(default_factory=dict)  # patterns of values that only it has, by setting

    def signs(
        self, words: Iterable[str], settings: Mapping[str, Any], spelled: Callable[[str], str]
    ) -> Iterator[str]:
        """Yield the programs, settings and values that identify it."""
        for word in words:
            if match := re.search(self.programs, word):
                yield match[0]
        for name, value in settings.items():
            if not is_off(value) and any(fnmatchcase(name, pattern) for pattern in self.settings):
                yield spelled(name)
            if name in self.values and re.search(self.values[name], _text(value), re.IGNORECASE):
                yield f"{spelled(name)} {_text(value)[:60]}"


_DOCUMENT: Final = load_document("unsupported")
UNAMBIGUOUS_SETTINGS: Final = tuple(_DOCUMENT["unambiguous"].split())
UNSUPPORTED_PROGRAMS: Final = tuple(
    UnsupportedProgram(title, tuple(spec.split()))
    if isinstance(spec, str)
    else UnsupportedProgram(title, tuple(spec["keys"].split()), spec["least"])
    for title, spec in _DOCUMENT["programs"].items()
)
UNSUPPORTED_TRAININGS: Final = tuple(
    UnsupportedTraining(
        title, tuple(spec["settings"].split()), "|".join(spec["programs"]), spec.get("values", {})
    )
    for title, spec in _DOCUMENT["trainings"].items()
)


def keys_of(text: str) -> set[str]:
    """Return the keys and arguments of a text, with dashes as underscores and without those in comments.

    Examples
    --------
    >>> sorted(keys_of('{"pipe-parallel-size": 1,  # stages' + chr(10) + ' "pos_emb": "rotary"}'))
    ['pipe_parallel_size', 'pos_emb']
    """
    return {(flag or key).replace("-", "_") for flag, key in KEY.findall(COMMENT.sub("", text))}


def check_program(text: str, path: str) -> None:
    """Raise an `InputError` if a file is of an unsupported program."""
    keys = keys_of(text)
    for program in UNSUPPORTED_PROGRAMS:
        if program.fits(keys):
            raise InputError(path, [f"is a launch of {program.title}, which is not supported yet"])


def check_training_kind(
    words: Sequence[str], settings: Mapping[str, Any], path: str, spelled: Callable[[str], str] = str
) -> None:
    """Raise an `InputError` with its signs if a training is not pre-training of a decoder-only model."""
    for kind in UNSUPPORTED_TRAININGS:
        signs = list(dict.fromkeys(kind.signs(words, settings, spelled)))
        if signs:
            problem = f"is a launch of {kind.title}, which is not supported: {', '.join(signs[:3])}"
            raise InputError(path, [problem])


def _text(value: Any) -> str:
    """Return a value as text."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
