"""Conversions of Accelerate's settings that depend on each other; its table is `tables/accelerate.toml`."""

from typing import Final

from traincast.launch.canonical import Facts
from traincast.launch.settings import Settings, not_allowed
from traincast.launch.table import Values

DEGREES: Final = "parallelism_config.parallelism_config_"
REPLICATE, SHARD = f"{DEGREES}dp_replicate_size", f"{DEGREES}dp_shard_size"
RESHARD: Final = "fsdp_config.fsdp_reshard_after_forward"
STRATEGY: Final = "fsdp_config.fsdp_sharding_strategy"
DISTRIBUTED_TYPES: Final = ("FSDP", "NO", "MULTI_GPU")  # besides FSDP one process, or DDP
HYBRID_STRATEGIES: Final = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2")  # shard within a machine
ZERO_STAGES: Final = {  # of FSDP1's strategies
    "FULL_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "NO_SHARD": 0,
    "HYBRID_SHARD": 3,
    "HYBRID_SHARD_ZERO2": 2,
}


def write_machines(facts: Facts) -> Values:
    """Write machines and processes."""
    return {"num_machines": facts["gpus"] // facts["per_node"], "num_processes": facts["gpus"]}


def read_machines(settings: Settings) -> Facts:
    """Read processes, one per accelerator."""
    return {"gpus": settings.number("num_processes")} if "num_processes" in settings else {}


def write_data(facts: Facts) -> Values:
    """Write replicate and shard degrees of data parallelism; DDP where nothing is sharded."""
    zero = facts.get("zero", 0)
    replicas = facts.get("replicas", 1) if zero else facts["dp"]
    if facts["dp"] % replicas:
        return {}
    reshard = {RESHARD: zero == 3} if zero > 1 else {}
    return {REPLICATE: replicas, SHARD: facts["dp"] // replicas, **reshard}


def read_data(settings: Settings) -> Facts:
    """Read data parallelism and what is sharded; without degrees FSDP shards over all processes."""
    fsdp_zero = 3 if RESHARD not in settings or settings.is_on(RESHARD) else 2
    if not any(name.startswith(DEGREES) for name in settings):
        return _read_without_degrees(settings, fsdp_zero)
    replicas, shards = settings.number(REPLICATE), settings.number(SHARD)
    sharded = shards * settings.number(f"{DEGREES}cp_size") > 1
    facts: Facts = {"dp": replicas * shards, "zero": fsdp_zero if sharded else 0}
    return facts | ({"replicas": replicas} if replicas > 1 and sharded else {})


def _read_without_degrees(settings: Settings, fsdp_zero: int) -> Facts:
    """Read what is sharded without a ParallelismConfig: FSDP2, FSDP1 with its strategy, or DDP."""
    is_set = settings.is_on("distributed_type")
    distributed_type = str(settings["distributed_type"]).upper() if is_set else "NO"
    if distributed_type not in DISTRIBUTED_TYPES:
        raise not_allowed("distributed_type", distributed_type, DISTRIBUTED_TYPES)
    if distributed_type != "FSDP":
        return {"zero": 0}
    strategy = str(settings.get(STRATEGY, "")).upper()
    if strategy and strategy not in ZERO_STAGES:
        raise not_allowed(STRATEGY, strategy, ZERO_STAGES)
    machines = settings.number("num_machines")
    hybrid = strategy in HYBRID_STRATEGIES and machines > 1
    return {"zero": ZERO_STAGES.get(strategy, fsdp_zero)} | ({"replicas": machines} if hybrid else {})
