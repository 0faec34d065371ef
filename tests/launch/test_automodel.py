"""Recipes of NeMo AutoModel for language models, in the shape of its examples.

Defaults are those of nemo-automodel 0.7.0: components/training/step_scheduler.py (32 sequences of a step),
recipes/_dist_utils.py (FSDP2), components/_peft/lora.py (rank 8, no dropout).
"""

import pytest

import traincast as tc

RECIPE = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler:
  local_batch_size: 4
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen3-8B
distributed:
  strategy: fsdp2
  tp_size: 1
packed_sequence:
  packed_sequence_size: 4096
optimizer:
  _target_: torch.optim.AdamW
  lr: 1.0e-5
"""
LORA = "peft:\n  _target_: nemo_automodel.components._peft.lora.PeftConfig\n  target_modules: '*_proj'\n"


@pytest.fixture
def launch(tmp_path):
    """Function that writes a recipe and returns its path."""

    def write(text, name="recipe.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def checked(path, **options):
    return tc.check(path, "dgx-h100", gpus=8, **options)


def test_a_recipe(launch):
    """Weights, gradients and moments are in bf16, as the model is loaded."""
    result = checked(launch(RECIPE))
    est = result.est
    assert (est.model.name, est.model.seq, est.gbs, est.plan.mbs) == ("qwen3-8b", 4096, 32, 4)
    assert (est.plan.zero, est.plan.precision, est.plan.optimizer_kind) == (3, "bf16-pure", "adam-bf16")
    assert any("step_scheduler.global_batch_size 32" in note for note in result.reading.assumed)


def test_experts_are_not_resharded(launch):
    """components/distributed/config.py, MoEParallelizerConfig: reshard_after_forward is off."""
    text = RECIPE.replace("Qwen3-8B", "Qwen3-30B-A3B").replace("tp_size: 1", "ep_size: 8")
    plan = checked(launch(text)).est.plan
    assert (plan.ep, plan.etp, plan.zero) == (8, 1, 2)


def test_adapters(launch):
    adapters = checked(launch(RECIPE + LORA)).est.model.adapters
    assert (adapters.rank, adapters.dropout, adapters.base) == (8, False, "16-bit")


def test_a_pipeline(launch):
    text = RECIPE.replace(
        "tp_size: 1", "pp_size: 2\n  pipeline:\n    pp_schedule: 1f1b\n    pp_microbatch_size: 2"
    )
    plan = checked(launch(text)).est.plan
    assert (plan.pp, plan.dp, plan.mbs, plan.vp, plan.zero) == (2, 4, 2, 1, 2)


@pytest.mark.parametrize(("layers", "expected"), [(18, 1), (9, 2), (6, 3)])
def test_layers_of_a_stage(layers, expected, launch):
    """36 layers in stages of so many, on two ranks."""
    pipeline = f"pipeline:\n    pp_schedule: interleaved1f1b\n    layers_per_stage: {layers}"
    text = RECIPE.replace("tp_size: 1", f"pp_size: 2\n  {pipeline}")
    assert checked(launch(text)).reading.facts["vp"] == expected


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "torch.optim.AdamW",
            "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam",
            "another optimizer",
        ),
        ("tp_size: 1", "activation_checkpointing: selective", "some layers are recomputed"),
        ("NextTokenPrediction", "VLM", "another training than of the next token"),
        ("packed_sequence_size: 4096", "packed_sequence_size: 0", "sequence length"),
        ("optimizer:", "fp8:\n  enabled: true\noptimizer:", "products in 8 bits"),
    ],
)
def test_refused_by_name(old, new, words, launch):
    with pytest.raises(tc.InputError) as error:
        checked(launch(RECIPE.replace(old, new)))
    assert words in "; ".join(error.value.problems)


def test_its_command_line(launch):
    path = launch("automodel finetune llm -c examples/llm_finetune/recipe.yaml\n", "run.sh")
    with pytest.raises(tc.InputError, match=r"check examples/llm_finetune/recipe\.yaml instead"):
        checked(path)
