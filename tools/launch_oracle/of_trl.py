"""What TRL makes of its configuration: SFTConfig or DPOConfig, ModelConfig, and Accelerate's arguments.

The arguments are parsed in the environment that the launcher gives a process, as `trl sft` has it.
"""

import importlib
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import draws
import of_accelerate
import yaml

TABLE = "huggingface"
PACKAGE = "trl"
CLASSES = "SFTConfig, DPOConfig, ModelConfig, get_peft_config, and Accelerate's"
MODEL = "meta-llama/Meta-Llama-3-8B"
# By `optim` of transformers; the prediction knows no other (training_args.py, OptimizerNames)
OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "paged_adamw_32bit"), "adam"),
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "adamw_torch_8bit"), "adam-8bit"),
    **dict.fromkeys(("lion_32bit", "paged_lion_32bit"), "lion"),
}
DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "auto": "bf16"}  # auto: of the checkpoint
OPTIONS_OF_FSDP = ("full_shard", "shard_grad_op", "full_shard auto_wrap", "full_shard offload", True)
OPTIONS_OF_TRAINER = {  # argument of `accelerate launch` -> option in the Trainer's `fsdp_config`
    "fsdp_reshard_after_forward": "reshard_after_forward",
    "fsdp_offload_params": "cpu_offload",
    "fsdp_activation_checkpointing": "activation_checkpointing",
}
LENGTHS = (512, 1024, 2048, 4096)


def values() -> draws.Values:
    """Return the values of each setting that rows of the table read, of those that TRL or Accelerate has."""
    from trl.cli import accelerate_config
    from trl.scripts.sft import make_parser

    presets = Path(accelerate_config.__file__).parents[1] / "accelerate_configs"
    names = sorted(path.stem for path in presets.glob("*.yaml"))
    words: dict[str, Sequence[Any]] = {
        "accelerate_config": names,
        "optim": list(OPTIMIZERS),
        "max_length": LENGTHS,
        "lora_r": (8, 16, 64),
        "lora_dropout": (0.0, 0.1),
        "lora_target_modules": (["q_proj", "v_proj"], "all-linear"),
        "attn_implementation": ("flash_attention_2", "eager", "sdpa"),
        "fsdp": OPTIONS_OF_FSDP,
        "every_n_layers": (1, 2, 4),
        "offload": (True, False),
        "gradient_checkpointing": (True, False),
        "torch_dtype": list(DTYPES),
    }
    actions = {action.dest: action for action in make_parser(prog="trl sft")._actions}
    found = {name.rpartition(".")[2]: of for name, of in of_accelerate.values().items()}
    for name in draws.names_read(TABLE, "trl"):
        last = name.rpartition(".")[2]
        if last in words and (name in actions or "." in name or name == "accelerate_config"):
            found[name] = words[last]
        elif last in actions:
            found[name] = draws.values_of(actions[last])
    no_arguments = ("distributed_type", "num_machines", "backend", "use_mxfp8_block_scaling")
    return {name: of for name, of in found.items() if name not in no_arguments}


def draw(chance: random.Random, known: draws.Values) -> draws.Case:
    """Return a configuration of supervised fine-tuning, or of DPO."""
    chosen = draws.choose(known, chance)
    pairs = chance.random() < 0.25
    chosen.pop("beta", None)
    if pairs:
        chosen["beta"] = 0.1
    if "accelerate_config" not in chosen:
        chosen["num_processes"] = chance.choice((4, 8))
    kwargs = [name for name in chosen if ".every_n_layers" in name or name.endswith("_kwargs.offload")]
    if chance.random() < 0.7:
        for name in kwargs:
            del chosen[name]
    if "fsdp" in chosen:  # the Trainer's own, whose options stand in a section
        for name in [name for name in chosen if name.startswith("fsdp_")]:
            value = chosen.pop(name)
            if name in OPTIONS_OF_TRAINER:
                chosen[f"fsdp_config.{OPTIONS_OF_TRAINER[name]}"] = value
    launched = ("fsdp_", "parallelism_config_", "offload_")
    for name in [name for name in chosen if name.startswith(launched) and "." not in name]:
        preset = str(chosen.get("accelerate_config"))
        wanted = "zero" if name.startswith("offload_") else "fsdp"
        if not preset.startswith(wanted) or chance.random() < 0.5:
            del chosen[name]
    first = {"model_name_or_path": MODEL, "dataset_name": "trl-lib/Capybara"}
    text = yaml.safe_dump(
        draws.nested({**first, **chosen}), default_flow_style=None, width=1000, sort_keys=False
    )
    return draws.Case(text, {})


