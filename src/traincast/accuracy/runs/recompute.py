"""What a row of measured runs recomputes, in its source's words, as modules of a plan."""

import re
from typing import Any, Final

from traincast.accuracy.runs.row import Cells
from traincast.core.plan_choices import not_allowed

POLICIES: Final = (  # what a source calls it, what is made again in backward; the first that fits
    (r"per-op", "per-op"),  # torchtitan: every second product is made again, and what is elementwise
    (r"some blocks", "full"),  # of a share of the layers
    (r"block (\d+) layer", "full"),
    (r"except_mlp", "mlp+norms"),  # MaxText save_dot_with_context_except_mlp
    (r"minimal_flash", "activation+norms"),  # results of all products and of attention are kept
    (r"save.dots|minimal|expensive activations kept", "activation+attention+norms"),  # results of all products are kept
    (r"save.{0,5}qkv.{0,3}out_?-?proj", "attention+mlp+norms"),  # the MLP's first product is made again, and attention
    (r"decoder_layer_input offloaded", "full"),
    (r"qkv", "attention+mlp+norms"),  # the output projection as well, for which there is no word: 1/25 of a layer's products
)
NAMES: Final = {  # Megatron-Core's names of modules
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
RECIPES: Final = (  # framework, model, accelerator, what the recipe makes again
    # dgxc-benchmarking v25.05, deepseek_v3/pretraining/launch.sh: of the second core_attn
    (r"^NeMo/", r"DeepSeek-?V3", r"^h100", {"recompute": "mla_up_proj"}),
    (r"^NeMo/", r"DeepSeek-?V3", r"^gb200", {"recompute": "attention", "attention": "unfused"}),
)
SHARE_OF_BLOCKS: Final = 2  # IBM's "some blocks": every second; 0.43 of the layers fits its published runs


def recomputed(cells: Cells, layers_of_stage: float) -> dict[str, Any] | None:
    """Recomputation of a row.

    Parameters
    ----------
    cells : Cells
        A row: `recompute` and `recompute_detail`.
    layers_of_stage : float
        Layers of a pipeline stage, of which a source may recompute so many.

    Returns
    -------
    dict or None
        `recompute` and, for a share of the layers, `recompute_every`; None where the row does not say (a problem is noted where it
        says what cannot be represented).
    """
    kind, detail = cells.text("recompute").lower(), cells.text("recompute_detail")
    if kind == "none":
        return {"recompute": "none"}
    if kind == "selective" and cells.says("torchtitan", "stack") and detail in ("", kind):
        detail = "per-op"
    for pattern, modules in POLICIES:
        if found := re.search(pattern, detail, re.IGNORECASE):
            return {"recompute": modules, "recompute_every": _every(found, layers_of_stage)}
    if named := [word for name, word in NAMES.items() if re.search(rf"\b{name}\b", detail, re.IGNORECASE)]:
        return {"recompute": "+".join(sorted(set(named)))}
    if kind in ("selective", "full"):
        return {"recompute": kind}
    if not kind:
        return _remat(cells) or _recipe(cells)
    if not not_allowed("recompute", kind):  # a plan's own words
        return {"recompute": kind}
    cells.problem(f"recompute {kind}: {detail or 'no kind that is known, and not told how'}")
    return {"recompute": "none"}


def _recipe(cells: Cells) -> dict[str, Any] | None:
    """What the public recipe of a model recomputes, where the row does not say."""
    for framework, model, gpu, chosen in RECIPES:
        if cells.says(framework, "stack") and cells.says(model, "model") and cells.says(gpu, "gpu"):
            cells.assume("recompute")
            return dict(chosen)
    return None


def _every(found: re.Match[str], layers_of_stage: float) -> int:
    """Every how many layers one is recomputed."""
    if found.re.groups:  # block: so many layers of every stage
        return max(round(layers_of_stage / max(int(found[1]), 1)), 1)
    return SHARE_OF_BLOCKS if found[0].lower() == "some blocks" else 1


def _remat(cells: Cells) -> dict[str, Any] | None:
    """The policy that notes tell for models of some sizes, as in "5B: save-dots, 175B: save qkv/out-proj"."""
    size = re.search(r"\d+(?:\.\d+)?[BM]\b", cells.text("model"))
    if size is None:
        return None
    told = re.search(rf"\b{re.escape(size[0])}: ([^,;)]*)", cells.text("notes"))
    if told is None:
        return None
    cells.assume("recompute")
    return next(({"recompute": modules} for pattern, modules in POLICIES if re.search(pattern, told[1], re.IGNORECASE)), None)
