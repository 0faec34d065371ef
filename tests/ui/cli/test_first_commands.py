"""First commands as people type them who have not read the help: each is answered, or says what to write.

They are those that a new user typed for the questions of a day. An answer is exit code 0, or 1 where the plan
that is meant, or every plan, is too large.
"""

import json

import pytest

ANSWERED = {  # command -> what its answer, or what is said beside it, has
    "plan Qwen3-30B-A3B --system h100 --gpus 32": "on 32 GPUs of dgx-h100",
    "plan llama-3-70b --system b200 --gpus 1024 --tokens 15T": "GPU-hours, ",
    "plan meta-llama/Llama-3.1-8B --system dgx-h100 --gpus 16 --seq 128k": "of 131,072 tokens",
    "plan Llama-3.1-8B --system a100-80gb --gpus 8": "on 8 GPUs of dgx-a100",
    "plan llama-3-70b --system mi300x --gpus 64": "on 64 GPUs of mi300x-node",
    "plan llama-3-70b --system gb200 --gpus 72": "on 72 GPUs of gb200-nvl72",
    "plan deepseek-v3 --system H200 --gpus 256": "on 256 GPUs of dgx-h200",
    "plan Qwen/Qwen3-8B --system h100 --gpus 8 --dpo": "DPO",
    "memory llama-3-70b --system a100-80gb --gpus 8 --lora 16": "LoRA of rank 16",
    "plan llama-3-8b --system 4090 --gpus 1 --qlora": "base in nf4 (8.03 G parameters) on 1 GPU of rtx-4090",
    "advise llama-3-8b --system h100 --tp 4 --pp 2 --dp 8 --mfu 0.28": "(measured)",
    "plan llama-3-70b --system b200 --gpus 1024 --cost": "GPU-hours, ",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --framework trl": "plans and rules of huggingface",
    "estimate llama-3-8b --system h100 --gpus 8 --framework torchtitan --zero 3 --dp 8": "torchtitan-2025",
    "plan llama-3-8b --system dgx-h100 --gpus 8 --batch-size 64": "a step: 64 sequences",
    "plan nemotron-h-56b --system dgx-h100 --gpus 64": "on 64 GPUs of dgx-h100",
    "plan qwen2.5-vl-7b --system dgx-h100 --gpus 16": "image",
    "export llama-3-8b --system dgx-h100 --gpus 8 --to trl": 'accelerate_config: "fsdp2"',
    "export llama-3-8b --system h100 --gpus 8 --to nemo": "with Megatron-Bridge",
    "compare llama-3-70b --system dgx-h100,mi300x-node --gpus 64": "longer than A, within its error of",
    "plan llama-3-70b --system dgx-h100,dgx-b200 --gpus 64": "longer than B, more than its error of",
    "compare llama-3-70b h100 --gpus 64,128": "For a token a GPU of B takes",
    "plan llama-3-70b h100 --gpus 64": "on 64 GPUs of dgx-h100",
    "scaling llama-3-8b --system h100 --gpus 8,64": "on dgx-h100, data parallel with ZeRO",
    "plan llama-3-8b --system tpu-v5p --chips 64": "on 64 GPUs of tpu-v5p-pod",
    "plan llama-3-8b --system b200 --gpus 8 --precision fp4": "nvfp4",
    "plan llama-3-8b --system h100 --gpus 8 --lora-r 8 --lora-alpha 32 --lr 2e-4 --flash-attn": (
        "--lora-alpha 32: changes neither time nor memory"
    ),
    "memory meta-llama/Llama-3.1-8B --system 3090 --qlora --seq 2048": "on 1 GPU of rtx-3090",
    "plan bigscience/bloom --system a100 --gpus 384": "bloom-176b",
    "plan gpt2-xl --system l4 --gpus 8": "on 8 GPUs of l4",
    "estimate llama-70b --system H100x8 --tp 8 --pp 4 --dp 2": "on 64 GPUs of dgx-h100",
    "catalog models": "qwen3-8b",
    "catalog gpus": "h100-sxm-80",
    "help plan": "Usage: traincast plan",
    "version": "0.",
}
MAY_NOT_FIT = ("--qlora",)  # on GPUs of little memory


@pytest.mark.parametrize("command", ANSWERED)
def test_a_first_command_is_answered(command, run):
    code, out, err = run(command)
    assert code in ((0, 1) if any(word in command for word in MAY_NOT_FIT) else (0,)), err
    assert ANSWERED[command] in " ".join((out + err).split())
    assert max(map(len, out.splitlines()), default=0) <= 80


@pytest.mark.parametrize("kind", ["models", "systems", "accelerators", "stacks"])
def test_the_catalogue_lists_one_kind(kind, run):
    answers = [json.loads(run(f"catalog {name} --json").out) for name in (kind, "")]
    key = kind if kind != "stacks" else "software_stacks"
    assert answers[0][key] == answers[1][key]
    assert all(not names for other, names in answers[0].items() if other not in (key, "version"))
