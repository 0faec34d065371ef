"""Fine-tuning with TRL, axolotl and LLaMA-Factory: what is read, refused and written."""

import json
import re

import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.launch.formats import FORMATS
from traincast.launch.frameworks.checkpoints import catalogue_name, model_called
from traincast.launch.frameworks.torchtune import BUILDERS, MODEL, named_model
from traincast.launch.reader import complete_launch, read
from traincast.launch.settings.canonical import model_facts
from traincast.launch.settings.settings import Settings
from traincast.model.adapters import parse_training
from traincast.model.documents import parse_lengths

NAMES = ("tp", "cp", "zero", "replicas", "mbs", "precision", "recompute", "optimizer_kind", "offload")
# Public files, read by hand: what decides of them, written again; the model; what is trained (as of
# `--train`); sequence length; global batch on 8 GPUs [sequences]; then `NAMES`. axolotl 067b021,
# LLaMA-Factory ff6d4d1, alignment-handbook 925acdf.
PUBLISHED = {
    "axolotl: examples/llama-3/fft-8b.yaml": (
        """base_model: NousResearch/Meta-Llama-3.1-8B
sequence_len: 8192
sample_packing: true
gradient_accumulation_steps: 8
micro_batch_size: 1
optimizer: paged_adamw_8bit
bf16: auto
gradient_checkpointing: true
attn_implementation: flash_attention_2""",
        ("llama-3-8b", "full", 8192, 64),
        (1, 1, 0, 1, 1, "bf16-pure", "full", "adam-8bit", "none"),
    ),
    "axolotl: examples/llama-3/qlora-fsdp-70b.yaml": (
        """base_model: casperhansen/llama-3-70b-fp16
load_in_4bit: true
adapter: qlora
sequence_len: 512
lora_r: 8
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 1
optimizer: adamw_torch_fused
bf16: auto
gradient_checkpointing: true
fsdp: [full_shard, auto_wrap]
fsdp_config:
  fsdp_offload_params: true
  fsdp_sharding_strategy: FULL_SHARD""",
        ("llama-3-70b", "qlora:r=8,dropout", 512, 32),
        (1, 1, 3, 1, 1, "bf16", "full", "adam", "optimizer+weights"),
    ),
    "axolotl: examples/llama-3/instruct-dpo-lora-8b.yml": (
        """base_model: meta-llama/Meta-Llama-3-8B-Instruct
load_in_8bit: true
rl: dpo
sequence_len: 4096
adapter: lora
lora_r: 32
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: adamw_bnb_8bit
bf16: auto
gradient_checkpointing: true""",
        ("llama-3-8b", "dpo+lora:r=32,base=int8,dropout", 4096, 128),  # a pair is two sequences
        (1, 1, 0, 1, 4, "bf16", "full", "adam-8bit", "none"),
    ),
    "axolotl: examples/distributed-parallel/qwen3-8b-fsdp-tp-cp.yaml": (
        """base_model: Qwen/Qwen3-8B
dp_shard_size: 2
context_parallel_size: 2
tensor_parallel_size: 2
fsdp_version: 2
fsdp_config:
  offload_params: false
  reshard_after_forward: true
sequence_len: 8192
sample_packing: true
micro_batch_size: 1
optimizer: adamw_torch_fused
bf16: true""",
        ("qwen3-8b", "full", 8192, 2),
        (2, 2, 3, 1, 1, "bf16", "none", "adam", "none"),
    ),
    "LLaMA-Factory: examples/extras/fsdp_qlora/llama3_lora_sft.yaml": (
        """model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
quantization_bit: 4
stage: sft
finetuning_type: lora
lora_rank: 8
lora_target: all
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true""",
        ("llama-3-8b", "qlora:r=8", 2048, 64),
        (1, 1, 0, 1, 1, "bf16", "full", "adam", "none"),
    ),
    "LLaMA-Factory: examples/extras/mod/llama3_full_sft.yaml, without its mixture of depths": (
        """model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
finetuning_type: full
optim: paged_adamw_8bit
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
pure_bf16: true""",
        ("llama-3-8b", "full", 2048, 64),
        (1, 1, 0, 1, 1, "bf16-pure", "full", "adam-8bit", "none"),
    ),
    "alignment-handbook: recipes/zephyr-7b-beta/sft/config_qlora.yaml": (
        """model_name_or_path: mistralai/Mistral-7B-v0.1
torch_dtype: bfloat16
load_in_4bit: true
use_peft: true
lora_r: 16
lora_dropout: 0.05
lora_target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
bf16: true
gradient_accumulation_steps: 2
gradient_checkpointing: true
max_seq_length: 2048
per_device_train_batch_size: 4""",
        ("mistral-7b", "qlora:r=16,base=nf4-single,dropout", 2048, 64),
        (1, 1, 0, 1, 4, "bf16", "full", "adam", "none"),
    ),
    "alignment-handbook: recipes/zephyr-7b-gemma/sft/config_full.yaml, with zero3.yaml": (
        """model_name_or_path: google/gemma-7b
torch_dtype: bfloat16
accelerate_config: zero3
bf16: true
gradient_accumulation_steps: 4
gradient_checkpointing: true
max_seq_length: 2048
per_device_train_batch_size: 4""",
        ("gemma-7b", "full", 2048, 128),
        (1, 1, 3, 1, 4, "bf16", "full", "adam", "none"),
    ),
    "torchtune: recipes/configs/llama3_1/8B_lora_dpo.yaml": (
        """model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: [q_proj, v_proj, output_proj]
  apply_lora_to_mlp: true
  apply_lora_to_output: false
  lora_rank: 8
  lora_dropout: 0.0
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 1024}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer}
metric_logger: {_component_: torchtune.training.metric_logging.DiskLogger}
batch_size: 4
gradient_accumulation_steps: 8
optimizer: {_component_: torch.optim.AdamW, fused: true}
loss: {_component_: torchtune.rlhf.loss.DPOLoss}
dtype: bf16
compile: false
enable_activation_checkpointing: true""",
        ("llama-3-8b", "dpo+lora:r=8,targets=q+v+proj+mlp", 1024, 512),  # 8 GPUs, pairs of 4, 8 steps
        (1, 1, 3, 1, 8, "bf16-pure", "full", "adam-bf16", "none"),
    ),
    "torchtune: recipes/configs/llama3_1/8B_full_single_device.yaml, with a length": (
        """model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 4096}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer}
max_steps_per_epoch: null
batch_size: 2
gradient_accumulation_steps: 1
optimizer: {_component_: bitsandbytes.optim.PagedAdamW8bit}
optimizer_in_bwd: true
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
dtype: bf16
enable_activation_checkpointing: true""",
        ("llama-3-8b", "full", 4096, 16),
        (1, 1, 3, 1, 2, "bf16-pure", "full", "adam-8bit", "none"),
    ),
}  # fmt: skip


