"""Readings of short files in the shape of published launches; figures are those of the files named."""
# ruff: noqa: E501

from pathlib import Path

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.scripts.shell import Script, interpret
from traincast.launch.settings.given import Given

YAML_OF_TESTS = """
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: ${PP}
  --use-distributed-optimizer: true
  --sequence-parallel: true
  --disable-bias-linear: true
  --micro-batch-size: 1
  --global-batch-size: 256
  --tokenizer-type: Llama2Tokenizer
  --untie-embeddings-and-output-weights: true
  --position-embedding-type: rope
  --normalization: RMSNorm
  --swiglu: true
  --num-layers: 56
  --hidden-size: 6144
  --ffn-hidden-size: 16384
  --num-attention-heads: 48
  --group-query-attention: true
  --num-query-groups: 8
  --seq-length: 4096
  --max-position-embeddings: 4096
  --attention-dropout: 0.0
  --hidden-dropout: 0.0
  --expert-model-parallel-size: 8
  --num-experts: 8
  --moe-router-topk: 2
  --moe-token-dispatcher-type: alltoall
  --bf16: true
"""
NEOX = """{
  # comments and commas at the end, as the program takes them
  "pipe-parallel-size": 4, "model-parallel-size": 2,
  "num-layers": 44, "hidden-size": 6144, "num-attention-heads": 64,
  "seq-length": 2048, "max-position-embeddings": 2048,
  "pos-emb": "rotary", "rotary-pct": 0.25, "no-weight-tying": true, "gpt-j-residual": true,
  "zero_optimization": {"stage": 1, "overlap_comm": True,},
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 32,
  "checkpoint-activations": true, "fp16": {"enabled": true},
}
"""
NEMO = """
trainer: {num_nodes: 128, devices: 8, precision: bf16}
exp_manager: {name: megatron_gpt}
model:
  micro_batch_size: 1
  global_batch_size: 2048
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 8
  virtual_pipeline_model_parallel_size: 6
  encoder_seq_length: 2048
  max_position_embeddings: 2048
  num_layers: 96
  hidden_size: 12288
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 96
  activations_checkpoint_granularity: null
  sequence_parallel: True
  tokenizer: {type: GPT2BPETokenizer}
  megatron_amp_O2: True
  precision: bf16
  use_flash_attention: true
  optim: {name: mcore_distributed_optim, overlap_grad_sync: True}
"""
PRIMUS = """
work_group: amd
exp_name: run
modules:
  pre_trainer:
    framework: megatron
    model: llama3.1_8B.yaml
    overrides:
      micro_batch_size: 2
      global_batch_size: ${GBS:128}
      seq_length: 8192
      tensor_model_parallel_size: 1
      overlap_grad_reduce: true
"""
PRIMUS_TITAN = """
work_group: amd
exp_name: run
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: llama3.1_8B-fp8.yaml
    overrides:
      metrics: {log_freq: 1}
      training: {local_batch_size: 5, seq_len: 8192, steps: 50, mock_data: false}
      activation_checkpoint: {mode: none, selective_ac_option: op}
      primus_turbo: {enable_primus_turbo: true, enable_attention_float8: false}
"""
MLPERF = """
export MINIBS="${MINIBS:=128}"
export TENSOR_MODEL_PARALLEL=4
export PIPELINE_MODEL_PARALLEL=8
export DGXNNODES="${DGXNNODES:=64}"
export FP8=True
export MICRO_BATCH_SIZE=2
export INTERLEAVED_PIPELINE=6
"""
MLPERF_LORA = """
export MBS=1 PP=1 SP=1 FP8=True
export MINIBS=1
export TP=4
export CP=2
export TP_COMM_OVERLAP=1
export FP8_DPA=0
export SKIP_EVALS=3
export DGXNNODES=8
"""
PRIMUS_405B = """
work_group: a
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${PRIMUS_MODEL:llama3.1_405B}.yaml
    overrides: {global_batch_size: 256, seq_length: 8192, tensor_model_parallel_size: 8, fp8: hybrid,
      pipeline_model_parallel_size: 9, multi_latent_attention: false}
"""
SMOLLM3 = """
parallelism: {dp: 12, pp: 1, tp: 2, context_parallel_size: 4, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER}
model:
  model_config:
    {is_qwen2_config: true, hidden_size: 2048, intermediate_size: 11008, num_attention_heads: 16, num_hidden_layers: 36,
     num_key_value_heads: 4, vocab_size: 128256, _attn_implementation: llama3_ring_attention, ring_attn_heads_k_stride: 1}
tokens: {sequence_length: 32768, micro_batch_size: 1, batch_accumulation_per_replica: 6}
optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}
"""
NEOX_EXPERTS = """{
  "pipe_parallel_size": 1, "model_parallel_size": 1, "num_layers": 12, "hidden_size": 768, "pos_emb": "rotary",
  "num_attention_heads": 12, "seq_length": 2048, "max_position_embeddings": 2048, "no_weight_tying": true,
  "moe_num_experts": 8, "te_mha": true, "te_fp8_format": "hybrid", "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}, "precision": "bfloat16",
  "make_vocab_size_divisible_by": 128, "vocab_size": 50304
}"""
MODEL_ZOO = """
export MODEL=DeepSeek-V3 MBS=1 SEQ_LEN=4096
A2A_OVERLAP=1 PP=8 VPP=4 TP=2 EP=64 NNODES=128 GBS=8192 PR=fp8 bash sbatch_benchmarking.sh \\
    --recompute-granularity selective --recompute-modules mla_up_proj mlp \\
    --pipeline-model-parallel-layout "'Et|(tt|)*30L'"
PR=mxfp8 TP=1 PP=8 EP=32 NNODES=32 GBS=2048 bash sbatch_benchmarking.sh \\
    --pipeline-model-parallel-layout "Et|(tt|)*30L"
"""
RECIPES = """
def llama3_8b_pretrain_8gpu_h100_bf16_config():
    cfg = llama3_8b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.context_parallel_size = 2
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 1
    _llama_benchmark_common(cfg)
    return cfg


def llama31_405b_pretrain_128gpu_b200_fp8cs_config():
    cfg = llama31_405b_pretrain_config()
    cfg.mixed_precision = _perf_precision("fp8_cs")
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 16
    cfg.model.virtual_pipeline_model_parallel_size = 8
    cfg.model.sequence_parallel = True
    return _with_global_batch_size(cfg, 768) if False else cfg
"""
REGISTRY = """
from torchtitan.models.deepseek_v3.mtp import MTPLoss
from . import model_registry

def deepseek_v3_16b():
    return Trainer.Config(
        model_spec=model_registry("16B", attn_backend="flex"),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=4 * 4096, max_context_length=4096),
        parallelism=ParallelismConfig(expert_parallel_degree=8),
        activation_checkpoint=SelectiveAC.Config(),
    )

def deepseek_v3_16b_hybridep():
    config = deepseek_v3_16b()
    config.model_spec = model_registry("16B", moe_comm_backend="hybridep")
    return config
"""
SIZES = "--hidden-size {} --num-attention-heads {} --seq-length {} --max-position-embeddings {} "
BERT = (
    "torchrun --nproc_per_node 8 pretrain_bert.py --num-layers 24 " + SIZES.format(1024, 16, 512, 512)
    + "--micro-batch-size 4 --global-batch-size 32 --fp16 --tokenizer-type BertWordPieceLowerCase"
)  # fmt: skip
T5 = (
    "torchrun --nproc_per_node 8 pretrain_t5.py --encoder-num-layers 12 --decoder-num-layers 12 "
    "--hidden-size 768 --num-attention-heads 12 --kv-channels 64 --ffn-hidden-size 3072 "
    "--encoder-seq-length 512 --decoder-seq-length 128 --max-position-embeddings 512 "
    "--micro-batch-size 64 --global-batch-size 512 --bf16 --tokenizer-type BertWordPieceCase"
)
HYBRID = (
    'SCALE="8B"\ncase "${SCALE}" in\n "800M") H=1024; TP=1 ;;\n "8B")\n H=4096\n TP=4 ;;\nesac\n'
    "torchrun --nproc_per_node 8 pretrain_hybrid.py --tensor-model-parallel-size ${TP} --bf16 "
    "--hybrid-layer-pattern M-M*- --spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec "
    "--vocab-size 32000 --micro-batch-size 4 --global-batch-size 8 --disable-bias-linear "
    + SIZES.format("$H", 32, 4096, 4096)
)
BLOOM = (
    "#SBATCH --nodes=16\nGPUS_PER_NODE=4\n"
    "torchrun --nnodes $SLURM_NNODES --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py --num-layers 30 "
    + SIZES.format(4096, 32, 2048, 2048)
    + "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --fp16 --checkpoint-activations "
    "--pp-partition-method 'type:transformer|embedding' --position-embedding-type alibi "
    "--pad-vocab-size-to 250880 --micro-batch-size 1 --global-batch-size 512 --deepspeed --zero-stage 0"
)
EXPERTS = (
    "deepspeed --num_nodes 8 --num_gpus 8 pretrain_gpt.py --num-layers 24 "
    + SIZES.format(2048, 16, 2048, 2048)
    + "--num-experts 128 --moe-expert-parallel-size 64 --moe-train-capacity-factor 1.0 --topk 1 --fp16 "
    "--vocab-size 50304 --micro-batch-size 8 --global-batch-size 512 --deepspeed --zero-stage 0"
)
AWS = (
    '#SBATCH --nodes=4\n: "${LAYERS:=36}"\nif [ $NODES -le 4 ]; then\n  : "${TP:=4}"\nelse\n  : "${TP:=8}"\nfi\n'
    "torchrun --nproc_per_node=8 --nnodes=$SLURM_JOB_NUM_NODES pretrain_gpt.py --num-layers $LAYERS "
    + SIZES.format(4096, 32, 2048, 2048)
    + "--tensor-model-parallel-size $TP --vocab-size 50304 --micro-batch-size 1 --global-batch-size 288 --fp16 "
    "--recompute-activations"
)
MAMBA = """
parallelism: {dp: 2, pp: 2, tp: 2, pp_engine: 1f1b, tp_mode: ALL_REDUCE}
model:
  dtype: bfloat16
  model_config:
    d_model: 1536
    is_mamba_config: true
    num_hidden_layers: 48
    pad_vocab_size_multiple: 8
    ssm_cfg: {bias: false, conv_bias: true, d_conv: 4, d_state: 16, dt_rank: auto, expand: 2}
    vocab_size: 50277
tokens: {sequence_length: 2048, micro_batch_size: 2, batch_accumulation_per_replica: 1}
optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}
"""
MPT = """
variables: {max_seq_len: 2048, global_seed: 17}
max_seq_len: ${variables.max_seq_len}
model:
  name: mpt_causal_lm
  d_model: 4096
  n_heads: 32
  n_layers: 32
  expansion_ratio: 4
  max_seq_len: ${variables.max_seq_len}
  vocab_size: 50368
  attn_config: {attn_impl: flash}
train_loader: {name: text, dataset: {max_seq_len: 2048}}
optimizer: {name: decoupled_adamw, lr: 1.2e-4}
algorithms: {gradient_clipping: {clipping_type: norm, clipping_threshold: 1.0}}
max_duration: 63900ba
global_train_batch_size: 1024
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE, activation_checkpointing: true}
"""
GPT = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 36 " + SIZES.format(4096, 32, 2048, 2048)
    + "--micro-batch-size 1 --global-batch-size 64 --bf16 "
)  # fmt: skip
YAML_OF_BERT = (
    "MODEL_ARGS:\n  --num-layers: 24\n  --hidden-size: 1024\n  --num-attention-heads: 16\n  --seq-length: 512\n"
    "  --max-position-embeddings: 512\n  --micro-batch-size: 4\n  --global-batch-size: 128\n  --bf16: true\n"
)
READINGS = {  # repository, path and commit: text, what is given, and figures of that file
    "NVIDIA/Megatron-LM tests/functional_tests/test_cases/mixtral/mixtral_8x22b_tp2pp8ep8vpp1_release d98e8a6": (
        YAML_OF_TESTS, {"gpus": 256, "variables": {"PP": "8"}},
        {"format": "megatron-yaml", "model": "mixtral-8x22b", "tp": 2, "pp": 8, "ep": 8, "zero": 1, "gbs": 256}),
    "EleutherAI/gpt-neox configs/20B.yml ea7aefd": (
        NEOX, {"gpus": 96, "vocab": 50432},
        {"format": "gpt-neox", "tp": 2, "pp": 4, "dp": 12, "mbs": 4, "gbs": 1536, "zero": 1,
         "precision": "fp16", "recompute": "full", "attention": "unfused", "dropout": False, "billions": 20.55}),  # arXiv 2204.06745, table 1
    "NVIDIA/NeMo-Framework-Launcher launcher_scripts/conf/training/gpt3/175b.yaml 26e42fa": (
        NEMO, {}, {"format": "nemo", "gpus": 1024, "tp": 4, "pp": 8, "vp": 6, "gbs": 2048, "sp": True,
                   "zero": 1, "precision": "bf16", "recompute": "none", "billions": 174.6}),
    "NVIDIA/Megatron-LM tests/functional_tests/test_cases/bert/bert_mcore_tp2_pp2 d98e8a6, in part": (
        YAML_OF_BERT + "  --data-path: /data/my-bert_00_text_sentence\n", {"gpus": 8, "vocab": 28996},
        {"format": "megatron-yaml", "causal": False, "mbs": 4, "gbs": 128, "layers": 24}),
    "AMD-AGI/Primus examples/megatron/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml fd1eeab": (
        PRIMUS, {}, {"format": "primus", "model": "llama-3-8b", "gpus": 8, "mbs": 2, "gbs": 128, "seq": 8192,
                     "zero": 1, "precision": "bf16"}),
    "AMD-AGI/Primus examples/torchtitan/configs/MI300X/llama3.1_8B-FP8-pretrain.yaml fd1eeab": (
        PRIMUS_TITAN, {"gpus": 8}, {"format": "primus-torchtitan", "model": "llama-3-8b", "mbs": 5, "gbs": 40, "seq": 8192,
                                    "zero": 3, "precision": "fp8-current", "recompute": "none"}),
    "mlcommons/training_results_v4.1 NVIDIA gpt3 eos_n64, config_DGXH100_64x8x128x4x8_mbs2.sh b87b9e3": (
        MLPERF, {"model": "gpt3-175b"}, {"format": "mlperf", "gpus": 512, "tp": 4, "pp": 8, "vp": 6, "mbs": 2,
                                         "gbs": 2048, "precision": "fp8", "sp": True}),
    "mlcommons/training_results_v4.1 NVIDIA llama2_70b_lora eos_n8, config_DGXH100_8x8x1xtp4pp1cp2.sh b87b9e3": (
        MLPERF_LORA, {}, {"format": "mlperf", "model": "llama-2-70b", "gpus": 64, "tp": 4, "cp": 2, "mbs": 1, "gbs": 8,
                          "seq": 8192, "precision": "fp8", "rank": 16}),
    "yanring/Megatron-MoE-ModelZoo best_practice/deepseek-v3/run_deepseek_v3_h100.sh e865051": (
        MODEL_ZOO, {"recipe": "1"}, {"format": "modelzoo", "model": "deepseek-v3", "gpus": 1024, "tp": 2, "pp": 8,
                                     "vp": 4, "ep": 64, "gbs": 8192, "ep_overlap": True,
                                     "precision": "fp8-block", "recompute": "mla_up_proj+mlp",
                                     "tp_overlap": False}),
    # nanotron, nn/llama3_ring_attention.py (2411b02): keys and values are gathered.
    "huggingface/smollm text/pretraining/smollm3/long_context_4k_to_32k.yaml a041759, shorter": (
        SMOLLM3, {"accept_unread": True}, {"gpus": 96, "tp": 2, "cp": 4, "cp_kind": "all-gather", "dp": 12, "gbs": 72}),
    # Primus: sequence parallelism and micro-batches of 2 by default (trainer_base.yaml, language_model.yaml, fd1eeab).
    "AMD-AGI/Primus examples/megatron/configs/MI300X/llama3.1_405B-FP8-pretrain.yaml fd1eeab, named by a variable": (
        PRIMUS_405B, {"gpus": 144}, {"model": "llama-3.1-405b", "tp": 8, "pp": 9, "mbs": 2, "gbs": 256, "sp": True,
                                    "precision": "fp8"}),
    "EleutherAI/gpt-neox configs/125M-dmoe.yml ea7aefd: no token is dropped, and attention is Transformer Engine's": (
        NEOX_EXPERTS, {"gpus": 8}, {"format": "gpt-neox", "topk": 1, "capacity": None, "attention": "flash",
                                    "precision": "bf16", "offload": "optimizer"}),
    "the same, its second run, for which A2A_OVERLAP=1 of the first does not count": (
        MODEL_ZOO, {"recipe": "2", "system": "dgx-b200"}, {"gpus": 256, "ep": 32, "ep_overlap": False, "precision": "mxfp8"}),
    # Of runtime_configs/benchmarking: PR and SEQ_LEN by default, the rest by model in runtime.conf (e865051).
    "yanring/Megatron-MoE-ModelZoo best_practice/qwen3/run_30b.sh e865051, its third run": (
        "export MODEL=Qwen3-30B-A3B\nEP=8 MBS=4 NNODES=1 bash sbatch_benchmarking.sh",
        {}, {"gpus": 8, "mbs": 4, "gbs": 256, "seq": 4096, "precision": "bf16", "tp_overlap": True}),
    "yanring/Megatron-MoE-ModelZoo runtime_configs/benchmarking/runtime.conf e865051, DeepSeek-V2": (
        "MODEL=DeepSeek-V2 bash sbatch_benchmarking.sh", {},
        {"gpus": 256, "pp": 16, "vp": 2, "ep": 8, "gbs": 1024, "recompute": "full",
         "layout": ",".join(["1", *["2"] * 14, "1"] * 2)}),
    "NVIDIA-NeMo/Megatron-Bridge perf_recipes/llama/h100/llama3.py 067f987": (
        RECIPES, {"recipe": "8gpu_h100_bf16"}, {"format": "bridge-recipe", "model": "llama-3-8b", "gpus": 8, "cp": 2,
                                                "gbs": 128, "grad_dtype": "16-bit", "precision": "bf16"}),
    "pytorch/torchtitan torchtitan/models/deepseek_v3/config_registry.py b5bcd76": (
        REGISTRY, {"recipe": "deepseek_v3_16b_hybridep", "gpus": 64},
        {"format": "torchtitan", "model": "deepseek-v2-lite", "ep": 8, "mbs": 4, "seq": 4096, "zero": 3,
         "recompute": "per-op"}),
    "NVIDIA/Megatron-LM examples/bert/train_bert_340m_distributed.sh d98e8a6, one node": (
        BERT, {}, {"format": "megatron", "mbs": 4, "gbs": 32, "precision": "fp16", "causal": False, "layers": 24,
                   "billions": 0.335}),
    "NVIDIA/Megatron-LM examples/t5/train_t5_220m_distributed.sh d98e8a6": (
        T5, {}, {"format": "megatron", "mbs": 64, "gbs": 512, "precision": "bf16", "layers": 24, "seq": 128,
                 "billions": 0.22}),  # its name
    "NVIDIA/Megatron-LM examples/mamba/train.sh d98e8a6, five layers": (
        HYBRID, {}, {"format": "megatron", "tp": 4, "gbs": 8, "layers": 5, "hidden": 4096,
                     "kinds": ("mamba2 only", "dense only", "mamba2 only", "attention only", "dense only")}),
    "bigscience-workshop/bigscience train/tr11-176B-ml/smaller_models/tr11f-6B3-ml.slurm 9e64ede": (
        BLOOM, {}, {"format": "slurm", "gpus": 64, "tp": 4, "pp": 4, "layout": "7,8,8,7", "recompute": "full",
                    "precision": "fp16", "zero": 0, "attention": "unfused"}),
    "deepspeedai/Megatron-DeepSpeed examples_deepspeed/MoE/ds_pretrain_gpt_1.3B_MoE128.sh 4efb479": (
        EXPERTS, {"gpus": 64}, {"format": "megatron", "ep": 64, "gbs": 512, "topk": 1, "every": 2,
                                "billions": 52.5}),  # arXiv 2201.05596, table 1: 1.3B+MoE-128 has 52 billion
    "aws-samples/awsome-distributed-training megatron-lm/slurm/gpt3/2.distributed-training.sbatch 7217859": (
        AWS, {"variables": {"NODES": "4"}}, {"format": "slurm", "gpus": 32, "tp": 4, "layers": 36, "gbs": 288,
                                             "recompute": "attention"}),
    "mosaicml/llm-foundry scripts/train/yamls/pretrain/mpt-7b.yaml 8c8dd48": (
        MPT, {"gpus": 64}, {"format": "llm-foundry", "mbs": 8, "gbs": 1024, "seq": 2048, "zero": 3, "layers": 32, "causal": True,
                            "recompute": "full", "precision": "bf16", "billions": 6.65}),  # mosaicml/mpt-7b's card
    "huggingface/nanotron examples/mamba/config_mamba.yaml 2411b02": (
        MAMBA, {}, {"format": "nanotron", "gpus": 8, "tp": 2, "pp": 2, "gbs": 4, "kinds": ("mamba only",)}),
}  # fmt: skip


