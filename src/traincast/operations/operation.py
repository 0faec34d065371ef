"""The vocabulary of counting: kernels, collectives, and operations that go forward and backward.

Every field is a number or a column over plans; nothing here knows of time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from traincast.core.quantities import Column

Unit = Literal["matrix", "low", "vector"]  # the matrix unit at 16 bits or above, at the rate of the recipe, the vector unit
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
CollectiveKind = Literal["all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce", "all-to-all", "send"]


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
        Whether the product is added to what is there, which costs one addition per element more.
    low : bool
        Whether it runs at the rate of the precision recipe; at 16 bits (or above) otherwise.
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
        """Unit that does the work, and at which rate."""
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
    """What decides the rate of a kernel that does all of core attention at once.

    Parameters
    ----------
    queries : Column
        Queries of all heads, whose tiles are shared out to the multiprocessors; a column over plans.
    keys : Column
        All keys of a query; a column over plans.
    share : Column
        Share of them that is worked on.
    starts : Column
        How often work on the keys of a query starts, where they come in pieces; a column over plans.
    width : Column
        Mean width of a head's keys and values.
    backward : bool
        Whether it makes the gradients.
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
        What it does; ``"send"`` passes a block to the neighbour in a ring.
    nbytes : Column
        The full tensor, not the shard (all-to-all: what a rank has; send: the block); a column over plans [byte].
    over : Axis
        Group that takes part.
    copies : Column
        All-to-all: how many members each part goes to.
    """

    kind: CollectiveKind
    nbytes: Column
    over: Axis
    copies: Column = 1.0


@dataclass(frozen=True, slots=True)
class PassCount:
    """One direction of an operation: arithmetic, memory traffic and communication.

    Parameters
    ----------
    kernels : tuple of Gemm or Vector
        Arithmetic.
    nbytes : Column
        Memory traffic; a column over plans [byte].
    collectives : tuple of Collective
        Communication; of one panel where there are panels.
    panels : Column, optional
        Panels of a SUMMA product, whose communication overlaps with the arithmetic; a column over plans.
    rounds : Column, optional
        Rounds of ring attention: so many times the collectives are repeated behind the arithmetic; a column over plans.
    written : Column
        The part of the traffic that is results of products, and what they are added to; a column over plans [byte].
    cast : Column
        The part of the traffic that is casts to lower precision; a column over plans [byte].
    fused : Fused, optional
        What it takes to time all kernels as one, where they are one.
    launches : Column
        Operations the host issues for the kernels; a column over plans.
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
        """Both as one piece of work."""
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
        """Arithmetic on one unit.

        Parameters
        ----------
        unit : {"matrix", "low", "vector"}
            The unit; ``"low"`` are products on the matrix unit in the low precision of the recipe, which ``"matrix"`` leaves out.

        Returns
        -------
        Column
            Sum over the kernels of that unit; a column over plans [FLOP].
        """
        return total(kernel.flops for kernel in self.kernels if kernel.unit == unit)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the layer, as one rank sees it for one micro-batch.

    Parameters
    ----------
    name : str
        Block and operation, such as ``"mlp.fc1"``.
    forward, backward : PassCount
        The two directions; backward of a linear layer is the gradient of its input.
    weight : PassCount or None
        The gradient of the weights, where it is work of its own.
    weights : Column
        Parameters on the rank; a column over plans.
    experts : bool
        Whether they belong to experts.
    saved_bytes : Column
        Activations kept for backward; a column over plans [byte].
    recompute : float
        Share of the forward pass that backward makes again first.
    unread : bool
        Whether backward has no use for its result, so that it is left out where the layer is made again.
    passed_on : bool
        Whether what it saves is also what pipeline stages pass on.
    module : str
        What it belongs to where modules are recomputed.
    recomputed_with : str
        Module whose recomputation also makes what it saves.
    recomputed_bytes : Column
        Activations that are made again instead of being kept; a column over plans [byte].
    peak_bytes : Column
        Temporary memory while it works; a column over plans [byte].
    synchronises : bool
        Whether the host has to see its result before it can issue what follows.
    """

    name: str
    forward: PassCount
    backward: PassCount
    weight: PassCount | None = None
    weights: Column = 0.0
    experts: bool = False
    saved_bytes: Column = 0.0
    recompute: float = 0.0
    unread: bool = False
    passed_on: bool = False
    module: str = ""
    recomputed_with: str = ""
    recomputed_bytes: Column = 0.0
    peak_bytes: Column = 0.0
    synchronises: bool = False

    @property
    def whole_backward(self) -> PassCount:
        """Gradients of input and weights together."""
        return self.backward if self.weight is None else self.backward + self.weight


def total(terms: Iterable[Column]) -> Column:
    """Sum that does not start from an integer zero, so that it keeps units.

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
