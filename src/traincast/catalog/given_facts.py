"""Facts of software that a question states besides a name (`--given`), and the software that has them."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from traincast.catalog.disk_cache import cached_on_disk
from traincast.catalog.facts import FACTS, OF_SOFTWARE, Words, check_fact
from traincast.catalog.software import search_spaces
from traincast.catalog.software_stacks import (
    ANY_SOFTWARE,
    facts_of,
    stack_framework,
    stack_names,
    stack_of,
    with_facts,
)
from traincast.core import InputError, close_to, raise_problems, type_problems

FACTS_OF_EXPERTS: Final = ("dispatcher", "grouped")  # facts of a layer of experts
# Values that state less than others: a fused dispatcher of tokens that is one of the two
WIDER: Final = {"dispatcher": {"flex": ("deepep", "hybridep")}}
SUBJECT: Final = "given"


def read_given(given: Mapping[str, Words] | Sequence[str] | str | None) -> dict[str, str]:
    """Return facts in their own spelling, in the order of the table of facts.

    Parameters
    ----------
    given : mapping of str to str, str or sequence of str, optional
        Values by fact, ``{"dispatcher": "deepep"}``, or texts such as ``"dispatcher=deepep,graphs=none"``.

    Raises
    ------
    InputError
        If a fact or value is not allowed, or a fact has two values; all mistakes at once.
    """
    if given is None:
        return {}
    words = "a mapping of facts to values, or texts such as dispatcher=deepep"
    raise_problems(SUBJECT, type_problems(SUBJECT, given, words, Mapping, Sequence))
    stated = dict[str, str]()
    problems = list[str]()
    texts = [given] if isinstance(given, str) else given
    for name, value in texts.items() if isinstance(texts, Mapping) else _pairs(texts):
        fact = str(name).strip().lower()
        try:
            read = _check_fact(fact, value)
        except ValueError as error:
            problems.append(str(error))
            continue
        if stated.get(fact, read) != read:
            problems.append(f"{fact} = {stated[fact]} and {fact} = {read}: give one of them")
        stated[fact] = read
    raise_problems(SUBJECT, problems)
    return {fact: stated[fact] for fact in OF_SOFTWARE if fact in stated}


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return facts and values of texts; the values of one fact may be joined by a plus sign."""
    parts = [part.strip() for text in texts for part in str(text).split(",") if part.strip()]
    example = f"write FACT=VALUE, such as dispatcher=deepep; facts: {', '.join(OF_SOFTWARE)}"
    raise_problems(SUBJECT, [f"{part!r}: {example}" for part in parts if "=" not in part])
    pairs = (part.partition("=") for part in parts)
    return [(fact, value.strip()) for fact, _, value in pairs]


def _check_fact(fact: str, value: Words) -> str:
    """Return a value in its own spelling; raise `ValueError` where fact or value are not allowed."""
    if fact in FACTS and fact not in OF_SOFTWARE:
        raise ValueError(
            f"{fact} = {value}: a knob of the plan, no fact of software; {', '.join(OF_SOFTWARE)} are"
        )
    if fact not in OF_SOFTWARE:
        raise ValueError(f"{fact} = {value}: no fact of software; {close_to(fact, tuple(OF_SOFTWARE))}")
    return check_fact(fact, value)


def check_experts(given: Mapping[str, str], has_experts: bool) -> None:
    """Refuse facts of a layer of experts where a model has none."""
    if not has_experts:
        of_none = "is of a layer of experts, and the model has none"
        raise_problems(
            SUBJECT, [f"{name} = {given[name]}: {of_none}" for name in FACTS_OF_EXPERTS if name in given]
        )


@cache
@cached_on_disk
def has_fact(name: str, fact: str, value: str) -> bool:
    """Return whether a software has a fact; of a release, whether it stands for it."""
    own = facts_of(name).get(fact)
    if fact == "released":
        return own == value or with_facts(name, {fact: value}) == name
    if own is None:
        return False
    wider = WIDER.get(fact, {})
    if value in wider.get(own, ()) or own in wider.get(value, ()):
        return True
    return set(value.split("+")) <= set(own.split("+"))


def contradicts(name: str, given: Mapping[str, str]) -> bool:
    """Return whether a software states another value of one of some facts."""
    own = facts_of(name)
    return any(fact in own and not has_fact(name, fact, value) for fact, value in given.items())


def software_with(name: str, given: Mapping[str, str]) -> str:
    """Return the name of a software with facts; its own where it has them.

    Of another framework it is what stands for the release, or for the framework.
    """
    return _software_with(name, tuple(given.items()))


@cache
@cached_on_disk
def _software_with(name: str, facts: tuple[tuple[str, str], ...]) -> str:
    """Return `software_with`."""
    given = dict(facts)
    framework = given.get("framework")
    if framework not in (None, facts_of(name)["framework"]):
        of_it = stack_of(str(framework), given.get("released", ""))
        if of_it is None:
            raise InputError(SUBJECT, [f"framework = {framework}: the catalogue has no software of it"])
        name = of_it
    lacking = {fact: value for fact, value in given.items() if not has_fact(name, fact, value)}
    return with_facts(name, lacking) if lacking else name


def require_software(name: str, given: Mapping[str, str]) -> str:
    """Return `software_with`, where the catalogue has such software.

    Raises `InputError` that names the facts.
    """
    try:
        return software_with(name, given)
    except InputError as error:
        raise InputError(SUBJECT, error.problems) from None


def left_of_framework(unsaid: tuple[str, ...], framework: str) -> tuple[str, ...]:
    """Return what a question that states a framework leaves open of the software that it otherwise does.

    Raises `InputError` where the framework named besides runs other plans.
    """
    stacks = stack_names()
    if unsaid != ANY_SOFTWARE:
        spaces = search_spaces()
        if spaces.get(framework) not in {stack_framework(name) for name in unsaid}:
            runs = ", ".join(dict.fromkeys(facts_of(name)["framework"] for name in unsaid))
            raise InputError(SUBJECT, [f"framework = {framework}: the framework named besides runs {runs}"])
        stacks = tuple(name for name in unsaid if facts_of(name)["framework"] == framework) or stacks
    return tuple(name for name in stacks if facts_of(name)["framework"] == framework)
