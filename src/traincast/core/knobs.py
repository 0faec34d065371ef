"""Knobs of a parallel plan: their types, defaults, meanings and allowed values; and the named strategies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from traincast.core.precision import GRADIENTS, OPTIMIZERS, PRECISIONS

TpKind = Literal["1d", "summa"]
CpKind = Literal["none", "all-gather", "ring", "ulysses", "hybrid"]
Attention = Literal["flash", "unfused", "summa"]
Zero = Literal[0, 1, 2, 3]
ScheduleName = Literal["1f1b", "gpipe", "zb-h1", "zb-h2", "zb-2p", "zb-v", "dualpipe", "dualpipe-v"]
Order = Literal["tp-cp-dp-pp", "tp-cp-pp-dp"]
VIRTUAL_STAGES: Final[Mapping[ScheduleName, int | None]] = {  # of a device; None where any number will do
    "1f1b": None,
    "gpipe": 1,
    "zb-h1": 1,
    "zb-h2": 1,
    "zb-2p": 1,
    "zb-v": 2,
    "dualpipe": 1,
    "dualpipe-v": 2,
}
# Word of `recompute` -> modules that are recomputed
RECOMPUTED_MODULES: Final[Mapping[str, frozenset[str]]] = {
    "selective": frozenset({"attention"}),
    "attention": frozenset({"attention"}),
    "activation": frozenset({"activation"}),
    "norms": frozenset({"norms"}),
    "mlp": frozenset({"mlp", "activation"}),
    "experts": frozenset({"experts", "activation"}),
    # every second product and all elementwise operations (torchtitan's selective checkpointing)
    "per-op": frozenset({"per-op"}),
    # queries, keys and values of latent attention (Megatron-Core's name)
    "mla_up_proj": frozenset({"latent"}),
    # the gated norm of a delta net's result, and the exchange that follows (Megatron-Core's name)
    "gdn_norm_out": frozenset({"gated_norm"}),
}
# Modules whose inputs alone are offloaded (Megatron-Core 0.19.2, transformer_config.py, offload_modules)
OFFLOADED_MODULES: Final = (
    *("attn_norm", "qkv_linear", "core_attn", "attn_proj"),
    *("mlp_norm", "expert_fc1", "moe_act"),
)
OFFLOADED: Final = ("optimizer", "activations", "weights", *OFFLOADED_MODULES)
MAX_CHUNKS: Final = 1 << 16  # largest number of chunks that a layout may repeat
Number = TypeVar("Number")
Placement = TypeVar("Placement")


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """Declaration of a knob, metadata of its dataclass field."""

    meaning: str
    symbol: str = ""  # of arXiv 2410.00273; empty if the paper has none
    unit: str = ""
    allowed: tuple[Any, ...] = ()  # of a choice, where its type does not say; none for numbers and free text
    alone: tuple[str, ...] = ()  # of a choice whose words can be joined by +: those that cannot


def _knob(default: Any, meaning: str, symbol: str = "", **more: Any) -> Any:
    """Return the dataclass field of a knob; command lines show the meaning as help."""
    return field(
        default=default, metadata={"help": meaning, "spec": KnobSpec(meaning, symbol, **more)}, kw_only=True
    )


@dataclass(frozen=True, kw_only=True)
class Knobs(Generic[Number, Placement]):
    """Table of a plan's knobs: numbers, then choices. `Plan` and `Plans` are its forms."""

    tp: Number = _knob(1, "tensor-parallel degree (SUMMA: columns of the grid)", "m1")
    tp2: Number = _knob(1, "second degree of SUMMA (rows of the grid)", "m2")
    cp: Number = _knob(1, "context-parallel degree: shards of the sequence", "m2")
    pp: Number = _knob(1, "pipeline stages", "pp")
    dp: Number = _knob(1, "data-parallel replicas", "dp")
    ep: Number = _knob(1, "expert-parallel degree, over ranks of dp, cp and tp")
    etp: Number = _knob(1, "tensor-parallel degree inside an expert")
    ulysses: Number = _knob(1, "ranks of a cp group that exchange heads (Ulysses)")
    replicas: Number = _knob(1, "replicas of what ZeRO shards over dp and cp (HSDP)")
    mbs: Number = _knob(1, "micro-batch", "b", unit="sequence")
    vp: Number = _knob(1, "virtual stages of a device (interleaved 1F1B)", "v")
    recompute_every: Number = _knob(1, "every N-th layer is recomputed, with recompute full")
    offload_every: Number = _knob(1, "activations of every N-th layer are offloaded")
    panels: Number = _knob(1, "panels a SUMMA product is cut into", "nb")
    fast_tp: Placement = _knob(None, "members of a tp group in one fast domain", "t1")
    fast_tp2: Placement = _knob(None, "members of a tp2 group in one fast domain", "t2")
    fast_cp: Placement = _knob(None, "members of a cp group in one fast domain", "t2")
    fast_pp: Placement = _knob(None, "pipeline stages in one fast domain", "t_pp")
    fast_dp: Placement = _knob(None, "members of a dp group in one fast domain", "t_dp")
    tp_kind: TpKind = _knob("1d", "tensor parallelism: 1d (Megatron) or summa (2-D)")
    cp_kind: CpKind = _knob(
        "none",
        "context parallelism: none, all-gather or ring of keys and values, ulysses, hybrid of the last two",
    )
    sp: bool = _knob(True, "sequence parallelism: tokens sharded between blocks")
    tp_overlap: bool = _knob(False, "tp communication overlapped with GEMMs (async TP)")
    ep_overlap: bool = _knob(False, "all-to-all of experts overlaps another micro-batch")
    dp_overlap: bool = _knob(True, "gradient reduction and weight gathering overlapped")
    attention: Attention = _knob("flash", "attention kernel: flash, unfused or summa (2-D)")
    recompute: str = _knob(
        "none",
        "activations recomputed in backward: none, selective, full, or modules joined by +",
        allowed=("none", "full", *RECOMPUTED_MODULES),
        alone=("none", "full"),
    )
    zero: Zero = _knob(1, "ZeRO stage: 1 optimizer, 2 + gradients, 3 + weights")
    schedule: ScheduleName = _knob("1f1b", f"pipeline schedule: {', '.join(VIRTUAL_STAGES)}")
    precision: str = _knob(
        "bf16", "precision recipe, such as bf16, fp8-block or mxfp8", allowed=tuple(PRECISIONS)
    )
    grad_dtype: str = _knob(
        "usual", "accumulated gradients: usual (assumed), 16-bit, fp32", allowed=("usual", *GRADIENTS)
    )
    master_copy: str = _knob(
        "usual",
        "master copy of weights: usual, remainder, fp32",
        allowed=("usual", "remainder", "fp32"),
    )
    optimizer_kind: str = _knob(
        "adam", "optimizer recipe, such as adam, adam-8bit or muon", allowed=tuple(OPTIMIZERS)
    )
    offload: str = _knob(
        "none",
        "kept in host memory: none, or optimizer, activations, weights joined by +; in place of activations"
        f" those of modules: {', '.join(OFFLOADED_MODULES)}",
        allowed=("none", *OFFLOADED),
        alone=("none",),
    )
    layout: str = _knob("", "layers of every chunk (8,8 or 4*15,1); else balanced")
    order: Order = _knob("tp-cp-dp-pp", "axes in which ranks are numbered, innermost first")

    def choices(self) -> dict[str, Any]:
        """Return the choices by name."""
        return {choice: getattr(self, choice) for choice in CHOICES}

    @property
    def strategy(self) -> str:
        """Name of the strategy that the choices make up."""
        return next(
            strategy.name
            for strategy in STRATEGIES.values()
            if all(getattr(self, choice) == value for choice, value in strategy.choices.items())
        )


