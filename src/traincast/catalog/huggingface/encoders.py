"""Features of encoder-decoders, their decoders alone, and encoders."""

from collections.abc import Mapping
from typing import Any, Final

from traincast.catalog.huggingface.config import Config
from traincast.catalog.huggingface.features import (
    GATED,
    MAX_ASSUMED_SEQ,
    PLAIN,
    Feature,
    Keys,
    layer_words,
    routed_experts,
)

SOUND_FRAMES: Final = 1499  # [frames] of 30 s: 480,000 samples at a stride of 320 (arXiv 2006.11477)
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
    positions = None if table is None else c.cite(table + offset, "max_position_embeddings")
    keys: Keys = {"biases": ["qkv", "proj", "mlp"]}
    if c.flag("learned_positions"):
        keys |= {"positions": "learned", "max_positions": positions}
    return keys | encoder(c)


def encoder(c: Config) -> Keys:
    """Read the encoder's layers, heads and width, or leave it out."""
    if decodes_alone(c):  # its encoder is left out
        width = c.figure("cross_attention_hidden_size")
        alone = {"seq": encoder_seq(c)} | ({} if width is None else {"width": width})
        return {"encoder": alone, "left_out": "encoder"}
    encoding = c.count("encoder_layers")
    decoding = c.count("num_hidden_layers")
    read = c.figures(layers="encoder_layers", heads="encoder_attention_heads", ffn="encoder_ffn_dim")
    layers = c.cite((encoding or 0) + (decoding or 0), "encoder_layers", "num_hidden_layers")
    return {"layers": layers, "encoder": {"seq": encoder_seq(c)} | read}


def encoder_seq(c: Config) -> Any:
    """Return the length of the encoder's sequence: that of the decoder, which is assumed."""
    if c.seq is not None:
        return {"value": c.seq, "source": "requested", "basis": "assumed"}
    context = c.count("max_position_embeddings") or MAX_ASSUMED_SEQ
    return c.cite(min(context, MAX_ASSUMED_SEQ), "max_position_embeddings") | {"basis": "assumed"}


def t5(c: Config) -> Keys:
    """Read T5: RMS norms, a table of relative positions of each stack, an MLP with a gate or without."""
    buckets = c.count("relative_attention_num_buckets") or 0
    heads = c.count("num_attention_heads") or 0
    per_layer = {"small_weights": c.cite(buckets * heads, "relative_attention_num_buckets")}
    of_both = {"small_end_weights": c.cite(2 * buckets * heads, "relative_attention_num_buckets")}
    keys: Keys = {"head_dim": c.figure("head_dim"), "mlp": c.word("feed_forward_proj", T5_MLP)}
    if "EncoderModel" in str(c.fields.get("architectures")):  # trained without its decoder
        of_both = {"small_end_weights": c.cite(buckets * heads, "relative_attention_num_buckets")}
        keys |= {"causal": False, "layers": c.figure("encoder_layers"), "encoder": None}
    return keys | (per_layer if c.flag("relative_in_every_layer") else of_both)


def sparse_stacks(c: Config) -> Keys:
    """Read experts in some layers of encoder and decoder (Switch, NLLB-MoE), as wide as other MLPs."""
    kinds = list[str]()
    last = c.flag("experts_end_stretches")
    for stack, name in {"encoder": "encoder_layers", "decoder": "num_hidden_layers"}.items():
        layers = c.count(name) or 0
        every = c.value(f"{stack}_sparse_step")
        if every is None:
            sparse = c.count(f"num_sparse_{stack}_layers", least=0)
            every = layers // sparse if sparse else layers
        if not isinstance(every, int) or isinstance(every, bool) or every < 0:
            c.wrong(f"{stack}_sparse_step", "must be a whole number of at least 0")
            return {}
        place = (every - 1) if last else min(every - 1, 1)
        has = [every > 0 and i % every == place for i in range(layers)]
        kinds += [f"{stack} {'moe' if is_moe else 'dense'}" for is_moe in has]
    if c.count("encoder_ffn_dim") != c.count("intermediate_size"):  # of experts in both stacks
        c.only("encoder_ffn_dim", c.count("intermediate_size"))
    experts = routed_experts(c, "encoder_ffn_dim")
    return {"layer_kinds": kinds} | ({"experts": experts} if any("moe" in kind for kind in kinds) else {})