def reading_of(text, tmp_path, beside=None):
    """Reading of a text."""
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return read(path, FORMATS, None, beside)


def launch_of(reading, model=None, gpus=8):
    """Model, plan and global batch of a reading."""
    reading.check_unread()
    seq = reading.facts["seq"]
    model = model or tc.load_model(reading.form.named_model(reading.settings), seq=seq)
    return complete_launch(reading, model, gpus, None, {})[1:]


def trained_as(text, model):
    """Model as a text of `--train` says."""
    objective, _, rest = text.partition("+") if text.startswith("dpo") else ("sft", "", text)
    return model.fine_tuned(objective, parse_training(rest or "full"), None)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_read(name, tmp_path):
    """Model, what is trained, length, batch and plan; no setting that matters is left unread."""
    text, (model, trained, seq, batch), wanted = PUBLISHED[name]
    gpus = None if "tensor_parallel_size" in text else 8
    read_model, plan, gbs = launch_of(reading_of(text, tmp_path), gpus=gpus)
    assert (read_model.name, read_model.seq, gbs) == (model, seq, batch)
    assert model_facts(read_model) == model_facts(trained_as(trained, tc.load_model(model, seq=seq)))
    assert tuple(getattr(plan, knob) for knob in NAMES) == wanted


def test_adapters_of_every_builder_are_read(tmp_path):
    """As torchtune's recipes/configs/phi3/mini_qlora_single_device.yaml, whose model is given."""
    text = PUBLISHED["torchtune: recipes/configs/llama3_1/8B_lora_dpo.yaml"][0]
    reading = reading_of(text.replace("llama3_1.lora_llama3_1_8b", "phi3.qlora_phi3_mini"), tmp_path)
    assert (reading.facts["adapters"].rank, reading.facts["adapters"].base) == (8, "nf4")


