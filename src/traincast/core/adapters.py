"""Fine-tuning with low-rank adapters: which linear layers have one, and how the frozen model is held."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from traincast.core.errors import WHOLE, InputError, is_whole, raise_problems, unknown_name_error
from traincast.core.model_blocks import Kind

if TYPE_CHECKING:
    from traincast.core.model import Model

# Linear layers that can have an adapter. "qkv" and "fc1" are those that Megatron joins into one product, with
# one adapter; "gate" and "up" are the parts of fc1, "fc2" is the down projection. The next four are those of
# multi-head latent attention, "in_proj" is the input projection of what takes the place of attention.
Target = Literal[
    "q", "k", "v", "qkv", "proj", "gate", "up", "fc1", "fc2", "head", "q_down", "q_up", "kv_down", "kv_up",
    "in_proj",
]  # fmt: skip
Base = Literal["16-bit", "operand", "int8", "nf4", "nf4-single"]
TARGETS: Final = get_args(Target)
JOINED: Final[Mapping[str, tuple[str, ...]]] = {"qkv": ("q", "k", "v"), "fc1": ("gate", "up")}
ATTENTION: Final = ("q", "k", "v", "proj", "q_down", "q_up", "kv_down", "kv_up", "in_proj")
MLP: Final = ("gate", "up", "fc2")
GROUPS: Final = {"attention": ATTENTION, "mlp": MLP, "all": ATTENTION + MLP}  # what of it a model has
# Bytes of a weight of a packed linear layer; 16-bit and operand are not packed. int8: a scale for each row is
# left out.
# nf4: 4 bits and, for every 64 weights, a scale in 8 bits, of which 256 share one in fp32: 0.127 bits (QLoRA,
# arXiv 2305.14314, section 3, double quantisation). nf4-single: that scale in fp32, 0.5 bits.
PACKED: Final[Mapping[str, float]] = {
    "int8": 1.0, "nf4": (4 + 8 / 64 + 32 / (64 * 256)) / 8, "nf4-single": (4 + 32 / 64) / 8
}  # fmt: skip
METHODS: Final[Mapping[str, Base | None]] = {"full": None, "lora": "16-bit", "qlora": "nf4"}
OBJECTIVES: Final = ("sft", "dpo")  # as TRL calls them; before a plus sign
HOW: Final = "full, or lora or qlora with settings such as lora:r=16,targets=q+v,base=nf4,dropout"


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Low-rank adapters, the only part of a model that is trained: y = x W + x A B (arXiv 2106.09685).

    Parameters
    ----------
    rank : int
        Inner width r of A and B.
    targets : tuple of str
        Linear layers with an adapter: words of `TARGETS` and of `GROUPS`; ``"all"`` are those of the layers.
    base : {"16-bit", "operand", "int8", "nf4", "nf4-single"}
        How the linear layers of the layers are held. ``"operand"``: as products of low precision take them,
        without a copy at 16 bits (fp8 primary weights of Transformer Engine). Packed ones, the last three,
        are dequantised to 16 bits for each product (arXiv 2305.14314). Embedding, head and norms stay at 16
        bits.
    dropout : bool
        Whether the input of an adapter passes dropout.

    Raises
    ------
    InputError
        If a number or word is not allowed; all mistakes at once.
    """

    rank: int = 16
    targets: tuple[str, ...] = ("all",)
    base: Base = "16-bit"
    dropout: bool = False

    def __post_init__(self) -> None:
        problems = [] if is_whole(self.rank) else [f"rank = {self.rank!r}: {WHOLE}"]
        allowed = (*GROUPS, *TARGETS)
        words = self.targets or ("",)
        problems += [
            f"targets: {word!r} is none of {', '.join(allowed)}" for word in words if word not in allowed
        ]
        if self.base not in get_args(Base):
            problems.append(f"base = {self.base!r}: must be one of {', '.join(get_args(Base))}")
        raise_problems("adapters", problems)

    @property
    def title(self) -> str:
        """What is trained, in a few words."""
        base = "" if self.base == "16-bit" else f" on a base in {self.base}"
        return f"LoRA of rank {self.rank} ({'+'.join(self.targets)}){base}"


def split_objective(text: str) -> tuple[str, str]:
    """Return the objective of a text of `--train`, and the rest of it: what is trained.

    Examples
    --------
    >>> split_objective("dpo+lora:r=16"), split_objective("dpo"), split_objective("qlora:targets=q+v")
    (('dpo', 'lora:r=16'), ('dpo', 'full'), ('sft', 'qlora:targets=q+v'))
    """
    first, _, rest = text.strip().partition("+")
    return (first, rest or "full") if first in OBJECTIVES else ("sft", text)


