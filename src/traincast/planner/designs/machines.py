"""What a design asks, and the searches of its machines: columns of the one engine, in chunks."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl

from traincast.core import Assumptions, Floats, Ints, System, __version__, number_text
from traincast.model import Model
from traincast.planner.designs.part_prices import MEMORIES, PARTS, Price, Prices
from traincast.planner.space.evaluation import rank
from traincast.planner.studies.executors import Parts, Progress, complete_chunks
from traincast.planner.studies.results import hash_values, plain
from traincast.planner.studies.sweep import (
    JOB_SIZES_PER_CHUNK,
    MACHINES_PER_CHUNK,
    Chunk,
    Study,
    Table,
    with_shape,
)

MACHINE_FIGURES: Final = {  # figure of a machine -> its name in sentences
    "accelerator.matrix_flops": "FLOP/s",
    "accelerator.hbm_bytes": "memory capacity",
    "accelerator.hbm_bandwidth": "memory bandwidth",
    "network.0.bandwidth": "bandwidth of the fast domain",
    "network.0.size": "size of the fast domain",
    "network.1.bandwidth": "bandwidth of a port",
    "network.1.ports": "ports",
}
MANY_MACHINES: Final = 2000  # of which only those near the front are searched
PEAKS: Final = tuple(f"{name}_flops" for name in ("vector", "vector_fp32", "fp32", "fp8", "int8", "fp4"))
PROTOCOLS: Final = ("bandwidth", "ll_bandwidth", "ll128_bandwidth", "expected_bandwidth", "switch_reduction")


@dataclass(frozen=True)
class TrainingRun:
    """A training run of the workload."""

    model: Model
    gbs: int  # [sequences]
    tokens: float  # of the whole run [token]
    runs: float  # how often it is run
    low: float  # range of `runs`
    high: float
    framework: str | None = None  # whose plans are searched; None: as `search` does by default
    strategies: tuple[str, ...] | None = None
    choices: Mapping[str, Any] = field(default_factory=dict, hash=False)  # values that plans may have

    @property
    def steps(self) -> float:
        """Optimizer steps of a run."""
        return self.tokens / (self.gbs * self.model.seq)


@dataclass(frozen=True)
class MachineFamily:
    """Machines that vary in some figures; without any, a machine as it is."""

    name: str
    base: System
    memory: str = "hbm"  # whose prices count, one of MEMORIES
    vary: Mapping[str, tuple[float, ...]] | None = None  # axes, which are crossed [SI]
    rent: Price | None = None  # of an offer [$/h]; else it is built of parts

    @property
    def shape(self) -> tuple[int, ...]:
        """Values of each axis."""
        return tuple(map(len, (self.vary or {}).values()))

    @property
    def kind(self) -> str:
        """Whether its machines are designed, a system of the catalogue or an offer."""
        if self.rent:
            return "offer"
        return "designed" if self.vary else "system"

    def points(self, rows: Ints | None = None) -> dict[str, Floats]:
        """Return the varied figures of some machines, or of all; the last axis varies fastest."""
        if self.vary is None:
            return {}
        places = np.unravel_index(np.arange(math.prod(self.shape)) if rows is None else rows, self.shape)
        return {
            path: np.asarray(values, float)[place]
            for (path, values), place in zip(self.vary.items(), places, strict=True)
        }


@dataclass(frozen=True)
class Limits:
    """Limits of the workload on a machine; None where there is none."""

    days: float | None = None
    money: float | None = None  # cost of the workload [$]
    megawatts: float | None = None  # of all accelerators with their share of nodes, network and cooling


@dataclass(frozen=True)
class DesignQuestion:
    """What is asked: a workload, job sizes, machines, prices and limits."""

    name: str
    workload: tuple[TrainingRun, ...]
    gpus: tuple[int, ...]
    families: tuple[MachineFamily, ...]
    prices: Prices
    limits: Limits
    assumptions: Assumptions
    refine: bool | None = None  # whether only machines near the front are searched; None if there are many

    @property
    def fingerprint(self) -> str:
        """Hash of all that its searches depend on."""
        return hash_values([__version__, MACHINES_PER_CHUNK, JOB_SIZES_PER_CHUNK, plain(self)])

    @property
    def refined(self) -> bool:
        """Whether only machines near the front are searched."""
        many = sum(math.prod(family.shape) for family in self.families) > MANY_MACHINES
        return many if self.refine is None else self.refine


@dataclass(frozen=True, eq=False)
class Searches:
    """Searches of the plans of a run, on machines that share a search space."""

    chunk: Chunk

    def run(self) -> Table:
        """Return the least time of a step of every machine and job size, infinite where nothing fits."""
        chunk = self.chunk
        count = len(self.chunk.points)
        shape = count, len(chunk.gpus)
        seconds = np.full(shape, np.inf)
        least = np.full(shape, np.inf)
        candidates = np.zeros(shape, int)
        capacity = np.broadcast_to(chunk.system.accelerator.visible_bytes, count)
        for evaluation in chunk.evaluations():
            space = evaluation.space
            fitting = evaluation.fitting
            sizes = map(chunk.gpus.index, space.gpus)
            for size, low, high in zip(sizes, space.starts[:-1], space.starts[1:], strict=True):
                candidates[:, size] += int(space.counts[low:high].sum())
                least[:, size] = np.minimum(least[:, size], evaluation.memory[low:high].min(initial=np.inf))
                first, last = np.searchsorted(fitting, (low, high))
                if first == last:
                    continue
                memory = evaluation.memory[fitting[first:last]]
                order = np.argsort(memory, kind="stable")
                times = evaluation.least_seconds[:, first:last][:, order]
                # the least time of the layouts that need no more memory than each
                times = np.minimum.accumulate(times, axis=1)
                fits = np.searchsorted(memory[order], capacity, side="right")
                times = np.where(fits > 0, times[evaluation.timing, np.maximum(fits, 1) - 1], np.inf)
                seconds[:, size] = np.minimum(seconds[:, size], times)
        return {
            "point": np.repeat(chunk.points, len(chunk.gpus)),
            "gpus": np.tile(chunk.gpus, count),
            "candidates": candidates.ravel(),
            "least_bytes": least.ravel(),
            "step_seconds": seconds.ravel(),
        }


class Runs:
    """Searches on an executor or in this process, each saved in the parts of an output if there is one."""

    def __init__(
        self,
        executor: Executor | None = None,
        workers: int = 1,
        parts: Parts | None = None,
        progress: Progress | None = None,
    ):
        self.executor = executor
        self.workers = workers
        self.parts = parts
        self.progress = progress
        self.begun = self.done = 0

    def __call__(self, searches: Sequence[Searches]) -> list[pl.DataFrame]:
        """Return the results of searches, read where an interrupted run left them."""
        numbered = dict(enumerate(searches, self.begun))
        self.begun += len(numbered)
        frames = dict[int, pl.DataFrame]()
        parts = self.parts
        if parts is not None:
            frames = {number: pl.read_parquet(parts.path(number)) for number in numbered if parts.has(number)}
        self.done += len(frames)
        missing = {number: search for number, search in numbered.items() if number not in frames}
        for number, frame in complete_chunks(missing, self.executor, self.workers, parts):
            frames[number] = frame
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, self.begun, int(frame["candidates"].sum()))
        return [frames[number] for number in numbered]


@dataclass(frozen=True)
class MachineSteps:
    """What searches found, arrays of shape (models, machines, sizes)."""

    seconds: Floats  # of the fastest step, infinite where nothing fits [s]
    least_bytes: Floats  # memory of the plan that needs least, infinite where there is none [byte]
    candidates: Floats

    def concatenate(self, other: "MachineSteps") -> "MachineSteps":
        """Return what was found on these machines, and on others after them."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return MachineSteps(*(np.concatenate(pair, axis=1) for pair in pairs))


