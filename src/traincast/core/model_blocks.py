"""Building blocks of a layer: kinds of attention, mixture of experts, and the words of model files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Mlp = Literal["gelu", "relu", "relu2", "swiglu", "geglu"]
Norm = Literal["layernorm", "layernorm-scale", "layernorm-plain", "rmsnorm", "rmsnorm-plain"]
Positions = Literal["none", "rotary", "learned"]
Biased = Literal["qkv", "proj", "mlp"]
QkNorm = Literal["head", "full", "plain"]
GATED: Final = frozenset({"swiglu", "geglu"})
NORM_VECTORS: Final[Mapping[Norm, int]] = {  # weight vectors: scale and shift, scale alone, none
    "layernorm": 2,
    "layernorm-scale": 1,
    "layernorm-plain": 0,
    "rmsnorm": 1,
    "rmsnorm-plain": 0,
}


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention, one latent vector per token (arXiv 2405.04434, section 2.1)."""

    kv_rank: int  # width of the latent vector of keys and values
    # Width of the query and key of a head without and with rotary positions.
    nope_dim: int
    rope_dim: int
    value_dim: int  # width of the value of a head
    # Width of the latent vector of queries; None if queries come from the hidden state.
    q_rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Local:
    """Local attention in some of the layers: a sliding window, or chunks."""

    window: int  # tokens of a sliding window or of a chunk
    chunked: bool = False  # whether the sequence is divided into chunks instead of a sliding window
    # Interval of layers with global attention: layers n, 2n, ... counted from 1. 0 for none.
    global_every: int = 0
    # Layers with local attention, counted from 1; replaces `global_every` for irregular patterns.
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Mixture of experts in place of the MLP."""

    # Experts of a layer, and experts a token is routed to.
    experts: int
    topk: int
    ffn: int  # inner width of one expert
    shared_ffn: int = 0  # total inner width of the shared experts, which process all tokens; 0 for none
    shared_gate: bool = False  # whether a separate gate scales the output of the shared expert (Qwen2-MoE)
    first_dense: int = 0  # leading layers with a dense MLP
    every: int = 1  # interval of layers with experts: layers n, 2n, ... counted from 1, after `first_dense`
    router_bias: bool = False  # whether the router has a trained bias
    # Capacity factor: an expert takes at most this multiple of the mean load, the rest is dropped. None: no
    # token is dropped.
    capacity: float | None = None
    imbalance: float = 1.0  # load of the fullest expert-parallel rank relative to the mean
    # Tokens of each expert, in any unit (measured counts); replaces `imbalance`. Empty if not known.
    load: tuple[float, ...] = ()

    def fullest(self, ep: int) -> float:
        """Return the load of the fullest of `ep` ranks relative to the mean: 1 for one rank."""
        if ep == 1:
            return 1.0
        load = self.imbalance
        if self.load:
            local = self.experts // ep
            ranks = [sum(self.load[i : i + local]) for i in range(0, self.experts, local)]
            load = max(ranks) * len(ranks) / sum(ranks)
        return load if self.capacity is None else min(load, self.capacity)


class Kind(NamedTuple):
    """Kind of a layer: local or global attention, dense MLP or experts."""

    local: bool
    moe: bool

    def __str__(self) -> str:
        return ("local " if self.local else "") + ("moe" if self.moe else "dense")
