"""Constants fitted to the published runs (published.yaml), and their present values in the catalogue."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import hypot, log
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.accuracy.fit.parameters import Home, Parameter
from traincast.catalog.documents import catalogue, read_document
from traincast.catalog.load import load_accelerator, load_system
from traincast.catalog.software import FILES as SOFTWARE_FILES
from traincast.catalog.software import SPACES
from traincast.catalog.software_stacks import CALIBRATED_FILE, calibrated, value_of_owner
from traincast.core.assumptions import CALIBRATED
from traincast.core.errors import InputError
from traincast.core.quantities import Floats

FILE: Final = Path(__file__).with_name("published.yaml")
RUNS: Final = re.compile(r"published (training )?runs|published vTrain runs|fits of BLOOM")
# of the catalogue; constants of frameworks, releases and facts have files of their own (SOFTWARE_FILES)
FOLDERS: Final = {"accelerator": "accelerators", "network": "systems", "stack": "stacks"}
HOMES: Final[dict[str, Home]] = {
    "accelerators": "accelerator",
    "networks": "network",
    "software": "stack",
    "universal": "universal",
}
STRAIN: Final = 1.5  # distance from a prior that asks for an explanation [sigma]
AT_BOUND: Final = 0.01  # a value this near to a bound is at it [1]
MAX_CONSTANTS: Final = {
    "generation": 12,
    "network": 6,
    "stack": 8,
    "universal": 18,
}  # constants per generation, network, stack, and in all


def parameters(path: Path = FILE) -> tuple[Parameter, ...]:
    """Read the fitted constants; the meaning of each is the reason for its prior.

    Raises
    ------
    InputError
        If one of them cannot be fitted, is listed twice, or there are more than `MAX_CONSTANTS` of something.
    """
    document = read_document(path)
    constants = _constants(document)
    problems = [f"{name}: listed {n} times" for name, n in Counter(_named(constants)).items() if n > 1]
    problems += [
        f"{what} {name}: {n} constants, at most {MAX_CONSTANTS[what]}"
        for (what, name), n in counts(path).items()
        if n > MAX_CONSTANTS[what]
    ]
    if problems:
        raise InputError(str(path), problems)
    return tuple(constants)


def with_priors(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the entries of a section, those that are like another with the prior of the other.

    Its `sigma` is that of a factor on the constant of the other.
    """
    lines = document.get(name) or []
    owned = {(of, line["path"]): line for line in lines for of in line.get("of", ())}
    found = []
    for line in lines:
        if "like" in line:
            other = owned.get((line["like"], line["path"]))
            if other is None or "like" in other:
                raise InputError(str(FILE), [f"{name}.{line['path']}: like {line['like']}, which has none"])
            sigma = hypot(line["sigma"], other["sigma"])
            ends = {end: other[end] for end in ("low", "high") if end in other}
            of_other = {"prior": other["prior"], "sigma": sigma, "shared": other["sigma"] / sigma}
            line = {**ends, **line, **of_other, "like": "+".join(other["of"])}
        found.append(line)
    return found


def _constants(document: dict[str, Any]) -> list[Parameter]:
    """Return the constants of all sections but those set apart."""
    return [parameter(HOMES[name], line) for name in HOMES for line in with_priors(document, name)]


def pooled(path: Path = FILE) -> float:
    """Return the correlation of the priors of software constants of one field."""
    return float(read_document(path)["pooled"])


def parameter(home: Home, line: dict[str, Any]) -> Parameter:
    """Return the constant of an entry."""
    given = {name: value for name, value in line.items() if name not in ("path", "of", "why", "strain")}
    if not line.get("why"):
        raise InputError(str(FILE), [f"{home}.{line['path']}: why is its prior believed?"])
    return Parameter(
        path=f"{home}.{line['path']}", of=tuple(line.get("of", ())), meaning=line["why"], **given
    )


def counts(path: Path = FILE) -> Counter[tuple[str, str]]:
    """Count all constants that runs decide, those set apart included, by what they belong to."""
    document = read_document(path)
    constants = _constants(document)
    generations = {name: kind for kind, names in document["generations"].items() for name in names}
    found = Counter(_counted(constants, generations))
    for line in document.get("apart") or ():
        for name in line["of"]:
            if name == CALIBRATED:
                found["universal", ""] += 1
            elif name in catalogue("accelerators"):
                found["generation", generations.get(name, name)] += 1
            else:
                found["stack", name] += 1
    return found