KNOB_SPECS: Final[Mapping[str, KnobSpec]] = {  # allowed are the words of a Literal, or what the knob says
    knob.name: replace(
        spec, allowed=(True, False) if knob.type is bool else spec.allowed or get_args(knob.type)
    )
    for knob, spec in ((knob, knob.metadata["spec"]) for knob in fields(Knobs))
}
KNOBS: Final = tuple(knob.name for knob in fields(Knobs) if knob.type in (Number, Placement))
CHOICES: Final = tuple(name for name in KNOB_SPECS if name not in KNOBS)
PLACEMENTS: Final = tuple(knob.name for knob in fields(Knobs) if knob.type is Placement)
DEFAULTS: Final = {knob.name: knob.default for knob in fields(Knobs)}
ALLOWED_VALUES: Final = {name: spec.allowed for name, spec in KNOB_SPECS.items() if spec.allowed}
JOINED_CHOICES: Final = {name: spec.alone for name, spec in KNOB_SPECS.items() if spec.alone}


def split_choice(choice: str) -> frozenset[str]:
    """Split a choice of words joined by +; empty for ``"none"``.

    >>> sorted(split_choice("attention+norms"))
    ['attention', 'norms']
    """
    return frozenset() if choice == "none" else frozenset(choice.split("+"))


