"""Import of configurations of diffusers (``_class_name``): transformers for diffusion."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from traincast.catalog.huggingface.config import Config
from traincast.catalog.huggingface.features import Keys
from traincast.core.errors import InputError

VAE: Final = (
    8  # pixels of an image along a side of a latent: the autoencoders of Stable Diffusion, FLUX and Wan
)
USUAL_SIZE: Final = 1024  # side of an image where nothing says one [pixel] (assumed)
FREQUENCIES: Final = 256  # of the time step, in all of diffusers
# Tokens of text where nothing says it (assumed): T5 of FLUX.1 [dev], of Stable Diffusion 3 (256, and 77 of
# CLIP), of PixArt and of Wan.
TEXT: Final = {"flux": 512, "sd3": 333, "pixart": 120, "wan": 512}
LEFT_OUT: Final = "text encoders and autoencoder"
ACTIVATIONS: Final = {"gelu-approximate": "gelu", "gelu": "gelu"}


def is_diffusers(document: Mapping[str, Any]) -> bool:
    """Return whether the content of a file is a configuration of diffusers."""
    return "_class_name" in document


def as_model_file(document: Mapping[str, Any], path: Path, seq: int | None = None) -> dict[str, Any]:
    """Convert a configuration of a diffusion transformer to the content of a model file."""
    name = document["_class_name"]
    if str(name) not in CLASSES:
        wrong = (
            f"_class_name = {name!r}: not a class that can be imported; known: {', '.join(sorted(CLASSES))}"
        )
        raise InputError(str(path), [wrong])
    read, defaults, only = CLASSES[str(name)]
    family = {"features": "", "defaults": {**defaults, "frames": 1}, "only": only}
    c = Config(document, str(name), path.name, seq, family)
    c.check_allowed()
    content = read(c) if not c.problems else {}
    if c.problems:
        raise InputError(str(path), c.problems)
    title = path.stem if path.stem.lower() != "config" else path.resolve().parent.name or "config"
    if seq is not None:
        content["seq"] = seq
    return {"name": title, "source": path.name, "left_out": LEFT_OUT, "dropout": False} | content


def _trunk(c: Config, width_of_head: str = "attention_head_dim") -> tuple[Keys, int]:
    """Return layers, heads and widths, and the width of the model."""
    heads, head = c.size("num_attention_heads"), c.size(width_of_head)
    e = heads * head
    keys: Keys = {
        "layers": c.figure("num_layers"),
        "hidden": c.sourced(e, "num_attention_heads", width_of_head),
        "heads": c.figure("num_attention_heads"),
        "head_dim": c.figure(width_of_head),
        "ffn": c.sourced(4 * e, "num_attention_heads", width_of_head),
        "mlp": "gelu",
        "norm": "layernorm-plain",
        "biases": ["qkv", "proj", "mlp"],
    }
    return keys, e


def _tokens(c: Config, pixels: int, text: int, frames: int = 1, size: int | None = None) -> Keys:
    """Return the sequence: text and the patches of an image, whose size is assumed where nothing says it."""
    side = (size or USUAL_SIZE) // pixels
    source = f"{c.place}: {text} tokens of text, {frames} × {side} × {side} patches"
    return {"seq": {"value": text + frames * side**2, "source": source, "basis": "assumed"}}


def _flux(c: Config) -> Keys:
    """Read FLUX.1: layers in which text has weights of its own, then layers with parallel blocks."""
    keys, _ = _trunk(c)
    joint, single = c.count("num_layers", least=0) or 0, c.count("num_single_layers", least=0) or 0
    channels, pixels = c.size("in_channels"), 2 * VAE  # patches of 2 x 2 are made beforehand
    conditions = [FREQUENCIES, *([FREQUENCIES] if c.flag("guidance_embeds") else [])]
    diffusion = {
        "inputs": channels * c.size("patch_size") ** 2,
        "outputs": (c.count("out_channels") or channels) * c.size("patch_size") ** 2,
        "pixels": pixels,
        "text": TEXT["flux"],
        "text_width": c.count("joint_attention_dim"),
        "single": True,
        "conditions": [*conditions, c.count("pooled_projection_dim")],
    }
    layers = c.sourced(joint + single, "num_layers", "num_single_layers")
    kinds = ["joint dense"] * joint + ["dense"] * single
    keys |= {"layers": layers, "layer_kinds": kinds, "qk_norm": "head", "positions": "rotary"}
    return keys | {"diffusion": diffusion} | _tokens(c, pixels, TEXT["flux"])


def _sd3(c: Config) -> Keys:
    """Read Stable Diffusion 3: text has weights of its own; the last layer reads it alone."""
    keys, e = _trunk(c)
    c.only("caption_projection_dim", e)
    patch, layers = c.size("patch_size"), c.size("num_layers")
    norms = {"rms_norm": "head", None: None}
    if c.value("qk_norm") not in norms:
        c.wrong("qk_norm", "must be rms_norm or null")
    elif c.value("qk_norm"):
        keys["qk_norm"] = "head"
    diffusion = {
        "inputs": c.size("in_channels") * patch**2,
        "outputs": c.size("out_channels") * patch**2,
        "pixels": VAE * patch,
        "text": TEXT["sd3"],
        "text_width": c.count("joint_attention_dim"),
        "conditions": [FREQUENCIES, c.count("pooled_projection_dim")],
    }
    size = c.size("sample_size") * VAE
    keys |= {"layer_kinds": ["joint dense"] * (layers - 1) + ["joint-last dense"], "diffusion": diffusion}
    return keys | _tokens(c, VAE * patch, TEXT["sd3"], size=size)


def _image(c: Config, e: int, **more: Any) -> Keys:
    """Return what diffusion transformers of an image alone have in common; `size` and `pixels` as well."""
    patch, channels = c.size("patch_size"), c.size("in_channels")
    return {
        "inputs": channels * patch**2,
        "outputs": (c.count("out_channels") or channels) * patch**2,
        "pixels": VAE * patch,
        **more,
    }


def _dit(c: Config) -> Keys:
    """Read DiT: each layer embeds time step and class on its own (as diffusers has it)."""
    keys, e = _trunk(c)
    keys["mlp"] = c.word("activation_fn", ACTIVATIONS)
    table = (c.count("num_embeds_ada_norm") or 0) + 1
    keys["small_weights"] = (FREQUENCIES + 1 + e + 1 + table) * e
    keys["diffusion"] = _image(c, e, conditions=[])
    size = c.size("sample_size") * VAE
    return keys | _tokens(c, keys["diffusion"]["pixels"], 0, size=size)


def _pixart(c: Config) -> Keys:
    """Read PixArt: attention to text, and modulation that all layers share but for a table."""
    keys, e = _trunk(c)
    c.only("cross_attention_dim", e)
    keys["mlp"] = c.word("activation_fn", ACTIVATIONS)
    keys["small_weights"] = 6 * e
    side, small = c.size("sample_size"), 2 * e
    sized = c.value("use_additional_conditions")
    if sized or (sized is None and side == 128):  # size and ratio are conditions of a third of the width
        third = e // 3
        small += 2 * ((FREQUENCIES + 1) * third + (third + 1) * third)
    keys["small_end_weights"] = small
    text = {"text_width": c.count("caption_channels"), "text_layers": 2}
    keys["diffusion"] = _image(c, e, **text, shared=True, final=False)
    keys["encoder"] = {
        "seq": {"value": TEXT["pixart"], "source": f"{c.place}: tokens of T5", "basis": "assumed"}
    }
    return keys | _tokens(c, keys["diffusion"]["pixels"], 0, size=side * VAE)


def _wan(c: Config) -> Keys:
    """Read Wan: a video, attention to text with norms of its own, and modulation that all layers share."""
    keys, e = _trunk(c)
    keys |= {"ffn": c.figure("ffn_dim"), "qk_norm": "full", "positions": "rotary"}
    patch = c.value("patch_size")
    if not isinstance(patch, list | tuple) or len(patch) != 3 or patch[0] != 1 or patch[1] != patch[2]:
        c.wrong("patch_size", "cannot be represented; only [1, n, n] can")
        return {}
    side = int(patch[1])
    keys["small_weights"] = 6 * e + 2 * e + (2 * e if c.flag("cross_attn_norm") else 0)  # qk norms, norm
    keys["small_end_weights"] = 2 * e
    frames = 21  # latent frames of 81, the usual length (assumed)
    text = {"text_width": c.count("text_dim"), "text_layers": 2}
    channels = c.size("in_channels")
    keys["diffusion"] = {
        "inputs": channels * side**2,
        "outputs": (c.count("out_channels") or channels) * side**2,
        "pixels": VAE * side,
        "frames": frames,
        **text,
        "shared": True,
        "final": False,
        "conditions": [c.count("freq_dim")],
    }
    keys["encoder"] = {
        "seq": {"value": TEXT["wan"], "source": f"{c.place}: tokens of T5", "basis": "assumed"}
    }
    return keys | _tokens(c, VAE * side, 0, frames, size=480)


CLASSES: Final[Mapping[str, tuple[Callable[[Config], Keys], dict[str, Any], dict[str, Any]]]] = {
    "FluxTransformer2DModel": (
        _flux,
        {"patch_size": 1, "in_channels": 64, "out_channels": None, "num_layers": 19, "num_single_layers": 38,
         "attention_head_dim": 128, "num_attention_heads": 24, "joint_attention_dim": 4096,
         "pooled_projection_dim": 768, "guidance_embeds": False},
        {},
    ),
    "SD3Transformer2DModel": (
        _sd3,
        {"sample_size": 128, "patch_size": 2, "in_channels": 16, "num_layers": 18, "attention_head_dim": 64,
         "num_attention_heads": 18, "joint_attention_dim": 4096, "caption_projection_dim": 1152,
         "pooled_projection_dim": 2048, "out_channels": 16, "qk_norm": None},
        {"dual_attention_layers": []},
    ),
    "DiTTransformer2DModel": (
        _dit,
        {"num_attention_heads": 16, "attention_head_dim": 72, "in_channels": 4, "out_channels": None,
         "num_layers": 28, "sample_size": 32, "patch_size": 2, "activation_fn": "gelu-approximate",
         "num_embeds_ada_norm": 1000},
        {"attention_bias": True, "norm_elementwise_affine": False, "norm_type": "ada_norm_zero"},
    ),
    "PixArtTransformer2DModel": (
        _pixart,
        {"num_attention_heads": 16, "attention_head_dim": 72, "in_channels": 4, "out_channels": 8,
         "num_layers": 28, "sample_size": 128, "patch_size": 2, "activation_fn": "gelu-approximate",
         "cross_attention_dim": 1152, "caption_channels": None, "use_additional_conditions": None},
        {"attention_bias": True, "norm_elementwise_affine": False, "norm_type": "ada_norm_single"},
    ),
    "WanTransformer3DModel": (
        _wan,
        {"patch_size": [1, 2, 2], "num_attention_heads": 40, "attention_head_dim": 128, "in_channels": 16,
         "out_channels": 16, "text_dim": 4096, "freq_dim": 256, "ffn_dim": 13824, "num_layers": 40,
         "cross_attn_norm": True},
        {"qk_norm": "rms_norm_across_heads", "image_dim": None, "added_kv_proj_dim": None},
    ),
}  # fmt: skip
