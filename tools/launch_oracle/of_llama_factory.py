"""What LLaMA-Factory makes of its configuration: the dataclasses of `hparams`, the Trainer's among them."""

import random
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import draws
import of_trl
import yaml

TABLE = "huggingface"
PACKAGE = "llamafactory"
CLASSES = "hparams/parser.py: ModelArguments, DataArguments, FinetuningArguments, TrainingArguments"
GPUS = 8
RANKS_OF_ADAPTERS = (8, 16, 64)
FIRST = {
    "model_name_or_path": of_trl.MODEL,
    "dataset": "alpaca_en_demo",
    "template": "llama3",
    "do_train": True,
    "output_dir": "output",
}


def values() -> draws.Values:
    """Return the values of each setting that rows of the table read, by LLaMA-Factory's own name."""
    from llamafactory.hparams.parser import _TRAIN_ARGS
    from transformers import HfArgumentParser

    table = tomllib.loads((draws.TABLES / f"{TABLE}.toml").read_text(encoding="utf-8"))
    own = {common: name for name, common in table["programs"]["llama-factory"]["names"].items()}
    actions = {action.dest: action for action in HfArgumentParser(_TRAIN_ARGS)._actions}
    words: dict[str, Sequence[Any]] = {
        "cutoff_len": of_trl.LENGTHS,
        "lora_rank": RANKS_OF_ADAPTERS,
        "lora_dropout": (0.0, 0.1),
        "lora_target": ("all", "q_proj,v_proj"),
        "optim": list(of_trl.OPTIMIZERS),
        "quantization_bit": (4, 8),
        "finetuning_type": ("lora", "full"),
        "stage": ("sft", "dpo"),
        "flash_attn": ("auto", "fa2", "sdpa", "disabled"),
        "pref_loss": ("sigmoid",),
    }
    names = draws.names_read(TABLE, "llama-factory")
    return draws.values_by_name(names, actions, words, own, NOT_DRAWN)


# Of other launches: FSDP and DeepSpeed need a device, generation and images another model.
NOT_DRAWN = ("fsdp", "deepspeed", "image_max_pixels", "freeze_vision_tower", "per_gpu_train_batch_size")


def draw(chance: random.Random, known: draws.Values) -> draws.Case:
    """Return a configuration of supervised fine-tuning, or of DPO."""
    chosen = {**FIRST, "stage": "sft", **draws.choose(known, chance)}
    return draws.Case(yaml.safe_dump(chosen, sort_keys=False), {"gpus": GPUS})


def read(case: draws.Case) -> Mapping[str, Any]:
    """Return what LLaMA-Factory makes of a configuration, on so many ranks."""
    from llamafactory.hparams.parser import _parse_train_args

    document = yaml.safe_load(case.text)
    assert not (document.get("bf16") and document.get("fp16"))
    own = {name: value for name, value in document.items() if name not in ("bf16", "fp16")}
    model, data, training, tuning, _ = _parse_train_args({**own, "use_cpu": True})
    has_adapters = tuning.finetuning_type == "lora"
    assert has_adapters or model.quantization_bit is None, "quantized weights, all trained"
    pairs = 2 if tuning.stage == "dpo" else 1
    by_trainer = training.activation_checkpointing  # with its old name, whatever LLaMA-Factory does
    rows = training.per_device_train_batch_size * pairs
    facts = {
        "gpus": GPUS,
        "mbs": rows,
        "gbs": rows * training.gradient_accumulation_steps * GPUS,
        "seq": data.cutoff_len,
        "recompute": "full" if not model.disable_gradient_checkpointing or by_trainer else "none",
        "attention": "unfused"
        if str(getattr(model.flash_attn, "value", model.flash_attn)) == "disabled"
        else "flash",
    }
    if has_adapters:
        base = "16-bit"
        if model.quantization_bit == 8:
            base = "int8"
        elif model.quantization_bit == 4:
            base = "nf4" if model.double_quantization else "nf4-single"
        facts |= {
            "adapters.rank": tuning.lora_rank,
            "adapters.dropout": tuning.lora_dropout > 0,
            "adapters.base": base,
        }
        facts["optimizer_kind"] = "muon" if tuning.use_muon else of_trl.OPTIMIZERS[training.optim.value]
    return facts
