"""Conversions of torchtitan's settings that depend on each other; its table is `tables/torchtitan.toml`."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from traincast.catalog import Stack, load_model
from traincast.core import VIRTUAL_STAGES, InputError, ScheduleName
from traincast.launch.frameworks.checkpoints import unknown_model
from traincast.launch.settings.canonical import LEFT_OVER, model_facts
from traincast.launch.settings.defaults import parser_defaults
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.format import Writing
from traincast.launch.settings.settings import Settings, not_allowed, whole_number
from traincast.launch.settings.table import Conversions, Values, load_document
from traincast.launch.settings.text_formats import TEXT_FORMATS

FLAVOURS: Final[Mapping[str, Mapping[str, str]]] = {
    **load_document("torchtitan")["flavours"],
    **load_document("torchtitan")["flavours_until_2025"],
}


def _by_name_and_flavour(flavours: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], str]:
    """Return the models of the catalogue by their name and flavour in torchtitan."""
    return {
        (name, flavour): model for name, of_name in flavours.items() for flavour, model in of_name.items()
    }


MODELS: Final = _by_name_and_flavour(FLAVOURS)  # by the name of the module, which is written
# Those that are read: by the name of the ModelSpec as well, where that is another.
KNOWN_MODELS: Final = MODELS | _by_name_and_flavour(load_document("torchtitan")["flavours_by_spec"])
OF_OTHERS: Final = {  # flavours of models that the catalogue does not have
    flavour
    for flavours in load_document("torchtitan")["flavours_of_other_models"].values()
    for flavour in flavours.split()
}
UNTIL_2025: Final = frozenset(load_document("torchtitan")["flavours_until_2025"])
_KNOWN: Final = "; ".join(
    f"{name} {', '.join(flavours)}" for name, flavours in FLAVOURS.items() if name not in UNTIL_2025
)
WHY: Final = {
    "model": f"no flavour known ({_KNOWN}) has these sizes;"
    " torchtitan stops unless one is registered by this name"
}
DEGREE_SETTINGS: Final[Mapping[str, str]] = {  # column of a table of runs -> name of the degree's setting
    "tp": "tensor_parallel_degree",
    "cp": "context_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "ep": "expert_parallel_degree",
    "replicate": "data_parallel_replicate_degree",
    "shard": "data_parallel_shard_degree",
}
INTERLEAVED: Final = "Interleaved1F1B"
SCHEDULE_NAMES: Final[Mapping[str, ScheduleName]] = {  # of torchtitan -> schedule
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipe-v",
    INTERLEAVED: "1f1b",
}
RESHARD_POLICIES: Final = {2: "never", 3: "always"}  # by ZeRO stage
PARALLELISM: Final = "parallelism."
REPLICATE, SHARD = (f"{PARALLELISM}{DEGREE_SETTINGS[degree]}" for degree in ("replicate", "shard"))
PP, CP, TP, EP = (f"{PARALLELISM}{DEGREE_SETTINGS[degree]}" for degree in ("pp", "cp", "tp", "ep"))
EXPERT_TP: Final = f"{PARALLELISM}expert_tensor_parallel_degree"  # in the TOML of 2025
RESHARD: Final = f"{PARALLELISM}fsdp_reshard_after_forward"
MICROBATCH: Final = f"{PARALLELISM}pipeline_parallel_microbatch_size"
LOSS_CHUNKS: Final = "loss.num_chunks"  # of the wrapper of the loss, where a configuration has it
# components/loss.py, GradAccumulator: the gradient of the last hidden state in fp32, 4 hidden / vocabulary
# for each logit: 0.13 (Llama 3 8B) to 0.22 (DeepSeek-V3) [byte]
GRADIENT_BUFFER: Final = 0.15
USUAL_CHUNKS: Final = 8  # default of the wrapper
LOCAL_BATCH, GLOBAL_BATCH, SEQ = (
    f"training.{name}" for name in ("local_batch_size", "global_batch_size", "seq_len")
)
CONTEXT, TOKENS_OF_MICROBATCH = (
    f"training.{name}" for name in ("max_context_length", "num_tokens_per_microbatch_per_dp_rank")
)
IN_TOKENS: Final = {  # setting -> that which counts sequences
    TOKENS_OF_MICROBATCH: LOCAL_BATCH,
    "training.num_tokens_per_dp_rank": LOCAL_BATCH,
    "training.num_tokens_per_train_step": GLOBAL_BATCH,
    "training.num_tokens_per_step": GLOBAL_BATCH,
}
STATED: Final = (  # settings with defaults that the prediction depends on most, and their older names
    (LOCAL_BATCH, "training.batch_size", MICROBATCH),
    (SEQ,),
    (RESHARD,),
    ("compile.enable", "training.compile"),
)
SCHEDULE: Final = f"{PARALLELISM}pipeline_parallel_schedule"
LAYERS_PER_STAGE: Final = f"{PARALLELISM}pipeline_parallel_layers_per_stage"
MODULES: Final = f"{PARALLELISM}module_fqns_per_model_part"
OLD_MODULES: Final = f"{PARALLELISM}pipeline_parallel_module_fqns_per_model_part"
# Switches of torchtitan before converters, until 2024.
OLD_FLOAT8: Final = ("float8.enable_float8_linear", "training.enable_float8_linear")
SEQUENCE_PARALLEL: Final = f"{PARALLELISM}enable_sequence_parallel"
HEADS: Final = {"torchtitan-toml": "output", "torchtitan": "lm_head"}  # the output projection, by format
AC_MODE = "activation_checkpoint.mode"
AC_OPTION = "activation_checkpoint.selective_ac_option"
# Models of CosSinRoPE (torchtitan 0.3.0, models/*/__init__.py).
ROTATE_HALVES: Final = ("qwen3", "gpt_oss", "gpt-oss")
EAGER: Final = "torchtitan-eager"
OF_TOML: Final = "torchtitan-2025"  # compiled, of the releases that read TOML, whose loss makes all logits


@cache
def _flavour_facts(model: str) -> Facts:
    """Return the facts of a catalogue model as torchtitan builds it: no MTP layers, any sequence length."""
    facts = model_facts(load_model(model)) | {"mtp": 0}
    del facts["seq"]
    return facts


def write_model(facts: Facts) -> Values:
    """Write name and flavour of the model with these facts, whatever its sequence length and MTP layers."""
    without_mtp = facts | {"mtp": 0}
    for (name, flavour), model in MODELS.items():
        is_gone = name in UNTIL_2025 and facts["format"] == "torchtitan"
        if not is_gone and _flavour_facts(model).items() <= without_mtp.items():
            return {"model.name": name, "model.flavor": flavour}
    return {}


def read_model(settings: Settings) -> Facts:
    """Read the facts of a model by name and flavour; by flavour only where one model has it."""
    name = str(settings.get("model.name", ""))
    flavour = str(settings.get("model.flavor", ""))
    models = {model for known, model in KNOWN_MODELS.items() if known == (name or known[0], flavour)}
    is_one = len(models) == 1 and (bool(name) or flavour not in OF_OTHERS)
    return _flavour_facts(models.pop()).copy() if is_one else {}


def named_model(settings: Settings) -> str:
    """Return no model, as the flavour gives its sizes; refuse a flavour of unknown sizes by name."""
    name = str(settings.get("model.name", ""))
    flavour = str(settings.get("model.flavor", ""))
    if flavour and not read_model(settings):
        raise unknown_model("model.flavor", f"{name} {flavour}".strip())
    return ""


def write_data(facts: Facts) -> Values:
    """Write replicate and shard degrees, and whether weights are resharded after forward."""
    zero = facts.get("zero", 0)
    replicate = facts["dp"] if zero == 0 else facts.get("replicas", 1)
    if facts["dp"] % replicate:
        return {}
    degrees = {REPLICATE: replicate, SHARD: facts["dp"] // replicate}
    return degrees | ({RESHARD: RESHARD_POLICIES[zero]} if zero in RESHARD_POLICIES else {})


def read_data(settings: Settings) -> Facts:
    """Read data parallelism and what is sharded: by default weights stay gathered with a pipeline."""
    replicate = settings.size(REPLICATE, 1)
    policy = settings.choice(RESHARD, ("default", "always", "never"), "default")
    if policy == "default":
        policy = "never" if settings.size(PP, 1) > 1 else "always"
    zero = 2 if policy == "never" else 3
    facts: Facts = {LEFT_OVER: True} if replicate > 1 else {}
    if str(settings.get(SHARD, -1)) != "-1":
        facts = {"dp": replicate * settings.size(SHARD, 1)}
        zero = zero if settings.size(SHARD, 1) * settings.size(CP, 1) > 1 else 0
    return facts | {"zero": zero} | ({"replicas": replicate} if replicate > 1 and zero else {})


def read_sharded_data(settings: Settings) -> Facts:
    """Read data parallelism since 2026: FSDP wraps even one rank (models/llama3/parallelize.py)."""
    facts = read_data(settings)
    alone = settings.size(REPLICATE, 1) * settings.size(SHARD, 0) * settings.size(CP, 1) == 1
    if alone and RESHARD in settings:
        facts |= {"zero": 2 if settings[RESHARD] == "never" else 3}
    return facts


write_sharded_data = write_data


def write_experts(facts: Facts) -> Values:
    """Write expert parallelism; without it torchtitan shards the width of experts over tensor ranks."""
    return {EP: facts["ep"]} if facts.get("ep", 1) > 1 else {}


def read_experts(settings: Settings) -> Facts:
    """Read how experts are sharded: by expert, else over tensor ranks as the rest of the model.

    torchtitan 0.3.0, models/common/moe_sharding.py: set_moe_sharding_config.
    """
    ep = settings.size(EP, 1)
    return {"ep": ep, "etp": settings.size(TP, 1) if ep == 1 else 1}


def write_experts_of_2025(facts: Facts) -> Values:
    """Write expert parallelism, and tensor parallelism inside of experts where there are both."""
    etp = facts.get("etp", 1)
    both = facts.get("ep", 1) > 1 and etp > 1
    return {**write_experts(facts), **({EXPERT_TP: etp} if both else {})}


def read_experts_of_2025(settings: Settings) -> Facts:
    """Read how experts are sharded: by expert and, where stated, over tensor ranks; else over tensor ranks.

    pytorch/torchtitan f541d91, models/llama4/infra/parallelize.py: apply_moe_ep_tp.
    """
    facts = read_experts(settings)
    return facts if facts["ep"] == 1 else facts | {"etp": settings.size(EXPERT_TP, 1)}


def in_sequences(settings: Settings) -> Settings:
    """Return settings with sequences in place of tokens, which torchtitan counts since August 2026."""
    settings = Settings(settings)
    length = settings.pop(CONTEXT, settings.get(SEQ))
    if not (isinstance(length, int) and length > 0):
        return settings
    settings[SEQ] = length
    pipeline = settings.number(PP, default=1) > 1
    for name, counted in IN_TOKENS.items():
        tokens = settings.pop(name, -1)
        if isinstance(tokens, int) and tokens > 0:
            of_stage = pipeline and name == TOKENS_OF_MICROBATCH
            settings[MICROBATCH if of_stage else counted] = max(tokens // length, 1)
    return settings


def parse_toml(text: str) -> Settings:
    """Read the settings of a TOML file."""
    return in_sequences(TEXT_FORMATS[".toml"].read(text))


def write_batch(facts: Facts) -> Values:
    """Write the batch of a rank; with a pipeline that of all its micro-batches."""
    pipeline = facts["pp"] > 1
    return {
        LOCAL_BATCH: max(facts["gbs"] // facts["dp"], 1) if pipeline else facts["mbs"],
        GLOBAL_BATCH: facts["gbs"],
        SEQ: facts["seq"],
        **({MICROBATCH: facts["mbs"]} if pipeline else {}),
    }


def read_batch(settings: Settings) -> Facts:
    """Read micro-batch, batch and sequence length."""
    local = settings.size(LOCAL_BATCH, settings.size("training.batch_size", 8))
    mbs = settings.size(MICROBATCH, 1) if settings.size(PP, 1) > 1 else local
    gbs = settings.size(GLOBAL_BATCH, 0)
    batch: Facts = {"gbs": gbs} if gbs else {"accumulation": max(local // mbs, 1)}
    return {"mbs": mbs, **batch, "seq": settings.size(SEQ, 2048)}


def default_split(layers: int, chunks: int) -> tuple[int, ...]:
    """Return the layers of every chunk as torchtitan splits them: embedding and head count as layers."""
    base, larger = divmod(layers + 2, chunks)
    split = [base + (i < larger) for i in range(chunks)]
    split[0] -= 1
    split[-1] -= 1
    return tuple(split)


def _module_names(chunks: tuple[int, ...], head: str) -> list[list[str]]:
    """Return the module names of every chunk, `head` that of the output projection."""
    names = []
    first = 0
    for layers in chunks:
        names.append([f"layers.{i}" for i in range(first, first + layers)])
        first += layers
    names[0].insert(0, "tok_embeddings")
    names[-1] += ["norm", head]
    return names


def _default_chunks(name: str) -> int:
    """Return the model chunks of a stage with a schedule, where no modules are listed."""
    return 2 if name == INTERLEAVED else VIRTUAL_STAGES[SCHEDULE_NAMES[name]] or 1


def write_pipeline(facts: Facts) -> Values:
    """Write the schedule, and the modules of every chunk where torchtitan would split layers differently."""
    schedule = facts.get("schedule")
    chunks = facts.get("chunks", ())
    names = [name for name, known in SCHEDULE_NAMES.items() if known == schedule]
    if not names or not chunks:
        return {}
    name = names[0] if facts["vp"] == 1 else names[-1]
    if chunks == default_split(facts["layers"], facts["pp"] * _default_chunks(name)):
        return {SCHEDULE: name}
    return {SCHEDULE: name, MODULES: _module_names(chunks, HEADS.get(facts["format"], "output"))}


def read_pipeline(settings: Settings) -> Facts:
    """Read the schedule, the chunks of a rank, and their layers."""
    pp = settings.size(PP, 1)
    if pp == 1:
        return {"vp": 1}
    value = str(settings.get(SCHEDULE, "1F1B"))
    name = next((name for name in SCHEDULE_NAMES if name.lower() == value.lower()), None)
    if name is None:
        raise not_allowed(SCHEDULE, value, SCHEDULE_NAMES)
    facts: Facts = {"schedule": SCHEDULE_NAMES[name], "vp": _default_chunks(name)}
    if modules := settings.get(MODULES) or settings.get(OLD_MODULES):
        chunks = _listed_chunk_layers(modules)
        return facts | {"vp": max(len(chunks) // pp, 1), "chunks": chunks}
    layers = read_model(settings).get("layers")
    layers_per_stage = settings.size(LAYERS_PER_STAGE, 0)
    if layers is None:
        return facts
    if layers_per_stage and name == INTERLEAVED:
        facts["vp"] = max(math.ceil((layers + 2) / layers_per_stage) // pp, 1)
    return facts | {"chunks": default_split(layers, pp * facts["vp"])}


def _listed_chunk_layers(modules: Any) -> tuple[int, ...]:
    """Return the layers of chunks given as lists of module names."""
    if not isinstance(modules, list) or not all(isinstance(names, list) for names in modules):
        raise InputError(MODULES, [f"{MODULES}: must be a list of lists of names"])
    return tuple(sum(str(name).startswith("layers.") for name in names) for names in modules)


def read_precision(settings: Settings) -> Facts:
    """Read the precision from the model converters."""
    converters = _converters(settings)
    if "mx" in converters:
        return {"precision": "mxfp8"}
    if "float8" in converters or settings.any_on(*OLD_FLOAT8):
        names = (f"{section}.recipe_name" for section in ("quantize.linear.float8", "float8"))
        recipe = next((str(settings[name]) for name in names if name in settings), "")
        return {"precision": "fp8-rowwise" if "rowwise" in recipe else "fp8-current"}
    if settings.get("training.dtype") == "bfloat16":
        return {"precision": "bf16-pure"}
    return {"precision": "fp32" if settings.get("training.mixed_precision_param") == "float32" else "bf16"}


def _converters(settings: Settings) -> str:
    """Return the names of the model converters as one text."""
    value = settings.get("model.converters", "")
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: defaults, and that a float8 section that no converter uses changes nothing."""
    return _assumptions(settings, _default_recomputation(settings))


