"""Settings of Megatron-LM on the model that say several facts together, or only with what others say; see `megatron_forms`."""

import re
from typing import Final

from traincast.core.errors import InputError
from traincast.launch.canonical import Facts
from traincast.launch.mapping import Settings, is_off, number
from traincast.launch.pipeline_layout import marked, marks

HEADS: Final = ("group_query_attention", "num_query_groups", "num_key_value_heads", "kv_channels")


def size(settings: Settings, *names: str, least: int = 0) -> int | None:
    """A whole number among settings, the first that is there."""
    value = next((number(name, settings[name], least) for name in names if not is_off(settings.get(name))), None)
    return value[0] if isinstance(value, tuple) else value


def read_ffn(settings: Settings) -> Facts:
    """Width of the MLP: without it four times the hidden size, two thirds of that where it is gated by SiLU."""
    hidden = size(settings, "hidden_size")
    if hidden is None or (given := size(settings, "ffn_hidden_size")):
        return {"ffn": given} if hidden else {}
    return {"ffn": int(4 * hidden * 2 / 3 / 64) * 64 if not is_off(settings.get("swiglu")) else 4 * hidden}


def write_heads(told: Facts) -> Settings:
    """Heads of keys and values where they are fewer; their width where it is not what the hidden size gives."""
    found: Settings = {}
    if told.get("kv_heads", told["heads"]) != told["heads"]:
        found |= {"group_query_attention": True, "num_query_groups": told["kv_heads"]}
    if told.get("head_dim", 0) * told["heads"] not in (0, told["hidden"]):
        found["kv_channels"] = told["head_dim"]
    return found


def read_heads(settings: Settings) -> Facts:
    """Heads of keys and values, and their width."""
    heads, width = size(settings, "num_attention_heads"), size(settings, "kv_channels")
    if heads is None or not is_off(settings.get("multi_latent_attention")):
        return {}
    grouped = not is_off(settings.get("group_query_attention"))
    groups = size(settings, "num_query_groups", least=1) or 1 if grouped else size(settings, "num_key_value_heads", least=1)
    found: Facts = {"kv_heads": groups or heads}
    return found | ({"head_dim": width} if width else {})


def write_bias(told: Facts) -> Settings:
    """Biases: of all linear layers, of none, or of queries, keys and values alone."""
    ways = {(): {"disable_bias_linear": True}, ("qkv",): {"disable_bias_linear": True, "add_qkv_bias": True}}
    return dict(ways.get(told["biases"], {}))


def read_bias(settings: Settings) -> Facts:
    """Biases; those of all linear layers include the router's."""
    every = is_off(settings.get("disable_bias_linear"))
    found: Facts = {"biases": ("mlp", "proj", "qkv") if every else () if is_off(settings.get("add_qkv_bias")) else ("qkv",)}
    return found | ({"experts.router_bias": every} if size(settings, "num_experts") else {})


def read_dropout(settings: Settings) -> Facts:
    """Whether there is dropout: 0.1 where nothing is said."""
    rates = [str(settings.get(name, "0.1")) for name in ("attention_dropout", "hidden_dropout")]
    return {"dropout": any(not re.fullmatch(r"0*\.?0*", rate) for rate in rates)}


def write_positions(told: Facts) -> Settings:
    """Length of the table of positions, which is asked for whatever their kind."""
    return {"max_position_embeddings": told.get("max_positions", told["seq"])}


def read_positions(settings: Settings) -> Facts:
    """Length of the table of learned positions."""
    longest = size(settings, "max_position_embeddings")
    learned = str(settings.get("position_embedding_type", "learned_absolute")) == "learned_absolute"
    rotary = not is_off(settings.get("use_rotary_position_embeddings"))
    return {"max_positions": longest} if longest and learned and not rotary else {}


def write_moe_layers(told: Facts) -> Settings:
    """Which layers have experts, where not all have."""
    chosen = told.get("moe_layers")
    return {} if chosen is None or len(chosen) == told["layers"] else {"moe_layer_freq": marked(chosen, told["layers"])}


def read_moe_layers(settings: Settings) -> Facts:
    """Which layers have experts. Of a number n Megatron-LM takes the first of every n layers, a model here the last of them.

    Raises
    ------
    InputError
        If n does not divide the layers, so that there would be fewer with experts.
    """
    layers = size(settings, "num_layers", "encoder_num_layers")
    if not size(settings, "num_experts") or layers is None:
        return {}
    told = str(settings.get("moe_layer_freq", "1"))
    if re.fullmatch(r"\d{1,6}", told) and int(told) and layers % int(told):
        wrong = f"does not divide {layers} layers, and layers 1, {int(told) + 1}, … have experts then: give --model"
        raise InputError("moe_layer_freq", [f"moe_layer_freq = {told}: {wrong}"])
    return {"moe_layers": marks(told, layers)}


def read_expert_width(settings: Settings) -> Facts:
    """Width of an expert: that of the MLP where nothing is said."""
    if not size(settings, "num_experts"):
        return {}
    width = size(settings, "moe_ffn_hidden_size") or read_ffn(settings).get("ffn")
    return {"experts.ffn": width} if width else {}


def read_shared(settings: Settings) -> Facts:
    """Width of the shared experts."""
    shared = size(settings, "moe_shared_expert_intermediate_size")
    return {"experts.shared_ffn": shared} if shared and size(settings, "num_experts") else {}


def write_capacity(told: Facts) -> Settings:
    """Capacity of experts."""
    return {"moe_expert_capacity_factor": told["experts.capacity"]} if "experts.capacity" in told else {}


def read_capacity(settings: Settings) -> Facts:
    """Capacity of experts."""
    value = settings.get("moe_expert_capacity_factor")
    if is_off(value) or not size(settings, "num_experts"):
        return {}
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", str(value)):
        raise InputError("moe_expert_capacity_factor", [f"moe_expert_capacity_factor = {value!r}: must be a number"])
    return {"experts.capacity": float(str(value))}


def write_local(told: Facts) -> Settings:
    """A sliding window: tokens before and after a query's own, and the layers that have it."""
    if "local.window" not in told or told.get("local.chunked"):
        return {}
    every = len(told["local_layers"]) == told["layers"]
    return {"window_size": f"{told['local.window'] - 1},0"} | (
        {} if every else {"window_attn_skip_freq": marked(told["local_layers"], told["layers"])}
    )


def read_local(settings: Settings) -> Facts:
    """A sliding window. Of a number n every n-th layer attends to all."""
    told, layers = settings.get("window_size"), size(settings, "num_layers", "encoder_num_layers")
    if is_off(told) or layers is None:
        return {}
    left = re.match(r"\(?\s*(\d{1,9})\s*,", " ".join(map(str, told)) if isinstance(told, list | tuple) else str(told))
    if left is None:
        raise InputError("window_size", [f"window_size = {told!r}: two numbers such as 4095,0 are wanted"])
    skip = str(settings.get("window_attn_skip_freq", ""))
    all_layers = set(range(1, layers + 1))
    chosen = all_layers - set(marks(skip, layers)) if skip.isdecimal() else set(marks(skip, layers)) if skip else all_layers
    return {"local.window": int(left[1]) + 1, "local_layers": tuple(sorted(chosen))}
