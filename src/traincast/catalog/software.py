"""Constants of software: those of its framework, its release and its facts, the last that apply counting.

The files of the folder `software` are read in the order of `FILES`. Each entry of them has a name, by which
calibration refers to it, says ``when`` it applies, and sets constants. Conditions are a framework or several,
a release ``from`` a date on or ``until`` one, and values of facts, of which one must be met. Where `when`
lists several sets of conditions, one of them is enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from traincast.catalog.disk_cache import cached_on_disk
from traincast.catalog.documents import read_document
from traincast.catalog.facts import check_fact, word
from traincast.core import InputError

if TYPE_CHECKING:
    from traincast.catalog.schema.software_stack import AssumptionsFile

FOLDER: Final = Path(__file__).with_name("software")
FILES: Final = tuple(FOLDER / name for name in ("frameworks.yaml", "facts.yaml"))
SPACES: Final = "spaces"  # key of the search space of each framework, in the first file
NOT_CONSTANTS: Final = ("when", "meaning")  # keys of an entry


@dataclass(frozen=True)
class Condition:
    """What software must be for constants to apply: released between dates, and facts of some values."""

    since: str
    until: str
    facts: Mapping[str, tuple[str, ...]]  # fact, the framework among them → values of which one must be met

    def holds(self, facts: Mapping[str, str]) -> bool:
        """Return whether it holds for the facts of a software; `framework` and `released` are among them."""
        released = month(facts["released"])
        if released < self.since or (self.until and released >= self.until):
            return False
        return all(
            not set(allowed).isdisjoint(facts.get(name, "").split("+"))
            for name, allowed in self.facts.items()
        )


@dataclass(frozen=True, eq=False)
class Constants:
    """Constants that belong to software of which one of some conditions holds."""

    name: str
    file: Path
    conditions: tuple[Condition, ...]
    values: "AssumptionsFile"

    @property
    def of_frameworks(self) -> bool:
        """Whether they are of some frameworks alone."""
        return all("framework" in condition.facts for condition in self.conditions)

    def apply_to(self, facts: Mapping[str, str]) -> bool:
        """Return whether they are those of a software with these facts."""
        return any(condition.holds(facts) for condition in self.conditions)


def month(released: str) -> str:
    """Return a date of a release as year and month; of a year alone its middle."""
    return released if "-" in released else f"{released}-06"


@cache
def constants() -> tuple[Constants, ...]:
    """Read the constants of software; of several that apply the last counts."""
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.software_stack import CALIBRATED_SCHEMA

    found = []
    for file in FILES:
        for name, entry in read_document(file).items():
            if name == SPACES:
                continue
            values = {path: value for path, value in entry.items() if path not in NOT_CONSTANTS}
            document = {"name": name, "source": entry["meaning"], **values}
            found.append(
                Constants(name, file, _conditions(name, entry), check(CALIBRATED_SCHEMA, document, name))
            )
    return tuple(found)


def _conditions(name: str, entry: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions of an entry; raise `InputError` for a fact or value that is not allowed."""
    when = entry["when"] if isinstance(entry["when"], list) else [entry["when"]]
    conditions = []
    for stated in when:
        facts = {fact: value for fact, value in stated.items() if fact not in ("from", "until")}
        try:
            of_facts = {fact: _values(fact, value) for fact, value in facts.items()}
        except ValueError as error:
            raise InputError(name, [f"when: {error}"]) from None
        conditions.append(Condition(word(stated.get("from", "")), word(stated.get("until", "")), of_facts))
    return tuple(conditions)


def _values(fact: str, value: Any) -> tuple[str, ...]:
    """Return the allowed values of a condition in their own spelling."""
    return tuple(check_fact(fact, one) for one in (value if isinstance(value, list) else [value]))


def constants_of(facts: Mapping[str, str]) -> tuple[Constants, ...]:
    """Return the constants of a software, in the order in which they are applied."""
    return tuple(entry for entry in constants() if entry.apply_to(facts))


@cache
@cached_on_disk
def search_spaces() -> dict[str, str]:
    """Return the search space of each framework, by name."""
    spaces = read_document(FILES[0])[SPACES]
    return {framework: space for space, frameworks in spaces.items() for framework in frameworks}
