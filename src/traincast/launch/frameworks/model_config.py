"""A model as a configuration from which Hugging Face transformers builds it: a `config.json`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from traincast.catalog import model_types, read_model
from traincast.core import InputError
from traincast.launch.settings.canonical import model_facts, without_training
from traincast.model import Model

CLASSES: Final = {  # model type -> class that trains it; the first that has all of a model's parts is written
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
ACTIVATIONS: Final = {"swiglu": "silu", "geglu": "gelu", "gelu": "gelu", "relu": "relu", "relu2": "relu2"}
DROPOUT: Final = 0.1  # probability, the default of GPT2Config in transformers
OWN: Final[Mapping[str, Callable[[Model], dict[str, object]]]] = {  # fields of one type alone
    "gpt2": lambda model: dict.fromkeys(
        ("resid_pdrop", "embd_pdrop", "attn_pdrop"), DROPOUT if model.dropout else 0.0
    ),
    "gpt_neox": lambda model: {"use_parallel_residual": model.parallel},
}
WITHOUT: Final = ("global_batch", "inner_dropout")  # facts that a configuration does not hold


def config_of(model: Model) -> dict[str, object]:
    """Return the configuration of a model, whose figures are those of the model once it is read back.

    Raises
    ------
    InputError
        If no type of `CLASSES` has its parts.

    Examples
    --------
    >>> config_of(Model(name="m", layers=2, hidden=64, heads=4, ffn=256, seq=32, vocab=512, causal=True,
    ...                 mlp="swiglu", norm="rmsnorm", biases=(), positions="rotary"))["model_type"]
    'llama'
    """
    if model.vocab is None or not model.head:
        raise InputError(model.name, ["vocab: missing; without embedding and head nothing can be trained"])
    wanted = _facts(model)
    for model_type in CLASSES:
        config = _config(model, model_type)
        try:
            read = read_model(config, model.name, seq=model.seq)
        except InputError:
            continue
        if _facts(read) == wanted:
            return config
    raise InputError(
        model.name,
        [f"transformers builds no such model from the types {', '.join(CLASSES)}: export one file instead"],
    )


def _facts(model: Model) -> dict[str, object]:
    return {
        name: value for name, value in model_facts(without_training(model)).items() if name not in WITHOUT
    }


def _config(model: Model, model_type: str) -> dict[str, object]:
    """Return the configuration of a model as if it were of a type, in the type's names."""
    values: dict[str, Any] = {
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.groups,
        "head_dim": model.head_width,
        "intermediate_size": model.ffn,
        "vocab_size": model.vocab,
        "max_position_embeddings": model.max_positions or model.seq,
        "hidden_act": ACTIVATIONS.get(model.mlp, model.mlp),
        "tie_word_embeddings": model.tied,
        "attention_bias": "qkv" in model.biases,
        "mlp_bias": "mlp" in model.biases,
        **({"sliding_window": model.local.window} if model.local else {}),
        **(OWN[model_type](model) if model_type in OWN else {}),
    }
    if experts := model.experts:
        values |= {
            "num_experts": experts.experts,
            "num_experts_per_tok": experts.topk,
            "moe_intermediate_size": experts.ffn,
            "intermediate_size": model.ffn or experts.ffn,
        }
    known = model_types()[model_type]
    spelled = {names[0]: values[name] for name, names in known.get("names", {}).items() if name in values}
    renamed = {name for name, names in known.get("names", {}).items() if name in values and names[0] != name}
    kept = {name: value for name, value in values.items() if name not in renamed}
    return {"architectures": [CLASSES[model_type]], "model_type": model_type, **kept, **spelled}
