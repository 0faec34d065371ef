"""Columns of the table of runs from settings of Megatron-LM and its descendants (Megatron-Core, Megatron-Bridge, NeMo)."""

import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.accuracy.logs.text import number, truth, whole_number
from traincast.launch.formats import FORMATS
from traincast.launch.megatron import SHARDING_STRATEGIES as STAGES
from traincast.launch.settings import is_off

MAPPED_COLUMNS: Final = ("layers", "hidden", "heads", "ffn", "seq", "tp", "pp", "cp", "ep", "mbs", "gbs")
NEMO_NAMES: Final = {"seq": ("sequence_length",)}  # names of NeMo
WHOLE_COLUMNS: Final = {  # column -> its names over time; the first that is set counts
    **{
        column: (*FORMATS["megatron"].table.names_of(column), *NEMO_NAMES.get(column, ()))
        for column in MAPPED_COLUMNS
    },
    "vocab": ("padded_vocab_size", "vocab_size"),  # a log contains both
    "gpus": ("world_size",),
}
SHARDING: Final = {name: str(stage) for stage, name in STAGES.items()}


def cells(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of the table of runs; None where the settings leave them open.

    Parameters
    ----------
    settings : mapping of str to Any
        Settings by name.
    """
    columns: dict[str, Any] = {
        column: next((value for value in map(whole_number, map(settings.get, names)) if value), None)
        for column, names in WHOLE_COLUMNS.items()
    }
    if not columns["gpus"]:
        nodes, devices = whole_number(settings.get("num_nodes")), whole_number(settings.get("devices"))
        columns["gpus"] = nodes * devices if nodes and devices else None
    columns |= {"cp": columns["cp"] or 1, "ep": columns["ep"] or 1, "vp": _chunks(settings, columns)}
    columns |= _attention(settings, columns)
    columns |= _experts(settings, columns)
    if "num_layers" in settings:  # a dump of all settings: others have their defaults
        columns |= _recomputed(settings, columns) | {
            "zero": _zero(settings),
            "sp": str(truth(settings.get("sequence_parallel"))),
        }
    return columns | {"mlp": _mlp(settings), "precision": _precision(settings)}


def _chunks(settings: Mapping[str, Any], columns: Mapping[str, Any]) -> int:
    """Return the model chunks of a rank."""
    if chunks := whole_number(settings.get("virtual_pipeline_model_parallel_size")):
        return chunks
    layers_per_chunk = whole_number(settings.get("num_layers_per_virtual_pipeline_stage"))
    return (
        columns["layers"] // columns["pp"] // layers_per_chunk
        if layers_per_chunk and columns["layers"] and columns["pp"]
        else 1
    )


def _attention(settings: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of heads and kernels of attention."""
    groups = whole_number(settings.get("num_query_groups"))
    grouped = truth(settings.get("group_query_attention", groups is not None))
    width, latent = whole_number(settings.get("kv_channels")), truth(settings.get("multi_latent_attention"))
    even = columns["hidden"] and columns["heads"] and columns["hidden"] == (width or 0) * columns["heads"]
    backend = str(settings.get("attention_backend", ""))
    fused = truth(settings.get("use_flash_attn")) or re.search(r"\b(flash|fused|auto)\b", backend) is not None
    fused = fused or (not backend and settings.get("transformer_impl") == "transformer_engine")
    return {
        "kv_heads": groups if grouped and groups else columns["heads"],
        "mla": str(latent),
        "moe_detail": f"head_dim={width}" if width and not even and not latent else "",
        "flash_attention": str(fused) if backend or fused or "use_flash_attn" in settings else None,
    }


def _experts(settings: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of experts, empty for dense models."""
    experts = whole_number(settings.get("num_experts")) or whole_number(settings.get("num_moe_experts"))
    if not experts:
        return {}
    ffn = whole_number(settings.get("moe_ffn_hidden_size")) or columns["ffn"]
    shared = whole_number(settings.get("moe_shared_expert_intermediate_size"))
    detail = [
        columns.get("moe_detail"),
        f"shared_ffn={shared}" if shared else "",
        "alternate layers" if str(settings.get("moe_layer_freq", "")).strip() == "2" else "",
        "MTP=1" if whole_number(settings.get("mtp_num_layers")) else "",
    ]
    return {
        "experts": experts,
        "topk": whole_number(settings.get("moe_router_topk")) or 2,  # Megatron's default
        "moe_ffn": ffn,
        "dense_layers": _dense(str(settings.get("moe_layer_freq", "1"))),
        "moe_detail": " ".join(filter(None, detail)),
    }


def _dense(frequency: str) -> int | None:
    """Return the dense layers before the first with experts, from a list such as ``([0]*3+[1]*58)`` or ``[0, 1, 1]``."""
    if repeated := re.match(r"\(?\s*\[0\]\s*\*\s*(\d+)", frequency):
        return int(repeated[1])
    listed = re.match(r"\[((?:\s*[01]\s*,?)+)\]", frequency)
    layers = re.findall("[01]", listed[1]) if listed else ["1"]
    return layers.index("1") if "1" in layers else None


def _mlp(settings: Mapping[str, Any]) -> str | None:
    """Return the kind of MLP; None where it is open."""
    activation = f"{settings.get('activation', '')} {settings.get('activation_func', '')}".lower()
    gated = truth(settings.get("gated_linear_unit"))
    if truth(settings.get("swiglu")) or "swiglu" in activation or (gated and "gelu" not in activation):
        return "swiglu"
    if gated or "geglu" in activation:
        return "geglu"
    if truth(settings.get("squared_relu")) or re.search("squared.?relu", activation):
        return "relu2"
    return "gelu" if "num_layers" in settings else None  # the default of all of them


def _precision(settings: Mapping[str, Any]) -> str | None:
    """Return the precision of matrix products; None where it is open."""
    names = f"{settings.get('precision', '')} {settings.get('mixed_precision', '')} {settings.get('params_dtype', '')}".lower()
    if settings.get("fp4") or "nvfp4" in names:
        return "nvfp4"
    if truth(settings.get("fp8")) or re.search("hybrid|e4m3", str(settings.get("fp8", ""))) or "fp8" in names:
        return "mxfp8" if "mxfp8" in f"{settings.get('fp8_recipe', '')} {names}" else "fp8"
    if truth(settings.get("bf16")) or "bf" in names:
        return "bf16"
    if truth(settings.get("fp16")) or re.search(r"16|float16", names):
        return "fp16"
    return "fp32" if re.search("32", names) or {"bf16", "fp16"} & set(settings) else None


def _zero(settings: Mapping[str, Any]) -> str:
    """Return the ZeRO stage."""
    stage = number(str(settings.get("zero_stage", "")))
    strategy = SHARDING.get(str(settings.get("data_parallel_sharding_strategy", "")))
    fsdp = [truth(settings.get(name)) for name in ("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")]
    if any(fsdp):
        return strategy if strategy and not fsdp[2] else "3"
    if truth(settings.get("use_distributed_optimizer")):
        return "1"
    return str(int(stage)) if stage in (1, 2, 3) and truth(settings.get("deepspeed")) else "0"


def _recomputed(settings: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of recompute."""
    granularity = settings.get("recompute_granularity", settings.get("activations_checkpoint_granularity"))
    if granularity is None and truth(settings.get("recompute_activations")):
        granularity = "selective"
    older = (
        settings.get("activations_checkpoint_method")
        if "activations_checkpoint_granularity" not in settings
        else None
    )
    if granularity is None and (truth(settings.get("checkpoint_activations")) or not is_off(older)):
        granularity = "full"
    if granularity not in ("selective", "full"):
        return {"recompute": "none"}
    if granularity == "selective":
        modules = re.findall(r"\w+", str(settings.get("recompute_modules", "core_attn")))
        return {
            "recompute": granularity,
            "recompute_detail": "" if modules == ["core_attn"] else f"selective:{'+'.join(modules)}",
        }
    method = settings.get("recompute_method", settings.get("activations_checkpoint_method"))
    layers = whole_number(
        settings.get("recompute_num_layers", settings.get("activations_checkpoint_num_layers"))
    )
    layers_of_chunk = (columns["layers"] or 0) / (columns["pp"] or 1) / (columns["vp"] or 1)
    if str(method) == "block" and (layers or 0) < layers_of_chunk:
        return {"recompute": "custom", "recompute_detail": f"full, on {layers or 0} layers of each chunk"}
    return {"recompute": "full"}
