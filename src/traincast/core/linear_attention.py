"""Linear attention and state spaces in place of attention: widths, weights and FLOPs of each kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final


class _Channels:
    """Base of kinds without heads: the result and the convolution are as wide as their channels."""

    width: int
    replicated: ClassVar[int] = 0

    @property
    def inner(self) -> int:
        """Width of the result."""
        return self.width

    @property
    def sharded_heads(self) -> tuple[int, ...]:
        """Channels, or blocks of them, which tensor ranks share evenly."""
        return (self.width,)

    @property
    def conv_width(self) -> int:
        """Channels of the convolution."""
        return self.width


@dataclass(frozen=True, kw_only=True)
class Mamba(_Channels):
    """Mamba-1, a selective state space, in place of attention (arXiv 2312.00752, section 3).

    Every channel has a state of `state` elements with decays of their own, so its scan is no matrix product.
    """

    width: int  # channels
    state: int = 16  # elements of a channel's state
    rank: int  # of the projection that makes dt, the step of each channel
    conv: int = 4  # tokens that the causal convolution spans
    conv_bias: bool = True  # whether the convolution has a bias
    bias: bool = False  # whether the projections have one
    norm: bool = False  # whether norms follow on dt, B and C (Jamba)
    norm_weights: bool = True  # whether these have weights (Falcon Mamba: not)

    @property
    def projected(self) -> int:
        """Columns of the projection of the input: x and the gate z."""
        return 2 * self.width

    @property
    def selected(self) -> int:
        """Columns of the projection of x to what selects: dt before its own projection, B and C."""
        return self.rank + 2 * self.state

    @property
    def inner_matrices(self) -> int:
        """Weights of the products inside: to dt, B and C, and from dt to its channels."""
        return self.width * (self.selected + self.rank)

    @property
    def conv_weights(self) -> int:
        """Weights of the convolution."""
        return self.width * (self.conv + self.conv_bias)

    @property
    def small_weights(self) -> int:
        """Weights of no product or convolution: A, D and the bias of dt, and norms."""
        return self.width * (self.state + 2) + (self.selected if self.norm and self.norm_weights else 0)

    @property
    def scan_flops(self) -> int:
        """FLOPs of the scan for a token, 9 for an element of a state (mamba_ssm, issue 110) [FLOP]."""
        return self.width * (9 * self.state + 2)


@dataclass(frozen=True, kw_only=True)
class Mamba2:
    """Mamba-2, a selective state space, in place of attention (arXiv 2405.21060, section 7).

    Every head has a state of `state` x `head_dim` elements; its decay is one number for each token.
    """

    heads: int
    head_dim: int
    state: int  # rows of a head's state
    groups: int = 1  # groups of heads that share B and C, what writes to the state and what reads it
    conv: int = 4  # tokens that the causal convolution spans
    conv_bias: bool = True  # whether the convolution has a bias
    bias: bool = False  # whether the projections have one
    norm: bool = True  # whether the result is normed
    chunk: int = 256  # tokens of a chunk of the scan

    replicated: ClassVar[int] = 0
    inner_matrices: ClassVar[int] = 0

    @property
    def inner(self) -> int:
        """Width of the result of all heads."""
        return self.heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """Columns of the projection of the input: the gate z, the convolution's channels, and dt."""
        return self.inner + self.conv_width + self.heads

    @property
    def conv_weights(self) -> int:
        """Weights of the convolution."""
        return self.conv_width * (self.conv + self.conv_bias)

    @property
    def small_weights(self) -> int:
        """Weights of no product or convolution: A, D and the bias of dt, and the norm of the result."""
        return 3 * self.heads + (self.inner if self.norm else 0)

    @property
    def sharded_heads(self) -> tuple[int, ...]:
        """Numbers of heads, which tensor ranks share evenly: those with a state, and groups of them."""
        return self.heads, self.groups

    @property
    def scan_flops(self) -> int:
        """FLOPs of the scan for a token, as Megatron-LM counts them (mamba_layer_flops) [FLOP]."""
        return 7 * self.inner * self.state


