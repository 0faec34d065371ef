"""torchtitan's settings: in the TOML of 2025, and in the Python configuration that took its place.

Names are those of torchtitan/config/job_config.py (2025) and of torchtitan/config/configs.py with the config registry of its models
(2026), dotted by section. A model is a name and a flavour; those that the catalogue knows are in `MODELS`.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from traincast.errors import InputError
from traincast.launch.facts import Facts, model_facts
from traincast.launch.table import ANY, Made, Row, Same, Settings, Words, fixed, is_off, number
from traincast.load import load_model

TOML: Final = (
    "pytorch/torchtitan, torchtitan/config/job_config.py (TOML, commit 000204a and later of 2025), looked at on 2026-11-20"
)
PYTHON: Final = (
    "torchtitan 0.3.0 (PyPI), torchtitan/config/configs.py, torchtitan/distributed/activation_checkpoint.py and "
    "torchtitan/models/llama3/config_registry.py, looked at on 2026-11-20"
)
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


@cache
def _facts_of(name: str) -> Facts:
    """Facts of a model of the catalogue as torchtitan builds it: without multi-token prediction, of any length of sequences."""
    return {name: value for name, value in model_facts(load_model(name)).items() if name != "seq"} | {"mtp": 0}


def _flavour(told: Facts) -> Settings:
    """Name and flavour of the model that has the facts told, length of sequences and multi-token prediction aside."""
    own = told | {"mtp": 0}
    for (name, flavour), known in MODELS.items():
        if all(own.get(key) == value for key, value in _facts_of(known).items()):
            return {"model.name": name, "model.flavor": flavour}
    return {}


def _model(settings: Settings) -> Facts:
    """Facts of a model by name and flavour; by flavour alone where only one model has it."""
    name, flavour = str(settings.get("model.name", "")), str(settings.get("model.flavor", ""))
    if not flavour:
        return {}
    fitting = [known for (one, other), known in MODELS.items() if other == flavour and name in (one, "")]
    return dict(_facts_of(fitting[0])) if len(fitting) == 1 else {}


def _refused(name: str, value: str, wanted: str) -> InputError:
    """What to say of a word that is not predicted."""
    return InputError(name, [f"{name} = {value[:60]!r}: must be one of {wanted}"])


def _size(settings: Settings, name: str, usual: int = 1) -> int:
    """A whole number of the settings."""
    value = settings.get(name)
    return usual if is_off(value) or str(value) == "-1" else int(number(name, value))


def _write_data(told: Facts) -> Settings:
    """Replicas and shards of the data, and whether weights stay gathered."""
    zero, copies = told.get("zero", 0), told.get("replicas", 1)
    replicate = told["dp"] if zero == 0 else copies
    if told["dp"] % replicate:
        return {}
    found = {f"{P}data_parallel_replicate_degree": replicate, f"{P}data_parallel_shard_degree": told["dp"] // replicate}
    stays = {2: "never", 3: "always"}.get(zero)
    return found | ({f"{P}fsdp_reshard_after_forward": stays} if stays else {})


def _read_data(settings: Settings) -> Facts:
    """Replicas of the data, and what they share: by default weights stay gathered where there is a pipeline."""
    replicate = _size(settings, f"{P}data_parallel_replicate_degree")
    shard = settings.get(f"{P}data_parallel_shard_degree", -1)
    policy = str(settings.get(f"{P}fsdp_reshard_after_forward", "default"))
    if policy not in ("default", "always", "never"):
        raise InputError(
            f"{P}fsdp_reshard_after_forward", [f"{P}fsdp_reshard_after_forward = {policy!r}: default, always or never"]
        )
    piped = _size(settings, f"{P}pipeline_parallel_degree") > 1
    shared = 2 if policy == "never" or (policy == "default" and piped) else 3
    if str(shard) == "-1":
        return {"zero": shared, **({"replicas": replicate} if replicate > 1 else {})}
    sharded = _size(settings, f"{P}data_parallel_shard_degree") * _size(settings, f"{P}context_parallel_degree") > 1
    zero = shared if sharded else 0
    return {"dp": replicate * _size(settings, f"{P}data_parallel_shard_degree"), "zero": zero} | (
        {"replicas": replicate} if replicate > 1 and zero else {}
    )


def _write_batch(told: Facts) -> Settings:
    """Batch of a rank; with a pipeline that of all its micro-batches."""
    found: Settings = {"training.global_batch_size": told["gbs"], "training.seq_len": told["seq"]}
    if told["pp"] == 1:
        return {"training.local_batch_size": told["mbs"], **found}
    local = max(told["gbs"] // told["dp"], 1)
    return {"training.local_batch_size": local, **found, f"{P}pipeline_parallel_microbatch_size": told["mbs"]}


def _read_batch(settings: Settings) -> Facts:
    """Micro-batch, batch and length of sequences."""
    local = _size(settings, "training.local_batch_size", _size(settings, "training.batch_size", 8))
    piped = _size(settings, f"{P}pipeline_parallel_degree") > 1
    found: Facts = {"mbs": _size(settings, f"{P}pipeline_parallel_microbatch_size") if piped else local}
    if given := _size(settings, "training.global_batch_size", 0):
        found["gbs"] = given
    else:
        found["accumulation"] = max(local // found["mbs"], 1)
    return found | {"seq": _size(settings, "training.seq_len", 2048)}


def split(layers: int, chunks: int) -> tuple[int, ...]:
    """Layers of every chunk as torchtitan cuts them: embedding and head weigh a layer each."""
    each, more = divmod(layers + 2, chunks)
    cut = [each + (i < more) for i in range(chunks)]
    cut[0] -= 1
    cut[-1] -= 1
    return tuple(cut)


def _parts(cut: tuple[int, ...]) -> list[list[str]]:
    """Names of the modules of every chunk."""
    at, found = 0, []
    for held in cut:
        found.append([f"layers.{i}" for i in range(at, at + held)])
        at += held
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "output"]
    return found


def _write_pipeline(told: Facts) -> Settings:
    """The schedule, and how layers are cut into chunks where torchtitan would cut them otherwise."""
    schedule, cut = told.get("schedule"), told.get("chunks", ())
    if schedule not in SCHEDULES or not cut:
        return {}
    name = INTERLEAVED if schedule == "1f1b" and told["vp"] > 1 else SCHEDULES[schedule]
    found: Settings = {f"{P}pipeline_parallel_schedule": name}
    usual = 2 if name in (INTERLEAVED, "ZBVZeroBubble") else 1
    if len(cut) == told["pp"] * usual and cut == split(told["layers"], len(cut)):
        return found
    return {**found, f"{P}module_fqns_per_model_part": _parts(cut)}


def _read_pipeline(settings: Settings) -> Facts:
    """The schedule, chunks of a rank, and their layers."""
    pp = _size(settings, f"{P}pipeline_parallel_degree")
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
        cut = _listed(parts)
        return {"schedule": schedule, "vp": max(len(cut) // pp, 1), "chunks": cut}
    layers = _model(settings).get("layers")
    each = _size(settings, f"{P}pipeline_parallel_layers_per_stage", 0)
    if layers is None:
        return {"schedule": schedule, "vp": vp}
    vp = max(math.ceil((layers + 2) / each) // pp, 1) if each and vp == 2 and schedule != "zb-v" else vp
    return {"schedule": schedule, "vp": vp, "chunks": split(layers, pp * vp)}


def _listed(parts: Any) -> tuple[int, ...]:
    """Layers of chunks that are lists of names of modules."""
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts):
        raise InputError(f"{P}module_fqns_per_model_part", [f"{P}module_fqns_per_model_part: a list of lists of names is wanted"])
    return tuple(sum(str(name).startswith("layers.") for name in part) for part in parts)


def _read_precision(settings: Settings) -> Facts:
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


def _write_precision(told: Facts) -> Settings:
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


def _write_again(told: Facts) -> Settings:
    """What is recomputed: nothing, whole layers or one of several, or every second product."""
    mode, every = told["recompute"], told.get("recompute_every", 1)
    if mode == "full" and every > 1:
        return {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": str(every)}
    if mode == "per-op":
        return {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": "op"}
    return {"activation_checkpoint.mode": mode} if mode in ("none", "full") else {}


def _read_again(settings: Settings) -> Facts:
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


MODEL: Final = Made(("model",), ("model.name", "model.flavor"), _flavour, _model, "a flavour that the catalogue knows")
BATCH: Final = Made(
    ("mbs", "gbs", "seq"),
    (
        *("training.local_batch_size", "training.batch_size", "training.global_batch_size", "training.seq_len"),
        f"{P}pipeline_parallel_microbatch_size",
    ),
    _write_batch,
    _read_batch,
    "a rank's batch; of all micro-batches with a pipeline",
)
RECIPES: Final = (*(f"{name}.recipe_name" for name in FLOAT8), "quantize.linear.mx.recipe_name")
PRECISION: Final = Made(
    ("precision",),
    ("model.converters", "training.dtype", "training.mixed_precision_param", *RECIPES),
    _write_precision,
    _read_precision,
    "bf16 where nothing is said",
)
DEGREES_OF: Final[tuple[Row, ...]] = (
    Made(
        ("dp", "zero", "replicas"),
        tuple(f"{P}{name}" for name in (DEGREES["replicate"], DEGREES["shard"], "fsdp_reshard_after_forward")),
        _write_data,
        _read_data,
        "DDP (0), FSDP with weights that stay gathered (2) or not (3), HSDP",
    ),
    Same("tp", f"{P}tensor_parallel_degree", usual=1, always=True),
    Same("cp", f"{P}context_parallel_degree", usual=1),
    Same("pp", f"{P}pipeline_parallel_degree", usual=1),
    Same("ep", f"{P}expert_parallel_degree", usual=1),
    Made(
        ("schedule", "vp", "chunks"),
        (
            *(f"{P}pipeline_parallel_schedule", f"{P}pipeline_parallel_layers_per_stage", f"{P}module_fqns_per_model_part"),
            f"{P}pipeline_parallel_module_fqns_per_model_part",
        ),
        _write_pipeline,
        _read_pipeline,
        "embedding and head weigh a layer each where modules are not listed",
    ),
    fixed(etp=1, order="tp-cp-dp-pp", attention="flash", tp_kind="1d"),
)
OFFLOAD: Final = Words("offload", (("optimizer+weights", {"training.enable_cpu_offload": True}), ("none", {})))
AGAIN: Final = Made(
    ("recompute", "recompute_every"),
    ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"),
    _write_again,
    _read_again,
    "every second layer where nothing is said",
)
ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "model": (MODEL,),
    "training": (
        BATCH,
        PRECISION,
        OFFLOAD,
        Words("optimizer_kind", (("adam", {"optimizer.name": "AdamW"}),), (("adam", {"optimizer.name": "Adam"}),)),
    ),
    "parallelism": (
        *DEGREES_OF,
        Words(
            "cp_kind",
            (("all-gather", {ROTATED: "allgather"}), ("ring", {ROTATED: "alltoall"})),
            (("all-gather", {f"{P}context_parallel_degree": ANY}),),
        ),
        Words("tp_overlap", ((True, {f"{P}enable_async_tensor_parallel": True}), (False, {}))),
        fixed(sp=True),
    ),
    "recomputation": (AGAIN,),
}
PYTHON_ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "model": (MODEL,),
    "training": (
        BATCH,
        Words(
            "precision",
            (
                ("fp8-rowwise", {"model.converters": "Float8LinearConverter"}),
                ("mxfp8", {"model.converters": "MXFP8LinearConverter"}),
                ("nvfp4", {"model.converters": "NVFP4LinearConverter"}),
                ("bf16-pure", {"training.dtype": "bfloat16"}),
                ("fp32", {"training.mixed_precision_param": "float32"}),
                ("bf16", {"training.mixed_precision_param": "bfloat16"}),
            ),
            (("bf16", {}),),
        ),
        OFFLOAD,
    ),
    "parallelism": (
        *DEGREES_OF,
        Made(
            ("sp",),
            (f"{P}enable_sequence_parallel",),
            lambda told: {} if told.get("sp", True) else {f"{P}enable_sequence_parallel": False},
            lambda settings: {"sp": not is_off(settings.get(f"{P}enable_sequence_parallel", True))},
            "on where nothing is said",
        ),
        fixed(cp_kind="all-gather"),
    ),
    "compile": (Words("tp_overlap", ((True, {"compile.enable_async_tensor_parallel": True}), (False, {}))),),
    "recomputation": (
        Words(
            "recompute",
            (
                ("full", {"activation_checkpoint": "FullAC"}),
                ("per-op", {"activation_checkpoint": "SelectiveAC"}),
                ("none", {"activation_checkpoint": "None"}),
            ),
            (("per-op", {}),),
        ),
    ),
}
WHY: Final[Mapping[str, str]] = {
    "model": "no flavour of torchtitan that the catalogue knows has these sizes",
    "mtp": "flavours come without multi-token prediction",
    "recompute": "whole layers are recomputed, or every second product; torch.compile decides on elementwise work",
    "zero": "there is DDP, and FSDP2 with weights that stay gathered or not",
    "etp": "experts are not cut (expert_tensor_parallel_degree of 2025 aside)",
    "sp": "tensor parallelism comes with sequence parallelism",
    "cp_kind": "keys and values go around (alltoall) or are gathered (allgather)",
    "ep_overlap": "exchanges with experts are not overlapped",
    "attention": "attention is fused",
    "order": "the mesh is pp, dp_replicate, dp_shard, cp, tp, outermost first",
    "grad_dtype": "gradients are reduced in float32",
    "schedule": "predicted are 1F1B, interleaved or not, GPipe and ZBV",
    "vp": "without interleaving a rank has one chunk",
}
PYTHON_WHY: Final[Mapping[str, str]] = {
    "recompute_every": "activations are kept of all layers, of none, or of products",
    "cp_kind": "keys and values are gathered",
    "precision": "bf16, float32, float8 by rows, mxfp8 or nvfp4",
    "vp": "Interleaved1F1B has two chunks where modules are not listed",
}
BESIDE: Final[Settings] = {"compile.enable": True, "training.steps": 1000}  # what the prediction takes for granted, and a length


def stack(settings: Settings) -> str:
    """The software that predicts it: compiled or not."""
    compiled = not is_off(settings.get("compile.enable", settings.get("training.compile")))
    return "torchtitan-2025" if compiled else "torchtitan-eager"
