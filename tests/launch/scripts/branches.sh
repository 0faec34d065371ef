#!/bin/bash
# Branches, comments inside of arrays that end in a backslash, several arguments in one string.
NUM_NODES=${SLURM_NNODES:-"2"}
TP_SIZE=2
PRETRAIN="pretrain_gpt.py"
DTYPE="fp8"
mkdir -p "$(dirname "$PRETRAIN")"
DISTRIBUTED_ARGS=(
    --nproc_per_node 8 --nnodes $NUM_NODES
)
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128
    --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope
    --normalization RMSNorm --swiglu --untie-embeddings-and-output-weights --disable-bias-linear
    --attention-dropout 0.0 --hidden-dropout 0.0
    --attention-backend fused   # cuDNN's, "fused"
)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-amax-compute-algo max"
    )
fi
PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP_SIZE
    # --pipeline-model-parallel-size 4 \
    --sequence-parallel  # \
    --use-distributed-optimizer
)
DATA_ARGS=()
if [ -z "$1" ]; then DATA_ARGS+=( --mock-data "--split '99,1,0'" "--vocab-size 128256" ); else
    DATA_ARGS+=(
        "--data-path $1"
        "--vocab-size 128256"
    )
fi
torchrun ${DISTRIBUTED_ARGS[@]} \
    "$PRETRAIN" \
    ${MODEL_ARGS[@]} \
    ${DTYPE_ARGS[@]} ${PARALLEL_ARGS[@]} "${DATA_ARGS[@]}" \
    --micro-batch-size 1 --global-batch-size 64 --bf16 --grad-reduce-in-bf16
