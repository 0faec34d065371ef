"""Constants that a calibration may fit: their places, their priors, and how values are put in place."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import exp, log
from typing import Final, Literal, TypeAlias

from traincast.catalog.documents import catalogue, catalogue_entry
from traincast.catalog.software_stacks import DEFAULT_STACK, resolve, stack_file, with_fitted_values
from traincast.core.assumptions import ASSUMPTIONS, Assumptions
from traincast.core.errors import InputError
from traincast.core.system import Accelerator, System, Tier

Home: TypeAlias = Literal["accelerator", "network", "stack", "universal"]
MAX_FITTED_CONSTANTS: Final[dict[Home, int]] = {
    "accelerator": 12,
    "network": 6,
    "stack": 6,
}  # of one accelerator, network or stack
BOUND_SIGMAS: Final = 4.0  # bounds of a constant without explicit ones, in sigma from its prior


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A constant to fit.

    Parameters
    ----------
    path : str
        Its place: ``"accelerator.matrix_sustained"``, ``"network.1.efficiency"``, ``"stack.host.dispatch_seconds"`` or, for
        universal constants, ``"universal.host.straggling"``.
    of : tuple of str
        Accelerators, systems or stacks it is a constant of, by their names in the catalogue, all with one
        value; empty for universal ones.
    prior : float
        Mean of the prior, above 0 [`unit`].
    sigma : float
        Standard deviation of the prior of the logarithm.
    low, high : float, optional
        Bounds; 4 sigma away if left out [`unit`].
    unit, meaning : str
        SI unit, and description.

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
        problems = (
            []
            if self.prior > 0 and self.sigma > 0
            else [f"prior = {self.prior}, sigma = {self.sigma}: must be above 0"]
        )
        if not problems:
            object.__setattr__(self, "low", self.low or self.prior * exp(-BOUND_SIGMAS * self.sigma))
            object.__setattr__(self, "high", self.high or self.prior * exp(BOUND_SIGMAS * self.sigma))
            if not self.low <= self.prior <= self.high:
                problems += [f"prior = {self.prior}: not between {self.low} and {self.high}"]
        if bool(self.of) == (self.home == "universal"):
            problems += ["of: names what it is a constant of, unless it is universal"]
        if self.field not in _fields(self.home):
            problems += [
                f"{self.field}: no figure of {'Assumptions' if self.home in ('stack', 'universal') else 'a system'}"
            ]
        if problems:
            raise InputError(f"parameter {self.path}", problems)

    @cached_property
    def home(self) -> Home:
        """Kind of thing it is a constant of."""
        return self.path.split(".", 1)[0]  # type: ignore[return-value]  # checked with the path

    @cached_property
    def field(self) -> str:
        """Name of the figure; path of an assumption."""
        return (
            self.path.rsplit(".", 1)[-1]
            if self.home in ("accelerator", "network")
            else self.path.split(".", 1)[1]
        )

    @property
    def name(self) -> str:
        """Path, with its owners."""
        return f"{'+'.join(self.of)}:{self.path}" if self.of else self.path

    def value(self, theta: float) -> float:
        """Return the value at theta sigma from the prior, within bounds [`unit`]."""
        return min(max(self.prior * exp(self.sigma * theta), self.low), self.high)

    def theta(self, value: float) -> float:
        """Return the distance of a value from the prior, in sigma."""
        return log(value / self.prior) / self.sigma


def _fields(home: str) -> set[str]:
    """Return the names of the figures of a home."""
    names = {
        "accelerator": Accelerator.__dataclass_fields__,
        "network": Tier.__dataclass_fields__,
        "stack": ASSUMPTIONS,
        "universal": ASSUMPTIONS,
    }
    if home not in names:
        raise InputError(f"parameter of {home}", [f"{home}: must be one of {', '.join(names)}"])
    return set(names[home]) - {"name", "size"}


class Setting:
    """Values of parameters that replace those of the catalogue.

    Parameters
    ----------
    parameters : sequence of Parameter
        The parameters.
    values : sequence of float, optional
        Their values; their priors if left out.
    """

    def __init__(self, parameters: Sequence[Parameter], values: Iterable[float] | None = None):
        self.parameters = tuple(parameters)
        self.values = tuple(parameter.prior for parameter in parameters) if values is None else tuple(values)

    def system(self, system: System) -> System:
        """Return a system with the values of its accelerator and its network; its software is applied by `assumed`."""
        figures = {self.parameters[i].path: self.values[i] for i in touching_system(self.parameters, system)}
        return replace(system.with_figures(figures), software=()) if figures or system.software else system

    def assumed(self, stack: str, system: System) -> Assumptions:
        """Return the assumptions of a stack on a system, with the values of its parameters and the universal ones."""
        changes = {self.parameters[i].field: self.values[i] for i in touching_stack(self.parameters, stack)}
        return with_fitted_values(system, resolve(stack)).with_values(changes)


def touching_system(parameters: Sequence[Parameter], system: System) -> tuple[int, ...]:
    """Return the indices of the parameters that are figures of a system."""
    names = {"accelerator": accelerator_name(system), "network": system.name}
    tiers = len(system.tiers)
    return tuple(
        i
        for i, parameter in enumerate(parameters)
        if names.get(parameter.home) in parameter.of
        and (parameter.home != "network" or int(parameter.path.split(".")[1]) < tiers)
    )


def touching_stack(parameters: Sequence[Parameter], stack: str) -> tuple[int, ...]:
    """Return the indices of the parameters that apply to a stack.

    A value of a stack holds for stacks based on it unless their file or a parameter of theirs overrides it.
    """
    return _touching_stack(tuple(parameters), stack)


@cache
def _touching_stack(parameters: tuple[Parameter, ...], stack: str) -> tuple[int, ...]:
    """Return the same from a cache."""
    chain = _based_on_chain(stack)
    owners: dict[str, set[str]] = defaultdict(set)
    for parameter in parameters:
        if parameter.home == "stack":
            owners[parameter.field].update(parameter.of)
    indices = []
    for i, parameter in enumerate(parameters):
        if parameter.home in ("stack", "universal"):
            owner = next(
                (
                    name
                    for name, fields in chain
                    if name in owners[parameter.field] or parameter.field in fields
                ),
                None,
            )
            if (owner in parameter.of) if parameter.home == "stack" else owner is None:
                indices.append(i)
    return tuple(indices)


@cache
def _based_on_chain(stack: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return a stack and those it is based on, each with the fields its file sets."""
    if stack.lower() not in catalogue("stacks"):
        stack = DEFAULT_STACK
    file = stack_file(stack)
    return (
        (file.name, frozenset(file.changes())),
        *(_based_on_chain(file.based_on) if file.based_on else ()),
    )


@cache
def _accelerators() -> Mapping[str, str]:
    """Return the catalogue's names of accelerators by the names in their files."""
    documents = {name: catalogue_entry("accelerators", name) for name in catalogue("accelerators")}
    return {str(document["name"]): name for name, document in documents.items() if document}


def accelerator_name(system: System) -> str:
    """Return the catalogue's name of a system's accelerator; its own name where the catalogue lacks it."""
    return _accelerators().get(system.accelerator.name, system.accelerator.name)
