"""Adapters of fine-tuning launches are those that PEFT makes (tests/data/peft_adapters.csv)."""

import csv
from pathlib import Path

import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.plan import Plans
from traincast.launch.frameworks.adapters import targets_of
from traincast.model.adapters import Adapters, parse_training
from traincast.operations.transformer import parts
from traincast.ui.cli.main import main

DATA = Path(__file__).parents[1] / "data"
ROWS = [
    tuple(row.values())
    for row in csv.DictReader(
        line for line in (DATA / "peft_adapters.csv").read_text().splitlines() if line[0] != "#"
    )
]
EXACT = calibrated().with_values({"memory.vocab_multiple": 1})
COUNTED = [row for row in ROWS if row[2]]
REFUSED = [row[:2] for row in ROWS if not row[2]]
TRL = """model_name_or_path: {model}
use_peft: true
lora_r: 8
lora_dropout: {dropout}
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
num_processes: 8
max_length: 4096
{targets}
"""


def adapters(targets):
    """Adapters of target_modules, as launches of the Trainer have them."""
    words = ("default",) if targets == "default" else targets_of("lora_target_modules", targets.split("+"))
    return Adapters(rank=8, targets=words)


@pytest.mark.parametrize(("name", "targets", "parameters"), COUNTED)
def test_adapters_are_those_of_peft(name, targets, parameters):
    """By the formula, and as operations have them: of a rank with the whole model, without its MTP."""
    model = tc.load_model(DATA / "hf" / f"{name}.json", seq=2048).with_adapters(adapters(targets))
    assert model.trained_parameters == int(parameters)
    operations = parts(model, Plans(), EXACT)
    counts = {str(kind): model.pattern.count(kind) for kind in model.kinds} | {"head": 1}
    weights = sum(n * sum(op.weights for op in operations[part]) for part, n in counts.items())
    assert weights == int(parameters)


@pytest.mark.parametrize(("name", "targets"), REFUSED)
def test_what_peft_refuses_is_refused(name, targets):
    """Without default targets for a type of model, or with modules that it does not find."""
    model = tc.load_model(DATA / "hf" / f"{name}.json", seq=2048)
    with pytest.raises(tc.InputError, match=r"PEFT 0\.21\.2|is none of its"):
        model.with_adapters(adapters(targets))


@pytest.mark.parametrize(
    ("text", "as_text"),
    [
        ("lora:targets=q_proj+v_proj", "lora:targets=q+v"),
        ("lora:targets=all-linear", "lora:targets=all"),
        ("qlora:targets=o_proj+gate_proj+up_proj", "qlora:targets=proj+gate+up"),
        ("lora:targets=gate_up_proj", "lora:targets=fc1"),
        ("lora:targets=linear_qkv+linear_fc2", "lora:targets=qkv+fc2"),
    ],
)
def test_names_of_modules_are_an_alias_of_targets(text, as_text):
    """Those of PEFT and of Megatron-Bridge."""
    assert parse_training(text) == parse_training(as_text)


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "llama-3-8b"])
def test_other_frameworks_count_each_layer(name):
    """Megatron-Bridge's LoRA: every matrix of every expert has an adapter, and no router has."""
    model = tc.load_model(name)
    tuned = model.with_adapters(parse_training("lora:r=8,targets=qkv+proj+fc1+fc2"))
    e, (q, k, v) = model.hidden, model.projection_widths
    attention = (e + q + k + v) + (model.heads * model.value_width + e)
    copies, f = (1, model.ffn) if model.experts is None else (model.experts.experts, model.experts.ffn)
    assert tuned.trained_parameters == model.layers * 8 * (attention + copies * ((e + 2 * f) + (f + e)))


def test_a_launch_without_targets_is_answered_only_where_peft_has_a_default(tmp_path, capsys):
    """Of Llama: queries and values, said under "assumed"; of Qwen3-MoE targets are asked for, exit code 2."""
    path = tmp_path / "sft.yaml"
    path.write_text(TRL.format(model="meta-llama/Meta-Llama-3-8B", dropout=0.05, targets=""))
    checked = tc.check(path, "dgx-h100")
    assert checked.est.model.trained_parameters == 3_407_872
    assert any("adapters of q+v, the default of PEFT" in note for note in checked.reading.assumed)
    path.write_text(TRL.format(model="Qwen/Qwen3-30B-A3B", dropout=0, targets=""))
    with pytest.raises(SystemExit) as stop:
        main(["check", str(path), "--system", "dgx-h100"])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert "qwen3_moe" in error
    assert "lora_target_modules" in error


@pytest.mark.parametrize(
    ("model", "parameters"),
    [("Qwen/Qwen3-30B-A3B", 498_253_824), ("openai/gpt-oss-20b", 3_981_312)],
)
def test_all_linear_layers_of_a_launch_are_not_misread(model, parameters, tmp_path):
    """Gradients follow the count; dropout, at which PEFT stops, is said where experts have adapters."""
    path = tmp_path / "sft.yaml"
    for dropout in (0, 0.05):
        path.write_text(TRL.format(model=model, dropout=dropout, targets="lora_target_modules: all-linear"))
        checked = tc.check(path, "dgx-h100")
        # under autocast they are in fp32 alone
        assert checked.est.memory["gradients"] == 4 * parameters
        says = any("PEFT 0.21.2 stops" in note for note in checked.reading.assumed)
        assert says == (dropout > 0 and "gpt" not in model)


@pytest.mark.parametrize(
    ("model", "parameters"),
    # axolotl 0.19.0 gives PEFT the names of the linear modules (loaders/adapter.py): attention alone, and of
    # DeepSeek-V2-Lite those of its dense layer too, which PEFT takes to mean the experts; no router
    [("Qwen/Qwen3-30B-A3B", 6_684_672), ("deepseek-ai/DeepSeek-V2-Lite", 179_497_472 - 425_984 - 13_312)],
)
def test_linear_layers_of_axolotl_are_not_misread(model, parameters, tmp_path):
    """A router is no linear module of transformers 5, nor is an expert."""
    path = tmp_path / "axolotl.yaml"
    path.write_text(
        f"base_model: {model}\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nsequence_len: 4096\n"
        "micro_batch_size: 1\ngradient_accumulation_steps: 8\ndatasets: []\n"
    )
    assert tc.check(path, "dgx-h100", gpus=8).est.model.trained_parameters == parameters
