"""Settings of Megatron-LM that say what the model is, and the facts they state."""

import re
from typing import Final

from traincast.core import InputError
from traincast.launch.frameworks.layer_patterns import layer_pattern, marked_layers
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.settings import Settings, value_text
from traincast.launch.settings.table import Conversions, Values

LAYERS: Final = ("num_layers", "encoder_num_layers")
BERT: Final = "pretrain_bert.py"
GATED_DELTA: Final = ("gated_delta_net", "gdn")
HYBRID: Final = ("hybrid_layer_pattern", "hybrid_override_pattern")
HYBRID_PROGRAMS: Final = ("pretrain_mamba", "pretrain_hybrid")
HYBRID_STACKS: Final = ("mamba_stack_spec", "hybrid_stack_spec")
MAX_LAYERS: Final = 10_000  # of a pattern
HYBRID_KINDS: Final = {  # hybrid_layer_allocation.py, Symbols; + is latent attention, D with an indexer
    "M": "mamba2 only",
    "G": "gated_delta only",
    "*": "attention only",
    "+": "attention only",
    "D": "indexed only",
    "-": "dense only",
    "E": "moe only",
}
LATENT_LETTERS: Final = {"+", "D"}
PREDICTION_PATTERN: Final = "mtp_hybrid_override_pattern"  # letters of each prediction head, in older scripts
SPARSE: Final = "dsa"  # of --experimental-attention-variant


def write_heads(facts: Facts) -> Values:
    """Write key and value heads where they are fewer, and a width that is not hidden size over heads."""
    settings: dict[str, object] = {}
    if facts.get("kv_heads", facts["heads"]) != facts["heads"]:
        settings |= {"group_query_attention": True, "num_query_groups": facts["kv_heads"]}
    if facts.get("head_dim", 0) * facts["heads"] not in (0, facts["hidden"]):
        settings["kv_channels"] = facts["head_dim"]
    return settings


def read_heads(settings: Settings) -> Facts:
    """Read key and value heads, and the width of a head."""
    heads = settings.count("num_attention_heads")
    width = settings.count("kv_channels")
    if not heads or settings.is_on("multi_latent_attention"):
        return {}
    if settings.is_on("group_query_attention"):
        groups = settings.number("num_query_groups")
    else:
        groups = settings.number("num_key_value_heads", default=heads)
    facts: Facts = {"kv_heads": groups}
    return facts | ({"head_dim": width} if width else {})


def read_ffn(settings: Settings) -> Facts:
    """Read the width of the MLP: by default four times the hidden size, two thirds of that with SwiGLU."""
    hidden = settings.count("hidden_size")
    default = int(4 * hidden * 2 / 3 / 64) * 64 if settings.is_on("swiglu") else 4 * hidden
    return {"ffn": settings.count("ffn_hidden_size", "intermediate_size") or default} if hidden else {}


def read_program(settings: Settings) -> Facts:
    """Read what a program trains besides GPTs: pretrain_bert.py an encoder with BERT's embedding and head.

    It has token types where it predicts which sentence is the next (pretrain_bert.py, `num_tokentypes`).
    """
    without_pairs = settings.is_on("bert_no_binary_head")
    if settings.get("program") != BERT and not without_pairs:
        return {"causal": True}
    types: Facts = {} if without_pairs else {"token_types": 2}
    return {"causal": False, **types, "head_transform": True, "head_bias": True}


def read_encoder(settings: Settings) -> Facts:
    """Read T5: encoder and decoder, each with its number of layers and sequence length."""
    decoder = settings.count("decoder_num_layers")
    is_t5 = str(settings.get("program")).startswith("pretrain_t5")
    if not decoder and not settings.is_on("decoder_seq_length") and not is_t5:
        return {}
    encoder = settings.count("encoder_num_layers", "num_layers")
    decoder = decoder or settings.count("num_layers")
    lengths = {name: settings.count(f"{name}_seq_length", "seq_length") for name in ("encoder", "decoder")}
    facts: Facts = {"encoder.layers": encoder, "encoder.seq": lengths["encoder"]}
    return facts | {"layers": encoder + decoder, "seq": lengths["decoder"], "head_bias": True}


