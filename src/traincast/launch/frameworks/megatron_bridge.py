"""Megatron-Bridge's overrides: Megatron-LM's settings under the names of its configuration.

Names follow its migration guide from Megatron-LM, precision presets training/mixed_precision.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from traincast.launch.frameworks import megatron
from traincast.launch.frameworks.checkpoints import NAMED_MODEL
from traincast.launch.frameworks.layer_patterns import marked_layers
from traincast.launch.scripts.bash import arguments, commands, directives
from traincast.launch.settings.given import NOTHING, Given
from traincast.launch.settings.settings import Settings, same_value
from traincast.launch.settings.table import Values
from traincast.launch.settings.unread_settings import UnreadRules

SECTIONS: Final[Mapping[str, str]] = {  # section -> settings of Megatron-LM that have the same name in it
    "train": "micro_batch_size global_batch_size",
    "ddp": "use_distributed_optimizer data_parallel_sharding_strategy num_distributed_optimizer_instances"
    " overlap_grad_reduce overlap_param_gather",
    "dist": "use_megatron_fsdp use_tp_pp_dp_mapping",
    "checkpoint": "ckpt_format",
    "comm_overlap": "tp_comm_overlap overlap_moe_expert_parallel_comm",
    "optimizer": "optimizer optimizer_cpu_offload use_precision_aware_optimizer exp_avg_dtype"
    " exp_avg_sq_dtype store_param_remainders",
}
NAMES: Final[Mapping[str, str]] = {  # Megatron-LM -> Bridge, except for `model.` and the same name
    **{name: f"{section}.{name}" for section, names in SECTIONS.items() for name in names.split()},
    "num_experts": "model.num_moe_experts",
    "num_virtual_stages_per_pipeline_rank": "model.virtual_pipeline_model_parallel_size",
    "decoder_first_pipeline_num_layers": "model.num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "model.num_layers_in_last_pipeline_stage",
    "accumulate_allreduce_grads_in_fp32": "ddp.grad_reduce_in_fp32",
}
INVERTED: Final[Mapping[str, str]] = {
    "disable_bias_linear": "model.add_bias_linear",
    "untie_embeddings_and_output_weights": "model.share_embeddings_and_output_weights",
    "no_gradient_accumulation_fusion": "model.gradient_accumulation_fusion",
}
PRESETS: Final[Mapping[str, Values]] = {  # of mixed precision -> Megatron-LM's settings
    "bf16_with_nvfp4_mixed": {"bf16": True, "fp4_format": "e2m1"},
    "bf16_with_mxfp8_mixed": {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "mxfp8"},
    "bf16_with_fp8_subchannel_scaling_mixed": {"bf16": True, "fp8_format": "e4m3", "fp8_recipe": "blockwise"},
    "bf16_with_fp8_current_scaling_mixed": {"bf16": True, "fp8_format": "hybrid", "fp8_recipe": "tensorwise"},
    "bf16_with_fp8_delayed_scaling_mixed": {"bf16": True, "fp8_format": "hybrid", "fp8_recipe": "delayed"},
    "bf16_mixed": {"bf16": True},
    "fp16_mixed": {"fp16": True},
}
COMBINED: Final[tuple[tuple[Values, Values], ...]] = (  # Megatron-LM's settings, overrides; the first counts
    *((settings, {"mixed_precision": preset}) for preset, settings in PRESETS.items()),
    ({"swiglu": True}, {"model.gated_linear_unit": True, "model.activation_func": "silu"}),
    ({"swiglu": True}, {"model.gated_linear_unit": True, "model.activation_func": ""}),
    ({"squared_relu": True}, {"model.activation_func": "squared_relu"}),
    ({"grad_reduce_in_bf16": True}, {"ddp.grad_reduce_in_fp32": False}),
)
SPELLED: Final[Mapping[str, str]] = {
    **NAMES,
    **INVERTED,
    **{name: [*others][-1] for parts, others in COMBINED for name in parts},
}
LAUNCHER_SETTINGS: Final = (
    *("nnodes", "nproc_per_node", "nodes", "gpus_per_node", "recipe", "mode", "peft_scheme"),
)
# Arguments of run_recipe.py in place of overrides, which count before them (0.6.0, scripts/training).
COMMON_ARGUMENTS: Final[Mapping[str, str]] = {
    "max_steps": "train.train_iters",
    "global_batch_size": "train.global_batch_size",
    "micro_batch_size": "train.micro_batch_size",
    "seq_length": "dataset.seq_length",
    **{
        name: f"model.{name}"
        for name in (
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "context_parallel_size",
            "virtual_pipeline_model_parallel_size",
            "expert_model_parallel_size",
            "expert_tensor_parallel_size",
        )
    },
}
SHORT_ARGUMENTS: Final[Mapping[str, str]] = {
    "-ms": "max_steps",
    "-gb": "global_batch_size",
    "-mb": "micro_batch_size",
    "-sl": "seq_length",
    "-tp": "tensor_model_parallel_size",
    "-pp": "pipeline_model_parallel_size",
    "-cp": "context_parallel_size",
    "-vp": "virtual_pipeline_model_parallel_size",
    "-ep": "expert_model_parallel_size",
    "-etp": "expert_tensor_parallel_size",
}
RUNNERS: Final = re.compile(r"(?:.*/)?(?:(?:run_recipe|setup_experiment|launch_with_nemo_run)\.py|train\.sh)")
OVERRIDE: Final = re.compile(r"\+{0,2}([a-z_]+(?:\.[a-z_]\w*)+|mixed_precision)=(.*)$", re.DOTALL)
TASKS: Final = {"pretrain": "pretrain", "sft": "sft", "lora": "peft", "dora": "peft"}  # of a mode
LAYER_PATTERNS: Final = ("moe_layer_freq", "window_attn_skip_freq")  # a list with a mark for each layer
HARMLESS_SECTIONS: Final = (
    *("logger", "checkpoint", "dataset", "tokenizer", "rng", "profiling", "scheduler", "validation"),
    *("rerun_state_machine", "env_vars"),
)

DEFAULTS: Final[Values] = {  # of all recipes (recipes/common.py, 067f987); none of Megatron-LM
    "mixed_precision": "bf16_mixed",
    "ddp.use_distributed_optimizer": True,
    "ddp.overlap_grad_reduce": True,
    "ddp.grad_reduce_in_fp32": True,
}
# Overrides without which the file of a recipe is needed: no two recipes have the same.
OF_EVERY_RECIPE: Final = (
    *("mixed_precision", "train.global_batch_size"),
    *("model.tensor_model_parallel_size", "model.pipeline_model_parallel_size"),
)
TWIN: Final = "optimizer.use_distributed_optimizer"  # which must be what `ddp` says
HARMLESS_OF_LORA: Final = ("peft.alpha", "peft.lora_A_init_method", "peft.lora_B_init_method")


def unread_rules(rules: UnreadRules) -> UnreadRules:
    """Return Megatron-LM's rules on settings that no row reads: here they may stand in any section."""
    in_sections = rules.rename(lambda name: (name, f"*.{name}"))
    sections = (f"{section}.*" for section in HARMLESS_SECTIONS)
    return replace(
        in_sections,
        harmless=(
            *in_sections.harmless,
            *sections,
            *HARMLESS_SECTIONS,
            "recipe",
            "recipe_release",
            "benchmark_recipe",
            NAMED_MODEL,
            *HARMLESS_OF_LORA,
            "helpers",
            TWIN,
        ),
    )


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: of a recipe only the overrides are known."""
    recipe = settings.get("recipe")
    helpers = settings.get("helpers", "")
    named = recipe and str(recipe) not in helpers
    notes = [f"what the recipe {recipe} sets besides the overrides is not read"] if named else []
    notes += [f"not followed, and may set other values: {helpers}"] if helpers else []
    return (*megatron.assumptions(settings), *notes)


def spell(name: str) -> str:
    """Return Bridge's name of a Megatron-LM setting."""
    if "." in name or name in ("recipe", "base_recipe"):
        return name
    return SPELLED.get(name) or f"model.{name}"


