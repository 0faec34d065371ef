"""What backward makes again instead of keeping it: modules, or every second product (torchtitan, selective checkpointing)."""

from dataclasses import replace
from typing import Final

from traincast.core.model import Model
from traincast.core.quantities import Column
from traincast.operations.operation import Operation
from traincast.operations.sharding import Sharding

PRE_NORMS: Final = 2  # norms of a layer that has none after its blocks
LAST: Final = ("mlp.fc2", "mlp.fc2_bias", "mlp.residual")  # what a layer ends with: backward needs its operands, not its result


def apply_recompute(op: Operation, model: Model, rank: Sharding, modules: frozenset[str]) -> Operation:
    """The operation as the plan recomputes it.

    Parameters
    ----------
    op : Operation
        An operation of a layer.
    model : Model
        The transformer.
    rank : Sharding
        What one rank holds.
    modules : frozenset of str
        What is made again: modules, ``"per-op"``, or ``"full"`` for all.

    Returns
    -------
    Operation
        With the share of its forward pass that is made again, what it keeps, and what it does not.
    """
    if "per-op" in modules and "full" not in modules:
        return _selective_per_op(op, model, rank)
    if op.module in modules or "full" in modules:  # it may be one of them, and what it saves may be made by one
        op = replace(op, recompute=1.0, unread=_without_unused_output(op, model, rank))
    return replace(op, saved_bytes=0 * op.saved_bytes, recomputed_bytes=op.saved_bytes) if op.recomputed_with in modules else op


def _without_unused_output(op: Operation, model: Model, rank: Sharding) -> bool:
    """Whether software leaves out what only makes the layer's result, which the next layer keeps as its input.

    XLA removes it as dead code; PyTorch's checkpoints that are not reentrant stop early, once all that backward needs is there
    (since 2.1, torch.utils.checkpoint.set_checkpoint_early_stop). Of a gated MLP with 3.5 times the width that is a quarter of a
    layer's products. A norm after the block needs its result.
    """
    return not rank.assumptions.remakes_last and op.name in LAST and model.norms == PRE_NORMS


def _selective_per_op(op: Operation, model: Model, rank: Sharding) -> Operation:
    """Every second product and all that is elementwise is made again; results of the others and of fused attention are kept.

    So does torchtitan (policy of its selective checkpointing per operation): of products in the order queries, keys, values, output
    projection, gate, up and down projection it keeps the first, third, and so on, and the input of the layer. The last result is
    kept without being needed, in the place of the state between attention and MLP.
    """
    what = op.name.rpartition(".")[2]
    gated = model.up_projections > 1
    q, k, v = model.heads * model.head_width, model.groups * model.head_width, model.groups * model.value_width
    again = {"qkv": k / (q + k + v), "fc1": 0.5 if gated else 0.0, "fc2": 0.0 if gated else 1.0, "flash": 0.0}.get(what, 1.0)
    kept: Column = 0 * op.saved_bytes
    if what == "proj" or op.passed_on or (what == "norm" and gated):  # the result of attention, the layer's input, its last result
        kept = op.saved_bytes
    elif what == model.mlp:
        kept = op.saved_bytes / model.up_projections
    elif what == "flash":  # all but the keys
        at = rank.heads()
        kept = op.saved_bytes - rank.E * at.rows[1] * at.q / at.l * at.lq
    return replace(op, recompute=again, saved_bytes=kept, recomputed_bytes=op.saved_bytes - kept)
