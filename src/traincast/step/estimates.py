"""The estimate of a plan, or of columns of plans: time and memory of one training step, by component."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np

from traincast.catalog import (
    FACTS_OF_EXPERTS,
    Stack,
    as_model,
    as_system,
    check_experts,
    read_given,
    resolve,
    with_fitted_values,
)
from traincast.core import (
    GIB,
    INTERVALS,
    KEY,
    PAPER,
    Assumptions,
    Bools,
    Column,
    Doc,
    ErrorCollector,
    Floats,
    InputError,
    Plan,
    Plans,
    Result,
    System,
    changes_accelerator,
    maximum,
    minimum,
    number_keys,
    plain,
    raise_problems,
    require_type,
    type_problems,
)
from traincast.model import Model
from traincast.operations import Axis, Operation, PassCount, parts, total
from traincast.step.arguments import check_assumptions, check_gbs, check_size
from traincast.step.fit_probability import OpenMemory, Verdict, fits_probability, verdict
from traincast.step.layer_cost import PartCosts, cost_part
from traincast.step.memory import (
    PHASES,
    Footprint,
    Phase,
    devices_memory,
    memory,
    memory_phases,
    sharding_changes_one_rank,
)
from traincast.step.pipeline_stages import Stages, devices, every_device, layers_of_chunks, stages, with_load
from traincast.step.placement import placements
from traincast.step.step_time import Step, step
from traincast.step.uncertainty import (
    BISECTIONS,
    Alternative,
    Asked,
    ErrorCase,
    Mixture,
    Width,
    errors,
    interval,
    mixture_interval,
    outside_measured_range,
    widths,
)
from traincast.step.validity import require_valid
from traincast.times import OperationTimer, PassSeconds, Placement, Timed, TimedOperation, domains

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

Figure = TypeVar("Figure", bound=Column)
LEAST_NARROWING: Final = 0.01  # share of a width, below which an option does not narrow it
LEAST_RANKED: Final = 0.05  # share of the software that counts in rankings of plans
# Such software at most: each takes the time of another estimate of all plans that can be first
MOST_RANKED: Final = 3
GROUPS: Final[tuple[Axis, ...]] = ("tp", "tp2", "cp", "pp", "dp", "ep", "etp")  # whose place is shown


class Narrower(NamedTuple):
    """Option of a command that narrows an interval."""

    option: str  # with the value that the estimate's software has
    of: float  # half of the width of the interval, of the logarithm
    half: float  # the same of what is left
    others: tuple[str, ...]  # values that the option may have instead, of other software that is left open


class Job(Result):
    """Model, system, GPUs, batch and assumptions of an estimate or a search."""

    model: Annotated[str, Doc("name of the model")]
    left_out: Annotated[
        str | None, Doc("parts of the model that are not counted, such as a multimodal model's vision tower")
    ]
    images: Annotated[str | None, Doc("images that the vision tower reads; null without one")]
    trained: Annotated[str | None, Doc("what is trained, with what reference and documents; null for all")]
    system: Annotated[str, Doc("name of the system")]
    gpus: Annotated[int, Doc("GPUs in the job")]
    global_batch: Annotated[int, Doc("sequences of a step", "sequence")]
    seq: Annotated[int, Doc("tokens of a sequence", "token")]
    assumptions: Annotated[str, Doc("name of the assumptions or of the software stack")]
    taken: Annotated[
        list[str], Doc("what names of model and system were taken for that are not those of the catalogue")
    ]
    unsaid: Annotated[
        list[str],
        Doc("software stacks that the question leaves open, `any` of all; none where the software is stated"),
    ]
    given: Annotated[
        dict[str, str], Doc("facts of the software that the question states besides", kind="object")
    ]

    @classmethod
    def from_answer(cls, answer: Any, gpus: int) -> "Job":
        """Return the job of an estimate or of a search."""
        model = answer.model
        assumed = answer.assumptions
        return cls(
            model=model.name,
            left_out=model.left_out or None,
            images=None if model.tower is None else model.tower.title,
            trained=model.training or None,
            system=answer.system.name,
            gpus=gpus,
            global_batch=answer.gbs,
            seq=model.seq,
            assumptions=assumed.name,
            taken=list(filter(None, (model.taken, answer.system.taken))),
            unsaid=list(assumed.unsaid),
            given=dict(assumed.given),
        )

    def software(self) -> Assumptions:
        """Return the assumptions of its name, with what the question states of the software.

        Raises `InputError` if the catalogue has none of that name.
        """
        return replace(resolve(self.assumptions), unsaid=tuple(self.unsaid), given=tuple(self.given.items()))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class StepEstimate(Generic[Figure]):
    """One training step; its figures are numbers (`Estimate`) or columns (`Estimates`)."""

    model: Model
    system: System
    plan: Any  # a `Plan`, or `Plans`
    gbs: int
    assumptions: Assumptions
    columns: Plans = field(compare=False)  # the plan, its choices filled in
    layers: "Layers" = field(compare=False)  # of every part of the model
    stages: Stages = field(compare=False)
    step: Step = field(compare=False)
    shared: "SharedLayers | None" = field(default=None, compare=False)  # those of the question's other plans

    @property
    def strategy(self) -> Annotated[str, KEY]:
        """Strategy that shards a layer."""
        return self.columns.strategy

    @property
    def settings(self) -> Annotated[Plan, Doc(key="plan")]:
        """Every knob and choice of the plan by name."""
        plan: Plan = self.plan
        return plan

    @property
    def timed(self) -> Mapping[str, Timed]:
        """Operations of every part of the model, with their times."""
        return self.layers.timed

    @cached_property
    def components(self) -> Mapping[str, Column]:
        """Memory of the fullest rank by component, as columns [byte]."""
        return memory(self.layers.footprints, self.columns, self.stages, self.gbs, self.assumptions)

    @abstractmethod
    def _figure(self, value: Column) -> Figure:
        """Return a result of the engine as a figure."""

    @cached_property
    def step_seconds(self) -> Annotated[Figure, KEY]:
        """Time of one optimizer step [s]."""
        return self._figure(self.step.seconds)

    @cached_property
    def memory_bytes(self) -> Annotated[Figure, KEY]:
        """Memory of the fullest rank [byte]."""
        return self._figure(total(self.components.values()))

    @property
    @abstractmethod
    def fits(self) -> Annotated[Any, KEY]:
        """Whether it fits in the accelerator's memory."""

    @cached_property
    def tokens_per_second_per_gpu(self) -> Annotated[Figure, KEY]:
        """Training throughput of one GPU [token/s]."""
        return self._figure(self.gbs * self.model.seq / self.step.seconds / self.columns.gpus)

    @cached_property
    def training_days(self) -> Annotated[Figure | None, KEY]:
        """Length of the whole training run [day]; None where the model does not say how long it is."""
        if self.model.training_sequences is None:
            return None
        return self._figure(self.model.training_sequences / self.gbs * self.step.seconds / 86_400)

    @cached_property
    def case(self) -> ErrorCase:
        """What the error of its time depends on."""
        accelerator = self.system.accelerator.name
        if changes_accelerator(self.system.columns()):
            accelerator += ", varied"  # nobody ran on it
        stack = self.assumptions.name
        own = (stack, self.columns, self._waits, self.step.seconds, self.system.fast_domain)
        waiting = (self.step.host - self.assumptions.host.step_seconds) / self.step.seconds
        gathers = self.assumptions.collectives.gathers_tokens
        return ErrorCase.from_step(self.model, accelerator, *own, waiting=waiting, gathers_tokens=gathers)

    @cached_property
    def open_software(self) -> dict[str, float]:
        """Share of each software that the question leaves open; empty where it is stated."""
        return self._left_open(self.assumptions)

    def _left_open(self, assumed: Assumptions) -> dict[str, float]:
        """Return the share of each software that assumptions leave open for this question."""
        if not assumed.unsaid or not assumed.errors_known or self.system.has_own_software:
            return {}
        generations = errors().software.generations
        asked = Asked.from_plans(self.model, self.system.accelerator.name, self.columns, generations)
        return {**_shares_left_open(asked, assumed.unsaid, assumed.given)}

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Software that the question leaves open, with the times it would take; empty where it is stated.

        Times are of columns. Software that does not run the plan's precision is none.
        """
        return self._alternatives(self.open_software)

    def _alternatives(self, shares: Mapping[str, float]) -> tuple[Alternative, ...]:
        """Return software with the times it would take, by its share; each is timed once."""
        found = list[Alternative]()
        for name, weight in shares.items():
            same = _timed_as(name)
            if same not in self._of_software:
                try:
                    est = self._under_assumptions(Stack(same).assumptions)
                except InputError:  # a choice of the plan that this software lacks
                    self._of_software[same] = None
                else:
                    self._of_software[same] = est.step.seconds, est.case
            if (timed := self._of_software[same]) is not None:
                found.append(Alternative(weight, *timed, name))
        return tuple(found)

    @cached_property
    def _of_software(self) -> dict[str, tuple[Column, ErrorCase] | None]:
        """Times and cases of the software timed so far; None of what does not run the plan."""
        return {}

    @cached_property
    def ranking_software(self) -> dict[str, float]:
        """Share of the software that counts in rankings of plans, the likeliest; they add up to 1."""
        least = LEAST_RANKED * sum(self.open_software.values())
        likely = {name: share for name, share in self.open_software.items() if share >= least}
        names = sorted(likely, key=lambda name: -likely[name])[:MOST_RANKED]
        return {name: likely[name] / sum(map(likely.__getitem__, names)) for name in names}

    def software_seconds(self, plans: Plans) -> dict[str, Column]:
        """Return the times of plans of this question under each of `ranking_software` that runs them [s]."""
        found = dict[str, Column]()
        for name in self.ranking_software:
            try:
                est = estimate_columns(self.model, self.system, plans, self.gbs, Stack(name).assumptions)
            except InputError:  # a choice of the plans that this software lacks
                continue
            found[name] = est.step.seconds
        return found

    @cached_property
    def memory_alternatives(self) -> tuple[OpenMemory, ...]:
        """Software that the question leaves open, the likeliest as in rankings, with its memory.

        It is this estimate's alone where it is stated, but for a step of the optimizer that is left open.
        Where no software that the question allows has measured runs, each counts as much.
        """
        assumed = self.assumptions
        share = assumed.memory.allocator_share
        own = OpenMemory(1.0, assumed.name, total(self.components.values()), share)
        if not assumed.unsaid or not assumed.errors_known or self.system.has_own_software:
            return self._of_either_step(own)
        allowed = () if assumed.unsaid == Stack.ANY else assumed.unsaid
        found = list[OpenMemory]()
        of_use = dict[Any, Column | None]()
        for name, weight in (self.ranking_software or dict.fromkeys(allowed, 1.0)).items():
            other = with_fitted_values(self.system, Stack(name).assumptions)
            use = other.memory
            if use not in of_use:
                of_use[use] = self._memory_under(other)
            if (nbytes := of_use[use]) is not None:
                found.append(OpenMemory(weight, other.name, nbytes, use.allocator_share))
        return tuple(found) or (own,)

    def _of_either_step(self, own: OpenMemory) -> tuple[OpenMemory, ...]:
        """Return this memory, and that with the optimizer's other step where it is open which one runs."""
        memory_use = self.assumptions.memory
        if not memory_use.foreach_open:
            return (own,)
        other = self.assumptions.with_values({"memory.foreach_step": not memory_use.foreach_step})
        nbytes = self._memory_under(other)
        if nbytes is None:
            return (own,)
        return own._replace(weight=0.5), own._replace(weight=0.5, nbytes=nbytes)

    def _memory_under(self, assumed: Assumptions) -> Column | None:
        """Return the memory of the same step under other assumptions [byte]; None if they do not run it."""
        plan: Plans = self.plan.columns() if isinstance(self.plan, Plan) else self.plan
        try:
            columns = with_defaults(plan, self.model, assumed)
        except InputError:  # a choice of the plan that this software lacks
            return None
        layers = _layers(self.model, columns, self.system, assumed, self.shared)
        return total(memory(layers.footprints, columns, self.stages, self.gbs, assumed).values())

    def _under_assumptions(self, assumed: Assumptions) -> "Estimates":
        """Return the same step under other assumptions."""
        plan: Plans = self.plan.columns() if isinstance(self.plan, Plan) else self.plan
        return Estimates(
            plan=plan, **_step_of(self.model, self.system, plan, self.gbs, assumed, shared=self.shared)
        )

    def _ends_of(self, assumed: Assumptions, parts: Sequence[Alternative]) -> tuple[Column, Column, Column]:
        """Return the ends of the interval, and the median, as these assumptions leave software open [s].

        They are of the same times as the estimate's own. `parts`: the software that is left open.
        """
        spread = float(np.hypot(*self._software_deviation(assumed, parts)))
        if parts:
            low, high, median = mixture_interval(parts, spread=spread)
            # the software that the answer takes may be a rare one: its time is possible, too
            return minimum(low, self.step.seconds), maximum(high, self.step.seconds), median
        return (*interval(self.step.seconds, self.case, spread=spread), self.step.seconds)

    def _software_deviation(self, assumed: Assumptions, parts: Sequence[Alternative]) -> tuple[float, float]:
        """Return what software that assumptions leave open, and a new release of it, add to the deviation.

        `parts`: the software that is left open.
        """
        moe = self.model.experts is not None
        known = errors().software
        left_open = known.left_open(moe, assumed.unsaid) if len(parts) > 1 else 0.0
        return left_open, known.of_new_release(moe) if assumed.new_release else 0.0

    @cached_property
    def _ends(self) -> tuple[Column, Column, Column]:
        """Ends of the interval, and the median [s]."""
        return self._ends_of(self.assumptions, self.alternatives)

    @cached_property
    def interval(self) -> tuple[Figure, Figure] | None:
        """90 % interval of the step time, low and high [s]; None where errors are not known."""
        if not self.assumptions.errors_known:
            return None
        low, high, _ = self._ends
        return self._figure(low), self._figure(high)

    @property
    def median_seconds(self) -> Figure:
        """Time that is as likely too short as too long, of all software that the question leaves open [s]."""
        return self._figure(self._ends[2] if self.assumptions.errors_known else self.step.seconds)

    @property
    def step_seconds_low(self) -> Annotated[Figure | None, Doc(optional=True)]:
        """Time that 95 % of measured steps are above, where errors are known [s]."""
        return None if self.interval is None else self.interval[0]

    @property
    def step_seconds_high(self) -> Annotated[Figure | None, Doc(optional=True)]:
        """Time that 95 % of measured steps are below, where errors are known [s]."""
        return None if self.interval is None else self.interval[1]

    @property
    def fits_probability(self) -> Annotated[Figure | None, Doc(optional=True)]:
        """Probability that it fits in the accelerator's memory; None where errors are not known.

        It is that of all software that the question leaves open.
        """
        if not self.assumptions.errors_known:
            return None
        return self._figure(self._probability_with(1.0))

    def _probability_with(self, share: float) -> Column:
        """Return the probability that it fits if it needed a share of the memory."""
        capacity = self.system.accelerator.visible_bytes
        parts = self.memory_alternatives
        of_all = sum(part.weight for part in parts)
        fits: Column = 0.0
        for part in parts:
            lost = part.allocator_share
            own = fits_probability(share * part.nbytes, capacity, part.stack, allocator_share=lost)
            fits = fits + part.weight / of_all * own
        return fits

    @property
    def outside_measured(self) -> Annotated[list[str] | None, Doc(optional=True)]:
        """Respects in which one plan lies outside of measured runs, where errors are known."""
        return None

    @cached_property
    def breakdown(
        self,
    ) -> Annotated[dict[str, Figure], Doc(key="breakdown_seconds", keys=number_keys("time"))]:
        """Seconds by component; they add up to `step_seconds`."""
        return {component: self._figure(value) for component, value in self._breakdown.items()}

    @cached_property
    def _breakdown(self) -> dict[str, Column]:
        """`breakdown` as columns [s]."""
        nm = self.columns.microbatches(self.gbs)
        passes = self._busy(nm)
        recomputation = self._busy(nm / self.columns.recompute_every, recomputation=True)
        waits = self._waits
        return {
            "compute": passes.compute,
            "exposed_memory": passes.memory,
            "recomputation": recomputation.total,
            "tp_comm": waits["tp_comm"],
            "ep_comm": waits["ep_comm"],
            "dp_comm": waits["dp_comm"],
            "pp_comm": waits["pp_comm"],
            "bubble": waits["bubble"],
            "optimizer_step": self.step.optimizer,
            "offload_comm": waits["offload_comm"],
            "host": waits["host"],
            "stragglers": waits["stragglers"],
            "data_loading": self.step.data_loading,
        }

    @cached_property
    def _waits(self) -> dict[str, Column]:
        """The components of `breakdown` that errors of times depend on (`uncertainty.COMPONENTS`) [s]."""
        comm: Column = 0.0
        exchange: Column = 0.0
        nm = self.columns.microbatches(self.gbs)
        for i, counts in enumerate(self.stages.executed_parts):
            slowest = self.step.slowest == i
            for part, n in counts.items():
                often = slowest * n * nm
                for op in self.timed[part]:
                    for seconds in (op.forward, op.backward):
                        comm = comm + often * seconds.comm
                        exchange = exchange + often * seconds.exchange
        return {
            "tp_comm": comm,
            "ep_comm": exchange + self.step.exchange,
            "dp_comm": self.step.dp_comm,
            "pp_comm": self.step.pp_comm,
            "bubble": self.step.bubble,
            "offload_comm": self.step.offload,
            "host": self.step.host,
            "stragglers": self.step.stragglers,
        }

    def _busy(self, repeats: Column, recomputation: bool = False) -> PassSeconds:
        """Return the time of the slowest device in its passes, or in recomputation, by resource."""
        sums = PassSeconds(0.0, 0.0, 0.0, 0.0)
        for i, counts in enumerate(self.stages.executed_parts):
            slowest = self.step.slowest == i
            for part, n in counts.items():
                timed = self.timed[part]
                often = slowest * n * repeats
                passes = [(op.recompute,) if recomputation else (op.forward, op.backward) for op in timed]
                for seconds in filter(None, chain(*passes)):
                    sums += seconds.times(often)
        return sums

    @cached_property
    def memory(
        self,
    ) -> Annotated[dict[str, Figure], Doc(key="memory_by_component_bytes", keys=number_keys("memory"))]:
        """Bytes by component; they add up to `memory_bytes`."""
        return {name: self._figure(value) for name, value in self.components.items()}

    @cached_property
    def memory_phases(self) -> dict[Phase, dict[str, Figure]]:
        """Bytes by component in every phase of a step, in their order, of the fullest rank."""
        phases = memory_phases(self.layers.footprints, self.columns, self.stages, self.gbs, self.assumptions)
        return {
            phase: {name: self._figure(value) for name, value in components.items()}
            for phase, components in phases.items()
        }

    @property
    @abstractmethod
    def memory_phase(self) -> Annotated[Any, KEY]:
        """Phase of the step in which the memory of the fullest rank is largest."""

    def uncertainty(self) -> dict[str, Figure]:
        """Return interval [s] and probability that it fits, by name; empty where errors are unknown."""
        ends = self.interval
        fits = self.fits_probability
        return {} if ends is None or fits is None else dict(zip(INTERVALS, (*ends, fits), strict=True))

    def to_polars(self) -> "pl.DataFrame":
        """Return a frame with a row for each plan: knobs, choices, time and memory by component [s, byte]."""
        import polars as pl

        figures: dict[str, Any] = self.columns.numbers() | self.columns.choices()
        figures |= {"step_seconds": self.step_seconds, "memory_bytes": self.memory_bytes}
        figures |= {"tokens_per_second_per_gpu": self.tokens_per_second_per_gpu}
        figures |= {"training_days": self.training_days} | self.uncertainty() | self.breakdown | self.memory
        rows = np.broadcast_shapes(*(np.shape(value) for value in figures.values()))
        return pl.DataFrame({name: np.broadcast_to(value, rows).ravel() for name, value in figures.items()})


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Estimates(StepEstimate[Floats]):
    """One training step of columns of plans or machines; every figure is an array of their common shape."""

    plan: Plans

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of every figure."""
        columns = self.step.seconds, self.system.accelerator.visible_bytes, *self.components.values()
        return np.broadcast_shapes(*map(np.shape, columns))

    def _figure(self, value: Column) -> Floats:
        return np.broadcast_to(value, self.shape)

    def __repr__(self) -> str:
        return f"<Estimates of {np.size(self.step.seconds)} plans, assumptions {self.assumptions.name}>"

    @property
    def memory_phase(self) -> "NDArray[np.str_]":
        """Phase of the step in which the memory of the fullest rank is largest, of each plan."""
        totals = (total(components.values()) for components in self.memory_phases.values())
        largest = np.argmax(np.stack(np.broadcast_arrays(*totals)), axis=0)
        return np.asarray(np.array(PHASES)[largest], np.str_)

    @property
    def fits(self) -> Bools:
        """Whether each fits in the accelerator's memory."""
        return self.memory_bytes <= self.system.accelerator.visible_bytes