def figures(checked):
    """Return all figures of a reading by name."""
    est, model = checked.est, checked.est.model
    more = {
        "format": checked.reading.format, "model": model.name, "gbs": est.gbs, "gpus": est.plan.gpus,
        "billions": model.parameters / 1e9, "kinds": model.layer_kinds,
        "rank": model.adapters and model.adapters.rank,
        "topk": model.experts and model.experts.topk, "capacity": model.experts and model.experts.capacity, "every": model.experts and model.experts.every,
        **{name: getattr(model, name) for name in ("layers", "hidden", "seq", "causal", "ffn", "dropout", "biases", "token_types", "mtp")},
    }  # fmt: skip
    return {"mlp": model.mlp} | vars(est.plan) | more


@pytest.mark.parametrize("source", READINGS)
def test_published_launches_are_read(source, tmp_path):
    text, given, expected = READINGS[source]
    path = tmp_path / "launch"
    path.write_text(text, encoding="utf-8")
    read = figures(tc.check(path, **{"system": "dgx-h100"} | given))
    billions = expected.get("billions", read["billions"])
    assert read["billions"] == pytest.approx(billions, rel=0.02)
    assert {name: read[name] for name in expected if name != "billions"} == {
        name: value for name, value in expected.items() if name != "billions"
    }


