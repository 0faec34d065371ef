"""What is asked of a search: one question for library, command line, explorer, studies and tuner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:  # so that a command can ask before it imports what answers
    from traincast.core import Assumptions, System
    from traincast.model import Model
    from traincast.planner.frameworks.spaces import Framework

Objective = Literal["time", "throughput", "cost", "memory"]
SEARCH_OBJECTIVES: Final = get_args(Objective)
LISTED: Final = 10  # plans, where the question does not say how many
FIT_PROBABILITY: Final = 0.9  # that the recommended plan fits with, at least, where it does not say it


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a search, before it is checked: values are as they were given.

    `traincast.planner.search_request` checks it. Who answers several questions at once, or finds that
    a part of one is wrong, asks others that differ in some fields (`dataclasses.replace`).
    """

    model: "Model | None" = None  # None where none is meant, or where the one given cannot be read
    system: "System | None" = None  # likewise
    gpus: Sequence[int] = ()  # numbers of GPUs, each with an answer of its own
    gbs: int | None = None  # global batch [sequences]; None where it is left out or wrong
    assumptions: "str | Assumptions | None" = None  # None: those of the framework
    strategy: str | Sequence[str] | None = None  # None: those of the framework
    top: int = LISTED  # plans that are listed
    vp: int | None = None  # virtual stages of a device, of every candidate
    # None: the one usual for the model, or any where that one lacks what is asked
    framework: "str | Framework | None" = None
    locks: Mapping[str, object] | None = None  # knobs and choices that have one value, or a few
    objective: Objective = "time"
    exhaustive: bool = False  # whether every candidate that fits is timed
    fit_probability: float | None = None  # that the recommended plan fits with; None: the usual one
    within: float | None = None  # share of the fastest time that counts as equally fast; None: the usual one
    given: Mapping[str, str] | Sequence[str] | None = None  # facts of the software
