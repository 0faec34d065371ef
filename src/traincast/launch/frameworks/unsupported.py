"""Launches that are recognised but not supported: of other programs, or of models other than decoders.

They stand in `tables/unsupported.toml`. A file of another program is recognised by keys that only this
program has, since it may share many with a supported format.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from traincast.core import InputError
from traincast.launch.scripts.bash import command_lines
from traincast.launch.settings.given import NOTHING, Given
from traincast.launch.settings.settings import is_off
from traincast.launch.settings.table import load_document

KEY: Final = re.compile(
    r"(?m)(?:^[ \t]*(?:export |- )?|[{,\s])(?:--([A-Za-z_][\w.-]*)|[\"']?([A-Za-z_][\w.-]*)[\"']?[ \t]*[:=])"
)  # keys of YAML, JSON and Python, variables, and arguments
COMMENT: Final = re.compile(r"(?m)(?:^|\s)(?:#(?!SBATCH)|//).*$")


CONFIGURATION: Final = re.compile(r"[^=\s]+\.(?:toml|ya?ml)")  # that a command names
TABLE: Final = load_document("unsupported")
UNAMBIGUOUS_SETTINGS: Final = tuple(TABLE["unambiguous"].split())
TRAINING: Final = re.compile(r"(?:train|finetune)\w*\.py\b")  # programs that train
ADVICE_ON_ACTORS: Final = "; --actor reads the actor's training step alone"
# Formats of actors.
ACTORS: Final = {s["actor"] for s in TABLE["programs"].values() if isinstance(s, dict) and "actor" in s}
TRAINER: Final = "Hugging Face Trainer"  # the program whose scripts are of several formats
LEAST_KEYS: Final = 2  # that identify a program


def keys_of(text: str) -> set[str]:
    """Return the keys and arguments of a text, with dashes as underscores and without those in comments.

    Examples
    --------
    >>> sorted(keys_of('{"pipe-parallel-size": 1,  # stages' + chr(10) + ' "pos_emb": "rotary"}'))
    ['pipe_parallel_size', 'pos_emb']
    """
    return {(flag or key).replace("-", "_") for flag, key in KEY.findall(COMMENT.sub("", text))}


def program_of(text: str, path: str, actor: bool = False, given: Given = NOTHING) -> str | None:
    """Return the format that the keys or commands of a file tell, of its actor on request; None if none.

    Raises
    ------
    InputError
        If it is of an unsupported program.
    """
    names = keys_of(text)
    lines = command_lines(text, path, given)
    for title, spec in TABLE["programs"].items():
        parts: Mapping[str, Any] = {"keys": spec} if isinstance(spec, str) else spec
        found = sum(any(fnmatchcase(name, key) for name in names) for key in parts.get("keys", "").split())
        if "unless" in parts and re.search(parts["unless"], text):
            continue
        if (
            found >= parts.get("least", LEAST_KEYS)
            or ("pattern" in parts and re.search(parts["pattern"], text))
            or ("command" in parts and any(re.search(parts["command"], line) for line in lines))
        ):
            if "format" in parts:
                files = (form for form, keys in parts.get("files", {}).items() if names & {*keys.split()})
                return format_of_script(lines, title) or next(files, str(parts["format"]))
            if actor and "actor" in parts:
                return str(parts["actor"])
            advice = ADVICE_ON_ACTORS if "actor" in parts else parts.get("advice", "")
            config = next(filter(CONFIGURATION.fullmatch, " ".join(lines).split()), "its configuration")
            advice = advice.replace("FILE", config)
            more = (f"; {what}" for what, sign in parts.get("also", {}).items() if re.search(sign, text))
            problem = f"is a launch of {title}, which is not supported yet{advice}{''.join(more)}"
            raise InputError(path, [problem])
    return None


def format_of_script(lines: Sequence[str], title: str) -> str:
    """Return the format that the commands of a script tell, where scripts of a program have several."""
    scripts: Mapping[str, str] = TABLE["programs"][title].get("scripts", {})
    found = (form for form, sign in scripts.items() if any(re.search(sign, line) for line in lines))
    return next(found, "")


def check_training_kind(
    words: Sequence[str], settings: Mapping[str, object], path: str, spelled: Callable[[str], str] = str
) -> None:
    """Raise an `InputError` with its signs if a training is not pre-training of a decoder-only model."""
    for title, kind in TABLE["trainings"].items():
        if signs := list(dict.fromkeys(_signs(kind, words, settings, spelled))):
            advice = kind.get("advice", "")
            problem = f"is a launch of {title}, which is not supported: {', '.join(signs[:3])}{advice}"
            raise InputError(path, [problem])


def _signs(
    kind: Mapping[str, Any], words: Sequence[str], settings: Mapping[str, Any], spelled: Callable[[str], str]
) -> Iterator[str]:
    """Yield the programs, settings and values that identify a kind of training."""
    programs = "|".join(kind["programs"]) or "(?!)"
    patterns = kind["settings"].split()
    values = kind.get("values", {})
    trains = any(TRAINING.search(word) for word in words)
    patterns_of_programs = [programs] + ([kind["alone"]] if "alone" in kind and not trains else [])
    for word in words:
        for pattern in patterns_of_programs:
            if match := re.search(pattern, word):
                yield match[0]
    for name, value in settings.items():
        text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if not is_off(value) and any(fnmatchcase(name, pattern) for pattern in patterns):
            yield spelled(name)
        if name in values and re.search(values[name], text, re.IGNORECASE):
            yield f"{spelled(name)} {text[:60]}"