class Estimate(StepEstimate[float], Result, kw_only=True, repr=False):
    """One training step of one plan; every figure is a number."""

    plan: Plan

    def _figure(self, value: Column) -> float:
        return float(value)

    def __repr__(self) -> str:
        figures = f"{self.step_seconds:.4g} s, {self.memory_bytes / GIB:.4g} GiB"
        return f"<Estimate {self.plan}: {figures}, assumptions {self.assumptions.name}>"

    @property
    def memory_phase(self) -> Annotated[Phase, KEY]:
        """Phase of the step in which the memory of the fullest rank is largest."""
        return max(self.memory_timeline(), key=attrgetter("memory_bytes")).phase

    def memory_timeline(self) -> "list[PhaseRow]":
        """Return the memory of the fullest rank by component in every phase, in the order of a step [byte].

        The largest phase is the peak, whose components are those of `memory`.
        """
        return [
            PhaseRow(phase, total(components.values()), {**components})
            for phase, components in self.memory_phases.items()
        ]

    @property
    def fits(self) -> Annotated[bool, KEY]:
        """Whether it fits in the accelerator's memory."""
        return bool(self.memory_bytes <= self.system.accelerator.visible_bytes)

    @property
    def sharding_changes_one_rank(self) -> bool:
        """Whether ZeRO-1 changes the memory of a rank that shares its state with no other."""
        return sharding_changes_one_rank(self.plan.columns(), self.assumptions)

    def memory_that_fits(self, probability: float) -> float:
        """Return the memory with which it would fit with a probability [byte]."""
        below = 0.25
        above = 4.0
        for _ in range(BISECTIONS):
            share = (below + above) / 2
            fits = self._probability_with(share) >= probability
            below, above = (share, above) if fits else (below, share)
        return below * self.memory_bytes

    def probability_below(self, seconds: float) -> float | None:
        """Return the probability that a step takes less than a time [s]; None where errors are not known.

        Of errors of predictions, over all software that the question leaves open.
        """
        if not self.assumptions.errors_known:
            return None
        parts = self.alternatives or (Alternative(1.0, self.step.seconds, self.case),)
        mixture = Mixture.from_parts(
            parts, spread=float(np.hypot(*self._software_deviation(self.assumptions, self.alternatives)))
        )
        return float(mixture.share_below(np.log(seconds)))

    @property
    def verdict(self) -> Annotated[Verdict, KEY]:
        """Whether it fits: uncertain where the probability lies between 20 and 80 %."""
        return verdict(self.fits_probability, self.fits)

    @property
    def job(self) -> Job:
        """Model, system, GPUs, batch and assumptions."""
        return Job.from_answer(self, self.plan.gpus)

    @property
    def outside(self) -> list[str]:
        """Respects in which the plan lies outside of measured runs; empty where errors are unknown."""
        return outside_measured_range(self.case) if self.assumptions.errors_known else []

    @property
    def outside_measured(self) -> Annotated[list[str] | None, Doc(optional=True)]:
        """Respects in which it lies outside of measured runs, where errors are known."""
        return self.outside if self.assumptions.errors_known else None

    @cached_property
    def widths(self) -> list[Width]:
        """What the interval is made of, the largest first; empty where errors are unknown."""
        if not self.assumptions.errors_known:
            return []
        is_any = self.assumptions.unsaid == Stack.ANY
        what = "software not stated" if is_any else "release of the software not stated"
        added = self._software_deviation(self.assumptions, self.alternatives)
        return widths(self.case, self.alternatives, what, *added)

    @cached_property
    def narrower(self) -> Narrower | None:
        """Option of a command that narrows the interval most, as its own software would have it.

        None where the software is stated, or nothing narrows it. A framework and facts come before the name
        of a stack, which says all of them.
        """
        if not self.alternatives:
            return None
        now = _half_width(self._ends)
        most = (1 - LEAST_NARROWING) * now
        halves = dict[str, float]()
        for option, assumed in self._narrowing_options():
            left = self._left_open(assumed)
            if len(left) < len(self.open_software):
                halves[option] = _half_width(self._ends_of(assumed, self._alternatives(left)))
        option = min(halves, key=lambda option: halves[option], default="")
        if option and halves[option] <= most:
            return Narrower(option, now, halves[option], self._other_values(option))
        stated = replace(self.assumptions, unsaid=())
        half = _half_width(self._ends_of(stated, ()))
        software = Stack.of_assumptions(stated.name).name
        return Narrower(f"--assumptions {software}", now, half, ()) if half <= most else None

    def _narrowing_options(self) -> Iterator[tuple[str, Assumptions]]:
        """Yield options that state more of the estimate's own software, and what they leave open."""
        assumed = self.assumptions
        stack = Stack.of_assumptions(assumed.name)
        framework = stack.search_space
        is_any = assumed.unsaid == Stack.ANY
        if is_any and framework is not None:
            yield f"--framework {framework}", replace(assumed, unsaid=stack.releases)
        for fact, value in stack.facts.items():
            of_none = fact in FACTS_OF_EXPERTS and not self.model.experts
            alone = is_any and fact == "released"  # a date says little without a framework
            if fact != "framework" and not of_none and not alone:
                given = dict(assumed.given) | {fact: value}
                yield f"--given {fact}={value}", replace(assumed, given=tuple(given.items()))

    def _other_values(self, option: str) -> tuple[str, ...]:
        """Return the other values of the fact of an option among the alternatives."""
        fact, _, value = option.removeprefix("--given ").partition("=")
        values = (Stack(part.name).facts.get(fact) for part in self.alternatives if value)
        return tuple(sorted({other for other in values if other not in (None, value)}))

    @property
    def uncertain_of(self) -> Annotated[list[str] | None, Doc(optional=True)]:
        """What the width of the interval is made of, the largest first, where errors are known."""
        return [str(width) for width in self.widths] if self.assumptions.errors_known else None

    @property
    def narrowed_by(self) -> Annotated[str | None, Doc(optional=True)]:
        """Option of a command that narrows the interval most, where the software is not stated."""
        return None if self.narrower is None else self.narrower.option

    def devices(self) -> list[dict[str, Any]]:
        """Return the parts of the model and the memory by component of every pipeline device [byte]."""
        return [row.to_dict() for row in self.device_rows()]

    def device_rows(self) -> "list[DeviceRow]":
        """Return the rows of `devices`, with meaning and unit."""
        pipeline = devices(self.model, self.plan.pp, self.plan.vp, self.plan.schedule, self.plan.layout)
        devices_used = devices_memory(
            self.layers.footprints, self.columns, every_device(pipeline), self.gbs, self.assumptions
        )
        return [
            DeviceRow(
                device.position,
                dict(device.stored_parts),
                plain(total(used.values())),
                {component: plain(value) for component, value in used.items()},
            )
            for device, used in zip(pipeline, devices_used, strict=True)
        ]

    def group_rows(self) -> "list[GroupRow]":
        """Return where the groups of several ranks are on the network, with meaning."""
        tiers = self.system.tiers
        placement = Placement(self.columns, self.system.tiers)
        rows = []
        for axis in GROUPS:
            n, near = placement.group(axis)
            counts = [int(domains(n, within)) for within in (1, *near)]  # domains, from ranks to the largest
            if counts[0] > 1:
                crossed = max(i for i, count in enumerate(counts) if count > 1)
                within = {tier.name: int(number) for tier, number in zip(tiers, near, strict=False)}
                rows.append(GroupRow(axis, counts[0], within, tiers[crossed].name))
        return rows

    def chunks_without_layers(self) -> list[int]:
        """Return the numbers, from 1, of the pipeline's chunks that have the embedding or the head alone."""
        plan = self.plan
        layers = layers_of_chunks(self.model, plan.pp * plan.vp, plan.layout)
        return [number for number, held in enumerate(layers, 1) if not held]

    def whole_model(self) -> Iterator[tuple[float, TimedOperation]]:
        """Yield every operation of a micro-batch, of all devices, with how often the model has it."""
        for part, count in self.stages.model_parts.items():
            for timed in self.timed[part]:
                yield float(count), timed

    def operations(self) -> list[dict[str, Any]]:
        """Return FLOPs, bytes and seconds of every operation of one micro-batch, in execution order.

        `memory` and `comm` seconds are exposed times; recomputation before backward is in `again_seconds`.
        """
        return [row.to_dict() for row in self.operation_rows()]

    def operation_rows(self) -> "list[OperationRow]":
        """Return the rows of `operations`, with meaning and unit."""
        return [
            OperationRow(
                part=part,
                operation=timed.operation.name,
                **_pass_figures("forward", timed.operation.forward, timed.forward),
                **_pass_figures("backward", timed.operation.whole_backward, timed.backward),
                again_seconds=0.0 if timed.recompute is None else plain(timed.recompute.total),
                weight_bytes=plain(
                    timed.operation.weights * self.assumptions.memory.element_bytes
                    + timed.operation.frozen_bytes
                    + timed.operation.frozen_fp32_bytes
                ),
                saved_bytes=plain(timed.operation.saved_bytes),
            )
            for part, operations in self.timed.items()
            for timed in operations
        ]


