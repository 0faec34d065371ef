"""Accelerate's configuration: FSDP2 and ParallelismConfig, which describe neither model nor batch."""

from collections.abc import Mapping
from typing import Final

from traincast.core.errors import InputError
from traincast.launch.canonical import Facts
from traincast.launch.mapping import (
    ANY,
    ChoiceRow,
    ComputedRow,
    Row,
    Settings,
    ValueRow,
    constant_facts,
    is_off,
    whole_number,
)
from traincast.planner.framework_spaces import Framework

SOURCE: Final = (
    "accelerate 1.15.0 (PyPI), accelerate/parallelism_config.py, commands/launch.py and commands/config/config_args.py, "
    "looked at on 2026-11-20"
)
SPACE: Final = Framework(
    "accelerate",
    "Accelerate: FSDP2 and HSDP with tensor parallelism and context parallelism, no pipeline",
    ("1d", "context", "ring"),
    {"recompute": ("none", "full"), "zero": (2, 3)},
    experts=False,
    hybrid=True,
    interleaved=False,
    pipeline_zero=0,
    assumptions="torchtitan-2025",
)
DEGREES: Final = "parallelism_config.parallelism_config_"
FSDP: Final = "fsdp_config.fsdp_"
UNSHARDED_TYPES: Final = ("NO", "MULTI_GPU")  # one process, or DDP
SHARDING: Final = {
    "FULL_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "NO_SHARD": 0,
    "HYBRID_SHARD": 3,
    "HYBRID_SHARD_ZERO2": 2,
}  # of FSDP1


def _size(settings: Settings, name: str, usual: int = 1) -> int:
    """Return a setting as a whole number."""
    return usual if is_off(settings.get(name)) else int(whole_number(name, settings[name], 1))


def _write_data(facts: Facts) -> Settings:
    """Write replicate and shard degrees of data parallelism; DDP where nothing is sharded."""
    copies = facts["dp"] if facts.get("zero", 0) == 0 else facts.get("replicas", 1)
    if facts["dp"] % copies:
        return {}
    settings: Settings = {
        f"{DEGREES}dp_replicate_size": copies,
        f"{DEGREES}dp_shard_size": facts["dp"] // copies,
    }
    return settings | (
        {f"{FSDP}reshard_after_forward": facts["zero"] == 3} if facts.get("zero", 0) > 1 else {}
    )


def _read_data(settings: Settings) -> Facts:
    """Read data parallelism and what is sharded; without degrees all processes are replicas, and FSDP shards over all."""
    fsdp_zero = 2 if is_off(settings.get(f"{FSDP}reshard_after_forward", True)) else 3
    if not any(name.startswith(DEGREES) for name in settings):
        return _read_plain(settings, fsdp_zero)
    copies, shards = (
        _size(settings, f"{DEGREES}dp_replicate_size"),
        _size(settings, f"{DEGREES}dp_shard_size"),
    )
    sharded = shards * _size(settings, f"{DEGREES}cp_size") > 1
    return {"dp": copies * shards, "zero": fsdp_zero if sharded else 0} | (
        {"replicas": copies} if copies > 1 and sharded else {}
    )


def _read_plain(settings: Settings, fsdp_zero: int) -> Facts:
    """Read what is sharded without a ParallelismConfig: FSDP2, FSDP1 with its strategy, or DDP."""
    distributed_type = (
        "NO" if is_off(settings.get("distributed_type")) else str(settings["distributed_type"]).upper()
    )
    if distributed_type in UNSHARDED_TYPES:
        return {"zero": 0}
    if distributed_type != "FSDP":
        raise InputError(
            "distributed_type",
            [
                f"distributed_type = {distributed_type[:60]!r}: must be one of FSDP, {', '.join(UNSHARDED_TYPES)}"
            ],
        )
    strategy = str(settings.get(f"{FSDP}sharding_strategy", "")).upper()
    if strategy and strategy not in SHARDING:
        raise InputError(
            f"{FSDP}sharding_strategy",
            [f"{FSDP}sharding_strategy = {strategy[:60]!r}: must be one of {', '.join(SHARDING)}"],
        )
    zero = SHARDING.get(strategy, fsdp_zero)
    machines = _size(settings, "num_machines")
    return {"zero": zero} | ({"replicas": machines} if strategy.startswith("HYBRID") and machines > 1 else {})


