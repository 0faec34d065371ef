"""Conversions of torchtune's recipes; their table is `tables/torchtune.toml`."""

import re
from collections.abc import Mapping
from typing import Any, Final

from traincast.core import InputError
from traincast.launch.frameworks.adapters import probability, targets_of
from traincast.launch.frameworks.checkpoints import model_called, unknown_model
from traincast.launch.settings.canonical import FULL_LENGTH
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.format import Writing
from traincast.launch.settings.settings import Settings, is_off
from traincast.launch.settings.table import Conversions, Values
from traincast.model import Adapters

COMPILED: Final = "torchtune-2025"  # software stack of compiled models with the loss in chunks
MODEL: Final = "model._component_"
OPTIMIZER = "optimizer._component_"
LOSS = "loss._component_"
SEQ: Final = "tokenizer.max_seq_len"
BUILDER: Final = re.compile(r"(?:(q?lora)_)?(\w+)")
NAME: Final = re.compile(r"(llama|gemma|qwen|mistral)(\d?)(?:_(\d))?_(.+)")
BUILDERS: Final = {  # model of the catalogue -> its builder: torchtune/models
    **{f"llama-2-{size}": f"llama2.llama2_{size}" for size in ("7b", "13b", "70b")},
    **{f"llama-3-{size}": f"llama3.llama3_{size}" for size in ("8b", "70b")},
    **{f"gemma-{size}": f"gemma.gemma_{size}" for size in ("2b", "7b")},
    **{f"gemma-2-{size}": f"gemma2.gemma2_{size}" for size in ("9b", "27b")},
    **{f"llama-3.2-{size}": f"llama3_2.llama3_2_{size}" for size in ("1b", "3b")},
    **{f"qwen2.5-{size}": f"qwen2_5.qwen2_5_{size}_instruct" for size in ("7b", "14b", "32b", "72b")},
    **{f"qwen3-{size}": f"qwen3.qwen3_{size}_instruct" for size in ("4b", "8b", "14b")},
    "llama-3.1-405b": "llama3_1.llama3_1_405b",
    "mistral-7b": "mistral.mistral_7b",
    "qwen2.5-0.5b": "qwen2_5.qwen2_5_0_5b",
    "qwen2.5-1.5b": "qwen2_5.qwen2_5_1_5b_instruct",
    "qwen2.5-3b": "qwen2_5.qwen2_5_3b",
    "qwen3-0.6b": "qwen3.qwen3_0_6b_instruct",
    "qwen3-1.7b": "qwen3.qwen3_1_7b_instruct",
    "qwen3-32b": "qwen3.qwen3_32b",
}
BUILT: Final = {  # builder -> its model, whatever the weights are tuned for
    name.rpartition(".")[2].removesuffix("_instruct"): model for model, name in BUILDERS.items()
}
ATTENTION: Final[Mapping[str, str]] = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "proj": "output_proj"}
MLP: Final = ("gate", "up", "fc2")
RANK: Final = 8  # torchtune/models/*/_model_builders.py
OPTIMIZERS: Final = {  # component -> its kind, and whether moments have the precision of the weights
    "torch.optim.AdamW": ("adam", True),
    "torch.optim.Adam": ("adam", True),
    "bitsandbytes.optim.PagedAdamW": ("adam", False),
    "bitsandbytes.optim.PagedAdamW8bit": ("adam-8bit", False),
    "bitsandbytes.optim.AdamW8bit": ("adam-8bit", False),
}
RESHARD: Final = "fsdp_reshard_after_forward"
SHARD = "data_parallel_shard_dim"
REPLICATE = "data_parallel_replicate_dim"
CHUNKED: Final = ("LinearCrossEntropyLoss", "CEWithChunkedOutputLoss", "DPOLoss")


def named_model(settings: Settings) -> str:
    """Return the model that a builder makes: a name of the catalogue."""
    component = str(settings.get(MODEL, ""))
    builder = BUILDER.fullmatch(component.rpartition(".")[2])
    built = BUILT.get(builder[2].removesuffix("_instruct").removesuffix("_base")) if builder else None
    if built is not None:
        return built
    match = NAME.fullmatch(builder[2]) if builder else None
    if match is None:
        raise unknown_model(MODEL, component)
    family, version, minor, size = match.groups()
    version = f"{version}.{minor}" if minor else version
    joined = f"{family}{version}" if family == "qwen" else "-".join(filter(None, (family, version)))
    return model_called(MODEL, f"{joined}-{size.replace('_', '-')}")


