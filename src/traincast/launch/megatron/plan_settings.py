"""Conversions of Megatron-LM's plan settings that depend on each other; the table of rows is in `table`."""

from typing import Final

from traincast.core.errors import InputError
from traincast.launch.canonical import Facts, normalized_recompute
from traincast.launch.mapping import Settings, is_off, whole_number
from traincast.launch.megatron.model_settings import size

RECOMPUTE_MODULES: Final = {  # names of --recompute-modules -> traincast's
    "core_attn": "attention",
    "layernorm": "norms",
    "moe_act": "activation",
    "mlp": "mlp",
    "moe": "experts",
    "mla_up_proj": "mla_up_proj",
}
CP_COMM_TYPES: Final = {"ring": "p2p", "ulysses": "a2a", "all-gather": "allgather", "hybrid": "a2a+p2p"}
SHARDING_STRATEGIES: Final = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}


def write_expert_tp(facts: Facts) -> Settings:
    """Write the tensor-parallel degree inside an expert, which by default is that outside."""
    return {"expert_tensor_parallel_size": facts["etp"]} if "etp" in facts and facts["tp"] > 1 else {}


def read_expert_tp(settings: Settings) -> Facts:
    """Read the tensor-parallel degree inside an expert."""
    if not size(settings, "num_experts"):
        return {}
    return {
        "etp": size(settings, "expert_tensor_parallel_size", least=1)
        or size(settings, "tensor_model_parallel_size")
        or 1
    }


