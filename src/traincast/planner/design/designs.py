"""Front of time, cost and energy over machines, what each figure is worth, break-even prices, and regret.

Machines are columns of the one engine; the cost of a workload is linear in every price, so that break-even
prices are exact over the machines evaluated, and the worst regret lies at a corner of the ranges.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from traincast.core.assumptions import Assumptions
from traincast.core.errors import NothingFits
from traincast.core.model import Model
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import Bools, Floats, Ints
from traincast.core.system import System
from traincast.planner.design.prices import MEMORIES, PARTS, Price, Prices
from traincast.planner.evaluation import evaluate, rank
from traincast.planner.framework_spaces import CandidateBatch
from traincast.planner.search_space import enumerate_space
from traincast.planner.study.sweep import Chunk, Study, is_column

if TYPE_CHECKING:
    import polars as pl

STEP: Final = 1.1  # of a figure whose worth is asked; fast domains are doubled
CORNERS_PER_BLOCK: Final = 256
FIGURES: Final = {  # figure of a machine -> its name in sentences
    "accelerator.matrix_flops": "FLOP/s",
    "accelerator.hbm_bytes": "memory capacity",
    "accelerator.hbm_bandwidth": "memory bandwidth",
    "network.0.bandwidth": "bandwidth of the fast domain",
    "network.0.size": "size of the fast domain",
    "network.1.bandwidth": "bandwidth of a port",
    "network.1.ports": "ports",
}
TOGETHER: Final = {  # figures that grow in proportion with another, where a machine has them
    "accelerator.matrix_flops": tuple(
        f"accelerator.{name}_flops" for name in ("vector", "vector_fp32", "fp32", "fp8", "int8", "fp4")
    ),
    **{
        f"network.{tier}.bandwidth": tuple(
            f"network.{tier}.{name}"
            for name in ("ll_bandwidth", "ll128_bandwidth", "expected_bandwidth", "switch_reduction")
        )
        for tier in (0, 1)
    },
}


@dataclass(frozen=True)
class Work:
    """A training run of the workload."""

    model: Model
    gbs: int  # [sequences]
    tokens: float  # of the whole run [token]
    runs: float  # how often it is run
    low: float  # range of `runs`
    high: float
    batches: tuple[CandidateBatch, ...]  # of the plans that are searched

    @property
    def steps(self) -> float:
        """Optimizer steps of a run."""
        return self.tokens / (self.gbs * self.model.seq)


@dataclass(frozen=True)
class Family:
    """Machines that vary in some figures; without any, a machine as it is."""

    name: str
    base: System
    memory: str = "hbm"  # whose prices count, one of MEMORIES
    vary: Mapping[str, tuple[float, ...]] | None = None  # axes, which are crossed [SI]
    rent: Price | None = None  # of an offer [$/h]; else it is built of parts

    def points(self) -> dict[str, Floats]:
        """Return the varied figures of every machine; the last axis varies fastest."""
        axes = self.vary or {}
        mesh = np.meshgrid(*map(np.asarray, axes.values()), indexing="ij")
        return {path: values.astype(float).ravel() for path, values in zip(axes, mesh, strict=True)}


@dataclass(frozen=True)
class Limits:
    """Limits of the workload on a machine; None where there is none."""

    days: float | None = None
    money: float | None = None  # cost of the workload [$]
    megawatts: float | None = None  # of all accelerators with their share of nodes, network and cooling


@dataclass(frozen=True)
class Question:
    """What is asked: a workload, job sizes, machines, prices and limits."""

    name: str
    workload: tuple[Work, ...]
    gpus: tuple[int, ...]
    families: tuple[Family, ...]
    prices: Prices
    limits: Limits
    assumptions: Assumptions


class Best(NamedTuple):
    """Fastest plan of every machine and number of GPUs, each array of shape (machines, sizes)."""

    seconds: Floats  # of a step, infinite where nothing fits [s]
    batch: Ints  # index in `plans`
    row: Ints  # in those plans
    plans: tuple[Plans, ...]

    def plan(self, machine: int, size: int) -> Plan | None:
        """Return the plan of a machine; None where nothing fits."""
        if not np.isfinite(self.seconds[machine, size]):
            return None
        plan: Plan = self.plans[self.batch[machine, size]].row(int(self.row[machine, size]))
        return plan


def fastest(chunk: Chunk, batches: Sequence[CandidateBatch]) -> Best:
    """Search the plans of all batches for all machines of a chunk at once."""
    shape = len(chunk.points), len(chunk.gpus)
    best = Best(np.full(shape, np.inf), np.zeros(shape, int), np.zeros(shape, int), ())
    plans: list[Plans] = []
    for batch in batches:
        space = enumerate_space(chunk.model, chunk.gpus, chunk.system.fast_domain, chunk.gbs, batch)
        evaluation = evaluate(space, chunk.system, chunk.assumptions)
        outcomes = [found for machine in range(shape[0]) for found in evaluation.outcomes(machine)]
        ranking = rank(outcomes, 1)
        place = np.unravel_index(ranking.outcome, shape)
        better = ranking.seconds < best.seconds[place]
        place = tuple(index[better] for index in place)
        best.seconds[place] = ranking.seconds[better]
        best.batch[place], best.row[place] = len(plans), np.flatnonzero(better)
        plans.append(ranking.plans)
    return best._replace(plans=tuple(plans))


def optimise(
    work: Work,
    base: System,
    points: Mapping[str, Floats],
    gpus: tuple[int, ...],
    assumptions: Assumptions,
    executor: Executor | None = None,
) -> Best:
    """Return the fastest plans of a run on machines that differ from a base in some figures."""
    axes = ({path: tuple(values) for path, values in _grown(base, points).items()},) if points else ()
    study = Study("", (work.model,), (base,), gpus, ("1d",), (work.gbs,), assumptions, 1, axes)
    chunks = study.chunks()
    found = (executor.map if executor else map)(partial(fastest, batches=work.batches), chunks)
    shape = study.points, len(gpus)
    best = Best(np.empty(shape), np.empty(shape, int), np.empty(shape, int), ())
    plans: list[Plans] = []
    for chunk, part in zip(chunks, found, strict=True):
        sizes = np.searchsorted(gpus, chunk.gpus)
        place = np.ix_(chunk.points, sizes)
        best.seconds[place], best.row[place] = part.seconds, part.row
        best.batch[place] = part.batch + len(plans)
        plans.extend(part.plans)
    return best._replace(plans=tuple(plans))


def _grown(base: System, points: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return points with the figures that grow in proportion with those varied."""
    figures, grown = base.figures(), dict(points)
    for path, values in points.items():
        for other in TOGETHER.get(path, ()):
            if other in figures and other not in points:
                grown[other] = values * float(figures[other] / figures[path])
    return grown