def read_training(settings: Settings) -> Facts:
    """Read what is trained: adapters, their base, a reference model."""
    facts: Facts = {"reference": True} if "DPOLoss" in str(settings.get(LOSS, "")) else {}
    builder = BUILDER.fullmatch(str(settings.get(MODEL, "")).rpartition(".")[2])
    if not builder or not builder[1]:
        return facts
    targets = targets_of("lora_attn_modules", settings.get("model.lora_attn_modules") or [])
    targets += MLP if settings.is_on("model.apply_lora_to_mlp") else ()
    targets += ("head",) if settings.is_on("model.apply_lora_to_output") else ()
    packed = builder[1] == "qlora" or settings.is_on("model.quantize_base")
    adapters = Adapters(
        rank=settings.number("model.lora_rank", default=RANK),
        targets=targets or ("",),
        base="nf4" if packed else "16-bit",  # torchao's NF4: scales of 64 weights in 8 bits
        dropout=probability(settings, "model.lora_dropout"),
        experts="each",
    )
    return facts | {"adapters": adapters}


def write_training(facts: Facts) -> Values:
    """Write the adapters of a builder, or those most like them that there are."""
    adapters: Adapters | None = facts.get("adapters")
    loss = "torchtune.rlhf.loss.DPOLoss" if facts.get("reference") else ""
    values: dict[str, Any] = {LOSS: loss or "torchtune.modules.loss.LinearCrossEntropyLoss"}
    if adapters is None:
        return values
    mlp = set(MLP) <= set(adapters.targets)
    head = "head" in adapters.targets
    attention = [target for target in adapters.targets if target in ATTENTION]
    attention = attention if attention or mlp or head else ["q"]
    dropout = 0.05 if adapters.dropout else 0.0
    return values | {
        "model.lora_attn_modules": [ATTENTION[target] for target in attention],
        "model.apply_lora_to_mlp": mlp,
        "model.apply_lora_to_output": head,
        "model.lora_rank": adapters.rank,
        "model.lora_alpha": 2 * adapters.rank,
        "model.lora_dropout": dropout,
        "model.quantize_base": adapters.base.startswith("nf4"),
    }


def read_batch(settings: Settings) -> Facts:
    """Read micro-batch [sequences], accumulation steps and sequence length; a pair is two sequences."""
    pairs = 2 if "DPOLoss" in str(settings.get(LOSS, "")) else 1
    facts: Facts = {"mbs": settings.number("batch_size") * pairs}
    facts["accumulation"] = settings.number("gradient_accumulation_steps")
    return facts | ({"seq": settings.number(SEQ)} if settings.is_on(SEQ) else {})


