torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --seq-length 4096 --max-position-embeddings 4096 \
  --vocab-size 32000 --untie-embeddings-and-output-weights --swiglu --normalization RMSNorm --disable-bias-linear \
  --position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 256 \
  --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall \
  --moe-grouped-gemm --pipeline-model-parallel-size 4 --bf16 --use-distributed-optimizer
