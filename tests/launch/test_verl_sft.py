"""verl's supervised fine-tuning on FSDP: its present trainer (0.9.1) and the one before it (0.5.0).

Defaults are those of verl/trainer/config/sft_trainer_engine.yaml and sft_trainer.yaml: 256 sequences of 1,024
tokens, recomputation, weights in fp32; micro-batches of 8,192 tokens, or of four sequences in the old one.
"""

import pytest

import traincast as tc

RUN = "torchrun --standalone --nproc_per_node=8 -m verl.trainer.sft_trainer model.path=Qwen/Qwen3-8B"
OLD = "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=/m/Qwen2.5-14B"


@pytest.fixture
def launch(tmp_path):
    """Function that writes a file and returns its path."""

    def write(text, name="run.sh"):
        path = tmp_path / name
        path.write_text(f"{text}\n", encoding="utf-8")
        return path

    return write


def checked(path, **options):
    return tc.check(path, "dgx-h100", **options)


@pytest.mark.parametrize(("command", "rows"), [(RUN, 8), (OLD, 4), (f"{RUN} data.use_dynamic_bsz=False", 4)])
def test_defaults(command, rows, launch):
    result = checked(launch(command))
    est = result.est
    assert (est.gbs, est.plan.mbs, est.model.seq, est.plan.dp) == (256, rows, 1024, 8)
    assert (est.plan.recompute, est.plan.zero, est.plan.precision) == ("full", 3, "bf16")
    said = "; ".join(result.reading.assumed)
    assert "train_batch_size 256" in said
    assert "defaults of verl" in said


def test_sequences_are_shared(launch):
    """Two ranks share 2 × 8,192 tokens of a micro-batch: four sequences of 4,096."""
    plan = checked(launch(f"{RUN} engine.ulysses_sequence_parallel_size=2 data.max_length=4096")).est.plan
    assert (plan.cp, plan.cp_kind, plan.dp, plan.mbs) == (2, "ulysses", 4, 4)


def test_adapters_on_a_base_in_fp32(launch):
    """model_dtype is fp32 there too, and PEFT's adapters have no dropout."""
    command = f"{RUN} model.lora_rank=32 model.target_modules=[q_proj,v_proj]"
    adapters = checked(launch(command)).est.model.adapters
    assert (adapters.rank, adapters.targets) == (32, ("q", "v"))
    assert (adapters.dtype, adapters.dropout) == ("fp32", False)


def test_a_file_of_the_settings(launch):
    text = """
data:
  train_batch_size: 64
  micro_batch_size_per_gpu: 2
  use_dynamic_bsz: false
  max_length: 2048
model:
  path: Qwen/Qwen3-8B
engine:
  strategy: fsdp2
  reshard_after_forward: false
"""
    est = checked(launch(text, "sft.yaml"), gpus=8).est
    assert (est.gbs, est.plan.mbs, est.model.seq, est.plan.zero) == (64, 2, 2048, 2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("engine=megatron", "engine = megatron: of verl's supervised fine-tuning, FSDP alone is read"),
        ("engine.fsdp_size=4", "replicas of the sharded state"),
        ("model.enable_activation_offload=True", "activations are offloaded"),
        ("optim.optimizer=Muon", "another optimizer"),
    ],
)
def test_refused_by_name(more, words, launch):
    with pytest.raises(tc.InputError) as error:
        checked(launch(f"{RUN} {more}"))
    assert words in "; ".join(error.value.problems)
