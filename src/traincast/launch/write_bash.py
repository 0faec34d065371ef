"""Writer of launch scripts: bash that calls torchrun with Megatron-LM's arguments."""

import shlex
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any, Final

from traincast.launch.format import Writing
from traincast.launch.mapping import Settings
from traincast.launch.megatron import bridge as megatron_bridge

TORCHRUN: Final = """
torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" \\
    --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" \\
    --master-port "$MASTER_PORT" "$MEGATRON/pretrain_gpt.py" \\
    {arrays} "$@"
"""
TORCHRUN_BRIDGE: Final = """
torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" \\
    --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" \\
    --master-port "$MASTER_PORT" scripts/training/run_recipe.py \\
    --recipe "$RECIPE" --mode pretrain --dataset mock \\
    "${OVERRIDES[@]}" "$@"
"""
COMMENT_WIDTH: Final = 76
OVERLAP_FLAGS: Final = {  # not facts: the prediction assumes them
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
}
EXPERT_FLAGS: Final = {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True}


def megatron(writing: Writing) -> str:
    """Write a script that runs as it is, on mock data."""
    launch, facts = writing.settings["launch"], writing.told
    zero = facts.get("zero", 0)
    extra: dict[str, Settings] = {
        "software": (OVERLAP_FLAGS if zero == 1 else {"overlap_grad_reduce": True} if not zero else {})
        | (EXPERT_FLAGS if "experts.experts" in facts else {}),
        "data and schedule": {
            "train_iters": 100, "lr": "1e-4", "lr_decay_style": "constant",
            "mock_data": True, "tokenizer_type": "NullTokenizer", "split": "100,0,0", "eval_iters": 0, "log_interval": 1,
        },
    }  # fmt: skip
    sections = {
        name: section_settings
        for name, section_settings in {**writing.settings, **extra}.items()
        if name != "launch" and section_settings
    }
    arrays = {name: name.upper().split(" AND ")[0].replace(" ", "_") for name in sections}
    lines = [
        "#!/bin/bash",
        *comments(writing.head),
        *comments(
            (
                "The last part runs on mock data for 100 steps: put your own data, tokenizer and learning rate there.",
            )
        ),
        "set -euo pipefail",
        *_variables(launch),
        "MEGATRON=${MEGATRON:-.}  # a checkout of Megatron-LM",
        *(() if zero > 1 else ("export CUDA_DEVICE_MAX_CONNECTIONS=1",)),
        *(
            line
            for name, section_settings in sections.items()
            for line in ("", f"{arrays[name]}=(", *flags(section_settings), ")")
        ),
    ]
    array_arguments = " \\\n    ".join(
        wrap(" ".join(f'"${{{array}[@]}}"' for array in arrays.values()), COMMENT_WIDTH)
    )
    return "\n".join(lines) + "\n" + TORCHRUN.format(arrays=array_arguments)


def bridge(writing: Writing) -> str:
    """Write a script that runs Megatron-Bridge's recipe launcher with overrides."""
    launch = writing.settings["launch"]
    settings: Settings = {
        name: value
        for section, section_settings in writing.settings.items()
        if section != "launch"
        for name, value in section_settings.items()
    }
    fixed_overrides = {
        "train.train_iters": 100,
        **({"ddp.overlap_grad_reduce": True} if writing.told.get("dp", 1) > 1 else {}),
    }
    lines = [
        "#!/bin/bash",
        *comments(writing.head),
        *comments(("RECIPE supplies what is not overridden: choose one of the same model family.",)),
        "set -euo pipefail",
        *_variables(launch),
        "RECIPE=${RECIPE:?a recipe of Megatron-Bridge}",
        "",
        "OVERRIDES=(",
        *(
            f"    {name}={shlex.quote(megatron_bridge.override_value(value))}"
            for name, value in (megatron_bridge.overrides(settings) | fixed_overrides).items()
        ),
        ")",
    ]
    return "\n".join(lines) + "\n" + TORCHRUN_BRIDGE


def slurm(writing: Writing) -> str:
    """Write a Slurm batch job that runs Megatron-LM on every node."""
    launch = writing.settings["launch"]
    script = megatron(writing).splitlines()
    body = [
        line
        for line in script[1:]
        if not line.startswith(("NODE_RANK=", "MASTER_ADDR=", "NNODES=", "torchrun", "GPUS_PER_NODE="))
    ]
    run = next(i for i, line in enumerate(body) if line.startswith("    --node-rank"))
    arrays = [line.strip() for line in body[run + 2 :]]
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={writing.name}",
        f"#SBATCH --nodes={launch['nnodes']}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={launch['nproc_per_node']}",
        "#SBATCH --exclusive",
        *body[:run],
        f"GPUS_PER_NODE={launch['nproc_per_node']}",
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "",
        'srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$GPUS_PER_NODE" \\',
        '    --rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" \\',
        '    "$MEGATRON/pretrain_gpt.py" \\',
        *(f"    {line}" for line in arrays),
    ]
    return "\n".join(lines) + "\n"


def _variables(launch: Settings) -> tuple[str, ...]:
    """Return the shell variables that the environment of a multi-node job may set."""
    return (
        f"GPUS_PER_NODE=${{GPUS_PER_NODE:-{launch['nproc_per_node']}}}",
        f"NNODES=${{NNODES:-{launch['nnodes']}}}",
        "NODE_RANK=${NODE_RANK:-0}",
        "MASTER_ADDR=${MASTER_ADDR:-localhost}",
        "MASTER_PORT=${MASTER_PORT:-29500}",
    )


def comments(lines: Iterable[str], mark: str = "#") -> Iterable[str]:
    """Yield lines as comments, long ones wrapped."""
    for line in lines:
        depth = len(line) - len(line.lstrip())
        yield from (
            f"{mark} {part}"
            for part in wrap(
                line, COMMENT_WIDTH, initial_indent=" " * depth, subsequent_indent=" " * (depth + 2)
            )
        )


def flags(settings: Mapping[str, Any]) -> Iterable[str]:
    """Yield settings as arguments, one per line."""
    for name, value in settings.items():
        values = value if isinstance(value, tuple | list) else () if value is True else (value,)
        yield " ".join(("    " + flag(name), *(shlex.quote(str(item)) for item in values)))


def flag(name: str) -> str:
    """Return an argument's name on the command line."""
    if "." in name:  # of a configuration file that the script writes
        return name
    return "--" + name.replace("_", "-")