def offloaded_activations(offload: str) -> frozenset[str]:
    """Return the words of a choice of `offload` that move activations: all, or those of modules."""
    return split_choice(offload) & {"activations", *OFFLOADED_MODULES}


def chunks(layout: str) -> tuple[int, ...]:
    """Read a layout: layers of every model chunk; ``4*3`` repeats one. Raise ValueError if it is none.

    >>> chunks("4*3,1")
    (4, 4, 4, 1)
    """
    layers: list[int] = []
    for part in filter(None, layout.replace(" ", "").split(",")):
        number, _, repeats = part.partition("*") if "*" in part else (part, "*", "1")
        if not (number.isdecimal() and repeats.isdecimal() and int(repeats) <= MAX_CHUNKS):
            raise ValueError(part)
        layers += [int(number)] * int(repeats)
    return tuple(layers)


def choice_problems(choice: str, value: object) -> list[str]:
    """Return what is wrong with the value of a choice: one line, or an empty list."""
    if choice == "layout":
        return _layout_problems(value)
    allowed = ALLOWED_VALUES[choice]
    alone = JOINED_CHOICES.get(choice)
    parts: Sequence[object] = str(value).split("+") if alone else [value]
    if alone and len(set(parts)) < len(parts) and all(part in allowed for part in parts):
        once = "+".join(dict.fromkeys(map(str, parts)))
        return [f"{choice} = {value!r}: names one of them twice; write {once}"]
    all_allowed = all(part in allowed and type(part) is type(allowed[0]) for part in parts)
    if all_allowed and (alone is None or len(parts) == 1 or not set(parts) & set(alone)):
        return []
    joined = f", or several of them but {' and '.join(alone)} joined by +" if alone else ""
    listed = sorted(allowed) if type(allowed[0]) is int else allowed  # stages of ZeRO, the default first
    return [f"{choice} = {value!r}: must be one of {', '.join(map(str, listed))}{joined}"]


def _layout_problems(value: object) -> list[str]:
    """Return what is wrong with a layout: one line, or an empty list."""
    wanted = "whole numbers of at least 0 with commas, such as 8,8,8,8 or 4*15,1"
    problems = [f"layout = {value!r}: must hold the layers of every model chunk, {wanted}"]
    if not isinstance(value, str):
        return problems
    try:
        chunks(value)
    except ValueError:
        return problems
    return []


@dataclass(frozen=True)
class Strategy:
    """Way to shard a layer over GPUs; the plans of one batch share it."""

    name: str
    second: str | None  # axis that shards a layer in addition to tp
    choices: Mapping[str, Any]  # that make up the strategy
    alias: str = ""  # in the paper's reference code
    knobs: tuple[str, ...] = ()  # that only this strategy has, besides its axes

    @property
    def layer_axes(self) -> tuple[str, ...]:
        """Axes that shard a layer."""
        return ("tp",) if self.second is None else ("tp", self.second)

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes in enumeration order; the product of their degrees is the number of GPUs."""
        return (*self.layer_axes, "pp", "dp")


STRATEGIES: Final = {
    strategy.name: strategy
    for strategy in (
        Strategy("1d", None, {"tp_kind": "1d", "cp_kind": "none"}, "1d"),
        Strategy("summa", "tp2", {"tp_kind": "summa", "cp_kind": "none"}, "2d", ("panels",)),
        Strategy("context", "cp", {"tp_kind": "1d", "cp_kind": "all-gather"}, "2d-seqp"),
        Strategy("ring", "cp", {"tp_kind": "1d", "cp_kind": "ring"}),
        Strategy("ulysses", "cp", {"tp_kind": "1d", "cp_kind": "ulysses"}, knobs=("ulysses",)),
        Strategy("hybrid", "cp", {"tp_kind": "1d", "cp_kind": "hybrid"}, knobs=("ulysses",)),
    )
}
STRATEGY_ALIASES: Final = {
    strategy.alias: strategy.name for strategy in STRATEGIES.values() if strategy.alias
}
