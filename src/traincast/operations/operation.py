"""The classes operations are counted with: kernels, collectives, and operations with a forward and a backward pass.

Every field is a number or a column over plans. Times are the business of `traincast.times`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from traincast.core.quantities import Column

Unit = Literal[
    "matrix", "low", "vector"
]  # the matrix unit at 16 bits or above, at the rate of the recipe, the vector unit
Axis = Literal[
    "tp",
    "tp2",
    "cp",
    "dp",
    "pp",
    "ep",
    "etp",
    "ulysses",
    "weights",
    "shards",
    "replicas",
    "experts",
    "expert shards",
    "expert replicas",
]
Layout = Literal["one", "grouped", "batched"]  # one matrix; one for each expert; one for each head
Role = Literal[
    "",
    "qkv",
    "core attention",
    "output projection",
    "attention norm",
    "up projection",
    "activation",
    "down projection",
]  # what selective recomputation of single operations (torchtitan's) distinguishes
CollectiveKind = Literal[
    "all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "all-to-all", "send"
]


@dataclass(frozen=True, slots=True)
class Gemm:
    """`batch` products of an m x k by a k x n matrix on the matrix unit (arXiv 2410.00273, operations of a layer)."""

    # Sizes of the matrices; columns over plans.
    m: Column
    k: Column
    n: Column
    batch: Column = 1.0  # number of products; a column over plans
    # Whether the product is added to a matrix that is there, which takes one addition more per element.
    accumulate: bool = False
    # Whether it runs at the rate of the precision recipe instead of at 16 bits (or above).
    low: bool = False
    # One product with the weights of a layer, one for each expert's, or one for each head of attention.
    layout: Layout = "one"

    @property
    def unit(self) -> Unit:
        """Return the unit that does the work, and its rate."""
        return "low" if self.low else "matrix"

    @property
    def flops(self) -> Column:
        """Multiplications and additions [FLOP]: each of the m n results takes k products and k - 1 sums."""
        return self.batch * self.m * self.n * (2 * self.k - 1 + self.accumulate)


@dataclass(frozen=True, slots=True)
class Vector:
    """Elementwise work and reductions on the vector unit."""

    flops: Column  # arithmetic; a column over plans [FLOP]
    unit: ClassVar[Unit] = "vector"


Kernel = Gemm | Vector


@dataclass(frozen=True, slots=True)
class Fused:
    """Shapes that decide the rate of a kernel that runs all of core attention (FlashAttention)."""

    queries: Column  # queries of all heads, in tiles that the multiprocessors share; a column over plans
    keys: Column  # keys of a query, masked ones included; a column over plans
    share: Column  # share of the keys that the mask leaves
    # Number of pieces that the keys of a query come in, each with a start of its own; a column over plans.
    starts: Column
    width: Column  # mean width of a head's keys and values
    backward: bool = False  # whether it is the backward pass


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation."""

    kind: CollectiveKind  # collective; ``"send"`` passes a block to the neighbour in a ring
    # Size of the full tensor, not of the shard (all-to-all: of a rank's tensor; send: of the block); a
    # column over plans [byte].
    nbytes: Column
    over: Axis  # communication group
    copies: Column = 1.0  # all-to-all: number of members that each part goes to


@dataclass(frozen=True, slots=True)
class PassCount:
    """Arithmetic, memory traffic and communication of one pass of an operation."""

    kernels: tuple[Kernel, ...]  # arithmetic
    nbytes: Column  # memory traffic; a column over plans [byte]
    collectives: tuple[Collective, ...] = ()  # communication; that of one panel where there are panels
    # Panels of a SUMMA product, whose communication overlaps with the arithmetic; a column over plans.
    panels: Column | None = None
    # Rounds of ring attention: how often the collectives are repeated, overlapped with the arithmetic; a
    # column over plans.
    rounds: Column | None = None
    # Part of the traffic that writes results of products, accumulation included; a column over plans
    # [byte].
    written: Column = 0.0
    cast: Column = 0.0  # part of the traffic that casts to lower precision; a column over plans [byte]
    fused: Fused | None = None  # shapes of the one kernel that runs all of `kernels`, if there is one
    launches: Column = 1.0  # kernels that the host launches; a column over plans

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

    def flops(self, unit: Unit) -> Column:
        """Count the arithmetic on one unit."""
        return total(kernel.flops for kernel in self.kernels if kernel.unit == unit)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a layer on one rank, for one micro-batch."""

    name: str  # block and operation, such as ``"mlp.fc1"``; for people to read, no behaviour depends on it
    # The two passes; backward of a linear layer is the gradient of its input.
    forward: PassCount
    backward: PassCount
    weight: PassCount | None = None  # gradient of the weights, where it is work of its own
    weights: Column = 0.0  # parameters on the rank; a column over plans
    experts: bool = False  # whether the weights belong to experts
    saved_bytes: Column = 0.0  # activations saved for backward; a column over plans [byte]
    recompute: float = 0.0  # share of the forward pass that is recomputed before backward
    # Whether recomputation of the layer leaves it out, because backward does not read its result.
    output_unused: bool = False
    # Whether it saves the layer's input, which a pipeline stage sends to the next.
    saves_layer_input: bool = False
    module: str = ""  # module that it is recomputed with
    recomputed_with: str = ""  # module whose recomputation also restores the activations it saves
    # Activations that are recomputed instead of saved; a column over plans [byte].
    recomputed_bytes: Column = 0.0
    peak_bytes: Column = 0.0  # temporary memory while it runs; a column over plans [byte]
    # Whether the host waits for its result before it launches the next operation.
    synchronises: bool = False
    role: Role = ""  # role in the layer, for selective recomputation of single operations
    # Whether its result is used for the layer's output only: backward reads its operands, not its result.
    only_makes_output: bool = False
    # Whether frameworks that fuse additions run it inside the kernel before or after it.
    fused_with_neighbour: bool = False
    # Whether its memory traffic is already that of a framework's kernels; `Assumptions.elementwise_passes`
    # leaves it alone.
    has_framework_traffic: bool = False

    @property
    def whole_backward(self) -> PassCount:
        """Return the gradients of input and weights as one pass."""
        return self.backward if self.weight is None else self.backward + self.weight


def total(terms: Iterable[Column]) -> Column:
    """Sum terms without starting from an integer zero, which keeps units."""
    iterator = iter(terms)
    first = next(iterator, 0.0)
    return sum(iterator, start=first)


Comms = tuple[Collective, ...]