def _pass_figures(direction: str, work: PassCount, time: PassSeconds) -> dict[str, Column]:
    """Return the figures of an operation in its forward or backward pass."""
    figures = {
        "matrix_flops": work.flops("matrix") + work.flops("low"),
        "vector_flops": work.flops("vector"),
        "bytes": work.nbytes,
        "seconds": time.total,
        "compute_seconds": time.compute,
        "memory_seconds": time.memory,
        "comm_seconds": time.comm + time.exchange,
    }
    return {f"{direction}_{name}": plain(figure) for name, figure in figures.items()}


class PhaseRow(Result):
    """Memory of the fullest rank in one phase of a step."""

    phase: Annotated[Phase, Doc("part of the step")]
    memory_bytes: Annotated[Column, Doc("memory of the rank", "byte")]
    memory_by_component_bytes: Annotated[
        dict[str, Column],
        Doc("bytes by component; they add up to `memory_bytes`", keys=number_keys("memory")),
    ]


class DeviceRow(Result):
    """Memory of one pipeline stage."""

    stage: Annotated[int, Doc("place in the pipeline, from 0")]
    parts: Annotated[dict[str, float], Doc("number of each part of the model that it holds")]
    memory_bytes: Annotated[Column, Doc("memory of its ranks", "byte")]
    memory_by_component_bytes: Annotated[
        dict[str, Column],
        Doc("bytes by component; they add up to `memory_bytes`", keys=number_keys("memory")),
    ]