@pytest.mark.parametrize(
    ("builder", "model"),
    [
        *((name, model) for model, name in BUILDERS.items()),
        ("qwen3.lora_qwen3_0_6b_base", "qwen3-0.6b"),
        ("qwen2_5.lora_qwen2_5_1_5b_base", "qwen2.5-1.5b"),
        ("llama3_1.llama3_1_8b", "llama-3-8b"),
        ("llama3_3.lora_llama3_3_70b", "llama-3-70b"),
    ],
)
def test_a_builder_is_recognised_by_its_name(builder, model):
    """torchtune/models: the names of its builders; an underscore is a point in some of their sizes."""
    assert named_model(Settings({MODEL: f"torchtune.models.{builder}"})) == model


AXOLOTL = (
    "base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 4096\nmicro_batch_size: 2\nbf16: true\n"
    "gradient_checkpointing: true\n"
)
FACTORY = (
    "model_name_or_path: meta-llama/Meta-Llama-3-8B\nfinetuning_type: full\ncutoff_len: 4096\ntemplate: x\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (AXOLOTL + "rl: grpo\n", "is a launch of reinforcement learning, .*rl grpo"),
        (AXOLOTL + "rl: kto\n", "is a launch of a reward model, or alignment without pairs"),
        (AXOLOTL + "reward_model: true\n", "is a launch of a reward model"),
        (FACTORY + "stage: ppo\n", "is a launch of reinforcement learning"),
        (FACTORY + "stage: rm\n", "is a launch of a reward model"),
        # examples/megatron_bridge/llama3_sft.yaml (hiyouga/LLaMA-Factory ff6d4d1)
        (
            FACTORY + "tensor_model_parallel_size: 1\nmixed_precision: bf16_mixed\n",
            "is a launch of LLaMA-Factory on Megatron-Core, which is not supported yet",
        ),
        # optimum-neuron/llama3/slurm/fine-tuning (aws-samples/awsome-distributed-training 7217859)
        (
            "export NEURON_CC_FLAGS='--target=trn1'\ntorchrun train.py --bf16 True --max_steps 9",
            "is a launch of a program for AWS Neuron",
        ),
        (
            "accelerate launch --num_processes 8 grpo.py --model_name_or_path m --num_train_epochs 1"
            " --per_device_train_batch_size 1",
            "is a launch of reinforcement learning",
        ),
        (AXOLOTL + "deepspeed: deepspeed_configs/zero2.json\n", "zero2.json: there is no such file"),
        (AXOLOTL + "adapter: lora\nlora_target_modules: [z_proj]\n", "'z_proj' is none of"),
        (FACTORY + "quantization_bit: 3\nfinetuning_type: lora\n", None),
    ],
)
def test_what_is_not_supported_is_refused_in_a_sentence(text, message, tmp_path):
    with pytest.raises(tc.InputError, match=message):
        reading_of(text, tmp_path)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("optimizer: lomo", "another optimizer"),
        ("chunked_cross_entropy: true", "kernels that fuse"),
        ("plugins: [axolotl.integrations.kernels.KernelsPlugin]", "further kernels"),
        (
            "plugins: [axolotl.integrations.liger.LigerPlugin, axolotl.integrations.kernels.KernelsPlugin]",
            "further kernels",
        ),
        ("torch_compile: true", "torch.compile"),
        ("gradient_checkpointing: offload", "offloaded to the host"),
        ("lora_modules_to_save: [embed_tokens]", "further modules are trained"),
        ("unfrozen_parameters: [lm_head]", "only some weights"),
        ("tiled_mlp: true", "parts of the sequence"),
        ("qat: {group_size: 16}", "layers for a later quantisation"),
        ("new_sharding_size: 4", "not understood, may matter"),
    ],
)
def test_what_matters_and_is_not_read_stops_the_answer(setting, why, tmp_path):
    text = AXOLOTL.replace("gradient_checkpointing: true\n", "") + setting + "\n"
    with pytest.raises(tc.InputError, match=why):
        reading_of(text, tmp_path).check_unread()


