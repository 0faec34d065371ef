"""Features of types whose code is published with the model (`trust_remote_code`)."""

from collections.abc import Mapping
from typing import Final

from traincast.catalog.huggingface.config import Config, is_factor
from traincast.catalog.huggingface.decoders import per_head_gate
from traincast.catalog.huggingface.features import (
    FULL_ATTENTION,
    Feature,
    Keys,
    experts,
    layer_words,
    routed_experts,
)
from traincast.catalog.huggingface.hybrids import heads_of, layer_kinds, pairs, shape_keys
from traincast.core import is_whole


def chatglm(c: Config) -> Keys:
    """Read ChatGLM: groups of heads and kinds of norm and bias by flags; the first version has none of them.

    That one is a GPT with rotary positions in two directions and a head that shares the embedding's weights.
    """
    if c.fields.get("position_encoding_2d"):
        keys: Keys = {"norm": "layernorm", "biases": ["qkv", "proj", "mlp"], "mlp": "gelu", "tied": True}
        return keys
    groups = {"kv_heads": c.figure("num_key_value_heads")} if c.flag("multi_query_attention") else {}
    biases = ["qkv", "proj", "mlp"] if c.flag("add_bias_linear") else []
    biases = biases or (["qkv"] if c.flag("add_qkv_bias") else [])
    norm = "rmsnorm" if c.flag("rmsnorm") else "layernorm"
    keys = {"head_dim": c.figure("head_dim"), "norm": norm, "final_norm": c.flag("post_layer_norm")}
    return keys | groups | {"biases": biases}


