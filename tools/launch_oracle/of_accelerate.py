"""What Accelerate makes of its configuration: the launcher's arguments, and the plugins that read them.

`facts_of` has their fields that a launch depends on, in the words of traincast. The plugins of FSDP and
DeepSpeed and ParallelismConfig are made in the environment that `accelerate launch` gives a process.
"""

import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import draws
import yaml

TABLE = "accelerate"
PACKAGE = "accelerate"
CLASSES = "load_config_from_file, FullyShardedDataParallelPlugin, DeepSpeedPlugin, ParallelismConfig"
SECTIONS = {"FSDP": "fsdp_config", "DEEPSPEED": "deepspeed_config"}
GPUS = 8  # of the machine that starts the processes


def values() -> draws.Values:
    """Return the values of each setting that rows of the table read: of the launcher's arguments."""
    from accelerate.commands.launch import launch_command_parser
    from accelerate.utils.constants import FSDP_SHARDING_STRATEGY
    from accelerate.utils.dataclasses import DistributedType

    actions = {action.dest: action for action in launch_command_parser()._actions}
    words: dict[str, Sequence[Any]] = {  # of arguments that are any text
        "fsdp_sharding_strategy": FSDP_SHARDING_STRATEGY,
        "fsdp_reshard_after_forward": (True, False),
        "parallelism_config_cp_comm_strategy": ("allgather", "alltoall"),
        "offload_optimizer_device": ("none", "cpu", "nvme"),
        "offload_param_device": ("none", "cpu", "nvme"),
        "dynamo_backend": ("no", "eager", "aot_eager", "inductor"),  # of other compilers nothing is predicted
        "distributed_type": [kind.value for kind in DistributedType],
    }
    switches = (
        "fsdp_activation_checkpointing",
        "fsdp_activation_checkpointing_offload",
        "fsdp_offload_params",
    )
    words |= dict.fromkeys(switches, (True, False))
    found = {}
    for name in draws.names_read(TABLE, "accelerate"):
        last = name.rpartition(".")[2]
        found[name] = words.get(last) or (draws.values_of(actions[last]) if last in actions else ())
    return found


def draw(chance: random.Random, known: draws.Values) -> draws.Case:
    """Return a configuration."""
    chosen = draws.choose(known, chance)
    kind = chance.choice(("FSDP", "FSDP", "FSDP", "DEEPSPEED", "MULTI_GPU", "NO"))
    has_mesh = kind == "FSDP" and chance.random() < 0.4
    for name in list(chosen):
        section = name.partition(".")[0]
        if (section in SECTIONS.values() and section != SECTIONS.get(kind)) or (
            name.startswith("parallelism_config.") and not has_mesh
        ):
            del chosen[name]
    processes = prod(value for name, value in chosen.items() if name.endswith("_size"))
    machines = chance.choice((1, 2, 4))
    chosen |= {"distributed_type": kind, "num_machines": machines}
    chosen["num_processes"] = processes if has_mesh else machines * chance.choice((2, 4, 8))
    chosen.pop("gradient_accumulation_steps", None)  # no key of the configuration
    if kind == "DEEPSPEED":
        chosen |= {
            "deepspeed_config.zero_stage": chance.choice((0, 1, 2, 3)),
            "deepspeed_config.zero3_init_flag": False,
        }
        if chance.random() < 0.2:
            del chosen["deepspeed_config.zero_stage"]
    if has_mesh:
        chosen["fsdp_config.fsdp_version"] = 2
    if "fsdp_config.fsdp_version" in chosen:
        chosen["fsdp_config.fsdp_version"] = int(chosen["fsdp_config.fsdp_version"])
    if kind == "FSDP":  # else it looks for a device
        chosen |= {"fsdp_config.fsdp_sync_module_states": False}
        chosen |= {"fsdp_config.fsdp_cpu_ram_efficient_loading": False}
    if machines > 1:
        chosen |= {"main_process_ip": "10.0.0.1", "main_process_port": 29500}
    text = yaml.safe_dump(draws.nested({**chosen, "machine_rank": 0}), default_flow_style=None, width=1000)
    return draws.Case(text, {"model": "llama-3-8b"})


def read(case: draws.Case) -> Mapping[str, Any]:
    """Return what Accelerate makes of a configuration."""
    from accelerate.commands.config.config_args import load_config_from_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(case.text)
        config = load_config_from_file(str(path))
        kind = str(config.distributed_type.value)
        args, environment = launched(["--config_file", str(path), "train.py"])
    facts = facts_of(args, environment)
    return facts | numbers(facts, args, kind)