class GroupRow(Result):
    """Place of a communication group on the network."""

    group: Annotated[str, Doc("what its ranks share: tp, tp2, cp, pp, dp, ep or etp")]
    members: Annotated[int, Doc("ranks")]
    near: Annotated[dict[str, int], Doc("ranks in one domain of each tier with domains, innermost first")]
    crosses: Annotated[str, Doc("outermost tier between its ranks")]


class OperationRow(Result):
    """Figures of one operation of one micro-batch."""

    part: Annotated[str, Doc("kind of layer, embedding or head")]
    operation: Annotated[str, Doc("name of the operation")]
    forward_matrix_flops: Annotated[Column, Doc("work of the forward pass on the matrix units", "FLOP")]
    forward_vector_flops: Annotated[Column, Doc("work of the forward pass on the vector units", "FLOP")]
    forward_bytes: Annotated[Column, Doc("memory traffic of the forward pass", "byte")]
    forward_seconds: Annotated[Column, Doc("forward pass: the sum of the next three", "s")]
    forward_compute_seconds: Annotated[Column, Doc("arithmetic of the forward pass", "s")]
    forward_memory_seconds: Annotated[Column, Doc("exposed traffic of the forward pass", "s")]
    forward_comm_seconds: Annotated[Column, Doc("exposed communication of the forward pass", "s")]
    backward_matrix_flops: Annotated[Column, Doc("work of the backward pass on the matrix units", "FLOP")]
    backward_vector_flops: Annotated[Column, Doc("work of the backward pass on the vector units", "FLOP")]
    backward_bytes: Annotated[Column, Doc("memory traffic of the backward pass", "byte")]
    backward_seconds: Annotated[Column, Doc("backward pass: the sum of the next three", "s")]
    backward_compute_seconds: Annotated[Column, Doc("arithmetic of the backward pass", "s")]
    backward_memory_seconds: Annotated[Column, Doc("exposed traffic of the backward pass", "s")]
    backward_comm_seconds: Annotated[Column, Doc("exposed communication of the backward pass", "s")]
    again_seconds: Annotated[Column, Doc("recomputation before backward", "s")]
    weight_bytes: Annotated[Column, Doc("weights", "byte")]
    saved_bytes: Annotated[Column, Doc("activations saved for backward", "byte")]


