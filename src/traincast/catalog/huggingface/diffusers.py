"""Import of configurations of diffusers (``_class_name``): transformers for diffusion."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from traincast.catalog.documents import read_document
from traincast.catalog.huggingface.config import Config
from traincast.catalog.huggingface.features import Keys
from traincast.core import InputError

VAE: Final = 8  # pixels of an image along a side of a latent: autoencoders of Stable Diffusion, FLUX and Wan
USUAL_SIZE: Final = 1024  # side of an image where nothing says one [pixel] (assumed)
FREQUENCIES: Final = 256  # of the time step, in all of diffusers
LATENT_FRAMES: Final = 21  # of a video of 81 frames, the usual length (assumed)
LEFT_OUT: Final = "text encoders and autoencoder"
ACTIVATIONS: Final = {"gelu-approximate": "gelu", "gelu": "gelu"}


@cache
def classes() -> Any:
    """Read the table of classes that can be imported."""
    return read_document(Path(__file__).with_name("diffusers_types.yaml"))


def is_diffusers(document: Mapping[str, object]) -> bool:
    """Return whether the content of a file is a configuration of diffusers."""
    return "_class_name" in document


def as_model_file(document: Mapping[str, object], path: Path, seq: int | None = None) -> dict[str, object]:
    """Convert a configuration of a diffusion transformer to the content of a model file."""
    name = str(document["_class_name"])
    if name not in classes():
        known = ", ".join(sorted(classes()))
        wrong = f"_class_name = {document['_class_name']!r}: not a class that can be imported; known: {known}"
        raise InputError(str(path), [wrong])
    c = Config(document, name, path.name, seq, classes()[name])
    c.check_allowed()
    content = READERS[c.features[0]](c) if not c.problems else {}
    if c.problems:
        raise InputError(str(path), c.problems)
    title = path.stem if path.stem.lower() != "config" else path.resolve().parent.name or "config"
    if seq is not None:
        content["seq"] = seq
    return {"name": title, "source": path.name, "left_out": LEFT_OUT, "dropout": False} | content


def _trunk(c: Config) -> tuple[Keys, int]:
    """Return layers, heads and widths, and the width of the model."""
    names = ("num_attention_heads", "attention_head_dim")
    e = c.size(names[0]) * c.size(names[1])
    keys = c.figures(layers="num_layers", heads=names[0], head_dim=names[1])
    keys |= {"hidden": c.cite(e, *names), "ffn": c.cite(4 * e, *names)}
    return keys | {"mlp": "gelu", "norm": "layernorm-plain", "biases": ["qkv", "proj", "mlp"]}, e


def _tokens(c: Config, pixels: int, text: int = 0, frames: int = 1, size: int = USUAL_SIZE) -> Keys:
    """Return the sequence: text and the patches of an image, whose size is assumed where nothing says it."""
    side = size // pixels
    source = f"{c.place}: {text} tokens of text, {frames} × {side} × {side} patches"
    return {"seq": {"value": text + frames * side**2, "source": source, "basis": "assumed"}}


def _patches(c: Config, side: int, **more: object) -> Keys:
    """Return what all diffusion transformers have: patches of a side into channels, and what is given."""
    channels = c.size("in_channels")
    outputs = (c.count("out_channels") or channels) * side**2
    return {"inputs": channels * side**2, "outputs": outputs, "pixels": VAE * side, **more}


def _text_beside(c: Config) -> Keys:
    """Return the encoder of text that attention reads."""
    source = f"{c.place}: tokens of T5"
    return {"encoder": {"seq": {"value": c.size("text_tokens"), "source": source, "basis": "assumed"}}}


def flux(c: Config) -> Keys:
    """Read FLUX.1: layers in which text has weights of its own, then layers with parallel blocks."""
    keys, _ = _trunk(c)
    joint = c.count("num_layers", least=0) or 0
    single = c.count("num_single_layers", least=0) or 0
    # patches of 2 x 2 are made beforehand
    text = c.size("text_tokens")
    pixels = 2 * VAE
    conditions = [FREQUENCIES] * (1 + c.flag("guidance_embeds")) + [c.count("pooled_projection_dim")]
    diffusion = _patches(c, c.size("patch_size"), text=text, text_width=c.count("joint_attention_dim"))
    diffusion |= {"pixels": pixels, "single": True, "conditions": conditions}
    layers = c.cite(joint + single, "num_layers", "num_single_layers")
    kinds = ["joint dense"] * joint + ["dense"] * single
    keys |= {"layers": layers, "layer_kinds": kinds, "qk_norm": "head", "positions": "rotary"}
    return keys | {"diffusion": diffusion} | _tokens(c, pixels, text)


def sd3(c: Config) -> Keys:
    """Read Stable Diffusion 3: text has weights of its own; the last layer reads it alone."""
    keys, e = _trunk(c)
    c.only("caption_projection_dim", e)
    text = c.size("text_tokens")
    layers = c.size("num_layers")
    if c.value("qk_norm") not in ("rms_norm", None):
        c.wrong("qk_norm", "must be rms_norm or null")
    elif c.value("qk_norm"):
        keys["qk_norm"] = "head"
    conditions = [FREQUENCIES, c.count("pooled_projection_dim")]
    diffusion = _patches(c, c.size("patch_size"), text=text, text_width=c.count("joint_attention_dim"))
    keys |= {"layer_kinds": ["joint dense"] * (layers - 1) + ["joint-last dense"]}
    keys["diffusion"] = diffusion | {"conditions": conditions}
    return keys | _tokens(c, diffusion["pixels"], text, size=c.size("sample_size") * VAE)


def dit(c: Config) -> Keys:
    """Read DiT: each layer embeds time step and class on its own (as diffusers has it)."""
    keys, e = _trunk(c)
    keys["mlp"] = c.word("activation_fn", ACTIVATIONS)
    table = (c.count("num_embeds_ada_norm") or 0) + 1
    keys["small_weights"] = (FREQUENCIES + 1 + e + 1 + table) * e
    keys["diffusion"] = _patches(c, c.size("patch_size"), conditions=[])
    return keys | _tokens(c, keys["diffusion"]["pixels"], size=c.size("sample_size") * VAE)


def pixart(c: Config) -> Keys:
    """Read PixArt: attention to text, and modulation that all layers share but for a table."""
    keys, e = _trunk(c)
    c.only("cross_attention_dim", e)
    keys["mlp"] = c.word("activation_fn", ACTIVATIONS)
    keys["small_weights"] = 6 * e
    side = c.size("sample_size")
    small = 2 * e
    sized = c.value("use_additional_conditions")
    if sized or (sized is None and side == 128):  # size and ratio are conditions of a third of the width
        third = e // 3
        small += 2 * ((FREQUENCIES + 1) * third + (third + 1) * third)
    keys["small_end_weights"] = small
    text = {"text_width": c.count("caption_channels"), "text_layers": 2}
    keys["diffusion"] = _patches(c, c.size("patch_size"), **text, shared=True, final=False)
    return keys | _text_beside(c) | _tokens(c, keys["diffusion"]["pixels"], size=side * VAE)


def wan(c: Config) -> Keys:
    """Read Wan: a video, attention to text with norms of its own, and modulation that all layers share."""
    keys, e = _trunk(c)
    keys |= {"ffn": c.figure("ffn_dim"), "qk_norm": "full", "positions": "rotary"}
    patch = c.value("patch_size")
    if not isinstance(patch, list | tuple) or len(patch) != 3 or patch[0] != 1 or patch[1] != patch[2]:
        c.wrong("patch_size", "cannot be represented; only [1, n, n] can")
        return {}
    keys["small_weights"] = 6 * e + 2 * e + (2 * e if c.flag("cross_attn_norm") else 0)  # qk norms, norm
    keys["small_end_weights"] = 2 * e
    text = {"text_width": c.count("text_dim"), "text_layers": 2, "conditions": [c.count("freq_dim")]}
    keys["diffusion"] = _patches(c, int(patch[1]), frames=LATENT_FRAMES, **text, shared=True, final=False)
    return keys | _text_beside(c) | _tokens(c, keys["diffusion"]["pixels"], frames=LATENT_FRAMES, size=480)


READERS: Final[Mapping[str, Callable[[Config], Keys]]] = {  # by the name that diffusers_types.yaml uses
    reader.__name__: reader for reader in (flux, sd3, dit, pixart, wan)
}
