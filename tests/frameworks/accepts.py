"""Whether frameworks accept files, by their own software: run by the Python that they are installed in.

    python accepts.py FORMAT GPUS FILE [GPUS FILE ...]

It prints a JSON object: for each file what its framework says against it, or null.
"""

import json
import os
import re
import runpy
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

os.environ["DISABLE_VERSION_CHECK"] = "1"  # LLaMA-Factory: of the versions of what it imports
os.environ["HF_HUB_OFFLINE"] = "1"


def torchtitan(path, gpus):
    """Make the configuration, its meshes, and the model's own checks of them (`Trainer.__init__`)."""
    from torchtitan.distributed.parallel_dims import ParallelDims

    made = next(value for name, value in runpy.run_path(path).items() if name.endswith("_gpus"))()
    meshes = ParallelDims.from_config(made.parallelism, gpus)
    made.model_spec.model.update_from_config(config=made)
    rows = made.parallelism.pipeline_parallel_microbatch_size
    assert made.training.seq_len % ((2 * meshes.cp if meshes.cp > 1 else 1) * meshes.tp) == 0
    ranks = meshes.dp_replicate * meshes.dp_shard
    assert made.training.global_batch_size % (made.training.local_batch_size * ranks) == 0
    if meshes.pp > 1:
        from torch.distributed.pipelining.schedules import get_schedule_class

        get_schedule_class(made.parallelism.pipeline_parallel_schedule)
        assert made.training.local_batch_size // rows >= 1
        parts = made.parallelism.module_fqns_per_model_part
        if parts:
            layers = [name for part in parts for name in part if name.startswith("layers.")]
            assert layers == [f"layers.{i}" for i in range(len(made.model_spec.model.layers))]
            assert len(parts) % meshes.pp == 0


def deepspeed(path, gpus):
    """Read the configuration as an engine does, on so many ranks."""
    from unittest.mock import patch

    import deepspeed.comm as dist
    from deepspeed.runtime.config import DeepSpeedConfig

    document = json.loads(Path(path).read_text())
    document.pop("//", None)
    sequence = document.get("sequence_parallel_size", 1)
    tensor = document.get("tensor_parallel", {}).get("autotp_size", 1)
    replicas = gpus // (sequence * tensor)
    mpu = SimpleNamespace(get_data_parallel_world_size=lambda: replicas)
    with patch.object(dist, "get_world_size", lambda *_: gpus), patch.object(dist, "get_rank", lambda *_: 0):
        DeepSpeedConfig(document, mpu=mpu)


