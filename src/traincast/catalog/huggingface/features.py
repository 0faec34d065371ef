"""Features of a model in a configuration: each function reads one and returns keys of a model file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from traincast.catalog.huggingface.config import Config

Keys: TypeAlias = dict[str, Any]
Feature: TypeAlias = Callable[[Config], Keys]
MAX_ASSUMED_SEQ: Final = 8192  # [tokens] training sequence if the context is longer
FULL_ATTENTION: Final = ("attention", "full_attention")  # words for it in `layer_types`
GELU: Final = (  # of transformers, whose kernels differ little
    "gelu",
    "gelu_new",
    "gelu_fast",
    "gelu_pytorch_tanh",
    "gelu_python",
    "gelu_python_tanh",
    "gelu_accurate",
    "gelu_10",
    "quick_gelu",
)
OTHERS: Final = {
    "relu": "relu",
    "relu2": "relu2",
    "relu_squared": "relu2",
    "silu": "silu",
    "swish": "silu",
    "xielu": "xielu",
}
PLAIN: Final[Mapping[str, str]] = dict.fromkeys(GELU, "gelu") | OTHERS
GATED: Final[Mapping[str, str]] = dict.fromkeys((*GELU, "geglu", "gegelu"), "geglu") | {
    "silu": "swiglu",
    "swish": "swiglu",
    "swiglu": "swiglu",
    "relu2": "reglu2",
}
DROPOUTS: Final = (
    "resid_pdrop",
    "embd_pdrop",
    "emb_pdrop",
    "hidden_dropout",
    "hidden_dropout_prob",
    "resid_dropout",
    "residual_dropout",
    "embed_dropout",
    "embedding_dropout",
    "dropout",
    "dropout_rate",
    "dropout_p",
)


def trunk(c: Config) -> Keys:
    """Read layers, widths and dropout."""
    keys = c.figures(layers="num_hidden_layers", hidden="hidden_size", heads="num_attention_heads")
    keys["ffn"] = c.figure("intermediate_size")
    shares = []
    for name in DROPOUTS:
        share = c.fields.get(name, c.defaults.get(name, 0.0))
        if isinstance(share, bool) or not isinstance(share, int | float):
            c.wrong(name, "must be a number")
        shares.append(share)
    return keys | {"dropout": any(shares)} | ({"inner_dropout": False} if any(shares) else {})


def text(c: Config) -> Keys:
    """Read the vocabulary; set causal attention; assume the sequence length, which no configuration has."""
    keys = {"vocab": c.figure("vocab_size"), "tied": c.flag("tie_word_embeddings"), "causal": True}
    if c.seq is not None:
        return keys | {"seq": c.seq}
    context = c.count("max_position_embeddings")
    if context is None:
        return keys
    seq = c.cite(min(context, MAX_ASSUMED_SEQ), "max_position_embeddings") | {"basis": "assumed"}
    seq["source"] += f" = {context}, at most {MAX_ASSUMED_SEQ}"
    return keys | {"seq": seq}


def read_gated_mlp(c: Config) -> Keys:
    """Read the activation of a gated MLP."""
    return {"mlp": c.word("hidden_act", GATED)}


def gemma_gated(c: Config) -> Keys:
    """Read the activation of Gemma's gated MLP: GELU if `hidden_activation` is null."""
    return {"mlp": "geglu" if c.value("hidden_activation") is None else c.word("hidden_activation", GATED)}


def plain(c: Config) -> Keys:
    """Read the activation of an MLP without a gate."""
    return {"mlp": c.word("hidden_act", PLAIN)}


def rotary(c: Config) -> Keys:
    """Set RMS norms and rotary positions."""
    return {"norm": "rmsnorm", "positions": "rotary"}


def bert(c: Config) -> Keys:
    """Read the table of token types, and whether attention is causal.

    The norm of the embedding takes the place of the final one where norms follow blocks.
    """
    keys: Keys = {"causal": c.flag("is_decoder"), "biases": ["qkv", "proj", "mlp"], "head_bias": True}
    return keys | {"token_types": c.count("type_vocab_size", least=0)}


