"""Features of encoder-decoders, their decoders alone, and encoders in a configuration."""

from collections.abc import Mapping
from typing import Any, Final

from traincast.catalog.huggingface.config import Config
from traincast.catalog.huggingface.features import GATED, MAX_ASSUMED_SEQ, PLAIN, Feature, Keys

T5_MLP: Final = {**{f"gated-{word}": mlp for word, mlp in GATED.items()}, **PLAIN}


def decodes_alone(c: Config) -> bool:
    """Return whether a configuration is of a decoder that is trained without its encoder."""
    named = c.fields.get("architectures")
    if isinstance(named, list) and named:
        return str(named[0]).endswith("ForCausalLM")
    return c.fields.get("is_encoder_decoder") is False


def bart(c: Config) -> Keys:
    """Read encoder and decoder with learned positions, both in attention heads and widths of their own.

    A decoder alone attends to an encoder that is left out, whose result is taken to be as long as the text.
    """
    if not decodes_alone(c):  # else encoder and decoder have embeddings of their own
        c.only("tie_word_embeddings", True)
    table = c.count("max_position_embeddings")
    offset = c.count("position_offset", least=0) or 0
    positions = None if table is None else c.sourced(table + offset, "max_position_embeddings")
    keys: Keys = {"biases": ["qkv", "proj", "mlp"]}
    if c.flag("learned_positions"):
        keys |= {"positions": "learned", "max_positions": positions}
    return keys | encoder(c)


def encoder(c: Config) -> Keys:
    """Read the encoder's layers, heads and width, or leave it out."""
    if decodes_alone(c):
        return _alone(c)
    encoding, decoding = c.count("encoder_layers"), c.count("num_hidden_layers")
    figures = {"layers": "encoder_layers", "heads": "encoder_attention_heads", "ffn": "encoder_ffn_dim"}
    read = {key: c.figure(name) for key, name in figures.items()}
    layers = c.sourced((encoding or 0) + (decoding or 0), "encoder_layers", "num_hidden_layers")
    return {"layers": layers, "encoder": {"seq": _encoder_seq(c)} | read}


def _alone(c: Config) -> Keys:
    """Return the keys of a decoder whose encoder is left out."""
    width = c.figure("cross_attention_hidden_size")
    read = {"seq": _encoder_seq(c)} | ({} if width is None else {"width": width})
    return {"encoder": read, "left_out": "encoder"}


def _encoder_seq(c: Config) -> Any:
    """Return the length of the encoder's sequence: that of the decoder, which is assumed."""
    if c.seq is not None:
        return {"value": c.seq, "source": "asked for", "basis": "assumed"}
    context = c.count("max_position_embeddings") or MAX_ASSUMED_SEQ
    return c.sourced(min(context, MAX_ASSUMED_SEQ), "max_position_embeddings") | {"basis": "assumed"}


def t5(c: Config) -> Keys:
    """Read T5: RMS norms, a table of relative positions of each stack, an MLP with a gate or without."""
    buckets, heads = c.count("relative_attention_num_buckets") or 0, c.count("num_attention_heads") or 0
    per_layer = {"small_weights": c.sourced(buckets * heads, "relative_attention_num_buckets")}
    of_both = {"small_end_weights": c.sourced(2 * buckets * heads, "relative_attention_num_buckets")}
    keys: Keys = {"head_dim": c.figure("head_dim"), "mlp": c.word("feed_forward_proj", T5_MLP)}
    return keys | (per_layer if c.flag("relative_in_every_layer") else of_both)


def whisper(c: Config) -> Keys:
    """Read Whisper: an encoder of frames of sound of a fixed number, a decoder of text."""
    keys = bart(c) | {"biases": ["qv", "proj", "mlp"]}
    frames, bins = c.figure("max_source_positions"), c.figure("num_mel_bins")
    read = keys["encoder"] | {"seq": frames}
    return keys | {"encoder": read if "left_out" in keys else read | {"max_positions": frames, "frame": bins}}


def bigbird_pegasus(c: Config) -> Keys:
    """Read the flag for biases of attention; refuse the encoder's sparse attention."""
    keys: Keys = {"biases": (["qkv", "proj"] if c.flag("use_bias") else []) + ["mlp"]}
    if decodes_alone(c):
        return keys | {"tied": False}  # whatever the configuration says
    c.only("attention_type", "original_full")
    return keys


ENCODER_FEATURES: Final[Mapping[str, Feature]] = {  # by the name that model_types.yaml uses
    feature.__name__: feature for feature in (bart, encoder, t5, whisper, bigbird_pegasus)
}