NEXT = YAML_OF_TESTS.replace("${PP}", "1").replace(": 56", ": 48").replace("6144", "2048").replace(
    ": 48\n  --group", ": 16\n  --kv-channels: 256\n  --group").replace("groups: 8", "groups: 2").replace(
    "num-experts: 8", "num-experts: 512\n  --moe-ffn-hidden-size: 512\n  --moe-shared-expert-intermediate-size: 512\n"
    "  --attention-output-gate: true\n  --experimental-attention-variant: gated_delta_net\n  --linear-attention-freq: 4",
).replace("topk: 2", "topk: 10") + "  --vocab-size: 151936\n"  # fmt: skip


@pytest.mark.parametrize(("text", "given", "expected"), [
    # yanring/Megatron-MoE-ModelZoo model_configs/benchmarking/Qwen3-Next-80B-A3B.yaml e865051; its name
    (NEXT, {"gpus": 64}, {"parameters": pytest.approx(80e9, rel=0.01)}),
    (NEXT.replace("freq: 4", "freq: '([1]*3+[0]*1)*12'"), {"gpus": 64}, {"parameters": pytest.approx(80e9, rel=0.01)}),
    # gpt-neox, neox_args.py (ea7aefd): both switches are on by default
    (NEOX, {"gpus": 96, "vocab": 50432}, {"biases": ("mlp", "proj", "qkv")}),
    (NEOX.replace('"pos-emb"', '"use_bias_in_attn_linear": false, "pos-emb"'), {"gpus": 96, "vocab": 50432},
     {"biases": ("mlp",)}),
    # gpt-neox, megatron/model/transformer.py (ea7aefd), ParallelMLP: int(4 * 4096 * 2 / 3) // 2, rounded up to 256
    (NEOX.replace("6144", "4096").replace('"pos-emb"', '"activation": "swiglu", "mlp_multiple_of": 256, "pos-emb"'),
     {"gpus": 8, "vocab": 50432}, {"ffn": 5632}),
    (NEOX.replace("6144", "4160").replace('"pos-emb"', '"activation": "swiglu", "pos-emb"'),
     {"gpus": 8, "vocab": 50432}, {"ffn": 5546}),
    # gpt-neox of 2024, configs/mistral/7B.yml and megatron/model/transformer.py (01657aa), LLaMAParallelMLP
    (NEOX.replace("6144", "4096").replace('"pos-emb"', '"mlp_type": "llama", "activation": "silu", "intermediate_size": 14336, "pos-emb"'),
     {"gpus": 8, "vocab": 50432}, {"ffn": 14336, "mlp": "swiglu", "biases": ("proj", "qkv")}),
    (NEOX.replace("6144", "4096").replace('"pos-emb"', '"mlp_type": "llama", "mlp_multiple_of": 256, "pos-emb"'),
     {"gpus": 8, "vocab": 50432}, {"ffn": 11008}),
    (NEOX.replace('"pos-emb"', '"attention_config": [[["flash"], "all"]], "pos-emb"'),
     {"gpus": 96, "vocab": 50432}, {"attention": "flash"}),
    (NEOX.replace('"fp16"', '"data_types": {"grad_accum_dtype": "bf16"}, "bf16"'), {"gpus": 96, "vocab": 50432},
     {"grad_dtype": "16-bit", "precision": "bf16"}),
    # bigscience train/tr13-mtf/tr13-176B-mtf-p31lossseq.slurm: "bf16 must use z0! it implements its own zero stage 1"
    (BLOOM.replace("--fp16", "--bf16"), {}, {"zero": 1, "precision": "bf16"}),
    (f"name: megatron_bert\n{NEMO}", {}, {"causal": False, "token_types": 2}),  # conf/training/bert/4b.yaml 26e42fa
    # conf/training/bert/20b.yaml 26e42fa; NVIDIA/NeMo, nemo/collections/llm/bert/model/base.py
    (f"name: megatron_bert\n{NEMO}  bert_binary_head: False\n", {}, {"causal": False, "token_types": 0}),
    # NeMo-Framework-Launcher, conf/training/qwen2 (26e42fa): queries, keys and values alone have biases
    (NEMO + "  bias: false\n  qkv_bias: true\n", {}, {"biases": ("qkv",)}),
    (NEMO.replace("mcore_distributed_optim, overlap_grad_sync: True", "distributed_fused_adam, overlap_grad_sync: false"), {},
     {"dp_overlap": False}),
    # megatron/core/transformer/transformer_block.py: block recomputes the first recompute_num_layers layers
    (PRIMUS + "      recompute_granularity: full\n      recompute_method: block\n      recompute_num_layers: 0\n", {},
     {"recompute": "none"}),
    (PRIMUS + "      recompute_granularity: full\n      recompute_method: block\n      recompute_num_layers: 8\n", {},
     {"recompute": "full", "recompute_every": 4}),
    # of each chunk, of which the layout has 8 (examples/megatron/configs/MI355X/qwen3_235B_A22B-BF16-pretrain.yaml fd1eeab)
    (PRIMUS + "      recompute_granularity: full\n      recompute_method: block\n      recompute_num_layers: 2\n"
     "      pipeline_model_parallel_size: 2\n      pipeline_model_parallel_layout: 'Et*4|(t*4|)*6t*4L'\n", {},
     {"recompute": "full", "recompute_every": 2, "vp": 4}),
    # Primus, models/megatron/deepseek_v3.yaml (fd1eeab) has one; an override counts, also beside a model that is given
    (PRIMUS.replace("llama3.1_8B", "deepseek_v3") + "      mtp_num_layers: null\n", {"gpus": 64}, {"mtp": 0}),
    (PRIMUS.replace("llama3.1_8B", "deepseek_v3"), {"gpus": 64}, {"mtp": 1}),
    # megatron/core/transformer/transformer_config.py: moe_layer_recompute adds moe to core_attn
    (YAML_OF_TESTS + "  --moe-layer-recompute: true\n", {"gpus": 256, "variables": {"PP": "8"}},
     {"recompute": "attention+experts"}),
    # tests/functional_tests/shell_test_utils/_run_training.sh (d98e8a6) takes brackets around words away
    (YAML_OF_TESTS + "  --recompute-granularity: selective\n  --recompute-modules: '[layernorm moe_act]'\n",
     {"gpus": 256, "variables": {"PP": "8"}}, {"recompute": "activation+norms"}),
    # nanotron, helpers.py (2411b02), init_optimizer_and_grad_accumulator: it steps the weights of 16 bits
    (MAMBA.replace("in_fp32: true", "in_fp32: false"), {},
     {"precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": "adam-bf16"}),
    # examples/qwen2/run_mcore_qwen2_moe.sh and examples/deepseek_v3/run_mcore_deepseek.sh (alibaba/Pai-Megatron-Patch a098c5a)
    (f"echo Disable --overlap-grad-reduce and --overlap-param-gather\n{GPT} --vocab-size 50304 --mtp-num-layers 1 ${{more}}", {},
     {"dp_overlap": False, "mbs": 1}),
    # examples/bert/pretrain_bert.py (d98e8a6): num_tokentypes = 2 if args.bert_binary_head else 0
    (YAML_OF_BERT + "  --bert-no-binary-head: true\n", {"gpus": 8, "vocab": 28996}, {"causal": False, "token_types": 0}),
    (YAML_OF_BERT + "  --data-path: /data/my-bert_00_text_sentence\n", {"gpus": 8, "vocab": 28996},
     {"causal": False, "token_types": 2}),
    # deepspeed/runtime/zero/config.py: overlap_comm by default with ZeRO-3
    (f"{GPT} --vocab-size 50304 --deepspeed --zero-stage 3", {}, {"zero": 3, "dp_overlap": True}),
    (f"{GPT} --vocab-size 50304 --deepspeed --zero-stage 1", {}, {"zero": 1, "dp_overlap": False}),
    (f"{GPT} --vocab-size 50304 --micro-batch-size 2 2>&1 | tee log", {}, {"mbs": 2}),
    # Megatron-LM v1.1.5, examples/pretrain_gpt2_distributed.sh and megatron/arguments.py: sequences of a replica
    (f"{GPT} --vocab-size 50304".replace("--micro-batch-size 1", "--batch-size 8"), {}, {"mbs": 8}),
    (f"{GPT} --vocab-size 50304 --micro-batch-size 2 > log.txt", {}, {"mbs": 2}),
    (f"bash -c '{GPT} \\\n  --micro-batch-size 2 \\\n  --vocab-size 50304\n'", {}, {"mbs": 2}),
])  # fmt: skip
def test_settings_mean_what_the_framework_does(text, given, expected, tmp_path):
    path = tmp_path / "launch"
    path.write_text(text, encoding="utf-8")
    checked = tc.check(path, "dgx-h100", **given)
    read = figures(checked) | {"parameters": checked.est.model.parameters}
    assert {name: read[name] for name in expected} == expected


