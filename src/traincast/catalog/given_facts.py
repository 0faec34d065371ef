"""Facts of software that a question states besides a name (`--given`)."""

from collections.abc import Mapping, Sequence
from typing import Final

from traincast.catalog.facts import FACTS, OF_SOFTWARE, Words, check_fact
from traincast.core import close_to, raise_problems, type_problems

FACTS_OF_EXPERTS: Final = ("dispatcher", "grouped")  # facts of a layer of experts
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