def write_batch(facts: Facts) -> Values:
    """Write rows of a micro-batch, accumulation steps and sequence length."""
    pairs = 2 if facts.get("reference") else 1
    rows = {} if facts["mbs"] % pairs else {"batch_size": facts["mbs"] // pairs}
    return {**rows, "gradient_accumulation_steps": facts["accumulation"], SEQ: facts["seq"]}


def read_numbers(settings: Settings) -> Facts:
    """Read precision and optimizer: weights, gradients and moments have one precision."""
    if OPTIMIZER not in settings:
        raise InputError(OPTIMIZER, [f"{OPTIMIZER}: missing; this is no recipe of a training"])
    dtype = settings.choice("dtype", ("bf16", "fp32"), "bf16")
    kind, follows = OPTIMIZERS.get(str(settings[OPTIMIZER]), ("adam", True))
    if dtype == "fp32":
        return {"precision": "fp32", "optimizer_kind": kind}
    kind = "adam-bf16" if kind == "adam" and follows else kind
    return {"precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": kind}


def write_numbers(facts: Facts) -> Values:
    """Write precision and optimizer: AdamW in bf16 in place of what there is not."""
    pure = facts["precision"] != "fp32"
    kind = facts["optimizer_kind"]
    follows = kind == ("adam-bf16" if pure else "adam")
    wanted = ("adam", True) if follows else (kind, False)
    names = (name for name, known in OPTIMIZERS.items() if known == wanted)
    return {"dtype": "bf16" if pure else "fp32", OPTIMIZER: next(names, "torch.optim.AdamW")}


def read_parallelism(settings: Settings) -> Facts:
    """Read degrees, and what FSDP2 shards."""
    tp = settings.number("tensor_parallel_dim")
    cp = settings.number("context_parallel_dim")
    zero = 2 if RESHARD in settings and not settings.is_on(RESHARD) else 3
    facts: Facts = {"tp": tp, "cp": cp, "zero": zero}
    facts |= {"cp_kind": "all-gather"} if cp > 1 else {}
    if tp > 1:
        facts["sp"] = "decoder_only_tp_plan" in str(settings.get("tensor_parallel_plan._component_"))
    replicas = settings.number(REPLICATE)
    if str(settings.get(SHARD, -1)) != "-1":
        facts["dp"] = settings.number(SHARD) * replicas
    return facts | ({"replicas": replicas} if replicas > 1 else {})


def write_parallelism(facts: Facts) -> Values:
    """Write degrees, and what FSDP2 shards."""
    zero = facts.get("zero", 3)
    replicas = facts.get("replicas", 1)
    if facts["dp"] % replicas:
        return {}
    values: dict[str, Any] = {REPLICATE: replicas, SHARD: facts["dp"] // replicas}
    values |= {"tensor_parallel_dim": facts["tp"]} if facts["tp"] > 1 else {}
    if facts["cp"] > 1 and facts.get("cp_kind") == "all-gather":
        values["context_parallel_dim"] = facts["cp"]
    if facts["tp"] > 1:
        values["tensor_parallel_plan._component_"] = "torchtune.models.llama3.base_llama_tp_plan"
    return values | ({RESHARD: False} if zero == 2 else {})


def read_offload(settings: Settings) -> Facts:
    """Read what is offloaded to the host."""
    host = settings.is_on("fsdp_cpu_offload")
    activations = settings.is_on("enable_activation_offloading")
    words = ["optimizer"] * host + ["activations"] * activations + ["weights"] * host
    return {"offload": "+".join(words) or "none"}


def write_offload(facts: Facts) -> Values:
    """Write what is offloaded to the host."""
    words = set(str(facts.get("offload", "none")).split("+"))
    values = {"enable_activation_offloading": "activations" in words}
    return values | ({"fsdp_cpu_offload": True} if {"optimizer", "weights"} <= words else {})


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of documents."""
    return (FULL_LENGTH[settings.is_on("dataset.packed")],)


def stack(settings: Settings) -> str:
    """Return the software stack: compiled or not, the loss in chunks or in one, the optimizer in backward."""
    if settings.is_on("optimizer_in_bwd"):
        return "torchtune-backward-2025"
    if is_off(settings.get("compile")):
        return "torchtune-eager-2025"
    chunked = any(name in str(settings.get(LOSS, "")) for name in CHUNKED)
    return COMPILED if chunked else "torchtune-full-loss-2025"


def required_settings(writing: Writing) -> Values:
    """Return the builder of the model, and what a recipe requires besides."""
    module, _, name = BUILDERS.get(writing.name, writing.name).partition(".")
    prefix = "lora_" if writing.facts.get("adapters") else ""
    compiled = not str(writing.facts.get("stack", "")).startswith("torchtune-eager")
    documents = writing.facts.get("documents")
    return {
        **({"dataset.packed": True} if documents is not None and documents.packed else {}),
        MODEL: f"torchtune.models.{module}.{prefix}{name or module}",
        "compile": compiled,
        "epochs": 1,
    }


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "training": read_training,
        "batch": read_batch,
        "numbers": read_numbers,
        "parallelism": read_parallelism,
        "offload": read_offload,
    },
    write={
        "training": write_training,
        "batch": write_batch,
        "numbers": write_numbers,
        "parallelism": write_parallelism,
        "offload": write_offload,
    },
)
