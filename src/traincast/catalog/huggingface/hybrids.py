"""Features of models whose layers are of several kinds: hybrids, and attention to selected keys."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from traincast.catalog.huggingface.config import Config
from traincast.catalog.huggingface.features import (
    FULL_ATTENTION,
    SIMPLE,
    Feature,
    Keys,
    experts_beside_shared,
    four_times_as_wide,
    layer_words,
    routed_experts,
    shared_width,
)
from traincast.core import is_whole
from traincast.model import FeedForward, Kind, Mixer


def _flags(c: Config, name: str, value: object) -> list[bool]:
    """Return a list with 0 or 1 for each layer; empty if it is null, or wrong, which is noted."""
    layers = c.count("num_hidden_layers")
    if value is None:
        return []
    if isinstance(value, list) and len(value) == layers and all(flag in (0, 1) for flag in value):
        return [bool(flag) for flag in value]
    c.wrong(name, f"must hold 0 or 1 for each of the {layers} layers")
    return []


def _stretch(kinds: Sequence[str]) -> list[str]:
    """Return the shortest stretch of kinds of layers that is repeated."""
    lengths = (n for n in range(1, len(kinds) + 1) if len(kinds) % n == 0)
    return next((list(kinds[:n]) for n in lengths if list(kinds) == list(kinds[:n]) * (len(kinds) // n)), [])


def pairs(c: Config, mixers: Sequence[str]) -> Keys:
    """Return the kinds of layers with two blocks, and the experts read before without their layers."""
    experts = dict(c.content.get("experts") or {})
    first = experts.pop("first_dense", 0)
    every = experts.pop("every", 1)
    has = [bool(experts) and i >= first and (i - first + 1) % every == 0 for i in range(len(mixers))]
    return layer_kinds(mixers, has) | ({"experts": experts} if any(has) else {})


def shape_keys(kinds: Sequence[str], figures: Sequence[Keys], of_model: Keys) -> Keys:
    """Return the keys of layers with figures of their own: those of the model, and shapes for other ones."""
    names: dict[str, str] = {}
    shapes = list[Keys]()
    words = list[str]()
    for kind, of_layer in zip(kinds, figures, strict=True):
        other = {key: value for key, value in of_layer.items() if value != of_model.get(key)}
        if not other:
            words.append(kind)
            continue
        name = names.setdefault(repr(other), str(len(names) + 1))
        shapes += [{"name": name} | other] if len(shapes) < len(names) else []
        words.append(f"{kind} @{name}")
    return of_model | {"layer_kinds": _stretch(words)} | ({"shapes": shapes} if shapes else {})


def layer_kinds(mixers: Sequence[str], has_experts: Sequence[bool]) -> Keys:
    """Return the kinds of layers with two blocks."""
    blocks = ["moe" if has else "dense" for has in has_experts]
    kinds = [Kind(cast(Mixer, mixer), cast(FeedForward, b)) for mixer, b in zip(mixers, blocks, strict=True)]
    return {"layer_kinds": _stretch(list(map(str, kinds)))}


def read_indexer(c: Config) -> Keys:
    """Read the lightning indexer, and which layers share the index of one before them."""
    layers = c.count("num_hidden_layers") or 0
    words = {"full": "indexed", "shared": "index-shared", "F": "indexed", "S": "index-shared"}
    name = next((name for name in ("indexer_types", "index_topk_pattern") if c.fields.get(name)), "")
    mixers = layer_words(c, words, name) if name else []
    every = c.size("index_topk_freq")
    first = c.count("index_skip_topk_offset", least=0) or 0
    default = ["index-shared" if max(i - first + 1, 0) % every else "indexed" for i in range(layers)]
    return pairs(c, mixers or default) | {"indexer": _indexer(c)}


def _indexer(c: Config) -> Keys:
    return c.figures(heads="index_n_heads", head_dim="index_head_dim", topk="index_topk")


def block_indexed(c: Config) -> Keys:
    """Read MiniMax-M3's indexer of blocks of keys and its layers, and its experts and wider dense layers."""
    layers = c.count("num_hidden_layers") or 0
    nested = c.fields.get("sparse_attention_config")
    inside = nested if isinstance(nested, dict) else {}
    spelled = {"index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim"}
    spelled |= {"index_block_size": "sparse_block_size", "index_topk_blocks": "sparse_topk_blocks"}
    sizes = {name: c.figure_in("sparse_attention_config", old, name) for name, old in spelled.items()}
    words = {"minimax_m3_sparse": "indexed"} | dict.fromkeys(FULL_ATTENTION, "attention")
    freq = _flags(c, "sparse_attention_config", inside.get("sparse_attention_freq"))
    listed = ["indexed" if is_sparse else "attention" for is_sparse in freq]
    mixers = layer_words(c, words) or listed or ["attention"] * layers
    words = {"sparse": "moe", "dense": "dense"}
    default = _flags(c, "moe_layer_freq", c.fields.get("moe_layer_freq")) or [True] * layers
    has = [word == "moe" for word in layer_words(c, words, "mlp_layer_types")] or default
    if c.problems:
        return {}
    keys = layer_kinds(mixers, has) | ({"ffn": c.figure("dense_intermediate_size")} if not all(has) else {})
    if any(has):
        keys["experts"] = experts_beside_shared(c)["experts"]
    if "indexed" in mixers:
        block, blocks = (sizes[name] or {"value": 1} for name in ("index_block_size", "index_topk_blocks"))
        topk = c.cite(block["value"] * blocks["value"], "index_topk_blocks", "index_block_size")
        keys["indexer"] = {"heads": sizes["index_n_heads"], "head_dim": sizes["index_head_dim"]}
        keys["indexer"] |= {"topk": topk, "block": block}
    return keys


