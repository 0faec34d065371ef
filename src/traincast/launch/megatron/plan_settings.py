"""Settings of Megatron-LM on the plan that say several facts, or only with what others say; the table is in `megatron`."""

from typing import Final

from traincast.core.errors import InputError
from traincast.launch.canonical import Facts, modules
from traincast.launch.mapping import Settings, is_off, number
from traincast.launch.megatron.model_settings import size

MODULES: Final = {  # of --recompute-modules, and what traincast calls them
    "core_attn": "attention",
    "layernorm": "norms",
    "moe_act": "activation",
    "mlp": "mlp",
    "moe": "experts",
    "mla_up_proj": "mla_up_proj",
}
COMMUNICATION: Final = {"ring": "p2p", "ulysses": "a2a", "all-gather": "allgather", "hybrid": "a2a+p2p"}
SHARDING: Final = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}


def write_expert_tp(told: Facts) -> Settings:
    """Degree inside an expert, which without it is that outside."""
    return {"expert_tensor_parallel_size": told["etp"]} if "etp" in told and told["tp"] > 1 else {}


def read_expert_tp(settings: Settings) -> Facts:
    """Degree inside an expert."""
    if not size(settings, "num_experts"):
        return {}
    return {"etp": size(settings, "expert_tensor_parallel_size", least=1) or size(settings, "tensor_model_parallel_size") or 1}


