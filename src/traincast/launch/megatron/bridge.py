"""Megatron-Bridge's overrides: Megatron-LM's settings under the names of its configuration.

Names follow its migration guide from Megatron-LM, precision presets training/mixed_precision.py.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.launch.mapping import Settings
from traincast.launch.pipeline_layout import marked_layers
from traincast.launch.read_bash import command_words

SOURCE: Final = (
    "NVIDIA-NeMo/Megatron-Bridge, docs/megatron-lm-to-megatron-bridge.md (commit 167ba2a) and "
    "src/megatron/bridge/training/mixed_precision.py (0509780), looked at on 2026-11-20"
)
NAMES: Final[Mapping[str, str]] = {  # Megatron-LM -> Bridge, except for `model.` and the same name
    "micro_batch_size": "train.micro_batch_size",
    "global_batch_size": "train.global_batch_size",
    "num_experts": "model.num_moe_experts",
    "use_distributed_optimizer": "ddp.use_distributed_optimizer",
    "use_megatron_fsdp": "dist.use_megatron_fsdp",
    "data_parallel_sharding_strategy": "ddp.data_parallel_sharding_strategy",
    "num_distributed_optimizer_instances": "ddp.num_distributed_optimizer_instances",
    "use_tp_pp_dp_mapping": "dist.use_tp_pp_dp_mapping",
    "ckpt_format": "checkpoint.ckpt_format",
    "tp_comm_overlap": "comm_overlap.tp_comm_overlap",
    "overlap_moe_expert_parallel_comm": "comm_overlap.overlap_moe_expert_parallel_comm",
    "overlap_grad_reduce": "ddp.overlap_grad_reduce",
    "overlap_param_gather": "ddp.overlap_param_gather",
    "optimizer": "optimizer.optimizer",
    "optimizer_cpu_offload": "optimizer.optimizer_cpu_offload",
    "use_precision_aware_optimizer": "optimizer.use_precision_aware_optimizer",
    "exp_avg_dtype": "optimizer.exp_avg_dtype",
    "exp_avg_sq_dtype": "optimizer.exp_avg_sq_dtype",
    "num_virtual_stages_per_pipeline_rank": "model.virtual_pipeline_model_parallel_size",
    "decoder_first_pipeline_num_layers": "model.num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "model.num_layers_in_last_pipeline_stage",
    "accumulate_allreduce_grads_in_fp32": "ddp.grad_reduce_in_fp32",
}
INVERTED: Final[Mapping[str, str]] = {
    "disable_bias_linear": "model.add_bias_linear",
    "untie_embeddings_and_output_weights": "model.share_embeddings_and_output_weights",
}
PRECISION: Final[Mapping[str, Settings]] = {  # preset -> settings of Megatron-LM
    "bf16_with_nvfp4_mixed": {"bf16": True, "fp4_format": "e2m1"},
    "bf16_with_mxfp8_mixed": {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "mxfp8"},
    "bf16_with_fp8_subchannel_scaling_mixed": {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "blockwise"},
    "bf16_with_fp8_current_scaling_mixed": {"bf16": True, "fp8_format": "hybrid", "fp8_recipe": "tensorwise"},
    "bf16_with_fp8_delayed_scaling_mixed": {"bf16": True, "fp8_format": "hybrid", "fp8_recipe": "delayed"},
    "bf16_mixed": {"bf16": True},
    "fp16_mixed": {"fp16": True},
}
ACTIVATIONS: Final[Mapping[str, Settings]] = {
    "swiglu": {"model.gated_linear_unit": True, "model.activation_func": "silu"},
    "squared_relu": {"model.activation_func": "squared_relu"},
}


def granted(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: of a recipe only the overrides are known."""
    recipe = settings.get("recipe")
    return (f"what the recipe {recipe} sets besides the overrides is not read",) if recipe else ()


LAYER_PATTERNS: Final = frozenset(
    {"moe_layer_freq", "window_attn_skip_freq"}
)  # a list with a mark for each layer


