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


LINEAR = "peft:\n  _target_: nemo_automodel.components._peft.lora.PeftConfig\n  dim: 16\n"


@pytest.mark.parametrize(
    ("more", "targets"),
    [
        # components/_peft/module_matcher.py of nemo-automodel 0.7.0: every nn.Linear, the head's too
        ("  match_all_linear: true\n", {"q", "k", "v", "proj", "gate", "up", "fc2", "head"}),
        (
            "  exclude_modules: ['*vision_tower*', '*vision*', '*visual*']\n",
            {"q", "k", "v", "proj", "gate", "up", "fc2", "head"},
        ),
        ("  exclude_modules: ['*lm_head*', '*.mlp.*']\n", {"q", "k", "v", "proj"}),
        ("  exclude_modules: ['*.k_proj', '*.v_proj', 'lm_head']\n", {"q", "proj", "gate", "up", "fc2"}),
        ("  exclude_modules: ['*.out_proj']\n", {"q", "k", "v", "proj", "gate", "up", "fc2", "head"}),
        ("  target_modules: ['*']\n", {"q", "k", "v", "proj", "gate", "up", "fc2", "head"}),
        ("  target_modules: '*_proj'\n", {"q", "k", "v", "proj", "gate", "up", "fc2"}),
    ],
)
def test_linear_layers_with_adapters(launch, more, targets):
    assert checked(launch(RECIPE + LINEAR + more)).est.model.adapter_targets == targets


@pytest.mark.parametrize(
    ("model", "more", "problem"),
    [
        ("Qwen/Qwen3-8B", "['*.layers.0.*']", "adapters of some layers alone are not predicted"),
        (
            "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            "['*.out_proj']",
            "one projection of linear attention",
        ),
    ],
)
def test_excluded_layers_that_are_not_predicted_are_named(launch, model, more, problem):
    text = RECIPE.replace("Qwen/Qwen3-8B", model) + LINEAR + f"  exclude_modules: {more}\n"
    with pytest.raises(tc.InputError, match=rf"peft.exclude_modules = .*{problem}"):
        checked(launch(text))


def test_stacked_experts_have_adapters_where_a_pattern_is_their_name(launch):
    """components/_peft/lora.py: GroupedExperts are no nn.Linear, and `*_proj` does not match `mlp.experts`.

    By hand: a rank of 8 on 48 layers of Qwen3-30B-A3B (hidden 2048, 32 heads of 128 and 4 of keys and of
    values, 128 experts of 768).
    """
    attention = 48 * 8 * ((2048 + 4096) + 2 * (2048 + 512) + (4096 + 2048))
    experts = 48 * 128 * 8 * 3 * (2048 + 768)
    text = RECIPE.replace("Qwen3-8B", "Qwen3-30B-A3B").replace("tp_size: 1", "ep_size: 8")
    model = checked(launch(text + LORA)).est.model
    assert model.trained_parameters == attention
    named = LORA.replace("'*_proj'", "['*_proj', '*experts']")
    assert checked(launch(text + named)).est.model.trained_parameters == attention + experts


VISION = RECIPE.replace("TrainFinetuneRecipeForNextTokenPrediction", "FinetuneRecipeForVLM")
VISION = VISION.replace("ForCausalLM", "ForImageTextToText").replace("Qwen3-8B", "Qwen3-VL-8B-Instruct")


@pytest.mark.parametrize(
    ("section", "frozen"),
    [
        ("", False),
        ("freeze_config:\n  freeze_vision_tower: true\n", True),
        ("freeze_config:\n  freeze_vision_tower: false\n", False),
        # components/utils/model_utils.py, FreezeConfig: True where a section says nothing of it
        ("freeze_config:\n  freeze_language_model: false\n", True),
    ],
)
def test_a_vision_tower_is_frozen_or_trained(launch, section, frozen):
    model = checked(launch(VISION + section)).est.model
    assert model.name == "qwen3-vl-8b"
    assert model.tower.frozen is frozen


