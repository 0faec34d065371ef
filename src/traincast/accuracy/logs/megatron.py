"""Logs of Megatron-LM, Megatron-Core and Megatron-DeepSpeed, of Megatron-Bridge, and of NeMo."""

import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.accuracy.logs import settings
from traincast.accuracy.logs.text import number, truth, whole_number
from traincast.accuracy.logs.training_log import UNREAD, Log, LogFormat
from traincast.accuracy.runs.run import OF_MEGATRON
from traincast.core import InputError
from traincast.launch import (
    SHARDING_STRATEGIES,
    UNAMBIGUOUS_SETTINGS,
    check_training_kind,
    is_off,
    setting_names,
)

NUMBER: Final = r"[\d.,'’_\u00a0\u202f]*\d"
ITERATION: Final = (  # of Primus with the mean behind a slash
    rf"iteration\s+(?P<at>{NUMBER})\s*/\s*[\d.,]+\s*\|"
    rf".*?elapsed time per iteration \((?:ms\):\s*(?P<ms>{NUMBER})(?:/[\d.]+)?|s\):\s*(?P<s>{NUMBER}))\s*\|"
)
NEMO: Final = (  # a line, or a progress bar
    r"(?:iteration (?P<at>\d{1,12})/\d+ \||\| (?P<at2>\d{1,12})/\d+ \[)"
    rf".*?train_step_timing in s[:=]\s*(?P<s>{NUMBER})\s*(?=[|,\]\s]|$)"
)
BRIDGE: Final = rf"Step Time\s*:\s*(?P<s>{NUMBER})\s*s\b"
MEMORY: Final = re.compile(rf"memory \(([MG])B\).*?max[ -]allocated(?:-gigabytes)?:\s*({NUMBER})")
GIB: Final = {"M": 1 / 1024, "G": 1e9 / 2**30}  # Megatron-LM counts MiB, Megatron-Bridge 10^9 bytes
WHOLE_COLUMNS: Final = {  # column -> its names over time; the first that is set counts
    **{column: setting_names("megatron", column) for column in OF_MEGATRON},
    "vocab": ("padded_vocab_size", "vocab_size"),  # a log contains both
    "gpus": ("world_size",),
    "num_nodes": ("num_nodes",),
    "devices": ("devices",),
}
NEMO_SEQ: Final = "sequence_length"
SHARDING: Final = {name: str(stage) for stage, name in SHARDING_STRATEGIES.items()}
DEFAULT_TOPK: Final = 2
UNSIZED: Final = {"an encoder-decoder model": "decoder_", "a model with Mamba or hybrid layers": "hybrid"}


def columns(log: Log) -> dict[str, Any]:
    """Return columns from the settings in the log or its configuration file, and from its other lines."""
    arguments = settings.flat(log.config) | settings.settings_in_lines(_arguments(log.header))
    if "distributed_fused_adam" in log.text or "distributed_fused_adam" in str(log.config):
        arguments["use_distributed_optimizer"] = True  # named so by NeMo
    unambiguous = {name: arguments[name] for name in UNAMBIGUOUS_SETTINGS if name in arguments}
    check_training_kind((), unambiguous, log.file)
    for title, name in UNSIZED.items():
        if any(not is_off(value) for setting, value in unambiguous.items() if name in setting):
            raise InputError(log.file, [f"is a launch of {title}, whose logs are not supported"])
    result = {name: value for name, value in _from_settings(arguments).items() if value is not None}
    for line in log.header:
        if padded := re.search(r"padded vocab .*new size: (\d{1,12})\b", line):
            result["vocab"] = int(padded[1])
        if world := re.search(r"using world size: (\d{1,12})\b", line):
            result["gpus"] = int(world[1])
    memories = [match for line in log.header if (match := MEMORY.search(line))]
    fullest = max(((number(match[2]) or 0.0) * GIB[match[1]] for match in memories), default=0.0)
    stated_gbs = log.run.steps[-1].gbs if log.run.steps else None
    return result | {
        "stack": _stack(log.text, arguments),
        "gbs": stated_gbs or result.get("gbs"),
        "memory_gb_published": round(fullest, 3) or None,
    }