def write_context(told: Facts) -> Settings:
    """How keys and values, or heads, are exchanged between context ranks."""
    kind = told.get("cp_kind")
    if kind is None:
        return {}
    degrees = {"hierarchical_context_parallel_sizes": (told["ulysses"], told["cp"] // told["ulysses"])} if kind == "hybrid" else {}
    return {"cp_comm_type": COMMUNICATION[kind], **degrees}


def read_context(settings: Settings) -> Facts:
    """How context ranks communicate: a ring where nothing is said."""
    if (size(settings, "context_parallel_size") or 1) == 1:
        return {}
    told = settings.get("cp_comm_type", "p2p")
    ways = tuple(dict.fromkeys(told)) if isinstance(told, list | tuple) else (str(told),)
    kinds = {way: kind for kind, way in COMMUNICATION.items()}
    if len(ways) != 1 or ways[0] not in kinds:
        raise InputError("cp_comm_type", [f"cp_comm_type = {' '.join(map(str, ways))!r}: must be one of {', '.join(kinds)}"])
    sizes = number("hierarchical_context_parallel_sizes", settings.get("hierarchical_context_parallel_sizes", 1))
    hybrid = {"ulysses": sizes[0] if isinstance(sizes, tuple) else sizes} if ways[0] == "a2a+p2p" else {}
    return {"cp_kind": kinds[ways[0]], **hybrid}


def write_zero(told: Facts) -> Settings:
    """What data-parallel ranks share: the distributed optimizer, or Megatron-FSDP beyond it."""
    zero, copies = told.get("zero", 0), told.get("replicas", 1)
    found: Settings = {}
    if zero == 1:
        found = {"use_distributed_optimizer": True}
    elif zero > 1:
        found = {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": SHARDING[zero], "ckpt_format": "fsdp_dtensor"}
    return found | ({"num_distributed_optimizer_instances": copies} if copies > 1 else {})


def read_zero(settings: Settings) -> Facts:
    """What data-parallel ranks share; --zero-stage is that of Megatron-DeepSpeed (its megatron/arguments.py, 4efb479)."""
    if not is_off(settings.get("zero_stage")):
        told = str(settings["zero_stage"]).removesuffix(".0")
        if told not in map(str, SHARDING):
            raise InputError("zero_stage", [f"zero_stage = {told[:60]!r}: must be one of {', '.join(map(str, SHARDING))}"])
        return {"zero": int(told)}
    on = {name for name in ("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2") if not is_off(settings.get(name))}
    told = str(settings.get("data_parallel_sharding_strategy", "no_shard"))
    if told not in SHARDING.values():
        allowed = ", ".join(SHARDING.values())
        raise InputError(
            "data_parallel_sharding_strategy", [f"data_parallel_sharding_strategy = {told!r}: must be one of {allowed}"]
        )
    zero = next(stage for stage, name in SHARDING.items() if name == told)
    if "use_torch_fsdp2" in on:
        zero = 2 if not is_off(settings.get("torch_fsdp2_no_reshard_after_forward")) else 3
    elif not on:
        zero = 0 if is_off(settings.get("use_distributed_optimizer")) else 1
    copies = size(settings, "num_distributed_optimizer_instances", least=1) or 1
    return {"zero": zero, **({"replicas": copies} if copies > 1 else {})}


def write_recompute(told: Facts) -> Settings:
    """What is recomputed: whole layers, all of them or some of each chunk, or modules."""
    chosen, every = told["recompute"], told.get("recompute_every", 1)
    if chosen == "none":
        return {}
    if chosen == "full":
        return {"recompute_granularity": "full", **layers_recomputed(told, every)}
    dense = {"activation"} if "experts.experts" not in told else set()  # moe_act is of experts alone
    names = [name for name, word in MODULES.items() if word in set(chosen.split("+")) - dense]
    return {"recompute_granularity": "selective", "recompute_modules": tuple(names)} if names else {}


def layers_recomputed(told: Facts, every: int) -> Settings:
    """How many layers of a chunk are recomputed."""
    here = set(told.get("chunks", (told["layers"],)))
    held = next(iter(here))
    if every > 1 and len(here) == 1 and held % every == 0:
        return {"recompute_method": "block", "recompute_num_layers": held // every}
    return {"recompute_method": "uniform", "recompute_num_layers": 1}


def read_recompute(settings: Settings) -> Facts:
    """What is recomputed."""
    told = settings.get("recompute_granularity")
    old = ("checkpoint_activations", "full"), ("activations_checkpoint_method", "full"), ("recompute_activations", "selective")
    told = next((kind for name, kind in old if not is_off(settings.get(name))), None) if is_off(told) else told
    if told is None:
        return {"recompute": "none"}
    if told == "full":
        return {"recompute": "full", **read_layers_recomputed(settings)}
    if told != "selective":
        raise InputError("recompute_granularity", [f"recompute_granularity = {told!r}: must be full or selective"])
    named = settings.get("recompute_modules", "core_attn")
    names = [str(one) for one in (named if isinstance(named, list | tuple) else [named])]
    unknown = [one for one in names if one not in MODULES and one != "shared_experts"]
    if unknown:
        allowed = ", ".join((*MODULES, "shared_experts"))
        raise InputError("recompute_modules", [f"recompute_modules = {unknown[0]!r}: must be among {allowed}"])
    return {"recompute": modules("+".join(MODULES[one] for one in names if one in MODULES) or "none")}


def read_layers_recomputed(settings: Settings) -> Facts:
    """Every how many layers one is recomputed: with `block` so many of each chunk."""
    some = size(settings, "recompute_num_layers", "activations_checkpoint_num_layers")
    layers, method = size(settings, "num_layers", "encoder_num_layers"), settings.get("activations_checkpoint_method")
    if settings.get("recompute_method", method) != "block" or not some or layers is None:
        return {}
    pp, vp = size(settings, "pipeline_model_parallel_size") or 1, size(settings, "num_virtual_stages_per_pipeline_rank") or 1
    per = size(settings, "num_layers_per_virtual_pipeline_stage")
    held = per or layers // (pp * vp)
    return {"recompute_every": max(round(held / some), 1)}


def read_attention(settings: Settings) -> Facts:
    """The kernel of attention; fused unless another is asked for."""
    told = str(settings.get("attention_backend", "auto"))
    plain = settings.get("transformer_impl") == "local" and "attention_backend" not in settings
    unfused = told in ("unfused", "local") or (plain and is_off(settings.get("use_flash_attn")))
    return {"attention": "unfused" if unfused else "flash"}


def write_offload(told: Facts) -> Settings:
    """What is kept in the host's memory; activations only without a pipeline."""
    kept = set(told["offload"].split("+"))
    optimizer = {"optimizer_cpu_offload": True} if "optimizer" in kept else {}
    whole = {"cpu_offloading_num_layers": told["layers"]} if "activations" in kept and told["pp"] == 1 else {}
    return optimizer | whole


def read_offload(settings: Settings) -> Facts:
    """What is kept in the host's memory."""
    kept = ["optimizer"] if not is_off(settings.get("optimizer_cpu_offload")) else []
    kept += ["activations"] if size(settings, "cpu_offloading_num_layers") else []
    return {"offload": "+".join(kept) or "none"}


def write_gpus(told: Facts) -> Settings:
    """What a launcher is told of the job."""
    each = told["per_node"]
    return {"nnodes": told["gpus"] // each, "nproc_per_node": each}


def read_gpus(settings: Settings) -> Facts:
    """Accelerators of the job, as its launcher is told."""
    nodes = size(settings, "nnodes", "num_nodes", "nodes", least=1)
    each = size(settings, "nproc_per_node", "devices", "gpus_per_node", "ntasks_per_node", least=1)
    world = size(settings, "world_size", least=1)
    return {"gpus": world} if world else {"gpus": nodes * each} if nodes and each else {}


def read_batch(settings: Settings) -> Facts:
    """Sequences of a step; without it one micro-batch of every replica."""
    given = size(settings, "global_batch_size", least=1)
    return {"gbs": given} if given else {}


LAUNCHED: Final = ("nnodes", "nproc_per_node", "world_size", "nodes", "gpus_per_node", "ntasks_per_node")
CHUNKS: Final = (
    "num_virtual_stages_per_pipeline_rank",
    "num_layers_per_virtual_pipeline_stage",
    "virtual_pipeline_model_parallel_size",
    "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
ZERO: Final = (
    "use_distributed_optimizer",
    "use_megatron_fsdp",
    "use_custom_fsdp",
    "use_torch_fsdp2",
    "torch_fsdp2_no_reshard_after_forward",
    "data_parallel_sharding_strategy",
    "num_distributed_optimizer_instances",
    "ckpt_format",
    "zero_stage",
)
RECOMPUTE: Final = (
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "recompute_activations",
    "checkpoint_activations",
    "activations_checkpoint_method",
    "activations_checkpoint_num_layers",
)


def asked(settings: Settings, name: str) -> bool:
    """Whether a setting is on."""
    return not is_off(settings.get(name))


def stages(settings: Settings, layers: int, pp: int, vp: int, ends: list[bool]) -> tuple[int, ...]:
    """Layers of every chunk: even, less in the first and the last where the ends count as layers or their number is given.

    Raises
    ------
    InputError
        If the rest does not divide.
    """
    first, last = (size(settings, f"decoder_{end}_pipeline_num_layers") for end in ("first", "last"))
    cut = [0] * (pp * vp)
    for at, given in ((0, first), (pp - 1, last)):
        if given:
            cut[at::pp] = [given // vp] * vp
    free = [at for at in range(pp * vp) if not (first and at % pp == 0) and not (last and at % pp == pp - 1)]
    rest = layers - sum(cut) + sum(ends)
    if not free or rest % len(free):
        wanted = f"{rest} layers do not divide over {len(free)} chunks of the pipeline"
        raise InputError("num_layers", [f"num_layers = {layers}: {wanted} (pp = {pp}, {vp} chunks each)"])
    for at in free:
        cut[at] = rest // len(free)
    cut[0] -= ends[0]
    cut[-1] -= ends[1]
    return tuple(cut)
