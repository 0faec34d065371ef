"""Conversions of Megatron-LM's settings that depend on each other; its table is `tables/megatron.toml`."""

import re
from typing import Any, Final

from traincast.catalog import Stack, load_model
from traincast.core import OFFLOADED_MODULES, InputError, split_choice
from traincast.launch.frameworks import deepspeed, megatron_model
from traincast.launch.frameworks.adapters import (
    BRIDGE_NAMES,
    BRIDGE_RANK,
    module_names,
    probability,
    targets_of,
)
from traincast.launch.frameworks.checkpoints import NAMED_MODEL, catalogue_name
from traincast.launch.frameworks.layer_patterns import layout_chunks, layout_text
from traincast.launch.settings.arguments import MEGATRON as MEGATRON_ARGUMENTS
from traincast.launch.settings.arguments import Arguments
from traincast.launch.settings.beside import DEEPSPEED, deepspeed_settings
from traincast.launch.settings.canonical import is_alone, normalized_recompute
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.settings import Settings, not_allowed, value_text, whole_number
from traincast.launch.settings.table import Conversions, Values
from traincast.model import Adapters

RECOMPUTE_MODULES: Final = {  # names of --recompute-modules -> traincast's
    "core_attn": "attention",
    "layernorm": "norms",
    "moe_act": "activation",
    "mlp": "mlp",
    "moe": "experts",
    "mla_up_proj": "mla_up_proj",
    "gdn_norm_out": "gdn_norm_out",
}
OLD_RECOMPUTE_FLAGS: Final = {  # -> --recompute-granularity
    "checkpoint_activations": "full",
    "activations_checkpoint_method": "full",
    "recompute_activations": "selective",
}
CP_KINDS: Final = {"p2p": "ring", "a2a": "ulysses", "allgather": "all-gather", "a2a+p2p": "hybrid"}
CP_COMM_TYPES: Final = {kind: name for name, kind in CP_KINDS.items()}
SHARDING_STRATEGIES: Final = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}
MOMENTS: Final = {"adam-8bit": "fp8", "adam-bf16": "bf16"}  # optimizer -> precision of its moments
MOMENT_DTYPES: Final = ("exp_avg_dtype", "exp_avg_sq_dtype")
FSDP_FLAGS: Final = ("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")
OF_END_STAGES: Final = tuple(f"decoder_{end}_pipeline_num_layers" for end in ("first", "last"))
OF_SPLITS: Final = (  # of layers over pipeline stages
    *OF_END_STAGES,
    "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
# Stacks of Megatron-LM before Megatron-Core, by the month up to which an argument was there.
OLD_STACKS: Final = {
    "2021-01": "megatron-lm-2021",
    "2022-04": "megatron-lm-2021",
    "2023-09": "megatron-lm-2022",
}
SCHEDULE: Final = "step_batch_size_schedule"
DISPATCHER: Final = "moe_token_dispatcher_type"
ALLGATHER: Final = "allgather"
# Bytes of a router's probability by --moe-router-dtype; without it they are as activations (moe_utils.py,
# topk_routing_with_score_function: type_as(logits)).
ROUTER_BYTES: Final = {"fp32": 4, "fp64": 8}
SHARDING: Final = "data_parallel_sharding_strategy"
STAGE: Final = "deepspeed_config.zero_optimization.stage"
STEP_OF_SCHEDULE: Final = re.compile(r"\d[\d.]{0,20}[KMBTkmbt]?:(\d{1,9})")  # tokens or samples, and batch


def write_gpus(facts: Facts) -> Values:
    """Write nodes and processes per node for the launcher."""
    return {"nnodes": facts["gpus"] // facts["per_node"], "nproc_per_node": facts["per_node"]}


def read_gpus(settings: Settings) -> Facts:
    """Read the accelerators of the job from the launcher's arguments."""
    of_node = ("nproc_per_node", *(("num_gpus",) if settings.is_on("deepspeed") else ()))
    nodes = settings.number("nnodes", "num_nodes", "nodes", default=int(settings.any_on(*of_node)))
    per_node = settings.number(*of_node, "devices", "gpus_per_node", "ntasks_per_node", default=0)
    gpus = settings.number("world_size", default=nodes * per_node)
    return {"gpus": gpus} if gpus else {}


# The model


def write_adapters(facts: Facts) -> Values:
    """Write Megatron-Bridge's LoRA, which adapts joined layers on a base in 16 bits."""
    adapters: Adapters | None = facts.get("adapters")
    modules = module_names(adapters, BRIDGE_NAMES) if adapters else None
    if adapters is None or modules is None or adapters.base != "16-bit":
        return {}
    dropout = {"peft.dropout": 0.1} if adapters.dropout else {}
    return {"peft.dim": adapters.rank, "peft.target_modules": tuple(modules), **dropout}


def read_adapters(settings: Settings) -> Facts:
    """Read Megatron-Bridge's LoRA: by default of rank 32 on all joined layers."""
    scheme = settings.get("peft_scheme") or settings.get("mode") or ""
    if "lora" not in str(scheme) and not any(name.startswith("peft.") for name in settings):
        return {}
    modules = settings.get("peft.target_modules") or tuple(BRIDGE_NAMES.values())
    targets = targets_of("peft.target_modules", modules)
    rank = settings.number("peft.dim", default=BRIDGE_RANK)
    dropout = probability(settings, "peft.dropout")
    return {"adapters": Adapters(rank=rank, targets=targets, dropout=dropout, experts="each")}


# Parallelism


def write_expert_tp(facts: Facts) -> Values:
    """Write the tensor-parallel degree inside an expert, which by default is that outside."""
    written = "etp" in facts and facts["etp"] * facts["tp"] > 1
    return {"expert_tensor_parallel_size": facts["etp"]} if written else {}


def read_expert_tp(settings: Settings) -> Facts:
    """Read the tensor-parallel degree inside an expert."""
    if _is_dense(settings):
        return {}
    return {"etp": settings.number("expert_tensor_parallel_size", "tensor_model_parallel_size")}


def write_expert_parallel(facts: Facts) -> Values:
    """Write the expert-parallel degree."""
    return {"expert_model_parallel_size": facts["ep"]} if facts.get("ep", 1) > 1 else {}


def read_expert_parallel(settings: Settings) -> Facts:
    """Read the expert-parallel degree."""
    if _is_dense(settings):
        return {}
    return {"ep": settings.number("expert_model_parallel_size", "moe_expert_parallel_size")}


def _is_dense(settings: Settings) -> bool:
    """Return whether settings describe a model without experts; it may be described elsewhere."""
    return bool(settings.count(*megatron_model.LAYERS)) and not settings.count("num_experts")


def write_chunks(facts: Facts) -> Values:
    """Write model chunks: their number where all have the same number of layers, else a layout."""
    chunks = facts.get("chunks", ())
    vp = facts["vp"]
    if chunks and (len(set(chunks)) > 1 or chunks[0] * len(chunks) != facts["layers"]):
        return {"pipeline_model_parallel_layout": layout_text(chunks, facts.get("mtp", 0))}
    return {"num_virtual_stages_per_pipeline_rank": vp} if vp > 1 else {}


def read_chunks(settings: Settings) -> Facts:
    """Read the model chunks of a rank, and their layers from a layout or the split settings."""
    pp = settings.count("pipeline_model_parallel_size") or 1
    layers = layers_of(settings)
    layout = settings.get("pipeline_model_parallel_layout")
    if layout is not None:
        return _layout_facts("pipeline_model_parallel_layout", str(layout), layout_chunks(str(layout)), pp)
    pattern = megatron_model.hybrid_pattern(settings)
    stages = pattern.partition("/")[0].split("|")
    if len(stages) > 1:  # hybrid_layer_allocation.py, select_pipeline_segment
        _refuse_further_splits(settings)
        name = next(name for name in megatron_model.HYBRID if settings.is_on(name))
        return _layout_facts(name, pattern, tuple(map(len, stages)), pp)
    ends = [settings.is_on(f"account_for_{end}_in_pipeline_split") for end in ("embedding", "loss")]
    layers_per_chunk = settings.count("num_layers_per_virtual_pipeline_stage")
    vp = settings.number(
        "num_virtual_stages_per_pipeline_rank",
        "virtual_pipeline_model_parallel_size",
        default=max((layers + sum(ends)) // pp // layers_per_chunk, 1) if layers_per_chunk and layers else 1,
        least=0,
    )
    uneven = any(ends) or settings.any_on(*OF_END_STAGES)
    if pp == 1 or not layers or not (uneven or settings.count(*megatron_model.LAYERS) or pattern):
        return {"vp": vp}
    return {"vp": vp, "chunks": _chunk_layers(settings, layers, pp, vp, ends)}


def _layout_facts(name: str, text: str, chunks: tuple[int, ...], pp: int) -> Facts:
    """Return the facts of chunks, of which each of `pp` ranks has equally many; `text` is what names them."""
    if len(chunks) % pp:
        problem = f"{text[:60]!r}: has {len(chunks)} stages, not a multiple of pp = {pp}"
        raise InputError(name, [f"{name} = {problem}"])
    return {"chunks": chunks, "vp": max(len(chunks) // pp, 1)}


def _refuse_further_splits(settings: Settings) -> None:
    """Refuse settings that split layers over stages beside | in a hybrid's pattern, as arguments.py does."""
    beside = [name for name in OF_SPLITS if settings.is_on(name)]
    if beside:
        problem = "the | of the hybrid's layer pattern split the layers over stages: leave this out"
        raise InputError(beside[0], [f"{name} = {value_text(settings[name])}: {problem}" for name in beside])


def _chunk_layers(settings: Settings, layers: int, pp: int, vp: int, ends: list[bool]) -> tuple[int, ...]:
    """Return the layers of chunks: even, fewer at the ends where embedding and loss count, or as set."""
    first, last = map(settings.count, OF_END_STAGES)
    chunks = [0] * (pp * vp)
    for stage, number in ((0, first), (pp - 1, last)):
        if number:
            chunks[stage::pp] = [number // vp] * vp
    set_stages = {stage for stage, number in ((0, first), (pp - 1, last)) if number}
    even = [chunk for chunk in range(pp * vp) if chunk % pp not in set_stages]
    rest = layers - sum(chunks) + sum(ends)
    if megatron_model.is_deepspeed(settings) and not set_stages:
        with_embedding = "embedding" in str(settings.get("pp_partition_method", ""))
        return _balance_layers(layers, len(chunks), with_embedding)
    if not even or rest % len(even):
        problem = f"{rest} layers do not divide over {len(even)} chunks of the pipeline"
        raise InputError("num_layers", [f"num_layers = {layers}: {problem} (pp = {pp}, {vp} chunks each)"])
    for chunk in even:
        chunks[chunk] = rest // len(even)
    chunks[0] -= ends[0]
    chunks[-1] -= ends[1]
    return tuple(chunks)


def _balance_layers(layers: int, stages: int, embedding: bool) -> tuple[int, ...]:
    """Return the layers of stages as DeepSpeed balances them (runtime/utils.py, partition_balanced).

    Each takes as many as the largest needs, up to the last ones; with `embedding` both ends count as a layer.
    """
    total = layers + 2 * embedding
    most = -(-total // stages)
    chunks = [min(most, max(total - most * stage, 0)) for stage in range(stages)]
    if embedding:
        chunks[0] -= 1
        chunks[-1] -= 1
    return tuple(chunks)


def write_context(facts: Facts) -> Values:
    """Write how context-parallel ranks communicate."""
    if "cp_kind" not in facts:
        return {}
    settings: dict[str, Any] = {"cp_comm_type": CP_COMM_TYPES[facts["cp_kind"]]}
    if facts["cp_kind"] == "hybrid":
        sizes = (facts["ulysses"], facts["cp"] // facts["ulysses"])
        settings["hierarchical_context_parallel_sizes"] = sizes
    return settings


def read_context(settings: Settings) -> Facts:
    """Read how context-parallel ranks communicate: by default in a ring."""
    if settings.count("ds_sequence_parallel_size") > 1:
        return {"cp_kind": "ulysses"}
    if (settings.count("context_parallel_size") or 1) == 1:
        return {}
    value = settings.get("cp_comm_type", "p2p")
    types = " ".join(dict.fromkeys(map(str, value))) if isinstance(value, list | tuple) else str(value)
    if types not in CP_KINDS:
        raise not_allowed("cp_comm_type", types, CP_KINDS)
    name = "hierarchical_context_parallel_sizes"
    sizes = whole_number(name, settings.get(name, 1))
    facts: Facts = {"cp_kind": CP_KINDS[types]}
    if facts["cp_kind"] == "hybrid":
        facts["ulysses"] = sizes[0] if isinstance(sizes, tuple) else sizes
    return facts


def write_dp_overlap(facts: Facts) -> Values:
    """Write whether gradients are reduced in the backward pass, which those of Muon are not."""
    overlapped = facts.get("dp_overlap") and facts["optimizer_kind"] != "muon"
    return {"overlap_grad_reduce": True} if overlapped else {}


def write_zero(facts: Facts) -> Values:
    """Write what is sharded over data-parallel ranks: by the distributed optimizer, or by Megatron-FSDP.

    Both are for Adam (distrib_optimizer.py), which needs the first on one rank too where it is aware of
    precision; with Muon the first flag shards its state by whole layers (0.19.2, arguments.py).
    """
    zero = facts.get("zero", 0)
    replicas = facts.get("replicas", 1)
    if facts["optimizer_kind"] == "muon":
        return {"use_distributed_optimizer": True} if zero == 1 else {}
    if facts["optimizer_kind"] == "sgd":
        return {}
    alone = is_alone(facts) and bool(write_moments(facts) or write_master_copy(facts))
    settings: dict[str, object] = {"use_distributed_optimizer": True} if zero or alone else {}
    if zero > 1:  # docs/discussions/megatron-fsdp-user-guide has what is required
        strategy = {SHARDING: SHARDING_STRATEGIES[zero]}
        further = {"ckpt_format": "fsdp_dtensor", "no_gradient_accumulation_fusion": True}
        settings |= {"use_megatron_fsdp": True, **strategy, **further}
    return settings | ({"num_distributed_optimizer_instances": replicas} if replicas > 1 else {})


def read_zero(settings: Settings) -> Facts:
    """Read what is sharded; --zero-stage is Megatron-DeepSpeed's (megatron/arguments.py, 4efb479).

    In bf16 stage 0 shards the optimizer as well (deepspeed/runtime/bf16_optimizer.py). Without a strategy
    nothing is sharded (distributed_data_parallel_config.py); what scripts have then says `megatron_script`.
    """
    written = settings.get(STAGE)
    if settings.is_on("zero_stage") or written is not None:
        stage = str(settings.get("zero_stage", written)).removesuffix(".0")
        if stage not in map(str, SHARDING_STRATEGIES):
            raise not_allowed("zero_stage", stage, SHARDING_STRATEGIES)
        return {"zero": 1 if stage == "0" and settings.is_on("bf16") else int(stage)}
    strategies = list(SHARDING_STRATEGIES.values())
    zero = strategies.index(settings.choice(SHARDING, strategies, "no_shard"))
    if settings.is_on("use_torch_fsdp2"):
        zero = 2 if settings.is_on("torch_fsdp2_no_reshard_after_forward") else 3
    elif not settings.any_on(*FSDP_FLAGS):
        zero = int(settings.is_on("use_distributed_optimizer") or settings.get("optimizer") == "dist_muon")
    replicas = settings.number("num_distributed_optimizer_instances")
    facts: Facts = {"zero": zero}
    return facts | ({"replicas": replicas} if replicas > 1 else {})


# The batch


def write_batch_schedule(facts: Facts) -> Values:
    """Write no schedule: the global batch is one number."""
    return {}


def read_batch_schedule(settings: Settings) -> Facts:
    """Read the global batch of a schedule: the last step's (core/num_microbatches_calculator.py)."""
    steps = batches_of_schedule(settings)
    batch = settings.count("global_batch_size")
    if steps and batch not in (0, steps[-1]):
        schedule = f"--{SCHEDULE.replace('_', '-')}"
        problem = f"the last step of {schedule} has {steps[-1]}; Megatron-LM takes one of them"
        raise InputError("global_batch_size", [f"global_batch_size = {batch}: {problem}"])
    return {"gbs": steps[-1]} if steps else {}


def batches_of_schedule(settings: Settings) -> tuple[int, ...]:
    """Return the global batches [sequences] of a schedule such as "0:768 250B:1536"; none without one."""
    if not settings.is_on(SCHEDULE):
        return ()
    text = value_text(settings[SCHEDULE]).strip("'\"")
    steps = [STEP_OF_SCHEDULE.fullmatch(entry) for entry in text.replace(",", " ").split()]
    if not steps or None in steps:
        wanted = "must be steps such as 0:768 250B:1536, each from so many tokens on"
        raise InputError(SCHEDULE, [f"{SCHEDULE} = {text[:60]!r}: {wanted}"])
    return tuple(whole_number(SCHEDULE, step[1], 1) for step in steps if step is not None)


# The optimizer


def write_optimizer(facts: Facts) -> Values:
    """Write the kind of optimizer, which is Adam by default."""
    kind = facts["optimizer_kind"]
    return {"optimizer": kind} if kind in ("sgd", "muon") else {}


def write_moments(facts: Facts) -> Values:
    """Write the precision of Adam's moments; Adam on the host runs by the same flag (arguments.py)."""
    moments = MOMENTS.get(facts["optimizer_kind"])
    aware = {"use_precision_aware_optimizer": True}
    if moments:
        return aware | {"exp_avg_dtype": moments, "exp_avg_sq_dtype": moments}
    return aware if "optimizer" in split_choice(facts["offload"]) else {}


def write_master_copy(facts: Facts) -> Values:
    """Write the precision-aware Adam where it stores a half of the master copy."""
    return {"use_precision_aware_optimizer": True} if facts.get("master_copy") == "remainder" else {}


def read_master_copy(settings: Settings) -> Facts:
    """Read what the precision-aware Adam stores of the master copy, if it is not what its moments imply.

    By default it stores a remainder (optimizer_config.py), on the host all of it.
    """
    if not settings.is_on("use_precision_aware_optimizer") or settings.is_on("optimizer_cpu_offload"):
        return {}
    wide = all(value_text(settings.get(name, "fp32")).endswith("32") for name in MOMENT_DTYPES)
    whole = "store_param_remainders" in settings and not settings.is_on("store_param_remainders")
    if whole == wide:
        return {}
    return {"master_copy": "fp32" if whole else "remainder"}


# Memory


def write_recompute(facts: Facts) -> Values:
    """Write what is recomputed: whole layers, all or some of each chunk, or modules."""
    modules = set(facts["recompute"].split("+"))
    if "full" in modules:
        return {"recompute_granularity": "full", **_recomputed_layers(facts)}
    if "experts.experts" not in facts or not facts.get("grouped_gemm", True):
        modules -= {"activation"}  # moe_act applies to experts only, in one kernel
    if "gated_delta.key_heads" not in facts:
        modules -= {"gdn_norm_out"}  # which is refused without a delta net (transformer_config.py)
    names = tuple(name for name, module in RECOMPUTE_MODULES.items() if module in modules)
    return {"recompute_granularity": "selective", "recompute_modules": names} if names else {}


def _recomputed_layers(facts: Facts) -> Values:
    """Write how many layers of a chunk are recomputed."""
    every = facts.get("recompute_every", 1)
    (layers, *others) = set(facts.get("chunks", (facts["layers"],)))
    if every > 1 and not others and layers % every == 0:
        return {"recompute_method": "block", "recompute_num_layers": layers // every}
    return {"recompute_method": "uniform", "recompute_num_layers": 1}


def read_recompute(settings: Settings) -> Facts:
    """Read what is recomputed; `moe_layer_recompute` is short for the module moe (transformer_config.py)."""
    old = next((kind for name, kind in OLD_RECOMPUTE_FLAGS.items() if settings.is_on(name)), "none")
    granularity = settings["recompute_granularity"] if settings.is_on("recompute_granularity") else old
    moe_layer = ["moe"] if settings.is_on("moe_layer_recompute") and settings.count("num_experts") else []
    if granularity == "none" and not moe_layer:
        return {"recompute": "none"}
    if granularity == "full":
        return _read_recomputed_layers(settings)
    if granularity not in ("selective", "none"):
        problem = f"recompute_granularity = {granularity!r}: must be full or selective"
        raise InputError("recompute_granularity", [problem])
    value = settings.get("recompute_modules", "core_attn")
    names = [str(name) for name in (value if isinstance(value, list | tuple) else [value])] + moe_layer
    modules = (RECOMPUTE_MODULES[name] for name in names if name in RECOMPUTE_MODULES)
    return {"recompute": normalized_recompute("+".join(modules) or "none")}


def _read_recomputed_layers(settings: Settings) -> Facts:
    """Read which layers are recomputed: all, or with the method `block` a number of each chunk."""
    names = ("recompute_num_layers", "activations_checkpoint_num_layers")
    recomputed = settings.count(*names)
    layers = layers_of(settings)
    method = settings.get("recompute_method", settings.get("activations_checkpoint_method"))
    if method == "block" and not recomputed and settings.any_on(*names):
        return {"recompute": "none"}
    if method != "block" or not recomputed or not layers:
        return {"recompute": "full"}
    chunks = (settings.count("pipeline_model_parallel_size") or 1) * max(read_chunks(settings)["vp"], 1)
    return {"recompute": "full", "recompute_every": max(round(layers / chunks / recomputed), 1)}


def layers_of(settings: Settings) -> int:
    """Return the number of layers: a hybrid's letters, or those of a model of the catalogue that is named."""
    if pattern := megatron_model.hybrid_pattern(settings):  # which overrides --num-layers (arguments.py)
        return len(pattern.partition("/")[0].replace("|", ""))
    name = catalogue_name(str(settings.get(NAMED_MODEL, "")))
    return settings.count(*megatron_model.LAYERS) or (load_model(name).layers if name else 0)


def write_offload(facts: Facts) -> Values:
    """Write what is offloaded to the host: activations of layers without a pipeline, those of modules in any.

    Of all layers they never are.
    """
    offloaded = split_choice(facts["offload"])
    settings: dict[str, Any] = {"optimizer_cpu_offload": True} if "optimizer" in offloaded else {}
    if "activations" in offloaded and facts["pp"] == 1:
        moved = min(facts["layers"] // facts.get("offload_every", 1), facts["layers"] - 1)
        settings |= {"cpu_offloading_num_layers": moved} if moved else {}
    if modules := tuple(name for name in OFFLOADED_MODULES if name in offloaded):
        settings |= {"fine_grained_activation_offloading": True, "offload_modules": modules}
    return settings


def read_offload(settings: Settings) -> Facts:
    """Read what is offloaded to the host: by flags, or by DeepSpeed's configuration."""
    written = deepspeed_settings(settings, {})
    if settings.is_on("zero_stage"):
        written[STAGE.removeprefix(DEEPSPEED)] = str(settings["zero_stage"]).removesuffix(".0")
    offloaded = set(deepspeed.read_offload(written)["offload"].split("+")) - {"none"}
    offloaded |= {"optimizer"} if settings.any_on("optimizer_cpu_offload", "cpu_optimizer") else set()
    offloaded |= {"activations"} if settings.is_on("checkpoint_in_cpu") else set()
    facts: Facts = {}
    off = "cpu_offloading" in settings and not settings.is_on("cpu_offloading")  # as NeMo's files say
    if (moved := settings.count("cpu_offloading_num_layers")) and not off:
        offloaded.add("activations")
        facts["offload_every"] = max(round((layers_of(settings) or moved) / moved), 1)
    offloaded |= _offloaded_modules(settings)
    return {"offload": "+".join(sorted(offloaded)) or "none", **facts}


def _offloaded_modules(settings: Settings) -> set[str]:
    """Return the modules whose inputs are offloaded (transformer_config.py, offload_modules)."""
    if not settings.is_on("fine_grained_activation_offloading"):
        return set()
    value = settings.get("offload_modules", ())
    names = [str(name) for name in (value if isinstance(value, list | tuple) else [value])]
    unknown = [name for name in names if name not in OFFLOADED_MODULES]
    if unknown or not names:
        raise not_allowed("offload_modules", " ".join(unknown), OFFLOADED_MODULES)
    return set(names)


# The software


def stack(settings: Settings) -> str:
    """Return the software stack: Megatron-DeepSpeed, or Megatron-Core with what moves tokens to experts."""
    if megatron_model.is_deepspeed(settings):
        return "megatron-deepspeed-2022"
    if settings.is_on("release"):
        return OLD_STACKS[settings["release"]]
    backend = DISPATCHER not in settings and settings.is_on("moe_flex_dispatcher_backend")
    flex = settings.get(DISPATCHER) == "flex" or settings.is_on("moe_enable_deepep") or backend
    if flex and settings.is_on("num_experts"):
        return Stack.FUSED_DISPATCHER
    return stack_of_dispatcher(Stack.DEFAULT, settings)


def has_experts(settings: Settings) -> bool:
    """Return whether the model has experts, as settings say: of a named one the degree does."""
    return settings.is_on("num_experts") or settings.is_degree("expert_model_parallel_size")


def usual_dispatcher(settings: Settings, dispatcher: str) -> Values:
    """Return a program's default of what moves tokens to experts; empty where settings say it."""
    stated = settings.any_on(DISPATCHER, "moe_enable_deepep", "moe_flex_dispatcher_backend")
    return {DISPATCHER: dispatcher} if has_experts(settings) and not stated else {}


def stack_of_dispatcher(name: str, settings: Settings) -> str:
    """Return a software stack, with the all-gather dispatcher where settings have it."""
    if not gathers_tokens(settings):
        return name
    return Stack(name).with_given({"dispatcher": ALLGATHER}).name


def gathers_tokens(settings: Settings) -> bool:
    """Return whether the all-gather dispatcher moves tokens to experts."""
    return settings.get(DISPATCHER) == ALLGATHER and has_experts(settings)


def arguments(settings: Settings) -> Arguments | None:
    """Return the arguments of the program: None for Megatron-DeepSpeed, which has others."""
    return None if megatron_model.is_deepspeed(settings) else MEGATRON_ARGUMENTS


def figures(settings: Settings) -> Values:
    """Return figures of assumptions that settings state: of the vocabulary, and of the router's precision.

    In it the all-gather dispatcher returns results (token_dispatcher.py, token_combine).
    """
    probability = ROUTER_BYTES.get(str(settings.get("moe_router_dtype", "")))
    of_router = {"collectives.probability_bytes": probability} if probability else {}
    return _of_vocabulary(settings) | of_router


def _of_vocabulary(settings: Settings) -> dict[str, object]:
    """Return to which multiple the vocabulary is padded, for each tensor rank (training/vocab_utils.py).

    To none where its padded size is given.
    """
    if settings.any_on(
        "padded_vocab_size", "pad_vocab_size_to", "no_pad_vocab_size", "disable_pad_vocab_size"
    ):
        return {"memory.vocab_multiple": 1}
    multiple = settings.count("make_vocab_size_divisible_by")
    return {"memory.vocab_multiple": multiple} if multiple else {}


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: of a fork that lacks some flags, and of behaviour that no flag sets."""
    low_precision = ("bf16", "fp16", "fp8_format", "fp4_format", "mixed_precision")
    file_read = any(name.startswith("deepspeed_config.") for name in settings)
    cases = {
        "changes are named by the flags of Megatron-LM; Megatron-DeepSpeed does not have all of them": (
            stack(settings) == "megatron-deepspeed-2022"
        ),
        "precision = fp32, as no flag sets another": not settings.any_on(*low_precision, "recipe"),
        "all layers are recomputed, as the file does not say how many there are": (
            settings.is_on("recompute_num_layers")
            and settings.get("recompute_method") == "block"
            and not layers_of(settings)
        ),
        "layers are split over stages as by default, as the file does not say how many there are": (
            settings.any_on(*OF_END_STAGES) and not layers_of(settings)
        ),
        "zero = 1: in bf16 DeepSpeed shards the optimizer at stage 0 as well": (
            settings.is_on("bf16")
            and str(settings.get("zero_stage", settings.get(STAGE))).removesuffix(".0") == "0"
        ),
        "Megatron-LM 0.19 refuses this launch; the answer is as if it ran: it has disabled"
        " --cross-entropy-fusion-impl te for its instability (megatron/training/arguments.py),"
        " and 0.18 runs it": (
            settings.is_on("cross_entropy_loss_fusion")
            and settings.get("cross_entropy_fusion_impl") == "te"
            and str(settings.get("program")).endswith(".py")
            and not settings.is_on("recipe")
        ),
        "shared experts are not recomputed": "shared_experts"
        in value_text(settings.get("recompute_modules")),
        "what the file of --deepspeed-config sets besides the ZeRO stage is not read": (
            settings.is_on("deepspeed_config") and not file_read
        ),
        "whether a 16-bit copy of 8-bit weights is kept follows the assumptions,"
        " as fp8_param_gather is not set": (
            settings.is_on("fp8_format") and not settings.is_on("fp8_param_gather")
        ),
    }
    return tuple(text for text, applies in cases.items() if applies)


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        **megatron_model.CONVERSIONS.read,
        "gpus": read_gpus,
        "adapters": read_adapters,
        "expert_tp": read_expert_tp,
        "expert_parallel": read_expert_parallel,
        "chunks": read_chunks,
        "context": read_context,
        "zero": read_zero,
        "batch_schedule": read_batch_schedule,
        "master_copy": read_master_copy,
        "recompute": read_recompute,
        "offload": read_offload,
    },
    write={
        **megatron_model.CONVERSIONS.write,
        "gpus": write_gpus,
        "adapters": write_adapters,
        "expert_tp": write_expert_tp,
        "expert_parallel": write_expert_parallel,
        "chunks": write_chunks,
        "context": write_context,
        "dp_overlap": write_dp_overlap,
        "zero": write_zero,
        "batch_schedule": write_batch_schedule,
        "optimizer": write_optimizer,
        "moments": write_moments,
        "master_copy": write_master_copy,
        "recompute": write_recompute,
        "offload": write_offload,
    },
)