def _write_machines(facts: Facts) -> Settings:
    """Write machines and processes."""
    return {"num_machines": facts["gpus"] // facts["per_node"], "num_processes": facts["gpus"]}


def _read_machines(settings: Settings) -> Facts:
    """Read processes, one per accelerator."""
    return {"gpus": _size(settings, "num_processes")} if "num_processes" in settings else {}


ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "launch": (
        ComputedRow(
            ("gpus",),
            ("num_machines", "num_processes"),
            _write_machines,
            _read_machines,
            "one process per accelerator",
        ),
    ),
    "precision": (
        ChoiceRow(
            "precision",
            tuple(
                (word, {"mixed_precision": name})
                for word, name in (("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "no"))
            ),
            (("fp8-current", {"mixed_precision": "fp8"}), ("fp32", {})),
            others=(),
        ),
    ),
    "parallelism": (
        ComputedRow(
            ("dp", "zero", "replicas"),
            (
                *(f"{DEGREES}dp_replicate_size", f"{DEGREES}dp_shard_size", f"{FSDP}reshard_after_forward"),
                *("distributed_type", f"{FSDP}sharding_strategy"),
            ),
            _write_data,
            _read_data,
            "DDP (0), FSDP2 without (2) or with resharding after forward (3), HSDP",
        ),
        ValueRow("tp", f"{DEGREES}tp_size", usual=1, always=True),
        ValueRow("cp", f"{DEGREES}cp_size", usual=1, always=True),
        ChoiceRow(
            "cp_kind",
            (
                ("all-gather", {f"{DEGREES}cp_comm_strategy": "allgather"}),
                ("ring", {f"{DEGREES}cp_comm_strategy": "alltoall"}),
            ),
            (("all-gather", {f"{DEGREES}cp_size": ANY}),),
            others=(),
        ),
        constant_facts(pp=1, vp=1, order="tp-cp-dp-pp", tp_kind="1d"),
    ),
    "memory": (
        ChoiceRow("recompute", (("full", {f"{FSDP}activation_checkpointing": True}), ("none", {}))),
        ChoiceRow("offload", (("optimizer+weights", {f"{FSDP}offload_params": True}), ("none", {}))),
    ),
}
WHY: Final[Mapping[str, str]] = {
    "pp": "there are no pipelines",
    "chunks": "there are no pipelines",
    "schedule": "there are no pipelines",
    "order": "the mesh is dp_replicate, dp_shard, cp, tp, outermost first",
    "offload": "weights and optimizer are offloaded together",
    "gbs": "the training program sets it: micro-batch, replicas and gradient accumulation steps",
    "mbs": "the training program's data loader sets it",
    "zero": "there are DDP, and FSDP2 with or without resharding after forward",
    "ep": "there is no expert parallelism",
    "recompute": "all layers are recomputed, or none",
    "optimizer_kind": "the training program creates the optimizer",
    "grad_dtype": "FSDP2 chooses the precision of gradient reduction",
    "sp": "the model's tensor-parallel plan decides",
    "attention": "the model chooses its kernel",
    "precision": "bf16, fp16 or none",
    "cp_kind": "keys and values are all-gathered (allgather) or passed around a ring (alltoall)",
}
FIXED_SETTINGS: Final[Settings] = {  # further settings that accelerate launch requires
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    f"{FSDP}version": 2,
    f"{FSDP}auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    f"{FSDP}state_dict_type": "SHARDED_STATE_DICT",
    "machine_rank": 0,
}
