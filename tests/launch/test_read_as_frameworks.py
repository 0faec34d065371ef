"""Settings that were read in another way than the frameworks read them; each expected value is theirs.

Found by the oracle (`test_launch_oracle.py`): what the classes of DeepSpeed 0.19.8, Accelerate 1.15.0, TRL
1.16.0, LLaMA-Factory 0.9.5 and torchtitan 0.3.0 make of such files.
"""

import json

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.reader import complete_launch, read

DEEPSPEED = {"train_batch_size": 256}
FSDP2 = {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"fsdp_version": 2}}
TRL = {"model_name_or_path": "meta-llama/Meta-Llama-3-8B", "dataset_name": "x", "accelerate_config": "fsdp2"}
TOML = """
[model]
name = "llama3"
flavor = "8B"
[parallelism]
context_parallel_degree = 2
{}
"""


def launch_of(text, folder, name="launch.json", gpus=None):
    file = folder / name
    file.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    reading = read(file, READERS)
    named = "llama-3-8b" if reading.form.named_model(reading.settings) or not reading.form.model else ""
    model = tc.load_model(named) if named else None
    return complete_launch(reading, model, gpus, None, {})


@pytest.mark.parametrize(
    ("stated", "mbs"),
    [({}, 8), ({"gradient_accumulation_steps": 2}, 4), ({"train_micro_batch_size_per_gpu": 2}, 2)],
)
def test_deepspeed_divides_its_batch_among_the_ranks(stated, mbs, tmp_path):
    """runtime/config.py, _set_batch_related_parameters: 256 sequences on 32 ranks."""
    _, _, plan, gbs = launch_of(DEEPSPEED | stated, tmp_path, gpus=32)
    assert (plan.mbs, gbs) == (mbs, 256)


def test_deepspeed_offloads_nothing_without_a_stage_of_zero(tmp_path):
    zero = {"zero_optimization": {"offload_param": {"device": "cpu"}}}
    assert launch_of(DEEPSPEED | zero, tmp_path, gpus=8)[2].offload == "none"


def test_bf16_of_deepspeed_counts_before_its_old_name(tmp_path):
    both = {"bf16": {"enabled": False}, "bfloat16": {"enabled": True}}
    assert launch_of(DEEPSPEED | both, tmp_path, gpus=8)[2].precision == "fp32"


def test_musgd_is_sgd(tmp_path):
    """runtime/engine.py, MUSGD_OPTIMIZER: MuSGD of mup, which is torch's SGD."""
    optimizer = {"optimizer": {"type": "MuSGD"}}
    assert launch_of(DEEPSPEED | optimizer, tmp_path, gpus=8)[2].optimizer_kind == "sgd"


@pytest.mark.parametrize(("word", "kind"), [("alltoall", "ring"), ("allgather", "all-gather")])
def test_context_parallelism_by_all_to_all_is_a_ring(word, kind, tmp_path):
    """Accelerate, parallelism_config.py, and torchtitan's job_config.py name PyTorch's rotation so."""
    prefix = "parallelism_config_"
    mesh = {f"{prefix}cp_size": 4, f"{prefix}dp_shard_size": 2, f"{prefix}cp_comm_strategy": word}
    assert launch_of(FSDP2 | {"parallelism_config": mesh}, tmp_path)[2].cp_kind == kind
    rotation = f'context_parallel_rotate_method = "{word}"'
    assert launch_of(TOML.format(rotation), tmp_path, "run.toml", gpus=8)[2].cp_kind == kind


def test_degrees_of_the_launcher_need_its_switch(tmp_path):
    """commands/launch.py: without --use_parallelism_config, or a section of its file, there is no mesh."""
    reading, _, plan, _ = launch_of(TRL | {"parallelism_config_cp_size": 4}, tmp_path, "sft.yaml")
    assert (plan.cp, plan.dp) == (1, 8)
    assert any("no effect without use_parallelism_config" in note for note in reading.assumed)


def test_trl_loads_the_model_in_its_own_dtype(tmp_path):
    """scripts/sft.py fills in `dtype`, float32 by default; transformers leaves the old name beside it."""
    old_name = {"model_init_kwargs": {"torch_dtype": "bfloat16"}, "accelerate_config": "multi_gpu"}
    assert launch_of(TRL | old_name, tmp_path, "sft.yaml")[2].precision == "bf16"


@pytest.mark.parametrize(("word", "reshards", "zero"), [("full_shard", False, 2), ("shard_grad_op", True, 3)])
def test_fsdp_of_the_trainer_is_of_its_own_version(word, reshards, zero, tmp_path):
    """training_args.py, _process_fsdp_args: version 2 unless its section says 1, whatever Accelerate has."""
    own = {"fsdp": word, "fsdp_config": {"reshard_after_forward": reshards}, "accelerate_config": "fsdp1"}
    assert launch_of(TRL | own, tmp_path, "sft.yaml")[2].zero == zero


def test_llama_factory_is_known_by_its_stage_and_template(tmp_path):
    text = "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ntemplate: llama3\n"
    reading, _, _, _ = launch_of(text, tmp_path, "sft.yaml", gpus=8)
    assert (reading.format, reading.facts["seq"]) == ("llama-factory", 2048)


def test_nothing_is_sharded_where_every_rank_is_a_replica(tmp_path):
    """distributed/parallel_dims.py: the shards of llama3_8b are what is left, here one."""
    command = "torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b"
    degrees = "--parallelism.data_parallel_replicate_degree 2 --parallelism.tensor_parallel_degree 4"
    plan = launch_of(f"{command} {degrees}\n", tmp_path, "run.sh")[2]
    assert (plan.dp, plan.zero) == (2, 0)
