"""PEFT's adapter_config.json, alone or after a method of --train."""

import json

import pytest

from traincast.catalog.huggingface.adapters import load_training
from traincast.core.errors import InputError
from traincast.model.adapters import Adapters

PUBLISHED = {  # written by peft 0.14 for LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"])
    "alpha_pattern": {}, "auto_mapping": None, "base_model_name_or_path": "meta-llama/Meta-Llama-3-8B",
    "bias": "none", "eva_config": None, "exclude_modules": None, "fan_in_fan_out": False,
    "inference_mode": True, "init_lora_weights": True, "layer_replication": None, "layers_pattern": None,
    "layers_to_transform": None, "loftq_config": {}, "lora_alpha": 32, "lora_bias": False,
    "lora_dropout": 0.0,
    "megatron_config": None, "megatron_core": "megatron.core", "modules_to_save": None, "peft_type": "LORA",
    "r": 16, "rank_pattern": {}, "revision": None, "target_modules": ["v_proj", "q_proj"],
    "task_type": "CAUSAL_LM", "use_dora": False, "use_rslora": False,
}  # fmt: skip


def written(tmp_path, **changes):
    """The published configuration with other values, in a file."""
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(PUBLISHED | changes), encoding="utf-8")
    return path


def test_rank_and_targets(tmp_path):
    """Alone it is LoRA on a base at 16 bits; after a method the base is that method's."""
    path = written(tmp_path)
    assert load_training(str(path)) == Adapters(rank=16, targets=("v", "q"))
    assert load_training(f"qlora:{path}") == Adapters(rank=16, targets=("v", "q"), base="nf4")


def test_all_linear_and_dropout(tmp_path):
    """The shorthand of PEFT for every linear layer but the head, and a dropout above 0."""
    path = written(tmp_path, target_modules="all-linear", lora_dropout=0.05)
    assert load_training(str(path)) == Adapters(rank=16, targets=("all",), dropout=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peft_type": "IA3"}, "peft_type = 'IA3': must be 'LORA'"),
        ({"use_dora": True}, "use_dora = True"),
        ({"bias": "all"}, "bias = 'all'"),
        ({"modules_to_save": ["embed_tokens"]}, "modules_to_save"),
        ({"r": 0}, "r = 0: must be a whole number"),
        ({"target_modules": ["foo"]}, "'foo' is none of q_proj"),
        ({"target_modules": None}, "target_modules = None"),
        ({"lora_dropout": 1.5}, "lora_dropout = 1.5"),
    ],
)
def test_what_is_not_modelled_is_refused(tmp_path, changes, words):
    """By the name of the setting, never guessed."""
    with pytest.raises(InputError, match=words):
        load_training(str(written(tmp_path, **changes)))


def test_a_file_of_adapters_is_no_full_training(tmp_path):
    """`full:adapter_config.json` contradicts itself; a missing file is named."""
    with pytest.raises(InputError, match="full has no adapters"):
        load_training(f"full:{written(tmp_path)}")
    with pytest.raises(InputError, match=r"none\.json"):
        load_training("none.json")
