"""Train the model of config.json on random tokens with Hugging Face's Trainer, as Accelerate launches it."""

import argparse
import json
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

HERE = Path(__file__).parent


class RandomTokens(Dataset):
    """Sequences of random tokens, each the same whenever it is asked for."""

    def __init__(self, sequences: int, seq: int, vocab: int) -> None:
        self.sequences = sequences
        self.seq = seq
        self.vocab = vocab

    def __len__(self) -> int:
        return self.sequences

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        random = torch.Generator().manual_seed(index)
        tokens = torch.randint(self.vocab, (self.seq,), generator=random)
        return {"input_ids": tokens, "labels": tokens}


class TimedTrainer(Trainer):
    """Trainer that logs the time since it logged last, a step's where each is logged."""

    logged = 0.0

    def log(self, logs: dict[str, float], *arguments: object, **named: object) -> None:
        """Log with the time of the step."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self.logged and "loss" in logs:
            logs = {**logs, "step_time": round(now - self.logged, 6)}
        self.logged = now
        super().log(logs, *arguments, **named)


def main() -> None:
    """Train for some steps, each of them logged."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seq", type=int, required=True, help="tokens of a sequence")
    parser.add_argument("--mbs", type=int, required=True, help="sequences of a micro-batch")
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of a step on each rank")
    parser.add_argument("--attention", default="sdpa", help="attn_implementation of transformers")
    parser.add_argument("--recompute", action="store_true", help="recompute all layers in backward")
    parser.add_argument("--cpu", action="store_true", help="train on CPUs")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    arguments = TrainingArguments(
        output_dir=str(HERE / "output"),
        max_steps=options.steps,
        per_device_train_batch_size=options.mbs,
        gradient_accumulation_steps=options.accumulation,
        activation_checkpointing=options.recompute,
        use_cpu=options.cpu,
        optim="adamw_torch",
        logging_steps=1,
        dataloader_pin_memory=not options.cpu,
        disable_tqdm=True,
        save_strategy="no",
        report_to=[],
        seed=0,
    )
    config = AutoConfig.from_pretrained(HERE)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=options.attention)
    ranks = arguments.world_size
    micro_steps = options.accumulation
    gbs = options.mbs * ranks * micro_steps
    tokens = RandomTokens(options.steps * gbs, options.seq, config.vocab_size)
    trainer = TimedTrainer(model=model, args=arguments, train_dataset=tokens)
    if trainer.is_world_process_zero():
        state = trainer.accelerator.state
        fsdp = getattr(state, "fsdp_plugin", None) if trainer.is_fsdp_enabled else None
        recomputes = options.recompute or bool(fsdp and fsdp.activation_checkpointing)
        zero = 0
        if fsdp is not None:
            zero = 3 if fsdp.reshard_after_forward else 2
        run = {
            "model": "config.json",
            "seq": options.seq,
            "gpus": ranks,
            "precision": {"no": "fp32"}.get(state.mixed_precision, state.mixed_precision),
            "tp": 1,
            "pp": 1,
            "mbs": options.mbs,
            "gbs": gbs,
            "zero": zero,
            "recompute": "full" if recomputes else "none",
            "flash_attention": str(options.attention != "eager"),
        }
        print("run:", json.dumps(run), flush=True)
    trainer.train()
    trainer.save_state()


if __name__ == "__main__":
    main()