class Machines:
    """Machines of one family at every size of the job, as columns: rows are machines, then sizes."""

    def __init__(
        self, family: Family, points: dict[str, Floats], question: Question, executor: Executor | None = None
    ):
        self.family, self.points = family, points
        args = family.base, points, question.gpus, question.assumptions, executor
        self.best = [optimise(work, *args) for work in question.workload]
        self.sizes = len(question.gpus)
        self.count = self.best[0].seconds.shape[0]
        self.gpus = np.tile(np.asarray(question.gpus, float), self.count)
        run_hours = [
            work.steps * best.seconds.ravel() / 3600
            for work, best in zip(question.workload, self.best, strict=True)
        ]
        self.run_hours = np.array(run_hours)  # of one run of each model, shape (models, rows) [h]
        self._price(question.prices)

    def figure(self, path: str) -> Floats:
        """Return a figure of every machine in SI, given or that of the base."""
        if path in self.points:
            return self.points[path]
        part, name = path.rsplit(".", 1)
        value = getattr(self.family.base.parts()[part], name)
        return np.full(self.count, np.nan if value is None else float(value))

    def _price(self, prices: Prices) -> None:
        """Set the power of an accelerator [kW], its quantity of each part, and $/h per unit of each price."""
        count = {part.name: PARTS[part.name][1](self.figure) * self._has(part.name) for part in prices.parts}
        self.quantities = np.array([count[part.name] for part in prices.parts])
        watts = np.array([part.power for part in prices.parts]) @ self.quantities
        known = self.family.base.node_power if not self.points else None
        self.kilowatts = self._rows((watts if known is None else np.full(self.count, known)) / 1000)
        self.kilowatts = self.kilowatts * prices.pue
        rented = self.family.rent is not None
        per_gpu = self.quantities * (0 if rented else prices.per_hour)
        electricity = np.zeros_like(self.kilowatts) if rented else self.kilowatts
        # $/h of the whole job for one unit of each price: parts, then electricity
        self.rates = np.vstack([self._rows(per_gpu), electricity]) * self.gpus

    def _has(self, part: str) -> bool:
        memory = part.partition("_")[0]
        return memory not in MEMORIES or memory == self.family.memory

    def _rows(self, values: Floats) -> Floats:
        """Repeat values of machines for every size of the job."""
        return np.repeat(values, self.sizes, axis=-1)

    def columns(self) -> dict[str, Floats]:
        """Return figures of every row."""
        return {path: self._rows(self.figure(path)) for path in FIGURES}


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


