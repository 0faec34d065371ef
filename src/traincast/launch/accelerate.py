"""Conversions of Accelerate's settings that depend on each other; its table is `tables/accelerate.toml`."""

from collections.abc import Callable
from typing import Final

from traincast.core.errors import InputError
from traincast.launch import deepspeed
from traincast.launch.beside import DEEPSPEED, deepspeed_settings
from traincast.launch.canonical import Facts
from traincast.launch.format import Writing
from traincast.launch.settings import Settings, is_off, not_allowed
from traincast.launch.table import Values
from traincast.launch.text_formats import TEXT_FORMATS

DEGREES: Final = "parallelism_config.parallelism_config_"
REPLICATE, SHARD = f"{DEGREES}dp_replicate_size", f"{DEGREES}dp_shard_size"
MESH: Final = ("tp", "cp")
OFFLOAD, RECOMPUTE = "fsdp_config.fsdp_offload_params", "fsdp_config.fsdp_activation_checkpointing"
RESHARD: Final = "fsdp_config.fsdp_reshard_after_forward"
STRATEGY: Final = "fsdp_config.fsdp_sharding_strategy"
SEQUENCE: Final = f"{DEGREES}sp_size"
DISTRIBUTED_TYPES: Final = ("FSDP", "DEEPSPEED", "NO", "MULTI_GPU")  # the last two: one process, or DDP
DDP_TYPES: Final = tuple(
    f"MULTI_{device}" for device in ("CPU", "NPU", "MLU", "SDAA", "MUSA", "XPU", "HPU", "NEURON")
)  # accelerate/utils/dataclasses.py, DistributedType
PRECISIONS: Final = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8-current"}
FP8: Final = "fp8_config."
# Of Accelerate's `deepspeed_config` -> of DeepSpeed.
DEEPSPEED_NAMES: Final = {
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
}
STAGE: Final = "zero_optimization.stage"
HYBRID_STRATEGIES: Final = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2")  # shard within a machine
ZERO_STAGES: Final = {  # of FSDP1's strategies
    "FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2,
}  # fmt: skip
LOCAL: Final[Values] = {"compute_environment": "LOCAL_MACHINE", "machine_rank": 0}
# Neither FSDP nor meshes: DDP, which the launcher of several GPUs starts.
ON_CPUS: Final[Values] = {**LOCAL, "use_cpu": True, "distributed_type": "MULTI_GPU"}
FSDP_STACK, DEEPSPEED_STACK = "torchtitan-2025", "deepspeed-2025"  # software stacks


def writer(write: Callable[[Writing], str]) -> Callable[[Writing], str]:
    """Return a writer that leaves FSDP out on CPUs, where Accelerate refuses it, and with DeepSpeed."""

    def on_device(writing: Writing) -> str:
        settings, further = dict(writing.all_settings), LOCAL
        if writing.facts.get("device") == "cpu":
            names = {"num_machines", "num_processes", "mixed_precision"}
            settings, further = {name: settings[name] for name in settings if name in names}, ON_CPUS
        elif settings.get("distributed_type") != "DEEPSPEED":
            return write(writing)
        return TEXT_FORMATS[".yaml"].write({**settings, **further}, writing.head)

    return on_device