@dataclass(frozen=True, kw_only=True)
class GatedDelta:
    """Gated delta net, linear attention that overwrites what it stored, in place of attention.

    arXiv 2412.06464, as in Qwen3-Next: a state of `key_dim` x `value_dim` elements for each value head. With
    decays by channel it is Kimi delta attention (arXiv 2510.26692, section 3).
    """

    key_heads: int  # of queries and of keys
    value_heads: int
    # Width of the query and key of a head, and of its value.
    key_dim: int
    value_dim: int
    conv: int = 4  # tokens that the causal convolution spans
    chunk: int = 64  # tokens of a chunk of the scan
    channel_decay: bool = False  # whether each row of a state has a decay of its own, not each head
    # Width between the two projections that make the gate, and those that make the decay; None for one each.
    gate_rank: int | None = None

    bias: ClassVar[bool] = False

    @property
    def inner(self) -> int:
        """Width of the result of all heads."""
        return self.value_heads * self.value_dim

    @property
    def decays(self) -> int:
        """Numbers that decay the states of a token: of value heads, or of their rows."""
        return self.value_heads * (self.key_dim if self.channel_decay else 1)

    @property
    def replicated(self) -> int:
        """Columns of the narrow projections, which every tensor rank has, to the ranks of gate and decay."""
        return 2 * (self.gate_rank or 0)

    @property
    def inner_matrices(self) -> int:
        """Weights of the products inside: from the ranks to gate and decay."""
        return (self.gate_rank or 0) * (self.inner + self.decays)

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.inner

    @property
    def projected(self) -> int:
        """Columns of the projection of the input: the convolution's channels, gate z, decay and strength."""
        gates = self.inner + self.decays if self.gate_rank is None else 0
        return self.conv_width + gates + self.value_heads

    @property
    def conv_weights(self) -> int:
        """Weights of the convolution."""
        return self.conv_width * self.conv

    @property
    def small_weights(self) -> int:
        """Weights of no product or convolution: A and the bias of dt, and the norm that heads share."""
        return self.value_heads + self.decays + self.value_dim

    @property
    def sharded_heads(self) -> tuple[int, ...]:
        """Numbers of heads, which tensor ranks share evenly: those with a state, and those of keys."""
        return self.value_heads, self.key_heads

    @property
    def scan_flops(self) -> int:
        """FLOPs of the scan for a token, as Megatron-LM counts them (gdn_layer_flops) [FLOP]."""
        return 2 * (4 * self.value_heads * self.value_dim**2 + self.conv * self.conv_width)


@dataclass(frozen=True, kw_only=True)
class GatedLinear:
    """Linear attention whose heads decay, each by one number, in place of attention; its result is gated.

    Lightning attention (arXiv 2401.04658, as in MiniMax-01: decays are constants) and mLSTM (arXiv
    2405.04517, section 2.3: decay and strength are projections of the input).
    """

    heads: int
    # Width of the query and key of a head, and of its value.
    key_dim: int
    value_dim: int
    gates: int = 0  # numbers of each head for a token that are projected from the input, each with a bias
    activated: bool = False  # whether SiLU follows on the projection to queries, keys and values
    chunk: int = 256  # tokens of a chunk of the scan

    bias: ClassVar[bool] = False
    conv_weights: ClassVar[int] = 0
    replicated: ClassVar[int] = 0
    inner_matrices: ClassVar[int] = 0

    @property
    def inner(self) -> int:
        """Width of the result of all heads."""
        return self.heads * self.value_dim

    @property
    def attending(self) -> int:
        """Width of queries, keys and values."""
        return self.heads * (2 * self.key_dim + self.value_dim)

    @property
    def projected(self) -> int:
        """Columns of the projection of the input: queries, keys, values, gate, and numbers of heads."""
        return self.attending + self.inner + self.gates * self.heads

    @property
    def small_weights(self) -> int:
        """Weights of no product: the norm of the result, and the biases of numbers of heads."""
        return self.inner + self.gates * self.heads

    @property
    def sharded_heads(self) -> tuple[int, ...]:
        """Heads, which tensor ranks share evenly."""
        return (self.heads,)

    @property
    def scan_flops(self) -> int:
        """FLOPs of the recurrence S = a S + k' v, o = q S for a token [FLOP]."""
        return 5 * self.heads * self.key_dim * self.value_dim


