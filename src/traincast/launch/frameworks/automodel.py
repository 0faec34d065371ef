"""Conversions of NeMo AutoModel's recipes; their table is `tables/automodel.toml`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from traincast.catalog import load_model, repository
from traincast.core import ErrorCollector, InputError
from traincast.launch.frameworks.adapters import module_names, probability, targets_of
from traincast.launch.frameworks.checkpoints import model_called
from traincast.launch.frameworks.dialects import filled_in
from traincast.launch.frameworks.huggingface import LAYERS
from traincast.launch.settings.canonical import FULL_LENGTH
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.format import Writing
from traincast.launch.settings.settings import Settings, not_allowed
from traincast.launch.settings.table import Conversions, Values
from traincast.model import JOINED_TARGETS, LINEAR_ATTENTIONS, TARGET_GROUPS, Adapters

MODEL: Final = "model.pretrained_model_name_or_path"
NAMES_OF_MODEL: Final = (MODEL, "model.config.pretrained_model_name_or_path", "model.config")
LOCAL, GLOBAL = (f"step_scheduler.{name}_batch_size" for name in ("local", "global"))
OF_PIPELINE: Final = "distributed.pipeline.pp_microbatch_size"
PACKED: Final = "packed_sequence.packed_sequence_size"
NEAT_PACKED: Final = "packed_sequence.pack_size"  # of vision models: recipes/_typed_config.py
LENGTHS: Final = (
    *(PACKED, NEAT_PACKED, "dataset.seq_length", "dataset.seq_len", "dataset.max_length"),
    "dataloader.collate_fn.max_length",
)
IMAGE_PIXELS: Final = "processor.max_pixels"
USUAL_BATCH: Final = 32  # components/training/step_scheduler.py, StepSchedulerConfig
TARGETED: Final = "peft.target_modules"
EXCLUDED: Final = "peft.exclude_modules"
ALL_LINEAR: Final = "peft.match_all_linear"
USUAL_TARGETS: Final = "*_proj"  # components/_peft/module_matcher.py, ModuleMatcher
LAYER: Final = 11  # a number of a layer, of which patterns are tried besides the first
EXPERTS: Final = f"model.layers.{LAYER}.mlp.experts"  # stacked, which are no linear layer
PROJECTIONS: Final = ("in_proj", "out_proj")  # of linear attention
PARTS: Final = {"attention": "self_attn", "mlp": "mlp"}  # group of layers -> where they stand in a layer
OF_MOST: Final = ("q", "k", "v", "proj", *TARGET_GROUPS["mlp"])  # what layers of most models have
RANK: Final = 8  # components/_peft/lora.py, PeftConfig
DTYPES: Final = {"auto": "bf16", "bfloat16": "bf16", "bf16": "bf16", "float32": "fp32", "fp32": "fp32"}
STRATEGIES: Final = ("fsdp2", "ddp", "megatron_fsdp")
SCHEDULES: Final = {"1f1b": ("1f1b", 1), "interleaved1f1b": ("1f1b", 2), "gpipe": ("gpipe", 1)}
PER_STAGE: Final = "distributed.pipeline.layers_per_stage"
ROUNDED: Final = "distributed.pipeline.round_virtual_stages_to_pp_multiple"
RESHARD, RESHARD_EXPERTS = (f"distributed.{part}reshard_after_forward" for part in ("", "moe."))
FREEZING: Final = "freeze_config."
FROZEN_TOWER: Final = "frozen_tower"  # our name of what freezes the vision tower, which texts of others lack
NO_FREEZING: Final = f"{FREEZING}freeze_embeddings"  # of recipes of 0.5; no release has frozen them
FP8: Final = {"tensorwise": "fp8-current", "rowwise": "fp8-rowwise"}  # components/quantization/fp8.py
# components/models/common/utils.py, TEFp8Config
TE_RECIPES: Final = {"current": "fp8-current", "block": "fp8-block", "mxfp8": "mxfp8"}
TE_FP8: Final = "model.backend.te_fp8"
FUSED_LOSS: Final = "FusedLinearCrossEntropy"
EAGER: Final = "huggingface-eager"
RECIPE: Final = "TrainFinetuneRecipeForNextTokenPrediction"


def named_model(settings: Settings) -> str:
    """Return the model whose checkpoint or configuration a recipe names; empty if it names none."""
    name = next((name for name in NAMES_OF_MODEL if isinstance(settings.get(name), str)), "")
    return model_called(name, str(settings[name])) if name else ""


def read_recipe(text: str) -> Settings:
    """Read a recipe; without a word on its vision tower a section on freezing freezes that.

    Lists of modules that are frozen or not, which are not read, take the place of this default
    (components/utils/model_utils.py, apply_parameter_freezing).
    """
    settings = filled_in(text)
    options = {name.removeprefix(FREEZING) for name in settings if name.startswith(FREEZING)}
    if options:
        has_lists = any(option.startswith(("freeze_modules", "unfreeze_modules")) for option in options)
        stated = settings.pop(f"{FREEZING}freeze_vision_tower", None)
        settings[FROZEN_TOWER] = not has_lists if stated is None else stated
    return settings


def spell(name: str) -> str:
    """Return a setting's name as recipes have it."""
    return f"{FREEZING}freeze_vision_tower" if name == FROZEN_TOWER else name


