"""Constants that a calibration may fit: their places, their priors, and how values are put in place."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import exp, log
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from traincast.catalog import Stack, catalogue, catalogue_entry, resolve, with_fitted_values
from traincast.core import (
    ASSUMPTIONS,
    Accelerator,
    Assumptions,
    Doc,
    Floats,
    InputError,
    Result,
    System,
    Tier,
    figure_specs,
    raise_problems,
)

Home: TypeAlias = Literal["accelerator", "network", "stack", "universal"]
HARDWARE: Final = {
    home: {name: spec for name, spec in figure_specs(part).items() if spec.varies}
    for home, part in (("accelerator", Accelerator), ("network", Tier))
}
FIGURES: Final = HARDWARE | {"stack": ASSUMPTIONS, "universal": ASSUMPTIONS}  # home → what can be fitted
BOUND_SIGMAS: Final = 4.0  # bounds of a constant without explicit ones, in sigma from its prior


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A constant to fit; its path and numbers are checked (InputError).

    Paths are ``"accelerator.matrix_sustained"``, ``"network.1.efficiency"``,
    ``"stack.host.dispatch_seconds"`` or, for universal constants, ``"universal.host.straggling"``.
    """

    path: str
    prior: float  # mean of the prior, above 0 [`unit`]
    sigma: float  # standard deviation of its logarithm
    # accelerators, systems, stacks or entries of software that share it; none if universal
    of: tuple[str, ...] = ()
    low: float = 0.0  # bounds; 4 sigma away if left out [`unit`]
    high: float = 0.0
    meaning: str = ""
    # owner of the constant of the same field that it is a small effect on, and the share of its uncertainty
    # that is that of the constant
    like: str = ""
    shared: float = 1.0

    def __post_init__(self) -> None:
        problems = []
        if self.home not in FIGURES:
            problem = f"{self.home}: must be one of {', '.join(FIGURES)}"
            raise InputError(f"parameter of {self.home}", [problem])
        if self.prior > 0 and self.sigma > 0:
            object.__setattr__(self, "low", self.low or self.prior * exp(-BOUND_SIGMAS * self.sigma))
            object.__setattr__(self, "high", self.high or self.prior * exp(BOUND_SIGMAS * self.sigma))
            if not self.low <= self.prior <= self.high:
                problems += [f"prior = {self.prior}: not between {self.low} and {self.high}"]
        else:
            problems += [f"prior = {self.prior}, sigma = {self.sigma}: must be above 0"]
        if bool(self.of) == (self.home == "universal"):
            problems += ["of: names what it is a constant of, unless it is universal"]
        if bool(self.like) == (self.shared == 1) or not 0 < self.shared <= 1:
            problems += [f"shared = {self.shared}: below 1 where it is like another constant, else 1"]
        if self.field not in FIGURES[self.home]:
            owner = "Assumptions" if self.of_software else "a system"
            problems += [f"{self.field}: no figure of {owner}"]
        raise_problems(f"parameter {self.path}", problems)

    @cached_property
    def home(self) -> Home:
        """Kind of thing it is a constant of."""
        return self.path.split(".", 1)[0]  # type: ignore[return-value]  # checked with the path

    @property
    def of_software(self) -> bool:
        """Whether it is an assumption, of one stack or of all."""
        return self.home in ("stack", "universal")

    @cached_property
    def field(self) -> str:
        """Name of the figure; path of an assumption."""
        return self.path.split(".", 1)[1] if self.of_software else self.path.rsplit(".", 1)[-1]

    @property
    def unit(self) -> str:
        """SI unit of a figure of hardware; empty for shares and for software."""
        return "" if self.of_software else HARDWARE[self.home][self.field].unit

    @property
    def tier(self) -> int:
        """Number of the network tier it is a figure of."""
        return int(self.path.split(".")[1])

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


