"""What moves tokens to experts where a file does not say it: each program's own default."""

import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack

MOE_NEMO = """
trainer: {{num_nodes: 4, devices: 8, precision: bf16}}
exp_manager: {{name: megatron_gpt}}
model:
  micro_batch_size: 1
  global_batch_size: 256
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 1
  expert_model_parallel_size: 8
  num_moe_experts: {experts}
  {more}
  encoder_seq_length: 4096
  max_position_embeddings: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  bias: false
  activation: fast-swiglu
  tokenizer: {{type: GPT2BPETokenizer}}
  megatron_amp_O2: True
  optim: {{name: mcore_distributed_optim, overlap_grad_sync: True}}
"""
MOE_PRIMUS = """
work_group: amd
exp_name: run
modules:
  pre_trainer:
    framework: megatron
    model: language_model.yaml
    overrides:
      num_layers: 32
      hidden_size: 4096
      ffn_hidden_size: 14336
      num_attention_heads: 32
      group_query_attention: true
      num_query_groups: 8
      vocab_size: 32000
      num_experts: 8
      expert_model_parallel_size: 8
      micro_batch_size: 1
      global_batch_size: 64
      seq_length: 4096
      {more}
"""
MOE_SLIME = """ray job submit -- python3 train.py --actor-num-nodes 4 --actor-num-gpus-per-node 8 \\
    --num-rollout 3000 --rollout-batch-size 32 --n-samples-per-prompt 8 --rollout-max-response-len 4096 \\
    --micro-batch-size 1 --expert-model-parallel-size 8 {more}
"""
MOE_VERL = """python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer \\
    data.max_prompt_length=1024 data.max_response_length=3072 trainer.n_gpus_per_node=8 trainer.nnodes=4 \\
    actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.actor.strategy=megatron {more}
"""
OVERRIDE = "+actor_rollout_ref.actor.megatron.override_transformer_config.moe_token_dispatcher_type"


def read_experts(tmp_path, text, name, **given):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return tc.check(path, "dgx-h100", **given)


def dispatcher_of(checked):
    """Return what moves tokens, and what is assumed of it."""
    stack = checked.est.assumptions.name
    notes = [line for line in checked.reading.assumed if "moe_token_dispatcher_type" in line]
    return Stack(stack).facts.get("dispatcher", "alltoall"), notes


ACTOR = {"actor": True}


@pytest.mark.parametrize(
    ("text", "name", "given", "dispatcher", "owner"),
    [
        (MOE_NEMO, "moe.yaml", {}, "allgather", "Megatron-Core"),
        (MOE_PRIMUS, "primus.yaml", {}, "allgather", "Primus"),
        (MOE_SLIME, "slime.sh", {**ACTOR, "model": "mixtral-8x7b"}, "alltoall", "slime"),
        (MOE_VERL, "verl.sh", ACTOR, "alltoall", "verl"),
    ],
)
def test_an_absent_dispatcher_is_the_programs_default_and_said(
    text, name, given, dispatcher, owner, tmp_path
):
    """TransformerConfig of Megatron-Core 0.19.2 has allgather, as has Primus's language_model.yaml (0158a86).

    slime (1cddc5d, validate_args) and verl 0.9.1 (config_converter.py) set alltoall, since lengths vary.
    """
    found, notes = dispatcher_of(read_experts(tmp_path, text.format(experts=8, more=""), name, **given))
    assert found == dispatcher
    assert notes == [f"moe_token_dispatcher_type {dispatcher}: not set, the default of {owner}"]


@pytest.mark.parametrize(
    ("text", "name", "more", "given", "dispatcher"),
    [
        (MOE_NEMO, "moe.yaml", "moe_token_dispatcher_type: alltoall", {}, "alltoall"),
        (MOE_PRIMUS, "primus.yaml", "moe_token_dispatcher_type: alltoall", {}, "alltoall"),
        (MOE_VERL, "verl.sh", f"{OVERRIDE}=allgather", ACTOR, "allgather"),
        # of which slime says that it does not support variable lengths, and takes alltoall
        (
            MOE_SLIME,
            "slime.sh",
            "--moe-token-dispatcher-type allgather",
            {**ACTOR, "model": "mixtral-8x7b"},
            "alltoall",
        ),
    ],
)
def test_a_stated_dispatcher_is_read(text, name, more, given, dispatcher, tmp_path):
    checked = read_experts(tmp_path, text.format(experts=8, more=more), name, **given)
    assert dispatcher_of(checked) == (dispatcher, [])


