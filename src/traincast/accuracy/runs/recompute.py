"""Recompute of a row of measured runs, from the words of its source to the modules of a plan."""

import re
from typing import Any, Final

from traincast.accuracy.runs.row import Cells
from traincast.core.plan_choices import choice_problems

POLICIES: Final = (  # pattern of the source, what is recomputed in backward; the first match counts
    (
        r"per-op",
        "per-op",
    ),  # torchtitan: every second matrix product is recomputed, and elementwise operations
    (r"some blocks", "full"),  # of a share of the layers
    (r"block (\d+) layer", "full"),
    (r"except_mlp", "mlp+norms"),  # MaxText save_dot_with_context_except_mlp
    (r"minimal_flash", "activation+norms"),  # outputs of all products and of attention are saved
    (
        r"save.dots|minimal|expensive activations kept",
        "activation+attention+norms",
    ),  # outputs of all products are saved
    (
        r"save.{0,5}qkv.{0,3}out_?-?proj",
        "attention+mlp+norms",
    ),  # the MLP's first product is recomputed, and attention
    (r"decoder_layer_input offloaded", "full"),
    (
        r"qkv",
        "attention+mlp+norms",
    ),  # and the output projection, which no module covers: 1/25 of a layer's products
)
MODULE_NAMES: Final = {  # Megatron-Core's names of modules
    "core_attn": "attention",
    "layernorm": "norms",
    "rmsnorm": "norms",
    "moe_act": "activation",
    "activation": "activation",
    "mla_up_proj": "mla_up_proj",
    "mla up-proj": "mla_up_proj",
    "mlp": "mlp",
    "moe": "experts",
}
RECIPES: Final = (  # framework, model, accelerator, what the recipe recomputes
    # dgxc-benchmarking v25.05, deepseek_v3/pretraining/launch.sh: of the second core_attn
    (r"^NeMo/", r"DeepSeek-?V3", r"^h100", {"recompute": "mla_up_proj"}),
    (r"^NeMo/", r"DeepSeek-?V3", r"^gb200", {"recompute": "attention", "attention": "unfused"}),
)
EVERY_SOME_BLOCKS: Final = 2  # IBM's "some blocks": every second; 0.43 of the layers fits its published runs


def recomputed(cells: Cells, layers_of_stage: float) -> dict[str, Any] | None:
    """Return the recompute of a row.

    Parameters
    ----------
    cells : Cells
        A row: `recompute` and `recompute_detail`.
    layers_of_stage : float
        Layers of a pipeline stage; a source may recompute a number of them.

    Returns
    -------
    dict or None
        `recompute` and, for a share of the layers, `recompute_every`; None where the row does not state it (a problem is noted
        where it cannot be represented).
    """
    kind, detail = cells.text("recompute").lower(), cells.text("recompute_detail")
    if kind == "none":
        return {"recompute": "none"}
    if kind == "selective" and cells.says("torchtitan", "stack") and detail in ("", kind):
        detail = "per-op"
    for pattern, modules in POLICIES:
        if match := re.search(pattern, detail, re.IGNORECASE):
            return {"recompute": modules, "recompute_every": _recompute_every(match, layers_of_stage)}
    if modules_named := [
        word for name, word in MODULE_NAMES.items() if re.search(rf"\b{name}\b", detail, re.IGNORECASE)
    ]:
        return {"recompute": "+".join(sorted(set(modules_named)))}
    if kind in ("selective", "full"):
        return {"recompute": kind}
    if not kind:
        return _policy_in_notes(cells) or _recipe_choice(cells)
    if not choice_problems("recompute", kind):  # modules as a plan names them
        return {"recompute": kind}
    cells.problem(f"recompute {kind}: {detail or 'no kind that is known, and not told how'}")
    return {"recompute": "none"}


def _recipe_choice(cells: Cells) -> dict[str, Any] | None:
    """Return what the public recipe of a model recomputes; None without."""
    for framework, model, gpu, chosen in RECIPES:
        if cells.says(framework, "stack") and cells.says(model, "model") and cells.says(gpu, "gpu"):
            cells.assume("recompute")
            return dict(chosen)
    return None


def _recompute_every(match: re.Match[str], layers_of_stage: float) -> int:
    """Return the interval of recomputed layers."""
    if match.re.groups:  # block: a number of layers of every stage
        return max(round(layers_of_stage / max(int(match[1]), 1)), 1)
    return EVERY_SOME_BLOCKS if match[0].lower() == "some blocks" else 1


def _policy_in_notes(cells: Cells) -> dict[str, Any] | None:
    """Return the policy that notes state by model size, as in "5B: save-dots, 175B: save qkv/out-proj"; None without."""
    size = re.search(r"\d+(?:\.\d+)?[BM]\b", cells.text("model"))
    if size is None:
        return None
    policy = re.search(rf"\b{re.escape(size[0])}: ([^,;)]*)", cells.text("notes"))
    if policy is None:
        return None
    cells.assume("recompute")
    return next(
        (
            {"recompute": modules}
            for pattern, modules in POLICIES
            if re.search(pattern, policy[1], re.IGNORECASE)
        ),
        None,
    )
