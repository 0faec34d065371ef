"""Linear attention and state spaces in place of attention: widths, weights and FLOPs of each kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple


class LinearCounts(NamedTuple):
    """What every kind of linear attention has: widths, weights, and FLOPs of the scan."""

    inner: int  # width of the result of all heads or channels
    projected: int  # columns of the projection of the input
    sharded: tuple[int, ...]  # heads, groups of them, channels or blocks, which tensor ranks share evenly
    small_weights: int  # weights of no product or convolution
    scan_flops: int  # of a token [FLOP]
    conv_width: int = 0  # channels of the causal convolution
    conv_weights: int = 0
    inner_matrices: int = 0  # weights of the products inside
    replicated: int = 0  # columns of narrow projections, which every tensor rank has


@dataclass(frozen=True, kw_only=True)
class Mamba:
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
    def selected(self) -> int:
        """Columns of the projection of x to what selects: dt before its own projection, B and C."""
        return self.rank + 2 * self.state

    @property
    def counts(self) -> LinearCounts:
        """Widths, weights and FLOPs: 9 for an element of a state (mamba_ssm, issue 110)."""
        norms = self.selected if self.norm and self.norm_weights else 0
        return LinearCounts(
            inner=self.width,
            projected=2 * self.width,  # x and the gate z
            sharded=(self.width,),
            small_weights=self.width * (self.state + 2) + norms,  # A, D and the bias of dt
            scan_flops=self.width * (9 * self.state + 2),
            conv_width=self.width,
            conv_weights=self.width * (self.conv + self.conv_bias),
            inner_matrices=self.width * (self.selected + self.rank),  # to dt, B, C; from dt
        )


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

    @property
    def counts(self) -> LinearCounts:
        """Widths, weights and FLOPs, these as Megatron-LM counts them (mamba_layer_flops)."""
        inner = self.heads * self.head_dim
        conv_width = inner + 2 * self.groups * self.state  # x, B and C
        return LinearCounts(
            inner=inner,
            projected=inner + conv_width + self.heads,  # the gate z, the convolution's channels, and dt
            sharded=(self.heads, self.groups),
            small_weights=3 * self.heads + (inner if self.norm else 0),  # A, D, the bias of dt; the norm
            scan_flops=7 * inner * self.state,
            conv_width=conv_width,
            conv_weights=conv_width * (self.conv + self.conv_bias),
        )


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
    def decays(self) -> int:
        """Numbers that decay the states of a token: of value heads, or of their rows."""
        return self.value_heads * (self.key_dim if self.channel_decay else 1)

    @property
    def counts(self) -> LinearCounts:
        """Widths, weights and FLOPs, these as Megatron-LM counts them (gdn_layer_flops)."""
        inner = self.value_heads * self.value_dim
        rank = self.gate_rank or 0
        heads = self.value_heads
        conv_width = 2 * self.key_heads * self.key_dim + inner  # queries, keys and values
        gates = inner + self.decays  # gate z and decay, through the narrow width if there is one
        return LinearCounts(
            inner=inner,
            projected=conv_width + (0 if rank else gates) + heads,  # and the strength of each head
            sharded=(heads, self.key_heads),
            small_weights=heads + self.decays + self.value_dim,  # A, the bias of dt; the norm heads share
            scan_flops=2 * (4 * heads * self.value_dim**2 + self.conv * conv_width),
            conv_width=conv_width,
            conv_weights=conv_width * self.conv,
            inner_matrices=rank * gates,
            replicated=2 * rank,
        )


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

    @property
    def attending(self) -> int:
        """Width of queries, keys and values."""
        return self.heads * (2 * self.key_dim + self.value_dim)

    @property
    def counts(self) -> LinearCounts:
        """Widths, weights and FLOPs, these of the recurrence S = a S + k' v, o = q S."""
        inner = self.heads * self.value_dim
        numbers = self.gates * self.heads
        return LinearCounts(
            inner=inner,
            projected=self.attending + inner + numbers,  # queries, keys, values; gate; numbers of heads
            sharded=(self.heads,),
            small_weights=inner + numbers,  # the norm of the result, and biases
            scan_flops=5 * self.heads * self.key_dim * self.value_dim,
        )


@dataclass(frozen=True, kw_only=True)
class RgLru:
    """Real-gated linear recurrent unit in place of attention (Griffin, arXiv 2402.19427, section 2.4).

    Projections and convolution have a bias. Gates are products of the channels of a block with one another.
    """

    width: int  # channels, each with a state of one element
    blocks: int  # that the channels are divided into
    conv: int = 4  # tokens that the causal convolution spans

    bias: ClassVar[bool] = True

    @property
    def counts(self) -> LinearCounts:
        """Widths, weights and FLOPs, these of the recurrence h = a h + b x."""
        return LinearCounts(
            inner=self.width,
            projected=2 * self.width,  # x and the branch that gates the result
            sharded=(self.blocks,),
            small_weights=3 * self.width,  # the decay, and the biases of both gates
            scan_flops=3 * self.width,
            conv_width=self.width,
            conv_weights=self.width * (self.conv + 1),
            inner_matrices=2 * self.width * self.width // self.blocks,  # both gates, block by block
        )


@dataclass(frozen=True, kw_only=True)
class Rwkv:
    """Time mixing of RWKV-4 in place of attention (arXiv 2305.13048, section 3.1.1).

    Each channel is a weighted mean of the values before, whose weights decay; it is as wide as the model. Its
    three projections have inputs of their own, each mixed with the token before.
    """

    width: int  # channels

    bias: ClassVar[bool] = False

    @property
    def counts(self) -> LinearCounts:
        """Widths, weights and FLOPs, these of numerator and denominator of the mean, and their decay."""
        return LinearCounts(
            inner=self.width,
            projected=3 * self.width,  # keys, values and receptance
            sharded=(1,),  # no software cuts it
            small_weights=5 * self.width,  # mixing with the token before, decay, weight of the token itself
            scan_flops=8 * self.width,
        )


@dataclass(frozen=True, kw_only=True)
class ShortConv:
    """Short convolution between two gates, y = c * conv(b * x), in place of attention (LFM2)."""

    width: int  # channels
    conv: int = 3  # tokens that the causal convolution spans
    bias: bool = False  # whether convolution and projections have a bias

    @property
    def counts(self) -> LinearCounts:
        """Widths, weights and FLOPs, these of the convolution."""
        return LinearCounts(
            inner=self.width,
            projected=3 * self.width,  # x and both gates
            sharded=(self.width,),
            small_weights=0,
            scan_flops=2 * self.conv * self.width,
            conv_width=self.width,
            conv_weights=self.width * (self.conv + self.bias),
        )


LinearAttention = Mamba | Mamba2 | GatedDelta | GatedLinear | RgLru | Rwkv | ShortConv
LINEAR_ATTENTIONS: Final[Mapping[str, type[LinearAttention]]] = {  # by the name of the part in a model
    "mamba": Mamba,
    "mamba2": Mamba2,
    "gated_delta": GatedDelta,
    "gated_linear": GatedLinear,
    "rg_lru": RgLru,
    "rwkv": Rwkv,
    "short_conv": ShortConv,
}
