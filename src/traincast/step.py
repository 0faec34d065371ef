"""THE page: operations of a layer + system + plan + assumptions → time of a step (arXiv 2410.00273, one training step)."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from traincast.assumptions import Assumptions
from traincast.columns import Column
from traincast.hardware import System
from traincast.operations.base import Operation, Pass, total
from traincast.plan import Plans
from traincast.times.collectives import collective
from traincast.times.overlap import layer_by_layer, panelled
from traincast.times.roofline import arithmetic, exposed_memory
from traincast.times.schedules import bubble, transfers


@dataclass(frozen=True, slots=True)
class Seconds:
    """Time by what it is spent on; columns over plans.

    Parameters
    ----------
    compute : Column
        Launches and arithmetic [s].
    memory : Column
        Memory traffic not hidden behind arithmetic [s].
    comm : Column
        Communication not hidden [s].
    """

    compute: Column
    memory: Column
    comm: Column

    @property
    def total(self) -> Column:
        """All of it [s]."""
        return self.compute + self.memory + self.comm


@dataclass(frozen=True, slots=True)
class TimedOperation:
    """An operation with the time of its passes.

    Parameters
    ----------
    operation : Operation
        What is timed.
    forward, backward : Seconds
        Time of each pass.
    again : Seconds or None
        The forward pass made again before backward, if it is.
    """

    operation: Operation
    forward: Seconds
    backward: Seconds
    again: Seconds | None


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """What one layer and one micro-batch cost a rank; columns that depend on the shard only, not on what wraps it.

    Parameters
    ----------
    forward, backward : Column
        Time of the pass, t_f and t_b; recomputation counts in backward [s].
    weights : Column
        Weights of the layer on the rank [byte].
    message : Column
        Activation passed to the next pipeline stage: what the MLP's norm saves (arXiv 2410.00273) [byte].
    """

    forward: Column
    backward: Column
    weights: Column
    message: Column

    def broadcast(self, shape: tuple[int, ...]) -> "LayerCosts":
        """All columns in one `shape`, without a copy."""
        return LayerCosts(*(np.broadcast_to(getattr(self, field.name), shape) for field in fields(self)))

    def take(self, index: Any) -> "LayerCosts":
        """Rows of the columns, by a numpy index."""
        return LayerCosts(*(getattr(self, field.name)[index] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Step:
    """Time of one training step by component; columns over plans (arXiv 2410.00273, one training step).

    Parameters
    ----------
    busy : Column
        The layers themselves [s].
    pp_comm : Column
        Traffic between pipeline stages [s].
    bubble : Column
        Wait for the pipeline to fill and drain [s].
    dp_comm : Column
        Weights gathered and gradients scattered, as far as not hidden [s].
    """

    busy: Column
    pp_comm: Column
    bubble: Column
    dp_comm: Column

    @property
    def seconds(self) -> Column:
        """The whole step [s]."""
        return self.busy + self.pp_comm + self.bubble + self.dp_comm


def time_pass(work: Pass, plan: Plans, system: System, assumed: Assumptions) -> Seconds:
    """Time of one pass of an operation: max(t_c, t_m), and the communication it cannot hide (arXiv 2410.00273, times).

    Parameters
    ----------
    work : Pass
        One direction of an operation.
    plan : Plans
        Supplies the groups and their placement; in the same rows as `work`.
    system : System
        The machine.
    assumed : Assumptions
        What is assumed.

    Returns
    -------
    Seconds
        Columns over plans.
    """
    compute = arithmetic(work, system.accelerator, assumed)
    memory = exposed_memory(work, compute, system.accelerator)
    comm = total(collective(c.kind, c.nbytes, *plan.group(c.over), system, assumed) for c in work.collectives)
    if work.panels is not None:
        comm = panelled(comm, work.panels, compute + memory)
    return Seconds(compute, memory, comm)


def time_layer(layer: tuple[Operation, ...], plan: Plans, system: System, assumed: Assumptions) -> tuple[TimedOperation, ...]:
    """Time of every operation of a layer.

    Parameters
    ----------
    layer : tuple of Operation
        The layer.
    plan : Plans
        The plans it was counted for.
    system : System
        The machine.
    assumed : Assumptions
        What is assumed.

    Returns
    -------
    tuple of TimedOperation
        In the same order.
    """
    timed = []
    for op in layer:
        forward = time_pass(op.forward, plan, system, assumed)
        backward = forward if op.backward is op.forward else time_pass(op.backward, plan, system, assumed)
        timed.append(TimedOperation(op, forward, backward, forward if op.recompute else None))
    return tuple(timed)


def cost_layer(timed: tuple[TimedOperation, ...]) -> LayerCosts:
    """Sums over a layer's operations.

    Parameters
    ----------
    timed : tuple of TimedOperation
        The layer with its times.

    Returns
    -------
    LayerCosts
        Columns over plans.
    """
    return LayerCosts(
        forward=total(t.forward.total for t in timed),
        backward=total(t.backward.total if t.again is None else t.backward.total + t.again.total for t in timed),
        weights=total(t.operation.weight_bytes for t in timed),
        message=total(t.operation.saved_bytes for t in timed if t.operation.passed_on),
    )


def step(layer: LayerCosts, plan: Plans, layers: int, gbs: int, system: System, assumed: Assumptions) -> Step:
    """One training step of every plan (arXiv 2410.00273, one training step).

    Parameters
    ----------
    layer : LayerCosts
        What a layer costs, in the same rows as `plan`.
    plan : Plans
        Plans.
    layers : int
        Layers of the model, L.
    gbs : int
        Global batch [sequences].
    system : System
        The machine.
    assumed : Assumptions
        What is assumed.

    Returns
    -------
    Step
        Columns over plans.
    """
    nl, nm = plan.layers_per_stage(layers), plan.microbatches(gbs)
    busy = (layer.forward + layer.backward) * nm * nl
    pp_comm = transfers(layer.message, plan.pp, plan.fast_pp, nm, plan.vp, system, assumed)
    idle = bubble(busy + pp_comm, plan.pp, nm, plan.vp)
    n, g = plan.dp * plan.cp, plan.fast_dp * plan.fast_cp  # ranks that hold the same weights
    gather = collective("all-gather", layer.weights, n, g, system, assumed)
    scatter = collective("reduce-scatter", layer.weights, n, g, system, assumed)
    dp_comm = layer_by_layer(gather, layer.forward, nl) + layer_by_layer(scatter, layer.backward, nl)
    return Step(busy, pp_comm, idle, dp_comm)
