"""Conversions of Megatron-LM's model settings that depend on each other; the table of rows is in `table`."""

import re
from typing import Final

from traincast.core.errors import InputError
from traincast.launch.canonical import Facts
from traincast.launch.mapping import Settings, is_off, whole_number
from traincast.launch.pipeline_layout import layer_pattern, marked_layers

HEAD_SETTINGS: Final = ("group_query_attention", "num_query_groups", "num_key_value_heads", "kv_channels")


def size(settings: Settings, *names: str, least: int = 0) -> int | None:
    """Return the first of some settings that is set, as a whole number."""
    value = next(
        (whole_number(name, settings[name], least) for name in names if not is_off(settings.get(name))), None
    )
    return value[0] if isinstance(value, tuple) else value


def read_ffn(settings: Settings) -> Facts:
    """Read the width of the MLP: by default four times the hidden size, two thirds of that with SwiGLU."""
    hidden = size(settings, "hidden_size")
    if hidden is None or (given := size(settings, "ffn_hidden_size")):
        return {"ffn": given} if hidden else {}
    return {"ffn": int(4 * hidden * 2 / 3 / 64) * 64 if not is_off(settings.get("swiglu")) else 4 * hidden}


def write_heads(facts: Facts) -> Settings:
    """Write key and value heads where they are fewer than query heads; their width where it is not hidden size over heads."""
    settings: Settings = {}
    if facts.get("kv_heads", facts["heads"]) != facts["heads"]:
        settings |= {"group_query_attention": True, "num_query_groups": facts["kv_heads"]}
    if facts.get("head_dim", 0) * facts["heads"] not in (0, facts["hidden"]):
        settings["kv_channels"] = facts["head_dim"]
    return settings


def read_heads(settings: Settings) -> Facts:
    """Read key and value heads, and the width of a head."""
    heads, width = size(settings, "num_attention_heads"), size(settings, "kv_channels")
    if heads is None or not is_off(settings.get("multi_latent_attention")):
        return {}
    grouped = not is_off(settings.get("group_query_attention"))
    groups = (
        size(settings, "num_query_groups", least=1) or 1
        if grouped
        else size(settings, "num_key_value_heads", least=1)
    )
    facts: Facts = {"kv_heads": groups or heads}
    return facts | ({"head_dim": width} if width else {})


def write_bias(facts: Facts) -> Settings:
    """Write biases: of all linear layers, of none, or of queries, keys and values only."""
    settings_by_biases = {
        (): {"disable_bias_linear": True},
        ("qkv",): {"disable_bias_linear": True, "add_qkv_bias": True},
    }
    return dict(settings_by_biases.get(facts["biases"], {}))


def read_bias(settings: Settings) -> Facts:
    """Read biases; those of all linear layers include the router's."""
    all_linear = is_off(settings.get("disable_bias_linear"))
    facts: Facts = {
        "biases": ("mlp", "proj", "qkv")
        if all_linear
        else ()
        if is_off(settings.get("add_qkv_bias"))
        else ("qkv",)
    }
    return facts | ({"experts.router_bias": all_linear} if size(settings, "num_experts") else {})


def read_dropout(settings: Settings) -> Facts:
    """Read whether there is dropout: by default 0.1."""
    rates = [str(settings.get(name, "0.1")) for name in ("attention_dropout", "hidden_dropout")]
    return {"dropout": any(not re.fullmatch(r"0*\.?0*", rate) for rate in rates)}


def write_positions(facts: Facts) -> Settings:
    """Write the length of the position table, which is required for all kinds of positions."""
    return {"max_position_embeddings": facts.get("max_positions", facts["seq"])}


def read_positions(settings: Settings) -> Facts:
    """Read the length of the table of learned positions."""
    max_positions = size(settings, "max_position_embeddings")
    learned = str(settings.get("position_embedding_type", "learned_absolute")) == "learned_absolute"
    rotary = not is_off(settings.get("use_rotary_position_embeddings"))
    return {"max_positions": max_positions} if max_positions and learned and not rotary else {}


def write_moe_layers(facts: Facts) -> Settings:
    """Write which layers have experts, where not all have."""
    chosen = facts.get("moe_layers")
    return (
        {}
        if chosen is None or len(chosen) == facts["layers"]
        else {"moe_layer_freq": layer_pattern(chosen, facts["layers"])}
    )


def read_moe_layers(settings: Settings) -> Facts:
    """Read which layers have experts: with a frequency n the first of every n in Megatron-LM, read as the last of them here.

    Raises
    ------
    InputError
        If n does not divide the layers, as then their number would differ.
    """
    layers = size(settings, "num_layers", "encoder_num_layers")
    if not size(settings, "num_experts") or layers is None:
        return {}
    frequency = str(settings.get("moe_layer_freq", "1"))
    if re.fullmatch(r"\d{1,6}", frequency) and int(frequency) and layers % int(frequency):
        problem = f"does not divide {layers} layers, and layers 1, {int(frequency) + 1}, … would have experts: give --model"
        raise InputError("moe_layer_freq", [f"moe_layer_freq = {frequency}: {problem}"])
    return {"moe_layers": marked_layers(frequency, layers)}


def read_expert_width(settings: Settings) -> Facts:
    """Read the width of an expert: by default that of the MLP."""
    if not size(settings, "num_experts"):
        return {}
    width = size(settings, "moe_ffn_hidden_size") or read_ffn(settings).get("ffn")
    return {"experts.ffn": width} if width else {}


def read_shared(settings: Settings) -> Facts:
    """Read the width of the shared experts."""
    shared = size(settings, "moe_shared_expert_intermediate_size")
    return {"experts.shared_ffn": shared} if shared and size(settings, "num_experts") else {}


def write_capacity(facts: Facts) -> Settings:
    """Write the capacity of experts."""
    return {"moe_expert_capacity_factor": facts["experts.capacity"]} if "experts.capacity" in facts else {}


def read_capacity(settings: Settings) -> Facts:
    """Read the capacity of experts."""
    value = settings.get("moe_expert_capacity_factor")
    if is_off(value) or not size(settings, "num_experts"):
        return {}
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", str(value)):
        raise InputError(
            "moe_expert_capacity_factor", [f"moe_expert_capacity_factor = {value!r}: must be a number"]
        )
    return {"experts.capacity": float(str(value))}


def write_local(facts: Facts) -> Settings:
    """Write a sliding window: tokens before and after the query, and the layers that have it."""
    if "local.window" not in facts or facts.get("local.chunked"):
        return {}
    every = len(facts["local_layers"]) == facts["layers"]
    return {"window_size": f"{facts['local.window'] - 1},0"} | (
        {} if every else {"window_attn_skip_freq": layer_pattern(facts["local_layers"], facts["layers"])}
    )


def read_local(settings: Settings) -> Facts:
    """Read a sliding window: with a frequency n every n-th layer has full attention."""
    window, layers = settings.get("window_size"), size(settings, "num_layers", "encoder_num_layers")
    if is_off(window) or layers is None:
        return {}
    left = re.match(
        r"\(?\s*(\d{1,9})\s*,",
        " ".join(map(str, window)) if isinstance(window, list | tuple) else str(window),
    )
    if left is None:
        raise InputError("window_size", [f"window_size = {window!r}: must be two numbers such as 4095,0"])
    skip = str(settings.get("window_attn_skip_freq", ""))
    all_layers = set(range(1, layers + 1))
    chosen = set(marked_layers(skip, layers)) if skip else all_layers
    if skip.isdecimal():
        chosen = all_layers - chosen
    return {"local.window": int(left[1]) + 1, "local_layers": tuple(sorted(chosen))}
