"""What DeepSpeed makes of its configuration, on a number of ranks: fields of `DeepSpeedConfig`."""

import json
import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import draws

TABLE = "deepspeed"
PACKAGE = "deepspeed"
CLASSES = "DeepSpeedConfig"
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
GONE = (
    "zero_optimization.mics_shard_size",
    "zero_optimization.cpu_offload_params",
)  # refused by this release
# Optimizers that traincast reads, by the names that an engine compares (runtime/engine.py)
OPTIMIZERS = {
    **dict.fromkeys(("adam", "adamw", "muadam", "muadamw"), "adam"),
    **dict.fromkeys(("sgd", "musgd"), "sgd"),
}


def values() -> draws.Values:
    """Return the values of each setting that rows of the table read."""
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum

    words: dict[str, Sequence[Any]] = {
        "zero_optimization.stage": sorted({int(stage) for stage in ZeroStageEnum}),
        "zero_optimization.offload_optimizer.device": [device.value for device in OffloadDeviceEnum],
        "zero_optimization.offload_param.device": [device.value for device in OffloadDeviceEnum],
        "optimizer.type": ("Adam", "AdamW", "SGD", "Lion", "Muon", *DEEPSPEED_OPTIMIZERS),
        "data_types.grad_accum_dtype": ("fp32", "bf16", "fp16"),
        "train_batch_size": (32, 64, 128, 256),
    }
    words |= dict.fromkeys(GONE, ())
    numbers = (*BATCH[1:], "tensor_parallel.autotp_size", "sequence_parallel_size", "data_parallel_size")
    words |= dict.fromkeys(numbers, (1, 2, 4))
    return {name: words.get(name, (True, False)) for name in draws.names_read(TABLE, "deepspeed")}


def draw(chance: random.Random, known: draws.Values) -> draws.Case:
    """Return a configuration, and the ranks that it is read on."""
    chosen = draws.choose(known, chance)
    ranks = chance.choice((8, 16, 32))
    exclusive = ("tensor_parallel.autotp_size", "sequence_parallel_size")
    chosen.pop(chance.choice(exclusive), None)
    if "sequence_parallel_size" in chosen:
        chosen["data_parallel_size"] = ranks // chosen["sequence_parallel_size"]
    else:
        chosen.pop("data_parallel_size", None)
    return draws.Case(json.dumps(draws.nested(chosen)), {"model": "llama-3-8b", "gpus": ranks})


def read(case: draws.Case) -> Mapping[str, Any]:
    """Return what DeepSpeed makes of a configuration, as `deepspeed.initialize` reads it without an mpu."""
    import deepspeed.comm as dist
    from deepspeed.runtime.config import DeepSpeedConfig

    document = json.loads(case.text)
    ranks = case.given["gpus"]
    sequence = document.get("sequence_parallel_size", 1)
    mesh = None
    if "sequence_parallel_size" in document:
        sizes = {"data_parallel": document["data_parallel_size"], "sequence_parallel": sequence}
        mesh = SimpleNamespace(get_group=lambda mesh_dim: sizes[mesh_dim])  # a group is its size
    world = patch.object(dist, "get_world_size", lambda group=None: group or ranks)
    with world, patch.object(dist, "get_rank", lambda *_: 0):
        config = DeepSpeedConfig(document, mesh_device=mesh)
    zero = config.zero_config
    tp = config.tensor_parallel_config.autotp_size or 1
    assert ranks % tp == 0
    stage = int(zero.stage)
    parts = []
    for part, least, offload in (
        ("optimizer", 1, zero.offload_optimizer),
        ("weights", 3, zero.offload_param),
    ):
        device = "none" if offload is None else str(getattr(offload.device, "value", offload.device))
        assert device != "nvme", "a device that is not predicted"
        parts += [part] if device == "cpu" and stage >= least else []
    facts = {
        "tp": tp,
        "cp": sequence,
        "dp": config.world_size // tp,  # tensor-parallel ranks are counted among those of the batch
        "mbs": config.train_micro_batch_size_per_gpu,
        "gbs": config.train_batch_size // tp,
        "zero": stage,
        "offload": "+".join(parts) or "none",
        "dp_overlap": bool(zero.overlap_comm),
        "precision": "bf16" if config.bfloat16_config.enabled else "fp32",
    }
    if config.float16_config.enabled:
        facts["precision"] = "fp16"
    if config.optimizer_name is not None:
        facts["optimizer_kind"] = OPTIMIZERS.get(config.optimizer_name.lower(), config.optimizer_name)
    if config.grad_accum_dtype is not None:
        facts["grad_dtype"] = {"fp32": "fp32"}.get(config.grad_accum_dtype, "16-bit")
    return facts