def deepseek_v4(c: Config) -> Keys:
    """Read attention to a window and to compressed keys, experts, and copies of the residual stream.

    One latent vector of a token is key and value of all heads. How a first router looks experts up by token
    changes neither weights nor work.
    """
    layers = c.count("num_hidden_layers") or 0
    rates = _rates(c)
    heads = c.size("num_attention_heads")
    streams = c.figure("hc_mult")
    if heads % c.size("o_groups"):
        c.wrong("o_groups", f"must divide num_attention_heads = {heads}")
    words = {"sliding_attention": "local", "heavily_compressed_attention": "compressed"}
    words |= {"compressed_sparse_attention": "compressed-indexed"}
    of_ratio = {0: "local", 1: "local", rates["compressed"]: "compressed"}
    of_ratio |= {rates["compressed-indexed"]: "compressed-indexed"}
    ratios = c.fields.get("compress_ratios")
    if not isinstance(ratios, list):
        alternate = ["compressed-indexed" if i % 2 else "compressed" for i in range(max(layers - 2, 0))]
        mixers = layer_words(c, words) or ["compressed"] * min(layers, 2) + alternate
    elif len(ratios) < layers or not set(ratios) <= set(of_ratio):
        c.wrong("compress_ratios", f"must hold one of {sorted(of_ratio)} for each of the {layers} layers")
        mixers = []
    else:
        mixers = [of_ratio[ratio] for ratio in ratios[:layers]]
    if c.problems:
        return {}
    keys = layer_kinds(mixers, [True] * layers)
    keys["experts"] = routed_experts(c, "moe_intermediate_size") | shared_width(c, "moe_intermediate_size")
    width = c.figure("head_dim")
    rotary = c.value("qk_rope_head_dim")
    share = 64 / 512 if c.value("partial_rotary_factor") is None else c.factor("partial_rotary_factor")
    turned = rotary if is_whole(rotary) else int(c.size("head_dim") * share)
    value = (width or {"value": 1})["value"]
    if turned >= value:
        c.wrong("qk_rope_head_dim", f"must be below head_dim = {value}")
        return {}
    keys["latent"] = {"kv_rank": width, "q_rank": c.figure("q_lora_rank"), "value_dim": width, "shared": True}
    keys["latent"] |= {"nope_dim": value - turned, "rope_dim": c.cite(turned, "qk_rope_head_dim")}
    keys["latent"] |= {"proj_rank": c.figure("o_lora_rank"), "proj_groups": c.figure("o_groups")}
    if any(mixer != "local" for mixer in mixers):
        sizes = {"rate": rates["compressed"], "indexed_rate": rates["compressed-indexed"]}
        keys["compressed"] = {key: c.cite(rate, "compress_rates") for key, rate in sizes.items()}
    if "compressed-indexed" in mixers:
        keys["indexer"] = _indexer(c)
    return keys | {"local": {"window": c.figure("sliding_window")}, "streams": streams}