def read_machines(settings: Settings) -> Facts:
    """Read the accelerators of a Slurm job."""
    nodes = settings.count("slurm.nodes")
    tasks = settings.count("slurm.ntasks_per_node")
    return {"gpus": nodes * tasks} if nodes and tasks else {}


def write_machines(facts: Facts) -> Values:
    """Write nothing: a launcher is given the accelerators."""
    return {}


def read_training(settings: Settings) -> Facts:
    """Read the adapters that are trained, how their base is held, and whether a vision tower is frozen."""
    facts: Facts = {"frozen_tower": True} if settings.is_on(FROZEN_TOWER) else {}
    if pixels := settings.count(IMAGE_PIXELS):
        facts["image_pixels"] = pixels
    if not any(name.startswith("peft.") for name in settings):
        return facts
    named = settings.get(TARGETED) or ([] if settings.any_on(ALL_LINEAR, EXCLUDED) else USUAL_TARGETS)
    patterns = [named] if isinstance(named, str) else [str(pattern) for pattern in named]
    reaches_experts = _matches(patterns, EXPERTS)
    targets = _targets(settings, patterns)
    if reaches_experts and not {"mlp", *TARGET_GROUPS["mlp"]} & set(targets):
        written = ", ".join(patterns)
        raise InputError("peft", [f"{TARGETED} = {written}: adapters of experts alone are not predicted"])
    base = "int8" if settings.is_on("quantization.load_in_8bit") else "16-bit"
    if settings.is_on("quantization.load_in_4bit"):
        base = "nf4" if settings.is_on("quantization.bnb_4bit_use_double_quant") else "nf4-single"
    adapters = Adapters(
        rank=settings.number("peft.dim", default=RANK),
        targets=targets,
        base=base,  # type: ignore[arg-type]
        dropout=probability(settings, "peft.dropout"),
        experts="each" if reaches_experts else "none",
    )
    return facts | {"adapters": adapters}


