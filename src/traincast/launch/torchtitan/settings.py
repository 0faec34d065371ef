"""Conversions of torchtitan's settings that depend on each other; the tables of rows are in `table`."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from traincast.catalog.load import load_model
from traincast.core.errors import InputError
from traincast.launch.canonical import Facts, model_facts
from traincast.launch.mapping import Settings, is_off, whole_number

MODELS: Final[Mapping[tuple[str, str], str]] = {  # (name, flavour) of torchtitan -> model of the catalogue
    ("llama3", "8B"): "llama-3-8b",
    ("llama3", "70B"): "llama-3-70b",
    ("llama3", "405B"): "llama-3.1-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
    ("qwen3", "8B"): "qwen3-8b",
    ("qwen3", "32B"): "qwen3-32b",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b",
    ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
    ("gpt_oss", "20b"): "gpt-oss-20b",
    ("gpt_oss", "120b"): "gpt-oss-120b",
}
DEGREES: Final[Mapping[str, str]] = {  # column of a table of runs -> name of the degree's setting
    "tp": "tensor_parallel_degree",
    "cp": "context_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "ep": "expert_parallel_degree",
    "replicate": "data_parallel_replicate_degree",
    "shard": "data_parallel_shard_degree",
}
SCHEDULES: Final = {"1f1b": "1F1B", "gpipe": "GPipe", "zb-v": "ZBVZeroBubble"}
INTERLEAVED: Final = "Interleaved1F1B"
FLOAT8: Final = ("quantize.linear.float8", "float8")
PARALLELISM: Final = "parallelism."
ROTATE_METHOD: Final = f"{PARALLELISM}context_parallel_rotate_method"


def known_flavours() -> str:
    """Return the known models and flavours as text."""
    names = dict.fromkeys(name for name, _ in MODELS)
    return "; ".join(
        f"{name} {', '.join(flavour for known_name, flavour in MODELS if known_name == name)}"
        for name in names
    )


@cache
def facts_of(name: str) -> Facts:
    """Return the facts of a catalogue model as torchtitan builds it: no multi-token prediction, any sequence length."""
    return {name: value for name, value in model_facts(load_model(name)).items() if name != "seq"} | {
        "mtp": 0
    }


def write_flavour(facts: Facts) -> Settings:
    """Write name and flavour of the model with these facts, whatever its sequence length and multi-token prediction."""
    comparable = facts | {"mtp": 0}
    for (name, flavour), catalogue_name in MODELS.items():
        if all(comparable.get(key) == value for key, value in facts_of(catalogue_name).items()):
            return {"model.name": name, "model.flavor": flavour}
    return {}


def read_model(settings: Settings) -> Facts:
    """Read the facts of a model by name and flavour; by flavour only where one model has it."""
    name, flavour = str(settings.get("model.name", "")), str(settings.get("model.flavor", ""))
    if not flavour:
        return {}
    fitting = [
        catalogue_name
        for (known_name, known_flavour), catalogue_name in MODELS.items()
        if known_flavour == flavour and name in (known_name, "")
    ]
    return dict(facts_of(fitting[0])) if len(fitting) == 1 else {}


def size(settings: Settings, name: str, usual: int = 1) -> int:
    """Return a setting as a whole number."""
    value = settings.get(name)
    return usual if is_off(value) or str(value) == "-1" else int(whole_number(name, value, 1))


def write_data(facts: Facts) -> Settings:
    """Write replicate and shard degrees of data parallelism, and whether weights are resharded after forward."""
    zero, copies = facts.get("zero", 0), facts.get("replicas", 1)
    replicate = facts["dp"] if zero == 0 else copies
    if facts["dp"] % replicate:
        return {}
    settings = {
        f"{PARALLELISM}data_parallel_replicate_degree": replicate,
        f"{PARALLELISM}data_parallel_shard_degree": facts["dp"] // replicate,
    }
    reshard = {2: "never", 3: "always"}.get(zero)
    return settings | ({f"{PARALLELISM}fsdp_reshard_after_forward": reshard} if reshard else {})


def read_data(settings: Settings) -> Facts:
    """Read data parallelism and what is sharded: by default weights stay gathered with a pipeline."""
    replicate = size(settings, f"{PARALLELISM}data_parallel_replicate_degree")
    shard = settings.get(f"{PARALLELISM}data_parallel_shard_degree", -1)
    policy = str(settings.get(f"{PARALLELISM}fsdp_reshard_after_forward", "default"))
    if policy not in ("default", "always", "never"):
        raise InputError(
            f"{PARALLELISM}fsdp_reshard_after_forward",
            [f"{PARALLELISM}fsdp_reshard_after_forward = {policy!r}: must be one of default, always, never"],
        )
    has_pipeline = size(settings, f"{PARALLELISM}pipeline_parallel_degree") > 1
    fsdp_zero = 2 if policy == "never" or (policy == "default" and has_pipeline) else 3
    if str(shard) == "-1":
        return {"zero": fsdp_zero, **({"replicas": replicate} if replicate > 1 else {})}
    sharded = (
        size(settings, f"{PARALLELISM}data_parallel_shard_degree")
        * size(settings, f"{PARALLELISM}context_parallel_degree")
        > 1
    )
    zero = fsdp_zero if sharded else 0
    return {"dp": replicate * size(settings, f"{PARALLELISM}data_parallel_shard_degree"), "zero": zero} | (
        {"replicas": replicate} if replicate > 1 and zero else {}
    )


def write_batch(facts: Facts) -> Settings:
    """Write the batch of a rank; with a pipeline that of all its micro-batches."""
    settings: Settings = {"training.global_batch_size": facts["gbs"], "training.seq_len": facts["seq"]}
    if facts["pp"] == 1:
        return {"training.local_batch_size": facts["mbs"], **settings}
    local = max(facts["gbs"] // facts["dp"], 1)
    return {
        "training.local_batch_size": local,
        **settings,
        f"{PARALLELISM}pipeline_parallel_microbatch_size": facts["mbs"],
    }


def read_batch(settings: Settings) -> Facts:
    """Read micro-batch, batch and sequence length."""
    local = size(settings, "training.local_batch_size", size(settings, "training.batch_size", 8))
    has_pipeline = size(settings, f"{PARALLELISM}pipeline_parallel_degree") > 1
    facts: Facts = {
        "mbs": size(settings, f"{PARALLELISM}pipeline_parallel_microbatch_size") if has_pipeline else local
    }
    if given := size(settings, "training.global_batch_size", 0):
        facts["gbs"] = given
    else:
        facts["accumulation"] = max(local // facts["mbs"], 1)
    return facts | {"seq": size(settings, "training.seq_len", 2048)}


def default_split(layers: int, chunks: int) -> tuple[int, ...]:
    """Return the layers of every chunk as torchtitan splits them: embedding and head count as a layer each."""
    base, larger = divmod(layers + 2, chunks)
    layers_of_chunks = [base + (i < larger) for i in range(chunks)]
    layers_of_chunks[0] -= 1
    layers_of_chunks[-1] -= 1
    return tuple(layers_of_chunks)


def module_names(chunks: tuple[int, ...], head: str) -> list[list[str]]:
    """Return the module names of every chunk; the output projection's name `head` depends on the version."""
    first, names = 0, []
    for layers in chunks:
        names.append([f"layers.{i}" for i in range(first, first + layers)])
        first += layers
    names[0].insert(0, "tok_embeddings")
    names[-1] += ["norm", head]
    return names


