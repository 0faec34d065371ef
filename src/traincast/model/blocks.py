"""Building blocks of a layer: attention, experts, encoder, and the words of model files."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product, starmap
from math import sqrt
from typing import Final, Literal, NamedTuple, get_args

from traincast.model.linear_attention import LINEAR_ATTENTIONS

MAX_LAYERS: Final = 10_000  # of a model: ten times the deepest that was trained (DeepNet, arXiv 2203.00555)

Routing = Literal["forced", "natural"]
Mlp = Literal["gelu", "relu", "relu2", "silu", "xielu", "swiglu", "geglu", "reglu2"]
Norm = Literal["layernorm", "layernorm-scale", "layernorm-plain", "rmsnorm", "rmsnorm-plain"]
Positions = Literal["none", "rotary", "learned"]
Biased = Literal["qkv", "qv", "proj", "mlp"]
QkNorm = Literal["head", "full", "plain"]
Mixer = Literal[
    "attention", "local", "indexed", "index-shared", "compressed", "compressed-indexed", "encoder", "decoder",
    "cross", "attention+mamba2", "mamba", "mamba2", "gated_delta", "gated_linear", "rg_lru", "rwkv",
    "short_conv", "joint", "joint-last", "",
]  # fmt: skip
FeedForward = Literal["dense", "moe", ""]
ATTENDING: Final[tuple[Mixer, ...]] = (  # with a softmax
    "attention",
    "local",
    "indexed",
    "index-shared",
    "compressed",
    "compressed-indexed",
    "encoder",
    "decoder",
    "attention+mamba2",
    "joint",
    "joint-last",
)
GATED_ACTIVATIONS: Final = frozenset({"swiglu", "geglu", "reglu2"})
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
    # Whether all heads meet the latent vector as it is, key and value in one, as wide as a head with its
    # rotary part (DeepSeek-V4); the output projection then goes through `proj_rank` numbers of each of
    # `proj_groups` groups of heads.
    shared: bool = False
    proj_rank: int | None = None
    proj_groups: int = 1

    @property
    def down(self) -> int:
        """Columns of the projection to the latent vector of keys and values, and to the rotary key beside."""
        return self.kv_rank + (0 if self.shared else self.rope_dim)


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """Compressed keys besides a window of `local` (DeepSeek-V4): one of `rate` tokens that lie behind.

    It is the sum of their projections, weighted by the softmax of a second projection. Keys of `indexed_rate`
    tokens also weigh the tokens of the key before, projected once more, and an indexer selects among them.
    """

    rate: int = 128  # tokens of a key in layers that `layer_kinds` calls compressed
    indexed_rate: int = 4  # and in those it calls compressed-indexed

    def tokens_per_key(self, kind: "Kind") -> int:
        """Return the tokens of a key in layers of a kind."""
        return self.rate if kind.mixer == "compressed" else self.indexed_rate

    def columns(self, kind: "Kind", width: int) -> int:
        """Return the columns of the projections to keys of a width."""
        return 2 * self._series(kind) * width

    def small_weights(self, kind: "Kind", width: int) -> int:
        """Return the weights of the norm of keys, and of the bias by place in what they are made of."""
        return width + self.tokens_per_key(kind) * self._series(kind) * width

    def _series(self, kind: "Kind") -> int:
        """Return the keys that a token is projected to a part of."""
        return 1 if kind.mixer == "compressed" else 2


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Lightning indexer, which selects the keys that a query attends to (arXiv 2512.02556, section 2.1).

    By blocks (MiniMax-M3) queries come from the hidden state, the best score of a block stands for it, and
    each head selects for a group of attention's heads.
    """

    heads: int
    head_dim: int
    topk: int  # keys of a query
    block: int = 1  # keys that are selected together; above 1 those of the query's own block are among them


@dataclass(frozen=True, kw_only=True)
class Local:
    """Local attention in some of the layers: a sliding window, or chunks."""

    window: int  # tokens of a sliding window or of a chunk
    chunked: bool = False  # whether the sequence is divided into chunks instead of a sliding window
    # Interval of layers with global attention: layers n, 2n, ... counted from 1. 0 for none.
    global_every: int = 0
    # Layers with local attention, counted from 1; replaces `global_every` for irregular patterns.
    layers: tuple[int, ...] = ()
    # Heads of these layers and whether they have sinks, where they differ from those of the other layers.
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    sinks: bool | None = None
    keys_are_values: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Figures in which some layers differ; `layer_kinds` names such layers ``dense @name``."""

    name: str
    # Where they differ from those of the model.
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None
    reuses_keys: bool = False  # whether keys and values are those of a layer before, not projected
    plain: bool = False  # whether its products stay at 16 bits in a recipe with 4-bit ones


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Encoder to whose result all other layers of the model attend (arXiv 1706.03762, section 3)."""

    seq: int  # tokens of text, or frames of sound after the convolutions
    layers: int = 0  # the first ones of the model; 0 if the encoder is left out and only its result is read
    # Heads and inner width of the MLP, where they differ from the decoder's.
    heads: int | None = None
    ffn: int | None = None
    width: int | None = None  # of its result; as the model's if None
    # Values of a frame of sound that two convolutions of 3 frames embed, the second halving their number
    # (Whisper: arXiv 2212.04356, section 2.2); None for text, embedded with the decoder's matrix.
    frame: int | None = None
    max_positions: int | None = None  # length of its table of learned positions; as the decoder's if None
    window: int | None = None  # tokens that one of its tokens attends to; all of them if None
    small_weights: int = 0  # weights of one of its layers whose work is negligible, or left out
    qk_norm: bool = False  # whether queries and keys of attention to its result are normed head by head


