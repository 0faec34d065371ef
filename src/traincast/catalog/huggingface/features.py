"""Features of a model in a configuration: each function reads one and returns keys of a model file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from traincast.catalog.huggingface.config import Config

Keys: TypeAlias = dict[str, Any]
Feature: TypeAlias = Callable[[Config], Keys]
MAX_ASSUMED_SEQ: Final = 8192  # [tokens] training sequence if the context is longer
GELU: Final = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu")
RELU: Final = {"relu": "relu", "relu2": "relu2", "relu_squared": "relu2"}
PLAIN: Final[Mapping[str, str]] = dict.fromkeys(GELU, "gelu") | RELU
GATED: Final[Mapping[str, str]] = dict.fromkeys(GELU, "geglu") | {"silu": "swiglu", "swish": "swiglu"}
DROPOUTS: Final = ("resid_pdrop", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob")


def trunk(c: Config) -> Keys:
    """Read layers, widths and dropout."""
    names = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads"}
    keys = {key: c.figure(name) for key, name in names.items()} | {"ffn": c.figure("intermediate_size")}
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
    seq = c.sourced(min(context, MAX_ASSUMED_SEQ), "max_position_embeddings") | {"basis": "assumed"}
    seq["source"] += f" = {context}, at most {MAX_ASSUMED_SEQ}"
    return keys | {"seq": seq}


def grouped(c: Config) -> Keys:
    """Read the number of heads of keys and values, and the width of a head."""
    return {"kv_heads": c.figure("num_key_value_heads"), "head_dim": c.figure("head_dim")}


def gated(c: Config) -> Keys:
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


def biased(c: Config) -> Keys:
    """Read the flags for biases: of all projections of attention, and of the MLP."""
    attention = ["qkv", "proj"] if c.flag("attention_bias") else []
    return {"biases": attention + (["mlp"] if c.flag("mlp_bias") else [])}


def qkv_biased(c: Config) -> Keys:
    """Read the flag for biases of queries, keys and values."""
    return {"biases": ["qkv"] if c.flag("qkv_bias") else []}


def sliding(rule: Callable[[Config, int], bool]) -> Feature:
    """Return a feature that reads the sliding window and its layers.

    These are the layers that `layer_types` names, or else those, counted from 0, that the rule of the model
    type picks.
    """

    def feature(c: Config) -> Keys:
        window, layers = c.figure("sliding_window"), c.count("num_hidden_layers")
        if window is None or layers is None:
            return {}
        return _local(window, _layer_types(c, "sliding_attention") or [rule(c, i) for i in range(layers)])

    return feature


sliding_everywhere = sliding(lambda c, i: True)
sliding_every_other = sliding(lambda c, i: (i + 1) % 2 != 0)
sliding_by_pattern = sliding(lambda c, i: (i + 1) % (c.count("sliding_window_pattern") or 1) != 0)


def qwen_sliding(c: Config) -> Keys:
    """Read the flag for a sliding window, and the first layer with it."""
    if not c.flag("use_sliding_window"):
        return {}
    first = c.count("max_window_layers", least=0) or 0
    return sliding(lambda c, i: i >= first)(c)


def chunked(c: Config) -> Keys:
    """Read chunked attention of Llama 4, in the layers with rotary positions."""
    chunk, layers = c.figure("attention_chunk_size"), c.count("num_hidden_layers")
    every, rope_flags = c.count("no_rope_layer_interval"), c.numbers("no_rope_layers")
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
    types = c.fields.get("layer_types")
    if types is None:
        return []
    if not isinstance(types, list) or not set(map(str, types)) <= {local, "full_attention"}:
        c.wrong("layer_types", f"must be a list of {local} and full_attention")
    elif len(types) != c.count("num_hidden_layers"):
        c.wrong("layer_types", f"must hold one word for each of the {c.count('num_hidden_layers')} layers")
    return [layer == local for layer in types] if isinstance(types, list) else []


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
    return {"experts": _experts(c, "intermediate_size")}


def gpt_oss_experts(c: Config) -> Keys:
    """Read the experts of GPT-OSS, whose router has a bias; set attention sinks."""
    return {"experts": _experts(c, "intermediate_size") | {"router_bias": True}, "sinks": True}


def qwen_experts(c: Config) -> Keys:
    """Read the experts of Qwen, in every n-th layer except listed ones."""
    layers, every = c.count("num_hidden_layers"), c.count("decoder_sparse_step")
    dense = c.numbers("mlp_only_layers")
    is_moe = [i not in dense and (i + 1) % (every or 1) == 0 for i in range(layers or 0)]
    keys = _experts(c, "moe_intermediate_size") | _moe_layers(c, is_moe, "mlp_only_layers")
    return {"experts": keys} if any(is_moe) else {}


def qwen2_experts(c: Config) -> Keys:
    """Read the experts of Qwen 2, which have a shared expert with a gate as well."""
    keys, width = qwen_experts(c), c.figure("shared_expert_intermediate_size")
    return {"experts": keys["experts"] | {"shared_ffn": width, "shared_gate": True}} if keys else {}


def deepseek_experts(c: Config) -> Keys:
    """Read the routed and shared experts of DeepSeek, after leading dense layers."""
    if c.value("n_routed_experts") is None:
        return {}
    layers, every = c.count("num_hidden_layers"), c.count("moe_layer_freq")
    first, shared = c.count("first_k_dense_replace", least=0) or 0, c.count("n_shared_experts", least=0)
    is_moe = [i >= first and i % (every or 1) == 0 for i in range(layers or 0)]
    keys = _experts(c, "moe_intermediate_size") | _moe_layers(c, is_moe, "moe_layer_freq")
    if shared:
        width = shared * (c.count("moe_intermediate_size") or 1)
        keys["shared_ffn"] = c.sourced(width, "n_shared_experts", "moe_intermediate_size")
    return {"experts": keys} if any(is_moe) else {}


def llama4_experts(c: Config) -> Keys:
    """Read the experts of Llama 4: in every n-th layer, one of them shared; wider MLPs elsewhere."""
    layers, every = c.count("num_hidden_layers"), c.count("interleave_moe_layer_step")
    listed = c.numbers("moe_layers")
    is_moe = [i in listed if listed else (i + 1) % (every or 1) == 0 for i in range(layers or 0)]
    keys = _experts(c, "intermediate_size") | {"shared_ffn": c.figure("intermediate_size")}
    keys |= _moe_layers(c, is_moe, "moe_layers")
    return {"ffn": c.figure("intermediate_size_mlp")} | ({"experts": keys} if any(is_moe) else {})


def _experts(c: Config, width: str) -> Keys:
    """Read the number of experts, those of a token, and their width."""
    names = {"experts": "num_experts", "topk": "num_experts_per_tok", "ffn": width}
    return {key: c.figure(name) for key, name in names.items()}


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
    """Read multi-head latent attention."""
    c.only("attention_bias", False)
    names = {"kv_rank": "kv_lora_rank", "q_rank": "q_lora_rank", "nope_dim": "qk_nope_head_dim"}
    names |= {"rope_dim": "qk_rope_head_dim", "value_dim": "v_head_dim"}
    figures = {key: c.figure(name) for key, name in names.items()}
    return {"latent": {key: figure for key, figure in figures.items() if figure is not None}}


def multi_token_prediction(c: Config) -> Keys:
    """Read the modules for multi-token prediction."""
    modules = c.count("num_nextn_predict_layers", least=0)
    return {"mtp": c.sourced(modules, "num_nextn_predict_layers")} if modules else {}


def llama4_qk_norm(c: Config) -> Keys:
    """Read the flag for norms of queries and keys, which have no weights."""
    return {"qk_norm": "plain"} if c.flag("use_qk_norm") else {}


def learned(c: Config) -> Keys:
    """Read the length of the table of learned positions."""
    return {"positions": "learned", "max_positions": c.figure("max_position_embeddings")}


def gpt2(c: Config) -> Keys:
    """Read the width of the MLP of GPT-2: four times that of the model if left out."""
    c.only("add_cross_attention", False)
    width = c.count("hidden_size")
    if c.value("intermediate_size") is None and width:
        return {"ffn": c.sourced(4 * width, "hidden_size")}
    return {}


def image(c: Config) -> Keys:
    """Read image patches with a class token in place of text; biases and the classifier."""
    side, patch, channels = c.count("image_size"), c.count("patch_size"), c.count("num_channels")
    labels = c.fields.get("id2label")
    keys: Keys = {"biases": [*(["qkv"] if c.flag("qkv_bias") else []), "proj", "mlp"], "positions": "learned"}
    if isinstance(labels, dict) and labels:
        keys["classes"] = c.sourced(len(labels), "id2label")
    if side is None or patch is None or channels is None:
        return keys
    if side % patch:
        c.wrong("patch_size", f"must divide image_size = {side}")
    tokens = c.sourced((side // patch) ** 2 + 1, "image_size", "patch_size")
    return keys | {
        "patch": c.sourced(patch**2 * channels, "patch_size", "num_channels"),
        "seq": c.seq or tokens,
        "max_positions": tokens,
    }


FEATURES: Final[Mapping[str, Feature]] = {  # by the name that model_types.yaml uses
    "sliding_everywhere": sliding_everywhere,
    "sliding_every_other": sliding_every_other,
    "sliding_by_pattern": sliding_by_pattern,
} | {
    feature.__name__: feature
    for feature in (
        trunk, text, grouped, gated, gemma_gated, plain, rotary, biased, qkv_biased, qwen_sliding, chunked,
        experts, gpt_oss_experts, qwen_experts, qwen2_experts, deepseek_experts, llama4_experts, latent,
        multi_token_prediction, llama4_qk_norm, learned, gpt2, image,
    )
}  # fmt: skip
