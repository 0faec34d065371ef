"""What the settings of Megatron-LM and of its descendants (Megatron-Core, Megatron-Bridge, NeMo) say in the table of runs."""

import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.accuracy.logs.text import number, truth, whole
from traincast.launch.mapping import is_off, names_of
from traincast.launch.megatron.plan_settings import SHARDING as STAGES
from traincast.launch.megatron.table import ROWS

FACTS: Final = ("layers", "hidden", "heads", "ffn", "seq", "tp", "pp", "cp", "ep", "mbs", "gbs")
ELSEWHERE: Final = {"seq": ("sequence_length",)}  # names of NeMo
WHOLE: Final = {  # column -> names it has had; the first that is set
    **{column: (*names_of(ROWS, column), *ELSEWHERE.get(column, ())) for column in FACTS},
    "vocab": ("padded_vocab_size", "vocab_size"),  # a log says both
    "gpus": ("world_size",),
}
SHARDING: Final = {name: str(stage) for stage, name in STAGES.items()}


def cells(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the table of runs; None where the settings leave them open.

    Parameters
    ----------
    settings : mapping of str to Any
        Settings by name.
    """
    found: dict[str, Any] = {
        column: next((one for one in map(whole, map(settings.get, names)) if one), None) for column, names in WHOLE.items()
    }
    if not found["gpus"]:
        nodes, devices = whole(settings.get("num_nodes")), whole(settings.get("devices"))
        found["gpus"] = nodes * devices if nodes and devices else None
    found |= {"cp": found["cp"] or 1, "ep": found["ep"] or 1, "vp": _chunks(settings, found)}
    found |= _attention(settings, found)
    found |= _experts(settings, found)
    if "num_layers" in settings:  # a dump of all settings: what is not set has its default
        found |= _recomputed(settings, found) | {"zero": _zero(settings), "sp": str(truth(settings.get("sequence_parallel")))}
    return found | {"mlp": _mlp(settings), "precision": _precision(settings)}


def _chunks(settings: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    """Model chunks of a rank."""
    if told := whole(settings.get("virtual_pipeline_model_parallel_size")):
        return told
    per = whole(settings.get("num_layers_per_virtual_pipeline_stage"))
    return found["layers"] // found["pp"] // per if per and found["layers"] and found["pp"] else 1


def _attention(settings: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Heads and kernels of attention."""
    groups = whole(settings.get("num_query_groups"))
    grouped = truth(settings.get("group_query_attention", groups is not None))
    width, latent = whole(settings.get("kv_channels")), truth(settings.get("multi_latent_attention"))
    even = found["hidden"] and found["heads"] and found["hidden"] == (width or 0) * found["heads"]
    backend = str(settings.get("attention_backend", ""))
    fused = truth(settings.get("use_flash_attn")) or re.search(r"\b(flash|fused|auto)\b", backend) is not None
    fused = fused or (not backend and settings.get("transformer_impl") == "transformer_engine")
    return {
        "kv_heads": groups if grouped and groups else found["heads"],
        "mla": str(latent),
        "moe_detail": f"head_dim={width}" if width and not even and not latent else "",
        "flash_attention": str(fused) if backend or fused or "use_flash_attn" in settings else None,
    }


def _experts(settings: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Experts, if there are any."""
    experts = whole(settings.get("num_experts")) or whole(settings.get("num_moe_experts"))
    if not experts:
        return {}
    ffn = whole(settings.get("moe_ffn_hidden_size")) or found["ffn"]
    shared = whole(settings.get("moe_shared_expert_intermediate_size"))
    detail = [
        found.get("moe_detail"),
        f"shared_ffn={shared}" if shared else "",
        "alternate layers" if str(settings.get("moe_layer_freq", "")).strip() == "2" else "",
        "MTP=1" if whole(settings.get("mtp_num_layers")) else "",
    ]
    return {
        "experts": experts,
        "topk": whole(settings.get("moe_router_topk")) or 2,  # Megatron's default
        "moe_ffn": ffn,
        "dense_layers": _dense(str(settings.get("moe_layer_freq", "1"))),
        "moe_detail": " ".join(filter(None, detail)),
    }


def _dense(frequency: str) -> int | None:
    """Dense layers before the first with experts, out of a list such as ``([0]*3+[1]*58)`` or ``[0, 1, 1]``."""
    if repeated := re.match(r"\(?\s*\[0\]\s*\*\s*(\d+)", frequency):
        return int(repeated[1])
    listed = re.match(r"\[((?:\s*[01]\s*,?)+)\]", frequency)
    layers = re.findall("[01]", listed[1]) if listed else ["1"]
    return layers.index("1") if "1" in layers else None


def _mlp(settings: Mapping[str, Any]) -> str | None:
    """The feed-forward network."""
    told = f"{settings.get('activation', '')} {settings.get('activation_func', '')}".lower()
    gated = truth(settings.get("gated_linear_unit"))
    if truth(settings.get("swiglu")) or "swiglu" in told or (gated and "gelu" not in told):
        return "swiglu"
    if gated or "geglu" in told:
        return "geglu"
    if truth(settings.get("squared_relu")) or re.search("squared.?relu", told):
        return "relu2"
    return "gelu" if "num_layers" in settings else None  # the default of all of them


def _precision(settings: Mapping[str, Any]) -> str | None:
    """What products are computed in."""
    told = f"{settings.get('precision', '')} {settings.get('mixed_precision', '')} {settings.get('params_dtype', '')}".lower()
    if settings.get("fp4") or "nvfp4" in told:
        return "nvfp4"
    if truth(settings.get("fp8")) or re.search("hybrid|e4m3", str(settings.get("fp8", ""))) or "fp8" in told:
        return "mxfp8" if "mxfp8" in f"{settings.get('fp8_recipe', '')} {told}" else "fp8"
    if truth(settings.get("bf16")) or "bf" in told:
        return "bf16"
    if truth(settings.get("fp16")) or re.search(r"16|float16", told):
        return "fp16"
    return "fp32" if re.search("32", told) or {"bf16", "fp16"} & set(settings) else None


def _zero(settings: Mapping[str, Any]) -> str:
    """What data-parallel ranks share among them."""
    stage = number(str(settings.get("zero_stage", "")))
    strategy = SHARDING.get(str(settings.get("data_parallel_sharding_strategy", "")))
    fully = [truth(settings.get(name)) for name in ("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")]
    if any(fully):
        return strategy if strategy and not fully[2] else "3"
    if truth(settings.get("use_distributed_optimizer")):
        return "1"
    return str(int(stage)) if stage in (1, 2, 3) and truth(settings.get("deepspeed")) else "0"


def _recomputed(settings: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What is computed again in backward."""
    told = settings.get("recompute_granularity", settings.get("activations_checkpoint_granularity"))
    if told is None and truth(settings.get("recompute_activations")):
        told = "selective"
    older = settings.get("activations_checkpoint_method") if "activations_checkpoint_granularity" not in settings else None
    if told is None and (truth(settings.get("checkpoint_activations")) or not is_off(older)):
        told = "full"
    if told not in ("selective", "full"):
        return {"recompute": "none"}
    if told == "selective":
        modules = re.findall(r"\w+", str(settings.get("recompute_modules", "core_attn")))
        return {"recompute": told, "recompute_detail": "" if modules == ["core_attn"] else f"selective:{'+'.join(modules)}"}
    method = settings.get("recompute_method", settings.get("activations_checkpoint_method"))
    some = whole(settings.get("recompute_num_layers", settings.get("activations_checkpoint_num_layers")))
    held = (found["layers"] or 0) / (found["pp"] or 1) / (found["vp"] or 1)
    if str(method) == "block" and (some or 0) < held:
        return {"recompute": "custom", "recompute_detail": f"full, on {some or 0} layers of each chunk"}
    return {"recompute": "full"}
