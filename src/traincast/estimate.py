"""The estimate of a plan: time and memory of one training step, and what they consist of."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from traincast.assumptions import Assumptions, resolve
from traincast.columns import Column, plain
from traincast.errors import InputError, not_whole
from traincast.hardware import System
from traincast.memory import Footprint, memory
from traincast.model import Model
from traincast.operations.base import total
from traincast.operations.layers import layer
from traincast.plan import Plan, Plans
from traincast.rules import require
from traincast.space import placements
from traincast.step import Step, TimedOperation, cost_layer, step, time_layer
from traincast.units import GIB


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
    timed: tuple[TimedOperation, ...]
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
    def breakdown(self) -> dict[str, Column]:
        """Seconds by component; they add up to `step_seconds`."""
        plan = self.plan.columns() if isinstance(self.plan, Plan) else self.plan
        repeats = plan.microbatches(self.gbs) * plan.layers_per_stage(self.model.layers)
        parts = [part for t in self.timed for part in (t.forward, t.backward, t.again) if part is not None]
        seconds = {
            "compute": total(part.compute for part in parts) * repeats,
            "exposed_memory": total(part.memory for part in parts) * repeats,
            "tp_comm": total(part.comm for part in parts) * repeats,
            "dp_comm": self.step.dp_comm,
            "pp_comm": self.step.pp_comm,
            "bubble": self.step.bubble,
        }
        return {component: plain(value) for component, value in seconds.items()}

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
        """The estimate of a single plan for machines, numbers in SI.

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
            "breakdown_seconds": self.breakdown,
            "memory_by_component_bytes": self.memory,
        }

    def operations(self) -> list[dict[str, Any]]:
        """Every operation of one layer and micro-batch: FLOPs, bytes and seconds, one dict per operation in execution order.

        `memory` and `comm` seconds are what is exposed; recomputation before backward is in `again_seconds`.
        """
        rows = []
        for timed in self.timed:
            op = timed.operation
            row: dict[str, Column] = {}
            for name, work, time in (("forward", op.forward, timed.forward), ("backward", op.backward, timed.backward)):
                row |= {
                    f"{name}_matrix_flops": work.flops("matrix"),
                    f"{name}_vector_flops": work.flops("vector"),
                    f"{name}_bytes": work.nbytes,
                    f"{name}_seconds": time.total,
                    f"{name}_compute_seconds": time.compute,
                    f"{name}_memory_seconds": time.memory,
                    f"{name}_comm_seconds": time.comm,
                }
            again = 0.0 if timed.again is None else timed.again.total
            row |= {"again_seconds": again, "weight_bytes": op.weight_bytes, "saved_bytes": op.saved_bytes}
            rows.append({"operation": op.name, **{figure: plain(value) for figure, value in row.items()}})
        return rows


Answer: TypeAlias = tuple[Plan, Estimate]


def check_gbs(gbs: int | None, model: Model) -> int:
    """The global batch asked for, or the model's own.

    Raises
    ------
    InputError
        If it is no positive whole number, or not given and the model has none.
    """
    if gbs is None:
        gbs = model.global_batch
    if gbs is None:
        own = f"{model.name} has no global batch of its own"
        raise InputError("global batch", [f"{own}: give one (gbs, --global-batch), in sequences of {model.seq} tokens"])
    if wrong := not_whole("gbs", gbs):
        raise InputError("global batch", wrong)
    return int(gbs)


def estimate(
    model: Model, system: System, plan: Plan | Plans, gbs: int | None = None, assumptions: str | Assumptions = "paper"
) -> Estimate:
    """Time and memory of one training step.

    Parameters
    ----------
    model : Model
        The transformer.
    system : System
        The machine.
    plan : Plan or Plans
        The parallel plan. What a `Plan` leaves out of its placement (`fast_*`) is chosen: the fastest that fills the fast domains.
    gbs : int, optional
        Global batch [sequences]; the model's own where it has one.
    assumptions : str or Assumptions
        Name of a preset (``"paper"``, ``"paper-published"``) or one's own.

    Raises
    ------
    InputError
        If the plan breaks a rule for this model, batch or machine; every broken rule is named.

    Examples
    --------
    >>> import traincast as tc
    >>> plan = tc.Plan(tp=8, pp=16, dp=16, fast_tp=8)
    >>> est = tc.estimate(tc.load_model("gpt3-1t"), tc.load_system("h200-nvs8"), plan, gbs=4096)
    >>> round(est.step_seconds, 3), round(est.memory_bytes / 2**30, 1)
    (41.195, 87.9)
    """
    gbs, assumed = check_gbs(gbs, model), resolve(assumptions)
    require(model, plan, gbs, system.fast_domain)
    if isinstance(plan, Plan) and not plan.placed:
        if system.columns():
            raise InputError(
                "plan", ["a placement is chosen for one machine, not for columns of them: give fast_* for every group"]
            )
        every = placements(plan, system.fast_domain)
        if every is None:
            whole = f"no placement of {plan} fills fast domains of {system.fast_domain}"
            raise InputError("plan", [f"{whole}: give fast_* for every group by hand"])
        seconds = _estimate(model, system, every, gbs, assumed).step_seconds
        plan = every.row(int(np.argmin(seconds)))
    return _estimate(model, system, plan, gbs, assumed)


def _estimate(model: Model, system: System, plan: Plan | Plans, gbs: int, assumed: Assumptions) -> Estimate:
    """The engine on one batch, nothing checked."""
    columns = plan.columns() if isinstance(plan, Plan) else plan
    operations = layer(model, columns, assumed)
    timed = time_layer(operations, columns, system, assumed)
    time = step(cost_layer(timed), columns, model.layers, gbs, system, assumed)
    held = memory(Footprint.of(operations), columns, model.layers, gbs, assumed)
    held = {component: plain(value) for component, value in held.items()}
    return Estimate(model, system, plan, gbs, assumed, timed, time, held)
