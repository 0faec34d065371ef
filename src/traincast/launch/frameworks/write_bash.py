"""Writer of launch scripts: bash that calls torchrun with Megatron-LM's arguments."""

import shlex
from collections.abc import Iterable
from textwrap import wrap
from typing import Any, Final

from traincast.catalog import Stack
from traincast.launch.frameworks import megatron_bridge
from traincast.launch.frameworks.megatron import ALLGATHER, DISPATCHER
from traincast.launch.settings.format import Writing
from traincast.launch.settings.table import Values
from traincast.launch.settings.text_formats import COMMENT_WIDTH, comments

SCRIPT: Final = """#!/bin/bash
{head}
set -euo pipefail
GPUS_PER_NODE=${{GPUS_PER_NODE:-{nproc_per_node}}}
NNODES=${{NNODES:-{nnodes}}}
NODE_RANK=${{NODE_RANK:-0}}
MASTER_ADDR=${{MASTER_ADDR:-localhost}}
MASTER_PORT=${{MASTER_PORT:-29500}}
{settings}

torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" \\
    --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" \\
    --master-port "$MASTER_PORT" {program} "$@"
"""
JOB: Final = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nnodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={nproc_per_node}
#SBATCH --exclusive
{head}
set -euo pipefail
MASTER_PORT=${{MASTER_PORT:-29500}}
{settings}

GPUS_PER_NODE={nproc_per_node}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$GPUS_PER_NODE" \\
    --rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" \\
    {program} "$@"
"""
MEGATRON_NOTE: Final = (
    "The last part runs on mock data for 100 steps: put your own data, tokenizer and learning rate there."
)
BRIDGE_NOTE: Final = "RECIPE supplies what is not overridden: choose one of the same model family."
BRIDGE_PRETRAINING: Final = "--mode pretrain --dataset mock"
BRIDGE_LORA: Final = "--mode lora --dataset squad"
RUN_SETTINGS: Final[Values] = {
    "train_iters": 100,
    "lr": "1e-4",
    "lr_decay_style": "constant",
    "mock_data": True,
    "tokenizer_type": "NullTokenizer",
    "split": "100,0,0",
    "eval_iters": 0,
    "log_interval": 1,
}


def megatron(writing: Writing) -> str:
    """Write a script that runs as it is, on mock data."""
    return _megatron_script(SCRIPT, writing)


def slurm(writing: Writing) -> str:
    """Write a Slurm batch job that runs Megatron-LM on every node."""
    return _megatron_script(JOB, writing)


def _megatron_script(template: str, writing: Writing) -> str:
    """Write a script with an array of arguments for each section of the settings."""
    written = writing.all_settings
    fsdp = written.is_on("use_megatron_fsdp")
    overlapped = written.is_on("overlap_grad_reduce")
    gathers = overlapped and not fsdp and written.is_on("use_distributed_optimizer")
    # No facts: the prediction assumes them.
    software = {**({"overlap_param_gather": True} if gathers else {}), **_dispatcher(writing)}
    sections = {**writing.sections, "software": software, "data and schedule": RUN_SETTINGS}
    lines = ["MEGATRON=${MEGATRON:-.}  # a checkout of Megatron-LM"]
    # 1 starts communication of tp and cp before kernels; of experts it would serialise it (arguments.py)
    connections = 32 if written.is_on("overlap_moe_expert_parallel_comm") else 1
    lines += [] if fsdp else [f"export CUDA_DEVICE_MAX_CONNECTIONS={connections}"]
    arrays = []
    for section, settings in sections.items():
        if settings and section != "launch":
            array = section.upper().split(" AND ")[0].replace(" ", "_")
            arrays.append(f'"${{{array}[@]}}"')
            lines += ["", f"{array}=(", *flags(settings), ")"]
    arguments = wrap(" ".join(arrays), COMMENT_WIDTH)
    return template.format(
        head=_head(writing, MEGATRON_NOTE),
        settings="\n".join(lines),
        program=" \\\n    ".join(('"$MEGATRON/pretrain_gpt.py"', *arguments)),
        name=writing.name,
        **writing.sections["launch"],
    )


def _dispatcher(writing: Writing) -> Values:
    """Return the settings of the dispatcher of tokens that the prediction assumes.

    The fused one needs several ranks of experts (token_dispatcher.py).
    """
    facts = writing.facts
    if "experts.experts" not in facts:
        return {}
    grouped = {"moe_grouped_gemm": True} if facts["grouped_gemm"] else {}
    stack = Stack(str(facts.get("stack")))
    if stack.is_known and stack.facts.get("dispatcher") == ALLGATHER:
        return {DISPATCHER: ALLGATHER, **grouped}
    if stack.name != Stack.FUSED_DISPATCHER or facts["ep"] * facts["etp"] == 1:
        return {DISPATCHER: "alltoall", **grouped}
    backend = "hybridep" if facts["nvlink_spans_nodes"] else "deepep"
    return {DISPATCHER: "flex", "moe_flex_dispatcher_backend": backend, **grouped}


def bridge(writing: Writing) -> str:
    """Write a script that runs Megatron-Bridge's recipe launcher with overrides."""
    launch = writing.sections["launch"]
    settings = {name: value for name, value in writing.all_settings.items() if name not in launch}
    overrides = {**megatron_bridge.overrides({**settings, **_dispatcher(writing)}), "train.train_iters": 100}
    texts = {name: shlex.quote(megatron_bridge.override_value(value)) for name, value in overrides.items()}
    lines = (f"    {name}={text}" for name, text in texts.items())
    program = (
        "scripts/training/run_recipe.py",
        f'--recipe "$RECIPE" {BRIDGE_LORA if "adapters" in writing.facts else BRIDGE_PRETRAINING}',
        '"${OVERRIDES[@]}"',
    )
    return SCRIPT.format(
        head=_head(writing, BRIDGE_NOTE),
        settings="\n".join(("RECIPE=${RECIPE:?a recipe of Megatron-Bridge}", "", "OVERRIDES=(", *lines, ")")),
        program=" \\\n    ".join(program),
        **launch,
    )


def _head(writing: Writing, note: str) -> str:
    """Return the comments at the top of a script."""
    return "\n".join((*comments(writing.head), *comments((note,))))


def flags(settings: Values) -> Iterable[str]:
    """Yield settings as arguments, one per line."""
    for name, value in settings.items():
        values: Iterable[Any] = value if isinstance(value, tuple | list) else (value,)
        if value is True:
            values = ()
        yield " ".join(("    " + flag(name), *(shlex.quote(str(item)) for item in values)))


def flag(name: str) -> str:
    """Return an argument's name on the command line."""
    if "." in name or name == "source":  # of a configuration file that the script writes, or no argument
        return name
    return "--" + name.replace("_", "-")
