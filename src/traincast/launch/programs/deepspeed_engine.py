"""Train the model of config.json on random tokens with DeepSpeed, as ds_config.json says."""

import argparse
import json
from pathlib import Path

import deepspeed
import torch
from deepspeed.utils.logging import set_log_level_from_string
from transformers import AutoConfig, AutoModelForCausalLM

HERE = Path(__file__).parent
CONFIG = HERE / "ds_config.json"


def main() -> None:
    """Train for some steps; DeepSpeed logs its settings at the start, and each step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seq", type=int, required=True, help="tokens of a sequence")
    parser.add_argument("--attention", default="sdpa", help="attn_implementation of transformers")
    parser.add_argument("--recompute", action="store_true", help="recompute all layers in backward")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    set_log_level_from_string("info")
    deepspeed.init_distributed()
    stage = json.loads(CONFIG.read_text()).get("zero_optimization", {}).get("stage", 0)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(HERE)
    with deepspeed.zero.Init(config_dict_or_path=str(CONFIG), enabled=stage == 3):
        model = AutoModelForCausalLM.from_config(config, attn_implementation=options.attention)
    if options.recompute:
        model.gradient_checkpointing_enable()
    model.train()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=str(CONFIG))
    micro_batch = engine.train_micro_batch_size_per_gpu()
    micro_steps = engine.gradient_accumulation_steps()
    rank = deepspeed.comm.get_rank()
    if rank == 0:
        run = {
            "model": "config.json",
            "seq": options.seq,
            "gpus": deepspeed.comm.get_world_size(),
            "recompute": "full" if options.recompute else "none",
            "flash_attention": str(options.attention != "eager"),
        }
        print("run:", json.dumps(run), flush=True)

    random = torch.Generator().manual_seed(rank)
    for _ in range(options.steps * micro_steps):
        tokens = torch.randint(config.vocab_size, (micro_batch, options.seq), generator=random)
        tokens = tokens.to(engine.device)
        loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        engine.backward(loss)
        engine.step()
    if rank == 0:
        print(f"loss of the last micro-batch: {loss.item():.4f}", flush=True)
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