def overrides(settings: Values) -> Values:
    """Return settings of Megatron-LM as overrides."""
    remaining = dict(settings)
    result: dict[str, Any] = {}
    for parts, others in COMBINED:
        if parts.items() <= remaining.items():
            result |= others
            remaining = {name: value for name, value in remaining.items() if name not in parts}
    remaining.pop("group_query_attention", None)  # implied by the number of groups
    for name in LAYER_PATTERNS:
        if name in remaining:
            layers = int(remaining["num_layers"])
            marked = marked_layers(str(remaining[name]), layers)
            remaining[name] = tuple(int(layer in marked) for layer in range(1, layers + 1))
    if "window_size" in remaining:
        remaining["window_size"] = tuple(str(remaining["window_size"]).split(","))
    if "seq_length" in remaining:
        result["dataset.seq_length"] = remaining["seq_length"]
    return result | {spell(name): False if name in INVERTED else value for name, value in remaining.items()}


def read(text: str, given: Given = NOTHING) -> Settings:
    """Read overrides of a command line as settings of Megatron-LM; unknown overrides keep their names."""
    launch, values = overrides_of(text, given)
    recipe = str(launch.get("recipe", "$"))
    if not recipe.startswith("$"):
        if not values.keys() >= {*OF_EVERY_RECIPE}:
            launch["base_recipe"] = recipe
        values = {name: override_value(value) for name, value in DEFAULTS.items()} | values
    return Settings({**launch, **megatron_settings(values)})