@pytest.mark.parametrize(("text", "message"), [
    (RECIPES, "describes 2 recipes; give `recipe`: llama3_8b_pretrain_8gpu_h100_bf16_config"),
    (MODEL_ZOO, "describes 2 runs; give `recipe`: 1, 2"),
    (YAML_OF_TESTS, "give it with --set PP="),
    (MLPERF + "source config_fp8.sh\n", "source = config_fp8.sh: not read"),
    (MPT.replace("decoupled_adamw", "decoupled_lionw"), "optimizer.name = decoupled_lionw: not read"),
    (MPT.replace("attn_impl: flash", "qk_ln: true"), "model.attn_config.qk_ln: not read"),
    (MPT, "give `gpus`"),
    (RECIPES.replace("cfg.train.global_batch_size = 128", "pass").replace("def llama31", "def _llama31"),
     "base_recipe = llama3_8b_pretrain_config: not read .its settings stand in another file"),
    (PRIMUS_TITAN.replace("float8: false", "float8: true"), "primus_turbo.enable_attention_float8: not read"),
    ("from torchtitan.models.qwen3 import model_registry\ndef qwen3_8b_nvfp4():\n    model_spec = model_registry('8B',"
     " converters=[NVFP4LinearConverter.Config(fqns=nvfp4_bf16_tail_fqns(36, 0.15))])\n"
     "    return Trainer.Config(training=TrainingConfig(seq_len=4096), model_spec=model_spec)\n",
     "model.converted_layers = .*only some layers have that precision"),
    # torchtitan/models/llama3/config_registry.py (b5bcd76), llama3_debugmodel_float8_emulate_lora
    (REGISTRY.partition("def deepseek_v3_16b_hybridep")[0].replace('attn_backend="flex"', "converters=[Float8LinearConverter.Config(emulate=True), LoRAConverter.Config(rank=8)]"),
     "(?s)products in 8 bits are emulated.*model.converter = LoRAConverter: not read .layers are replaced"),
    (PRIMUS.replace("megatron", "maxtext"), "framework = 'maxtext': must be one of megatron, torchtitan"),
    ("@run.cli.factory(name='llama3_8b')\ndef pretrain_recipe():\n    return run.Partial(pretrain)\n",
     "builds no recipe that is known"),
    (PRIMUS + "      timestep_sampling_strategy: logit_normal\n", "multimodal, vision or diffusion"),
    ("torchrun -m verl.trainer.sft_trainer engine=veomni", "engine = veomni: of verl's supervised fine-tuning, FSDP alone"),
    ("model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n",
     "holds no setting of NeMo AutoModel"),
    ("#SBATCH --nodes=4\ntorchrun train.py --hidden_width=4096 --num_layers=32 --num_heads=32 --train_batch_size=1 "
     "--max_context_width=4096 --sharding_strategy=full", "a launch of a training program of its own"),
])  # fmt: skip
def test_what_is_missing_is_asked_for(text, message, tmp_path):
    path = tmp_path / "launch"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(tc.InputError, match=message.replace("$", r"\$")):
        tc.check(path, "dgx-h100", model="gpt3-175b" if "DGX" in text else None)


