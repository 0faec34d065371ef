#!/bin/bash
#SBATCH --nodes=32
#SBATCH --gres=gpu:h100:8
#SBATCH --time=04:00:00
set -e
MODEL_ARGS=(
    --num-layers 61          # DeepSeek-V3
    --hidden-size 7168
    --ffn-hidden-size 18432
    --num-attention-heads 128
    --multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536
    --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
    --num-experts 256 --moe-ffn-hidden-size 2048 --moe-router-topk 8
    --moe-router-num-groups 8 --moe-router-group-topk 4
    --moe-shared-expert-intermediate-size 2048
    --moe-layer-freq "([0]*3+[1]*58)"
    --mtp-num-layers 1
    --swiglu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights --position-embedding-type rope
    --attention-dropout 0 --hidden-dropout 0
    --seq-length 4096 --max-position-embeddings 4096 --vocab-size 129280
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 8
    --pipeline-model-parallel-layout "Et*3|(tt|)*29m|L"
    --expert-model-parallel-size 32 --moe-token-dispatcher-type alltoall --moe-grouped-gemm
    --use-distributed-optimizer
)
TRAIN_ARGS=( --micro-batch-size 1 --global-batch-size 2048 --bf16 --fp8-format e4m3 --fp8-recipe blockwise )
TRAIN_ARGS+=( --recompute-granularity selective --recompute-modules mla_up_proj layernorm moe_act )
CMD="python -u pretrain_gpt.py ${MODEL_ARGS[@]} ${PARALLEL_ARGS[*]} ${TRAIN_ARGS[@]} --data-path 'a b'"
srun --nodes=$SLURM_NNODES --ntasks-per-node 8 bash -c "$CMD"