@dataclass(frozen=True, kw_only=True)
class OwnWidth:
    """Embedding and head of another width than the layers (ALBERT: arXiv 1909.11942, section 3.1)."""

    width: int  # of the embedding
    head_width: int | None = None  # of what the head multiplies; that of the embedding if None
    bias: bool = True  # whether the projections from and to the layers have one
    wide_positions: bool = False  # whether positions are added behind the projection (OPT)


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Mixture of experts in place of the MLP."""

    # Experts of a layer, and experts a token is routed to.
    experts: int
    topk: int
    ffn: int  # inner width of one expert
    # Width of what experts read and return, between two projections of a token (LatentMoE of Nemotron 3
    # Super); the model's if None.
    width: int | None = None
    shared_ffn: int = 0  # total inner width of the shared experts, which process all tokens; 0 for none
    shared_gate: bool = False  # whether a separate gate scales the output of the shared expert (Qwen2-MoE)
    first_dense: int = 0  # leading layers with a dense MLP
    every: int = 1  # interval of layers with experts: layers n, 2n, ... counted from 1, after `first_dense`
    router_bias: bool = False  # whether the router has a trained bias
    result_norm: bool = False  # whether the result of all experts is normed (A.X K1)
    zero: int = 0  # experts without weights, which return their input (LongCat-Flash, arXiv 2509.01322)
    # Groups of experts, one after the other, and those of them that hold all experts of a token: where a node
    # has a group, this limits the nodes that a token is sent to (arXiv 2405.04434, section 2.2.2).
    groups: int = 1
    group_topk: int = 1
    # Capacity factor: an expert takes at most this multiple of the mean load, the rest is dropped. None: no
    # token is dropped.
    capacity: float | None = None
    imbalance: float = 1.0  # load of the fullest expert-parallel rank relative to the mean
    # Tokens of each expert, in any unit (measured counts); replaces `imbalance`. Empty if not known.
    load: tuple[float, ...] = ()
    # Who decides on a token's experts: a benchmark that balances them by force, or the router, which leaves
    # some ranks fuller; without `load` alone.
    routing: Routing = "forced"

    @property
    def routed(self) -> float:
        """Experts with weights that a token is routed to, on average where all are as likely."""
        return self.topk * self.experts / (self.experts + self.zero) if self.zero else self.topk

    def fullest(self, ep: int) -> float:
        """Return the load of the fullest of `ep` ranks relative to the mean: 1 for one rank."""
        if ep == 1:
            return 1.0
        load = self.imbalance
        if self.load:
            local = self.experts // ep
            ranks = [sum(self.load[i : i + local]) for i in range(0, self.experts, local)]
            load = max(ranks) * len(ranks) / sum(ranks)
        elif self.routing == "natural":
            load = max(load, natural_load(ep, self.experts))
        return load if self.capacity is None else min(load, self.capacity)


# Deviation of the tokens of the experts of a trained router, over their mean [1]. With a loss for balance the
# fullest of 64 experts has 1.52 (3 G parameters) to 1.72 (1 G) of the mean over a validation set (arXiv
# 2408.15664, table 2): 0.22 to 0.31 of the deviation. Tokens of a micro-batch vary more, experts whose biases
# are balanced less.
NATURAL_SPREAD: Final = 0.3


def natural_load(ep: int, experts: int) -> float:
    """Return the load of the fullest of `ep` ranks relative to the mean, where the router decides.

    The mean of the E/ep experts of a rank deviates by their spread times √(ep/E), and the largest of ep
    normal deviates is that of the share (ep - 3/8) / (ep + 1/4) of them (Blom, 1958).
    """
    from statistics import NormalDist

    largest = NormalDist().inv_cdf((ep - 0.375) / (ep + 0.25))
    return 1 + NATURAL_SPREAD * sqrt(ep / experts) * largest


@dataclass(frozen=True, kw_only=True)
class Diffusion:
    """What makes a transformer one for diffusion: latent images, text beside them, and adaptive norms.

    The time step and other conditions of a sample give vectors that scale, shift and gate each block
    (adaptive layer norm, arXiv 2212.09748, section 3.2): one product a sample, not a token.
    """

    inputs: int  # values of a patch of the latent image, which a linear layer embeds
    outputs: int  # and of what is predicted for it
    pixels: int  # pixels of the image along a side of a patch
    frames: int = 1  # latent frames, of a video
    text: int = 0  # tokens of text in the sequence, in layers of kind "joint" with weights of their own
    text_width: int = 0  # of the embedding of text, which is projected to the model's; 0 for none
    text_layers: int = 1  # linear layers of that projection
    single: bool = False  # whether layers that are not joint have attention and MLP beside each other
    shared: bool = False  # whether all layers share the product that makes the vectors
    final: bool = True  # whether a product makes the vectors of the last norm as well
    conditions: tuple[int, ...] = (256,)  # widths of the conditions of a sample, each embedded by two layers

    def vectors(self, kind: "Kind") -> int:
        """Return the vectors of a layer: a scale, a shift and a gate for each block of each stream."""
        single = 3 if self.single and not kind.joint else 6
        return {"joint": 12, "joint-last": 8}.get(kind.mixer, single)


@dataclass(frozen=True, kw_only=True)
class Projector:
    """One linear layer, or two with an activation between them, that each token of an image passes."""

    widths: tuple[int, ...]  # of the input, and of the output of each layer
    biased: bool = True
    gated: bool = False  # whether the activation is gated, so that the first layer has twice the width
    norm: int = 0  # weights of the norm of the input; 0 for none

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Input and output width of each linear layer."""
        (i, o), *second = zip(self.widths, self.widths[1:], strict=False)
        return ((i, o * (1 + self.gated)), *second)

    @property
    def matrices(self) -> int:
        """Weights of the products."""
        return sum(i * o for i, o in self.layers)

    @property
    def parameters(self) -> int:
        """Weights, with biases and norm."""
        return self.matrices + self.biased * sum(o for _, o in self.layers) + self.norm


