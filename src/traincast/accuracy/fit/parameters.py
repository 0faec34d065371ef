"""Constants that a calibration may fit: where each lives, what is believed of it beforehand, and how values are put in place."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from math import exp, log
from typing import Any, Final, Literal, TypeAlias

from traincast.catalog.documents import catalogue, known
from traincast.catalog.software_stacks import USUAL, on, resolve, stack_file
from traincast.core.assumptions import Assumptions
from traincast.core.errors import InputError
from traincast.core.system import Accelerator, System, Tier

Home: TypeAlias = Literal["accelerator", "network", "stack", "universal"]
MOST: Final[dict[Home, int]] = {"accelerator": 12, "network": 6, "stack": 6}  # constants fitted of one of each
REACH: Final = 4.0  # a constant without bounds of its own stays within so many sigma of its prior


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One constant that is fitted.

    Parameters
    ----------
    path : str
        Where it lives: ``"accelerator.matrix_sustained"``, ``"network.1.efficiency"``, ``"stack.dispatch_seconds"`` or, for what
        holds everywhere, ``"universal.straggling"``.
    of : tuple of str
        Accelerators, systems or stacks it is a constant of, by their names in the catalogue, all with one value; empty for
        universal ones.
    prior : float
        What is believed beforehand, above 0 [`unit`].
    sigma : float
        Standard deviation of the logarithm of the value beforehand.
    low, high : float, optional
        Bounds; 4 sigma away if left out [`unit`].
    unit, meaning : str
        SI unit, and what it is.

    Raises
    ------
    InputError
        If the path names nothing that can be fitted, or the numbers contradict each other.
    """

    path: str
    prior: float
    sigma: float
    of: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    meaning: str = ""

    def __post_init__(self) -> None:
        problems = [] if self.prior > 0 and self.sigma > 0 else [f"prior = {self.prior}, sigma = {self.sigma}: must be above 0"]
        if not problems:
            object.__setattr__(self, "low", self.low or self.prior * exp(-REACH * self.sigma))
            object.__setattr__(self, "high", self.high or self.prior * exp(REACH * self.sigma))
            if not self.low <= self.prior <= self.high:
                problems += [f"prior = {self.prior}: not between {self.low} and {self.high}"]
        if bool(self.of) == (self.home == "universal"):
            problems += ["of: names what it is a constant of, unless it is universal"]
        if self.field not in _fields(self.home):
            problems += [f"{self.field}: no figure of {'Assumptions' if self.home in ('stack', 'universal') else 'a system'}"]
        if problems:
            raise InputError(f"parameter {self.path}", problems)

    @cached_property
    def home(self) -> Home:
        """What it is a constant of."""
        return self.path.split(".", 1)[0]  # type: ignore[return-value]  # checked with the path

    @cached_property
    def field(self) -> str:
        """Name of the figure."""
        return self.path.rsplit(".", 1)[-1]

    @property
    def name(self) -> str:
        """Path, and what it belongs to."""
        return f"{'+'.join(self.of)}:{self.path}" if self.of else self.path

    def value(self, theta: float) -> float:
        """The value so many sigma from the prior [`unit`]."""
        return min(max(self.prior * exp(self.sigma * theta), self.low), self.high)

    def theta(self, value: float) -> float:
        """How many sigma a value is from the prior."""
        return log(value / self.prior) / self.sigma


def _fields(home: str) -> set[str]:
    """Figures of a home."""
    kinds: dict[str, Any] = {"accelerator": Accelerator, "network": Tier, "stack": Assumptions, "universal": Assumptions}
    if home not in kinds:
        raise InputError(f"parameter of {home}", [f"{home}: must be one of {', '.join(kinds)}"])
    return {one.name for one in fields(kinds[home])} - {"name", "size"}


class Setting:
    """Values of parameters, put in place of what the catalogue says.

    Parameters
    ----------
    parameters : sequence of Parameter
        The parameters.
    values : sequence of float, optional
        Their values; their priors if left out.
    """

    def __init__(self, parameters: Sequence[Parameter], values: Iterable[float] | None = None):
        self.parameters = tuple(parameters)
        self.values = tuple(one.prior for one in parameters) if values is None else tuple(values)

    def system(self, system: System) -> System:
        """A system with the values of its accelerator and its network; what it says of software is left to `assumed`."""
        figures = {self.parameters[i].path: self.values[i] for i in touching_system(self.parameters, system)}
        return replace(system.with_figures(figures), software=()) if figures or system.software else system

    def assumed(self, stack: str, system: System) -> Assumptions:
        """What is assumed of a stack on a system, with the values of its own parameters and the universal ones."""
        changes: dict[str, Any] = {self.parameters[i].field: self.values[i] for i in touching_stack(self.parameters, stack)}
        return replace(on(system, resolve(stack)), **changes)


def touching_system(parameters: Sequence[Parameter], system: System) -> tuple[int, ...]:
    """Places of the parameters that are figures of a system."""
    own = {"accelerator": accelerator_name(system), "network": system.name}
    tiers = len(system.tiers)
    return tuple(
        i
        for i, one in enumerate(parameters)
        if own.get(one.home) in one.of and (one.home != "network" or int(one.path.split(".")[1]) < tiers)
    )


def touching_stack(parameters: Sequence[Parameter], stack: str) -> tuple[int, ...]:
    """Places of the parameters that are assumed of a stack.

    A value of a stack holds for those based on it unless they say something else, in their file or by a parameter of their own.
    """
    return _touching_stack(tuple(parameters), stack)


@cache
def _touching_stack(parameters: tuple[Parameter, ...], stack: str) -> tuple[int, ...]:
    """The same, worked out once."""
    chain = _chain(stack)
    speakers: dict[str, set[str]] = defaultdict(set)
    for one in parameters:
        if one.home == "stack":
            speakers[one.field].update(one.of)
    found = []
    for i, one in enumerate(parameters):
        if one.home in ("stack", "universal"):
            owner = next((name for name, said in chain if name in speakers[one.field] or one.field in said), None)
            if (owner in one.of) if one.home == "stack" else owner is None:
                found.append(i)
    return tuple(found)


@cache
def _chain(stack: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """A stack and those it is based on, each with the fields its file sets."""
    if stack.lower() not in catalogue("stacks"):
        stack = USUAL
    file = stack_file(stack)
    return ((file.name, frozenset(file.changes())), *(_chain(file.based_on) if file.based_on else ()))


@cache
def _accelerators() -> Mapping[str, str]:
    """Names of the catalogue's accelerators by what their files call them."""
    documents = {name: known("accelerators", name) for name in catalogue("accelerators")}
    return {str(document["name"]): name for name, document in documents.items() if document}


def accelerator_name(system: System) -> str:
    """The catalogue's name for a system's accelerator; its own where the catalogue has none of it."""
    return _accelerators().get(system.accelerator.name, system.accelerator.name)
