"""How well the engine's formulas, with the figures of a machine file, tell the times that the file was made from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from traincast.accuracy.measure import predict as predicted
from traincast.accuracy.measure.bounded_fit import Values
from traincast.accuracy.measure.fit_accelerator import Figures
from traincast.accuracy.measure.fit_network import system_of
from traincast.accuracy.measure.tables import Row
from traincast.core.quantities import Floats

MIN_MEMORY_BOUND_BYTES: Final = 2.0**20  # traffic of a kernel that is bound by memory, not by its start [byte]
LARGE_MESSAGE_BYTES: Final = 2**18  # of a collective that is bound by bandwidth [byte]
ALL_KINDS: Final = "all"


@dataclass(frozen=True)
class KindError:
    """Errors of predicted times, relative to the measured.

    Parameters
    ----------
    family, kind : str
        What was timed.
    rows : int
        How many.
    mape, bias : float
        Mean absolute error, and mean error.
    worst : str
        Where it is largest.
    """

    family: str
    kind: str
    rows: int
    mape: float
    bias: float
    worst: str

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def errors_by_family(it: Figures, network: Sequence[Values]) -> tuple[KindError, ...]:
    """Errors by family and kind.

    Parameters
    ----------
    it : Figures
        Figures of a machine, and what was timed on it.
    network : sequence of dict of str to float
        Figures of its tiers.
    """
    memory = [row for row in it.of("memory") if row.task.nbytes >= MIN_MEMORY_BOUND_BYTES]
    predictions: Mapping[str, tuple[list[Row], Callable[[list[Row]], Floats]]] = {
        "products": (it.of("products"), lambda rows: predicted.products(rows, it.gpu(), it.bare())),
        "attention": (it.of("attention"), lambda rows: predicted.attention(rows, it.gpu(), it.assumed())),
        "memory": (memory, lambda rows: predicted.memory(rows, it.gpu(), it.bare())),
        "collectives": (
            it.of("collectives") if network else [],
            lambda rows: predicted.collectives(rows, system_of(it, network), it.assumed(), it.about),
        ),
    }
    found: list[KindError] = []
    for family, (rows, predict) in predictions.items():
        if rows:
            found += _errors_by_kind(family, rows, predict(rows) / it.seconds(rows) - 1)
    return tuple(found)


def _errors_by_kind(family: str, rows: Sequence[Row], wrong: Floats) -> list[KindError]:
    """Errors of each kind of a family, and of all of it."""
    kinds = [{row.task.dtype if family == "products" else row.task.op, ALL_KINDS} for row in rows]
    for row, some in zip(rows, kinds, strict=True):
        if family == "collectives":
            some.add("small" if row.task.sizes[0] < LARGE_MESSAGE_BYTES else "large")
    found = []
    for kind in sorted(
        {kind for some in kinds for kind in some}, key=lambda one: (one == ALL_KINDS, one in ("small", "large"), one)
    ):
        own = np.array([kind in some for some in kinds])
        worst = rows[int(np.argmax(np.abs(wrong) * own))].task.key
        found.append(KindError(family, kind, int(own.sum()), float(np.mean(np.abs(wrong[own]))), float(np.mean(wrong[own])), worst))
    return found
