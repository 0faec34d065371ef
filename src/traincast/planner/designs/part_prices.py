"""Prices and powers of the parts of a machine, with ranges and sources, from a YAML file."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np

from traincast.catalog import read_document
from traincast.core import Floats, InputError, close_to, to_si

BASES: Final = ("published", "measured", "guess")
MEMORIES: Final = ("hbm", "lpddr")
RUNNING: Final = {"pue": "", "overhead": "", "lifetime": "h", "used": ""}
Figure = Callable[[str], Floats]  # values of a figure of the machines, by its path
Quantity = Callable[[Figure, Sequence[int]], Floats]  # of those figures, and the tiers beyond the fast domain


def _links(of: Figure, outer: Sequence[int] = ()) -> Floats:
    """Return the bandwidth of all links in the fast domain; in a torus, those of every axis."""
    return of("network.0.bandwidth") * of("network.0.axes")


def _reach(of: Figure, outer: Sequence[int] = ()) -> Floats:
    """Return that bandwidth for every doubling of the fast domain; a torus has no switches to buy."""
    return np.where(of("network.0.axes") > 1, 0.0, _links(of) * np.log2(of("network.0.size")))


def _network(of: Figure, outer: Sequence[int]) -> Floats:
    """Return the bandwidth of the ports, the mean of the outer tiers; a tapered one has fewer switches."""
    tapers = [np.nan_to_num(of(f"network.{i}.taper"), nan=1.0) for i in outer]
    widths = [of(f"network.{i}.bandwidth") * of(f"network.{i}.ports") for i in outer]
    return np.asarray(np.mean([width / taper for width, taper in zip(widths, tapers, strict=True)], axis=0))


# part -> the unit that its price is per, and how much of it an accelerator of a machine has
PARTS: Final[Mapping[str, tuple[str, Quantity]]] = {
    "compute": ("FLOP/s", lambda of, _: of("accelerator.matrix_flops")),
    **{f"{name}_capacity": ("byte", lambda of, _: of("accelerator.hbm_bytes")) for name in MEMORIES},
    **{f"{name}_bandwidth": ("byte/s", lambda of, _: of("accelerator.hbm_bandwidth")) for name in MEMORIES},
    "fast_bandwidth": ("byte/s", _links),
    "fast_reach": ("byte/s", _reach),
    "network": ("byte/s", _network),
    "host": ("", lambda of, _: np.ones_like(of("accelerator.hbm_bytes"))),
}
PER: Final = {"byte": "GB", "byte/s": "GB/s", "FLOP/s": "TFLOP/s", "kWh": "kWh", "h": "h"}  # as printed
MANY_DOLLARS: Final = 1000  # which are printed without a fraction
SIZES: Final = {"GB": 1e9, "GB/s": 1e9, "TB/s": 1e12, "TFLOP/s": 1e12}
_QUANTITY: Final = re.compile(r"\s*([\d.]+(?:[eE][+-]?\d+)?)\s*(\$|USD|W)\s*(?:/\s*(\S.*?))?\s*")


@dataclass(frozen=True)
class Price:
    """A price with its range [$ per unit in SI; of electricity per kWh, of offers per hour]."""

    name: str
    per: str  # unit in SI, "" for one of each accelerator
    value: float
    low: float
    high: float
    source: str
    basis: str  # one of BASES
    power: float = 0.0  # [W per unit in SI]

    @property
    def title(self) -> str:
        """Name in sentences: ``"HBM capacity"``."""
        name = self.name.replace("_", " ")
        return name.replace("hbm", "HBM").replace("lpddr", "LPDDR")

    def text(self, value: float) -> str:
        """Format a price in the unit that it is written in."""
        per = PER.get(self.per, self.per)
        per = "TB/s" if per == "GB/s" and self.value * SIZES[per] < 1 else per
        number = value * SIZES.get(per, 1.0)
        return f"${number:{',.0f' if number >= MANY_DOLLARS else '.4g'}}{'/' if per else ''}{per}"


@dataclass(frozen=True)
class Prices:
    """Prices of all parts and of electricity, and what turns a purchase into a cost per hour."""

    parts: tuple[Price, ...]  # in the order of PARTS
    electricity: Price
    pue: float
    overhead: float  # cost of owning over the purchase
    lifetime: float  # [h]
    used: float  # share of the lifetime

    @property
    def per_hour(self) -> float:
        """Cost per hour of what was bought for $1 [1/h]."""
        return self.overhead / (self.lifetime * self.used)


def read_per(text: object, symbol: str, per: str) -> float:
    """Read a price or power per unit, such as ``"20 $/GB"``, in SI; raise ValueError with what is allowed."""
    wanted = f"{symbol}/{PER[per]}" if per else symbol
    example = f"write for instance '20 {wanted}'"
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"has no unit or is no quantity above 0; {example}")
    number, written, unit = match.groups()
    written = "$" if written == "USD" else written
    if written != symbol or bool(unit) != bool(per):
        raise ValueError(f"must be in {wanted}; {example}")
    if not per or unit == per:
        return float(number)
    try:
        return float(number) / to_si(f"1 {unit}", per)
    except (ValueError, KeyError):
        raise ValueError(f"must be in {wanted}; {example}") from None


def read_range(place: str, raw: object, per: str, problems: list[str]) -> tuple[float, float, float]:
    """Return value, low and high of a price; a mistake is added to `problems`."""
    given = raw if isinstance(raw, Mapping) else {"value": raw}
    numbers = []
    for key in ("value", "low", "high"):
        try:
            numbers.append(read_per(given.get(key, given.get("value")), "$", per))
        except ValueError as error:
            problems.append(f"{place}.{key} = {given.get(key, given.get('value'))!r}: {error}")
            numbers.append(1.0)
    value, low, high = numbers
    if not low <= value <= high:
        problems.append(f"{place}: low {low:g}, value {value:g}, high {high:g}: must not descend")
    return value, low, high


def load_prices(path: str | Path | None = None) -> Prices:
    """Load a file of prices, that of the catalogue without a path; `InputError` has every mistake."""
    file = files("traincast.catalog") / "prices.yaml" if path is None else Path(path)
    document = read_document(file)
    problems = list[str]()
    sections = {"title", "parts", "running"}
    problems += [f"{key}: unknown key; {close_to(key, sections)}" for key in document.keys() - sections]
    given = {name: document.get(name) or {} for name in ("parts", "running")}
    for name, known in (("parts", PARTS), ("running", {"electricity": "kWh", **RUNNING})):
        if not isinstance(given[name], Mapping):
            raise InputError(str(path or "prices"), [f"{name}: must be a mapping of names to prices"])
        unknown = given[name].keys() - known.keys()
        problems += [
            f"{name}.{key}: unknown; {close_to(str(key), known)}" for key in sorted(unknown, key=str)
        ]
        problems += [f"{name}.{key}: missing" for key in known if key not in given[name]]
    parts = []
    for name, (per, _) in PARTS.items():
        raw = given["parts"].get(name)
        if raw is not None:
            parts.append(_part(name, f"parts.{name}", raw, per, problems))
    raw = given["running"].get("electricity")
    electricity = _electricity(raw, problems) if raw is not None else None
    numbers = {name: _running_figure(name, given["running"].get(name), problems) for name in RUNNING}
    if problems or electricity is None:
        raise InputError(str(path or "prices"), dict.fromkeys(problems))
    return Prices(tuple(parts), electricity, **numbers)


def check_source(place: str, raw: object, problems: list[str]) -> Mapping[str, object]:
    """Return a mapping; a mistake in its source or basis is added to `problems`."""
    if not isinstance(raw, Mapping):
        problems.append(f"{place} = {raw!r}: must have value or price, source and basis")
        return {"source": "", "basis": "guess"}
    problems += [f"{place}.{key}: missing" for key in ("source", "basis") if not raw.get(key)]
    if raw.get("basis", "guess") not in BASES:
        problems.append(f"{place}.basis = {raw['basis']!r}: must be one of {', '.join(BASES)}")
    return raw


def _part(name: str, place: str, raw: object, per: str, problems: list[str]) -> Price:
    raw = check_source(place, raw, problems)
    spread = read_range(f"{place}.price", raw.get("price"), per, problems)
    power = 0.0
    try:
        power = read_per(raw.get("power"), "W", per)
    except ValueError as error:
        problems.append(f"{place}.power = {raw.get('power')!r}: {error}")
    return Price(name, per, *spread, str(raw.get("source")), str(raw.get("basis")), power)


def _electricity(raw: object, problems: list[str]) -> Price:
    place = "running.electricity"
    raw = check_source(place, raw, problems)
    spread = read_range(place, raw, "kWh", problems)
    return Price("electricity", "kWh", *spread, str(raw.get("source")), str(raw.get("basis")))


def _running_figure(name: str, raw: object, problems: list[str]) -> float:
    """Return a figure of running a machine; a mistake is added to `problems`."""
    if raw is None:
        return 1.0
    place = f"running.{name}"
    raw = check_source(place, raw, problems)
    try:
        number = to_si(raw.get("value"), RUNNING[name])
        if not number > 0 or (name == "used" and number > 1) or (name in {"pue", "overhead"} and number < 1):
            raise ValueError(
                "must be at least 1" if name in {"pue", "overhead"} else "must be above 0, a share at most 1"
            )
    except ValueError as error:
        problems.append(f"{place} = {raw.get('value')!r}: {error}")
        return 1.0
    return number