def name_hybrid(settings: Settings) -> None:
    """Name a hybrid's specification without its module, and infer latent attention from its letters.

    Releases have the specification in several modules. arguments.py infers the attention, and refuses both
    kinds in one model (hybrid_layer_allocation.py).
    """
    spec = settings.get("spec")
    if isinstance(spec, tuple) and spec[-1] in HYBRID_STACKS:
        settings["spec"] = spec[-1]
    letters = set(hybrid_pattern(settings))
    if letters & LATENT_LETTERS:
        settings["multi_latent_attention"] = True


def hybrid_pattern(settings: Settings) -> str:
    """Return the letters of a hybrid's layers, with | between pipeline stages; empty if there are none."""
    return next((str(settings[name]) for name in HYBRID if settings.is_on(name)), "")


def read_hybrid(settings: Settings) -> Facts:
    """Read a hybrid's layers, a letter for each, and its Mamba-2; without letters all layers are Mamba-2.

    Defaults are those of arguments.py and mamba_mixer.py.
    """
    pattern = hybrid_pattern(settings)
    program = str(settings.get("program"))
    spec = str(settings.get("spec"))
    if not pattern and (program.startswith(HYBRID_PROGRAMS) or spec.endswith(HYBRID_STACKS)):
        pattern = "M" * min(settings.count("num_layers"), MAX_LAYERS)
    if not pattern:
        return {}
    name = next((name for name in HYBRID if settings.is_on(name)), "num_layers")
    letters, *predictions = pattern.split("/")
    letters = letters.replace("|", "")
    heads = [head for head in predictions if head]
    if settings.is_on(PREDICTION_PATTERN) and not heads:
        heads = [str(settings[PREDICTION_PATTERN])] * settings.count("mtp_num_layers")
    wrong = _against_pattern(letters, heads)
    if wrong:
        raise InputError(name, [f"{name} = {pattern[:60]!r}: {wrong}"])
    width = settings.number("mamba_head_dim", default=64)
    facts: Facts = {
        "layers": len(letters),
        "layer_kinds": tuple(HYBRID_KINDS[letter] for letter in letters),
        "mamba2.head_dim": width,
        "mamba2.heads": settings.count("mamba_num_heads") or 2 * settings.count("hidden_size") // width,
        "mamba2.state": settings.number("mamba_state_dim", default=128),
        "mamba2.groups": settings.number("mamba_num_groups", default=8),
        "mamba2.chunk": 128,
    }
    all_letters = {*letters, *"".join(heads)}
    experts = tuple(i for i, letter in enumerate(letters, 1) if letter == "E")
    facts |= {} if "-" in all_letters else {"ffn": 0}
    if "M" not in all_letters:
        facts = as_facts({name: value for name, value in facts.items() if not name.startswith("mamba2.")})
    facts |= _delta_widths(settings) if "G" in all_letters else {}
    facts |= _indexer(settings) if "D" in all_letters else {}
    facts |= {"moe_layers": experts} if experts else {}
    if heads:
        facts |= {"mtp": len(heads), "mtp_kinds": tuple(HYBRID_KINDS[letter] for letter in heads[0])}
    return facts


def _against_pattern(letters: str, heads: list[str]) -> str:
    """Return what is against a hybrid's letters and those of its prediction heads; empty if nothing is."""
    present = {*letters, *"".join(heads)}
    if unknown := "".join(sorted(present - HYBRID_KINDS.keys())) or not letters:
        return f"layers {unknown} are not supported; known: {', '.join(HYBRID_KINDS)}"
    if len(set(heads)) > 1:
        return "all prediction heads, behind /, must have the same layers"
    if "*" in present and present & LATENT_LETTERS:
        return "attention (*) and latent attention (+, D) in one model, which Megatron-LM refuses"
    return ""


