"""Choices of a plan: strategies of sharding a layer, and the allowed values of every other choice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from traincast.core.precision import GRADIENTS, OPTIMIZERS, PRECISIONS

TpKind = Literal["1d", "summa"]
CpKind = Literal["none", "all-gather", "ring", "ulysses", "hybrid"]
Attention = Literal["flash", "unfused", "summa"]
Zero = Literal[0, 1, 2, 3]
ScheduleName = Literal["gpipe", "1f1b", "zb-h1", "zb-h2", "zb-2p", "zb-v", "dualpipe"]
Order = Literal["tp-cp-dp-pp", "tp-cp-pp-dp"]
MODULES: Final[Mapping[str, frozenset[str]]] = {  # word of `recompute` -> modules that are recomputed
    "selective": frozenset({"attention"}),
    "attention": frozenset({"attention"}),
    "activation": frozenset({"activation"}),
    "norms": frozenset({"norms"}),
    "mlp": frozenset({"mlp", "activation"}),
    "experts": frozenset({"experts", "activation"}),
    "per-op": frozenset(
        {"per-op"}
    ),  # every second product and all elementwise operations (torchtitan's selective checkpointing)
    "mla_up_proj": frozenset(
        {"latent"}
    ),  # queries, keys and values of latent attention (Megatron-Core's name)
}
OFFLOADED: Final = ("optimizer", "activations", "weights")
ALLOWED: Final[Mapping[str, tuple[Any, ...]]] = {  # choice -> its allowed values
    "tp_kind": get_args(TpKind),
    "cp_kind": get_args(CpKind),
    "sp": (True, False),
    "tp_overlap": (True, False),
    "ep_overlap": (True, False),
    "attention": get_args(Attention),
    "recompute": ("none", "full", *MODULES),
    "zero": get_args(Zero),
    "schedule": get_args(ScheduleName),
    "precision": tuple(PRECISIONS),
    "grad_dtype": ("usual", *GRADIENTS),
    "optimizer_kind": tuple(OPTIMIZERS),
    "offload": ("none", *OFFLOADED),
    "order": get_args(Order),
}
MAX_CHUNKS: Final = 1 << 16  # of a layout
JOINED: Final = {
    "recompute": ("none", "full"),
    "offload": ("none",),
}  # choices of words joined by + -> words that cannot be joined


def words(choice: str) -> frozenset[str]:
    """Split a choice of words joined by +; empty for ``"none"``.

    Examples
    --------
    >>> sorted(words("attention+norms"))
    ['attention', 'norms']
    """
    return frozenset() if choice == "none" else frozenset(choice.split("+"))


def chunks(layout: str) -> tuple[int, ...]:
    """Read a layout: layers of every model chunk, in order; empty for an empty text.

    Raises
    ------
    ValueError
        If it is not a list of whole numbers of at least 0, each optionally with a repeat count (``4*3``).

    Examples
    --------
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


@dataclass(frozen=True)
class Strategy:
    """Way to shard a layer over GPUs; the plans of one batch share it.

    Parameters
    ----------
    name : str
        Name of the strategy.
    second : str or None
        Second axis that shards a layer, beside tp.
    choices : mapping of str to str
        Choices of a plan that make up the strategy.
    alias : str
        Name in the paper's reference code; empty if it has none.
    """

    name: str
    second: str | None
    choices: Mapping[str, Any]
    alias: str = ""

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
        Strategy("summa", "tp2", {"tp_kind": "summa", "cp_kind": "none"}, "2d"),
        Strategy("context", "cp", {"tp_kind": "1d", "cp_kind": "all-gather"}, "2d-seqp"),
        Strategy("ring", "cp", {"tp_kind": "1d", "cp_kind": "ring"}),
        Strategy("ulysses", "cp", {"tp_kind": "1d", "cp_kind": "ulysses"}),
        Strategy("hybrid", "cp", {"tp_kind": "1d", "cp_kind": "hybrid"}),
    )
}
ALIASES: Final = {strategy.alias: strategy.name for strategy in STRATEGIES.values() if strategy.alias}


def choice_problems(choice: str, value: Any) -> list[str]:
    """Return what is wrong with the value of a choice: one line, or an empty list."""
    if choice == "layout":
        return _layout_problems(value)
    allowed, alone = ALLOWED[choice], JOINED.get(choice)
    parts = str(value).split("+") if alone else [value]
    all_allowed = all(part in allowed and type(part) is type(allowed[0]) for part in parts)
    if all_allowed and (alone is None or len(parts) == 1 or not set(parts) & set(alone)):
        return []
    joined = f", or several of them but {' and '.join(alone)} joined by +" if alone else ""
    return [f"{choice} = {value!r}: must be one of {', '.join(map(str, allowed))}{joined}"]


def _layout_problems(value: Any) -> list[str]:
    """Return what is wrong with a layout: one line, or an empty list."""
    try:
        chunks(value)
    except (ValueError, AttributeError):
        wanted = "whole numbers of at least 0 with commas, such as 8,8,8,8 or 4*15,1"
        return [f"layout = {value!r}: must hold the layers of every model chunk, {wanted}"]
    return []
