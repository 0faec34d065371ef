"""The estimate of a plan: time and memory of one training step, by component."""

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from traincast.catalog.load import as_model, as_system
from traincast.catalog.software_stacks import DEFAULT_STACK, with_fitted_values
from traincast.core.assumptions import PAPER, Assumptions
from traincast.core.errors import ErrorCollector, InputError, type_problems
from traincast.core.model import Model
from traincast.core.plan import Plan, Plans
from traincast.core.quantities import INTERVALS, Column, plain
from traincast.core.system import System
from traincast.core.units import GIB
from traincast.operations.operation import Operation, total
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


@dataclass(frozen=True, repr=False)
class Estimate:
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
    def step_seconds(self) -> Column:
        """Time of one optimizer step [s]."""
        return plain(self.step.seconds)

    @cached_property
    def memory_bytes(self) -> Column:
        """Memory of the fullest rank [byte]."""
        return plain(total(self.memory.values()))

    @property
    def fits(self) -> Any:
        """Whether it fits in the accelerator's memory."""
        return self.memory_bytes <= self.system.accelerator.hbm_bytes

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
    def fits_probability(self) -> Column | None:
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

    @cached_property
    def breakdown(self) -> dict[str, Column]:
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
    def tokens_per_second_per_gpu(self) -> Column:
        """Training throughput of one GPU [token/s]."""
        return self.gbs * self.model.seq / self.step_seconds / self.plan.gpus

    @property
    def training_days(self) -> Column | None:
        """Length of the whole training run [day]; None where the model does not say how long it is."""
        if self.model.training_sequences is None:
            return None
        return self.model.training_sequences / self.gbs * self.step_seconds / 86_400

    def summary(self) -> dict[str, Any]:
        """Return the estimate of a single plan as JSON-ready values, in SI units.

        Raises
        ------
        TypeError
            If the estimate is of columns of plans.
        """
        if not isinstance(self.plan, Plan):
            raise TypeError("the estimate is of columns of plans: a summary is of one plan")
        knobs = {knob: int(value) for knob, value in self.plan.columns().numbers().items()}
        return {
            "strategy": self.plan.strategy,
            "plan": knobs | self.plan.choices(),
            "step_seconds": self.step_seconds,
            "memory_bytes": self.memory_bytes,
            "fits": bool(self.fits),
            "tokens_per_second_per_gpu": self.tokens_per_second_per_gpu,
            "training_days": self.training_days,
            **self.uncertainty(),
            **({"outside_measured": self.outside} if self.interval else {}),
            "breakdown_seconds": self.breakdown,
            "memory_by_component_bytes": self.memory,
        }

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
        if not isinstance(self.plan, Plan):
            raise TypeError("the estimate is of columns of plans: the devices are those of one plan")
        columns = with_defaults(self.plan, self.model, self.assumptions)
        pipeline = devices(self.model, self.plan.pp, self.plan.vp, self.plan.schedule, self.plan.layout)
        operations = {part: tuple(op.operation for op in timed) for part, timed in self.timed.items()}
        footprints = {part: Footprint.of(of_part, columns) for part, of_part in operations.items()}
        memories = devices_memory(footprints, columns, every_device(pipeline), self.gbs, self.assumptions)
        return [
            {
                "stage": device.position,
                "parts": dict(device.stored_parts),
                "memory_bytes": plain(total(memory.values())),
                "memory_by_component_bytes": {component: plain(value) for component, value in memory.items()},
            }
            for device, memory in zip(pipeline, memories, strict=True)
        ]

    def operations(self) -> list[dict[str, Any]]:
        """Return FLOPs, bytes and seconds of every operation of one micro-batch, once for each kind of layer, in execution order.

        `memory` and `comm` seconds are exposed times; recomputation before backward is in `again_seconds`.
        """
        rows = []
        for part, timed in (
            (part, operation) for part, operations in self.timed.items() for operation in operations
        ):
            op = timed.operation
            row: dict[str, Column] = {}
            for name, work, time in (
                ("forward", op.forward, timed.forward),
                ("backward", op.whole_backward, timed.backward),
            ):
                row |= {
                    f"{name}_matrix_flops": work.flops("matrix") + work.flops("low"),
                    f"{name}_vector_flops": work.flops("vector"),
                    f"{name}_bytes": work.nbytes,
                    f"{name}_seconds": time.total,
                    f"{name}_compute_seconds": time.compute,
                    f"{name}_memory_seconds": time.memory,
                    f"{name}_comm_seconds": time.comm + time.exchange,
                }
            recompute_seconds = 0.0 if timed.again is None else timed.again.total
            weights = op.weights * self.assumptions.memory.element_bytes
            row |= {
                "again_seconds": recompute_seconds,
                "weight_bytes": weights,
                "saved_bytes": op.saved_bytes,
            }
            rows.append(
                {
                    "part": part,
                    "operation": op.name,
                    **{figure: plain(value) for figure, value in row.items()},
                }
            )
        return rows


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
