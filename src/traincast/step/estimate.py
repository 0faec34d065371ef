"""The estimate of a plan: time and memory of one training step, by component."""

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

from traincast.catalog.load import as_model, as_system
from traincast.catalog.software_stacks import DEFAULT_STACK, with_fitted_values
from traincast.core.assumptions import PAPER, Assumptions
from traincast.core.errors import ErrorCollector, InputError, type_problems
from traincast.core.model import Model
from traincast.core.nomenclature import INTERVALS
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import Column, plain
from traincast.core.result import KEY, Doc, Result, number_keys
from traincast.core.system import System
from traincast.core.units import GIB
from traincast.operations.operation import Operation, PassCount, total
from traincast.operations.transformer import parts
from traincast.step.arguments import check_assumptions, check_gbs, check_size
from traincast.step.layer_cost import cost_part
from traincast.step.memory import Footprint, devices_memory, memory
from traincast.step.pipeline_stages import Stages, devices, every_device, stages, with_load
from traincast.step.placement import placements
from traincast.step.step_time import Step, step
from traincast.step.uncertainty import ErrorCase, fits_probability, interval, outside_measured_range
from traincast.step.validity import require_valid
from traincast.times.operation_time import PassSeconds, Timed, time_part


@dataclass(frozen=True)
class Job(Result):
    """Model, system, GPUs, batch and assumptions of an estimate or a search."""

    model: Annotated[str, Doc("name of the model")]
    left_out: Annotated[
        str | None, Doc("parts of the model that are not counted, such as a multimodal model's vision tower")
    ]
    system: Annotated[str, Doc("name of the system")]
    gpus: Annotated[int, Doc("GPUs in the job")]
    global_batch: Annotated[int, Doc("sequences of a step", "sequence")]
    seq: Annotated[int, Doc("tokens of a sequence", "token")]
    assumptions: Annotated[str, Doc("name of the assumptions or of the software stack")]

    @classmethod
    def of(cls, answer: Any, gpus: int) -> "Job":
        """Return the job of an estimate or of a search."""
        model, left_out = answer.model, answer.model.left_out or None
        return cls(
            model.name, left_out, answer.system.name, gpus, answer.gbs, model.seq, answer.assumptions.name
        )