def _arguments(header: list[str]) -> list[str]:
    """Return the lines of the block of arguments; all lines where there is none or it does not end."""
    text = "\n".join(header)
    dump = re.search(r"-{3,} arguments -{3,}.*?-{3,} end of arguments -{3,}", text, re.DOTALL)
    return dump[0].splitlines() if dump else header


def _stack(text: str, arguments: Mapping[str, object]) -> str:
    if truth(arguments.get("deepspeed")):
        return "Megatron-DeepSpeed"
    if "train_step_timing" in text:
        return "NeMo"
    if re.search(BRIDGE, text) or "megatron.bridge" in text:
        return "Megatron-Bridge"
    return "Megatron-Core" if "transformer_impl" in arguments else "Megatron-LM"  # an argument of the core


def _from_settings(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return columns of the table of runs; None where the settings leave them open."""
    result: dict[str, Any] = {
        column: next((value for name in names if (value := whole_number(arguments.get(name)))), None)
        for column, names in WHOLE_COLUMNS.items()
    }
    nodes = result.pop("num_nodes")
    devices = result.pop("devices")
    result["gpus"] = result["gpus"] or (nodes * devices if nodes and devices else None)
    result["seq"] = result["seq"] or whole_number(arguments.get(NEMO_SEQ))
    result |= {"cp": result["cp"] or 1, "ep": result["ep"] or 1, "vp": _chunks(arguments, result)}
    result |= _attention(arguments, result)
    result |= _experts(arguments, result)
    if "num_layers" in arguments:  # a dump of all settings: others have their defaults
        result |= _recompute_columns(arguments, result)
        result |= {"zero": _zero(arguments), "sp": str(truth(arguments.get("sequence_parallel")))}
    return result | {"mlp": _mlp(arguments), "precision": _precision(arguments)}


def _chunks(arguments: Mapping[str, Any], columns: Mapping[str, Any]) -> int:
    if chunks := whole_number(arguments.get("virtual_pipeline_model_parallel_size")):
        return chunks
    layers_per_chunk = whole_number(arguments.get("num_layers_per_virtual_pipeline_stage"))
    layers = columns["layers"]
    pp = columns["pp"]
    return int(layers // pp // layers_per_chunk) if layers_per_chunk and layers and pp else 1


def _attention(arguments: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    groups = whole_number(arguments.get("num_query_groups"))
    grouped = truth(arguments.get("group_query_attention", groups is not None))
    width = whole_number(arguments.get("kv_channels"))
    latent = truth(arguments.get("multi_latent_attention"))
    even = columns["hidden"] and columns["heads"] and columns["hidden"] == (width or 0) * columns["heads"]
    backend = str(arguments.get("attention_backend", ""))
    fused = truth(arguments.get("use_flash_attn")) or bool(re.search(r"\b(flash|fused|auto)\b", backend))
    fused = fused or (not backend and arguments.get("transformer_impl") == "transformer_engine")
    return {
        "kv_heads": groups if grouped and groups else columns["heads"],
        "mla": str(latent),
        "head_dim": width if width and not even and not latent else None,
        "flash_attention": str(fused) if backend or fused or "use_flash_attn" in arguments else None,
    }


def _experts(arguments: Mapping[str, object], columns: Mapping[str, object]) -> dict[str, object]:

    def whole(name: str) -> int | None:
        return whole_number(arguments.get(name))

    experts = whole("num_experts") or whole("num_moe_experts")
    if not experts:
        return {}
    shared = whole("moe_shared_expert_intermediate_size")
    frequency = str(arguments.get("moe_layer_freq", "1"))
    return {
        "experts": experts,
        "topk": whole("moe_router_topk") or DEFAULT_TOPK,
        "moe_ffn": whole("moe_ffn_hidden_size") or columns["ffn"],
        "dense_layers": _dense(frequency),
        "shared_ffn": shared,
        "moe_every": 2 if frequency.strip() == "2" else None,
        "mtp": whole("mtp_num_layers"),
    }


def _dense(frequency: str) -> int | None:
    """Return the dense layers before the first with experts, from ``([0]*3+[1]*58)`` or ``[0, 1, 1]``."""
    if repeated := re.match(r"\(?\s*\[0\]\s*\*\s*(\d+)", frequency):
        return int(repeated[1])
    listed = re.match(r"\[((?:\s*[01]\s*,?)+)\]", frequency)
    layers = re.findall("[01]", listed[1]) if listed else ["1"]
    return layers.index("1") if "1" in layers else None


def _mlp(arguments: Mapping[str, object]) -> str | None:
    activation = f"{arguments.get('activation', '')} {arguments.get('activation_func', '')}".lower()
    gated = truth(arguments.get("gated_linear_unit"))
    if truth(arguments.get("swiglu")) or "swiglu" in activation or (gated and "gelu" not in activation):
        return "swiglu"
    if gated or "geglu" in activation:
        return "geglu"
    if truth(arguments.get("squared_relu")) or re.search("squared.?relu", activation):
        return "relu2"
    return "gelu" if "num_layers" in arguments else None  # the default of all of them


def _precision(arguments: Mapping[str, object]) -> str | None:
    stated = [arguments.get(name, "") for name in ("precision", "mixed_precision", "params_dtype")]
    names = " ".join(map(str, stated)).lower()
    fp8 = str(arguments.get("fp8", ""))
    if arguments.get("fp4") or "nvfp4" in names:
        return "nvfp4"
    if truth(fp8) or re.search("hybrid|e4m3", fp8) or "fp8" in names:
        return "mxfp8" if "mxfp8" in f"{arguments.get('fp8_recipe', '')} {names}" else "fp8"
    if truth(arguments.get("bf16")) or "bf" in names:
        return "bf16"
    if truth(arguments.get("fp16")) or "16" in names:
        return "fp16"
    return "fp32" if "32" in names or {"bf16", "fp16"} & set(arguments) else None


def _zero(arguments: Mapping[str, object]) -> str:
    if truth(arguments.get("use_torch_fsdp2")):
        return "3"
    if truth(arguments.get("use_megatron_fsdp")) or truth(arguments.get("use_custom_fsdp")):
        return SHARDING.get(str(arguments.get("data_parallel_sharding_strategy", ""))) or "3"
    if truth(arguments.get("use_distributed_optimizer")):
        return "1"
    stage = number(str(arguments.get("zero_stage", "")))
    return str(int(stage)) if stage in (1, 2, 3) and truth(arguments.get("deepspeed")) else "0"


def _recompute_columns(arguments: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of recompute, by the names of today or those of 2021 (``activations_checkpoint_*``)."""

    def setting(name: str) -> object:
        return arguments.get(f"recompute_{name}", arguments.get(f"activations_checkpoint_{name}"))

    granularity = setting("granularity")
    if granularity is None and truth(arguments.get("recompute_activations")):
        granularity = "selective"
    # Megatron-LM v2.4 to v3.0: a method without a granularity is of whole layers.
    by_method = "activations_checkpoint_granularity" not in arguments
    older = arguments.get("activations_checkpoint_method") if by_method else None
    if granularity is None and (truth(arguments.get("checkpoint_activations")) or not is_off(older)):
        granularity = "full"
    if granularity == "selective":
        modules = re.findall(r"\w+", str(arguments.get("recompute_modules", "core_attn")))
        return {"recompute": "selective" if modules == ["core_attn"] else "+".join(modules)}
    if granularity != "full":
        return {"recompute": "none"}
    layers = whole_number(setting("num_layers")) or 0
    layers_of_chunk = (columns["layers"] or 0) / (columns["pp"] or 1) / (columns["vp"] or 1)
    if str(setting("method")) == "block" and layers < layers_of_chunk:
        return {"recompute": "custom", UNREAD: f"full, on {layers} layers of each chunk"}
    return {"recompute": "full"}


FORMAT: Final = LogFormat(
    signs=r"elapsed time per iteration \((?:ms|s)\):|train_step_timing in s[:=]|Step Time\s*:\s*[\d.]+\s*s\b",
    starts=r"-{3,} arguments -{3,}|using world size: \d|Experiments will be logged at",
    progress=(ITERATION, NEMO, BRIDGE),
    batch=r"global[ _]batch[ _]size:\s*(\d{1,12})\s*\|",
    columns=columns,
)