def _targets(settings: Settings, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the linear layers that patterns name, or all of them; those of stacked experts are none."""
    if "*" in patterns or settings.any_on(ALL_LINEAR, EXCLUDED):
        return _all_linear(settings)
    of_layers = [pattern for pattern in patterns if not _matches([pattern], EXPERTS)]
    if of_layers == [USUAL_TARGETS]:
        return ("attention", "mlp")
    layers = [name for target, name in LAYERS.items() if target not in (*JOINED_TARGETS, "head")]
    modules = [
        name
        for pattern in of_layers
        for name in ([one for one in layers if fnmatchcase(one, pattern.rpartition(".")[2])] or [pattern])
    ]
    return targets_of(TARGETED, modules)


def _all_linear(settings: Settings) -> tuple[str, ...]:
    """Return the targets of adapters of all linear layers, the head's too, but for those that are excluded.

    A pattern without effect on a layer of the language model excludes nothing (components/_peft/
    module_matcher.py, ModuleMatcher).
    """
    written = settings.get(EXCLUDED) or []
    patterns = [written] if isinstance(written, str) else [str(pattern) for pattern in written]
    for pattern in patterns:
        if any(fnmatchcase(f"model.layers.{LAYER}.mixer.{name}", pattern) for name in PROJECTIONS):
            _require_no_mixers(settings, pattern)
    targets: list[str] = []
    for group, part in PARTS.items():
        kept = [name for name in TARGET_GROUPS[group] if not _is_excluded(patterns, f"{part}.{LAYERS[name]}")]
        if len(kept) == len(TARGET_GROUPS[group]):
            targets.append(group)
        else:
            targets += [name for name in kept if name in OF_MOST]
    if not _matches(patterns, LAYERS["head"]):
        targets.append("head")
    return tuple(targets)


def _is_excluded(patterns: Sequence[str], layer: str) -> bool:
    """Return whether patterns exclude a linear layer of every layer; refuse those of some layers."""
    found = {_matches(patterns, f"model.layers.{index}.{layer}") for index in (0, LAYER)}
    if len(found) > 1:
        written = ", ".join(patterns)
        raise InputError("peft", [f"{EXCLUDED} = {written}: adapters of some layers alone are not predicted"])
    return found.pop()


def _matches(patterns: Sequence[str], layer: str) -> bool:
    """Return whether one of the patterns is that of a name."""
    return any(fnmatchcase(layer, pattern) for pattern in patterns)


def _require_no_mixers(settings: Settings, pattern: str) -> None:
    """Refuse a pattern that excludes a projection of linear attention where the model may have any."""
    named = ErrorCollector("").catch(named_model, settings)
    if not named or any(getattr(load_model(named), part) is not None for part in LINEAR_ATTENTIONS):
        problem = f"{EXCLUDED} = {pattern}: adapters of one projection of linear attention are not predicted"
        raise InputError("peft", [problem])


def write_training(facts: Facts) -> Values:
    """Write the adapters that are trained, where each layer has a name of its own."""
    adapters: Adapters | None = facts.get("adapters")
    modules = module_names(adapters, LAYERS) if adapters else None
    if adapters is None or modules is None or adapters.base == "operand":
        return {}
    packed = {"nf4": {"quantization.load_in_4bit": True, "quantization.bnb_4bit_use_double_quant": True}}
    packed["nf4-single"] = {"quantization.load_in_4bit": True}
    packed["int8"] = {"quantization.load_in_8bit": True}
    return {
        "peft._target_": "nemo_automodel.components._peft.lora.PeftConfig",
        "peft.dim": adapters.rank,
        "peft.alpha": 2 * adapters.rank,
        "peft.target_modules": [f"*{module}" for module in modules],
        "peft.dropout": 0.05 if adapters.dropout else 0.0,
        **packed.get(adapters.base, {}),
    }


def read_batch(settings: Settings) -> Facts:
    """Read the global batch, and the micro-batch of a rank, or of its pipeline [sequences]."""
    rows = settings.number(LOCAL)
    if settings.number("distributed.pp_size") > 1:
        rows = settings.number(OF_PIPELINE)
    return {"mbs": rows, "gbs": settings.number(GLOBAL, default=USUAL_BATCH)}


def write_batch(facts: Facts) -> Values:
    """Write the global batch, and that of a rank, which a pipeline splits into micro-batches."""
    if facts["pp"] == 1:
        return {LOCAL: facts["mbs"], GLOBAL: facts["gbs"]}
    return {LOCAL: max(facts["gbs"] // facts["dp"], 1), GLOBAL: facts["gbs"], OF_PIPELINE: facts["mbs"]}


def read_length(settings: Settings) -> Facts:
    """Read the sequence length [tokens], where a recipe states it."""
    length = next((size for name in LENGTHS if (size := settings.count(name))), 0)
    return {"seq": length} if length else {}


def write_length(facts: Facts) -> Values:
    """Write the sequence length."""
    return {PACKED: facts["seq"]}


def read_numbers(settings: Settings) -> Facts:
    """Read precision and optimizer: what FSDP shards is held as it is loaded, and products are in bf16."""
    name = "model.dtype" if settings.get("model.dtype") is not None else "model.torch_dtype"
    word = str(settings.get(name) or "auto").lower().removeprefix("torch.")
    if word not in DTYPES:
        raise not_allowed(name, settings[name], DTYPES)
    narrow = {
        "fp8.enabled": FP8[settings.choice("fp8.recipe_name", tuple(FP8), "tensorwise")],
        TE_FP8: TE_RECIPES[settings.choice(f"{TE_FP8}.recipe", tuple(TE_RECIPES), "current")],
    }
    has_te = any(name.startswith(f"{TE_FP8}.") for name in settings)
    stated = [name for name in narrow if settings.is_on(name) or (has_te and name == TE_FP8)]
    if DTYPES[word] == "fp32":
        precision = narrow[stated[0]] if stated else "bf16"
        return {"precision": precision, "optimizer_kind": "adam", "grad_dtype": "usual"}
    if stated:
        problem = f"{stated[0]}: products in 8 bits beside weights and moments in 16 bits are not predicted"
        raise InputError(stated[0], [problem])
    return {"precision": "bf16-pure", "optimizer_kind": "adam-bf16", "grad_dtype": "16-bit"}


def write_numbers(facts: Facts) -> Values:
    """Write precision and optimizer."""
    dtype = {"bf16": "float32", "bf16-pure": "bfloat16"}.get(facts["precision"])
    return {"optimizer._target_": "torch.optim.AdamW", **({"model.torch_dtype": dtype} if dtype else {})}


def read_data(settings: Settings) -> Facts:
    """Read data parallelism, and what is sharded.

    FSDP2 reshards weights after forward but in a pipeline; models with parallel experts do not by default
    (components/distributed/config.py, MoEParallelizerConfig).
    """
    strategy = settings.choice("distributed.strategy", STRATEGIES, "fsdp2")
    replicas = settings.number("distributed.dp_replicate_size")
    facts: Facts = {}
    if settings.is_on("distributed.dp_size"):
        facts["dp"] = settings.number("distributed.dp_size")
    if strategy == "ddp":
        return facts | {"zero": 0}
    if strategy == "megatron_fsdp":
        return facts | {"zero": settings.number("distributed.zero_dp_strategy", default=3, least=0)}
    usual = settings.number("distributed.pp_size") == 1
    name = RESHARD
    if settings.number("distributed.ep_size") > 1:
        usual = False
        name = RESHARD_EXPERTS
    reshards = usual if settings.get(name) is None else settings.is_on(name)
    return facts | {"zero": 3 if reshards else 2} | ({"replicas": replicas} if replicas > 1 else {})


def write_data(facts: Facts) -> Values:
    """Write data parallelism, and what is sharded."""
    zero = facts.get("zero", 3)
    replicas = facts.get("replicas", 1)
    values: dict[str, Any] = {"distributed.dp_size": facts["dp"]}
    if zero == 0:
        return {"distributed.strategy": "ddp", **values}
    values["distributed.strategy"] = "fsdp2"
    values |= {"distributed.dp_replicate_size": replicas} if replicas > 1 else {}
    name = RESHARD_EXPERTS if facts.get("ep", 1) > 1 else RESHARD
    return values | {name: zero == 3}


def read_pipeline(settings: Settings) -> Facts:
    """Read the schedule of a pipeline, and the chunks of a rank."""
    if settings.number("distributed.pp_size") == 1:
        return {"vp": 1}
    word = str(settings.get("distributed.pipeline.pp_schedule") or "1f1b").lower()
    if word not in SCHEDULES:
        raise not_allowed("distributed.pipeline.pp_schedule", word, SCHEDULES)
    schedule, chunks = SCHEDULES[word]
    if per_stage := settings.count(PER_STAGE):
        chunks = _chunks(settings, per_stage)
    return {"schedule": schedule, "vp": chunks}


def _chunks(settings: Settings, per_stage: int) -> int:
    """Return the chunks of a rank for so many layers of a stage (pipelining/functional.py)."""
    pp = settings.number("distributed.pp_size")
    named = ErrorCollector("").catch(named_model, settings)
    if not named:
        problem = (
            f"{PER_STAGE} = {per_stage}: the chunks of a rank follow from the layers of the model; give `vp`"
        )
        raise InputError(PER_STAGE, [problem])
    stages = -(-load_model(named).layers // per_stage)
    if rest := stages % pp:
        to = settings.choice(ROUNDED, ("up", "down"), "none")
        stages += pp - rest if to == "up" else -rest
    return max(stages // pp, 1)


def write_pipeline(facts: Facts) -> Values:
    """Write the schedule of a pipeline."""
    found = (word for word, known in SCHEDULES.items() if known == (facts.get("schedule"), facts["vp"]))
    word = next(found, "")
    return {"distributed.pipeline.pp_schedule": word} if word and facts["pp"] > 1 else {}


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: defaults, documents, and the kernels of transformers' models."""
    usual = [
        f"{name} {value}"
        for name, value in ((LOCAL, 1), (GLOBAL, USUAL_BATCH), ("distributed.strategy", "fsdp2"))
        if not settings.is_on(name)
    ]
    notes = [f"{', '.join(usual)}: defaults of NeMo AutoModel, not set in the file"] if usual else []
    if not settings.any_on("model.torch_dtype", "model.dtype"):
        notes.append("the model is loaded in bf16 and trained so, the default of torch_dtype")
    if settings.is_on(NO_FREEZING):
        notes.append(f"{NO_FREEZING} has no effect: nemo-automodel 0.7.0 has no such option")
    if settings.number("distributed.pp_size") > 1:
        notes.append(
            "a pipeline passes all micro-batches of a step at once; AutoModel fills it for each local batch"
        )
    notes.append("kernels are those of transformers' models; AutoModel's own may be faster (model.backend)")
    return (*notes, FULL_LENGTH[settings.any_on(PACKED, NEAT_PACKED)])


def stack(settings: Settings) -> str:
    """Return the software stack: the loss fused into the head, or not."""
    is_fused = FUSED_LOSS in str(settings.get("loss_fn._target_"))
    return "huggingface-fused-loss" if is_fused else EAGER


def required_settings(writing: Writing) -> Values:
    """Return the recipe, the model's checkpoint, and what a recipe requires besides."""
    return {
        "recipe": RECIPE,
        "model._target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
        MODEL: repository(writing.name) or writing.name,
        "dataset._target_": "nemo_automodel.components.datasets.llm.hellaswag.HellaSwag",
        "dataset.path_or_dataset": "rowan/hellaswag",
        "optimizer.lr": 1e-5,
    }


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "machines": read_machines,
        "training": read_training,
        "batch": read_batch,
        "length": read_length,
        "numbers": read_numbers,
        "data": read_data,
        "pipeline": read_pipeline,
    },
    write={
        "machines": write_machines,
        "training": write_training,
        "batch": write_batch,
        "length": write_length,
        "numbers": write_numbers,
        "data": write_data,
        "pipeline": write_pipeline,
    },
)
