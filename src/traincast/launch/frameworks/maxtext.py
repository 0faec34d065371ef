"""Conversions of MaxText's configurations; their table is `tables/maxtext.toml`.

A run is a YAML file, or a command of a script: a file and settings that replace the file's. What neither
gives has the value of `configs/base.yml`.
"""

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

from traincast.catalog import parse_document
from traincast.catalog import read_document as read_file
from traincast.core import InputError, count_of, raise_problems, split_choice
from traincast.launch.frameworks.checkpoints import catalogue_name, unknown_model
from traincast.launch.scripts.bash import commands
from traincast.launch.settings.canonical import normalized_recompute
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import Settings, flatten, is_off, not_allowed
from traincast.launch.settings.table import Conversions, Values

MODEL: Final = "model_name"
BATCH: Final = "per_device_batch_size"
BASE: Final = "base.yml"
PROGRAM: Final = re.compile(r"maxtext[\w./]*[./](\w+?)(?:\.py)?$", re.IGNORECASE)
IN_TEXT: Final = re.compile(r"python3?\s+(?:-\w+\s+)*\S*maxtext", re.IGNORECASE)  # of a script
TRAINING: Final = re.compile(r"train|sft|\$|\bEXECUTABLE", re.IGNORECASE)  # programs that train
ICI: Final = 8  # accelerators that a slice has on GPUs: those of a node
AXES: Final = {  # knob -> axes of the mesh
    "tp": ("tensor", "tensor_sequence"),
    "cp": ("context",),
    "pp": ("pipeline",),
    "ep": ("expert",),
    "data": ("data",),
    "fsdp": ("fsdp", "fsdp_transpose"),
}
AUTO: Final = {"dcn_data_parallelism": -1, "ici_fsdp_parallelism": -1}  # by default
DEGREES: Final = tuple(
    f"{net}_{axis}_parallelism" for axes in AXES.values() for axis in axes for net in ("ici", "dcn")
)
# Axis that ranks of experts are, outside of them.
EXPERTS_IN_ATTENTION: Final = "expert_shard_attention_option"
CP_KINDS: Final = {"all_gather": "all-gather", "ring": "ring", "ulysses": "ulysses"}
LAYER_INPUT: Final = "decoder_layer_input"  # always kept: from it on a layer is recomputed
QUERIES_KEYS_VALUES: Final = ("query_proj", "key_proj", "value_proj")
PROJECTIONS: Final = (*QUERIES_KEYS_VALUES, "out_proj")
MLP_INPUTS: Final = ("mlpwi_0", "mlpwi_1")
PRODUCTS: Final = (*PROJECTIONS, *MLP_INPUTS, "mlpwo")
# Products that are fused -> their parts.
WHOLE: Final = {"qkv_proj": QUERIES_KEYS_VALUES, "mlpwi": MLP_INPUTS}
# Tensors whose place the policy `custom` leaves to settings of their names (types.py, RematAndOffload).
TENSORS: Final = (LAYER_INPUT, "context", *PRODUCTS, *WHOLE)
LOCATIONS: Final = ("remat", "device", "offload")
# remat_policy -> tensors that it keeps besides the layer's input (layers/decoders.py, get_remat_policy)
KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    "full": (),
    **dict.fromkeys(("minimal", "minimal_with_quantization"), PRODUCTS),
    **dict.fromkeys(
        ("minimal_flash", "minimal_with_context", "minimal_with_context_and_quantization"),
        (*PRODUCTS, "context"),
    ),
    "save_dot_with_context_except_mlp": (*PROJECTIONS, "context"),
    "save_qkv_proj": QUERIES_KEYS_VALUES,
    "save_dot_except_mlp": PROJECTIONS,
    "save_dot_except_mlpwi": (*PROJECTIONS, "mlpwo"),
    "save_out_proj": ("out_proj",),
}
# the same of those that keep them in the host's memory, and the layer's input on the device
OFFLOADED: Final[Mapping[str, tuple[str, ...]]] = {
    "minimal_offloaded": PRODUCTS,
    "qkv_proj_offloaded": QUERIES_KEYS_VALUES,
}
POLICIES: Final = ("none", "custom", *KEPT, *OFFLOADED)
OPTIMIZER_ON_HOST: Final = "optimizer_memory_host_offload"
PRECISIONS: Final = {  # quantization -> precision of products
    "int8": "int8",
    "fp8": "fp8-current",
    "fp8_full": "fp8-current",
    "fp8_gpu": "fp8",
    "nanoo_fp8": "fp8",
    "te_fp8_delayedscaling": "fp8",
    "te_fp8_currentscaling": "fp8-current",
    "te_mxfp8": "mxfp8",
}
MLPS: Final = {
    ("gelu",): "gelu",
    ("relu",): "relu",
    ("silu", "linear"): "swiglu",
    ("gelu", "linear"): "geglu",
}
SIZES: Final = {  # setting -> value of base.yml
    "base_num_decoder_layers": 16,
    "base_emb_dim": 2048,
    "base_num_query_heads": 16,
    "base_num_kv_heads": 16,
    "base_mlp_dim": 7168,
    "head_dim": 128,
    "vocab_size": 32_000,
}
# Share of a GPU's memory that XLA may allocate; without it the pool of 75 % grows as needed, up to all of it
# (jax-ml/jax, docs/gpu_memory_allocation.rst, looked at on 2026-11-28; it did not before 2026).
XLA_SHARE: Final = "XLA_CLIENT_MEM_FRACTION"
MEMORY_SHARE: Final = re.compile(r"\bXLA_(?:PYTHON_)?CLIENT_MEM_FRACTION=[\"']?([\w.]+)")
DECODERS: Final = ("llama2", "mistral", "default")  # whose layers the sizes describe