def test_models_without_experts_have_no_dispatcher(tmp_path):
    text = MOE_NEMO.replace("  expert_model_parallel_size: 8\n", "").format(experts="null", more="")
    assert dispatcher_of(read_experts(tmp_path, text, "dense.yaml"))[1] == []


MOE_SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
    --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \\
    --global-batch-size 64 --bf16 --vocab-size 32000 --tokenizer-type NullTokenizer --num-experts 8 \\
    --expert-model-parallel-size 8 --moe-grouped-gemm --use-distributed-optimizer {more}
"""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ncclep", "as DeepEP does"),
        (
            "--moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend ncclep",
            "refuses this launch; the answer is as if it ran: --moe-flex-dispatcher-backend ncclep needs"
            " --moe-token-dispatcher-type flex",
        ),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", ""),
        ("--moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend hybridep", ""),
    ],
)
def test_the_dispatcher_of_nccl_is_said(more, said, tmp_path):
    """Megatron-Core 0.19.2, transformer_config.py: ncclep raises a ValueError beside other dispatchers."""
    checked = read_experts(tmp_path, MOE_SCRIPT.format(more=more), "run.sh")
    lines = [line for line in checked.reading.assumed if "ncclep" in line]
    assert len(lines) == bool(said)
    assert all(said in line for line in lines)


MOE_PROGRAM = """
import nemo_run as run
from nemo import lightning as nl
from nemo.collections import llm


def pretrain_recipe():
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=1, expert_model_parallel_size=8)
    return run.Partial(
        llm.pretrain,
        model=run.Config(llm.MixtralModel, config=run.Config(llm.MixtralConfig8x7B{more})),
        trainer=run.Config(nl.Trainer, devices=8, num_nodes=4, plugins=bf16_mixed(), strategy=strategy),
        data=run.Config(MockDataModule, seq_length=4096, global_batch_size=128, micro_batch_size=1),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4),
    )
"""
MOE_BRIDGE = """torchrun --nproc_per_node 8 --nnodes 4 train.py model.num_layers=32 model.hidden_size=4096 \\
    model.ffn_hidden_size=14336 model.num_attention_heads=32 model.num_query_groups=8 \\
    model.num_moe_experts=8 model.seq_length=4096 model.vocab_size=32000 \\
    model.expert_model_parallel_size=8 train.micro_batch_size=1 train.global_batch_size=128 \\
    model.gated_linear_unit=true mixed_precision=bf16_mixed ddp.use_distributed_optimizer=true {more}
"""


@pytest.mark.parametrize(
    ("text", "name", "stated", "whose"),
    [
        (MOE_PROGRAM, "moe.py", ', moe_token_dispatcher_type="alltoall"', "the default of NeMo's model"),
        (MOE_BRIDGE, "moe.sh", "model.moe_token_dispatcher_type=alltoall", "most models of Megatron-Bridge"),
    ],
)
def test_model_configurations_exchange_all_to_all_unless_told_otherwise(text, name, stated, whose, tmp_path):
    """NeMo (02f25a8), llm/gpt/model/mixtral.py; Megatron-Bridge 0.6, models/qwen/qwen3_moe_bridge.py."""
    absent = read_experts(tmp_path, text.format(more=""), name)
    (note,) = dispatcher_of(absent)[1]
    assert note.startswith("moe_token_dispatcher_type alltoall: not set")
    assert whose in note
    given = read_experts(tmp_path, text.format(more=stated), name)
    assert dispatcher_of(given)[1] == []
    assert given.est.step_seconds == absent.est.step_seconds