def read(case: draws.Case) -> Mapping[str, Any]:
    """Return what TRL and Accelerate make of a configuration."""
    from trl import get_peft_config
    from trl.cli.accelerate_config import resolve_accelerate_config_argument

    document = yaml.safe_load(case.text)
    pairs = 2 if "beta" in document else 1
    script = importlib.import_module(f"trl.scripts.{'dpo' if pairs == 2 else 'sft'}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(case.text)
        *_, rest = _parsed(script, path)
        args, environment = of_accelerate.launched([*resolve_accelerate_config_argument(rest), "sft.py"])
        assert args.training_script == "sft.py", f"unknown: {args.training_script}"
        args.num_processes = int(args.num_processes)
        with of_accelerate.environment_of(environment):
            _, training, model, *_ = _parsed(script, path)
    facts = of_accelerate.facts_of(args, environment)
    if training.fsdp_plugin_args is not None:
        assert not args.use_deepspeed, "FSDP beside DeepSpeed"
        from accelerate.utils import FullyShardedDataParallelPlugin

        with of_accelerate.environment_of(environment):
            plugin = FullyShardedDataParallelPlugin(**training.fsdp_plugin_args)
        facts |= of_accelerate.fsdp_facts(plugin, args.num_machines)
    rows = training.per_device_train_batch_size * pairs
    facts |= {
        "mbs": rows,
        "gbs": rows * training.gradient_accumulation_steps * facts["dp"],
        "seq": training.max_length,
    }
    facts |= _recomputed(training, facts)
    facts |= _adapters(model, get_peft_config(model))
    # Accelerate widens weights for FSDP whatever its strategy (accelerator.py, prepare_model)
    widens = bool(args.use_fsdp or args.use_deepspeed or training.fsdp_plugin_args is not None)
    facts |= _numbers(training, model, args, widens, has_adapters=model.use_peft)
    loading = training.model_init_kwargs or {}
    attention = loading.get("attn_implementation") or model.attn_implementation
    facts["attention"] = "unfused" if attention == "eager" else "flash"
    return facts


def _parsed(script: Any, path: Path) -> tuple[Any, ...]:
    """Return the arguments of a configuration, and what is left for the launcher."""
    parser = script.make_parser(prog="trl")
    *found, of_config, of_line = parser.parse_args_and_config(
        ["--config", str(path), "--use_cpu", "true"],
        return_remaining_strings=True,
        separate_remaining_strings=True,
    )
    return *found, of_config + of_line


def _recomputed(training: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is recomputed: by the Trainer, where FSDP does not."""
    by_fsdp = facts["recompute"] == "full"
    is_on = bool(training.activation_checkpointing) or by_fsdp
    kwargs = training.activation_checkpointing_kwargs or {}
    found: dict[str, Any] = {"recompute": "full" if is_on else "none"}
    if is_on and not by_fsdp:
        found["recompute_every"] = int(kwargs.get("every_n_layers") or 1)
        if kwargs.get("offload"):
            found["offload"] = "+".join(
                ["activations", *([] if facts["offload"] == "none" else [facts["offload"]])]
            )
    return found


def _adapters(model: Any, config: Any) -> dict[str, Any]:
    """Return the adapters of PEFT's configuration, and how the frozen model is held."""
    if config is None:
        return {}
    base = "16-bit"
    if model.load_in_8bit:
        base = "int8"
    elif model.load_in_4bit:
        base = "nf4" if model.use_bnb_nested_quant else "nf4-single"
    return {"adapters.rank": config.r, "adapters.dropout": config.lora_dropout > 0, "adapters.base": base}


def _numbers(training: Any, model: Any, args: Any, widens: bool, has_adapters: bool) -> dict[str, Any]:
    """Return the precision of products, or of weights that are trained as they are loaded; the optimizer."""
    mixed = "bf16" if training.bf16 else "fp16" if training.fp16 else ""
    if not mixed and args.mixed_precision != "no":
        mixed = {"fp8": "fp8-current"}.get(args.mixed_precision, args.mixed_precision)
    loading = training.model_init_kwargs or {}
    loaded = DTYPES[str(loading.get("dtype") or model.dtype).removeprefix("torch.")]
    optimizer = OPTIMIZERS[training.optim.value]
    as_loaded = loaded == "bf16" and mixed in ("bf16", "") and not (widens and mixed) and not has_adapters
    if as_loaded:
        return {
            "precision": "bf16-pure",
            "optimizer_kind": "adam-bf16" if optimizer == "adam" else optimizer,
        }
    return {"precision": mixed or loaded, "optimizer_kind": optimizer}
