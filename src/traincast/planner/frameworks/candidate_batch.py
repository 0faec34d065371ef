"""Candidates of a search that share their choices: strategy, schedule, recomputation and the like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from traincast.core import DEFAULTS, STRATEGIES
from traincast.step import Rule

# Choices, and the axes at whose degree 1 every value of them makes the same plan.
WITHOUT_EFFECT_AT_1: Final = {"sp": ("tp",), "order": ("pp", "dp"), "schedule": ("pp",)}
# Choices that rules or the enumeration depend on.
SHAPING: Final = ("schedule", "attention", "sp", "order", "tp_overlap", "ep_overlap", "layout", "offload")
ORDER: Final = DEFAULTS["order"]


@dataclass(frozen=True)
class CandidateBatch:
    """Candidates that differ in numbers only."""

    strategy: str
    choices: tuple[
        tuple[str, Any], ...
    ] = ()  # besides those of the strategy; and knobs that are not searched
    vp: int | None = 1  # virtual stages of a device; None searches them
    experts: bool = False  # whether expert parallelism is searched
    hybrid: bool = False  # whether replicas of the sharded state (HSDP) are searched
    uneven: bool = False  # whether stages may differ by a layer
    ordered: bool = False  # whether ranks are placed in the framework's order only, instead of every way
    partial: bool = False  # whether placements in order may leave a part of every fast domain empty as well
    above: tuple[tuple[str, int], ...] = ()  # degrees that are searched only above a number
    locks: tuple[tuple[str, int], ...] = ()  # knobs locked to one value
    # whether tensor-parallel communication is overlapped in groups inside a fast domain, and in no others
    overlaps_in_domain: bool = False
    rules: tuple[Rule, ...] = ()  # conditions of the framework besides those of every search

    @property
    def given(self) -> dict[str, Any]:
        """All choices, as fields of `Plans`."""
        return {**STRATEGIES[self.strategy].choices, **dict(self.choices)}

    @cached_property
    def shape(self) -> "CandidateBatch":
        """The batch with what shapes its space only: batches of one shape share it."""
        given = {name: value for name, value in self.choices if name in SHAPING and value != DEFAULTS[name]}
        return replace(self, choices=tuple(sorted(given.items())), overlaps_in_domain=False)


def join_batches(batches: list[CandidateBatch]) -> list[CandidateBatch]:
    """Join batches of the same choices: with replicas where one of them has any."""
    joined: dict[object, CandidateBatch] = {}
    for batch in batches:
        choices = ((name, value) for name, value in batch.choices if value != DEFAULTS[name])
        key = batch.strategy, frozenset(choices), batch.above
        first = joined.setdefault(key, batch)
        if batch.hybrid and not first.hybrid:
            joined[key] = replace(first, hybrid=True)
    return list(joined.values())


def axes_above_one(chosen: Mapping[str, object], searched: Mapping[str, Sequence[object]]) -> tuple[str, ...]:
    """Return the axes above whose degree 1 chosen values make plans that the searched default does not."""
    return tuple(
        axis
        for choice, axes in WITHOUT_EFFECT_AT_1.items()
        if choice in chosen and chosen[choice] != DEFAULTS[choice] in searched[choice]
        for axis in axes
    )