def hf_olmo(c: Config) -> Keys:
    """Read the width of OLMo's gated MLP, half of what is written, and its norm, mostly without weights."""
    width = c.count("intermediate_size")
    ratio = c.size("mlp_ratio")
    source = "intermediate_size" if width else "mlp_ratio"
    total = width or ratio * c.size("hidden_size")
    norm = "layernorm" if c.flag("layer_norm_with_affine") else "layernorm-plain"
    return {"ffn": c.cite(total // 2, source), "norm": norm}


def arctic(c: Config) -> Keys:
    """Read Arctic: beside experts stands an MLP as wide as the model, each with a norm of its own."""
    every = c.size("moe_layer_frequency")
    keys = experts(c)["experts"] | ({"every": every} if every > 1 else {})
    if not c.flag("use_residual"):
        return {"experts": keys}
    if every > 1:
        c.only("moe_layer_frequency", 1)
    hidden = c.figure("hidden_size")
    return {"experts": keys | {"shared_ffn": hidden}, "small_weights": hidden}


def grok2(c: Config) -> Keys:
    """Read Grok-2: experts beside an MLP in every layer."""
    return {
        "experts": routed_experts(c, "moe_intermediate_size") | {"shared_ffn": c.figure("intermediate_size")}
    }


def ring_linear(c: Config) -> Keys:
    """Read the layers of Ring-linear with lightning attention, all but one of a group and those left over.

    Queries and keys are normed there as well; the result's norm has weights for all heads.
    """
    layers = c.count("num_hidden_layers") or 0
    group = c.size("layer_group_size")
    in_groups = layers // group * group
    attends = [(i + 1) % group == 0 or i >= in_groups for i in range(layers)]
    keys = pairs(c, ["attention" if each else "gated_linear" for each in attends])
    return keys if all(attends) else keys | {"gated_linear": heads_of(c)}


def step(c: Config) -> Keys:
    """Read Step-3.5: layers with a window have heads of their own; experts in listed layers, one shared.

    Layers after `num_hidden_layers` predict further tokens, and are not read.
    """
    layers = c.count("num_hidden_layers") or 0
    other = c.fields.get("attention_other_setting")
    other = other if isinstance(other, dict) else {}
    words = {"sliding_attention": "local"} | dict.fromkeys(FULL_ATTENTION, "attention")
    types = c.fields.get("layer_types")
    if isinstance(types, list):
        c.fields = {**c.fields, "layer_types": types[:layers]}
    mixers = layer_words(c, words) or ["attention"] * layers
    listed = c.fields.get("moe_layers_enum")
    first = c.count("first_k_dense_replace", least=0) or 0
    numbers = str(listed).split(",") if listed else list(map(str, range(first, layers)))
    if not all(number.strip().isdigit() for number in numbers):
        c.wrong("moe_layers_enum", "must be whole numbers with commas between them")
        return {}
    has = [i in set(map(int, numbers)) for i in range(layers)]
    if c.fields.get("mlp_layer_types"):
        blocks = layer_words(c, {"sparse": "moe", "dense": "dense"}, "mlp_layer_types")
        has = [block == "moe" for block in blocks] or has
    keys = layer_kinds(mixers, has) | per_head_gate(c)
    if any(has):
        shared = {"shared_ffn": c.figure("shared_expert_intermediate_size")}
        keys["experts"] = routed_experts(c, "moe_intermediate_size") | shared
    if "local" in mixers:
        names = {"heads": "num_attention_heads", "kv_heads": "num_attention_groups", "head_dim": "head_dim"}
        own = {key: other.get(name) for key, name in names.items()}
        own["heads"] = own["heads"] or c.fields.get("num_sliding_attention_heads")
        place = f"{c.place}: attention_other_setting"
        figures = {
            key: {"value": n, "source": f"{place}.{names[key]}"} for key, n in own.items() if is_whole(n)
        }
        keys["local"] = {"window": c.figure("sliding_window")} | figures
    return keys


def blocks(c: Config) -> Keys:
    """Read the blocks of a network that a search cut out of Llama (Puzzle, arXiv 2411.19146; DeciLM).

    Layers differ in the heads of keys and in the MLP's width, and can lack a block, or both.
    """
    layers = c.size("num_hidden_layers")
    heads = c.size("num_attention_heads")
    groups = c.numbers("num_key_value_heads_per_layer")
    configs = c.fields.get("block_configs")
    source = f"{c.place}: block_configs"
    if groups:
        if len(groups) != layers:
            c.wrong("num_key_value_heads_per_layer", f"must hold a number for each of the {layers} layers")
            return {}
        source = f"{c.place}: num_key_value_heads_per_layer"
        figures = [{"kv_heads": {"value": n, "source": source}} for n in groups]
        return shape_keys(["dense"] * layers, figures, figures[0])
    is_list = isinstance(configs, list) and all(isinstance(block, dict) for block in configs)
    if not isinstance(configs, list) or not is_list or len(configs) != layers:
        c.wrong("block_configs", f"must hold a mapping for each of the {layers} layers")
        return {}
    kinds = []
    figures = list[Keys]()
    for block in configs:
        inside = (block.get(part) for part in ("attention", "ffn"))
        attention, inner = (part if isinstance(part, dict) else {} for part in inside)
        if attention.get("replace_with_linear") or inner.get("replace_with_linear"):
            c.wrong("block_configs", "cannot be represented; replace_with_linear must be false")
            return {}
        group = attention.get("n_heads_in_group")
        width = inner.get("intermediate_size")
        times = inner.get("ffn_mult")
        if isinstance(times, int | float) and times > 0:
            width = -(-int(2 * times * c.size("hidden_size") / 3) // 256) * 256
        of_layer: Keys = {}
        if not attention.get("no_op"):
            groups_of = heads // group if isinstance(group, int) and group > 0 else 0
            of_layer["kv_heads"] = {"value": groups_of, "source": source}
        if not inner.get("no_op"):
            of_layer["ffn"] = {"value": width, "source": source}
        if any(not is_whole(figure["value"]) for figure in of_layer.values()):
            c.wrong("block_configs", "must give n_heads_in_group and ffn_mult, or no_op, of each block")
            return {}
        word = {("kv_heads", "ffn"): "dense", ("kv_heads",): "attention only", ("ffn",): "dense only"}
        if of_layer:
            kinds.append(word[tuple(of_layer)])
            figures.append(of_layer)
    of_model = {key: next((one[key] for one in figures if key in one), None) for key in ("kv_heads", "ffn")}
    keys = shape_keys(kinds, figures, of_model)
    return keys | {"layers": c.cite(len(kinds), "block_configs"), "ffn": keys["ffn"] or 0}


def openelm(c: Config) -> Keys:
    """Read OpenELM, whose layers grow in heads and in the width of the MLP (arXiv 2404.14619, section 2)."""
    layers = c.size("num_hidden_layers")
    divisor = c.size("ffn_dim_divisor")
    heads = c.numbers("num_query_heads")
    groups = c.numbers("num_kv_heads")
    times = c.value("ffn_multipliers")
    is_list = isinstance(times, list) and all(map(is_factor, times))
    if not is_list or {len(heads), len(groups), len(times)} != {layers}:
        c.wrong("ffn_multipliers", f"and num_query_heads, num_kv_heads must hold {layers} numbers")
        return {}
    widths = []
    for n in times:
        width = max(divisor, int(n * c.size("hidden_size") + divisor / 2) // divisor * divisor)
        widths.append(width + divisor * (width < 0.9 * n * c.size("hidden_size")))
    names = {"heads": "num_query_heads", "kv_heads": "num_kv_heads", "ffn": "ffn_multipliers"}
    figures = [
        {key: c.cite(n, names[key]) for key, n in zip(names, of_layer, strict=True)}
        for of_layer in zip(heads, groups, widths, strict=True)
    ]
    keys = shape_keys(["dense"] * layers, figures, figures[0]) | {"layers": c.figure("num_hidden_layers")}
    keys |= {"hidden": c.figure("hidden_size"), "head_dim": c.figure("head_dim"), "dropout": False}
    c.only("ffn_with_glu", True)
    return keys | ({"qk_norm": "head"} if c.flag("normalize_qk_projections") else {})


def across_layers(c: Config) -> Keys:
    """Read Hunyuan-Large: groups of layers share the keys and values of their first one (CLA).

    arXiv 2411.02265, section 2.2.2.
    """
    layers = c.count("num_hidden_layers") or 0
    every = c.size("cla_share_factor")
    if not c.flag("use_cla") or every == 1:
        return {}
    figures: list[Keys] = [{"reuses_keys": True} if i % every else {} for i in range(layers)]
    return shape_keys(["moe"] * layers, figures, {})


def molmo(c: Config) -> Keys:
    """Read Molmo's language model: biases of queries, keys and values, and a second part of the embedding."""
    rows = c.count("additional_vocab_size", least=0) or 0
    hidden = c.size("hidden_size")
    keys: Keys = {"biases": ["qkv"] if c.flag("qkv_bias") else []}
    keys |= {"qk_norm": "full"} if c.flag("qk_norm") else {}
    c.only("norm_after", False)
    return keys | {"small_end_weights": c.cite(rows * hidden, "additional_vocab_size")}


def nomic(c: Config) -> Keys:
    """Read Nomic BERT: flags for biases; no second table of tokens where it has no types."""
    c.only("num_experts", 0)
    words: Mapping[str, str] = {"silu": "swiglu", "swiglu": "swiglu", "geglu": "geglu", "gelu": "gelu"}
    inner = [c.flag("mlp_fc1_bias"), c.flag("mlp_fc2_bias")]
    if inner[0] != inner[1]:
        c.only("mlp_fc2_bias", inner[0])
    biases = ["qkv", "proj"] if c.flag("qkv_proj_bias") else []
    keys: Keys = {"biases": biases + (["mlp"] if all(inner) else []), "mlp": c.word("hidden_act", words)}
    types = c.count("type_vocab_size", least=0)
    return keys | {"head_bias": True, "token_types": types, "head_dim": c.figure("head_dim")}


FEATURES: Final[Mapping[str, Feature]] = {  # by the words of model_types.yaml
    "chatglm": chatglm,
    "hf_olmo": hf_olmo,
    "arctic": arctic,
    "grok2": grok2,
    "ring_linear": ring_linear,
    "step": step,
    "blocks": blocks,
    "openelm": openelm,
    "across_layers": across_layers,
    "molmo": molmo,
    "nomic": nomic,
}
