"""Checks of the figures of a model: a line for each number, word or combination that is not possible."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from math import gcd
from typing import Final, get_args, get_type_hints

from traincast.core import NO_NUMBERS, type_problems, whole_number_problems
from traincast.model.architecture import UNUSED, Architecture, is_unused
from traincast.model.blocks import (
    KINDS,
    MAX_LAYERS,
    Compressed,
    Encoder,
    Experts,
    Indexer,
    Latent,
    Local,
    Mlp,
    Norm,
    OwnWidth,
    Positions,
    QkNorm,
    kind_of,
)
from traincast.model.linear_attention import LINEAR_ATTENTIONS

WORDS: Final[Mapping[str, tuple[str | None, ...]]] = {
    "mlp": get_args(Mlp),
    "norm": get_args(Norm),
    "positions": get_args(Positions),
    "qk_norm": (*get_args(QkNorm), None),
}
MODEL_PARTS: Final[Mapping[str, type]] = {
    "latent": Latent,
    "indexer": Indexer,
    "compressed": Compressed,
    "local": Local,
    "encoder": Encoder,
    "own_width": OwnWidth,
    "experts": Experts,
    **LINEAR_ATTENTIONS,
}
# Fields of parts that say in which layers they are, with their defaults.
SELECTS_LAYERS: Final[Mapping[str, Mapping[str, object]]] = {
    "local": {"global_every": 0, "layers": ()},
    "experts": {"first_dense": 0, "every": 1},
}
DIVIDES: Final = {  # part -> its number that must divide the other one
    "mamba2": ("groups", "heads"),
    "gated_delta": ("key_heads", "value_heads"),
    "rg_lru": ("blocks", "width"),
}
LISTED: Final = ("layers", "mtp")  # numbers of what is listed one by one
REQUIRED: Final = ("layers", "hidden", "heads", "ffn", "seq")


def count_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each number that must be whole and is not; columns and symbols pass."""
    for part, kind in {"": type(model), **MODEL_PARTS}.items():
        owner = getattr(model, part) if part else model
        if part and owner is None:
            continue
        if part and not isinstance(owner, kind):
            yield from type_problems(part, owner, f"{kind.__name__} or None", kind, type(None))
            continue
        for name in _counts(kind):
            value = getattr(owner, name, None)
            if not part and value == 0 and name in UNUSED and is_unused(name, model.layer_kinds):
                continue
            is_missing = value is None and name in REQUIRED and not part
            is_number = isinstance(value, (int, float, *NO_NUMBERS))
            most = MAX_LAYERS if name in LISTED else None
            given = f"{part}.{name}" if part else name
            if is_missing or is_number:
                yield from whole_number_problems(given, value, most)


@cache
def _counts(kind: type) -> tuple[str, ...]:
    """Return the fields of a dataclass that are whole numbers of at least 1, or None."""
    hints = get_type_hints(kind)
    return tuple(
        item.name for item in fields(kind) if hints[item.name] in (int, int | None) and item.default != 0
    )


