"""Front of time, cost and energy over machines, what each figure is worth, break-even prices, and regret.

The cost of a workload is linear in every price, so that break-even prices and the worst regret over ranges of
prices are exact over the machines searched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from traincast.core import (
    COLUMNS,
    Bools,
    Doc,
    Floats,
    Ints,
    NothingFits,
    Plan,
    Result,
    __version__,
    count_of,
    number_text,
    rate_text,
    total_text,
)
from traincast.planner.designs.machines import (
    MACHINE_FIGURES,
    DesignQuestion,
    Machines,
    Runs,
    best_plans,
    search_machines,
    value_text,
)
from traincast.planner.designs.part_prices import Price
from traincast.planner.studies.sweep import is_column, vary_system
from traincast.step import estimate

if TYPE_CHECKING:
    import polars as pl

    from traincast.planner.studies.results import Results

SIZE: Final = "network.0.size"
PORTS: Final = "network.1.ports"
STEP: Final = 1.1  # of a figure whose worth is asked; fast domains are doubled
MEANINGS: Final = {  # unit and meaning of columns of the table that COLUMNS lacks
    "machine": ("", "name of the machines"),
    "kind": ("", "designed, system or offer"),
    "days": ("d", "time of the workload, of one run of the model named"),
    "cost": ("$", "cost of the workload"),
    "energy_kwh": ("kWh", "electricity of the workload, cooling included"),
    "megawatts": ("MW", "power of all accelerators with their share of the rest"),
    "regret": ("", "worst share over the ranges that it costs more than the cheapest"),
    "within_limits": ("", "whether every model fits, within all limits"),
    "on_front": ("", "whether no other is as good in time, cost and energy"),
    "plan": ("", "fastest plan of the model named"),
}
PRICE_REACH: Final = (
    10  # times a price, or that part of it, beyond which nobody pays: no break-even is sought
)
ROBUST_ROWS: Final = 300  # of least cost, whose regret is computed besides that of the front
MAP_VALUES: Final = 4  # of each axis of the map of what binds


def front_of(values: Floats) -> Bools:
    """Return which rows (second axis) no other beats in some criterion (first) without losing in another."""
    on: Bools = np.asarray(np.isfinite(values).all(0))
    order = np.lexsort(values[::-1])
    kept: list[int] = []
    for row in order[on[order]]:  # a row is only beaten by rows before it
        ahead = values[:, kept]
        if not (ahead <= values[:, [row]]).all(0).any():
            kept.append(int(row))
    on[:] = False
    on[kept] = True
    return on


def worst_ratios(of: Floats, others: Floats, low: Floats, high: Floats) -> Floats:
    """Return the largest ratio of two sums of terms whose factors lie anywhere in their ranges.

    Parameters
    ----------
    of : array of float, shape (terms,)
        Terms of the numerator, not negative.
    others : array of float, shape (terms, others)
        Terms of the denominators.
    low, high : array of float, shape (terms,)
        Range of the factor of each term.

    Returns
    -------
    array of float, shape (others,)
        The largest ratios. They are reached where the terms that the numerator has relatively more of are
        dearest and the others cheapest.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.nan_to_num(of[:, None] / others, nan=0.0), axis=0, kind="stable")
    spread = (high - low)[order]
    above = low @ of + np.cumsum(spread * of[order], axis=0)
    below = low @ others + np.cumsum(spread * np.take_along_axis(others, order, axis=0), axis=0)
    return np.asarray(np.maximum((low @ of) / (low @ others), (above / below).max(axis=0)))


class Worth(Result):
    """What more of a figure is worth at the cheapest machine, at the same cost of the workload."""

    figure: Annotated[str, Doc("path of the figure")]
    factor: Annotated[float, Doc("how much of it there would be, relative to the machine's")]
    faster: Annotated[float, Doc("share of the time that it saves")]
    worth: Annotated[float | None, Doc("what a GPU may cost more for it; `null` where nothing fits", "$")]
    price: Annotated[float, Doc("what the parts cost", "$")]

    @property
    def title(self) -> str:
        """Say how much more of which figure: ``"10% more FLOP/s"``."""
        more = "twice the" if self.figure == SIZE else f"{self.factor - 1:.0%} more"
        return f"{more} {MACHINE_FIGURES[self.figure]}"


