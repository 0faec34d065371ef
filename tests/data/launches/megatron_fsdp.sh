torchrun --nnodes 8 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --seq-length 8192 --max-position-embeddings 8192 \
  --vocab-size 128256 --untie-embeddings-and-output-weights --swiglu --normalization RMSNorm --disable-bias-linear \
  --position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 512 \
  --bf16 --use-megatron-fsdp --ckpt-format fsdp_dtensor --no-gradient-accumulation-fusion --use-distributed-optimizer
