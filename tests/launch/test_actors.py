"""The actor's training step of launches of reinforcement learning; expected values are by hand."""

import pytest

import traincast as tc

VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.critic_warmup=0 \\
    data.max_prompt_length=512 data.max_response_length=1024 trainer.n_gpus_per_node=8 trainer.nnodes=2 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.n=5 {}
"""
OPENRLHF = """ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 \\
    --actor_num_gpus_per_node 8 --vllm_num_engines 2 --ref_num_gpus_per_node 8 \\
    --pretrain meta-llama/Llama-2-7b-hf \\
    --micro_train_batch_size 2 --train_batch_size 128 --prompt_max_len 1024 --generate_max_len 2048 \\
    --zero_stage 3 --bf16 {}
"""
SLIME = """ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 \\
    --num-rollout 3000 --rollout-batch-size 32 --n-samples-per-prompt 8 --rollout-max-response-len 8192 \\
    --tensor-model-parallel-size 2 --sequence-parallel --use-dynamic-batch-size --max-tokens-per-gpu 9216 {}
"""


def est_of(tmp_path, text, **given):
    path = tmp_path / "run.sh"
    path.write_text(text, encoding="utf-8")
    return tc.check(path, "dgx-h100", actor=True, **given).est


@pytest.mark.parametrize("text", [VERL, OPENRLHF, SLIME])
def test_the_actor_is_read_on_request_alone(text, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(text.format(""), encoding="utf-8")
    with pytest.raises(tc.InputError, match="--actor reads the actor's training step alone"):
        tc.check(path, "dgx-h100")


def test_other_launches_have_no_actor(tmp_path):
    with pytest.raises(tc.InputError, match="--actor: this is no launch of verl, OpenRLHF or slime"):
        est_of(tmp_path, "torchrun pretrain_gpt.py --num-layers 2 --perform-rl-step --grpo-iterations 2")


def test_verl_on_fsdp(tmp_path):
    """256 prompts with 5 answers each; FSDP shards over the 16 GPUs, and layers are recomputed by default."""
    est = est_of(tmp_path, VERL.format(""))
    plan = est.plan
    assert (est.model.name, est.model.seq, est.gbs) == ("qwen2.5-7b", 1536, 1280)
    assert (plan.dp, plan.mbs, plan.zero, plan.recompute, plan.precision) == (16, 4, 3, "full", "bf16")


def test_dynamic_micro_batches_of_verl(tmp_path):
    """As many sequences of 1,536 tokens as divide the 80 of a GPU: 10, though 15 have 24,000 tokens."""
    actor = "actor_rollout_ref.actor"
    est = est_of(
        tmp_path, VERL.format(f"{actor}.use_dynamic_bsz=True {actor}.ppo_max_token_len_per_gpu=24000")
    )
    assert (est.plan.dp, est.plan.mbs, est.gbs) == (16, 10, 1280)


def test_verl_on_megatron_lm(tmp_path):
    degrees = "actor_rollout_ref.actor.megatron.{}_model_parallel_size=2"
    est = est_of(tmp_path, VERL.format(f"{degrees.format('tensor')} {degrees.format('pipeline')}"))
    plan = est.plan
    assert (est.model.name, est.model.seq, est.gbs) == ("qwen2.5-7b", 1536, 1280)
    assert (plan.tp, plan.pp, plan.dp, plan.mbs, plan.zero, plan.sp) == (2, 2, 4, 4, 1, True)


def test_end_stages_of_verl_on_megatron_lm(tmp_path):
    """As in examples/grpo_trainer/run_deepseek671b_math_megatron_80gb.sh (volcengine/verl b178a3c)."""
    megatron = "actor_rollout_ref.actor.megatron"
    layers = f"{megatron}.override_transformer_config.num_layers_in_{{}}_pipeline_stage={{}}"
    more = (
        f"{megatron}.pipeline_model_parallel_size=4 +{layers.format('first', 6)} +{layers.format('last', 8)}"
    )
    assert est_of(tmp_path, VERL.format(more)).plan.layout == "6,7,7,8"


def test_openrlhf(tmp_path):
    est = est_of(tmp_path, OPENRLHF.format("--gradient_checkpointing --adam_offload"))
    plan = est.plan
    assert (est.model.name, est.model.seq, est.gbs) == ("llama-2-7b", 3072, 128)
    assert (plan.dp, plan.mbs, plan.zero, plan.recompute, plan.offload) == (8, 2, 3, "full", "optimizer")


def test_slime(tmp_path):
    """32 prompts with 8 answers; it sets bf16 and the distributed optimizer by itself."""
    est = est_of(tmp_path, SLIME.format(""), model="llama-3-8b")
    plan = est.plan
    assert (est.model.seq, est.gbs) == (8192, 256)
    assert (plan.tp, plan.dp, plan.mbs, plan.precision, plan.zero) == (2, 4, 1, "bf16", 1)


def test_dynamic_micro_batches_of_slime(tmp_path):
    """Of 9,216 tokens on each of 2 context ranks: 4 sequences of 4,096, which divide the 128 of a replica."""
    text = SLIME.replace("8192", "4096").format("--context-parallel-size 2")
    est = est_of(tmp_path, text, model="llama-3-8b")
    assert (est.plan.cp, est.plan.dp, est.plan.mbs, est.gbs) == (2, 2, 4, 256)


def test_dynamic_micro_batches_of_verl_on_megatron_lm(tmp_path):
    """Of a replica's 320 sequences of 1,536 tokens 20 divide them, though 21 fit 16,384 on each of 2 GPUs."""
    more = "megatron.{0}_parallel_size=2 megatron.{1}_parallel_size=2 use_dynamic_bsz=True"
    named = more.format("context", "tensor_model").split()
    more = " ".join(f"actor_rollout_ref.actor.{each}" for each in named)
    est = est_of(tmp_path, VERL.format(more))
    assert (est.plan.tp, est.plan.cp, est.plan.dp, est.plan.mbs) == (2, 2, 4, 20)


def test_fine_tuning_with_slime_is_not_called_reinforcement_learning(tmp_path):
    """As scripts/run-qwen3-4B-base-sft.sh (THUDM/slime 624b824)."""
    path = tmp_path / "run.sh"
    path.write_text(SLIME.format("--loss-type sft_loss"), encoding="utf-8")
    with pytest.raises(tc.InputError, match=r"slime .supervised fine-tuning.*--actor reads"):
        tc.check(path, "dgx-h100")


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (VERL, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", "sequences are sharded (Ulysses)"),
        (
            VERL,
            "actor_rollout_ref.rollout.n=9 actor_rollout_ref.actor.ppo_mini_batch_size=20",
            "180 sequences does not divide over 16 ranks by 4",
        ),
        (OPENRLHF, "--micro_train_batch_size 3", "128 sequences does not divide over 8 ranks by 3"),
        (OPENRLHF, "--use_dynamic_batch", "micro-batches of varying length"),
        (SLIME, "--tensor-model-parallel-size none4", "--tensor-model-parallel-size = 'none4'"),
    ],
)
def test_what_is_not_read_is_refused_by_name(text, more, said, tmp_path):
    given = {"model": "llama-3-8b"} if text is SLIME else {}
    with pytest.raises(tc.InputError) as caught:
        est_of(tmp_path, text.format(more), **given)
    assert said in str(caught.value)
