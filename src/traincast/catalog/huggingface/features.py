"""What fields of a configuration say of a model: each function reads one feature and returns keys of a model file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from traincast.catalog.huggingface.config import Config

Keys: TypeAlias = dict[str, Any]
Feature: TypeAlias = Callable[[Config], Keys]
LONGEST: Final = 8192  # a training sequence assumed where the context is longer
GELU: Final = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu")
PLAIN: Final[Mapping[str, str]] = dict.fromkeys(GELU, "gelu") | {"relu": "relu", "relu2": "relu2", "relu_squared": "relu2"}
GATED: Final[Mapping[str, str]] = dict.fromkeys(GELU, "geglu") | {"silu": "swiglu", "swish": "swiglu"}
DROPOUTS: Final = ("resid_pdrop", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob")


def constant(**keys: Any) -> Feature:
    """Keys that all models of a type share."""
    return lambda config: dict(keys)


def trunk(c: Config) -> Keys:
    """Layers, widths and dropout."""
    keys = {
        "layers": c.figure("num_hidden_layers"),
        "hidden": c.figure("hidden_size"),
        "heads": c.figure("num_attention_heads"),
        "ffn": c.figure("intermediate_size"),
    }
    dropped = []
    for name in DROPOUTS:
        share = c.fields.get(name, c.defaults.get(name, 0.0))
        if isinstance(share, bool) or not isinstance(share, int | float):
            c.wrong(name, "must be a number")
        dropped.append(share)
    return keys | {"dropout": any(dropped)} | ({"inner_dropout": False} if any(dropped) else {})


def text(c: Config) -> Keys:
    """Vocabulary, causal attention, and the sequence length, which no configuration tells."""
    keys = {"vocab": c.figure("vocab_size"), "tied": c.flag("tie_word_embeddings"), "causal": True}
    if c.seq is not None:
        return keys | {"seq": c.seq}
    context = c.count("max_position_embeddings")
    if context is None:
        return keys
    seq = c.sourced(min(context, LONGEST), "max_position_embeddings") | {"basis": "assumed"}
    seq["source"] += f" = {context}, at most {LONGEST}"
    return keys | {"seq": seq}


def grouped(c: Config) -> Keys:
    """Heads of keys and values, and the width of a head."""
    return {"kv_heads": c.figure("num_key_value_heads"), "head_dim": c.figure("head_dim")}


def gated(c: Config) -> Keys:
    """A gated MLP."""
    return {"mlp": c.word("hidden_act", GATED)}


def gemma_gated(c: Config) -> Keys:
    """Gemma's gated MLP: where `hidden_activation` is null it is GELU, whatever `hidden_act` says."""
    return {"mlp": "geglu" if c.value("hidden_activation") is None else c.word("hidden_activation", GATED)}


def plain(c: Config) -> Keys:
    """An MLP without a gate."""
    return {"mlp": c.word("hidden_act", PLAIN)}


def rotary(c: Config) -> Keys:
    """Root-mean-square norms and rotary positions."""
    return {"norm": "rmsnorm", "positions": "rotary"}


def biased(c: Config) -> Keys:
    """Biases that flags turn on: all of attention's, and the MLP's."""
    attention = ["qkv", "proj"] if c.flag("attention_bias") else []
    return {"biases": attention + (["mlp"] if c.flag("mlp_bias") else [])}


def qkv_biased(c: Config) -> Keys:
    """Biases of queries, keys and values, which a flag turns off."""
    return {"biases": ["qkv"] if c.flag("qkv_bias") else []}


def sliding(rule: Callable[[Config, int], bool]) -> Feature:
    """A sliding window in the layers `layer_types` names, or else in those, counted from 0, that the model type's rule picks."""

    def feature(c: Config) -> Keys:
        window, layers = c.figure("sliding_window"), c.count("num_hidden_layers")
        if window is None or layers is None:
            return {}
        return _local(window, _layer_types(c, "sliding_attention") or [rule(c, i) for i in range(layers)])

    return feature


def qwen_sliding(c: Config) -> Keys:
    """A sliding window from a layer on, where a flag turns it on."""
    if not c.flag("use_sliding_window"):
        return {}
    first = c.count("max_window_layers", least=0) or 0
    return sliding(lambda c, i: i >= first)(c)


def chunked(c: Config) -> Keys:
    """Llama 4: chunked attention in the layers that have rotary positions."""
    chunk, layers = c.figure("attention_chunk_size"), c.count("num_hidden_layers")
    every, rotary_in = c.count("no_rope_layer_interval"), c.numbers("no_rope_layers")
    if chunk is None or layers is None or every is None:
        return {}
    if rotary_in and len(rotary_in) != layers:
        c.wrong("no_rope_layers", f"must hold one number for each of the {layers} layers")
    which = [bool(one) for one in rotary_in] or [(i + 1) % every != 0 for i in range(layers)]
    keys = _local(chunk, _layer_types(c, "chunked_attention") or which)
    if keys:
        keys["local"]["chunked"] = True
    return keys


def _layer_types(c: Config, local: str) -> list[bool]:
    """Which layers attend locally, by name; empty where they are not named."""
    named = c.fields.get("layer_types")
    if named is None:
        return []
    if not isinstance(named, list) or not set(map(str, named)) <= {local, "full_attention"}:
        c.wrong("layer_types", f"must be a list of {local} and full_attention")
    elif len(named) != c.count("num_hidden_layers"):
        c.wrong("layer_types", f"must hold one word for each of the {c.count('num_hidden_layers')} layers")
    return [one == local for one in named] if isinstance(named, list) else []