def require_one_plan(est: object, subject: str) -> None:
    """Refuse anything but the estimate of one plan."""
    raise_problems(subject, type_problems("est", est, "an Estimate of one plan on one machine", Estimate))


Answer: TypeAlias = tuple[Plan, Estimate]
# Knobs and choices that times and footprints of parts do not depend on
AROUND_LAYERS: Final = ("pp", "dp", "vp", "replicas", "zero", "layout", "dp_overlap", "schedule")
AROUND_DENSE: Final = ("order", "fast_pp", "fast_dp")  # and without experts
# Ranks of experts cross those of replicas, whose place these degrees decide if stages are numbered first
DEGREES_OF_STAGES: Final = {"pp", "dp"}
_kept_parts: Final = lru_cache(256)(parts)  # of a search's plans, which are those of the next machine as well


class Layers:
    """Operations of the parts of plans, and what follows from them alone, each found when it is asked for.

    Parameters
    ----------
    counted : mapping of str to operations
        Operations of every part, as `parts` returns them.
    """

    def __init__(
        self,
        counted: Mapping[str, tuple[Operation, ...]],
        columns: Plans,
        system: System,
        assumed: Assumptions,
    ):
        self._counted = counted
        self._columns = columns
        self._system = system
        self._assumed = assumed

    @cached_property
    def timed(self) -> dict[str, Timed]:
        """Times of every part."""
        timer = OperationTimer(self._columns, self._system, self._assumed)
        return {part: timer.time_part(of_part) for part, of_part in self._counted.items()}

    @cached_property
    def costs(self) -> dict[str, PartCosts]:
        """Costs of every part."""
        return {part: cost_part(of_part, self._columns) for part, of_part in self.timed.items()}

    @cached_property
    def footprints(self) -> dict[str, Footprint]:
        """Memory of every part."""
        return {
            part: Footprint.from_operations(of_part, self._columns) for part, of_part in self._counted.items()
        }