def accelerate(path, gpus):
    """Read the configuration as `accelerate launch` does, and check its meshes."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin

    config = load_config_from_file(path)
    args = launch_command_parser().parse_args(["--config_file", path, "train.py"])
    _validate_launch_command(args)
    assert config.num_processes == gpus, f"{config.num_processes} processes"
    degrees = config.parallelism_config or {}
    prefix = "parallelism_config_"
    names = {name.removeprefix(prefix): value for name, value in degrees.items()}
    strategy = names.pop("cp_comm_strategy", None)
    mesh = ParallelismConfig(**{name: int(value) for name, value in names.items()})
    assert mesh.total_size in (1, gpus), f"a mesh of {mesh.total_size}"
    assert strategy in (None, "allgather", "alltoall")
    given = {name.removeprefix("fsdp_"): value for name, value in (config.fsdp_config or {}).items()}
    plugin = {
        "fsdp_version": given.pop("version", 1),
        "reshard_after_forward": given.pop("reshard_after_forward", None),
        "activation_checkpointing": given.pop("activation_checkpointing", None),
        "cpu_offload": given.pop("offload_params", None),
        "auto_wrap_policy": given.pop("auto_wrap_policy", None),
        "state_dict_type": given.pop("state_dict_type", None),
    }
    assert not given, f"unknown: {given}"
    if config.fsdp_config:
        FullyShardedDataParallelPlugin(**{name: value for name, value in plugin.items() if value is not None})


def trl(path, gpus):
    """Parse the arguments as `trl sft` or `trl dpo` does, and what remains as `accelerate launch` does."""
    import importlib

    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from trl.cli.accelerate_config import resolve_accelerate_config_argument

    command = "dpo" if re.search(r"^beta:", Path(path).read_text(), re.MULTILINE) else "sft"
    parser = importlib.import_module(f"trl.scripts.{command}").make_parser(prog=f"trl {command}")
    *_, of_config, of_line = parser.parse_args_and_config(
        ["--config", path, "--use_cpu", "true"],
        return_remaining_strings=True,
        separate_remaining_strings=True,
    )
    launch = resolve_accelerate_config_argument(of_config + of_line)
    args = launch_command_parser().parse_args([*launch, "sft.py"])
    _validate_launch_command(args)
    assert args.training_script == "sft.py", f"unknown: {args.training_script}"
    assert int(args.num_processes) == gpus, f"{args.num_processes} processes"


def axolotl(path, gpus):
    """Validate the configuration with axolotl's schema for such accelerators."""
    import yaml
    from axolotl.utils.schemas.config import AxolotlConfigWCapabilities, AxolotlInputConfig

    document = yaml.safe_load(Path(path).read_text())
    unknown = set(document) - set(AxolotlInputConfig.model_fields) - _aliases(AxolotlInputConfig)
    assert not unknown, f"unknown: {unknown}"
    capabilities = {"bf16": True, "fp8": True, "tf32": True, "n_gpu": gpus, "n_node": -(-gpus // 8)}
    capabilities["compute_capability"] = "sm_90"
    AxolotlConfigWCapabilities(
        **document, capabilities=capabilities, env_capabilities={"torch_version": "2.9.0"}
    )


def _aliases(model):
    """Return other names of the fields of a model."""
    return {field.alias for field in model.model_fields.values() if field.alias}


def llama_factory(path, gpus):
    """Parse the arguments as `llamafactory-cli train` does."""
    import yaml
    from llamafactory.hparams.parser import _parse_train_args

    document = yaml.safe_load(Path(path).read_text())
    document.pop("deepspeed", None)  # needs a device
    document |= {"use_cpu": True, "bf16": False, "fp16": False}
    document.pop("fsdp", None)
    document.pop("fsdp_config", None)
    _parse_train_args(document)


def torchtune(path, gpus):
    """Bind the arguments of every component that the recipe names to its signature."""
    import inspect

    import yaml

    _stub("torchao", version="0.12.0")  # that of its time does not import today
    from torchtune.config._utils import _get_component_from_path

    document = yaml.safe_load(Path(path).read_text())
    for value in document.values():
        if isinstance(value, dict) and "_component_" in value:
            if any(name in value["_component_"] for name in ELSEWHERE):
                continue
            component = _get_component_from_path(value.pop("_component_"))
            inspect.signature(component).bind_partial(**value)


# A package of its own, and what the last release (0.6.1, April 2025) does not have yet.
ELSEWHERE = ("bitsandbytes", "LinearCrossEntropyLoss", "models.qwen3.")
VARIABLES = ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_CPU_OFFLOAD_V1")  # that the parser looks at
LAUNCHER = """#!/bin/bash
exec python3 -c 'import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))' "$@"
"""


def megatron(path, gpus):
    """Parse and validate the arguments as a program of Megatron-LM does, and make its configurations.

    Transformer Engine is a stub, and the device an H100.
    """
    import contextlib
    import io
    from dataclasses import fields

    arguments = _megatron_arguments()
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig

    for name in VARIABLES:  # of the file before
        os.environ.pop(name, None)
    words, environment = _launched(path)
    given = dict(pairwise(words))
    ranks = int(given["--nnodes"]) * int(given["--nproc-per-node"])
    assert ranks == gpus, f"{ranks} processes"
    program = next(i for i, word in enumerate(words) if word.endswith(".py"))
    os.environ |= {name: environment[name] for name in VARIABLES if name in environment}
    os.environ |= {"WORLD_SIZE": str(gpus), "RANK": "0"}
    before, sys.argv = sys.argv, [Path(words[program]).name, *words[program + 1 :]]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            args = arguments.validate_args(arguments.parse_args(), {"tokenizer_type": "NullTokenizer"})
            arguments.core_transformer_config_from_args(args)
            for kind in (OptimizerConfig, DistributedDataParallelConfig):  # training.py
                values = {field.name for field in fields(kind) if field.init} & set(vars(args))
                kind(**{name: getattr(args, name) for name in values})
    except SystemExit:
        raise ValueError(said.getvalue()[-400:]) from None
    finally:
        sys.argv = before


def _megatron_arguments():
    """Return Megatron-LM's module of arguments, imported where no GPU is and before Python 3.12."""
    import logging
    import typing

    if not hasattr(typing, "override"):
        typing.override = lambda method: method
    _stub("transformer_engine", version="2.20.2")
    import torch
    import transformer_engine.pytorch.optimizers as optimizers

    class FusedAdam:
        """What takes the arguments of the precision-aware optimizer, which are looked up."""

        def __init__(self, master_weight_dtype, exp_avg_dtype, exp_avg_sq_dtype, use_decoupled_grad):
            pass

    optimizers.FusedAdam = FusedAdam
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(
        major=9, minor=0, total_memory=80 << 30, multi_processor_count=132, name="H100"
    )
    logging.disable(logging.CRITICAL)
    from megatron.training import arguments

    return arguments


def _launched(path):
    """Return the words and the environment with which a script calls torchrun."""
    import subprocess

    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "torchrun")
        program.write_text(LAUNCHER)
        program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        ran = subprocess.run(["bash", path], env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def _stub(package, version="0"):
    """Put a package in place of one that does not run here; its modules have any name, each a class."""
    import types
    from importlib.abc import Loader, MetaPathFinder
    from importlib.machinery import ModuleSpec
    from importlib.metadata import version as true_version
    from unittest.mock import patch

    class Anything(type):
        def __getattr__(cls, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Anything(name, (), {})

        def __call__(cls, *given, **_):  # a decorator, with arguments or without
            return given[0] if given and callable(given[0]) else cls

    class Stub(types.ModuleType):
        __path__ = ()
        __version__ = version

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Anything(name, (), {})

    class Finder(MetaPathFinder, Loader):
        def find_spec(self, name, path=None, target=None):
            return ModuleSpec(name, self) if name.split(".")[0] == package else None

        def create_module(self, spec):
            return Stub(spec.name)

        def exec_module(self, module):
            pass

    if not any(getattr(finder, "stubs", "") == package for finder in sys.meta_path):
        finder = Finder()
        finder.stubs = package
        sys.meta_path.insert(0, finder)
        names = (package, package.replace("_", "-"))
        patch(
            "importlib.metadata.version", lambda name: version if name in names else true_version(name)
        ).start()


def main():
    """Print what is said against each file."""
    form, *rest = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.prefix) / "parsers" / form))  # installed without what it depends on
    check = globals()[form.replace("-", "_")]
    said = {}
    for gpus, path in zip(rest[::2], rest[1::2], strict=True):
        try:
            said[path] = check(path, int(gpus))
        except (Exception, SystemExit) as error:
            said[path] = f"{type(error).__name__}: {error}"
    print(json.dumps(said))


if __name__ == "__main__":
    main()