def _local(window: Keys, which: Sequence[bool]) -> Keys:
    """Local attention in some layers: in all, in all but every n-th, or else layer by layer."""
    if not any(which):
        return {}
    if all(which):
        return {"local": {"window": window}}
    places = range(1, len(which) + 1)
    every = next((n for n in places if [place % n != 0 for place in places] == list(which)), None)
    if every is not None:
        return {"local": {"window": window, "global_every": every}}
    return {"local": {"window": window, "layers": [place for place in places if which[place - 1]]}}


def experts(c: Config) -> Keys:
    """Experts in every layer, as wide as the MLP they replace."""
    return {
        "experts": {
            "experts": c.figure("num_experts"),
            "topk": c.figure("num_experts_per_tok"),
            "ffn": c.figure("intermediate_size"),
        }
    }


def gpt_oss_experts(c: Config) -> Keys:
    """Experts whose router has a bias, and a sink in each head."""
    return {"experts": experts(c)["experts"] | {"router_bias": True}, "sinks": True}


def qwen_experts(c: Config) -> Keys:
    """Experts in every n-th layer, but for some."""
    layers, every, dense = c.count("num_hidden_layers"), c.count("decoder_sparse_step"), c.numbers("mlp_only_layers")
    which = [i not in dense and (i + 1) % (every or 1) == 0 for i in range(layers or 0)]
    found = _narrow_experts(c) | _moe_layers(c, which, "mlp_only_layers")
    if c.model_type == "qwen2_moe":
        found |= {"shared_ffn": c.figure("shared_expert_intermediate_size"), "shared_gate": True}
    return {"experts": found} if any(which) else {}


def deepseek_experts(c: Config) -> Keys:
    """Routed and shared experts after some dense layers."""
    if c.value("n_routed_experts") is None:
        return {}
    layers, every = c.count("num_hidden_layers"), c.count("moe_layer_freq")
    first, shared = c.count("first_k_dense_replace", least=0) or 0, c.count("n_shared_experts", least=0)
    which = [i >= first and i % (every or 1) == 0 for i in range(layers or 0)]
    found = _narrow_experts(c) | _moe_layers(c, which, "moe_layer_freq")
    if shared:
        found["shared_ffn"] = c.sourced(
            shared * (c.count("moe_intermediate_size") or 1), "n_shared_experts", "moe_intermediate_size"
        )
    return {"experts": found} if any(which) else {}


def llama4_experts(c: Config) -> Keys:
    """Experts and one shared expert of the same width in every n-th layer; the other layers are wider."""
    layers, every, named = c.count("num_hidden_layers"), c.count("interleave_moe_layer_step"), c.numbers("moe_layers")
    which = [i in named if named else (i + 1) % (every or 1) == 0 for i in range(layers or 0)]
    found = experts(c)["experts"] | {"shared_ffn": c.figure("intermediate_size")} | _moe_layers(c, which, "moe_layers")
    return {"ffn": c.figure("intermediate_size_mlp")} | ({"experts": found} if any(which) else {})


def _narrow_experts(c: Config) -> Keys:
    """Experts of a width of their own."""
    return {"experts": c.figure("num_experts"), "topk": c.figure("num_experts_per_tok"), "ffn": c.figure("moe_intermediate_size")}


def _moe_layers(c: Config, which: Sequence[bool], name: str) -> Keys:
    """Dense layers at the beginning, and every how many layers after them one has experts."""
    spare = range(len(which))
    for first in spare:
        for every in range(1, len(which) - first + 1):
            if [i >= first and (i - first + 1) % every == 0 for i in spare] == list(which):
                return {"first_dense": first, "every": every}
    if any(which):
        c.wrong(name, "cannot be represented; layers with experts must follow at equal distances on dense ones")
    return {}


def latent(c: Config) -> Keys:
    """Multi-head latent attention."""
    c.only("attention_bias", False)
    names = {"kv_rank": "kv_lora_rank", "q_rank": "q_lora_rank", "nope_dim": "qk_nope_head_dim", "rope_dim": "qk_rope_head_dim"}
    found = {key: c.figure(name) for key, name in names.items()} | {"value_dim": c.figure("v_head_dim")}
    return {"latent": {key: value for key, value in found.items() if value is not None}}


def further_tokens(c: Config) -> Keys:
    """Modules that predict further tokens."""
    found = c.count("num_nextn_predict_layers", least=0)
    return {"mtp": c.sourced(found, "num_nextn_predict_layers")} if found else {}


def llama4_qk_norm(c: Config) -> Keys:
    """Queries and keys normed without weights, where a flag says so."""
    return {"qk_norm": "plain"} if c.flag("use_qk_norm") else {}


def learned(c: Config) -> Keys:
    """A table of learned positions."""
    return {"positions": "learned", "max_positions": c.figure("max_position_embeddings")}


def gpt2(c: Config) -> Keys:
    """GPT-2: the MLP is four times as wide as the model where nothing else is said."""
    c.only("add_cross_attention", False)
    width = c.count("hidden_size")
    if c.value("intermediate_size") is None and width:
        return {"ffn": c.sourced(4 * width, "hidden_size")}
    return {}


def image(c: Config) -> Keys:
    """Patches of an image and a class token in place of text; biases and the classifier."""
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
