"""Micro-batch and recompute of rows that do not state them: chosen by what fits the machine's memory.

A pipeline of the Megatron family has micro-batches of one sequence; JAX does not accumulate gradients, and torchtitan splits the
batch of a replica into as many micro-batches as a pipeline has devices (pipeline_parallel_degree, in 2024). Elsewhere people take
what fits: the largest power of two that needs no recompute; where recompute is needed, its cheapest kind that fits. The estimate of
memory decides, with a tolerance of a tenth, its accuracy.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from traincast.accuracy.runs.row import Cells
from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.system import System
from traincast.step.estimate import estimate

MEMORY_SLACK: Final = 1.1  # tolerance over the memory of the accelerator
MAX_MBS: Final = 1024  # [sequences]
NO_ACCUMULATION: Final = ("maxtext", "pax")
MICRO_BATCHES_AS_STAGES: Final = ("torchtitan",)


def filled(
    cells: Cells, arguments: dict[str, Any], model: Model, system: System, gbs: int, stack: str
) -> Plan:
    """Return the plan, with micro-batch and recompute filled in where the row leaves them open.

    Parameters
    ----------
    cells : Cells
        The row; filled-in columns are noted.
    arguments : dict of str to Any
        Arguments of the plan, without `mbs` or `recompute` where the row does not state them.
    model, system : Model, System
        Model and machine.
    gbs : int
        Global batch [sequences].
    stack : str
        Software stack that ran it.
    """
    if (
        stack.startswith(NO_ACCUMULATION) and arguments["pp"] == 1
    ):  # a row may state the batch per chip, which tp chips share
        arguments["mbs"] = max(gbs // arguments["dp"], 1)
    if "mbs" in arguments and "recompute" in arguments:
        return Plan(**arguments)
    for name in ("mbs", "recompute"):
        if name not in arguments:
            cells.assume(name)
    sizes = [arguments["mbs"]] if "mbs" in arguments else list(_micro_batches(arguments, gbs, stack))
    kinds = [arguments["recompute"]] if "recompute" in arguments else list(_recompute_kinds(model))
    choices = [arguments | {"mbs": mbs, "recompute": kind} for kind, mbs in _choices_in_order(kinds, sizes)]
    return next(
        (plan for plan in map(_plan_of, choices) if _fits(plan, model, system, gbs, stack)),
        _plan_of(choices[-1]),
    )


def _plan_of(arguments: dict[str, Any]) -> Plan:
    """Return a plan; only full recompute may skip layers."""
    return Plan(**arguments | ({} if arguments["recompute"] == "full" else {"recompute_every": 1}))


def _choices_in_order(kinds: list[str], sizes: list[int]) -> Iterator[tuple[str, int]]:
    """Yield choices in order of preference: no recompute with large micro-batches first, then more recompute with the smallest."""
    yield from ((kinds[0], size) for size in sizes)
    yield from ((kind, sizes[-1]) for kind in kinds[1:])


def _micro_batches(arguments: dict[str, Any], gbs: int, stack: str) -> Iterator[int]:
    """Yield the micro-batches to try, the largest first."""
    share = max(gbs // arguments["dp"], 1)
    if stack.startswith(NO_ACCUMULATION):
        yield share
    elif arguments["pp"] > 1:
        micro_batches = arguments["pp"] if stack.startswith(MICRO_BATCHES_AS_STAGES) else share
        yield max(share // micro_batches, 1)
    else:
        power = 1 << (min(share, MAX_MBS).bit_length() - 1)
        while power:
            if share % power == 0:
                yield power
            power >>= 1


def _recompute_kinds(model: Model) -> Iterator[str]:
    """Yield the kinds of recompute, the cheapest first."""
    yield from ("none", "selective")
    if model.experts is not None:
        yield "activation+norms"
    if model.latent is not None:
        yield "activation+mla_up_proj+norms"
    yield "full"


def _fits(plan: Plan, model: Model, system: System, gbs: int, stack: str) -> bool:
    """Return whether a plan fits the accelerator's memory; a plan that breaks a rule does not."""
    try:
        memory = estimate(
            model, replace(system, gpus=None), plan, gbs, stack
        ).memory_bytes  # some runs joined several machines
    except InputError:
        return False
    return bool(memory <= MEMORY_SLACK * system.accelerator.hbm_bytes)
