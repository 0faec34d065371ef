"""What launches state of memory: the optimizer's step, FSDP, DeepSpeed's buckets, and the loss.

Defaults: transformers 5.23.0 (training_args.py), TRL 1.16.0 (kernels/chunked_logprob.py), DeepSpeed 0.19.8
(runtime/zero/config.py), LLaMA-Factory (hparams/model_args.py), torchtitan 0.3.0 (components/loss.py).
"""

import json

import pytest

import traincast as tc

TRL = """
model_name_or_path: Qwen/Qwen3-8B
per_device_train_batch_size: 1
gradient_accumulation_steps: 1
max_length: 4096
bf16: true
"""
FSDP = "use_peft: true\nlora_r: 16\nlora_target_modules: [q_proj, v_proj]\nfsdp: full_shard\n"


def memory_of(text, tmp_path, name="run.yaml", **asked):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return tc.check(path, "dgx-h100", gpus=8, **asked).est.assumptions.memory


@pytest.mark.parametrize(
    ("line", "expected"), [("", False), ("optim: adamw_torch\n", True), ("optim: adamw_torch_fused\n", False)]
)
def test_the_step_over_lists_is_that_of_the_optimizer_named(line, expected, tmp_path):
    assert memory_of(TRL + line, tmp_path).foreach_step == expected


@pytest.mark.parametrize(("line", "is_open"), [("", True), ("optim: adamw_torch\n", False)])
def test_the_release_of_pytorch_decides_a_step_that_no_file_names(line, is_open, tmp_path):
    """The default of optim is the fused one from PyTorch 2.8 on (transformers 5.23.0, training_args.py)."""
    path = tmp_path / "run.yaml"
    config = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    short = TRL.replace("4096", "64") + "gradient_checkpointing: true\nlogging_steps: 1\n"
    path.write_text(short + "deepspeed: ds.json\n" + line, encoding="utf-8")
    checked = tc.check(path, "dgx-h100", gpus=8)
    parts = checked.est.memory_alternatives
    assert [part.weight for part in parts] == ([0.5, 0.5] if is_open else [1.0])
    assert any("PyTorch 2.8 or later" in text for text in checked.reading.assumed) == is_open
    if is_open:  # DeepSpeed's gradients and the roots in fp32, in place of gradients flattened and in fp32
        most = 2 * 1e9 * (1 + checked.est.assumptions.memory.allocator_share)
        assert parts[0].nbytes == pytest.approx(checked.est.memory_bytes)
        assert parts[0].nbytes < parts[1].nbytes <= parts[0].nbytes + most


def test_an_argument_that_is_gone_dates_the_step(tmp_path):
    """evaluation_strategy is gone since April 2025, and PyTorch 2.8, with which AdamW is fused, of August."""
    path = tmp_path / "run.yaml"
    path.write_text(TRL + "fsdp: full_shard\nevaluation_strategy: 'no'\n", encoding="utf-8")
    checked = tc.check(path, "dgx-h100", gpus=8)
    memory = checked.est.assumptions.memory
    assert (memory.foreach_step, memory.foreach_open) == (True, False)
    assert any("optim adamw_torch:" in text for text in checked.reading.assumed)


def test_synchronised_batches_are_reduced_one_by_one(tmp_path):
    accumulated = TRL.replace("gradient_accumulation_steps: 1", "gradient_accumulation_steps: 4")
    each = "accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}\n"
    lines = "fsdp: full_shard\nfsdp_config: {version: 2}\n"
    whole, reduced = (
        memory_of(accumulated + lines + line, tmp_path).accumulates_whole for line in ("", each)
    )
    assert whole
    assert not reduced


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("fsdp_config: {version: 1}\n", False),  # transformers 5: not reentrant
        ("fsdp_config: {version: 1}\ngradient_checkpointing_kwargs: {use_reentrant: true}\n", True),
        ("gradient_checkpointing_kwargs: {use_reentrant: true}\n", False),  # FSDP2
    ],
)
def test_reentrant_checkpoints_keep_frozen_layers_under_fsdp(lines, expected, tmp_path):
    assert memory_of(TRL + FSDP + lines, tmp_path).keeps_frozen_layers == expected


def test_the_loss_of_trl_makes_logits_in_tiles(tmp_path):
    """Of 4,096 tokens and 32,768 words in 16 bits; logits of all tokens are never there."""
    memory = memory_of(TRL, tmp_path)
    assert memory.logit_bytes < 1
    assert memory.library_bytes == 4096 * 32768 * 2


@pytest.mark.parametrize(
    ("zero", "bucket", "stepped"),
    [
        ({}, 5e8, 1e9),
        ({"reduce_bucket_size": 2e8, "sub_group_size": 1e8}, 2e8, 1e8),
        ({"reduce_bucket_size": "auto"}, 0, 1e9),
    ],
)
def test_buckets_of_deepspeed(zero, bucket, stepped, tmp_path):
    config = {"zero_optimization": {"stage": 3, **zero}, "bf16": {"enabled": True}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    memory = memory_of(TRL + "deepspeed: ds.json\n", tmp_path)
    assert (memory.reduce_bucket, memory.stepped_parameters) == (bucket, stepped)


TITAN = '''"""A configuration."""
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import CompileConfig, TrainingConfig
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer


def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        loss={loss},
        model_spec=model_registry("8B"),
        optimizer=default_adamw(lr=1e-4),
        training=TrainingConfig(local_batch_size=1, seq_len=8192),
        compile=CompileConfig(enable=True),
    )
'''


@pytest.mark.parametrize(
    ("loss", "least", "most"),
    [
        ("CrossEntropyLoss.Config()", 4, 4),
        (
            "ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config())",
            0.5,
            0.7,
        ),  # 4 / 8 chunks and a buffer
        ("ChunkedLossWrapper.Config(num_chunks=2, loss_fn=CrossEntropyLoss.Config())", 2, 2.2),
    ],
)
def test_the_loss_of_torchtitan_in_chunks(loss, least, most, tmp_path):
    text = TITAN.replace("{loss}", loss)
    assert least <= memory_of(text, tmp_path, "config.py", framework="torchtitan").logit_bytes <= most


@pytest.mark.parametrize(("argument", "precision"), [("eval", "bf16-pure"), ("evaluation", "bf16")])
def test_releases_before_transformers_5_load_weights_in_fp32(argument, precision, tmp_path):
    """Those with evaluation_strategy: 4 bytes of weights that are trained under autocast, not 2."""
    path = tmp_path / "run.sh"
    path.write_text(
        "torchrun --nproc_per_node 1 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True"
        f" --per_device_train_batch_size 1 --model_max_length 512 --{argument}_strategy no\n",
        encoding="utf-8",
    )
    checked = tc.check(path, "dgx-h100", gpus=1)
    assert checked.est.plan.precision == precision
    assert any("loaded in fp32" in text for text in checked.reading.assumed) == (precision == "bf16")