def write_machines(facts: Facts) -> Values:
    """Write machines and processes."""
    return {"num_machines": facts["gpus"] // facts["per_node"], "num_processes": facts["gpus"]}


def read_machines(settings: Settings) -> Facts:
    """Read processes, one per accelerator."""
    return {"gpus": settings.number("num_processes")} if "num_processes" in settings else {}


def write_data(facts: Facts) -> Values:
    """Write degrees of data parallelism: DDP where nothing is sharded; or the stage of DeepSpeed."""
    zero = facts.get("zero", 0)
    if on_deepspeed(facts):
        stage = {"distributed_type": "DEEPSPEED", f"{DEEPSPEED}zero_stage": zero}
        return {} if facts.get("replicas", 1) > 1 else stage
    replicas = facts.get("replicas", 1) if zero else facts["dp"]
    if facts["dp"] % replicas:
        return {}
    reshard = {RESHARD: zero == 3} if zero > 1 else {}
    return {REPLICATE: replicas, SHARD: facts["dp"] // replicas, **reshard}


def distributed_type(settings: Settings) -> str:
    """Return what distributes the training: a word of `DISTRIBUTED_TYPES`."""
    name = str(settings["distributed_type"]).upper() if settings.is_on("distributed_type") else "NO"
    if name not in (*DISTRIBUTED_TYPES, *DDP_TYPES):
        raise not_allowed("distributed_type", name, (*DISTRIBUTED_TYPES, *DDP_TYPES))
    return "MULTI_GPU" if name in DDP_TYPES else name


def native_deepspeed(settings: Settings) -> Settings:
    """Return what is set of DeepSpeed, in its own names."""
    return deepspeed_settings(settings, DEEPSPEED_NAMES)


def read_precision(settings: Settings) -> Facts:
    """Read the precision: that of DeepSpeed's configuration, where it does not leave it to Accelerate."""
    written = native_deepspeed(settings)
    for name in ("bf16", "fp16"):
        if written.is_on(f"{name}.enabled"):
            return {"precision": name}
    mixed = settings.get("mixed_precision")
    word = "no" if is_off(mixed) else str(mixed).lower()
    if word not in PRECISIONS:
        raise not_allowed("mixed_precision", mixed, PRECISIONS)
    backend = settings.choice(f"{FP8}backend", ("AO", "TE", "MSAMP", "MS-AMP"), "AO")
    if word == "fp8" and backend == "TE":  # delayed scales (utils/transformer_engine.py); torchao's: current
        return {"precision": "mxfp8" if settings.is_on(f"{FP8}use_mxfp8_block_scaling") else "fp8"}
    return {"precision": PRECISIONS[word]}


def read_data(settings: Settings) -> Facts:
    """Read data parallelism and what is sharded; without degrees FSDP shards over all processes."""
    if distributed_type(settings) == "DEEPSPEED":
        return _read_deepspeed_data(settings)
    fsdp_zero = 3 if RESHARD not in settings or settings.is_on(RESHARD) else 2
    if not any(name.startswith(DEGREES) for name in settings):
        return _read_without_degrees(settings, fsdp_zero)
    replicas, shards = settings.number(REPLICATE), settings.number(SHARD)
    sharded = shards * settings.number(f"{DEGREES}cp_size") > 1
    facts: Facts = {"dp": replicas * shards, "zero": fsdp_zero if sharded else 0}
    return facts | ({"replicas": replicas} if replicas > 1 and sharded else {})


def _read_without_degrees(settings: Settings, fsdp_zero: int) -> Facts:
    """Read what is sharded without a ParallelismConfig: FSDP2, FSDP1 with its strategy, or DDP."""
    if distributed_type(settings) != "FSDP":
        return {"zero": 0}
    strategy = str(settings.get(STRATEGY, "")).upper()
    if strategy and strategy not in ZERO_STAGES:
        raise not_allowed(STRATEGY, strategy, ZERO_STAGES)
    machines = settings.number("num_machines")
    hybrid = strategy in HYBRID_STRATEGIES and machines > 1
    return {"zero": ZERO_STAGES.get(strategy, fsdp_zero)} | ({"replicas": machines} if hybrid else {})


def _read_deepspeed_data(settings: Settings) -> Facts:
    """Read data parallelism with DeepSpeed, whose configuration states what is sharded."""
    written = native_deepspeed(settings)
    if STAGE not in written and f"{DEEPSPEED}deepspeed_config_file" not in settings:
        raise InputError("zero_stage", [f"{DEEPSPEED}zero_stage: missing"])
    if not any(name.startswith(DEGREES) for name in settings):
        return {}
    return {"dp": settings.number(REPLICATE) * settings.number(SHARD)}


def write_mesh(facts: Facts) -> Values:
    """Write the tensor- and context-parallel degrees, which meshes with FSDP have."""
    return {} if on_deepspeed(facts) else {f"{DEGREES}{axis}_size": facts[axis] for axis in MESH}


def read_mesh(settings: Settings) -> Facts:
    """Read the tensor- and context-parallel degrees."""
    return {axis: settings.number(f"{DEGREES}{axis}_size") for axis in MESH}


def write_memory(facts: Facts) -> Values:
    """Write what is recomputed and offloaded; with DeepSpeed the training program recomputes."""
    if on_deepspeed(facts):
        names = {new: f"{DEEPSPEED}{name}" for name, new in DEEPSPEED_NAMES.items()}
        return {names[name]: device for name, device in deepspeed.write_offload(facts).items()}
    switches = {RECOMPUTE: facts["recompute"] == "full", OFFLOAD: facts["offload"] == "optimizer+weights"}
    return {name: on for name, on in switches.items() if on}


def read_memory(settings: Settings) -> Facts:
    """Read what FSDP recomputes and offloads; the rows of DeepSpeed's configuration read its devices."""
    offload = "optimizer+weights" if settings.is_on(OFFLOAD) else "none"
    return {"recompute": "full" if settings.is_on(RECOMPUTE) else "none", "offload": offload}


def on_deepspeed(facts: Facts) -> bool:
    """Return whether DeepSpeed shards, by the software stack of a launch."""
    return facts.get("stack") == DEEPSPEED_STACK


def read_sequence(settings: Settings) -> Facts:
    """Read sequence parallelism of DeepSpeed (Ulysses)."""
    degree = settings.number(SEQUENCE)
    return {"cp": degree, "cp_kind": "ulysses"} if degree > 1 else {}


def read_accumulation(settings: Settings) -> Facts:
    """Read gradient accumulation steps."""
    return {"accumulation": number} if (number := settings.count("gradient_accumulation_steps")) else {}


def stack(settings: Settings) -> str:
    """Return the software stack: that of DeepSpeed, or of FSDP2."""
    is_deepspeed = str(settings.get("distributed_type", "")).upper() == "DEEPSPEED"
    return DEEPSPEED_STACK if is_deepspeed else FSDP_STACK