@pytest.mark.parametrize(
    ("settings", "fused", "named"),
    [
        ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]", True, False),
        ("plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rms_norm: true", False, True),
        (
            "plugins:\n- axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
            "\n- axolotl.integrations.liger.LigerPlugin",
            True,
            False,
        ),
        ("liger_fused_linear_cross_entropy: true", True, False),
        ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\nrl: dpo", False, False),
    ],
)
def test_a_loss_fused_into_the_head_takes_less_memory(settings, fused, named, tmp_path):
    """Which settings fuse it: axolotl 067b021, integrations/liger and integrations/cut_cross_entropy."""
    reading = reading_of(AXOLOTL + settings + "\n", tmp_path)
    reading.check_unread()
    assert (reading.form.stack(reading.settings) == "huggingface-fused-loss") == fused
    assert bool(reading.unread) == named
    model, plan, gbs = launch_of(reading, gpus=8)
    eager, chunked = (
        tc.estimate(model, "dgx-h100", plan, gbs=gbs, assumptions=f"huggingface-{stack}").memory_phases[
            "loss"
        ]
        for stack in ("eager", "fused-loss")
    )
    assert sum(chunked.values()) < sum(eager.values())


@pytest.mark.parametrize(
    ("settings", "stack"),
    [
        ({}, "huggingface-eager+loss=chunked"),
        ({"beta": 0.1}, "huggingface-eager+loss=chunked"),  # DPO
        ({"use_liger_kernel": True}, "huggingface-fused-loss"),
        ({"deepspeed": "zero.json"}, "huggingface-deepspeed+loss=chunked"),
    ],
)
def test_trl_makes_its_own_loss_chunk_by_chunk(settings, stack, tmp_path):
    """TRL 1.16, trainer/sft_trainer.py and dpo_trainer.py: add_fused_lm_head replaces the head alone, and
    norms are Liger's only where it is on. The time of single operations is that of eager layers."""
    config = {"model_name_or_path": "Qwen/Qwen3-8B", "max_length": 2048, "bf16": True} | settings
    (tmp_path / "zero.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    checked = tc.check(path, "dgx-h100", gpus=8)
    assert checked.est.assumptions.name == stack
    traffic, whole = checked.est.assumptions.traffic, Stack("huggingface-eager").assumptions.traffic
    is_eager = traffic.elementwise_passes == whole.elementwise_passes
    assert is_eager == ("chunked" in stack)
    assert traffic.loss_bytes < whole.loss_bytes


def test_what_deepspeed_starts_is_predicted_as_deepspeed(tmp_path):
    """Stack, gradients and advice are those of the engine that shards: DeepSpeed 0.19.8, runtime/engine.py,
    get_data_types."""
    lines = {
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "data_types": {"grad_accum_dtype": "fp32"},
    }
    for name, config in (
        ("usual", {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}), ("stated", lines),
    ):  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text(AXOLOTL + "deepspeed: usual.json\n", encoding="utf-8")
    usual = tc.check(path, "dgx-h100", gpus=8)
    assert usual.est.assumptions.name == "huggingface-deepspeed"
    assert usual.est.plan.columns().ready(usual.est.assumptions).gradient_bytes == 2
    spelled = {each.setting for change in usual.tried for each in change.spelled}
    assert "deepspeed.zero_optimization.stage" in spelled
    assert not any("fsdp" in name or "bf16" in name for name in spelled)
    assert usual.best.plan.tp == 1  # which the file cannot say
    path.write_text(AXOLOTL + "deepspeed: stated.json\ncut_cross_entropy: true\n", encoding="utf-8")
    stated = tc.check(path, "dgx-h100", gpus=8)
    assert stated.est.assumptions.name == "huggingface-deepspeed-fused-loss"
    assert (stated.est.plan.grad_dtype, stated.est.plan.offload) == ("fp32", "optimizer")
    assert stated.est.memory["gradients"] == 0


def test_a_length_that_is_not_in_the_file_is_asked_for(tmp_path):
    """torchtune's max_seq_len is null in most recipes: sequences are as long as the data."""
    text = PUBLISHED["torchtune: recipes/configs/llama3_1/8B_full_single_device.yaml, with a length"][0]
    path = tmp_path / "run.yaml"
    path.write_text(text.replace("max_seq_len: 4096", "max_seq_len: null"), encoding="utf-8")
    with pytest.raises(tc.InputError, match="does not give the sequence length; give `seq`"):
        tc.check(path, "dgx-h100", gpus=8)
    assert tc.check(path, "dgx-h100", gpus=8, seq=2048).est.model.seq == 2048


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("teacher_model: {}\nkd_ratio: 0.5\n", "torchtune .distillation."),
        ("grpo_samples: 4\nreward_functions: []\n", "torchtune .reinforcement learning."),
        ("enable_kv_cache: true\n", "no recipe of a training"),
    ],
)
def test_other_recipes_of_torchtune_are_refused(keys, message, tmp_path):
    head = "model: {_component_: torchtune.models.llama3.llama3_8b}\ntokenizer: {}\ncheckpointer: {}\n"
    with pytest.raises(tc.InputError, match=message):
        reading_of(head + keys, tmp_path)


