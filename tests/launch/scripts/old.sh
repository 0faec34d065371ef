# Megatron-LM of 2021, as its readme ran it; --world-size is told by the job
python -m torch.distributed.launch --nproc_per_node 8 --nnodes 16 pretrain_gpt.py \
       --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 2 \
       --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 \
       --micro-batch-size 1 --global-batch-size 1536 --fp16 --checkpoint-activations --tokenizer-type GPT2BPETokenizer
