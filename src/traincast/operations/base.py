"""The vocabulary of counting: kernels, collectives, and operations that go forward and backward.

Every field is a number or a column over plans; nothing here knows of time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from traincast.columns import Column

Unit = Literal["matrix", "vector"]
Axis = Literal["tp", "tp2", "cp", "dp"]
CollectiveKind = Literal["all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce"]


@dataclass(frozen=True, slots=True)
class Gemm:
    """`batch` products of an m x k by a k x n matrix on the matrix unit.

    With `accumulate` the product is added to what is there, which costs one addition per element more.
    """

    m: Column
    k: Column
    n: Column
    batch: Column = 1.0
    accumulate: bool = False
    unit: Unit = "matrix"

    @property
    def flops(self) -> Column:
        """Multiplications and additions [FLOP]: each of the m n results takes k products and k - 1 sums."""
        return self.batch * self.m * self.n * (2 * self.k - 1 + self.accumulate)


@dataclass(frozen=True, slots=True)
class Vector:
    """Elementwise work and reductions on the vector unit [FLOP]."""

    flops: Column
    unit: Unit = "vector"


Kernel = Gemm | Vector


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective over the group `over`; `nbytes` is the full tensor, not the shard [byte]."""

    kind: CollectiveKind
    nbytes: Column
    over: Axis


@dataclass(frozen=True, slots=True)
class Pass:
    """One direction of an operation: arithmetic, memory traffic [byte] and communication.

    With `panels`, `collectives` is what one panel communicates, and panels overlap with the arithmetic.
    """

    kernels: tuple[Kernel, ...]
    nbytes: Column
    collectives: tuple[Collective, ...] = ()
    panels: Column | None = None

    def flops(self, unit: Unit) -> Column:
        """Arithmetic on one unit [FLOP]."""
        return total(kernel.flops for kernel in self.kernels if kernel.unit == unit)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the layer: its forward and backward pass, its weights and what it saves for backward [byte].

    With `recompute`, backward first makes the forward pass again. What a `passed_on` operation saves is also what pipeline stages
    pass on.
    """

    name: str
    forward: Pass
    backward: Pass
    weight_bytes: Column = 0.0
    saved_bytes: Column = 0.0
    recompute: bool = False
    passed_on: bool = False


def total(terms: Iterable[Column]) -> Column:
    """Sum that does not start from an integer zero, so that it keeps units; 0.0 for no term."""
    iterator = iter(terms)
    first = next(iterator, 0.0)
    return sum(iterator, start=first)
