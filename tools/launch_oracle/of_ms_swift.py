"""What ms-swift makes of its configuration: SftArguments, and the Trainer's arguments that it fills in."""

import os
import random
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import draws
import of_trl
import yaml

TABLE = "huggingface"
PACKAGE = "ms-swift"
CLASSES = "SftArguments, and its training_args"
GPUS = 8
MODEL = Path(__file__).parents[2] / "tests/data/hf/llama-3-8b.json"
FIRST = {"model": of_trl.MODEL, "dataset": "AI-ModelScope/alpaca-gpt4-data-en"}
# Meshes and engines, which need a device, and images.
NOT_DRAWN = (
    "fsdp",
    "deepspeed",
    "sequence_parallel_size",
    "freeze_vit",
    "torch_dtype",
    "fp8",
    "use_cpu",
    "use_liger_kernel",
)
PACKAGES_WITHOUT = (  # of what is not looked at here
    *(
        "binpacking",
        "dacite",
        "json_repair",
        "oss2",
        "attrdict",
        "simplejson",
        "cryptography",
        "rouge",
        "nltk",
    ),
    *("jieba", "zstandard", "fastapi", "uvicorn", "gradio", "openai"),
)


def values() -> draws.Values:
    """Return the values of each setting that rows of the table read, by ms-swift's own name."""
    from accepts import _stub

    for package in PACKAGES_WITHOUT:
        if find_spec(package) is None:
            _stub(package)
    from swift.arguments import SftArguments
    from transformers import HfArgumentParser

    table = tomllib.loads((draws.TABLES / f"{TABLE}.toml").read_text(encoding="utf-8"))
    own = {
        common: name
        for name, common in table["programs"]["ms-swift"]["names"].items()
        if name != "train_type"
    }
    actions = {action.dest: action for action in HfArgumentParser([SftArguments])._actions}
    words: dict[str, Sequence[Any]] = {
        "max_length": of_trl.LENGTHS,
        "lora_rank": (8, 16, 64),
        "lora_dropout": (0.0, 0.1),
        "target_modules": ("all-linear",),
        "optim": list(of_trl.OPTIMIZERS),
        "tuner_type": ("lora", "full"),
        "quant_bits": (4, 8),
        "attn_impl": ("flash_attn", "eager", "sdpa"),
        "gradient_checkpointing": (True, False),
    }
    names = draws.names_read(TABLE, "ms-swift")
    return draws.values_by_name(names, actions, words, own, NOT_DRAWN)


def draw(chance: random.Random, known: draws.Values) -> draws.Case:
    """Return a configuration of supervised fine-tuning."""
    chosen = draws.choose(known, chance)
    chosen.setdefault("tuner_type", "lora")  # by which its files are known
    chosen.setdefault("max_length", chance.choice(of_trl.LENGTHS))  # else a question, what the model can take
    if "quant_bits" in chosen:
        chosen["quant_method"] = "bnb"
    return draws.Case(yaml.safe_dump({**FIRST, **chosen}, sort_keys=False), {"gpus": GPUS})


def read(case: draws.Case) -> Mapping[str, Any]:
    """Return what ms-swift makes of a configuration, on so many ranks."""
    import torch
    from swift.arguments import SftArguments
    from transformers import HfArgumentParser, TrainingArguments

    document = yaml.safe_load(case.text)
    world = {"WORLD_SIZE": str(GPUS), "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(GPUS)}
    on_cpu = patch.object(TrainingArguments, "_setup_devices", PropertyMock(return_value=torch.device("cpu")))
    has_bf16 = patch("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, world), on_cpu, has_bf16:
        model = Path(folder, Path(str(document["model"])).name)
        model.mkdir()
        shutil.copy(MODEL, model / "config.json")
        given = {**document, "model": str(model), "dataset": [document["dataset"]], "use_hf": True}
        given |= {"output_dir": folder}
        (args,) = HfArgumentParser([SftArguments]).parse_dict(given)
    training = args.training_args
    rows = training.per_device_train_batch_size
    facts = {
        "gpus": GPUS,
        "mbs": rows,
        "gbs": rows * training.gradient_accumulation_steps * GPUS,
        "seq": args.max_length,
        "recompute": "full" if training.activation_checkpointing else "none",
        "attention": "unfused" if args.attn_impl == "eager" else "flash",
    }
    if args.tuner_type == "lora":
        bits = {None: "16-bit", 8: "int8", 4: "nf4" if args.bnb_4bit_use_double_quant else "nf4-single"}
        facts |= {
            "adapters.rank": args.lora_rank,
            "adapters.dropout": args.lora_dropout > 0,
            "adapters.base": bits[args.quant_bits],
            "optimizer_kind": of_trl.OPTIMIZERS[training.optim.value],
        }
    return facts