class SharedLayers:
    """Layers of the plans of one question on one machine: those of plans with alike layers are found once."""

    def __init__(self) -> None:
        self._known: dict[Any, Layers] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes one that knows no layers yet: they are found again where they are needed."""
        return type(self), ()

    def find(self, model: Model, columns: Plans, system: System, assumed: Assumptions) -> Layers:
        """Return the layers of one plan."""
        key = assumed, _of_layers(columns, model)
        if key not in self._known:
            counted = _kept_parts(model, columns, assumed)
            self._known[key] = Layers(counted, columns, system, assumed)
        return self._known[key]


def _layers(
    model: Model, columns: Plans, system: System, assumed: Assumptions, shared: SharedLayers | None
) -> Layers:
    """Return the layers of plans, of one plan those that other plans share."""
    if shared is None:
        return Layers(parts(model, columns, assumed), columns, system, assumed)
    return shared.find(model, columns, system, assumed)


@lru_cache(1024)
def _shares_left_open(
    asked: Asked, unsaid: tuple[str, ...], given: tuple[tuple[str, str], ...]
) -> dict[str, float]:
    """Return the share of each software that a question leaves open; arguments as in `Assumptions`."""
    allowed = None if unsaid == Stack.ANY else unsaid
    return errors().software.shares_with_facts(asked, allowed, dict(given))


def _half_width(ends: tuple[Column, Column, Column]) -> float:
    """Return half the width of an interval of one plan from its ends, and a median, of the logarithm."""
    low, high, _ = ends
    return float(np.log(high / low)) / 2


@cache
def _timed_as(name: str) -> str:
    """Return the stack of the catalogue where facts of a name change none of its constants, else the name."""
    own = Stack(name)
    fitted = Stack(own.fitted_name)
    return fitted.name if own.assumptions.values() == fitted.assumptions.values() else name


def usual_assumptions(model: Model | None, system: System | None = None) -> str:
    """Return the name of the default assumptions: the paper's without a vocabulary, else a stack."""
    if model is None or (model.vocab is None and model.diffusion is None):
        return PAPER.name
    if system is not None and system.is_tpu:
        return Stack.TPU
    usual = Stack(Stack.FINE_TUNING) if model.is_fine_tuned else Stack.usual(model)
    return usual.calibrated_on(model, system, any_framework=not model.is_fine_tuned).name