def word_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each word, or number of norms, that is not allowed."""
    for name, allowed in WORDS.items():
        if getattr(model, name) not in allowed:
            yield f"{name} = {getattr(model, name)!r}: must be one of {', '.join(map(str, allowed))}"
    least, most = (1, 2) if model.parallel else (2, 4)
    if model.norms not in (least, most):
        of = " of a layer whose attention and MLP are parallel" if model.parallel else ""
        yield f"norms = {model.norms!r}{of}: must be {least} or {most}"


def kind_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each contradiction between the kinds of layers and the parts they need."""
    named = model.layer_kinds
    for field, names in (("layer_kinds", named), ("mtp_kinds", model.mtp_kinds)):
        if unknown := [name for name in names if kind_of(name) is None]:
            yield f"{field}: {unknown[0]!r}: must be one of {', '.join(KINDS)}"
            return
    if model.mtp_kinds and not model.mtp:
        yield "mtp: missing; mtp_kinds names the layers of its modules"
    kinds = {kind for name in (*named, *model.mtp_kinds) if (kind := kind_of(name))}
    known = {shape.name for shape in model.shapes}
    used = {kind.shape for kind in kinds}
    if missing := sorted(used - known - {""}):
        yield f"shapes: {missing[0]!r} is missing; layer_kinds names layers that have it"
    if unused := sorted(known - used):
        yield f"shapes: no layer has {unused[0]!r}; name its layers in layer_kinds"
    if named and model.layers % len(named):
        yield f"layer_kinds: {len(named)} of them must divide layers = {model.layers}"
    for part in (*LINEAR_ATTENTIONS, "indexer", "compressed", "local", "experts"):
        has_layers = any(part in kind.parts for kind in kinds)
        if has_layers and getattr(model, part) is None:
            yield f"{part}: missing; layer_kinds names layers that have it"
        implied = not named and part in ("local", "experts")
        if getattr(model, part) is not None and not (has_layers or implied):
            yield f"{part}: no layer has it; name its layers in layer_kinds"
    if model.encoder is None and any(kind.crosses for kind in kinds):
        yield "encoder: missing; layer_kinds names layers that attend to its result"
    for part, unset in SELECTS_LAYERS.items():
        block = getattr(model, part)
        given = [name for name in unset if block is not None and getattr(block, name) != unset[name]]
        if named and given:
            yield f"{part}.{given[0]}: layer_kinds is given as well; keep one of the two"
    if model.parallel and not all(kind.is_pair for kind in kinds):
        yield "parallel = True: every layer must have two blocks"
    for part, (divisor, whole) in DIVIDES.items():
        block = getattr(model, part)
        if block is not None and getattr(block, whole) % (n := getattr(block, divisor)):
            yield f"{part}.{divisor} = {n}: must divide {part}.{whole} = {getattr(block, whole)}"
    if model.rwkv is not None and model.rwkv.width != model.hidden:
        yield f"rwkv.width = {model.rwkv.width}: must be hidden = {model.hidden}"


def part_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each contradiction inside of a part or between two."""
    yield from _attention_problems(model)
    yield from _encoder_problems(model)
    yield from _expert_problems(model)
    yield from _diffusion_problems(model)
    yield from _adapter_problems(model)


def _adapter_problems(model: Architecture) -> Iterator[str]:
    """Yield a line where adapters have more weights than what they adapt."""
    if model.adapters is not None and model.adapters.rank > model.hidden:
        yield f"adapters.rank = {model.adapters.rank}: must be at most hidden = {model.hidden}"


def _attention_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each contradiction between figures of attention."""
    heads = model.heads
    hidden = model.hidden
    latent = model.latent
    if not heads:
        return
    if model.head_dim is None and latent is None and hidden % heads:
        yield f"heads = {heads}: must divide hidden = {hidden}; write for instance {gcd(hidden, heads)}"
    if model.head_dim is not None and latent is not None:
        yield f"head_dim = {model.head_dim}: latent gives the widths of a head; keep one of the two"
    if model.streams > 1 and (model.parallel or model.norms == 4 or model.dropout or model.diffusion):
        others = "parallel blocks, four norms of a layer, dropout or diffusion"
        yield f"streams = {model.streams}: not modelled with {others}"
    if latent is not None and latent.shared:
        widths = {latent.kv_rank, latent.value_dim, latent.nope_dim + latent.rope_dim}
        if latent.q_rank is None or len(widths) > 1:
            wanted = "q_rank, and a kv_rank as wide as value_dim and as nope_dim and rope_dim together"
            yield f"latent.shared = True: needs {wanted}"
    if latent is not None and latent.proj_rank is not None and heads % latent.proj_groups:
        yield f"latent.proj_groups = {latent.proj_groups}: must divide heads = {heads}"
    if model.attention_gate and latent is not None and not model.gate_per_head:
        yield "attention_gate = True: not modelled with latent attention, unless gate_per_head"
    yield from _indexer_problems(model)
    mixers = [kind.mixer for name in model.layer_kinds if (kind := kind_of(name))]
    if "index-shared" in mixers and "indexed" not in mixers[: mixers.index("index-shared")]:
        yield "layer_kinds: an index-shared layer needs an indexed one before it"
    if model.kv_heads is not None and heads % model.kv_heads:
        yield f"kv_heads = {model.kv_heads}: must divide heads = {heads}"
    if model.positions == "learned" and model.max_positions is not None and model.max_positions < model.seq:
        limit = f"at most max_positions = {model.max_positions}, which are learned"
        yield f"seq = {model.seq}: must be {limit}"
    listed = () if model.local is None else model.local.layers
    if outside := [layer for layer in listed if not 1 <= layer <= model.layers]:
        yield f"local.layers: {outside[0]} is none of the layers 1 to {model.layers}"


