"""What is recomputed before backward: whole modules, or every second matrix product (torchtitan)."""

from typing import Final

from traincast.core import Column, replace
from traincast.model import Kind
from traincast.operations.operation import Operation
from traincast.operations.sharding import Sharding

NORMS_OF_PRE_NORM_LAYER: Final = 2  # a layer with more of them has norms after its blocks as well

# Modules after attention whose recomputation needs the sum of the layer's input and attention's result.
RESTORE_RESIDUAL: Final = frozenset({"attention", "norms", "mlp"})


def apply_recompute(op: Operation, sharding: Sharding, kind: Kind) -> Operation:
    """Return the operation as the plan recomputes it."""
    modules = sharding.plan.recomputed
    if "per-op" in modules and "full" not in modules:
        return _selective_per_op(op, sharding, kind)
    if op.module in modules or "full" in modules:
        op = replace(op, recompute=1.0, output_unused=_is_output_unused(op, sharding))
    if op.recomputed_with in modules:  # another module's recomputation restores its activations
        return _not_saved(op)
    if "attention" in modules and "full" not in modules:
        return _between_named_tensors(op, sharding)
    return op


def _not_saved(op: Operation) -> Operation:
    """Return an operation whose activations are recomputed."""
    return replace(op, saved_bytes=0 * op.saved_bytes, recomputed_bytes=op.saved_bytes)


def _between_named_tensors(op: Operation, sharding: Sharding) -> Operation:
    """Return an operation where JAX keeps the tensors that a policy names, and recomputes all between them.

    With queries, keys and values (MaxText, layers/decoders.py, get_remat_policy: save_qkv_proj) attention is
    run again, then its projection and what reads the sum of it and the layer's input. Where the projection's
    result is kept as well (save_dot_except_mlp) that sum is restored from it, and counts in its place.
    """
    kept = sharding.assumptions.memory.kept_beside
    if kept == "inputs":
        return op
    if op.role == "output projection":
        op = _not_saved(op)
    if kept == "nothing" and sharding.plan.recomputed >= RESTORE_RESIDUAL:
        if op.role == "output projection":
            return replace(op, recompute=1.0)
        if op.module == "norms" and not op.saves_layer_input:
            return _not_saved(op)
    return op


def _is_output_unused(op: Operation, sharding: Sharding) -> bool:
    """Return whether software leaves out an operation that only makes the layer's output.

    XLA removes it as dead code; PyTorch's checkpoints that are not reentrant stop early, once backward has
    all it needs (since 2.1, torch.utils.checkpoint.set_checkpoint_early_stop). Of a gated MLP with 3.5 times
    the width that is a quarter of a layer's products. A norm after the block needs its result.
    """
    is_pre_norm = sharding.model.norms <= NORMS_OF_PRE_NORM_LAYER
    return op.only_makes_output and is_pre_norm and not sharding.assumptions.memory.recomputes_last


def _selective_per_op(op: Operation, sharding: Sharding, kind: Kind) -> Operation:
    """Recompute every second product and all elementwise work; save the other products and fused attention.

    This is torchtitan's policy of selective checkpointing per operation: of the products in the order
    queries, keys, values, output projection, gate, up and down projection it saves the first, third, and so
    on, and the input of the layer. Single operations save the last result without need; a compiled layer
    leaves it out.
    """
    model = sharding.model
    gated = sharding.model.gated
    q, k, v = model.projection_widths
    recomputed: float = 1.0
    saved: Column = op.saved_bytes if op.saves_layer_input else 0 * op.saved_bytes
    match op.role:
        case "qkv":
            recomputed = k / (q + k + v)
            # Core attention saves the queries; a gate beside them is a result of the same product.
            gate = sharding.local(q - model.heads * model.head_width)
            saved = sharding.E * sharding.tokens * gate
        case "input projection":  # the first product; its result is saved
            recomputed = 0.0
            saved = op.forward.written
        case "core attention":  # all but the keys are saved
            recomputed = 0.0
            at = sharding.heads(kind)
            saved = op.saved_bytes - sharding.E * at.rows[1] * at.q / at.l * at.lq
        case "output projection":
            saved = op.saved_bytes
        case "attention norm" if gated and sharding.assumptions.memory.saves_elementwise:
            saved = op.saved_bytes  # as much as the last product's result
        case "up projection":
            recomputed = 0.5 if gated else 0.0
        case "activation":
            # One of its inputs; the activated gate, where it is saved, is recomputed.
            saves_gate = sharding.assumptions.memory.saves_elementwise and gated
            saved = op.saved_bytes / (model.up_projections + saves_gate)
        case "down projection":
            recomputed = 0.0 if gated else 1.0
    return replace(op, recompute=recomputed, saved_bytes=saved, recomputed_bytes=op.saved_bytes - saved)