@overload
def estimate(
    model: str | Path | Model,
    system: str | Path | System,
    plan: Plan,
    *,
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    given: Mapping[str, str] | None = None,
) -> Estimate: ...
@overload
def estimate(
    model: str | Path | Model,
    system: str | Path | System,
    plan: Plans,
    *,
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    given: Mapping[str, str] | None = None,
) -> Estimates: ...
def estimate(
    model: str | Path | Model,
    system: str | Path | System,
    plan: Plan | Plans,
    *,
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
    given: Mapping[str, str] | None = None,
) -> Estimate | Estimates:
    """Estimate time and memory of one training step.

    Parameters
    ----------
    model : str, Path or Model
        The transformer, or its name or file as for `load_model`.
    system : str, Path or System
        The machine, or its name or file as for `load_system`.
    plan : Plan or Plans
        The parallel plan. What a `Plan` leaves out of its placement (`fast_*`) is chosen: as frameworks
        number ranks, or the fastest that fills the fast domains, depending on the assumptions.
    gbs : int, optional
        Global batch [sequences]; the model's own if left out, or else one of about 4M tokens.
    assumptions : str or Assumptions, optional
        Name of a preset (``"paper"``, ``"paper-published"``, ``"calibrated"``) or of a software stack, or
        `Assumptions`. If left out, ``"paper"`` for models of the paper's kind, without a vocabulary,
        ``"maxtext-2025"`` on TPUs, ``"huggingface-eager"`` for fine-tuning, and ``"calibrated"`` for others.
    given : mapping of str to str, optional
        Facts of the software, such as ``{"dispatcher": "deepep"}``: names and values as in the table of facts
        of docs/catalogue.md. They change the software, and leave less of it open.

    Returns
    -------
    Estimate or Estimates
        Numbers for a `Plan`, arrays for `Plans`. `traincast.metrics` has what follows, such as
        ``metrics(est).mfu["megatron"]``.

    Raises
    ------
    InputError
        If arguments cannot be used, all of them at once; or if the plan breaks a rule for this model, batch
        or machine: every broken rule is named.

    Examples
    --------
    >>> import traincast as tc
    >>> plan = tc.Plan(tp=8, pp=16, dp=16, fast_tp=8)
    >>> est = tc.estimate("gpt3-1t", "h200-nvs8", plan, gbs=4096)
    >>> round(est.step_seconds, 3), round(est.memory_bytes / 2**30, 1)
    (41.195, 87.9)
    """
    errors = ErrorCollector("estimate")
    errors.catch(require_type, "plan", plan, "a Plan or Plans", Plan, Plans)
    model_read = errors.catch(as_model, model)
    system_read = errors.catch(as_system, system)
    gbs_read = errors.catch(check_gbs, gbs, model_read)
    facts = errors.catch(read_given, given)
    if facts and model_read is not None:
        errors.catch(check_experts, facts, model_read.experts is not None)
    usual = usual_assumptions(model_read, system_read)
    stack = errors.catch(check_assumptions, assumptions, usual, Stack(usual).open_software, facts)
    if isinstance(plan, Plan):
        errors.catch(check_size, system_read, plan.gpus)
        errors.catch(_check_one_machine, plan, system_read)
    require = errors.require
    transformer = require(model_read)
    machine = require(system_read)
    batch = require(gbs_read)
    assumed = require(stack)
    require_valid(transformer, plan, batch, machine.fast_domain)
    if isinstance(plan, Plans):
        return estimate_columns(transformer, machine, plan, batch, assumed)
    if not plan.placed:
        plan = _place_fastest(transformer, machine, plan, batch, assumed)
    return estimate_placed(transformer, machine, plan, batch, assumed)


