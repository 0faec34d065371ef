"""Features of decoders with a part that no other type has."""

from collections.abc import Mapping
from typing import Any, Final

from traincast.catalog.huggingface.config import Config
from traincast.catalog.huggingface.encoders import encoder_seq
from traincast.catalog.huggingface.features import GATED, Feature, Keys
from traincast.catalog.huggingface.hybrids import shape_keys
from traincast.core import is_whole


def half_as_wide(c: Config) -> Keys:
    """Read the width of a gated MLP, half of what is written."""
    return {"ffn": c.cite((c.count("intermediate_size") or 0) // 2, "intermediate_size")}


def mllama(c: Config) -> Keys:
    """Read the layers of Llama 3.2 Vision: some attend to images alone, in place of the text before.

    Eight rows of the embedding stand for images; both blocks of a layer that attends to them are scaled. What
    the images are is known where the tower is; else as many tokens are assumed as the text has.
    """
    layers = c.count("num_hidden_layers") or 0
    crossed = {i for i in c.numbers("cross_attention_layers") if i < layers}
    if not crossed:
        c.wrong("cross_attention_layers", "must hold numbers of layers, counted from 0")
    small = 8 * (c.count("hidden_size") or 0) + 2 * len(crossed)
    return {
        "layer_kinds": ["cross dense" if i in crossed else "dense" for i in range(layers)],
        "encoder": {"seq": encoder_seq(c), "qk_norm": True},
        "small_end_weights": c.cite(small, "hidden_size", "cross_attention_layers"),
        "left_out": "vision tower",
        "tied": False,  # whatever it says
    }


def norm_type(c: Config) -> Keys:
    """Read Molmo 2's norms of queries and keys, and a second part of the embedding."""
    rows = c.count("additional_vocab_size", least=0) or 0
    hidden = c.size("hidden_size")
    norm = c.word("qk_norm_type", {"qwen3": "head", "olmo": "full"})
    return {"qk_norm": norm, "small_end_weights": c.cite(rows * hidden, "additional_vocab_size")}


def shifted_norms(c: Config) -> Keys:
    """Count the shifts of Chameleon's norms of queries and keys, which RMS norms have not."""
    heads = c.size("num_attention_heads")
    hidden = c.size("hidden_size")
    width = hidden // heads * (heads + (c.count("num_key_value_heads") or heads))
    return {"small_weights": c.cite(width, "hidden_size", "num_key_value_heads")}


def cpmant(c: Config) -> Keys:
    """Read CPM-Ant: prompts and segments are embedded besides tokens; a table of relative positions."""
    hidden = c.size("hidden_size")
    heads = c.size("num_attention_heads")
    names = ("prompt_types", "prompt_length", "segment_types", "position_bias_num_buckets")
    prompts, length, segments, buckets = (c.count(name) or 0 for name in names)
    weights = (prompts * length + segments) * hidden + (segments**2 + buckets) * heads
    return {"small_end_weights": c.cite(weights, *names), "tied": False}  # whatever it says


def doge(c: Config) -> Keys:
    """Read Doge's trained mask of values, and the trained scales of its residual stream."""
    hidden = c.size("hidden_size")
    heads = c.size("num_attention_heads")
    groups = c.count("num_key_value_heads") or heads
    weights = 2 * hidden + groups * (1 + c.flag("attention_bias"))
    keys: Keys = {"beside": [[groups * (hidden // heads), groups]]}  # from the values to what masks them
    return keys | {"small_weights": c.cite(weights, "hidden_size", "num_key_value_heads")}


def last_bias(c: Config) -> Keys:
    """Read the inner width of GPT-NeoX-Japanese, and its one bias, that of the last layer."""
    hidden = c.size("hidden_size")
    multiple = c.size("intermediate_multiple_size")
    keys: Keys = {"ffn": c.cite(multiple * hidden, "hidden_size", "intermediate_multiple_size")}
    return keys | {"small_end_weights": c.figure("hidden_size")}


def persimmon(c: Config) -> Keys:
    """Read the flag for norms of queries and keys, which have a shift as well."""
    if not c.flag("qk_layernorm"):
        return {}
    width = c.size("hidden_size") // c.size("num_attention_heads")
    shifts = c.cite(2 * width, "hidden_size", "num_attention_heads")
    return {"qk_norm": "head", "small_weights": shifts}


def per_head_gate(c: Config) -> Keys:
    """Read the flag for a gate of attention: one number for each head, or one for each element."""
    gate = c.value("attention_gate")
    if gate not in (True, False, "per-head", "per-element"):
        c.wrong("attention_gate", "must be true, false, per-head or per-element")
    return {"attention_gate": bool(gate), "gate_per_head": gate in (True, "per-head")}


def laguna(c: Config) -> Keys:
    """Read the heads of Laguna, which can be others in layers with local attention."""
    heads = c.numbers("num_attention_heads_per_layer")
    keys = dict[str, object]()
    words = c.value("layer_types") or []
    content = c.content
    if "experts" in content:
        width = c.figure("shared_expert_intermediate_size")
        keys["experts"] = content["experts"] | {"shared_ffn": width, "router_bias": True}
    if not heads or len(words) != len(heads):
        return keys
    by_word = {
        word: {n for n, other in zip(heads, words, strict=True) if other == word} for word in set(words)
    }
    if any(len(numbers) > 1 for numbers in by_word.values()):
        c.wrong(
            "num_attention_heads_per_layer", "cannot be represented; only one number for each layer type can"
        )
        return keys
    own = {word: c.cite(min(ns), "num_attention_heads_per_layer") for word, ns in by_word.items()}
    keys["heads"] = own.get("full_attention", own[words[0]])
    if "local" in content and "full_attention" in own:
        keys["local"] = content["local"] | {"heads": own["sliding_attention"]}
    return keys


def mimo_lists(c: Config) -> Keys:
    """Read the lists of MiMo-V2 as published, with 1 for a window and for experts; or its pattern."""
    layers = range(c.count("num_hidden_layers") or 0)
    window = [0 if i == 0 or (i + 1) % 6 == 0 else 1 for i in layers]
    lists: dict[str, tuple[str, object, tuple[str, str]]] = {
        "layer_types": ("hybrid_layer_pattern", window, ("full_attention", "sliding_attention")),
        "mlp_layer_types": ("moe_layer_freq", [int(i > 0) for i in layers], ("dense", "sparse")),
    }
    for name, (published, default, words) in lists.items():
        if c.fields.get(name) is None:
            flags = c.fields.get(published, default)
            if not isinstance(flags, list) or not set(flags) <= {0, 1}:
                c.wrong(published, "must be a list of 0 and 1")
                continue
            c.fields = {**c.fields, name: [words[flag] for flag in flags]}
    return {}


def mimo(c: Config) -> Keys:
    """Read MiMo-V2: values of another width; in local layers, twice the heads of keys, and sinks."""
    keys: Keys = {"value_dim": c.figure("v_head_dim")}
    groups = c.count("num_key_value_heads")
    if "local" not in c.content or groups is None:
        return keys
    own = "swa_num_key_value_heads" if is_whole(c.fields.get("swa_num_key_value_heads")) else ""
    twice = c.cite(2 * groups, "num_key_value_heads")
    local = {"kv_heads": c.figure(own) if own else twice, "sinks": True}
    return keys | {"local": c.content["local"] | local}


def gemma4(c: Config) -> Keys:
    """Read Gemma 4: heads of another width, fewer keys that serve as values, in layers with full attention.

    Experts stand beside an MLP, each with norms; these and the router's scales are small weights.
    """
    wide = c.figure("global_head_dim")
    groups = c.figure("num_global_key_value_heads")
    by_layer = c.fields.get("per_layer_config") or {}  # as transformers saves it
    override: Mapping[str, Any] = next(iter(by_layer.values()), {})
    if "head_dim" in override:
        wide = c.cite(override["head_dim"], "per_layer_config")
    if "num_key_value_heads" in override:
        groups = c.cite(override["num_key_value_heads"], "per_layer_config")
    joined = c.flag("attention_k_eq_v")
    local = c.content.get("local")
    keys: Keys = {}
    if local is not None:
        own = {"kv_heads": c.figure("num_key_value_heads"), "head_dim": c.figure("head_dim")}
        keys |= {"local": local | own | {"keys_are_values": False}}
    keys |= {"head_dim": wide, "keys_are_values": joined}
    if joined and groups is not None:
        keys["kv_heads"] = groups
    if c.flag("enable_moe_block"):
        experts = {"experts": c.figure("num_experts"), "topk": c.figure("top_k_experts")}
        experts |= {"ffn": c.figure("moe_intermediate_size"), "shared_ffn": c.figure("intermediate_size")}
        small = 4 * (c.count("hidden_size") or 0) + (c.count("num_experts") or 0)
        keys |= {"experts": experts, "small_weights": c.cite(small, "hidden_size", "num_experts")}
    return keys | _per_layer_inputs(c) | _reused_keys(c, {**c.content, **keys})


def _per_layer_inputs(c: Config) -> Keys:
    """Read embeddings of every layer (Gemma 3n), which a gate of the residual stream multiplies.

    The table has a row for every token and layer; the embedding is projected to the same width.
    """
    width = c.count("hidden_size_per_layer_input", least=0)
    layers = c.size("num_hidden_layers")
    e = c.size("hidden_size")
    rows = c.size("vocab_size_per_layer_input")
    if not width:
        return {}
    if c.flag("enable_moe_block"):
        c.only("enable_moe_block", False)
    names = ("hidden_size_per_layer_input", "num_hidden_layers", "vocab_size_per_layer_input")
    small = c.cite(rows * layers * width + width, *names)
    keys: Keys = {"beside": [[e, width], [width, e]], "beside_layers": [[e, layers * width]]}
    return keys | {"small_weights": c.figure("hidden_size"), "small_end_weights": small}


def _reused_keys(c: Config, content: Keys) -> Keys:
    """Read the last layers, which have keys and values of layers before, and can have a wider MLP."""
    layers = c.count("num_hidden_layers") or 0
    reusing = c.count("num_kv_shared_layers", least=0) or 0
    ffn = c.figure("intermediate_size")
    local = content.get("local")
    if not reusing or ffn is None:
        return {}
    if content.get("experts"):
        c.only("num_kv_shared_layers", 0)
    own: Keys = {"reuses_keys": True}
    if "use_double_wide_mlp" in c.defaults and c.flag("use_double_wide_mlp"):
        own["ffn"] = c.cite(2 * ffn["value"], "intermediate_size", "use_double_wide_mlp")
    every = (local or {}).pop("global_every", 0)
    listed = (local or {}).pop("layers", None)
    is_local = [
        local is not None and (i + 1 in listed if listed else not every or (i + 1) % every != 0)
        for i in range(layers)
    ]
    kinds = ["local dense" if near else "dense" for near in is_local]
    keys = shape_keys(kinds, [own if i >= layers - reusing else {} for i in range(layers)], {})
    return keys | ({"local": local} if any(is_local) else {"local": None})


def gemma3n(c: Config) -> Keys:
    """Read Gemma 3n: embeddings of every layer, keys of earlier layers, LAuReL and AltUp.

    AltUp carries several copies of the residual stream, which are left out; their projections count.
    """
    e, rank, copies = (c.size(name) for name in ("hidden_size", "laurel_rank", "altup_num_inputs"))
    widths = c.fields.get("intermediate_size")
    if isinstance(widths, list) and len(set(map(str, widths))) > 1:
        c.wrong("intermediate_size", "cannot be represented; only one width of all layers can")
    keys = _per_layer_inputs(c) | _reused_keys(c, c.content)
    if "beside" not in keys:
        c.wrong("hidden_size_per_layer_input", "must be a whole number of at least 1")
        return {}
    keys["beside"] = [*keys["beside"], [e, rank], [rank, e], [e, copies]]
    keys["beside_layers"] = [*keys["beside_layers"], *[[e, e]] * (2 * (copies - 1))]
    # Norms after LAuReL, before the router of AltUp and after the input of the layer; scale of the result.
    small = 4 * e + copies**2 + copies**3
    keys["small_weights"] = c.cite(small, "hidden_size", "altup_num_inputs")
    return keys | {"left_out": "copies of the residual stream"}


def nested(c: Config) -> Keys:
    """Read DBRX, whose settings of attention and experts are nested."""
    attention = c.fields.get("attn_config") or {}
    inner = c.fields.get("ffn_config") or {}
    names = {"experts": "moe_num_experts", "topk": "moe_top_k", "ffn": "ffn_hidden_size"}
    defaults = {"moe_num_experts": 4, "moe_top_k": 1, "ffn_hidden_size": 3584}

    def figure(fields: Mapping[str, Any], part: str, name: str, default: int) -> Keys:
        value = fields.get(name, default)
        if not isinstance(value, int) or value < 1:
            c.wrong(part, f"{name} = {value!r}: must be a whole number of at least 1")
        return {"value": value, "source": f"{c.place}: {part}.{name}"}

    act = (inner.get("ffn_act_fn") or {"name": "silu"}).get("name")
    if act not in GATED:
        c.wrong("ffn_config", f"ffn_act_fn = {act!r}: must be one of {', '.join(GATED)}")
    experts = {key: figure(inner, "ffn_config", name, defaults[name]) for key, name in names.items()}
    keys: Keys = {"kv_heads": figure(attention, "attn_config", "kv_n_heads", 1), "mlp": GATED.get(str(act))}
    return keys | {"experts": experts, "ffn": experts["ffn"]}


FEATURES: Final[Mapping[str, Feature]] = {  # by the words of model_types.yaml
    "half_as_wide": half_as_wide,
    "mllama": mllama,
    "norm_type": norm_type,
    "shifted_norms": shifted_norms,
    "cpmant": cpmant,
    "doge": doge,
    "last_bias": last_bias,
    "persimmon": persimmon,
    "per_head_gate": per_head_gate,
    "laguna": laguna,
    "mimo_lists": mimo_lists,
    "mimo": mimo,
    "gemma4": gemma4,
    "gemma3n": gemma3n,
    "nested": nested,
}