def test_a_configuration_of_accelerate_is_given_beside(tmp_path):
    """Without it the answer says that nothing is sharded; with it, ZeRO-3 and its processes count."""
    text = PUBLISHED["alignment-handbook: recipes/zephyr-7b-beta/sft/config_qlora.yaml"][0]
    alone = reading_of(text, tmp_path)
    assert any("--beside" in line for line in alone.assumed)
    accelerate = {
        "distributed_type": "DEEPSPEED", "num_processes": 16, "deepspeed_config": {"zero_stage": 3}
    }  # fmt: skip
    file = tmp_path / "accelerate.yaml"
    file.write_text(json.dumps(accelerate), encoding="utf-8")
    beside = reading_of(text, tmp_path, file)
    _, plan, gbs = launch_of(beside, gpus=None)
    assert (plan.gpus, plan.zero, gbs) == (16, 3, 128)
    assert not any("--beside" in line for line in beside.assumed)


def test_a_script_is_read(tmp_path):
    """Arguments of a launcher and of the program; `trl dpo` names the objective."""
    text = """#!/bin/bash
MODEL=Qwen/Qwen2.5-7B-Instruct
trl dpo --model_name_or_path $MODEL --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \\
    --max_length 2048 --num_processes 16 --use_fsdp --fsdp_version 2 --dtype bfloat16 --use_peft \\
    --lora_r 8 --lora_target_modules q_proj v_proj
"""
    model, plan, gbs = launch_of(reading_of(text, tmp_path), gpus=None)
    assert (model.name, model.reference, model.adapters.targets) == ("qwen2.5-7b", True, ("q", "v"))
    assert (plan.gpus, plan.zero, plan.mbs, gbs) == (16, 3, 4, 16 * 2 * 2 * 4)