def _delta_widths(settings: Settings) -> Facts:
    """Return heads and widths of Gated DeltaNet; defaults are those of transformer_config.py."""
    return {
        "gated_delta.key_heads": settings.number("linear_num_key_heads", default=16),
        "gated_delta.value_heads": settings.number("linear_num_value_heads", default=32),
        "gated_delta.key_dim": settings.number("linear_key_head_dim", default=128),
        "gated_delta.value_dim": settings.number("linear_value_head_dim", default=128),
        "gated_delta.conv": settings.number("linear_conv_kernel_dim", default=4),
    }


def _indexer(settings: Settings) -> Facts:
    """Return the indexer of sparse attention, whose sizes have no defaults (transformer_config.py)."""
    names = {"heads": "dsa_indexer_n_heads", "head_dim": "dsa_indexer_head_dim", "topk": "dsa_indexer_topk"}
    missing = [name for name in names.values() if not settings.is_on(name)]
    if missing:
        raise InputError(missing[0], [f"{name} = none: sparse attention needs it" for name in missing])
    return as_facts({f"indexer.{part}": settings.number(name) for part, name in names.items()})


def read_linear(settings: Settings) -> Facts:
    """Read Gated DeltaNet, where a number or a pattern says, or sparse attention."""
    variants = {
        str(settings.get(name)) for name in ("experimental_attention_variant", "linear_attention_type")
    }
    layers = settings.count(*LAYERS)
    frequency = str(settings.get("linear_attention_freq", ""))
    if SPARSE in variants and layers:
        with_experts = read_moe_layers(settings).get("moe_layers", ())
        blocks = ("moe" if layer in with_experts else "dense" for layer in range(1, layers + 1))
        return {"layer_kinds": tuple(f"indexed {block}" for block in blocks), **_indexer(settings)}
    if not variants & {*GATED_DELTA} or not layers or not frequency:
        return {}
    linear = set(marked_layers(frequency, layers, "linear_attention_freq"))
    if frequency.isdecimal():
        linear = set(range(1, layers + 1)) - linear
    experts = read_moe_layers(settings).get("moe_layers", ())
    kinds = (
        "gated_delta " * (layer in linear) + ("moe" if layer in experts else "dense")
        for layer in range(1, layers + 1)
    )
    return {"layer_kinds": tuple(kinds), **_delta_widths(settings)}


def write_topk(facts: Facts) -> Values:
    """Write the experts of a token; of one the softmax comes first (transformer_config.py)."""
    topk = facts.get("experts.topk")
    written: dict[str, object] = {"moe_router_topk": topk} if topk else {}
    return {**written, "moe_router_pre_softmax": True} if topk == 1 else written


def read_topk(settings: Settings) -> Facts:
    """Read the experts of a token; Megatron-DeepSpeed's --topk is 1 by default (megatron/arguments.py)."""
    if not settings.count("num_experts"):
        return {}
    default = settings.number("topk") if is_deepspeed(settings) else 2
    return {"experts.topk": settings.number("moe_router_topk", default=default)}


def write_positions(facts: Facts) -> Values:
    """Write the length of the position table, which is required for all kinds of positions."""
    return {"max_position_embeddings": facts.get("max_positions", facts["seq"])}


def read_positions(settings: Settings) -> Facts:
    """Read the length of the table of learned positions."""
    positions = settings.count("max_position_embeddings")
    learned = str(settings.get("position_embedding_type", "learned_absolute")) == "learned_absolute"
    rotary = settings.is_on("use_rotary_position_embeddings")
    return {"max_positions": positions} if positions and learned and not rotary else {}


def write_local(facts: Facts) -> Values:
    """Write a sliding window: tokens before and after the query, and the layers that have it."""
    if "local.window" not in facts or facts.get("local.chunked"):
        return {}
    window = {"window_size": f"{facts['local.window'] - 1},0"}
    if len(facts["local_layers"]) == facts["layers"]:
        return window
    return window | {"window_attn_skip_freq": layer_pattern(facts["local_layers"], facts["layers"])}