def launched(words: list[str]) -> tuple[Any, Mapping[str, str]]:
    """Return the arguments of `accelerate launch`, and the environment of the processes that it starts."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import (
        prepare_deepspeed_cmd_env,
        prepare_multi_gpu_env,
        prepare_simple_launcher_cmd_env,
    )

    words_of = launch_command_parser().parse_args(words)
    with patch("torch.cuda.is_available", lambda: True), patch("torch.cuda.device_count", lambda: GPUS):
        args, _, _ = _validate_launch_command(words_of)
    assert args.num_processes % args.num_machines == 0
    args.deepspeed_fields_from_accelerate_config = ""
    if args.use_deepspeed:
        return args, prepare_deepspeed_cmd_env(args)[1]
    if args.use_fsdp or args.multi_gpu:
        return args, prepare_multi_gpu_env(args)
    return args, prepare_simple_launcher_cmd_env(args)[1]


@contextmanager
def environment_of(environment: Mapping[str, str]) -> Iterator[None]:
    """Let the environment be that of a process on a GPU."""
    device = patch("accelerate.utils.dataclasses.is_cuda_available", lambda: True)
    number = patch("torch.cuda.current_device", lambda: 0)
    with patch.dict(os.environ, dict(environment), clear=True), device, number:
        yield


def facts_of(args: Any, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what distributes the training: ranks, degrees, what is sharded, offloaded and recomputed."""
    from accelerate.utils import DistributedType

    is_distributed = args.use_deepspeed or args.use_fsdp or args.multi_gpu
    facts: dict[str, Any] = {"gpus": args.num_processes if is_distributed else 1}
    facts |= {"tp": 1, "cp": 1, "zero": 0, "replicas": 1, "recompute": "none", "offload": "none"}
    with environment_of(environment):
        if args.use_fsdp:
            facts |= fsdp_facts(plugin_of_environment(), args.num_machines)
        if args.use_deepspeed:
            facts |= deepspeed_facts()
        if os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
            kind = DistributedType.FSDP if args.use_fsdp else DistributedType.MULTI_GPU
            facts |= mesh_facts(args, kind)
    facts["dp"] = facts["gpus"] // (facts["tp"] * facts["cp"])
    return facts


def plugin_of_environment() -> Any:
    """Return the plugin of FSDP that Accelerate makes in the environment of a process."""
    from accelerate.utils import FullyShardedDataParallelPlugin

    return FullyShardedDataParallelPlugin()


def fsdp_facts(plugin: Any, machines: int) -> dict[str, Any]:
    """Return what FSDP shards: ZeRO-3 with weights freed after the forward pass, else ZeRO-2."""
    from torch.distributed.fsdp import ShardingStrategy

    replicas = 1
    if plugin.fsdp_version == 2:
        zero = 3 if plugin.reshard_after_forward else 2
        offloads = plugin.cpu_offload is not None and type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"
    else:
        strategy = plugin.sharding_strategy or plugin.reshard_after_forward
        stages = {
            ShardingStrategy.FULL_SHARD: 3,
            ShardingStrategy.HYBRID_SHARD: 3,
            ShardingStrategy.SHARD_GRAD_OP: 2,
            ShardingStrategy._HYBRID_SHARD_ZERO2: 2,
            ShardingStrategy.NO_SHARD: 0,
        }
        zero = stages[strategy]
        replicas = machines if "HYBRID" in strategy.name else 1  # it shards within a machine
        offloads = plugin.cpu_offload.offload_params
    offloaded = ["activations"] if plugin.activation_checkpointing_offload else []
    offloaded += ["optimizer+weights"] if offloads else []
    return {
        "zero": zero,
        "replicas": replicas,
        "recompute": "full" if plugin.activation_checkpointing else "none",
        "offload": "+".join(offloaded) or "none",
    }


def deepspeed_facts() -> dict[str, Any]:
    """Return what DeepSpeed shards and offloads; below its stage a device has no effect."""
    from accelerate.utils import DeepSpeedPlugin

    plugin = DeepSpeedPlugin()
    written = plugin.deepspeed_config["zero_optimization"]
    stage = plugin.zero_stage
    devices = {part: written.get(f"offload_{part}", {}).get("device") for part in ("optimizer", "param")}
    assert "nvme" not in devices.values(), "a device that is not predicted"
    parts = ["optimizer"] if devices["optimizer"] == "cpu" and stage >= 1 else []
    parts += ["weights"] if devices["param"] == "cpu" and stage == 3 else []
    return {"zero": stage, "offload": "+".join(parts) or "none"}


def mesh_facts(args: Any, kind: Any) -> dict[str, Any]:
    """Return the degrees of a ParallelismConfig, which checks that it has all processes."""
    from accelerate.parallelism_config import ParallelismConfig

    mesh = ParallelismConfig()
    accelerator = SimpleNamespace(
        num_processes=args.num_processes,
        multi_device=True,
        is_fsdp2=bool(args.use_fsdp),
        distributed_type=kind,
    )
    if mesh.total_size == 1:  # a ParallelismConfig of nothing: all processes are replicas
        assert not args.use_fsdp
        return {}
    mesh._validate_accelerator(accelerator)
    facts: dict[str, Any] = {"tp": mesh.tp_size, "cp": mesh.cp_size * mesh.sp_size}
    if mesh.cp_size > 1:
        words = {"allgather": "all-gather", "alltoall": "ring"}
        facts["cp_kind"] = words[mesh.cp_handler.cp_comm_strategy]
    return facts | {"replicas": mesh.dp_replicate_size}


def numbers(facts: Mapping[str, Any], args: Any, kind: str) -> dict[str, Any]:
    """Return the precision: where nothing is mixed that of the checkpoint, bf16, and fp32 with DeepSpeed."""
    mixed = args.mixed_precision
    if mixed == "fp8":
        backend = str(getattr(args, "fp8_backend", None) or "AO").upper()
        return {"precision": "fp8" if backend == "TE" else "fp8-current"}
    if mixed == "no":
        return {"precision": "fp32" if kind == "DEEPSPEED" else "bf16-pure"}
    return {"precision": mixed}
