"""Vision towers of vision-language configurations, by the table vision_types.yaml."""

from collections.abc import Mapping, Sequence
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any, Final

from traincast.catalog.documents import read_document
from traincast.catalog.huggingface.config import Config, is_factor
from traincast.catalog.huggingface.features import GATED, PLAIN, Keys

LAYERS_OF_TILES: Final = ("num_hidden_layers", "num_global_layers")
USUAL_SIZE: Final = 1024  # side of an image where a tower takes any and nothing says one [pixel] (assumed)


@cache
def vision_types() -> Any:
    """Read the table of towers and projectors."""
    return read_document(Path(__file__).with_name("vision_types.yaml"))


def whole(document: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the row of a vision-language configuration that can be imported whole; None for others."""
    row: Mapping[str, object] | None = vision_types()["projectors"].get(str(document.get("model_type")))
    vision = document.get("vision_config")
    if row is None or not isinstance(vision, dict):
        return None
    return row if str(_tower_type(vision, row)) in vision_types()["towers"] else None


def text_defaults(model_type: str) -> Mapping[str, object]:
    """Return the sizes that a text_config of a type may leave out."""
    sizes: Mapping[str, Any] = vision_types()["text"].get(str(model_type), {})
    return sizes


def _tower_type(vision: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    return vision.get("model_type") or row["defaults"]["vision_config.model_type"]


def tower(
    document: Mapping[str, Any], row: Mapping[str, object], hidden: int, file: str
) -> tuple[Keys, list[str]]:
    """Return the key `tower` of a model file, and the problems of its configuration.

    `hidden` is the width of the language model, `row` that of `whole`, `file` the name of the configuration.
    """
    vision = document["vision_config"]
    kind = _tower_type(vision, row)
    family: dict[str, Any] = {"features": "", **vision_types()["towers"][kind]}
    family["defaults"] = {"num_channels": 3, "mlp_ratio": None} | family["defaults"]
    c = Config(vision, kind, f"{file}, vision_config", None, family)
    fields = {**document, **vision}  # what leads to the language model is described in both
    around = Config(fields, str(document["model_type"]), file, None, {"features": "", **row})
    if around.allowed.get("vision_feature_layer") == "int":
        if not isinstance(document.get("vision_feature_layer", -1), int):
            around.wrong("vision_feature_layer", "cannot be represented; only one layer can")
        around.allowed = {key: value for key, value in around.allowed.items() if value != "int"}
    c.check_allowed()
    around.check_allowed()
    keys = _tower(c, family)
    if not c.problems and not around.problems:
        keys |= _merge_patches(c, around, row, keys)
    if not c.problems and not around.problems:
        keys["projectors"] = _projectors(c, around, row, hidden, keys)
        extra = hidden if row.get("small_weights") == "t" else 0
        keys["small_weights"] += extra
    side = keys.pop("side", 0)
    content: Keys = {"tower": keys}
    if family.get("crossed"):  # layers attend to what it makes
        read = keys["tiles"]["value"] * (side**2 + keys["kept"])
        content |= {"encoder": {"seq": c.cite(read, "image_size", "max_num_tiles"), "qk_norm": True}}
        content["left_out"] = None
    return content, [f"vision_config.{problem}" for problem in c.problems] + around.problems


def _number(value: Any) -> Any:
    """Return a number, or the first of a list of equal ones (sides of an image or a patch)."""
    is_side = isinstance(value, list) and len(set(map(str, value))) == 1
    return value[0] if is_side else value


def _side(c: Config, name: str) -> int:
    """Return a side in pixels; 1 if it is wrong, which is noted."""
    value = _number(c.value(name))
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    c.wrong(name, "must be a whole number of at least 1, of squares")
    return 1


def _tower(c: Config, family: Mapping[str, Any]) -> Keys:
    """Return the keys of a tower but for what leads to the language model."""
    layers = _layers(c, family)
    hidden = c.size("hidden_size")
    vectors = family.get("vectors", 0)
    if family.get("internvl") and not c.flag("use_mean_pooling"):
        vectors += 2  # the pooled result is normed
    patch = _side(c, "patch_size")
    frames = c.defaults.get("temporal_patch_size") and c.count("temporal_patch_size")
    fields = ("patch_size", "num_channels", *(["temporal_patch_size"] if frames else []))
    has_size = "image_size" in c.defaults
    size = _side(c, "image_size") if has_size else USUAL_SIZE
    resizable = not has_size or bool(family.get("resizable"))
    classes = family.get("classes", 0)
    rows = _table(c, family.get("table"), (size // patch) ** 2 + classes)
    small = (rows + vectors + c.size("num_hidden_layers") * family.get("layer_vectors", 0)) * hidden
    if family.get("head") and c.flag(family["head"]):  # pools by attention: probe, attention, norm and MLP
        ffn = c.size("intermediate_size")
        small += hidden + 4 * hidden**2 + 4 * hidden + 2 * hidden + 2 * hidden * ffn + ffn + hidden
    tiled: Keys = _tile_keys(c, rows * hidden) if family.get("crossed") else {}
    small += tiled.pop("small_weights", 0)
    if tiled:
        both = c.size("num_hidden_layers") + c.size("num_global_layers")
        layers["layers"] = c.cite(both, *LAYERS_OF_TILES)
        classes = classes - (rows % -8)  # rows that fill a tile up to a multiple of 8
    if family.get("windows"):
        layers |= _windows(c, patch)
    if resizable:
        size = min(size, USUAL_SIZE)
    return {
        "layers": {key: value for key, value in layers.items() if value is not None},
        "patch": c.cite(patch**2 * (c.count("num_channels") or 3) * (frames or 1), *fields),
        "patch_size": c.cite(patch, "patch_size"),
        "size": {"value": size, "source": f"{c.place}: images of any size [pixel]", "basis": "assumed"}
        if resizable
        else c.cite(size, "image_size"),
        "classes": classes,
        "patch_bias": family.get("patch_bias", True),
        "small_weights": small,
        "resizable": resizable,
        "side": size // patch,
    } | tiled


def _layers(c: Config, family: Mapping[str, Any]) -> Keys:
    """Return the keys of a tower's layers."""
    layers = c.figures(layers="num_hidden_layers", hidden="hidden_size", heads="num_attention_heads")
    layers |= family.get("same", {})
    if c.value("mlp_ratio") is None:
        layers["ffn"] = c.figure(family.get("inner", "intermediate_size"))
    else:
        layers["ffn"] = c.cite(int(c.size("hidden_size") * c.factor("mlp_ratio")), "mlp_ratio")
    layers["mlp"] = c.word("hidden_act", GATED if family["mlp"] == "gated" else PLAIN)
    if family.get("biased_attention"):
        layers["biases"] = ["qkv"] if c.flag("attention_bias") else []
    if family.get("internvl"):
        layers["norm"] = c.word("norm_type", {"layer_norm": "layernorm", "rms_norm": "rmsnorm"})
        layers["biases"] = [*(["qkv"] if c.flag("attention_bias") else []), "proj", "mlp"]
        layers |= {"qk_norm": "full"} if c.flag("use_qk_norm") else {}
    return layers


def _table(c: Config, rows: Any, patches: int) -> int:
    if rows == "patches":
        return patches
    product = 1 if rows else 0
    for name in [rows] if isinstance(rows, str) else rows or []:
        product *= c.size(name)
    return product


def _tile_keys(c: Config, table: int) -> Keys:
    """Return what Llama 3.2 Vision has for the tiles of an image: their number, tables of positions, gates.

    `table` are the weights of the positions in a tile.
    """
    tiles = c.size("max_num_tiles")
    ratios = c.value("supported_aspect_ratios")
    if not isinstance(ratios, list):
        c.wrong("supported_aspect_ratios", "must be a list of pairs")
        ratios = []
    of_tiles = (len(ratios) + 1) * tiles * (table + 2 * c.size("hidden_size"))
    gates = 3 + 2 * c.size("num_global_layers")
    return {"tiles": c.cite(tiles, "max_num_tiles"), "kept": 1, "small_weights": of_tiles + gates}


def _windows(c: Config, patch: int) -> Keys:
    """Return the attention to windows of the layers that are not listed as full."""
    full = c.numbers("fullatt_block_indexes")
    layers = c.count("num_hidden_layers") or 0
    side = (c.count("window_size") or patch) // patch
    local = [i + 1 for i in range(layers) if i not in full]
    window = c.cite(side**2, "window_size", "patch_size")
    return {"local": {"window": window, "chunked": True, "layers": local}} if local else {}


def _merge_patches(c: Config, around: Config, row: Mapping[str, Any], keys: Mapping[str, Any]) -> Keys:
    """Return how many patches a side of a token has, and with it the side of a resizable image."""
    if "tokens" in row:
        number = around.size(row["tokens"])
        tokens = isqrt(number)
        if tokens**2 != number or keys["side"] % tokens:
            around.wrong(row["tokens"], f"must be a square whose side divides {keys['side']} patches")
            return {}
        merge = keys["side"] // tokens
        source = around.cite(1, row["tokens"])["source"]
    elif "merge" in row:
        value = _number(around.value(row["merge"]))
        if not is_factor(value):
            around.wrong(row["merge"], "must be a number above 0")
            return {}
        merge = round(1 / value) if value < 1 else round(value)
        source = around.cite(1, row["merge"])["source"]
    else:
        return {}
    merged: Keys = {"merge": {"value": merge, "source": source}}
    if keys["resizable"]:
        step = keys["patch_size"]["value"] * merge
        side = max(round(keys["size"]["value"] / step), 1) * step
        merged["size"] = keys["size"] | {"value": side}
    return merged


def _projectors(
    c: Config, around: Config, row: Mapping[str, Any], hidden: int, keys: Mapping[str, Any]
) -> list[Keys]:
    width = c.size("hidden_size")
    merge = keys["merge"]["value"] if "merge" in keys else 1
    symbols = {"v": width, "m": width * merge**2, "t": hidden}

    def number(word: object) -> int:
        if isinstance(word, int):
            return word
        name, _, divisor = str(word).partition(" / ")
        if name in symbols:
            return symbols[name]
        return around.size(name) // int(divisor or 1)

    def flag(word: Any) -> bool:
        return word if isinstance(word, bool) else around.flag(word)

    result = []
    for projector in row["projectors"]:
        keys_of: Keys = {"widths": [number(word) for word in projector["widths"]]}
        keys_of["biased"] = flag(projector.get("biased", True))
        keys_of["gated"] = projector.get("gated", False)
        if "norm" in projector:
            vectors, width_of = projector["norm"]
            keys_of["norm"] = vectors * number(width_of)
        times = projector.get("times")
        listed: Sequence[object] = around.numbers(times) if times else [0]
        result += [keys_of] * len(listed)
    return result