def falcon(c: Config) -> Keys:
    """Read Falcon's heads of keys and values, and its one or two norms before parallel blocks."""
    new = c.flag("new_decoder_architecture")
    is_parallel = c.flag("parallel_attn")
    keys: Keys = {"kv_heads": c.figure("num_key_value_heads")}
    if not new:
        keys["kv_heads"] = {"value": 1, "source": c.place} if c.flag("multi_query") else None
    norms = c.count("num_ln_in_parallel_attn") or (2 if new else 1)
    keys |= {"parallel": new or is_parallel, "norms": norms if new or is_parallel else 2}
    everywhere = ["qkv", "proj", "mlp"] if c.flag("bias") else []
    return keys | {"biases": everywhere, "positions": "none" if c.flag("alibi") else "rotary"}


def multi_query(c: Config) -> Keys:
    """Read the flag for one head of keys and values."""
    return {"kv_heads": c.cite(1, "multi_query")} if c.flag("multi_query") else {}


def head_type(c: Config) -> Keys:
    """Read the flag for one head of keys and values as SantaCoder was first published."""
    kind = c.word("attention_head_type", {"multihead": "all", "multiquery": "one"})
    return {"kv_heads": c.cite(1, "attention_head_type")} if kind == "one" else {}


def experts_beside_shared(c: Config) -> Keys:
    """Read routed experts in every layer, and the width of the shared expert; 0 for none."""
    shared = c.count("shared_intermediate_size", least=0)
    width = {"shared_ffn": c.cite(shared, "shared_intermediate_size")} if shared else {}
    return {"experts": routed_experts(c, "intermediate_size") | width}


def experts_everywhere(c: Config) -> Keys:
    """Read routed and shared experts of one width in every layer."""
    return {"experts": routed_experts(c, "intermediate_size") | shared_width(c, "intermediate_size")}


def sparse_layers(c: Config) -> Keys:
    """Read routed and shared experts in the layers that `mlp_layer_types` calls sparse.

    If it is left out, all but the first layers are.
    """
    layers = c.count("num_hidden_layers") or 0
    first = c.count("first_k_dense_replace", least=0) or 0
    given = c.fields.get("mlp_layer_types") is not None
    types = layer_words(c, {"sparse": "sparse", "dense": "dense"}, "mlp_layer_types") if given else []
    is_moe = [layer == "sparse" for layer in types] if given else [i >= first for i in range(layers)]
    keys = routed_experts(c, "moe_intermediate_size") | shared_width(c, "moe_intermediate_size")
    keys |= _moe_layers(c, is_moe, "mlp_layer_types" if given else "first_k_dense_replace")
    return {"experts": keys} if any(is_moe) else {}


def ernie_experts(c: Config) -> Keys:
    """Read routed and shared experts from a first to a last layer; the router has a bias."""
    layers = c.count("num_hidden_layers") or 0
    every = c.size("moe_layer_interval")
    first = c.count("moe_layer_start_index", least=0) or 0
    last = layers - 1
    if c.value("moe_layer_end_index") != -1:
        last = c.count("moe_layer_end_index", least=0) or 0
    is_moe = [(i + 1) % every == 0 and first <= i <= last for i in range(layers)]
    keys = routed_experts(c, "moe_intermediate_size") | _moe_layers(c, is_moe, "moe_layer_end_index")
    keys |= shared_width(c, "moe_intermediate_size")
    return {"experts": keys | {"router_bias": True}} if any(is_moe) else {}


def window_feature(rule: Callable[[Config, int], bool]) -> Feature:
    """Return a feature that reads the sliding window and its layers.

    These are the layers that `layer_types` names, or else those, counted from 0, that the rule of the model
    type picks.
    """

    def feature(c: Config) -> Keys:
        window = c.figure("sliding_window")
        layers = c.count("num_hidden_layers")
        if window is None or layers is None:
            return {}
        return _local(window, _layer_types(c, "sliding_attention") or [rule(c, i) for i in range(layers)])

    return feature


sliding_everywhere = window_feature(lambda c, i: True)
sliding_every_other = window_feature(lambda c, i: (i + 1) % 2 != 0)
sliding_by_pattern = window_feature(lambda c, i: _is_sliding(c, i))