def prior_precision(parameters: Sequence[Parameter], pooled: float) -> Floats:
    """Return the inverse of the correlations of priors, shape (parameters, parameters).

    Software constants of one field have the correlation `pooled`, whatever they are of: what is wrongly
    believed of one framework is partly so of others (Gelman and Hill, 2007, chapter 12). One that is like
    another is that one's times a small factor of its own: it has the share `shared` of its uncertainty in
    common. Others have none.
    """
    fields = np.array([item.field if item.of_software else f"{i}" for i, item in enumerate(parameters)])
    owners = np.array([item.like or "+".join(item.of) or f"{i}" for i, item in enumerate(parameters)])
    shared = np.array([item.shared for item in parameters])
    same_field = fields[:, None] == fields
    common = np.where(same_field & (owners[:, None] == owners), 1.0, np.where(same_field, pooled, 0.0))
    correlations: Floats = common * np.outer(shared, shared)
    np.fill_diagonal(correlations, 1.0)
    return np.asarray(np.linalg.inv(correlations), np.float64)


class Setting(NamedTuple):
    """Values of parameters, numbers or columns, that replace those of the catalogue."""

    parameters: tuple[Parameter, ...]
    values: tuple[object, ...]

    def system(self, system: System) -> System:
        """Return a system with the values of its accelerator and network; `assumed` applies its software."""
        figures = {self.parameters[i].path: self.values[i] for i in touching_system(self.parameters, system)}
        return replace(system.with_figures(figures), software=()) if figures or system.software else system

    def stack_assumptions(self, stack: str, system: System) -> Assumptions:
        """Return the assumptions of a stack on a system, with values of the stack and universal ones."""
        changes = {self.parameters[i].field: self.values[i] for i in touching_stack(self.parameters, stack)}
        return with_fitted_values(system, resolve(stack)).with_values(changes)


def touching_system(parameters: tuple[Parameter, ...], system: System) -> tuple[int, ...]:
    """Return the indices of the parameters that are figures of a system."""
    names = {"accelerator": accelerator_name(system), "network": system.name}
    return tuple(
        i
        for i, parameter in enumerate(parameters)
        if names.get(parameter.home) in parameter.of
        and (parameter.home != "network" or parameter.tier < len(system.tiers))
    )


@cache
def touching_stack(parameters: tuple[Parameter, ...], stack: str) -> tuple[int, ...]:
    """Return the indices of the parameters that apply to a stack.

    A value of a framework, release or fact holds for all software that it is of, unless what counts before it
    sets the same constant (`owners`).
    """
    software = Stack(stack) if Stack(stack).is_known else Stack(Stack.DEFAULT)
    chain = software.owners
    fitted = {(name, item.field) for item in parameters if item.home == "stack" for name in item.of}
    indices = []
    for i, item in enumerate(parameters):
        if item.of_software:
            setting = (name for name, own in chain if (name, item.field) in fitted or item.field in own)
            owner = next(setting, None)
            if owner in item.of if item.home == "stack" else owner is None:
                indices.append(i)
    return tuple(indices)


@cache
def _accelerators() -> dict[str, str]:
    """Return the catalogue's names of accelerators by the names in their files."""
    documents = {name: catalogue_entry("accelerators", name) for name in catalogue("accelerators")}
    return {str(document["name"]): name for name, document in documents.items() if document}


def accelerator_name(system: System) -> str:
    """Return the catalogue's name of a system's accelerator; its own name where the catalogue lacks it."""
    return _accelerators().get(system.accelerator.name, system.accelerator.name)


class FittedConstant(Result):
    """A constant before and after a fit; in SI units."""

    path: Annotated[str, Doc("name of the constant")]
    of: Annotated[Sequence[str], Doc("accelerator, network or software stacks")]
    before: Annotated[float, Doc("value in the catalogue; in SI units")]
    value: Annotated[float, Doc("fitted value")]
    low: Annotated[float, Doc("lower end of its 90 % interval")]
    high: Annotated[float, Doc("upper end of its 90 % interval")]
    determined: Annotated[bool, Doc("whether the measurements determine it; else it keeps its value")]
    parameter: Parameter
    runs: int  # that it touches
    source: str = ""  # data of the fit, and its date


def fitted_constant(
    parameter: Parameter,
    ends: tuple[float, float, float],
    determined: bool = True,
    runs: int = 0,
    source: str = "",
) -> FittedConstant:
    """Return a constant with its value and the lower and upper end of its interval."""
    place = (parameter.path, parameter.of, parameter.prior)
    return FittedConstant(*place, *ends, determined, parameter, runs, source)