# As the functions of recipes/deepseek/h100/deepseek_v3.py that set a layout, of five layers.
FUNCTIONS = """
FAST: bool = True
def _of(pp, mtp):
    last = ["mtp"] * mtp + ["loss"]
    layouts = {(1, 1): None, (2, 1): [["embedding"] + ["decoder"] * 3, ["decoder"] * 2 + last]}
    if (pp, 1) not in layouts:
        raise ValueError(pp)
    return list([list(stage) for stage in layouts[(pp, 1)]])
def _batch(cfg, lr=1, **further):
    cfg.train.global_batch_size = {**further, "lr": lr}["global_batch_size"]
def _sized(cfg, size=8):
    cfg.train.global_batch_size = size
def _leave(cfg):
    if cfg.train.global_batch_size is not None:
        return
    cfg.train.global_batch_size = 16
"""


@pytest.mark.parametrize(("line", "name", "value"), [
    ("cfg = _with_global_batch_size(cfg, 768)", "global_batch_size", "768"),
    ('set_deepseek_v3_pipeline_model_parallel_layout(cfg.model, "Et|tL")', "pipeline_model_parallel_layout", "Et|tL"),
    ('apply_flex_dispatcher_backend(cfg.model, "hybridep")', "moe_flex_dispatcher_backend", "hybridep"),
    ("cfg.model.expert_model_parallel_size = 8", "expert_tensor_parallel_size", "1"),  # models/transformer_config.py
    ("cfg.model.recompute_modules = []\n    cfg.model.recompute_granularity = 'selective'", "recompute_granularity", None),
    ("cfg.model.recompute_modules = ['mlp']", "recompute_granularity", "selective"),
    ("cfg.optimizer.exp_avg_dtype = torch.bfloat16", "exp_avg_dtype", "bf16"),
    ("cfg.comm_overlap.overlap_grad_reduce = False", "overlap_grad_reduce", False),
    ("cfg.model.pipeline_model_parallel_layout = _layout(4)", "pipeline_model_parallel_layout", "_layout()"),
    ("if isinstance('lora', str):\n        cfg.model.recompute_num_layers = 4", "recompute_num_layers", "4"),
    ("if FAST and not None:\n        cfg.model.recompute_num_layers = 4", "recompute_num_layers", "4"),
    ("cfg.model.cuda_graph_impl = 'none'\n    cfg.model.cuda_graph_scope = 'full'", "cuda_graph_impl", "none"),
    ("own, _ = distributed_muon_with_cosine_annealing(max_lr=1e-4)\n    cfg.optimizer = own", "optimizer", "dist_muon"),
    ("cfg.model.mtp = None\n    try:\n        cfg.model.pipeline_model_parallel_layout = _of(2, cfg.model.mtp or 1)\n"
     "    except ValueError:\n        pass", "pipeline_model_parallel_layout", "Ettt|ttmL"),
    ("cfg.train.global_batch_size = 8\n    _leave(cfg)", "global_batch_size", "8"),
    ("for size in (2, 4):\n        cfg.train.global_batch_size = size", "global_batch_size", "4"),
    ("for size in range(3):\n        cfg.train.global_batch_size = size", "global_batch_size", "2"),
    ("sizes: dict = {**{'global_batch_size': 24}}\n    _batch(cfg, **sizes)", "global_batch_size", "24"),
    # recipes/llama/llama3.py (Megatron-Bridge v0.2.0): LoRA unless told otherwise
    ("peft = {}.get('peft', 'lora')\n    full = peft is None or (isinstance(peft, str) and peft.lower() == 'none')\n"
     "    cfg.model.tensor_model_parallel_size = 2 if full else 1", "tensor_model_parallel_size", "1"),
    ("sizes = {}\n    sizes['global_batch_size'] = 40\n    _batch(cfg, **sizes)", "global_batch_size", "40"),
    # what is not known stands in the place of a value, not a default
    ("_sized(cfg, **sizes)", "global_batch_size", "size"),
    ("cfg.train.global_batch_size = {**sizes}.get('batch', 8)", "global_batch_size", "sizes"),
    ("cfg.train.global_batch_size = {'gb200': 4}.get(os.environ['GPU'], 8)", "global_batch_size", "os.environ['GPU']"),
    ("size = 3\n    for _ in range(99):\n        size = size * size\n    cfg.train.global_batch_size = size",
     "global_batch_size", "size * size"),
    ("cfg.mixed_precision = MixedPrecisionConfig(fp16=True)", "fp16", True),
    ("cfg.mixed_precision = MixedPrecisionConfig(fp32=True)", "mixed_precision", "MixedPrecisionConfig"),
    ("cfg.peft = default_peft_config('lora')", "peft_scheme", "lora"),
    ("cfg.peft = DoRA(dim=8)", "peft", "dora"),
    ("cfg.comm_overlap.tp_comm_overlap = True\n    apply_determinism_overrides(cfg)", "tp_comm_overlap", False),
    ("cfg.model = AModelProvider(mlp='fused', seq_length=2048)", "catalogue_model", "llama3_8b"),
    ("cfg.model = AModelProvider(mlp='fused', seq_length=2048)", "seq_length", "2048"),
    ("cfg = _peft_common_vlm()", "global_batch_size", "32"),  # recipes/common.py, as the next
    ("cfg = _sft_common()", "seq_length", "2048"),
    ("path = 'Qwen/Qwen3-8B'\n    cfg.model = AutoBridge.from_hf_pretrained(path).to_megatron_provider()",
     "catalogue_model", "Qwen/Qwen3-8B"),
    ("cfg.mixed_precision = MixedPrecisionConfig(bf16=True, params_dtype=torch.bfloat16)", "bf16", True),
    ("cfg.mixed_precision = get_mixed_precision_config(bf16_with_mxfp8_mixed())", "fp8_recipe", "mxfp8"),
])  # fmt: skip
def test_statements_of_a_recipe_are_followed_as_far_as_they_are_known(line, name, value):
    """By hand: what cannot be followed is named in place of a value."""
    text = RECIPES.replace("cfg.train.global_batch_size = 128", line).replace("def llama31", "def _llama31")
    assert READERS["bridge-recipe"].read(f"{FUNCTIONS}{text}").get(name) == value