@dataclass(frozen=True)
class Worth:
    """Worth of more of a figure to the workload at the cheapest machine."""

    figure: str
    factor: float
    faster: float  # share of the time that it saves
    worth: float | None  # of an accelerator, at the same cost of the workload [$]; None where nothing fits
    price: float  # what the parts ask for it [$]


@dataclass(frozen=True)
class BreakEven:
    """Range of a price in which the cheapest machine stays so, the other prices unchanged."""

    price: Price
    low: float  # 0 where no lower price changes it
    high: float  # infinite where no higher price does
    below: int | None  # row that is cheapest below; None where none is
    above: int | None


class Designs:
    """Machines with times, costs and energies of a workload; every array has a row per machine and size."""

    def __init__(self, question: Question, executor: Executor | None = None):
        self.question = question
        self.parts = [Machines(family, family.points(), question, executor) for family in question.families]
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

    @cached_property
    def runs(self) -> Floats:
        """Runs of each model."""
        return np.array([work.runs for work in self.question.workload])

    @cached_property
    def hours(self) -> Floats:
        """Time of the whole workload, one run after the other [h]."""
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(self.runs @ self.run_hours, nan=np.inf, posinf=np.inf)

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
    def cheapest(self) -> int:
        """Row of the machine of least cost among those designed, or of all where none is within the limits.

        Raises `NothingFits`, with the nearest miss, where no machine is.
        """
        if not self.feasible.any():
            raise NothingFits(self._nearest_miss())
        among = self.feasible & self.designed
        return int(np.argmin(np.where(among if among.any() else self.feasible, self.cost, np.inf)))

    def _nearest_miss(self) -> str:
        """Say which machine comes nearest to the limits, or which model fits on none."""
        name = self.question.name
        for work, hours in zip(self.question.workload, self.run_hours, strict=True):
            if not np.isfinite(hours).any():
                memory = max(float(part.figure("accelerator.hbm_bytes").max()) for part in self.parts)
                return (
                    f"{name}: no plan of {work.model.name} fits on any machine, of at most "
                    f"{memory / 1e9:,.0f} GB and {max(self.question.gpus):,} GPUs: try more of either"
                )
        if not np.isfinite(self.hours).any():
            return (
                f"{name}: every model fits on some machine, but no machine fits all: try more GPUs or memory"
            )
        row = int(np.argmin(np.where(np.isfinite(self.hours), self._excess, np.inf)))
        limits = self.question.limits
        asked = {"days": limits.days, "$": limits.money, "MW": limits.megawatts}
        needs = zip(asked, (self.hours[row] / 24, self.cost[row], self.kilowatts[row] / 1000), strict=True)
        said = ", ".join(
            f"{value:,.4g} {unit} of {asked[unit]:,.4g}" for unit, value in needs if asked[unit] is not None
        )
        return f"{name}: no machine is within the limits; the nearest is {self.name(row)}, with {said}"

    def name(self, row: int) -> str:
        """Return family, figures and GPUs of a row."""
        part, gpus = self.parts[self.part[row]], f"{self.gpus[row]:,.0f} GPUs"
        if not part.points:
            return f"{part.family.name} ({gpus})"
        machine = self.within[row] // part.sizes
        figures = ", ".join(_written(path, float(values[machine])) for path, values in part.points.items())
        return f"{part.family.name} ({figures}; {gpus})"

    def plans(self, row: int) -> list[Plan | None]:
        """Return the plan of each model on the machine of a row."""
        part = self.parts[self.part[row]]
        machine, size = divmod(int(self.within[row]), part.sizes)
        return [best.plan(machine, size) for best in part.best]

    @cached_property
    def regret(self) -> Floats:
        """Worst share over the ranges of prices and of runs that a machine costs more than the cheapest.

        In each price and each number of runs the ratio of two costs is monotone, so that it is largest at a
        corner of the ranges. Limits are those at the values given.
        """
        ranged = [price for price in self.prices if price.low < price.high]
        corners = np.array([price.value for price in self.prices])[None].repeat(1 << len(ranged), axis=0)
        places = [self.prices.index(price) for price in ranged]
        if places:
            corners[:, places] = list(product(*((price.low, price.high) for price in ranged)))
        rows = np.flatnonzero(self.feasible)
        rates, worst = self.rates[:, rows], np.zeros(len(rows))
        for runs in {*product(*((work.low, work.high) for work in self.question.workload))}:
            hours = np.array(runs) @ self.run_hours[:, rows]
            for first in range(0, len(corners), CORNERS_PER_BLOCK):
                costs = hours * (corners[first : first + CORNERS_PER_BLOCK] @ rates)
                worst = np.maximum(worst, (costs / costs.min(axis=1, keepdims=True) - 1).max(axis=0))
        regret = np.full(len(self.hours), np.inf)
        regret[rows] = worst
        return regret

    @cached_property
    def worth(self) -> list[Worth]:
        """Worth of more of each figure at the cheapest machine, its plans optimised again."""
        row = self.cheapest
        part = self.parts[self.part[row]]
        machine, gpus = int(self.within[row]) // part.sizes, int(self.gpus[row])
        base = {path: float(part.figure(path)[machine]) for path in FIGURES}
        base = {path: value for path, value in base.items() if np.isfinite(value)}
        factors = {path: STEP if is_column(path) else 2.0 for path in base}
        points = {path: np.full(len(base), value) for path, value in base.items()}
        for number, path in enumerate(base):
            points[path][number] *= factors[path]
        question = replace(self.question, gpus=(gpus,))
        more = Machines(replace(part.family, rent=None), points, question)
        own = Machines(
            replace(part.family, rent=None), {path: np.array([base[path]]) for path in base}, question
        )
        prices = np.array([price.value for price in (*question.prices.parts, question.prices.electricity)])
        hours = np.nan_to_num(self.runs @ more.run_hours, nan=np.inf, posinf=np.inf)
        now = float((self.runs @ own.run_hours)[0])
        capital = float(prices[:-1] @ own.rates[:-1, 0]) / gpus  # [$/h per GPU]
        running = prices[-1] * own.rates[-1, 0] / gpus
        # what may be paid for a faster machine, at the same cost of the workload
        paid = now / hours * (capital + running) - prices[-1] * more.rates[-1] / gpus - capital
        paid = paid / question.prices.per_hour
        asked = prices[:-1] @ (more.quantities - own.quantities)
        return [
            Worth(
                figure=path,
                factor=factors[path],
                faster=float(1 - hours[i] / now),
                worth=float(paid[i]) if np.isfinite(hours[i]) else None,
                price=float(asked[i]),
            )
            for i, path in enumerate(base)
        ]

    @cached_property
    def break_even(self) -> list[BreakEven]:
        """Ranges of each price in which the cheapest machine stays so among those designed."""
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
            low, high = float(down.max(initial=-np.inf)), float(up.min(initial=np.inf))
            below = int(others[down.argmax()]) if low > 0 else None
            above = int(others[up.argmin()]) if np.isfinite(high) else None
            found.append(BreakEven(price, max(low, 0.0), high, below, above))
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

    def sentences(self) -> list[str]:
        """Say which machine is cheapest, which is safest, what figures are worth, and what prices change."""
        row, safe = self.cheapest, int(np.argmin(self.regret))
        said = [
            f"Cheapest: {self.name(row)}: {self.hours[row] / 24:.3g} days, ${self.cost[row] / 1e6:,.3g}M, "
            f"{self.energy[row] / 1e6:,.3g} GWh; {np.sum(self.front)} machines are on the front.",
            f"Over the ranges of prices and runs it costs at worst {self.regret[row]:.0%} more than the then "
            f"cheapest; {self.name(safe)} at worst {self.regret[safe]:.0%}.",
        ]
        for worth in self.worth:
            more = f"{worth.factor - 1:.0%} more" if worth.factor < 2 else "Twice the"
            figure = f"{more} {FIGURES[worth.figure]}"
            value = "does not fit" if worth.worth is None else f"is worth ${max(worth.worth, 0):,.0f} a GPU"
            said.append(f"{figure} {value} to this workload; the parts ask ${worth.price:,.0f}.")
        for found in self.break_even:
            of = found.price
            for end, other, way in ((found.low, found.below, "below"), (found.high, found.above, "above")):
                if other is not None:
                    said.append(
                        f"{of.name} (now {of.text(of.value)}): {way} {of.text(end)}, {self.name(other)} wins."
                    )
        return said + [self._of_today(int(number)) for number in np.flatnonzero(~self.designed)]

    def _of_today(self, row: int) -> str:
        """Say how far a machine that exists is behind those designed."""
        if not np.isfinite(self.hours[row]):
            return f"{self.name(row)}: not every model fits."
        cost, hours = self.behind(row)
        figures = f"{self.hours[row] / 24:.3g} days, ${self.cost[row] / 1e6:,.3g}M"
        dearer = (
            "no designed machine is as fast" if cost is None else f"{cost:.3g} times the cost of one as fast"
        )
        slower = "none as cheap" if hours is None else f"{hours:.3g} times the time of one as cheap"
        return f"{self.name(row)}: {figures}; {dearer}, {slower}."

    def frame(self) -> "pl.DataFrame":
        """Return all machines as a table, a row for each machine and number of GPUs."""
        import polars as pl

        columns: dict[str, Any] = {
            "machine": np.array([part.family.name for part in self.parts])[self.part],
            "kind": np.array([_kind(part.family) for part in self.parts])[self.part],
            "gpus": self.gpus.astype(int),
        }
        figures = [part.columns() for part in self.parts]
        columns |= {path: np.concatenate([figure[path] for figure in figures]) for path in FIGURES}
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
        frame = pl.DataFrame(columns | {"within_limits": self.feasible, "on_front": self.front})
        numbers = pl.selectors.float()
        return frame.with_columns(pl.when(numbers.is_finite()).then(numbers).otherwise(None).name.keep())


def _kind(family: Family) -> str:
    return "offer" if family.rent else "designed" if family.vary else "system"


def _written(path: str, value: float) -> str:
    """Format a figure of a designed machine, such as ``"192 GB"``."""
    match path.rpartition(".")[2]:
        case "matrix_flops":
            return f"{value / 1e12:,.0f} TFLOP/s"
        case "hbm_bytes":
            return f"{value / 1e9:,.0f} GB"
        case "hbm_bandwidth":
            return f"{value / 1e12:.3g} TB/s"
        case "size":
            return f"domains of {value:.0f}"
        case "ports":
            return f"{value:g} ports"
    return f"{value / 1e9:,.4g} GB/s {'fast' if path.startswith('network.0') else 'a port'}"