def test_length_and_images_of_a_vision_model(launch):
    """recipes/_typed_config.py: pack_size; a processor of Qwen gets no more pixels than max_pixels."""
    lengths = VISION.replace("  packed_sequence_size: 4096", "  max_length: 2048\n  pack_size: 8192")
    est = checked(launch(lengths + "processor:\n  max_pixels: 262144\n")).est
    assert est.model.seq == 8192
    assert est.model.tower.size == 512
    collated = VISION.replace(
        "packed_sequence:\n  packed_sequence_size: 4096", "dataloader:\n  collate_fn:\n    max_length: 3072"
    )
    assert checked(launch(collated)).est.model.seq == 3072


def test_frozen_parts_that_are_not_predicted_are_named(launch):
    section = "freeze_config:\n  freeze_modules: [{path: model.visual}]\n"
    with pytest.raises(
        tc.InputError, match=r"freeze_config.freeze_modules = .*only some weights are trained"
    ):
        checked(launch(VISION + section))
    section = "freeze_config:\n  freeze_vision_tower: true\n  freeze_embeddings: true\n"
    assumed = checked(launch(VISION + section)).reading.assumed
    assert any("freeze_embeddings has no effect" in note for note in assumed)


FP8 = "fp8:\n  enabled: true\n  recipe_name: {}\n  filter_fqns: [lm_head]\n"
IN_FP32 = RECIPE.replace("Qwen3-8B\n", "Qwen3-8B\n  torch_dtype: float32\n")


@pytest.mark.parametrize(("recipe", "precision"), [("tensorwise", "fp8-current"), ("rowwise", "fp8-rowwise")])
def test_products_in_8_bits(launch, recipe, precision):
    assert checked(launch(IN_FP32 + FP8.format(recipe))).est.plan.precision == precision


BACKEND = (
    "Qwen3-8B\n  backend:\n    _target_: nemo_automodel.components.models.common.BackendConfig\n    {}\n"
)


@pytest.mark.parametrize(
    ("section", "precision"),
    [("te_fp8: {recipe: mxfp8}", "mxfp8"), ("te_fp8: {recipe: block}", "fp8-block"), ("linear: te", "bf16")],
)
def test_products_of_transformer_engine(launch, section, precision):
    """components/models/common/utils.py of nemo-automodel 0.7.0, TEFp8Config: present means that it is on."""
    text = IN_FP32.replace("Qwen3-8B\n", BACKEND.format(section))
    assert tc.check(launch(text), "dgx-b200", gpus=8).est.plan.precision == precision


def test_attention_of_the_backend(launch):
    text = RECIPE.replace("Qwen3-8B\n", BACKEND.format("attn: eager"))
    assert checked(launch(text)).est.plan.attention == "unfused"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            RECIPE.replace("Qwen3-8B\n", BACKEND.format("te_fp8: {recipe: mxfp8}")),
            "model.backend.te_fp8: products in 8 bits beside weights and moments in 16 bits",
        ),
        (
            RECIPE.replace("Qwen3-8B\n", BACKEND.format("experts: torch_mm_mxfp8")),
            r"model.backend.experts = torch_mm_mxfp8: not read \(products of experts in 8 bits\)",
        ),
        (
            RECIPE + FP8.format("tensorwise"),
            "fp8.enabled: products in 8 bits beside weights and moments in 16",
        ),
        (IN_FP32 + FP8.format("rowwise_with_gw_hp"), "fp8.recipe_name = .rowwise_with_gw_hp."),
        (
            IN_FP32 + FP8.format("tensorwise") + "  enable_fsdp_float8_all_gather: true\n",
            r"fp8.enable_fsdp_float8_all_gather: not read \(weights are gathered in 8 bits\)",
        ),
    ],
)
def test_what_is_not_predicted_of_8_bits_is_named(launch, text, problem):
    with pytest.raises(tc.InputError, match=problem):
        checked(launch(text))