@pytest.mark.parametrize(("line", "names"), [
    ("_change(cfg)\n    cfg.train.micro_batch_size = 4", {"_change", "global_batch_size", "mixed_precision"}),
    ("_change(given=cfg)", {"_change", "mixed_precision"}),
    ("_change_model(cfg.model)", {"_change_model", "recompute_modules"}),
    ("for stage in stages:\n        cfg.model.window = stage", {"for", "window"}),
    ("for stage in (1, 2):\n        cfg.model.window = stage\n        break", {"for", "window"}),
    ("for stage in (1, 2):\n        pass\n    else:\n        cfg.model.window = 4", {"for", "window"}),
    ("for stage in range(100000000000000000000):\n        cfg.model.window = stage", {"for", "window"}),
    ("if unknown(cfg):\n        cfg.train.lr = 4", {"unknown(cfg)", "lr"}),
    ("if unknown(cfg):\n        _change(cfg)", {"unknown(cfg)", "tp_comm_overlap"}),
    ("cfg.optimizer = make_optimizer()", {"make_optimizer", "exp_avg_dtype", "optimizer"}),
])  # fmt: skip
def test_what_a_recipe_leaves_open_is_named(line, names):
    """By hand: what is set after it is not open."""
    text = RECIPES.replace("cfg.train.micro_batch_size = 1", line).replace("def llama31", "def _llama31")
    settings = READERS["bridge-recipe"].read(text)
    by, _, named = settings["helpers"].partition(": ")
    assert names <= {*by.split(", "), *named.split(", ")}
    assert "train.micro_batch_size = 4" not in line or "micro_batch_size" not in named.split(", ")