@dataclass(frozen=True)
class Strain:
    """Constant at a bound or far from its prior: value, distance from the prior in sigma, and the reason."""

    name: str
    prior: float
    value: float
    sigmas: float
    at_bound: bool
    why: str


def strained(path: Path = FILE) -> list[Strain]:
    """Return the constants of the catalogue that lie at a bound or more than `STRAIN` from their prior."""
    document = read_document(path)
    found = []
    for home in HOMES:
        for line in with_priors(document, home):
            constant = parameter(HOMES[home], line)
            value = in_catalogue(constant)
            sigmas = log(value / constant.prior) / constant.sigma
            at_bound = not constant.low * (1 + AT_BOUND) < value < constant.high * (1 - AT_BOUND)
            if at_bound or abs(sigmas) > STRAIN:
                why = line.get("strain", "")
                found.append(Strain(constant.name, constant.prior, value, sigmas, at_bound, why))
    return found


def _named(constants: Sequence[Parameter]) -> Iterable[str]:
    """Yield ``owner:path`` of every constant, once per owner."""
    for constant in constants:
        yield from (f"{name}:{constant.path}" for name in constant.of or (CALIBRATED,))


def _counted(constants: Sequence[Parameter], generations: dict[str, str]) -> Iterable[tuple[str, str]]:
    """Yield the kind and name that each constant counts for: generation, network, stack or universal."""
    for constant in constants:
        if constant.home == "accelerator":
            yield from (
                ("generation", kind) for kind in {generations.get(name, name) for name in constant.of}
            )
        else:
            yield from ((constant.home, name) for name in constant.of or ("",))


def unlisted(path: Path = FILE) -> list[str]:
    """Return the figures that the catalogue calls fitted to published runs but the file does not list."""
    known = set(_named(parameters(path))) | {
        f"{name}:{line['path']}"
        for line in read_document(path).get("apart") or ()
        for name in line["of"]
        if line["why"]
    }
    missing = []
    files = [
        (home, name, read_document(file))
        for home, folder in FOLDERS.items()
        for name, file in catalogue(folder).items()
    ]
    files += [
        ("stack", name, entry)
        for file in SOFTWARE_FILES
        for name, entry in read_document(file).items()
        if name != SPACES
    ]
    for home, name, document in (*files, ("universal", CALIBRATED, read_document(CALIBRATED_FILE))):
        for field, entry in _entries(document):
            key = f"{name}:{home}.{field}" if f"{name}:{field}" not in known else f"{name}:{field}"
            fitted = entry.get("basis") == "fitted" and RUNS.search(entry.get("source", ""))
            if fitted and key not in known:
                missing.append(key)
    return missing


def _entries(document: Any, path: str = "") -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the path and entry of every figure of a file; tiers of a network by number."""
    if isinstance(document, dict) and "value" in document:
        yield path.removeprefix("network."), document
    elif isinstance(document, dict | list):
        for key, part in document.items() if isinstance(document, dict) else enumerate(document):
            yield from _entries(part, f"{path}.{key}" if path else str(key))


@cache
def assumed_over_fitted() -> Floats:
    """Return ln(assumed / fitted) of the rates of products of accelerators that have both.

    Assumed is what was believed of a rate before runs were fitted (its prior).
    """
    rates = [
        item for item in parameters() if item.name.endswith("_sustained") and "accelerator." in item.name
    ]
    return np.array([log(item.prior / in_catalogue(item)) for item in rates])


def in_catalogue(constant: Parameter) -> float:
    """Return the value in the catalogue [`unit` of the constant]; the prior if it is absent or 0."""
    match constant.home:
        case "accelerator":
            value = getattr(load_accelerator(constant.of[0]), constant.field)
        case "network":
            value = getattr(
                load_system(constant.of[0]).tiers[int(constant.path.split(".")[1])], constant.field
            )
        case "stack":
            value = value_of_owner(constant.of[0], constant.field)
        case _:
            value = calibrated().value(constant.field)
    return float(value) if value else constant.prior
