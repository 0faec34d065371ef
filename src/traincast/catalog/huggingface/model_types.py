"""Model types that can be imported: their features, and the defaults of fields that are left out.

The defaults are those of the configuration class of each type in Hugging Face transformers 4.57, or of the code that a model is
published with (DeepSeek, Kimi, Grok). Fields that shape a model and that published files always hold have no default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from traincast.catalog.huggingface.features import (
    Feature,
    biased,
    chunked,
    constant,
    deepseek_experts,
    experts,
    gated,
    gemma_gated,
    gpt2,
    gpt_oss_experts,
    grouped,
    image,
    latent,
    learned,
    llama4_experts,
    llama4_qk_norm,
    multi_token_prediction,
    plain,
    qkv_biased,
    qwen_experts,
    qwen_sliding,
    rotary,
    sliding,
    text,
    trunk,
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Model type: how its configurations are read."""

    features: tuple[Feature, ...]  # features to read, in order; a later one overrides earlier ones
    defaults: Mapping[str, Any] = field(default_factory=dict)  # defaults of fields that are left out
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # spellings of fields, if unusual


DECODER: Final[dict[str, Any]] = {
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
}
GEMMA: Final[dict[str, Any]] = DECODER | {
    "head_dim": 256,
    "hidden_activation": None,
    "tie_word_embeddings": True,
}
QWEN: Final[dict[str, Any]] = DECODER | {
    "sliding_window": 4096,
    "use_sliding_window": False,
    "max_window_layers": 28,
}
QWEN_MOE: Final[dict[str, Any]] = QWEN | {"decoder_sparse_step": 1, "mlp_only_layers": None}
DEEPSEEK: Final[dict[str, Any]] = DECODER | {
    "moe_layer_freq": 1,
    "n_shared_experts": None,
    "num_nextn_predict_layers": 0,
}
LLAMA: Final = (trunk, text, grouped, gated, rotary)
LOCAL_EXPERTS: Final[Mapping[str, tuple[str, ...]]] = {"num_experts": ("num_local_experts", "num_experts")}
QWEN_NAMES: Final[Mapping[str, tuple[str, ...]]] = {"num_experts": ("num_experts", "num_local_experts")}
ROUTED_EXPERTS: Final[Mapping[str, tuple[str, ...]]] = {"num_experts": ("n_routed_experts",)}
GPT2_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "num_hidden_layers": ("n_layer",),
    "hidden_size": ("n_embd",),
    "num_attention_heads": ("n_head",),
    "intermediate_size": ("n_inner",),
    "max_position_embeddings": ("n_positions",),
    "hidden_act": ("activation_function",),
}
sliding_everywhere = sliding(lambda c, i: True)
sliding_every_other = sliding(lambda c, i: (i + 1) % 2 != 0)
sliding_by_pattern = sliding(lambda c, i: (i + 1) % (c.count("sliding_window_pattern") or 1) != 0)
no_bias = constant(biases=[])
deepseek = Family(
    features=(trunk, text, gated, rotary, no_bias, latent, deepseek_experts, multi_token_prediction),
    defaults=DEEPSEEK,
    names=ROUTED_EXPERTS,
)

