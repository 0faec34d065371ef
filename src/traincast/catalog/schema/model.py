"""Schema of a model file: keys and parts are the fields of `Model` and of the dataclasses that it holds."""

from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Union, cast, get_args, get_origin, get_type_hints

from pydantic import StrictBool, ValidationInfo, create_model, field_validator

from traincast.catalog.schema.fields import (
    Amount,
    Count,
    Entry,
    Factor,
    File,
    Number,
    Part,
    Sequences,
    Size,
    Text,
    Tokens,
    Whole,
)
from traincast.model import Local, Model, Tower

# Numbers by name that are more than whole ones, from 1, or from 0 if that is the default.
ENTRIES: Final[Mapping[str, type[Entry]]] = {
    "window": Tokens,
    "chunk": Tokens,
    "seq": Tokens,
    "max_positions": Tokens,
    "capacity": Amount,
    "imbalance": Factor,
    "global_batch": Sequences,
    "training_sequences": Sequences,
}
MANY: Final[Mapping[type, type[Entry]]] = {int: Count, float: Number}  # numbers of a list


class ModelPart(Part):
    """Mapping inside a model file; `becomes` makes what it is converted to."""

    becomes: ClassVar[Callable[..., object]]


class LocalPart(ModelPart):
    """Sliding-window or chunked attention."""

    global_every: Count | None = None
    layers: tuple[Count, ...] | None = None

    @field_validator("layers")
    @classmethod
    def _one_pattern(cls, layers: tuple[Count, ...] | None, info: ValidationInfo) -> tuple[Count, ...] | None:
        """Refuse `layers` together with `global_every`."""
        if layers and info.data.get("global_every"):
            raise ValueError("global_every is given as well; keep one of the two")
        return layers


class ModelKeys(File):
    """Keys of a model file besides the fields of `Model`; what is left out takes the default there."""

    aliases: tuple[Text, ...] = ()

    if TYPE_CHECKING:
        seq: Tokens
        training_tokens: Tokens | None

    @field_validator("training_tokens", check_fields=False)
    @classmethod
    def _one_length(cls, tokens: Tokens | None, info: ValidationInfo) -> Tokens | None:
        """Refuse `training_tokens` together with `training_sequences`."""
        if tokens and info.data.get("training_sequences"):
            raise ValueError("training_sequences is given as well; keep one of the two")
        return tokens


BASES: Final[Mapping[type, type[ModelPart]]] = {Local: LocalPart}  # of parts with keys or rules of their own
TOWER_LAYERS: Final = (  # what can be said of the layers of a vision tower, whose sequences are images
    "layers",
    "hidden",
    "heads",
    "head_dim",
    "local",
    "ffn",
    "mlp",
    "norm",
    "norms",
    "qk_norm",
    "biases",
    "positions",
)
# fields of `Model`
NOT_IN_FILES: Final = (
    *("name", "reference", "supervised", "documents", "reuses_keys", "plain", "sources", "taken"),
)


def _part(kind: type) -> type[ModelPart]:
    """Return the class of a mapping whose keys are the fields of a dataclass."""
    base = BASES.get(kind, ModelPart)
    keys = _keys(kind, without=base.model_fields)
    made = cast(type[ModelPart], create_model(f"{kind.__name__}Part", __base__=base, **keys))
    made.becomes = kind
    return made


def _keys(kind: type, without: Container[str] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass as fields for `create_model`; those with a default are optional."""
    hints = get_type_hints(kind)
    keys = {}
    for item in fields(kind):
        if item.name in without:
            continue
        entry = _entry(item, hints[item.name])
        required = item.default is MISSING and item.default_factory is MISSING
        keys[item.name] = (entry, ...) if required else (entry | None, None)
    return keys


def _entry(item: Field[object], hint: object) -> Any:
    """Return the type of a key for a field of a dataclass."""
    of = hint
    if get_origin(hint) in (UnionType, Union):
        of = next(choice for choice in get_args(hint) if choice is not NoneType)
    if of is Model:  # the layers of a tower
        return TowerLayersPart
    if item.name in ENTRIES:
        return ENTRIES[item.name]
    if of is int:
        return Whole if item.default == 0 and item.default is not None else Count
    return _other(of)


def _other(of: Any) -> Any:
    """Return the type of a key that is no single number."""
    if is_dataclass(of) and isinstance(of, type):
        return _part(of)
    if get_origin(of) is tuple:
        inner, *more = get_args(of)
        item = MANY.get(inner) or _other(inner)
        return tuple[item, ...] if more == [...] else tuple[item, item]  # type: ignore[valid-type]
    return {bool: StrictBool, str: Text}.get(of, of)


_OF_MODEL: Final = _keys(Model, without=(*NOT_IN_FILES, "tower"))
_OF_TOWER: Final = {name: _OF_MODEL[name] for name in TOWER_LAYERS}
TowerLayersPart: Final[type[ModelPart]] = create_model("TowerLayersPart", __base__=ModelPart, **_OF_TOWER)
TowerLayersPart.becomes = partial(Model, name="vision tower", seq=1, dropout=False)
_SIZES: Final[dict[str, object]] = {"heads": (Size, ...), "ffn": (Size, ...)}
_LAST: Final[dict[str, object]] = {
    "tower": (_part(Tower) | None, None),
    "training_tokens": (Tokens | None, None),
}
ModelFile: Final = create_model("ModelFile", __base__=ModelKeys, **(_OF_MODEL | _SIZES | _LAST))