def _is_sliding(c: Config, i: int) -> bool:
    """Return whether a layer is local by a stretch of letters, L and G, or by the interval of global ones."""
    pattern = c.value("sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        return pattern[i % len(pattern)] == "L"
    return (i + 1) % c.size("sliding_window_pattern") != 0


def qwen_sliding(c: Config) -> Keys:
    """Read the flag for a sliding window, and the first layer with it."""
    if not c.flag("use_sliding_window"):
        return {}
    first = c.count("max_window_layers", least=0) or 0
    return window_feature(lambda c, i: i >= first)(c)


def sliding_by_type(c: Config) -> Keys:
    """Read the sliding window of the layers that `layer_types` names, or the pattern of the model type."""
    if "sliding_window_pattern" in c.defaults:
        return sliding_by_pattern(c)
    if c.fields.get("layer_types") is None and c.value("sliding_window") is not None:
        c.wrong("layer_types", "must be given")
    return window_feature(lambda c, i: False)(c)


def read_chunked_attention(c: Config) -> Keys:
    """Read chunked attention of Llama 4, in the layers with rotary positions."""
    chunk = c.figure("attention_chunk_size")
    layers = c.count("num_hidden_layers")
    every = c.count("no_rope_layer_interval")
    rope_flags = c.numbers("no_rope_layers")
    if chunk is None or layers is None or every is None:
        return {}
    if rope_flags and len(rope_flags) != layers:
        c.wrong("no_rope_layers", f"must hold one number for each of the {layers} layers")
    is_local = [bool(flag) for flag in rope_flags] or [(i + 1) % every != 0 for i in range(layers)]
    keys = _local(chunk, _layer_types(c, "chunked_attention") or is_local)
    if keys:
        keys["local"]["chunked"] = True
    return keys


def _layer_types(c: Config, local: str) -> list[bool]:
    """Read which layers have local attention from `layer_types`; empty if it is left out."""
    if c.fields.get("layer_types") is None:
        return []
    return [word == "local" for word in layer_words(c, {local: "local", "full_attention": ""})]


def _local(window: Keys, is_local: Sequence[bool]) -> Keys:
    """Return the keys of local attention: in all layers, in all but every n-th, or in a list of layers."""
    if not any(is_local):
        return {}
    if all(is_local):
        return {"local": {"window": window}}
    numbers = range(1, len(is_local) + 1)
    every = next((n for n in numbers if [number % n != 0 for number in numbers] == list(is_local)), None)
    if every is not None:
        return {"local": {"window": window, "global_every": every}}
    return {"local": {"window": window, "layers": [number for number in numbers if is_local[number - 1]]}}


def experts(c: Config) -> Keys:
    """Read experts in every layer, as wide as the MLP they replace."""
    return {"experts": routed_experts(c, "intermediate_size")}


def gpt_oss_experts(c: Config) -> Keys:
    """Read the experts of GPT-OSS, whose router has a bias; set attention sinks."""
    return {"experts": routed_experts(c, "intermediate_size") | {"router_bias": True}, "sinks": True}


def qwen_experts(c: Config) -> Keys:
    """Read the experts of Qwen, in every n-th layer except listed ones."""
    layers = c.count("num_hidden_layers")
    every = c.count("decoder_sparse_step")
    dense = c.numbers("mlp_only_layers")
    is_moe = [i not in dense and (i + 1) % (every or 1) == 0 for i in range(layers or 0)]
    keys = routed_experts(c, "moe_intermediate_size") | _moe_layers(c, is_moe, "mlp_only_layers")
    return {"experts": keys} if any(is_moe) else {}


def flint_experts(c: Config) -> Keys:
    """Read the experts of Flint, which have a shared expert without a gate as well."""
    keys = qwen_experts(c)
    width = c.figure("shared_expert_intermediate_size")
    return {"experts": keys["experts"] | {"shared_ffn": width}} if keys else {}


def qwen2_experts(c: Config) -> Keys:
    """Read the experts of Qwen 2, which have a shared expert with a gate as well."""
    keys = flint_experts(c)
    return {"experts": keys["experts"] | {"shared_gate": True}} if keys else {}


def deepseek_experts(c: Config) -> Keys:
    """Read the routed and shared experts of DeepSeek, after leading dense layers."""
    if c.value("n_routed_experts") is None:
        return {}
    layers = c.count("num_hidden_layers")
    every = c.count("moe_layer_freq")
    if c.fields.get("mlp_layer_types"):
        return sparse_layers(c)
    first = c.count("first_k_dense_replace", least=0) or 0
    is_moe = [i >= first and i % (every or 1) == 0 for i in range(layers or 0)]
    keys = routed_experts(c, "moe_intermediate_size") | _moe_layers(c, is_moe, "moe_layer_freq")
    keys |= shared_width(c, "moe_intermediate_size")
    limits = {"groups": "n_group", "group_topk": "topk_group"}
    keys |= c.figures(**{key: name for key, name in limits.items() if c.fields.get(name)})
    return {"experts": keys} if any(is_moe) else {}


def llama4_experts(c: Config) -> Keys:
    """Read the experts of Llama 4: in every n-th layer, one of them shared; wider MLPs elsewhere."""
    layers = c.count("num_hidden_layers")
    every = c.count("interleave_moe_layer_step")
    listed = c.numbers("moe_layers")
    is_moe = [i in listed if listed else (i + 1) % (every or 1) == 0 for i in range(layers or 0)]
    keys = routed_experts(c, "intermediate_size") | {"shared_ffn": c.figure("intermediate_size")}
    keys |= _moe_layers(c, is_moe, "moe_layers")
    return {"ffn": c.figure("intermediate_size_mlp")} | ({"experts": keys} if any(is_moe) else {})


def routed_experts(c: Config, width: str) -> Keys:
    """Read the number of experts, those of a token, and their width."""
    return c.figures(experts="num_experts", topk="num_experts_per_tok", ffn=width)


def shared_width(c: Config, width: str) -> Keys:
    """Read the inner width of all shared experts together."""
    number = c.count("n_shared_experts", least=0)
    if not number:
        return {}
    return {"shared_ffn": c.cite(number * c.size(width), "n_shared_experts", width)}


def _moe_layers(c: Config, is_moe: Sequence[bool], name: str) -> Keys:
    """Return the number of leading dense layers, and the interval of layers with experts after them."""
    layers = range(len(is_moe))
    for first in layers:
        for every in range(1, len(is_moe) - first + 1):
            if [i >= first and (i - first + 1) % every == 0 for i in layers] == list(is_moe):
                return {"first_dense": first, "every": every}
    if any(is_moe):
        rule = "layers with experts must follow at equal distances on dense ones"
        c.wrong(name, f"cannot be represented; {rule}")
    return {}


def latent(c: Config) -> Keys:
    """Read multi-head latent attention, unless it is said not to be used (DeepSeek-VL2)."""
    if c.fields.get("use_mla") is False:
        return SIMPLE["grouped"](c)
    figures = c.figures(kv_rank="kv_lora_rank", q_rank="q_lora_rank", nope_dim="qk_nope_head_dim")
    figures |= c.figures(rope_dim="qk_rope_head_dim", value_dim="v_head_dim")
    return {"latent": {key: figure for key, figure in figures.items() if figure is not None}}


def values_as_wide(c: Config) -> Keys:
    """Set the width of a value where it is left out: the model's, cut into heads (MiniCPM3)."""
    hidden = c.size("hidden_size")
    heads = c.size("num_attention_heads")
    if c.value("v_head_dim") is not None:
        return {}
    width = c.cite(hidden // heads, "hidden_size", "num_attention_heads")
    return {"latent": c.content["latent"] | {"value_dim": width}}


def multi_token_prediction(c: Config) -> Keys:
    """Read the modules for multi-token prediction."""
    modules = c.count("num_nextn_predict_layers", least=0)
    return {"mtp": c.cite(modules, "num_nextn_predict_layers")} if modules else {}


def read_learned_positions(c: Config) -> Keys:
    """Read the length of the table of learned positions."""
    return {"positions": "learned", "max_positions": c.figure("max_position_embeddings")}


def learned_after_two(c: Config) -> Keys:
    """Read the length of the table of learned positions, which has two rows more (OPT, BioGPT)."""
    length = c.count("max_position_embeddings")
    table = None if length is None else c.cite(length + 2, "max_position_embeddings")
    return {"positions": "learned", "max_positions": table}


def four_times_as_wide(c: Config) -> Keys:
    """Read the width of the MLP: four times that of the model if left out."""
    width = c.count("hidden_size")
    if c.value("intermediate_size") is None and width:
        return {"ffn": c.cite(4 * width, "hidden_size")}
    return {}


def as_wide_as_the_model(c: Config) -> Keys:
    """Refuse heads that together are not as wide as the model."""
    heads = c.count("num_attention_heads")
    width = c.count("hidden_size")
    if heads and width and c.value("head_dim") not in (None, width // heads):
        c.wrong("head_dim", "cannot be represented; only hidden_size / num_attention_heads can")
    return {}


def gpt_neo(c: Config) -> Keys:
    """Read the layers of GPT-Neo that attend to a window."""
    window = c.figure("window_size")
    layers = c.size("num_hidden_layers")
    is_local = list[bool]()
    try:
        for kinds, times in c.value("attention_types") or []:
            is_local += [kind == "local" for kind in kinds] * min(times, layers + 1)
        if is_local and len(is_local) != layers:
            c.wrong("attention_types", f"must have {layers} layers")
    except (TypeError, ValueError):
        c.wrong("attention_types", "must be a list of kinds and how often they repeat")
    return {} if window is None else _local(window, is_local)


def mpt(c: Config) -> Keys:
    """Read MPT's width, in multiples of the model's, and what its nested attention settings say."""
    ratio = c.count("expansion_ratio")
    width = c.count("hidden_size")
    nested = c.fields.get("attn_config") or {}
    if nested.get("attn_type", "multihead_attention") != "multihead_attention" or nested.get("qk_ln"):
        c.wrong("attn_config", "cannot be represented; only multihead_attention without qk_ln can")
    keys: Keys = {"positions": "none", "ffn": c.cite((ratio or 1) * (width or 1), "expansion_ratio")}
    if not nested.get("alibi", True):
        c.wrong("attn_config", "cannot be represented; only alibi = true can")
    return keys


def image(c: Config) -> Keys:
    """Read image patches with a class token in place of text; biases and the classifier."""
    side = c.count("image_size")
    patch = c.count("patch_size")
    channels = c.count("num_channels")
    labels = c.fields.get("id2label")
    keys: Keys = {"biases": [*(["qkv"] if c.flag("qkv_bias") else []), "proj", "mlp"], "positions": "learned"}
    if isinstance(labels, dict) and labels:
        keys["classes"] = c.cite(len(labels), "id2label")
    if side is None or patch is None or channels is None:
        return keys
    if side % patch and not c.defaults.get("cuts_rest"):
        c.wrong("patch_size", f"must divide image_size = {side}")
    tokens = c.cite((side // patch) ** 2 + 1, "image_size", "patch_size")
    return keys | {
        "patch": c.cite(patch**2 * channels, "patch_size", "num_channels"),
        "seq": c.seq or tokens,
        "max_positions": tokens,
    }


def layer_words(c: Config, words: Mapping[str, str], name: str = "layer_types") -> list[str]:
    """Read what each layer is in our words; empty if it is left out, or wrong, which is noted."""
    types = c.value(name)
    layers = c.count("num_hidden_layers")
    if types is None:
        return []
    if not isinstance(types, list | str) or not set(map(str, types)) <= set(words):
        c.wrong(name, f"must be a list of {', '.join(words)}")
        return []
    if layers is not None and len(types) != layers:
        c.wrong(name, f"must hold one word for each of the {layers} layers")
    return [words[word] for word in types]


def experts_beside_gated(c: Config) -> Keys:
    """Read routed experts in every layer, and a shared expert with a gate."""
    width = c.figure("shared_expert_intermediate_size")
    return {
        "experts": routed_experts(c, "moe_intermediate_size") | {"shared_ffn": width, "shared_gate": True}
    }


def copy_figures(**fields: str) -> Feature:
    """Return a feature that reads figures as they are: key of a model file = field."""
    return lambda c: c.figures(**fields)


def flags(**fields: str) -> Feature:
    """Return a feature that reads flags as they are: key of a model file = field."""
    return lambda c: {key: c.flag(name) for key, name in fields.items()}


def biases(**fields: str) -> Feature:
    """Return a feature that reads which linear layers have a bias: layer = its flag."""
    return lambda c: {"biases": [layer for layer, name in fields.items() if c.flag(name)]}


def of_experts(key: str) -> Feature:
    """Return a feature that sets a key of experts read before."""
    return lambda c: {"experts": c.content["experts"] | {key: True}} if "experts" in c.content else {}


def keys_if_set(flag: str, **keys: Any) -> Feature:
    """Return a feature that adds keys where a flag of the configuration is set."""
    return lambda c: keys if c.flag(flag) else {}


SIMPLE: Final[Mapping[str, Feature]] = {  # those that are rows
    "grouped": copy_figures(kv_heads="num_key_value_heads", head_dim="head_dim"),
    "alone": copy_figures(layers="num_hidden_layers", hidden="hidden_size"),  # Mamba and nothing else
    "one_more_token": copy_figures(small_end_weights="hidden_size"),  # a row of the embedding (Moshi)
    "last_biased": copy_figures(small_weights="hidden_size"),  # the MLP's second layer alone (TeleChat)
    "gate_biased": copy_figures(small_weights="num_attention_heads"),  # the gate of each head
    "parallel": flags(parallel="use_parallel_residual"),  # blocks with a norm each
    "head_biased": flags(head_bias="head_bias"),
    "biased": biases(qkv="attention_bias", proj="attention_bias", mlp="mlp_bias"),
    "qkv_biased": biases(qkv="qkv_bias"),
    "biased_by_part": biases(qkv="attention_bias", proj="attention_out_bias", mlp="mlp_bias"),
    "router_biased": of_experts("router_bias"),
    "result_normed": of_experts("result_norm"),
    "qk_normed": keys_if_set("qk_norm", qk_norm="full"),  # with separate weights for every head
    "qk_normed_per_head": keys_if_set("qk_norm", qk_norm="head"),  # with weights that all heads share
    "llama4_qk_norm": keys_if_set("use_qk_norm", qk_norm="plain"),  # without weights
    "four_norms": keys_if_set("use_post_norm", norms=4),  # those of the results of both blocks as well
    "stablelm": keys_if_set("use_parallel_residual", parallel=True, norms=1),  # both blocks share a norm
}


FEATURES: Final[Mapping[str, Feature]] = {  # by the words of model_types.yaml
    **SIMPLE,
    "trunk": trunk,
    "text": text,
    "gated": read_gated_mlp,
    "gemma_gated": gemma_gated,
    "plain": plain,
    "rotary": rotary,
    "bert": bert,
    "falcon": falcon,
    "multi_query": multi_query,
    "head_type": head_type,
    "experts_beside_shared": experts_beside_shared,
    "experts_everywhere": experts_everywhere,
    "sparse_layers": sparse_layers,
    "ernie_experts": ernie_experts,
    "sliding_everywhere": sliding_everywhere,
    "sliding_every_other": sliding_every_other,
    "sliding_by_pattern": sliding_by_pattern,
    "qwen_sliding": qwen_sliding,
    "sliding_by_type": sliding_by_type,
    "chunked": read_chunked_attention,
    "experts": experts,
    "gpt_oss_experts": gpt_oss_experts,
    "qwen_experts": qwen_experts,
    "flint_experts": flint_experts,
    "qwen2_experts": qwen2_experts,
    "deepseek_experts": deepseek_experts,
    "llama4_experts": llama4_experts,
    "latent": latent,
    "values_as_wide": values_as_wide,
    "multi_token_prediction": multi_token_prediction,
    "learned": read_learned_positions,
    "learned_after_two": learned_after_two,
    "four_times_as_wide": four_times_as_wide,
    "as_wide_as_the_model": as_wide_as_the_model,
    "gpt_neo": gpt_neo,
    "mpt": mpt,
    "image": image,
    "experts_beside_gated": experts_beside_gated,
}
