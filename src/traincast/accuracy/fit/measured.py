"""Measurements on a system: training runs, collectives, matrix products."""

from collections import Counter
from typing import Annotated

from traincast.accuracy.logs import Collective, Gemm
from traincast.accuracy.runs.run import Run
from traincast.catalog import Stack
from traincast.core import Doc, Result, System, count_of


class Measured(Result, eq=False):
    """Measurements on a system (the most similar one), and why others are left out; in JSON, counts."""

    system: System
    runs: tuple[Run, ...] = ()
    collectives: tuple[Collective, ...] = ()
    products: tuple[Gemm, ...] = ()
    left_out: tuple[str, ...] = ()
    assumed: Annotated[tuple[str, ...], Doc("what launches leave open, and is assumed of them")] = ()

    @property
    def run_count(self) -> Annotated[int, Doc("training runs used", key="runs")]:
        """Number of training runs."""
        return len(self.runs)

    @property
    def collective_count(self) -> Annotated[int, Doc("measured collectives used", key="collectives")]:
        """Number of timed collectives."""
        return len(self.collectives)

    @property
    def product_count(self) -> Annotated[int, Doc("measured matrix products used", key="products")]:
        """Number of timed matrix products."""
        return len(self.products)

    def counts(self) -> str:
        """Return the number of measurements by kind, in words."""
        return ", ".join(count_of(n, kind.removesuffix("s")) for kind, n in self.numbers.items() if n)

    @property
    def software(self) -> dict[str, str]:
        """Return the software of most runs by kind of model: dense, or with experts; without runs empty."""
        kinds = {"dense": Counter[str](), "experts": Counter[str]()}
        for run in self.runs:
            stack = Stack(run.stack).fitted_name
            kinds["dense" if run.model.experts is None else "experts"][stack] += 1
        return {kind: stacks.most_common(1)[0][0] for kind, stacks in kinds.items() if stacks}

    @property
    def numbers(self) -> dict[str, int]:
        """Return the number of measurements of each kind, in the order in which they are fitted."""
        return {
            "runs": self.run_count,
            "collectives": self.collective_count,
            "products": self.product_count,
        }