def assumptions_of_program(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of a Python program, which gives a class of recomputation in place of a mode."""
    usual = {"activation_checkpoint": "SelectiveAC"}  # torchtitan 0.3.0, trainer.py, Trainer.Config
    return _assumptions(settings, {name: value for name, value in usual.items() if name not in settings})


def _default_recomputation(settings: Settings) -> Values:
    """Return the defaults of recomputation that a TOML leaves out (f541d91, config/job_config.py)."""
    usual = {AC_MODE: "selective"}
    if settings.get(AC_MODE, "selective") == "selective":
        usual[AC_OPTION] = "2"
    return {name: value for name, value in usual.items() if name not in settings}


def _assumptions(settings: Settings, recomputation: Values) -> tuple[str, ...]:
    """Return what is assumed, with the defaults of recomputation among it."""
    usual = parser_defaults("torchtitan", "trainer")
    absent = [
        f"{names[0]} = {usual[names[0]]}" for names in STATED if not any(name in settings for name in names)
    ]
    absent += [f"{name} = {value}" for name, value in recomputation.items()]
    notes = [f"not set, at torchtitan's default: {', '.join(absent)}"] * bool(absent)
    sections = {name.rpartition(".")[0] for name in settings if "float8" in name and settings.is_on(name)}
    if not sections or "float8" in _converters(settings) or settings.any_on(*OLD_FLOAT8):
        return tuple(notes)
    return (
        *notes,
        *(
            f"[{section}] has no effect: model.converters does not name float8; products are in 16 bits"
            for section in sorted(sections)
        ),
    )


def write_recompute(facts: Facts) -> Values:
    """Write what is recomputed: nothing, all or every n-th layer, or per-op activation checkpointing."""
    mode = facts["recompute"]
    every = facts.get("recompute_every", 1)
    if mode == "full" and every > 1:
        return {AC_MODE: "selective", AC_OPTION: str(every)}
    if mode == "per-op":
        return {AC_MODE: "selective", AC_OPTION: "op"}
    return {AC_MODE: mode} if mode in ("none", "full") else {}


def read_recompute(settings: Settings) -> Facts:
    """Read what is recomputed: by default every second layer."""
    mode = settings.choice(AC_MODE, ("none", "selective", "full"), "selective")
    option = str(settings.get(AC_OPTION, "2"))
    if mode != "selective":
        return {"recompute": mode}
    if option == "op":
        return {"recompute": "per-op"}
    return {"recompute": "full", "recompute_every": int(whole_number(AC_OPTION, option))}


def write_graphs(facts: Facts) -> Values:
    """Disable CUDA graphs where torchtitan has none: with a pipeline or expert parallelism."""
    return {"training.disable_cuda_graphs": True} if facts["pp"] > 1 or facts.get("ep", 1) > 1 else {}


def read_sequence_parallel(settings: Settings) -> Facts:
    """Read whether there is sequence parallelism: by default on."""
    return {"sp": SEQUENCE_PARALLEL not in settings or settings.is_on(SEQUENCE_PARALLEL)}


def stack(settings: Settings) -> str:
    """Return the software stack: compiled or eager, its loss whole or in chunks, halves rotated or pairs."""
    changes = {}
    if not is_compiled(settings) and str(settings.get("model.name", "")).lower().startswith(ROTATE_HALVES):
        changes["kernels"] = "unfused-rotation"
    if not settings.is_on(LOSS_CHUNKS):
        return Stack(whole_loss(settings)).with_given(changes).name
    compiled = str(is_compiled(settings)).lower()
    changes |= {"compiled": compiled, "loss": "chunked"}  # of 0.3
    return Stack(OF_TOML).with_given(changes).name


def whole_loss(settings: Settings) -> str:
    """Return the software stack, compiled or eager, of a loss that makes all logits at once."""
    return OF_TOML if is_compiled(settings) else EAGER


def is_compiled(settings: Settings) -> bool:
    """Return whether the layers are compiled, which takes the component of that name."""
    old_name = "compile.enable" not in settings
    compiled = settings.is_on("training.compile" if old_name else "compile.enable")
    return compiled and "model" in str(settings.get("compile.components", "model"))


def figures(settings: Settings) -> Values:
    """Return figures of memory that settings state: of a loss in another number of chunks than usual."""
    if not settings.is_on(LOSS_CHUNKS) or settings.number(LOSS_CHUNKS) == USUAL_CHUNKS:
        return {}
    logit_bytes = Stack(whole_loss(settings)).assumptions.memory.logit_bytes
    return {"memory.logit_bytes": logit_bytes / settings.number(LOSS_CHUNKS) + GRADIENT_BUFFER}


def default_settings(facts: Facts) -> Values:
    """Return settings that the prediction assumes, and a number of steps."""
    software = facts.get("stack")
    is_eager = software is not None and Stack(software).has_fact("compiled", "false")
    return {"compile.enable": not is_eager, "training.steps": 1000}


def required_settings(writing: Writing) -> Values:
    """Return the model's name, and settings that the prediction assumes, for the TOML."""
    names = {"model.name": writing.name, "model.flavor": writing.name}
    return {**names, **default_settings(writing.facts)}


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "model": read_model,
        "data": read_data,
        "sharded_data": read_sharded_data,
        "experts": read_experts,
        "experts_of_2025": read_experts_of_2025,
        "batch": read_batch,
        "pipeline": read_pipeline,
        "precision": read_precision,
        "recompute": read_recompute,
        "sequence_parallel": read_sequence_parallel,
    },
    write={
        "model": write_model,
        "data": write_data,
        "sharded_data": write_sharded_data,
        "experts": write_experts,
        "experts_of_2025": write_experts_of_2025,
        "batch": write_batch,
        "pipeline": write_pipeline,
        "recompute": write_recompute,
        "graphs": write_graphs,
    },
)