def read_run(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of a run: those of the file, or of a command and the file that it names."""
    if not IN_TEXT.search(text):
        return flatten(parse_document(text, "yaml", repeated=True))
    started = [
        (words, i) for words in commands(text, given) for i, word in enumerate(words) if PROGRAM.search(word)
    ]
    programs = [str(PROGRAM.search(words[i])[1]) for words, i in started]  # type: ignore[index]  # it matches
    runs = [run for run, program in zip(started, programs, strict=True) if TRAINING.search(program)]
    if not runs:
        raise InputError("MaxText", [f"runs {', '.join(programs) or 'no program'}, which does not train"])
    words, start = runs[int(choose_run([str(i) for i in range(1, len(runs) + 1)], given.recipe)) - 1]
    files = [word for word in words[start + 1 :] if word.endswith((".yml", ".yaml")) and "=" not in word]
    pairs = (word.partition("=") for word in words[start + 1 :])
    own = Settings({name: _plain(value) for name, sign, value in pairs if sign})
    if shares := MEMORY_SHARE.findall(text):
        own[XLA_SHARE] = shares[-1]
    for name in files[:1]:
        file = Path(name)
        found = next((path for path in _places(file, given.folder) if path.is_file()), None)
        if found is not None:
            own = Settings({**flatten(read_file(found)), **own})
        elif file.name != BASE:
            own["source"] = name
    return own


def _places(file: Path, folder: Path | None) -> list[Path]:
    """Return where a file that a script names may be: where the name says, or beside the script."""
    return [] if folder is None else [folder / file, folder / file.name]


def _plain(value: str) -> object:
    """Return a value of a command line as YAML reads it."""
    return (
        flatten(parse_document(f"value: {value}", "yaml"))["value"] if value and "$" not in value else value
    )


def named_model(settings: Settings) -> str:
    """Return the model of the catalogue that is named; empty if sizes describe it."""
    name = str(settings.get(MODEL, "default"))
    if name == "default":
        return ""
    if model := catalogue_name(name):
        return model
    raise unknown_model(MODEL, name)


def read_sizes(settings: Settings) -> Facts:
    """Read a model that is described by its sizes; none if it is named.

    `global_parameter_scale`, a power of two, doubles heads and widths of the MLP first, then the hidden size,
    then the number of layers (configs/types.py, get_individual_scales).
    """
    if not is_off(settings.get(MODEL)) and settings[MODEL] != "default":
        return {}
    decoder = settings.choice("decoder_block", DECODERS, "llama2")
    layers, hidden, heads, kv_heads, ffn, width, vocab = (
        settings.number(name, default=usual) for name, usual in SIZES.items()
    )
    scale = settings.number("global_parameter_scale")
    if scale & (scale - 1):
        problem = f"global_parameter_scale = {scale}: must be a power of 2"
        raise InputError("global_parameter_scale", [problem])
    cycles, more = divmod(scale.bit_length() - 1, 3)
    wider = 2 ** (cycles + (more > 0))
    activations = settings.get("mlp_activations", ["silu", "linear"])
    words = tuple(re.findall(r"\w+", str(activations)))
    if words not in MLPS:
        raise not_allowed("mlp_activations", activations, [" ".join(known) for known in MLPS])
    assert decoder
    return {
        "layers": layers * 2**cycles, "hidden": hidden * 2 ** (cycles + (more > 1)), "heads": heads * wider,
        "kv_heads": kv_heads * wider, "head_dim": width, "ffn": ffn * wider, "vocab": vocab,
        "mlp": MLPS[words], "norm": "rmsnorm", "positions": "rotary", "biases": (), "dropout": False,
        "inner_dropout": False, "tied": settings.is_on("logits_via_embedding"), "qk_norm": None, "norms": 2,
        "causal": True,
    }  # fmt: skip


def _degrees(settings: Settings) -> dict[str, int]:
    """Return the degree of each axis; 0 where the accelerators decide."""
    degrees = {}
    for knob, axes in AXES.items():
        values = [
            value
            for axis in axes
            for net in ("ici", "dcn")
            for name in (f"{net}_{axis}_parallelism",)
            for value in (settings.get(name, AUTO.get(name, 1)),)
        ]
        numbers = [
            int(value) for value in values if str(value).lstrip("-").isdecimal()
        ]  # read_mesh names others
        degrees[knob] = 0 if -1 in numbers else prod(numbers)
    if settings.choice(EXPERTS_IN_ATTENTION, ("fsdp", "context"), "fsdp") == "context":
        degrees["cp"] *= degrees["ep"]
    return degrees


def read_mesh(settings: Settings) -> Facts:
    """Read degrees, and what FSDP shards: without a degree of its own it takes all that a slice has left."""
    allowed = {
        True: (r"-1|[1-9]\d{0,6}", ", or -1"),
        False: (r"[1-9]\d{0,6}", "; data and fsdp alone may be -1"),
    }
    rules = {name: allowed[name.split("_")[1] in ("data", "fsdp")] for name in DEGREES if name in settings}
    problems = [
        f"{name} = {settings[name]}: must be a whole number above 0{further}"
        for name, (pattern, further) in rules.items()
        if not re.fullmatch(pattern, str(settings[name]))
    ]
    raise_problems("mesh", problems)
    degrees = _degrees(settings)
    facts: Facts = {"tp": degrees["tp"], "cp": degrees["cp"], "pp": degrees["pp"]}
    facts |= {"ep": degrees["ep"], "etp": degrees["tp"]} if degrees["ep"] > 1 else {}
    if facts["cp"] > 1:
        kind = settings.choice("context_parallel_strategy", CP_KINDS, "all_gather")
        facts["cp_kind"] = CP_KINDS[kind]
    data = degrees["data"]
    shards = degrees["fsdp"]
    on_gpus = _on_gpus(settings)
    of_experts = degrees["ep"]  # that share the batch
    if settings.get(EXPERTS_IN_ATTENTION) == "context":
        of_experts = 1
    if data and shards:
        facts["dp"] = data * shards * of_experts
    if not shards and on_gpus and str(settings.get("dcn_fsdp_parallelism", 1)) != "-1":
        inside = prod(
            int(value)
            for name in DEGREES
            if name.startswith("ici") and str(value := settings.get(name, AUTO.get(name, 1))) != "-1"
        )
        shards = max(ICI // inside, 1) * settings.number("dcn_fsdp_parallelism")
    sharded = not degrees["fsdp"] or degrees["fsdp"] > 1
    facts["zero"] = 3
    if not sharded:
        facts["zero"] = 1 if settings.is_on("shard_optimizer_over_data") else 0
    if sharded and shards:
        facts["shards"] = shards * of_experts * degrees["cp"]
    elif sharded and data > 1:
        facts["replicas"] = data
    return facts


def _on_gpus(settings: Settings) -> bool:
    """Return whether a run is one on GPUs, where a slice is a node."""
    return str(settings.get("hardware", "tpu")).startswith("gpu")


def write_mesh(facts: Facts) -> Values:
    """Write degrees, inside a slice; a placement is the user's."""
    zero = facts.get("zero", 0)
    replicas = facts.get("replicas", 1)
    if facts["dp"] % replicas or zero == 2:
        return {}
    shards = facts["dp"] // replicas // facts.get("ep", 1) if zero == 3 else 1
    degrees = {
        "tp": facts.get("tp", 1),
        "cp": facts.get("cp", 1),
        "pp": facts.get("pp", 1),
        "ep": facts.get("ep", 1),
    }
    degrees |= {"fsdp": max(shards, 1), "data": max(facts["dp"] // degrees["ep"] // max(shards, 1), 1)}
    names = {f"ici_{AXES[knob][0]}_parallelism": degree for knob, degree in degrees.items() if degree > 1}
    further: dict[str, object] = {"shard_optimizer_over_data": True} if zero == 1 else {}
    kinds = {kind: name for name, kind in CP_KINDS.items()}
    if facts["cp"] > 1 and facts.get("cp_kind") in kinds:
        further["context_parallel_strategy"] = kinds[facts["cp_kind"]]
    return {"dcn_data_parallelism": 1, "ici_fsdp_parallelism": 1, **names, **further}


def read_batch(settings: Settings) -> Facts:
    """Read the micro-batch of a replica [sequences] and the micro-batches of a step.

    Each device has `per_device_batch_size` sequences of a step, which a pipeline cuts into as many
    micro-batches as it has stages, unless told otherwise.
    """
    text = str(settings.get(BATCH, 12))
    degrees = _degrees(settings)
    ranks = prod(max(degrees[knob], 1) for knob in ("tp", "cp", "pp"))
    stages = max(degrees["pp"], 1)
    passes = settings.number("num_pipeline_microbatches", default=stages) if stages > 1 else 1
    try:
        mbs = float(text) * ranks / passes
    except ValueError:
        mbs = 0.0
    if mbs < 1 or mbs != int(mbs):
        what = f"each of {passes} micro-batches" if passes > 1 else "the batch"
        whole = f"{what} of a replica, on {count_of(ranks, 'device')}, has whole sequences"
        problem = f"{BATCH} = {text}: must be a multiple of {passes / ranks:g}, as {whole}"
        raise InputError(BATCH, [problem])
    return {"mbs": int(mbs), "accumulation": passes * settings.number("gradient_accumulation_steps")}


def write_batch(facts: Facts) -> Values:
    """Write the sequences of a device, and the micro-batches of a step."""
    batches = facts["accumulation"]
    steps = 1 if facts["pp"] > 1 else batches
    values: dict[str, Any] = {BATCH: facts["gbs"] / facts["gpus"] / steps}
    return values | (
        {"num_pipeline_microbatches": batches} if facts["pp"] > 1 else {"gradient_accumulation_steps": steps}
    )


def read_pipeline(settings: Settings) -> Facts:
    """Read the schedule; stages that hold layers of several rounds are refused."""
    stages = _degrees(settings)["pp"]
    repeats = str(settings.get("num_pipeline_repeats", -1))
    layers = settings.number("num_layers_per_pipeline_stage")
    if stages > 1 and repeats != "1":
        problem = f"must be 1 with {stages} stages, as circular pipelines are not predicted"
        raise InputError("num_pipeline_repeats", [f"num_pipeline_repeats = {repeats}: {problem}"])
    assert layers
    return {"schedule": "gpipe", "vp": 1} if stages > 1 else {"vp": 1}


def write_pipeline(facts: Facts) -> Values:
    """Write a pipeline without repeats."""
    if facts["pp"] == 1 or facts.get("schedule") != "gpipe" or facts["layers"] % facts["pp"]:
        return {}
    return {"num_pipeline_repeats": 1, "num_layers_per_pipeline_stage": facts["layers"] // facts["pp"]}


class Kept(NamedTuple):
    """Tensors of a layer that are kept for backward, by where."""

    on_device: frozenset[str]
    on_host: frozenset[str]

    @property
    def offload(self) -> bool:
        """Whether activations count as offloaded: all of them, or the layer's input, which always is kept."""
        return LAYER_INPUT in self.on_host or (bool(self.on_host) and self.on_device <= {LAYER_INPUT})

    @property
    def recompute(self) -> str:
        """What is recomputed; projections are needed to start anywhere but at the layer's input."""
        kept = self.on_device | self.on_host
        if not kept.issuperset(QUERIES_KEYS_VALUES):
            return "full"
        attention = [] if "context" in kept else ["attention"]
        mlp = "activation" if kept.issuperset(MLP_INPUTS) else "mlp"
        return "+".join((*attention, "norms", mlp))

    @property
    def left_out(self) -> list[str]:
        """Tensors that are kept although everything else is recomputed, which no choice of a plan has."""
        kept = (self.on_device | self.on_host) - {LAYER_INPUT}
        return sorted(kept) if self.recompute == "full" else []

    @property
    def elsewhere(self) -> list[str]:
        """Tensors that are not where the others are counted."""
        return sorted(self.on_device if self.offload else self.on_host)


def _on_device(kept: tuple[str, ...]) -> Kept:
    """Return tensors that are kept on the device, and the layer's input."""
    return Kept(frozenset({LAYER_INPUT, *kept}), frozenset())


# remat_policy -> what is recomputed, of policies that keep tensors on the device
RECOMPUTED_BY_POLICY: Final = {"none": "none"} | {
    name: _on_device(kept).recompute for name, kept in KEPT.items()
}


def kept_tensors(settings: Settings) -> Kept | None:
    """Return the tensors that a policy keeps; None where it keeps all (`none`)."""
    policy = settings.choice("remat_policy", POLICIES, "full")
    if policy == "none":
        return None
    if policy in OFFLOADED:
        return Kept(frozenset({LAYER_INPUT}), frozenset(OFFLOADED[policy]))
    if policy != "custom":
        return _on_device(KEPT[policy])
    places = {
        name: settings.choice(name, LOCATIONS, "device" if name == LAYER_INPUT else "remat")
        for name in TENSORS
    }
    if places[LAYER_INPUT] == "remat":
        problem = f"{LAYER_INPUT} = remat: must be device or offload, as layers are recomputed from it on"
        raise InputError("remat_policy", [problem])
    device, host = (
        frozenset(part for name, at in places.items() if at == where for part in WHOLE.get(name, (name,)))
        for where in LOCATIONS[1:]
    )
    return Kept(device, host)


def read_recompute(settings: Settings) -> Facts:
    """Read what is recomputed, and what is kept in the host's memory."""
    on_host = ["optimizer"] if settings.is_on(OPTIMIZER_ON_HOST) else []
    kept = kept_tensors(settings)
    if kept is None:
        return {"recompute": "none", "offload": "+".join(on_host) or "none"}
    on_host += ["activations"] if kept.offload else []
    return {"recompute": normalized_recompute(kept.recompute), "offload": "+".join(on_host) or "none"}


def write_recompute(facts: Facts) -> Values:
    """Write what is recomputed, and what is kept in the host's memory."""
    on_host = set(split_choice(facts.get("offload", "none")))
    if facts.get("recompute_every", 1) > 1 or not on_host <= {"none", "optimizer", "activations"}:
        return {}
    optimizer = {OPTIMIZER_ON_HOST: True} if "optimizer" in on_host else {}
    names = {normalized_recompute(what): name for name, what in reversed(RECOMPUTED_BY_POLICY.items())}
    policy = names.get(facts["recompute"])
    if policy is None:
        return {}
    if "activations" not in on_host:
        return optimizer | {"remat_policy": policy}
    if policy == "none":
        return {}
    tensors = dict.fromkeys((LAYER_INPUT, *KEPT[policy]), "offload")
    return optimizer | {"remat_policy": "custom", **tensors}


def read_numbers(settings: Settings) -> Facts:
    """Read precision and optimizer."""
    dtypes = ("bfloat16", "float32")
    dtype, weights = (
        settings.choice(name, dtypes, usual)
        for name, usual in (("dtype", "bfloat16"), ("weight_dtype", "float32"))
    )
    kind = settings.choice("opt_type", ("adamw", "adam_pax", "sgd", "muon"), "adamw")
    facts: Facts = {"optimizer_kind": "adam" if kind.startswith("adam") else kind}
    quantized = settings.get("quantization")
    if not is_off(quantized):
        return facts | {"precision": PRECISIONS[settings.choice("quantization", PRECISIONS)]}
    if dtype == "float32":
        return facts | {"precision": "fp32"}
    if weights == "bfloat16":
        facts["optimizer_kind"] = "adam-bf16" if facts["optimizer_kind"] == "adam" else kind
        return facts | {"precision": "bf16-pure", "grad_dtype": "16-bit"}
    return (
        facts
        | {"precision": "bf16"}
        | ({"grad_dtype": "16-bit"} if settings.get("grad_dtype") == "bfloat16" else {})
    )


def write_numbers(facts: Facts) -> Values:
    """Write precision and optimizer."""
    precision = facts["precision"]
    kind = facts["optimizer_kind"]
    names = {value: name for name, value in reversed(PRECISIONS.items())}
    values: dict[str, Any] = {"opt_type": {"adam": "adamw", "adam-bf16": "adamw"}.get(kind, kind)}
    if precision in names:
        return values | {"quantization": names[precision]}
    pure = {"weight_dtype": "bfloat16"} if precision == "bf16-pure" else {}
    return values | pure | ({"dtype": "float32"} if precision == "fp32" else {})


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of the slices of a run, and of tensors that it keeps."""
    automatic = _degrees(settings)["data"] == 0 and str(settings.get("dcn_data_parallelism", -1)) == "-1"
    notes = [f"automatic axes: FSDP inside nodes of {ICI} accelerators, data parallelism between them"]
    found = notes if automatic and _on_gpus(settings) else []
    kept = kept_tensors(settings)
    if kept is None:
        return tuple(found)
    if kept.left_out:
        found.append(
            f"{', '.join(kept.left_out)}: counted as recomputed with all else of a layer, though kept"
        )
    if kept.elsewhere:
        where = "in the host's memory" if kept.offload else "on the device"
        found.append(f"{', '.join(kept.elsewhere)}: counted {where}, as what else is kept")
    return tuple(found)


def figures(settings: Settings) -> Values:
    """Return figures of memory that settings state: what a policy keeps, and the share of a GPU for XLA."""
    figures: dict[str, object] = {}
    kept = kept_tensors(settings)
    if kept is not None and "out_proj" in kept.on_device | kept.on_host:
        figures["memory.kept_beside"] = "projection"
    if settings.is_on(XLA_SHARE) and _on_gpus(settings):
        figures["memory.pool_share"] = _memory_share(str(settings[XLA_SHARE]))
    return figures


def _memory_share(text: str) -> float:
    """Return the share of a GPU's memory that XLA may allocate; above 1 it is memory of the host as well."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not share > 0:
        raise InputError(XLA_SHARE, [f"{XLA_SHARE} = {text!r}: must be a number above 0, such as 0.85"])
    return min(share, 1.0)


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "sizes": read_sizes,
        "mesh": read_mesh,
        "batch": read_batch,
        "pipeline": read_pipeline,
        "recompute": read_recompute,
        "numbers": read_numbers,
    },
    write={
        "mesh": write_mesh,
        "batch": write_batch,
        "pipeline": write_pipeline,
        "recompute": write_recompute,
        "numbers": write_numbers,
    },
)