def search_machines(
    question: DesignQuestion, asked: Sequence[tuple[MachineFamily, dict[str, Floats]]], runs: Runs
) -> list["Machines"]:
    """Search the plans of all runs of the workload on machines of families, given by their points."""
    searches = [
        Searches(chunk)
        for family, points in asked
        for work in question.workload
        for chunk in _study(work, family.base, points, question).chunks()
    ]
    frames = iter(runs(searches))
    machines = []
    for family, points in asked:
        count = len(next(iter(points.values()))) if points else 1
        shape = len(question.workload), count, len(question.gpus)
        columns = {name: np.empty(shape) for name in ("step_seconds", "least_bytes", "candidates")}
        for model in range(shape[0]):
            left = count * shape[2]
            while left:
                frame = next(frames)
                place = frame["point"].to_numpy(), np.searchsorted(question.gpus, frame["gpus"].to_numpy())
                for name, values in columns.items():
                    values[model][place] = frame[name].to_numpy()
                left -= frame.height
        machines.append(Machines(family, points, question, MachineSteps(*columns.values())))
    return machines


def best_plans(
    work: TrainingRun, base: System, points: Mapping[str, Floats], question: DesignQuestion
) -> Any:
    """Return the fastest plan of every machine and number of GPUs, an array of shape (machines, sizes)."""
    study = _study(work, base, points, question)
    plans = np.full((study.points, len(question.gpus)), None)
    for chunk in study.chunks():
        best = np.full((len(chunk.points), len(chunk.gpus)), np.inf)
        for evaluation in chunk.evaluations():
            outcomes = [one for machine in range(len(best)) for one in evaluation.outcomes(machine)]
            ranking = rank(outcomes, 1)
            sizes = np.array([chunk.gpus.index(outcome.gpus) for outcome in outcomes])
            machine = ranking.outcome // len(evaluation.space.gpus)
            size = sizes[ranking.outcome]
            for i in np.flatnonzero(ranking.seconds < best[machine, size]).tolist():
                best[machine[i], size[i]] = ranking.seconds[i]
                plans[chunk.points[machine[i]], question.gpus.index(chunk.gpus[size[i]])] = ranking.plans.row(
                    i
                )
    return plans


