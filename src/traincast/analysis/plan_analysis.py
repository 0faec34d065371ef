"""What follows from the estimate of one plan: throughput, sizes, network, methods and rules of thumb."""

from functools import cached_property
from typing import Annotated

from traincast.analysis.batch_and_network import (
    NETWORK_SHARE,
    BatchSizeOption,
    Network,
    batches,
    best_batch,
    network,
)
from traincast.analysis.model_dimensions import Dimension, Product, dimensions, wasteful
from traincast.analysis.per_parameter import PerParameter, Throughput, bytes_per_parameter_of, throughput
from traincast.analysis.saving_methods import Method, methods
from traincast.analysis.thumb_rules import RuleOfThumb, rules_of_thumb
from traincast.core import KEY, Doc, Result
from traincast.step import Cause, Estimate, MeasuredStep


class PlanAnalysis(Result):
    """What follows from the estimate of one plan alone; each part is computed on first access."""

    est: Estimate
    measured: Annotated[MeasuredStep | None, Doc("what was measured; null where nothing was given")] = None
    network_share: float = NETWORK_SHARE

    @property
    def step_seconds(self) -> Annotated[float | None, Doc(key="measured_step_seconds")]:
        """Measured time of a step; null where nothing was given [s]."""
        return None if self.measured is None else self.measured.step_seconds

    @cached_property
    def per_parameter(self) -> Annotated[PerParameter, Doc(key="bytes_per_parameter")]:
        """Bytes per parameter before sharding."""
        return bytes_per_parameter_of(self.est)

    @property
    def parameters(self) -> Annotated[int, KEY]:
        """Parameters of the model."""
        return self.est.model.parameters

    @cached_property
    def throughput(self) -> Annotated[list[Throughput], KEY]:
        """FLOP/s and utilisation by convention; of the measured step time where it is given."""
        return throughput(self.est, self.step_seconds)

    @cached_property
    def products(self) -> Annotated[list[Product], KEY]:
        """Matrix products that lose more than 2 % to tile or wave quantisation, the most expensive first."""
        return wasteful(self.est)

    @cached_property
    def dimensions(self) -> Annotated[list[Dimension], KEY]:
        """Dimensions of the model, and better values near them."""
        return dimensions(self.est)

    @cached_property
    def batches(self) -> Annotated[list[BatchSizeOption], KEY]:
        """Micro-batch and global batch sizes, the plan's own first."""
        return batches(self.est)

    @property
    def best_mbs(self) -> Annotated[int, KEY]:
        """The fastest micro-batch of these that fits at the plan's global batch [sequence]."""
        return best_batch(self.batches).mbs

    @cached_property
    def network(self) -> Annotated[Network, KEY]:
        """Bandwidth between nodes that the plan needs, in one direction."""
        return network(self.est, self.network_share)

    @cached_property
    def methods(self) -> Annotated[list[Method], KEY]:
        """Methods that save time or memory, one change at a time."""
        capacity = float(self.est.system.accelerator.visible_bytes)
        return [method for method in methods(self.est) if method.helps(capacity)]

    @property
    def causes(self) -> Annotated[list[Cause], Doc(place=2)]:
        """What alone would make the step as slow as measured, the smallest change first; else empty."""
        return [] if self.measured is None else self.measured.causes

    @cached_property
    def rules(self) -> Annotated[list[RuleOfThumb], Doc(key="rules_of_thumb", place=2)]:
        """Rules of thumb with the estimator's figures."""
        return list(rules_of_thumb(self.est, self.batches, self.throughput, self.network))
