"""Conversions of llm-foundry's configurations; their table is `tables/llm-foundry.toml`."""

from typing import Final

from traincast.launch.frameworks.checkpoints import catalogue_name, unknown_model
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.settings import Settings
from traincast.launch.settings.table import Conversions

MPT: Final = "mpt_causal_lm"
PRETRAINED: Final = "model.pretrained_model_name_or_path"
GATED: Final = ("mptglu", "mptgeglu")


def named_model(settings: Settings) -> str:
    """Return the model of the catalogue of a checkpoint; empty for MPT, whose sizes are given."""
    if settings.get("model.name") == MPT:
        return ""
    name = str(settings.get(PRETRAINED, settings.get("model.name", "")))
    if not (model := catalogue_name(name)):
        raise unknown_model(PRETRAINED, name)
    return model


def read_mpt(settings: Settings) -> Facts:
    """Read what MPT's defaults decide: heads, width and kind of the MLP, positions, biases."""
    if settings.get("model.name") != MPT:
        return {}
    hidden = settings.count("model.d_model")
    heads = settings.count("model.n_heads")
    few = {"multiquery_attention": 1}.get(str(settings.get("model.attn_config.attn_type")), heads)
    activation = str(settings.get("model.ffn_config.ffn_act_fn.name", "gelu"))
    gated = settings.get("model.ffn_config.ffn_type") in GATED
    learned = str(settings.get("model.learned_pos_emb", True)).lower() != "false"
    rope, alibi = (settings.is_on(f"model.attn_config.{kind}") for kind in ("rope", "alibi"))
    width = settings.number("model.ffn_config.ffn_hidden_size", default=0, least=0)
    gated_mlp = "swiglu" if activation == "silu" else "geglu"
    positions = "learned" if learned and not alibi else "none"
    return {
        "kv_heads": settings.number("model.attn_config.kv_n_heads", default=few or 1),
        "ffn": width or hidden * settings.number("model.expansion_ratio", default=4),
        "mlp": gated_mlp if gated else "gelu",
        "positions": "rotary" if rope else positions,
        "biases": () if settings.is_on("model.no_bias") else ("mlp", "proj", "qkv"),
        "inner_dropout": False,
        "causal": True,
    }


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "mpt": read_mpt,
    },
)