@dataclass(frozen=True, kw_only=True)
class RgLru(_Channels):
    """Real-gated linear recurrent unit in place of attention (Griffin, arXiv 2402.19427, section 2.4).

    Projections and convolution have a bias. Gates are products of the channels of a block with one another.
    """

    width: int  # channels, each with a state of one element
    blocks: int  # that the channels are divided into
    conv: int = 4  # tokens that the causal convolution spans

    bias: ClassVar[bool] = True

    @property
    def projected(self) -> int:
        """Columns of the projection of the input: x and the branch that gates the result."""
        return 2 * self.width

    @property
    def inner_matrices(self) -> int:
        """Weights of the products inside: both gates, block by block."""
        return 2 * self.width * self.width // self.blocks

    @property
    def conv_weights(self) -> int:
        """Weights of the convolution."""
        return self.width * (self.conv + 1)

    @property
    def small_weights(self) -> int:
        """Weights of no product or convolution: the decay, and the biases of both gates."""
        return 3 * self.width

    @property
    def sharded_heads(self) -> tuple[int, ...]:
        """Blocks, which tensor ranks share evenly."""
        return (self.blocks,)

    @property
    def scan_flops(self) -> int:
        """FLOPs of the recurrence h = a h + b x for a token [FLOP]."""
        return 3 * self.width


@dataclass(frozen=True, kw_only=True)
class Rwkv(_Channels):
    """Time mixing of RWKV-4 in place of attention (arXiv 2305.13048, section 3.1.1).

    Each channel is a weighted mean of the values before, whose weights decay; it is as wide as the model. Its
    three projections have inputs of their own, each mixed with the token before.
    """

    width: int  # channels

    bias: ClassVar[bool] = False
    conv_weights: ClassVar[int] = 0
    inner_matrices: ClassVar[int] = 0

    @property
    def sharded_heads(self) -> tuple[int, ...]:
        """One block: no software cuts it."""
        return (1,)

    @property
    def projected(self) -> int:
        """Columns of the projections of the input: keys, values and receptance."""
        return 3 * self.width

    @property
    def small_weights(self) -> int:
        """Weights of no product: mixing with the token before, decay, and weight of the token itself."""
        return 5 * self.width

    @property
    def scan_flops(self) -> int:
        """FLOPs of numerator and denominator of the mean, and their decay, for a token [FLOP]."""
        return 8 * self.width


@dataclass(frozen=True, kw_only=True)
class ShortConv(_Channels):
    """Short convolution between two gates, y = c * conv(b * x), in place of attention (LFM2)."""

    width: int  # channels
    conv: int = 3  # tokens that the causal convolution spans
    bias: bool = False  # whether convolution and projections have a bias

    small_weights: ClassVar[int] = 0
    inner_matrices: ClassVar[int] = 0

    @property
    def projected(self) -> int:
        """Columns of the projection of the input: x and both gates."""
        return 3 * self.width

    @property
    def conv_weights(self) -> int:
        """Weights of the convolution."""
        return self.width * (self.conv + self.bias)

    @property
    def scan_flops(self) -> int:
        """FLOPs of the convolution for a token [FLOP]."""
        return 2 * self.conv * self.width


LinearAttention = Mamba | Mamba2 | GatedDelta | GatedLinear | RgLru | Rwkv | ShortConv
LINEAR: Final[Mapping[str, type[LinearAttention]]] = {  # by the name of the part in a model
    "mamba": Mamba,
    "mamba2": Mamba2,
    "gated_delta": GatedDelta,
    "gated_linear": GatedLinear,
    "rg_lru": RgLru,
    "rwkv": Rwkv,
    "short_conv": ShortConv,
}
