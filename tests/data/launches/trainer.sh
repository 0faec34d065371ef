torchrun --nproc_per_node=8 train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --bf16 True \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --model_max_length 2048 \
  --fsdp 'full_shard auto_wrap' --output_dir out