def write_context(facts: Facts) -> Settings:
    """Write how context-parallel ranks communicate."""
    kind = facts.get("cp_kind")
    if kind is None:
        return {}
    degrees = (
        {"hierarchical_context_parallel_sizes": (facts["ulysses"], facts["cp"] // facts["ulysses"])}
        if kind == "hybrid"
        else {}
    )
    return {"cp_comm_type": CP_COMM_TYPES[kind], **degrees}


def read_context(settings: Settings) -> Facts:
    """Read how context-parallel ranks communicate: by default in a ring."""
    if (size(settings, "context_parallel_size") or 1) == 1:
        return {}
    value = settings.get("cp_comm_type", "p2p")
    types = tuple(dict.fromkeys(value)) if isinstance(value, list | tuple) else (str(value),)
    kinds = {comm_type: kind for kind, comm_type in CP_COMM_TYPES.items()}
    if len(types) != 1 or types[0] not in kinds:
        raise InputError(
            "cp_comm_type",
            [f"cp_comm_type = {' '.join(map(str, types))!r}: must be one of {', '.join(kinds)}"],
        )
    sizes = whole_number(
        "hierarchical_context_parallel_sizes", settings.get("hierarchical_context_parallel_sizes", 1)
    )
    hybrid = {"ulysses": sizes[0] if isinstance(sizes, tuple) else sizes} if types[0] == "a2a+p2p" else {}
    return {"cp_kind": kinds[types[0]], **hybrid}


def write_zero(facts: Facts) -> Settings:
    """Write what is sharded over data-parallel ranks: the distributed optimizer, or Megatron-FSDP beyond it."""
    zero, copies = facts.get("zero", 0), facts.get("replicas", 1)
    settings: Settings = {}
    if zero == 1:
        settings = {"use_distributed_optimizer": True}
    elif zero > 1:
        settings = {
            "use_megatron_fsdp": True,
            "data_parallel_sharding_strategy": SHARDING_STRATEGIES[zero],
            "ckpt_format": "fsdp_dtensor",
        }
    return settings | ({"num_distributed_optimizer_instances": copies} if copies > 1 else {})


def read_zero(settings: Settings) -> Facts:
    """Read what is sharded over data-parallel ranks; --zero-stage is Megatron-DeepSpeed's (megatron/arguments.py, 4efb479)."""
    if not is_off(settings.get("zero_stage")):
        strategy = str(settings["zero_stage"]).removesuffix(".0")
        if strategy not in map(str, SHARDING_STRATEGIES):
            raise InputError(
                "zero_stage",
                [
                    f"zero_stage = {strategy[:60]!r}: must be one of {', '.join(map(str, SHARDING_STRATEGIES))}"
                ],
            )
        return {"zero": int(strategy)}
    fsdp_flags = {
        name
        for name in ("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")
        if not is_off(settings.get(name))
    }
    strategy = str(settings.get("data_parallel_sharding_strategy", "no_shard"))
    if strategy not in SHARDING_STRATEGIES.values():
        allowed = ", ".join(SHARDING_STRATEGIES.values())
        raise InputError(
            "data_parallel_sharding_strategy",
            [f"data_parallel_sharding_strategy = {strategy!r}: must be one of {allowed}"],
        )
    zero = next(stage for stage, name in SHARDING_STRATEGIES.items() if name == strategy)
    if "use_torch_fsdp2" in fsdp_flags:
        zero = 2 if not is_off(settings.get("torch_fsdp2_no_reshard_after_forward")) else 3
    elif not fsdp_flags:
        zero = 0 if is_off(settings.get("use_distributed_optimizer")) else 1
    copies = size(settings, "num_distributed_optimizer_instances", least=1) or 1
    return {"zero": zero, **({"replicas": copies} if copies > 1 else {})}


def write_recompute(facts: Facts) -> Settings:
    """Write what is recomputed: whole layers, all or some of each chunk, or modules."""
    chosen, every = facts["recompute"], facts.get("recompute_every", 1)
    if chosen == "none":
        return {}
    if chosen == "full":
        return {"recompute_granularity": "full", **layers_recomputed(facts, every)}
    dense = {"activation"} if "experts.experts" not in facts else set()  # moe_act applies to experts only
    names = [name for name, word in RECOMPUTE_MODULES.items() if word in set(chosen.split("+")) - dense]
    return {"recompute_granularity": "selective", "recompute_modules": tuple(names)} if names else {}


def layers_recomputed(facts: Facts, every: int) -> Settings:
    """Write how many layers of a chunk are recomputed."""
    chunk_sizes = set(facts.get("chunks", (facts["layers"],)))
    chunk_layers = next(iter(chunk_sizes))
    if every > 1 and len(chunk_sizes) == 1 and chunk_layers % every == 0:
        return {"recompute_method": "block", "recompute_num_layers": chunk_layers // every}
    return {"recompute_method": "uniform", "recompute_num_layers": 1}


def read_recompute(settings: Settings) -> Facts:
    """Read what is recomputed."""
    granularity = settings.get("recompute_granularity")
    old_flags = (
        ("checkpoint_activations", "full"),
        ("activations_checkpoint_method", "full"),
        ("recompute_activations", "selective"),
    )
    granularity = (
        next((kind for name, kind in old_flags if not is_off(settings.get(name))), None)
        if is_off(granularity)
        else granularity
    )
    if granularity is None:
        return {"recompute": "none"}
    if granularity == "full":
        return {"recompute": "full", **read_layers_recomputed(settings)}
    if granularity != "selective":
        raise InputError(
            "recompute_granularity", [f"recompute_granularity = {granularity!r}: must be full or selective"]
        )
    named = settings.get("recompute_modules", "core_attn")
    names = [str(name) for name in (named if isinstance(named, list | tuple) else [named])]
    unknown = [name for name in names if name not in RECOMPUTE_MODULES and name != "shared_experts"]
    if unknown:
        allowed = ", ".join((*RECOMPUTE_MODULES, "shared_experts"))
        raise InputError(
            "recompute_modules", [f"recompute_modules = {unknown[0]!r}: must be among {allowed}"]
        )
    return {
        "recompute": normalized_recompute(
            "+".join(RECOMPUTE_MODULES[name] for name in names if name in RECOMPUTE_MODULES) or "none"
        )
    }


def read_layers_recomputed(settings: Settings) -> Facts:
    """Read `recompute_every`: the method `block` recomputes a number of layers of each chunk."""
    recomputed = size(settings, "recompute_num_layers", "activations_checkpoint_num_layers")
    layers, method = (
        size(settings, "num_layers", "encoder_num_layers"),
        settings.get("activations_checkpoint_method"),
    )
    if settings.get("recompute_method", method) != "block" or not recomputed or layers is None:
        return {}
    pp, vp = (
        size(settings, "pipeline_model_parallel_size") or 1,
        size(settings, "num_virtual_stages_per_pipeline_rank") or 1,
    )
    layers_per_chunk = size(settings, "num_layers_per_virtual_pipeline_stage")
    chunk_layers = layers_per_chunk or layers // (pp * vp)
    return {"recompute_every": max(round(chunk_layers / recomputed), 1)}


def read_attention(settings: Settings) -> Facts:
    """Read the attention kernel: fused by default."""
    backend = str(settings.get("attention_backend", "auto"))
    local_transformer = settings.get("transformer_impl") == "local" and "attention_backend" not in settings
    unfused = backend in ("unfused", "local") or (
        local_transformer and is_off(settings.get("use_flash_attn"))
    )
    return {"attention": "unfused" if unfused else "flash"}


def write_offload(facts: Facts) -> Settings:
    """Write what is offloaded to the host; activations only without a pipeline."""
    offloaded = set(facts["offload"].split("+"))
    optimizer = {"optimizer_cpu_offload": True} if "optimizer" in offloaded else {}
    activations = (
        {"cpu_offloading_num_layers": facts["layers"]}
        if "activations" in offloaded and facts["pp"] == 1
        else {}
    )
    return optimizer | activations


def read_offload(settings: Settings) -> Facts:
    """Read what is offloaded to the host."""
    offloaded = ["optimizer"] if not is_off(settings.get("optimizer_cpu_offload")) else []
    offloaded += ["activations"] if size(settings, "cpu_offloading_num_layers") else []
    return {"offload": "+".join(offloaded) or "none"}


def write_gpus(facts: Facts) -> Settings:
    """Write nodes and processes per node for the launcher."""
    per_node = facts["per_node"]
    return {"nnodes": facts["gpus"] // per_node, "nproc_per_node": per_node}


def read_gpus(settings: Settings) -> Facts:
    """Read the accelerators of the job from the launcher's arguments."""
    nodes = size(settings, "nnodes", "num_nodes", "nodes", least=1)
    per_node = size(settings, "nproc_per_node", "devices", "gpus_per_node", "ntasks_per_node", least=1)
    world_size = size(settings, "world_size", least=1)
    return {"gpus": world_size} if world_size else {"gpus": nodes * per_node} if nodes and per_node else {}


def read_batch(settings: Settings) -> Facts:
    """Read the global batch [sequences]; the default is one micro-batch per replica."""
    given = size(settings, "global_batch_size", least=1)
    return {"gbs": given} if given else {}


LAUNCHER_SETTINGS: Final = (
    "nnodes",
    "nproc_per_node",
    "world_size",
    "nodes",
    "gpus_per_node",
    "ntasks_per_node",
)
CHUNK_SETTINGS: Final = (
    "num_virtual_stages_per_pipeline_rank",
    "num_layers_per_virtual_pipeline_stage",
    "virtual_pipeline_model_parallel_size",
    "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
ZERO_SETTINGS: Final = (
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
RECOMPUTE_SETTINGS: Final = (
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "recompute_activations",
    "checkpoint_activations",
    "activations_checkpoint_method",
    "activations_checkpoint_num_layers",
)


def is_on(settings: Settings, name: str) -> bool:
    """Return whether a setting is on."""
    return not is_off(settings.get(name))


def stage_layers(settings: Settings, layers: int, pp: int, vp: int, ends: list[bool]) -> tuple[int, ...]:
    """Return the layers of every chunk: even, but fewer in first and last where embedding and loss count, or as set.

    Raises
    ------
    InputError
        If the remaining layers do not divide evenly.
    """
    first, last = (size(settings, f"decoder_{end}_pipeline_num_layers") for end in ("first", "last"))
    layers_of_chunks = [0] * (pp * vp)
    for chunk, number in ((0, first), (pp - 1, last)):
        if number:
            layers_of_chunks[chunk::pp] = [number // vp] * vp
    even_chunks = [
        chunk
        for chunk in range(pp * vp)
        if not (first and chunk % pp == 0) and not (last and chunk % pp == pp - 1)
    ]
    rest = layers - sum(layers_of_chunks) + sum(ends)
    if not even_chunks or rest % len(even_chunks):
        wanted = f"{rest} layers do not divide over {len(even_chunks)} chunks of the pipeline"
        raise InputError("num_layers", [f"num_layers = {layers}: {wanted} (pp = {pp}, {vp} chunks each)"])
    for chunk in even_chunks:
        layers_of_chunks[chunk] = rest // len(even_chunks)
    layers_of_chunks[0] -= ends[0]
    layers_of_chunks[-1] -= ends[1]
    return tuple(layers_of_chunks)