def estimate_placed(
    model: Model,
    system: System,
    plan: Plan,
    gbs: int,
    assumed: Assumptions,
    shared: SharedLayers | None = None,
) -> Estimate:
    """Estimate one placed plan without checking it.

    `shared` keeps what plans of one question have in common whose layers are alike.
    """
    return Estimate(plan=plan, **_step_of(model, system, plan.columns(), gbs, assumed, shared=shared))


def _place_fastest(model: Model, system: System, plan: Plan, gbs: int, assumed: Assumptions) -> Plan:
    """Return a plan with the fastest of the placements that it allows."""
    domain = system.domain(plan.gpus)
    candidates = placements(plan, domain, assumed.ordered_ranks)
    if candidates is None:
        problem = f"no placement of {plan} fills fast domains of {domain}"
        raise InputError("plan", [f"{problem}: give fast_* for every group by hand"])
    seconds = estimate_columns(model, system, candidates, gbs, assumed).step_seconds
    return candidates.row(int(np.argmin(seconds)))


def _check_one_machine(plan: Plan, system: System | None) -> None:
    """Refuse one plan on columns of machines."""
    if system is not None and system.columns():
        raise InputError("plan", [f"{plan}: one plan on columns of machines; give plan.columns(), placed"])


def with_defaults(plan: Plans, model: Model, assumed: Assumptions) -> Plans:
    """Return plans with choices left to the assumptions filled in, and the load of the model's experts."""
    return with_load(plan.ready(assumed), model)


def estimate_columns(model: Model, system: System, plan: Plans, gbs: int, assumed: Assumptions) -> Estimates:
    """Estimate one batch of plans without checking it."""
    return Estimates(plan=plan, **_step_of(model, system, plan, gbs, assumed))


def _of_layers(plan: Plans, model: Model) -> tuple[object, ...]:
    """Return the knobs and choices of a plan that times and footprints of its parts depend on."""
    around = set(AROUND_LAYERS)
    if model.experts is None:
        around.update(AROUND_DENSE)
    elif plan.stages_before_replicas:
        around -= DEGREES_OF_STAGES
    return tuple(value for name, value in vars(plan).items() if name not in around)


def _step_of(
    model: Model,
    system: System,
    plan: Plans,
    gbs: int,
    assumed: Assumptions,
    shared: SharedLayers | None = None,
) -> dict[str, Any]:
    """Return the fields of an estimate but its plan."""
    assumed = with_fitted_values(system, assumed)
    columns = with_defaults(plan, model, assumed)
    system.accelerator.require(columns.recipe)
    layers = _layers(model, columns, system, assumed, shared)
    pipeline = stages(model, columns)
    return {
        "model": model,
        "system": system,
        "gbs": gbs,
        "assumptions": assumed,
        "columns": columns,
        "layers": layers,
        "stages": pipeline,
        "step": step(layers.costs, columns, pipeline, gbs, system, assumed),
        "shared": shared,
    }
