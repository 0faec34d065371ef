"""What axolotl makes of its configuration: its schema for so many accelerators, with its defaults."""

import random
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import draws
import of_trl
import yaml

TABLE = "huggingface"
PACKAGE = "axolotl"
CLASSES = "AxolotlConfigWCapabilities"
GPUS = 8
FIRST = {
    "base_model": of_trl.MODEL,
    "datasets": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
    "learning_rate": 1e-5,
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 1,
}


def values() -> draws.Values:
    """Return the values of each setting that rows of the table read, by axolotl's own name."""
    from axolotl.utils.schemas.config import AxolotlInputConfig

    table = tomllib.loads((draws.TABLES / f"{TABLE}.toml").read_text(encoding="utf-8"))
    own = {common: name for name, common in table["programs"]["axolotl"]["names"].items()}
    words: dict[str, Sequence[Any]] = {
        "sequence_len": of_trl.LENGTHS,
        "lora_r": (8, 16, 64),
        "lora_dropout": (0.0, 0.1),
        "lora_target_modules": (["q_proj", "v_proj"],),
        "adapter": ("lora", "qlora"),
        "optimizer": ("adamw_torch", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit"),
        "gradient_checkpointing": (True, False),
        "attn_implementation": ("flash_attention_2", "eager", "sdpa"),
        "rl": ("dpo",),
        "bf16": (True, False, "auto"),
        "micro_batch_size": (1, 2, 4),
        "gradient_accumulation_steps": (1, 2, 4),
    }
    fields = AxolotlInputConfig.model_fields
    found = {}
    for common in draws.names_read(TABLE, "axolotl"):
        name = own.get(common, common)
        if name in fields and name not in NOT_DRAWN:
            found[name] = words.get(name, _values_of(fields[name].annotation))
    return found


# Meshes and engines, images, and what needs further packages.
NOT_DRAWN = (
    "fsdp",
    "deepspeed",
    "sequence_parallel_degree",
    "context_parallel_size",
    "plugins",
    "fp8",
    "fp16",
)


def _values_of(kind: Any) -> Sequence[Any]:
    """Return the values that are drawn of a type: a switch, or words."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kinds = [inner for inner in typing.get_args(kind) if inner is not type(None)]
        return _values_of(kinds[0])
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [member.value for member in kind]
    return (True, False) if kind is bool else ()


def draw(chance: random.Random, known: draws.Values) -> draws.Case:
    """Return a configuration of fine-tuning."""
    chosen = {**FIRST, **draws.choose(known, chance)}
    if "adapter" in chosen:
        chosen.setdefault("lora_r", 16)
        chosen.setdefault("lora_target_modules", ["q_proj", "v_proj"])
    if chosen.get("adapter") == "qlora":
        chosen |= {"load_in_4bit": True, "load_in_8bit": False}
    return draws.Case(yaml.safe_dump(chosen, sort_keys=False), {"gpus": GPUS})


def read(case: draws.Case) -> Mapping[str, Any]:
    """Return what axolotl makes of a configuration, on so many H100."""
    from axolotl.utils.schemas.config import AxolotlConfigWCapabilities

    document = yaml.safe_load(case.text)
    machine = {
        "bf16": True,
        "fp8": True,
        "tf32": True,
        "n_gpu": GPUS,
        "n_node": 1,
        "compute_capability": "sm_90",
    }
    config = AxolotlConfigWCapabilities(
        **document, capabilities=machine, env_capabilities={"torch_version": "2.9.0"}
    )
    pairs = 2 if config.rl == "dpo" else 1
    rows = config.micro_batch_size * pairs
    steps = config.gradient_accumulation_steps or 1
    facts = {
        "gpus": GPUS,
        "mbs": rows,
        "gbs": rows * steps * GPUS,
        "seq": config.sequence_len,
        "recompute": "full" if config.gradient_checkpointing else "none",
        "attention": "unfused" if config.attn_implementation == "eager" else "flash",
    }
    if config.adapter:
        base = {"qlora": "nf4", "lora": "int8" if config.load_in_8bit else "16-bit"}[config.adapter]
        assert config.adapter == "qlora" or not config.load_in_4bit, "4 bits are of qlora"  # loaders/model.py
        facts |= {
            "adapters.rank": config.lora_r,
            "adapters.dropout": bool(config.lora_dropout),
            "adapters.base": base,
        }
    return facts