# As in NVIDIA-NeMo/Megatron-Bridge 067f987: recipes/deepseek/h100/deepseek_v3.py under the name that
# recipes/deepseek/deepseek_v3.py gives it, perf_recipes/deepseek/common.py, and a recipe that imports both.
PACKAGE = {
    "recipes/deepseek/h100/deepseek_v3.py": """
from megatron.bridge.recipes.common import _pretrain_common
from .sizes import STAGES, doubled
def deepseek_v3_pretrain_1024gpu_h100_bf16_config():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("deepseek-ai/DeepSeek-V3").to_megatron_provider(load_weights=False)
    cfg.model.pipeline_model_parallel_size = STAGES
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.recompute_modules = ["mlp"]
    cfg.train.global_batch_size = doubled(2048)
    cfg.optimizer.exp_avg_dtype = torch.bfloat16
    return cfg
""",
    "recipes/deepseek/h100/sizes.py": "STAGES = 16\ndef doubled(sequences):\n    return sequences * 2\n",
    "recipes/deepseek/__init__.py": """
from .h100.deepseek_v3 import deepseek_v3_pretrain_1024gpu_h100_bf16_config as deepseek_v3_pretrain_config
""",
    "perf_recipes/deepseek/common.py": """
from megatron.bridge.recipes.deepseek import deepseek_v3_pretrain_config
def _deepseek_v3_common(cfg, *, overlap=True):
    cfg.model.recompute_granularity = "selective"
    cfg.comm_overlap.overlap_moe_expert_parallel_comm = overlap
""",
    "perf_recipes/deepseek/h100/deepseek_v3.py": """
import megatron.bridge.perf_recipes.deepseek.common as shared
from megatron.bridge.perf_recipes.deepseek.common import deepseek_v3_pretrain_config
from ..common import _deepseek_v3_common
def deepseek_v3_pretrain_256gpu_h100_bf16_config():
    cfg = deepseek_v3_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    _deepseek_v3_common(cfg)
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.expert_model_parallel_size = 8
    shared._deepseek_v3_common(cfg, overlap=False)
    return cfg
""",
}


@pytest.mark.parametrize(("changed", "expected"), [
    ({}, {"pipeline_model_parallel_size": "16", "global_batch_size": "4096", "exp_avg_dtype": "bf16",
          "recompute_granularity": "selective", "overlap_moe_expert_parallel_comm": False, "helpers": None,
          "catalogue_model": "deepseek-ai/DeepSeek-V3", "base_recipe": None, "world_size": "256"}),
    ({"perf_recipes/deepseek/common.py": None}, {  # nothing of it is known: degrees and batch are missing
        "pipeline_model_parallel_size": None, "exp_avg_dtype": None, "base_recipe": "deepseek_v3_pretrain_config"}),
    ({"recipes/deepseek/__init__.py": "from .h100.nothing import *\nfrom .h100.deepseek_v3 import *\n"
      "deepseek_v3_pretrain_config = deepseek_v3_pretrain_1024gpu_h100_bf16_config\n",
      "perf_recipes/deepseek/common.py": PACKAGE["perf_recipes/deepseek/common.py"].replace(
          "import deepseek_v3_pretrain_config", "import deepseek_v3_pretrain_1024gpu_h100_bf16_config as "
          "deepseek_v3_pretrain_config")}, {"pipeline_model_parallel_size": "16", "base_recipe": None}),
    ({"recipes/deepseek/h100/sizes.py": None}, {"exp_avg_dtype": "bf16", "pipeline_model_parallel_size": "STAGES"}),
])  # fmt: skip
def test_functions_of_other_files_are_followed(changed, expected, tmp_path):
    for name, text in (PACKAGE | changed).items():
        path = tmp_path / "src/megatron/bridge" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text, encoding="utf-8")
    settings = READERS["bridge-recipe"].read(PACKAGE[name], Given(folder=path.parent))
    assert {name: settings.get(name) for name in expected} == expected


def test_a_recipe_that_never_ends_is_refused():
    """Functions that call the next one twice, eight deep; the last has a loop in a loop."""
    calls = "".join(f"def _f{i}(x):\n    _f{i + 1}(x)\n    _f{i + 1}(x)\n" for i in range(7))
    loops = "def _f7(x):\n    for i in range(400):\n        for j in range(400):\n            x = i\n"
    text = RECIPES.replace("cfg.train.micro_batch_size = 1", "_f0(1)") + calls + loops
    with pytest.raises(tc.InputError, match="has more than 200,000 steps to follow"):
        READERS["bridge-recipe"].read(text, Given(recipe="8gpu_h100"))


@pytest.mark.parametrize("line", ["x = {'a': x}", "x = [x, x]", "x.extend(x)"])
def test_a_value_that_grows_with_each_pass_is_refused(line):
    text = RECIPES.replace(
        "cfg.train.micro_batch_size = 1", f"x = [1]\n    for i in range(400):\n        {line}"
    )
    with pytest.raises(tc.InputError, match="a value has over 20,000 parts or 50 levels"):
        READERS["bridge-recipe"].read(text, Given(recipe="8gpu_h100"))


def test_a_malformed_file_that_is_imported_is_named(tmp_path):
    (tmp_path / "common.py").write_text("def _change(cfg:", encoding="utf-8")
    text = "from common import _change\n" + RECIPES.replace("cfg.train.micro_batch_size = 1", "_change(cfg)")
    with pytest.raises(tc.InputError, match=r"common\.py: malformed Python"):
        READERS["bridge-recipe"].read(text, Given(recipe="8gpu_h100", folder=tmp_path))
    (tmp_path / "common.py").write_text("from common import _change", encoding="utf-8")
    assert (
        "_change of common"
        in READERS["bridge-recipe"].read(text, Given(recipe="8gpu_h100", folder=tmp_path))["helpers"]
    )


def test_shell_loops_arrays_and_files_beside(tmp_path):
    (tmp_path / "common.sh").write_text("GBS=64\n", encoding="utf-8")
    script = Script(folder=Path(tmp_path))
    interpret(
        'source "$(dirname $0)/common.sh"\narr=()\nfor ((i=0; i<5; i++)); do\n'
        "  if (( i < 2 )); then\n    arr+=(0)\n  else\n    arr+=(1)\n  fi\ndone\n"
        'printf -v FREQ "[%s]" "$(IFS=\', \'; echo "${arr[*]}")"\n'
        'for x in a b; do LAST=$x; done\n[ -z "$UNSET" ] && EMPTY=yes\nN=${#arr[@]} FIRST=${arr[0]}\n'
        "NAME=model-7b.yaml; BASE=${NAME%.yaml}\nif [ -f /x ]; then Q=1; else Q=2; fi\n",
        script,
    )
    values = {name: " ".join(words) for name, words in script.values.items()}
    assert values["FREQ"] == "[0,0,1,1,1]"  # bash 5.2 gives the same
    assert (values["LAST"], values["EMPTY"], values["BASE"], values["GBS"]) == ("b", "yes", "model-7b", "64")
    assert (values["N"], values["FIRST"], values["Q"]) == ("5", "0", "2")
    assert script.undecided == {"if [ -f /x ]": {"Q"}}


