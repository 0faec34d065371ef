"""Activations that go to the host's memory until backward: all, or those of modules."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from traincast.core import Column, Plans, offloaded_activations
from traincast.operations.operation import Operation, total

# Megatron-Core 0.19.2, transformer_config.py, offload_modules: each offloads its input.
MODULES: Final[Mapping[str, Callable[[Operation], bool]]] = {
    "attn_norm": lambda op: op.role == "attention norm",
    "qkv_linear": lambda op: op.role in ("qkv", "q_down", "kv_down"),
    "core_attn": lambda op: op.role == "core attention",
    "attn_proj": lambda op: op.role == "output projection",
    "mlp_norm": lambda op: op.saves_layer_input,
    "expert_fc1": lambda op: op.experts and op.role == "up projection",
    "moe_act": lambda op: op.role == "activation" and op.name.startswith("experts."),
}


def offloaded_bytes(operations: Iterable[Operation], plan: Plans) -> Column:
    """Return the activations that a part offloads [byte].

    All that are saved, of a fully recomputed layer its input; or those of the modules that the plan names.
    """
    chosen = offloaded_activations(plan.offload)
    modules = [MODULES[name] for name in chosen if name in MODULES]
    whole = "activations" in chosen
    moved = [op for op in operations if whole or any(has(op) for has in modules)]
    if not moved:
        return 0.0
    saved = total(op.saved_bytes for op in moved)
    if "full" not in plan.recomputed:
        return saved
    return saved - total(op.saved_bytes_within_layer for op in moved if op.recompute) / plan.recompute_every
