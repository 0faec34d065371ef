"""What torchtitan makes of command lines: a configuration under overrides, and its meshes."""

import random
import shlex
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import draws

TABLE = "torchtitan"
PACKAGE = "torchtitan"
CLASSES = "ConfigManager, Trainer.Config, ParallelDims"
GPUS_OF_NODE = 8
SECTIONS = ("training", "parallelism", "compile")
RECOMPUTED = {"FullAC": "full", "SelectiveAC": "per-op"}  # class -> what traincast calls it
SCHEDULES = ("1F1B", "GPipe", "Interleaved1F1B")
# Of whole models, with no other precision than that of the settings.
CONFIGURATIONS = (
    ("llama3", "llama3_8b"),
    ("llama3", "llama3_70b"),
    ("deepseek_v3", "deepseek_v3_16b"),
    ("qwen3", "qwen3_14b"),
    ("qwen3", "qwen3_30b_a3b"),
)


def values() -> draws.Values:
    """Return the values of each setting that rows of the table read, of fields of torchtitan's classes."""
    from torchtitan.trainer import Trainer

    words: dict[str, Sequence[Any]] = {
        "training.local_batch_size": (2, 4, 8),
        "training.global_batch_size": (64, 128, 256),
        "training.seq_len": (2048, 4096, 8192),
        "parallelism.pipeline_parallel_schedule": SCHEDULES,
        "parallelism.data_parallel_shard_degree": (-1, 2, 4, 8),
        "parallelism.module_fqns_per_model_part": (),
        "parallelism.pipeline_parallel_layers_per_stage": (4, 8, 16),
        "compile.components": (),
    }
    hints = typing.get_type_hints(Trainer.Config)
    found = {}
    for name in draws.names_read(TABLE, "torchtitan"):
        section, _, last = name.partition(".")
        kinds = typing.get_type_hints(hints[section]) if section in SECTIONS else {}
        if last in kinds:
            found[name] = words.get(name, _values_of(kinds[last]))
    return found


def _values_of(kind: Any) -> Sequence[Any]:
    """Return the values that are drawn of a type: a switch, words, or degrees."""
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return ()
    return {bool: (True, False), int: (1, 2, 4)}.get(kind, ())


def draw(chance: random.Random, known: draws.Values) -> draws.Case:
    """Return a script that starts a configuration of torchtitan's under some overrides."""
    module, config = chance.choice(CONFIGURATIONS)
    chosen = draws.choose(known, chance)
    if chance.random() < 0.7:
        chosen.pop("parallelism.pipeline_parallel_layers_per_stage", None)
    words = []
    for name, value in chosen.items():
        section, _, last = name.partition(".")
        switch = f"--{section}.no-{last}" if value is False else f"--{name}"
        words += [switch] if isinstance(value, bool) else [f"--{name}", str(value)]
    nodes = chance.choice((1, 2, 4, 8))
    text = (
        f"torchrun --nnodes {nodes} --nproc-per-node {GPUS_OF_NODE} -m torchtitan.train --module {module}"
        f" --config {config} {shlex.join(words)}\n"
    )
    return draws.Case(text, {})


def read(case: draws.Case) -> Mapping[str, Any]:
    """Return what torchtitan makes of a command line."""
    from torchtitan.config import ConfigManager
    from torchtitan.distributed.parallel_dims import ParallelDims

    words = shlex.split(case.text)
    gpus = int(words[words.index("--nnodes") + 1]) * GPUS_OF_NODE
    config = ConfigManager().parse_args(words[words.index("torchtitan.train") + 1 :])
    degrees = config.parallelism
    meshes = ParallelDims.from_config(degrees, gpus)
    config.model_spec.model.update_from_config(config=config)
    training = config.training
    replicas = meshes.dp_replicate * meshes.dp_shard
    gbs = (
        training.global_batch_size if training.global_batch_size > 0 else training.local_batch_size * replicas
    )
    assert gbs % (training.local_batch_size * replicas) == 0
    layers = len(config.model_spec.model.layers)
    recomputed = config.activation_checkpoint
    facts = {
        "gpus": gpus,
        "tp": meshes.tp,
        "cp": meshes.cp,
        "pp": meshes.pp,
        "dp": replicas,
        "mbs": degrees.pipeline_parallel_microbatch_size if meshes.pp > 1 else training.local_batch_size,
        "gbs": gbs,
        "seq": training.seq_len,
        "layers": layers,
        "offload": "optimizer+weights" if training.enable_cpu_offload else "none",
        "recompute": RECOMPUTED[type(recomputed).__qualname__.split(".")[0]] if recomputed else "none",
        "precision": _precision(training),
        "tp_overlap": bool(config.compile.enable_async_tensor_parallel),
    }
    if meshes.dp_shard * meshes.cp > 1:
        facts |= {"zero": 3 if _reshards(degrees, meshes) else 2, "replicas": meshes.dp_replicate}
    elif meshes.dp_replicate > 1:
        facts["zero"] = 0
    if meshes.tp > 1:
        facts["sp"] = degrees.enable_sequence_parallel
    if any(hasattr(layer, "moe") and layer.moe is not None for layer in config.model_spec.model.layers):
        facts |= {"ep": meshes.ep, "etp": meshes.tp if meshes.ep == 1 else 1}
    if meshes.pp > 1:
        facts["vp"] = _chunks(meshes, degrees, config.model_spec.model)
    return facts


def _precision(training: Any) -> str:
    """Return the precision of weights and products."""
    if training.dtype == "bfloat16":
        return "bf16-pure"
    return "fp32" if training.mixed_precision_param == "float32" else "bf16"


def _reshards(degrees: Any, meshes: Any) -> bool:
    """Return whether weights are freed after the forward pass."""
    from torchtitan.distributed.fsdp import get_fsdp_reshard_after_forward_policy

    return bool(get_fsdp_reshard_after_forward_policy(degrees.fsdp_reshard_after_forward, meshes.pp_enabled))


def _chunks(meshes: Any, degrees: Any, model: Any) -> int:
    """Return the model chunks of each rank of a pipeline."""
    from torchtitan.distributed.pipeline_parallel import _get_pipeline_metadata

    stages, *_ = _get_pipeline_metadata(meshes, degrees, model)
    return int(stages) // int(meshes.pp)
