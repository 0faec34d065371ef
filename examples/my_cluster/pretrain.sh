#!/bin/bash
# The usual script: variables, several strings of arguments, continued lines.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${NNODES:-4}
TP=8
PP=${PP:-2}
MICRO=1
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
CHECKPOINT=$1

DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank ${NODE_RANK:-0}"
GPT_ARGS="
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size ${PP} \
    --sequence-parallel \
    --num-layers 32 \
    --hidden-size 4096 \
    --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 \
    --ffn-hidden-size 14336 \
    --seq-length 8192 --max-position-embeddings=8192 \
    --position-embedding-type rope \
    --normalization RMSNorm --swiglu --disable-bias-linear \
    --attention-dropout 0.0 --hidden-dropout 0.0 \
    --untie-embeddings-and-output-weights \
    --micro-batch-size $MICRO \
    --global-batch-size $((WORLD_SIZE * 4)) \
    --lr 3.0e-4 \
    --bf16 \
    --use-distributed-optimizer \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
"
if [ -n "$CHECKPOINT" ]; then
    GPT_ARGS+=" --load $CHECKPOINT"
fi

torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS --tokenizer-type HuggingFaceTokenizer \
    --tokenizer-model "meta llama" | tee log.txt && echo "done"