def _indexer_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each contradiction between the indexer and the attention that it selects for."""
    config = model.indexer
    latent = model.latent
    if model.compressed is not None and not (model.causal and model.local and latent and latent.shared):
        yield "compressed: needs causal attention, local, and latent with shared: true"
    if config is None:
        return
    if not model.causal:
        yield "indexer: needs causal attention"
    if config.block == 1 and (latent is None or latent.q_rank is None):
        yield "indexer: needs latent attention with a q_rank, unless it selects blocks"
    if config.block > 1 and latent is not None:
        yield f"indexer.block = {config.block}: not modelled with latent attention"
    if config.topk % config.block:
        yield f"indexer.topk = {config.topk}: must be a multiple of block = {config.block}"


def _encoder_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each contradiction between the encoder and other parts."""
    encoder = model.encoder
    if encoder is None:
        return
    if not 0 <= encoder.layers < model.layers:
        yield f"encoder.layers = {encoder.layers}: must be at least 0 and below layers = {model.layers}"
    heads = encoder.heads or model.heads
    if model.head_dim is None and model.hidden % heads:
        yield f"encoder.heads = {heads}: must divide hidden = {model.hidden}"
    stacks = ["encoder"] * encoder.layers + ["decoder"] * (model.layers - encoder.layers)
    mixers = [kind.mixer for kind in model.pattern]
    is_pairs = all(kind.is_pair for kind in model.pattern)
    crossed = not encoder.layers and is_pairs and set(mixers) == {"attention", "cross"}
    if model.layer_kinds and mixers != stacks and not crossed:
        wanted = "must name the encoder's layers encoder …, all others decoder …"
        yield f"layer_kinds: {wanted}, or, with encoder.layers 0, dense and cross dense alone"
    if model.experts is not None and not model.layer_kinds:
        yield "experts: beside an encoder, layer_kinds must name their layers"
    for name in ("latent", "local", "mtp", "parallel", "adapters"):
        if getattr(model, name):
            yield f"{name}: not modelled in a model with an encoder"


def _expert_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each contradiction between figures of the experts."""
    config = model.experts
    if config is None:
        return
    if config.topk > config.experts:
        yield f"experts.topk = {config.topk}: must be at most experts = {config.experts}"
    if config.load and len(config.load) != config.experts:
        wanted = f"must hold one for each of the {config.experts} experts"
        yield f"experts.load: holds {len(config.load)} numbers; {wanted}"
    if config.load and not sum(config.load):
        yield "experts.load: all are 0; at least one expert must get tokens"
    if not 1 <= config.imbalance < float("inf"):
        yield f"experts.imbalance = {config.imbalance!r}: must be a factor of at least 1"


def _diffusion_problems(model: Architecture) -> Iterator[str]:
    """Yield a line for each contradiction between diffusion and other parts."""
    joint = any(kind.joint for name in model.layer_kinds if (kind := kind_of(name)))
    if model.diffusion is None:
        if joint:
            yield "diffusion: missing; layer_kinds names joint layers"
        return
    parts = ("latent", "experts", "adapters", "mtp", "vocab", "patch")
    others = {name: getattr(model, name) for name in parts} | {"norms": model.norms == 4}
    yield from (f"{name}: not modelled in a diffusion model" for name, value in others.items() if value)
    if joint and not 0 < model.diffusion.text < model.seq:
        yield f"seq = {model.seq}: must hold {model.diffusion.text} tokens of text and an image"
