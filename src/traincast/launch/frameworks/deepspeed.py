"""Conversions of DeepSpeed's settings that depend on each other; its table is `tables/deepspeed.toml`."""

from collections.abc import Mapping
from typing import Final, Literal

from traincast.core import InputError
from traincast.launch.settings.canonical import DIVIDED
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.format import Writing
from traincast.launch.settings.settings import Settings
from traincast.launch.settings.table import Conversions, Values

BATCH: Final[Mapping[str, Literal["gbs", "mbs", "accumulation"]]] = {  # setting -> fact
    "train_batch_size": "gbs",
    "train_micro_batch_size_per_gpu": "mbs",
    "gradient_accumulation_steps": "accumulation",
}
ZERO: Final = "zero_optimization."
DEVICES: Final = ("none", "cpu", "nvme")
OFFLOAD: Final = {  # part -> its device, and switches of old versions
    "optimizer": (f"{ZERO}offload_optimizer.device", f"{ZERO}cpu_offload"),
    "weights": (f"{ZERO}offload_param.device", f"{ZERO}cpu_offload_param", f"{ZERO}cpu_offload_params"),
}

FIGURES: Final = {  # of memory -> setting
    "reduce_bucket": f"{ZERO}reduce_bucket_size",
    "stepped_parameters": f"{ZERO}sub_group_size",
    "prefetched_parameters": f"{ZERO}stage3_prefetch_bucket_size",
    "live_parameters": f"{ZERO}stage3_max_live_parameters",
    "reuse_distance": f"{ZERO}stage3_max_reuse_distance",
}
OFFLOADED_FROM: Final = {"optimizer": 1, "weights": 3}  # part -> stage of ZeRO


def required_settings(writing: Writing) -> Values:
    """Return PyTorch's AdamW on CPUs: DeepSpeed would compile its own for minutes at the first start."""
    is_adam = writing.facts.get("optimizer_kind") == "adam"
    return {"optimizer.params.torch_adam": True} if is_adam and writing.facts.get("device") == "cpu" else {}


def write_batch(facts: Facts) -> Values:
    """Write batch, micro-batch and gradient accumulation steps; no batch with tensor parallelism.

    An engine takes it to be that of all ranks, tensor-parallel ones included (0.19.8, runtime/config.py,
    DeepSpeedConfig: world_size), each of which has a micro-batch of its own.
    """
    counts_tp = facts.get("tp", 1) > 1
    return {name: facts[fact] for name, fact in BATCH.items() if not (counts_tp and fact == "gbs")}


def read_batch(settings: Settings) -> Facts:
    """Read batch and micro-batch; together with the accumulation steps also the data-parallel replicas.

    Of a batch that counts tensor-parallel ranks, those of one replica have the same sequences. Without a
    micro-batch each rank has its part of the batch in as many steps as are stated, or in one (0.19.8,
    runtime/config.py, _set_batch_related_parameters).
    """
    facts = as_facts({fact: size for name, fact in BATCH.items() if (size := settings.size(name))})
    if "gbs" in facts and "mbs" not in facts:
        facts[DIVIDED] = True
    if "gbs" in facts and (tp := settings.size("tensor_parallel.autotp_size", default=1)) > 1:
        if facts["gbs"] % tp:
            problem = f"train_batch_size = {facts['gbs']}: must be divisible by autotp_size {tp}"
            raise InputError("train_batch_size", [problem])
        facts["gbs"] //= tp
    per_replica = facts.get("mbs", 0) * facts.get("accumulation", 0)
    if "gbs" in facts and per_replica and facts["gbs"] % per_replica == 0:
        facts["dp"] = facts["gbs"] // per_replica
    return facts


def mixed_precision(settings: Settings) -> str:
    """Return the precision that is turned on, empty where none is; `bfloat16` is the old name of `bf16`.

    It counts where the other is absent (0.19.8, runtime/precision_config.py, get_bfloat16_config).
    """
    has_new_name = any(name.startswith("bf16.") for name in settings)
    if settings.is_on("bf16.enabled") or (settings.is_on("bfloat16.enabled") and not has_new_name):
        return "bf16"
    return "fp16" if settings.is_on("fp16.enabled") else ""


def read_precision(settings: Settings) -> Facts:
    """Read the precision: fp32 where nothing else is turned on, or left to another program (``"auto"``)."""
    automatic = [name for name in ("bf16", "fp16") if settings.get(f"{name}.enabled") == "auto"]
    return {"precision": mixed_precision(settings) or next(iter(automatic), "fp32")}


