"""What a transformer layer can be made of: kinds of attention, mixtures of experts, and the words a model file uses."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Mlp = Literal["gelu", "relu", "relu2", "swiglu", "geglu"]
Norm = Literal["layernorm", "rmsnorm"]
Positions = Literal["none", "rotary", "learned"]
Biased = Literal["qkv", "proj", "mlp"]
QkNorm = Literal["head", "full", "plain"]
GATED: Final = frozenset({"swiglu", "geglu"})


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention: keys and values from one narrow vector per token (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Parameters
    ----------
    kv_rank : int
        Width of the vector that keys and values are made from.
    q_rank : int or None
        Width of the vector that queries are made from; None where they are made from the hidden state.
    nope_dim, rope_dim : int
        Width of a head's query and key without and with rotary positions.
    value_dim : int
        Width of a head's value.
    """

    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    q_rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Local:
    """Attention to a stretch of the sequence only, in some of the layers.

    Parameters
    ----------
    window : int
        Tokens of a sliding window or of a chunk.
    chunked : bool
        Whether the sequence is cut into chunks instead of a window that slides.
    global_every : int
        Every how many layers one attends to the whole sequence: layers n, 2n, ... counted from 1. 0 if none does.
    layers : tuple of int
        The layers with local attention, counted from 1, where `global_every` cannot tell; takes its place.
    """

    window: int
    chunked: bool = False
    global_every: int = 0
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Mixture of experts in place of the MLP.

    Parameters
    ----------
    experts, topk : int
        Experts of a layer, and those a token goes to.
    ffn : int
        Width of one expert's inner layer.
    shared_ffn : int
        Inner width of the experts all tokens go to, together; 0 for none.
    shared_gate : bool
        Whether the shared expert's result is scaled by a gate of its own (Qwen2-MoE).
    first_dense : int
        Layers at the beginning that keep a dense MLP.
    every : int
        Every how many layers one has experts: layers n, 2n, ... counted from 1, after `first_dense`.
    router_bias : bool
        Whether the router has a trained bias.
    capacity : float or None
        Capacity factor: an expert takes at most that multiple of the mean, the rest is dropped. None: no token is dropped.
    imbalance : float
        Load of the fullest expert-parallel rank relative to the mean.
    load : tuple of float
        Tokens each expert gets, in any unit (measured counts); takes the place of `imbalance`. Empty where not known.
    """

    experts: int
    topk: int
    ffn: int
    shared_ffn: int = 0
    shared_gate: bool = False
    first_dense: int = 0
    every: int = 1
    router_bias: bool = False
    capacity: float | None = None
    imbalance: float = 1.0
    load: tuple[float, ...] = ()

    def fullest(self, ep: int) -> float:
        """Load of the fullest of `ep` ranks relative to the mean: 1 for one rank."""
        if ep == 1:
            return 1.0
        busiest = self.imbalance
        if self.load:
            each = self.experts // ep
            sums = [sum(self.load[i : i + each]) for i in range(0, self.experts, each)]
            busiest = max(sums) * len(sums) / sum(sums)
        return busiest if self.capacity is None else min(busiest, self.capacity)


class Kind(NamedTuple):
    """What sets one layer apart from another."""

    local: bool
    moe: bool

    def __str__(self) -> str:
        return ("local " if self.local else "") + ("moe" if self.moe else "dense")
