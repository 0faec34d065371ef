"""Classes that operations are counted with: kernels, collectives, and operations with two passes.

Every field is a number or a column over plans. Times are the business of `traincast.times`.

Nothing changes these objects, nor those of their times. They are not frozen: a frozen one takes ten times as
long to make, and a search makes thousands.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from traincast.core import Column

# The matrix unit at 16 bits or above, the same at the rate of the precision recipe, and the vector unit.
Unit = Literal["matrix", "low", "vector"]
# Axes of a plan; "cp" without the ranks of "ulysses". "weights": ranks with the same weights, "shards": those
# that shard one copy, "replicas": those with the same shard. "ep", "etp", "tp-ep" (those of both, the
# tp_ep_group of Megatron-Core), "experts", "expert shards" and "expert replicas": those of the experts.
Axis = Literal[
    "tp", "tp2", "cp", "dp", "pp", "ep", "etp", "tp-ep", "ulysses", "weights", "shards", "replicas",
    "experts", "expert shards", "expert replicas",
]  # fmt: skip
Layout = Literal[  # one matrix; one for each expert; one for each head; one for each chunk of a scan
    "one", "grouped", "batched", "chunked"
]
Direction = Literal["forward", "backward"]
Role = Literal[  # what selective recomputation of single operations (torchtitan's) distinguishes
    "", "qkv", "input projection", "core attention", "output projection", "attention norm", "up projection",
    "activation", "down projection",
    # those that adapters distinguish besides
    "head", "q_down", "q_up", "kv_down", "kv_up", "router", "shared_gate",
]  # fmt: skip
CollectiveKind = Literal[  # "send" passes a block to the neighbour in a ring
    "all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "all-to-all", "send"
]


@dataclass(slots=True)
class Gemm:
    """`batch` products of an m x k by a k x n matrix on the matrix unit (arXiv 2410.00273)."""

    m: Column
    k: Column
    n: Column
    batch: Column = 1.0
    accumulate: bool = False  # whether the product is added to a matrix, one addition more per element
    low: bool = False  # whether it runs at the rate of the precision recipe instead of at 16 bits (or above)
    layout: Layout = "one"

    @property
    def unit(self) -> Unit:
        """Unit that does the work, and its rate."""
        return "low" if self.low else "matrix"

    @property
    def flops(self) -> Column:
        """Multiplications and additions [FLOP]: each of the m n results takes k products and k - 1 sums."""
        return self.batch * self.m * self.n * (2 * self.k - 1 + self.accumulate)


@dataclass(slots=True)
class Vector:
    """Elementwise work and reductions on the vector unit."""

    flops: Column  # [FLOP]
    unit: ClassVar[Unit] = "vector"


Kernel = Gemm | Vector


@dataclass(slots=True)
class Fused:
    """Shapes that decide the rate of a kernel that runs all of core attention (FlashAttention)."""

    queries: Column  # of all heads, in tiles that the multiprocessors share
    keys: Column  # of a query, masked ones included
    share: Column  # of the keys that the mask leaves
    starts: Column  # pieces that the keys of a query come in, each with a start of its own
    width: Column  # mean width of a head's keys and values
    backward: bool = False


@dataclass(slots=True)
class Collective:
    """One collective operation."""

    kind: CollectiveKind
    nbytes: Column  # full tensor, not the shard; all-to-all: a rank's tensor; send: the block [byte]
    over: Axis
    copies: Column = 1.0  # all-to-all: members that each part goes to
    # all-to-all: groups of members, one after the other, and those of them that each part goes to
    groups: tuple[int, int] = (1, 1)


Comms = tuple[Collective, ...]


@dataclass(slots=True)
class PassCount:
    """Arithmetic, memory traffic and communication of one pass of an operation."""

    kernels: tuple[Kernel, ...]
    nbytes: Column  # memory traffic [byte]
    collectives: Comms = ()  # of one panel where there are panels
    panels: Column | None = None  # of a SUMMA product, whose communication overlaps with the arithmetic
    rounds: Column | None = None  # of ring attention, whose collectives overlap with the arithmetic
    written: Column = 0.0  # part of the traffic that writes results of products, accumulation included [byte]
    cast: Column = 0.0  # part of the traffic that casts to lower precision [byte]
    fused: Fused | None = None  # shapes of the one kernel that runs all of `kernels`, if there is one
    launches: Column = 1.0  # kernels that the host launches

    def __add__(self, other: "PassCount") -> "PassCount":
        """Return the work of both passes."""
        return PassCount(
            self.kernels + other.kernels,
            self.nbytes + other.nbytes,
            self.collectives + other.collectives,
            self.panels,
            self.rounds,
            self.written + other.written,
            self.cast + other.cast,
            self.fused,
            self.launches,
        )

    @property
    def gemms(self) -> list[Gemm]:
        """Kernels that are matrix products."""
        return [kernel for kernel in self.kernels if isinstance(kernel, Gemm)]

    def flops(self, unit: Unit) -> Column:
        """Count the arithmetic of the kernels on one unit [FLOP]."""
        return total(kernel.flops for kernel in self.kernels if kernel.unit == unit)


@dataclass(slots=True)
class Operation:
    """An operation of a layer on one rank, for one micro-batch."""

    name: str  # block and operation, such as "mlp.fc1"; for people to read, no behaviour depends on it
    forward: PassCount
    backward: PassCount  # of a linear layer: the gradient of its input
    weight: PassCount | None = None  # gradient of the weights, where it is work of its own
    weights: Column = 0.0  # parameters on the rank
    frozen_bytes: Column = 0.0  # frozen weights on the rank; `weights` are those that are trained [byte]
    # what frozen weights that are loaded in fp32 take beside these; of ZeRO-2 and 3 it is sharded [byte]
    frozen_fp32_bytes: Column = 0.0
    only_trains: bool = False  # whether backward is the gradient of the weights alone
    experts: bool = False  # whether the weights belong to experts
    saved_bytes: Column = 0.0  # activations saved for backward [byte]
    recompute: float = 0.0  # share of the forward pass that is recomputed before backward
    output_unused: bool = False  # whether recomputation leaves it out, as backward does not read its result
    saves_layer_input: bool = False  # which a pipeline stage sends to the next
    # of the saved activations, what is not that input: copies in fp32, and statistics [byte]
    copied_bytes: Column = 0.0
    passed_bytes: Column = 0.0  # what a pipeline stage sends to the next besides [byte]
    module: str = ""  # that it is recomputed with
    recomputed_with: str = ""  # module whose recomputation also restores the activations it saves
    recomputed_bytes: Column = 0.0  # activations that are recomputed instead of saved [byte]
    peak_bytes: Column = 0.0  # temporary memory while it runs [byte]
    gathered_bytes: Column = 0.0  # tokens of other ranks and their gradients, while it is at work [byte]
    gradient_bytes: Column = 0.0  # gradients of its input and result, both there in backward [byte]
    synchronises: bool = False  # whether the host waits for its result before it launches the next operation
    pieces: Column = 0.0  # packed documents that frameworks without a fused kernel issue it for
    waits_for_lengths: bool = False  # whether the host reads their lengths from the accelerator, and so waits
    role: Role = ""
    only_makes_output: bool = False  # whether backward reads its operands, not its result
    fused_with_neighbour: bool = False  # whether frameworks that fuse additions run it inside another kernel
    is_reference: bool = False  # whether a reference model runs its forward pass as well
    is_mask: bool = False  # whether what it saves is the mask of dropout
    has_framework_traffic: bool = False  # whether `elementwise_passes` leaves its traffic alone

    @property
    def whole_backward(self) -> PassCount:
        """Gradients of input and weights as one pass."""
        return self.backward if self.weight is None else self.backward + self.weight

    @property
    def layer_input_bytes(self) -> Column:
        """Return the saved input of the layer, which a fully recomputed one keeps [byte]."""
        return self.saved_bytes - self.copied_bytes if self.saves_layer_input else 0.0

    @property
    def saved_bytes_within_layer(self) -> Column:
        """Return what it saves besides the input of the layer [byte]."""
        return self.copied_bytes if self.saves_layer_input else self.saved_bytes

    @property
    def passes(self) -> dict[Direction, PassCount]:
        """Both passes, that of gradients as a whole."""
        return {"forward": self.forward, "backward": self.whole_backward}


def total(terms: Iterable[Column]) -> Column:
    """Sum terms without starting from an integer zero, which keeps units; 0.0 for no term."""
    iterator = iter(terms)
    first = next(iterator, 0.0)
    return sum(iterator, start=first)
