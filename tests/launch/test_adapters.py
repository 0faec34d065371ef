"""Launches of fine-tuning: adapters are written and read, and refused where a format has none."""

import pytest

import traincast as tc
from traincast.launch.formats import FORMATS
from traincast.launch.settings.canonical import model_facts
from traincast.model.adapters import parse_training
from traincast.model.documents import parse_lengths
from traincast.ui.cli.main import main

NAME = "llama-3-8b"
BASE = tc.load_model(NAME)
JOINED = (
    "lora:r=32,targets=qkv+proj+fc1+fc2"  # what LoRA of Megatron-Bridge adapts (megatron/bridge/peft/lora.py)
)
WITHOUT = ["megatron", "slurm", "nanotron", "torchtitan", "torchtitan-toml"]
BRIDGE = """#!/bin/bash
torchrun --nnodes 1 --nproc-per-node 8 scripts/training/run_recipe.py \\
    --recipe llama3_8b_peft_config --mode lora \\
    model.num_layers=32 model.hidden_size=4096 model.ffn_hidden_size=14336 model.num_attention_heads=32 \\
    model.num_query_groups=8 model.gated_linear_unit=true model.activation_func=silu \\
    model.normalization=RMSNorm \\
    model.add_bias_linear=false model.position_embedding_type=rope model.vocab_size=128256 \\
    model.share_embeddings_and_output_weights=false model.hidden_dropout=0 model.attention_dropout=0 \\
    mixed_precision=bf16_mixed dataset.seq_length=4096 train.micro_batch_size=1 \\
    model.tensor_model_parallel_size=1 model.pipeline_model_parallel_size=1 \\
    train.global_batch_size=32 {peft}
"""


def exported(text, to, **knobs):
    """Launch of Llama 3 8B with what a text of `--train` says."""
    est = tc.estimate(BASE.with_adapters(parse_training(text)), "dgx-h100", tc.Plan(dp=8, **knobs), gbs=32)
    return tc.export(est, to)


@pytest.mark.parametrize("to", WITHOUT)
@pytest.mark.parametrize("name", ["llama-3-8b --train lora", "nemotron-3-nano"])
def test_what_a_format_cannot_express_is_refused(to, name, capsys):
    """Exit code 2, one sentence with the reason, and no file on standard output."""
    with pytest.raises(SystemExit) as stop:
        main(f"export {name} --system dgx-h100 --dp 8 --gbs 8 --seq 4096 --to {to}".split())
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert "cannot express" in err
    assert err.count("\n") == 1


def test_a_search_is_refused_before_it_is_done(capsys):
    """The error of the model comes without the search, together with other mistakes."""
    with pytest.raises(SystemExit) as stop:
        main(f"export {NAME} --system dgx-h100 --gpus 8 --train lora --tokens x --to megatron".split())
    assert stop.value.code == 2
    assert "--tokens" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["deepspeed", "accelerate"])
def test_a_program_that_is_given_its_model_has_its_adapters_from_there(to):
    """The line on the model names them."""
    written = exported("qlora:r=8", to, zero=3)
    assert "LoRA of rank 8 on all layers, base in nf4" in written.not_expressed["model"]


@pytest.mark.parametrize(
    ("text", "is_expressed"),
    [
        (JOINED, True),
        ("lora:r=8,targets=qkv,dropout", True),
        ("lora", False),  # queries, keys and values apart
        ("qlora:targets=qkv", False),
        ("lora:targets=qkv+head", False),
    ],
)
def test_megatron_bridge_adapts_joined_layers(text, is_expressed, tmp_path):
    """What is written is read back as the same training; the rest is refused with what to write."""
    if not is_expressed:
        with pytest.raises(tc.InputError, match=r"targets=qkv\+proj\+fc1\+fc2"):
            exported(text, "megatron-bridge")
        return
    path = tmp_path / "run.sh"
    path.write_text(exported(text, "megatron-bridge").text, encoding="utf-8")
    checked = tc.check(path, "dgx-h100")
    assert checked.est.model.name == "llama-3-8b"
    assert (
        model_facts(checked.est.model)["adapters"]
        == model_facts(BASE.with_adapters(parse_training(text)))["adapters"]
    )


@pytest.mark.parametrize(
    ("peft", "text"),
    [
        ("", JOINED),  # defaults of LoRA
        ("peft.dim=16 peft.alpha=32 peft.target_modules=[linear_qkv]", "lora:r=16,targets=qkv"),
        ("peft.dim=8 peft.dropout=0.1", "lora:r=8,targets=qkv+proj+fc1+fc2,dropout"),
    ],
)
def test_a_lora_launch_is_read_as_lora(peft, text, tmp_path):
    """Overrides of the recipe's LoRA; what they leave out is Megatron-Bridge's default."""
    path = tmp_path / "run.sh"
    path.write_text(BRIDGE.format(peft=peft), encoding="utf-8")
    model = tc.check(path, "dgx-h100").est.model
    assert model_facts(model)["adapters"] == model_facts(BASE.with_adapters(parse_training(text)))["adapters"]


@pytest.mark.parametrize(
    ("peft", "words"),
    [
        ("peft.dim=0", "peft.dim = '0'"),
        ("peft.target_modules=[linear_zz]", "'linear_zz' is none of"),
        ("peft.dropout=2", "peft.dropout = '2'"),
        ("peft.a2a_experimental=true", "only some weights are trained"),
    ],
)
def test_wrong_settings_of_adapters_are_named(peft, words, tmp_path):
    """Each with its value."""
    path = tmp_path / "run.sh"
    path.write_text(BRIDGE.format(peft=peft), encoding="utf-8")
    with pytest.raises(tc.InputError, match=words):
        tc.check(path, "dgx-h100")


def test_every_format_expresses_adapters_or_says_why():
    """A format has a row for them, a reason, or does not describe the model."""
    for form in FORMATS.values():
        has_row = any("adapters" in row.facts for rows in form.rows.values() for row in rows)
        assert has_row or "adapters" in form.why or not form.model, form.name


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "nemotron-3-nano"])
def test_torchtune_is_given_models_that_it_builds(name, capsys):
    """Its builders make dense decoders (torchtune/models)."""
    with pytest.raises(SystemExit) as stop:
        main(f"export {name} --system dgx-h100 --dp 8 --gbs 8 --seq 4096 --to torchtune".split())
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert f"torchtune cannot express {name}: a builder is known for dense decoders" in err


@pytest.mark.parametrize(
    ("to", "setting"),
    [
        ("trl", "packing: true"),
        ("axolotl", "sample_packing: true"),
        ("llama-factory", "neat_packing: true"),
        ("torchtune", "packed: true"),
    ],
)
def test_packed_documents_are_packed_by_the_program(to, setting):
    """Lengths are those of the data, which no setting says."""
    for text, is_there in (("512:0.5,2048:0.5", True), ("padded:512:0.5,2048:0.5", False)):
        model = BASE.fine_tuned("sft", None, parse_lengths(text))
        written = tc.export(tc.estimate(model, "dgx-h100", tc.Plan(dp=8), gbs=32), to)
        assert (setting in written.text) == is_there
        assert "tokens on average, pa" in written.not_expressed["documents"]
