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
    """`batch` products of an m x k by a k x n matrix on the matrix unit (arXiv 2410.00273, operations of a layer).

    Parameters
    ----------
    m, k, n : Column
        Sizes of the matrices; columns over plans.
    batch : Column
        Number of products; a column over plans.
    accumulate : bool
        Whether the product is added to a matrix that is there, which takes one addition more per element.
    low : bool
        Whether it runs at the rate of the precision recipe instead of at 16 bits (or above).
    layout : {"one", "grouped", "batched"}
        One product with the weights of a layer, one for each expert's, or one for each head of attention.
    """

    m: Column
    k: Column
    n: Column
    batch: Column = 1.0
    accumulate: bool = False
    low: bool = False
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
    """Elementwise work and reductions on the vector unit.

    Parameters
    ----------
    flops : Column
        Arithmetic; a column over plans [FLOP].
    """

    flops: Column
    unit: ClassVar[Unit] = "vector"


Kernel = Gemm | Vector


@dataclass(frozen=True, slots=True)
class Fused:
    """Shapes that decide the rate of a kernel that runs all of core attention (FlashAttention).

    Parameters
    ----------
    queries : Column
        Queries of all heads, in tiles that the multiprocessors share; a column over plans.
    keys : Column
        Keys of a query, masked ones included; a column over plans.
    share : Column
        Share of the keys that the mask leaves.
    starts : Column
        Number of pieces that the keys of a query come in, each with a start of its own; a column over plans.
    width : Column
        Mean width of a head's keys and values.
    backward : bool
        Whether it is the backward pass.
    """

    queries: Column
    keys: Column
    share: Column
    starts: Column
    width: Column
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation.

    Parameters
    ----------
    kind : {"all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "all-to-all", "send"}
        Collective; ``"send"`` passes a block to the neighbour in a ring.
    nbytes : Column
        Size of the full tensor, not of the shard (all-to-all: of a rank's tensor; send: of the block); a column over plans [byte].
    over : Axis
        Communication group.
    copies : Column
        All-to-all: number of members that each part goes to.
    """

    kind: CollectiveKind
    nbytes: Column
    over: Axis
    copies: Column = 1.0


@dataclass(frozen=True, slots=True)
class PassCount:
    """Arithmetic, memory traffic and communication of one pass of an operation.

    Parameters
    ----------
    kernels : tuple of Gemm or Vector
        Arithmetic.
    nbytes : Column
        Memory traffic; a column over plans [byte].
    collectives : tuple of Collective
        Communication; that of one panel where there are panels.
    panels : Column, optional
        Panels of a SUMMA product, whose communication overlaps with the arithmetic; a column over plans.
    rounds : Column, optional
        Rounds of ring attention: how often the collectives are repeated, overlapped with the arithmetic; a column over plans.
    written : Column
        Part of the traffic that writes results of products, accumulation included; a column over plans [byte].
    cast : Column
        Part of the traffic that casts to lower precision; a column over plans [byte].
    fused : Fused, optional
        Shapes of the one kernel that runs all of `kernels`, if there is one.
    launches : Column
        Kernels that the host launches; a column over plans.
    """

    kernels: tuple[Kernel, ...]
    nbytes: Column
    collectives: tuple[Collective, ...] = ()
    panels: Column | None = None
    rounds: Column | None = None
    written: Column = 0.0
    cast: Column = 0.0
    fused: Fused | None = None
    launches: Column = 1.0

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
        """Count the arithmetic on one unit.

        Parameters
        ----------
        unit : {"matrix", "low", "vector"}
            Unit; ``"low"`` counts products in the low precision of the recipe, which ``"matrix"`` leaves out.

        Returns
        -------
        Column
            Sum over the kernels of that unit; a column over plans [FLOP].
        """
        return total(kernel.flops for kernel in self.kernels if kernel.unit == unit)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a layer on one rank, for one micro-batch.

    Parameters
    ----------
    name : str
        Block and operation, such as ``"mlp.fc1"``; for people to read, no behaviour depends on it.
    forward, backward : PassCount
        The two passes; backward of a linear layer is the gradient of its input.
    weight : PassCount or None
        Gradient of the weights, where it is work of its own.
    weights : Column
        Parameters on the rank; a column over plans.
    experts : bool
        Whether the weights belong to experts.
    saved_bytes : Column
        Activations saved for backward; a column over plans [byte].
    recompute : float
        Share of the forward pass that is recomputed before backward.
    output_unused : bool
        Whether recomputation of the layer leaves it out, because backward does not read its result.
    saves_layer_input : bool
        Whether it saves the layer's input, which a pipeline stage sends to the next.
    module : str
        Module that it is recomputed with.
    recomputed_with : str
        Module whose recomputation also restores the activations it saves.
    recomputed_bytes : Column
        Activations that are recomputed instead of saved; a column over plans [byte].
    peak_bytes : Column
        Temporary memory while it runs; a column over plans [byte].
    synchronises : bool
        Whether the host waits for its result before it launches the next operation.
    role : Role
        Role in the layer, for selective recomputation of single operations.
    only_makes_output : bool
        Whether its result is used for the layer's output only: backward reads its operands, not its result.
    fused_with_neighbour : bool
        Whether frameworks that fuse additions run it inside the kernel before or after it.
    has_framework_traffic : bool
        Whether its memory traffic is already that of a framework's kernels; `Assumptions.elementwise_passes` leaves it alone.
    """

    name: str
    forward: PassCount
    backward: PassCount
    weight: PassCount | None = None
    weights: Column = 0.0
    experts: bool = False
    saved_bytes: Column = 0.0
    recompute: float = 0.0
    output_unused: bool = False
    saves_layer_input: bool = False
    module: str = ""
    recomputed_with: str = ""
    recomputed_bytes: Column = 0.0
    peak_bytes: Column = 0.0
    synchronises: bool = False
    role: Role = ""
    only_makes_output: bool = False
    fused_with_neighbour: bool = False
    has_framework_traffic: bool = False

    @property
    def whole_backward(self) -> PassCount:
        """Return the gradients of input and weights as one pass."""
        return self.backward if self.weight is None else self.backward + self.weight


def total(terms: Iterable[Column]) -> Column:
    """Sum terms without starting from an integer zero, which keeps units.

    Parameters
    ----------
    terms : iterable of Column
        Numbers or columns whose shapes broadcast.

    Returns
    -------
    Column
        Their sum; 0.0 for no term.
    """
    iterator = iter(terms)
    first = next(iterator, 0.0)
    return sum(iterator, start=first)


Comms = tuple[Collective, ...]