@dataclass(frozen=True)
class BreakEven:
    """Range of a price in which the cheapest machine stays so, the other prices unchanged."""

    price: Price
    low: float  # 0 where no lower price changes it, down to a tenth
    high: float  # infinite where no higher price does, up to ten times as much
    below: int | None  # row that is cheapest below; None where none is
    above: int | None


@dataclass(frozen=True)
class BindingMap:
    """Figure that binds over two figures of the cheapest machine, the others as they are."""

    x: str
    y: str
    xs: Floats  # [SI]
    ys: Floats
    paths: tuple[str, ...]
    binding: Ints  # index in `paths`, -1 where not every model fits; shape (ys, xs)
    elasticity: Floats  # share of the time that a share more of it saves


class Refinement(Result):
    """What was searched of a large grid, and how far that may be from searches of every machine."""

    machines: Annotated[int, Doc("machines of the grid")]
    searched: Annotated[int, Doc("machines searched, near the front")]
    checked: Annotated[int, Doc("random machines searched besides")]
    ahead: Annotated[int, Doc("of them, ahead of the front")]
    gap: Annotated[float, Doc("share in time, cost and energy by which one is ahead of it at most")]


class Designs:
    """Machines with times, costs and energies of a workload; every array has a row per machine and size.

    Parameters
    ----------
    question : DesignQuestion
        What is asked.
    parts : sequence of Machines
        Machines that were searched, of each family.
    runs : Runs, optional
        Where further searches run; in this process if left out.
    refinement : Refinement, optional
        What was searched, where that is not every machine.
    """

    def __init__(
        self,
        question: DesignQuestion,
        parts: Sequence[Machines],
        runs: Runs | None = None,
        refinement: Refinement | None = None,
    ):
        self.question = question
        self.parts = parts
        self.runs = runs or Runs()
        self.refinement = refinement
        lengths = [part.run_hours.shape[1] for part in self.parts]
        self.part = np.repeat(np.arange(len(lengths)), lengths)
        self.within = np.concatenate([np.arange(length) for length in lengths])
        self.gpus = np.concatenate([part.gpus for part in self.parts])
        self.run_hours = np.hstack([part.run_hours for part in self.parts])
        self.kilowatts = np.concatenate([part.kilowatts for part in self.parts]) * self.gpus
        rents = [part.family.rent for part in self.parts if part.family.rent]
        self.prices = [*question.prices.parts, question.prices.electricity, *rents]
        rented = np.zeros((len(rents), len(self.gpus)))
        for number, rent in enumerate(rents):
            mine = np.array([part.family.rent is rent for part in self.parts])[self.part]
            rented[number, mine] = self.gpus[mine]
        self.rates = np.vstack([np.hstack([part.rates for part in self.parts]), rented])  # $/h per unit
        self.designed = np.array([bool(part.points) for part in self.parts])[self.part]
        self._plans: dict[int, list[Plan | None]] = {}

    @cached_property
    def counts(self) -> Floats:
        """Runs of each model."""
        return np.array([work.runs for work in self.question.workload])

    @cached_property
    def hours(self) -> Floats:
        """Time of the whole workload, one run after the other [h]."""
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(self.counts @ self.run_hours, nan=np.inf, posinf=np.inf)

    @cached_property
    def cost(self) -> Floats:
        """Cost of the workload at the prices given [$]."""
        return np.asarray(self.hours * (np.array([price.value for price in self.prices]) @ self.rates))

    @cached_property
    def energy(self) -> Floats:
        """Electricity of the workload, cooling included [kWh]."""
        return np.asarray(self.hours * self.kilowatts)

    @cached_property
    def feasible(self) -> Bools:
        """Whether every model has a plan that fits, within all limits."""
        return np.isfinite(self.hours) & (self._excess <= 1)

    @cached_property
    def _excess(self) -> Floats:
        """Largest ratio of a figure to its limit."""
        limits = self.question.limits
        figures = (
            (limits.days, self.hours / 24),
            (limits.money, self.cost),
            (limits.megawatts, self.kilowatts / 1000),
        )
        ratios = [values / limit for limit, values in figures if limit is not None]
        return np.asarray(np.max([np.zeros_like(self.hours), *ratios], axis=0))

    @cached_property
    def front(self) -> Bools:
        """Whether no other machine within the limits is as good in time, cost and energy."""
        values = np.array([self.hours, self.cost, self.energy])
        return front_of(np.where(self.feasible, values, np.inf))

    @cached_property
    def front_rows(self) -> list[int]:
        """Rows of the front, the cheapest first."""
        rows = np.flatnonzero(self.front)
        return [int(row) for row in rows[np.argsort(self.cost[rows], kind="stable")]]

    @cached_property
    def cheapest(self) -> int:
        """Row of the machine of least cost among those designed, or of all where none is within the limits.

        Raises `NothingFits`, with the nearest miss, where no machine is.
        """
        if not self.feasible.any():
            raise NothingFits(self._nearest_miss())
        among = self.feasible & self.designed
        return int(np.argmin(np.where(among, self.cost, np.inf) if among.any() else self._cost_within))

    @property
    def _cost_within(self) -> Floats:
        """Cost of the workload [$], infinite outside of the limits."""
        return np.where(self.feasible, self.cost, np.inf)

    @property
    def nearest(self) -> int:
        """Row of the machine nearest to the limits of those on which every model fits."""
        return int(np.argmin(np.where(np.isfinite(self.hours), self._excess, np.inf)))

    def _nearest_miss(self) -> str:
        """Say which machine comes nearest to the limits, or which model has no plan on any."""
        name = self.question.name
        for place, work in enumerate(self.question.workload):
            if np.isfinite(self.run_hours[place]).any():
                continue
            sizes = " or ".join(f"{gpus:,}" for gpus in self.question.gpus)
            if not any(part.found.candidates[place].any() for part in self.parts):
                given = f"{work.gbs:,} sequences, {work.model.layers:,} layers, {work.model.heads:,} heads"
                return (
                    f"{name}: no plan of {work.model.name} divides it over {sizes} GPUs ({given}): give "
                    f"a number of GPUs whose factors divide these"
                )
            least = [part.found.least_bytes[place] / part.visible_bytes[:, None] for part in self.parts]
            number = int(np.argmin([ratios.min() for ratios in least]))
            machine, size = np.unravel_index(least[number].argmin(), least[number].shape)
            row = int(np.flatnonzero(self.part == number)[machine * self.parts[number].sizes + size])
            return f"{name}: {self.name(row)} is the nearest, but {self.misfit(row)}: try more memory or GPUs"
        if not np.isfinite(self.hours).any():
            return (
                f"{name}: every model fits on some machine, but no machine fits all: try more GPUs or memory"
            )
        row = self.nearest
        limits = self.question.limits
        asked = {"days": limits.days, "$": limits.money, "MW": limits.megawatts}
        needs = zip(asked, (self.hours[row] / 24, self.cost[row], self.kilowatts[row] / 1000), strict=True)
        said = ", ".join(
            f"{value:,.4g} {unit} of {asked[unit]:,.4g}" for unit, value in needs if asked[unit] is not None
        )
        return f"{name}: no machine is within the limits; the nearest is {self.name(row)}, with {said}"

    def name(self, row: int) -> str:
        """Return family, figures and GPUs of a row."""
        part = self.parts[self.part[row]]
        gpus = count_of(int(self.gpus[row]), "GPU")
        if not part.points:
            return f"{part.family.name} ({gpus})"
        machine = self.within[row] // part.sizes
        figures = ", ".join(value_text(path, float(values[machine])) for path, values in part.points.items())
        return f"{part.family.name} ({figures}; {gpus})"

    def plans(self, rows: Sequence[int]) -> list[list[Plan | None]]:
        """Return the fastest plan of each model on the machines of rows; None where nothing fits.

        Each row is searched once, together with all others that are new.
        """
        found: dict[int, list[Plan | None]] = {row: [] for row in rows if row not in self._plans}
        for number, part in enumerate(self.parts):
            mine = [row for row in found if self.part[row] == number]
            machine, size = np.divmod(self.within[mine], part.sizes)
            points = {path: values[machine] for path, values in part.points.items()}
            for work in self.question.workload if mine else ():
                plans = best_plans(work, part.family.base, points, self.question)
                for place, row in enumerate(mine):
                    found[row].append(plans[place if points else 0, size[place]])
        self._plans |= found  # only now: Ctrl-C leaves no row with plans of some models
        return [self._plans[row] for row in rows]

    def intervals(self, rows: Sequence[int]) -> Floats:
        """Return the 90 % interval of the time of the workload, shape (rows, low and high) [h].

        Errors of the models are taken to be the same way; without known errors both are the time predicted.
        """
        ends = np.zeros((len(rows), 2))
        for place, (row, plans) in enumerate(zip(rows, self.plans(rows), strict=True)):
            part = self.parts[self.part[row]]
            machine = self.within[row] // part.sizes
            figures = {
                path: float(of[machine]) if is_column(path) else int(of[machine])
                for path, of in part.grown.items()
            }
            system = vary_system(part.family.base, figures)
            run_hours = self.run_hours[:, row] * self.counts
            for work, plan, hours in zip(self.question.workload, plans, run_hours, strict=True):
                ratio = np.ones(2)
                if plan is not None:
                    assumed = self.question.assumptions
                    est = estimate(work.model, system, plan, gbs=work.gbs, assumptions=assumed)
                    if est.interval is not None:
                        ratio = np.array(est.interval) / est.step_seconds
                ends[place] += hours * ratio
        return ends

    @cached_property
    def regret(self) -> Floats:
        """Worst share over the ranges of prices and of runs that a machine costs more than the cheapest.

        Limits are those at the values given. It is known of the machines on the front, of today's, and of the
        cheapest `ROBUST_ROWS`; not a number of others, infinite where a limit is broken.
        """
        prices = self.prices
        works = self.question.workload
        low, high = (np.array([getattr(price, end) for price in prices]) for end in ("low", "high"))
        fewest, most = (np.array([getattr(work, end) for work in works]) for end in ("low", "high"))
        rows = np.flatnonzero(self.feasible)
        rates = self.rates[:, rows]
        hours = self.run_hours[:, rows]
        asked = self.front[rows] | ~self.designed[rows]
        asked[np.argsort(self.cost[rows], kind="stable")[:ROBUST_ROWS]] = True
        regret = np.where(self.feasible, np.nan, np.inf)
        for row in np.flatnonzero(asked):
            dearer = worst_ratios(rates[:, row], rates, low, high)
            slower = worst_ratios(hours[:, row], hours, fewest, most)
            regret[rows[row]] = max(float((dearer * slower).max()) - 1, 0.0)
        return regret

    def _base(self, row: int) -> dict[str, float]:
        """Return the figures of a row of which there may be more, in SI."""
        part = self.parts[self.part[row]]
        machine = int(self.within[row]) // part.sizes
        base = {path: float(part.figure(path)[machine]) for path in MACHINE_FIGURES}
        outer = part.family.base.tiers[1].size
        if not fits_in(outer, 2 * base[SIZE]):
            del base[SIZE]  # a domain twice as large would not fit into the tier around it
        if PORTS not in part.points:
            del base[PORTS]  # more of them are the same as more bandwidth of each
        return {path: value for path, value in base.items() if np.isfinite(value)}

    def _more(self, rows: Sequence[int]) -> list[tuple[tuple[str, ...], Machines]]:
        """Return machines with more of each figure for each row, the first of them as it is."""
        found: dict[int, tuple[tuple[str, ...], Machines]] = {}
        for gpus in dict.fromkeys(self.gpus[row] for row in rows):
            mine = [row for row in rows if self.gpus[row] == gpus]
            bases = [self._base(row) for row in mine]
            asked = [
                (replace(self.parts[self.part[row]].family, rent=None), with_more(base, tuple(base)))
                for row, base in zip(mine, bases, strict=True)
            ]
            machines = search_machines(replace(self.question, gpus=(int(gpus),)), asked, self.runs)
            found |= {row: (tuple(base), of) for row, base, of in zip(mine, bases, machines, strict=True)}
        return [found[row] for row in rows]

    @cached_property
    def more(self) -> dict[int, tuple[tuple[str, ...], Machines]]:
        """Machines with more of each figure, of the cheapest and of those of today, by their row."""
        rows = dict.fromkeys([self.cheapest, *(row for row in self.today if np.isfinite(self.hours[row]))])
        return dict(zip(rows, self._more(list(rows)), strict=True))

    def _hours_of(self, machines: Machines) -> Floats:
        return np.nan_to_num(self.counts @ machines.run_hours, nan=np.inf, posinf=np.inf)

    def binds(self, row: int) -> tuple[str, float]:
        """Return the figure of which a share more saves most time on a machine of `more`; the saving."""
        paths, machines = self.more[row]
        elasticity = elasticities(paths, self._hours_of(machines))
        return paths[int(np.argmax(elasticity))], float(elasticity.max())

    @cached_property
    def worth(self) -> list[Worth]:
        """Worth of more of each figure at the cheapest machine, its plans optimised again."""
        prices = self.question.prices
        paths, more = self.more[self.cheapest]
        hours = self._hours_of(more)
        values = np.array([part.value for part in prices.parts])
        running = prices.electricity.value * more.rates[-1] / more.gpus  # [$/h per GPU]
        capital = values @ more.quantities * prices.per_hour
        # what may be paid for a faster machine, at the same cost of the workload
        paid = (hours[0] / hours * (capital[0] + running[0]) - running - capital[0]) / prices.per_hour
        asked = values @ more.quantities
        return [
            Worth(
                figure=path,
                factor=factor_of(path),
                faster=float(1 - hours[i] / hours[0]),
                worth=float(paid[i]) if np.isfinite(hours[i]) else None,
                price=float(asked[i] - asked[0]),
            )
            for i, path in enumerate(paths, 1)
        ]

    @property
    def map_axes(self) -> tuple[str, str] | None:
        """Figures of the map of what binds, the first two with several values; None without two."""
        family = self.parts[self.part[self.cheapest]].family
        several = [path for path, values in (family.vary or {}).items() if len(set(values)) > 1]
        several.sort(key=lambda path: "hbm" not in path)  # capacity and bandwidth first, as in the paper
        return (several[0], several[1]) if len(several) > 1 else None

    @cached_property
    def binding_map(self) -> BindingMap | None:
        """Figure that binds over two figures of the cheapest machine, the others as they are."""
        if self.map_axes is None:
            return None
        x, y = self.map_axes
        part = self.parts[self.part[self.cheapest]]
        base = self._base(self.cheapest)
        xs, ys = (_spread(np.unique((part.family.vary or {})[path])) for path in (x, y))
        cells = {path: np.full(len(xs) * len(ys), value) for path, value in base.items()}
        cells[x], cells[y] = (values.ravel() for values in np.meshgrid(xs, ys))
        paths = tuple(cells)
        asked = [(part.family, with_more(cells, paths))]
        question = replace(self.question, gpus=(int(self.gpus[self.cheapest]),))
        machines = search_machines(question, asked, self.runs)[0]
        hours = self._hours_of(machines).reshape(-1, len(paths) + 1)
        elasticity = np.array([elasticities(paths, of) for of in hours])
        binding = np.where(np.isfinite(hours[:, 0]), elasticity.argmax(axis=1), -1)
        shape = len(ys), len(xs)
        return BindingMap(x, y, xs, ys, paths, binding.reshape(shape), elasticity.max(axis=1).reshape(shape))

    @cached_property
    def break_even(self) -> list[BreakEven]:
        """Ranges of each price in which the cheapest machine stays so among those designed.

        An end beyond `PRICE_REACH` times the price, or below that part of it, counts as none.
        """
        row = self.cheapest
        others = np.flatnonzero(self.feasible & (self.designed == self.designed[row]))
        slopes = self.rates[:, others] * self.hours[others] - (self.rates[:, row] * self.hours[row])[:, None]
        gap = self.cost[others] - self.cost[row]  # at least 0
        found = []
        for price, slope in zip(self.prices, slopes, strict=True):
            if price.name in {part.family.name for part in self.parts}:
                continue  # rents change no machine that is built
            with np.errstate(divide="ignore", invalid="ignore"):
                change = np.where(slope != 0, -gap / slope, np.nan)
            down = np.where(slope > 0, price.value + change, -np.inf)
            up = np.where(slope < 0, price.value + change, np.inf)
            low = float(down.max(initial=-np.inf))
            high = float(up.min(initial=np.inf))
            below = int(others[down.argmax()]) if low > price.value / PRICE_REACH else None
            above = int(others[up.argmin()]) if high < price.value * PRICE_REACH else None
            ends = (0.0 if below is None else low, np.inf if above is None else high)
            found.append(BreakEven(price, *ends, below, above))
        return found

    def behind(self, row: int) -> tuple[float | None, float | None]:
        """Return how much dearer, and how much slower, a row is than designed machines are.

        Its cost over that of the cheapest that is no slower, and its time over that of the fastest that is no
        dearer; None where there is none.
        """
        among = self.feasible & self.designed
        if not np.isfinite(self.hours[row]):
            return None, None
        cost = float(np.min(self.cost[among & (self.hours <= self.hours[row])], initial=np.inf))
        hours = float(np.min(self.hours[among & (self.cost <= self.cost[row])], initial=np.inf))
        return (
            float(self.cost[row]) / cost if np.isfinite(cost) else None,
            float(self.hours[row]) / hours if np.isfinite(hours) else None,
        )

    @property
    def safest(self) -> int:
        """Row of least worst regret."""
        return int(np.nanargmin(self.regret))

    def headline(self) -> list[str]:
        """Say which machine is cheapest, which is safest, what binds it and what is worth its price."""
        row = self.cheapest
        safe = self.safest
        least = int(np.argmin(self._cost_within))
        built = "machine to build" if self.designed[row] else "machine"
        energy = rate_text(self.energy[row] * 1e3, "Wh")
        said = [f"Cheapest {built}: {self.name(row)}: {self.figures(row)}, {energy}."]
        if least != row:
            said.append(f"Cheapest of all: {self.name(least)}: {self.figures(least)}.")
        safest = "" if safe == row else f"; {self.name(safe)} at most {self.regret[safe]:.0%}"
        said.append(
            f"Over the ranges of prices and runs, the {built} costs at most {self.regret[row]:.0%} more than "
            f"the then cheapest{safest}."
        )
        path, share = self.binds(row)
        said.append(
            f"The {built} is bound by {MACHINE_FIGURES[path]}: 1% more saves {share:.2f}% of the time."
        )
        pays = [of for of in self.worth if of.worth is not None and of.worth > of.price]
        deals = (f"{of.title} (${of.worth:,.0f} a GPU for ${of.price:,.0f})" for of in pays)
        return [*said, f"Worth more than the parts cost: {'; '.join(deals) or 'nothing'}."]

    def sentences(self) -> list[str]:
        """Say the headline, prices at which the cheapest stays so, and how machines of today compare."""
        said = self.headline()
        ranges = list[str]()
        kept = list[str]()
        for of in self.break_even:
            ends = [f"above {of.price.text(of.low)}"] if of.below is not None else []
            ends += [f"below {of.price.text(of.high)}"] if of.above is not None else []
            (ranges if ends else kept).append(" ".join([of.price.title, " and ".join(ends)]).strip())
        said += [f"Prices at which it stays the cheapest to build: {'; '.join(ranges)}."] if ranges else []
        far = "a tenth of the price, or ten times as much,"
        said += [f"With {far} of {', '.join(kept)} alone, it stays so."] if kept else []
        said += [self._of_today(row) for row in self.today]
        return [*said, *self.searched()]

    def searched(self) -> list[str]:
        """Say what was searched, where that is not every machine."""
        if self.refinement is None:
            return []
        done = self.refinement
        return [
            f"Searched: {done.searched:,} of {done.machines:,} machines, near the front. "
            f"Of {done.checked:,} others at random {done.ahead:,} are ahead, by {done.gap:.2%} at most."
        ]

    @property
    def today(self) -> list[int]:
        """Rows of systems and offers."""
        return [int(row) for row in np.flatnonzero(~self.designed)]

    def difference(self, row: int) -> str:
        """Say in which figures a machine differs from the cheapest; its name, if it is of another family."""
        part = self.parts[self.part[row]]
        base = self.parts[self.part[self.cheapest]]
        if part is not base or not part.points:
            return self.name(row)
        machine, other = (int(self.within[of]) // part.sizes for of in (row, self.cheapest))
        figures = [
            value_text(path, float(values[machine]))
            for path, values in part.points.items()
            if values[machine] != values[other]
        ]
        gpus = [count_of(int(self.gpus[row]), "GPU")] if self.gpus[row] != self.gpus[self.cheapest] else []
        return ", ".join(figures + gpus)

    @cached_property
    def _intervals(self) -> dict[int, Floats]:
        """Intervals of the cheapest machine and of those of today [h]."""
        return dict(zip(self.more, self.intervals(list(self.more)), strict=True))

    def days_text(self, row: int, unit: str = "", share: str = "") -> str:
        """Format the time of a machine of `more` and its interval, if it has one: ``"10.4 (9.13 to 14.2)"``.

        The unit is put after the time, the share of measured times after the ends.
        """
        low, high = self._intervals[row] / 24
        interval = f" ({number_text(low, 3)} to {number_text(high, 3)}{share})" if low < high else ""
        return f"{number_text(self.hours[row] / 24, 3)}{unit}{interval}"

    def figures(self, row: int) -> str:
        """Format time and cost of a machine of `more`."""
        return f"{self.days_text(row, ' days', ', 90%')}, ${total_text(self.cost[row])}"

    def _of_today(self, row: int) -> str:
        """Say how far a machine that exists is behind those designed, and what binds it."""
        if not np.isfinite(self.hours[row]):
            return f"{self.name(row)}: {self.misfit(row)}."
        cost, hours = self.behind(row)
        dearer = (
            "no designed machine is as fast" if cost is None else f"{cost:.3g} times the cost of one as fast"
        )
        slower = "none as cheap" if hours is None else f"{hours:.3g} times the time of one as cheap"
        bound = MACHINE_FIGURES[self.binds(row)[0]]
        return f"{self.name(row)}: {self.figures(row)}; {dearer}, {slower}; bound by {bound}."

    def misfit(self, row: int) -> str:
        """Say which model has no plan on a machine, and why."""
        part = self.parts[self.part[row]]
        machine, size = divmod(int(self.within[row]), part.sizes)
        place = next(i for i in range(len(self.question.workload)) if not np.isfinite(self.run_hours[i, row]))
        model = self.question.workload[place].model.name
        if not part.found.candidates[place, machine, size]:
            return f"no plan of {model} divides its batch and layers over {self.gpus[row]:,.0f} GPUs"
        least = part.found.least_bytes[place, machine, size]
        capacity = part.visible_bytes[machine]
        return f"no plan of {model} fits: it needs {least / 1e9:,.0f} GB of {capacity / 1e9:,.0f}"

    def results(self) -> "Results":
        """Return the table with the meaning of its columns, which `write` puts into a file."""
        from traincast.planner.studies.results import Results

        frame = self.frame()
        columns = {
            name: {"unit": COLUMNS[name].unit, "meaning": COLUMNS[name].meaning}
            if name in COLUMNS
            else dict(zip(("unit", "meaning"), MEANINGS[name.partition(".")[0]], strict=True))
            for name in frame.columns
        }
        return Results(frame, {"columns": columns, "design": self.question.name, "traincast": __version__})

    def frame(self) -> "pl.DataFrame":
        """Return all machines as a table, a row for each machine and number of GPUs.

        Plans are those of the front, of systems and of offers.
        """
        import polars as pl

        columns: dict[str, object] = {
            "machine": np.array([part.family.name for part in self.parts])[self.part],
            "kind": np.array([part.family.kind for part in self.parts])[self.part],
            "gpus": self.gpus.astype(int),
        }
        figures = [part.columns() for part in self.parts]
        columns |= {path: np.concatenate([figure[path] for figure in figures]) for path in MACHINE_FIGURES}
        columns |= {
            f"days.{work.model.name}": hours / 24
            for work, hours in zip(self.question.workload, self.run_hours, strict=True)
        }
        columns |= {
            "days": self.hours / 24,
            "cost": self.cost,
            "energy_kwh": self.energy,
            "megawatts": self.kilowatts / 1000,
            "regret": self.regret,
        }
        columns |= {"within_limits": self.feasible, "on_front": self.front}
        rows = np.flatnonzero(self.front | ~self.designed)
        for work, plans in zip(
            self.question.workload, zip(*self.plans(rows.tolist()), strict=True), strict=True
        ):
            texts = np.full(len(self.hours), None)
            texts[rows] = [None if plan is None else str(plan) for plan in plans]
            columns[f"plan.{work.model.name}"] = pl.Series(texts.tolist(), dtype=pl.String)
        frame = pl.DataFrame(columns)
        numbers = pl.selectors.float()
        return frame.with_columns(pl.when(numbers.is_finite()).then(numbers).otherwise(None).name.keep())


def factor_of(path: str) -> float:
    """Return how much more of a figure is tried."""
    return STEP if is_column(path) else 2.0


def elasticities(paths: Sequence[str], hours: Floats) -> Floats:
    """Return the share of the time that a share more of each figure saves; the first time is without more."""
    with np.errstate(invalid="ignore"):
        saved = np.log(hours[0] / hours[1:]) / np.log([factor_of(path) for path in paths])
    return np.asarray(np.nan_to_num(saved, nan=0.0, neginf=0.0))


def fits_in(outer: int | None, size: float) -> bool:
    """Return whether a tier can hold several domains of a size."""
    return outer is None or (outer > size and outer % size == 0)


def with_more(base: Mapping[str, object], paths: Sequence[str]) -> dict[str, Floats]:
    """Return machines, each followed by those with more of one figure."""
    number = len(paths) + 1
    points = {path: np.repeat(np.asarray(values, float), number) for path, values in base.items()}
    for i, path in enumerate(paths, 1):
        points[path][i::number] *= factor_of(path)
    return points


def _spread(values: Floats) -> Floats:
    """Return at most `MAP_VALUES` of some values, the ends among them."""
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), MAP_VALUES)).astype(int))
    return np.asarray(values[chosen])