@pytest.mark.parametrize(("tokenizer", "size"), [
    ("--vocab-file /data/gpt2-vocab.json", 50257),  # OpenAI's encoder.json
    ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B", 128256),  # its config.json
    ("--tokenizer-type HFTokenizer --vocab-file ./20B_checkpoints/20B_tokenizer.json", 50277),
    ("--tokenizer-model ${TOKENIZER}", None),  # Qwen3-8B has the same layers, width and heads
])  # fmt: skip
def test_the_tokenizer_tells_the_vocabulary(tokenizer, size, tmp_path):
    path = tmp_path / "launch.sh"
    path.write_text(GPT + tokenizer, encoding="utf-8")
    if size is None:
        with pytest.raises(tc.InputError, match="does not give the vocabulary size: give `vocab`"):
            tc.check(path, "dgx-h100")
    else:
        assert tc.check(path, "dgx-h100").est.model.vocab == size


@pytest.mark.parametrize(("script", "given", "micro_batch"), [
    ("if [ $AC = full ]; then MBS=1; elif [ $AC = none ]; then MBS=2; fi", {"AC": "none"}, 2),
    ("AC=${17}; case $AC in full) MBS=1;; *) MBS=2;; esac", {"17": "full"}, 1),
    ("MBS=4; [ $AC = full ] && MBS=1", {"AC": "none"}, 4),
    ("if (( NODES > 4 )); then MBS=1; else MBS=2; fi", {"NODES": "8"}, 1),
    ("MBS=1; if [ -f /data/large ]; then MBS=2; fi", {"MBS": "1"}, 1),
    ("N=$(( ($TP > 1) ? 1 : 2 )); if [ $N -eq 1 ]; then MBS=1; else MBS=2; fi", {"TP": "4"}, 1),
])  # fmt: skip
def test_what_branches_hang_on_is_asked_for_where_it_changes_the_plan(script, given, micro_batch, tmp_path):
    """Values are those that bash 5.2 gives the variable."""
    path = tmp_path / "launch.sh"
    path.write_text(f"{script}\n{GPT} --micro-batch-size $MBS --vocab-size 50304\n", encoding="utf-8")
    (name,) = given if not next(iter(given)).isdecimal() else ["AC"]
    with pytest.raises(tc.InputError, match=f"--micro-batch-size.*give it with --set {name}="):
        tc.check(path, "dgx-h100")
    assert tc.check(path, "dgx-h100", variables=given).est.plan.mbs == micro_batch


def test_the_last_of_repeated_keys_counts(tmp_path):
    """As PyYAML has it, with which Megatron-LM's tests are read."""
    path = tmp_path / "model_config.yaml"
    text = YAML_OF_TESTS.replace("${PP}", "8").replace("--swiglu: true", "--swiglu: true\n  --num-layers: 24")
    path.write_text(text, encoding="utf-8")
    assert tc.check(path, "dgx-h100", gpus=128).est.model.layers == 56


@pytest.mark.parametrize(("text", "message"), [
    ("#SBATCH --nodes=1\npython tools/hub-sync.py --repo-path /checkpoints --patterns '*bogus*' -d",
     "is a launch of conversion, preparation or upload of data or checkpoints"),
    ("torchrun --nproc_per_node 8 evaluate_megatron_llama.py --num-layers 32 --hidden-size 4096", "text generation"),
    ("PP=2\nNLS=$((3*PP))\n. `pwd`/CONFIG.sh\nsbatch --nodes=$PP --export=PARAMS --job-name=a SRUN.sh",
     "on model, degrees, batch or memory; not beside it: \\$.pwd./CONFIG.sh"),
    ("MODEL=DeepSeek-V3 PP=abc EP=-2 bash sbatch_benchmarking.sh", "PP = 'abc': .*\\n.*EP = '-2'"),
    ("torchrun --nproc_per_node 8 torchtitan/train.py --job.config_file configs/llama3_8b.toml",
     "a launch of torchtitan's command line.*: check configs/llama3_8b.toml instead"),
    ("python deepseek_v2_hf_to_mg.py --target-tensor-model-parallel-size 2 --num-layers 2", "is a launch of conversion"),
    (f"{GPT} --vocab-size 50304 --use-bnb-optimizer", "--use-bnb-optimizer: not read .another optimizer"),
    (f"{GPT} --vocab-size 50304 --transformer-type huggingface", "another model than Megatron-LM's"),
])  # fmt: skip
def test_what_is_no_training_or_another_is_refused_in_a_sentence(text, message, tmp_path):
    path = tmp_path / "launch.sh"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(tc.InputError, match=message):
        tc.check(path, "dgx-h100", gpus=8, model="llama-3-8b" if "layers" not in text else None)


def test_variables_before_a_sourced_file_are_set_in_it(tmp_path):
    """As in THUDM/slime scripts/models/deepseek-v3-20layer.sh (624b824)."""
    (tmp_path / "sizes.sh").write_text("MODEL_ARGS=(--num-layers ${LAYERS:-61})", encoding="utf-8")
    run = tmp_path / "run.sh"
    program = GPT.replace("--num-layers 36", "${MODEL_ARGS[@]}")
    run.write_text(f"LAYERS=20 source ./sizes.sh\n{program} --vocab-size 50304\n", encoding="utf-8")
    assert tc.check(run, "dgx-h100").est.model.layers == 20


def test_arguments_of_a_sourced_file_are_those_of_the_launch(tmp_path):
    """As in NVIDIA/Megatron-LM examples/academic_paper_scripts/sc21 (d98e8a6), run_figure_11.sh and CONFIG.sh."""
    sizes = SIZES.format("${HS}", 32, 2048, 2048)
    (tmp_path / "CONFIG.sh").write_text(
        f'export PARAMS=" --num-layers ${{NLS}} {sizes} --micro-batch-size 1 --global-batch-size 8 --fp16 '
        '--tensor-model-parallel-size ${TP} --vocab-size 51200"\n', encoding="utf-8")  # fmt: skip
    run = tmp_path / "run.sh"
    run.write_text(
        "NLS=3\nTP=8\nHS=4096\n. `pwd`/CONFIG.sh\nsbatch --nodes=1 --export=PARAMS --job-name=a SRUN.sh\n",
        encoding="utf-8",
    )
    est = tc.check(run, "dgx-h100", gpus=8).est
    assert (est.model.layers, est.model.hidden, est.plan.tp, est.plan.precision) == (3, 4096, 8, "fp16")