def longt5(c: Config) -> Keys:
    """Read the encoder's window, to both sides; of attention to sums of blocks, weights alone count."""
    radius, e, heads = (c.size(name) for name in ("local_radius", "hidden_size", "num_attention_heads"))
    window = c.cite(2 * radius + 1, "local_radius")
    keys: Keys = {"encoder": c.content["encoder"] | {"window": window}}
    if c.word("encoder_attention_type", {"local": "", "transient-global": "global"}) != "global":
        return keys
    table = (c.count("relative_attention_num_buckets") or 0) * heads
    ends = c.content["small_end_weights"]
    keys["encoder"]["small_weights"] = c.cite(e, "encoder_attention_type", "hidden_size")
    keys["small_end_weights"] = ends | {"value": ends["value"] + table}
    return keys | {"left_out": "attention to sums of blocks"}


def led(c: Config) -> Keys:
    """Read the window of LED's encoder, half of it to each side; projections of global tokens count."""
    keys = bart(c)
    window = _window(c)
    e = c.size("hidden_size")
    small = c.cite(3 * (e * e + e), "hidden_size")
    encoder = keys["encoder"] | {"max_positions": c.figure("max_encoder_position_embeddings")}
    encoder |= {"small_weights": small} | ({"window": window} if window else {})
    return keys | {"encoder": encoder, "left_out": "global attention"}


def whisper(c: Config) -> Keys:
    """Read Whisper: an encoder of frames of sound of a fixed number, a decoder of text."""
    keys = bart(c) | {"biases": ["qv", "proj", "mlp"]}
    frames = c.figure("max_source_positions")
    bins = c.figure("num_mel_bins")
    read = keys["encoder"] | {"seq": frames}
    return keys | {"encoder": read if "left_out" in keys else read | {"max_positions": frames, "frame": bins}}


def bigbird_pegasus(c: Config) -> Keys:
    """Read the flag for biases of attention; refuse the encoder's sparse attention."""
    keys: Keys = {"biases": (["qkv", "proj"] if c.flag("use_bias") else []) + ["mlp"]}
    if decodes_alone(c):
        return keys | {"tied": False}  # whatever the configuration says
    c.only("attention_type", "original_full")
    return keys


def big_bird(c: Config) -> Keys:
    """Read the flag for biases of queries, keys and values; sparse attention is taken for full attention."""
    c.word("attention_type", {"block_sparse": "", "original_full": ""})
    is_sparse = c.value("attention_type") == "block_sparse"
    keys: Keys = {"biases": [*(["qkv"] if c.flag("use_bias") else []), "proj", "mlp"]}
    return keys | ({"left_out": "block sparsity"} if is_sparse else {})


def roc_bert(c: Config) -> Keys:
    """Read RoCBert: pronunciation and shape of a token are embedded besides, and joined by a projection."""
    e = c.size("hidden_size")
    width = c.size("hidden_size")
    tables = 0
    for part in ("pronunciation", "shape"):
        dim, rows = (c.size(f"{part}_{name}") for name in ("embed_dim", "vocab_size"))
        width += dim * c.flag(f"enable_{part}")
        tables += rows * dim  # even if it is not enabled
    if not c.flag("concat_input"):
        return {"small_end_weights": c.cite(tables, "shape_vocab_size", "pronunciation_vocab_size")}
    small = c.cite(tables + e, "shape_vocab_size", "pronunciation_vocab_size")
    return {"small_end_weights": small, "beside_layers": [[width, e]]}


def xmod(c: Config) -> Keys:
    """Read X-MOD's adapters, one for each language, of which a token passes one."""
    e = c.size("hidden_size")
    factor = c.size("adapter_reduction_factor")
    languages = c.value("languages")
    if not isinstance(languages, list) or not languages:
        c.wrong("languages", "must be a list of names")
        return {}
    f = e // factor
    small = (len(languages) - 1) * 2 * e * f + len(languages) * (e + f)
    small += 2 * e if c.flag("adapter_layer_norm") else 0
    weights = c.cite(small, "languages", "adapter_reduction_factor")
    return {"beside": [[e, f], [f, e]], "small_weights": weights}