def read_local(settings: Settings) -> Facts:
    """Read a sliding window: with a frequency n every n-th layer has full attention."""
    window = settings.get("window_size")
    layers = settings.count(*LAYERS)
    if not settings.is_on("window_size") or not layers:
        return {}
    left = re.match(r"[(\[]?\s*(\d{1,9})[\s,]", value_text(window))
    if left is None:
        raise InputError("window_size", [f"window_size = {window!r}: must be two numbers such as 4095,0"])
    skip = str(settings.get("window_attn_skip_freq", ""))
    local_layers = (
        set(marked_layers(skip, layers, "window_attn_skip_freq")) if skip else set(range(1, layers + 1))
    )
    if skip.isdecimal():
        local_layers = set(range(1, layers + 1)) - local_layers
    return {"local.window": int(left[1]) + 1, "local_layers": tuple(sorted(local_layers))}


def write_latent(facts: Facts) -> Values:
    """Write that attention is multi-latent."""
    return {"multi_latent_attention": True} if "latent.kv_rank" in facts else {}


def read_expert_width(settings: Settings) -> Facts:
    """Read the width of an expert: by default that of the MLP."""
    if not settings.count("num_experts"):
        return {}
    width = settings.count("moe_ffn_hidden_size") or read_ffn(settings).get("ffn")
    return {"experts.ffn": width} if width else {}


def write_moe_layers(facts: Facts) -> Values:
    """Write which layers have experts, where not all have."""
    moe_layers = facts.get("moe_layers")
    if moe_layers is None or len(moe_layers) == facts["layers"]:
        return {}
    return {"moe_layer_freq": layer_pattern(moe_layers, facts["layers"])}


def read_moe_layers(settings: Settings) -> Facts:
    """Read which layers have experts: with a frequency n the first of every n in Megatron-LM, here the last.

    If n does not divide the layers, their number would differ, which is refused.
    """
    layers = settings.count(*LAYERS)
    if not settings.count("num_experts") or not layers or settings.any_on(*HYBRID):
        return {}
    if is_deepspeed(settings):  # the last of every interval
        interval = settings.number("expert_interval", default=2)
        return {"moe_layers": tuple(range(interval, layers + 1, interval))}
    frequency = str(settings.get("moe_layer_freq", "1"))
    if re.fullmatch(r"\d{1,6}", frequency) and int(frequency) and layers % int(frequency):
        with_experts = f"layers 1, {int(frequency) + 1}, … would have experts"
        problem = f"does not divide {layers} layers, and {with_experts}: give `model`"
        raise InputError("moe_layer_freq", [f"moe_layer_freq = {frequency}: {problem}"])
    return {"moe_layers": marked_layers(frequency, layers, "moe_layer_freq")}


def read_capacity(settings: Settings) -> Facts:
    """Read the capacity of experts."""
    name = "moe_expert_capacity_factor"
    if not settings.count("num_experts"):
        return {}
    if is_deepspeed(settings) and not settings.is_on("disable_moe_token_dropping"):
        name = "moe_train_capacity_factor"
        settings = Settings({name: "1.0"} | settings)
    if not settings.is_on(name):
        return {}
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", str(settings[name])):
        raise InputError(name, [f"{name} = {settings[name]!r}: must be a number"])
    return {"experts.capacity": float(str(settings[name]))}


def is_deepspeed(settings: Settings) -> bool:
    """Return whether Megatron-DeepSpeed runs."""
    return settings.any_on("deepspeed", "zero_stage")


CONVERSIONS: Final = Conversions(
    read={
        "capacity": read_capacity,
        "encoder": read_encoder,
        "expert_width": read_expert_width,
        "ffn": read_ffn,
        "heads": read_heads,
        "hybrid": read_hybrid,
        "linear": read_linear,
        "local": read_local,
        "moe_layers": read_moe_layers,
        "positions": read_positions,
        "program": read_program,
        "topk": read_topk,
    },
    write={
        "heads": write_heads,
        "latent": write_latent,
        "local": write_local,
        "moe_layers": write_moe_layers,
        "positions": write_positions,
        "topk": write_topk,
    },
)