def _rates(c: Config) -> dict[str, int]:
    """Return the tokens of a compressed key by what mixes the tokens of a layer."""
    names = {"compressed": ("heavily_compressed_attention", "compress_rate_hca", 128)}
    names["compressed-indexed"] = ("compressed_sparse_attention", "compress_rate_csa", 4)
    given = c.value("compress_rates") or {}
    rates = dict[str, int]()
    for mixer, (word, spelled, default) in names.items():
        rate = c.fields.get(spelled, given.get(word, default) if isinstance(given, dict) else None)
        if not is_whole(rate):
            c.wrong("compress_rates", f"must hold a whole number of at least 1 as {word}")
            rate = default
        rates[mixer] = rate
    return rates


def mamba2(c: Config) -> Keys:
    """Read the heads, states, convolution and chunks of Mamba-2."""
    heads = c.count("mamba_num_heads")
    hidden = c.count("hidden_size")
    if c.value("mamba_head_dim") == "auto":
        width = c.size("mamba_expand") * (hidden or 1) // (heads or 1)
        head_dim: object = c.cite(width, "mamba_expand", "hidden_size", "mamba_num_heads")
    else:
        head_dim = c.figure("mamba_head_dim")
    figures = c.figures(state="ssm_state_size", groups="n_groups", conv="conv_kernel", chunk="chunk_size")
    flags = {"conv_bias": c.flag("use_conv_bias"), "bias": c.flag("use_bias")}
    return {"mamba2": {"heads": c.figure("mamba_num_heads"), "head_dim": head_dim} | figures | flags}