def xlnet(c: Config) -> Keys:
    """Read XLNet without the scores of relative positions, whose projection and biases count."""
    e = c.size("hidden_size")
    heads = c.size("num_attention_heads")
    width = heads * (c.count("head_dim") or e // heads)
    small = c.cite(e * width + 5 * width, "hidden_size", "num_attention_heads")
    keys: Keys = {"biases": ["mlp"], "small_weights": small, "small_end_weights": c.figure("hidden_size")}
    return keys | {"head_dim": c.figure("head_dim"), "left_out": "scores of relative positions"}


def own_width(c: Config) -> Keys:
    """Read the width of the embedding; that of the head, if it has one of its own, is the embedding's."""
    width = c.figure("embedding_size")
    hidden = c.count("hidden_size")
    head = c.figure("output_embedding_size")
    if width is None or (width["value"] == hidden and not c.flag("always_projected")):
        return {}
    return {"own_width": {"width": width} | ({} if head is None else {"head_width": head})}


def opt_width(c: Config) -> Keys:
    """Read OPT's width of embedding and head, and its final norm; positions are as wide as the model."""
    width = c.count("word_embed_proj_dim")
    keys: Keys = {"final_norm": c.flag("do_layer_norm_before")}
    if width is None or width == c.count("hidden_size"):
        return keys
    return keys | {
        "own_width": {"width": c.figure("word_embed_proj_dim"), "bias": False, "wide_positions": True}
    }


def esm(c: Config) -> Keys:
    """Count the regression on attention maps of ESM-2's model of contacts."""
    contacts = (c.count("num_hidden_layers") or 0) * (c.count("num_attention_heads") or 0) + 1
    return {"small_end_weights": c.cite(contacts, "num_hidden_layers", "num_attention_heads")}


def roformer(c: Config) -> Keys:
    """Count the table of rotary positions, which transformers holds as a parameter."""
    length, hidden, heads = (
        c.size(name) for name in ("max_position_embeddings", "hidden_size", "num_attention_heads")
    )
    return {"small_end_weights": c.cite(length * (hidden // heads), "max_position_embeddings")}


def relative_bias(c: Config) -> Keys:
    """Read the table of relative positions that all layers share (MPNet)."""
    buckets = c.count("relative_attention_num_buckets") or 0
    heads = c.count("num_attention_heads") or 0
    return {"small_end_weights": c.cite(buckets * heads, "relative_attention_num_buckets")}


def modernbert(c: Config) -> Keys:
    """Read ModernBERT: a window in most layers, norms without shift, none before the first layer.

    The norm of the embedding takes the place of that of the first layer.
    """
    c.only("norm_bias", False)
    keys: Keys = {"transform_bias": c.flag("classifier_bias"), "head_bias": c.flag("decoder_bias")}
    window = c.count("local_attention")
    every = c.size("global_attn_every_n_layers")
    words = layer_words(c, {"sliding_attention": "local", "full_attention": ""})
    rule = ["local" if i % every else "" for i in range(c.size("num_hidden_layers"))]
    layers = [i for i, word in enumerate(words or rule, 1) if word]
    if window is None or not layers:
        return keys
    return keys | {"local": {"window": c.cite(window // 2 * 2 + 1, "local_attention"), "layers": layers}}


def deberta(c: Config) -> Keys:
    """Read DeBERTa-v2 and v3: positions in the embedding, or relative ones in attention.

    The table of relative positions counts; the scores with it are left out. They are as costly as the others
    where the table has as many rows as a sequence has tokens.
    """
    keys: Keys = {"causal": False, "biases": ["qkv", "proj", "mlp"], "head_bias": True}
    keys["token_types"] = c.count("type_vocab_size", least=0)
    hidden = c.size("hidden_size")
    kernel = c.fields.get("conv_kernel_size", 0)
    if not isinstance(kernel, int) or kernel < 0:
        c.wrong("conv_kernel_size", "must be a whole number of at least 0")
    elif kernel > 0:  # beside the first layer: a convolution, its bias and a norm
        small = c.cite(3 * hidden, "conv_kernel_size", "hidden_size")
        keys |= {"beside_layers": [[kernel * hidden, hidden]], "small_end_weights": small}
    if not c.flag("position_biased_input"):
        keys["positions"] = "none"
    if not c.flag("relative_attention"):
        return keys
    kinds = c.value("pos_att_type") or []
    if kinds and "share_att_key" in c.defaults and not c.flag("share_att_key"):
        c.only("share_att_key", True)
    rows = c.fields.get("position_buckets")
    if not isinstance(rows, int) or rows < 1:
        rows = c.value("max_relative_positions")
    if not isinstance(rows, int) or rows < 1:
        rows = c.size("max_position_embeddings")
    normed = 2 * hidden if "layer_norm" in str(c.fields.get("norm_rel_ebd")) else 0
    small = normed + keys.get("small_end_weights", {"value": 0})["value"]
    weights = c.cite(2 * rows * hidden + small, "max_relative_positions")
    return keys | {"small_end_weights": weights, "left_out": "scores of relative positions"}


def deberta_v1(c: Config) -> Keys:
    """Read DeBERTa, whose keys have no bias, and whose layers project relative positions themselves."""
    keys = deberta(c) | {"biases": ["qv", "proj", "mlp"]}
    e = c.size("hidden_size")
    kinds = str(c.value("pos_att_type"))
    small = e * e * ("c2p" in kinds) + (e * e + e) * ("p2c" in kinds)
    if not (c.flag("relative_attention") and small):
        return keys
    return keys | {"small_weights": c.cite(small, "pos_att_type", "hidden_size")}


def longformer(c: Config) -> Keys:
    """Read the window of Longformer, half of it to each side; projections of global tokens count."""
    e = c.size("hidden_size")
    window = _window(c)
    if window is None:
        return {}
    small = c.cite(3 * (e * e + e), "hidden_size")
    return {"local": {"window": window}, "small_weights": small, "left_out": "global attention"}


def _window(c: Config) -> Any:
    """Return the tokens of `attention_window`, half to each side; None if it is wrong, which is noted."""
    windows = c.fields.get("attention_window", 512)
    widths = set(map(str, windows)) if isinstance(windows, list) else {str(windows)}
    width = next(iter(widths), "")
    if len(widths) != 1 or not width.isdigit() or width == "0":
        c.wrong("attention_window", "must be a whole number, one for all layers")
        return None
    return {"value": int(width) // 2 * 2 + 1, "source": f"{c.place}: attention_window"}


def last_biased_bert(c: Config) -> Keys:
    """Count the bias of a gated MLP's second layer, which has the only one there."""
    return {"biases": ["qkv", "proj"], "small_weights": c.figure("hidden_size")}


def dinov2(c: Config) -> Keys:
    """Read DINOv2: scales of the residual stream, tokens of class and mask; two vectors to classify."""
    hidden = c.size("hidden_size")
    keys: Keys = {"ffn": c.cite(int(c.factor("mlp_ratio") * hidden), "mlp_ratio", "hidden_size")}
    if c.flag("use_swiglu_ffn"):  # two thirds, in multiples of 8
        keys = {
            "mlp": "swiglu",
            "ffn": c.cite((int(keys["ffn"]["value"] * 2 / 3) + 7) // 8 * 8, "mlp_ratio"),
        }
    keys["small_weights"] = c.cite(2 * hidden, "hidden_size")
    tokens = (1 + c.flag("use_mask_token")) * hidden
    classifies = "ForImageClassification" in str(c.fields.get("architectures"))
    labels = len(c.fields.get("id2label") or "01") if classifies else 0  # 2 if left out, as transformers
    keys |= {"small_end_weights": c.cite(tokens + labels * hidden, "hidden_size", "use_mask_token")}
    return keys | {"classes": c.cite(labels, "id2label") if labels else None}


def contrastive(c: Config) -> Keys:
    """Read a vision tower of CLIP or SigLIP; CLIP's has a class token and a norm of the embedding."""
    keys: Keys = {"classes": None, "biases": ["qkv", "proj", "mlp"]}
    alone = "VisionModel" in str(c.fields.get("architectures"))
    others = [] if alone else ["text tower"]
    if c.flag("class_token"):
        width = 0 if alone else c.count("projection_dim") or 0
        projected = c.cite(width * (c.count("hidden_size") or 0), "projection_dim")
        keys |= {"embedding_norm": True, "small_end_weights": projected}
    else:
        side = c.count("image_size") or 0
        patch = c.size("patch_size")
        tokens = c.cite((side // patch) ** 2, "image_size", "patch_size")
        keys |= {"seq": c.seq or tokens, "max_positions": tokens}
        others += ["pooling head"] if c.flag("vision_use_head") else []
    return keys | ({"left_out": " and ".join(others)} if others else {})


def vit(c: Config) -> Keys:
    """Read ViT's class token, and a pooler in place of the classifier if the architecture says so."""
    hidden = c.count("hidden_size") or 0
    named = c.fields.get("architectures")
    if not (isinstance(named, list) and named and str(named[0]).endswith("Model")):
        return {"small_end_weights": c.cite(hidden, "hidden_size")}
    return {"classes": None, "small_end_weights": c.cite(hidden * (hidden + 2), "hidden_size")}


def more_tokens(c: Config, number: int) -> Keys:
    """Return the keys of an image with more trained tokens, counted among those of its positions."""
    given = {name: c.content.get(name) for name in ("seq", "max_positions")}
    return {
        name: figure | {"value": figure["value"] + number}
        for name, figure in given.items()
        if isinstance(figure, dict)
    }


def registers(c: Config) -> Keys:
    """Add the register tokens of DINOv2 (arXiv 2309.16588)."""
    return more_tokens(c, c.count("num_register_tokens", least=0) or 0)


def read_distillation_token(c: Config) -> Keys:
    """Add the token of DeiT that learns from a teacher, which has a position as well."""
    small = c.content["small_end_weights"]
    weights = small | {"value": small["value"] + (c.count("hidden_size") or 0)}
    return more_tokens(c, 1) | {"small_end_weights": weights}


def sound(c: Config) -> Keys:
    """Read what follows the convolutions of wav2vec 2.0, whose results are embedded as image patches are.

    Sequences are taken to be 30 s of sound, which the usual convolutions make 1,499 frames of.
    """
    named = c.fields.get("architectures")
    hidden = c.size("hidden_size")
    dims = c.numbers("conv_dim")
    architecture = str(named[0]) if isinstance(named, list) and named else "Model"
    values = dims[-1] if dims else 512
    labels = c.figure("vocab_size") if architecture.endswith("ForCTC") else None
    small = 2 * values + hidden  # norm of the frames, and what masked ones are replaced with
    return {
        "patch": c.cite(values, "conv_dim"),
        "classes": labels,
        "biases": ["qkv", "proj", "mlp"],
        "positions": "none",
        "small_end_weights": c.cite(small, "conv_dim", "hidden_size"),
        "seq": c.seq or {"value": SOUND_FRAMES, "source": f"{c.place}: 30 s of sound", "basis": "assumed"},
        "left_out": "convolutions" if architecture.endswith(("Model", "ForCTC")) else "convolutions and head",
    }


def xlm(c: Config) -> Keys:
    """Read XLM: four times as wide inside, GELU or ReLU, an embedding of languages if there are several."""
    hidden = c.size("hidden_size")
    languages = c.size("n_langs")
    keys: Keys = {"ffn": c.cite(4 * hidden, "hidden_size"), "causal": c.flag("causal")}
    keys["mlp"] = "gelu" if c.flag("gelu_activation") else "relu"
    if languages > 1 and c.flag("use_lang_emb"):
        keys["small_end_weights"] = c.cite(languages * hidden, "n_langs")
    return keys


def head_of(c: Config, architecture: object) -> str | None:
    """Return the pieces that follow the layers of an architecture; None if it is not known."""
    ends = [end for end in c.heads if str(architecture).endswith(end)]
    return c.heads[max(ends, key=len)] if ends else None


def head_keys(c: Config, content: Keys, document: Mapping[str, object]) -> Keys:
    """Return the keys of a model without an output head, if its architecture has none.

    Poolers and classifiers work on one token of a sequence or on few columns: their weights count, their work
    does not.
    """
    named = document.get("architectures")
    pieces = (head_of(c, named[0]) or "").split() if isinstance(named, list) and named else ["lm"]
    labels = document.get("id2label")
    e = content["hidden"]["value"]
    n = len(labels) if isinstance(labels, dict) and labels else 2  # as transformers
    weights = {"pooler": e * e + e, "dense": e * e + e, "classifier": n * (e + 1), "score": n * e}
    weights |= {"span": 2 * (e + 1), "pair": 2 * (e + 1), "one": e + 1}
    if "transform" in pieces:  # a dense layer with a scale, as ModernBERT has before its head
        weights["transform"] = e * e + e + e * c.flag("classifier_bias")
    known = (content.get("small_end_weights") or {"value": 0})["value"]
    small = known + sum(weights[piece] for piece in pieces if piece != "lm")
    keys = {"small_end_weights": {"value": small, "source": f"{c.place}: architectures"}} if small else {}
    if "lm" in pieces:
        return keys if small != known else {}
    return keys | {"head": False, "head_bias": False, "head_transform": False}


FEATURES: Final[Mapping[str, Feature]] = {  # by the words of model_types.yaml
    "bart": bart,
    "encoder": encoder,
    "t5": t5,
    "sparse_stacks": sparse_stacks,
    "longt5": longt5,
    "led": led,
    "whisper": whisper,
    "bigbird_pegasus": bigbird_pegasus,
    "big_bird": big_bird,
    "roc_bert": roc_bert,
    "xmod": xmod,
    "xlnet": xlnet,
    "own_width": own_width,
    "opt_width": opt_width,
    "esm": esm,
    "roformer": roformer,
    "relative_bias": relative_bias,
    "modernbert": modernbert,
    "deberta": deberta,
    "deberta_v1": deberta_v1,
    "longformer": longformer,
    "last_biased_bert": last_biased_bert,
    "dinov2": dinov2,
    "contrastive": contrastive,
    "vit": vit,
    "registers": registers,
    "distilled": read_distillation_token,
    "sound": sound,
    "xlm": xlm,
}
