#!/bin/bash
# Sizes by name, a micro-batch by another variable, and settings that no condition changes.
OPTIONS="--bf16"
if [ -n "$2" ]; then
    OPTIONS="$OPTIONS --load $2"
fi
SIZE=${1:-7B}
case $SIZE in
  7B) HIDDEN=4096; LAYERS=32; HEADS=32; TP=1 ;;
  70B) HIDDEN=8192; LAYERS=80; HEADS=64; TP=8 ;;
esac
if [ "$DEBUG" == 1 ]; then
  MBS=1
else
  MBS=2
fi
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py $OPTIONS --num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads $HEADS --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --micro-batch-size $MBS --global-batch-size 256 --tensor-model-parallel-size $TP --use-distributed-optimizer