def mamba(c: Config) -> Keys:
    """Read the channels, states and convolution of Mamba-1."""
    hidden = c.size("hidden_size")
    times = c.size("mamba_expand")
    figures: Keys = {"width": c.figure("mamba_width")}
    figures["width"] = figures["width"] or c.cite(times * hidden, "mamba_expand", "hidden_size")
    figures |= c.figures(state="ssm_state_size", conv="conv_kernel")
    if c.value("time_step_rank") == "auto":  # a sixteenth of the width, rounded up
        figures["rank"] = c.cite(-(-hidden // 16), "time_step_rank", "hidden_size")
    else:
        figures["rank"] = c.figure("time_step_rank")
    return {"mamba": figures | {"conv_bias": c.flag("use_conv_bias"), "bias": c.flag("use_bias")}}


def plain_inner_norms(c: Config) -> Keys:
    """Set norms of dt, B and C without weights (Falcon Mamba)."""
    return {"mamba": c.content["mamba"] | {"norm": True, "norm_weights": False}}


def jamba(c: Config) -> Keys:
    """Read which layers of Jamba have attention and which have experts; the other layers have Mamba-1."""
    layers = range(c.count("num_hidden_layers") or 0)

    def layers_with(block: str) -> list[bool]:
        every = c.size(f"{block}_layer_period")
        return [i % every == c.count(f"{block}_layer_offset", least=0) for i in layers]

    has_experts = [has and c.size("num_experts") > 1 for has in layers_with("expert")]
    keys = layer_kinds(["attention" if attends else "mamba" for attends in layers_with("attn")], has_experts)
    keys["mamba"] = c.content["mamba"] | {"norm": True} if not all(layers_with("attn")) else None
    return keys | ({"experts": routed_experts(c, "intermediate_size")} if any(has_experts) else {})


def falcon_h1(c: Config) -> Keys:
    """Read the layers of Falcon-H1, each with attention and Mamba-2 side by side, and the latter's width."""
    keys: Keys = {"layer_kinds": ["attention+mamba2 dense"]}
    heads = c.size("mamba_num_heads")
    width = c.count("mamba_d_ssm")
    if c.value("mamba_head_dim") == "auto" and width is not None:
        head_dim = c.cite(width // heads, "mamba_d_ssm", "mamba_num_heads")
        keys["mamba2"] = c.content["mamba2"] | {"head_dim": head_dim}
    keys["mamba2"] = keys.get("mamba2", c.content["mamba2"]) | {"norm": c.flag("mamba_rms_norm")}
    c.only("projectors_bias", c.value("use_bias"))
    return keys


def read_lightning_layers(c: Config) -> Keys:
    """Read the layers of MiniMax with lightning attention, whose heads are those of attention."""
    words = {"linear_attention": "gated_linear"} | dict.fromkeys(FULL_ATTENTION, "attention")
    layers = c.count("num_hidden_layers") or 0
    listed = _flags(c, "attn_type_list", c.value("attn_type_list"))
    default = ["attention" if (i + 1) % 2 else "gated_linear" for i in range(layers)]
    mixers = layer_words(c, words) or ["attention" if full else "gated_linear" for full in listed] or default
    keys = pairs(c, mixers)
    if "gated_linear" in mixers:
        keys["gated_linear"] = heads_of(c) | {"activated": True, "chunk": c.figure("block_size")}
    return keys


def heads_of(c: Config) -> Keys:
    """Return the heads of lightning attention, those of attention: their number, and one width."""
    heads = c.size("num_attention_heads")
    hidden = c.size("hidden_size")
    width = c.figure("head_dim") or c.cite(hidden // heads, "hidden_size", "num_attention_heads")
    return {"heads": c.figure("num_attention_heads"), "key_dim": width, "value_dim": width}


def recurrent_gemma(c: Config) -> Keys:
    """Read the recurrent units of RecurrentGemma, and the layers with attention to a window instead."""
    words = {"recurrent": "rg_lru", "attention": "local"}
    layers = c.count("num_hidden_layers") or 0
    types = c.value("block_types")
    if not isinstance(types, list) or not types or not set(map(str, types)) <= set(words):
        c.wrong("block_types", f"must be a list of {', '.join(words)}")
        return {}
    mixers = [words[types[i % len(types)]] for i in range(layers)]
    width = "hidden_size" if c.value("lru_width") is None else "lru_width"
    keys = pairs(c, mixers)
    if "rg_lru" in mixers:
        blocks = c.figure("num_attention_heads")
        conv = c.figure("conv1d_width")
        keys["rg_lru"] = {"width": c.figure(width), "blocks": blocks, "conv": conv}
    if "local" in mixers:
        keys["local"] = {"window": c.figure("attention_window_size")}
    keys["biases"] = [*(["qkv"] if c.flag("attention_bias") else []), "proj", "mlp"]
    # The width of gate and up projection together.
    return keys | {"ffn": c.cite((c.count("intermediate_size") or 2) // 2, "intermediate_size")}


def nemotron_h(c: Config) -> Keys:
    """Read the layers of Nemotron-H, each Mamba-2, attention, an MLP or experts, and its experts."""
    letters = {"M": "mamba2 only", "*": "attention only", "-": "dense only", "E": "moe only"}
    words = {"mamba": letters["M"], "linear_attention": letters["M"], "mlp": letters["-"]}
    words |= {"attention": letters["*"], "full_attention": letters["*"], "moe": letters["E"]}
    kinds = layer_words(c, words, "layers_block_type")
    source = "layers_block_type" if kinds else "hybrid_override_pattern"
    kinds = kinds or layer_words(c, letters, "hybrid_override_pattern")
    if not kinds and not c.value("hybrid_override_pattern"):
        c.wrong("hybrid_override_pattern", "must be given, or layers_block_type")
    keys: Keys = {"layers": c.cite(len(kinds), source), "layer_kinds": _stretch(kinds)}
    if "moe only" in kinds:
        shared = {"shared_ffn": c.figure("moe_shared_expert_intermediate_size")}
        keys["experts"] = routed_experts(c, "moe_intermediate_size") | shared
        keys["experts"] |= {"width": c.figure("moe_latent_size")} if c.value("moe_latent_size") else {}
    predicts = c.count("num_nextn_predict_layers", least=0)
    return keys | ({"left_out": "multi-token prediction"} if predicts else {})


def bamba(c: Config) -> Keys:
    """Read which layers of Bamba have attention; the others have Mamba-2."""
    attention = c.numbers("attn_layer_indices")
    layers = c.count("num_hidden_layers") or 0
    return pairs(c, ["attention" if i in attention else "mamba2" for i in range(layers)])


def granite_hybrid(c: Config) -> Keys:
    """Read which layers of Granite 4 have attention, and its experts beside an MLP in every layer."""
    words = {"mamba": "mamba2", "linear_attention": "mamba2"} | dict.fromkeys(FULL_ATTENTION, "attention")
    mixers = layer_words(c, words) or ["mamba2"] * (c.count("num_hidden_layers") or 0)
    keys: Keys = {"positions": "rotary" if c.value("position_embedding_type") == "rope" else "none"}
    if c.count("num_experts", least=0):
        c.content |= experts_beside_shared(c)
    else:
        keys["ffn"] = c.figure("shared_intermediate_size")
    return keys | pairs(c, mixers)


def olmo_hybrid(c: Config) -> Keys:
    """Read the heads of the gated delta net of OLMo, which follow from those of attention if left out."""
    keys = gated_delta(c)
    if not any(kind.startswith("gated_delta") for kind in keys["layer_kinds"]):
        return keys
    hidden = c.size("hidden_size")
    heads = c.figure("num_attention_heads")
    figures = {key: figure for key, figure in keys["gated_delta"].items() if figure is not None}
    figures = {"key_heads": heads, "value_heads": heads} | figures
    if "key_dim" not in figures:
        width = int(0.75 * hidden / (figures["key_heads"] or {"value": 1})["value"])
        figures["key_dim"] = c.cite(width, "hidden_size", "linear_num_key_heads")
    if "value_dim" not in figures:
        width = 2 * (figures["key_dim"] or {"value": 1})["value"]
        figures["value_dim"] = c.cite(width, "linear_key_head_dim")
    return keys | {"gated_delta": figures}


def kimi_delta(c: Config) -> Keys:
    """Read Kimi delta attention and its layers; the others have attention."""
    names = {"num_heads": "linear_num_heads", "head_dim": "linear_head_dim"}
    names["short_conv_kernel_size"] = "linear_conv_kernel_dim"
    heads, dim, conv = (c.figure_in("linear_attn_config", old, name) for old, name in names.items())
    nested = c.fields.get("linear_attn_config")
    layers = c.count("num_hidden_layers") or 0
    inside = nested if isinstance(nested, dict) else {}
    words = {"linear_attention": "gated_delta"} | dict.fromkeys(FULL_ATTENTION, "attention")
    full = inside.get("full_attn_layers")
    group = c.count("layer_group_size", least=0)
    default = [bool((i + 1) % group == 0 if group else i and i % 4 == 0) for i in range(layers)]
    attends = [i + 1 in full for i in range(layers)] if isinstance(full, list) else default
    mixers = layer_words(c, words) or ["attention" if each else "gated_delta" for each in attends]
    keys = pairs(c, mixers)
    if "gated_delta" in mixers:
        keys["gated_delta"] = {"key_heads": heads, "value_heads": heads, "key_dim": dim, "value_dim": dim}
        keys["gated_delta"] |= {"conv": conv, "channel_decay": True, "gate_rank": dim}
    return keys


def ling_delta(c: Config) -> Keys:
    """Read Kimi delta attention with gate and decay in one projection each (Ling 3.0)."""
    keys = kimi_delta(c)
    if "gated_delta" in keys:
        keys["gated_delta"].pop("gate_rank")
    return keys


def xlstm(c: Config) -> Keys:
    """Read the heads of mLSTM, and the widths that are given as factors of the model's."""
    hidden = c.size("hidden_size")
    heads = c.size("num_attention_heads")
    for name, same in {"num_blocks": "num_hidden_layers", "embedding_dim": "hidden_size"}.items():
        if c.fields.get(name) is not None:
            c.only(name, c.value(same))
    wide = {name: c.factor(name) * hidden for name in ("qk_dim_factor", "v_dim_factor", "ffn_proj_factor")}
    for name in ("qk_dim_factor", "v_dim_factor"):
        if int(wide[name]) % heads:
            c.wrong(name, f"times hidden_size = {hidden} must be a multiple of the heads, {heads}")
    dims = {
        key: c.cite(int(wide[name]) // heads, name, "hidden_size", "num_attention_heads")
        for key, name in {"key_dim": "qk_dim_factor", "value_dim": "v_dim_factor"}.items()
    }
    multiple = c.size("ffn_round_up_to_multiple_of")
    ffn = int((wide["ffn_proj_factor"] + multiple - 1) // multiple * multiple)
    net = {"heads": c.figure("num_attention_heads"), "gates": 2, "chunk": c.figure("chunk_size")} | dims
    keys = SIMPLE["alone"](c) | {"layer_kinds": ["gated_linear dense"], "gated_linear": net}
    return keys | {"ffn": c.cite(ffn, "ffn_proj_factor", "hidden_size", "ffn_round_up_to_multiple_of")}


def rwkv(c: Config) -> Keys:
    """Read RWKV-4, whose time mixing is as wide as the model."""
    if c.value("attention_hidden_size") is not None:
        c.only("attention_hidden_size", c.value("hidden_size"))
    keys = SIMPLE["alone"](c) | {"rwkv": {"width": c.figure("hidden_size")}}
    ffn = c.figure("intermediate_size")
    return keys | ({"ffn": ffn} if ffn else four_times_as_wide(c))


def longcat(c: Config) -> Keys:
    """Read LongCat's layers, two of ours: one with an MLP beside its experts, one with an MLP alone."""
    layers = c.size("num_layers")
    zero = c.count("zero_expert_num", least=0)
    experts = routed_experts(c, "moe_intermediate_size") | {"shared_ffn": c.figure("intermediate_size")}
    experts |= {"zero": c.cite(zero, "zero_expert_num")} if zero else {}
    twice = c.cite(2 * layers, "num_layers")
    return {"layers": twice, "layer_kinds": ["moe", "dense"], "experts": experts}


def gated_delta(c: Config) -> Keys:
    """Read the gated delta net and its layers; the others have attention with a gate."""
    words = {"linear_attention": "gated_delta"} | dict.fromkeys(FULL_ATTENTION, "attention")
    layers = c.count("num_hidden_layers") or 0
    every = c.size("full_attention_interval")
    default = ["gated_delta" if (i + 1) % every else "attention" for i in range(layers)]
    keys = pairs(c, layer_words(c, words) or default)
    if any(kind.startswith("gated_delta") for kind in keys["layer_kinds"]):
        heads = c.figures(key_heads="linear_num_key_heads", value_heads="linear_num_value_heads")
        dims = c.figures(key_dim="linear_key_head_dim", value_dim="linear_value_head_dim")
        keys["gated_delta"] = heads | dims | c.figures(conv="linear_conv_kernel_dim")
    return keys


def short_conv(c: Config) -> Keys:
    """Read the short convolutions of LFM2 and which layers have attention instead."""
    attention = c.numbers("full_attn_idxs")
    layers = c.count("num_hidden_layers") or 0
    words = {"conv": "short_conv", "sliding_attention": "local"} | dict.fromkeys(FULL_ATTENTION, "attention")
    listed = ["attention" if i in attention else "short_conv" for i in range(layers)]
    mixers = layer_words(c, words) or (listed if attention else ["attention"] * layers)
    keys = pairs(c, mixers)
    if "local" in mixers:
        keys["local"] = {"window": c.figure("sliding_window")}
    if "short_conv" in mixers:
        sizes = {"width": c.figure("hidden_size"), "conv": c.figure("conv_L_cache")}
        keys["short_conv"] = sizes | {"bias": c.flag("conv_bias")}
    return keys


def lfm2(c: Config) -> Keys:
    """Read the width of the MLP of LFM2: two thirds of what is written, rounded up, if it is adjusted."""
    width = c.count("intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim") or width is None:
        return {}
    if c.value("block_ffn_dim_multiplier") is None:
        return {"ffn": c.cite(2 * width // 3, "intermediate_size")}
    scale = c.factor("block_ffn_dim_multiplier")
    multiple = c.size("block_multiple_of")
    adjusted = -(-int(scale * (2 * width // 3)) // multiple) * multiple
    return {"ffn": c.cite(adjusted, "intermediate_size", "block_ffn_dim_multiplier", "block_multiple_of")}


FEATURES: Final[Mapping[str, Feature]] = {  # by the words of model_types.yaml
    "indexed": read_indexer,
    "block_indexed": block_indexed,
    "deepseek_v4": deepseek_v4,
    "mamba2": mamba2,
    "mamba": mamba,
    "plain_inner_norms": plain_inner_norms,
    "jamba": jamba,
    "falcon_h1": falcon_h1,
    "lightning": read_lightning_layers,
    "recurrent_gemma": recurrent_gemma,
    "nemotron_h": nemotron_h,
    "bamba": bamba,
    "granite_hybrid": granite_hybrid,
    "olmo_hybrid": olmo_hybrid,
    "kimi_delta": kimi_delta,
    "ling_delta": ling_delta,
    "xlstm": xlstm,
    "rwkv": rwkv,
    "longcat": longcat,
    "gated_delta": gated_delta,
    "short_conv": short_conv,
    "lfm2": lfm2,
}
