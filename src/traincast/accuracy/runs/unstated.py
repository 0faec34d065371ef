"""What a row of measured runs leaves open and its machine's memory decides: micro-batch and recomputation.

A pipeline of the Megatron family works on one sequence at a time; JAX does not accumulate gradients, and torchtitan cuts the batch
of a replica into as many micro-batches as a pipeline has devices (pipeline_parallel_degree, in 2024). Elsewhere people take what
fits: the largest power of two as batch that needs no recomputation; and where something must be recomputed, the cheapest kind that
fits. What fits says the model's own estimate of memory, which may be a tenth above what there is: it is no more exact than that.
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

SLACK: Final = 1.1  # estimates of memory are off by so much
MOST_MBS: Final = 1024  # sequences
NO_ACCUMULATION: Final = ("maxtext", "pax")
AS_MANY_AS_DEVICES: Final = ("torchtitan",)


def filled(cells: Cells, arguments: dict[str, Any], model: Model, system: System, gbs: int, stack: str) -> Plan:
    """The plan, with what its row leaves open.

    Parameters
    ----------
    cells : Cells
        The row; what is filled in is noted.
    arguments : dict of str to Any
        Arguments of the plan, without `mbs` or `recompute` where the row does not tell them.
    model, system : Model, System
        What ran, and where.
    gbs : int
        Global batch [sequences].
    stack : str
        Software that ran it.
    """
    if stack.startswith(NO_ACCUMULATION) and arguments["pp"] == 1:  # a row may tell the batch of a chip: tp of them share theirs
        arguments["mbs"] = max(gbs // arguments["dp"], 1)
    if "mbs" in arguments and "recompute" in arguments:
        return Plan(**arguments)
    for name in ("mbs", "recompute"):
        if name not in arguments:
            cells.assume(name)
    sizes = [arguments["mbs"]] if "mbs" in arguments else list(_batches(arguments, gbs, stack))
    kinds = [arguments["recompute"]] if "recompute" in arguments else list(_kinds(model))
    choices = [arguments | {"mbs": mbs, "recompute": kind} for kind, mbs in _ordered(kinds, sizes)]
    return next((one for one in map(_plan, choices) if _fits(one, model, system, gbs, stack)), _plan(choices[-1]))


def _plan(arguments: dict[str, Any]) -> Plan:
    """A plan; only full recomputation skips layers."""
    return Plan(**arguments | ({} if arguments["recompute"] == "full" else {"recompute_every": 1}))


def _ordered(kinds: list[str], sizes: list[int]) -> Iterator[tuple[str, int]]:
    """Choices from what is wished for most: no recomputation and a large micro-batch, then the cheapest at the smallest."""
    yield from ((kinds[0], size) for size in sizes)
    yield from ((kind, sizes[-1]) for kind in kinds[1:])


def _batches(arguments: dict[str, Any], gbs: int, stack: str) -> Iterator[int]:
    """Micro-batches to try, the largest first."""
    share = max(gbs // arguments["dp"], 1)
    if stack.startswith(NO_ACCUMULATION):
        yield share
    elif arguments["pp"] > 1:
        many = arguments["pp"] if stack.startswith(AS_MANY_AS_DEVICES) else share
        yield max(share // many, 1)
    else:
        power = 1 << (min(share, MOST_MBS).bit_length() - 1)
        while power:
            if share % power == 0:
                yield power
            power >>= 1


def _kinds(model: Model) -> Iterator[str]:
    """Kinds of recomputation, the cheapest first."""
    yield from ("none", "selective")
    if model.experts is not None:
        yield "activation+norms"
    if model.latent is not None:
        yield "activation+mla_up_proj+norms"
    yield "full"


def _fits(plan: Plan, model: Model, system: System, gbs: int, stack: str) -> bool:
    """Whether a plan fits the accelerator's memory; one that breaks a rule does not."""
    try:
        held = estimate(model, replace(system, gpus=None), plan, gbs, stack).memory_bytes  # some runs joined several machines
    except InputError:
        return False
    return bool(held <= SLACK * system.accelerator.hbm_bytes)