@pytest.mark.parametrize(
    ("switch", "precision"), [("", "bf16-pure"), (" true", "bf16-pure"), (" false", "fp32")]
)
def test_switches_of_a_command_line_may_have_a_value(switch, precision, tmp_path):
    """Of LLaMA-Factory's own command; HfArgumentParser reads `true` as it does `True`."""
    text = "llamafactory-cli train --model_name_or_path meta-llama/Meta-Llama-3-8B --cutoff_len 2048"
    reading = reading_of(f"{text} --finetuning_type full --pure_bf16{switch}", tmp_path)
    assert launch_of(reading)[1].precision == precision


@pytest.mark.parametrize(("kind", "precision"), [("lora", "bf16"), ("full", "fp32")])
def test_frozen_weights_of_no_stated_precision_are_bf16(kind, precision, tmp_path):
    """LLaMA-Factory ff6d4d1: model/patcher.py loads bf16, model/adapter.py casts what is trained to fp32."""
    text = "llamafactory-cli train --model_name_or_path meta-llama/Meta-Llama-3-8B --cutoff_len 2048"
    reading = reading_of(f"{text} --finetuning_type {kind}", tmp_path)
    assert launch_of(reading)[1].precision == precision


@pytest.mark.parametrize(
    ("checkpoint", "model"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("NousResearch/Llama-3.2-1B", "llama-3.2-1b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3-70b"),
        ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "llama-3-8b"),
        ("/models/Llama-2-7b-chat-hf/", "llama-2-7b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
    ],
)
def test_a_checkpoint_is_recognised_by_its_name(checkpoint, model):
    """Owner, tuning and date do not change the sizes; each of these has those of the model (config.json)."""
    assert model_called("base_model", checkpoint) == model


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("GPT_13B", "gpt-13b"),
        ("gpt-1.3b.yaml", "gpt-1.3b"),
        ("qwen25_7b", "qwen2.5-7b"),
        ("black-forest-labs/FLUX.1-schnell", "flux.1-schnell"),
        ("gpt-17.5b", ""),  # not gpt175b
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama-3-8b"),  # its card: from Llama-3.1-8B
    ],
)
def test_points_of_numbers_tell_models_apart(name, model):
    assert catalogue_name(name) == model


@pytest.mark.parametrize(
    "name", ["mistralai/Mistral-7B-v0.3", "Qwen/Qwen1.5-4B", "deepseek-ai/DeepSeek-V3.2-Exp"]
)
def test_other_checkpoints_are_asked_for(name):
    """The first has another vocabulary, the last another attention; none is in the catalogue."""
    with pytest.raises(tc.InputError, match="no model of the catalogue; give --model"):
        model_called("base_model", name)


@pytest.mark.parametrize(
    ("name", "members", "never"),
    [
        ("mistralai/mixtral", ("mixtral-8x7b", "mixtral-8x22b"), "mistral-7b"),
        ("Qwen/Qwen3", ("qwen3-0.6b", "qwen3-8b"), "qwen2"),
        ("my-own-model", (), "one of this family"),
    ],
)
def test_a_family_without_a_size_is_asked_for_with_its_models(name, members, never):
    with pytest.raises(tc.InputError, match="no model of the catalogue; give --model") as caught:
        model_called("base_model", name)
    assert all(member in str(caught.value) for member in members)
    assert never not in str(caught.value)


PURE = {"precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": "adam-bf16"}
PLANS = [
    ("full", {"zero": 3, "precision": "bf16", "recompute": "full"}),
    ("full", {"zero": 2, "precision": "bf16", "recompute": "none", "mbs": 2}),
    ("full", {"zero": 1, "precision": "bf16", "optimizer_kind": "adam-8bit"}),
    ("full", {"zero": 0, "precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": "adam-bf16"}),
    ("full", {"zero": 3, "replicas": 2, "precision": "bf16"}),
    ("full", {"zero": 3, "tp": 2, "dp": 4, "sp": False, "precision": "bf16"}),
    ("full", {"zero": 3, "offload": "optimizer+weights", "precision": "bf16"}),
    ("lora:r=8,targets=q+v", {"zero": 0, "precision": "bf16", "recompute": "full"}),
    ("lora", {"zero": 3, "precision": "bf16"}),
    ("qlora:r=64,dropout", {"zero": 0, "precision": "bf16"}),
    ("qlora:base=nf4-single", {"zero": 0, "precision": "bf16", "attention": "unfused"}),
    ("lora:base=int8", {"zero": 0, "precision": "bf16", "optimizer_kind": "lion"}),
    ("dpo+lora:r=16", {"zero": 0, "precision": "bf16", "mbs": 2}),
    ("dpo", {"zero": 3, "precision": "bf16", "mbs": 2}),
    ("lora:targets=q+v+mlp", {"zero": 3, **PURE, "recompute": "full"}),
    ("qlora:targets=attention", {"zero": 2, **PURE, "optimizer_kind": "adam-8bit"}),
    ("full", {"zero": 3, **PURE, "tp": 2, "dp": 4, "sp": False, "offload": "activations"}),
    ("dpo", {"zero": 3, **PURE, "mbs": 2, "replicas": 2}),
]


