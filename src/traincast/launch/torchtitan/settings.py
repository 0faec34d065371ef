"""Settings of torchtitan that say several facts together, or only with what others say; the tables are in `torchtitan`."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from traincast.catalog.load import load_model
from traincast.core.errors import InputError
from traincast.launch.canonical import Facts, model_facts
from traincast.launch.mapping import Settings, is_off, number

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
DEGREES: Final[Mapping[str, str]] = {  # column of a table of runs -> the degree's last name
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
P: Final = "parallelism."
ROTATED: Final = f"{P}context_parallel_rotate_method"


def known() -> str:
    """The flavours that are known, in words."""
    names = dict.fromkeys(name for name, _ in MODELS)
    return "; ".join(f"{name} {', '.join(flavour for other, flavour in MODELS if other == name)}" for name in names)


@cache
def facts_of(name: str) -> Facts:
    """Facts of a model of the catalogue as torchtitan builds it: without multi-token prediction, of any length of sequences."""
    return {name: value for name, value in model_facts(load_model(name)).items() if name != "seq"} | {"mtp": 0}


def flavour(told: Facts) -> Settings:
    """Name and flavour of the model that has the facts told, length of sequences and multi-token prediction aside."""
    own = told | {"mtp": 0}
    for (name, flavour), known in MODELS.items():
        if all(own.get(key) == value for key, value in facts_of(known).items()):
            return {"model.name": name, "model.flavor": flavour}
    return {}


def model(settings: Settings) -> Facts:
    """Facts of a model by name and flavour; by flavour alone where only one model has it."""
    name, flavour = str(settings.get("model.name", "")), str(settings.get("model.flavor", ""))
    if not flavour:
        return {}
    fitting = [known for (one, other), known in MODELS.items() if other == flavour and name in (one, "")]
    return dict(facts_of(fitting[0])) if len(fitting) == 1 else {}


def refused(name: str, value: str, wanted: str) -> InputError:
    """What to say of a word that is not predicted."""
    return InputError(name, [f"{name} = {value[:60]!r}: must be one of {wanted}"])


def size(settings: Settings, name: str, usual: int = 1) -> int:
    """A whole number of the settings."""
    value = settings.get(name)
    return usual if is_off(value) or str(value) == "-1" else int(number(name, value, 1))


def write_data(told: Facts) -> Settings:
    """Replicas and shards of the data, and whether weights stay gathered."""
    zero, copies = told.get("zero", 0), told.get("replicas", 1)
    replicate = told["dp"] if zero == 0 else copies
    if told["dp"] % replicate:
        return {}
    found = {f"{P}data_parallel_replicate_degree": replicate, f"{P}data_parallel_shard_degree": told["dp"] // replicate}
    stays = {2: "never", 3: "always"}.get(zero)
    return found | ({f"{P}fsdp_reshard_after_forward": stays} if stays else {})


def read_data(settings: Settings) -> Facts:
    """Replicas of the data, and what they share: by default weights stay gathered where there is a pipeline."""
    replicate = size(settings, f"{P}data_parallel_replicate_degree")
    shard = settings.get(f"{P}data_parallel_shard_degree", -1)
    policy = str(settings.get(f"{P}fsdp_reshard_after_forward", "default"))
    if policy not in ("default", "always", "never"):
        raise InputError(
            f"{P}fsdp_reshard_after_forward", [f"{P}fsdp_reshard_after_forward = {policy!r}: default, always or never"]
        )
    piped = size(settings, f"{P}pipeline_parallel_degree") > 1
    shared = 2 if policy == "never" or (policy == "default" and piped) else 3
    if str(shard) == "-1":
        return {"zero": shared, **({"replicas": replicate} if replicate > 1 else {})}
    sharded = size(settings, f"{P}data_parallel_shard_degree") * size(settings, f"{P}context_parallel_degree") > 1
    zero = shared if sharded else 0
    return {"dp": replicate * size(settings, f"{P}data_parallel_shard_degree"), "zero": zero} | (
        {"replicas": replicate} if replicate > 1 and zero else {}
    )


def write_batch(told: Facts) -> Settings:
    """Batch of a rank; with a pipeline that of all its micro-batches."""
    found: Settings = {"training.global_batch_size": told["gbs"], "training.seq_len": told["seq"]}
    if told["pp"] == 1:
        return {"training.local_batch_size": told["mbs"], **found}
    local = max(told["gbs"] // told["dp"], 1)
    return {"training.local_batch_size": local, **found, f"{P}pipeline_parallel_microbatch_size": told["mbs"]}


def read_batch(settings: Settings) -> Facts:
    """Micro-batch, batch and length of sequences."""
    local = size(settings, "training.local_batch_size", size(settings, "training.batch_size", 8))
    piped = size(settings, f"{P}pipeline_parallel_degree") > 1
    found: Facts = {"mbs": size(settings, f"{P}pipeline_parallel_microbatch_size") if piped else local}
    if given := size(settings, "training.global_batch_size", 0):
        found["gbs"] = given
    else:
        found["accumulation"] = max(local // found["mbs"], 1)
    return found | {"seq": size(settings, "training.seq_len", 2048)}


def split(layers: int, chunks: int) -> tuple[int, ...]:
    """Layers of every chunk as torchtitan cuts them: embedding and head weigh a layer each."""
    each, more = divmod(layers + 2, chunks)
    cut = [each + (i < more) for i in range(chunks)]
    cut[0] -= 1
    cut[-1] -= 1
    return tuple(cut)


def parts(cut: tuple[int, ...], head: str) -> list[list[str]]:
    """Names of the modules of every chunk; that of the output projection is a version's own."""
    at, found = 0, []
    for held in cut:
        found.append([f"layers.{i}" for i in range(at, at + held)])
        at += held
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", head]
    return found


