#!/bin/bash
# Three layers of a gated delta net, then one of attention: 16 heads of keys and 32 of values.
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py \
    --num-layers 12 --hidden-size 2048 --ffn-hidden-size 5120 --num-attention-heads 16 --kv-channels 256 \
    --group-query-attention --num-query-groups 2 \
    --experimental-attention-variant gated_delta_net --linear-attention-freq 4 --linear-conv-kernel-dim 4 \
    --linear-key-head-dim 128 --linear-value-head-dim 128 --linear-num-key-heads 16 --linear-num-value-heads 32 \
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
    --position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 \
    --seq-length 32768 --max-position-embeddings 32768 --vocab-size 151936 --tokenizer-type NullTokenizer \
    --micro-batch-size 1 --global-batch-size 16 --bf16 --use-distributed-optimizer --mock-data --lr 1e-4 --train-iters 9