def overrides_of(text: str, given: Given = NOTHING) -> tuple[Settings, dict[str, str]]:
    """Return the settings of the launcher, and the overrides of a recipe, what is set last behind others."""
    common = dict[str, str]()
    values = dict[str, str]()
    launch = directives(text)
    for words in commands(text, given):
        options = arguments(_in_full(words))
        runs_recipe = "recipe" in options or any(map(RUNNERS.fullmatch, words))
        for name, value in options.items():
            if name in LAUNCHER_SETTINGS:
                launch[name] = value[0] if isinstance(value, tuple) else value  # overrides may follow
            elif name in COMMON_ARGUMENTS and runs_recipe:
                common[COMMON_ARGUMENTS[name]] = str(value[0] if isinstance(value, tuple) else value)
        if runs_recipe and "recipe" not in options and "model" in options:
            kind = TASKS.get(str(options.get("mode")), "$")
            launch["recipe"] = f"{options['model']}_{kind}_config" if kind != "$" else kind
        for word in words:
            if match := OVERRIDE.match(word):
                values.pop(match[1], None)  # in the order of what is set last
                values[match[1]] = match[2]
    return Settings(launch), {**common, **values}


def _in_full(words: Sequence[str]) -> list[str]:
    """Return the words of a command with the long names of run_recipe.py's arguments."""
    if not any(map(RUNNERS.fullmatch, words)):
        return list(words)
    return [f"--{SHORT_ARGUMENTS[word]}" if word in SHORT_ARGUMENTS else word for word in words]


def megatron_settings(values: dict[str, str]) -> Values:
    """Return overrides as settings of Megatron-LM."""
    settings: dict[str, Any] = {}
    if lengths := [values[name] for name in values if name in ("model.seq_length", "dataset.seq_length")]:
        values["model.seq_length"] = lengths[-1]  # Bridge requires both to be equal (training/config.py)
    values["mixed_precision"] = values.get("mixed_precision", "").replace("-", "_")
    inverted = (({name: True}, {other: False}) for name, other in INVERTED.items())
    reduced = ({"accumulate_allreduce_grads_in_fp32": True}, {"ddp.grad_reduce_in_fp32": True})
    read = {"dataset.seq_length", "mixed_precision"}
    for parts, others in (*COMBINED, *inverted, reduced):
        read |= others.keys()
        if all(same_value(values.get(name, ""), value) for name, value in others.items()):
            settings |= parts
    if values["mixed_precision"] and not settings.keys() & {"bf16", "fp16"}:
        settings["mixed_precision"] = values["mixed_precision"]
    megatron_names = {name: plain for plain, name in NAMES.items()}
    for name, value in values.items():
        if name not in read:
            settings[megatron_names.get(name) or name.removeprefix("model.")] = _parse_value(value)
    for name in LAYER_PATTERNS:
        if isinstance(settings.get(name), tuple):
            settings[name] = f"[{','.join(settings[name])}]"
    if isinstance(settings.get("window_size"), tuple):
        settings["window_size"] = ",".join(settings["window_size"])
    if "num_query_groups" in settings:
        settings["group_query_attention"] = True
    if settings.get("expert_model_parallel_size") not in (None, "", "1"):  # models/transformer_config.py
        settings.setdefault("expert_tensor_parallel_size", "1")
    return settings


def _parse_value(text: str) -> object:
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