def parse_training(text: str) -> Adapters | None:
    """Return the adapters that a text such as ``"lora:r=16,targets=q+v"`` states; None for ``"full"``.

    Raises
    ------
    InputError
        If the method, a setting or its value is not known.

    Examples
    --------
    >>> parse_training("qlora:r=64").base
    'nf4'
    """
    method, _, rest = text.strip().partition(":")
    if method not in METHODS:
        raise unknown_name_error("training", method, METHODS, HOW)
    base, problems, values = METHODS[method], [], {}
    settings = [word.partition("=") for word in rest.split(",") if word.strip()]
    if base is None:
        if settings or ":" in text:
            raise InputError("--train", [f"{text!r}: full has no settings"])
        return None
    for key, _, value in ((key.strip(), sign, value.strip()) for key, sign, value in settings):
        if key in values:
            problems.append(f"{key}: stands there twice; keep one")
        elif key not in ("r", "rank", "targets", "base", "dropout"):
            problems.append(f"{key!r} is no setting; write {HOW}")
        values[key] = value
    rank = values.get("r", values.get("rank", "16"))
    if not rank.isdecimal() or int(rank) < 1:
        problems.append(f"r = {rank}: {WHOLE}")
    if values.get("dropout"):
        problems.append(f"dropout = {values['dropout']}: takes no value; its probability does not matter")
    raise_problems("--train", problems)
    targets = tuple(values.get("targets", "all").split("+"))
    chosen: Base = values.get("base", base)  # type: ignore[assignment]  # checked by `Adapters`
    return Adapters(rank=int(rank), targets=targets, base=chosen, dropout="dropout" in values)


def adapter_problems(model: "Model") -> list[str]:
    """Return a line for each target of an adapter that the model lacks or that stands in another one."""
    if model.adapters is None:
        return []
    not_modelled = {
        "values are the projected keys": model.keys_are_values,
        "layers have shapes of their own": model.shapes,
        "all heads meet one latent vector": model.latent is not None and model.latent.shared,
        "experts have a width of their own": model.experts is not None and model.experts.width,
    }
    if problems := [f"adapters: not modelled where {what}" for what, holds in not_modelled.items() if holds]:
        return problems
    has, targets = _adaptable(model), model.adapter_targets
    known = ", ".join(word for word in TARGETS if word in has)
    lacking = [word for word in model.adapters.targets if word not in GROUPS and word not in has]
    problems = [f"adapters.targets: {word!r} is none of its {known}" for word in lacking]
    for joined, parts in JOINED.items():
        if joined in targets and (twice := targets & set(parts)):
            problems.append(f"adapters.targets: {joined} includes {', '.join(sorted(twice))}; keep one")
    return problems


def adapter_targets(model: "Model") -> frozenset[str]:
    """Return the linear layers with an adapter; a group stands for those of its layers that the model has."""
    given = () if model.adapters is None else model.adapters.targets
    words = {part for word in given for part in GROUPS.get(word, (word,))}
    return frozenset(words & _adaptable(model))


def adapter_parameters(model: "Model", active: bool = False) -> int:
    """Count the weights of the adapters: rank × (input + output) of each; without `mtp`."""
    if model.adapters is None:
        return 0
    layers = sum(n * _layer_widths(model, kind, active) for kind, n in Counter(model.pattern).items())
    head = model.hidden + (model.vocab or 0) if "head" in model.adapter_targets else 0
    return model.adapters.rank * (layers + head)


def _adaptable(model: "Model") -> frozenset[str]:
    """Return the names of the linear layers that can have an adapter."""
    names = {"head"} if model.vocab is not None and model.head else set()
    for kind in model.kinds:
        names |= _mixer_layers(model, kind).keys()
        names |= _mlp_layers(model, model.ffn).keys() if kind.feed_forward else set()
    return frozenset(names)


def _layer_widths(model: "Model", kind: Kind, active: bool) -> int:
    """Return the sum of the widths of the adapted linear layers of a layer."""

    def widths(layers: Mapping[str, tuple[int, int]]) -> int:
        return sum(sum(pair) for name, pair in layers.items() if name in model.adapter_targets)

    mixer, experts = widths(_mixer_layers(model, kind)), model.experts
    if not kind.moe or experts is None:
        return mixer + (widths(_mlp_layers(model, model.ffn)) if kind.feed_forward else 0)
    used = experts.topk if active else experts.experts
    shared = widths(_mlp_layers(model, experts.shared_ffn)) if experts.shared_ffn else 0
    return mixer + used * widths(_mlp_layers(model, experts.ffn)) + shared


def _mixer_layers(model: "Model", kind: Kind) -> dict[str, tuple[int, int]]:
    """Return the widths of input and output of the linear layers of what mixes tokens."""
    e, latent, config = model.hidden, model.latent, model.linear_attention(kind)
    linear = {} if config is None else {"in_proj": (e, config.projected), "proj": (config.inner, e)}
    if not kind.attends:
        return linear
    beside = linear.get("proj", (0, 0))  # its output projection has an adapter of its own
    widths = linear | {"proj": (model.heads * model.value_width + beside[0], e + beside[1])}
    if latent is None:
        q, k, v = model.projection_widths
        return widths | {"q": (e, q), "k": (e, k), "v": (e, v), "qkv": (e, q + k + v)}
    widths["q_up"] = latent.q_rank or e, model.heads * model.head_width
    widths["kv_down"] = e, latent.kv_rank + latent.rope_dim
    if not kind.indexed:  # else it is no linear layer of its own
        widths["kv_up"] = latent.kv_rank, model.heads * (latent.nope_dim + latent.value_dim)
    return widths if latent.q_rank is None else widths | {"q_down": (e, latent.q_rank)}


def _mlp_layers(model: "Model", f: int) -> dict[str, tuple[int, int]]:
    """Return the widths of input and output of the linear layers of an MLP of inner width f."""
    e = model.hidden
    gate = {"gate": (e, f)} if model.gated else {}
    return {"up": (e, f), "fc1": (e, model.up_projections * f), "fc2": (f, e)} | gate