def write_pipeline(facts: Facts, head: str) -> Settings:
    """Write the schedule, and the modules of every chunk where torchtitan would split layers differently."""
    schedule, chunks = facts.get("schedule"), facts.get("chunks", ())
    if schedule not in SCHEDULES or not chunks:
        return {}
    name = INTERLEAVED if schedule == "1f1b" and facts["vp"] > 1 else SCHEDULES[schedule]
    settings: Settings = {f"{PARALLELISM}pipeline_parallel_schedule": name}
    chunks_per_stage = 2 if name in (INTERLEAVED, "ZBVZeroBubble") else 1
    if len(chunks) == facts["pp"] * chunks_per_stage and chunks == default_split(
        facts["layers"], len(chunks)
    ):
        return settings
    return {**settings, f"{PARALLELISM}module_fqns_per_model_part": module_names(chunks, head)}


def write_graphs(facts: Facts) -> Settings:
    """Disable CUDA graphs where torchtitan has none: with a pipeline, and with expert parallelism, whose sizes the CPU reads."""
    return {"training.disable_cuda_graphs": True} if facts["pp"] > 1 or facts.get("ep", 1) > 1 else {}


def read_pipeline(settings: Settings) -> Facts:
    """Read the schedule, the chunks of a rank, and their layers."""
    pp = size(settings, f"{PARALLELISM}pipeline_parallel_degree")
    if pp == 1:
        return {"vp": 1}
    schedule_name = str(settings.get(f"{PARALLELISM}pipeline_parallel_schedule", "1F1B"))
    names = {name.lower(): schedule for schedule, name in {**SCHEDULES, "1f1b ": INTERLEAVED}.items()}
    if schedule_name.lower() not in names:
        wanted = ", ".join((*SCHEDULES.values(), INTERLEAVED))
        raise InputError(
            f"{PARALLELISM}pipeline_parallel_schedule",
            [f"{PARALLELISM}pipeline_parallel_schedule = {schedule_name[:60]!r}: must be one of {wanted}"],
        )
    schedule, vp = (
        names[schedule_name.lower()].strip(),
        2 if schedule_name.lower() in (INTERLEAVED.lower(), "zbvzerobubble") else 1,
    )
    parts = settings.get(f"{PARALLELISM}module_fqns_per_model_part") or settings.get(
        f"{PARALLELISM}pipeline_parallel_module_fqns_per_model_part"
    )
    if parts:
        chunks = listed_chunk_layers(parts)
        return {"schedule": schedule, "vp": max(len(chunks) // pp, 1), "chunks": chunks}
    layers = read_model(settings).get("layers")
    layers_per_stage = size(settings, f"{PARALLELISM}pipeline_parallel_layers_per_stage", 0)
    if layers is None:
        return {"schedule": schedule, "vp": vp}
    vp = (
        max(math.ceil((layers + 2) / layers_per_stage) // pp, 1)
        if layers_per_stage and vp == 2 and schedule != "zb-v"
        else vp
    )
    return {"schedule": schedule, "vp": vp, "chunks": default_split(layers, pp * vp)}


def listed_chunk_layers(parts: Any) -> tuple[int, ...]:
    """Return the layers of chunks given as lists of module names."""
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts):
        raise InputError(
            f"{PARALLELISM}module_fqns_per_model_part",
            [f"{PARALLELISM}module_fqns_per_model_part: must be a list of lists of names"],
        )
    return tuple(sum(str(name).startswith("layers.") for name in part) for part in parts)


def read_precision(settings: Settings) -> Facts:
    """Read the precision from the model converters."""
    value = settings.get("model.converters", "")
    converters = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if "mx" in converters:
        return {"precision": "mxfp8"}
    if "float8" in converters:
        recipe = next(
            (str(settings[f"{name}.recipe_name"]) for name in FLOAT8 if f"{name}.recipe_name" in settings), ""
        )
        return {"precision": "fp8-rowwise" if "rowwise" in recipe else "fp8-current"}
    if settings.get("training.dtype") == "bfloat16":
        return {"precision": "bf16-pure"}
    return {"precision": {"float32": "fp32"}.get(str(settings.get("training.mixed_precision_param")), "bf16")}


def write_precision(facts: Facts) -> Settings:
    """Write the precision as model converters."""
    float8_recipes = {"fp8-current": "tensorwise", "fp8-rowwise": "rowwise"}
    if (precision := facts["precision"]) in float8_recipes:
        return {"model.converters": [FLOAT8[0]], f"{FLOAT8[0]}.recipe_name": float8_recipes[precision]}
    other_settings: dict[str, Settings] = {
        "mxfp8": {
            "model.converters": ["quantize.linear.mx"],
            "quantize.linear.mx.recipe_name": "mxfp8_cublas",
        },
        "bf16-pure": {"training.dtype": "bfloat16"},
        "fp32": {"training.mixed_precision_param": "float32"},
        "bf16": {"training.mixed_precision_param": "bfloat16"},
    }
    return other_settings.get(precision, {})


def write_recompute(facts: Facts) -> Settings:
    """Write what is recomputed: nothing, all or every n-th layer, or per-op selective activation checkpointing."""
    mode, every = facts["recompute"], facts.get("recompute_every", 1)
    if mode == "full" and every > 1:
        return {
            "activation_checkpoint.mode": "selective",
            "activation_checkpoint.selective_ac_option": str(every),
        }
    if mode == "per-op":
        return {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": "op"}
    return {"activation_checkpoint.mode": mode} if mode in ("none", "full") else {}


def read_recompute(settings: Settings) -> Facts:
    """Read what is recomputed: by default every second layer."""
    mode = str(settings.get("activation_checkpoint.mode", "selective"))
    if mode not in ("none", "full", "selective"):
        raise InputError(
            "activation_checkpoint.mode",
            [f"activation_checkpoint.mode = {mode[:60]!r}: must be one of none, selective, full"],
        )
    option = str(settings.get("activation_checkpoint.selective_ac_option", "2"))
    if mode != "selective":
        return {"recompute": mode}
    if option == "op":
        return {"recompute": "per-op"}
    return {
        "recompute": "full",
        "recompute_every": int(whole_number("activation_checkpoint.selective_ac_option", option)),
    }
