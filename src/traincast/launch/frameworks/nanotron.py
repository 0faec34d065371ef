"""Conversions of nanotron's settings that depend on each other; its table is `tables/nanotron.toml`."""

import re
from typing import Final

from traincast.catalog import parse_document
from traincast.core import InputError
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.settings import Settings, flatten
from traincast.launch.settings.table import Conversions, Values

DP = "parallelism.dp"
EP = "parallelism.expert_parallel_size"
CONFIG: Final = "model.model_config."
EXPERTS: Final = f"{CONFIG}moe_config."
RECOMPUTED: Final = {  # recompute -> setting
    "full": "parallelism.recompute_layer",
    "experts": "parallelism.moe_layer_recompute",
}
DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
OPTIMIZERS: Final = {"adamW": "adam", "sgd": "sgd"}
SSM: Final = f"{CONFIG}ssm_cfg."
SHARED_FFN: Final = 5632  # models_config.py, MoEConfig: shared_expert_intermediate_size


def write_data(facts: Facts) -> Values:
    """Write the data-parallel replicas; expert parallelism has its own axis."""
    ep = facts.get("ep", 1)
    if facts["dp"] % ep:
        return {DP: facts["dp"]}
    return {DP: facts["dp"] // ep} | ({EP: ep} if ep > 1 else {})


def read_data(settings: Settings) -> Facts:
    """Read the data-parallel replicas, with and without the axis of expert parallelism."""
    ep = settings.number(EP)
    facts: Facts = {"dp": settings.number(DP) * ep}
    return facts | ({"ep": ep} if f"{EXPERTS}num_experts" in settings else {})


def write_recompute(facts: Facts) -> Values:
    """Write that whole layers are recomputed; the setting for MoE layers was there in spring 2025 only."""
    recomputed = facts["recompute"] == "full" and facts.get("recompute_every", 1) == 1
    return {RECOMPUTED["full"]: True} if recomputed else {}


def read_recompute(settings: Settings) -> Facts:
    """Read what is recomputed."""
    return {"recompute": next((kind for kind, name in RECOMPUTED.items() if settings.is_on(name)), "none")}


def read_precision(settings: Settings) -> Facts:
    """Read precision: without gradients in fp32 it steps the 16-bit weights (helpers.py, 2411b02)."""
    precision = DTYPES[settings.choice("model.dtype", DTYPES, "bfloat16")]
    pure = precision == "bf16" and settings.get("optimizer.accumulate_grad_in_fp32") is False
    return {"precision": "bf16-pure" if pure else precision}


def read_optimizer(settings: Settings) -> Facts:
    """Read the optimizer, whose states are as wide as the weights that it steps."""
    kind = OPTIMIZERS[settings.choice("optimizer.optimizer_factory.name", OPTIMIZERS, "adamW")]
    pure = read_precision(settings)["precision"] == "bf16-pure"
    return {"optimizer_kind": "adam-bf16" if pure and kind == "adam" else kind}


def write_experts(facts: Facts) -> Values:
    """Write the experts; layers are counted from 0."""
    if "experts.experts" not in facts:
        return {}
    every_layer = len(facts["moe_layers"]) == facts["layers"]
    return {
        f"{EXPERTS}num_experts": facts["experts.experts"],
        f"{EXPERTS}top_k": facts["experts.topk"],
        f"{EXPERTS}layers": [-1] if every_layer else [layer - 1 for layer in facts["moe_layers"]],
    }


def read_experts(settings: Settings) -> Facts:
    """Read the experts, by default as wide as the MLP, and a shared one (models_config.py, MoEConfig)."""
    if not settings.is_on(f"{EXPERTS}num_experts"):
        return {}
    layers = settings.number(f"{CONFIG}num_hidden_layers", default=0)
    mlp = settings.number(f"{CONFIG}intermediate_size", default=11008)
    shared = settings.number(f"{EXPERTS}shared_expert_intermediate_size", default=SHARED_FFN)
    return {
        "experts.experts": settings.number(f"{EXPERTS}num_experts"),
        "experts.topk": settings.number(f"{EXPERTS}top_k", default=2),
        "experts.ffn": settings.number(f"{EXPERTS}moe_intermediate_size", default=mlp),
        "experts.shared_ffn": shared if settings.is_on(f"{EXPERTS}enable_shared_expert") else 0,
        "moe_layers": _moe_layers(settings.get(f"{EXPERTS}layers"), layers),
        "etp": 1,
    }


def _moe_layers(indices: object, layers: int) -> tuple[int, ...]:
    """Return the layers with experts, counted from 1: all of them where no others are listed, from 0."""
    if not isinstance(indices, list) or indices == [-1] or not all(isinstance(i, int) for i in indices):
        return tuple(range(1, layers + 1))
    return tuple(i + 1 for i in indices)


def write_local(facts: Facts) -> Values:
    """Write a sliding window where all layers have it."""
    everywhere = len(facts.get("local_layers", ())) == facts["layers"] and not facts.get("local.chunked")
    return {f"{CONFIG}sliding_window_size": facts["local.window"]} if everywhere else {}


def read_local(settings: Settings) -> Facts:
    """Read a sliding window of all layers."""
    window = settings.count(f"{CONFIG}sliding_window_size")
    layers = settings.count(f"{CONFIG}num_hidden_layers")
    return {"local.window": window, "local_layers": tuple(range(1, layers + 1))} if window and layers else {}


def read_mamba(settings: Settings) -> Facts:
    """Read a model of Mamba-1 layers alone (examples/mamba/config.py)."""
    hidden = settings.count(f"{CONFIG}d_model")
    if not settings.is_on(f"{CONFIG}is_mamba_config"):
        return {}
    if not hidden:
        raise InputError("d_model", [f"{CONFIG}d_model: missing, although is_mamba_config is on"])
    width = settings.number(f"{SSM}expand", default=2) * hidden
    rank = settings.get(f"{SSM}dt_rank", "auto")
    padding = settings.number(f"{CONFIG}pad_vocab_size_multiple", default=8)
    return {
        "hidden": hidden,
        "heads": 0,
        "ffn": 0,
        "layer_kinds": ("mamba only",),
        "vocab": -(-settings.number(f"{CONFIG}vocab_size") // padding) * padding,
        "tied": True,
        "positions": "none",
        "mamba.width": width,
        "mamba.state": settings.number(f"{SSM}d_state", default=16),
        "mamba.rank": -(-hidden // 16) if rank == "auto" else settings.number(f"{SSM}dt_rank"),
        "mamba.conv": settings.number(f"{SSM}d_conv", default=4),
        "mamba.conv_bias": settings.is_on(f"{SSM}conv_bias"),
        "mamba.bias": settings.is_on(f"{SSM}bias"),
    }


def read_configuration(text: str) -> Settings:
    """Read a configuration; of a key that is null and given again below the second counts, as in PyYAML."""
    lines = text.splitlines()
    places: dict[str, int] = {}  # by indentation and key, of lines that are null
    for number, line in enumerate(lines):
        match = re.match(r"( *)([\w-]+):(.*)$", line)
        if match is None:
            continue
        indent = len(match[1])
        places = {key: place for key, place in places.items() if key.count(" ") <= indent}
        key = match[1] + match[2]
        if (place := places.pop(key, None)) is not None:
            lines[place] = ""
        if match[3].split("#")[0].strip() in ("null", "~"):
            places[key] = number
    return flatten(parse_document("\n".join(lines), "yaml", repeated=True))


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "data": read_data,
        "recompute": read_recompute,
        "precision": read_precision,
        "optimizer": read_optimizer,
        "experts": read_experts,
        "local": read_local,
        "mamba": read_mamba,
    },
    write={
        "data": write_data,
        "recompute": write_recompute,
        "experts": write_experts,
        "local": write_local,
    },
)
