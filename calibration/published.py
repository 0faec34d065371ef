"""What is fitted to the published runs, read from published.yaml, and what the catalogue says of it now."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from traincast.accuracy.fit.fitted_yaml import FOLDERS
from traincast.accuracy.fit.parameters import Home, Parameter
from traincast.catalog.documents import catalogue, read
from traincast.catalog.load import load_accelerator, load_system
from traincast.catalog.software_stacks import resolve
from traincast.core.assumptions import CALIBRATED
from traincast.core.errors import InputError

FILE: Final = Path(__file__).with_name("published.yaml")
RUNS: Final = re.compile(r"published (training )?runs|published vTrain runs|fits of BLOOM")
HOMES: Final[dict[str, Home]] = {
    "accelerators": "accelerator",
    "networks": "network",
    "stacks": "stack",
    "universal": "universal",
}
MOST: Final = {"generation": 12, "network": 6, "stack": 6, "universal": 16}  # constants fitted of one of each


def parameters(path: Path = FILE) -> tuple[Parameter, ...]:
    """The constants that are fitted, each with why its prior is believed as its meaning.

    Raises
    ------
    InputError
        If one of them cannot be fitted, is listed twice, or there are more than `MOST` of something.
    """
    document = read(path)
    found = [_parameter(HOMES[name], line) for name in HOMES for line in document.get(name) or ()]
    problems = [f"{name}: listed {n} times" for name, n in Counter(_named(found)).items() if n > 1]
    generations = {name: kind for kind, names in document["generations"].items() for name in names}
    problems += [
        f"{what} {name}: {n} constants, at most {MOST[what]}"
        for (what, name), n in Counter(_counted(found, generations)).items()
        if n > MOST[what]
    ]
    if problems:
        raise InputError(str(path), problems)
    return tuple(found)


def _parameter(home: Home, line: dict[str, Any]) -> Parameter:
    """The constant of a line."""
    given = {name: value for name, value in line.items() if name not in ("path", "of", "why")}
    if not line.get("why"):
        raise InputError(str(FILE), [f"{home}.{line['path']}: why is its prior believed?"])
    return Parameter(path=f"{home}.{line['path']}", of=tuple(line.get("of", ())), meaning=line["why"], **given)


def _named(found: Sequence[Parameter]) -> Iterable[str]:
    """What a constant is of, and what it is called there; once for each of what it is of."""
    for one in found:
        yield from (f"{name}:{one.path}" for name in one.of or ("everything",))


def _counted(found: Sequence[Parameter], generations: dict[str, str]) -> Iterable[tuple[str, str]]:
    """What each constant counts for: a generation of accelerators, a network, a stack or everything, once each."""
    for one in found:
        if one.home == "accelerator":
            yield from (("generation", kind) for kind in {generations.get(name, name) for name in one.of})
        else:
            yield from ((one.home, name) for name in one.of or ("",))


def unlisted(path: Path = FILE) -> list[str]:
    """What the catalogue calls fitted to published runs and the file neither fits nor sets apart, by path and file."""
    known = set(_named(parameters(path))) | {
        f"{name}:{line['path']}" for line in read(path).get("apart") or () for name in line["of"] if line["why"]
    }
    found = []
    for home, folder in FOLDERS.items():
        for name, file in catalogue(folder).items():
            for field, entry in _entries(read(file)):
                told = f"{name}:{home}.{field}" if f"{name}:{field}" not in known else f"{name}:{field}"
                if entry.get("basis") == "fitted" and RUNS.search(entry.get("source", "")) and told not in known:
                    found.append(told)
    return found


def _entries(document: Any, path: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
    """Figures of a file that say where they come from, by path; those of a network's tier by its number and name."""
    if isinstance(document, dict) and "value" in document:
        yield path.removeprefix("network."), document
    elif isinstance(document, dict | list):
        for key, part in document.items() if isinstance(document, dict) else enumerate(document):
            yield from _entries(part, f"{path}.{key}" if path else str(key))


def in_catalogue(one: Parameter) -> float:
    """What the catalogue says now [`unit` of the constant]; its prior where it says nothing or 0."""
    match one.home:
        case "accelerator":
            value = getattr(load_accelerator(one.of[0]), one.field)
        case "network":
            value = getattr(load_system(one.of[0]).tiers[int(one.path.split(".")[1])], one.field)
        case "stack":
            value = getattr(resolve(one.of[0]), one.field)
        case _:
            value = getattr(CALIBRATED, one.field)
    return float(value) if value else one.prior
