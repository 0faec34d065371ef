# A setting that matters and is not read, one of small effect, and one that nobody knows.
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \
    --max-position-embeddings 2048 --vocab-size 51200 --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer \
    --enable-cuda-graph --use-nccl-ub --strange-flag 3