def spelled(name: str) -> str:
    """Return Bridge's name of a Megatron-LM setting."""
    if "." in name or name == "recipe":
        return name
    if name in ("bf16", "fp16", "fp8_format", "fp8_recipe", "fp4_format"):
        return "mixed_precision"
    if name in ACTIVATIONS:
        return "model.activation_func"
    if name == "grad_reduce_in_bf16":
        return "ddp.grad_reduce_in_fp32"
    return INVERTED.get(name) or NAMES.get(name) or f"model.{name}"


def overrides(settings: Settings) -> Settings:
    """Return settings of Megatron-LM as overrides."""
    remaining = dict(settings)
    result: Settings = {}
    for preset, parts in PRECISION.items():
        if parts.items() <= remaining.items():
            result["mixed_precision"] = preset
            remaining = {name: value for name, value in remaining.items() if name not in parts}
            break
    for name, activation in ACTIVATIONS.items():
        if remaining.pop(name, False):
            result |= activation
    if remaining.pop("grad_reduce_in_bf16", False):
        result["ddp.grad_reduce_in_fp32"] = False
    remaining.pop("group_query_attention", None)  # implied by the number of groups
    for name in LAYER_PATTERNS & set(remaining):
        chosen = marked_layers(str(remaining[name]), int(remaining["num_layers"]))
        remaining[name] = tuple(int(i in chosen) for i in range(1, int(remaining["num_layers"]) + 1))
    if "window_size" in remaining:
        remaining["window_size"] = tuple(str(remaining["window_size"]).split(","))
    if "seq_length" in remaining:
        result["dataset.seq_length"] = remaining["seq_length"]
    return result | {spelled(name): False if name in INVERTED else value for name, value in remaining.items()}


def settings_of(text: str) -> Settings:
    """Read overrides of a command line as settings of Megatron-LM; unknown overrides keep their names."""
    overrides_text: dict[str, str] = {}
    launch: Settings = {}
    for word in command_words(text, launch):
        if match := re.match(r"\+{0,2}([a-z_]+(?:\.[a-z_]\w*)+|mixed_precision)=(.*)$", word, re.DOTALL):
            overrides_text[match[1]] = match[2]
    return launch | _megatron_settings(overrides_text)


def _megatron_settings(values: Mapping[str, str]) -> Settings:
    """Return overrides as settings of Megatron-LM."""
    megatron_names = {other: name for name, other in NAMES.items()}
    settings: Settings = {}
    remaining = dict(values)
    preset = remaining.pop("mixed_precision", "").replace("-", "_")
    settings |= PRECISION.get(preset, {"mixed_precision": preset} if preset else {})
    gated = remaining.pop("model.gated_linear_unit", "").lower() == "true"
    activation = remaining.pop("model.activation_func", "")
    settings |= (
        {"swiglu": True}
        if gated and activation in ("silu", "")
        else {"squared_relu": True}
        if activation == "squared_relu"
        else {}
    )
    reduce_flags = {"false": "grad_reduce_in_bf16", "true": "accumulate_allreduce_grads_in_fp32"}
    if (reduce_dtype_flag := remaining.pop("ddp.grad_reduce_in_fp32", "").lower()) in reduce_flags:
        settings[reduce_flags[reduce_dtype_flag]] = True
    for name, other in INVERTED.items():
        if remaining.pop(other, "true").lower() == "false":
            settings[name] = True
    remaining.pop("dataset.seq_length", None)
    for name, value in remaining.items():
        plain = megatron_names.get(name) or (
            name.removeprefix("model.") if name.startswith("model.") else name
        )
        settings[plain] = _parse_value(value)
    for name in LAYER_PATTERNS & set(settings):
        settings[name] = (
            f"[{','.join(settings[name])}]" if isinstance(settings[name], tuple) else settings[name]
        )
    if isinstance(settings.get("window_size"), tuple):
        settings["window_size"] = ",".join(settings["window_size"])
    if "num_query_groups" in settings:
        settings["group_query_attention"] = True
    return settings


def _parse_value(text: str) -> Any:
    """Parse the value of an override: true, false, a list, or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    listed = re.fullmatch(r"\[(.*)\]", text)
    return tuple(part.strip().strip("'\"") for part in listed[1].split(",")) if listed else text.strip("'\"")


def override_value(value: Any) -> str:
    """Write the value of an override."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple | list) else str(value)