@dataclass(frozen=True, repr=False)
class Estimate(Result):
    """One training step of a plan, or of columns of plans.

    Figures are numbers for a `Plan` and columns for `Plans`.
    """

    model: Model
    system: System
    plan: Plan | Plans
    gbs: int
    assumptions: Assumptions
    timed: dict[str, Timed]  # every part of the model
    stages: Stages
    step: Step
    memory: dict[str, Column]  # bytes by component

    def __repr__(self) -> str:
        return (
            f"<Estimate {self.plan}: {self.step_seconds:.4g} s, {self.memory_bytes / GIB:.4g} GiB>"
            if isinstance(self.plan, Plan)
            else f"<Estimate of {np.size(self.step_seconds)} plans>"
        )

    @property
    def job(self) -> Job:
        """Model, system, GPUs, batch and assumptions."""
        return Job.of(self, int(self.plan.gpus))

    @property
    def strategy(self) -> Annotated[str, KEY]:
        """Strategy that shards a layer."""
        return self.plan.strategy

    @property
    def settings(self) -> Annotated[Plan, Doc(key="plan")]:
        """Every knob and choice of the plan by name."""
        if not isinstance(self.plan, Plan):
            raise TypeError("the estimate is of columns of plans: a summary is of one plan")
        return self.plan

    @property
    def step_seconds(self) -> Annotated[Column, KEY]:
        """Time of one optimizer step [s]."""
        return plain(self.step.seconds)

    @cached_property
    def memory_bytes(self) -> Annotated[Column, KEY]:
        """Memory of the fullest rank [byte]."""
        return plain(total(self.memory.values()))

    @property
    def fits(self) -> Annotated[Any, Doc(kind="boolean")]:
        """Whether it fits in the accelerator's memory."""
        return self.memory_bytes <= self.system.accelerator.hbm_bytes

    @property
    def tokens_per_second_per_gpu(self) -> Annotated[Column, KEY]:
        """Training throughput of one GPU [token/s]."""
        return self.gbs * self.model.seq / self.step_seconds / self.plan.gpus

    @property
    def training_days(self) -> Annotated[Column | None, KEY]:
        """Length of the whole training run [day]; None where the model does not say how long it is."""
        if self.model.training_sequences is None:
            return None
        return self.model.training_sequences / self.gbs * self.step_seconds / 86_400

    @cached_property
    def case(self) -> ErrorCase:
        """What the error of its time depends on."""
        varied = any(
            path.startswith("accelerator.") and path != "accelerator.hbm_bytes"
            for path in self.system.columns()
        )
        accelerator = f"{self.system.accelerator.name}{', varied' if varied else ''}"  # nobody ran on it
        return ErrorCase.of(
            self.model, accelerator, self.assumptions.name, self.plan.gpus, self.breakdown, self.step_seconds
        )

    @cached_property
    def interval(self) -> tuple[Column, Column] | None:
        """Interval that holds 90 % of measured step times, low and high [s]; None where errors are not known."""
        return interval(self.step_seconds, self.case) if self.assumptions.errors_known else None

    @property
    def step_seconds_low(self) -> Annotated[Column | None, Doc(optional=True)]:
        """Time that 95 % of measured steps are above, where errors are known [s]."""
        return None if self.interval is None else self.interval[0]

    @property
    def step_seconds_high(self) -> Annotated[Column | None, Doc(optional=True)]:
        """Time that 95 % of measured steps are below, where errors are known [s]."""
        return None if self.interval is None else self.interval[1]

    @property
    def fits_probability(self) -> Annotated[Column | None, Doc(optional=True)]:
        """Probability that it fits in the accelerator's memory; None where errors are not known."""
        capacity = self.system.accelerator.hbm_bytes
        return (
            fits_probability(self.memory_bytes, capacity, self.assumptions.name)
            if self.assumptions.errors_known
            else None
        )

    @property
    def outside(self) -> list[str]:
        """Respects in which one plan lies outside of measured runs, in words; empty where errors are not known at all."""
        return outside_measured_range(self.case) if self.assumptions.errors_known else []

    @property
    def outside_measured(self) -> Annotated[list[str] | None, Doc(optional=True)]:
        """Respects in which it lies outside of measured runs, where errors are known."""
        return self.outside if self.assumptions.errors_known else None

    @cached_property
    def breakdown(
        self,
    ) -> Annotated[dict[str, Column], Doc(key="breakdown_seconds", keys=number_keys("time"))]:
        """Seconds by component; they add up to `step_seconds`."""
        plan = self.plan.columns() if isinstance(self.plan, Plan) else self.plan
        nm = plan.microbatches(self.gbs)
        passes, recomputation = self._busy(nm), self._busy(nm / plan.recompute_every, recomputation=True)
        seconds = {
            "compute": passes.compute,
            "exposed_memory": passes.memory,
            "recomputation": recomputation.total,
            "tp_comm": passes.comm,
            "ep_comm": passes.exchange,
            "dp_comm": self.step.dp_comm,
            "pp_comm": self.step.pp_comm,
            "bubble": self.step.bubble,
            "optimizer_step": self.step.optimizer,
            "offload_comm": self.step.offload,
            "host": self.step.host,
            "stragglers": self.step.stragglers,
        }
        return _in_rows(seconds, self.step.seconds)

    def _busy(self, repeats: Column, recomputation: bool = False) -> PassSeconds:
        """Return the time of the slowest device in its forward and backward passes, or in recomputation, by resource."""
        sums = PassSeconds(0.0, 0.0, 0.0, 0.0)
        for i, counts in enumerate(self.stages.executed_parts):
            slowest = self.step.slowest == i
            for part, n in counts.items():
                passes = [
                    (op.again,) if recomputation else (op.forward, op.backward) for op in self.timed[part]
                ]
                for seconds in filter(None, chain(*passes)):
                    sums += seconds.times(slowest * n * repeats)
        return sums

    @property
    def memory_by_component_bytes(self) -> Annotated[dict[str, Column], Doc(keys=number_keys("memory"))]:
        """Bytes by component; they add up to `memory_bytes`."""
        return self.memory

    def summary(self) -> dict[str, Any]:
        """Return the estimate of a single plan as JSON values, in SI units.

        Raises
        ------
        TypeError
            If the estimate is of columns of plans.
        """
        return self.to_dict()

    def uncertainty(self) -> dict[str, Column]:
        """Return the ends of the interval [s] and the probability that the plan fits, by name; empty where errors are not known."""
        low_high, fits = self.interval, self.fits_probability
        return (
            {} if low_high is None or fits is None else dict(zip(INTERVALS, (*low_high, fits), strict=True))
        )

    def devices(self) -> list[dict[str, Any]]:
        """Return the parts of the model on every device of the pipeline and its memory by component [byte], first to last.

        Raises
        ------
        TypeError
            If the estimate is of columns of plans.
        """
        return [row.to_dict() for row in self.device_rows()]

    def device_rows(self) -> "list[DeviceRow]":
        """Return the rows of `devices`, with meaning and unit."""
        if not isinstance(self.plan, Plan):
            raise TypeError("the estimate is of columns of plans: the devices are those of one plan")
        columns = with_defaults(self.plan, self.model, self.assumptions)
        pipeline = devices(self.model, self.plan.pp, self.plan.vp, self.plan.schedule, self.plan.layout)
        operations = {part: tuple(op.operation for op in timed) for part, timed in self.timed.items()}
        footprints = {part: Footprint.of(of_part, columns) for part, of_part in operations.items()}
        memories = devices_memory(footprints, columns, every_device(pipeline), self.gbs, self.assumptions)
        return [
            DeviceRow(
                device.position,
                dict(device.stored_parts),
                plain(total(memory.values())),
                {component: plain(value) for component, value in memory.items()},
            )
            for device, memory in zip(pipeline, memories, strict=True)
        ]

    def operations(self) -> list[dict[str, Any]]:
        """Return FLOPs, bytes and seconds of every operation of one micro-batch, once for each kind of layer, in execution order.

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
                again_seconds=0.0 if timed.again is None else plain(timed.again.total),
                weight_bytes=plain(timed.operation.weights * self.assumptions.memory.element_bytes),
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


@dataclass(frozen=True)
class DeviceRow(Result):
    """Memory of one pipeline stage."""

    stage: Annotated[int, Doc("place in the pipeline, from 0")]
    parts: Annotated[dict[str, float], Doc("number of each part of the model that it holds")]
    memory_bytes: Annotated[Column, Doc("memory of its ranks", "byte")]
    memory_by_component_bytes: Annotated[
        dict[str, Column],
        Doc("bytes by component; they add up to `memory_bytes`", keys=number_keys("memory")),
    ]


@dataclass(frozen=True)
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


def _in_rows(components: dict[str, Column], whole: Column) -> dict[str, Column]:
    """Return components as columns in the rows of their sum, also those that are the same in every row."""
    return {
        component: plain(np.broadcast_to(value, np.shape(whole))) for component, value in components.items()
    }


Answer: TypeAlias = tuple[Plan, Estimate]
Parts: TypeAlias = dict[str, tuple[Operation, ...]]  # operations of every part of the model


def usual_assumptions(model: Model | None) -> str:
    """Return the name of the default assumptions of commands about one plan.

    Parameters
    ----------
    model : Model, optional
        The transformer; None where it could not be read.

    Returns
    -------
    str
        ``"paper"`` for a model of the paper's kind, without a vocabulary; else the stack of the framework that is usual.
    """
    return PAPER.name if model is None or model.vocab is None else DEFAULT_STACK


def estimate(
    model: str | Path | Model,
    system: str | Path | System,
    plan: Plan | Plans,
    gbs: int | None = None,
    assumptions: str | Assumptions | None = None,
) -> Estimate:
    """Estimate time and memory of one training step.

    Parameters
    ----------
    model : str, Path or Model
        The transformer, or its name or file as for `load_model`.
    system : str, Path or System
        The machine, or its name or file as for `load_system`.
    plan : Plan or Plans
        The parallel plan. What a `Plan` leaves out of its placement (`fast_*`) is chosen: as frameworks number ranks,
        or the fastest that fills the fast domains, depending on the assumptions.
    gbs : int, optional
        Global batch [sequences]; the model's own where it has one.
    assumptions : str or Assumptions, optional
        Name of a preset (``"paper"``, ``"paper-published"``, ``"calibrated"``) or of a software stack, or one's own; ``"paper"``
        for models of the paper's kind, without a vocabulary, and ``"calibrated"`` for others if left out.

    Raises
    ------
    InputError
        If arguments cannot be used, all of them at once; or if the plan breaks a rule for this model, batch or machine: every
        broken rule is named.

    Examples
    --------
    >>> import traincast as tc
    >>> plan = tc.Plan(tp=8, pp=16, dp=16, fast_tp=8)
    >>> est = tc.estimate("gpt3-1t", "h200-nvs8", plan, gbs=4096)
    >>> round(est.step_seconds, 3), round(est.memory_bytes / 2**30, 1)
    (41.195, 87.9)
    """
    model, system, gbs, assumed = _checked(model, system, plan, gbs, assumptions)
    require_valid(model, plan, gbs, system.fast_domain)
    if isinstance(plan, Plan) and not plan.placed:
        if system.columns():
            raise InputError(
                "plan",
                [
                    "a placement is chosen for one machine, not for columns of them: give fast_* for every group"
                ],
            )
        domain = system.domain(plan.gpus)
        candidates = placements(plan, domain, assumed.ordered_ranks)
        if candidates is None:
            problem = f"no placement of {plan} fills fast domains of {domain}"
            raise InputError("plan", [f"{problem}: give fast_* for every group by hand"])
        seconds = estimate_columns(model, system, candidates, gbs, assumed).step_seconds
        plan = candidates.row(int(np.argmin(seconds)))
    return estimate_columns(model, system, plan, gbs, assumed)


def _checked(
    model: str | Path | Model,
    system: str | Path | System,
    plan: Plan | Plans,
    gbs: int | None,
    assumptions: str | Assumptions | None,
) -> tuple[Model, System, int, Assumptions]:
    """Return model, system, global batch and assumptions, or raise all mistakes of the arguments at once."""
    mistakes = ErrorCollector("estimate")
    mistakes.catch(_check_plan, plan)
    transformer, machine = mistakes.catch(as_model, model), mistakes.catch(as_system, system)
    batch = mistakes.catch(check_gbs, gbs, transformer)
    assumed = mistakes.catch(check_assumptions, assumptions, usual_assumptions(transformer))
    if isinstance(plan, Plan):
        mistakes.catch(check_size, machine, plan.gpus)
    return (
        mistakes.require(transformer),
        mistakes.require(machine),
        mistakes.require(batch),
        mistakes.require(assumed),
    )


def _check_plan(plan: Plan | Plans) -> None:
    """Refuse a value that is not a plan."""
    if wrong := type_problems("plan", plan, "a Plan or Plans", Plan, Plans):
        raise InputError("plan", wrong)


def with_defaults(plan: Plan | Plans, model: Model, assumed: Assumptions) -> Plans:
    """Return the plan as columns, with choices left to the assumptions filled in, and the load of the model's experts."""
    columns = plan.columns() if isinstance(plan, Plan) else plan
    return with_load(columns.ready(assumed), model)


def count_operations(model: Model, plan: Plan | Plans, assumed: Assumptions) -> Parts:
    """Return the operations of every part of the model; they do not depend on the machine."""
    return parts(model, with_defaults(plan, model, assumed), assumed)


def estimate_columns(
    model: Model,
    system: System,
    plan: Plan | Plans,
    gbs: int,
    assumed: Assumptions,
    operations: Parts | None = None,
) -> Estimate:
    """Estimate one batch of plans without checking it; `operations` are those of every part, where they are counted already."""
    assumed = with_fitted_values(system, assumed)
    columns = with_defaults(plan, model, assumed)
    if operations is None:
        operations = parts(model, columns, assumed)
    timed = {part: time_part(of_part, columns, system, assumed) for part, of_part in operations.items()}
    costs = {part: cost_part(part_times, columns) for part, part_times in timed.items()}
    footprints = {part: Footprint.of(of_part, columns) for part, of_part in operations.items()}
    pipeline = stages(model, columns)
    time = step(costs, columns, pipeline, gbs, system, assumed)
    used = memory(footprints, columns, pipeline, gbs, assumed)
    return Estimate(
        model, system, plan, gbs, assumed, timed, pipeline, time, _in_rows(used, total(used.values()))
    )