class Kind(NamedTuple):
    """Kind of a layer: what mixes its tokens, its feed-forward block, and its shape; "" for none."""

    mixer: Mixer
    feed_forward: FeedForward
    shape: str = ""

    @property
    def local(self) -> bool:
        """Whether its attention is local, or can be that of an encoder."""
        return self.mixer in ("local", "encoder")

    @property
    def moe(self) -> bool:
        """Whether it has experts."""
        return self.feed_forward == "moe"

    @property
    def attends(self) -> bool:
        """Whether it has attention with a softmax among its own tokens."""
        return self.mixer in ATTENDING

    @property
    def crosses(self) -> bool:
        """Whether it attends to the encoder's result: beside its own tokens, or instead."""
        return self.mixer in ("decoder", "cross")

    @property
    def scores(self) -> bool:
        """Whether it has attention with a softmax to anything."""
        return self.attends or self.crosses

    @property
    def joint(self) -> bool:
        """Whether text and image have weights of their own, and attend to each other."""
        return self.mixer in ("joint", "joint-last")

    @property
    def indexed(self) -> bool:
        """Whether its attention meets the keys that an indexer selects, its own or that of a layer before."""
        return self.mixer in ("indexed", "index-shared")

    @property
    def compressed(self) -> bool:
        """Whether it attends to compressed keys."""
        return self.mixer in ("compressed", "compressed-indexed")

    @property
    def linear(self) -> str:
        """Name of its linear attention, in place of attention or beside it; "" for none."""
        name = self.mixer.removeprefix("attention+")
        return name if name in LINEAR_ATTENTIONS else ""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts of a model that it needs."""
        parts = [self.mixer, self.linear, *(["experts"] if self.moe else [])]
        parts += ["compressed", "local"] if self.compressed else []
        return (*parts, *(["indexer"] if "indexed" in self.mixer or self.indexed else []))

    @property
    def mixing(self) -> str:
        """Name of what mixes its tokens: of its linear attention if it has any, else of its attention."""
        return self.linear or ("joint" if self.joint else self.mixer)

    @property
    def is_pair(self) -> bool:
        """Whether it has both blocks, each with norms of its own."""
        return bool(self.mixer and self.feed_forward)

    def __str__(self) -> str:
        shape = f" @{self.shape}" if self.shape else ""
        if not self.is_pair:
            return f"{self.mixer or self.feed_forward} only{shape}"
        mixer = "" if self.mixer == "attention" else f"{self.mixer} "
        return f"{mixer}{self.feed_forward}{shape}"


KINDS: Final[Mapping[str, Kind]] = {  # by the name of a layer in a model file, without its shape
    str(kind): kind for kind in starmap(Kind, product(get_args(Mixer), get_args(FeedForward))) if any(kind)
}


def kind_of(name: str) -> Kind | None:
    """Return the kind of a layer by its name in a model file; None if there is none of that name."""
    known, _, shape = name.partition(" @")
    return KINDS[known]._replace(shape=shape) if known in KINDS else None


ENCODER: Final = Kind("encoder", "dense")
DECODER: Final = Kind("decoder", "dense")
