"""Micro-batch and recompute of rows that do not state them: chosen by what fits the machine's memory.

A pipeline of the Megatron family has micro-batches of one sequence; JAX does not accumulate gradients, and
torchtitan splits the batch of a replica into as many micro-batches as a pipeline has devices. Elsewhere
people take what fits: the largest power of two that needs no recompute; where recompute is needed, its
cheapest kind that fits. The estimate of memory decides, with a tolerance.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from traincast.accuracy.runs.cells import Cells, follows
from traincast.core.errors import InputError
from traincast.core.model import Model
from traincast.core.plan import Plan
from traincast.core.system import System
from traincast.step.estimate import estimate

MEMORY_SLACK: Final = 1.1  # tolerance over the memory of the accelerator, the accuracy of the estimate
MAX_MBS: Final = 1024  # [sequences]


def filled(
    cells: Cells, arguments: dict[str, Any], model: Model, system: System, gbs: int, stack: str
) -> Plan:
    """Return the plan, with `mbs` and `recompute` filled in (and noted) where `arguments` lack them."""
    if follows(stack, "no_accumulation") and arguments["pp"] == 1:
        # a row may state the batch per chip, which tp chips share
        arguments["mbs"] = max(gbs // arguments["dp"], 1)
    for name in ("mbs", "recompute"):
        if name not in arguments:
            cells.assume(name)
    sizes = [arguments["mbs"]] if "mbs" in arguments else list(_micro_batches(arguments, gbs, stack))
    kinds = [arguments["recompute"]] if "recompute" in arguments else list(_recompute_kinds(model))
    # no recompute with large micro-batches first, then more recompute with the smallest
    choices = [(kinds[0], size) for size in sizes] + [(kind, sizes[-1]) for kind in kinds[1:]]
    for kind, mbs in choices:
        every = {} if kind == "full" else {"recompute_every": 1}  # only full recompute may skip layers
        plan = Plan(**arguments | {"mbs": mbs, "recompute": kind} | every)
        if len(choices) == 1 or _fits(plan, model, system, gbs, stack):
            break
    return plan


def _micro_batches(arguments: dict[str, Any], gbs: int, stack: str) -> Iterator[int]:
    """Yield the micro-batches to try, the largest first."""
    share = max(gbs // arguments["dp"], 1)
    if follows(stack, "no_accumulation"):
        yield share
    elif arguments["pp"] > 1:
        micro_batches = arguments["pp"] if follows(stack, "a_microbatch_per_stage") else share
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
    try:  # some runs joined several machines
        memory = estimate(model, replace(system, gpus=None), plan, gbs=gbs, assumptions=stack).memory_bytes
    except InputError:
        return False
    return bool(memory <= MEMORY_SLACK * system.accelerator.hbm_bytes)