@pytest.mark.parametrize("to", ["trl", "axolotl", "llama-factory", "ms-swift", "automodel", "torchtune"])
@pytest.mark.parametrize(("trained", "knobs"), PLANS)
def test_what_is_written_is_read_back(to, trained, knobs, tmp_path):
    """The same estimate, or the difference is declared."""
    model = trained_as(trained, tc.load_model("llama-3-8b", seq=4096))
    plan = tc.Plan(**{"dp": 8, "optimizer_kind": "adam", **knobs})
    est = tc.estimate(model, "dgx-h100", plan, gbs=32, assumptions="huggingface-eager")
    written = tc.export(est, to)
    reading = reading_of(written.text, tmp_path)
    assert reading.format == to
    assert not reading.unread
    assert not reading.not_understood
    base = tc.load_model("llama-3-8b", seq=reading.facts["seq"])
    read_model, read_plan, gbs = launch_of(
        reading, base, gpus=None if to in ("trl", "torchtune", "automodel") else 8
    )
    again = tc.estimate(read_model, "dgx-h100", read_plan, gbs=gbs, assumptions="huggingface-eager")
    same = (float(again.step_seconds), float(again.memory_bytes)) == pytest.approx(
        (float(est.step_seconds), float(est.memory_bytes))
    )
    assert same or set(written.not_expressed) - {"gpus", "model"}


@pytest.mark.parametrize("to", ["trl", "axolotl", "llama-factory"])
def test_half_a_pair_is_no_micro_batch(to):
    """TRL's collator of preferences puts a chosen and a rejected answer of each row into one batch."""
    model = trained_as("dpo", tc.load_model("llama-3-8b", seq=4096))
    est = tc.estimate(model, "dgx-h100", tc.Plan(dp=8, zero=3, mbs=1), gbs=32)
    with pytest.raises(tc.InputError, match="mbs must be even"):
        tc.export(est, to)