def write_pipeline(told: Facts, head: str) -> Settings:
    """The schedule, and how layers are cut into chunks where torchtitan would cut them otherwise."""
    schedule, cut = told.get("schedule"), told.get("chunks", ())
    if schedule not in SCHEDULES or not cut:
        return {}
    name = INTERLEAVED if schedule == "1f1b" and told["vp"] > 1 else SCHEDULES[schedule]
    found: Settings = {f"{P}pipeline_parallel_schedule": name}
    usual = 2 if name in (INTERLEAVED, "ZBVZeroBubble") else 1
    if len(cut) == told["pp"] * usual and cut == split(told["layers"], len(cut)):
        return found
    return {**found, f"{P}module_fqns_per_model_part": parts(cut, head)}


def write_graphs(told: Facts) -> Settings:
    """No CUDA graphs where torchtitan has none: in a pipeline, and where exchanges with experts ask the CPU for their sizes."""
    return {"training.disable_cuda_graphs": True} if told["pp"] > 1 or told.get("ep", 1) > 1 else {}


def read_pipeline(settings: Settings) -> Facts:
    """The schedule, chunks of a rank, and their layers."""
    pp = size(settings, f"{P}pipeline_parallel_degree")
    if pp == 1:
        return {"vp": 1}
    told = str(settings.get(f"{P}pipeline_parallel_schedule", "1F1B"))
    names = {name.lower(): schedule for schedule, name in {**SCHEDULES, "1f1b ": INTERLEAVED}.items()}
    if told.lower() not in names:
        wanted = ", ".join((*SCHEDULES.values(), INTERLEAVED))
        raise InputError(
            f"{P}pipeline_parallel_schedule", [f"{P}pipeline_parallel_schedule = {told[:60]!r}: predicted are {wanted}"]
        )
    schedule, vp = names[told.lower()].strip(), 2 if told.lower() in (INTERLEAVED.lower(), "zbvzerobubble") else 1
    parts = settings.get(f"{P}module_fqns_per_model_part") or settings.get(f"{P}pipeline_parallel_module_fqns_per_model_part")
    if parts:
        cut = listed(parts)
        return {"schedule": schedule, "vp": max(len(cut) // pp, 1), "chunks": cut}
    layers = model(settings).get("layers")
    each = size(settings, f"{P}pipeline_parallel_layers_per_stage", 0)
    if layers is None:
        return {"schedule": schedule, "vp": vp}
    vp = max(math.ceil((layers + 2) / each) // pp, 1) if each and vp == 2 and schedule != "zb-v" else vp
    return {"schedule": schedule, "vp": vp, "chunks": split(layers, pp * vp)}


def listed(parts: Any) -> tuple[int, ...]:
    """Layers of chunks that are lists of names of modules."""
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts):
        raise InputError(f"{P}module_fqns_per_model_part", [f"{P}module_fqns_per_model_part: a list of lists of names is wanted"])
    return tuple(sum(str(name).startswith("layers.") for name in part) for part in parts)


def read_precision(settings: Settings) -> Facts:
    """Precision, by what converts the model."""
    told = settings.get("model.converters", "")
    converters = " ".join(map(str, told)) if isinstance(told, list | tuple) else str(told)
    if "mx" in converters:
        return {"precision": "mxfp8"}
    if "float8" in converters:
        recipe = next((str(settings[f"{name}.recipe_name"]) for name in FLOAT8 if f"{name}.recipe_name" in settings), "")
        return {"precision": "fp8-rowwise" if "rowwise" in recipe else "fp8-current"}
    if settings.get("training.dtype") == "bfloat16":
        return {"precision": "bf16-pure"}
    return {"precision": {"float32": "fp32"}.get(str(settings.get("training.mixed_precision_param")), "bf16")}


def write_precision(told: Facts) -> Settings:
    """Precision, by what converts the model."""
    eight = {"fp8-current": "tensorwise", "fp8-rowwise": "rowwise"}
    if (one := told["precision"]) in eight:
        return {"model.converters": [FLOAT8[0]], f"{FLOAT8[0]}.recipe_name": eight[one]}
    ways: dict[str, Settings] = {
        "mxfp8": {"model.converters": ["quantize.linear.mx"], "quantize.linear.mx.recipe_name": "mxfp8_cublas"},
        "bf16-pure": {"training.dtype": "bfloat16"},
        "fp32": {"training.mixed_precision_param": "float32"},
        "bf16": {"training.mixed_precision_param": "bfloat16"},
    }
    return ways.get(one, {})


def write_again(told: Facts) -> Settings:
    """What is recomputed: nothing, whole layers or one of several, or every second product."""
    mode, every = told["recompute"], told.get("recompute_every", 1)
    if mode == "full" and every > 1:
        return {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": str(every)}
    if mode == "per-op":
        return {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": "op"}
    return {"activation_checkpoint.mode": mode} if mode in ("none", "full") else {}


def read_again(settings: Settings) -> Facts:
    """What is recomputed; one of two layers where the settings say nothing else."""
    mode = str(settings.get("activation_checkpoint.mode", "selective"))
    if mode not in ("none", "full", "selective"):
        raise InputError(
            "activation_checkpoint.mode", [f"activation_checkpoint.mode = {mode[:60]!r}: predicted are none, selective, full"]
        )
    option = str(settings.get("activation_checkpoint.selective_ac_option", "2"))
    if mode != "selective":
        return {"recompute": mode}
    if option == "op":
        return {"recompute": "per-op"}
    return {"recompute": "full", "recompute_every": int(number("activation_checkpoint.selective_ac_option", option))}