def write_groups(facts: Facts) -> Values:
    """Write nothing: the size of a sharding group (MiCS) is no field of DeepSpeedZeroConfig since 0.19."""
    return {}


def read_groups(settings: Settings) -> Facts:
    """Read the replicas of the sharded state from the size of a group, as releases before 0.19 do."""
    size = settings.size(f"{ZERO}mics_shard_size")
    return {"shards": size} if size else {}


def write_sequence(facts: Facts) -> Values:
    """Write sequence parallelism (Ulysses) and the data-parallel replicas; not beside tensor parallelism.

    Their mesh is of all ranks (0.19.8, deepspeed/__init__.py): any others have no group in it.
    """
    if facts.get("cp_kind") != "ulysses" or facts.get("tp", 1) > 1:
        return {}
    return {"sequence_parallel_size": facts["cp"], "data_parallel_size": facts["dp"]}


def read_sequence(settings: Settings) -> Facts:
    """Read sequence parallelism (Ulysses)."""
    cp = settings.size("sequence_parallel_size")
    dp = settings.size("data_parallel_size")
    facts: Facts = {"cp": cp, "cp_kind": "ulysses"} if cp > 1 else {}
    return facts | ({"dp": dp} if dp else {})


def write_offload(facts: Facts) -> Values:
    """Write what is offloaded to the host."""
    offloaded = facts["offload"].split("+")
    return {names[0]: "cpu" for part, names in OFFLOAD.items() if part in offloaded}


def read_offload(settings: Settings) -> Facts:
    """Read what is offloaded to the host; refuse a device that DeepSpeed does not have.

    Below the stage that a part needs the setting has no effect (0.19.8, runtime/zero/config.py, "valid only
    with stage 3" and "for ZeRO stage 1, 2, 3"; engine.py, _configure_zero_optimizer).
    """
    for device, *_ in OFFLOAD.values():
        if settings.is_on(device):
            settings.choice(device, DEVICES)
    offloaded = [part for part, names in OFFLOAD.items() if settings.any_on(*names)]
    stage = settings.count(f"{ZERO}stage")
    offloaded = [part for part in offloaded if stage >= OFFLOADED_FROM[part]]
    return {"offload": "+".join(offloaded) or "none"}


def write_overlap(facts: Facts) -> Values:
    """Write whether gradient reduction overlaps."""
    return {f"{ZERO}overlap_comm": facts["dp_overlap"]} if "dp_overlap" in facts else {}


def read_overlap(settings: Settings) -> Facts:
    """Read whether gradient reduction overlaps: by default with ZeRO-3 (deepspeed/runtime/zero/config.py)."""
    name = f"{ZERO}overlap_comm"
    is_stated = settings.get(name) not in (None, "auto")
    return {"dp_overlap": settings.is_on(name) if is_stated else settings.count(f"{ZERO}stage") == 3}


def figures(settings: Settings) -> Values:
    """Return figures of memory that settings state: buckets, what is gathered, what is stepped at once.

    The defaults are those of DeepSpeed 0.19.8, runtime/zero/config.py. What another program fills in
    (``"auto"``) is the square of the width: negligible.
    """
    figures: dict[str, float] = {}
    for figure, name in FIGURES.items():
        if settings.get(name) == "auto":
            figures[f"memory.{figure}"] = 0.0
        elif settings.get(name) is not None:
            figures[f"memory.{figure}"] = float(settings.number(name, least=0))
    return figures


def idle_offloads(settings: Settings) -> tuple[str, ...]:
    """Return what is said of offloading that has no effect at the stage of ZeRO."""
    offloaded = read_offload(settings)["offload"].split("+")
    stated = [part for part, names in OFFLOAD.items() if settings.any_on(*names)]
    return tuple(
        f"{OFFLOAD[part][0].removeprefix(ZERO)} has no effect below ZeRO-{OFFLOADED_FROM[part]}"
        for part in stated
        if part not in offloaded
    )


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of a precision that another program fills in (``"auto"``)."""
    notes = idle_offloads(settings)
    automatic = [name for name in ("bf16.enabled", "fp16.enabled") if settings.get(name) == "auto"]
    if not automatic:
        return notes
    return (
        *notes,
        f"{automatic[0]} = true: another program fills in {' and '.join(automatic)}",
    )


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "batch": read_batch,
        "precision": read_precision,
        "groups": read_groups,
        "sequence": read_sequence,
        "offload": read_offload,
        "overlap": read_overlap,
    },
    write={
        "batch": write_batch,
        "groups": write_groups,
        "sequence": write_sequence,
        "offload": write_offload,
        "overlap": write_overlap,
    },
)