QWEN2_VL = {  # https://huggingface.co/Qwen/Qwen2-VL-7B-Instruct, config.json
    **{"model_type": "qwen2_vl", "hidden_size": 3584, "intermediate_size": 18944, "vocab_size": 152064},
    **{"num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "hidden_act": "silu"},
    **{"max_position_embeddings": 32768, "tie_word_embeddings": False},
    "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16, "patch_size": 14},
}


@pytest.mark.parametrize(
    ("text", "side", "frozen"),
    [  # pixels of a side: whole tokens of 28
        ("finetuning_type: full\ncutoff_len: 2048\nmodel_name_or_path: VL\n", 27 * 28, True),  # 768² at most
        ("stage: sft\ncutoff_len: 2048\nmodel_name_or_path: VL\nimage_max_pixels: 262144\n", 18 * 28, True),
        ("sequence_len: 2048\nmicro_batch_size: 1\nbase_model: VL\nimage_size: 448\n", 16 * 28, False),
        ("trl sft --model_name_or_path VL --max_length 2048 --num_processes 8\n", 37 * 28, False),
    ],
)
def test_a_vision_language_model_beside_is_read_with_its_images(text, side, frozen, tmp_path):
    (tmp_path / "VL").mkdir()
    (tmp_path / "VL/config.json").write_text(json.dumps(QWEN2_VL), encoding="utf-8")
    path = tmp_path / "run.txt"
    path.write_text(text, encoding="utf-8")
    checked = tc.check(path, "dgx-h100", gpus=8)
    tower = checked.est.model.tower
    assert (tower.size, tower.frozen) == (side, frozen)
    assert any(line.startswith(f"1 image of {side} × {side}") for line in checked.reading.assumed)


def test_images_that_do_not_fit_their_sequence_are_refused_alone(tmp_path):
    """37 x 37 tokens of an image of TRL's default length of 1024; the model is known all the same."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN2_VL), encoding="utf-8")
    (tmp_path / "run.sh").write_text(f"trl sft --model_name_or_path {tmp_path}\n", encoding="utf-8")
    with pytest.raises(tc.InputError, match="must hold the 1369 tokens") as caught:
        tc.check(tmp_path / "run.sh", "dgx-h100", gpus=8)
    assert len(caught.value.problems) == 1


def test_lengths_and_images_are_given_beside_a_launch(tmp_path):
    """The launch is predicted as its plan is for the model with these documents or images."""
    (tmp_path / "VL").mkdir()
    (tmp_path / "VL/config.json").write_text(json.dumps(QWEN2_VL), encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text("sequence_len: 4096\nmicro_batch_size: 1\nbase_model: VL\nimage_size: 448\n")
    checked = tc.check(path, "dgx-h100", gpus=8, lengths="512:3,4096:1", images=2)
    model = checked.est.model
    assert (model.tower.images, model.tower.size) == (2, 448)
    assert model.documents == parse_lengths("512:3,4096:1")
    plain = tc.load_model(tmp_path / "VL/config.json", seq=4096).with_images(2, 448)
    packed = plain.fine_tuned("sft", None, model.documents)
    est = tc.estimate(packed, "dgx-h100", checked.est.plan, gbs=8, assumptions="huggingface-eager")
    assert checked.est.step_seconds == est.step_seconds
    full = tc.check(path, "dgx-h100", gpus=8, images=2)
    assert est.step_seconds < full.est.step_seconds  # tokens attend to their own document only
    assert not any("full length" in line for line in checked.reading.assumed)


def test_attention_within_documents_has_full_length_unless_lengths_are_given(tmp_path):
    plan = tc.Plan(tp=8, dp=2, sp=True)
    est = tc.estimate("llama-3-8b", "dgx-h100", plan, gbs=16)
    launch = tc.export(est, "megatron").text
    path = tmp_path / "run.sh"
    path.write_text(launch.replace("--swiglu", "--swiglu --reset-attention-mask"), encoding="utf-8")
    whole = tc.check(path, "dgx-h100")
    assert whole.est.step_seconds == est.step_seconds
    assert (
        "every sequence is one document of full length, as none of their lengths is known"
        in whole.reading.assumed
    )
    assert [each.setting for each in whole.reading.unread] == ["--reset-attention-mask"]
    checked = tc.check(path, "dgx-h100", lengths="1024")
    assert checked.est.model.documents == parse_lengths("1024")
    assert not checked.reading.unread
    assert not any("full length" in line for line in checked.reading.assumed)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lengths": "12:x", "images": 0},
            "share 'x': must be a number(.|\n)*images = 0: must be a whole number",
        ),
        ({"lengths": "12:x", "system": "no-such"}, "no-such(.|\n)*share 'x': must be a number"),
        ({"images": 2}, "llama-3-8b has no vision tower"),
    ],
)
def test_wrong_lengths_and_images_are_refused(given, message, tmp_path):
    (tmp_path / "run.yaml").write_text(AXOLOTL, encoding="utf-8")
    with pytest.raises(tc.InputError) as caught:
        tc.check(tmp_path / "run.yaml", **{"system": "dgx-h100", "gpus": 8} | given)
    assert re.search(message, str(caught.value))