def _study(work: TrainingRun, base: System, points: Mapping[str, Floats], question: DesignQuestion) -> Study:
    """Return the study whose points are machines that differ from a base in some figures."""
    axes = ({path: tuple(values) for path, values in _grown(base, points).items()},) if points else ()
    return Study(
        name="",
        models=(work.model,),
        systems=(base,),
        gpus=question.gpus,
        strategies=work.strategies,
        batches=(work.gbs,),
        assumptions=question.assumptions,
        vary=axes,
        framework=work.framework,
        locks=work.choices,
        apart=False,
    )


def _grown(base: System, points: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return points with what grows with a figure: other peaks, protocols, and what is used of a domain.

    A port is the same in all tiers beyond the fast domain.
    """
    figures = base.figures()
    grown = dict(points)
    outer = [f"network.{i}" for i in range(1, len(base.tiers))]
    for path, values in points.items():
        part, name = path.rsplit(".", 1)
        together = {"matrix_flops": PEAKS, "bandwidth": PROTOCOLS, "ports": ("ports",)}.get(name, ())
        for other in (f"{one}.{kind}" for one in (outer if part in outer else [part]) for kind in together):
            if other in figures and other not in points:
                grown[other] = values * float(figures[other] / figures[path])
    if "network.0.size" in points and base.fast.used is not None and base.fast.size is not None:
        grown["network.0.used"] = points["network.0.size"] * base.fast.used // base.fast.size
    return grown


class Machines:
    """Machines of one family at every size of the job, as columns: rows are machines, then sizes."""

    def __init__(
        self, family: MachineFamily, points: dict[str, Floats], question: DesignQuestion, found: MachineSteps
    ):
        self.family = family
        self.points = points
        self.found = found
        self.grown = _grown(family.base, points)
        self.count, self.sizes = found.seconds.shape[1:]
        self.gpus = np.tile(np.asarray(question.gpus, float), self.count)
        steps = np.array([work.steps for work in question.workload])
        # of one run of each model, shape (models, rows) [h]
        self.run_hours = steps[:, None] * found.seconds.reshape(len(steps), -1) / 3600
        self._price(question.prices)

    def figure(self, path: str) -> Floats:
        """Return a figure of every machine in SI, given or that of the base; NaN where it has none."""
        if path in self.grown:
            return self.grown[path]
        part, name = path.rsplit(".", 1)
        value = getattr(self.family.base.parts()[part], name)
        return np.full(self.count, np.nan if value is None else float(value))

    @property
    def visible_bytes(self) -> Floats:
        """Memory of every machine's accelerators that a process can have [byte]."""
        return self.figure("accelerator.hbm_bytes") - np.nan_to_num(self.figure("accelerator.driver_bytes"))

    def _price(self, prices: Prices) -> None:
        """Set the power of an accelerator [kW], its quantity of each part, and $/h per unit of each price."""
        outer = range(1, len(self.family.base.tiers))
        count = {
            part.name: PARTS[part.name][1](self.figure, outer) * self._has(part.name) for part in prices.parts
        }
        self.quantities = np.array([count[part.name] for part in prices.parts])
        watts = np.array([part.power for part in prices.parts]) @ self.quantities
        base = self.family.base
        given = not self.points
        known = base.node_power if given else None
        pue = base.pue if given and "pue" in base.sources else prices.pue
        self.kilowatts = self._rows((watts if known is None else np.full(self.count, known)) * pue / 1000)
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
        return {path: self._rows(self.figure(path)) for path in MACHINE_FIGURES}


def value_text(path: str, value: float) -> str:
    """Format a figure of a machine, such as ``"192 GB"``."""
    match path.rpartition(".")[2]:
        case "matrix_flops":
            return f"{value / 1e12:,.0f} TFLOP/s"
        case "hbm_bytes":
            return f"{value / 1e9:,.0f} GB"
        case "hbm_bandwidth":
            return f"{number_text(value / 1e12, 3)} TB/s"
        case "size":
            return f"domains of {value:,.0f}"
        case "ports":
            return f"{value:g} ports"
    return f"{value / 1e9:,.4g} GB/s {'fast' if path.startswith('network.0') else 'a port'}"


def as_used(system: System, gpus: Sequence[int]) -> System:
    """Return a system of which jobs use as much of a fast domain as divides them: 64 of 72 of an NVL72."""
    size = system.fast_domain
    used = min(system.domain(n) for n in gpus)
    if used == size or max(gpus) < size or system.fast.used is not None:
        return system
    inner = [tier.size for tier in system.tiers if tier.size is not None]
    return with_shape(system, {f"network.{i}.used": of // size * used for i, of in enumerate(inner)})
