"""Times of the passes of an operation, and of the operations of a part of the model."""

from dataclasses import dataclass
from typing import NamedTuple

from traincast.core import Column
from traincast.operations import Operation


@dataclass(slots=True)
class PassSeconds:
    """Time of a pass by what it is spent on; columns over plans."""

    compute: Column  # launches and arithmetic [s]
    memory: Column  # memory traffic not hidden behind arithmetic [s]
    comm: Column  # tensor- and context-parallel communication not hidden [s]
    exchange: Column = 0.0  # communication with experts not hidden [s]
    # time of the host to launch it all, overlapped with the accelerator's work; no part of the total [s]
    dispatch: Column = 0.0
    # communication with experts overlapped with another micro-batch's work; no part of the total [s]
    hidden: Column = 0.0
    # in which the accelerator has nothing to do until the host has issued more; no part of the total [s]
    idle: Column = 0.0

    @property
    def work(self) -> Column:
        """Time on the accelerator but for communication with experts [s]."""
        return self.compute + self.memory + self.comm

    @property
    def total(self) -> Column:
        """Time on the accelerator [s]."""
        return self.work + self.exchange

    def times(self, n: Column) -> "PassSeconds":
        """Return the time of n such passes."""
        return PassSeconds(
            n * self.compute,
            n * self.memory,
            n * self.comm,
            n * self.exchange,
            n * self.dispatch,
            n * self.hidden,
            n * self.idle,
        )

    def __add__(self, other: "PassSeconds") -> "PassSeconds":
        """Return the time of both passes, one after the other."""
        return PassSeconds(
            self.compute + other.compute,
            self.memory + other.memory,
            self.comm + other.comm,
            self.exchange + other.exchange,
            self.dispatch + other.dispatch,
            self.hidden + other.hidden,
            self.idle + other.idle,
        )


class OperationPasses(NamedTuple):
    """Times of the passes of an operation."""

    forward: PassSeconds
    backward: PassSeconds  # with the gradient of the weights
    weight: Column  # the part of backward that computes the gradient of the weights [s]
    weight_dispatch: Column = 0.0  # the part of the host's time for backward that issues it [s]


@dataclass(slots=True)
class TimedOperation:
    """An operation with the time of its passes."""

    operation: Operation  # the operation
    forward: PassSeconds  # time of each pass; backward includes the gradient of the weights
    backward: PassSeconds
    weight: Column  # the part of backward that computes the gradient of the weights [s]
    recompute: PassSeconds | None  # recomputation of the forward pass before backward, if any
    weight_dispatch: Column = 0.0  # the part of the host's time for backward that issues `weight` [s]


Timed = tuple[TimedOperation, ...]