FAMILIES: Final[Mapping[str, Family]] = {
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "gemma": Family(features=(*LLAMA, biased, gemma_gated), defaults=GEMMA | {"num_key_value_heads": 16}),
    "gemma2": Family(
        features=(*LLAMA, biased, gemma_gated, sliding_every_other, constant(norms=4)),
        defaults=GEMMA
        | {"num_key_value_heads": 4, "sliding_window": 4096, "hidden_activation": "gelu_pytorch_tanh"},
    ),
    "gemma3_text": Family(
        features=(*LLAMA, biased, gemma_gated, sliding_by_pattern, constant(norms=4, qk_norm="head")),
        defaults=GEMMA
        | {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
        }
        | {"sliding_window": 4096, "sliding_window_pattern": 6, "hidden_activation": "gelu_pytorch_tanh"},
        names={"sliding_window_pattern": ("sliding_window_pattern", "_sliding_window_pattern")},
    ),
    "gpt2": Family(
        features=(trunk, text, plain, gpt2, learned, constant(biases=["qkv", "proj", "mlp"])),
        defaults={
            "intermediate_size": None,
            "hidden_act": "gelu_new",
            "tie_word_embeddings": True,
            "add_cross_attention": False,
        }
        | {"resid_pdrop": 0.1, "embd_pdrop": 0.1},
        names=GPT2_NAMES,
    ),
    "gpt_neox": Family(
        features=(trunk, text, plain, biased, constant(positions="rotary")),
        defaults=DECODER | {"hidden_act": "gelu", "attention_bias": True, "mlp_bias": True},
    ),
    "gpt_oss": Family(
        features=(*LLAMA, biased, sliding_every_other, gpt_oss_experts),
        defaults=DECODER
        | {
            "num_key_value_heads": 8,
            "head_dim": 64,
            "sliding_window": 128,
            "attention_bias": True,
            "mlp_bias": True,
        },
        names=LOCAL_EXPERTS,
    ),
    "grok-1": Family(
        features=(*LLAMA, no_bias, experts, constant(norms=4)),
        defaults=DECODER | {"hidden_act": "gelu", "tie_word_embeddings": True},
        names=QWEN_NAMES,
    ),
    "kimi_k2": deepseek,
    "llama": Family(features=(*LLAMA, biased), defaults=DECODER),
    "llama4_text": Family(
        features=(*LLAMA, biased, chunked, llama4_experts, llama4_qk_norm),
        defaults=DECODER
        | {
            "num_key_value_heads": 8,
            "head_dim": 128,
            "attention_chunk_size": 8192,
            "no_rope_layer_interval": 4,
            "use_qk_norm": True,
        }
        | {
            "no_rope_layers": None,
            "interleave_moe_layer_step": 1,
            "moe_layers": None,
            "num_experts_per_tok": 1,
        },
        names=LOCAL_EXPERTS,
    ),
    "mistral": Family(
        features=(*LLAMA, no_bias, sliding_everywhere),
        defaults=DECODER | {"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    "mixtral": Family(
        features=(*LLAMA, no_bias, sliding_everywhere, experts),
        defaults=DECODER | {"num_key_value_heads": 8},
        names=LOCAL_EXPERTS,
    ),
    "nemotron": Family(
        features=(trunk, text, grouped, plain, biased, constant(positions="rotary")),
        defaults=DECODER | {"hidden_act": "relu2"},
    ),
    "olmo2": Family(features=(*LLAMA, biased, constant(qk_norm="full")), defaults=DECODER),
    "phi3": Family(features=(*LLAMA, no_bias, sliding_everywhere), defaults=DECODER),
    "qwen2": Family(
        features=(*LLAMA, qwen_sliding, constant(biases=["qkv"])), defaults=QWEN | {"num_key_value_heads": 32}
    ),
    "qwen2_moe": Family(
        features=(*LLAMA, qwen_sliding, qwen_experts, qkv_biased),
        defaults=QWEN_MOE | {"num_key_value_heads": 16, "qkv_bias": True},
        names=QWEN_NAMES,
    ),
    "qwen3": Family(
        features=(*LLAMA, qwen_sliding, biased, constant(qk_norm="head")),
        defaults=QWEN | {"num_key_value_heads": 32, "head_dim": 128},
    ),
    "qwen3_moe": Family(
        features=(*LLAMA, qwen_sliding, qwen_experts, biased, constant(qk_norm="head")),
        defaults=QWEN_MOE | {"num_key_value_heads": 4},
        names=QWEN_NAMES,
    ),
    "vit": Family(
        features=(trunk, plain, image),
        defaults={"hidden_act": "gelu", "hidden_dropout_prob": 0.0, "num_channels": 3, "qkv_bias": True},
    ),
}
